/* http.c: HTTP on libwebsockets: takes a request apart with limits on everything, hands it to its route, writes the reply in pieces.
 * What this libwebsockets leaves to us: strict lengths, chunked replies, ranges, methods.
 * A connection is for one request: a request with a body that has come together with the one before it is read from the wrong place by
 * this libwebsockets, from freed memory or for ever. */
#include "stream/server.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libwebsockets.h>

enum { PIECE = 64 << 10, REPLY_SECONDS = 60 };

/* Of all requests together that are coming in; of one that is not taken, what is read all the same. */
enum { BODIES_BYTES = 128 << 20, PASSED_OVER_BYTES = 64 << 20 };

/* A body may take a minute, and more when it is long: what is slower holds room that others want. */
enum { BODY_SECONDS = 60, BODY_BYTES_A_SECOND = 64 << 10 };

typedef struct lti_http {
    struct lws *wsi;
    struct lti_http *next;
    const lti_route *route;
    lti_http_request rq;
    lti_http_reply re;
    uint8_t *body;
    size_t got;
    int64_t want, sent;
    int64_t passing; /* bytes of a body that is not taken and still to come */
    bool replied, written;
    double began;
} lti_http;

typedef struct session {
    lti_http *h;
} session;

/* ---- the request ---- */

static bool copy_header(struct lws *wsi, enum lws_token_indexes which, char *out, size_t cap)
{
    *out = 0;
    if (lws_hdr_total_length(wsi, which) >= (int)cap) return false;
    return lws_hdr_copy(wsi, out, (int)cap, which) >= 0;
}

/* False: it is too long. */
static bool custom_header(struct lws *wsi, const char *name, char *out, size_t cap)
{
    *out = 0;
    if (lws_hdr_custom_length(wsi, name, (int)strlen(name)) >= (int)cap) return false;
    if (lws_hdr_custom_copy(wsi, out, (int)cap, name, (int)strlen(name)) < 0) *out = 0;
    return true;
}

static const struct {
    enum lws_token_indexes token;
    lti_method method;
    const char *name;
} methods[] = {{WSI_TOKEN_GET_URI, LTI_GET, "GET"},
               {WSI_TOKEN_POST_URI, LTI_POST, "POST"},
               {WSI_TOKEN_DELETE_URI, LTI_DELETE, "DELETE"},
               {WSI_TOKEN_HEAD_URI, LTI_HEAD, "HEAD"},
               {WSI_TOKEN_OPTIONS_URI, LTI_OPTIONS, "OPTIONS"}};

static lti_method method_of(struct lws *wsi)
{
    for (size_t i = 0; i < LT_COUNT(methods); i++)
        if (lws_hdr_total_length(wsi, methods[i].token)) return methods[i].method;
    return LTI_OTHER;
}

/* "GET, HEAD"; none: "other". */
static void method_names(unsigned set, char *out, size_t cap)
{
    size_t n = 0;
    snprintf(out, cap, "other");
    for (size_t i = 0; i < LT_COUNT(methods) && n < cap; i++)
        if (set & (unsigned)methods[i].method)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", methods[i].name);
}

static void read_query(struct lws *wsi, char *out, size_t cap)
{
    size_t n = 0;
    char part[1024];
    *out = 0;
    for (int i = 0; lws_hdr_copy_fragment(wsi, part, sizeof part, WSI_TOKEN_HTTP_URI_ARGS, i) > 0;
         i++) {
        const int more = snprintf(out + n, cap - n, "%s%s", n ? "&" : "", part);
        if (more < 0 || (size_t)more >= cap - n) break;
        n += (size_t)more;
    }
}

