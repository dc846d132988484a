/* writer.c: a video file being written. Frames are encoded into "<path>.part", a fragmented MP4 that plays up to its last
 * fragment whatever happens; finishing copies it into an ordinary MP4 and gives that its name in one step. */
#include "stream/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/avstring.h>

struct lt_writer {
    lt_ctx *ctx;
    char *path, *part, *final, *partial; /* final: where the finished copy is made */
    bool overwrite, header, done;
    bool part_there; /* under its name, and to be removed */
    off_t sound;     /* bytes of the part that are whole fragments */
    lt_codec codec;
    int32_t width, height;
    AVRational fps;
    int64_t frames;
    AVDictionary *metadata;
    AVCodecContext *enc;
    AVFormatContext *mux;
    AVFrame *frame;
    AVPacket *pkt;
    lti_avfile file;
};

lt_writer_options lt_writer_options_default(void)
{
    return (lt_writer_options){.crf = -1, .fps_den = 1};
}

static const char final_end[] = ".final.part"; /* the longest that is added to the name */

/* So that a bad name is known now and not when the frames have been made. */
static lt_status check_path(lt_ctx *ctx, const lt_writer_options *o)
{
    const size_t n = o->path ? strlen(o->path) : 0;
    if (n < 5 || strcasecmp(o->path + n - 4, ".mp4"))
        return lti_fail(ctx, LT_ERR_ARG,
                        "output '%s': the name must end in .mp4, after at least "
                        "one character",
                        o->path ? o->path : "");
    const char *slash = strrchr(o->path, '/');
    if (strlen(slash ? slash + 1 : o->path) + sizeof final_end - 1 > NAME_MAX)
        return lti_fail(ctx, LT_ERR_ARG, "output '%s': the name is too long (at most %zu bytes)",
                        o->path, NAME_MAX - sizeof final_end + 1);
    struct stat st;
    if (lstat(o->path, &st)) return LT_OK; /* what else may be wrong, making the part tells */
    if (!o->overwrite) return lti_fail(ctx, LT_ERR_IO, "'%s' exists already", o->path);
    if (!S_ISREG(st.st_mode))
        return lti_fail(ctx, LT_ERR_IO, "'%s' is not a regular file and is not replaced", o->path);
    return LT_OK;
}

static lt_status copy_options(lt_writer *w, const lt_writer_options *o)
{
    const int stem = (int)strlen(o->path) - 4;
    w->overwrite = o->overwrite;
    w->codec = o->codec;
    w->width = o->width;
    w->height = o->height;
    w->fps = (AVRational){o->fps_num, o->fps_den};
    w->path = strdup(o->path);
    w->part = av_asprintf("%s.part", o->path);
    w->final = av_asprintf("%s%s", o->path, final_end);
    w->partial = av_asprintf("%.*s.partial%s", stem, o->path, o->path + stem);
    w->frame = av_frame_alloc();
    w->pkt = av_packet_alloc();
    bool ok = w->path && w->part && w->final && w->partial && w->frame && w->pkt;
    for (int i = 0; ok && i < o->nmetadata; i++)
        ok = av_dict_set(&w->metadata, o->metadata[i].key, o->metadata[i].value, 0) >= 0;
    return ok ? LT_OK : lti_fail(w->ctx, LT_ERR_MEM, "no memory to write '%s'", o->path);
}

static lt_status open_part(lt_writer *w)
{
    LT_TRY(lti_avfile_create(&w->file, w->ctx, w->part));
    w->part_there = true;
    int e = avformat_alloc_output_context2(&w->mux, NULL, "mp4", NULL);
    if (e < 0) return lti_av_fail(w->ctx, LT_ERR_CODEC, e, NULL, "mp4 writer");
    AVStream *st = avformat_new_stream(w->mux, NULL);
    if (!st || avcodec_parameters_from_context(st->codecpar, w->enc) < 0 ||
        av_dict_copy(&w->mux->metadata, w->metadata, 0) < 0)
        return lti_fail(w->ctx, LT_ERR_MEM, "no memory to write '%s'", w->part);
    st->time_base = w->enc->time_base;
    st->avg_frame_rate = w->fps;
    w->mux->pb = w->file.io;
    w->mux->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT | AVFMT_FLAG_FLUSH_PACKETS;
    AVDictionary *opts = NULL;
    av_dict_set(&opts, "movflags", "+frag_keyframe+empty_moov+default_base_moof+use_metadata_tags",
                0);
    e = avformat_write_header(w->mux, &opts);
    av_dict_free(&opts);
    if (e < 0 || w->file.error) return lti_av_fail(w->ctx, LT_ERR_IO, e, &w->file, "cannot write");
    w->header = true;
    return LT_OK;
}

