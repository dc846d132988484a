/* bench_quality.c: the same prompts, seeds and steps with every method: how near to dense, how steady, how fast.
 *
 * Every clip is compared with the dense one of its prompt and seed (pairs; the spread is over pairs). The first line is the noise floor:
 * dense attention with its tokens in another order, so the same sums in another order; a method at the floor cannot be told from
 * dense. Speed is that of denoising, dense measured in the same run. Quality against dense says how far a video has gone another way, which
 * is not always damage. */
#include "attention/attention.h"
#include "examples/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_METHODS = 32, MAX_CLIPS = 256, STRIP = 5 };

static const char *const prompts[] = {"a red ball bounces on green grass",
                                      "a blue square moves to the right on a white background",
                                      "a yellow triangle spins in front of a dark sky"};
static const char floor_method[] = "topk:keep=1,warmup=0";
static const char default_methods[] = "sta:window=5x3x3 svg:density=0.3 radial:decay=0.2 "
                                      "topk:keep=0.3 topk:keep=0.2 topk:keep=0.1 topk:p=0.9 "
                                      "topk:keep=0.2,centroid topk:keep=0.1,centroid";

typedef struct clip {
    double psnr, ssim, flicker, flicker_dense, denoise, denoise_dense, total, total_dense, density,
        sparse_density, planning;
} clip;

typedef struct bench {
    lt_ctx *ctx;
    const lti_settings *set;
    lt_dev *dev;
    lt_model *model;
    lti_interrupt *interrupt;
    lti_progress shown;
    lt_session_options o;
    size_t frame_bytes, bytes;
    uint8_t **dense; /* [clips] */
    lt_session_report *dense_report;
    uint8_t *video;
    int clips, seeds;
    const char *dir;
    json_t *methods;
} bench;

static const char *prompt_of(const bench *b, int i)
{
    (void)b;
    return prompts[(size_t)i % LT_COUNT(prompts)];
}

static lt_status render(bench *b, int i, const char *attention, uint8_t *out, lt_session_report *r)
{
    lt_session *s;
    lt_frames f;
    lt_session_options o = b->o;
    o.prompt = prompt_of(b, i);
    o.seed = (uint64_t)i / LT_COUNT(prompts) + 1;
    o.attention = attention;
    size_t at = 0;
    LT_TRY(lt_session_create(&s, b->model, &o));
    lti_interrupt_watch(b->interrupt, s);
    lt_status st;
    while ((st = lt_session_next(s, &f)) == LT_OK) {
        const size_t n = (size_t)f.count * b->frame_bytes;
        if (at + n <= b->bytes) memcpy(out + at, f.rgb, n);
        at += n;
    }
    lti_interrupt_watch(b->interrupt, NULL);
    lti_progress_clear(&b->shown);
    lt_session_get_report(s, r);
    lt_session_destroy(&s);
    return st == LT_END ? LT_OK : st;
}

static lt_status measure(bench *b, int i, const char *attention, clip *c)
{
    lt_session_report r;
    const lt_session_report *d = &b->dense_report[i];
    LT_TRY(render(b, i, attention, b->video, &r));
    c->psnr = lti_psnr(b->video, b->dense[i], b->bytes);
    if (!lti_ssim(&c->ssim, b->video, b->dense[i], b->o.num_frames, b->o.height, b->o.width))
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory, or a picture too small, for SSIM");
    c->flicker = lti_flicker(b->video, b->o.num_frames, b->frame_bytes);
    c->flicker_dense = lti_flicker(b->dense[i], b->o.num_frames, b->frame_bytes);
    c->denoise = r.denoise_seconds;
    c->denoise_dense = d->denoise_seconds;
    c->total = r.total_seconds;
    c->total_dense = d->total_seconds;
    c->density = r.attention_density;
    c->sparse_density = r.sparse_density;
    c->planning = r.planning_seconds;
    return LT_OK;
}

/* Some frames of a video side by side, as a picture beside the page. */
static lt_status write_strip(bench *b, const uint8_t *video, int number)
{
    const int w = b->o.width, h = b->o.height;
    char path[4096];
    const int len = snprintf(path, sizeof path, "%s/strip%02d.png", b->dir, number);
    if (len < 0 || (size_t)len >= sizeof path)
        return lti_fail(b->ctx, LT_ERR_ARG, "--out-dir: the path is too long");
    uint8_t *strip = malloc(b->frame_bytes * STRIP);
    if (!strip) return lti_fail(b->ctx, LT_ERR_MEM, "no memory for a picture");
    for (int k = 0; k < STRIP; k++) {
        const int f = k * (b->o.num_frames - 1) / (STRIP - 1);
        for (int y = 0; y < h; y++)
            memcpy(strip + ((size_t)y * STRIP + (size_t)k) * (size_t)w * 3,
                   video + (size_t)f * b->frame_bytes + (size_t)y * (size_t)w * 3, (size_t)w * 3);
    }
    const lt_status s = lt_picture_write(b->ctx, path, strip, STRIP * w, h);
    free(strip);
    return s;
}

