/* sched.c: one device, one thread, many tasks. Before every group of frames the task whose viewers would run dry first is chosen; jobs
 * take what is left. Tasks are let in while their memory fits; the rest wait in two bounded queues, live ones and jobs. */
#include "stream/server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Live viewers have at least this much before a job gets a turn. */
#define JOB_SLACK_S 1.0

struct lti_sched {
    lti_thread thread;
    lti_sched_options o;
    lt_dev_options device;
    lt_model_options model;
    /* {lock} */
    lti_task *active, *queue[2]; /* [1]: live ones */
    lti_sched_state state;
    bool quit, loaded, poked;
    /* device thread */
    lt_dev *dev;
    lt_model *net;
    uint64_t turns;
};

static void append(lti_task **list, lti_task *t)
{
    while (*list)
        list = &(*list)->next;
    t->next = NULL;
    *list = t;
}

static bool take_out(lti_task **list, const lti_task *t)
{
    for (; *list; list = &(*list)->next)
        if (*list == t) {
            *list = t->next;
            return true;
        }
    return false;
}

static int32_t length(const lti_task *t)
{
    int32_t n = 0;
    for (; t; t = t->next)
        n++;
    return n;
}

/* ---- letting in ---- */

static double work_left(const lti_sched *s, const lti_task *until)
{
    double sum = 0;
    for (lti_task *t = s->active; t; t = t->next)
        sum += t->ops->left(t);
    for (lti_task *t = s->queue[1]; t && t != until; t = t->next)
        sum += t->ops->left(t);
    if (until && until->live) return sum;
    for (lti_task *t = s->queue[0]; t && t != until; t = t->next)
        sum += t->ops->left(t);
    return sum;
}

/* Seconds until a place is free for it: the device is shared, so about the work before it over the places there are. */
static double eta(const lti_sched *s, const lti_task *t, bool live)
{
    const int32_t places = live ? s->o.max_live : s->o.max_jobs;
    return work_left(s, t) / (places > 0 ? places : 1);
}

static bool fits(const lti_sched *s, const lti_task *t)
{
    const int32_t n = t->live ? s->state.live : s->state.jobs;
    if (n >= (t->live ? s->o.max_live : s->o.max_jobs)) return false;
    if (!s->state.live && !s->state.jobs) return true;
    if (!s->state.memory) return true; /* not known */
    /* one that runs alone may have more */
    return s->state.memory_used <= s->state.memory &&
           t->bytes <= s->state.memory - s->state.memory_used;
}

static void count_queues(lti_sched *s)
{
    s->state.live_queued = length(s->queue[1]);
    s->state.jobs_queued = length(s->queue[0]);
}

static void count(lti_sched *s, const lti_task *t, bool in)
{
    *(t->live ? &s->state.live : &s->state.jobs) += in ? 1 : -1;
    s->state.memory_used += in ? t->bytes : 0 - t->bytes;
    count_queues(s);
}

/* In order: nobody is overtaken by one of its kind that is smaller. */
static void let_in(lti_sched *s)
{
    for (int live = 1; live >= 0 && s->loaded; live--) {
        lti_task *t;
        while ((t = s->queue[live]) && fits(s, t)) {
            take_out(&s->queue[live], t);
            append(&s->active, t);
            count(s, t, true);
            t->position = -1;
            t->ops->moved(t, -1, 0);
        }
        int32_t n = 0;
        for (t = s->queue[live]; t; t = t->next, n++) {
            if (t->position == n) continue;
            t->position = n;
            t->ops->moved(t, n, eta(s, t, live));
        }
    }
}

static lt_status has_room(const lti_sched *s, const lti_task *t, double *wait)
{
    *wait = 0;
    if (s->state.memory && t->bytes > s->state.memory) return LT_ERR_MEM;
    if (t->again || length(s->queue[t->live]) < s->o.max_queue || (s->loaded && fits(s, t)))
        return LT_OK;
    *wait = eta(s, s->queue[t->live], t->live); /* then the first one leaves the queue */
    return LT_AGAIN;
}

lt_status lti_sched_room(lti_sched *s, const lti_task *t, double *wait)
{
    pthread_mutex_lock(&s->thread.lock);
    const lt_status st = has_room(s, t, wait);
    pthread_mutex_unlock(&s->thread.lock);
    return st;
}

double lti_sched_eta(lti_sched *s, const lti_task *t)
{
    pthread_mutex_lock(&s->thread.lock);
    const double seconds = eta(s, t, t->live);
    pthread_mutex_unlock(&s->thread.lock);
    return seconds;
}

