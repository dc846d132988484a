/* sparse.c: the planner of sparse attention: what a call reads, from the method, the grid or the frames of a cache, and where it is
 * wanted from the queries and keys themselves. Lists that depend on the grid alone are made once. */
#include "attention/sparse_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_TOKENS = 120, TILE_ROWS = 126, TILE_FRAMES = 4, BASE = 128 };

/* ---- sizes ---- */

static int32_t between(int64_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : (int32_t)x;
}

/* What was left open: boxes as large as query tiles of the kernel where there are enough of them; 128 tokens where a frame is as large as
 * those that the methods were made for, an eighth of a frame where it is small. */
static void fill_spec(lt_sparse_spec *s, const lt_sparse_options *o)
{
    const int64_t tokens = lt_grid_tokens(o->grid), frame = tokens / o->grid.frames;
    const int32_t deep = o->slots ? 1 : TILE_FRAMES;
    if (!s->tile[0]) {
        lt_tiling_choose(s->tile, o->grid,
                         between((o->slots ? o->slots * frame : tokens) / 84, 8, TILE_TOKENS),
                         deep);
    }
    if (o->slots) s->tile[0] = 1;
    if (!s->base) s->base = frame >= 1024 ? BASE : between(frame / 8, 1, BASE);
    if (!s->rows) s->rows = s->base < TILE_ROWS ? s->base : TILE_ROWS;
}

static int32_t boxes(int32_t side, int32_t tile)
{
    return (side + tile - 1) / tile;
}

static void size_up(lti_sizes *z, lt_sparse_spec *spec, const lt_sparse_options *o)
{
    const lti_method *m = lti_method_at(o->spec.method);
    *spec = o->spec;
    fill_spec(spec, o);
    const lt_grid g = o->grid;
    *z = (lti_sizes){.frame = g.rows * g.cols,
                     .tiled = m->tiled,
                     .cached = o->slots > 0,
                     .choose = m->list == lti_list_topk,
                     .profile = m->groups > 1,
                     .nkeys = o->slots ? o->slots : g.frames,
                     .groups = m->groups && !spec->file[0] ? m->groups : o->heads};
    z->heads = !m->groups || spec->file[0];
    z->centroid = z->choose && spec->centroid;
    z->refresh = spec->refresh > 0;
    const int32_t parts = boxes(z->frame, spec->rows);
    z->rows = boxes(z->frame, parts);
    z->per_frame = boxes(z->frame, z->rows);
    z->nq = z->per_frame * g.frames;
    z->most = 2 * z->nkeys + 2;
    if (!m->tiled) return;
    const int32_t each = boxes(g.rows, spec->tile[1]) * boxes(g.cols, spec->tile[2]);
    const int32_t deep = boxes(g.frames, spec->tile[0] < g.frames ? spec->tile[0] : g.frames);
    z->nq = each * deep;
    z->nk = each * (z->cached ? z->nkeys : deep);
    z->words = (z->nk + 63) / 64;
    const bool even = g.rows % spec->tile[1] == 0 && g.cols % spec->tile[2] == 0 &&
                      (z->cached || g.frames % spec->tile[0] == 0);
    z->most = even && !(o->bias > 0 && o->bias < 1) ? z->nk / 2 + 2 : z->nk + 1;
}

static size_t sample_rows(void)
{
    return 3 * LTI_SAMPLES * LTI_SAMPLE_ROWS;
}

/* Numbers that come back from the device at a time, and the scratch of the choice. */
static size_t host_items(const lti_sizes *z, const lt_sparse_options *o)
{
    const size_t cols = (size_t)o->heads * (size_t)o->head_dim, nk = (size_t)z->nk;
    const size_t scores = ((size_t)o->heads * (size_t)z->nq + 1) * nk;
    const size_t mean = (nk > (size_t)z->nq ? nk : (size_t)z->nq) * cols;
    if (z->profile) return sample_rows() * cols;
    if (o->spec.search) return 2 * (size_t)lt_grid_tokens(o->grid) * cols;
    const size_t most = scores > mean ? scores : mean;
    return most > cols ? most : cols;
}

