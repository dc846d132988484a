/* routes.c: what there is under which path. */
#include "stream/jobs.h"

#include <stdlib.h>
#include <string.h>

static void get_health(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    (void)rq;
    lti_reply_json(
        re, 200,
        json_pack("{s:s, s:f}", "status", "ok", "uptime_seconds", lti_now() - srv->started));
}

static void get_ready(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    (void)rq;
    const int ready = atomic_load(&srv->ready);
    const lti_sched_state s = lti_sched_look(srv->sched);
    const bool full = s.live_queued >= srv->o.max_queue;
    const char *why = srv->draining ? "draining"
                      : ready != 1  ? "loading"
                      : full        ? "queue_full"
                                    : NULL;
    if (why) lti_reply_header(re, "retry-after", "5");
    lti_reply_json(
        re, why ? 503 : 200,
        json_pack("{s:s, s:s}", "status", why ? why : "ready", "model", srv->info.family));
}

static void get_metrics(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    (void)rq;
    re->body = lti_metrics_text(srv);
    re->status = re->body ? 200 : 500;
    re->bytes = re->body ? (int64_t)strlen(re->body) : 0;
    re->type = "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- the page ---- */

static void get_page(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    (void)srv;
    const char *path = strcmp(rq->path, "/") ? rq->path : "/index.html";
    for (const lti_page_file *f = lti_page_files; f->path; f++) {
        if (strcmp(f->path, path)) continue;
        re->status = 200;
        re->type = f->type;
        re->fixed = f->data;
        re->bytes = (int64_t)f->bytes;
        lti_reply_header(re, "cache-control", "no-cache");
        lti_reply_header(re, "referrer-policy", "no-referrer"); /* links have keys in them */
        lti_reply_header(re, "content-security-policy",
                         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
                         "blob: data:; media-src 'self' blob:; connect-src 'self'; base-uri "
                         "'none'; form-action 'none'; frame-ancestors 'none'");
        return;
    }
    lti_reply_error(re, 404, "invalid_request_error", "not_found", NULL,
                    "there is nothing at that path");
}

/* ---- a stream as MP4 ---- */

typedef struct download {
    lti_live *live;
    int64_t from, next, stop; /* stop: -1 when the stream ends */
    bool begun;
    uint8_t *piece; /* being sent */
    size_t bytes, sent;
} download;

static void end_download(void *user)
{
    download *d = user;
    lti_live_release(d->live);
    free(d->piece);
    free(d);
}

/* LT_OK: d->piece is filled. LT_AGAIN, LT_END. */
static lt_status next_piece(download *d)
{
    lti_hub *h = lti_live_hub(d->live);
    const lti_hub_config *k = lti_hub_get_config(h);
    lti_unit *u;
    if (!k) return lti_hub_look(h).ended ? LT_END : LT_AGAIN;
    if (!d->begun) {
        d->begun = true;
        d->piece = malloc(k->init_bytes);
        if (!d->piece) return LT_END;
        memcpy(d->piece, k->init, k->init_bytes);
        d->bytes = k->init_bytes;
        return LT_OK;
    }
    if (d->stop >= 0 && d->next >= d->stop) return LT_END;
    lt_status s = lti_hub_get(h, d->next, &u);
    if (s == LT_ERR_MISSING) { /* too slow: goes on where the stream still is */
        d->next = lti_hub_look(h).first;
        s = lti_hub_get(h, d->next, &u);
    }
    if (s != LT_OK) return s < 0 ? LT_END : s;
    d->piece = malloc(lti_fmp4_bound(u->bytes));
    if (d->piece)
        d->bytes = lti_fmp4_fragment(d->piece, lti_unit_payload(u), u->bytes,
                                     (uint32_t)(d->next - d->from) + 1, d->next - d->from, u->key);
    lti_unit_release(u);
    d->next++;
    return d->piece ? LT_OK : LT_END;
}

static int pull_download(void *user, uint8_t *out, size_t cap)
{
    download *d = user;
    size_t n = 0;
    while (n < cap) {
        if (!d->piece) {
            d->sent = 0;
            const lt_status s = next_piece(d);
            if (s == LT_END) return n ? (int)n : LTI_PULL_END;
            if (s != LT_OK) break;
        }
        const size_t rest = d->bytes - d->sent, now = rest < cap - n ? rest : cap - n;
        memcpy(out + n, d->piece + d->sent, now);
        n += now;
        d->sent += now;
        if (d->sent < d->bytes) break;
        free(d->piece);
        d->piece = NULL;
    }
    return (int)n;
}

/* GET /v1/live/ID/content?key=KEY[&live=1][&download=1] */
static void get_live_content(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    char id[64], key[64], word[8];
    lti_live *l =
        lti_path_segment(rq->path, 2, id, sizeof id) ? lti_server_find_live(srv, id) : NULL;
    if (!l || !lti_query_get(rq->query, "key", key, sizeof key) ||
        !lti_equal(key, lti_live_key(l))) {
        lti_reply_error(re, 404, "invalid_request_error", "not_found", "id",
                        "there is no such stream, or the key is not its own");
        return;
    }
    const bool live = lti_query_get(rq->query, "live", word, sizeof word) && !strcmp(word, "1");
    if (lti_query_get(rq->query, "download", word, sizeof word))
        lti_reply_header(re, "content-disposition", "attachment; filename=\"longtake-%s.mp4\"", id);
    lti_reply_header(re, "cache-control", "no-store");
    re->fd = live && !lti_hub_look(lti_live_hub(l)).ended ? -1 : lti_live_tape(l, &re->bytes);
    if (re->fd > 0) {
        re->status = 200;
        re->type = "video/mp4";
        return;
    }
    download *d = calloc(1, sizeof *d);
    if (!d) {
        lti_reply_error(re, 500, "server_error", "out_of_memory", NULL, "out of memory");
        return;
    }
    const lti_hub_state h = lti_hub_look(lti_live_hub(l));
    d->live = lti_live_ref(l);
    d->stop = live ? -1 : h.end;
    d->next = live && h.newest_key >= 0 && !h.ended ? h.newest_key : h.first;
    d->from = d->next;
    re->status = 200;
    re->type = "video/mp4";
    re->bytes = -1;
    re->pull = pull_download;
    re->done = end_download;
    re->user = d;
}

/* The websocket's place, asked for by something else. */
static void get_stream(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    (void)srv;
    (void)rq;
    lti_reply_error(re, 426, "invalid_request_error", "upgrade_required", NULL,
                    "a websocket of subprotocol longtake.v1 is wanted here");
    lti_reply_header(re, "upgrade", "websocket");
}

/* ---- the table ---- */

static const lti_route routes[] = {
    {LTI_GET | LTI_HEAD, "/", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/index.html", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/app.js", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/jobs.js", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/player.js", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/plots.js", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/style.css", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/icon.svg", get_page, true, 0},
    {LTI_GET | LTI_HEAD, "/healthz", get_health, true, 0},
    {LTI_GET | LTI_HEAD, "/health", get_health, true, 0},
    {LTI_GET | LTI_HEAD, "/readyz", get_ready, true, 0},
    {LTI_GET | LTI_HEAD, "/metrics", get_metrics, false, 0},
    {LTI_GET | LTI_HEAD, "/v1/stream", get_stream, true, 0},
    {LTI_GET, "/v1/live/*/content", get_live_content, true, 0},
    {LTI_POST, "/v1/videos", lti_videos_create, false, LTI_VIDEOS_BODY},
    {LTI_GET, "/v1/videos", lti_videos_list, false, 0},
    {LTI_GET, "/v1/videos/*", lti_videos_get, false, 0},
    {LTI_DELETE, "/v1/videos/*", lti_videos_delete, false, 0},
    {LTI_POST, "/v1/videos/*/remix", lti_videos_remix, false, LTI_REMIX_BODY},
    {LTI_POST, "/v1/videos/*/cancel", lti_videos_cancel, false, LTI_SMALL_BODY},
    {LTI_GET | LTI_HEAD, "/v1/videos/*/content", lti_videos_content, false, 0},
};

static bool matches(const char *pattern, const char *path)
{
    while (*pattern) {
        if (*pattern == '*') {
            const size_t n = strcspn(path, "/");
            if (!n) return false;
            path += n;
            pattern++;
        } else if (*pattern++ != *path++)
            return false;
    }
    return !*path;
}

const lti_route *lti_route_find(const char *path, lti_method m, unsigned *allowed)
{
    *allowed = 0;
    for (size_t i = 0; i < LT_COUNT(routes); i++) {
        if (!matches(routes[i].path, path)) continue;
        if (routes[i].methods & (unsigned)m) return &routes[i];
        *allowed |= routes[i].methods;
    }
    return NULL;
}
