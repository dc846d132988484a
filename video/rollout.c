/* rollout.c: the block loop. Noise is keyed by (seed, block, attempt, step), so no result depends on what was drawn and thrown away
 * before. */
#include "video/denoise.h"
#include "video/rollout_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- creation ---- */

/* The schedule's timesteps, then the time of kept frames and that of given ones. */
static lt_status create_run(lti_rollout *r)
{
    double *times = malloc(((size_t)r->steps + 2) * sizeof *times);
    if (!times) return lti_fail(r->ctx, LT_ERR_MEM, "no memory for %d timesteps", r->steps);
    for (int32_t i = 0; i < r->steps; i++)
        times[i] = lt_scheduler_timestep(r->scheduler, i);
    times[r->steps] = r->o.policy.context_time;
    times[r->steps + 1] = 0;
    const lti_dit_run_options o = {.frames = lt_cache_most_open(&r->o.policy),
                                   .h = r->o.h,
                                   .w = r->o.w,
                                   .batch = r->branches == 2 && r->o.batch ? 2 : 1,
                                   .times = times,
                                   .ntimes = r->steps + 2,
                                   .attention = &r->o.attention,
                                   .cache = &r->o.policy};
    const lt_status s = lti_dit_run_create(&r->run, r->o.dit, &o);
    free(times);
    return s;
}

static lt_cache_options cache_options(const lti_dit_config *c, lt_dtype compute,
                                      const lt_cache_policy *policy, int32_t h, int32_t w)
{
    return (lt_cache_options){.layers = c->layers,
                              .heads = c->heads,
                              .head_dim = c->head_dim,
                              .rows = h / c->patch,
                              .cols = w / c->patch,
                              .dtype = compute,
                              .policy = *policy};
}

static size_t latent_bytes(int32_t channels, int32_t frames, int32_t h, int32_t w)
{
    return (size_t)channels * (size_t)frames * (size_t)h * (size_t)w * sizeof(float);
}

static lt_status create_latents(lti_rollout *r)
{
    const lti_rollout_options *o = &r->o;
    const size_t bytes = latent_bytes(r->channels, lt_cache_most_open(&o->policy), o->h, o->w);
    LT_TRY(lt_dev_alloc(r->dev, (void **)&r->x, bytes, LT_TAG_LATENT));
    LT_TRY(lt_dev_alloc(r->dev, (void **)&r->noise, bytes, LT_TAG_LATENT));
    for (int b = 0; b < r->branches; b++)
        LT_TRY(lt_dev_alloc(r->dev, (void **)&r->v[b], bytes, LT_TAG_LATENT));
    return lt_dev_alloc(r->dev, (void **)&r->history,
                        latent_bytes(r->channels, o->policy.window, o->h, o->w), LT_TAG_LATENT);
}

static lt_status fill(lti_rollout *r, const lti_rollout_options *o)
{
    const lti_dit_config *c = lti_dit_get_config(o->dit);
    const float *const text[] = {o->cond, o->uncond};
    const int32_t rows[] = {o->cond_rows, o->uncond_rows};
    LT_TRY(lt_cache_policy_check(r->ctx, &o->policy));
    LT_TRY(lt_scheduler_create(&r->scheduler, r->ctx, o->schedule));
    const size_t most =
        latent_bytes(r->channels, lt_cache_most_open(&o->policy), o->h, o->w) / sizeof(float);
    LT_TRY(lt_scheduler_bind(r->scheduler, r->dev, (int64_t)most)); /* for every block there is */
    r->steps = lt_scheduler_steps(r->scheduler);
    LT_TRY(create_run(r));
    const lt_cache_options cache =
        cache_options(c, lti_dit_compute(o->dit), &o->policy, o->h, o->w);
    for (int b = 0; b < r->branches; b++) {
        LT_TRY(lti_prompt_create(&r->prompt[b], o->dit, text[b], rows[b],
                                 lti_dit_run_tokens(r->run), NULL));
        LT_TRY(lt_cache_create(&r->cache[b], r->dev, &cache));
    }
    return create_latents(r);
}

