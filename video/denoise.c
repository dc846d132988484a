/* denoise.c: the denoising loop's body. Knows latents and text rows, neither files nor pixels. */
#include "video/denoise.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { COND, UNCOND, BRANCHES };

/* Streams of the noise generator, of each segment: the latent, then one for every step that draws anew. */
enum { STREAM_LATENT = 0, STREAM_STEP = 1, STREAM_BITS = 24 };

struct lti_denoise {
    lt_dev *dev;
    lt_ctx *ctx;
    const lti_dit *dit;
    lt_scheduler *scheduler;
    lti_dit_run *run;
    lti_prompt *prompt[BRANCHES];
    bool guided, batch, frame_times;
    double guidance;
    uint64_t seed;
    int32_t frames, h, w, channels;
    int64_t n; /* numbers of the latent */
    float *x, *v[BRANCHES], *noise;
    const float *given; /* the first given_frames frames */
    int64_t given_stride;
    int32_t given_frames;
    int64_t segment;
    int32_t *token_time; /* host, [tokens] */
    const atomic_bool *cancel;
    lt_sparse_spec attention;
    int32_t passes;
    double flops;
};

lt_status lti_guide(lt_dev *dev, float *cond, const float *uncond, double guidance, int64_t n)
{
    return lt_lincomb(dev, &(lt_lincomb_args){.out = cond,
                                              .x = {uncond, cond},
                                              .coef = {(float)(1 - guidance), (float)guidance},
                                              .terms = 2,
                                              .n = n});
}

lt_status lti_check_finite(lt_dev *dev, const float *x, int64_t n, const char *where)
{
    lt_stats_result r;
    LT_TRY(lt_stats(dev, &(lt_stats_args){.x = x, .n = n, .result = &r}));
    if (r.nonfinite == 0) return LT_OK;
    return lti_fail(lt_dev_ctx(dev), LT_ERR_NUMERIC,
                    "%s: %" PRId64 " of %" PRId64 " numbers are not finite", where, r.nonfinite, n);
}

/* ---- creation ---- */

/* The schedule's timesteps, and 0 after them for frames that are given. */
static lt_status create_run(lti_denoise *d)
{
    const int32_t steps = lt_scheduler_steps(d->scheduler);
    double *times = malloc(((size_t)steps + 1) * sizeof *times);
    if (!times) return lti_fail(d->ctx, LT_ERR_MEM, "no memory for %d timesteps", steps);
    for (int32_t i = 0; i < steps; i++)
        times[i] = lt_scheduler_timestep(d->scheduler, i);
    times[steps] = 0;
    const lti_dit_run_options o = {.frames = d->frames,
                                   .h = d->h,
                                   .w = d->w,
                                   .batch = d->batch ? 2 : 1,
                                   .times = times,
                                   .attention = &d->attention,
                                   .ntimes = steps + 1};
    const lt_status s = lti_dit_run_create(&d->run, d->dit, &o);
    free(times);
    return s;
}

static lt_status create_latents(lti_denoise *d, bool renoise)
{
    const size_t bytes = (size_t)d->n * sizeof(float);
    LT_TRY(lt_dev_alloc(d->dev, (void **)&d->x, bytes, LT_TAG_LATENT));
    LT_TRY(lt_dev_alloc(d->dev, (void **)&d->v[COND], bytes, LT_TAG_LATENT));
    if (d->guided) LT_TRY(lt_dev_alloc(d->dev, (void **)&d->v[UNCOND], bytes, LT_TAG_LATENT));
    if (renoise) LT_TRY(lt_dev_alloc(d->dev, (void **)&d->noise, bytes, LT_TAG_LATENT));
    return lt_scheduler_bind(d->scheduler, d->dev, d->n);
}

static lt_status fill(lti_denoise *d, const lti_denoise_options *o)
{
    LT_TRY(lt_scheduler_create(&d->scheduler, d->ctx, o->schedule));
    LT_TRY(create_run(d));
    const int64_t tokens = lti_dit_run_tokens(d->run);
    LT_TRY(lti_prompt_create(&d->prompt[COND], d->dit, o->cond, o->cond_rows, tokens, NULL));
    if (d->guided)
        LT_TRY(
            lti_prompt_create(&d->prompt[UNCOND], d->dit, o->uncond, o->uncond_rows, tokens, NULL));
    LT_TRY(create_latents(d, o->schedule->solver == LT_SOLVER_RENOISE));
    d->token_time = malloc((size_t)tokens * sizeof *d->token_time);
    if (!d->token_time)
        return lti_fail(d->ctx, LT_ERR_MEM, "no memory for timesteps of %" PRId64 " tokens",
                        tokens);
    return LT_OK;
}

