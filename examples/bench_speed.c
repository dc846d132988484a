/* bench_speed.c: how fast a model runs here. Whole sessions are run and timed from outside, so that what is measured is what a
 * render does; the first denoising step is left out as warm-up. Shares are of the machine's peak, measured
 * after every run (around a network that is measured alone): another process slows down both. */
#include "examples/bench.h"
#include "examples/numbers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 4096 };

typedef struct samples {
    double step[MAX_SAMPLES];
    int steps;
    lti_progress shown;
} samples;

static void on_progress(void *user, const lt_progress *p)
{
    samples *s = user;
    if (p->phase == LT_PHASE_DENOISE && p->step > 1 && s->steps < MAX_SAMPLES)
        s->step[s->steps++] = p->step_seconds;
    lti_progress_show(&s->shown, p);
}

typedef struct speed {
    lt_ctx *ctx;
    lt_session_options opt;
    samples steps;
    double text[100], decode[100];
    lt_peak peak[100];
    json_t *machine,
        *memory; /* what the peak was made of at the last moment; memory of the first run */
    lt_session_report report;
} speed;

static lt_status run_once(speed *b, lt_model *model, lti_interrupt *interrupt, int i)
{
    lt_session *session;
    lt_frames f;
    LT_TRY(lt_session_create(&session, model, &b->opt));
    lti_interrupt_watch(interrupt, session);
    lt_status s;
    do
        s = lt_session_next(session, &f);
    while (s == LT_OK);
    lti_interrupt_watch(interrupt, NULL);
    lti_progress_clear(&b->steps.shown);
    lt_session_get_report(session, &b->report);
    lt_session_destroy(&session);
    b->text[i] = b->report.text_seconds;
    b->decode[i] = b->report.decode_seconds;
    return s == LT_END ? LT_OK : s;
}

static json_t *row(const char *what, double seconds, double flops, double peak)
{
    const double rate = seconds > 0 ? flops / seconds : 0;
    if (flops > 0)
        printf("%-24s %10.3f s %10.1f GFLOP %9.1f GFLOP/s %5.1f %% of the peak\n", what, seconds,
               flops / 1e9, rate / 1e9, 100 * rate / peak);
    else
        printf("%-24s %10.3f s\n", what, seconds);
    return json_pack("{s:s, s:f, s:f, s:f, s:f}", "part", what, "seconds", seconds, "flops", flops,
                     "flops_per_second", rate, "share_of_peak", rate / peak);
}

/* A decoding counts its convolutions as the network defines them. */
static void print_note(void)
{
    printf("decoding does fewer operations than are counted (kernels/README.md: Winograd): its\n"
           "share may be above 100 %%\n");
}

static lt_status print_table(speed *b, lt_dev *dev, const lti_settings *set, const char *model,
                             const lt_model_info *info)
{
    double peak = 0, conv_peak = 0;
    const lt_session_report *r = &b->report;
    json_t *rows = json_array();
    const size_t repeat = (size_t)set->repeat;
    for (int i = 0; i < set->repeat; i++) {
        peak += lt_peak_of(&b->peak[i], info->dtype, false) / set->repeat;
        conv_peak += lt_peak_of(&b->peak[i], info->dtype, true) / set->repeat;
    }
    printf("%s (%s): %dx%d, %d frames, %" PRId64 " tokens, %s, %s, %d threads\n", model,
           info->family, b->opt.width, b->opt.height, b->opt.num_frames, r->tokens,
           lt_dtype_name(info->dtype), lt_dev_isa(dev), lt_dev_threads(dev));
    printf("peak, mean after the runs: %.1f GFLOP/s%s, of convolutions %.1f\n", peak / 1e9,
           b->peak[0].half_flops > 0 && info->dtype != LT_F32 ? " in f16" : "", conv_peak / 1e9);
    json_array_append_new(rows, row("prompt", lti_median(b->text, repeat), 0, peak));
    const double steps = r->blocks ? (double)r->blocks : r->dit_passes;
    json_array_append_new(rows, row(r->blocks ? "transformer, one block" : "transformer, one pass",
                                    lti_median(b->steps.step, (size_t)b->steps.steps),
                                    steps > 0 ? r->dit_flops / steps : 0, peak));
    json_array_append_new(
        rows, row("decoding, all frames", lti_median(b->decode, repeat), r->vae_flops, conv_peak));
    print_note();
    const double mib = 1 << 20;
    printf("memory: %.1f MiB of tensors at most, %.1f MiB of the process\n",
           (double)json_integer_value(json_object_get(b->memory, "peak_total")) / mib,
           (double)json_integer_value(json_object_get(b->memory, "process_peak")) / mib);
    json_t *all =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:s, s:f, s:f, s:O, s:O, s:o}", "model", model,
                  "family", info->family, "width", b->opt.width, "height", b->opt.height,
                  "num_frames", b->opt.num_frames, "tokens", (json_int_t)r->tokens, "dtype",
                  lt_dtype_name(info->dtype), "mean_peak_flops", peak, "mean_conv_peak_flops",
                  conv_peak, "machine_peak", b->machine, "memory_bytes", b->memory, "parts", rows);
    const lt_status s = set->json_file ? lti_json_write(b->ctx, set->json_file, all) : LT_OK;
    json_decref(all);
    return s;
}

