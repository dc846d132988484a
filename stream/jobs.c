/* jobs.c: the table of jobs: what there is, what becomes of it, and what of it is on the disk. A change of state is in the journal
 * before anybody is told; after a crash the journal and the names of the files say how far every job had come. */
#include "stream/jobs_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_JOBS = 4096, COMPACT_BYTES = 16 << 20 };
#define KEY_SECONDS 86400

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
void lti_jobs_enlist(lti_jobs *jobs, lti_job *j)
{
    j->next = NULL;
    *jobs->last = j;
    jobs->last = &j->next;
    jobs->count++;
}

/* Its reference is the caller's then. {jobs} */
void lti_jobs_unlist(lti_jobs *jobs, lti_job *j)
{
    for (lti_job **p = &jobs->first; *p; p = &(*p)->next)
        if (*p == j) {
            *p = j->next;
            if (jobs->last == &j->next) jobs->last = p;
            jobs->count--;
            return;
        }
}

lti_job *lti_jobs_find_any(lti_jobs *jobs, const char *id)
{
    lti_job *j = jobs->first;
    while (j && strcmp(j->id, id))
        j = j->next;
    return j;
}

lti_job *lti_jobs_find(lti_jobs *jobs, const char *id, const char *owner)
{
    lti_jobs_lock(jobs);
    lti_job *j = lti_jobs_find_any(jobs, id);
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
bool lti_job_is_over(const lti_job *j)
{
    return j->state == LTI_JOB_COMPLETED || j->state == LTI_JOB_FAILED;
}

/* {jobs} */
void lti_job_set_over(lti_job *j, lti_job_state state, const char *code, const char *message)
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
lt_status lti_job_complete(lti_job *j, lt_ctx *ctx, bool strict, lti_param *param)
{
    lt_estimate e;
    static const uint8_t picture[3];
    lt_server *srv = j->srv;
    LT_TRY(lti_video_request_parse(&j->request, ctx, j->fields, strict, param));
    if (j->image) j->request.image = picture;
    LT_TRY(lti_video_request_options(&j->options, ctx, &j->request, &srv->info, srv->o.max_seconds,
                                     param));
    j->request.image = j->options.image = NULL; /* read when it is drawn */
    const lt_status s = lt_session_estimate(&e, ctx, &srv->o.model, &j->options);
    if (s == LT_OK || s == LT_ERR_MEM)
        j->task.bytes = e.total_peak > e.weights ? e.total_peak - e.weights : 0;
    return s;
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
    lti_job_set_over(j, LTI_JOB_FAILED, "out_of_memory",
                     "this machine does not have the memory for it");
    json_t *record = lti_record_end(j);
    lti_jobs_unlock(jobs);
    lti_jobs_put(jobs, record, false);
}

void lti_jobs_resume(lti_jobs *jobs)
{
    /* those that run already may change the table */
    lti_jobs_lock(jobs);
    lti_job **waiting = calloc((size_t)jobs->count + 1, sizeof *waiting);
    size_t n = 0;
    for (lti_job *j = jobs->first; waiting && j; j = j->next) {
        if (lti_job_is_over(j)) continue;
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
    const lt_status room = lti_sched_room(jobs->srv->sched, &j->task, eta);
    if (room != LT_OK) return room; /* else it will have a place: only this thread adds jobs */
    if (!lti_jobs_room(jobs, 1) || !lti_jobs_put(jobs, lti_record_create(j), true))
        return LT_ERR_IO;
    lti_jobs_lock(jobs);
    atomic_fetch_add(&j->refs, 1); /* the table's */
    lti_jobs_enlist(jobs, j);
    lti_jobs_unlock(jobs);
    const lt_status s = submit(jobs, j, eta);
    if (s != LT_OK) lti_jobs_delete(jobs, j);
    return s;
}

void lti_jobs_discard(lti_jobs *jobs, lti_job *j)
{
    lti_jobs_remove_files(jobs, j->id, true);
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
    if (!lti_job_is_over(j) && !j->gone) {
        lti_job_set_over(j, LTI_JOB_FAILED, "cancelled", "it was cancelled");
        record = lti_record_end(j);
        running = stop(j);
    }
    lti_jobs_unlock(jobs);
    if (!record) return;
    lti_jobs_put(jobs, record, false);
    lti_count(jobs->srv->metrics, LTI_COUNT_JOBS_CANCELLED, 1);
    if (running)
        lti_sched_stop(jobs->srv->sched, &j->task);
    else
        lti_jobs_remove_files(jobs, j->id, true);
}

void lti_jobs_delete(lti_jobs *jobs, lti_job *j)
{
    lti_jobs_lock(jobs);
    const bool there = !j->gone, running = there && stop(j);
    j->gone = true;
    if (there) lti_jobs_unlist(jobs, j);
    const bool over = lti_job_is_over(j);
    lti_jobs_unlock(jobs);
    if (!there) return;
    lti_jobs_put(jobs, lti_record_small(LTI_RECORD_DELETE, j->id), false);
    if (running)
        lti_sched_stop(jobs->srv->sched, &j->task);
    else
        lti_jobs_remove_files(jobs, j->id, true);
    if (running && !over) lti_count(jobs->srv->metrics, LTI_COUNT_JOBS_CANCELLED, 1);
    lti_job_release(j); /* the table's */
}

static const char *state_name(lti_job_state s)
{
    static const char *const names[] = {"queued", "in_progress", "completed", "failed"};
    return names[s];
}

/* Of the whole video: as it was asked for, unless it was asked for in frames, or as it is. */
static void seconds_text(const lti_job *j, char *out, size_t cap)
{
    const json_t *frames = json_object_get(j->fields, "num_frames");
    const json_t *asked =
        json_is_null(frames) || !frames ? json_object_get(j->fields, "seconds") : NULL;
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
    const double eta = lti_sched_eta(j->srv->sched, &j->task);
    lti_jobs_lock(jobs);
    json_t *v = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:s?, s:s, s:s, s:n}", "id", j->id, "object",
        "video", "model", json_is_string(model) ? json_string_value(model) : j->srv->info.family,
        "status", state_name(j->state), "progress", (int)j->progress, "created_at",
        (json_int_t)j->created, "completed_at",
        or_null(j->state == LTI_JOB_COMPLETED ? j->completed : 0), "expires_at",
        or_null(j->expires), "remixed_from_video_id", *j->remixed ? j->remixed : NULL, "seconds",
        seconds, "quality", "standard", "error");
    if (v && j->state == LTI_JOB_FAILED)
        json_object_set_new(v, "error",
                            json_pack("{s:s, s:s}", "code", j->code, "message", j->message));
    if (v && j->state == LTI_JOB_QUEUED && j->position >= 0) {
        json_object_set_new(v, "queue_position", json_integer(j->position));
        json_object_set_new(v, "eta_seconds", json_real(eta));
    }
    lti_jobs_unlock(jobs);
    static const char *const shown[] = {
        "prompt",         "negative_prompt", "size",    "num_frames", "fps",  "num_inference_steps",
        "guidance_scale", "flow_shift",      "sampler", "seed",       "mode", "attention"};
    for (size_t i = 0; v && i < LT_COUNT(shown); i++) {
        json_t *p = json_object_get(j->params, shown[i]);
        if (p) json_object_set_new(v, shown[i], json_deep_copy(p)); /* counts are a thread's own */
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
            if (!lti_job_is_over(j)) continue;
            if (j->expires <= now || jobs->count > MAX_JOBS)
                due = j;
            else
                next = fmin(next, (double)(j->expires - now));
        }
        if (due) atomic_fetch_add(&due->refs, 1);
        if (!due && lti_journal_bytes(jobs->journal) > COMPACT_BYTES) lti_jobs_compact(jobs);
        lti_jobs_unlock(jobs);
        if (!due) return next;
        lti_say(jobs->srv, LT_LOG_INFO, "job_expired", "{s:s}", "job_id", due->id);
        lti_jobs_delete(jobs, due);
        lti_job_release(due);
    }
}

