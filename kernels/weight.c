/* weight.c: packs the weights of a file into panels (gemm.h), once, with all workers. */
#include "kernels/gemm.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* A chunk of all taps of a panel is what the innermost loops read again and again: about CHUNK_TARGET rows of nr values. At
 * least a cache line of bf16 channels, so that no line of the input is fetched for half of it. In f16 it must fit the first cache: the second
 * one does not keep up with twice the products. */
enum { CHUNK_TARGET = 256, CHUNK_LEAST = 32 };

/* Most elements that one column has in a chunk. */
enum { RUN_MOST = 2 * LT_MAX_TAPS * CHUNK_LEAST + LT_MAX_TAPS * LTI_K_STEP };

void lti_weight_layout(lt_weight *w)
{
    static const int nr[] = {1, 8, 16, 64, 64, 64}, vl[] = {1, 4, 8, 16, 16, 16};
    w->half = w->isa == LTI_ISA_AVX512FP16 && w->compute == LT_BF16 && w->taps == 1;
    w->nr = nr[w->isa] << w->half;
    w->vl = vl[w->isa] << w->half;
    w->pair = w->isa == LTI_ISA_AVX512BF16 && w->compute == LT_BF16 ? 2 : 1;
    int64_t kc = (CHUNK_TARGET >> w->half) / w->taps / CHUNK_LEAST * CHUNK_LEAST;
    if (kc < CHUNK_LEAST) kc = CHUNK_LEAST;
    const int64_t step = LTI_K_STEP * w->pair;
    kc *= w->pair;
    w->chunks = (w->in + kc - 1) / kc;
    w->kc = round_up((w->in + w->chunks - 1) / w->chunks, step); /* of even length */
    w->chunks = (w->in + w->kc - 1) / w->kc;
    w->kpad = (w->chunks - 1) * w->kc + round_up(w->in - (w->chunks - 1) * w->kc, step);
    w->panels = (w->out + w->nr - 1) / w->nr;
    assert(w->kc * w->taps <= RUN_MOST);
}

/* ---- packing ---- */

typedef struct pack {
    lt_weight *w;
    const lt_weight_options *opt;
} pack;

static const lt_weight_part *part_of(const lt_weight_options *opt, int64_t *n)
{
    const lt_weight_part *p = opt->parts;
    for (; *n >= p->out; p++)
        *n -= p->out;
    return p;
}

static int64_t element(const lt_weight *w, int64_t n, int64_t k, int tap)
{
    const int64_t panel = n / w->nr, chunk = k / w->kc, kin = k % w->kc;
    const int width = lti_panel_width(w, panel);
    const int64_t col = n % w->nr;
    return lti_panel_at(w, panel) + lti_chunk_at(w, chunk, width) +
           tap * lti_chunk_len(w, chunk) * width + kin / w->pair * (w->pair * width) +
           col * w->pair + kin % w->pair;
}

typedef union run {
    float f[RUN_MOST];
    uint16_t h[RUN_MOST];
} run;

static const char *file_at(const lt_weight_part *part, int64_t element)
{
    return (const char *)part->data + element * (int64_t)lt_dtype_size(part->dtype);
}

