/* dit.h: the diffusion transformer of Wan on the operation table. Private to video/ (and tests).
 *
 *   weights ─► lti_dit          packed once, shared, read-only
 *   prompt  ─► lti_prompt       K and V of cross-attention of every block, once a prompt
 *   grid, timesteps ─► lti_dit_run   modulation tables of the whole schedule, positions, plan, scratch: once a schedule
 *   latents ─► lti_dit_forward  one pass for one or more samples stacked in rows; allocates nothing
 *
 * Precision (spec 1.9): time path, modulation, norms, residual stream and head in f32; inputs of the other matrix products and of
 * attention in the compute type.
 * A sample's result does not depend on what else is in the batch, on the threads, or on the rows taken at a time.
 * Letters: N tokens of a sample, D width, F width of the feed-forward layer, G timesteps of the schedule.
 */
#ifndef LTI_VIDEO_DIT_H
#define LTI_VIDEO_DIT_H

#include "attention/attention.h"
#include "video/config.h"

#include <stdatomic.h>

typedef struct lti_dit lti_dit;

/* Packs all weights; tells `source` when a tensor's bytes are no longer needed. `dev` must outlive *out.
 * Errors: LT_ERR_MISSING, LT_ERR_SHAPE (name the tensor), LT_ERR_MEM. On failure *out is NULL. */
LT_MUST_USE lt_status lti_dit_create(lti_dit **out, lt_dev *dev, const lti_dit_config *config,
                                     lt_dtype compute, const lt_tensor_source *source);
void lti_dit_destroy(lti_dit **dit);
const lti_dit_config *lti_dit_get_config(const lti_dit *dit);
lt_dtype lti_dit_compute(const lti_dit *dit);
lt_dev *lti_dit_device(const lti_dit *dit);
/* Device bytes of the packed weights, padding of the packing left out. */
uint64_t lti_dit_weight_bytes(const lti_dit_config *c, lt_dtype compute);

/* What the passes leave behind for whoever wants to look (parity tests): device memory, valid during the call.
 * name "patch_tokens", "q_roped", "k_roped", "v", "out", "head_tokens"; from lti_prompt_create "context_emb"; from
 * lti_dit_run_create "time_emb", "time_proj". block -1 outside the blocks. */
typedef struct lti_probe {
    lt_status (*fn)(void *user, const char *name, int32_t block, const lt_mat *m, int64_t rows,
                    int64_t cols);
    void *user;
} lti_probe;

typedef struct lti_prompt lti_prompt;
/* rows: host, [n, text_dim] f32, the real rows of the text encoder, 1 <= n <= text_len; the rest up to text_len are zeros, which
 * all give the same key, kept once. `tokens`: N of the passes it will be used in. Errors: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE lt_status lti_prompt_create(lti_prompt **out, const lti_dit *dit, const float *rows,
                                        int32_t n, int64_t tokens, const lti_probe *probe);
void lti_prompt_destroy(lti_prompt **prompt);
int64_t lti_prompt_keys(const lti_prompt *prompt); /* n, + 1 for padding */

enum { LTI_DIT_BATCH = 2 };

typedef struct lti_dit_run_options {
    int32_t frames, h, w; /* of the latent; h and w multiples of the patch */
    int32_t batch;        /* samples of the largest pass, 1..LTI_DIT_BATCH */
    const double *times;  /* the timesteps that passes will name by index, 0..1000 */
    int32_t ntimes;
    const lti_probe *probe;          /* or NULL; kept */
    const lt_sparse_spec *attention; /* of self-attention; NULL = dense */
    const lt_cache_policy *cache;    /* of the caches that passes will use; NULL: they use none */
} lti_dit_run_options;

typedef struct lti_dit_run lti_dit_run;
/* Reserves everything that passes use. `dit` must outlive it. Errors: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE lt_status lti_dit_run_create(lti_dit_run **out, const lti_dit *dit,
                                         const lti_dit_run_options *opt);
void lti_dit_run_destroy(lti_dit_run **run);
int64_t lti_dit_run_tokens(const lti_dit_run *run);
/* Self-attention so far: keys read over keys there were, and what else the planner counts. */
double lti_dit_run_density(const lti_dit_run *run);
void lti_dit_run_stats(const lti_dit_run *run, lt_sparse_stats *out);
/* Operations of self-attention that were left out so far. */
double lti_dit_run_skipped(const lti_dit_run *run);
/* Device bytes that `attention` takes beside lti_dit_run_bytes. No device needed. */
uint64_t lti_dit_sparse_bytes(const lti_dit_config *c, lt_dtype compute, int32_t frames, int32_t h,
                              int32_t w, const lt_sparse_spec *attention,
                              const lt_cache_policy *cache);
/* Device bytes that lti_dit_run_create takes for `batch` samples of a latent. No device needed. */
uint64_t lti_dit_run_bytes(const lti_dit_config *c, lt_dtype compute, int32_t frames, int32_t h,
                           int32_t w, int32_t batch, int32_t ntimes);

typedef struct lti_dit_args {
    int32_t batch;
    const float
        *x[LTI_DIT_BATCH];   /* device, [in_channels, frames, h, w] f32; may be the same latent */
    float *v[LTI_DIT_BATCH]; /* device, [out_channels, frames, h, w] f32 */
    const lti_prompt *prompt[LTI_DIT_BATCH];
    int32_t time;    /* index into times, of every token */
    double progress; /* part of the steps that are done, 0..1: sparse attention warms up */
    int32_t branch;  /* number of the first sample, of those that take turns: 0 or 1 */
    const int32_t
        *token_time; /* host, [N] indices into times, one a token; NULL = `time` for all */
    /* Causal passes: the samples are the open block of their caches (all, and of as many frames), which they write into and read;
     * positions are the cache's. NULL: bidirectional. */
    lt_cache *cache[LTI_DIT_BATCH];
    int32_t frames;            /* with caches: of this pass, at most the run's; 0 = the run's */
    const atomic_bool *cancel; /* polled between the parts of a block; NULL = never */
} lti_dit_args;

/* One pass. Samples with the same x share the first self-attention unless they have caches. Errors: LT_ERR_ARG, LT_ERR_CANCELLED, LT_ERR_MEM. */
LT_MUST_USE lt_status lti_dit_forward(lti_dit_run *run, const lti_dit_args *a);

/* Operations (2 a multiply-add) that lti_dit_forward executes for samples with these numbers of text keys: products and
 * attention only. */
double lti_dit_flops(const lti_dit_config *c, int64_t tokens, int32_t batch, const int64_t *keys,
                     bool same_x);
/* The same for one sample whose self-attention reads `visible` keys of a cache. */
double lti_dit_causal_flops(const lti_dit_config *c, int64_t tokens, int64_t visible, int64_t keys);

#endif
