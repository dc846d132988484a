/* unit_attention_tiling.c: tilings of random grids, and how methods write lists: counts that are known, and every pair of small grids. */
#include "attention/sparse_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 1;
static int32_t draw(int32_t low, int32_t high)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return low + (int32_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

/* ---- tilings ---- */

static void check_tiling(const lt_tiling *t)
{
    const int64_t n = lt_grid_tokens(t->grid);
    int32_t tiles = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(t->order[i], 0, n - 1);
        assert_int_equal(t->token[t->order[i]], i);
    }
    for (int32_t b = 0; b < t->tiles; b++) {
        int32_t low[3] = {1 << 20, 1 << 20, 1 << 20}, high[3] = {-1, -1, -1};
        for (int32_t r = t->off[b]; r < t->off[b + 1]; r++) {
            const int32_t token = t->token[r],
                          place[3] = {token / t->grid.cols / t->grid.rows,
                                      token / t->grid.cols % t->grid.rows, token % t->grid.cols};
            for (int a = 0; a < 3; a++) {
                low[a] = place[a] < low[a] ? place[a] : low[a];
                high[a] = place[a] > high[a] ? place[a] : high[a];
            }
        }
        int32_t volume = 1;
        for (int a = 0; a < 3; a++) {
            assert_int_equal(low[a] % t->tile[a], 0);
            assert_true(high[a] < low[a] + t->tile[a]);
            volume *= high[a] - low[a] + 1;
        }
        assert_int_equal(volume, t->off[b + 1] - t->off[b]);
        tiles += volume;
    }
    assert_int_equal(tiles, n);
}

static void tiles_random_grids(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        const lt_grid g = {draw(1, 9), draw(1, 9), draw(1, 9)};
        const int32_t tile[3] = {draw(1, 10), draw(1, 10), draw(1, 10)};
        lt_tiling t;
        assert_int_equal(lt_tiling_create(&t, NULL, g, tile), LT_OK);
        check_tiling(&t);
        lt_tiling_destroy(&t);
    }
}

static void chooses_divisors_first(void **state)
{
    static const struct {
        lt_grid g;
        int32_t tokens, deep, tile[3];
        bool exact;
    } cases[] = {
        {{21, 30, 52}, 120, 4, {3, 10, 4}, true}, {{21, 45, 80}, 120, 4, {3, 5, 8}, true},
        {{21, 8, 8}, 16, 4, {3, 2, 2}, true},     {{23, 31, 53}, 120, 4, {0, 0, 0}, false},
        {{1, 1, 7}, 120, 4, {1, 1, 7}, true},     {{3, 30, 52}, 120, 1, {1, 10, 13}, true},
    };
    (void)state;
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        int32_t t[3];
        const lt_grid g = cases[i].g;
        lt_tiling_choose(t, g, cases[i].tokens, cases[i].deep);
        const bool exact = g.frames % t[0] == 0 && g.rows % t[1] == 0 && g.cols % t[2] == 0;
        assert_int_equal(exact, cases[i].exact);
        if (cases[i].exact) assert_memory_equal(t, cases[i].tile, sizeof t);
        if (!exact) assert_in_range(t[0] * t[1] * t[2], 60, 240);
    }
}

static void refuses_empty_boxes(void **state)
{
    lt_tiling t;
    (void)state;
    assert_int_equal(lt_tiling_create(&t, NULL, (lt_grid){3, 0, 2}, (int32_t[]){1, 1, 1}),
                     LT_ERR_ARG);
    assert_int_equal(lt_tiling_create(&t, NULL, (lt_grid){3, 1, 2}, (int32_t[]){1, 0, 1}),
                     LT_ERR_ARG);
}

/* ---- lists ---- */

typedef struct scene {
    lti_scene s;
    lt_sparse_spec spec;
    lt_tiling tiling;
    lti_list list;
} scene;

