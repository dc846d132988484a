/* interrupt.c: Ctrl-C. No handler and so no global: signals are blocked and a thread waits for them. */
#include "examples/command.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct lti_interrupt {
    pthread_t thread;
    pthread_mutex_t lock;
    lt_session *session; /* {lock} */
    atomic_bool seen;
    sigset_t signals;
};

static void *wait_for_signals(void *arg)
{
    static const char text[] =
        "\nlongtake: stopping; what is done is being kept (again to quit at once)\n";
    lti_interrupt *it = arg;
    for (;;) {
        int sig;
        if (sigwait(&it->signals, &sig)) return NULL;
        if (sig == SIGUSR2) return NULL; /* lti_interrupt_stop */
        if (atomic_exchange(&it->seen, true)) {
            signal(sig, SIG_DFL);
            pthread_sigmask(SIG_UNBLOCK, &it->signals, NULL);
            raise(sig);
        }
        if (write(STDERR_FILENO, text, sizeof text - 1) < 0) continue;
        pthread_mutex_lock(&it->lock);
        if (it->session) lt_session_cancel(it->session);
        pthread_mutex_unlock(&it->lock);
    }
}

lt_status lti_interrupt_start(lti_interrupt **out, lt_ctx *ctx)
{
    lti_interrupt *it = *out = calloc(1, sizeof *it);
    if (!it) return lti_fail(ctx, LT_ERR_MEM, "no memory to start");
    pthread_mutex_init(&it->lock, NULL);
    sigemptyset(&it->signals);
    sigaddset(&it->signals, SIGINT);
    sigaddset(&it->signals, SIGTERM);
    sigaddset(&it->signals, SIGHUP);
    sigaddset(&it->signals, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &it->signals, NULL);
    if (!pthread_create(&it->thread, NULL, wait_for_signals, it)) return LT_OK;
    pthread_mutex_destroy(&it->lock);
    free(it);
    *out = NULL;
    return lti_fail(ctx, LT_ERR_MEM, "cannot start a thread");
}

void lti_interrupt_stop(lti_interrupt **interrupt)
{
    lti_interrupt *it = *interrupt;
    if (!it) return;
    pthread_kill(it->thread, SIGUSR2);
    pthread_join(it->thread, NULL);
    pthread_mutex_destroy(&it->lock);
    free(it);
    *interrupt = NULL;
}

void lti_interrupt_watch(lti_interrupt *it, lt_session *s)
{
    pthread_mutex_lock(&it->lock);
    it->session = s;
    if (s && atomic_load(&it->seen)) lt_session_cancel(s); /* it came before the session did */
    pthread_mutex_unlock(&it->lock);
}

bool lti_interrupted(const lti_interrupt *it)
{
    return atomic_load(&it->seen);
}
