/* session_drift.c: the monitor of a session (session_drift.h). The latent of a block goes to the host once, is looked at there and comes
 * back only when it was changed: so watching changes nothing. */
#include "video/session_drift.h"
#include "video/session_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DRAWS = 3 };

/* ---- making and unmaking ---- */

static int64_t area(const lt_session *s)
{
    return (int64_t)s->h * s->w;
}

/* Latent frames that are drawn together, at most. */
static lt_status drawn_together(const lt_session *s, int32_t *frames)
{
    *frames = s->frames;
    if (s->o.mode == LT_MODE_AR) {
        lt_cache_policy p;
        LT_TRY(lti_session_policy(&p, s->ctx, &s->m->config.info, &s->o));
        *frames = p.block; /* the first one is not longer */
    } else if (s->o.mode == LT_MODE_EXTEND) {
        lti_extend_policy p;
        LT_TRY(lti_extend_parse(&p, s->ctx, &s->m->config.info, s->o.extend));
        *frames = p.segment;
    }
    return LT_OK;
}

static double latent_seconds(const lt_session *s)
{
    return (double)s->m->config.info.frame_scale / s->o.fps;
}

static lt_status reserve(lt_session *s, int32_t frames)
{
    lti_watch *w = s->watch;
    const size_t numbers = (size_t)(w->channels * area(s));
    const int32_t parts = frames / w->part + 1;
    w->host = malloc(numbers * (size_t)frames * sizeof(float));
    w->j.good = calloc(numbers, sizeof(float));
    w->then.good = calloc(numbers, sizeof(float));
    w->field = calloc((size_t)parts, sizeof *w->field);
    if (!w->host || !w->j.good || !w->then.good || !w->field)
        return lti_fail(s->ctx, LT_ERR_MEM, "no memory to watch %d frames of a latent", frames);
    return LT_OK;
}

lt_status lti_watch_open(lt_session *s)
{
    if (s->watch || (s->o.drift == LT_DRIFT_OFF && !s->o.inject)) return LT_OK;
    int32_t frames;
    LT_TRY(drawn_together(s, &frames));
    lti_watch *w = s->watch = calloc(1, sizeof *w);
    if (!w) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for a monitor");
    w->mode = s->o.drift;
    w->channels = s->m->config.dit.in_channels;
    if (w->channels > LTI_LATENT_CHANNELS)
        return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "drift of latents of %d channels", w->channels);
    /* about 3 latent frames, whole blocks where these are short */
    w->part = s->o.mode == LT_MODE_AR && frames <= 5 ? frames : 3;
    w->group = w->part < 2 ? 3 : w->part;
    lti_shift_none(&w->j.shift);
    lti_drift_begin(&w->j.drift, latent_seconds(s), w->group);
    lti_drift_prompt(&w->j.drift, 0, lti_drift_words(s->prompt));
    LT_TRY(reserve(s, frames));
    LT_TRY(lt_measure_create(&w->measure, s->dev, s->o.width, s->o.height));
    LT_TRY(lti_faults_parse(&w->faults, s->ctx, s->o.inject));
    return lti_faults_open(&w->faults, s->m, s->o.width, s->o.height, &s->cancel);
}

void lti_watch_close(lt_session *s)
{
    lti_watch *w = s->watch;
    if (!w) return;
    lt_measure_destroy(&w->measure);
    lti_faults_close(&w->faults);
    free(w->host);
    free(w->j.good);
    free(w->then.good);
    free(w->field);
    free(w);
    s->watch = NULL;
}

/* ---- a block, before it is seen ---- */

static void copy_judge(const lt_session *s, lti_judge *to, const lti_judge *from)
{
    float *good = to->good;
    memcpy(good, from->good, (size_t)(s->watch->channels * area(s)) * sizeof(float));
    *to = *from;
    to->good = good;
}

void lti_watch_undo(lt_session *s)
{
    if (s->watch) copy_judge(s, &s->watch->j, &s->watch->then);
}

static bool all_finite(const lti_latent *z, int32_t first)
{
    const int64_t n = (int64_t)z->h * z->w, fresh = (z->frames - first) * n;
    for (int32_t c = 0; c < z->channels; c++)
        for (int64_t i = 0; i < fresh; i++)
            if (!isfinite(z->z[((int64_t)c * z->frames + first) * n + i])) return false;
    return true;
}

