/* bench_drift.c: long videos with the monitor off, watching and correcting: what light, colour, sharpness, motion and adherence do over
 * time. Every rollout is one prompt, one seed, one way of going on; all are cut into windows of five seconds. Watching must give the
 * same frames as off, and so must correcting where nothing was done, which is checked here with the first seed by a sum of them (watching: in the first scene). */
#include "examples/bench_drift.h"
#include "examples/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Colour and shape are judged: a ground is a matter of light too. */
static const lti_drift_scene scenes[] = {
    {.name = "still",
     .prompt = "a red ball stands still on green grass",
     .want = {.colour = "red", .shape = "ball"},
     .steady = true},
    {.name = "moving",
     .prompt = "a blue square moves right in front of a plain grey wall",
     .want = {.colour = "blue", .shape = "square"},
     .steady = true},
    {.name = "darkens",
     .prompt = "an orange triangle grows over a checkered floor while the sky darkens",
     .want = {.colour = "orange", .shape = "triangle"}},
    {.name = "brightens",
     .prompt = "a green star moves in a circle on green grass while the sun rises",
     .want = {.colour = "green", .shape = "star"},
     .seconds = 30},
    {.name = "switch",
     .prompt = "a red ball bounces on green grass",
     .second = "a yellow star spins at night",
     .want = {.colour = "red", .shape = "ball"},
     .want_second = {.colour = "yellow", .shape = "star"}}};
static const char default_ways[] = "ar extend extend:naive";

typedef struct bench {
    lt_ctx *ctx;
    const lti_settings *set;
    lt_dev *dev;
    lt_model *model;
    lt_model_info info;
    lti_interrupt *interrupt;
    lti_progress shown;
    double seconds;
    int pairs;    /* of a way and a scene that it draws */
    bool checked; /* frames are of the size that the checker knows */
    const char *dir;
    lti_rollouts all;
} bench;

/* ---- one rollout ---- */

typedef struct taker {
    bench *b;
    lti_drift_rollout *r;
    lt_measure *measure;
    int32_t width, height, fps, frames; /* frames: of the video */
    int32_t window;                     /* frames of a window */
    uint8_t *clip;                      /* of the present window */
    int32_t taken;
    uint8_t *strip;
    double sum[LTI_DRIFT_NUMBERS];
} taker;

static void add_numbers(double sum[LTI_DRIFT_NUMBERS], const lt_picture *p)
{
    const double v[LTI_DRIFT_NUMBERS] = {p->exposure,   p->lightness, p->a,         p->b,
                                         p->saturation, p->contrast,  p->sharpness, p->motion};
    for (int i = 0; i < LTI_DRIFT_NUMBERS; i++)
        sum[i] += v[i];
}

static lt_status end_window(taker *t)
{
    lti_drift_rollout *r = t->r;
    lti_drift_window *more = realloc(r->window, ((size_t)r->windows + 1) * sizeof *more);
    if (!more) return lti_fail(t->b->ctx, LT_ERR_MEM, "no memory for a window");
    r->window = more;
    lti_drift_window *w = &more[r->windows++];
    for (int i = 0; i < LTI_DRIFT_NUMBERS; i++)
        w->v[i] = t->sum[i] / t->taken;
    LT_TRY(lti_backdrop_take(&w->backdrop, t->b->ctx, t->clip, t->taken, t->width, t->height));
    w->adherence = (double)NAN;
    if (t->b->checked) {
        lti_toy got;
        int asked;
        const bool later = r->scene->second && r->windows * LTI_DRIFT_WINDOW > r->seconds / 2;
        LT_TRY(lti_toy_read(&got, t->b->ctx, t->clip, t->taken));
        const int same =
            lti_toy_agree(&got, later ? &r->scene->want_second : &r->scene->want, &asked);
        w->adherence = (double)same / asked;
    }
    memset(t->sum, 0, sizeof t->sum);
    t->taken = 0;
    return LT_OK;
}

/* Some frames side by side. */
static void take_strip(taker *t, const uint8_t *rgb, int64_t number)
{
    if (!t->strip) return;
    for (int k = 0; k < LTI_DRIFT_STRIP; k++) {
        if (number != (int64_t)k * (t->frames - 1) / (LTI_DRIFT_STRIP - 1)) continue;
        for (int y = 0; y < t->height; y++)
            memcpy(t->strip + ((size_t)y * LTI_DRIFT_STRIP + (size_t)k) * (size_t)t->width * 3,
                   rgb + (size_t)y * (size_t)t->width * 3, (size_t)t->width * 3);
    }
}

