/* bench_drift_backdrop.c: what stands behind whatever moves, of a few seconds of video, and how light and colour of two of these differ.
 * A mean over whole pictures would call it drift when an object leaves, grows or comes back: in a video of a blue square that moves
 * before a grey wall it is 6 Delta E and more, while the wall keeps its colour within 0.5. */
#include "examples/bench_drift.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = LTI_BACKDROP_SIDE, CELLS = LTI_BACKDROP_CELLS };

static void cell_light(float mean[3], const float linear[256], const uint8_t *rgb, int32_t w,
                       int32_t h, int cell)
{
    const int32_t row = cell / SIDE, col = cell % SIDE, top = row * h / SIDE, left = col * w / SIDE;
    const int32_t bottom = (row + 1) * h / SIDE, right = (col + 1) * w / SIDE;
    double sum[3] = {0};
    for (int32_t y = top; y < bottom; y++)
        for (int32_t x = left; x < right; x++)
            for (int c = 0; c < 3; c++)
                sum[c] += (double)linear[rgb[3 * ((int64_t)y * w + x) + c]];
    for (int c = 0; c < 3; c++)
        mean[c] = (float)(sum[c] / ((double)(bottom - top) * (right - left)));
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(float *v, int32_t n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? (double)v[n / 2] : 0.5 * (double)(v[n / 2 - 1] + v[n / 2]);
}

lt_status lti_backdrop_take(lti_backdrop *out, lt_ctx *ctx, const uint8_t *frames, int32_t count,
                            int32_t w, int32_t h)
{
    float linear[256];
    float *series = malloc(3 * (size_t)count * sizeof *series);
    if (!series) return lti_fail(ctx, LT_ERR_MEM, "no memory for the light of %d frames", count);
    lt_light_of_codes(linear);
    for (int cell = 0; cell < CELLS; cell++) {
        float middle[3];
        for (int32_t f = 0; f < count; f++) {
            float mean[3];
            cell_light(mean, linear, frames + (size_t)f * (size_t)w * (size_t)h * 3, w, h, cell);
            for (int c = 0; c < 3; c++)
                series[(size_t)c * (size_t)count + (size_t)f] = mean[c];
        }
        for (int c = 0; c < 3; c++)
            middle[c] = (float)median(series + (size_t)c * (size_t)count, count);
        out->light[cell] = 0.2126f * middle[0] + 0.7152f * middle[1] + 0.0722f * middle[2];
        lt_lab_of_light(out->lab[cell], middle);
    }
    free(series);
    return LT_OK;
}

void lti_backdrop_change(double *exposure, double *distance, const lti_backdrop *first,
                         const lti_backdrop *last)
{
    const float least = 1.0f / 512; /* of light: what is darker says little */
    float v[CELLS];
    int32_t n = 0;
    for (int i = 0; i < CELLS; i++)
        if (first->light[i] > least)
            v[n++] = log2f(fmaxf(last->light[i], least / 16) / first->light[i]);
    *exposure = n >= CELLS / 4 ? median(v, n) : 0;
    double squares = 0;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < CELLS; i++)
            v[i] = last->lab[i][c] - first->lab[i][c];
        const double d = median(v, CELLS);
        squares += d * d;
    }
    *distance = sqrt(squares);
}

/* From the darkest quarter to the lightest: an object covers less. */
static double spread(const lti_backdrop *b)
{
    float v[CELLS];
    for (int i = 0; i < CELLS; i++)
        v[i] = b->lab[i][0];
    qsort(v, CELLS, sizeof *v, ascending);
    return (double)(v[CELLS * 3 / 4] - v[CELLS / 4]);
}

double lti_backdrop_contrast(const lti_backdrop *first, const lti_backdrop *last)
{
    const double least = 8; /* of L: a plain wall has none to lose */
    const double a = spread(first), b = spread(last);
    return a < least ? 0 : log(fmax(b, 0.1) / a);
}

void lti_backdrop_mean(lti_backdrop *out, const lti_drift_window *window, int32_t n)
{
    *out = (lti_backdrop){0};
    for (int i = 0; i < CELLS; i++)
        for (int32_t k = 0; k < n; k++) {
            const lti_backdrop *b = &window[k].backdrop;
            out->light[i] += b->light[i] / (float)n;
            for (int c = 0; c < 3; c++)
                out->lab[i][c] += b->lab[i][c] / (float)n;
        }
}
