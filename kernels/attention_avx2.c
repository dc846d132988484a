/* attention_avx2.c: attention in f32 with AVX2 and FMA; bf16 inputs are widened when they are packed. */
#include "kernels/attention.h"

#include <immintrin.h>

#define VW 8
#define MR 6
#define PAIRS 0
#define HALF 0
typedef __m256 vf;

static inline vf vf_load(const lti_word *p)
{
    return _mm256_load_ps(p);
}
static inline void vf_store(lti_word *p, vf a)
{
    _mm256_store_ps(p, a);
}
static inline vf vf_set1(float a)
{
    return _mm256_set1_ps(a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline float vf_top(vf a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
static inline vf vf_word(const lti_word *p)
{
    return _mm256_broadcast_ss(p);
}
static inline vf vf_dot(vf acc, vf a, vf b)
{
    return _mm256_fmadd_ps(a, b, acc);
}
static inline vf vf_exp2(vf x)
{
    const vf magic = _mm256_set1_ps(
        12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    x = _mm256_max_ps(_mm256_set1_ps(-126.0f), x); /* in this order a NaN stays one */
    const vf t = _mm256_add_ps(x, magic), f = _mm256_sub_ps(x, _mm256_sub_ps(t, magic));
    vf y = _mm256_set1_ps(LTI_EXP2_5);
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(LTI_EXP2_4));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(LTI_EXP2_3));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(LTI_EXP2_2));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(LTI_EXP2_1));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}

static bool pack_block(lti_word *dst, int stride, const void *src, lt_dtype t, int64_t ld,
                       int first, int end, int dim)
{
    if (ld > 1 << 24 || (t == LT_BF16 && dim % 2)) return false;
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i index = _mm256_mullo_epi32(_mm256_set1_epi32((int)ld), lane);
    const __m256i live = _mm256_cmpgt_epi32(_mm256_set1_epi32(end - first), lane);
    if (t == LT_F32) {
        const float *x = (const float *)src + first * ld;
        for (int c = 0; c < dim; c++)
            vf_store(dst + (int64_t)c * stride,
                     _mm256_mask_i32gather_ps(_mm256_setzero_ps(), x + c, index,
                                              _mm256_castsi256_ps(live), 4));
        return true;
    }
    const uint16_t *x = (const uint16_t *)src + first * ld;
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    for (int c = 0; c < dim; c += 2) {
        const __m256i w = _mm256_mask_i32gather_epi32(
            _mm256_setzero_si256(), (const int *)(const void *)(x + c), index, live, 2);
        vf_store(dst + (int64_t)c * stride, _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)));
        vf_store(dst + (int64_t)(c + 1) * stride, _mm256_castsi256_ps(_mm256_and_si256(w, high)));
    }
    return true;
}

#include "kernels/attention_body.h"

const lti_attn_isa lti_attn_avx2 = LTI_ATTN_TABLE;