/* n elements of a file from `first` on, in the type that the weight is held in, in f16 times `by`. A file gives no alignment. */
static void load_run(run *r, const lt_weight *w, const lt_weight_part *part, int64_t first,
                     int64_t n, float by)
{
    const char *src = file_at(part, first);
    if (w->half) {
        lti_gemm_ops_of(w)->halve(r->h, src, part->dtype, n, by);
    } else if (part->dtype == w->compute) {
        memcpy(r, src, (size_t)n * lt_dtype_size(w->compute));
    } else if (w->compute == LT_F32) {
        for (int64_t i = 0; i < n; i++)
            r->f[i] = lti_load(src, part->dtype, i);
    } else if (part->dtype == LT_F32) { /* what most files hold: without a call an element */
        for (int64_t i = 0; i < n; i++) {
            float v;
            memcpy(&v, src + i * (int64_t)sizeof v, sizeof v);
            r->h[i] = lti_f32_to_bf16(v);
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            r->h[i] = lti_f32_to_bf16(lti_load(src, part->dtype, i));
    }
}

/* Column `col` of a chunk: the run has its taps side by side, the panel its columns. */
static void pack_run(const lt_weight *w, int64_t at, int64_t len, int64_t col, int width,
                     const run *r, int64_t channels)
{
    const int odd = w->pair - 1; /* 0 or 1: k / pair and k % pair without a division */
    for (int tap = 0; tap < w->taps; tap++, at += len * width)
        for (int64_t k = 0; k < channels; k++) {
            const int64_t to = at + ((k >> odd) * width + col) * w->pair + (k & odd);
            if (w->compute == LT_F32)
                ((float *)w->data)[to] = r->f[k * w->taps + tap];
            else
                ((uint16_t *)w->data)[to] = r->h[k * w->taps + tap];
        }
}

/* The power of two below `largest`, which is finite or counts as 1; zero too. */
static float power_of(float largest)
{
    int e;
    if (!isfinite(largest) || largest == 0) return 1;
    (void)frexpf(largest, &e);
    return ldexpf(1, e < -120 ? -120 : e - 1);
}

/* Chunk by chunk, so that what is written stays in the first cache until all columns are in. */
static void pack_column(const pack *p, int64_t panel, int64_t chunk, int64_t col)
{
    const lt_weight *w = p->w;
    const int width = lti_panel_width(w, panel);
    const int64_t at = lti_panel_at(w, panel) + lti_chunk_at(w, chunk, width);
    const int64_t k = chunk * w->kc, channels = lti_min64(w->kc, w->in - k);
    int64_t row = panel * w->nr + col;
    const lt_weight_part *part = part_of(p->opt, &row);
    run r;
    if (w->half && chunk == 0)
        w->scale[panel * w->nr + col] =
            power_of(lti_gemm_ops_of(w)->largest(file_at(part, row * w->in), part->dtype, w->in));
    load_run(&r, w, part, (row * w->in + k) * w->taps, channels * w->taps,
             w->half ? 1 / w->scale[panel * w->nr + col] : 1);
    pack_run(w, at, lti_chunk_len(w, chunk), col, width, &r, channels);
    if (chunk == 0)
        w->bias[panel * w->nr + col] = part->bias ? lti_load(part->bias, part->bias_dtype, row) : 0;
}

static void pack_panel(void *arg, int64_t panel, int thread)
{
    const pack *p = arg;
    (void)thread;
    const int64_t cols = lti_min64(p->w->nr, p->w->out - panel * p->w->nr);
    for (int64_t chunk = 0; chunk < p->w->chunks; chunk++)
        for (int64_t col = 0; col < cols; col++)
            pack_column(p, panel, chunk, col);
}

/* A panel of the triple of a weight that is packed. */
static void pack_triple(void *arg, int64_t panel, int thread)
{
    const lt_weight *w = arg, *t = w->triple;
    (void)thread;
    const int64_t first = panel * t->nr, end = lti_min64(first + t->nr, t->out);
    for (int64_t n = first; n < end; n++)
        for (int64_t k = 0; k < t->in; k++)
            for (int tap = 0; tap < t->taps; tap++) {
                const int64_t from = element(w, n % w->out, k, 3 * tap + (int)(n / w->out)),
                              to = element(t, n, k, tap);
                if (t->compute == LT_F32)
                    ((float *)t->data)[to] = ((const float *)w->data)[from];
                else
                    ((uint16_t *)t->data)[to] = ((const uint16_t *)w->data)[from];
            }
}

/* ---- life ---- */

static bool is_file_type(lt_dtype t)
{
    return t == LT_F32 || t == LT_BF16 || t == LT_F16;
}

static lt_status check_options(lt_dev *dev, const lt_weight_options *o, int64_t *out)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (o->nparts < 1 || !o->parts) return lti_fail(ctx, LT_ERR_ARG, "weight: no parts");
    if (o->in < 1 || o->in > INT32_MAX)
        return lti_fail(ctx, LT_ERR_ARG, "weight: %lld input columns", (long long)o->in);
    if (o->taps < 0 || o->taps > LT_MAX_TAPS)
        return lti_fail(ctx, LT_ERR_ARG, "weight: %d taps, at most %d", o->taps, LT_MAX_TAPS);
    if (o->compute != LT_F32 && o->compute != LT_BF16)
        return lti_fail(ctx, LT_ERR_ARG, "weight: compute type %d is neither f32 nor bf16",
                        (int)o->compute);
    *out = 0;
    for (int i = 0; i < o->nparts; i++) {
        const lt_weight_part *p = &o->parts[i];
        if (p->out < 1 || p->out > INT32_MAX || !p->data)
            return lti_fail(ctx, LT_ERR_ARG, "weight: part %d has %lld rows and %s", i,
                            (long long)p->out, p->data ? "data" : "no data");
        if (!is_file_type(p->dtype) || (p->bias && !is_file_type(p->bias_dtype)))
            return lti_fail(ctx, LT_ERR_ARG, "weight: part %d has unknown type %d or bias type %d",
                            i, (int)p->dtype, (int)p->bias_dtype);
        *out += p->out;
        if (*out > INT32_MAX)
            return lti_fail(ctx, LT_ERR_ARG, "weight: %lld rows", (long long)*out);
    }
    return LT_OK;
}

