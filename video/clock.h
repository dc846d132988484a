/* clock.h: the time that passes. Private to video/. */
#ifndef LTI_VIDEO_CLOCK_H
#define LTI_VIDEO_CLOCK_H

#include <time.h>

/* Seconds of a clock that only goes on. */
static inline double lti_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
