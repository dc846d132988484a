/* conn.c: one websocket's side of the protocol, without the socket: what a client says, and what it is answered. What it is shown is
 * conn_media.c's. */
#include "stream/conn_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_MESSAGE_S 10.0
#define IDLE_S 300.0

enum { MESSAGES_A_SECOND = 50, MESSAGES_AT_ONCE = 200 };

lti_conn *lti_conn_create(lt_server *srv, bool trusted)
{
    lti_conn *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->srv = srv;
    c->trusted = trusted || !srv->tokens;
    c->opened = c->heard = c->allowed_at = lti_now();
    c->allowance = MESSAGES_AT_ONCE;
    c->seek_frame = -1;
    return c;
}

static void leave(lti_conn *c)
{
    if (!c->live) return;
    lti_live_net *n = lti_live_get_net(c->live);
    if (c->wire == LTI_WIRE_JPEG) lti_hub_want_jpeg(lti_live_hub(c->live), -1);
    if (n->owner == c) {
        n->owner = NULL;
        n->owner_left = lti_now();
        lti_live_alone(c->live);
    }
    lti_live_release(c->live);
    c->live = NULL;
    c->owner = false;
}

void lti_conn_destroy(lti_conn *c)
{
    if (!c) return;
    leave(c);
    for (int i = 0; i < c->replies; i++)
        lti_event_release(c->reply[(c->first_reply + i) % LTI_CONN_REPLIES]);
    free(c);
}

void lti_conn_end(lti_conn *c, int code, const char *why)
{
    if (c->close) return;
    c->close = code;
    c->why = why;
}

int lti_conn_closing(const lti_conn *c, const char **reason)
{
    *reason = c->why ? c->why : "";
    /* what is to be said is said first, to who listens */
    return c->replies && c->close != LTI_CLOSE_SLOW ? LTI_CLOSE_NONE : c->close;
}

void lti_conn_answer(lti_conn *c, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    lti_event *e = text ? lti_event_create(text, strlen(text)) : NULL;
    json_decref(message);
    free(text);
    if (e && c->replies < LTI_CONN_REPLIES) {
        c->reply[(c->first_reply + c->replies++) % LTI_CONN_REPLIES] = e;
        return;
    }
    lti_event_release(e);
    lti_conn_end(c, LTI_CLOSE_POLICY, "too many messages at once");
}

static void refuse(lti_conn *c, const char *code, const char *message, const char *param,
                   bool retryable)
{
    /* it may end within a character of the client's */
    if (!lti_text_valid(message, strlen(message))) message = "the request is not valid";
    lti_conn_answer(c, json_pack("{s:s, s:s, s:s, s:s*, s:b, s:b}", "type", "error", "code", code,
                                 "message", message, "param", param && *param ? param : NULL,
                                 "retryable", retryable, "fatal", 0));
}

static void reject(lti_conn *c, const lti_message *m, const char *code, const char *message)
{
    lti_conn_answer(c, lti_rejection(m->event_id, code, message));
}

/* ---- joining ---- */

/* It goes on with frame `next`, behind the newest one. */
static void catch_up(lti_conn *c, int64_t next, int64_t end)
{
    c->next = next;
    c->had = next - 1;
    c->behind = end - next;
    c->catching_up = true;
}

static void join(lti_conn *c, lti_live *l, bool owner, lti_wire wire)
{
    leave(c);
    c->live = lti_live_ref(l);
    c->owner = owner;
    c->reliable = owner && lti_live_is_reliable(l);
    c->wire = wire;
    c->sent_init = c->sent_end = c->wait_key = false;
    c->discontinuity = true;
    c->seek_frame = -1;
    lti_hub *h = lti_live_hub(l);
    const lti_hub_state s = lti_hub_look(h);
    c->event = s.end_event;
    catch_up(c, s.ended ? s.first : s.newest_key >= 0 ? s.newest_key : 0, s.end);
    if (wire == LTI_WIRE_JPEG) {
        lti_hub_want_jpeg(h, 1);
        lti_live_picture(l);
    }
    if (!owner) return;
    lti_live_net *n = lti_live_get_net(l);
    if (n->owner && n->owner != c) {
        n->owner->owner = false;
        lti_conn_end(n->owner, LTI_CLOSE_SUPERSEDED,
                     "another connection has taken the session over");
    }
    n->owner = c;
}

static json_t *limits(const lt_server *srv)
{
    return json_pack("{s:f, s:i, s:i, s:f}", "max_seconds", srv->o.max_seconds, "max_message_bytes",
                     LTI_MESSAGE_BYTES, "max_prompt_bytes", 32768, "resume_seconds",
                     srv->o.resume_seconds);
}