void lti_jobs_tape(lti_jobs *jobs, int64_t change)
{
    lti_jobs_lock(jobs);
    jobs->tapes += change;
    lti_jobs_unlock(jobs);
}

uint64_t lti_jobs_disk(lti_jobs *jobs)
{
    lti_jobs_lock(jobs);
    uint64_t sum = (uint64_t)jobs->tapes;
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

void lti_jobs_finish(lti_jobs *jobs, lti_job *j, int fd, int64_t bytes)
{
    lti_finisher_add(jobs->finisher, j, fd, bytes);
}

void lti_jobs_settle(lti_jobs *jobs)
{
    lti_finisher_destroy(&jobs->finisher);
}

const char *lti_job_disk_code(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? "disk_full" : "disk_failed";
}

void lti_job_started(lti_job *j)
{
    lti_jobs_put(j->srv->jobs, lti_record_small(LTI_RECORD_START, j->id), false);
}

void lti_job_ended(lti_job *j, lt_status why, const char *code, const char *message)
{
    lti_jobs *jobs = j->srv->jobs;
    json_t *record = NULL;
    const int64_t bytes = lti_jobs_size(jobs, j->id, "mp4"), disk = lti_jobs_whole(jobs, j->id);
    lti_jobs_lock(jobs);
    j->submitted = false;
    const bool wanted = !j->gone && !lti_job_is_over(j), done = wanted && !code && why == LT_END;
    const double stopped_at = j->stopped_at;
    if (done) {
        lti_job_set_over(j, LTI_JOB_COMPLETED, NULL, NULL);
        j->bytes = bytes;
        j->disk = disk;
        record = lti_record_end(j);
    } else if (wanted && code) {
        lti_job_set_over(j, LTI_JOB_FAILED, code, message);
        record = lti_record_end(j);
    } else if (wanted) {
        j->state = LTI_JOB_QUEUED;
        record = lti_record_small(LTI_RECORD_SUSPEND, j->id);
    }
    if (!done && !(wanted && !code)) j->disk = 0;
    lti_jobs_unlock(jobs);
    if (record) lti_jobs_put(jobs, record, false);
    if (done || !wanted || code) lti_jobs_remove_files(jobs, j->id, !done);
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