/* One piece of device memory. */
typedef struct piece {
    void **at;
    size_t bytes;
} piece;

enum { MAX_PIECES = 16 };

static int list_pieces(piece out[MAX_PIECES], lt_sparse *s, const lti_sizes *z,
                       const lt_sparse_options *o)
{
    const size_t heads = (size_t)o->heads, cols = heads * (size_t)o->head_dim;
    const size_t item = lt_dtype_size(o->dtype), nq = (size_t)z->nq, nk = (size_t)z->nk;
    const size_t lq = (size_t)lt_grid_tokens(o->grid);
    int n = 0;
    if (z->profile) {
        out[n++] = (piece){&s->sample_q, sample_rows() * cols * item};
        out[n++] = (piece){(void **)&s->sample_out, sample_rows() * cols * 4};
    }
    if (o->spec.search) out[n++] = (piece){(void **)&s->search_out, lq * cols * 4};
    if (z->refresh) {
        const size_t calls = (size_t)o->layers * (size_t)o->samples;
        out[n++] = (piece){&s->missing, calls * lq * cols * item};
        out[n++] = (piece){(void **)&s->minus_one, cols * 4};
    }
    if (z->refresh || z->centroid) out[n++] = (piece){&s->rest_out, lq * cols * item};
    if (!z->choose) return n;
    out[n++] = (piece){(void **)&s->off_q, (nq + 1) * 4};
    out[n++] = (piece){(void **)&s->off_k, (nk + 1) * 4};
    out[n++] = (piece){(void **)&s->mean_q, nq * cols * 4};
    out[n++] = (piece){(void **)&s->mean_k, nk * cols * 4};
    out[n++] = (piece){(void **)&s->score, heads * nq * nk * 4};
    if (!z->centroid) return n;
    out[n++] = (piece){(void **)&s->lse, heads * lq * 4};
    out[n++] = (piece){(void **)&s->rest_lse, heads * lq * 4};
    out[n++] = (piece){&s->rest_k, nk * cols * item};
    out[n++] = (piece){&s->rest_v, nk * cols * item};
    return n;
}

static lt_status check_options(lt_ctx *ctx, const lt_sparse_options *o)
{
    LT_TRY(lt_sparse_check(ctx, &o->spec));
    if (o->spec.search && (lti_method_at(o->spec.method)->list != lti_list_sta || o->spec.file[0]))
        return lti_fail(ctx, LT_ERR_ARG, "attention: windows are searched with sta:window=FxHxW");
    const int64_t frame = (int64_t)o->grid.rows * o->grid.cols, most = INT32_MAX / 4;
    if (o->grid.frames < 1 || o->grid.rows < 1 || o->grid.cols < 1 || o->heads < 1 ||
        o->head_dim < 1 || o->layers < 1 || o->samples < 1 || o->slots < 0 || frame > most ||
        ((int64_t)o->grid.frames + o->slots) * frame > most)
        return lti_fail(ctx, LT_ERR_ARG,
                        "attention: %d heads of size %d on %dx%dx%d tokens, %d layers, %d samples",
                        o->heads, o->head_dim, o->grid.frames, o->grid.rows, o->grid.cols,
                        o->layers, o->samples);
    if (o->slots && o->slots < o->grid.frames)
        return lti_fail(ctx, LT_ERR_ARG, "attention: blocks of %d frames in a cache of %d",
                        o->grid.frames, o->slots);
    return LT_OK;
}

