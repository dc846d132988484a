/* grid.c: sigma and timestep tables. Every grid is written in the type and the order of operations of the code that
 * trained or published it, because truncation to whole timesteps makes the last bit visible: 5 steps of DPM++ without
 * shift are fed 399, where exact arithmetic gives 400.
 * Sources: Wan-Video/Wan2.1 wan/utils/fm_solvers*.py, guandeh17/Self-Forcing utils/scheduler.py, huggingface/diffusers
 * schedulers, restated in spec (Wan 5.2, 5.5). */
#include "scheduler/internal.h"

#include <math.h>

static double shifted(double u, double shift)
{
    return shift * u / (1 + (shift - 1) * u);
}

/* As numpy does: the step is rounded once, then start + i * step. */
static double linspace(double start, double stop, int32_t points, int32_t i)
{
    if (points == 1) return start;
    if (i == points - 1) return stop;
    return start + (double)i * ((stop - start) / (points - 1));
}

/* Whole timesteps are cut, not rounded. */
static void fill_cut(double first, double last, int32_t steps, double shift, double eps,
                     float *sigma, double *t)
{
    for (int32_t i = 0; i < steps; i++) {
        double s = shifted(linspace(first, last, steps + 1, i), shift);
        if (i == 0 && fabs(s - 1) < eps) s -= eps; /* ln((1 - s) / s) must stay finite */
        sigma[i] = (float)s;
        t[i] = trunc(s * 1000);
    }
}

static void fill_diffusers_euler(int32_t steps, double shift, float *sigma, double *t)
{
    const float lo = 0.001f, f = (float)shift;
    const double last =
        (double)(f * lo / (1 + (f - 1) * lo)); /* the class keeps its range in f32 */
    for (int32_t i = 0; i < steps; i++) {
        const double u = linspace(1000, last * 1000, steps, i) / 1000;
        sigma[i] = (float)shifted(u, shift);
        t[i] = (double)(sigma[i] * 1000.0f);
    }
}

/* torch's linspace(1, 0, points) in f32: counted from the nearer end. */
static float linspace_down_f32(int32_t points, int32_t i)
{
    const float step = -1.0f / (float)(points - 1);
    return i < points / 2 ? 1 + step * (float)i : -step * (float)(points - 1 - i);
}

static float euler_sigma(int32_t steps, int32_t i, double shift)
{
    const float u = linspace_down_f32(steps + 1, i), f = (float)shift;
    const float sigma = f * u / (1 + (float)(shift - 1) * u);
    return sigma < 1 ? sigma : 1; /* small shifts are rounded to more, which no model takes */
}

void lti_grid_fill(lt_sigma_grid grid, int32_t steps, double shift, float *sigma, double *t)
{
    sigma[steps] = 0;
    switch (grid) {
    case LT_GRID_AUTO:
    case LT_GRID_WAN_UNIPC:
        fill_cut((double)0.999f, 0, steps, shift, 0, sigma, t);
        break;
    case LT_GRID_WAN_DPMPP:
        fill_cut(1, 0, steps, shift, 0, sigma, t);
        break;
    case LT_GRID_DIFFUSERS_UNIPC:
        fill_cut(1, 0.001, steps, shift, 1e-6, sigma, t);
        break;
    case LT_GRID_DIFFUSERS_EULER:
        fill_diffusers_euler(steps, shift, sigma, t);
        break;
    case LT_GRID_EULER:
        for (int32_t i = 0; i < steps; i++) {
            sigma[i] = euler_sigma(steps, i, shift);
            t[i] = (double)(sigma[i] * 1000.0f);
        }
        break;
    }
}

enum { TABLE = 1000 };

void lti_list_fill(const float *list, int32_t len, double shift, bool warp, float *sigma, double *t)
{
    for (int32_t i = 0; i < len; i++) {
        float want = list[i];
        if (warp) {
            const int32_t at = TABLE - (int32_t)lrintf(want);
            want = at < TABLE ? euler_sigma(TABLE, at, shift) * 1000.0f : 0;
        }
        /* the model is fed `want`, but sigma is that of the nearest entry of the table */
        float best = INFINITY;
        for (int32_t k = 0; k < TABLE; k++) {
            const float s = euler_sigma(TABLE, k, shift), d = fabsf(s * 1000.0f - want);
            if (d >= best) continue;
            best = d;
            sigma[i] = s;
        }
        t[i] = (double)want;
    }
    sigma[len] = 0;
}
