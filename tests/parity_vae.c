/* parity_vae.c: golden cases of kind `vae`: decoding and encoding by the original code, with the stream after named modules in
 * debug runs. The 2.2 VAE is a skip. */
#include "tests/parity.h"
#include "vae/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- configuration ----------------------------------------------------------------------- */

static lt_status read_list(lt_parity *p, const json_t *list, const char *key, size_t max)
{
    if (json_array_size(list) < 1 || json_array_size(list) > max)
        return lti_fail(p->ctx, LT_ERR_FORMAT, "config.vae.%s: %zu values, wanted 1..%zu", key,
                        json_array_size(list), max);
    return LT_OK;
}

static lt_status read_stats(lt_parity *p, lt_vae_config *c)
{
    const lt_parity_array *mean, *std;
    LT_TRY(lt_parity_get(p, &mean, "in.latents_mean"));
    LT_TRY(lt_parity_get(p, &std, "in.latents_std"));
    if (mean->n != c->z_dim || std->n != c->z_dim)
        return lti_fail(p->ctx, LT_ERR_SHAPE,
                        "latents_mean and latents_std: %lld and %lld values, wanted %d",
                        (long long)mean->n, (long long)std->n, c->z_dim);
    memcpy(c->mean, mean->data, (size_t)mean->n * sizeof(float));
    memcpy(c->std, std->data, (size_t)std->n * sizeof(float));
    return LT_OK;
}

static lt_status read_config(lt_parity *p, lt_vae_config *c)
{
    const json_t *vae = json_object_get(p->config, "vae");
    const json_t *mult = json_object_get(vae, "dim_mult"),
                 *down = json_object_get(vae, "temperal_downsample");
    const char *repo = json_string_value(json_object_get(p->config, "repo"));
    if (repo && strcmp(repo, "wan21"))
        return lti_fail(p->ctx, LT_ERR_UNSUPPORTED, "the VAE of %s is not supported yet", repo);
    LT_TRY(read_list(p, mult, "dim_mult", LT_VAE_MAX_LEVELS));
    LT_TRY(read_list(p, down, "temperal_downsample", LT_VAE_MAX_LEVELS - 1));
    const char *half = json_string_value(json_object_get(p->config, "half"));
    *c = (lt_vae_config){.z_dim = (int32_t)lt_parity_int(vae, "z_dim"),
                         .encoder_dim = (int32_t)lt_parity_int(vae, "dim"),
                         .decoder_dim = (int32_t)lt_parity_int(vae, "dim"),
                         .levels = (int32_t)json_array_size(mult),
                         .num_res_blocks = (int32_t)lt_parity_int(vae, "num_res_blocks"),
                         .compute = p->dtype,
                         .no_encoder = half && !strcmp(half, "decoder"),
                         .no_decoder = half && !strcmp(half, "encoder")};
    for (int i = 0; i < c->levels; i++) {
        c->mult[i] = (int32_t)json_integer_value(json_array_get(mult, (size_t)i));
        c->temporal_down[i] = json_is_true(json_array_get(down, (size_t)i));
    }
    if (c->z_dim < 1 || c->z_dim > LT_VAE_MAX_Z)
        return lti_fail(p->ctx, LT_ERR_FORMAT, "config.vae.z_dim is %d", c->z_dim);
    return read_stats(p, c);
}

/* ---- debug outputs ----------------------------------------------------------------------- */

/* Frames of one module in one chunk, channels first as the file has them: [c, frames, h, w]. */
typedef struct trace {
    char name[16];
    int32_t frames, c, h, w;
    float *data; /* [frames][h][w][c] as they come */
} trace;

enum { MAX_TRACES = 48 };
typedef struct traces {
    lt_dev *dev;
    int n;
    trace t[MAX_TRACES];
} traces;

static const char *short_name(const char *node, char *out, size_t size)
{
    static const char *const middle[] = {"mid0", "mid_attn", "mid2"};
    int i;
    if (sscanf(node, "decoder.middle.%d", &i) == 1 && i >= 0 && i < 3) return middle[i];
    if (sscanf(node, "decoder.upsamples.%d", &i) != 1) return NULL;
    snprintf(out, size, "up%d", i);
    return out;
}

static lt_status keep(void *user, const char *node, const lt_image *x)
{
    traces *all = user;
    char text[16];
    const char *name = short_name(node, text, sizeof text);
    trace *t = all->t;
    if (!name) return LT_OK;
    while (t < all->t + all->n && strcmp(t->name, name))
        t++;
    if (t == all->t + all->n) {
        if (all->n == MAX_TRACES) return LT_OK;
        all->n++;
        *t = (trace){.c = x->c, .h = x->h, .w = x->w};
        snprintf(t->name, sizeof t->name, "%s", name);
    }
    const size_t each = (size_t)x->h * (size_t)x->w * (size_t)x->c;
    float *data = realloc(t->data, (size_t)(t->frames + 1) * each * sizeof(float));
    if (!data) return LT_ERR_MEM;
    t->data = data;
    return lt_dev_download(all->dev, data + (size_t)t->frames++ * each, x->data,
                           each * sizeof(float));
}

