/* session.c: one timeline, pulled. The first call encodes the texts, denoises the latent and opens the decoder; every call then hands
 * out the frames of one latent frame. Each phase's memory is gone before the next begins. */
#include "video/denoise.h"
#include "video/session_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making and unmaking ---- */

static lt_status copy_bytes(lt_ctx *ctx, void **out, const void *from, size_t bytes)
{
    *out = NULL;
    if (!from) return LT_OK;
    *out = malloc(bytes + 1);
    if (!*out) return lti_fail(ctx, LT_ERR_MEM, "no memory for %zu bytes of options", bytes);
    memcpy(*out, from, bytes);
    return LT_OK;
}

static lt_status copy_options(lt_session *s)
{
    lt_session_options *o = &s->o;
    const size_t list = (size_t)o->step_list_len * sizeof *s->list;
    const size_t image = (size_t)o->width * (size_t)o->height * 3;
    LT_TRY(copy_bytes(s->ctx, (void **)&s->prompt, o->prompt, strlen(o->prompt) + 1));
    LT_TRY(copy_bytes(s->ctx, (void **)&s->negative, o->negative_prompt,
                      strlen(o->negative_prompt) + 1));
    LT_TRY(copy_bytes(s->ctx, (void **)&s->cache, o->cache, o->cache ? strlen(o->cache) + 1 : 0));
    LT_TRY(copy_bytes(s->ctx, (void **)&s->list, o->step_list, list));
    LT_TRY(copy_bytes(s->ctx, (void **)&s->image, o->image, image));
    LT_TRY(copy_bytes(s->ctx, (void **)&s->given, o->given, image * (size_t)o->given_frames));
    LT_TRY(copy_bytes(s->ctx, (void **)&s->extend_text, o->extend,
                      o->extend ? strlen(o->extend) + 1 : 0));
    o->prompt = s->prompt;
    o->negative_prompt = s->negative;
    o->cache = s->cache;
    o->step_list = s->list;
    o->image = s->image;
    o->given = s->given;
    o->extend = s->extend_text;
    LT_TRY(copy_bytes(s->ctx, (void **)&s->attention_text, o->attention, strlen(o->attention) + 1));
    o->attention = s->attention_text;
    LT_TRY(
        copy_bytes(s->ctx, (void **)&s->inject, o->inject, o->inject ? strlen(o->inject) + 1 : 0));
    o->inject = s->inject;
    LT_TRY(lt_sparse_parse(&s->attention, s->ctx, o->attention));
    s->attention.search = o->search;
    LT_TRY(lti_prompts_open(&s->prompts, s->ctx, o, s->m->config.text.dim));
    o->timeline = s->prompts.cue;
    return LT_OK;
}

static lt_status prepare(lt_session *s)
{
    const lti_config *c = &s->m->config;
    lt_estimate e;
    const uint64_t loaded = lti_dit_weight_bytes(&c->dit, s->m->dtype);
    LT_TRY(lt_session_validate(s->ctx, &c->info, &s->o));
    LT_TRY(lti_estimate_fit(&e, s->ctx, c, s->m->dtype, &s->o, loaded));
    LT_TRY(copy_options(s));
    s->schedule = lti_schedule(c, &s->o);
    /* a video begins with a frame of its own latent frame, what continues one does not */
    s->frames = (s->o.num_frames + c->info.frame_scale - 1) / c->info.frame_scale;
    s->h = s->o.height / c->info.spatial_scale;
    s->w = s->o.width / c->info.spatial_scale;
    s->report = (lt_session_report){.width = s->o.width,
                                    .height = s->o.height,
                                    .num_frames = s->o.num_frames,
                                    .fps = s->o.fps,
                                    .steps = s->o.num_inference_steps,
                                    .seed = s->o.seed,
                                    .guidance = s->o.guidance_scale,
                                    .shift = s->o.flow_shift,
                                    .cfg_batch = e.cfg_batch,
                                    .cache_bytes = e.cache};
    return LT_OK;
}

lt_status lt_session_create(lt_session **out, lt_model *model, const lt_session_options *opt)
{
    *out = NULL;
    lt_session *s = calloc(1, sizeof *s);
    if (!s) return lti_fail(model->ctx, LT_ERR_MEM, "no memory for a session");
    s->m = model;
    s->dev = model->dev;
    s->ctx = model->ctx;
    s->o = *opt;
    atomic_init(&s->cancel, false);
    const lt_status st = prepare(s);
    if (st < 0)
        lt_session_destroy(&s);
    else
        *out = s;
    return st;
}

