/* pointwise_avx512.c: the memory-bound operations for AVX-512. */
#define LTI_SPANS lti_spans_avx512
#include "kernels/pointwise_spans.h"
