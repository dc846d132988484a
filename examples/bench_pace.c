/* bench_pace.c: a long video of blocks, decoded and thrown away: how evenly the blocks come, frames a second, when the first came,
 * whether memory grows. Nothing is encoded, whose threads would take their time where they like. Beside it, in the same run, a
 * fixed piece of work as long as a block: what varies in that is the machine's doing. */
#include "examples/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    TRIED =
        4, /* blocks; the one before gives the length of the fixed work: by then windows are nearly full */
    EVERY = 2,   /* blocks, a measurement of it */
    RUNS = 50,   /* that tell how long one takes */
    MOST = 20000 /* measurements: none is left out in an hour of short blocks */
};

typedef struct rollout {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_session_options opt;
    lti_pace pace;
    lti_progress shown;
    double *fixed; /* seconds of the fixed work */
    int64_t measured, runs;
    lt_session_report report;
} rollout;

/* Between a block and its first frames; the session's own clocks stand still. */
static void measure_machine(rollout *r)
{
    const int64_t n = r->pace.count;
    if (n == TRIED) {
        const double block = r->pace.drawing[n - 2] + r->pace.decoding[n - 2];
        const double one = lt_peak_seconds(r->dev, RUNS) / RUNS;
        r->runs = one > 0 ? (int64_t)fmax(1, round(block / one)) : 0;
    }
    if (n < TRIED || n % EVERY || !r->runs || r->measured == MOST) return;
    r->fixed[r->measured++] = lt_peak_seconds(r->dev, r->runs);
}

static lt_status roll_out(rollout *r, lt_model *model, lti_interrupt *interrupt)
{
    lt_session *session;
    lt_frames f;
    LT_TRY(lt_session_create(&session, model, &r->opt));
    lti_interrupt_watch(interrupt, session);
    lt_status s;
    while ((s = lt_session_next(session, &f)) == LT_OK) {
        const int64_t before = r->pace.count;
        lti_pace_add(&r->pace, &f, r->dev);
        if (r->pace.count != before) measure_machine(r);
    }
    lti_interrupt_watch(interrupt, NULL);
    lti_progress_clear(&r->shown);
    lt_session_get_report(session, &r->report);
    lt_session_destroy(&session);
    return s == LT_END ? LT_OK : s;
}

static void print_times(const char *what, json_t *q)
{
    const double p50 = json_real_value(json_object_get(q, "p50")),
                 p99 = json_real_value(json_object_get(q, "p99"));
    const double ratio = p50 > 0 ? p99 / p50 : 0;
    json_object_set_new(q, "p99_to_p50", json_real(ratio));
    printf("%-36s p50 %8.4f s  p99 %8.4f s  p99/p50 %6.3f\n", what, p50, p99, ratio);
}

static void print_memory(const char *what, const json_t *m)
{
    const double mib = 1 << 20;
    if (m)
        printf("%-36s %.1f MiB of tensors, %.1f MiB of the process\n", what,
               (double)json_integer_value(json_object_get(m, "peak_total")) / mib,
               (double)json_integer_value(json_object_get(m, "process_peak")) / mib);
}

static lt_status print_pace(rollout *r, const lti_settings *set, const char *model,
                            const lt_model_info *info)
{
    json_t *all = lti_pace_json(&r->pace);
    if (!all)
        return lti_fail(r->ctx, LT_ERR_ARG, "--seconds %g: less than two blocks", set->seconds);
    printf("%s (%s): %dx%d, %d frames in %" PRId64 " blocks, %d steps, guidance %g, %s, %s, "
           "%d threads\n",
           model, info->family, r->opt.width, r->opt.height, r->opt.num_frames, r->report.blocks,
           r->report.steps, r->report.guidance, lt_dtype_name(info->dtype), lt_dev_isa(r->dev),
           lt_dev_threads(r->dev));
    print_times("a block, drawn", json_object_get(all, "drawing_seconds"));
    print_times("a block, drawn and decoded", json_object_get(all, "seconds"));
    if (r->measured) {
        json_t *fixed = lti_quantiles_json(r->fixed, r->measured);
        print_times("fixed work, every other block", fixed);
        json_object_set_new(fixed, "measured", json_integer(r->measured));
        json_object_set_new(all, "machine_seconds", fixed);
    }
    printf("%-36s %.2f, decoding included\n", "frames a second",
           json_real_value(json_object_get(all, "frames_per_second")));
    printf("%-36s %.3f s\n", "first frame after", r->report.first_frame_seconds);
    print_memory("at most until block 20", json_object_get(all, "memory_after_block_20"));
    print_memory("at most in all", json_object_get(all, "memory_at_last_block"));
    json_object_set_new(all, "first_frame_seconds", json_real(r->report.first_frame_seconds));
    json_object_set_new(all, "model", json_string(model));
    json_object_set_new(all, "num_frames", json_integer(r->opt.num_frames));
    const lt_status s = set->json_file ? lti_json_write(r->ctx, set->json_file, all) : LT_OK;
    json_decref(all);
    return s;
}

static lt_status fill(rollout *r, const lti_settings *set, const lt_model_info *info)
{
    r->opt = lt_session_options_default();
    r->opt.prompt = "a red ball bounces on green grass";
    r->opt.mode = set->mode.word == LTI_MODE_CLIP ? LT_MODE_CLIP : LT_MODE_AR;
    r->opt.width = set->size.width;
    r->opt.height = set->size.height;
    r->opt.num_frames = lti_frames_of(set->seconds, info->default_fps, info->frame_scale, false);
    r->opt.num_inference_steps = set->num_inference_steps;
    r->opt.cache = set->cache;
    r->opt.progress = lti_progress_show;
    r->opt.progress_user = &r->shown;
    if (r->opt.mode != LT_MODE_AR)
        return lti_fail(r->ctx, LT_ERR_ARG, "--seconds %g: of blocks, in mode ar", set->seconds);
    LT_TRY(lt_session_validate(r->ctx, info, &r->opt));
    LT_TRY(lti_pace_open(&r->pace, r->ctx, r->opt.num_frames / info->frame_scale + 1));
    r->fixed = calloc(MOST, sizeof *r->fixed);
    return r->fixed ? LT_OK : lti_fail(r->ctx, LT_ERR_MEM, "no memory for %d times", MOST);
}

lt_status lti_bench_pace(lt_ctx *ctx, lt_dev *dev, const lti_settings *set,
                         const lt_model_options *options, lti_interrupt *interrupt)
{
    lt_model_info info;
    lt_model *model = NULL;
    rollout r = {.ctx = ctx, .dev = dev};
    LT_TRY(lt_model_probe(&info, ctx, options));
    lt_status s = fill(&r, set, &info);
    if (s == LT_OK) s = lt_model_open(&model, dev, options);
    if (s == LT_OK) {
        lt_model_get_info(model, &info);
        lti_progress_begin(&r.shown, set->quiet);
        r.shown.blocks = true;
        s = roll_out(&r, model, interrupt);
    }
    if (s == LT_OK) s = print_pace(&r, set, lti_base_name(options->path), &info);
    lt_model_close(&model);
    lti_pace_close(&r.pace);
    free(r.fixed);
    return s;
}