/* What `start` with a prompt alone would make. */
static lt_status defaults(lt_session_options *out, const lt_server *srv)
{
    char prompt[] = "x";
    lti_video_request r = {.prompt = prompt, .guidance_scale = -1, .solver = -1, .seed_set = true};
    lti_param param;
    lti_video_request_live(&r, &srv->info, srv->o.max_seconds);
    return lti_video_request_options(out, srv->ctx, &r, &srv->info, srv->o.max_seconds, &param);
}

/* The last part of a path: no folder of this machine is told. */
static json_t *last_name(const char *path)
{
    size_t end = strlen(path), from;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (from = end; from && path[from - 1] != '/'; from--)
        continue;
    return json_stringn(path + from, end - from);
}

static json_t *model(const lt_server *srv)
{
    const lt_model_info *i = &srv->info;
    lt_session_options d;
    if (defaults(&d, srv) < 0) return NULL;
    return json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:i, s:i, s:b}", "name",
                     last_name(srv->o.model.path), "family", i->family, "width", d.width, "height",
                     d.height, "num_frames", d.num_frames, "fps", d.fps, "num_inference_steps",
                     d.num_inference_steps, "guidance_scale", d.guidance_scale, "flow_shift",
                     d.flow_shift, "mode", d.mode == LT_MODE_AR ? "ar" : "clip", "size_multiple",
                     i->size_multiple, "frame_scale", i->frame_scale, "causal", i->causal);
}

static bool authorized(lti_conn *c, const char *token)
{
    if (!c->trusted && token) c->trusted = lti_tokens_find(c->srv->tokens, token) >= 0;
    return c->trusted;
}

static void resume(lti_conn *c, const lti_message *m)
{
    lti_live *l = m->session_id ? lti_server_find_live(c->srv, m->session_id) : NULL;
    if (!l || !m->key || !lti_equal(m->key, lti_live_resume_token(l))) {
        refuse(c, "session_gone", "the session has ended or the token is not its own", NULL, false);
        return;
    }
    join(c, l, true, m->wire);
    c->trusted = true; /* the resume token was given to somebody who was */
    const lti_hub_state s = lti_hub_look(lti_live_hub(l));
    if (m->last_seq >= 0) catch_up(c, m->last_seq < s.end ? m->last_seq + 1 : s.end, s.end);
    if (m->last_event >= 0 && m->last_event < c->event) c->event = m->last_event + 1;
    c->discontinuity = m->last_seq < 0; /* else the next frame is the one that it waits for */
    if (lti_hub_get_config(lti_live_hub(l))) lti_conn_answer(c, lti_live_describe(l));
    lti_live_progress(l, c->next, -1);
}

static void on_hello(lti_conn *c, const lti_message *m)
{
    const bool by_resume = m->session_id != NULL;
    if (!authorized(c, m->token) && (m->token || !by_resume)) {
        refuse(c, "unauthorized", "this server wants a token that it knows", NULL, false);
        lti_conn_end(c, LTI_CLOSE_POLICY, "unauthorized");
        return;
    }
    lti_conn_answer(c, json_pack("{s:s, s:s, s:s, s:b, s:o*, s:o}", "type", "welcome", "protocol",
                                 "longtake.v1", "server", c->srv->o.version, "ready",
                                 atomic_load(&c->srv->ready) == 1, "model", model(c->srv), "limits",
                                 limits(c->srv)));
    if (by_resume) resume(c, m);
}

static void on_watch(lti_conn *c, const lti_message *m)
{
    lti_live *l = m->session_id ? lti_server_find_live(c->srv, m->session_id) : NULL;
    if (!l || !m->key || !lti_equal(m->key, lti_live_key(l))) {
        refuse(c, "session_gone", "there is no such session, or the link is not complete", NULL,
               false);
        return;
    }
    join(c, l, false, m->wire);
    if (lti_hub_get_config(lti_live_hub(l)))
        lti_conn_answer(c, lti_live_describe(l));
    else
        lti_conn_answer(c,
                        json_pack("{s:s, s:s}", "type", "waiting", "session_id", lti_live_id(l)));
}

/* ---- starting ---- */

