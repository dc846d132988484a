/* drift_tiles.h: what is common to how two pictures differ (drift_tiles.c). Private to video/: included by drift.c. */
#ifndef LTI_VIDEO_DRIFT_TILES_H
#define LTI_VIDEO_DRIFT_TILES_H

#include "video/drift.h"

typedef bool lti_tiles_mask[LTI_TILES];

extern const double
    lti_tiles_agreement; /* part of the tiles that must go one way for it to be called common */

/* 0 of none; sorts v. */
double lti_tiles_median(float *v, int32_t n);
void lti_tiles_add(lti_tiles sum, lti_tiles tile, float weight);
/* slow += part (now - slow) */
void lti_tiles_blend(lti_tiles slow, lti_tiles now, float part);
/* Tiles in which both show the same thing: those that do not differ by far more than the typical one does. At least half. */
void lti_tiles_same(lti_tiles_mask same, lti_tiles a, lti_tiles b);
/* The rest are of tiles in `same`; NULL: of all. */

/* Delta E of the median tile of a less b. */
double lti_tiles_typical(lti_tiles a, lti_tiles b, const bool *same);
/* Median of a less b, by L, a, b. */
void lti_tiles_medians(double out[3], lti_tiles a, lti_tiles b, const bool *same);
/* Its length over all tiles: what goes one way here and another there is none. */
double lti_tiles_together(lti_tiles a, lti_tiles b);
/* Part of them that have moved at least a quarter of `by` along it. */
double lti_tiles_agreeing(lti_tiles a, lti_tiles b, const double by[3], const bool *same);
/* EV; ln of the ratio of contrast, lightness having moved by `shift`; ln of the ratio of chroma. 0 where tiles do not agree. */
double lti_tiles_exposure(lti_tiles a, lti_tiles b, const bool *same);
double lti_tiles_contrast(lti_tiles a, lti_tiles b, double shift, const bool *same);
double lti_tiles_saturation(lti_tiles a, lti_tiles b, const bool *same);
/* Whether contrast and saturation of `v`, or contrast and the cast `by`, explain more of the typical tile than they leave (0.8). */
bool lti_tiles_explained(lti_tiles now, lti_tiles ref, const lt_drift_vector *v, const double by[3],
                         const bool *same);

#endif
