/* text.c: see text.h. Letters: R rows (tokens of all texts), D model width, A attention width, F feed-forward width.
 *
 *   x += Wo attn(q, k, v)          q, k, v = Wqkv (rms(x) g1), bias of relative position, no 1/sqrt(d)
 *   x += W2 (gelu(Wg y) * (W1 y))  y = rms(x) g2
 *
 * A matrix is read, packed, used and freed before the next one is touched: at most one is in memory.
 */
#include "video/text.h"

#include "attention/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    lt_dev *dev;
    lt_ctx *ctx;
    const lti_text_job *job;
    const lti_text_config *c;
    int64_t rows, attn; /* R, A */
    lt_arena arena;
    float *x;        /* [R, D] the residual stream */
    void *y;         /* [R, D] compute type: normed */
    float *final;    /* [R, D] the result; shares the place of h, which is free by then */
    void *qkv, *att; /* [R, 3A], [R, A] compute type */
    float *h;        /* [R, 2F]: gate, then linear side */
    void *g;         /* [R, F] compute type */
    float *vec;      /* [D] weights of the norm at hand */
    float *bias;     /* [heads, 2*rel_max+1] */
    int32_t rel_max;
    lt_plan **plan; /* one a text */
} run;

/* ---- tensors ----------------------------------------------------------------------------- */

static lt_status get(const run *r, const char *name, int ndim, int64_t d0, int64_t d1,
                     lt_tensor *out)
{
    LT_TRY(r->job->source->get(r->job->source->user, name, out));
    if (out->ndim == ndim && out->dim[0] == d0 && (ndim < 2 || out->dim[1] == d1)) return LT_OK;
    return lti_fail(r->ctx, LT_ERR_SHAPE,
                    "text encoder tensor \"%s\": first dimensions %lld x %lld of %d, expected "
                    "%lld x %lld of %d",
                    name, (long long)(out->ndim > 0 ? out->dim[0] : 0),
                    (long long)(out->ndim > 1 ? out->dim[1] : 0), out->ndim, (long long)d0,
                    (long long)d1, ndim);
}

static void done(const run *r, const lt_tensor *t)
{
    if (r->job->source->done) r->job->source->done(r->job->source->user, t);
}

static lt_status load_norm(run *r, const char *name)
{
    lt_tensor t;
    LT_TRY(get(r, name, 1, r->c->dim, 0, &t));
    float *host = malloc((size_t)r->c->dim * sizeof *host);
    if (!host) return lti_fail(r->ctx, LT_ERR_MEM, "no memory for %d norm weights", r->c->dim);
    for (int32_t i = 0; i < r->c->dim; i++)
        host[i] = lti_load(t.data, t.dtype, i);
    const lt_status s = lt_dev_upload(r->dev, r->vec, host, (size_t)r->c->dim * sizeof *host);
    free(host);
    done(r, &t);
    return s;
}

/* One to three matrices of the same input, stacked. */
static lt_status pack(run *r, lt_weight **w, int64_t in, int n, const char *const *names,
                      const int64_t *out)
{
    lt_weight_part part[3] = {{0}};
    lt_tensor t[3];
    *w = NULL;
    for (int i = 0; i < n; i++) {
        LT_TRY(get(r, names[i], 2, out[i], in, &t[i]));
        part[i] = (lt_weight_part){.data = t[i].data, .dtype = t[i].dtype, .out = out[i]};
    }
    LT_TRY(lt_weight_create(
        w, r->dev,
        &(lt_weight_options){
            .parts = part, .nparts = n, .in = in, .compute = r->job->compute, .tag = LT_TAG_TEXT}));
    for (int i = 0; i < n; i++)
        done(r, &t[i]);
    return LT_OK;
}

/* out (+)= in * the stacked matrices. */
static lt_status multiply(run *r, lt_mat out, const void *in, int64_t cols, bool accumulate, int n,
                          const char *const *names, const int64_t *rows)
{
    lt_weight *w;
    LT_TRY(pack(r, &w, cols, n, names, rows));
    const lt_status s = lt_linear(
        r->dev, &(lt_linear_args){.out = out,
                                  .x = {.data = (void *)(uintptr_t)in, .dtype = r->job->compute},
                                  .w = w,
                                  .rows = r->rows,
                                  .accumulate = accumulate});
    lt_weight_destroy(r->dev, &w);
    return s;
}

