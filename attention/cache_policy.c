/* cache_policy.c: the published ways of bounding a cache, as parameters, and their text form. */
#include "attention/attention.h"
#include "attention/words.h"

#include <float.h>
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
    if (p->first_of != 0 && (p->first_of < p->first || p->first_of > p->window))
        return lti_fail(ctx, LT_ERR_ARG,
                        "cache: a first block out of one of %d frames: neither 0 nor in %d..%d",
                        p->first_of, p->first, p->window);
    if (p->on_prompt < LT_CACHE_RECACHE || p->on_prompt > LT_CACHE_CUT)
        return lti_fail(ctx, LT_ERR_ARG, "cache: switch %d", (int)p->on_prompt);
    if (p->on_prompt == LT_CACHE_CUT && p->window == p->block)
        return lti_fail(ctx, LT_ERR_ARG,
                        "cache: switch=cut: a window of %d frames is the block that is drawn: the "
                        "picture of the new shot would not be seen",
                        p->window);
    if (p->positions != LT_CACHE_ABSOLUTE && p->positions != LT_CACHE_RELATIVE)
        return lti_fail(ctx, LT_ERR_ARG, "cache: positions %d", (int)p->positions);
    if (!(p->bias > 0 && p->bias <= 1))
        return lti_fail(ctx, LT_ERR_ARG, "cache: bias %g: above 0, at most 1", p->bias);
    if (!(p->context_time >= 0 && p->context_time <= 1000))
        return lti_fail(ctx, LT_ERR_ARG, "cache: context-time %g: not in 0..1000", p->context_time);
    return LT_OK;
}

typedef lti_word_text word;

/* What is out of range is for lt_cache_policy_check to say. */
static bool number(word w, double *out)
{
    return lti_read_number(w, -DBL_MAX, DBL_MAX, out);
}

static bool count(word w, int32_t *out)
{
    return lti_read_whole(w, -MAX_FRAMES, MAX_FRAMES, out);
}

/* Which of the words before NULL; -1 for another. */
static int choice(word w, const char *const words[])
{
    for (int i = 0; words[i]; i++)
        if (lti_word_is(w, words[i])) return i;
    return -1;
}

static bool set(lt_cache_policy *p, word key, word v)
{
    static const char *const positions[] = {"absolute", "relative", NULL},
                             *const sink[] = {"fixed", "follow", NULL},
                             *const on_prompt[] = {"recache", "flush", "keep", "cut", NULL};
    int c;
    if (lti_word_is(key, "block")) return count(v, &p->block);
    if (lti_word_is(key, "window")) return count(v, &p->window);
    if (lti_word_is(key, "sink")) return count(v, &p->sink);
    if (lti_word_is(key, "bias")) return number(v, &p->bias);
    if (lti_word_is(key, "context-time")) return number(v, &p->context_time);
    if (lti_word_is(key, "positions")) {
        c = choice(v, positions);
        p->positions = c == 1 ? LT_CACHE_RELATIVE : LT_CACHE_ABSOLUTE;
        return c >= 0;
    }
    if (lti_word_is(key, "sink-positions")) {
        c = choice(v, sink);
        p->sink_follows = c == 1;
        return c >= 0;
    }
    if (lti_word_is(key, "first")) return count(v, &p->first);
    if (lti_word_is(key, "first-of")) return count(v, &p->first_of);
    if (lti_word_is(key, "switch")) {
        c = choice(v, on_prompt);
        p->on_prompt = c < 0 ? p->on_prompt : (lt_cache_switch)c;
        return c >= 0;
    }
    return false;
}

static lt_status find_preset(lt_cache_policy *out, lt_ctx *ctx, word name)
{
    for (size_t i = 0; i < LT_COUNT(presets); i++)
        if (lti_word_is(name, presets[i].name)) {
            *out = presets[i].policy;
            return LT_OK;
        }
    return lti_fail(ctx, LT_ERR_ARG,
                    "cache: no preset \"%.*s\": there are self-forcing, causvid, longlive, "
                    "longlive-infinity, infinity-rope, infinite-forcing",
                    (int)(name.len > 100 ? 100 : name.len), name.text);
}

lt_status lt_cache_policy_parse(lt_cache_policy *out, lt_ctx *ctx, const char *text)
{
    *out = presets[0].policy;
    if (!text || !*text) return LT_OK;
    const word name = {text, strcspn(text, ":")};
    LT_TRY(find_preset(out, ctx, name));
    const char *at = text + name.len;
    while (*at) {
        at++; /* ':' before the first, ',' before the others */
        const size_t len = strcspn(at, ","), key = strcspn(at, "=");
        if (key >= len || !set(out, (word){at, key}, (word){at + key + 1, len - key - 1}))
            return lti_fail(
                ctx, LT_ERR_ARG,
                "cache: \"%.*s\" is not a key with a value it takes: block, window, sink, "
                "first, first-of (whole numbers), positions=absolute|relative, "
                "sink-positions=fixed|follow, "
                "switch=recache|flush|keep|cut, bias, context-time",
                (int)(len > 100 ? 100 : len), at);
        at += len;
    }
    return lt_cache_policy_check(ctx, out);
}
