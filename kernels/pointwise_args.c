/* pointwise_args.c: one check of arguments for every version of an operation. Pointers are not followed here: they
 * may be device memory. */
#include "kernels/pointwise.h"

#include <inttypes.h>

static lt_status bad(lt_dev *dev, lt_status s, const char *op, const char *what, int64_t value)
{
    return lti_fail(lt_dev_ctx(dev), s, "%s: %s %" PRId64, op, what, value);
}

lt_status lti_check_mat(lt_dev *dev, const char *op, const char *name, const lt_mat *m,
                        int64_t rows, int64_t cols)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (m->dtype != LT_F32 && m->dtype != LT_BF16)
        return lti_fail(ctx, LT_ERR_DTYPE, "%s: %s has type %s, not f32 or bf16", op, name,
                        lt_dtype_name(m->dtype));
    if (rows && !m->data) return lti_fail(ctx, LT_ERR_ARG, "%s: %s is NULL", op, name);
    if (m->ld && m->ld < cols)
        return lti_fail(ctx, LT_ERR_SHAPE, "%s: %s has ld %" PRId64 " for %" PRId64 " columns", op,
                        name, m->ld, cols);
    return LT_OK;
}

static lt_status check_size(lt_dev *dev, const char *op, int64_t rows, int64_t cols)
{
    if (rows < 0) return bad(dev, LT_ERR_SHAPE, op, "rows", rows);
    if (cols < 1) return bad(dev, LT_ERR_SHAPE, op, "cols", cols);
    return LT_OK;
}

static lt_status check_heads(lt_dev *dev, const char *op, int heads, int head_dim)
{
    if (heads < 1) return bad(dev, LT_ERR_SHAPE, op, "heads", heads);
    if (head_dim < 1 || head_dim > LTI_MAX_HEAD_DIM)
        return bad(dev, LT_ERR_SHAPE, op, "head_dim", head_dim);
    return LT_OK;
}

lt_status lti_check_rope(lt_dev *dev, const char *op, const lt_rope *rope, int64_t rows,
                         int head_dim)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    int64_t pairs = 0;
    for (int i = 0; i < 3; i++) {
        if (rope->pairs[i] < 0 || (rope->pairs[i] && !rope->table[i]))
            return lti_fail(ctx, LT_ERR_ARG, "%s: %d rotary pairs on axis %d%s", op, rope->pairs[i],
                            i, rope->table[i] ? "" : ", no table");
        pairs += rope->pairs[i];
    }
    if (2 * pairs != head_dim)
        return lti_fail(ctx, LT_ERR_SHAPE, "%s: %" PRId64 " rotary pairs for head_dim %d", op,
                        pairs, head_dim);
    if (rows && !rope->pos) return lti_fail(ctx, LT_ERR_ARG, "%s: rope without positions", op);
    return LT_OK;
}

static lt_status check_image(lt_dev *dev, const char *op, const char *name, const lt_image *im)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (im->dtype != LT_F32 && im->dtype != LT_BF16)
        return lti_fail(ctx, LT_ERR_DTYPE, "%s: %s has type %s, not f32 or bf16", op, name,
                        lt_dtype_name(im->dtype));
    if (im->h < 0 || im->w < 0 || im->c < 1 || im->border < 0)
        return lti_fail(ctx, LT_ERR_SHAPE, "%s: %s is %dx%d, %d channels, border %d", op, name,
                        im->w, im->h, im->c, im->border);
    if (im->h && im->w && !im->data) return lti_fail(ctx, LT_ERR_ARG, "%s: %s is NULL", op, name);
    return LT_OK;
}

lt_status lti_check_convert(lt_dev *dev, const lt_convert_args *a)
{
    LT_TRY(check_size(dev, "convert", a->rows, a->cols));
    LT_TRY(lti_check_mat(dev, "convert", "out", &a->out, a->rows, a->cols));
    return lti_check_mat(dev, "convert", "x", &a->x, a->rows, a->cols);
}

