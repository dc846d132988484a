/* bench_drift_bars.c: how far a video has gone from its beginning, and what is asked of long videos beside what was measured. */
#include "examples/bench_drift.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static const double most_exposure = 0.1, most_distance = 3, most_lost = 0.05, least_motion = 0.8;
static const double next_to_nothing = 0.25; /* of the bounds: less than the monitor calls drift */
static const double most_light_changed = 0.1, most_false = 1, most_cost = 0.02;

/* ---- means ---- */

void lti_spread_add(lti_spread *s, double v)
{
    if (!isfinite(v)) return;
    s->n++;
    const double d = v - s->mean;
    s->mean += d / s->n;
    s->sd += d * (v - s->mean); /* sum of squares until lti_spread_end */
    if (fabs(v) > s->most) s->most = fabs(v);
}

void lti_spread_end(lti_spread *s)
{
    s->sd = s->n > 1 ? sqrt(s->sd / (s->n - 1)) : 0;
}

static double mean_of(const lti_drift_rollout *r, int which, int32_t first, int32_t n)
{
    double sum = 0;
    for (int32_t i = first; i < first + n; i++)
        sum += which < 0 ? r->window[i].adherence : r->window[i].v[which];
    return n ? sum / n : 0;
}

static double log_ratio(double a, double b)
{
    return a > 1e-6 && b > 1e-6 ? log2(b / a) : 0;
}

/* ---- one rollout ---- */

/* The first window that later ones are measured against: what a prompt asks for has come by then. */
static int32_t begins(const lti_drift_rollout *r)
{
    if (r->scene->steady) return 0;
    const double asked = (r->scene->second ? r->seconds / 2 : 0) + LTI_DRIFT_ASKED;
    const int32_t window = (int32_t)ceil(asked / LTI_DRIFT_WINDOW);
    return window < r->windows ? window : r->windows - 1;
}

double lti_drift_at(const lti_drift_rollout *r, int which, int32_t i)
{
    const lti_drift_window *w = &r->window[i], *o = &r->window[begins(r)];
    if (which < 0) return w->adherence;
    if (which == LTI_DRIFT_EV || which == LTI_DRIFT_L) { /* L stands for the distance in colour */
        double exposure, distance;
        lti_backdrop_change(&exposure, &distance, &o->backdrop, &w->backdrop);
        return which == LTI_DRIFT_EV ? exposure : distance;
    }
    if (which == LTI_DRIFT_SPREAD) return lti_backdrop_contrast(&o->backdrop, &w->backdrop);
    if (which == LTI_DRIFT_SHARP) return log_ratio(o->v[which], w->v[which]);
    if (which == LTI_DRIFT_MOVES) return o->v[which] > 1e-6 ? w->v[which] / o->v[which] : 1;
    return w->v[which] - o->v[which];
}

/* How far a video may go before it has fallen apart: a serious step of light, an obvious one of colour, a fifth of the
 * contrast, and a sharpness that is two thirds or half as much again. */
static const struct {
    int which;
    double most;
    const char *name;
} bounds[] = {{LTI_DRIFT_EV, 0.4, "exposure"},
              {LTI_DRIFT_L, 6, "colour"},
              {LTI_DRIFT_SPREAD, 0.2, "contrast"},
              {LTI_DRIFT_SHARP, 0.6, "sharpness"}};

static void find_break(lti_drift_ends *e, const lti_drift_rollout *r)
{
    e->holds = r->windows * LTI_DRIFT_WINDOW;
    for (int32_t i = begins(r) + 1; i < r->windows; i++)
        for (size_t k = 0; k < LT_COUNT(bounds); k++)
            if (fabs(lti_drift_at(r, bounds[k].which, i)) > bounds[k].most) {
                e->holds = i * LTI_DRIFT_WINDOW;
                e->breaks = bounds[k].name;
                return;
            }
}

static double way_off(const lti_drift_rollout *r, int32_t first)
{
    double sum = 0;
    for (int32_t i = first + 1; i < r->windows; i++)
        sum += fmax(fabs(lti_drift_at(r, LTI_DRIFT_EV, i)) / most_exposure,
                    lti_drift_at(r, LTI_DRIFT_L, i) / most_distance);
    return r->windows > first + 1 ? sum / (r->windows - first - 1) : 0;
}

