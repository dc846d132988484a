/* dit_run.c: what passes need and what they cost: sizes of scratch, operations, and the run that holds tables, positions, plan and scratch
 * for passes of one size. */
#include "video/dit_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

/* Rows taken through the feed-forward layer at a time: a hidden layer of about 16 MiB, evenly divided. */
static int64_t chunk_rows(const lti_dit_config *c, lt_dtype t, int64_t rows)
{
    int64_t most = ((int64_t)16 << 20) / ((int64_t)c->ffn_dim * (int64_t)lt_dtype_size(t));
    if (most < 64) most = 64;
    const int64_t chunks = (rows + most - 1) / most;
    const int64_t even = ((rows + chunks - 1) / chunks + 15) / 16 * 16;
    return even < rows ? even : rows;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Scratch of a pass: the residual, and the largest of the parts that follow each other (see the functions below). */
static size_t scratch_bytes(const lti_dit_config *c, lt_dtype t, int64_t n, int32_t batch)
{
    const size_t e = lt_dtype_size(t), area = (size_t)c->patch * (size_t)c->patch;
    const size_t rows = (size_t)n * (size_t)batch, d = (size_t)c->dim;
    const size_t chunk = (size_t)chunk_rows(c, t, (int64_t)rows);
    const size_t embed = lt_arena_need((size_t)n * area * (size_t)c->in_channels * e);
    const size_t self = lt_arena_need(rows * d * e) + lt_arena_need(rows * 3 * d * e);
    const size_t ffn = lt_arena_need(chunk * d * e) + lt_arena_need(chunk * (size_t)c->ffn_dim * e);
    const size_t head = lt_arena_need(chunk * d * 4) +
                        lt_arena_need((size_t)n * area * (size_t)c->out_channels * 4);
    return lt_arena_need(rows * d * 4) + max_size(max_size(embed, self), max_size(ffn, head));
}

uint64_t lti_dit_run_bytes(const lti_dit_config *c, lt_dtype compute, int32_t frames, int32_t h,
                           int32_t w, int32_t batch, int32_t ntimes)
{
    const int64_t n = (int64_t)frames * (h / c->patch) * (w / c->patch);
    const uint64_t tables = (uint64_t)ntimes * (uint64_t)c->dim * 4 *
                            (6 * (uint64_t)c->layers + 2 + 8); /* 8: building them */
    return scratch_bytes(c, compute, n, batch) + tables + 16 * (uint64_t)n * (uint64_t)batch;
}

double lti_dit_flops(const lti_dit_config *c, int64_t tokens, int32_t batch, const int64_t *keys,
                     bool same_x)
{
    const double n = (double)tokens, d = c->dim, area = (double)c->patch * c->patch;
    const double self = 2 * n * d * 4 * d + 4 * n * n * d;
    const double embed = 2 * n * d * area * c->in_channels;
    double sum = 0;
    for (int32_t b = 0; b < batch; b++) {
        const double cross = 2 * n * d * 2 * d + 4 * n * (double)keys[b] * d;
        sum += c->layers * (self + cross + 4 * n * d * c->ffn_dim);
        sum += embed + 2 * n * d * area * c->out_channels;
    }
    return same_x ? sum - (batch - 1) * (self + embed) : sum;
}

double lti_dit_causal_flops(const lti_dit_config *c, int64_t tokens, int64_t visible, int64_t keys)
{
    const double past = 4 * (double)tokens * (double)(visible - tokens) * c->dim;
    return lti_dit_flops(c, tokens, 1, &keys, false) + c->layers * past;
}

/* ---- run ---- */

static lt_status check_run(lt_ctx *ctx, const lti_dit_config *c, const lti_dit_run_options *o)
{
    if (o->frames < 1 || o->h < 1 || o->w < 1 || o->h % c->patch || o->w % c->patch)
        return lti_fail(ctx, LT_ERR_ARG, "latent of %d frames of %dx%d: not whole patches of %d",
                        o->frames, o->w, o->h, c->patch);
    const int32_t max = c->max_pos;
    if (o->frames > max || o->h / c->patch > max || o->w / c->patch > max)
        return lti_fail(ctx, LT_ERR_ARG,
                        "latent of %d frames of %dx%d: more than %d positions on an axis",
                        o->frames, o->w, o->h, max);
    if (o->batch < 1 || o->batch > LTI_DIT_BATCH)
        return lti_fail(ctx, LT_ERR_ARG, "batch of %d samples: not in 1..%d", o->batch,
                        LTI_DIT_BATCH);
    if (o->ntimes < 1 || !o->times) return lti_fail(ctx, LT_ERR_ARG, "%d timesteps", o->ntimes);
    for (int32_t i = 0; i < o->ntimes; i++)
        if (!(o->times[i] >= 0 && o->times[i] <= 1000))
            return lti_fail(ctx, LT_ERR_ARG, "timestep %d is %g, not in 0..1000", i, o->times[i]);
    const int64_t n = (int64_t)o->frames * (o->h / c->patch) * (o->w / c->patch);
    if (n * o->batch > INT32_MAX / 4)
        return lti_fail(ctx, LT_ERR_ARG, "%lld tokens are too many", (long long)n);
    return LT_OK;
}

/* Positions of the tokens of a grid, `times` times, in the planner's order. Caches hold whole frames of it. */
static lt_status upload_positions(lti_dit_run *r, int32_t **out, lt_grid g, int32_t times)
{
    const size_t n = (size_t)lt_grid_tokens(g), bytes = n * 3 * sizeof(int32_t);
    LT_TRY(lt_dev_alloc(r->d->dev, (void **)out, bytes * (size_t)times, LT_TAG_PLAN));
    int32_t *plain = malloc(bytes), *host = malloc(bytes);
    lt_status s = LT_OK;
    if (!plain || !host) s = lti_fail(lt_dev_ctx(r->d->dev), LT_ERR_MEM, "no memory for positions");
    if (s >= 0) lt_grid_positions(g, 0, plain);
    const size_t period = g.frames == r->grid.frames ? n : n / (size_t)g.frames;
    for (size_t i = 0; i < n && s >= 0; i++) {
        const size_t in = i % period, row = r->order ? i - in + (size_t)r->order[in] : i;
        memcpy(host + 3 * row, plain + 3 * i, 3 * sizeof *host);
    }
    for (int32_t b = 0; b < times && s >= 0; b++)
        s = lt_dev_upload(r->d->dev, *out + (size_t)b * n * 3, host, bytes);
    free(host);
    free(plain);
    return s;
}

/* ---- sparse attention ---- */

static lt_sparse_options sparse_options(const lti_dit_config *c, lt_dtype compute, lt_grid g,
                                        const lt_sparse_spec *spec, const lt_cache_policy *cache)
{
    return (lt_sparse_options){.spec = *spec,
                               .grid = g,
                               .heads = c->heads,
                               .head_dim = c->head_dim,
                               .layers = c->layers,
                               .samples = LTI_DIT_BATCH,
                               .dtype = compute,
                               .slots = cache ? cache->window : 0,
                               .bias = cache ? cache->bias : 1};
}

uint64_t lti_dit_sparse_bytes(const lti_dit_config *c, lt_dtype compute, int32_t frames, int32_t h,
                              int32_t w, const lt_sparse_spec *attention,
                              const lt_cache_policy *cache)
{
    const lt_grid g = {frames, h / c->patch, w / c->patch};
    const lt_sparse_options o = sparse_options(c, compute, g, attention, cache);
    const uint64_t order = 4 * (uint64_t)lt_grid_tokens(g);
    const uint64_t ring =
        cache ? (uint64_t)(cache->window + frames) * 12 * (uint64_t)g.rows * (uint64_t)g.cols : 0;
    return attention->method ? lt_sparse_bytes(&o) + order + ring : 0;
}

static lt_status create_sparse(lti_dit_run *r, const lti_dit_run_options *o)
{
    const lti_dit *d = r->d;
    if (!o->attention || !o->attention->method) return LT_OK;
    const lt_sparse_options so = sparse_options(&d->c, d->compute, r->grid, o->attention, o->cache);
    LT_TRY(lt_sparse_create(&r->sparse, d->dev, &so));
    r->order = lt_sparse_order(r->sparse);
    if (!r->order) return LT_OK;
    const size_t bytes = (size_t)r->n * sizeof *r->order;
    LT_TRY(lt_dev_alloc(d->dev, (void **)&r->order_dev, bytes, LT_TAG_PLAN));
    LT_TRY(lt_dev_upload(d->dev, r->order_dev, r->order, bytes));
    if (!o->cache) return LT_OK;
    const lt_grid ring = {o->cache->window, r->grid.rows, r->grid.cols};
    LT_TRY(upload_positions(r, &r->ring_pos, ring, 1));
    return upload_positions(r, &r->block_pos, r->grid, 1);
}

static lt_status fill_run(lti_dit_run *r, const lti_dit_run_options *o)
{
    const lti_dit *d = r->d;
    const int32_t max[3] = {r->grid.frames, r->grid.rows, r->grid.cols};
    const size_t groups = (size_t)(r->n * r->batch) * sizeof(int32_t);
    LT_TRY(lti_dit_times_create(&r->times, d, o->times, o->ntimes, o->probe));
    LT_TRY(create_sparse(r, o));
    LT_TRY(lt_plan_dense(&r->plan, d->dev, r->n, r->n, d->c.heads));
    LT_TRY(lt_rope_tables_create(&r->rope, d->dev, d->c.head_dim, max, 10000));
    LT_TRY(upload_positions(r, &r->pos, r->grid, r->batch));
    LT_TRY(lt_dev_alloc(d->dev, (void **)&r->group, groups, LT_TAG_PLAN));
    r->group_host = malloc(groups);
    if (!r->group_host) return lti_fail(lt_dev_ctx(d->dev), LT_ERR_MEM, "no memory for timesteps");
    return lt_arena_create(&r->arena, d->dev, scratch_bytes(&d->c, d->compute, r->n, r->batch),
                           LT_TAG_ACTIVATION);
}

lt_status lti_dit_run_create(lti_dit_run **out, const lti_dit *d, const lti_dit_run_options *o)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(d->dev);
    LT_TRY(check_run(ctx, &d->c, o));
    lti_dit_run *r = calloc(1, sizeof *r);
    if (!r) return lti_fail(ctx, LT_ERR_MEM, "no memory for a run");
    r->d = d;
    r->grid = (lt_grid){o->frames, o->h / d->c.patch, o->w / d->c.patch};
    r->batch = o->batch;
    r->n = lt_grid_tokens(r->grid);
    r->chunk = chunk_rows(&d->c, d->compute, r->n * r->batch);
    if (o->probe) r->probe = *o->probe;
    const lt_status s = fill_run(r, o);
    if (s < 0)
        lti_dit_run_destroy(&r);
    else
        *out = r;
    return s;
}

