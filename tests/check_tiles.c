/* check_tiles.c: means of tiles, their scores, and two attentions made one. */
#include "tests/check.h"

#include <math.h>

enum { MAX_TILES = 64 };

typedef struct shape {
    int64_t tiles;
    int heads, dim;
    lt_dtype in, out;
    bool rope;
    int64_t gap;
} shape;

static lt_tilemean_args mean_args(lt_side side, const shape *s, lt_buf out, lt_buf x, lt_buf off,
                                  const lt_rope *rope)
{
    const int64_t cols = (int64_t)s->heads * s->dim;
    return (lt_tilemean_args){.out = lt_mat_at(out, side, cols + s->gap),
                              .x = lt_mat_at(x, side, cols + s->gap),
                              .off = lt_at(off, side),
                              .tiles = s->tiles,
                              .heads = s->heads,
                              .head_dim = s->dim,
                              .rope = rope};
}

static void compare_means(lt_check *t, const shape *s)
{
    int32_t off[MAX_TILES + 1] = {0};
    for (int64_t i = 0; i < s->tiles; i++) /* some tiles are empty */
        off[i + 1] = off[i] + (int32_t)lt_check_between(t, i % 5 == 3 ? 0 : 1, i % 5 == 3 ? 0 : 40);
    const int64_t rows = off[s->tiles], cols = (int64_t)s->heads * s->dim + s->gap;
    const lt_buf x = lt_check_rand(t, s->in, rows * cols),
                 o = lt_check_raw(t, off, 4, s->tiles + 1);
    const lt_buf want = lt_check_out(t, s->out, s->tiles * cols),
                 got = lt_check_out(t, s->out, s->tiles * cols);
    const int32_t space = s->dim / 6, pairs[3] = {s->dim / 2 - 2 * space, space, space};
    lt_rope hr = {.pairs = {pairs[0], pairs[1], pairs[2]}}, dr = hr;
    const lt_buf place = lt_check_raw(t, NULL, 4, rows * 3);
    for (int64_t i = 0; i < rows * 3; i++)
        ((int32_t *)place.host)[i] = (int32_t)lt_check_between(t, 0, 6);
    lt_check_upload(t, place);
    hr.pos = place.host;
    dr.pos = place.dev;
    for (int a = 0; a < 3; a++) {
        const lt_buf table = lt_check_rand(t, LT_F32, (int64_t)7 * pairs[a] * 2);
        hr.table[a] = table.host;
        dr.table[a] = table.dev;
    }
    const lt_tilemean_args h = mean_args(LT_HOST, s, want, x, o, s->rope ? &hr : NULL),
                           d = mean_args(LT_DEV, s, got, x, o, s->rope ? &dr : NULL);
    LT_CHECK_REF(t, lti_tilemean_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_tilemean(t->dev, &d));
    lt_check_close(t, "out", got, want,
                   s->out == LT_F32 ? (lt_tol){.abs = 1e-6, .rel = 2e-6}
                                    : (lt_tol){.abs = 1e-5, .rel = 8e-3});
    LT_CHECK_THREADS(t, got, lt_tilemean(t->dev, &d));
}

void lt_check_tilemean(lt_check *t)
{
    static const shape shapes[] = {
        {1, 1, 6, LT_F32, LT_F32, false, 0},      {64, 3, 24, LT_F32, LT_F32, true, 5},
        {17, 2, 128, LT_BF16, LT_F32, true, 0},   {33, 2, 128, LT_BF16, LT_BF16, false, 64},
        {20, 1, 64, LT_BF16, LT_F32, false, 192}, {9, 4, 40, LT_F32, LT_BF16, true, 0},
    };
    for (size_t i = 0; i < LT_COUNT(shapes); i++)
        if (lt_check_begin(t, "tilemean_%s_%s_%dx%d%s", lt_dtype_name(shapes[i].in),
                           lt_dtype_name(shapes[i].out), shapes[i].heads, shapes[i].dim,
                           shapes[i].rope ? "_rope" : ""))
            compare_means(t, &shapes[i]);
}

