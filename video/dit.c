/* dit.c: passes through the transformer. Per block, on the f32 residual x of all samples stacked in rows:
 *
 *   a = norm(x) modulated ─► q k v ─► q, k: norm, rotate ─► attention a sample ─► x += gate * o(..)
 *   a = norm3(x) ─► q: norm ─► attention on the prompt's cached k, v ─► x += o(..)
 *   a few rows at a time: norm(x) modulated ─► up, GELU ─► x += gate * down(..)
 *
 * Nothing of size [N, F] exists, and the three parts of a block use the same scratch one after the other. */
#include "video/dit_internal.h"

#include <math.h>

typedef struct pass {
    lti_dit_run *r;
    const lti_dit *d;
    const lti_dit_args *a;
    lt_dev *dev;
    int64_t n, dim;
    int32_t frames;
    int32_t block;        /* where we are, for messages */
    int32_t samples;      /* rows in use are samples * n; 1 while all are still equal */
    lt_mat x;             /* residual, f32 [batch * n, D] */
    int64_t time;         /* row of the tables that group 0 means */
    const int32_t *group; /* device, or NULL: all group 0 */
} pass;

/* Row k of the six of a block's modulation, at the pass's first timestep. */
static const float *modulation(const pass *p, int32_t block, int64_t k)
{
    return p->r->times.blocks + ((int64_t)block * p->r->times.n + p->time) * 6 * p->dim +
           k * p->dim;
}

static const int32_t *group_from(const pass *p, int64_t row)
{
    return p->group ? p->group + row : NULL;
}

static lt_status scratch(pass *p, lt_mat *out, lt_dtype t, int64_t rows, int64_t cols)
{
    *out = (lt_mat){.dtype = t, .ld = cols};
    return lt_arena_alloc(&p->r->arena, &out->data, (size_t)rows * (size_t)cols * lt_dtype_size(t));
}

static lt_status modulated_norm(const pass *p, lt_mat out, int64_t row, int64_t rows, int32_t block,
                                int64_t shift)
{
    return lt_norm(p->dev, &(lt_norm_args){.out = out,
                                           .x = lti_at(p->x, row, 0),
                                           .rows = rows,
                                           .cols = p->dim,
                                           .kind = LT_NORM_LAYER,
                                           .eps = p->d->c.eps,
                                           .shift = modulation(p, block, shift),
                                           .scale = modulation(p, block, shift + 1),
                                           .mod_ld = 6 * p->dim,
                                           .row_group = group_from(p, row)});
}

static lt_status qk_norm(const pass *p, lt_mat out, lt_mat x, int64_t rows, const float *weight,
                         const lt_rope *rope)
{
    return lt_qknorm(p->dev, &(lt_qknorm_args){.out = out,
                                               .x = x,
                                               .rows = rows,
                                               .heads = p->d->c.heads,
                                               .head_dim = p->d->c.head_dim,
                                               .weight = weight,
                                               .eps = p->d->c.eps,
                                               .rope = rope});
}

static lt_status cancelled(const pass *p)
{
    if (!p->a->cancel || !atomic_load(p->a->cancel)) return LT_OK;
    return lti_fail(lt_dev_ctx(p->dev), LT_ERR_CANCELLED, "cancelled in layer %d of %d", p->block,
                    p->d->c.layers);
}

/* A few heads at a time where a call would take seconds, so that a cancelled pass ends soon. Heads do not know of each other. */
static lt_status attend(const pass *p, lt_mat out, lt_mat q, lt_mat k, lt_mat v, lt_attn_plan part,
                        int64_t lk, const lt_rope *k_rope, float *lse)
{
    static const double most_flops = 4e11;
    const int32_t heads = p->d->c.heads, size = p->d->c.head_dim;
    const int64_t lq = p->n;
    const double fit = most_flops / (4.0 * (double)lq * (double)lk * size);
    const int32_t most = fit >= heads ? heads : fit < 1 ? 1 : (int32_t)fit;
    for (int32_t h = 0; h < heads; h += most) {
        const int32_t take = heads - h < most ? heads - h : most;
        const int64_t col = (int64_t)h * size;
        LT_TRY(cancelled(p));
        LT_TRY(lt_attention(p->dev, &(lt_attention_args){.out = lti_at(out, 0, col),
                                                         .q = lti_at(q, 0, col),
                                                         .k = lti_at(k, 0, col),
                                                         .v = lti_at(v, 0, col),
                                                         .lq = lq,
                                                         .lk = lk,
                                                         .heads = take,
                                                         .head_dim = size,
                                                         .scale = (float)(1 / sqrt((double)size)),
                                                         .plan = &part,
                                                         .lse = lse ? lse + h * lq : NULL,
                                                         .k_rope = k_rope}));
        if (part.group_of_head) part.group_of_head += take;
    }
    return LT_OK;
}

