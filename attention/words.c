/* words.c: words of a text: names, numbers, boxes. */
#include "attention/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool lti_word_is(lti_word_text w, const char *name)
{
    return strlen(name) == w.len && !memcmp(w.text, name, w.len);
}

bool lti_read_number(lti_word_text w, double low, double high, double *out)
{
    char copy[32], *end;
    if (w.len == 0 || w.len >= sizeof copy) return false;
    memcpy(copy, w.text, w.len);
    copy[w.len] = 0;
    if (strspn(copy, "0123456789.-eE") != w.len) return false; /* no spaces, no hexadecimal */
    *out = strtod(copy, &end);
    return *end == 0 && isfinite(*out) && *out >= low && *out <= high;
}

bool lti_read_whole(lti_word_text w, int32_t low, int32_t high, int32_t *out)
{
    double v;
    if (!lti_read_number(w, low, high, &v) || v != floor(v)) return false;
    *out = (int32_t)v;
    return true;
}

bool lti_read_box(lti_word_text w, int32_t out[3])
{
    for (int a = 0; a < 3; a++) {
        const char *x = a < 2 ? memchr(w.text, 'x', w.len) : NULL;
        const lti_word_text side = {w.text, x ? (size_t)(x - w.text) : w.len};
        if ((a < 2 && !x) || !lti_read_whole(side, 1, LTI_MOST_SIDE, &out[a])) return false;
        w.text += side.len + 1;
        w.len -= a < 2 ? side.len + 1 : side.len;
    }
    return true;
}

bool lti_odd_box(const int32_t side[3])
{
    for (int a = 0; a < 3; a++)
        if (side[a] < 1 || side[a] > LTI_MOST_SIDE || side[a] % 2 == 0) return false;
    return true;
}

bool lti_read_odd_box(lti_word_text w, int32_t out[3])
{
    return lti_read_box(w, out) && lti_odd_box(out);
}
