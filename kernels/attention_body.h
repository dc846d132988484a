/* attention_body.h: the arithmetic of attention for one instruction set. Included by attention_<isa>.c, which defines
 *     vf, VW       a vector of VW floats;  MR rows of a row block, PAIRS 0 or 1, HALF 1 where the pairs are f16
 *     vf_load vf_store vf_set1 vf_add vf_sub vf_mul vf_max vf_fma(a, b, c) = a*b + c
 *     vf_top       largest lane;  vf_exp2 for x <= 0: error under 2e-7, 2^x at least 2^-126 for any smaller x
 *     vf_word      a word in all lanes;  vf_dot(acc, a, b) = acc + a . b, by word
 *     pack_block   VW rows at a time of pack_rows; false: not for this shape
 *     put_weights  two vectors of weights into their place in p (PAIRS)
 *     pack_pairs   a word of two keys for every column of a panel, from the first key's row of bf16 on; ld 0: there is no second (HALF)
 *     vf_total     sums of vf_dot as f32, by word; RUN, the most words of one; vf_join, two of them added up (HALF)
 * Two vectors wide everywhere: a register block of MR x 2 vectors needs MR + 2 loads for 2 MR multiply-adds.
 * A step is summed from zero and then added to what was there: added key by key, 32,760 weights of one sign would lose four
 * digits in f32. All sums of a row depend on its list of keys only: not on its neighbours, its tile or the threads.
 */
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    NR = 2 * VW,
    LINE_WORDS = 16,
    WORD_ITEMS = PAIRS ? 2 : 1,
    Q_STRIDE = (MR + VW - 1) / VW * VW,
    P_LD = PAIRS ? LTI_ATTN_STEP / 2 + 16 : LTI_ATTN_LD,
    FEW = MR > 8
              ? 8
              : MR / 2 /* rows of the last block of a tile, when it has no more: 120 = 8 x 14 + 8 */
};

static inline void put_word(void *dst, int64_t item, float x)
{
#if HALF
    ((uint16_t *)dst)[item] = _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
    if (PAIRS)
        ((uint16_t *)dst)[item] = lti_f32_to_bf16(x);
    else
        ((float *)dst)[item] = x;
#endif
}

static void pack_rows(void *dst, int stride, const void *src, lt_dtype t, int64_t ld, int n,
                      int dim)
{
    const int words = (dim + WORD_ITEMS - 1) / WORD_ITEMS;
    int done = 0;
    for (; done + VW <= stride; done += VW)
        if (!pack_block((lti_word *)dst + done, stride, src, t, ld, done,
                        n < done + VW ? n : done + VW, dim))
            break;
    for (int w = 0; w < words; w++)
        for (int r = done; r < stride; r++)
            for (int e = 0; e < WORD_ITEMS; e++) {
                const int c = w * WORD_ITEMS + e;
                put_word((lti_word *)dst + (int64_t)w * stride + r, e,
                         r < n && c < dim ? lti_get(src, t, r * ld + c) : 0.0f);
            }
}

static void pack_values(void *dst, int64_t panel_words, const void *src, lt_dtype t, int64_t ld,
                        int64_t key, int n, int dim)
{
#if HALF
    if (t == LT_BF16 && key % 2 == 0) {
        for (int k = 0; k < n; k += 2)
            for (int c = 0; c < dim; c += NR)
                pack_pairs((lti_word *)dst + c / NR * panel_words + (key + k) / 2 * NR,
                           (const uint16_t *)src + (key + k) * ld + c, k + 1 < n ? ld : 0, dim - c);
        return;
    }
#endif
    for (int64_t k = key; k < key + n; k++)
        for (int c0 = 0, panel = 0; c0 < dim; c0 += NR, panel++) {
            lti_word *to = (lti_word *)dst + panel * panel_words + k / WORD_ITEMS * NR;
            for (int c = 0; c < NR; c++)
                put_word(to, PAIRS ? c * 2 + k % 2 : c,
                         c0 + c < dim ? lti_get(src, t, k * ld + c0 + c) : 0.0f);
        }
}

#if !HALF
static inline vf vf_total(vf sums)
{
    return sums;
}
#endif

/* The next line of what will be needed soon, into the second cache: there are always enough multiply-adds to wait on. */
static inline void ask_for(const lti_word **line, int *left)
{
    if (*left <= 0) return;
    __builtin_prefetch(*line, 0, 2);
    *line += LINE_WORDS;
    --*left;
}

/* acc = the products of `words` words of `rows` rows (a constant where this is called), next to each other at `row`, from word to word at
 * `step`, with those of a panel. */
static inline __attribute__((always_inline)) void
sum_run(vf (*acc)[2], const lti_word *a, const int row, const int step, const lti_word *b,
        int words, const lti_word **line, int *left, const int rows)
{
    for (int r = 0; r < rows; r++)
        acc[r][0] = acc[r][1] = vf_set1(0);
    for (int w = 0; w < words; w++, a += step, b += NR) {
        const vf b0 = vf_load(b), b1 = vf_load(b + VW);
        ask_for(line, left);
        for (int r = 0; r < rows; r++) {
            const vf x = vf_word(a + r * row);
            acc[r][0] = vf_dot(acc[r][0], x, b0);
            acc[r][1] = vf_dot(acc[r][1], x, b1);
        }
    }
}