/* Keys are the queries' own tokens. rows: of a query tile, 0 = a tiling by spec.tile. */
static scene *make_scene(lt_grid g, lt_sparse_spec spec, int32_t rows)
{
    scene *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->spec = spec;
    const int32_t frame = g.rows * g.cols;
    x->s = (lti_scene){
        .o = &x->spec, .q = g, .frame = frame, .heads = 1, .nkeys = g.frames, .keep = spec.keep};
    lti_key_frame *key = calloc((size_t)g.frames, sizeof *key);
    for (int32_t f = 0; f < g.frames; f++)
        key[f].slot = f;
    x->s.key = key;
    if (rows) {
        x->s.per_frame = (frame + rows - 1) / rows;
        x->s.nq = x->s.per_frame * g.frames;
        int32_t *off = malloc(((size_t)x->s.nq + 1) * sizeof *off);
        for (int32_t t = 0; t <= x->s.nq; t++)
            off[t] = t / x->s.per_frame * frame + t % x->s.per_frame * rows;
        x->s.q_off = off;
    } else {
        assert_int_equal(lt_tiling_create(&x->tiling, NULL, g, spec.tile), LT_OK);
        x->s.tiling = &x->tiling;
        x->s.nq = x->s.nk = x->tiling.tiles;
        x->s.q_off = x->tiling.off;
    }
    x->list.max = 4 * g.frames + x->s.nk + 8;
    x->list.run = malloc((size_t)x->list.max * sizeof *x->list.run);
    return x;
}

static void free_scene(scene *x)
{
    union {
        const void *in;
        void *out;
    } key = {x->s.key}, off = {x->s.q_off};
    free(key.out);
    if (!x->s.tiling) free(off.out);
    lt_tiling_destroy(&x->tiling);
    free(x->list.run);
    free(x);
}

