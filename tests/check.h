/* check.h: the frame of `checkkernels`: every fast kernel beside its scalar reference, on every kernel set that the
 * processor has, then (with --bench) its speed beside the reference and the machine's measured peak.
 *
 * A check is one function `void lt_check_<op>(lt_check *t)` in tests/check_<something>.c for each operation of
 * LT_OP_MAP; the frame finds it by that name and calls it once for each kernel set. It looks like this:
 *
 *     static lt_thing_args args(lt_side side, lt_buf out, lt_buf x, int64_t n) // same struct, host or device pointers
 *     {
 *         return (lt_thing_args){.out = lt_at(out, side), .x = lt_at(x, side), .n = n};
 *     }
 *     void lt_check_thing(lt_check *t)
 *     {
 *         static const int64_t sizes[] = {1, 3, 127, 128, 129, 5120}; // edges of every tile, then what models use
 *         for (size_t i = 0; i < LT_COUNT(sizes); i++) {
 *             if (!lt_check_begin(t, "thing_f32_%" PRId64, sizes[i])) continue; // frees the last case's buffers
 *             lt_buf x = lt_check_data(t, LT_F32, sizes[i], LT_FILL_SPIKE);
 *             lt_buf want = lt_check_out(t, LT_F32, sizes[i]), got = lt_check_out(t, LT_F32, sizes[i]);
 *             lt_thing_args h = args(LT_HOST, want, x, sizes[i]), d = args(LT_DEV, got, x, sizes[i]);
 *             LT_CHECK_REF(t, lti_thing_ref(t->dev, &h));
 *             LT_CHECK_OK(t, lt_thing(t->dev, &d));
 *             lt_check_close(t, "out", got, want, (lt_tol){.abs = 1e-7, .rel = 1e-6});
 *             LT_CHECK_THREADS(t, got, lt_thing(t->dev, &d)); // again on one thread: the same bits
 *             LT_BENCH(t, lt_thing(t->dev, &d), lti_thing_ref(t->dev, &h), .bytes = 8.0 * sizes[i]);
 *         }
 *     }
 *
 * A buffer has a host side and a device side with the same content when it is made. References write host sides, kernels
 * device sides. Memory around the device side is watched, and what an operation must not write (gaps between rows,
 * borders) is compared too, because want and got start out with the same pattern.
 */
#ifndef LT_TESTS_CHECK_H
#define LT_TESTS_CHECK_H

#include "kernels/internal.h"

#include <inttypes.h>

typedef struct lt_buf {
    void *host, *dev;
    lt_dtype dtype; /* 0: bytes or whole numbers, compared exactly */
    size_t elem;    /* bytes of an element */
    int64_t n;
} lt_buf;

typedef enum lt_side { LT_HOST, LT_DEV } lt_side;

enum { LT_CHECK_BUFS = 32, LT_BENCH_RUNS = 200 };

typedef struct lt_check {
    lt_dev *dev; /* pass this to operations; never keep it */
    lt_ctx *ctx;
    bool bench; /* time it too; cases of real size are worth it only then */
    /* the rest belongs to the frame */
    lt_dev *many, *one;
    const char *only; /* cases that begin with this; "" = all */
    uint64_t seed, random;
    char name[128];
    long cases, failures;
    bool failed; /* the present case */
    lt_buf buf[LT_CHECK_BUFS];
    int bufs;
    lt_peak peak; /* all threads, measured at the start */
    struct lt_timer {
        double ns[LT_BENCH_RUNS], ref_ns, begun, total;
        int runs, ref_runs;
    } timer;
} lt_check;

/* ---- cases ---- */

/* Starts a case with a name that holds its parameters. False: not asked for, skip it. Random numbers depend on
 * --seed and the name only. */
bool lt_check_begin(lt_check *t, const char *fmt, ...) LT_PRINTF(2, 3);
void lt_check_fail(lt_check *t, const char *fmt, ...) LT_PRINTF(2, 3);
uint64_t lt_check_random(lt_check *t);                            /* 64 bits */
int64_t lt_check_between(lt_check *t, int64_t low, int64_t high); /* both ends included */

