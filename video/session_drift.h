/* session_drift.h: a session's monitor: what is drawn and what is shown pass through it. Private to video/ (and tests).
 *
 *   draw ─► lti_watch_block ─► (again with other noise) ─► moved towards the reference ─► decode, later blocks
 *                                                                                          │
 *           gain, shot ◄── lti_drift ◄── lti_watch_frames ◄────────────────────────────────┘
 */
#ifndef LTI_VIDEO_SESSION_DRIFT_H
#define LTI_VIDEO_SESSION_DRIFT_H

#include "video/drift.h"
#include "video/drift_inject.h"

struct lt_session;

/* What a judgement of a block changes: kept as it was before, so that the block can be judged anew. */
typedef struct lti_judge {
    lti_drift drift;
    lti_shift shift;  /* at the end of the block */
    double moved;     /* by it, in deviations of the reference */
    lti_field before; /* of the block */
    float *good;      /* its last frame, [channels, h * w] */
    bool has_good;
    bool broken_before; /* it was broken, or stands in for one that was */
} lti_judge;

typedef struct lti_watch {
    lt_drift_mode mode;
    lti_faults faults;
    lt_measure *measure;
    lti_judge j, then;             /* now; before the present block */
    int32_t channels, group, part; /* latent frames of a vector, and of a field */
    /* the block */
    float *host;      /* its latent, [channels, frames, h, w] */
    lti_field *field; /* [parts] of it as it is shown */
    int32_t parts, gathered;
    /* the shot */
    lti_field ref, gather;
    lt_renditions renditions;
    bool renditions_known;
    lt_drift_vector now; /* what the block's judge has to say */
    double level; /* slow mean over the vectors of the newest one's block that could compare ... */
    int32_t levels; /* ... and how many there are, to 3 */
    lt_drift_vector vector;
    bool has_vector;
} lti_watch;

/* Nothing when drift is off and no fault is asked for: s->watch stays NULL, and all others may be called. */
LT_MUST_USE lt_status lti_watch_open(struct lt_session *s);
void lti_watch_close(struct lt_session *s);

/* Before a block is drawn: kept frames weigh what the monitor says. */
void lti_watch_weigh(struct lt_session *s);
/* A drawn block, or the fresh frames of a segment: `frames` in z, device memory, `first` of them given. attempt: draws that were thrown
 * away; *again: draw once more. failed: it could not be drawn, and what z holds counts for nothing. */
LT_MUST_USE lt_status lti_watch_block(struct lt_session *s, float *z, int32_t frames, int32_t first,
                                      int32_t attempt, bool failed, bool *again);
/* The block is to be drawn and judged once more, none of its frames having been shown. */
void lti_watch_undo(struct lt_session *s);
/* Whether a draw that failed with this may be tried again. */
bool lti_watch_forgives(const struct lt_session *s, lt_status st);
/* The frames in rgb are about to be handed out. */
LT_MUST_USE lt_status lti_watch_frames(struct lt_session *s);
/* A new prompt is in force from the next block on. */
void lti_watch_prompt(struct lt_session *s, const char *prompt, int32_t blend_blocks);
/* The picture that was shown last and the same one decoded anew. */
LT_MUST_USE lt_status lti_watch_renditions(struct lt_session *s, const uint8_t *shown,
                                           const uint8_t *again);
LT_MUST_USE lt_status lti_watch_state(struct lt_session *s, lti_state *io);

#endif