/* Self-attention of one sample: what the planner chooses, or the dense plan. */
static lt_status attend_planned(const pass *p, int32_t block, int32_t s, lt_mat out, lt_mat q,
                                lt_mat k, lt_mat v, const lt_attn_plan *dense, int64_t lk,
                                const lt_rope *k_rope)
{
    const double start = lti_now();
    const lt_attn_plan *plan = NULL;
    lt_sparse *const sparse = p->r->sparse;
    const lt_sparse_call c = {.layer = block,
                              .sample = p->a->branch + s,
                              .progress = p->a->progress,
                              .q = q,
                              .k = k,
                              .v = v,
                              .lq = p->n,
                              .lk = lk,
                              .cache = p->a->cache[s],
                              .k_rope = k_rope};
    if (sparse) LT_TRY(lt_sparse_plan(sparse, &plan, &c));
    LT_TRY(attend(p, out, q, k, v, plan ? *plan : *dense, lk, k_rope,
                  plan ? lt_sparse_lse(sparse) : NULL));
    lt_sparse_part second;
    if (sparse && lt_sparse_second(sparse, &second))
        LT_TRY(attend(p, second.out, q, k, v, *second.plan, lk, k_rope, NULL));
    if (sparse) LT_TRY(lt_sparse_finish(sparse, &c, out));
    p->r->attention_seconds += lti_now() - start;
    return LT_OK;
}

/* All samples attend to themselves: a [rows, D] from q k v. */
static lt_status attend_whole(const pass *p, int32_t block, lt_mat a, lt_mat qkv)
{
    const lti_dit_block *b = &p->d->blocks[block];
    const int64_t rows = p->samples * p->n, dim = p->dim;
    const lt_rope rope = {
        .table = {p->r->rope.table[0], p->r->rope.table[1], p->r->rope.table[2]},
        .pairs = {p->r->rope.pairs[0], p->r->rope.pairs[1], p->r->rope.pairs[2]},
        .pos = p->r->pos,
    };
    const lt_mat q = lti_at(qkv, 0, 0), k = lti_at(qkv, 0, dim), v = lti_at(qkv, 0, 2 * dim);
    LT_TRY(qk_norm(p, q, q, rows, b->norm_q, &rope));
    LT_TRY(qk_norm(p, k, k, rows, b->norm_k, &rope));
    LT_TRY(lti_probe_call(&p->r->probe, "q_roped", block, q, rows, dim));
    LT_TRY(lti_probe_call(&p->r->probe, "k_roped", block, k, rows, dim));
    LT_TRY(lti_probe_call(&p->r->probe, "v", block, v, rows, dim));
    for (int32_t s = 0; s < p->samples; s++) {
        const int64_t row = s * p->n;
        LT_TRY(attend_planned(p, block, s, lti_at(a, row, 0), lti_at(q, row, 0), lti_at(k, row, 0),
                              lti_at(v, row, 0), lt_plan_kernel(p->r->plan), p->n, NULL));
    }
    return LT_OK;
}

/* Sample s attends to its cache, where its own keys and values are put first: keys normed, not turned. */
static lt_status attend_cached(const pass *p, int32_t block, lt_mat a, lt_mat qkv, int32_t s)
{
    const lti_dit_block *b = &p->d->blocks[block];
    const lt_cache *c = p->a->cache[s];
    const int64_t dim = p->dim, frame = p->n / p->frames;
    const lt_mat kv = lt_cache_layer(c, block), q = lti_at(qkv, s * p->n, 0);
    lt_rope q_rope = *lt_cache_query_rope(c), k_rope = *lt_cache_key_rope(c);
    if (p->r->ring_pos) { /* frames in the planner's order */
        q_rope.pos = p->r->block_pos;
        k_rope.pos = p->r->ring_pos;
    }
    LT_TRY(qk_norm(p, q, q, p->n, b->norm_q, &q_rope));
    for (int32_t f = 0; f < p->frames; f++) {
        const int64_t from = s * p->n + f * frame, to = lt_cache_open_row(c, f);
        LT_TRY(qk_norm(p, lti_at(kv, to, 0), lti_at(qkv, from, dim), frame, b->norm_k, NULL));
        LT_TRY(lt_convert(p->dev, &(lt_convert_args){.out = lti_at(kv, to, dim),
                                                     .x = lti_at(qkv, from, 2 * dim),
                                                     .rows = frame,
                                                     .cols = dim}));
    }
    return attend_planned(p, block, s, lti_at(a, s * p->n, 0), q, kv, lti_at(kv, 0, dim),
                          lt_cache_plan(c), lt_cache_rows(c), &k_rope);
}

