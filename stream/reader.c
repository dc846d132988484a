/* reader.c: a video file, frame by frame: scaled to cover the size that is wanted, its middle, turned upright, at the rate that is
 * wanted. Frame k is what a player shows at the middle of that frame's time, (k + 1/2) / fps, so equal rates give every frame
 * once however the container rounds its times, and others repeat frames or leave some out.
 */
#include "stream/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/display.h>

enum { MAX_SHOWN = 120 }; /* seconds that one frame may stand */

struct lt_reader {
    lt_ctx *ctx;
    char *path;
    lti_avfile file;
    AVFormatContext *in;
    AVCodecContext *dec;
    AVPacket *pkt;
    AVFrame *now, *ahead; /* the frame that is shown, and the one that takes its place */
    int stream, orient;
    int32_t width, height;
    double fps, source_fps;
    double begin; /* time of the first frame in the file */
    double
        now_end; /* when `ahead` begins, from `begin` on; the end of the video when there is none */
    int64_t decoded;  /* frames */
    int64_t next;     /* number of the frame to be handed out */
    bool more, shown; /* `ahead` is there; `rgb` holds `now` */
    bool drained;     /* the demuxer has ended */
    uint8_t *rgb;
};

lt_reader_options lt_reader_options_default(void)
{
    return (lt_reader_options){.fps = 0};
}

/* A quarter turn or none, as an EXIF orientation: what telephones write. */
static int orientation_of(const AVStream *st)
{
    const uint8_t *matrix = av_stream_get_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, NULL);
    if (!matrix) return 1;
    const double turn = av_display_rotation_get((const int32_t *)(const void *)matrix);
    if (!isfinite(turn)) return 1;
    switch ((int)lround(turn / 90) & 3) { /* counter-clockwise */
    case 1:
        return 8;
    case 2:
        return 3;
    case 3:
        return 6;
    default:
        return 1;
    }
}

