/* drift_state.c: the monitor to a file and back: everything that its later decisions depend on. */
#include "video/drift.h"

static lt_status tiles_state(lti_state *io, lti_tiles tile)
{
    for (int t = 0; t < LTI_TILES; t++)
        for (int c = 0; c < 3; c++) {
            double v = (double)tile[t][c];
            LT_TRY(lti_state_real(io, "a tile", &v, -1e6, 1e6));
            tile[t][c] = (float)v;
        }
    return LT_OK;
}

static lt_status reals_state(lti_state *io, double *const v[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        LT_TRY(lti_state_real(io, "a measure", v[i], -1e9, 1e9));
    return LT_OK;
}

static lt_status shot_state(lti_state *io, lti_shot *s)
{
    double *const v[] = {&s->contrast,  &s->saturation, &s->sharpness, &s->motion,
                         &s->before[0], &s->before[1],  &s->before[2], &s->wander[0],
                         &s->wander[1], &s->wander[2]};
    LT_TRY(tiles_state(io, s->tile));
    LT_TRY(reals_state(io, v, LT_COUNT(v)));
    LT_TRY(lti_state_int32(io, "groups of a reference", &s->groups, 0, 1 << 20));
    LT_TRY(lti_state_int32(io, "groups that drift", &s->over, 0, 3));
    LT_TRY(lti_state_int32(io, "decisions", &s->acting, 0, 1 << 30));
    bool *const flag[] = {&s->white, &s->active, &s->spread, &s->recached, &s->stand_down};
    for (size_t i = 0; i < LT_COUNT(flag); i++)
        LT_TRY(lti_state_bool(io, "a flag", flag[i]));
    return LT_OK;
}

static lt_status picture_state(lti_state *io, lt_picture *p)
{
    double *const v[] = {&p->luma,      &p->exposure, &p->contrast, &p->range,
                         &p->lightness, &p->a,        &p->b,        &p->saturation,
                         &p->sharpness, &p->motion,   &p->clipped,  &p->crushed};
    LT_TRY(reals_state(io, v, LT_COUNT(v)));
    LT_TRY(lti_state_int32(io, "still frames", &p->still, 0, INT32_MAX));
    LT_TRY(lti_state_bool(io, "black", &p->black));
    return lti_state_bool(io, "blown", &p->blown);
}

static lt_status counts_state(lti_state *io, lti_drift *d)
{
    const int32_t most = 1 << 30;
    int32_t phase = (int32_t)d->phase;
    int32_t *const v[] = {&d->frames, &d->moves,    &d->past_age,   &d->quiet,
                          &d->hold,   &d->tolerant, &d->still_shot, &d->strange};
    for (size_t i = 0; i < LT_COUNT(v); i++)
        LT_TRY(lti_state_int32(io, "a count", v[i], 0, most));
    LT_TRY(lti_state_int32(io, "phase", &phase, LTI_DRIFT_SETTLING, LTI_DRIFT_STEADY));
    d->phase = (lti_drift_phase)phase;
    LT_TRY(lti_state_int32(io, "lumas", &d->lumas, 0, LTI_FLICKER_FRAMES));
    LT_TRY(lti_state_int(io, "frame", &d->frame, 0, INT64_MAX / 2));
    LT_TRY(lti_state_int(io, "first frame", &d->group_first, 0, INT64_MAX / 2));
    LT_TRY(lti_state_int(io, "shots", &d->shots, 0, INT64_MAX / 2));
    bool *const flag[] = {&d->has_frame, &d->torn, &d->cut};
    for (size_t i = 0; i < LT_COUNT(flag); i++)
        LT_TRY(lti_state_bool(io, "a flag", flag[i]));
    return LT_OK;
}

lt_status lti_drift_state(lti_drift *d, lti_state *io)
{
    double *const v[] = {&d->usual_jump, &d->gain, &d->level, &d->spent};
    LT_TRY(counts_state(io, d));
    LT_TRY(lti_state_real(io, "weight of the past", &d->past_weight, 0.01, 1));
    LT_TRY(lti_state_real(io, "weight of the sink", &d->sink_weight, 0.01, 1));
    LT_TRY(reals_state(io, v, LT_COUNT(v)));
    for (int i = 0; i < LTI_FLICKER_FRAMES; i++)
        LT_TRY(lti_state_real(io, "luma", &d->luma[i], 0, 1));
    LT_TRY(tiles_state(io, d->sum));
    LT_TRY(tiles_state(io, d->last_frame));
    LT_TRY(tiles_state(io, d->moved));
    LT_TRY(tiles_state(io, d->smooth));
    LT_TRY(tiles_state(io, d->left));
    LT_TRY(tiles_state(io, d->seam[0]));
    LT_TRY(tiles_state(io, d->seam[1]));
    LT_TRY(tiles_state(io, d->group_mean[0]));
    LT_TRY(tiles_state(io, d->group_mean[1]));
    LT_TRY(lti_state_int32(io, "groups", &d->groups, 0, 2));
    LT_TRY(picture_state(io, &d->picture_sum));
    LT_TRY(shot_state(io, &d->shot));
    return shot_state(io, &d->past);
}
