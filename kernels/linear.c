/* linear.c: a matrix product as a picture of one row: M pixels, one tap. */
#include "kernels/gemm.h"

lt_status lti_linear_gemm(lt_dev *dev, const lt_linear_args *a)
{
    LT_TRY(lti_check_linear(dev, a));
    const bool sum = a->accumulate || a->gate;
    const int64_t ldo = lti_ld(&a->out, a->w->out);
    const lti_gemm g = {
        .w = a->w,
        .frame = {a->x.data},
        .in_px = lti_ld(&a->x, a->w->in),
        .in_step = 1,
        .ntaps = 1,
        .rows = 1,
        .cols = a->rows,
        .out = a->out.data,
        .out_type = a->out.dtype,
        .out_px = ldo,
        .res = sum ? a->out.data : NULL,
        .res_px = ldo,
        .act = a->act,
        .gate = a->gate,
        .gate_ld = a->gate_ld,
        .group = a->row_group,
    };
    return lti_gemm_run(dev, &g);
}
