/* cmd_render.c: longtake render PROMPT -o out.mp4 */
#include "examples/command.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "render PROMPT -o FILE.mp4 [options]\n\n"
    "Makes a video from a text. The file appears under its name when it is complete; Ctrl-C keeps\n"
    "what is done as FILE.partial.mp4.";

static lt_status check_words(lt_ctx *ctx, const lti_settings *set, const lti_positional *pos)
{
    if (pos->count == 0)
        return lti_fail(ctx, LT_ERR_ARG, "render: the prompt is missing (longtake render --help)");
    if (pos->count > 1)
        return lti_fail(
            ctx, LT_ERR_ARG,
            "render: one prompt is wanted, '%.80s' is a second word: put the prompt in quotes",
            pos->text[1]);
    if (!set->output) return lti_fail(ctx, LT_ERR_ARG, "render: -o FILE.mp4 is missing");
    const char *end = set->report ? strrchr(set->report, '.') : NULL;
    if (end && (!strcasecmp(end, ".mp4") || !strcasecmp(end, ".part")))
        return lti_fail(ctx, LT_ERR_ARG, "--report '%.200s': names in %s are for videos",
                        set->report, end);
    return LT_OK;
}

/* Every place that will be written, so that a bad one is known before hours of work. */
static lt_status open_places(lti_job *j)
{
    const lti_settings *s = j->set;
    if (s->frames_dir) LT_TRY(lti_folder_make(j->ctx, s->frames_dir));
    if (s->report) LT_TRY(lti_json_check(j->ctx, s->report, s->overwrite));
    return lti_job_create_file(j, s->overwrite);
}

static void print_result(const lti_job *j)
{
    const lt_session_report *r = &j->report;
    printf("%s: %" PRId64
           " frames, %dx%d, %d fps; %.1f s (text %.1f, denoising %.1f, decoding %.1f)\n",
           j->made, j->frames, j->opt.width, j->opt.height, j->opt.fps, r->total_seconds,
           r->text_seconds, r->denoise_seconds, r->decode_seconds);
}

/* From checked settings to the finished file; the device and model live here. */
static lt_status render(lti_job *j)
{
    lt_model *model = NULL;
    char line[400];
    lt_status s = open_places(j);
    if (s == LT_OK && !j->set->quiet) {
        lti_job_describe(j, line, sizeof line);
        fprintf(stderr, "%s (%s): %s; %.2f GiB\n", lti_base_name(j->model->path), j->info->family,
                line, (double)j->estimate.total_peak / (1 << 30));
    }
    if (s == LT_OK) s = lt_model_open(&model, j->dev, j->model);
    if (s == LT_OK && lti_interrupted(j->interrupt))
        s = lti_fail(j->ctx, LT_ERR_CANCELLED, "stopped before the first step");
    if (s == LT_OK) s = lti_job_run(j, model);
    if (j->made) {
        print_result(j);
        lt_status w = LT_OK;
        if (j->set->report) w = lti_report_write(j->ctx, j->set->report, j);
        if (s == LT_OK) s = w;
        if (s == LT_ERR_CANCELLED)
            lti_fail(j->ctx, s, "stopped; %" PRId64 " of %d frames are in '%s'", j->frames,
                     j->opt.num_frames, j->made);
    }
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
    if (s == LT_OK) s = lti_job_prepare(&j);
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
    if (s == LT_OK && !done) s = lti_interrupt_start(&interrupt, ctx);
    if (s == LT_OK && !done) s = prepare_and_render(ctx, &set, pos.text[0], interrupt);
    lti_interrupt_stop(&interrupt);
    return lti_exit(ctx, s);
}
