/* bench_metrics.c: how alike two videos are. Frames are RGB [height, width, 3], 8 bits. */
#include "examples/bench.h"

#include <math.h>
#include <stdlib.h>

double lti_psnr(const uint8_t *a, const uint8_t *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : LTI_PSNR_SAME;
}

/* ---- SSIM: a Gaussian window of 11 x 11, deviation 1.5 ---- */

enum { REACH = 5 };

static void window(double w[2 * REACH + 1])
{
    double sum = 0;
    for (int i = -REACH; i <= REACH; i++)
        sum += w[i + REACH] = exp(-i * i / (2 * 1.5 * 1.5));
    for (int i = 0; i <= 2 * REACH; i++)
        w[i] /= sum;
}

/* Rows, then columns, inside the picture only: out [h - 10, w - 10]. */
static void blur(double *out, double *mid, const double *x, int h, int w, const double *g)
{
    const int ow = w - 2 * REACH, oh = h - 2 * REACH;
    for (int r = 0; r < h; r++)
        for (int c = 0; c < ow; c++) {
            double s = 0;
            for (int i = 0; i <= 2 * REACH; i++)
                s += g[i] * x[r * w + c + i];
            mid[r * ow + c] = s;
        }
    for (int r = 0; r < oh; r++)
        for (int c = 0; c < ow; c++) {
            double s = 0;
            for (int i = 0; i <= 2 * REACH; i++)
                s += g[i] * mid[(r + i) * ow + c];
            out[r * ow + c] = s;
        }
}

/* One channel of one frame. `work`: 8 planes of h * w. */
static double ssim_plane(const uint8_t *a, const uint8_t *b, int h, int w, double *work,
                         const double *g)
{
    const size_t n = (size_t)h * (size_t)w;
    double *x = work, *y = x + n, *mid = y + n, *m[5];
    const int out = (h - 2 * REACH) * (w - 2 * REACH);
    const double c1 = 6.5025, c2 = 58.5225; /* (0.01 * 255)^2, (0.03 * 255)^2 */
    double sum = 0;
    for (int k = 0; k < 5; k++) {
        m[k] = work + (3 + (size_t)k) * n;
        for (size_t i = 0; i < n; i++) {
            const double p = a[3 * i], q = b[3 * i];
            x[i] = k == 0 ? p : k == 1 ? q : k == 2 ? p * p : k == 3 ? q * q : p * q;
        }
        blur(m[k], mid, x, h, w, g);
    }
    for (int i = 0; i < out; i++) {
        const double p = m[0][i], q = m[1][i];
        const double vp = m[2][i] - p * p, vq = m[3][i] - q * q, cov = m[4][i] - p * q;
        sum += (2 * p * q + c1) * (2 * cov + c2) / ((p * p + q * q + c1) * (vp + vq + c2));
    }
    return sum / out;
}

bool lti_ssim(double *out, const uint8_t *a, const uint8_t *b, int frames, int h, int w)
{
    double g[2 * REACH + 1], sum = 0;
    const size_t n = (size_t)h * (size_t)w;
    if (h <= 2 * REACH || w <= 2 * REACH) return false;
    double *work = malloc(8 * n * sizeof *work);
    if (!work) return false;
    window(g);
    for (int f = 0; f < frames; f++)
        for (int c = 0; c < 3; c++)
            sum += ssim_plane(a + (size_t)f * n * 3 + c, b + (size_t)f * n * 3 + c, h, w, work, g);
    free(work);
    *out = sum / (3.0 * frames);
    return true;
}

/* ---- structure: edges and colours at four sizes ---- */

/* Luma and two colour differences of a frame, [3][h * w]. */
static void split(float *out, const uint8_t *rgb, size_t n)
{
    for (size_t i = 0; i < n; i++, rgb += 3) {
        const float r = rgb[0], g = rgb[1], b = rgb[2], y = 0.299f * r + 0.587f * g + 0.114f * b;
        out[i] = y;
        out[n + i] = r - y;
        out[2 * n + i] = b - y;
    }
}

/* Every four numbers of a plane become their mean; `to` may be `from`. */
static void halve(float *to, const float *from, int h, int w)
{
    for (int y = 0; y + 1 < h; y += 2)
        for (int x = 0; x + 1 < w; x += 2) {
            const float *p = from + y * w + x;
            *to++ = 0.25f * (p[0] + p[1] + p[w] + p[w + 1]);
        }
}

static float edge(const float *p, int w)
{
    const float gx = p[1 - w] + p[1] + p[1 + w] - p[-1 - w] - p[-1] - p[-1 + w],
                gy = p[w - 1] + p[w] + p[w + 1] - p[-w - 1] - p[-w] - p[-w + 1];
    return sqrtf(gx * gx + gy * gy) / 3;
}

static double structure_at(const float *a, const float *b, int h, int w)
{
    const int n = h * w;
    double edges = 0, colours = 0;
    for (int y = 1; y + 1 < h; y++)
        for (int x = 1; x + 1 < w; x++) {
            const float g = edge(a + y * w + x, w), k = edge(b + y * w + x, w);
            edges += 1 - (double)((2 * g * k + 170) / (g * g + k * k + 170));
        }
    for (int i = n; i < 3 * n; i++)
        colours += fabs((double)a[i] - (double)b[i]);
    return edges / ((h - 2) * (w - 2)) + 0.5 * colours / (2.0 * n * 255);
}

bool lti_structure(double *out, const uint8_t *a, const uint8_t *b, int frames, int h, int w)
{
    enum { SIZES = 4 };
    const size_t n = (size_t)h * (size_t)w;
    float *x = h < 24 || w < 24 ? NULL : malloc(6 * n * sizeof *x), *const y = x ? x + 3 * n : NULL;
    double sum = 0;
    if (!x) return false;
    for (int f = 0; f < frames; f++) {
        int fh = h, fw = w;
        split(x, a + (size_t)f * n * 3, n);
        split(y, b + (size_t)f * n * 3, n);
        for (int k = 0; k < SIZES; k++) {
            if (k)
                for (int c = 0; c < 3; c++) { /* planes move together as they shrink */
                    halve(x + c * (fh / 2) * (fw / 2), x + c * fh * fw, fh, fw);
                    halve(y + c * (fh / 2) * (fw / 2), y + c * fh * fw, fh, fw);
                }
            fh = k ? fh / 2 : fh;
            fw = k ? fw / 2 : fw;
            sum += structure_at(x, y, fh, fw) / SIZES;
        }
    }
    free(x);
    *out = sum / frames;
    return true;
}

double lti_flicker(const uint8_t *v, int frames, size_t frame_bytes)
{
    double sum = 0;
    for (int f = 1; f + 1 < frames; f++) {
        const uint8_t *x = v + (size_t)f * frame_bytes;
        for (size_t i = 0; i < frame_bytes; i++)
            sum += fabs((double)x[i] -
                        0.5 * ((double)x[i - frame_bytes] + (double)x[i + frame_bytes]));
    }
    return frames > 2 ? sum / ((double)(frames - 2) * (double)frame_bytes) : 0;
}
