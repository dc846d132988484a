/* snapshot.c: a session to a file and back.
 *
 *   head    what the file is of: version, model, options            read before anything is made (lt_snapshot_inspect)
 *   state   prompts, blocks with their keys and values, decoder     read into a session that was made from the head
 *   checksum
 *
 * Numbers are little-endian 64-bit words. What cannot be is refused where it is read; what was damaged all the same, by the checksum. */
#include "video/session_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t magic = 0x0a6e6f6973736573; /* "session\n" */
enum { VERSION = 6, MAX_LIST = 1024, MAX_WORD = 256 };

typedef struct head {
    char *family, *isa, *negative, *cache, *attention, *prompt, *present, *inject;
    uint64_t model;
    int32_t dtype;
    lt_session_options o; /* texts and list: the members here */
    float list[MAX_LIST];
    lt_snapshot_info info;
} head;

static void free_head(head *h)
{
    free(h->family);
    free(h->isa);
    free(h->negative);
    free(h->cache);
    free(h->attention);
    free(h->prompt);
    free(h->present);
    free(h->inject);
}

/* ---- head ---- */

static lt_status mark_state(lti_state *io)
{
    uint64_t word = magic;
    int32_t version = VERSION;
    LT_TRY(lti_state_bits(io, &word));
    if (word != magic) return lti_fail(io->ctx, LT_ERR_FORMAT, "is not a saved session");
    LT_TRY(lti_state_int32(io, "version", &version, 0, INT32_MAX));
    if (version == VERSION) return LT_OK;
    return lti_fail(io->ctx, LT_ERR_FORMAT,
                    "was saved by another build: its version is %d, this one reads %d", version,
                    VERSION);
}

static lt_status list_state(lti_state *io, head *h)
{
    LT_TRY(lti_state_int32(io, "step list", &h->o.step_list_len, 0, MAX_LIST));
    for (int32_t i = 0; i < h->o.step_list_len; i++) {
        double v = (double)h->list[i];
        LT_TRY(lti_state_real(io, "step", &v, 0, 1000));
        h->list[i] = (float)v;
    }
    h->o.step_list = h->o.step_list_len ? h->list : NULL;
    return LT_OK;
}

/* What these numbers may be together is for lt_session_validate to say. */
static lt_status options_state(lti_state *io, head *h)
{
    lt_session_options *o = &h->o;
    int32_t solver = (int32_t)o->solver, cfg = (int32_t)o->cfg_mode, drift = (int32_t)o->drift;
    LT_TRY(lti_state_text(io, "prompt", &h->prompt, LT_MAX_PROMPT_BYTES));
    LT_TRY(lti_state_text(io, "negative prompt", &h->negative, LT_MAX_PROMPT_BYTES));
    LT_TRY(lti_state_text(io, "cache", &h->cache, MAX_WORD));
    LT_TRY(lti_state_text(io, "attention", &h->attention, MAX_WORD));
    LT_TRY(lti_state_int32(io, "width", &o->width, 1, INT32_MAX));
    LT_TRY(lti_state_int32(io, "height", &o->height, 1, INT32_MAX));
    LT_TRY(lti_state_int32(io, "num_frames", &o->num_frames, 1, INT32_MAX));
    LT_TRY(lti_state_int32(io, "given frames", &o->given_frames, 0, INT32_MAX));
    LT_TRY(lti_state_int32(io, "fps", &o->fps, 1, INT32_MAX));
    LT_TRY(lti_state_int32(io, "steps", &o->num_inference_steps, 1, INT32_MAX));
    LT_TRY(lti_state_real(io, "guidance_scale", &o->guidance_scale, -1, 1e6));
    LT_TRY(lti_state_real(io, "flow_shift", &o->flow_shift, 0, 1e6));
    LT_TRY(lti_state_bits(io, &o->seed));
    LT_TRY(lti_state_int32(io, "solver", &solver, LT_SOLVER_EULER, LT_SOLVER_RENOISE));
    LT_TRY(lti_state_int32(io, "cfg_mode", &cfg, LT_CFG_AUTO, LT_CFG_SERIAL));
    LT_TRY(lti_state_int32(io, "drift", &drift, LT_DRIFT_OFF, LT_DRIFT_CORRECT));
    LT_TRY(lti_state_text(io, "inject", &h->inject, MAX_WORD));
    o->solver = (lt_solver)solver;
    o->cfg_mode = (lt_cfg_mode)cfg;
    o->drift = (lt_drift_mode)drift;
    o->solver_set = true;
    o->mode = LT_MODE_AR;
    LT_TRY(list_state(io, h));
    o->prompt = h->prompt;
    o->negative_prompt = h->negative;
    o->cache = h->cache;
    o->attention = h->attention;
    o->inject = h->inject;
    return LT_OK;
}

