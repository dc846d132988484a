/* drift_inject.c: faults as text, and what they do to a latent. Directions of light and colour are measured: flat pictures are encoded
 * that differ by a known step. */
#include "video/drift_inject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    double usual, most; /* amount; most 0: it takes none */
    bool once;          /* one block, unless `for` says more */
} kinds[] = {{"exposure", 0.1, 10, false}, {"colour", 3, 300, false},  {"gain", 0.1, 10, false},
             {"blur", 0.1, 1, false},      {"sharpen", 0.1, 1, false}, {"freeze", 0, 0, true},
             {"black", 0, 0, true},        {"nan", 0, 0, true},        {"slot", 0, 0, true}};

const char *lt_inject_help(void)
{
    return "KIND[=AMOUNT][,at=SECONDS][,for=SECONDS][,into=context|frames], several with + "
           "between: "
           "exposure (EV in 10 s), colour (Delta E in 10 s), gain (of contrast, a part in 10 s), "
           "blur, sharpen (parts, every block), freeze, black, nan, slot (a kept frame becomes "
           "noise; mode ar)";
}

/* ---- text ---- */

static bool number(const char *word, size_t len, double least, double most, double *out)
{
    char copy[32], *end;
    if (!len || len >= sizeof copy) return false;
    memcpy(copy, word, len);
    copy[len] = 0;
    if (strspn(copy, "0123456789.-e") != len) return false;
    *out = strtod(copy, &end);
    return !*end && *out >= least && *out <= most;
}

static bool set_kind(lti_fault *f, const char *word, size_t len)
{
    const char *eq = memchr(word, '=', len);
    const size_t n = eq ? (size_t)(eq - word) : len;
    for (size_t i = 0; i < LT_COUNT(kinds); i++) {
        if (strlen(kinds[i].name) != n || memcmp(word, kinds[i].name, n) != 0) continue;
        *f = (lti_fault){.kind = (lti_fault_kind)i,
                         .amount = kinds[i].usual,
                         .length = kinds[i].once ? 0 : HUGE_VAL};
        return !eq || number(eq + 1, len - n - 1, -kinds[i].most, kinds[i].most, &f->amount);
    }
    return false;
}

static bool set_word(lti_fault *f, bool first, const char *word, size_t len)
{
    if (first) return set_kind(f, word, len);
    if (len > 3 && !memcmp(word, "at=", 3)) return number(word + 3, len - 3, 0, 1e6, &f->at);
    if (len == 11 && !memcmp(word, "into=frames", len)) {
        f->frames = true;
        return f->kind <= LTI_FAULT_GAIN;
    }
    if (len == 12 && !memcmp(word, "into=context", len)) return true;
    return len > 4 && !memcmp(word, "for=", 4) && number(word + 4, len - 4, 0, 1e6, &f->length);
}

lt_status lti_faults_parse(lti_faults *out, lt_ctx *ctx, const char *text)
{
    *out = (lti_faults){0};
    bool first = true;
    for (const char *at = text && *text ? text : NULL; at;) {
        const size_t len = strcspn(at, ",+");
        if (first && out->count == LTI_MAX_FAULTS)
            return lti_fail(ctx, LT_ERR_ARG, "inject: more than %d faults", LTI_MAX_FAULTS);
        if (!set_word(&out->fault[out->count], first, at, len))
            return lti_fail(ctx, LT_ERR_ARG, "inject: '%.*s' is not understood: %s",
                            (int)(len > 80 ? 80 : len), at, lt_inject_help());
        first = at[len] != ',';
        out->count += first;
        at = at[len] ? at + len + 1 : NULL;
    }
    return LT_OK;
}

/* ---- directions ---- */

