/* fmp4.c: MP4 in fragments of one frame. FFmpeg writes the beginning (it knows avcC, colr and metadata); the fragments are written
 * here, since each follows from its frame alone: a viewer who comes late, seeks or reconnects needs no muxer of its own. */
#include "stream/server.h"

#include <stdlib.h>
#include <string.h>

/* ---- Annex B ---- */

enum { NAL_SPS = 7, NAL_PPS = 8, NAL_AUD = 9 };

/* The next NAL unit at or after *at: its place and size without start code and trailing zeros. False: no more. */
static bool next_nal(const uint8_t *p, size_t size, size_t *at, size_t *from, size_t *bytes)
{
    size_t i = *at;
    while (i + 3 <= size && !(p[i] == 0 && p[i + 1] == 0 && p[i + 2] == 1))
        i++;
    if (i + 3 > size) return false;
    const size_t start = i += 3;
    while (i + 3 <= size && !(p[i] == 0 && p[i + 1] == 0 && p[i + 2] <= 1))
        i++;
    if (i + 3 > size) i = size;
    *at = i;
    *from = start;
    *bytes = i - start;
    return true;
}

void lti_parameter_sets(const uint8_t *au, size_t size, uint8_t *out, size_t cap, size_t *bytes)
{
    size_t at = 0, from, n;
    *bytes = 0;
    while (next_nal(au, size, &at, &from, &n)) {
        const int type = n ? au[from] & 31 : 0;
        if (type != NAL_SPS && type != NAL_PPS) continue;
        if (n + 4 > cap - *bytes) {
            *bytes = 0;
            return;
        }
        memcpy(out + *bytes, (const uint8_t[]){0, 0, 0, 1}, 4);
        memcpy(out + *bytes + 4, au + from, n);
        *bytes += n + 4;
    }
}

bool lti_codec_string(const uint8_t *sets, size_t bytes, char out[16])
{
    size_t at = 0, from, n;
    while (next_nal(sets, bytes, &at, &from, &n)) {
        if (n < 4 || (sets[from] & 31) != NAL_SPS) continue;
        snprintf(out, 16, "avc1.%02X%02X%02X", sets[from + 1], sets[from + 2], sets[from + 3]);
        return true;
    }
    return false;
}

/* ---- the beginning ---- */

static lt_status describe(lt_ctx *ctx, AVFormatContext *mux, const uint8_t *sets, size_t set_bytes,
                          const AVRational size_fps[2], const lt_key_value *meta, int32_t nmeta)
{
    AVStream *st = avformat_new_stream(mux, NULL);
    if (!st) return lti_fail(ctx, LT_ERR_MEM, "no memory for an MP4");
    AVCodecParameters *c = st->codecpar;
    c->extradata = av_mallocz(set_bytes + AV_INPUT_BUFFER_PADDING_SIZE);
    if (!c->extradata) return lti_fail(ctx, LT_ERR_MEM, "no memory for an MP4");
    memcpy(c->extradata, sets, set_bytes);
    c->extradata_size = (int)set_bytes;
    c->codec_type = AVMEDIA_TYPE_VIDEO;
    c->codec_id = AV_CODEC_ID_H264;
    c->width = size_fps[0].num;
    c->height = size_fps[0].den;
    c->color_range = AVCOL_RANGE_MPEG;
    c->color_primaries = AVCOL_PRI_BT709;
    c->color_trc = AVCOL_TRC_BT709;
    c->color_space = AVCOL_SPC_BT709;
    st->time_base = av_inv_q(size_fps[1]);
    st->avg_frame_rate = size_fps[1];
    for (int32_t i = 0; i < nmeta; i++)
        if (av_dict_set(&mux->metadata, meta[i].key, meta[i].value, 0) < 0)
            return lti_fail(ctx, LT_ERR_MEM, "no memory for an MP4");
    return LT_OK;
}

enum { TICKS = 1000 }; /* of a frame, in the time scale of the file */

static lt_status write_beginning(lt_ctx *ctx, AVFormatContext *mux, int32_t fps)
{
    AVDictionary *opts = NULL;
    av_dict_set(&opts, "movflags", "+frag_custom+empty_moov+default_base_moof+use_metadata_tags",
                0);
    av_dict_set_int(&opts, "video_track_timescale", (int64_t)fps * TICKS, 0);
    mux->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
    const int e = avformat_write_header(mux, &opts);
    av_dict_free(&opts);
    return e < 0 ? lti_av_fail(ctx, LT_ERR_CODEC, e, NULL, "mp4 writer") : LT_OK;
}

