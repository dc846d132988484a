/* live.c: a live session: one video that is drawn while it is watched. The device thread draws and encodes it a group of frames at a
 * time; the network thread controls it. All that viewers are told goes through its hub. */
#include "stream/server.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far a session draws ahead of what its owner sees: less is a quicker answer to a new prompt, more survives a longer pause. */
#define LEAD_S 1.5
/* From one key frame to the next that may be asked for. */
#define KEY_S 1.0
/* Without word from the owner for so long, nobody is taken to be looking. */
#define SILENT_S 1.5

enum { MAX_PROMPTS = 256, ID_BYTES = 12, KEY_BYTES = 16 };

/* Of a prompt, in the list of them: every viewer that comes gets it. */
enum { TOLD_BYTES = 1000 };

typedef struct prompt_order {
    char *text, *event_id; /* text NULL: none */
    int32_t blend;
    double at;
} prompt_order;

struct lti_live {
    lti_task task; /* first */
    atomic_int refs;
    lt_server *srv;
    char id[2 * ID_BYTES + 8], key[2 * KEY_BYTES + 1], resume[2 * KEY_BYTES + 1];
    lti_video_request request;
    lt_session_options options; /* texts are the request's or the model's */
    bool reliable, free_pace;
    double created;
    lti_hub *hub;
    lti_live_net net;

    pthread_mutex_t lock;
    /* {lock} */
    lt_session *session; /* for cancelling */
    lti_tape *tape;
    bool untaped; /* it was tried in vain */
    lti_live_phase phase;
    bool paused, stopped, want_key, want_picture;
    double key_at; /* when the last key frame was made */
    char reason[32];
    double stopped_at;
    prompt_order pending;
    json_t *prompts; /* [{pts, frame, text}] that have taken effect */
    int64_t made, sent;
    double speed;           /* frames a second of device time; 0: not known */
    double first_at;        /* when the first frame was there; 0: not yet */
    double shown, shown_at; /* seconds of the video that the owner saw, and when */
    bool told;              /* by the owner's acks */

    /* device thread */
    lti_encoder *enc;
    prompt_order given; /* to the session, not in effect yet */
    int32_t prompt;
    int64_t block;
    double progress_at;
    int64_t drift_end; /* of the frames that the last vector was of */
    uint8_t *before;   /* the last frame's samples, for motion */
    uint8_t *last;     /* the last frame, for who comes and wants it as a JPEG */
    lti_unit_info last_info;
};

/* ---- making ---- */

/* Its beginning, in whole characters. */
static json_t *told(const char *prompt)
{
    size_t n = strlen(prompt);
    if (n > TOLD_BYTES)
        for (n = TOLD_BYTES; ((unsigned char)prompt[n] & 0xc0) == 0x80; n--)
            continue;
    return json_stringn(prompt, n);
}

static lt_status create(lti_live *l, lt_server *srv, const lti_live_options *o)
{
    char hex[2 * ID_BYTES + 1];
    l->srv = srv;
    l->request = *o->request;
    *o->request = (lti_video_request){.guidance_scale = -1, .solver = -1};
    l->options = *o->session;
    l->reliable = o->reliable;
    l->free_pace = o->free_pace;
    l->created = lti_now();
    l->task.live = true;
    l->task.slow = o->session->mode != LT_MODE_AR;
    l->task.bytes = o->bytes;
    lti_random_hex(hex, ID_BYTES);
    snprintf(l->id, sizeof l->id, "live_%s", hex);
    lti_random_hex(l->key, KEY_BYTES);
    lti_random_hex(l->resume, KEY_BYTES);
    l->prompts =
        json_pack("[{s:i, s:i, s:o}]", "pts", 0, "frame", 0, "text", told(l->options.prompt));
    if (!l->prompts) return lti_fail(srv->ctx, LT_ERR_MEM, "no memory for a session");
    return lti_hub_create(&l->hub, srv->ctx, srv->o.history_bytes);
}

static const lti_task_ops task_ops;

lt_status lti_live_create(lti_live **out, lt_server *srv, const lti_live_options *o)
{
    lti_live *l = *out = calloc(1, sizeof *l);
    if (!l) return lti_fail(srv->ctx, LT_ERR_MEM, "no memory for a session");
    atomic_init(&l->refs, 1);
    pthread_mutex_init(&l->lock, NULL);
    l->task.ops = &task_ops;
    const lt_status s = create(l, srv, o);
    if (s < 0) {
        lti_live_release(l);
        *out = NULL;
    }
    return s;
}

