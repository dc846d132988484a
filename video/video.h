/* video.h: the engine. Model folders, text encoder, diffusion transformer, generation sessions. Knows nothing of sockets or of
 * video files: it hands out frames.
 *
 * Unless a comment says otherwise: a function is for the one thread that owns the context of its device; options are read, not kept;
 * an object that could not be made is NULL; destroying accepts NULL and sets the pointer to NULL. Texts are UTF-8, pictures RGB of 8
 * bits, packed, rows top to bottom; sides are in pixels, frames are video frames, and what counts latent frames says so.
 */
#ifndef LT_VIDEO_H
#define LT_VIDEO_H

#include "kernels/kernels.h"
#include "scheduler/scheduler.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models ------------------------------------------------------------------------------ */

typedef struct lt_model
    lt_model; /* shared by the sessions of one device, read-only after opening */

typedef struct lt_model_options {
    const char *path;         /* Diffusers folder, original Wan folder, or the DiT's single file */
    const char *text_encoder; /* overrides for single files: file or folder; NULL = beside `path` */
    const char *vae;
    const char *tokenizer; /* spiece.model or its folder */
    lt_dtype
        dtype; /* compute type of matrix products: LT_F32, LT_BF16, 0 = auto (bf16 whatever the file's type) */
} lt_model_options;

/* Reads headers and configuration, packs DiT and VAE weights. The text encoder stays on disk and is streamed
 * layer by layer when a prompt is encoded; a file that has been cut short by then is LT_ERR_IO. `dev` must outlive the model, the
 * model its sessions. Errors: one message that names file and tensor: LT_ERR_IO, LT_ERR_FORMAT,
 * LT_ERR_MISSING, LT_ERR_SHAPE, LT_ERR_DTYPE, LT_ERR_UNSUPPORTED, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_model_open(lt_model **out, lt_dev *dev,
                                           const lt_model_options *opt);
LT_API void lt_model_close(lt_model **model);

typedef struct lt_model_info {
    char family[32]; /* "wan2.1-t2v", "wan2.2-ti2v", "toybox" is one of these too */
    int32_t dim, ffn_dim, heads, head_dim, layers, in_channels, out_channels, text_dim, text_len,
        patch;
    int64_t dit_params, text_params, vae_params;
    int32_t spatial_scale, frame_scale; /* VAE: 8, 4 */
    int32_t size_multiple;              /* width and height must be multiples of it: 16 */
    bool frame_timesteps;               /* trained with clean first frames (--image) */
    int32_t default_width, default_height, default_frames, default_fps, default_steps;
    double default_guidance, default_shift;
    lt_solver default_solver;
    int32_t default_ar_steps; /* in mode LT_MODE_AR, where blocks need fewer; 0 = default_steps */
    bool causal;              /* made for blocks: its default mode is LT_MODE_AR */
    char default_cache[128];  /* of that mode; "" = self-forcing */
    char default_negative[2048]; /* "" = empty prompt */
    lt_dtype dtype;
} lt_model_info;
/* The same from headers alone, nothing packed: for validation before loading; dtype auto is told as bf16. Errors: as lt_model_open. */
LT_MUST_USE LT_API lt_status lt_model_probe(lt_model_info *out, lt_ctx *ctx,
                                            const lt_model_options *opt);
LT_API void lt_model_get_info(const lt_model *model, lt_model_info *out);

/* What `longtake inspect` prints: family, configuration, parameters, dtypes, bytes, missing and unknown tensors, as one JSON text
 * (malloc'd, caller frees). Succeeds for incomplete models too: *complete tells. */
LT_MUST_USE LT_API lt_status lt_model_inspect(char **json, bool *complete, lt_ctx *ctx,
                                              const lt_model_options *opt);

/* ---- sessions ---------------------------------------------------------------------------- */

