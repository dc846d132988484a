/* ws.c: websockets on libwebsockets. Only the socket is here; what is said is conn.c. */
#include "stream/server.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <libwebsockets.h>

_Static_assert(LTI_HEADROOM >= LWS_PRE, "a unit has room for libwebsockets' head");

typedef struct lti_ws {
    struct lws *wsi;
    lti_conn *conn;
    struct lti_ws *next;
    char *message; /* being received */
    size_t bytes;
    int unread; /* bytes that the peer's machine had not taken at the last look */
    bool listed, closing;
} lti_ws;

_Static_assert(sizeof(lti_ws) <= LTI_WS_SESSION_BYTES, "room for it is asked for in server.c");

static lt_server *server_of(struct lws *wsi)
{
    return lws_context_user(lws_get_context(wsi));
}

static void header(struct lws *wsi, enum lws_token_indexes which, char *out, size_t cap)
{
    if (lws_hdr_copy(wsi, out, (int)cap, which) < 0) *out = 0;
}

/* 0: the handshake may go on. */
static int filter(struct lws *wsi)
{
    lt_server *srv = server_of(wsi);
    char path[64], host[256], origin[256];
    header(wsi, WSI_TOKEN_GET_URI, path, sizeof path);
    header(wsi, WSI_TOKEN_HOST, host, sizeof host);
    header(wsi, WSI_TOKEN_ORIGIN, origin, sizeof origin);
    const bool too_long = lws_hdr_total_length(wsi, WSI_TOKEN_ORIGIN) >= (int)sizeof origin ||
                          lws_hdr_total_length(wsi, WSI_TOKEN_HOST) >= (int)sizeof host;
    const char *problem = too_long ? "name" : lti_peer_problem(srv, host, origin);
    unsigned status = 0;
    if (lws_get_opaque_user_data(wsi)) return 1; /* behind a request: http.c */
    if (strcmp(path, "/v1/stream"))
        status = HTTP_STATUS_NOT_FOUND;
    else if (problem)
        status = HTTP_STATUS_FORBIDDEN;
    if (!status) return 0;
    lti_say(srv, LT_LOG_WARN, "websocket_refused", "{s:i, s:s}", "status", (int)status, "why",
            problem ? problem : "path");
    return lti_ws_refuse(wsi, status == HTTP_STATUS_FORBIDDEN ? "403 Forbidden" : "404 Not Found");
}

int lti_ws_refuse(struct lws *wsi, const char *status)
{
    uint8_t buf[LWS_PRE + 256];
    const int n = snprintf((char *)buf + LWS_PRE, sizeof buf - LWS_PRE,
                           "HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", status);
    (void)!lws_write(wsi, buf + LWS_PRE, (size_t)n, LWS_WRITE_HTTP_HEADERS);
    return 1; /* which closes it, whether that arrives or not */
}

static bool bearer(struct lws *wsi, const lt_server *srv)
{
    char text[512];
    header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, text, sizeof text);
    const bool found = srv->tokens && !strncasecmp(text, "Bearer ", 7) &&
                       lti_tokens_find(srv->tokens, text + 7) >= 0;
    explicit_bzero(text, sizeof text);
    return found;
}

