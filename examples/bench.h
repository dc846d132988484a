/* bench.h: the benchmarks behind `longtake bench`, one file each. */
#ifndef LTI_EXAMPLES_BENCH_H
#define LTI_EXAMPLES_BENCH_H

#include "examples/command.h"

LT_MUST_USE lt_status lti_bench_speed(lt_ctx *ctx, const lti_settings *set,
                                      lti_interrupt *interrupt); /* bench_speed.c */

#endif
