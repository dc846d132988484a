/* tiles_ref.c: what planning of sparse attention needs, by its definition: plain loops, f64 sums. */
#include "kernels/pointwise.h"

#include <math.h>

/* Element c of row r, turned by the row's position. */
static double turned(const lt_tilemean_args *a, int64_t r, int64_t c)
{
    const int64_t D = a->head_dim, first = r * lti_ld(&a->x, a->heads * D);
    const double x = (double)lti_get(a->x.data, a->x.dtype, first + c);
    if (!a->rope) return x;
    const int64_t d = c % D, pair = c - d + (d ^ 1);
    const double y = (double)lti_get(a->x.data, a->x.dtype, first + pair);
    const float *cs = lti_rope_at(a->rope, r, (int32_t)(d / 2));
    return d & 1 ? y * (double)cs[1] + x * (double)cs[0] : x * (double)cs[0] - y * (double)cs[1];
}

lt_status lti_tilemean_ref(lt_dev *dev, const lt_tilemean_args *a)
{
    LT_TRY(lti_check_tilemean(dev, a));
    const int64_t cols = (int64_t)a->heads * a->head_dim, ld = lti_ld(&a->out, cols);
    for (int64_t t = 0; t < a->tiles; t++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t r = a->off[t]; r < a->off[t + 1]; r++)
                sum += turned(a, r, c);
            const double n = a->off[t + 1] - a->off[t];
            lti_put(a->out.data, a->out.dtype, t * ld + c, n > 0 ? (float)(sum / n) : 0.0f);
        }
    return LT_OK;
}

lt_status lti_tilescore_ref(lt_dev *dev, const lt_tilescore_args *a)
{
    LT_TRY(lti_check_tilescore(dev, a));
    const int64_t D = a->head_dim, cols = a->heads * D;
    const int64_t ldq = lti_ld(&a->q, cols), ldk = lti_ld(&a->k, cols);
    const float *q = a->q.data, *k = a->k.data;
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < a->lq; i++)
            for (int64_t j = 0; j < a->lk; j++) {
                double s = 0;
                for (int64_t d = h * D; d < (h + 1) * D; d++)
                    s += (double)q[i * ldq + d] * (double)k[j * ldk + d];
                a->out[(h * a->lq + i) * a->lk + j] = (float)(s * (double)a->scale);
            }
    return LT_OK;
}

lt_status lti_merge_ref(lt_dev *dev, const lt_merge_args *a)
{
    LT_TRY(lti_check_merge(dev, a));
    const int64_t D = a->head_dim, cols = a->heads * D;
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t r = 0; r < a->rows; r++) {
            float *lse = a->lse + h * a->rows + r;
            const double x = (double)*lse, y = (double)a->x_lse[h * a->rows + r];
            const double top = x > y ? x : y;
            const bool none = isinf(top) && top < 0;
            const double w = none ? 0 : exp(x - top), w2 = none ? 0 : exp(y - top);
            for (int64_t c = h * D; c < (h + 1) * D; c++) {
                const int64_t o = r * lti_ld(&a->out, cols) + c;
                const double mine = (double)lti_get(a->out.data, a->out.dtype, o);
                const double add =
                    (double)lti_get(a->x.data, a->x.dtype, r * lti_ld(&a->x, cols) + c);
                lti_put(a->out.data, a->out.dtype, o,
                        none ? 0.0f : (float)((w * mine + w2 * add) / (w + w2)));
            }
            *lse = none ? -INFINITY : (float)(top + log(w + w2));
        }
    return LT_OK;
}
