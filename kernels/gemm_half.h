/* gemm_half.h: the micro-kernel and the copies of gemm_simd.h in f16: 32 columns a vector and twice the products a cycle.
 *
 * An f16 keeps 11 bits where a bf16 keeps 8, so nothing of the inputs is lost but range, and that is kept apart: weights are
 * divided by a power of two a column, inputs by one a row and chunk. What is lost is in the sums: they run in f16 for RUN terms, runs are
 * added up in f16, and those of a chunk are multiplied by the row's power and added up in f32. Error against exact sums of 256 random
 * products, relative to their root mean square: 9.6e-4 (8.4e-4 when each run goes to f32 on its own, 1.2e-3 with runs of 64 that do,
 * 2.3e-3 in one run; rounding both inputs to bf16, as they are, costs 2.5e-3).
 *
 * The end of a run takes 2 instructions a vector of sums, beside its RUN products; the way to f32 takes about 7. The group is an f16
 * twice, because four bytes are spread by the load alone, two need the unit that multiplies. */
#include <immintrin.h>

enum { LANES = 2 * VL, RUN = 32 };

typedef __m512h vhalf;

static inline vhalf spread(const char *p)
{
    int32_t twice;
    memcpy(&twice, p, sizeof twice);
    return _mm512_castsi512_ph(_mm512_set1_epi32(twice));
}
static inline vf low(vhalf x)
{
    return _mm512_cvtxph_ps(_mm512_castph512_ph256(x));
}
static inline vf high(vhalf x)
{
    const __m256i top = _mm512_extracti64x4_epi64(_mm512_castph_si512(x), 1);
    return _mm512_cvtxph_ps(_mm256_castsi256_ph(top));
}

/* ---- tile ---- */

/* c[i, j] (+)= sums[i, j] * scale of row i */
__attribute__((always_inline)) static inline void
add_run(const lti_tile *t, vhalf (*sums)[LTI_VECS_MAX], bool add, const int rows, const int vecs)
{
    const char *scale = t->row_scale;
    LTI_UNROLL
    for (int i = 0; i < rows; i++, scale += t->a_stride) {
        float by;
        memcpy(&by, scale, sizeof by);
        const vf s = _mm512_set1_ps(by);
        LTI_UNROLL
        for (int v = 0; v < vecs; v++) {
            float *c = t->c + (i * vecs + v) * LANES;
            const vf a = low(sums[i][v]), b = high(sums[i][v]);
            store(c, add ? vf_fma(a, s, load(c)) : (vf)(a * s));
            store(c + VL, add ? vf_fma(b, s, load(c + VL)) : (vf)(b * s));
        }
    }
}

__attribute__((always_inline)) static inline void put_out(const lti_tile *t, const int rows,
                                                          const int vecs)
{
    char *out = t->out;
    for (int i = 0; i < rows; i++, out += t->out_stride) {
        LTI_UNROLL
        for (int v = 0; v < 2 * vecs; v++) {
            const vf c = load(t->c + (i * 2 * vecs + v) * VL);
            const vf y = vf_fma(c, load(t->scale + v * VL), load(t->bias + v * VL));
            vf_put(out, t->out_type, v * VL, VL, y);
        }
    }
}

/* Adds up runs in f16: those before are in `past`, where the last one finds itself in c instead. */
__attribute__((always_inline)) static inline void end_run(vhalf (*c)[LTI_VECS_MAX],
                                                          vhalf (*past)[LTI_VECS_MAX], bool first,
                                                          bool last, const int rows, const int vecs)
{
    LTI_UNROLL
    for (int i = 0; i < rows; i++) {
        LTI_UNROLL
        for (int v = 0; v < vecs; v++) {
            if (!first) c[i][v] = _mm512_add_ph(c[i][v], past[i][v]);
            if (!last) past[i][v] = c[i][v];
        }
    }
}

