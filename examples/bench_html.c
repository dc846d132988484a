/* bench_html.c: the page of `bench quality`: one file with its table, a plot of speed beside likeness, and frames of every method. */
#include "examples/bench.h"

#include <stdlib.h>
#include <string.h>

static const char style[] =
    "<style>body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;"
    "color:#222}table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
    "img{width:100%;image-rendering:auto}figure{margin:1em 0}figcaption{font-family:monospace}"
    "svg{width:100%;max-width:50em;height:auto}code{background:#f3f3f3}</style>";

static double mean_of(const json_t *method, const char *key)
{
    return json_real_value(json_object_get(json_object_get(method, key), "mean"));
}

static double error_of(const json_t *method, const char *key)
{
    return json_real_value(json_object_get(json_object_get(method, key), "error"));
}

static void put_text(FILE *f, const char *text)
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
        default:
            fputc(*text, f);
        }
}

static const char *name_of(const json_t *method)
{
    return json_string_value(json_object_get(method, "attention"));
}

static void put_table(FILE *f, const json_t *methods)
{
    fputs("<table><tr><th>method<th>density<th>of sparse passes<th>PSNR dB<th>SSIM<th>flicker / "
          "dense<th>denoising<th>whole render<th>planning</tr>\n",
          f);
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *m = json_array_get(methods, i);
        fputs("<tr><td><code>", f);
        put_text(f, name_of(m));
        fprintf(f,
                "</code>%s<td>%.3f<td>%.3f<td>%.2f &plusmn; %.2f<td>%.4f &plusmn; %.4f<td>%.3f"
                "<td>%.2fx<td>%.2fx<td>%.1f %%</tr>\n",
                i ? "" : " (noise floor)", mean_of(m, "density"), mean_of(m, "sparse_density"),
                mean_of(m, "psnr_db"), error_of(m, "psnr_db"), mean_of(m, "ssim"),
                error_of(m, "ssim"), mean_of(m, "flicker_to_dense"), mean_of(m, "denoise_speedup"),
                mean_of(m, "render_speedup"), 100 * mean_of(m, "planning_share"));
    }
    fputs("</table>\n", f);
}

/* A point a method: density to the right, PSNR upwards, its error as a line. */
static void put_plot(FILE *f, const json_t *methods, const char *x_key, double x_max,
                     const char *x_name)
{
    enum { W = 640, H = 360, LEFT = 50, BASE = 310, TOP = 20, RIGHT = 620 };
    double low = 1e9, high = 0;
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *m = json_array_get(methods, i);
        if (mean_of(m, "psnr_db") < low) low = mean_of(m, "psnr_db");
        if (mean_of(m, "psnr_db") > high) high = mean_of(m, "psnr_db");
        if (mean_of(m, x_key) > x_max) x_max = mean_of(m, x_key);
    }
    low -= 2;
    high += 2;
    fprintf(f,
            "<svg viewBox='0 0 %d %d' font-size='11'><path d='M%d %d V%d H%d' fill='none' "
            "stroke='#888'/><text x='%d' y='%d'>%s (0 to %.3g)</text><text x='4' y='14'>PSNR dB, "
            "%.0f to %.0f</text>\n",
            W, H, LEFT, TOP, BASE, RIGHT, W / 2 - 60, H - 20, x_name, x_max, low, high);
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *m = json_array_get(methods, i);
        const double up = (BASE - TOP) / (high - low), psnr = mean_of(m, "psnr_db"),
                     e = error_of(m, "psnr_db") * up;
        const double x = LEFT + (RIGHT - LEFT - 130) * mean_of(m, x_key) / x_max,
                     y = BASE - (psnr - low) * up;
        fprintf(f,
                "<path d='M%.1f %.1fv%.1f' stroke='#47a'/><circle cx='%.1f' cy='%.1f' r='4' "
                "fill='#47a'/><text x='%.1f' y='%.1f'>",
                x, y - e, 2 * e, x, y, x + 7, y + 4);
        put_text(f, i ? name_of(m) : "noise floor");
        fputs("</text>\n", f);
    }
    fputs("</svg>\n", f);
}

