/* winograd.h: 3 x 3 convolutions by Winograd's F(2x2, 3x3): 16 products make four outputs of a channel, not 36.
 *
 *   A tile is two by two outputs and the four by four inputs d around them; g the nine weights of a channel, 1 to 16 of every
 *   frame:     out = A' [ (G g G') . (B' d B) ] A          . product by product, summed over channels and frames before A
 *
 *        | 1  0 -1  0 |        | 1  0  0 |        | 1 1/2  1/2  0 |     G is twice the usual one in its middle rows and A' half
 *   B' = | 0  1  1  0 |    G = | 1  1  1 |   A' = | 0 1/2 -1/2 -1 |     of it in its middle columns: powers of two, no rounding,
 *        | 0 -1  1  0 |        | 1 -1  1 |                              and where they are they cost nothing.
 *        | 0  1  0 -1 |        | 0  0  1 |
 *
 * The tiles begin at output (0, 0): which tile an output belongs to does not depend on the call. The inputs that only a tile's
 * outputs beyond the edge would read (odd sizes) may be anything: they are in no sum of the others.
 *
 * Source: Lavin and Gray 2015, arXiv:1509.09308. */
#ifndef LTI_WINOGRAD_H
#define LTI_WINOGRAD_H

#include "kernels/gemm.h"

enum { LTI_WINO_PRODUCTS = 16 };

/* v[p, i, k] = (B' d B)[p] of tile i of a row of tiles, channel k < len, then zeros up to `padded`. */
typedef struct lti_wino_in {
    float *v;
    int64_t tile_stride, product_stride; /* elements of v */
    const char *row[4];                  /* the rows of d, at the first column, first channel */
    int64_t px;                          /* bytes from column to column */
    int64_t tiles, columns;              /* columns there are; behind them the last one serves */
    int64_t len, padded;
    lt_dtype type;
} lti_wino_in;

/* u[p, i] = (G g G')[p] for the eight products of rows 1 and 2, or of rows 0 and 3: half of them, so that they fit into the
 * caches. Element i of tap t at w + t * tap_stride + i, in elements; n is a multiple of a vector. */
typedef struct lti_wino_weights {
    float *u;
    int64_t product_stride;
    const char *w;
    lt_dtype type;
    int64_t tap_stride, n;
    bool inner;
} lti_wino_weights;

/* y[r, 2 i + c, j] = (A' m A)[r, c] of tile i, column j < width; m[p, i, j] packed from tile to tile. */
typedef struct lti_wino_out {
    float *y;
    int64_t y_row; /* elements */
    const float *m;
    int64_t product_stride, tiles, width;
} lti_wino_out;

typedef struct lti_wino_ops {
    void (*in)(const lti_wino_in *a);
    void (*weights)(const lti_wino_weights *a);
    void (*out)(const lti_wino_out *a);
} lti_wino_ops;

extern const lti_wino_ops lti_wino_portable, lti_wino_avx2, lti_wino_avx512;

/* Is this convolution one of these and faster so? By the shapes of weight and picture alone. */
bool lti_wino_serves(const lti_gemm *g, int64_t picture_h, int64_t picture_w);
LT_MUST_USE lt_status lti_wino_run(lt_dev *dev, const lti_gemm *g);

#endif
