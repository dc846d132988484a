/* Pointwise work of the training scripts on a CPU, forward and backward in one pass each; float32, one thread.
 * Loaded by fused.py through ctypes. Rows are pixels (channels last) or tokens. Work goes in blocks of a few rows, so
 * that the loop with the exponential is long and flat, which is what the compiler vectorises. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MAXC = 1024, BLOCK = 2048 };

#define INLINE static inline __attribute__((always_inline))

/* exp(-x), never infinite: the fast division turns 1 / inf into NaN. */
INLINE float expm(float x)
{
    return expf(x < -80.0f ? 80.0f : -x);
}

/* y = silu(x / |x| * g), per row of c; s gets 1/|x|. */
INLINE void fwd(float *restrict y, float *restrict s, const float *restrict x,
                const float *restrict g, int64_t rows, const int64_t c)
{
    const int64_t step = BLOCK / c;
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = rows - r < step ? rows - r : step;
        const float *restrict px = x + r * c;
        float *restrict py = y + r * c;
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t i = 0; i < c; i++)
                sum += px[j * c + i] * px[j * c + i];
            s[r + j] = 1.0f / sqrtf(sum > 1e-24f ? sum : 1e-24f);
        }
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < c; i++)
                py[j * c + i] = px[j * c + i] * s[r + j] * g[i];
        for (int64_t i = 0; i < n * c; i++)
            py[i] = py[i] / (1.0f + expm(py[i]));
    }
}

/* dx from dy; dg [c] is added to. */
INLINE void back(float *restrict dx, float *restrict dg, const float *restrict dy,
                 const float *restrict x, const float *restrict s, const float *restrict g,
                 int64_t rows, const int64_t c)
{
    float a[BLOCK], acc[MAXC];
    memset(acc, 0, sizeof acc);
    const int64_t step = BLOCK / c;
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = rows - r < step ? rows - r : step;
        const float *restrict px = x + r * c, *restrict pd = dy + r * c;
        float *restrict out = dx + r * c;
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < c; i++)
                a[j * c + i] = px[j * c + i] * s[r + j] * g[i];
        for (int64_t i = 0; i < n * c; i++) {
            const float e = 1.0f / (1.0f + expm(a[i]));
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
            for (int64_t i = 0; i < c; i++)
                out[j * c + i] = k * (a[j * c + i] * g[i] - px[j * c + i] * k * dot);
        }
    }
    for (int64_t i = 0; i < c; i++)
        dg[i] += acc[i];
}

#define BY_WIDTH(call) \
    switch (c) {       \
    case 8:            \
        call(8);       \
        break;         \
    case 16:           \
        call(16);      \
        break;         \
    case 32:           \
        call(32);      \
        break;         \
    case 64:           \
        call(64);      \
        break;         \
    case 128:          \
        call(128);     \
        break;         \
    default:           \
        call(c);       \
    }

void norm_silu(float *y, float *s, const float *x, const float *g, int64_t rows, int64_t c)
{
#define CALL(n) fwd(y, s, x, g, rows, n)
    BY_WIDTH(CALL)
#undef CALL
}

void norm_silu_back(float *dx, float *dg, const float *dy, const float *x, const float *s,
                    const float *g, int64_t rows, int64_t c)
{
#define CALL(n) back(dx, dg, dy, x, s, g, rows, n)
    BY_WIDTH(CALL)
#undef CALL
}

/* ---- transformer: x [groups, rows, d]; shift, scale, gate [groups, d], one set for each frame of each sample ---- */

/* y = (x - mean) / sigma * (1 + scale) + shift; stat gets mean and 1/sigma of every row. */
void ln_mod(float *restrict y, float *restrict stat, const float *restrict x,
            const float *restrict shift, const float *restrict scale, int64_t groups, int64_t rows,
            int64_t d)
{
    for (int64_t g = 0; g < groups; g++, shift += d, scale += d)
        for (int64_t r = 0; r < rows; r++, x += d, y += d, stat += 2) {
            float m = 0, v = 0;
            for (int64_t i = 0; i < d; i++)
                m += x[i];
            m /= (float)d;
            for (int64_t i = 0; i < d; i++)
                v += (x[i] - m) * (x[i] - m);
            const float k = 1.0f / sqrtf(v / (float)d + 1e-6f);
            for (int64_t i = 0; i < d; i++)
                y[i] = (x[i] - m) * k * (1.0f + scale[i]) + shift[i];
            stat[0] = m;
            stat[1] = k;
        }
}