static lt_status head_state(lti_state *io, head *h)
{
    LT_TRY(mark_state(io));
    LT_TRY(lti_state_text(io, "family", &h->family, sizeof h->info.family - 1));
    LT_TRY(lti_state_bits(io, &h->model));
    LT_TRY(lti_state_int32(io, "type", &h->dtype, LT_F32, LT_BF16));
    LT_TRY(lti_state_text(io, "instruction set", &h->isa, MAX_WORD));
    LT_TRY(lti_state_text(io, "present prompt", &h->present, LT_MAX_PROMPT_BYTES));
    LT_TRY(lti_state_int(io, "next frame", &h->info.next_frame, 0, INT32_MAX));
    LT_TRY(lti_state_int(io, "block", &h->info.block, 0, INT64_MAX));
    LT_TRY(options_state(io, h));
    if (h->family && h->isa && h->present && h->prompt && h->negative) return LT_OK;
    return lti_fail(io->ctx, LT_ERR_FORMAT, "lacks a text");
}

/* ---- state ---- */

static lt_status move_host(void *user, void *data, size_t bytes)
{
    return lti_state_bytes(user, data, bytes);
}

static lt_status move_device(void *user, void *data, size_t bytes)
{
    return lti_state_device(user, data, bytes);
}

static lt_status report_state(lti_state *io, lt_session_report *r)
{
    const double most = 1e300;
    LT_TRY(lti_state_int(io, "blocks", &r->blocks, 0, INT64_MAX));
    LT_TRY(lti_state_real(io, "seconds", &r->total_seconds, 0, most));
    LT_TRY(lti_state_real(io, "seconds", &r->text_seconds, 0, most));
    LT_TRY(lti_state_real(io, "seconds", &r->denoise_seconds, 0, most));
    LT_TRY(lti_state_real(io, "seconds", &r->decode_seconds, 0, most));
    LT_TRY(lti_state_real(io, "seconds", &r->first_frame_seconds, 0, most));
    return lti_state_real(io, "operations", &r->vae_flops, 0, most);
}

static lt_status shown_state(lti_state *io, lt_frames *f)
{
    LT_TRY(lti_state_int(io, "block shown", &f->block, 0, INT64_MAX));
    LT_TRY(lti_state_real(io, "seconds of a block", &f->block_seconds, 0, 1e300));
    LT_TRY(lti_state_real(io, "density", &f->attention_density, 0, 2)); /* read twice: refresh */
    return lti_state_int32(io, "prompt shown", &f->prompt, 0, INT32_MAX);
}

/* Frames of a latent frame that has been decoded half way. */
static lt_status group_state(lti_state *io, lt_session *s)
{
    const int32_t most = s->m->config.info.frame_scale;
    LT_TRY(lti_state_bool(io, "a group is begun", &s->in_group));
    LT_TRY(lti_state_bool(io, "a given picture is not handed out", &s->lead));
    if (!s->in_group && !s->lead) return LT_OK;
    LT_TRY(lti_state_int32(io, "frames of the group", &s->group, 1, most));
    return lti_state_bytes(io, s->rgb,
                           (size_t)s->group * (size_t)s->o.width * (size_t)s->o.height * 3);
}

