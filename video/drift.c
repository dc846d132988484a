/* drift.c: frames against the beginning of their shot: what has moved, whether that is drift, and how much of it to take off. The
 * numbers here were calibrated on drawn videos (unit_video_drift.c, scenes of toybox/train/world.py); units are visible ones, so they do not
 * depend on the model. */
#include "video/drift_tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double rate_fast = 1.5;  /* Delta E a second that tiles move together: a change */
static const double rate_asked = 0.3; /* the same where the prompt speaks of light */
static const double cut_jump = 8;     /* Delta E from one frame to the next ... */
static const double cut_ratio = 4;    /* ... and so many times the usual: a cut */
static const double back_distance =
    4; /* of a group from a shot that was left: it was a flash, or next to nothing */
static const double same_distance = 2;  /* of a group from the pictures before: it was no change */
static const double back_seconds = 4;   /* after a cut, at most */
static const double settle_seconds = 3; /* of a reference */
static const double tolerant_seconds = 10;
static const double still_seconds = 3;
static const double strange_distance = 6; /* Delta E of the typical tile, not all one way ... */
static const double strange_seconds = 3;  /* ... for so long: what was compared with is gone */
static const double budget = 1;           /* deviations of the latent a minute */
/* Level 1. */
static const double tol_exposure = 0.04, tol_distance = 0.8, tol_colour = 0.8, tol_contrast = 0.08,
                    tol_saturation = 0.08, tol_sharpness = 0.5, tol_flicker = 0.01;

const char *lt_drift_kind_name(lt_drift_kind k)
{
    static const char *const names[] = {"none",     "change",     "exposure",  "colour",
                                        "contrast", "saturation", "sharpness", "motion",
                                        "flicker",  "black",      "broken"};
    return (size_t)k < LT_COUNT(names) ? names[k] : "unknown";
}

const char *lt_drift_action_name(lt_drift_action a)
{
    static const char *const names[] = {"left",    "shifted",  "recached",
                                        "redrawn", "replayed", "weighed"};
    return (size_t)a < LT_COUNT(names) ? names[a] : "unknown";
}

void lti_drift_begin(lti_drift *d, double frame_seconds, int32_t group)
{
    *d = (lti_drift){
        .frame_seconds = frame_seconds, .group = group, .past_weight = 1, .sink_weight = 1};
}

/* ---- the shot ---- */

/* What is compared with is gone; a flash may bring it back. */
static void leave_shot(lti_drift *d, bool cut)
{
    if (d->phase == LTI_DRIFT_STEADY) {
        d->past = d->shot;
        memcpy(d->left, d->smooth, sizeof d->left);
        d->past_age = 1;
        d->cut = cut;
    }
    d->phase = LTI_DRIFT_SETTLING;
    d->shot = (lti_shot){0};
    d->quiet = 0;
    if (cut) {
        d->gain = 0;
        d->lumas = 0; /* the step is no flicker */
    }
    d->still_shot = d->strange = 0;
}

static void empty_group(lti_drift *d)
{
    memset(d->sum, 0, sizeof d->sum);
    memset(d->moved, 0, sizeof d->moved);
    d->picture_sum = (lt_picture){0};
    d->frames = d->moves = 0;
}

/* The mean of the group takes part in the reference. */
static void take(lti_drift *d, lti_tiles mean, const lt_picture *p)
{
    lti_shot *s = &d->shot;
    const double k = 1.0 / ++s->groups;
    for (int t = 0; t < LTI_TILES; t++)
        for (int c = 0; c < 3; c++)
            s->tile[t][c] += (float)k * (mean[t][c] - s->tile[t][c]);
    s->contrast += k * (p->contrast - s->contrast);
    s->saturation += k * (p->saturation - s->saturation);
    s->sharpness += k * (p->sharpness - s->sharpness);
    s->motion += k * (p->motion - s->motion);
    s->white |= p->blown;
    d->use = s->groups == 1 ? LTI_DRIFT_FIRST : LTI_DRIFT_MORE;
}

static double group_seconds(const lti_drift *d)
{
    return d->frame_seconds * d->group;
}

