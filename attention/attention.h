/* attention.h: who may look at whom: token grid, attention plans, the key/value cache, tilings, sparse attention. Thread: the owner of
 * ctx, for every function.
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
/* Every query row reads every key. Errors of this and the next: those of lt_plan_create. */
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
 * with lt_rope_tables_destroy. positions of each axis: 0 .. max-1 (1024 in Wan), table[a] [max[a], pairs[a], 2] as lt_rope has it. */
typedef struct lt_rope_tables {
    lt_dev *dev;
    float *table[3];
    int32_t pairs[3], max[3];
} lt_rope_tables;
/* head_dim even, theta > 1. On failure nothing is held. Errors: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_rope_tables_create(lt_rope_tables *out, lt_dev *dev, int head_dim,
                                                   const int32_t max[3], double theta);
LT_API void lt_rope_tables_destroy(lt_rope_tables *t);
/* Host: the three positions of every token of a grid, row-major tokens, frames counted from first_frame. pos [tokens, 3]. */
LT_API void lt_grid_positions(lt_grid g, int32_t first_frame, int32_t *pos);

/* ---- key/value cache of autoregressive generation ----------------------------------------- */

/* A ring of slots, one a latent frame, in every layer; keys are raw (after their norm, before rotation) and are turned where they
 * are read, so a frame may change its place in time while its keys stay. A block of frames is reserved, written (as often as
 * denoising asks), then kept or given back. Frames leave the window when the block that pushes them out is reserved, and it is drawn
 * into their slots: a block drawn in its place sees what it saw, so they would not be seen again. Nothing is moved or copied when the
 * window rolls.
 *
 *   visible = kept frames that fit the window, oldest first (pinned ones never leave), then the reserved block
 */
typedef enum lt_cache_positions {
    LT_CACHE_ABSOLUTE, /* the frame's number in the video */
    LT_CACHE_RELATIVE  /* its place in the visible list, so bounded by the window */
} lt_cache_positions;

/* What a new prompt does to kept frames outside the sink. */
typedef enum lt_cache_switch {
    LT_CACHE_RECACHE, /* they are written again under it, from their latents */
    LT_CACHE_FLUSH,   /* all but the last LT_CACHE_FLUSH_FRAMES are forgotten */
    LT_CACHE_KEEP,    /* nothing: they go on saying what the old prompt said */
    /* They are forgotten, the sink too: a new shot, which begins with a picture drawn from the prompt alone. It takes the place of the
     * last kept frame (and of the first of the sink, if there is one) and is not shown. */
    LT_CACHE_CUT
} lt_cache_switch;
enum { LT_CACHE_FLUSH_FRAMES = 2 };

typedef struct lt_cache_policy {
    int32_t block;  /* latent frames generated together */
    int32_t window; /* frames that a block sees, itself and the sink included */
    int32_t sink;   /* the video's first frames (the shot's, after a cut), pinned */
    lt_cache_positions positions;
    /* ABSOLUTE: pinned frames are placed right before the oldest one that is not */
    bool sink_follows;
    double bias; /* 0 < b <= 1: weight of kept frames outside the sink, log b on their logits */
    double context_time; /* timestep at which kept frames are written, 0..1000 */
    int32_t first;       /* frames of the first block; 0 = block */
    /* The first block is drawn as the beginning of one of so many frames, whose others are thrown away and drawn again after it: frames
     * that are drawn together help each other, and the first one has nothing else. 0 = first */
    int32_t first_of;
    lt_cache_switch on_prompt;
} lt_cache_policy;

/* Most frames that are drawn together. */
static inline int32_t lt_cache_most_open(const lt_cache_policy *p)
{
    return p->first_of > p->block ? p->first_of : p->block;
}

/* "PRESET[:key=value,...]": presets self-forcing, causvid, longlive, longlive-infinity, infinity-rope, infinite-forcing; keys block,
 * window, sink, positions (absolute, relative), sink-positions (fixed, follow), bias, context-time, first, first-of, switch (recache,
 * flush, keep, cut).
 * NULL or "": self-forcing.
 * Errors: LT_ERR_ARG with a message that names the word. */
LT_MUST_USE LT_API lt_status lt_cache_policy_parse(lt_cache_policy *out, lt_ctx *ctx,
                                                   const char *text);
LT_MUST_USE LT_API lt_status lt_cache_policy_check(lt_ctx *ctx, const lt_cache_policy *p);

