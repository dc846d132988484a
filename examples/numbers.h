/* numbers.h: numbers in order. */
#ifndef LTI_EXAMPLES_NUMBERS_H
#define LTI_EXAMPLES_NUMBERS_H

#include <stddef.h>

void lti_sort(double *v, size_t n); /* the least first */
/* Of an even number of them the mean of the two in the middle; 0 of none. Sorts v. */
double lti_median(double *v, size_t n);

#endif
