/* encode.c: the encoder of a live stream: every frame becomes an access unit at once (no lookahead, no reordering), so that a decoder
 * can show it at once. Key frames carry parameter sets and the mark. */
#include "stream/server.h"

#include <stdlib.h>
#include <string.h>

#include <libavutil/cpu.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

struct lti_encoder {
    lt_ctx *ctx;
    lti_encoder_options o;
    AVCodecContext *enc, *jpeg; /* jpeg: when first asked for */
    struct SwsContext *to_jpeg;
    uint8_t *padded; /* a picture, with room behind it: libswscale reads ahead */
    AVFrame *frame, *jpeg_frame;
    AVPacket *pkt;
    int64_t count;
};

static lt_status open_codec(AVCodecContext *enc, const AVCodec *codec, lt_ctx *ctx,
                            AVDictionary **opts)
{
    const int e = avcodec_open2(enc, codec, opts);
    const AVDictionaryEntry *left = av_dict_get(*opts, "", NULL, AV_DICT_IGNORE_SUFFIX);
    lt_status s = LT_OK;
    if (e < 0)
        s = lti_av_fail(ctx, LT_ERR_CODEC, e, NULL, codec->name);
    else if (left) /* FFmpeg leaves what it does not know, in silence */
        s = lti_fail(ctx, LT_ERR_CODEC, "%s does not know the option %s", codec->name, left->key);
    av_dict_free(opts);
    return s;
}

static lt_status open_h264(lti_encoder *e)
{
    const AVCodec *codec = avcodec_find_encoder_by_name("libx264");
    if (!codec) return lti_fail(e->ctx, LT_ERR_CODEC, "this FFmpeg has no libx264");
    AVCodecContext *c = e->enc = avcodec_alloc_context3(codec);
    if (!c) return lti_fail(e->ctx, LT_ERR_MEM, "no memory for an encoder");
    c->width = e->o.width;
    c->height = e->o.height;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->time_base = (AVRational){1, e->o.fps};
    c->framerate = (AVRational){e->o.fps, 1};
    c->sample_aspect_ratio = (AVRational){1, 1};
    c->color_range = AVCOL_RANGE_MPEG;
    c->color_primaries = AVCOL_PRI_BT709;
    c->color_trc = AVCOL_TRC_BT709;
    c->colorspace = AVCOL_SPC_BT709;
    c->chroma_sample_location = AVCHROMA_LOC_LEFT;
    c->gop_size = 2 * e->o.fps; /* what joining late and seeking cost */
    c->refs = 1;
    c->thread_count = 1; /* one slice a picture: some decoders want that */
    c->flags |= AV_CODEC_FLAG_BITEXACT;
    /* a key frame of noise must not hold up the line */
    c->rc_max_rate = (int64_t)e->o.width * e->o.height * e->o.fps / 2 + 500000;
    c->rc_buffer_size = (int)(c->rc_max_rate < INT32_MAX / 2 ? c->rc_max_rate : INT32_MAX / 2);
    AVDictionary *opts = NULL;
    av_dict_set(&opts, "preset", "veryfast", 0);
    av_dict_set(&opts, "tune", "zerolatency", 0);
    av_dict_set(&opts, "profile", "high", 0);
    av_dict_set_int(&opts, "crf", e->o.crf ? e->o.crf : 21, 0);
    av_dict_set(&opts, "forced-idr", "1", 0);
    /* as in codec.c: x264's AVX-512 lookahead reads what it has not written */
    const bool avx512 = (av_get_cpu_flags() & AV_CPU_FLAG_AVX512) != 0;
    av_dict_set(&opts, "x264-params", avx512 ? "scenecut=0:asm=AVX2" : "scenecut=0", 0);
    return open_codec(c, codec, e->ctx, &opts);
}

