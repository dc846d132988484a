/* drift_latent.c: see drift_latent.h. Plain loops: a block's latent is small beside anything that made it. */
#include "video/drift_latent.h"
#include "video/drift_tiles.h"

#include <math.h>
#include <string.h>

/* ---- fields ---- */

static const float *plane_of(const lti_latent *z, int32_t channel, int32_t frame)
{
    return z->z + ((int64_t)channel * z->frames + frame) * z->h * z->w;
}

static float tile_mean(const lti_latent *z, int32_t c, int32_t first, int32_t count, int t)
{
    int32_t top, bottom, left, right;
    double sum = 0;
    lti_tile_part(z->h, t / LTI_LATENT_SIDE, &top, &bottom);
    lti_tile_part(z->w, t % LTI_LATENT_SIDE, &left, &right);
    for (int32_t f = first; f < first + count; f++)
        for (int32_t y = top; y < bottom; y++)
            for (int32_t x = left; x < right; x++)
                sum += (double)plane_of(z, c, f)[y * z->w + x];
    return (float)(sum / ((double)count * (bottom - top) * (right - left)));
}

/* Mean over frames of the deviation within one. */
static float deviation(const lti_latent *z, int32_t c, int32_t first, int32_t count)
{
    const int64_t n = (int64_t)z->h * z->w;
    double all = 0;
    for (int32_t f = first; f < first + count; f++) {
        const float *p = plane_of(z, c, f);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)p[i];
            squares += (double)p[i] * (double)p[i];
        }
        const double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
        all += sqrt(fmax(variance, 0));
    }
    return (float)(all / count);
}

void lti_field_take(lti_field *f, const lti_latent *z, int32_t first, int32_t count)
{
    memset(f, 0, sizeof *f);
    f->parts = 1;
    for (int32_t c = 0; c < z->channels; c++) {
        for (int t = 0; t < LTI_LATENT_TILES; t++)
            f->tile[c][t] = tile_mean(z, c, first, count, t);
        f->sd[c] = deviation(z, c, first, count);
    }
}

void lti_field_add(lti_field *mean, const lti_field *f, int32_t channels)
{
    const float k = 1.0f / (float)++mean->parts;
    for (int32_t c = 0; c < channels; c++) {
        for (int t = 0; t < LTI_LATENT_TILES; t++)
            mean->tile[c][t] += k * (f->tile[c][t] - mean->tile[c][t]);
        mean->sd[c] += k * (f->sd[c] - mean->sd[c]);
    }
}

/* RMS over channels of the typical tile's difference. */
static double typical_change(const lti_field *a, const lti_field *b, int32_t channels)
{
    float v[LTI_LATENT_TILES];
    for (int t = 0; t < LTI_LATENT_TILES; t++) {
        double squares = 0;
        for (int32_t c = 0; c < channels; c++) {
            const double d = (double)(a->tile[c][t] - b->tile[c][t]);
            squares += d * d;
        }
        v[t] = (float)sqrt(squares / channels);
    }
    return lti_tiles_median(v, LTI_LATENT_TILES);
}

static double rms_deviation(const lti_field *f, int32_t channels)
{
    double squares = 0;
    for (int32_t c = 0; c < channels; c++)
        squares += (double)f->sd[c] * (double)f->sd[c];
    return sqrt(squares / channels);
}

/* An object that leaves a plain wall leaves it flat too, but most of the wall stays what it was, but for what drift and corrections do. */
static bool all_changed(const lti_field *now, const lti_field *before, int32_t channels)
{
    static const lti_field nothing;
    const double spread = fmax(rms_deviation(now, channels), rms_deviation(before, channels));
    const double size = typical_change(before, &nothing, channels);
    return typical_change(now, before, channels) > fmax(0.15 * spread, 0.25 * size);
}

bool lti_field_broken(const lti_field *now, const lti_field *before, int32_t channels)
{
    double ratio = 0;
    int32_t counted = 0;
    for (int32_t c = 0; c < channels; c++) {
        /* a first block has none before it: flat by any measure */
        const float sd = before->parts ? before->sd[c] : 0.1f;
        if (sd > 0.05f) {
            ratio += log((double)fmaxf(now->sd[c], 1e-4f) / (double)sd);
            counted++;
        }
    }
    if (!counted) return false;
    ratio = exp(ratio / counted);
    if (!before->parts) return ratio < 0.3;
    return (ratio < 0.3 || ratio > 3) && all_changed(now, before, channels);
}

/* ---- shifts ---- */

void lti_shift_none(lti_shift *s)
{
    for (int c = 0; c < LTI_LATENT_CHANNELS; c++) {
        s->scale[c] = 1;
        s->offset[c] = 0;
        memset(s->low[c], 0, sizeof s->low[c]);
    }
}