/* To the shot as it began, or to what it was before the change: otherwise drift that has gone far would begin anew with each of them. */
static bool comes_back(lti_drift *d, lti_tiles mean)
{
    if (!d->past_age) return false;
    const bool as_begun =
        lti_tiles_together(mean, d->past.tile) <= back_distance &&
        lti_tiles_typical(mean, d->past.tile, NULL) <= back_distance + strange_distance;
    const bool as_left = lti_tiles_together(mean, d->left) <= same_distance &&
                         lti_tiles_typical(mean, d->left, NULL) <= same_distance + strange_distance;
    if (!as_begun && !as_left) return false;
    d->shot = d->past;
    d->past_age = 0;
    return true;
}

/* Where the video stands, before anything is compared. */
static void turn_phase(lti_drift *d, lti_tiles mean, const lt_picture *p, bool changing)
{
    d->use = LTI_DRIFT_NOT_USED;
    if (d->past_age && d->cut && d->past_age++ * group_seconds(d) > back_seconds) d->past_age = 0;
    if (d->hold || d->torn) {
        d->hold -= d->hold > 0;
        d->quiet = 0;
        d->torn = false;
        return;
    }
    const bool gone = d->strange * group_seconds(d) >= strange_seconds;
    if (changing || gone) {
        leave_shot(d, false);
        if (gone) d->past_age = 0; /* it is left as what it is now: that would be its coming back */
        return;
    }
    d->quiet++;
    if (d->phase == LTI_DRIFT_SETTLING && comes_back(d, mean)) {
        d->phase = LTI_DRIFT_STEADY;
        memcpy(d->smooth, mean, sizeof d->smooth);
    } else if (d->phase == LTI_DRIFT_SETTLING && d->quiet >= 2) {
        d->phase = LTI_DRIFT_TAKING;
        d->shot = (lti_shot){0};
        d->past_age = 0;
        d->shots++;
    }
    if (d->phase != LTI_DRIFT_TAKING) return;
    take(d, mean, p);
    if (d->shot.groups >= 2 && d->shot.groups * group_seconds(d) >= settle_seconds) {
        d->phase = LTI_DRIFT_STEADY;
        memcpy(d->smooth, d->shot.tile, sizeof d->smooth);
    }
}

/* ---- levels ---- */

static void raise_level(lt_drift_vector *v, lt_drift_kind kind, double level)
{
    if (!(level > v->level)) return;
    v->level = level;
    if (level >= 1) v->kind = kind;
}

/* Kinds that are told and not corrected stand behind those that are. */
static void judge_others(lti_drift *d, lt_drift_vector *v)
{
    const double seconds = group_seconds(d);
    d->still_shot = v->motion < 0.3 ? d->still_shot + 1 : 0;
    if (v->level >= 1) return;
    if (fabs(v->sharpness) > tol_sharpness)
        v->kind = LT_DRIFT_SHARPNESS;
    else if (d->still_shot * seconds >= still_seconds)
        v->kind = LT_DRIFT_MOTION; /* it may have come to rest as it should: no alarm */
    else if (d->lumas == LTI_FLICKER_FRAMES && v->flicker > tol_flicker)
        v->kind = LT_DRIFT_FLICKER;
    else
        return;
    v->alarm = v->kind != LT_DRIFT_MOTION;
}

/* What goes up and down from group to group needs more to count: at least four times what it changes by. */
static double restless(lti_drift *d, int which, double now, double tolerance)
{
    lti_shot *s = &d->shot;
    s->wander[which] += 0.2 * (fabs(now - s->before[which]) - s->wander[which]);
    s->before[which] = now;
    return fmax(1, 4 * s->wander[which] / tolerance);
}