static int established(lti_ws *w, struct lws *wsi)
{
    lt_server *srv = server_of(wsi);
    /* else the kernel takes megabytes for a viewer that reads nothing, and shows it stale video later */
    const int low = 128 << 10;
    setsockopt(lws_get_socket_fd(wsi), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
    *w = (lti_ws){.wsi = wsi, .conn = lti_conn_create(srv, bearer(wsi, srv)), .next = srv->ws_list};
    if (!w->conn) return -1;
    w->listed = true;
    srv->ws_list = w;
    srv->nconns++;
    lti_count(srv->metrics, LTI_COUNT_WEBSOCKETS, 1);
    lti_server_tick_on(srv);
    return 0;
}

static void closed(lti_ws *w, lt_server *srv)
{
    if (!w->listed) return;
    for (lti_ws **p = &srv->ws_list; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    srv->nconns--;
    w->listed = false;
    lti_conn_destroy(w->conn);
    free(w->message);
    w->conn = NULL;
    w->message = NULL;
}

/* When the socket can take it. The library then waits for the peer's answer and reads on until it comes; asking it once more, or in
 * the middle of a message, would cut the peer off with the code unsent or unread. */
static int close_with(lti_ws *w, int code, const char *why)
{
    char text[124];
    snprintf(text, sizeof text, "%s", why);
    w->closing = true;
    lws_close_reason(w->wsi, (enum lws_close_status)code, (unsigned char *)text, strlen(text));
    return -1;
}

/* The next piece of a message. False: there is no room for it, and the connection ends. */
static bool take(lti_ws *w, const void *in, size_t len)
{
    if (w->bytes + len > LTI_MESSAGE_BYTES)
        lti_conn_end(w->conn, LTI_CLOSE_BIG, "messages of at most 65536 bytes are taken");
    else if (!w->message && !(w->message = malloc(LTI_MESSAGE_BYTES)))
        lti_conn_end(w->conn, LTI_CLOSE_INTERNAL, "out of memory");
    else {
        memcpy(w->message + w->bytes, in, len);
        w->bytes += len;
        return true;
    }
    return false;
}

static int received(lti_ws *w, struct lws *wsi, const void *in, size_t len)
{
    if (lws_is_first_fragment(wsi)) w->bytes = 0;
    const bool taken = take(w, in, len);
    if (taken && (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi))) return 0;
    if (taken) lti_conn_receive(w->conn, w->message, w->bytes, lws_frame_is_binary(wsi));
    free(w->message); /* most connections are silent: none keeps a buffer */
    w->message = NULL;
    lws_callback_on_writable(wsi);
    return 0;
}

static int writable(lti_ws *w, struct lws *wsi)
{
    const char *why;
    const int code = lti_conn_closing(w->conn, &why);
    lti_out out;
    if (w->closing) return 0;
    if (code) return close_with(w, code, why);
    if (lti_conn_next(w->conn, &out)) {
        const int n =
            lws_write(wsi, out.data, out.bytes, out.binary ? LWS_WRITE_BINARY : LWS_WRITE_TEXT);
        lti_unit_release(out.unit);
        lti_event_release(out.event);
        if (n < (int)out.bytes) return -1;
        lws_callback_on_writable(wsi);
    } else if (lti_conn_closing(w->conn, &why))
        lws_callback_on_writable(wsi);
    return 0;
}

int lti_ws_callback(struct lws *wsi, int reason, void *user, void *in, size_t len)
{
    lti_ws *w = user;
    switch ((enum lws_callback_reasons)reason) {
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return filter(wsi);
    case LWS_CALLBACK_ESTABLISHED:
        return established(w, wsi);
    case LWS_CALLBACK_RECEIVE:
        return received(w, wsi, in, len);
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return writable(w, wsi);
    case LWS_CALLBACK_CLOSED:
        closed(w, server_of(wsi));
        return 0;
    default:
        return 0;
    }
}

void lti_ws_wake(lt_server *srv)
{
    for (lti_ws *w = srv->ws_list; w; w = w->next)
        if (!w->closing && lti_conn_wants_to_write(w->conn)) lws_callback_on_writable(w->wsi);
}

/* A slow peer is there as long as it takes something. At 10 kB a second what the kernels hold lasts for minutes, in which neither is
 * the socket writable nor does the peer see the ping. */
static void look_for_progress(lti_ws *w)
{
    int unread = 0;
    if (ioctl(lws_get_socket_fd(w->wsi), SIOCOUTQ, &unread)) return;
    const bool less = unread < w->unread;
    if (less) lti_conn_progress(w->conn);
    if (less || lti_conn_is_waited_for(w->conn)) lws_validity_confirmed(w->wsi);
    w->unread = unread;
}

void lti_ws_tick(lt_server *srv)
{
    const char *why;
    for (lti_ws *w = srv->ws_list; w; w = w->next) {
        if (w->closing) continue;
        look_for_progress(w);
        if (srv->draining) lti_conn_drain(w->conn, srv->drain_until - lti_now());
        lti_conn_tick(w->conn);
        const int code = lti_conn_closing(w->conn, &why);
        if (code == LTI_CLOSE_SLOW) /* it does not read: no close frame would reach it */
            lws_set_timeout(w->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
        else if (code || lti_conn_wants_to_write(w->conn))
            lws_callback_on_writable(w->wsi);
    }
}
