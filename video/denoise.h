/* denoise.h: noise to latent: the transformer, guidance and a solver, step by step. Private to video/ (and tests).
 *
 *   text rows ─► prompts ┐                      given frames (clean, t = 0, or noisy as the rest) imposed before the first and after every step
 *   schedule  ─► tables  ┴─► step i: v = uncond + guidance (cond - uncond) ─► solver ─► latent
 *
 * Everything is reserved on creation; a step allocates nothing once kernels have their scratch (after the first).
 */
#ifndef LTI_VIDEO_DENOISE_H
#define LTI_VIDEO_DENOISE_H

#include "video/dit.h"

typedef struct lti_denoise_options {
    const lti_dit *dit;   /* must outlive the denoiser */
    int32_t frames, h, w; /* of the latent */
    const lt_scheduler_options *schedule;
    double guidance;            /* <= 1: `uncond` is not used */
    const float *cond, *uncond; /* host, [rows, text_dim] */
    int32_t cond_rows, uncond_rows;
    bool batch;                /* both branches in one pass */
    uint64_t seed;             /* of fresh noise, for solvers that want it */
    const float *first_frame;  /* as lti_denoise_hold of one frame; NULL = none */
    const atomic_bool *cancel; /* kept; NULL = none */
    lt_sparse_spec attention;  /* zeros: dense */
} lti_denoise_options;

typedef struct lti_denoise lti_denoise;
LT_MUST_USE lt_status lti_denoise_create(lti_denoise **out, const lti_denoise_options *opt);
void lti_denoise_destroy(lti_denoise **d);

/* The latent, device memory [channels, frames, h, w] f32, owned by the denoiser. Fill it (noise of deviation 1) before step 0. */
float *lti_denoise_latent(lti_denoise *d);
int64_t lti_denoise_numbers(const lti_denoise *d); /* of the latent */
/* Gives the latent away: the caller frees it with lt_dev_free; the denoiser can only be destroyed afterwards. */
float *lti_denoise_take_latent(lti_denoise *d);
/* The first `frames` frames of the latent are given: device, [channels, frames, h * w], channel_stride elements between channels,
 * kept. Tokens of theirs are at time 0; a model that has one time for all (lti_dit_config.frame_timesteps) sees them at each step with
 * as much noise as the rest, that of lti_denoise_begin. After the last step they are z in both. 0 frames: none, as after creation
 * without a first frame. */
void lti_denoise_hold(lti_denoise *d, const float *z, int64_t channel_stride, int32_t frames);
/* A new latent from step 0 on: noise of `seed`; a number depends on seed, segment and place only. */
LT_MUST_USE lt_status lti_denoise_begin(lti_denoise *d, int64_t segment);

int32_t lti_denoise_steps(const lti_denoise *d);
double lti_denoise_timestep(const lti_denoise *d, int32_t i);
int64_t lti_denoise_tokens(const lti_denoise *d);
double lti_denoise_density(const lti_denoise *d); /* of self-attention so far */
void lti_denoise_stats(const lti_denoise *d, lt_sparse_stats *out);
/* Steps 0, 1, ... in order. LT_ERR_NUMERIC when the model's output is not finite (message has the step), LT_ERR_CANCELLED. */
LT_MUST_USE lt_status lti_denoise_step(lti_denoise *d, int32_t i);
/* Passes and operations so far (lti_dit_flops). */
int32_t lti_denoise_passes(const lti_denoise *d);
double lti_denoise_flops(const lti_denoise *d);
/* The branches' last outputs, device memory, for tests: guided (after guidance this is the conditional's place; overwritten where frames
 * are held with noise), unconditional. */
const float *lti_denoise_velocity(const lti_denoise *d, bool uncond);

/* Device bytes of a denoiser: run, prompts of `rows` text rows each, latents, solver. No device needed. */
uint64_t lti_denoise_bytes(const lti_dit_config *c, lt_dtype compute, int32_t frames, int32_t h,
                           int32_t w, int32_t steps, int32_t rows, bool guided, bool batch);
/* Of these, the latents and the solver's state. */
uint64_t lti_denoise_latent_bytes(const lti_dit_config *c, int32_t frames, int32_t h, int32_t w);

/* Classifier-free guidance, in place: cond = uncond + guidance (cond - uncond). Device memory, n numbers. */
LT_MUST_USE lt_status lti_guide(lt_dev *dev, float *cond, const float *uncond, double guidance,
                                int64_t n);

/* LT_ERR_NUMERIC "<where>: k of n numbers are not finite" unless all n are. */
LT_MUST_USE lt_status lti_check_finite(lt_dev *dev, const float *x, int64_t n, const char *where);

#endif
