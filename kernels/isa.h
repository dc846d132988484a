/* isa.h: choice of the CPU kernel set. */
#ifndef LTI_ISA_H
#define LTI_ISA_H

#include "kernels/internal.h"

const char *lti_isa_name(lti_isa isa);
bool lti_isa_parse(const char *name, lti_isa *out); /* false: no such name */
lti_isa lti_isa_highest(void);                      /* what the processor can run */
lti_isa lti_isa_auto(void);                         /* what it should run */

#endif
