/* attention_cpu.c: flash attention on a CPU: any plan, any sizes, no lq x lk storage.
 *
 *     for a few heads at a time:
 *         in parallel: pack the keys into panels [head words][keys] and the values into panels [keys][columns]
 *         in parallel, a task a query block (up to BLOCK_ROWS rows of one plan tile):
 *             for each step (128 listed keys, whatever runs they come from; fewer in the last)
 *                 gather the keys that do not stand as a panel already
 *                 for each row block (14 rows on AVX-512): logits -> softmax -> output += weights . values
 *
 * The panels of a step (128 KiB at head size 128) stay in the second cache for all row blocks; logits and weights of a
 * row block (8 KiB) stay in the first. Packed panels begin at multiples of their width; where a run does not, or ends within one, the
 * listed keys are copied into panels of their own, for all row blocks of the task: a step costs what its keys cost, wherever they are.
 * Columns behind the last listed key may hold anything: their logits become -inf and their values are never read.
 *
 * A row's sums are ordered by its list of keys alone. Memory: packed keys and values of as many heads as fit PACK_BYTES,
 * at least one: 33 MB at 32,760 keys of head size 128.
 *
 * Tried, in the order of trying (AVX-512, one core of an Emerald Rapids server with other work on it, GFLOP/s of counted
 * operations, best of 12 to 25 in pairs; the FMA peak was 217):
 *     first version, steps of 256 keys             4,680 keys: 182 at head size 128, 173 at 64; 32,760 keys: 136
 *     the next step is prefetched meanwhile        32,760 keys: 156 (504 rows, so a tenth of it is packing)
 *     steps of 128 keys instead of 256             head size 384: 148 -> 163; 128 and 64 the same or better
 *     blocks of 252 rows instead of 126            nothing beyond the noise; head size 128 a little worse
 *     sums from zero in every step                 same speed; error of equal weights over 512 keys 1e-5 -> 2e-6
 *     multiply-adds written as asm                 gcc the same; clang 14 from 50 to 175
 *     gathering listed keys                        boxes of 120 keys, 32,760 of them, density 0.3: 2.1 -> 2.9 times the dense speed
 *     a last row block of 8 rows                   see attention/README.md
 * What remains at head size 128 is 5 % softmax and 5 % loop ends, at 64 twice that.
 */
#include "kernels/attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    BLOCK_ROWS = 126,
    PACK_BYTES = 32 << 20,
    PACK_KEYS = 256,
    MAX_PANELS = 32,
    REL_PAD = 32,
    LINE_WORDS = 16
};

#define LOG2E 1.4426950408889634f

/* Up to LTI_ATTN_STEP keys that are read together, in the order of the list: columns are places in it. */
typedef struct step {
    int npanels, nparts;
    int32_t panel[MAX_PANELS]; /* packed panel that these columns are; -1: gathered */
    int32_t first[MAX_PANELS]; /* part that the first column is in */
    bool plain;                /* all columns are listed, without bias */
    lti_attn_part part[LTI_ATTN_STEP];
    float bias[LTI_ATTN_STEP]; /* times log2 e; -inf: not listed */
} step;

typedef struct cursor {
    const lt_run *run, *end;
    int32_t pos;
} cursor;

typedef struct block {
    int32_t tile, row, rows;
} block;

typedef struct job {
    lt_dev *dev;
    const lt_attention_args *a;
    const lti_attn_isa *isa;
    int64_t cols, key_panels, head_words, key_words, out_panels;
    float scale; /* of logits in base 2, >= 0 */
    block *blocks;
    int64_t nblocks, pack_tasks; /* a head */
    lti_word *k, *v;             /* packed, k_words and v_words a head */
    int64_t k_words, v_words;
    float *rel; /* one line of every distance a head, base 2 */
    int64_t rel_items;
    int heads; /* at a time */
    int first; /* head of this round */
    size_t q_bytes, o_bytes, st_bytes, s_bytes, p_bytes;
} job;

static const void *head_at(const job *j, const lt_mat *m, int64_t row, int head)
{
    const int64_t item = row * lti_ld(m, j->cols) + (int64_t)head * j->a->head_dim;
    return (const char *)m->data + item * (int64_t)lt_dtype_size(m->dtype);
}

