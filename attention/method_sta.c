/* method_sta.c: sliding tile attention (arXiv 2502.04507): a window of whole boxes around the query's own, shifted inwards at the
 * borders, so that every query tile reads equally many. In a cache the window ends with the present block, and the sink is read too. */
#include "attention/methods.h"

static void window(int32_t *first, int32_t *last, int32_t at, int32_t n, int32_t w)
{
    *first = 0;
    *last = n - 1;
    if (w >= n) return;
    const int32_t half = w / 2, high = n - 1 - half;
    const int32_t centre = at < half ? half : at > high ? high : at;
    *first = centre - half;
    *last = centre + half;
}

void lti_list_sta(lti_list *l, const lti_scene *s, int32_t group, int32_t tile)
{
    const int32_t n[3] = {lti_boxes_deep(s), s->tiling->count[1], s->tiling->count[2]};
    const int32_t *side = s->window ? s->window[group] : s->o->window;
    int32_t place[3], first[3], last[3];
    lti_tile_place(s, tile, place);
    for (int a = 0; a < 3; a++)
        window(&first[a], &last[a], place[a], n[a], side[a]);
    for (int32_t f = first[0]; f <= last[0]; f++)
        for (int32_t y = first[1]; y <= last[1]; y++)
            lti_read_boxes(l, s, f, y, first[2], last[2]);
}