static void release_device(lt_session *s)
{
    lti_rollout_destroy(&s->rollout);
    lti_session_close_extend(s);
    lt_vae_decoder_destroy(&s->decoder);
    lt_dev_free(s->dev, s->latent);
    lt_dev_free(s->dev, s->rgb_dev);
    s->latent = NULL;
    s->rgb_dev = NULL;
}

void lt_session_destroy(lt_session **session)
{
    lt_session *s = session ? *session : NULL;
    if (!s) return;
    lti_watch_close(s);
    release_device(s);
    lti_prompts_close(&s->prompts);
    free(s->negative_rows.v);
    free(s->rgb);
    free(s->prompt);
    free(s->negative);
    free(s->cache);
    free(s->attention_text);
    free(s->inject);
    free(s->list);
    free(s->image);
    free(s->given);
    free(s->extend_text);
    free(s);
    *session = NULL;
}

void lt_session_cancel(lt_session *s)
{
    atomic_store(&s->cancel, true);
}

lt_status lti_session_cancelled(lt_session *s, const char *where)
{
    if (!atomic_load(&s->cancel)) return LT_OK;
    return lti_fail(s->ctx, LT_ERR_CANCELLED, "cancelled while %s", where);
}

void lti_session_progress(lt_session *s, lt_phase phase, int32_t step, int32_t steps)
{
    const double t = lti_now();
    if (s->o.progress)
        s->o.progress(s->o.progress_user, &(lt_progress){.phase = phase,
                                                         .step = step,
                                                         .steps = steps,
                                                         .seconds = t - s->start,
                                                         .step_seconds = t - s->step_start});
    s->step_start = t;
}

void lti_session_count_attention(lt_session *s, const lt_sparse_stats *a)
{
    s->report.sparse_density = a->sparse_all > 0 ? a->sparse_read / a->sparse_all : 1;
    s->report.planning_seconds = a->seconds;
    s->report.attention_seconds = a->attention_seconds;
}

/* ---- text ---- */

static bool layer_done(void *user, int32_t done, int32_t layers)
{
    lt_session *s = user;
    lti_session_progress(s, LT_PHASE_TEXT, done, layers);
    return !atomic_load(&s->cancel);
}

lt_status lti_session_encode(lt_session *s, lti_text_rows *rows, const char *const *text,
                             int32_t texts)
{
    const double t = lti_now();
    LT_TRY(lti_model_encode(s->m, rows, text, texts, layer_done, s));
    s->report.text_seconds += lti_now() - t;
    return LT_OK;
}

/* ---- denoising ---- */

lt_status lti_session_denoise_steps(lt_session *s, lti_denoise *d, int32_t done, int32_t all)
{
    const int32_t steps = lti_denoise_steps(d);
    lt_mem_stats m;
    uint64_t warm = 0;
    if (!done) lti_session_progress(s, LT_PHASE_DENOISE, 0, all);
    for (int32_t i = 0; i < steps; i++) {
        LT_TRY(lti_session_cancelled(s, "denoising"));
        LT_TRY(lti_denoise_step(d, i));
        lt_dev_mem_stats(s->dev, &m);
        if (i == 0) warm = m.alloc_calls;
        lti_session_progress(s, LT_PHASE_DENOISE, done + i + 1, all);
    }
    s->report.step_allocs += m.alloc_calls - warm;
    return lti_check_finite(s->dev, lti_denoise_latent(d), lti_denoise_numbers(d),
                            "the latent before decoding");
}

lt_status lti_session_denoiser(lti_denoise **out, lt_session *s, int32_t frames,
                               const lti_text_rows *text, const float *first_frame)
{
    return lti_denoise_create(out, &(lti_denoise_options){.dit = s->m->dit,
                                                          .frames = frames,
                                                          .h = s->h,
                                                          .w = s->w,
                                                          .schedule = &s->schedule,
                                                          .guidance = s->o.guidance_scale,
                                                          .cond = text->of[0],
                                                          .cond_rows = text->n[0],
                                                          .uncond = text->of[1],
                                                          .uncond_rows = text->n[1],
                                                          .batch = s->report.cfg_batch,
                                                          .seed = s->o.seed,
                                                          .first_frame = first_frame,
                                                          .cancel = &s->cancel,
                                                          .attention = s->attention});
}