static lt_status open_frame(lt_writer *w)
{
    w->frame->format = w->enc->pix_fmt;
    w->frame->width = w->enc->width;
    w->frame->height = w->enc->height;
    w->frame->color_range = w->enc->color_range;
    w->frame->color_primaries = w->enc->color_primaries;
    w->frame->color_trc = w->enc->color_trc;
    w->frame->colorspace = w->enc->colorspace;
    w->frame->chroma_location = w->enc->chroma_sample_location;
    if (av_frame_get_buffer(w->frame, 0) < 0)
        return lti_fail(w->ctx, LT_ERR_MEM, "no memory for a %dx%d frame", w->width, w->height);
    return LT_OK;
}

lt_status lt_writer_create(lt_writer **out, lt_ctx *ctx, const lt_writer_options *opt)
{
    *out = NULL;
    av_log_set_level(AV_LOG_QUIET); /* FFmpeg would print; what it says comes back as a status */
    LT_TRY(check_path(ctx, opt));
    lt_writer *w = calloc(1, sizeof *w);
    if (!w) return lti_fail(ctx, LT_ERR_MEM, "no memory to write '%s'", opt->path);
    w->ctx = ctx;
    lt_status s = copy_options(w, opt);
    if (s == LT_OK) s = lti_encoder_open(&w->enc, ctx, opt);
    if (s == LT_OK) s = open_frame(w);
    if (s == LT_OK) s = open_part(w);
    if (s < 0) lt_writer_destroy(&w);
    *out = w;
    return s;
}

lt_status lt_writer_describe(lt_writer *w, const char *key, const char *value)
{
    if (w->done) return lti_fail(w->ctx, LT_ERR_ARG, "'%s' is finished already", w->path);
    if (av_dict_set(&w->metadata, key, value, 0) >= 0) return LT_OK;
    return lti_fail(w->ctx, LT_ERR_MEM, "no memory to write '%s'", w->path);
}

/* Moves what the encoder has finished into the part. */
static lt_status drain(lt_writer *w)
{
    AVStream *st = w->mux->streams[0];
    int e;
    while ((e = avcodec_receive_packet(w->enc, w->pkt)) >= 0) {
        if (w->codec == LT_CODEC_H264 && (w->pkt->flags & AV_PKT_FLAG_KEY))
            LT_TRY(lti_mark_packet(w->ctx, w->pkt));
        w->pkt->duration = 1; /* libx264 leaves it 0 */
        av_packet_rescale_ts(w->pkt, w->enc->time_base, st->time_base);
        e = av_write_frame(w->mux, w->pkt);
        av_packet_unref(w->pkt);
        if (e < 0 || w->file.error)
            return lti_av_fail(w->ctx, LT_ERR_IO, e, &w->file, "cannot write");
        w->sound = lseek(w->file.fd, 0, SEEK_CUR);
    }
    if (e == AVERROR(EAGAIN) || e == AVERROR_EOF) return LT_OK;
    return lti_av_fail(w->ctx, LT_ERR_CODEC, e, NULL, "video encoder");
}

lt_status lt_writer_push(lt_writer *w, const uint8_t *rgb)
{
    if (w->done) return lti_fail(w->ctx, LT_ERR_ARG, "'%s' is finished already", w->path);
    int e = av_frame_make_writable(w->frame);
    if (e < 0) return lti_av_fail(w->ctx, LT_ERR_MEM, e, NULL, "video frame");
    lti_rgb_to_yuv420(w->frame->data, w->frame->linesize, rgb, w->width, w->height);
    w->frame->pts = w->frames;
    e = avcodec_send_frame(w->enc, w->frame);
    if (e < 0) return lti_av_fail(w->ctx, LT_ERR_CODEC, e, NULL, "video encoder");
    w->frames++;
    return drain(w);
}

