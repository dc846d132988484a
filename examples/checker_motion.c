/* checker_motion.c: which of the motions of the toybox world a path is. */
#include "examples/checker_internal.h"
#include "examples/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 80 };

/* Median step: a wrap round the edge does not count. */
static double slope(const lti_toy_spot *s, int n, bool down)
{
    double step[MOST];
    for (int i = 1; i < n; i++) {
        const double dt = s[i].t - s[i - 1].t;
        step[i - 1] = (down ? s[i].y - s[i - 1].y : s[i].x - s[i - 1].x) / (dt > 1 ? dt : 1);
    }
    return lti_median(step, n > 1 ? (size_t)n - 1 : 0);
}

/* How often the value turns round by more than 6 pixels. */
static int swings(const lti_toy_spot *s, int n, bool down)
{
    double lo = down ? s[0].y : s[0].x, hi = lo;
    int count = 0, way = 0;
    for (int i = 1; i < n; i++) {
        const double p = down ? s[i].y : s[i].x;
        lo = p < lo ? p : lo;
        hi = p > hi ? p : hi;
        if (p - lo > 6 && p - lo < 60 && way <= 0) {
            count += way < 0;
            way = 1;
            hi = p;
        } else if (hi - p > 6 && hi - p < 60 && way >= 0) {
            count += way > 0;
            way = -1;
            lo = p;
        }
        if (way > 0 && hi - p <= 6) lo = p;
        if (way < 0 && p - lo <= 6) hi = p;
    }
    return count;
}

static void range(const lti_toy_spot *s, int n, double *x, double *y)
{
    double low[2] = {HUGE_VAL, HUGE_VAL}, high[2] = {-HUGE_VAL, -HUGE_VAL};
    for (int i = 0; i < n; i++) {
        const double v[2] = {s[i].x, s[i].y};
        for (int a = 0; a < 2; a++) {
            low[a] = v[a] < low[a] ? v[a] : low[a];
            high[a] = v[a] > high[a] ? v[a] : high[a];
        }
    }
    *x = high[0] - low[0];
    *y = high[1] - low[1];
}

/* How large it is in the end beside how large it was at first. */
static double growth(const lti_toy_spot *s, int n)
{
    const int k = n / 6 > 1 ? n / 6 : 1;
    double first = 0, last = 0;
    for (int i = 0; i < k; i++) {
        first += s[i].size;
        last += s[n - 1 - i].size;
    }
    return last / first;
}

/* By how much the outline is turned in the end, whatever it trembled on the way; angles of one step are taken the short way. */
static double turned(const lti_toy_spot *s, int n, int corners)
{
    const double round = 6.283185307179586;
    double sum = 0;
    for (int i = 1; i < n; i++)
        sum += remainder(s[i].phase - s[i - 1].phase, round);
    return fabs(sum) / corners;
}

const char *lti_toy_motion(lti_toy_spot *track, int n, const char *shape)
{
    lti_toy_spot kept[MOST];
    int m = 0;
    double rx, ry;
    for (int i = 0; i < n; i++)
        if (track[i].whole) kept[m++] = track[i];
    const lti_toy_spot *s = m < 3 ? track : kept;
    if (m < 3) m = n;
    range(s, m, &rx, &ry);
    if (m > 4 && rx < 14 && ry < 14) { /* what grows stays where it is */
        const double g = growth(s, m);
        if (g > 1.28) return "grow";
        if (g < 0.78) return "shrink";
    }
    if (rx < 5 && ry < 5) {
        const int corners = !shape                       ? 0
                            : !strcmp(shape, "triangle") ? 3
                            : !strcmp(shape, "square")   ? 4
                            : !strcmp(shape, "star")     ? 5
                                                         : 0;
        return corners && m > 3 && turned(s, m, corners) > 0.5 ? "spin" : "still";
    }
    if (rx > 14 && ry > 14 &&
        (swings(s, m, true) >= 1 || swings(s, m, false) >= 1 || fmin(rx, ry) > 0.35 * fmax(rx, ry)))
        return "orbit";
    if (ry > rx) {
        if (swings(s, m, true) >= 1) return "bounce";
        return slope(s, m, true) > 0 ? "down" : "up";
    }
    return slope(s, m, false) > 0 ? "right" : "left";
}