typedef struct lt_cache_options {
    int32_t layers, heads, head_dim;
    int32_t rows, cols;  /* of a frame, in tokens */
    lt_dtype dtype;      /* of keys and values */
    double theta;        /* of the rotation; 0 = 10000 */
    int64_t first_frame; /* number of the first frame of the video; 0 unless it continues another */
    lt_cache_policy policy;
} lt_cache_options;

typedef struct lt_cache lt_cache;
/* Reserves every byte the cache will ever use. Errors: LT_ERR_ARG, LT_ERR_DTYPE, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_cache_create(lt_cache **out, lt_dev *dev,
                                             const lt_cache_options *opt);
LT_API void lt_cache_destroy(lt_cache **cache); /* accepts NULL */
/* Device bytes that lt_cache_create takes; 0 for options it would refuse. */
LT_API uint64_t lt_cache_bytes(const lt_cache_options *opt);

/* Opens a block of 1 .. policy.block frames, the ones that follow the last kept frame. LT_ERR_ARG: one is open already, or
 * pinned frames leave no room for it. Forgets the frames that have no room beside it, the oldest that are not pinned. */
LT_MUST_USE LT_API lt_status lt_cache_reserve(lt_cache *c, int32_t frames);
LT_MUST_USE LT_API lt_status lt_cache_commit(lt_cache *c); /* keeps the open block */
/* Gives the open block back: the next reserved sees the same. */
LT_API void lt_cache_rollback(lt_cache *c);
/* Forgets now what a block of `frames` would. No block may be open. */
LT_MUST_USE LT_API lt_status lt_cache_make_room(lt_cache *c, int32_t frames);
/* Opens frames first .. first + frames - 1 of the kept list again, at most a block: they see each other and what is before them in the
 * list. lt_cache_rollback closes them; the list stays as it is. */
LT_MUST_USE LT_API lt_status lt_cache_reopen(lt_cache *c, int32_t first, int32_t frames);
/* Forgets every kept frame but the pinned ones and the last `recent`. No block may be open. */
LT_MUST_USE LT_API lt_status lt_cache_flush(lt_cache *c, int32_t recent);
/* A kept frame never leaves, or may leave again. LT_ERR_ARG when it is not kept. */
LT_MUST_USE LT_API lt_status lt_cache_pin(lt_cache *c, int64_t frame, bool pinned);

typedef struct lt_cache_frame {
    int64_t frame; /* number in the video */
    int32_t slot;  /* its rows are slot * tokens of a frame on */
    int64_t place; /* in time, as rotation sees it (of visible frames while a block is open) */
    bool pinned, open;
} lt_cache_frame;
/* While a block is open: what it sees, in order; else: what is kept. Valid until the next call that changes the cache. */
LT_API const lt_cache_frame *lt_cache_list(const lt_cache *c, int32_t *count);
LT_API const lt_cache_frame *lt_cache_kept(const lt_cache *c, int32_t *count); /* also then */
/* Takes over a list of kept frames, as lt_cache_kept gave it (places are worked out anew), in place of what is kept. Keys and values
 * are the caller's to fill (lt_cache_layer). Nothing kept: the sink begins anew with what comes next.
 * LT_ERR_FORMAT: no cache of this policy can have such a list. */
LT_MUST_USE LT_API lt_status lt_cache_restore(lt_cache *c, int64_t next_frame,
                                              const lt_cache_frame *kept, int32_t count);
/* Kept frames outside the sink, and the sink's, weigh so much less than the policy says from the next block that is opened on: log of it
 * on their logits. 0 < each <= 1; 1: as the policy says. Whoever makes plans of its own (lt_sparse) does not look at it. */
LT_API void lt_cache_weigh(lt_cache *c, double past, double sink);
LT_API int32_t lt_cache_open_frames(const lt_cache *c); /* 0: no block is open */
/* Number of the first frame that is not kept. */
LT_API int64_t lt_cache_next_frame(const lt_cache *c);

/* For attention, while a block is open. Keys and values of a layer: [lt_cache_rows, 2 * heads * head_dim], keys first. */
LT_API lt_mat lt_cache_layer(const lt_cache *c, int32_t layer);
LT_API int64_t lt_cache_rows(const lt_cache *c);         /* lk: rows of all slots */
LT_API int64_t lt_cache_visible_rows(const lt_cache *c); /* keys that the open block reads */
LT_API int64_t lt_cache_open_row(const lt_cache *c,
                                 int32_t frame); /* first row of frame 0.. of the open block */
