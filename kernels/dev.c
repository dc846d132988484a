/* dev.c: devices and their memory. "cpu" computes in plain memory. "guard" is the same with every allocation in pages
 * of its own that are closed except inside operations and copies: a read from above this room is a SIGSEGV, which
 * proves in a test that nothing above kernels/ touches tensor memory. */
#include "kernels/isa.h"
#include "kernels/pool.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A record of one allocation, apart from its memory, which the host may not touch. */
typedef struct block {
    struct block *prev, *next;
    void *ptr;
    void *map; /* pages of its own, `mapped` bytes; NULL: from malloc */
    size_t bytes, mapped;
    lt_tag tag;
} block;

struct lt_dev {
    lt_ctx *ctx;
    bool guard;
    int depth; /* nested lti_dev_enter */
    int threads;
    lti_isa isa;
    lti_pool *pool;
    lt_kernels k;
    block blocks; /* list head */
    lt_mem_stats mem;
    int64_t fail_alloc; /* counts down to a failure; 0 = off */
    void *scratch;
    size_t scratch_each;
    void *shared;
    size_t shared_bytes;
};

lt_dev_options lt_dev_options_default(void)
{
    return (lt_dev_options){.device = "auto", .isa = "auto"};
}

static int usable_cores(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static lt_status choose_isa(lt_ctx *ctx, const char *name, lti_isa *out)
{
    const char *env = getenv("LONGTAKE_ISA");
    if (!name || !strcmp(name, "auto")) name = env && *env ? env : "auto";
    if (!strcmp(name, "auto")) {
        *out = lti_isa_auto();
        return LT_OK;
    }
    if (!lti_isa_parse(name, out))
        return lti_fail(
            ctx, LT_ERR_ARG,
            "isa '%s': not one of auto, ref, portable, avx2, avx512, avx512bf16, avx512fp16", name);
    if (*out > lti_isa_highest())
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "isa '%s': this processor has only '%s'", name,
                        lti_isa_name(lti_isa_highest()));
    return LT_OK;
}

static lt_status choose_device(lt_ctx *ctx, const char *name, bool *guard)
{
    *guard = name && !strcmp(name, "guard");
    if (!name || *guard || !strcmp(name, "auto") || !strcmp(name, "cpu")) return LT_OK;
    if (!strcmp(name, "cuda"))
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "device 'cuda': this build computes on the CPU only");
    return lti_fail(ctx, LT_ERR_ARG, "device '%s': not one of auto, cpu, cuda", name);
}

lt_status lt_dev_create(lt_dev **out, lt_ctx *ctx, const lt_dev_options *opt)
{
    *out = NULL;
    bool guard;
    lti_isa isa;
    LT_TRY(choose_device(ctx, opt->device, &guard));
    LT_TRY(choose_isa(ctx, opt->isa, &isa));
    if (opt->threads < 0 || opt->threads > 1024)
        return lti_fail(ctx, LT_ERR_ARG, "threads %d: not in 0..1024", opt->threads);
    lt_dev *d = calloc(1, sizeof *d);
    if (!d) return lti_fail(ctx, LT_ERR_MEM, "no memory for a device");
    d->ctx = ctx;
    d->guard = guard;
    d->isa = isa;
    d->threads = opt->threads ? opt->threads : usable_cores();
    d->blocks.prev = d->blocks.next = &d->blocks;
    lti_kernels_for(&d->k, isa);
    if (lti_pool_create(&d->pool, d->threads) < 0) {
        const int threads = d->threads;
        free(d);
        return lti_fail(ctx, LT_ERR_MEM, "cannot start %d threads", threads);
    }
    lti_log(ctx, LT_LOG_DEBUG, "device=%s isa=%s threads=%d", lt_dev_name(d), lti_isa_name(isa),
            d->threads);
    *out = d;
    return LT_OK;
}

void lt_dev_destroy(lt_dev **dev)
{
    lt_dev *d = dev ? *dev : NULL;
    if (!d) return;
    lt_dev_free(d, d->scratch);
    lt_dev_free(d, d->shared);
    lti_pool_destroy(&d->pool);
    free(d);
    *dev = NULL;
}

lt_ctx *lt_dev_ctx(const lt_dev *dev)
{
    return dev ? dev->ctx : NULL;
}

const char *lt_dev_name(const lt_dev *dev)
{
    return dev->guard ? "guard" : "cpu";
}