lt_status lti_check_norm(lt_dev *dev, const lt_norm_args *a)
{
    LT_TRY(check_size(dev, "norm", a->rows, a->cols));
    LT_TRY(lti_check_mat(dev, "norm", "out", &a->out, a->rows, a->cols));
    LT_TRY(lti_check_mat(dev, "norm", "x", &a->x, a->rows, a->cols));
    if (a->x.dtype != LT_F32)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_DTYPE, "norm: x has type bf16, not f32");
    if (a->kind != LT_NORM_LAYER && a->kind != LT_NORM_RMS)
        return bad(dev, LT_ERR_ARG, "norm", "kind", a->kind);
    if (!(a->eps >= 0))
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "norm: eps %g", (double)a->eps);
    if ((a->scale || a->shift) && a->mod_ld && a->mod_ld < a->cols)
        return bad(dev, LT_ERR_SHAPE, "norm", "mod_ld", a->mod_ld);
    return LT_OK;
}

lt_status lti_check_qknorm(lt_dev *dev, const lt_qknorm_args *a)
{
    LT_TRY(check_heads(dev, "qknorm", a->heads, a->head_dim));
    const int64_t cols = (int64_t)a->heads * a->head_dim;
    LT_TRY(check_size(dev, "qknorm", a->rows, cols));
    LT_TRY(lti_check_mat(dev, "qknorm", "out", &a->out, a->rows, cols));
    LT_TRY(lti_check_mat(dev, "qknorm", "x", &a->x, a->rows, cols));
    return a->rope ? lti_check_rope(dev, "qknorm", a->rope, a->rows, a->head_dim) : LT_OK;
}

lt_status lti_check_channorm(lt_dev *dev, const lt_channorm_args *a)
{
    LT_TRY(check_image(dev, "channorm", "out", &a->out));
    LT_TRY(check_image(dev, "channorm", "x", &a->x));
    if (a->out.h != a->x.h || a->out.w != a->x.w || a->out.c != a->x.c)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_SHAPE, "channorm: x is %dx%dx%d, out is %dx%dx%d",
                        a->x.w, a->x.h, a->x.c, a->out.w, a->out.h, a->out.c);
    if (a->act != LT_ACT_NONE && a->act != LT_ACT_SILU)
        return bad(dev, LT_ERR_ARG, "channorm", "act", a->act);
    return LT_OK;
}

lt_status lti_check_lincomb(lt_dev *dev, const lt_lincomb_args *a)
{
    if (a->n < 0) return bad(dev, LT_ERR_SHAPE, "lincomb", "n", a->n);
    if (a->terms < 1 || a->terms > 6) return bad(dev, LT_ERR_ARG, "lincomb", "terms", a->terms);
    if (a->n == 0) return LT_OK;
    if (!a->out) return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "lincomb: out is NULL");
    for (int j = 0; j < a->terms; j++)
        if (!a->x[j]) return bad(dev, LT_ERR_ARG, "lincomb", "NULL term", j);
    return LT_OK;
}

lt_status lti_check_map(lt_dev *dev, const lt_map_args *a)
{
    LT_TRY(check_size(dev, "map", a->rows, a->cols));
    LT_TRY(lti_check_mat(dev, "map", "out", &a->out, a->rows, a->cols));
    LT_TRY(lti_check_mat(dev, "map", "x", &a->x, a->rows, a->cols));
    if (a->act < LT_ACT_NONE || a->act > LT_ACT_GELU_ERF)
        return bad(dev, LT_ERR_ARG, "map", "act", a->act);
    if (!a->y.data) return LT_OK;
    if (a->y_rows != 0 && a->y_rows != 1 && a->y_rows != a->rows)
        return bad(dev, LT_ERR_SHAPE, "map", "y_rows", a->y_rows);
    return lti_check_mat(dev, "map", "y", &a->y, a->rows, a->cols);
}

lt_status lti_check_patch(lt_dev *dev, const lt_patch_args *a)
{
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (a->c < 1 || a->frames < 0 || a->h < 0 || a->w < 0 || a->p < 1 || a->h % a->p || a->w % a->p)
        return lti_fail(ctx, LT_ERR_SHAPE, "patch: %d channels, %d frames of %dx%d, patch %d", a->c,
                        a->frames, a->w, a->h, a->p);
    if (a->frames == 0 || a->h == 0 || a->w == 0) return LT_OK;
    if (!a->latent) return lti_fail(ctx, LT_ERR_ARG, "patch: latent is NULL");
    return lti_check_mat(dev, "patch", "tokens", &a->tokens, 1, (int64_t)a->c * a->p * a->p);
}

