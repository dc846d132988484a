/* pointwise_avx2.c: the memory-bound operations for AVX2 and FMA. */
#define LTI_SPANS lti_spans_avx2
#include "kernels/pointwise_spans.h"
