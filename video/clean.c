/* clean.c: see clean.h. What ftfy, html.unescape and the whitespace rule of the original do to ordinary prompts, on code points.
 * Left out: the repair of text that was decoded with the wrong table ("mojibake").
 */
#include "video/clean.h"

#include "video/entities.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    MAX_BYTES = 1 << 20, /* the encoder reads 512 tokens */
    MAX_ROUNDS = 16      /* entities within entities; each round ends one layer */
};

typedef struct text {
    lt_ctx *ctx;
    int32_t *c;
    size_t n, room;
    bool full; /* out of memory */
} text;

static void put(text *t, int32_t c)
{
    if (t->n == t->room) {
        const size_t room = t->room ? 2 * t->room : 256;
        int32_t *p = realloc(t->c, room * sizeof *p);
        if (!p) {
            t->full = true;
            return;
        }
        t->c = p;
        t->room = room;
    }
    t->c[t->n++] = c;
}

static void put_text(text *t, const char *s)
{
    while (*s) {
        int32_t c;
        s += utf8proc_iterate((const uint8_t *)s, -1, &c);
        put(t, c);
    }
}

static lt_status decode(text *t, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        int32_t c;
        const utf8proc_ssize_t n =
            utf8proc_iterate((const uint8_t *)s + i, (utf8proc_ssize_t)(len - i), &c);
        if (n <= 0)
            return lti_fail(t->ctx, LT_ERR_ARG, "the text is not UTF-8: byte 0x%02x at offset %zu",
                            (unsigned)(uint8_t)s[i], i);
        put(t, c);
        i += (size_t)n;
    }
    return LT_OK;
}

/* ---- HTML entities ----------------------------------------------------------------------- */

/* Reads &#...; at c (behind "&#"). Characters used, 0 when it is none. */
static size_t numeric(const int32_t *c, size_t n, bool need_end, int32_t *out)
{
    size_t i = 0;
    const bool hex = n && (c[0] == 'x' || c[0] == 'X');
    if (hex) i++;
    const size_t first = i;
    int64_t v = 0;
    for (; i < n; i++) {
        const int32_t d = c[i];
        int digit;
        if (d >= '0' && d <= '9')
            digit = d - '0';
        else if (hex && ((d | 32) >= 'a' && (d | 32) <= 'f'))
            digit = (d | 32) - 'a' + 10;
        else
            break;
        if (v <= 0x10FFFF) v = v * (hex ? 16 : 10) + digit;
    }
    if (i == first) return 0;
    if (i < n && c[i] == ';')
        i++;
    else if (need_end)
        return 0;
    if (v == 0 || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) v = 0xFFFD;
    if (v >= 0x80 && v <= 0x9F && windows_1252[v - 0x80]) v = windows_1252[v - 0x80];
    /* what HTML calls no character vanishes */
    const bool control = (v < 0x20 && v != '\t' && v != '\n' && v != '\f' && v != '\r') ||
                         (v >= 0x7F && v <= 0x9F) || (v >= 0xFDD0 && v <= 0xFDEF) ||
                         (v & 0xFFFE) == 0xFFFE;
    *out = control ? -1 : (int32_t)v;
    return i;
}

static bool same_name(const char *name, const int32_t *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || c[i] != (uint8_t)name[i]) return false;
    return !name[n];
}

/* The character called by the n letters at c, 0 if none. `bare`: only those that may stand without a semicolon. */
static int32_t named(const int32_t *c, size_t n, bool bare)
{
    for (size_t i = 0; i < LT_COUNT(latin_names); i++)
        if (same_name(latin_names[i], c, n)) return (int32_t)(0xA0 + i);
    for (size_t i = 0; i < LT_COUNT(entities); i++)
        if ((!bare || entities[i].bare) && same_name(entities[i].name, c, n))
            return entities[i].code;
    return 0;
}

static bool is_letter_or_digit(int32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* One entity at c (behind "&"). Characters used, 0 when it is none; *out -1: gives nothing. */
static size_t entity_at(const int32_t *c, size_t n, bool need_end, int32_t *out)
{
    if (n && c[0] == '#') {
        const size_t used = numeric(c + 1, n - 1, need_end, out);
        return used ? used + 1 : 0;
    }
    size_t len = 0;
    while (len < n && len < 32 && is_letter_or_digit(c[len]))
        len++;
    if (len < n && c[len] == ';' && (*out = named(c, len, false))) return len + 1;
    if (need_end) return 0;
    for (; len >= 2; len--)
        if ((*out = named(c, len, true))) return len;
    return 0;
}

/* html.unescape, once. need_end: only entities with their semicolon. */
static void unescape(text *out, const text *in, bool need_end)
{
    for (size_t i = 0; i < in->n;) {
        int32_t c = in->c[i];
        size_t used = 0;
        if (c == '&') used = entity_at(in->c + i + 1, in->n - i - 1, need_end, &c);
        if (!used) c = in->c[i];
        if (c >= 0) put(out, c);
        i += 1 + used;
    }
}

/* ---- characters -------------------------------------------------------------------------- */

static const char *ligature(int32_t c)
{
    static const struct {
        int32_t c;
        const char *text;
    } table[] = {
        {0x132, "IJ"},  {0x133, "ij"},  {0x149, "'n"},  {0x1C4, "DŽ"},   {0x1C5, "Dž"},
        {0x1C6, "dž"},  {0x1C7, "LJ"},  {0x1C8, "Lj"},  {0x1C9, "lj"},   {0x1CA, "NJ"},
        {0x1CB, "Nj"},  {0x1CC, "nj"},  {0x1F1, "DZ"},  {0x1F2, "Dz"},   {0x1F3, "dz"},
        {0xFB00, "ff"}, {0xFB01, "fi"}, {0xFB02, "fl"}, {0xFB03, "ffi"}, {0xFB04, "ffl"},
        {0xFB05, "ſt"}, {0xFB06, "st"},
    };
    for (size_t i = 0; i < LT_COUNT(table); i++)
        if (table[i].c == c) return table[i].text;
    return NULL;
}

static bool is_removed(int32_t c)
{
    return (c >= 0 && c < 0x09) || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F ||
           (c >= 0x206A && c < 0x2070) || c == 0xFEFF || (c >= 0xFFF9 && c < 0xFFFD);
}

/* "\x1b[31m" and its like: characters used. */
static size_t terminal_escape(const int32_t *c, size_t n)
{
    if (n < 3 || c[0] != 0x1B || c[1] != '[') return 0;
    size_t i = 2;
    while (i < n && ((c[i] >= '0' && c[i] <= '9') || c[i] == ';'))
        i++;
    return i < n && c[i] < 0x80 && (c[i] | 32) >= 'a' && (c[i] | 32) <= 'z' ? i + 1 : 0;
}

static void put_wide(text *out, int32_t c)
{
    int32_t parts[8];
    int last = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, (utf8proc_ssize_t)LT_COUNT(parts),
                                                       UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &last);
    for (utf8proc_ssize_t i = 0; i < n && i < (utf8proc_ssize_t)LT_COUNT(parts); i++)
        put(out, parts[i]);
}

