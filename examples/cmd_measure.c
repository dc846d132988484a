/* cmd_measure.c: longtake measure FILE: light, colour, sharpness, motion of any video over time, and what the drift monitor says of it. */
#include "examples/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "measure FILE [options]\n\n"
    "What any video is like, second by second: exposure (EV; 0 is a white picture), contrast\n"
    "(deviation of luma), lightness and colour (CIELAB), saturation (mean chroma), sharpness (part "
    "of\n"
    "the detail that is fine), motion (rms difference of luma from frame to frame); then how the\n"
    "end differs from the beginning, flicker, black and frozen frames, and where the drift "
    "monitor\n"
    "of `render --drift` would have acted.";

/* Per second, then of the first and last ten. */
typedef struct row {
    lt_picture sum;
    int32_t frames;
} row;

typedef struct tool {
    lt_ctx *ctx;
    const lti_settings *set;
    lt_dev *dev;
    lt_reader *reader;
    lt_monitor *monitor;
    double fps;
    int32_t step; /* frames from one that the monitor sees to the next */
    row *rows;
    int64_t seconds, room, frames;
    double *luma; /* of every frame */
    int64_t luma_room;
    int64_t black, blown, frozen, still_most;
    int64_t acted, alarms, shots, vectors;
    json_t *marks; /* where the monitor would have acted */
    bool acting;
    double exposure_most;
} tool;

static void add_picture(row *r, const lt_picture *p)
{
    double *const to[] = {&r->sum.luma,      &r->sum.exposure, &r->sum.contrast, &r->sum.range,
                          &r->sum.lightness, &r->sum.a,        &r->sum.b,        &r->sum.saturation,
                          &r->sum.sharpness, &r->sum.motion,   &r->sum.clipped,  &r->sum.crushed};
    const double from[] = {p->luma,      p->exposure, p->contrast, p->range,
                           p->lightness, p->a,        p->b,        p->saturation,
                           p->sharpness, p->motion,   p->clipped,  p->crushed};
    for (size_t i = 0; i < LT_COUNT(to); i++)
        *to[i] += from[i];
    r->frames++;
}

static lt_picture mean_of(const row *r)
{
    lt_picture p = r->sum;
    double *const v[] = {&p.luma, &p.exposure,   &p.contrast,  &p.range,  &p.lightness, &p.a,
                         &p.b,    &p.saturation, &p.sharpness, &p.motion, &p.clipped,   &p.crushed};
    for (size_t i = 0; i < LT_COUNT(v); i++)
        *v[i] /= r->frames ? r->frames : 1;
    return p;
}

/* ---- reading ---- */

static lt_status make_room(tool *t)
{
    const int64_t second = (int64_t)((double)t->frames / t->fps);
    if (t->frames == t->luma_room) {
        const int64_t room = t->luma_room ? 2 * t->luma_room : 4096;
        double *more = realloc(t->luma, (size_t)room * sizeof *more);
        if (!more)
            return lti_fail(t->ctx, LT_ERR_MEM, "no memory for %lld frames", (long long)room);
        t->luma = more;
        t->luma_room = room;
    }
    if (second < t->room) return LT_OK;
    const int64_t room = t->room ? 2 * t->room : 256;
    row *more = realloc(t->rows, (size_t)room * sizeof *more);
    if (!more) return lti_fail(t->ctx, LT_ERR_MEM, "no memory for %lld seconds", (long long)room);
    memset(more + t->room, 0, (size_t)(room - t->room) * sizeof *more);
    t->rows = more;
    t->room = room;
    return LT_OK;
}

static void count(tool *t, const lt_picture *p)
{
    t->luma[t->frames] = p->luma;
    t->seconds = (int64_t)((double)t->frames / t->fps) + 1;
    add_picture(&t->rows[t->seconds - 1], p);
    t->black += p->black;
    t->blown += p->blown;
    t->frozen += p->still >= 4;
    if (p->still > t->still_most) t->still_most = p->still;
}

static void judge(tool *t, const lt_drift_vector *v)
{
    const bool acts = v->gain > 0;
    t->vectors++;
    t->shots = v->shot;
    t->alarms += v->alarm;
    t->acted += acts && !t->acting;
    if (fabs(v->exposure) > t->exposure_most) t->exposure_most = fabs(v->exposure);
    if (acts && !t->acting)
        json_array_append_new(t->marks,
                              json_pack("{s:f, s:s, s:f, s:f, s:f}", "seconds",
                                        (double)(v->first_frame * t->step) / t->fps, "kind",
                                        lt_drift_kind_name(v->kind), "level", v->level,
                                        "exposure_ev", v->exposure, "delta_e", v->distance));
    t->acting = acts;
}