lti_drift_ends lti_drift_ends_of(const lti_drift_rollout *r)
{
    double a[LTI_DRIFT_NUMBERS], b[LTI_DRIFT_NUMBERS];
    if (!r->windows) return (lti_drift_ends){0};
    const int32_t from = begins(r), there = r->windows - from;
    const int32_t n = there >= 6 ? 2 : 1, m = there >= 12 ? 6 : (there + 1) / 2;
    for (int i = 0; i < LTI_DRIFT_NUMBERS; i++) {
        a[i] = mean_of(r, i, from, i == LTI_DRIFT_MOVES ? m : n);
        b[i] = mean_of(r, i, r->windows - (i == LTI_DRIFT_MOVES ? m : n),
                       i == LTI_DRIFT_MOVES ? m : n);
    }
    const double l = b[LTI_DRIFT_L] - a[LTI_DRIFT_L], u = b[LTI_DRIFT_A] - a[LTI_DRIFT_A],
                 v = b[LTI_DRIFT_B] - a[LTI_DRIFT_B];
    lti_drift_ends e = {.picture = sqrt(l * l + u * u + v * v),
                        .saturation = b[LTI_DRIFT_CHROMA] - a[LTI_DRIFT_CHROMA],
                        .sharpness = log_ratio(a[LTI_DRIFT_SHARP], b[LTI_DRIFT_SHARP]),
                        .motion =
                            a[LTI_DRIFT_MOVES] > 1e-6 ? b[LTI_DRIFT_MOVES] / a[LTI_DRIFT_MOVES] : 1,
                        .adherence_first = mean_of(r, -1, from, m),
                        .adherence_last = mean_of(r, -1, r->windows - m, m),
                        .way_off = way_off(r, from)};
    lti_backdrop first, last;
    lti_backdrop_mean(&first, r->window + from, n);
    lti_backdrop_mean(&last, r->window + r->windows - n, n);
    e.contrast = lti_backdrop_contrast(&first, &last);
    lti_backdrop_change(&e.exposure, &e.distance, &first, &last);
    find_break(&e, r);
    return e;
}

/* ---- what is asked ---- */

typedef struct judge {
    const lti_rollouts *all;
    const lti_drift_rollout *like; /* of the way and the scene */
    lti_drift_tell *tell;
    void *user;
} judge;