static lt_status norm(run *r, lt_mat out, const char *name)
{
    LT_TRY(load_norm(r, name));
    return lt_norm(r->dev, &(lt_norm_args){.out = out,
                                           .x = {.data = r->x, .dtype = LT_F32},
                                           .rows = r->rows,
                                           .cols = r->c->dim,
                                           .kind = LT_NORM_RMS,
                                           .eps = r->c->eps,
                                           .weight = r->vec});
}

/* ---- relative position bias -------------------------------------------------------------- */

/* Of key j seen from query i, delta = j - i (spec 4.2): half of the buckets a side; of those, half for single distances, half
 * logarithmic up to max_distance. The small addend keeps powers of two, which fall exactly on a boundary, on its upper side. */
static int32_t bucket(const lti_text_config *c, int32_t delta)
{
    const int32_t half = c->buckets / 2, exact = half / 2;
    const int32_t a = abs(delta), base = delta > 0 ? half : 0;
    if (a < exact) return base + a;
    const double at = log((double)a / exact) / log((double)c->max_distance / exact);
    const int32_t far = exact + (int32_t)(at * (half - exact) + 1e-9);
    return base + (far < half ? far : half - 1);
}

static lt_status load_bias(run *r, int32_t layer)
{
    char name[96];
    lt_tensor t;
    snprintf(name, sizeof name, "blocks.%d.pos_embedding.embedding.weight", layer);
    LT_TRY(get(r, name, 2, r->c->buckets, r->c->heads, &t));
    const int32_t m = r->rel_max, width = 2 * m + 1;
    const size_t bytes = (size_t)r->c->heads * (size_t)width * sizeof(float);
    float *host = malloc(bytes);
    if (!host) return lti_fail(r->ctx, LT_ERR_MEM, "no memory for %zu bytes of bias", bytes);
    for (int32_t d = -m; d <= m; d++) {
        const int64_t b = bucket(r->c, d);
        for (int32_t h = 0; h < r->c->heads; h++)
            host[(int64_t)h * width + d + m] = lti_load(t.data, t.dtype, b * r->c->heads + h);
    }
    const lt_status s = lt_dev_upload(r->dev, r->bias, host, bytes);
    free(host);
    done(r, &t);
    return s;
}

/* ---- a layer ----------------------------------------------------------------------------- */

static lt_mat column(void *data, lt_dtype t, int64_t first, int64_t ld)
{
    return (lt_mat){.data = (char *)data + (size_t)first * lt_dtype_size(t), .dtype = t, .ld = ld};
}

/* Text by text: a text's rows are then the same whatever else is in the call. */
static lt_status attend(run *r)
{
    const lt_dtype t = r->job->compute;
    const int64_t A = r->attn;
    int64_t first = 0;
    for (int32_t i = 0; i < r->job->texts; i++) {
        const int64_t n = r->job->len[i], at = first * 3 * A;
        LT_TRY(lt_attention(r->dev, &(lt_attention_args){.out = column(r->att, t, first * A, 0),
                                                         .q = column(r->qkv, t, at, 3 * A),
                                                         .k = column(r->qkv, t, at + A, 3 * A),
                                                         .v = column(r->qkv, t, at + 2 * A, 3 * A),
                                                         .lq = n,
                                                         .lk = n,
                                                         .heads = r->c->heads,
                                                         .head_dim = r->c->head_dim,
                                                         .scale = 1.0f,
                                                         .plan = lt_plan_kernel(r->plan[i]),
                                                         .rel_bias = r->bias,
                                                         .rel_max = r->rel_max}));
        first += n;
    }
    return LT_OK;
}