/* The call must return LT_OK. */
#define LT_CHECK_OK(t, call)                                                        \
    do {                                                                            \
        if ((call) != LT_OK) lt_check_fail(t, "%s: %s", #call, lt_error((t)->ctx)); \
    } while (0)
/* The same for a reference, which may look into packed weights: device memory is open during it. */
#define LT_CHECK_REF(t, call)    \
    do {                         \
        lti_dev_enter((t)->dev); \
        LT_CHECK_OK(t, call);    \
        lti_dev_leave((t)->dev); \
    } while (0)
/* The call must return this status. */
#define LT_CHECK_STATUS(t, status, call)                                                   \
    do {                                                                                   \
        const lt_status got_ = (call);                                                     \
        if (got_ != (status))                                                              \
            lt_check_fail(t, "%s: %s, expected %s", #call, lt_status_name(got_), #status); \
    } while (0)
/* Runs `call` (written with t->dev) again on a device with one thread, `out` put back to what it was when it was made;
 * the result must be the same bits as the one that is there. */
#define LT_CHECK_THREADS(t, out, call)              \
    do {                                            \
        void *before_ = lt_check_one_begin(t, out); \
        LT_CHECK_OK(t, call);                       \
        lt_check_one_end(t, out, before_);          \
    } while (0)
void *lt_check_one_begin(lt_check *t, lt_buf out);
void lt_check_one_end(lt_check *t, lt_buf out, void *before);

/* ---- buffers, freed by the next lt_check_begin ---- */

typedef enum lt_fill {
    LT_FILL_UNIFORM, /* -1 .. 1 */
    LT_FILL_TINY,    /* times 1e-12 */
    LT_FILL_HUGE,    /* times 1e15 */
    LT_FILL_SPIKE,   /* uniform, one element 1e4 */
    LT_FILL_EQUAL,   /* all 0.7 */
    LT_FILL_COUNT
} lt_fill;
const char *lt_fill_name(lt_fill fill);

lt_buf lt_check_data(lt_check *t, lt_dtype dtype, int64_t n, lt_fill fill);
lt_buf lt_check_rand(lt_check *t, lt_dtype dtype, int64_t n); /* uniform */
lt_buf lt_check_out(lt_check *t, lt_dtype dtype, int64_t n);  /* a pattern of NaN */
lt_buf lt_check_zero(lt_check *t, lt_dtype dtype, int64_t n); /* pictures with borders start so */
/* `values` copied; elem bytes each: positions, orders, plans, pixels. NULL: a byte pattern. */
lt_buf lt_check_raw(lt_check *t, const void *values, size_t elem, int64_t n);
lt_buf lt_check_clone(lt_check *t, lt_buf b); /* same content: for operations in place */
lt_buf lt_check_as(lt_check *t, lt_buf b, lt_dtype dtype); /* same numbers in another type */
void lt_check_upload(lt_check *t, lt_buf b); /* after the host side was changed by hand */
static inline void *lt_at(lt_buf b, lt_side side)
{
    return side == LT_HOST ? b.host : b.dev;
}
static inline lt_mat lt_mat_at(lt_buf b, lt_side side, int64_t ld)
{
    return (lt_mat){lt_at(b, side), b.dtype, ld};
}

/* ---- comparisons: the device side of `got` with the host side of `want` ---- */

typedef struct lt_tol {
    double abs, rel; /* |got - want| <= abs + rel * |want|; bit-equal is always fine */
} lt_tol;
void lt_check_close(lt_check *t, const char *what, lt_buf got, lt_buf want, lt_tol tol);
/* For sums in a narrow type. `exact`: the reference in f64 stored as f32; `plain`: host side written by a plain loop in the
 * same types as the kernel. Largest and rms error against exact: at most twice those of plain, plus floor * max|exact|. */
void lt_check_bounded(lt_check *t, const char *what, lt_buf got, lt_buf plain, lt_buf exact,
                      double floor);
/* Bit by bit. */
void lt_check_same(lt_check *t, const char *what, lt_buf got, lt_buf want);

/* ---- speed ---- */

typedef struct lt_work {
    double bytes,
        flops;       /* of one call; the bound that is nearer is the one whose peak is printed */
    bool bf16, conv; /* the peak is lt_peak_of */
    double
        ref_scale; /* work of `call` / work of `ref`; 0 = 1. References are slow: give them fewer rows */
} lt_work;
/* With --bench: times `call` until it is steady and `ref` a few times, prints one line. Cases of less than 4 MB and 50 MFLOP
 * are left out. */
#define LT_BENCH(t, call, ref, ...)            \
    do {                                       \
        const lt_work work_ = {__VA_ARGS__};   \
        if (!lt_bench_begin(t, &work_)) break; \
        while (lt_bench_next(t))               \
            LT_CHECK_OK(t, call);              \
        while (lt_bench_ref(t))                \
            LT_CHECK_REF(t, ref);              \
        lt_bench_end(t, &work_);               \
    } while (0)
bool lt_bench_begin(lt_check *t, const lt_work *work);
bool lt_bench_next(lt_check *t);
bool lt_bench_ref(lt_check *t);
void lt_bench_end(lt_check *t, const lt_work *work);
double lt_now_ns(void);

/* One function an operation. */
#define LT_CHECK_DECLARE(name) void lt_check_##name(lt_check *t);
LT_OP_MAP(LT_CHECK_DECLARE)
#undef LT_CHECK_DECLARE

#endif
