/* image_ref.c: the definitions of the memory-bound operations on pictures and latents: channorm, patch, latent_image,
 * rgb8. Plain loops. Never made fast. */
#include "kernels/pointwise.h"

#include <math.h>

lt_status lti_channorm_ref(lt_dev *dev, const lt_channorm_args *a)
{
    LT_TRY(lti_check_channorm(dev, a));
    const int64_t C = a->x.c;
    for (int64_t y = 0; y < a->x.h; y++)
        for (int64_t x = 0; x < a->x.w; x++) {
            const int64_t in = lti_image_at(&a->x, y, x), out = lti_image_at(&a->out, y, x);
            double sum = 0;
            for (int64_t c = 0; c < C; c++) {
                const double v = (double)lti_get(a->x.data, a->x.dtype, in + c);
                sum += v * v;
            }
            const double mul = a->gamma ? sqrt((double)C) / fmax(sqrt(sum), 1e-12) : 1;
            for (int64_t c = 0; c < C; c++) {
                double v = (double)lti_get(a->x.data, a->x.dtype, in + c) * mul;
                if (a->gamma) v *= (double)a->gamma[c];
                lti_put(a->out.data, a->out.dtype, out + c, (float)lti_act_ref(a->act, v));
            }
        }
    return LT_OK;
}

/* One token: n-th of the latent, stored at `row`. */
static void patch_token(const lt_patch_args *a, int64_t n, int64_t row)
{
    const int64_t C = a->c, p = a->p, across = a->w / p, down = a->h / p;
    const int64_t f = n / (across * down), i = n / across % down, j = n % across;
    const int64_t base = row * lti_ld(&a->tokens, C * p * p);
    for (int64_t c = 0; c < C; c++)
        for (int64_t y = 0; y < p; y++)
            for (int64_t x = 0; x < p; x++) {
                float *z = a->latent + c * lti_channel_stride(a) + f * lti_frame_stride(a) +
                           (p * i + y) * a->w + p * j + x;
                if (a->to_latent)
                    *z = lti_get(a->tokens.data, a->tokens.dtype, base + (y * p + x) * C + c);
                else
                    lti_put(a->tokens.data, a->tokens.dtype, base + (c * p + y) * p + x, *z);
            }
}

lt_status lti_patch_ref(lt_dev *dev, const lt_patch_args *a)
{
    LT_TRY(lti_check_patch(dev, a));
    const int64_t tokens = (int64_t)a->frames * (a->h / a->p) * (a->w / a->p);
    for (int64_t n = 0; n < tokens; n++)
        patch_token(a, n, a->order ? a->order[n] : n);
    return LT_OK;
}

lt_status lti_latent_image_ref(lt_dev *dev, const lt_latent_image_args *a)
{
    LT_TRY(lti_check_latent_image(dev, a));
    for (int64_t y = 0; y < a->img.h; y++)
        for (int64_t x = 0; x < a->img.w; x++)
            for (int64_t c = 0; c < a->c; c++) {
                const int64_t at = lti_image_at(&a->img, y, x) + c;
                float *z = a->z + c * a->channel_stride + y * a->img.w + x;
                const double mul = (double)a->mul[c], add = (double)a->add[c];
                if (a->to_latent)
                    *z = (float)((double)lti_get(a->img.data, a->img.dtype, at) * mul + add);
                else
                    lti_put(a->img.data, a->img.dtype, at, (float)((double)*z * mul + add));
            }
    return LT_OK;
}

/* In f32 and in this order, as the models' own code does it: the last step cuts off, so every version must agree bit by
 * bit. The comparisons are false for NaN. */
static uint8_t to_byte(float v)
{
    const float low = v > -1.0f ? v : -1.0f;
    const float clamped = low < 1.0f ? low : 1.0f;
    return (uint8_t)((clamped + 1.0f) * 0.5f * 255.0f);
}

lt_status lti_rgb8_ref(lt_dev *dev, const lt_rgb8_args *a)
{
    LT_TRY(lti_check_rgb8(dev, a));
    for (int64_t y = 0; y < a->img.h; y++)
        for (int64_t x = 0; x < a->img.w; x++)
            for (int64_t c = 0; c < 3; c++) {
                const int64_t at = lti_image_at(&a->img, y, x) + c;
                uint8_t *u = a->rgb + (y * a->img.w + x) * 3 + c;
                if (a->to_image)
                    lti_put(a->img.data, a->img.dtype, at, (float)*u / 127.5f - 1.0f);
                else
                    *u = to_byte(lti_get(a->img.data, a->img.dtype, at));
            }
    return LT_OK;
}
