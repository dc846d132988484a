/* picture.c: pictures in and out. Any still or the first frame of a video is turned upright, scaled to cover the size that is
 * wanted, and cropped to its middle. Transparency is dropped. */
#include "stream/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libavutil/avstring.h>
#include <libavutil/imgutils.h>
#include <libswscale/swscale.h>

/* ---- reading ---- */

lt_status lti_too_large(lt_ctx *ctx, const char *path, int w, int h)
{
    return lti_fail(ctx, LT_ERR_UNSUPPORTED, "'%s': a picture of %dx%d, more than %dx%d", path, w,
                    h, LTI_MAX_SIDE, LTI_MAX_SIDE);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t le24(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

/* The three kinds of WebP: lossy, lossless, extended. */
static void webp_size(const uint8_t *d, uint32_t *w, uint32_t *h)
{
    if (!memcmp(d + 12, "VP8 ", 4)) {
        *w = le24(d + 26) & 0x3fff;
        *h = le24(d + 28) & 0x3fff;
    } else if (!memcmp(d + 12, "VP8L", 4)) {
        *w = 1 + (le24(d + 21) & 0x3fff);
        *h = 1 + (le24(d + 22) >> 6 & 0x3fff);
    } else if (!memcmp(d + 12, "VP8X", 4)) {
        *w = 1 + le24(d + 24);
        *h = 1 + le24(d + 27);
    }
}

/* Sides as the header says them, for stills whose container does not tell before decoding; 0 when it is none of these. */
void lti_picture_size(const uint8_t *d, size_t n, uint32_t *w, uint32_t *h)
{
    *w = *h = 0;
    if (n >= 24 && !memcmp(d, "\x89PNG\r\n\x1a\n", 8)) {
        *w = be32(d + 16);
        *h = be32(d + 20);
    } else if (n >= 26 && !memcmp(d, "BM", 2)) {
        *w = (uint32_t)d[18] | (uint32_t)d[19] << 8 | (uint32_t)d[20] << 16 | (uint32_t)d[21] << 24;
        const uint32_t y =
            (uint32_t)d[22] | (uint32_t)d[23] << 8 | (uint32_t)d[24] << 16 | (uint32_t)d[25] << 24;
        *h = y > INT32_MAX ? 0u - y : y; /* negative: rows top to bottom */
    } else if (n >= 31 && !memcmp(d, "RIFF", 4) && !memcmp(d + 8, "WEBP", 4)) {
        webp_size(d, w, h);
    } else if (n >= 4 && d[0] == 0xff && d[1] == 0xd8) {
        for (size_t i = 2; i + 9 < n && d[i] == 0xff;) {
            const uint8_t m = d[i + 1];
            if (m >= 0xc0 && m <= 0xcf && m != 0xc4 && m != 0xc8 && m != 0xcc) {
                *h = (uint32_t)d[i + 5] << 8 | d[i + 6];
                *w = (uint32_t)d[i + 7] << 8 | d[i + 8];
                return;
            }
            i += 2 + ((size_t)d[i + 2] << 8 | d[i + 3]);
        }
    }
}

lt_status lti_decoder_open(AVCodecContext **out, lt_ctx *ctx, const char *path, const AVStream *st)
{
    const AVCodecParameters *par = st->codecpar;
    const AVCodec *codec = avcodec_find_decoder(par->codec_id);
    *out = NULL;
    if (par->width > LTI_MAX_SIDE || par->height > LTI_MAX_SIDE)
        return lti_too_large(ctx, path, par->width, par->height);
    if (!codec)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "'%s': no decoder for %s", path,
                        avcodec_get_name(par->codec_id));
    AVCodecContext *dec = avcodec_alloc_context3(codec);
    if (!dec) return lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", path);
    int e = avcodec_parameters_to_context(dec, par);
    dec->thread_count = 1;
    dec->max_pixels = (int64_t)LTI_MAX_SIDE * LTI_MAX_SIDE;
    if (e >= 0) e = avcodec_open2(dec, codec, NULL);
    if (e < 0) {
        avcodec_free_context(&dec);
        return lti_av_fail(ctx, LT_ERR_FORMAT, e, NULL, path);
    }
    *out = dec;
    return LT_OK;
}

enum {
    MAX_PACKETS = 600
}; /* a video that shows nothing in that many packets has no first frame for us */

static lt_status decode_first(AVFrame *frame, lt_ctx *ctx, const char *path, AVFormatContext *in,
                              AVCodecContext *dec, int stream)
{
    AVPacket *pkt = av_packet_alloc();
    if (!pkt) return lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", path);
    int e = AVERROR(EAGAIN);
    lt_status s = LT_OK;
    for (int i = 0; i < MAX_PACKETS && e == AVERROR(EAGAIN) && s == LT_OK; i++) {
        const int r = av_read_frame(in, pkt);
        if (r >= 0 && pkt->stream_index == stream) {
            uint32_t w, h;
            lti_picture_size(pkt->data, (size_t)pkt->size, &w, &h);
            if (w > LTI_MAX_SIDE || h > LTI_MAX_SIDE) s = lti_too_large(ctx, path, (int)w, (int)h);
            if (s == LT_OK) e = avcodec_send_packet(dec, pkt);
        } else if (r < 0) {
            e = avcodec_send_packet(dec, NULL);
        }
        if (s == LT_OK && e >= 0) e = avcodec_receive_frame(dec, frame);
        av_packet_unref(pkt);
    }
    av_packet_free(&pkt);
    if (s < 0) return s;
    if (e < 0)
        return lti_fail(ctx, LT_ERR_FORMAT, "'%s': the picture cannot be decoded: %s", path,
                        av_err2str(e));
    if (frame->width > LTI_MAX_SIDE || frame->height > LTI_MAX_SIDE)
        return lti_too_large(ctx, path, frame->width, frame->height);
    return LT_OK;
}

/* Crops frame to the largest middle part of the shape w x h. */
static void crop_to(AVFrame *f, int w, int h)
{
    const int64_t fw = f->width, fh = f->height;
    int64_t cw = fw, ch = fh;
    if (fw * h > fh * w)
        cw = fh * w / h;
    else
        ch = fw * h / w;
    if (cw < 1) cw = 1;
    if (ch < 1) ch = 1;
    f->crop_left = (size_t)((fw - cw) / 2);
    f->crop_right = (size_t)(fw - cw) - f->crop_left;
    f->crop_top = (size_t)((fh - ch) / 2);
    f->crop_bottom = (size_t)(fh - ch) - f->crop_top;
    (void)av_frame_apply_cropping(f, AV_FRAME_CROP_UNALIGNED); /* refuses only what we do not ask */
}

/* What swscale should take the numbers for; untagged video is BT.709 from 720 lines on, as players do. */
static int matrix_of(const AVFrame *f)
{
    if (f->colorspace == AVCOL_SPC_BT709) return SWS_CS_ITU709;
    if (f->colorspace == AVCOL_SPC_BT2020_NCL || f->colorspace == AVCOL_SPC_BT2020_CL)
        return SWS_CS_BT2020;
    const bool video = f->color_range != AVCOL_RANGE_JPEG;
    return f->colorspace == AVCOL_SPC_UNSPECIFIED && video && f->height >= 720 ? SWS_CS_ITU709
                                                                               : SWS_CS_ITU601;
}

/* Scales to an RGB frame of w x h. */
static lt_status scale(AVFrame *to, lt_ctx *ctx, const char *path, const AVFrame *from, int w,
                       int h)
{
    to->format = AV_PIX_FMT_RGB24;
    to->width = w;
    to->height = h;
    if (av_frame_get_buffer(to, 0) < 0)
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a picture of %dx%d", w, h);
    struct SwsContext *sws = sws_getContext(
        from->width, from->height, from->format, w, h, AV_PIX_FMT_RGB24,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP | SWS_BITEXACT,
        NULL, NULL, NULL);
    if (!sws)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "'%s': cannot scale %dx%d to %dx%d", path,
                        from->width, from->height, w, h);
    const bool full = from->color_range == AVCOL_RANGE_JPEG;
    sws_setColorspaceDetails(sws, sws_getCoefficients(matrix_of(from)), full,
                             sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
    const int rows = sws_scale(sws, (const uint8_t *const *)from->data, from->linesize, 0,
                               from->height, to->data, to->linesize);
    sws_freeContext(sws);
    if (rows != h) return lti_fail(ctx, LT_ERR_FORMAT, "'%s': cannot scale the picture", path);
    return LT_OK;
}

/* EXIF orientation 1..8; 1 = upright. Telephones turn the camera, not the pixels. */
static int orientation(const AVFrame *f)
{
    const AVDictionaryEntry *e = av_dict_get(f->metadata, "Orientation", NULL, 0);
    const long v = e ? strtol(e->value, NULL, 10) : 1;
    return v >= 1 && v <= 8 ? (int)v : 1;
}

/* Copies rows of `from` to rgb [h, w, 3], turned upright. Orientations from 5 on exchange rows and columns. */
static void copy_upright(uint8_t *rgb, const AVFrame *from, int orient, int w, int h)
{
    const bool flip_x = orient == 2 || orient == 3 || orient == 7 || orient == 8;
    const bool flip_y = orient == 3 || orient == 4 || orient == 6 || orient == 7;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            int sx = orient >= 5 ? y : x, sy = orient >= 5 ? x : y;
            if (flip_x) sx = from->width - 1 - sx;
            if (flip_y) sy = from->height - 1 - sy;
            memcpy(rgb + 3 * ((size_t)y * (size_t)w + (size_t)x),
                   from->data[0] + (ptrdiff_t)sy * from->linesize[0] + 3 * (ptrdiff_t)sx, 3);
        }
}

