/* measure.c: what a picture is like, in numbers: light, colour, sharpness, motion. One picture at a time, in constant memory; the
 * formulas are in video.h and spec 14.3. */
#include "video/drift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CELLS = 4096, /* colour is taken of about so many cells of a picture */
    TILE = 128    /* sharpness of tiles of at most so many pixels a side */
};

struct lt_measure {
    lt_dev *dev;
    lt_ctx *ctx;
    int32_t w, h;
    int32_t cell, cols, rows; /* cells: pixels a side, and how many */
    int32_t tile, across, down;
    int32_t still; /* frames in a row that were like the one before */
    bool begun;
    float *pictures;      /* what the next two are halves of; they change places */
    float *luma, *before; /* [h, w], 0..1 */
    float *lab;           /* [rows, cols, 3] of the last picture's cells */
    float *tiles;         /* host, [tiles, tile, tile] */
    float *spectrum;      /* host, [tiles, tile, tile, 2] */
    float *dev_tiles, *dev_spectrum;
    float linear[256]; /* light of a coded value */
    float hann[TILE];
};

/* ---- making and unmaking ---- */

static lt_status reserve(lt_measure *m)
{
    const size_t picture = (size_t)m->w * (size_t)m->h;
    const size_t tiles =
        (size_t)m->across * (size_t)m->down * (size_t)m->tile * (size_t)m->tile * sizeof(float);
    m->pictures = malloc(2 * picture * sizeof(float));
    m->tiles = malloc(3 * tiles);
    m->lab = malloc((size_t)m->rows * (size_t)m->cols * 3 * sizeof(float));
    if (!m->pictures || !m->tiles || !m->lab)
        return lti_fail(m->ctx, LT_ERR_MEM, "no memory to measure pictures of %dx%d", m->w, m->h);
    m->luma = m->pictures;
    m->before = m->luma + picture;
    m->spectrum = m->tiles + tiles / sizeof(float);
    LT_TRY(lt_dev_alloc(m->dev, (void **)&m->dev_tiles, 3 * tiles, LT_TAG_VAE_WORK));
    m->dev_spectrum = m->dev_tiles + tiles / sizeof(float);
    return LT_OK;
}

lt_status lt_measure_create(lt_measure **out, lt_dev *dev, int32_t width, int32_t height)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (width < 1 || height < 1 || width > 16384 || height > 16384)
        return lti_fail(ctx, LT_ERR_ARG, "pictures of %dx%d cannot be measured", width, height);
    lt_measure *m = calloc(1, sizeof *m);
    if (!m) return lti_fail(ctx, LT_ERR_MEM, "no memory to measure pictures");
    const int32_t least = width < height ? width : height;
    m->dev = dev;
    m->ctx = ctx;
    m->w = width;
    m->h = height;
    m->cell = (int32_t)ceil(sqrt((double)width * height / CELLS));
    if (m->cell > least) m->cell = least;
    m->cols = width / m->cell;
    m->rows = height / m->cell;
    for (m->tile = 1; m->tile < TILE && 2 * m->tile <= least; m->tile *= 2) {
    }
    m->across = width >= 2 * m->tile ? 2 : 1;
    m->down = height >= 2 * m->tile ? 2 : 1;
    lt_light_of_codes(m->linear);
    for (int32_t i = 0; i < m->tile; i++)
        m->hann[i] = (float)(0.5 - 0.5 * cos(2 * M_PI * (i + 0.5) / m->tile));
    const lt_status s = reserve(m);
    if (s < 0)
        lt_measure_destroy(&m);
    else
        *out = m;
    return s;
}

void lt_measure_destroy(lt_measure **measure)
{
    lt_measure *m = measure ? *measure : NULL;
    if (!m) return;
    lt_dev_free(m->dev, m->dev_tiles);
    free(m->tiles);
    free(m->lab);
    free(m->pictures);
    free(m);
    *measure = NULL;
}

/* ---- light ---- */

