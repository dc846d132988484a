/* gemm_simd.h: the micro-kernel, the epilogue and the copies, written once over vec.h; gemm_<isa>.c includes it and is
 * compiled for its instruction set. With LTI_BF16_PAIRS the tile reads pairs of bf16 (vdpbf16ps), with LTI_HALF the one of
 * gemm_half.h reads f16, else f32.
 *
 * Register tile: rows x 4 vectors with AVX-512 (x 2 with AVX2; fewer in a narrow last panel), every sum in a register. Per group of
 * k: a load of each vector of b and one broadcast a row, used for each of them. The rows fill the registers: 6 x 4, 9 x 3 or 14 x 2
 * of 32, 6 x 2 of 16. 6 x 4 takes the fewest instructions and loads a product (34 for 24, 14 x 2 takes 44 for 28): on a
 * core of its own all of them reach 98 %, but where another thread has half of the core, as on a shared server, 6 x 4 reached
 * 88 % of the peak measured beside it, 9 x 3 83, 14 x 2 79.
 *   - a broadcast to a register, not a memory operand of the product: the latter is loaded once per use (-15 %)
 *   - three rows to a pointer, base + {0, 1, 2} * stride: 14 rows need 5 pointers and no spill
 *   - short tiles have instances of their own, the same sums in the same order, so that a row's bits do not depend on where
 *     it stands; down to 8 sums they are as fast a row, so a block is cut into tiles of even size
 *   - what comes next is called from memory by one instruction in LTI_K_STEP, because a row of them would wait for the few
 *     that can be under way
 * In the first caches the AVX-512 tile runs at 97 to 99 % of the FMA peak measured beside it (90 % one vector wide: there
 * each broadcast is used once and the loads are the limit). */
#include "kernels/gemm.h"
#include "kernels/vec.h"

/* X(rows, vectors) */
#define LTI_TILE_MAP_6(X, v) X(1, v) X(2, v) X(3, v) X(4, v) X(5, v) X(6, v)
#define LTI_TILE_MAP_9(X, v) LTI_TILE_MAP_6(X, v) X(7, v) X(8, v) X(9, v)
#define LTI_TILE_MAP_14(X, v) LTI_TILE_MAP_9(X, v) X(10, v) X(11, v) X(12, v) X(13, v) X(14, v)
#if defined(__AVX512F__)
enum { LTI_MR = 14 };
#define LTI_TILE_MAPS(X) \
    LTI_TILE_MAP_14(X, 1) LTI_TILE_MAP_14(X, 2) LTI_TILE_MAP_9(X, 3) LTI_TILE_MAP_6(X, 4)
#define LTI_TILE_ROWS 14, 14, 9, 6
#elif defined(__AVX2__)
enum { LTI_MR = 6 };
#define LTI_TILE_MAPS(X) LTI_TILE_MAP_6(X, 1) LTI_TILE_MAP_6(X, 2)
#define LTI_TILE_ROWS 6, 6
#else
enum { LTI_MR = 4 };
#define LTI_TILE_MAP_4(X, v) X(1, v) X(2, v) X(3, v) X(4, v)
#define LTI_TILE_MAPS(X) LTI_TILE_MAP_4(X, 1) LTI_TILE_MAP_4(X, 2)
#define LTI_TILE_ROWS 4, 4
#endif

/* Loops of fixed length around registers must disappear, or the sums go through memory. */
#if defined(__clang__)
#define LTI_UNROLL _Pragma("unroll")
#else
#define LTI_UNROLL _Pragma("GCC unroll 16")
#endif

