/* live_draw.c: a live session on the device thread: a group of frames at a time is drawn, encoded, measured and put into the hub. */
#include "stream/live_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPTS = 256 };

static void on_progress(void *user, const lt_progress *p)
{
    static const char *const phases[] = {"text", "denoise", "decode"};
    lti_live *l = user;
    const double now = lti_now();
    if (p->phase == LT_PHASE_DENOISE && p->step > 0)
        lti_observe(l->srv->metrics, LTI_TIME_STEP, p->step_seconds);
    if (p->phase == LT_PHASE_DENOISE) lti_sched_yield(l->srv->sched, &l->task);
    if (p->phase == LT_PHASE_DECODE || (now - l->progress_at < 0.2 && p->step < p->steps)) return;
    l->progress_at = now;
    lti_live_say(l, json_pack("{s:s, s:s, s:i, s:i}", "type", "progress", "phase", phases[p->phase],
                              "step", p->step, "steps", p->steps));
}

lt_status lti_live_open(lti_task *t, lt_model *model, lt_ctx *ctx)
{
    lti_live *l = (lti_live *)t;
    lt_session_options o = l->options;
    lt_session *session;
    o.progress = on_progress;
    o.progress_user = l;
    LT_TRY(lt_session_create(&session, model, &o));
    pthread_mutex_lock(&l->lock);
    l->session = session;
    if (l->stopped) lt_session_cancel(session);
    pthread_mutex_unlock(&l->lock);
    return lti_live_encoder_open(
        &l->enc, ctx,
        &(lti_encoder_options){
            .width = o.width, .height = o.height, .fps = o.fps, .crf = l->request.crf});
}

lt_status lti_live_configure(lti_hub_config *out, lt_ctx *ctx, const lt_server *srv,
                             const lt_session_options *o, lti_unit *first)
{
    enum { MAX_METADATA = 32 };
    lt_key_value meta[MAX_METADATA];
    lti_hub_config c = {.width = o->width, .height = o->height, .fps = o->fps};
    lti_parameter_sets(lti_unit_payload(first), first->bytes, c.sets, sizeof c.sets, &c.set_bytes);
    if (!lti_codec_string(c.sets, c.set_bytes, c.codec))
        return lti_fail(ctx, LT_ERR_CODEC, "the first picture has no parameter sets");
    json_t *params = lti_video_request_echo(o, &srv->info), *store = json_array();
    lt_status s = params && store ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for metadata");
    if (s == LT_OK) {
        char generator[64];
        snprintf(generator, sizeof generator, "Longtake %s", srv->o.version);
        json_object_set_new(params, "generator", json_string(generator));
        const int32_t n = lti_video_metadata(params, meta, MAX_METADATA, store);
        s = lti_fmp4_init(ctx, &c.init, &c.init_bytes, c.sets, c.set_bytes, c.width, c.height,
                          c.fps, meta, n);
    }
    json_decref(params);
    json_decref(store);
    *out = c;
    return s;
}

static lt_status configure(lti_live *l, lt_ctx *ctx, lti_unit *first)
{
    lti_hub_config c;
    LT_TRY(lti_live_configure(&c, ctx, l->srv, &l->options, first));
    lti_hub_configure(l->hub, &c);
    lti_live_say(l, lti_live_describe(l));
    return LT_OK;
}

static bool key_ordered(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    const bool key = lti_live_key_wait(l) <= 0;
    pthread_mutex_unlock(&l->lock);
    return key;
}

static bool take_picture_order(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    const bool wanted = l->want_picture;
    l->want_picture = false;
    pthread_mutex_unlock(&l->lock);
    return wanted;
}

/* The last frame as a JPEG, beside those of the stream. Who watches goes without when it cannot be made. */
static void put_picture(lti_live *l)
{
    lti_unit *u;
    if (!l->last || lti_hub_look(l->hub).picture == l->last_info.frame) return;
    if (lti_live_encoder_jpeg(l->enc, l->last, &l->last_info, &u) < 0) return;
    lti_hub_put_picture(l->hub, u);
    lti_server_wake(l->srv);
}