static lt_status alloc_panels(lt_weight *w, lt_dev *dev, lt_tag tag)
{
    const int64_t last = (w->panels - 1) * w->nr; /* columns with the padding of the last panel */
    const size_t cols = (size_t)(last + lti_panel_width(w, w->panels - 1));
    const size_t bias_bytes = (size_t)(w->panels * w->nr) * sizeof(float) << w->half;
    size_t bytes;
    if (!lti_mul_size(&bytes, cols, (size_t)w->kpad) ||
        !lti_mul_size(&bytes, bytes, (size_t)w->taps * lt_dtype_size(w->compute)))
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "weight: %lld x %lld x %d is too large",
                        (long long)w->out, (long long)w->in, w->taps);
    LT_TRY(lt_dev_alloc(dev, &w->data, bytes, tag));
    void *bias;
    LT_TRY(lt_dev_alloc(dev, &bias, bias_bytes, tag));
    w->bias = bias;
    if (w->half) w->scale = w->bias + w->panels * w->nr;
    w->bytes = bytes + bias_bytes;
    LT_TRY(lt_dev_zero(dev, w->bias, bias_bytes));
    if (w->kpad == w->in && cols == (size_t)w->out) return LT_OK;
    return lt_dev_zero(dev, w->data, bytes); /* the padding counts as zeros */
}

/* Few columns would leave most lanes or most registers of a tile idle. */
static lt_status alloc_triple(lt_weight *w, lt_dev *dev, lt_tag tag)
{
    if (w->isa == LTI_ISA_REF || w->taps % 9 || 3 * w->out > w->nr) return LT_OK;
    lt_weight *t = calloc(1, sizeof *t);
    if (!t) return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for a weight");
    *t = (lt_weight){
        .out = 3 * w->out, .in = w->in, .taps = w->taps / 3, .compute = w->compute, .isa = w->isa};
    lti_weight_layout(t);
    w->triple = t;
    LT_TRY(alloc_panels(t, dev, tag));
    w->bytes += t->bytes;
    return LT_OK;
}

lt_status lt_weight_create(lt_weight **out, lt_dev *dev, const lt_weight_options *opt)
{
    int64_t rows = 0;
    *out = NULL;
    LT_TRY(check_options(dev, opt, &rows));
    lt_weight *w = calloc(1, sizeof *w);
    if (!w) return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for a weight");
    w->out = rows;
    w->in = opt->in;
    w->taps = opt->taps ? opt->taps : 1;
    w->compute = opt->compute;
    w->isa = lti_dev_isa(dev);
    lti_weight_layout(w);
    lt_status s = alloc_panels(w, dev, opt->tag);
    if (s >= 0) s = alloc_triple(w, dev, opt->tag);
    if (s < 0) {
        lt_weight_destroy(dev, &w);
        return s;
    }
    lti_dev_enter(dev);
    lti_parallel(dev, w->panels, pack_panel, &(pack){.w = w, .opt = opt});
    if (w->triple) lti_parallel(dev, w->triple->panels, pack_triple, w);
    lti_dev_leave(dev);
    *out = w;
    return LT_OK;
}

void lt_weight_destroy(lt_dev *dev, lt_weight **w)
{
    if (!w || !*w) return;
    lt_weight_destroy(dev, &(*w)->triple);
    lt_dev_free(dev, (*w)->data);
    lt_dev_free(dev, (*w)->bias);
    free(*w);
    *w = NULL;
}

int64_t lt_weight_out(const lt_weight *w)
{
    return w->out;
}

int64_t lt_weight_in(const lt_weight *w)
{
    return w->in;
}

lt_dtype lt_weight_compute(const lt_weight *w)
{
    return w->compute;
}

size_t lt_weight_bytes(const lt_weight *w)
{
    return w->bytes;
}

float lti_weight_at(const lt_weight *w, int64_t n, int64_t k, int tap)
{
    const int64_t at = element(w, n, k, tap);
    if (w->half) return lti_f16_to_f32(((const uint16_t *)w->data)[at]) * w->scale[n];
    return lti_get(w->data, w->compute, at);
}

void lti_weight_column(const lt_weight *w, int64_t n, float *out)
{
    for (int64_t k = 0; k < w->in; k++)
        for (int tap = 0; tap < w->taps; tap++)
            out[k * w->taps + tap] = lti_weight_at(w, n, k, tap);
}
