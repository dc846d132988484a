/* bench_search.c: which window of sta suits which head of a model: clips of a few prompts, drawn with dense attention while every
 * window that reads as many boxes as the given one is compared with it; the nearest of every layer and head goes into a file. Its prompts
 * are not those of bench quality, so that the file can be judged there. */
#include "attention/attention.h"
#include "examples/bench.h"

#include <stdlib.h>
#include <string.h>

static const char *const prompts[] = {"a green ball moves in a circle at night",
                                      "a purple square gets bigger over a checkered floor",
                                      "a turquoise triangle sinks in a sunset sky"};
static const char default_window[] = "sta:window=5x3x3";

typedef struct search {
    lt_ctx *ctx;
    const lti_settings *set;
    lt_dev *dev;
    lt_model *model;
    lti_interrupt *interrupt;
    lti_progress shown;
    lt_session_options o;
    lt_window_search *windows;
} search;

static lt_status render(search *b, const char *prompt, uint64_t seed)
{
    lt_session *s;
    lt_frames f;
    lt_session_options o = b->o;
    o.prompt = prompt;
    o.seed = seed;
    LT_TRY(lt_session_create(&s, b->model, &o));
    lti_interrupt_watch(b->interrupt, s);
    const lt_status st = lt_session_next(s, &f); /* all of it is denoised before the first frame */
    lti_interrupt_watch(b->interrupt, NULL);
    lti_progress_clear(&b->shown);
    lt_session_destroy(&s);
    return st < 0 ? st : LT_OK;
}

static lt_status write_file(const search *b, const char *path, const lt_window_choice *c,
                            int32_t layers, int32_t heads)
{
    FILE *f = lti_text_create(b->ctx, path);
    if (!f) return LT_ERR_IO;
    fprintf(f, "# longtake bench attention --search: %dx%d, %d frames, %s\nwindows %d %d\n",
            b->o.width, b->o.height, b->o.num_frames, b->o.attention, layers, heads);
    for (int32_t i = 0; i < layers * heads; i++)
        fprintf(f, "%dx%dx%d%c", c[i].side[0], c[i].side[1], c[i].side[2],
                (i + 1) % heads ? ' ' : '\n');
    return lti_text_end(f, b->ctx, path, LT_OK);
}

static lt_status report(const search *b, const char *path)
{
    int32_t layers, heads;
    const lt_window_choice *c = lt_window_search_result(b->windows, &layers, &heads);
    double part = 0, error = 0, given = 0;
    const double n = (double)layers * heads;
    json_t *rows = json_array();
    printf("%5s %5s %10s %7s %9s %9s\n", "layer", "head", "window", "boxes", "error", "given");
    for (int32_t i = 0; i < layers * heads; i++) {
        char text[48];
        snprintf(text, sizeof text, "%dx%dx%d", c[i].side[0], c[i].side[1], c[i].side[2]);
        printf("%5d %5d %10s %6.1f%% %9.5f %9.5f\n", i / heads, i % heads, text, 100 * c[i].part,
               c[i].error, c[i].given);
        json_array_append_new(rows, json_pack("{s:i, s:i, s:s, s:f, s:f, s:f}", "layer", i / heads,
                                              "head", i % heads, "window", text, "boxes", c[i].part,
                                              "error", c[i].error, "given_error", c[i].given));
        part += c[i].part / n;
        error += c[i].error / n;
        given += c[i].given / n;
    }
    printf("mean: %.1f%% of the boxes, error %.5f; %s for all: %.5f\n", 100 * part, error,
           b->o.attention, given);
    lt_status s = write_file(b, path, c, layers, heads);
    json_t *all = json_pack("{s:s, s:f, s:f, s:f, s:O}", "given", b->o.attention, "boxes", part,
                            "error", error, "given_error", given, "heads", rows);
    if (s == LT_OK && b->set->json_file) s = lti_json_write(b->ctx, b->set->json_file, all);
    json_decref(all);
    json_decref(rows);
    if (s == LT_OK) printf("%s\n", path);
    return s;
}

static lt_status run(search *b, const lt_model_options *options)
{
    const lti_settings *set = b->set;
    lt_model_info info;
    LT_TRY(lt_model_probe(&info, b->ctx, options));
    b->o = lt_session_options_default();
    b->o.prompt = prompts[0];
    b->o.width = set->size.width;
    b->o.height = set->size.height;
    b->o.num_frames = set->num_frames;
    b->o.num_inference_steps = set->num_inference_steps;
    b->o.mode = LT_MODE_CLIP;
    b->o.attention = set->methods ? set->methods : default_window;
    b->o.search = b->windows;
    b->o.progress = lti_progress_show;
    b->o.progress_user = &b->shown;
    LT_TRY(lt_session_validate(b->ctx, &info, &b->o));
    LT_TRY(lt_model_open(&b->model, b->dev, options));
    lti_progress_begin(&b->shown, set->quiet);
    for (int32_t i = 0; i < set->seeds * (int32_t)LT_COUNT(prompts); i++)
        LT_TRY(render(b, prompts[(size_t)i % LT_COUNT(prompts)],
                      (uint64_t)i / LT_COUNT(prompts) + 101));
    return report(b, set->search);
}

lt_status lti_bench_search(lt_ctx *ctx, const lti_settings *set, lti_interrupt *interrupt)
{
    lt_model_options options;
    lti_model_path path;
    search b = {.ctx = ctx, .set = set, .interrupt = interrupt};
    LT_TRY(lti_json_check(ctx, set->search, true)); /* a bad place is known before the renders */
    LT_TRY(lti_model_find(&options, &path, ctx, set));
    LT_TRY(lti_device_open(&b.dev, ctx, set));
    lt_status s = lt_window_search_create(&b.windows, ctx);
    if (s == LT_OK) s = run(&b, &options);
    lt_model_close(&b.model);
    lt_window_search_destroy(&b.windows);
    lt_dev_destroy(&b.dev);
    return s;
}