static lt_status take_frames(taker *t, const lt_frames *f)
{
    const size_t bytes = (size_t)f->width * (size_t)f->height * 3;
    for (int32_t i = 0; i < f->count; i++) {
        lt_picture p;
        const uint8_t *rgb = f->rgb + (size_t)i * bytes;
        LT_TRY(lt_measure_frame(t->measure, &p, rgb));
        if (f->first + i == 0) p.motion = 0;
        add_numbers(t->sum, &p);
        lti_hash_add(&t->r->frames_hash, rgb, bytes);
        take_strip(t, rgb, f->first + i);
        memcpy(t->clip + (size_t)t->taken++ * bytes, rgb, bytes);
        t->r->black += p.black;
        if (t->taken == t->window) LT_TRY(end_window(t));
    }
    return LT_OK;
}

/* A change that the prompt asks for may be going on: correcting then would be to fight it. What comes later is drift as in any scene. */
static bool asked(const taker *t, double second)
{
    const lti_drift_scene *scene = t->r->scene;
    const double from = scene->second ? t->r->seconds / 2 : 0;
    return !scene->steady && second >= from && second < from + LTI_DRIFT_ASKED;
}

static void count_action(taker *t, const lt_drift_vector *v)
{
    lti_drift_rollout *r = t->r;
    const bool begins = v->gain > 0 && !r->acting;
    const double second = (double)v->first_frame / t->fps;
    r->acting = v->gain > 0;
    if (!begins) return;
    if (!r->actions++) r->first_action = second;
    r->false_actions += asked(t, second);
}

static lt_status pull(taker *t, lt_session *s)
{
    lt_frames f;
    lt_status st;
    while ((st = lt_session_next(s, &f)) == LT_OK) {
        LT_TRY(take_frames(t, &f));
        const lt_drift_vector *v = lt_session_drift(s);
        if (v && v->first_frame != t->r->last_vector) {
            t->r->last_vector = v->first_frame;
            count_action(t, v);
            lti_drift_collect(t->r->vectors, s);
        }
    }
    if (st < 0) return st;
    /* a rest of less than half a window says little */
    return t->taken * 2 >= t->window ? end_window(t) : LT_OK;
}

static lt_status run_session(bench *b, taker *t, const lt_session_options *o)
{
    lt_session *s;
    const size_t bytes = (size_t)o->width * (size_t)o->height * 3;
    t->width = o->width;
    t->height = o->height;
    t->fps = o->fps;
    t->frames = o->num_frames;
    t->window = LTI_DRIFT_WINDOW * o->fps;
    t->clip = malloc((size_t)t->window * bytes);
    t->strip = b->dir ? calloc(bytes, LTI_DRIFT_STRIP) : NULL;
    if (!t->clip || (b->dir && !t->strip))
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory for a window of frames");
    LT_TRY(lt_measure_create(&t->measure, b->dev, o->width, o->height));
    LT_TRY(lt_session_create(&s, b->model, o));
    lti_interrupt_watch(b->interrupt, s);
    const lt_status st = pull(t, s);
    lti_interrupt_watch(b->interrupt, NULL);
    lti_progress_clear(&b->shown);
    lt_session_get_report(s, &t->r->report);
    lt_session_destroy(&s);
    return st;
}

static lt_status fill_options(bench *b, lt_session_options *o, lt_cue *cue,
                              const lti_drift_rollout *r)
{
    const lti_settings *set = b->set;
    const bool ar = !strcmp(r->way, "ar");
    *o = lt_session_options_default();
    o->prompt = r->scene->prompt;
    o->width = set->size.width;
    o->height = set->size.height;
    o->num_inference_steps = set->num_inference_steps;
    o->guidance_scale = set->guidance_scale;
    o->fps = b->info.default_fps;
    o->num_frames =
        1 + b->info.frame_scale * (int32_t)(r->seconds * o->fps / b->info.frame_scale + 0.5);
    o->seed = r->seed;
    o->mode = ar ? LT_MODE_AR : LT_MODE_EXTEND;
    o->extend = ar || !strchr(r->way, ':') ? NULL : strchr(r->way, ':') + 1;
    o->drift = (lt_drift_mode)r->mode;
    o->inject = set->inject;
    o->cache = ar ? set->cache : NULL;
    *cue = (lt_cue){.seconds = r->seconds / 2, .prompt = r->scene->second};
    if (r->scene->second) {
        o->timeline = cue;
        o->cues = 1;
    }
    o->progress = lti_progress_show;
    o->progress_user = &b->shown;
    return lt_session_validate(b->ctx, &b->info, o);
}

