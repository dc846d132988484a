/* config.h: what a model is, from its tensors and its configuration files. Private to video/ (and tests).
 * Tensors are believed first; a configuration that contradicts them is an error that names both values.
 */
#ifndef LTI_VIDEO_CONFIG_H
#define LTI_VIDEO_CONFIG_H

#include "vae/vae.h"
#include "video/files.h"
#include "video/text.h"

#include <jansson.h>

typedef struct lti_dit_config {
    int32_t dim, ffn_dim, heads, head_dim, layers;
    int32_t in_channels, out_channels;
    int32_t text_dim, text_len; /* rows that cross-attention sees: 512 */
    int32_t freq_dim;           /* 256 */
    int32_t patch;              /* 2: patch (1, 2, 2) */
    int32_t max_pos;            /* positions on each axis, 1024 */
    float eps;                  /* 1e-6 */
    bool causal;                /* class CausalWanModel: distilled for blocks and few steps */
    bool frame_timesteps; /* trained with a timestep per frame (TI2V): takes clean first frames */
} lti_dit_config;

typedef struct lti_config {
    lti_dit_config dit;
    lti_text_config text;
    lt_vae_config vae;  /* compute: LT_F32, to be set by whoever opens the model */
    lt_sigma_grid grid; /* LT_GRID_AUTO unless a scheduler_config.json says otherwise */
    lt_model_info
        info; /* everything but dtype, which the device decides; complete as far as parts are there */
} lti_config;

/* Reads the configuration of the parts that are there. Errors: LT_ERR_FORMAT (JSON, impossible values), LT_ERR_SHAPE (tensors
 * that no configuration explains, contradictions), LT_ERR_UNSUPPORTED (a family of the Wan house that is not there yet: message
 * names it), LT_ERR_MISSING. */
LT_MUST_USE lt_status lti_config_read(lti_config *out, lt_ctx *ctx, const lti_model_files *files);

/* What a part's tensors have against its configuration: arrays of texts, stored names within. */
typedef struct lti_findings {
    json_t *missing, *shape, *type, *unknown;
} lti_findings;
LT_MUST_USE lt_status lti_config_compare(lti_findings *out, lt_ctx *ctx, const lti_config *c,
                                         const lti_tensors *t);
void lti_findings_free(lti_findings *f);

/* Compares the tensors of the parts that are there with what the configuration asks for: names, shapes, types. The first
 * missing or misshapen tensor is the error, with the number of others. Unknown tensors: an error for the DiT (they mean another
 * architecture: control branches, image branches, adapters that would be dropped in silence and change the video), a warning in the
 * log for VAE and text encoder (their files often carry a second half that is not used). */
LT_MUST_USE lt_status lti_config_check(lt_ctx *ctx, const lti_config *c,
                                       const lti_model_files *files);
/* The same for one set of tensors: c needs only the part that these are. */
LT_MUST_USE lt_status lti_config_check_part(lt_ctx *ctx, const lti_config *c, const lti_tensors *t);

/* The DiT's part alone, for tests that have no folder: config of the tensors in `t` and the JSON text `json` (or NULL). */
LT_MUST_USE lt_status lti_dit_config_read(lti_dit_config *out, lt_ctx *ctx, const lti_tensors *t,
                                          const char *json, const char *json_name);
LT_MUST_USE lt_status lti_text_config_read(lti_text_config *out, lt_ctx *ctx, const lti_tensors *t,
                                           const char *json, const char *json_name);
LT_MUST_USE lt_status lti_vae_config_read(lt_vae_config *out, lt_ctx *ctx, const lti_tensors *t,
                                          const char *json, const char *json_name);

/* LT_ERR_SHAPE when the JSON says another number for `key` than the tensors; `name`: of the JSON. */
LT_MUST_USE lt_status lti_config_agree(lt_ctx *ctx, const json_t *j, const char *name,
                                       const char *key, int64_t tensors);

/* Every tensor that a part of this configuration has, in order of the network: canonical name and shape. */
typedef lt_vae_tensor_fn lti_tensor_fn;
void lti_dit_list_tensors(const lti_dit_config *c, lti_tensor_fn *fn, void *user);
/* "[1536,16,1,2,2]", for messages. */
void lti_shape_text(char *out, size_t size, int ndim, const int64_t *dim);
/* Calls the list function of that part. */
void lti_config_list_tensors(const lti_config *c, lti_part part, lti_tensor_fn *fn, void *user);

#endif
