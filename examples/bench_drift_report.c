/* bench_drift_report.c: what bench drift has measured, as JSON, as a table, and as a page with curves and contact sheets. */
#include "examples/bench_drift.h"
#include "examples/report_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const numbers[] = {"exposure_ev", "lightness", "a",         "b",
                                      "chroma",      "contrast",  "sharpness", "motion"};

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *ends_json(const lti_drift_ends *e)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f, s:s?}", "exposure_ev",
                     e->exposure, "delta_e", e->distance, "picture_delta_e", e->picture, "chroma",
                     e->saturation, "contrast_ln", e->contrast, "sharpness_log2", e->sharpness,
                     "motion_ratio", e->motion, "adherence_first", real_or_null(e->adherence_first),
                     "adherence_last", real_or_null(e->adherence_last), "parts_of_bounds",
                     e->way_off, "holds_seconds", e->holds, "breaks_by", e->breaks);
}

static json_t *windows_json(const lti_drift_rollout *r)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < r->windows; i++) {
        json_t *w = json_pack("{s:i}", "second", i * LTI_DRIFT_WINDOW);
        for (int k = 0; k < LTI_DRIFT_NUMBERS; k++)
            json_object_set_new(w, numbers[k], json_real(r->window[i].v[k]));
        json_object_set_new(w, "backdrop_ev", json_real(lti_drift_at(r, LTI_DRIFT_EV, i)));
        json_object_set_new(w, "backdrop_delta_e", json_real(lti_drift_at(r, LTI_DRIFT_L, i)));
        json_object_set_new(w, "adherence", real_or_null(r->window[i].adherence));
        json_array_append_new(list, w);
    }
    return list;
}

static json_t *rollout_json(const lti_drift_rollout *r)
{
    const lti_drift_ends e = lti_drift_ends_of(r);
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:I, s:I, s:f, s:I, s:o, s:f, s:b, s:O}",
                     "way", r->way, "scene", r->scene->name, "drift", lti_drift_mode_name(r->mode),
                     "seed", (json_int_t)r->seed, "change", ends_json(&e), "windows",
                     windows_json(r), "actions", (json_int_t)r->actions, "false_actions",
                     (json_int_t)r->false_actions, "first_action_seconds", r->first_action,
                     "black_frames", (json_int_t)r->black, "monitor", lti_drift_summary(&r->report),
                     "total_seconds", r->report.total_seconds, "taken_over", r->taken_over,
                     "vectors", r->vectors);
}

/* ---- a class: one way, one mode, over scenes and seeds ---- */

typedef struct class_row {
    lti_spread exposure, distance, picture, saturation, sharpness, motion, holds, first, last,
        actions, false_actions, alarms, cost, seconds;
} class_row;

static class_row class_of(const lti_rollouts *all, const char *way, const char *scene, int mode)
{
    class_row c = {0};
    for (int i = 0; i < all->count; i++) {
        const lti_drift_rollout *r = &all->rollout[i];
        if (r->mode != mode || strcmp(r->way, way) || strcmp(r->scene->name, scene)) continue;
        const lti_drift_ends e = lti_drift_ends_of(r);
        lti_spread_add(&c.exposure, fabs(e.exposure));
        lti_spread_add(&c.distance, e.distance);
        lti_spread_add(&c.picture, e.picture);
        lti_spread_add(&c.saturation, e.saturation);
        lti_spread_add(&c.sharpness, e.sharpness);
        lti_spread_add(&c.motion, e.motion);
        lti_spread_add(&c.holds, e.holds);
        lti_spread_add(&c.first, e.adherence_first);
        lti_spread_add(&c.last, e.adherence_last);
        lti_spread_add(&c.actions, (double)r->actions);
        lti_spread_add(&c.false_actions, (double)r->false_actions);
        lti_spread_add(&c.alarms, (double)r->report.alarms);
        lti_spread_add(&c.cost, r->report.drift_seconds / r->report.total_seconds);
        lti_spread_add(&c.seconds, r->report.total_seconds);
    }
    lti_spread *const v[] = {&c.exposure,      &c.distance, &c.picture, &c.saturation, &c.sharpness,
                             &c.motion,        &c.holds,    &c.first,   &c.last,       &c.actions,
                             &c.false_actions, &c.alarms,   &c.cost,    &c.seconds};
    for (size_t i = 0; i < LT_COUNT(v); i++)
        lti_spread_end(v[i]);
    return c;
}

