/* drift_latent.h: latents against those of the beginning of their shot: by how much each channel has moved, taking that off, and
 * latents that are no picture at all. Host memory; a latent is [channels, frames, h, w]. Private to video/ (and tests). */
#ifndef LTI_VIDEO_DRIFT_LATENT_H
#define LTI_VIDEO_DRIFT_LATENT_H

#include "video/drift.h"

/* As many tiles as a picture has (drift.h). */
enum { LTI_LATENT_SIDE = LTI_TILE_SIDE, LTI_LATENT_TILES = LTI_TILES, LTI_LATENT_CHANNELS = 64 };

/* A part of a latent: means by tile, and the deviation over the pictures. */
typedef struct lti_field {
    float tile[LTI_LATENT_CHANNELS][LTI_LATENT_TILES];
    float sd[LTI_LATENT_CHANNELS];
    int32_t parts; /* it is the mean of */
} lti_field;

typedef struct lti_latent {
    const float *z;
    int32_t channels, frames, h, w;
} lti_latent;

/* Of frames first .. first + count - 1. */
void lti_field_take(lti_field *f, const lti_latent *z, int32_t first, int32_t count);
void lti_field_add(lti_field *mean, const lti_field *f, int32_t channels);

/* x' = scale x + offset by channel, and a field of the lowest cosines over the picture: of y and x, (0,1) (0,2) (1,0) ... (2,2). */
enum { LTI_LOW = 8 };
typedef struct lti_shift {
    float scale[LTI_LATENT_CHANNELS], offset[LTI_LATENT_CHANNELS];
    float low[LTI_LATENT_CHANNELS][LTI_LOW];
} lti_shift;
void lti_shift_none(lti_shift *s);
/* What takes `gain` of the difference off; contrast: of its spread too. Bounded: 0.35 of the reference's deviation, 1.15 times. The
 * difference is the median over tiles, and less for a channel whose tiles disagree; what is left of it tile by tile is taken off as a
 * low field (bounded too: 0.15) where such a field is most of it, and no more than a quarter of the picture shows something else. Gives the rms over channels of the whole
 * difference in deviations of the reference. *moved (may be NULL): of what is taken off. */
double lti_shift_towards(lti_shift *s, double *moved, const lti_field *now, const lti_field *ref,
                         int32_t channels, double gain, bool contrast);
/* The field of it: rms over the picture and channels, in deviations of the reference. */
double lti_shift_low(const lti_shift *s, const lti_field *ref, int32_t channels);
/* To frames first .. first + count - 1 of z, turning from `from` into `to` over them. */
void lti_shift_apply(float *z, const lti_latent *shape, int32_t first, int32_t count,
                     const lti_shift *from, const lti_shift *to);

/* A latent that was a picture before and now is flat, or noise: its deviation against that of `before`, where most of it has changed. */
bool lti_field_broken(const lti_field *now, const lti_field *before, int32_t channels);

LT_MUST_USE lt_status lti_field_state(lti_field *f, int32_t channels, lti_state *io);
LT_MUST_USE lt_status lti_shift_state(lti_shift *s, int32_t channels, lti_state *io);

#endif
