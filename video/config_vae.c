/* config_vae.c: the shape of a Wan2.1 VAE, walked along its decoder and encoder. The modules stand in one flat list (spec 3.3):
 * residual blocks of a level, then what changes the size, then the next level; so widths, levels, blocks and which levels stretch
 * time are all in the tensors, and the configuration only has to agree.
 */
#include "video/config.h"
#include "video/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 14, MAX_MODULES = LT_VAE_MAX_LEVELS * 16 };

/* One half as it was found, in the order of the list. */
typedef struct half {
    bool there;
    int32_t first; /* width of conv1's output */
    int32_t last;  /* width before the last convolution */
    int32_t z;     /* channels on the latent's side */
    int32_t levels;
    int32_t blocks; /* residual blocks a level */
    int32_t width[LT_VAE_MAX_LEVELS];
    bool time[LT_VAE_MAX_LEVELS]; /* after that level, time changes too */
} half;

static const lti_entry *entry(const lti_tensors *t, int ndim, const char *fmt, ...) LT_PRINTF(3, 4);
static const lti_entry *entry(const lti_tensors *t, int ndim, const char *fmt, ...)
{
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const lti_entry *e = lti_tensors_find(t, name);
    if (!e || e->ndim != ndim) return NULL;
    for (int i = 0; i < ndim; i++)
        if (e->dim[i] < 1 || e->dim[i] > MAX_WIDTH) return NULL;
    return e;
}

static lt_status odd(lt_ctx *ctx, const lti_tensors *t, const char *what, int32_t module)
{
    return lti_fail(ctx, LT_ERR_SHAPE, "%s: VAE: %s.%d does not fit the others",
                    lti_tensors_path(t), what, module);
}

static lt_status walk(half *h, lt_ctx *ctx, const lti_tensors *t, const char *list)
{
    int32_t blocks = 0, level = 0, k = 0;
    for (; k < MAX_MODULES; k++) {
        const lti_entry *res = entry(t, 5, "%s.%d.residual.2.weight", list, k);
        const lti_entry *size = entry(t, 4, "%s.%d.resample.1.weight", list, k);
        if (!res && !size) break;
        if (res) {
            if (level == LT_VAE_MAX_LEVELS || (blocks && h->width[level] != res->dim[0]))
                return odd(ctx, t, list, k);
            h->width[level] = (int32_t)res->dim[0];
            blocks++;
            continue;
        }
        if (!blocks || (level && blocks != h->blocks) || level + 1 >= LT_VAE_MAX_LEVELS)
            return odd(ctx, t, list, k);
        h->blocks = blocks;
        h->time[level++] = entry(t, 5, "%s.%d.time_conv.weight", list, k) != NULL;
        blocks = 0;
    }
    if (!blocks || (level && blocks != h->blocks)) return odd(ctx, t, list, k);
    h->blocks = blocks;
    h->levels = level + 1;
    return LT_OK;
}

static lt_status read_half(half *h, lt_ctx *ctx, const lti_tensors *t, bool decoder)
{
    *h = (half){0};
    const char *side = decoder ? "decoder" : "encoder";
    const char *list = decoder ? "decoder.upsamples" : "encoder.downsamples";
    const lti_entry *in = entry(t, 5, "%s.conv1.weight", side);
    if (!in) return LT_OK;
    const lti_entry *out = entry(t, 5, "%s.head.2.weight", side);
    if (!out) {
        char name[64], stored[256];
        snprintf(name, sizeof name, "%s.head.2.weight", side);
        lti_tensors_stored_name(t, name, stored, sizeof stored);
        return lti_fail(ctx, LT_ERR_MISSING, "%s: the VAE tensor \"%s\" is missing",
                        lti_tensors_path(t), stored);
    }
    const int64_t pixels = decoder ? out->dim[0] : in->dim[1];
    if (entry(t, 5, "%s.0.%s.0.residual.2.weight", list, decoder ? "upsamples" : "downsamples") ||
        pixels == 12)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: the VAE of Wan2.2 is not supported yet",
                        lti_tensors_path(t));
    if (pixels != 3)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: a VAE of %" PRId64 " picture channels is not supported",
                        lti_tensors_path(t), pixels);
    h->there = true;
    h->first = (int32_t)in->dim[0];
    h->last = (int32_t)out->dim[1];
    h->z = (int32_t)(decoder ? in->dim[1] : out->dim[0] / 2);
    return walk(h, ctx, t, list);
}