LT_API const lt_attn_plan *
lt_cache_plan(const lt_cache *c); /* every row of the open block reads what is visible */
LT_API const lt_rope *lt_cache_key_rope(const lt_cache *c);   /* by row of the ring */
LT_API const lt_rope *lt_cache_query_rope(const lt_cache *c); /* by row of the open block */

/* ---- tilings ------------------------------------------------------------------------------ */

/* Tokens in the order of small boxes of frames x rows x columns, so that the tokens of a box are neighbours. Boxes at the far ends
 * may be smaller; nothing is padded. */
typedef struct lt_tiling {
    lt_grid grid;
    int32_t tile[3], count[3]; /* tokens of a box, boxes; on each axis */
    int32_t tiles;
    int32_t *off; /* [tiles + 1] first row of a box; boxes in the order of frames, rows, columns */
    int32_t *order; /* [tokens] row of a token */
    int32_t *token; /* [tokens] token of a row */
} lt_tiling;
/* tile: sides of a box, at least 1; longer than the grid means the grid. Errors: LT_ERR_ARG, LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_tiling_create(lt_tiling *out, lt_ctx *ctx, lt_grid grid,
                                              const int32_t tile[3]);
LT_API void lt_tiling_destroy(lt_tiling *t);
/* A box of about `tokens` tokens, at most max_frames deep: one that divides the grid where there is one of such size, else the one
 * that leaves the least ragged ends. */
LT_API void lt_tiling_choose(int32_t tile[3], lt_grid grid, int32_t tokens, int32_t max_frames);

/* ---- sparse attention --------------------------------------------------------------------- */

/* How to choose what is read, as text: "NAME[:key=value,...]", "topk:keep=0.2,warmup=0.25". lt_sparse_help lists names and keys. */
enum { LT_SPARSE_FILE = 256 };
typedef struct lt_sparse_spec {
    int32_t method;    /* its place in the table; 0 = dense */
    double warmup;     /* this part of the steps stays dense */
    int32_t layers;    /* so many first layers too */
    int32_t tile[3];   /* box of the 3D tiling; 0 = chosen by the grid */
    int32_t rows;      /* query rows of a list, where tokens stay in their order; 0 = chosen */
    int32_t window[3]; /* sta: boxes on each axis */
    double density;    /* svg: of the band, before the sink */
    double decay;      /* radial */
    int32_t base; /* svg, radial: least width and rounding, in tokens; 0 = chosen by the frame */
    bool sink;    /* svg, radial: the first frame is always read */
    /* topk: part of the boxes; or of the weight; or deviations above the mean; one of them is set */
    double keep, mass, tau;
    bool centroid; /* topk: boxes that are not read stand in as their mean */
    /* topk: keep at the first sparse step, falling evenly to `keep` at the last; 0 = keep */
    double ramp;
    /* sta, radial, topk: of so many sparse steps the first reads all keys too, the others add what their list left out of it; 0 = none */
    int32_t refresh;
    double drift; /* topk: lists are made anew when queries and keys have changed by so much */
    /* sta: windows of every layer and head are in this file; "" = window */
    char file[LT_SPARSE_FILE];
    /* sta: attention stays dense, windows are compared; not in the text */
    struct lt_window_search *search;
} lt_sparse_spec;
/* NULL or "": dense. Errors: LT_ERR_ARG with a message that names the word. */
LT_MUST_USE LT_API lt_status lt_sparse_parse(lt_sparse_spec *out, lt_ctx *ctx, const char *text);
LT_MUST_USE LT_API lt_status lt_sparse_check(lt_ctx *ctx, const lt_sparse_spec *spec);
/* Name and one line about method i, keys and defaults included; NULL behind the last. */
LT_API const char *lt_sparse_name(int32_t i);
LT_API const char *lt_sparse_help(int32_t i);

/* Windows of sta for every layer and head, as text: "windows LAYERS HEADS", then FxHxW (odd) for each head of layer 0, of layer 1, ...;
 * # begins a comment. */
typedef struct lt_windows {
    int32_t layers, heads;
    int32_t (*side)[3]; /* [layers * heads] */
} lt_windows;
/* name: of the text, for messages. Errors: LT_ERR_FORMAT, LT_ERR_MEM, LT_ERR_IO. */
LT_MUST_USE LT_API lt_status lt_windows_parse(lt_windows *out, lt_ctx *ctx, const char *text,
                                              const char *name);
LT_MUST_USE LT_API lt_status lt_windows_read(lt_windows *out, lt_ctx *ctx, const char *path);
LT_API void lt_windows_destroy(lt_windows *w);