lt_status lti_denoise_create(lti_denoise **out, const lti_denoise_options *o)
{
    *out = NULL;
    const lti_dit_config *c = lti_dit_get_config(o->dit);
    lt_dev *dev = lti_dit_device(o->dit);
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (c->in_channels != c->out_channels)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "a transformer with %d input and %d output channels", c->in_channels,
                        c->out_channels);
    lti_denoise *d = calloc(1, sizeof *d);
    if (!d) return lti_fail(ctx, LT_ERR_MEM, "no memory for a denoiser");
    d->dev = dev;
    d->ctx = ctx;
    d->dit = o->dit;
    d->guidance = o->guidance;
    d->guided = o->guidance > 1;
    d->batch = d->guided && o->batch;
    d->frame_times = c->frame_timesteps;
    d->seed = o->seed;
    d->frames = o->frames;
    d->h = o->h;
    d->w = o->w;
    d->channels = c->in_channels;
    d->n = (int64_t)d->channels * d->frames * d->h * d->w;
    lti_denoise_hold(d, o->first_frame, (int64_t)d->h * d->w, o->first_frame != NULL);
    d->cancel = o->cancel;
    d->attention = o->attention;
    const lt_status s = fill(d, o);
    if (s < 0)
        lti_denoise_destroy(&d);
    else
        *out = d;
    return s;
}

void lti_denoise_destroy(lti_denoise **denoise)
{
    lti_denoise *d = denoise ? *denoise : NULL;
    if (!d) return;
    free(d->token_time);
    lt_dev_free(d->dev, d->x);
    lt_dev_free(d->dev, d->v[COND]);
    lt_dev_free(d->dev, d->v[UNCOND]);
    lt_dev_free(d->dev, d->noise);
    lti_prompt_destroy(&d->prompt[COND]);
    lti_prompt_destroy(&d->prompt[UNCOND]);
    lti_dit_run_destroy(&d->run);
    lt_scheduler_destroy(&d->scheduler);
    free(d);
    *denoise = NULL;
}

/* ---- a step ---- */

static lt_status draw(lti_denoise *d, float *to, uint64_t stream)
{
    return lt_noise(d->dev,
                    &(lt_noise_args){.out = to,
                                     .n = d->n,
                                     .seed = d->seed,
                                     .stream = (uint64_t)d->segment << STREAM_BITS | stream});
}

lt_status lti_denoise_begin(lti_denoise *d, int64_t segment)
{
    d->segment = segment;
    lt_scheduler_reset(d->scheduler);
    return draw(d, d->x, STREAM_LATENT);
}

void lti_denoise_hold(lti_denoise *d, const float *z, int64_t channel_stride, int32_t frames)
{
    assert(frames >= 0 && frames <= d->frames);
    d->given = z;
    d->given_stride = channel_stride;
    d->given_frames = frames;
}

/* Writes the given frames over the latent as they are at noise level `sigma`: clean where the model has a time for each frame.
 * Where it has one for all they are as noisy as the others, with the noise that the segment began with, so that they too come down
 * one straight line to what they are (replacement, as in RePaint without its repetitions: Lugmayr et al. 2022, arXiv:2201.09865). Solvers
 * work number by number: what their history holds of these frames reaches no others. v is free between a step and the next pass. */
static lt_status impose_given(lti_denoise *d, float sigma)
{
    const int64_t frame = (int64_t)d->h * d->w, n = d->given_frames * frame;
    const bool noisy = n && !d->frame_times && sigma > 0;
    if (noisy) LT_TRY(draw(d, d->v[COND], STREAM_LATENT));
    for (int32_t c = 0; n && c < d->channels; c++) {
        const int64_t at = c * d->frames * frame;
        const float *z = d->given + c * d->given_stride;
        LT_TRY(noisy ? lt_lincomb(d->dev, &(lt_lincomb_args){.out = d->x + at,
                                                             .x = {z, d->v[COND] + at},
                                                             .coef = {1 - sigma, sigma},
                                                             .terms = 2,
                                                             .n = n})
                     : lt_dev_copy(d->dev, d->x + at, z, (size_t)n * sizeof(float)));
    }
    return LT_OK;
}

/* The given frames' tokens are at time 0, the last entry of the tables, if the model knows such; the others at step i. */
static void set_token_times(lti_denoise *d, int32_t i)
{
    const int64_t tokens = lti_dit_run_tokens(d->run), given = tokens / d->frames * d->given_frames;
    for (int64_t k = 0; given && d->frame_times && k < tokens; k++)
        d->token_time[k] = k < given ? lt_scheduler_steps(d->scheduler) : i;
}

