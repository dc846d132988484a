/* videos.c: /v1/videos: the OpenAI videos API over the table of jobs. Requests in JSON or multipart/form-data; pictures come with the
 * request, no address of a client's is ever fetched. */
#include "stream/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/base64.h>

enum { MAX_PARTS = 64, MAX_PICTURE = 20 << 20, MAX_PIXELS = 4096 * 4096, MAX_LIST = 100 };

/* ---- the request ---- */

typedef struct order {
    json_t *fields;         /* of the video, without the picture */
    const uint8_t *picture; /* as it was sent, or NULL */
    size_t picture_bytes;
    uint8_t *decoded;    /* owns picture, or NULL */
    const char *remixed; /* id of the video that it is made from, or NULL */
    bool too_big;        /* for this machine, whatever else it does */
    lti_param param;
} order;

static void free_order(order *o)
{
    json_decref(o->fields);
    free(o->decoded);
}

static lt_status wrong(order *o, lt_ctx *ctx, const char *param, const char *message)
{
    snprintf(o->param.name, sizeof o->param.name, "%.63s", param);
    return lti_fail(ctx, LT_ERR_ARG, "%s: %s", param, message);
}

/* "data:image/png;base64,..." */
static lt_status take_data_url(order *o, lt_ctx *ctx, const char *url)
{
    static const char where[] = "input_reference";
    const char *data = url ? strstr(url, ";base64,") : NULL;
    if (!url || strncmp(url, "data:image/", 11) || !data)
        return wrong(o, ctx, where,
                     "a file, or a data URL of a picture in base64, is wanted; "
                     "addresses are not fetched");
    data += 8;
    const size_t n = strlen(data);
    if (n / 4 * 3 > MAX_PICTURE) return wrong(o, ctx, where, "larger than 20 MiB");
    o->decoded = malloc(n / 4 * 3 + 4);
    if (!o->decoded) return lti_fail(ctx, LT_ERR_MEM, "no memory for a picture");
    const int bytes = av_base64_decode(o->decoded, data, (int)(n / 4 * 3 + 4));
    if (bytes < 1) return wrong(o, ctx, where, "not base64");
    o->picture = o->decoded;
    o->picture_bytes = (size_t)bytes;
    return LT_OK;
}

static lt_status take_reference(order *o, lt_ctx *ctx)
{
    json_t *v = json_object_get(o->fields, "input_reference");
    if (!v || json_is_null(v)) return LT_OK;
    const char *url = json_string_value(json_is_object(v) ? json_object_get(v, "image_url") : v);
    const lt_status s = take_data_url(o, ctx, url);
    json_object_del(o->fields, "input_reference");
    return s;
}

/* Fields that clients put into an object, or a text of one, of their own. */
static lt_status take_extra(order *o, lt_ctx *ctx)
{
    json_t *v = json_incref(json_object_get(o->fields, "extra_body"));
    if (!v) return LT_OK;
    if (json_is_string(v)) {
        json_t *inner = lti_wire_json(ctx, json_string_value(v), json_string_length(v), 1 << 20);
        json_decref(v);
        v = inner;
    }
    json_object_del(o->fields, "extra_body");
    const bool ok = json_is_object(v) && !json_object_update_missing(o->fields, v);
    json_decref(v);
    return ok ? LT_OK : wrong(o, ctx, "extra_body", "an object of fields is wanted");
}

