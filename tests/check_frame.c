/* check_frame.c: cases, random numbers, buffers with watched surroundings, comparisons. */
#include "tests/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ZONE = 256, MARK = 0x5a }; /* watched bytes on each side of a device buffer */

/* ---- cases ---- */

static void free_bufs(lt_check *t)
{
    for (int i = 0; i < t->bufs; i++) {
        free(t->buf[i].host);
        lt_dev_free(t->many, (char *)t->buf[i].dev - ZONE);
    }
    t->bufs = 0;
}

bool lt_check_begin(lt_check *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    free_bufs(t);
    if (strncmp(t->name, t->only, strlen(t->only)) != 0) return false;
    t->random = t->seed;
    for (const char *c = t->name; *c; c++)
        t->random = (t->random ^ (uint64_t)(unsigned char)*c) * 0x100000001b3u;
    t->failed = false;
    t->cases++;
    return true;
}

void lt_check_fail(lt_check *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!t->failed) t->failures++;
    t->failed = true;
    printf("FAIL %s  isa=%s dev=%s threads=%d seed=%" PRIu64 ": %s\n", t->name, lt_dev_isa(t->dev),
           lt_dev_name(t->dev), lt_dev_threads(t->dev), t->seed, text);
}

uint64_t lt_check_random(lt_check *t)
{
    uint64_t z = t->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t lt_check_between(lt_check *t, int64_t low, int64_t high)
{
    return low + (int64_t)(lt_check_random(t) % (uint64_t)(high - low + 1));
}

/* ---- buffers ---- */

static void give_up(const char *why)
{
    fprintf(stderr, "checkkernels: %s\n", why);
    exit(1);
}

static void to_device(lt_check *t, const lt_buf *b)
{
    uint8_t zone[ZONE];
    const size_t bytes = (size_t)b->n * b->elem;
    memset(zone, MARK, sizeof zone);
    if (lt_dev_upload(t->many, (char *)b->dev - ZONE, zone, ZONE) != LT_OK ||
        lt_dev_upload(t->many, b->dev, b->host, bytes) != LT_OK ||
        lt_dev_upload(t->many, (char *)b->dev + bytes, zone, ZONE) != LT_OK)
        give_up(lt_error(t->ctx));
}

void lt_check_upload(lt_check *t, lt_buf b)
{
    to_device(t, &b);
}

/* Host side not filled yet. The end is watched to the byte. */
static lt_buf new_buf(lt_check *t, lt_dtype dtype, size_t elem, int64_t n)
{
    lt_buf b = {.dtype = dtype, .elem = elem, .n = n};
    const size_t bytes = (size_t)n * elem;
    void *p;
    if (t->bufs == LT_CHECK_BUFS) give_up("too many buffers in one case");
    if (lt_dev_alloc(t->many, &p, bytes + 2 * ZONE, LT_TAG_TEST) != LT_OK)
        give_up(lt_error(t->ctx));
    b.dev = (char *)p + ZONE;
    b.host = malloc(bytes + !bytes);
    if (!b.host) give_up("no memory");
    t->buf[t->bufs++] = b;
    return b;
}

const char *lt_fill_name(lt_fill fill)
{
    static const char *const names[] = {"uniform", "tiny", "huge", "spike", "equal"};
    return names[fill];
}

lt_buf lt_check_data(lt_check *t, lt_dtype dtype, int64_t n, lt_fill fill)
{
    lt_buf b = new_buf(t, dtype, lt_dtype_size(dtype), n);
    const float scale = fill == LT_FILL_TINY ? 1e-12f : fill == LT_FILL_HUGE ? 1e15f : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        const float u = (float)((int64_t)(lt_check_random(t) >> 39) - (1 << 24)) * 0x1p-24f;
        lti_put(b.host, dtype, i, fill == LT_FILL_EQUAL ? 0.7f : u * scale);
    }
    if (fill == LT_FILL_SPIKE && n) lti_put(b.host, dtype, lt_check_between(t, 0, n - 1), 1e4f);
    to_device(t, &b);
    return b;
}

lt_buf lt_check_rand(lt_check *t, lt_dtype dtype, int64_t n)
{
    return lt_check_data(t, dtype, n, LT_FILL_UNIFORM);
}

static lt_buf bytes_of(lt_check *t, lt_dtype dtype, int64_t n, int byte)
{
    lt_buf b = new_buf(t, dtype, lt_dtype_size(dtype), n);
    memset(b.host, byte, (size_t)n * b.elem);
    to_device(t, &b);
    return b;
}

lt_buf lt_check_out(lt_check *t, lt_dtype dtype, int64_t n)
{
    return bytes_of(t, dtype, n, 0xff); /* NaN in every type */
}

lt_buf lt_check_zero(lt_check *t, lt_dtype dtype, int64_t n)
{
    return bytes_of(t, dtype, n, 0);
}

lt_buf lt_check_raw(lt_check *t, const void *values, size_t elem, int64_t n)
{
    lt_buf b = new_buf(t, 0, elem, n);
    if (values)
        memcpy(b.host, values, (size_t)n * elem);
    else
        memset(b.host, 0xcd, (size_t)n * elem);
    to_device(t, &b);
    return b;
}

lt_buf lt_check_clone(lt_check *t, lt_buf from)
{
    lt_buf b = new_buf(t, from.dtype, from.elem, from.n);
    memcpy(b.host, from.host, (size_t)b.n * b.elem);
    to_device(t, &b);
    return b;
}