static lt_status measure(speed *b, lt_dev *dev, const lti_settings *set,
                         const lt_model_options *options, lti_interrupt *interrupt)
{
    lt_model_info info;
    lt_model *model;
    LT_TRY(lt_model_probe(&info, b->ctx, options));
    b->opt = lt_session_options_default();
    b->opt.prompt = "a red ball bounces on green grass";
    b->opt.width = set->size.width;
    b->opt.height = set->size.height;
    b->opt.num_frames = set->num_frames;
    b->opt.num_inference_steps = set->num_inference_steps ? set->num_inference_steps : 3;
    b->opt.guidance_scale = 1; /* one branch: a step is one pass */
    if (set->mode.word >= 0)
        b->opt.mode = set->mode.word == LTI_MODE_AR ? LT_MODE_AR : LT_MODE_CLIP;
    b->opt.cache = set->cache;
    b->opt.progress = on_progress;
    b->opt.progress_user = &b->steps;
    LT_TRY(lt_session_validate(b->ctx, &info, &b->opt));
    LT_TRY(lt_model_open(&model, dev, options));
    lt_model_get_info(model, &info);
    lti_progress_begin(&b->steps.shown, set->quiet);
    lt_status s = LT_OK;
    for (int i = 0; i < set->repeat && s == LT_OK; i++) {
        s = run_once(b, model, interrupt, i);
        if (!b->memory) b->memory = lti_memory_json(dev); /* before the peak takes its own */
        json_decref(b->machine);
        b->machine = lti_peak_json(dev, 300, &b->peak[i]);
    }
    if (s == LT_OK) s = print_table(b, dev, set, lti_base_name(options->path), &info);
    json_decref(b->machine);
    json_decref(b->memory);
    lt_model_close(&model);
    return s;
}

/* ---- one network alone ---- */

static double burst(const lt_peak *p, lt_dtype dtype, bool conv)
{
    const lt_peak best = {
        .fma_flops = p->fma_burst, .dot_flops = p->dot_burst, .half_flops = p->half_burst};
    return lt_peak_of(&best, dtype, conv);
}

typedef lt_status bench_fn(lt_bench_result *out, lt_dev *dev, const lt_bench_options *opt);