static lt_status put_picture(FILE *f, lt_ctx *ctx, const char *path)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *in = fopen(path, "rbe");
    if (!in) return lti_fail(ctx, LT_ERR_IO, "%s cannot be read", path);
    uint8_t b[3];
    size_t n;
    fputs("<img alt='frames' src='data:image/png;base64,", f);
    while ((n = fread(b, 1, sizeof b, in)) > 0) {
        const uint32_t v =
            (uint32_t)b[0] << 16 | (n > 1 ? (uint32_t)b[1] << 8 : 0) | (n > 2 ? (uint32_t)b[2] : 0);
        fputc(digit[v >> 18], f);
        fputc(digit[v >> 12 & 63], f);
        fputc(n > 1 ? digit[v >> 6 & 63] : '=', f);
        fputc(n > 2 ? digit[v & 63] : '=', f);
    }
    fputs("'>", f);
    fclose(in);
    return LT_OK;
}

static lt_status put_strips(FILE *f, lt_ctx *ctx, const json_t *methods, const char *dir)
{
    char path[4096];
    for (size_t i = 0; i <= json_array_size(methods); i++) {
        snprintf(path, sizeof path, "%s/strip%02zu.png", dir, i);
        fputs("<figure><figcaption>", f);
        put_text(f, i ? name_of(json_array_get(methods, i - 1)) : "dense");
        fputs("</figcaption>", f);
        LT_TRY(put_picture(f, ctx, path));
        fputs("</figure>\n", f);
    }
    return LT_OK;
}

lt_status lti_quality_page(lt_ctx *ctx, const char *path, const json_t *all, const char *dir)
{
    const json_t *methods = json_object_get(all, "methods");
    FILE *f = fopen(path, "we");
    if (!f) return lti_fail(ctx, LT_ERR_IO, "%s cannot be written", path);
    fprintf(f,
            "<!doctype html><html lang='en'><meta charset='utf-8'><title>Sparse attention beside "
            "dense</title>%s<h1>Sparse attention beside dense</h1><p>",
            style);
    put_text(f, json_string_value(json_object_get(all, "model")));
    fprintf(
        f,
        ": %dx%d, %d frames, %d steps, %d clips (3 prompts, %d seeds), %d threads. Every clip "
        "is compared with the dense one of the same prompt and seed; &plusmn; is the standard "
        "error over clips. Density is keys read over keys there are, of the whole run with its "
        "dense warm-up, and of the sparse passes alone. The noise floor is dense attention with "
        "its sums in another order: a method there cannot be told from dense. Speed is against "
        "dense in the same run.</p>\n",
        (int)json_integer_value(json_object_get(all, "width")),
        (int)json_integer_value(json_object_get(all, "height")),
        (int)json_integer_value(json_object_get(all, "num_frames")),
        (int)json_integer_value(json_object_get(all, "num_inference_steps")),
        (int)json_integer_value(json_object_get(all, "clips")),
        (int)json_integer_value(json_object_get(all, "seeds")),
        (int)json_integer_value(json_object_get(all, "threads")));
    put_table(f, methods);
    fputs("<h2>Likeness by density</h2>\n", f);
    put_plot(f, methods, "density", 1, "density of the whole run");
    fputs("<h2>Likeness by speed</h2>\n", f);
    put_plot(f, methods, "denoise_speedup", 1, "denoising, times as fast as dense");
    fputs("<h2>Frames of the first clip</h2>\n", f);
    const lt_status s = put_strips(f, ctx, methods, dir);
    fputs("</html>\n", f);
    const bool bad = ferror(f);
    if (fclose(f) || bad) return lti_fail(ctx, LT_ERR_IO, "%s cannot be written", path);
    return s;
}