static void fix_characters(text *out, const text *in)
{
    for (size_t i = 0; i < in->n; i++) {
        int32_t c = in->c[i];
        const size_t skip = terminal_escape(in->c + i, in->n - i);
        if (skip) {
            i += skip - 1;
            continue;
        }
        if (c >= 0x80 && c <= 0x9F && windows_1252[c - 0x80]) c = windows_1252[c - 0x80];
        const char *l = ligature(c);
        if (l)
            put_text(out, l);
        else if (c == 0x3000 || (c >= 0xFF01 && c <= 0xFFEF))
            put_wide(out, c);
        else if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B))
            put(out, '\'');
        else if (c >= 0x201C && c <= 0x201F)
            put(out, '"');
        else if (c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85)
            put(out, '\n');
        else if (!is_removed(c))
            put(out, c);
    }
}

static lt_status to_utf8(char **out, size_t *len, const text *t)
{
    char *s = malloc(t->n * 4 + 1);
    *out = s;
    *len = 0;
    if (!s) return lti_fail(t->ctx, LT_ERR_MEM, "no memory for a text of %zu characters", t->n);
    for (size_t i = 0; i < t->n; i++)
        *len += (size_t)utf8proc_encode_char(t->c[i], (uint8_t *)s + *len);
    s[*len] = 0;
    return LT_OK;
}

/* NFC in place. */
static lt_status compose(text *t)
{
    char *s;
    size_t len;
    LT_TRY(to_utf8(&s, &len, t));
    uint8_t *nfc = NULL;
    const utf8proc_ssize_t n = utf8proc_map((const uint8_t *)s, (utf8proc_ssize_t)len, &nfc,
                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    free(s);
    if (n < 0)
        return lti_fail(t->ctx, LT_ERR_MEM, "cannot normalise the text: %s", utf8proc_errmsg(n));
    t->n = 0;
    const lt_status st = decode(t, (const char *)nfc, (size_t)n);
    free(nfc);
    return st;
}

/* ---- the order of it --------------------------------------------------------------------- */

static bool has_bracket(const text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->c[i] == '<') return true;
    return false;
}

static void swap(text *a, text *b)
{
    const text c = *a;
    *a = *b;
    *b = c;
    b->n = 0;
}

static bool differ(const text *a, const text *b)
{
    return a->n != b->n || (a->n && memcmp(a->c, b->c, a->n * sizeof *a->c));
}

/* As ftfy does: again and again until nothing changes (wide forms may spell an entity); text with a tag in it keeps its entities. */
static lt_status fix(text *t, text *spare)
{
    bool changed = true;
    for (int round = 0; changed && round < MAX_ROUNDS; round++) {
        changed = false;
        if (!has_bracket(t)) {
            unescape(spare, t, true);
            changed = differ(spare, t);
            swap(t, spare);
        }
        fix_characters(spare, t);
        changed |= differ(spare, t);
        swap(t, spare);
        if (t->full || spare->full) break;
        LT_TRY(compose(t));
    }
    return LT_OK;
}

static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static void collapse(text *out, const text *in)
{
    bool gap = false;
    for (size_t i = 0; i < in->n; i++) {
        if (is_space(in->c[i])) {
            gap = out->n > 0;
            continue;
        }
        if (gap) put(out, ' ');
        gap = false;
        put(out, in->c[i]);
    }
}

lt_status lti_clean(char **out, lt_ctx *ctx, const char *s, size_t len)
{
    *out = NULL;
    if (len > MAX_BYTES)
        return lti_fail(ctx, LT_ERR_ARG, "the text has %zu bytes, %d is the most", len, MAX_BYTES);
    text t = {.ctx = ctx}, spare = {.ctx = ctx};
    lt_status st = decode(&t, s, len);
    if (st >= 0) st = fix(&t, &spare);
    for (int i = 0; st >= 0 && i < 2; i++) {
        unescape(&spare, &t, false);
        swap(&t, &spare);
    }
    if (st >= 0) {
        collapse(&spare, &t);
        swap(&t, &spare);
    }
    size_t n;
    if (st >= 0 && (t.full || spare.full))
        st = lti_fail(ctx, LT_ERR_MEM, "no memory to clean a text of %zu bytes", len);
    if (st >= 0) st = to_utf8(out, &n, &t);
    free(t.c);
    free(spare.c);
    return st;
}