static void take_fields(lti_watch *w, const lti_latent *z, int32_t first, bool begins)
{
    w->parts = w->gathered = 0;
    for (int32_t at = first; at < z->frames; w->parts++) {
        const int32_t n = z->frames - at < w->part ? z->frames - at : w->part;
        /* the first latent frame of a video has statistics of its own */
        const int32_t skip = begins && at == 0 ? 1 : 0;
        lti_field *f = &w->field[w->parts];
        if (n > skip)
            lti_field_take(f, z, at + skip, n - skip);
        else
            f->parts = 0;
        at += n;
    }
}

static void mean_field(const lti_watch *w, lti_field *out)
{
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < w->parts; i++)
        if (w->field[i].parts) lti_field_add(out, &w->field[i], w->channels);
}

/* Flat or noise; where the picture is to change, what was before is no measure, as for a first block. */
static bool looks_broken(const lti_watch *w)
{
    static const lti_field nothing;
    const bool asked = w->j.drift.hold || w->j.drift.tolerant;
    lti_field mean;
    mean_field(w, &mean);
    return mean.parts && lti_field_broken(&mean, asked ? &nothing : &w->j.before, w->channels);
}

static void replay(lti_watch *w, const lti_latent *z, int32_t first)
{
    const int64_t n = (int64_t)z->h * z->w;
    for (int32_t c = 0; c < w->channels; c++)
        for (int32_t f = first; f < z->frames; f++)
            memcpy(w->host + ((int64_t)c * z->frames + f) * n, w->j.good + c * n,
                   (size_t)n * sizeof(float));
}

static void keep_good(lti_watch *w, const lti_latent *z)
{
    const int64_t n = (int64_t)z->h * z->w;
    for (int32_t c = 0; c < w->channels; c++)
        memcpy(w->j.good + c * n, w->host + ((int64_t)c * z->frames + z->frames - 1) * n,
               (size_t)n * sizeof(float));
    w->j.has_good = true;
}

static double block_seconds(const lt_session *s, int32_t frames)
{
    return frames * latent_seconds(s);
}

/* The part's difference to the reference, and a part of it taken off, turning from one part to the next. */
static bool correct_parts(lt_session *s, const lti_latent *z, int32_t first)
{
    lti_watch *w = s->watch;
    const lt_drift_vector since = {
        .settled = w->levels > 0, .level = w->level, .kind = w->vector.kind};
    const double gain =
        w->mode == LT_DRIFT_CORRECT && w->has_vector
            ? lti_drift_decide(&w->j.drift, &since, block_seconds(s, z->frames - first))
            : 0;
    double moved_most = 0;
    w->now.latent_shift = w->now.low_field = 0;
    for (int32_t i = 0, at = first; i < w->parts; i++) {
        const int32_t n = z->frames - at < w->part ? z->frames - at : w->part;
        lti_shift to;
        double moved = 0;
        if (w->ref.parts && w->field[i].parts) {
            const double all = lti_shift_towards(&to, &moved, &w->field[i], &w->ref, w->channels,
                                                 gain, w->j.drift.shot.spread);
            if (all > w->now.latent_shift) w->now.latent_shift = all;
        } else {
            lti_shift_none(&to);
        }
        if (gain > 0) {
            lti_shift_apply(w->host, z, at, n, &w->j.shift, &to);
            w->j.shift = to;
        }
        if (moved > moved_most) moved_most = moved;
        const double low = gain > 0 ? lti_shift_low(&to, &w->ref, w->channels) : 0;
        if (low > w->now.low_field) w->now.low_field = low;
        at += n;
    }
    if (gain <= 0) lti_shift_none(&w->j.shift);
    w->j.drift.spent += fabs(moved_most - w->j.moved); /* what stays as it is costs nothing */
    w->j.moved = moved_most;
    w->now.gain = gain;
    return gain > 0 && moved_most > 0;
}

/* Plans of sparse attention have weights of their own. */
static bool can_weigh(const lt_session *s)
{
    return s->watch && s->watch->mode == LT_DRIFT_CORRECT && s->rollout && s->attention.method == 0;
}

void lti_watch_weigh(lt_session *s)
{
    const lti_watch *w = s->watch;
    if (can_weigh(s)) lti_rollout_weigh(s->rollout, w->j.drift.past_weight, w->j.drift.sink_weight);
}

