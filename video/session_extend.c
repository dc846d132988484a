/* session_extend.c: mode extend: segments drawn one after the other (extend.h). */
#include "video/session_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t picture_bytes(const lt_session *s)
{
    return (size_t)s->o.width * (size_t)s->o.height * 3;
}

static int64_t area(const lt_session *s)
{
    return (int64_t)s->h * s->w;
}

void lti_session_close_extend(lt_session *s)
{
    lti_extend *x = s->extend;
    if (!x) return;
    lti_denoise_destroy(&x->d);
    lt_dev_free(s->dev, x->given);
    lt_dev_free(s->dev, x->first);
    free(x->picture);
    free(x);
    s->extend = NULL;
}

static lt_status fill(lt_session *s, const lti_text_rows *text)
{
    lti_extend *x = s->extend;
    const size_t frame = (size_t)(s->m->config.dit.in_channels * area(s)) * sizeof(float);
    LT_TRY(lti_extend_parse(&x->policy, s->ctx, &s->m->config.info, s->o.extend));
    x->picture = malloc(picture_bytes(s));
    if (!x->picture) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for a picture");
    LT_TRY(
        lt_dev_alloc(s->dev, (void **)&x->given, frame * (size_t)x->policy.overlap, LT_TAG_LATENT));
    if (x->policy.head == LTI_HEAD_FIRST)
        LT_TRY(lt_dev_alloc(s->dev, (void **)&x->first, frame, LT_TAG_LATENT));
    return lti_session_denoiser(&s->extend->d, s, s->extend->policy.segment, text, NULL);
}

lt_status lti_session_open_extend(lt_session *s)
{
    const char *const texts[] = {s->prompt, s->negative};
    lti_text_rows text;
    LT_TRY(lti_session_encode(s, &text, texts, s->o.guidance_scale > 1 ? 2 : 1));
    s->extend = calloc(1, sizeof *s->extend);
    const lt_status st =
        s->extend ? fill(s, &text) : lti_fail(s->ctx, LT_ERR_MEM, "no memory for an extension");
    lti_text_rows_free(&text);
    return st;
}

/* `count` frames of every channel, from frame `from` of z [channels, z_frames, area] to frame `to` of out [channels, out_frames, area]. */
static lt_status copy_frames(lt_session *s, float *out, int32_t out_frames, int32_t to,
                             const float *z, int32_t z_frames, int32_t from, int32_t count)
{
    for (int32_t c = 0; count && c < s->m->config.dit.in_channels; c++)
        LT_TRY(lt_dev_copy(s->dev, out + ((int64_t)c * out_frames + to) * area(s),
                           z + ((int64_t)c * z_frames + from) * area(s),
                           (size_t)(count * area(s)) * sizeof(float)));
    return LT_OK;
}

lt_status lti_extend_begin_with(lt_session *s, const float *z, int32_t frames)
{
    lti_extend *x = s->extend;
    const int32_t used = frames < x->policy.overlap ? frames : x->policy.overlap;
    x->frames = used;
    x->begun = true;
    if (x->first) LT_TRY(copy_frames(s, x->first, 1, 0, z, frames, 0, 1));
    return copy_frames(s, x->given, x->policy.overlap, 0, z, frames, frames - used, used);
}

/* The head of the next segment, in place of its first given frame. */
static lt_status put_head(lt_session *s)
{
    lti_extend *x = s->extend;
    const int32_t overlap = x->policy.overlap;
    if (!x->policy.naive && x->policy.head == LTI_HEAD_LATENT) return LT_OK;
    if (!x->policy.naive && x->policy.head == LTI_HEAD_FIRST)
        return copy_frames(s, x->given, overlap, 0, x->first, 1, 0, 1);
    float *z;
    LT_TRY(lti_model_encode_frames(s->m, &z, x->picture, 1, s->o.width, s->o.height, &s->cancel));
    const lt_status st = copy_frames(s, x->given, overlap, 0, z, 1, 0, 1);
    lt_dev_free(s->dev, z);
    return st;
}