/* ---- halves to a configuration ----------------------------------------------------------- */

static lt_status multipliers(int32_t *mult, lt_ctx *ctx, const lti_tensors *t, const half *h,
                             bool decoder)
{
    const int32_t base = decoder ? h->last : h->first;
    for (int32_t i = 0; i < h->levels; i++) {
        const int32_t w = h->width[decoder ? h->levels - 1 - i : i];
        if (w % base)
            return lti_fail(ctx, LT_ERR_SHAPE, "%s: VAE: width %d of level %d is no multiple of %d",
                            lti_tensors_path(t), w, i, base);
        mult[i] = w / base;
    }
    return LT_OK;
}

static lt_status from_tensors(lt_vae_config *c, lt_ctx *ctx, const lti_tensors *t)
{
    half enc, dec;
    LT_TRY(read_half(&dec, ctx, t, true));
    LT_TRY(read_half(&enc, ctx, t, false));
    if (!enc.there && !dec.there)
        return lti_fail(ctx, LT_ERR_MISSING,
                        "%s: the VAE tensor \"decoder.conv1.weight\" is missing",
                        lti_tensors_path(t));
    const half *h = dec.there ? &dec : &enc;
    *c = (lt_vae_config){.z_dim = h->z,
                         .encoder_dim = enc.there ? enc.first : dec.last,
                         .decoder_dim = dec.there ? dec.last : enc.first,
                         .levels = h->levels,
                         .num_res_blocks = dec.there ? dec.blocks - 1 : enc.blocks,
                         .compute = LT_F32,
                         .no_encoder = !enc.there,
                         .no_decoder = !dec.there};
    if (h->z > LT_VAE_MAX_Z || c->num_res_blocks < 1)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: a VAE of %d latent channels and %d blocks a level is not supported",
                        lti_tensors_path(t), h->z, c->num_res_blocks);
    LT_TRY(multipliers(c->mult, ctx, t, h, dec.there));
    for (int32_t i = 0; i + 1 < h->levels; i++)
        c->temporal_down[i] = h->time[dec.there ? h->levels - 2 - i : i];
    if (!enc.there || !dec.there) return LT_OK;

    int32_t mult[LT_VAE_MAX_LEVELS] = {0};
    LT_TRY(multipliers(mult, ctx, t, &enc, false));
    bool same = enc.levels == dec.levels && enc.z == dec.z && enc.blocks + 1 == dec.blocks;
    for (int32_t i = 0; same && i < enc.levels; i++)
        same = mult[i] == c->mult[i] && (i + 1 == enc.levels || enc.time[i] == c->temporal_down[i]);
    if (!same)
        return lti_fail(ctx, LT_ERR_SHAPE, "%s: encoder and decoder of the VAE do not fit together",
                        lti_tensors_path(t));
    return LT_OK;
}

/* ---- the JSON ---------------------------------------------------------------------------- */

static lt_status agree_array(lt_ctx *ctx, const json_t *j, const char *name, const char *key,
                             const int32_t *tensors, int32_t n)
{
    const json_t *a;
    LT_TRY(lti_json_array(ctx, j, key, name, 0, 64, &a));
    if (!a) return LT_OK;
    bool same = json_array_size(a) == (size_t)n;
    for (int32_t i = 0; same && i < n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);
        same = (json_is_boolean(v) ? json_is_true(v) : json_integer_value(v)) == tensors[i];
    }
    if (same) return LT_OK;
    char *said = json_dumps(a, JSON_COMPACT), here[160] = "[";
    for (int32_t i = 0; i < n; i++)
        snprintf(here + strlen(here), sizeof here - strlen(here), "%s%d", i ? "," : "", tensors[i]);
    const lt_status s = lti_fail(ctx, LT_ERR_SHAPE, "%s says %s = %s, the tensors say %s]", name,
                                 key, said ? said : "?", here);
    free(said);
    return s;
}

