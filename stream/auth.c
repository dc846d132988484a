/* auth.c: who may talk to the server: tokens from a file, the Origin of a page, names of this machine. */
#include "stream/server.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void lti_random_hex(char *out, size_t n)
{
    uint8_t bytes[64];
    assert(n <= sizeof bytes);
    size_t got = 0;
    while (got < n) {
        const ssize_t r = getrandom(bytes + got, n - got, 0);
        if (r > 0) got += (size_t)r;
    }
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* ---- tokens ---- */

enum { MAX_TOKENS = 1024, TOKEN_MIN = 16, TOKEN_MAX = 256 };

struct lti_tokens {
    int count;
    char text[MAX_TOKENS][TOKEN_MAX + 1]; /* padded with zeros */
};

static lt_status add_line(lti_tokens *t, lt_ctx *ctx, const char *path, int number, char *line)
{
    size_t n = strcspn(line, "\r\n");
    while (n && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    line[n] = 0;
    if (!n || line[0] == '#') return LT_OK;
    if (n < TOKEN_MIN || n > TOKEN_MAX ||
        strspn(line, "!\"#$%&'()*+,-./0123456789:;<=>?@"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                     "abcdefghijklmnopqrstuvwxyz{|}~") != n)
        return lti_fail(ctx, LT_ERR_FORMAT,
                        "'%s', line %d: a token is %d to %d printable characters without spaces",
                        path, number, TOKEN_MIN, TOKEN_MAX);
    if (t->count == MAX_TOKENS)
        return lti_fail(ctx, LT_ERR_FORMAT, "'%s': more than %d tokens", path, MAX_TOKENS);
    memcpy(t->text[t->count++], line, n);
    return LT_OK;
}

lt_status lti_tokens_read(lti_tokens **out, lt_ctx *ctx, const char *path)
{
    char line[TOKEN_MAX + 64];
    *out = NULL;
    FILE *f = fopen(path, "re");
    if (!f) return lti_fail(ctx, LT_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    lti_tokens *t = calloc(1, sizeof *t);
    lt_status s = t ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for tokens");
    for (int n = 1; s == LT_OK && fgets(line, sizeof line, f); n++)
        s = add_line(t, ctx, path, n, line);
    if (s == LT_OK && ferror(f)) s = lti_fail(ctx, LT_ERR_IO, "cannot read '%s'", path);
    if (s == LT_OK && !t->count) s = lti_fail(ctx, LT_ERR_FORMAT, "'%s' has no token", path);
    fclose(f);
    explicit_bzero(line, sizeof line);
    if (s < 0) lti_tokens_free(t);
    if (s == LT_OK) *out = t;
    return s;
}

void lti_tokens_free(lti_tokens *t)
{
    if (t) explicit_bzero(t, sizeof *t);
    free(t);
}

/* 0 when all bytes are equal, without stopping at the first that is not. */
static unsigned difference(const char *a, const char *b, size_t n)
{
    volatile unsigned d = 0;
    for (size_t i = 0; i < n; i++)
        d |= (unsigned)(unsigned char)a[i] ^ (unsigned char)b[i];
    return d;
}

int lti_tokens_find(const lti_tokens *t, const char *text)
{
    char padded[TOKEN_MAX + 1] = "";
    int found = -1;
    if (!text || strlen(text) > TOKEN_MAX) return -1;
    memcpy(padded, text, strlen(text));
    for (int i = 0; i < t->count; i++)
        if (!difference(t->text[i], padded, sizeof padded)) found = i;
    return found;
}

void lti_tokens_owner(const lti_tokens *t, int index, char out[17])
{
    /* FNV-1a: it lies beside the journal, which is as private as the tokens' file */
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = t->text[index]; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    snprintf(out, 17, "%016" PRIx64, h);
}

bool lti_equal(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && !difference(a, b, strlen(a));
}

/* ---- pages ---- */

/* "[::1]:8080" -> "[::1]" */
static size_t name_length(const char *host)
{
    if (*host == '[') {
        const char *end = strchr(host, ']');
        return end ? (size_t)(end - host) + 1 : strlen(host);
    }
    return strcspn(host, ":");
}

bool lti_host_is_loopback(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]", "::1"};
    for (size_t i = 0; i < LT_COUNT(names); i++) {
        const size_t n = i == 3 ? strlen(host) : name_length(host);
        if (n == strlen(names[i]) && !strncasecmp(host, names[i], n)) return true;
    }
    return false;
}

bool lti_origin_allowed(const char *origin, const char *host, const char *allowed)
{
    const size_t n = strlen(origin);
    for (const char *p = allowed; p && *p;) {
        const size_t len = strcspn(p, ",");
        if (len == n && !strncasecmp(p, origin, n)) return true;
        p += len + (p[len] == ',');
    }
    const char *rest = !strncasecmp(origin, "http://", 7)    ? origin + 7
                       : !strncasecmp(origin, "https://", 8) ? origin + 8
                                                             : NULL;
    return rest && *rest && !strcasecmp(rest, host);
}
