/* store.c: jobs on the disk: records of the journal, names of files, and what there is after a restart. */
#include "stream/jobs_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/avstring.h>

/* A job that has begun so often and come to no end takes the server with it. */
enum { MAX_STARTS = 10 };

static const char *const ends[] = {"mp4",          "jpg", "sheet", "part", "session",
                                   "session.part", "png", "final", "in"};
enum { KEPT = 3 }; /* of one that is complete */

void lti_jobs_path(const lti_jobs *jobs, const char *id, const char *end, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%s.%s", jobs->path, id, end);
}

static void remove_file(const lti_jobs *jobs, const char *id, const char *end)
{
    char name[LTI_JOB_ID + 16];
    snprintf(name, sizeof name, "%s.%s", id, end);
    unlinkat(jobs->dir, name, 0);
}

/* Without `video` all but what is complete. */
void lti_jobs_remove_files(const lti_jobs *jobs, const char *id, bool video)
{
    for (size_t i = video ? 0 : KEPT; i < LT_COUNT(ends); i++)
        remove_file(jobs, id, ends[i]);
}

/* ---- records ---- */

static const char *const ops[] = {"create", "start", "suspend", "done", "failed", "delete"};

/* They become names of files. */
static bool good_id(const char *id)
{
    return id && strlen(id) == 30 && !strncmp(id, "video_", 6) &&
           strspn(id + 6, "0123456789abcdef") == 24;
}

bool lti_record_parse(lti_record *r, const char *text, size_t bytes)
{
    json_error_t e;
    const char *op = "";
    *r = (lti_record){.root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e)};
    json_int_t at = 0, size = 0, expires = 0;
    int image = 0;
    bool ok =
        r->root && !json_unpack(r->root,
                                "{s:s, s:s, s?I, s?I, s?I, s?b, s?s, s?s, s?s, s?s, s?s, s?s, s?o, "
                                "s?o}",
                                "op", &op, "id", &r->id, "at", &at, "bytes", &size, "expires",
                                &expires, "image", &image, "owner", &r->owner, "key", &r->key,
                                "print", &r->print, "code", &r->code, "message", &r->message,
                                "remixed", &r->remixed, "fields", &r->fields, "params", &r->params);
    size_t i = 0;
    while (i < LT_COUNT(ops) && strcmp(ops[i], op))
        i++;
    r->op = (lti_record_op)i;
    r->at = at;
    r->bytes = size;
    r->expires = expires;
    r->image = image != 0;
    ok = ok && i < LT_COUNT(ops) && good_id(r->id) && at >= 0 && size >= 0 && expires >= 0;
    ok = ok && (i || (json_is_object(r->fields) && json_is_object(r->params)));
    if (ok) return true;
    json_decref(r->root);
    r->root = NULL;
    return false;
}

/* Takes record. */
bool lti_jobs_put(lti_jobs *jobs, json_t *record, bool reserve)
{
    char *text = record ? json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    const bool ok = text && lti_journal_append(jobs->journal, text, strlen(text), reserve);
    const int e = errno;
    if (!ok)
        lti_say(jobs->srv, LT_LOG_ERROR, "journal_failed", "{s:s}", "reason",
                text ? strerror(e) : "out of memory");
    free(text);
    json_decref(record);
    errno = e;
    return ok;
}

json_t *lti_record_create(const lti_job *j)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s*, s:s*, s:s, s:b, s:O, s:O}", "op", "create", "id",
                     j->id, "at", (json_int_t)j->created, "owner", j->owner, "key", j->key,
                     "remixed", *j->remixed ? j->remixed : NULL, "print", j->print, "image",
                     j->image, "fields", j->fields, "params", j->params);
}

/* What has become of it; NULL: nothing yet. {jobs} */
json_t *lti_record_end(const lti_job *j)
{
    if (j->state == LTI_JOB_COMPLETED)
        return json_pack("{s:s, s:s, s:I, s:I, s:I}", "op", "done", "id", j->id, "at",
                         (json_int_t)j->completed, "expires", (json_int_t)j->expires, "bytes",
                         (json_int_t)j->bytes);
    if (j->state == LTI_JOB_FAILED)
        return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "op", "failed", "id", j->id, "at",
                         (json_int_t)j->completed, "expires", (json_int_t)j->expires, "code",
                         j->code, "message", j->message);
    return NULL;
}

json_t *lti_record_small(lti_record_op op, const char *id)
{
    return json_pack("{s:s, s:s}", "op", ops[op], "id", id);
}

