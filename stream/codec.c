/* codec.c: the encoders of video files and their settings. */
#include "stream/internal.h"

#include <stdio.h>
#include <string.h>

#include <libavutil/cpu.h>
#include <libavutil/opt.h>

typedef struct codec_traits {
    const char *name, *encoder, *preset;
    int crf, max_crf, min_side;
} codec_traits;

static const codec_traits traits[] = {
    [LT_CODEC_H264] = {"h264", "libx264", "medium", 18, 51, 2},
    [LT_CODEC_AV1] = {"av1", "libsvtav1", "6", 30, 63, 64},
};

bool lt_codec_parse(const char *name, lt_codec *out)
{
    for (size_t i = 0; i < LT_COUNT(traits); i++)
        if (!strcmp(name, traits[i].name)) {
            *out = (lt_codec)i;
            return true;
        }
    return false;
}

const char *lt_codec_name(lt_codec c)
{
    return (size_t)c < LT_COUNT(traits) ? traits[c].name : "?";
}

int32_t lt_codec_default_crf(lt_codec c)
{
    return (size_t)c < LT_COUNT(traits) ? traits[c].crf : -1;
}

static lt_status check(lt_ctx *ctx, const lt_writer_options *o)
{
    if ((size_t)o->codec >= LT_COUNT(traits))
        return lti_fail(ctx, LT_ERR_ARG, "codec %d: unknown", (int)o->codec);
    const codec_traits *t = &traits[o->codec];
    if (o->width < 2 || o->height < 2 || o->width > LTI_MAX_SIDE || o->height > LTI_MAX_SIDE ||
        o->width % 2 || o->height % 2)
        return lti_fail(ctx, LT_ERR_ARG, "video size %dx%d: sides must be even and 2..%d", o->width,
                        o->height, LTI_MAX_SIDE);
    if (o->width < t->min_side || o->height < t->min_side)
        return lti_fail(ctx, LT_ERR_ARG, "video size %dx%d: %s needs at least %dx%d", o->width,
                        o->height, t->name, t->min_side, t->min_side);
    if (o->fps_num < 1 || o->fps_den < 1 || o->fps_num / o->fps_den > 1000)
        return lti_fail(ctx, LT_ERR_ARG, "frame rate %d/%d: not between 0 and 1000", o->fps_num,
                        o->fps_den);
    if (o->crf < -1 || o->crf > t->max_crf)
        return lti_fail(ctx, LT_ERR_ARG, "crf %d: not in 1..%d for %s", o->crf, t->max_crf,
                        t->name);
    if (o->crf == 0 && o->codec == LT_CODEC_H264) /* High 4:4:4 Predictive: browsers refuse it */
        return lti_fail(ctx, LT_ERR_ARG, "crf 0: lossless h264 does not play in browsers, take 1");
    if (o->threads < 0 || o->threads > 128)
        return lti_fail(ctx, LT_ERR_ARG, "encoder threads %d: not in 0..128", o->threads);
    return LT_OK;
}

/* Four threads whatever the machine has, since x264's bytes depend on their number; SVT-AV1's do not. */
enum { DEFAULT_THREADS = 4 };

static void set_fields(AVCodecContext *enc, const lt_writer_options *o)
{
    enc->width = o->width;
    enc->height = o->height;
    enc->pix_fmt = AV_PIX_FMT_YUV420P;
    enc->time_base = (AVRational){o->fps_den, o->fps_num};
    enc->framerate = (AVRational){o->fps_num, o->fps_den};
    enc->sample_aspect_ratio = (AVRational){1, 1};
    enc->color_range = AVCOL_RANGE_MPEG;
    enc->color_primaries = AVCOL_PRI_BT709;
    enc->color_trc = AVCOL_TRC_BT709;
    enc->colorspace = AVCOL_SPC_BT709;
    enc->chroma_sample_location = AVCHROMA_LOC_LEFT;
    /* a key frame every 4 s: what seeking costs */
    enc->gop_size = (int)(4 * (int64_t)o->fps_num / o->fps_den);
    if (enc->gop_size < 1) enc->gop_size = 1;
    enc->thread_count = o->threads ? o->threads : DEFAULT_THREADS;
    enc->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_BITEXACT;
}

lt_status lti_encoder_open(AVCodecContext **out, lt_ctx *ctx, const lt_writer_options *o)
{
    *out = NULL;
    LT_TRY(check(ctx, o));
    const codec_traits *t = &traits[o->codec];
    const AVCodec *codec = avcodec_find_encoder_by_name(t->encoder);
    if (!codec)
        return lti_fail(ctx, LT_ERR_CODEC, "codec %s: this FFmpeg has no %s", t->name, t->encoder);
    AVCodecContext *enc = avcodec_alloc_context3(codec);
    AVDictionary *opts = NULL;
    if (!enc) return lti_fail(ctx, LT_ERR_MEM, "no memory for an encoder");
    set_fields(enc, o);
    char crf[16];
    snprintf(crf, sizeof crf, "%d", o->crf < 0 ? t->crf : o->crf);
    av_dict_set(&opts, "crf", crf, 0);
    av_dict_set(&opts, "preset", o->preset ? o->preset : t->preset, 0);
    if (o->codec == LT_CODEC_H264) av_dict_set(&opts, "profile", "high", 0);
    /* x264 0.164's AVX-512 lookahead (macroblock tree) reads memory it has not written: the bytes change from run to run.
     * Its AVX2 does not. */
    if (o->codec == LT_CODEC_H264 && (av_get_cpu_flags() & AV_CPU_FLAG_AVX512))
        av_dict_set(&opts, "x264-params", "asm=AVX2", 0);
    int e = avcodec_open2(enc, codec, &opts);
    const AVDictionaryEntry *left = av_dict_get(opts, "", NULL, AV_DICT_IGNORE_SUFFIX);
    lt_status s = LT_OK;
    if (e < 0)
        s = lti_av_fail(ctx, LT_ERR_CODEC, e, NULL, t->encoder);
    else if (left) /* FFmpeg leaves what it does not know, in silence */
        s = lti_fail(ctx, LT_ERR_CODEC, "%s does not know the option %s", t->encoder, left->key);
    av_dict_free(&opts);
    if (s < 0) avcodec_free_context(&enc);
    *out = enc;
    return s;
}
