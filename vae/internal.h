/* internal.h: what the files of vae/ share. No other room includes it (tests/unit_vae_*.c and parity_vae.c do).
 *
 * Both halves of the VAE are a list of nodes on one picture stream x (net.c). Weights are packed per node (weights.c). A flow is
 * such a list bound to a picture size: its memory (layout.c), and the step that takes one frame through one node (flow.c).
 * decoder.c and encoder.c drive a flow frame by frame.
 */
#ifndef LTI_VAE_INTERNAL_H
#define LTI_VAE_INTERNAL_H

#include "attention/attention.h"
#include "vae/vae.h"

enum {
    LTI_VAE_MAX_NODES = 80,
    LTI_VAE_MAX_LAYERS = 5,
    LTI_VAE_MAX_POOLS = 32,
    LTI_VAE_MAX_SIDE = 4096
};

typedef enum lti_vae_op {
    LTI_VAE_POINT, /* 1x1x1 convolution at latent size: conv2 of the decoder, conv1 of the encoder */
    LTI_VAE_CONV,  /* 3x3x3 causal convolution of the stream itself */
    LTI_VAE_RES,
    LTI_VAE_ATTN,
    LTI_VAE_UP,   /* [time 1 -> 2], nearest 2x, 3x3, C -> C/2 */
    LTI_VAE_DOWN, /* 3x3 stride 2, [time 2 -> 1] */
    LTI_VAE_HEAD  /* norm, SiLU, 3x3x3 causal convolution */
} lti_vae_op;

typedef struct lti_vae_node {
    lti_vae_op op;
    bool time; /* UP, DOWN: with the time stage */
    char name[32];
    int32_t cin, cout;
    /* its input is (size of level 0) << level in the decoder, >> level in the encoder */
    int32_t level;
    /* Packed weights. CONV, HEAD, POINT: w[0]. RES: first, second, shortcut or NULL. ATTN: qkv, proj.
     * UP: four phases (weights.c), two halves of the time convolution. DOWN: w[0], time convolution w[1]. */
    lt_weight *w[6];
    float *gamma[2];
} lti_vae_node;

typedef struct lti_vae_net {
    bool decoder;
    int n;
    lti_vae_node node[LTI_VAE_MAX_NODES];
} lti_vae_net;

/* One parameter group of a node as files name it: "<node>.<suffix>.weight" and ".bias", or ".gamma". */
typedef struct lti_vae_layer {
    const char *suffix; /* "" = none */
    bool gamma;
    int32_t out, in, kt, k;
    int ndim;
} lti_vae_layer;

struct lt_vae {
    lt_dev *dev;
    lt_vae_config config;
    lti_vae_net encoder, decoder;
    float *scale; /* [4, z]: decoder mul, add, encoder mul, add */
};

/* LT_ERR_ARG with a message that names field and value. After it no size below can overflow. */
LT_MUST_USE lt_status lti_vae_config_check(lt_ctx *ctx, const lt_vae_config *c);
/* LT_ERR_ARG unless both are 1 .. LTI_VAE_MAX_SIDE. */
LT_MUST_USE lt_status lti_vae_size_check(lt_ctx *ctx, int32_t h, int32_t w);
void lti_vae_net_make(lti_vae_net *net, const lt_vae_config *c, bool decoder);
int lti_vae_node_layers(const lti_vae_node *node, lti_vae_layer out[LTI_VAE_MAX_LAYERS]);
void lti_vae_layer_name(char *out, size_t size, const lti_vae_node *node, const char *suffix,
                        const char *leaf);
void lti_vae_layer_dims(const lti_vae_layer *l, int64_t dim[LT_MAX_DIMS]);
/* Picture size of a node's input. */
void lti_vae_node_size(const lti_vae_net *net, const lti_vae_node *node, int32_t h, int32_t w,
                       int32_t *nh, int32_t *nw);

LT_MUST_USE lt_status lti_vae_net_load(lt_vae *vae, lti_vae_net *net,
                                       const lt_tensor_source *source);
void lti_vae_net_free(lt_dev *dev, lti_vae_net *net);

/* ---- memory of a flow -------------------------------------------------------------------- */

/* Bordered frames of one shape, in the compute type: inputs of convolutions and their histories. */
typedef struct lti_vae_pool {
    lt_image image; /* data NULL */
    int32_t kept;   /* frames that histories hold in the steady state */
    int32_t moving; /* the most that one node needs besides */
    int32_t free;
    void **frames; /* [kept + moving]: the first `free` of them are free */
    uint8_t *base;
} lti_vae_pool;

typedef struct lti_vae_layout {
    int npools;
    lti_vae_pool pool[LTI_VAE_MAX_POOLS];
    int32_t frames; /* in all pools */
    size_t state_bytes;
    size_t x_bytes, h_bytes, work_bytes;
} lti_vae_layout;

/* The pool of that shape; NULL: none. */
lti_vae_pool *lti_vae_find_pool(lti_vae_layout *lay, int32_t h, int32_t w, int32_t c);
void lti_vae_layout_make(lti_vae_layout *lay, const lti_vae_net *net, lt_dtype compute, int32_t h,
                         int32_t w);

/* What a node remembers between frames. */
typedef struct lti_vae_state {
    void *past
        [2]
        [2]; /* per causal convolution: the inputs of two frames ago and of the last frame; NULL = zeros */
    void *held;   /* UP: input whose second half is still to be made */
    int64_t seen; /* UP, DOWN: frames so far */
} lti_vae_state;

/* For tests: the stream after a node. x: f32 on the device. */
typedef lt_status lti_vae_probe_fn(void *user, const char *node, const lt_image *x);

typedef struct lti_vae_flow {
    lt_dev *dev;
    const lti_vae_net *net;
    lt_dtype compute;
    int32_t h0, w0; /* of level 0 */
    lti_vae_layout lay;
    lt_arena state, work;
    void **frames;
    lti_vae_state *node;
    lt_image x;    /* the stream, f32, no border */
    void *h;       /* inside of a block; between blocks free */
    lt_plan *plan; /* of the middle attention: one head, every position reads all of its frame */
    bool broken;   /* a step failed half way: only a reset helps */
    lti_vae_probe_fn *probe;
    void *probe_user;
} lti_vae_flow;

LT_MUST_USE lt_status lti_vae_flow_create(lti_vae_flow *f, lt_dev *dev, const lti_vae_net *net,
                                          lt_dtype compute, int32_t h, int32_t w);
void lti_vae_flow_destroy(lti_vae_flow *f);
void lti_vae_flow_reset(lti_vae_flow *f);
/* Takes x (or *src for the first node, when not NULL) through node i. *out false: the node keeps the frame and gives none. */
LT_MUST_USE lt_status lti_vae_flow_step(lti_vae_flow *f, int i, const lt_image *src, bool *out);
/* Makes the second frame of the UP node i, whose `held` is not NULL. */
LT_MUST_USE lt_status lti_vae_flow_second(lti_vae_flow *f, int i);

struct lt_vae_decoder {
    lt_vae *vae;
    lti_vae_flow flow;
    bool pushed; /* a latent frame lies in flow.h */
};

struct lt_vae_encoder {
    lt_vae *vae;
    lti_vae_flow flow;
    bool ready; /* a latent frame lies in flow.h */
};

#endif
