/* method_svg.c: sparse attention of spatial and of temporal heads (arXiv 2502.01776). Group 0 reads a band around the query in the order
 * of frames, group 1 the same band in the order of pixels: token (frame j, pixel b) is number b * frames + j there. That band holds
 * neighbouring pixels of every frame, which are neighbours in memory too, so temporal heads need no order of their own: a run a frame.
 * The sink is the first `frame` tokens in the order that is active, as in the released code. */
#include "attention/methods.h"

#include <math.h>

int64_t lti_svg_width(int64_t frames, int64_t frame, double density, int64_t base)
{
    const double wide = (double)frames * (1 - sqrt(1 - density));
    return base * (int64_t)ceil(wide * (double)frame / (double)base);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Tokens first .. last in the order of frames. */
static void spatial(lti_list *l, const lti_scene *s, int64_t first, int64_t last)
{
    for (int32_t j = 0; j < s->nkeys; j++) {
        const int64_t from = (int64_t)j * s->frame;
        lti_read_tokens(l, s, j, first - from, last + 1 - from);
    }
}

/* Tokens first .. last in the order of pixels. */
static void temporal(lti_list *l, const lti_scene *s, int64_t first, int64_t last)
{
    for (int32_t j = 0; j < s->nkeys; j++)
        lti_read_tokens(l, s, j, -floor_div(j - first, s->nkeys),
                        floor_div(last - j, s->nkeys) + 1);
}

void lti_list_svg(lti_list *l, const lti_scene *s, int32_t group, int32_t tile)
{
    const int32_t f = tile / s->per_frame, now = s->nkeys - s->q.frames + f;
    const int64_t a = s->q_off[tile] - (int64_t)f * s->frame,
                  b = a + s->q_off[tile + 1] - s->q_off[tile] - 1;
    const int64_t w = lti_svg_width(s->nkeys, s->frame, s->o->density, s->o->base), n = s->nkeys;
    if (group == 0) {
        spatial(l, s, now * (int64_t)s->frame + a - w, now * (int64_t)s->frame + b + w);
        if (s->o->sink) spatial(l, s, 0, s->frame - 1);
    } else {
        temporal(l, s, a * n + now - w, b * n + now + w);
        if (s->o->sink) temporal(l, s, 0, s->frame - 1);
    }
}