static void decide_weights(lt_session *s)
{
    lti_watch *w = s->watch;
    if (can_weigh(s)) lti_drift_weigh(&w->j.drift);
    w->now.past_weight = w->j.drift.past_weight;
    w->now.sink_weight = w->j.drift.sink_weight;
    if (w->j.drift.past_weight == 1 && w->j.drift.sink_weight == 1) return;
    s->report.drift_weighed++;
    if (w->now.action == LT_DRIFT_LEFT) w->now.action = LT_DRIFT_WEIGHED;
}

/* Corrections that do not help are carried into what later blocks see as well, once; then they are given up. */
static lt_status escalate(lt_session *s)
{
    lti_watch *w = s->watch;
    if (w->mode != LT_DRIFT_CORRECT || !lti_drift_escalates(&w->j.drift, s->rollout)) return LT_OK;
    w->now.action = LT_DRIFT_RECACHED;
    s->report.drift_recached++;
    return lti_rollout_change_kept(s->rollout, w->j.shift.scale, w->j.shift.offset, false);
}

static lt_status settle_block(lt_session *s, const lti_latent *z, int32_t first, bool *dirty)
{
    lti_watch *w = s->watch;
    if (correct_parts(s, z, first)) {
        *dirty = true;
        if (w->now.action == LT_DRIFT_LEFT) w->now.action = LT_DRIFT_SHIFTED;
        s->report.drift_shifted++;
        take_fields(w, z, first, s->pushed == 0);
        LT_TRY(escalate(s));
    }
    decide_weights(s);
    return LT_OK;
}

static void inject(lt_session *s, const lti_latent *z, int32_t first, int32_t attempt, bool *dirty)
{
    lti_watch *w = s->watch;
    const double at = (double)lti_session_number(s, s->pushed) / s->o.fps;
    if (lti_faults_apply(&w->faults, w->host, z, first, at, block_seconds(s, z->frames - first),
                         w->j.has_good ? w->j.good : NULL, attempt > 0))
        *dirty = true;
}

static lt_status judge(lt_session *s, const lti_latent *z, int32_t first, int32_t attempt,
                       bool failed, bool *again, bool *dirty)
{
    lti_watch *w = s->watch;
    if (!failed) inject(s, z, first, attempt, dirty);
    take_fields(w, z, first, s->pushed == 0);
    const bool finite = !failed && all_finite(z, first);
    const bool broken = !finite || looks_broken(w);
    /* a model that insists on a flat picture has its way with the next block */
    const bool objects = broken && !(finite && w->j.broken_before);
    if (objects) w->now.kind = LT_DRIFT_BROKEN;
    if (!objects || w->mode != LT_DRIFT_CORRECT) {
        w->j.broken_before = broken;
        w->now.alarm = objects;
        if (!finite) { /* watched only: nothing to compare */
            for (int32_t i = 0; i < w->parts; i++)
                w->field[i].parts = 0;
            return LT_OK;
        }
        LT_TRY(settle_block(s, z, first, dirty));
        if (broken) return LT_OK; /* no measure for what comes, and nothing to stand in for it */
        mean_field(w, &w->j.before);
        keep_good(w, z);
        return LT_OK;
    }
    if (attempt + 1 < MOST_DRAWS) {
        *again = true;
        s->report.drift_redraws++;
        return LT_OK;
    }
    w->now.alarm = true;
    w->j.broken_before = finite;
    if (!w->j.has_good)
        return lti_fail(s->ctx, LT_ERR_NUMERIC, "the first block is broken in %d attempts",
                        MOST_DRAWS);
    replay(w, z, first);
    *dirty = true;
    w->now.action = LT_DRIFT_REPLAYED;
    s->report.drift_replayed++;
    take_fields(w, z, first, s->pushed == 0);
    return LT_OK;
}

lt_status lti_watch_block(lt_session *s, float *z, int32_t frames, int32_t first, int32_t attempt,
                          bool failed, bool *again)
{
    lti_watch *w = s->watch;
    *again = false;
    if (!w) return LT_OK;
    const double t = lti_now();
    const lti_latent shape = {w->host, w->channels, frames, s->h, s->w};
    const size_t bytes = (size_t)(w->channels * frames * area(s)) * sizeof(float);
    bool dirty = false;
    if (attempt == 0) copy_judge(s, &w->then, &w->j);
    w->now = (lt_drift_vector){.attempts = attempt,
                               .past_weight = w->j.drift.past_weight,
                               .sink_weight = w->j.drift.sink_weight,
                               .action = attempt ? LT_DRIFT_REDRAWN : LT_DRIFT_LEFT};
    LT_TRY(lt_dev_download(s->dev, w->host, z, bytes));
    LT_TRY(judge(s, &shape, first, attempt, failed, again, &dirty));
    if (dirty && !*again) LT_TRY(lt_dev_upload(s->dev, z, w->host, bytes));
    if (!*again && s->rollout &&
        lti_faults_slot(&w->faults, (double)lti_session_number(s, s->pushed) / s->o.fps,
                        block_seconds(s, frames - first)))
        LT_TRY(lti_rollout_change_kept(s->rollout, NULL, NULL, true));
    s->report.drift_seconds += lti_now() - t;
    return LT_OK;
}