/* in [frames][pixels][c] to out [c][frames][pixels] */
static void to_planes(float *out, const float *in, int64_t frames, int64_t pixels, int64_t c)
{
    for (int64_t i = 0; i < frames * pixels; i++)
        for (int64_t k = 0; k < c; k++)
            out[k * frames * pixels + i] = in[i * c + k];
}

static void forget(traces *all)
{
    for (int i = 0; i < all->n; i++)
        free(all->t[i].data);
    all->n = 0;
}

static lt_status compare_traces(lt_parity *p, traces *all, const char *run, int64_t chunk)
{
    lt_status s = LT_OK;
    for (int i = 0; i < all->n && s >= 0; i++) {
        const trace *t = &all->t[i];
        const int64_t pixels = (int64_t)t->h * t->w, n = t->frames * pixels * t->c;
        float *planes = malloc((size_t)n * sizeof *planes);
        if (!planes) s = lti_fail(p->ctx, LT_ERR_MEM, "no memory for %lld values", (long long)n);
        if (planes) {
            to_planes(planes, t->data, t->frames, pixels, t->c);
            lt_parity_compare(p, planes, n, "%s.chunk%lld.%s", run, (long long)chunk, t->name);
        }
        free(planes);
    }
    forget(all);
    return s;
}

/* ---- decoding ---------------------------------------------------------------------------- */

static lt_status decode_into(lt_parity *p, lt_vae_decoder *dec, const char *run,
                             const lt_parity_array *z, float *zdev, float *frames)
{
    const int64_t chunks = z->dim[1], pixels = z->dim[2] * z->dim[3];
    traces all = {.dev = p->dev};
    lt_status s = LT_OK;
    dec->flow.probe = keep;
    dec->flow.probe_user = &all;
    for (int64_t t = 0; t < chunks && s >= 0; t++) {
        lt_image img;
        s = lt_vae_decoder_push(dec, zdev + t * pixels, chunks * pixels);
        while (s == LT_OK && (s = lt_vae_decoder_next(dec, &img)) == LT_OK) {
            const size_t n = (size_t)img.h * (size_t)img.w * 3;
            s = lt_dev_download(p->dev, frames, img.data, n * sizeof(float));
            frames += n;
        }
        if (s >= 0) s = compare_traces(p, &all, run, t);
    }
    forget(&all);
    return s < 0 ? s : LT_OK;
}

static lt_status decode(lt_parity *p, lt_vae *vae, const char *run)
{
    const lt_parity_array *z;
    const lt_vae_config *c = lt_vae_get_config(vae);
    lt_vae_decoder *dec = NULL;
    void *zdev = NULL;
    LT_TRY(lt_parity_get(p, &z, "in.%s.z", run));
    if (z->ndim != 4 || z->dim[0] != c->z_dim)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "in.%s.z is not [%d, T, h, w]", run, c->z_dim);
    const int64_t scale = lt_vae_scale(c), video = 1 + (z->dim[1] - 1) * lt_vae_frame_scale(c);
    const int64_t pixels = z->dim[2] * scale * z->dim[3] * scale, n = video * pixels * 3;
    float *frames = calloc((size_t)n, sizeof *frames), *planes = calloc((size_t)n, sizeof *planes);
    lt_status s = frames && planes
                      ? LT_OK
                      : lti_fail(p->ctx, LT_ERR_MEM, "no memory for %lld values", (long long)n);
    if (s >= 0) s = lt_vae_decoder_create(&dec, vae, (int32_t)z->dim[2], (int32_t)z->dim[3]);
    if (s >= 0) s = lt_dev_alloc(p->dev, &zdev, (size_t)z->n * sizeof(float), LT_TAG_TEST);
    if (s >= 0) s = lt_dev_upload(p->dev, zdev, z->data, (size_t)z->n * sizeof(float));
    if (s >= 0) s = decode_into(p, dec, run, z, zdev, frames);
    if (s >= 0) {
        to_planes(planes, frames, video, pixels, 3);
        lt_parity_compare(p, planes, n, "%s.raw", run);
        for (int64_t i = 0; i < n; i++)
            planes[i] = planes[i] < -1 ? -1 : planes[i] > 1 ? 1 : planes[i];
        lt_parity_compare(p, planes, n, "%s.video", run);
    }
    lt_dev_free(p->dev, zdev);
    lt_vae_decoder_destroy(&dec);
    free(planes);
    free(frames);
    return s;
}

/* ---- encoding ---------------------------------------------------------------------------- */

