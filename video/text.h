/* text.h: the text encoder (UMT5, encoder half) on the operation table. Private to video/ (and tests).
 *
 *   ids ─► rows of the embedding (read one by one) ─► per layer: pack its matrices, run, free ─► final norm ─► rows
 *
 * Only real tokens are computed: the reference masks padding as keys and drops its rows, so nothing changes (spec 4.3). Several texts
 * go through the layers together, because reading a layer costs more than computing it; rows do not depend on their company.
 */
#ifndef LTI_VIDEO_TEXT_H
#define LTI_VIDEO_TEXT_H

#include "kernels/kernels.h"

typedef struct lti_text_config {
    int32_t vocab, dim, heads, head_dim, ffn_dim, layers;
    int32_t buckets, max_distance; /* of the relative position bias: 32, 128 */
    int32_t max_tokens;            /* EOS included: 512 */
    float eps;                     /* 1e-6 */
} lti_text_config;

typedef struct lti_text_job {
    const lti_text_config *config;
    const lt_tensor_source
        *source;      /* canonical names, "blocks.0.attn.q.weight" (spec 4.6, first column) */
    lt_dtype compute; /* inputs of matrix products: LT_F32 or LT_BF16; the residual stream is f32 */
    int32_t texts;
    const int32_t *const *ids; /* [texts] */
    const int32_t *len;        /* [texts], each 1..max_tokens */
    /* Called after every layer on the caller's thread; false = stop with LT_ERR_CANCELLED. NULL = none. */
    bool (*layer_done)(void *user, int32_t done, int32_t layers);
    void *user;
} lti_text_job;

/* out: host, [sum of len, dim] f32, the texts one after the other. Everything on the device is freed on return.
 * Errors: LT_ERR_ARG (an id outside the vocabulary, a length), LT_ERR_MISSING, LT_ERR_SHAPE, LT_ERR_MEM, LT_ERR_CANCELLED,
 * LT_ERR_NUMERIC (rows that are not finite). */
LT_MUST_USE lt_status lti_text_encode(lt_dev *dev, float *out, const lti_text_job *job);
/* Device bytes that this takes at its highest: packed layer + activations. No device needed. */
uint64_t lti_text_bytes(const lti_text_config *c, lt_dtype compute, int32_t rows);
/* FLOPs (2 a multiply-add) of encoding one text of n tokens. */
double lti_text_flops(const lti_text_config *c, int32_t n);

/* Every tensor of a configuration: canonical name and shape. */
typedef void lti_text_tensor_fn(void *user, const char *name, int ndim, const int64_t *dim);
void lti_text_list_tensors(const lti_text_config *c, lti_text_tensor_fn *fn, void *user);

#endif