typedef enum lt_phase { LT_PHASE_TEXT, LT_PHASE_DENOISE, LT_PHASE_DECODE } lt_phase;
typedef struct lt_progress {
    lt_phase phase;
    int32_t step,
        steps;      /* DENOISE: steps done (AR: blocks); DECODE: frames done; TEXT: layers done */
    double seconds; /* since the session started */
    double step_seconds; /* last step */
} lt_progress;
typedef void lt_progress_fn(void *user, const lt_progress *p); /* on the session's thread */

/* CLIP: the whole latent is denoised together. AR: blocks of a few latent frames, each seeing kept frames through a key/value
 * cache; any length in constant memory, and a block's frames are handed out before the next block is begun. Any model can be run so;
 * those that were not trained for it show it.
 * EXTEND: segments of a bidirectional model, each begun with the end of the one before; any length in constant memory, and a segment's
 * frames are handed out before the next is begun. Models that were trained with clean frames (lt_model_info.frame_timesteps) see them as
 * such; others see them at each step with as much noise as the rest (replacement), which needs no training and holds less well. The
 * same is true of a first frame of CLIP. */
typedef enum lt_mode { LT_MODE_DEFAULT, LT_MODE_CLIP, LT_MODE_AR, LT_MODE_EXTEND } lt_mode;

/* AR: a prompt that takes the place of the one before, from the first block that begins at its time or later. Frames before that are
 * those of a video without it, bit by bit. */
typedef struct lt_cue {
    double seconds; /* of the video */
    int64_t frame;  /* number of a video frame, instead of `seconds`, when > 0 */
    const char *prompt;
    int32_t
        blend_blocks; /* 0: at once; n: in n blocks the text turns from the old prompt into this one */
} lt_cue;
enum { LT_MAX_CUES = 4096, LT_MAX_PROMPT_BYTES = 65536, LT_MAX_BLEND = 256 };

/* WATCH: the video is measured and compared with the beginning of its shot; no bit of it is changed. CORRECT: and brought back, a
 * little with each block, before it is seen and before later blocks see it; blocks that are broken (not finite, black) are drawn
 * again. */
typedef enum lt_drift_mode { LT_DRIFT_OFF, LT_DRIFT_WATCH, LT_DRIFT_CORRECT } lt_drift_mode;

typedef enum lt_cfg_mode { LT_CFG_AUTO, LT_CFG_BATCH, LT_CFG_SERIAL } lt_cfg_mode;

typedef struct lt_session_options {
    const char *prompt;                     /* at most LT_MAX_PROMPT_BYTES, as the next */
    const char *negative_prompt;            /* NULL = the model's default */
    int32_t width, height, num_frames, fps; /* 0 = the model's default */
    int32_t num_inference_steps;            /* 0 = default */
    double guidance_scale; /* < 0 = default; <= 1 runs the conditional branch alone */
    double flow_shift;     /* 0 = default */
    uint64_t seed;
    lt_solver solver; /* with solver_set */
    bool solver_set;
    /* RENOISE: timesteps 0..1000, the largest first, in place of num_inference_steps. NULL: in mode AR Self-Forcing's four. */
    const float *step_list;
    int32_t step_list_len;
    lt_cfg_mode
        cfg_mode; /* AUTO: one batch if it fits memory_limit, else one after the other; same result */
    const uint8_t
        *image;   /* first frame, RGB [height, width, 3], or NULL; borrowed for lt_session_create */
    lt_mode mode; /* DEFAULT: the model's */
    const char *
        cache; /* AR: what is kept, "PRESET[:key=value,...]" (lt_cache_policy_parse); NULL = the model's */
    /* EXTEND: "[naive][,segment=FRAMES][,overlap=LATENT FRAMES][,head=encode|first|latent]", NULL = the defaults: segments as long as
     * the model's clips, the given ones of `overlap` latent frames (3) included. naive: the last picture becomes the first of a new
     * clip. head: what stands in place of the first given latent frame, since a model knows only windows that begin with a first
     * one: its last picture, encoded; the video's first latent frame; or itself. */
    const char *extend;
    /* AR, EXTEND: the end of a video that is continued, RGB [given_frames, height, width, 3]: 4 k + 1 frames, at most
     * lt_session_given_frames. Borrowed for lt_session_create. The session's frames are then the new ones, 4 k of them. */
    const uint8_t *given;
    int32_t given_frames;
    const lt_cue
        *timeline; /* AR: later prompts, by time; copied. One at time 0 may stand for `prompt` */
    int32_t cues;
    const char *
        attention; /* "NAME[:key=value,...]": dense, sta, svg, radial, topk (lt_sparse_parse); NULL = dense */
    struct lt_window_search
        *search;           /* attention sta: stays dense, windows are compared; NULL = not */
    uint64_t memory_limit; /* bytes; 0 = what the machine has free */
    lt_drift_mode drift;   /* CORRECT: not in mode CLIP, which is drawn at once */
    const char *
        inject; /* AR, EXTEND: faults for tests, "KIND=AMOUNT[,at=S][,for=S]" (lt_inject_help); NULL = none */
    lt_progress_fn *progress;
    void *progress_user;
} lt_session_options;
LT_API lt_session_options lt_session_options_default(void);