static bool good_id(const char *s)
{
    const size_t n = strlen(s);
    return n >= 1 && n <= 64 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

/* False: a header is too long. */
static bool read_request(lti_http *h, struct lws *wsi, const char *path)
{
    lti_http_request *r = &h->rq;
    bool ok = strlen(path) < sizeof r->path;
    r->tenant = -1;
    r->method = method_of(wsi);
    snprintf(r->path, sizeof r->path, "%s", path);
    read_query(wsi, r->query, sizeof r->query);
    ok =
        copy_header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, r->authorization, sizeof r->authorization) &&
        ok;
    ok = copy_header(wsi, WSI_TOKEN_HTTP_RANGE, r->range, sizeof r->range) && ok;
    ok = copy_header(wsi, WSI_TOKEN_HTTP_IF_RANGE, r->if_range, sizeof r->if_range) && ok;
    ok = copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_TYPE, r->content_type, sizeof r->content_type) &&
         ok;
    ok = copy_header(wsi, WSI_TOKEN_HOST, r->host, sizeof r->host) && ok;
    ok = copy_header(wsi, WSI_TOKEN_ORIGIN, r->origin, sizeof r->origin) && ok;
    ok =
        custom_header(wsi, "idempotency-key:", r->idempotency_key, sizeof r->idempotency_key) && ok;
    if (!custom_header(wsi, "x-request-id:", r->request_id, sizeof r->request_id) ||
        !good_id(r->request_id))
        lti_random_hex(r->request_id, 8);
    return ok;
}

/* The body's length, from a header that strangers write. -1: none, or not a length. */
static int64_t content_length(struct lws *wsi)
{
    char text[32];
    if (!copy_header(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, text, sizeof text)) return -1;
    return lti_length_parse(text);
}

static void free_body(lt_server *srv, lti_http *h)
{
    if (h->body) srv->body_bytes -= h->want;
    free(h->body);
    h->body = NULL;
}

static void forget(lt_server *srv, lti_http *h)
{
    if (h->re.done) h->re.done(h->re.user);
    if (h->re.fd > 0) close(h->re.fd);
    free(h->re.body);
    free_body(srv, h);
    h->re = (lti_http_reply){0};
}

static void unlist(lt_server *srv, lti_http *h)
{
    for (lti_http **p = &srv->http_list; *p; p = &(*p)->next)
        if (*p == h) {
            *p = h->next;
            return;
        }
}

static void drop(lt_server *srv, session *s)
{
    if (!s || !s->h) return;
    unlist(srv, s->h);
    forget(srv, s->h);
    explicit_bzero(s->h->rq.authorization, sizeof s->h->rq.authorization);
    free(s->h);
    s->h = NULL;
}

/* ---- the reply ---- */

static bool add_header(struct lws *wsi, uint8_t **p, uint8_t *end, const char *name,
                       const char *value)
{
    char with_colon[64];
    snprintf(with_colon, sizeof with_colon, "%s:", name);
    return !lws_add_http_header_by_name(wsi, (const unsigned char *)with_colon,
                                        (const unsigned char *)value, (int)strlen(value), p, end);
}

static bool add_headers(lti_http *h, uint8_t **p, uint8_t *end)
{
    const lti_http_reply *re = &h->re;
    char text[32];
    bool ok =
        !lws_add_http_header_status(h->wsi, (unsigned)re->status, p, end) &&
        add_header(h->wsi, p, end, "content-type", re->type ? re->type : "application/json") &&
        add_header(h->wsi, p, end, "x-request-id", h->rq.request_id) &&
        add_header(h->wsi, p, end, "x-content-type-options", "nosniff");
    for (int i = 0; ok && i < re->headers; i++)
        ok = add_header(h->wsi, p, end, re->header[i].name, re->header[i].value);
    if (re->bytes >= 0) snprintf(text, sizeof text, "%lld", (long long)re->bytes);
    ok = ok && (re->bytes >= 0 ? add_header(h->wsi, p, end, "content-length", text)
                               : add_header(h->wsi, p, end, "transfer-encoding", "chunked"));
    return ok && add_header(h->wsi, p, end, "connection", "close") &&
           !lws_finalize_http_header(h->wsi, p, end);
}