/* Calls back for every way and scene there is, in order. */
static bool first_of(const lti_rollouts *all, int i)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(all->rollout[k].way, all->rollout[i].way) &&
            all->rollout[k].scene == all->rollout[i].scene)
            return false;
    return true;
}

static bool first_way(const lti_rollouts *all, int i)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(all->rollout[k].way, all->rollout[i].way)) return false;
    return true;
}

static void put_spread(FILE *f, const lti_spread *s, int digits, double scale)
{
    if (!s->n)
        fputs("<td>", f);
    else
        fprintf(f, "<td>%.*f &plusmn; %.*f", digits, scale * s->mean, digits, scale * s->sd);
}

static void put_table(FILE *f, const lti_rollouts *all)
{
    fputs("<table><tr><th>way<th>scene<th>drift<th>|EV|<th>Delta E<th>of whole "
          "pictures<th>chroma<th>sharpness "
          "log2<th>motion %<th>holds s<th>adherence first %<th>last %<th>actions<th>of them "
          "false<th>alarms<th>cost "
          "%<th>seconds</tr>\n",
          f);
    for (int i = 0; i < all->count; i++) {
        const lti_drift_rollout *r = &all->rollout[i];
        if (!first_of(all, i)) continue;
        for (int mode = 0; mode < LTI_DRIFT_MODES; mode++) {
            const class_row c = class_of(all, r->way, r->scene->name, mode);
            fputs("<tr><td><code>", f);
            lti_html_text(f, r->way);
            fprintf(f, "</code><td>%s<td>%s", r->scene->name, lti_drift_mode_name(mode));
            put_spread(f, &c.exposure, 3, 1);
            put_spread(f, &c.distance, 2, 1);
            put_spread(f, &c.picture, 2, 1);
            put_spread(f, &c.saturation, 2, 1);
            put_spread(f, &c.sharpness, 2, 1);
            put_spread(f, &c.motion, 0, 100);
            put_spread(f, &c.holds, 0, 1);
            put_spread(f, &c.first, 0, 100);
            put_spread(f, &c.last, 0, 100);
            put_spread(f, &c.actions, 1, 1);
            put_spread(f, &c.false_actions, 1, 1);
            put_spread(f, &c.alarms, 1, 1);
            put_spread(f, &c.cost, 2, 100);
            put_spread(f, &c.seconds, 1, 1);
            fputs("</tr>\n", f);
        }
    }
    fputs("</table>\n", f);
}

static void put_bar(void *user, const lti_drift_bar *bar)
{
    FILE *f = user;
    fputs("<tr><td><code>", f);
    lti_html_text(f, bar->way);
    fprintf(f, "</code><td>%s<td>%s<td>", bar->scene, bar->asked);
    lti_html_text(f, bar->measured);
    fprintf(f, "<td><b>%s</b></tr>\n", bar->verdict);
}

static void put_bars(FILE *f, const lti_rollouts *all)
{
    fputs("<table><tr><th>way<th>scene<th>asked<th>measured<th></tr>\n", f);
    lti_drift_bars(all, put_bar, f);
    fputs("</table>\n", f);
}

static void add_bar(void *user, const lti_drift_bar *bar)
{
    json_array_append_new(user, json_pack("{s:s, s:s, s:s, s:s, s:s}", "way", bar->way, "scene",
                                          bar->scene, "asked", bar->asked, "measured",
                                          bar->measured, "verdict", bar->verdict));
}

/* ---- curves ---- */

enum { MAX_WINDOWS = 720 };

typedef struct curve {
    double x[MAX_WINDOWS], y[MAX_WINDOWS], error[MAX_WINDOWS];
    int32_t n;
} curve;

static void make_curve(curve *c, const lti_rollouts *all, const char *way, const char *scene,
                       int mode, int which)
{
    c->n = 0;
    for (int32_t i = 0; i < MAX_WINDOWS; i++) {
        lti_spread s = {0};
        for (int k = 0; k < all->count; k++) {
            const lti_drift_rollout *r = &all->rollout[k];
            if (r->mode == mode && !strcmp(r->way, way) && !strcmp(r->scene->name, scene) &&
                i < r->windows)
                lti_spread_add(&s, lti_drift_at(r, which, i));
        }
        if (!s.n) break;
        lti_spread_end(&s);
        c->x[i] = (i + 0.5) * LTI_DRIFT_WINDOW;
        c->y[i] = s.mean;
        c->error[i] = s.sd;
        c->n = i + 1;
    }
}