/* Branches first .. first + count - 1 in one pass. */
static lt_status pass(lti_denoise *d, int32_t i, int first, int count)
{
    lti_dit_args a = {.batch = count,
                      .time = i,
                      .progress = (double)i / lt_scheduler_steps(d->scheduler),
                      .branch = first,
                      .token_time = d->given_frames && d->frame_times ? d->token_time : NULL,
                      .cancel = d->cancel};
    const double skipped = lti_dit_run_skipped(d->run);
    int64_t keys[BRANCHES];
    for (int b = 0; b < count; b++) {
        a.x[b] = d->x;
        a.v[b] = d->v[first + b];
        a.prompt[b] = d->prompt[first + b];
        keys[b] = lti_prompt_keys(a.prompt[b]);
    }
    LT_TRY(lti_dit_forward(d->run, &a));
    d->passes += count;
    d->flops +=
        lti_dit_flops(lti_dit_get_config(d->dit), lti_dit_run_tokens(d->run), count, keys, true) -
        (lti_dit_run_skipped(d->run) - skipped);
    return LT_OK;
}

static lt_status velocity(lti_denoise *d, int32_t i)
{
    if (!d->guided) return pass(d, i, COND, 1);
    if (d->batch) {
        LT_TRY(pass(d, i, COND, 2));
    } else {
        LT_TRY(pass(d, i, COND, 1));
        LT_TRY(pass(d, i, UNCOND, 1));
    }
    return lti_guide(d->dev, d->v[COND], d->v[UNCOND], d->guidance, d->n);
}

lt_status lti_denoise_step(lti_denoise *d, int32_t i)
{
    const int32_t steps = lt_scheduler_steps(d->scheduler);
    if (i == 0) LT_TRY(impose_given(d, lt_scheduler_sigma(d->scheduler, 0)));
    set_token_times(d, i);
    LT_TRY(velocity(d, i));
    char where[64];
    snprintf(where, sizeof where, "the model's output at step %d of %d", i + 1, steps);
    LT_TRY(lti_check_finite(d->dev, d->v[COND], d->n, where));
    const bool fresh = d->noise && i < steps - 1;
    if (fresh) LT_TRY(draw(d, d->noise, STREAM_STEP + (uint64_t)i));
    LT_TRY(lt_scheduler_step(d->scheduler, i, d->x, d->v[COND], fresh ? d->noise : NULL));
    return impose_given(d, lt_scheduler_sigma(d->scheduler, i + 1));
}

/* ---- looking ---- */

float *lti_denoise_latent(lti_denoise *d)
{
    return d->x;
}

int64_t lti_denoise_numbers(const lti_denoise *d)
{
    return d->n;
}

float *lti_denoise_take_latent(lti_denoise *d)
{
    float *x = d->x;
    d->x = NULL;
    return x;
}

int32_t lti_denoise_steps(const lti_denoise *d)
{
    return lt_scheduler_steps(d->scheduler);
}

double lti_denoise_timestep(const lti_denoise *d, int32_t i)
{
    return lt_scheduler_timestep(d->scheduler, i);
}

int64_t lti_denoise_tokens(const lti_denoise *d)
{
    return lti_dit_run_tokens(d->run);
}

double lti_denoise_density(const lti_denoise *d)
{
    return lti_dit_run_density(d->run);
}

void lti_denoise_stats(const lti_denoise *d, lt_sparse_stats *out)
{
    lti_dit_run_stats(d->run, out);
}

int32_t lti_denoise_passes(const lti_denoise *d)
{
    return d->passes;
}

double lti_denoise_flops(const lti_denoise *d)
{
    return d->flops;
}

const float *lti_denoise_velocity(const lti_denoise *d, bool uncond)
{
    return d->v[uncond ? UNCOND : COND];
}

uint64_t lti_denoise_latent_bytes(const lti_dit_config *c, int32_t frames, int32_t h, int32_t w)
{
    /* x, two velocities, and the most that a solver keeps (UniPC: four) */
    return 7 * (uint64_t)c->in_channels * (uint64_t)frames * (uint64_t)h * (uint64_t)w *
           sizeof(float);
}

uint64_t lti_denoise_bytes(const lti_dit_config *c, lt_dtype compute, int32_t frames, int32_t h,
                           int32_t w, int32_t steps, int32_t rows, bool guided, bool batch)
{
    const uint64_t prompt =
        ((uint64_t)rows + 1) * 2 * (uint64_t)c->dim * (uint64_t)c->layers * lt_dtype_size(compute);
    return lti_dit_run_bytes(c, compute, frames, h, w, batch ? 2 : 1, steps + 1) +
           prompt * (guided ? 2 : 1) + lti_denoise_latent_bytes(c, frames, h, w);
}
