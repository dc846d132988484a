/* parity_causal.c: golden kind `causal`: blocks of latent frames drawn one after the other, and the cache after each. The reference
 * keeps keys turned and moves them when its window rolls; ours are raw and stay, so they are turned and put in order here. */
#include "tests/parity.h"

#include "video/rollout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct causal_case {
    lt_parity *p;
    const lti_dit_config *c;
    lti_rollout *r;
    lt_scheduler *schedule; /* only looked at */
    int32_t h, w, channels;
    int64_t frame_tokens, kv_layer;
    int64_t first;  /* frame of `noise` that the present block begins with */
    int32_t drawn;  /* of renoise.<i> */
    float *latents; /* [frames, C, h, w] so far */
    int64_t done;
} causal_case;

static int64_t area(const causal_case *c)
{
    return (int64_t)c->h * c->w;
}

/* [frames, C, h, w] of the files <-> [C, frames, h, w] of the engine */
static void swap_axes(const causal_case *c, float *to, const float *from, int64_t outer,
                      int64_t inner)
{
    const size_t bytes = (size_t)area(c) * sizeof *to;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            memcpy(to + (j * outer + i) * area(c), from + (i * inner + j) * area(c), bytes);
}

static lt_status upload(const causal_case *c, float *dev, const float *from, int64_t frames)
{
    const size_t bytes = (size_t)(frames * c->channels * area(c)) * sizeof(float);
    float *host = malloc(bytes);
    if (!host) return LT_ERR_MEM;
    swap_axes(c, host, from, frames, c->channels);
    const lt_status s = lt_dev_upload(c->p->dev, dev, host, bytes);
    free(host);
    return s;
}

/* A new host array [frames, C, h, w]. */
static lt_status download(const causal_case *c, float **out, const float *dev, int64_t frames)
{
    const size_t bytes = (size_t)(frames * c->channels * area(c)) * sizeof(float);
    float *host = malloc(bytes);
    *out = malloc(bytes);
    lt_status s = host && *out ? lt_dev_download(c->p->dev, host, dev, bytes) : LT_ERR_MEM;
    if (s >= 0) swap_axes(c, *out, host, c->channels, frames);
    free(host);
    return s;
}

static lt_status noise(void *user, float *to, int64_t block, int32_t step, int32_t frames)
{
    causal_case *c = user;
    const lt_parity_array *a;
    (void)block;
    if (step >= 0) {
        LT_TRY(lt_parity_get(c->p, &a, "in.renoise.%d", c->drawn++));
        return upload(c, to, a->data, frames);
    }
    LT_TRY(lt_parity_get(c->p, &a, "in.noise"));
    return upload(c, to, a->data + c->first * c->channels * area(c), frames);
}

/* ---- the cache ---- */

static void compare_ends(causal_case *c, const char *name)
{
    int32_t count;
    const lt_cache *cache = lti_rollout_cache(c->r, false);
    lt_cache_list(cache, &count);
    const int64_t end = lt_cache_next_frame(cache) + lt_cache_open_frames(cache);
    const float ends[2] = {(float)(end * c->frame_tokens), (float)(count * c->frame_tokens)};
    lt_parity_exact(c->p, ends, 2, "%s.cache_ends", name);
}

/* Key of a token at (time, y, x), in place. */
static void turn(const causal_case *c, float *k, const int64_t place[3])
{
    const int32_t pairs = c->c->head_dim / 2, space = pairs / 3;
    const int32_t split[3] = {pairs - 2 * space, space, space};
    for (int32_t h = 0; h < c->c->heads; h++)
        for (int a = 0; a < 3; a++)
            for (int32_t j = 0; j < split[a]; j++, k += 2) {
                const double angle = (double)place[a] * pow(10000, -(double)j / split[a]);
                const double x = (double)k[0], y = (double)k[1];
                k[0] = (float)(x * cos(angle) - y * sin(angle));
                k[1] = (float)(x * sin(angle) + y * cos(angle));
            }
}

/* Keys (half 0) or values (half 1) of every slot, f32. */
static lt_status fetch(causal_case *c, float **out, int64_t half)
{
    const lt_cache *cache = lti_rollout_cache(c->r, false);
    const int64_t rows = lt_cache_rows(cache), cols = c->c->dim;
    const size_t bytes = (size_t)(rows * cols) * sizeof(float);
    lt_mat m = lt_cache_layer(cache, (int32_t)c->kv_layer);
    m.data = (char *)m.data + (size_t)(half * cols) * lt_dtype_size(m.dtype);
    float *dev = NULL;
    *out = malloc(bytes);
    lt_status s = *out ? lt_dev_alloc(c->p->dev, (void **)&dev, bytes, LT_TAG_TEST) : LT_ERR_MEM;
    if (s >= 0)
        s = lt_convert(c->p->dev, &(lt_convert_args){
                                      .out = {dev, LT_F32, 0}, .x = m, .rows = rows, .cols = cols});
    if (s >= 0) s = lt_dev_download(c->p->dev, *out, dev, bytes);
    lt_dev_free(c->p->dev, dev);
    return s;
}

