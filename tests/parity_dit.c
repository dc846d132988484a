/* parity_dit.c: golden kind `dit`: whole passes of the transformer, and what they leave on the way in `debug` runs. */
#include "tests/parity.h"

#include <stdlib.h>
#include <string.h>

typedef struct dit_case {
    lt_parity *p;
    lti_dit *dit;
    const char *run;
    const int32_t *index; /* of a schedule's timesteps, by token: [tokens] */
    int32_t text_len;
} dit_case;

/* ---- probes ---- */

/* Host f32 copy, packed. */
static lt_status fetch(float **out, lt_parity *p, const lt_mat *m, int64_t rows, int64_t cols)
{
    const size_t n = (size_t)(rows * cols) * sizeof(float);
    float *dev = NULL, *host = malloc(n);
    lt_status s = host ? lt_dev_alloc(p->dev, (void **)&dev, n, LT_TAG_TEST) : LT_ERR_MEM;
    if (s >= 0)
        s = lt_convert(p->dev, &(lt_convert_args){
                                   .out = {dev, LT_F32, 0}, .x = *m, .rows = rows, .cols = cols});
    if (s >= 0) s = lt_dev_download(p->dev, host, dev, n);
    lt_dev_free(p->dev, dev);
    if (s < 0) {
        free(host);
        host = NULL;
    }
    *out = host;
    return s;
}

/* The files repeat rows that are computed once: a timestep's embedding for every token (Wan2.2), the padding row of the
 * text. Rows of `got` are picked by index until they number as in the file. */
static lt_status compare_repeated(dit_case *c, const char *name, const float *got, int64_t rows,
                                  int64_t cols)
{
    const lt_parity_array *want = lt_parity_find(c->p, "out.%s.%s", c->run, name);
    if (!want) return LT_OK;
    const int64_t n = want->n / cols;
    float *all = malloc((size_t)(n * cols) * sizeof *all);
    if (!all) return LT_ERR_MEM;
    const bool text = !strcmp(name, "context_emb");
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = text ? (i < rows ? i : rows - 1) : c->index[i];
        memcpy(all + i * cols, got + from * cols, (size_t)cols * sizeof *all);
    }
    lt_parity_compare(c->p, all, n * cols, "%s.%s", c->run, name);
    free(all);
    return LT_OK;
}

static lt_status probe(void *user, const char *name, int32_t block, const lt_mat *m, int64_t rows,
                       int64_t cols)
{
    dit_case *c = user;
    float *got;
    LT_TRY(fetch(&got, c->p, m, rows, cols));
    lt_status s = LT_OK;
    if (block >= 0)
        lt_parity_compare(c->p, got, rows * cols, "%s.block%d.%s", c->run, block, name);
    else if (!strncmp(name, "time_", 5) || !strcmp(name, "context_emb"))
        s = compare_repeated(c, name, got, rows, cols);
    else
        lt_parity_compare(c->p, got, rows * cols, "%s.%s", c->run, name);
    free(got);
    return s;
}

/* ---- a run ---- */

/* Distinct timesteps of t [n], and the number of each token's; one value stands for all. */
static int32_t distinct_times(double *times, int32_t *index, const lt_parity_array *t,
                              int64_t tokens)
{
    int32_t n = 0;
    for (int64_t i = 0; i < tokens; i++) {
        const double v = (double)t->data[t->n == 1 ? 0 : i];
        int32_t k = 0;
        while (k < n && times[k] != v)
            k++;
        if (k == n) times[n++] = v;
        index[i] = k;
    }
    return n;
}

typedef struct run_inputs {
    const lt_parity_array *x, *t, *context;
    double *times;
    int32_t *index, ntimes;
    int64_t tokens;
} run_inputs;

