/* net.c: configurations, and the list of nodes that a configuration means: names, widths, sizes, FLOPs. */
#include "vae/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHANNELS = 16384, MAX_RES_BLOCKS = 8 };

lt_vae_config lt_vae_config_wan21(void)
{
    return (lt_vae_config){
        .z_dim = 16,
        .encoder_dim = 96,
        .decoder_dim = 96,
        .levels = 4,
        .mult = {1, 2, 4, 4},
        .num_res_blocks = 2,
        .temporal_down = {false, true, true},
        .mean = {-0.7571f, -0.7089f, -0.9113f, 0.1075f, -0.1745f, 0.9653f, -0.1517f, 1.5508f,
                 0.4134f, -0.0715f, 0.5517f, -0.3632f, -0.1922f, -0.9497f, 0.2503f, -0.2921f},
        .std = {2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f, 2.6052f, 2.0743f, 3.2687f,
                2.1526f, 2.8652f, 1.5579f, 1.6382f, 1.1253f, 2.8251f, 1.9160f},
        .compute = LT_F32,
    };
}

int32_t lt_vae_scale(const lt_vae_config *c)
{
    return (int32_t)1 << (c->levels - 1);
}

int32_t lt_vae_frame_scale(const lt_vae_config *c)
{
    int32_t scale = 1;
    for (int i = 0; i < c->levels - 1; i++)
        if (c->temporal_down[i]) scale *= 2;
    return scale;
}

static lt_status check_range(lt_ctx *ctx, const char *what, int32_t value, int32_t max)
{
    if (value < 1 || value > max)
        return lti_fail(ctx, LT_ERR_ARG, "vae: %s is %d, not in 1..%d", what, value, max);
    return LT_OK;
}

lt_status lti_vae_config_check(lt_ctx *ctx, const lt_vae_config *c)
{
    LT_TRY(check_range(ctx, "z_dim", c->z_dim, LT_VAE_MAX_Z));
    LT_TRY(check_range(ctx, "levels", c->levels, LT_VAE_MAX_LEVELS));
    LT_TRY(check_range(ctx, "num_res_blocks", c->num_res_blocks, MAX_RES_BLOCKS));
    LT_TRY(check_range(ctx, "encoder_dim", c->encoder_dim, MAX_CHANNELS));
    LT_TRY(check_range(ctx, "decoder_dim", c->decoder_dim, MAX_CHANNELS));
    const int32_t wide = c->encoder_dim > c->decoder_dim ? c->encoder_dim : c->decoder_dim;
    for (int i = 0; i < c->levels; i++) {
        LT_TRY(check_range(ctx, "a width multiplier", c->mult[i], MAX_CHANNELS / wide));
        /* every level but the first is what an upsampling halves */
        if (i > 0 && !c->no_decoder && c->decoder_dim * c->mult[i] % 2)
            return lti_fail(ctx, LT_ERR_ARG, "vae: decoder width %d of level %d is odd",
                            c->decoder_dim * c->mult[i], i);
    }
    for (int i = 0; i < c->z_dim; i++)
        if (!(c->std[i] > 0))
            return lti_fail(ctx, LT_ERR_ARG, "vae: std of latent channel %d is %g, not above 0", i,
                            (double)c->std[i]);
    if (c->compute != LT_F32 && c->compute != LT_BF16)
        return lti_fail(ctx, LT_ERR_DTYPE, "vae: compute type %s: not f32 or bf16",
                        lt_dtype_name(c->compute));
    if (c->no_encoder && c->no_decoder)
        return lti_fail(ctx, LT_ERR_ARG, "vae: neither encoder nor decoder wanted");
    return LT_OK;
}

lt_status lti_vae_size_check(lt_ctx *ctx, int32_t h, int32_t w)
{
    if (h < 1 || w < 1 || h > LTI_VAE_MAX_SIDE || w > LTI_VAE_MAX_SIDE)
        return lti_fail(ctx, LT_ERR_ARG, "vae: %d x %d latent pixels: each side must be 1..%d", w,
                        h, LTI_VAE_MAX_SIDE);
    return LT_OK;
}

/* ---- nodes ------------------------------------------------------------------------------- */

/* index < 0: none */
static void add(lti_vae_net *net, lti_vae_node node, const char *name, int index)
{
    assert(net->n < LTI_VAE_MAX_NODES);
    const int n = snprintf(node.name, sizeof node.name, "%s", name);
    if (index >= 0) snprintf(node.name + n, sizeof node.name - (size_t)n, "%d", index);
    net->node[net->n++] = node;
}