static lt_status open_frame(lti_encoder *e, AVFrame **out, const AVCodecContext *c)
{
    AVFrame *f = *out = av_frame_alloc();
    if (!f) return lti_fail(e->ctx, LT_ERR_MEM, "no memory for a frame");
    f->format = c->pix_fmt;
    f->width = c->width;
    f->height = c->height;
    f->color_range = c->color_range;
    if (av_frame_get_buffer(f, 0) < 0)
        return lti_fail(e->ctx, LT_ERR_MEM, "no memory for a %dx%d frame", f->width, f->height);
    return LT_OK;
}

lt_status lti_live_encoder_open(lti_encoder **out, lt_ctx *ctx, const lti_encoder_options *o)
{
    *out = NULL;
    av_log_set_level(AV_LOG_QUIET); /* what FFmpeg says comes back as a status */
    if (o->width < 2 || o->height < 2 || o->width > LTI_MAX_SIDE || o->height > LTI_MAX_SIDE ||
        o->width % 2 || o->height % 2 || o->fps < 1 || o->fps > 1000)
        return lti_fail(ctx, LT_ERR_ARG, "a stream of %dx%d at %d fps cannot be encoded", o->width,
                        o->height, o->fps);
    lti_encoder *e = calloc(1, sizeof *e);
    if (!e) return lti_fail(ctx, LT_ERR_MEM, "no memory for an encoder");
    e->ctx = ctx;
    e->o = *o;
    e->pkt = av_packet_alloc();
    lt_status s = e->pkt ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for an encoder");
    if (s == LT_OK && !o->pictures_only) s = open_h264(e);
    if (s == LT_OK && !o->pictures_only) s = open_frame(e, &e->frame, e->enc);
    if (s < 0) lti_live_encoder_close(&e);
    *out = e;
    return s;
}

static lt_status encode(lti_encoder *e, AVCodecContext *c, AVFrame *f)
{
    int r = avcodec_send_frame(c, f);
    if (r >= 0) r = avcodec_receive_packet(c, e->pkt);
    return r < 0 ? lti_av_fail(e->ctx, LT_ERR_CODEC, r, NULL, c->codec->name) : LT_OK;
}

lt_status lti_live_encoder_push(lti_encoder *e, const uint8_t *rgb, bool key, lti_unit_info *info,
                                lti_unit **out)
{
    *out = NULL;
    if (av_frame_make_writable(e->frame) < 0)
        return lti_fail(e->ctx, LT_ERR_MEM, "no memory for a frame");
    lti_rgb_to_yuv420(e->frame->data, e->frame->linesize, rgb, e->o.width, e->o.height);
    e->frame->pts = e->count++;
    e->frame->pict_type = key ? AV_PICTURE_TYPE_I : AV_PICTURE_TYPE_NONE;
    LT_TRY(encode(e, e->enc, e->frame));
    lt_status s = LT_OK;
    info->kind = LTI_UNIT_VIDEO;
    info->flags &= (uint16_t)~LTI_FLAG_KEY;
    if (e->pkt->flags & AV_PKT_FLAG_KEY) {
        info->flags |= LTI_FLAG_KEY;
        s = lti_mark_packet(e->ctx, e->pkt);
    }
    info->flags |= LTI_FLAG_MARKED;
    if (s == LT_OK && !(*out = lti_unit_create(info, e->pkt->data, (size_t)e->pkt->size)))
        s = lti_fail(e->ctx, LT_ERR_MEM, "no memory for a video packet");
    av_packet_unref(e->pkt);
    return s;
}

/* ---- JPEG ---- */

static size_t rgb_bytes(const lti_encoder *e)
{
    return 3 * (size_t)e->o.width * (size_t)e->o.height;
}

