/* bench_quality.c: the same prompts, seeds and steps with every method: how near to dense, how true to the prompt, how steady, how fast.
 *
 * Every clip is compared with the dense one of its prompt and seed (pairs; the spread is over pairs). The first line is the noise floor:
 * dense attention with its tokens in another order, so the same sums in another order; a method at the floor cannot be told from
 * dense. Speed is against dense in the same run. Quality against dense says how far a video has gone another way, which
 * is not always damage. */
#include "attention/attention.h"
#include "examples/bench.h"
#include "examples/checker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_METHODS = 32, MAX_CLIPS = 256, STRIP = 5, LEAST_SIDE = 24 /* of lti_structure */ };

/* Of the world of the embedded model, so that what is seen can be checked by program. */
static const struct {
    const char *text;
    lti_toy want;
} prompts[] = {{"a red ball bounces on green grass", {"grass", "red", "ball", "bounce", "steady"}},
               {"a blue square moves right in front of a plain grey wall",
                {"plain", "blue", "square", "right", "steady"}},
               {"a yellow star spins at night", {"night", "yellow", "star", "spin", "steady"}},
               {"an orange triangle grows over a checkered floor while the sky darkens",
                {"checker", "orange", "triangle", "grow", "darkens"}}};
static const char floor_method[] = "topk:keep=1,warmup=0";
static const char default_methods[] =
    "sta:window=5x3x3 svg:density=0.3 radial:decay=0.2 "
    "topk:keep=0.3 topk:keep=0.2 topk:keep=0.1 topk:p=0.9 topk:keep=0.1,centroid "
    "topk:keep=0.08,refresh=5 topk:keep=0.09,refresh=9";

typedef struct clip {
    double psnr, ssim, structure, flicker, flicker_dense, denoise, denoise_dense, total,
        total_dense, density, sparse_density, planning, attention;
    double memory;               /* MiB of the device, at most */
    double right, against_dense; /* part of what the prompt asks for; less what dense got right */
} clip;

/* What a dense clip cost, and what it shows. */
typedef struct reference {
    lt_session_report report;
    double memory, right;
} reference;

typedef struct bench {
    lt_ctx *ctx;
    const lti_settings *set;
    lt_dev *dev;
    lt_model *model;
    lti_interrupt *interrupt;
    lti_progress shown;
    lt_session_options o;
    size_t frame_bytes, bytes;
    uint8_t **dense;      /* [clips] */
    reference *reference; /* [clips] */
    uint8_t *video;
    double memory; /* of the present render */
    bool checked;  /* frames are of the size that the checker knows */
    int clips, seeds;
    const char *dir;
    json_t *methods;
} bench;

static void watch(void *user, const lt_progress *p)
{
    bench *b = user;
    lt_mem_stats m;
    lt_dev_mem_stats(b->dev, &m);
    const double now = (double)m.live_total / (1 << 20);
    if (now > b->memory) b->memory = now;
    lti_progress_show(&b->shown, p);
}

