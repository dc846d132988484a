/* job.c: one render, from settings to a finished file. The consumer of lt_session for `render` and `batch`. */
#include "examples/command.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* ---- before the model is loaded ---- */

/* The nearest 4k+1 frames. */
static int32_t frames_of(double seconds, int32_t fps, int32_t scale)
{
    const double groups = floor((seconds * fps - 1) / scale + 0.5);
    return 1 + scale * (int32_t)(groups < 0 ? 0 : groups);
}

static lt_status draw_seed(lt_ctx *ctx, uint64_t *seed)
{
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return lti_fail(ctx, LT_ERR_IO, "cannot draw a seed: %s", strerror(errno));
    *seed = bits; /* 32 bits: short enough to be typed again */
    return LT_OK;
}

static lt_status fill_options(lti_job *j)
{
    const lti_settings *s = j->set;
    lt_session_options *o = &j->opt;
    *o = lt_session_options_default();
    o->prompt = j->prompt;
    o->negative_prompt = s->negative_prompt;
    o->width = s->size.width;
    o->height = s->size.height;
    o->fps = s->fps ? s->fps : j->info->default_fps;
    o->num_frames = s->num_frames;
    if (!s->num_frames && s->seconds > 0)
        o->num_frames = frames_of(s->seconds, o->fps, j->info->frame_scale);
    o->num_inference_steps = s->num_inference_steps;
    o->guidance_scale = s->guidance_scale;
    o->flow_shift = s->flow_shift;
    o->attention = s->attention;
    o->cache = s->cache;
    if (s->mode >= 0) o->mode = s->mode == LTI_MODE_AR ? LT_MODE_AR : LT_MODE_CLIP;
    if (s->sampler >= 0) {
        o->solver = (lt_solver)s->sampler;
        o->solver_set = true;
    }
    o->progress = lti_progress_show;
    o->progress_user = j->progress;
    o->seed = s->seed.value;
    return s->seed.set ? LT_OK : draw_seed(j->ctx, &o->seed);
}

lt_status lti_job_prepare(lti_job *j)
{
    const bool empty = !j->prompt[strspn(j->prompt, " \t\r\n")];
    if (empty || !lti_utf8_valid(j->prompt))
        return lti_fail(j->ctx, LT_ERR_ARG, "prompt: %s",
                        empty ? "the text is empty" : "not valid UTF-8");
    LT_TRY(fill_options(j));
    LT_TRY(lt_session_validate(j->ctx, j->info, &j->opt));
    if (j->set->image) {
        if (!j->info->frame_timesteps)
            return lti_fail(j->ctx, LT_ERR_UNSUPPORTED,
                            "--image: the model (%s) takes no first frame", j->info->family);
        LT_TRY(lt_picture_read(&j->image, j->ctx, j->set->image, j->opt.width, j->opt.height));
        j->opt.image = j->image;
    }
    LT_TRY(lt_session_estimate(&j->estimate, j->ctx, j->model, &j->opt));
    const double gib = 1 << 30;
    const lt_estimate *e = &j->estimate;
    if (e->available && e->total_peak > e->available)
        return lti_fail(j->ctx, LT_ERR_MEM,
                        "it would take %.2f GiB (weights %.2f, text %.2f, latent %.2f, activation "
                        "%.2f, vae %.2f) and %.2f GiB are free: "
                        "choose a smaller --size or --num-frames",
                        (double)e->total_peak / gib, (double)e->weights / gib,
                        (double)e->text / gib, (double)e->latent / gib, (double)e->activation / gib,
                        (double)e->vae / gib, (double)e->available / gib);
    j->params = lti_params_json(j);
    return j->params ? LT_OK : lti_fail(j->ctx, LT_ERR_MEM, "no memory for the parameters");
}

enum { MAX_METADATA = 32 };

