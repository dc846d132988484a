/* attention_check.c: is a call to attention possible at all? */
#include "kernels/attention.h"

#include <inttypes.h>

static lt_status check_mat(lt_ctx *ctx, const char *name, const lt_mat *m, int64_t rows,
                           int64_t cols)
{
    if (!m->data && rows > 0) return lti_fail(ctx, LT_ERR_ARG, "attention: %s is NULL", name);
    if (m->dtype != LT_F32 && m->dtype != LT_BF16)
        return lti_fail(ctx, LT_ERR_DTYPE, "attention: %s has type %d, wanted f32 or bf16", name,
                        (int)m->dtype);
    if (m->ld && m->ld < cols)
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "attention: %s has %" PRId64 " from row to row, needs %" PRId64, name,
                        m->ld, cols);
    return LT_OK;
}

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

static lt_status check_rope(lt_ctx *ctx, const lt_attention_args *a)
{
    int64_t pairs = 0;
    for (int i = 0; i < 3; i++) {
        if (a->k_rope->pairs[i] < 0 || (a->k_rope->pairs[i] && !a->k_rope->table[i]))
            return lti_fail(ctx, LT_ERR_ARG, "attention: %d rotary pairs on axis %d, no table",
                            a->k_rope->pairs[i], i);
        pairs += a->k_rope->pairs[i];
    }
    if (2 * pairs != a->head_dim)
        return lti_fail(ctx, LT_ERR_SHAPE, "attention: %" PRId64 " rotary pairs for head_dim %d",
                        pairs, a->head_dim);
    if (a->lk && !a->k_rope->pos)
        return lti_fail(ctx, LT_ERR_ARG, "attention: rotated keys without positions");
    return LT_OK;
}

lt_status lti_attention_check(lt_dev *dev, const lt_attention_args *a)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (a->heads < 1 || a->head_dim < 1 || a->head_dim > LTI_ATTN_MAX_HEAD_DIM)
        return lti_fail(ctx, LT_ERR_ARG, "attention: %d heads of size %d: at least 1, sizes 1..%d",
                        a->heads, a->head_dim, LTI_ATTN_MAX_HEAD_DIM);
    if (a->lq < 1 || a->lk < 0 || a->lq > INT32_MAX || a->lk > INT32_MAX)
        return lti_fail(ctx, LT_ERR_SHAPE, "attention: %" PRId64 " query rows, %" PRId64 " keys",
                        a->lq, a->lk);
    const int64_t cols = (int64_t)a->heads * a->head_dim;
    LT_TRY(check_mat(ctx, "q", &a->q, a->lq, cols));
    LT_TRY(check_mat(ctx, "k", &a->k, a->lk, cols));
    LT_TRY(check_mat(ctx, "v", &a->v, a->lk, cols));
    LT_TRY(check_mat(ctx, "out", &a->out, a->lq, cols));
    if (a->q.dtype != a->k.dtype || a->q.dtype != a->v.dtype)
        return lti_fail(ctx, LT_ERR_DTYPE, "attention: q is %s, k %s, v %s",
                        lt_dtype_name(a->q.dtype), lt_dtype_name(a->k.dtype),
                        lt_dtype_name(a->v.dtype));
    if (a->rel_bias && a->rel_max < 0)
        return lti_fail(ctx, LT_ERR_ARG, "attention: rel_max %d", a->rel_max);
    if (a->k_rope) LT_TRY(check_rope(ctx, a));
    return check_plan(ctx, a);
}