static lt_status denoise(lt_session *s, const lti_text_rows *text, const float *first_frame)
{
    const double t = lti_now();
    lti_denoise *d;
    LT_TRY(lti_session_denoiser(&d, s, s->frames, text, first_frame));
    lt_status st = lti_denoise_begin(d, 0);
    if (st >= 0) st = lti_session_denoise_steps(s, d, 0, lti_denoise_steps(d));
    if (st >= 0) s->latent = lti_denoise_take_latent(d);
    s->report.tokens = lti_denoise_tokens(d);
    s->report.attention_density = lti_denoise_density(d);
    lt_sparse_stats attention;
    lti_denoise_stats(d, &attention);
    lti_session_count_attention(s, &attention);
    s->report.dit_passes = lti_denoise_passes(d);
    s->report.dit_flops = lti_denoise_flops(d);
    lti_denoise_destroy(&d);
    s->report.denoise_seconds = lti_now() - t;
    return st;
}

static lt_status make_latent(lt_session *s)
{
    const char *const texts[] = {s->prompt, s->negative};
    lti_text_rows text;
    float *first = NULL;
    LT_TRY(lti_session_encode(s, &text, texts, s->o.guidance_scale > 1 ? 2 : 1));
    lt_status st = LT_OK;
    if (s->image)
        st =
            lti_model_encode_frames(s->m, &first, s->image, 1, s->o.width, s->o.height, &s->cancel);
    if (st >= 0) st = denoise(s, &text, first);
    lt_dev_free(s->dev, first);
    lti_text_rows_free(&text);
    s->shown = (lt_frames){.block_seconds = s->report.denoise_seconds,
                           .attention_density = s->report.attention_density};
    return st;
}

/* ---- frames ---- */

static size_t frame_bytes(const lt_session *s)
{
    return (size_t)s->o.width * (size_t)s->o.height * 3;
}

lt_status lti_session_open_decoder(lt_session *s)
{
    const size_t group = frame_bytes(s) * (size_t)s->m->config.info.frame_scale;
    s->rgb = malloc(group);
    if (!s->rgb) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for %zu bytes of frames", group);
    LT_TRY(lt_dev_alloc(s->dev, (void **)&s->rgb_dev, frame_bytes(s), LT_TAG_VAE_WORK));
    return lt_vae_decoder_create(&s->decoder, s->m->vae, s->h, s->w);
}

lt_status lti_session_take_frame(lt_session *s, const lt_image *img, int32_t place)
{
    LT_TRY(lt_rgb8(s->dev, &(lt_rgb8_args){.rgb = s->rgb_dev, .img = *img}));
    return lt_dev_download(s->dev, s->rgb + (size_t)place * frame_bytes(s), s->rgb_dev,
                           frame_bytes(s));
}

/* The next latent frame, in device memory, and the distance of its channels. */
static const float *latent_frame(const lt_session *s, int64_t *stride)
{
    const int64_t area = (int64_t)s->h * s->w;
    if (s->extend) {
        *stride = area * s->extend->policy.segment;
        return lti_denoise_latent(s->extend->d) + s->used * area;
    }
    *stride = area * (s->rollout ? lti_rollout_frames(s->rollout) : s->frames);
    return s->rollout ? lti_rollout_latent(s->rollout) + s->used * area
                      : s->latent + s->pushed * area;
}

static lt_status begin_group(lt_session *s)
{
    int64_t stride;
    const float *z = latent_frame(s, &stride);
    LT_TRY(lti_session_cancelled(s, "decoding"));
    LT_TRY(lt_vae_decoder_push(s->decoder, z, stride));
    s->report.vae_flops += lt_vae_decode_flops(lt_vae_get_config(s->m->vae), s->h, s->w,
                                               s->pushed == 0 && !lti_session_continues(s));
    s->in_group = true;
    s->group = 0;
    return LT_OK;
}

/* All frames of the next latent frame; of one that was cancelled half way, the rest. */
static lt_status decode_group(lt_session *s, int64_t first)
{
    const int32_t most = s->m->config.info.frame_scale;
    if (!s->in_group) LT_TRY(begin_group(s));
    for (;;) {
        lt_image img;
        if (s->group) LT_TRY(lti_session_cancelled(s, "decoding"));
        const lt_status st = lt_vae_decoder_next(s->decoder, &img);
        if (st == LT_AGAIN) break;
        LT_TRY(st);
        if (s->group == most)
            return lti_fail(s->ctx, LT_ERR_SHAPE, "the VAE made more than %d frames of one", most);
        LT_TRY(lti_session_take_frame(s, &img, s->group++));
        lti_session_progress(s, LT_PHASE_DECODE, (int32_t)first + s->group, s->o.num_frames);
    }
    s->in_group = false;
    s->pushed++;
    s->used++;
    if (s->extend) lti_session_keep_picture(s);
    return LT_OK;
}

