/* pool.c: tasks are numbers taken from one counter. A worker spins for a moment before it sleeps, because a
 * denoising step is thousands of short operations in a row. */
#include "kernels/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { SPINS = 4000 };

typedef struct worker {
    lti_pool *pool;
    pthread_t thread;
    int index;
} worker;

/* `state` is the number of the run, whether it is open, and how many workers are inside. A worker enters only while the run
 * is open; the caller closes it when no task is left and waits for those inside alone. So a worker that the system does
 * not wake in time costs its help, not a wait. */
enum { OPEN = 1 << 15, INSIDE = OPEN - 1, RUN_SHIFT = 16 };

struct lti_pool {
    worker *workers;
    int started; /* workers, the caller not counted */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* state has changed */
    _Atomic uint64_t state;
    _Atomic bool quit;
    /* the run: written while no worker is inside */
    lti_task_fn *fn;
    void *arg;
    int64_t ntasks;
    _Atomic int64_t next;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void take_tasks(lti_pool *p, int thread)
{
    for (;;) {
        const int64_t t = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (t >= p->ntasks) return;
        p->fn(p->arg, t, thread);
    }
}

/* The state of a run other than `seen`. */
static uint64_t wait_run(lti_pool *p, uint64_t seen)
{
    uint64_t s;
    for (int i = 0; i < SPINS; i++) {
        s = atomic_load_explicit(&p->state, memory_order_acquire);
        if (s >> RUN_SHIFT != seen) return s;
        pause_cpu();
    }
    pthread_mutex_lock(&p->lock);
    while ((s = atomic_load_explicit(&p->state, memory_order_acquire)) >> RUN_SHIFT == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    lti_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        uint64_t s = wait_run(p, seen);
        if (atomic_load(&p->quit)) return NULL;
        if (s & OPEN) {
            if (!atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acq_rel,
                                                       memory_order_relaxed))
                continue; /* another came or it was closed: look again */
            take_tasks(p, w->index);
            atomic_fetch_sub_explicit(&p->state, 1, memory_order_release);
        }
        seen = s >> RUN_SHIFT;
    }
}

static void next_run(lti_pool *p, uint64_t open)
{
    pthread_mutex_lock(&p->lock);
    const uint64_t run = (atomic_load_explicit(&p->state, memory_order_relaxed) >> RUN_SHIFT) + 1;
    atomic_store_explicit(&p->state, run << RUN_SHIFT | open, memory_order_release);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void lti_pool_run(lti_pool *p, int64_t ntasks, lti_task_fn *fn, void *arg)
{
    if (ntasks <= 0) return;
    if (p->started == 0 || ntasks == 1) {
        for (int64_t t = 0; t < ntasks; t++)
            fn(arg, t, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->ntasks = ntasks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    next_run(p, OPEN);
    take_tasks(p, 0);
    atomic_fetch_and_explicit(&p->state, ~(uint64_t)OPEN, memory_order_acq_rel);
    for (int i = 0; atomic_load_explicit(&p->state, memory_order_acquire) & INSIDE; i++) {
        pause_cpu();
        /* a worker that lost its core may need ours: on a busy machine spinning would stop it */
        if (i > SPINS) {
            struct timespec nap = {0, 20000};
            nanosleep(&nap, NULL);
        }
    }
}

lt_status lti_pool_create(lti_pool **out, int threads)
{
    *out = NULL;
    lti_pool *p = calloc(1, sizeof *p);
    if (!p) return LT_ERR_MEM;
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    if (!p->workers) {
        free(p);
        return LT_ERR_MEM;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    *out = p;
    for (int i = 0; i < threads - 1; i++) {
        p->workers[i] = (worker){.pool = p, .index = i + 1};
        if (pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i])) {
            lti_pool_destroy(out);
            return LT_ERR_MEM;
        }
        p->started++;
    }
    return LT_OK;
}

void lti_pool_destroy(lti_pool **pool)
{
    lti_pool *p = pool ? *pool : NULL;
    if (!p) return;
    atomic_store(&p->quit, true);
    next_run(p, 0);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
    *pool = NULL;
}
