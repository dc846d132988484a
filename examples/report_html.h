/* report_html.h: pages of one file: text, tables, plots and pictures, nothing loaded from elsewhere.
 *
 *     FILE *f;
 *     LT_TRY(lti_html_begin(&f, ctx, path, "title"));
 *     lti_html_plot(f, &(lti_plot){...}, series, count);
 *     LT_TRY(lti_html_picture(f, ctx, "strip.png", "what it shows"));
 *     return lti_html_end(f, ctx, path, status);
 */
#ifndef LTI_EXAMPLES_REPORT_HTML_H
#define LTI_EXAMPLES_REPORT_HTML_H

#include "kernels/kernels.h"

#include <stdio.h>

/* Writes the head of a page, its heading included. Errors: LT_ERR_IO. */
LT_MUST_USE lt_status lti_html_begin(FILE **f, lt_ctx *ctx, const char *path, const char *title);
/* Closes it. Returns `so_far` if that is an error, else whether all of it was written. */
LT_MUST_USE lt_status lti_html_end(FILE *f, lt_ctx *ctx, const char *path, lt_status so_far);
/* Text with what HTML would take for its own made harmless. */
void lti_html_text(FILE *f, const char *text);
/* <figure> with a PNG file's bytes in it. Errors: LT_ERR_IO. */
LT_MUST_USE lt_status lti_html_picture(FILE *f, lt_ctx *ctx, const char *path, const char *caption);

/* Points of one colour. */
typedef struct lti_series {
    const char *name;
    const double *x, *y, *error; /* [n]; error: half-length of a vertical line, or NULL */
    int32_t n;
    bool
        line; /* joined, its name in a legend; else every point is marked, the name beside the first */
} lti_series;

typedef struct lti_plot {
    const char *title, *x_name, *y_name;
    double x_min, x_max, y_min, y_max; /* min >= max: by the points */
} lti_plot;
/* An <svg>. Points that are not finite are left out. */
void lti_html_plot(FILE *f, const lti_plot *p, const lti_series *series, int32_t count);

#endif