lt_status lti_live_submit(lti_live *l, double *eta)
{
    lti_live_ref(l); /* the scheduler's, until `close` */
    const lt_status s = lti_sched_submit(l->srv->sched, &l->task, eta);
    if (s != LT_OK) lti_live_release(l);
    return s;
}

lti_live *lti_live_ref(lti_live *l)
{
    atomic_fetch_add(&l->refs, 1);
    return l;
}

static void clear_order(prompt_order *p)
{
    free(p->text);
    free(p->event_id);
    *p = (prompt_order){0};
}

void lti_live_release(lti_live *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) > 1) return;
    clear_order(&l->pending);
    clear_order(&l->given);
    json_decref(l->prompts);
    lti_video_request_free(&l->request);
    lti_tape_destroy(l->tape);
    lti_hub_destroy(l->hub);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

const char *lti_live_id(const lti_live *l)
{
    return l->id;
}

const char *lti_live_key(const lti_live *l)
{
    return l->key;
}

const char *lti_live_resume_token(const lti_live *l)
{
    return l->resume;
}

lti_hub *lti_live_hub(lti_live *l)
{
    return l->hub;
}

bool lti_live_is_reliable(const lti_live *l)
{
    return l->reliable;
}

bool lti_live_is_paused(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    const bool paused = l->paused;
    pthread_mutex_unlock(&l->lock);
    return paused;
}

int lti_live_tape(lti_live *l, int64_t *bytes)
{
    pthread_mutex_lock(&l->lock);
    const int fd = l->tape ? lti_tape_open(l->tape, bytes) : -1;
    pthread_mutex_unlock(&l->lock);
    return fd;
}

lti_live_net *lti_live_get_net(lti_live *l)
{
    return &l->net;
}

lti_live_phase lti_live_get_phase(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    const lti_live_phase p = l->phase;
    pthread_mutex_unlock(&l->lock);
    return p;
}

static void say(lti_live *l, json_t *event)
{
    lti_hub_say(l->hub, event);
    lti_server_wake(l->srv);
}

json_t *lti_live_describe(lti_live *l)
{
    static const char *const phases[] = {"queued", "running", "ended"};
    const lti_hub_config *c = lti_hub_get_config(l->hub);
    const lti_hub_state h = lti_hub_look(l->hub);
    json_t *request = lti_video_request_echo(&l->options, &l->srv->info);
    pthread_mutex_lock(&l->lock);
    json_t *d =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:I, s:I, s:i, s:i, s:i, s:[i, i]}", "type",
                  "started", "session_id", l->id, "key", l->key, "phase", phases[l->phase],
                  "paused", l->paused, "request", request, "first_frame", (json_int_t)h.first,
                  "frames", (json_int_t)h.end, "width", l->options.width, "height",
                  l->options.height, "fps", l->options.fps, "time_base", 1, l->options.fps);
    /* another thread adds prompts: a copy */
    if (d) json_object_set_new(d, "prompts", json_deep_copy(l->prompts));
    pthread_mutex_unlock(&l->lock);
    if (d && c) json_object_set_new(d, "codec", json_string(c->codec));
    return d;
}

/* ---- controls: network thread ---- */

void lti_live_prompt(lti_live *l, const char *text, int32_t blend, const char *event_id)
{
    prompt_order p = {strdup(text), event_id ? strdup(event_id) : NULL, blend, lti_now()}, old;
    const bool ar = l->options.mode == LT_MODE_AR;
    pthread_mutex_lock(&l->lock);
    const bool ok = p.text && ar && l->phase != LTI_LIVE_ENDED;
    old = ok ? l->pending : p;
    if (ok) l->pending = p;
    pthread_mutex_unlock(&l->lock);
    if (old.text)
        say(l, lti_rejection(old.event_id, ok ? "superseded" : !ar ? "mode_clip" : "ended", NULL));
    clear_order(&old);
    lti_sched_wake(l->srv->sched);
}

void lti_live_pause(lti_live *l, bool paused, const char *event_id)
{
    pthread_mutex_lock(&l->lock);
    l->paused = paused;
    l->shown_at = lti_now(); /* the clock stands while it is paused */
    const int64_t made = l->made;
    pthread_mutex_unlock(&l->lock);
    say(l, json_pack("{s:s, s:s*, s:s, s:b, s:I, s:I}", "type", "applied", "event_id", event_id,
                     "what", paused ? "pause" : "resume", "paused", paused, "frame",
                     (json_int_t)made, "pts", (json_int_t)(made * 1000000 / l->options.fps)));
    lti_sched_wake(l->srv->sched);
}

void lti_live_keyframe(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    l->want_key = true;
    pthread_mutex_unlock(&l->lock);
    lti_sched_wake(l->srv->sched);
}

