/* gemm.h: packed weights as matrix products and convolutions read them, and what their files share.
 *
 * Letters: n output column, k input channel, tap position of a convolution (1 tap: a matrix product).
 *
 * The columns are cut into panels of `nr` (the last one of as many vectors as it needs), the channels into chunks of
 * `kc` (the last one shorter, rounded up to LTI_K_STEP * pair with zeros). A panel lies in one piece, in the order in which it
 * is read: chunk, tap, k, n. With `pair` 2, k and k + 1 of a column lie side by side, for products of bf16 pairs. `half`: the
 * numbers are f16, each column divided by a power of two that makes its largest one lie in [1, 2).
 * Sums run chunk after chunk, tap after tap, k after k: the layout alone fixes their order. */
#ifndef LTI_GEMM_H
#define LTI_GEMM_H

#include "kernels/internal.h"

enum { LTI_K_STEP = 4, LTI_VECS_MAX = 4, LTI_TILE_MAX = 14 * 64 };

struct lt_weight {
    int64_t out, in;
    int taps;
    lt_dtype compute;
    lti_isa isa;    /* of the device that packed it */
    int nr, vl;     /* columns of a panel, of a vector: the last panel is a multiple of these */
    int pair;       /* k side by side */
    bool half;      /* a matrix whose numbers are multiplied in f16: panels of f16 */
    int64_t kc;     /* channels a chunk, a multiple of LTI_K_STEP * pair */
    int64_t chunks; /* of each panel */
    int64_t kpad;   /* channels with padding: (chunks - 1) * kc + the last chunk */
    int64_t panels;
    size_t bytes;
    void *data;   /* device: panels, f32 or bf16 as `compute` says, or f16 */
    float *bias;  /* device: [panels * nr], zeros where there is none */
    float *scale; /* half: [panels * nr], what the columns were divided by; else NULL */
    /* The same numbers once more where `out` would leave most of a panel empty: taps 3j, 3j + 1, 3j + 2 as columns side by side
     * of tap j, column tap % 3 * out + n; NULL = none. */
    struct lt_weight *triple;
};

/* Fills what isa, compute, out, in and taps decide: nr .. panels. */
void lti_weight_layout(lt_weight *w);

static inline int64_t lti_div_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}
static inline int lti_panel_width(const lt_weight *w, int64_t panel)
{
    const int64_t left = w->out - panel * w->nr;
    return left >= w->nr ? w->nr : (int)((left + w->vl - 1) / w->vl) * w->vl;
}
static inline int64_t lti_chunk_len(const lt_weight *w, int64_t chunk)
{
    return chunk < w->chunks - 1 ? w->kc : w->kpad - chunk * w->kc;
}
/* First element of a panel, and of a chunk in a panel of width `width`. */
static inline int64_t lti_panel_at(const lt_weight *w, int64_t panel)
{
    return panel * w->nr * w->kpad * w->taps;
}
static inline int64_t lti_chunk_at(const lt_weight *w, int64_t chunk, int width)
{
    return chunk * w->kc * w->taps * width;
}

/* ---- the micro-kernels of an instruction set ---- */

/* Where a tap stands: bytes from lti_tile.a and lti_tile.b. */
typedef struct lti_tap_at {
    int64_t a, b;
} lti_tap_at;

/* c[i, j] (+)= sum over taps t, groups k of a_t[i, k] * b_t[k, j] for i < rows, j < width. A group is 4 bytes: an f32, or
 * two bf16 neighbours in k, or one f16 twice. Every row sums in the same order whatever `rows` is. */
typedef struct lti_tile {
    float *c; /* [rows, width], packed */
    const char *a, *b;
    int64_t a_stride; /* bytes from row to row */
    const char
        *row_scale; /* f16: a float, a_stride to that of the next row, to multiply the sums with */
    const lti_tap_at *tap;
    int ntaps;
    int64_t groups; /* a tap; a multiple of LTI_K_STEP */
    bool add;
    const char *ahead; /* called into the second cache on the way: a line a LTI_K_STEP of groups, */
    int64_t ahead_step; /* bytes to the next one */
    /* Not NULL: the sums are complete, and with `bias` [width] they go to row i at out + i * out_stride bytes, not to c. */
    char *out;
    const float *bias, *scale; /* scale: f16, of the columns */
    int64_t out_stride;
    lt_dtype out_type;
} lti_tile;

