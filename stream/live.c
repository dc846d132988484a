/* live.c: a live session: one video that is drawn while it is watched. What the network thread and the scheduler do with it; the device
 * thread draws it (live_draw.c). All that viewers are told goes through its hub. */
#include "stream/live_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far a session draws ahead of what its owner sees: less is a quicker answer to a new prompt, more survives a longer pause. */
#define LEAD_S 1.5
/* From one key frame to the next that may be asked for. */
#define KEY_S 1.0
/* Without word from the owner for so long, nobody is taken to be looking. */
#define SILENT_S 1.5

/* ---- making ---- */

/* Of a prompt, in the list of them: every viewer that comes gets it. */
enum { TOLD_BYTES = 1000 };

json_t *lti_live_told(const char *prompt)
{
    size_t n = strlen(prompt);
    if (n > TOLD_BYTES)
        for (n = TOLD_BYTES; ((unsigned char)prompt[n] & 0xc0) == 0x80; n--)
            continue;
    return json_stringn(prompt, n);
}

static lt_status create(lti_live *l, lt_server *srv, const lti_live_options *o)
{
    char hex[2 * LTI_LIVE_ID + 1];
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
    lti_random_hex(hex, LTI_LIVE_ID);
    snprintf(l->id, sizeof l->id, "live_%s", hex);
    lti_random_hex(l->key, LTI_LIVE_KEY);
    lti_random_hex(l->resume, LTI_LIVE_KEY);
    l->prompts = json_pack("[{s:i, s:i, s:o}]", "pts", 0, "frame", 0, "text",
                           lti_live_told(l->options.prompt));
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

void lti_prompt_order_clear(lti_prompt_order *p)
{
    free(p->text);
    free(p->event_id);
    *p = (lti_prompt_order){0};
}

void lti_live_release(lti_live *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) > 1) return;
    lti_prompt_order_clear(&l->pending);
    lti_prompt_order_clear(&l->given);
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

void lti_live_say(lti_live *l, json_t *event)
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
    lti_prompt_order p = {strdup(text), event_id ? strdup(event_id) : NULL, blend, lti_now()}, old;
    const bool ar = l->options.mode == LT_MODE_AR;
    pthread_mutex_lock(&l->lock);
    const bool ok = p.text && ar && l->phase != LTI_LIVE_ENDED;
    old = ok ? l->pending : p;
    if (ok) l->pending = p;
    pthread_mutex_unlock(&l->lock);
    if (old.text)
        lti_live_say(l, lti_rejection(old.event_id,
                                      ok    ? "superseded"
                                      : !ar ? "mode_clip"
                                            : "ended",
                                      NULL));
    lti_prompt_order_clear(&old);
    lti_sched_wake(l->srv->sched);
}

void lti_live_pause(lti_live *l, bool paused, const char *event_id)
{
    pthread_mutex_lock(&l->lock);
    l->paused = paused;
    l->shown_at = lti_now(); /* the clock stands while it is paused */
    const int64_t made = l->made;
    pthread_mutex_unlock(&l->lock);
    lti_live_say(l,
                 json_pack("{s:s, s:s*, s:s, s:b, s:I, s:I}", "type", "applied", "event_id",
                           event_id, "what", paused ? "pause" : "resume", "paused", paused, "frame",
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

double lti_live_lead(lti_live *l)
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

double lti_live_key_wait(const lti_live *l)
{
    return l->want_key ? fmax(l->key_at + KEY_S - lti_now(), 0) : (double)INFINITY;
}

static double due(lti_task *t, double *wait)
{
    lti_live *l = (lti_live *)t;
    pthread_mutex_lock(&l->lock);
    const double lead = lti_live_lead(l);
    double d = fmax(lead, 0);
    if (l->want_picture) {
        d = 0;
    } else if (l->paused || (l->reliable && l->made - l->sent > 2 * (int64_t)l->options.fps)) {
        d = (double)NAN;
    } else if (!l->free_pace && lead > LEAD_S) {
        /* who waits for a key frame sees nothing meanwhile, so that the lead does not shrink */
        *wait = fmin(lead - LEAD_S, lti_live_key_wait(l));
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
        lti_live_say(l, json_pack("{s:s, s:i, s:i}", "type", "queued", "position", position,
                                  "eta_ms", (int)fmin(eta * 1000, 1e9)));
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->phase = LTI_LIVE_RUNNING;
    pthread_mutex_unlock(&l->lock);
    lti_observe(l->srv->metrics, LTI_TIME_QUEUE_WAIT, lti_now() - l->created);
    lti_live_say(l, json_pack("{s:s}", "type", "running"));
}

static const lti_task_ops task_ops = {.open = lti_live_open,
                                      .step = lti_live_step,
                                      .close = lti_live_close,
                                      .due = due,
                                      .left = left,
                                      .moved = moved};
