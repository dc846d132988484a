/* scheduler.c: the scheduler object: options, tables, state on the device, the order of steps. */
#include "scheduler/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 10000 };

static const char *const solver_names[] = {
#define X(name, text) text,
    LT_SOLVER_MAP(X)
#undef X
};

lt_scheduler_options lt_scheduler_options_default(void)
{
    return (lt_scheduler_options){
        .solver = LT_SOLVER_UNIPC, .steps = 50, .shift = 5.0, .warp = true};
}

const char *lt_solver_name(lt_solver s)
{
    return (size_t)s < LT_COUNT(solver_names) ? solver_names[s] : "?";
}

bool lt_solver_parse(const char *name, lt_solver *out)
{
    for (size_t i = 0; i < LT_COUNT(solver_names); i++) {
        if (strcmp(name, solver_names[i])) continue;
        *out = (lt_solver)i;
        return true;
    }
    return false;
}

static lt_status check_list(lt_ctx *ctx, const lt_scheduler_options *o)
{
    if (!o->list || o->list_len < 1 || o->list_len > MAX_STEPS)
        return lti_fail(ctx, LT_ERR_ARG,
                        "solver renoise: needs a step list of 1..%d values, has %d", MAX_STEPS,
                        o->list ? o->list_len : 0);
    for (int32_t i = 0; i < o->list_len; i++) {
        const double v = (double)o->list[i];
        if (!(v >= 0 && v <= 1000))
            return lti_fail(ctx, LT_ERR_ARG, "step list: value %d is %g, not in 0..1000", i, v);
        if (o->warp && v != floor(v))
            return lti_fail(ctx, LT_ERR_ARG,
                            "step list: value %d is %g; a warped list holds whole numbers", i, v);
        if (i && o->list[i] > o->list[i - 1])
            return lti_fail(ctx, LT_ERR_ARG,
                            "step list: value %d is %g, above the one before it (%g)", i, v,
                            (double)o->list[i - 1]);
    }
    return LT_OK;
}

static lt_status check_options(lt_ctx *ctx, const lt_scheduler_options *o)
{
    if ((size_t)o->solver >= LT_COUNT(solver_names))
        return lti_fail(ctx, LT_ERR_ARG, "solver %d: not one of euler, unipc, dpm++, renoise",
                        (int)o->solver);
    if (o->grid < LT_GRID_AUTO || o->grid > LT_GRID_EULER)
        return lti_fail(ctx, LT_ERR_ARG, "sigma grid %d: not known", (int)o->grid);
    if (!(o->shift > 0 && o->shift <= 1e6))
        return lti_fail(ctx, LT_ERR_ARG, "shift %g: must be above 0, at most 1e6", o->shift);
    if (o->solver == LT_SOLVER_RENOISE) return check_list(ctx, o);
    if (o->list)
        return lti_fail(ctx, LT_ERR_ARG, "solver %s: takes no step list",
                        lt_solver_name(o->solver));
    if (o->steps < 1 || o->steps > MAX_STEPS)
        return lti_fail(ctx, LT_ERR_ARG, "steps %d: not in 1..%d", o->steps, MAX_STEPS);
    return LT_OK;
}

static lt_sigma_grid grid_of(const lt_scheduler_options *o)
{
    if (o->grid != LT_GRID_AUTO) return o->grid;
    return o->solver == LT_SOLVER_UNIPC   ? LT_GRID_WAN_UNIPC
           : o->solver == LT_SOLVER_DPMPP ? LT_GRID_WAN_DPMPP
                                          : LT_GRID_EULER;
}

lt_status lt_scheduler_create(lt_scheduler **out, lt_ctx *ctx, const lt_scheduler_options *opt)
{
    *out = NULL;
    LT_TRY(check_options(ctx, opt));
    lt_scheduler *s = calloc(1, sizeof *s);
    if (!s) return lti_fail(ctx, LT_ERR_MEM, "no memory for a scheduler");
    const bool list = opt->solver == LT_SOLVER_RENOISE;
    s->ctx = ctx;
    s->solver = opt->solver;
    s->steps = list ? opt->list_len : opt->steps;
    s->sigma = calloc((size_t)s->steps + 1, sizeof *s->sigma);
    s->t = calloc((size_t)s->steps, sizeof *s->t);
    if (!s->sigma || !s->t) {
        const int32_t steps = s->steps;
        lt_scheduler_destroy(&s);
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a schedule of %d steps", steps);
    }
    if (list)
        lti_list_fill(opt->list, opt->list_len, opt->shift, opt->warp, s->sigma, s->t);
    else
        lti_grid_fill(grid_of(opt), s->steps, opt->shift, s->sigma, s->t);
    *out = s;
    return LT_OK;
}

