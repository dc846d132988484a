/* input.c: foreign pictures and videos, opened with a short list of containers and codecs, so that no playlist leads to
 * another file or to the network. */
#include "stream/internal.h"

/* Names as FFmpeg's demuxers and decoders have them. */
#define CONTAINERS                                                                                \
    "png_pipe,jpeg_pipe,webp_pipe,bmp_pipe,gif,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts," \
    "h264,ivf,obu"
#define CODECS                                                                                  \
    "png,mjpeg,webp,bmp,gif,h264,hevc,libdav1d,libaom-av1,av1,vp8,vp9,mpeg4,mpeg2video,prores," \
    "ffv1,rawvideo"

lt_status lti_input_open(AVFormatContext **in, lti_avfile *f, lt_ctx *ctx, const char *path)
{
    *in = NULL;
    LT_TRY(lti_avfile_open(f, ctx, path));
    AVFormatContext *c = avformat_alloc_context();
    AVDictionary *opts = NULL;
    if (!c) {
        lti_avfile_close(f);
        return lti_fail(ctx, LT_ERR_MEM, "no memory to open '%s'", path);
    }
    c->pb = f->io;
    c->flags |= AVFMT_FLAG_CUSTOM_IO;
    c->probesize = 4 << 20;
    c->max_streams = 64;
    av_dict_set(&opts, "format_whitelist", CONTAINERS, 0);
    av_dict_set(&opts, "codec_whitelist", CODECS, 0);
    av_dict_set(&opts, "protocol_whitelist", "none", 0);
    av_dict_set(&opts, "export_xmp", "1", 0);           /* MP4; others leave it */
    int e = avformat_open_input(&c, NULL, NULL, &opts); /* frees c on failure */
    av_dict_free(&opts);
    if (e < 0) {
        if (e == AVERROR(EINVAL) && !f->error) /* known to FFmpeg, and not on the list */
            lti_fail(
                ctx, LT_ERR_FORMAT,
                "'%s' is of a kind that is not read: pictures are PNG, JPEG, WebP, BMP or GIF, "
                "videos MP4, Matroska, WebM, AVI or MPEG-TS",
                path);
        else
            lti_av_fail(ctx, LT_ERR_FORMAT, e, f, "not a picture or video that can be read:");
        const lt_status s = f->error ? LT_ERR_IO : LT_ERR_FORMAT;
        lti_avfile_close(f);
        return s;
    }
    *in = c;
    return LT_OK;
}
