/* cmd_render.c: longtake render PROMPT -o out.mp4 */
#include "examples/command.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "render PROMPT -o FILE.mp4 [options]\n\n"
    "Makes a video from a text. The file appears under its name when it is complete; Ctrl-C keeps\n"
    "what is done as FILE.partial.mp4, and with --save-session where to go on.";

/* What the saved session has decided. */
static lt_status check_resumed(lt_ctx *ctx, const lti_settings *s)
{
    const struct {
        const char *name;
        bool given;
    } fixed[] = {{"size", s->size.width != 0},
                 {"fps", s->fps != 0},
                 {"num-inference-steps", s->num_inference_steps != 0},
                 {"guidance-scale", s->guidance_scale >= 0},
                 {"flow-shift", s->flow_shift > 0},
                 {"sampler", s->sampler >= 0},
                 {"seed", s->seed.set},
                 {"negative-prompt", s->negative_prompt != NULL},
                 {"image", s->image != NULL},
                 {"video", s->video != NULL},
                 {"mode", s->mode.word >= 0},
                 {"cache", s->cache != NULL},
                 {"attention", s->attention != NULL},
                 {"drift", s->drift >= 0},
                 {"inject", s->inject != NULL},
                 {"prompt-file", s->prompt_file != NULL}};
    for (size_t i = 0; i < LT_COUNT(fixed); i++)
        if (fixed[i].given)
            return lti_fail(ctx, LT_ERR_ARG, "--resume: --%s is the saved session's",
                            fixed[i].name);
    return LT_OK;
}

/* One file cannot be two things. */
static lt_status check_distinct(lt_ctx *ctx, const lti_settings *s)
{
    const struct {
        const char *name, *path;
    } out[] = {{"-o", s->output}, {"--report", s->report}, {"--save-session", s->save_session}};
    for (size_t i = 0; i < LT_COUNT(out); i++)
        for (size_t k = i + 1; k < LT_COUNT(out); k++)
            if (out[i].path && out[k].path && !strcmp(out[i].path, out[k].path))
                return lti_fail(ctx, LT_ERR_ARG, "%s and %s are both '%.200s'", out[i].name,
                                out[k].name, out[k].path);
    return LT_OK;
}

static lt_status check_words(lt_ctx *ctx, const lti_settings *set, const lti_positional *pos)
{
    if (pos->count == 0 && !set->prompt_file && !set->resume)
        return lti_fail(ctx, LT_ERR_ARG, "render: the prompt is missing (longtake render --help)");
    if (pos->count > 1)
        return lti_fail(
            ctx, LT_ERR_ARG,
            "render: one prompt is wanted, '%.80s' is a second word: put the prompt in quotes",
            pos->text[1]);
    if (!set->output) return lti_fail(ctx, LT_ERR_ARG, "render: -o FILE.mp4 is missing");
    if (set->resume) LT_TRY(check_resumed(ctx, set));
    LT_TRY(check_distinct(ctx, set));
    const char *end = set->report ? strrchr(set->report, '.') : NULL;
    if (end && (!strcasecmp(end, ".mp4") || !strcasecmp(end, ".part")))
        return lti_fail(ctx, LT_ERR_ARG, "--report '%.200s': names in %s are for videos",
                        set->report, end);
    return LT_OK;
}