uint64_t lt_sparse_bytes(const lt_sparse_options *o)
{
    if (check_options(NULL, o) < 0 || !lti_method_at(o->spec.method)->list) return 0;
    lti_sizes z;
    lt_sparse_spec spec;
    lt_sparse none = {0};
    piece p[MAX_PIECES];
    size_up(&z, &spec, o);
    uint64_t sum = lti_lists_bytes(&z, z.nq, z.groups, o->heads) * (z.centroid ? 2 : 1);
    if (z.profile) sum += lti_lists_bytes(&z, 3 * LTI_SAMPLES, 1, o->heads);
    for (int i = 0, n = list_pieces(p, &none, &z, o); i < n; i++)
        sum += p[i].bytes;
    return sum;
}

/* ---- making ---- */

static lt_status read_windows(lt_sparse *s)
{
    const char *file = s->o.spec.file;
    if (!file[0]) return LT_OK;
    LT_TRY(lt_windows_read(&s->windows, s->ctx, file));
    if (s->windows.layers != s->o.layers || s->windows.heads != s->o.heads)
        return lti_fail(s->ctx, LT_ERR_ARG,
                        "%s: windows of %d layers of %d heads, the model has %d of %d", file,
                        s->windows.layers, s->windows.heads, s->o.layers, s->o.heads);
    return LT_OK;
}

static lt_status make_host(lt_sparse *s)
{
    const lti_sizes *z = &s->z;
    const int32_t layers = s->o.layers * s->o.samples;
    if (z->tiled) LT_TRY(lt_tiling_create(&s->tiling, s->ctx, s->o.grid, s->o.spec.tile));
    s->q_off = malloc(((size_t)z->nq + 1) * sizeof *s->q_off);
    s->key = calloc((size_t)z->nkeys, sizeof *s->key);
    s->list.max = 3 * z->nkeys + z->nk + 4;
    s->list.run = malloc((size_t)s->list.max * sizeof *s->list.run);
    s->group_of_head = calloc((size_t)s->o.heads, sizeof *s->group_of_head);
    s->layer = calloc((size_t)layers, sizeof *s->layer);
    s->host_items = host_items(z, &s->o);
    s->host = malloc((s->host_items + 1) * sizeof *s->host);
    bool good = s->q_off && s->key && s->list.run && s->group_of_head && s->layer && s->host;
    for (int32_t i = 0; good && z->choose && i < layers; i++) {
        const size_t lists = (size_t)s->o.heads * (size_t)z->nq;
        s->layer[i].chosen = calloc(lists * (size_t)z->words, sizeof(uint64_t));
        good = s->layer[i].chosen != NULL;
    }
    if (!good) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for the plans of %d layers", layers);
    for (int32_t t = 0; t <= z->nq && !z->tiled; t++) {
        const int32_t in = t % z->per_frame * z->rows;
        s->q_off[t] = t / z->per_frame * z->frame + in;
    }
    if (z->tiled) memcpy(s->q_off, s->tiling.off, ((size_t)z->nq + 1) * sizeof *s->q_off);
    for (int32_t h = 0; z->heads && h < s->o.heads; h++)
        s->group_of_head[h] = h;
    return LT_OK;
}

/* First rows of the boxes of keys, in all slots. */
static lt_status upload_offsets(lt_sparse *s)
{
    const lti_sizes *z = &s->z;
    LT_TRY(lt_dev_upload(s->dev, s->off_q, s->q_off, ((size_t)z->nq + 1) * 4));
    int32_t *off = malloc(((size_t)z->nk + 1) * sizeof *off);
    if (!off) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for %d boxes", z->nk);
    const int32_t each = s->tiling.count[1] * s->tiling.count[2];
    for (int32_t i = 0; i <= z->nk; i++)
        off[i] = z->cached ? i / each * z->frame + s->tiling.off[i % each] : s->tiling.off[i];
    const lt_status st = lt_dev_upload(s->dev, s->off_k, off, ((size_t)z->nk + 1) * 4);
    free(off);
    return st;
}