/* ---- steps ---- */

static void add_part(step *s, int32_t begin, int32_t end, int col)
{
    lti_attn_part *last = s->nparts ? &s->part[s->nparts - 1] : NULL;
    if (last && last->key + last->n == begin && last->col + last->n == col)
        last->n += end - begin;
    else
        s->part[s->nparts++] = (lti_attn_part){.key = begin, .n = end - begin, .col = col};
}

/* Which columns are a packed panel as it is. */
static void find_panels(step *s, int keys)
{
    int at = 0;
    for (int p = 0; p < s->npanels; p++) {
        const int col = p * keys;
        while (s->part[at].col + s->part[at].n <= col)
            at++;
        const lti_attn_part *t = &s->part[at];
        const int32_t key = t->key + col - t->col;
        const bool whole = t->col <= col && t->col + t->n >= col + keys && key % keys == 0;
        s->first[p] = at;
        s->panel[p] = whole ? key / keys : -1;
    }
}

/* False: no keys left. pairs: even keys stand in even columns. */
static bool next_step(step *s, cursor *c, int keys, bool pairs)
{
    int col = 0;
    s->nparts = 0;
    s->plain = true;
    while (c->run < c->end && col < LTI_ATTN_STEP) {
        if (pairs && (col ^ c->pos) & 1) {
            s->bias[col++] = -INFINITY;
            s->plain = false;
            continue;
        }
        const int n = (int)lti_min64(c->run->end - c->pos, LTI_ATTN_STEP - col);
        const float bias = c->run->flags & LT_RUN_BIAS ? c->run->bias * LOG2E : 0.0f;
        for (int i = 0; i < n; i++)
            s->bias[col + i] = bias;
        add_part(s, c->pos, c->pos + n, col);
        s->plain = s->plain && bias == 0;
        col += n;
        c->pos += n;
        if (c->pos == c->run->end && ++c->run < c->end) c->pos = c->run->begin;
    }
    s->npanels = (col + keys - 1) / keys;
    s->plain = s->plain && col == s->npanels * keys;
    for (; col < s->npanels * keys; col++)
        s->bias[col] = -INFINITY;
    find_panels(s, keys);
    return s->npanels > 0;
}

/* ---- tasks ---- */

/* What turned keys are held in until they are packed. */
static lt_dtype turned_type(const lti_attn_isa *isa)
{
    return isa->pairs && !isa->half ? LT_BF16 : LT_F32;
}

/* One key of a head, turned. */
static void turn_key(const job *j, char *to, const void *from, int64_t key)
{
    const lt_attention_args *a = j->a;
    const lt_rope *rope = a->k_rope;
    const lt_dtype t = turned_type(j->isa);
    int64_t c = 0;
    for (int axis = 0; axis < 3; axis++) {
        const float *cs =
            rope->table[axis] + (int64_t)rope->pos[3 * key + axis] * rope->pairs[axis] * 2;
        for (int32_t p = 0; p < rope->pairs[axis]; p++, c += 2, cs += 2) {
            const float x = lti_get(from, a->k.dtype, c), y = lti_get(from, a->k.dtype, c + 1);
            lti_put(to, t, c, x * cs[0] - y * cs[1]);
            lti_put(to, t, c + 1, x * cs[1] + y * cs[0]);
        }
    }
}

/* n keys of one panel. Turning them costs lk * head_dim, whatever the number of queries. */
static void pack_keys(const job *j, lti_word *to, int64_t key, int n, int head, char *turned)
{
    const lt_attention_args *a = j->a;
    const lti_attn_isa *isa = j->isa;
    const void *from = head_at(j, &a->k, key, head);
    lt_dtype t = a->k.dtype;
    int64_t ld = lti_ld(&a->k, j->cols);
    if (a->k_rope) {
        t = turned_type(isa);
        const size_t row = (size_t)a->head_dim * lt_dtype_size(t);
        for (int i = 0; i < n; i++)
            turn_key(j, turned + (size_t)i * row, head_at(j, &a->k, key + i, head), key + i);
        from = turned;
        ld = a->head_dim;
    }
    isa->pack_rows(to, isa->keys, from, t, ld, n, a->head_dim);
}