static lt_status read_stats(float *out, lt_ctx *ctx, const json_t *j, const char *name,
                            const char *key, int32_t z, bool positive, bool *found)
{
    const json_t *a;
    LT_TRY(lti_json_array(ctx, j, key, name, (size_t)z, (size_t)z, &a));
    *found = a != NULL;
    for (int32_t i = 0; a && i < z; i++) {
        const json_t *v = json_array_get(a, (size_t)i);
        const double x = json_number_value(v);
        if (!json_is_number(v) || x > 1e6 || x < (positive ? 1e-6 : -1e6))
            return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\"[%d] is no usable number", name, key, i);
        out[i] = (float)x;
    }
    return LT_OK;
}

static lt_status from_json(lt_vae_config *c, lt_ctx *ctx, const json_t *j, const char *name)
{
    int64_t patch = 1;
    bool residual = false;
    LT_TRY(lti_json_int(ctx, j, "patch_size", name, 0, 64, &patch, NULL));
    LT_TRY(lti_json_bool(ctx, j, "is_residual", name, &residual, NULL));
    if (patch > 1 || residual)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: the VAE of Wan2.2 is not supported yet",
                        name);
    if (json_array_size(json_object_get(j, "attn_scales")))
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: attention within the levels (attn_scales) is not supported", name);
    LT_TRY(lti_config_agree(ctx, j, name, "z_dim", c->z_dim));
    LT_TRY(lti_config_agree(ctx, j, name, "num_res_blocks", c->num_res_blocks));
    if (!c->no_encoder) LT_TRY(lti_config_agree(ctx, j, name, "base_dim", c->encoder_dim));
    if (!c->no_decoder) LT_TRY(lti_config_agree(ctx, j, name, "decoder_base_dim", c->decoder_dim));
    LT_TRY(agree_array(ctx, j, name, "dim_mult", c->mult, c->levels));
    int32_t time[LT_VAE_MAX_LEVELS];
    for (int32_t i = 0; i + 1 < c->levels; i++)
        time[i] = c->temporal_down[i];
    return agree_array(ctx, j, name, "temperal_downsample", time, c->levels - 1);
}

/* The latent's scale: said by the configuration, or that of the published VAE when it is that one. */
static lt_status latent_scale(lt_vae_config *c, lt_ctx *ctx, const lti_tensors *t, const json_t *j,
                              const char *name)
{
    bool mean, std;
    LT_TRY(read_stats(c->mean, ctx, j, name, "latents_mean", c->z_dim, false, &mean));
    LT_TRY(read_stats(c->std, ctx, j, name, "latents_std", c->z_dim, true, &std));
    if (mean && std) return LT_OK;
    const lt_vae_config wan = lt_vae_config_wan21();
    if (mean || std || c->z_dim != wan.z_dim)
        return lti_fail(ctx, LT_ERR_MISSING,
                        "%s: a VAE of %d latent channels needs latents_mean and latents_std in its "
                        "config.json",
                        lti_tensors_path(t), c->z_dim);
    memcpy(c->mean, wan.mean, sizeof c->mean);
    memcpy(c->std, wan.std, sizeof c->std);
    return LT_OK;
}

lt_status lti_vae_config_read(lt_vae_config *out, lt_ctx *ctx, const lti_tensors *t,
                              const char *json, const char *json_name)
{
    LT_TRY(from_tensors(out, ctx, t));
    json_t *j;
    LT_TRY(lti_json_config(&j, ctx, json, json_name));
    lt_status s = j ? from_json(out, ctx, j, json_name) : LT_OK;
    if (s >= 0) s = latent_scale(out, ctx, t, j, json_name);
    json_decref(j);
    return s;
}
