/* unit_kernels_pool.c: every task runs once, whatever the number of threads and the load of the machine. */
#include "kernels/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

enum { TASKS = 257, THREADS = 7 };

typedef struct counts {
    int ran[TASKS]; /* written by whoever runs the task: only once, or it is a race */
    _Atomic int wrong_thread;
    int threads;
} counts;

static void count_task(void *arg, int64_t task, int thread)
{
    counts *c = arg;
    c->ran[task]++;
    if (thread < 0 || thread >= c->threads) atomic_fetch_add(&c->wrong_thread, 1);
}

static void run_rounds(int threads, int rounds)
{
    lti_pool *pool;
    counts c;
    memset(&c, 0, sizeof c);
    c.threads = threads;
    assert_int_equal(lti_pool_create(&pool, threads), LT_OK);
    for (int round = 0; round < rounds; round++) {
        const int64_t n = round % (TASKS + 1);
        memset(c.ran, 0, sizeof c.ran);
        lti_pool_run(pool, n, count_task, &c);
        for (int64_t t = 0; t < TASKS; t++)
            assert_int_equal(c.ran[t], t < n);
    }
    assert_int_equal(c.wrong_thread, 0);
    lti_pool_destroy(&pool);
    assert_null(pool);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    run_rounds(1, 300);
    run_rounds(2, 2000);
    run_rounds(THREADS, 2000);
}

static void pools_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++)
        run_rounds(1 + i % 4, i % 3);
    lti_pool *none = NULL;
    lti_pool_destroy(&none);
    lti_pool_destroy(NULL);
}

static void *pool_of_its_own(void *arg)
{
    run_rounds(3, 500);
    return arg;
}

static void pools_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t thread[4];
    for (size_t i = 0; i < LT_COUNT(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, pool_of_its_own, NULL), 0);
    for (size_t i = 0; i < LT_COUNT(thread); i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
}

typedef struct sum {
    int64_t part[TASKS];
    const int64_t *next;
} sum;

static void add_task(void *arg, int64_t task, int thread)
{
    sum *s = arg;
    (void)thread;
    s->part[task] += s->next[(task + 1) % TASKS];
}

/* What one run wrote, the next one reads on any worker. */
static void results_are_seen_by_the_next_run(void **state)
{
    (void)state;
    lti_pool *pool;
    sum a = {.next = NULL}, b = {.next = a.part};
    a.next = b.part;
    for (int i = 0; i < TASKS; i++)
        a.part[i] = b.part[i] = 1;
    assert_int_equal(lti_pool_create(&pool, 4), LT_OK);
    for (int round = 0; round < 25; round++) {
        lti_pool_run(pool, TASKS, add_task, &a);
        lti_pool_run(pool, TASKS, add_task, &b);
    }
    for (int i = 0; i < TASKS; i++) { /* all alike: Fibonacci numbers */
        assert_true(a.part[i] == 20365011074);
        assert_true(b.part[i] == 32951280099);
    }
    lti_pool_destroy(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(pools_do_not_disturb_each_other),
        cmocka_unit_test(results_are_seen_by_the_next_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
