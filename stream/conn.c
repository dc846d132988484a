/* conn.c: one websocket's side of the protocol, without the socket: messages go in, messages come out when there is room for one. A
 * viewer is a number of a frame in a hub; one that falls behind is sent on to a key frame. */
#include "stream/server.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A viewer for whom so much is waiting, and for so long, goes on with the newest key frame. */
#define LAG_S 1.0
#define FIRST_MESSAGE_S 10.0
#define IDLE_S 300.0
/* How much of the recorded part is sent ahead of its time after a seek. */
#define SEEK_AHEAD_S 2.0

enum { MAX_REPLIES = 64, MESSAGES_A_SECOND = 50, MESSAGES_AT_ONCE = 200 };

struct lti_conn {
    lt_server *srv;
    bool trusted, spoken, owner;
    bool reliable;  /* an owner who wants every frame: generation waits for it */
    lti_live *live; /* reference */
    lti_wire wire;
    bool sent_init, sent_end, discontinuity, wait_key;
    bool catching_up; /* behind on purpose: joined, resumed or sought */
    int64_t behind;   /* frames, when it began to */
    int64_t next, event;
    int64_t had;        /* the last frame that it was sent */
    int64_t seek_frame; /* -1: no pace */
    double seek_at;
    lti_event *reply[MAX_REPLIES];
    int first_reply, replies;
    double opened, heard, asked, allowance, allowed_at;
    int close;
    const char *why;
    bool drained;
};

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
        lti_event_release(c->reply[(c->first_reply + i) % MAX_REPLIES]);
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