void lt_light_of_codes(float light[256])
{
    for (int i = 0; i < 256; i++) {
        const double v = i / 255.0;
        light[i] = (float)(v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4));
    }
}

/* Luma of every pixel, and what its histogram tells. */
static void measure_luma(lt_measure *m, lt_picture *p, const uint8_t *rgb)
{
    const int64_t n = (int64_t)m->w * m->h;
    int64_t histogram[256] = {0}, low = 0, high = 0, above = 0, below = 0;
    double sum = 0, squares = 0, light = 0;
    for (int64_t i = 0; i < n; i++, rgb += 3) {
        const float y = (0.2126f * rgb[0] + 0.7152f * rgb[1] + 0.0722f * rgb[2]) * (1 / 255.0f);
        m->luma[i] = y;
        sum += (double)y;
        squares += (double)y * (double)y;
        light += (double)(0.2126f * m->linear[rgb[0]] + 0.7152f * m->linear[rgb[1]] +
                          0.0722f * m->linear[rgb[2]]);
        above += y > 0.98f;
        below += y < 0.02f;
        histogram[(int)(y * 255 + 0.5f)]++;
    }
    int least = 0, most = 255;
    while (least < 255 && (low += histogram[least]) * 20 <= n)
        least++;
    while (most > 0 && (high += histogram[most]) * 20 <= n)
        most--;
    const double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    p->luma = mean;
    p->exposure = log2(fmax(light / (double)n, 1.0 / 4096));
    p->contrast = sqrt(fmax(variance, 0));
    p->range = (most > least ? most - least : 0) / 255.0;
    p->clipped = (double)above / (double)n;
    p->crushed = (double)below / (double)n;
}

/* ---- colour ---- */

static float lab_curve(float t)
{
    return t > 0.008856452f ? cbrtf(t) : t * 7.787037f + 0.13793103f;
}

void lt_lab_of_light(float lab[3], const float rgb[3])
{
    const float x = (0.4124564f * rgb[0] + 0.3575761f * rgb[1] + 0.1804375f * rgb[2]) / 0.950489f;
    const float y = 0.2126729f * rgb[0] + 0.7151522f * rgb[1] + 0.0721750f * rgb[2];
    const float z = (0.0193339f * rgb[0] + 0.1191920f * rgb[1] + 0.9503041f * rgb[2]) / 1.088840f;
    const float fx = lab_curve(x), fy = lab_curve(y), fz = lab_curve(z);
    lab[0] = 116 * fy - 16;
    lab[1] = 500 * (fx - fy);
    lab[2] = 200 * (fy - fz);
}

static void cell_light(const lt_measure *m, float mean[3], const uint8_t *rgb, int32_t row,
                       int32_t col)
{
    float sum[3] = {0};
    for (int32_t y = 0; y < m->cell; y++) {
        const uint8_t *at =
            rgb + 3 * ((int64_t)(row * m->cell + y) * m->w + (int64_t)col * m->cell);
        for (int32_t x = 0; x < m->cell; x++, at += 3)
            for (int c = 0; c < 3; c++)
                sum[c] += m->linear[at[c]];
    }
    for (int c = 0; c < 3; c++)
        mean[c] = sum[c] / (float)(m->cell * m->cell);
}

static void measure_colour(lt_measure *m, lt_picture *p, const uint8_t *rgb)
{
    double sum[3] = {0}, chroma = 0;
    for (int32_t row = 0; row < m->rows; row++)
        for (int32_t col = 0; col < m->cols; col++) {
            float light[3], *lab = m->lab + 3 * ((int64_t)row * m->cols + col);
            cell_light(m, light, rgb, row, col);
            lt_lab_of_light(lab, light);
            for (int c = 0; c < 3; c++)
                sum[c] += (double)lab[c];
            chroma += sqrt((double)(lab[1] * lab[1] + lab[2] * lab[2]));
        }
    const double n = (double)m->rows * m->cols;
    p->lightness = sum[0] / n;
    p->a = sum[1] / n;
    p->b = sum[2] / n;
    p->saturation = chroma / n;
}

