/* check_image.c: channorm, patch, latent_image, rgb8. Borders and spare channels must stay as they were. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lt_image image_at(lt_buf b, lt_side side, int32_t h, int32_t w, int32_t c, int32_t border)
{
    return (lt_image){lt_at(b, side), b.dtype, h, w, c, border};
}

static int64_t image_elements(int32_t h, int32_t w, int32_t c, int32_t border)
{
    return (int64_t)(h + 2 * border) * (w + 2 * border) * c;
}

/* ---- channorm ---- */

typedef struct cn_case {
    int32_t h, w, c, in_border, out_border;
    lt_dtype in, out;
    lt_fill fill;
    lt_act act;
    bool gamma;
} cn_case;

static void cn_check(lt_check *t, const cn_case *k)
{
    if (!lt_check_begin(t, "channorm_%s_%s%s%s_%s_%dx%dx%d", lt_dtype_name(k->in),
                        lt_dtype_name(k->out), k->act ? "_silu" : "", k->gamma ? "" : "_nonorm",
                        lt_fill_name(k->fill), k->w, k->h, k->c))
        return;
    const int64_t n = image_elements(k->h, k->w, k->c, k->out_border);
    const lt_buf x =
        lt_check_data(t, k->in, image_elements(k->h, k->w, k->c, k->in_border), k->fill);
    const lt_buf gamma = lt_check_rand(t, LT_F32, k->c);
    const lt_buf want = lt_check_zero(t, k->out, n), got = lt_check_zero(t, k->out, n);
    lt_channorm_args h = {.x = image_at(x, LT_HOST, k->h, k->w, k->c, k->in_border), .act = k->act},
                     d = h;
    h.out = image_at(want, LT_HOST, k->h, k->w, k->c, k->out_border);
    d.out = image_at(got, LT_DEV, k->h, k->w, k->c, k->out_border);
    d.x.data = x.dev;
    if (k->gamma) {
        h.gamma = gamma.host;
        d.gamma = gamma.dev;
    }
    LT_CHECK_REF(t, lti_channorm_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_channorm(t->dev, &d));
    lt_check_close(t, "out", got, want,
                   k->out == LT_F32 ? (lt_tol){1e-6, 1e-6} : (lt_tol){1e-6, 0x1p-7});
    LT_CHECK_THREADS(t, got, lt_channorm(t->dev, &d));
    const double pixels = (double)k->h * k->w;
    LT_BENCH(t, lt_channorm(t->dev, &d), lti_channorm_ref(t->dev, &h),
             .bytes = pixels * k->c * (double)(lt_dtype_size(k->in) + lt_dtype_size(k->out)));
}

void lt_check_channorm(lt_check *t)
{
    static const int32_t channels[] = {1, 3, 7, 8, 15, 16, 17, 96, 160, 192, 384, 1024};
    static const lt_dtype types[] = {LT_F32, LT_BF16};
    for (size_t i = 0; i < LT_COUNT(channels); i++)
        for (int fill = 0; fill < LT_FILL_COUNT; fill++)
            for (int j = 0; j < 12; j++)
                cn_check(t, &(cn_case){.h = 4,
                                       .w = 5,
                                       .c = channels[i],
                                       .in_border = j % 3 == 0,
                                       .out_border = j % 3 == 1 ? 1 : 2 * (j % 3),
                                       .in = types[j & 1],
                                       .out = types[(j >> 1) & 1],
                                       .fill = (lt_fill)fill,
                                       .act = j & 1 ? LT_ACT_SILU : LT_ACT_NONE,
                                       .gamma = j < 8});
    /* more than 32 MB: written past the caches */
    cn_check(t, &(cn_case){300, 302, 96, 0, 1, LT_F32, LT_F32, LT_FILL_UNIFORM, LT_ACT_SILU, true});
    if (!t->bench) return;
    cn_check(t,
             &(cn_case){480, 832, 96, 0, 1, LT_F32, LT_BF16, LT_FILL_UNIFORM, LT_ACT_SILU, true});
    cn_check(t,
             &(cn_case){240, 416, 192, 0, 1, LT_F32, LT_BF16, LT_FILL_UNIFORM, LT_ACT_SILU, true});
    cn_check(t,
             &(cn_case){120, 208, 384, 0, 1, LT_F32, LT_BF16, LT_FILL_UNIFORM, LT_ACT_SILU, true});
    cn_check(t, &(cn_case){480, 832, 96, 0, 1, LT_F32, LT_F32, LT_FILL_UNIFORM, LT_ACT_SILU, true});
}

/* ---- patch ---- */

typedef struct patch_case {
    int32_t c, frames, h, w, p;
    lt_dtype type;
    bool to_latent, ordered, strided;
} patch_case;

/* A random permutation. */
static lt_buf order_buf(lt_check *t, int64_t n)
{
    const lt_buf b = lt_check_raw(t, NULL, sizeof(int32_t), n);
    int32_t *p = b.host;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = lt_check_between(t, 0, i);
        p[i] = p[j];
        p[j] = (int32_t)i;
    }
    lt_check_upload(t, b);
    return b;
}

