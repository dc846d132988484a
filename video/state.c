/* state.c: bytes to a file or from it. All of them pass through one buffer, so that the checksum (64-bit words, as FNV-1a treats bytes)
 * does not depend on how the calls cut them. */
#include "video/state.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 20, CHECKSUM = 8 };

lt_status lti_state_begin(lti_state *s, lt_ctx *ctx, lt_dev *dev, FILE *file, bool reading,
                          uint64_t bytes)
{
    *s = (lti_state){
        .ctx = ctx, .dev = dev, .file = file, .reading = reading, .hash = 0xcbf29ce484222325u};
    if (reading && bytes < CHECKSUM)
        return lti_fail(ctx, LT_ERR_FORMAT, "%" PRIu64 " bytes are no session", bytes);
    s->left = reading ? bytes - CHECKSUM : 0;
    s->buffer = malloc(BUFFER);
    return s->buffer ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory to move a session");
}

void lti_state_close(lti_state *s)
{
    free(s->buffer);
    s->buffer = NULL;
}

/* What is not a whole word is filled up with zeros. */
static void add_hash(lti_state *s, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, s->buffer + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        s->hash = (s->hash ^ word) * 0x100000001b3u;
        s->hash ^= s->hash >> 29;
    }
}

static lt_status cut_short(lti_state *s)
{
    return ferror(s->file) ? lti_fail(s->ctx, LT_ERR_IO, "cannot be read: %s", strerror(errno))
                           : lti_fail(s->ctx, LT_ERR_FORMAT, "ends too early");
}

static lt_status write_out(lti_state *s)
{
    if (fwrite(s->buffer, 1, s->filled, s->file) != s->filled)
        return lti_fail(s->ctx, LT_ERR_IO, "cannot be written: %s", strerror(errno));
    add_hash(s, s->filled);
    s->filled = 0;
    return LT_OK;
}

static lt_status read_in(lti_state *s)
{
    const size_t n = s->left < BUFFER ? (size_t)s->left : BUFFER;
    if (n == 0 || fread(s->buffer, 1, n, s->file) != n) return cut_short(s);
    add_hash(s, n);
    s->left -= n;
    s->filled = n;
    s->used = 0;
    return LT_OK;
}

/* Room in the buffer (writing) or bytes in it (reading): at least one. */
static lt_status ready(lti_state *s, uint8_t **at, size_t *n)
{
    if (s->reading) {
        if (s->used == s->filled) LT_TRY(read_in(s));
        *at = s->buffer + s->used;
        *n = s->filled - s->used;
    } else {
        if (s->filled == BUFFER) LT_TRY(write_out(s));
        *at = s->buffer + s->filled;
        *n = BUFFER - s->filled;
    }
    return LT_OK;
}

static void done(lti_state *s, size_t n)
{
    if (s->reading)
        s->used += n;
    else
        s->filled += n;
}

lt_status lti_state_bytes(lti_state *s, void *data, size_t bytes)
{
    uint8_t *at, *p = data;
    for (size_t n; bytes; bytes -= n, p += n) {
        LT_TRY(ready(s, &at, &n));
        if (n > bytes) n = bytes;
        if (s->reading)
            memcpy(p, at, n);
        else
            memcpy(at, p, n);
        done(s, n);
    }
    return LT_OK;
}

lt_status lti_state_device(lti_state *s, void *device, size_t bytes)
{
    uint8_t *at, *p = device;
    for (size_t n; bytes; bytes -= n, p += n) {
        LT_TRY(ready(s, &at, &n));
        if (n > bytes) n = bytes;
        LT_TRY(s->reading ? lt_dev_upload(s->dev, p, at, n) : lt_dev_download(s->dev, at, p, n));
        done(s, n);
    }
    return LT_OK;
}

lt_status lti_state_end(lti_state *s)
{
    uint64_t stored = s->hash;
    if (!s->reading) {
        LT_TRY(write_out(s));
        stored = s->hash;
        if (fwrite(&stored, 1, CHECKSUM, s->file) != CHECKSUM || fflush(s->file))
            return lti_fail(s->ctx, LT_ERR_IO, "cannot be written: %s", strerror(errno));
        return LT_OK;
    }
    if (s->left || s->used != s->filled)
        return lti_fail(s->ctx, LT_ERR_FORMAT, "has %" PRIu64 " bytes too many",
                        s->left + (s->filled - s->used));
    if (fread(&stored, 1, CHECKSUM, s->file) != CHECKSUM) return cut_short(s);
    if (stored != s->hash)
        return lti_fail(s->ctx, LT_ERR_FORMAT,
                        "is damaged: its checksum is %016" PRIx64 ", not %016" PRIx64, s->hash,
                        stored);
    return LT_OK;
}

/* ---- values ---- */

lt_status lti_state_bits(lti_state *s, uint64_t *v)
{
    return lti_state_bytes(s, v, sizeof *v);
}

lt_status lti_state_int(lti_state *s, const char *name, int64_t *v, int64_t min, int64_t max)
{
    LT_TRY(lti_state_bytes(s, v, sizeof *v));
    if (!s->reading || (*v >= min && *v <= max)) return LT_OK;
    return lti_fail(s->ctx, LT_ERR_FORMAT, "%s is %" PRId64 ", not in %" PRId64 "..%" PRId64, name,
                    *v, min, max);
}

lt_status lti_state_int32(lti_state *s, const char *name, int32_t *v, int32_t min, int32_t max)
{
    int64_t wide = *v;
    LT_TRY(lti_state_int(s, name, &wide, min, max));
    *v = (int32_t)wide;
    return LT_OK;
}

lt_status lti_state_bool(lti_state *s, const char *name, bool *v)
{
    int32_t n = *v;
    LT_TRY(lti_state_int32(s, name, &n, 0, 1));
    *v = n;
    return LT_OK;
}

lt_status lti_state_real(lti_state *s, const char *name, double *v, double min, double max)
{
    LT_TRY(lti_state_bytes(s, v, sizeof *v));
    if (!s->reading || (*v >= min && *v <= max)) return LT_OK;
    return lti_fail(s->ctx, LT_ERR_FORMAT, "%s is %g, not in %g..%g", name, *v, min, max);
}

lt_status lti_state_text(lti_state *s, const char *name, char **text, size_t max)
{
    int64_t n = !s->reading && *text ? (int64_t)strlen(*text) : -1;
    if (s->reading) *text = NULL;
    LT_TRY(lti_state_int(s, name, &n, -1, (int64_t)max));
    if (n < 0) return LT_OK;
    if (!s->reading) return lti_state_bytes(s, *text, (size_t)n);
    char *t = malloc((size_t)n + 1);
    if (!t) return lti_fail(s->ctx, LT_ERR_MEM, "no memory for %s", name);
    const lt_status st = lti_state_bytes(s, t, (size_t)n);
    t[n] = 0;
    if (st >= 0 && strlen(t) == (size_t)n) {
        *text = t;
        return LT_OK;
    }
    free(t);
    return st < 0 ? st : lti_fail(s->ctx, LT_ERR_FORMAT, "%s holds a zero byte", name);
}
