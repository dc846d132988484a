/* gemm_avx2.c: 6 x 16 tiles of f32 FMA. */
#include <immintrin.h>
#include <stdint.h>

typedef __m256 vec;
enum { LTI_LANES = 8, LTI_MR = 6 };
#define LTI_TILE_MAP(X) X(1) X(2) X(3) X(4) X(5) X(6)

static inline vec v_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vec v_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vec v_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(void *p, vec x)
{
    _mm256_storeu_ps(p, x);
}
static inline vec v_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
static inline vec v_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
static inline vec v_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vec v_group(const char *p)
{
    return _mm256_broadcast_ss((const float *)p);
}
static inline vec v_dot(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* e^x to 2 ulp; NaN stays NaN. Above 88.3 and below -87.3 the result stands still: it only feeds 1 / (1 + e^x). */
static inline vec v_exp(vec x)
{
    x = _mm256_min_ps(v_set1(88.3f), _mm256_max_ps(v_set1(-87.3f), x));
    const vec n = _mm256_round_ps(v_mul(x, v_set1(1.44269504f)), 8);
    vec r = _mm256_fnmadd_ps(n, v_set1(0.693145752f), x);
    r = _mm256_fnmadd_ps(n, v_set1(1.42860677e-6f), r);
    vec p = v_fma(v_set1(1.0f / 720), r, v_set1(1.0f / 120));
    p = v_fma(p, r, v_set1(1.0f / 24));
    p = v_fma(p, r, v_set1(1.0f / 6));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p, r, v_set1(1));
    p = v_fma(p, r, v_set1(1));
    const __m256i e =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return v_mul(p, _mm256_castsi256_ps(e));
}

static inline __m256i first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vec v_load_n(const float *p, int n)
{
    return n == LTI_LANES ? v_load(p) : _mm256_maskload_ps(p, first(n));
}
static inline void v_store_n(float *p, vec x, int n)
{
    if (n == LTI_LANES)
        v_store(p, x);
    else
        _mm256_maskstore_ps(p, first(n), x);
}
static inline void v_store_bf16_n(uint16_t *p, vec x, int n)
{
    const __m256i u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    r = _mm256_srli_epi32(r, 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
    const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
    if (n == LTI_LANES) {
        _mm_storeu_si128((void *)p, h);
        return;
    }
    uint16_t t[LTI_LANES];
    _mm_storeu_si128((void *)t, h);
    for (int i = 0; i < n; i++)
        p[i] = t[i];
}

#include "kernels/gemm_simd.h"

static inline vec wide(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        float *dst = (float *)p->dst + i * p->dst_stride;
        int64_t k = 0;
        for (; k + LTI_LANES <= p->len; k += LTI_LANES)
            v_store(dst + k, wide(_mm_loadu_si128((const void *)(src + k))));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? lti_bf16_to_f32(src[k]) : 0;
    }
}

static void widen(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += LTI_LANES)
        v_store(dst + i, wide(_mm_loadu_si128((const void *)(src + i))));
}

const lti_gemm_ops lti_gemm_avx2 = {LTI_MR, tile, finish, pack_f32, pack_bf16, widen};
