/* inspect.c: what a video file says of itself. Frames are counted, not believed. */
#include "stream/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/pixdesc.h>

static const char *or_unknown(const char *name)
{
    return name ? name : "unknown";
}

static void describe(lt_media_info *out, const AVStream *st)
{
    const AVCodecParameters *p = st->codecpar;
    out->width = p->width;
    out->height = p->height;
    out->fps = av_q2d(st->avg_frame_rate.num ? st->avg_frame_rate : st->r_frame_rate);
    if (!(out->fps > 0 && out->fps < 1e6)) out->fps = 0;
    snprintf(out->codec, sizeof out->codec, "%s", avcodec_get_name(p->codec_id));
    snprintf(out->pix_fmt, sizeof out->pix_fmt, "%s", or_unknown(av_get_pix_fmt_name(p->format)));
    snprintf(out->color, sizeof out->color, "%s/%s/%s/%s",
             or_unknown(av_color_range_name(p->color_range)),
             or_unknown(av_color_primaries_name(p->color_primaries)),
             or_unknown(av_color_transfer_name(p->color_trc)),
             or_unknown(av_color_space_name(p->color_space)));
}

static bool add_entry(lt_media_info *out, const char *key, const char *value)
{
    lt_key_value *m = realloc(out->metadata, ((size_t)out->nmetadata + 1) * sizeof *m);
    if (!m) return false;
    out->metadata = m;
    m[out->nmetadata].key = strdup(key);
    m[out->nmetadata].value = strdup(value);
    out->nmetadata++;
    return m[out->nmetadata - 1].key && m[out->nmetadata - 1].value;
}

/* Reads every packet: frames, the time they span, and whether key frames carry our SEI message. */
static lt_status count_frames(lt_media_info *out, lt_ctx *ctx, const char *path,
                              AVFormatContext *in, int stream, bool *marked)
{
    AVPacket *pkt = av_packet_alloc();
    if (!pkt) return lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", path);
    int64_t keys = 0, marks = 0;
    while (av_read_frame(in, pkt) >= 0) {
        if (pkt->stream_index == stream) {
            out->frames++;
            out->cut = pkt->flags & AV_PKT_FLAG_CORRUPT; /* of the last one */
            if (pkt->flags & AV_PKT_FLAG_KEY) {
                keys++;
                marks += lti_packet_is_marked(pkt->data, (size_t)pkt->size);
            }
        }
        av_packet_unref(pkt);
    }
    av_packet_free(&pkt);
    *marked = keys > 0 && marks == keys;
    /* an index that is written at the end of a file; other formats only guess */
    if (strstr(in->iformat->name, "mp4")) out->cut |= out->frames < in->streams[stream]->nb_frames;
    return LT_OK;
}

static lt_status inspect(lt_media_info *out, lt_ctx *ctx, const char *path, AVFormatContext *in)
{
    for (unsigned i = 0; i < in->nb_streams; i++)
        if (in->streams[i]->codecpar->width > LTI_MAX_SIDE ||
            in->streams[i]->codecpar->height > LTI_MAX_SIDE)
            return lti_fail(ctx, LT_ERR_UNSUPPORTED, "'%s': a picture of %dx%d, more than %dx%d",
                            path, in->streams[i]->codecpar->width, in->streams[i]->codecpar->height,
                            LTI_MAX_SIDE, LTI_MAX_SIDE);
    int e = avformat_find_stream_info(in, NULL);
    const int stream = e < 0 ? e : av_find_best_stream(in, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (stream < 0) return lti_fail(ctx, LT_ERR_FORMAT, "'%s': there is no video in it", path);
    const AVStream *st = in->streams[stream];
    describe(out, st);
    bool marked = false, ok = true;
    LT_TRY(count_frames(out, ctx, path, in, stream, &marked));
    if (st->duration > 0)
        out->seconds = (double)st->duration * av_q2d(st->time_base);
    else if (out->fps > 0)
        out->seconds = (double)out->frames / out->fps;
    const AVDictionaryEntry *m = NULL;
    while (ok && (m = av_dict_get(in->metadata, "", m, AV_DICT_IGNORE_SUFFIX)))
        ok = add_entry(out, m->key, m->value);
    if (ok && marked) ok = add_entry(out, "sei", "AI-generated (every key frame)");
    return ok ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", path);
}

lt_status lt_media_inspect(lt_media_info *out, lt_ctx *ctx, const char *path)
{
    *out = (lt_media_info){0};
    av_log_set_level(AV_LOG_QUIET);
    lti_avfile f = {0};
    AVFormatContext *in = NULL;
    LT_TRY(lti_input_open(&in, &f, ctx, path));
    const lt_status s = inspect(out, ctx, path, in);
    avformat_close_input(&in);
    lti_avfile_close(&f);
    if (s < 0) lt_media_info_free(out);
    return s;
}

static void free_text(const char *p)
{
    union {
        const char *c;
        char *m;
    } u = {p};
    free(u.m);
}

void lt_media_info_free(lt_media_info *info)
{
    for (int i = 0; info && i < info->nmetadata; i++) {
        free_text(info->metadata[i].key);
        free_text(info->metadata[i].value);
    }
    if (!info) return;
    free(info->metadata);
    *info = (lt_media_info){0};
}
