/* parity_e2e.c: golden kind `e2e`: token ids to latent through text encoder, transformer with guidance and solver, as a session
 * does it; noise and the first frame's latent come from the file. */
#include "tests/parity.h"

#include "video/denoise.h"

#include <stdlib.h>
#include <string.h>

typedef struct text {
    float *rows;
    int32_t n;
} text;

typedef struct e2e {
    lt_parity *p;
    lti_dit *dit;
    text cond, uncond;
    float *image; /* device, or NULL */
    lt_scheduler_options schedule;
    double guidance;
    int32_t frames, h, w;
    const lt_parity_array *noise;
} e2e;

static lt_status encode(lt_parity *p, text *out, const lti_text_config *c,
                        const lt_tensor_source *source, const char *name)
{
    const lt_parity_array *ids, *mask;
    LT_TRY(lt_parity_get(p, &ids, "in.%s.ids", name));
    LT_TRY(lt_parity_get(p, &mask, "in.%s.mask", name));
    int32_t id[1024], n = 0;
    for (; n < mask->n && n < ids->n && n < (int32_t)LT_COUNT(id) && mask->data[n] > 0.5f; n++)
        id[n] = (int32_t)ids->data[n];
    out->n = n;
    out->rows = malloc(((size_t)n * (size_t)c->dim + 1) * sizeof *out->rows);
    if (!out->rows) return LT_ERR_MEM;
    const int32_t *const list[] = {id};
    LT_TRY(lti_text_encode(p->dev, out->rows,
                           &(lti_text_job){.config = c,
                                           .source = source,
                                           .compute = p->dtype,
                                           .texts = 1,
                                           .ids = list,
                                           .len = &n}));
    lt_parity_compare(p, out->rows, (int64_t)n * c->dim, "context.%s", name);
    return LT_OK;
}

static lt_status encode_both(e2e *e)
{
    lt_parity *p = e->p;
    lti_tensors *t;
    lti_text_config c;
    LT_TRY(lt_parity_open_text(p, &t, &c, "weight.t5."));
    const lt_tensor_source source = lti_tensors_source(t);
    lt_status s = encode(p, &e->cond, &c, &source, "cond");
    if (s >= 0) s = encode(p, &e->uncond, &c, &source, "uncond");
    lti_tensors_close(&t);
    return s;
}

static lt_status open_denoiser(const e2e *e, lti_denoise **out, double guidance, bool batch)
{
    LT_TRY(lti_denoise_create(out, &(lti_denoise_options){.dit = e->dit,
                                                          .frames = e->frames,
                                                          .h = e->h,
                                                          .w = e->w,
                                                          .schedule = &e->schedule,
                                                          .guidance = guidance,
                                                          .cond = e->cond.rows,
                                                          .cond_rows = e->cond.n,
                                                          .uncond = e->uncond.rows,
                                                          .uncond_rows = e->uncond.n,
                                                          .batch = batch,
                                                          .first_frame = e->image}));
    if (lti_denoise_numbers(*out) == e->noise->n)
        return lt_dev_upload(e->p->dev, lti_denoise_latent(*out), e->noise->data,
                             (size_t)e->noise->n * sizeof(float));
    lti_denoise_destroy(out);
    return lti_fail(e->p->ctx, LT_ERR_SHAPE, "in.noise has %lld numbers", (long long)e->noise->n);
}

/* The conditional branch alone, whose output guidance overwrites. */
static lt_status conditional(e2e *e)
{
    lti_denoise *d;
    LT_TRY(open_denoiser(e, &d, 1, false));
    lt_status s = lti_denoise_step(d, 0);
    if (s >= 0)
        s = lt_parity_compare_device(e->p, lti_denoise_velocity(d, false), e->noise->n,
                                     "step0.v_cond");
    lti_denoise_destroy(&d);
    return s;
}

static lt_status loop(e2e *e, lti_denoise *d)
{
    lt_parity *p = e->p;
    const int32_t steps = lti_denoise_steps(d);
    const int64_t n = e->noise->n;
    float t[1024], used[1024] = {0};
    for (int32_t i = 0; i < steps; i++) {
        /* the first frame is imposed on the noise inside step 0, so there is nothing to compare before it */
        if (i || !e->image)
            LT_TRY(lt_parity_compare_device(p, lti_denoise_latent(d), n, "step%d.x", i));
        LT_TRY(lti_denoise_step(d, i));
        t[i] = (float)lti_denoise_timestep(d, i);
        if (i) continue;
        LT_TRY(lt_parity_compare_device(p, lti_denoise_velocity(d, true), n, "step0.v_uncond"));
        LT_TRY(lt_parity_compare_device(p, lti_denoise_velocity(d, false), n, "step0.v_cfg"));
    }
    lt_parity_exact(p, t, steps, "timesteps");
    lt_parity_exact(p, used, steps, "model_used");
    return lt_parity_compare_device(p, lti_denoise_latent(d), n, "latent");
}

static lt_status read_schedule(e2e *e)
{
    const json_t *c = e->p->config, *grid = json_object_get(c, "latent_grid");
    const char *solver = json_string_value(json_object_get(c, "solver"));
    e->schedule = lt_scheduler_options_default();
    e->schedule.steps = (int32_t)lt_parity_int(c, "steps");
    e->schedule.shift = lt_parity_number(c, "shift");
    e->guidance = lt_parity_number(c, "guide_scale");
    if (!solver || !lt_solver_parse(solver, &e->schedule.solver) || e->schedule.steps > 1024)
        return lti_fail(e->p->ctx, LT_ERR_FORMAT, "solver %s of %d steps", solver ? solver : "?",
                        e->schedule.steps);
    e->frames = (int32_t)json_number_value(json_array_get(grid, 0));
    e->h = (int32_t)json_number_value(json_array_get(grid, 1));
    e->w = (int32_t)json_number_value(json_array_get(grid, 2));
    return LT_OK;
}

static lt_status upload_image(e2e *e)
{
    const lt_parity_array *z = lt_parity_find(e->p, "in.image_latent");
    if (!z) return LT_OK;
    LT_TRY(
        lt_dev_alloc(e->p->dev, (void **)&e->image, (size_t)z->n * sizeof(float), LT_TAG_LATENT));
    return lt_dev_upload(e->p->dev, e->image, z->data, (size_t)z->n * sizeof(float));
}

static lt_status run(e2e *e)
{
    lti_denoise *d;
    LT_TRY(lt_parity_get(e->p, &e->noise, "in.noise"));
    LT_TRY(read_schedule(e));
    LT_TRY(lt_parity_load_dit(e->p, &e->dit, "weight.dit."));
    LT_TRY(encode_both(e));
    LT_TRY(upload_image(e));
    LT_TRY(conditional(e));
    LT_TRY(open_denoiser(e, &d, e->guidance, true));
    const lt_status s = loop(e, d);
    lti_denoise_destroy(&d);
    return s;
}

lt_status lt_parity_e2e(lt_parity *p)
{
    if (json_array_size(json_object_get(p->config, "models")) > 1)
        return lti_fail(p->ctx, LT_ERR_UNSUPPORTED, "pipelines of two experts are not there yet");
    e2e e = {.p = p};
    const lt_status s = run(&e);
    lti_dit_destroy(&e.dit);
    lt_dev_free(p->dev, e.image);
    free(e.cond.rows);
    free(e.uncond.rows);
    return s;
}
