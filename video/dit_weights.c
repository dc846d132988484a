/* dit_weights.c: the transformer's weights, packed once for the device. Names are the original ones of Wan. */
#include "video/dit_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct loader {
    lti_dit *d;
    lt_ctx *ctx;
    const lt_tensor_source *src;
    float *next; /* device: where the next vector goes */
} loader;

static int64_t elements(const lt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}

/* NULL: of all */
static void release(const loader *l, const lt_tensor *t)
{
    if (l->src->done) l->src->done(l->src->user, t);
}

/* A tensor of `rows` x `cols` elements, rows first, whatever its number of dimensions. */
static lt_status fetch(const loader *l, lt_tensor *t, const char *name, int64_t rows, int64_t cols)
{
    *t = (lt_tensor){0};
    LT_TRY(l->src->get(l->src->user, name, t));
    const int64_t n = elements(t);
    const bool flat = rows == 1; /* vectors come as [n], [1, n] and [1, 6, n / 6] */
    if (n == rows * cols && (flat || (t->ndim >= 2 && t->dim[0] == rows))) return LT_OK;
    return lti_fail(l->ctx, LT_ERR_SHAPE,
                    "tensor %s: %lld elements with first dimension %lld, expected %lld x %lld",
                    name, (long long)n, (long long)(t->ndim ? t->dim[0] : 0), (long long)rows,
                    (long long)cols);
}

enum { MAX_PARTS = 3, NAME_BYTES = 96 };

typedef struct linear_spec {
    const char *name[MAX_PARTS]; /* without ".weight" and ".bias" */
    int parts;
    int block; /* -1: none */
    int64_t out, in;
    lt_dtype compute;
} linear_spec;

static lt_status pack(const loader *l, lt_weight **out, linear_spec s)
{
    lt_tensor w[MAX_PARTS] = {0}, b[MAX_PARTS] = {0};
    lt_weight_part part[MAX_PARTS];
    for (int i = 0; i < s.parts; i++) {
        char prefix[NAME_BYTES / 2] = "", name[NAME_BYTES];
        if (s.block >= 0) snprintf(prefix, sizeof prefix, "blocks.%d.", s.block);
        snprintf(name, sizeof name, "%s%s.weight", prefix, s.name[i]);
        LT_TRY(fetch(l, &w[i], name, s.out, s.in));
        snprintf(name, sizeof name, "%s%s.bias", prefix, s.name[i]);
        LT_TRY(fetch(l, &b[i], name, 1, s.out));
        part[i] = (lt_weight_part){.data = w[i].data,
                                   .dtype = w[i].dtype,
                                   .out = s.out,
                                   .bias = b[i].data,
                                   .bias_dtype = b[i].dtype};
    }
    LT_TRY(lt_weight_create(out, l->d->dev,
                            &(lt_weight_options){.parts = part,
                                                 .nparts = s.parts,
                                                 .in = s.in,
                                                 .compute = s.compute,
                                                 .tag = LT_TAG_WEIGHTS}));
    for (int i = 0; i < s.parts; i++) {
        release(l, &w[i]);
        release(l, &b[i]);
    }
    return LT_OK;
}

static lt_status vector(loader *l, float **out, int block, const char *suffix, int64_t n)
{
    char name[NAME_BYTES];
    lt_tensor t;
    if (block >= 0)
        snprintf(name, sizeof name, "blocks.%d.%s", block, suffix);
    else
        snprintf(name, sizeof name, "%s", suffix);
    LT_TRY(fetch(l, &t, name, 1, n));
    float *host = malloc((size_t)n * sizeof *host);
    if (!host) return lti_fail(l->ctx, LT_ERR_MEM, "no memory for tensor %s", name);
    for (int64_t i = 0; i < n; i++)
        host[i] = lti_load(t.data, t.dtype, i);
    const lt_status s = lt_dev_upload(l->d->dev, l->next, host, (size_t)n * sizeof *host);
    free(host);
    release(l, &t);
    *out = l->next;
    l->next += n;
    return s;
}

