/* estimate.c: what a run will take, from headers alone: bytes by phase, operations, and whether it fits this machine. */
#include "video/denoise.h"
#include "video/extend.h"
#include "video/model_internal.h"
#include "video/rollout.h"

#include <string.h>

/* Panels that kernels pack for themselves, thread stacks, the program: measured 60 to 120 MiB. */
static const uint64_t overhead = (uint64_t)128 << 20;

/* ---- bytes ---- */

static void count_elements(void *user, const char *name, int ndim, const int64_t *dim)
{
    (void)name;
    uint64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (uint64_t)dim[i];
    *(uint64_t *)user += n;
}

static uint64_t vae_bytes(lt_vae_config c, bool encoder, lt_dtype t)
{
    uint64_t n = 0;
    c.no_encoder = !encoder;
    c.no_decoder = encoder;
    c.compute = t;
    lt_vae_list_tensors(&c, count_elements, &n);
    return n * lt_dtype_size(t);
}

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A guess of the tokens in a text, for operations and small buffers: about three letters each. */
static int32_t text_rows(const char *text, int32_t max)
{
    const size_t n = strlen(text) / 3 + 2;
    return n < (size_t)max ? (int32_t)n : max;
}

typedef struct shape {
    int32_t frames, h, w, rows[2];
    int64_t tokens;
    bool guided;
    bool ar, extend;           /* frames and tokens are a block's or segment's */
    int32_t all_frames, fresh; /* fresh: of a segment, drawn anew */
    lt_cache_policy policy;
} shape;

static shape shape_of(const lti_config *c, const lt_session_options *o)
{
    const int32_t p = c->dit.patch;
    shape s = {.frames = (o->num_frames + c->info.frame_scale - 1) / c->info.frame_scale,
               .h = o->height / c->info.spatial_scale,
               .w = o->width / c->info.spatial_scale,
               .rows = {text_rows(o->prompt, c->dit.text_len),
                        text_rows(o->negative_prompt, c->dit.text_len)},
               .guided = o->guidance_scale > 1};
    s.all_frames = s.frames;
    /* checked before: an error cannot come up here */
    s.ar = o->mode == LT_MODE_AR && lti_session_policy(&s.policy, NULL, &c->info, o) >= 0;
    if (s.ar) s.frames = lt_cache_most_open(&s.policy);
    lti_extend_policy x;
    s.extend = o->mode == LT_MODE_EXTEND && lti_extend_parse(&x, NULL, &c->info, o->extend) >= 0;
    if (s.extend) s.frames = x.segment;
    if (s.extend) s.fresh = x.segment - x.overlap;
    s.tokens = (int64_t)s.frames * (s.h / p) * (s.w / p);
    return s;
}

/* With a full window, which a long video nearly always has. */
static double rollout_flops(const lti_config *c, const lt_session_options *o, const shape *s,
                            const int64_t keys[2])
{
    const int32_t blocks = (s->all_frames + s->frames - 1) / s->frames;
    const int64_t visible = s->tokens / s->frames * s->policy.window;
    double pass = lti_dit_causal_flops(&c->dit, s->tokens, visible, keys[0]);
    if (s->guided) pass += lti_dit_causal_flops(&c->dit, s->tokens, visible, keys[1]);
    return pass * blocks * (o->num_inference_steps + 1);
}

static double flops_of(const lti_config *c, const lt_session_options *o, const shape *s, bool batch)
{
    const int64_t keys[2] = {s->rows[0] + 1, s->rows[1] + 1};
    const int32_t branches = s->guided ? 2 : 1;
    const double pass = lti_dit_flops(&c->dit, s->tokens, branches, keys, batch);
    const int32_t more = s->extend ? s->all_frames - s->frames : 0;
    const int32_t segments = 1 + (more > 0 ? (more + s->fresh - 1) / s->fresh : 0);
    const double denoise =
        s->ar ? rollout_flops(c, o, s, keys) : pass * o->num_inference_steps * segments;
    double sum = denoise + lt_vae_decode_flops(&c->vae, s->h, s->w, true) +
                 (s->all_frames - 1) * lt_vae_decode_flops(&c->vae, s->h, s->w, false);
    for (int32_t b = 0; b < branches; b++)
        sum += lti_text_flops(&c->text, s->rows[b]);
    return sum;
}

