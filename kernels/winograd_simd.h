/* winograd_simd.h: the three transforms of winograd.h, written once over vec.h; winograd_<isa>.c includes it and is compiled
 * for its instruction set. */
#include "kernels/vec.h"
#include "kernels/winograd.h"

/* Column c of B' d. */
__attribute__((always_inline)) static inline void
in_column(vf out[4], const lti_wino_in *a, int64_t c, int64_t k, int64_t n, const lt_dtype type)
{
    const int64_t at = lti_min64(c, a->columns - 1) * a->px;
    vf d[4];
    for (int i = 0; i < 4; i++)
        d[i] = vf_get(a->row[i] + at, type, k, n);
    out[0] = d[0] - d[2];
    out[1] = d[1] + d[2];
    out[2] = d[2] - d[1];
    out[3] = d[1] - d[3];
}

/* Neighbouring tiles share two columns: each is read and added up once. */
__attribute__((always_inline)) static inline void
in_run(const lti_wino_in *a, int64_t k, const int64_t n, const int64_t n_out, const lt_dtype type)
{
    const int64_t tiles = a->tiles, stride = a->product_stride;
    vf c[4][4];
    in_column(c[0], a, 0, k, n, type);
    in_column(c[1], a, 1, k, n, type);
    for (int64_t t = 0; t < tiles; t++) {
        float *v = a->v + t * a->tile_stride + k;
        in_column(c[2], a, 2 * t + 2, k, n, type);
        in_column(c[3], a, 2 * t + 3, k, n, type);
        for (int i = 0; i < 4; i++, v += 4 * stride) {
            vf_store_n(v, c[0][i] - c[2][i], n_out);
            vf_store_n(v + stride, c[1][i] + c[2][i], n_out);
            vf_store_n(v + 2 * stride, c[2][i] - c[1][i], n_out);
            vf_store_n(v + 3 * stride, c[1][i] - c[3][i], n_out);
            c[0][i] = c[2][i];
            c[1][i] = c[3][i];
        }
    }
}

static void in(const lti_wino_in *a)
{
    for (int64_t k = 0; k < a->padded; k += VL) {
        const int64_t n = lti_min64(VL, a->len - k), n_out = lti_min64(VL, a->padded - k);
        if (n == VL && a->type == LT_F32)
            in_run(a, k, VL, VL, LT_F32);
        else if (n == VL)
            in_run(a, k, VL, VL, LT_BF16);
        else
            in_run(a, k, n, n_out, a->type);
    }
}

/* Four products from a row of G g. */
static inline void weight_row(float *u, int64_t stride, vf a, vf b, vf c)
{
    const vf ends = a + c;
    vf_store_n(u, a, VL);
    vf_store_n(u + stride, ends + b, VL);
    vf_store_n(u + 2 * stride, ends - b, VL);
    vf_store_n(u + 3 * stride, c, VL);
}

__attribute__((always_inline)) static inline void weights_as(const lti_wino_weights *a,
                                                             const lt_dtype type, const bool inner)
{
    const int64_t s = a->product_stride, tap = a->tap_stride, n = a->n;
    const char *w = a->w;
    float *u = a->u, *u2 = u + 4 * s;
    for (int64_t i = 0; i < n; i += VL) {
        vf upper[3], lower[3];
        for (int x = 0; x < 3; x++) {
            const vf top = vf_get(w, type, x * tap + i, VL),
                     bottom = vf_get(w, type, (6 + x) * tap + i, VL);
            if (inner) {
                const vf mid = vf_get(w, type, (3 + x) * tap + i, VL);
                const vf ends = top + bottom;
                upper[x] = ends + mid;
                lower[x] = ends - mid;
            } else {
                upper[x] = top;
                lower[x] = bottom;
            }
        }
        weight_row(u + i, s, upper[0], upper[1], upper[2]);
        weight_row(u2 + i, s, lower[0], lower[1], lower[2]);
    }
}

static void weights(const lti_wino_weights *a)
{
    if (a->type == LT_F32)
        a->inner ? weights_as(a, LT_F32, true) : weights_as(a, LT_F32, false);
    else
        a->inner ? weights_as(a, LT_BF16, true) : weights_as(a, LT_BF16, false);
}

static void out(const lti_wino_out *a)
{
    const vf half = vf_set(0.5f);
    for (int64_t t = 0; t < a->tiles; t++)
        for (int64_t j = 0; j < a->width; j += VL) {
            const float *m = a->m + t * a->width + j;
            float *y = a->y + 2 * t * a->width + j;
            vf s[2][4];
            for (int x = 0; x < 4; x++) {
                vf p[4];
                for (int i = 0; i < 4; i++)
                    p[i] = vf_load_n(m + (4 * i + x) * a->product_stride, VL);
                s[0][x] = vf_fma(half, p[1] + p[2], p[0]);
                s[1][x] = vf_fma(half, p[1] - p[2], -p[3]);
            }
            for (int r = 0; r < 2; r++) {
                vf_store_n(y + r * a->y_row, vf_fma(half, s[r][1] + s[r][2], s[r][0]), VL);
                vf_store_n(y + r * a->y_row + a->width, vf_fma(half, s[r][1] - s[r][2], -s[r][3]),
                           VL);
            }
        }
}
