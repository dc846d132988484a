/* state.c: what a decoder remembers between frames, out of it and back: for every node which frames of history there are, then these. Where
 * they lie in the pools is of no account. */
#include "vae/internal.h"

enum { PAST = 4, HELD = 4, FRAMES = 5 }; /* past[k / 2][k % 2], then held */

/* Frames that a decoder can have seen: counting on from there does not come to an end either. */
static const uint64_t MOST_SEEN = (uint64_t)1 << 48;

static void **frame_of(lti_vae_state *st, int k)
{
    return k < PAST ? &st->past[k / 2][k % 2] : &st->held;
}

/* The shape of frame k of a node's state; false when the node never has one. */
static bool shape_of(const lti_vae_flow *f, const lti_vae_node *node, int k, int32_t shape[3])
{
    const bool second = k == 2 || k == 3, up = node->op == LTI_VAE_UP && node->time;
    const bool down = node->op == LTI_VAE_DOWN && node->time;
    lti_vae_node_size(f->net, node, f->h0, f->w0, &shape[0], &shape[1]);
    shape[2] = second || down ? node->cout : node->cin;
    if (down) {
        shape[0] /= 2;
        shape[1] /= 2;
    }
    if (k == HELD) return up;
    if (second) return node->op == LTI_VAE_RES;
    return up || down || node->op == LTI_VAE_RES || node->op == LTI_VAE_CONV ||
           node->op == LTI_VAE_HEAD;
}

static lt_status move_frame(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st, int k,
                            const lt_vae_mover *m)
{
    int32_t shape[3];
    lti_vae_pool *p = shape_of(f, node, k, shape)
                          ? lti_vae_find_pool(&f->lay, shape[0], shape[1], shape[2])
                          : NULL;
    if (!p || (m->load && p->free == 0))
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_FORMAT, "vae %s: no room for history %d",
                        node->name, k);
    if (m->load) *frame_of(st, k) = p->frames[--p->free];
    return m->device(m->user, *frame_of(st, k), lt_image_bytes(&p->image));
}

static lt_status move_node(lti_vae_flow *f, const lti_vae_node *node, lti_vae_state *st,
                           const lt_vae_mover *m)
{
    uint64_t which = 0, seen = (uint64_t)st->seen;
    for (int k = 0; k < FRAMES; k++)
        if (*frame_of(st, k)) which |= (uint64_t)1 << k;
    LT_TRY(m->host(m->user, &which, sizeof which));
    LT_TRY(m->host(m->user, &seen, sizeof seen));
    if (which >> FRAMES || seen > MOST_SEEN)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_FORMAT, "vae %s: not a state", node->name);
    st->seen = (int64_t)seen;
    for (int k = 0; k < FRAMES; k++)
        if (which >> k & 1) LT_TRY(move_frame(f, node, st, k, m));
    return LT_OK;
}

lt_status lt_vae_decoder_move(lt_vae_decoder *dec, const lt_vae_mover *m)
{
    lti_vae_flow *f = &dec->flow;
    if (m->load) lt_vae_decoder_reset(dec);
    if (f->broken || dec->pushed)
        return lti_fail(lt_dev_ctx(f->dev), LT_ERR_ARG, "vae decoder: %s",
                        f->broken ? "a call failed before" : "a latent frame is not begun");
    lt_status s = LT_OK;
    for (int i = 0; i < f->net->n && s >= 0; i++)
        s = move_node(f, &f->net->node[i], &f->node[i], m);
    if (s < 0 && m->load) f->broken = true;
    return s;
}
