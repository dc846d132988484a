/* rollout_kept.c: the frames that a rollout keeps: their latents beside their keys and values, what another prompt does to them, and the
 * way to a file and back. */
#include "video/rollout_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t plane_bytes(const lti_rollout *r)
{
    return (size_t)r->o.h * (size_t)r->o.w * sizeof(float);
}

static float *history_of(const lti_rollout *r, int32_t slot)
{
    return r->history + (int64_t)slot * r->channels * r->o.h * r->o.w;
}

lt_status lti_rollout_remember(lti_rollout *r, const float *latent)
{
    const int64_t area = (int64_t)r->o.h * r->o.w;
    int32_t n;
    const lt_cache_frame *list = lt_cache_list(r->cache[LTI_COND], &n);
    for (int32_t f = 0; f < r->frames; f++)
        for (int32_t c = 0; c < r->channels; c++)
            LT_TRY(lt_dev_copy(r->dev, history_of(r, list[n - r->frames + f].slot) + c * area,
                               latent + ((int64_t)c * r->frames + f) * area, plane_bytes(r)));
    return LT_OK;
}

/* The kept frames first .. first + frames - 1 of the branch's list as one latent in r->noise. */
static lt_status recall(lti_rollout *r, int branch, int32_t first, int32_t frames)
{
    const int64_t area = (int64_t)r->o.h * r->o.w;
    int32_t n;
    const lt_cache_frame *list = lt_cache_kept(r->cache[branch], &n);
    for (int32_t f = 0; f < frames; f++)
        for (int32_t c = 0; c < r->channels; c++)
            LT_TRY(lt_dev_copy(r->dev, r->noise + ((int64_t)c * frames + f) * area,
                               history_of(r, list[first + f].slot) + c * area, plane_bytes(r)));
    return LT_OK;
}

/* The branch's keys and values of these kept frames, from their latents, under its present prompt. */
static lt_status write_again(lti_rollout *r, int branch, int32_t first, int32_t frames)
{
    enum { AGAIN = 0x8000 }; /* its noise, beside that of steps */
    const float *x = r->noise;
    LT_TRY(recall(r, branch, first, frames));
    r->frames = frames;
    if (r->o.policy.context_time > 0) {
        LT_TRY(lti_rollout_noise(r, r->v[branch], 0, AGAIN + first));
        LT_TRY(lti_rollout_mix(r, r->v[branch], r->noise));
        x = r->v[branch];
    }
    LT_TRY(lt_cache_reopen(r->cache[branch], first, frames));
    const lt_status s = lti_rollout_pass(r, x, r->steps, branch, 1);
    lt_cache_rollback(r->cache[branch]);
    return s;
}

/* Block after block, the oldest first, each seeing what is before it: so it takes no more memory than drawing does, and nothing that has
 * left the window has a part in it. Pinned frames stay as they are. The order is from the list alone: a renewal that was cut short
 * can begin again. */
static lt_status recache(lti_rollout *r, int branch, int32_t next_frames)
{
    int32_t n;
    LT_TRY(lt_cache_make_room(r->cache[branch], next_frames));
    const lt_cache_frame *list = lt_cache_kept(r->cache[branch], &n);
    for (int32_t first = 0, frames; first < n; first += frames) {
        /* whole blocks are at the end of the list */
        const int32_t most = (n - first - 1) % r->o.policy.block + 1;
        for (frames = 0; frames < most && !list[first + frames].pinned; frames++) {
        }
        if (frames)
            LT_TRY(write_again(r, branch, first, frames));
        else
            frames = 1;
    }
    return LT_OK;
}

static lt_status set_kept(lti_rollout *r, int64_t next, const lt_cache_frame *list, int32_t n)
{
    for (int b = 0; b < r->branches; b++)
        LT_TRY(lt_cache_restore(r->cache[b], next, list, n));
    return LT_OK;
}