static lt_status write_strip(bench *b, taker *t)
{
    char path[4096];
    if (!b->dir || t->r->seed != 1) return LT_OK;
    const int n = snprintf(path, sizeof path, "%s/%s", b->dir, t->r->strip);
    if (n < 0 || (size_t)n >= sizeof path)
        return lti_fail(b->ctx, LT_ERR_ARG, "--out-dir: the path is too long");
    return lt_picture_write(b->ctx, path, t->strip, LTI_DRIFT_STRIP * t->width, t->height);
}

static lt_status roll(bench *b, lti_drift_rollout *r)
{
    lt_session_options o;
    lt_cue cue;
    taker t = {.b = b, .r = r};
    lti_hash_begin(&r->frames_hash);
    r->vectors = json_array();
    if (!r->vectors) return lti_fail(b->ctx, LT_ERR_MEM, "no memory for a rollout");
    LT_TRY(fill_options(b, &o, &cue, r));
    snprintf(r->strip, sizeof r->strip, "strip%03d.png", b->all.count - 1);
    lt_status s = run_session(b, &t, &o);
    if (s == LT_OK) s = write_strip(b, &t);
    lt_measure_destroy(&t.measure);
    free(t.clip);
    free(t.strip);
    return s;
}

/* ---- all of them ---- */

static bool left_alone(const lt_session_report *r)
{
    return !r->drift_shifted && !r->drift_redraws && !r->drift_replayed && !r->drift_recached &&
           !r->drift_weighed;
}

/* Watching is off, to the bit, and so is correcting where there was nothing to do. */
static lt_status check_same(bench *b, const lti_drift_rollout *off, const lti_drift_rollout *r)
{
    if (r->mode == LT_DRIFT_CORRECT && !left_alone(&r->report)) return LT_OK;
    if (off->frames_hash.value == r->frames_hash.value) return LT_OK;
    return lti_fail(b->ctx, LT_ERR_NUMERIC, "%s, %s, seed %d: --drift %s has changed the video",
                    r->way, r->scene->name, (int)r->seed, lti_drift_mode_name(r->mode));
}

static void print_rollout(const lti_drift_rollout *r)
{
    const lti_drift_ends e = lti_drift_ends_of(r);
    printf(
        "%-14s %-9s %-8s %4d  %+7.3f %6.2f %+6.2f %+6.2f %5.0f%% %5.0f %5.0f%% %5.0f%% %4lld %5lld "
        "%5lld %5lld %6.2f%%\n",
        r->way, r->scene->name, lti_drift_mode_name(r->mode), (int)r->seed, e.exposure, e.distance,
        e.saturation, e.sharpness, 100 * e.motion, e.holds, 100 * e.adherence_first,
        100 * e.adherence_last, (long long)r->actions, (long long)r->false_actions,
        (long long)r->report.drift_redraws, (long long)r->report.alarms,
        100 * r->report.drift_seconds / r->report.total_seconds);
    fflush(stdout);
}

static double seconds_of(const bench *b, const lti_drift_scene *scene)
{
    return scene->seconds > 0 ? fmin(scene->seconds, b->seconds) : b->seconds;
}

static lt_status add_rollout(bench *b, lti_drift_rollout **out, const char *way,
                             const lti_drift_scene *scene, int mode, uint64_t seed)
{
    if (b->all.count == LTI_DRIFT_ROLLOUTS)
        return lti_fail(b->ctx, LT_ERR_ARG, "more than %d rollouts", LTI_DRIFT_ROLLOUTS);
    lti_drift_rollout *r = *out = &b->all.rollout[b->all.count++];
    *r = (lti_drift_rollout){
        .scene = scene, .mode = mode, .seed = seed, .first_action = -1, .last_vector = -1};
    r->seconds = seconds_of(b, scene);
    snprintf(r->way, sizeof r->way, "%s", way);
    return LT_OK;
}

static void free_rollout(lti_drift_rollout *r)
{
    free(r->window);
    json_decref(r->vectors);
}

static lt_status run_rollout(bench *b, lti_drift_rollout **out, const char *way,
                             const lti_drift_scene *scene, int mode, uint64_t seed)
{
    LT_TRY(add_rollout(b, out, way, scene, mode, seed));
    const lt_status s = roll(b, *out);
    if (s < 0) {
        free_rollout(*out); /* half of one says nothing */
        b->all.count--;
    } else if (mode == LT_DRIFT_OFF) {
        print_rollout(*out);
    }
    return s;
}