/* Mean by channel of the second latent frame of a flat picture's video. */
static lt_status encode_flat(float *out, lt_model *m, const uint8_t rgb[3], int32_t width,
                             int32_t height, const atomic_bool *cancel)
{
    enum { FRAMES = 5 };
    const size_t pixels = (size_t)width * (size_t)height * FRAMES;
    const int32_t channels = m->config.dit.in_channels, scale = m->config.info.spatial_scale;
    const size_t area = (size_t)(width / scale) * (size_t)(height / scale);
    uint8_t *flat = malloc(pixels * 3);
    float *z = malloc((size_t)channels * 2 * area * sizeof *z), *dev = NULL;
    lt_status s =
        flat && z ? LT_OK : lti_fail(m->ctx, LT_ERR_MEM, "no memory for %zu pixels", pixels);
    for (size_t i = 0; i < pixels && s >= 0; i++)
        memcpy(flat + 3 * i, rgb, 3);
    if (s >= 0) s = lti_model_encode_frames(m, &dev, flat, FRAMES, width, height, cancel);
    if (s >= 0) s = lt_dev_download(m->dev, z, dev, (size_t)channels * 2 * area * sizeof *z);
    for (int32_t c = 0; c < channels && s >= 0; c++) {
        double sum = 0;
        for (size_t i = 0; i < area; i++)
            sum += (double)z[((size_t)c * 2 + 1) * area + i];
        out[c] = (float)(sum / (double)area);
    }
    lt_dev_free(m->dev, dev);
    free(z);
    free(flat);
    return s;
}

/* (b - a) / step, by channel. */
static lt_status direction(float **out, lt_model *m, const uint8_t a[3], const uint8_t b[3],
                           double step, int32_t width, int32_t height, const atomic_bool *cancel)
{
    float from[LTI_LATENT_CHANNELS], to[LTI_LATENT_CHANNELS];
    const int32_t channels = m->config.dit.in_channels;
    *out = malloc((size_t)channels * sizeof **out);
    if (!*out) return lti_fail(m->ctx, LT_ERR_MEM, "no memory for a direction");
    LT_TRY(encode_flat(from, m, a, width, height, cancel));
    LT_TRY(encode_flat(to, m, b, width, height, cancel));
    for (int32_t c = 0; c < channels; c++)
        (*out)[c] = (to[c] - from[c]) / (float)step;
    return LT_OK;
}

static bool has(const lti_faults *f, lti_fault_kind kind)
{
    for (int32_t i = 0; i < f->count; i++)
        if (f->fault[i].kind == kind) return true;
    return false;
}

lt_status lti_faults_open(lti_faults *f, lt_model *m, int32_t width, int32_t height,
                          const atomic_bool *cancel)
{
    static const uint8_t black[3] = {0, 0, 0}, grey[3] = {128, 128, 128},
                         light[3] = {151, 151, 151}, red[3] = {141, 124, 121};
    if (has(f, LTI_FAULT_EXPOSURE)) /* 128 to 151: 0.52 EV */
        LT_TRY(direction(&f->light, m, grey, light, 0.5197, width, height, cancel));
    if (has(f, LTI_FAULT_COLOUR)) /* a 0, b 0 to a 6.0, b 4.0 */
        LT_TRY(direction(&f->red, m, grey, red, 7.21, width, height, cancel));
    if (!has(f, LTI_FAULT_BLACK)) return LT_OK;
    f->black = malloc((size_t)m->config.dit.in_channels * sizeof *f->black);
    if (!f->black) return lti_fail(m->ctx, LT_ERR_MEM, "no memory for a black latent");
    return encode_flat(f->black, m, black, width, height, cancel);
}

void lti_faults_close(lti_faults *f)
{
    free(f->light);
    free(f->red);
    free(f->black);
    *f = (lti_faults){0};
}

/* ---- what they do ---- */

/* Begins in these seconds, or goes on. */
static bool strikes(const lti_fault *f, double seconds, double length)
{
    return seconds + length > f->at + 1e-9 && seconds < f->at + fmax(f->length, 1e-6);
}

static void add(float *z, const lti_latent *s, int32_t first, const float *by, float k)
{
    const int64_t n = (int64_t)s->h * s->w;
    for (int32_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < (s->frames - first) * n; i++)
            z[((int64_t)c * s->frames + first) * n + i] += k * by[c];
}

static void stretch(float *z, const lti_latent *s, int32_t first, float k)
{
    const int64_t n = (int64_t)s->h * s->w;
    for (int32_t c = 0; c < s->channels; c++)
        for (int32_t f = first; f < s->frames; f++) {
            float *p = z + ((int64_t)c * s->frames + f) * n, mean = 0;
            for (int64_t i = 0; i < n; i++)
                mean += p[i] / (float)n;
            for (int64_t i = 0; i < n; i++)
                p[i] = mean + k * (p[i] - mean);
        }
}

