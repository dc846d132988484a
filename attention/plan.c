/* plan.c: attention plans: their invariants, their copy on the device, their density. */
#include "attention/attention.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct lt_plan {
    lt_dev *dev;
    lt_attn_plan kernel;
    void *q_off, *row, *runs, *group_of_head; /* device */
    int64_t lq, lk;
    double density;
};

static float bias_of(const lt_run *r)
{
    return r->flags & LT_RUN_BIAS ? r->bias : 0.0f;
}

static lt_status check_sizes(lt_ctx *ctx, const lt_plan_desc *d)
{
    if (d->lq < 1 || d->lq > INT32_MAX || d->lk < 0 || d->lk > INT32_MAX)
        return lti_fail(ctx, LT_ERR_ARG,
                        "plan: %" PRId64 " query rows and %" PRId64
                        " keys: wanted 1 and 0 or more, in 31 bits",
                        d->lq, d->lk);
    if (d->nq < 1 || d->ngroups < 1 || d->heads < 1 || (int64_t)d->nq * d->ngroups >= INT32_MAX)
        return lti_fail(ctx, LT_ERR_ARG,
                        "plan: %d query tiles, %d groups, %d heads: wanted at least one of each",
                        d->nq, d->ngroups, d->heads);
    for (int32_t h = 0; d->group_of_head && h < d->heads; h++)
        if (d->group_of_head[h] < 0 || d->group_of_head[h] >= d->ngroups)
            return lti_fail(ctx, LT_ERR_ARG, "plan: head %d is of group %d, there are %d groups", h,
                            d->group_of_head[h], d->ngroups);
    return LT_OK;
}

static lt_status check_tiles(lt_ctx *ctx, const lt_plan_desc *d)
{
    if (d->q_off[0] != 0 || d->q_off[d->nq] != d->lq)
        return lti_fail(ctx, LT_ERR_ARG, "plan: query tiles cover rows %d..%d, wanted 0..%" PRId64,
                        d->q_off[0], d->q_off[d->nq], d->lq);
    for (int32_t t = 0; t < d->nq; t++)
        if (d->q_off[t] >= d->q_off[t + 1])
            return lti_fail(ctx, LT_ERR_ARG, "plan: query tile %d is rows %d..%d: empty", t,
                            d->q_off[t], d->q_off[t + 1]);
    return LT_OK;
}

static lt_status check_run(lt_ctx *ctx, const lt_plan_desc *d, int32_t list, const lt_run *r,
                           const lt_run *prev, int32_t n)
{
    const int32_t group = list / d->nq, tile = list % d->nq;
    if (r->begin < 0 || r->begin >= r->end || r->end > d->lk)
        return lti_fail(ctx, LT_ERR_ARG,
                        "plan: group %d, tile %d, run %d is keys %d..%d: not inside 0..%" PRId64,
                        group, tile, n, r->begin, r->end, d->lk);
    if (r->flags & ~(uint32_t)LT_RUN_BIAS)
        return lti_fail(ctx, LT_ERR_ARG, "plan: group %d, tile %d, run %d has unknown flags 0x%x",
                        group, tile, n, (unsigned)r->flags);
    if (!isfinite(bias_of(r)))
        return lti_fail(ctx, LT_ERR_ARG, "plan: group %d, tile %d, run %d has bias %g", group, tile,
                        n, (double)r->bias);
    if (!prev) return LT_OK;
    if (r->begin < prev->end)
        return lti_fail(ctx, LT_ERR_ARG,
                        "plan: group %d, tile %d, run %d begins at key %d, before the end %d of "
                        "the run before it",
                        group, tile, n, r->begin, prev->end);
    if (r->begin == prev->end && r->flags == prev->flags && bias_of(r) == bias_of(prev))
        return lti_fail(ctx, LT_ERR_ARG,
                        "plan: group %d, tile %d, runs %d and %d meet at key %d and are not merged",
                        group, tile, n - 1, n, r->begin);
    return LT_OK;
}