static lt_status self_attention(pass *p, int32_t block)
{
    const lti_dit_block *b = &p->d->blocks[block];
    const int64_t rows = p->samples * p->n, dim = p->dim;
    const size_t mark = lt_arena_mark(&p->r->arena);
    lt_mat a, qkv;
    LT_TRY(scratch(p, &a, p->d->compute, rows, dim));
    LT_TRY(scratch(p, &qkv, p->d->compute, rows, 3 * dim));
    LT_TRY(modulated_norm(p, a, 0, rows, block, 0));
    LT_TRY(lt_linear(p->dev, &(lt_linear_args){.out = qkv, .x = a, .w = b->qkv, .rows = rows}));
    if (!p->a->cache[0]) LT_TRY(attend_whole(p, block, a, qkv));
    for (int32_t s = 0; s < p->samples && p->a->cache[0]; s++)
        LT_TRY(attend_cached(p, block, a, qkv, s));
    LT_TRY(lt_linear(p->dev, &(lt_linear_args){.out = p->x,
                                               .x = a,
                                               .w = b->o,
                                               .rows = rows,
                                               .gate = modulation(p, block, 2),
                                               .gate_ld = 6 * dim,
                                               .row_group = p->group}));
    lt_arena_reset(&p->r->arena, mark);
    return LT_OK;
}

/* A text's list is the same for all rows, so that of its first tile will do for a block of any number of frames. */
static lt_attn_plan text_plan(const pass *p, int32_t s)
{
    lt_attn_plan plan = *lt_plan_kernel(p->a->prompt[s]->plan);
    if (!p->a->cache[s]) return plan;
    plan.nq = 1;
    plan.q_off = lt_cache_plan(p->a->cache[s])->q_off;
    return plan;
}

static lt_status cross_attention(pass *p, int32_t block)
{
    const lti_dit_block *b = &p->d->blocks[block];
    const int64_t rows = p->samples * p->n, dim = p->dim;
    const size_t mark = lt_arena_mark(&p->r->arena);
    lt_mat a, q;
    LT_TRY(scratch(p, &a, p->d->compute, rows, dim));
    LT_TRY(scratch(p, &q, p->d->compute, rows, dim));
    LT_TRY(lt_norm(p->dev, &(lt_norm_args){.out = a,
                                           .x = p->x,
                                           .rows = rows,
                                           .cols = dim,
                                           .kind = LT_NORM_LAYER,
                                           .eps = p->d->c.eps,
                                           .weight = b->norm3,
                                           .bias = b->norm3_bias}));
    LT_TRY(lt_linear(p->dev, &(lt_linear_args){.out = q, .x = a, .w = b->cross_q, .rows = rows}));
    LT_TRY(qk_norm(p, q, q, rows, b->cross_norm_q, NULL));
    for (int32_t s = 0; s < p->samples; s++) {
        const lti_prompt *t = p->a->prompt[s];
        const lt_mat kv = lti_at((lt_mat){t->kv, p->d->compute, 2 * dim}, block * t->keys, 0);
        LT_TRY(attend(p, lti_at(a, s * p->n, 0), lti_at(q, s * p->n, 0), kv, lti_at(kv, 0, dim),
                      text_plan(p, s), t->keys, NULL, NULL));
    }
    LT_TRY(lt_linear(
        p->dev,
        &(lt_linear_args){.out = p->x, .x = a, .w = b->cross_o, .rows = rows, .accumulate = true}));
    lt_arena_reset(&p->r->arena, mark);
    return LT_OK;
}

static lt_status feed_forward(pass *p, int32_t block)
{
    const lti_dit_block *b = &p->d->blocks[block];
    const int64_t rows = p->samples * p->n, chunk = p->r->chunk;
    const size_t mark = lt_arena_mark(&p->r->arena);
    lt_mat a, hidden;
    LT_TRY(scratch(p, &a, p->d->compute, chunk, p->dim));
    LT_TRY(scratch(p, &hidden, p->d->compute, chunk, p->d->c.ffn_dim));
    for (int64_t row = 0; row < rows; row += chunk) {
        const int64_t take = rows - row < chunk ? rows - row : chunk;
        LT_TRY(cancelled(p));
        LT_TRY(modulated_norm(p, a, row, take, block, 3));
        LT_TRY(lt_linear(
            p->dev, &(lt_linear_args){
                        .out = hidden, .x = a, .w = b->up, .rows = take, .act = LT_ACT_GELU_TANH}));
        LT_TRY(lt_linear(p->dev, &(lt_linear_args){.out = lti_at(p->x, row, 0),
                                                   .x = hidden,
                                                   .w = b->down,
                                                   .rows = take,
                                                   .gate = modulation(p, block, 5),
                                                   .gate_ld = 6 * p->dim,
                                                   .row_group = group_from(p, row)}));
    }
    lt_arena_reset(&p->r->arena, mark);
    return LT_OK;
}