static void pack_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    const lt_attention_args *a = j->a;
    const int slot = (int)(task / j->pack_tasks), head = j->first + slot, keys = j->isa->keys;
    const int64_t begin = task % j->pack_tasks * PACK_KEYS,
                  end = lti_min64(begin + PACK_KEYS, a->lk);
    lti_word *k = j->k + slot * j->k_words, *v = j->v + slot * j->v_words;
    for (int64_t key = begin; key < end; key += keys)
        pack_keys(j, k + key / keys * j->head_words * keys, key, (int)lti_min64(keys, end - key),
                  head, lti_scratch(j->dev, thread));
    j->isa->pack_values(v, j->key_words * keys, head_at(j, &a->v, 0, head), a->v.dtype,
                        lti_ld(&a->v, j->cols), begin, (int)(end - begin), a->head_dim);
}

static void flip_signs(const job *j, lti_word *q, int64_t words)
{
    for (int64_t i = 0; i < words; i++) {
        uint32_t u;
        memcpy(&u, q + i, sizeof u);
        u ^= j->isa->pairs ? 0x80008000u : 0x80000000u;
        memcpy(q + i, &u, sizeof u);
    }
}

static void pack_queries(const job *j, lti_word *q, const block *b, int head)
{
    const lti_attn_isa *isa = j->isa;
    const int64_t words = j->head_words * isa->q_stride;
    for (int32_t r = 0; r < b->rows; r += isa->rows, q += words) {
        isa->pack_rows(q, isa->q_stride, head_at(j, &j->a->q, b->row + r, head), j->a->q.dtype,
                       lti_ld(&j->a->q, j->cols), (int)lti_min64(isa->rows, b->rows - r),
                       j->a->head_dim);
        if (j->a->scale < 0) flip_signs(j, q, words);
    }
}

/* What to fetch from the next step while a row block works on this one: slice `i` of `n`, so that a step arrives evenly
 * during the step before it. */
typedef struct ahead {
    const lti_word *k[MAX_PANELS];
    int64_t v; /* word of a panel */
    int k_lines, v_lines;
} ahead;

/* Packed panel that the first key of panel p stands in. */
static int64_t first_key(const step *s, int p, int keys)
{
    const lti_attn_part *t = &s->part[s->first[p]];
    const int into = p * keys - t->col;
    return (t->key + (into > 0 ? into : 0)) / keys;
}

static ahead look_ahead(const job *j, const step *next, int slot, int i, int n)
{
    ahead h = {0};
    if (!next->npanels) return h;
    const int64_t panel_words = j->head_words * j->isa->keys,
                  k_lines = (panel_words / LINE_WORDS + n - 1) / n;
    for (int p = 0; p < next->npanels; p++)
        h.k[p] = j->k + slot * j->k_words + first_key(next, p, j->isa->keys) * panel_words +
                 i * k_lines * LINE_WORDS;
    h.k_lines = (int)k_lines;
    const int64_t pair = j->isa->pairs ? 2 : 1, row_words = j->isa->keys;
    const int64_t v_lines = (next->part[0].n / pair * row_words / LINE_WORDS + n - 1) / n;
    h.v = next->part[0].key / pair * row_words + i * v_lines * LINE_WORDS;
    h.v_lines = (int)v_lines;
    return h;
}

/* The panels of a step, those that are gathered in `own`. */
static void find_keys(const job *j, const step *s, int slot, lti_word *own,
                      const lti_word *panel[MAX_PANELS])
{
    const int keys = j->isa->keys;
    const int64_t panel_words = j->head_words * keys;
    const lti_word *k = j->k + slot * j->k_words;
    for (int p = 0; p < s->npanels; p++, own += panel_words) {
        panel[p] = s->panel[p] < 0 ? own : k + s->panel[p] * panel_words;
        if (s->panel[p] >= 0) continue;
        lti_attn_piece piece[LTI_ATTN_STEP];
        int n = 0;
        const int end = (p + 1) * keys;
        for (int32_t i = s->first[p]; i < s->nparts && s->part[i].col < end; i++) {
            const lti_attn_part *t = &s->part[i];
            int col = t->col > p * keys ? t->col : p * keys;
            while (col < t->col + t->n && col < end) {
                const int32_t key = t->key + col - t->col;
                piece[n++] = (lti_attn_piece){.from = k + key / keys * panel_words + key % keys,
                                              .col = col - p * keys};
                col += keys - key % keys;
            }
        }
        j->isa->gather(own, piece, n, (int)j->head_words);
    }
}