/* A new shot. One that is cut short is begun again before anything else is drawn, so whatever is in the last frame's place then will do. */
static lt_status cut(lti_rollout *r)
{
    int32_t n;
    const lt_cache_frame *list = lt_cache_kept(r->cache[LTI_COND], &n);
    if (!n) return LT_OK;
    const lt_cache_frame last = list[n - 1];
    LT_TRY(set_kept(r, last.frame, NULL, 0));
    const lt_status s = lti_rollout_picture(r);
    if (s < 0) LT_TRY(set_kept(r, last.frame + 1, &last, 1));
    return s;
}

/* A prompt is that of one branch; other pictures are seen by all. */
static int branches_to_recache(const lti_rollout *r)
{
    if (r->changed) return r->branches;
    return r->stale && r->o.policy.on_prompt == LT_CACHE_RECACHE ? 1 : 0;
}

lt_status lti_rollout_renew(lti_rollout *r, int32_t next_frames)
{
    if (r->stale && r->o.policy.on_prompt == LT_CACHE_CUT) {
        LT_TRY(cut(r));
    } else {
        const int branches = branches_to_recache(r);
        for (int b = 0; b < branches; b++)
            LT_TRY(recache(r, b, next_frames));
    }
    r->changed = false;
    if (r->stale && r->o.policy.on_prompt == LT_CACHE_FLUSH)
        for (int b = 0; b < r->branches; b++)
            LT_TRY(lt_cache_flush(r->cache[b], LT_CACHE_FLUSH_FRAMES));
    r->stale = false;
    return LT_OK;
}

/* One kept frame: through the host, it is a rare thing. */
static lt_status change_frame(lti_rollout *r, float *frame, float *host, const float *scale,
                              const float *offset)
{
    const int64_t area = (int64_t)r->o.h * r->o.w;
    LT_TRY(lt_dev_download(r->dev, host, frame, (size_t)r->channels * plane_bytes(r)));
    for (int64_t c = 0; c < r->channels; c++)
        for (int64_t i = 0; i < area; i++)
            host[c * area + i] = scale[c] * host[c * area + i] + offset[c];
    return lt_dev_upload(r->dev, frame, host, (size_t)r->channels * plane_bytes(r));
}

lt_status lti_rollout_change_kept(lti_rollout *r, const float *scale, const float *offset,
                                  bool noise)
{
    enum { FAULT = 0x4000 }; /* its noise, beside that of steps and renewals */
    int32_t n;
    const lt_cache_frame *list = lt_cache_kept(r->cache[LTI_COND], &n);
    float *host = malloc((size_t)r->channels * plane_bytes(r));
    if (!host) return lti_fail(r->ctx, LT_ERR_MEM, "no memory for a kept frame");
    lt_status s = LT_OK;
    for (int32_t i = 0; i < n && s >= 0; i++) {
        float *frame = history_of(r, list[i].slot);
        if (list[i].pinned) continue;
        r->changed = true;
        if (!noise) {
            s = change_frame(r, frame, host, scale, offset);
            continue;
        }
        s = lt_noise(r->dev, &(lt_noise_args){.out = frame,
                                              .n = (int64_t)r->channels * r->o.h * r->o.w,
                                              .seed = r->o.seed,
                                              .stream = ((uint64_t)r->block + 1) << 24 | FAULT});
        break;
    }
    free(host);
    return s;
}

lt_status lti_rollout_prompt(lti_rollout *r, const float *text, int32_t rows, bool again)
{
    if (r->drawn) return lti_fail(r->ctx, LT_ERR_ARG, "another prompt while a block is drawn");
    lti_prompt *p;
    LT_TRY(lti_prompt_create(&p, r->o.dit, text, rows, lti_dit_run_tokens(r->run), NULL));
    lti_prompt_destroy(&r->prompt[LTI_COND]);
    r->prompt[LTI_COND] = p;
    r->stale = r->stale || again;
    return LT_OK;
}

void lti_rollout_weigh(lti_rollout *r, double past, double sink)
{
    r->past = past;
    r->sink = sink;
    for (int b = 0; b < r->branches; b++)
        lt_cache_weigh(r->cache[b], past, sink);
}

/* ---- to a file and back ---- */

