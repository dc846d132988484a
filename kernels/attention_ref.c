/* attention_ref.c: attention by its definition, in f64: the exact softmax over exactly the listed keys. Two passes a row
 * (largest logit, then the sums), so nothing is stored but one row of the output. */
#include "kernels/attention.h"

#include <math.h>

/* Element c of key j of head h, turned by the key's position. */
static double turned_key(const lt_attention_args *a, int h, int64_t j, int64_t c)
{
    const int64_t D = a->head_dim, first = j * lti_ld(&a->k, D * a->heads) + h * D;
    const double x = (double)lti_get(a->k.data, a->k.dtype, first + c);
    if (!a->k_rope) return x;
    const double other = (double)lti_get(a->k.data, a->k.dtype, first + (c ^ 1));
    const float *cs = lti_rope_at(a->k_rope, j, (int32_t)(c / 2));
    return c & 1 ? other * (double)cs[1] + x * (double)cs[0]
                 : x * (double)cs[0] - other * (double)cs[1];
}

static double logit(const lt_attention_args *a, const lt_run *run, int h, int64_t i, int64_t j)
{
    const int64_t D = a->head_dim, cols = D * a->heads;
    const int64_t qi = i * lti_ld(&a->q, cols) + h * D;
    double s = 0;
    for (int64_t c = 0; c < D; c++)
        s += (double)lti_get(a->q.data, a->q.dtype, qi + c) * turned_key(a, h, j, c);
    s *= (double)a->scale;
    if (run->flags & LT_RUN_BIAS) s += (double)run->bias;
    if (a->rel_bias) {
        const int64_t m = a->rel_max, far = j - i < -m ? -m : lti_min64(j - i, m);
        s += (double)a->rel_bias[h * (2 * m + 1) + far + m];
    }
    return s;
}

static void attend_row(const lt_attention_args *a, const lt_run *runs, int nruns, int h, int64_t i)
{
    const int64_t D = a->head_dim, cols = D * a->heads;
    const double none = -HUGE_VAL;
    double top = none, sum = 0, o[LTI_ATTN_MAX_HEAD_DIM] = {0};
    for (int r = 0; r < nruns; r++)
        for (int64_t j = runs[r].begin; j < runs[r].end; j++) {
            const double s = logit(a, &runs[r], h, i, j);
            if (s > top || isnan(s)) top = s;
        }
    for (int r = 0; r < nruns && top != none; r++)
        for (int64_t j = runs[r].begin; j < runs[r].end; j++) {
            const double p = exp(logit(a, &runs[r], h, i, j) - top);
            const int64_t vj = j * lti_ld(&a->v, cols) + h * D;
            sum += p;
            for (int64_t c = 0; c < D; c++)
                o[c] += p * (double)lti_get(a->v.data, a->v.dtype, vj + c);
        }
    const int64_t oi = i * lti_ld(&a->out, cols) + h * D;
    for (int64_t c = 0; c < D; c++)
        lti_put(a->out.data, a->out.dtype, oi + c, top == none ? 0.0f : (float)(o[c] / sum));
    if (a->lse) a->lse[h * a->lq + i] = top == none ? -INFINITY : (float)(top + log(sum));
}

lt_status lti_attention_ref(lt_dev *dev, const lt_attention_args *a)
{
    LT_TRY(lti_check_attention(dev, a));
    const lt_attn_plan *p = a->plan;
    for (int h = 0; h < a->heads; h++) {
        const int g = p->group_of_head ? p->group_of_head[h] : 0;
        for (int32_t t = 0; t < p->nq; t++) {
            const int32_t *row = p->row + (int64_t)g * p->nq + t;
            for (int64_t i = p->q_off[t]; i < p->q_off[t + 1]; i++)
                attend_row(a, p->runs + row[0], row[1] - row[0], h, i);
        }
    }
    return LT_OK;
}