/* Logits of a step with distances between rows and keys; columns that are not listed become -inf. */
static void shift_parts(const job *j, const step *s, int32_t row, int n, int slot, float *logits)
{
    const float *rel = j->rel + slot * j->rel_items + j->a->lq - 1 + REL_PAD - row;
    int col = 0;
    for (int i = 0; i <= s->nparts; i++) {
        const lti_attn_part *t = &s->part[i];
        const int to = i < s->nparts ? t->col : s->npanels * j->isa->keys;
        if (to > col) j->isa->shift(logits + col, j->scale, s->bias + col, NULL, to - col, n);
        if (i == s->nparts) break;
        j->isa->shift(logits + to, j->scale, s->bias + to, rel + t->key, t->n, n);
        col = to + t->n;
    }
}

/* One step for one row block of n rows, whose first row is `row`. */
static void row_block(const job *j, const step *s, const lti_word *const *panel, const ahead *h,
                      bool first, int32_t row, int n, int slot, const lti_word *q, float *logits,
                      void *weights, lti_attn_rows *st, float *o)
{
    const lti_attn_isa *isa = j->isa;
    isa->scores(logits, q, panel, s->npanels, (int)j->head_words, h->k, h->k_lines, n);
    const bool shifted = !s->plain || j->rel;
    if (j->rel)
        shift_parts(j, s, row, n, slot, logits);
    else if (shifted)
        isa->shift(logits, j->scale, s->bias, NULL, s->npanels * isa->keys, n);
    isa->softmax(logits, weights, s->npanels * isa->keys, shifted ? 1.0f : j->scale, st, n);
    isa->values(o, weights, s->part, s->nparts, j->v + slot * j->v_words, j->key_words * isa->keys,
                (int)j->out_panels, first ? NULL : st->fade, h->v, h->v_lines, n);
}

static void block_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    const lt_attention_args *a = j->a;
    const lti_attn_isa *isa = j->isa;
    const int slot = (int)(task / j->nblocks), head = j->first + slot;
    const block *b = &j->blocks[task % j->nblocks];
    const int nrb = (b->rows + isa->rows - 1) / isa->rows;
    char *mem = lti_scratch(j->dev, thread);
    step *s = (step *)(void *)mem;
    lti_word *q = (lti_word *)(void *)(mem += lti_round_up(2 * sizeof *s, 64));
    float *o = (float *)(void *)(mem += j->q_bytes), *logits = (float *)(void *)(mem += j->o_bytes);
    void *weights = isa->pairs ? (void *)(mem + j->s_bytes) : logits;
    lti_attn_rows *st = (lti_attn_rows *)(void *)(mem + j->s_bytes + j->p_bytes);
    lti_word *own = (lti_word *)(void *)(mem + j->s_bytes + j->p_bytes + j->st_bytes);
    const lti_word *panel[MAX_PANELS];
    const int64_t q_words = j->head_words * isa->q_stride,
                  o_items = j->out_panels * isa->rows * isa->keys;

    pack_queries(j, q, b, head);
    memset(st, 0, (size_t)nrb * sizeof *st);
    for (int i = 0; i < nrb; i++)
        for (int r = 0; r < LTI_ATTN_LANES; r++)
            st[i].top[r] = -FLT_MAX;
    const lt_attn_plan *p = a->plan;
    const int32_t *list =
        p->row + (int64_t)(p->group_of_head ? p->group_of_head[head] : 0) * p->nq + b->tile;
    cursor c = {.run = p->runs + list[0], .end = p->runs + list[1]};
    if (c.run < c.end) c.pos = c.run->begin;
    step *now = s, *next = s + 1;
    bool first = true;
    for (bool more = next_step(now, &c, isa->keys, isa->pairs); more; first = false) {
        more = next_step(next, &c, isa->keys, isa->pairs);
        find_keys(j, now, slot, own, panel);
        for (int i = 0; i < nrb; i++) {
            const ahead h = look_ahead(j, next, slot, i, nrb);
            const int n = (int)lti_min64(isa->rows, b->rows - i * isa->rows);
            row_block(j, now, panel, &h, first, b->row + i * isa->rows, n, slot, q + i * q_words,
                      logits, weights, &st[i], o + i * o_items);
        }
        step *const t = now;
        now = next;
        next = t;
    }
    for (int i = 0; i < nrb; i++) {
        const int32_t row = b->row + i * isa->rows;
        const int64_t item = row * lti_ld(&a->out, j->cols) + (int64_t)head * a->head_dim;
        isa->finish((char *)a->out.data + item * (int64_t)lt_dtype_size(a->out.dtype), a->out.dtype,
                    lti_ld(&a->out, j->cols), o + i * o_items, &st[i],
                    (int)lti_min64(isa->rows, b->rows - i * isa->rows), a->head_dim,
                    a->lse ? a->lse + head * a->lq + row : NULL);
    }
}