/* Checks sizes and counts against the model; never changes them silently: the message names the nearest valid values.
 * Fills the defaults in *opt, whose texts then may be those of `info`. Errors: LT_ERR_ARG. */
LT_MUST_USE LT_API lt_status lt_session_validate(lt_ctx *ctx, const lt_model_info *info,
                                                 lt_session_options *opt);

/* How many frames of a video's end a session of these options sees, at most. Errors: as lt_session_validate. */
LT_MUST_USE LT_API lt_status lt_session_given_frames(int32_t *out, lt_ctx *ctx,
                                                     const lt_model_info *info,
                                                     const lt_session_options *opt);

typedef struct lt_estimate {
    uint64_t weights, text, latent, activation, vae,
        total_peak;     /* bytes; peak is not the sum: phases follow each other */
    uint64_t available; /* what the machine has free */
    bool cfg_batch;     /* both branches in one batch fit */
    double flops;       /* of the whole run */
    uint64_t cache;     /* AR: keys and values of kept frames */
} lt_estimate;
/* From headers alone, before loading. Errors: those of lt_model_probe and lt_session_validate; LT_ERR_MEM, *out filled, when it does
 * not fit opt->memory_limit or the machine. */
LT_MUST_USE LT_API lt_status lt_session_estimate(lt_estimate *out, lt_ctx *ctx,
                                                 const lt_model_options *model,
                                                 const lt_session_options *opt);

typedef struct lt_session lt_session; /* one timeline */
/* Texts, image and given frames are copied; `search` must outlive the session. LT_ERR_ARG for values that lt_session_validate refuses,
 * LT_ERR_MEM with the figures when it cannot fit. */
LT_MUST_USE LT_API lt_status lt_session_create(lt_session **out, lt_model *model,
                                               const lt_session_options *opt);
LT_API void lt_session_destroy(lt_session **s);

typedef struct lt_frames {
    const uint8_t
        *rgb; /* host, [count, height, width, 3]; valid until the next call on the session */
    int32_t count, width, height;
    int64_t first; /* index of the first of them in the video */
    /* how they were made */
    int64_t block;            /* number of the block (AR) or segment (EXTEND) they are of, from 0 */
    double block_seconds;     /* of drawing it; AR: and of keeping the block before */
    double decode_seconds;    /* of these frames */
    double attention_density; /* keys read over keys of all frames until then */
    uint64_t cache_bytes;
    int32_t
        prompt; /* number of the prompt in force: 0 the first, 1 after the first change, and so on */
    int64_t prompt_frame;    /* the first frame that it is in force for */
    const char *prompt_text; /* valid until the next call on the session */
} lt_frames;
/* The next group of decoded frames. LT_OK: *out filled. LT_END: the video has ended. LT_ERR_CANCELLED after lt_session_cancel,
 * LT_ERR_NUMERIC when the model produced numbers that are not finite (message says where). The first call denoises. */
