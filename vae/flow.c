/* flow.c: one frame through one node. Inputs of convolutions are written, normed and activated, into bordered frames in the
 * compute type; the stream x and all sums stay f32. */
#include "vae/internal.h"

#include <assert.h>
#include <math.h>

/* ---- frames ------------------------------------------------------------------------------ */

static lti_vae_pool *pool_of(lti_vae_flow *f, int32_t h, int32_t w, int32_t c)
{
    lti_vae_pool *p = lti_vae_find_pool(&f->lay, h, w, c);
    assert(p && "layout.c has a pool for every node");
    return p;
}

static lt_image take(lti_vae_pool *p)
{
    assert(p->free > 0);
    lt_image m = p->image;
    m.data = p->frames[--p->free];
    return m;
}

static void give(lti_vae_pool *p, void *frame)
{
    if (!frame) return;
    assert(p->free < p->kept + p->moving);
    p->frames[p->free++] = frame;
}

/* The newest input becomes history, the oldest is free again. */
static void advance(lti_vae_pool *p, void *past[2], void *frame)
{
    give(p, past[0]);
    past[0] = past[1];
    past[1] = frame;
}

static lt_image plain(void *data, lt_dtype type, const lt_image *size, int32_t c)
{
    return (lt_image){.data = data, .dtype = type, .h = size->h, .w = size->w, .c = c};
}

/* ---- pieces ------------------------------------------------------------------------------ */

static lt_status norm_silu(lti_vae_flow *f, lt_image out, lt_image x, const float *gamma)
{
    return lt_channorm(f->dev,
                       &(lt_channorm_args){.out = out, .x = x, .gamma = gamma, .act = LT_ACT_SILU});
}

static lt_status convert(lti_vae_flow *f, lt_image out, lt_image x)
{
    return lt_channorm(f->dev, &(lt_channorm_args){.out = out, .x = x});
}

/* 3x3x3: two frames of the past and the present one. residual.data may be NULL. */
static lt_status causal(lti_vae_flow *f, lt_image out, void *const past[2], lt_image in,
                        const lt_weight *w, lt_image residual)
{
    lt_conv_args a = {.out = out,
                      .in = in,
                      .frame = {past[0], past[1], in.data},
                      .w = w,
                      .ntaps = 27,
                      .rows = in.h,
                      .cols = in.w,
                      .residual = residual};
    for (int i = 0; i < 27; i++)
        a.tap[i] = (lt_tap){
            .frame = (int8_t)(i / 9), .dy = (int8_t)(i / 3 % 3 - 1), .dx = (int8_t)(i % 3 - 1)};
    return lt_conv(f->dev, &a);
}

/* (3,1,1): three frames, one tap each. */
static lt_status in_time(lti_vae_flow *f, lt_image out, void *const past[2], lt_image in,
                         const lt_weight *w)
{
    lt_conv_args a = {.out = out,
                      .in = in,
                      .frame = {past[0], past[1], in.data},
                      .w = w,
                      .ntaps = 3,
                      .tap = {{.frame = 0}, {.frame = 1}, {.frame = 2}},
                      .rows = in.h,
                      .cols = in.w};
    return lt_conv(f->dev, &a);
}

static lt_status linear(lti_vae_flow *f, lt_mat out, lt_mat x, const lt_weight *w, int64_t rows,
                        bool accumulate)
{
    return lt_linear(
        f->dev,
        &(lt_linear_args){.out = out, .x = x, .w = w, .rows = rows, .accumulate = accumulate});
}

/* Norm, SiLU, causal convolution from `src` to `out`. */
static lt_status normed_conv(lti_vae_flow *f, void *past[2], lt_image src, const float *gamma,
                             const lt_weight *w, lt_image out, lt_image residual)
{
    lti_vae_pool *p = pool_of(f, src.h, src.w, src.c);
    const lt_image in = take(p);
    LT_TRY(norm_silu(f, in, src, gamma));
    LT_TRY(causal(f, out, past, in, w, residual));
    advance(p, past, in.data);
    return LT_OK;
}

/* ---- nodes ------------------------------------------------------------------------------- */

static lt_status run_conv(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st,
                          const lt_image *src)
{
    lti_vae_pool *p = pool_of(f, src->h, src->w, node->cin);
    const lt_image in = take(p);
    LT_TRY(convert(f, in, *src));
    f->x = plain(f->x.data, LT_F32, src, node->cout);
    LT_TRY(causal(f, f->x, st->past[0], in, node->w[0], (lt_image){0}));
    advance(p, st->past[0], in.data);
    return LT_OK;
}