/* What was not touched is what it is without: it is not drawn twice. */
static lt_status take_over(bench *b, const lti_drift_rollout *from)
{
    lti_drift_rollout *off = NULL;
    LT_TRY(add_rollout(b, &off, from->way, from->scene, LT_DRIFT_OFF, from->seed));
    const size_t bytes = (size_t)from->windows * sizeof *from->window;
    off->window = malloc(bytes);
    off->vectors = json_array();
    if ((bytes && !off->window) || !off->vectors)
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory for a rollout");
    memcpy(off->window, from->window, bytes);
    off->windows = from->windows;
    off->frames_hash = from->frames_hash;
    off->black = from->black;
    off->report.total_seconds = from->report.total_seconds;
    off->taken_over = true;
    print_rollout(off);
    return LT_OK;
}

/* The first seed both ways, so that each scene shows that what is left alone is the same; watched when nothing of this way was. */
static lt_status run_seed(bench *b, const char *way, const lti_drift_scene *scene, uint64_t seed,
                          bool watched)
{
    lti_drift_rollout *off = NULL, *watch = NULL, *correct = NULL;
    if (seed == 1) LT_TRY(run_rollout(b, &off, way, scene, LT_DRIFT_OFF, seed));
    if (seed == 1 && !watched) {
        LT_TRY(run_rollout(b, &watch, way, scene, LT_DRIFT_WATCH, seed));
        LT_TRY(check_same(b, off, watch));
        print_rollout(watch);
    }
    LT_TRY(run_rollout(b, &correct, way, scene, LT_DRIFT_CORRECT, seed));
    if (off) LT_TRY(check_same(b, off, correct));
    print_rollout(correct);
    if (off) return LT_OK;
    return left_alone(&correct->report) ? take_over(b, correct)
                                        : run_rollout(b, &off, way, scene, LT_DRIFT_OFF, seed);
}

/* Whether `name` is among the words of a list. */
static bool listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

static lt_status check_scenes(lt_ctx *ctx, const char *list)
{
    char text[128];
    if (!list) return LT_OK;
    if (strlen(list) >= sizeof text)
        return lti_fail(ctx, LT_ERR_ARG, "--scenes: more than %zu bytes", sizeof text - 1);
    snprintf(text, sizeof text, "%s", list);
    char *save;
    int known = 0;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        size_t i = 0;
        while (i < LT_COUNT(scenes) && strcmp(scenes[i].name, word) != 0)
            i++;
        if (i == LT_COUNT(scenes))
            return lti_fail(ctx, LT_ERR_ARG, "--scenes: there is no '%.40s'", word);
        known++;
    }
    return known ? LT_OK : lti_fail(ctx, LT_ERR_ARG, "--scenes: none is named");
}

/* One prompt for all segments. */
static bool can_draw(const bench *b, const char *way, const lti_drift_scene *scene)
{
    if (scene->second && strcmp(way, "ar") != 0) return false;
    return !b->set->scenes || listed(b->set->scenes, scene->name);
}

/* What a way says, with every scene that it will draw: the first videos may take hours. */
static lt_status check_way(bench *b, const char *way)
{
    const bool ar = !strcmp(way, "ar");
    const bool extend = !strncmp(way, "extend", 6) && (!way[6] || way[6] == ':');
    lti_drift_rollout r = {.mode = LT_DRIFT_CORRECT, .seed = 1};
    if ((!ar && !extend) || strlen(way) >= sizeof r.way)
        return lti_fail(b->ctx, LT_ERR_ARG, "--methods: '%.40s' is not ar or extend[:KEYS]", way);
    snprintf(r.way, sizeof r.way, "%s", way);
    for (size_t i = 0; i < LT_COUNT(scenes); i++) {
        lt_session_options o;
        lt_cue cue;
        if (!can_draw(b, way, &scenes[i])) continue;
        r.scene = &scenes[i];
        r.seconds = seconds_of(b, r.scene);
        LT_TRY(fill_options(b, &o, &cue, &r));
        b->pairs++;
    }
    return LT_OK;
}

static lt_status run_way(bench *b, const char *way)
{
    bool watched = false;
    for (size_t i = 0; i < LT_COUNT(scenes); i++) {
        if (!can_draw(b, way, &scenes[i])) continue;
        for (uint64_t seed = 1; seed <= (uint64_t)b->set->seeds; seed++)
            LT_TRY(run_seed(b, way, &scenes[i], seed, watched));
        watched = true;
    }
    return LT_OK;
}

