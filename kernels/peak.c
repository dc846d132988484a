/* peak.c: what this machine can do at best: f32 multiply-add, bf16 dot product, copy. Compiled for the base
 * processor; the functions below carry their own instruction sets and run only where they exist. */
#include "kernels/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define LT_FOR(isa) __attribute__((target(isa), noinline))
#endif

/* Copied by all threads together: more than a last cache holds, as the tensors of a real size are. */
enum { LOOPS = 400000, CHAINS = 12, COPY_BYTES = 256 << 20, HUGE_PAGE = 2 << 20 };

typedef struct run {
    float sink;  /* written, so that the work is not thrown away */
    char *copy;  /* source and target of each task */
    size_t each; /* bytes of one of them */
} run;

#if defined(__x86_64__)
LT_FOR("avx512f") static float fma_avx512(void)
{
    __m512 acc[CHAINS];
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < LOOPS; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return _mm512_cvtss_f32(acc[0]);
}

LT_FOR("avx2,fma") static float fma_avx2(void)
{
    __m256 acc[CHAINS];
    const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < LOOPS; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm256_fmadd_ps(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    return _mm256_cvtss_f32(acc[0]);
}

LT_FOR("avx512f,avx512bw,avx512bf16") static float dot_bf16(void)
{
    __m512 acc[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3c00), b = (__m512bh)_mm512_set1_epi16(0x3d80);
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < LOOPS; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
    for (int i = 1; i < CHAINS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return _mm512_cvtss_f32(acc[0]);
}

/* Stores that bypass the caches: the most a copy can reach when the target is not read again soon. */
static void copy_stream(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_load_si128((const void *)(from + i)));
    _mm_sfence();
}
#endif

static void task_fma(void *arg, int64_t task, int thread)
{
    run *r = arg;
    float v = 0;
    (void)thread;
#if defined(__x86_64__)
    v = __builtin_cpu_supports("avx512f") ? fma_avx512()
        : __builtin_cpu_supports("fma")   ? fma_avx2()
                                          : 0;
#endif
    if (task == 0) r->sink = v;
}

static void task_dot(void *arg, int64_t task, int thread)
{
    run *r = arg;
    float v = 0;
    (void)thread;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) v = dot_bf16();
#endif
    if (task == 0) r->sink = v;
}

static void task_copy(void *arg, int64_t task, int thread)
{
    const run *r = arg;
    char *from = r->copy + 2 * (size_t)task * r->each;
    (void)thread;
    memcpy(from + r->each, from, r->each);
}

static void task_stream(void *arg, int64_t task, int thread)
{
    const run *r = arg;
    char *from = r->copy + 2 * (size_t)task * r->each;
    (void)thread;
#if defined(__x86_64__)
    copy_stream(from + r->each, from, r->each);
#else
    memcpy(from + r->each, from, r->each);
#endif
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double best_rate(lt_dev *dev, lti_task_fn *fn, run *r, double work, int tries)
{
    double best = 0;
    for (int i = 0; i < tries; i++) {
        const double begun = now_ns();
        lti_parallel(dev, lt_dev_threads(dev), fn, r);
        const double rate = 1e9 * work * lt_dev_threads(dev) / (now_ns() - begun);
        if (rate > best) best = rate;
    }
    return best;
}

lt_peak lt_peak_measure(lt_dev *dev, int tries)
{
    lt_peak p = {1e9, 0, 1e9};
    run r = {0};
    const int threads = lt_dev_threads(dev);
#if defined(__x86_64__)
    const double lanes = __builtin_cpu_supports("avx512f") ? 16 : 8;
    if (__builtin_cpu_supports("fma"))
        p.fma_flops = best_rate(dev, task_fma, &r, 2.0 * lanes * CHAINS * LOOPS, tries);
    if (__builtin_cpu_supports("avx512bf16"))
        p.dot_flops = best_rate(dev, task_dot, &r, 4.0 * 16 * CHAINS * LOOPS, tries);
#endif
    r.each = (size_t)COPY_BYTES / (size_t)threads / 64 * 64;
    r.copy = aligned_alloc(HUGE_PAGE, 2 * (size_t)COPY_BYTES);
    if (!r.copy) return p;
    (void)madvise(r.copy, 2 * (size_t)COPY_BYTES, MADV_HUGEPAGE); /* as a device's memory is */
    memset(r.copy, 1, 2 * (size_t)COPY_BYTES); /* pages exist before they are timed */
    const double by_libc = best_rate(dev, task_copy, &r, 2.0 * (double)r.each, tries);
    const double by_stream = best_rate(dev, task_stream, &r, 2.0 * (double)r.each, tries);
    p.copy_bytes = by_libc > by_stream ? by_libc : by_stream;
    free(r.copy);
    return p;
}
