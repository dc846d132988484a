/* method_radial.c: radial attention (arXiv 2506.19852), the released form: the further two frames are apart, the narrower the band of
 * tokens that see each other, and far ones are read only now and then. Exact to the token for a query tile of one row; for more rows the
 * union of theirs. */
#include "attention/methods.h"

#include <math.h>

static int bit_length(int64_t x)
{
    int n = 0;
    for (; x; x >>= 1)
        n++;
    return n;
}

int64_t lti_radial_width(int64_t frame, int64_t distance, double decay, int64_t base)
{
    if (distance <= 1) return frame;
    const double reach = ldexp(1, bit_length(frame) - bit_length(distance));
    if (reach < (double)base && distance % (int64_t)floor((double)base / reach) != 0) return -1;
    const int64_t w = (int64_t)floor(reach * decay);
    return w > base ? w : base;
}

void lti_list_radial(lti_list *l, const lti_scene *s, int32_t group, int32_t tile)
{
    const int32_t f = tile / s->per_frame, now = s->nkeys - s->q.frames + f;
    const int64_t a = s->q_off[tile] - (int64_t)f * s->frame,
                  b = a + s->q_off[tile + 1] - s->q_off[tile];
    (void)group;
    for (int32_t j = 0; j < s->nkeys; j++) {
        const int64_t w =
            j == 0 && s->o->sink
                ? s->frame
                : lti_radial_width(s->frame, now > j ? now - j : j - now, s->o->decay, s->o->base);
        if (w >= 0) lti_read_tokens(l, s, j, a - w, b + w);
    }
}
