/* check_attention.c: attention on every kernel set beside the exact softmax in f64. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
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

static void plan_finish(lt_check *t, plan *p, int heads)
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

static void plan_tiles(plan *p, int64_t lq, int64_t rows)
{
    *p = (plan){.ngroups = 1};
    for (int64_t r = 0; r < lq; r += rows)
        p->q_off[++p->nq] = (int32_t)lti_min64(r + rows, lq);
}

static plan plan_dense(lt_check *t, const attn *c, int64_t tile)
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
static plan plan_random(lt_check *t, const attn *c, int64_t rows, int64_t max_run, int64_t max_gap)
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

static bool listed(const plan *p, int64_t key)
{
    for (int32_t r = 0; r < p->nruns; r++)
        if (p->runs[r].begin <= key && key < p->runs[r].end) return true;
    return false;
}

/* ---- calls ---- */

enum { REL_MAX = 40 };

static int64_t cols_of(const attn *c)
{
    return (int64_t)c->heads * c->dim;
}

static bufs make(lt_check *t, const attn *c, lt_fill fill)
{
    const int64_t n = cols_of(c) * (c->shared ? 3 : 1);
    bufs b = {.q = lt_check_data(t, c->in, c->lq * n, fill)};
    b.k = c->shared ? b.q : lt_check_data(t, c->in, c->lk * n, fill);
    b.v = c->shared ? b.q : lt_check_rand(t, c->in, c->lk * n);
    b.rel = lt_check_rand(t, LT_F32, c->heads * (2 * REL_MAX + 1));
    return b;
}

static void make_out(lt_check *t, const attn *c, bufs *b)
{
    b->out = lt_check_out(t, c->out, c->lq * cols_of(c));
    b->lse = lt_check_out(t, LT_F32, c->lq * c->heads);
}

static lt_mat column(lt_buf b, lt_side side, int64_t first, int64_t ld)
{
    return (lt_mat){(char *)lt_at(b, side) + (size_t)first * b.elem, b.dtype, ld};
}

static lt_attention_args args(lt_side side, const attn *c, const bufs *b, const plan *p)
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

/* Products of bf16 round the weights: an absolute error, since |v| <= 1. A bf16 output may fall on the next number. */
static lt_tol tolerance(lt_check *t, const attn *c, double f32)
{
    if (c->in == LT_BF16 && !strcmp(lt_dev_isa(t->dev), "avx512bf16")) f32 = 4e-3;
    return (lt_tol){.abs = f32, .rel = c->out == LT_BF16 ? 8e-3 : 2e-6};
}

