/* encode.c: pictures to latents: a first frame, or the end of a video that is continued. The encoder's weights are packed for the call
 * alone; it runs in f32, since bf16 shifts a latent that conditions others (spec, pitfall 8). */
#include "video/model_internal.h"

typedef struct encoding {
    lt_model *m;
    lt_vae *vae;
    lt_vae_encoder *enc;
    lt_image img;
    uint8_t *rgb; /* device, one frame */
    float *z;     /* device, [channels, latents, area] */
    int64_t channels, latents, area;
} encoding;

static lt_status open_encoding(encoding *e, int32_t width, int32_t height, int32_t latents)
{
    lt_dev *dev = e->m->dev;
    const lt_tensor_source source = lti_tensors_source(e->m->files->vae);
    const int32_t scale = e->m->config.info.spatial_scale;
    lt_vae_config c = e->m->config.vae;
    c.compute = LT_F32;
    c.no_encoder = false;
    c.no_decoder = true;
    e->img = (lt_image){.dtype = LT_F32, .h = height, .w = width, .c = 3};
    e->channels = c.z_dim;
    e->latents = latents;
    e->area = (int64_t)(height / scale) * (width / scale);
    const size_t z = (size_t)(e->channels * e->latents * e->area) * sizeof(float);
    LT_TRY(lt_dev_alloc(dev, &e->img.data, lt_image_bytes(&e->img), LT_TAG_VAE_WORK));
    LT_TRY(
        lt_dev_alloc(dev, (void **)&e->rgb, (size_t)width * (size_t)height * 3, LT_TAG_VAE_WORK));
    LT_TRY(lt_dev_alloc(dev, (void **)&e->z, z, LT_TAG_LATENT));
    LT_TRY(lt_vae_create(&e->vae, dev, &c, &source));
    return lt_vae_encoder_create(&e->enc, e->vae, height, width);
}

/* A video of its own: its first frame alone makes a latent frame, then every four do. */
static lt_status encode_all(encoding *e, const uint8_t *rgb, int32_t frames,
                            const atomic_bool *cancel)
{
    lt_dev *dev = e->m->dev;
    const size_t bytes = (size_t)e->img.w * (size_t)e->img.h * 3;
    int64_t done = 0;
    for (int32_t i = 0; i < frames; i++) {
        if (cancel && atomic_load(cancel))
            return lti_fail(e->m->ctx, LT_ERR_CANCELLED, "cancelled while encoding frames");
        LT_TRY(lt_dev_upload(dev, e->rgb, rgb + (size_t)i * bytes, bytes));
        LT_TRY(lt_rgb8(dev, &(lt_rgb8_args){.rgb = e->rgb, .img = e->img, .to_image = true}));
        LT_TRY(lt_vae_encoder_push(e->enc, &e->img));
        if (done == e->latents) continue;
        const lt_status s =
            lt_vae_encoder_next(e->enc, e->z + done * e->area, e->latents * e->area);
        LT_TRY(s);
        if (s == LT_OK) done++;
    }
    if (done == e->latents) return LT_OK;
    return lti_fail(e->m->ctx, LT_ERR_ARG, "the VAE encoder made %d latent frames of %d frames",
                    (int)done, frames);
}

lt_status lti_model_encode_frames(lt_model *m, float **z, const uint8_t *rgb, int32_t frames,
                                  int32_t width, int32_t height, const atomic_bool *cancel)
{
    encoding e = {.m = m};
    *z = NULL;
    lt_status s = open_encoding(&e, width, height, (frames - 1) / m->config.info.frame_scale + 1);
    if (s >= 0) s = encode_all(&e, rgb, frames, cancel);
    lt_vae_encoder_destroy(&e.enc);
    lt_vae_destroy(&e.vae);
    lt_dev_free(m->dev, e.img.data);
    lt_dev_free(m->dev, e.rgb);
    if (s < 0)
        lt_dev_free(m->dev, e.z);
    else
        *z = e.z;
    return s;
}