lt_status lti_fmp4_init(lt_ctx *ctx, uint8_t **out, size_t *bytes, const uint8_t *sets,
                        size_t set_bytes, int32_t width, int32_t height, int32_t fps,
                        const lt_key_value *metadata, int32_t nmetadata)
{
    AVFormatContext *mux = NULL;
    uint8_t *head = NULL, *xmp = NULL;
    size_t xmp_bytes = 0;
    const AVRational size_fps[2] = {{width, height}, {fps, 1}};
    *out = NULL;
    *bytes = 0;
    int e = avformat_alloc_output_context2(&mux, NULL, "mp4", NULL);
    if (e < 0) return lti_av_fail(ctx, LT_ERR_CODEC, e, NULL, "mp4 writer");
    lt_status s = describe(ctx, mux, sets, set_bytes, size_fps, metadata, nmetadata);
    if (s == LT_OK && (e = avio_open_dyn_buf(&mux->pb)) < 0)
        s = lti_av_fail(ctx, LT_ERR_MEM, e, NULL, "mp4 writer");
    if (s == LT_OK) s = write_beginning(ctx, mux, fps);
    int n = mux->pb ? avio_get_dyn_buf(mux->pb, &head) : 0; /* before the trailer adds to it */
    if (s == LT_OK) s = lti_xmp_box(ctx, &xmp, &xmp_bytes);
    if (s == LT_OK && !(*out = malloc((size_t)n + xmp_bytes)))
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for an MP4");
    if (s == LT_OK) {
        memcpy(*out, head, (size_t)n);
        memcpy(*out + n, xmp, xmp_bytes);
        *bytes = (size_t)n + xmp_bytes;
        av_write_trailer(mux); /* frees what the muxer holds */
    }
    free(xmp);
    if (mux->pb) avio_close_dyn_buf(mux->pb, &head), av_free(head);
    avformat_free_context(mux);
    return s;
}

/* ---- fragments ---- */

enum { MOOF_BYTES = 8 + 16 + 8 + 16 + 20 + 32, MDAT_HEAD = 8 };

static uint8_t *be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
    return p + 4;
}

static uint8_t *box(uint8_t *p, uint32_t bytes, const char *type)
{
    p = be32(p, bytes);
    memcpy(p, type, 4);
    return p + 4;
}

size_t lti_fmp4_bound(size_t au_bytes)
{
    /* a start code of 3 bytes becomes a length of 4; a NAL unit is one byte or more */
    return MOOF_BYTES + MDAT_HEAD + au_bytes + au_bytes / 4 + 4;
}

/* Annex B to lengths, without parameter sets: the beginning has them. */
static size_t lengths(uint8_t *out, const uint8_t *au, size_t size)
{
    size_t at = 0, from, n, done = 0;
    while (next_nal(au, size, &at, &from, &n)) {
        const int type = n ? au[from] & 31 : 0;
        if (!n || type == NAL_SPS || type == NAL_PPS || type == NAL_AUD) continue;
        be32(out + done, (uint32_t)n);
        memcpy(out + done + 4, au + from, n);
        done += n + 4;
    }
    return done;
}

size_t lti_fmp4_fragment(uint8_t *out, const uint8_t *au, size_t size, uint32_t sequence,
                         int64_t frame, bool key)
{
    const uint32_t sample = (uint32_t)lengths(out + MOOF_BYTES + MDAT_HEAD, au, size);
    const uint64_t time = (uint64_t)frame * TICKS;
    uint8_t *p = box(out, MOOF_BYTES, "moof");
    p = box(p, 16, "mfhd");
    p = be32(be32(p, 0), sequence);
    p = box(p, MOOF_BYTES - 24, "traf");
    p = box(p, 16, "tfhd");
    p = be32(be32(p, 0x020000), 1); /* default-base-is-moof; track 1 */
    p = box(p, 20, "tfdt");
    p = be32(be32(be32(p, 1u << 24), (uint32_t)(time >> 32)), (uint32_t)time);
    p = box(p, 32, "trun");
    p = be32(be32(p, 0x000701), 1); /* data offset, duration, size, flags; one sample */
    p = be32(p, MOOF_BYTES + MDAT_HEAD);
    p = be32(be32(p, TICKS), sample);
    p = be32(p, key ? 0x02000000 : 0x01010000); /* sync sample, or depends on others and is none */
    p = box(p, MDAT_HEAD + sample, "mdat");
    return (size_t)(p - out) + sample;
}
