/* decoder.c: latent frames in, video frames out, one at a time and depth first: a frame that a time stage makes goes all the way
 * to the picture before its twin is begun, so that one frame a level is on its way, whatever the length of the video. */
#include "vae/internal.h"

#include <stdlib.h>

lt_status lt_vae_decoder_create(lt_vae_decoder **out, lt_vae *vae, int32_t h, int32_t w)
{
    lt_ctx *ctx = lt_dev_ctx(vae->dev);
    *out = NULL;
    if (vae->config.no_decoder) return lti_fail(ctx, LT_ERR_ARG, "vae: opened without its decoder");
    LT_TRY(lti_vae_size_check(ctx, h, w));
    lt_vae_decoder *dec = calloc(1, sizeof *dec);
    if (!dec) return lti_fail(ctx, LT_ERR_MEM, "no memory for a vae decoder");
    dec->vae = vae;
    const lt_status s =
        lti_vae_flow_create(&dec->flow, vae->dev, &vae->decoder, vae->config.compute, h, w);
    if (s < 0) {
        free(dec);
        return lti_within(ctx, s, "vae decoder of %d x %d latent pixels", h, w);
    }
    *out = dec;
    return LT_OK;
}

void lt_vae_decoder_destroy(lt_vae_decoder **dec)
{
    if (!dec || !*dec) return;
    lti_vae_flow_destroy(&(*dec)->flow);
    free(*dec);
    *dec = NULL;
}

void lt_vae_decoder_reset(lt_vae_decoder *dec)
{
    lti_vae_flow_reset(&dec->flow);
    dec->pushed = false;
}

uint64_t lt_vae_decoder_bytes(const lt_vae_config *config, int32_t h, int32_t w)
{
    lti_vae_net net;
    lti_vae_layout lay;
    if (config->no_decoder || lti_vae_config_check(NULL, config) < 0 ||
        lti_vae_size_check(NULL, h, w) < 0)
        return UINT64_MAX;
    lti_vae_net_make(&net, config, true);
    lti_vae_layout_make(&lay, &net, config->compute, h, w);
    return (uint64_t)lay.state_bytes + lay.work_bytes;
}

/* The deepest time stage that still owes a frame, -1 if none does. */
static int owing(const lti_vae_flow *f)
{
    int i = f->net->n - 1;
    while (i >= 0 && !f->node[i].held)
        i--;
    return i;
}

lt_status lt_vae_decoder_push(lt_vae_decoder *dec, const float *z, int64_t channel_stride)
{
    lti_vae_flow *f = &dec->flow;
    const int32_t c = dec->vae->config.z_dim;
    if (f->broken)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_ARG,
                        "vae decoder: a call failed before; reset it first");
    if (dec->pushed || owing(f) >= 0) return LT_AGAIN;
    const lt_latent_image_args a = {
        .img = {.data = f->h, .dtype = LT_F32, .h = f->h0, .w = f->w0, .c = c},
        /* only read: one struct serves both directions */
        .z = (float *)(uintptr_t)z,
        .channel_stride = channel_stride,
        .c = c,
        .mul = dec->vae->scale,
        .add = dec->vae->scale + c};
    LT_TRY(lt_latent_image(f->dev, &a));
    dec->pushed = true;
    return LT_OK;
}

/* Node 0, conv2, on the de-normalised latent. */
static lt_status enter(lt_vae_decoder *dec)
{
    lti_vae_flow *f = &dec->flow;
    const lti_vae_node *node = &f->net->node[0];
    f->x = (lt_image){.data = f->x.data, .dtype = LT_F32, .h = f->h0, .w = f->w0, .c = node->cout};
    const lt_linear_args a = {.out = {.data = f->x.data, .dtype = LT_F32},
                              .x = {.data = f->h, .dtype = LT_F32},
                              .w = node->w[0],
                              .rows = (int64_t)f->h0 * f->w0};
    return lt_linear(f->dev, &a);
}

lt_status lt_vae_decoder_next(lt_vae_decoder *dec, lt_image *out)
{
    lti_vae_flow *f = &dec->flow;
    int i = owing(f);
    if (f->broken)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_ARG,
                        "vae decoder: a call failed before; reset it first");
    if (i >= 0) {
        LT_TRY(lti_vae_flow_second(f, i));
    } else {
        if (!dec->pushed) return LT_AGAIN;
        LT_TRY(enter(dec));
        dec->pushed = false;
        i = 0;
    }
    for (i++; i < f->net->n; i++) {
        bool more;
        LT_TRY(lti_vae_flow_step(f, i, NULL, &more));
    }
    *out = f->x;
    return LT_OK;
}
