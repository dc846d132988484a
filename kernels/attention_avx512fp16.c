/* attention_avx512fp16.c: attention on bf16 inputs with the FMA of 32 f16, twice the products a cycle of the f32 one. The two halves of a
 * word are neighbours along the sum, as with bf16 pairs, and have a sum each, of RUN words; runs are added up in
 * f16, at the end both halves, and steps of keys in f32. Only for inputs that lie well inside the range of f16: lti_attn_fits. */
#include "kernels/attention.h"

#include <immintrin.h>

#define VW 16
#define MR 14
#define PAIRS 1
#define HALF 1
typedef __m512 vf;
enum { RUN = 32 };

#include "kernels/attention_avx512.h"

/* Written out for the reasons given in attention_avx512.c. */
static inline vf vf_dot(vf acc, vf a, vf b)
{
    __asm__("vfmadd231ph %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

static inline vf vf_join(vf a, vf b)
{
    return (vf)(_mm512_castps_ph(a) + _mm512_castps_ph(b));
}

static inline vf vf_total(vf sums)
{
    const __m512i x = _mm512_castps_si512(sums);
    const __m512h both = _mm512_castsi512_ph(x) + _mm512_castsi512_ph(_mm512_rol_epi32(x, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castph_si512(both)));
}

static inline __m256i to_half(vf x)
{
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 32 weights become 16 pairs of neighbours. */
static inline void put_weights(lti_word *p, vf w0, vf w1)
{
    _mm512_store_si512(p, _mm512_inserti64x4(_mm512_castsi256_si512(to_half(w0)), to_half(w1), 1));
}

static inline __m512i load_half(const uint16_t *x, __mmask16 live)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, x));
    return _mm512_cvtepu16_epi32(to_half((vf)_mm512_slli_epi32(wide, 16)));
}

static inline void pack_pairs(lti_word *dst, const uint16_t *row, int64_t ld, int cols)
{
    for (int c = 0; c < 2 * VW; c += VW) {
        const int left = cols - c;
        const __mmask16 live = (__mmask16)((1u << (left < 0 ? 0 : left < VW ? left : VW)) - 1);
        __m512i w = load_half(row + c, live);
        if (ld) w = _mm512_or_si512(w, _mm512_slli_epi32(load_half(row + ld + c, live), 16));
        _mm512_store_si512(dst + c, w);
    }
}

static bool pack_block(lti_word *dst, int stride, const void *src, lt_dtype t, int64_t ld,
                       int first, int end, int dim)
{
    if (ld > 1 << 24 || dim % 2) return false;
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i index = _mm512_mullo_epi32(_mm512_set1_epi32((int)ld), lane);
    const __mmask16 live = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(end - first), lane);
    const char *x = (const char *)src + first * ld * (int64_t)lt_dtype_size(t);
    for (int c = 0; c < dim; c += 2) {
        vf even, odd;
        if (t == LT_F32) {
            const float *at = (const float *)(const void *)x + c;
            even = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), live, index, at, 4);
            odd = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), live, index, at + 1, 4);
        } else {
            const __m512i w =
                _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), live, index, x + 2 * c, 2);
            even = (vf)_mm512_slli_epi32(w, 16);
            odd = (vf)_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u));
        }
        const __m512i low = _mm512_cvtepu16_epi32(to_half(even)),
                      high = _mm512_cvtepu16_epi32(to_half(odd));
        vf_store(dst + (int64_t)(c / 2) * stride,
                 (vf)_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
    return true;
}

#include "kernels/attention_body.h"

const lti_attn_isa lti_attn_avx512fp16 = LTI_ATTN_TABLE;
