/* check_attention.h: what the checks of attention share: calls, plans, buffers, and the comparison with the reference. */
#ifndef LT_TESTS_CHECK_ATTENTION_H
#define LT_TESTS_CHECK_ATTENTION_H

#include "tests/check.h"

#include <math.h>
#include <string.h>

/* One call: sizes, types, and the plan as it is on the host. */
typedef struct attn {
    int64_t lq, lk;
    int heads, dim;
    lt_dtype in, out;
    float scale; /* 0: 1 / sqrt(dim) */
    bool shared; /* q, k, v are columns of one matrix (lq = lk) */
    bool rel, lse;
} attn;

enum { MAX_TILES = 64, MAX_LISTS = 128, MAX_RUNS = 2048 };
typedef struct plan {
    int32_t nq, ngroups, nruns;
    int32_t q_off[MAX_TILES + 1], row[MAX_LISTS + 1], group[64];
    lt_run runs[MAX_RUNS];
    lt_attn_plan at[2]; /* by lt_side */
} plan;

typedef struct bufs {
    lt_buf q, k, v, rel, out, lse;
} bufs;

/* ---- plans ---- */

static inline void plan_finish(lt_check *t, plan *p, int heads)
{
    lt_buf q_off = lt_check_raw(t, p->q_off, sizeof *p->q_off, p->nq + 1);
    lt_buf row = lt_check_raw(t, p->row, sizeof *p->row, p->nq * p->ngroups + 1);
    lt_buf runs = lt_check_raw(t, p->runs, sizeof *p->runs, p->nruns > 0 ? p->nruns : 1);
    lt_buf group = lt_check_raw(t, p->group, sizeof *p->group, heads);
    for (int side = LT_HOST; side <= LT_DEV; side++)
        p->at[side] = (lt_attn_plan){.nq = p->nq,
                                     .ngroups = p->ngroups,
                                     .q_off = lt_at(q_off, (lt_side)side),
                                     .row = lt_at(row, (lt_side)side),
                                     .runs = lt_at(runs, (lt_side)side),
                                     .group_of_head = lt_at(group, (lt_side)side)};
}

static inline void plan_tiles(plan *p, int64_t lq, int64_t rows)
{
    *p = (plan){.ngroups = 1};
    for (int64_t r = 0; r < lq; r += rows)
        p->q_off[++p->nq] = (int32_t)lti_min64(r + rows, lq);
}

static inline plan plan_dense(lt_check *t, const attn *c, int64_t tile)
{
    plan p;
    plan_tiles(&p, c->lq, tile);
    for (int32_t i = 0; i < p.nq; i++) {
        p.runs[p.nruns++] = (lt_run){.begin = 0, .end = (int32_t)c->lk};
        p.row[i + 1] = p.nruns;
    }
    plan_finish(t, &p, c->heads);
    return p;
}

/* Tiles of up to `rows` rows, two groups, lists of runs of up to max_run keys with gaps of up to max_gap, some of them
 * empty, some runs with a bias. */
static inline plan plan_random(lt_check *t, const attn *c, int64_t rows, int64_t max_run,
                               int64_t max_gap)
{
    plan p;
    plan_tiles(&p, c->lq, rows);
    p.ngroups = 2;
    for (int h = 0; h < c->heads; h++)
        p.group[h] = (int32_t)lt_check_between(t, 0, 1);
    for (int32_t list = 0; list < 2 * p.nq; list++) {
        int64_t at = lt_check_between(t, 0, max_gap);
        const bool empty = lt_check_between(t, 0, 7) == 0;
        while (!empty && at < c->lk && p.nruns < (list + 1) * (MAX_RUNS / MAX_LISTS)) {
            const int64_t end = lti_min64(c->lk, at + lt_check_between(t, 1, max_run));
            const bool bias = lt_check_between(t, 0, 2) == 0;
            p.runs[p.nruns++] = (lt_run){.begin = (int32_t)at,
                                         .end = (int32_t)end,
                                         .flags = bias ? LT_RUN_BIAS : 0,
                                         .bias = (float)lt_check_between(t, -20, 20) / 7};
            at = end + lt_check_between(t, 0, max_gap);
        }
        p.row[list + 1] = p.nruns;
    }
    plan_finish(t, &p, c->heads);
    return p;
}

