/* conv.c: a convolution as a sum over its taps of shifted matrix products. Taps of absent frames are left out, which
 * changes no bit: they would add zeros. */
#include "kernels/winograd.h"

/* Three neighbours in a row at a time, all from the same column on? Then the weight's triple serves, if it has one. */
static void take_triple(lti_gemm *g)
{
    if (!g->w->triple || g->in_step != 1) return;
    for (int i = 0; i < g->ntaps; i++) {
        const lt_tap t = g->tap[i], first = g->tap[i - i % 3];
        if (g->tap_index[i] % 3 != i % 3 || t.frame != first.frame || t.dy != first.dy ||
            t.dx != g->tap[0].dx + i % 3)
            return;
    }
    g->ntaps /= 3;
    for (int i = 0; i < g->ntaps; i++) {
        g->tap[i] = g->tap[3 * i];
        g->tap_index[i] = g->tap_index[3 * i] / 3;
    }
    g->narrow = g->w;
    g->w = g->w->triple;
}

lt_status lti_conv_gemm(lt_dev *dev, const lt_conv_args *a)
{
    LT_TRY(lti_check_conv(dev, a));
    const int64_t step = a->out_step ? a->out_step : 1;
    lti_gemm g = {
        .w = a->w,
        .in_row = lti_image_ld(&a->in),
        .in_px = a->in.c,
        .in_step = a->in_step ? a->in_step : 1,
        .rows = a->rows,
        .cols = a->cols,
        .out_type = a->out.dtype,
        .out_row = step * lti_image_ld(&a->out),
        .out_px = step * a->out.c,
        .res_row = step * lti_image_ld(&a->residual),
        .res_px = step * a->residual.c,
    };
    const int64_t first = lti_image_at(&a->in, 0, 0) * (int64_t)lt_dtype_size(a->in.dtype);
    for (int f = 0; f < 3; f++)
        if (a->frame[f]) g.frame[f] = (const char *)a->frame[f] + first;
    for (int i = 0; i < a->ntaps; i++) {
        if (!a->frame[a->tap[i].frame]) continue;
        g.tap[g.ntaps] = a->tap[i];
        g.tap_index[g.ntaps++] = i;
    }
    g.out = (char *)a->out.data +
            lti_image_at(&a->out, a->out_y, a->out_x) * (int64_t)lt_dtype_size(a->out.dtype);
    if (a->residual.data)
        g.res = (const float *)a->residual.data + lti_image_at(&a->residual, a->out_y, a->out_x);
    if (lti_wino_serves(&g, a->in.h, a->in.w)) return lti_wino_run(dev, &g);
    if (g.ntaps % 3 == 0) take_triple(&g);
    return lti_gemm_run(dev, &g);
}
