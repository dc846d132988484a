/* gemm_avx512.c: tiles of f32 FMA; bf16 is widened before it is multiplied. */
#include "kernels/gemm_simd.h"

const lti_gemm_ops lti_gemm_avx512 = LTI_GEMM_TABLE;
