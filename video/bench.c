/* bench.c: one network alone, timed, with its operations counted. */
#include "video/dit.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PASSES = 64, PEAK_MS = 300, MAX_SIDE = 16384, MAX_FRAMES = 4093 };

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static lt_status check(lt_ctx *ctx, lt_bench_options *o, lt_dev *dev)
{
    if (!o->dtype) o->dtype = lt_dev_auto_dtype(dev);
    if (!o->batch) o->batch = 1;
    if (!o->text_rows) o->text_rows = 64;
    if (!o->passes) o->passes = 3;
    if (o->width < 16 || o->height < 16 || o->width % 16 || o->height % 16 || o->num_frames < 1 ||
        o->num_frames % 4 != 1)
        return lti_fail(ctx, LT_ERR_ARG,
                        "%d frames of %dx%d: sizes must be multiples of 16, frames 4 k + 1",
                        o->num_frames, o->width, o->height);
    if (o->width > MAX_SIDE || o->height > MAX_SIDE || o->num_frames > MAX_FRAMES)
        return lti_fail(ctx, LT_ERR_ARG, "%d frames of %dx%d: %d of %dx%d are the most",
                        o->num_frames, o->width, o->height, MAX_FRAMES, MAX_SIDE, MAX_SIDE);
    if (o->batch < 1 || o->batch > LTI_DIT_BATCH)
        return lti_fail(ctx, LT_ERR_ARG, "batch of %d samples: not in 1..%d", o->batch,
                        LTI_DIT_BATCH);
    if (o->text_rows < 1) return lti_fail(ctx, LT_ERR_ARG, "%d rows of text", o->text_rows);
    if (o->passes < 1 || o->passes > MAX_PASSES)
        return lti_fail(ctx, LT_ERR_ARG, "%d passes: not in 1..%d", o->passes, MAX_PASSES);
    return LT_OK;
}

/* The first call is not measured: scratch is made and pages are touched in it. The peak is measured between the passes,
 * because what a shared machine sustains changes within a minute. */
static lt_status time_passes(lt_bench_result *out, lt_dev *dev, const lt_bench_options *o,
                             bool conv, lt_status (*fn)(void *), void *arg)
{
    const int32_t passes = o->passes;
    double t[MAX_PASSES];
    LT_TRY(fn(arg));
    double peak = lt_peak_flops(dev, o->dtype, conv, PEAK_MS);
    for (int32_t i = 0; i < passes; i++) {
        const double start = lti_now();
        LT_TRY(fn(arg));
        t[i] = lti_now() - start;
        peak += lt_peak_flops(dev, o->dtype, conv, PEAK_MS);
    }
    out->peak_flops = peak / (passes + 1);
    qsort(t, (size_t)passes, sizeof *t, ascending);
    out->seconds = t[passes / 2];
    out->best_seconds = t[0];
    return LT_OK;
}

static void memory(lt_bench_result *out, const lt_dev *dev)
{
    lt_mem_stats m;
    lt_dev_mem_stats(dev, &m);
    out->weight_bytes = m.live_bytes[LT_TAG_WEIGHTS];
    out->peak_bytes = m.peak_total;
}

static lt_status noise(lt_dev *dev, float **out, int64_t n, uint64_t stream)
{
    LT_TRY(lt_dev_alloc(dev, (void **)out, (size_t)n * sizeof(float), LT_TAG_LATENT));
    return lt_noise(dev, &(lt_noise_args){.out = *out, .n = n, .stream = stream});
}

/* ---- transformer ---- */

typedef struct dit_bench {
    lti_dit *dit;
    lti_prompt *prompt;
    lti_dit_run *run;
    lt_cache *cache[LTI_DIT_BATCH];
    float *x, *v[LTI_DIT_BATCH], *text;
    int32_t batch;
} dit_bench;

static lt_status dit_pass(void *arg)
{
    dit_bench *b = arg;
    return lti_dit_forward(b->run, &(lti_dit_args){.batch = b->batch,
                                                   .x = {b->x, b->x},
                                                   .v = {b->v[0], b->v[1]},
                                                   .prompt = {b->prompt, b->prompt},
                                                   .cache = {b->cache[0], b->cache[1]}});
}

