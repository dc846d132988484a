/* attention_avx512.h: 512-bit vectors for attention_body.h. */
#ifndef LTI_KERNELS_ATTENTION_AVX512_H
#define LTI_KERNELS_ATTENTION_AVX512_H

static inline vf vf_load(const lti_word *p)
{
    return _mm512_load_ps(p);
}
static inline void vf_store(lti_word *p, vf a)
{
    _mm512_store_ps(p, a);
}
static inline vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline float vf_top(vf a)
{
    return _mm512_reduce_max_ps(a);
}
static inline vf vf_word(const lti_word *p)
{
    return _mm512_set1_ps(*p);
}
static inline vf vf_exp2(vf x)
{
    const vf magic =
        _mm512_set1_ps(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x); /* in this order a NaN stays one */
    const vf n = _mm512_sub_ps(_mm512_add_ps(x, magic), magic), f = _mm512_sub_ps(x, n);
    vf y = _mm512_set1_ps(LTI_EXP2_5);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(LTI_EXP2_4));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(LTI_EXP2_3));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(LTI_EXP2_2));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(LTI_EXP2_1));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, n);
}

#endif