/* What will not fit in memory any more goes to the disk, all of it; where that is full, the beginning of the stream will be gone. */
static void tape(lti_live *l, lti_unit *u)
{
    const uint64_t most = l->srv->o.history_bytes;
    lti_tape *t = l->tape; /* this thread's, but for downloads */
    bool ok = !l->untaped;
    if (ok && !t && lti_hub_look(l->hub).bytes + u->bytes > most - most / 8) {
        t = lti_tape_start(l->srv->jobs, l->id, l->hub);
        ok = t != NULL;
    }
    if (t && ok) ok = lti_tape_add(t, u);
    pthread_mutex_lock(&l->lock);
    l->tape = ok ? t : NULL;
    pthread_mutex_unlock(&l->lock);
    if (ok || l->untaped) return;
    l->untaped = true;
    lti_tape_destroy(t);
    lti_say(l->srv, LT_LOG_WARN, "not_recorded", "{s:s}", "session_id", l->id);
}

static lti_unit_info info_of(const lti_live *l, const lt_frames *f, int64_t frame)
{
    const int64_t fps = l->options.fps;
    return (lti_unit_info){.frame = frame,
                           .block = f->block,
                           .pts_us = frame * 1000000 / fps,
                           .duration_us =
                               (uint32_t)((frame + 1) * 1000000 / fps - frame * 1000000 / fps)};
}

static lt_status put_frame(lti_live *l, lt_ctx *ctx, const uint8_t *rgb, int64_t frame,
                           const lt_frames *f, bool prompt)
{
    const double t = lti_now();
    lti_unit *u;
    lti_unit_info info = info_of(l, f, frame);
    if (prompt) info.flags = LTI_FLAG_PROMPT;
    LT_TRY(lti_live_encoder_push(l->enc, rgb, prompt || key_ordered(l), &info, &u));
    lt_status s = LT_OK;
    if (frame == 0) s = configure(l, ctx, u);
    if (s == LT_OK && lti_hub_wants_jpeg(l->hub))
        s = lti_live_encoder_jpeg(l->enc, rgb, &info, &u->jpeg);
    if (s < 0) {
        lti_unit_release(u);
        return s;
    }
    lti_observe(l->srv->metrics, LTI_TIME_ENCODE, lti_now() - t);
    if (frame) tape(l, u);
    const bool key = u->key;
    if (!lti_hub_push(l->hub, u)) return lti_fail(ctx, LT_ERR_MEM, "no memory for a frame");
    pthread_mutex_lock(&l->lock);
    l->made = frame + 1;
    if (key) {
        l->want_key = false;
        l->key_at = lti_now();
    }
    if (l->first_at <= 0) {
        l->first_at = lti_now();
        lti_observe(l->srv->metrics, LTI_TIME_FIRST_FRAME, l->first_at - l->created);
    }
    pthread_mutex_unlock(&l->lock);
    lti_count(l->srv->metrics, LTI_COUNT_FRAMES_GENERATED, 1);
    lti_server_wake(l->srv);
    return LT_OK;
}

static lt_status keep_last(lti_live *l, lt_ctx *ctx, const lt_frames *f, size_t bytes)
{
    if (!l->last && !(l->last = malloc(bytes)))
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a picture");
    memcpy(l->last, f->rgb + (size_t)(f->count - 1) * bytes, bytes);
    l->last_info = info_of(l, f, f->first + f->count - 1);
    return LT_OK;
}

/* A prompt that came in is handed on; of several before a block the last one counts. */
static void hand_on_prompt(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    lti_prompt_order p = l->pending;
    l->pending = (lti_prompt_order){0};
    pthread_mutex_unlock(&l->lock);
    if (!p.text) return;
    const lt_status s = lt_session_prompt(l->session, p.text, p.blend);
    lti_prompt_order lost = s == LT_OK ? l->given : p;
    if (s == LT_OK) l->given = p;
    if (lost.text)
        lti_live_say(
            l, lti_rejection(lost.event_id, s == LT_OK ? "superseded" : "invalid_prompt", NULL));
    lti_prompt_order_clear(&lost);
}

static void note_prompt(lti_live *l, const lt_frames *f)
{
    const json_int_t frame = f->prompt_frame, pts = frame * 1000000 / l->options.fps;
    const char *text = f->prompt_text ? f->prompt_text : "";
    pthread_mutex_lock(&l->lock);
    if (json_array_size(l->prompts) >= MAX_PROMPTS) json_array_remove(l->prompts, 0);
    json_array_append_new(l->prompts, json_pack("{s:I, s:I, s:o}", "pts", pts, "frame", frame,
                                                "text", lti_live_told(text)));
    pthread_mutex_unlock(&l->lock);
    lti_live_say(l, json_pack("{s:s, s:s*, s:s, s:o, s:I, s:I, s:I}", "type", "applied", "event_id",
                              l->given.event_id, "what", "prompt", "text", lti_live_told(text),
                              "frame", frame, "pts", pts, "block", (json_int_t)f->block));
}