lt_status lti_rollout_create(lti_rollout **out, const lti_rollout_options *o)
{
    *out = NULL;
    const lti_dit_config *c = lti_dit_get_config(o->dit);
    lt_dev *dev = lti_dit_device(o->dit);
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (c->in_channels != c->out_channels)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "a transformer with %d input and %d output channels", c->in_channels,
                        c->out_channels);
    lti_rollout *r = calloc(1, sizeof *r);
    if (!r) return lti_fail(ctx, LT_ERR_MEM, "no memory for a rollout");
    r->dev = dev;
    r->ctx = ctx;
    r->o = *o;
    r->branches = o->guidance > 1 ? 2 : 1;
    r->past = r->sink = 1;
    r->channels = c->in_channels;
    r->patch = c->patch;
    r->renoise = o->schedule->solver == LT_SOLVER_RENOISE;
    if (o->probe) r->probe = *o->probe;
    const lt_status s = fill(r, o);
    r->o.schedule = NULL;
    r->o.cond = r->o.uncond = NULL;
    r->o.probe = NULL;
    if (s < 0)
        lti_rollout_destroy(&r);
    else
        *out = r;
    return s;
}

void lti_rollout_destroy(lti_rollout **rollout)
{
    lti_rollout *r = rollout ? *rollout : NULL;
    if (!r) return;
    for (int b = 0; b < LTI_BRANCHES; b++) {
        lt_dev_free(r->dev, r->v[b]);
        lt_cache_destroy(&r->cache[b]);
        lti_prompt_destroy(&r->prompt[b]);
    }
    lt_dev_free(r->dev, r->history);
    lt_dev_free(r->dev, r->noise);
    lt_dev_free(r->dev, r->x);
    lti_dit_run_destroy(&r->run);
    lt_scheduler_destroy(&r->scheduler);
    free(r);
    *rollout = NULL;
}

/* ---- passes ---- */

lt_status lti_rollout_pass(lti_rollout *r, const float *x, int32_t time, int first, int count)
{
    lti_dit_args a = {.batch = count,
                      .time = time,
                      .progress = time < r->steps ? (double)time / r->steps : 1,
                      .branch = first,
                      .frames = r->frames,
                      .cancel = r->o.cancel};
    const double skipped = lti_dit_run_skipped(r->run);
    for (int b = 0; b < count; b++) {
        a.x[b] = x;
        a.v[b] = r->v[first + b];
        a.prompt[b] = r->prompt[first + b];
        a.cache[b] = r->cache[first + b];
        r->flops +=
            lti_dit_causal_flops(lti_dit_get_config(r->o.dit),
                                 (int64_t)r->frames * (r->o.h / r->patch) * (r->o.w / r->patch),
                                 lt_cache_visible_rows(a.cache[b]), lti_prompt_keys(a.prompt[b]));
    }
    r->passes += count; /* a branch is a pass, as in denoise.c */
    LT_TRY(lti_dit_forward(r->run, &a));
    r->flops -= lti_dit_run_skipped(r->run) - skipped;
    return LT_OK;
}

static lt_status all_branches(lti_rollout *r, const float *x, int32_t time)
{
    if (r->branches == 1 || r->o.batch) return lti_rollout_pass(r, x, time, LTI_COND, r->branches);
    LT_TRY(lti_rollout_pass(r, x, time, LTI_COND, 1));
    return lti_rollout_pass(r, x, time, LTI_UNCOND, 1);
}

static lt_status guide(lti_rollout *r)
{
    if (r->branches == 1) return LT_OK;
    return lti_guide(r->dev, r->v[LTI_COND], r->v[LTI_UNCOND], r->o.guidance,
                     lti_rollout_numbers(r));
}

lt_status lti_rollout_noise(lti_rollout *r, float *to, int32_t attempt, int32_t what)
{
    const uint64_t key = ((uint64_t)r->block + 1) << 24 | (uint64_t)attempt << 16;
    return lt_noise(r->dev, &(lt_noise_args){.out = to,
                                             .n = lti_rollout_numbers(r),
                                             .seed = r->o.seed,
                                             .stream = key | (uint64_t)what});
}

static lt_status draw_noise(lti_rollout *r, float *to, int32_t step)
{
    enum { OPENING = 0x2000 }; /* its noise, beside that of the block after it */
    if (r->probe.noise) return r->probe.noise(r->probe.user, to, r->block, step, r->frames);
    return lti_rollout_noise(r, to, r->attempt, (r->opening ? OPENING : 0) + step + 1);
}

lt_status lti_rollout_mix(lti_rollout *r, float *out, const float *x)
{
    const double sigma = r->o.policy.context_time / 1000;
    return lt_lincomb(r->dev, &(lt_lincomb_args){.out = out,
                                                 .x = {x, out},
                                                 .coef = {(float)(1 - sigma), (float)sigma},
                                                 .terms = 2,
                                                 .n = lti_rollout_numbers(r)});
}

