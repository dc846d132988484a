/* check_pointwise.c: norm, qknorm, convert, map, lincomb, noise, stats. Sizes: the edges of every vector length, then
 * what models use; rows with gaps between them, which must stay as they were. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

static const lt_dtype TYPES[] = {LT_F32, LT_BF16};

/* f32: 1e-6 against f64. bf16: the nearest or its neighbour, since what is rounded may differ in its last bit. */
static lt_tol tolerance(lt_dtype t, double abs)
{
    return t == LT_F32 ? (lt_tol){.abs = abs, .rel = 1e-6} : (lt_tol){.abs = abs, .rel = 0x1p-7};
}

/* From 32 MB on outputs are written past the caches: one case each, rows aligned to lines and ending within one. */
enum { LARGE_ROWS = 2053, LARGE_COLS = 4091, LARGE_GAP = 5 };

/* ---- norm ---- */

typedef struct norm_case {
    int64_t rows, cols, gap; /* gap: elements between rows */
    lt_norm_kind kind;
    lt_dtype out;
    lt_fill fill;
    bool affine, modulated, groups;
} norm_case;

typedef struct norm_bufs {
    lt_buf x, weight, bias, scale, shift, group;
} norm_bufs;

static lt_norm_args norm_args(const norm_case *c, const norm_bufs *b, lt_side side, lt_buf out)
{
    lt_norm_args a = {.rows = c->rows, .cols = c->cols, .kind = c->kind, .eps = 1e-6f};
    a.out = lt_mat_at(out, side, c->cols + c->gap);
    a.x = lt_mat_at(b->x, side, c->cols + c->gap);
    if (c->affine) {
        a.weight = lt_at(b->weight, side);
        a.bias = lt_at(b->bias, side);
    }
    if (c->modulated) {
        a.scale = lt_at(b->scale, side);
        a.shift = lt_at(b->shift, side);
        a.mod_ld = c->cols + 2;
    }
    if (c->groups) a.row_group = lt_at(b->group, side);
    return a;
}

static void norm_check(lt_check *t, const norm_case *c)
{
    static const char *const kinds[] = {"layer", "rms"};
    const char *extra = c->groups ? "_groups" : c->modulated ? "_mod" : c->affine ? "_affine" : "";
    if (!lt_check_begin(t, "norm_%s_%s%s_%s_%" PRId64 "x%" PRId64, kinds[c->kind],
                        lt_dtype_name(c->out), extra, lt_fill_name(c->fill), c->rows, c->cols))
        return;
    enum { GROUPS = 3 };
    const int64_t n = c->rows * (c->cols + c->gap), mod = GROUPS * (c->cols + 2);
    int32_t group[64];
    for (int i = 0; i < 64; i++)
        group[i] = (int32_t)lt_check_between(t, 0, GROUPS - 1);
    const norm_bufs b = {.x = lt_check_data(t, LT_F32, n, c->fill),
                         .weight = lt_check_rand(t, LT_F32, c->cols),
                         .bias = lt_check_rand(t, LT_F32, c->cols),
                         .scale = lt_check_rand(t, LT_F32, mod),
                         .shift = lt_check_rand(t, LT_F32, mod),
                         .group = lt_check_raw(t, group, sizeof group[0], 64)};
    const lt_buf want = lt_check_out(t, c->out, n), got = lt_check_out(t, c->out, n);
    const lt_norm_args h = norm_args(c, &b, LT_HOST, want), d = norm_args(c, &b, LT_DEV, got);
    LT_CHECK_REF(t, lti_norm_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_norm(t->dev, &d));
    lt_check_close(t, "out", got, want, tolerance(c->out, 1e-6));
    LT_CHECK_THREADS(t, got, lt_norm(t->dev, &d));
    lt_norm_args few = h;
    few.rows = lti_min64(c->rows, 256);
    LT_BENCH(t, lt_norm(t->dev, &d), lti_norm_ref(t->dev, &few),
             .bytes = (double)(c->rows * c->cols) * (4.0 + (double)lt_dtype_size(c->out)),
             .ref_scale = (double)c->rows / (double)few.rows);
}