static lt_status compare_half(causal_case *c, const char *name, int64_t half)
{
    static const char letter[] = "kv";
    const lt_parity_array *want = lt_parity_find(c->p, "out.%s.cache_%c", name, letter[half]);
    if (!want) return LT_OK;
    int32_t count;
    const lt_cache_frame *f = lt_cache_list(lti_rollout_cache(c->r, false), &count);
    const int64_t dim = c->c->dim, cols = c->w / c->c->patch;
    float *slots = NULL, *got = calloc((size_t)want->n, sizeof *got);
    lt_status s = got ? fetch(c, &slots, half) : LT_ERR_MEM;
    for (int64_t i = 0; s >= 0 && i < count * c->frame_tokens && (i + 1) * dim <= want->n; i++) {
        const lt_cache_frame *at = &f[i / c->frame_tokens];
        const int64_t token = i % c->frame_tokens;
        memcpy(got + i * dim, slots + (at->slot * c->frame_tokens + token) * dim,
               (size_t)dim * sizeof *got);
        if (half == 0) turn(c, got + i * dim, (int64_t[]){at->frame, token / cols, token % cols});
    }
    if (s >= 0) lt_parity_compare(c->p, got, want->n, "%s.cache_%c", name, letter[half]);
    free(slots);
    free(got);
    return s;
}

static lt_status compare_cache(causal_case *c, const char *name)
{
    compare_ends(c, name);
    LT_TRY(compare_half(c, name, 0));
    return compare_half(c, name, 1);
}

/* ---- blocks ---- */

static lt_status look_at_step(void *user, int64_t block, int32_t step, int32_t frames,
                              const float *x, const float *v)
{
    causal_case *c = user;
    const int64_t n = frames * c->channels * area(c);
    const float sigma = lt_scheduler_sigma(c->schedule, step);
    float t[64], *before = NULL, *flow = NULL;
    char name[64];
    snprintf(name, sizeof name, "chunk%d.step%d", (int)block, step);
    for (int32_t i = 0; i < frames && i < 64; i++)
        t[i] = (float)lt_scheduler_timestep(c->schedule, step);
    lt_parity_compare(c->p, t, frames, "%s.t", name);
    if (step == 0) compare_ends(c, name);
    lt_status s = download(c, &before, x, frames);
    if (s >= 0) s = download(c, &flow, v, frames);
    if (s >= 0) {
        lt_parity_compare(c->p, flow, n, "%s.flow", name);
        for (int64_t i = 0; i < n; i++)
            before[i] -= sigma * flow[i];
        lt_parity_compare(c->p, before, n, "%s.x0", name);
    }
    free(before);
    free(flow);
    return s;
}

static lt_status run_block(causal_case *c, int32_t block)
{
    char name[32];
    float *latent = NULL;
    snprintf(name, sizeof name, "chunk%d", block);
    LT_TRY(lti_rollout_draw(c->r, 0));
    const int32_t frames = lti_rollout_frames(c->r);
    const int64_t n = frames * c->channels * area(c);
    lt_status s = download(c, &latent, lti_rollout_latent(c->r), frames);
    if (s >= 0) {
        lt_parity_compare(c->p, latent, n, "%s.latent", name);
        memcpy(c->latents + c->done, latent, (size_t)n * sizeof *latent);
        c->done += n;
        c->first += frames;
        s = lti_rollout_keep(c->r);
    }
    free(latent);
    return s < 0 ? s : compare_cache(c, name);
}