static void compare(lt_check *t, const attn *c, const bufs *in, const plan *p, double f32)
{
    bufs want = *in, got = *in;
    make_out(t, c, &want);
    make_out(t, c, &got);
    const lt_attention_args h = args(LT_HOST, c, &want, p), d = args(LT_DEV, c, &got, p);
    LT_CHECK_REF(t, lti_attention_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    lt_check_close(t, "out", got.out, want.out, tolerance(t, c, f32));
    if (c->lse) lt_check_close(t, "lse", got.lse, want.lse, (lt_tol){.abs = 10 * f32, .rel = 1e-6});
    LT_CHECK_THREADS(t, got.out, lt_attention(t->dev, &d));
}

static const char *types(const attn *c)
{
    if (c->in == LT_F32) return c->out == LT_F32 ? "f32" : "f32_bf16";
    return c->out == LT_F32 ? "bf16_f32" : "bf16";
}

/* ---- the checks ---- */

static void check_dense(lt_check *t)
{
    static const struct {
        int64_t lq, lk;
        int heads, dim;
    } sizes[] = {{1, 1, 1, 64},      {3, 1, 2, 24},      {1, 3, 1, 12},     {113, 129, 2, 64},
                 {127, 128, 1, 128}, {129, 127, 1, 96},  {128, 257, 2, 24}, {15, 1023, 1, 128},
                 {57, 113, 1, 384},  {1023, 257, 2, 12}, {20, 300, 1, 512}, {33, 1560, 1, 64},
                 {14, 100, 3, 7}};
    static const lt_dtype in[] = {LT_F32, LT_BF16, LT_BF16, LT_F32},
                          out[] = {LT_F32, LT_F32, LT_BF16, LT_BF16};
    for (size_t i = 0; i < LT_COUNT(sizes) * 4; i++) {
        const size_t s = i / 4;
        const attn c = {.lq = sizes[s].lq,
                        .lk = sizes[s].lk,
                        .heads = sizes[s].heads,
                        .dim = sizes[s].dim,
                        .in = in[i % 4],
                        .out = out[i % 4],
                        .lse = i % 2 == 0,
                        .shared = sizes[s].lq == sizes[s].lk};
        if (!lt_check_begin(t, "attention_%s_%" PRId64 "x%" PRId64 "_h%d_d%d", types(&c), c.lq,
                            c.lk, c.heads, c.dim))
            continue;
        const bufs b = make(t, &c, LT_FILL_UNIFORM);
        const plan p = plan_dense(t, &c, 126);
        compare(t, &c, &b, &p, 2e-6);
    }
}

/* Logits that make the softmax hard: one large one, all equal, so large that only the largest counts. */
static void check_fills(lt_check *t)
{
    static const lt_fill fills[] = {LT_FILL_SPIKE, LT_FILL_EQUAL, LT_FILL_TINY, LT_FILL_HUGE};
    static const float scales[] = {0, 0, 0, 1e-30f};
    for (size_t i = 0; i < LT_COUNT(fills); i++) {
        const attn c = {.lq = 57,
                        .lk = 300,
                        .heads = 2,
                        .dim = 64,
                        .in = LT_F32,
                        .out = LT_F32,
                        .scale = scales[i],
                        .lse = true};
        if (!lt_check_begin(t, "attention_f32_%s", lt_fill_name(fills[i]))) continue;
        const bufs b = make(t, &c, fills[i]);
        const plan p = plan_dense(t, &c, 126);
        /* a logit of 1e3 is known to 1e-4 in f32, and its weight to as much of itself */
        compare(t, &c, &b, &p, fills[i] == LT_FILL_SPIKE ? 1e-3 : 2e-6);
    }
    const attn sharp = {.lq = 40,
                        .lk = 700,
                        .heads = 1,
                        .dim = 128,
                        .in = LT_F32,
                        .out = LT_F32,
                        .scale = 3,
                        .lse = true};
    if (lt_check_begin(t, "attention_f32_sharp")) {
        const bufs b = make(t, &sharp, LT_FILL_UNIFORM);
        const plan p = plan_dense(t, &sharp, 126);
        compare(t, &sharp, &b, &p, 2e-5);
    }
    attn back = sharp;
    back.scale = -0.1f;
    if (lt_check_begin(t, "attention_f32_negative_scale")) {
        const bufs b = make(t, &back, LT_FILL_UNIFORM);
        const plan p = plan_dense(t, &back, 126);
        compare(t, &back, &b, &p, 2e-6);
    }
}

static void poison(lt_check *t, const attn *c, bufs *b, const plan *p, float with)
{
    const int64_t n = cols_of(c);
    b->k = lt_check_clone(t, b->k);
    b->v = lt_check_clone(t, b->v);
    for (int64_t key = 0; key < c->lk; key++)
        for (int64_t i = 0; i < n && !listed(p, key); i++) {
            lti_put(b->k.host, c->in, key * n + i, with);
            lti_put(b->v.host, c->in, key * n + i, with);
        }
    lt_check_upload(t, b->k);
    lt_check_upload(t, b->v);
}

static void compare_poisoned(lt_check *t, const attn *c, const bufs *in, const plan *p)
{
    static const float with[] = {NAN, 1e30f, -INFINITY};
    bufs clean = *in;
    make_out(t, c, &clean);
    const lt_attention_args a = args(LT_DEV, c, &clean, p);
    LT_CHECK_OK(t, lt_attention(t->dev, &a));
    LT_CHECK_OK(t, lt_dev_download(t->dev, clean.out.host, clean.out.dev,
                                   (size_t)clean.out.n * clean.out.elem));
    for (size_t i = 0; i < LT_COUNT(with); i++) {
        bufs b = *in;
        poison(t, c, &b, p, with[i]);
        make_out(t, c, &b);
        const lt_attention_args d = args(LT_DEV, c, &b, p);
        LT_CHECK_OK(t, lt_attention(t->dev, &d));
        lt_check_same(t, "out beside poisoned keys", b.out, clean.out);
    }
}

/* Runs with gaps: short, long, alone; empty lists; biases; keys that no list names may hold anything. */
static void check_plans(lt_check *t)
{
    static const struct {
        int64_t lq, lk, rows, max_run, max_gap;
        int dim;
    } plans[] = {{70, 90, 20, 1, 1, 24},
                 {300, 600, 126, 40, 60, 64},
                 {257, 1023, 60, 300, 100, 32},
                 {131, 500, 131, 3, 5, 128},
                 {90, 128, 7, 64, 3, 12}};
    for (size_t i = 0; i < LT_COUNT(plans) * 2; i++) {
        const size_t s = i / 2;
        const attn c = {.lq = plans[s].lq,
                        .lk = plans[s].lk,
                        .heads = 3,
                        .dim = plans[s].dim,
                        .in = i % 2 ? LT_BF16 : LT_F32,
                        .out = LT_F32,
                        .lse = true,
                        .rel = s == 2};
        if (!lt_check_begin(t, "attention_%s_runs%" PRId64 "_gaps%" PRId64 "_d%d", types(&c),
                            plans[s].max_run, plans[s].max_gap, c.dim))
            continue;
        const bufs b = make(t, &c, LT_FILL_UNIFORM);
        const plan p = plan_random(t, &c, plans[s].rows, plans[s].max_run, plans[s].max_gap);
        compare(t, &c, &b, &p, 2e-6);
        compare_poisoned(t, &c, &b, &p);
    }
}

static void bring(lt_check *t, lt_buf b)
{
    LT_CHECK_OK(t, lt_dev_download(t->dev, b.host, b.dev, (size_t)b.n * b.elem));
}

/* What a row reads decides its bits, not where its keys stand: all of them, shifted by a few rows. Pairs of bf16 stay where they are. */
static void check_places(lt_check *t)
{
    for (int i = 0; i < 2; i++) {
        const int64_t by = i ? 6 : 5;
        attn c = {
            .lq = 90, .lk = 411, .heads = 2, .dim = 64, .in = i ? LT_BF16 : LT_F32, .out = LT_F32};
        if (!lt_check_begin(t, "attention_%s_places", types(&c))) continue;
        bufs a = make(t, &c, LT_FILL_UNIFORM), b = a;
        const plan p = plan_random(t, &c, 30, 50, 20);
        make_out(t, &c, &a);
        lt_attention_args d = args(LT_DEV, &c, &a, &p);
        LT_CHECK_OK(t, lt_attention(t->dev, &d));
        bring(t, a.out);
        plan moved = p;
        for (int32_t r = 0; r < moved.nruns; r++) {
            moved.runs[r].begin += (int32_t)by;
            moved.runs[r].end += (int32_t)by;
        }
        plan_finish(t, &moved, c.heads);
        attn longer = c;
        longer.lk += by;
        const size_t skip = (size_t)(by * cols_of(&c)) * lt_dtype_size(c.in);
        b.k = lt_check_rand(t, c.in, longer.lk * cols_of(&c));
        b.v = lt_check_rand(t, c.in, longer.lk * cols_of(&c));
        memcpy((char *)b.k.host + skip, a.k.host, (size_t)a.k.n * a.k.elem);
        memcpy((char *)b.v.host + skip, a.v.host, (size_t)a.v.n * a.v.elem);
        lt_check_upload(t, b.k);
        lt_check_upload(t, b.v);
        make_out(t, &longer, &b);
        d = args(LT_DEV, &longer, &b, &moved);
        LT_CHECK_OK(t, lt_attention(t->dev, &d));
        lt_check_same(t, "the same keys in other rows", b.out, a.out);
    }
}

static void check_relative(lt_check *t)
{
    for (int i = 0; i < 2; i++) {
        const attn c = {.lq = 150,
                        .lk = i ? 150 : 211,
                        .heads = 3,
                        .dim = 64,
                        .in = i ? LT_BF16 : LT_F32,
                        .out = LT_F32,
                        .scale = 1,
                        .rel = true,
                        .shared = i == 1,
                        .lse = true};
        if (!lt_check_begin(t, "attention_%s_relative_%" PRId64 "x%" PRId64, types(&c), c.lq, c.lk))
            continue;
        const bufs b = make(t, &c, LT_FILL_UNIFORM);
        const plan p = plan_dense(t, &c, 126);
        compare(t, &c, &b, &p, 5e-6);
    }
}

/* A run cut anywhere is the same run: pieces with a bias of 0 and without one in turn, so that they stay pieces. */
static void check_cuts(lt_check *t)
{
    attn c = {.lq = 57, .lk = 700, .heads = 2, .dim = 64, .in = LT_F32, .out = LT_F32, .lse = true};
    for (int i = 0; i < 2; i++) {
        if (i) c.in = LT_BF16;
        if (!lt_check_begin(t, "attention_%s_cuts", types(&c))) continue;
        const bufs in = make(t, &c, LT_FILL_UNIFORM);
        bufs whole = in, cut = in;
        const plan one = plan_dense(t, &c, 20);
        plan many;
        plan_tiles(&many, c.lq, 20);
        for (int32_t tile = 0; tile < many.nq; tile++) {
            for (int32_t at = 0, end; at < (int32_t)c.lk; at = end) {
                end = at + (int32_t)lt_check_between(t, 1, c.lk / 8);
                if (end > (int32_t)c.lk) end = (int32_t)c.lk;
                const uint32_t flags = many.nruns % 2 ? LT_RUN_BIAS : 0;
                many.runs[many.nruns++] = (lt_run){.begin = at, .end = end, .flags = flags};
            }
            many.row[tile + 1] = many.nruns;
        }
        plan_finish(t, &many, c.heads);
        make_out(t, &c, &whole);
        make_out(t, &c, &cut);
        const lt_attention_args w = args(LT_DEV, &c, &whole, &one),
                                d = args(LT_DEV, &c, &cut, &many);
        LT_CHECK_OK(t, lt_attention(t->dev, &w));
        LT_CHECK_OK(t, lt_attention(t->dev, &d));
        bring(t, whole.out);
        bring(t, whole.lse);
        lt_check_close(t, "out", cut.out, whole.out, tolerance(t, &c, 2e-6));
        lt_check_close(t, "lse", cut.lse, whole.lse, (lt_tol){.abs = 2e-5, .rel = 1e-6});
    }
}

/* Keys 0 .. KEPT - 1 are one list, the rest another. */
enum { KEPT = 133 };
static const attn two_lists = {.lq = 77,
                               .lk = 411,
                               .heads = 2,
                               .dim = 64,
                               .in = LT_F32,
                               .out = LT_F32,
                               .scale = 0.5f,
                               .lse = true};

/* The part of a row's weight that is on the keys of `half`, in f64. */
static double mass(const attn *c, const bufs *b, int64_t row, int head, int64_t half)
{
    const float *q = (const float *)b->q.host + row * cols_of(c) + (int64_t)head * c->dim;
    double part = 0, all = 0;
    for (int64_t key = 0; key < c->lk; key++) {
        const float *k = (const float *)b->k.host + key * cols_of(c) + (int64_t)head * c->dim;
        double s = 0;
        for (int d = 0; d < c->dim; d++)
            s += (double)q[d] * (double)k[d];
        const double w = exp(s * (double)c->scale);
        all += w;
        if (key < half) part += w;
    }
    return part / all;
}

/* Of a list that leaves keys out, exp(lse - lse of all) is the part of the weight that it kept. */
static void check_recall(lt_check *t)
{
    const attn c = two_lists;
    if (!lt_check_begin(t, "attention_f32_recall")) return;
    bufs all = make(t, &c, LT_FILL_UNIFORM), part = all;
    const plan whole = plan_dense(t, &c, 40);
    plan p = whole;
    for (int32_t r = 0; r < p.nruns; r++)
        p.runs[r].end = KEPT;
    plan_finish(t, &p, c.heads);
    make_out(t, &c, &all);
    make_out(t, &c, &part);
    const lt_attention_args w = args(LT_DEV, &c, &all, &whole), d = args(LT_DEV, &c, &part, &p);
    LT_CHECK_OK(t, lt_attention(t->dev, &w));
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    bring(t, all.lse);
    bring(t, part.lse);
    lt_buf recall = lt_check_out(t, LT_F32, all.lse.n), want = lt_check_out(t, LT_F32, all.lse.n);
    for (int64_t i = 0; i < recall.n; i++) {
        const double kept = (double)((float *)part.lse.host)[i],
                     lse = (double)((float *)all.lse.host)[i];
        ((float *)recall.host)[i] = (float)exp(kept - lse);
        ((float *)want.host)[i] = (float)mass(&c, &all, i % c.lq, (int)(i / c.lq), KEPT);
    }
    lt_check_upload(t, recall);
    lt_check_close(t, "part of the weight", recall, want, (lt_tol){.abs = 2e-6, .rel = 2e-6});
}

/* Two halves of the keys, merged by their lse, are the whole. */
static void check_merge(lt_check *t)
{
    const attn c = two_lists;
    if (!lt_check_begin(t, "attention_f32_merge")) return;
    const bufs in = make(t, &c, LT_FILL_UNIFORM);
    bufs half[2], whole = in;
    plan all = plan_dense(t, &c, 40);
    for (int i = 0; i < 2; i++) {
        plan p = plan_dense(t, &c, 40);
        for (int32_t r = 0; r < p.nruns; r++)
            p.runs[r] = i ? (lt_run){.begin = KEPT, .end = (int32_t)c.lk}
                          : (lt_run){.begin = 0, .end = KEPT};
        plan_finish(t, &p, c.heads);
        half[i] = in;
        make_out(t, &c, &half[i]);
        const lt_attention_args d = args(LT_DEV, &c, &half[i], &p);
        LT_CHECK_OK(t, lt_attention(t->dev, &d));
        bring(t, half[i].out);
        bring(t, half[i].lse);
    }
    make_out(t, &c, &whole);
    const lt_attention_args d = args(LT_DEV, &c, &whole, &all);
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    const float *o0 = half[0].out.host, *o1 = half[1].out.host, *l0 = half[0].lse.host,
                *l1 = half[1].lse.host;
    lt_buf want = lt_check_out(t, LT_F32, whole.out.n);
    for (int64_t i = 0; i < whole.out.n; i++) {
        const int64_t at = i / c.dim % c.heads * c.lq + i / cols_of(&c);
        const double w0 = 1 / (1 + exp((double)l1[at] - (double)l0[at]));
        ((float *)want.host)[i] = (float)(w0 * (double)o0[i] + (1 - w0) * (double)o1[i]);
    }
    lt_check_close(t, "merged", whole.out, want, (lt_tol){.abs = 2e-6, .rel = 2e-6});
}

static void move_rows(lt_check *t, lt_buf to, lt_buf from, int64_t rows, int64_t step)
{
    const size_t bytes = (size_t)(from.n / rows) * from.elem;
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)to.host + (size_t)(r * step % rows) * bytes,
               (char *)from.host + (size_t)r * bytes, bytes);
    lt_check_upload(t, to);
}

