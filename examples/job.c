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

/* The nearest 4k+1 frames; 4k of those that continue a video. */
int32_t lti_frames_of(double seconds, int32_t fps, int32_t scale, bool more)
{
    const double groups = floor((seconds * fps - !more) / scale + 0.5);
    if (more) return scale * (int32_t)(groups < 1 ? 1 : groups);
    return 1 + scale * (int32_t)(groups < 0 ? 0 : groups);
}

static void fill_mode(const lti_job *j, lt_session_options *o)
{
    static const lt_mode modes[] = {[LTI_MODE_CLIP] = LT_MODE_CLIP,
                                    [LTI_MODE_AR] = LT_MODE_AR,
                                    [LTI_MODE_EXTEND] = LT_MODE_EXTEND};
    const lti_settings *s = j->set;
    if (s->mode.word >= 0)
        o->mode = modes[s->mode.word];
    else if (s->video) /* which a clip cannot go on with */
        o->mode = j->info->causal ? LT_MODE_AR : LT_MODE_EXTEND;
    o->extend = s->mode.keys;
    o->given_frames = s->video ? 1 : 0; /* at least: known when it has been read */
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
    if (s->seconds > 0)
        o->num_frames = lti_frames_of(s->seconds, o->fps, j->info->frame_scale, s->video != NULL);
    o->num_inference_steps = s->num_inference_steps;
    o->guidance_scale = s->guidance_scale;
    o->flow_shift = s->flow_shift;
    o->attention = s->attention;
    o->cache = s->cache;
    if (s->drift >= 0) o->drift = (lt_drift_mode)s->drift;
    o->inject = s->inject;
    o->timeline = j->cues.cue;
    o->cues = j->cues.count;
    fill_mode(j, o);
    if (s->sampler >= 0) {
        o->solver = (lt_solver)s->sampler;
        o->solver_set = true;
    }
    o->progress = lti_progress_show;
    o->progress_user = j->progress;
    o->seed = s->seed.value;
    return s->seed.set ? LT_OK : draw_seed(j->ctx, &o->seed);
}

static lt_status check_prompt(const lti_job *j)
{
    if (!j->prompt) return LT_OK;
    const bool empty = !j->prompt[strspn(j->prompt, " \t\r\n")];
    if (!empty && lti_utf8_valid(j->prompt)) return LT_OK;
    return lti_fail(j->ctx, LT_ERR_ARG, "prompt: %s",
                    empty ? "the text is empty" : "not valid UTF-8");
}

static void tell_blocks(lti_job *j)
{
    if (!j->progress) return;
    j->progress->blocks = j->opt.mode == LT_MODE_AR;
    j->progress->from = 0;
}

/* The first prompt may stand beside the others, or among them; as a finished file says it, it does both. */
static lt_status read_cues(lti_job *j)
{
    const char *file = j->set->prompt_file, *name = file ? file : "timeline";
    if (j->timeline && file)
        return lti_fail(j->ctx, LT_ERR_ARG, "timeline: there is a prompt_file '%.200s' too", file);
    if (file)
        LT_TRY(lti_cues_read(&j->cues, j->ctx, file));
    else if (j->timeline)
        LT_TRY(lti_cues_take(&j->cues, j->ctx, j->timeline));
    const lt_cue *first = j->cues.cue;
    const bool begins = first && first->frame == 0 && first->seconds == 0;
    if (!j->prompt && !begins)
        return lti_fail(j->ctx, LT_ERR_ARG,
                        "the first prompt is missing: '%.200s' has none for the beginning", name);
    if (!j->prompt || !begins || !strcmp(j->prompt, first->prompt)) return LT_OK;
    return lti_fail(j->ctx, LT_ERR_ARG,
                    "the first prompt is given twice: '%.80s', and in '%.200s' '%.80s'", j->prompt,
                    name, first->prompt);
}

lt_status lti_job_prepare(lti_job *j)
{
    LT_TRY(check_prompt(j));
    LT_TRY(read_cues(j));
    LT_TRY(fill_options(j));
    LT_TRY(lt_session_validate(j->ctx, j->info, &j->opt));
    tell_blocks(j);
    if (j->set->image) {
        LT_TRY(lt_picture_read(&j->image, j->ctx, j->set->image, j->opt.width, j->opt.height));
        j->opt.image = j->image;
    }
    if (j->set->video) LT_TRY(lti_given_read(j));
    LT_TRY(lt_session_estimate(&j->estimate, j->ctx, j->model, &j->opt));
    j->params = lti_params_json(j);
    return j->params ? LT_OK : lti_fail(j->ctx, LT_ERR_MEM, "no memory for the parameters");
}

