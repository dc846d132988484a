/* pointwise_spans.h: the memory-bound operations on a span of rows (or elements), written once over vec.h. A file
 * pointwise_<isa>.c defines LTI_SPANS as the name of its table and includes this. One pass over memory where the
 * arithmetic allows, a second pass over a row that is still in the first cache where it does not. Sums run in fixed
 * lanes of one row, so neither threads nor neighbours change a result. */
#include "kernels/pointwise.h"
#include "kernels/vec.h"

#include <float.h>

/* From this size on an output is written past the caches. */
enum { STREAM_BYTES = 32 << 20 };

static bool streams(const void *out, lt_dtype t, int64_t rows, int64_t cols, int64_t ld,
                    const void *x)
{
    const int64_t size = (int64_t)lt_dtype_size(t);
    return out != x && rows * cols * size >= STREAM_BYTES && (uintptr_t)out % 64 == 0 &&
           ld * size % 64 == 0;
}

static bool mat_streams(const lt_mat *out, int64_t rows, int64_t cols, const void *x)
{
    return streams(out->data, out->dtype, rows, cols, lti_ld(out, cols), x);
}

/* Elements by which a loop asks for memory in advance: the processor's own prefetching ends with the page and left stats at
 * half, convert at two thirds of this speed. */
enum { AHEAD = 512 };

static void convert_span(const void *args, int64_t begin, int64_t end)
{
    const lt_convert_args *a = args;
    const int64_t ldo = lti_ld(&a->out, a->cols), ldx = lti_ld(&a->x, a->cols);
    const bool stream = mat_streams(&a->out, a->rows, a->cols, a->x.data);
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < a->cols; c += VL) {
            vec_prefetch(a->x.data, a->x.dtype, r * ldx + c + AHEAD);
            const vf v = vf_get(a->x.data, a->x.dtype, r * ldx + c, a->cols - c);
            vf_emit(a->out.data, a->out.dtype, r * ldo + c, a->cols - c, v, stream);
        }
    vec_fence();
}

/* ---- norm ---- */

enum {
    SUMS = 8
}; /* sums kept apart: hides the adder's latency and keeps the f32 error near 1e-7 */

