/* prompts.h: which prompt is in force in a video of blocks: the timeline, prompts that other threads hand in, the turning of one text
 * into the next, and the list of what took effect when. Knows text rows, not how they are made. Private to video/.
 *
 *   lti_prompts_due ─► (the session encodes the text) ─► lti_prompts_begin ─► a block: lti_prompts_step ─► rows for the rollout
 */
#ifndef LTI_VIDEO_PROMPTS_H
#define LTI_VIDEO_PROMPTS_H

#include "video/state.h"
#include "video/video.h"

#include <stdatomic.h>

typedef struct lti_order { /* a prompt that is not in force yet */
    int32_t blend_blocks;
    char text[];
} lti_order;

typedef struct lti_rows { /* of a text, host memory */
    float *v;
    int32_t n;
} lti_rows;

typedef struct lti_prompts {
    lt_ctx *ctx;
    int32_t dim; /* of a row */
    int32_t fps;
    bool at_once;                /* a new prompt is not blended in: it begins a shot */
    _Atomic(lti_order *) posted; /* any thread puts one in, the session's takes it */
    lti_order *due;
    lt_cue *cue; /* the timeline; texts are owned */
    int32_t cues, next_cue;
    lt_prompt_mark *mark; /* texts are owned; the last is in force */
    int32_t marks, room;
    lti_rows from, to, now;     /* now: what the model sees */
    int32_t blend_at, blend_of; /* blocks that have been given some of `to`; equal: all of it */
    int64_t block;              /* the last block that was stepped for; -1: none */
} lti_prompts;

/* LT_ERR_ARG with the number of the cue when the timeline is not in order or holds what cannot be. */
LT_MUST_USE lt_status lti_prompts_check(lt_ctx *ctx, const lt_cue *cue, int32_t cues, int32_t fps);
/* The frame that a cue asks for. */
int64_t lti_cue_frame(const lt_cue *cue, int32_t fps);
/* Copies the timeline. */
LT_MUST_USE lt_status lti_prompts_open(lti_prompts *p, lt_ctx *ctx, const lt_session_options *o,
                                       int32_t dim);
void lti_prompts_close(lti_prompts *p); /* accepts a zeroed struct */
/* Any thread. Errors without a message: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE lt_status lti_prompts_post(lti_prompts *p, const char *text, int32_t blend_blocks);
/* The text that a block beginning at video frame `frame` is to change to, NULL for none. It stays due until lti_prompts_begin. */
const char *lti_prompts_due(lti_prompts *p, int64_t frame);
/* What was due (at first: `text`) comes into force with this block: rows are copied. */
LT_MUST_USE lt_status lti_prompts_begin(lti_prompts *p, const char *text, int64_t frame,
                                        int64_t block, const float *rows, int32_t n);
/* Once a block: whether `now` has changed, and whether kept frames are to follow: at half the way. */
LT_MUST_USE lt_status lti_prompts_step(lti_prompts *p, int64_t block, bool *changed, bool *renew);
const lt_prompt_mark *lti_prompts_mark(const lti_prompts *p, int32_t number); /* NULL: forgotten */
/* To a file, or from it into a struct that was opened. */
LT_MUST_USE lt_status lti_prompts_state(lti_prompts *p, lti_state *io);

#endif
