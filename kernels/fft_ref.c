/* fft_ref.c: the definition of fft2: sums in f64, first along the rows, then down the columns. */
#include "kernels/pointwise.h"

#include <math.h>
#include <stdlib.h>

/* out[k] = sum over j of x[j] exp(-2 pi i j k / n); x and out are pairs, `step` pairs apart. */
static void line(double *out, const double *x, int32_t n, int64_t step)
{
    for (int32_t k = 0; k < n; k++) {
        double re = 0, im = 0;
        for (int32_t j = 0; j < n; j++) {
            const double turn = -2 * M_PI * (double)((int64_t)j * k % n) / n;
            const double *v = x + 2 * j * step;
            re += v[0] * cos(turn) - v[1] * sin(turn);
            im += v[0] * sin(turn) + v[1] * cos(turn);
        }
        out[2 * k] = re;
        out[2 * k + 1] = im;
    }
}

static void plane(float *out, const float *x, int32_t h, int32_t w, double *a, double *b)
{
    for (int64_t i = 0; i < (int64_t)h * w; i++) {
        a[2 * i] = (double)x[i];
        a[2 * i + 1] = 0;
    }
    for (int64_t y = 0; y < h; y++)
        line(b + 2 * y * w, a + 2 * y * w, w, 1);
    for (int64_t c = 0; c < w; c++) {
        line(a, b + 2 * c, h, w);
        for (int64_t y = 0; y < h; y++)
            for (int part = 0; part < 2; part++)
                out[2 * (y * w + c) + part] = (float)a[2 * y + part];
    }
}

lt_status lti_fft2_ref(lt_dev *dev, const lt_fft2_args *a)
{
    LT_TRY(lti_check_fft2(dev, a));
    const size_t n = (size_t)a->h * (size_t)a->w;
    double *work = malloc(4 * n * sizeof *work);
    if (!work)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "fft2: no memory for %zu numbers", 4 * n);
    for (int64_t p = 0; p < a->planes; p++)
        plane(a->out + 2 * p * (int64_t)n, a->x + p * (int64_t)n, a->h, a->w, work, work + 2 * n);
    free(work);
    return LT_OK;
}