bool lti_watch_forgives(const lt_session *s, lt_status st)
{
    return st == LT_ERR_NUMERIC && s->watch && s->watch->mode == LT_DRIFT_CORRECT;
}

/* ---- frames, when they are shown ---- */

/* What the newest vector means for the latent's reference. */
static void turn_reference(lti_watch *w)
{
    if (w->j.drift.use == LTI_DRIFT_FIRST) memset(&w->ref, 0, sizeof w->ref);
    if (w->gather.parts && (w->j.drift.use == LTI_DRIFT_FIRST || w->j.drift.use == LTI_DRIFT_MORE))
        lti_field_add(&w->ref, &w->gather, w->channels);
    memset(&w->gather, 0, sizeof w->gather);
}

static void end_vector(lt_session *s, lt_drift_vector *v)
{
    lti_watch *w = s->watch;
    const int64_t end = s->pushed, begin = end - v->frames;
    v->block = s->shown.block;
    v->first_frame = lti_session_number(s, begin);
    v->frames = (int32_t)(lti_session_number(s, end) - v->first_frame);
    v->latent_shift = w->now.latent_shift;
    v->gain = w->now.gain;
    v->low_field = w->now.low_field;
    v->past_weight = w->now.past_weight;
    v->sink_weight = w->now.sink_weight;
    v->action = w->now.action;
    v->attempts = w->now.attempts;
    v->alarm = v->alarm || w->now.alarm || w->j.drift.shot.stand_down;
    if (w->now.kind == LT_DRIFT_BROKEN) v->kind = LT_DRIFT_BROKEN;
    v->renditions_known = w->renditions_known;
    v->renditions = w->renditions;
    w->renditions_known = false;
    turn_reference(w);
    if (v->block != w->vector.block) {
        w->level = 0;
        w->levels = 0;
    }
    if (v->settled && w->levels < 3) w->levels++;
    if (v->settled) w->level += (v->level - w->level) / w->levels;
    w->vector = *v;
    w->has_vector = true;
    s->report.drift_vectors++;
    s->report.drift_shots = w->j.drift.shots;
    s->report.alarms += v->alarm;
    if (v->level > s->report.drift_level_max) s->report.drift_level_max = v->level;
}

/* Place of the latent frame in what was drawn together, counted from the first fresh one. */
static int32_t drawn_frames(const lt_session *s)
{
    if (s->rollout) return lti_rollout_frames(s->rollout);
    return s->extend ? s->extend->policy.segment : s->frames;
}

static int flags_of(const lt_session *s)
{
    const lti_watch *w = s->watch;
    const int32_t first = s->extend ? s->extend->frames : 0; /* given to this segment */
    int flags = 0;
    if (s->used == first + 1 && w->part > 1) flags |= LTI_DRIFT_SEAM;
    if ((s->used == drawn_frames(s) && w->part > 1) || s->pushed == s->frames)
        flags |= LTI_DRIFT_END;
    return flags;
}

static void gather_part(lti_watch *w)
{
    if (w->gathered >= w->parts) return;
    if (w->field[w->gathered].parts) lti_field_add(&w->gather, &w->field[w->gathered], w->channels);
    w->gathered++;
}

lt_status lti_watch_frames(lt_session *s)
{
    lti_watch *w = s->watch;
    if (!w || !s->group) return LT_OK;
    const double t = lti_now();
    const size_t bytes = (size_t)s->o.width * (size_t)s->o.height * 3;
    lt_picture p;
    lti_tiles tile;
    lt_drift_vector v;
    LT_TRY(lt_measure_frame(w->measure, &p, s->rgb + (size_t)(s->group - 1) * bytes));
    lti_measure_tiles(w->measure, tile);
    const int flags = flags_of(s);
    const bool ends = lti_drift_frame(&w->j.drift, &v, &p, tile, flags);
    if (ends || w->part == 1) gather_part(w);
    if (ends) end_vector(s, &v);
    s->report.drift_seconds += lti_now() - t;
    return LT_OK;
}

