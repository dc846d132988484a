/* report_html.c: the parts of a page in one file. */
#include "examples/report_html.h"
#include "examples/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    "<style>body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:86em;padding:0 1em;"
    "color:#222}table{border-collapse:collapse;width:100%;font-size:13px}td,th{padding:.3em .4em;"
    "text-align:right;border-bottom:1px solid #ddd}td{white-space:nowrap}td:first-child,"
    "th:first-child{text-align:left}figure{margin:1em 0}figcaption{font-family:monospace}figure "
    "img{width:100%}"
    ".plots{display:flex;flex-wrap:wrap;gap:1em}.plots svg{width:40em;max-width:100%;height:auto}"
    "code{background:#f3f3f3}</style>";

lt_status lti_html_begin(FILE **out, lt_ctx *ctx, const char *path, const char *title)
{
    FILE *f = *out = lti_text_create(ctx, path);
    if (!f) return LT_ERR_IO;
    fputs("<!doctype html><html lang='en'><meta charset='utf-8'><title>", f);
    lti_html_text(f, title);
    fprintf(f, "</title>%s<h1>", style);
    lti_html_text(f, title);
    fputs("</h1>\n", f);
    return LT_OK;
}

lt_status lti_html_end(FILE *f, lt_ctx *ctx, const char *path, lt_status so_far)
{
    fputs("</html>\n", f);
    return lti_text_end(f, ctx, path, so_far);
}

void lti_html_text(FILE *f, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        case '\'':
            fputs("&#39;", f);
            break;
        default:
            fputc(*text, f);
        }
}

lt_status lti_html_picture(FILE *f, lt_ctx *ctx, const char *path, const char *caption)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *in = fopen(path, "rbe");
    if (!in) return lti_fail(ctx, LT_ERR_IO, "%s cannot be read", path);
    uint8_t b[3];
    size_t n;
    fputs("<figure><figcaption>", f);
    lti_html_text(f, caption);
    fputs("</figcaption><img alt='", f);
    lti_html_text(f, caption);
    fputs("' src='data:image/png;base64,", f);
    while ((n = fread(b, 1, sizeof b, in)) > 0) {
        const uint32_t v =
            (uint32_t)b[0] << 16 | (n > 1 ? (uint32_t)b[1] << 8 : 0) | (n > 2 ? (uint32_t)b[2] : 0);
        fputc(digit[v >> 18], f);
        fputc(digit[v >> 12 & 63], f);
        fputc(n > 1 ? digit[v >> 6 & 63] : '=', f);
        fputc(n > 2 ? digit[v & 63] : '=', f);
    }
    fputs("'></figure>\n", f);
    const bool bad = ferror(in) != 0;
    fclose(in);
    return bad ? lti_fail(ctx, LT_ERR_IO, "%s cannot be read", path) : LT_OK;
}

/* ---- plots ---- */

enum { W = 640, H = 380, LEFT = 62, RIGHT = 620, TOP = 34, BASE = 326, MAX_LABELS = 128, CHAR = 6 };

typedef struct axis {
    double low, high, step;
} axis;

static bool good(const lti_series *s, int32_t i)
{
    return isfinite(s->x[i]) && isfinite(s->y[i]);
}

/* From the least to the largest number (with some room when they are not given), and a round step. */
static axis make_axis(double low, double high, const lti_series *s, int32_t count, bool up)
{
    axis a = {low, high, 1};
    if (low >= high) {
        a.low = HUGE_VAL;
        a.high = -HUGE_VAL;
        for (int32_t k = 0; k < count; k++)
            for (int32_t i = 0; i < s[k].n; i++) {
                if (!good(&s[k], i)) continue;
                const double v = up ? s[k].y[i] : s[k].x[i],
                             e = up && s[k].error && isfinite(s[k].error[i]) ? s[k].error[i] : 0;
                a.low = fmin(a.low, v - e);
                a.high = fmax(a.high, v + e);
            }
        if (a.low > a.high) a.low = a.high = 0;
        double room = 0.05 * (a.high - a.low);
        if (room <= 0) room = fmax(0.05 * fabs(a.high), 1e-6);
        a.low -= room;
        a.high += room;
    }
    const double raw = (a.high - a.low) / 6, ten = pow(10, floor(log10(raw)));
    a.step = ten * (raw / ten < 1.5 ? 1 : raw / ten < 3.5 ? 2 : raw / ten < 7.5 ? 5 : 10);
    return a;
}

static double x_at(axis a, double v)
{
    return LEFT + (RIGHT - LEFT) * (v - a.low) / (a.high - a.low);
}

static double y_at(axis a, double v)
{
    return BASE - (BASE - TOP) * (v - a.low) / (a.high - a.low);
}

