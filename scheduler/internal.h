/* internal.h: what the files of scheduler/ share. */
#ifndef LTI_SCHEDULER_INTERNAL_H
#define LTI_SCHEDULER_INTERNAL_H

#include "scheduler/scheduler.h"

enum { LTI_HISTORY = 3 }; /* predictions of x0 that UniPC's corrector looks at */

struct lt_scheduler {
    lt_ctx *ctx;
    lt_solver solver;
    int32_t steps;
    float *sigma; /* [steps + 1] */
    double *t;    /* [steps] */

    lt_dev *dev;            /* NULL until bound */
    int64_t n, room;        /* numbers of a latent, and what there is memory for */
    float *x0[LTI_HISTORY]; /* device: prediction of x0 of step i in slot i % LTI_HISTORY */
    float *corrected;       /* device: UniPC's corrected sample of the last step */
    int32_t next;           /* the step that must come next */
    int32_t order;          /* of UniPC's last predictor */
};

/* Fills sigma [steps + 1] and t [steps] of a solver's grid. */
void lti_grid_fill(lt_sigma_grid grid, int32_t steps, double shift, float *sigma, double *t);
/* The same for a list of few steps (values 0..1000). Lists are looked up in the shifted grid of 1000 points. */
void lti_list_fill(const float *list, int32_t len, double shift, bool warp, float *sigma,
                   double *t);

/* One update of each solver: x from step i to i + 1. */
LT_MUST_USE lt_status lti_step_euler(lt_scheduler *s, int32_t i, float *x, const float *v);
LT_MUST_USE lt_status lti_step_unipc(lt_scheduler *s, int32_t i, float *x, const float *v);
LT_MUST_USE lt_status lti_step_dpmpp(lt_scheduler *s, int32_t i, float *x, const float *v);
LT_MUST_USE lt_status lti_step_renoise(lt_scheduler *s, int32_t i, float *x, const float *v,
                                       const float *noise);

#endif
