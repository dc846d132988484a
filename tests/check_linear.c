/* check_linear.c: edges of every tile, every epilogue, strange numbers, rows on their own, then real sizes. */
#include "tests/check_gemm.h"

static const lt_dtype types[] = {LT_F32, LT_BF16};

typedef struct shape {
    int64_t m, n, k;
    lt_dtype in, out;
    lt_act act;
    bool sum, gate, group;
    lt_fill fill;
    int64_t gap; /* columns between rows of x and out */
} shape;

typedef struct data {
    lt_buf x, want, got, gate, group;
    lt_weight *w;
} data;

static data make(lt_check *t, const shape *s)
{
    data d = {.x = lt_check_data(t, s->in, s->m * (s->k + s->gap), s->fill)};
    const int64_t n_out = s->m * (s->n + s->gap);
    const bool sum = s->sum || s->gate;
    const lt_buf values = lt_check_rand(t, LT_F32, s->n * s->k), none = {0};
    const lt_buf bias = s->fill == LT_FILL_UNIFORM ? lt_check_rand(t, LT_F32, s->n) : none;
    int32_t group[512] = {0};
    for (int64_t i = 0; i < s->m && i < 512; i++)
        group[i] = (int32_t)lt_check_between(t, 0, 2);
    d.want = sum ? lt_check_rand(t, s->out, n_out) : lt_check_out(t, s->out, n_out);
    d.got = lt_check_clone(t, d.want);
    d.gate = lt_check_rand(t, LT_F32, 3 * (s->n + 1));
    d.group = lt_check_raw(t, group, sizeof *group, lti_min64(s->m, 512));
    d.w = lt_check_weight(t, values, bias, s->n, s->k, 1, s->in);
    return d;
}

static lt_linear_args args(const data *d, const shape *s, lt_side side)
{
    return (lt_linear_args){.out =
                                lt_mat_at(side == LT_HOST ? d->want : d->got, side, s->n + s->gap),
                            .x = lt_mat_at(d->x, side, s->k + s->gap),
                            .w = d->w,
                            .rows = s->m,
                            .act = s->act,
                            .accumulate = s->sum,
                            .gate = s->gate ? lt_at(d->gate, side) : NULL,
                            .gate_ld = s->n + 1,
                            .row_group = s->group ? lt_at(d->group, side) : NULL};
}

static void compare(lt_check *t, const shape *s)
{
    data d = make(t, s);
    const lt_linear_args h = args(&d, s, LT_HOST), v = args(&d, s, LT_DEV);
    const double scale = s->fill == LT_FILL_TINY    ? 1e-12
                         : s->fill == LT_FILL_HUGE  ? 1e15
                         : s->fill == LT_FILL_SPIKE ? 1e4
                                                    : 1;
    LT_CHECK_REF(t, lti_linear_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_linear(t->dev, &v));
    lt_check_close(t, "out", d.got, d.want, lt_check_sum_tol(d.w, (double)s->k, scale, s->out));
    LT_CHECK_THREADS(t, d.got, lt_linear(t->dev, &v));
    lt_weight_destroy(t->many, &d.w);
}

/* Rows and columns around every tile and panel, channels around every step and chunk. */
static void check_edges(lt_check *t)
{
    static const int64_t ms[] = {1, 2, 5, 6, 7, 13, 14, 15, 29, 57, 200};
    static const int64_t ns[] = {1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 49, 65, 100};
    static const int64_t ks[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 64, 100, 447, 448, 449, 900};
    size_t next = 0;
    for (size_t in = 0; in < LT_COUNT(types); in++)
        for (size_t i = 0; i < LT_COUNT(ms); i++)
            for (size_t j = 0; j < LT_COUNT(ns); j++) {
                next++;
                const shape s = {.m = ms[i],
                                 .n = ns[j],
                                 .k = ks[next % LT_COUNT(ks)],
                                 .in = types[in],
                                 .out = types[next % 2],
                                 .gap = (int64_t)(next % 3)};
                if (!lt_check_begin(t, "linear_%s_%s_%" PRId64 "x%" PRId64 "x%" PRId64,
                                    lt_dtype_name(s.in), lt_dtype_name(s.out), s.m, s.n, s.k))
                    continue;
                compare(t, &s);
            }
}

static void check_epilogues(lt_check *t)
{
    for (int act = LT_ACT_NONE; act <= LT_ACT_GELU_ERF; act++)
        for (int bits = 0; bits < 8; bits++)
            for (size_t in = 0; in < LT_COUNT(types); in++)
                for (size_t out = 0; out < LT_COUNT(types); out++) {
                    const shape s = {.m = 61,
                                     .n = 83,
                                     .k = 70,
                                     .in = types[in],
                                     .out = types[out],
                                     .act = (lt_act)act,
                                     .sum = bits & 1,
                                     .gate = bits & 2,
                                     .group = bits & 4};
                    if ((s.sum || s.gate) && s.out != LT_F32) continue;
                    if (!lt_check_begin(t, "linear_%s_%s_act%d%s%s%s", lt_dtype_name(s.in),
                                        lt_dtype_name(s.out), act, s.sum ? "_sum" : "",
                                        s.gate ? "_gate" : "", s.group ? "_group" : ""))
                        continue;
                    compare(t, &s);
                }
}

