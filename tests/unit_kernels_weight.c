/* Packed weights: every element is where the kernels look for it, from every file type at any alignment; faults. */
#include "kernels/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const isas[] = {"ref", "portable", "avx2", "avx512", "avx512bf16", "avx512fp16"};

typedef struct bench {
    lt_ctx *ctx;
    lt_dev *dev;
} bench;

/* False: this processor has no such kernel set. */
static bool open_bench(bench *b, const char *isa)
{
    lt_dev_options opt = lt_dev_options_default();
    opt.isa = isa;
    opt.threads = 2;
    assert_int_equal(lt_ctx_create(&b->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    const lt_status s = lt_dev_create(&b->dev, b->ctx, &opt);
    if (s == LT_OK) return true;
    assert_int_equal(s, LT_ERR_UNSUPPORTED);
    lt_ctx_destroy(&b->ctx);
    return false;
}

static void close_bench(bench *b)
{
    lt_dev_destroy(&b->dev);
    lt_ctx_destroy(&b->ctx);
}

/* A value that names its place and is exact in every type. */
static float value(int64_t i)
{
    return (float)(i * 37 % 255 - 127) / 64;
}

static uint16_t to_f16(float f) /* multiples of 1/64 below 2 */
{
    const int n = (int)(f * 64);
    if (n == 0) return 0;
    const int magnitude = abs(n);
    int e = 0;
    while (magnitude >> (e + 1))
        e++;
    return (uint16_t)((n < 0 ? 0x8000 : 0) | (e + 9) << 10 | (magnitude - (1 << e)) << (10 - e));
}

/* n values from number `first` on, one byte off any alignment. */
static char *file_data(lt_dtype t, int64_t first, int64_t n, char **base)
{
    *base = malloc((size_t)n * 4 + 1);
    assert_non_null(*base);
    for (int64_t i = 0; i < n; i++) {
        const float f = value(first + i);
        const uint16_t h = t == LT_F16 ? to_f16(f) : lti_f32_to_bf16(f);
        if (t == LT_F32)
            memcpy(*base + 1 + 4 * i, &f, 4);
        else
            memcpy(*base + 1 + 2 * i, &h, 2);
    }
    return *base + 1;
}

static void check_elements(bench *b, int64_t out, int64_t in, int taps, lt_dtype compute)
{
    const int64_t first_rows = out > 2 ? 2 : 1, rest = out - first_rows;
    char *base[3];
    lt_weight_part part[2] = {
        {.data = file_data(LT_F16, 0, first_rows * in * taps, &base[0]),
         .dtype = LT_F16,
         .out = first_rows},
        {.dtype = LT_BF16, .out = rest, .bias_dtype = LT_F32},
    };
    part[1].data = file_data(LT_BF16, first_rows * in * taps, rest * in * taps, &base[1]);
    part[1].bias = file_data(LT_F32, 5, rest, &base[2]);
    const lt_weight_options opt = {.parts = part,
                                   .nparts = rest ? 2 : 1,
                                   .in = in,
                                   .taps = taps,
                                   .compute = compute,
                                   .tag = LT_TAG_WEIGHTS};
    lt_weight *w;
    assert_int_equal(lt_weight_create(&w, b->dev, &opt), LT_OK);
    assert_int_equal(lt_weight_out(w), out);
    assert_int_equal(lt_weight_in(w), in);
    assert_int_equal(w->taps, taps);
    assert_int_equal(lt_weight_compute(w), compute);
    assert_true(lt_weight_bytes(w) >= (size_t)(out * in * taps) * lt_dtype_size(compute));
    for (int64_t n = 0; n < out; n++) {
        const float want = n < first_rows ? 0.0f : value(5 + n - first_rows);
        assert_float_equal(w->bias[n], want, 0);
        for (int64_t k = 0; k < in; k++)
            for (int tap = 0; tap < taps; tap++)
                assert_float_equal(lti_weight_at(w, n, k, tap), value((n * in + k) * taps + tap),
                                   0);
    }
    lt_weight_destroy(b->dev, &w);
    assert_null(w);
    for (int i = 0; i < 3; i++)
        free(base[i]);
}

static void elements_are_in_place(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1},    {3, 5, 27},  {40, 900, 1}, {33, 70, 9},
                                        {48, 33, 27}, {17, 97, 4}, {64, 448, 1}};
    (void)state;
    for (size_t i = 0; i < LT_COUNT(isas); i++) {
        bench b;
        if (!open_bench(&b, isas[i])) continue;
        for (size_t j = 0; j < LT_COUNT(shapes); j++) {
            check_elements(&b, shapes[j][0], shapes[j][1], (int)shapes[j][2], LT_F32);
            check_elements(&b, shapes[j][0], shapes[j][1], (int)shapes[j][2], LT_BF16);
        }
        close_bench(&b);
    }
}