static lt_status render(bench *b, int i, const char *attention, uint8_t *out, lt_session_report *r)
{
    lt_session *s;
    lt_frames f;
    lt_session_options o = b->o;
    o.prompt = prompts[(size_t)i % LT_COUNT(prompts)].text;
    o.seed = (uint64_t)i / LT_COUNT(prompts) + 1;
    o.attention = attention;
    size_t at = 0;
    b->memory = 0;
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

/* Part of what the prompt asks for that is seen. */
static lt_status judge(bench *b, int i, const uint8_t *video, double *right)
{
    lti_toy got;
    int asked, same;
    *right = 0;
    if (!b->checked) return LT_OK;
    LT_TRY(lti_toy_read(&got, b->ctx, video, b->o.num_frames));
    same = lti_toy_agree(&got, &prompts[(size_t)i % LT_COUNT(prompts)].want, &asked);
    *right = (double)same / asked;
    return LT_OK;
}

static lt_status measure(bench *b, int i, const char *attention, clip *c)
{
    lt_session_report r;
    const lt_session_report *d = &b->reference[i].report;
    LT_TRY(render(b, i, attention, b->video, &r));
    LT_TRY(judge(b, i, b->video, &c->right));
    c->against_dense = c->right - b->reference[i].right;
    c->memory = b->memory;
    c->psnr = lti_psnr(b->video, b->dense[i], b->bytes);
    if (!lti_ssim(&c->ssim, b->video, b->dense[i], b->o.num_frames, b->o.height, b->o.width) ||
        !lti_structure(&c->structure, b->video, b->dense[i], b->o.num_frames, b->o.height,
                       b->o.width))
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory to compare videos");
    c->flicker = lti_flicker(b->video, b->o.num_frames, b->frame_bytes);
    c->flicker_dense = lti_flicker(b->dense[i], b->o.num_frames, b->frame_bytes);
    c->denoise = r.denoise_seconds;
    c->denoise_dense = d->denoise_seconds;
    c->total = r.total_seconds;
    c->total_dense = d->total_seconds;
    c->density = r.attention_density;
    c->sparse_density = r.sparse_density;
    c->planning = r.planning_seconds;
    c->attention = r.attention_seconds;
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

/* Of a field of all clips, divided by another one where there is one (of nothing, as flicker of one frame: 1, the same). */
static spread over(const clip *c, int n, size_t field, size_t by)
{
    spread s = {0};
    double squares = 0;
    for (int i = 0; i < n; i++) {
        double v, d = 1;
        memcpy(&v, (const char *)&c[i] + field, sizeof v);
        if (by) memcpy(&d, (const char *)&c[i] + by, sizeof d);
        v = d > 0 ? v / d : 1;
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

/* One figure of a method: its name in files, which numbers of the clips. */
typedef struct figure {
    const char *key;
    size_t field, by;
    bool checked; /* only where the checker can look */
} figure;

static const figure figures[] = {
    {"density", FIELD(density), 0, false},
    {"sparse_density", FIELD(sparse_density), 0, false},
    {"psnr_db", FIELD(psnr), 0, false},
    {"ssim", FIELD(ssim), 0, false},
    {"structure", FIELD(structure), 0, false},
    {"flicker_to_dense", FIELD(flicker), FIELD(flicker_dense), false},
    {"adherence", FIELD(right), 0, true},
    {"adherence_to_dense", FIELD(against_dense), 0, true},
    {"attention_share", FIELD(attention), FIELD(denoise), false},
    {"denoise_speedup", FIELD(denoise_dense), FIELD(denoise), false},
    {"render_speedup", FIELD(total_dense), FIELD(total), false},
    {"planning_share", FIELD(planning), FIELD(denoise), false},
    {"memory_mib", FIELD(memory), 0, false},
};

static double mean_of(const json_t *method, const char *key)
{
    return json_real_value(json_object_get(json_object_get(method, key), "mean"));
}

/* What is right in the clips of each prompt, and how much more that is than in the dense ones of the same seeds. */
static json_t *by_prompt(const bench *b, const clip *c)
{
    const int all = (int)LT_COUNT(prompts);
    json_t *list = json_array();
    for (int p = 0; p < all; p++) {
        double right = 0, more = 0;
        for (int i = p; i < b->clips; i += all) {
            right += c[i].right / b->seeds;
            more += c[i].against_dense / b->seeds;
        }
        json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "prompt", prompts[p].text,
                                              "adherence", right, "adherence_to_dense", more));
    }
    return list;
}

static void report(bench *b, const char *text, const clip *c)
{
    json_t *m = json_pack("{s:s}", "attention", text);
    for (size_t k = 0; k < LT_COUNT(figures); k++) {
        const figure *f = &figures[k];
        if (!f->checked || b->checked)
            json_object_set_new(m, f->key, spread_json(over(c, b->clips, f->field, f->by)));
    }
    if (b->checked) json_object_set_new(m, "by_prompt", by_prompt(b, c));
    printf(
        "%-32s %6.3f %6.3f %6.2f+-%4.2f %6.4f %7.4f %7.3f %5.1f%% %5.1f%% %6.2fx %6.2fx %5.1f%%\n",
        text, mean_of(m, "density"), mean_of(m, "sparse_density"), mean_of(m, "psnr_db"),
        over(c, b->clips, FIELD(psnr), 0).error, mean_of(m, "ssim"), mean_of(m, "structure"),
        mean_of(m, "flicker_to_dense"), 100 * mean_of(m, "adherence"),
        100 * mean_of(m, "attention_share"), mean_of(m, "denoise_speedup"),
        mean_of(m, "render_speedup"), 100 * mean_of(m, "planning_share"));
    fflush(stdout);
    json_array_append_new(b->methods, m);
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
        LT_TRY(render(b, i, "dense", b->dense[i], &b->reference[i].report));
        LT_TRY(judge(b, i, b->dense[i], &b->reference[i].right));
        b->reference[i].memory = b->memory;
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
    for (char *at = strtok_r(text, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
        if (n == MAX_METHODS)
            return lti_fail(b->ctx, LT_ERR_ARG, "--methods: more than %d", MAX_METHODS);
        LT_TRY(lt_sparse_parse(&spec, b->ctx, at)); /* before an hour of renders */
        names[n++] = at;
    }
    LT_TRY(render_dense(b));
    printf("%-32s %6s %6s %12s %6s %7s %7s %6s %6s %7s %7s %6s\n", "method", "dens.", "sparse",
           "PSNR dB", "SSIM", "struct.", "flicker", "adher.", "attn.", "denoise", "render", "plan");
    LT_TRY(measure_method(b, floor_method, number++));
    for (int i = 0; i < n; i++)
        LT_TRY(measure_method(b, names[i], number++));
    return LT_OK;
}

/* ---- files ---- */

static lt_status write_csv(lt_ctx *ctx, const char *path, const json_t *methods)
{
    FILE *f = lti_text_create(ctx, path);
    if (!f) return LT_ERR_IO;
    fputs("attention", f);
    for (size_t k = 0; k < LT_COUNT(figures); k++)
        fprintf(f, ",%s,%s_error", figures[k].key, figures[k].key);
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *m = json_array_get(methods, i);
        fprintf(f, "\n\"%s\"", json_string_value(json_object_get(m, "attention")));
        for (size_t k = 0; k < LT_COUNT(figures); k++) {
            const json_t *s = json_object_get(m, figures[k].key);
            if (!s)
                fputs(",,", f);
            else
                fprintf(f, ",%.6g,%.3g", json_real_value(json_object_get(s, "mean")),
                        json_real_value(json_object_get(s, "error")));
        }
    }
    fputc('\n', f);
    return lti_text_end(f, ctx, path, LT_OK);
}

/* Means over the dense clips. */
static json_t *dense_json(const bench *b)
{
    double denoise = 0, total = 0, attention = 0, memory = 0, right = 0, density = 0, n = b->clips;
    for (int i = 0; i < b->clips; i++) {
        const reference *r = &b->reference[i];
        denoise += r->report.denoise_seconds / n;
        total += r->report.total_seconds / n;
        attention += r->report.attention_seconds / r->report.denoise_seconds / n;
        memory += r->memory / n;
        density += r->report.attention_density / n;
        right += r->right / n;
    }
    json_t *d =
        json_pack("{s:f, s:f, s:f, s:f, s:f}", "density", density, "denoise_seconds", denoise,
                  "total_seconds", total, "attention_share", attention, "memory_mib", memory);
    if (b->checked) json_object_set_new(d, "adherence", json_real(right));
    return d;
}

static const char *mode_word(const bench *b)
{
    return b->o.mode == LT_MODE_AR ? "ar" : "clip";
}

static lt_status write_files(bench *b, const char *model, const char *family)
{
    char path[4096];
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:i, s:i, s:i, s:s, s:O}", "model", model,
        "family", family, "mode", mode_word(b), "width", b->o.width, "height", b->o.height,
        "num_frames", b->o.num_frames, "num_inference_steps", b->o.num_inference_steps,
        "guidance_scale", b->o.guidance_scale, "clips", b->clips, "seeds", b->seeds, "threads",
        lt_dev_threads(b->dev), "isa", lt_dev_isa(b->dev), "methods", b->methods);
    json_object_set_new(all, "dense", dense_json(b));
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
    b->o.prompt = prompts[0].text;
    b->o.width = set->size.width;
    b->o.height = set->size.height;
    b->o.num_frames = set->num_frames;
    b->o.num_inference_steps = set->num_inference_steps;
    b->o.mode = set->mode.word == LTI_MODE_AR ? LT_MODE_AR : LT_MODE_CLIP;
    b->o.progress = watch;
    b->o.progress_user = b;
    LT_TRY(lt_session_validate(b->ctx, info, &b->o));
    if (b->o.width < LEAST_SIDE || b->o.height < LEAST_SIDE)
        return lti_fail(b->ctx, LT_ERR_ARG,
                        "--size: %dx%d: sides to compare have %d pixels at least", b->o.width,
                        b->o.height, LEAST_SIDE);
    b->seeds = set->seeds;
    b->clips = b->seeds * (int)LT_COUNT(prompts);
    b->frame_bytes = (size_t)b->o.width * (size_t)b->o.height * 3;
    b->bytes = b->frame_bytes * (size_t)b->o.num_frames;
    b->dense = calloc((size_t)b->clips, sizeof *b->dense);
    b->reference = calloc((size_t)b->clips, sizeof *b->reference);
    b->checked = b->o.width == LTI_TOY_SIZE && b->o.height == LTI_TOY_SIZE;
    b->video = malloc(b->bytes);
    b->methods = json_array();
    b->dir = set->out_dir;
    if (!b->dense || !b->reference || !b->video || !b->methods)
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory for %d clips", b->clips);
    return b->dir ? lti_folder_make(b->ctx, b->dir) : LT_OK;
}

static lt_status run(bench *b, const lt_model_options *options)
{
    lt_model_info info;
    LT_TRY(lt_model_probe(&info, b->ctx, options));
    LT_TRY(prepare(b, &info));
    LT_TRY(lt_model_open(&b->model, b->dev, options));
    lti_progress_begin(&b->shown, b->set->quiet);
    const char *model = lti_base_name(options->path);
    printf("%s (%s): mode %s, %dx%d, %d frames, %d steps, guidance %g, %d clips, %s, %d threads\n",
           model, info.family, mode_word(b), b->o.width, b->o.height, b->o.num_frames,
           b->o.num_inference_steps, b->o.guidance_scale, b->clips, lt_dev_isa(b->dev),
           lt_dev_threads(b->dev));
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
    free(b.reference);
    free(b.video);
    json_decref(b.methods);
    lt_model_close(&b.model);
    lt_dev_destroy(&b.dev);
    return s;
}
