/* content.c: what there is of a job: the video, while it is made too, and its pictures. */
#include "stream/jobs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- while it is made ---- */

typedef struct watcher {
    lti_job *job; /* reference */
    int fd;       /* of the part, -1: not there yet */
    int64_t at;
} watcher;

static void end_watch(void *user)
{
    watcher *w = user;
    if (w->fd >= 0) close(w->fd);
    lti_job_release(w->job);
    free(w);
}

/* What has been drawn since; the file outlives its name. */
static int pull_watch(void *user, uint8_t *out, size_t cap)
{
    watcher *w = user;
    lti_jobs *jobs = w->job->srv->jobs;
    char path[LTI_JOB_PATH];
    /* asked first: what is written after that may be missing, what came before is read below */
    lti_jobs_lock(jobs);
    const lti_job_state state = w->job->state;
    const bool over = w->job->gone || state == LTI_JOB_COMPLETED || state == LTI_JOB_FAILED;
    const bool drawn = w->job->made > 0 || state == LTI_JOB_COMPLETED;
    lti_jobs_unlock(jobs);
    for (int i = 0; i < 2 && w->fd < 0 && drawn; i++) {
        lti_jobs_path(jobs, w->job->id, i ? "mp4" : "part", path, sizeof path);
        w->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    const ssize_t n = w->fd < 0 ? 0 : pread(w->fd, out, cap, (off_t)w->at);
    if (n > 0) {
        w->at += n;
        return (int)n;
    }
    if (n < 0 || (over && state != LTI_JOB_COMPLETED)) return LTI_PULL_BROKEN;
    return over ? LTI_PULL_END : 0;
}

static void watch(lti_job *j, lti_http_reply *re)
{
    watcher *w = calloc(1, sizeof *w);
    if (!w) {
        lti_reply_error(re, 500, "server_error", "out_of_memory", NULL, "out of memory");
        return;
    }
    atomic_fetch_add(&j->refs, 1);
    *w = (watcher){.job = j, .fd = -1};
    re->status = 200;
    re->type = "video/mp4";
    re->bytes = -1;
    re->pull = pull_watch;
    re->done = end_watch;
    re->user = w;
    lti_reply_header(re, "cache-control", "no-store");
}

/* ---- afterwards ---- */

typedef struct variant {
    const char *name, *end, *type, *suffix; /* of the API; of its file here; of what is sent */
} variant;
static const variant variants[] = {{"video", "mp4", "video/mp4", "mp4"},
                                   {"thumbnail", "jpg", "image/jpeg", "jpg"},
                                   {"spritesheet", "sheet", "image/jpeg", "sheet.jpg"}};

static void send_file(lti_job *j, const variant *v, const lti_http_request *rq, lti_http_reply *re)
{
    char path[LTI_JOB_PATH], tag[80];
    struct stat st;
    int64_t first = 0, last = 0;
    lti_jobs_path(j->srv->jobs, j->id, v->end, path, sizeof path);
    re->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (re->fd <= 0 || fstat(re->fd, &st)) {
        lti_reply_error(re, 404, "invalid_request_error", "not_found", "video_id", "the %s is gone",
                        v->name);
        return;
    }
    snprintf(tag, sizeof tag, "\"%s-%s-%lld\"", j->id + 6, v->end, (long long)st.st_size);
    lt_status s = *rq->range ? lti_range_parse(rq->range, st.st_size, &first, &last) : LT_AGAIN;
    if (*rq->if_range && strcmp(rq->if_range, tag)) s = LT_AGAIN; /* it has changed: all of it */
    lti_reply_header(re, "accept-ranges", "bytes");
    lti_reply_header(re, "etag", "%s", tag);
    if (s == LT_ERR_ARG) {
        close(re->fd);
        re->fd = 0;
        lti_reply_error(re, 416, "invalid_request_error", "range_not_satisfiable", "Range",
                        "the %s has %lld bytes", v->name, (long long)st.st_size);
        lti_reply_header(re, "content-range", "bytes */%lld", (long long)st.st_size);
        return;
    }
    re->type = v->type;
    re->status = s == LT_OK ? 206 : 200;
    re->file_offset = s == LT_OK ? first : 0;
    re->bytes = s == LT_OK ? last - first + 1 : st.st_size;
    if (s == LT_OK)
        lti_reply_header(re, "content-range", "bytes %lld-%lld/%lld", (long long)first,
                         (long long)last, (long long)st.st_size);
    lti_reply_header(re, "content-disposition", "attachment; filename=\"%s.%s\"", j->id, v->suffix);
    lti_reply_header(re, "cache-control", "private");
}

static void send_content(lti_job *j, const lti_http_request *rq, lti_http_reply *re)
{
    char word[16];
    const bool given = lti_query_get(rq->query, "variant", word, sizeof word) || *word;
    size_t i = 0;
    while (given && i < LT_COUNT(variants) && strcmp(word, variants[i].name))
        i++;
    lti_jobs_lock(j->srv->jobs);
    const lti_job_state state = j->state;
    lti_jobs_unlock(j->srv->jobs);
    if (i == LT_COUNT(variants))
        lti_reply_error(re, 400, "invalid_request_error", "invalid_value", "variant",
                        "variant: video, thumbnail or spritesheet is wanted");
    else if (state == LTI_JOB_COMPLETED)
        send_file(j, &variants[i], rq, re);
    else if (state == LTI_JOB_FAILED)
        lti_reply_error(re, 404, "invalid_request_error", "video_failed", "video_id",
                        "there is no video: the job failed");
    else if (!i && lti_query_get(rq->query, "live", word, sizeof word) && !strcmp(word, "1"))
        watch(j, re);
    else
        lti_reply_error(re, 404, "invalid_request_error", "video_not_ready", "video_id",
                        "the video is not complete yet; with ?live=1 it comes while it is made");
}

void lti_videos_content(lt_server *srv, lti_http_request *rq, lti_http_reply *re)
{
    lti_job *j = lti_videos_find(srv, rq, re);
    if (j) send_content(j, rq, re);
    lti_job_release(j);
}