static lt_status make_device(lt_sparse *s)
{
    const lti_sizes *z = &s->z;
    piece p[MAX_PIECES];
    LT_TRY(lti_lists_create(&s->lists, s->dev, z, z->nq, z->groups, s->o.heads));
    if (z->centroid) LT_TRY(lti_lists_create(&s->rest, s->dev, z, z->nq, z->groups, s->o.heads));
    if (z->profile)
        LT_TRY(lti_lists_create(&s->samples, s->dev, z, 3 * LTI_SAMPLES, 1, s->o.heads));
    for (int i = 0, n = list_pieces(p, s, z, &s->o); i < n; i++)
        LT_TRY(lt_dev_alloc(s->dev, p[i].at, p[i].bytes, LT_TAG_PLAN));
    if (z->refresh) LT_TRY(lti_upload_minus_one(s));
    return z->choose ? upload_offsets(s) : LT_OK;
}

lt_status lt_sparse_create(lt_sparse **out, lt_dev *dev, const lt_sparse_options *o)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(dev);
    LT_TRY(check_options(ctx, o));
    lt_sparse *s = calloc(1, sizeof *s);
    if (!s) return lti_fail(ctx, LT_ERR_MEM, "no memory for a planner");
    s->dev = dev;
    s->ctx = ctx;
    s->o = *o;
    s->m = lti_method_at(o->spec.method);
    size_up(&s->z, &s->o.spec, o);
    lt_status st = LT_OK;
    if (s->m->list) st = make_host(s);
    if (s->m->list && st >= 0) st = make_device(s);
    if (st >= 0) st = read_windows(s);
    if (st >= 0 && s->o.spec.search) st = lti_search_begin(s->o.spec.search, s);
    if (st < 0)
        lt_sparse_destroy(&s);
    else
        *out = s;
    return st;
}

void lt_sparse_destroy(lt_sparse **sparse)
{
    lt_sparse *s = sparse ? *sparse : NULL;
    if (!s) return;
    piece p[MAX_PIECES];
    for (int i = 0, n = list_pieces(p, s, &s->z, &s->o); i < n; i++)
        lt_dev_free(s->dev, *p[i].at);
    lti_lists_destroy(&s->samples, s->dev);
    lti_lists_destroy(&s->rest, s->dev);
    lti_lists_destroy(&s->lists, s->dev);
    for (int32_t i = 0; s->layer && i < s->o.layers * s->o.samples; i++)
        free(s->layer[i].chosen);
    lt_tiling_destroy(&s->tiling);
    lt_windows_destroy(&s->windows);
    free(s->host);
    free(s->layer);
    free(s->group_of_head);
    free(s->list.run);
    free(s->key);
    free(s->q_off);
    free(s);
    *sparse = NULL;
}

const int32_t *lt_sparse_order(const lt_sparse *s)
{
    return s->z.tiled ? s->tiling.order : NULL;
}

/* ---- planning ---- */

/* The frames that can be read, and a number that says which they are. */
static uint64_t look(lt_sparse *s, const lt_sparse_call *c)
{
    uint64_t hash = 1469598103934665603u;
    s->nkeys = s->o.grid.frames;
    const lt_cache_frame *list = c->cache ? lt_cache_list(c->cache, &s->nkeys) : NULL;
    const float log_bias = s->o.bias > 0 && s->o.bias < 1 ? (float)log(s->o.bias) : 0;
    for (int32_t i = 0; i < s->nkeys; i++) {
        s->key[i] = (lti_key_frame){.slot = i};
        if (!list) continue;
        const bool always = list[i].pinned || list[i].open;
        s->key[i] = (lti_key_frame){list[i].slot, always ? 0 : log_bias, always};
        hash = (hash ^ (uint64_t)list[i].frame * 4096 ^ (uint64_t)list[i].slot) * 1099511628211u;
        hash = (hash ^ (list[i].open ? 2u : list[i].pinned ? 3u : 1u)) * 1099511628211u;
    }
    return hash;
}