void lti_measure_tiles(const lt_measure *m, lti_tiles tile)
{
    for (int t = 0; t < LTI_TILES; t++) {
        int32_t top, bottom, left, right;
        float sum[3] = {0};
        lti_tile_part(m->rows, t / LTI_TILE_SIDE, &top, &bottom);
        lti_tile_part(m->cols, t % LTI_TILE_SIDE, &left, &right);
        for (int32_t y = top; y < bottom; y++)
            for (int32_t x = left; x < right; x++)
                for (int c = 0; c < 3; c++)
                    sum[c] += m->lab[3 * ((int64_t)y * m->cols + x) + c];
        for (int c = 0; c < 3; c++)
            tile[t][c] = sum[c] / (float)((bottom - top) * (right - left));
    }
}

/* ---- sharpness ---- */

static void take_tile(const lt_measure *m, float *tile, int32_t top, int32_t left)
{
    const int32_t n = m->tile;
    double sum = 0;
    for (int32_t y = 0; y < n; y++)
        for (int32_t x = 0; x < n; x++)
            sum += (double)m->luma[(int64_t)(top + y) * m->w + left + x];
    const float mean = (float)(sum / ((double)n * n));
    for (int32_t y = 0; y < n; y++)
        for (int32_t x = 0; x < n; x++)
            tile[y * n + x] =
                (m->luma[(int64_t)(top + y) * m->w + left + x] - mean) * m->hann[y] * m->hann[x];
}

/* Power above 1/32 and above 1/8 of a cycle a pixel. */
static void bands(const lt_measure *m, const float *spectrum, double *all, double *high)
{
    const int32_t n = m->tile;
    for (int32_t v = 0; v < n; v++)
        for (int32_t u = 0; u < n; u++) {
            const double fy = (double)(v > n / 2 ? v - n : v) / n,
                         fx = (double)(u > n / 2 ? u - n : u) / n, r = fx * fx + fy * fy;
            const double re = (double)spectrum[2 * (v * n + u)],
                         im = (double)spectrum[2 * (v * n + u) + 1], power = re * re + im * im;
            if (r > 1.0 / 1024) *all += power;
            if (r > 1.0 / 64) *high += power;
        }
}

static lt_status measure_sharpness(lt_measure *m, lt_picture *p)
{
    const int32_t n = m->tile, tiles = m->across * m->down;
    const size_t bytes = (size_t)tiles * (size_t)n * (size_t)n * sizeof(float);
    for (int32_t i = 0; i < tiles; i++) /* in the middle of each half */
        take_tile(
            m, m->tiles + (size_t)i * (size_t)n * (size_t)n,
            (int32_t)((int64_t)(m->h / m->down - n) / 2 + i / m->across * (m->h / m->down)),
            (int32_t)((int64_t)(m->w / m->across - n) / 2 + i % m->across * (m->w / m->across)));
    LT_TRY(lt_dev_upload(m->dev, m->dev_tiles, m->tiles, bytes));
    LT_TRY(lt_fft2(
        m->dev, &(lt_fft2_args){
                    .out = m->dev_spectrum, .x = m->dev_tiles, .planes = tiles, .h = n, .w = n}));
    LT_TRY(lt_dev_download(m->dev, m->spectrum, m->dev_spectrum, 2 * bytes));
    double all = 0, high = 0;
    for (int32_t i = 0; i < tiles; i++)
        bands(m, m->spectrum + 2 * (size_t)i * (size_t)n * (size_t)n, &all, &high);
    p->sharpness = all > 1e-6 ? sqrt(high / all) : 0;
    return LT_OK;
}

/* ---- motion ---- */

static void measure_motion(lt_measure *m, lt_picture *p)
{
    const int64_t n = (int64_t)m->w * m->h;
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)(m->luma[i] - m->before[i]);
        squares += d * d;
    }
    p->motion = sqrt(squares / (double)n);
}