void ln_mod_back(float *restrict dx, float *restrict dshift, float *restrict dscale,
                 const float *restrict dy, const float *restrict x, const float *restrict stat,
                 const float *restrict scale, int64_t groups, int64_t rows, int64_t d)
{
    for (int64_t g = 0; g < groups; g++, dshift += d, dscale += d, scale += d) {
        memset(dshift, 0, (size_t)d * sizeof *dshift);
        memset(dscale, 0, (size_t)d * sizeof *dscale);
        for (int64_t r = 0; r < rows; r++, x += d, dx += d, dy += d, stat += 2) {
            const float m = stat[0], k = stat[1];
            float a = 0, b = 0;
            for (int64_t i = 0; i < d; i++) {
                const float u = (x[i] - m) * k, e = dy[i] * (1.0f + scale[i]);
                dshift[i] += dy[i];
                dscale[i] += dy[i] * u;
                a += e;
                b += e * u;
            }
            a /= (float)d;
            b /= (float)d;
            for (int64_t i = 0; i < d; i++)
                dx[i] = k * (dy[i] * (1.0f + scale[i]) - a - (x[i] - m) * k * b);
        }
    }
}

/* out = x + gate * y */
void gate_add(float *restrict out, const float *restrict x, const float *restrict gate,
              const float *restrict y, int64_t groups, int64_t rows, int64_t d)
{
    for (int64_t g = 0; g < groups; g++, gate += d)
        for (int64_t r = 0; r < rows; r++, x += d, y += d, out += d)
            for (int64_t i = 0; i < d; i++)
                out[i] = x[i] + gate[i] * y[i];
}

void gate_add_back(float *restrict dy, float *restrict dgate, const float *restrict dout,
                   const float *restrict gate, const float *restrict y, int64_t groups,
                   int64_t rows, int64_t d)
{
    for (int64_t g = 0; g < groups; g++, gate += d, dgate += d) {
        memset(dgate, 0, (size_t)d * sizeof *dgate);
        for (int64_t r = 0; r < rows; r++, dout += d, y += d, dy += d)
            for (int64_t i = 0; i < d; i++) {
                dy[i] = dout[i] * gate[i];
                dgate[i] += dout[i] * y[i];
            }
    }
}

/* tanh-GELU as x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)) */
void gelu(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float u = 1.5957691216f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        y[i] = x[i] / (1.0f + expm(u));
    }
}

void gelu_back(float *restrict dx, const float *restrict dy, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x2 = x[i] * x[i];
        const float e = 1.0f / (1.0f + expm(1.5957691216f * (x[i] + 0.044715f * x2 * x[i])));
        dx[i] = dy[i] * (e + x[i] * e * (1.0f - e) * 1.5957691216f * (1.0f + 0.134145f * x2));
    }
}

/* One of q, k out of the product: in [b, n, stride] at an offset, RMS norm over d, weight w, rotation by rope [n, dh]
 * (cos, sin pairs), out [b, heads, n, dh]; inv gets 1/rms. */
void rms_rope(float *restrict out, float *restrict inv, const float *restrict in,
              const float *restrict w, const float *restrict rope, int64_t b, int64_t n,
              int64_t heads, int64_t dh, int64_t stride)
{
    const int64_t d = heads * dh;
    for (int64_t s = 0; s < b; s++)
        for (int64_t r = 0; r < n; r++, in += stride) {
            float sum = 0;
            for (int64_t i = 0; i < d; i++)
                sum += in[i] * in[i];
            const float k = 1.0f / sqrtf(sum / (float)d + 1e-6f);
            *inv++ = k;
            for (int64_t h = 0; h < heads; h++) {
                float *restrict o = out + ((s * heads + h) * n + r) * dh;
                const float *restrict x = in + h * dh, *restrict g = w + h * dh,
                                      *restrict c = rope + r * dh;
                for (int64_t i = 0; i < dh; i += 2) {
                    const float u = x[i] * k * g[i], v = x[i + 1] * k * g[i + 1];
                    o[i] = u * c[i] - v * c[i + 1];
                    o[i + 1] = u * c[i + 1] + v * c[i];
                }
            }
        }
}

/* din (same layout as in) from dout; dw [d] is added to. */
void rms_rope_back(float *restrict din, float *restrict dw, const float *restrict dout,
                   const float *restrict in, const float *restrict inv, const float *restrict w,
                   const float *restrict rope, int64_t b, int64_t n, int64_t heads, int64_t dh,
                   int64_t stride)
{
    float t[MAXC];
    const int64_t d = heads * dh;
    for (int64_t s = 0; s < b; s++)
        for (int64_t r = 0; r < n; r++, in += stride, din += stride) {
            const float k = *inv++;
            for (int64_t h = 0; h < heads; h++) {
                const float *restrict o = dout + ((s * heads + h) * n + r) * dh, *restrict c =
                                                                                     rope + r * dh;
                float *restrict q = t + h * dh;
                for (int64_t i = 0; i < dh; i += 2) {
                    q[i] = o[i] * c[i] + o[i + 1] * c[i + 1];
                    q[i + 1] = o[i + 1] * c[i] - o[i] * c[i + 1];
                }
            }
            float dot = 0;
            for (int64_t i = 0; i < d; i++) {
                const float u = in[i] * k;
                dw[i] += t[i] * u;
                t[i] *= w[i];
                dot += t[i] * u;
            }
            dot /= (float)d;
            for (int64_t i = 0; i < d; i++)
                din[i] = k * (t[i] - in[i] * k * dot);
        }
}
