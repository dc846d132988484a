/* checker.h: looks at a clip of the toybox world and says what is in it. A program, not a network: toybox/train/checker.py in C, with
 * the same answers, so that what a model draws can be judged where there is no Python.
 */
#ifndef LTI_EXAMPLES_CHECKER_H
#define LTI_EXAMPLES_CHECKER_H

#include "kernels/kernels.h"

enum { LTI_TOY_SIZE = 128, LTI_TOY_ITEMS = 5 };

/* In the words of world.py; NULL: not found, or not asked for. */
typedef struct lti_toy {
    const char *ground; /* plain gradient checker grass night */
    const char *colour; /* red orange yellow green turquoise blue purple white */
    const char *shape;  /* ball square triangle star ring */
    const char *motion; /* still left right up down grow shrink bounce orbit spin */
    const char *light;  /* steady darkens sunrise; only found: unsteady, it came back */
} lti_toy;

/* frames [count, 128, 128, 3] RGB of 8 bits, count >= 1. Errors: LT_ERR_MEM. */
LT_MUST_USE lt_status lti_toy_read(lti_toy *out, lt_ctx *ctx, const uint8_t *frames, int32_t count);
/* How many of the items that `want` has are the same in `got`; *asked: how many it has. */
int lti_toy_agree(const lti_toy *got, const lti_toy *want, int *asked);

/* The ground and sky by full light, out [128, 128, 3]; place 0..7: which hills, clouds and stars. */
void lti_toy_background(float *out, const char *ground, int place);
/* Of a colour, [3] in 0..1; NULL when there is no such colour. */
const float *lti_toy_colour(const char *name);

#endif
