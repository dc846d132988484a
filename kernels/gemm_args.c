/* gemm_args.c: what the arguments of linear and conv must fulfil, for every version alike. */
#include "kernels/gemm.h"

static bool is_matrix_type(lt_dtype t)
{
    return t == LT_F32 || t == LT_BF16;
}

lt_status lti_check_linear(lt_dev *dev, const lt_linear_args *a)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    const lt_weight *w = a->w;
    if (!w) return lti_fail(ctx, LT_ERR_ARG, "linear: no weight");
    if (a->rows < 0) return lti_fail(ctx, LT_ERR_ARG, "linear: %lld rows", (long long)a->rows);
    if (a->rows > 0 && (!a->x.data || !a->out.data))
        return lti_fail(ctx, LT_ERR_ARG, "linear: no %s", a->x.data ? "out" : "x");
    if (w->taps != 1)
        return lti_fail(ctx, LT_ERR_SHAPE, "linear: the weight has %d taps, not 1", w->taps);
    if (lti_ld(&a->x, w->in) < w->in || lti_ld(&a->out, w->out) < w->out)
        return lti_fail(
            ctx, LT_ERR_SHAPE, "linear: ld of x %lld, of out %lld; the weight is %lld x %lld",
            (long long)a->x.ld, (long long)a->out.ld, (long long)w->out, (long long)w->in);
    if (a->x.dtype != w->compute)
        return lti_fail(ctx, LT_ERR_DTYPE, "linear: x is %s, the weight computes in %s",
                        lt_dtype_name(a->x.dtype), lt_dtype_name(w->compute));
    if (!is_matrix_type(a->out.dtype) || ((a->accumulate || a->gate) && a->out.dtype != LT_F32))
        return lti_fail(ctx, LT_ERR_DTYPE, "linear: out is %s%s", lt_dtype_name(a->out.dtype),
                        a->accumulate || a->gate ? ", a sum needs f32" : "");
    if (a->gate && a->row_group && a->gate_ld < w->out)
        return lti_fail(ctx, LT_ERR_SHAPE, "linear: gate_ld %lld, the weight has %lld rows",
                        (long long)a->gate_ld, (long long)w->out);
    if ((unsigned)a->act > LT_ACT_GELU_ERF)
        return lti_fail(ctx, LT_ERR_ARG, "linear: act %d", (int)a->act);
    return LT_OK;
}

/* Do output rows (or columns) 0..n-1 at `step`, shifted by d, stay inside a picture of `size` with `border`? */
static bool inside(int64_t n, int64_t step, int64_t d, int64_t size, int64_t border)
{
    return n == 0 || (d >= -border && (n - 1) * step + d < size + border);
}

static lt_status check_taps(lt_ctx *ctx, const lt_conv_args *a)
{
    const int64_t step = a->in_step ? a->in_step : 1;
    for (int i = 0; i < a->ntaps; i++) {
        const lt_tap t = a->tap[i];
        if (t.frame < 0 || t.frame > 2)
            return lti_fail(ctx, LT_ERR_ARG, "conv: tap %d reads frame %d, not in 0..2", i,
                            t.frame);
        if (!inside(a->rows, step, t.dy, a->in.h, a->in.border) ||
            !inside(a->cols, step, t.dx, a->in.w, a->in.border))
            return lti_fail(
                ctx, LT_ERR_SHAPE,
                "conv: tap %d (%d, %d) leaves the %dx%d picture with border %d (%dx%d, step %lld)",
                i, t.dy, t.dx, a->in.h, a->in.w, a->in.border, a->rows, a->cols, (long long)step);
    }
    return LT_OK;
}

static lt_status check_out(lt_ctx *ctx, const lt_conv_args *a)
{
    const int64_t step = a->out_step ? a->out_step : 1;
    const lt_image *o = &a->out, *r = &a->residual;
    if (!is_matrix_type(o->dtype))
        return lti_fail(ctx, LT_ERR_DTYPE, "conv: out is %s", lt_dtype_name(o->dtype));
    if (a->out_y < 0 || a->out_x < 0 || !inside(a->rows, step, a->out_y, o->h, 0) ||
        !inside(a->cols, step, a->out_x, o->w, 0) || o->c < a->w->out || o->border < 0)
        return lti_fail(
            ctx, LT_ERR_SHAPE,
            "conv: %dx%d outputs of %lld channels from (%d, %d), step %lld, do not fit %dx%dx%d",
            a->rows, a->cols, (long long)a->w->out, a->out_y, a->out_x, (long long)step, o->h, o->w,
            o->c);
    if (!r->data) return LT_OK;
    if (r->dtype != LT_F32)
        return lti_fail(ctx, LT_ERR_DTYPE, "conv: residual is %s, not f32",
                        lt_dtype_name(r->dtype));
    if (r->h != o->h || r->w != o->w || r->c < a->w->out || r->border < 0)
        return lti_fail(ctx, LT_ERR_SHAPE, "conv: residual %dx%dx%d, out %dx%dx%d", r->h, r->w,
                        r->c, o->h, o->w, o->c);
    return LT_OK;
}

lt_status lti_check_conv(lt_dev *dev, const lt_conv_args *a)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (!a->w) return lti_fail(ctx, LT_ERR_ARG, "conv: no weight");
    if (!a->out.data) return lti_fail(ctx, LT_ERR_ARG, "conv: no out");
    if (a->rows < 0 || a->cols < 0 || a->in_step < 0 || a->out_step < 0 || a->in.border < 0)
        return lti_fail(ctx, LT_ERR_ARG,
                        "conv: rows %d, cols %d, in_step %d, out_step %d, border %d", a->rows,
                        a->cols, a->in_step, a->out_step, a->in.border);
    if (a->ntaps != a->w->taps || a->in.c != a->w->in)
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "conv: %d taps of %d channels, the weight has %d of %lld", a->ntaps,
                        a->in.c, a->w->taps, (long long)a->w->in);
    if (a->in.dtype != a->w->compute)
        return lti_fail(ctx, LT_ERR_DTYPE, "conv: in is %s, the weight computes in %s",
                        lt_dtype_name(a->in.dtype), lt_dtype_name(a->w->compute));
    LT_TRY(check_taps(ctx, a));
    return check_out(ctx, a);
}