static lt_status check_call(const lt_sparse *s, const lt_sparse_call *c)
{
    const lti_sizes *z = &s->z;
    const int64_t frames = c->cache ? lt_cache_open_frames(c->cache) : s->o.grid.frames;
    const int64_t lk = c->cache ? lt_cache_rows(c->cache) : c->lq;
    if (!c->cache != !z->cached || c->lq != frames * z->frame || frames > s->o.grid.frames ||
        frames < 1 || c->lk != lk || lk > (int64_t)z->nkeys * z->frame)
        return lti_fail(s->ctx, LT_ERR_SHAPE,
                        "attention: %lld queries, %lld keys: the plan is for %d frames of %d "
                        "tokens, %d frames of keys%s",
                        (long long)c->lq, (long long)c->lk, s->o.grid.frames, z->frame, z->nkeys,
                        z->cached ? " in a cache" : "");
    const lt_dtype t = s->o.dtype;
    if (c->q.dtype != t || c->k.dtype != t || c->v.dtype != t)
        return lti_fail(s->ctx, LT_ERR_DTYPE,
                        "attention: q, k, v are %s, %s, %s: the plan is for %s",
                        lt_dtype_name(c->q.dtype), lt_dtype_name(c->k.dtype),
                        lt_dtype_name(c->v.dtype), lt_dtype_name(t));
    if (c->layer < 0 || c->layer >= s->o.layers || c->sample < 0 || c->sample >= s->o.samples)
        return lti_fail(s->ctx, LT_ERR_ARG, "attention: layer %d, sample %d of %d and %d", c->layer,
                        c->sample, s->o.layers, s->o.samples);
    return LT_OK;
}

/* Part of the boxes that is read at this step. */
static double keep_at(const lt_sparse *s, double progress)
{
    const lt_sparse_spec *o = &s->o.spec;
    const double rest = 1 - o->warmup, done = rest > 0 ? (progress - o->warmup) / rest : 1;
    return o->ramp > 0 ? o->ramp + (o->keep - o->ramp) * (done < 0 ? 0 : done) : o->keep;
}

static lti_scene scene_of(const lt_sparse *s, const lt_sparse_call *c)
{
    lti_scene sc = {.o = &s->o.spec,
                    .q = s->o.grid,
                    .frame = s->z.frame,
                    .tiling = s->z.tiled ? &s->tiling : NULL,
                    .per_frame = s->z.per_frame,
                    .q_off = s->q_off,
                    .heads = s->o.heads,
                    .nkeys = s->nkeys,
                    .key = s->key,
                    .cached = s->z.cached,
                    .keep = keep_at(s, c->progress),
                    .nk = s->z.nk};
    if (s->windows.side) sc.window = s->windows.side + (int64_t)c->layer * s->o.heads;
    sc.q.frames = (int32_t)(c->lq / s->z.frame);
    sc.nq = s->z.nq / s->o.grid.frames * sc.q.frames;
    if (sc.q.frames == s->o.grid.frames) sc.nq = s->z.nq; /* boxes may be deeper than a frame */
    return sc;
}

static void count(lt_sparse *s, const lti_scene *sc)
{
    const double all = (double)sc->q.frames * sc->frame * sc->nkeys * sc->frame;
    double read = 0;
    for (int32_t h = 0; h < s->o.heads; h++) {
        read += s->lists.group_read[s->group_of_head[h]] / s->o.heads;
        if (s->z.centroid) read += s->rest.group_read[s->group_of_head[h]] / s->o.heads;
    }
    if (s->fresh) read += all;
    s->stats.sparse_calls++;
    s->stats.read += read;
    s->stats.all += all;
    s->stats.sparse_read += read;
    s->stats.sparse_all += all;
}

/* Of a block that is drawn, once. */
static bool keeps(const lt_sparse_call *c)
{
    return c->progress >= 1;
}