static float median(float *v, int n)
{
    return (float)lti_tiles_median(v, n);
}

static float limit(float x, float most)
{
    return x < -most ? -most : x > most ? most : x;
}

/* Differences of a channel's tiles, and which show the same thing: not those that differ by far more than the typical one does, since
 * something else is there now. Gives how many do. */
static int differences(float *v, bool *same, const float *now, const float *ref, float sd)
{
    const float least = 0.1f * sd, times = 4;
    float far[LTI_LATENT_TILES], sorted[LTI_LATENT_TILES];
    int n = 0;
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        sorted[t] = v[t] = now[t] - ref[t];
    const float m = median(sorted, LTI_LATENT_TILES);
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        sorted[t] = far[t] = fabsf(v[t] - m);
    const float most = fmaxf(least, times * median(sorted, LTI_LATENT_TILES));
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        n += same[t] = far[t] <= most;
    return n;
}

/* Median difference of a channel, less where fewer than two tiles of three have gone that way, 0 where not more than half have. */
static float difference(const float *v, const bool *same)
{
    float some[LTI_LATENT_TILES];
    int along = 0, n = 0;
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        if (same[t]) some[n++] = v[t];
    const float m = median(some, n);
    for (int i = 0; i < n; i++)
        along += some[i] * m > 0.25f * m * m;
    const float agree = (float)along / (float)n;
    return m * fminf(fmaxf((agree - 0.5f) / 0.15f, 0), 1);
}

/* Cosine k of the low ones at a place, both 0..1. */
static float low_at(int k, float y, float x)
{
    const int u = (k + 1) / 3, v = (k + 1) % 3;
    return cosf((float)M_PI * (float)u * y) * cosf((float)M_PI * (float)v * x);
}

static float low_of_tile(int k, int t)
{
    const float side = LTI_LATENT_SIDE;
    return low_at(k, ((float)(t / LTI_LATENT_SIDE) + 0.5f) / side,
                  ((float)(t % LTI_LATENT_SIDE) + 0.5f) / side);
}

/* The low field of v - m, times gain; zeros unless it is most of what differs. */
static void low_field(float *low, const float *v, const bool *same, float m, float gain, float most)
{
    float rest[LTI_LATENT_TILES], before = 0, after = 0, size = 0;
    for (int t = 0; t < LTI_LATENT_TILES; t++) {
        rest[t] = same[t] ? v[t] - m : 0;
        before += rest[t] * rest[t];
    }
    for (int k = 0; k < LTI_LOW; k++) {
        float sum = 0, squares = 0;
        for (int t = 0; t < LTI_LATENT_TILES; t++) {
            const float b = low_of_tile(k, t);
            sum += rest[t] * b;
            squares += b * b;
        }
        low[k] = sum / squares; /* cosines at the tiles' middles are at right angles */
        for (int t = 0; t < LTI_LATENT_TILES; t++)
            rest[t] -= low[k] * low_of_tile(k, t);
    }
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        after += same[t] ? rest[t] * rest[t] : 0;
    for (int k = 0; k < LTI_LOW; k++)
        size += fabsf(gain * low[k]);
    const float scale = after < 0.5f * before ? gain * fminf(1, most / fmaxf(size, 1e-9f)) : 0;
    for (int k = 0; k < LTI_LOW; k++)
        low[k] *= scale;
}

static float mean_of(const float *tile)
{
    float sum = 0;
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        sum += tile[t];
    return sum / LTI_LATENT_TILES;
}

/* How far tiles lie from the mean, against how far they lay: the median ratio. */
static float spread(const float *now, const float *ref, float sd)
{
    float v[LTI_LATENT_TILES];
    const float a = mean_of(now), b = mean_of(ref);
    int n = 0;
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        if (fabsf(ref[t] - b) > 0.3f * sd) v[n++] = (now[t] - a) / (ref[t] - b);
    return n >= LTI_LATENT_TILES / 4 ? median(v, n) : 1;
}

/* Mean over the picture, in squared deviations: a cosine has a mean square of a half, one of two axes a quarter. */
static double low_squares(const lti_shift *s, int32_t c, float sd)
{
    double sum = 0;
    for (int k = 0; k < LTI_LOW; k++) {
        const double part = (double)(s->low[c][k] / sd);
        sum += ((k + 1) / 3 && (k + 1) % 3 ? 0.25 : 0.5) * part * part;
    }
    return sum;
}

double lti_shift_low(const lti_shift *s, const lti_field *ref, int32_t channels)
{
    double sum = 0;
    for (int32_t c = 0; c < channels; c++)
        sum += low_squares(s, c, fmaxf(ref->sd[c], 0.2f));
    return sqrt(sum / channels);
}

