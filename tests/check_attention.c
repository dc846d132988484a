/* check_attention.c: attention on every kernel set beside the exact softmax in f64; its speed. Plans: check_attention_plans.c. */
#include "tests/check_attention.h"

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
    check_relative(t);
    check_turned(t);
    check_refusals(t);
    lt_check_attention_plans(t);
    if (t->bench) bench(t);
}
