/* pointwise_ref.c: the definitions of the operations on rows: convert, norm, qknorm, map, lincomb, noise, stats.
 * Plain loops in f64, rounded once when stored. Never made fast. */
#include "kernels/pointwise.h"

#include <math.h>

double lti_act_ref(lt_act act, double x)
{
    switch (act) {
    case LT_ACT_SILU:
        return x / (1 + exp(-x));
    case LT_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case LT_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case LT_ACT_NONE:
        break;
    }
    return x;
}

lt_status lti_convert_ref(lt_dev *dev, const lt_convert_args *a)
{
    LT_TRY(lti_check_convert(dev, a));
    const int64_t ldo = lti_ld(&a->out, a->cols), ldx = lti_ld(&a->x, a->cols);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++)
            lti_put(a->out.data, a->out.dtype, r * ldo + c,
                    lti_get(a->x.data, a->x.dtype, r * ldx + c));
    return LT_OK;
}

lt_status lti_norm_ref(lt_dev *dev, const lt_norm_args *a)
{
    LT_TRY(lti_check_norm(dev, a));
    const int64_t C = a->cols, ldo = lti_ld(&a->out, C), ldx = lti_ld(&a->x, C);
    const int64_t mod_ld = a->mod_ld ? a->mod_ld : C;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = (const float *)a->x.data + r * ldx;
        double mean = 0, var = 0;
        if (a->kind == LT_NORM_LAYER) {
            for (int64_t c = 0; c < C; c++)
                mean += (double)x[c];
            mean /= (double)C;
        }
        for (int64_t c = 0; c < C; c++)
            var += ((double)x[c] - mean) * ((double)x[c] - mean);
        const double inv = 1 / sqrt(var / (double)C + (double)a->eps);
        const int64_t g = (a->row_group ? a->row_group[r] : 0) * mod_ld;
        for (int64_t c = 0; c < C; c++) {
            double y = ((double)x[c] - mean) * inv;
            if (a->weight) y *= (double)a->weight[c];
            if (a->bias) y += (double)a->bias[c];
            if (a->scale) y *= 1 + (double)a->scale[g + c];
            if (a->shift) y += (double)a->shift[g + c];
            lti_put(a->out.data, a->out.dtype, r * ldo + c, (float)y);
        }
    }
    return LT_OK;
}

/* One head of one row; `inv` multiplies everything. */
static void head_ref(const lt_qknorm_args *a, int64_t r, int h, double inv)
{
    const int64_t C = (int64_t)a->heads * a->head_dim, first = (int64_t)h * a->head_dim;
    const int64_t o = r * lti_ld(&a->out, C) + first, x = r * lti_ld(&a->x, C) + first;
    for (int j = 0; j < a->head_dim; j += a->rope ? 2 : 1) {
        const double w0 = a->weight ? (double)a->weight[first + j] : 1;
        const double u0 = (double)lti_get(a->x.data, a->x.dtype, x + j) * inv * w0;
        if (!a->rope) {
            lti_put(a->out.data, a->out.dtype, o + j, (float)u0);
            continue;
        }
        const double w1 = a->weight ? (double)a->weight[first + j + 1] : 1;
        const double u1 = (double)lti_get(a->x.data, a->x.dtype, x + j + 1) * inv * w1;
        const float *cs = lti_rope_at(a->rope, r, j / 2);
        const double co = (double)cs[0], si = (double)cs[1];
        lti_put(a->out.data, a->out.dtype, o + j, (float)(u0 * co - u1 * si));
        lti_put(a->out.data, a->out.dtype, o + j + 1, (float)(u0 * si + u1 * co));
    }
}

lt_status lti_qknorm_ref(lt_dev *dev, const lt_qknorm_args *a)
{
    LT_TRY(lti_check_qknorm(dev, a));
    const int64_t C = (int64_t)a->heads * a->head_dim, ldx = lti_ld(&a->x, C);
    for (int64_t r = 0; r < a->rows; r++) {
        double sum = 0, inv = 1;
        for (int64_t c = 0; c < C; c++) {
            const double v = (double)lti_get(a->x.data, a->x.dtype, r * ldx + c);
            sum += v * v;
        }
        if (a->eps >= 0) inv = 1 / sqrt(sum / (double)C + (double)a->eps);
        for (int h = 0; h < a->heads; h++)
            head_ref(a, r, h, inv);
    }
    return LT_OK;
}

lt_status lti_map_ref(lt_dev *dev, const lt_map_args *a)
{
    LT_TRY(lti_check_map(dev, a));
    const int64_t C = a->cols, ldo = lti_ld(&a->out, C), ldx = lti_ld(&a->x, C);
    const int64_t ldy = a->y_rows == 1 ? 0 : lti_ld(&a->y, C);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < C; c++) {
            double v = lti_act_ref(a->act, (double)lti_get(a->x.data, a->x.dtype, r * ldx + c));
            if (a->y.data) {
                const double y = (double)lti_get(a->y.data, a->y.dtype, r * ldy + c);
                v = a->add ? v + y : v * y;
            }
            lti_put(a->out.data, a->out.dtype, r * ldo + c, (float)v);
        }
    return LT_OK;
}

lt_status lti_lincomb_ref(lt_dev *dev, const lt_lincomb_args *a)
{
    LT_TRY(lti_check_lincomb(dev, a));
    for (int64_t i = 0; i < a->n; i++) {
        double sum = 0;
        for (int j = 0; j < a->terms; j++)
            sum += (double)a->coef[j] * (double)a->x[j][i];
        a->out[i] = (float)sum;
    }
    return LT_OK;
}

/* The uniform numbers have 24 bits, so that they are exact in f32 on every device and only the accuracy of log, cos and
 * sin is left to differ. The first is in (0, 1]. */
static void normal_ref(double out[4], uint64_t block, uint64_t stream, uint64_t seed)
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    lti_philox(bits, counter, key);
    for (int i = 0; i < 4; i += 2) {
        const double u = (double)((bits[i] >> 8) + 1) * 0x1p-24;
        const double turns = (double)(bits[i + 1] >> 8) * 0x1p-24;
        const double radius = sqrt(-2 * log(u));
        out[i] = radius * cos(2 * M_PI * turns);
        out[i + 1] = radius * sin(2 * M_PI * turns);
    }
}

lt_status lti_noise_ref(lt_dev *dev, const lt_noise_args *a)
{
    LT_TRY(lti_check_noise(dev, a));
    for (int64_t i = 0; i < a->n; i++) {
        const uint64_t at = a->first + (uint64_t)i;
        double four[4];
        normal_ref(four, at / 4, a->stream, a->seed);
        a->out[i] = (float)four[at % 4];
    }
    return LT_OK;
}

lt_status lti_stats_ref(lt_dev *dev, const lt_stats_args *a)
{
    LT_TRY(lti_check_stats(dev, a));
    double sum = 0, squares = 0;
    lt_stats_result s = {0, INFINITY, -INFINITY, 0, 0};
    for (int64_t i = 0; i < a->n; i++) {
        const float v = a->x[i];
        if (!isfinite(v)) {
            s.nonfinite++;
            continue;
        }
        if (v < s.min) s.min = v;
        if (v > s.max) s.max = v;
        sum += (double)v;
        squares += (double)v * (double)v;
    }
    const double n = (double)(a->n - s.nonfinite);
    if (n > 0) {
        s.mean = sum / n;
        s.rms = sqrt(squares / n);
    } else {
        s.min = s.max = 0;
    }
    *a->result = s;
    return LT_OK;
}
