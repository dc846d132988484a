/* finish.c: what is drawn becomes a file that plays everywhere, beside the device: the index first, a thumbnail, a sheet of pictures.
 * A thread of its own, one job at a time, in the order of their ends. */
#include "stream/jobs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a sheet: tiles in a row, tiles at most, the wider side of one. */
enum { COLUMNS = 5, MAX_TILES = 25, TILE = 160 };

struct lti_finisher {
    lti_thread thread;
    lti_job *first, **last; /* {lock} */
    bool quit;              /* {lock} */
};

static void path_of(const lti_job *j, const char *end, char out[LTI_JOB_PATH])
{
    lti_jobs_path(j->srv->jobs, j->id, end, out, LTI_JOB_PATH);
}

/* ---- pictures of it ---- */

/* A picture as a JPEG that says what it is, in the file ID.END. */
static lt_status put_jpeg(lti_job *j, lt_ctx *ctx, const char *end, const uint8_t *rgb,
                          int32_t width, int32_t height)
{
    char path[LTI_JOB_PATH];
    lti_encoder *enc;
    lti_unit *u = NULL;
    const lti_unit_info info = {.frame = 0};
    const lti_encoder_options o = {
        .width = width, .height = height, .fps = 1, .pictures_only = true};
    path_of(j, end, path);
    LT_TRY(lti_live_encoder_open(&enc, ctx, &o));
    lt_status s = lti_live_encoder_jpeg(enc, rgb, &info, &u);
    lti_live_encoder_close(&enc);
    LT_TRY(s);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool ok =
        fd >= 0 && write(fd, lti_unit_payload(u), u->bytes) == (ssize_t)u->bytes && !fsync(fd);
    if (!ok) s = lti_fail(ctx, LT_ERR_IO, "a picture cannot be written: %s", strerror(errno));
    if (fd >= 0) close(fd);
    if (!ok) unlink(path);
    lti_unit_release(u);
    return s;
}

static lt_status put_thumbnail(lti_job *j, lt_ctx *ctx, const char *video)
{
    const lt_session_options *o = &j->options;
    uint8_t *rgb;
    LT_TRY(lt_picture_read(&rgb, ctx, video, o->width, o->height));
    const lt_status s = put_jpeg(j, ctx, "jpg", rgb, o->width, o->height);
    free(rgb);
    return s;
}

static int32_t even(double x)
{
    return 2 * (int32_t)fmax(1, floor(x / 2 + 0.5));
}

/* Pictures at even distances, row by row; what is left of the last row is black. */
static lt_status put_sheet(lti_job *j, lt_ctx *ctx, const char *video)
{
    const lt_session_options *o = &j->options;
    const int32_t n = o->num_frames < MAX_TILES ? o->num_frames : MAX_TILES;
    const int32_t columns = n < COLUMNS ? n : COLUMNS, rows = (n + columns - 1) / columns;
    const double scale = fmin(1, (double)TILE / (o->width > o->height ? o->width : o->height));
    const int32_t w = even(o->width * scale), h = even(o->height * scale);
    const size_t row = (size_t)columns * (size_t)w * 3;
    uint8_t *sheet = calloc((size_t)rows * (size_t)h, row);
    if (!sheet) return lti_fail(ctx, LT_ERR_MEM, "no memory for a sheet of pictures");
    lt_reader *r = NULL;
    const lt_reader_options from = {
        .path = video, .width = w, .height = h, .fps = (double)n * o->fps / o->num_frames};
    lt_status s = lt_reader_create(&r, ctx, &from);
    for (int32_t k = 0; k < n && s == LT_OK; k++) {
        const uint8_t *rgb;
        uint8_t *at =
            sheet + (size_t)(k / columns) * (size_t)h * row + (size_t)(k % columns * w) * 3;
        s = lt_reader_next(r, &rgb);
        for (int32_t y = 0; y < h && s == LT_OK; y++)
            memcpy(at + (size_t)y * row, rgb + (size_t)y * (size_t)w * 3, (size_t)w * 3);
    }
    lt_reader_destroy(&r);
    if (s >= 0) s = put_jpeg(j, ctx, "sheet", sheet, columns * w, rows * h);
    free(sheet);
    return s;
}

/* ---- the file ---- */