static int finish(lt_server *srv, session *s)
{
    struct lws *wsi = s->h->wsi;
    const bool passing = s->h->passing > 0;
    drop(srv, s);
    /* the library reads on, then: a close in between would be a reset, which takes the answer with it */
    return passing && !lws_http_transaction_completed(wsi) ? 0 : -1;
}

/* A peer that takes nothing is let go. */
static void more_to_write(lti_http *h)
{
    lws_set_timeout(h->wsi, PENDING_TIMEOUT_HTTP_CONTENT, REPLY_SECONDS);
    lws_callback_on_writable(h->wsi);
}

static int reply(lt_server *srv, session *s)
{
    lti_http *h = s->h;
    uint8_t buf[LWS_PRE + 4096], *start = buf + LWS_PRE, *p = start;
    char method[16];
    h->replied = true;
    free_body(srv, h);
    lti_count(srv->metrics, LTI_COUNT_HTTP, 1);
    method_names(h->rq.method, method, sizeof method);
    lti_say(srv,
            h->re.status == 500  ? LT_LOG_ERROR
            : h->re.status > 500 ? LT_LOG_WARN /* not now, or no room */
                                 : LT_LOG_INFO,
            "http", "{s:s, s:s, s:s, s:i, s:f}", "request_id", h->rq.request_id, "method", method,
            "path", lti_text_valid(h->rq.path, strlen(h->rq.path)) ? h->rq.path : "?", "status",
            h->re.status, "ms", 1000 * (lti_now() - h->began));
    if (!add_headers(h, &p, buf + sizeof buf)) return -1;
    if (lws_write(h->wsi, start, (size_t)(p - start), LWS_WRITE_HTTP_HEADERS) < (int)(p - start))
        return -1;
    if (h->rq.method == LTI_HEAD || h->re.bytes == 0) return -1; /* that was all */
    more_to_write(h);
    return 0;
}

/* The next piece to p. -1: it cannot be read. */
static int read_piece(lti_http *h, uint8_t *p, int64_t n)
{
    const char *from = h->re.fixed ? h->re.fixed : h->re.body;
    if (from) {
        memcpy(p, from + h->sent, (size_t)n);
        return (int)n;
    }
    return (int)pread(h->re.fd, p, (size_t)n, h->re.file_offset + h->sent);
}

static int write_piece(lti_http *h)
{
    uint8_t buf[LWS_PRE + PIECE], *p = buf + LWS_PRE;
    int64_t n = h->re.bytes - h->sent;
    n = read_piece(h, p, n < PIECE ? n : PIECE);
    if (n <= 0) return -1; /* the file became shorter: the peer sees that bytes are missing */
    const bool last = h->sent + n == h->re.bytes;
    if (lws_write(h->wsi, p, (size_t)n, last ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP) < n)
        return -1;
    h->sent += n;
    h->written = last;
    more_to_write(h);
    return 0;
}

/* One chunk: its length in hexadecimal, the bytes, a line end; the last one is empty. */
static int write_chunk(lti_http *h)
{
    enum { HEAD = 10 };
    uint8_t buf[LWS_PRE + HEAD + PIECE + 8], *p = buf + LWS_PRE + HEAD;
    char head[16];
    const int n = h->re.pull(h->re.user, p, PIECE);
    if (n == 0) { /* asked again when something happens */
        lws_set_timeout(h->wsi, NO_PENDING_TIMEOUT, 0);
        return 0;
    }
    if (n == LTI_PULL_BROKEN) return -1; /* without an end, so that it is not taken for one */
    if (n == LTI_PULL_END) {
        memcpy(buf + LWS_PRE, "0\r\n\r\n", 5);
        if (lws_write(h->wsi, buf + LWS_PRE, 5, LWS_WRITE_HTTP_FINAL) < 5) return -1;
        h->written = true;
        more_to_write(h);
        return 0;
    }
    const int m = snprintf(head, sizeof head, "%x\r\n", n);
    memcpy(p - m, head, (size_t)m);
    memcpy(p + n, "\r\n", 2);
    if (lws_write(h->wsi, p - m, (size_t)(m + n + 2), LWS_WRITE_HTTP) < m + n + 2) return -1;
    more_to_write(h);
    return 0;
}

