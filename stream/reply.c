/* reply.c: pieces of HTTP requests and replies: paths, queries, ranges, errors in the OpenAI API's shape. */
#include "stream/server.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void lti_reply_header(lti_http_reply *re, const char *name, const char *fmt, ...)
{
    if (re->headers == (int)LT_COUNT(re->header)) return;
    va_list ap;
    va_start(ap, fmt);
    re->header[re->headers].name = name;
    vsnprintf(re->header[re->headers].value, sizeof re->header[0].value, fmt, ap);
    va_end(ap);
    re->headers++;
}

void lti_reply_json(lti_http_reply *re, int status, json_t *value)
{
    free(re->body);
    re->body = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    re->bytes = re->body ? (int64_t)strlen(re->body) : 0;
    re->status = re->body ? status : 500;
    re->type = "application/json";
    json_decref(value);
}

void lti_reply_error(lti_http_reply *re, int status, const char *type, const char *code,
                     const char *param, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const bool valid = lti_text_valid(text, strlen(text));
    lti_reply_json(re, status,
                   json_pack("{s:{s:s, s:s, s:s?, s:s}}", "error", "message",
                             valid ? text : "invalid request", "type", type, "param",
                             param && *param ? param : NULL, "code", code));
}

void lti_reply_status(lti_http_reply *re, lt_ctx *ctx, lt_status s, const char *param)
{
    switch (s) {
    case LT_ERR_ARG:
    case LT_ERR_FORMAT:
        lti_reply_error(re, 400, "invalid_request_error", "invalid_value", param, "%s",
                        lt_error(ctx));
        return;
    case LT_ERR_UNSUPPORTED:
        lti_reply_error(re, 400, "invalid_request_error", "unsupported", param, "%s",
                        lt_error(ctx));
        return;
    case LT_ERR_MISSING:
        lti_reply_error(re, 404, "invalid_request_error", "not_found", param, "%s", lt_error(ctx));
        return;
    case LT_ERR_MEM:
        lti_reply_error(re, 503, "server_error", "out_of_memory", param, "%s", lt_error(ctx));
        return;
    default:
        lti_reply_error(re, 500, "server_error", lt_status_name(s), NULL, "%s", lt_error(ctx));
    }
}

bool lti_path_segment(const char *path, int i, char *out, size_t cap)
{
    *out = 0;
    for (; *path == '/'; i--) {
        const size_t n = strcspn(++path, "/");
        if (i == 0) {
            if (n >= cap) return false;
            memcpy(out, path, n);
            out[n] = 0;
            return n > 0;
        }
        path += n;
    }
    return false;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) % 16 : -1;
}

bool lti_query_get(const char *query, const char *name, char *out, size_t cap)
{
    const size_t len = strlen(name);
    memset(out, 0, cap); /* whatever ends it, it ends */
    for (const char *p = query; *p; p += strcspn(p, "&"), p += *p == '&') {
        if (strncmp(p, name, len) || (p[len] != '=' && p[len] != '&' && p[len])) continue;
        size_t n = 0;
        for (p += len + (p[len] == '='); *p && *p != '&'; p++) {
            char c = *p == '+' ? ' ' : *p;
            if (c == '%') {
                const int a = hex_digit(p[1]), b = a < 0 ? -1 : hex_digit(p[2]);
                if (b < 0 || (a == 0 && b == 0)) return false;
                c = (char)(16 * a + b);
                p += 2;
            }
            if (n + 1 >= cap) return false;
            out[n++] = c;
        }
        return lti_text_valid(out, n);
    }
    return false;
}

int64_t lti_length_parse(const char *text)
{
    const size_t n = strspn(text, "0123456789");
    if (n < 1 || n > 15 || text[n]) return -1;
    return strtoll(text, NULL, 10);
}

lt_status lti_range_parse(const char *text, int64_t total, int64_t *first, int64_t *last)
{
    char a[24] = "", b[24] = "";
    if (strncasecmp(text, "bytes=", 6)) return LT_AGAIN;
    const char *p = text + 6;
    const size_t na = strspn(p, "0123456789"),
                 nb = p[na] == '-' ? strspn(p + na + 1, "0123456789") : 0;
    if (p[na] != '-' || p[na + 1 + nb] || na > 18 || nb > 18 || !(na + nb)) return LT_AGAIN;
    memcpy(a, p, na);
    memcpy(b, p + na + 1, nb);
    const int64_t x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    if (na && nb && y < x) return LT_AGAIN;
    *first = na ? x : y < total ? total - y : 0; /* "-500": the last 500 */
    *last = na && nb && y < total ? y : total - 1;
    return *first < total && (na || y > 0) ? LT_OK : LT_ERR_ARG;
}
