/* session_blocks.c: mode ar: blocks drawn one after the other, and their prompts. */
#include "video/session_internal.h"

static lt_status create_rollout(lt_session *s, const lti_text_rows *text)
{
    lti_rollout_options o = {.dit = s->m->dit,
                             .h = s->h,
                             .w = s->w,
                             .schedule = &s->schedule,
                             .guidance = s->o.guidance_scale,
                             .cond = text->of[0],
                             .cond_rows = text->n[0],
                             .uncond = text->of[1],
                             .uncond_rows = text->n[1],
                             .batch = s->report.cfg_batch,
                             .seed = s->o.seed,
                             .cancel = &s->cancel};
    LT_TRY(lti_session_policy(&o.policy, s->ctx, &s->m->config.info, &s->o));
    return lti_rollout_create(&s->rollout, &o);
}

lt_status lti_session_open_rollout(lt_session *s)
{
    lti_text_rows text;
    LT_TRY(lti_session_encode(s, &text));
    const double t = lti_session_now();
    const lt_status st = create_rollout(s, &text);
    lti_text_rows_free(&text);
    s->report.denoise_seconds = lti_session_now() - t;
    return st;
}

static void count_block(lt_session *s, double seconds, uint64_t allocs)
{
    lt_session_report *r = &s->report;
    r->denoise_seconds += seconds;
    r->dit_passes = (int32_t)lti_rollout_passes(s->rollout);
    r->dit_flops = lti_rollout_flops(s->rollout);
    r->tokens = (int64_t)lti_rollout_frames(s->rollout) * (s->h / s->m->config.dit.patch) *
                (s->w / s->m->config.dit.patch);
    r->attention_density = 1;
    if (r->blocks++ == 0) return;
    r->step_allocs += allocs;
    if (seconds > r->block_seconds_max) r->block_seconds_max = seconds;
}

/* Keeps the block that has been handed out and draws the next. The pass that keeps it comes here, not after drawing, so that
 * frames are out before it. */
lt_status lti_session_next_block(lt_session *s)
{
    const int32_t frames = lti_rollout_frames(s->rollout);
    const double t = lti_session_now();
    lt_mem_stats before, after;
    lt_dev_mem_stats(s->dev, &before);
    if (frames) LT_TRY(lti_rollout_keep(s->rollout));
    LT_TRY(lti_rollout_draw(s->rollout, 0));
    lt_dev_mem_stats(s->dev, &after);
    count_block(s, lti_session_now() - t, after.alloc_calls - before.alloc_calls);
    s->used = 0;
    const int32_t each = lti_rollout_frames(s->rollout);
    lti_session_progress(s, LT_PHASE_DENOISE, (int32_t)s->report.blocks,
                         (s->frames + each - 1) / each);
    return LT_OK;
}

lt_status lt_session_prompt(lt_session *s, const char *prompt, int32_t blend_blocks)
{
    (void)s;
    (void)prompt;
    (void)blend_blocks;
    return LT_ERR_UNSUPPORTED;
}

const lt_prompt_mark *lt_session_prompts(const lt_session *s, int32_t *count)
{
    (void)s;
    *count = 0;
    return NULL;
}

lt_status lt_session_draw(lt_session *s)
{
    return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "drawing without frames is not there yet");
}

lt_status lt_session_redraw(lt_session *s, int32_t attempt)
{
    return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "attempt %d: drawing again is not there yet",
                    attempt);
}
