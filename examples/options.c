/* options.c: command lines by table. */
#include "examples/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

bool lti_utf8_valid(const char *text)
{
    while (*text) {
        const size_t n = lti_utf8_character(text);
        if (!n) return false;
        text += n;
    }
    return true;
}

static lt_status wrong(lt_ctx *ctx, const char *shown, const char *text, const char *why)
{
    return lti_fail(ctx, LT_ERR_ARG, "%s: '%.200s' is not %s", shown, text, why);
}

/* A whole decimal number of digits only; false on anything else and on overflow. */
static bool parse_digits(const char *text, uint64_t *out)
{
    if (!isdigit((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !errno && !*end;
}

static lt_status set_int(lt_ctx *ctx, const lti_option *o, int32_t *out, const char *shown,
                         const char *text)
{
    uint64_t v;
    const bool minus = *text == '-';
    char why[96];
    snprintf(why, sizeof why, "a whole number from %.0f to %.0f", o->min, o->max);
    if (!parse_digits(text + minus, &v) || v > INT32_MAX) return wrong(ctx, shown, text, why);
    const double value = minus ? -(double)v : (double)v;
    if (value < o->min || value > o->max) return wrong(ctx, shown, text, why);
    *out = (int32_t)value;
    return LT_OK;
}

static lt_status set_real(lt_ctx *ctx, const lti_option *o, double *out, const char *shown,
                          const char *text)
{
    char why[96], *end = NULL;
    snprintf(why, sizeof why, "a number from %g to %g", o->min, o->max);
    /* strtod alone would take spaces, "inf", "nan" and hexadecimal numbers */
    const bool plain = *text && strspn(text, "+-.0123456789eE") == strlen(text);
    const double v = plain ? strtod(text, &end) : (double)NAN;
    if (!plain || *end || !isfinite(v) || v < o->min || v > o->max)
        return wrong(ctx, shown, text, why);
    *out = v;
    return LT_OK;
}

static lt_status set_size(lt_ctx *ctx, lti_size *out, const char *shown, const char *text)
{
    char w[16];
    uint64_t x, y;
    const char *by = strpbrk(text, "xX");
    const size_t n = by ? (size_t)(by - text) : 0;
    if (n && n < sizeof w) {
        memcpy(w, text, n);
        w[n] = 0;
        if (parse_digits(w, &x) && parse_digits(by + 1, &y) && x >= 1 && y >= 1 && x <= 16384 &&
            y <= 16384) {
            *out = (lti_size){(int32_t)x, (int32_t)y};
            return LT_OK;
        }
    }
    return wrong(ctx, shown, text, "a size of 1..16384 such as 832x480");
}

/* The first `len` bytes of `text` are the word. */
static lt_status set_choice(lt_ctx *ctx, const lti_option *o, int32_t *out, const char *shown,
                            const char *text, size_t len)
{
    int32_t i = 0;
    for (const char *p = o->arg; *p; i++) {
        const size_t n = strcspn(p, "|");
        if (n == len && !strncmp(p, text, n)) {
            *out = i;
            return LT_OK;
        }
        p += n + (p[n] == '|');
    }
    char why[160];
    snprintf(why, sizeof why, "one of %s", o->arg);
    return wrong(ctx, shown, text, why);
}

static lt_status set_word(lt_ctx *ctx, const lti_option *o, lti_word *out, const char *shown,
                          const char *text)
{
    const size_t len = strcspn(text, ":");
    LT_TRY(set_choice(ctx, o, &out->word, shown, text, len));
    out->keys = text[len] ? text + len + 1 : NULL;
    return LT_OK;
}

lt_status lti_option_set(lt_ctx *ctx, const lti_option *o, void *base, const char *shown,
                         const char *text)
{
    void *field = (char *)base + o->offset;
    switch (o->kind) {
    case LTI_FLAG:
        if (!strcmp(text, "true") || !strcmp(text, "false")) {
            *(bool *)field = *text == 't';
            return LT_OK;
        }
        return wrong(ctx, shown, text, "true or false");
    case LTI_TEXT:
        if (!*text && o->max < 1) return lti_fail(ctx, LT_ERR_ARG, "%s: the text is empty", shown);
        if (!lti_utf8_valid(text))
            return lti_fail(ctx, LT_ERR_ARG, "%s: the text is not valid UTF-8", shown);
        *(const char **)field = text;
        return LT_OK;
    case LTI_INT:
        return set_int(ctx, o, field, shown, text);
    case LTI_REAL:
        return set_real(ctx, o, field, shown, text);
    case LTI_SEED: {
        lti_seed *seed = field;
        if (!parse_digits(text, &seed->value))
            return wrong(ctx, shown, text, "a whole number from 0 to 18446744073709551615");
        seed->set = true;
        return LT_OK;
    }
    case LTI_SIZE:
        return set_size(ctx, field, shown, text);
    case LTI_CHOICE:
        return set_choice(ctx, o, field, shown, text, strlen(text));
    case LTI_WORD:
        return set_word(ctx, o, field, shown, text);
    }
    return lti_fail(ctx, LT_ERR_ARG, "%s: unknown kind", shown);
}

lt_status lti_option_set_json(lt_ctx *ctx, const lti_option *o, void *base, const char *shown,
                              const json_t *value)
{
    char number[40];
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        if (strlen(text) != json_string_length(value))
            return lti_fail(ctx, LT_ERR_ARG, "%s: the text holds a zero byte", shown);
        return lti_option_set(ctx, o, base, shown, text);
    }
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        strcpy(number, json_is_true(value) ? "true" : "false");
    else
        return lti_fail(ctx, LT_ERR_ARG, "%s: null, lists and objects are not taken here", shown);
    if (o->kind == LTI_TEXT)
        return lti_fail(ctx, LT_ERR_ARG, "%s: a text is expected, not %s", shown, number);
    return lti_option_set(ctx, o, base, shown, number);
}

/* ---- names ---- */

static bool same_name(const char *row, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!row[i] || (row[i] != name[i] && !(row[i] == '-' && name[i] == '_'))) return false;
    return !row[len];
}

const lti_option *lti_option_find(const lti_table *t, const char *name, size_t len)
{
    for (size_t i = 0; i < t->count; i++)
        if ((t->rows[i].commands & t->command) && same_name(t->rows[i].name, name, len))
            return &t->rows[i];
    return NULL;
}

enum { MAX_NAME = 32 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits from a to b: letters changed, added, left out or exchanged with their neighbour. Both at most MAX_NAME long. */
static size_t distance(const char *a, const char *b, size_t nb)
{
    size_t d[MAX_NAME + 1][MAX_NAME + 1];
    const size_t na = strlen(a);
    for (size_t i = 0; i <= na; i++)
        for (size_t j = 0; j <= nb; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = least(d[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
                            least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[na][nb];
}

const char *lti_option_nearest(const lti_table *t, const char *name, size_t len)
{
    const char *best = NULL;
    size_t nearest = len > MAX_NAME ? 0 : 1 + len / 3;
    for (size_t i = 0; i < t->count && nearest; i++) {
        if (!(t->rows[i].commands & t->command)) continue;
        /* "frames" is nearer to "num-frames" than letters say */
        const bool part = len >= 4 && len <= MAX_NAME &&
                          memmem(t->rows[i].name, strlen(t->rows[i].name), name, len);
        const size_t d = part ? 1 : distance(t->rows[i].name, name, len);
        if (d < nearest || (d == nearest && !best)) {
            nearest = d;
            best = t->rows[i].name;
        }
    }
    return best;
}

void lti_option_list(const lti_table *t, char *text, size_t size)
{
    size_t n = 0;
    *text = 0;
    for (size_t i = 0; i < t->count; i++) {
        const char *name = t->rows[i].name;
        if (!(t->rows[i].commands & t->command) || n + strlen(name) + 3 > size) continue;
        if (n) n = (size_t)(stpcpy(text + n, ", ") - text);
        for (; *name; name++)
            text[n++] = *name == '-' ? '_' : *name;
        text[n] = 0;
    }
}

static lt_status unknown(lt_ctx *ctx, const lti_table *t, const char *arg, const char *name,
                         size_t len)
{
    const char *near = lti_option_nearest(t, name, len);
    if (near)
        return lti_fail(ctx, LT_ERR_ARG, "unknown option '%.80s', did you mean --%s?", arg, near);
    return lti_fail(ctx, LT_ERR_ARG, "unknown option '%.80s' (--help lists them)", arg);
}

/* ---- command line ---- */

/* argv[*i] begins with '-'. Moves *i to the last word it takes. */
static lt_status parse_option(lt_ctx *ctx, const lti_table *t, void *base, int argc,
                              char *const *argv, int *i)
{
    const char *arg = argv[*i], *name = arg + 2;
    if (!strcmp(arg, "-o")) name = "output";
    if (!strcmp(arg, "-h"))
        name = "help";
    else if (arg[1] != '-' && strcmp(arg, "-o"))
        return lti_fail(
            ctx, LT_ERR_ARG,
            "unknown option '%.80s' (options begin with --; after a lone -- all is text)", arg);
    const size_t len = strcspn(name, "=");
    const char *value = name[len] ? name + len + 1 : NULL;
    const lti_option *o = lti_option_find(t, name, len);
    if (!o) return unknown(ctx, t, arg, name, len);
    char shown[MAX_NAME + 4];
    snprintf(shown, sizeof shown, "--%s", o->name);
    if (o->kind == LTI_FLAG) return lti_option_set(ctx, o, base, shown, value ? value : "true");
    if (!value) {
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return lti_fail(ctx, LT_ERR_ARG, "%s: a value is missing (%s)", shown, o->arg);
        value = argv[++*i];
    }
    return lti_option_set(ctx, o, base, shown, value);
}

lt_status lti_options_parse(lt_ctx *ctx, const lti_table *t, void *base, lti_positional *pos,
                            int argc, char *const *argv)
{
    bool options = true;
    *pos = (lti_positional){0};
    for (int i = 0; i < argc; i++) {
        if (options && !strcmp(argv[i], "--")) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            LT_TRY(parse_option(ctx, t, base, argc, argv, &i));
        } else if (pos->count == LTI_MAX_POSITIONAL) {
            return lti_fail(ctx, LT_ERR_ARG, "'%.80s': more words than this command takes",
                            argv[i]);
        } else {
            pos->text[pos->count++] = argv[i];
        }
    }
    return LT_OK;
}

void lti_options_help(const lti_table *t, FILE *out)
{
    enum { COLUMN = 34 };
    for (size_t i = 0; i < t->count; i++) {
        const lti_option *o = &t->rows[i];
        if (!(o->commands & t->command)) continue;
        const int n = fprintf(out, "  --%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        if (n >= COLUMN)
            fprintf(out, "\n%*s", COLUMN, "");
        else
            fprintf(out, "%*s", COLUMN - n, "");
        for (const char *p = o->help; *p;) { /* lines of the help, below each other */
            const size_t len = strcspn(p, "\n");
            fprintf(out, "%.*s\n", (int)len, p);
            p += len + (p[len] == '\n');
            if (*p) fprintf(out, "%*s", COLUMN, "");
        }
    }
}
