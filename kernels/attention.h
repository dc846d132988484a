/* attention.h: what the files of the attention operation share.
 *
 * attention_cpu.c walks the plan: it packs the keys and values of a head, cuts query tiles into blocks and the listed keys
 * into steps. attention_body.h is the arithmetic of a step, written once for any vector width; attention_<isa>.c gives
 * it vectors.
 *
 * Layouts, in words of 4 bytes: one f32, or two bf16 or f16 that are neighbours along the sum (`pairs`).
 *     Q of `rows` rows     [head words][q_stride]
 *     K panel of `keys`    [head words][keys]
 *     V panel of `keys` columns, all keys of the head  [key words][keys]
 *     logits, weights      [rows][LTI_ATTN_LD]: the distance of rows is no power of two, or their lines fall on each other
 */
#ifndef LTI_KERNELS_ATTENTION_H
#define LTI_KERNELS_ATTENTION_H

#include "kernels/internal.h"

enum {
    LTI_ATTN_MAX_HEAD_DIM = 512,
    LTI_ATTN_STEP = 128, /* keys of a step */
    LTI_ATTN_LD = LTI_ATTN_STEP + 16,
    LTI_ATTN_LANES = 16 /* rows of a row block, and lanes of a vector, at most */
};

/* 2^f for |f| <= 1/2 is 1 + f*(c1 + f*(c2 + ...)), relative error 9.2e-8 (1.7e-7 with the rounding of f32): least
 * largest relative error with the constant held at 1, so that equal logits weigh exactly the same. */
#define LTI_EXP2_1 0.6931470036506653f
#define LTI_EXP2_2 0.24022242426872253f
#define LTI_EXP2_3 0.05550733953714371f
#define LTI_EXP2_4 0.009671509265899658f
#define LTI_EXP2_5 0.001326470053754747f

typedef float lti_word
    __attribute__((may_alias)); /* 4 bytes in memory: an f32, or two bf16 or f16 */

/* Keys [key, key + n): their weights stand in columns `col` on. */
typedef struct lti_attn_part {
    int32_t key, n, col;
} lti_attn_part;

/* Keys that stand together in a panel, from their first word on, for column `col` of another panel. */
typedef struct lti_attn_piece {
    const lti_word *from;
    int col;
} lti_attn_piece;

/* Running softmax of a row block: largest logit (base 2), what the sums so far are to be multiplied by, sum of weights. */
typedef struct lti_attn_rows {
    float top[LTI_ATTN_LANES], fade[LTI_ATTN_LANES];
    float sum[LTI_ATTN_LANES][LTI_ATTN_LANES]; /* by row and lane: added up at the end */
} lti_attn_rows;

typedef struct lti_attn_isa {
    int rows, q_stride, keys;
    bool pairs, half; /* words are two bf16; or two f16 */
    /* n rows of src become columns 0..n-1 of dst [words][stride], columns up to `stride` zero. */
    void (*pack_rows)(void *dst, int stride, const void *src, lt_dtype t, int64_t ld, int n,
                      int dim);
    /* Keys key..key+n-1 of the head at src (key 0) into their places in the V panels at dst; panel_words from panel to panel. */
    void (*pack_values)(void *dst, int64_t panel_words, const void *src, lt_dtype t, int64_t ld,
                        int64_t key, int n, int dim);
    /* A panel made of pieces of panels, n >= 1 in the order of their columns. Reads and writes up to keys - 1 words more than they have. */
    void (*gather)(lti_word *dst, const lti_attn_piece *piece, int n, int words);
    /* The four that follow take the first n of `rows` rows, at least; what they do to a row does not depend on n.
     * s[r, p*keys + j] = q[r] . panel[p][j]. Meanwhile `lines` cache lines at ahead[p] are asked for. */
    void (*scores)(float *s, const void *q, const lti_word *const *panel, int npanels, int words,
                   const lti_word *const *ahead, int lines, int n);
    /* s[r, j] = s[r, j] * scale + bias[j] + rel[j - r], ncols columns; -inf where bias[j] is, whatever s is. */
    void (*shift)(float *s, float scale, const float *bias, const float *rel, int ncols, int n);
    /* Weights 2^(s*scale - top) of the first ncols columns, f32 in s or pairs in p, and the new state. */
    void (*softmax)(float *s, void *p, int ncols, float scale, lti_attn_rows *st, int n);
    /* o [npanels][rows][keys] = o * fade + weights . V; fade NULL: o is not read. Meanwhile `lines` cache lines are asked for in every panel, from
     * word `ahead` of it on. */
    void (*values)(float *o, const void *p, const lti_attn_part *part, int nparts,
                   const lti_word *v, int64_t panel_words, int npanels, const float *fade,
                   int64_t ahead, int lines, int n);
    /* out[r] = o[r] / sum, first n rows. lse may be NULL. */
    void (*finish)(void *out, lt_dtype t, int64_t ld, const float *o, const lti_attn_rows *st,
                   int n, int dim, float *lse);
} lti_attn_isa;

extern const lti_attn_isa lti_attn_portable;
#if defined(__x86_64__)
extern const lti_attn_isa lti_attn_avx2, lti_attn_avx512, lti_attn_avx512bf16, lti_attn_avx512fp16;
#endif

/* Shapes, types, and that the plan stays inside lq and lk: one pass over its runs, so that a plan made for other sizes
 * is a message and not a read past the keys. */
LT_MUST_USE lt_status lti_check_attention(lt_dev *dev, const lt_attention_args *a);
/* Whether f16 holds q, listed keys and values (bf16), and sums of 32 of their products: attention_fits.c. */
LT_MUST_USE lt_status lti_attn_fits(bool *fits, lt_dev *dev, const lt_attention_args *a);

#endif