static void tell(const judge *j, const char *scene, const char *asked, const char *verdict,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
static void tell(const judge *j, const char *scene, const char *asked, const char *verdict,
                 const char *format, ...)
{
    lti_drift_bar bar = {.way = j->like->way, .scene = scene, .asked = asked, .verdict = verdict};
    va_list args;
    va_start(args, format);
    vsnprintf(bar.measured, sizeof bar.measured, format, args);
    va_end(args);
    j->tell(j->user, &bar);
}

static const char *word(bool good)
{
    return good ? "pass" : "miss";
}

static bool same_way(const judge *j, const lti_drift_rollout *r, int mode)
{
    return r->mode == mode && !strcmp(r->way, j->like->way);
}

/* Of the scene, with the seed of `of` unless that is NULL. */
static const lti_drift_rollout *find(const judge *j, int mode, const lti_drift_rollout *of, int *at)
{
    for (; *at < j->all->count; ++*at) {
        const lti_drift_rollout *r = &j->all->rollout[*at];
        if (same_way(j, r, mode) && r->scene == j->like->scene && (!of || r->seed == of->seed)) {
            ++*at;
            return r;
        }
    }
    return NULL;
}

/* What was not measured has no verdict here and below: the benchmark may have been stopped. */
static void judge_steady(const judge *j, int mode)
{
    const char *scene = j->like->scene->name;
    lti_spread exposure = {0}, distance = {0}, motion = {0}, first = {0}, last = {0};
    const lti_drift_rollout *r;
    int light = 0, colour = 0, moves = 0, at = 0;
    while ((r = find(j, mode, NULL, &at)) != NULL) {
        const lti_drift_ends e = lti_drift_ends_of(r);
        lti_spread_add(&exposure, fabs(e.exposure));
        lti_spread_add(&distance, e.distance);
        lti_spread_add(&motion, e.motion);
        lti_spread_add(&first, e.adherence_first);
        lti_spread_add(&last, e.adherence_last);
        light += fabs(e.exposure) <= most_exposure;
        colour += e.distance <= most_distance;
        moves += e.motion >= least_motion;
    }
    lti_spread *const all[] = {&exposure, &distance, &motion, &first, &last};
    for (size_t i = 0; i < LT_COUNT(all); i++)
        lti_spread_end(all[i]);
    if (!exposure.n) return;
    tell(j, scene, "exposure changes by 0.1 EV at most", word(light == exposure.n),
         "%.3f +- %.3f EV, %.3f at most, %d of %d seeds", exposure.mean, exposure.sd, exposure.most,
         light, exposure.n);
    tell(j, scene, "colour changes by 3 Delta E at most", word(colour == distance.n),
         "%.2f +- %.2f, %.2f at most, %d of %d seeds", distance.mean, distance.sd, distance.most,
         colour, distance.n);
    tell(j, scene, "motion is 80 % of that in the beginning", word(motion.mean >= least_motion),
         "%.0f +- %.0f %%, %d of %d seeds", 100 * motion.mean, 100 * motion.sd, moves, motion.n);
    if (!first.n) return;
    tell(j, scene, "colour and shape within 5 points of the beginning",
         word(last.mean >= first.mean - most_lost), "%.0f +- %.0f %%, then %.0f +- %.0f %%",
         100 * first.mean, 100 * first.sd, 100 * last.mean, 100 * last.sd);
}

static void judge_better(const judge *j)
{
    lti_spread off = {0}, correct = {0}, less = {0};
    const lti_drift_rollout *r;
    int better = 0, left = 0, at = 0;
    while ((r = find(j, LT_DRIFT_CORRECT, NULL, &at)) != NULL) {
        int from = 0;
        const lti_drift_rollout *o = find(j, LT_DRIFT_OFF, r, &from);
        if (!o) continue;
        const double a = lti_drift_ends_of(o).way_off, b = lti_drift_ends_of(r).way_off;
        lti_spread_add(&off, a);
        lti_spread_add(&correct, b);
        lti_spread_add(&less, a - b);
        left += o->frames_hash.value == r->frames_hash.value;
        better += b < a;
    }
    lti_spread_end(&off);
    lti_spread_end(&correct);
    lti_spread_end(&less);
    if (!off.n) return;
    const bool quiet = off.most < next_to_nothing && correct.most < next_to_nothing;
    tell(j, j->like->scene->name, "nearer to its beginning than without, in parts of the bounds",
         left == off.n || quiet ? "same" : word(less.mean > 0),
         "%.2f +- %.2f, off %.2f +- %.2f, less by %.2f +- %.2f; nearer %d, same %d of %d seeds",
         correct.mean, correct.sd, off.mean, off.sd, less.mean, less.sd, better, left, off.n);
}

/* A change that was asked for is as far along after ten seconds as without. */
static void judge_asked(const judge *j)
{
    const int32_t window = LTI_DRIFT_ASKED / LTI_DRIFT_WINDOW - 1;
    const lti_drift_scene *scene = j->like->scene;
    lti_spread apart = {0}, changed = {0};
    const lti_drift_rollout *r;
    int at = 0;
    if (scene->steady || scene->second) return;
    while ((r = find(j, LT_DRIFT_CORRECT, NULL, &at)) != NULL) {
        int from = 0;
        const lti_drift_rollout *o = find(j, LT_DRIFT_OFF, r, &from);
        if (!o || window >= r->windows || window >= o->windows) continue;
        const double light = o->window[window].v[LTI_DRIFT_EV];
        lti_spread_add(&apart, exp2(r->window[window].v[LTI_DRIFT_EV] - light) - 1);
        lti_spread_add(&changed, light - o->window[0].v[LTI_DRIFT_EV]);
    }
    lti_spread_end(&apart);
    lti_spread_end(&changed);
    if (!apart.n) return;
    tell(j, scene->name, "brightness at 10 s within 10 % of that without",
         word(apart.most <= most_light_changed),
         "%.1f %% apart at most; without, %+.2f +- %.2f EV from the first 5 s to the next",
         100 * apart.most, changed.mean, changed.sd);
}

static void tell_holds(const judge *j, int mode, const char *asked)
{
    lti_spread holds = {0}, exposure = {0}, distance = {0}, contrast = {0}, sharpness = {0};
    const lti_drift_rollout *r;
    int whole = 0, at = 0;
    while ((r = find(j, mode, NULL, &at)) != NULL) {
        const lti_drift_ends e = lti_drift_ends_of(r);
        lti_spread_add(&holds, e.holds);
        lti_spread_add(&exposure, e.exposure);
        lti_spread_add(&distance, e.distance);
        lti_spread_add(&contrast, 100 * (exp(e.contrast) - 1));
        lti_spread_add(&sharpness, e.sharpness);
        whole += !e.breaks;
    }
    lti_spread *const all[] = {&holds, &exposure, &distance, &contrast, &sharpness};
    for (size_t i = 0; i < LT_COUNT(all); i++)
        lti_spread_end(all[i]);
    if (!holds.n) return;
    tell(j, j->like->scene->name, asked, "told",
         "%.0f +- %.0f s (%d of %d to the end); in the end %+.2f EV, %.1f Delta E, contrast %+.0f "
         "%%, "
         "sharpness %+.2f octaves",
         holds.mean, holds.sd, whole, holds.n, exposure.mean, distance.mean, contrast.mean,
         sharpness.mean);
}

/* With a fault put in: when it was seen, and what is left of it. */
static void tell_fault(const judge *j)
{
    lti_spread begins_at = {0}, off = {0}, correct = {0};
    const lti_drift_rollout *r;
    int at = 0;
    while ((r = find(j, LT_DRIFT_OFF, NULL, &at)) != NULL)
        lti_spread_add(&off, lti_drift_ends_of(r).exposure);
    for (at = 0; (r = find(j, LT_DRIFT_CORRECT, NULL, &at)) != NULL;) {
        lti_spread_add(&correct, lti_drift_ends_of(r).exposure);
        if (r->actions) lti_spread_add(&begins_at, r->first_action);
    }
    lti_spread_end(&begins_at);
    lti_spread_end(&off);
    lti_spread_end(&correct);
    if (!correct.n) return;
    tell(
        j, j->like->scene->name, "what a fault does", "told",
        "first correction at %.1f +- %.1f s in %d of %d; in the end %+.2f +- %.2f EV, off %+.2f +- "
        "%.2f",
        begins_at.mean, begins_at.sd, begins_at.n, correct.n, correct.mean, correct.sd, off.mean,
        off.sd);
}

/* Over all scenes of a way. */
static void judge_way(const judge *j)
{
    double seconds = 0, spent = 0, all = 0;
    int64_t wrong = 0, actions = 0, black = 0;
    int watched = 0, corrected = 0;
    for (int i = 0; i < j->all->count; i++) {
        const lti_drift_rollout *r = &j->all->rollout[i];
        watched += same_way(j, r, LT_DRIFT_WATCH);
        if (!same_way(j, r, LT_DRIFT_CORRECT)) continue;
        corrected++;
        seconds += r->seconds;
        wrong += r->false_actions;
        actions += r->actions;
        black += r->black;
        spent += r->report.drift_seconds;
        all += r->report.total_seconds;
    }
    if (corrected)
        tell(j, "all", "less than one false action in 10 minutes",
             word((double)wrong * 600 < most_false * seconds), "%lld of %lld in %.0f min",
             (long long)wrong, (long long)actions, seconds / 60);
    tell(j, "all", "watched frames are those of off, to the bit", word(watched > 0), "in %d videos",
         watched);
    if (!corrected) return;
    tell(j, "all", "nothing black is shown", word(!black), "%lld frames", (long long)black);
    tell(j, "all", "under 2 % of the time", word(spent < most_cost * all), "%.2f %%",
         all > 0 ? 100 * spent / all : 0);
}

static bool first_of(const lti_rollouts *all, int i, bool scene)
{
    const lti_drift_rollout *r = &all->rollout[i];
    for (int k = 0; k < i; k++)
        if (!strcmp(all->rollout[k].way, r->way) && (!scene || all->rollout[k].scene == r->scene))
            return false;
    return true;
}

void lti_drift_bars(const lti_rollouts *all, lti_drift_tell *to, void *user)
{
    for (int i = 0; i < all->count; i++) {
        const judge j = {.all = all, .like = &all->rollout[i], .tell = to, .user = user};
        const bool naive = strstr(j.like->way, "naive") != NULL;
        if (first_of(all, i, false)) judge_way(&j);
        if (!first_of(all, i, true)) continue;
        tell_holds(&j, LT_DRIFT_OFF, "how long it holds without");
        tell_holds(&j, LT_DRIFT_CORRECT, "how long it holds corrected");
        if (j.like->scene->steady && !naive) judge_steady(&j, LT_DRIFT_CORRECT);
        if (all->inject) tell_fault(&j);
        judge_asked(&j);
        judge_better(&j);
    }
}
