/* unit_kernels_dev.c: devices, their memory, its statistics, failing allocations, arenas, and the guard device. */
#include "kernels/isa.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static lt_ctx *new_ctx(void)
{
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    return ctx;
}

static lt_dev *new_dev(lt_ctx *ctx, const char *device, int threads)
{
    lt_dev_options opt = lt_dev_options_default();
    lt_dev *dev;
    opt.device = device;
    opt.threads = threads;
    assert_int_equal(lt_dev_create(&dev, ctx, &opt), LT_OK);
    return dev;
}

static void *new_block(lt_dev *dev, size_t bytes, lt_tag tag)
{
    void *p;
    assert_int_equal(lt_dev_alloc(dev, &p, bytes, tag), LT_OK);
    return p;
}

static void options_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *device, *isa;
        int threads;
        lt_status status;
        const char *message;
    } cases[] = {
        {"abacus", "auto", 1, LT_ERR_ARG, "device 'abacus': not one of auto, cpu, cuda"},
        {"cpu", "sse9", 1, LT_ERR_ARG,
         "isa 'sse9': not one of auto, ref, portable, avx2, avx512, avx512bf16, avx512fp16"},
        {"cpu", "auto", -1, LT_ERR_ARG, "threads -1: not in 0..1024"},
        {"cpu", "auto", 5000, LT_ERR_ARG, "threads 5000: not in 0..1024"},
    };
    lt_ctx *ctx = new_ctx();
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        lt_dev_options opt = {cases[i].device, cases[i].threads, cases[i].isa};
        lt_dev *dev = (lt_dev *)&opt; /* must become NULL */
        assert_int_equal(lt_dev_create(&dev, ctx, &opt), cases[i].status);
        assert_null(dev);
        assert_string_equal(lt_error(ctx), cases[i].message);
    }
    lt_dev_destroy(NULL);
    lt_ctx_destroy(&ctx);
}

static void every_kernel_set_is_complete(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    for (int isa = LTI_ISA_REF; isa <= (int)lti_isa_highest(); isa++) {
        lt_dev_options opt = {"cpu", 2, lti_isa_name((lti_isa)isa)};
        lt_dev *dev;
        assert_int_equal(lt_dev_create(&dev, ctx, &opt), LT_OK);
        assert_string_equal(lt_dev_isa(dev), lti_isa_name((lti_isa)isa));
        assert_string_equal(lt_dev_name(dev), "cpu");
        assert_int_equal(lt_dev_threads(dev), 2);
        assert_ptr_equal(lt_dev_ctx(dev), ctx);
#define X(name) assert_non_null(lti_dev_kernels(dev)->name);
        LT_OP_MAP(X)
#undef X
        lt_dev_destroy(&dev);
        assert_null(dev);
    }
    lt_ctx_destroy(&ctx);
}