/* Every frame is measured by one object and every step-th by the monitor's: motion there is over a step, as in a session. */
static lt_status read_all(tool *t, lt_measure *m)
{
    const uint8_t *rgb;
    lt_status s;
    while ((s = lt_reader_next(t->reader, &rgb)) == LT_OK) {
        lt_picture p;
        lt_drift_vector v;
        LT_TRY(make_room(t));
        LT_TRY(lt_measure_frame(m, &p, rgb));
        count(t, &p);
        if (t->frames++ % t->step) continue;
        s = lt_monitor_frame(t->monitor, &v, NULL, rgb);
        LT_TRY(s);
        if (s == LT_OK) judge(t, &v);
    }
    if (s < 0) return s;
    return t->frames ? LT_OK : lti_fail(t->ctx, LT_ERR_FORMAT, "no frame can be read");
}

/* ---- telling ---- */

/* Of less than a frame a second some have none. */
static void add_second(row *sum, const row *second)
{
    const lt_picture p = mean_of(second);
    if (second->frames) add_picture(sum, &p);
}

/* The first and last ten seconds, or a third each of what is shorter. */
static void ends_of(const tool *t, lt_picture *first, lt_picture *last)
{
    row a = {{0}, 0}, b = {{0}, 0};
    const int64_t n = t->seconds >= 30 ? 10 : t->seconds < 3 ? 1 : t->seconds / 3;
    for (int64_t i = 0; i < n; i++) {
        add_second(&a, &t->rows[i]);
        add_second(&b, &t->rows[t->seconds - 1 - i]);
    }
    *first = mean_of(&a);
    *last = mean_of(&b);
}

static json_t *drift_json(const tool *t)
{
    lt_picture a, b;
    ends_of(t, &a, &b);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "exposure_ev", b.exposure - a.exposure,
                     "delta_e", lt_colour_distance(&a, &b), "contrast_ln",
                     a.contrast > 1e-4 && b.contrast > 1e-4 ? log(b.contrast / a.contrast) : 0,
                     "saturation", b.saturation - a.saturation, "sharpness_log2",
                     a.sharpness > 1e-4 && b.sharpness > 1e-4 ? log2(b.sharpness / a.sharpness) : 0,
                     "motion_ratio", a.motion > 0 ? b.motion / a.motion : 1);
}

/* The period of 2 to 24 frames at which luma pulses most, above what noise leaves there. */
static double worst_flicker(const tool *t, int32_t *period)
{
    double worst = 0;
    *period = 0;
    for (int32_t p = 2; p <= 24; p++) {
        const double f = lt_flicker(t->luma, t->frames, p);
        if (f > worst * 1.05) {
            worst = f;
            *period = p;
        }
    }
    return worst;
}

static json_t *all_json(const tool *t, int32_t width, int32_t height)
{
    int32_t period;
    const double flicker = worst_flicker(t, &period);
    json_t *seconds = json_array();
    for (int64_t i = 0; i < t->seconds; i++) {
        const lt_picture p = mean_of(&t->rows[i]);
        json_array_append_new(seconds, t->rows[i].frames ? lti_picture_json(&p) : json_null());
    }
    return json_pack(
        "{s:i, s:i, s:f, s:I, s:o, s:o, s:{s:f, s:i}, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, "
        "s:f, s:O}}",
        "width", width, "height", height, "fps", t->fps, "frames", (json_int_t)t->frames, "seconds",
        seconds, "change", drift_json(t), "flicker", "luma", flicker, "period_frames", period,
        "black_frames", (json_int_t)t->black, "blown_frames", (json_int_t)t->blown, "frozen_frames",
        (json_int_t)t->frozen, "longest_still_frames", (json_int_t)t->still_most, "monitor",
        "vectors", (json_int_t)t->vectors, "shots", (json_int_t)t->shots, "actions",
        (json_int_t)t->acted, "alarms", (json_int_t)t->alarms, "exposure_ev_max", t->exposure_most,
        "would_act", t->marks);
}

static void print_rows(const tool *t, bool csv)
{
    if (csv)
        puts("second,exposure_ev,contrast,lightness,a,b,saturation,sharpness,motion,clipped,"
             "crushed");
    else
        printf("%7s %9s %9s %9s %7s %7s %7s %9s %8s %8s %8s\n", "second", "EV", "contrast", "L*",
               "a*", "b*", "chroma", "sharpness", "motion", "clipped", "crushed");
    for (int64_t i = 0; i < t->seconds; i++) {
        const lt_picture p = mean_of(&t->rows[i]);
        const double v[] = {p.exposure,   p.contrast,  p.lightness, p.a,       p.b,
                            p.saturation, p.sharpness, p.motion,    p.clipped, p.crushed};
        static const int width[] = {9, 9, 9, 7, 7, 7, 9, 8, 8, 8},
                         digits[] = {3, 4, 2, 2, 2, 2, 4, 4, 4, 4};
        if (!t->rows[i].frames) continue;
        printf(csv ? "%lld" : "%7lld", (long long)i);
        for (size_t k = 0; k < LT_COUNT(v); k++)
            if (csv)
                printf(",%.*f", digits[k] + 1, v[k]);
            else
                printf(" %*.*f", width[k], digits[k], v[k]);
        putchar('\n');
    }
}