/* Slow statistics of a picture on every fourth pixel of every fourth row: luma, contrast, saturation, 0..1, and the mean change of
 * luma since the last one. */
static json_t *measure(lti_live *l, const uint8_t *rgb, int32_t width, int32_t height)
{
    const size_t cols = ((size_t)width + 3) / 4, n = cols * (((size_t)height + 3) / 4);
    const bool again = l->before != NULL;
    double sum = 0, squares = 0, chroma = 0, motion = 0;
    if (!again && !(l->before = malloc(n))) return NULL;
    size_t i = 0;
    for (int32_t y = 0; y < height; y += 4)
        for (int32_t x = 0; x < width; x += 4, i++) {
            const uint8_t *p = rgb + 3 * ((size_t)y * (size_t)width + (size_t)x);
            const int luma = (54 * p[0] + 183 * p[1] + 19 * p[2]) >> 8;
            const int high = p[0] > p[1] ? (p[0] > p[2] ? p[0] : p[2]) : p[1] > p[2] ? p[1] : p[2];
            const int low = p[0] < p[1] ? (p[0] < p[2] ? p[0] : p[2]) : p[1] < p[2] ? p[1] : p[2];
            sum += luma;
            squares += luma * luma;
            chroma += high - low;
            motion += again ? abs(luma - l->before[i]) : 0;
            l->before[i] = (uint8_t)luma;
        }
    const double mean = sum / (double)n, var = squares / (double)n - mean * mean;
    return json_pack("{s:f, s:f, s:f, s:f}", "luma", mean / 255, "contrast",
                     sqrt(fmax(var, 0)) / 255, "saturation", chroma / (double)n / 255, "motion",
                     motion / (double)n / 255);
}

/* What the session's monitor says, once a vector; NULL: nothing new. */
static json_t *drift_of(lti_live *l)
{
    const lt_drift_vector *v = lt_session_drift(l->session);
    if (!v || v->first_frame + v->frames <= l->drift_end) return NULL;
    l->drift_end = v->first_frame + v->frames;
    return json_pack("{s:I, s:i, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:b}",
                     "first_frame", (json_int_t)v->first_frame, "frames", v->frames, "settled",
                     v->settled, "exposure", v->exposure, "colour", v->colour, "contrast",
                     v->contrast, "saturation", v->saturation, "sharpness", v->sharpness, "motion",
                     v->motion, "flicker", v->flicker, "level", v->level, "kind",
                     lt_drift_kind_name(v->kind), "action", lt_drift_action_name(v->action),
                     "alarm", v->alarm);
}

static void tell_stats(lti_live *l, const lt_frames *f, double seconds)
{
    const int64_t end = f->first + f->count;
    pthread_mutex_lock(&l->lock);
    const double speed = f->count / fmax(seconds, 1e-6);
    l->speed = l->speed > 0 ? 0.8 * l->speed + 0.2 * speed : speed;
    const double lead = lti_live_lead(l), mean = l->speed;
    pthread_mutex_unlock(&l->lock);
    lti_note_realtime(l->srv->metrics, speed / l->options.fps);
    if (lead < 0 && !l->free_pace) lti_count(l->srv->metrics, LTI_COUNT_DEADLINES_MISSED, 1);
    lti_observe(l->srv->metrics, LTI_TIME_DECODE, f->decode_seconds);
    json_t *picture = measure(l, f->rgb, f->width, f->height);
    lti_live_say(l, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:i, s:o*, s:o*}",
                              "type", "stats", "frame", (json_int_t)end, "pts",
                              (json_int_t)(end * 1000000 / l->options.fps), "block",
                              (json_int_t)f->block, "gen_fps", mean, "block_ms",
                              1000 * f->block_seconds, "decode_ms", 1000 * f->decode_seconds,
                              "lead_ms", 1000 * lead, "attention_density", f->attention_density,
                              "cache_bytes", (json_int_t)f->cache_bytes, "prompt", f->prompt,
                              "picture", picture, "drift", drift_of(l)));
}

