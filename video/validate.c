/* validate.c: what a session may be asked for. Nothing is changed in silence: a size that cannot be is refused with the nearest that
 * can, and only what was left open is filled in. */
#include "video/drift_inject.h"
#include "video/extend.h"
#include "video/prompts.h"

#include <stdio.h>
#include <string.h>

enum { MAX_POSITIONS = 1024, MAX_FPS = 1000, MAX_TOKENS = 1 << 27, MAX_GROUPS = 1 << 24 };

lt_session_options lt_session_options_default(void)
{
    return (lt_session_options){.guidance_scale = -1};
}

/* Values first, first + step, ... up to max, which is one of them. */
typedef struct grid {
    const char *name;
    int32_t first, step, max;
} grid;

/* What is wrong with `value`, to why; false when nothing is. */
static bool off_grid(char *why, size_t size, const grid *g, int32_t value)
{
    char rule[64];
    if (value >= g->first && value <= g->max && (value - g->first) % g->step == 0) return false;
    if (value > g->max) {
        snprintf(why, size, "%s %d: %d is the most", g->name, value, g->max);
        return true;
    }
    if (g->first == g->step)
        snprintf(rule, sizeof rule, "must be a multiple of %d", g->step);
    else
        snprintf(rule, sizeof rule, "must be %d k + %d", g->step, g->first);
    if (value < g->first) {
        snprintf(why, size, "%s %d: %s; the nearest is %d", g->name, value, rule, g->first);
        return true;
    }
    const int32_t low = value - (value - g->first) % g->step; /* max is one: low + step fits */
    snprintf(why, size, "%s %d: %s; the nearest are %d and %d", g->name, value, rule, low,
             low + g->step);
    return true;
}

/* Both sides in one message: who gave two bad numbers shall not learn it one by one. */
static lt_status check_size(lt_ctx *ctx, int32_t multiple, int32_t width, int32_t height)
{
    char w[128], h[128];
    const int32_t most = multiple * MAX_POSITIONS;
    const bool bad_w = off_grid(w, sizeof w, &(grid){"width", multiple, multiple, most}, width);
    const bool bad_h = off_grid(h, sizeof h, &(grid){"height", multiple, multiple, most}, height);
    if (bad_w && bad_h) return lti_fail(ctx, LT_ERR_ARG, "%s; %s", w, h);
    return bad_w || bad_h ? lti_fail(ctx, LT_ERR_ARG, "%s", bad_w ? w : h) : LT_OK;
}

static lt_status check_sizes(lt_ctx *ctx, const lt_model_info *info, const lt_session_options *o)
{
    char why[128];
    const int32_t m = info->size_multiple, f = info->frame_scale;
    LT_TRY(check_size(ctx, m, o->width, o->height));
    const bool ar = o->mode == LT_MODE_AR, extend = o->mode == LT_MODE_EXTEND;
    const int32_t groups = ar || extend ? MAX_GROUPS : MAX_POSITIONS - 1;
    const grid counts = {"num_frames", 1, f, 1 + f * groups},
               more = {"num_frames", f, f, f * groups};
    if (off_grid(why, sizeof why, o->given_frames ? &more : &counts, o->num_frames))
        return lti_fail(ctx, LT_ERR_ARG, "%s%s", why, o->given_frames ? " (new frames)" : "");
    lt_cache_policy policy;
    if (ar) LT_TRY(lti_session_policy(&policy, ctx, info, o));
    lti_extend_policy segments;
    if (extend) LT_TRY(lti_extend_parse(&segments, ctx, info, o->extend));
    const int64_t frames = ar       ? policy.window + lt_cache_most_open(&policy)
                           : extend ? segments.segment
                                    : (o->num_frames - 1) / f + 1;
    const int64_t tokens = frames * (o->width / m) * (o->height / m);
    if (tokens > MAX_TOKENS)
        return lti_fail(ctx, LT_ERR_ARG, "%d frames of %dx%d are %lld tokens, more than %d",
                        o->num_frames, o->width, o->height, (long long)tokens, MAX_TOKENS);
    if (o->fps < 1 || o->fps > MAX_FPS)
        return lti_fail(ctx, LT_ERR_ARG, "fps %d: not in 1..%d", o->fps, MAX_FPS);
    return LT_OK;
}