static lt_patch_args patch_args(const patch_case *k, lt_side side, lt_buf tokens, lt_buf latent,
                                lt_buf order)
{
    lt_patch_args a = {.tokens = lt_mat_at(tokens, side, k->c * k->p * k->p + 3),
                       .latent = lt_at(latent, side)};
    a.c = k->c;
    a.frames = k->frames;
    a.h = k->h;
    a.w = k->w;
    a.p = k->p;
    a.to_latent = k->to_latent;
    if (k->ordered) a.order = lt_at(order, side);
    if (k->strided) {
        a.frame_stride = (int64_t)k->h * k->w + 5;
        a.channel_stride = k->frames * a.frame_stride + 7;
    }
    return a;
}

static void patch_check(lt_check *t, const patch_case *k)
{
    if (!lt_check_begin(t, "patch_%s_%s%s%s_%dx%dx%dx%d_p%d", k->to_latent ? "back" : "to",
                        lt_dtype_name(k->type), k->ordered ? "_order" : "",
                        k->strided ? "_strided" : "", k->c, k->frames, k->h, k->w, k->p))
        return;
    const int64_t tokens = (int64_t)k->frames * (k->h / k->p) * (k->w / k->p);
    const int64_t plane = (int64_t)k->h * k->w + 5, nt = tokens * (k->c * k->p * k->p + 3);
    const int64_t nl = k->c * (k->frames * plane + 7);
    const lt_buf order = order_buf(t, tokens), in_tokens = lt_check_rand(t, k->type, nt);
    const lt_buf in_latent = lt_check_rand(t, LT_F32, nl);
    const lt_dtype out_type = k->to_latent ? LT_F32 : k->type;
    const int64_t n = k->to_latent ? nl : nt;
    const lt_buf want = lt_check_out(t, out_type, n), got = lt_check_out(t, out_type, n);
    const lt_patch_args h = patch_args(k, LT_HOST, k->to_latent ? in_tokens : want,
                                       k->to_latent ? want : in_latent, order);
    const lt_patch_args d = patch_args(k, LT_DEV, k->to_latent ? in_tokens : got,
                                       k->to_latent ? got : in_latent, order);
    LT_CHECK_REF(t, lti_patch_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_patch(t->dev, &d));
    lt_check_same(t, "out", got, want);
    LT_CHECK_THREADS(t, got, lt_patch(t->dev, &d));
    LT_BENCH(t, lt_patch(t->dev, &d), lti_patch_ref(t->dev, &h),
             .bytes =
                 (double)(tokens * k->c * k->p * k->p) * (4.0 + (double)lt_dtype_size(k->type)));
}

void lt_check_patch(lt_check *t)
{
    static const patch_case shapes[] = {{.c = 1, .frames = 1, .h = 1, .w = 1, .p = 1},
                                        {.c = 3, .frames = 2, .h = 4, .w = 6, .p = 2},
                                        {.c = 16, .frames = 3, .h = 10, .w = 14, .p = 2},
                                        {.c = 48, .frames = 1, .h = 6, .w = 34, .p = 2},
                                        {.c = 5, .frames = 2, .h = 9, .w = 6, .p = 3}};
    for (size_t i = 0; i < LT_COUNT(shapes); i++)
        for (int j = 0; j < 16; j++) {
            patch_case k = shapes[i];
            k.type = j & 1 ? LT_BF16 : LT_F32;
            k.to_latent = j & 2;
            k.ordered = j & 4;
            k.strided = j & 8;
            patch_check(t, &k);
        }
    if (!t->bench) return;
    patch_check(t, &(patch_case){16, 21, 60, 104, 2, LT_BF16, false, true, false});
    patch_check(t, &(patch_case){16, 21, 60, 104, 2, LT_F32, true, true, false});
}

/* ---- latent_image ---- */

