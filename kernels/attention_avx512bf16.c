/* attention_avx512bf16.c: attention on bf16 inputs with vdpbf16ps: pairs of bf16 are multiplied and added in one step, the
 * weights of the softmax are rounded to bf16 before they meet the values. For processors on which that instruction is
 * fast; f32 inputs go to attention_avx512.c. */
#include "kernels/attention.h"

#include <immintrin.h>

#define VW 16
#define MR 14
#define PAIRS 1
#define HALF 0
typedef __m512 vf;

#include "kernels/attention_avx512.h"

/* Written out for the reasons given in attention_avx512.c. */
static inline vf vf_dot(vf acc, vf a, vf b)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

/* 32 weights become 16 pairs of neighbours. */
static inline void put_weights(lti_word *p, vf w0, vf w1)
{
    _mm512_store_ps(p, (vf)_mm512_cvtne2ps_pbh(w1, w0));
}

static bool pack_block(lti_word *dst, int stride, const void *src, lt_dtype t, int64_t ld,
                       int first, int end, int dim)
{
    if (ld > 1 << 24 || t != LT_BF16 || dim % 2) return false;
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i index = _mm512_mullo_epi32(_mm512_set1_epi32((int)ld), lane);
    const __mmask16 live = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(end - first), lane);
    const uint16_t *x = (const uint16_t *)src + first * ld;
    for (int c = 0; c < dim; c += 2)
        vf_store(dst + (int64_t)(c / 2) * stride,
                 (vf)_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), live, index, x + c, 2));
    return true;
}

#include "kernels/attention_body.h"

const lti_attn_isa lti_attn_avx512bf16 = LTI_ATTN_TABLE;