/* Of two heads. */
static void swap_heads(lt_check *t, const attn *c, lt_buf to, lt_buf from)
{
    const size_t bytes = (size_t)c->dim * from.elem;
    for (int64_t r = 0; r < from.n / cols_of(c); r++)
        for (int h = 0; h < 2; h++)
            memcpy((char *)to.host + (size_t)(2 * r + h) * bytes,
                   (char *)from.host + (size_t)(2 * r + 1 - h) * bytes, bytes);
    lt_check_upload(t, to);
}

/* Rows of q in another order give the same bits in that order, whatever the tiles; keys in another order the same to
 * rounding. */
static void check_order(lt_check *t)
{
    const attn c = {.lq = 201, .lk = 353, .heads = 2, .dim = 64, .in = LT_F32, .out = LT_F32};
    if (!lt_check_begin(t, "attention_f32_order")) return;
    bufs a = make(t, &c, LT_FILL_UNIFORM), b = a, k = a;
    make_out(t, &c, &a);
    const plan p = plan_dense(t, &c, 126), small = plan_dense(t, &c, 9);
    lt_attention_args d = args(LT_DEV, &c, &a, &p);
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    bring(t, a.out);
    b.q = lt_check_clone(t, a.q);
    move_rows(t, b.q, a.q, c.lq, 50);
    make_out(t, &c, &b);
    d = args(LT_DEV, &c, &b, &small);
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    lt_buf want = lt_check_clone(t, a.out);
    move_rows(t, want, a.out, c.lq, 50);
    lt_check_same(t, "rows of q in another order and other tiles", b.out, want);
    k.k = lt_check_clone(t, a.k);
    k.v = lt_check_clone(t, a.v);
    move_rows(t, k.k, a.k, c.lk, 100);
    move_rows(t, k.v, a.v, c.lk, 100);
    make_out(t, &c, &k);
    d = args(LT_DEV, &c, &k, &p);
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    lt_check_close(t, "keys in another order", k.out, a.out, (lt_tol){.abs = 2e-6, .rel = 2e-6});
    bufs s = a;
    lt_buf *const swapped[] = {&s.q, &s.k, &s.v};
    for (size_t i = 0; i < LT_COUNT(swapped); i++) {
        const lt_buf from = *swapped[i];
        *swapped[i] = lt_check_clone(t, from);
        swap_heads(t, &c, *swapped[i], from);
    }
    make_out(t, &c, &s);
    d = args(LT_DEV, &c, &s, &p);
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    lt_buf other = lt_check_clone(t, a.out);
    swap_heads(t, &c, other, a.out);
    lt_check_same(t, "heads in another order", s.out, other);
}

