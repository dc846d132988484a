/* drift_tiles.c: two pictures as tiles of CIELAB: what is common to how they differ. Medians, so that what covers less than half of a
 * picture does not count. */
#include "video/drift_tiles.h"

#include <math.h>
#include <stdlib.h>

const double lti_tiles_agreement = 0.7;

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double lti_tiles_median(float *v, int32_t n)
{
    if (!n) return 0;
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? (double)v[n / 2] : 0.5 * (double)(v[n / 2 - 1] + v[n / 2]);
}

void lti_tiles_add(lti_tiles sum, lti_tiles tile, float weight)
{
    for (int t = 0; t < LTI_TILES; t++)
        for (int c = 0; c < 3; c++)
            sum[t][c] += weight * tile[t][c];
}

/* Drift is slow and what is drawn is not: a mean over a few groups shows it sooner. */
void lti_tiles_blend(lti_tiles slow, lti_tiles now, float part)
{
    for (int t = 0; t < LTI_TILES; t++)
        for (int c = 0; c < 3; c++)
            slow[t][c] += part * (now[t][c] - slow[t][c]);
}

static bool counts(const bool *same, int t)
{
    return !same || same[t];
}

static double apart(const float *a, const float *b, const double by[3])
{
    double squares = 0;
    for (int c = 0; c < 3; c++) {
        const double d = (double)(a[c] - b[c]) - by[c];
        squares += d * d;
    }
    return sqrt(squares);
}

/* What an object covers now or did then differs by its own colours, and says nothing of the light. Where all of a picture moves, the
 * typical tile differs much and none is left out. */
void lti_tiles_same(lti_tiles_mask same, lti_tiles a, lti_tiles b)
{
    const double least = 2, times = 4;
    for (int t = 0; t < LTI_TILES; t++)
        same[t] = true;
    for (int round = 0; round < 2; round++) {
        double by[3];
        float v[LTI_TILES];
        lti_tiles_medians(by, a, b, same);
        for (int t = 0; t < LTI_TILES; t++)
            v[t] = (float)apart(a[t], b[t], by);
        const double most = fmax(least, times * lti_tiles_median(v, LTI_TILES));
        for (int t = 0; t < LTI_TILES; t++)
            same[t] = apart(a[t], b[t], by) <= most;
    }
}

double lti_tiles_typical(lti_tiles a, lti_tiles b, const bool *same)
{
    static const double nothing[3];
    float v[LTI_TILES];
    int32_t n = 0;
    for (int t = 0; t < LTI_TILES; t++)
        if (counts(same, t)) v[n++] = (float)apart(a[t], b[t], nothing);
    return lti_tiles_median(v, n);
}

void lti_tiles_medians(double out[3], lti_tiles a, lti_tiles b, const bool *same)
{
    float v[LTI_TILES];
    for (int c = 0; c < 3; c++) {
        int32_t n = 0;
        for (int t = 0; t < LTI_TILES; t++)
            if (counts(same, t)) v[n++] = a[t][c] - b[t][c];
        out[c] = lti_tiles_median(v, n);
    }
}

double lti_tiles_together(lti_tiles a, lti_tiles b)
{
    double by[3];
    lti_tiles_medians(by, a, b, NULL);
    return sqrt(by[0] * by[0] + by[1] * by[1] + by[2] * by[2]);
}

double lti_tiles_agreeing(lti_tiles a, lti_tiles b, const double by[3], const bool *same)
{
    const double all = by[0] * by[0] + by[1] * by[1] + by[2] * by[2];
    int agree = 0, n = 0;
    for (int t = 0; t < LTI_TILES; t++) {
        double along = 0;
        if (!counts(same, t)) continue;
        for (int c = 0; c < 3; c++)
            along += by[c] * (double)(a[t][c] - b[t][c]);
        agree += along > 0.25 * all;
        n++;
    }
    return n ? (double)agree / n : 0;
}

