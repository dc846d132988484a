/* sparse_fixture.h: queries and keys, and calls of attention through the planner. */
#ifndef LT_TESTS_SPARSE_FIXTURE_H
#define LT_TESTS_SPARSE_FIXTURE_H

#include "attention/attention.h"
#include "tests/guard_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 3, SIZE = 12, DIM = HEADS * SIZE, LAYERS = 2 };

static inline float *noise(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    uint64_t s = seed * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(s >> 40) / (1 << 23) - 1) * 2;
    }
    return x;
}

static inline lt_mat put(lt_dev *dev, const float *host, int64_t rows)
{
    lt_mat m = {.dtype = LT_F32, .ld = DIM};
    const size_t bytes = (size_t)(rows * DIM) * sizeof(float);
    assert_int_equal(lt_dev_alloc(dev, &m.data, bytes, LT_TAG_TEST), LT_OK);
    if (host) assert_int_equal(lt_dev_upload(dev, m.data, host, bytes), LT_OK);
    return m;
}

static inline float *get(lt_dev *dev, lt_mat m, int64_t rows)
{
    float *x = malloc((size_t)(rows * DIM) * sizeof *x);
    assert_int_equal(lt_dev_download(dev, x, m.data, (size_t)(rows * DIM) * sizeof *x), LT_OK);
    return x;
}

static inline lt_sparse_options options(const char *text, lt_grid g)
{
    lt_sparse_options o = {.grid = g,
                           .heads = HEADS,
                           .head_dim = SIZE,
                           .layers = LAYERS,
                           .samples = 1,
                           .dtype = LT_F32};
    assert_int_equal(lt_sparse_parse(&o.spec, NULL, text), LT_OK);
    return o;
}

/* Output of a call, as a transformer makes it; NULL when it is to be dense. */
static inline float *attend(lt_dev *dev, lt_sparse *s, const lt_sparse_call *c)
{
    const lt_attn_plan *plan;
    if (lt_sparse_plan(s, &plan, c) < 0) fail_msg("%s", lt_error(lt_dev_ctx(dev)));
    if (!plan) return NULL;
    lt_mat out = put(dev, NULL, c->lq);
    const lt_attention_args a = {.out = out,
                                 .q = c->q,
                                 .k = c->k,
                                 .v = c->v,
                                 .lq = c->lq,
                                 .lk = c->lk,
                                 .heads = HEADS,
                                 .head_dim = SIZE,
                                 .scale = (float)(1 / sqrt(SIZE)),
                                 .plan = plan,
                                 .lse = lt_sparse_lse(s),
                                 .k_rope = c->k_rope};
    assert_int_equal(lt_attention(dev, &a), LT_OK);
    assert_int_equal(lt_sparse_finish(s, c, out), LT_OK);
    float *x = get(dev, out, c->lq);
    lt_dev_free(dev, out.data);
    return x;
}

static inline float *dense(lt_dev *dev, const lt_sparse_call *c)
{
    lt_plan *p;
    assert_int_equal(lt_plan_dense(&p, dev, c->lq, c->lk, HEADS), LT_OK);
    lt_mat out = put(dev, NULL, c->lq);
    const lt_attention_args a = {.out = out,
                                 .q = c->q,
                                 .k = c->k,
                                 .v = c->v,
                                 .lq = c->lq,
                                 .lk = c->lk,
                                 .heads = HEADS,
                                 .head_dim = SIZE,
                                 .scale = (float)(1 / sqrt(SIZE)),
                                 .plan = lt_plan_kernel(p)};
    assert_int_equal(lt_attention(dev, &a), LT_OK);
    float *x = get(dev, out, c->lq);
    lt_dev_free(dev, out.data);
    lt_plan_destroy(&p);
    return x;
}

typedef struct data {
    float *q, *k, *v; /* host */
    lt_sparse_call call;
} data;

static inline data make_data(lt_dev *dev, int64_t n, uint64_t seed)
{
    data d = {noise(n * DIM, seed),
              noise(n * DIM, seed + 1),
              noise(n * DIM, seed + 2),
              {.progress = 1, .lq = n, .lk = n}};
    d.call.q = put(dev, d.q, n);
    d.call.k = put(dev, d.k, n);
    d.call.v = put(dev, d.v, n);
    return d;
}

static inline void free_data(lt_dev *dev, data *d)
{
    lt_dev_free(dev, d->call.q.data);
    lt_dev_free(dev, d->call.k.data);
    lt_dev_free(dev, d->call.v.data);
    free(d->q);
    free(d->k);
    free(d->v);
}

static inline double far_apart(const float *a, const float *b, int64_t n)
{
    double far = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        far += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(far / all);
}

#endif
