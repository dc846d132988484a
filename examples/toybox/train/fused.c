/* Pointwise work of the training scripts on a CPU, forward and backward in one pass each; float32, one thread.
 * Loaded by fused.py through ctypes. Rows are pixels (channels last) or tokens. Work goes in blocks of a few rows, so
 * that the loop with the exponential is long and flat, which is what the compiler vectorises. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MAXC = 1024, BLOCK = 2048 };

#define INLINE static inline __attribute__((always_inline))

/* y = silu(x / |x| * g), per row of c; s gets 1/|x|. */
INLINE void fwd(float *restrict y, float *restrict s, const float *restrict x, const float *restrict g, int64_t rows,
                const int64_t c)
{
    const int64_t step = BLOCK / c;
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = rows - r < step ? rows - r : step;
        const float *restrict px = x + r * c;
        float *restrict py = y + r * c;
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t i = 0; i < c; i++) sum += px[j * c + i] * px[j * c + i];
            s[r + j] = 1.0f / sqrtf(sum > 1e-24f ? sum : 1e-24f);
        }
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < c; i++) py[j * c + i] = px[j * c + i] * s[r + j] * g[i];
        for (int64_t i = 0; i < n * c; i++) py[i] = py[i] / (1.0f + expf(-py[i]));
    }
}

/* dx from dy; dg [c] is added to. */
INLINE void back(float *restrict dx, float *restrict dg, const float *restrict dy, const float *restrict x,
                 const float *restrict s, const float *restrict g, int64_t rows, const int64_t c)
{
    float a[BLOCK], acc[MAXC];
    memset(acc, 0, sizeof acc);
    const int64_t step = BLOCK / c;
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = rows - r < step ? rows - r : step;
        const float *restrict px = x + r * c, *restrict pd = dy + r * c;
        float *restrict out = dx + r * c;
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < c; i++) a[j * c + i] = px[j * c + i] * s[r + j] * g[i];
        for (int64_t i = 0; i < n * c; i++) {
            const float e = 1.0f / (1.0f + expf(-a[i]));
            a[i] = pd[i] * e * (1.0f + a[i] * (1.0f - e));
        }
        for (int64_t j = 0; j < n; j++) {
            const float k = s[r + j];
            float dot = 0;
            for (int64_t i = 0; i < c; i++) {
                const float u = px[j * c + i] * k;
                acc[i] += a[j * c + i] * u;
                dot += a[j * c + i] * g[i] * u;
            }
            for (int64_t i = 0; i < c; i++) out[j * c + i] = k * (a[j * c + i] * g[i] - px[j * c + i] * k * dot);
        }
    }
    for (int64_t i = 0; i < c; i++) dg[i] += acc[i];
}

#define BY_WIDTH(call)          \
    switch (c) {                \
    case 8: call(8); break;     \
    case 16: call(16); break;   \
    case 32: call(32); break;   \
    case 64: call(64); break;   \
    case 128: call(128); break; \
    default: call(c);           \
    }

void norm_silu(float *y, float *s, const float *x, const float *g, int64_t rows, int64_t c)
{
#define CALL(n) fwd(y, s, x, g, rows, n)
    BY_WIDTH(CALL)
#undef CALL
}

void norm_silu_back(float *dx, float *dg, const float *dy, const float *x, const float *s, const float *g, int64_t rows,
                    int64_t c)
{
#define CALL(n) back(dx, dg, dy, x, s, g, rows, n)
    BY_WIDTH(CALL)
#undef CALL
}