static lt_status load_dit(dit_bench *b, lt_dev *dev, const lt_bench_options *o)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    lti_tensors *t;
    lti_config c = {0};
    LT_TRY(lti_tensors_open(&t, ctx, o->path, LTI_PART_DIT, NULL));
    const lt_tensor_source source = lti_tensors_source(t);
    lt_status s = lti_dit_config_read(&c.dit, ctx, t, NULL, NULL);
    if (s >= 0) s = lti_config_check_part(ctx, &c, t);
    if (s >= 0) s = lti_dit_create(&b->dit, dev, &c.dit, o->dtype, &source);
    lti_tensors_close(&t);
    return s;
}

/* A cache whose window is full, its next block open. Keys and values are zeros: their time does not depend on it. */
static lt_status fill_cache(lt_cache **out, lt_dev *dev, const lt_cache_options *o)
{
    LT_TRY(lt_cache_create(out, dev, o));
    for (int32_t kept = 0; kept < o->policy.window; kept += o->policy.block) {
        LT_TRY(lt_cache_reserve(*out, o->policy.block));
        LT_TRY(lt_cache_commit(*out));
    }
    return lt_cache_reserve(*out, o->policy.block);
}

static lt_status open_caches(dit_bench *b, lt_dev *dev, const lt_bench_options *o,
                             const lt_cache_policy *policy)
{
    const lti_dit_config *c = lti_dit_get_config(b->dit);
    const int32_t side = 8 * c->patch;
    const lt_cache_options options = {.layers = c->layers,
                                      .heads = c->heads,
                                      .head_dim = c->head_dim,
                                      .rows = o->height / side,
                                      .cols = o->width / side,
                                      .dtype = o->dtype,
                                      .policy = *policy};
    for (int32_t i = 0; i < o->batch; i++)
        LT_TRY(fill_cache(&b->cache[i], dev, &options));
    return LT_OK;
}

static double pass_flops(const dit_bench *b, const lti_dit_config *c, int64_t tokens)
{
    const int64_t keys[LTI_DIT_BATCH] = {lti_prompt_keys(b->prompt), lti_prompt_keys(b->prompt)};
    if (!b->cache[0]) return lti_dit_flops(c, tokens, b->batch, keys, true);
    const int64_t visible = lt_cache_visible_rows(b->cache[0]);
    return b->batch * lti_dit_causal_flops(c, tokens, visible, keys[0]);
}

static lt_status dit_measure(lt_bench_result *out, dit_bench *b, lt_dev *dev,
                             const lt_bench_options *o)
{
    LT_TRY(load_dit(b, dev, o));
    const lti_dit_config *c = lti_dit_get_config(b->dit);
    const double time = 500;
    lt_cache_policy policy = {0};
    if (o->cache) LT_TRY(lt_cache_policy_parse(&policy, lt_dev_ctx(dev), o->cache));
    if (o->cache) LT_TRY(open_caches(b, dev, o, &policy));
    const lti_dit_run_options run = {.frames =
                                         o->cache ? policy.block : (o->num_frames - 1) / 4 + 1,
                                     .h = o->height / 8,
                                     .w = o->width / 8,
                                     .batch = o->batch,
                                     .times = &time,
                                     .ntimes = 1};
    const int64_t n = (int64_t)run.frames * run.h * run.w;
    b->batch = o->batch;
    b->text = calloc((size_t)o->text_rows * (size_t)c->text_dim, sizeof *b->text);
    if (!b->text)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for %d rows of text", o->text_rows);
    for (int64_t i = 0; i < (int64_t)o->text_rows * c->text_dim; i++)
        b->text[i] = (float)(i * 2654435761 % 2001 - 1000) / 5000;
    LT_TRY(lti_dit_run_create(&b->run, b->dit, &run));
    out->tokens = lti_dit_run_tokens(b->run);
    LT_TRY(lti_prompt_create(&b->prompt, b->dit, b->text, o->text_rows, out->tokens, NULL));
    LT_TRY(noise(dev, &b->x, n * c->in_channels, 0));
    for (int32_t i = 0; i < o->batch; i++)
        LT_TRY(noise(dev, &b->v[i], n * c->out_channels, 1));
    out->flops = pass_flops(b, c, out->tokens);
    return time_passes(out, dev, o, false, dit_pass, b);
}

