/* linear_ref.c: the definition of lt_linear: plain loops, f64 sums. */
#include "kernels/gemm.h"

#include <stdlib.h>

static void put(const lt_linear_args *a, int64_t m, int64_t n, double y)
{
    const int64_t at = m * lti_ld(&a->out, a->w->out) + n;
    if (a->gate || a->accumulate) {
        const int64_t g = a->row_group ? a->row_group[m] : 0;
        const double gate = a->gate ? (double)a->gate[g * a->gate_ld + n] : 1;
        y = (double)((const float *)a->out.data)[at] + gate * y;
    }
    lti_put(a->out.data, a->out.dtype, at, (float)y);
}

lt_status lti_linear_ref(lt_dev *dev, const lt_linear_args *a)
{
    LT_TRY(lti_check_linear(dev, a));
    const lt_weight *w = a->w;
    const int64_t ldx = lti_ld(&a->x, w->in);
    float *column = malloc((size_t)w->in * sizeof *column);
    if (!column)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "linear: no memory for %lld weights",
                        (long long)w->in);
    for (int64_t n = 0; n < w->out; n++) {
        lti_weight_column(w, n, column);
        for (int64_t m = 0; m < a->rows; m++) {
            double sum = (double)w->bias[n];
            for (int64_t k = 0; k < w->in; k++)
                sum += (double)lti_get(a->x.data, a->x.dtype, m * ldx + k) * (double)column[k];
            put(a, m, n, lti_act_ref(a->act, sum));
        }
    }
    free(column);
    return LT_OK;
}