/* ---- blocks ---- */

static void close_block(lti_rollout *r)
{
    for (int b = 0; b < r->branches; b++)
        lt_cache_rollback(r->cache[b]);
    r->drawn = false;
}

static lt_status reserve(lti_rollout *r, int32_t frames)
{
    close_block(r);
    r->frames = frames;
    for (int b = 0; b < r->branches; b++)
        LT_TRY(lt_cache_reserve(r->cache[b], frames));
    return LT_OK;
}

static lt_status open_block(lti_rollout *r, int32_t frames)
{
    LT_TRY(reserve(r, frames));
    return lt_scheduler_bind(r->scheduler, r->dev, lti_rollout_numbers(r));
}

static lt_status step(lti_rollout *r, int32_t i)
{
    char where[96];
    snprintf(where, sizeof where, "the model's output in block %" PRId64 ", step %d of %d",
             r->block, i + 1, r->steps);
    LT_TRY(all_branches(r, r->x, i));
    LT_TRY(guide(r));
    LT_TRY(lti_check_finite(r->dev, r->v[LTI_COND], lti_rollout_numbers(r), where));
    if (r->probe.step)
        LT_TRY(r->probe.step(r->probe.user, r->block, i, r->frames, r->x, r->v[LTI_COND]));
    const bool fresh = r->renoise && i < r->steps - 1;
    if (fresh) LT_TRY(draw_noise(r, r->noise, i));
    return lt_scheduler_step(r->scheduler, i, r->x, r->v[LTI_COND], fresh ? r->noise : NULL);
}

/* Given frames are the first block, where there are any. */
static bool at_beginning(const lti_rollout *r)
{
    return lt_cache_next_frame(r->cache[LTI_COND]) == 0;
}

static int32_t first_frames(const lt_cache_policy *p)
{
    return p->first ? p->first : p->block;
}

static int32_t next_frames(const lti_rollout *r)
{
    return at_beginning(r) ? first_frames(&r->o.policy) : r->o.policy.block;
}

/* Frames that are drawn together for the next block. */
static int32_t drawn_frames(const lti_rollout *r)
{
    const lt_cache_policy *p = &r->o.policy;
    return at_beginning(r) && p->first_of ? p->first_of : next_frames(r);
}

/* Only the first `frames` of what was drawn remain. */
static lt_status cut_to(lti_rollout *r, int32_t frames)
{
    const int32_t drawn = r->frames;
    const int64_t area = (int64_t)r->o.h * r->o.w;
    if (drawn == frames) return LT_OK;
    for (int32_t c = 0; c < r->channels; c++) /* by way of the noise, which is done with */
        LT_TRY(lt_dev_copy(r->dev, r->noise + (int64_t)c * frames * area,
                           r->x + (int64_t)c * drawn * area,
                           (size_t)(frames * area) * sizeof(float)));
    LT_TRY(reserve(r, frames));
    return lt_dev_copy(r->dev, r->x, r->noise, (size_t)lti_rollout_numbers(r) * sizeof(float));
}

lt_status lti_rollout_stand_in(lti_rollout *r)
{
    LT_TRY(open_block(r, next_frames(r)));
    r->drawn = true;
    return LT_OK;
}

/* `drawn` frames together, of which the first `frames` remain. */
static lt_status draw_frames(lti_rollout *r, int32_t drawn, int32_t frames)
{
    LT_TRY(open_block(r, drawn));
    lt_status s = draw_noise(r, r->x, -1);
    for (int32_t i = 0; i < r->steps && s >= 0; i++)
        s = step(r, i);
    if (s >= 0) s = cut_to(r, frames);
    if (s < 0)
        close_block(r);
    else
        r->drawn = true;
    return s;
}

lt_status lti_rollout_draw(lti_rollout *r, int32_t attempt)
{
    if (attempt < 0 || attempt >= LTI_MAX_ATTEMPTS)
        return lti_fail(r->ctx, LT_ERR_ARG, "attempt %d: not in 0..%d", attempt,
                        LTI_MAX_ATTEMPTS - 1);
    r->attempt = attempt;
    close_block(r);
    LT_TRY(lti_rollout_renew(r, next_frames(r)));
    return draw_frames(r, drawn_frames(r), next_frames(r));
}

