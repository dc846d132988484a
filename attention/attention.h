/* attention.h: who may look at whom. Token grid and attention plans.
 *
 * Tokens live on a grid of (frame, row, column); token n = (f*H + y)*W + x. A plan lists, for each query tile, the runs of
 * keys it reads (see lt_run, lt_attn_plan in kernels.h). Dense attention is the plan with one run [0, Lk).
 */
#ifndef LT_ATTENTION_H
#define LT_ATTENTION_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lt_grid {
    int32_t frames, rows, cols; /* in tokens */
} lt_grid;
static inline int64_t lt_grid_tokens(lt_grid g)
{
    return (int64_t)g.frames * g.rows * g.cols;
}

typedef struct lt_plan lt_plan;

/* A plan as its builders write it (host memory, borrowed for the call). */
typedef struct lt_plan_desc {
    int64_t lq, lk;
    int32_t nq, ngroups, heads;
    const int32_t *q_off;         /* [nq + 1], 0 .. lq */
    const int32_t *row;           /* [ngroups*nq + 1] */
    const lt_run *runs;           /* [row[ngroups*nq]] */
    const int32_t *group_of_head; /* [heads]; NULL = one group */
} lt_plan_desc;

/* The invariants of a plan: query tiles cover [0, lq) once; runs inside [0, lk), sorted, disjoint, merged unless flags or bias
 * differ. LT_OK or LT_ERR_ARG with a message that names the tile, run and values. Any plan is checked before it is used. */
LT_MUST_USE LT_API lt_status lt_plan_check(lt_ctx *ctx, const lt_plan_desc *d);

/* Copies the plan to the device. Errors: LT_ERR_ARG (lt_plan_check), LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_plan_create(lt_plan **out, lt_dev *dev, const lt_plan_desc *d);
/* Every query row reads every key. */
LT_MUST_USE LT_API lt_status lt_plan_dense(lt_plan **out, lt_dev *dev, int64_t lq, int64_t lk,
                                           int32_t heads);
/* Cross-attention on text: `real` distinct rows and one row (index real) that stands for `padding` equal rows: its logit
 * gets + ln(padding), which is exact. padding 0: the row is not read. lk = real + (padding > 0). */
LT_MUST_USE LT_API lt_status lt_plan_text(lt_plan **out, lt_dev *dev, int64_t lq, int64_t real,
                                          int64_t padding, int32_t heads);
LT_API void lt_plan_destroy(lt_plan **plan);

/* sum over tiles of rows x keys read, over lq x lk, mean over heads: the only density we report. */
LT_API double lt_plan_density(const lt_plan *plan);
/* What the kernel takes; valid while the plan lives. */
LT_API const lt_attn_plan *lt_plan_kernel(const lt_plan *plan);
LT_API int64_t lt_plan_lq(const lt_plan *plan);
LT_API int64_t lt_plan_lk(const lt_plan *plan);

/* Rotary tables of Wan for a head size: pairs: width = height = D/2 / 3 (integer), time the rest. Device memory, freed
 * with lt_rope_destroy. positions of each axis: 0 .. max-1 (1024 in Wan). */
typedef struct lt_rope_tables {
    lt_dev *dev;
    float *table[3];
    int32_t pairs[3], max[3];
} lt_rope_tables;
LT_MUST_USE LT_API lt_status lt_rope_tables_create(lt_rope_tables *out, lt_dev *dev, int head_dim,
                                                   const int32_t max[3], double theta);
LT_API void lt_rope_tables_destroy(lt_rope_tables *t);
/* Host: the three positions of every token of a grid, row-major tokens, frames counted from first_frame. pos [tokens, 3]. */
LT_API void lt_grid_positions(lt_grid g, int32_t first_frame, int32_t *pos);

#ifdef __cplusplus
}
#endif
#endif