const char *lt_dev_isa(const lt_dev *dev)
{
    return lti_isa_name(dev->isa);
}

lti_isa lti_dev_isa(const lt_dev *dev)
{
    return dev->isa;
}

const lt_kernels *lti_dev_kernels(const lt_dev *dev)
{
    return &dev->k;
}

int lt_dev_threads(const lt_dev *dev)
{
    return dev->threads;
}

lt_dtype lt_dev_auto_dtype(const lt_dev *dev)
{
    (void)dev;
    return LT_BF16;
}

void lti_parallel(lt_dev *dev, int64_t ntasks, lti_task_fn *fn, void *arg)
{
    lti_pool_run(dev->pool, ntasks, fn, arg);
}

/* ---- memory ---- */

static void count(lt_dev *d, lt_tag tag, uint64_t bytes, bool add)
{
    lt_mem_stats *m = &d->mem;
    if (!add) {
        m->live_bytes[tag] -= bytes;
        m->live_total -= bytes;
        return;
    }
    m->live_bytes[tag] += bytes;
    m->live_total += bytes;
    m->alloc_calls++;
    if (m->live_bytes[tag] > m->peak_bytes[tag]) m->peak_bytes[tag] = m->live_bytes[tag];
    if (m->live_total > m->peak_total) m->peak_total = m->live_total;
}

enum { HUGE_PAGE = 2 << 20 };

/* Large blocks have pages of their own, so that free gives them back to the system at once, aligned so that the
 * system can use huge ones. */
static bool map_huge(block *b)
{
    b->mapped = lti_round_up(b->bytes, HUGE_PAGE);
    char *p = mmap(NULL, b->mapped + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (p == MAP_FAILED) return false;
    const size_t before = lti_round_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
    if (before) (void)munmap(p, before);
    (void)munmap(p + before + b->mapped, HUGE_PAGE - before);
    (void)madvise(p + before, b->mapped, MADV_HUGEPAGE);
    b->map = b->ptr = p + before;
    return true;
}

/* The block ends where its pages end, to the 64 bytes of alignment, and a page that is never open follows: an operation that
 * reads or writes past the end is stopped too. */
static bool map_guarded(block *b, bool open)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = lti_round_up(b->bytes, 64);
    b->mapped = lti_round_up(size, page) + page;
    b->map = mmap(NULL, b->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) return false;
    b->ptr = (char *)b->map + (b->mapped - page - size);
    if (!open || !mprotect(b->map, b->mapped - page, PROT_READ | PROT_WRITE)) return true;
    (void)munmap(b->map, b->mapped);
    return false;
}

static bool get_pages(lt_dev *d, block *b)
{
    if (d->guard) return map_guarded(b, d->depth > 0);
    if (b->bytes >= HUGE_PAGE) return map_huge(b);
    b->ptr = aligned_alloc(64, lti_round_up(b->bytes, 64));
    return b->ptr != NULL;
}

lt_status lt_dev_alloc(lt_dev *dev, void **out, size_t bytes, lt_tag tag)
{
    *out = NULL;
    if (bytes == 0) return LT_OK;
    const bool fail = dev->fail_alloc > 0 && --dev->fail_alloc == 0;
    block *b = fail || bytes > SIZE_MAX / 2 ? NULL : calloc(1, sizeof *b);
    if (b) {
        b->bytes = bytes;
        b->tag = tag;
        if (!get_pages(dev, b)) {
            free(b);
            b = NULL;
        }
    }
    if (!b)
        return lti_fail(dev->ctx, LT_ERR_MEM, "no memory: %zu bytes for %s (%llu live)", bytes,
                        lt_tag_name(tag), (unsigned long long)dev->mem.live_total);
    b->next = dev->blocks.next;
    b->prev = &dev->blocks;
    b->next->prev = b;
    b->prev->next = b;
    count(dev, tag, bytes, true);
    *out = b->ptr;
    return LT_OK;
}

void lt_dev_free(lt_dev *dev, void *ptr)
{
    if (!ptr) return;
    for (block *b = dev->blocks.next; b != &dev->blocks; b = b->next) {
        if (b->ptr != ptr) continue;
        b->prev->next = b->next;
        b->next->prev = b->prev;
        count(dev, b->tag, b->bytes, false);
        if (b->map)
            (void)munmap(b->map, b->mapped);
        else
            free(b->ptr);
        free(b);
        return;
    }
}