static int by_begin(const void *a, const void *b)
{
    const lt_run *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int64_t keys_of(scene *x, lti_list_fn *fn, int32_t group, int32_t tile)
{
    int64_t n = 0, end = 0;
    x->list.n = 0;
    fn(&x->list, &x->s, group, tile);
    assert_true(x->list.n <= x->list.max);
    qsort(x->list.run, (size_t)x->list.n, sizeof *x->list.run, by_begin);
    for (int32_t i = 0; i < x->list.n; i++) {
        const int64_t begin = x->list.run[i].begin > end ? x->list.run[i].begin : end;
        if (x->list.run[i].end > begin) n += x->list.run[i].end - begin;
        if (x->list.run[i].end > end) end = x->list.run[i].end;
    }
    return n;
}

static int64_t pairs(lt_grid g, lt_sparse_spec spec, int32_t rows, lti_list_fn *fn, int32_t group)
{
    scene *x = make_scene(g, spec, rows);
    int64_t n = 0;
    for (int32_t t = 0; t < x->s.nq; t++)
        n += keys_of(x, fn, group, t) * (x->s.q_off[t + 1] - x->s.q_off[t]);
    free_scene(x);
    return n;
}

/* Pairs of frames of which anything is read, of a query's middle token. */
static int64_t frame_pairs(lt_grid g, lt_sparse_spec spec)
{
    scene *x = make_scene(g, spec, 1);
    int64_t n = 0;
    for (int32_t f = 0; f < g.frames; f++) {
        x->list.n = 0;
        lti_list_radial(&x->list, &x->s, 0, f * x->s.per_frame + x->s.per_frame / 2);
        n += x->list.n; /* a frame is one run */
    }
    free_scene(x);
    return n;
}

/* Part of the pairs of tiles of `rows` rows in the order of tokens of which anything is read. */
static double touched(lt_grid g, lt_sparse_spec spec, int32_t rows)
{
    scene *x = make_scene(g, spec, rows);
    int64_t n = 0;
    char *seen = malloc((size_t)x->s.nq);
    for (int32_t t = 0; t < x->s.nq; t++) {
        memset(seen, 0, (size_t)x->s.nq);
        x->list.n = 0;
        lti_list_radial(&x->list, &x->s, 0, t);
        for (int32_t r = 0; r < x->list.n; r++)
            for (int32_t k = x->list.run[r].begin / rows; k * rows < x->list.run[r].end; k++)
                n += !seen[k], seen[k] = 1;
    }
    const double part = (double)n / x->s.nq / x->s.nq;
    free(seen);
    free_scene(x);
    return part;
}

/* Every number as in the published code, counted there over all pairs of tokens. */
static void bands_have_the_known_counts(void **state)
{
    const lt_grid wan = {21, 30, 52}, hd = {21, 45, 80}, s9 = {9, 8, 8}, s21 = {21, 4, 6};
    const struct {
        lt_grid g;
        double decay;
        int32_t base;
        bool sink;
        int64_t pairs;
    } radial[] = {{wan, 0.2, 128, true, 329615208},  {wan, 0.5, 128, true, 354820968},
                  {wan, 0.95, 128, true, 432106488}, {wan, 1, 128, true, 440164200},
                  {hd, 0.2, 128, true, 1402412592},  {hd, 0.95, 128, true, 2131423680},
                  {s9, 1, 8, true, 250744},          {s9, 0.25, 8, true, 180856},
                  {s9, 0.25, 8, false, 159296},      {s21, 0.25, 8, true, 108240}};
    const struct {
        lt_grid g;
        double density;
        int32_t base, width;
        int64_t pairs;
    } svg[] = {{wan, 0.25, 128, 4480, 316386700},
               {wan, 0.3, 128, 5376, 364862988},
               {wan, 0.5, 128, 9600, 571767180},
               {s9, 0.3, 8, 96, 130496}};
    (void)state;
    for (size_t i = 0; i < LT_COUNT(radial); i++)
        assert_int_equal(pairs(radial[i].g,
                               (lt_sparse_spec){.decay = radial[i].decay,
                                                .base = radial[i].base,
                                                .sink = radial[i].sink},
                               1, lti_list_radial, 0),
                         radial[i].pairs);
    static const struct {
        lt_grid g;
        int32_t base;
        int64_t pairs;
    } frames[] = {{{21, 30, 52}, 128, 431},
                  {{21, 45, 80}, 128, 441},
                  {{9, 8, 8}, 8, 81},
                  {{21, 4, 6}, 8, 265}};
    for (size_t i = 0; i < LT_COUNT(frames); i++)
        assert_int_equal(
            frame_pairs(frames[i].g,
                        (lt_sparse_spec){.decay = 0.25, .base = frames[i].base, .sink = true}),
            frames[i].pairs);
    const lt_sparse_spec released = {.decay = 0.2, .base = 128, .sink = true};
    assert_true(fabs(touched(wan, released, 120) - 0.459) < 0.0005);
    for (size_t i = 0; i < LT_COUNT(svg); i++) {
        const lt_grid g = svg[i].g;
        const lt_sparse_spec spec = {.density = svg[i].density, .base = svg[i].base, .sink = true};
        assert_int_equal(lti_svg_width(g.frames, g.rows * g.cols, spec.density, spec.base),
                         svg[i].width);
        assert_int_equal(pairs(g, spec, 1, lti_list_svg, 0), svg[i].pairs);
        assert_int_equal(pairs(g, spec, 1, lti_list_svg, 1), svg[i].pairs);
    }
}

static void windows_have_the_known_counts(void **state)
{
    static const struct {
        int32_t tile[3], window[3];
        int64_t boxes;
    } cases[] = {{{3, 10, 4}, {3, 3, 3}, 7371},
                 {{3, 10, 4}, {5, 3, 5}, 20475},
                 {{3, 10, 4}, {3, 3, 13}, 31941},
                 {{3, 5, 4}, {3, 3, 3}, 14742},
                 {{3, 5, 4}, {5, 3, 5}, 40950}};
    (void)state;
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        lt_sparse_spec spec = {0};
        memcpy(spec.tile, cases[i].tile, sizeof spec.tile);
        memcpy(spec.window, cases[i].window, sizeof spec.window);
        const int64_t size = (int64_t)spec.tile[0] * spec.tile[1] * spec.tile[2];
        assert_int_equal(pairs((lt_grid){21, 30, 52}, spec, 0, lti_list_sta, 0),
                         cases[i].boxes * size * size);
    }
}

