/* unit_video_safetensors.c: files that lie. Every case is one message that names the file and what is wrong with it. */
#include "tests/temp_context.h"
#include "video/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void expect_error(const char *name, lt_status want, const char *text)
{
    lti_tensors *t = (lti_tensors *)-1;
    lt_status s = lti_tensors_open(&t, ctx, temp_path(name), LTI_PART_RAW, NULL);
    if (s >= 0) {
        s = lti_tensors_whole(t);
        lti_tensors_close(&t);
    }
    if (s != want || !strstr(lt_error(ctx), text) || !strstr(lt_error(ctx), name))
        fail_msg("%s, \"%s\": expected %s, \"%s\"", lt_status_name(s), lt_error(ctx),
                 lt_status_name(want), text);
    assert_null(t);
}

static void good_file(void **state)
{
    (void)state;
    temp_safetensors("good.safetensors",
                     "{\"__metadata__\":{\"a\":\"b\"},"
                     "\"y\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[8,14]},"
                     "\"x\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                     "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,5],\"data_offsets\":[8,8]},"
                     "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[14,22]}}   ",
                     22);
    lti_tensors *t;
    assert_int_equal(lti_tensors_open(&t, ctx, temp_path("good.safetensors"), LTI_PART_RAW, NULL),
                     LT_OK);
    assert_int_equal(lti_tensors_whole(t), LT_OK);
    assert_int_equal(lti_tensors_count(t), 4);
    assert_string_equal(lti_tensors_metadata(t, "a"), "b");
    assert_null(lti_tensors_metadata(t, "c"));
    const lti_entry *y = lti_tensors_find(t, "y");
    assert_non_null(y);
    assert_int_equal(y->dtype, LT_BF16);
    uint8_t bytes[6];
    assert_int_equal(lti_tensors_read(t, y, bytes, 0, 6), LT_OK);
    assert_int_equal(bytes[0], 8);
    assert_int_equal(y->bytes, 6);
    assert_null(lti_tensors_find(t, "z"));
    assert_int_equal(lti_tensors_parameters(t), 2 + 3 + 0 + 1);

    const lt_tensor_source source = lti_tensors_source(t);
    lt_tensor x;
    assert_int_equal(source.get(source.user, "x", &x), LT_OK);
    assert_int_equal(x.ndim, 2);
    assert_int_equal(x.dim[0], 2);
    assert_int_equal(((const uint8_t *)x.data)[7], 7);
    source.done(source.user, &x);
    assert_int_equal(source.rows(source.user, "x", 1, 1, &x), LT_OK);
    assert_int_equal(x.dim[0], 1);
    assert_int_equal(((const uint8_t *)x.data)[0], 4);
    source.done(source.user, &x);
    assert_int_equal(source.rows(source.user, "x", 1, 2, &x), LT_ERR_SHAPE);
    assert_int_equal(source.rows(source.user, "x", -1, 1, &x), LT_ERR_SHAPE);
    assert_int_equal(source.get(source.user, "z", &x), LT_ERR_MISSING);
    assert_non_null(strstr(lt_error(ctx), "\"z\""));
    assert_int_equal(source.get(source.user, "scalar", &x), LT_ERR_UNSUPPORTED);
    assert_non_null(strstr(lt_error(ctx), "I64"));
    lti_tensors_close(&t);
    assert_null(t);
}

/* Cut while it is open, which ends a process that has it mapped: one message with the file, the tensor and both lengths, here and
 * from every thread. */
