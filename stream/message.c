/* message.c: what a client says on the websocket: one JSON object a message, its fields checked here and nowhere else. */
#include "stream/server.h"

#include <math.h>
#include <string.h>

static lti_message_type type_of(const char *text)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        LTI_MESSAGE_MAP(NAME)
#undef NAME
    };
    for (size_t i = 0; i < LT_COUNT(names); i++)
        if (!strcmp(names[i], text)) return (lti_message_type)i;
    return LTI_MESSAGE_UNKNOWN;
}

static lt_status wrong(lti_message *m, lt_ctx *ctx, const char *name, const char *want)
{
    snprintf(m->param.name, sizeof m->param.name, "%s", name);
    return lti_fail(ctx, LT_ERR_ARG, "%s: must be %s", name, want);
}

static lt_status get_text(lti_message *m, lt_ctx *ctx, const json_t *o, const char *name,
                          size_t most, const char **out)
{
    const json_t *v = json_object_get(o, name);
    *out = NULL;
    if (!v || json_is_null(v)) return LT_OK;
    const char *text = json_string_value(v);
    if (!text || json_string_length(v) > most || !lti_text_valid(text, json_string_length(v)))
        return wrong(m, ctx, name, "a text of bounded length without control characters");
    *out = text;
    return LT_OK;
}

static lt_status get_bool(lti_message *m, lt_ctx *ctx, const char *name, bool *out)
{
    const json_t *v = json_object_get(m->root, name);
    *out = false;
    if (!v || json_is_null(v)) return LT_OK;
    if (!json_is_boolean(v)) return wrong(m, ctx, name, "true or false");
    *out = json_is_true(v);
    return LT_OK;
}

static lt_status get_number(lti_message *m, lt_ctx *ctx, const json_t *o, const char *name,
                            double min, double max, double *out)
{
    const json_t *v = json_object_get(o, name);
    if (!v || json_is_null(v)) return LT_OK;
    const double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= min && x <= max))
        return wrong(m, ctx, name, "a number within its limits");
    *out = x;
    return LT_OK;
}

static lt_status get_count(lti_message *m, lt_ctx *ctx, const json_t *o, const char *name,
                           double max, int64_t *out)
{
    double x = -1;
    LT_TRY(get_number(m, ctx, o, name, -1, max, &x));
    *out = (int64_t)x;
    return LT_OK;
}

static lt_status get_wire(lti_message *m, lt_ctx *ctx)
{
    static const char *const names[] = {"annexb", "fmp4", "jpeg"};
    const char *text;
    LT_TRY(get_text(m, ctx, m->root, "wire", 16, &text));
    m->wire = LTI_WIRE_ANNEXB;
    for (size_t i = 0; text && i < LT_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            m->wire = (lti_wire)i;
            return LT_OK;
        }
    return text ? wrong(m, ctx, "wire", "annexb, fmp4 or jpeg") : LT_OK;
}

static lt_status get_pace(lti_message *m, lt_ctx *ctx)
{
    const char *text;
    LT_TRY(get_text(m, ctx, m->root, "pace", 16, &text));
    if (text && strcmp(text, "free") && strcmp(text, "realtime"))
        return wrong(m, ctx, "pace", "realtime or free");
    m->free_pace = text && !strcmp(text, "free");
    return LT_OK;
}

static lt_status parse_hello(lti_message *m, lt_ctx *ctx)
{
    LT_TRY(get_text(m, ctx, m->root, "token", 512, &m->token));
    const json_t *resume = json_object_get(m->root, "resume");
    if (!resume || json_is_null(resume)) return LT_OK;
    if (!json_is_object(resume)) return wrong(m, ctx, "resume", "an object");
    LT_TRY(get_text(m, ctx, resume, "session_id", 64, &m->session_id));
    LT_TRY(get_text(m, ctx, resume, "token", 64, &m->key));
    LT_TRY(get_count(m, ctx, resume, "last_seq", 1e15, &m->last_seq));
    return get_count(m, ctx, resume, "last_event", 1e15, &m->last_event);
}

/* Fields of the protocol beside those of the video; others are left. */
static lt_status parse_start(lti_message *m, lt_ctx *ctx)
{
    LT_TRY(get_pace(m, ctx));
    LT_TRY(get_bool(m, ctx, "reliable", &m->reliable));
    return lti_video_request_parse(&m->request, ctx, m->root, false, &m->param);
}

