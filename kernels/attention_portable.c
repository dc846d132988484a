/* attention_portable.c: attention in plain C on short vectors that any compiler maps to what the processor has. */
#include "kernels/attention.h"

#define VW 4
#define MR 6
#define PAIRS 0
#define HALF 0
typedef float vf __attribute__((vector_size(16)));
typedef uint32_t vi __attribute__((vector_size(16)));

static inline vf vf_load(const lti_word *p)
{
    vf a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
}
static inline void vf_store(lti_word *p, vf a)
{
    __builtin_memcpy(p, &a, sizeof a);
}
static inline vf vf_set1(float a)
{
    return (vf){a, a, a, a};
}
static inline vf vf_add(vf a, vf b)
{
    return a + b;
}
static inline vf vf_sub(vf a, vf b)
{
    return a - b;
}
static inline vf vf_mul(vf a, vf b)
{
    return a * b;
}
/* b where either is NaN, as the vector instructions do */
static inline vf vf_max(vf a, vf b)
{
    const vi m = a > b;
    return (vf)(((vi)a & m) | ((vi)b & ~m));
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
static inline float vf_top(vf a)
{
    const float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
}
static inline vf vf_word(const lti_word *p)
{
    return vf_set1(*p);
}
static inline vf vf_dot(vf acc, vf a, vf b)
{
    return a * b + acc;
}
static inline vf vf_exp2(vf x)
{
    const vf magic =
        vf_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    x = vf_max(vf_set1(-126.0f), x);
    const vf t = x + magic, f = x - (t - magic);
    vf y = f * LTI_EXP2_5 + LTI_EXP2_4;
    y = y * f + LTI_EXP2_3;
    y = y * f + LTI_EXP2_2;
    y = y * f + LTI_EXP2_1;
    y = y * f + 1.0f;
    return (vf)((vi)y + ((vi)t << 23));
}
static bool pack_block(lti_word *dst, int stride, const void *src, lt_dtype t, int64_t ld,
                       int first, int end, int dim)
{
    (void)dst, (void)stride, (void)src, (void)t, (void)ld, (void)first, (void)end, (void)dim;
    return false;
}

#include "kernels/attention_body.h"

const lti_attn_isa lti_attn_portable = LTI_ATTN_TABLE;
