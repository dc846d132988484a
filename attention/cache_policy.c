/* cache_policy.c: the published ways of bounding a cache, as parameters, and their text form. */
#include "attention/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FRAMES = 4096 };

static const struct preset {
    const char *name;
    lt_cache_policy policy;
} presets[] = {
    {"self-forcing", {.block = 3, .window = 21, .bias = 1}},
    {"causvid", {.block = 3, .window = 21, .bias = 1}},
    {"longlive", {.block = 3, .window = 12, .sink = 3, .bias = 1}},
    {"longlive-infinity",
     {.block = 3, .window = 12, .sink = 3, .positions = LT_CACHE_RELATIVE, .bias = 1}},
    {"infinity-rope",
     {.block = 3,
      .window = 6,
      .sink = 1,
      .positions = LT_CACHE_RELATIVE,
      .bias = 1,
      .on_prompt = LT_CACHE_FLUSH}},
    {"infinite-forcing",
     {.block = 3, .window = 21, .sink = 1, .positions = LT_CACHE_RELATIVE, .bias = 1}},
};

lt_status lt_cache_policy_check(lt_ctx *ctx, const lt_cache_policy *p)
{
    if (p->block < 1 || p->block > MAX_FRAMES)
        return lti_fail(ctx, LT_ERR_ARG, "cache: blocks of %d frames: not in 1..%d", p->block,
                        MAX_FRAMES);
    if (p->sink < 0 || p->sink > MAX_FRAMES)
        return lti_fail(ctx, LT_ERR_ARG, "cache: a sink of %d frames: not in 0..%d", p->sink,
                        MAX_FRAMES);
    if (p->window < p->sink + p->block || p->window > MAX_FRAMES)
        return lti_fail(ctx, LT_ERR_ARG,
                        "cache: a window of %d frames: not in %d..%d (sink %d, block %d)",
                        p->window, p->sink + p->block, MAX_FRAMES, p->sink, p->block);
    if (p->first < 0 || p->first > p->block)
        return lti_fail(ctx, LT_ERR_ARG, "cache: a first block of %d frames: not in 0..%d",
                        p->first, p->block);
    if (p->on_prompt < LT_CACHE_RECACHE || p->on_prompt > LT_CACHE_KEEP)
        return lti_fail(ctx, LT_ERR_ARG, "cache: switch %d", (int)p->on_prompt);
    if (p->positions != LT_CACHE_ABSOLUTE && p->positions != LT_CACHE_RELATIVE)
        return lti_fail(ctx, LT_ERR_ARG, "cache: positions %d", (int)p->positions);
    if (!(p->bias > 0 && p->bias <= 1))
        return lti_fail(ctx, LT_ERR_ARG, "cache: bias %g: above 0, at most 1", p->bias);
    if (!(p->context_time >= 0 && p->context_time <= 1000))
        return lti_fail(ctx, LT_ERR_ARG, "cache: context-time %g: not in 0..1000", p->context_time);
    return LT_OK;
}

static bool same(const char *word, size_t len, const char *name)
{
    return strlen(name) == len && !memcmp(word, name, len);
}

/* The number that fills all of `word`. */
static bool number(const char *word, size_t len, double *out)
{
    char copy[32], *end;
    if (len == 0 || len >= sizeof copy) return false;
    memcpy(copy, word, len);
    copy[len] = 0;
    *out = strtod(copy, &end);
    return *end == 0 && isfinite(*out);
}

static bool count(const char *word, size_t len, int32_t *out)
{
    double v;
    if (!number(word, len, &v) || v != floor(v) || fabs(v) > MAX_FRAMES) return false;
    *out = (int32_t)v;
    return true;
}

/* Which of at most three words; -1 for another. */
static int choice(const char *word, size_t len, const char *const words[3])
{
    for (int i = 0; i < 3 && words[i]; i++)
        if (same(word, len, words[i])) return i;
    return -1;
}

static bool set(lt_cache_policy *p, const char *key, size_t key_len, const char *v, size_t len)
{
    static const char *const positions[3] = {"absolute", "relative"},
                             *const sink[3] = {"fixed", "follow"},
                             *const on_prompt[3] = {"recache", "flush", "keep"};
    int c;
    if (same(key, key_len, "block")) return count(v, len, &p->block);
    if (same(key, key_len, "window")) return count(v, len, &p->window);
    if (same(key, key_len, "sink")) return count(v, len, &p->sink);
    if (same(key, key_len, "bias")) return number(v, len, &p->bias);
    if (same(key, key_len, "context-time")) return number(v, len, &p->context_time);
    if (same(key, key_len, "positions")) {
        c = choice(v, len, positions);
        p->positions = c == 1 ? LT_CACHE_RELATIVE : LT_CACHE_ABSOLUTE;
        return c >= 0;
    }
    if (same(key, key_len, "sink-positions")) {
        c = choice(v, len, sink);
        p->sink_follows = c == 1;
        return c >= 0;
    }
    if (same(key, key_len, "first")) return count(v, len, &p->first);
    if (same(key, key_len, "switch")) {
        c = choice(v, len, on_prompt);
        p->on_prompt = c < 0 ? p->on_prompt : (lt_cache_switch)c;
        return c >= 0;
    }
    return false;
}

static lt_status find_preset(lt_cache_policy *out, lt_ctx *ctx, const char *name, size_t len)
{
    for (size_t i = 0; i < LT_COUNT(presets); i++)
        if (same(name, len, presets[i].name)) {
            *out = presets[i].policy;
            return LT_OK;
        }
    return lti_fail(ctx, LT_ERR_ARG,
                    "cache: no preset \"%.*s\": there are self-forcing, causvid, longlive, "
                    "longlive-infinity, infinity-rope, infinite-forcing",
                    (int)(len > 100 ? 100 : len), name);
}

lt_status lt_cache_policy_parse(lt_cache_policy *out, lt_ctx *ctx, const char *text)
{
    *out = presets[0].policy;
    if (!text || !*text) return LT_OK;
    const size_t name = strcspn(text, ":");
    LT_TRY(find_preset(out, ctx, text, name));
    const char *at = text + name;
    while (*at) {
        at++; /* ':' before the first, ',' before the others */
        const size_t len = strcspn(at, ","), key = strcspn(at, "=");
        if (key >= len || !set(out, at, key, at + key + 1, len - key - 1))
            return lti_fail(
                ctx, LT_ERR_ARG,
                "cache: \"%.*s\" is not a key with a value it takes: block, window, sink, "
                "first (whole numbers), positions=absolute|relative, sink-positions=fixed|follow, "
                "switch=recache|flush|keep, bias, context-time",
                (int)(len > 100 ? 100 : len), at);
        at += len;
    }
    return lt_cache_policy_check(ctx, out);
}