typedef struct spread {
    double mean, error; /* standard error of the mean */
} spread;

/* Of a field of all clips, divided by another one where there is one. */
static spread over(const clip *c, int n, size_t field, size_t by)
{
    spread s = {0};
    double squares = 0;
    for (int i = 0; i < n; i++) {
        double v, d = 1;
        memcpy(&v, (const char *)&c[i] + field, sizeof v);
        if (by) memcpy(&d, (const char *)&c[i] + by, sizeof d);
        v /= d;
        s.mean += v / n;
        squares += v * v / n;
    }
    const double var = squares - s.mean * s.mean;
    s.error = n > 1 && var > 0 ? sqrt(var / (n - 1)) : 0;
    return s;
}

static json_t *spread_json(spread s)
{
    return json_pack("{s:f, s:f}", "mean", s.mean, "error", s.error);
}

#define FIELD(name) offsetof(clip, name)

static void report(bench *b, const char *text, const clip *c)
{
    const int n = b->clips;
    const spread psnr = over(c, n, FIELD(psnr), 0), ssim = over(c, n, FIELD(ssim), 0),
                 flicker = over(c, n, FIELD(flicker), FIELD(flicker_dense)),
                 fast = over(c, n, FIELD(denoise_dense), FIELD(denoise)),
                 whole = over(c, n, FIELD(total_dense), FIELD(total)),
                 density = over(c, n, FIELD(density), 0),
                 sparse = over(c, n, FIELD(sparse_density), 0),
                 planning = over(c, n, FIELD(planning), FIELD(denoise));
    printf("%-34s %7.3f %7.3f %6.2f+-%4.2f %7.4f %8.3f %7.2fx %7.2fx %6.1f%%\n", text, density.mean,
           sparse.mean, psnr.mean, psnr.error, ssim.mean, flicker.mean, fast.mean, whole.mean,
           100 * planning.mean);
    fflush(stdout);
    json_array_append_new(b->methods,
                          json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "attention",
                                    text, "density", spread_json(density), "sparse_density",
                                    spread_json(sparse), "psnr_db", spread_json(psnr), "ssim",
                                    spread_json(ssim), "flicker_to_dense", spread_json(flicker),
                                    "denoise_speedup", spread_json(fast), "render_speedup",
                                    spread_json(whole), "planning_share", spread_json(planning)));
}

static lt_status measure_method(bench *b, const char *text, int number)
{
    clip c[MAX_CLIPS];
    for (int i = 0; i < b->clips; i++) {
        LT_TRY(measure(b, i, text, &c[i]));
        if (i == 0 && b->dir) LT_TRY(write_strip(b, b->video, number));
    }
    report(b, text, c);
    return LT_OK;
}

static lt_status render_dense(bench *b)
{
    for (int i = 0; i < b->clips; i++) {
        b->dense[i] = malloc(b->bytes);
        if (!b->dense[i])
            return lti_fail(b->ctx, LT_ERR_MEM, "no memory for %zu bytes of video", b->bytes);
        LT_TRY(render(b, i, "dense", b->dense[i], &b->dense_report[i]));
    }
    return b->dir ? write_strip(b, b->dense[0], 0) : LT_OK;
}

static lt_status measure_all(bench *b, const char *list)
{
    char text[2048];
    int number = 1;
    lt_sparse_spec spec;
    snprintf(text, sizeof text, "%s", list);
    if (strlen(list) >= sizeof text)
        return lti_fail(b->ctx, LT_ERR_ARG, "--methods: more than %zu bytes", sizeof text - 1);
    char *save, *names[MAX_METHODS];
    int n = 0;
    for (char *at = strtok_r(text, " ", &save); at && n < MAX_METHODS;
         at = strtok_r(NULL, " ", &save)) {
        LT_TRY(lt_sparse_parse(&spec, b->ctx, at)); /* before an hour of renders */
        names[n++] = at;
    }
    LT_TRY(render_dense(b));
    printf("%-34s %7s %7s %12s %7s %8s %8s %8s %7s\n", "method", "density", "sparse", "PSNR dB",
           "SSIM", "flicker", "denoise", "render", "plan");
    LT_TRY(measure_method(b, floor_method, number++));
    for (int i = 0; i < n; i++)
        LT_TRY(measure_method(b, names[i], number++));
    return LT_OK;
}

/* ---- files ---- */

