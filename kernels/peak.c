/* peak.c: what this machine can do: f32 and f16 multiply-add, bf16 dot product, copy. Compiled for the base
 * processor; the functions below carry their own instruction sets and run only where they exist. */
#include "kernels/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define LT_FOR(isa) __attribute__((target(isa), noinline))
#endif

/* Copied by all threads together: more than a last cache holds, as the tensors of a real size are. */
enum { LOOPS = 400000, CHAINS = LTI_PEAK_CHAINS, COPY_BYTES = 256 << 20, HUGE_PAGE = 2 << 20 };

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

static void task_half(void *arg, int64_t task, int thread)
{
    run *r = arg;
    float v = 0;
    (void)thread;
#if defined(__x86_64__)
    v = lti_peak_half(LOOPS);
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

/* The mean rate over ms milliseconds, at least one run; the first run wakes the workers and is not counted. */
static double mean_rate(lt_dev *dev, lti_task_fn *fn, run *r, double work, int ms, double *best)
{
    const int threads = lt_dev_threads(dev);
    lti_parallel(dev, threads, fn, r);
    const double begun = lti_now();
    double last = begun, done = 0;
    do {
        lti_parallel(dev, threads, fn, r);
        const double end = lti_now(), rate = work * threads / (end - last);
        if (best && rate > *best) *best = rate;
        done += work * threads;
        last = end;
    } while (last - begun < 1e-3 * ms);
    return done / (last - begun);
}

static double fma_rate(lt_dev *dev, run *r, int ms, double *best)
{
#if defined(__x86_64__)
    const double lanes = __builtin_cpu_supports("avx512f") ? 16 : 8;
    if (__builtin_cpu_supports("fma"))
        return mean_rate(dev, task_fma, r, 2.0 * lanes * CHAINS * LOOPS, ms, best);
#endif
    return 1e9;
}

static double dot_rate(lt_dev *dev, run *r, int ms, double *best)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16"))
        return mean_rate(dev, task_dot, r, 4.0 * 16 * CHAINS * LOOPS, ms, best);
#endif
    return 0;
}

/* Only where the device multiplies in f16. */
static double half_rate(lt_dev *dev, run *r, int ms, double *best)
{
    if (lti_dev_isa(dev) < LTI_ISA_AVX512FP16) return 0;
    return mean_rate(dev, task_half, r, 2.0 * 32 * CHAINS * LOOPS, ms, best);
}

double lt_peak_of(const lt_peak *p, lt_dtype dtype, bool conv)
{
    if (dtype == LT_F32) return p->fma_flops;
    if (p->half_flops > 0 && !conv) return p->half_flops;
    return p->dot_flops > p->fma_flops ? p->dot_flops : p->fma_flops;
}

double lt_peak_flops(lt_dev *dev, lt_dtype dtype, bool conv, int ms)
{
    run r = {0};
    lt_peak p = {0};
    if (dtype != LT_F32 && !conv) p.half_flops = half_rate(dev, &r, ms, NULL);
    if (p.half_flops == 0) {
        p.fma_flops = fma_rate(dev, &r, ms, NULL);
        if (dtype != LT_F32) p.dot_flops = dot_rate(dev, &r, ms, NULL);
    }
    return lt_peak_of(&p, dtype, conv);
}

double lt_peak_seconds(lt_dev *dev, int64_t runs)
{
#if defined(__x86_64__)
    run r = {0};
    const double begun = lti_now();
    if (!__builtin_cpu_supports("fma")) return 0;
    for (int64_t i = 0; i < runs; i++)
        lti_parallel(dev, lt_dev_threads(dev), task_fma, &r);
    return lti_now() - begun;
#else
    (void)dev;
    (void)runs;
    return 0;
#endif
}

lt_peak lt_peak_measure(lt_dev *dev, int ms)
{
    lt_peak p = {.copy_bytes = 1e9};
    run r = {0};
    const int threads = lt_dev_threads(dev);
    p.fma_flops = fma_rate(dev, &r, ms, &p.fma_burst);
    p.dot_flops = dot_rate(dev, &r, ms, &p.dot_burst);
    p.half_flops = half_rate(dev, &r, ms, &p.half_burst);
    r.each = (size_t)COPY_BYTES / (size_t)threads / 64 * 64;
    r.copy = aligned_alloc(HUGE_PAGE, 2 * (size_t)COPY_BYTES);
    if (!r.copy) return p;
    (void)madvise(r.copy, 2 * (size_t)COPY_BYTES, MADV_HUGEPAGE); /* as a device's memory is */
    memset(r.copy, 1, 2 * (size_t)COPY_BYTES); /* pages exist before they are timed */
    (void)mean_rate(dev, task_copy, &r, 2.0 * (double)r.each, ms, &p.copy_bytes);
    (void)mean_rate(dev, task_stream, &r, 2.0 * (double)r.each, ms, &p.copy_bytes);
    free(r.copy);
    return p;
}
