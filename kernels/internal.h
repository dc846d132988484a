/* internal.h: what the files of kernels/ share. No other room includes it (tests/check_*.c do). */
#ifndef LTI_KERNELS_INTERNAL_H
#define LTI_KERNELS_INTERNAL_H

#include "kernels/kernels.h"

/* Ordered: a higher one includes the lower ones. */
typedef enum lti_isa {
    LTI_ISA_REF,        /* scalar references only */
    LTI_ISA_PORTABLE,   /* plain C, blocked */
    LTI_ISA_AVX2,       /* AVX2, FMA, F16C */
    LTI_ISA_AVX512,     /* + AVX-512 F BW VL DQ; bf16 inputs are widened and multiplied in f32 */
    LTI_ISA_AVX512BF16, /* + vdpbf16ps, taken on its own only where it is faster than the f32 FMA */
    LTI_ISA_AVX512FP16  /* + FMA of 32 f16: bf16 inputs are multiplied in f16, twice as fast */
} lti_isa;

typedef void lti_task_fn(void *arg, int64_t task, int thread); /* thread: 0 .. lt_dev_threads - 1 */

/* Runs fn for task 0..ntasks-1 on the device's workers, any order, returns when all are done. Not nested. */
void lti_parallel(lt_dev *dev, int64_t ntasks, lti_task_fn *fn, void *arg);

/* Scratch of one worker, kept and grown by the device (64-byte aligned; counted under LT_TAG_SCRATCH). Call before
 * lti_parallel with the most that any task needs; then lti_scratch(dev, thread) inside. LT_ERR_MEM on failure. */
LT_MUST_USE lt_status lti_scratch_reserve(lt_dev *dev, size_t bytes_per_thread);
void *lti_scratch(lt_dev *dev, int thread);
/* One more buffer, shared by all workers (for panels packed per call). */
LT_MUST_USE lt_status lti_scratch_shared(lt_dev *dev, void **out, size_t bytes);

lti_isa lti_dev_isa(const lt_dev *dev);
const lt_kernels *lti_dev_kernels(const lt_dev *dev);

/* Device memory may be touched between enter and leave only (the guard device opens and closes its pages; on CPU a
 * counter). Operations called through lt_<op>() are already inside. Nests. */
void lti_dev_enter(lt_dev *dev);
void lti_dev_leave(lt_dev *dev);

/* For tests: allocation number `nth` from now (1 = the next) fails once. 0 = none. */
LT_API void lti_dev_fail_alloc(lt_dev *dev, int64_t nth);

/* Each family of operations fills its slots for an instruction set, best last. ref fills every slot. */
void lti_ref_register(lt_kernels *k);                    /* *_ref.c */
void lti_gemm_register(lt_kernels *k, lti_isa isa);      /* linear, conv */
void lti_attention_register(lt_kernels *k, lti_isa isa); /* attention */
void lti_fft_register(lt_kernels *k);                    /* fft2 */
void lti_pointwise_register(lt_kernels *k, lti_isa isa); /* the rest */
void lti_kernels_for(lt_kernels *k, lti_isa isa);        /* all of them: table.c */

/* The scalar references, by operation: plain loops, f64 sums, the definition. */
#define LTI_REF_DECLARE(name) lt_##name##_fn lti_##name##_ref;
LT_OP_MAP(LTI_REF_DECLARE)
#undef LTI_REF_DECLARE
double lti_act_ref(lt_act act, double x);

/* LTI_PEAK_CHAINS multiply-adds of 32 f16, `loops` times: what the peak is made of. Only where the processor has them. */
enum { LTI_PEAK_CHAINS = 12 };
float lti_peak_half(int loops);

/* Checks of what several operations take; the message begins with the name of the operation. LT_ERR_DTYPE: neither f32 nor bf16;
 * LT_ERR_SHAPE: fewer than cols from row to row; rotary pairs that are not a head; LT_ERR_ARG: something is NULL. */
LT_MUST_USE lt_status lti_check_mat(lt_dev *dev, const char *op, const char *name, const lt_mat *m,
                                    int64_t rows, int64_t cols);
LT_MUST_USE lt_status lti_check_rope(lt_dev *dev, const char *op, const lt_rope *rope, int64_t rows,
                                     int head_dim);

/* f32 <-> bf16 bits, round to nearest even, NaN stays NaN. */
static inline float lti_bf16_to_f32(uint16_t b)
{
    union {
        uint32_t u;
        float f;
    } x = {(uint32_t)b << 16};
    return x.f;
}
static inline uint16_t lti_f32_to_bf16(float f)
{
    union {
        float f;
        uint32_t u;
    } x = {f};
    if ((x.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((x.u >> 16) | 0x40);
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}
float lti_f16_to_f32(uint16_t h);
static inline float lti_get(const void *data, lt_dtype t, int64_t i)
{
    return t == LT_F32 ? ((const float *)data)[i] : lti_bf16_to_f32(((const uint16_t *)data)[i]);
}
static inline void lti_put(void *data, lt_dtype t, int64_t i, float v)
{
    if (t == LT_F32)
        ((float *)data)[i] = v;
    else
        ((uint16_t *)data)[i] = lti_f32_to_bf16(v);
}
/* cos and sin by which pair j of a head turns in row r */
static inline const float *lti_rope_at(const lt_rope *rope, int64_t r, int32_t j)
{
    int axis = 0;
    while (j >= rope->pairs[axis])
        j -= rope->pairs[axis++];
    return rope->table[axis] + ((int64_t)rope->pos[3 * r + axis] * rope->pairs[axis] + j) * 2;
}
/* Elements from row to row of a bordered picture, and the first element of its pixel (y, x). */
static inline int64_t lti_image_ld(const lt_image *im)
{
    return ((int64_t)im->w + 2 * (int64_t)im->border) * im->c;
}
static inline int64_t lti_image_at(const lt_image *im, int64_t y, int64_t x)
{
    return (y + im->border) * lti_image_ld(im) + (x + im->border) * im->c;
}
static inline int64_t lti_ld(const lt_mat *m, int64_t cols)
{
    return m->ld ? m->ld : cols;
}
/* The next multiple of `to`. */
static inline size_t lti_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}
static inline int64_t lti_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
