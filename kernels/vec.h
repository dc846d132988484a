/* vec.h: vectors of VL floats of the instruction set that the including file is compiled for. Written over the
 * compiler's vector types (+ - * / work on them); only what those cannot say is written per instruction set.
 * Partial loads give zeros behind n; n may be more than VL. */
#ifndef LTI_VEC_H
#define LTI_VEC_H

#include "kernels/internal.h"

#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VL = 16 };
typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));
typedef float vh __attribute__((vector_size(32)));
typedef double vd __attribute__((vector_size(64)));
#elif defined(__AVX2__)
enum { VL = 8 };
typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));
typedef float vh __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(32)));
#else
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef float vh __attribute__((vector_size(8))); /* half a vector, and as many doubles */
typedef double vd __attribute__((vector_size(16)));
#endif

static inline vf vf_set(float x)
{
    return (vf){0} + x;
}
static inline vi vi_set(int32_t x)
{
    return (vi){0} + x;
}
/* a where the mask is all ones, b where it is zero */
static inline vf vf_choose(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* The lower half, then the upper half, as doubles */
static inline vd vd_half(vf x, int upper)
{
    vh h;
    memcpy(&h, (const char *)&x + (upper ? sizeof h : 0), sizeof h);
    return __builtin_convertvector(h, vd);
}

#if defined(__AVX512F__)

static inline __mmask16 vf_first(int64_t n)
{
    return (__mmask16)(n >= VL ? 0xffffu : (1u << n) - 1);
}
static inline vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}
static inline void vf_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, vf_first(n), x);
}
static inline vf vf_keep_n(vf x, int64_t n) /* zeros behind n */
{
    return _mm512_maskz_mov_ps(vf_first(n), x);
}
static inline vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    const __m256i h = _mm256_maskz_loadu_epi16(vf_first(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline __m256i vf_to_bf16(vf x)
{
    const __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_epi32(high, _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
    r = _mm512_srli_epi32(r, 16);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high,
                             _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(r);
}
static inline void vf_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, vf_first(n), vf_to_bf16(x));
}
/* Stores that go past the caches; p aligned to the vector. vec_fence before another thread may read. */
static inline void vf_stream(float *p, vf x)
{
    _mm512_stream_ps(p, x);
}
static inline void vf_stream_bf16(uint16_t *p, vf x)
{
    _mm256_stream_si256((__m256i *)(void *)p, vf_to_bf16(x));
}
static inline void vec_fence(void)
{
    _mm_sfence();
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_sqrt(vf x)
{
    return _mm512_sqrt_ps(x);
}
/* Of a NaN and a number: b. */
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline float vf_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}
/* Pairs (x0, x1) turned by pairs (cos, sin): (x0 cos - x1 sin, x1 cos + x0 sin). */
static inline vf vf_turn(vf x, vf turn)
{
    const vf swapped = _mm512_permute_ps(x, 0xb1);
    return _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(turn), swapped * _mm512_movehdup_ps(turn));
}

#elif defined(__AVX2__)