/* ---- calls ---- */

enum { REL_MAX = 40 };

static inline int64_t cols_of(const attn *c)
{
    return (int64_t)c->heads * c->dim;
}

static inline bufs make(lt_check *t, const attn *c, lt_fill fill)
{
    const int64_t n = cols_of(c) * (c->shared ? 3 : 1);
    bufs b = {.q = lt_check_data(t, c->in, c->lq * n, fill)};
    b.k = c->shared ? b.q : lt_check_data(t, c->in, c->lk * n, fill);
    b.v = c->shared ? b.q : lt_check_rand(t, c->in, c->lk * n);
    b.rel = lt_check_rand(t, LT_F32, c->heads * (2 * REL_MAX + 1));
    return b;
}

static inline void make_out(lt_check *t, const attn *c, bufs *b)
{
    b->out = lt_check_out(t, c->out, c->lq * cols_of(c));
    b->lse = lt_check_out(t, LT_F32, c->lq * c->heads);
}

static inline lt_mat column(lt_buf b, lt_side side, int64_t first, int64_t ld)
{
    return (lt_mat){(char *)lt_at(b, side) + (size_t)first * b.elem, b.dtype, ld};
}

static inline lt_attention_args args(lt_side side, const attn *c, const bufs *b, const plan *p)
{
    const int64_t n = cols_of(c), ld = c->shared ? 3 * n : 0;
    return (lt_attention_args){.out = lt_mat_at(b->out, side, 0),
                               .q = column(b->q, side, 0, ld),
                               .k = column(b->k, side, c->shared ? n : 0, ld),
                               .v = column(b->v, side, c->shared ? 2 * n : 0, ld),
                               .lq = c->lq,
                               .lk = c->lk,
                               .heads = c->heads,
                               .head_dim = c->dim,
                               .scale = c->scale != 0 ? c->scale : 1 / sqrtf((float)c->dim),
                               .plan = &p->at[side],
                               .rel_bias = c->rel ? lt_at(b->rel, side) : NULL,
                               .rel_max = c->rel ? REL_MAX : 0,
                               .lse = c->lse ? lt_at(b->lse, side) : NULL};
}

/* Sums in f16: their errors grow with the logits. */
static inline bool in_half(lt_check *t, const attn *c)
{
    return c->in == LT_BF16 && !strcmp(lt_dev_isa(t->dev), "avx512fp16");
}

static inline double half_error(const attn *c)
{
    return 4e-3 * (c->scale != 0 ? fmax(1, (double)c->scale * sqrt(c->dim)) : 1);
}

/* Products of bf16 round the weights: an absolute error, since |v| <= 1. A bf16 output may fall on the next number. */
static inline lt_tol tolerance(lt_check *t, const attn *c, double f32)
{
    if (c->in == LT_BF16 && !strcmp(lt_dev_isa(t->dev), "avx512bf16")) f32 = 4e-3;
    if (in_half(t, c)) f32 = half_error(c);
    return (lt_tol){.abs = f32, .rel = c->out == LT_BF16 ? 8e-3 : 2e-6};
}

static inline lt_tol lse_tolerance(lt_check *t, const attn *c, double f32)
{
    return (lt_tol){.abs = in_half(t, c) ? half_error(c) : f32, .rel = 1e-6};
}

static inline void compare(lt_check *t, const attn *c, const bufs *in, const plan *p, double f32)
{
    bufs want = *in, got = *in;
    make_out(t, c, &want);
    make_out(t, c, &got);
    const lt_attention_args h = args(LT_HOST, c, &want, p), d = args(LT_DEV, c, &got, p);
    LT_CHECK_REF(t, lti_attention_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    lt_check_close(t, "out", got.out, want.out, tolerance(t, c, f32));
    if (c->lse) lt_check_close(t, "lse", got.lse, want.lse, lse_tolerance(t, c, 10 * f32));
    LT_CHECK_THREADS(t, got.out, lt_attention(t->dev, &d));
}

static inline const char *types(const attn *c)
{
    if (c->in == LT_F32) return c->out == LT_F32 ? "f32" : "f32_bf16";
    return c->out == LT_F32 ? "bf16_f32" : "bf16";
}

/* check_attention_plans.c */
void lt_check_attention_plans(lt_check *t);

#endif