static float fold(const vf s[SUMS])
{
    return vf_sum(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}

static float row_sum(const float *x, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t c = 0;
    for (; c + SUMS * VL <= n; c += SUMS * VL)
        for (int i = 0; i < SUMS; i++)
            s[i] += vf_load_n(x + c + i * VL, VL);
#pragma GCC unroll 8 /* numbered by constants, or the sums would live in memory */
    for (int i = 0; i < SUMS; i++)
        if (c < n) {
            s[i] += vf_load_n(x + c, n - c);
            c += VL;
        }
    return fold(s);
}

static float row_squares(const void *x, lt_dtype t, int64_t at, int64_t n)
{
    vf s[SUMS] = {{0}};
    int64_t c = 0;
    for (; c + SUMS * VL <= n; c += SUMS * VL)
        for (int i = 0; i < SUMS; i++) {
            const vf v = vf_get(x, t, at + c + i * VL, VL);
            s[i] = vf_fma(v, v, s[i]);
        }
#pragma GCC unroll 8 /* numbered by constants, or the sums would live in memory */
    for (int i = 0; i < SUMS; i++)
        if (c < n) {
            const vf v = vf_get(x, t, at + c, n - c);
            s[i] = vf_fma(v, v, s[i]);
            c += VL;
        }
    return fold(s);
}

typedef struct moments {
    float mean, rest; /* the mean is mean + rest: what f32 lost of it */
    float var;
} moments;

/* The second pass corrects the first one's mean, so that rows far from zero keep their digits. */
static moments row_moments(const float *x, int64_t n)
{
    const float mean = row_sum(x, n) / (float)n;
    vf s[SUMS] = {{0}}, q[SUMS] = {{0}};
    int64_t c = 0;
    for (; c + SUMS * VL <= n; c += SUMS * VL)
        for (int i = 0; i < SUMS; i++) {
            const vf v = vf_load_n(x + c + i * VL, VL) - mean;
            s[i] += v;
            q[i] = vf_fma(v, v, q[i]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++)
        if (c < n) {
            const vf v = vf_keep_n(vf_load_n(x + c, n - c) - mean, n - c);
            s[i] += v;
            q[i] = vf_fma(v, v, q[i]);
            c += VL;
        }
    const float rest = fold(s) / (float)n, var = fold(q) / (float)n - rest * rest;
    return (moments){mean, rest, var < 0 ? 0 : var}; /* NaN stays NaN */
}

/* The last pass asks for the next row: memory would have nothing to do while a row is worked on in the first cache. */
static void norm_row(const lt_norm_args *a, int64_t r, bool stream)
{
    const int64_t C = a->cols, o = r * lti_ld(&a->out, C), ldx = lti_ld(&a->x, C);
    const float *x = (const float *)a->x.data + r * ldx;
    const int64_t g = (a->row_group ? a->row_group[r] : 0) * (a->mod_ld ? a->mod_ld : C);
    const moments m = a->kind == LT_NORM_LAYER
                          ? row_moments(x, C)
                          : (moments){.var = row_squares(x, LT_F32, 0, C) / (float)C};
    const vf inv = vf_set(1.0f / sqrtf(m.var + a->eps));
    for (int64_t c = 0; c < C; c += VL) {
        const int64_t n = C - c;
        vec_prefetch(x, LT_F32, ldx + c);
        vf y = ((vf_load_n(x + c, n) - m.mean) - m.rest) * inv;
        if (a->weight) y *= vf_load_n(a->weight + c, n);
        if (a->bias) y += vf_load_n(a->bias + c, n);
        if (a->scale) y = vf_fma(y, vf_load_n(a->scale + g + c, n), y);
        if (a->shift) y += vf_load_n(a->shift + g + c, n);
        vf_emit(a->out.data, a->out.dtype, o + c, n, y, stream);
    }
}

static void norm_span(const void *args, int64_t begin, int64_t end)
{
    const lt_norm_args *a = args;
    const bool stream = mat_streams(&a->out, a->rows, a->cols, a->x.data);
    for (int64_t r = begin; r < end; r++)
        norm_row(a, r, stream);
    vec_fence();
}

/* ---- qknorm ---- */

/* The three axes' cosines and sines of one token side by side, used by every head. */
static void gather_turns(float *turn, const lt_rope *rope, int64_t r)
{
    for (int axis = 0; axis < 3; axis++) {
        const int64_t len = 2 * (int64_t)rope->pairs[axis];
        if (!len) continue;
        memcpy(turn, rope->table[axis] + rope->pos[3 * r + axis] * len, (size_t)len * 4);
        turn += len;
    }
}

static void qknorm_row(const lt_qknorm_args *a, int64_t r, bool stream)
{
    const int64_t D = a->head_dim, C = a->heads * D;
    const int64_t ldx = lti_ld(&a->x, C), o = r * lti_ld(&a->out, C), x = r * ldx;
    float turn[LTI_MAX_HEAD_DIM];
    vf inv = vf_set(1);
    if (a->eps >= 0) inv /= sqrtf(row_squares(a->x.data, a->x.dtype, x, C) / (float)C + a->eps);
    if (a->rope) gather_turns(turn, a->rope, r);
    for (int64_t h = 0; h < C; h += D)
        for (int64_t d = 0; d < D; d += VL) {
            const int64_t n = D - d;
            vec_prefetch(a->x.data, a->x.dtype, x + ldx + h + d);
            vf v = vf_get(a->x.data, a->x.dtype, x + h + d, n) * inv;
            if (a->weight) v *= vf_load_n(a->weight + h + d, n);
            if (a->rope) v = vf_turn(v, vf_load_n(turn + d, n));
            vf_emit(a->out.data, a->out.dtype, o + h + d, n, v, stream);
        }
}

static void qknorm_span(const void *args, int64_t begin, int64_t end)
{
    const lt_qknorm_args *a = args;
    /* a head that ends within a line leaves the next one unaligned */
    const bool stream = a->head_dim % 32 == 0 &&
                        mat_streams(&a->out, a->rows, (int64_t)a->heads * a->head_dim, a->x.data);
    for (int64_t r = begin; r < end; r++)
        qknorm_row(a, r, stream);
    vec_fence();
}

/* ---- pictures ---- */

/* Sum of squares of a pixel's channels; narrow ones fill a vector or two and need no sums kept apart */
static float pixel_squares(const lt_channorm_args *a, int64_t at)
{
    const int64_t C = a->x.c;
    if (C > 2 * VL) return row_squares(a->x.data, a->x.dtype, at, C);
    vf v = vf_get(a->x.data, a->x.dtype, at, C);
    vf s = v * v;
    if (C > VL) {
        v = vf_get(a->x.data, a->x.dtype, at + VL, C - VL);
        s = vf_fma(v, v, s);
    }
    return vf_sum(s);
}

/* What VL pixels, or the n that are left, are multiplied by: roots and quotients of all of them at once. */
static void channorm_scales(const lt_channorm_args *a, int64_t at, int64_t n, float scale[VL])
{
    const vf root = vf_set(sqrtf((float)a->x.c));
    for (int64_t i = 0; i < VL; i++)
        scale[i] = i < n ? pixel_squares(a, at + i * a->x.c) : 1;
    vf_store_n(scale, root / vf_max(vf_sqrt(vf_load_n(scale, VL)), vf_set(1e-12f)), VL);
}

static void channorm_pixel(const lt_channorm_args *a, int64_t in, int64_t out, float scale,
                           bool stream)
{
    const int64_t C = a->x.c;
    const vf mul = vf_set(scale);
    for (int64_t c = 0; c < C; c += VL) {
        const int64_t n = C - c;
        vec_prefetch(a->x.data, a->x.dtype, in + VL * C + c); /* the next VL pixels */
        vf v = vf_get(a->x.data, a->x.dtype, in + c, n) * mul;
        if (a->gamma) v *= vf_load_n(a->gamma + c, n);
        if (a->act == LT_ACT_SILU) v = vf_silu(v);
        vf_emit(a->out.data, a->out.dtype, out + c, n, v, stream);
    }
}

static void channorm_span(const void *args, int64_t begin, int64_t end)
{
    const lt_channorm_args *a = args;
    const bool stream =
        streams(a->out.data, a->out.dtype, a->x.h, (int64_t)a->x.w * a->x.c, a->x.c, a->x.data);
    float scale[VL];
    for (int i = 0; i < VL; i++)
        scale[i] = 1;
    for (int64_t y = begin; y < end; y++) {
        int64_t in = lti_image_at(&a->x, y, 0), out = lti_image_at(&a->out, y, 0);
        for (int64_t x = 0; x < a->x.w; x += VL) {
            const int64_t n = lti_min64(VL, a->x.w - x);
            if (a->gamma) channorm_scales(a, in, n, scale);
            for (int64_t i = 0; i < n; i++, in += a->x.c, out += a->x.c)
                channorm_pixel(a, in, out, scale[i], stream);
        }
    }
    vec_fence();
}

static void latent_image_span(const void *args, int64_t begin, int64_t end)
{
    const lt_latent_image_args *a = args;
    for (int64_t y = begin; y < end; y++)
        for (int32_t c = 0; c < a->c; c++) {
            const float mul = a->mul[c], add = a->add[c];
            float *z = a->z + c * a->channel_stride + y * a->img.w;
            int64_t at = lti_image_at(&a->img, y, 0) + c;
            for (int32_t x = 0; x < a->img.w; x++, at += a->img.c)
                if (a->to_latent)
                    z[x] = lti_get(a->img.data, a->img.dtype, at) * mul + add;
                else
                    lti_put(a->img.data, a->img.dtype, at, z[x] * mul + add);
        }
}

/* As the reference, in the same order of the same f32 operations: the bytes must be equal. */
static uint8_t to_byte(float v)
{
    const float low = v > -1.0f ? v : -1.0f;
    const float clamped = low < 1.0f ? low : 1.0f;
    return (uint8_t)(int32_t)((clamped + 1.0f) * 0.5f * 255.0f);
}

static void rgb8_span(const void *args, int64_t begin, int64_t end)
{
    const lt_rgb8_args *a = args;
    const int64_t w = a->img.w, step = a->img.c;
    for (int64_t y = begin; y < end; y++) {
        uint8_t *u = a->rgb + y * w * 3;
        const int64_t at = lti_image_at(&a->img, y, 0);
        if (!a->to_image && a->img.dtype == LT_F32 &&
            step == 3) { /* the decoder's frames: one run */
            const float *p = (const float *)a->img.data + at;
            for (int64_t i = 0; i < 3 * w; i++)
                u[i] = to_byte(p[i]);
            continue;
        }
        for (int64_t i = 0; i < 3 * w; i++) {
            const int64_t e = at + i / 3 * step + i % 3;
            if (a->to_image)
                lti_put(a->img.data, a->img.dtype, e, (float)u[i] / 127.5f - 1.0f);
            else
                u[i] = to_byte(lti_get(a->img.data, a->img.dtype, e));
        }
    }
}

/* ---- patch: a span of rows of tokens ---- */

/* Compiled for each direction, type and patch, so that the loop inside holds no choice. */
__attribute__((always_inline)) static inline void patch_line(const lt_patch_args *a, int64_t line,
                                                             const bool back, const lt_dtype type,
                                                             const int64_t p)
{
    const int64_t C = a->c, across = a->w / p, down = a->h / p, ld = lti_ld(&a->tokens, C * p * p);
    const int64_t f = line / down, i = line % down, step = back ? C : 1;
    const int32_t *order = a->order ? a->order + line * across : NULL;
    for (int64_t c = 0; c < C; c++)
        for (int64_t y = 0; y < p; y++) {
            float *z = a->latent + c * lti_channel_stride(a) + f * lti_frame_stride(a) +
                       (p * i + y) * a->w;
            const int64_t first = back ? y * p * C + c : (c * p + y) * p;
            for (int64_t j = 0; j < across; j++) {
                const int64_t at = (order ? order[j] : line * across + j) * ld + first;
                for (int64_t x = 0; x < p; x++, z++)
                    if (back)
                        *z = lti_get(a->tokens.data, type, at + x * step);
                    else
                        lti_put(a->tokens.data, type, at + x * step, *z);
            }
        }
}

static void patch_span(const void *args, int64_t begin, int64_t end)
{
    const lt_patch_args *a = args;
    const bool two = a->p == 2, bf16 = a->tokens.dtype == LT_BF16, back = a->to_latent;
    for (int64_t line = begin; line < end; line++)
        if (two && back && bf16)
            patch_line(a, line, true, LT_BF16, 2);
        else if (two && back)
            patch_line(a, line, true, LT_F32, 2);
        else if (two && bf16)
            patch_line(a, line, false, LT_BF16, 2);
        else if (two)
            patch_line(a, line, false, LT_F32, 2);
        else
            patch_line(a, line, back, a->tokens.dtype, a->p);
}

/* ---- elements ---- */

static void lincomb_span(const void *args, int64_t begin, int64_t end)
{
    const lt_lincomb_args *a = args;
    bool stream = streams(a->out, LT_F32, a->n, 1, 16, NULL);
    for (int j = 0; j < a->terms; j++)
        stream = stream && a->out != a->x[j]; /* in place the line is there already */
    for (int64_t i = begin; i < end; i += VL) {
        vec_prefetch(a->x[0], LT_F32, i + AHEAD);
        vf sum = vf_load_n(a->x[0] + i, end - i) * a->coef[0];
        for (int j = 1; j < a->terms; j++) {
            vec_prefetch(a->x[j], LT_F32, i + AHEAD);
            sum = vf_fma(vf_load_n(a->x[j] + i, end - i), vf_set(a->coef[j]), sum);
        }
        vf_emit(a->out, LT_F32, i, end - i, sum, stream);
    }
    vec_fence();
}

static void map_span(const void *args, int64_t begin, int64_t end)
{
    const lt_map_args *a = args;
    const int64_t C = a->cols, ldo = lti_ld(&a->out, C), ldx = lti_ld(&a->x, C);
    const int64_t ldy = a->y_rows == 1 ? 0 : lti_ld(&a->y, C);
    const bool stream = a->out.data != a->y.data && mat_streams(&a->out, a->rows, C, a->x.data);
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < C; c += VL) {
            vec_prefetch(a->x.data, a->x.dtype, r * ldx + c + AHEAD);
            vf v = vf_act(a->act, vf_get(a->x.data, a->x.dtype, r * ldx + c, C - c));
            if (a->y.data) {
                const vf y = vf_get(a->y.data, a->y.dtype, r * ldy + c, C - c);
                v = a->add ? v + y : v * y;
            }
            vf_emit(a->out.data, a->out.dtype, r * ldo + c, C - c, v, stream);
        }
    vec_fence();
}

/* ---- noise ---- */

/* ln x for 2^-24 <= x <= 1, relative error about 1e-7 up to x = 1 (Cephes). */
static vf log_unit(vf x)
{
    const vi bits = (vi)x;
    vf m = (vf)((bits & 0x007fffff) | 0x3f000000); /* 0.5 .. 1 */
    vi e = ((bits >> 23) & 0xff) - 126;
    const vi low = m < vf_set(0.70710678118f);
    e += low;
    m = m - 1.0f + (vf)(low & (vi)m);
    vf p = vf_set(7.0376836292e-2f);
    p = vf_fma(p, m, vf_set(-1.1514610310e-1f));
    p = vf_fma(p, m, vf_set(1.1676998740e-1f));
    p = vf_fma(p, m, vf_set(-1.2420140846e-1f));
    p = vf_fma(p, m, vf_set(1.4249322787e-1f));
    p = vf_fma(p, m, vf_set(-1.6668057665e-1f));
    p = vf_fma(p, m, vf_set(2.0000714765e-1f));
    p = vf_fma(p, m, vf_set(-2.4999993993e-1f));
    p = vf_fma(p, m, vf_set(3.3333331174e-1f));
    const vf ef = __builtin_convertvector(e, vf), z = m * m;
    vf y = m * z * p;
    y = vf_fma(ef, vf_set(-2.12194440e-4f), y);
    y = vf_fma(z, vf_set(-0.5f), y);
    return vf_fma(ef, vf_set(0.693359375f), m + y);
}

/* cos and sin of 2 pi t, t = k / 2^24, 0 <= t < 1: the nearest quarter turn is taken off exactly. */
static void cos_sin_turns(vf t, vf *co, vf *si)
{
    const vf shifter = vf_set(0x1.8p23f);
    const vf shifted = vf_fma(t, vf_set(4), shifter);
    const vi quarter = (vi)shifted & 3;
    const vf d = vf_fma(shifted - shifter, vf_set(-0.25f), t);
    const vf x = vf_fma(d, vf_set(6.2831855f), d * -1.7484555e-7f),
             z = x * x; /* 2 pi in two parts */
    vf s = vf_fma(vf_set(-1.9515295891e-4f), z, vf_set(8.3321608736e-3f));
    s = vf_fma(vf_fma(s, z, vf_set(-1.6666654611e-1f)), z * x, x);
    vf c = vf_fma(vf_set(2.443315711809948e-5f), z, vf_set(-1.388731625493765e-3f));
    c = vf_fma(vf_fma(c, z, vf_set(4.166664568298827e-2f)), z * z,
               vf_fma(z, vf_set(-0.5f), vf_set(1)));
    const vi odd = -(quarter & 1);
    const vi cos_sign = ((quarter + 1) & 2) << 30, sin_sign = (quarter & 2) << 30;
    *co = (vf)((vi)vf_choose(odd, s, c) ^ cos_sign);
    *si = (vf)((vi)vf_choose(odd, c, s) ^ sin_sign);
}

/* Normal numbers of blocks first .. first + VL - 1, in order. */
static void normal_blocks(float out[4 * VL], uint64_t first, const lt_noise_args *a)
{
    uint32_t bits[4][VL];
    float normal[4][VL];
    const uint32_t key[2] = {(uint32_t)a->seed, (uint32_t)(a->seed >> 32)};
    for (int i = 0; i < VL; i++) {
        const uint64_t block = (first + (uint64_t)i) & (UINT64_MAX >> 2); /* element numbers wrap */
        uint32_t four[4];
        lti_philox(four,
                   (const uint32_t[4]){(uint32_t)block, (uint32_t)(block >> 32),
                                       (uint32_t)a->stream, (uint32_t)(a->stream >> 32)},
                   key);
        for (int j = 0; j < 4; j++)
            bits[j][i] = four[j] >> 8;
    }
    for (int j = 0; j < 4; j += 2) {
        vi u, t;
        vf co, si;
        memcpy(&u, bits[j], sizeof u);
        memcpy(&t, bits[j + 1], sizeof t);
        cos_sin_turns(__builtin_convertvector(t, vf) * 0x1p-24f, &co, &si);
        const vf radius = vf_sqrt(log_unit(__builtin_convertvector(u + 1, vf) * 0x1p-24f) * -2.0f);
        vf_store_n(normal[j], radius * co, VL);
        vf_store_n(normal[j + 1], radius * si, VL);
    }
    for (int i = 0; i < 4 * VL; i++)
        out[i] = normal[i % 4][i / 4];
}

static void noise_span(const void *args, int64_t begin, int64_t end)
{
    const lt_noise_args *a = args;
    float four[4 * VL];
    for (int64_t i = begin; i < end;) {
        const uint64_t at = a->first + (uint64_t)i;
        const int64_t skip = (int64_t)(at % 4), n = lti_min64(4 * VL - skip, end - i);
        normal_blocks(four, at / 4, a);
        memcpy(a->out + i, four + skip, (size_t)n * 4);
        i += n;
    }
}

/* ---- stats: one block of elements (pointwise.c: STATS_BLOCK) into a partial result ---- */

static void stats_element(lti_stats_part *part, float v)
{
    if (!isfinite(v)) {
        part->bad++;
        return;
    }
    part->sum += (double)v;
    part->squares += (double)v * (double)v;
    part->min = v < part->min ? v : part->min;
    part->max = v > part->max ? v : part->max;
}

static void stats_block(lti_stats_part *part, const float *x, int64_t n)
{
    vd sum[2] = {{0}}, squares[2] = {{0}};
    vf min = vf_set(FLT_MAX), max = -min;
    vi bad = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vec_prefetch(x, LT_F32, i + AHEAD);
        const vf v = vf_load_n(x + i, VL);
        const vi good = ((vi)v & 0x7fffffff) < vi_set(0x7f800000); /* all ones or zero */
        const vf w = (vf)((vi)v & good);
        bad += good + 1;
        min = vf_min(min, vf_choose(good, v, vf_set(FLT_MAX)));
        max = vf_max(max, vf_choose(good, v, vf_set(-FLT_MAX)));
        for (int half = 0; half < 2; half++) {
            const vd d = vd_half(w, half);
            sum[half] += d;
            squares[half] += d * d;
        }
    }
    *part = (lti_stats_part){.min = FLT_MAX, .max = -FLT_MAX};
    for (int l = 0; l < VL; l++) {
        part->bad += bad[l];
        part->min = min[l] < part->min ? min[l] : part->min;
        part->max = max[l] > part->max ? max[l] : part->max;
        part->sum += sum[l / (VL / 2)][l % (VL / 2)];
        part->squares += squares[l / (VL / 2)][l % (VL / 2)];
    }
    for (; i < n; i++)
        stats_element(part, x[i]);
}

#include "kernels/pointwise_tiles.h"

const lti_spans LTI_SPANS = {
    .convert = convert_span,
    .norm = norm_span,
    .qknorm = qknorm_span,
    .channorm = channorm_span,
    .lincomb = lincomb_span,
    .map = map_span,
    .patch = patch_span,
    .noise = noise_span,
    .latent_image = latent_image_span,
    .rgb8 = rgb8_span,
    .tilemean = tilemean_span,
    .tilescore = tilescore_span,
    .merge = merge_span,
    .stats_block = stats_block,
};