static lt_status close_part(lt_writer *w)
{
    const int e = avcodec_send_frame(w->enc, NULL);
    if (e < 0) return lti_av_fail(w->ctx, LT_ERR_CODEC, e, NULL, "video encoder");
    LT_TRY(drain(w));
    const int t = av_write_trailer(w->mux);
    w->header = false;
    if (t < 0 || w->file.error) return lti_av_fail(w->ctx, LT_ERR_IO, t, &w->file, "cannot write");
    return lti_avfile_sync(&w->file, w->ctx);
}

/* In one step; without `replace` a file that has appeared meanwhile is not lost. */
static lt_status give_name(lt_writer *w, const char *name, bool replace)
{
    int e = replace ? rename(w->final, name)
                    : renameat2(AT_FDCWD, w->final, AT_FDCWD, name, RENAME_NOREPLACE);
    if (e && !replace && (errno == EINVAL || errno == ENOSYS)) /* file systems without the flag */
        e = access(name, F_OK) ? rename(w->final, name) : (errno = EEXIST, -1);
    if (e) return lti_fail(w->ctx, LT_ERR_IO, "cannot write '%s': %s", name, strerror(errno));
    return LT_OK;
}

/* Somebody may have removed it, or put something else in its place. */
static lt_status check_part(lt_writer *w)
{
    struct stat ours, named;
    w->part_there = !fstat(w->file.fd, &ours) && !lstat(w->part, &named) &&
                    ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
    if (w->part_there) return LT_OK;
    return lti_fail(w->ctx, LT_ERR_IO, "'%s' has been removed or replaced: the video is lost",
                    w->part);
}

/* Frames that play of a part that could not be written to its end. */
static int64_t playing_frames(lt_writer *w)
{
    lt_media_info info;
    if (check_part(w) < 0 || ftruncate(w->file.fd, w->sound)) return 0;
    if (lt_media_inspect(&info, w->ctx, w->part) < 0) return 0;
    const int64_t n = info.frames;
    lt_media_info_free(&info);
    return n;
}

/* The frames may have cost hours: what plays stays, and the message says where. */
static lt_status keep_part(lt_writer *w, lt_status s, bool whole)
{
    char why[512];
    snprintf(why, sizeof why, "%s", lt_error(w->ctx));
    const int64_t n = whole ? w->frames : playing_frames(w);
    if (n == 0) return lti_fail(w->ctx, s, "%s", why);
    w->part_there = false;
    if (whole) return lti_fail(w->ctx, s, "%s; the video is kept as '%s'", why, w->part);
    return lti_fail(w->ctx, s, "%s; its first %" PRId64 " frames are kept there", why, n);
}

static lt_status finish_as(lt_writer *w, const char *name, bool replace)
{
    if (w->done) return lti_fail(w->ctx, LT_ERR_ARG, "'%s' is finished already", w->path);
    w->done = true;
    if (!w->frames) return lti_fail(w->ctx, LT_ERR_ARG, "'%s': a video needs a frame", w->path);
    lt_status s = close_part(w);
    const bool whole = s == LT_OK;
    if (whole) LT_TRY(check_part(w));
    if (whole) s = lti_remux(w->ctx, w->part, w->final, w->fps, w->metadata);
    if (s == LT_OK) s = give_name(w, name, replace);
    if (s < 0) {
        if (whole) unlink(w->final);
        return keep_part(w, s, whole);
    }
    unlink(w->part); /* while it is locked: afterwards the name may be another's */
    w->part_there = false;
    return s;
}

lt_status lt_writer_finish(lt_writer *w)
{
    return finish_as(w, w->path, w->overwrite);
}

lt_status lt_writer_finish_partial(lt_writer *w, const char **path)
{
    if (path) *path = w->partial;
    return finish_as(w, w->partial, true);
}

int64_t lt_writer_frames(const lt_writer *w)
{
    return w->frames;
}

void lt_writer_destroy(lt_writer **writer)
{
    lt_writer *w = writer ? *writer : NULL;
    if (!w) return;
    if (w->header) av_write_trailer(w->mux); /* frees what the muxer holds */
    avformat_free_context(w->mux);
    avcodec_free_context(&w->enc);
    if (w->part_there) unlink(w->part);
    lti_avfile_close(&w->file);
    av_frame_free(&w->frame);
    av_packet_free(&w->pkt);
    av_dict_free(&w->metadata);
    free(w->path);
    av_free(w->part);
    av_free(w->final);
    av_free(w->partial);
    free(w);
    *writer = NULL;
}
