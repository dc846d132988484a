/* gemm_portable.c: 4 x 8 tiles in plain C, in a form that compilers turn into vectors. */
#include "kernels/gemm.h"

#include <math.h>

enum { MR = 4, NR = 8 };

/* The loop over rows has a fixed end: a short tile computes its last row again into rows that nobody reads. */
static void tile(const lti_tile *t, int rows, int width)
{
    (void)width;
    float c[MR][NR] = {{0}};
    for (int tap = 0; tap < t->ntaps; tap++) {
        const float *a[MR];
        const float *b = (const float *)(const void *)(t->b + t->tap[tap].b);
        for (int i = 0; i < MR; i++) {
            const int64_t row = i < rows ? i : rows - 1;
            a[i] = (const float *)(const void *)(t->a + t->tap[tap].a + row * t->a_stride);
        }
        for (int64_t k = 0; k < t->groups; k++, b += NR)
            for (int i = 0; i < MR; i++)
                for (int j = 0; j < NR; j++)
                    c[i][j] += a[i][k] * b[j];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < NR; j++)
            t->c[i * NR + j] = t->add ? t->c[i * NR + j] + c[i][j] : c[i][j];
}

static float activate(float y, lt_act act)
{
    switch (act) {
    case LT_ACT_SILU:
        return y / (1 + expf(-y));
    case LT_ACT_GELU_TANH:
        return y / (1 + expf(-1.5957691216f * (y + 0.044715f * y * y * y)));
    case LT_ACT_GELU_ERF:
        return 0.5f * y * (1 + erff(y * 0.70710678f));
    default:
        return y;
    }
}

static void finish(const lti_finish *f)
{
    for (int64_t i = 0; i < f->rows; i++) {
        const float *gate = f->gate;
        if (gate && f->group) gate += f->group[i] * f->gate_ld;
        for (int64_t j = 0; j < f->cols; j++) {
            float y = activate(f->c[i * f->width + j] + f->bias[j], f->act);
            if (gate) y *= gate[j];
            if (f->res) y += f->res[i * f->res_stride + j];
            lti_put(f->out, f->out_type, i * f->out_stride + j, y);
        }
    }
}

static void pack_f32(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const float *src = (const float *)p->src + i * p->src_stride;
        float *dst = (float *)p->dst + i * p->dst_stride;
        for (int64_t k = 0; k < p->padded; k++)
            dst[k] = k < p->len ? src[k] : 0;
    }
}

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        float *dst = (float *)p->dst + i * p->dst_stride;
        for (int64_t k = 0; k < p->padded; k++)
            dst[k] = k < p->len ? lti_bf16_to_f32(src[k]) : 0;
    }
}

static void widen(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = lti_bf16_to_f32(src[i]);
}

const lti_gemm_ops lti_gemm_portable = {MR, tile, finish, pack_f32, pack_bf16, widen};