static void latent_check(lt_check *t, int32_t h, int32_t w, int32_t c, int32_t spare, lt_dtype type,
                         bool back)
{
    if (!lt_check_begin(t, "latent_image_%s_%s_%dx%dx%d", back ? "back" : "to", lt_dtype_name(type),
                        w, h, c))
        return;
    const int32_t ic = c + spare, border = 1;
    const int64_t stride = (int64_t)h * w + 9, ni = image_elements(h, w, ic, border),
                  nz = c * stride;
    const lt_buf z = lt_check_rand(t, LT_F32, nz), img = lt_check_rand(t, type, ni);
    const lt_buf mul = lt_check_rand(t, LT_F32, c), add = lt_check_rand(t, LT_F32, c);
    const lt_buf want = back ? lt_check_out(t, LT_F32, nz) : lt_check_out(t, type, ni);
    const lt_buf got = back ? lt_check_out(t, LT_F32, nz) : lt_check_out(t, type, ni);
    lt_latent_image_args a[2];
    for (int side = LT_HOST; side <= LT_DEV; side++) {
        const lt_side s = (lt_side)side;
        const lt_buf out = s == LT_HOST ? want : got;
        a[side] = (lt_latent_image_args){.img = image_at(back ? img : out, s, h, w, ic, border),
                                         .z = lt_at(back ? out : z, s),
                                         .channel_stride = stride,
                                         .c = c,
                                         .mul = lt_at(mul, s),
                                         .add = lt_at(add, s),
                                         .to_latent = back};
    }
    LT_CHECK_REF(t, lti_latent_image_ref(t->dev, &a[LT_HOST]));
    LT_CHECK_OK(t, lt_latent_image(t->dev, &a[LT_DEV]));
    lt_check_close(t, "out", got, want,
                   got.dtype == LT_F32 ? (lt_tol){2e-7, 1e-6} : (lt_tol){2e-7, 0x1p-7});
    LT_CHECK_THREADS(t, got, lt_latent_image(t->dev, &a[LT_DEV]));
    LT_BENCH(t, lt_latent_image(t->dev, &a[LT_DEV]), lti_latent_image_ref(t->dev, &a[LT_HOST]),
             .bytes = (double)h * w * c * (4.0 + (double)lt_dtype_size(type)));
}

void lt_check_latent_image(lt_check *t)
{
    static const int32_t channels[] = {1, 3, 16, 48};
    for (size_t i = 0; i < LT_COUNT(channels); i++)
        for (int j = 0; j < 4; j++)
            latent_check(t, 5, 7, channels[i], j & 1, j & 1 ? LT_BF16 : LT_F32, j & 2);
    if (t->bench) latent_check(t, 480, 832, 16, 0, LT_F32, false);
}

/* ---- rgb8 ---- */

static void rgb8_check(lt_check *t, int32_t h, int32_t w, int32_t c, int32_t border, lt_dtype type,
                       bool to_image)
{
    if (!lt_check_begin(t, "rgb8_%s_%s_%dx%dx%d", to_image ? "back" : "to", lt_dtype_name(type), w,
                        h, c))
        return;
    const int64_t n = image_elements(h, w, c, border), bytes = (int64_t)h * w * 3;
    const lt_buf img = lt_check_rand(t, type, n), rgb = lt_check_raw(t, NULL, 1, bytes);
    for (int64_t i = 0; i < n;
         i++) /* some over the ends, some exactly on the steps, some that are no numbers */
        lti_put(img.host, type, i,
                i % 5 == 0   ? (float)lt_check_between(t, 0, 255) / 255.0f * 2.0f - 1.0f
                : i % 7 == 0 ? (i % 2 ? NAN : -INFINITY)
                             : 1.2f * lti_get(img.host, type, i));
    lt_check_upload(t, img);
    for (int64_t i = 0; i < bytes; i++)
        ((uint8_t *)rgb.host)[i] = (uint8_t)lt_check_random(t);
    lt_check_upload(t, rgb);
    const lt_buf want = to_image ? lt_check_zero(t, type, n) : lt_check_raw(t, NULL, 1, bytes);
    const lt_buf got = to_image ? lt_check_zero(t, type, n) : lt_check_raw(t, NULL, 1, bytes);
    lt_rgb8_args a[2];
    for (int side = LT_HOST; side <= LT_DEV; side++) {
        const lt_side s = (lt_side)side;
        const lt_buf out = s == LT_HOST ? want : got;
        a[side] = (lt_rgb8_args){.rgb = lt_at(to_image ? rgb : out, s),
                                 .img = image_at(to_image ? out : img, s, h, w, c, border),
                                 .to_image = to_image};
    }
    LT_CHECK_REF(t, lti_rgb8_ref(t->dev, &a[LT_HOST]));
    LT_CHECK_OK(t, lt_rgb8(t->dev, &a[LT_DEV]));
    lt_check_same(t, "out", got, want);
    LT_CHECK_THREADS(t, got, lt_rgb8(t->dev, &a[LT_DEV]));
    LT_BENCH(t, lt_rgb8(t->dev, &a[LT_DEV]), lti_rgb8_ref(t->dev, &a[LT_HOST]),
             .bytes = (double)h * w * 3 * (1.0 + (double)lt_dtype_size(type)));
}

void lt_check_rgb8(lt_check *t)
{
    static const int32_t channels[] = {3, 4, 16}, widths[] = {1, 2, 5, 6, 16, 21, 43};
    for (size_t i = 0; i < LT_COUNT(channels); i++)
        for (size_t k = 0; k < LT_COUNT(widths); k++)
            for (int j = 0; j < 4; j++)
                rgb8_check(t, 7, widths[k], channels[i], j, j & 1 ? LT_BF16 : LT_F32, j & 2);
    if (!t->bench) return;
    rgb8_check(t, 1080, 1920, 3, 0, LT_F32, false);
    rgb8_check(t, 1080, 1920, 16, 0, LT_F32, false);
}
