/* jobs.c: the table of jobs: what there is, what becomes of it, and what of it is on the disk. A change of state is in the journal
 * before anybody is told; after a crash the journal and the names of the files say how far every job had come. */
#include "stream/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <libavutil/avstring.h>

/* A job that has begun so often and come to no end takes the server with it. */
enum { MAX_STARTS = 10, MAX_JOBS = 4096, COMPACT_BYTES = 16 << 20 };
#define KEY_SECONDS 86400

struct lti_jobs {
    lt_server *srv;
    char *path;
    bool temporary;
    int dir; /* locked: one server a folder */
    lti_journal *journal;
    pthread_mutex_t lock;
    lti_job *first, **last; /* {lock} */
    int32_t count;          /* {lock} */
    bool ending;            /* {lock} */
};

static const char *const ends[] = {"mp4", "part", "session", "session.part", "png", "final", "in"};

void lti_jobs_lock(lti_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
}

void lti_jobs_unlock(lti_jobs *jobs)
{
    pthread_mutex_unlock(&jobs->lock);
}

lti_job *lti_jobs_first(lti_jobs *jobs)
{
    return jobs->first;
}

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

/* All of a job's but the video that is complete. */
static void remove_files(const lti_jobs *jobs, const char *id, bool video)
{
    for (size_t i = video ? 0 : 1; i < LT_COUNT(ends); i++)
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
                                "{s:s, s:s, s?I, s?I, s?I, s?b, s?s, s?s, s?s, s?s, s?s, s?o, "
                                "s?o}",
                                "op", &op, "id", &r->id, "at", &at, "bytes", &size, "expires",
                                &expires, "image", &image, "owner", &r->owner, "key", &r->key,
                                "print", &r->print, "code", &r->code, "message", &r->message,
                                "fields", &r->fields, "params", &r->params);
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
static bool put(lti_jobs *jobs, json_t *record, bool reserve)
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

static json_t *create_record(const lti_job *j)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s*, s:s, s:b, s:O, s:O}", "op", "create", "id", j->id,
                     "at", (json_int_t)j->created, "owner", j->owner, "key", j->key, "print",
                     j->print, "image", j->image, "fields", j->fields, "params", j->params);
}

/* What has become of it; NULL: nothing yet. {jobs} */
static json_t *end_record(const lti_job *j)
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

static json_t *small_record(lti_record_op op, const char *id)
{
    return json_pack("{s:s, s:s}", "op", ops[op], "id", id);
}

