/* rollout_internal.h: what the files of a rollout share: rollout.c (blocks), rollout_kept.c (another prompt; to a file and back).
 */
#ifndef LTI_VIDEO_ROLLOUT_INTERNAL_H
#define LTI_VIDEO_ROLLOUT_INTERNAL_H

#include "video/rollout.h"

enum { LTI_COND, LTI_UNCOND, LTI_BRANCHES };
enum { LTI_MAX_ATTEMPTS = 256 };

struct lti_rollout {
    lt_dev *dev;
    lt_ctx *ctx;
    lti_rollout_options o; /* text rows and schedule are not kept */
    lt_scheduler *scheduler;
    lti_dit_run *run;
    lti_prompt *prompt[LTI_BRANCHES];
    lt_cache *cache[LTI_BRANCHES];
    int branches;
    int32_t steps, channels, patch;
    int64_t block;
    int32_t frames, attempt; /* of the present block */
    bool drawn, renoise;
    bool opening;      /* what is drawn is the picture that a new shot begins with */
    bool stale;        /* kept frames are to be written again under the present prompt */
    bool changed;      /* ... whatever the policy says of prompts, since their latents are others */
    double past, sink; /* weights of kept frames (lt_cache_weigh) */
    lti_rollout_probe probe;
    float *x, *v[LTI_BRANCHES], *noise; /* device, [channels, frames, h, w] */
    float *history;                     /* device, [slots of the cache, channels, h * w] */
    int64_t passes;
    double flops;
};

static inline int64_t lti_rollout_numbers(const lti_rollout *r) /* of the present block */
{
    return (int64_t)r->channels * r->frames * r->o.h * r->o.w;
}

/* Branches first .. first + count - 1 in one pass over `x` at time `time` of the run's tables. */
LT_MUST_USE lt_status lti_rollout_pass(lti_rollout *r, const float *x, int32_t time, int first,
                                       int count);
/* Noise of the present block and of `what`, below 65536. */
LT_MUST_USE lt_status lti_rollout_noise(lti_rollout *r, float *to, int32_t attempt, int32_t what);
/* out = (1 - sigma) x + sigma out, for the time that frames are kept at. */
LT_MUST_USE lt_status lti_rollout_mix(lti_rollout *r, float *out, const float *x);

/* ---- rollout_kept.c ---- */

/* The latents of the open block, [channels, frames, h, w], to the places of its slots. */
LT_MUST_USE lt_status lti_rollout_remember(lti_rollout *r, const float *latent);
/* If the prompt has changed: what the policy says, before a block of `next_frames` is drawn. */
LT_MUST_USE lt_status lti_rollout_renew(lti_rollout *r, int32_t next_frames);

/* ---- rollout.c, for it ---- */

/* Draws a picture and keeps it, as the first frame of a video is, though it is nobody's block. */
LT_MUST_USE lt_status lti_rollout_picture(lti_rollout *r);

#endif