/* One channel; gives the difference, and what is taken off it, in deviations of the reference. */
static double shift_channel(lti_shift *s, double *taken, int32_t c, const lti_field *now,
                            const lti_field *ref, float gain, bool contrast)
{
    float v[LTI_LATENT_TILES];
    bool same[LTI_LATENT_TILES];
    const float sd = fmaxf(ref->sd[c], 0.2f);
    const int n = differences(v, same, now->tile[c], ref->tile[c], sd);
    const float d = difference(v, same);
    const float off = limit(gain * d, 0.35f * sd), mean = mean_of(now->tile[c]);
    float scale = contrast ? 1 / fmaxf(spread(now->tile[c], ref->tile[c], sd), 0.1f) : 1;
    scale = 1 + gain * (fminf(fmaxf(scale, 1 / 1.15f), 1.15f) - 1);
    s->scale[c] = scale;
    s->offset[c] = mean * (1 - scale) - off;
    /* contrast would be taken off twice */
    if (!contrast && gain > 0 && 4 * n >= 3 * LTI_LATENT_TILES)
        low_field(s->low[c], v, same, d, -gain, 0.15f * sd);
    const double low = low_squares(s, c, sd);
    *taken += (double)(off * off) / (double)(sd * sd) + low;
    return (double)(d / sd);
}

double lti_shift_towards(lti_shift *s, double *moved, const lti_field *now, const lti_field *ref,
                         int32_t channels, double gain, bool contrast)
{
    double all = 0, taken = 0;
    lti_shift_none(s);
    for (int32_t c = 0; c < channels; c++) {
        const double d = shift_channel(s, &taken, c, now, ref, (float)gain, contrast);
        all += d * d;
    }
    if (moved) *moved = sqrt(taken / channels);
    return sqrt(all / channels);
}

static bool has_low(const lti_shift *s, int32_t c)
{
    for (int k = 0; k < LTI_LOW; k++)
        if (s->low[c][k] != 0) return true;
    return false;
}

static void add_low(float *p, int32_t h, int32_t w, const float *low)
{
    for (int32_t y = 0; y < h; y++)
        for (int32_t x = 0; x < w; x++)
            for (int k = 0; k < LTI_LOW; k++)
                p[(int64_t)y * w + x] +=
                    low[k] * low_at(k, ((float)y + 0.5f) / (float)h, ((float)x + 0.5f) / (float)w);
}

static void shift_plane(float *p, const lti_latent *shape, int32_t c, float k,
                        const lti_shift *from, const lti_shift *to)
{
    const int64_t n = (int64_t)shape->h * shape->w;
    const float scale = from->scale[c] + k * (to->scale[c] - from->scale[c]),
                offset = from->offset[c] + k * (to->offset[c] - from->offset[c]);
    for (int64_t j = 0; j < n; j++)
        p[j] = scale * p[j] + offset;
    if (!has_low(from, c) && !has_low(to, c)) return;
    float low[LTI_LOW];
    for (int i = 0; i < LTI_LOW; i++)
        low[i] = from->low[c][i] + k * (to->low[c][i] - from->low[c][i]);
    add_low(p, shape->h, shape->w, low);
}

void lti_shift_apply(float *z, const lti_latent *shape, int32_t first, int32_t count,
                     const lti_shift *from, const lti_shift *to)
{
    const int64_t n = (int64_t)shape->h * shape->w;
    for (int32_t c = 0; c < shape->channels; c++)
        for (int32_t i = 0; i < count; i++)
            shift_plane(z + ((int64_t)c * shape->frames + first + i) * n, shape, c,
                        (float)(i + 1) / (float)count, from, to);
}

/* ---- to a file and back ---- */

static lt_status number_state(lti_state *io, float *v)
{
    double x = (double)*v;
    LT_TRY(lti_state_real(io, "a latent's measure", &x, -1e9, 1e9));
    *v = (float)x;
    return LT_OK;
}

lt_status lti_field_state(lti_field *f, int32_t channels, lti_state *io)
{
    LT_TRY(lti_state_int32(io, "parts of a reference", &f->parts, 0, 1 << 20));
    for (int32_t c = 0; c < channels && f->parts; c++) {
        for (int t = 0; t < LTI_LATENT_TILES; t++)
            LT_TRY(number_state(io, &f->tile[c][t]));
        LT_TRY(number_state(io, &f->sd[c]));
    }
    return LT_OK;
}

lt_status lti_shift_state(lti_shift *s, int32_t channels, lti_state *io)
{
    for (int32_t c = 0; c < channels; c++) {
        LT_TRY(number_state(io, &s->scale[c]));
        LT_TRY(number_state(io, &s->offset[c]));
        for (int k = 0; k < LTI_LOW; k++)
            LT_TRY(number_state(io, &s->low[c][k]));
    }
    return LT_OK;
}
