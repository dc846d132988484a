/* gemm_avx512.h: the vectors of gemm_avx512.c and gemm_avx512bf16.c. */
#ifndef LTI_GEMM_AVX512_H
#define LTI_GEMM_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;
enum { LTI_LANES = 16, LTI_MR = 14 };
#define LTI_TILE_MAP(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)

static inline vec v_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vec v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vec v_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(void *p, vec x)
{
    _mm512_storeu_ps(p, x);
}
static inline vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
static inline vec v_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
/* To 1 ulp, a third of the time of a division: an estimate of 14 bits and one step of Newton's. */
static inline vec v_div(vec a, vec b)
{
    const vec r = _mm512_rcp14_ps(b);
    return _mm512_mul_ps(a, _mm512_mul_ps(r, _mm512_fnmadd_ps(b, r, _mm512_set1_ps(2))));
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* e^x to 2 ulp; NaN stays NaN. Above 88.3 and below -87.3 the result stands still: it only feeds 1 / (1 + e^x). */
static inline vec v_exp(vec x)
{
    x = _mm512_min_ps(_mm512_set1_ps(88.3f), _mm512_max_ps(_mm512_set1_ps(-87.3f), x));
    const vec n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    vec r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    vec p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

static inline __mmask16 first(int n)
{
    return (__mmask16)((1u << n) - 1);
}
static inline vec v_load_n(const float *p, int n)
{
    return n == LTI_LANES ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first(n), p);
}
static inline void v_store_n(float *p, vec x, int n)
{
    if (n == LTI_LANES)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, first(n), x);
}
static inline void v_store_bf16_n(uint16_t *p, vec x, int n)
{
    const __m512i u = _mm512_castps_si512(x), top = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_srli_epi32(r, 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, top, _mm512_set1_epi32(0x40));
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtepi32_epi16(r));
}

#endif
