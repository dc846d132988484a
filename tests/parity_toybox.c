/* parity_toybox.c: golden kind `toybox`: a whole trajectory of a model folder, prompt to latent, against the training code in PyTorch
 * with the same weights, noise and steps. The file names the folder (`model`, relative to itself) instead of holding weights.
 */
#include "tests/parity.h"

#include "video/denoise.h"
#include "video/model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lt_status lt_parity_open_model(lt_parity *p, lt_model **m)
{
    const char *model = json_string_value(json_object_get(p->config, "model"));
    char path[4096];
    if (!model) return lti_fail(p->ctx, LT_ERR_FORMAT, "config names no model");
    snprintf(path, sizeof path, "%.*s%s", (int)(strlen(p->path) - strlen(p->file)), p->path, model);
    return lt_model_open(m, p->dev, &(lt_model_options){.path = path, .dtype = p->dtype});
}

static lt_status compare_ids(lt_parity *p, lt_model *m, const char *text, const char *name)
{
    int32_t *ids, n;
    float *f;
    LT_TRY(lt_model_tokenize(m, text, &ids, &n));
    f = calloc((size_t)n + 1, sizeof *f);
    for (int32_t i = 0; f && i < n; i++)
        f[i] = (float)ids[i];
    if (f) lt_parity_exact(p, f, n, "ids.%s", name);
    free(ids);
    free(f);
    return f ? LT_OK : LT_ERR_MEM;
}

static lt_status trajectory(lt_parity *p, lt_model *m, const lti_text_rows *text)
{
    const lt_parity_array *noise;
    LT_TRY(lt_parity_get(p, &noise, "in.noise"));
    if (noise->ndim != 4)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "in.noise has %d dimensions, not 4", noise->ndim);
    lt_scheduler_options schedule = lt_scheduler_options_default();
    schedule.solver = LT_SOLVER_EULER;
    schedule.steps = (int32_t)lt_parity_int(p->config, "steps");
    schedule.shift = lt_parity_number(p->config, "shift");
    lti_denoise *d;
    LT_TRY(lti_denoise_create(
        &d, &(lti_denoise_options){.dit = m->dit,
                                   .frames = (int32_t)noise->dim[1],
                                   .h = (int32_t)noise->dim[2],
                                   .w = (int32_t)noise->dim[3],
                                   .schedule = &schedule,
                                   .guidance = lt_parity_number(p->config, "guidance"),
                                   .cond = text->of[0],
                                   .cond_rows = text->n[0],
                                   .uncond = text->of[1],
                                   .uncond_rows = text->n[1],
                                   .batch = true}));
    const int64_t n = lti_denoise_numbers(d);
    lt_status s =
        n == noise->n
            ? lt_dev_upload(p->dev, lti_denoise_latent(d), noise->data, (size_t)n * sizeof(float))
            : lti_fail(p->ctx, LT_ERR_SHAPE, "in.noise has %lld numbers, not %lld",
                       (long long)noise->n, (long long)n);
    for (int32_t i = 0; s >= 0 && i < lti_denoise_steps(d); i++) {
        if (i) s = lt_parity_compare_device(p, lti_denoise_latent(d), n, "step%d.x", i);
        if (s >= 0) s = lti_denoise_step(d, i);
    }
    if (s >= 0) s = lt_parity_compare_device(p, lti_denoise_latent(d), n, "latent");
    lti_denoise_destroy(&d);
    return s;
}

static lt_status run(lt_parity *p, lt_model *m)
{
    const char *prompt = json_string_value(json_object_get(p->config, "prompt"));
    if (!prompt) return lti_fail(p->ctx, LT_ERR_FORMAT, "config has no prompt");
    const char *const texts[] = {prompt, ""};
    const char *const names[] = {"cond", "uncond"};
    lti_text_rows text;
    LT_TRY(lti_model_encode(m, &text, texts, 2, NULL, NULL));
    lt_status s = LT_OK;
    for (int i = 0; s >= 0 && i < 2; i++) {
        s = compare_ids(p, m, texts[i], names[i]);
        lt_parity_compare(p, text.of[i], (int64_t)text.n[i] * m->config.info.text_dim, "context.%s",
                          names[i]);
    }
    if (s >= 0) s = trajectory(p, m, &text);
    lti_text_rows_free(&text);
    return s;
}

lt_status lt_parity_toybox(lt_parity *p)
{
    lt_model *m;
    LT_TRY(lt_parity_open_model(p, &m));
    const lt_status s = run(p, m);
    lt_model_close(&m);
    return s;
}