/* The same with a sum for each run of f16, and these added up. */
static inline __attribute__((always_inline)) void
sum_words(vf (*acc)[2], const lti_word *a, const int row, const int step, const lti_word *b,
          int words, const lti_word *line, int left, const int rows)
{
#if HALF
    sum_run(acc, a, row, step, b, words < RUN ? words : RUN, &line, &left, rows);
    for (int w = RUN; w < words; w += RUN) {
        vf past[MR][2];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            past[r][0] = acc[r][0];
            past[r][1] = acc[r][1];
        }
        sum_run(acc, a + w * step, row, step, b + w * NR, words - w < RUN ? words - w : RUN, &line,
                &left, rows);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            acc[r][0] = vf_join(acc[r][0], past[r][0]);
            acc[r][1] = vf_join(acc[r][1], past[r][1]);
        }
    }
#else
    sum_run(acc, a, row, step, b, words, &line, &left, rows);
#endif
}

/* One panel for `rows` rows, a constant where this is called. */
static inline __attribute__((always_inline)) void score_panel(float *s, const lti_word *a,
                                                              const lti_word *b, int words,
                                                              const lti_word *line, int left,
                                                              const int rows)
{
    vf acc[MR][2];
    sum_words(acc, a, 1, Q_STRIDE, b, words, line, left, rows);
    for (int r = 0; r < rows; r++, s += LTI_ATTN_LD) {
        vf_store(s, vf_total(acc[r][0]));
        vf_store(s + VW, vf_total(acc[r][1]));
    }
}

static void scores(float *s, const void *q, const lti_word *const *panel, int npanels, int words,
                   const lti_word *const *ahead, int lines, int rows)
{
    for (int p = 0; p < npanels; p++, s += NR) {
        const int left = ahead[p] ? lines : 0;
        if (rows > FEW)
            score_panel(s, q, panel[p], words, ahead[p], left, MR);
        else
            score_panel(s, q, panel[p], words, ahead[p], left, FEW);
    }
}

/* Row after row, so that what a piece writes beyond its columns is written over by the next piece and the next row. */
static void gather(lti_word *dst, const lti_attn_piece *piece, int n, int words)
{
    for (int w = 0; w < words; w++)
        for (int i = 0; i < n; i++)
            memcpy(dst + w * NR + piece[i].col, piece[i].from + w * NR, NR * sizeof *dst);
}

static void shift(float *s, float scale, const float *bias, const float *rel, int ncols, int rows)
{
    for (int r = 0; r < rows; r++, s += LTI_ATTN_LD)
        for (int j = 0; j < ncols; j++) {
            const float x = s[j] * scale + (rel ? bias[j] + rel[j - r] : bias[j]);
            s[j] = bias[j] == -INFINITY ? -INFINITY : x;
        }
}

static void row_tops(float *top, const float *s, int ncols, int rows)
{
    for (int r = 0; r < rows; r++, s += LTI_ATTN_LD) {
        vf m0 = vf_load(s), m1 = vf_load(s + VW);
        for (int j = NR; j < ncols; j += NR) {
            m0 = vf_max(m0, vf_load(s + j));
            m1 = vf_max(m1, vf_load(s + j + VW));
        }
        top[r] = vf_top(vf_max(m0, m1));
    }
}

static void softmax(float *s, void *p, int ncols, float scale, lti_attn_rows *st, int rows)
{
    _Alignas(64) float top[LTI_ATTN_LANES] = {0};
    row_tops(top, s, ncols, rows);
    /* never under -FLT_MAX: then no difference of two infinities can come up */
    for (int i = 0; i < LTI_ATTN_LANES; i += VW) {
        const vf old = vf_load(st->top + i),
                 now = vf_max(old, vf_mul(vf_load(top + i), vf_set1(scale)));
        vf_store(st->top + i, now);
        vf_store(st->fade + i, vf_exp2(vf_sub(old, now)));
    }
    const vf c = vf_set1(scale);
    for (int r = 0; r < rows; r++, s += LTI_ATTN_LD) {
        const vf m = vf_set1(-st->top[r]);
        vf s0 = vf_set1(0), s1 = s0;
        for (int j = 0; j < ncols; j += NR) {
            const vf p0 = vf_exp2(vf_fma(vf_load(s + j), c, m)),
                     p1 = vf_exp2(vf_fma(vf_load(s + j + VW), c, m));
            s0 = vf_add(s0, p0);
            s1 = vf_add(s1, p1);
#if PAIRS
            put_weights((lti_word *)p + r * P_LD + j / 2, p0, p1);
#else
            vf_store(s + j, p0);
            vf_store(s + j + VW, p1);
#endif
        }
        vf_store(st->sum[r], vf_fma(vf_load(st->sum[r]), vf_set1(st->fade[r]), vf_add(s0, s1)));
    }
    (void)p;
}