static inline vf load(const void *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void store(void *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

#if defined(LTI_HALF)
#include "kernels/gemm_half.h"
#else

enum { LANES = VL }; /* columns of a vector */

/* The group at p in every lane, and c + a * b. */
#if defined(LTI_BF16_PAIRS)
static inline vf spread(const char *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
}
static inline vf dot(vf a, vf b, vf c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
#else
static inline vf spread(const char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
#if defined(__AVX512F__)
    return _mm512_set1_ps(x);
#elif defined(__AVX2__)
    return _mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}
static inline vf dot(vf a, vf b, vf c)
{
    return vf_fma(a, b, c);
}
#endif

/* ---- tile ---- */

#define LTI_ROW(p, i) ((p)[(i) / 3] + ((i) % 3) * stride + 4 * kk)

__attribute__((always_inline)) static inline void tile_n(const lti_tile *t, const int rows,
                                                         const int vecs)
{
    enum { POINTERS = (LTI_MR + 2) / 3 };
    vf c[LTI_MR][LTI_VECS_MAX];
    const int64_t stride = t->a_stride, ahead_step = t->ahead_step;
    const char *ahead = t->ahead;
    LTI_UNROLL
    for (int i = 0; i < rows; i++) {
        LTI_UNROLL
        for (int v = 0; v < vecs; v++)
            c[i][v] = (vf){0};
    }
    for (int tap = 0; tap < t->ntaps; tap++) {
        const char *p[POINTERS];
        const char *b = t->b + t->tap[tap].b;
        LTI_UNROLL
        for (int i = 0; i < (rows + 2) / 3; i++)
            p[i] = t->a + t->tap[tap].a + 3 * i * stride;
        for (int64_t left = t->groups; left > 0; left -= LTI_K_STEP) {
            __builtin_prefetch(ahead, 0, 2); /* to the second cache */
            ahead += ahead_step;
            LTI_UNROLL
            for (int kk = 0; kk < LTI_K_STEP; kk++) {
                vf bv[LTI_VECS_MAX];
                LTI_UNROLL
                for (int v = 0; v < vecs; v++)
                    bv[v] = load(b + (kk * vecs + v) * (int)sizeof(vf));
                LTI_UNROLL
                for (int i = 0; i < rows; i++) {
                    const vf a = spread(LTI_ROW(p, i));
                    LTI_UNROLL
                    for (int v = 0; v < vecs; v++)
                        c[i][v] = dot(a, bv[v], c[i][v]);
                }
            }
            LTI_UNROLL
            for (int i = 0; i < (rows + 2) / 3; i++)
                p[i] += 4 * LTI_K_STEP;
            b += LTI_K_STEP * vecs * (int)sizeof(vf);
        }
    }
    if (t->add) {
        LTI_UNROLL
        for (int i = 0; i < rows; i++) {
            LTI_UNROLL
            for (int v = 0; v < vecs; v++)
                c[i][v] += load(t->c + (i * vecs + v) * VL);
        }
    }
    if (t->out) {
        char *out = t->out;
        LTI_UNROLL
        for (int i = 0; i < rows; i++, out += t->out_stride) {
            LTI_UNROLL
            for (int v = 0; v < vecs; v++) {
                const vf y = c[i][v] + load(t->bias + v * VL);
                vf_put(out, t->out_type, v * VL, VL, y);
            }
        }
        return;
    }
    LTI_UNROLL
    for (int i = 0; i < rows; i++) {
        LTI_UNROLL
        for (int v = 0; v < vecs; v++)
            store(t->c + (i * vecs + v) * VL, c[i][v]);
    }
}

#endif

#define LTI_TILE(n, v)                            \
    static void tile_##n##_##v(const lti_tile *t) \
    {                                             \
        tile_n(t, n, v);                          \
    }
#define LTI_TILE_SLOT(n, v) [v - 1][n - 1] = tile_##n##_##v,

LTI_TILE_MAPS(LTI_TILE)

static void tile(const lti_tile *t, int rows, int width)
{
    typedef void tile_fn(const lti_tile *t);
    static tile_fn *const fn[LTI_VECS_MAX][LTI_MR] = {LTI_TILE_MAPS(LTI_TILE_SLOT)};
    fn[width / LANES - 1][rows - 1](t);
}

/* ---- epilogue ---- */

/* `act`, `res` and `type` are constants where it pays: on a short sum the epilogue is a twentieth of the time. */
__attribute__((always_inline)) static inline void finish_as(const lti_finish *f, const bool act,
                                                            const bool res, const lt_dtype type)
{
    for (int64_t i = 0; i < f->rows; i++) {
        const float *gate = f->gate;
        if (gate && f->group) gate += f->group[i] * f->gate_ld;
        for (int64_t j = 0; j < f->cols; j += VL) {
            const int n = (int)lti_min64(VL, f->cols - j);
#if defined(LTI_HALF)
            vf y = vf_fma(load(f->c + i * f->width + j), load(f->scale + j), load(f->bias + j));
#else
            vf y = load(f->c + i * f->width + j) + load(f->bias + j);
#endif
            if (act) y = vf_act(f->act, y);
            if (res) {
                const vf r = vf_load_n(f->res + i * f->res_stride + j, n);
                if (gate)
                    y = vf_fma(vf_load_n(gate + j, n), y, r);
                else
                    y += r;
            }
            if (type == LT_F32)
                vf_store_n((float *)f->out + i * f->out_stride + j, y, n);
            else
                vf_store_bf16_n((uint16_t *)f->out + i * f->out_stride + j, y, n);
        }
    }
}

static void fold(const lti_fold *f)
{
    for (int64_t i = 0; i < f->rows; i++)
        for (int64_t j = 0; j < f->cols; j += VL) {
            const float *c = f->c + i * f->width + j;
            const int64_t n = f->cols - j;
            const vf y = vf_load_n(c, n) + vf_load_n(c + f->width + f->cols, n);
            store(f->dst + i * f->dst_width + j, y + vf_load_n(c + 2 * (f->width + f->cols), n));
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
        for (; k + VL <= p->len; k += VL)
            store(dst + k, load(src + k));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? src[k] : 0;
    }
}

#if defined(LTI_HALF) /* has its own */
#elif defined(LTI_BF16_PAIRS)

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        uint16_t *dst = (uint16_t *)p->dst + i * p->dst_stride;
        int64_t k = 0;
        for (; k + 2 * VL <= p->len; k += 2 * VL)
            store(dst + k, load(src + k));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? src[k] : 0;
    }
}

#else

static void pack_bf16(const lti_pack *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const uint16_t *src = (const uint16_t *)p->src + i * p->src_stride;
        float *dst = (float *)p->dst + i * p->dst_stride;
        int64_t k = 0;
        for (; k + VL <= p->len; k += VL)
            store(dst + k, vf_load_bf16_n(src + k, VL));
        for (; k < p->padded; k++)
            dst[k] = k < p->len ? lti_bf16_to_f32(src[k]) : 0;
    }
}

static void widen(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL)
        store(dst + i, vf_load_bf16_n(src + i, VL));
}

#endif

#if defined(LTI_HALF)
#define LTI_GEMM_LAST .largest = largest, .halve = halve
#elif defined(LTI_BF16_PAIRS)
#define LTI_GEMM_LAST .widen = NULL
#else
#define LTI_GEMM_LAST .widen = widen
#endif
#define LTI_GEMM_TABLE                                                                             \
    {                                                                                              \
        .mr = {LTI_TILE_ROWS}, .tile = tile, .finish = finish, .fold = fold, .pack_f32 = pack_f32, \
        .pack_bf16 = pack_bf16, LTI_GEMM_LAST                                                      \
    }