lt_status lt_plan_check(lt_ctx *ctx, const lt_plan_desc *d)
{
    LT_TRY(check_sizes(ctx, d));
    LT_TRY(check_tiles(ctx, d));
    if (d->row[0] != 0)
        return lti_fail(ctx, LT_ERR_ARG, "plan: the first list begins at run %d, wanted 0",
                        d->row[0]);
    for (int32_t list = 0; list < d->ngroups * d->nq; list++) {
        if (d->row[list + 1] < d->row[list])
            return lti_fail(ctx, LT_ERR_ARG, "plan: group %d, tile %d has runs %d..%d",
                            list / d->nq, list % d->nq, d->row[list], d->row[list + 1]);
        for (int32_t r = d->row[list]; r < d->row[list + 1]; r++)
            LT_TRY(check_run(ctx, d, list, &d->runs[r], r > d->row[list] ? &d->runs[r - 1] : NULL,
                             r - d->row[list]));
    }
    return LT_OK;
}

static double density_of_group(const lt_plan_desc *d, int32_t group)
{
    double pairs = 0;
    for (int32_t t = 0; t < d->nq; t++) {
        const int32_t *row = d->row + (size_t)group * (size_t)d->nq + t;
        int64_t keys = 0;
        for (int32_t r = row[0]; r < row[1]; r++)
            keys += d->runs[r].end - d->runs[r].begin;
        pairs += (double)keys * (d->q_off[t + 1] - d->q_off[t]);
    }
    return d->lk ? pairs / ((double)d->lq * (double)d->lk) : 0.0;
}

static double density_of(const lt_plan_desc *d)
{
    if (!d->group_of_head) return density_of_group(d, 0);
    double sum = 0;
    for (int32_t g = 0; g < d->ngroups; g++) {
        int32_t heads = 0;
        for (int32_t h = 0; h < d->heads; h++)
            heads += d->group_of_head[h] == g;
        if (heads) sum += heads * density_of_group(d, g);
    }
    return sum / d->heads;
}

static lt_status put(lt_dev *dev, void **out, const void *host, size_t bytes)
{
    LT_TRY(lt_dev_alloc(dev, out, bytes, LT_TAG_PLAN));
    return lt_dev_upload(dev, *out, host, bytes);
}

lt_status lt_plan_create(lt_plan **out, lt_dev *dev, const lt_plan_desc *d)
{
    *out = NULL;
    LT_TRY(lt_plan_check(lt_dev_ctx(dev), d));
    lt_plan *p = calloc(1, sizeof *p);
    if (!p) return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for a plan");
    const size_t lists = (size_t)d->ngroups * (size_t)d->nq;
    p->dev = dev;
    p->lq = d->lq;
    p->lk = d->lk;
    p->density = density_of(d);
    lt_status s = put(dev, &p->q_off, d->q_off, ((size_t)d->nq + 1) * sizeof *d->q_off);
    if (s >= 0) s = put(dev, &p->row, d->row, (lists + 1) * sizeof *d->row);
    if (s >= 0) s = put(dev, &p->runs, d->runs, (size_t)d->row[lists] * sizeof *d->runs);
    if (s >= 0 && d->group_of_head)
        s = put(dev, &p->group_of_head, d->group_of_head,
                (size_t)d->heads * sizeof *d->group_of_head);
    if (s < 0) {
        lt_plan_destroy(&p);
        return s;
    }
    p->kernel = (lt_attn_plan){.nq = d->nq,
                               .ngroups = d->ngroups,
                               .q_off = p->q_off,
                               .row = p->row,
                               .runs = p->runs,
                               .group_of_head = p->group_of_head};
    *out = p;
    return LT_OK;
}

void lt_plan_destroy(lt_plan **plan)
{
    lt_plan *p = plan ? *plan : NULL;
    if (!p) return;
    lt_dev_free(p->dev, p->group_of_head);
    lt_dev_free(p->dev, p->runs);
    lt_dev_free(p->dev, p->row);
    lt_dev_free(p->dev, p->q_off);
    free(p);
    *plan = NULL;
}

double lt_plan_density(const lt_plan *plan)
{
    return plan->density;
}

const lt_attn_plan *lt_plan_kernel(const lt_plan *plan)
{
    return &plan->kernel;
}

int64_t lt_plan_lq(const lt_plan *plan)
{
    return plan->lq;
}

int64_t lt_plan_lk(const lt_plan *plan)
{
    return plan->lk;
}