/* cache: a block of it; NULL: a clip. */
static lt_status measure_part(json_t *rows, const char *what, bench_fn *fn, const char *path,
                              const char *cache, lt_dev *dev, const lti_settings *set)
{
    lt_bench_result r;
    const lt_dtype dtype = set->dtype == LTI_DTYPE_F32 ? LT_F32 : LT_BF16;
    lt_bench_options o = {.path = path,
                          .dtype = dtype,
                          .width = set->size.width ? set->size.width : 256,
                          .height = set->size.height ? set->size.height : 256,
                          .num_frames = set->num_frames ? set->num_frames : 9,
                          .cache = cache,
                          .passes = set->repeat};
    lt_peak last;
    LT_TRY(fn(&r, dev, &o));
    json_t *machine = lti_peak_json(dev, 300, &last);
    printf("%s: %dx%d, ", lti_base_name(path), o.width, o.height);
    if (o.cache)
        printf("a block of %s with a full window, ", o.cache);
    else
        printf("%d frames, ", o.num_frames);
    printf("%s; weights %.1f MiB, at most %.1f MiB\n", lt_dtype_name(o.dtype),
           (double)r.weight_bytes / (1 << 20), (double)r.peak_bytes / (1 << 20));
    printf("peak, mean of those between the passes: %.1f GFLOP/s (at its best millisecond %.1f)\n",
           1e-9 * r.peak_flops, 1e-9 * burst(&last, dtype, fn != lt_bench_dit));
    json_t *figures = row(what, r.seconds, r.flops, r.peak_flops);
    json_object_set_new(figures, "peak_flops", json_real(r.peak_flops));
    json_object_set_new(figures, "machine_peak", machine);
    json_object_set_new(figures, "best_seconds", json_real(r.best_seconds));
    json_object_set_new(figures, "peak_bytes", json_integer((json_int_t)r.peak_bytes));
    json_array_append_new(rows, figures);
    return LT_OK;
}

static double share(const json_t *rows, size_t i)
{
    return json_real_value(json_object_get(json_array_get(rows, i), "share_of_peak"));
}

/* A block, beside the clip that has been measured. */
static lt_status measure_block(json_t *rows, lt_dev *dev, const lti_settings *set)
{
    LT_TRY(measure_part(rows, "transformer, one block", lt_bench_dit, set->transformer,
                        set->cache ? set->cache : "self-forcing", dev, set));
    if (share(rows, 0) > 0)
        printf("share of the peak: the clip %.1f %%, the block %.1f %%, %.2f times that\n",
               100 * share(rows, 0), 100 * share(rows, 1), share(rows, 1) / share(rows, 0));
    return LT_OK;
}

static lt_status measure_parts(lt_ctx *ctx, lt_dev *dev, const lti_settings *set)
{
    if (set->cache && set->mode.word != LTI_MODE_AR)
        return lti_fail(ctx, LT_ERR_ARG, "--cache '%.100s': only mode ar keeps one", set->cache);
    if (set->seconds > 0)
        return lti_fail(ctx, LT_ERR_ARG, "--seconds %g: of a whole model", set->seconds);
    json_t *rows = json_array();
    lt_status s = LT_OK;
    if (set->transformer)
        s = measure_part(rows, "transformer, one pass", lt_bench_dit, set->transformer, NULL, dev,
                         set);
    if (s == LT_OK && set->transformer && set->mode.word == LTI_MODE_AR)
        s = measure_block(rows, dev, set);
    if (s == LT_OK && set->vae) {
        s = measure_part(rows, "decoding, all frames", lt_bench_vae_decode, set->vae, NULL, dev,
                         set);
        if (s == LT_OK) print_note();
    }
    json_t *all = json_pack("{s:s, s:i, s:o}", "isa", lt_dev_isa(dev), "threads",
                            lt_dev_threads(dev), "parts", rows);
    if (s == LT_OK && set->json_file) s = lti_json_write(ctx, set->json_file, all);
    json_decref(all);
    return s;
}

lt_status lti_bench_speed(lt_ctx *ctx, const lti_settings *set, lti_interrupt *interrupt)
{
    lt_model_options options;
    lti_model_path path;
    lt_dev *dev = NULL;
    speed *b = calloc(1, sizeof *b);
    if (!b) return lti_fail(ctx, LT_ERR_MEM, "no memory to measure");
    b->ctx = ctx;
    lt_status s = lti_device_open(&dev, ctx, set);
    if (s == LT_OK && !set->model && (set->transformer || set->vae)) {
        s = measure_parts(ctx, dev, set);
    } else if (s == LT_OK) {
        s = lti_model_find(&options, &path, ctx, set);
        if (s == LT_OK)
            s = set->seconds > 0 ? lti_bench_pace(ctx, dev, set, &options, interrupt)
                                 : measure(b, dev, set, &options, interrupt);
    }
    lt_dev_destroy(&dev);
    free(b);
    return s;
}