static lt_status open_file(lt_reader *r)
{
    LT_TRY(lti_input_open(&r->in, &r->file, r->ctx, r->path));
    for (unsigned i = 0; i < r->in->nb_streams; i++) {
        const AVCodecParameters *p = r->in->streams[i]->codecpar;
        if (p->width > LTI_MAX_SIDE || p->height > LTI_MAX_SIDE)
            return lti_too_large(r->ctx, r->path, p->width, p->height);
    }
    const int e = avformat_find_stream_info(r->in, NULL);
    r->stream = e < 0 ? e : av_find_best_stream(r->in, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (r->stream < 0)
        return lti_fail(r->ctx, LT_ERR_FORMAT, "'%s': there is no video in it", r->path);
    const AVStream *st = r->in->streams[r->stream];
    const AVRational rate = st->avg_frame_rate.num > 0 ? st->avg_frame_rate : st->r_frame_rate;
    r->source_fps = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 25;
    r->orient = orientation_of(st);
    return lti_decoder_open(&r->dec, r->ctx, r->path, st);
}

/* The next picture to `frame`; LT_END behind the last one. Damaged packets are passed over, as players do. */
static lt_status decode(lt_reader *r, AVFrame *frame)
{
    av_frame_unref(frame);
    for (;;) {
        int e = avcodec_receive_frame(r->dec, frame);
        if (e >= 0 && (frame->width > LTI_MAX_SIDE || frame->height > LTI_MAX_SIDE))
            return lti_too_large(r->ctx, r->path, frame->width, frame->height);
        if (e >= 0 && frame->width > 0 && frame->height > 0) {
            r->decoded++;
            return LT_OK;
        }
        if (e == AVERROR_EOF || (e != AVERROR(EAGAIN) && r->drained)) return LT_END;
        e = av_read_frame(r->in, r->pkt);
        if (e < 0) {
            if (r->file.error) return lti_av_fail(r->ctx, LT_ERR_IO, e, &r->file, r->path);
            if (r->drained) return LT_END;
            r->drained = true;
            (void)avcodec_send_packet(r->dec, NULL);
            continue;
        }
        if (r->pkt->stream_index == r->stream) (void)avcodec_send_packet(r->dec, r->pkt);
        av_packet_unref(r->pkt);
    }
}

/* When a frame begins, in seconds of the file; frames without a time follow each other at the file's rate. */
static double time_of(const lt_reader *r, const AVFrame *f, double after)
{
    const int64_t pts = f->best_effort_timestamp;
    const double step = 1 / r->source_fps;
    if (pts == AV_NOPTS_VALUE) return after + step;
    const double t = (double)pts * av_q2d(r->in->streams[r->stream]->time_base);
    /* a clock that stands still, runs back or leaps for minutes is not one */
    return t > after && t < after + MAX_SHOWN ? t : after + step;
}

/* `now` and `ahead` go one frame on; LT_END when the last one has been shown for its time. */
static lt_status advance(lt_reader *r)
{
    if (!r->more) return LT_END;
    AVFrame *f = r->now;
    r->now = r->ahead;
    r->ahead = f;
    r->shown = false;
    const double at = r->now_end;
    const lt_status s = decode(r, r->ahead);
    LT_TRY(s);
    r->more = s == LT_OK;
    r->now_end = r->more ? time_of(r, r->ahead, r->begin + at) - r->begin : at + 1 / r->source_fps;
    return LT_OK;
}

static lt_status first_frames(lt_reader *r)
{
    lt_status s = decode(r, r->ahead);
    LT_TRY(s);
    if (s == LT_END)
        return lti_fail(r->ctx, LT_ERR_FORMAT, "'%s': not one frame of it can be decoded", r->path);
    const int64_t pts = r->ahead->best_effort_timestamp;
    r->begin =
        pts == AV_NOPTS_VALUE ? 0 : (double)pts * av_q2d(r->in->streams[r->stream]->time_base);
    r->more = true;
    s = advance(r);
    return s < 0 ? s : LT_OK;
}

static lt_status fill(lt_reader *r, const lt_reader_options *o)
{
    LT_TRY(lti_size_check(r->ctx, o->width, o->height));
    if (!(o->fps >= 0 && o->fps <= 1000))
        return lti_fail(r->ctx, LT_ERR_ARG, "rate of %g frames a second: not in 0..1000", o->fps);
    r->width = o->width;
    r->height = o->height;
    r->path = strdup(o->path);
    r->rgb = malloc((size_t)o->width * (size_t)o->height * 3);
    r->pkt = av_packet_alloc();
    r->now = av_frame_alloc();
    r->ahead = av_frame_alloc();
    if (!r->path || !r->rgb || !r->pkt || !r->now || !r->ahead)
        return lti_fail(r->ctx, LT_ERR_MEM, "no memory to read '%s'", o->path);
    LT_TRY(open_file(r));
    r->fps = o->fps > 0 ? o->fps : r->source_fps;
    return first_frames(r);
}

lt_status lt_reader_create(lt_reader **out, lt_ctx *ctx, const lt_reader_options *opt)
{
    *out = NULL;
    av_log_set_level(AV_LOG_QUIET);
    lt_reader *r = calloc(1, sizeof *r);
    if (!r) return lti_fail(ctx, LT_ERR_MEM, "no memory to read '%s'", opt->path);
    r->ctx = ctx;
    const lt_status s = fill(r, opt);
    if (s < 0)
        lt_reader_destroy(&r);
    else
        *out = r;
    return s;
}

void lt_reader_destroy(lt_reader **reader)
{
    lt_reader *r = reader ? *reader : NULL;
    if (!r) return;
    av_frame_free(&r->now);
    av_frame_free(&r->ahead);
    av_packet_free(&r->pkt);
    avcodec_free_context(&r->dec);
    avformat_close_input(&r->in);
    lti_avfile_close(&r->file);
    free(r->rgb);
    free(r->path);
    free(r);
    *reader = NULL;
}

lt_status lt_reader_next(lt_reader *r, const uint8_t **rgb)
{
    *rgb = NULL;
    const double at = ((double)r->next + 0.5) / r->fps;
    while (at >= r->now_end) {
        const lt_status s = advance(r);
        if (s != LT_OK) return s;
    }
    if (!r->shown)
        LT_TRY(lti_frame_rgb(r->rgb, r->ctx, r->path, r->now, r->orient, r->width, r->height));
    r->shown = true;
    r->next++;
    *rgb = r->rgb;
    return LT_OK;
}

double lt_reader_source_fps(const lt_reader *r)
{
    return r->source_fps;
}
