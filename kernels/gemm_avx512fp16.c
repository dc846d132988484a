/* gemm_avx512fp16.c: tiles of the f16 FMA, for matrix products of bf16. */
#define LTI_HALF
#include "kernels/gemm_simd.h"

const lti_gemm_ops lti_gemm_avx512fp16 = LTI_GEMM_TABLE;