lt_status lti_job_resume(lti_job *j, lt_model *model)
{
    const lti_settings *s = j->set;
    lt_snapshot_info info;
    LT_TRY(check_prompt(j));
    LT_TRY(lt_snapshot_inspect(&info, j->ctx, s->resume));
    lt_session_options *o = &j->opt;
    *o = lt_session_options_default();
    o->num_frames = s->num_frames;
    if (s->seconds > 0)
        o->num_frames = lti_frames_of(s->seconds, info.fps, j->info->frame_scale,
                                      info.num_frames % j->info->frame_scale == 0);
    if ((o->num_frames ? o->num_frames : info.num_frames) <= info.next_frame)
        return lti_fail(j->ctx, LT_ERR_ARG,
                        "'%s' has %" PRId64 " frames already: say how long the whole video shall "
                        "be (--seconds, --num-frames)",
                        s->resume, info.next_frame);
    o->progress = lti_progress_show;
    o->progress_user = j->progress;
    LT_TRY(lt_session_restore(&j->session, model, s->resume, o));
    lt_session_get_options(j->session, o);
    tell_blocks(j);
    j->first = info.next_frame;
    if (j->prompt && lt_session_prompt(j->session, j->prompt, 0) < 0)
        return lti_fail(j->ctx, LT_ERR_ARG, "'%.80s' cannot be a prompt", j->prompt);
    j->params = lti_params_json(j);
    return j->params ? LT_OK : lti_fail(j->ctx, LT_ERR_MEM, "no memory for the parameters");
}

enum { MAX_METADATA = 40 };

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
    if (s == LT_OK) {
        lti_interrupt_hold(j->interrupt);
        s = lt_writer_create(&j->writer, j->ctx, &w);
        lti_interrupt_release(j->interrupt, s == LT_OK ? j->output : NULL);
    }
    json_decref(store);
    return s;
}

void lti_job_describe(const lti_job *j, char *text, size_t size)
{
    const lt_session_options *o = &j->opt;
    int n = snprintf(text, size, "%dx%d, %d frames at %d fps (%.2f s)", o->width, o->height,
                     o->num_frames, o->fps, (double)o->num_frames / o->fps);
    if (j->set->seconds > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " [asked for %g s]", j->set->seconds);
    if (j->set->video && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n,
                      " after %" PRId64 " of '%s' (%.4g a second there), the last %d seen",
                      j->video_frames, lti_base_name(j->set->video), j->video_fps, o->given_frames);
    if ((size_t)n < size)
        snprintf(text + n, size - (size_t)n,
                 ", %d steps of %s, guidance %g, shift %g, seed %" PRIu64, o->num_inference_steps,
                 lt_solver_name(o->solver), o->guidance_scale, o->flow_shift, o->seed);
}

/* ---- the run ---- */

lt_status lti_job_write(lti_job *j, const uint8_t *rgb, int64_t n)
{
    LT_TRY(lt_writer_push(j->writer, rgb));
    if (!j->set->frames_dir) return LT_OK;
    char path[4200];
    snprintf(path, sizeof path, "%s/%06" PRId64 ".png", j->set->frames_dir, n);
    return lt_picture_write(j->ctx, path, rgb, j->opt.width, j->opt.height);
}

static lt_status write_frames(lti_job *j, const lt_frames *f)
{
    const size_t bytes = (size_t)f->width * (size_t)f->height * 3;
    for (int32_t i = 0; i < f->count; i++)
        LT_TRY(lti_job_write(j, f->rgb + (size_t)i * bytes, j->before + f->first + i));
    return LT_OK;
}

static lt_status pull(lti_job *j, lt_session *session)
{
    lt_status s;
    lt_frames f;
    while ((s = lt_session_next(session, &f)) == LT_OK) {
        if (j->pace.drawing) lti_pace_add(&j->pace, &f, j->dev);
        LT_TRY(write_frames(j, &f));
        if (j->drift) lti_drift_collect(j->drift, session);
    }
    return s == LT_END ? LT_OK : s;
}

/* What took effect when is known now. */
static lt_status write_prompts(lti_job *j)
{
    if (j->opt.mode != LT_MODE_AR) return LT_OK;
    char *text = json_dumps(j->prompts, JSON_COMPACT | JSON_REAL_PRECISION(9));
    const lt_status s = text ? lt_writer_describe(j->writer, "prompts", text)
                             : lti_fail(j->ctx, LT_ERR_MEM, "no memory for the prompts");
    free(text);
    return s;
}

/* Of every vector its frame, level, kind, action and gain; of a long video the last ones. */
static lt_status write_drift(lti_job *j)
{
    enum { MOST = 1000 };
    if (!j->drift) return LT_OK;
    const size_t n = json_array_size(j->drift);
    json_t *rows = json_array();
    for (size_t i = n > MOST ? n - MOST : 0; i < n; i++) {
        const json_t *v = json_array_get(j->drift, i);
        json_array_append_new(rows,
                              json_pack("[O,O,O,O,O]", json_object_get(v, "frame"),
                                        json_object_get(v, "level"), json_object_get(v, "kind"),
                                        json_object_get(v, "action"), json_object_get(v, "gain")));
    }
    json_t *summary = lti_drift_summary(&j->report);
    json_object_del(summary, "seconds"); /* the same render gives the same bytes */
    json_t *all = json_pack("{s:o, s:o}", "summary", summary, "vectors", rows);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(4)) : NULL;
    json_decref(all);
    const lt_status s = text ? lt_writer_describe(j->writer, "drift_report", text)
                             : lti_fail(j->ctx, LT_ERR_MEM, "no memory for what the monitor said");
    free(text);
    return s;
}