/* Positions of a ring: any order, some of them beyond what the queries have. */
static void make_rope(lt_check *t, int64_t rows, int dim, lt_rope at[2])
{
    static const int32_t npos[3] = {50, 7, 9};
    const int32_t space = dim / 6, pairs[3] = {dim / 2 - 2 * space, space, space};
    lt_buf pos = lt_check_raw(t, NULL, sizeof(int32_t), rows * 3);
    for (int64_t i = 0; i < rows * 3; i++)
        ((int32_t *)pos.host)[i] = (int32_t)lt_check_between(t, 0, npos[i % 3] - 1);
    lt_check_upload(t, pos);
    for (int side = LT_HOST; side <= LT_DEV; side++)
        at[side].pos = lt_at(pos, (lt_side)side);
    for (int a = 0; a < 3; a++) {
        lt_buf table = lt_check_rand(t, LT_F32, (int64_t)npos[a] * (pairs[a] ? pairs[a] : 1) * 2);
        for (int64_t i = 0; i < npos[a] * pairs[a]; i++) {
            ((float *)table.host)[2 * i] = cosf(0.3f * (float)i);
            ((float *)table.host)[2 * i + 1] = sinf(0.3f * (float)i);
        }
        lt_check_upload(t, table);
        for (int side = LT_HOST; side <= LT_DEV; side++) {
            at[side].pairs[a] = pairs[a];
            at[side].table[a] = lt_at(table, (lt_side)side);
        }
    }
}

