/* winograd_portable.c: the transforms over the compiler's own vectors of four floats. */
#include "kernels/winograd_simd.h"

const lti_wino_ops lti_wino_portable = {in, weights, out};
