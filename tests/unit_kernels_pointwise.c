/* unit_kernels_pointwise.c: Philox against its published answers, the noise it makes, and what the operations refuse. */
#include "kernels/pointwise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    lt_ctx *ctx;
    lt_dev *dev;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    const lt_dev_options opt = {"cpu", 2, "auto"};
    *state = &f;
    if (lt_ctx_create(&f.ctx, NULL, NULL, LT_LOG_ERROR) != LT_OK) return -1;
    return lt_dev_create(&f.dev, f.ctx, &opt) == LT_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    lt_dev_destroy(&f->dev);
    lt_ctx_destroy(&f->ctx);
    return 0;
}

/* philox4x32-10 of the known-answer file of Random123 */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        uint32_t got[4];
        lti_philox(got, cases[i].counter, cases[i].key);
        assert_memory_equal(got, cases[i].want, sizeof got);
    }
}

/* A piece of the noise is the same as that piece of the whole, wherever it begins. */
static void noise_can_be_cut_anywhere(void **state)
{
    const fixture *f = *state;
    float whole[400], piece[100];
    lt_noise_args a = {whole, 400, 11, 3, 1000};
    assert_int_equal(lt_noise(f->dev, &a), LT_OK);
    for (int start = 0; start < 12; start++) {
        lt_noise_args b = {piece, 100 - start, 11, 3, 1000 + (uint64_t)start};
        assert_int_equal(lt_noise(f->dev, &b), LT_OK);
        assert_memory_equal(piece, whole + start, (size_t)b.n * sizeof(float));
    }
}