static lt_status make_plan(lt_sparse *s, const lt_sparse_call *c)
{
    uint64_t seen = look(s, c);
    if (s->windows.side)
        seen = (seen ^ (uint64_t)(c->layer + 1)) * 1099511628211u; /* lists of it alone */
    lti_scene sc = scene_of(s, c);
    const bool same = s->built == seen;
    lti_layer *l = &s->layer[c->layer * s->o.samples + c->sample];
    /* the pass that keeps a block goes by itself: a saved session may begin with it */
    const bool again = l->made && l->seen == seen && c->progress > l->progress && !keeps(c);
    l->made = false; /* until its list is there */
    l->progress = c->progress;
    l->seen = seen;
    l->age = again && l->age + 1 < s->o.spec.refresh ? l->age + 1 : 0;
    s->fresh = s->z.refresh && l->age == 0;
    s->built = seen;
    if (s->z.choose) {
        LT_TRY(lti_choose(s, &sc, c, again));
        LT_TRY(lti_lists_write(&s->lists, s, &sc, s->m->list, s->group_of_head));
        if (s->z.centroid)
            LT_TRY(lti_lists_write(&s->rest, s, &sc, lti_list_topk_rest, s->group_of_head));
    } else {
        if (s->z.profile) LT_TRY(lti_profile(s, &sc, c));
        if (!same) {
            s->built = 0; /* until they are there */
            LT_TRY(lti_lists_write(&s->lists, s, &sc, s->m->list, s->group_of_head));
            s->built = seen;
            s->stats.plans++;
        } else if (s->z.profile) {
            LT_TRY(lt_dev_upload(s->dev, s->lists.dev_group, s->group_of_head,
                                 (size_t)s->o.heads * sizeof *s->group_of_head));
        }
    }
    l->made = true;
    count(s, &sc);
    return LT_OK;
}

lt_status lt_sparse_plan(lt_sparse *s, const lt_attn_plan **plan, const lt_sparse_call *c)
{
    const double start = lti_now();
    *plan = NULL;
    s->planned = false;
    s->stats.calls++;
    if (!s->m->list || s->o.spec.search || c->progress < s->o.spec.warmup - 1e-9 ||
        c->layer < s->o.spec.layers || (s->z.refresh && keeps(c))) {
        const double all =
            (double)c->lq * (double)(c->cache ? lt_cache_visible_rows(c->cache) : c->lk);
        s->stats.read += all;
        s->stats.all += all;
        return LT_OK;
    }
    LT_TRY(check_call(s, c));
    LT_TRY(make_plan(s, c));
    if (!s->fresh) *plan = &s->lists.kernel;
    s->planned = true;
    s->stats.seconds += lti_now() - start;
    return LT_OK;
}

float *lt_sparse_lse(const lt_sparse *s)
{
    return s->lse;
}

static lt_status compare_windows(lt_sparse *s, const lt_sparse_call *c, lt_mat out)
{
    if (c->progress < s->o.spec.warmup - 1e-9 || c->layer < s->o.spec.layers) return LT_OK;
    LT_TRY(check_call(s, c));
    look(s, c);
    lti_scene sc = scene_of(s, c);
    return lti_search_call(s, c, &sc, out);
}

bool lt_sparse_second(const lt_sparse *s, lt_sparse_part *out)
{
    *out = (lt_sparse_part){&s->lists.kernel, lti_whole(s, s->rest_out)};
    return s->planned && s->fresh;
}

lt_status lt_sparse_finish(lt_sparse *s, const lt_sparse_call *c, lt_mat out)
{
    if (s->o.spec.search) return compare_windows(s, c, out);
    if ((!s->z.centroid && !s->z.refresh) || !s->planned) return LT_OK;
    const double start = lti_now();
    LT_TRY(s->z.centroid ? lti_add_means(s, c, out) : lti_add_missing(s, c, out));
    s->stats.seconds += lti_now() - start;
    return LT_OK;
}

void lt_sparse_get_stats(const lt_sparse *s, lt_sparse_stats *out)
{
    *out = s->stats;
}