static lt_status parse_prompt(lti_message *m, lt_ctx *ctx)
{
    double blend = 0;
    LT_TRY(get_text(m, ctx, m->root, "text", 32768, &m->text));
    LT_TRY(get_number(m, ctx, m->root, "transition_blocks", 0, 64, &blend));
    m->blend = (int32_t)blend;
    if (!m->text || strspn(m->text, " \t\r\n") == strlen(m->text))
        return wrong(m, ctx, "text", "a text that is not empty");
    return LT_OK;
}

static lt_status parse_fields(lti_message *m, lt_ctx *ctx)
{
    LT_TRY(get_text(m, ctx, m->root, "event_id", 128, &m->event_id));
    LT_TRY(get_wire(m, ctx));
    switch (m->type) {
    case LTI_MESSAGE_HELLO:
        return parse_hello(m, ctx);
    case LTI_MESSAGE_START:
        return parse_start(m, ctx);
    case LTI_MESSAGE_PROMPT:
        return parse_prompt(m, ctx);
    case LTI_MESSAGE_WATCH:
        LT_TRY(get_text(m, ctx, m->root, "session_id", 64, &m->session_id));
        return get_text(m, ctx, m->root, "key", 64, &m->key);
    case LTI_MESSAGE_SEEK:
        LT_TRY(get_bool(m, ctx, "live", &m->live));
        LT_TRY(get_count(m, ctx, m->root, "pts", 1e15, &m->pts_us));
        return m->live || m->pts_us >= 0 ? LT_OK : wrong(m, ctx, "pts", "a time in microseconds");
    case LTI_MESSAGE_ACK:
        LT_TRY(get_count(m, ctx, m->root, "rendered_pts", 1e15, &m->pts_us));
        return get_count(m, ctx, m->root, "seq", 1e15, &m->last_seq);
    case LTI_MESSAGE_PING:
        return get_number(m, ctx, m->root, "t", -1e300, 1e300, &m->t);
    case LTI_MESSAGE_PAUSE:
    case LTI_MESSAGE_RESUME:
    case LTI_MESSAGE_KEYFRAME:
    case LTI_MESSAGE_STOP:
    case LTI_MESSAGE_UNKNOWN:
        break;
    }
    return LT_OK;
}

lt_status lti_message_parse(lti_message *m, lt_ctx *ctx, const char *text, size_t bytes)
{
    *m = (lti_message){.type = LTI_MESSAGE_UNKNOWN,
                       .last_seq = -1,
                       .last_event = -1,
                       .pts_us = -1,
                       .request = {.guidance_scale = -1, .solver = -1}};
    m->root = lti_wire_json(ctx, text, bytes, LTI_MESSAGE_BYTES);
    if (!m->root) return LT_ERR_FORMAT;
    if (!json_is_object(m->root)) return lti_fail(ctx, LT_ERR_FORMAT, "a JSON object is wanted");
    LT_TRY(get_text(m, ctx, m->root, "type", 32, &m->type_text));
    if (!m->type_text) return wrong(m, ctx, "type", "the name of a message");
    m->type = type_of(m->type_text);
    return parse_fields(m, ctx);
}

json_t *lti_rejection(const char *event_id, const char *code, const char *message)
{
    static const char *const words[][2] = {
        {"no_session", "this connection has no session: start one first"},
        {"not_owner", "only the session's owner can do that"},
        {"nothing_recorded", "there is nothing yet to go to"},
        {"superseded", "another prompt came before this one took effect"},
        {"mode_clip", "the prompt can change in mode ar only"},
        {"invalid_prompt", "the model does not take this prompt"},
        {"ended", "the video has ended"}};
    for (size_t i = 0; !message && i < LT_COUNT(words); i++)
        if (!strcmp(words[i][0], code)) message = words[i][1];
    /* it may end within a character of the client's */
    if (!message || !lti_text_valid(message, strlen(message))) message = "the message is not valid";
    return json_pack("{s:s, s:s*, s:s, s:s}", "type", "rejected", "event_id", event_id, "code",
                     code, "message", message);
}

void lti_message_free(lti_message *m)
{
    lti_video_request_free(&m->request);
    json_decref(m->root);
    m->root = NULL;
}
