/* numbers.c: numbers in order. */
#include "examples/numbers.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void lti_sort(double *v, size_t n)
{
    if (n) qsort(v, n, sizeof *v, by_value);
}

double lti_median(double *v, size_t n)
{
    if (!n) return 0;
    lti_sort(v, n);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}
