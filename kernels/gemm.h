/* gemm.h: packed weights as matrix products and convolutions read them, and what their files share.
 *
 * Letters: n output column, k input channel, tap position of a convolution (1 tap: a matrix product).
 *
 * The columns are cut into panels of `nr` (the last one of `nr / 2` when that is enough), the channels into chunks of
 * `kc` (the last one shorter, rounded up to LTI_K_STEP with zeros). A panel lies in one piece, in the order in which it
 * is read: chunk, tap, k, n. With `pair` 2, k and k + 1 of a column lie side by side, for products of bf16 pairs.
 * Sums run chunk after chunk, tap after tap, k after k: the layout alone fixes their order. */
#ifndef LTI_GEMM_H
#define LTI_GEMM_H

#include "kernels/internal.h"

enum { LTI_K_STEP = 4, LTI_NR_MAX = 32 };

struct lt_weight {
    int64_t out, in;
    int taps;
    lt_dtype compute;
    lti_isa isa;    /* of the device that packed it */
    int nr, pair;   /* panel columns; k side by side */
    bool half;      /* the last panel may be nr / 2 wide */
    int64_t kc;     /* channels a chunk, a multiple of LTI_K_STEP */
    int64_t chunks; /* of each panel */
    int64_t kpad;   /* channels with padding: (chunks - 1) * kc + the last chunk */
    int64_t panels;
    size_t bytes;
    void *data;  /* device: panels, f32 or bf16 as `compute` says */
    float *bias; /* device: [panels * nr], zeros where there is none */
};

/* Fills what isa, compute, out, in and taps decide: nr .. panels. */
void lti_weight_layout(lt_weight *w);

static inline int lti_panel_width(const lt_weight *w, int64_t panel)
{
    const int64_t left = w->out - panel * w->nr;
    return w->half && left <= w->nr / 2 ? w->nr / 2 : w->nr;
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

/* Every version checks its arguments through these, so that all give the same message. */
LT_MUST_USE lt_status lti_check_linear(lt_dev *dev, const lt_linear_args *a);
LT_MUST_USE lt_status lti_check_conv(lt_dev *dev, const lt_conv_args *a);

/* One column of weights as f32, element (k, tap) at k * taps + tap: for the references. */
void lti_weight_column(const lt_weight *w, int64_t n, float *out);

#endif
