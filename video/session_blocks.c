/* session_blocks.c: mode ar: blocks drawn one after the other, and their prompts. */
#include "video/session_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- rollout ---- */

lt_status lti_session_create_rollout(lt_session *s, lti_rows prompt, lti_rows negative)
{
    lti_rollout_options o = {.dit = s->m->dit,
                             .h = s->h,
                             .w = s->w,
                             .schedule = &s->schedule,
                             .guidance = s->o.guidance_scale,
                             .cond = prompt.v,
                             .cond_rows = prompt.n,
                             .uncond = negative.v,
                             .uncond_rows = negative.n,
                             .batch = s->report.cfg_batch,
                             .seed = s->o.seed,
                             .cancel = &s->cancel,
                             .attention = s->attention};
    LT_TRY(lti_session_policy(&o.policy, s->ctx, &s->m->config.info, &s->o));
    s->prompts.at_once = o.policy.on_prompt == LT_CACHE_CUT;
    const lti_dit_config *c = lti_dit_get_config(s->m->dit);
    s->report.cache =
        (lt_cache_report){.frames = o.policy.window,
                          .block = o.policy.block,
                          .sink = o.policy.sink,
                          .tokens = (s->h / c->patch) * (s->w / c->patch),
                          .layers = c->layers,
                          .width = c->heads * c->head_dim,
                          .number_bytes = (int32_t)lt_dtype_size(lti_dit_compute(s->m->dit)),
                          .branches = s->o.guidance_scale > 1 ? 2 : 1,
                          .bytes = s->report.cache_bytes};
    return lti_rollout_create(&s->rollout, &o);
}

static lt_status keep_negative(lt_session *s, const lti_text_rows *text)
{
    const size_t bytes = (size_t)text->n[1] * (size_t)s->m->config.text.dim * sizeof(float);
    s->negative_rows = (lti_rows){malloc(bytes + 1), text->n[1]};
    if (!s->negative_rows.v) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for rows of text");
    if (bytes) memcpy(s->negative_rows.v, text->of[1], bytes);
    return LT_OK;
}

/* A prompt that is asked for before the first block takes the place of the one in the options. */
lt_status lti_session_open_rollout(lt_session *s)
{
    const char *due = lti_prompts_due(&s->prompts, 0);
    const char *const texts[] = {due ? due : s->prompt, s->negative};
    lti_text_rows text;
    LT_TRY(lti_session_encode(s, &text, texts, s->o.guidance_scale > 1 ? 2 : 1));
    const double t = lti_now();
    lt_status st = keep_negative(s, &text);
    if (st >= 0) st = lti_prompts_begin(&s->prompts, texts[0], 0, 0, text.of[0], text.n[0]);
    lti_text_rows_free(&text);
    if (st >= 0) st = lti_session_create_rollout(s, s->prompts.now, s->negative_rows);
    s->report.denoise_seconds = lti_now() - t;
    return st;
}

/* ---- prompts ---- */

/* The video frame that the block to be drawn begins with. */
static int64_t block_begin(const lt_session *s)
{
    const int64_t latent = lt_cache_next_frame(lti_rollout_cache(s->rollout, false));
    const int32_t n = s->o.given_frames, scale = s->m->config.info.frame_scale;
    return lti_session_number(s, latent - (n ? (n - 1) / scale + 1 : 0));
}

/* What was asked for comes into force with the next block, at once or a little more with each. */
static lt_status turn_prompt(lt_session *s)
{
    lti_prompts *p = &s->prompts;
    const int64_t block = lti_rollout_block(s->rollout);
    bool changed, renew;
    if (p->block == block) return LT_OK; /* a block that was cancelled is drawn again */
    const char *text = lti_prompts_due(p, block_begin(s));
    if (text) {
        lti_text_rows rows;
        LT_TRY(lti_session_encode(s, &rows, &text, 1));
        const lt_status st =
            lti_prompts_begin(p, text, block_begin(s), block, rows.of[0], rows.n[0]);
        lti_text_rows_free(&rows);
        LT_TRY(st);
        const lt_prompt_mark *m = &p->mark[p->marks - 1];
        lti_watch_prompt(s, m->prompt, m->blend_blocks);
    }
    LT_TRY(lti_prompts_step(p, block, &changed, &renew));
    if (!changed) return LT_OK;
    return lti_rollout_prompt(s->rollout, p->now.v, p->now.n, renew);
}

lt_status lt_session_prompt(lt_session *s, const char *prompt, int32_t blend_blocks)
{
    if (s->o.mode != LT_MODE_AR) return LT_ERR_UNSUPPORTED;
    return lti_prompts_post(&s->prompts, prompt, blend_blocks);
}

const lt_prompt_mark *lt_session_prompts(const lt_session *s, int32_t *count)
{
    *count = s->prompts.marks;
    return s->prompts.mark;
}

/* ---- blocks ---- */

bool lti_session_wants_block(const lt_session *s)
{
    return !lti_rollout_drawn(s->rollout) || s->used == lti_rollout_frames(s->rollout);
}