static void cut_while_open(void **state)
{
    (void)state;
    temp_safetensors("cut.safetensors",
                     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4096],\"data_offsets\":[0,16384]},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[4096],\"data_offsets\":[16384,32768]}}",
                     32768);
    lti_tensors *t;
    assert_int_equal(lti_tensors_open(&t, ctx, temp_path("cut.safetensors"), LTI_PART_RAW, NULL),
                     LT_OK);
    const lt_tensor_source source = lti_tensors_source(t);
    lt_tensor a, b;
    assert_int_equal(source.get(source.user, "a", &a), LT_OK);
    assert_int_equal(truncate(temp_path("cut.safetensors"), 20000), 0);
    assert_int_equal(((const uint8_t *)a.data)[16383], 255); /* what was read stays */
    source.done(source.user, &a);
    assert_int_equal(source.get(source.user, "a", &a), LT_OK);
    assert_int_equal(source.get(source.user, "b", &b), LT_ERR_IO);
    assert_non_null(strstr(lt_error(ctx), "cut.safetensors: tensor \"b\""));
    assert_non_null(strstr(lt_error(ctx), "had 32901 bytes when it was opened, now it has 20000"));
    assert_int_equal(truncate(temp_path("cut.safetensors"), 0), 0);
    assert_int_equal(((const uint8_t *)a.data)[16383], 255);
    assert_int_equal(source.rows(source.user, "a", 0, 1, &b), LT_ERR_IO);
    source.done(source.user, NULL);
    lti_tensors_close(&t);
}

/* Headers with 16 bytes of data behind them. */
static void bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *text;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "not an object"},
        {"{\"a\":", "not JSON"},
        {"{} {}", "not JSON"},
        {"{\"a\":5}", "\"a\" is not described by an object"},
        {"{\"a\":{\"shape\":[16],\"data_offsets\":[0,16]}}", "\"a\" has no dtype"},
        {"{\"a\":{\"dtype\":3,\"shape\":[16],\"data_offsets\":[0,16]}}", "\"a\" has no dtype"},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[16],\"data_offsets\":[0,16]}}",
         "unknown dtype \"Q4\""},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,16]}}", "\"a\" has no shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-16],\"data_offsets\":[0,16]}}", "dimension 0"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,16]}}", "dimension 0"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,16],\"data_offsets\":[0,16]}}",
         "9 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}",
         "do not make the 16 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,16]}}",
         "do not make the 16 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", "do not make the 16"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", "do not make"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[16,0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[-1,15]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[17],\"data_offsets\":[0,17]}}", "truncated?"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,"
         "9223372036854775807]}}",
         "truncated?"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,99999999999999999999]}}",
         "not JSON"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
         "\"b\" overlaps a by 1"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
         "\"b\" overlaps a by 16"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
         "bytes 4..7 of the data, before tensor \"b\", belong to none"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         "bytes 8..15 of the data, behind the last tensor, belong to none"},
        {"{\"a\":{\"dtype\":\"I64\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "dtype I64 do not make the 16 bytes of its offsets, and only F32, BF16 and F16 can be"},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,16]}}",
         "dtype F8_E4M3 do not make the 16 bytes of its offsets, and only F32"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
         "duplicate"},
        {"{\"__metadata__\":[],\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
         "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"n\":1},\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,"
         "16]}}",
         "\"n\" is not a string"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[[[[[[[[[[16]]]]]]]]]],\"data_offsets\":[0,16]}}",
         "deep"},
        {"{\"\\u0000\":1}", "not JSON"},
        {"{\"a\xff\":1}", "not JSON"},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        temp_safetensors("bad.safetensors", cases[i].header, 16);
        expect_error("bad.safetensors", LT_ERR_FORMAT, cases[i].text);
    }
}

/* A million brackets must be counted, not parsed. */
static void deep_json(void **state)
{
    (void)state;
    const size_t n = 1000000;
    char *h = malloc(n + 1);
    assert_non_null(h);
    memset(h, '[', n);
    h[n] = 0;
    temp_safetensors("deep.safetensors", h, 0);
    expect_error("deep.safetensors", LT_ERR_FORMAT, "nests 1000000 deep");
    free(h);
}

