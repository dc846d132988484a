/* sparse_internal.h: what the files of the planner share: sparse.c (making, planning, counting), sparse_lists.c (lists to the device),
 * sparse_online.c (what is chosen by looking at queries and keys), sparse_rest.c (what stands in for the rest).
 */
#ifndef LTI_ATTENTION_SPARSE_INTERNAL_H
#define LTI_ATTENTION_SPARSE_INTERNAL_H

#include "attention/methods.h"

/* svg's look at a call: so many places, so many neighbouring rows each. The kernel takes 14 rows at a time. */
enum { LTI_SAMPLES = 8, LTI_SAMPLE_ROWS = 14, LTI_SKETCH = 256 };

/* A plan that is written again and again into the same memory. */
typedef struct lti_lists {
    int32_t *row; /* host */
    lt_run *run;
    int32_t nq, groups, most; /* most: runs of a list */
    int32_t *dev_q_off, *dev_row, *dev_group;
    lt_run *dev_run;
    lt_attn_plan kernel;
    double *group_read; /* query-key pairs, by group */
} lti_lists;

/* What a layer read last. */
typedef struct lti_layer {
    bool made;
    int32_t age; /* calls since the one that read all keys, where some do */
    /* of the last call: less means that a draw has begun again, which must not know of the one before */
    double progress;
    uint64_t seen; /* which frames there were */
    uint64_t *chosen;
    /* of the means at that time: signed sums, whose distances are those of the means */
    float sketch[LTI_SKETCH];
} lti_layer;

typedef struct lti_sizes {
    int32_t frame, rows, per_frame, nq, groups, nk, nkeys, most, words;
    bool tiled, cached, choose, profile, centroid, refresh;
    bool heads; /* a list of its own for each */
} lti_sizes;

struct lt_sparse {
    lt_dev *dev;
    lt_ctx *ctx;
    lt_sparse_options o; /* spec: with all defaults */
    const lti_method *m;
    lti_sizes z;
    lt_tiling tiling;
    int32_t *q_off; /* [nq + 1] */
    lti_key_frame *key;
    int32_t nkeys;
    lti_list list; /* of one query tile */
    lti_lists lists, rest, samples;
    lt_windows windows; /* of sta, where they come from a file */
    bool planned;       /* the last call was sparse */
    bool fresh;         /* or dense, to see what its list leaves out */
    uint64_t built;     /* frames for which `lists` are, where they depend on nothing else */
    int32_t *group_of_head;
    lti_layer *layer; /* [layers * samples] */
    float *host;      /* scores, means, sampled output */
    size_t host_items;
    /* device */
    int32_t *off_q, *off_k;
    float *mean_q, *mean_k, *score, *lse, *rest_lse;
    void *rest_k, *rest_v, *rest_out, *sample_q;
    void *missing; /* [layers * samples][tokens]: output with all keys, less that with the list */
    float *minus_one; /* a row */
    float *sample_out, *search_out;
    lt_sparse_stats stats;
};

/* Lists of `groups` groups and `nq` tiles, and their memory on the device. */
LT_MUST_USE lt_status lti_lists_create(lti_lists *l, lt_dev *dev, const lti_sizes *z, int32_t nq,
                                       int32_t groups, int32_t heads);
void lti_lists_destroy(lti_lists *l, lt_dev *dev);
uint64_t lti_lists_bytes(const lti_sizes *z, int32_t nq, int32_t groups, int32_t heads);
/* Writes the lists of all query tiles of a scene, and puts them on the device. group: [heads]. */
LT_MUST_USE lt_status lti_lists_write(lti_lists *l, lt_sparse *s, const lti_scene *sc,
                                      lti_list_fn *fn, const int32_t *group);
/* One more list; the row array must be complete up to it. */
LT_MUST_USE lt_status lti_lists_add(lti_lists *l, lt_ctx *ctx, int32_t at, lti_list *from);
LT_MUST_USE lt_status lti_lists_upload(lti_lists *l, lt_dev *dev, int32_t nq, const int32_t *q_off,
                                       int32_t lists, const int32_t *group, int32_t heads);

/* search.c: which windows are compared, of which planner; and one call, whose dense output is there. */
LT_MUST_USE lt_status lti_search_begin(lt_window_search *s, const lt_sparse *p);
LT_MUST_USE lt_status lti_search_call(lt_sparse *p, const lt_sparse_call *c, lti_scene *sc,
                                      lt_mat dense);

/* sparse_rest.c: a matrix [tokens] of all heads; what joins the output of a call. Where the call was fresh, lti_add_missing sees what its
 * list has left out instead: `out` is of all keys then, rest_out of the list. */
lt_mat lti_whole(const lt_sparse *s, void *data);
LT_MUST_USE lt_status lti_upload_minus_one(lt_sparse *s);
LT_MUST_USE lt_status lti_add_means(lt_sparse *s, const lt_sparse_call *c, lt_mat out);
LT_MUST_USE lt_status lti_add_missing(lt_sparse *s, const lt_sparse_call *c, lt_mat out);

/* sparse_online.c */
LT_MUST_USE lt_status lti_profile(lt_sparse *s, const lti_scene *sc, const lt_sparse_call *c);
/* again: the layer's list is of this draw and these frames. */
LT_MUST_USE lt_status lti_choose(lt_sparse *s, lti_scene *sc, const lt_sparse_call *c, bool again);

#endif
