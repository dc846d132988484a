/* dit_tables.c: what depends on the prompt alone or on the timestep alone, computed once: K and V of cross-attention, and the
 * modulation of every block at every timestep of a schedule. */
#include "video/dit_internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- timesteps ---- */

/* [n, freq_dim]: cosines, then sines, of t * 10000^(-k / half). Angles in double: t may be 833.3333 and its sine is wanted. */
static void sinusoid(float *out, const double *times, int32_t n, int32_t freq_dim)
{
    const int32_t half = freq_dim / 2;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < half; k++) {
            const double a = times[i] * pow(10000, -(double)k / half);
            out[i * freq_dim + k] = (float)cos(a);
            out[i * freq_dim + half + k] = (float)sin(a);
        }
    }
}

/* Device scratch of one table: s [n, freq], a e [n, D], proj [n, 6 D]. */
typedef struct time_work {
    float *s, *a, *e, *proj;
} time_work;

static lt_status time_path(const lti_dit *d, const time_work *w, int32_t n)
{
    LT_TRY(lt_linear(d->dev, &(lt_linear_args){.out = {w->a, LT_F32, 0},
                                               .x = {w->s, LT_F32, 0},
                                               .w = d->time0,
                                               .rows = n,
                                               .act = LT_ACT_SILU}));
    LT_TRY(lt_linear(
        d->dev, &(lt_linear_args){
                    .out = {w->e, LT_F32, 0}, .x = {w->a, LT_F32, 0}, .w = d->time2, .rows = n}));
    LT_TRY(lt_map(d->dev, &(lt_map_args){.out = {w->a, LT_F32, 0},
                                         .x = {w->e, LT_F32, 0},
                                         .rows = n,
                                         .cols = d->c.dim,
                                         .act = LT_ACT_SILU}));
    return lt_linear(d->dev, &(lt_linear_args){.out = {w->proj, LT_F32, 0},
                                               .x = {w->a, LT_F32, 0},
                                               .w = d->time_proj,
                                               .rows = n});
}

/* out [n, cols] = x + one row of y; out_ld elements between rows of out. */
static lt_status add_row(lt_dev *dev, float *out, int64_t out_ld, float *x, float *y, int32_t n,
                         int64_t cols)
{
    return lt_map(dev, &(lt_map_args){.out = {out, LT_F32, out_ld},
                                      .x = {x, LT_F32, 0},
                                      .y = {y, LT_F32, 0},
                                      .rows = n,
                                      .cols = cols,
                                      .y_rows = 1,
                                      .add = true});
}

static lt_status fill_times(lti_dit_times *t, const lti_dit *d, const time_work *w,
                            const lti_probe *probe)
{
    const int64_t dim = d->c.dim;
    LT_TRY(time_path(d, w, t->n));
    LT_TRY(lti_probe_call(probe, "time_emb", -1, (lt_mat){w->e, LT_F32, dim}, t->n, dim));
    LT_TRY(
        lti_probe_call(probe, "time_proj", -1, (lt_mat){w->proj, LT_F32, 6 * dim}, t->n, 6 * dim));
    for (int32_t i = 0; i < d->c.layers; i++)
        LT_TRY(add_row(d->dev, t->blocks + (int64_t)i * t->n * 6 * dim, 6 * dim, w->proj,
                       d->blocks[i].modulation, t->n, 6 * dim));
    for (int half = 0; half < 2; half++) /* shift, scale; from the unprojected embedding */
        LT_TRY(add_row(d->dev, t->head + half * dim, 2 * dim, w->e, d->head_modulation + half * dim,
                       t->n, dim));
    return LT_OK;
}

lt_status lti_dit_times_create(lti_dit_times *out, const lti_dit *d, const double *times, int32_t n,
                               const lti_probe *probe)
{
    const size_t dim = (size_t)d->c.dim, freq = (size_t)d->c.freq_dim, rows = (size_t)n;
    *out = (lti_dit_times){.n = n};
    lt_arena work = {0};
    time_work w;
    float *host = malloc(rows * freq * sizeof *host);
    lt_status s = LT_OK;
    if (!host) s = lti_fail(lt_dev_ctx(d->dev), LT_ERR_MEM, "no memory for %d timesteps", n);
    const size_t each[] = {rows * freq * 4, rows * dim * 4, rows * dim * 4, rows * 6 * dim * 4};
    float **const part[] = {&w.s, &w.a, &w.e, &w.proj};
    size_t total = 0;
    for (size_t i = 0; i < LT_COUNT(each); i++)
        total += lt_arena_need(each[i]);
    if (s >= 0) s = lt_arena_create(&work, d->dev, total, LT_TAG_ACTIVATION);
    for (size_t i = 0; i < LT_COUNT(each) && s >= 0; i++)
        s = lt_arena_alloc(&work, (void **)part[i], each[i]);
    if (s >= 0)
        s = lt_dev_alloc(d->dev, (void **)&out->blocks, rows * 6 * dim * 4 * (size_t)d->c.layers,
                         LT_TAG_ACTIVATION);
    if (s >= 0)
        s = lt_dev_alloc(d->dev, (void **)&out->head, rows * 2 * dim * 4, LT_TAG_ACTIVATION);
    if (s >= 0) {
        sinusoid(host, times, n, d->c.freq_dim);
        s = lt_dev_upload(d->dev, w.s, host, each[0]);
    }
    if (s >= 0) s = fill_times(out, d, &w, probe);
    lt_arena_destroy(&work);
    free(host);
    if (s < 0) lti_dit_times_destroy(out, d->dev);
    return s;
}