/* Only what is there: a record or two a job. {jobs} */
void lti_jobs_compact(lti_jobs *jobs)
{
    size_t n = 0, most = 2 * (size_t)jobs->count;
    char **text = calloc(most + 1, sizeof *text);
    bool ok = text != NULL;
    for (lti_job *j = jobs->first; ok && j; j = j->next) {
        json_t *records[] = {lti_record_create(j), lti_record_end(j)};
        for (int i = 0; i < 2; i++) {
            if (records[i] && n < most)
                ok = (text[n++] = json_dumps(records[i], JSON_COMPACT | JSON_REAL_PRECISION(15)));
            json_decref(records[i]);
        }
    }
    if (!ok || !lti_journal_rewrite(jobs->journal, text, n))
        lti_say(jobs->srv, LT_LOG_WARN, "journal_not_compacted", NULL);
    for (size_t i = 0; text && i < n; i++)
        free(text[i]);
    free(text);
}

/* ---- from the journal ---- */

static void apply_create(lti_jobs *jobs, const lti_record *r)
{
    lti_job *j;
    if (lti_jobs_find_any(jobs, r->id)) return;
    if (lti_job_create(&j, jobs->srv->ctx, jobs->srv, json_incref(r->fields)) < 0) return;
    snprintf(j->id, sizeof j->id, "%s", r->id);
    snprintf(j->owner, sizeof j->owner, "%s", r->owner ? r->owner : "");
    snprintf(j->print, sizeof j->print, "%s", r->print ? r->print : "");
    snprintf(j->remixed, sizeof j->remixed, "%s", r->remixed ? r->remixed : "");
    if (r->key) j->key = strdup(r->key);
    j->created = r->at;
    j->image = r->image;
    j->params = json_incref(r->params);
    lti_jobs_enlist(jobs, j);
}

static void apply(void *user, const char *text, size_t bytes)
{
    lti_jobs *jobs = user;
    lti_record r;
    if (!lti_record_parse(&r, text, bytes)) return;
    lti_job *j = lti_jobs_find_any(jobs, r.id);
    if (r.op == LTI_RECORD_CREATE)
        apply_create(jobs, &r);
    else if (j && r.op == LTI_RECORD_START)
        j->starts++;
    else if (j && r.op == LTI_RECORD_SUSPEND)
        j->starts = 0;
    else if (j && r.op == LTI_RECORD_DELETE) {
        lti_jobs_unlist(jobs, j);
        lti_job_release(j);
    } else if (j && !lti_job_is_over(j)) { /* the first end counts */
        lti_job_set_over(j, r.op == LTI_RECORD_DONE ? LTI_JOB_COMPLETED : LTI_JOB_FAILED, r.code,
                         r.message);
        j->completed = r.at;
        j->expires = r.expires;
        j->bytes = r.bytes;
    }
    json_decref(r.root);
}