void lti_estimate(lt_estimate *out, const lti_config *c, lt_dtype dtype,
                  const lt_session_options *o, bool batch)
{
    const shape s = shape_of(c, o);
    const int32_t rows = (int32_t)max_of((uint64_t)s.rows[0], (uint64_t)s.rows[1]);
    lt_vae_config vae = c->vae;
    vae.compute = dtype;
    vae.no_encoder = true;
    *out = (lt_estimate){
        .weights = lti_dit_weight_bytes(&c->dit, dtype) + vae_bytes(c->vae, false, dtype),
        .text = lti_text_bytes(&c->text, dtype, s.rows[0] + (s.guided ? s.rows[1] : 0)),
        .latent = lti_denoise_latent_bytes(&c->dit, s.frames, s.h, s.w),
        .vae = lt_vae_decoder_bytes(&vae, s.h, s.w) +
               (uint64_t)(1 + c->info.frame_scale) * 3 * (uint64_t)o->width * (uint64_t)o->height,
        .flops = flops_of(c, o, &s, batch),
    };
    uint64_t denoise = lti_denoise_bytes(&c->dit, dtype, s.frames, s.h, s.w, o->num_inference_steps,
                                         rows, s.guided, s.guided && batch);
    if (s.ar) {
        denoise = lti_rollout_bytes(&c->dit, dtype, &s.policy, s.h, s.w, o->num_inference_steps,
                                    rows, s.guided, s.guided && batch);
        out->cache = lti_rollout_cache_bytes(&c->dit, dtype, &s.policy, s.h, s.w, s.guided);
    }
    lt_sparse_spec sparse;
    if (lt_sparse_parse(&sparse, NULL, o->attention) >= 0)
        denoise += lti_dit_sparse_bytes(&c->dit, dtype, s.frames, s.h, s.w, &sparse,
                                        s.ar ? &s.policy : NULL);
    out->activation = denoise - out->latent - out->cache;
    uint64_t peak = max_of(out->text, max_of(denoise, out->vae + out->latent / 7));
    if (s.ar || s.extend) /* decoded while it is drawn */
        peak = max_of(out->text, denoise + out->vae);
    if (s.ar) peak = denoise + out->vae + out->text; /* another prompt is encoded meanwhile */
    const bool again = s.extend && (o->image || o->given_frames || s.all_frames > s.frames);
    if (o->image || o->given_frames ||
        again) { /* encoded in f32, with a state of the decoder's order */
        vae.compute = LT_F32;
        const uint64_t encoder =
            vae_bytes(c->vae, true, LT_F32) + lt_vae_decoder_bytes(&vae, s.h, s.w) +
            3 * (uint64_t)o->width * (uint64_t)o->height * (uint64_t)(o->given_frames + 5);
        peak = max_of(peak, encoder + (again ? denoise + out->vae : 0));
    }
    out->total_peak = out->weights + peak + overhead;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)((uint64_t)1 << 30);
}

lt_status lti_estimate_fit(lt_estimate *out, lt_ctx *ctx, const lti_config *c, lt_dtype dtype,
                           const lt_session_options *o, uint64_t loaded)
{
    const uint64_t available = lti_available_bytes("");
    const uint64_t limit = o->memory_limit           ? o->memory_limit
                           : available == UINT64_MAX ? UINT64_MAX
                                                     : available + loaded;
    bool batch = o->guidance_scale > 1 && o->cfg_mode != LT_CFG_SERIAL;
    lti_estimate(out, c, dtype, o, batch);
    if (batch && o->cfg_mode == LT_CFG_AUTO && out->total_peak > limit) {
        batch = false;
        lti_estimate(out, c, dtype, o, batch);
    }
    out->cfg_batch = batch;
    out->available = available;
    if (out->total_peak <= limit) return LT_OK;
    lt_cache_policy p;
    if (o->mode == LT_MODE_AR && lti_session_policy(&p, ctx, &c->info, o) >= 0)
        return lti_fail(ctx, LT_ERR_MEM,
                        "blocks of %d latent frames of %dx%d that see %d need %.2f GiB (weights "
                        "%.2f, activations %.2f, latents %.2f, VAE %.2f, cache of %d frames %.2f), "
                        "%.2f GiB are %s; a smaller window (cache PRESET:window=N) or size needs "
                        "less, a shorter video does not",
                        p.block, o->width, o->height, p.window, gib(out->total_peak),
                        gib(out->weights), gib(out->activation), gib(out->latent), gib(out->vae),
                        p.window, gib(out->cache), gib(limit),
                        o->memory_limit ? "allowed" : "free");
    return lti_fail(ctx, LT_ERR_MEM,
                    "%d frames of %dx%d need %.2f GiB (weights %.2f, activations %.2f, latents "
                    "%.2f, VAE %.2f, cache %.2f), "
                    "%.2f GiB are %s",
                    o->num_frames, o->width, o->height, gib(out->total_peak), gib(out->weights),
                    gib(out->activation), gib(out->latent), gib(out->vae), gib(out->cache),
                    gib(limit), o->memory_limit ? "allowed" : "free");
}

static lt_status estimate_files(lt_estimate *out, lt_ctx *ctx, const lti_model_files *files,
                                const lt_model_options *model, const lt_session_options *opt)
{
    lti_config c;
    LT_TRY(lti_model_files_require(ctx, files));
    LT_TRY(lti_config_read(&c, ctx, files));
    LT_TRY(lti_config_check(ctx, &c, files));
    lt_session_options o = *opt;
    LT_TRY(lt_session_validate(ctx, &c.info, &o));
    const lt_dtype dtype = model->dtype ? model->dtype : LT_BF16;
    return lti_estimate_fit(out, ctx, &c, dtype, &o, 0);
}

lt_status lt_session_estimate(lt_estimate *out, lt_ctx *ctx, const lt_model_options *model,
                              const lt_session_options *opt)
{
    *out = (lt_estimate){0};
    lti_model_files *files;
    LT_TRY(lti_model_files_find(&files, ctx, model));
    const lt_status s = estimate_files(out, ctx, files, model, opt);
    lti_model_files_close(&files);
    return s;
}