void lti_live_picture(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    const bool can = l->phase == LTI_LIVE_RUNNING && l->made > 0;
    l->want_picture = l->want_picture || can;
    pthread_mutex_unlock(&l->lock);
    if (can) lti_sched_wake(l->srv->sched);
}

void lti_live_stop(lti_live *l, const char *reason)
{
    pthread_mutex_lock(&l->lock);
    const bool first = !l->stopped && l->phase != LTI_LIVE_ENDED;
    if (first) {
        l->stopped = true;
        l->stopped_at = lti_now();
        snprintf(l->reason, sizeof l->reason, "%s", reason);
        if (l->session) lt_session_cancel(l->session);
    }
    pthread_mutex_unlock(&l->lock);
    if (first) lti_sched_stop(l->srv->sched, &l->task);
}

void lti_live_progress(lti_live *l, int64_t sent, int64_t pts_us)
{
    pthread_mutex_lock(&l->lock);
    const bool waits = l->reliable && sent > l->sent;
    l->sent = sent;
    if (pts_us >= 0) {
        l->shown = 1e-6 * (double)pts_us;
        l->shown_at = lti_now();
        l->told = true;
    }
    pthread_mutex_unlock(&l->lock);
    if (waits || pts_us >= 0) lti_sched_wake(l->srv->sched);
}

void lti_live_alone(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    l->told = false;
    pthread_mutex_unlock(&l->lock);
    lti_sched_wake(l->srv->sched);
}

/* ---- what the scheduler asks ---- */

/* Seconds of video that are made and not seen yet; below 0: the picture stands. Without word from the owner it is taken to go on
 * from there when there is something to see. {lock} */
static double lead_of(lti_live *l)
{
    const double now = lti_now(), made = (double)l->made / l->options.fps;
    if (l->first_at <= 0) return 0;
    if (l->shown_at <= 0) l->shown_at = l->first_at;
    const double since = now - l->shown_at;
    const double lead = made - l->shown - (l->told && since > SILENT_S ? SILENT_S : since);
    if (lead < 0) {
        l->shown = made;
        l->shown_at = now;
    }
    return lead;
}

/* Seconds until a key frame is made that was asked for; INFINITY: none was. {lock} */
static double key_wait(const lti_live *l)
{
    return l->want_key ? fmax(l->key_at + KEY_S - lti_now(), 0) : (double)INFINITY;
}

static double due(lti_task *t, double *wait)
{
    lti_live *l = (lti_live *)t;
    pthread_mutex_lock(&l->lock);
    const double lead = lead_of(l);
    double d = fmax(lead, 0);
    if (l->want_picture) {
        d = 0;
    } else if (l->paused || (l->reliable && l->made - l->sent > 2 * (int64_t)l->options.fps)) {
        d = (double)NAN;
    } else if (!l->free_pace && lead > LEAD_S) {
        /* who waits for a key frame sees nothing meanwhile, so that the lead does not shrink */
        *wait = fmin(lead - LEAD_S, key_wait(l));
        if (*wait > 0) d = (double)NAN;
    }
    pthread_mutex_unlock(&l->lock);
    return d;
}

static double left(lti_task *t)
{
    lti_live *l = (lti_live *)t;
    pthread_mutex_lock(&l->lock);
    const double speed = l->speed > 0 ? l->speed : l->options.fps;
    const double s = (double)(l->options.num_frames - l->made) / speed;
    pthread_mutex_unlock(&l->lock);
    return s;
}

static void moved(lti_task *t, int32_t position, double eta)
{
    lti_live *l = (lti_live *)t;
    if (position >= 0) {
        say(l, json_pack("{s:s, s:i, s:i}", "type", "queued", "position", position, "eta_ms",
                         (int)fmin(eta * 1000, 1e9)));
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->phase = LTI_LIVE_RUNNING;
    pthread_mutex_unlock(&l->lock);
    lti_observe(l->srv->metrics, LTI_TIME_QUEUE_WAIT, lti_now() - l->created);
    say(l, json_pack("{s:s}", "type", "running"));
}

/* ---- drawing: device thread ---- */

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
    say(l, json_pack("{s:s, s:s, s:i, s:i}", "type", "progress", "phase", phases[p->phase], "step",
                     p->step, "steps", p->steps));
}

static lt_status open_live(lti_task *t, lt_model *model, lt_ctx *ctx)
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
    say(l, lti_live_describe(l));
    return LT_OK;
}