lt_buf lt_check_as(lt_check *t, lt_buf from, lt_dtype dtype)
{
    lt_buf b = new_buf(t, dtype, lt_dtype_size(dtype), from.n);
    for (int64_t i = 0; i < b.n; i++)
        lti_put(b.host, dtype, i, lti_get(from.host, from.dtype, i));
    to_device(t, &b);
    return b;
}

/* ---- comparisons ---- */

/* The device side with its zones, the zones looked at. Free what comes back from `raw`. */
static void *fetch(lt_check *t, const char *what, lt_buf b, uint8_t **raw)
{
    const size_t bytes = (size_t)b.n * b.elem;
    uint8_t *p = malloc(bytes + 2 * ZONE);
    if (!p) give_up("no memory");
    if (lt_dev_download(t->many, p, (char *)b.dev - ZONE, bytes + 2 * ZONE) != LT_OK)
        give_up(lt_error(t->ctx));
    for (size_t i = 0; i < ZONE; i++) {
        if (p[ZONE - 1 - i] != MARK) {
            lt_check_fail(t, "%s: byte %zu before the buffer was written", what, i + 1);
            break;
        }
        if (p[ZONE + bytes + i] != MARK) {
            lt_check_fail(t, "%s: byte %zu after the buffer was written", what, i + 1);
            break;
        }
    }
    *raw = p;
    return p + ZONE;
}

void lt_check_close(lt_check *t, const char *what, lt_buf got, lt_buf want, lt_tol tol)
{
    uint8_t *raw;
    const void *have = fetch(t, what, got, &raw);
    int64_t wrong = 0, first = -1, worst = -1;
    double most = 0;
    for (int64_t i = 0; i < got.n; i++) {
        const float g = lti_get(have, got.dtype, i), w = lti_get(want.host, want.dtype, i);
        if (g == w || (isnan(g) && isnan(w))) continue;
        const double error = fabs((double)g - (double)w);
        const double over = error / (tol.abs + tol.rel * fabs((double)w) + 1e-300);
        if (over <= 1) continue;
        if (first < 0) first = i;
        if (!(over <= most)) {
            most = over;
            worst = i;
        }
        wrong++;
    }
    if (wrong)
        lt_check_fail(t,
                      "%s: %" PRId64 " of %" PRId64 " wrong, first [%" PRId64
                      "] %.9g not %.9g, worst [%" PRId64
                      "] %.9g not %.9g (%.3g times the tolerance)",
                      what, wrong, got.n, first, (double)lti_get(have, got.dtype, first),
                      (double)lti_get(want.host, want.dtype, first), worst,
                      (double)lti_get(have, got.dtype, worst),
                      (double)lti_get(want.host, want.dtype, worst), most);
    free(raw);
}

typedef struct errors {
    double max, rms, peak; /* peak: largest |exact| */
    int64_t at;
} errors;

static errors errors_of(const void *have, lt_dtype dtype, lt_buf exact)
{
    errors e = {.at = -1};
    double sum = 0;
    for (int64_t i = 0; i < exact.n; i++) {
        const float g = lti_get(have, dtype, i), w = lti_get(exact.host, exact.dtype, i);
        if (g == w || (isnan(g) && isnan(w))) continue;
        const double d = fabs((double)g - (double)w);
        sum += d * d;
        if (!(d <= e.max)) {
            e.max = d;
            e.at = i;
        }
    }
    for (int64_t i = 0; i < exact.n; i++)
        e.peak = fmax(e.peak, fabs((double)lti_get(exact.host, exact.dtype, i)));
    e.rms = sqrt(sum / (double)(exact.n ? exact.n : 1));
    return e;
}

void lt_check_bounded(lt_check *t, const char *what, lt_buf got, lt_buf plain, lt_buf exact,
                      double floor)
{
    uint8_t *raw;
    const void *have = fetch(t, what, got, &raw);
    const errors g = errors_of(have, got.dtype, exact),
                 p = errors_of(plain.host, plain.dtype, exact);
    if (!(g.max <= 2 * p.max + floor * g.peak) || !(g.rms <= 2 * p.rms + floor * g.peak))
        lt_check_fail(t,
                      "%s: error max %.3g at [%" PRId64
                      "], rms %.3g; a plain loop in the same type: max %.3g, "
                      "rms %.3g (largest value %.3g)",
                      what, g.max, g.at, g.rms, p.max, p.rms, g.peak);
    free(raw);
}

static void same_bytes(lt_check *t, const char *what, const uint8_t *a, const uint8_t *b,
                       lt_buf like)
{
    for (int64_t i = 0; i < like.n; i++)
        if (memcmp(a + (size_t)i * like.elem, b + (size_t)i * like.elem, like.elem) != 0) {
            lt_check_fail(t, "%s: first different element [%" PRId64 "] of %" PRId64, what, i,
                          like.n);
            return;
        }
}

void lt_check_same(lt_check *t, const char *what, lt_buf got, lt_buf want)
{
    uint8_t *raw;
    same_bytes(t, what, fetch(t, what, got, &raw), want.host, got);
    free(raw);
}

void *lt_check_one_begin(lt_check *t, lt_buf out)
{
    uint8_t *raw;
    fetch(t, "out", out, &raw);
    to_device(t, &out);
    lti_dev_enter(t->many); /* its memory is used by the other device */
    t->dev = t->one;
    return raw;
}

void lt_check_one_end(lt_check *t, lt_buf out, void *before)
{
    uint8_t *raw;
    t->dev = t->many;
    lti_dev_leave(t->many);
    same_bytes(t, "one thread against many", fetch(t, "out", out, &raw), (uint8_t *)before + ZONE,
               out);
    free(raw);
    free(before);
}
