/* check_main.c: checkkernels [--bench] [--seed N] [--dev cpu|guard] [--isa NAME] [--threads N] [op]
 * Every operation, every kernel set of this processor, one device each. `op` may be the beginning of a case's name. */
#include "kernels/isa.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *device, *isa, *op;
    uint64_t seed;
    int threads;
    bool bench;
} options;

typedef struct entry {
    const char *name;
    void (*check)(lt_check *t);
} entry;

static int usage(void)
{
    fprintf(stderr, "usage: checkkernels [--bench] [--seed N] [--dev cpu|guard] [--isa NAME] "
                    "[--threads N] [op]\n");
    return 2;
}

static bool parse(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--bench"))
            o->bench = true;
        else if (!strcmp(argv[i], "--seed") && more)
            o->seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--dev") && more)
            o->device = argv[++i];
        else if (!strcmp(argv[i], "--isa") && more)
            o->isa = argv[++i];
        else if (!strcmp(argv[i], "--threads") && more)
            o->threads = atoi(argv[++i]);
        else if (argv[i][0] != '-' && !*o->op)
            o->op = argv[i];
        else
            return false;
    }
    return true;
}

static bool create(lt_dev **out, lt_ctx *ctx, const options *o, const char *isa, int threads)
{
    lt_dev_options opt = lt_dev_options_default();
    opt.device = o->device;
    opt.isa = isa;
    opt.threads = threads;
    if (lt_dev_create(out, ctx, &opt) == LT_OK) return true;
    fprintf(stderr, "checkkernels: %s\n", lt_error(ctx));
    return false;
}

static void print_peak(const char *what, lt_peak p)
{
    printf("peak, %s: f32 FMA %.1f GFLOP/s (best millisecond %.1f), bf16 dot %.1f (%.1f), f16 FMA "
           "%.1f (%.1f), "
           "copy %.2f GB/s (read + written)\n",
           what, p.fma_flops * 1e-9, p.fma_burst * 1e-9, p.dot_flops * 1e-9, p.dot_burst * 1e-9,
           p.half_flops * 1e-9, p.half_burst * 1e-9, p.copy_bytes * 1e-9);
}

/* Empty name: all operations. */
static void run_checks(lt_check *t, const char *op)
{
    static const entry entries[] = {
#define X(name) {#name, lt_check_##name},
        LT_OP_MAP(X)
#undef X
    };
    for (size_t i = 0; i < LT_COUNT(entries); i++) {
        const size_t len = strlen(entries[i].name);
        if (*op && strncmp(op, entries[i].name, len) != 0) continue;
        t->only = op;
        entries[i].check(t);
    }
}

static bool check_isa(const options *o, const char *isa, long *failures)
{
    lt_check t = {.seed = o->seed, .bench = o->bench};
    lt_ctx *ctx = NULL;
    bool ok = false;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) != LT_OK) return false;
    t.ctx = ctx;
    /* three threads even on one core: other interleavings than the work was written for */
    const int threads = o->threads ? o->threads : o->bench ? 0 : 3;
    if (!create(&t.many, ctx, o, isa, threads) || !create(&t.one, ctx, o, isa, 1)) goto end;
    t.dev = t.many;
    if (o->bench) {
        print_peak("one thread", lt_peak_measure(t.one, 200));
        t.peak = lt_peak_measure(t.many, 200);
        print_peak("all threads", t.peak);
    }
    run_checks(&t, o->op);
    t.only = "-"; /* no such case: only frees the last one's buffers */
    (void)lt_check_begin(&t, "end");
    printf("isa %-10s threads %d: %ld cases, %ld failed\n", lt_dev_isa(t.many),
           lt_dev_threads(t.many), t.cases, t.failures);
    *failures += t.failures;
    ok = t.cases > 0;
    if (!ok) fprintf(stderr, "checkkernels: no case is named '%s'\n", o->op);
end:
    lt_dev_destroy(&t.one);
    lt_dev_destroy(&t.many);
    lt_ctx_destroy(&ctx);
    return ok;
}

int main(int argc, char **argv)
{
    options o = {.device = "cpu", .isa = "", .op = "", .seed = 1};
    long failures = 0;
    bool ok = true;
    if (!parse(&o, argc, argv)) return usage();
    printf("checkkernels: device %s, seed %" PRIu64 "\n", o.device, o.seed);
    if (o.bench)
        printf("The peak for work in bf16 is the f16 FMA where the set has it (not for "
               "convolutions), else the larger of the f32 FMA and the bf16 dot rates. "
               "\"now\": against the "
               "peak measured beside the case.\n");
    for (int isa = LTI_ISA_PORTABLE; isa <= (int)lti_isa_highest(); isa++)
        if (!*o.isa) ok = check_isa(&o, lti_isa_name((lti_isa)isa), &failures) && ok;
    if (*o.isa) ok = check_isa(&o, o.isa, &failures);
    return !ok || failures ? 1 : 0;
}