lt_status lti_sched_submit(lti_sched *s, lti_task *t, double *wait)
{
    t->position = -2; /* not told yet */
    pthread_mutex_lock(&s->thread.lock);
    const lt_status st = has_room(s, t, wait);
    if (st == LT_OK) {
        append(&s->queue[t->live], t);
        let_in(s);
        count_queues(s);
        s->poked = true;
        pthread_cond_signal(&s->thread.changed);
    }
    pthread_mutex_unlock(&s->thread.lock);
    return st;
}

void lti_sched_stop(lti_sched *s, lti_task *t)
{
    pthread_mutex_lock(&s->thread.lock);
    t->stop = true; /* queued ones too: the device thread closes them */
    s->poked = true;
    pthread_cond_signal(&s->thread.changed);
    pthread_mutex_unlock(&s->thread.lock);
}

void lti_sched_wake(lti_sched *s)
{
    pthread_mutex_lock(&s->thread.lock);
    s->poked = true;
    pthread_cond_signal(&s->thread.changed);
    pthread_mutex_unlock(&s->thread.lock);
}

lti_sched_state lti_sched_look(lti_sched *s)
{
    pthread_mutex_lock(&s->thread.lock);
    const lti_sched_state st = s->state;
    pthread_mutex_unlock(&s->thread.lock);
    return st;
}

/* ---- the device thread ---- */

static void end_task(lti_sched *s, lti_task *t, lt_status why)
{
    char message[512] = "";
    if (why < 0 && why != LT_ERR_CANCELLED)
        snprintf(message, sizeof message, "%s", lt_error(s->thread.ctx));
    pthread_mutex_lock(&s->thread.lock);
    if (take_out(&s->active, t)) count(s, t, false);
    take_out(&s->queue[t->live], t);
    count_queues(s);
    pthread_mutex_unlock(&s->thread.lock);
    t->ops->close(t, why, message);
    pthread_mutex_lock(&s->thread.lock);
    let_in(s); /* after its memory is free */
    pthread_mutex_unlock(&s->thread.lock);
}

static lti_task *find_stopped(const lti_sched *s)
{
    lti_task *const lists[] = {s->active, s->queue[1], s->queue[0]};
    for (size_t i = 0; i < LT_COUNT(lists); i++)
        for (lti_task *t = lists[i]; t; t = t->next)
            if ((t->stop || s->quit) && !t->busy) return t;
    return NULL;
}

/* The task to go on with; NULL: none can, look again after *wait seconds. */
static lti_task *choose(lti_sched *s, double *wait)
{
    lti_task *best = NULL, *job = NULL;
    double least = (double)INFINITY;
    *wait = (double)INFINITY;
    for (lti_task *t = s->active; t; t = t->next) {
        double w = (double)INFINITY;
        if (t->busy) continue;
        const double due = t->ops->due(t, &w);
        if (isnan(due))
            *wait = fmin(*wait, w);
        else if (!t->live)
            job = job ? job : t;
        else if (!best || due < least || (due == least && t->turn < best->turn)) {
            best = t; /* of equals the one whose turn is longest ago */
            least = due;
        }
    }
    return best && (!job || least < JOB_SLACK_S) ? best : job ? job : best;
}

static void sleep_until_changed(lti_sched *s, double seconds)
{
    struct timespec t;
    if (!isfinite(seconds)) {
        while (!s->poked)
            pthread_cond_wait(&s->thread.changed, &s->thread.lock);
    } else {
        const double at = lti_now() + fmax(seconds, 0.001); /* the clock of `changed` */
        t.tv_sec = (time_t)at;
        t.tv_nsec = (long)((at - floor(at)) * 1e9);
        while (!s->poked && !pthread_cond_timedwait(&s->thread.changed, &s->thread.lock, &t))
            continue;
    }
}

static lt_status work(lti_sched *s, lti_task *t)
{
    lt_status st = LT_OK;
    t->turn = ++s->turns;
    t->busy = true;
    t->yielded = lti_now();
    if (!t->opened) {
        t->opened = true;
        st = t->ops->open(t, s->net, s->thread.ctx);
    }
    if (st == LT_OK) st = t->ops->step(t, s->thread.ctx);
    t->busy = false;
    lt_mem_stats m;
    uint64_t hits, misses;
    lt_dev_mem_stats(s->dev, &m);
    lt_model_text_cache(s->net, &hits, &misses);
    pthread_mutex_lock(&s->thread.lock);
    s->state.device = m;
    s->state.text_hits = hits;
    s->state.text_misses = misses;
    pthread_mutex_unlock(&s->thread.lock);
    return st;
}

