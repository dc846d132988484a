/* status.c: names and sizes of statuses and types, checked sizes, the clock, the context with its message and log. */
#include "kernels/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGE_BYTES = 1024 };

struct lt_ctx {
    char message[MESSAGE_BYTES];
    lt_log_fn *log;
    void *user;
    lt_log_level max_level;
};

const char *lt_status_name(lt_status s)
{
    switch (s) {
#define X(name, value, text) \
    case name:               \
        return #name;
        LT_STATUS_MAP(X)
#undef X
    }
    return "LT_ERR_?";
}

const char *lt_status_text(lt_status s)
{
    switch (s) {
#define X(name, value, text) \
    case name:               \
        return text;
        LT_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

lt_status lt_ctx_create(lt_ctx **out, lt_log_fn *log, void *user, lt_log_level max_level)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return LT_ERR_MEM;
    (*out)->log = log;
    (*out)->user = user;
    (*out)->max_level = max_level;
    return LT_OK;
}

void lt_ctx_destroy(lt_ctx **ctx)
{
    if (!ctx) return;
    free(*ctx);
    *ctx = NULL;
}

const char *lt_error(const lt_ctx *ctx)
{
    return ctx ? ctx->message : "";
}

double lti_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

size_t lti_utf8_character(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    static const uint32_t least[] = {1, 0x80, 0x800, 0x10000};
    const size_t more = *p < 0x80           ? 0
                        : (*p >> 5) == 0x06 ? 1
                        : (*p >> 4) == 0x0e ? 2
                        : (*p >> 3) == 0x1e ? 3
                                            : 4;
    if (more == 4) return 0;
    uint32_t c = more ? *p & (0x3fu >> more) : *p;
    for (size_t i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    return c >= least[more] && c <= 0x10ffff && (c >> 11) != 0x1b ? more + 1 : 0;
}

/* Messages go into JSON and onto terminals, and names in them come from foreign files: they are UTF-8 without control characters
 * (C0, DEL and C1), which begin lines and move cursors. */
static void set_message(lt_ctx *ctx, char text[MESSAGE_BYTES])
{
    for (char *p = text; *p;) {
        const unsigned char *c = (const unsigned char *)p;
        const size_t n = lti_utf8_character(p);
        if (!n || *c < 0x20 || *c == 0x7f) *p = '?';
        if (*c == 0xc2 && c[1] < 0xa0) p[0] = p[1] = '?';
        p += n ? n : 1;
    }
    memcpy(ctx->message, text, MESSAGE_BYTES);
}

lt_status lti_fail(lt_ctx *ctx, lt_status s, const char *fmt, ...)
{
    if (!ctx) return s;
    /* through a buffer of its own, because an argument may be the present message */
    char text[MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    set_message(ctx, text);
    lti_log(ctx, LT_LOG_DEBUG, "status=%s message=\"%s\"", lt_status_name(s), text);
    return s;
}

lt_status lti_within(lt_ctx *ctx, lt_status s, const char *fmt, ...)
{
    if (!ctx) return s;
    char text[MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) return s;
    size_t used = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    const char *old = ctx->message[0] ? ctx->message : lt_status_text(s);
    const int room = (int)(sizeof text - used) - 3; /* what does not fit is cut */
    if (room > 0) snprintf(text + used, sizeof text - used, ": %.*s", room, old);
    set_message(ctx, text);
    return s;
}

void lti_log(lt_ctx *ctx, lt_log_level level, const char *fmt, ...)
{
    if (!ctx || !ctx->log || level > ctx->max_level) return;
    char line[2 * MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    ctx->log(ctx->user, level, line);
}

bool lti_mul_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool lti_add_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

size_t lt_dtype_size(lt_dtype t)
{
    switch (t) {
    case LT_F32:
        return 4;
    case LT_BF16:
    case LT_F16:
        return 2;
    }
    return 0;
}

size_t lt_image_bytes(const lt_image *im)
{
    const int64_t h = (int64_t)im->h + 2 * (int64_t)im->border,
                  w = (int64_t)im->w + 2 * (int64_t)im->border;
    size_t n;
    if (h < 0 || w < 0 || im->c < 0 || !lti_mul_size(&n, (size_t)h, (size_t)w) ||
        !lti_mul_size(&n, n, (size_t)im->c) || !lti_mul_size(&n, n, lt_dtype_size(im->dtype)))
        return SIZE_MAX;
    return n;
}

const char *lt_dtype_name(lt_dtype t)
{
    switch (t) {
    case LT_F32:
        return "f32";
    case LT_BF16:
        return "bf16";
    case LT_F16:
        return "f16";
    }
    return "?";
}

const char *lt_tag_name(lt_tag tag)
{
    switch (tag) {
#define X(name, text) \
    case name:        \
        return text;
        LT_TAG_MAP(X)
#undef X
    case LT_TAG_COUNT:
        break;
    }
    return "?";
}

float lti_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 31u, frac = h & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } x;
    if (exp == 31) {
        x.u = sign | 0x7f800000u | (frac << 13);
    } else if (exp) {
        x.u = sign | ((exp + 112) << 23) | (frac << 13);
    } else {
        x.f = (float)frac * 0x1p-24f;
        x.u |= sign;
    }
    return x.f;
}

float lti_load(const void *data, lt_dtype t, int64_t i)
{
    const unsigned char *p = data;
    if (t == LT_F32) {
        float f;
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return t == LT_BF16 ? lti_bf16_to_f32(h) : lti_f16_to_f32(h);
}
