/* thread.c: a thread of the server's own: with a lock, a way to be woken, and a context for its messages. */
#include "stream/server.h"

#include <time.h>

lt_status lti_thread_start(lti_thread *t, lt_ctx *ctx, void *(*run)(void *), void *arg)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&t->lock, NULL);
    lt_status s = lt_ctx_create(&t->ctx, NULL, NULL, LT_LOG_ERROR);
    if (s == LT_OK && pthread_create(&t->id, NULL, run, arg))
        s = lti_fail(ctx, LT_ERR_MEM, "cannot start a thread");
    t->running = s == LT_OK;
    if (s < 0) lti_thread_free(t);
    return s;
}

void lti_thread_join(lti_thread *t)
{
    if (t->running) pthread_join(t->id, NULL);
    t->running = false;
}

void lti_thread_free(lti_thread *t)
{
    lti_thread_join(t);
    lt_ctx_destroy(&t->ctx);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
}