static lt_status read_parts(order *o, lt_ctx *ctx, const lti_http_request *rq)
{
    lti_part part[MAX_PARTS];
    const int n = lti_multipart_parse(rq->content_type, rq->body, rq->body_bytes, part, MAX_PARTS);
    if (n < 0) return lti_fail(ctx, LT_ERR_FORMAT, "the body is not multipart/form-data");
    for (int i = 0; i < n; i++) {
        const lti_part *p = &part[i];
        const bool url = !strcmp(p->name, "input_reference[image_url]");
        const char *name = url ? "input_reference" : p->name;
        if (p->file && !strcmp(name, "input_reference")) {
            o->picture = p->data;
            o->picture_bytes = p->bytes;
            continue;
        }
        if (p->file) return wrong(o, ctx, name, "no file is taken here");
        const bool valid = lti_text_valid((const char *)p->data, p->bytes);
        json_t *text = valid ? json_stringn((const char *)p->data, p->bytes) : NULL;
        if (!text) return wrong(o, ctx, name, "not a text of UTF-8, or with control characters");
        if (json_object_get(o->fields, name)) {
            json_decref(text);
            return wrong(o, ctx, name, "given twice");
        }
        json_object_set_new(o->fields, name, text);
    }
    return LT_OK;
}

static lt_status read_order(order *o, lt_ctx *ctx, const lti_http_request *rq)
{
    if (!strncasecmp(rq->content_type, "multipart/form-data", 19)) {
        o->fields = json_object();
        if (!o->fields) return lti_fail(ctx, LT_ERR_MEM, "no memory for a request");
        LT_TRY(read_parts(o, ctx, rq));
    } else {
        o->fields = lti_wire_json(ctx, rq->body ? (const char *)rq->body : "", rq->body_bytes,
                                  LTI_VIDEOS_BODY);
        if (!o->fields && !strncasecmp(rq->content_type, "application/x-www-form-urlencoded", 33))
            return lti_fail(ctx, LT_ERR_FORMAT,
                            "JSON or multipart/form-data is wanted (curl: -F in place of -d), not "
                            "application/x-www-form-urlencoded");
        if (!o->fields) return LT_ERR_FORMAT;
        if (!json_is_object(o->fields))
            return lti_fail(ctx, LT_ERR_FORMAT, "a JSON object is wanted");
    }
    LT_TRY(take_extra(o, ctx));
    LT_TRY(take_reference(o, ctx));
    if (o->picture_bytes > MAX_PICTURE)
        return wrong(o, ctx, "input_reference", "larger than 20 MiB");
    return LT_OK;
}