static lt_status read_frame(AVFrame *frame, lt_ctx *ctx, const char *path)
{
    lti_avfile file = {0};
    AVFormatContext *in = NULL;
    AVCodecContext *dec = NULL;
    lt_status s = lti_input_open(&in, &file, ctx, path);
    if (s < 0) return s;
    const int stream = av_find_best_stream(in, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (stream < 0)
        s = lti_fail(ctx, LT_ERR_FORMAT, "'%s': there is no picture in it", path);
    else
        s = lti_decoder_open(&dec, ctx, path, in->streams[stream]);
    if (s == LT_OK && dec->codec_id == AV_CODEC_ID_MJPEG)
        dec->err_recognition |= AV_EF_EXPLODE; /* else what a cut JPEG lacks is green */
    if (s == LT_OK) s = decode_first(frame, ctx, path, in, dec, stream);
    avcodec_free_context(&dec);
    avformat_close_input(&in);
    lti_avfile_close(&file);
    return s;
}

lt_status lti_frame_rgb(uint8_t *rgb, lt_ctx *ctx, const char *path, AVFrame *frame, int orient,
                        int width, int height)
{
    const int w = orient >= 5 ? height : width, h = orient >= 5 ? width : height;
    AVFrame *scaled = av_frame_alloc();
    if (!scaled) return lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", path);
    crop_to(frame, w, h);
    const lt_status s = scale(scaled, ctx, path, frame, w, h);
    if (s == LT_OK) copy_upright(rgb, scaled, orient, width, height);
    av_frame_free(&scaled);
    return s;
}

lt_status lti_size_check(lt_ctx *ctx, int32_t width, int32_t height)
{
    if (width >= 1 && height >= 1 && width <= LTI_MAX_SIDE && height <= LTI_MAX_SIDE) return LT_OK;
    return lti_fail(ctx, LT_ERR_ARG, "picture size %dx%d: sides must be 1..%d", width, height,
                    LTI_MAX_SIDE);
}

lt_status lt_picture_read(uint8_t **rgb, lt_ctx *ctx, const char *path, int32_t width,
                          int32_t height)
{
    *rgb = NULL;
    av_log_set_level(AV_LOG_QUIET);
    LT_TRY(lti_size_check(ctx, width, height));
    AVFrame *frame = av_frame_alloc();
    uint8_t *out = malloc((size_t)width * (size_t)height * 3);
    lt_status s = frame && out ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", path);
    if (s == LT_OK) s = read_frame(frame, ctx, path);
    if (s == LT_OK) s = lti_frame_rgb(out, ctx, path, frame, orientation(frame), width, height);
    av_frame_free(&frame);
    if (s == LT_OK)
        *rgb = out;
    else
        free(out);
    return s;
}

/* ---- writing ---- */

static lt_status encode_png(AVPacket *pkt, lt_ctx *ctx, AVFrame *frame)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_PNG);
    AVCodecContext *enc = codec ? avcodec_alloc_context3(codec) : NULL;
    if (!enc) return lti_fail(ctx, LT_ERR_CODEC, "this FFmpeg writes no PNG");
    enc->width = frame->width;
    enc->height = frame->height;
    enc->pix_fmt = AV_PIX_FMT_RGB24;
    enc->time_base = (AVRational){1, 1};
    enc->thread_count = 1;
    int e = avcodec_open2(enc, codec, NULL);
    if (e >= 0) e = avcodec_send_frame(enc, frame);
    if (e >= 0) e = avcodec_receive_packet(enc, pkt);
    avcodec_free_context(&enc);
    return e < 0 ? lti_av_fail(ctx, LT_ERR_CODEC, e, NULL, "png encoder") : LT_OK;
}