lt_status lt_bench_dit(lt_bench_result *out, lt_dev *dev, const lt_bench_options *opt)
{
    *out = (lt_bench_result){0};
    lt_bench_options o = *opt;
    LT_TRY(check(lt_dev_ctx(dev), &o, dev));
    dit_bench b = {0};
    const lt_status s = dit_measure(out, &b, dev, &o);
    memory(out, dev);
    lti_prompt_destroy(&b.prompt);
    lti_dit_run_destroy(&b.run);
    lti_dit_destroy(&b.dit);
    lt_dev_free(dev, b.x);
    for (int i = 0; i < LTI_DIT_BATCH; i++) {
        lt_cache_destroy(&b.cache[i]);
        lt_dev_free(dev, b.v[i]);
    }
    free(b.text);
    return s;
}

/* ---- VAE decoder ---- */

typedef struct vae_bench {
    lt_vae *vae;
    lt_vae_decoder *decoder;
    float *z;
    int32_t frames;
    int64_t area, made;
} vae_bench;

static lt_status vae_pass(void *arg)
{
    vae_bench *b = arg;
    lt_vae_decoder_reset(b->decoder);
    b->made = 0;
    for (int32_t k = 0; k < b->frames; k++) {
        LT_TRY(lt_vae_decoder_push(b->decoder, b->z + k * b->area, b->frames * b->area));
        lt_image img;
        lt_status s;
        while ((s = lt_vae_decoder_next(b->decoder, &img)) == LT_OK)
            b->made++;
        LT_TRY(s);
    }
    return LT_OK;
}

static lt_status load_vae(vae_bench *b, lt_vae_config *out, lt_dev *dev, const lt_bench_options *o)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    lti_tensors *t;
    lti_config c = {0};
    LT_TRY(lti_tensors_open(&t, ctx, o->path, LTI_PART_VAE, NULL));
    const lt_tensor_source source = lti_tensors_source(t);
    lt_status s = lti_vae_config_read(&c.vae, ctx, t, NULL, NULL);
    if (s >= 0) s = lti_config_check_part(ctx, &c, t);
    c.vae.compute = o->dtype;
    c.vae.no_encoder = true;
    if (s >= 0) s = lt_vae_create(&b->vae, dev, &c.vae, &source);
    lti_tensors_close(&t);
    *out = c.vae;
    return s;
}

static lt_status vae_measure(lt_bench_result *out, vae_bench *b, lt_dev *dev,
                             const lt_bench_options *o)
{
    lt_vae_config c;
    LT_TRY(load_vae(b, &c, dev, o));
    const int32_t h = o->height / lt_vae_scale(&c), w = o->width / lt_vae_scale(&c);
    b->frames = (o->num_frames - 1) / lt_vae_frame_scale(&c) + 1;
    b->area = (int64_t)h * w;
    LT_TRY(noise(dev, &b->z, c.z_dim * b->frames * b->area, 0));
    LT_TRY(lt_vae_decoder_create(&b->decoder, b->vae, h, w));
    out->flops = lt_vae_decode_flops(&c, h, w, true) +
                 (b->frames - 1) * lt_vae_decode_flops(&c, h, w, false);
    LT_TRY(time_passes(out, dev, o, true, vae_pass, b));
    out->tokens = b->made;
    return LT_OK;
}

lt_status lt_bench_vae_decode(lt_bench_result *out, lt_dev *dev, const lt_bench_options *opt)
{
    *out = (lt_bench_result){0};
    lt_bench_options o = *opt;
    LT_TRY(check(lt_dev_ctx(dev), &o, dev));
    vae_bench b = {0};
    const lt_status s = vae_measure(out, &b, dev, &o);
    memory(out, dev);
    lt_vae_decoder_destroy(&b.decoder);
    lt_vae_destroy(&b.vae);
    lt_dev_free(dev, b.z);
    return s;
}
