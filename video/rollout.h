/* rollout.h: autoregressive generation: one block of latent frames after the other, each seeing the kept frames through a key/value
 * cache. Knows latents and text rows, neither files nor pixels. Private to video/ (and tests).
 *
 *   draw: noise ─► few steps (x0, fresh noise) or a solver, with or without guidance ─► latent of the block
 *   keep: one pass on that latent at the context time writes the keys and values that later blocks see
 *
 * A block that is not kept can be drawn again, the same or with other noise: what it sees has not changed. The latents of kept frames
 * are held beside their keys and values, so that these can be written again under another prompt. All but prompts is reserved on
 * creation.
 */
#ifndef LTI_VIDEO_ROLLOUT_H
#define LTI_VIDEO_ROLLOUT_H

#include "video/dit.h"
#include "video/state.h"

/* What the steps leave behind for tests: device memory, valid during the call; x before the step. */
typedef struct lti_rollout_probe {
    lt_status (*step)(void *user, int64_t block, int32_t step, int32_t frames, const float *x,
                      const float *v);
    /* fills `to`, [channels, frames, h, w], instead of the generator; step -1: the block's first noise */
    lt_status (*noise)(void *user, float *to, int64_t block, int32_t step, int32_t frames);
    void *user;
} lti_rollout_probe;

typedef struct lti_rollout_options {
    const lti_dit *dit; /* must outlive the rollout */
    int32_t h, w;       /* of the latent */
    lt_cache_policy policy;
    const lt_scheduler_options *schedule;
    double guidance;            /* <= 1: `uncond` is not used; else a second cache */
    const float *cond, *uncond; /* host, [rows, text_dim] */
    int32_t cond_rows, uncond_rows;
    bool batch; /* both branches in one pass */
    uint64_t seed;
    const atomic_bool *cancel;      /* kept; NULL = none */
    const lti_rollout_probe *probe; /* copied; NULL = none */
    lt_sparse_spec attention;       /* zeros: dense */
} lti_rollout_options;

typedef struct lti_rollout lti_rollout;
LT_MUST_USE lt_status lti_rollout_create(lti_rollout **out, const lti_rollout_options *opt);
void lti_rollout_destroy(lti_rollout **r);

/* Given frames, device [channels, frames, h, w] f32, at most a block: they are kept as if they had been drawn. No block may be
 * drawn and not kept. */
LT_MUST_USE lt_status lti_rollout_give(lti_rollout *r, const float *latent, int32_t frames);
/* Draws the next block, or the present one again. `attempt` chooses its noise: the same number gives the same bits. */
LT_MUST_USE lt_status lti_rollout_draw(lti_rollout *r, int32_t attempt);
/* Keeps the block that was drawn. */
LT_MUST_USE lt_status lti_rollout_keep(lti_rollout *r);
/* Blocks drawn from now on get these text rows, host [rows, text_dim], for the prompt; the negative one stays. `renew`: kept frames
 * are treated as the policy says (on_prompt), the next time that a block is drawn. A drawn block must have been kept. */
LT_MUST_USE lt_status lti_rollout_prompt(lti_rollout *r, const float *text, int32_t rows,
                                         bool renew);

/* For whoever changes a drawn block before it is kept: as lti_rollout_latent. */
float *lti_rollout_change(lti_rollout *r);
/* Opens the next block as if it had been drawn, after drawing it has failed: its latent is for the caller to fill. */
LT_MUST_USE lt_status lti_rollout_stand_in(lti_rollout *r);
/* Kept frames outside the sink become x' = scale x + offset by channel (host, [channels]), and their keys and values are written again
 * the next time that a block is drawn. noise: the oldest of them alone, and it becomes noise of the present block instead. */
LT_MUST_USE lt_status lti_rollout_change_kept(lti_rollout *r, const float *scale,
                                              const float *offset, bool noise);

/* lt_cache_weigh of every branch, from the next block that is drawn on, or the present one drawn again. */
void lti_rollout_weigh(lti_rollout *r, double past, double sink);

const float *
lti_rollout_latent(const lti_rollout *r); /* of the last block: device, [channels, frames, h, w] */
int32_t lti_rollout_frames(const lti_rollout *r); /* of it */
bool lti_rollout_drawn(const lti_rollout *r);     /* it is whole and not kept yet */
int64_t lti_rollout_block(
    const lti_rollout *r); /* number of the next block to be drawn, or of the drawn one */
const lt_cache *lti_rollout_cache(const lti_rollout *r, bool uncond);
/* Keys that the present block reads over those of all frames until then. */
double lti_rollout_density(const lti_rollout *r);
void lti_rollout_stats(const lti_rollout *r, lt_sparse_stats *out);
int64_t lti_rollout_passes(const lti_rollout *r);
double lti_rollout_flops(const lti_rollout *r);
/* Everything that later blocks depend on but the prompts' rows, to a file or from one of a rollout made with the same options. */
LT_MUST_USE lt_status lti_rollout_state(lti_rollout *r, lti_state *io);
/* Of the caches, both branches'. No device needed. */
uint64_t lti_rollout_cache_bytes(const lti_dit_config *c, lt_dtype compute,
                                 const lt_cache_policy *policy, int32_t h, int32_t w, bool guided);
/* Device bytes of a rollout with prompts of `rows` text rows. No device needed. */
uint64_t lti_rollout_bytes(const lti_dit_config *c, lt_dtype compute, const lt_cache_policy *policy,
                           int32_t h, int32_t w, int32_t steps, int32_t rows, bool guided,
                           bool batch);

#endif