static lt_status write_csv(lt_ctx *ctx, const char *path, const json_t *methods)
{
    static const char *const keys[] = {"density",        "sparse_density",   "psnr_db",
                                       "ssim",           "flicker_to_dense", "denoise_speedup",
                                       "render_speedup", "planning_share"};
    FILE *f = fopen(path, "we");
    if (!f) return lti_fail(ctx, LT_ERR_IO, "%s cannot be written", path);
    fputs("attention", f);
    for (size_t k = 0; k < LT_COUNT(keys); k++)
        fprintf(f, ",%s,%s_error", keys[k], keys[k]);
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *m = json_array_get(methods, i);
        fprintf(f, "\n\"%s\"", json_string_value(json_object_get(m, "attention")));
        for (size_t k = 0; k < LT_COUNT(keys); k++) {
            const json_t *s = json_object_get(m, keys[k]);
            fprintf(f, ",%.6g,%.3g", json_real_value(json_object_get(s, "mean")),
                    json_real_value(json_object_get(s, "error")));
        }
    }
    fputc('\n', f);
    const bool bad = ferror(f);
    return fclose(f) || bad ? lti_fail(ctx, LT_ERR_IO, "%s cannot be written", path) : LT_OK;
}

static lt_status write_files(bench *b, const char *model, const char *family)
{
    char path[4096];
    json_t *all = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:i, s:i, s:i, s:s, s:O}", "model",
                            model, "family", family, "width", b->o.width, "height", b->o.height,
                            "num_frames", b->o.num_frames, "num_inference_steps",
                            b->o.num_inference_steps, "guidance_scale", b->o.guidance_scale,
                            "clips", b->clips, "seeds", b->seeds, "threads", lt_dev_threads(b->dev),
                            "isa", lt_dev_isa(b->dev), "methods", b->methods);
    lt_status s = b->set->json_file ? lti_json_write(b->ctx, b->set->json_file, all) : LT_OK;
    if (s == LT_OK && b->set->csv) s = write_csv(b->ctx, b->set->csv, b->methods);
    if (s == LT_OK && b->dir) {
        snprintf(path, sizeof path, "%s/quality.html", b->dir);
        s = lti_quality_page(b->ctx, path, all, b->dir);
        if (s == LT_OK) printf("%s\n", path);
    }
    json_decref(all);
    return s;
}

/* ---- the whole ---- */

static lt_status prepare(bench *b, const lt_model_info *info)
{
    const lti_settings *set = b->set;
    b->o = lt_session_options_default();
    b->o.prompt = prompts[0];
    b->o.width = set->size.width;
    b->o.height = set->size.height;
    b->o.num_frames = set->num_frames;
    b->o.num_inference_steps = set->num_inference_steps;
    b->o.mode = LT_MODE_CLIP;
    b->o.progress = lti_progress_show;
    b->o.progress_user = &b->shown;
    LT_TRY(lt_session_validate(b->ctx, info, &b->o));
    b->seeds = set->seeds;
    b->clips = b->seeds * (int)LT_COUNT(prompts);
    b->frame_bytes = (size_t)b->o.width * (size_t)b->o.height * 3;
    b->bytes = b->frame_bytes * (size_t)b->o.num_frames;
    b->dense = calloc((size_t)b->clips, sizeof *b->dense);
    b->dense_report = calloc((size_t)b->clips, sizeof *b->dense_report);
    b->video = malloc(b->bytes);
    b->methods = json_array();
    b->dir = set->out_dir;
    if (!b->dense || !b->dense_report || !b->video || !b->methods)
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory for %d clips", b->clips);
    if (b->dir && mkdir(b->dir, 0777) && errno != EEXIST)
        return lti_fail(b->ctx, LT_ERR_IO, "--out-dir %s: %s", b->dir, strerror(errno));
    return LT_OK;
}

static lt_status run(bench *b, const lt_model_options *options)
{
    lt_model_info info;
    LT_TRY(lt_model_probe(&info, b->ctx, options));
    LT_TRY(prepare(b, &info));
    LT_TRY(lt_model_open(&b->model, b->dev, options));
    lti_progress_begin(&b->shown, b->set->quiet);
    const char *model = lti_base_name(options->path);
    printf("%s (%s): %dx%d, %d frames, %d steps, guidance %g, %d clips, %s, %d threads\n", model,
           info.family, b->o.width, b->o.height, b->o.num_frames, b->o.num_inference_steps,
           b->o.guidance_scale, b->clips, lt_dev_isa(b->dev), lt_dev_threads(b->dev));
    LT_TRY(measure_all(b, b->set->methods ? b->set->methods : default_methods));
    return write_files(b, model, info.family);
}

lt_status lti_bench_quality(lt_ctx *ctx, const lti_settings *set, lti_interrupt *interrupt)
{
    lt_model_options options;
    lti_model_path path;
    bench b = {.ctx = ctx, .set = set, .interrupt = interrupt};
    LT_TRY(lti_model_find(&options, &path, ctx, set));
    LT_TRY(lti_device_open(&b.dev, ctx, set));
    const lt_status s = run(&b, &options);
    for (int i = 0; b.dense && i < b.clips; i++)
        free(b.dense[i]);
    free(b.dense);
    free(b.dense_report);
    free(b.video);
    json_decref(b.methods);
    lt_model_close(&b.model);
    lt_dev_destroy(&b.dev);
    return s;
}