static void compare(lti_drift *d, lt_drift_vector *v, lti_tiles mean)
{
    lti_shot *s = &d->shot;
    double by[3];
    lti_tiles_mask same;
    lti_tiles_same(same, mean, s->tile);
    lti_tiles_medians(by, mean, s->tile, same);
    v->distance = sqrt(by[0] * by[0] + by[1] * by[1] + by[2] * by[2]);
    v->colour = hypot(by[1], by[2]);
    v->exposure = lti_tiles_exposure(mean, s->tile, same);
    v->contrast = lti_tiles_contrast(mean, s->tile, by[0], same);
    v->saturation = lti_tiles_saturation(mean, s->tile, same);
    v->coherence = lti_tiles_agreeing(mean, s->tile, by, same);
    if (s->sharpness > 1e-3 && v->picture.sharpness > 1e-3)
        v->sharpness = log2(v->picture.sharpness / s->sharpness);
    v->motion = s->motion > 0.004 ? v->picture.motion / s->motion : 1;
    const double noise = restless(d, 0, v->distance, tol_distance);
    const double contrast = restless(d, 1, v->contrast, tol_contrast),
                 saturation = restless(d, 2, v->saturation, tol_saturation);
    /* nearly all tiles one way: that is drift, however much else is new in them */
    const bool drifts = v->coherence >= 0.9 || lti_tiles_explained(mean, s->tile, v, by, same);
    if (drifts && v->coherence >= lti_tiles_agreement) {
        raise_level(v, LT_DRIFT_EXPOSURE, fabs(v->exposure) / tol_exposure / noise);
        raise_level(v, v->colour > fabs(by[0]) ? LT_DRIFT_COLOUR : LT_DRIFT_EXPOSURE,
                    v->distance / tol_distance / noise);
        raise_level(v, LT_DRIFT_COLOUR, v->colour / tol_colour / noise);
    }
    if (drifts) {
        raise_level(v, LT_DRIFT_CONTRAST, fabs(v->contrast) / tol_contrast / contrast);
        raise_level(v, LT_DRIFT_SATURATION, fabs(v->saturation) / tol_saturation / saturation);
    }
    s->over += v->level >= 1 ? s->over < 3 : -(s->over > 0);
    judge_others(d, v);
    /* the picture has become another one, little by little */
    d->strange =
        !drifts && lti_tiles_typical(mean, s->tile, NULL) > strange_distance ? d->strange + 1 : 0;
}

static lt_picture mean_picture(const lt_picture *sum, int32_t n)
{
    lt_picture p = *sum;
    double *const v[] = {&p.luma, &p.exposure,   &p.contrast,  &p.range,  &p.lightness, &p.a,
                         &p.b,    &p.saturation, &p.sharpness, &p.motion, &p.clipped,   &p.crushed};
    for (size_t i = 0; i < LT_COUNT(v); i++)
        *v[i] /= n;
    return p;
}

static void add_picture(lt_picture *sum, const lt_picture *p)
{
    sum->luma += p->luma;
    sum->exposure += p->exposure;
    sum->contrast += p->contrast;
    sum->range += p->range;
    sum->lightness += p->lightness;
    sum->a += p->a;
    sum->b += p->b;
    sum->saturation += p->saturation;
    sum->sharpness += p->sharpness;
    sum->motion += p->motion;
    sum->clipped += p->clipped;
    sum->crushed += p->crushed;
    sum->still = p->still;
    sum->black |= p->black;
    sum->blown |= p->blown;
}

/* What a model does within a block and takes back in the next is no change, and a step where a block begins is drift. */
static bool goes_on(lti_drift *d, lti_tiles mean, double fast)
{
    const double least = 0.5 * fast * 2 * group_seconds(d);
    lti_tiles without = {{0}};
    if (d->groups < 2) return true;
    lti_tiles_add(without, mean, 1);
    lti_tiles_add(without, d->seam[0], -1);
    lti_tiles_add(without, d->seam[1], -1);
    return lti_tiles_together(mean, d->group_mean[1]) > least &&
           lti_tiles_together(without, d->group_mean[1]) > least;
}

/* What was white from the beginning of its shot, or of the video, is so. */
static bool burns_out(const lti_drift *d, const lt_picture *p)
{
    return p->blown && d->shots && !d->shot.white;
}