/* ---- the call ---- */

static int64_t cut_blocks(const lt_attn_plan *p, int rows, block *out)
{
    int64_t n = 0;
    for (int32_t t = 0; t < p->nq; t++) {
        const int32_t all = p->q_off[t + 1] - p->q_off[t],
                      parts = (all + BLOCK_ROWS - 1) / BLOCK_ROWS;
        const int32_t each =
            parts ? (int32_t)lti_round_up((size_t)((all + parts - 1) / parts), (size_t)rows) : 1;
        for (int32_t r = 0; r < all; r += each, n++)
            if (out)
                out[n] = (block){
                    .tile = t, .row = p->q_off[t] + r, .rows = (int32_t)lti_min64(each, all - r)};
    }
    return n;
}

static void fill_rel(const job *j)
{
    const lt_attention_args *a = j->a;
    const int64_t m = a->rel_max;
    for (int slot = 0; slot < j->heads && j->first + slot < a->heads; slot++) {
        const float *from = a->rel_bias + (j->first + slot) * (2 * m + 1) + m;
        for (int64_t i = 0; i < j->rel_items; i++) {
            const int64_t d = i - REL_PAD - (a->lq - 1);
            j->rel[slot * j->rel_items + i] = LOG2E * from[d < -m ? -m : lti_min64(d, m)];
        }
    }
}

/* All shared scratch in one piece: blocks, distances, keys, values. */
static lt_status get_memory(job *j)
{
    const lt_attention_args *a = j->a;
    const lti_attn_isa *isa = j->isa;
    const size_t head_bytes = (size_t)(j->k_words + j->v_words + j->rel_items) * sizeof(lti_word);
    const size_t fit = head_bytes ? PACK_BYTES / head_bytes : 1;
    j->heads = fit < 1 ? 1 : (int)lti_min64((int64_t)fit, a->heads);
    const size_t heads = (size_t)j->heads,
                 block_bytes = lti_round_up((size_t)j->nblocks * sizeof(block), 64);
    const size_t rel_bytes = lti_round_up(heads * (size_t)j->rel_items * sizeof(float), 64);
    const size_t k_bytes = heads * (size_t)j->k_words * sizeof(lti_word);
    void *mem;
    LT_TRY(lti_scratch_shared(j->dev, &mem,
                              block_bytes + rel_bytes + k_bytes +
                                  heads * (size_t)j->v_words * sizeof(lti_word)));
    char *at = mem;
    j->blocks = mem;
    j->rel = a->rel_bias ? (float *)(void *)(at + block_bytes) : NULL;
    j->k = (lti_word *)(void *)(at + block_bytes + rel_bytes);
    j->v = (lti_word *)(void *)(at + block_bytes + rel_bytes + k_bytes);

    const size_t nrb = (size_t)((BLOCK_ROWS + isa->rows - 1) / isa->rows);
    j->q_bytes = lti_round_up(nrb * (size_t)(j->head_words * isa->q_stride) * sizeof(lti_word), 64);
    j->o_bytes =
        lti_round_up(nrb * (size_t)(j->out_panels * isa->rows * isa->keys) * sizeof(float), 64);
    j->s_bytes = lti_round_up((size_t)isa->rows * LTI_ATTN_LD * sizeof(float), 64);
    j->p_bytes = isa->pairs ? j->s_bytes : 0;
    j->st_bytes = lti_round_up(nrb * sizeof(lti_attn_rows), 64);
    const size_t turn = a->k_rope ? (size_t)(isa->keys * a->head_dim) * sizeof(float) : 0;
    const size_t own = (size_t)(LTI_ATTN_STEP * j->head_words + isa->keys) * sizeof(lti_word);
    const size_t work = lti_round_up(2 * sizeof(step), 64) + j->q_bytes + j->o_bytes + j->s_bytes +
                        j->p_bytes + j->st_bytes + own;
    return lti_scratch_reserve(j->dev, work > turn ? work : turn);
}

