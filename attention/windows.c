/* windows.c: files of sta's windows, one for every layer and head.
 *
 *     # made by longtake bench attention --search
 *     windows 2 3
 *     5x3x5 3x3x9 5x3x5
 *     7x1x3 5x3x5 3x3x9
 */
#include "attention/attention.h"
#include "attention/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 4096, MOST_HEADS = 1024, MOST_BYTES = 4 << 20 };

/* The next word of a text in which # begins a comment; false at the end. */
static bool next_word(const char **at, lti_word_text *w)
{
    const char *p = *at;
    for (;;) {
        p += strspn(p, " \t\r\n");
        if (*p != '#') break;
        p += strcspn(p, "\n");
    }
    *w = (lti_word_text){p, strcspn(p, " \t\r\n#")};
    *at = p + w->len;
    return w->len > 0;
}

static bool next_number(const char **at, int32_t most, int32_t *out)
{
    lti_word_text w;
    return next_word(at, &w) && lti_read_whole(w, 1, most, out);
}

lt_status lt_windows_parse(lt_windows *out, lt_ctx *ctx, const char *text, const char *name)
{
    const char *at = text;
    lti_word_text w = {"", 0};
    *out = (lt_windows){0};
    int32_t layers, heads;
    if (!next_word(&at, &w) || !lti_word_is(w, "windows") ||
        !next_number(&at, MOST_LAYERS, &layers) || !next_number(&at, MOST_HEADS, &heads))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: does not begin with \"windows LAYERS HEADS\"",
                        name);
    const int32_t n = layers * heads;
    if ((size_t)n > strlen(at)) /* a window is five characters: what is promised is there */
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: %d layers of %d heads, and the file ends before",
                        name, layers, heads);
    out->side = calloc((size_t)n, sizeof *out->side);
    if (!out->side) return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %d windows", name, n);
    out->layers = layers;
    out->heads = heads;
    lt_status s = LT_OK;
    for (int32_t i = 0; s == LT_OK && i < n; i++)
        if (!next_word(&at, &w) || !lti_read_odd_box(w, out->side[i]))
            s = lti_fail(ctx, LT_ERR_FORMAT,
                         "%s: layer %d, head %d: '%.*s' is no window FxHxW of odd sides", name,
                         i / heads, i % heads, (int)(w.len > 40 ? 40 : w.len), w.text);
    if (s == LT_OK && next_word(&at, &w))
        s = lti_fail(ctx, LT_ERR_FORMAT, "%s: '%.*s' behind %d layers of %d heads", name,
                     (int)(w.len > 40 ? 40 : w.len), w.text, layers, heads);
    if (s < 0) lt_windows_destroy(out);
    return s;
}

lt_status lt_windows_read(lt_windows *out, lt_ctx *ctx, const char *path)
{
    *out = (lt_windows){0};
    FILE *f = fopen(path, "rbe");
    if (!f) return lti_fail(ctx, LT_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    char *text = malloc(MOST_BYTES + 1);
    const size_t n = text ? fread(text, 1, MOST_BYTES + 1, f) : 0;
    const int bad = ferror(f) ? errno : 0;
    lt_status s = !text ? lti_fail(ctx, LT_ERR_MEM, "%s: no memory to read it", path)
                  : bad ? lti_fail(ctx, LT_ERR_IO, "%s cannot be read: %s", path, strerror(bad))
                  : n > MOST_BYTES
                      ? lti_fail(ctx, LT_ERR_FORMAT, "%s: more than %d bytes", path, MOST_BYTES)
                      : LT_OK;
    fclose(f);
    if (s == LT_OK) {
        text[n] = 0;
        s = lt_windows_parse(out, ctx, text, path);
    }
    free(text);
    return s;
}

void lt_windows_destroy(lt_windows *w)
{
    free(w->side);
    *w = (lt_windows){0};
}