static lt_status give_initial(causal_case *c, int32_t frames, const lt_cache_policy *policy)
{
    const int32_t block = policy->block;
    const lt_parity_array *a;
    if (frames == 0) return LT_OK;
    LT_TRY(lt_parity_get(c->p, &a, "in.initial_latent"));
    const int64_t frame = c->channels * area(c);
    float *dev;
    LT_TRY(
        lt_dev_alloc(c->p->dev, (void **)&dev, (size_t)(block * frame) * sizeof *dev, LT_TAG_TEST));
    lt_status s = LT_OK;
    for (int32_t f = 0, k = 0, n; f < frames && s >= 0; f += n, k++) {
        char name[32];
        n = f == 0 && policy->first ? policy->first : block;
        snprintf(name, sizeof name, "init%d", k);
        s = upload(c, dev, a->data + f * frame, n);
        if (s >= 0) s = lti_rollout_give(c->r, dev, n);
        if (s >= 0) s = compare_cache(c, name);
    }
    lt_dev_free(c->p->dev, dev);
    memcpy(c->latents, a->data, (size_t)(frames * frame) * sizeof *dev);
    c->done = frames * frame;
    return s;
}

static lt_status all_blocks(causal_case *c, const lti_rollout_options *o)
{
    const json_t *config = c->p->config;
    const int32_t initial = (int32_t)lt_parity_int(config, "initial_frames");
    const int64_t frames = lt_parity_int(config, "frames") + initial;
    LT_TRY(lt_scheduler_create(&c->schedule, c->p->ctx, o->schedule));
    LT_TRY(lti_rollout_create(&c->r, o));
    c->latents = malloc((size_t)(frames * c->channels * area(c)) * sizeof *c->latents);
    if (!c->latents) return lti_fail(c->p->ctx, LT_ERR_MEM, "no memory for latents");
    LT_TRY(give_initial(c, initial, &o->policy));
    const size_t chunks = json_array_size(json_object_get(config, "chunks"));
    for (size_t i = 0; i < chunks; i++)
        LT_TRY(run_block(c, (int32_t)i));
    lt_parity_compare(c->p, c->latents, c->done, "latents");
    return LT_OK;
}

/* ---- the case ---- */

static lt_status run_case(lt_parity *p, const lti_dit *dit)
{
    const json_t *config = p->config, *net = json_object_get(config, "dit");
    const json_t *hw = json_object_get(config, "latent_hw"),
                 *steps = json_object_get(config, "denoising_step_list");
    const lti_dit_config *net_config = lti_dit_get_config(dit);
    const int64_t window = lt_parity_int(net, "local_attn_size");
    const int64_t all = lt_parity_int(config, "frames") + lt_parity_int(config, "initial_frames");
    const lt_parity_array *text;
    float list[64];
    LT_TRY(lt_parity_get(p, &text, "in.context"));
    if (json_array_size(steps) > LT_COUNT(list))
        return lti_fail(p->ctx, LT_ERR_FORMAT, "a list of %zu steps", json_array_size(steps));
    for (size_t i = 0; i < json_array_size(steps); i++)
        list[i] = (float)json_number_value(json_array_get(steps, i));
    causal_case c = {.p = p,
                     .c = net_config,
                     .h = (int32_t)json_integer_value(json_array_get(hw, 0)),
                     .w = (int32_t)json_integer_value(json_array_get(hw, 1)),
                     .channels = net_config->in_channels,
                     .frame_tokens = lt_parity_int(config, "frame_tokens"),
                     .kv_layer = lt_parity_int(config, "kv_layer")};
    const lt_scheduler_options schedule = {
        .solver = LT_SOLVER_RENOISE,
        .shift = lt_parity_number(config, "timestep_shift"),
        .list = list,
        .list_len = (int32_t)json_array_size(steps),
        .warp = json_is_true(json_object_get(config, "warp_denoising_step"))};
    const lti_rollout_probe probe = {look_at_step, noise, &c};
    const lti_rollout_options o = {
        .dit = dit,
        .h = c.h,
        .w = c.w,
        .policy = {.block = (int32_t)lt_parity_int(config, "num_frame_per_block"),
                   .window = (int32_t)(window < 0 ? all : window),
                   .sink = (int32_t)lt_parity_int(net, "sink_size"),
                   .bias = 1,
                   .context_time = lt_parity_number(config, "context_noise"),
                   .first = json_is_true(json_object_get(config, "independent_first_frame"))},
        .schedule = &schedule,
        .guidance = 1,
        .cond = text->data,
        .cond_rows = (int32_t)text->dim[0],
        .probe = &probe};
    const lt_status s = all_blocks(&c, &o);
    free(c.latents);
    lti_rollout_destroy(&c.r);
    lt_scheduler_destroy(&c.schedule);
    return s;
}

lt_status lt_parity_causal(lt_parity *p)
{
    lti_dit *dit;
    LT_TRY(lt_parity_load_dit(p, &dit, "weight."));
    const lt_status s = run_case(p, dit);
    lti_dit_destroy(&dit);
    return s;
}
