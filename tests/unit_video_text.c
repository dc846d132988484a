/* unit_video_text.c: what the golden cases of the text encoder do not show: several texts at once, cancelling, refusals, and that
 * nothing stays on the device.
 */
#include "kernels/internal.h"
#include "tests/temp_files.h"
#include "video/config.h"
#include "video/text_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static lt_ctx *ctx;
static lt_dev *dev;
static lti_tensors *weights;
static lti_text_config config;
static lt_tensor_source source;

static int setup(void **state)
{
    (void)state;
    temp_make();
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return -1;
    lt_dev_options o = lt_dev_options_default();
    o.device = "guard";
    if (lt_dev_create(&dev, ctx, &o) < 0) return -1;
    const char *golden = LT_TEST_DATA "/golden/umt5_small.safetensors";
    if (lti_tensors_open(&weights, ctx, golden, LTI_PART_TEXT, "weight.") < 0) return -1;
    source = lti_tensors_source(weights);
    return lti_text_config_read(&config, ctx, weights, NULL, NULL);
}

static int teardown(void **state)
{
    (void)state;
    lti_tensors_close(&weights);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
    temp_remove();
    return 0;
}

static lti_text_job job_of(const int32_t *const *ids, const int32_t *len, int32_t texts)
{
    return (lti_text_job){.config = &config,
                          .source = &source,
                          .compute = LT_F32,
                          .texts = texts,
                          .ids = ids,
                          .len = len};
}

static const int32_t one[7] = {5, 9, 33, 12, 63, 0, 1}, two[3] = {8, 7, 1};

static void expect_nothing_left(void)
{
    lt_mem_stats m;
    lt_dev_mem_stats(dev, &m);
    assert_int_equal(m.live_bytes[LT_TAG_TEXT], 0);
}

/* Two texts in one call are two calls, bit by bit, in both types. */
static void company(void **state)
{
    (void)state;
    const int32_t *ids[] = {one, two};
    const int32_t len[] = {7, 3};
    float both[10 * 32], alone[7 * 32];
    assert_int_equal(config.dim, 32);
    for (int t = 0; t < 2; t++) {
        lti_text_job j = job_of(ids, len, 2);
        j.compute = t ? LT_BF16 : LT_F32;
        assert_int_equal(lti_text_encode(dev, both, &j), LT_OK);
        lti_text_job a = job_of(ids, len, 1);
        a.compute = j.compute;
        assert_int_equal(lti_text_encode(dev, alone, &a), LT_OK);
        assert_memory_equal(both, alone, 7 * 32 * sizeof(float));
        lti_text_job b = job_of(ids + 1, len + 1, 1);
        b.compute = j.compute;
        assert_int_equal(lti_text_encode(dev, alone, &b), LT_OK);
        assert_memory_equal(both + 7 * 32, alone, 3 * 32 * sizeof(float));
    }
    expect_nothing_left();
    lt_mem_stats m;
    lt_dev_mem_stats(dev, &m);
    assert_true(m.peak_bytes[LT_TAG_TEXT] > 0);
}

static void expect_counts(const lti_text_cache *c, uint64_t hits, uint64_t misses)
{
    uint64_t h, m;
    lti_text_cache_stats(c, &h, &m);
    assert_int_equal(h, hits);
    assert_int_equal(m, misses);
}

/* Rows come back by their tokens; the ones not asked for longest leave, for number and for bytes. */
static void kept(void **state)
{
    (void)state;
    lti_text_cache *c = lti_text_cache_create();
    assert_non_null(c);
    const float rows[2] = {1.5f, -2};
    assert_null(lti_text_cache_get(c, one, 7));
    lti_text_cache_put(c, one, 7, rows, sizeof rows);
    assert_null(lti_text_cache_get(c, one, 6)); /* the beginning of a text is another text */
    assert_null(lti_text_cache_get(c, two, 3));
    assert_memory_equal(lti_text_cache_get(c, one, 7), rows, sizeof rows);
    expect_counts(c, 1, 3);
    for (int32_t i = 0; i < 100; i++) {
        lti_text_cache_put(c, &i, 1, rows, sizeof rows);
        assert_non_null(lti_text_cache_get(c, one, 7)); /* asked for again and again */
    }
    const int32_t first = 0, last = 99;
    assert_null(lti_text_cache_get(c, &first, 1));
    assert_non_null(lti_text_cache_get(c, &last, 1));
    enum { BIG = 20 << 20 };
    float *big = calloc(1, BIG);
    assert_non_null(big);
    for (int32_t i = 1000; i < 1004; i++)
        lti_text_cache_put(c, &i, 1, big, BIG);
    const int32_t old = 1000, new = 1003, huge = 2000;
    assert_null(lti_text_cache_get(c, &old, 1));
    assert_non_null(lti_text_cache_get(c, &new, 1));
    lti_text_cache_put(c, &huge, 1, big, (size_t)65 << 20); /* not even read */
    assert_null(lti_text_cache_get(c, &huge, 1));
    free(big);
    lti_text_cache_destroy(&c);
    assert_null(c);
}

