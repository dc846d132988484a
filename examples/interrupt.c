/* interrupt.c: Ctrl-C. No handler and so no global: signals are blocked and a thread waits for them. */
#include "examples/command.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lti_interrupt {
    pthread_t thread;
    pthread_mutex_t lock;
    lt_session *session;      /* {lock} */
    const char *output;       /* {lock} */
    void (*call)(void *user); /* {lock} */
    void *user;               /* {lock} */
    atomic_bool seen;
    bool keeps;
    sigset_t signals;
};

/* What a program that ends at once leaves of the video. */
static void leave_part(lti_interrupt *it)
{
    char path[4200];
    lt_ctx *ctx;
    lt_media_info info;
    pthread_mutex_lock(&it->lock); /* for good */
    if (!it->output || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return;
    snprintf(path, sizeof path, "%s.final.part", it->output);
    unlink(path);
    snprintf(path, sizeof path, "%s.part", it->output);
    if (lt_media_inspect(&info, ctx, path) == LT_OK && info.frames > 0)
        fprintf(stderr, "longtake: quit; the first %" PRId64 " frames are in '%s'\n", info.frames,
                path);
    else
        unlink(path);
}

static bool called(lti_interrupt *it)
{
    pthread_mutex_lock(&it->lock);
    const bool there = it->call != NULL;
    if (there) it->call(it->user);
    pthread_mutex_unlock(&it->lock);
    if (there) atomic_store(&it->seen, true);
    return there;
}

static void *wait_for_signals(void *arg)
{
    lti_interrupt *it = arg;
    const char *text =
        it->keeps ? "\nlongtake: stopping; what is done is being kept (again to quit at once)\n"
                  : "\nlongtake: stopping (again to quit at once)\n";
    for (;;) {
        int sig;
        if (sigwait(&it->signals, &sig)) return NULL;
        if (sig == SIGUSR2) return NULL; /* lti_interrupt_stop */
        if (called(it)) continue;
        if (atomic_exchange(&it->seen, true)) {
            leave_part(it);
            signal(sig, SIG_DFL);
            pthread_sigmask(SIG_UNBLOCK, &it->signals, NULL);
            raise(sig);
        }
        (void)!write(STDERR_FILENO, text, strlen(text)); /* the terminal may be gone: SIGHUP */
        pthread_mutex_lock(&it->lock);
        if (it->session) lt_session_cancel(it->session);
        pthread_mutex_unlock(&it->lock);
    }
}

lt_status lti_interrupt_start(lti_interrupt **out, lt_ctx *ctx, bool keeps)
{
    lti_interrupt *it = *out = calloc(1, sizeof *it);
    if (!it) return lti_fail(ctx, LT_ERR_MEM, "no memory to start");
    it->keeps = keeps;
    pthread_mutex_init(&it->lock, NULL);
    sigemptyset(&it->signals);
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old;
    for (size_t i = 0; i < LT_COUNT(ends); i++) /* nohup: what was ignored stays so */
        if (!sigaction(ends[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaddset(&it->signals, ends[i]);
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

void lti_interrupt_hold(lti_interrupt *it)
{
    pthread_mutex_lock(&it->lock);
}

void lti_interrupt_release(lti_interrupt *it, const char *path)
{
    it->output = path;
    pthread_mutex_unlock(&it->lock);
}

void lti_interrupt_call(lti_interrupt *it, void (*fn)(void *user), void *user)
{
    pthread_mutex_lock(&it->lock);
    it->call = fn;
    it->user = user;
    if (fn && atomic_load(&it->seen)) fn(user); /* it came before the server did */
    pthread_mutex_unlock(&it->lock);
}

bool lti_interrupted(const lti_interrupt *it)
{
    return atomic_load(&it->seen);
}