LT_MUST_USE LT_API lt_status lt_session_next(lt_session *s, lt_frames *out);
LT_API void
lt_session_cancel(lt_session *s); /* any thread; seen between layers and between frames */

/* AR, any thread, also while another is in lt_session_next: `prompt` (copied) takes effect with the next block that is begun; of
 * several before that the last one counts. Returns at once and leaves no message, since the context is the other thread's: LT_ERR_ARG
 * for a text that is empty, not UTF-8 or longer than LT_MAX_PROMPT_BYTES, or blend_blocks not in 0..LT_MAX_BLEND; LT_ERR_UNSUPPORTED
 * in other modes; LT_ERR_MEM. Which frame it took effect at: lt_frames.prompt_frame, lt_session_prompts. */
LT_MUST_USE LT_API lt_status lt_session_prompt(lt_session *s, const char *prompt,
                                               int32_t blend_blocks);

/* The prompts that have taken effect so far, in order; of more than LT_MAX_CUES the last ones. Valid until the next call on the
 * session. */
typedef struct lt_prompt_mark {
    int32_t number; /* lt_frames.prompt */
    int64_t frame;  /* the first video frame drawn with it */
    int64_t block;
    int32_t blend_blocks;
    const char *prompt;
} lt_prompt_mark;
LT_API const lt_prompt_mark *lt_session_prompts(const lt_session *s, int32_t *count);

/* AR: draws the next block before its frames are asked for, which lt_session_next does by itself otherwise. LT_OK: a block is drawn
 * and none of its frames has been handed out. LT_AGAIN: frames of the block before are still to be taken. LT_END, errors: as
 * lt_session_next. */
LT_MUST_USE LT_API lt_status lt_session_draw(lt_session *s);
/* AR: throws the drawn block away and draws it again. attempt, 0..255, chooses its noise: the same number gives the same bits, and 0
 * what was there first. LT_ERR_ARG, the session as before: no block is drawn, or frames of it have been handed out. */
LT_MUST_USE LT_API lt_status lt_session_redraw(lt_session *s, int32_t attempt);

/* AR, between calls of lt_session_next: writes everything that the rest of the video depends on. A session restored from it, in this
 * process or another, gives the rest bit by bit. The file has its name when it is complete ("<path>.part" until then), and replaces
 * one of that name. Errors: LT_ERR_UNSUPPORTED in other modes, LT_ERR_ARG after the end or a failure other than cancelling (the state
 * before the block that was cancelled is written), LT_ERR_IO. */
LT_MUST_USE LT_API lt_status lt_session_save(lt_session *s, const char *path);
/* opt: NULL, or options of which num_frames (0: as saved), memory_limit, progress and progress_user are taken; all else is the file's.
 * Errors: LT_ERR_IO; LT_ERR_FORMAT for a file that is damaged or of another version; LT_ERR_ARG when it is of another model or compute
 * type; those of lt_session_create. */
LT_MUST_USE LT_API lt_status lt_session_restore(lt_session **out, lt_model *model, const char *path,
                                                const lt_session_options *opt);
/* The options as completed and copied; texts are the session's. */
LT_API void lt_session_get_options(const lt_session *s, lt_session_options *out);
/* What a file of lt_session_save says of itself; its checksum is not looked at. */
typedef struct lt_snapshot_info {
    int32_t width, height, num_frames, fps;
    int64_t next_frame; /* the first video frame that is still to come */
    int64_t block;
    uint64_t seed, bytes;
    char family[32], cache[128], prompt[256]; /* prompt: its beginning */
} lt_snapshot_info;
LT_MUST_USE LT_API lt_status lt_snapshot_inspect(lt_snapshot_info *out, lt_ctx *ctx,
                                                 const char *path);

/* How the bytes of a cache come about: frames x tokens x layers x 2 (key, value) x width x number_bytes x branches, and tables. */
typedef struct lt_cache_report {
    int32_t frames, block, sink; /* frames: the window; 0 without a cache */
    int32_t tokens;              /* of a frame */
    int32_t layers, width, number_bytes;
    int32_t branches; /* 2 with guidance */
    uint64_t bytes;
} lt_cache_report;