static bool key_ordered(lti_live *l)
{
    pthread_mutex_lock(&l->lock);
    const bool key = key_wait(l) <= 0;
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
    prompt_order p = l->pending;
    l->pending = (prompt_order){0};
    pthread_mutex_unlock(&l->lock);
    if (!p.text) return;
    const lt_status s = lt_session_prompt(l->session, p.text, p.blend);
    prompt_order lost = s == LT_OK ? l->given : p;
    if (s == LT_OK) l->given = p;
    if (lost.text)
        say(l, lti_rejection(lost.event_id, s == LT_OK ? "superseded" : "invalid_prompt", NULL));
    clear_order(&lost);
}

static void note_prompt(lti_live *l, const lt_frames *f)
{
    const json_int_t frame = f->prompt_frame, pts = frame * 1000000 / l->options.fps;
    const char *text = f->prompt_text ? f->prompt_text : "";
    pthread_mutex_lock(&l->lock);
    if (json_array_size(l->prompts) >= MAX_PROMPTS) json_array_remove(l->prompts, 0);
    json_array_append_new(
        l->prompts, json_pack("{s:I, s:I, s:o}", "pts", pts, "frame", frame, "text", told(text)));
    pthread_mutex_unlock(&l->lock);
    say(l, json_pack("{s:s, s:s*, s:s, s:o, s:I, s:I, s:I}", "type", "applied", "event_id",
                     l->given.event_id, "what", "prompt", "text", told(text), "frame", frame, "pts",
                     pts, "block", (json_int_t)f->block));
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
    const double lead = lead_of(l), mean = l->speed;
    pthread_mutex_unlock(&l->lock);
    lti_note_realtime(l->srv->metrics, speed / l->options.fps);
    if (lead < 0 && !l->free_pace) lti_count(l->srv->metrics, LTI_COUNT_DEADLINES_MISSED, 1);
    lti_observe(l->srv->metrics, LTI_TIME_DECODE, f->decode_seconds);
    json_t *picture = measure(l, f->rgb, f->width, f->height);
    say(l, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:i, s:o*, s:o*}", "type",
                     "stats", "frame", (json_int_t)end, "pts",
                     (json_int_t)(end * 1000000 / l->options.fps), "block", (json_int_t)f->block,
                     "gen_fps", mean, "block_ms", 1000 * f->block_seconds, "decode_ms",
                     1000 * f->decode_seconds, "lead_ms", 1000 * lead, "attention_density",
                     f->attention_density, "cache_bytes", (json_int_t)f->cache_bytes, "prompt",
                     f->prompt, "picture", picture, "drift", drift_of(l)));
}

static lt_status step(lti_task *t, lt_ctx *ctx)
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
        clear_order(&l->given);
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
        say(l, json_pack("{s:s, s:s, s:s, s:b, s:b}", "type", "error", "code",
                         why == LT_ERR_MEM ? "out_of_memory" : "generation_failed", "message",
                         message, "retryable", why == LT_ERR_MEM, "fatal", true));
    }
    if (why == LT_END) lti_count(l->srv->metrics, LTI_COUNT_SESSIONS_COMPLETE, 1);
    if (why == LT_ERR_CANCELLED) lti_count(l->srv->metrics, LTI_COUNT_SESSIONS_STOPPED, 1);
    say(l, json_pack("{s:s, s:I, s:s}", "type", "done", "frames", (json_int_t)frames, "reason",
                     reason));
    lti_say(l->srv, LT_LOG_INFO, "session_ended", "{s:s, s:I, s:s, s:f}", "session_id", l->id,
            "frames", (json_int_t)frames, "reason", reason, "seconds", lti_now() - l->created);
}

static void close_live(lti_task *t, lt_status why, const char *message)
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
    prompt_order pending = l->pending;
    l->pending = (prompt_order){0};
    pthread_mutex_unlock(&l->lock);
    lt_session_destroy(&session);
    put_picture(l); /* for who comes later */
    lti_live_encoder_close(&l->enc);
    free(l->before);
    free(l->last);
    l->before = l->last = NULL;
    if (stopped_at > 0) lti_observe(l->srv->metrics, LTI_TIME_CANCEL, lti_now() - stopped_at);
    const prompt_order *const lost[] = {&l->given, &pending};
    for (size_t i = 0; i < LT_COUNT(lost); i++)
        if (lost[i]->text) say(l, lti_rejection(lost[i]->event_id, "ended", NULL));
    clear_order(&pending);
    clear_order(&l->given);
    say_end(l, why, message, made, reason);
    lti_hub_end(l->hub);
    lti_server_wake(l->srv);
    lti_live_release(l);
}

static const lti_task_ops task_ops = {
    .open = open_live, .step = step, .close = close_live, .due = due, .left = left, .moved = moved};