static void add_middle(lti_vae_net *net, int32_t c, int32_t level)
{
    const char *name = net->decoder ? "decoder.middle." : "encoder.middle.";
    add(net, (lti_vae_node){.op = LTI_VAE_RES, .cin = c, .cout = c, .level = level}, name, 0);
    add(net, (lti_vae_node){.op = LTI_VAE_ATTN, .cin = c, .cout = c, .level = level}, name, 1);
    add(net, (lti_vae_node){.op = LTI_VAE_RES, .cin = c, .cout = c, .level = level}, name, 2);
}

static void make_decoder(lti_vae_net *net, const lt_vae_config *c)
{
    const int32_t z = c->z_dim, last = c->levels - 1;
    int32_t width = c->decoder_dim * c->mult[last];
    int index = 0;
    add(net, (lti_vae_node){.op = LTI_VAE_POINT, .cin = z, .cout = z}, "conv", 2);
    add(net, (lti_vae_node){.op = LTI_VAE_CONV, .cin = z, .cout = width}, "decoder.conv", 1);
    add_middle(net, width, 0);
    for (int32_t i = 0; i <= last; i++) {
        const int32_t out = c->decoder_dim * c->mult[last - i];
        for (int j = 0; j <= c->num_res_blocks; j++, width = out)
            add(net, (lti_vae_node){.op = LTI_VAE_RES, .cin = width, .cout = out, .level = i},
                "decoder.upsamples.", index++);
        if (i == last) break;
        add(net,
            (lti_vae_node){.op = LTI_VAE_UP,
                           .time = c->temporal_down[last - 1 - i],
                           .cin = out,
                           .cout = out / 2,
                           .level = i},
            "decoder.upsamples.", index++);
        width = out / 2;
    }
    add(net, (lti_vae_node){.op = LTI_VAE_HEAD, .cin = width, .cout = 3, .level = last},
        "decoder.head", -1);
}

static void make_encoder(lti_vae_net *net, const lt_vae_config *c)
{
    const int32_t z = c->z_dim, last = c->levels - 1;
    int32_t width = c->encoder_dim;
    int index = 0;
    add(net, (lti_vae_node){.op = LTI_VAE_CONV, .cin = 3, .cout = width}, "encoder.conv", 1);
    for (int32_t i = 0; i <= last; i++) {
        const int32_t out = c->encoder_dim * c->mult[i];
        for (int j = 0; j < c->num_res_blocks; j++, width = out)
            add(net, (lti_vae_node){.op = LTI_VAE_RES, .cin = width, .cout = out, .level = i},
                "encoder.downsamples.", index++);
        if (i == last) break;
        add(net,
            (lti_vae_node){.op = LTI_VAE_DOWN,
                           .time = c->temporal_down[i],
                           .cin = out,
                           .cout = out,
                           .level = i},
            "encoder.downsamples.", index++);
    }
    add_middle(net, width, last);
    add(net, (lti_vae_node){.op = LTI_VAE_HEAD, .cin = width, .cout = 2 * z, .level = last},
        "encoder.head", -1);
    add(net, (lti_vae_node){.op = LTI_VAE_POINT, .cin = 2 * z, .cout = 2 * z, .level = last},
        "conv", 1);
}

void lti_vae_net_make(lti_vae_net *net, const lt_vae_config *c, bool decoder)
{
    memset(net, 0, sizeof *net);
    net->decoder = decoder;
    if (decoder)
        make_decoder(net, c);
    else
        make_encoder(net, c);
}

void lti_vae_node_size(const lti_vae_net *net, const lti_vae_node *node, int32_t h, int32_t w,
                       int32_t *nh, int32_t *nw)
{
    *nh = net->decoder ? h << node->level : h >> node->level;
    *nw = net->decoder ? w << node->level : w >> node->level;
}

/* ---- tensors ----------------------------------------------------------------------------- */

static lti_vae_layer gamma_of(const char *suffix, int32_t c, int ndim)
{
    return (lti_vae_layer){
        .suffix = suffix, .gamma = true, .out = c, .in = 1, .kt = 1, .k = 1, .ndim = ndim};
}

static lti_vae_layer conv_of(const char *suffix, int32_t out, int32_t in, int32_t kt, int32_t k,
                             int ndim)
{
    return (lti_vae_layer){.suffix = suffix, .out = out, .in = in, .kt = kt, .k = k, .ndim = ndim};
}