void lti_dit_times_destroy(lti_dit_times *t, lt_dev *dev)
{
    lt_dev_free(dev, t->blocks);
    lt_dev_free(dev, t->head);
    *t = (lti_dit_times){0};
}

/* ---- prompts ---- */

/* text rows in the compute type, [keys, text_dim]; the last one zero when there is padding */
static lt_status upload_text(const lti_dit *d, lt_mat to, float *f32, const float *rows, int32_t n,
                             int64_t keys)
{
    const size_t bytes = (size_t)n * (size_t)d->c.text_dim * 4;
    LT_TRY(lt_dev_zero(d->dev, f32, (size_t)keys * (size_t)d->c.text_dim * 4));
    LT_TRY(lt_dev_upload(d->dev, f32, rows, bytes));
    return lt_convert(d->dev, &(lt_convert_args){.out = to,
                                                 .x = {f32, LT_F32, d->c.text_dim},
                                                 .rows = keys,
                                                 .cols = d->c.text_dim});
}

static lt_status fill_kv(lti_prompt *p, lt_mat ctx)
{
    const lti_dit *d = p->dit;
    const int64_t dim = d->c.dim;
    lt_mat kv = {p->kv, d->compute, 2 * dim};
    for (int32_t i = 0; i < d->c.layers; i++, kv = lti_at(kv, p->keys, 0)) {
        LT_TRY(lt_linear(
            d->dev,
            &(lt_linear_args){.out = kv, .x = ctx, .w = d->blocks[i].cross_kv, .rows = p->keys}));
        LT_TRY(lt_qknorm(d->dev, &(lt_qknorm_args){.out = kv,
                                                   .x = kv,
                                                   .rows = p->keys,
                                                   .heads = d->c.heads,
                                                   .head_dim = d->c.head_dim,
                                                   .weight = d->blocks[i].cross_norm_k,
                                                   .eps = d->c.eps}));
    }
    return LT_OK;
}

static lt_status fill_prompt(lti_prompt *p, lt_arena *work, const float *rows, int32_t n,
                             const lti_probe *probe)
{
    const lti_dit *d = p->dit;
    const size_t e = lt_dtype_size(d->compute), keys = (size_t)p->keys;
    lt_mat text = {.dtype = d->compute, .ld = d->c.text_dim};
    lt_mat mid = {.dtype = d->compute, .ld = d->c.dim}, ctx = mid;
    void *f32;
    LT_TRY(lt_arena_alloc(work, &f32, keys * (size_t)d->c.text_dim * 4));
    LT_TRY(lt_arena_alloc(work, &text.data, keys * (size_t)d->c.text_dim * e));
    LT_TRY(lt_arena_alloc(work, &mid.data, keys * (size_t)d->c.dim * e));
    LT_TRY(lt_arena_alloc(work, &ctx.data, keys * (size_t)d->c.dim * e));
    LT_TRY(upload_text(d, text, f32, rows, n, p->keys));
    LT_TRY(lt_linear(
        d->dev,
        &(lt_linear_args){
            .out = mid, .x = text, .w = d->text0, .rows = p->keys, .act = LT_ACT_GELU_TANH}));
    LT_TRY(
        lt_linear(d->dev, &(lt_linear_args){.out = ctx, .x = mid, .w = d->text2, .rows = p->keys}));
    LT_TRY(lti_probe_call(probe, "context_emb", -1, ctx, p->keys, d->c.dim));
    return fill_kv(p, ctx);
}

lt_status lti_prompt_create(lti_prompt **out, const lti_dit *d, const float *rows, int32_t n,
                            int64_t tokens, const lti_probe *probe)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(d->dev);
    const int32_t padding = d->c.text_len - n;
    if (n < 1 || padding < 0)
        return lti_fail(ctx, LT_ERR_ARG, "prompt of %d rows: not in 1..%d", n, d->c.text_len);
    lti_prompt *p = calloc(1, sizeof *p);
    if (!p) return lti_fail(ctx, LT_ERR_MEM, "no memory for a prompt");
    p->dit = d;
    p->keys = n + (padding > 0);
    const size_t keys = (size_t)p->keys, e = lt_dtype_size(d->compute);
    const size_t text = keys * (size_t)d->c.text_dim, dim = keys * (size_t)d->c.dim;
    lt_arena work = {0};
    lt_status s = lt_plan_text(&p->plan, d->dev, tokens, n, padding, d->c.heads);
    if (s >= 0)
        s = lt_dev_alloc(d->dev, (void **)&p->kv, (size_t)d->c.layers * 2 * dim * e, LT_TAG_KV);
    if (s >= 0)
        s = lt_arena_create(&work, d->dev,
                            lt_arena_need(text * 4) + lt_arena_need(text * e) +
                                2 * lt_arena_need(dim * e),
                            LT_TAG_ACTIVATION);
    if (s >= 0) s = fill_prompt(p, &work, rows, n, probe);
    lt_arena_destroy(&work);
    if (s < 0)
        lti_prompt_destroy(&p);
    else
        *out = p;
    return s;
}

void lti_prompt_destroy(lti_prompt **prompt)
{
    lti_prompt *p = prompt ? *prompt : NULL;
    if (!p) return;
    lt_plan_destroy(&p->plan);
    lt_dev_free(p->dit->dev, p->kv);
    free(p);
    *prompt = NULL;
}

int64_t lti_prompt_keys(const lti_prompt *prompt)
{
    return prompt->keys;
}