static void print_end(const tool *t)
{
    lt_picture a, b;
    int32_t period;
    ends_of(t, &a, &b);
    const double flicker = worst_flicker(t, &period);
    printf("\nend less beginning: %+.3f EV, %.2f Delta E, chroma %+.2f; motion %.0f %%\n",
           b.exposure - a.exposure, lt_colour_distance(&a, &b), b.saturation - a.saturation,
           a.motion > 0 ? 100 * b.motion / a.motion : 100);
    printf("flicker: luma %.5f at a period of %d frames\n", flicker, period);
    printf("frames: %lld black, %lld blown out, %lld frozen (longest still %lld)\n",
           (long long)t->black, (long long)t->blown, (long long)t->frozen,
           (long long)t->still_most);
    printf("monitor: %lld shots, would have acted %lld times, %lld alarms\n", (long long)t->shots,
           (long long)t->acted, (long long)t->alarms);
    for (size_t i = 0; i < json_array_size(t->marks); i++) {
        const json_t *m = json_array_get(t->marks, i);
        printf("  at %.2f s: %s, level %.2f, %+.3f EV, %.2f Delta E\n",
               json_real_value(json_object_get(m, "seconds")),
               json_string_value(json_object_get(m, "kind")),
               json_real_value(json_object_get(m, "level")),
               json_real_value(json_object_get(m, "exposure_ev")),
               json_real_value(json_object_get(m, "delta_e")));
    }
}

static lt_status print_all(const tool *t, int32_t width, int32_t height)
{
    if (!t->set->json && !t->set->print_csv) {
        print_rows(t, false);
        print_end(t);
        return LT_OK;
    }
    if (t->set->print_csv) {
        print_rows(t, true);
        return LT_OK;
    }
    json_t *all = all_json(t, width, height);
    char *text = all ? json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(all);
    if (!text) return lti_fail(t->ctx, LT_ERR_MEM, "no memory for the measures");
    puts(text);
    free(text);
    return LT_OK;
}

/* ---- the whole ---- */

static lt_status open_all(tool *t, const char *path, int32_t *width, int32_t *height)
{
    lt_media_info info;
    LT_TRY(lt_media_inspect(&info, t->ctx, path));
    *width = info.width;
    *height = info.height;
    lt_media_info_free(&info);
    lt_reader_options o = lt_reader_options_default();
    o.path = path;
    o.width = *width;
    o.height = *height;
    LT_TRY(lt_reader_create(&t->reader, t->ctx, &o));
    t->fps = lt_reader_source_fps(t->reader);
    if (!(t->fps > 0.01 && t->fps < 1000))
        return lti_fail(t->ctx, LT_ERR_FORMAT, "'%s': %g frames a second", path, t->fps);
    t->step = (int32_t)fmax(
        1, floor(t->fps / 4 + 0.5)); /* four a second, in threes: as toybox's blocks */
    t->marks = json_array();
    if (!t->marks) return lti_fail(t->ctx, LT_ERR_MEM, "no memory for the measures");
    return lt_monitor_create(&t->monitor, t->dev, *width, *height, t->step / t->fps, 3);
}

static lt_status measure(lt_ctx *ctx, const lti_settings *set, const lti_positional *pos)
{
    tool t = {.ctx = ctx, .set = set};
    int32_t width, height;
    lt_measure *m = NULL;
    if (pos->count != 1)
        return lti_fail(ctx, LT_ERR_ARG, "measure: one video is wanted, %d given", pos->count);
    if (set->json && set->print_csv)
        return lti_fail(ctx, LT_ERR_ARG, "measure: --json and --csv: one of the two");
    lt_dev_options d = lt_dev_options_default();
    d.device = "cpu";
    LT_TRY(lt_dev_create(&t.dev, ctx, &d));
    lt_status s = open_all(&t, pos->text[0], &width, &height);
    if (s >= 0) s = lt_measure_create(&m, t.dev, width, height);
    if (s >= 0) s = read_all(&t, m);
    if (s >= 0) s = print_all(&t, width, height);
    lt_measure_destroy(&m);
    lt_monitor_destroy(&t.monitor);
    lt_reader_destroy(&t.reader);
    json_decref(t.marks);
    free(t.luma);
    free(t.rows);
    lt_dev_destroy(&t.dev);
    return s < 0 ? s : LT_OK;
}

int lti_cmd_measure(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lt_status s = lti_begin(ctx, LTI_MEASURE, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done) s = measure(ctx, &set, &pos);
    return lti_exit(ctx, s);
}
