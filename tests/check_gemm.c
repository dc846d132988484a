/* check_gemm.c: weights, tolerances and the line of the vendor library for linear and conv. */
#include "tests/check_gemm.h"

#include "kernels/gemm.h"

#include <math.h>
#include <stdio.h>

lt_weight *lt_check_weight(lt_check *t, lt_buf values, lt_buf bias, int64_t out, int64_t in,
                           int taps, lt_dtype compute)
{
    lt_weight *w = NULL;
    const lt_weight_part part = {.data = values.host,
                                 .dtype = values.dtype,
                                 .out = out,
                                 .bias = bias.n ? bias.host : NULL,
                                 .bias_dtype = bias.dtype};
    const lt_weight_options opt = {.parts = &part,
                                   .nparts = 1,
                                   .in = in,
                                   .taps = taps,
                                   .compute = compute,
                                   .tag = LT_TAG_TEST};
    LT_CHECK_OK(t, lt_weight_create(&w, t->many, &opt));
    return w;
}

lt_tol lt_check_sum_tol(const lt_weight *w, double terms, double scale, lt_dtype out)
{
    /* rounding errors of a sum of random numbers grow with its square root; bf16 keeps 8 bits */
    const double each = w->half ? 3e-3 : 1e-6;
    return (lt_tol){.abs = each * scale * sqrt(terms), .rel = out == LT_F32 ? 2e-6 : 0x1p-7};
}

void lt_check_print_dnnl(lt_check *t, double seconds, double flops)
{
    if (!t->bench || seconds <= 0 || t->timer.runs < 1) return;
    const double ours = t->timer.ns[t->timer.runs / 2] * 1e-9;
    printf("%-44s oneDNN     %9.3f ms        %8.2f GFLOP/s  ours is %.2f times as fast\n", "",
           seconds * 1e3, flops / seconds * 1e-9, seconds / ours);
}
