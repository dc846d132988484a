/* model_internal.h: what an open model is, for the files that make sessions of it. */
#ifndef LTI_VIDEO_MODEL_INTERNAL_H
#define LTI_VIDEO_MODEL_INTERNAL_H

#include "attention/attention.h"
#include "video/config.h"
#include "video/dit.h"
#include "video/files.h"
#include "video/text_cache.h"
#include "video/tokenizer.h"

struct lt_model {
    lt_dev *dev;
    lt_ctx *ctx;
    lti_model_files *
        files; /* text encoder and VAE stay open: one is streamed a prompt, one lends its encoder */
    lti_config config;
    lt_dtype dtype;
    uint64_t
        fingerprint; /* of names, shapes and samples of all tensors: another training, another number */
    lti_dit *dit;
    lt_vae *vae; /* decoder half */
    lti_tokenizer *tokenizer;
    lti_text_cache *texts;
};

/* Rows of several texts, host memory. */
enum { LTI_MAX_TEXTS = 2 };
typedef struct lti_text_rows {
    float *rows; /* malloc'd, all texts one after the other */
    const float *of[LTI_MAX_TEXTS];
    int32_t n[LTI_MAX_TEXTS];
} lti_text_rows;

/* Tokenises and encodes `texts` texts together. `layer_done` as in lti_text_job. */
LT_MUST_USE lt_status lti_model_encode(lt_model *m, lti_text_rows *out, const char *const *text,
                                       int32_t texts,
                                       bool (*layer_done)(void *user, int32_t done, int32_t layers),
                                       void *user);
void lti_text_rows_free(lti_text_rows *r);

/* The latent frames of a video of its own, RGB [frames, height, width, 3] in host memory, frames 4 k + 1: *z is device memory
 * [z_dim, k + 1, h * w], freed with lt_dev_free. Encodes in f32: bf16 shifts a latent that conditions others (spec, pitfall 8).
 * `cancel` may be NULL. */
LT_MUST_USE lt_status lti_model_encode_frames(lt_model *m, float **z, const uint8_t *rgb,
                                              int32_t frames, int32_t width, int32_t height,
                                              const atomic_bool *cancel);

/* What a session of these options takes; `o` has passed lt_session_validate. Leaves `available` and `cfg_batch` 0. Bytes with both
 * branches in one batch when `batch`. */
void lti_estimate(lt_estimate *out, const lti_config *c, lt_dtype dtype,
                  const lt_session_options *o, bool batch);
/* Bytes that this process may still take: what the system has free, or less where a control group that it is in is limited, of which
 * pages of files are free. root: what stands before /proc and /sys: "", but in tests. */
uint64_t lti_available_bytes(const char *root);
/* Chooses cfg_batch and checks the peak: LT_ERR_MEM with the figures when it does not fit. `loaded`: bytes of the estimate that are
 * taken already. */
LT_MUST_USE lt_status lti_estimate_fit(lt_estimate *out, lt_ctx *ctx, const lti_config *c,
                                       lt_dtype dtype, const lt_session_options *o,
                                       uint64_t loaded);
/* What a session of these options keeps. Errors: LT_ERR_ARG. */
LT_MUST_USE lt_status lti_session_policy(lt_cache_policy *out, lt_ctx *ctx,
                                         const lt_model_info *info, const lt_session_options *o);
/* The scheduler of these options. */
lt_scheduler_options lti_schedule(const lti_config *c, const lt_session_options *o);

#endif