static lt_status check_sampling(lt_ctx *ctx, const lt_session_options *o)
{
    if (!(o->guidance_scale <= 1000))
        return lti_fail(ctx, LT_ERR_ARG, "guidance_scale %g: not a number up to 1000",
                        o->guidance_scale);
    if (!o->step_list != (o->solver != LT_SOLVER_RENOISE))
        return lti_fail(ctx, LT_ERR_ARG,
                        o->step_list ? "solver %s takes no step list"
                                     : "solver %s needs a step list, which mode ar has: "
                                       "another mode needs another solver",
                        lt_solver_name(o->solver));
    lt_scheduler *s;
    const lt_scheduler_options so = lti_schedule(NULL, o); /* the scheduler knows its own limits */
    LT_TRY(lt_scheduler_create(&s, ctx, &so));
    lt_scheduler_destroy(&s);
    return LT_OK;
}

/* Self-Forcing's list, which its kin share. */
static const float few_steps[] = {1000, 750, 500, 250};

static void fill_defaults(const lt_model_info *info, lt_session_options *o)
{
    if (!o->negative_prompt) o->negative_prompt = info->default_negative;
    if (o->width == 0) o->width = info->default_width;
    if (o->height == 0) o->height = info->default_height;
    if (o->num_frames == 0)
        o->num_frames =
            info->default_frames - (o->given_frames ? info->default_frames % info->frame_scale : 0);
    if (o->fps == 0) o->fps = info->default_fps;
    if (o->guidance_scale < 0) o->guidance_scale = info->default_guidance;
    if (o->flow_shift == 0) o->flow_shift = info->default_shift;
    if (o->mode == LT_MODE_DEFAULT) o->mode = info->causal ? LT_MODE_AR : LT_MODE_CLIP;
    if (!o->solver_set) o->solver = o->step_list ? LT_SOLVER_RENOISE : info->default_solver;
    o->solver_set = true;
    if (!o->step_list && o->solver == LT_SOLVER_RENOISE && o->mode == LT_MODE_AR) {
        o->step_list = few_steps;
        o->step_list_len = LT_COUNT(few_steps);
    }
    if (o->step_list) o->num_inference_steps = o->step_list_len;
    if (o->num_inference_steps == 0 && o->mode == LT_MODE_AR)
        o->num_inference_steps = info->default_ar_steps;
    if (o->num_inference_steps == 0) o->num_inference_steps = info->default_steps;
    if (!o->attention) o->attention = "dense";
}

/* A timeline that begins at once may stand for the prompt. */
static lt_status check_prompts(lt_ctx *ctx, lt_session_options *o)
{
    if (o->cues && o->mode != LT_MODE_AR)
        return lti_fail(ctx, LT_ERR_ARG, "%d prompts by time: only mode ar can change its prompt",
                        o->cues);
    LT_TRY(lti_prompts_check(ctx, o->timeline, o->cues, o->fps));
    if (!o->prompt && o->cues && lti_cue_frame(o->timeline, o->fps) == 0)
        o->prompt = o->timeline[0].prompt;
    if (!o->prompt) return lti_fail(ctx, LT_ERR_ARG, "no prompt");
    const char *const texts[] = {o->prompt, o->negative_prompt};
    for (size_t i = 0; i < LT_COUNT(texts); i++)
        if (strnlen(texts[i], LT_MAX_PROMPT_BYTES + 1) > LT_MAX_PROMPT_BYTES)
            return lti_fail(ctx, LT_ERR_ARG, "%s: longer than %d bytes",
                            i ? "negative_prompt" : "prompt", LT_MAX_PROMPT_BYTES);
    return LT_OK;
}

