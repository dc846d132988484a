/* winograd_avx2.c: the transforms for AVX2 and FMA. */
#include "kernels/winograd_simd.h"

const lti_wino_ops lti_wino_avx2 = {in, weights, out};