static lt_status create_live(lti_conn *c, lti_message *m, lti_live **out)
{
    lt_server *srv = c->srv;
    lt_session_options o;
    lt_estimate e;
    lti_video_request_live(&m->request, &srv->info, srv->o.max_seconds);
    LT_TRY(lti_video_request_options(&o, srv->ctx, &m->request, &srv->info, srv->o.max_seconds,
                                     &m->param));
    LT_TRY(lt_session_estimate(&e, srv->ctx, &srv->o.model, &o));
    const uint64_t bytes = e.total_peak > e.weights ? e.total_peak - e.weights : 0,
                   picture = (uint64_t)o.width * (uint64_t)o.height * 3;
    return lti_live_create(out, srv,
                           &(lti_live_options){.request = &m->request,
                                               .session = &o,
                                               .bytes = bytes + picture + srv->o.history_bytes,
                                               .reliable = m->reliable,
                                               .free_pace = m->free_pace});
}

static void refuse_busy(lti_conn *c, lt_status s, double eta)
{
    lti_count(c->srv->metrics, LTI_COUNT_REFUSED, 1);
    if (s == LT_ERR_MEM) {
        refuse(c, "out_of_memory", "the machine does not have the memory that this video needs",
               NULL, false);
        return;
    }
    lti_conn_answer(c, json_pack("{s:s, s:s, s:s, s:i, s:b, s:b}", "type", "error", "code",
                                 "queue_full", "message",
                                 "all places are taken and the queue is full", "retry_after_ms",
                                 (int)fmin(1000 * eta + 1000, 3600e3), "retryable", 1, "fatal", 0));
}

static const char *cannot_start(const lti_conn *c)
{
    if (atomic_load(&c->srv->ready) != 1) return "loading";
    if (c->srv->draining) return "draining";
    if (c->live && c->owner && lti_live_get_phase(c->live) != LTI_LIVE_ENDED)
        return "already_started";
    return NULL;
}

static void on_start(lti_conn *c, lti_message *m)
{
    const char *no = cannot_start(c);
    lti_live *l;
    if (no) {
        refuse(c, no,
               !strcmp(no, "loading")    ? "the model is still being loaded"
               : !strcmp(no, "draining") ? "the server is shutting down"
                                         : "this connection has a session already",
               NULL, strcmp(no, "already_started") != 0);
        return;
    }
    const lt_status s = create_live(c, m, &l);
    if (s < 0) {
        refuse(c, s == LT_ERR_MEM ? "out_of_memory" : "invalid_request", lt_error(c->srv->ctx),
               m->param.name, false);
        return;
    }
    join(c, l, true, m->wire);
    c->next = c->event = 0; /* everything, from the start */
    c->discontinuity = false;
    double eta;
    const lt_status in = lti_live_submit(l, &eta);
    if (in != LT_OK) {
        leave(c);
        refuse_busy(c, in, eta);
    } else {
        lti_server_add_live(c->srv, l);
        lti_count(c->srv->metrics, LTI_COUNT_SESSIONS, 1);
        json_t *d = lti_live_describe(l);
        lti_conn_answer(c, json_pack("{s:s, s:s*, s:s, s:s, s:s, s:O*}", "type", "accepted",
                                     "event_id", m->event_id, "session_id", lti_live_id(l), "key",
                                     lti_live_key(l), "resume_token", lti_live_resume_token(l),
                                     "request", json_object_get(d, "request")));
        json_decref(d);
        lti_say(c->srv, LT_LOG_INFO, "session_started", "{s:s}", "session_id", lti_live_id(l));
    }
    lti_live_release(l);
}

/* ---- controls ---- */

static void on_seek(lti_conn *c, const lti_message *m)
{
    const lti_hub_config *k = c->live ? lti_hub_get_config(lti_live_hub(c->live)) : NULL;
    if (!k) {
        reject(c, m, "nothing_recorded", NULL);
        return;
    }
    lti_hub *h = lti_live_hub(c->live);
    const lti_hub_state s = lti_hub_look(h);
    const double frame = m->live ? (double)s.end : 1e-6 * (double)m->pts_us * k->fps;
    const int64_t key = lti_hub_key_before(h, (int64_t)fmin(frame, (double)s.end));
    catch_up(c, key < 0 ? 0 : key, s.end);
    c->discontinuity = true;
    c->wait_key = c->sent_end = false;
    c->seek_frame = m->live ? -1 : c->next;
    c->seek_at = lti_now();
    lti_conn_answer(c, json_pack("{s:s, s:s*, s:s, s:I, s:I, s:b}", "type", "applied", "event_id",
                                 m->event_id, "what", "seek", "frame", (json_int_t)c->next, "pts",
                                 (json_int_t)(c->next * 1000000 / k->fps), "live", m->live));
}

static void on_ack(lti_conn *c, const lti_message *m)
{
    if (c->live && c->owner) lti_live_progress(c->live, c->next, m->pts_us);
}