lt_status lt_session_given_frames(int32_t *out, lt_ctx *ctx, const lt_model_info *info,
                                  const lt_session_options *opt)
{
    lt_session_options o = *opt;
    *out = 0;
    fill_defaults(info, &o);
    if (o.mode == LT_MODE_AR) {
        lt_cache_policy p; /* whole blocks that the next block will see */
        LT_TRY(lti_session_policy(&p, ctx, info, &o));
        if (p.window == p.block)
            return lti_fail(ctx, LT_ERR_ARG,
                            "cache: a window of %d frames is the block that is drawn: nothing of "
                            "the video before it would be seen",
                            p.window);
        const int32_t room = p.window - p.block, first = p.first < room ? p.first : room;
        const int32_t latents = first + (room - first) / p.block * p.block;
        *out = 1 + info->frame_scale * ((latents ? latents : 1) - 1);
        return LT_OK;
    }
    if (o.mode != LT_MODE_EXTEND)
        return lti_fail(ctx, LT_ERR_ARG, "a clip continues no video: mode ar or extend does");
    lti_extend_policy p;
    LT_TRY(lti_extend_parse(&p, ctx, info, o.extend));
    *out = 1 + info->frame_scale * (p.overlap - 1);
    return LT_OK;
}

/* What belongs to one mode, and what a video begins with. */
static lt_status check_start(lt_ctx *ctx, const lt_model_info *info, const lt_session_options *o)
{
    if (o->mode != LT_MODE_AR && o->cache)
        return lti_fail(ctx, LT_ERR_ARG, "cache '%.100s': only mode ar keeps one", o->cache);
    if (o->mode != LT_MODE_EXTEND && o->extend)
        return lti_fail(ctx, LT_ERR_ARG, "extend '%.100s': only in mode extend", o->extend);
    if (!o->given_frames) return LT_OK;
    if (o->image)
        return lti_fail(ctx, LT_ERR_ARG, "a first frame and a video to continue: one of the two");
    int32_t most;
    char why[128];
    LT_TRY(lt_session_given_frames(&most, ctx, info, o));
    const grid given = {"given_frames", 1, info->frame_scale, most};
    if (!off_grid(why, sizeof why, &given, o->given_frames)) return LT_OK;
    return lti_fail(ctx, LT_ERR_ARG, "%s", why);
}

lt_status lt_session_validate(lt_ctx *ctx, const lt_model_info *info, lt_session_options *o)
{
    fill_defaults(info, o);
    LT_TRY(check_sizes(ctx, info, o));
    LT_TRY(check_prompts(ctx, o));
    LT_TRY(check_sampling(ctx, o));
    lt_sparse_spec attention;
    LT_TRY(lt_sparse_parse(&attention, ctx, o->attention));
    lti_faults faults;
    LT_TRY(lti_faults_parse(&faults, ctx, o->inject));
    if (o->drift < LT_DRIFT_OFF || o->drift > LT_DRIFT_CORRECT)
        return lti_fail(ctx, LT_ERR_ARG, "drift %d: not known", (int)o->drift);
    if (o->mode == LT_MODE_CLIP && (o->drift == LT_DRIFT_CORRECT || faults.count))
        return lti_fail(ctx, LT_ERR_ARG,
                        "%s: a clip is drawn at once and has no later blocks: mode ar or extend",
                        faults.count ? "inject" : "drift correct");
    if (o->cfg_mode < LT_CFG_AUTO || o->cfg_mode > LT_CFG_SERIAL)
        return lti_fail(ctx, LT_ERR_ARG, "cfg_mode %d: not known", (int)o->cfg_mode);
    if (o->mode < LT_MODE_CLIP || o->mode > LT_MODE_EXTEND)
        return lti_fail(ctx, LT_ERR_ARG, "mode %d: not known", (int)o->mode);
    return check_start(ctx, info, o);
}

lt_status lti_session_policy(lt_cache_policy *out, lt_ctx *ctx, const lt_model_info *info,
                             const lt_session_options *o)
{
    return lt_cache_policy_parse(out, ctx, o->cache ? o->cache : info->default_cache);
}

lt_scheduler_options lti_schedule(const lti_config *c, const lt_session_options *o)
{
    lt_scheduler_options s = lt_scheduler_options_default();
    s.solver = o->solver;
    /* a configured grid belongs to the configured solver */
    if (c && o->solver == c->info.default_solver) s.grid = c->grid;
    s.steps = o->num_inference_steps;
    s.shift = o->flow_shift;
    s.list = o->step_list;
    s.list_len = o->step_list_len;
    return s;
}
