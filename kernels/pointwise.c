/* pointwise.c: the memory-bound operations: checks, then spans of rows for the workers, each done by the span function of
 * the device's instruction set. */
#include "kernels/pointwise.h"

#include <float.h>
#include <math.h>

static const lti_spans *spans_of(const lt_dev *dev)
{
#if defined(__x86_64__)
    if (lti_dev_isa(dev) >= LTI_ISA_AVX512) return &lti_spans_avx512;
    if (lti_dev_isa(dev) >= LTI_ISA_AVX2) return &lti_spans_avx2;
#else
    (void)dev;
#endif
    return &lti_spans_portable;
}

typedef struct job {
    lti_span_fn *fn;
    const void *args;
    int64_t n, grain;
} job;

static void job_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    (void)thread;
    j->fn(j->args, task * j->grain, lti_min64((task + 1) * j->grain, j->n));
}

/* Elements of one task: some ten microseconds, several times what waking a worker costs, and small enough that a
 * row's neighbours are shared out evenly. A span of elements is a multiple of every vector length. */
enum { TASK_ELEMENTS = 16384 };

static void spread(lt_dev *dev, lti_span_fn *fn, const void *args, int64_t n, int64_t elements_each)
{
    if (n == 0) return;
    const int64_t grain = elements_each < TASK_ELEMENTS ? TASK_ELEMENTS / elements_each : 1;
    job j = {fn, args, n, grain};
    lti_parallel(dev, (n + grain - 1) / grain, job_task, &j);
}

/* name, number of rows, elements of a row */
#define SPREAD_MAP(X)                                                                        \
    X(convert, a->rows, a->cols)                                                             \
    X(norm, a->rows, a->cols)                                                                \
    X(qknorm, a->rows, (int64_t)a->heads * a->head_dim)                                      \
    X(channorm, a->x.w > 0 ? a->x.h : 0, (int64_t)a->x.w * a->x.c)                           \
    X(lincomb, a->n, 1)                                                                      \
    X(map, a->rows, a->cols)                                                                 \
    X(patch, a->w > 0 ? (int64_t)a->frames * (a->h / a->p) : 0, (int64_t)a->w * a->p * a->c) \
    X(noise, a->n, 1)                                                                        \
    X(latent_image, a->img.w > 0 ? a->img.h : 0, (int64_t)a->img.w * a->c)                   \
    X(rgb8, a->img.w > 0 ? a->img.h : 0, (int64_t)a->img.w * 3)                              \
    X(tilemean, a->tiles, TASK_ELEMENTS / 4)                                                 \
    X(tilescore, a->heads * a->lq, a->lk > 0 ? a->lk * a->head_dim : 1)                      \
    X(merge, a->rows, (int64_t)a->heads * a->head_dim)

#define X(name, rows, elements)                                         \
    static lt_status name##_cpu(lt_dev *dev, const lt_##name##_args *a) \
    {                                                                   \
        LT_TRY(lti_check_##name(dev, a));                               \
        spread(dev, spans_of(dev)->name, a, rows, elements);            \
        return LT_OK;                                                   \
    }
SPREAD_MAP(X)
#undef X

/* ---- stats: fixed blocks, added up in order ---- */

enum { STATS_BLOCK = 32768 };

typedef struct stats_job {
    const lti_spans *spans;
    const lt_stats_args *a;
    lti_stats_part *parts;
} stats_job;

static void stats_task(void *arg, int64_t task, int thread)
{
    const stats_job *j = arg;
    const int64_t first = task * STATS_BLOCK;
    (void)thread;
    j->spans->stats_block(&j->parts[task], j->a->x + first,
                          lti_min64(STATS_BLOCK, j->a->n - first));
}

static lt_status stats_cpu(lt_dev *dev, const lt_stats_args *a)
{
    LT_TRY(lti_check_stats(dev, a));
    const int64_t blocks = (a->n + STATS_BLOCK - 1) / STATS_BLOCK;
    void *parts;
    LT_TRY(lti_scratch_shared(dev, &parts, (size_t)blocks * sizeof(lti_stats_part)));
    stats_job j = {spans_of(dev), a, parts};
    lti_parallel(dev, blocks, stats_task, &j);
    lti_stats_part all = {.min = FLT_MAX, .max = -FLT_MAX};
    for (int64_t i = 0; i < blocks; i++) {
        const lti_stats_part *p = &j.parts[i];
        all.bad += p->bad;
        all.sum += p->sum;
        all.squares += p->squares;
        all.min = fminf(all.min, p->min);
        all.max = fmaxf(all.max, p->max);
    }
    const int64_t finite = a->n - all.bad;
    *a->result = (lt_stats_result){.nonfinite = all.bad};
    if (finite == 0) return LT_OK;
    a->result->min = all.min;
    a->result->max = all.max;
    a->result->mean = all.sum / (double)finite;
    a->result->rms = sqrt(all.squares / (double)finite);
    return LT_OK;
}

void lti_pointwise_register(lt_kernels *k, lti_isa isa)
{
    (void)isa; /* the span functions are chosen by the device's set at each call */
#define X(name, rows, elements) k->name = name##_cpu;
    SPREAD_MAP(X)
#undef X
    k->stats = stats_cpu;
}