static lt_status count_state(lti_rollout *r, lti_state *io)
{
    const int64_t most = (int64_t)1 << 38;
    LT_TRY(lti_state_int(io, "block", &r->block, 0, most)); /* keys of noise hold it */
    LT_TRY(lti_state_int32(io, "frames of the block", &r->frames, 0,
                           lt_cache_most_open(&r->o.policy)));
    LT_TRY(lti_state_int32(io, "attempt", &r->attempt, 0, LTI_MAX_ATTEMPTS - 1));
    LT_TRY(lti_state_bool(io, "drawn", &r->drawn));
    LT_TRY(lti_state_bool(io, "stale", &r->stale));
    LT_TRY(lti_state_bool(io, "kept frames are changed", &r->changed));
    LT_TRY(lti_state_real(io, "weight of the past", &r->past, 0.01, 1));
    LT_TRY(lti_state_real(io, "weight of the sink", &r->sink, 0.01, 1));
    lti_rollout_weigh(r, r->past, r->sink);
    LT_TRY(lti_state_int(io, "passes", &r->passes, 0, INT64_MAX));
    LT_TRY(lti_state_real(io, "operations", &r->flops, 0, 1e300));
    if (r->drawn && (r->frames == 0 || r->frames > r->o.policy.block))
        return lti_fail(r->ctx, LT_ERR_FORMAT, "a block of %d frames is drawn", r->frames);
    return LT_OK;
}

/* Which frames a cache holds, then their keys and values, layer after layer. */
static lt_status cache_state(lti_rollout *r, lti_state *io, lt_cache *c)
{
    const lti_dit_config *d = lti_dit_get_config(r->o.dit);
    int64_t next = lt_cache_next_frame(c);
    int32_t n;
    const lt_cache_frame *kept = lt_cache_kept(c, &n);
    LT_TRY(lti_state_int(io, "next frame", &next, 0, INT64_MAX));
    LT_TRY(lti_state_int32(io, "kept frames", &n, 0, r->o.policy.window));
    lt_cache_frame *list = calloc((size_t)n + 1, sizeof *list);
    if (!list) return lti_fail(r->ctx, LT_ERR_MEM, "no memory for a list of %d frames", n);
    if (!io->reading) memcpy(list, kept, (size_t)n * sizeof *list);
    lt_status s = LT_OK;
    for (int32_t i = 0; i < n && s >= 0; i++) {
        s = lti_state_int(io, "kept frame", &list[i].frame, 0, INT64_MAX);
        if (s >= 0) s = lti_state_int32(io, "slot", &list[i].slot, 0, r->o.policy.window - 1);
        if (s >= 0) s = lti_state_bool(io, "pinned", &list[i].pinned);
    }
    if (s >= 0 && io->reading) s = lt_cache_restore(c, next, list, n);
    for (int32_t l = 0; l < d->layers && s >= 0; l++)
        for (int32_t i = 0; i < n && s >= 0; i++) {
            const lt_mat m = lt_cache_layer(c, l);
            const size_t rows = (size_t)(lt_cache_rows(c) / r->o.policy.window),
                         bytes = rows * (size_t)m.ld * lt_dtype_size(m.dtype);
            s = lti_state_device(io, (uint8_t *)m.data + (size_t)list[i].slot * bytes, bytes);
        }
    free(list);
    return s;
}

/* A drawn block is open in the caches: the slots follow from the list. */
static lt_status block_state(lti_rollout *r, lti_state *io)
{
    if (!r->drawn) return LT_OK;
    for (int b = 0; b < r->branches && io->reading; b++)
        LT_TRY(lt_cache_reserve(r->cache[b], r->frames));
    return lti_state_device(io, r->x, (size_t)lti_rollout_numbers(r) * sizeof(float));
}

lt_status lti_rollout_state(lti_rollout *r, lti_state *io)
{
    int32_t n;
    LT_TRY(count_state(r, io));
    for (int b = 0; b < r->branches; b++)
        LT_TRY(cache_state(r, io, r->cache[b]));
    const lt_cache_frame *kept = lt_cache_kept(r->cache[LTI_COND], &n);
    for (int32_t i = 0; i < n; i++)
        LT_TRY(lti_state_device(io, history_of(r, kept[i].slot),
                                (size_t)r->channels * plane_bytes(r)));
    return block_state(r, io);
}