/* Until it is to quit and has nothing left. */
static void run_tasks(lti_sched *s)
{
    for (;;) {
        double wait;
        pthread_mutex_lock(&s->thread.lock);
        s->poked = false;
        lti_task *stopped = find_stopped(s), *t = stopped ? NULL : choose(s, &wait);
        const bool over = s->quit && !stopped;
        if (!stopped && !t && !over) sleep_until_changed(s, wait);
        pthread_mutex_unlock(&s->thread.lock);
        if (over) return;
        if (stopped) {
            end_task(s, stopped, LT_ERR_CANCELLED);
        } else if (t) {
            const lt_status st = work(s, t);
            if (st < 0 || st == LT_END) end_task(s, t, st);
        }
    }
}

/* One of those that cannot wait while t is in its step. Two that take long would wait for each other's end: only a job lets in one.
 * Of those that draw blocks like t each has one turn before t goes on: whoever begins last would have them all. */
static lti_task *choose_urgent(lti_sched *s, const lti_task *t)
{
    lti_task *best = NULL;
    double least = JOB_SLACK_S;
    for (lti_task *other = s->active; other; other = other->next) {
        double wait;
        if (!other->live || other->busy || (t->live && other->slow)) continue;
        if (t->live && !t->slow && other->turn > t->turn) continue;
        const double due = other->ops->due(other, &wait);
        if (!(due < least) && !(best && due == least && other->turn < best->turn)) continue;
        best = other;
        least = due;
    }
    return best;
}

void lti_sched_yield(lti_sched *s, lti_task *t)
{
    const double now = lti_now(), share = now - t->yielded;
    for (;;) {
        pthread_mutex_lock(&s->thread.lock);
        lti_task *stopped = s->quit ? NULL : find_stopped(s),
                 *other = stopped || s->quit || t->stop ? NULL : choose_urgent(s, t);
        pthread_mutex_unlock(&s->thread.lock);
        if (stopped) {
            end_task(s, stopped, LT_ERR_CANCELLED);
            continue;
        }
        if (!other) break;
        const lt_status st = work(s, other);
        if (st < 0 || st == LT_END) end_task(s, other, st);
        if (t->live && lti_now() - now > share) break; /* as much for the others as it had */
    }
    t->yielded = lti_now();
}

/* What is free for sessions once the weights are in. */
static uint64_t free_memory(lti_sched *s)
{
    lt_estimate e;
    lt_model_info info;
    lt_session_options o = lt_session_options_default();
    o.prompt = "x";
    lt_model_get_info(s->net, &info);
    if (lt_session_validate(s->thread.ctx, &info, &o) < 0) return 0;
    if (lt_session_estimate(&e, s->thread.ctx, &s->model, &o) < 0) return 0;
    return e.available;
}

static lt_status load(lti_sched *s)
{
    LT_TRY(lt_dev_create(&s->dev, s->thread.ctx, &s->device));
    return lt_model_open(&s->net, s->dev, &s->model);
}

static void *device_thread(void *arg)
{
    lti_sched *s = arg;
    const lt_status st = load(s);
    uint64_t memory = s->o.memory;
    if (st == LT_OK && !memory) memory = free_memory(s);
    pthread_mutex_lock(&s->thread.lock);
    if (st == LT_OK) {
        s->state.memory = memory;
        s->loaded = true;
        let_in(s);
    } else
        s->quit = true; /* nothing will ever run */
    pthread_mutex_unlock(&s->thread.lock);
    s->o.ready(s->o.user, st, st < 0 ? lt_error(s->thread.ctx) : "");
    run_tasks(s);
    lt_model_close(&s->net);
    lt_dev_destroy(&s->dev);
    return NULL;
}

lt_status lti_sched_create(lti_sched **out, lt_ctx *ctx, const lti_sched_options *o)
{
    lti_sched *s = *out = calloc(1, sizeof *s);
    if (!s) return lti_fail(ctx, LT_ERR_MEM, "no memory for the scheduler");
    s->o = *o;
    s->device = *o->device;
    s->model = *o->model;
    s->state.memory = o->memory;
    const lt_status st = lti_thread_start(&s->thread, ctx, device_thread, s);
    if (st == LT_OK) return LT_OK;
    free(s);
    *out = NULL;
    return st;
}

void lti_sched_finish(lti_sched *s)
{
    pthread_mutex_lock(&s->thread.lock);
    s->quit = s->poked = true;
    pthread_cond_signal(&s->thread.changed);
    pthread_mutex_unlock(&s->thread.lock);
    lti_thread_join(&s->thread);
}

void lti_sched_destroy(lti_sched **sched)
{
    lti_sched *s = sched ? *sched : NULL;
    if (!s) return;
    lti_sched_finish(s);
    lti_thread_free(&s->thread);
    free(s);
    *sched = NULL;
}
