/* search.c: which window of sta suits which head (algorithm 1 of arXiv 2502.04507): while a model runs with dense attention, every
 * call is made again with every window that reads as many boxes as may be read (MOST_WINDOWS of them at most), and the one whose output
 * is nearest to the dense output is remembered for its layer and head. Windows that could be larger on some axis are not tried: they
 * only lose. */
#include "attention/sparse_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WINDOWS = 64 };

struct lt_window_search {
    lt_ctx *ctx;
    int32_t layers, heads, count[3]; /* boxes of the grid */
    int32_t n, window[MOST_WINDOWS][3];
    double *error;  /* [layers][heads][n], sums over calls */
    int64_t *calls; /* [layers] */
    lt_window_choice *best;
};

lt_status lt_window_search_create(lt_window_search **out, lt_ctx *ctx)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return lti_fail(ctx, LT_ERR_MEM, "no memory for a search");
    (*out)->ctx = ctx;
    return LT_OK;
}

static void forget(lt_window_search *s)
{
    free(s->error);
    free(s->calls);
    free(s->best);
    s->error = NULL; /* says that nothing is there */
    s->calls = NULL;
    s->best = NULL;
    s->layers = s->heads = 0;
}

void lt_window_search_destroy(lt_window_search **search)
{
    lt_window_search *s = search ? *search : NULL;
    if (!s) return;
    forget(s);
    free(s);
    *search = NULL;
}

/* ---- which windows ---- */

static int32_t seen(const lt_window_search *s, int axis, int32_t side)
{
    return side < s->count[axis] ? side : s->count[axis];
}

static int64_t volume(const lt_window_search *s, const int32_t w[3])
{
    return (int64_t)seen(s, 0, w[0]) * seen(s, 1, w[1]) * seen(s, 2, w[2]);
}

static bool can_grow(const lt_window_search *s, const int32_t w[3], int64_t most)
{
    for (int a = 0; a < 3; a++) {
        int32_t more[3] = {w[0], w[1], w[2]};
        more[a] += 2;
        if (w[a] < s->count[a] && volume(s, more) <= most) return true;
    }
    return false;
}

static void add(lt_window_search *s, const int32_t w[3])
{
    if (s->n < MOST_WINDOWS) memcpy(s->window[s->n++], w, sizeof s->window[0]);
}

/* The given window is the first one; the others read no more boxes than it does. */
static void list_windows(lt_window_search *s, const int32_t given[3])
{
    const int64_t most = volume(s, given);
    int32_t w[3];
    s->n = 0;
    add(s, given);
    for (w[0] = 1; w[0] < s->count[0] + 2; w[0] += 2)
        for (w[1] = 1; w[1] < s->count[1] + 2; w[1] += 2)
            for (w[2] = 1; w[2] < s->count[2] + 2; w[2] += 2)
                if (volume(s, w) <= most && !can_grow(s, w, most) && memcmp(w, given, sizeof w))
                    add(s, w);
}

lt_status lti_search_begin(lt_window_search *s, const lt_sparse *p)
{
    const int32_t layers = p->o.layers, heads = p->o.heads, *count = p->tiling.count;
    if (s->error) {
        if (s->layers == layers && s->heads == heads && !memcmp(s->count, count, sizeof s->count))
            return LT_OK;
        return lti_fail(s->ctx, LT_ERR_ARG,
                        "search: %d layers of %d heads on %dx%dx%d boxes, then %d of %d on "
                        "%dx%dx%d",
                        s->layers, s->heads, s->count[0], s->count[1], s->count[2], layers, heads,
                        count[0], count[1], count[2]);
    }
    s->layers = layers;
    s->heads = heads;
    memcpy(s->count, count, sizeof s->count);
    list_windows(s, p->o.spec.window);
    const size_t n = (size_t)layers * (size_t)heads;
    s->error = calloc(n * (size_t)s->n, sizeof *s->error);
    s->calls = calloc((size_t)layers, sizeof *s->calls);
    s->best = calloc(n, sizeof *s->best);
    if (s->error && s->calls && s->best) return LT_OK;
    forget(s);
    return lti_fail(s->ctx, LT_ERR_MEM, "no memory for a search in %d layers", layers);
}

/* ---- a call ---- */

/* Squared distance of a head's columns from those of `want`, over their squares. */
static double distance(const float *got, const float *want, int64_t rows, int64_t cols,
                       int64_t first, int64_t n)
{
    double far = 0, all = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = first; c < first + n; c++) {
            const double w = (double)want[r * cols + c], e = (double)got[r * cols + c] - w;
            far += e * e;
            all += w * w;
        }
    return all > 0 ? far / all : 0;
}

lt_status lti_search_call(lt_sparse *p, const lt_sparse_call *c, lti_scene *sc, lt_mat dense)
{
    lt_window_search *s = p->o.spec.search;
    const int64_t cols = (int64_t)p->o.heads * p->o.head_dim;
    const size_t bytes = (size_t)(c->lq * cols) * sizeof(float);
    float *const want = p->host, *const got = p->host + c->lq * cols;
    lt_sparse_spec spec = p->o.spec;
    const lt_mat out = {p->search_out, LT_F32, cols};
    LT_TRY(lt_convert(p->dev,
                      &(lt_convert_args){.out = out, .x = dense, .rows = c->lq, .cols = cols}));
    LT_TRY(lt_dev_download(p->dev, want, out.data, bytes));
    sc->o = &spec;
    for (int32_t i = 0; i < s->n; i++) {
        memcpy(spec.window, s->window[i], sizeof spec.window);
        LT_TRY(lti_lists_write(&p->lists, p, sc, p->m->list, p->group_of_head));
        LT_TRY(lt_attention(p->dev,
                            &(lt_attention_args){.out = out,
                                                 .q = c->q,
                                                 .k = c->k,
                                                 .v = c->v,
                                                 .lq = c->lq,
                                                 .lk = c->lk,
                                                 .heads = p->o.heads,
                                                 .head_dim = p->o.head_dim,
                                                 .scale = (float)(1 / sqrt((double)p->o.head_dim)),
                                                 .plan = &p->lists.kernel,
                                                 .k_rope = c->k_rope}));
        LT_TRY(lt_dev_download(p->dev, got, out.data, bytes));
        for (int32_t h = 0; h < s->heads; h++)
            s->error[((int64_t)c->layer * s->heads + h) * s->n + i] +=
                distance(got, want, c->lq, cols, (int64_t)h * p->o.head_dim, p->o.head_dim);
    }
    s->calls[c->layer]++;
    return LT_OK;
}

/* ---- the result ---- */

const lt_window_choice *lt_window_search_result(lt_window_search *s, int32_t *layers,
                                                int32_t *heads)
{
    *layers = s->layers;
    *heads = s->heads;
    const double all = (double)s->count[0] * s->count[1] * s->count[2];
    for (int32_t i = 0; i < s->layers * s->heads; i++) {
        const double *e = s->error + (int64_t)i * s->n;
        const int64_t calls = s->calls[i / s->heads] > 0 ? s->calls[i / s->heads] : 1;
        int32_t k = 0;
        for (int32_t j = 1; j < s->n; j++)
            if (e[j] < e[k]) k = j;
        s->best[i] = (lt_window_choice){.part = (double)volume(s, s->window[k]) / all,
                                        .error = sqrt(e[k] / (double)calls),
                                        .given = sqrt(e[0] / (double)calls)};
        memcpy(s->best[i].side, s->window[k], sizeof s->best[i].side);
    }
    return s->best;
}