static lt_status each_way(bench *b, lt_status (*call)(bench *b, const char *way))
{
    const char *list = b->set->methods ? b->set->methods : default_ways;
    char text[512];
    if (strlen(list) >= sizeof text)
        return lti_fail(b->ctx, LT_ERR_ARG, "--methods: more than %zu bytes", sizeof text - 1);
    snprintf(text, sizeof text, "%s", list);
    char *save;
    for (char *way = strtok_r(text, " ", &save); way; way = strtok_r(NULL, " ", &save))
        LT_TRY(call(b, way));
    return LT_OK;
}

static lt_status check_ways(bench *b)
{
    LT_TRY(each_way(b, check_way));
    if (b->pairs) return LT_OK;
    return lti_fail(b->ctx, LT_ERR_ARG,
                    "--methods, --scenes: no video is asked for (switch is of ar alone)");
}

static lt_status run_all(bench *b)
{
    printf("%-14s %-9s %-8s %4s  %7s %6s %6s %6s %6s %5s %6s %6s %4s %5s %5s %5s %7s\n", "way",
           "scene", "drift", "seed", "EV", "dE", "chroma", "sharp", "motion", "holds", "first",
           "last", "act", "false", "again", "alarm", "cost");
    return each_way(b, run_way);
}

static lt_status prepare(bench *b)
{
    b->seconds = b->set->seconds > 0 ? b->set->seconds : 120;
    if (b->seconds < 3 * LTI_DRIFT_WINDOW)
        return lti_fail(b->ctx, LT_ERR_ARG, "--seconds %g: bench drift needs %d at least",
                        b->seconds, 3 * LTI_DRIFT_WINDOW);
    LT_TRY(check_scenes(b->ctx, b->set->scenes));
    LT_TRY(check_ways(b));
    b->dir = b->set->out_dir;
    const int32_t w = b->set->size.width ? b->set->size.width : b->info.default_width,
                  h = b->set->size.height ? b->set->size.height : b->info.default_height;
    b->checked = w == LTI_TOY_SIZE && h == LTI_TOY_SIZE;
    b->all.rollout = calloc(LTI_DRIFT_ROLLOUTS, sizeof *b->all.rollout);
    if (!b->all.rollout) return lti_fail(b->ctx, LT_ERR_MEM, "no memory for the rollouts");
    return b->dir ? lti_folder_make(b->ctx, b->dir) : LT_OK;
}

static void print_bar(void *user, const lti_drift_bar *bar)
{
    (void)user;
    printf("%s  %-14s %-9s %s: %s\n", bar->verdict, bar->way, bar->scene, bar->asked,
           bar->measured);
}

static lt_status run(bench *b, const lt_model_options *options)
{
    LT_TRY(lt_model_probe(&b->info, b->ctx, options));
    LT_TRY(prepare(b));
    LT_TRY(lt_model_open(&b->model, b->dev, options));
    lti_progress_begin(&b->shown, b->set->quiet);
    b->all.model = lti_base_name(options->path);
    b->all.family = b->info.family;
    b->all.seconds = b->seconds;
    b->all.inject = b->set->inject;
    printf("%s (%s): %g s of each, %d seeds, %s, %d threads; last 10 s less the first\n",
           b->all.model, b->info.family, b->seconds, b->set->seeds, lt_dev_isa(b->dev),
           lt_dev_threads(b->dev));
    const lt_status s = run_all(b);
    if (s < 0 && !b->all.count) return s;
    puts(""); /* whatever ended it, hours of videos that are whole are told of */
    lti_drift_bars(&b->all, print_bar, NULL);
    LT_TRY(lti_drift_write(b->ctx, b->set, &b->all));
    return s;
}

lt_status lti_bench_drift(lt_ctx *ctx, const lti_settings *set, lti_interrupt *interrupt)
{
    lt_model_options options;
    lti_model_path path;
    bench b = {.ctx = ctx, .set = set, .interrupt = interrupt};
    LT_TRY(lti_model_find(&options, &path, ctx, set));
    LT_TRY(lti_device_open(&b.dev, ctx, set));
    const lt_status s = run(&b, &options);
    for (int i = 0; i < b.all.count; i++)
        free_rollout(&b.all.rollout[i]);
    free(b.all.rollout);
    lt_model_close(&b.model);
    lt_dev_destroy(&b.dev);
    return s;
}
