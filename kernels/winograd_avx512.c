/* winograd_avx512.c: the transforms for AVX-512. */
#include "kernels/winograd_simd.h"

const lti_wino_ops lti_wino_avx512 = {in, weights, out};
