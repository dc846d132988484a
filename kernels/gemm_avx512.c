/* gemm_avx512.c: 14 x 32 tiles of f32 FMA. */
#include "kernels/gemm_avx512.h"

static inline vec v_group(const char *p)
{
    return _mm512_broadcastss_ps(_mm_load_ss((const float *)p));
}
static inline vec v_dot(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#include "kernels/gemm_simd.h"

static inline vec wide(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        float *dst = (float *)p->dst + i * p->dst_stride;
        int64_t k = 0;
        for (; k + LTI_LANES <= p->len; k += LTI_LANES)
            v_store(dst + k, wide(_mm256_loadu_si256((const void *)(src + k))));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? lti_bf16_to_f32(src[k]) : 0;
    }
}

static void widen(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += LTI_LANES)
        v_store(dst + i, wide(_mm256_loadu_si256((const void *)(src + i))));
}

const lti_gemm_ops lti_gemm_avx512 = {LTI_MR, tile, finish, pack_f32, pack_bf16, widen};
