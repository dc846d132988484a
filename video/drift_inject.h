/* drift_inject.h: faults on purpose: what the monitor must see, put into latents as they are drawn, before anything judges them.
 * Private to video/ (and tests). */
#ifndef LTI_VIDEO_DRIFT_INJECT_H
#define LTI_VIDEO_DRIFT_INJECT_H

#include "video/drift_latent.h"
#include "video/model_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lti_fault_kind {
    LTI_FAULT_EXPOSURE, /* EV in 10 s */
    LTI_FAULT_COLOUR,   /* Delta E in 10 s, towards red */
    LTI_FAULT_GAIN,     /* of the latent's contrast, a part in 10 s */
    LTI_FAULT_BLUR,     /* part of the difference to the mean of neighbours, every block */
    LTI_FAULT_SHARPEN,
    LTI_FAULT_FREEZE, /* the last frame of the block before, again and again */
    LTI_FAULT_BLACK,
    LTI_FAULT_NAN, /* one number */
    LTI_FAULT_SLOT /* AR: a kept frame becomes noise */
} lti_fault_kind;

typedef struct lti_fault {
    lti_fault_kind kind;
    double amount;
    double at, length; /* seconds */
    bool frames;       /* exposure, colour, gain: grows with time, whatever the model makes of it */
} lti_fault;

enum { LTI_MAX_FAULTS = 8 };
typedef struct lti_faults {
    lti_fault fault[LTI_MAX_FAULTS];
    int32_t count;
    float *light, *red,
        *black; /* by channel: of one EV, of one Delta E; the latent of black, [channels] */
} lti_faults;

/* NULL or "": none. Errors: LT_ERR_ARG with a message that names the word. */
LT_MUST_USE lt_status lti_faults_parse(lti_faults *out, lt_ctx *ctx, const char *text);
/* Measures the directions that these faults want, with the model's encoder. */
LT_MUST_USE lt_status lti_faults_open(lti_faults *f, lt_model *m, int32_t width, int32_t height,
                                      const atomic_bool *cancel);
void lti_faults_close(lti_faults *f); /* accepts a zeroed struct */
/* To frames first .. of z, which begin at `seconds` of the video and are `length` seconds; `before`: [channels, h * w], the frame before
 * them, or NULL. A broken attempt is broken once: those are left out of `again`. True: z was changed. */
bool lti_faults_apply(const lti_faults *f, float *z, const lti_latent *shape, int32_t first,
                      double seconds, double length, const float *before, bool again);
/* A kept frame is to become noise. */
bool lti_faults_slot(const lti_faults *f, double seconds, double length);

#ifdef __cplusplus
}
#endif

#endif
