/* parity_sched.c: golden kinds `sched` (tables and whole trajectories of a solver on an analytic model) and `warp` (few-step
 * lists, x0 and re-noising). */
#include "tests/parity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Device buffers of one trajectory, and a host copy of the sample. */
typedef struct bench {
    lt_parity *p;
    lt_scheduler *s;
    int64_t n;
    float *x, *v, *noise; /* device */
    float *host, *traj, *vs;
} bench;

static void close_bench(bench *b)
{
    lt_scheduler_destroy(&b->s);
    lt_dev_free(b->p->dev, b->x);
    free(b->host);
    free(b->traj);
    free(b->vs);
    *b = (bench){0};
}

static lt_status open_bench(bench *b, lt_parity *p, const lt_scheduler_options *o, int64_t n)
{
    *b = (bench){.p = p, .n = n};
    LT_TRY(lt_scheduler_create(&b->s, p->ctx, o));
    const size_t bytes = (size_t)n * sizeof(float), steps = (size_t)lt_scheduler_steps(b->s);
    b->host = malloc(bytes);
    b->traj = malloc((steps + 1) * bytes);
    b->vs = malloc(steps * bytes);
    lt_status s = b->host && b->traj && b->vs ? LT_OK : LT_ERR_MEM;
    if (s >= 0) s = lt_scheduler_bind(b->s, p->dev, n);
    if (s >= 0) s = lt_dev_alloc(p->dev, (void **)&b->x, 3 * (bytes + 64), LT_TAG_TEST);
    if (s < 0) {
        close_bench(b);
        return s;
    }
    b->v = b->x + n;
    b->noise = b->v + n;
    return LT_OK;
}

static bool solver_of(const char *name, lt_solver *out)
{
    return name && lt_solver_parse(name, out);
}

/* As the files name shifts: 3.0, 12.5 */
static void shift_text(char *out, size_t size, double shift)
{
    const int n = snprintf(out, size, "%g", shift);
    if (!strchr(out, '.') && n > 0 && (size_t)n + 3 <= size) strcpy(out + n, ".0");
}

static void compare_tables(lt_parity *p, const lt_scheduler *s, double shift)
{
    const int32_t steps = lt_scheduler_steps(s);
    float *table = malloc(((size_t)steps + 1) * sizeof *table);
    if (!table) return;
    char text[40];
    shift_text(text, sizeof text, shift);
    for (int32_t i = 0; i <= steps; i++)
        table[i] = lt_scheduler_sigma(s, i);
    /* with or without the final zero, as the reference keeps it */
    const lt_parity_array *want = lt_parity_find(p, "out.n%d.shift%s.sigmas", steps, text);
    lt_parity_compare(p, table, want && want->n == steps ? steps : steps + 1, "n%d.shift%s.sigmas",
                      steps, text);
    bool whole = true;
    for (int32_t i = 0; i < steps; i++) {
        table[i] = (float)lt_scheduler_timestep(s, i);
        whole = whole && table[i] == floorf(table[i]);
    }
    if (whole)
        lt_parity_exact(p, table, steps, "n%d.shift%s.timesteps", steps, text);
    else
        lt_parity_compare(p, table, steps, "n%d.shift%s.timesteps", steps, text);
    free(table);
}

static lt_status tables(lt_parity *p, lt_solver solver)
{
    const json_t *steps = json_object_get(p->config, "steps"),
                 *shifts = json_object_get(p->config, "shifts");
    for (size_t i = 0; i < json_array_size(steps); i++) {
        for (size_t j = 0; j < json_array_size(shifts); j++) {
            lt_scheduler_options o = lt_scheduler_options_default();
            o.solver = solver;
            o.steps = (int32_t)json_number_value(json_array_get(steps, i));
            o.shift = json_number_value(json_array_get(shifts, j));
            lt_scheduler *s;
            LT_TRY(lt_scheduler_create(&s, p->ctx, &o));
            compare_tables(p, s, o.shift);
            lt_scheduler_destroy(&s);
        }
    }
    return LT_OK;
}

/* The model of the golden files. */
static float analytic(float x, double t)
{
    const double s = t / 1000, d = (double)x;
    return (float)(0.9 * d - 0.4 * cos(1.5 * d) + 0.25 * s * d * d / (1 + d * d) + 0.1 * s);
}

static lt_status trajectory(bench *b, const lt_parity_array *x0, const char *run)
{
    lt_parity *p = b->p;
    const size_t bytes = (size_t)b->n * sizeof(float);
    const int32_t steps = lt_scheduler_steps(b->s);
    memcpy(b->host, x0->data, bytes);
    memcpy(b->traj, x0->data, bytes);
    LT_TRY(lt_dev_upload(p->dev, b->x, b->host, bytes));
    for (int32_t i = 0; i < steps; i++) {
        float *v = b->vs + i * b->n;
        for (int64_t j = 0; j < b->n; j++)
            v[j] = analytic(b->host[j], lt_scheduler_timestep(b->s, i));
        LT_TRY(lt_dev_upload(p->dev, b->v, v, bytes));
        LT_TRY(lt_scheduler_step(b->s, i, b->x, b->v, NULL));
        LT_TRY(lt_dev_download(p->dev, b->host, b->x, bytes));
        memcpy(b->traj + (i + 1) * b->n, b->host, bytes);
    }
    lt_parity_compare(p, b->traj, (steps + 1) * b->n, "%s.traj", run);
    lt_parity_compare(p, b->vs, steps * b->n, "%s.v", run);
    lt_parity_compare(p, b->host, b->n, "%s.final", run);
    return LT_OK;
}

