/* checker_internal.h: what the files of the checker share. */
#ifndef LTI_EXAMPLES_CHECKER_INTERNAL_H
#define LTI_EXAMPLES_CHECKER_INTERNAL_H

#include "examples/checker.h"

/* The object in one frame. */
typedef struct lti_toy_spot {
    double t, x, y, size, phase;
    bool whole; /* it does not touch the edge */
} lti_toy_spot;

/* The motion of n >= 1 spots. shape: NULL when it is not known. */
const char *lti_toy_motion(lti_toy_spot *track, int n, const char *shape);

#endif