/* Pictures of an earlier run are not replaced, nor mixed with those of this one. */
static lt_status open_frames_dir(lt_ctx *ctx, const lti_settings *s)
{
    char first[4200];
    LT_TRY(lti_folder_make(ctx, s->frames_dir));
    snprintf(first, sizeof first, "%s/000000.png", s->frames_dir);
    if (s->overwrite || s->resume || access(first, F_OK)) return LT_OK;
    return lti_fail(ctx, LT_ERR_IO, "'%s' exists already (--overwrite replaces it)", first);
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Every place that will be written, so that a bad one is known before hours of work. */
static lt_status open_places(lti_job *j)
{
    const lti_settings *s = j->set;
    const bool own = s->save_session && s->resume && same_file(s->save_session, s->resume);
    if (s->frames_dir) LT_TRY(open_frames_dir(j->ctx, s));
    if (s->report) LT_TRY(lti_json_check(j->ctx, s->report, s->overwrite));
    if (s->save_session && j->opt.mode != LT_MODE_AR)
        return lti_fail(j->ctx, LT_ERR_ARG, "--save-session: only mode ar can be gone on with");
    if (s->save_session) LT_TRY(lti_json_check(j->ctx, s->save_session, s->overwrite || own));
    return lti_job_create_file(j, s->overwrite);
}

/* Those that the video has no frame of. */
static void print_undrawn(const lti_job *j)
{
    const lt_session_options *o = &j->opt;
    for (int32_t i = 0; i < o->cues; i++) {
        const lt_cue *c = &o->timeline[i];
        if (lti_cue_drawn(o->timeline, o->cues, i, j->prompts, o->fps)) continue;
        if (c->frame > 0)
            printf("no frame drawn with the prompt of frame %" PRId64 ": %s\n", c->frame,
                   c->prompt);
        else
            printf("no frame drawn with the prompt of %g s: %s\n", c->seconds, c->prompt);
    }
}

static void print_result(const lti_job *j)
{
    const lt_session_report *r = &j->report;
    for (size_t i = 1; i < json_array_size(j->prompts) && !j->set->quiet; i++) {
        const json_t *m = json_array_get(j->prompts, i);
        printf("from frame %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(m, "frame")));
        if (j->before)
            printf(" (%" JSON_INTEGER_FORMAT " of the file)",
                   json_integer_value(json_object_get(m, "file_frame")));
        printf(": %s\n", json_string_value(json_object_get(m, "prompt")));
    }
    if (j->made == j->output && !j->set->quiet) print_undrawn(j);
    printf("%s: %" PRId64
           " frames, %dx%d, %d fps; %.1f s (text %.1f, denoising %.1f, decoding %.1f)\n",
           j->made, j->frames, j->opt.width, j->opt.height, j->opt.fps, r->total_seconds,
           r->text_seconds, r->denoise_seconds, r->decode_seconds);
    fflush(stdout); /* a signal may end the program before the report is written */
}

/* From checked settings to the finished file; the device and model live here. */
static lt_status render(lti_job *j)
{
    lt_model *model = NULL;
    char line[400];
    lt_status s = LT_OK;
    if (j->set->resume) {
        s = lt_model_open(&model, j->dev, j->model);
        if (s == LT_OK) s = lti_job_resume(j, model);
    }
    if (s == LT_OK) s = open_places(j);
    if (s == LT_OK && !j->set->quiet) {
        lti_job_describe(j, line, sizeof line);
        fprintf(stderr, "%s (%s): %s", lti_base_name(j->model->path), j->info->family, line);
        if (!j->set->resume)
            fprintf(stderr, "; %.2f GiB", (double)j->estimate.total_peak / (1 << 30));
        fputc('\n', stderr);
    }
    if (s == LT_OK && !model) s = lt_model_open(&model, j->dev, j->model);
    if (s == LT_OK && lti_interrupted(j->interrupt))
        s = lti_fail(j->ctx, LT_ERR_CANCELLED, "stopped before the first step");
    if (s == LT_OK) s = lti_job_run(j, model);
    if (j->made) {
        print_result(j);
        lt_status w = LT_OK;
        if (j->set->report) w = lti_report_write(j->ctx, j->set->report, j);
        if (s == LT_OK) s = w;
        if (s == LT_ERR_CANCELLED)
            lti_fail(j->ctx, s, "stopped; %" PRId64 " of %" PRId64 " frames are in '%s'%s%s",
                     j->frames, j->opt.num_frames - j->first, j->made,
                     j->saved ? "; go on with --resume " : "",
                     j->saved ? j->set->save_session : "");
    }
    lt_session_destroy(&j->session);
    lt_model_close(&model);
    return s;
}

static lt_status prepare_and_render(lt_ctx *ctx, const lti_settings *set, const char *prompt,
                                    lti_interrupt *interrupt)
{
    lt_model_options options;
    lti_model_path path;
    lt_model_info info;
    lti_progress progress;
    lt_dev *dev;
    LT_TRY(lti_model_find(&options, &path, ctx, set));
    LT_TRY(lti_device_open(&dev, ctx, set));
    lti_progress_begin(&progress, set->quiet);
    lti_job j = {.ctx = ctx,
                 .set = set,
                 .model = &options,
                 .info = &info,
                 .prompt = prompt,
                 .output = set->output,
                 .interrupt = interrupt,
                 .progress = &progress,
                 .dev = dev};
    lt_status s = lt_model_probe(&info, ctx, &options);
    if (s == LT_OK && !set->resume) s = lti_job_prepare(&j);
    if (s == LT_OK) s = render(&j);
    lti_job_close(&j);
    lt_dev_destroy(&dev);
    return s;
}

int lti_cmd_render(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lti_interrupt *interrupt = NULL;
    lt_status s = lti_begin(ctx, LTI_RENDER, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done) s = check_words(ctx, &set, &pos);
    if (s == LT_OK && !done) s = lti_interrupt_start(&interrupt, ctx, true);
    if (s == LT_OK && !done) s = prepare_and_render(ctx, &set, pos.text[0], interrupt);
    lti_interrupt_stop(&interrupt);
    return lti_exit(ctx, s);
}
