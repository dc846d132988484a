/* remux.c: from the fragmented part, which survives a crash, to the file that plays everywhere: index first, exact
 * times, metadata, XMP box at the end (top-level boxes may come in any order, and there it moves no offsets). */
#include "stream/internal.h"

#include <stdlib.h>
#include <unistd.h>

#include <libavutil/avstring.h>
#include <libavutil/opt.h>

typedef struct remux {
    lt_ctx *ctx;
    AVFormatContext *in, *out;
    lti_avfile from, to;
    AVPacket *pkt;
} remux;

static lt_status open_output(remux *r, const char *to, AVRational fps, const AVDictionary *metadata)
{
    LT_TRY(lti_avfile_create(&r->to, r->ctx, to));
    int e = avformat_alloc_output_context2(&r->out, NULL, "mp4", NULL);
    if (e < 0) return lti_av_fail(r->ctx, LT_ERR_CODEC, e, NULL, "mp4 writer");
    AVStream *st = avformat_new_stream(r->out, NULL);
    r->out->url = av_asprintf("file:%s", to); /* the index is moved by reading this file back */
    if (!st || !r->out->url || av_dict_copy(&r->out->metadata, metadata, 0) < 0)
        return lti_fail(r->ctx, LT_ERR_MEM, "no memory to write '%s'", to);
    r->out->pb = r->to.io;
    r->out->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
    e = avcodec_parameters_copy(st->codecpar, r->in->streams[0]->codecpar);
    if (e < 0) return lti_av_fail(r->ctx, LT_ERR_MEM, e, NULL, "mp4 writer");
    st->codecpar->codec_tag = 0;
    st->time_base = av_inv_q(fps);
    st->avg_frame_rate = st->r_frame_rate = fps;
    AVDictionary *opts = NULL;
    av_dict_set(&opts, "movflags", "+faststart+use_metadata_tags", 0);
    /* else the file's duration is rounded to milliseconds */
    av_dict_set_int(&opts, "movie_timescale", fps.num, 0);
    e = avformat_write_header(r->out, &opts);
    av_dict_free(&opts);
    return e < 0 ? lti_av_fail(r->ctx, LT_ERR_IO, e, &r->to, "cannot write") : LT_OK;
}

static lt_status copy_packets(remux *r)
{
    const AVRational from = r->in->streams[0]->time_base, to = r->out->streams[0]->time_base;
    int64_t origin = AV_NOPTS_VALUE;
    int e;
    while ((e = av_read_frame(r->in, r->pkt)) >= 0) {
        if (origin == AV_NOPTS_VALUE)
            origin = r->pkt->pts; /* the part cannot begin below 0: undo its shift */
        r->pkt->pts -= origin;
        r->pkt->dts -= origin;
        av_packet_rescale_ts(r->pkt, from, to);
        r->pkt->stream_index = 0;
        r->pkt->pos = -1;
        e = av_interleaved_write_frame(r->out, r->pkt);
        if (e < 0 || r->to.error) return lti_av_fail(r->ctx, LT_ERR_IO, e, &r->to, "cannot write");
    }
    if (e != AVERROR_EOF) return lti_av_fail(r->ctx, LT_ERR_IO, e, &r->from, "cannot read");
    e = av_write_trailer(r->out);
    if (e < 0 || r->to.error) return lti_av_fail(r->ctx, LT_ERR_IO, e, &r->to, "cannot write");
    return LT_OK;
}

static lt_status add_xmp(remux *r)
{
    uint8_t *box;
    size_t size;
    LT_TRY(lti_xmp_box(r->ctx, &box, &size));
    avio_seek(r->to.io, avio_size(r->to.io), SEEK_SET);
    avio_write(r->to.io, box, (int)size);
    free(box);
    return lti_avfile_sync(&r->to, r->ctx);
}

lt_status lti_remux(lt_ctx *ctx, const char *from, const char *to, AVRational fps,
                    const AVDictionary *metadata)
{
    remux r = {.ctx = ctx, .pkt = av_packet_alloc()};
    lt_status s = r.pkt ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory to write '%s'", to);
    if (s == LT_OK) s = lti_input_open(&r.in, &r.from, ctx, from);
    if (s == LT_OK) s = open_output(&r, to, fps, metadata);
    const bool created = r.to.path != NULL;
    if (s == LT_OK) s = copy_packets(&r);
    if (s == LT_OK) s = add_xmp(&r);
    avformat_close_input(&r.in);
    if (r.out) avformat_free_context(r.out);
    av_packet_free(&r.pkt);
    lti_avfile_close(&r.from);
    lti_avfile_close(&r.to);
    if (s < 0 && created) unlink(to);
    return s;
}