static int writable(lt_server *srv, session *s)
{
    if (!s->h || !s->h->replied) return 0;
    if (s->h->written) return finish(srv, s); /* now the library holds nothing back any more */
    return s->h->re.pull ? write_chunk(s->h) : write_piece(s->h);
}

/* ---- from request to reply ---- */

const char *lti_peer_problem(const lt_server *srv, const char *host, const char *origin)
{
    const char *bound = srv->o.host ? srv->o.host : "127.0.0.1";
    /* a page of a stranger that has its own name point at us */
    if (lti_host_is_loopback(bound) && *host && !lti_host_is_loopback(host) &&
        !(srv->o.origins && *origin && lti_origin_allowed(origin, "", srv->o.origins)))
        return "host";
    if (*origin && !lti_origin_allowed(origin, host, srv->o.origins)) return "origin";
    return NULL;
}

static bool authorized(const lt_server *srv, lti_http_request *rq)
{
    if (!srv->tokens) return true;
    if (strncasecmp(rq->authorization, "Bearer ", 7)) return false;
    rq->tenant = lti_tokens_find(srv->tokens, rq->authorization + 7);
    return rq->tenant >= 0;
}

/* Fills the reply when the request cannot be served. */
static bool refused(lt_server *srv, lti_http *h)
{
    lti_http_reply *re = &h->re;
    char names[64];
    unsigned allowed = 0;
    const char *problem = lti_peer_problem(srv, h->rq.host, h->rq.origin);
    h->route = lti_route_find(h->rq.path, h->rq.method, &allowed);
    if (problem)
        lti_reply_error(re, 403, "permission_error", "foreign_origin", NULL,
                        "this %s may not talk to this server", problem);
    else if (!h->route && allowed)
        lti_reply_error(re, 405, "invalid_request_error", "method_not_allowed", NULL,
                        "this method is not known at %s", h->rq.path);
    else if (!h->route)
        lti_reply_error(re, 404, "invalid_request_error", "not_found", NULL,
                        "there is nothing at that path");
    else if (!h->route->open && !authorized(srv, &h->rq))
        lti_reply_error(re, 401, "authentication_error", "invalid_api_key", NULL,
                        "this server wants a token: Authorization: Bearer TOKEN");
    else
        return false;
    if (re->status == 401) lti_reply_header(re, "www-authenticate", "Bearer");
    if (re->status == 405) {
        method_names(allowed, names, sizeof names);
        lti_reply_header(re, "allow", "%s", names);
    }
    return true;
}

/* The library knows this name, so it is no custom header. */
static bool is_chunked(struct lws *wsi)
{
    return lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0;
}

/* How much of a body that is not taken is read all the same, so that the peer, which may still be sending it, gets the answer. */
static int64_t passed_over(struct lws *wsi)
{
    const int64_t n = is_chunked(wsi) ? -1 : content_length(wsi);
    return n > 0 && n <= PASSED_OVER_BYTES ? n : 0;
}