static void on_control(lti_conn *c, const lti_message *m)
{
    if (!c->live || !c->owner) {
        reject(c, m, c->live ? "not_owner" : "no_session", NULL);
        return;
    }
    switch (m->type) {
    case LTI_MESSAGE_PROMPT:
        lti_live_prompt(c->live, m->text, m->blend, m->event_id);
        break;
    case LTI_MESSAGE_PAUSE:
        lti_live_pause(c->live, true, m->event_id);
        break;
    case LTI_MESSAGE_RESUME:
        lti_live_pause(c->live, false, m->event_id);
        break;
    default:
        lti_live_stop(c->live, "stopped");
        break;
    }
}

static void act(lti_conn *c, lti_message *m)
{
    switch (m->type) {
    case LTI_MESSAGE_HELLO:
        on_hello(c, m);
        return;
    case LTI_MESSAGE_WATCH:
        on_watch(c, m);
        return;
    case LTI_MESSAGE_PING:
        lti_conn_answer(c, json_pack("{s:s, s:f}", "type", "pong", "t", m->t));
        return;
    case LTI_MESSAGE_UNKNOWN:
        refuse(c, "unknown_type", "there is no message of that type", m->type_text, false);
        return;
    case LTI_MESSAGE_SEEK:
        on_seek(c, m);
        return;
    case LTI_MESSAGE_ACK:
        on_ack(c, m);
        return;
    case LTI_MESSAGE_KEYFRAME:
        if (c->live) lti_live_keyframe(c->live);
        return;
    case LTI_MESSAGE_START:
        if (c->trusted) {
            on_start(c, m);
            return;
        }
        refuse(c, "unauthorized", "this server wants a token: say hello with it first", NULL,
               false);
        lti_conn_end(c, LTI_CLOSE_POLICY, "unauthorized");
        return;
    case LTI_MESSAGE_PROMPT:
    case LTI_MESSAGE_PAUSE:
    case LTI_MESSAGE_RESUME:
    case LTI_MESSAGE_STOP:
        on_control(c, m);
        return;
    }
}

static bool too_often(lti_conn *c)
{
    const double now = lti_now();
    c->allowance = fmin(MESSAGES_AT_ONCE, c->allowance + (now - c->allowed_at) * MESSAGES_A_SECOND);
    c->allowed_at = c->heard = now;
    return --c->allowance < 0;
}

void lti_conn_receive(lti_conn *c, const void *data, size_t bytes, bool binary)
{
    lti_message m;
    if (c->close) return;
    if (too_often(c)) {
        lti_conn_end(c, LTI_CLOSE_POLICY, "too many messages a second");
        return;
    }
    if (binary) {
        lti_conn_end(c, LTI_CLOSE_DATA, "binary messages are not taken");
        return;
    }
    const lt_status s = lti_message_parse(&m, c->srv->ctx, data, bytes);
    if (s == LT_ERR_FORMAT)
        refuse(c, "bad_message", lt_error(c->srv->ctx), NULL, false);
    else if (s < 0 && m.type != LTI_MESSAGE_START && m.event_id)
        reject(c, &m, "invalid", lt_error(c->srv->ctx));
    else if (s < 0)
        refuse(c, "invalid_request", lt_error(c->srv->ctx), m.param.name, false);
    else {
        c->spoken = true;
        act(c, &m);
    }
    lti_message_free(&m);
}

/* ---- time ---- */

void lti_conn_progress(lti_conn *c)
{
    if (c->asked > 0) c->asked = lti_now();
}

bool lti_conn_is_waited_for(const lti_conn *c)
{
    return c->reliable && c->asked > 0;
}

void lti_conn_tick(lti_conn *c)
{
    const double now = lti_now();
    if (!c->spoken && now - c->opened > FIRST_MESSAGE_S)
        lti_conn_end(c, LTI_CLOSE_POLICY, "no message came");
    const bool watching = c->live && lti_live_get_phase(c->live) != LTI_LIVE_ENDED;
    if (!watching && now - c->heard > IDLE_S) lti_conn_end(c, LTI_CLOSE_IDLE, "nothing happened");
    if (c->asked > 0 && now - c->asked > c->srv->o.stall_seconds * (c->reliable ? 30 : 1))
        c->close = LTI_CLOSE_SLOW; /* whatever else it was to be told */
    if (c->drained && !watching) lti_conn_end(c, LTI_CLOSE_GOING, "the server is shutting down");
}

void lti_conn_drain(lti_conn *c, double deadline)
{
    if (c->drained) return;
    c->drained = true;
    lti_conn_answer(c, json_pack("{s:s, s:f}", "type", "draining", "deadline_s", deadline));
}
