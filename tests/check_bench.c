/* check_bench.c: timing. Caches are cleared before every run, so that a number does not depend on what ran before. */
#include "tests/check.h"
#include "tests/sorted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLEAR_BYTES = 8 << 20, MIN_RUNS = 5 };
static const double MIN_NS = 4e8, MAX_NS = 4e9, MIN_BYTES = 4e6, MIN_FLOPS = 5e7;

double lt_now_ns(void)
{
    return 1e9 * lti_now();
}

static void clear_one(void *arg, int64_t task, int thread)
{
    (void)thread;
    memset((char *)arg + task * CLEAR_BYTES, (int)task, CLEAR_BYTES);
}

/* Writes more than a core's L2 from every worker. */
static void clear_caches(lt_check *t)
{
    const int n = lt_dev_threads(t->dev);
    char *p = malloc((size_t)n * CLEAR_BYTES);
    if (!p) return;
    lti_parallel(t->dev, n, clear_one, p);
    free(p);
}

bool lt_bench_begin(lt_check *t, const lt_work *work)
{
    memset(&t->timer, 0, sizeof t->timer); /* also of a case that is too small to be timed */
    if (!t->bench || t->failed || (work->bytes < MIN_BYTES && work->flops < MIN_FLOPS))
        return false;
    t->timer.runs = -1; /* the first run warms up and is not counted */
    return true;
}

bool lt_bench_next(lt_check *t)
{
    struct lt_timer *m = &t->timer;
    const double now = lt_now_ns();
    if (m->begun > 0 && m->runs >= 0) {
        m->ns[m->runs] = now - m->begun;
        m->total += m->ns[m->runs];
    }
    m->runs += m->begun > 0;
    if (m->runs == LT_BENCH_RUNS || m->total > MAX_NS || (m->total > MIN_NS && m->runs >= MIN_RUNS))
        return false;
    clear_caches(t);
    m->begun = lt_now_ns();
    return true;
}

bool lt_bench_ref(lt_check *t)
{
    struct lt_timer *m = &t->timer;
    const double ns = lt_now_ns() - m->begun;
    if (m->ref_runs && (m->ref_ns == 0 || ns < m->ref_ns)) m->ref_ns = ns;
    if (m->ref_runs++ == (m->ref_ns > 0 && m->ref_ns < 2e8 ? 3 : 1)) return false;
    clear_caches(t);
    m->begun = lt_now_ns();
    return true;
}

/* The share of the peak is given against the peak of the start and against one measured at this moment, because a busy
 * machine slows down both the kernel and the peak. */
void lt_bench_end(lt_check *t, const lt_work *w)
{
    struct lt_timer *m = &t->timer;
    if (m->runs < 1) return;
    sort_doubles(m->ns, m->runs);
    const double median = m->ns[m->runs / 2];
    const double spread = (m->ns[m->runs * 3 / 4] - m->ns[m->runs / 4]) / median;
    const lt_peak now = lt_peak_measure(t->many, 20);
    const lt_dtype type = w->bf16 ? LT_BF16 : LT_F32;
    const double flops = lt_peak_of(&t->peak, type, w->conv),
                 flops_now = lt_peak_of(&now, type, w->conv);
    const bool memory = w->bytes / t->peak.copy_bytes > w->flops / flops;
    const double rate = 1e9 * (memory ? w->bytes : w->flops) / median;
    const double peak = memory ? t->peak.copy_bytes : flops;
    const double peak_now = memory ? now.copy_bytes : flops_now;
    printf("%-44s %-10s %9.3f ms +-%2.0f%%  %8.2f %s  %3.0f%% of %s (now %3.0f%%)", t->name,
           lt_dev_isa(t->dev), median * 1e-6, 50 * spread, rate * 1e-9,
           memory ? "GB/s   " : "GFLOP/s", 100 * rate / peak, memory ? "copy" : "peak",
           100 * rate / peak_now);
    const double f32 = fmax(now.fma_flops, now.dot_flops);
    if (!memory && flops_now > f32) printf(", in f16: %3.0f%% of that of f32", 100 * rate / f32);
    if (m->ref_ns > 0)
        printf("  %6.1fx ref", m->ref_ns * (w->ref_scale > 0 ? w->ref_scale : 1) / median);
    printf("\n");
    fflush(stdout);
}
