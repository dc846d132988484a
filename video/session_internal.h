/* session_internal.h: one timeline, for the files that make it: session.c (making, the whole latent, frames), session_blocks.c (blocks
 * and their prompts), snapshot.c (to a file and back).
 */
#ifndef LTI_VIDEO_SESSION_INTERNAL_H
#define LTI_VIDEO_SESSION_INTERNAL_H

#include "video/extend.h"
#include "video/model_internal.h"
#include "video/prompts.h"
#include "video/rollout.h"
#include "video/session_drift.h"

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
    char *prompt, *negative, *cache, *extend_text;
    float *list;
    uint8_t *image, *given;
    char *attention_text, *inject;
    lt_sparse_spec attention;
    lt_scheduler_options schedule;
    int32_t frames, h, w; /* of the latent */
    lti_session_state state;
    lt_status failure;
    char message[512];  /* of the failure, said again at every later call */
    atomic_bool cancel; /* set by any thread, polled between layers and frames */

    float *latent;        /* device, once denoised */
    lti_rollout *rollout; /* AR: instead of it */
    lti_extend *extend;   /* EXTEND: instead of it */
    bool lead;            /* rgb holds the frame of a given picture, which is handed out first */
    lti_watch *watch;     /* drift is watched, or faults are put in; else NULL */
    lti_prompts prompts;
    lti_rows negative_rows;
    int32_t used;    /* latent frames of the present block that have been handed out */
    bool warm;       /* a block has been drawn: the next shall allocate nothing */
    lt_frames shown; /* what lt_session_next says of the present block */
    lt_vae_decoder *decoder;
    int32_t pushed; /* latent frames that have been handed out */
    bool in_group;  /* the next one is with the decoder ... */
    int32_t group;  /* ... and so many of its frames are in rgb */
    uint8_t *rgb_dev, *rgb;
    double start, step_start;
    lt_session_report report;
};

/* LT_OK, or what the session has failed with. */
LT_MUST_USE lt_status lti_session_alive(lt_session *s);
/* Remembers a failure; gives `st`. */
LT_MUST_USE lt_status lti_session_settle(lt_session *s, lt_status st);
/* The first call makes what all later ones need. */
LT_MUST_USE lt_status lti_session_start(lt_session *s);
LT_MUST_USE lt_status lti_session_cancelled(lt_session *s, const char *where);
void lti_session_count_attention(lt_session *s, const lt_sparse_stats *a);
void lti_session_progress(lt_session *s, lt_phase phase, int32_t step, int32_t steps);
/* Rows of `texts` texts. */
LT_MUST_USE lt_status lti_session_encode(lt_session *s, lti_text_rows *rows,
                                         const char *const *text, int32_t texts);
LT_MUST_USE lt_status lti_session_open_decoder(lt_session *s);

/* A denoiser of so many latent frames under the session's options; first_frame: a latent, or NULL. */
LT_MUST_USE lt_status lti_session_denoiser(lti_denoise **out, lt_session *s, int32_t frames,
                                           const lti_text_rows *text, const float *first_frame);
/* The steps of a denoiser, `done` of `all` steps of the video being done. */
LT_MUST_USE lt_status lti_session_denoise_steps(lt_session *s, lti_denoise *d, int32_t done,
                                                int32_t all);
/* Its frames follow those of another video: they are numbered from 0 and none is of a first latent frame. */
bool lti_session_continues(const lt_session *s);
/* Number of the video frame that follows those of `latents` latent frames. */
int64_t lti_session_number(const lt_session *s, int64_t latents);

/* ---- session_extend.c ---- */

LT_MUST_USE lt_status lti_session_open_extend(lt_session *s);
void lti_session_close_extend(lt_session *s);
/* z: device, [channels, frames, h * w]: the first segment begins with the last of them. */
LT_MUST_USE lt_status lti_extend_begin_with(lt_session *s, const float *z, int32_t frames);
/* All frames of the drawn segment have been handed out, or there is none. */
bool lti_session_wants_segment(const lt_session *s);
LT_MUST_USE lt_status lti_session_next_segment(lt_session *s);
/* After a latent frame has been decoded: remembers its last picture if the next segment will want it. */
void lti_session_keep_picture(lt_session *s);

/* ---- session_given.c: a picture or the end of a video that a session begins with ---- */

/* z: device, [channels, *frames, h * w], freed with lt_dev_free; NULL when nothing is given. */
LT_MUST_USE lt_status lti_session_encode_given(lt_session *s, float **z, int32_t *frames);
/* Gives it to the decoder and to the blocks or the first segment. */
LT_MUST_USE lt_status lti_session_begin_with(lt_session *s, const float *z, int32_t frames);
/* Decodes the first `count` of z [channels, frames, h * w] for the decoder's memory of them; the last picture is left in rgb. */
LT_MUST_USE lt_status lti_session_warm(lt_session *s, const float *z, int32_t frames,
                                       int32_t count);
/* Copies one frame to place `place` of rgb. */
LT_MUST_USE lt_status lti_session_take_frame(lt_session *s, const lt_image *img, int32_t place);

/* ---- session_blocks.c ---- */

LT_MUST_USE lt_status lti_session_open_rollout(lt_session *s);
/* The rollout of these rows. */
LT_MUST_USE lt_status lti_session_create_rollout(lt_session *s, lti_rows prompt, lti_rows negative);
/* No frame of the drawn block has been handed out. */
bool lti_session_untouched(const lt_session *s);
/* All of them have, or there is no block. */
bool lti_session_wants_block(const lt_session *s);
/* Keeps the block that has been handed out and draws the next. */
LT_MUST_USE lt_status lti_session_next_block(lt_session *s);

/* ---- snapshot.c, from an open file: for the fuzzers ---- */

LT_MUST_USE lt_status lti_snapshot_read_head(lt_snapshot_info *out, lt_ctx *ctx, FILE *f,
                                             uint64_t bytes);
LT_MUST_USE lt_status lti_snapshot_read(lt_session **out, lt_model *model, FILE *f, uint64_t bytes,
                                        const lt_session_options *opt);

#endif