typedef struct lt_session_report {
    int32_t width, height, num_frames, fps, steps, dit_passes;
    int64_t tokens;
    uint64_t seed;
    double guidance, shift;
    double attention_density; /* keys that self-attention read, over those there were */
    double sparse_density; /* the same of the passes and layers that were not dense; 1: all were */
    double planning_seconds;  /* of sparse attention */
    double attention_seconds; /* of self-attention, planning included */
    double text_seconds, encode_seconds, denoise_seconds, decode_seconds, total_seconds,
        first_frame_seconds;
    double dit_flops, vae_flops; /* of this run */
    bool cfg_batch;
    uint64_t step_allocs; /* device allocations during denoising steps after the first */
    int64_t blocks;       /* AR, EXTEND: blocks or segments drawn so far */
    double
        block_seconds_max; /* longest from one block to the next, decoding left out; the first one not counted */
    uint64_t cache_bytes;
    lt_cache_report cache;
    double drift_seconds;                  /* of measuring and correcting */
    int64_t drift_vectors, drift_shots;    /* measured; references taken */
    int64_t drift_shifted, drift_recached; /* actions, by kind */
    int64_t drift_redraws, drift_replayed, drift_weighed, alarms;
    double drift_level_max;
} lt_session_report;
LT_API void lt_session_get_report(const lt_session *s, lt_session_report *out);

/* ---- measures of pictures ------------------------------------------------------------------ */

/* Luma is .2126 R + .7152 G + .0722 B of coded values, 0..1; light is what the coded values mean (sRGB curve), white 1. */
typedef struct lt_picture {
    double luma;
    double exposure; /* EV: log2 of the mean light; at least -12 */
    double contrast; /* standard deviation of luma */
    double range;    /* of luma, 95th less 5th percentile */
    double lightness, a,
        b; /* CIELAB (D65), means over about 4096 cells; distances of these are Delta E (1976) */
    double saturation; /* mean chroma sqrt(a^2 + b^2) of the cells */
    double
        sharpness; /* of the amplitude above 1/32 of a cycle a pixel, the part above 1/8; tiles of up to 128 pixels, Hann window */
    double motion; /* rms difference of luma to the frame before; 0 for the first */
    double clipped, crushed; /* parts of the pixels with luma above .98, below .02 */
    int32_t still; /* frames in a row, this one included, within 45 dB of the one before */
    bool black;    /* luma < .02 and contrast < .01 */
    bool blown;    /* clipped > 1/2 */
} lt_picture;

typedef struct lt_measure lt_measure; /* holds the frame before; constant memory */
/* Pictures up to 16384 x 16384. Errors: LT_ERR_ARG, LT_ERR_MEM. Thread: owner of dev's context. */
LT_MUST_USE LT_API lt_status lt_measure_create(lt_measure **out, lt_dev *dev, int32_t width,
                                               int32_t height);
LT_API void lt_measure_destroy(lt_measure **m); /* accepts NULL */
/* rgb: host, [height, width, 3]. Errors: those of the device. */
LT_MUST_USE LT_API lt_status lt_measure_frame(lt_measure *m, lt_picture *out, const uint8_t *rgb);
/* What these are made with: light of the 256 coded values, and CIELAB (D65) of light R, G, B. Any thread. */
LT_API void lt_light_of_codes(float light[256]);
LT_API void lt_lab_of_light(float lab[3], const float light[3]);

/* Delta E of two pictures' means. */
LT_API double lt_colour_distance(const lt_picture *a, const lt_picture *b);
/* What repeats every `period` numbers, harmonics included: the rms, over the places of a period, of the mean there less the mean of the
 * period around it. Noise of deviation s leaves about s sqrt(period / n). 0 for less than three periods. Any thread. */