lt_status lti_check_noise(lt_dev *dev, const lt_noise_args *a)
{
    if (a->n < 0) return bad(dev, LT_ERR_SHAPE, "noise", "n", a->n);
    if (a->n && !a->out) return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "noise: out is NULL");
    return LT_OK;
}

lt_status lti_check_latent_image(lt_dev *dev, const lt_latent_image_args *a)
{
    LT_TRY(check_image(dev, "latent_image", "img", &a->img));
    if (a->c < 1 || a->c > a->img.c)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_SHAPE,
                        "latent_image: %d channels, the picture has %d", a->c, a->img.c);
    if (!a->z || !a->mul || !a->add)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "latent_image: z, mul or add is NULL");
    return LT_OK;
}

lt_status lti_check_rgb8(lt_dev *dev, const lt_rgb8_args *a)
{
    LT_TRY(check_image(dev, "rgb8", "img", &a->img));
    if (a->img.c < 3) return bad(dev, LT_ERR_SHAPE, "rgb8", "channels", a->img.c);
    if (!a->rgb) return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "rgb8: rgb is NULL");
    return LT_OK;
}

lt_status lti_check_stats(lt_dev *dev, const lt_stats_args *a)
{
    if (a->n < 0) return bad(dev, LT_ERR_SHAPE, "stats", "n", a->n);
    if ((a->n && !a->x) || !a->result)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "stats: x or result is NULL");
    return LT_OK;
}

lt_status lti_check_tilemean(lt_dev *dev, const lt_tilemean_args *a)
{
    LT_TRY(check_heads(dev, "tilemean", a->heads, a->head_dim));
    const int64_t cols = (int64_t)a->heads * a->head_dim;
    LT_TRY(check_size(dev, "tilemean", a->tiles, cols));
    LT_TRY(lti_check_mat(dev, "tilemean", "out", &a->out, a->tiles, cols));
    LT_TRY(lti_check_mat(dev, "tilemean", "x", &a->x, a->tiles, cols));
    if (a->tiles && !a->off) return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "tilemean: off is NULL");
    return a->rope ? lti_check_rope(dev, "tilemean", a->rope, a->tiles, a->head_dim) : LT_OK;
}

lt_status lti_check_tilescore(lt_dev *dev, const lt_tilescore_args *a)
{
    LT_TRY(check_heads(dev, "tilescore", a->heads, a->head_dim));
    const int64_t cols = (int64_t)a->heads * a->head_dim;
    if (a->lq < 0) return bad(dev, LT_ERR_SHAPE, "tilescore", "lq", a->lq);
    if (a->lk < 0) return bad(dev, LT_ERR_SHAPE, "tilescore", "lk", a->lk);
    LT_TRY(lti_check_mat(dev, "tilescore", "q", &a->q, a->lq, cols));
    LT_TRY(lti_check_mat(dev, "tilescore", "k", &a->k, a->lk, cols));
    if (a->q.dtype != LT_F32 || a->k.dtype != LT_F32)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_DTYPE, "tilescore: q and k must be f32");
    if (a->lq && a->lk && !a->out)
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "tilescore: out is NULL");
    return LT_OK;
}

lt_status lti_check_merge(lt_dev *dev, const lt_merge_args *a)
{
    LT_TRY(check_heads(dev, "merge", a->heads, a->head_dim));
    const int64_t cols = (int64_t)a->heads * a->head_dim;
    LT_TRY(check_size(dev, "merge", a->rows, cols));
    LT_TRY(lti_check_mat(dev, "merge", "out", &a->out, a->rows, cols));
    LT_TRY(lti_check_mat(dev, "merge", "x", &a->x, a->rows, cols));
    if (a->rows && (!a->lse || !a->x_lse))
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "merge: lse or x_lse is NULL");
    return LT_OK;
}

lt_status lti_check_fft2(lt_dev *dev, const lt_fft2_args *a)
{
    enum { MOST = 16384 };
    if (a->planes < 0) return bad(dev, LT_ERR_SHAPE, "fft2", "planes", a->planes);
    if (a->h < 1 || a->h > MOST) return bad(dev, LT_ERR_SHAPE, "fft2", "height", a->h);
    if (a->w < 1 || a->w > MOST) return bad(dev, LT_ERR_SHAPE, "fft2", "width", a->w);
    if (a->planes && (!a->out || !a->x))
        return lti_fail(lt_dev_ctx(dev), LT_ERR_ARG, "fft2: out or x is NULL");
    return LT_OK;
}
