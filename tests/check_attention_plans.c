/* check_attention_plans.c: which keys are read: lists of runs on every kernel set, keys outside of them, and what lists of the same keys
 * have in common. */
#include "tests/check_attention.h"

static bool listed(const plan *p, int64_t key)
{
    for (int32_t r = 0; r < p->nruns; r++)
        if (p->runs[r].begin <= key && key < p->runs[r].end) return true;
    return false;
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

void lt_check_attention_plans(lt_check *t)
{
    check_plans(t);
    check_places(t);
    check_cuts(t);
    check_recall(t);
    check_merge(t);
    check_order(t);
}