/* What is drawn while it is shown; what it begins with is encoded before anything else is there. */
static lt_status open_streamed(lt_session *s)
{
    float *z;
    int32_t frames;
    LT_TRY(lti_session_encode_given(s, &z, &frames));
    lt_status st =
        s->o.mode == LT_MODE_AR ? lti_session_open_rollout(s) : lti_session_open_extend(s);
    if (st >= 0) st = lti_session_open_decoder(s);
    if (st >= 0 && z) st = lti_session_begin_with(s, z, frames);
    lt_dev_free(s->dev, z);
    return st;
}

lt_status lti_session_start(lt_session *s)
{
    if (s->state != LTI_SESSION_NEW) return LT_OK;
    LT_TRY(lti_session_cancelled(s, "starting"));
    s->start = s->step_start = lti_now();
    if (s->o.mode == LT_MODE_AR || s->o.mode == LT_MODE_EXTEND) {
        LT_TRY(open_streamed(s));
    } else {
        LT_TRY(make_latent(s));
        LT_TRY(lti_session_open_decoder(s));
    }
    LT_TRY(lti_watch_open(s));
    s->state = LTI_SESSION_DECODE;
    return LT_OK;
}

static void describe(lt_session *s, lt_frames *out, int64_t first, double seconds)
{
    const lt_prompt_mark *mark = lti_prompts_mark(&s->prompts, s->shown.prompt);
    *out = s->shown;
    out->rgb = s->rgb;
    out->count = s->group;
    out->width = s->o.width;
    out->height = s->o.height;
    out->first = first;
    out->decode_seconds = seconds;
    out->prompt_text = mark ? mark->prompt : s->prompt;
    out->prompt_frame = mark ? mark->frame : 0;
}

bool lti_session_continues(const lt_session *s)
{
    return s->o.num_frames % s->m->config.info.frame_scale == 0;
}

int64_t lti_session_number(const lt_session *s, int64_t latents)
{
    const int64_t scale = s->m->config.info.frame_scale;
    if (lti_session_continues(s)) return latents * scale;
    return latents ? 1 + (latents - 1) * scale : 0;
}

/* The next latent frame's frames to rgb, drawing what has not been drawn. */
static lt_status make_group(lt_session *s, int64_t first)
{
    if (s->lead) { /* there already */
        s->lead = false;
        s->pushed++;
        return LT_OK;
    }
    LT_TRY(decode_group(s, first));
    return lti_watch_frames(s);
}

static lt_status draw_due(lt_session *s)
{
    if (s->lead || s->in_group) return LT_OK;
    if (s->rollout && lti_session_wants_block(s)) return lti_session_next_block(s);
    if (s->extend && lti_session_wants_segment(s)) return lti_session_next_segment(s);
    return LT_OK;
}

static lt_status next_frames(lt_session *s, lt_frames *out)
{
    LT_TRY(lti_session_start(s));
    LT_TRY(draw_due(s));
    const double t = lti_now();
    const int64_t first = lti_session_number(s, s->pushed);
    LT_TRY(make_group(s, first));
    describe(s, out, first, lti_now() - t);
    s->report.decode_seconds += lti_now() - t;
    s->report.total_seconds = lti_now() - s->start;
    if (first == 0) s->report.first_frame_seconds = s->report.total_seconds;
    if (s->pushed == s->frames) {
        s->state = LTI_SESSION_END;
        if (!s->rollout) release_device(s); /* blocks may be saved yet */
    }
    return LT_OK;
}

lt_status lti_session_alive(lt_session *s)
{
    if (s->state != LTI_SESSION_FAILED) return LT_OK;
    return lti_fail(s->ctx, s->failure, "%s", s->message);
}

lt_status lti_session_settle(lt_session *s, lt_status st)
{
    if (st >= 0) return st;
    const bool whole = s->rollout && s->state != LTI_SESSION_NEW; /* it may be saved yet */
    snprintf(s->message, sizeof s->message, "%s", lt_error(s->ctx));
    s->failure = st;
    if (s->state != LTI_SESSION_NEW) s->report.total_seconds = lti_now() - s->start;
    s->state = LTI_SESSION_FAILED;
    if (st != LT_ERR_CANCELLED || !whole) release_device(s);
    return st;
}

lt_status lt_session_next(lt_session *s, lt_frames *out)
{
    *out = (lt_frames){0};
    if (s->state == LTI_SESSION_END) return LT_END;
    LT_TRY(lti_session_alive(s));
    return lti_session_settle(s, next_frames(s, out));
}

void lt_session_get_report(const lt_session *s, lt_session_report *out)
{
    *out = s->report;
}

void lt_session_get_options(const lt_session *s, lt_session_options *out)
{
    *out = s->o;
}