static void put_axes(FILE *f, const lti_plot *p, axis x, axis y)
{
    fprintf(f, "<svg viewBox='0 0 %d %d' font-size='11' font-family='sans-serif'>", W, H);
    fprintf(f, "<path d='M%d %dV%dH%d' fill='none' stroke='#888'/>", LEFT, TOP, BASE, RIGHT);
    for (double v = ceil(x.low / x.step) * x.step; v <= x.high + 1e-9 * x.step; v += x.step)
        fprintf(f,
                "<path d='M%.1f %dv4' stroke='#888'/><text x='%.1f' y='%d' "
                "text-anchor='middle'>%.4g</text>",
                x_at(x, v), BASE, x_at(x, v), BASE + 17, fabs(v) < 1e-9 * x.step ? 0 : v);
    for (double v = ceil(y.low / y.step) * y.step; v <= y.high + 1e-9 * y.step; v += y.step)
        fprintf(f,
                "<path d='M%d %.1fH%d' stroke='#eee'/><text x='%d' y='%.1f' "
                "text-anchor='end'>%.4g</text>",
                LEFT, y_at(y, v), RIGHT, LEFT - 6, y_at(y, v) + 4, fabs(v) < 1e-9 * y.step ? 0 : v);
    fprintf(f, "<text x='%d' y='14' font-weight='bold'>", LEFT);
    lti_html_text(f, p->title);
    fprintf(f, "</text><text x='%d' y='%d' text-anchor='middle'>", (LEFT + RIGHT) / 2, BASE + 38);
    lti_html_text(f, p->x_name);
    fprintf(f, "</text><text x='12' y='%d' text-anchor='middle' transform='rotate(-90 12 %d)'>",
            (TOP + BASE) / 2, (TOP + BASE) / 2);
    lti_html_text(f, p->y_name);
    fputs("</text>\n", f);
}

/* Where names stand, so that they do not stand on each other. */
typedef struct labels {
    double x[MAX_LABELS], y[MAX_LABELS], width[MAX_LABELS];
    int n;
} labels;

static bool taken(const labels *l, double x, double y, double width)
{
    for (int i = 0; i < l->n; i++)
        if (fabs(l->y[i] - y) < 11 && x < l->x[i] + l->width[i] && l->x[i] < x + width) return true;
    return false;
}

static void put_label(FILE *f, labels *l, double x, double y, const char *name, const char *colour)
{
    const double width = CHAR * (double)strlen(name), from = x;
    x += 7;
    if (x + width > W) x = from - 7 - width;
    double place = y + 4;
    for (int i = 1; i <= 20 && taken(l, x, place, width); i++)
        place = y + 4 + (i % 2 ? 6 : -6) * (i + 1);
    if (l->n < MAX_LABELS) {
        l->x[l->n] = x;
        l->y[l->n] = place;
        l->width[l->n++] = width;
    }
    fprintf(f, "<text x='%.1f' y='%.1f' fill='%s'>", x, place, colour);
    lti_html_text(f, name);
    fputs("</text>", f);
}

static void put_line(FILE *f, const lti_series *s, axis x, axis y, const char *colour, int32_t row)
{
    bool begun = false;
    fputs("<path fill='none' stroke-width='1.5' d='", f);
    for (int32_t i = 0; i < s->n; i++) {
        if (!good(s, i)) {
            begun = false;
            continue;
        }
        fprintf(f, "%c%.1f %.1f", begun ? 'L' : 'M', x_at(x, s->x[i]), y_at(y, s->y[i]));
        begun = true;
    }
    fprintf(f,
            "' stroke='%s'/><path d='M%d %dh16' stroke-width='3' stroke='%s'/><text x='%d' y='%d'>",
            colour, LEFT + 12, TOP + 6 + 14 * row, colour, LEFT + 34, TOP + 10 + 14 * row);
    lti_html_text(f, s->name);
    fputs("</text>\n", f);
}

static void put_points(FILE *f, const lti_series *s, axis x, axis y, const char *colour, labels *l)
{
    bool named = false;
    for (int32_t i = 0; i < s->n; i++) {
        if (!good(s, i)) continue;
        const double px = x_at(x, s->x[i]), py = y_at(y, s->y[i]);
        if (s->error && isfinite(s->error[i])) {
            const double half = y_at(y, 0) - y_at(y, s->error[i]);
            fprintf(f, "<path d='M%.1f %.1fv%.1f' stroke='%s'/>", px, py - half, 2 * half, colour);
        }
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='4' fill='%s'/>", px, py, colour);
        if (!named) put_label(f, l, px, py, s->name, colour);
        named = true;
    }
    fputc('\n', f);
}

void lti_html_plot(FILE *f, const lti_plot *p, const lti_series *series, int32_t count)
{
    static const char *const colours[] = {"#3366aa", "#cc5522", "#228844", "#884499",
                                          "#aa8800", "#008899", "#bb3366", "#555555"};
    const axis x = make_axis(p->x_min, p->x_max, series, count, false),
               y = make_axis(p->y_min, p->y_max, series, count, true);
    labels l = {.n = 0};
    int32_t rows = 0;
    put_axes(f, p, x, y);
    for (int32_t k = 0; k < count; k++) {
        const char *colour = colours[(size_t)k % LT_COUNT(colours)];
        if (series[k].line)
            put_line(f, &series[k], x, y, colour, rows++);
        else
            put_points(f, &series[k], x, y, colour, &l);
    }
    fputs("</svg>\n", f);
}
