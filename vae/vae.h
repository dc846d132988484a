/* vae.h: latents to pixels and back, frame by frame, with a state of constant size (Wan2.1 causal VAE; source: Wan-Video/Wan2.1
 * wan/modules/vae.py restated in spec/wan.md 3). Knows nothing of prompts or schedules. Thread: the owner of ctx, for every function.
 *
 * T latent frames give 1 + 4 (T - 1) video frames: the first latent frame one, every later one four.
 */
#ifndef LT_VAE_H
#define LT_VAE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LT_VAE_MAX_LEVELS = 6, LT_VAE_MAX_Z = 64 };

typedef struct lt_vae_config {
    int32_t z_dim;
    int32_t encoder_dim, decoder_dim;            /* base widths: 96, 96 in Wan2.1 */
    int32_t levels;                              /* 4 */
    int32_t mult[LT_VAE_MAX_LEVELS];             /* 1 2 4 4 */
    int32_t num_res_blocks;                      /* 2; the decoder has one more a level */
    bool temporal_down[LT_VAE_MAX_LEVELS];       /* [levels - 1]: 0 1 1 */
    float mean[LT_VAE_MAX_Z], std[LT_VAE_MAX_Z]; /* of the latent: z_vae = z * std + mean */
    lt_dtype compute;                            /* LT_F32 or LT_BF16 */
    bool no_encoder, no_decoder; /* leave that half out (files that hold one half) */
} lt_vae_config;
/* The published Wan2.1 VAE, with its latent mean and std; compute type f32. */
LT_API lt_vae_config lt_vae_config_wan21(void);
/* Spatial factor (8) and temporal factor (4) of a configuration. */
LT_API int32_t lt_vae_scale(const lt_vae_config *c);
LT_API int32_t lt_vae_frame_scale(const lt_vae_config *c);

typedef struct lt_vae lt_vae; /* weights: shared, read-only after creation */
/* Tensors are asked for by their original names ("decoder.upsamples.0.residual.2.weight", "conv2.weight", spec 3.6).
 * Errors: LT_ERR_MISSING, LT_ERR_SHAPE, LT_ERR_DTYPE (message names the tensor), LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_vae_create(lt_vae **out, lt_dev *dev, const lt_vae_config *config,
                                           const lt_tensor_source *source);
LT_API void lt_vae_destroy(lt_vae **vae);
LT_API const lt_vae_config *lt_vae_get_config(const lt_vae *vae);

/* Every tensor that lt_vae_create would ask for, in order: name, shape (for inspection without loading). */
typedef void lt_vae_tensor_fn(void *user, const char *name, int ndim, const int64_t *dim);
LT_API void lt_vae_list_tensors(const lt_vae_config *config, lt_vae_tensor_fn *fn, void *user);

/* Decoder of one video of h x w latent pixels (each 1 .. 4096). All memory is reserved here. `vae` must outlive it. Errors of creation:
 * LT_ERR_ARG, LT_ERR_MEM; of a call: LT_ERR_ARG after a failure, those of operations. */
typedef struct lt_vae_decoder lt_vae_decoder;
LT_MUST_USE LT_API lt_status lt_vae_decoder_create(lt_vae_decoder **out, lt_vae *vae, int32_t h,
                                                   int32_t w);
LT_API void lt_vae_decoder_destroy(lt_vae_decoder **dec);
/* The next push is the first frame of a new video; needed after a failure. */
LT_API void lt_vae_decoder_reset(lt_vae_decoder *dec);
/* Device bytes that lt_vae_decoder_create will take under the tags VAE_STATE and VAE_WORK (the attention plan, a few KiB, is under PLAN).
 * No device needed. UINT64_MAX for a configuration or size that lt_vae_decoder_create refuses. */
LT_API uint64_t lt_vae_decoder_bytes(const lt_vae_config *config, int32_t h, int32_t w);
/* Gives the decoder latent frame number k = 0, 1, ...: z [z_dim, h*w] with channel_stride elements between channels (normalised,
 * as the DiT makes it), copied. LT_AGAIN when frames of the last one are still to be taken. */
LT_MUST_USE LT_API lt_status lt_vae_decoder_push(lt_vae_decoder *dec, const float *z,
                                                 int64_t channel_stride);
/* The next video frame: f32, 3 channels (c may be larger; 3 are valid), not clamped, valid until the next call. LT_AGAIN: push. */
LT_MUST_USE LT_API lt_status lt_vae_decoder_next(lt_vae_decoder *dec, lt_image *out);
/* Takes everything that later frames depend on out of the decoder, or puts it back into one of the same weights, size and type, in
 * pieces and always in the same order: numbers (host memory), then frames (device memory). load: the functions fill what they are
 * given, and what the decoder held is lost. May be called between frames of one latent frame. Errors: LT_ERR_ARG after a failure, or
 * between a push and its first frame; LT_ERR_FORMAT for what no decoder has; those of the functions. After a failed load: reset. */
typedef struct lt_vae_mover {
    void *user;
    bool load;
    lt_status (*host)(void *user, void *data, size_t bytes);
    lt_status (*device)(void *user, void *data, size_t bytes);
} lt_vae_mover;
LT_MUST_USE LT_API lt_status lt_vae_decoder_move(lt_vae_decoder *dec, const lt_vae_mover *m);
/* FLOPs (2 a multiply-add) of decoding the first and every later latent frame, as the network defines them. */
LT_API double lt_vae_decode_flops(const lt_vae_config *config, int32_t h, int32_t w, bool first);

/* Encoder of one video of H x W pixels (multiples of lt_vae_scale). Errors as of the decoder. Frames are given one by one in order; frame 0 and
 * then every fourth completes a latent frame. */
typedef struct lt_vae_encoder lt_vae_encoder;
LT_MUST_USE LT_API lt_status lt_vae_encoder_create(lt_vae_encoder **out, lt_vae *vae,
                                                   int32_t height, int32_t width);
LT_API void lt_vae_encoder_destroy(lt_vae_encoder **enc);
LT_API void lt_vae_encoder_reset(lt_vae_encoder *enc);
/* img: f32, 3 channels, border any, values -1..1; read, not kept. LT_AGAIN when a finished latent frame is still to be taken. */
LT_MUST_USE LT_API lt_status lt_vae_encoder_push(lt_vae_encoder *enc, const lt_image *img);
/* A finished latent frame: writes the posterior mean, normalised, to z [z_dim, h*w] (channel_stride). LT_AGAIN: push more. */
LT_MUST_USE LT_API lt_status lt_vae_encoder_next(lt_vae_encoder *enc, float *z,
                                                 int64_t channel_stride);

#ifdef __cplusplus
}
#endif
#endif