/* What an Idempotency-Key stands for: FNV-1a over fields in order and picture. Multipart boundaries differ from try to try. */
static void fingerprint(const order *o, char out[17])
{
    uint64_t h = 0xcbf29ce484222325u;
    char *text = json_dumps(o->fields, JSON_COMPACT | JSON_SORT_KEYS);
    for (const char *p = text; p && *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    for (const char *p = o->remixed; p && *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    for (size_t i = 0; i < o->picture_bytes; i++)
        h = (h ^ o->picture[i]) * 0x100000001b3u;
    free(text);
    snprintf(out, 17, "%016" PRIx64, h);
}

/* ---- making ---- */

/* The picture as it will be used: scaled, without what else was in the file. */
static lt_status store_picture(lti_job *j, order *o, lt_ctx *ctx, uint8_t **rgb)
{
    char in[LTI_JOB_PATH], png[LTI_JOB_PATH];
    uint32_t w, h;
    lti_picture_size(o->picture, o->picture_bytes, &w, &h);
    if (!w || !h) return wrong(o, ctx, "input_reference", "not a PNG, JPEG, WebP or BMP picture");
    if ((uint64_t)w * h > MAX_PIXELS)
        return wrong(o, ctx, "input_reference", "more than 4096x4096 pixels");
    lti_jobs_path(j->srv->jobs, j->id, "in", in, sizeof in);
    lti_jobs_path(j->srv->jobs, j->id, "png", png, sizeof png);
    const int fd = open(in, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool ok = fd >= 0 && write(fd, o->picture, o->picture_bytes) == (ssize_t)o->picture_bytes;
    if (fd >= 0) close(fd);
    lt_status s = ok ? LT_OK : LT_ERR_IO;
    if (s < 0) lti_fail(ctx, s, "the picture cannot be kept: %s", strerror(errno));
    const lt_session_options *v = &j->options;
    if (s == LT_OK && lt_picture_read(rgb, ctx, in, v->width, v->height) < 0)
        s = wrong(o, ctx, "input_reference", "the picture cannot be decoded");
    unlink(in);
    if (s == LT_OK && lt_picture_write(ctx, png, *rgb, v->width, v->height) < 0)
        s = lti_fail(ctx, LT_ERR_IO, "the picture cannot be kept");
    return s;
}

static lt_status prepare(lti_job *j, order *o, lt_ctx *ctx)
{
    lt_server *srv = j->srv;
    uint8_t *rgb = NULL;
    char seed[24];
    j->image = o->picture != NULL;
    lt_status s = lti_job_complete(j, ctx, true, &o->param);
    double eta;
    o->too_big = s == LT_ERR_MEM && lti_sched_room(srv->sched, &j->task, &eta) == LT_ERR_MEM;
    if (s == LT_OK && j->image) {
        s = store_picture(j, o, ctx, &rgb);
        free(rgb);
    }
    LT_TRY(s);
    snprintf(seed, sizeof seed, "%" PRIu64, j->options.seed);
    json_object_set_new(j->fields, "seed", json_string(seed)); /* a restart draws the same */
    char generator[64];
    snprintf(generator, sizeof generator, "Longtake %s", srv->o.version);
    j->params = lti_video_request_echo(&j->options, &srv->info);
    if (!j->params || json_object_set_new(j->params, "generator", json_string(generator)))
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a job");
    return LT_OK;
}

static void owner_of(const lt_server *srv, const lti_http_request *rq, char out[LTI_JOB_OWNER])
{
    *out = 0;
    if (srv->tokens && rq->tenant >= 0) lti_tokens_owner(srv->tokens, rq->tenant, out);
}

static void reply_job(lti_http_reply *re, int status, lti_job *j)
{
    lti_reply_json(re, status, lti_job_object(j));
}

static void refuse_busy(lt_server *srv, lti_http_reply *re, lt_status s, double eta)
{
    lti_count(srv->metrics, LTI_COUNT_REFUSED, 1);
    lti_count(srv->metrics, LTI_COUNT_JOBS_REFUSED, 1);
    if (s == LT_ERR_MEM)
        lti_reply_error(re, 400, "invalid_request_error", "out_of_memory", "size",
                        "the machine does not have the memory that this video needs");
    else if (s == LT_AGAIN)
        lti_reply_error(re, 429, "rate_limit_error", "queue_full", NULL,
                        "the queue is full; a place is free in about %.0f s", ceil(eta) + 1);
    else
        lti_reply_error(re, 507, "server_error", "disk_full", NULL,
                        "the job cannot be written down: there is no room on the disk");
    if (s == LT_AGAIN)
        lti_reply_header(re, "retry-after", "%.0f", fmin(fmax(ceil(eta) + 1, 1), 3600));
}

/* The same request again is the same job. True: answered. */
static bool answered_before(lt_server *srv, const lti_http_request *rq, lti_http_reply *re,
                            const char *owner, const char *print)
{
    lti_job *j =
        *rq->idempotency_key ? lti_jobs_find_key(srv->jobs, rq->idempotency_key, owner) : NULL;
    if (!j) return false;
    if (!strcmp(j->print, print))
        reply_job(re, 200, j);
    else
        lti_reply_error(re, 422, "invalid_request_error", "idempotency_key_reused",
                        "Idempotency-Key", "this key was used for another request");
    lti_job_release(j);
    return true;
}

static void create_job(lt_server *srv, lti_http_request *rq, lti_http_reply *re, order *o)
{
    lti_job *j;
    char owner[LTI_JOB_OWNER], print[17];
    double eta = 0;
    lt_status s;
    owner_of(srv, rq, owner);
    fingerprint(o, print);
    if (answered_before(srv, rq, re, owner, print)) return;
    s = lti_job_create(&j, srv->ctx, srv, json_incref(o->fields));
    if (s == LT_OK) {
        memcpy(j->owner, owner, sizeof owner);
        memcpy(j->print, print, sizeof print);
        if (*rq->idempotency_key) j->key = strdup(rq->idempotency_key);
        if (o->remixed) snprintf(j->remixed, sizeof j->remixed, "%s", o->remixed);
        s = prepare(j, o, srv->ctx);
    }
    if (s < 0 && o->too_big) {
        lti_reply_error(re, 400, "invalid_request_error", "out_of_memory", "size", "%s",
                        lt_error(srv->ctx));
    } else if (s < 0) {
        lti_reply_status(re, srv->ctx, s, o->param.name);
    } else {
        s = lti_jobs_add(srv->jobs, j, &eta);
        if (s == LT_OK) {
            lti_count(srv->metrics, LTI_COUNT_JOBS, 1);
            lti_say(srv, LT_LOG_INFO, "job_created", "{s:s, s:s}", "job_id", j->id, "request_id",
                    rq->request_id);
            reply_job(re, 200, j);
        } else
            refuse_busy(srv, re, s, eta);
    }
    if (j && s != LT_OK) lti_jobs_discard(srv->jobs, j);
    lti_job_release(j);
}

/* Of another video's: all is as it was, the noise too, but for the prompt. */
static lt_status read_remix(order *o, lt_ctx *ctx, const lti_http_request *rq, const lti_job *from)
{
    json_t *said =
        lti_wire_json(ctx, rq->body ? (const char *)rq->body : "", rq->body_bytes, LTI_REMIX_BODY);
    if (!said) return LT_ERR_FORMAT;
    const char *key;
    json_t *v, *prompt = json_object_get(said, "prompt");
    lt_status s = json_is_string(prompt) ? LT_OK : wrong(o, ctx, "prompt", "missing");
    json_object_foreach(said, key, v)
    {
        if (s == LT_OK && v != prompt) s = wrong(o, ctx, key, "a remix changes the prompt only");
    }
    if (s == LT_OK && from->image)
        s = wrong(o, ctx, "video_id", "this video began with a picture, which is not kept");
    o->fields = s == LT_OK ? json_deep_copy(from->fields) : NULL;
    if (s == LT_OK && (!o->fields || json_object_set(o->fields, "prompt", prompt)))
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for a request");
    json_decref(said);
    return s;
}

static void remix(lt_server *srv, lti_http_request *rq, lti_http_reply *re, const lti_job *from)
{
    order o = {.remixed = from->id};
    lti_jobs_lock(srv->jobs);
    const bool complete = from->state == LTI_JOB_COMPLETED;
    lti_jobs_unlock(srv->jobs);
    lt_status s = complete ? read_remix(&o, srv->ctx, rq, from)
                           : wrong(&o, srv->ctx, "video_id", "this video is not complete");
    if (s < 0)
        lti_reply_status(re, srv->ctx, s, o.param.name);
    else
        create_job(srv, rq, re, &o);
    free_order(&o);
}

static bool refused_draining(const lt_server *srv, lti_http_reply *re)
{
    if (!srv->draining) return false;
    lti_reply_error(re, 503, "server_error", "draining", NULL, "the server is shutting down");
    lti_reply_header(re, "retry-after", "10");
    return true;
}

void lti_videos_create(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    order o = {0};
    if (refused_draining(srv, re)) return;
    const lt_status s = read_order(&o, srv->ctx, rq);
    if (s < 0)
        lti_reply_status(re, srv->ctx, s, o.param.name);
    else
        create_job(srv, rq, re, &o);
    free_order(&o);
}

void lti_videos_remix(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    if (refused_draining(srv, re)) return;
    lti_job *from = lti_videos_find(srv, rq, re);
    if (from) remix(srv, rq, re, from);
    lti_job_release(from);
}

/* ---- looking ---- */

lti_job *lti_videos_find(lt_server *srv, const lti_http_request *rq, lti_http_reply *re)
{
    char id[64], owner[LTI_JOB_OWNER];
    owner_of(srv, rq, owner);
    lti_job *j =
        lti_path_segment(rq->path, 2, id, sizeof id) ? lti_jobs_find(srv->jobs, id, owner) : NULL;
    if (!j)
        lti_reply_error(re, 404, "invalid_request_error", "not_found", "video_id",
                        "there is no video of that id");
    return j;
}

void lti_videos_get(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    lti_job *j = lti_videos_find(srv, rq, re);
    if (j) reply_job(re, 200, j);
    lti_job_release(j);
}

void lti_videos_delete(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    lti_job *j = lti_videos_find(srv, rq, re);
    if (!j) return;
    lti_jobs_delete(srv->jobs, j);
    lti_reply_json(
        re, 200,
        json_pack("{s:s, s:s, s:b}", "id", j->id, "object", "video.deleted", "deleted", 1));
    lti_job_release(j);
}

void lti_videos_cancel(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    lti_job *j = lti_videos_find(srv, rq, re);
    if (!j) return;
    lti_jobs_cancel(srv->jobs, j);
    reply_job(re, 200, j);
    lti_job_release(j);
}

typedef struct page {
    lti_job *job[MAX_LIST]; /* references */
    int count, limit;
    bool more, known; /* known: the cursor was found */
} page;

/* The jobs of an owner behind the one called `after`, oldest or newest first. */
static void collect(lt_server *srv, page *p, const char *owner, const char *after,
                    bool newest_first)
{
    lti_jobs_lock(srv->jobs);
    size_t n = 0, i = 0;
    for (lti_job *j = lti_jobs_first(srv->jobs); j; j = j->next)
        n += !strcmp(j->owner, owner);
    lti_job **all = calloc(n + 1, sizeof *all);
    for (lti_job *j = lti_jobs_first(srv->jobs); all && j; j = j->next)
        if (!strcmp(j->owner, owner)) {
            all[newest_first ? n - 1 - i : i] = j;
            i++;
        }
    p->known = !*after;
    for (i = 0; all && i < n && !p->more; i++) {
        if (p->known && p->count == p->limit)
            p->more = true;
        else if (p->known) {
            atomic_fetch_add(&all[i]->refs, 1);
            p->job[p->count++] = all[i];
        } else
            p->known = !strcmp(all[i]->id, after);
    }
    free(all);
    lti_jobs_unlock(srv->jobs);
}

void lti_videos_list(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    char after[64], order_text[8], limit[16], owner[LTI_JOB_OWNER];
    page p = {.limit = 20};
    owner_of(srv, rq, owner);
    lti_query_get(rq->query, "after", after, sizeof after);
    lti_query_get(rq->query, "order", order_text, sizeof order_text);
    if (lti_query_get(rq->query, "limit", limit, sizeof limit))
        p.limit = (int)fmin((double)lti_length_parse(limit), MAX_LIST + 1);
    const bool asc = !strcmp(order_text, "asc");
    if (p.limit < 0 || p.limit > MAX_LIST) {
        lti_reply_error(re, 400, "invalid_request_error", "invalid_value", "limit",
                        "limit: a whole number from 0 to %d is wanted", MAX_LIST);
        return;
    }
    if (*order_text && !asc && strcmp(order_text, "desc")) {
        lti_reply_error(re, 400, "invalid_request_error", "invalid_value", "order",
                        "order: asc or desc is wanted");
        return;
    }
    collect(srv, &p, owner, after, !asc);
    json_t *data = json_array();
    for (int i = 0; i < p.count; i++)
        json_array_append_new(data, lti_job_object(p.job[i]));
    if (p.known)
        lti_reply_json(re, 200,
                       json_pack("{s:s, s:O, s:s?, s:s?, s:b}", "object", "list", "data", data,
                                 "first_id", p.count ? p.job[0]->id : NULL, "last_id",
                                 p.count ? p.job[p.count - 1]->id : NULL, "has_more", p.more));
    else
        lti_reply_error(re, 404, "invalid_request_error", "not_found", "after",
                        "after: there is no video of that id");
    json_decref(data);
    for (int i = 0; i < p.count; i++)
        lti_job_release(p.job[i]);
}
