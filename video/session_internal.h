/* session_internal.h: one timeline, for the files that make it: session.c (making, the whole latent, frames), session_blocks.c (blocks
 * and their prompts), snapshot.c (to a file and back).
 */
#ifndef LTI_VIDEO_SESSION_INTERNAL_H
#define LTI_VIDEO_SESSION_INTERNAL_H

#include "video/model_internal.h"
#include "video/rollout.h"

typedef enum lti_session_state {
    LTI_SESSION_NEW,
    LTI_SESSION_DECODE,
    LTI_SESSION_END,
    LTI_SESSION_FAILED
} lti_session_state;

struct lt_session {
    lt_model *m;
    lt_dev *dev;
    lt_ctx *ctx;
    lt_session_options o; /* validated; texts, list and image are the copies below */
    char *prompt, *negative, *cache;
    float *list;
    uint8_t *image;
    lt_scheduler_options schedule;
    int32_t frames, h, w; /* of the latent */
    lti_session_state state;
    lt_status failure;
    char message[512];  /* of the failure, said again at every later call */
    atomic_bool cancel; /* set by any thread, polled between layers and frames */

    float *latent;        /* device, once denoised */
    lti_rollout *rollout; /* AR: instead of it */
    int32_t used;         /* latent frames of the present block that the decoder has had */
    lt_vae_decoder *decoder;
    int32_t pushed; /* latent frames given to the decoder */
    uint8_t *rgb_dev, *rgb;
    double start, step_start;
    lt_session_report report;
};

double lti_session_now(void);
LT_MUST_USE lt_status lti_session_cancelled(lt_session *s, const char *where);
void lti_session_progress(lt_session *s, lt_phase phase, int32_t step, int32_t steps);
/* Rows of the prompt and, with guidance, of the negative one. */
LT_MUST_USE lt_status lti_session_encode(lt_session *s, lti_text_rows *rows);

/* ---- session_blocks.c ---- */

LT_MUST_USE lt_status lti_session_open_rollout(lt_session *s);
/* Keeps the block that has been handed out and draws the next. */
LT_MUST_USE lt_status lti_session_next_block(lt_session *s);

#endif
