/* gemm_avx512bf16.c: tiles of vdpbf16ps, for processors where it is twice as fast as the f32 FMA. */
#define LTI_BF16_PAIRS
#include "kernels/gemm_simd.h"

const lti_gemm_ops lti_gemm_avx512bf16 = LTI_GEMM_TABLE;
