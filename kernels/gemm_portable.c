/* gemm_portable.c: 4 x 8 tiles over the compiler's own vectors of four floats; product and sum round apart. */
#include "kernels/gemm_simd.h"

const lti_gemm_ops lti_gemm_portable = LTI_GEMM_TABLE;