/* Half of the last place of the type in which a matrix is held: nearest even. */
static void check_rounding(const char *isa, float u)
{
    const float x[] = {1 + u, 1 + 3 * u, 1 + 1.5f * u, -1 - u};
    const float want[] = {1, 1 + 4 * u, 1 + 2 * u, -1};
    const lt_weight_part part = {.data = x, .dtype = LT_F32, .out = 1};
    const lt_weight_options opt = {.parts = &part, .nparts = 1, .in = 4, .compute = LT_BF16};
    bench b;
    lt_weight *w;
    if (!open_bench(&b, isa)) return;
    assert_int_equal(lt_weight_create(&w, b.dev, &opt), LT_OK);
    for (int k = 0; k < 4; k++)
        assert_float_equal(lti_weight_at(w, 0, k, 0), want[k], 0);
    lt_weight_destroy(b.dev, &w);
    close_bench(&b);
}

static void rounds_to_nearest_even(void **state)
{
    (void)state;
    check_rounding("portable", 0x1p-8f);
    check_rounding("avx512fp16", 0x1p-11f);
}

static void no_memory_leaves_nothing(void **state)
{
    const float x[6] = {0};
    const lt_weight_part part = {.data = x, .dtype = LT_F32, .out = 2};
    const lt_weight_options opt = {.parts = &part, .nparts = 1, .in = 3, .compute = LT_F32};
    bench b;
    (void)state;
    assert_true(open_bench(&b, "auto"));
    for (int64_t nth = 1; nth <= 3; nth++) {
        lt_weight *w;
        lt_mem_stats mem;
        lti_dev_fail_alloc(b.dev, nth);
        const lt_status s = lt_weight_create(&w, b.dev, &opt);
        lti_dev_fail_alloc(b.dev, 0);
        assert_int_equal(s, nth <= 2 ? LT_ERR_MEM : LT_OK);
        if (s < 0) assert_null(w);
        lt_weight_destroy(b.dev, &w);
        lt_dev_mem_stats(b.dev, &mem);
        assert_int_equal(mem.live_total, 0);
    }
    close_bench(&b);
}

static void wrong_options_are_refused(void **state)
{
    const float x[6] = {0};
    const lt_weight_part good = {.data = x, .dtype = LT_F32, .out = 2};
    lt_weight_part part = good;
    const lt_weight_options opt = {.parts = &part, .nparts = 1, .in = 3, .compute = LT_F32};
    lt_weight_options bad[5] = {opt, opt, opt, opt, opt};
    bench b;
    lt_weight *w;
    (void)state;
    assert_true(open_bench(&b, "auto"));
    bad[0].nparts = 0;
    bad[1].in = 0;
    bad[2].taps = LT_MAX_TAPS + 1;
    bad[3].compute = LT_F16;
    bad[4].in = INT64_MAX / 2; /* the product does not fit */
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        assert_int_equal(lt_weight_create(&w, b.dev, &bad[i]), LT_ERR_ARG);
        assert_null(w);
    }
    part.data = NULL;
    assert_int_equal(lt_weight_create(&w, b.dev, &opt), LT_ERR_ARG);
    part = good;
    part.dtype = (lt_dtype)9;
    assert_int_equal(lt_weight_create(&w, b.dev, &opt), LT_ERR_ARG);
    part = good;
    part.out = -1;
    assert_int_equal(lt_weight_create(&w, b.dev, &opt), LT_ERR_ARG);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_in_place),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(no_memory_leaves_nothing),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