/* Takes the object. */
static void answer(lti_conn *c, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    lti_event *e = text ? lti_event_create(text, strlen(text)) : NULL;
    json_decref(message);
    free(text);
    if (e && c->replies < MAX_REPLIES) {
        c->reply[(c->first_reply + c->replies++) % MAX_REPLIES] = e;
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
    answer(c, json_pack("{s:s, s:s, s:s, s:s*, s:b, s:b}", "type", "error", "code", code, "message",
                        message, "param", param && *param ? param : NULL, "retryable", retryable,
                        "fatal", 0));
}

static void reject(lti_conn *c, const lti_message *m, const char *code, const char *message)
{
    answer(c, lti_rejection(m->event_id, code, message));
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
    if (lti_hub_get_config(lti_live_hub(l))) answer(c, lti_live_describe(l));
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
    answer(c, json_pack("{s:s, s:s, s:s, s:b, s:o*, s:o}", "type", "welcome", "protocol",
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
        answer(c, lti_live_describe(l));
    else
        answer(c, json_pack("{s:s, s:s}", "type", "waiting", "session_id", lti_live_id(l)));
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
    answer(c, json_pack("{s:s, s:s, s:s, s:i, s:b, s:b}", "type", "error", "code", "queue_full",
                        "message", "all places are taken and the queue is full", "retry_after_ms",
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
        answer(c, json_pack("{s:s, s:s*, s:s, s:s, s:s, s:O*}", "type", "accepted", "event_id",
                            m->event_id, "session_id", lti_live_id(l), "key", lti_live_key(l),
                            "resume_token", lti_live_resume_token(l), "request",
                            json_object_get(d, "request")));
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
    answer(c, json_pack("{s:s, s:s*, s:s, s:I, s:I, s:b}", "type", "applied", "event_id",
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
        answer(c, json_pack("{s:s, s:f}", "type", "pong", "t", m->t));
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

/* ---- media ---- */

/* Goes on with a newer frame and says what was left out. */
static void skip_to(lti_conn *c, int64_t frame, const char *why)
{
    const lti_hub_config *k = lti_hub_get_config(lti_live_hub(c->live));
    const int64_t lost = frame - c->next;
    c->next = frame;
    c->discontinuity = true;
    c->wait_key = false;
    if (lost <= 0) return;
    lti_count_dropped(c->srv->metrics, !strcmp(why, "too_slow"), (uint64_t)lost);
    answer(c, json_pack("{s:s, s:I, s:I, s:s}", "type", "dropped", "frames", (json_int_t)lost,
                        "resume_pts", (json_int_t)(frame * 1000000 / k->fps), "reason", why));
}

/* In a pause no key frame comes, and there is time for all that is waiting. */
static bool waits_for_key(const lti_conn *c, const lti_hub_state *s)
{
    return c->wait_key && s->newest_key <= c->next && !s->ended && !lti_live_is_paused(c->live);
}

/* Whether a frame that is kept may be sent now; false also after a skip. */
static bool in_time(lti_conn *c, const lti_unit *u, const lti_hub_state *s)
{
    const lti_hub_config *k = lti_hub_get_config(lti_live_hub(c->live));
    const double now = lti_now();
    if (c->seek_frame >= 0) {
        const double ahead = (double)(c->next - c->seek_frame) / k->fps - (now - c->seek_at);
        return ahead <= SEEK_AHEAD_S;
    }
    /* one for whom ever more is waiting will not catch up */
    if (c->catching_up && (double)(s->end - c->next) > (double)c->behind + LAG_S * k->fps)
        c->catching_up = false;
    if (c->catching_up || c->reliable) return true;
    /* both: after a pause of the whole machine everything is old and little is waiting */
    const bool behind = now - u->born > LAG_S && (double)(s->end - c->next) > LAG_S * k->fps;
    if (c->wait_key || behind) {
        if (s->newest_key > c->next) {
            skip_to(c, s->newest_key, "too_slow");
        } else if (!u->key) {
            c->wait_key = true;
            if (!waits_for_key(c, s)) return true;
            lti_live_keyframe(c->live);
            return false;
        } else {
            c->wait_key = false;
        }
    }
    return true;
}

static bool give_init(lti_conn *c, lti_out *out, const lti_hub_config *k)
{
    const lti_unit_info info = {.kind = LTI_UNIT_INIT, .flags = LTI_FLAG_MARKED, .frame = c->next};
    lti_unit *u = lti_unit_create(&info, k->init, k->init_bytes);
    if (!u) return false;
    c->sent_init = true;
    *out = (lti_out){u->data + LTI_HEADROOM, LTI_UNIT_HEADER + u->bytes, true, u, NULL};
    return true;
}

static bool give_end(lti_conn *c, lti_out *out)
{
    const lti_unit_info info = {.kind = LTI_UNIT_END, .frame = c->next};
    lti_unit *u = c->sent_end ? NULL : lti_unit_create(&info, NULL, 0);
    if (!u) return false;
    c->sent_end = true;
    *out = (lti_out){u->data + LTI_HEADROOM, LTI_UNIT_HEADER, true, u, NULL};
    return true;
}

/* The form that this viewer wants. Takes u; NULL: this frame does not exist in it. */
static lti_unit *as_wanted(const lti_conn *c, lti_unit *u)
{
    lti_unit *other = NULL;
    if (c->wire == LTI_WIRE_ANNEXB) return u;
    if (c->wire == LTI_WIRE_FMP4) {
        other = lti_unit_fragment(u);
    } else if (u->jpeg) {
        other = u->jpeg;
        atomic_fetch_add(&other->refs, 1);
    }
    lti_unit_release(u);
    return other;
}

/* Takes u. */
static bool send_frame(lti_conn *c, lti_out *out, lti_unit *u)
{
    c->had = u->frame;
    lti_unit_stamp(u, c->discontinuity);
    c->discontinuity = false;
    lti_count(c->srv->metrics, LTI_COUNT_FRAMES_SENT, 1);
    lti_count(c->srv->metrics, LTI_COUNT_BYTES_SENT, u->bytes);
    *out = (lti_out){u->data + LTI_HEADROOM, LTI_UNIT_HEADER + u->bytes, true, u, NULL};
    return true;
}

static bool give_unit(lti_conn *c, lti_out *out, lti_unit *u)
{
    c->next = u->frame + 1;
    if (!c->catching_up && c->seek_frame < 0)
        lti_observe(c->srv->metrics, LTI_TIME_LAG, lti_now() - u->born);
    u = as_wanted(c, u);
    if (c->owner) lti_live_progress(c->live, c->next, -1);
    return u && send_frame(c, out, u);
}

/* Whether it wants JPEG and came when the newest frame was made without one, which there is beside by now. */
static bool lacks_picture(const lti_conn *c, const lti_hub_state *s)
{
    return c->wire == LTI_WIRE_JPEG && s->picture == s->end - 1 && s->picture > c->had;
}

static bool next_unit(lti_conn *c, lti_out *out)
{
    lti_hub *h = lti_live_hub(c->live);
    const lti_hub_config *k = lti_hub_get_config(h);
    lti_unit *u;
    for (;;) {
        if (k && c->wire == LTI_WIRE_FMP4 && !c->sent_init) return give_init(c, out, k);
        const lti_hub_state s = lti_hub_look(h);
        const lt_status st = lti_hub_get(h, c->next, &u);
        if ((st == LT_END || st == LT_AGAIN) && lacks_picture(c, &s))
            return send_frame(c, out, lti_hub_picture(h));
        if (st == LT_END) return give_end(c, out);
        if (st == LT_AGAIN) {
            c->catching_up = c->wait_key = false;
            c->seek_frame = -1;
            return false;
        }
        if (st == LT_ERR_MISSING) {
            skip_to(c, s.first, "gone");
            continue;
        }
        const int64_t was = c->next;
        const bool now = in_time(c, u, &s);
        if (!now || c->next != was) {
            lti_unit_release(u);
            if (!now) return false;
            continue;
        }
        if (give_unit(c, out, u)) return true;
    }
}

bool lti_conn_next(lti_conn *c, lti_out *out)
{
    lti_event *e = NULL;
    c->asked = 0;
    if (c->replies) {
        e = c->reply[c->first_reply];
        c->first_reply = (c->first_reply + 1) % MAX_REPLIES;
        c->replies--;
    } else if (c->close)
        return false;
    else if (c->live && (e = lti_hub_event(lti_live_hub(c->live), c->event)))
        c->event = e->number + 1;
    if (!e) return c->live && next_unit(c, out);
    *out = (lti_out){e->data + LTI_HEADROOM, e->bytes, false, NULL, e};
    return true;
}

bool lti_conn_wants_to_write(lti_conn *c)
{
    bool wants = c->replies > 0;
    if (!wants && !c->close && c->live) {
        const lti_hub_state s = lti_hub_look(lti_live_hub(c->live));
        wants = c->event < s.end_event || (c->next < s.end && !waits_for_key(c, &s)) ||
                lacks_picture(c, &s) || (s.ended && !c->sent_end);
    }
    if (wants && c->asked <= 0) c->asked = lti_now();
    return wants;
}

/* ---- time ---- */

void lti_conn_progress(lti_conn *c)
{
    if (c->asked > 0) c->asked = lti_now();
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
    answer(c, json_pack("{s:s, s:f}", "type", "draining", "deadline_s", deadline));
}
