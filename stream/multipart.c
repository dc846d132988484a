/* multipart.c: multipart/form-data (RFC 7578), the body in one piece. Nothing is copied but names. */
#include "stream/jobs.h"

#include <string.h>

enum { MAX_BOUNDARY = 70, MAX_HEADERS = 4096 };

/* The value of a parameter `name` in "x; name=value; name2=\"value\"". False: there is none, or it is too long. */
static bool parameter(const char *text, size_t n, const char *name, char *out, size_t cap)
{
    const size_t len = strlen(name);
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\') {
            i++;
            continue;
        }
        if (text[i] == '"') quoted = !quoted;
        if (quoted || text[i] != ';') continue;
        size_t k = i + 1, m = 0;
        while (k < n && (text[k] == ' ' || text[k] == '\t'))
            k++;
        if (n - k <= len || strncasecmp(text + k, name, len) || text[k + len] != '=') continue;
        k += len + 1;
        const bool q = k < n && text[k] == '"';
        for (k += q; k < n && (q ? text[k] != '"' : !strchr("; \t", text[k])); k++) {
            if (q && text[k] == '\\' && k + 1 < n) k++;
            if (m + 1 >= cap || !text[k]) return false;
            out[m++] = text[k];
        }
        out[m] = 0;
        return !q || k < n;
    }
    return false;
}

/* The headers of a part up to the empty line; *bytes: with it. False: malformed. */
static bool read_headers(lti_part *p, const uint8_t *at, size_t n, size_t *bytes)
{
    static const char disposition[] = "content-disposition:";
    const uint8_t *end = memmem(at, n < MAX_HEADERS ? n : MAX_HEADERS, "\r\n\r\n", 4);
    bool named = false;
    char file[256];
    if (!end) return false;
    *bytes = (size_t)(end - at) + 4;
    for (const uint8_t *line = at; line < end + 2;) {
        const uint8_t *stop = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);
        const size_t len = stop ? (size_t)(stop - line) : 0;
        if (!stop) return false;
        if (len >= sizeof disposition - 1 &&
            !strncasecmp((const char *)line, disposition, sizeof disposition - 1)) {
            named = parameter((const char *)line, len, "name", p->name, sizeof p->name) &&
                    lti_text_valid(p->name, strlen(p->name));
            p->file = parameter((const char *)line, len, "filename", file, sizeof file);
        }
        line = stop + 2;
    }
    return named;
}

int lti_multipart_parse(const char *content_type, const uint8_t *body, size_t bytes, lti_part *out,
                        int max)
{
    char boundary[MAX_BOUNDARY + 8] = "\r\n--";
    const uint8_t *at = body, *end = body + bytes;
    int n = 0;
    if (!parameter(content_type, strlen(content_type), "boundary", boundary + 4,
                   MAX_BOUNDARY + 1) ||
        !boundary[4])
        return -1;
    const size_t len = strlen(boundary);
    /* the first one may lie at the very beginning */
    if (bytes >= len - 2 && !memcmp(at, boundary + 2, len - 2))
        at += len - 2;
    else if ((at = bytes ? memmem(body, bytes, boundary, len) : NULL))
        at += len;
    else
        return -1;
    while (end - at < 2 || memcmp(at, "--", 2)) {
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        size_t head;
        if (n == max || end - at < 2 || memcmp(at, "\r\n", 2)) return -1;
        lti_part *p = &out[n++];
        *p = (lti_part){0};
        at += 2;
        if (!read_headers(p, at, (size_t)(end - at), &head)) return -1;
        p->data = at + head;
        const uint8_t *next = memmem(p->data - 2, (size_t)(end - p->data) + 2, boundary, len);
        if (!next) return -1;
        p->bytes = next > p->data ? (size_t)(next - p->data) : 0;
        at = next + len;
    }
    return n;
}
