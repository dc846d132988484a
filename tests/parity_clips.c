/* parity_clips.c: cases of kind `clips`: videos through the encoder and the decoder of a model folder (`model`, relative to the case) and
 * back. What is lost, in dB over all of them and within the boxes of their objects, is at most what the case allows.
 * in.<k>.video [frames, H, W, 3] of 0..255, in.<k>.box [frames, 4]: x0 y0 x1 y1, k = 0, 1, ...
 */
#include "tests/parity.h"

#include "video/model_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Squared errors of 8-bit values: of everything, of first frames, of what is in the boxes. */
enum { WHOLE, FIRST, BOX, SUMS };
typedef struct loss {
    double sum[SUMS], n[SUMS];
} loss;

static void add_frame(loss *l, const uint8_t *got, const float *want, const float *box, int32_t h,
                      int32_t w, bool first)
{
    for (int32_t y = 0; y < h; y++)
        for (int32_t x = 0; x < w; x++)
            for (int64_t i = ((int64_t)y * w + x) * 3, k = 0; k < 3; k++, i++) {
                const float fx = (float)x, fy = (float)y;
                const double d = (double)got[i] - (double)want[i];
                const bool in[SUMS] = {true, first,
                                       fx >= box[0] && fy >= box[1] && fx < box[2] && fy < box[3]};
                for (int s = 0; s < SUMS; s++) {
                    l->sum[s] += in[s] ? d * d : 0;
                    l->n[s] += in[s];
                }
            }
}

/* z [z_dim, latents, h w] to frames, each compared. */
static lt_status decode(lt_parity *p, lt_vae_decoder *dec, const float *z, int64_t latents,
                        int64_t area, const lt_parity_array *video, const lt_parity_array *box,
                        loss *l)
{
    const int32_t h = (int32_t)video->dim[1], w = (int32_t)video->dim[2];
    const int64_t pixels = (int64_t)h * w;
    uint8_t *host = malloc((size_t)pixels * 3);
    void *rgb = NULL;
    lt_status s = host ? LT_OK : lti_fail(p->ctx, LT_ERR_MEM, "no memory for a frame");
    if (s >= 0) s = lt_dev_alloc(p->dev, &rgb, (size_t)pixels * 3, LT_TAG_TEST);
    for (int64_t t = 0, frame = 0; s >= 0 && t < latents; t++) {
        lt_image img;
        s = lt_vae_decoder_push(dec, z + t * area, latents * area);
        while (s == LT_OK && (s = lt_vae_decoder_next(dec, &img)) == LT_OK) {
            s = lt_rgb8(p->dev, &(lt_rgb8_args){.rgb = rgb, .img = img});
            if (s >= 0) s = lt_dev_download(p->dev, host, rgb, (size_t)pixels * 3);
            if (s >= 0 && frame < video->dim[0])
                add_frame(l, host, video->data + frame * pixels * 3, box->data + frame * 4, h, w,
                          frame == 0);
            frame++;
        }
    }
    lt_dev_free(p->dev, rgb);
    free(host);
    return s < 0 ? s : LT_OK;
}

static lt_status there_and_back(lt_parity *p, lt_model *m, const lt_parity_array *video,
                                const lt_parity_array *box, loss *l)
{
    if (video->ndim != 4 || video->dim[3] != 3 || box->n != video->dim[0] * 4)
        return lti_fail(p->ctx, LT_ERR_SHAPE, "a video is [frames, H, W, 3], its box [frames, 4]");
    const int32_t frames = (int32_t)video->dim[0], h = (int32_t)video->dim[1],
                  w = (int32_t)video->dim[2], scale = m->config.info.spatial_scale;
    uint8_t *rgb = malloc((size_t)video->n);
    lt_vae_decoder *dec = NULL;
    float *z = NULL;
    lt_status s = rgb ? LT_OK : lti_fail(p->ctx, LT_ERR_MEM, "no memory for a video");
    for (int64_t i = 0; s >= 0 && i < video->n; i++)
        rgb[i] = (uint8_t)video->data[i];
    if (s >= 0) s = lti_model_encode_frames(m, &z, rgb, frames, w, h, NULL);
    if (s >= 0) s = lt_vae_decoder_create(&dec, m->vae, h / scale, w / scale);
    if (s >= 0)
        s = decode(p, dec, z, (frames - 1) / m->config.info.frame_scale + 1,
                   (int64_t)(h / scale) * (w / scale), video, box, l);
    lt_vae_decoder_destroy(&dec);
    lt_dev_free(p->dev, z);
    free(rgb);
    return s;
}

static void judge(lt_parity *p, const loss *l)
{
    static const char *const names[SUMS] = {"whole", "first", "box"};
    for (int i = 0; i < SUMS; i++) {
        const double db = -10 * log10(l->sum[i] / l->n[i] / (255.0 * 255.0));
        const double least = lt_parity_number(json_object_get(p->config, "least_db"), names[i]);
        const bool good = db >= least;
        printf("%s %s psnr=%.2f dB, at least %.2f%s\n", p->file, names[i], db, least,
               good ? "" : " FAILED");
        p->compared++;
        p->failed += !good;
    }
}

lt_status lt_parity_clips(lt_parity *p)
{
    lt_model *m;
    loss l = {0};
    LT_TRY(lt_parity_open_model(p, &m));
    const int64_t clips = lt_parity_int(p->config, "clips");
    lt_status s = LT_OK;
    for (int k = 0; s >= 0 && k < clips; k++) {
        const lt_parity_array *video, *box;
        s = lt_parity_get(p, &video, "in.%d.video", k);
        if (s >= 0) s = lt_parity_get(p, &box, "in.%d.box", k);
        if (s >= 0) s = there_and_back(p, m, video, box, &l);
    }
    if (s >= 0) judge(p, &l);
    lt_model_close(&m);
    return s;
}
