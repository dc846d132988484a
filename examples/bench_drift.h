/* bench_drift.h: what a benchmark of drift has measured: bench_drift.c takes it, bench_drift_report.c tells it. */
#ifndef LTI_EXAMPLES_BENCH_DRIFT_H
#define LTI_EXAMPLES_BENCH_DRIFT_H

#include "examples/checker.h"
#include "examples/command.h"

enum {
    LTI_DRIFT_MODES = 3,  /* of lt_drift_mode */
    LTI_DRIFT_WINDOW = 5, /* seconds */
    LTI_DRIFT_STRIP = 8,  /* pictures side by side */
    LTI_DRIFT_ASKED = 10, /* seconds that a change may take after the prompt that asks for it */
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
    bool steady; /* nothing asks for another light */
} lti_drift_scene;

typedef struct lti_drift_window {
    double v[LTI_DRIFT_NUMBERS];
    double adherence; /* of ground, colour and shape; NAN: not judged */
} lti_drift_window;

typedef struct lti_drift_rollout {
    char way[64];
    const lti_drift_scene *scene;
    int mode; /* lt_drift_mode */
    uint64_t seed;
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

/* The last windows less the first: two of each, or a third of what is shorter; adherence over three times as many. */
typedef struct lti_drift_ends {
    double exposure, distance, saturation, contrast, sharpness, motion; /* motion: ratio */
    double adherence_first, adherence_last;
    double
        holds; /* seconds until a window is out of bounds against the first; all of them: never */
    const char *breaks; /* by what: "exposure", "colour", "contrast", "sharpness"; NULL: never */
} lti_drift_ends;
lti_drift_ends lti_drift_ends_of(const lti_drift_rollout *r);

/* To --json, --csv and --out-dir. */
LT_MUST_USE lt_status lti_drift_write(lt_ctx *ctx, const lti_settings *set,
                                      const lti_rollouts *all);

#endif
