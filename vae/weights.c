/* weights.c: tensors of a file become packed weights, node by node. */
#include "vae/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct loader {
    lt_vae *vae;
    const lt_tensor_source *source;
    lt_ctx *ctx;
    lti_vae_node *node;
} loader;

static lt_status get(loader *ld, const lti_vae_layer *l, const char *leaf, int ndim, lt_tensor *out)
{
    char name[96];
    int64_t dim[LT_MAX_DIMS];
    lti_vae_layer_name(name, sizeof name, ld->node, l->suffix, leaf);
    LT_TRY(ld->source->get(ld->source->user, name, out));
    lti_vae_layer_dims(l, dim);
    if (out->ndim != ndim)
        return lti_fail(ld->ctx, LT_ERR_SHAPE, "%s: %d dimensions, wanted %d", name, out->ndim,
                        ndim);
    for (int i = 0; i < ndim; i++)
        if (out->dim[i] != dim[i])
            return lti_fail(ld->ctx, LT_ERR_SHAPE, "%s: dimension %d is %lld, wanted %lld", name, i,
                            (long long)out->dim[i], (long long)dim[i]);
    if (!lt_dtype_size(out->dtype))
        return lti_fail(ld->ctx, LT_ERR_DTYPE, "%s: type %d is not f32, f16 or bf16", name,
                        (int)out->dtype);
    return LT_OK;
}

static void done(loader *ld, const lt_tensor *t)
{
    if (ld->source->done) ld->source->done(ld->source->user, t);
}

static lt_status load_gamma(loader *ld, const lti_vae_layer *l, float **out)
{
    lt_tensor t;
    void *dst;
    LT_TRY(get(ld, l, "gamma", l->ndim, &t));
    const size_t bytes = (size_t)l->out * sizeof(float);
    float *host = malloc(bytes);
    if (!host)
        return lti_fail(ld->ctx, LT_ERR_MEM, "vae: no memory for %zu bytes of %s", bytes, t.name);
    for (int32_t i = 0; i < l->out; i++)
        host[i] = lti_load(t.data, t.dtype, i);
    lt_status s = lt_dev_alloc(ld->vae->dev, &dst, bytes, LT_TAG_WEIGHTS);
    if (s >= 0) {
        *out = dst;
        s = lt_dev_upload(ld->vae->dev, dst, host, bytes);
    }
    free(host);
    done(ld, &t);
    return s;
}

static lt_status pack(loader *ld, lt_weight **out, const lt_weight_part *part, int64_t in, int taps,
                      lt_dtype compute)
{
    const lt_weight_options opt = {.parts = part,
                                   .nparts = 1,
                                   .in = in,
                                   .taps = taps,
                                   .compute = compute,
                                   .tag = LT_TAG_WEIGHTS};
    return lt_weight_create(out, ld->vae->dev, &opt);
}

/* Nearest 2x followed by 3x3 is, for each of the four phases (py, px) of an output pixel, a 2x2 convolution of the small
 * picture: of the three rows py-1, py, py+1 around it two fall on the same source row, so their weights add up.
 * Row ky falls on tap (py + ky + 1) / 2 - py, whose source row is y + tap - 1 + py. The sums are made in f32. */
static lt_status pack_phases(loader *ld, const lti_vae_layer *l, const lt_weight_part *part)
{
    size_t pairs, bytes;
    if (!lti_mul_size(&pairs, (size_t)l->out, (size_t)l->in) ||
        !lti_mul_size(&bytes, pairs, 13 * sizeof(float)))
        return lti_fail(ld->ctx, LT_ERR_MEM, "vae: %s is too large", ld->node->name);
    float *full = malloc(bytes); /* [pairs, 9], then one phase [pairs, 4] */
    if (!full)
        return lti_fail(ld->ctx, LT_ERR_MEM, "vae: no memory for %zu bytes of %s", bytes,
                        ld->node->name);
    float *phase = full + 9 * pairs;
    for (size_t i = 0; i < 9 * pairs; i++)
        full[i] = lti_load(part->data, part->dtype, (int64_t)i);
    lt_status s = LT_OK;
    for (int p = 0; p < 4 && s >= 0; p++) {
        const int py = p / 2, px = p % 2;
        memset(phase, 0, 4 * pairs * sizeof(float));
        for (size_t i = 0; i < pairs; i++)
            for (int k = 0; k < 9; k++) {
                const int row = (py + k / 3 + 1) / 2 - py, col = (px + k % 3 + 1) / 2 - px;
                phase[4 * i + (size_t)(2 * row + col)] += full[9 * i + (size_t)k];
            }
        lt_weight_part summed = *part;
        summed.data = phase;
        summed.dtype = LT_F32;
        s = pack(ld, &ld->node->w[p], &summed, l->in, 4, ld->vae->config.compute);
    }
    free(full);
    return s;
}

/* Output channels [0, C) of the time convolution make the first frame, [C, 2C) the second. */
static lt_status pack_halves(loader *ld, const lti_vae_layer *l, const lt_weight_part *part)
{
    const size_t rows = (size_t)l->out / 2;
    for (size_t half = 0; half < 2; half++) {
        lt_weight_part p = *part;
        p.out = (int64_t)rows;
        p.data =
            (const char *)part->data + half * rows * (size_t)l->in * 3 * lt_dtype_size(part->dtype);
        p.bias = (const char *)part->bias + half * rows * lt_dtype_size(part->bias_dtype);
        LT_TRY(pack(ld, &ld->node->w[4 + half], &p, l->in, 3, ld->vae->config.compute));
    }
    return LT_OK;
}

