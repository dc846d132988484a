/* pointwise_portable.c: the memory-bound operations for the base instruction set of the target, four lanes. */
#define LTI_SPANS lti_spans_portable
#include "kernels/pointwise_spans.h"
