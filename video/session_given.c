/* session_given.c: what a session begins with when that is not noise: a picture, or the end of a video that is continued. It goes to
 * the decoder, whose memory then is as if it had shown it, and to the blocks or the first segment, which see it as clean frames. */
#include "video/session_internal.h"

lt_status lti_session_encode_given(lt_session *s, float **z, int32_t *frames)
{
    const int32_t n = s->image ? 1 : s->o.given_frames;
    *z = NULL;
    *frames = n ? (n - 1) / s->m->config.info.frame_scale + 1 : 0;
    if (!n) return LT_OK;
    if (!s->image && !s->given)
        return lti_fail(s->ctx, LT_ERR_ARG, "given_frames %d, but `given` is NULL", n);
    const double t = lti_now();
    LT_TRY(lti_model_encode_frames(s->m, z, s->image ? s->image : s->given, n, s->o.width,
                                   s->o.height, &s->cancel));
    s->report.encode_seconds += lti_now() - t;
    return LT_OK;
}

lt_status lti_session_warm(lt_session *s, const float *z, int32_t frames, int32_t count)
{
    const int64_t area = (int64_t)s->h * s->w;
    for (int32_t i = 0; i < count; i++) {
        lt_status st;
        lt_image img;
        LT_TRY(lti_session_cancelled(s, "decoding given frames"));
        LT_TRY(lt_vae_decoder_push(s->decoder, z + i * area, frames * area));
        while ((st = lt_vae_decoder_next(s->decoder, &img)) == LT_OK)
            LT_TRY(lti_session_take_frame(s, &img, 0));
        LT_TRY(st);
    }
    return LT_OK;
}

/* Frames of the block that begins with given frame `at`: as the model draws them, a first one of its own if it has that, the next one
 * shorter where they do not come out even. */
static int32_t block_at(const lt_cache_policy *p, int32_t at, int32_t frames)
{
    if (at == 0 && p->first) return p->first < frames ? p->first : frames;
    const int32_t rest = (frames - at) % p->block;
    return rest ? rest : p->block;
}

static lt_status give_blocks(lt_session *s, const float *z, int32_t frames)
{
    const int64_t area = (int64_t)s->h * s->w, channels = s->m->config.dit.in_channels;
    lt_cache_policy p;
    float *block;
    LT_TRY(lti_session_policy(&p, s->ctx, &s->m->config.info, &s->o));
    LT_TRY(lt_dev_alloc(s->dev, (void **)&block,
                        (size_t)(channels * p.block * area) * sizeof(float), LT_TAG_LATENT));
    lt_status st = LT_OK;
    for (int32_t at = 0, n; at < frames && st >= 0; at += n) {
        n = block_at(&p, at, frames);
        for (int64_t c = 0; c < channels && st >= 0; c++)
            st = lt_dev_copy(s->dev, block + c * n * area, z + (c * frames + at) * area,
                             (size_t)(n * area) * sizeof(float));
        if (st >= 0) st = lti_rollout_give(s->rollout, block, n);
    }
    lt_dev_free(s->dev, block);
    return st;
}

lt_status lti_session_begin_with(lt_session *s, const float *z, int32_t frames)
{
    LT_TRY(lti_session_warm(s, z, frames, frames));
    s->lead = s->image != NULL;
    s->group = s->lead ? 1 : 0;
    return s->rollout ? give_blocks(s, z, frames) : lti_extend_begin_with(s, z, frames);
}