/* One tap: only matrix products are multiplied in f16. */
__attribute__((always_inline)) static inline void tile_n(const lti_tile *t, const int rows,
                                                         const int vecs)
{
    enum { POINTERS = (LTI_MR + 2) / 3 };
    const int64_t stride = t->a_stride, ahead_step = t->ahead_step;
    const char *ahead = t->ahead, *b = t->b + t->tap[0].b, *p[POINTERS];
    LTI_UNROLL
    for (int i = 0; i < (rows + 2) / 3; i++)
        p[i] = t->a + t->tap[0].a + 3 * i * stride;
    vhalf past[LTI_MR][LTI_VECS_MAX];
    for (int64_t done = 0; done < t->groups; done += RUN) {
        vhalf c[LTI_MR][LTI_VECS_MAX];
        LTI_UNROLL
        for (int i = 0; i < rows; i++) {
            LTI_UNROLL
            for (int v = 0; v < vecs; v++)
                c[i][v] = _mm512_setzero_ph();
        }
        for (int64_t left = lti_min64(RUN, t->groups - done); left > 0; left -= LTI_K_STEP) {
            __builtin_prefetch(ahead, 0, 2); /* to the second cache */
            ahead += ahead_step;
            LTI_UNROLL
            for (int kk = 0; kk < LTI_K_STEP; kk++) {
                vhalf bv[LTI_VECS_MAX];
                LTI_UNROLL
                for (int v = 0; v < vecs; v++)
                    bv[v] = _mm512_castps_ph(load(b + (kk * vecs + v) * (int)sizeof(vhalf)));
                LTI_UNROLL
                for (int i = 0; i < rows; i++) {
                    const vhalf a = spread(p[i / 3] + i % 3 * stride + 4 * kk);
                    LTI_UNROLL
                    for (int v = 0; v < vecs; v++)
                        c[i][v] = _mm512_fmadd_ph(a, bv[v], c[i][v]);
                }
            }
            LTI_UNROLL
            for (int i = 0; i < (rows + 2) / 3; i++)
                p[i] += 4 * LTI_K_STEP;
            b += LTI_K_STEP * vecs * (int)sizeof(vhalf);
        }
        if (done + RUN < t->groups) {
            if (done)
                end_run(c, past, false, false, rows, vecs);
            else
                end_run(c, past, true, false, rows, vecs);
            continue;
        }
        if (done) end_run(c, past, false, true, rows, vecs);
        if (t->add)
            add_run(t, c, true, rows, vecs);
        else
            add_run(t, c, false, rows, vecs);
    }
    if (t->out) put_out(t, rows, vecs);
}

/* ---- copies ---- */

/* 2^(exponent - 127) from the exponent's bits, which are neither 0 nor 255. */
static inline float power(int exponent)
{
    const int32_t bits = exponent << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The exponent's bits of the largest of n bf16. */
static inline int largest_exponent(const uint16_t *src, int64_t n)
{
    uint16_t most = 0;
    for (int64_t k = 0; k < n; k++) {
        const uint16_t bits = src[k] & 0x7fff;
        most = bits > most ? bits : most;
    }
    return most >> 7;
}

/* A chunk of a row, n numbers and zeros up to `padded`; returns what it was divided by. */
static inline float pack_chunk(uint32_t *dst, const uint16_t *src, int64_t n, int64_t padded)
{
    int e = largest_exponent(src, n);
    e = e < 4 ? 4 : e == 255 ? 129 : e; /* with an infinity in it the row is lost anyhow */
    const vf by = _mm512_set1_ps(power(256 - e));
    for (int64_t k = 0; k < padded; k += VL) {
        const int m = (int)lti_min64(VL, padded - k);
        const __m256i half = _mm512_cvtps_ph(vf_load_bf16_n(src + k, (int)(n - k)) * by,
                                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512i one = _mm512_cvtepu16_epi32(half);
        const __m512i twice = _mm512_or_si512(one, _mm512_slli_epi32(one, 16));
        _mm512_mask_storeu_epi32(dst + k, vf_first(m), twice);
    }
    return power(e - 2);
}

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        uint32_t *dst = (uint32_t *)p->dst + i * p->dst_stride;
        float *scale = (float *)(void *)(dst + p->padded);
        for (int64_t k = 0; k < p->padded; k += p->chunk)
            *scale++ = pack_chunk(dst + k, src + k, lti_min64(p->chunk, p->len - k),
                                  lti_min64(p->chunk, p->padded - k));
    }
}

/* VL numbers of a file, m of them, from number k on. */
static inline vf load_file(const void *src, lt_dtype type, int64_t k, int64_t n)
{
    const __mmask16 m = vf_first((int)lti_min64(VL, n - k));
    if (type == LT_F32) return _mm512_maskz_loadu_ps(m, (const float *)src + k);
    const __m256i x = _mm256_maskz_loadu_epi16(m, (const uint16_t *)src + k);
    if (type == LT_F16) return _mm512_cvtph_ps(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

static float largest(const void *src, lt_dtype type, int64_t n)
{
    vf most = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k += VL)
        most = _mm512_max_ps(_mm512_abs_ps(load_file(src, type, k, n)), most);
    return _mm512_reduce_max_ps(most);
}

static void halve(uint16_t *dst, const void *src, lt_dtype type, int64_t n, float by)
{
    for (int64_t k = 0; k < n; k += VL) {
        const __m256i half = _mm512_cvtps_ph(load_file(src, type, k, n) * _mm512_set1_ps(by),
                                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16(dst + k, vf_first((int)lti_min64(VL, n - k)), half);
    }
}
