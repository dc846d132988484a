/* unit_stream_sched.c: who gets the device, with tasks that only count. */
#include "stream/server.h"
#include "tests/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TASKS = 8, ENOUGH = 400 };

typedef struct counted {
    lti_task task; /* first */
    struct world *world;
    int turns; /* device thread, until the scheduler has finished */
    bool closed;
} counted;

typedef struct world {
    char folder[128];
    lt_ctx *ctx;
    lti_sched *sched;
    counted task[TASKS];
    int turns, deep, deepest;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool all;  /* are submitted: from now on turns are counted */
    bool ready, over; /* {lock} */
} world;

static void tell(world *w, bool *what)
{
    pthread_mutex_lock(&w->lock);
    *what = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void await(world *w, const bool *what)
{
    pthread_mutex_lock(&w->lock);
    while (!*what)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void ready(void *user, lt_status s, const char *message)
{
    world *w = user;
    if (s < 0) print_error("%s\n", message);
    tell(w, &w->ready);
}

static lt_status open_task(lti_task *t, lt_model *model, lt_ctx *ctx)
{
    (void)t, (void)model, (void)ctx;
    return LT_OK;
}

/* As a block is drawn: in steps, between which others may be let in. */
static lt_status step(lti_task *t, lt_ctx *ctx)
{
    (void)ctx;
    counted *c = (counted *)t;
    world *w = c->world;
    if (++w->deep > w->deepest) w->deepest = w->deep;
    for (int k = 0; k < 3; k++) {
        const double begun = lti_now();
        while (lti_now() - begun < 0.0001)
            continue;
        lti_sched_yield(w->sched, t);
    }
    w->deep--;
    if (!atomic_load(&w->all) || w->turns == ENOUGH) return LT_OK; /* the end may come later */
    c->turns++;
    if (++w->turns == ENOUGH) tell(w, &w->over);
    return LT_OK;
}

static void close_task(lti_task *t, lt_status why, const char *message)
{
    (void)message;
    counted *c = (counted *)t;
    assert_int_equal(why, LT_ERR_CANCELLED);
    c->closed = true;
}

static double due(lti_task *t, double *wait)
{
    (void)t, (void)wait;
    return 0;
}

static double left(lti_task *t)
{
    (void)t;
    return 1;
}

static void moved(lti_task *t, int32_t position, double eta)
{
    (void)t, (void)position, (void)eta;
}

static const lti_task_ops ops = {open_task, step, close_task, due, left, moved};

static int make_world(void **state)
{
    world *w = *state = calloc(1, sizeof *w);
    const char *base = getenv("TMPDIR");
    assert_non_null(w);
    snprintf(w->folder, sizeof w->folder, "%.90s/longtake-test-XXXXXX", base ? base : P_tmpdir);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    assert_non_null(mkdtemp(w->folder));
    assert_true(tiny_model_write(w->folder, 1));
    assert_int_equal(lt_ctx_create(&w->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    const lt_model_options model = {.path = w->folder};
    const lt_dev_options cpu = {.device = "cpu", .threads = 1, .isa = "portable"};
    assert_int_equal(lti_sched_create(&w->sched, w->ctx,
                                      &(lti_sched_options){.device = &cpu,
                                                           .model = &model,
                                                           .max_live = TASKS,
                                                           .max_jobs = 1,
                                                           .max_queue = TASKS,
                                                           .ready = ready,
                                                           .user = w}),
                     LT_OK);
    await(w, &w->ready);
    return 0;
}

static int end_world(void **state)
{
    world *w = *state;
    lti_sched_destroy(&w->sched);
    lt_ctx_destroy(&w->ctx);
    tiny_model_remove(w->folder);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return 0;
}

/* Whose steps let others in must not be left behind by those that are let in. */
static void all_get_as_many_turns(void **state)
{
    world *w = *state;
    double eta;
    for (int i = 0; i < TASKS; i++) {
        w->task[i] = (counted){.task = {.ops = &ops, .live = true}, .world = w};
        assert_int_equal(lti_sched_submit(w->sched, &w->task[i].task, &eta), LT_OK);
    }
    atomic_store(&w->all, true);
    await(w, &w->over);
    lti_sched_finish(w->sched);
    assert_true(w->deepest > 1); /* they were let in */
    for (int i = 0; i < TASKS; i++) {
        assert_true(w->task[i].closed);
        if (abs(w->task[i].turns - ENOUGH / TASKS) > TASKS)
            fail_msg("task %d had %d turns of %d", i, w->task[i].turns, ENOUGH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_get_as_many_turns, make_world, end_world)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