/* Looks for such windows while a model runs: planners whose spec has it leave attention dense and compare windows that read at most as
 * many boxes as the spec's (64 of them at most). It must outlive them; one runs at a time. */
typedef struct lt_window_search lt_window_search;
LT_MUST_USE LT_API lt_status lt_window_search_create(lt_window_search **out, lt_ctx *ctx);
LT_API void lt_window_search_destroy(lt_window_search **s); /* accepts NULL */
typedef struct lt_window_choice {
    int32_t side[3];
    double part; /* of the boxes that it reads */
    /* relative distance of its output from dense, root of the mean over calls; of the spec's window */
    double error, given;
} lt_window_choice;
/* [layers * heads]; layers 0: no planner has run. Valid until the next call on `s`. */
LT_API const lt_window_choice *lt_window_search_result(lt_window_search *s, int32_t *layers,
                                                       int32_t *heads);

/* Makes and keeps the plans of all layers. Everything is reserved on creation. Errors of lt_sparse_create: LT_ERR_ARG, LT_ERR_MEM, those of
 * lt_windows_read; of a call: LT_ERR_SHAPE, LT_ERR_ARG, those of operations. */
typedef struct lt_sparse lt_sparse;
typedef struct lt_sparse_options {
    lt_sparse_spec spec;
    lt_grid grid; /* of a call's queries; with a cache: of the largest block */
    int32_t heads, head_dim, layers, samples;
    lt_dtype dtype; /* of q, k, v */
    int32_t slots;  /* of the cache that keys are in; 0: keys are those of the queries' tokens */
    double bias;    /* the cache policy's; 0 = 1 */
} lt_sparse_options;
LT_MUST_USE LT_API lt_status lt_sparse_create(lt_sparse **out, lt_dev *dev,
                                              const lt_sparse_options *opt);
LT_API void lt_sparse_destroy(lt_sparse **s); /* accepts NULL */
/* Device bytes that lt_sparse_create takes; 0 for options it would refuse. */
LT_API uint64_t lt_sparse_bytes(const lt_sparse_options *opt);
/* Rows that tokens must stand in, [tokens of the grid], host; NULL: as they are. A cache has this order in every frame. */
LT_API const int32_t *lt_sparse_order(const lt_sparse *s);

typedef struct lt_sparse_call {
    int32_t layer, sample;
    double progress; /* part of the steps that are done; 1: the pass that keeps what was drawn */
    lt_mat q, k, v;  /* as in lt_attention; q [lq], k and v [lk] */
    int64_t lq, lk;
    const lt_cache *cache; /* NULL: k and v are of the queries' tokens */
    const lt_rope *k_rope; /* as in lt_attention */
} lt_sparse_call;
/* *plan: what the call is to read; NULL: all of it, the caller has a plan for that. Valid until the next call on `s`. */
LT_MUST_USE LT_API lt_status lt_sparse_plan(lt_sparse *s, const lt_attn_plan **plan,
                                            const lt_sparse_call *c);
/* Where attention with that plan must leave its lse, [heads, lq]; NULL: not wanted. */
LT_API float *lt_sparse_lse(const lt_sparse *s);
/* A second attention of the same queries, keys and values after the first, with this plan into this memory: what it leaves out is
 * learnt from the two. false: there is none, which is mostly so. */
typedef struct lt_sparse_part {
    const lt_attn_plan *plan;
    lt_mat out; /* [lq] */
} lt_sparse_part;
LT_API bool lt_sparse_second(const lt_sparse *s, lt_sparse_part *out);
/* After attention with that plan, or with all keys when there was none: adds to `out` what stands in for the rest, or compares windows.
 * Mostly there is nothing to do. */
LT_MUST_USE LT_API lt_status lt_sparse_finish(lt_sparse *s, const lt_sparse_call *c, lt_mat out);

typedef struct lt_sparse_stats {
    int64_t calls, sparse_calls, plans; /* plans: lists made */
    /* query-key pairs, mean over heads, of all calls; a mean that stands in is a key, and a call that reads all keys and its list has both */
    double read, all;
    double sparse_read, sparse_all; /* of those that were not dense */
    double seconds;                 /* of planning, the stand-ins included */
    double attention_seconds;       /* of the calls and planning: whoever makes them may count */
} lt_sparse_stats;
LT_API void lt_sparse_get_stats(const lt_sparse *s, lt_sparse_stats *out);

#ifdef __cplusplus
}
#endif
#endif