static lt_status forward(dit_case *c, const run_inputs *in, const lti_dit_run_options *o)
{
    lt_parity *p = c->p;
    const lti_dit_config *config = lti_dit_get_config(c->dit);
    const int64_t n = in->x->n / config->in_channels * config->out_channels;
    lti_dit_run *run = NULL;
    lti_prompt *prompt = NULL;
    float *x = NULL, *v = NULL;
    lt_status s = lti_prompt_create(&prompt, c->dit, in->context->data,
                                    (int32_t)in->context->dim[0], in->tokens, o->probe);
    if (s >= 0) s = lti_dit_run_create(&run, c->dit, o);
    if (s >= 0) s = lt_dev_alloc(p->dev, (void **)&x, (size_t)in->x->n * 4, LT_TAG_TEST);
    if (s >= 0) s = lt_dev_alloc(p->dev, (void **)&v, (size_t)n * 4, LT_TAG_TEST);
    if (s >= 0) s = lt_dev_upload(p->dev, x, in->x->data, (size_t)in->x->n * 4);
    if (s >= 0)
        s = lti_dit_forward(run, &(lti_dit_args){.batch = 1,
                                                 .x = {x},
                                                 .v = {v},
                                                 .prompt = {prompt},
                                                 .token_time = in->ntimes > 1 ? in->index : NULL});
    if (s >= 0) s = lt_parity_compare_device(p, v, n, "%s.v", c->run);
    lt_dev_free(p->dev, x);
    lt_dev_free(p->dev, v);
    lti_dit_run_destroy(&run);
    lti_prompt_destroy(&prompt);
    return s;
}

static lt_status run_case(dit_case *c)
{
    lt_parity *p = c->p;
    const int32_t patch = lti_dit_get_config(c->dit)->patch;
    run_inputs in = {0};
    LT_TRY(lt_parity_get(p, &in.x, "in.%s.x", c->run));
    LT_TRY(lt_parity_get(p, &in.t, "in.%s.t", c->run));
    LT_TRY(lt_parity_get(p, &in.context, "in.%s.context", c->run));
    if (in.x->ndim != 4)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "in.%s.x has %d dimensions", c->run, in.x->ndim);
    const int32_t f = (int32_t)in.x->dim[1], h = (int32_t)in.x->dim[2], w = (int32_t)in.x->dim[3];
    in.tokens = (int64_t)f * (h / patch) * (w / patch);
    if (in.t->n != 1 && in.t->n < in.tokens)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "in.%s.t has %lld values for %lld tokens", c->run,
                        (long long)in.t->n, (long long)in.tokens);
    in.times = malloc((size_t)in.tokens * sizeof *in.times);
    in.index = calloc((size_t)(in.tokens > in.t->n ? in.tokens : in.t->n), sizeof *in.index);
    if (!in.times || !in.index) {
        free(in.times);
        free(in.index);
        return LT_ERR_MEM;
    }
    in.ntimes = distinct_times(in.times, in.index, in.t, in.tokens);
    c->index = in.index;
    const lti_probe look = {probe, c};
    const lti_dit_run_options o = {.frames = f,
                                   .h = h,
                                   .w = w,
                                   .batch = 1,
                                   .times = in.times,
                                   .ntimes = in.ntimes,
                                   .probe = &look};
    const lt_status s = forward(c, &in, &o);
    free(in.times);
    free(in.index);
    return s;
}

static lt_status all_runs(lt_parity *p, lti_dit *dit)
{
    const json_t *runs = json_object_get(p->config, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(runs, i), "name"));
        dit_case c = {.p = p, .dit = dit, .run = name ? name : ""};
        LT_TRY(run_case(&c));
    }
    return LT_OK;
}

lt_status lt_parity_load_dit(lt_parity *p, lti_dit **dit, const char *prefix)
{
    lti_tensors *t;
    lti_config c = {0};
    *dit = NULL;
    LT_TRY(lt_parity_weights(p, &t, LTI_PART_DIT, prefix));
    char *json = json_dumps(json_object_get(p->config, "dit"), 0);
    lt_status s = json ? lti_dit_config_read(&c.dit, p->ctx, t, json, p->file) : LT_ERR_MEM;
    free(json);
    const lt_tensor_source source = lti_tensors_source(t);
    if (s >= 0) s = lti_config_check_part(p->ctx, &c, t);
    if (s >= 0) s = lti_dit_create(dit, p->dev, &c.dit, p->dtype, &source);
    lti_tensors_close(&t);
    return s;
}

lt_status lt_parity_dit(lt_parity *p)
{
    lti_dit *dit;
    LT_TRY(lt_parity_load_dit(p, &dit, "weight."));
    const lt_status s = all_runs(p, dit);
    lti_dit_destroy(&dit);
    return s;
}