/* Frames that are kept with some noise say so by their timestep, and have it: a label alone would be false. */
static lt_status context_latent(lti_rollout *r, const float **x)
{
    *x = r->x;
    if (r->o.policy.context_time == 0) return LT_OK;
    LT_TRY(draw_noise(r, r->noise, r->steps));
    *x = r->noise;
    return lti_rollout_mix(r, r->noise, r->x);
}

static lt_status commit(lti_rollout *r, const float *latent)
{
    LT_TRY(lti_rollout_remember(r, latent));
    for (int b = 0; b < r->branches; b++)
        LT_TRY(lt_cache_commit(r->cache[b]));
    r->drawn = false;
    return LT_OK;
}

static lt_status keep_drawn(lti_rollout *r)
{
    const float *x;
    LT_TRY(context_latent(r, &x));
    LT_TRY(all_branches(r, x, r->steps));
    return commit(r, r->x);
}

lt_status lti_rollout_keep(lti_rollout *r)
{
    if (!r->drawn) return lti_fail(r->ctx, LT_ERR_ARG, "no block is drawn");
    LT_TRY(keep_drawn(r));
    r->block++;
    return LT_OK;
}

lt_status lti_rollout_picture(lti_rollout *r)
{
    const lt_cache_policy *p = &r->o.policy;
    r->opening = true;
    lt_status s = draw_frames(r, p->first_of ? p->first_of : first_frames(p), 1);
    if (s >= 0) s = keep_drawn(r);
    if (s < 0) close_block(r);
    r->opening = false;
    return s;
}

lt_status lti_rollout_give(lti_rollout *r, const float *latent, int32_t frames)
{
    if (r->drawn) return lti_fail(r->ctx, LT_ERR_ARG, "frames given while a block is drawn");
    LT_TRY(open_block(r, frames));
    const lt_status s = all_branches(r, latent, r->steps + 1);
    if (s >= 0) return commit(r, latent);
    close_block(r);
    return s;
}

/* ---- looking ---- */

const float *lti_rollout_latent(const lti_rollout *r)
{
    return r->x;
}

float *lti_rollout_change(lti_rollout *r)
{
    return r->x;
}

int32_t lti_rollout_frames(const lti_rollout *r)
{
    return r->frames;
}

bool lti_rollout_drawn(const lti_rollout *r)
{
    return r->drawn;
}

double lti_rollout_density(const lti_rollout *r)
{
    const lt_cache *c = r->cache[LTI_COND];
    const double all = (double)(lt_cache_next_frame(c) + lt_cache_open_frames(c));
    int32_t n;
    lt_cache_list(c, &n);
    return all > 0 ? n / all * lti_dit_run_density(r->run) : 1;
}

void lti_rollout_stats(const lti_rollout *r, lt_sparse_stats *out)
{
    lti_dit_run_stats(r->run, out);
}

int64_t lti_rollout_block(const lti_rollout *r)
{
    return r->block;
}

const lt_cache *lti_rollout_cache(const lti_rollout *r, bool uncond)
{
    return r->cache[uncond ? LTI_UNCOND : LTI_COND];
}

int64_t lti_rollout_passes(const lti_rollout *r)
{
    return r->passes;
}

double lti_rollout_flops(const lti_rollout *r)
{
    return r->flops;
}

uint64_t lti_rollout_cache_bytes(const lti_dit_config *c, lt_dtype compute,
                                 const lt_cache_policy *policy, int32_t h, int32_t w, bool guided)
{
    const lt_cache_options o = cache_options(c, compute, policy, h, w);
    return lt_cache_bytes(&o) * (guided ? 2 : 1);
}

uint64_t lti_rollout_bytes(const lti_dit_config *c, lt_dtype compute, const lt_cache_policy *policy,
                           int32_t h, int32_t w, int32_t steps, int32_t rows, bool guided,
                           bool batch)
{
    const uint64_t branches = guided ? 2 : 1;
    const uint64_t text =
        ((uint64_t)rows + 1) * 2 * (uint64_t)c->dim * (uint64_t)c->layers * lt_dtype_size(compute);
    const uint64_t solver = 4; /* latents that a solver keeps, at most (UniPC) */
    return lti_rollout_cache_bytes(c, compute, policy, h, w, guided) + branches * text +
           (2 + branches + solver) *
               latent_bytes(c->in_channels, lt_cache_most_open(policy), h, w) +
           latent_bytes(c->in_channels, policy->window, h, w) + /* history */
           lti_dit_run_bytes(c, compute, lt_cache_most_open(policy), h, w, guided && batch ? 2 : 1,
                             steps + 2);
}