static double light_of(double lightness)
{
    const double f = (lightness + 16) / 116;
    return lightness > 8 ? f * f * f : lightness / 903.3;
}

/* Median of the tiles' EV; dark ones say little. */
double lti_tiles_exposure(lti_tiles a, lti_tiles b, const bool *same)
{
    float v[LTI_TILES];
    int32_t n = 0;
    for (int t = 0; t < LTI_TILES; t++)
        if (b[t][0] > 5 && counts(same, t))
            v[n++] = (float)log2(fmax(light_of((double)a[t][0]), 1e-4) / light_of((double)b[t][0]));
    return n >= LTI_TILES / 4 ? lti_tiles_median(v, n) : 0;
}

/* The median, where seven of ten have gone that way; else 0: the picture is another one. Sorts v. */
static double common(float *v, int32_t n)
{
    if (n < LTI_TILES / 4) return 0;
    const double m = lti_tiles_median(v, n);
    int32_t along = 0;
    for (int32_t i = 0; i < n; i++)
        along += (double)v[i] * m > 0.25 * m * m;
    return along >= lti_tiles_agreement * n ? m : 0;
}

static double mean_lightness(lti_tiles b)
{
    double mean = 0;
    for (int t = 0; t < LTI_TILES; t++)
        mean += (double)b[t][0] / LTI_TILES;
    return mean;
}

/* How much the tiles' lightness has spread about its mean: ln of the median ratio. */
double lti_tiles_contrast(lti_tiles a, lti_tiles b, double shift, const bool *same)
{
    float v[LTI_TILES];
    const double mean = mean_lightness(b);
    int32_t n = 0;
    for (int t = 0; t < LTI_TILES; t++) {
        const double from = (double)b[t][0] - mean;
        if (fabs(from) > 6 && counts(same, t))
            v[n++] = (float)(((double)(a[t][0] - b[t][0]) - shift) / from);
    }
    return log(fmax(1 + common(v, n), 0.1));
}

/* How much the tiles' chroma has grown along its own hue: ln of the common ratio. */
double lti_tiles_saturation(lti_tiles a, lti_tiles b, const bool *same)
{
    float v[LTI_TILES];
    int32_t n = 0;
    for (int t = 0; t < LTI_TILES; t++) {
        const float squares = b[t][1] * b[t][1] + b[t][2] * b[t][2];
        if (squares > 36 && counts(same, t))
            v[n++] = ((a[t][1] - b[t][1]) * b[t][1] + (a[t][2] - b[t][2]) * b[t][2]) / squares;
    }
    return log(fmax(1 + common(v, n), 0.1));
}

/* The reference with the differences in `v` put into it: colour as a cast, or as saturation. */
static void predict(lti_tiles out, lti_tiles ref, const lt_drift_vector *v, const double by[3],
                    bool saturation)
{
    const double mean = mean_lightness(ref), spread = exp(v->contrast) - 1;
    const float more = (float)exp(v->saturation);
    for (int t = 0; t < LTI_TILES; t++) {
        const float *r = ref[t];
        out[t][0] = r[0] + (float)(by[0] + spread * ((double)r[0] - mean));
        for (int c = 1; c < 3; c++)
            out[t][c] = saturation ? more * r[c] : r[c] + (float)by[c];
    }
}

/* Drift is the same everywhere: what it does not explain of the typical tile is less than what it does. Otherwise the picture has become
 * another one, as by a camera that moves slowly. */
bool lti_tiles_explained(lti_tiles now, lti_tiles ref, const lt_drift_vector *v, const double by[3],
                         const bool *same)
{
    for (int saturation = 0; saturation < 2; saturation++) {
        lti_tiles want;
        predict(want, ref, v, by, saturation);
        if (lti_tiles_typical(now, want, same) < 0.8 * lti_tiles_typical(ref, want, same))
            return true;
    }
    return false;
}