static lt_status load_block(loader *l, int i)
{
    lti_dit_block *b = &l->d->blocks[i];
    const int64_t d = l->d->c.dim, f = l->d->c.ffn_dim;
    const lt_dtype t = l->d->compute;
    LT_TRY(vector(l, &b->modulation, i, "modulation", 6 * d));
    LT_TRY(pack(l, &b->qkv,
                (linear_spec){{"self_attn.q", "self_attn.k", "self_attn.v"}, 3, i, d, d, t}));
    LT_TRY(pack(l, &b->o, (linear_spec){{"self_attn.o"}, 1, i, d, d, t}));
    LT_TRY(vector(l, &b->norm_q, i, "self_attn.norm_q.weight", d));
    LT_TRY(vector(l, &b->norm_k, i, "self_attn.norm_k.weight", d));
    LT_TRY(vector(l, &b->norm3, i, "norm3.weight", d));
    LT_TRY(vector(l, &b->norm3_bias, i, "norm3.bias", d));
    LT_TRY(pack(l, &b->cross_q, (linear_spec){{"cross_attn.q"}, 1, i, d, d, t}));
    LT_TRY(pack(l, &b->cross_kv, (linear_spec){{"cross_attn.k", "cross_attn.v"}, 2, i, d, d, t}));
    LT_TRY(pack(l, &b->cross_o, (linear_spec){{"cross_attn.o"}, 1, i, d, d, t}));
    LT_TRY(vector(l, &b->cross_norm_q, i, "cross_attn.norm_q.weight", d));
    LT_TRY(vector(l, &b->cross_norm_k, i, "cross_attn.norm_k.weight", d));
    LT_TRY(pack(l, &b->up, (linear_spec){{"ffn.0"}, 1, i, f, d, t}));
    return pack(l, &b->down, (linear_spec){{"ffn.2"}, 1, i, d, f, t});
}

/* Numbers in the f32 vectors: a block has a modulation of 6 D and six vectors of D, the head one of 2 D. */
static int64_t vector_floats(const lti_dit_config *c)
{
    return (int64_t)c->dim * (12 * (int64_t)c->layers + 2);
}

static lt_status load(loader *l)
{
    lti_dit *dit = l->d;
    const lti_dit_config *c = &dit->c;
    const int64_t d = c->dim, area = (int64_t)c->patch * c->patch;
    const lt_dtype t = dit->compute;
    LT_TRY(lt_dev_alloc(dit->dev, (void **)&dit->vectors, (size_t)vector_floats(c) * sizeof(float),
                        LT_TAG_WEIGHTS));
    l->next = dit->vectors;
    LT_TRY(pack(l, &dit->patch,
                (linear_spec){{"patch_embedding"}, 1, -1, d, c->in_channels * area, t}));
    LT_TRY(pack(l, &dit->text0, (linear_spec){{"text_embedding.0"}, 1, -1, d, c->text_dim, t}));
    LT_TRY(pack(l, &dit->text2, (linear_spec){{"text_embedding.2"}, 1, -1, d, d, t}));
    LT_TRY(
        pack(l, &dit->time0, (linear_spec){{"time_embedding.0"}, 1, -1, d, c->freq_dim, LT_F32}));
    LT_TRY(pack(l, &dit->time2, (linear_spec){{"time_embedding.2"}, 1, -1, d, d, LT_F32}));
    LT_TRY(pack(l, &dit->time_proj, (linear_spec){{"time_projection.1"}, 1, -1, 6 * d, d, LT_F32}));
    for (int i = 0; i < c->layers; i++)
        LT_TRY(load_block(l, i));
    LT_TRY(vector(l, &dit->head_modulation, -1, "head.modulation", 2 * d));
    return pack(l, &dit->head,
                (linear_spec){{"head.head"}, 1, -1, c->out_channels * area, d, LT_F32});
}

