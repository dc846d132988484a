/* extend.c: how a video is extended, as text (extend.h). */
#include "video/extend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEGMENT = 1024, DEFAULT_OVERLAP = 3 };

static bool same(const char *word, size_t len, const char *name)
{
    return strlen(name) == len && !memcmp(word, name, len);
}

/* The whole number that fills all of `word`. */
static bool number(const char *word, size_t len, int32_t *out)
{
    char copy[16], *end;
    if (len == 0 || len >= sizeof copy || word[0] < '0' || word[0] > '9') return false;
    memcpy(copy, word, len);
    copy[len] = 0;
    const long v = strtol(copy, &end, 10);
    if (*end || v > INT32_MAX) return false;
    *out = (int32_t)v;
    return true;
}

static bool set_head(lti_extend_policy *p, const char *word, size_t len)
{
    static const char *const names[] = {"encode", "first", "latent"};
    for (size_t i = 0; i < LT_COUNT(names); i++)
        if (same(word, len, names[i])) {
            p->head = (lti_head)i;
            return true;
        }
    return false;
}

/* One word; *frames: the segment in video frames. */
static bool set(lti_extend_policy *p, int32_t *frames, const char *word, size_t len)
{
    const char *eq = memchr(word, '=', len);
    if (!eq) {
        p->naive = same(word, len, "naive");
        return p->naive;
    }
    const size_t key = (size_t)(eq - word), n = len - key - 1;
    if (same(word, key, "segment")) return number(eq + 1, n, frames);
    if (same(word, key, "overlap")) return number(eq + 1, n, &p->overlap);
    return same(word, key, "head") && set_head(p, eq + 1, n);
}

static lt_status check_segment(lt_ctx *ctx, const lt_model_info *info, int32_t frames)
{
    const int32_t f = info->frame_scale, most = 1 + f * (MAX_SEGMENT - 1);
    if (frames > most)
        return lti_fail(ctx, LT_ERR_ARG, "extend: segment %d: %d is the most", frames, most);
    if (frames < 1 + f)
        return lti_fail(ctx, LT_ERR_ARG, "extend: segment %d: the nearest is %d", frames, 1 + f);
    const int32_t low = frames - (frames - 1) % f;
    if (low == frames) return LT_OK;
    return lti_fail(ctx, LT_ERR_ARG,
                    "extend: segment %d: must be %d k + 1; the nearest are %d and %d", frames, f,
                    low, low + f);
}

static lt_status check_overlap(lt_ctx *ctx, const lti_extend_policy *p)
{
    const int32_t least = p->head == LTI_HEAD_FIRST ? 2 : 1, most = p->segment / 2;
    if (p->naive && p->overlap != 1)
        return lti_fail(ctx, LT_ERR_ARG, "extend: overlap %d: naive has its one picture alone",
                        p->overlap);
    if (p->naive || (p->overlap >= least && p->overlap <= most)) return LT_OK;
    if (most < least)
        return lti_fail(ctx, LT_ERR_ARG,
                        "extend: a segment of %d latent frames is too short for an overlap",
                        p->segment);
    return lti_fail(
        ctx, LT_ERR_ARG,
        "extend: overlap %d: latent frames, %d to half of the segment's %d; the nearest "
        "is %d",
        p->overlap, least, p->segment, p->overlap < least ? least : most);
}

lt_status lti_extend_parse(lti_extend_policy *out, lt_ctx *ctx, const lt_model_info *info,
                           const char *text)
{
    int32_t frames = info->default_frames;
    *out = (lti_extend_policy){.overlap = -1};
    for (const char *at = text && *text ? text : NULL; at;) {
        const size_t len = strcspn(at, ",");
        if (!set(out, &frames, at, len))
            return lti_fail(ctx, LT_ERR_ARG,
                            "extend: '%.*s' is none of naive, segment=FRAMES, overlap=LATENTS, "
                            "head=encode|first|latent",
                            (int)(len > 80 ? 80 : len), at);
        at = at[len] ? at + len + 1 : NULL;
    }
    LT_TRY(check_segment(ctx, info, frames));
    out->segment = (frames - 1) / info->frame_scale + 1;
    if (out->overlap < 0) {
        out->overlap = out->naive ? 1 : DEFAULT_OVERLAP;
        if (!out->naive && out->overlap > out->segment / 2) out->overlap = out->segment / 2;
    }
    return check_overlap(ctx, out);
}