/* x + conv(conv(x)); when the width changes the shortcut takes the place of x as soon as the first convolution's input is made. */
static lt_status run_res(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st)
{
    const lt_image inner = plain(f->h, f->compute, &f->x, node->cout);
    lti_vae_pool *p = pool_of(f, f->x.h, f->x.w, node->cin);
    const lt_image in = take(p);
    LT_TRY(norm_silu(f, in, f->x, node->gamma[0]));
    if (node->w[2]) {
        LT_TRY(convert(f, plain(f->h, f->compute, &f->x, node->cin), f->x));
        f->x.c = node->cout;
        LT_TRY(linear(f, (lt_mat){.data = f->x.data, .dtype = LT_F32},
                      (lt_mat){.data = f->h, .dtype = f->compute}, node->w[2],
                      (int64_t)f->x.h * f->x.w, false));
    }
    LT_TRY(causal(f, inner, st->past[0], in, node->w[0], (lt_image){0}));
    advance(p, st->past[0], in.data);
    return normed_conv(f, st->past[1], inner, node->gamma[1], node->w[1], f->x, f->x);
}

/* One head over the positions of the frame. */
static lt_status run_attn(lti_vae_flow *f, const lti_vae_node *node)
{
    const int64_t n = (int64_t)f->x.h * f->x.w, c = node->cin;
    const size_t each = lt_dtype_size(f->compute), columns = (size_t)c * each;
    const lt_image normed = plain(f->h, f->compute, &f->x, node->cin);
    const lt_mat a = {.data = f->h, .dtype = f->compute};
    char *qkv = (char *)f->h + (size_t)n * columns;
    const lt_mat q = {.data = qkv, .dtype = f->compute, .ld = 3 * c};
    const lt_mat k = {.data = qkv + columns, .dtype = f->compute, .ld = 3 * c};
    const lt_mat v = {.data = qkv + 2 * columns, .dtype = f->compute, .ld = 3 * c};
    LT_TRY(lt_channorm(f->dev,
                       &(lt_channorm_args){.out = normed, .x = f->x, .gamma = node->gamma[0]}));
    LT_TRY(linear(f, q, a, node->w[0], n, false));
    const lt_attention_args args = {.out = a,
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .lq = n,
                                    .lk = n,
                                    .heads = 1,
                                    .head_dim = node->cin,
                                    .scale = 1 / sqrtf((float)c),
                                    .plan = lt_plan_kernel(f->plan)};
    LT_TRY(lt_attention(f->dev, &args));
    return linear(f, (lt_mat){.data = f->x.data, .dtype = LT_F32}, a, node->w[1], n, true);
}

/* Nearest 2x and 3x3 as four phases of 2x2 taps (weights.c), from a bordered frame into x. */
static lt_status enlarge(lti_vae_flow *f, const lti_vae_node *node, lt_image in)
{
    f->x = (lt_image){
        .data = f->x.data, .dtype = LT_F32, .h = 2 * in.h, .w = 2 * in.w, .c = node->cout};
    for (int p = 0; p < 4; p++) {
        const int py = p / 2, px = p % 2;
        lt_conv_args a = {.out = f->x,
                          .in = in,
                          .frame = {in.data},
                          .w = node->w[p],
                          .ntaps = 4,
                          .rows = in.h,
                          .cols = in.w,
                          .out_step = 2,
                          .out_y = py,
                          .out_x = px};
        for (int i = 0; i < 4; i++)
            a.tap[i] = (lt_tap){.dy = (int8_t)(i / 2 - 1 + py), .dx = (int8_t)(i % 2 - 1 + px)};
        LT_TRY(lt_conv(f->dev, &a));
    }
    return LT_OK;
}

/* One half of what the time convolution makes of `held`, enlarged. */
static lt_status run_up_half(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st,
                             lti_vae_pool *p, int half)
{
    lt_image in = p->image;
    in.data = st->held;
    const lt_image doubled = take(p);
    LT_TRY(in_time(f, doubled, st->past[0], in, node->w[4 + half]));
    LT_TRY(enlarge(f, node, doubled));
    give(p, doubled.data);
    return LT_OK;
}

