/* bench_html.c: the page of `bench quality`: one file with its table, plots of likeness beside density and speed, and frames. */
#include "examples/bench.h"
#include "examples/report_html.h"

#include <stdlib.h>
#include <string.h>

static double mean_of(const json_t *method, const char *key)
{
    return json_real_value(json_object_get(json_object_get(method, key), "mean"));
}

static double error_of(const json_t *method, const char *key)
{
    return json_real_value(json_object_get(json_object_get(method, key), "error"));
}

static const char *name_of(const json_t *methods, size_t i)
{
    const char *name = json_string_value(json_object_get(json_array_get(methods, i), "attention"));
    return i ? name : "noise floor";
}

static int number(const json_t *all, const char *key)
{
    return (int)json_integer_value(json_object_get(all, key));
}

static void put_dense(FILE *f, const json_t *all, bool checked)
{
    const json_t *d = json_object_get(all, "dense");
    const double share = 100 * json_real_value(json_object_get(d, "attention_share"));
    fprintf(f, "<tr><td><code>dense</code><td>%.3f<td>1<td>&infin;<td>1<td>0<td>1",
            json_real_value(json_object_get(d, "density")));
    if (checked)
        fprintf(f, "<td>%.1f %%<td>0", 100 * json_real_value(json_object_get(d, "adherence")));
    fprintf(f, "<td>%.1f %%<td>1x (%.2f s)<td>1x (%.2f s)<td>0<td>%.1f</tr>\n", share,
            json_real_value(json_object_get(d, "denoise_seconds")),
            json_real_value(json_object_get(d, "total_seconds")),
            json_real_value(json_object_get(d, "memory_mib")));
}

static void put_table(FILE *f, const json_t *all, bool checked)
{
    const json_t *methods = json_object_get(all, "methods");
    fprintf(f,
            "<table><tr><th>method<th>density<th>of sparse passes<th>PSNR dB<th>SSIM<th>structure"
            "<th>flicker / dense%s<th>attention<th>denoising<th>whole render<th>planning<th>MiB"
            "</tr>\n",
            checked ? "<th>adherence<th>against dense" : "");
    put_dense(f, all, checked);
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *m = json_array_get(methods, i);
        fputs("<tr><td><code>", f);
        lti_html_text(f, name_of(methods, i));
        fprintf(f,
                "</code><td>%.3f<td>%.3f<td>%.1f &plusmn; %.1f<td>%.3f &plusmn; %.3f<td>%.4f"
                " &plusmn; %.4f<td>%.3f &plusmn; %.3f",
                mean_of(m, "density"), mean_of(m, "sparse_density"), mean_of(m, "psnr_db"),
                error_of(m, "psnr_db"), mean_of(m, "ssim"), error_of(m, "ssim"),
                mean_of(m, "structure"), error_of(m, "structure"), mean_of(m, "flicker_to_dense"),
                error_of(m, "flicker_to_dense"));
        if (checked)
            fprintf(f, "<td>%.1f %%<td>%+.1f &plusmn; %.1f", 100 * mean_of(m, "adherence"),
                    100 * mean_of(m, "adherence_to_dense"),
                    100 * error_of(m, "adherence_to_dense"));
        fprintf(f,
                "<td>%.1f %%<td>%.2fx &plusmn; %.2f<td>%.2fx &plusmn; %.2f<td>%.1f %%<td>%.1f"
                "</tr>\n",
                100 * mean_of(m, "attention_share"), mean_of(m, "denoise_speedup"),
                error_of(m, "denoise_speedup"), mean_of(m, "render_speedup"),
                error_of(m, "render_speedup"), 100 * mean_of(m, "planning_share"),
                mean_of(m, "memory_mib"));
    }
    fputs("</table>\n", f);
}

static double part_of(const json_t *list, size_t i, const char *key)
{
    return json_real_value(json_object_get(json_array_get(list, i), key));
}

/* A prompt a column: dense, then by how much each method differs from it. */
static void put_prompts(FILE *f, const json_t *methods)
{
    const json_t *first = json_object_get(json_array_get(methods, 0), "by_prompt");
    const size_t n = json_array_size(first);
    fputs("<h2>Adherence by prompt</h2>\n<table><tr><th>method", f);
    for (size_t p = 0; p < n; p++) {
        fputs("<th>", f);
        lti_html_text(f, json_string_value(json_object_get(json_array_get(first, p), "prompt")));
    }
    fputs("</tr>\n<tr><td><code>dense</code>", f);
    for (size_t p = 0; p < n; p++)
        fprintf(f, "<td>%.0f %%",
                100 * (part_of(first, p, "adherence") - part_of(first, p, "adherence_to_dense")));
    fputs("</tr>\n", f);
    for (size_t i = 0; i < json_array_size(methods); i++) {
        const json_t *list = json_object_get(json_array_get(methods, i), "by_prompt");
        fputs("<tr><td><code>", f);
        lti_html_text(f, name_of(methods, i));
        fputs("</code>", f);
        for (size_t p = 0; p < n; p++)
            fprintf(f, "<td>%+.0f", 100 * part_of(list, p, "adherence_to_dense"));
        fputs("</tr>\n", f);
    }
    fputs("</table>\n", f);
}