/* The same as attention on keys that lt_qknorm has turned before. */
static void compare_turned(lt_check *t, const attn *c, const bufs *in, const lt_rope *rope,
                           const lt_attention_args *raw)
{
    bufs turned = *in;
    turned.k = lt_check_out(t, c->in, c->lk * cols_of(c));
    const int64_t ld = c->shared ? 3 * cols_of(c) : 0;
    lt_qknorm_args a = {.out = lt_mat_at(turned.k, LT_DEV, 0),
                        .x = column(in->k, LT_DEV, c->shared ? cols_of(c) : 0, ld),
                        .rows = c->lk,
                        .heads = c->heads,
                        .head_dim = c->dim,
                        .eps = -1,
                        .rope = &rope[LT_DEV]};
    LT_CHECK_OK(t, lt_qknorm(t->dev, &a));
    make_out(t, c, &turned);
    lt_attention_args d = *raw;
    d.k = lt_mat_at(turned.k, LT_DEV, 0);
    d.out = lt_mat_at(turned.out, LT_DEV, 0);
    d.k_rope = NULL;
    d.lse = NULL;
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    lt_buf want = lt_check_clone(t, turned.out);
    LT_CHECK_OK(t, lt_dev_download(t->dev, want.host, turned.out.dev, (size_t)want.n * want.elem));
    bufs got = *in;
    make_out(t, c, &got);
    d = *raw;
    d.out = lt_mat_at(got.out, LT_DEV, 0);
    d.lse = NULL;
    LT_CHECK_OK(t, lt_attention(t->dev, &d));
    /* bf16: turned before, a key is rounded once more */
    const double abs = c->in == LT_BF16 ? 1e-2 : 4e-6;
    lt_check_close(t, "raw keys beside turned ones", got.out, want, (lt_tol){.abs = abs});
}