lt_status lt_measure_frame(lt_measure *m, lt_picture *out, const uint8_t *rgb)
{
    *out = (lt_picture){0};
    measure_luma(m, out, rgb);
    measure_colour(m, out, rgb);
    LT_TRY(measure_sharpness(m, out));
    if (m->begun) measure_motion(m, out);
    m->still = m->begun && out->motion < 0.005623 ? m->still + 1 : 0; /* 45 dB */
    out->still = m->still;
    out->black = out->luma < 0.02 && out->contrast < 0.01;
    out->blown = out->clipped > 0.5;
    m->begun = true;
    float *swap = m->before;
    m->before = m->luma;
    m->luma = swap;
    return LT_OK;
}

/* ---- series and pairs ---- */

double lt_flicker(const double *y, int64_t n, int32_t period)
{
    if (period < 2 || n < 3 * (int64_t)period) return 0;
    const int64_t half = period / 2, first = half, last = n - period;
    double profile = 0, mean = 0;
    int64_t phases = 0;
    for (int pass = 0; pass < 2; pass++) /* the mean over phases is not a part of it */
        for (int64_t phase = 0; phase < period; phase++) {
            double sum = 0;
            int64_t count = 0;
            for (int64_t t = first + phase; t <= last; t += period, count++) {
                double around = 0;
                for (int64_t k = t - half; k < t - half + period; k++)
                    around += y[k];
                sum += y[t] - around / period;
            }
            if (!count) continue;
            if (pass == 0) {
                mean += sum / (double)count;
                phases++;
            } else {
                const double d = sum / (double)count - mean / (double)phases;
                profile += d * d;
            }
        }
    return phases ? sqrt(profile / (double)phases) : 0;
}

lt_status lt_measure_renditions(lt_renditions *out, lt_dev *dev, const uint8_t *first,
                                const uint8_t *second, int32_t width, int32_t height)
{
    lt_measure *m;
    lt_picture a, b;
    *out = (lt_renditions){0};
    LT_TRY(lt_measure_create(&m, dev, width, height));
    lt_status s = lt_measure_frame(m, &a, first);
    if (s >= 0) s = lt_measure_frame(m, &b, second);
    lt_measure_destroy(&m);
    LT_TRY(s);
    const int64_t n = (int64_t)width * height;
    for (int c = 0; c < 3; c++) {
        double x = 0, y = 0, xx = 0, xy = 0;
        for (int64_t i = 0; i < n; i++) {
            const double u = first[3 * i + c] / 255.0, v = second[3 * i + c] / 255.0;
            x += u;
            y += v;
            xx += u * u;
            xy += u * v;
        }
        const double spread = xx - x * x / (double)n;
        out->gain[c] = spread < 1e-6 * (double)n ? 1 : (xy - x * y / (double)n) / spread;
        out->offset[c] = (y - out->gain[c] * x) / (double)n;
    }
    out->exposure = b.exposure - a.exposure;
    out->contrast = a.contrast > 1e-4 && b.contrast > 1e-4 ? log(b.contrast / a.contrast) : 0;
    out->saturation = b.saturation - a.saturation;
    out->colour = lt_colour_distance(&a, &b);
    out->sharpness = a.sharpness > 1e-4 && b.sharpness > 1e-4 ? log2(b.sharpness / a.sharpness) : 0;
    out->difference = b.motion;
    return LT_OK;
}

double lt_colour_distance(const lt_picture *a, const lt_picture *b)
{
    const double l = b->lightness - a->lightness, u = b->a - a->a, v = b->b - a->b;
    return sqrt(l * l + u * u + v * v);
}

/* ---- to a file and back ---- */

lt_status lti_measure_state(lt_measure *m, lti_state *io)
{
    LT_TRY(lti_state_bool(io, "there is a picture before", &m->begun));
    LT_TRY(lti_state_int32(io, "pictures that stood still", &m->still, 0, INT32_MAX));
    if (!m->begun) return LT_OK;
    return lti_state_bytes(io, m->before, (size_t)m->w * (size_t)m->h * sizeof *m->before);
}