lt_status lti_live_step(lti_task *t, lt_ctx *ctx)
{
    lti_live *l = (lti_live *)t;
    lt_frames f;
    const double begun = lti_now();
    if (take_picture_order(l)) {
        put_picture(l);
        return LT_OK;
    }
    hand_on_prompt(l);
    const lt_status s = lt_session_next(l->session, &f);
    if (s != LT_OK) return s;
    t->slow = l->options.mode == LT_MODE_EXTEND;
    const bool turned = f.prompt != l->prompt;
    if (turned) note_prompt(l, &f);
    if (f.first == 0 || f.block != l->block)
        lti_observe(l->srv->metrics, LTI_TIME_BLOCK, f.block_seconds);
    l->block = f.block;
    if (f.first == 0) {
        lt_session_report r;
        lt_session_get_report(l->session, &r);
        lti_observe(l->srv->metrics, LTI_TIME_TEXT, r.text_seconds);
    }
    const size_t bytes = (size_t)f.width * (size_t)f.height * 3;
    for (int32_t i = 0; i < f.count; i++)
        LT_TRY(put_frame(l, ctx, f.rgb + (size_t)i * bytes, f.first + i, &f, turned && i == 0));
    if (f.count > 0) LT_TRY(keep_last(l, ctx, &f, bytes));
    if (turned) {
        if (l->given.at > 0) lti_observe(l->srv->metrics, LTI_TIME_SWITCH, lti_now() - l->given.at);
        lti_prompt_order_clear(&l->given);
        l->prompt = f.prompt;
    }
    tell_stats(l, &f, lti_now() - begun);
    return LT_OK;
}

/* ---- the end ---- */

static void say_end(lti_live *l, lt_status why, const char *message, int64_t frames,
                    const char *reason)
{
    if (!lti_text_valid(message, strlen(message))) message = "";
    if (why < 0 && why != LT_ERR_CANCELLED) {
        lti_count(l->srv->metrics, LTI_COUNT_SESSIONS_FAILED, 1);
        lti_say(l->srv, LT_LOG_ERROR, "session_failed", "{s:s, s:s, s:s}", "session_id", l->id,
                "code", lt_status_name(why), "message", message);
        lti_live_say(l,
                     json_pack("{s:s, s:s, s:s, s:b, s:b}", "type", "error", "code",
                               why == LT_ERR_MEM ? "out_of_memory" : "generation_failed", "message",
                               message, "retryable", why == LT_ERR_MEM, "fatal", true));
    }
    if (why == LT_END) lti_count(l->srv->metrics, LTI_COUNT_SESSIONS_COMPLETE, 1);
    if (why == LT_ERR_CANCELLED) lti_count(l->srv->metrics, LTI_COUNT_SESSIONS_STOPPED, 1);
    lti_live_say(l, json_pack("{s:s, s:I, s:s}", "type", "done", "frames", (json_int_t)frames,
                              "reason", reason));
    lti_say(l->srv, LT_LOG_INFO, "session_ended", "{s:s, s:I, s:s, s:f}", "session_id", l->id,
            "frames", (json_int_t)frames, "reason", reason, "seconds", lti_now() - l->created);
}

void lti_live_close(lti_task *t, lt_status why, const char *message)
{
    lti_live *l = (lti_live *)t;
    char reason[32];
    pthread_mutex_lock(&l->lock);
    lt_session *session = l->session;
    l->session = NULL;
    l->phase = LTI_LIVE_ENDED;
    const int64_t made = l->made;
    const double stopped_at = l->stopped ? l->stopped_at : 0;
    snprintf(reason, sizeof reason, "%s",
             why == LT_END                        ? "complete"
             : why != LT_ERR_CANCELLED && why < 0 ? "error"
             : l->reason[0]                       ? l->reason
                                                  : "server_stopped");
    lti_prompt_order pending = l->pending;
    l->pending = (lti_prompt_order){0};
    pthread_mutex_unlock(&l->lock);
    lt_session_destroy(&session);
    put_picture(l); /* for who comes later */
    lti_live_encoder_close(&l->enc);
    free(l->before);
    free(l->last);
    l->before = l->last = NULL;
    if (stopped_at > 0) lti_observe(l->srv->metrics, LTI_TIME_CANCEL, lti_now() - stopped_at);
    const lti_prompt_order *const lost[] = {&l->given, &pending};
    for (size_t i = 0; i < LT_COUNT(lost); i++)
        if (lost[i]->text) lti_live_say(l, lti_rejection(lost[i]->event_id, "ended", NULL));
    lti_prompt_order_clear(&pending);
    lti_prompt_order_clear(&l->given);
    say_end(l, why, message, made, reason);
    lti_hub_end(l->hub);
    lti_server_wake(l->srv);
    lti_live_release(l);
}