/* Whether token k is seen from token q, by the definition. */
static bool sees(const lt_sparse_spec *o, lt_grid g, lti_list_fn *fn, int32_t group, int64_t q,
                 int64_t k)
{
    const int64_t s = (int64_t)g.rows * g.cols, F = g.frames;
    const int64_t i = q / s, j = k / s, a = q % s, b = k % s;
    if (fn == lti_list_radial) {
        const int64_t w = lti_radial_width(s, llabs(i - j), o->decay, o->base);
        return (o->sink && j == 0) || (w >= 0 && llabs(a - b) <= w);
    }
    const int64_t w = lti_svg_width(F, s, o->density, o->base);
    const int64_t x = group ? a * F + i : q, y = group ? b * F + j : k;
    return llabs(x - y) <= w || (o->sink && y < s);
}

/* A tile's list is the union of its rows', filled up inside a frame. */
static void lists_are_unions_of_rows(void **state)
{
    static lti_list_fn *const fns[] = {lti_list_radial, lti_list_svg, lti_list_svg};
    (void)state;
    for (int i = 0; i < 60; i++) {
        const lt_grid g = {draw(1, 9), draw(1, 6), draw(1, 6)};
        const int which = draw(0, 2);
        const lt_sparse_spec spec = {.density = draw(1, 20) / 20.0,
                                     .decay = draw(0, 20) / 20.0,
                                     .base = draw(1, 8),
                                     .sink = draw(0, 1)};
        const int64_t n = lt_grid_tokens(g), s = (int64_t)g.rows * g.cols;
        scene *x = make_scene(g, spec, draw(1, (int32_t)s));
        char *seen = malloc((size_t)n);
        for (int32_t t = 0; t < x->s.nq; t++) {
            memset(seen, 0, (size_t)n);
            x->list.n = 0;
            fns[which](&x->list, &x->s, which == 2, t);
            for (int32_t r = 0; r < x->list.n; r++)
                memset(seen + x->list.run[r].begin, 1,
                       (size_t)(x->list.run[r].end - x->list.run[r].begin));
            for (int64_t q = x->s.q_off[t]; q < x->s.q_off[t + 1]; q++)
                for (int64_t k = 0; k < n; k++) {
                    const bool wanted = sees(&spec, g, fns[which], which == 2, q, k);
                    if (wanted) assert_true(seen[k]);
                    if (x->s.q_off[t + 1] - x->s.q_off[t] == 1) assert_int_equal(seen[k], wanted);
                }
        }
        free(seen);
        free_scene(x);
    }
}

static void mark(scene *x, int32_t tile, char *read)
{
    x->list.n = 0;
    lti_list_sta(&x->list, &x->s, 0, tile);
    for (int32_t r = 0; r < x->list.n; r++)
        memset(read + x->list.run[r].begin, 1, (size_t)(x->list.run[r].end - x->list.run[r].begin));
}

/* A larger window reads what a smaller one reads. */
static void reads_all_of(lt_grid g, const lt_sparse_spec *larger, const lt_sparse_spec *smaller)
{
    scene *x = make_scene(g, *larger, 0), *y = make_scene(g, *smaller, 0);
    char *more = calloc((size_t)x->s.nk, 1), *less = calloc((size_t)x->s.nk, 1);
    for (int32_t t = 0; t < x->s.nq; t++) {
        memset(more, 0, (size_t)x->s.nk);
        memset(less, 0, (size_t)x->s.nk);
        mark(x, t, more);
        mark(y, t, less);
        for (int32_t k = 0; k < x->s.nk; k++)
            assert_true(more[k] >= less[k]);
    }
    free(more);
    free(less);
    free_scene(x);
    free_scene(y);
}