int lti_vae_node_layers(const lti_vae_node *node, lti_vae_layer out[LTI_VAE_MAX_LAYERS])
{
    const int32_t a = node->cin, b = node->cout;
    int n = 0;
    switch (node->op) {
    case LTI_VAE_POINT:
        out[n++] = conv_of("", b, a, 1, 1, 5);
        break;
    case LTI_VAE_CONV:
        out[n++] = conv_of("", b, a, 3, 3, 5);
        break;
    case LTI_VAE_RES:
        out[n++] = gamma_of("residual.0", a, 4);
        out[n++] = conv_of("residual.2", b, a, 3, 3, 5);
        out[n++] = gamma_of("residual.3", b, 4);
        out[n++] = conv_of("residual.6", b, b, 3, 3, 5);
        if (a != b) out[n++] = conv_of("shortcut", b, a, 1, 1, 5);
        break;
    case LTI_VAE_ATTN:
        out[n++] = gamma_of("norm", a, 3);
        out[n++] = conv_of("to_qkv", 3 * a, a, 1, 1, 4);
        out[n++] = conv_of("proj", a, a, 1, 1, 4);
        break;
    case LTI_VAE_UP:
        out[n++] = conv_of("resample.1", b, a, 1, 3, 4);
        if (node->time) out[n++] = conv_of("time_conv", 2 * a, a, 3, 1, 5);
        break;
    case LTI_VAE_DOWN:
        out[n++] = conv_of("resample.1", b, a, 1, 3, 4);
        if (node->time) out[n++] = conv_of("time_conv", b, b, 3, 1, 5);
        break;
    case LTI_VAE_HEAD:
        out[n++] = gamma_of("0", a, 4);
        out[n++] = conv_of("2", b, a, 3, 3, 5);
        break;
    }
    return n;
}

void lti_vae_layer_name(char *out, size_t size, const lti_vae_node *node, const char *suffix,
                        const char *leaf)
{
    snprintf(out, size, "%s%s%s.%s", node->name, *suffix ? "." : "", suffix, leaf);
}

void lti_vae_layer_dims(const lti_vae_layer *l, int64_t dim[LT_MAX_DIMS])
{
    const int64_t all[] = {l->out, l->in, l->kt, l->k, l->k};
    for (int i = 0; i < l->ndim; i++)
        dim[i] = all[i];
    if (l->ndim == 4 && !l->gamma) dim[2] = dim[3] = l->k;
}

static void list_net(const lti_vae_net *net, lt_vae_tensor_fn *fn, void *user)
{
    for (int i = 0; i < net->n; i++) {
        lti_vae_layer layer[LTI_VAE_MAX_LAYERS];
        const int n = lti_vae_node_layers(&net->node[i], layer);
        for (int j = 0; j < n; j++) {
            char name[96];
            int64_t dim[LT_MAX_DIMS];
            const lti_vae_layer *l = &layer[j];
            lti_vae_layer_dims(l, dim);
            lti_vae_layer_name(name, sizeof name, &net->node[i], l->suffix,
                               l->gamma ? "gamma" : "weight");
            fn(user, name, l->ndim, dim);
            if (l->gamma) continue;
            lti_vae_layer_name(name, sizeof name, &net->node[i], l->suffix, "bias");
            fn(user, name, 1, dim);
        }
    }
}

void lt_vae_list_tensors(const lt_vae_config *config, lt_vae_tensor_fn *fn, void *user)
{
    lti_vae_net net;
    if (lti_vae_config_check(NULL, config) < 0) return;
    for (int decoder = 0; decoder < 2; decoder++) {
        if (decoder ? config->no_decoder : config->no_encoder) continue;
        lti_vae_net_make(&net, config, decoder);
        list_net(&net, fn, user);
    }
}

/* ---- FLOPs ------------------------------------------------------------------------------- */

/* Multiply-adds of one frame through a node. `first`: the time stage lies still. UP counts per frame that leaves the time stage. */
static double node_macs(const lti_vae_node *node, double pixels, bool first)
{
    const double a = node->cin, b = node->cout;
    switch (node->op) {
    case LTI_VAE_POINT:
        return pixels * a * b;
    case LTI_VAE_CONV:
    case LTI_VAE_HEAD:
        return pixels * 27 * a * b;
    case LTI_VAE_RES:
        return pixels * (27 * a * b + 27 * b * b + (node->cin != node->cout ? a * b : 0));
    case LTI_VAE_ATTN:
        return pixels * (4 * a * a + 2 * pixels * a);
    case LTI_VAE_UP:
        return pixels * (4 * 9 * a * b + (node->time && !first ? 3 * a * a : 0));
    case LTI_VAE_DOWN: /* the decoder has none, and only decoding is counted */
        break;
    }
    return 0;
}

double lt_vae_decode_flops(const lt_vae_config *config, int32_t h, int32_t w, bool first)
{
    lti_vae_net net;
    double macs = 0, frames = 1;
    if (lti_vae_config_check(NULL, config) < 0) return 0;
    lti_vae_net_make(&net, config, true);
    for (int i = 0; i < net.n; i++) {
        const lti_vae_node *node = &net.node[i];
        if (node->op == LTI_VAE_UP && node->time && !first) frames *= 2;
        macs += frames * node_macs(node, (double)h * w * (double)(1 << 2 * node->level), first);
    }
    return 2 * macs;
}