/* True when a body is on its way that the route takes. */
static bool awaits_body(lt_server *srv, lti_http *h, struct lws *wsi)
{
    const bool has = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0;
    const bool chunked = is_chunked(wsi);
    if (!has && !chunked && h->rq.method != LTI_POST) return false;
    if (!has && !chunked && h->route->max_body <= LTI_SMALL_BODY) return false;
    h->want = has ? content_length(wsi) : -1;
    const bool too_big = h->want > (int64_t)h->route->max_body;
    if (chunked || !has)
        lti_reply_error(&h->re, 411, "invalid_request_error", "length_required", NULL,
                        "a Content-Length is wanted; chunked bodies are not taken");
    else if (h->want < 0)
        lti_reply_error(&h->re, 400, "invalid_request_error", "bad_length", NULL,
                        "the Content-Length is not a length");
    else if (too_big)
        lti_reply_error(&h->re, 413, "invalid_request_error", "too_large", NULL,
                        "a body of %lld bytes: at most %zu are taken", (long long)h->want,
                        h->route->max_body);
    else if (h->want > BODIES_BYTES - srv->body_bytes)
        lti_reply_error(&h->re, 503, "server_error", "busy", NULL,
                        "too many large requests at once");
    else if (h->want > 0 && !(h->body = malloc((size_t)h->want + 1)))
        lti_reply_error(&h->re, 500, "server_error", "out_of_memory", NULL, "out of memory");
    if (h->re.status) h->passing = passed_over(wsi);
    if (h->body) srv->body_bytes += h->want;
    return h->body != NULL;
}

static int handle(lt_server *srv, session *s)
{
    lti_http *h = s->h;
    h->rq.body = h->body;
    h->rq.body_bytes = h->got;
    if (!h->re.status) h->route->handle(srv, &h->rq, &h->re);
    return reply(srv, s);
}

static int begin(lt_server *srv, session *s, struct lws *wsi, const char *path)
{
    lti_http *h = s->h ? NULL : calloc(1, sizeof *h);
    if (!h || lws_get_opaque_user_data(wsi)) { /* not the first of its connection */
        free(h);
        return -1;
    }
    s->h = h;
    lws_set_opaque_user_data(wsi, srv);
    h->wsi = wsi;
    h->began = lti_now();
    h->next = srv->http_list;
    srv->http_list = h;
    if (!read_request(h, wsi, path))
        lti_reply_error(&h->re, 431, "invalid_request_error", "headers_too_large", NULL,
                        "a header is too long");
    else if (refused(srv, h))
        h->passing = passed_over(wsi);
    else if (awaits_body(srv, h, wsi)) {
        lws_set_timeout(wsi, PENDING_TIMEOUT_HTTP_CONTENT, BODY_SECONDS);
        return 0;
    }
    return handle(srv, s);
}

static int body_piece(session *s, const void *in, size_t len)
{
    lti_http *h = s->h;
    if (!h || !len) return 0;
    if (h->replied) { /* what was refused is thrown away */
        h->passing -= (int64_t)len;
        return 0;
    }
    if (!h->body || h->got + len > (size_t)h->want) return -1;
    if (lti_now() - h->began > BODY_SECONDS + (double)h->want / BODY_BYTES_A_SECOND) return -1;
    memcpy(h->body + h->got, in, len);
    h->got += len;
    h->body[h->got] = 0;
    return 0;
}

int lti_http_callback(struct lws *wsi, int reason, void *user, void *in, size_t len)
{
    session *s = user;
    lt_server *srv = lws_context_user(lws_get_context(wsi));
    switch ((enum lws_callback_reasons)reason) {
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION: /* a websocket without our subprotocol */
        return lti_ws_refuse(wsi, "400 Bad Request");
    case LWS_CALLBACK_HTTP:
        return begin(srv, s, wsi, in);
    case LWS_CALLBACK_HTTP_BODY:
        return body_piece(s, in, len);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        return s->h && !s->h->replied ? handle(srv, s) : 0;
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return writable(srv, s);
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
        drop(srv, s);
        return 0;
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        atomic_store(&srv->woken, false);
        lti_server_jobs_changed(srv);
        lti_http_wake(srv);
        lti_ws_wake(srv);
        return 0;
    default:
        return 0;
    }
}

void lti_http_wake(lt_server *srv)
{
    for (lti_http *h = srv->http_list; h; h = h->next)
        if (h->replied && h->re.pull) lws_callback_on_writable(h->wsi);
}