static void check_fills(lt_check *t)
{
    for (int fill = LT_FILL_TINY; fill < LT_FILL_COUNT; fill++)
        for (size_t in = 0; in < LT_COUNT(types); in++) {
            const shape s = {
                .m = 31, .n = 40, .k = 129, .in = types[in], .out = LT_F32, .fill = (lt_fill)fill};
            if (!lt_check_begin(t, "linear_%s_%s", lt_dtype_name(s.in), lt_fill_name(s.fill)))
                continue;
            compare(t, &s);
        }
}

/* A row alone gives the bits that it gives among others. */
static void check_rows_alone(lt_check *t)
{
    for (size_t in = 0; in < LT_COUNT(types); in++) {
        const shape s = {
            .m = 45, .n = 50, .k = 1000, .in = types[in], .out = LT_F32, .act = LT_ACT_SILU};
        if (!lt_check_begin(t, "linear_%s_rows_alone", lt_dtype_name(s.in))) continue;
        data d = make(t, &s);
        const lt_linear_args all = args(&d, &s, LT_DEV);
        LT_CHECK_OK(t, lt_linear(t->dev, &all));
        LT_CHECK_OK(t, lt_dev_download(t->dev, d.want.host, d.got.dev, (size_t)d.want.n * 4));
        for (int64_t m = 0; m < s.m; m++) {
            lt_linear_args one = all;
            one.rows = 1;
            one.x.data = (char *)d.x.dev + (size_t)(m * s.k) * d.x.elem;
            one.out.data = (float *)d.got.dev + m * s.n;
            LT_CHECK_OK(t, lt_linear(t->dev, &one));
        }
        lt_check_same(t, "out", d.got, d.want);
        lt_weight_destroy(t->many, &d.w);
    }
}

static void check_arguments(lt_check *t)
{
    const shape s = {.m = 3, .n = 4, .k = 5, .in = LT_BF16, .out = LT_BF16};
    if (!lt_check_begin(t, "linear_arguments")) return;
    data d = make(t, &s);
    const lt_linear_args good = args(&d, &s, LT_DEV);
    lt_linear_args a = good;
    a.rows = 0;
    LT_CHECK_OK(t, lt_linear(t->dev, &a));
    lt_check_same(t, "out after no rows", d.got, d.want);
    a.rows = -1;
    LT_CHECK_STATUS(t, LT_ERR_ARG, lt_linear(t->dev, &a));
    a = good;
    a.x.dtype = LT_F32;
    LT_CHECK_STATUS(t, LT_ERR_DTYPE, lt_linear(t->dev, &a));
    a = good;
    a.accumulate = true;
    LT_CHECK_STATUS(t, LT_ERR_DTYPE, lt_linear(t->dev, &a));
    a = good;
    a.x.ld = 4;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_linear(t->dev, &a));
    a = good;
    a.w = NULL;
    LT_CHECK_STATUS(t, LT_ERR_ARG, lt_linear(t->dev, &a));
    lt_weight_destroy(t->many, &d.w);
}

/* The DiT of Wan2.1 1.3B at 1,560 and 4,096 tokens, then the embedded model. */
static void check_real(lt_check *t)
{
    static const int64_t sizes[][3] = {{1560, 1536, 1536}, {1560, 8960, 1536}, {1560, 1536, 8960},
                                       {4096, 1536, 1536}, {4096, 8960, 1536}, {4096, 1536, 8960},
                                       {1344, 256, 256},   {1344, 768, 256},   {1344, 1024, 256},
                                       {1344, 256, 1024},  {1344, 1024, 1024}, {64, 256, 256}};
    for (size_t in = 0; in < LT_COUNT(types) && t->bench; in++)
        for (size_t i = 0; i < LT_COUNT(sizes); i++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            const shape few = {.m = 3, .n = n, .k = k, .in = types[in], .out = LT_F32};
            shape all = few;
            all.m = m;
            all.out = types[in];
            if (!lt_check_begin(t, "linear_%s_%" PRId64 "x%" PRId64 "x%" PRId64,
                                lt_dtype_name(all.in), m, n, k))
                continue;
            compare(t, &few);
            data d = make(t, &all);
            const lt_linear_args v = args(&d, &all, LT_DEV);
            lt_linear_args h = args(&d, &all, LT_HOST);
            h.rows = 3;
            const double flops = 2.0 * (double)m * (double)n * (double)k;
            LT_BENCH(t, lt_linear(t->dev, &v), lti_linear_ref(t->dev, &h), .flops = flops,
                     .bf16 = all.in == LT_BF16, .ref_scale = (double)m / 3);
            lt_check_print_dnnl(t, lt_dnnl_linear_seconds(m, n, k, all.in), flops);
            lt_weight_destroy(t->many, &d.w);
        }
}

void lt_check_linear(lt_check *t)
{
    check_edges(t);
    check_epilogues(t);
    check_fills(t);
    check_rows_alone(t);
    check_arguments(t);
    check_real(t);
}