bool lti_session_untouched(const lt_session *s)
{
    return s->rollout && lti_rollout_drawn(s->rollout) && s->used == 0 && !s->in_group;
}

static void count_passes(lt_session *s)
{
    s->report.dit_passes = (int32_t)lti_rollout_passes(s->rollout);
    s->report.dit_flops = lti_rollout_flops(s->rollout);
}

static void count_block(lt_session *s, double seconds, uint64_t allocs)
{
    lt_session_report *r = &s->report;
    const int32_t patch = s->m->config.dit.patch;
    const int32_t marks = s->prompts.marks;
    count_passes(s);
    r->denoise_seconds += seconds;
    r->tokens = (int64_t)lti_rollout_frames(s->rollout) * (s->h / patch) * (s->w / patch);
    r->attention_density = lti_rollout_density(s->rollout);
    lt_sparse_stats attention;
    lti_rollout_stats(s->rollout, &attention);
    lti_session_count_attention(s, &attention);
    s->shown = (lt_frames){.block = lti_rollout_block(s->rollout),
                           .block_seconds = seconds,
                           .attention_density = r->attention_density,
                           .cache_bytes = r->cache_bytes,
                           .prompt = s->prompts.mark[marks - 1].number};
    r->blocks++;
    if (s->warm) r->step_allocs += allocs;
    if (s->warm && seconds > r->block_seconds_max) r->block_seconds_max = seconds;
    s->warm = true;
}

static uint64_t allocations(const lt_session *s)
{
    lt_mem_stats m;
    lt_dev_mem_stats(s->dev, &m);
    return m.alloc_calls;
}

/* Draws until the monitor has no objection, which it has a few times at most. */
static lt_status draw_judged(lt_session *s)
{
    bool again = true;
    for (int32_t attempt = 0; again; attempt++) {
        lti_watch_weigh(s);
        const lt_status st = lti_rollout_draw(s->rollout, attempt);
        if (st < 0 && !lti_watch_forgives(s, st)) return st;
        if (st < 0) LT_TRY(lti_rollout_stand_in(s->rollout));
        LT_TRY(lti_watch_block(s, lti_rollout_change(s->rollout), lti_rollout_frames(s->rollout), 0,
                               attempt, st < 0, &again));
    }
    return LT_OK;
}

/* With those that are still to be drawn: a first or a last block may be shorter than the others. */
static lt_status report_blocks(lt_session *s)
{
    lt_cache_policy p;
    LT_TRY(lti_session_policy(&p, s->ctx, &s->m->config.info, &s->o));
    const int32_t left = s->frames - s->pushed - lti_rollout_frames(s->rollout);
    const int32_t done = (int32_t)s->report.blocks;
    lti_session_progress(s, LT_PHASE_DENOISE, done,
                         done + (left > 0 ? (left + p.block - 1) / p.block : 0));
    return LT_OK;
}

/* Keeps the block that has been handed out and draws the next. The pass that keeps it comes here, not after drawing, so that
 * frames are out before it. Whatever of it is cancelled can be done again. */
lt_status lti_session_next_block(lt_session *s)
{
    const double t = lti_now();
    uint64_t allocs = 0, before = allocations(s);
    if (lti_rollout_drawn(s->rollout)) LT_TRY(lti_rollout_keep(s->rollout));
    allocs += allocations(s) - before;
    LT_TRY(turn_prompt(s)); /* may allocate */
    before = allocations(s);
    LT_TRY(draw_judged(s));
    allocs += allocations(s) - before;
    count_block(s, lti_now() - t, allocs);
    s->used = 0;
    return report_blocks(s);
}

static lt_status draw(lt_session *s)
{
    LT_TRY(lti_session_start(s));
    if (lti_session_untouched(s)) return LT_OK;
    if (!lti_session_wants_block(s) || s->in_group) return LT_AGAIN;
    return lti_session_next_block(s);
}

lt_status lt_session_draw(lt_session *s)
{
    if (s->o.mode != LT_MODE_AR)
        return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "only mode ar draws block after block");
    if (s->state == LTI_SESSION_END) return LT_END;
    LT_TRY(lti_session_alive(s));
    return lti_session_settle(s, draw(s));
}

lt_status lt_session_redraw(lt_session *s, int32_t attempt)
{
    LT_TRY(lti_session_alive(s));
    if (attempt < 0 || attempt > 255)
        return lti_fail(s->ctx, LT_ERR_ARG, "attempt %d: not in 0..255", attempt);
    if (!lti_session_untouched(s))
        return lti_fail(s->ctx, LT_ERR_ARG, "no block is drawn of which no frame is out");
    const double t = lti_now();
    bool again; /* who asks for another block gets it as it is */
    lti_watch_undo(s);
    lti_watch_weigh(s);
    lt_status st = lti_rollout_draw(s->rollout, attempt);
    if (st >= 0)
        st = lti_watch_block(s, lti_rollout_change(s->rollout), lti_rollout_frames(s->rollout), 0,
                             attempt, false, &again);
    count_passes(s);
    s->shown.block_seconds += lti_now() - t;
    s->report.denoise_seconds += lti_now() - t;
    return lti_session_settle(s, st);
}
