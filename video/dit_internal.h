/* dit_internal.h: what the files of the transformer share. */
#ifndef LTI_VIDEO_DIT_INTERNAL_H
#define LTI_VIDEO_DIT_INTERNAL_H

#include "video/dit.h"

typedef struct lti_dit_block {
    lt_weight *qkv, *o; /* self-attention */
    lt_weight *cross_q, *cross_kv, *cross_o;
    lt_weight *up, *down; /* feed-forward */
    /* device, f32 */
    float *modulation;      /* [6 D] */
    float *norm_q, *norm_k; /* [D] */
    float *cross_norm_q, *cross_norm_k;
    float *norm3, *norm3_bias; /* before cross-attention */
} lti_dit_block;

struct lti_dit {
    lt_dev *dev;
    lti_dit_config c;
    lt_dtype compute;
    lt_weight *patch, *text0, *text2;            /* compute type */
    lt_weight *time0, *time2, *time_proj, *head; /* f32 */
    float *head_modulation;                      /* device, [2 D] */
    float *vectors;        /* the allocation that all f32 vectors are parts of */
    lti_dit_block *blocks; /* [layers] */
};

struct lti_prompt {
    const lti_dit *dit;
    int64_t keys;
    uint8_t *kv;   /* device: [layers][keys, 2 D], k then v, compute type */
    lt_plan *plan; /* N queries on `keys` */
};

/* Modulation of every block at every timestep of a schedule. */
typedef struct lti_dit_times {
    int32_t n;
    float *blocks; /* device: [layers][n][6 D] */
    float *head;   /* device: [n][2 D] */
} lti_dit_times;
LT_MUST_USE lt_status lti_dit_times_create(lti_dit_times *out, const lti_dit *dit,
                                           const double *times, int32_t n, const lti_probe *probe);
void lti_dit_times_destroy(lti_dit_times *t, lt_dev *dev);

/* Everything that passes of one size use. */
struct lti_dit_run {
    const lti_dit *d;
    lt_grid grid; /* in tokens */
    int32_t batch;
    int64_t n;     /* tokens of a sample */
    int64_t chunk; /* rows taken through the feed-forward layer at a time */
    lti_dit_times times;
    lti_probe probe;
    lt_plan *plan;        /* dense */
    lt_sparse *sparse;    /* NULL: always dense */
    const int32_t *order; /* host, the planner's, [n] row of every token; NULL: as they are */
    int32_t *order_dev;
    lt_rope_tables rope;
    int32_t *pos; /* device, [batch * n, 3] */
    int32_t *ring_pos,
        *block_pos;      /* device: rows of a cache and of a block, in that order; or NULL */
    int32_t *group;      /* device, [batch * n]: timestep of each row */
    int32_t *group_host; /* [batch * n] */
    lt_arena arena;
    double attention_seconds; /* of self-attention, planning included */
};

static inline lt_status lti_probe_call(const lti_probe *p, const char *name, int32_t block,
                                       lt_mat m, int64_t rows, int64_t cols)
{
    return p && p->fn ? p->fn(p->user, name, block, &m, rows, cols) : LT_OK;
}

/* Row r, column c of a matrix that may be device memory: only the address is computed. */
static inline lt_mat lti_at(lt_mat m, int64_t row, int64_t col)
{
    m.data = (uint8_t *)m.data + (size_t)(row * m.ld + col) * lt_dtype_size(m.dtype);
    return m;
}

#endif