lt_status lti_job_create_file(lti_job *j, bool overwrite)
{
    lt_key_value entries[MAX_METADATA];
    json_t *store = json_array();
    if (!store) return lti_fail(j->ctx, LT_ERR_MEM, "no memory for the file's metadata");
    lt_writer_options w = lt_writer_options_default();
    w.path = j->output;
    w.width = j->opt.width;
    w.height = j->opt.height;
    w.fps_num = j->opt.fps;
    w.codec = (lt_codec)j->set->codec;
    w.crf = j->set->crf;
    w.overwrite = overwrite;
    w.metadata = entries;
    lt_status s =
        lti_params_metadata(j->ctx, j->params, entries, MAX_METADATA, &w.nmetadata, store);
    if (s == LT_OK) s = lt_writer_create(&j->writer, j->ctx, &w);
    if (s == LT_OK) lti_interrupt_output(j->interrupt, j->output);
    json_decref(store);
    return s;
}

void lti_job_describe(const lti_job *j, char *text, size_t size)
{
    const lt_session_options *o = &j->opt;
    int n = snprintf(text, size, "%dx%d, %d frames at %d fps (%.2f s)", o->width, o->height,
                     o->num_frames, o->fps, (double)o->num_frames / o->fps);
    if (j->set->seconds > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n,
                      j->set->num_frames ? " [--num-frames wins over --seconds %g]"
                                         : " [asked for %g s]",
                      j->set->seconds);
    if ((size_t)n < size)
        snprintf(text + n, size - (size_t)n,
                 ", %d steps of %s, guidance %g, shift %g, seed %" PRIu64, o->num_inference_steps,
                 lt_solver_name(o->solver), o->guidance_scale, o->flow_shift, o->seed);
}

/* ---- the run ---- */

static lt_status write_frames(lti_job *j, const lt_frames *f)
{
    const size_t bytes = (size_t)f->width * (size_t)f->height * 3;
    for (int32_t i = 0; i < f->count; i++) {
        const uint8_t *rgb = f->rgb + (size_t)i * bytes;
        LT_TRY(lt_writer_push(j->writer, rgb));
        if (!j->set->frames_dir) continue;
        char path[4200];
        snprintf(path, sizeof path, "%s/%06" PRId64 ".png", j->set->frames_dir, f->first + i);
        LT_TRY(lt_picture_write(j->ctx, path, rgb, f->width, f->height));
    }
    return LT_OK;
}

static lt_status pull(lti_job *j, lt_session *session)
{
    lt_status s;
    lt_frames f;
    while ((s = lt_session_next(session, &f)) == LT_OK)
        LT_TRY(write_frames(j, &f));
    return s == LT_END ? LT_OK : s;
}

/* Gives the file its name: the one that was asked for, or one that says it is not all. */
static lt_status finish(lti_job *j, bool cancelled)
{
    j->frames = lt_writer_frames(j->writer);
    if (!cancelled) {
        LT_TRY(lt_writer_finish(j->writer));
        j->made = j->output;
        return LT_OK;
    }
    if (j->frames) LT_TRY(lt_writer_finish_partial(j->writer, &j->made));
    return lti_fail(j->ctx, LT_ERR_CANCELLED, "stopped after %" PRId64 " of %d frames", j->frames,
                    j->opt.num_frames);
}

lt_status lti_job_run(lti_job *j, lt_model *model)
{
    lt_session *session;
    LT_TRY(lt_session_create(&session, model, &j->opt));
    lti_interrupt_watch(j->interrupt, session);
    lt_status s = pull(j, session);
    lti_interrupt_watch(j->interrupt, NULL);
    lti_progress_clear(j->progress);
    lt_session_get_report(session, &j->report);
    lt_session_destroy(&session);
    if (s == LT_OK || s == LT_ERR_CANCELLED) s = finish(j, s == LT_ERR_CANCELLED);
    return s;
}

void lti_job_close(lti_job *j)
{
    if (j->writer) lti_interrupt_output(j->interrupt, NULL);
    lt_writer_destroy(&j->writer);
    free(j->image);
    json_decref(j->params);
    j->image = NULL;
    j->params = NULL;
}