static lt_status write_whole(lt_ctx *ctx, const char *path, const AVPacket *pkt)
{
    char *part = av_asprintf("%s.part", path);
    if (!part) return lti_fail(ctx, LT_ERR_MEM, "no memory to write '%s'", path);
    lti_avfile f = {0};
    lt_status s = lti_avfile_create(&f, ctx, part);
    if (s == LT_OK) {
        avio_write(f.io, pkt->data, pkt->size);
        s = lti_avfile_sync(&f, ctx);
        lti_avfile_close(&f);
        if (s == LT_OK && rename(part, path))
            s = lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
        if (s < 0) unlink(part);
    }
    av_free(part);
    return s;
}

lt_status lt_picture_write(lt_ctx *ctx, const char *path, const uint8_t *rgb, int32_t width,
                           int32_t height)
{
    av_log_set_level(AV_LOG_QUIET);
    LT_TRY(lti_size_check(ctx, width, height));
    AVFrame *f = av_frame_alloc();
    AVPacket *pkt = av_packet_alloc();
    lt_status s = LT_OK;
    if (f) {
        f->format = AV_PIX_FMT_RGB24;
        f->width = width;
        f->height = height;
    }
    if (!f || !pkt || av_frame_get_buffer(f, 0) < 0)
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for a picture of %dx%d", width, height);
    if (s == LT_OK) {
        av_image_copy_plane(f->data[0], f->linesize[0], rgb, 3 * width, 3 * width, height);
        s = encode_png(pkt, ctx, f);
    }
    if (s == LT_OK) s = write_whole(ctx, path, pkt);
    av_frame_free(&f);
    av_packet_free(&pkt);
    return s;
}