static void windows_hold_their_product(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        const lt_grid g = {draw(1, 9), draw(1, 9), draw(1, 9)};
        lt_sparse_spec spec = {0}, larger;
        int64_t boxes = 1;
        for (int a = 0; a < 3; a++) {
            spec.tile[a] = 1;
            spec.window[a] = 2 * draw(0, 4) + 1;
            const int32_t side = a == 0 ? g.frames : a == 1 ? g.rows : g.cols;
            boxes *= spec.window[a] < side ? spec.window[a] : side;
        }
        scene *x = make_scene(g, spec, 0);
        char *here = calloc((size_t)x->s.nk, 1), *there = calloc((size_t)x->s.nk, 1);
        for (int32_t t = 0; t < x->s.nq; t++) {
            /* the last tile's list is the first one's seen from the other end, and so on */
            memset(here, 0, (size_t)x->s.nk);
            memset(there, 0, (size_t)x->s.nk);
            mark(x, t, here);
            mark(x, x->s.nq - 1 - t, there);
            for (int32_t k = 0; k < x->s.nk; k++)
                assert_int_equal(here[k], there[x->s.nk - 1 - k]);
            assert_int_equal(keys_of(x, lti_list_sta, 0, t), boxes);
        }
        free(here);
        free(there);
        free_scene(x);
        larger = spec;
        larger.window[draw(0, 2)] += 2;
        reads_all_of(g, &larger, &spec);
    }
}

/* The best boxes by sorting; ties go to the first. */
static void takes_the_best_boxes(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        const lt_grid g = {draw(1, 6), draw(1, 6), draw(1, 6)};
        lt_sparse_spec spec = {.tile = {draw(1, 3), draw(1, 3), draw(1, 3)},
                               .keep = draw(1, 20) / 20.0};
        scene *x = make_scene(g, spec, 0);
        const int32_t n = x->s.nk, words = (n + 63) / 64;
        x->s.words = words;
        uint64_t *chosen = calloc((size_t)n * (size_t)words, sizeof *chosen);
        float *score = malloc((size_t)n * (size_t)n * sizeof *score), scratch[216];
        for (int32_t k = 0; k < n * n; k++)
            score[k] = (float)draw(0, 6);
        lti_topk_choose(chosen, &x->s, score, scratch);
        x->s.chosen = chosen;
        const int32_t most = (int32_t)ceil(spec.keep * n - 1e-9);
        for (int32_t t = 0; t < n; t++) {
            int32_t count = 0;
            float worst_in = INFINITY, best_out = -INFINITY;
            for (int32_t k = 0; k < n; k++) {
                const bool in = chosen[t * words + k / 64] >> (k % 64) & 1;
                count += in;
                if (in && k != t) worst_in = fminf(worst_in, score[t * n + k]);
                if (!in) best_out = fmaxf(best_out, score[t * n + k]);
            }
            assert_int_equal(count, most < 1 ? 1 : most);
            assert_true(chosen[t * words + t / 64] >> (t % 64) & 1);
            if (worst_in < best_out)
                fail_msg("read %g, left %g", (double)worst_in, (double)best_out);
            /* what is read and what stands in for the rest: every box once */
            x->list.n = 0;
            lti_list_topk(&x->list, &x->s, 0, t);
            const int32_t read = x->list.n;
            lti_list_topk_rest(&x->list, &x->s, 0, t);
            assert_int_equal(read, count);
            assert_int_equal(x->list.n, n);
        }
        free(score);
        free(chosen);
        free_scene(x);
    }
}