LT_API double lt_flicker(const double *y, int64_t n, int32_t period);

/* Two renditions of the same instant: all that differs is drift. Second against first. */
typedef struct lt_renditions {
    double gain[3],
        offset[3];     /* second = gain first + offset, least squares, coded R, G, B in 0..1 */
    double exposure;   /* EV */
    double contrast;   /* ln of the ratio */
    double saturation; /* difference of chroma */
    double colour;     /* Delta E of the means */
    double sharpness;  /* log2 of the ratio */
    double difference; /* rms of luma */
} lt_renditions;
LT_MUST_USE LT_API lt_status lt_measure_renditions(lt_renditions *out, lt_dev *dev,
                                                   const uint8_t *first, const uint8_t *second,
                                                   int32_t width, int32_t height);

/* ---- drift --------------------------------------------------------------------------------- */

typedef enum lt_drift_kind {
    LT_DRIFT_NONE,
    LT_DRIFT_CHANGE, /* the picture changes faster than drift does, or is not settled: nothing to compare with */
    LT_DRIFT_EXPOSURE,
    LT_DRIFT_COLOUR,
    LT_DRIFT_CONTRAST,
    LT_DRIFT_SATURATION,
    LT_DRIFT_SHARPNESS, /* this and the next two are told, not corrected */
    LT_DRIFT_MOTION,
    LT_DRIFT_FLICKER,
    LT_DRIFT_BLACK, /* nearly every pixel, or blown out where the shot was not */
    LT_DRIFT_BROKEN /* numbers that are not finite, or a latent that is flat or noise */
} lt_drift_kind;
typedef enum lt_drift_action {
    LT_DRIFT_LEFT,     /* nothing was done */
    LT_DRIFT_SHIFTED,  /* the latent was moved towards the reference */
    LT_DRIFT_RECACHED, /* that, and kept frames too */
    LT_DRIFT_REDRAWN,  /* drawn again with other noise */
    LT_DRIFT_REPLAYED, /* every attempt was broken: the last good frame stands in its place */
    LT_DRIFT_WEIGHED   /* AR: kept frames weigh less in attention, and nothing else */
} lt_drift_action;
LT_API const char *lt_drift_kind_name(lt_drift_kind k);     /* "exposure" */
LT_API const char *lt_drift_action_name(lt_drift_action a); /* "shifted" */

/* One block (AR), or as many frames of a segment. Differences are to the first second of the shot after it had settled, medians over
 * 8 x 8 tiles where that can be, so that an object that moves does not count. */
typedef struct lt_drift_vector {
    int64_t block;       /* lt_frames.block */
    int64_t first_frame; /* of the frames it is of ... */
    int32_t frames;      /* ... and how many */
    int64_t shot; /* number of the reference; a change, a cut and a new prompt begin another */
    bool settled; /* there is a reference */
    lt_picture picture; /* mean over the measured frames, one of each latent frame */
    double exposure;    /* EV */
    double colour;      /* Delta E of a, b alone */
    double distance;    /* Delta E with lightness */
    double contrast;    /* ln of the ratio, over tiles */
    double saturation;  /* ln of the ratio of chroma, along its own hue */
    double sharpness;   /* log2 of the ratio */
    double motion;      /* ratio */
    double coherence;   /* part of the tiles that have moved the same way */
    double flicker;     /* of luma, at the period of blocks (lt_flicker) */
    double rate; /* Delta E a second, median over tiles: above 1.5 it is a change, not drift */
    double
        latent_shift; /* of the latent as drawn: rms over channels, in deviations of the reference's */
    double low_field; /* what was taken off unevenly over the picture, the same way */
    double level;     /* the largest of them over its tolerance: from 1 on it is drift */
    double gain;      /* part of the difference that was taken off */
    double past_weight,
        sink_weight; /* AR: of kept frames outside the sink and in it, from the next block on; 1 unless they are to count less */
    lt_drift_kind kind;
    lt_drift_action action;
    bool renditions_known;    /* EXTEND naive: of the segment's first instant there are two, ... */
    lt_renditions renditions; /* ... the picture that was shown and the one decoded again */
    int32_t attempts;         /* draws that were thrown away */
    bool alarm;               /* corrections have failed, or there is none for this kind */
} lt_drift_vector;