/* x += k (mean of the 3 x 3 around - x); edges are repeated. `line` holds the two rows above as they were. */
static void blend_plane(float *p, int32_t h, int32_t w, float k, float *line)
{
    for (int32_t y = 0; y < h; y++) {
        float *row = p + (int64_t)y * w, *above = line + (size_t)(y % 2) * (size_t)w,
              *here = line + (size_t)((y + 1) % 2) * (size_t)w;
        const float *below = row + (y + 1 < h ? w : 0);
        memcpy(here, row, (size_t)w * sizeof *p);
        if (y == 0) above = here;
        for (int32_t x = 0; x < w; x++) {
            const int32_t a = x ? x - 1 : 0, b = x + 1 < w ? x + 1 : x;
            /* the last row has none below: itself, which is being overwritten from the left, as it was */
            const float *under = y + 1 < h ? below : here;
            const float mean = (above[a] + above[x] + above[b] + here[a] + here[x] + here[b] +
                                under[a] + under[x] + under[b]) /
                               9;
            row[x] = here[x] + k * (mean - here[x]);
        }
    }
}

static void blend(float *z, const lti_latent *s, int32_t first, float k)
{
    float *line = malloc(2 * (size_t)s->w * sizeof *line);
    if (!line) return; /* a fault that does not come */
    for (int32_t c = 0; c < s->channels; c++)
        for (int32_t f = first; f < s->frames; f++)
            blend_plane(z + ((int64_t)c * s->frames + f) * s->h * s->w, s->h, s->w, k, line);
    free(line);
}

static void repeat(float *z, const lti_latent *s, int32_t first, const float *frame)
{
    const int64_t n = (int64_t)s->h * s->w;
    for (int32_t c = 0; c < s->channels; c++)
        for (int32_t f = first; f < s->frames; f++)
            memcpy(z + ((int64_t)c * s->frames + f) * n, frame + c * n, (size_t)n * sizeof *z);
}

static void fill(float *z, const lti_latent *s, int32_t first, const float *value)
{
    const int64_t n = (int64_t)s->h * s->w;
    for (int32_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < (s->frames - first) * n; i++)
            z[((int64_t)c * s->frames + first) * n + i] = value[c];
}

bool lti_faults_apply(const lti_faults *f, float *z, const lti_latent *shape, int32_t first,
                      double seconds, double length, const float *before, bool again)
{
    bool changed = false;
    for (int32_t i = 0; i < f->count; i++) {
        const lti_fault *a = &f->fault[i];
        const double since = fmin(seconds + length - a->at, a->length);
        const float part = (float)(a->amount * (a->frames ? since : length) / 10);
        if (!strikes(a, seconds, length)) continue;
        if (a->kind == LTI_FAULT_EXPOSURE) add(z, shape, first, f->light, part);
        if (a->kind == LTI_FAULT_COLOUR) add(z, shape, first, f->red, part);
        if (a->kind == LTI_FAULT_GAIN) stretch(z, shape, first, 1 + part);
        if (a->kind == LTI_FAULT_BLUR) blend(z, shape, first, (float)a->amount);
        if (a->kind == LTI_FAULT_SHARPEN) blend(z, shape, first, -(float)a->amount);
        if (a->kind == LTI_FAULT_FREEZE && before) repeat(z, shape, first, before);
        if (a->kind == LTI_FAULT_BLACK && !again) fill(z, shape, first, f->black);
        if (a->kind == LTI_FAULT_NAN && !again) z[(int64_t)first * shape->h * shape->w] = NAN;
        changed = changed || a->kind != LTI_FAULT_SLOT;
    }
    return changed;
}

bool lti_faults_slot(const lti_faults *f, double seconds, double length)
{
    for (int32_t i = 0; i < f->count; i++)
        if (f->fault[i].kind == LTI_FAULT_SLOT && strikes(&f->fault[i], seconds, length))
            return true;
    return false;
}