static lt_status self_attention(run *r, int32_t layer)
{
    char norm1[64], q[64], k[64], v[64], o[64];
    snprintf(norm1, sizeof norm1, "blocks.%d.norm1.weight", layer);
    snprintf(q, sizeof q, "blocks.%d.attn.q.weight", layer);
    snprintf(k, sizeof k, "blocks.%d.attn.k.weight", layer);
    snprintf(v, sizeof v, "blocks.%d.attn.v.weight", layer);
    snprintf(o, sizeof o, "blocks.%d.attn.o.weight", layer);
    const lt_dtype t = r->job->compute;
    const int64_t A = r->attn, D = r->c->dim;
    LT_TRY(load_bias(r, layer));
    LT_TRY(norm(r, (lt_mat){.data = r->y, .dtype = t}, norm1));
    LT_TRY(multiply(r, (lt_mat){.data = r->qkv, .dtype = t}, r->y, D, false, 3,
                    (const char *const[]){q, k, v}, (const int64_t[]){A, A, A}));
    LT_TRY(attend(r));
    return multiply(r, (lt_mat){.data = r->x, .dtype = LT_F32}, r->att, A, true, 1,
                    (const char *const[]){o}, &D);
}

static lt_status feed_forward(run *r, int32_t layer)
{
    char norm2[64], gate[64], fc1[64], fc2[64];
    snprintf(norm2, sizeof norm2, "blocks.%d.norm2.weight", layer);
    snprintf(gate, sizeof gate, "blocks.%d.ffn.gate.0.weight", layer);
    snprintf(fc1, sizeof fc1, "blocks.%d.ffn.fc1.weight", layer);
    snprintf(fc2, sizeof fc2, "blocks.%d.ffn.fc2.weight", layer);
    const lt_dtype t = r->job->compute;
    const int64_t F = r->c->ffn_dim, D = r->c->dim;
    LT_TRY(norm(r, (lt_mat){.data = r->y, .dtype = t}, norm2));
    LT_TRY(multiply(r, (lt_mat){.data = r->h, .dtype = LT_F32}, r->y, D, false, 2,
                    (const char *const[]){gate, fc1}, (const int64_t[]){F, F}));
    LT_TRY(lt_map(r->dev, &(lt_map_args){.out = {.data = r->g, .dtype = t},
                                         .x = column(r->h, LT_F32, 0, 2 * F),
                                         .y = column(r->h, LT_F32, F, 2 * F),
                                         .rows = r->rows,
                                         .cols = F,
                                         .act = LT_ACT_GELU_TANH}));
    return multiply(r, (lt_mat){.data = r->x, .dtype = LT_F32}, r->g, F, true, 1,
                    (const char *const[]){fc2}, &D);
}

/* ---- the whole --------------------------------------------------------------------------- */

static lt_status check_job(run *r)
{
    const lti_text_job *job = r->job;
    if (job->texts < 1) return lti_fail(r->ctx, LT_ERR_ARG, "%d texts to encode", job->texts);
    if (job->compute != LT_F32 && job->compute != LT_BF16)
        return lti_fail(r->ctx, LT_ERR_ARG, "text encoder: compute type %d", (int)job->compute);
    for (int32_t i = 0; i < job->texts; i++) {
        if (job->len[i] < 1 || job->len[i] > r->c->max_tokens)
            return lti_fail(r->ctx, LT_ERR_ARG, "text %d has %d tokens, outside 1..%d", i,
                            job->len[i], r->c->max_tokens);
        for (int32_t k = 0; k < job->len[i]; k++)
            if (job->ids[i][k] < 0 || job->ids[i][k] >= r->c->vocab)
                return lti_fail(r->ctx, LT_ERR_ARG, "token %d of text %d is %d, outside 0..%d", k,
                                i, job->ids[i][k], r->c->vocab - 1);
        r->rows += job->len[i];
        if (job->len[i] - 1 > r->rel_max) r->rel_max = job->len[i] - 1;
    }
    /* farther apart than max_distance all keys are in the last bucket */
    if (r->rel_max > r->c->max_distance) r->rel_max = r->c->max_distance;
    return LT_OK;
}

