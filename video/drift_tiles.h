/* drift_tiles.h: what is common to how two pictures differ (drift_tiles.c). Private to video/: included by drift.c. */
#ifndef LTI_VIDEO_DRIFT_TILES_H
#define LTI_VIDEO_DRIFT_TILES_H

#include "video/drift.h"

extern const double
    lti_tiles_agreement; /* part of the tiles that must go one way for it to be called common */

void lti_tiles_add(lti_tiles sum, lti_tiles tile, float weight);
/* slow += part (now - slow) */
void lti_tiles_blend(lti_tiles slow, lti_tiles now, float part);
/* Delta E of the median tile of a less b. */
double lti_tiles_typical(lti_tiles a, lti_tiles b);
/* Median of a less b, by L, a, b. */
void lti_tiles_medians(double out[3], lti_tiles a, lti_tiles b);
/* Its length: what goes one way here and another there is none. */
double lti_tiles_together(lti_tiles a, lti_tiles b);
/* Part of the tiles that have moved at least a quarter of `by` along it. */
double lti_tiles_agreeing(lti_tiles a, lti_tiles b, const double by[3]);
/* EV; ln of the ratio of contrast, lightness having moved by `shift`; ln of the ratio of chroma. 0 where tiles do not agree. */
double lti_tiles_exposure(lti_tiles a, lti_tiles b);
double lti_tiles_contrast(lti_tiles a, lti_tiles b, double shift);
double lti_tiles_saturation(lti_tiles a, lti_tiles b);
/* Whether contrast and saturation of `v`, or contrast and the cast `by`, explain more of the typical tile than they leave (0.8). */
bool lti_tiles_explained(lti_tiles now, lti_tiles ref, const lt_drift_vector *v,
                         const double by[3]);

#endif