static void check_turned(lt_check *t)
{
    static const struct {
        int64_t lq, lk;
        int heads, dim;
        bool shared;
    } sizes[] = {{1, 1, 1, 64, false},      {57, 130, 2, 24, false}, {33, 33, 3, 128, true},
                 {126, 301, 1, 128, false}, {15, 64, 2, 96, false},  {20, 40, 1, 6, false}};
    for (size_t i = 0; i < LT_COUNT(sizes) * 2; i++) {
        const size_t s = i / 2;
        const attn c = {.lq = sizes[s].lq,
                        .lk = sizes[s].lk,
                        .heads = sizes[s].heads,
                        .dim = sizes[s].dim,
                        .in = i % 2 ? LT_BF16 : LT_F32,
                        .out = LT_F32,
                        .shared = sizes[s].shared,
                        .lse = true};
        if (!lt_check_begin(t, "attention_%s_turned_%" PRId64 "x%" PRId64 "_h%d_d%d", types(&c),
                            c.lq, c.lk, c.heads, c.dim))
            continue;
        const bufs b = make(t, &c, LT_FILL_UNIFORM);
        const plan p = s % 2 ? plan_random(t, &c, 40, 30, 9) : plan_dense(t, &c, 126);
        lt_rope rope[2] = {{.pos = NULL}, {.pos = NULL}};
        make_rope(t, c.lk, c.dim, rope);
        bufs want = b, got = b;
        make_out(t, &c, &want);
        make_out(t, &c, &got);
        lt_attention_args h = args(LT_HOST, &c, &want, &p), d = args(LT_DEV, &c, &got, &p);
        h.k_rope = &rope[LT_HOST];
        d.k_rope = &rope[LT_DEV];
        LT_CHECK_REF(t, lti_attention_ref(t->dev, &h));
        LT_CHECK_OK(t, lt_attention(t->dev, &d));
        lt_check_close(t, "out", got.out, want.out, tolerance(t, &c, 2e-6));
        /* pairs of bf16 hold the turned key rounded */
        const double lse = tolerance(t, &c, 2e-5).abs;
        lt_check_close(t, "lse", got.lse, want.lse, (lt_tol){.abs = lse, .rel = 1e-6});
        LT_CHECK_THREADS(t, got.out, lt_attention(t->dev, &d));
        compare_turned(t, &c, &b, rope, &d);
    }
}