static void noise_is_normal(void **state)
{
    const fixture *f = *state;
    enum { N = 1 << 18 };
    static float x[N], y[N];
    double mean = 0, square = 0, fourth = 0, both = 0;
    assert_int_equal(lt_noise(f->dev, &(lt_noise_args){x, N, 5, 0, 0}), LT_OK);
    assert_int_equal(lt_noise(f->dev, &(lt_noise_args){y, N, 5, 1, 0}), LT_OK); /* another stream */
    for (int i = 0; i < N; i++) {
        const double v = (double)x[i];
        mean += v / N;
        square += v * v / N;
        fourth += v * v * v * v / N;
        both += v * (double)y[i] / N;
    }
    /* five standard errors */
    assert_true(fabs(mean) < 5 / sqrt((double)N));
    assert_true(fabs(square - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(both) < 5 / sqrt((double)N));
}

/* NaN in a row makes that row NaN and no other, in norms and activations. */
static void nan_is_not_hidden(void **state)
{
    const fixture *f = *state;
    enum { C = 37 };
    float x[2 * C], out[2 * C];
    for (int kind = LT_NORM_LAYER; kind <= LT_NORM_RMS; kind++) {
        for (int i = 0; i < 2 * C; i++)
            x[i] = (float)i;
        x[5] = NAN;
        lt_norm_args a = {
            .out = {out, LT_F32, 0}, .x = {x, LT_F32, 0}, .rows = 2, .cols = C, .eps = 1e-6f};
        a.kind = (lt_norm_kind)kind;
        assert_int_equal(lt_norm(f->dev, &a), LT_OK);
        for (int i = 0; i < 2 * C; i++)
            assert_true(!!isnan(out[i]) == (i < C));
    }
    lt_map_args m = {.out = {out, LT_F32, 0}, .x = {x, LT_F32, 0}, .rows = 2, .cols = C};
    for (int act = LT_ACT_NONE; act <= LT_ACT_GELU_ERF; act++) {
        m.act = (lt_act)act;
        assert_int_equal(lt_map(f->dev, &m), LT_OK);
        for (int i = 0; i < 2 * C; i++)
            assert_true(!!isnan(out[i]) == (i == 5));
    }
}

#define REFUSED(f, status, message, call)                 \
    do {                                                  \
        assert_int_equal(call, status);                   \
        assert_string_equal(lt_error((f)->ctx), message); \
    } while (0)

static void wrong_arguments_are_refused(void **state)
{
    const fixture *f = *state;
    float x[64] = {0};
    const lt_mat ok = {x, LT_F32, 0}, none = {NULL, LT_F32, 0}, half = {x, LT_F16, 0},
                 narrow = {x, LT_F32, 3};
    const lt_image img = {x, LT_F32, 2, 2, 4, 0};
    lt_image two = img;
    two.c = 2;
    lt_dev *d = f->dev;
    REFUSED(f, LT_ERR_SHAPE, "convert: rows -1",
            lt_convert(d, &(lt_convert_args){.out = ok, .x = ok, .rows = -1, .cols = 4}));
    REFUSED(f, LT_ERR_DTYPE, "convert: x has type f16, not f32 or bf16",
            lt_convert(d, &(lt_convert_args){.out = ok, .x = half, .rows = 1, .cols = 4}));
    REFUSED(f, LT_ERR_ARG, "convert: out is NULL",
            lt_convert(d, &(lt_convert_args){.out = none, .x = ok, .rows = 1, .cols = 4}));
    REFUSED(f, LT_ERR_SHAPE, "map: out has ld 3 for 4 columns",
            lt_map(d, &(lt_map_args){.out = narrow, .x = ok, .rows = 1, .cols = 4}));
    REFUSED(
        f, LT_ERR_SHAPE, "map: y_rows 2",
        lt_map(d, &(lt_map_args){.out = ok, .x = ok, .y = ok, .rows = 4, .cols = 4, .y_rows = 2}));
    REFUSED(f, LT_ERR_SHAPE, "norm: cols 0",
            lt_norm(d, &(lt_norm_args){.out = ok, .x = ok, .rows = 1}));
    REFUSED(f, LT_ERR_ARG, "norm: eps nan",
            lt_norm(d, &(lt_norm_args){.out = ok, .x = ok, .rows = 1, .cols = 4, .eps = NAN}));
    const lt_rope rope = {.pairs = {1, 0, 0}, .table = {x}};
    REFUSED(
        f, LT_ERR_SHAPE, "qknorm: 1 rotary pairs for head_dim 4",
        lt_qknorm(d, &(lt_qknorm_args){
                         .out = ok, .x = ok, .rows = 1, .heads = 1, .head_dim = 4, .rope = &rope}));
    REFUSED(
        f, LT_ERR_ARG, "qknorm: rope without positions",
        lt_qknorm(d, &(lt_qknorm_args){
                         .out = ok, .x = ok, .rows = 1, .heads = 1, .head_dim = 2, .rope = &rope}));
    const lt_rope bare = {.pairs = {1, 0, 0}, .pos = (const int32_t *)x},
                  less = {.pairs = {-1, 2, 0}, .table = {x, x}, .pos = (const int32_t *)x};
    const int32_t off[] = {0, 1};
    lt_tilemean_args mean = {.out = ok, .x = ok, .off = off, .tiles = 1, .heads = 1, .head_dim = 2};
    mean.rope = &bare;
    REFUSED(f, LT_ERR_ARG, "tilemean: 1 rotary pairs on axis 0, no table", lt_tilemean(d, &mean));
    mean.rope = &less;
    REFUSED(f, LT_ERR_ARG, "tilemean: -1 rotary pairs on axis 0", lt_tilemean(d, &mean));
    mean.rope = &rope;
    REFUSED(f, LT_ERR_ARG, "tilemean: rope without positions", lt_tilemean(d, &mean));
    REFUSED(f, LT_ERR_SHAPE, "channorm: x is 2x2x4, out is 2x2x2",
            lt_channorm(d, &(lt_channorm_args){.out = two, .x = img}));
    REFUSED(f, LT_ERR_ARG, "lincomb: terms 7",
            lt_lincomb(d, &(lt_lincomb_args){.out = x, .terms = 7, .n = 1}));
    REFUSED(f, LT_ERR_ARG, "lincomb: NULL term 1",
            lt_lincomb(d, &(lt_lincomb_args){.out = x, .x = {x}, .terms = 2, .n = 1}));
    REFUSED(
        f, LT_ERR_SHAPE, "patch: 1 channels, 1 frames of 3x2, patch 2",
        lt_patch(d, &(lt_patch_args){
                        .tokens = ok, .latent = x, .c = 1, .frames = 1, .h = 2, .w = 3, .p = 2}));
    REFUSED(f, LT_ERR_SHAPE, "noise: n -1", lt_noise(d, &(lt_noise_args){.out = x, .n = -1}));
    REFUSED(f, LT_ERR_SHAPE, "latent_image: 5 channels, the picture has 4",
            lt_latent_image(
                d, &(lt_latent_image_args){.img = img, .z = x, .c = 5, .mul = x, .add = x}));
    REFUSED(f, LT_ERR_SHAPE, "rgb8: channels 2",
            lt_rgb8(d, &(lt_rgb8_args){.rgb = (uint8_t *)x, .img = two}));
    REFUSED(f, LT_ERR_ARG, "stats: x or result is NULL",
            lt_stats(d, &(lt_stats_args){.x = x, .n = 3}));
}

static void nothing_to_do_is_fine(void **state)
{
    const fixture *f = *state;
    lt_stats_result r = {9, 9, 9, 9, 9};
    const lt_mat m = {NULL, LT_F32, 0};
    assert_int_equal(lt_norm(f->dev, &(lt_norm_args){.out = m, .x = m, .cols = 4}), LT_OK);
    assert_int_equal(lt_noise(f->dev, &(lt_noise_args){.n = 0}), LT_OK);
    assert_int_equal(lt_lincomb(f->dev, &(lt_lincomb_args){.terms = 1}), LT_OK);
    assert_int_equal(lt_patch(f->dev, &(lt_patch_args){.c = 1, .p = 1}), LT_OK);
    assert_int_equal(lt_stats(f->dev, &(lt_stats_args){.result = &r}), LT_OK);
    assert_true(r.nonfinite == 0 && r.min == 0 && r.max == 0 && r.mean == 0 && r.rms == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(noise_can_be_cut_anywhere),
        cmocka_unit_test(noise_is_normal),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(nothing_to_do_is_fine),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
