/* gemm_avx2.c: 6 x 16 tiles of f32 FMA; bf16 is widened before it is multiplied. */
#include "kernels/gemm_simd.h"

const lti_gemm_ops lti_gemm_avx2 = LTI_GEMM_TABLE;
