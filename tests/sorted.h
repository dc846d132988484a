/* sorted.h: numbers in order. For tests and checks that tell medians of times. */
#ifndef LT_TESTS_SORTED_H
#define LT_TESTS_SORTED_H

#include <stdlib.h>

static inline int sorted_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void sort_doubles(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, sorted_by_value);
}

#endif
