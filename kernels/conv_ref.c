/* conv_ref.c: the definition of lt_conv: plain loops, f64 sums. */
#include "kernels/gemm.h"

#include <stdlib.h>

static double sum_at(const lt_conv_args *a, const float *column, int64_t y, int64_t x)
{
    const int64_t step = a->in_step ? a->in_step : 1;
    double sum = 0;
    for (int i = 0; i < a->ntaps; i++) {
        const lt_tap t = a->tap[i];
        const void *frame = a->frame[t.frame];
        if (!frame) continue;
        const int64_t at = lti_image_at(&a->in, step * y + t.dy, step * x + t.dx);
        for (int64_t k = 0; k < a->w->in; k++)
            sum += (double)lti_get(frame, a->in.dtype, at + k) * (double)column[k * a->ntaps + i];
    }
    return sum;
}

lt_status lti_conv_ref(lt_dev *dev, const lt_conv_args *a)
{
    LT_TRY(lti_check_conv(dev, a));
    const int64_t step = a->out_step ? a->out_step : 1;
    float *column = malloc((size_t)a->w->in * (size_t)a->ntaps * sizeof *column);
    if (!column)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "conv: no memory for %lld x %d weights",
                        (long long)a->w->in, a->ntaps);
    for (int64_t n = 0; n < a->w->out; n++) {
        lti_weight_column(a->w, n, column);
        for (int64_t y = 0; y < a->rows; y++)
            for (int64_t x = 0; x < a->cols; x++) {
                const int64_t oy = step * y + a->out_y, ox = step * x + a->out_x;
                double v = (double)a->w->bias[n] + sum_at(a, column, y, x);
                if (a->residual.data)
                    v += (double)((const float *)
                                      a->residual.data)[lti_image_at(&a->residual, oy, ox) + n];
                lti_put(a->out.data, a->out.dtype, lti_image_at(&a->out, oy, ox) + n, (float)v);
            }
    }
    free(column);
    return LT_OK;
}