static bool stop(void *user, int32_t done, int32_t layers)
{
    int32_t *calls = user;
    assert_int_equal(done, ++*calls);
    assert_int_equal(layers, 2);
    return false;
}

static void cancelled(void **state)
{
    (void)state;
    const int32_t *ids[] = {one};
    const int32_t len[] = {7};
    int32_t calls = 0;
    float out[7 * 32];
    lti_text_job j = job_of(ids, len, 1);
    j.layer_done = stop;
    j.user = &calls;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_CANCELLED);
    assert_int_equal(calls, 1);
    expect_nothing_left();
}

static void refusals(void **state)
{
    (void)state;
    const int32_t bad[] = {5, 64}, negative[] = {-1};
    const int32_t *ids[] = {bad};
    int32_t len[] = {2};
    float out[7 * 32];
    lti_text_job j = job_of(ids, len, 1);
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(ctx), "token 1 of text 0 is 64"));
    ids[0] = negative;
    len[0] = 1;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_ARG);
    len[0] = 0;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_ARG);
    len[0] = 513;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_ARG);
    len[0] = 1;
    j.texts = 0;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_ARG);
    expect_nothing_left();
}

/* A configuration that asks for more than the file has. */
static void missing_layer(void **state)
{
    (void)state;
    const int32_t *ids[] = {two};
    const int32_t len[] = {3};
    float out[7 * 32];
    lti_text_config more = config;
    more.layers = 3;
    lti_text_job j = job_of(ids, len, 1);
    j.config = &more;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_MISSING);
    assert_non_null(strstr(lt_error(ctx), "layer 2"));
    assert_non_null(strstr(lt_error(ctx), "blocks.2."));
    more = config;
    more.ffn_dim = 50;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_SHAPE);
    assert_non_null(strstr(lt_error(ctx), "blocks.0.ffn.gate.0.weight"));
    expect_nothing_left();
}

/* Weights that are not numbers must not become a black video an hour later. */
static void not_finite(void **state)
{
    (void)state;
    FILE *in = fopen(LT_TEST_DATA "/golden/umt5_small.safetensors", "rb");
    assert_non_null(in);
    static char data[1 << 18];
    const size_t n = fread(data, 1, sizeof data, in);
    fclose(in);
    const lti_entry *e = lti_tensors_find(weights, "norm.weight");
    const uint32_t nan = 0x7fc00000;
    memcpy(data + e->at, &nan, sizeof nan);
    temp_write("nan.safetensors", data, n);
    lti_tensors *t;
    assert_int_equal(
        lti_tensors_open(&t, ctx, temp_path("nan.safetensors"), LTI_PART_TEXT, "weight."), LT_OK);
    const lt_tensor_source bad = lti_tensors_source(t);
    const int32_t *ids[] = {two};
    const int32_t len[] = {3};
    float out[7 * 32];
    lti_text_job j = job_of(ids, len, 1);
    j.source = &bad;
    assert_int_equal(lti_text_encode(dev, out, &j), LT_ERR_NUMERIC);
    assert_non_null(strstr(lt_error(ctx), "3 of 96 values"));
    lti_tensors_close(&t);
    expect_nothing_left();
}

/* Every allocation on the device fails once: a status each time, and nothing stays. */
static void no_memory(void **state)
{
    (void)state;
    const int32_t *ids[] = {one, two};
    const int32_t len[] = {7, 3};
    float out[10 * 32];
    lti_text_job j = job_of(ids, len, 2);
    lt_status s = LT_ERR_MEM;
    int64_t nth = 0;
    while (s == LT_ERR_MEM && nth < 1000) {
        lti_dev_fail_alloc(dev, ++nth);
        s = lti_text_encode(dev, out, &j);
        expect_nothing_left();
    }
    lti_dev_fail_alloc(dev, 0);
    assert_int_equal(s, LT_OK);
    assert_true(nth > 10);
}

/* Numbers that the estimate before a run is made of: the published encoder. */
static void figures(void **state)
{
    (void)state;
    const lti_text_config xxl = {.vocab = 256384,
                                 .dim = 4096,
                                 .heads = 64,
                                 .head_dim = 64,
                                 .ffn_dim = 10240,
                                 .layers = 24,
                                 .buckets = 32,
                                 .max_distance = 128,
                                 .max_tokens = 512,
                                 .eps = 1e-6f};
    assert_true(lti_text_flops(&xxl, 512) > 4.7e12 && lti_text_flops(&xxl, 512) < 5.0e12);
    assert_true(lti_text_bytes(&xxl, LT_BF16, 1024) < 512u << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company),       cmocka_unit_test(cancelled),  cmocka_unit_test(refusals),
        cmocka_unit_test(missing_layer), cmocka_unit_test(not_finite), cmocka_unit_test(no_memory),
        cmocka_unit_test(figures),       cmocka_unit_test(kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