static lt_status open_jpeg(lti_encoder *e)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_MJPEG);
    AVCodecContext *c = e->jpeg = codec ? avcodec_alloc_context3(codec) : NULL;
    if (!c) return lti_fail(e->ctx, LT_ERR_CODEC, "this FFmpeg has no JPEG encoder");
    c->width = e->o.width;
    c->height = e->o.height;
    c->pix_fmt = AV_PIX_FMT_YUVJ420P; /* BT.601, full range, as JPEG has it */
    c->color_range = AVCOL_RANGE_JPEG;
    c->time_base = (AVRational){1, e->o.fps};
    c->thread_count = 1;
    c->flags |= AV_CODEC_FLAG_QSCALE | AV_CODEC_FLAG_BITEXACT;
    c->global_quality = 3 * FF_QP2LAMBDA;
    AVDictionary *opts = NULL;
    LT_TRY(open_codec(c, codec, e->ctx, &opts));
    LT_TRY(open_frame(e, &e->jpeg_frame, c));
    e->padded = av_mallocz(rgb_bytes(e) + AV_INPUT_BUFFER_PADDING_SIZE);
    if (!e->padded) return lti_fail(e->ctx, LT_ERR_MEM, "no memory for a picture");
    e->to_jpeg = sws_getContext(c->width, c->height, AV_PIX_FMT_RGB24, c->width, c->height,
                                c->pix_fmt, SWS_BILINEAR | SWS_ACCURATE_RND, NULL, NULL, NULL);
    if (!e->to_jpeg) return lti_fail(e->ctx, LT_ERR_MEM, "no memory for a colour conversion");
    e->jpeg_frame->quality = c->global_quality;
    return LT_OK;
}

static const char jpeg_mark[] =
    "AI-generated; generator=Longtake; digitalSourceType=" LTI_DIGITAL_SOURCE;

/* A comment segment after the start of the image says what it is. */
static lti_unit *marked_jpeg(const AVPacket *pkt, const lti_unit_info *info)
{
    enum { COMMENT = 4 + sizeof jpeg_mark - 1 };
    lti_unit *u = pkt->size < 2 ? NULL : lti_unit_create(info, NULL, (size_t)pkt->size + COMMENT);
    if (!u) return NULL;
    uint8_t *p = lti_unit_payload(u);
    memcpy(p, pkt->data, 2);
    const uint8_t head[4] = {0xff, 0xfe, (COMMENT - 2) >> 8, (COMMENT - 2) & 255};
    memcpy(p + 2, head, 4);
    memcpy(p + 6, jpeg_mark, COMMENT - 4);
    memcpy(p + 2 + COMMENT, pkt->data + 2, (size_t)pkt->size - 2);
    return u;
}

lt_status lti_live_encoder_jpeg(lti_encoder *e, const uint8_t *rgb, const lti_unit_info *info,
                                lti_unit **out)
{
    lti_unit_info i = *info;
    i.kind = LTI_UNIT_JPEG;
    i.flags |= LTI_FLAG_KEY | LTI_FLAG_MARKED;
    *out = NULL;
    if (!e->to_jpeg) LT_TRY(open_jpeg(e));
    if (av_frame_make_writable(e->jpeg_frame) < 0)
        return lti_fail(e->ctx, LT_ERR_MEM, "no memory for a frame");
    memcpy(e->padded, rgb, rgb_bytes(e));
    const uint8_t *const from[4] = {e->padded};
    const int stride[4] = {3 * e->o.width};
    sws_scale(e->to_jpeg, from, stride, 0, e->o.height, e->jpeg_frame->data,
              e->jpeg_frame->linesize);
    e->jpeg_frame->pts = info->frame;
    LT_TRY(encode(e, e->jpeg, e->jpeg_frame));
    *out = marked_jpeg(e->pkt, &i);
    av_packet_unref(e->pkt);
    return *out ? LT_OK : lti_fail(e->ctx, LT_ERR_MEM, "no memory for a JPEG");
}

void lti_live_encoder_close(lti_encoder **encoder)
{
    lti_encoder *e = encoder ? *encoder : NULL;
    if (!e) return;
    avcodec_free_context(&e->enc);
    avcodec_free_context(&e->jpeg);
    sws_freeContext(e->to_jpeg);
    av_free(e->padded);
    av_frame_free(&e->frame);
    av_frame_free(&e->jpeg_frame);
    av_packet_free(&e->pkt);
    free(e);
    *encoder = NULL;
}