static lt_status after_prompts(lti_state *io, lt_session *s)
{
    const lt_vae_mover mover = {io, io->reading, move_host, move_device};
    LT_TRY(lti_rollout_state(s->rollout, io));
    const int32_t frames = lti_rollout_frames(s->rollout);
    LT_TRY(lti_state_int32(io, "frames handed out of the block", &s->used, 0, INT32_MAX));
    if (lti_rollout_drawn(s->rollout) && s->used > frames)
        return lti_fail(io->ctx, LT_ERR_FORMAT, "%d frames of %d are handed out", s->used, frames);
    LT_TRY(lti_state_int32(io, "latent frames handed out", &s->pushed, 0, INT32_MAX));
    LT_TRY(shown_state(io, &s->shown));
    s->shown.cache_bytes = s->report.cache_bytes;
    LT_TRY(group_state(io, s));
    if (io->reading && lti_rollout_drawn(s->rollout) && s->in_group && s->used == frames)
        return lti_fail(io->ctx, LT_ERR_FORMAT, "a group is begun behind the block's %d frames",
                        frames);
    LT_TRY(lt_vae_decoder_move(s->decoder, &mover));
    LT_TRY(lti_watch_state(s, io));
    return report_state(io, &s->report);
}

static lt_status negative_state(lti_state *io, lti_rows *rows, int32_t dim)
{
    LT_TRY(lti_state_int32(io, "rows of the negative prompt", &rows->n, 0, 4096));
    const size_t bytes = (size_t)rows->n * (size_t)dim * sizeof *rows->v;
    if (io->reading) rows->v = malloc(bytes + 1);
    if (!rows->v) return lti_fail(io->ctx, LT_ERR_MEM, "no memory for rows of text");
    return lti_state_bytes(io, rows->v, bytes);
}

static lt_status whole_state(lti_state *io, lt_session *s)
{
    LT_TRY(lti_prompts_state(&s->prompts, io));
    LT_TRY(negative_state(io, &s->negative_rows, s->prompts.dim));
    if (io->reading) {
        s->o.timeline = s->prompts.cue;
        s->o.cues = s->prompts.cues;
        if (s->o.guidance_scale > 1 && !s->negative_rows.n)
            return lti_fail(io->ctx, LT_ERR_FORMAT, "has guidance and no negative prompt");
        LT_TRY(lti_session_create_rollout(s, s->prompts.now, s->negative_rows));
        LT_TRY(lti_session_open_decoder(s));
    }
    return after_prompts(io, s);
}

/* ---- writing ---- */

static lt_status check_target(lt_ctx *ctx, const char *path, char *part, size_t size)
{
    struct stat st;
    const int n = snprintf(part, size, "%s.part", path);
    if (n < 0 || (size_t)n >= size)
        return lti_fail(ctx, LT_ERR_IO, "'%.80s...': the path is too long", path);
    if (!lstat(path, &st) && !S_ISREG(st.st_mode))
        return lti_fail(ctx, LT_ERR_IO, "'%s' is not a regular file and is not replaced", path);
    return LT_OK;
}

static lt_status check_saveable(const lt_session *s)
{
    if (s->o.mode != LT_MODE_AR)
        return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "only sessions of mode ar can be saved");
    const bool whole = s->state == LTI_SESSION_DECODE || s->state == LTI_SESSION_END ||
                       (s->state == LTI_SESSION_FAILED && s->failure == LT_ERR_CANCELLED);
    if (whole && s->rollout && s->decoder) return LT_OK;
    return lti_fail(s->ctx, LT_ERR_ARG, "a session that %s cannot be saved",
                    s->state == LTI_SESSION_FAILED && s->failure != LT_ERR_CANCELLED
                        ? "has failed"
                        : "has not drawn anything");
}