static void end_group(lti_drift *d, lt_drift_vector *v)
{
    static lti_tiles nothing;
    *v = (lt_drift_vector){.first_frame = d->group_first, .frames = d->frames, .motion = 1};
    v->picture = mean_picture(&d->picture_sum, d->frames);
    lti_tiles mean = {{0}};
    lti_tiles_add(mean, d->sum, 1.0f / (float)d->frames);
    if (d->moves) v->rate = lti_tiles_together(d->moved, nothing) / (d->moves * d->frame_seconds);
    const double fast = d->tolerant ? rate_asked : rate_fast;
    const bool changing = v->rate > fast && goes_on(d, mean, fast);
    memcpy(d->seam[1], d->seam[0], sizeof d->seam[1]);
    memset(d->seam[0], 0, sizeof d->seam[0]);
    memcpy(d->group_mean[1], d->group_mean[0], sizeof mean);
    memcpy(d->group_mean[0], mean, sizeof mean);
    d->groups += d->groups < 2;
    if (d->tolerant) d->tolerant--;
    turn_phase(d, mean, &v->picture, changing);
    v->shot = d->shots;
    v->settled = d->phase == LTI_DRIFT_STEADY;
    v->flicker = lt_flicker(d->luma, d->lumas, d->group);
    if (v->settled && d->use != LTI_DRIFT_MORE) {
        lti_tiles_blend(d->smooth, mean, 0.4f);
        compare(d, v, d->smooth);
    } else if (!v->settled)
        v->kind = LT_DRIFT_CHANGE;
    if (v->picture.black || burns_out(d, &v->picture)) {
        v->kind = LT_DRIFT_BLACK;
        v->alarm = true;
    }
    empty_group(d);
}

/* ---- frames ---- */

static void keep_luma(lti_drift *d, double luma)
{
    if (d->lumas == LTI_FLICKER_FRAMES)
        memmove(d->luma, d->luma + 1, (LTI_FLICKER_FRAMES - 1) * sizeof *d->luma);
    else
        d->lumas++;
    d->luma[d->lumas - 1] = luma;
}

/* From the frame before to this one: a cut, or a part of how the group moves. */
static void step_from(lti_drift *d, lti_tiles tile, bool seam)
{
    double all[3];
    const double jump = lti_tiles_typical(tile, d->last_frame, NULL);
    bool cut = jump > cut_jump && jump > cut_ratio * d->usual_jump;
    if (cut &&
        seam) { /* a seam may brighten all of a picture; another picture differs here and there */
        lti_tiles_medians(all, tile, d->last_frame, NULL);
        cut = lti_tiles_agreeing(tile, d->last_frame, all, NULL) < 0.5;
    }
    if (cut) {
        leave_shot(d, true);
        d->torn = true;
    } else {
        float(*const by)[3] = seam ? d->seam[0] : d->moved;
        lti_tiles_add(by, tile, 1);
        lti_tiles_add(by, d->last_frame, -1);
        d->moves += !seam;
    }
    if (!cut && !seam) d->usual_jump += 0.1 * (jump - d->usual_jump);
}

bool lti_drift_frame(lti_drift *d, lt_drift_vector *out, const lt_picture *p, lti_tiles tile,
                     int flags)
{
    if (!d->frames) d->group_first = d->frame;
    if (d->has_frame) step_from(d, tile, flags & LTI_DRIFT_SEAM);
    memcpy(d->last_frame, tile, sizeof d->last_frame);
    d->has_frame = true;
    lti_tiles_add(d->sum, tile, 1);
    add_picture(&d->picture_sum, p);
    keep_luma(d, p->luma);
    d->frames++;
    d->frame++;
    if (d->frames < d->group && !(flags & LTI_DRIFT_END)) return false;
    end_group(d, out);
    return true;
}

/* ---- prompts ---- */

