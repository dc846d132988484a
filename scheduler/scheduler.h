/* scheduler.h: diffusion time. Sigma schedules, solvers and few-step lists for flow matching:
 * x_sigma = (1 - sigma) x0 + sigma noise, the model predicts v = noise - x0, and is fed t = 1000 sigma.
 * Knows nothing of models; latents are device memory and are touched by operations only. Thread: the owner of ctx.
 */
#ifndef LT_SCHEDULER_H
#define LT_SCHEDULER_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Solvers, by the names the command takes. */
#define LT_SOLVER_MAP(X)        \
    X(LT_SOLVER_EULER, "euler") \
    X(LT_SOLVER_UNIPC, "unipc") \
    X(LT_SOLVER_DPMPP, "dpm++") \
    X(LT_SOLVER_RENOISE, "renoise") /* few-step lists: x0, then fresh noise ("LCM / DMD") */
typedef enum lt_solver {
#define LT_SOLVER_ENUM(name, text) name,
    LT_SOLVER_MAP(LT_SOLVER_ENUM)
#undef LT_SOLVER_ENUM
} lt_solver;

/* How the sigmas are laid out (spec: Wan 5.2). */
typedef enum lt_sigma_grid {
    LT_GRID_AUTO, /* the solver's own: unipc -> WAN_UNIPC, dpm++ -> WAN_DPMPP, euler -> EULER */
    LT_GRID_WAN_UNIPC, /* 0.999 (1 - i/K), shifted; t truncated to integers */
    LT_GRID_WAN_DPMPP, /* 1 - i/K, shifted; t truncated */
    LT_GRID_DIFFUSERS_UNIPC, /* linspace(1, 0.001, K+1) without the end, shifted, first - 1e-6; t truncated */
    LT_GRID_DIFFUSERS_EULER, /* linspace(shift(1), shift(0.001), K), shifted again; t float */
    LT_GRID_EULER            /* linspace(1, 0, K+1) without the end, shifted; t float */
} lt_sigma_grid;

typedef struct lt_scheduler_options {
    lt_solver solver;
    lt_sigma_grid grid;
    int32_t steps;     /* K >= 1; ignored when list is given */
    double shift;      /* > 0, <= 1e6; 1 = none */
    const float *list; /* RENOISE: denoising step list on the 0..1000 scale, largest first */
    int32_t list_len;
    /* list values index the shifted 1000-step grid (Self-Forcing): s -> timesteps[1000 - s] */
    bool warp;
} lt_scheduler_options;
LT_API lt_scheduler_options lt_scheduler_options_default(void);
LT_API const char *lt_solver_name(lt_solver s);
LT_API bool lt_solver_parse(const char *name, lt_solver *out);

typedef struct lt_scheduler lt_scheduler;
/* Errors: LT_ERR_ARG (message names the option and value), LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_scheduler_create(lt_scheduler **out, lt_ctx *ctx,
                                                 const lt_scheduler_options *opt);
LT_API void lt_scheduler_destroy(lt_scheduler **s);
LT_API int32_t lt_scheduler_steps(const lt_scheduler *s);
/* sigma of step i, i = 0..steps (the last is 0 for solvers; RENOISE: steps values, then 0), as the reference stores it (float32). */
LT_API float lt_scheduler_sigma(const lt_scheduler *s, int32_t i);
/* What the model is fed at step i < steps: integers for unipc and dpm++, never rounded to a compute type. */
LT_API double lt_scheduler_timestep(const lt_scheduler *s, int32_t i);

/* Allocates the solver's state for latents of n numbers on `dev`, which must outlive it; again: for other latents, and what is there
 * already serves fewer numbers. The next step is step 0. Tables need none.
 * Errors: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_scheduler_bind(lt_scheduler *s, lt_dev *dev, int64_t n);
/* Forgets history: the next step is step 0 of a new trajectory. Allocates nothing. */
LT_API void lt_scheduler_reset(lt_scheduler *s);
/* x (in: sample at step i; out: sample at step i + 1) from the model's v, both [n] f32 device memory. Steps are taken in order; one
 * that fails counts as taken.
 * noise: [n] fresh Gaussian, needed by RENOISE on every step but the last; else NULL. Errors: LT_ERR_ARG. */
LT_MUST_USE LT_API lt_status lt_scheduler_step(lt_scheduler *s, int32_t i, float *x, const float *v,
                                               const float *noise);

/* ---- timetables of blocks that are denoised together ---------------------------------------- */

/* Blocks first .. end - 1 are on their way, at the levels of noise level .. level_end - 1. */
typedef struct lt_stage {
    int32_t first, end;
    int32_t level, level_end;
} lt_stage;
/* Rolling Forcing: iteration i of blocks + levels - 1. The first block is at `level`, each later one a level noisier; level 0 is the
 * cleanest, and a block that leaves it is done. */
LT_API lt_stage lt_rolling_stage(int32_t blocks, int32_t levels, int32_t i);
/* MAGI-1: stage i = offset .. blocks + window - 2; `offset` blocks are given. Bands level .. level_end - 1, band 0 the noisiest: the
 * newest block has the first of them. Each stage takes steps / window steps. */
LT_API lt_stage lt_pipeline_stage(int32_t blocks, int32_t offset, int32_t window, int32_t i);
/* Its time at step j = 0..steps, from 0 (noise) to 1 (clean). */
LT_API double lt_pipeline_time(int32_t steps, int32_t j);
/* SkyReels-V2: row [blocks], all 0 at first (noise), becomes the next: 1..steps are places in the schedule, steps + 1 is clean. A block
 * lags the one before it by `lag` steps; 0: all together. Gives whether every block has come to its last step. */
LT_API bool lt_forcing_row(int32_t *row, int32_t blocks, int32_t steps, int32_t lag);

#ifdef __cplusplus
}
#endif
#endif