/* Of a copy: the counts of JSON values are a thread's own. NULL: no memory. */
static AVDictionary *metadata_of(const lti_job *j)
{
    enum { MAX_METADATA = 32 };
    lt_key_value meta[MAX_METADATA];
    AVDictionary *dict = NULL;
    json_t *store = json_array(), *params = json_deep_copy(j->params);
    const int32_t n = store && params ? lti_video_metadata(params, meta, MAX_METADATA, store) : 0;
    for (int32_t i = 0; i < n; i++)
        if (av_dict_set(&dict, meta[i].key, meta[i].value, 0) < 0) av_dict_free(&dict);
    json_decref(store);
    json_decref(params);
    return dict;
}

/* The index goes to the front; where there is no room for a second copy, the fragments are the video. False: errno tells. */
static bool complete(lti_job *j, lt_ctx *ctx)
{
    char part[LTI_JOB_PATH], final[LTI_JOB_PATH], video[LTI_JOB_PATH];
    path_of(j, "part", part);
    path_of(j, "final", final);
    path_of(j, "mp4", video);
    if (fsync(j->part)) return false;
    AVDictionary *dict = metadata_of(j);
    const bool ok = dict && lti_jobs_room(j->srv->jobs, (uint64_t)j->part_bytes) &&
                    lti_remux(ctx, part, final, (AVRational){j->options.fps, 1}, dict) == LT_OK;
    av_dict_free(&dict);
    if (!ok) lti_say(j->srv, LT_LOG_WARN, "job_not_remuxed", "{s:s}", "job_id", j->id);
    const char *whole = ok ? final : part;
    if (put_thumbnail(j, ctx, whole) < 0 || put_sheet(j, ctx, whole) < 0)
        lti_say(j->srv, LT_LOG_WARN, "job_not_pictured", "{s:s, s:s}", "job_id", j->id, "message",
                lt_error(ctx));
    if (rename(whole, video)) return false;
    /* the name is on the disk before the journal says so, where that is possible */
    (void)fsync(j->srv->jobs->dir);
    return true;
}

static void finish(lti_job *j, lt_ctx *ctx)
{
    char message[256] = "";
    const bool ok = complete(j, ctx);
    const int e = ok ? 0 : errno;
    if (!ok) snprintf(message, sizeof message, "the video cannot be written: %s", strerror(e));
    close(j->part);
    lti_job_ended(j, ok ? LT_END : LT_ERR_IO, ok ? NULL : lti_job_disk_code(e), message);
    atomic_store(&j->srv->job_over, true);
    lti_server_wake(j->srv);
    lti_job_release(j);
}

/* ---- the thread ---- */

static void *run(void *arg)
{
    lti_finisher *f = arg;
    for (;;) {
        pthread_mutex_lock(&f->thread.lock);
        while (!f->first && !f->quit)
            pthread_cond_wait(&f->thread.changed, &f->thread.lock);
        lti_job *j = f->first;
        if (j) f->first = j->finish_next;
        if (!f->first) f->last = &f->first;
        pthread_mutex_unlock(&f->thread.lock);
        if (!j) return NULL;
        finish(j, f->thread.ctx);
    }
}

void lti_finisher_add(lti_finisher *f, lti_job *j, int fd, int64_t bytes)
{
    j->part = fd;
    j->part_bytes = bytes;
    j->finish_next = NULL;
    pthread_mutex_lock(&f->thread.lock);
    *f->last = j;
    f->last = &j->finish_next;
    pthread_cond_signal(&f->thread.changed);
    pthread_mutex_unlock(&f->thread.lock);
}

lt_status lti_finisher_create(lti_finisher **out, lt_ctx *ctx)
{
    lti_finisher *f = *out = calloc(1, sizeof *f);
    if (!f) return lti_fail(ctx, LT_ERR_MEM, "no memory for jobs");
    f->last = &f->first;
    const lt_status s = lti_thread_start(&f->thread, ctx, run, f);
    if (s == LT_OK) return LT_OK;
    free(f);
    *out = NULL;
    return s;
}

void lti_finisher_destroy(lti_finisher **finisher)
{
    lti_finisher *f = finisher ? *finisher : NULL;
    if (!f) return;
    pthread_mutex_lock(&f->thread.lock);
    f->quit = true;
    pthread_cond_signal(&f->thread.changed);
    pthread_mutex_unlock(&f->thread.lock);
    lti_thread_free(&f->thread);
    free(f);
    *finisher = NULL;
}