static void unbind(lt_scheduler *s)
{
    if (!s->dev) return;
    for (int i = 0; i < LTI_HISTORY; i++)
        lt_dev_free(s->dev, s->x0[i]);
    lt_dev_free(s->dev, s->corrected);
    memset(s->x0, 0, sizeof s->x0);
    s->corrected = NULL;
    s->dev = NULL;
}

void lt_scheduler_destroy(lt_scheduler **scheduler)
{
    lt_scheduler *s = scheduler ? *scheduler : NULL;
    if (!s) return;
    unbind(s);
    free(s->sigma);
    free(s->t);
    free(s);
    *scheduler = NULL;
}

int32_t lt_scheduler_steps(const lt_scheduler *s)
{
    return s->steps;
}

float lt_scheduler_sigma(const lt_scheduler *s, int32_t i)
{
    return i >= 0 && i <= s->steps ? s->sigma[i] : 0;
}

double lt_scheduler_timestep(const lt_scheduler *s, int32_t i)
{
    return i >= 0 && i < s->steps ? s->t[i] : 0;
}

lt_status lt_scheduler_bind(lt_scheduler *s, lt_dev *dev, int64_t n)
{
    size_t bytes;
    if (n < 0 || !lti_mul_size(&bytes, (size_t)n, sizeof(float)))
        return lti_fail(s->ctx, LT_ERR_ARG, "scheduler: latent of %lld numbers", (long long)n);
    if (s->dev == dev && n <= s->room) {
        s->n = n;
        lt_scheduler_reset(s);
        return LT_OK;
    }
    unbind(s);
    s->dev = dev;
    s->n = s->room = n;
    lt_scheduler_reset(s);
    const bool multistep = s->solver == LT_SOLVER_UNIPC || s->solver == LT_SOLVER_DPMPP;
    lt_status st = LT_OK;
    for (int i = 0; multistep && i < LTI_HISTORY && st >= 0; i++)
        st = lt_dev_alloc(dev, (void **)&s->x0[i], bytes, LT_TAG_LATENT);
    if (st >= 0 && s->solver == LT_SOLVER_UNIPC)
        st = lt_dev_alloc(dev, (void **)&s->corrected, bytes, LT_TAG_LATENT);
    if (st < 0) unbind(s);
    return st;
}

void lt_scheduler_reset(lt_scheduler *s)
{
    s->next = 0;
    s->order = 0;
}

lt_status lt_scheduler_step(lt_scheduler *s, int32_t i, float *x, const float *v,
                            const float *noise)
{
    if (!s->dev)
        return lti_fail(s->ctx, LT_ERR_ARG, "scheduler: step %d before lt_scheduler_bind", i);
    if (i != s->next || i >= s->steps)
        return lti_fail(s->ctx, LT_ERR_ARG, "scheduler: step %d asked for, step %d of %d is next",
                        i, s->next, s->steps);
    const bool wants_noise = s->solver == LT_SOLVER_RENOISE && i < s->steps - 1;
    if (wants_noise != (noise != NULL))
        return lti_fail(s->ctx, LT_ERR_ARG, "scheduler: step %d of %s %s noise", i,
                        lt_solver_name(s->solver), wants_noise ? "needs" : "takes no");
    s->next++;
    switch (s->solver) {
    case LT_SOLVER_EULER:
        return lti_step_euler(s, i, x, v);
    case LT_SOLVER_UNIPC:
        return lti_step_unipc(s, i, x, v);
    case LT_SOLVER_DPMPP:
        return lti_step_dpmpp(s, i, x, v);
    case LT_SOLVER_RENOISE:
        return lti_step_renoise(s, i, x, v, noise);
    }
    return LT_ERR_ARG;
}
