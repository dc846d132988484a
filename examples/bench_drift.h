/* bench_drift.h: what a benchmark of drift has measured: bench_drift.c takes it, bench_drift_bars.c judges it, bench_drift_report.c
 * tells it. */
#ifndef LTI_EXAMPLES_BENCH_DRIFT_H
#define LTI_EXAMPLES_BENCH_DRIFT_H

#include "examples/checker.h"
#include "examples/command.h"

enum {
    LTI_DRIFT_MODES = 3,  /* of lt_drift_mode */
    LTI_DRIFT_WINDOW = 5, /* seconds */
    LTI_DRIFT_STRIP = 8,  /* pictures side by side */
    LTI_DRIFT_ASKED = 10, /* seconds that a change may take after the prompt that asks for it */
    LTI_BACKDROP_SIDE = 16,
    LTI_BACKDROP_CELLS = LTI_BACKDROP_SIDE * LTI_BACKDROP_SIDE,
    LTI_DRIFT_ROLLOUTS = 4096
};
/* Of a window, in this order. */
enum {
    LTI_DRIFT_EV,
    LTI_DRIFT_L,
    LTI_DRIFT_A,
    LTI_DRIFT_B,
    LTI_DRIFT_CHROMA,
    LTI_DRIFT_SPREAD,
    LTI_DRIFT_SHARP,
    LTI_DRIFT_MOVES,
    LTI_DRIFT_NUMBERS
};

typedef struct lti_drift_scene {
    const char *name, *prompt, *second; /* second: from the middle on, or NULL */
    lti_toy want, want_second;
    bool steady;    /* nothing asks for another light */
    double seconds; /* it is not longer; 0: as long as asked for */
} lti_drift_scene;

/* What stands behind whatever moves: of every cell of a picture the median over frames. */
typedef struct lti_backdrop {
    float light[LTI_BACKDROP_CELLS], lab[LTI_BACKDROP_CELLS][3];
} lti_backdrop;

typedef struct lti_drift_window {
    double v[LTI_DRIFT_NUMBERS]; /* of whole pictures */
    lti_backdrop backdrop;
    double adherence; /* of colour and shape; NAN: not judged */
} lti_drift_window;

typedef struct lti_drift_rollout {
    char way[64];
    const lti_drift_scene *scene;
    int mode; /* lt_drift_mode */
    uint64_t seed;
    double seconds;
    bool taken_over; /* from the corrected one, in which nothing was done */
    lti_drift_window *window;
    int32_t windows;
    lt_session_report report;
    lti_hash frames_hash;
    json_t *vectors;
    char strip[32]; /* of seed 1 */
    int64_t actions, black, last_vector;
    int64_t false_actions; /* of them: while a change is going on that the prompt asks for */
    bool acting;
    double first_action; /* seconds; -1: none */
} lti_drift_rollout;

typedef struct lti_rollouts {
    lti_drift_rollout *rollout;
    int count;
    const char *model, *family, *inject;
    double seconds;
} lti_rollouts;

/* The last two windows less the first two, or a third of what is shorter; adherence and motion over three times as many. The first
 * ones are those after a change that the prompt asks for. */
typedef struct lti_drift_ends {
    double exposure, distance;                      /* of the backdrop: medians over cells */
    double picture;                                 /* Delta E of means of whole pictures */
    double saturation, contrast, sharpness, motion; /* motion: ratio */
    double adherence_first, adherence_last;
    double way_off; /* mean over windows: the larger of exposure and distance, over their bounds */
    double
        holds; /* seconds until a window is out of bounds against the first; all of them: never */
    const char *breaks; /* by what: "exposure", "colour", "contrast", "sharpness"; NULL: never */
} lti_drift_ends;
lti_drift_ends lti_drift_ends_of(const lti_drift_rollout *r);
/* Window i against the first that counts; which: LTI_DRIFT_*, -1 adherence. */
double lti_drift_at(const lti_drift_rollout *r, int which, int32_t i);

/* bench_drift_backdrop.c. Frames are RGB of 8 bits, count >= 1. Errors: LT_ERR_MEM. */
LT_MUST_USE lt_status lti_backdrop_take(lti_backdrop *out, lt_ctx *ctx, const uint8_t *frames,
                                        int32_t count, int32_t width, int32_t height);
/* Of every cell, its median over cells: EV and Delta E. */
void lti_backdrop_change(double *exposure, double *distance, const lti_backdrop *first,
                         const lti_backdrop *last);
/* ln of the ratio; 0 where there is next to none. */
double lti_backdrop_contrast(const lti_backdrop *first, const lti_backdrop *last);
void lti_backdrop_mean(lti_backdrop *out, const lti_drift_window *window, int32_t n);

typedef struct lti_spread {
    double mean, sd, most; /* most: of magnitudes */
    int n;
} lti_spread;
/* What is not finite does not count. */
void lti_spread_add(lti_spread *s, double v);
void lti_spread_end(lti_spread *s); /* once, after the last */

/* What issue and documentation ask of a way of going on, and whether it is so. Calls tell(user, ...) for each. */
typedef struct lti_drift_bar {
    const char *way, *scene, *asked;
    char measured[160];
    const char *verdict; /* "pass", "miss", "same", "told" */
} lti_drift_bar;
typedef void lti_drift_tell(void *user, const lti_drift_bar *bar);
void lti_drift_bars(const lti_rollouts *all, lti_drift_tell *tell, void *user);

/* To --json, --csv and --out-dir. */
LT_MUST_USE lt_status lti_drift_write(lt_ctx *ctx, const lti_settings *set,
                                      const lti_rollouts *all);

#endif
