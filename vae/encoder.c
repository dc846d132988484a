/* encoder.c: video frames in, latent frames out. A frame goes as far as a time stage that keeps it for the next. */
#include "vae/internal.h"

#include <stdlib.h>

lt_status lt_vae_encoder_create(lt_vae_encoder **out, lt_vae *vae, int32_t height, int32_t width)
{
    lt_ctx *ctx = lt_dev_ctx(vae->dev);
    const int32_t scale = lt_vae_scale(&vae->config);
    *out = NULL;
    if (vae->config.no_encoder) return lti_fail(ctx, LT_ERR_ARG, "vae: opened without its encoder");
    if (height % scale || width % scale)
        return lti_fail(ctx, LT_ERR_ARG, "vae encoder: %d x %d pixels: not multiples of %d", width,
                        height, scale);
    LT_TRY(lti_vae_size_check(ctx, height / scale, width / scale));
    lt_vae_encoder *enc = calloc(1, sizeof *enc);
    if (!enc) return lti_fail(ctx, LT_ERR_MEM, "no memory for a vae encoder");
    enc->vae = vae;
    const lt_status s = lti_vae_flow_create(&enc->flow, vae->dev, &vae->encoder,
                                            vae->config.compute, height, width);
    if (s < 0) {
        free(enc);
        return lti_within(ctx, s, "vae encoder of %d x %d pixels", width, height);
    }
    *out = enc;
    return LT_OK;
}

void lt_vae_encoder_destroy(lt_vae_encoder **enc)
{
    if (!enc || !*enc) return;
    lti_vae_flow_destroy(&(*enc)->flow);
    free(*enc);
    *enc = NULL;
}

void lt_vae_encoder_reset(lt_vae_encoder *enc)
{
    lti_vae_flow_reset(&enc->flow);
    enc->ready = false;
}

static lt_status check_image(const lti_vae_flow *f, const lt_image *img)
{
    if (img->h != f->h0 || img->w != f->w0 || img->c != 3)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_SHAPE,
                        "vae encoder: a picture of %d x %d x %d, wanted %d x %d x 3", img->w,
                        img->h, img->c, f->w0, f->h0);
    if (img->dtype != LT_F32)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_DTYPE,
                        "vae encoder: a picture of type %s, wanted f32", lt_dtype_name(img->dtype));
    return LT_OK;
}

/* The last node, conv1, of which only the mean is made. */
static lt_status leave(lti_vae_flow *f)
{
    const lt_linear_args a = {.out = {.data = f->h, .dtype = LT_F32},
                              .x = {.data = f->x.data, .dtype = LT_F32},
                              .w = f->net->node[f->net->n - 1].w[0],
                              .rows = (int64_t)f->x.h * f->x.w};
    return lt_linear(f->dev, &a);
}

lt_status lt_vae_encoder_push(lt_vae_encoder *enc, const lt_image *img)
{
    lti_vae_flow *f = &enc->flow;
    if (f->broken)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_ARG,
                        "vae encoder: a call failed before; reset it first");
    if (enc->ready) return LT_AGAIN;
    LT_TRY(check_image(f, img));
    bool more = true;
    for (int i = 0; i < f->net->n - 1 && more; i++)
        LT_TRY(lti_vae_flow_step(f, i, i ? NULL : img, &more));
    if (!more) return LT_OK;
    const lt_status s = leave(f);
    /* a latent frame that got lost would shift all that follow */
    f->broken = s < 0;
    enc->ready = s >= 0;
    return s;
}

lt_status lt_vae_encoder_next(lt_vae_encoder *enc, float *z, int64_t channel_stride)
{
    lti_vae_flow *f = &enc->flow;
    const int32_t c = enc->vae->config.z_dim;
    if (!enc->ready) return LT_AGAIN;
    const lt_latent_image_args a = {
        .img = {.data = f->h, .dtype = LT_F32, .h = f->x.h, .w = f->x.w, .c = c},
        .z = z,
        .channel_stride = channel_stride,
        .c = c,
        .mul = enc->vae->scale + 2 * c,
        .add = enc->vae->scale + 3 * c,
        .to_latent = true};
    LT_TRY(lt_latent_image(f->dev, &a));
    enc->ready = false;
    return LT_OK;
}