typedef struct sizes {
    size_t x, y, qkv, att, h, g, vec, bias, sum;
} sizes;

static sizes sizes_of(const lti_text_config *c, lt_dtype t, int64_t rows, int32_t rel_max)
{
    const size_t R = (size_t)rows, D = (size_t)c->dim, F = (size_t)c->ffn_dim;
    const size_t A = (size_t)c->heads * (size_t)c->head_dim, e = lt_dtype_size(t);
    sizes s = {.x = R * D * 4,
               .y = R * D * e,
               .qkv = R * 3 * A * e,
               .att = R * A * e,
               .h = R * (2 * F > D ? 2 * F : D) * 4,
               .g = R * F * e,
               .vec = D * 4,
               .bias = (size_t)c->heads * (2 * (size_t)rel_max + 1) * 4};
    const size_t each[] = {s.x, s.y, s.qkv, s.att, s.h, s.g, s.vec, s.bias};
    for (size_t i = 0; i < LT_COUNT(each); i++)
        s.sum += lt_arena_need(each[i]);
    return s;
}

static lt_status reserve(run *r)
{
    const sizes s = sizes_of(r->c, r->job->compute, r->rows, r->rel_max);
    LT_TRY(lt_arena_create(&r->arena, r->dev, s.sum, LT_TAG_TEXT));
    LT_TRY(lt_arena_alloc(&r->arena, (void **)&r->x, s.x));
    LT_TRY(lt_arena_alloc(&r->arena, &r->y, s.y));
    LT_TRY(lt_arena_alloc(&r->arena, &r->qkv, s.qkv));
    LT_TRY(lt_arena_alloc(&r->arena, &r->att, s.att));
    LT_TRY(lt_arena_alloc(&r->arena, (void **)&r->h, s.h));
    r->final = r->h;
    LT_TRY(lt_arena_alloc(&r->arena, &r->g, s.g));
    LT_TRY(lt_arena_alloc(&r->arena, (void **)&r->vec, s.vec));
    LT_TRY(lt_arena_alloc(&r->arena, (void **)&r->bias, s.bias));
    r->plan = calloc((size_t)r->job->texts, sizeof(lt_plan *));
    if (!r->plan) return lti_fail(r->ctx, LT_ERR_MEM, "no memory for %d plans", r->job->texts);
    for (int32_t i = 0; i < r->job->texts; i++)
        LT_TRY(lt_plan_dense(&r->plan[i], r->dev, r->job->len[i], r->job->len[i], r->c->heads));
    return LT_OK;
}

/* The row of a token. Alone where the source can do that: 2 GB of table for a few kilobytes of prompt. */
static lt_status embed_token(run *r, float *host, int32_t id)
{
    static const char name[] = "token_embedding.weight";
    const lt_tensor_source *source = r->job->source;
    const int64_t D = r->c->dim;
    lt_tensor t;
    if (source->rows) {
        LT_TRY(source->rows(source->user, name, id, 1, &t));
        id = 0;
        if (t.ndim != 2 || t.dim[1] != D)
            return lti_fail(r->ctx, LT_ERR_SHAPE,
                            "text encoder tensor \"%s\": rows are not of %lld", name, (long long)D);
    } else {
        LT_TRY(get(r, name, 2, r->c->vocab, D, &t));
    }
    for (int64_t d = 0; d < D; d++)
        host[d] = lti_load(t.data, t.dtype, id * D + d);
    done(r, &t);
    return LT_OK;
}

static lt_status embed(run *r, float *host)
{
    const int64_t D = r->c->dim;
    int64_t row = 0;
    for (int32_t i = 0; i < r->job->texts; i++)
        for (int32_t k = 0; k < r->job->len[i]; k++, row++)
            LT_TRY(embed_token(r, host + row * D, r->job->ids[i][k]));
    return lt_dev_upload(r->dev, r->x, host, (size_t)(r->rows * D) * sizeof *host);
}

