/* stream.h: frames to people. Video files (FFmpeg), pictures, and the server that shows a video while it is made (libwebsockets).
 * Knows no tensors and no kernels' operations; frames are packed RGB, 8 bits, 3 bytes a pixel, rows top to bottom.
 */
#ifndef LT_STREAM_H
#define LT_STREAM_H

#include "video/video.h" /* the server opens a model and its sessions */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lt_codec { LT_CODEC_H264, LT_CODEC_AV1 } lt_codec;
LT_API bool lt_codec_parse(const char *name, lt_codec *out); /* "h264", "av1" */
LT_API const char *lt_codec_name(lt_codec c);
LT_API int32_t lt_codec_default_crf(lt_codec c);

typedef struct lt_key_value {
    const char *key, *value;
} lt_key_value;

typedef struct lt_writer_options {
    const char *path;      /* ends in .mp4; appears only when complete, "<path>.part" until then */
    int32_t width, height; /* even */
    int32_t fps_num, fps_den;
    lt_codec codec;
    int32_t crf;        /* -1 = the codec's default (h264 18, av1 30) */
    const char *preset; /* NULL = default */
    int32_t
        threads; /* of the encoder; 0 = 4 whatever the machine has: the bytes of H.264 depend on it */
    /* An existing file of that name is replaced at the end; else LT_ERR_IO at once. Folders, links and devices never are. */
    bool overwrite;
    const lt_key_value *metadata; /* written as mdta keys; copied */
    int32_t nmetadata;
} lt_writer_options;
LT_API lt_writer_options lt_writer_options_default(void);

/* A video file being written: equal input gives equal bytes. BT.709 limited range, converted and tagged; every key frame carries an SEI (H.264) and the file an
 * XMP box that say the picture is AI-generated. */
typedef struct lt_writer lt_writer;
LT_MUST_USE LT_API lt_status lt_writer_create(lt_writer **out, lt_ctx *ctx,
                                              const lt_writer_options *opt);
/* One more key of the metadata, or another value, for the finished file; copied. */
LT_MUST_USE LT_API lt_status lt_writer_describe(lt_writer *w, const char *key, const char *value);
/* Borrows rgb [height, width, 3] for the call. Errors: LT_ERR_IO (disk full: message has the path and the system's reason),
 * LT_ERR_CODEC. */
LT_MUST_USE LT_API lt_status lt_writer_push(lt_writer *w, const uint8_t *rgb);
/* Completes the file and gives it its name. With no frames: LT_ERR_ARG and no file. When completing fails (disk full), or
 * lt_writer_push had failed before, what plays stays in "<path>.part", and the message says how much. */
LT_MUST_USE LT_API lt_status lt_writer_finish(lt_writer *w);
/* The same for a video that was interrupted: "x.mp4" becomes "x.partial.mp4", replacing an older one. *path (may be NULL) is the
 * name, valid while the writer lives. */
LT_MUST_USE LT_API lt_status lt_writer_finish_partial(lt_writer *w, const char **path);
LT_API int64_t lt_writer_frames(const lt_writer *w);
LT_API void lt_writer_destroy(lt_writer **w); /* without finish: removes the part file */

/* What a video file says of itself. */
typedef struct lt_media_info {
    int32_t width, height;
    int64_t frames;
    double seconds, fps;
    char codec[32], pix_fmt[32], color[64];
    bool cut; /* the file ends within a frame, or (MP4) before the frames it announces */
    lt_key_value *metadata; /* owned by the info */
    int32_t nmetadata;
} lt_media_info;
LT_MUST_USE LT_API lt_status lt_media_inspect(lt_media_info *out, lt_ctx *ctx, const char *path);
LT_API void lt_media_info_free(lt_media_info *info);

/* Reads a picture (PNG, JPEG, WebP, BMP, or the first frame of a video) and scales it to cover width x height, cropping the middle.
 * rgb: malloc'd, [height, width, 3]. Refuses pictures over max 16384 x 16384 before decoding them. */
LT_MUST_USE LT_API lt_status lt_picture_read(uint8_t **rgb, lt_ctx *ctx, const char *path,
                                             int32_t width, int32_t height);
