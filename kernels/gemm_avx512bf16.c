/* gemm_avx512bf16.c: 14 x 32 tiles of vdpbf16ps, for processors where it is twice as fast as the f32 FMA. */
#include "kernels/gemm_avx512.h"

typedef int32_t __attribute__((may_alias)) group;

static inline vec v_group(const char *p)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(*(const group *)p));
}
static inline vec v_dot(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

#include "kernels/gemm_simd.h"

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        uint16_t *dst = (uint16_t *)p->dst + i * p->dst_stride;
        int64_t k = 0;
        for (; k + 2 * LTI_LANES <= p->len; k += 2 * LTI_LANES)
            v_store(dst + k, v_load(src + k));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? src[k] : 0;
    }
}

const lti_gemm_ops lti_gemm_avx512bf16 = {LTI_MR, tile, finish, pack_f32, pack_bf16, NULL};
