/* unit_video_tokenizer.c: ids of the small sentencepiece model of tests/data, and models that are none. */
#include "tests/temp_files.h"
#include "video/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static lt_ctx *ctx;
static lti_tokenizer *tok;

static int setup(void **state)
{
    (void)state;
    temp_make();
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return -1;
    return lti_tokenizer_open(&tok, ctx, LT_TEST_DATA "/data/tiny.model");
}

static int teardown(void **state)
{
    (void)state;
    lti_tokenizer_close(&tok);
    lt_ctx_destroy(&ctx);
    temp_remove();
    return 0;
}

static void expect_ids(const char *text, const int32_t *want, int32_t count)
{
    int32_t *ids, n, cut;
    assert_int_equal(lti_tokenizer_encode(tok, ctx, text, 512, 320, &ids, &n, &cut), LT_OK);
    assert_int_equal(n, count);
    assert_int_equal(cut, 0);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(ids[i], want[i]);
    free(ids);
}

/* Ids as the reference implementation's own command gives them for the cleaned text, and EOS. */
static void known_ids(void **state)
{
    (void)state;
    assert_int_equal(lti_tokenizer_size(tok), 320);
    expect_ids("", (const int32_t[]){1}, 1);
    expect_ids("  \n ", (const int32_t[]){1}, 1);
    expect_ids("a red ball bounces on green grass",
               (const int32_t[]){262, 260, 290, 276, 284, 296, 265, 279, 264, 277, 263,
                                 261, 285, 264, 286, 297, 295, 274, 261, 261, 1},
               21);
    expect_ids(
        "“Grass” &amp; ＢＡＬＬ!",
        (const int32_t[]){260, 38, 75, 268, 274, 261, 261, 38, 260, 42, 260, 70, 69, 80, 80, 37, 1},
        17);
    expect_ids("红色 é 😀",
               (const int32_t[]){260, 235, 190, 166, 236, 141, 182, 260, 199, 173, 260, 244, 163,
                                 156, 132, 1},
               16);
}

static void cut(void **state)
{
    (void)state;
    int32_t *ids, n, left, *all, total, none;
    const char *text = "a red ball bounces on green grass";
    assert_int_equal(lti_tokenizer_encode(tok, ctx, text, 512, 320, &all, &total, &none), LT_OK);
    assert_int_equal(lti_tokenizer_encode(tok, ctx, text, 5, 320, &ids, &n, &left), LT_OK);
    assert_int_equal(n, 5);
    assert_int_equal(ids[4], 1);
    assert_int_equal(left, total - 5);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ids[i], all[i]);
    free(ids);
    free(all);
    assert_int_equal(lti_tokenizer_encode(tok, ctx, text, 1, 320, &ids, &n, NULL), LT_OK);
    assert_int_equal(n, 1);
    free(ids);
    assert_int_equal(lti_tokenizer_encode(tok, ctx, text, 0, 320, &ids, &n, NULL), LT_ERR_ARG);
}

static void foreign_encoder(void **state)
{
    (void)state;
    int32_t *ids = (int32_t *)-1, n;
    assert_int_equal(lti_tokenizer_encode(tok, ctx, "a ball", 512, 4, &ids, &n, NULL),
                     LT_ERR_SHAPE);
    assert_null(ids);
    assert_non_null(strstr(lt_error(ctx), "0..3"));
    assert_int_equal(lti_tokenizer_encode(tok, ctx, "a\xff", 512, 320, &ids, &n, NULL), LT_ERR_ARG);
}

static void no_models(void **state)
{
    (void)state;
    lti_tokenizer *t = (lti_tokenizer *)-1;
    assert_int_equal(lti_tokenizer_open(&t, ctx, temp_path("none.model")), LT_ERR_IO);
    assert_null(t);
    temp_text("text.model", "this is no model");
    assert_int_equal(lti_tokenizer_open(&t, ctx, temp_path("text.model")), LT_ERR_FORMAT);
    assert_non_null(strstr(lt_error(ctx), "text.model"));
    assert_null(t);
    assert_int_equal(lti_tokenizer_load(&t, ctx, "", 0, "empty"), LT_ERR_FORMAT);
    assert_null(t);
    lti_tokenizer_close(&t);
}

/* Repacks of text encoders carry the model as a tensor of bytes. */
static void inside_a_text_encoder(void **state)
{
    (void)state;
    char *model, header[300];
    size_t len;
    assert_int_equal(lti_read_file(&model, &len, ctx, LT_TEST_DATA "/data/tiny.model", 1 << 20),
                     LT_OK);
    const int n =
        snprintf(header, sizeof header,
                 "{\"shared.weight\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                 "\"spiece_model\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                 len, len);
    char *file = calloc(1, 8 + (size_t)n + len);
    assert_non_null(file);
    file[0] = (char)n;
    file[1] = (char)(n >> 8);
    memcpy(file + 8, header, (size_t)n);
    memcpy(file + 8 + n, model, len);
    temp_write("t5.safetensors", file, 8 + (size_t)n + len);
    free(file);
    free(model);

    lti_model_files f = {.path = header};
    lti_tokenizer *t;
    assert_int_equal(lti_tokenizer_of(&t, ctx, &f), LT_ERR_MISSING);
    assert_int_equal(
        lti_tensors_open(&f.text, ctx, temp_path("t5.safetensors"), LTI_PART_TEXT, NULL), LT_OK);
    assert_int_equal(lti_tokenizer_of(&t, ctx, &f), LT_OK);
    assert_int_equal(lti_tokenizer_size(t), 320);
    lti_tokenizer_close(&t);
    lti_tensors_close(&f.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_ids),
        cmocka_unit_test(cut),
        cmocka_unit_test(foreign_encoder),
        cmocka_unit_test(no_models),
        cmocka_unit_test(inside_a_text_encoder),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