/* Only what is there: a record or two a job. {jobs} */
static void compact(lti_jobs *jobs)
{
    size_t n = 0, most = 2 * (size_t)jobs->count;
    char **text = calloc(most + 1, sizeof *text);
    bool ok = text != NULL;
    for (lti_job *j = jobs->first; ok && j; j = j->next) {
        json_t *records[] = {create_record(j), end_record(j)};
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

/* ---- jobs ---- */

void lti_job_release(lti_job *j)
{
    if (!j || atomic_fetch_sub(&j->refs, 1) > 1) return;
    free(j->key);
    json_decref(j->fields);
    json_decref(j->params);
    lti_video_request_free(&j->request);
    free(j);
}

lt_status lti_job_create(lti_job **out, lt_ctx *ctx, lt_server *srv, json_t *fields)
{
    char hex[25];
    lti_job *j = *out = calloc(1, sizeof *j);
    if (!j) {
        json_decref(fields);
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a job");
    }
    atomic_init(&j->refs, 1);
    j->task.ops = &lti_job_ops;
    j->srv = srv;
    j->fields = fields;
    j->created = (int64_t)time(NULL);
    j->position = -1;
    lti_random_hex(hex, 12);
    snprintf(j->id, sizeof j->id, "video_%s", hex);
    return LT_OK;
}

/* {jobs} */
static void enlist(lti_jobs *jobs, lti_job *j)
{
    j->next = NULL;
    *jobs->last = j;
    jobs->last = &j->next;
    jobs->count++;
}

/* Its reference is the caller's then. {jobs} */
static void unlist(lti_jobs *jobs, lti_job *j)
{
    for (lti_job **p = &jobs->first; *p; p = &(*p)->next)
        if (*p == j) {
            *p = j->next;
            if (jobs->last == &j->next) jobs->last = p;
            jobs->count--;
            return;
        }
}

static lti_job *find_any(lti_jobs *jobs, const char *id)
{
    lti_job *j = jobs->first;
    while (j && strcmp(j->id, id))
        j = j->next;
    return j;
}

lti_job *lti_jobs_find(lti_jobs *jobs, const char *id, const char *owner)
{
    lti_jobs_lock(jobs);
    lti_job *j = find_any(jobs, id);
    if (j && strcmp(j->owner, owner)) j = NULL;
    if (j) atomic_fetch_add(&j->refs, 1);
    lti_jobs_unlock(jobs);
    return j;
}

lti_job *lti_jobs_find_key(lti_jobs *jobs, const char *key, const char *owner)
{
    const int64_t since = (int64_t)time(NULL) - KEY_SECONDS;
    lti_jobs_lock(jobs);
    lti_job *j = jobs->first;
    while (j && !(j->key && !strcmp(j->key, key) && !strcmp(j->owner, owner) && j->created > since))
        j = j->next;
    if (j) atomic_fetch_add(&j->refs, 1);
    lti_jobs_unlock(jobs);
    return j;
}

/* {jobs} */
static bool is_over(const lti_job *j)
{
    return j->state == LTI_JOB_COMPLETED || j->state == LTI_JOB_FAILED;
}

/* {jobs} */
static void set_over(lti_job *j, lti_job_state state, const char *code, const char *message)
{
    j->state = state;
    j->completed = (int64_t)time(NULL);
    j->expires = j->completed + (int64_t)j->srv->o.retain_seconds;
    j->progress = state == LTI_JOB_COMPLETED ? 100 : j->progress;
    j->position = -1;
    snprintf(j->code, sizeof j->code, "%s", code ? code : "");
    snprintf(j->message, sizeof j->message, "%s", message ? message : "");
    if (!lti_text_valid(j->message, strlen(j->message))) /* cut within a character */
        snprintf(j->message, sizeof j->message, "%s", j->code);
}

/* What a job is made from, by the model that there is now. */
static lt_status complete_job(lti_job *j, lt_ctx *ctx)
{
    lti_param param;
    lt_estimate e;
    static const uint8_t picture[3];
    lt_server *srv = j->srv;
    LT_TRY(lti_video_request_parse(&j->request, ctx, j->fields, false, &param));
    if (j->image) j->request.image = picture;
    LT_TRY(lti_video_request_options(&j->options, ctx, &j->request, &srv->info, srv->o.max_seconds,
                                     &param));
    j->request.image = j->options.image = NULL; /* read when it is drawn */
    LT_TRY(lt_session_estimate(&e, ctx, &srv->o.model, &j->options));
    j->task.bytes = e.total_peak > e.weights ? e.total_peak - e.weights : 0;
    return LT_OK;
}

/* ---- from the journal ---- */

static void apply_create(lti_jobs *jobs, const lti_record *r)
{
    lti_job *j;
    if (find_any(jobs, r->id)) return;
    if (lti_job_create(&j, jobs->srv->ctx, jobs->srv, json_incref(r->fields)) < 0) return;
    snprintf(j->id, sizeof j->id, "%s", r->id);
    snprintf(j->owner, sizeof j->owner, "%s", r->owner ? r->owner : "");
    snprintf(j->print, sizeof j->print, "%s", r->print ? r->print : "");
    if (r->key) j->key = strdup(r->key);
    j->created = r->at;
    j->image = r->image;
    j->params = json_incref(r->params);
    enlist(jobs, j);
}

static void apply(void *user, const char *text, size_t bytes)
{
    lti_jobs *jobs = user;
    lti_record r;
    if (!lti_record_parse(&r, text, bytes)) return;
    lti_job *j = find_any(jobs, r.id);
    if (r.op == LTI_RECORD_CREATE)
        apply_create(jobs, &r);
    else if (j && r.op == LTI_RECORD_START)
        j->starts++;
    else if (j && r.op == LTI_RECORD_SUSPEND)
        j->starts = 0;
    else if (j && r.op == LTI_RECORD_DELETE) {
        unlist(jobs, j);
        lti_job_release(j);
    } else if (j && !is_over(j)) { /* the first end counts */
        set_over(j, r.op == LTI_RECORD_DONE ? LTI_JOB_COMPLETED : LTI_JOB_FAILED, r.code,
                 r.message);
        j->completed = r.at;
        j->expires = r.expires;
        j->bytes = r.bytes;
    }
    json_decref(r.root);
}

static int64_t size_of(const lti_jobs *jobs, const char *id, const char *end)
{
    char name[LTI_JOB_ID + 16];
    struct stat st;
    snprintf(name, sizeof name, "%s.%s", id, end);
    return fstatat(jobs->dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -1 : st.st_size;
}

/* The disk is asked what the journal could not say any more. */
static void compare_with_disk(lti_jobs *jobs, lti_job *j)
{
    const int64_t video = size_of(jobs, j->id, "mp4"), part = size_of(jobs, j->id, "part"),
                  session = size_of(jobs, j->id, "session");
    if (j->state == LTI_JOB_COMPLETED && video < 0)
        set_over(j, LTI_JOB_FAILED, "video_lost", "the file of the video is gone");
    if (!is_over(j) && video >= 0) { /* it has its name only when it is complete */
        set_over(j, LTI_JOB_COMPLETED, NULL, NULL);
        j->bytes = video;
    } else if (!is_over(j) && j->starts >= MAX_STARTS)
        set_over(j, LTI_JOB_FAILED, "gave_up", "the server ended too often while it drew this");
    if (is_over(j)) remove_files(jobs, j->id, j->state != LTI_JOB_COMPLETED);
    j->disk = video > 0 ? video : (part > 0 ? part : 0) + (session > 0 ? session : 0);
    if (j->state == LTI_JOB_FAILED) j->disk = 0;
    if (is_over(j)) return;
    if (complete_job(j, jobs->srv->ctx) >= 0) return;
    set_over(j, LTI_JOB_FAILED, "invalid_value", lt_error(jobs->srv->ctx));
    remove_files(jobs, j->id, true);
}

/* Files of jobs that there are not. */
static void remove_orphans(lti_jobs *jobs)
{
    DIR *d = opendir(jobs->path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char id[31];
        if (strlen(e->d_name) < 32 || e->d_name[30] != '.') continue;
        memcpy(id, e->d_name, 30);
        id[30] = 0;
        if (good_id(id) && !find_any(jobs, id)) unlinkat(jobs->dir, e->d_name, 0);
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
    if (lost) lti_say(jobs->srv, LT_LOG_WARN, "journal_torn", "{s:I}", "bytes", (json_int_t)lost);
    lti_jobs_lock(jobs);
    for (lti_job *j = jobs->first; j; j = j->next)
        compare_with_disk(jobs, j);
    remove_orphans(jobs);
    compact(jobs);
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
    if (s < 0) lti_jobs_close(out);
    return s;
}

void lti_jobs_close(lti_jobs **pointer)
{
    lti_jobs *jobs = pointer ? *pointer : NULL;
    if (!jobs) return;
    while (jobs->first) {
        lti_job *j = jobs->first;
        unlist(jobs, j);
        if (jobs->temporary) remove_files(jobs, j->id, true);
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

static lt_status submit(lti_jobs *jobs, lti_job *j, double *eta)
{
    atomic_fetch_add(&j->refs, 1); /* the scheduler's, until `close` */
    lti_jobs_lock(jobs);
    j->submitted = true;
    lti_jobs_unlock(jobs);
    const lt_status s = lti_sched_submit(jobs->srv->sched, &j->task, eta);
    if (s == LT_OK) return s;
    lti_jobs_lock(jobs);
    j->submitted = false;
    lti_jobs_unlock(jobs);
    lti_job_release(j);
    return s;
}

static void resume(lti_jobs *jobs, lti_job *j)
{
    double eta;
    j->task.again = true;
    if (submit(jobs, j, &eta) == LT_OK) return;
    lti_jobs_lock(jobs);
    set_over(j, LTI_JOB_FAILED, "out_of_memory", "this machine does not have the memory for it");
    json_t *record = end_record(j);
    lti_jobs_unlock(jobs);
    put(jobs, record, false);
}

void lti_jobs_resume(lti_jobs *jobs)
{
    /* those that run already may change the table */
    lti_jobs_lock(jobs);
    lti_job **waiting = calloc((size_t)jobs->count + 1, sizeof *waiting);
    size_t n = 0;
    for (lti_job *j = jobs->first; waiting && j; j = j->next) {
        if (is_over(j)) continue;
        atomic_fetch_add(&j->refs, 1);
        waiting[n++] = j;
    }
    lti_jobs_unlock(jobs);
    for (size_t i = 0; i < n; i++) {
        resume(jobs, waiting[i]);
        lti_job_release(waiting[i]);
    }
    free(waiting);
}

void lti_jobs_suspend(lti_jobs *jobs)
{
    lti_jobs_lock(jobs);
    jobs->ending = true;
    for (lti_job *j = jobs->first; j; j = j->next)
        if (j->session) lt_session_cancel(j->session);
    lti_jobs_unlock(jobs);
}

bool lti_jobs_ending(const lti_jobs *jobs)
{
    return jobs->ending;
}

/* ---- what can be done with them: network thread ---- */

lt_status lti_jobs_add(lti_jobs *jobs, lti_job *j, double *eta)
{
    LT_TRY(lti_sched_room(jobs->srv->sched, &j->task, eta)); /* only this thread adds jobs */
    if (!put(jobs, create_record(j), true)) return LT_ERR_IO;
    lti_jobs_lock(jobs);
    atomic_fetch_add(&j->refs, 1); /* the table's */
    enlist(jobs, j);
    lti_jobs_unlock(jobs);
    const lt_status s = submit(jobs, j, eta);
    if (s != LT_OK) lti_jobs_delete(jobs, j);
    return s;
}

void lti_jobs_discard(lti_jobs *jobs, lti_job *j)
{
    remove_files(jobs, j->id, true);
}

/* The device is told to let go of it. {jobs} */
static bool stop(lti_job *j)
{
    j->stopped_at = lti_now();
    if (j->session) lt_session_cancel(j->session);
    return j->submitted;
}

void lti_jobs_cancel(lti_jobs *jobs, lti_job *j)
{
    json_t *record = NULL;
    bool running = false;
    lti_jobs_lock(jobs);
    if (!is_over(j) && !j->gone) {
        set_over(j, LTI_JOB_FAILED, "cancelled", "it was cancelled");
        record = end_record(j);
        running = stop(j);
    }
    lti_jobs_unlock(jobs);
    if (!record) return;
    put(jobs, record, false);
    lti_count(jobs->srv->metrics, LTI_COUNT_JOBS_CANCELLED, 1);
    if (running)
        lti_sched_stop(jobs->srv->sched, &j->task);
    else
        remove_files(jobs, j->id, true);
}

void lti_jobs_delete(lti_jobs *jobs, lti_job *j)
{
    lti_jobs_lock(jobs);
    const bool there = !j->gone, running = there && stop(j);
    j->gone = true;
    if (there) unlist(jobs, j);
    const bool over = is_over(j);
    lti_jobs_unlock(jobs);
    if (!there) return;
    put(jobs, small_record(LTI_RECORD_DELETE, j->id), false);
    if (running)
        lti_sched_stop(jobs->srv->sched, &j->task);
    else
        remove_files(jobs, j->id, true);
    if (running && !over) lti_count(jobs->srv->metrics, LTI_COUNT_JOBS_CANCELLED, 1);
    lti_job_release(j); /* the table's */
}

static const char *state_name(lti_job_state s)
{
    static const char *const names[] = {"queued", "in_progress", "completed", "failed"};
    return names[s];
}

/* Of the whole video, as it was asked for, or as it is. */
static void seconds_text(const lti_job *j, char *out, size_t cap)
{
    const json_t *asked = json_object_get(j->fields, "seconds");
    const double v = json_is_string(asked) ? strtod(json_string_value(asked), NULL)
                     : json_is_number(asked)
                         ? json_number_value(asked)
                         : json_number_value(json_object_get(j->params, "seconds"));
    snprintf(out, cap, "%g", v);
}

static json_t *or_null(int64_t seconds)
{
    return seconds ? json_integer(seconds) : json_null();
}

json_t *lti_job_object(lti_job *j)
{
    lti_jobs *jobs = j->srv->jobs;
    char seconds[32];
    const json_t *model = json_object_get(j->fields, "model");
    seconds_text(j, seconds, sizeof seconds);
    lti_jobs_lock(jobs);
    json_t *v = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:n, s:s, s:s, s:n}", "id",
                          j->id, "object", "video", "model",
                          json_is_string(model) ? json_string_value(model) : j->srv->info.family,
                          "status", state_name(j->state), "progress", (int)j->progress,
                          "created_at", (json_int_t)j->created, "completed_at",
                          or_null(j->state == LTI_JOB_COMPLETED ? j->completed : 0), "expires_at",
                          or_null(j->expires), "remixed_from_video_id", "seconds", seconds,
                          "quality", "standard", "error");
    if (v && j->state == LTI_JOB_FAILED)
        json_object_set_new(v, "error",
                            json_pack("{s:s, s:s}", "code", j->code, "message", j->message));
    if (v && j->state == LTI_JOB_QUEUED && j->position >= 0) {
        json_object_set_new(v, "queue_position", json_integer(j->position));
        json_object_set_new(v, "eta_seconds", json_real(fmax(0, j->eta - (lti_now() - j->eta_at))));
    }
    lti_jobs_unlock(jobs);
    static const char *const shown[] = {
        "prompt",         "negative_prompt", "size",    "num_frames", "fps",  "num_inference_steps",
        "guidance_scale", "flow_shift",      "sampler", "seed",       "mode", "attention"};
    for (size_t i = 0; v && i < LT_COUNT(shown); i++) {
        json_t *p = json_object_get(j->params, shown[i]);
        if (p) json_object_set(v, shown[i], p);
    }
    return v;
}

/* ---- the disk ---- */

double lti_jobs_tick(lti_jobs *jobs)
{
    const int64_t now = (int64_t)time(NULL);
    for (;;) {
        double next = (double)INFINITY;
        lti_job *due = NULL;
        lti_jobs_lock(jobs);
        for (lti_job *j = jobs->first; j && !due; j = j->next) {
            if (!is_over(j)) continue;
            if (j->expires <= now || jobs->count > MAX_JOBS)
                due = j;
            else
                next = fmin(next, (double)(j->expires - now));
        }
        if (due) atomic_fetch_add(&due->refs, 1);
        if (!due && lti_journal_bytes(jobs->journal) > COMPACT_BYTES) compact(jobs);
        lti_jobs_unlock(jobs);
        if (!due) return next;
        lti_say(jobs->srv, LT_LOG_INFO, "job_expired", "{s:s}", "job_id", due->id);
        lti_jobs_delete(jobs, due);
        lti_job_release(due);
    }
}

uint64_t lti_jobs_disk(lti_jobs *jobs)
{
    uint64_t sum = 0;
    lti_jobs_lock(jobs);
    for (lti_job *j = jobs->first; j; j = j->next)
        sum += (uint64_t)j->disk;
    lti_jobs_unlock(jobs);
    return sum;
}

bool lti_jobs_room(lti_jobs *jobs, uint64_t bytes)
{
    while (lti_jobs_disk(jobs) + bytes > jobs->srv->o.disk_bytes) {
        lti_jobs_lock(jobs);
        lti_job *j = jobs->first;
        while (j && (j->state != LTI_JOB_COMPLETED || j->submitted))
            j = j->next;
        if (j) atomic_fetch_add(&j->refs, 1);
        lti_jobs_unlock(jobs);
        if (!j) return false;
        lti_say(jobs->srv, LT_LOG_WARN, "job_expired_early", "{s:s}", "job_id", j->id);
        lti_jobs_delete(jobs, j);
        lti_job_release(j);
    }
    return true;
}

/* ---- what the device thread says ---- */

void lti_job_started(lti_job *j)
{
    put(j->srv->jobs, small_record(LTI_RECORD_START, j->id), false);
}

void lti_job_ended(lti_job *j, lt_status why, const char *code, const char *message)
{
    lti_jobs *jobs = j->srv->jobs;
    json_t *record = NULL;
    const int64_t bytes = size_of(jobs, j->id, "mp4");
    lti_jobs_lock(jobs);
    j->submitted = false;
    const bool wanted = !j->gone && !is_over(j), done = wanted && !code && why == LT_END;
    const double stopped_at = j->stopped_at;
    if (done) {
        set_over(j, LTI_JOB_COMPLETED, NULL, NULL);
        j->bytes = j->disk = bytes;
        record = end_record(j);
    } else if (wanted && code) {
        set_over(j, LTI_JOB_FAILED, code, message);
        record = end_record(j);
    } else if (wanted) {
        j->state = LTI_JOB_QUEUED;
        record = small_record(LTI_RECORD_SUSPEND, j->id);
    }
    if (!done && !(wanted && !code)) j->disk = 0;
    lti_jobs_unlock(jobs);
    if (record) put(jobs, record, false);
    if (done || !wanted || code) remove_files(jobs, j->id, !done);
    if (stopped_at > 0) lti_observe(j->srv->metrics, LTI_TIME_CANCEL, lti_now() - stopped_at);
    if (done) lti_count(j->srv->metrics, LTI_COUNT_JOBS_COMPLETE, 1);
    if (wanted && code) lti_count(j->srv->metrics, LTI_COUNT_JOBS_FAILED, 1);
    lti_say(j->srv, wanted && code ? LT_LOG_ERROR : LT_LOG_INFO, "job_ended", "{s:s, s:s, s:s}",
            "job_id", j->id, "outcome",
            done      ? "completed"
            : !wanted ? "stopped"
            : code    ? code
                      : "suspended",
            "message", message ? message : "");
}