static lt_status layers(run *r)
{
    for (int32_t i = 0; i < r->c->layers; i++) {
        lt_status s = self_attention(r, i);
        if (s >= 0) s = feed_forward(r, i);
        if (s < 0) return lti_within(r->ctx, s, "text encoder, layer %d", i);
        if (r->job->layer_done && !r->job->layer_done(r->job->user, i + 1, r->c->layers))
            return lti_fail(r->ctx, LT_ERR_CANCELLED, "cancelled after text layer %d of %d", i + 1,
                            r->c->layers);
    }
    return LT_OK;
}

static lt_status finish(run *r, float *out)
{
    const int64_t n = r->rows * r->c->dim;
    LT_TRY(norm(r, (lt_mat){.data = r->final, .dtype = LT_F32}, "norm.weight"));
    lt_stats_result st;
    LT_TRY(lt_stats(r->dev, &(lt_stats_args){.x = r->final, .n = n, .result = &st}));
    if (st.nonfinite)
        return lti_fail(
            r->ctx, LT_ERR_NUMERIC,
            "text encoder: %lld of %lld values are not finite (are the weights intact?)",
            (long long)st.nonfinite, (long long)n);
    return lt_dev_download(r->dev, out, r->final, (size_t)n * sizeof *out);
}

lt_status lti_text_encode(lt_dev *dev, float *out, const lti_text_job *job)
{
    run r = {.dev = dev, .ctx = lt_dev_ctx(dev), .job = job, .c = job->config};
    r.attn = (int64_t)r.c->heads * r.c->head_dim;
    LT_TRY(check_job(&r));
    lt_status s = reserve(&r);
    if (s >= 0) s = embed(&r, out);
    if (s >= 0) s = layers(&r);
    if (s >= 0) s = finish(&r, out);
    done(&r, NULL);
    for (int32_t i = 0; r.plan && i < job->texts; i++)
        lt_plan_destroy(&r.plan[i]);
    free(r.plan);
    lt_arena_destroy(&r.arena);
    return s;
}

uint64_t lti_text_bytes(const lti_text_config *c, lt_dtype compute, int32_t rows)
{
    const uint64_t e = lt_dtype_size(compute), D = (uint64_t)c->dim;
    const uint64_t qkv = 3 * (uint64_t)c->heads * (uint64_t)c->head_dim * D;
    const uint64_t ffn = 2 * (uint64_t)c->ffn_dim * D;
    return sizes_of(c, compute, rows, c->max_distance).sum + (qkv > ffn ? qkv : ffn) * e;
}

double lti_text_flops(const lti_text_config *c, int32_t n)
{
    const double A = (double)c->heads * c->head_dim, D = c->dim, F = c->ffn_dim;
    return c->layers * (2.0 * n * (4 * A * D + 3 * F * D) + 4.0 * n * n * A);
}

void lti_text_list_tensors(const lti_text_config *c, lti_text_tensor_fn *fn, void *user)
{
    const int64_t D = c->dim, A = (int64_t)c->heads * c->head_dim, F = c->ffn_dim;
    const struct {
        const char *name;
        int ndim;
        int64_t dim[2];
    } block[] = {
        {"norm1.weight", 1, {D}},
        {"attn.q.weight", 2, {A, D}},
        {"attn.k.weight", 2, {A, D}},
        {"attn.v.weight", 2, {A, D}},
        {"attn.o.weight", 2, {D, A}},
        {"pos_embedding.embedding.weight", 2, {c->buckets, c->heads}},
        {"norm2.weight", 1, {D}},
        {"ffn.gate.0.weight", 2, {F, D}},
        {"ffn.fc1.weight", 2, {F, D}},
        {"ffn.fc2.weight", 2, {D, F}},
    };
    fn(user, "token_embedding.weight", 2, (const int64_t[]){c->vocab, D});
    for (int32_t i = 0; i < c->layers; i++)
        for (size_t k = 0; k < LT_COUNT(block); k++) {
            char name[96];
            snprintf(name, sizeof name, "blocks.%d.%s", i, block[k].name);
            fn(user, name, block[k].ndim, block[k].dim);
        }
    fn(user, "norm.weight", 1, &D);
}
