/* attention_args.c: what the arguments of attention must fulfil, for every version alike. */
#include "kernels/attention.h"

#include <inttypes.h>

static lt_status check_plan(lt_ctx *ctx, const lt_attention_args *a)
{
    const lt_attn_plan *p = a->plan;
    if (!p || p->nq < 1 || p->ngroups < 1) return lti_fail(ctx, LT_ERR_ARG, "attention: no plan");
    if (p->q_off[0] != 0 || p->q_off[p->nq] != a->lq)
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "attention: the plan is for query rows %d..%d, q has %" PRId64, p->q_off[0],
                        p->q_off[p->nq], a->lq);
    for (int h = 0; p->group_of_head && h < a->heads; h++)
        if (p->group_of_head[h] < 0 || p->group_of_head[h] >= p->ngroups)
            return lti_fail(ctx, LT_ERR_ARG, "attention: head %d is of group %d, the plan has %d",
                            h, p->group_of_head[h], p->ngroups);
    const int32_t nruns = p->row[(int64_t)p->ngroups * p->nq];
    for (int32_t r = 0; r < nruns; r++)
        if (p->runs[r].begin < 0 || p->runs[r].begin >= p->runs[r].end || p->runs[r].end > a->lk)
            return lti_fail(ctx, LT_ERR_SHAPE,
                            "attention: run %d of the plan is keys %d..%d, there are %" PRId64, r,
                            p->runs[r].begin, p->runs[r].end, a->lk);
    return LT_OK;
}

lt_status lti_check_attention(lt_dev *dev, const lt_attention_args *a)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (a->heads < 1 || a->head_dim < 1 || a->head_dim > LTI_ATTN_MAX_HEAD_DIM)
        return lti_fail(ctx, LT_ERR_ARG, "attention: %d heads of size %d: at least 1, sizes 1..%d",
                        a->heads, a->head_dim, LTI_ATTN_MAX_HEAD_DIM);
    if (a->lq < 1 || a->lk < 0 || a->lq > INT32_MAX || a->lk > INT32_MAX)
        return lti_fail(ctx, LT_ERR_SHAPE, "attention: %" PRId64 " query rows, %" PRId64 " keys",
                        a->lq, a->lk);
    const int64_t cols = (int64_t)a->heads * a->head_dim;
    LT_TRY(lti_check_mat(dev, "attention", "q", &a->q, a->lq, cols));
    LT_TRY(lti_check_mat(dev, "attention", "k", &a->k, a->lk, cols));
    LT_TRY(lti_check_mat(dev, "attention", "v", &a->v, a->lk, cols));
    LT_TRY(lti_check_mat(dev, "attention", "out", &a->out, a->lq, cols));
    if (a->q.dtype != a->k.dtype || a->q.dtype != a->v.dtype)
        return lti_fail(ctx, LT_ERR_DTYPE, "attention: q is %s, k %s, v %s",
                        lt_dtype_name(a->q.dtype), lt_dtype_name(a->k.dtype),
                        lt_dtype_name(a->v.dtype));
    if (a->rel_bias && a->rel_max < 0)
        return lti_fail(ctx, LT_ERR_ARG, "attention: rel_max %d", a->rel_max);
    if (a->k_rope) LT_TRY(lti_check_rope(dev, "attention", a->k_rope, a->lk, a->head_dim));
    return check_plan(ctx, a);
}
