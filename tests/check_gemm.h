/* check_gemm.h: what the checks of linear and conv share. */
#ifndef LT_TESTS_CHECK_GEMM_H
#define LT_TESTS_CHECK_GEMM_H

#include "tests/check.h"

/* Weights [out, in, taps] from host sides, any file type; `bias` with n = 0 is none. NULL after a failed check; destroy
 * on t->many. */
lt_weight *lt_check_weight(lt_check *t, lt_buf values, lt_buf bias, int64_t out, int64_t in,
                           int taps, lt_dtype compute);

/* Where sums of `terms` products of numbers up to `scale` with this weight may differ: f32 sums in another order, or sums in f16, then
 * the type of out. */
lt_tol lt_check_sum_tol(const lt_weight *w, double terms, double scale, lt_dtype out);

/* check_dnnl.c: oneDNN on the same shape, random numbers, weights packed once by itself; median seconds, 0 when it is not
 * built in. The input pictures of the convolution are `taps / 9` frames deep. */
double lt_dnnl_linear_seconds(int64_t m, int64_t n, int64_t k, lt_dtype type);
double lt_dnnl_conv_seconds(int64_t h, int64_t w, int64_t in, int64_t out, int taps, lt_dtype type);
/* Prints the speed of the library and the ratio of ours to it, after LT_BENCH. */
void lt_check_print_dnnl(lt_check *t, double seconds, double flops);

#endif