/* The newest vector; NULL: none yet, or drift is off. A vector is there when the last of its frames has been handed out: compare
 * first_frame to see whether it is new. Valid until the next call on the session. */
LT_API const lt_drift_vector *lt_session_drift(const lt_session *s);

/* The monitor alone, on the frames of any video: what it would say and do. */
typedef struct lt_monitor lt_monitor;
/* frame_seconds: from one given frame to the next; vectors are of `group` of them. Errors: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_monitor_create(lt_monitor **out, lt_dev *dev, int32_t width,
                                               int32_t height, double frame_seconds, int32_t group);
LT_API void lt_monitor_destroy(lt_monitor **m); /* accepts NULL */
/* LT_OK: *out is a new vector; LT_AGAIN: not yet. *picture (may be NULL): of this frame. */
LT_MUST_USE LT_API lt_status lt_monitor_frame(lt_monitor *m, lt_drift_vector *out,
                                              lt_picture *picture, const uint8_t *rgb);

/* Grammar of lt_session_options.inject, one line. */
LT_API const char *lt_inject_help(void);

/* ---- pieces, for tests and benchmarks ----------------------------------------------------- */

/* Encodes one text: rows [n, text_dim] f32 to *out (malloc'd), n to *rows. Streams the encoder's layers. Errors: LT_ERR_ARG (not UTF-8),
 * LT_ERR_IO, LT_ERR_NUMERIC, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_model_encode_text(lt_model *model, const char *text, float **out,
                                                  int32_t *rows);
/* How many texts were encoded before, and their rows still there; how many were not. Any thread. */
LT_API void lt_model_text_cache(const lt_model *model, uint64_t *hits, uint64_t *misses);
/* Token ids as the text encoder gets them (cleaned, cut, EOS appended), n >= 1 of them, malloc'd. Errors: LT_ERR_ARG (not UTF-8),
 * LT_ERR_SHAPE (tokenizer and text encoder do not belong together), LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_model_tokenize(lt_model *model, const char *text, int32_t **ids,
                                               int32_t *n);

/* Speed of the two large networks alone, from their tensor files (no configuration is read: heads are 128 wide). Contents are noise;
 * operations are counted (2 a multiply-add), so seconds say what share of the machine's peak is reached. Errors: LT_ERR_ARG, those of
 * opening the file, LT_ERR_MEM. */
typedef struct lt_bench_options {
    const char *path; /* tensor file, or index of shards */
    lt_dtype dtype;   /* 0 = auto */
    int32_t width, height, num_frames;
    const char *cache; /* DiT: a block of this policy with a full window, in place of num_frames */
    int32_t
        batch; /* DiT: samples in a pass, at most 2 (they share their latent, as guidance does); 0 = 1 */
    int32_t text_rows; /* DiT: real rows of each prompt; 0 = 64 */
    int32_t passes;    /* measured, after one that is not, at most 64; 0 = 3 */
} lt_bench_options;
typedef struct lt_bench_result {
    double seconds, best_seconds; /* of a pass (VAE: of a whole video): median and least */
    double flops;                 /* of it */
    double
        peak_flops; /* what the machine sustained right before and after the passes, a second (lt_peak_flops) */
    int64_t tokens; /* DiT: of a sample; VAE: video frames */
    uint64_t weight_bytes, peak_bytes;
} lt_bench_result;
LT_MUST_USE LT_API lt_status lt_bench_dit(lt_bench_result *out, lt_dev *dev,
                                          const lt_bench_options *opt);
LT_MUST_USE LT_API lt_status lt_bench_vae_decode(lt_bench_result *out, lt_dev *dev,
                                                 const lt_bench_options *opt);

#ifdef __cplusplus
}
#endif
#endif
