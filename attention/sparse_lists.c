/* sparse_lists.c: lists of keys, sorted and joined, into the memory that a plan has on the device. */
#include "attention/sparse_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t run_items(const lti_sizes *z, int32_t nq, int32_t groups)
{
    return (size_t)nq * (size_t)groups * (size_t)z->most;
}

uint64_t lti_lists_bytes(const lti_sizes *z, int32_t nq, int32_t groups, int32_t heads)
{
    const size_t lists = (size_t)nq * (size_t)groups;
    return run_items(z, nq, groups) * sizeof(lt_run) +
           (lists + 1 + (size_t)nq + 1 + (size_t)heads) * sizeof(int32_t);
}

lt_status lti_lists_create(lti_lists *l, lt_dev *dev, const lti_sizes *z, int32_t nq,
                           int32_t groups, int32_t heads)
{
    const size_t lists = (size_t)nq * (size_t)groups, runs = run_items(z, nq, groups);
    *l = (lti_lists){.most = z->most};
    l->row = malloc((lists + 1) * sizeof *l->row);
    l->run = malloc(runs * sizeof *l->run);
    l->group_read = calloc((size_t)groups, sizeof *l->group_read);
    if (!l->row || !l->run || !l->group_read || runs > INT32_MAX)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for %zu runs of keys", runs);
    l->row[0] = 0;
    LT_TRY(lt_dev_alloc(dev, (void **)&l->dev_q_off, ((size_t)nq + 1) * 4, LT_TAG_PLAN));
    LT_TRY(lt_dev_alloc(dev, (void **)&l->dev_row, (lists + 1) * 4, LT_TAG_PLAN));
    LT_TRY(lt_dev_alloc(dev, (void **)&l->dev_group, (size_t)heads * 4, LT_TAG_PLAN));
    return lt_dev_alloc(dev, (void **)&l->dev_run, runs * sizeof *l->run, LT_TAG_PLAN);
}

void lti_lists_destroy(lti_lists *l, lt_dev *dev)
{
    lt_dev_free(dev, l->dev_run);
    lt_dev_free(dev, l->dev_group);
    lt_dev_free(dev, l->dev_row);
    lt_dev_free(dev, l->dev_q_off);
    free(l->group_read);
    free(l->run);
    free(l->row);
    *l = (lti_lists){0};
}

static int by_begin(const void *a, const void *b)
{
    const lt_run *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void sort(lti_list *l)
{
    for (int32_t i = 1; i < l->n; i++)
        if (l->run[i].begin < l->run[i - 1].begin) {
            qsort(l->run, (size_t)l->n, sizeof *l->run, by_begin);
            return;
        }
}

/* Runs that overlap or meet become one; a key has one bias, whichever run it is in. */
lt_status lti_lists_add(lti_lists *l, lt_ctx *ctx, int32_t at, lti_list *from)
{
    lt_run *const out = l->run + l->row[at];
    int32_t n = 0;
    sort(from);
    for (int32_t i = 0; i < from->n; i++) {
        lt_run r = from->run[i];
        lt_run *last = n ? &out[n - 1] : NULL;
        if (last && r.begin <= last->end && last->bias == r.bias) {
            if (r.end > last->end) last->end = r.end;
            continue;
        }
        if (n == l->most)
            return lti_fail(ctx, LT_ERR_MEM, "attention: a list of more than %d runs", l->most);
        r.flags = r.bias != 0 ? LT_RUN_BIAS : 0;
        out[n++] = r;
    }
    l->row[at + 1] = l->row[at] + n;
    return LT_OK;
}

lt_status lti_lists_upload(lti_lists *l, lt_dev *dev, int32_t nq, const int32_t *q_off,
                           int32_t lists, const int32_t *group, int32_t heads)
{
    const size_t runs = (size_t)l->row[lists];
    l->nq = nq;
    l->groups = lists / nq;
    LT_TRY(lt_dev_upload(dev, l->dev_q_off, q_off, ((size_t)nq + 1) * 4));
    LT_TRY(lt_dev_upload(dev, l->dev_row, l->row, ((size_t)lists + 1) * 4));
    if (runs) LT_TRY(lt_dev_upload(dev, l->dev_run, l->run, runs * sizeof *l->run));
    if (group) LT_TRY(lt_dev_upload(dev, l->dev_group, group, (size_t)heads * 4));
    l->kernel = (lt_attn_plan){.nq = nq,
                               .ngroups = l->groups,
                               .q_off = l->dev_q_off,
                               .row = l->dev_row,
                               .runs = l->dev_run,
                               .group_of_head = group ? l->dev_group : NULL};
    return LT_OK;
}

lt_status lti_lists_write(lti_lists *l, lt_sparse *s, const lti_scene *sc, lti_list_fn *fn,
                          const int32_t *group)
{
    const int32_t groups = s->z.groups;
    for (int32_t g = 0; g < groups; g++) {
        l->group_read[g] = 0;
        for (int32_t t = 0; t < sc->nq; t++) {
            const int32_t at = g * sc->nq + t;
            s->list.n = 0;
            fn(&s->list, sc, g, t);
            for (int32_t f = 0; f < sc->nkeys && fn != lti_list_topk_rest; f++)
                if (sc->key[f].always) lti_read_tokens(&s->list, sc, f, 0, sc->frame);
            LT_TRY(lti_lists_add(l, s->ctx, at, &s->list));
            for (int32_t r = l->row[at]; r < l->row[at + 1]; r++)
                l->group_read[g] +=
                    (double)(l->run[r].end - l->run[r].begin) * (sc->q_off[t + 1] - sc->q_off[t]);
        }
    }
    const lt_plan_desc desc = {.lq = sc->q_off[sc->nq],
                               .lk = INT32_MAX,
                               .nq = sc->nq,
                               .ngroups = groups,
                               .heads = sc->heads,
                               .q_off = sc->q_off,
                               .row = l->row,
                               .runs = l->run,
                               .group_of_head = group};
    LT_TRY(lt_plan_check(s->ctx, &desc)); /* whoever adds a method hears of its mistakes here */
    return lti_lists_upload(l, s->dev, sc->nq, sc->q_off, groups * sc->nq, group, sc->heads);
}
