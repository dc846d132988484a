/* layout.c: how much memory a list of nodes needs at a picture size, worked out without a device, and the flow that holds it.
 *
 *   state: pools of bordered frames, one pool a shape. A convolution's history is two frames of a pool; the frame that comes
 *          in is written into a free one and becomes history, the oldest goes back. Nothing is copied or concatenated.
 *   work:  x, the stream (f32), and h, the inside of a block, both for the largest node, since one frame at a time is on
 *          its way.
 */
#include "vae/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

lti_vae_pool *lti_vae_find_pool(lti_vae_layout *lay, int32_t h, int32_t w, int32_t c)
{
    for (int i = 0; i < lay->npools; i++) {
        const lt_image *m = &lay->pool[i].image;
        if (m->h == h && m->w == w && m->c == c) return &lay->pool[i];
    }
    return NULL;
}

static void need_frames(lti_vae_layout *lay, lt_dtype type, int32_t h, int32_t w, int32_t c,
                        int32_t kept, int32_t moving)
{
    lti_vae_pool *p = lti_vae_find_pool(lay, h, w, c);
    if (!p) {
        assert(lay->npools < LTI_VAE_MAX_POOLS);
        p = &lay->pool[lay->npools++];
        p->image = (lt_image){.dtype = type, .h = h, .w = w, .c = c, .border = 1};
    }
    p->kept += kept;
    if (moving > p->moving) p->moving = moving;
}

/* The sizes in lti_vae_config_check and lti_vae_size_check keep all of these products below 2^63. */
static void need_node(lti_vae_layout *lay, const lti_vae_node *node, lt_dtype type, int32_t h,
                      int32_t w)
{
    const size_t pixels = (size_t)h * (size_t)w, each = lt_dtype_size(type);
    const size_t a = (size_t)node->cin, b = (size_t)node->cout;
    size_t x = pixels * max_size(a, b) * sizeof(float), inner = 0;
    switch (node->op) {
    case LTI_VAE_POINT:
        inner = x;
        break;
    case LTI_VAE_CONV:
        x = pixels * b * sizeof(float);
        need_frames(lay, type, h, w, node->cin, 2, 1);
        break;
    case LTI_VAE_HEAD:
        need_frames(lay, type, h, w, node->cin, 2, 1);
        break;
    case LTI_VAE_RES:
        need_frames(lay, type, h, w, node->cin, 2, 1);
        need_frames(lay, type, h, w, node->cout, 2, 1);
        inner = pixels * max_size(a, b) * each;
        break;
    case LTI_VAE_ATTN:
        inner = pixels * 4 * a * each;
        break;
    case LTI_VAE_UP:
        need_frames(lay, type, h, w, node->cin, node->time ? 2 : 0, node->time ? 2 : 1);
        x = 4 * pixels * b * sizeof(float);
        break;
    case LTI_VAE_DOWN:
        need_frames(lay, type, h, w, node->cin, 0, 1);
        if (node->time) need_frames(lay, type, h / 2, w / 2, node->cout, 2, 1);
        break;
    }
    lay->x_bytes = max_size(lay->x_bytes, x);
    lay->h_bytes = max_size(lay->h_bytes, inner);
}

void lti_vae_layout_make(lti_vae_layout *lay, const lti_vae_net *net, lt_dtype compute, int32_t h,
                         int32_t w)
{
    memset(lay, 0, sizeof *lay);
    for (int i = 0; i < net->n; i++) {
        int32_t nh, nw;
        lti_vae_node_size(net, &net->node[i], h, w, &nh, &nw);
        need_node(lay, &net->node[i], compute, nh, nw);
    }
    for (int i = 0; i < lay->npools; i++) {
        const lti_vae_pool *p = &lay->pool[i];
        lay->frames += p->kept + p->moving;
        lay->state_bytes +=
            (size_t)(p->kept + p->moving) * lt_arena_need(lt_image_bytes(&p->image));
    }
    lay->work_bytes = lt_arena_need(lay->x_bytes) + lt_arena_need(lay->h_bytes);
}

/* ---- the flow's memory ------------------------------------------------------------------- */

static lt_status make_pools(lti_vae_flow *f)
{
    void **frames = f->frames;
    LT_TRY(lt_arena_create(&f->state, f->dev, f->lay.state_bytes, LT_TAG_VAE_STATE));
    for (int i = 0; i < f->lay.npools; i++) {
        lti_vae_pool *p = &f->lay.pool[i];
        const int32_t n = p->kept + p->moving;
        void *base;
        LT_TRY(
            lt_arena_alloc(&f->state, &base, (size_t)n * lt_arena_need(lt_image_bytes(&p->image))));
        p->base = base;
        p->frames = frames;
        frames += n;
    }
    /* for the borders, which no operation writes */
    return lt_dev_zero(f->dev, f->state.base, f->state.size);
}

static lt_status make_work(lti_vae_flow *f)
{
    void *x;
    int32_t h, w;
    int i = 0;
    LT_TRY(lt_arena_create(&f->work, f->dev, f->lay.work_bytes, LT_TAG_VAE_WORK));
    LT_TRY(lt_arena_alloc(&f->work, &x, f->lay.x_bytes));
    LT_TRY(lt_arena_alloc(&f->work, &f->h, f->lay.h_bytes));
    f->x = (lt_image){.data = x, .dtype = LT_F32};
    while (f->net->node[i].op != LTI_VAE_ATTN)
        i++;
    lti_vae_node_size(f->net, &f->net->node[i], f->h0, f->w0, &h, &w);
    const int64_t positions = (int64_t)h * w;
    return lt_plan_dense(&f->plan, f->dev, positions, positions, 1);
}

lt_status lti_vae_flow_create(lti_vae_flow *f, lt_dev *dev, const lti_vae_net *net,
                              lt_dtype compute, int32_t h, int32_t w)
{
    *f = (lti_vae_flow){.dev = dev, .net = net, .compute = compute, .h0 = h, .w0 = w};
    lti_vae_layout_make(&f->lay, net, compute, h, w);
    f->frames = calloc((size_t)f->lay.frames, sizeof *f->frames);
    f->node = calloc((size_t)net->n, sizeof *f->node);
    lt_status s = LT_OK;
    if (!f->frames || !f->node)
        s = lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for the state of a vae");
    if (s >= 0) s = make_pools(f);
    if (s >= 0) s = make_work(f);
    if (s >= 0)
        lti_vae_flow_reset(f);
    else
        lti_vae_flow_destroy(f);
    return s;
}

void lti_vae_flow_destroy(lti_vae_flow *f)
{
    lt_plan_destroy(&f->plan);
    lt_arena_destroy(&f->work);
    lt_arena_destroy(&f->state);
    free(f->node);
    free(f->frames);
    memset(f, 0, sizeof *f);
}

void lti_vae_flow_reset(lti_vae_flow *f)
{
    memset(f->node, 0, (size_t)f->net->n * sizeof *f->node);
    for (int i = 0; i < f->lay.npools; i++) {
        lti_vae_pool *p = &f->lay.pool[i];
        const size_t each = lt_arena_need(lt_image_bytes(&p->image));
        p->free = p->kept + p->moving;
        for (int32_t j = 0; j < p->free; j++)
            p->frames[j] = p->base + (size_t)j * each;
    }
    f->broken = false;
}
