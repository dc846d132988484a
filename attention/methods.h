/* methods.h: what a way of choosing keys is made of. A new one is a file with one function that writes the list of one query tile, and
 * one line in the table of methods.c.
 */
#ifndef LTI_ATTENTION_METHODS_H
#define LTI_ATTENTION_METHODS_H

#include "attention/attention.h"

/* Keys of one query tile, in any order, also overlapping: they are sorted and joined afterwards. */
typedef struct lti_list {
    lt_run *run;
    int32_t n, max;
} lti_list;

/* A frame whose keys can be read, oldest first; the queries' own frames are the last ones. */
typedef struct lti_key_frame {
    int32_t slot; /* its rows begin at slot * tokens of a frame */
    float bias;   /* on its logits */
    bool always;  /* every query reads it: sink and own block of a cache */
} lti_key_frame;

/* Queries and keys of a call. Tokens of a frame are numbered in the order of rows in memory. */
typedef struct lti_scene {
    const lt_sparse_spec *o;
    lt_grid q;                /* of the queries */
    int32_t frame;            /* tokens of a frame */
    const lt_tiling *tiling;  /* of the queries; NULL: rows are in the order of tokens */
    int32_t nq;               /* query tiles */
    int32_t per_frame;        /* of them a frame, without a tiling */
    const int32_t *q_off;     /* [nq + 1] */
    int32_t heads, nkeys;     /* nkeys: frames that can be read */
    const lti_key_frame *key; /* [nkeys] */
    bool cached; /* boxes of keys are one frame deep; else keys are laid out as the queries */
    int32_t nk;  /* boxes of keys in memory, seen or not */
    int32_t (*window)[3];   /* sta: [groups]; NULL: the spec's for all */
    double keep;            /* topk: at this step */
    const uint64_t *chosen; /* topk: a bit a box, [heads][nq][words] */
    int32_t words;
} lti_scene;

/* What one query tile of one group of heads reads. */
typedef void lti_list_fn(lti_list *l, const lti_scene *s, int32_t group, int32_t tile);
lti_list_fn lti_list_sta, lti_list_svg, lti_list_radial, lti_list_topk, lti_list_topk_rest;

/* ---- for the functions that write lists ---- */

/* Rows begin .. end - 1 of keys in memory; there is room for every frame thrice and every box. */
void lti_list_add(lti_list *l, int64_t begin, int64_t end, float bias);
/* Tokens begin .. end - 1 of key frame f, as far as it has them. */
void lti_read_tokens(lti_list *l, const lti_scene *s, int32_t f, int64_t begin, int64_t end);
/* Boxes (f, y, x0 .. x1). f: box of frames, or key frame of a cache. */
void lti_read_boxes(lti_list *l, const lti_scene *s, int32_t f, int32_t y, int32_t x0, int32_t x1);
/* Place in memory of a box of keys, and its rows. */
int32_t lti_box(const lti_scene *s, int32_t f, int32_t y, int32_t x);
void lti_box_rows(const lti_scene *s, int32_t box, int32_t *begin, int32_t *end);
/* Boxes of keys along time that can be read, and which of them a query tile is in. */
int32_t lti_boxes_deep(const lti_scene *s);
void lti_tile_place(const lti_scene *s, int32_t tile, int32_t place[3]);

/* ---- the table ---- */

typedef struct lti_method {
    const char *name;
    lti_list_fn *list; /* NULL: dense */
    bool tiled;        /* tokens stand in the order of boxes */
    int32_t groups;    /* of heads; 0 = one a head */
    const char *keys;  /* of its text, " a b c " */
    lt_sparse_spec defaults;
    const char *help;
} lti_method;
const lti_method *lti_method_at(int32_t i); /* NULL behind the last */

/* ---- how wide bands are, and which boxes ---- */

/* Half-width of the band of radial attention between frames that are `distance` apart: -1 nothing is read, `frame` all of it. */
int64_t lti_radial_width(int64_t frame, int64_t distance, double decay, int64_t base);
/* Half-width in tokens of svg's band over `frames` frames. */
int64_t lti_svg_width(int64_t frames, int64_t frame, double density, int64_t base);
/* Which boxes every query tile of every head reads, bits as lti_scene.chosen, from scores [heads][nq][nk]. scratch [nk]. */
void lti_topk_choose(uint64_t *chosen, const lti_scene *s, const float *score, float *scratch);

#endif
