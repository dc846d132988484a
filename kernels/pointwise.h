/* pointwise.h: what the memory-bound operations share: checks of their arguments, and Philox. */
#ifndef LTI_POINTWISE_H
#define LTI_POINTWISE_H

#include "kernels/internal.h"

/* Every version of an operation checks its arguments through these, so that all give the same message. */
#define LTI_CHECK_DECLARE(name) \
    LT_MUST_USE lt_status lti_check_##name(lt_dev *dev, const lt_##name##_args *a);
LTI_CHECK_DECLARE(convert)
LTI_CHECK_DECLARE(norm)
LTI_CHECK_DECLARE(qknorm)
LTI_CHECK_DECLARE(channorm)
LTI_CHECK_DECLARE(lincomb)
LTI_CHECK_DECLARE(map)
LTI_CHECK_DECLARE(patch)
LTI_CHECK_DECLARE(noise)
LTI_CHECK_DECLARE(latent_image)
LTI_CHECK_DECLARE(rgb8)
LTI_CHECK_DECLARE(stats)
LTI_CHECK_DECLARE(tilemean)
LTI_CHECK_DECLARE(tilescore)
LTI_CHECK_DECLARE(merge)
LTI_CHECK_DECLARE(fft2)
#undef LTI_CHECK_DECLARE

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): four 32-bit numbers from a 128-bit counter and a 64-bit key. */
static inline void lti_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

enum { LTI_MAX_HEAD_DIM = 1024 }; /* of qknorm: a token's turns are held on the stack */

/* An operation on rows (elements, lines of pixels or tokens) begin .. end - 1; args is the operation's struct. */
typedef void lti_span_fn(const void *args, int64_t begin, int64_t end);

typedef struct lti_stats_part {
    int64_t bad;
    float min, max; /* FLT_MAX, -FLT_MAX when there was no finite number */
    double sum, squares;
} lti_stats_part;

typedef struct lti_spans {
    lti_span_fn *convert, *norm, *qknorm, *channorm, *lincomb, *map, *patch, *noise, *latent_image,
        *rgb8, *tilemean, *tilescore, *merge;
    void (*stats_block)(lti_stats_part *part, const float *x, int64_t n);
} lti_spans;
extern const lti_spans lti_spans_portable; /* pointwise_portable.c, and so on */
extern const lti_spans lti_spans_avx2;
extern const lti_spans lti_spans_avx512;

/* Distances of a latent's planes, defaults filled in. */
static inline int64_t lti_frame_stride(const lt_patch_args *a)
{
    return a->frame_stride ? a->frame_stride : (int64_t)a->h * a->w;
}
static inline int64_t lti_channel_stride(const lt_patch_args *a)
{
    return a->channel_stride ? a->channel_stride : (int64_t)a->frames * a->h * a->w;
}

#endif
