/* attention_fits.c: whether attention may be computed in f16. One pass over the inputs, which is nothing beside their products; keys that
 * no row lists are not looked at, since a cache leaves anything there. */
#include "kernels/attention.h"

#include <string.h>

enum { SCAN_ROWS = 256 };

typedef struct scan {
    const lt_mat *m;
    int64_t rows, cols;
    const int32_t *lists; /* [rows] how many runs a row is in; NULL: all count */
    uint16_t *largest;    /* of each task: magnitude bits of a bf16 */
} scan;

static void scan_task(void *arg, int64_t task, int thread)
{
    const scan *s = arg;
    const int64_t end = lti_min64((task + 1) * SCAN_ROWS, s->rows), ld = lti_ld(s->m, s->cols);
    uint16_t most = 0;
    (void)thread;
    for (int64_t r = task * SCAN_ROWS; r < end; r++) {
        if (s->lists && s->lists[r] == 0) continue;
        const uint16_t *x = (const uint16_t *)s->m->data + r * ld;
        for (int64_t c = 0; c < s->cols; c++) {
            const uint16_t bits = x[c] & 0x7fff;
            most = bits > most ? bits : most;
        }
    }
    s->largest[task] = most;
}

static int64_t tasks_of(int64_t rows)
{
    return (rows + SCAN_ROWS - 1) / SCAN_ROWS;
}

/* The largest magnitude; infinity or a NaN where there is one. */
static float largest(lt_dev *dev, scan *s, const lt_mat *m, int64_t rows, const int32_t *lists)
{
    uint16_t most = 0;
    s->m = m;
    s->rows = rows;
    s->lists = lists;
    lti_parallel(dev, tasks_of(rows), scan_task, s);
    for (int64_t i = 0; i < tasks_of(rows); i++)
        most = s->largest[i] > most ? s->largest[i] : most;
    return lti_bf16_to_f32(most);
}

/* lists[j] = number of runs that key j is in */
static void count_lists(int32_t *lists, const lt_attention_args *a)
{
    const lt_attn_plan *p = a->plan;
    memset(lists, 0, (size_t)(a->lk + 1) * sizeof *lists);
    for (int32_t r = p->row[0]; r < p->row[(int64_t)p->ngroups * p->nq]; r++) {
        lists[p->runs[r].begin]++;
        lists[p->runs[r].end]--;
    }
    for (int64_t j = 1; j < a->lk; j++)
        lists[j] += lists[j - 1];
}

/* 32 products of a query and a key stay under 2^15, values are neither large nor all so small that they would lose digits. Of a
 * trained model this always holds. */
lt_status lti_attn_fits(bool *fits, lt_dev *dev, const lt_attention_args *a)
{
    const int64_t most = a->lq > a->lk ? a->lq : a->lk;
    scan s = {.cols = (int64_t)a->heads * a->head_dim};
    void *mem;
    LT_TRY(lti_scratch_shared(dev, &mem,
                              (size_t)(a->lk + 1) * sizeof(int32_t) +
                                  (size_t)tasks_of(most) * sizeof *s.largest));
    int32_t *lists = mem;
    s.largest = (uint16_t *)(lists + a->lk + 1);
    count_lists(lists, a);
    const float q = largest(dev, &s, &a->q, a->lq, NULL), k = largest(dev, &s, &a->k, a->lk, lists),
                v = largest(dev, &s, &a->v, a->lk, lists);
    const float turned = a->k_rope ? 1.5f * k : k; /* at most the square root of 2 */
    *fits = q < 4096 && turned < 4096 && q * turned < 1024 && v < 512 && (v == 0 || v > 0x1p-6f);
    return LT_OK;
}