/* One panel of the output, `rows` rows of it: o = o * fade + weights . V over n words of keys; fade NULL: o is not read. */
static inline __attribute__((always_inline)) void
value_rows(float *o, const lti_word *p, const lti_word *v, int n, const float *fade,
           const lti_word *line, int lines, const int rows)
{
    vf acc[MR][2];
    sum_words(acc, p, P_LD, 1, v, n, line, lines, rows);
    if (fade) /* unrolled whole, or gcc puts the block into memory for it */
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++, o += NR) {
            vf_store(o, vf_fma(vf_load(o), vf_set1(fade[r]), vf_total(acc[r][0])));
            vf_store(o + VW, vf_fma(vf_load(o + VW), vf_set1(fade[r]), vf_total(acc[r][1])));
        }
    else
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++, o += NR) {
            vf_store(o, vf_total(acc[r][0]));
            vf_store(o + VW, vf_total(acc[r][1]));
        }
}

/* Not inlined: with the loop over parts around it clang keeps the register block in memory. */
static __attribute__((noinline)) void value_block(float *o, const lti_word *p, const lti_word *v,
                                                  int n, const float *fade, const lti_word *line,
                                                  int lines, int rows)
{
    if (rows > FEW)
        value_rows(o, p, v, n, fade, line, lines, MR);
    else
        value_rows(o, p, v, n, fade, line, lines, FEW);
}

static const float no_fade[LTI_ATTN_LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

#if PAIRS
/* A part begins or ends in the middle of a pair: the other key of the pair may be anything, so it is masked away. */
static void value_half(float *o, const lti_word *p, const lti_word *v, bool second,
                       const float *fade, int rows)
{
    _Alignas(64) lti_word half[NR];
    const uint32_t mask = second ? 0xffff0000u : 0x0000ffffu;
    for (int j = 0; j < NR; j++) {
        uint32_t u;
        memcpy(&u, v + j, sizeof u);
        u &= mask;
        memcpy(half + j, &u, sizeof u);
    }
    value_block(o, p, half, 1, fade, NULL, 0, rows);
}
#endif

static void values(float *o, const void *weights, const lti_attn_part *part, int nparts,
                   const lti_word *v, int64_t panel_words, int npanels, const float *fade,
                   int64_t ahead, int lines, int rows)
{
    for (int c = 0; c < npanels; c++, o += MR * NR, v += panel_words) {
        const float *f = fade;
        for (int i = 0; i < nparts; i++) {
            int n = part[i].n;
            const lti_word *p = (const lti_word *)weights + part[i].col / WORD_ITEMS;
            const lti_word *from = v + (int64_t)(part[i].key / WORD_ITEMS) * NR;
#if PAIRS
            if (part[i].key & 1) {
                value_half(o, p++, from, true, f, rows);
                from += NR;
                f = no_fade;
                n--;
            }
            if (n & 1) {
                value_half(o, p + n / 2, from + n / 2 * NR, false, f, rows);
                f = no_fade;
            }
#endif
            if (n >= WORD_ITEMS) {
                value_block(o, p, from, n / WORD_ITEMS, f, v + ahead, i ? 0 : lines, rows);
                f = no_fade;
            }
        }
    }
}

static void finish_row(void *out, lt_dtype t, const float *o, float inv, int dim)
{
    for (int c0 = 0; c0 < dim; c0 += NR, o += MR * NR) {
        const int cols = dim - c0 < NR ? dim - c0 : NR;
        if (t == LT_F32)
            for (int c = 0; c < cols; c++)
                ((float *)out)[c0 + c] = o[c] * inv;
        else
            for (int c = 0; c < cols; c++)
                ((uint16_t *)out)[c0 + c] = lti_f32_to_bf16(o[c] * inv);
    }
}

static void finish(void *out, lt_dtype t, int64_t ld, const float *o, const lti_attn_rows *st,
                   int n, int dim, float *lse)
{
    const size_t item = t == LT_F32 ? 4 : 2;
    for (int r = 0; r < n; r++) {
        char *to = (char *)out + (size_t)(r * ld) * item;
        float sum = 0;
        for (int i = 0; i < VW; i++)
            sum += st->sum[r][i];
        const bool empty =
            st->top[r] == -FLT_MAX; /* no key, or only logits of -inf: then o may be anything */
        if (empty)
            memset(to, 0, (size_t)dim * item);
        else
            finish_row(to, t, o + r * NR, 1.0f / sum, dim);
        if (lse) lse[r] = empty ? -INFINITY : (st->top[r] + log2f(sum)) * 0.6931471805599453f;
    }
}

#define LTI_ATTN_TABLE                                                                          \
    {                                                                                           \
        .rows = MR, .q_stride = Q_STRIDE, .keys = NR, .pairs = PAIRS, .half = HALF,             \
        .pack_rows = pack_rows, .pack_values = pack_values, .gather = gather, .scores = scores, \
        .shift = shift, .softmax = softmax, .values = values, .finish = finish                  \
    }
