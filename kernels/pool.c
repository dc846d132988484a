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

struct lti_pool {
    int threads; /* workers, the caller counted */
    worker *workers;
    int started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic uint64_t round; /* raised once a run */
    _Atomic bool quit;
    /* the run */
    lti_task_fn *fn;
    void *arg;
    int64_t ntasks;
    _Atomic int64_t next;
    _Atomic int busy; /* workers that have not finished this round */
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

static uint64_t wait_round(lti_pool *p, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        const uint64_t r = atomic_load_explicit(&p->round, memory_order_acquire);
        if (r != seen) return r;
        pause_cpu();
    }
    pthread_mutex_lock(&p->lock);
    uint64_t r;
    while ((r = atomic_load_explicit(&p->round, memory_order_acquire)) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return r;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    lti_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_round(p, seen);
        if (atomic_load(&p->quit)) return NULL;
        take_tasks(p, w->index);
        atomic_fetch_sub_explicit(&p->busy, 1, memory_order_release);
    }
}

static void start_round(lti_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
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
    atomic_store_explicit(&p->busy, p->started, memory_order_relaxed);
    start_round(p);
    take_tasks(p, 0);
    for (int i = 0; atomic_load_explicit(&p->busy, memory_order_acquire) > 0; i++) {
        pause_cpu();
        /* a worker that lost its core needs ours: on a busy machine spinning would stop it */
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
    p->threads = threads;
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
    start_round(p);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
    *pool = NULL;
}