int64_t lti_jobs_size(const lti_jobs *jobs, const char *id, const char *end)
{
    char name[LTI_JOB_ID + 16];
    struct stat st;
    snprintf(name, sizeof name, "%s.%s", id, end);
    return fstatat(jobs->dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -1 : st.st_size;
}

int64_t lti_jobs_whole(const lti_jobs *jobs, const char *id)
{
    int64_t sum = 0;
    for (size_t i = 0; i < KEPT; i++) {
        const int64_t n = lti_jobs_size(jobs, id, ends[i]);
        sum += n > 0 ? n : 0;
    }
    return sum;
}

/* The disk is asked what the journal could not say any more. */
static void compare_with_disk(lti_jobs *jobs, lti_job *j)
{
    const int64_t video = lti_jobs_size(jobs, j->id, "mp4"),
                  part = lti_jobs_size(jobs, j->id, "part"),
                  session = lti_jobs_size(jobs, j->id, "session");
    if (j->state == LTI_JOB_COMPLETED && video < 0)
        lti_job_set_over(j, LTI_JOB_FAILED, "video_lost", "the file of the video is gone");
    if (!lti_job_is_over(j) && video >= 0) { /* it has its name only when it is complete */
        lti_job_set_over(j, LTI_JOB_COMPLETED, NULL, NULL);
        j->bytes = video;
    } else if (!lti_job_is_over(j) && j->starts >= MAX_STARTS)
        lti_job_set_over(j, LTI_JOB_FAILED, "gave_up",
                         "the server ended too often while it drew this");
    if (lti_job_is_over(j)) lti_jobs_remove_files(jobs, j->id, j->state != LTI_JOB_COMPLETED);
    j->disk = video > 0 ? lti_jobs_whole(jobs, j->id)
                        : (part > 0 ? part : 0) + (session > 0 ? session : 0);
    if (j->state == LTI_JOB_FAILED) j->disk = 0;
    lti_param param;
    if (lti_job_is_over(j)) return;
    if (lti_job_complete(j, jobs->srv->ctx, false, &param) >= 0) return;
    lti_job_set_over(j, LTI_JOB_FAILED, "invalid_value", lt_error(jobs->srv->ctx));
    lti_jobs_remove_files(jobs, j->id, true);
}

/* Its name is no job's any more: nothing takes it away. */
static bool set_aside(lti_jobs *jobs, const char *name)
{
    char other[sizeof "lost_" + NAME_MAX];
    snprintf(other, sizeof other, "lost_%s", name);
    if (renameat(jobs->dir, name, jobs->dir, other)) return false;
    lti_say(jobs->srv, LT_LOG_WARN, "video_without_job", "{s:s}", "file", other);
    return true;
}

/* Files of jobs that there are not. Where the journal does not tell all, a complete video may be somebody's. */
static void remove_orphans(lti_jobs *jobs, bool journal_whole)
{
    DIR *d = opendir(jobs->path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char id[31];
        const size_t n = strlen(e->d_name);
        if (n > 5 && !strncmp(e->d_name, "live_", 5) && !strcmp(e->d_name + n - 5, ".live"))
            unlinkat(jobs->dir, e->d_name, 0);
        if (n < 32 || e->d_name[30] != '.') continue;
        memcpy(id, e->d_name, 30);
        id[30] = 0;
        if (!good_id(id) || lti_jobs_find_any(jobs, id)) continue;
        if (journal_whole || strcmp(e->d_name + 31, "mp4") || !set_aside(jobs, e->d_name))
            unlinkat(jobs->dir, e->d_name, 0);
    }
    if (d) closedir(d);
}

/* ---- opening ---- */

static lt_status make_folder(lti_jobs *jobs, lt_ctx *ctx)
{
    const char *path = jobs->srv->o.jobs_dir, *tmp = getenv("TMPDIR");
    jobs->temporary = !path;
    jobs->path =
        path ? av_strdup(path) : av_asprintf("%s/longtake-jobs-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!jobs->path) return lti_fail(ctx, LT_ERR_MEM, "no memory for jobs");
    if (path ? mkdir(path, 0700) && errno != EEXIST : !mkdtemp(jobs->path))
        return lti_fail(ctx, LT_ERR_IO, "cannot make the folder '%s': %s", jobs->path,
                        strerror(errno));
    jobs->dir = open(jobs->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (jobs->dir < 0 || access(jobs->path, W_OK))
        return lti_fail(ctx, LT_ERR_IO, "cannot use the folder '%s': %s", jobs->path,
                        strerror(errno));
    if (flock(jobs->dir, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return lti_fail(ctx, LT_ERR_IO, "the folder '%s' is in use by another server", jobs->path);
    return LT_OK;
}

static lt_status read_journal(lti_jobs *jobs, lt_ctx *ctx)
{
    char path[LTI_JOB_PATH];
    size_t lost = 0;
    lti_jobs_path(jobs, "jobs", "journal", path, sizeof path);
    LT_TRY(lti_journal_open(&jobs->journal, ctx, path, apply, jobs, &lost));
    const bool whole = !lost && !lti_journal_is_empty(jobs->journal);
    if (lost) {
        lti_say(jobs->srv, LT_LOG_WARN, "journal_damaged", "{s:I, s:s}", "bytes", (json_int_t)lost,
                "copy", "jobs.journal.damaged");
        unlinkat(jobs->dir, "jobs.journal.damaged", 0);
        if (linkat(jobs->dir, "jobs.journal", jobs->dir, "jobs.journal.damaged", 0))
            lti_say(jobs->srv, LT_LOG_WARN, "journal_not_copied", "{s:s}", "reason",
                    strerror(errno));
    }
    lti_jobs_lock(jobs);
    for (lti_job *j = jobs->first; j; j = j->next)
        compare_with_disk(jobs, j);
    remove_orphans(jobs, whole);
    lti_jobs_compact(jobs);
    lti_jobs_unlock(jobs);
    return LT_OK;
}

lt_status lti_jobs_open(lti_jobs **out, lt_ctx *ctx, lt_server *srv)
{
    lti_jobs *jobs = *out = calloc(1, sizeof *jobs);
    if (!jobs) return lti_fail(ctx, LT_ERR_MEM, "no memory for jobs");
    jobs->srv = srv;
    jobs->dir = -1;
    jobs->last = &jobs->first;
    pthread_mutex_init(&jobs->lock, NULL);
    lt_status s = make_folder(jobs, ctx);
    if (s == LT_OK) s = read_journal(jobs, ctx);
    if (s == LT_OK) s = lti_finisher_create(&jobs->finisher, ctx);
    if (s < 0) lti_jobs_close(out);
    return s;
}

void lti_jobs_close(lti_jobs **pointer)
{
    lti_jobs *jobs = pointer ? *pointer : NULL;
    if (!jobs) return;
    lti_finisher_destroy(&jobs->finisher);
    while (jobs->first) {
        lti_job *j = jobs->first;
        lti_jobs_unlist(jobs, j);
        if (jobs->temporary) lti_jobs_remove_files(jobs, j->id, true);
        lti_job_release(j);
    }
    lti_journal_close(&jobs->journal);
    if (jobs->temporary && jobs->dir >= 0) {
        unlinkat(jobs->dir, "jobs.journal", 0);
        rmdir(jobs->path);
    }
    if (jobs->dir >= 0) close(jobs->dir);
    pthread_mutex_destroy(&jobs->lock);
    av_free(jobs->path);
    free(jobs);
    *pointer = NULL;
}
