/* dense.c: the plans in which every query row reads the same keys: all of them, or a prompt with its padding folded. */
#include "attention/attention.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Query rows of a tile: a multiple of the 14 and 6 rows that the CPU kernels take at a time, and a divisor of the
 * 32,760 tokens of a 480p clip of five seconds. */
enum { TILE_ROWS = 126 };

static lt_status same_for_all(lt_plan **out, lt_dev *dev, int64_t lq, int64_t lk, int32_t heads,
                              const lt_run *list, int32_t nlist)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (lq < 1 || lq > INT32_MAX)
        return lti_fail(ctx, LT_ERR_ARG, "plan: %" PRId64 " query rows", lq);
    const int32_t nq = (int32_t)((lq + TILE_ROWS - 1) / TILE_ROWS);
    int32_t *q_off = malloc(((size_t)nq + 1) * sizeof *q_off);
    int32_t *row = malloc(((size_t)nq + 1) * sizeof *row);
    lt_run *runs = malloc((size_t)nq * (size_t)nlist * sizeof *runs);
    lt_status s;
    if (!q_off || !row || !runs) {
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for a plan of %d query tiles", nq);
        goto done;
    }
    for (int32_t t = 0; t <= nq; t++) {
        q_off[t] = (int32_t)(t < nq ? (int64_t)t * TILE_ROWS : lq);
        row[t] = t * nlist;
    }
    for (int32_t r = 0; r < nq * nlist; r++)
        runs[r] = list[r % nlist];
    s = lt_plan_create(out, dev,
                       &(lt_plan_desc){.lq = lq,
                                       .lk = lk,
                                       .nq = nq,
                                       .ngroups = 1,
                                       .heads = heads,
                                       .q_off = q_off,
                                       .row = row,
                                       .runs = runs});
done:
    free(runs);
    free(row);
    free(q_off);
    return s;
}

lt_status lt_plan_dense(lt_plan **out, lt_dev *dev, int64_t lq, int64_t lk, int32_t heads)
{
    *out = NULL;
    if (lk < 1 || lk > INT32_MAX)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "plan: %" PRId64 " keys", lk);
    const lt_run all = {.begin = 0, .end = (int32_t)lk};
    return same_for_all(out, dev, lq, lk, heads, &all, 1);
}

lt_status lt_plan_text(lt_plan **out, lt_dev *dev, int64_t lq, int64_t real, int64_t padding,
                       int32_t heads)
{
    *out = NULL;
    if (real < 0 || padding < 0 || (real == 0 && padding == 0) || real >= INT32_MAX)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG,
                        "plan: a text of %" PRId64 " rows and %" PRId64 " of padding", real,
                        padding);
    if (padding <= 1) return lt_plan_dense(out, dev, lq, real + padding, heads);
    const int32_t n = (int32_t)real;
    const lt_run runs[2] = {
        {.begin = 0, .end = n},
        {.begin = n, .end = n + 1, .flags = LT_RUN_BIAS, .bias = (float)log((double)padding)}};
    return same_for_all(out, dev, lq, real + 1, heads, n ? runs : runs + 1, n ? 2 : 1);
}