static lt_status write_state(lt_session *s, FILE *f)
{
    const lt_prompt_mark *last = &s->prompts.mark[s->prompts.marks - 1];
    char isa[64], present[LT_MAX_PROMPT_BYTES + 1];
    snprintf(isa, sizeof isa, "%s", lt_dev_isa(s->dev));
    snprintf(present, sizeof present, "%s", last->prompt);
    head h = {.family = s->m->config.info.family,
              .isa = isa,
              .negative = s->negative,
              .cache = s->cache ? s->cache : s->m->config.info.default_cache,
              .attention = s->attention_text,
              .prompt = s->prompt,
              .present = present,
              .inject = s->inject,
              .model = s->m->fingerprint,
              .dtype = (int32_t)s->m->dtype,
              .o = s->o};
    h.info.next_frame = lti_session_number(s, s->pushed);
    h.info.block = lti_rollout_block(s->rollout);
    if (h.o.step_list_len > MAX_LIST)
        return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "a list of %d steps", h.o.step_list_len);
    for (int32_t i = 0; i < h.o.step_list_len; i++)
        h.list[i] = s->o.step_list[i];
    lti_state io;
    LT_TRY(lti_state_begin(&io, s->ctx, s->dev, f, false, 0));
    lt_status st = head_state(&io, &h);
    if (st >= 0) st = whole_state(&io, s);
    if (st >= 0) st = lti_state_end(&io);
    lti_state_close(&io);
    return st;
}

lt_status lt_session_save(lt_session *s, const char *path)
{
    char part[PATH_MAX];
    LT_TRY(check_saveable(s));
    LT_TRY(check_target(s->ctx, path, part, sizeof part));
    const int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f) {
        const int why = errno;
        if (fd >= 0) close(fd);
        return lti_fail(s->ctx, LT_ERR_IO, "'%s' cannot be written: %s", part, strerror(why));
    }
    lt_status st = write_state(s, f);
    if (st >= 0 && fsync(fd))
        st = lti_fail(s->ctx, LT_ERR_IO, "cannot be written: %s", strerror(errno));
    if (fclose(f) && st >= 0)
        st = lti_fail(s->ctx, LT_ERR_IO, "cannot be written: %s", strerror(errno));
    if (st >= 0 && rename(part, path))
        st = lti_fail(s->ctx, LT_ERR_IO, "cannot be written: %s", strerror(errno));
    if (st >= 0) return LT_OK;
    unlink(part);
    return lti_within(s->ctx, st, "'%s'", path);
}

/* ---- reading ---- */

static lt_status open_file(FILE **out, uint64_t *bytes, lt_ctx *ctx, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *out = NULL;
    *bytes = 0;
    if (fd < 0 || fstat(fd, &st)) {
        const int why = errno;
        if (fd >= 0) close(fd);
        return lti_fail(ctx, LT_ERR_IO, "'%s': %s", path, strerror(why));
    }
    if (S_ISREG(st.st_mode)) *out = fdopen(fd, "rb");
    if (!*out) {
        close(fd);
        return lti_fail(ctx, LT_ERR_IO, "'%s' is not a regular file", path);
    }
    *bytes = (uint64_t)st.st_size;
    return LT_OK;
}

static void tell(const head *h, lt_snapshot_info *out, uint64_t bytes)
{
    *out = h->info;
    out->width = h->o.width;
    out->height = h->o.height;
    out->num_frames = h->o.num_frames;
    out->fps = h->o.fps;
    out->seed = h->o.seed;
    out->bytes = bytes;
    snprintf(out->family, sizeof out->family, "%s", h->family);
    snprintf(out->cache, sizeof out->cache, "%s", h->cache ? h->cache : "");
    snprintf(out->prompt, sizeof out->prompt, "%s", h->present);
}

lt_status lti_snapshot_read_head(lt_snapshot_info *out, lt_ctx *ctx, FILE *f, uint64_t bytes)
{
    head h = {0};
    lti_state io;
    LT_TRY(lti_state_begin(&io, ctx, NULL, f, true, bytes));
    const lt_status st = head_state(&io, &h);
    if (st >= 0) tell(&h, out, bytes);
    lti_state_close(&io);
    free_head(&h);
    return st;
}

lt_status lt_snapshot_inspect(lt_snapshot_info *out, lt_ctx *ctx, const char *path)
{
    FILE *f;
    uint64_t bytes;
    *out = (lt_snapshot_info){0};
    LT_TRY(open_file(&f, &bytes, ctx, path));
    const lt_status st = lti_snapshot_read_head(out, ctx, f, bytes);
    fclose(f);
    return st < 0 ? lti_within(ctx, st, "'%s'", path) : st;
}

