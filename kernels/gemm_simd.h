/* gemm_simd.h: the micro-kernel, the epilogue and the copies, written once over vectors of LTI_LANES floats. A file
 * gemm_<isa>.c includes it after defining vec, LTI_LANES, LTI_MR and the inline functions used below:
 *   v_zero, v_load, v_store, v_add, v_mul, v_div, v_fma, v_set1, v_exp  f32 arithmetic
 *   v_group(p)                     4 bytes at p in every lane
 *   v_dot(a, b, c)                 c + a * b (of f32, or of bf16 pairs)
 *   v_load_n, v_store_n, v_store_bf16_n                                  the first n lanes, 1 <= n <= LTI_LANES
 *
 * Register tile: rows x 2 vectors (or x 1), every sum in a register, per group 2 loads of b, one broadcast a row, used
 * twice. A broadcast to a register, not a memory operand: the latter is read once per use. */
#include "kernels/gemm.h"

#include <math.h>
#include <string.h>

/* Rows are addressed as three to a pointer, base + {0, 1, 2} * stride: five pointers for 14 rows. */
#define LTI_ROW(p, i) ((p)[(i) / 3] + ((i) % 3) * stride + 4 * kk)

__attribute__((always_inline)) static inline void tile_n(const lti_tile *t, const int rows,
                                                         const int vecs)
{
    enum { POINTERS = (LTI_MR + 2) / 3 };
    vec c[LTI_MR][2];
    const int64_t stride = t->a_stride;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            c[i][v] = v_zero();
    for (int tap = 0; tap < t->ntaps; tap++) {
        const char *p[POINTERS];
        const char *b = t->b + t->tap[tap].b;
#pragma GCC unroll 8
        for (int i = 0; i < (rows + 2) / 3; i++)
            p[i] = t->a + t->tap[tap].a + 3 * i * stride;
        for (int64_t left = t->groups; left > 0; left -= LTI_K_STEP) {
#pragma GCC unroll 4
            for (int kk = 0; kk < LTI_K_STEP; kk++) {
                vec bv[2];
#pragma GCC unroll 2
                for (int v = 0; v < vecs; v++)
                    bv[v] = v_load(b + (kk * vecs + v) * (int)sizeof(vec));
#pragma GCC unroll 16
                for (int i = 0; i < rows; i++) {
                    const vec a = v_group(LTI_ROW(p, i));
#pragma GCC unroll 2
                    for (int v = 0; v < vecs; v++)
                        c[i][v] = v_dot(a, bv[v], c[i][v]);
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < (rows + 2) / 3; i++)
                p[i] += 4 * LTI_K_STEP;
            b += LTI_K_STEP * vecs * (int)sizeof(vec);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            float *to = t->c + (i * vecs + v) * LTI_LANES;
            v_store(to, t->add ? v_add(v_load(to), c[i][v]) : c[i][v]);
        }
}

#define LTI_TILE(n)                             \
    static void tile_##n##_1(const lti_tile *t) \
    {                                           \
        tile_n(t, n, 1);                        \
    }                                           \
    static void tile_##n##_2(const lti_tile *t) \
    {                                           \
        tile_n(t, n, 2);                        \
    }
#define LTI_TILE_SLOT(n) {tile_##n##_1, tile_##n##_2},

LTI_TILE_MAP(LTI_TILE)

static void tile(const lti_tile *t, int rows, int width)
{
    typedef void tile_fn(const lti_tile *t);
    static tile_fn *const fn[LTI_MR][2] = {LTI_TILE_MAP(LTI_TILE_SLOT)};
    fn[rows - 1][width / LTI_LANES - 1](t);
}

/* ---- epilogue ---- */

/* x * sigmoid(z): SiLU, and GELU in its tanh form, since (1 + tanh(u)) / 2 = sigmoid(2u). */
static inline vec times_sigmoid(vec x, vec z)
{
    return v_div(x, v_add(v_set1(1), v_exp(v_mul(z, v_set1(-1)))));
}

static inline vec gelu_erf(vec x)
{
    float t[LTI_LANES];
    v_store(t, x);
    for (int i = 0; i < LTI_LANES; i++)
        t[i] = 0.5f * t[i] * (1 + erff(t[i] * 0.70710678f));
    return v_load(t);
}

static inline vec activate(vec y, lt_act act)
{
    if (act == LT_ACT_SILU) return times_sigmoid(y, y);
    if (act == LT_ACT_GELU_ERF) return gelu_erf(y);
    /* 2u = 2 sqrt(2 / pi) (y + 0.044715 y^3) */
    const vec cubic = v_fma(v_mul(v_set1(0.07135481627f), y), y, v_set1(1.5957691216f));
    return times_sigmoid(y, v_mul(cubic, y));
}

/* `act`, `res` and `type` are constants where it pays: on a short sum the epilogue is a twentieth of the time. */
__attribute__((always_inline)) static inline void finish_as(const lti_finish *f, const bool act,
                                                            const bool res, const lt_dtype type)
{
    for (int64_t i = 0; i < f->rows; i++) {
        const float *gate = f->gate;
        if (gate && f->group) gate += f->group[i] * f->gate_ld;
        for (int64_t j = 0; j < f->cols; j += LTI_LANES) {
            const int n = (int)lti_min64(LTI_LANES, f->cols - j);
            vec y = v_add(v_load(f->c + i * f->width + j), v_load(f->bias + j));
            if (act) y = activate(y, f->act);
            if (res) {
                const vec r = v_load_n(f->res + i * f->res_stride + j, n);
                y = gate ? v_fma(v_load_n(gate + j, n), y, r) : v_add(r, y);
            }
            if (type == LT_F32)
                v_store_n((float *)f->out + i * f->out_stride + j, y, n);
            else
                v_store_bf16_n((uint16_t *)f->out + i * f->out_stride + j, y, n);
        }
    }
}

static void finish(const lti_finish *f)
{
    if (f->act != LT_ACT_NONE || f->res)
        finish_as(f, f->act != LT_ACT_NONE, f->res != NULL, f->out_type);
    else if (f->out_type == LT_F32)
        finish_as(f, false, false, LT_F32);
    else
        finish_as(f, false, false, LT_BF16);
}

/* ---- copies ---- */

static void pack_f32(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const float *src = (const float *)p->src + i * p->src_stride;
        float *dst = (float *)p->dst + i * p->dst_stride;
        int64_t k = 0;
        for (; k + LTI_LANES <= p->len; k += LTI_LANES)
            v_store(dst + k, v_load(src + k));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? src[k] : 0;
    }
}