static lt_status encode_into(lt_parity *p, lt_vae_encoder *enc, const lt_parity_array *v,
                             lt_image *img, float *host, float *zdev, int64_t chunks)
{
    const int64_t frames = v->dim[1], pixels = v->dim[2] * v->dim[3];
    const int32_t scale = lt_vae_scale(lt_vae_get_config(enc->vae));
    const int64_t small = pixels / scale / scale;
    int64_t done = 0;
    for (int64_t t = 0; t < frames; t++) {
        for (int64_t i = 0; i < pixels; i++)
            for (int64_t k = 0; k < 3; k++)
                host[i * 3 + k] = v->data[(k * frames + t) * pixels + i];
        LT_TRY(lt_dev_upload(p->dev, img->data, host, (size_t)pixels * 3 * sizeof(float)));
        LT_TRY(lt_vae_encoder_push(enc, img));
        if (done == chunks) continue;
        const lt_status s = lt_vae_encoder_next(enc, zdev + done * small, chunks * small);
        if (s < 0) return s;
        done += s == LT_OK;
    }
    if (done != chunks)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "%lld latent frames from %lld frames, wanted %lld",
                        (long long)done, (long long)frames, (long long)chunks);
    return LT_OK;
}

static lt_status encode(lt_parity *p, lt_vae *vae, const char *run)
{
    const lt_parity_array *v;
    const lt_vae_config *c = lt_vae_get_config(vae);
    lt_vae_encoder *enc = NULL;
    void *zdev = NULL;
    LT_TRY(lt_parity_get(p, &v, "in.%s.video", run));
    if (v->ndim != 4 || v->dim[0] != 3)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "in.%s.video is not [3, T, H, W]", run);
    lt_image img = {.dtype = LT_F32, .h = (int32_t)v->dim[2], .w = (int32_t)v->dim[3], .c = 3};
    const int64_t chunks = 1 + (v->dim[1] - 1) / lt_vae_frame_scale(c), scale = lt_vae_scale(c);
    const int64_t small = chunks * (img.h / scale) * (img.w / scale), n = small * c->z_dim;
    float *host = calloc((size_t)img.h * (size_t)img.w, 3 * sizeof *host),
          *z = calloc((size_t)n, sizeof *z);
    lt_status s = host && z ? LT_OK : lti_fail(p->ctx, LT_ERR_MEM, "no memory for run %s", run);
    if (s >= 0) s = lt_vae_encoder_create(&enc, vae, img.h, img.w);
    if (s >= 0) s = lt_dev_alloc(p->dev, &img.data, lt_image_bytes(&img), LT_TAG_TEST);
    if (s >= 0) s = lt_dev_alloc(p->dev, &zdev, (size_t)n * sizeof(float), LT_TAG_TEST);
    if (s >= 0) s = encode_into(p, enc, v, &img, host, zdev, chunks);
    if (s >= 0) s = lt_dev_download(p->dev, z, zdev, (size_t)n * sizeof(float));
    if (s >= 0) {
        lt_parity_compare(p, z, n, "%s.z", run);
        for (int64_t i = 0; i < n; i++)
            z[i] = z[i] * c->std[i / small] + c->mean[i / small];
        lt_parity_compare(p, z, n, "%s.mu", run);
    }
    lt_dev_free(p->dev, zdev);
    lt_dev_free(p->dev, img.data);
    lt_vae_encoder_destroy(&enc);
    free(z);
    free(host);
    return s;
}

/* ---- the case ---------------------------------------------------------------------------- */

static lt_status all_runs(lt_parity *p, lt_vae *vae)
{
    size_t i;
    const json_t *run;
    json_array_foreach(json_object_get(p->config, "runs"), i, run)
    {
        const char *name = json_string_value(json_object_get(run, "name"));
        if (!name) return lti_fail(p->ctx, LT_ERR_FORMAT, "config.runs[%zu] has no name", i);
        if (lt_parity_find(p, "in.%s.z", name)) LT_TRY(decode(p, vae, name));
        if (lt_parity_find(p, "in.%s.video", name)) LT_TRY(encode(p, vae, name));
    }
    return LT_OK;
}

lt_status lt_parity_vae(lt_parity *p)
{
    lti_config config = {0};
    lti_tensors *weights;
    lt_vae *vae = NULL;
    LT_TRY(read_config(p, &config.vae));
    LT_TRY(lt_parity_weights(p, &weights, LTI_PART_VAE, "weight."));
    const lt_tensor_source source = lti_tensors_source(weights);
    lt_status s = lti_config_check_part(p->ctx, &config, weights);
    if (s >= 0) s = lt_vae_create(&vae, p->dev, &config.vae, &source);
    if (s >= 0) s = all_runs(p, vae);
    lt_vae_destroy(&vae);
    lti_tensors_close(&weights);
    return s;
}