static inline __m256i vf_first(int64_t n)
{
    const int m = n < VL ? (int)n : VL;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_n(const float *p, int64_t n)
{
    return n >= VL ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_first(n));
}
static inline void vf_store_n(float *p, vf x, int64_t n)
{
    if (n >= VL)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, vf_first(n), x);
}
static inline vf vf_keep_n(vf x, int64_t n)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(vf_first(n)));
}
static inline vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    __m128i h = _mm_setzero_si128();
    if (n >= VL)
        h = _mm_loadu_si128((const __m128i *)(const void *)p);
    else
        memcpy(&h, p, (size_t)n * 2);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline __m128i vf_to_bf16(vf x)
{
    const __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
    r = _mm256_srli_epi32(r, 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
static inline void vf_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    const __m128i h = vf_to_bf16(x);
    if (n >= VL)
        _mm_storeu_si128((__m128i *)(void *)p, h);
    else
        memcpy(p, &h, (size_t)n * 2);
}
static inline void vf_stream(float *p, vf x)
{
    _mm256_stream_ps(p, x);
}
static inline void vf_stream_bf16(uint16_t *p, vf x)
{
    _mm_stream_si128((__m128i *)(void *)p, vf_to_bf16(x));
}
static inline void vec_fence(void)
{
    _mm_sfence();
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_sqrt(vf x)
{
    return _mm256_sqrt_ps(x);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline float vf_sum(vf x)
{
    const __m128 four = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
    return (four[0] + four[2]) + (four[1] + four[3]);
}
static inline vf vf_turn(vf x, vf turn)
{
    const vf swapped = _mm256_permute_ps(x, 0xb1);
    return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(turn), swapped * _mm256_movehdup_ps(turn));
}

#else

static inline vf vf_load_n(const float *p, int64_t n)
{
    vf x = {0};
    if (n >= VL)
        memcpy(&x, p, sizeof x);
    else
        memcpy(&x, p, (size_t)n * 4);
    return x;
}
static inline void vf_store_n(float *p, vf x, int64_t n)
{
    if (n >= VL)
        memcpy(p, &x, sizeof x);
    else
        memcpy(p, &x, (size_t)n * 4);
}
static inline vf vf_keep_n(vf x, int64_t n)
{
    const vi lane = {0, 1, 2, 3};
    return (vf)((vi)x & (lane < vi_set((int32_t)lti_min64(n, VL))));
}
static inline vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    vf x = {0};
    for (int i = 0; i < VL; i++)
        x[i] = i < n ? lti_bf16_to_f32(p[i]) : 0;
    return x;
}
static inline void vf_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    for (int i = 0; i < VL && i < n; i++)
        p[i] = lti_f32_to_bf16(x[i]);
}
static inline void vf_stream(float *p, vf x)
{
    vf_store_n(p, x, VL);
}
static inline void vf_stream_bf16(uint16_t *p, vf x)
{
    vf_store_bf16_n(p, x, VL);
}
static inline void vec_fence(void)
{
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
static inline vf vf_sqrt(vf x)
{
    for (int i = 0; i < VL; i++)
        x[i] = sqrtf(x[i]);
    return x;
}
static inline vf vf_min(vf a, vf b)
{
    return vf_choose(a < b, a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return vf_choose(a > b, a, b);
}
static inline float vf_sum(vf x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}
static inline vf vf_turn(vf x, vf turn)
{
    const vf swapped = {x[1], x[0], x[3], x[2]};
    const vf co = {turn[0], turn[0], turn[2], turn[2]}, si = {-turn[1], turn[1], -turn[3], turn[3]};
    return x * co + swapped * si;
}

#endif

/* Asks for the cache line of element i, which may be behind the end. */
static inline void vec_prefetch(const void *data, lt_dtype t, int64_t i)
{
    __builtin_prefetch((const char *)data + i * (t == LT_F32 ? 4 : 2));
}

/* Elements i .. i + n - 1 of an array of f32 or bf16. */
static inline vf vf_get(const void *data, lt_dtype t, int64_t i, int64_t n)
{
    return t == LT_F32 ? vf_load_n((const float *)data + i, n)
                       : vf_load_bf16_n((const uint16_t *)data + i, n);
}
static inline void vf_put(void *data, lt_dtype t, int64_t i, int64_t n, vf x)
{
    if (t == LT_F32)
        vf_store_n((float *)data + i, x, n);
    else
        vf_store_bf16_n((uint16_t *)data + i, x, n);
}

/* As vf_put, past the caches where `stream` says so: rows aligned to 64 bytes of an output that no cache would hold until it
 * is read. An ordinary store reads the line from memory first. */
static inline void vf_emit(void *data, lt_dtype t, int64_t i, int64_t n, vf x, bool stream)
{
    if (!stream || n < VL)
        vf_put(data, t, i, n, x);
    else if (t == LT_F32)
        vf_stream((float *)data + i, x);
    else
        vf_stream_bf16((uint16_t *)data + i, x);
}

/* e^x to 2 ulp for -87 <= x <= 88, held at the ends outside; NaN stays NaN. Method and coefficients of Cephes (Moshier):
 * x = n ln 2 + r, a polynomial in r, the exponent raised by n. */
static inline vf vf_exp(vf x)
{
    x = vf_min(vf_set(88), vf_max(vf_set(-87), x));
    const vf shifter =
        vf_set(0x1.8p23f); /* the sum's lowest bits are the whole number nearest to x / ln 2 */
    const vf shifted = vf_fma(x, vf_set(1.44269504089f), shifter);
    const vf n = shifted - shifter;
    const vf r = vf_fma(n, vf_set(2.12194440e-4f), vf_fma(n, vf_set(-0.693359375f), x));
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, r * r, r) + 1.0f;
    return (vf)((vi)p + ((vi)shifted << 23));
}

/* x / (1 + e^-x) */
static inline vf vf_silu(vf x)
{
    return x / (vf_exp(-x) + 1.0f);
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), and (1 + tanh u) / 2 = 1 / (1 + e^-2u) */
static inline vf vf_gelu_tanh(vf x)
{
    const vf u = x * vf_fma(x * x, vf_set(0.0713548162726f), vf_set(1.59576912161f));
    return x / (vf_exp(-u) + 1.0f);
}

static inline vf vf_gelu_erf(vf x)
{
    for (int i = 0; i < VL; i++)
        x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118f));
    return x;
}

static inline vf vf_act(lt_act act, vf x)
{
    switch (act) {
    case LT_ACT_SILU:
        return vf_silu(x);
    case LT_ACT_GELU_TANH:
        return vf_gelu_tanh(x);
    case LT_ACT_GELU_ERF:
        return vf_gelu_erf(x);
    case LT_ACT_NONE:
        break;
    }
    return x;
}

#endif