static void check_refusals(lt_check *t)
{
    const attn c = {.lq = 20, .lk = 30, .heads = 2, .dim = 16, .in = LT_F32, .out = LT_F32};
    if (!lt_check_begin(t, "attention_refusals")) return;
    bufs b = make(t, &c, LT_FILL_UNIFORM);
    make_out(t, &c, &b);
    const plan p = plan_dense(t, &c, 126);
    lt_attention_args d = args(LT_DEV, &c, &b, &p);
    d.head_dim = 513;
    LT_CHECK_STATUS(t, LT_ERR_ARG, lt_attention(t->dev, &d));
    d = args(LT_DEV, &c, &b, &p);
    d.lq = 19;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_attention(t->dev, &d));
    d = args(LT_DEV, &c, &b, &p);
    d.lk = 29;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_attention(t->dev, &d));
    d = args(LT_DEV, &c, &b, &p);
    d.k.dtype = LT_BF16;
    LT_CHECK_STATUS(t, LT_ERR_DTYPE, lt_attention(t->dev, &d));
    d = args(LT_DEV, &c, &b, &p);
    d.v.ld = 31;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_attention(t->dev, &d));
    lt_rope rope[2] = {{.pos = NULL}, {.pos = NULL}};
    make_rope(t, c.lk, c.dim, rope);
    d = args(LT_DEV, &c, &b, &p);
    d.k_rope = &rope[LT_DEV];
    rope[LT_DEV].pairs[0]--;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_attention(t->dev, &d));
    rope[LT_DEV].pairs[0]++;
    rope[LT_DEV].pos = NULL;
    LT_CHECK_STATUS(t, LT_ERR_ARG, lt_attention(t->dev, &d));
}