void lti_dev_fail_alloc(lt_dev *dev, int64_t nth)
{
    dev->fail_alloc = nth;
}

static void protect_all(lt_dev *d, int prot)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (block *b = d->blocks.next; b != &d->blocks; b = b->next)
        (void)mprotect(b->map, b->mapped - page, prot);
}

void lti_dev_enter(lt_dev *dev)
{
    if (dev->depth++ == 0 && dev->guard) protect_all(dev, PROT_READ | PROT_WRITE);
}

void lti_dev_leave(lt_dev *dev)
{
    if (--dev->depth == 0 && dev->guard) protect_all(dev, PROT_NONE);
}

lt_status lt_dev_upload(lt_dev *dev, void *dst, const void *host, size_t bytes)
{
    return lt_dev_copy(dev, dst, host, bytes);
}

lt_status lt_dev_download(lt_dev *dev, void *host, const void *src, size_t bytes)
{
    return lt_dev_copy(dev, host, src, bytes);
}

lt_status lt_dev_copy(lt_dev *dev, void *dst, const void *src, size_t bytes)
{
    if (bytes == 0) return LT_OK;
    lti_dev_enter(dev);
    memcpy(dst, src, bytes);
    lti_dev_leave(dev);
    return LT_OK;
}

lt_status lt_dev_zero(lt_dev *dev, void *dst, size_t bytes)
{
    if (bytes == 0) return LT_OK;
    lti_dev_enter(dev);
    memset(dst, 0, bytes);
    lti_dev_leave(dev);
    return LT_OK;
}

lt_status lt_dev_sync(lt_dev *dev)
{
    (void)dev;
    return LT_OK;
}

void lt_dev_mem_stats(const lt_dev *dev, lt_mem_stats *out)
{
    *out = dev->mem;
}

lt_status lti_scratch_reserve(lt_dev *dev, size_t bytes_per_thread)
{
    size_t each, all;
    if (bytes_per_thread <= dev->scratch_each) return LT_OK;
    if (!lti_add_size(&each, bytes_per_thread, 4095) ||
        !lti_mul_size(&all, each / 4096 * 4096, (size_t)dev->threads))
        return lti_fail(dev->ctx, LT_ERR_MEM,
                        "no memory: %zu bytes of scratch for each of %d threads", bytes_per_thread,
                        dev->threads);
    lt_dev_free(dev, dev->scratch);
    dev->scratch = NULL;
    dev->scratch_each = 0;
    LT_TRY(lt_dev_alloc(dev, &dev->scratch, all, LT_TAG_SCRATCH));
    dev->scratch_each = all / (size_t)dev->threads;
    return LT_OK;
}

void *lti_scratch(lt_dev *dev, int thread)
{
    return (char *)dev->scratch + (size_t)thread * dev->scratch_each;
}

lt_status lti_scratch_shared(lt_dev *dev, void **out, size_t bytes)
{
    if (bytes > dev->shared_bytes) {
        lt_dev_free(dev, dev->shared);
        dev->shared_bytes = 0;
        LT_TRY(lt_dev_alloc(dev, &dev->shared, bytes, LT_TAG_SCRATCH));
        dev->shared_bytes = bytes;
    }
    *out = dev->shared;
    return LT_OK;
}

/* ---- arena ---- */

lt_status lt_arena_create(lt_arena *out, lt_dev *dev, size_t bytes, lt_tag tag)
{
    void *p;
    *out = (lt_arena){.dev = dev};
    LT_TRY(lt_dev_alloc(dev, &p, bytes, tag));
    out->base = p;
    out->size = bytes;
    return LT_OK;
}

void lt_arena_destroy(lt_arena *a)
{
    if (!a || !a->dev) return;
    lt_dev_free(a->dev, a->base);
    *a = (lt_arena){0};
}

lt_status lt_arena_alloc(lt_arena *a, void **out, size_t bytes)
{
    const size_t need = lt_arena_need(bytes);
    *out = NULL;
    if (need < bytes || need > a->size - a->used)
        return lti_fail(lt_dev_ctx(a->dev), LT_ERR_MEM,
                        "scratch arena too small: %zu bytes wanted, %zu of %zu in use", bytes,
                        a->used, a->size);
    *out = a->base + a->used;
    a->used += need;
    if (a->used > a->high) a->high = a->used;
    return LT_OK;
}