/* Writes a PNG. */
LT_MUST_USE LT_API lt_status lt_picture_write(lt_ctx *ctx, const char *path, const uint8_t *rgb,
                                              int32_t width, int32_t height);

/* A video file, frame by frame, for programs that go on from it: each scaled to cover width x height, cropping the middle, turned
 * upright. */
typedef struct lt_reader_options {
    const char *path;
    int32_t width, height;
    double
        fps; /* that frames are wanted at: those shown at the middle of each frame's time; 0 = the file's */
} lt_reader_options;
LT_API lt_reader_options lt_reader_options_default(void);
typedef struct lt_reader lt_reader;
/* Decodes the first frame. Errors: LT_ERR_IO, LT_ERR_FORMAT (no video, nothing that can be decoded), LT_ERR_UNSUPPORTED (larger than
 * 16384 x 16384, unknown codec), LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_reader_create(lt_reader **out, lt_ctx *ctx,
                                              const lt_reader_options *opt);
LT_API void lt_reader_destroy(lt_reader **r); /* accepts NULL */
/* *rgb: [height, width, 3], valid until the next call. LT_END behind the last frame. What a damaged file still shows is shown. */
LT_MUST_USE LT_API lt_status lt_reader_next(lt_reader *r, const uint8_t **rgb);
LT_API double lt_reader_source_fps(const lt_reader *r); /* of the file, as it says */

/* ---- server --------------------------------------------------------------------------------- */

typedef struct lt_server_options {
    const char *host; /* address or name of an interface; NULL = 127.0.0.1 */
    int32_t port;     /* 0 = one that is free: lt_server_port */
    lt_dev_options device;
    lt_model_options model;
    const char *
        token_file; /* one token a line; NULL = none is asked for, allowed on the loopback interface only unless `open` */
    bool open;
    const char
        *origins; /* pages beside the server's own that may talk to it: "https://a,https://b" */
    const char *tls_certificate, *tls_key; /* PEM files, both or none */
    int32_t max_sessions, max_queue;       /* live sessions at once; waiting ones. 0 = 8, 64 */
    int32_t max_connections;               /* 0 = 1024 */
    double max_seconds;                    /* of a video; 0 = 3600 */
    double resume_seconds;  /* a session outlives its owner's connection by; 0 = 30 */
    double keep_seconds;    /* an ended stream can be watched for; 0 = 600 */
    double drain_seconds;   /* at most, after lt_server_stop; 0 = 20 */
    double stall_seconds;   /* a viewer whose machine takes nothing is cut after; 0 = 10 */
    uint64_t history_bytes; /* of encoded frames that a stream keeps; 0 = 64 MiB */
    uint64_t memory;        /* for sessions together; 0 = what the machine has free */
    const char *jobs_dir;   /* of videos made by /v1/videos; NULL = one that goes with the server */
    double retain_seconds;  /* such a video is kept for; 0 = 86400 */
    double save_seconds;    /* between savings of a job that a restart goes on from; 0 = 30 */
    uint64_t disk_bytes;    /* for them together; 0 = 16 GiB */
    const char *version;
    lt_log_fn *log; /* lines of JSON; any thread */
    void *log_user;
    lt_log_level log_level;
    void (*listening)(void *user, const char *url); /* called once; may be NULL */
    void *listening_user;
} lt_server_options;
LT_API lt_server_options lt_server_options_default(void);

typedef struct lt_server lt_server;
/* Reads the model's headers, binds the port. Errors: LT_ERR_ARG, LT_ERR_IO (port taken: message says so), those of lt_model_probe.
 * opt is copied, texts are borrowed while the server lives. */
LT_MUST_USE LT_API lt_status lt_server_create(lt_server **out, lt_ctx *ctx,
                                              const lt_server_options *opt);
LT_API int32_t lt_server_port(const lt_server *s);
/* Loads the model and serves until lt_server_stop; returns when all is drained. Errors: those of opening device and model. */
LT_MUST_USE LT_API lt_status lt_server_run(lt_server *s);
/* Any thread. Once: no new sessions, running ones are told and may finish for drain_seconds. Twice: at once. */
LT_API void lt_server_stop(lt_server *s);
LT_API void lt_server_destroy(lt_server **s);

#ifdef __cplusplus
}
#endif
#endif