/* The very first frame passes the time stage untouched and is not in its history. */
static lt_status run_up(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st)
{
    lti_vae_pool *p = pool_of(f, f->x.h, f->x.w, node->cin);
    const lt_image in = take(p);
    LT_TRY(convert(f, in, f->x));
    if (!node->time || st->seen++ == 0) {
        LT_TRY(enlarge(f, node, in));
        give(p, in.data);
        return LT_OK;
    }
    st->held = in.data;
    return run_up_half(f, node, st, p, 0);
}

/* A node that failed half way has lost frames of its history: nothing is right until the next reset. */
static lt_status finish(lti_vae_flow *f, const lti_vae_node *node, lt_status s, bool out)
{
    if (s >= 0 && out && f->probe) s = f->probe(f->probe_user, node->name, &f->x);
    if (s >= 0) return LT_OK;
    f->broken = true;
    return lti_within(lt_dev_ctx(f->dev), s, "vae %s", node->name);
}

lt_status lti_vae_flow_second(lti_vae_flow *f, int i)
{
    const lti_vae_node *node = &f->net->node[i];
    lti_vae_state *st = &f->node[i];
    int32_t h, w;
    lti_vae_node_size(f->net, node, f->h0, f->w0, &h, &w);
    lti_vae_pool *p = pool_of(f, h, w, node->cin);
    const lt_status s = run_up_half(f, node, st, p, 1);
    if (s >= 0) {
        advance(p, st->past[0], st->held);
        st->held = NULL;
    }
    return finish(f, node, s, true);
}

/* 3x3 with stride 2, padded on the right and below only. */
static lt_status shrink(lti_vae_flow *f, const lti_vae_node *node, lt_image out)
{
    lti_vae_pool *p = pool_of(f, f->x.h, f->x.w, node->cin);
    const lt_image in = take(p);
    LT_TRY(convert(f, in, f->x));
    lt_conv_args a = {.out = out,
                      .in = in,
                      .frame = {in.data},
                      .w = node->w[0],
                      .ntaps = 9,
                      .rows = in.h / 2,
                      .cols = in.w / 2,
                      .in_step = 2};
    for (int i = 0; i < 9; i++)
        a.tap[i] = (lt_tap){.dy = (int8_t)(i / 3), .dx = (int8_t)(i % 3)};
    LT_TRY(lt_conv(f->dev, &a));
    give(p, in.data);
    return LT_OK;
}

/* Of the small frames w0, w1, ... the time stage gives w0, then conv(w[2j-2], w[2j-1], w[2j]). */
static lt_status run_down(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st, bool *out)
{
    lt_image small = {
        .data = f->x.data, .dtype = LT_F32, .h = f->x.h / 2, .w = f->x.w / 2, .c = node->cout};
    if (!node->time) {
        LT_TRY(shrink(f, node, small));
        f->x = small;
        return LT_OK;
    }
    lti_vae_pool *p = pool_of(f, small.h, small.w, small.c);
    const lt_image frame = take(p);
    LT_TRY(shrink(f, node, frame));
    f->x = small;
    const int64_t t = st->seen++;
    *out = t % 2 == 0;
    if (t == 0)
        LT_TRY(convert(f, f->x, frame));
    else if (*out)
        LT_TRY(in_time(f, f->x, st->past[0], frame, node->w[1]));
    advance(p, st->past[0], frame.data);
    return LT_OK;
}

static lt_status run_node(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st,
                          const lt_image *src, bool *out)
{
    switch (node->op) {
    case LTI_VAE_CONV:
        return run_conv(f, node, st, src);
    case LTI_VAE_RES:
        return run_res(f, node, st);
    case LTI_VAE_ATTN:
        return run_attn(f, node);
    case LTI_VAE_UP:
        return run_up(f, node, st);
    case LTI_VAE_DOWN:
        return run_down(f, node, st, out);
    case LTI_VAE_HEAD: {
        lt_image to = plain(f->x.data, LT_F32, &f->x, node->cout);
        LT_TRY(normed_conv(f, st->past[0], f->x, node->gamma[0], node->w[0], to, (lt_image){0}));
        f->x = to;
        return LT_OK;
    }
    case LTI_VAE_POINT:
        break;
    }
    assert(false && "the 1x1x1 convolutions belong to decoder.c and encoder.c");
    return LT_ERR_ARG;
}

lt_status lti_vae_flow_step(lti_vae_flow *f, int i, const lt_image *src, bool *out)
{
    const lti_vae_node *node = &f->net->node[i];
    *out = true;
    const lt_status s = run_node(f, node, &f->node[i], src ? src : &f->x, out);
    return finish(f, node, s, *out);
}