static lt_patch_args patch_args(const pass *p, lt_mat tokens, float *latent, int32_t c,
                                bool to_latent)
{
    const int32_t patch = p->d->c.patch;
    return (lt_patch_args){.tokens = tokens,
                           .latent = latent,
                           .c = c,
                           .frames = p->frames,
                           .h = p->r->grid.rows * patch,
                           .w = p->r->grid.cols * patch,
                           .p = patch,
                           .order = p->r->order_dev,
                           .to_latent = to_latent};
}

static lt_status embed(pass *p)
{
    const lti_dit_config *c = &p->d->c;
    LT_TRY(scratch(p, &p->x, LT_F32, p->a->batch * p->n, p->dim));
    const size_t mark = lt_arena_mark(&p->r->arena);
    lt_mat tokens;
    LT_TRY(scratch(p, &tokens, p->d->compute, p->n, (int64_t)c->in_channels * c->patch * c->patch));
    for (int32_t s = 0; s < p->samples; s++) {
        union {
            const float *in;
            float *out;
        } latent = {.in = p->a->x[s]}; /* only read when making tokens */
        const lt_patch_args patch = patch_args(p, tokens, latent.out, c->in_channels, false);
        LT_TRY(lt_patch(p->dev, &patch));
        LT_TRY(lt_linear(p->dev, &(lt_linear_args){.out = lti_at(p->x, s * p->n, 0),
                                                   .x = tokens,
                                                   .w = p->d->patch,
                                                   .rows = p->n}));
    }
    lt_arena_reset(&p->r->arena, mark);
    return lti_probe_call(&p->r->probe, "patch_tokens", -1, p->x, p->samples * p->n, p->dim);
}

/* Samples that began with the same latent are equal until they meet their prompts. */
static lt_status part_ways(pass *p)
{
    for (int32_t s = p->samples; s < p->a->batch; s++)
        LT_TRY(lt_dev_copy(p->dev, lti_at(p->x, s * p->n, 0).data, p->x.data,
                           (size_t)(p->n * p->dim) * 4));
    p->samples = p->a->batch;
    return LT_OK;
}

static lt_status head_rows(pass *p, lt_mat a, lt_mat tokens, int64_t first, int64_t row,
                           int64_t rows)
{
    const float *table = p->r->times.head + p->time * 2 * p->dim;
    LT_TRY(lt_norm(p->dev, &(lt_norm_args){.out = a,
                                           .x = lti_at(p->x, first + row, 0),
                                           .rows = rows,
                                           .cols = p->dim,
                                           .kind = LT_NORM_LAYER,
                                           .eps = p->d->c.eps,
                                           .shift = table,
                                           .scale = table + p->dim,
                                           .mod_ld = 2 * p->dim,
                                           .row_group = group_from(p, first + row)}));
    return lt_linear(
        p->dev,
        &(lt_linear_args){.out = lti_at(tokens, row, 0), .x = a, .w = p->d->head, .rows = rows});
}

static lt_status head(pass *p)
{
    const lti_dit_config *c = &p->d->c;
    const int64_t chunk = p->r->chunk, cols = (int64_t)c->out_channels * c->patch * c->patch;
    const size_t mark = lt_arena_mark(&p->r->arena);
    lt_mat a, tokens;
    LT_TRY(scratch(p, &a, LT_F32, chunk, p->dim));
    LT_TRY(scratch(p, &tokens, LT_F32, p->n, cols));
    for (int32_t s = 0; s < p->samples; s++) {
        for (int64_t row = 0; row < p->n; row += chunk) {
            const int64_t take = p->n - row < chunk ? p->n - row : chunk;
            LT_TRY(head_rows(p, a, tokens, s * p->n, row, take));
        }
        LT_TRY(lti_probe_call(&p->r->probe, "head_tokens", -1, tokens, p->n, cols));
        const lt_patch_args patch = patch_args(p, tokens, p->a->v[s], c->out_channels, true);
        LT_TRY(lt_patch(p->dev, &patch));
    }
    lt_arena_reset(&p->r->arena, mark);
    return LT_OK;
}