static lt_status check_config(lt_ctx *ctx, const lti_dit_config *c)
{
    if (c->dim < 2 || c->heads < 1 || c->head_dim < 2 || c->head_dim % 2 ||
        (int64_t)c->heads * c->head_dim != c->dim)
        return lti_fail(ctx, LT_ERR_ARG, "DiT: width %d is not %d heads of an even size %d", c->dim,
                        c->heads, c->head_dim);
    if (c->layers < 1 || c->ffn_dim < 1 || c->in_channels < 1 || c->out_channels < 1 ||
        c->text_dim < 1 || c->text_len < 1 || c->freq_dim < 2 || c->freq_dim % 2 || c->patch < 1)
        return lti_fail(ctx, LT_ERR_ARG, "DiT: a size of the configuration is not positive");
    return LT_OK;
}

lt_status lti_dit_create(lti_dit **out, lt_dev *dev, const lti_dit_config *config, lt_dtype compute,
                         const lt_tensor_source *source)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(dev);
    LT_TRY(check_config(ctx, config));
    lti_dit *d = calloc(1, sizeof *d);
    if (d) d->blocks = calloc((size_t)config->layers, sizeof *d->blocks);
    if (!d || !d->blocks) {
        free(d);
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a transformer of %d blocks",
                        config->layers);
    }
    d->dev = dev;
    d->c = *config;
    d->compute = compute;
    loader l = {.d = d, .ctx = ctx, .src = source};
    const lt_status s = load(&l);
    release(&l, NULL);
    if (s < 0) {
        lti_dit_destroy(&d);
        return s;
    }
    *out = d;
    return LT_OK;
}

void lti_dit_destroy(lti_dit **dit)
{
    lti_dit *d = dit ? *dit : NULL;
    if (!d) return;
    for (int i = 0; i < d->c.layers; i++) {
        lti_dit_block *b = &d->blocks[i];
        lt_weight **w[] = {&b->qkv,     &b->o,  &b->cross_q, &b->cross_kv,
                           &b->cross_o, &b->up, &b->down};
        for (size_t k = 0; k < LT_COUNT(w); k++)
            lt_weight_destroy(d->dev, w[k]);
    }
    lt_weight **w[] = {&d->patch, &d->text0,     &d->text2, &d->time0,
                       &d->time2, &d->time_proj, &d->head};
    for (size_t k = 0; k < LT_COUNT(w); k++)
        lt_weight_destroy(d->dev, w[k]);
    lt_dev_free(d->dev, d->vectors);
    free(d->blocks);
    free(d);
    *dit = NULL;
}

const lti_dit_config *lti_dit_get_config(const lti_dit *dit)
{
    return &dit->c;
}

lt_dtype lti_dit_compute(const lti_dit *dit)
{
    return dit->compute;
}

lt_dev *lti_dit_device(const lti_dit *dit)
{
    return dit->dev;
}

uint64_t lti_dit_weight_bytes(const lti_dit_config *c, lt_dtype compute)
{
    const uint64_t d = (uint64_t)c->dim, f = (uint64_t)c->ffn_dim, n = (uint64_t)c->layers;
    const uint64_t area = (uint64_t)c->patch * (uint64_t)c->patch;
    const uint64_t in_compute = n * (8 * d * d + 2 * d * f) + d * d + d * (uint64_t)c->text_dim +
                                d * area * (uint64_t)c->in_channels;
    const uint64_t biases = n * (9 * d + f) + 11 * d + area * (uint64_t)c->out_channels;
    const uint64_t in_f32 =
        d * (uint64_t)c->freq_dim + 7 * d * d + area * (uint64_t)c->out_channels * d;
    return in_compute * lt_dtype_size(compute) + 4 * (in_f32 + biases + (uint64_t)vector_floats(c));
}
