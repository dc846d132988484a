/* attention_avx512.c: attention in f32 with AVX-512; bf16 inputs are widened when they are packed. */
#include "kernels/attention.h"

#include <immintrin.h>

#define VW 16
#define MR 14
#define PAIRS 0
#define HALF 0
typedef __m512 vf;

#include "kernels/attention_avx512.h"

/* Written out, so that the sum stays where it is (clang moves all 28 of them about, at half the speed) and the word stays in a
 * register (as a memory operand it is loaded for each of its two uses, and loads are the limit then). */
static inline vf vf_dot(vf acc, vf a, vf b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

static bool pack_block(lti_word *dst, int stride, const void *src, lt_dtype t, int64_t ld,
                       int first, int end, int dim)
{
    if (ld > 1 << 24 || (t == LT_BF16 && dim % 2)) return false;
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i index = _mm512_mullo_epi32(_mm512_set1_epi32((int)ld), lane);
    const __mmask16 live = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(end - first), lane);
    if (t == LT_F32) {
        const float *x = (const float *)src + first * ld;
        for (int c = 0; c < dim; c++)
            vf_store(dst + (int64_t)c * stride,
                     _mm512_mask_i32gather_ps(_mm512_setzero_ps(), live, index, x + c, 4));
        return true;
    }
    const uint16_t *x = (const uint16_t *)src + first * ld;
    for (int c = 0; c < dim; c += 2) {
        const __m512i w =
            _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), live, index, x + c, 2);
        vf_store(dst + (int64_t)c * stride, (vf)_mm512_slli_epi32(w, 16));
        vf_store(dst + (int64_t)(c + 1) * stride,
                 (vf)_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u)));
    }
    return true;
}

#include "kernels/attention_body.h"

const lti_attn_isa lti_attn_avx512 = LTI_ATTN_TABLE;
