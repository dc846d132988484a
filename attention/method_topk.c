/* method_topk.c: every query tile of every head reads the boxes whose mean key suits its mean query best: a part of them (keep), as many
 * as hold a part of the weight (mass), or those so many deviations above the mean (tau). The own box is always among them, and in a
 * cache the sink and the own block. With centroids the rest are not lost: their mean key and value stand in for each, weighted by their
 * number of tokens (lti_list_topk_rest). */
#include "attention/methods.h"

#include <math.h>
#include <string.h>

static bool is_set(const uint64_t *bits, int32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void set(uint64_t *bits, int32_t i)
{
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static const uint64_t *bits_of(const lti_scene *s, int32_t head, int32_t tile)
{
    return s->chosen + ((int64_t)head * s->nq + tile) * s->words;
}

/* Key frame of a box, or box of frames where there is no cache. */
typedef struct place {
    int32_t f, each; /* boxes of one f */
} place;

static place places(const lti_scene *s)
{
    return (place){lti_boxes_deep(s), s->tiling->count[1] * s->tiling->count[2]};
}

void lti_list_topk(lti_list *l, const lti_scene *s, int32_t head, int32_t tile)
{
    const uint64_t *bits = bits_of(s, head, tile);
    const place p = places(s);
    for (int32_t f = 0; f < p.f; f++) {
        const int32_t first = lti_box(s, f, 0, 0);
        for (int32_t i = 0; i < p.each; i++) {
            int32_t begin, end;
            if (!is_set(bits, first + i)) continue;
            lti_box_rows(s, first + i, &begin, &end);
            lti_list_add(l, begin, end, s->cached ? s->key[f].bias : 0);
        }
    }
}

/* Rows of means: one a box, in the order of boxes. */
void lti_list_topk_rest(lti_list *l, const lti_scene *s, int32_t head, int32_t tile)
{
    const uint64_t *bits = bits_of(s, head, tile);
    const place p = places(s);
    for (int32_t f = 0; f < p.f; f++) {
        const int32_t first = lti_box(s, f, 0, 0);
        for (int32_t i = 0; i < p.each; i++) {
            int32_t begin, end;
            if (is_set(bits, first + i)) continue;
            lti_box_rows(s, first + i, &begin, &end);
            lti_list_add(l, first + i, first + i + 1,
                         (s->cached ? s->key[f].bias : 0) + (float)log((double)(end - begin)));
        }
    }
}

/* The k-th largest of n numbers, which are put in another order. */
static float kth_largest(float *v, int32_t n, int32_t k)
{
    int32_t low = 0, high = n - 1, at = k - 1;
    while (low < high) {
        const float pivot = v[low + (high - low) / 2];
        int32_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i > j) break;
            const float t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (at <= j)
            high = j;
        else if (at >= i)
            low = i;
        else
            break;
    }
    return v[at];
}

/* How many of the largest of n weights, which are put in falling order, hold `mass` of their sum. */
static int32_t count_mass(float *v, int32_t n, double mass)
{
    double all = 0, sum = 0;
    for (int32_t i = 1; i < n; i++) { /* insertion: n is some hundred */
        const float x = v[i];
        int32_t j = i;
        for (; j > 0 && v[j - 1] < x; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
    for (int32_t i = 0; i < n; i++)
        all += exp((double)(v[i] - v[0]));
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)(v[i] - v[0]));
        if (sum >= mass * all) return i + 1;
    }
    return n;
}

/* How many of n scores are to be read, of `all` boxes of which the others are read anyway. The scores are put in another order. */
static int32_t budget(const lti_scene *s, float *v, int32_t n, int32_t all)
{
    const lt_sparse_spec *o = s->o;
    if (n == 0) return 0;
    if (o->mass > 0) return count_mass(v, n, o->mass);
    if (o->tau > 0) {
        double sum = 0, squares = 0;
        int32_t above = 0;
        for (int32_t i = 0; i < n; i++)
            sum += (double)v[i];
        for (int32_t i = 0; i < n; i++)
            squares += ((double)v[i] - sum / n) * ((double)v[i] - sum / n);
        for (int32_t i = 0; i < n; i++)
            above += (double)v[i] >= sum / n + o->tau * sqrt(squares / n);
        return above;
    }
    const int32_t k = (int32_t)ceil(s->keep * all - 1e-9) - (all - n);
    return k < 0 ? 0 : k > n ? n : k;
}

/* One query tile of one head. `v`: scratch for as many numbers as there are boxes. */
static void choose(uint64_t *bits, const lti_scene *s, int32_t tile, const float *score, float *v)
{
    const place p = places(s);
    int32_t n = 0, own[3];
    memset(bits, 0, (size_t)s->words * sizeof *bits);
    for (int32_t f = 0; f < p.f; f++)
        for (int32_t i = 0, box = lti_box(s, f, 0, 0); i < p.each; i++, box++) {
            if (s->cached && s->key[f].always)
                set(bits, box);
            else
                v[n++] = score[box];
        }
    int32_t most = budget(s, v, n, p.f * p.each);
    const float limit = most > 0 ? kth_largest(v, n, most) : INFINITY;
    lti_tile_place(s, tile, own);
    const int32_t mine = lti_box(s, own[0], own[1], own[2]);
    if (!is_set(bits, mine)) most--;
    set(bits, mine);
    for (int equal = 0; equal < 2; equal++) /* those above the limit, then those at it */
        for (int32_t f = 0; f < p.f; f++)
            for (int32_t i = 0, box = lti_box(s, f, 0, 0); i < p.each; i++, box++) {
                const bool good = equal ? score[box] == limit : score[box] > limit;
                if (most <= 0 || !good || is_set(bits, box)) continue;
                set(bits, box);
                most--;
            }
}

void lti_topk_choose(uint64_t *chosen, const lti_scene *s, const float *score, float *scratch)
{
    for (int64_t i = 0; i < (int64_t)s->heads * s->nq; i++)
        choose(chosen + i * s->words, s, (int32_t)(i % s->nq), score + i * s->nk, scratch);
}