/* Gives the file its name: the one that was asked for, or one that says it is not all. */
static lt_status finish(lti_job *j, bool cancelled)
{
    j->frames = lt_writer_frames(j->writer);
    LT_TRY(write_prompts(j));
    LT_TRY(write_drift(j));
    if (!cancelled) {
        LT_TRY(lt_writer_finish(j->writer));
        j->made = j->output;
        return LT_OK;
    }
    if (j->frames) LT_TRY(lt_writer_finish_partial(j->writer, &j->made));
    return lti_fail(j->ctx, LT_ERR_CANCELLED, "stopped after %" PRId64 " of %" PRId64 " frames",
                    j->frames, j->before + j->opt.num_frames - j->first);
}

/* A session that was stopped before it drew anything has nothing to go on with. */
static lt_status save(lti_job *j, bool cancelled)
{
    if (!j->set->save_session) return LT_OK;
    const lt_status s = lt_session_save(j->session, j->set->save_session);
    j->saved = s == LT_OK;
    return cancelled && s == LT_ERR_ARG ? LT_OK : s;
}

/* Both have failed, or one. */
static lt_status join(lti_job *j, lt_status s, const char *why, lt_status then)
{
    char next[512];
    snprintf(next, sizeof next, "%s", lt_error(j->ctx));
    if (then >= 0) return lti_fail(j->ctx, s, "%s", why);
    if (!strncmp(next, why, strlen(why))) return lti_fail(j->ctx, s, "%s", next);
    return lti_fail(j->ctx, s, "%s; %s", why, next);
}

/* What has been made when something fails may have cost hours. */
static lt_status keep_frames(lti_job *j, lt_status s)
{
    char why[512];
    const char *made;
    j->frames = lt_writer_frames(j->writer);
    if (!j->frames) return s;
    snprintf(why, sizeof why, "%s", lt_error(j->ctx));
    const lt_status kept = lt_writer_finish_partial(j->writer, &made);
    if (kept < 0) return join(j, s, why, kept);
    j->made = made;
    return lti_fail(j->ctx, s, "%s; the first %" PRId64 " frames are in '%s'", why, j->frames,
                    made);
}

lt_status lti_job_run(lti_job *j, lt_model *model)
{
    if (!j->session) LT_TRY(lt_session_create(&j->session, model, &j->opt));
    if (j->opt.drift != LT_DRIFT_OFF) j->drift = json_array();
    if (j->opt.mode != LT_MODE_CLIP) /* a block has at least one latent frame */
        LT_TRY(lti_pace_open(&j->pace, j->ctx, j->opt.num_frames / j->info->frame_scale + 1));
    free(j->given); /* copied */
    j->given = NULL;
    j->opt.given = NULL;
    lti_interrupt_watch(j->interrupt, j->session);
    lt_status s = j->set->video && !j->set->new_only ? lti_given_write(j) : LT_OK;
    if (s == LT_OK) s = pull(j, j->session);
    lti_interrupt_watch(j->interrupt, NULL);
    lti_progress_clear(j->progress);
    lt_session_get_report(j->session, &j->report);
    j->prompts = lti_marks_json(j->session, j->opt.fps);
    for (size_t i = 0; j->before && i < json_array_size(j->prompts); i++) {
        json_t *m = json_array_get(j->prompts, i);
        const json_int_t frame = json_integer_value(json_object_get(m, "frame"));
        json_object_set_new(m, "file_frame", json_integer(j->before + frame));
    }
    const bool cancelled = s == LT_ERR_CANCELLED;
    if (s != LT_OK && !cancelled) return keep_frames(j, s);
    char why[512];
    const lt_status saved = save(j, cancelled);
    if (saved < 0) snprintf(why, sizeof why, "%s", lt_error(j->ctx)); /* finishing has its own */
    const lt_status finished = finish(j, cancelled);
    return saved < 0 ? join(j, saved, why, cancelled ? LT_OK : finished) : finished;
}

void lti_job_close(lti_job *j)
{
    if (j->writer) { /* a second signal must not end the program before the part is gone */
        lti_interrupt_hold(j->interrupt);
        lt_writer_destroy(&j->writer);
        lti_interrupt_release(j->interrupt, NULL);
    }
    free(j->image);
    free(j->given);
    json_decref(j->params);
    json_decref(j->prompts);
    json_decref(j->drift);
    lti_pace_close(&j->pace);
    lt_session_destroy(&j->session);
    lti_cues_free(&j->cues);
    j->image = j->given = NULL;
    j->params = j->prompts = j->drift = NULL;
}