lt_status lt_parity_sched(lt_parity *p)
{
    lt_solver solver;
    const char *name = json_string_value(json_object_get(p->config, "scheduler"));
    if (!solver_of(name, &solver))
        return lti_fail(p->ctx, LT_ERR_UNSUPPORTED, "scheduler %s is not there", name ? name : "?");
    LT_TRY(tables(p, solver));
    const json_t *runs = json_object_get(p->config, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *id = json_string_value(json_object_get(run, "name"));
        lt_scheduler_options o = lt_scheduler_options_default();
        o.solver = solver;
        o.steps = (int32_t)lt_parity_int(run, "steps");
        o.shift = lt_parity_number(run, "shift");
        const lt_parity_array *x0;
        bench b;
        LT_TRY(lt_parity_get(p, &x0, "in.%s.x0", id ? id : ""));
        LT_TRY(open_bench(&b, p, &o, x0->n));
        const lt_status s = trajectory(&b, x0, id);
        close_bench(&b);
        LT_TRY(s);
    }
    return LT_OK;
}

/* ---- warp ---- */

enum { TABLE = 1000, MAX_LIST = 64 };

typedef struct warp_run {
    const char *name;
    float list[MAX_LIST];
    int32_t len;
    double shift;
    bool warp;
    const lt_parity_array *xt, *v, *noise;
} warp_run;

static lt_scheduler_options list_options(const warp_run *r, const float *list, int32_t len)
{
    lt_scheduler_options o = lt_scheduler_options_default();
    o.solver = LT_SOLVER_RENOISE;
    o.shift = r->shift;
    o.warp = r->warp;
    o.list = list;
    o.list_len = len;
    return o;
}

/* One entry taken twice: the first step re-noises to its own sigma; taken alone, it ends at x0. */
static lt_status one_step(lt_parity *p, const warp_run *r, int32_t i, bool renoise)
{
    const float list[2] = {r->list[i], r->list[i]};
    const lt_scheduler_options o = list_options(r, list, renoise ? 2 : 1);
    const size_t bytes = (size_t)r->xt->n * sizeof(float);
    bench b;
    LT_TRY(open_bench(&b, p, &o, r->xt->n));
    lt_status s = lt_dev_upload(p->dev, b.x, r->xt->data, bytes);
    if (s >= 0) s = lt_dev_upload(p->dev, b.v, r->v->data, bytes);
    if (s >= 0) s = lt_dev_upload(p->dev, b.noise, r->noise->data, bytes);
    if (s >= 0) s = lt_scheduler_step(b.s, 0, b.x, b.v, renoise ? b.noise : NULL);
    if (s >= 0)
        s = lt_parity_compare_device(p, b.x, b.n, "%s.step%d.%s", r->name, i,
                                     renoise ? "renoised" : "x0");
    close_bench(&b);
    return s;
}

static lt_status warp_case(lt_parity *p, const warp_run *r)
{
    const lt_scheduler_options o = list_options(r, r->list, r->len);
    lt_scheduler *s;
    LT_TRY(lt_scheduler_create(&s, p->ctx, &o));
    float t[MAX_LIST], sigma[MAX_LIST];
    for (int32_t i = 0; i < r->len; i++) {
        t[i] = (float)lt_scheduler_timestep(s, i);
        sigma[i] = lt_scheduler_sigma(s, i);
    }
    lt_scheduler_destroy(&s);
    lt_parity_compare(p, t, r->len, "%s.list", r->name);
    lt_parity_compare(p, sigma, r->len, "%s.sigma", r->name);
    for (int32_t i = 0; i < r->len; i++) {
        LT_TRY(one_step(p, r, i, false));
        LT_TRY(one_step(p, r, i, true));
    }
    return LT_OK;
}

static lt_status read_run(warp_run *r, lt_parity *p, const json_t *run)
{
    const json_t *list = json_object_get(run, "steps");
    const char *name = json_string_value(json_object_get(run, "name"));
    *r = (warp_run){.name = name ? name : "",
                    .len = (int32_t)json_array_size(list),
                    .shift = lt_parity_number(run, "shift"),
                    .warp = json_is_true(json_object_get(run, "warp"))};
    if (r->len > MAX_LIST) return lti_fail(p->ctx, LT_ERR_FORMAT, "list of %d steps", r->len);
    for (int32_t i = 0; i < r->len; i++)
        r->list[i] = (float)json_number_value(json_array_get(list, (size_t)i));
    LT_TRY(lt_parity_get(p, &r->xt, "in.%s.xt", r->name));
    LT_TRY(lt_parity_get(p, &r->v, "in.%s.v", r->name));
    return lt_parity_get(p, &r->noise, "in.%s.noise", r->name);
}

/* The table that lists are looked up in is the Euler grid of 1000 steps. */
static lt_status big_table(lt_parity *p)
{
    lt_scheduler_options o = lt_scheduler_options_default();
    o.solver = LT_SOLVER_EULER;
    o.steps = TABLE;
    o.shift = lt_parity_number(p->config, "table_shift");
    lt_scheduler *s;
    LT_TRY(lt_scheduler_create(&s, p->ctx, &o));
    float sigma[TABLE], t[TABLE];
    for (int32_t i = 0; i < TABLE; i++) {
        sigma[i] = lt_scheduler_sigma(s, i);
        t[i] = (float)lt_scheduler_timestep(s, i);
    }
    lt_scheduler_destroy(&s);
    lt_parity_compare(p, sigma, TABLE, "table.sigmas");
    lt_parity_compare(p, t, TABLE, "table.timesteps");
    return LT_OK;
}

lt_status lt_parity_warp(lt_parity *p)
{
    const json_t *runs = json_object_get(p->config, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        warp_run r;
        LT_TRY(read_run(&r, p, json_array_get(runs, i)));
        LT_TRY(warp_case(p, &r));
    }
    return big_table(p);
}
