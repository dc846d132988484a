/* check_fft.c: the Fourier transform beside its definition: sides that are powers of two, products of small primes, primes, one. */
#include "tests/check.h"

#include <math.h>

static lt_fft2_args args(lt_side side, lt_buf out, lt_buf x, int64_t planes, int32_t h, int32_t w)
{
    return (lt_fft2_args){
        .out = lt_at(out, side), .x = lt_at(x, side), .planes = planes, .h = h, .w = w};
}

static void compare(lt_check *t, int64_t planes, int32_t h, int32_t w, lt_fill fill)
{
    const int64_t n = planes * h * w;
    if (!lt_check_begin(t, "fft2_%s_%" PRId64 "_%dx%d", lt_fill_name(fill), planes, w, h)) return;
    const lt_buf x = lt_check_data(t, LT_F32, n, fill);
    const lt_buf want = lt_check_out(t, LT_F32, 2 * n), got = lt_check_out(t, LT_F32, 2 * n);
    const lt_fft2_args ref = args(LT_HOST, want, x, planes, h, w),
                       dev = args(LT_DEV, got, x, planes, h, w);
    LT_CHECK_REF(t, lti_fft2_ref(t->dev, &ref));
    LT_CHECK_OK(t, lt_fft2(t->dev, &dev));
    double squares = 0; /* of the largest plane, at most */
    for (int64_t i = 0; i < n; i++)
        squares += (double)((const float *)x.host)[i] * (double)((const float *)x.host)[i];
    lt_check_close(t, "out", got, want,
                   (lt_tol){.abs = 2e-6 * sqrt(squares) * (1 + log2((double)h * w)), .rel = 1e-5});
    LT_CHECK_THREADS(t, got, lt_fft2(t->dev, &dev));
    LT_BENCH(t, lt_fft2(t->dev, &dev), lti_fft2_ref(t->dev, &ref), .bytes = 12.0 * (double)n);
}

void lt_check_fft2(lt_check *t)
{
    static const int32_t sides[][2] = {{1, 1},   {1, 7},   {5, 1},  {2, 2},  {8, 4},
                                       {16, 16}, {30, 52}, {13, 9}, {40, 37}};
    for (size_t i = 0; i < LT_COUNT(sides); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            if (fill == LT_FILL_UNIFORM || sides[i][0] * sides[i][1] <= 256)
                compare(t, 3, sides[i][0], sides[i][1], (lt_fill)fill);
    compare(t, 1, 64, 64, LT_FILL_UNIFORM);
    if (!lt_check_begin(t, "fft2_refused")) return;
    const lt_buf x = lt_check_rand(t, LT_F32, 4), out = lt_check_out(t, LT_F32, 8);
    lt_fft2_args a = args(LT_DEV, out, x, 1, 0, 2);
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_fft2(t->dev, &a));
    a = args(LT_DEV, out, x, 1, 2, 20000);
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_fft2(t->dev, &a));
    a = args(LT_DEV, out, x, -1, 2, 2);
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_fft2(t->dev, &a));
    a = args(LT_DEV, out, x, 1, 2, 2);
    a.x = NULL;
    LT_CHECK_STATUS(t, LT_ERR_ARG, lt_fft2(t->dev, &a));
}