static lt_status check_model(const lt_model *m, const head *h)
{
    if (strcmp(h->family, m->config.info.family) != 0 || h->model != m->fingerprint)
        return lti_fail(m->ctx, LT_ERR_ARG,
                        "is of another model: %s %016" PRIx64 ", this one is %s %016" PRIx64,
                        h->family, h->model, m->config.info.family, m->fingerprint);
    if (h->dtype != (int32_t)m->dtype)
        return lti_fail(m->ctx, LT_ERR_ARG,
                        "was computed in %s, this model in %s: choose --dtype %s",
                        lt_dtype_name((lt_dtype)h->dtype), lt_dtype_name(m->dtype),
                        lt_dtype_name((lt_dtype)h->dtype));
    if (strcmp(h->isa, lt_dev_isa(m->dev)) != 0)
        lti_log(m->ctx, LT_LOG_WARN, "event=session_of_other_kernels saved=%s here=%s", h->isa,
                lt_dev_isa(m->dev));
    return LT_OK;
}

/* They were good when they were written: what is wrong with them is the file's. */
static lt_status check_options(const lt_model *m, const head *h)
{
    lt_session_options o = h->o;
    const lt_status st = lt_session_validate(m->ctx, &m->config.info, &o);
    return st == LT_ERR_ARG ? lti_within(m->ctx, LT_ERR_FORMAT, "is damaged") : st;
}

static lt_status take_options(const lt_model *m, head *h, const lt_session_options *opt)
{
    if (!opt) return LT_OK;
    if (opt->num_frames) h->o.num_frames = opt->num_frames;
    h->o.memory_limit = opt->memory_limit;
    h->o.progress = opt->progress;
    h->o.progress_user = opt->progress_user;
    if (h->o.num_frames >= h->info.next_frame) return LT_OK;
    return lti_fail(m->ctx, LT_ERR_ARG, "num_frames %d: %" PRId64 " have been handed out already",
                    h->o.num_frames, h->info.next_frame);
}

static lt_status read_session(lt_session **out, lti_state *io, lt_model *m, head *h,
                              const lt_session_options *opt)
{
    LT_TRY(head_state(io, h));
    LT_TRY(check_model(m, h));
    LT_TRY(check_options(m, h));
    LT_TRY(take_options(m, h, opt));
    LT_TRY(lt_session_create(out, m, &h->o));
    LT_TRY(whole_state(io, *out));
    return lti_state_end(io);
}

/* As if it had been going on: the clock, and what the file's numbers mean for this length. */
static lt_status go_on(lt_session *s, int64_t next)
{
    if (next != lti_session_number(s, s->pushed) || s->pushed > s->frames)
        return lti_fail(s->ctx, LT_ERR_FORMAT, "%d latent frames are handed out, next is %" PRId64,
                        s->pushed, next);
    s->step_start = lti_now();
    s->start = s->step_start - s->report.total_seconds;
    s->state = s->pushed == s->frames ? LTI_SESSION_END : LTI_SESSION_DECODE;
    return LT_OK;
}

lt_status lti_snapshot_read(lt_session **out, lt_model *model, FILE *f, uint64_t bytes,
                            const lt_session_options *opt)
{
    head h = {0};
    lti_state io;
    *out = NULL;
    LT_TRY(lti_state_begin(&io, model->ctx, model->dev, f, true, bytes));
    lt_status st = read_session(out, &io, model, &h, opt);
    if (st >= 0) st = go_on(*out, h.info.next_frame);
    lti_state_close(&io);
    free_head(&h);
    if (st < 0) lt_session_destroy(out);
    return st;
}

lt_status lt_session_restore(lt_session **out, lt_model *model, const char *path,
                             const lt_session_options *opt)
{
    FILE *f;
    uint64_t bytes;
    *out = NULL;
    LT_TRY(open_file(&f, &bytes, model->ctx, path));
    const lt_status st = lti_snapshot_read(out, model, f, bytes, opt);
    fclose(f);
    return st < 0 ? lti_within(model->ctx, st, "'%s'", path) : st;
}