/* ---- speed ---- */

/* The reference gets one row of every head. */
static void bench_one(lt_check *t, const attn *c, plan *p, double pairs)
{
    bufs b = make(t, c, LT_FILL_UNIFORM);
    make_out(t, c, &b);
    plan_finish(t, p, c->heads);
    attn one = *c;
    one.lq = 1;
    plan row = *p;
    row.nq = row.q_off[1] = 1;
    plan_finish(t, &row, c->heads);
    const lt_attention_args d = args(LT_DEV, c, &b, p), r = args(LT_HOST, &one, &b, &row);
    LT_BENCH(t, lt_attention(t->dev, &d), lti_attention_ref(t->dev, &r),
             .flops = 4.0 * pairs * (double)cols_of(c), .bf16 = c->in == LT_BF16,
             .ref_scale = (double)c->lq);
}

/* Tiles of 120 rows that read three runs of `keys` keys each, as windows in space and time do: time should follow the
 * density. */
static void bench_sparse(lt_check *t)
{
    static const int32_t keys[] = {120, 360, 840};
    const attn c = {.lq = 4680, .lk = 4680, .heads = 4, .dim = 128, .in = LT_BF16, .out = LT_BF16};
    for (size_t i = 0; i < LT_COUNT(keys); i++) {
        if (!lt_check_begin(t, "attention_bench_%s_sparse_3x%d_of_%" PRId64, types(&c), keys[i],
                            c.lk))
            continue;
        plan p;
        plan_tiles(&p, c.lq, 120);
        double pairs = 0;
        for (int32_t tile = 0; tile < p.nq; tile++) {
            for (int32_t r = 0; r < 3; r++, pairs += 120.0 * keys[i]) {
                const int32_t begin = r * 1560 + tile % 6 * 120;
                p.runs[p.nruns++] = (lt_run){.begin = begin, .end = begin + keys[i]};
            }
            p.row[tile + 1] = p.nruns;
        }
        bench_one(t, &c, &p, pairs);
    }
}

static void bench(lt_check *t)
{
    static const struct {
        int64_t lq, lk;
        int heads, dim;
    } sizes[] = {{1560, 1560, 12, 128},  {4680, 4680, 4, 128},  {8192, 8192, 2, 128},
                 {32760, 32760, 1, 128}, {1560, 1560, 12, 64},  {4680, 4680, 4, 64},
                 {8192, 8192, 2, 64},    {32760, 32760, 1, 64}, {6240, 6240, 1, 384},
                 {32760, 78, 12, 128},   {1560, 78, 12, 128},   {512, 512, 64, 64}};
    for (size_t i = 0; i < LT_COUNT(sizes) * 2; i++) {
        const attn c = {.lq = sizes[i / 2].lq,
                        .lk = sizes[i / 2].lk,
                        .heads = sizes[i / 2].heads,
                        .dim = sizes[i / 2].dim,
                        .in = i % 2 ? LT_BF16 : LT_F32,
                        .out = i % 2 ? LT_BF16 : LT_F32,
                        .rel = sizes[i / 2].lk == 512};
        if (!lt_check_begin(t, "attention_bench_%s_%" PRId64 "x%" PRId64 "_h%d_d%d", types(&c),
                            c.lq, c.lk, c.heads, c.dim))
            continue;
        plan p;
        plan_tiles(&p, c.lq, c.lq);
        p.runs[0] = (lt_run){.begin = 0, .end = (int32_t)c.lk};
        p.row[1] = p.nruns = 1;
        bench_one(t, &c, &p, (double)c.lq * (double)c.lk);
    }
    bench_sparse(t);
}

void lt_check_attention(lt_check *t)
{
    check_dense(t);
    check_fills(t);
    check_plans(t);
    check_places(t);
    check_relative(t);
    check_cuts(t);
    check_recall(t);
    check_merge(t);
    check_order(t);
    check_turned(t);
    check_refusals(t);
    if (t->bench) bench(t);
}