void lt_check_tilescore(lt_check *t)
{
    static const struct {
        int64_t lq, lk;
        int heads, dim;
    } shapes[] = {{1, 1, 1, 1}, {5, 7, 3, 12}, {13, 64, 2, 128}, {64, 33, 4, 24}, {3, 0, 1, 8}};
    for (size_t i = 0; i < LT_COUNT(shapes); i++) {
        const int64_t lq = shapes[i].lq, lk = shapes[i].lk;
        const int heads = shapes[i].heads, dim = shapes[i].dim;
        if (!lt_check_begin(t, "tilescore_%" PRId64 "x%" PRId64 "_%dx%d", lq, lk, heads, dim))
            continue;
        const int64_t ld = (int64_t)heads * dim + 3;
        const lt_buf q = lt_check_rand(t, LT_F32, lq * ld),
                     k = lt_check_rand(t, LT_F32, lk ? lk * ld : 1);
        const int64_t n = lk ? lq * lk * heads : 1;
        const lt_buf want = lt_check_out(t, LT_F32, n), got = lt_check_out(t, LT_F32, n);
        lt_tilescore_args h = {.out = want.host,
                               .q = lt_mat_at(q, LT_HOST, ld),
                               .k = lt_mat_at(k, LT_HOST, ld),
                               .lq = lq,
                               .lk = lk,
                               .heads = heads,
                               .head_dim = dim,
                               .scale = 0.3f};
        lt_tilescore_args d = h;
        d.out = got.dev;
        d.q.data = q.dev;
        d.k.data = k.dev;
        LT_CHECK_REF(t, lti_tilescore_ref(t->dev, &h));
        LT_CHECK_OK(t, lt_tilescore(t->dev, &d));
        lt_check_close(t, "out", got, want, (lt_tol){.abs = 2e-5, .rel = 1e-5});
        LT_CHECK_THREADS(t, got, lt_tilescore(t->dev, &d));
    }
}

void lt_check_merge(lt_check *t)
{
    static const struct {
        int64_t rows;
        int heads, dim;
        lt_dtype type;
    } shapes[] = {{1, 1, 1, LT_F32}, {9, 3, 12, LT_F32}, {50, 2, 128, LT_BF16}, {7, 5, 40, LT_F32}};
    for (size_t i = 0; i < LT_COUNT(shapes); i++) {
        const int64_t rows = shapes[i].rows, cols = (int64_t)shapes[i].heads * shapes[i].dim;
        const lt_dtype type = shapes[i].type;
        if (!lt_check_begin(t, "merge_%s_%" PRId64 "_%dx%d", lt_dtype_name(type), rows,
                            shapes[i].heads, shapes[i].dim))
            continue;
        const int64_t n = rows * shapes[i].heads;
        const lt_buf x = lt_check_rand(t, type, rows * cols);
        lt_buf want = lt_check_rand(t, type, rows * cols);
        const lt_buf got = lt_check_clone(t, want), theirs = lt_check_rand(t, LT_F32, n);
        lt_buf lse = lt_check_rand(t, LT_F32, n);
        for (int64_t r = 0; r < n; r++) { /* none, far apart, near */
            float *a = lse.host, *b = theirs.host;
            a[r] = r % 4 == 0 ? -INFINITY : a[r] * (r % 4 == 1 ? 300.0f : 3.0f);
            b[r] = r % 3 == 0 ? -INFINITY : b[r];
        }
        lt_check_upload(t, lse);
        lt_check_upload(t, theirs);
        const lt_buf got_lse = lt_check_clone(t, lse);
        lt_merge_args h = {.out = lt_mat_at(want, LT_HOST, cols),
                           .x = lt_mat_at(x, LT_HOST, cols),
                           .lse = lse.host,
                           .x_lse = theirs.host,
                           .rows = rows,
                           .heads = shapes[i].heads,
                           .head_dim = shapes[i].dim};
        lt_merge_args d = h;
        d.out.data = got.dev;
        d.x.data = x.dev;
        d.lse = got_lse.dev;
        d.x_lse = theirs.dev;
        LT_CHECK_REF(t, lti_merge_ref(t->dev, &h));
        LT_CHECK_OK(t, lt_merge(t->dev, &d));
        lt_check_close(t, "out", got, want,
                       type == LT_F32 ? (lt_tol){.abs = 1e-6, .rel = 1e-5}
                                      : (lt_tol){.abs = 1e-6, .rel = 8e-3});
        lt_check_close(t, "lse", got_lse, lse, (lt_tol){.abs = 2e-6, .rel = 1e-6});
    }
}