static int32_t frames_of(const lti_dit_run *r, const lti_dit_args *a)
{
    return a->cache[0] && a->frames ? a->frames : r->grid.frames;
}

static lt_status check_cache(const lti_dit_run *r, const lti_dit_args *a, int32_t s)
{
    lt_ctx *ctx = lt_dev_ctx(r->d->dev);
    const int32_t frames = frames_of(r, a);
    if (!a->cache[s]) return lti_fail(ctx, LT_ERR_ARG, "sample %d has no cache", s);
    if (frames < 1 || frames > r->grid.frames || frames != lt_cache_open_frames(a->cache[s]))
        return lti_fail(ctx, LT_ERR_ARG, "pass of %d frames, made for %d; the open block has %d",
                        frames, r->grid.frames, lt_cache_open_frames(a->cache[s]));
    const lt_mat kv = lt_cache_layer(a->cache[s], 0);
    if (kv.ld != 2 * r->d->c.dim || kv.dtype != r->d->compute)
        return lti_fail(ctx, LT_ERR_ARG, "cache with rows of %lld %s, the model's are %d %s",
                        (long long)kv.ld, lt_dtype_name(kv.dtype), 2 * r->d->c.dim,
                        lt_dtype_name(r->d->compute));
    return LT_OK;
}

static lt_status check_pass(lti_dit_run *r, const lti_dit_args *a)
{
    lt_ctx *ctx = lt_dev_ctx(r->d->dev);
    if (a->batch < 1 || a->batch > r->batch)
        return lti_fail(ctx, LT_ERR_ARG, "pass of %d samples, made for %d", a->batch, r->batch);
    if (a->branch < 0 || a->branch + a->batch > LTI_DIT_BATCH)
        return lti_fail(ctx, LT_ERR_ARG, "pass of samples %d..%d of %d", a->branch,
                        a->branch + a->batch - 1, LTI_DIT_BATCH);
    for (int32_t s = 0; s < a->batch; s++) {
        if (a->cache[0]) LT_TRY(check_cache(r, a, s));
        if (!a->cache[0] && lt_plan_lq(a->prompt[s]->plan) != r->n)
            return lti_fail(ctx, LT_ERR_ARG, "prompt made for %lld tokens, pass has %lld",
                            (long long)lt_plan_lq(a->prompt[s]->plan), (long long)r->n);
    }
    const int64_t tokens = r->n / r->grid.frames * frames_of(r, a);
    for (int64_t i = 0; i < (a->token_time ? tokens : 1); i++) {
        const int32_t t = a->token_time ? a->token_time[i] : a->time;
        if (t < 0 || t >= r->times.n)
            return lti_fail(ctx, LT_ERR_ARG,
                            "timestep number %d of token %lld: the schedule has %d", t,
                            (long long)i, r->times.n);
    }
    return LT_OK;
}

static lt_status set_times(pass *p)
{
    const int32_t *times = p->a->token_time;
    p->time = times ? 0 : p->a->time;
    p->group = times ? p->r->group : NULL;
    if (!times) return LT_OK;
    const int32_t *order = p->r->order;
    for (int64_t i = 0; i < p->a->batch * p->n; i++) {
        const int64_t token = i % p->n;
        p->r->group_host[order ? i - token + order[token] : i] = times[token];
    }
    return lt_dev_upload(p->dev, p->r->group, p->r->group_host,
                         (size_t)(p->a->batch * p->n) * sizeof(int32_t));
}

lt_status lti_dit_forward(lti_dit_run *r, const lti_dit_args *a)
{
    LT_TRY(check_pass(r, a));
    pass p = {.r = r,
              .d = r->d,
              .a = a,
              .dev = r->d->dev,
              .frames = frames_of(r, a),
              .dim = r->d->c.dim,
              .samples = a->batch};
    p.n = r->n / r->grid.frames * p.frames;
    if (a->batch == 2 && a->x[0] == a->x[1] && !a->cache[0]) p.samples = 1;
    lt_arena_reset(&r->arena, 0);
    LT_TRY(set_times(&p));
    LT_TRY(embed(&p));
    for (int32_t i = 0; i < r->d->c.layers; i++) {
        p.block = i;
        LT_TRY(self_attention(&p, i));
        LT_TRY(part_ways(&p));
        LT_TRY(cross_attention(&p, i));
        LT_TRY(feed_forward(&p, i));
        LT_TRY(lti_probe_call(&r->probe, "out", i, p.x, p.samples * p.n, p.dim));
    }
    return head(&p);
}