static const struct {
    int which;
    const char *name;
} plots[] = {{LTI_DRIFT_EV, "exposure of the backdrop, EV"},
             {LTI_DRIFT_L, "colour of the backdrop, Delta E"},
             {LTI_DRIFT_CHROMA, "chroma less that of the first window"},
             {LTI_DRIFT_SPREAD, "contrast of the backdrop, ln of the ratio"},
             {LTI_DRIFT_SHARP, "sharpness, log2 of the ratio"},
             {LTI_DRIFT_MOVES, "motion, ratio"},
             {-1, "adherence (colour, shape)"}};

static lt_status put_plots(FILE *f, lt_ctx *ctx, const lti_rollouts *all,
                           const lti_drift_rollout *r)
{
    /* watching is off, so two lines are enough */
    static const int shown[] = {LT_DRIFT_OFF, LT_DRIFT_CORRECT};
    curve *c = calloc(LT_COUNT(shown), sizeof *c);
    if (!c) return lti_fail(ctx, LT_ERR_MEM, "no memory for curves");
    fputs("<div class='plots'>", f);
    for (size_t p = 0; p < LT_COUNT(plots); p++) {
        lti_series s[LT_COUNT(shown)];
        for (size_t m = 0; m < LT_COUNT(shown); m++) {
            make_curve(&c[m], all, r->way, r->scene->name, shown[m], plots[p].which);
            s[m] = (lti_series){.name = lti_drift_mode_name(shown[m]),
                                .x = c[m].x,
                                .y = c[m].y,
                                .error = c[m].error,
                                .n = c[m].n,
                                .line = true};
        }
        lti_html_plot(f,
                      &(lti_plot){.title = plots[p].name,
                                  .x_name = "seconds",
                                  .y_name = "mean and spread over seeds"},
                      s, LT_COUNT(shown));
    }
    fputs("</div>\n", f);
    free(c);
    return LT_OK;
}

static lt_status put_strips(FILE *f, lt_ctx *ctx, const lti_rollouts *all,
                            const lti_drift_rollout *like, const char *dir)
{
    char path[4096], caption[160];
    for (int i = 0; i < all->count; i++) {
        const lti_drift_rollout *r = &all->rollout[i];
        if (r->seed != 1 || r->mode == LT_DRIFT_WATCH || strcmp(r->way, like->way) ||
            r->scene != like->scene)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, r->strip);
        snprintf(caption, sizeof caption, "%s, %s, drift %s: seed 1, evenly over %g s", r->way,
                 r->scene->name, lti_drift_mode_name(r->mode), r->seconds);
        LT_TRY(lti_html_picture(f, ctx, path, caption));
    }
    return LT_OK;
}

static lt_status put_scenes(FILE *f, lt_ctx *ctx, const lti_rollouts *all, const char *dir)
{
    for (int i = 0; i < all->count; i++) {
        const lti_drift_rollout *r = &all->rollout[i];
        if (first_way(all, i)) {
            fputs("<h2><code>", f);
            lti_html_text(f, r->way);
            fputs("</code></h2>\n", f);
        }
        if (!first_of(all, i)) continue;
        fputs("<h3>", f);
        lti_html_text(f, r->scene->prompt);
        if (r->scene->second) {
            fputs(" &rarr; ", f);
            lti_html_text(f, r->scene->second);
        }
        fputs("</h3>\n", f);
        LT_TRY(put_plots(f, ctx, all, r));
        LT_TRY(put_strips(f, ctx, all, r, dir));
    }
    return LT_OK;
}