static lt_status load_conv(loader *ld, const lti_vae_layer *l, int slot)
{
    lt_tensor w, b;
    LT_TRY(get(ld, l, "weight", l->ndim, &w));
    LT_TRY(get(ld, l, "bias", 1, &b));
    lt_weight_part part = {
        .data = w.data, .dtype = w.dtype, .out = l->out, .bias = b.data, .bias_dtype = b.dtype};
    lti_vae_node *node = ld->node;
    lt_status s;
    if (node->op == LTI_VAE_UP && slot == 0) {
        s = pack_phases(ld, l, &part);
    } else if (node->op == LTI_VAE_UP) {
        s = pack_halves(ld, l, &part);
    } else {
        /* the 1x1x1 convolutions next to the latent cost nothing and stay in f32; of the encoder's output the log-variance
         * is not used */
        const bool point = node->op == LTI_VAE_POINT;
        if (point) part.out = ld->vae->config.z_dim;
        s = pack(ld, &node->w[slot], &part, l->in, l->kt * l->k * l->k,
                 point ? LT_F32 : ld->vae->config.compute);
    }
    if (s >= 0) {
        done(ld, &w);
        done(ld, &b);
    }
    return s;
}

static lt_status load_node(loader *ld)
{
    lti_vae_layer layer[LTI_VAE_MAX_LAYERS];
    const int n = lti_vae_node_layers(ld->node, layer);
    for (int i = 0, gammas = 0, convs = 0; i < n; i++) {
        const lti_vae_layer *l = &layer[i];
        LT_TRY(l->gamma ? load_gamma(ld, l, &ld->node->gamma[gammas++])
                        : load_conv(ld, l, convs++));
    }
    return LT_OK;
}

lt_status lti_vae_net_load(lt_vae *vae, lti_vae_net *net, const lt_tensor_source *source)
{
    loader ld = {.vae = vae, .source = source, .ctx = lt_dev_ctx(vae->dev)};
    lt_status s = LT_OK;
    for (int i = 0; i < net->n && s >= 0; i++) {
        ld.node = &net->node[i];
        s = load_node(&ld);
    }
    done(&ld, NULL);
    return s;
}

void lti_vae_net_free(lt_dev *dev, lti_vae_net *net)
{
    for (int i = 0; i < net->n; i++) {
        for (size_t j = 0; j < LT_COUNT(net->node[i].w); j++)
            lt_weight_destroy(dev, &net->node[i].w[j]);
        for (size_t j = 0; j < LT_COUNT(net->node[i].gamma); j++)
            lt_dev_free(dev, net->node[i].gamma[j]);
    }
}

/* ---- the VAE ----------------------------------------------------------------------------- */

/* z_vae = z * std + mean, and back z = z_vae / std - mean / std. */
static lt_status load_scale(lt_vae *vae)
{
    const lt_vae_config *c = &vae->config;
    const size_t z = (size_t)c->z_dim;
    float host[4 * LT_VAE_MAX_Z];
    void *dst;
    for (size_t i = 0; i < z; i++) {
        host[i] = c->std[i];
        host[z + i] = c->mean[i];
        host[2 * z + i] = (float)(1.0 / (double)c->std[i]);
        host[3 * z + i] = (float)(-(double)c->mean[i] / (double)c->std[i]);
    }
    LT_TRY(lt_dev_alloc(vae->dev, &dst, 4 * z * sizeof(float), LT_TAG_WEIGHTS));
    vae->scale = dst;
    return lt_dev_upload(vae->dev, dst, host, 4 * z * sizeof(float));
}

lt_status lt_vae_create(lt_vae **out, lt_dev *dev, const lt_vae_config *config,
                        const lt_tensor_source *source)
{
    *out = NULL;
    LT_TRY(lti_vae_config_check(lt_dev_ctx(dev), config));
    lt_vae *vae = calloc(1, sizeof *vae);
    if (!vae) return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for a vae");
    vae->dev = dev;
    vae->config = *config;
    lt_status s = load_scale(vae);
    if (s >= 0 && !config->no_encoder) {
        lti_vae_net_make(&vae->encoder, config, false);
        s = lti_vae_net_load(vae, &vae->encoder, source);
    }
    if (s >= 0 && !config->no_decoder) {
        lti_vae_net_make(&vae->decoder, config, true);
        s = lti_vae_net_load(vae, &vae->decoder, source);
    }
    if (s < 0) {
        lt_vae_destroy(&vae);
        return s;
    }
    *out = vae;
    return LT_OK;
}

void lt_vae_destroy(lt_vae **vae)
{
    if (!vae || !*vae) return;
    lti_vae_net_free((*vae)->dev, &(*vae)->encoder);
    lti_vae_net_free((*vae)->dev, &(*vae)->decoder);
    lt_dev_free((*vae)->dev, (*vae)->scale);
    free(*vae);
    *vae = NULL;
}

const lt_vae_config *lt_vae_get_config(const lt_vae *vae)
{
    return &vae->config;
}