/* ---- the rest ---- */

void lti_watch_prompt(lt_session *s, const char *prompt, int32_t blend_blocks)
{
    lti_watch *w = s->watch;
    if (!w) return;
    const double groups = (double)blend_blocks * w->part / w->group;
    lti_drift_prompt(&w->j.drift, 2 + (int32_t)ceil(groups), lti_drift_words(prompt));
}

lt_status lti_watch_renditions(lt_session *s, const uint8_t *shown, const uint8_t *again)
{
    lti_watch *w = s->watch;
    if (!w) return LT_OK;
    w->renditions_known = true;
    return lt_measure_renditions(&w->renditions, s->dev, shown, again, s->o.width, s->o.height);
}

const lt_drift_vector *lt_session_drift(const lt_session *s)
{
    return s->watch && s->watch->has_vector && s->watch->mode != LT_DRIFT_OFF ? &s->watch->vector
                                                                              : NULL;
}

/* ---- to a file and back ---- */

static lt_status vector_state(lti_state *io, lt_drift_vector *v)
{
    int32_t kind = (int32_t)v->kind, action = (int32_t)v->action;
    double *const real[] = {&v->level,     &v->latent_shift, &v->gain,
                            &v->low_field, &v->past_weight,  &v->sink_weight};
    for (size_t i = 0; i < LT_COUNT(real); i++)
        LT_TRY(lti_state_real(io, "a measure", real[i], -1e9, 1e9));
    LT_TRY(lti_state_int32(io, "kind of drift", &kind, 0, LT_DRIFT_BROKEN));
    LT_TRY(lti_state_int32(io, "action", &action, 0, LT_DRIFT_WEIGHED));
    LT_TRY(lti_state_int32(io, "attempts", &v->attempts, 0, 255));
    LT_TRY(lti_state_bool(io, "alarm", &v->alarm));
    v->kind = (lt_drift_kind)kind;
    v->action = (lt_drift_action)action;
    return lti_state_bool(io, "settled", &v->settled);
}

static lt_status judge_state(lt_session *s, lti_judge *j, lti_state *io)
{
    const int32_t channels = s->watch->channels;
    LT_TRY(lti_drift_state(&j->drift, io));
    LT_TRY(lti_field_state(&j->before, channels, io));
    LT_TRY(lti_shift_state(&j->shift, channels, io));
    LT_TRY(lti_state_real(io, "moved", &j->moved, 0, 1e9));
    LT_TRY(lti_state_bool(io, "broken before", &j->broken_before));
    LT_TRY(lti_state_bool(io, "there is a good frame", &j->has_good));
    if (!j->has_good) return LT_OK;
    return lti_state_bytes(io, j->good, (size_t)(channels * area(s)) * sizeof(float));
}

lt_status lti_watch_state(lt_session *s, lti_state *io)
{
    if (io->reading) LT_TRY(lti_watch_open(s));
    lti_watch *w = s->watch;
    if (!w) return LT_OK;
    int32_t most;
    LT_TRY(drawn_together(s, &most));
    LT_TRY(judge_state(s, &w->j, io));
    LT_TRY(judge_state(s, &w->then, io));
    LT_TRY(lti_state_int32(io, "parts", &w->parts, 0, most / w->part + 1));
    LT_TRY(lti_state_int32(io, "parts shown", &w->gathered, 0, w->parts));
    lti_field *const f[] = {&w->ref, &w->gather};
    for (size_t i = 0; i < LT_COUNT(f); i++)
        LT_TRY(lti_field_state(f[i], w->channels, io));
    for (int32_t i = 0; i < w->parts; i++)
        LT_TRY(lti_field_state(&w->field[i], w->channels, io));
    LT_TRY(vector_state(io, &w->now));
    LT_TRY(lti_state_bool(io, "there is a vector", &w->has_vector));
    LT_TRY(lti_state_real(io, "level", &w->level, 0, 1e9));
    LT_TRY(lti_state_int32(io, "levels", &w->levels, 0, 3));
    LT_TRY(lti_state_int(io, "block of the vector", &w->vector.block, 0, INT64_MAX));
    LT_TRY(lti_measure_state(w->measure, io));
    return vector_state(io, &w->vector);
}