/* Of arguments that have been checked. */
static lt_status run(lt_dev *dev, const lt_attention_args *a, const lti_attn_isa *isa)
{
    const int64_t word_items = isa->pairs ? 2 : 1, keys = isa->keys;
    job j = {.dev = dev, .a = a, .isa = isa, .cols = (int64_t)a->heads * a->head_dim};
    j.scale = fabsf(a->scale) * LOG2E;
    j.key_panels = (a->lk + keys - 1) / keys;
    j.head_words = (a->head_dim + word_items - 1) / word_items;
    j.key_words = (a->lk + word_items - 1) / word_items;
    j.out_panels = (a->head_dim + keys - 1) / keys;
    j.k_words = j.key_panels * j.head_words * keys;
    j.v_words = j.out_panels * j.key_words * keys;
    j.rel_items =
        a->rel_bias ? (int64_t)lti_round_up((size_t)(a->lq + a->lk) + 2 * REL_PAD, 16) : 0;
    j.nblocks = cut_blocks(a->plan, isa->rows, NULL);
    j.pack_tasks = (a->lk + PACK_KEYS - 1) / PACK_KEYS;
    LT_TRY(get_memory(&j));
    cut_blocks(a->plan, isa->rows, j.blocks);
    for (j.first = 0; j.first < a->heads; j.first += j.heads) {
        const int64_t heads = lti_min64(j.heads, a->heads - j.first);
        if (j.rel) fill_rel(&j);
        lti_parallel(dev, heads * j.pack_tasks, pack_task, &j);
        lti_parallel(dev, heads * j.nblocks, block_task, &j);
    }
    return LT_OK;
}

static lt_status attention(lt_dev *dev, const lt_attention_args *a, const lti_attn_isa *isa)
{
    LT_TRY(lti_check_attention(dev, a));
    return run(dev, a, isa);
}

static lt_status attention_portable(lt_dev *dev, const lt_attention_args *a)
{
    return attention(dev, a, &lti_attn_portable);
}

#if defined(__x86_64__)
static lt_status attention_avx2(lt_dev *dev, const lt_attention_args *a)
{
    return attention(dev, a, &lti_attn_avx2);
}

static lt_status attention_avx512(lt_dev *dev, const lt_attention_args *a)
{
    return attention(dev, a, &lti_attn_avx512);
}

static lt_status attention_avx512bf16(lt_dev *dev, const lt_attention_args *a)
{
    return attention(dev, a, a->q.dtype == LT_BF16 ? &lti_attn_avx512bf16 : &lti_attn_avx512);
}

static lt_status attention_avx512fp16(lt_dev *dev, const lt_attention_args *a)
{
    bool half = a->q.dtype == LT_BF16;
    LT_TRY(lti_check_attention(dev, a));
    if (half) LT_TRY(lti_attn_fits(&half, dev, a));
    return run(dev, a, half ? &lti_attn_avx512fp16 : &lti_attn_avx512);
}
#endif

void lti_attention_register(lt_kernels *k, lti_isa isa)
{
    k->attention = attention_portable;
#if defined(__x86_64__)
    if (isa >= LTI_ISA_AVX2) k->attention = attention_avx2;
    if (isa >= LTI_ISA_AVX512) k->attention = attention_avx512;
    if (isa >= LTI_ISA_AVX512BF16) k->attention = attention_avx512bf16;
    if (isa >= LTI_ISA_AVX512FP16) k->attention = attention_avx512fp16;
#else
    (void)isa;
#endif
}