/* A point a method. `unit`: of what is drawn upwards, in that of the file. */
static void put_plot(FILE *f, const json_t *methods, const char *x_key, const char *y_key,
                     double unit, const char *title, const char *x_name, const char *y_name)
{
    enum { MOST = 64 };
    lti_series s[MOST];
    double x[MOST], y[MOST], e[MOST];
    int32_t n = 0;
    for (size_t i = 0; i < json_array_size(methods) && n < MOST; i++, n++) {
        const json_t *m = json_array_get(methods, i);
        x[n] = mean_of(m, x_key);
        y[n] = mean_of(m, y_key) / unit;
        e[n] = error_of(m, y_key) / unit;
        s[n] = (lti_series){
            .name = name_of(methods, i), .x = &x[n], .y = &y[n], .error = &e[n], .n = 1};
    }
    lti_html_plot(f, &(lti_plot){.title = title, .x_name = x_name, .y_name = y_name}, s, n);
}

static void put_plots(FILE *f, const json_t *methods, bool checked)
{
    static const char times[] = "whole render, times as fast as dense";
    fputs("<div class='plots'>\n", f);
    put_plot(f, methods, "density", "psnr_db", 1, "Likeness by density", "density of the whole run",
             "PSNR against dense, dB");
    put_plot(f, methods, "render_speedup", "psnr_db", 1, "Likeness by speed", times,
             "PSNR against dense, dB");
    put_plot(f, methods, "render_speedup", "structure", 1, "Difference of structure by speed",
             times, "structure (0: the same)");
    if (checked)
        put_plot(f, methods, "render_speedup", "adherence_to_dense", 0.01, "Adherence by speed",
                 times, "adherence less that of dense, points");
    fputs("</div>\n", f);
}

static void put_introduction(FILE *f, const json_t *all, bool checked)
{
    fputs("<p>", f);
    lti_html_text(f, json_string_value(json_object_get(all, "model")));
    fprintf(f,
            ": mode %s, %dx%d, %d frames, %d steps, %d clips (%d prompts, %d of each), %d threads. "
            "Every clip "
            "is compared with the dense one of the same prompt and seed; &plusmn; is the standard "
            "error over these pairs. Density is keys read over keys there are, of the whole run "
            "with its dense warm-up, and of the sparse passes alone. The noise floor is dense "
            "attention with its sums in another order: a method there cannot be told from dense. "
            "Structure is the difference of edges and colours at four sizes, 0 for the same. "
            "Attention and planning are shares of denoising; speed is against dense in the same "
            "run; memory is the device's.",
            json_string_value(json_object_get(all, "mode")), number(all, "width"),
            number(all, "height"), number(all, "num_frames"), number(all, "num_inference_steps"),
            number(all, "clips"),
            number(all, "clips") / (number(all, "seeds") > 0 ? number(all, "seeds") : 1),
            number(all, "seeds"), number(all, "threads"));
    if (checked)
        fputs(" Adherence is how much of what the prompt asks for (ground, colour, shape, motion, "
              "light) a program finds in the clip.",
              f);
    fputs("</p>\n", f);
}

lt_status lti_quality_page(lt_ctx *ctx, const char *path, const json_t *all, const char *dir)
{
    const json_t *methods = json_object_get(all, "methods");
    const bool checked = json_object_get(json_object_get(all, "dense"), "adherence") != NULL;
    char strip[4096];
    FILE *f;
    LT_TRY(lti_html_begin(&f, ctx, path, "Sparse attention beside dense"));
    put_introduction(f, all, checked);
    put_table(f, all, checked);
    put_plots(f, methods, checked);
    if (checked) put_prompts(f, methods);
    fputs("<h2>Frames of the first clip</h2>\n", f);
    lt_status s = LT_OK;
    for (size_t i = 0; s == LT_OK && i <= json_array_size(methods); i++) {
        snprintf(strip, sizeof strip, "%s/strip%02zu.png", dir, i);
        s = lti_html_picture(f, ctx, strip, i ? name_of(methods, i - 1) : "dense");
    }
    return lti_html_end(f, ctx, path, s);
}