/* out[i, j] = act(c[i, j] * scale[j] + bias[j]) * gate[group[i], j] + res[i, j] for i < rows, j < cols. */
typedef struct lti_finish {
    const float *c; /* [rows, width] */
    int64_t rows, width, cols;
    const float *bias, *scale; /* [width]; scale of f16 only */
    lt_act act;
    const float *gate; /* NULL = 1 */
    int64_t gate_ld;
    const int32_t *group; /* [rows]; NULL = all 0 */
    const float *res;     /* NULL = 0; may be out */
    int64_t res_stride, out_stride;
    void *out;
    lt_dtype out_type;
} lti_finish;

/* dst[i, j] = c[i, j] + c[i + 1, cols + j] + c[i + 2, 2 * cols + j] for i < rows, j < cols; dst may be c. */
typedef struct lti_fold {
    float *dst;     /* [rows, dst_width] */
    const float *c; /* [rows + 2, width] */
    int64_t rows, width, dst_width, cols;
} lti_fold;

/* dst[i, k] = src[i, k], k < len, then zeros up to `padded`; strides in elements. f16: twice each, every `chunk` of a row divided by
 * a power of two that makes its largest number lie in [4, 8), and these follow the row, a float a chunk. */
typedef struct lti_pack {
    void *dst;
    const void *src;
    int64_t dst_stride, src_stride, rows, len, padded, chunk;
} lti_pack;

typedef struct lti_gemm_ops {
    /* most rows of a tile that is 1, 2.. vectors wide; rows * width <= LTI_TILE_MAX */
    int mr[LTI_VECS_MAX];
    void (*tile)(const lti_tile *t, int rows, int width);
    void (*finish)(const lti_finish *f);
    void (*fold)(const lti_fold *f);
    void (*pack_f32)(const lti_pack *p);  /* f32 to f32 */
    void (*pack_bf16)(const lti_pack *p); /* bf16 to what the tile reads */
    void (*widen)(float *dst, const uint16_t *src,
                  int64_t n); /* NULL: the tile reads what is in the panel */
    /* f16 only. Of n numbers of a file, without alignment: the largest magnitude; all of them times `by`. */
    float (*largest)(const void *src, lt_dtype type, int64_t n);
    void (*halve)(uint16_t *dst, const void *src, lt_dtype type, int64_t n, float by);
} lti_gemm_ops;

extern const lti_gemm_ops lti_gemm_portable, lti_gemm_avx2, lti_gemm_avx512, lti_gemm_avx512bf16,
    lti_gemm_avx512fp16;

/* Those that multiply with this weight. */
const lti_gemm_ops *lti_gemm_ops_of(const lt_weight *w);

/* ---- the blocked product over them: gemm.c ---- */

/* out[y, x, n] for y < rows, x < cols, as a convolution with live taps only; a matrix product is one row of M columns
 * and one tap. Strides in elements. */
typedef struct lti_gemm {
    const lt_weight *w; /* what is multiplied */
    const lt_weight *
        narrow; /* w is the triple of this one: tap[i] is the leftmost of three neighbours; else NULL */
    const void *frame[3];
    int64_t in_row, in_px, in_step;
    int ntaps;
    lt_tap tap[LT_MAX_TAPS];
    int tap_index[LT_MAX_TAPS]; /* in the weight */
    int64_t rows, cols;
    void *out;
    lt_dtype out_type;
    int64_t out_row, out_px;
    const float *res;
    int64_t res_row, res_px;
    lt_act act;
    const float *gate;
    int64_t gate_ld;
    const int32_t *group; /* by x: matrix products only */
} lti_gemm;

LT_MUST_USE lt_status lti_gemm_run(lt_dev *dev, const lti_gemm *g);

lt_linear_fn lti_linear_gemm; /* linear.c */
lt_conv_fn lti_conv_gemm;     /* conv.c */

/* Every version checks its arguments through these, so that all give the same message. */
LT_MUST_USE lt_status lti_check_linear(lt_dev *dev, const lt_linear_args *a);
LT_MUST_USE lt_status lti_check_conv(lt_dev *dev, const lt_conv_args *a);

/* For the references and tests: element (n, k, tap) as f32, after rounding to the compute type; one column of them, element (k, tap)
 * at k * taps + tap. */
float lti_weight_at(const lt_weight *w, int64_t n, int64_t k, int tap);
void lti_weight_column(const lt_weight *w, int64_t n, float *out);

#endif
