/* extend.h: extension: a bidirectional model continued segment by segment, in constant memory. Private to video/ (and tests).
 *
 *   segment 0:    [ n n n n n n n n n ]                        n: drawn, handed out
 *   segment 1:            [ g g g n n n n n n ]                g: given by the segment before, held (lti_denoise_hold)
 *   segment 2:                        [ g g g n n n n n n ]
 *
 * Frames stay in latent space from one segment to the next, and the decoder's state runs on, so nothing is encoded again and no frame
 * is shown twice. One thing does not fit: the first latent frame of a video stands for one picture, every other for four, and a model
 * has never seen a window that begins with one of the others. `head` says what stands there.
 */
#ifndef LTI_VIDEO_EXTEND_H
#define LTI_VIDEO_EXTEND_H

#include "video/denoise.h"
#include "video/model_internal.h"

typedef enum lti_head {
    LTI_HEAD_ENCODE, /* the last picture of that latent frame, encoded as a first one; context only, never shown */
    LTI_HEAD_FIRST, /* the video's own first latent frame, as an anchor */
    LTI_HEAD_LATENT /* that latent frame as it is */
} lti_head;

typedef struct lti_extend_policy {
    bool
        naive; /* the last picture is encoded as the first one of a new clip, which is decoded afresh */
    int32_t segment; /* latent frames drawn together, the given ones included */
    int32_t overlap; /* of these, given */
    lti_head head;
} lti_extend_policy;

/* "[naive][,segment=FRAMES][,overlap=LATENTS][,head=encode|first|latent]"; NULL or "": the defaults. Errors: LT_ERR_ARG. */
LT_MUST_USE lt_status lti_extend_parse(lti_extend_policy *out, lt_ctx *ctx,
                                       const lt_model_info *info, const char *text);

/* A session's state of it. */
typedef struct lti_extend {
    lti_extend_policy policy;
    lti_denoise *d;
    float *given;     /* device, [channels, overlap, h * w]: what the next segment begins with */
    float *first;     /* HEAD_FIRST: device, [channels, h * w] */
    uint8_t *picture; /* host, RGB: of the last frame that is encoded for the next segment */
    int32_t frames;   /* given to the next segment */
    int64_t segments; /* drawn */
    bool begun;       /* with frames from outside */
} lti_extend;

#endif