/* What happens, not what is: "a dark wall" and "a sunset sky" are as light at the end as at the beginning. */
bool lti_drift_words(const char *prompt)
{
    static const char *const words[] = {
        "darkens",        "darkening",    "gets dark",      "getting dark",  "grows dark",
        "growing dark",   "becomes dark", "turns dark",     "goes dark",     "brightens",
        "brightening",    "gets bright",  "getting bright", "grows bright",  "growing bright",
        "becomes bright", "turns bright", "gets light",     "getting light", "grows light",
        "growing light",  "dims",         "dimming",        "gets dim",      "grows dim",
        "fades",          "fading",       "night falls",    "nightfall",     "dusk falls",
        "twilight falls", "dawn breaks",  "day breaks",     "daybreak",      "sunrise",
        "sun rises",      "sun comes up", "sun sets",       "sun goes down", "rising sun",
        "setting sun",    "sun rising",   "sun setting",    "lightning",     "flashes",
        "flashing",       "flickers",     "flickering",     "strobe",        "explodes",
        "exploding",      "explosion",    "storm comes",    "storm breaks",  "lights go",
        "lights turn",    "eclipse",      "firework",       "cuts to",       "zoom"};
    for (size_t i = 0; i < LT_COUNT(words); i++)
        if (strcasestr(prompt, words[i])) return true;
    return false;
}

void lti_drift_prompt(lti_drift *d, int32_t groups, bool changes)
{
    leave_shot(d, true);
    d->past_age = 0;
    d->past_weight = d->sink_weight = 1; /* they were for the drift of another shot */
    d->hold = groups;
    d->tolerant = changes ? groups + (int32_t)ceil(tolerant_seconds / group_seconds(d)) : 0;
}

/* ---- the controller ---- */

static double limit(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* It goes on until nothing is to be taken off any more: it neither comes and goes nor follows noise. */
static void turn_active(lti_drift *d, const lt_drift_vector *v)
{
    if (!d->shot.active && d->shot.over >= 2) {
        d->shot.active = true;
        d->shot.acting = 0;
    } else if (d->shot.active && d->gain <= 0 && v->level < 0.6) {
        d->shot.active = d->shot.spread = false;
        d->shot.recached = false;
    }
    /* the kind is told while it is too much: taking it off only then would come and go with it */
    if (d->shot.active && (v->kind == LT_DRIFT_CONTRAST || v->kind == LT_DRIFT_SATURATION))
        d->shot.spread = true;
}

/* What is measured is what has been shown, corrections included. So the part that is taken off rises as long as that is still off, and
 * falls when it is not: a model that carries a correction on needs it for a moment, one that comes back to its own light needs it for
 * as long as it does. The longer a block, the larger the step. */
double lti_drift_decide(lti_drift *d, const lt_drift_vector *v, double seconds)
{
    const double most = 0.9, step = limit(0.1 * seconds, 0.1, 0.3);
    d->spent *= exp(-seconds / 60);
    d->level = v->level;
    if (!v->settled) {
        d->gain = limit(d->gain - step, 0, most);
        return d->gain;
    }
    turn_active(d, v);
    const bool may = d->shot.active && !d->shot.stand_down && d->spent < budget;
    d->gain = limit(d->gain + step * (may ? limit(v->level - 0.8, -1, 1) : -1), 0, most);
    d->shot.acting = d->shot.active && d->gain > 0.8 ? d->shot.acting + 1 : 0;
    return d->gain;
}

static double towards(double x, double to)
{
    return x + limit(to - x, -0.1, 0.1);
}

void lti_drift_weigh(lti_drift *d)
{
    const double least = 0.5;
    const bool stands = d->phase == LTI_DRIFT_STEADY && !d->shot.stand_down &&
                        d->still_shot * group_seconds(d) >= still_seconds;
    d->past_weight = towards(d->past_weight, 1 - (1 - least) * limit((d->gain - 0.5) / 0.4, 0, 1));
    d->sink_weight = towards(d->sink_weight, stands ? least : 1);
}

bool lti_drift_escalates(lti_drift *d, bool kept)
{
    const int32_t patience = kept ? 12 : 6; /* decisions; a segment is as long as several blocks */
    if (d->shot.acting < patience || d->level < 1.5) return false; /* or it helps */
    d->shot.acting = 0;
    if (d->shot.recached || !kept) {
        d->shot.stand_down = true; /* leave it as it is rather than fight */
        return false;
    }
    d->shot.recached = true;
    return true;
}