void lti_dit_run_destroy(lti_dit_run **run)
{
    lti_dit_run *r = run ? *run : NULL;
    if (!r) return;
    lt_dev *dev = r->d->dev;
    lt_arena_destroy(&r->arena);
    free(r->group_host);
    lt_dev_free(dev, r->group);
    lt_dev_free(dev, r->pos);
    lt_rope_tables_destroy(&r->rope);
    lt_dev_free(dev, r->block_pos);
    lt_dev_free(dev, r->ring_pos);
    lt_dev_free(dev, r->order_dev);
    lt_sparse_destroy(&r->sparse);
    lt_plan_destroy(&r->plan);
    lti_dit_times_destroy(&r->times, dev);
    free(r);
    *run = NULL;
}

int64_t lti_dit_run_tokens(const lti_dit_run *run)
{
    return run->n;
}

void lti_dit_run_stats(const lti_dit_run *run, lt_sparse_stats *out)
{
    *out = (lt_sparse_stats){0};
    if (run->sparse) lt_sparse_get_stats(run->sparse, out);
    out->attention_seconds = run->attention_seconds;
}

double lti_dit_run_density(const lti_dit_run *run)
{
    lt_sparse_stats s;
    lti_dit_run_stats(run, &s);
    return s.all > 0 ? s.read / s.all : 1;
}

double lti_dit_run_skipped(const lti_dit_run *run)
{
    lt_sparse_stats s;
    lti_dit_run_stats(run, &s);
    return 4 * (double)run->d->c.dim * (s.all - s.read);
}
