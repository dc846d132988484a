/* work.c: a job on the device: draws, encodes, appends to ID.part, and saves the session now and then, so that the next server goes on
 * where this one stopped. What is in the part beyond the saved session is drawn again. */
#include "stream/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Saving takes at most this share of the time. */
#define SAVE_SHARE 0.05

typedef struct lti_draw {
    lt_model *model;
    lti_encoder *enc;
    int fd;             /* the part */
    int64_t end, first; /* bytes written; the frame that this run began with */
    bool streamed;      /* drawn block by block: can be saved */
    double saved_at, save_seconds;
    const char *code; /* why it failed, when a status does not say it */
} lti_draw;

static lti_job *job_of(lti_task *t)
{
    return (lti_job *)t;
}

static void path_of(const lti_job *j, const char *end, char out[LTI_JOB_PATH])
{
    lti_jobs_path(j->srv->jobs, j->id, end, out, LTI_JOB_PATH);
}

/* ---- the part ---- */

static lt_status disk_failed(lti_job *j, lt_ctx *ctx, int e)
{
    j->draw->code = lti_job_disk_code(e);
    return lti_fail(ctx, LT_ERR_IO, "the video cannot be written: %s", strerror(e));
}

static lt_status append(lti_job *j, lt_ctx *ctx, const uint8_t *data, size_t bytes)
{
    lti_draw *d = j->draw;
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(d->fd, data + done, bytes - done, (off_t)(d->end + (int64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return disk_failed(j, ctx, n ? errno : ENOSPC);
        done += (size_t)n;
    }
    d->end += (int64_t)bytes;
    return LT_OK;
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Where frame number `frames` begins, or would; -1: not all before it are there. *head: bytes before the first fragment. */
static int64_t find_frame(int fd, int64_t frames, int64_t *head)
{
    struct stat st;
    uint8_t box[8];
    int64_t at = 0, n = 0;
    *head = 0;
    if (fstat(fd, &st)) return -1;
    while (n < frames && pread(fd, box, sizeof box, (off_t)at) == sizeof box) {
        const int64_t size = be32(box);
        if (size < 8 || size > st.st_size - at) return -1;
        if (!*head && !memcmp(box + 4, "moof", 4)) *head = at;
        n += !memcmp(box + 4, "mdat", 4);
        at += size;
    }
    return n == frames && *head ? at : -1;
}

static lt_status open_part(lti_job *j, lt_ctx *ctx)
{
    char path[LTI_JOB_PATH];
    path_of(j, "part", path);
    j->draw->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return j->draw->fd < 0 ? disk_failed(j, ctx, errno) : LT_OK;
}

/* The beginning of the file; of one that is gone on with, the same as it has. LT_AGAIN: it is not. */
static lt_status put_beginning(lti_job *j, lt_ctx *ctx, lti_unit *first)
{
    lti_draw *d = j->draw;
    lti_hub_config c;
    LT_TRY(lti_live_configure(&c, ctx, j->srv, &j->options, first));
    lt_status s = LT_OK;
    if (!d->first) {
        s = append(j, ctx, c.init, c.init_bytes);
    } else {
        uint8_t *was = malloc(c.init_bytes);
        int64_t head;
        find_frame(d->fd, 1, &head);
        const bool same = was && head == (int64_t)c.init_bytes &&
                          pread(d->fd, was, c.init_bytes, 0) == (ssize_t)c.init_bytes &&
                          !memcmp(was, c.init, c.init_bytes);
        free(was);
        if (!same) s = LT_AGAIN;
    }
    free(c.init);
    return s;
}

static lt_status put_frame(lti_job *j, lt_ctx *ctx, const uint8_t *rgb, int64_t frame)
{
    lti_draw *d = j->draw;
    const double t = lti_now();
    lti_unit *u;
    lti_unit_info info = {.frame = frame};
    LT_TRY(lti_live_encoder_push(d->enc, rgb, false, &info, &u));
    lt_status s = frame == d->first ? put_beginning(j, ctx, u) : LT_OK;
    uint8_t *fragment = s == LT_OK ? malloc(lti_fmp4_bound(u->bytes)) : NULL;
    if (fragment)
        s = append(j, ctx, fragment,
                   lti_fmp4_fragment(fragment, lti_unit_payload(u), u->bytes, (uint32_t)frame + 1,
                                     frame, u->key));
    else if (s == LT_OK)
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for a frame");
    free(fragment);
    lti_unit_release(u);
    lti_observe(j->srv->metrics, LTI_TIME_ENCODE, lti_now() - t);
    lti_count(j->srv->metrics, LTI_COUNT_FRAMES_GENERATED, s == LT_OK);
    return s;
}

/* ---- beginning ---- */

static void note_progress(lti_job *j, double percent)
{
    lti_jobs_lock(j->srv->jobs);
    if (percent > j->progress) j->progress = fmin(percent, 99);
    lti_jobs_unlock(j->srv->jobs);
}

static void on_progress(void *user, const lt_progress *p)
{
    lti_job *j = user;
    if (p->phase != LT_PHASE_DENOISE || p->steps < 1) return;
    /* of a clip drawing is nearly all; of blocks the frames tell */
    if (!j->draw->streamed) note_progress(j, 90.0 * p->step / p->steps);
    if (p->step > 0) lti_observe(j->srv->metrics, LTI_TIME_STEP, p->step_seconds);
    lti_sched_yield(j->srv->sched, &j->task);
}

static void note_session(lti_job *j, lt_session *session)
{
    lti_jobs_lock(j->srv->jobs);
    j->session = session;
    if (session && (j->stopped_at > 0 || lti_jobs_ending(j->srv->jobs))) lt_session_cancel(session);
    lti_jobs_unlock(j->srv->jobs);
}

/* False: there is nothing to go on from; everything is as before. */
static bool go_on(lti_job *j, lt_model *model, lt_ctx *ctx)
{
    lti_draw *d = j->draw;
    char path[LTI_JOB_PATH];
    lt_snapshot_info info;
    lt_session *session = NULL;
    int64_t head;
    path_of(j, "session", path);
    if (!d->streamed || access(path, R_OK)) return false;
    if (lt_snapshot_inspect(&info, ctx, path) < 0 || info.next_frame < 1) return false;
    if (info.width != j->options.width || info.height != j->options.height ||
        info.num_frames != j->options.num_frames || info.fps != j->options.fps)
        return false;
    const int64_t end = find_frame(d->fd, info.next_frame, &head);
    const lt_session_options o = {.progress = on_progress, .progress_user = j};
    if (end < 0 || lt_session_restore(&session, model, path, &o) < 0) return false;
    if (ftruncate(d->fd, (off_t)end)) {
        lt_session_destroy(&session);
        return false;
    }
    d->first = info.next_frame;
    d->end = end;
    note_session(j, session);
    lti_jobs_lock(j->srv->jobs);
    j->made = info.next_frame;
    j->progress = j->progress_from = 99.0 * (double)j->made / j->options.num_frames;
    lti_jobs_unlock(j->srv->jobs);
    lti_count(j->srv->metrics, LTI_COUNT_JOBS_RESUMED, 1);
    lti_say(j->srv, LT_LOG_INFO, "job_resumed", "{s:s, s:I}", "job_id", j->id, "frame",
            (json_int_t)info.next_frame);
    return true;
}

static lt_status begin(lti_job *j, lt_model *model, lt_ctx *ctx)
{
    lti_draw *d = j->draw;
    char path[LTI_JOB_PATH];
    uint8_t *rgb = NULL;
    lt_session *session = NULL;
    lt_session_options o = j->options;
    d->first = d->end = 0;
    if (ftruncate(d->fd, 0)) return disk_failed(j, ctx, errno);
    path_of(j, "png", path);
    if (j->image && lt_picture_read(&rgb, ctx, path, o.width, o.height) < 0)
        return lti_fail(ctx, LT_ERR_IO, "the input reference cannot be read any more");
    o.image = rgb;
    o.progress = on_progress;
    o.progress_user = j;
    const lt_status s = lt_session_create(&session, model, &o);
    free(rgb);
    if (s == LT_OK) note_session(j, session);
    return s;
}

static lt_status open_encoder(lti_job *j, lt_ctx *ctx)
{
    const lt_session_options *o = &j->options;
    return lti_live_encoder_open(
        &j->draw->enc, ctx,
        &(lti_encoder_options){
            .width = o->width, .height = o->height, .fps = o->fps, .crf = j->request.crf});
}

static lt_status open_job(lti_task *t, lt_model *model, lt_ctx *ctx)
{
    lti_job *j = job_of(t);
    lti_draw *d = j->draw = calloc(1, sizeof *d);
    if (!d) return lti_fail(ctx, LT_ERR_MEM, "no memory for a job");
    d->model = model;
    d->fd = -1;
    d->streamed = j->options.mode == LT_MODE_AR;
    d->saved_at = lti_now();
    lti_jobs_lock(j->srv->jobs);
    j->began = lti_now();
    lti_jobs_unlock(j->srv->jobs);
    lti_job_started(j);
    LT_TRY(open_part(j, ctx));
    if (!go_on(j, model, ctx)) LT_TRY(begin(j, model, ctx));
    return open_encoder(j, ctx);
}

/* ---- drawing ---- */

/* What is on the disk must be all that the session thinks is done. A job that cannot be saved goes on. */
static void save(lti_job *j, lt_session *session)
{
    lti_draw *d = j->draw;
    char path[LTI_JOB_PATH];
    struct stat st;
    const double t = lti_now();
    path_of(j, "session", path);
    const bool ok = !fdatasync(d->fd) && lt_session_save(session, path) == LT_OK;
    d->saved_at = lti_now();
    d->save_seconds = d->saved_at - t;
    if (!ok)
        lti_say(j->srv, LT_LOG_WARN, "job_not_saved", "{s:s}", "job_id", j->id);
    else if (!stat(path, &st)) {
        lti_jobs_lock(j->srv->jobs);
        j->disk = d->end + st.st_size;
        lti_jobs_unlock(j->srv->jobs);
    }
}

static lt_status note_frames(lti_job *j, lt_ctx *ctx, const lt_frames *f)
{
    lti_draw *d = j->draw;
    const int64_t before = j->disk;
    lti_jobs_lock(j->srv->jobs);
    j->made = f->first + f->count;
    if (j->disk < d->end) j->disk = d->end;
    const double part = (double)j->made / j->options.num_frames;
    lti_jobs_unlock(j->srv->jobs);
    note_progress(j, d->streamed ? 99 * part : 90 + 9 * part);
    lti_observe(j->srv->metrics, LTI_TIME_DECODE, f->decode_seconds);
    if (f->first == d->first && f->first == 0)
        lti_observe(j->srv->metrics, LTI_TIME_BLOCK, f->block_seconds);
    lti_server_wake(j->srv); /* whoever reads it while it is made */
    if (j->disk > before && !lti_jobs_room(j->srv->jobs, 0)) {
        d->code = "disk_full";
        return lti_fail(ctx, LT_ERR_IO, "the room for videos on the disk is used up");
    }
    const double wait = fmax(j->srv->o.save_seconds, d->save_seconds / SAVE_SHARE);
    if (d->streamed && j->made < j->options.num_frames && lti_now() - d->saved_at >= wait)
        save(j, j->session);
    return LT_OK;
}

/* The encoder of another version would not fit what there is. */
static lt_status begin_again(lti_job *j, lt_ctx *ctx)
{
    lt_session *session = j->session;
    note_session(j, NULL);
    lt_session_destroy(&session);
    lti_live_encoder_close(&j->draw->enc);
    LT_TRY(begin(j, j->draw->model, ctx));
    return open_encoder(j, ctx);
}

static lt_status step(lti_task *t, lt_ctx *ctx)
{
    lti_job *j = job_of(t);
    lt_frames f;
    lt_status s = lt_session_next(j->session, &f);
    if (s != LT_OK) return s;
    const size_t bytes = (size_t)f.width * (size_t)f.height * 3;
    for (int32_t i = 0; i < f.count && s == LT_OK; i++)
        s = put_frame(j, ctx, f.rgb + (size_t)i * bytes, f.first + i);
    if (s == LT_AGAIN) return begin_again(j, ctx);
    return s < 0 ? s : note_frames(j, ctx, &f);
}

/* ---- the end ---- */

/* Words for a stranger: no paths of this machine. */
static const char *code_of(const lti_job *j, lt_status why)
{
    if (why == LT_END || why == LT_ERR_CANCELLED) return NULL;
    if (j->draw && j->draw->code) return j->draw->code;
    return why == LT_ERR_MEM       ? "out_of_memory"
           : why == LT_ERR_NUMERIC ? "generation_failed"
           : why == LT_ERR_IO      ? "disk_failed"
                                   : "generation_failed";
}

static void close_job(lti_task *t, lt_status why, const char *message)
{
    lti_job *j = job_of(t);
    lti_draw *d = j->draw;
    lt_session *session = j->session;
    lti_jobs_lock(j->srv->jobs);
    j->session = NULL;
    const bool stopped = j->stopped_at > 0;
    lti_jobs_unlock(j->srv->jobs);
    /* the server ends: what is drawn is kept for the next one */
    if (d && d->streamed && session && why == LT_ERR_CANCELLED && !stopped && j->made > d->first)
        save(j, session);
    lt_session_destroy(&session);
    const char *code = code_of(j, why);
    if (d) {
        lti_live_encoder_close(&d->enc);
        j->draw = NULL;
    }
    if (why == LT_END) { /* its reference goes with it */
        lti_jobs_finish(j->srv->jobs, j, d->fd, d->end);
        free(d);
        return;
    }
    if (d && d->fd >= 0) close(d->fd);
    free(d);
    lti_job_ended(j, why, code, message);
    atomic_store(&j->srv->job_over, true);
    lti_server_wake(j->srv);
    lti_job_release(j);
}

/* ---- what the scheduler asks ---- */

static double due(lti_task *t, double *wait)
{
    (void)t;
    (void)wait;
    return (double)INFINITY;
}

static double left(lti_task *t)
{
    lti_job *j = job_of(t);
    lti_jobs_lock(j->srv->jobs);
    const double done = j->progress - j->progress_from,
                 worked = j->began > 0 ? lti_now() - j->began : 0;
    const double s = done > 0 ? worked * (100 - j->progress) / done
                              : fmax((double)j->options.num_frames / j->options.fps, worked);
    lti_jobs_unlock(j->srv->jobs);
    return s;
}

static void moved(lti_task *t, int32_t position, double eta)
{
    (void)eta; /* told when it is asked for */
    lti_job *j = job_of(t);
    lti_jobs_lock(j->srv->jobs);
    j->position = position;
    const bool first = position < 0 && j->state == LTI_JOB_QUEUED;
    if (first) {
        j->state = LTI_JOB_RUNNING;
        j->began = lti_now();
    }
    lti_jobs_unlock(j->srv->jobs);
    if (first)
        lti_observe(j->srv->metrics, LTI_TIME_QUEUE_WAIT,
                    fmax(0, (double)(time(NULL) - (time_t)j->created)));
}

const lti_task_ops lti_job_ops = {
    .open = open_job, .step = step, .close = close_job, .due = due, .left = left, .moved = moved};