static void the_environment_chooses_a_set(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    assert_int_equal(setenv("LONGTAKE_ISA", "portable", 1), 0);
    lt_dev *dev = new_dev(ctx, "auto", 1);
    assert_string_equal(lt_dev_isa(dev), "portable");
    lt_dev_destroy(&dev);
    assert_int_equal(unsetenv("LONGTAKE_ISA"), 0);
    dev = new_dev(ctx, "auto", 0);
    assert_string_equal(lt_dev_isa(dev), lti_isa_name(lti_isa_auto()));
    assert_true(lt_dev_threads(dev) >= 1);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

static void memory_is_counted_by_tag(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lt_dev *dev = new_dev(ctx, "cpu", 1);
    lt_mem_stats m;
    void *a = new_block(dev, 1000, LT_TAG_WEIGHTS), *b = new_block(dev, 5 << 20, LT_TAG_KV);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    lt_dev_mem_stats(dev, &m);
    assert_int_equal(m.live_bytes[LT_TAG_WEIGHTS], 1000);
    assert_int_equal(m.live_bytes[LT_TAG_KV], 5 << 20);
    assert_int_equal(m.live_total, 1000 + (5 << 20));
    assert_int_equal(m.alloc_calls, 2);
    lt_dev_free(dev, a);
    a = new_block(dev, 10, LT_TAG_WEIGHTS);
    lt_dev_mem_stats(dev, &m);
    assert_int_equal(m.live_bytes[LT_TAG_WEIGHTS], 10);
    assert_int_equal(m.peak_bytes[LT_TAG_WEIGHTS], 1000);
    assert_int_equal(m.peak_total, 1000 + (5 << 20));
    void *none = &m;
    assert_int_equal(lt_dev_alloc(dev, &none, 0, LT_TAG_TEST), LT_OK);
    assert_null(none);
    lt_dev_free(dev, none);
    lt_dev_free(dev, a);
    lt_dev_free(dev, b);
    lt_dev_mem_stats(dev, &m);
    assert_int_equal(m.live_total, 0);
    assert_int_equal(m.alloc_calls, 3);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

static void too_much_is_refused_with_the_figures(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lt_dev *dev = new_dev(ctx, "cpu", 1);
    void *p = ctx;
    assert_int_equal(lt_dev_alloc(dev, &p, SIZE_MAX - 5, LT_TAG_KV), LT_ERR_MEM);
    assert_null(p);
    assert_string_equal(lt_error(ctx), "no memory: 18446744073709551610 bytes for kv (0 live)");
    assert_int_equal(lti_scratch_reserve(dev, SIZE_MAX - 5), LT_ERR_MEM);
    assert_int_equal(lti_scratch_reserve(dev, 100), LT_OK);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

static void copies_arrive(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    for (int guard = 0; guard < 2; guard++) {
        lt_dev *dev = new_dev(ctx, guard ? "guard" : "cpu", 1);
        const char text[] = "one unbroken shot";
        char back[sizeof text] = {0};
        void *a = new_block(dev, sizeof text, LT_TAG_TEST),
             *b = new_block(dev, sizeof text, LT_TAG_TEST);
        assert_int_equal(lt_dev_upload(dev, a, text, sizeof text), LT_OK);
        assert_int_equal(lt_dev_copy(dev, b, a, sizeof text), LT_OK);
        assert_int_equal(lt_dev_download(dev, back, b, sizeof text), LT_OK);
        assert_string_equal(back, text);
        assert_int_equal(lt_dev_zero(dev, b, 3), LT_OK);
        assert_int_equal(lt_dev_download(dev, back, b, sizeof text), LT_OK);
        assert_memory_equal(back, "\0\0\0 unbroken shot", sizeof text);
        assert_int_equal(lt_dev_copy(dev, NULL, NULL, 0), LT_OK);
        assert_int_equal(lt_dev_zero(dev, NULL, 0), LT_OK);
        assert_int_equal(lt_dev_sync(dev), LT_OK);
        lt_dev_free(dev, a);
        lt_dev_free(dev, b);
        lt_dev_destroy(&dev);
    }
    lt_ctx_destroy(&ctx);
}

/* ---- allocation number 1, 2, 3 ... fails ---- */

static lt_status use_memory(lt_dev *dev)
{
    lt_arena arena = {0};
    lt_weight *w = NULL;
    float data[12] = {1, 2, 3}, x[3] = {1, 1, 1}, out[4];
    void *dx = NULL, *shared;
    lt_stats_result stats;
    const lt_weight_part part = {.data = data, .dtype = LT_F32, .out = 4, .bias_dtype = LT_F32};
    const lt_weight_options opt = {
        .parts = &part, .nparts = 1, .in = 3, .compute = LT_F32, .tag = LT_TAG_WEIGHTS};
    lt_status s;
    if ((s = lt_arena_create(&arena, dev, 4096, LT_TAG_ACTIVATION)) < 0) goto fail;
    if ((s = lt_weight_create(&w, dev, &opt)) < 0) goto fail;
    if ((s = lt_dev_alloc(dev, &dx, sizeof x + sizeof out, LT_TAG_TEST)) < 0) goto fail;
    if ((s = lti_scratch_reserve(dev, 1 << 16)) < 0) goto fail;
    if ((s = lti_scratch_shared(dev, &shared, 1 << 16)) < 0) goto fail;
    if ((s = lt_dev_upload(dev, dx, x, sizeof x)) < 0) goto fail;
    if ((s = lt_linear(dev, &(lt_linear_args){.out = {(char *)dx + sizeof x, LT_F32, 0},
                                              .x = {dx, LT_F32, 0},
                                              .w = w,
                                              .rows = 1})) < 0)
        goto fail;
    s = lt_stats(dev, &(lt_stats_args){(float *)((char *)dx + sizeof x), 4, &stats});
    if (s == LT_OK) assert_true(stats.max == 6.0f);
fail:
    lt_dev_free(dev, dx);
    lt_weight_destroy(dev, &w);
    lt_arena_destroy(&arena);
    return s;
}

static void a_failing_allocation_leaves_nothing(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    int failures = 0;
    for (int64_t nth = 1;; nth++) {
        lt_dev *dev = new_dev(ctx, "cpu", 2);
        lt_mem_stats m;
        lti_dev_fail_alloc(dev, nth);
        const lt_status s = use_memory(dev);
        lti_dev_fail_alloc(dev, 0);
        if (s != LT_OK) {
            assert_int_equal(s, LT_ERR_MEM);
            assert_non_null(strstr(lt_error(ctx), "no memory"));
            failures++;
        }
        lt_dev_mem_stats(dev, &m);
        assert_int_equal(m.live_total,
                         m.live_bytes[LT_TAG_SCRATCH]); /* what the device keeps for itself */
        assert_int_equal(use_memory(dev), LT_OK);       /* and it works again */
        lt_dev_destroy(&dev);
        if (s == LT_OK) break;
        assert_true(nth < 100);
    }
    assert_true(failures >= 5);
    lt_ctx_destroy(&ctx);
}

static void scratch_grows_once(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lt_dev *dev = new_dev(ctx, "cpu", 3);
    lt_mem_stats before, after;
    void *p, *q;
    assert_int_equal(lti_scratch_reserve(dev, 5000), LT_OK);
    assert_int_equal(lti_scratch_shared(dev, &p, 7000), LT_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal((uintptr_t)lti_scratch(dev, i) % 64, 0);
        memset(lti_scratch(dev, i), i, 5000);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(((char *)lti_scratch(dev, i))[4999], i);
    lt_dev_mem_stats(dev, &before);
    assert_int_equal(lti_scratch_reserve(dev, 4999), LT_OK);
    assert_int_equal(lti_scratch_shared(dev, &q, 10), LT_OK);
    assert_ptr_equal(p, q);
    lt_dev_mem_stats(dev, &after);
    assert_int_equal(before.alloc_calls, after.alloc_calls);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

static void arenas_hand_out_and_take_back(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lt_dev *dev = new_dev(ctx, "guard", 1);
    lt_arena a;
    void *p, *q, *r;
    assert_int_equal(
        lt_arena_create(&a, dev, lt_arena_need(100) + lt_arena_need(1), LT_TAG_ACTIVATION), LT_OK);
    assert_int_equal(lt_arena_alloc(&a, &p, 100), LT_OK);
    const size_t mark = lt_arena_mark(&a);
    assert_int_equal(lt_arena_alloc(&a, &q, 1), LT_OK);
    assert_int_equal((uintptr_t)q % 64, 0);
    assert_true((char *)q >= (char *)p + 100);
    assert_int_equal(lt_arena_alloc(&a, &r, 1), LT_ERR_MEM);
    assert_null(r);
    assert_string_equal(lt_error(ctx),
                        "scratch arena too small: 1 bytes wanted, 192 of 192 in use");
    assert_int_equal(lt_arena_alloc(&a, &r, SIZE_MAX - 3), LT_ERR_MEM);
    lt_arena_reset(&a, mark);
    assert_int_equal(lt_arena_alloc(&a, &r, 64), LT_OK);
    assert_ptr_equal(q, r);
    assert_int_equal(a.high, 192);
    lt_arena_destroy(&a);
    lt_arena_destroy(&a);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

/* ---- guard ---- */

typedef enum touch { TOUCH_CLOSED, TOUCH_OPEN, TOUCH_AGAIN, TOUCH_BEHIND } touch;

/* In a child process: 0 when it lived. */
static int try_to_touch(touch how)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGSEGV, SIG_DFL); /* not the test frame's handler */
        (void)signal(SIGBUS, SIG_DFL);
        lt_ctx *ctx = NULL;
        lt_dev *dev = NULL;
        lt_dev_options opt = {"guard", 1, "auto"};
        void *p = NULL;
        if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) != LT_OK ||
            lt_dev_create(&dev, ctx, &opt) != LT_OK ||
            lt_dev_alloc(dev, &p, 5000, LT_TAG_TEST) != LT_OK)
            _exit(2);
        volatile char *c = p;
        if (how != TOUCH_CLOSED) lti_dev_enter(dev);
        if (how == TOUCH_AGAIN) {
            lti_dev_enter(dev);
            lti_dev_leave(dev); /* still inside the first */
            c[0] = 1;
            lti_dev_leave(dev);
        }
        c[how == TOUCH_BEHIND ? 5000 + 63 : 4999] = 1;
        _exit(c[4999] == 77);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void the_guard_closes_memory(void **state)
{
    (void)state;
    assert_int_equal(try_to_touch(TOUCH_OPEN), 0);
    assert_int_not_equal(try_to_touch(TOUCH_CLOSED), 0);
    assert_int_not_equal(try_to_touch(TOUCH_AGAIN), 0);
    assert_int_not_equal(try_to_touch(TOUCH_BEHIND), 0);
}

static void the_guard_computes(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lt_dev *dev = new_dev(ctx, "guard", 2);
    assert_string_equal(lt_dev_name(dev), "guard");
    assert_int_equal(use_memory(dev), LT_OK);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(every_kernel_set_is_complete),
        cmocka_unit_test(the_environment_chooses_a_set),
        cmocka_unit_test(memory_is_counted_by_tag),
        cmocka_unit_test(too_much_is_refused_with_the_figures),
        cmocka_unit_test(copies_arrive),
        cmocka_unit_test(a_failing_allocation_leaves_nothing),
        cmocka_unit_test(scratch_grows_once),
        cmocka_unit_test(arenas_hand_out_and_take_back),
        cmocka_unit_test(the_guard_closes_memory),
        cmocka_unit_test(the_guard_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