/* More boxes, more of the weight, a lower bar: what was read before is read still. */
static void more_holds_less(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        const lt_grid g = {draw(1, 6), draw(1, 6), draw(1, 6)};
        const int32_t tile[3] = {draw(1, 3), draw(1, 3), draw(1, 3)};
        const double a = draw(1, 19) / 20.0, b = a + (1 - a) * draw(0, 20) / 20.0;
        lt_sparse_spec spec[2] = {{0}};
        for (int k = 0; k < 2; k++) {
            memcpy(spec[k].tile, tile, sizeof tile);
            if (i % 3 == 0) spec[k].keep = k ? b : a;
            if (i % 3 == 1) spec[k].mass = k ? b : a;
            if (i % 3 == 2) spec[k].tau = k ? a : b;
        }
        scene *x[2] = {make_scene(g, spec[0], 0), make_scene(g, spec[1], 0)};
        const int32_t n = x[0]->s.nk, words = (n + 63) / 64;
        uint64_t *chosen[2];
        float *score = malloc((size_t)n * (size_t)n * sizeof *score), scratch[216];
        for (int32_t k = 0; k < n * n; k++)
            score[k] = (float)draw(0, 6);
        for (int k = 0; k < 2; k++) {
            x[k]->s.words = words;
            chosen[k] = calloc((size_t)n * (size_t)words, sizeof *chosen[k]);
            lti_topk_choose(chosen[k], &x[k]->s, score, scratch);
        }
        for (int32_t k = 0; k < n * words; k++)
            assert_int_equal(chosen[0][k] & ~chosen[1][k], 0);
        for (int k = 0; k < 2; k++) {
            free(chosen[k]);
            free_scene(x[k]);
        }
        free(score);
    }
}

/* Runs cut into pieces that may overlap, in any order, are joined to what they were. */
static void joins_what_was_cut(void **state)
{
    enum { MOST = 16, PIECES = 200 };
    (void)state;
    for (int i = 0; i < 60; i++) {
        int32_t row[2] = {0, 0}, at = 0, n = draw(1, MOST);
        lt_run want[MOST], got[MOST], piece[PIECES];
        lti_list cut = {.run = piece, .max = PIECES};
        lti_lists l = {.row = row, .run = got, .most = MOST};
        for (int32_t r = 0; r < n; r++) {
            want[r] = (lt_run){.begin = at += draw(1, 9), .bias = 0};
            want[r].end = at += draw(1, 30);
            for (int32_t from = want[r].begin; from < at;) {
                const int32_t to = from + draw(1, at - from);
                lt_run p = {.begin = from > want[r].begin ? from - draw(0, 1) : from, .end = to};
                const int32_t other = draw(0, cut.n); /* the one there goes to the end */
                if (other < cut.n) {
                    const lt_run t = piece[other];
                    piece[other] = p;
                    p = t;
                }
                piece[cut.n++] = p;
                from = cut.n < PIECES - MOST ? to : at;
                if (from == at && to < at) piece[cut.n++] = (lt_run){.begin = to, .end = at};
            }
        }
        assert_int_equal(lti_lists_add(&l, NULL, 0, &cut), LT_OK);
        assert_int_equal(row[1], n);
        for (int32_t r = 0; r < n; r++)
            assert_true(got[r].begin == want[r].begin && got[r].end == want[r].end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_random_grids),
        cmocka_unit_test(chooses_divisors_first),
        cmocka_unit_test(refuses_empty_boxes),
        cmocka_unit_test(bands_have_the_known_counts),
        cmocka_unit_test(windows_have_the_known_counts),
        cmocka_unit_test(lists_are_unions_of_rows),
        cmocka_unit_test(windows_hold_their_product),
        cmocka_unit_test(takes_the_best_boxes),
        cmocka_unit_test(more_holds_less),
        cmocka_unit_test(joins_what_was_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
