/* internal.h: what the files of stream/ share. No other room includes it. */
#ifndef LTI_STREAM_INTERNAL_H
#define LTI_STREAM_INTERNAL_H

#include "stream/stream.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

/* The longest side of a picture or video that is read or written. */
enum { LTI_MAX_SIDE = 16384 };

/* ---- file.c: FFmpeg's input and output on a descriptor of ours, so that the system's reason is not lost ---- */

typedef struct lti_avfile {
    int fd;
    int error; /* errno of the first read, write or seek that failed; 0 = none */
    AVIOContext *io;
    char *path;
} lti_avfile;

lt_status lti_avfile_open(lti_avfile *f, lt_ctx *ctx, const char *path); /* for reading */
/* For writing: created or emptied, and locked, so that two renders never write the same part. A symbolic link, a file with
 * several names, and what is no regular file are refused untouched. */
lt_status lti_avfile_create(lti_avfile *f, lt_ctx *ctx, const char *path);
/* Writes what is buffered and waits until the disk has it. */
lt_status lti_avfile_sync(lti_avfile *f, lt_ctx *ctx);
void lti_avfile_close(lti_avfile *f); /* accepts a zeroed struct */

/* "what: reason" from an FFmpeg error, or from the file's own error when there is one (then LT_ERR_IO). */
lt_status lti_av_fail(lt_ctx *ctx, lt_status s, int averror, const lti_avfile *f, const char *what);

/* ---- input.c: foreign files ---- */

/* Opens a picture or video with the containers and codecs we allow, no decoding yet. in->io stays f's. */
lt_status lti_input_open(AVFormatContext **in, lti_avfile *f, lt_ctx *ctx, const char *path);

/* ---- picture.c, for reader.c ---- */

/* Sides as the header of a PNG, JPEG, WebP or BMP says them; 0 when it is none. */
void lti_picture_size(const uint8_t *data, size_t bytes, uint32_t *width, uint32_t *height);
/* LT_ERR_UNSUPPORTED "a picture of w x h, more than ...". */
lt_status lti_too_large(lt_ctx *ctx, const char *path, int w, int h);
lt_status lti_size_check(lt_ctx *ctx, int32_t width, int32_t height);
lt_status lti_decoder_open(AVCodecContext **out, lt_ctx *ctx, const char *path, const AVStream *st);
/* Turned upright (`orient`: 1..8 as EXIF has them), scaled to cover width x height, the middle of it; crops `frame`. rgb
 * [height, width, 3]. */
lt_status lti_frame_rgb(uint8_t *rgb, lt_ctx *ctx, const char *path, AVFrame *frame, int orient,
                        int width, int height);

/* ---- codec.c ---- */

/* Checks the sizes, rate and quality of `o` and opens its encoder. Errors: LT_ERR_ARG, LT_ERR_CODEC, LT_ERR_MEM. */
lt_status lti_encoder_open(AVCodecContext **out, lt_ctx *ctx, const lt_writer_options *o);

/* ---- colour.c ---- */

/* Packed RGB to planar YUV 4:2:0, BT.709, limited range, chroma on the left luma column. Integers only: the same
 * bytes on every machine. width and height even. */
void lti_rgb_to_yuv420(uint8_t *const plane[3], const int stride[3], const uint8_t *rgb, int width,
                       int height);

/* ---- marks.c: what says that a picture was generated ---- */

#define LTI_DIGITAL_SOURCE "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
extern const uint8_t lti_sei_uuid[16]; /* of our SEI message */
extern const uint8_t lti_xmp_uuid[16]; /* of an XMP box in MP4, as Adobe defined it */

/* Prepends our SEI message to an H.264 access unit in Annex B form. */
lt_status lti_mark_packet(lt_ctx *ctx, AVPacket *pkt);
/* Whether a packet (Annex B or length-prefixed) carries our SEI message. */
bool lti_packet_is_marked(const uint8_t *data, size_t size);
/* The XMP box; malloc'd. */
lt_status lti_xmp_box(lt_ctx *ctx, uint8_t **out, size_t *size);

/* ---- remux.c ---- */

/* Copies the streams of a fragmented part into an ordinary MP4 whose index comes first, adds the XMP box, and waits until
 * the disk has it. Removes `to` on failure. */
lt_status lti_remux(lt_ctx *ctx, const char *from, const char *to, AVRational fps,
                    const AVDictionary *metadata);

#endif