static void bad_lengths(void **state)
{
    (void)state;
    temp_write("short.safetensors", "abc", 3);
    expect_error("short.safetensors", LT_ERR_FORMAT, "truncated?");
    temp_write("empty.safetensors", "", 0);
    expect_error("empty.safetensors", LT_ERR_FORMAT, "empty");
    temp_write("huge.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    expect_error("huge.safetensors", LT_ERR_FORMAT, "9223372036854775807");
    temp_write("longer.safetensors", "\x03\0\0\0\0\0\0\0{}", 10);
    expect_error("longer.safetensors", LT_ERR_FORMAT, "header of 3 bytes in a file of 10");
    temp_write("exact.safetensors", "\x02\0\0\0\0\0\0\0{}", 10);
    lti_tensors *t;
    assert_int_equal(lti_tensors_open(&t, ctx, temp_path("exact.safetensors"), LTI_PART_RAW, NULL),
                     LT_OK);
    assert_int_equal(lti_tensors_count(t), 0);
    lti_tensors_close(&t);
}

/* Formats that are known and not read say what they are; a folder and nothing at all are not formats. */
static void other_formats(void **state)
{
    (void)state;
    temp_write("m.gguf", "GGUF\3\0\0\0\0\0\0\0", 12);
    expect_error("m.gguf", LT_ERR_UNSUPPORTED, "GGUF");
    temp_write("m.safetensors", "\x80\2aaaaaaaaa", 11);
    expect_error("m.safetensors", LT_ERR_UNSUPPORTED, "PyTorch pickle");
    mkdir(temp_path("folder.safetensors"), 0755);
    expect_error("folder.safetensors", LT_ERR_IO, "not a regular file");
    expect_error("nothing.safetensors", LT_ERR_IO, "No such file");
    assert_int_equal(mkfifo(temp_path("fifo.safetensors"), 0600), 0);
    expect_error("fifo.safetensors", LT_ERR_IO, "not a regular file");
}

static void shards(void **state)
{
    (void)state;
    temp_safetensors("m-00001-of-00002.safetensors",
                     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    temp_safetensors("m-00002-of-00002.safetensors",
                     "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    static const struct {
        const char *index, *text;
        lt_status status;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"m-00001-of-00002.safetensors\","
         "\"b\":\"m-00002-of-00002.safetensors\"},\"metadata\":{\"total_size\":8}}",
         NULL, LT_OK},
        {"{\"weight_map\":{\"a\":\"m-00001-of-00002.safetensors\","
         "\"c\":\"m-00002-of-00002.safetensors\"}}",
         "tensor \"c\" is not in m-00002", LT_ERR_MISSING},
        {"{\"weight_map\":{\"a\":\"m-00003-of-00002.safetensors\"}}", "m-00003", LT_ERR_MISSING},
        {"{\"weight_map\":{\"a\":\"../m-00001-of-00002.safetensors\"}}", "plain name",
         LT_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain name", LT_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":\"\"}}", "plain name", LT_ERR_FORMAT},
        {"{\"weight_map\":{\"a\":7}}", "plain name", LT_ERR_FORMAT},
        {"{\"weight_map\":{}}", "names no tensor", LT_ERR_FORMAT},
        {"{\"weight_map\":[]}", "weight_map", LT_ERR_FORMAT},
        {"{}", "weight_map", LT_ERR_FORMAT},
        {"x", "not JSON", LT_ERR_FORMAT},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        const char *name = "m.safetensors.index.json";
        temp_text(name, cases[i].index);
        if (cases[i].status < 0) {
            expect_error(name, cases[i].status, cases[i].text);
            continue;
        }
        lti_tensors *t;
        assert_int_equal(lti_tensors_open(&t, ctx, temp_path(name), LTI_PART_RAW, NULL), LT_OK);
        assert_int_equal(lti_tensors_count(t), 2);
        assert_int_equal(lti_tensors_files(t), 2);
        lti_tensors_close(&t);
    }
}

static void twice_in_shards(void **state)
{
    (void)state;
    temp_safetensors("t-00001-of-00002.safetensors",
                     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    temp_safetensors("t-00002-of-00002.safetensors",
                     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                     8);
    temp_text("t.safetensors.index.json", "{\"weight_map\":{\"a\":\"t-00001-of-00002.safetensors\","
                                          "\"b\":\"t-00002-of-00002.safetensors\"}}");
    expect_error("t.safetensors.index.json", LT_ERR_FORMAT, "\"a\" is there twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),   cmocka_unit_test(cut_while_open),
        cmocka_unit_test(bad_headers), cmocka_unit_test(deep_json),
        cmocka_unit_test(bad_lengths), cmocka_unit_test(other_formats),
        cmocka_unit_test(shards),      cmocka_unit_test(twice_in_shards),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