static lt_status write_page(lt_ctx *ctx, const lti_rollouts *all, const char *dir)
{
    char path[4096];
    FILE *f;
    const int n = snprintf(path, sizeof path, "%s/drift.html", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return lti_fail(ctx, LT_ERR_ARG, "--out-dir: the path is too long");
    LT_TRY(lti_html_begin(&f, ctx, path, "Drift of long videos"));
    fputs("<p>", f);
    lti_html_text(f, all->model);
    fprintf(f,
            ": videos of %g s (brightens: 30 at most), measured in windows of %d s. |EV|, Delta E "
            "and contrast are of the backdrop, so that an object that leaves or grows is no drift: "
            "of every cell of 16 x 16 the median over a window's frames, and of the differences"
            " the median over cells (contrast: from the darkest quarter to the lightest); the "
            "last ten seconds of a video against its first ten. Of whole pictures: of means of "
            "all pixels. Where a prompt asks for a change (darkens, brightens, switch) the "
            "beginning is what is there %d s later. Motion (RMS of luma from frame to frame) "
            "and adherence (colour and shape as a program finds them) are of half a minute in "
            "place of ten seconds: an object comes and goes. Means and standard deviations over"
            " seeds. Watching gave the same frames as off (checked with the first scene and "
            "seed), and so did correcting where it found nothing to do (checked with the first "
            "seed of every scene; not drawn twice for the others). A video that stands still "
            "has no drift: look at motion beside it. It holds until a window is 0.4 EV, 6 Delta"
            " E, a fifth of the contrast or 0.6 octaves of sharpness from the beginning, or to "
            "the end. An action is a stretch of time in which something is taken off; it is "
            "false when it begins within those seconds of a prompt that asks for a change, "
            "since that is wanted; later the same scene can drift as any other. Cost is "
            "measuring and correcting over the whole time. In the first table, exposure and "
            "colour pass when every seed does, the rest by means; same: nothing was done, or "
            "off and corrected both stay within a quarter of the bounds, which is no drift; "
            "told: no bound is asked.",
            all->seconds, LTI_DRIFT_WINDOW, LTI_DRIFT_ASKED);
    if (all->inject) {
        fputs(" Fault put in: <code>", f);
        lti_html_text(f, all->inject);
        fputs("</code>.", f);
    }
    fputs("</p>\n", f);
    put_bars(f, all);
    put_table(f, all);
    lt_status s = lti_html_end(f, ctx, path, put_scenes(f, ctx, all, dir));
    if (s == LT_OK) printf("%s\n", path);
    return s;
}

/* ---- files ---- */

static lt_status write_csv(lt_ctx *ctx, const char *path, const lti_rollouts *all)
{
    FILE *f = lti_text_create(ctx, path);
    if (!f) return LT_ERR_IO;
    fputs("way,scene,drift,seed,second", f);
    for (int k = 0; k < LTI_DRIFT_NUMBERS; k++)
        fprintf(f, ",%s", numbers[k]);
    fputs(",adherence\n", f);
    for (int i = 0; i < all->count; i++) {
        const lti_drift_rollout *r = &all->rollout[i];
        for (int32_t w = 0; w < r->windows; w++) {
            fprintf(f, "\"%s\",%s,%s,%d,%d", r->way, r->scene->name, lti_drift_mode_name(r->mode),
                    (int)r->seed, w * LTI_DRIFT_WINDOW);
            for (int k = 0; k < LTI_DRIFT_NUMBERS; k++)
                fprintf(f, ",%.6g", r->window[w].v[k]);
            if (isfinite(r->window[w].adherence))
                fprintf(f, ",%.4g\n", r->window[w].adherence);
            else
                fputs(",\n", f);
        }
    }
    return lti_text_end(f, ctx, path, LT_OK);
}

lt_status lti_drift_write(lt_ctx *ctx, const lti_settings *set, const lti_rollouts *all)
{
    if (set->json_file) {
        json_t *list = json_array(), *bars = json_array();
        lti_drift_bars(all, add_bar, bars);
        for (int i = 0; i < all->count; i++)
            json_array_append_new(list, rollout_json(&all->rollout[i]));
        json_t *value =
            json_pack("{s:s, s:s, s:f, s:i, s:s*, s:o, s:o}", "model", all->model, "family",
                      all->family, "seconds", all->seconds, "window_seconds", LTI_DRIFT_WINDOW,
                      "inject", all->inject, "bars", bars, "rollouts", list);
        const lt_status s = lti_json_write(ctx, set->json_file, value);
        json_decref(value);
        LT_TRY(s);
    }
    if (set->csv) LT_TRY(write_csv(ctx, set->csv, all));
    return set->out_dir ? write_page(ctx, all, set->out_dir) : LT_OK;
}