/* What the segment that has been handed out gives to the next one. */
static lt_status give_on(lt_session *s)
{
    lti_extend *x = s->extend;
    const int32_t n = x->policy.segment, overlap = x->policy.overlap;
    const float *z = lti_denoise_latent(x->d);
    if (x->first && x->segments == 1 && !x->begun)
        LT_TRY(copy_frames(s, x->first, 1, 0, z, n, 0, 1));
    x->frames = overlap;
    LT_TRY(copy_frames(s, x->given, overlap, 0, z, n, n - overlap, overlap));
    return put_head(s);
}

bool lti_session_wants_segment(const lt_session *s)
{
    return s->extend->segments == 0 || s->used == s->extend->policy.segment;
}

static void count_segment(lt_session *s, double seconds)
{
    lti_extend *x = s->extend;
    lt_session_report *r = &s->report;
    r->denoise_seconds += seconds;
    r->tokens = lti_denoise_tokens(x->d);
    r->attention_density = lti_denoise_density(x->d);
    lt_sparse_stats attention;
    lti_denoise_stats(x->d, &attention);
    lti_session_count_attention(s, &attention);
    r->dit_passes = lti_denoise_passes(x->d);
    r->dit_flops = lti_denoise_flops(x->d);
    if (r->blocks && seconds > r->block_seconds_max) r->block_seconds_max = seconds;
    s->shown = (lt_frames){
        .block = r->blocks++, .block_seconds = seconds, .attention_density = r->attention_density};
}

/* Segments in all, for the progress. */
static int32_t segments(const lt_session *s)
{
    const int32_t fresh = s->extend->policy.segment - s->extend->policy.overlap;
    const int32_t more = s->frames - s->extend->policy.segment;
    return 1 + (more > 0 ? (more + fresh - 1) / fresh : 0);
}

/* As with blocks (session_blocks.c); noise is another for each attempt. */
static lt_status draw_judged(lt_session *s)
{
    enum { ATTEMPT_BIT = 36 }; /* of the segment's number in the key of its noise */
    lti_extend *x = s->extend;
    const int32_t steps = lti_denoise_steps(x->d);
    bool again = true;
    for (int32_t attempt = 0; again; attempt++) {
        LT_TRY(lti_denoise_begin(x->d, x->segments | (int64_t)attempt << ATTEMPT_BIT));
        const lt_status st =
            lti_session_denoise_steps(s, x->d, (int32_t)x->segments * steps, segments(s) * steps);
        if (st < 0 && !lti_watch_forgives(s, st)) return st;
        LT_TRY(lti_watch_block(s, lti_denoise_latent(x->d), x->policy.segment, x->frames, attempt,
                               st < 0, &again));
    }
    return LT_OK;
}

lt_status lti_session_next_segment(lt_session *s)
{
    lti_extend *x = s->extend;
    const double t = lti_now();
    if (x->segments) LT_TRY(give_on(s));
    lti_denoise_hold(x->d, x->given, x->policy.overlap * area(s), x->frames);
    LT_TRY(draw_judged(s));
    count_segment(s, lti_now() - t);
    s->used = x->frames;
    if (x->policy.naive && x->segments) {
        lt_vae_decoder_reset(s->decoder);
        LT_TRY(lti_session_warm(s, lti_denoise_latent(x->d), x->policy.segment, 1));
        LT_TRY(lti_watch_renditions(s, x->picture, s->rgb));
    }
    x->segments++;
    return LT_OK;
}

void lti_session_keep_picture(lt_session *s)
{
    lti_extend *x = s->extend;
    const int32_t n = x->policy.segment;
    const int32_t at = x->policy.naive ? n - 1 : n - x->policy.overlap;
    if (s->used - 1 != at) return;
    memcpy(x->picture, s->rgb + (size_t)(s->group - 1) * picture_bytes(s), picture_bytes(s));
}
