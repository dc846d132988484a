/* conn_media.c: what one websocket is sent next. A viewer is a number of a frame in a hub; one that falls behind is sent on to a key
 * frame. */
#include "stream/conn_internal.h"

#include <string.h>

/* A viewer for whom so much is waiting, and for so long, goes on with the newest key frame. */
#define LAG_S 1.0
/* How much of the recorded part is sent ahead of its time after a seek. */
#define SEEK_AHEAD_S 2.0

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
    lti_conn_answer(c,
                    json_pack("{s:s, s:I, s:I, s:s}", "type", "dropped", "frames", (json_int_t)lost,
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
        c->first_reply = (c->first_reply + 1) % LTI_CONN_REPLIES;
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