void lt_check_norm(lt_check *t)
{
    static const int64_t cols[] = {1, 3, 7, 8, 9, 15, 16, 17, 63, 127, 128, 129, 1536, 5120};
    for (size_t i = 0; i < LT_COUNT(cols); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            for (int j = 0; j < 4; j++) {
                norm_case c = {.rows = 33, .cols = cols[i], .gap = 5, .fill = (lt_fill)fill};
                c.kind = j & 1 ? LT_NORM_RMS : LT_NORM_LAYER;
                c.out = TYPES[j / 2];
                c.affine = j == 1;
                c.modulated = j == 2 || j == 3;
                c.groups = j == 3;
                norm_check(t, &c);
            }
    norm_check(
        t, &(norm_case){.rows = LARGE_ROWS, .cols = LARGE_COLS, .gap = LARGE_GAP, .out = LT_F32});
    if (!t->bench) return;
    static const norm_case real[] = {
        {.rows = 32760, .cols = 1536, .out = LT_BF16, .modulated = true},
        {.rows = 32760, .cols = 1536, .out = LT_BF16, .affine = true},
        {.rows = 8190, .cols = 5120, .out = LT_BF16, .modulated = true},
        {.rows = 8190, .cols = 5120, .out = LT_F32, .kind = LT_NORM_RMS},
        {.rows = 1560, .cols = 1536, .out = LT_BF16, .modulated = true},
    };
    for (size_t i = 0; i < LT_COUNT(real); i++)
        norm_check(t, &real[i]);
}

/* ---- qknorm ---- */

typedef struct qk_case {
    int64_t rows, gap;
    int heads, dim;
    int32_t pairs[3]; /* all zero: no rotation */
    lt_dtype in, out;
    lt_fill fill;
    bool norm, weight;
} qk_case;

typedef struct qk_bufs {
    lt_buf weight, table[3], pos;
} qk_bufs;

enum { POSITIONS = 13 };

static bool qk_rotates(const qk_case *c)
{
    return c->pairs[0] + c->pairs[1] + c->pairs[2] > 0;
}

static lt_qknorm_args qk_args(const qk_case *c, const qk_bufs *b, lt_side side, lt_buf out,
                              lt_buf x, lt_rope *rope)
{
    const int64_t ld = c->heads * c->dim + c->gap;
    lt_qknorm_args a = {
        .out = lt_mat_at(out, side, ld), .x = lt_mat_at(x, side, ld), .rows = c->rows};
    a.heads = c->heads;
    a.head_dim = c->dim;
    a.eps = c->norm ? 1e-6f : -1;
    if (c->weight) a.weight = lt_at(b->weight, side);
    if (!qk_rotates(c)) return a;
    *rope = (lt_rope){.pos = lt_at(b->pos, side)};
    for (int i = 0; i < 3; i++) {
        rope->table[i] = lt_at(b->table[i], side);
        rope->pairs[i] = c->pairs[i];
    }
    a.rope = rope;
    return a;
}

static qk_bufs qk_make(lt_check *t, const qk_case *c)
{
    qk_bufs b = {.weight = lt_check_rand(t, LT_F32, (int64_t)c->heads * c->dim)};
    b.pos = lt_check_raw(t, NULL, sizeof(int32_t), 3 * c->rows);
    for (int64_t i = 0; i < 3 * c->rows; i++)
        ((int32_t *)b.pos.host)[i] = (int32_t)lt_check_between(t, 0, POSITIONS - 1);
    lt_check_upload(t, b.pos);
    for (int axis = 0; axis < 3; axis++) {
        const int32_t pairs = c->pairs[axis];
        b.table[axis] = lt_check_rand(t, LT_F32, (int64_t)POSITIONS * pairs * 2);
        float *p = b.table[axis].host;
        for (int pos = 0; pos < POSITIONS; pos++)
            for (int j = 0; j < pairs; j++) {
                const double angle = pos * pow(10000, -(double)j / pairs);
                p[(pos * pairs + j) * 2] = (float)cos(angle);
                p[(pos * pairs + j) * 2 + 1] = (float)sin(angle);
            }
        lt_check_upload(t, b.table[axis]);
    }
    return b;
}

static void qk_check(lt_check *t, const qk_case *c)
{
    const int64_t n = c->rows * (c->heads * c->dim + c->gap);
    if (!lt_check_begin(t, "qknorm_%s_%s_%s%s%s_%" PRId64 "x%dx%d", lt_dtype_name(c->in),
                        lt_dtype_name(c->out), lt_fill_name(c->fill), c->norm ? "" : "_nonorm",
                        qk_rotates(c) ? "_rope" : "", c->rows, c->heads, c->dim))
        return;
    const qk_bufs b = qk_make(t, c);
    const lt_buf x = lt_check_data(t, c->in, n, c->fill), want = lt_check_out(t, c->out, n);
    const lt_buf got = lt_check_out(t, c->out, n), place = lt_check_clone(t, x);
    lt_rope rh, rd, ri;
    const lt_qknorm_args h = qk_args(c, &b, LT_HOST, want, x, &rh),
                         d = qk_args(c, &b, LT_DEV, got, x, &rd);
    const lt_qknorm_args in_place = qk_args(c, &b, LT_DEV, place, place, &ri);
    LT_CHECK_REF(t, lti_qknorm_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_qknorm(t->dev, &d));
    /* a turn adds two products: the error is that of the larger one. Only in f32 is that less than the rounding */
    const double scale = c->norm                    ? 1
                         : c->fill == LT_FILL_SPIKE ? 1e4
                         : c->fill == LT_FILL_HUGE  ? 1e15
                                                    : 1;
    const double spike =
        c->fill == LT_FILL_SPIKE && c->norm ? sqrt((double)(c->heads * c->dim)) : 1;
    lt_check_close(t, "out", got, want, tolerance(c->out, 1e-6 * scale * spike));
    LT_CHECK_THREADS(t, got, lt_qknorm(t->dev, &d));
    if (c->in == c->out && c->gap == 0) {
        LT_CHECK_OK(t, lt_qknorm(t->dev, &in_place));
        lt_check_close(t, "in place", place, want, tolerance(c->out, 1e-6 * scale * spike));
    }
    lt_qknorm_args few = h;
    few.rows = lti_min64(c->rows, 256);
    LT_BENCH(t, lt_qknorm(t->dev, &d), lti_qknorm_ref(t->dev, &few),
             .bytes = (double)n * (double)(lt_dtype_size(c->in) + lt_dtype_size(c->out)),
             .ref_scale = (double)c->rows / (double)few.rows);
}

void lt_check_qknorm(lt_check *t)
{
    static const struct {
        int dim;
        int32_t pairs[3];
    } heads[] = {{1, {0}},         {2, {1, 0, 0}},     {6, {1, 1, 1}},
                 {12, {2, 2, 2}},  {24, {4, 4, 4}},    {40, {8, 6, 6}},
                 {64, {0}},        {64, {12, 10, 10}}, {128, {22, 21, 21}},
                 {128, {64, 0, 0}}};
    for (size_t i = 0; i < LT_COUNT(heads); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            for (int j = 0; j < 6; j++) {
                qk_case c = {.rows = 17, .gap = j == 0 ? 6 : 0, .heads = 3, .fill = (lt_fill)fill};
                c.dim = heads[i].dim;
                memcpy(c.pairs, heads[i].pairs, sizeof c.pairs);
                c.in = TYPES[j & 1];
                c.out = TYPES[(j >> 1) & 1];
                c.norm = j != 4;
                c.weight = j != 5;
                qk_check(t, &c);
            }
    qk_check(
        t, &(qk_case){
               LARGE_ROWS, 0, 32, 128, {22, 21, 21}, LT_BF16, LT_F32, LT_FILL_UNIFORM, true, true});
    if (!t->bench) return;
    static const qk_case real[] = {
        {32760, 0, 12, 128, {22, 21, 21}, LT_BF16, LT_BF16, LT_FILL_UNIFORM, true, true},
        {32760, 0, 12, 128, {22, 21, 21}, LT_F32, LT_BF16, LT_FILL_UNIFORM, true, true},
        {32760, 0, 24, 64, {12, 10, 10}, LT_BF16, LT_BF16, LT_FILL_UNIFORM, true, true},
    };
    for (size_t i = 0; i < LT_COUNT(real); i++)
        qk_check(t, &real[i]);
}

/* ---- convert, map ---- */

static void convert_check(lt_check *t, int64_t rows, int64_t cols, int64_t gap, lt_dtype in,
                          lt_dtype out, lt_fill fill)
{
    if (!lt_check_begin(t, "convert_%s_%s_%s_%" PRId64 "x%" PRId64, lt_dtype_name(in),
                        lt_dtype_name(out), lt_fill_name(fill), rows, cols))
        return;
    const int64_t n = rows * (cols + gap);
    const lt_buf x = lt_check_data(t, in, n, fill), want = lt_check_out(t, out, n),
                 got = lt_check_out(t, out, n);
    if (in == LT_F32 && n >= 8) { /* the numbers that rounding gets wrong first */
        const float odd[8] = {0,     INFINITY,  -INFINITY, 0x1.fffffep127f,
                              -0.0f, 0x1p-149f, 0x1.01p0f, 0x1.03p0f};
        const uint32_t low_nan = 0x7f800001u; /* its upper half alone is infinity */
        memcpy(x.host, odd, sizeof odd);
        memcpy(x.host, &low_nan, sizeof low_nan);
        lt_check_upload(t, x);
    }
    lt_convert_args h = {lt_mat_at(want, LT_HOST, cols + gap), lt_mat_at(x, LT_HOST, cols + gap),
                         rows, cols};
    lt_convert_args d = {lt_mat_at(got, LT_DEV, cols + gap), lt_mat_at(x, LT_DEV, cols + gap), rows,
                         cols};
    LT_CHECK_REF(t, lti_convert_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_convert(t->dev, &d));
    lt_check_same(t, "out", got, want);
    LT_CHECK_THREADS(t, got, lt_convert(t->dev, &d));
    LT_BENCH(t, lt_convert(t->dev, &d), lti_convert_ref(t->dev, &h),
             .bytes = (double)n * (double)(lt_dtype_size(in) + lt_dtype_size(out)));
}

void lt_check_convert(lt_check *t)
{
    static const int64_t cols[] = {1, 3, 7, 8, 9, 15, 16, 17, 128, 5120};
    for (size_t i = 0; i < LT_COUNT(cols); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            for (int j = 0; j < 4; j++)
                convert_check(t, 9, cols[i], 3, TYPES[j & 1], TYPES[j / 2], (lt_fill)fill);
    convert_check(t, LARGE_ROWS, LARGE_COLS, LARGE_GAP, LT_BF16, LT_F32, LT_FILL_UNIFORM);
    convert_check(t, 2 * LARGE_ROWS, LARGE_COLS, LARGE_GAP, LT_F32, LT_BF16, LT_FILL_UNIFORM);
    if (!t->bench) return;
    convert_check(t, 32760, 1536, 0, LT_F32, LT_BF16, LT_FILL_UNIFORM);
    convert_check(t, 32760, 1536, 0, LT_BF16, LT_F32, LT_FILL_UNIFORM);
}

typedef struct map_case {
    int64_t rows, cols, gap, y_rows;
    lt_act act;
    lt_dtype type;
    lt_fill fill;
    bool y, add;
} map_case;

static void map_check(lt_check *t, const map_case *c)
{
    static const char *const acts[] = {"none", "silu", "gelu_tanh", "gelu_erf"};
    if (!lt_check_begin(t, "map_%s_%s%s%s_%s_%" PRId64 "x%" PRId64, acts[c->act],
                        lt_dtype_name(c->type),
                        !c->y    ? ""
                        : c->add ? "_add"
                                 : "_mul",
                        c->y_rows ? "_row" : "", lt_fill_name(c->fill), c->rows, c->cols))
        return;
    const int64_t ld = c->cols + c->gap, n = c->rows * ld;
    const lt_buf x = lt_check_data(t, c->type, n, c->fill), y = lt_check_rand(t, LT_F32, n);
    for (int64_t i = 0; i < n && c->fill == LT_FILL_UNIFORM; i++) /* where activations bend */
        lti_put(x.host, c->type, i, 12 * lti_get(x.host, c->type, i));
    lt_check_upload(t, x);
    const lt_buf want = lt_check_out(t, c->type, n), got = lt_check_out(t, c->type, n);
    lt_map_args h = {lt_mat_at(want, LT_HOST, ld),
                     lt_mat_at(x, LT_HOST, ld),
                     {0},
                     c->rows,
                     c->cols,
                     c->y_rows,
                     c->act,
                     c->add};
    lt_map_args d = {lt_mat_at(got, LT_DEV, ld),
                     lt_mat_at(x, LT_DEV, ld),
                     {0},
                     c->rows,
                     c->cols,
                     c->y_rows,
                     c->act,
                     c->add};
    if (c->y) {
        h.y = lt_mat_at(y, LT_HOST, ld);
        d.y = lt_mat_at(y, LT_DEV, ld);
    }
    LT_CHECK_REF(t, lti_map_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_map(t->dev, &d));
    lt_check_close(t, "out", got, want, tolerance(c->type, 1e-6));
    LT_CHECK_THREADS(t, got, lt_map(t->dev, &d));
    LT_BENCH(t, lt_map(t->dev, &d), lti_map_ref(t->dev, &h),
             .bytes = (double)n * (2.0 * (double)lt_dtype_size(c->type) + (c->y ? 4 : 0)));
}

void lt_check_map(lt_check *t)
{
    static const int64_t cols[] = {1, 7, 8, 15, 16, 17, 128, 5120};
    for (size_t i = 0; i < LT_COUNT(cols); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            for (int act = LT_ACT_NONE; act <= LT_ACT_GELU_ERF; act++)
                for (int j = 0; j < 8; j++)
                    map_check(t, &(map_case){.rows = 5,
                                             .cols = cols[i],
                                             .gap = 2,
                                             .y_rows = j == 7,
                                             .act = (lt_act)act,
                                             .type = TYPES[j & 1],
                                             .fill = (lt_fill)fill,
                                             .y = j > 1,
                                             .add = (j & 6) == 4});
    map_check(t, &(map_case){.rows = LARGE_ROWS,
                             .cols = LARGE_COLS,
                             .gap = LARGE_GAP,
                             .act = LT_ACT_SILU,
                             .type = LT_F32});
    if (!t->bench) return;
    map_check(t, &(map_case){.rows = 4096, .cols = 8960, .act = LT_ACT_SILU, .type = LT_BF16});
    map_check(t,
              &(map_case){
                  .rows = 4096, .cols = 8960, .act = LT_ACT_GELU_TANH, .type = LT_F32, .y = true});
}

/* ---- lincomb, noise, stats ---- */

static void lincomb_check(lt_check *t, int terms, int64_t n)
{
    if (!lt_check_begin(t, "lincomb_%d_%" PRId64, terms, n)) return;
    const lt_buf want = lt_check_out(t, LT_F32, n), got = lt_check_out(t, LT_F32, n);
    lt_lincomb_args h = {.out = want.host, .terms = terms, .n = n}, d = h;
    d.out = got.dev;
    lt_buf place = want;
    for (int j = 0; j < terms; j++) {
        const lt_buf x = lt_check_rand(t, LT_F32, n);
        if (j == terms - 1) place = lt_check_clone(t, x);
        h.x[j] = x.host;
        d.x[j] = x.dev;
        h.coef[j] = d.coef[j] = 0.3f * (float)(j + 1);
    }
    LT_CHECK_REF(t, lti_lincomb_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_lincomb(t->dev, &d));
    lt_check_close(t, "out", got, want, (lt_tol){.abs = 1e-6, .rel = 1e-6});
    LT_CHECK_THREADS(t, got, lt_lincomb(t->dev, &d));
    LT_BENCH(t, lt_lincomb(t->dev, &d), lti_lincomb_ref(t->dev, &h),
             .bytes = 4.0 * (double)(n * (terms + 1)));
    d.x[terms - 1] = d.out = place.dev;
    LT_CHECK_OK(t, lt_lincomb(t->dev, &d));
    lt_check_close(t, "in place", place, want, (lt_tol){.abs = 1e-6, .rel = 1e-6});
}

void lt_check_lincomb(lt_check *t)
{
    static const int64_t sizes[] = {1, 3, 7, 8, 15, 16, 17, 127, 128, 129, 5120, 65537};
    for (size_t i = 0; i < LT_COUNT(sizes); i++)
        for (int terms = 1; terms <= 6; terms++)
            lincomb_check(t, terms, sizes[i]);
    lincomb_check(t, 2, LARGE_ROWS * (LARGE_COLS + LARGE_GAP) + 3);
    if (t->bench) lincomb_check(t, 3, 1 << 24);
}

static void noise_check(lt_check *t, int64_t n, uint64_t first, uint64_t stream)
{
    if (!lt_check_begin(t, "noise_%" PRId64 "_from_%" PRIu64, n, first)) return;
    const lt_buf want = lt_check_out(t, LT_F32, n), got = lt_check_out(t, LT_F32, n);
    const lt_noise_args h = {want.host, n, lt_check_random(t), stream, first},
                        d = {got.dev, n, h.seed, stream, first};
    LT_CHECK_REF(t, lti_noise_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_noise(t->dev, &d));
    lt_check_close(t, "out", got, want, (lt_tol){.abs = 5e-7, .rel = 5e-7});
    LT_CHECK_THREADS(t, got, lt_noise(t->dev, &d));
    LT_BENCH(t, lt_noise(t->dev, &d), lti_noise_ref(t->dev, &h), .bytes = 4.0 * (double)n);
}

void lt_check_noise(lt_check *t)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 63, 64, 65, 1000, 100003};
    static const uint64_t firsts[] = {0, 1, 2, 3, 4, 0x3fffffffeu, 0xfffffffffffffff1u};
    for (size_t i = 0; i < LT_COUNT(sizes); i++)
        for (size_t j = 0; j < LT_COUNT(firsts); j++)
            noise_check(t, sizes[i], firsts[j], 0x100000007u * j);
    if (t->bench) noise_check(t, 1 << 24, 0, 0);
}

static void stats_close(lt_check *t, const char *what, double got, double want, double scale)
{
    if (!(fabs(got - want) <= 1e-11 * scale + 1e-300))
        lt_check_fail(t, "%s is %.17g, not %.17g", what, got, want);
}

static void stats_check(lt_check *t, int64_t n, lt_fill fill, int bad)
{
    if (!lt_check_begin(t, "stats_%s_%d_%" PRId64, lt_fill_name(fill), bad, n)) return;
    const lt_buf x = lt_check_data(t, LT_F32, n, fill);
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < bad && n; i++)
        ((float *)x.host)[bad == n ? i : lt_check_between(t, 0, n - 1)] = odd[i % 3];
    lt_check_upload(t, x);
    lt_stats_result want = {0}, got = {0}, one = {0};
    LT_CHECK_REF(t, lti_stats_ref(t->dev, &(lt_stats_args){x.host, n, &want}));
    LT_CHECK_OK(t, lt_stats(t->dev, &(lt_stats_args){x.dev, n, &got}));
    if (got.nonfinite != want.nonfinite || got.min != want.min || got.max != want.max)
        lt_check_fail(t, "nonfinite %" PRId64 " min %g max %g, not %" PRId64 " %g %g",
                      got.nonfinite, (double)got.min, (double)got.max, want.nonfinite,
                      (double)want.min, (double)want.max);
    stats_close(t, "mean", got.mean, want.mean, want.rms);
    stats_close(t, "rms", got.rms, want.rms, want.rms);
    LT_CHECK_THREADS(t, x, lt_stats(t->dev, &(lt_stats_args){x.dev, n, &one}));
    if (memcmp(&one, &got, sizeof one) != 0) lt_check_fail(t, "one thread gives other sums");
    LT_BENCH(t, lt_stats(t->dev, &(lt_stats_args){x.dev, n, &got}),
             lti_stats_ref(t->dev, &(lt_stats_args){x.host, n, &want}), .bytes = 4.0 * (double)n);
}

void lt_check_stats(lt_check *t)
{
    static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 100, 32767, 32768, 32769, 200000};
    for (size_t i = 0; i < LT_COUNT(sizes); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            for (int bad = 0; bad < 5; bad += 2)
                stats_check(t, sizes[i], (lt_fill)fill, bad);
    stats_check(t, 3, LT_FILL_UNIFORM, 3);
    if (t->bench) stats_check(t, 1 << 25, LT_FILL_UNIFORM, 0);
}
