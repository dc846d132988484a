/* gemm.c: matrix products and convolutions as one blocked product over packed weights.
 *
 *   task     a block of outputs (by x bx pixels) x some panels of columns, in one worker's cache
 *   group      some chunks: the inputs that the block needs of them (with their halo) are packed densely, widened to f32 where
 *              the micro-kernel multiplies in f32: each input element once for all taps and panels. f32 is read where it lies,
 *              wide pixels with a halo excepted
 *   panel        nr columns
 *   chunk          kc channels of all taps of a panel; widened into a buffer that stays in the first caches
 *   tile             mr x nr sums in registers, over all taps and channels of the chunk (gemm_simd.h)
 *
 * A convolution is a sum over its taps of shifted matrix products, so there is no unfolded copy of the input. Sums of a
 * chunk are added up in f32 in a buffer: of one panel where a group holds all chunks, else of the whole block; the last chunk's
 * tile goes through the epilogue while it is hot. */
#include "kernels/gemm.h"

/* How the outputs are cut, and what a worker's scratch holds. Counts are of outputs, sizes in bytes. */
typedef struct blocks {
    int64_t by, bx, ny, nx; /* outputs in a block, number of blocks */
    int64_t panels, ncols;  /* panels in a block, number of column blocks */
    int64_t group;          /* chunks whose input is held at the same time */
    int64_t in_h, in_w;     /* input of a block */
    int64_t a_bytes, c_bytes, b_bytes;
    double cost; /* estimated cycles */
} blocks;

typedef struct product {
    const lti_gemm *g;
    const lti_gemm_ops *ops;
    lt_dev *dev;
    blocks s;
    size_t element;   /* bytes of an input channel as the tile reads it */
    bool in_place;    /* the tile reads the input where it lies */
    int frames;       /* frames that are read, in order of first use */
    int frame[3];     /* their index in g->frame */
    int slot[3];      /* back: packed position of a frame */
    int64_t dy0, dx0; /* least tap */
    int64_t dh, dw;   /* reach of the taps beyond one pixel */
} product;

/* What the next steps will read is called into the second cache bit by bit, in and between tiles: a panel that would be waited
 * for costs as much as several tiles. */
enum { LINE = 64 };

typedef struct ahead {
    const char *panel;                              /* next lines of the weights */
    int64_t panel_left, panel_share;                /* bytes: in all, after each tile */
    int64_t pixels_left, pixels_share, pixel_bytes; /* input of the next chunk */
    int64_t f, y, x;                                /* the next pixel */
} ahead;

/* One task at work on one chunk. */
typedef struct work {
    const product *p;
    int64_t y0, x0, h, w; /* outputs of this block */
    int64_t sums;         /* in a row of it: w, or w + 2 that fold to w */
    int64_t panel0, panel1;
    int64_t chunk0, chunk1, chunk; /* of the group; at work */
    int64_t in_h, in_w;            /* pixels of input */
    const char *a;                 /* channel 0 of the group, upper left pixel, first frame */
    int64_t px, row, frame[3];     /* bytes from there to the next pixel and row, to each frame */
    char *packed;
    float *b, *c;
    ahead next;
} work;

const lti_gemm_ops *lti_gemm_ops_of(const lt_weight *w)
{
    switch (w->isa) {
#if defined(__x86_64__)
    case LTI_ISA_AVX2:
        return &lti_gemm_avx2;
    case LTI_ISA_AVX512:
        return &lti_gemm_avx512;
    case LTI_ISA_AVX512BF16:
        return w->pair == 2 ? &lti_gemm_avx512bf16 : &lti_gemm_avx512;
    case LTI_ISA_AVX512FP16:
        return w->half ? &lti_gemm_avx512fp16 : &lti_gemm_avx512;
#endif
    default:
        return &lti_gemm_portable;
    }
}

static int most_rows(const product *p, int width)
{
    return p->ops->mr[width / p->g->w->vl - 1];
}

/* Distance of packed pixels of `chunks` chunks: long ones an odd number of cache lines, so that the rows of a tile spread over
 * all sets. */
static int64_t pixel_bytes(const product *p, int64_t len, int64_t chunks)
{
    int64_t bytes =
        len * (int64_t)p->element + (p->g->w->half ? chunks * (int64_t)sizeof(float) : 0);
    if (bytes >= 256) bytes = lti_div_up(bytes, 64) * 64 | 64;
    return bytes;
}

/* ---- how to cut ---- */

enum { L2_BUDGET = 1400 << 10, BLOCK_MOST = 896 };

/* Sums in a row of a block that are not outputs. */
static int64_t more_sums(const lti_gemm *g)
{
    return g->narrow ? 2 : 0;
}

/* All chunks at once, so that the sums of one panel suffice, or as many as there is room for. */
static void fit_group(const product *p, blocks *s, int64_t pixels)
{
    const lt_weight *w = p->g->w;
    const int64_t width = w->panels > 1 ? w->nr : lti_panel_width(w, 0);
    const int64_t sums = s->by * (s->bx + more_sums(p->g)) * width * (int64_t)sizeof(float);
    s->group = w->chunks;
    s->a_bytes = pixels * pixel_bytes(p, w->kpad, w->chunks) + LINE;
    s->c_bytes = w->chunks == 1 && !p->g->narrow ? LTI_TILE_MAX * (int64_t)sizeof(float) : sums;
    if (w->chunks == 1 || s->a_bytes + s->b_bytes + s->c_bytes <= L2_BUDGET) return;
    s->c_bytes = sums * s->panels;
    const int64_t one = pixels * pixel_bytes(p, w->kc, 1),
                  room = L2_BUDGET - s->b_bytes - s->c_bytes;
    s->group = room < 2 * one ? 1 : room / one;
    s->a_bytes = pixels * pixel_bytes(p, s->group * w->kc, s->group) + LINE;
}

/* Fills the rest of a cut and its cost. The weights of the terms are cycles measured on AVX-512 machines; other
 * instruction sets scale all of them alike. */
static void weigh(const product *p, blocks *s)
{
    const lti_gemm *g = p->g;
    const lt_weight *w = g->w;
    const double k = (double)w->kpad * g->ntaps, outs = (double)(s->by * (s->bx + more_sums(g)));
    const double cols = (double)(s->panels * w->nr);
    s->in_h = (s->by - 1) * g->in_step + 1 + p->dh;
    s->in_w = (s->bx - 1) * g->in_step + 1 + p->dw;
    const int64_t pixels = p->frames * s->in_h * s->in_w;
    s->b_bytes = p->ops->widen && w->compute == LT_BF16
                     ? w->kc * g->ntaps * w->nr * (int64_t)sizeof(float)
                     : 0;
    fit_group(p, s, pixels);
    const double multiply = outs * cols * k / (w->half ? 54 : 32);
    const double pack = (double)(pixels * w->kpad) * (p->in_place ? 0.03 : 0.15);
    const double widen = s->b_bytes ? cols * k * 0.08 : 0;
    double sums = w->chunks > 1 ? outs * cols * (double)w->chunks * 0.1 : 0;
    if (s->group < w->chunks) sums += outs * cols * (double)lti_div_up(w->chunks, s->group) * 0.15;
    const int64_t tasks = s->ny * s->nx * s->ncols;
    const int64_t rounds = lti_div_up(tasks, lt_dev_threads(p->dev));
    s->cost = (double)rounds * (multiply + pack + widen + sums + 2000);
    if (s->a_bytes + s->c_bytes + s->b_bytes > L2_BUDGET) s->cost *= 4;
}

/* Blocks of even size, as few as fit and a few more, whichever is estimated to end first. */
static blocks cut(const product *p)
{
    const lti_gemm *g = p->g;
    const int64_t panels = g->w->panels;
    blocks best = {.cost = 1e300};
    const int64_t wide = g->rows == 1 ? BLOCK_MOST : 128;
    const int64_t nx0 = lti_div_up(g->cols, wide),
                  ny0 = lti_div_up(g->rows * lti_div_up(g->cols, nx0), BLOCK_MOST);
    for (int64_t nx = nx0; nx <= nx0 + (g->rows == 1 ? 12 : 1) && nx <= g->cols; nx++)
        for (int64_t ny = ny0; ny <= ny0 + 8 && ny <= g->rows; ny++)
            for (int64_t nc = 1; nc <= 12 && nc <= panels; nc++) {
                blocks s = {.by = lti_div_up(g->rows, ny),
                            .bx = lti_div_up(g->cols, nx),
                            .panels = lti_div_up(panels, nc)};
                s.ny = lti_div_up(g->rows, s.by);
                s.nx = lti_div_up(g->cols, s.bx);
                s.ncols = lti_div_up(panels, s.panels);
                weigh(p, &s);
                if (s.cost < best.cost) best = s;
            }
    return best;
}

/* ---- a task ---- */

/* Channel `first` of the leftmost input pixel that row y of the packed frame f holds. */
static const char *source(const work *k, int64_t f, int64_t y, int64_t first)
{
    const lti_gemm *g = k->p->g;
    const int64_t iy = k->y0 * g->in_step + k->p->dy0 + y, ix = k->x0 * g->in_step + k->p->dx0;
    return (const char *)g->frame[k->p->frame[f]] +
           (iy * g->in_row + ix * g->in_px + first) * (int64_t)lt_dtype_size(g->w->compute);
}

/* Channels of the present group, with padding. */
static int64_t group_len(const work *k)
{
    const lt_weight *w = k->p->g->w;
    return (k->chunk1 == w->chunks ? w->kpad : k->chunk1 * w->kc) - k->chunk0 * w->kc;
}

static void pack_rows(work *k, int64_t first, int64_t padded)
{
    const product *p = k->p;
    const lti_gemm *g = p->g;
    const lt_weight *w = g->w;
    const int64_t len = lti_min64(padded, w->in - first);
    char *dst = k->packed;
    for (int f = 0; f < p->frames; f++)
        for (int64_t y = 0; y < k->in_h; y++, dst += k->row) {
            lti_pack a = {
                .dst = dst,
                .src = source(k, f, y, first),
                .dst_stride = k->px / (int64_t)p->element,
                .src_stride = g->in_px,
                .rows = k->in_w,
                .len = len,
                .padded = padded,
                .chunk = w->kc,
            };
            /* pixels that lie side by side on both ends are one long row */
            if (a.src_stride == len && a.dst_stride == len && a.padded == len && !w->half) {
                a.len = a.padded = len * k->in_w;
                a.rows = 1;
            }
            if (w->compute == LT_F32)
                p->ops->pack_f32(&a);
            else
                p->ops->pack_bf16(&a);
        }
}

/* Where the tile finds the input of the group. */
static void place_group(work *k)
{
    const product *p = k->p;
    const lti_gemm *g = p->g;
    const int64_t first = k->chunk0 * g->w->kc, size = (int64_t)p->element;
    if (p->in_place) {
        k->px = g->in_px * size;
        k->row = g->in_row * size;
        k->a = source(k, 0, 0, first);
        for (int f = 0; f < p->frames; f++)
            k->frame[f] = (int64_t)((uintptr_t)source(k, f, 0, first) - (uintptr_t)k->a);
    } else {
        k->px = pixel_bytes(p, group_len(k), k->chunk1 - k->chunk0);
        k->row = k->in_w * k->px;
        k->a = k->packed;
        for (int f = 0; f < p->frames; f++)
            k->frame[f] = f * k->in_h * k->row;
        pack_rows(k, first, group_len(k));
    }
}

static int64_t tiles_of(const work *k)
{
    return k->h * lti_div_up(k->sums, most_rows(k->p, lti_panel_width(k->p->g->w, k->panel0)));
}

/* The input of the next group, in shares that end with this one. */
static void look_ahead_pixels(work *k)
{
    const lt_weight *w = k->p->g->w;
    k->next = (ahead){0};
    if (k->chunk1 == w->chunks) return;
    const int64_t chunks = lti_min64(w->chunks - k->chunk1, k->chunk1 - k->chunk0);
    const int64_t tiles = tiles_of(k) * (k->panel1 - k->panel0) * (k->chunk1 - k->chunk0);
    k->next.pixels_left = k->p->frames * k->in_h * k->in_w;
    k->next.pixels_share = lti_div_up(k->next.pixels_left, tiles);
    k->next.pixel_bytes =
        lti_min64(chunks * w->kc, w->in - k->chunk1 * w->kc) * (int64_t)lt_dtype_size(w->compute);
}

/* After a chunk of a panel comes its next one in the group, then the neighbour, at last the next group. */
static void look_ahead_panel(work *k, int64_t panel)
{
    const lt_weight *w = k->p->g->w;
    const int64_t size = (int64_t)lt_dtype_size(w->compute);
    int64_t chunk = k->chunk + 1;
    k->next.panel_left = 0;
    if (chunk == k->chunk1) {
        chunk = k->chunk0;
        if (++panel == k->panel1) {
            panel = k->panel0;
            chunk = k->chunk1;
        }
        if (chunk == w->chunks) return;
    }
    const int width = lti_panel_width(w, panel);
    const int64_t at = lti_panel_at(w, panel) + lti_chunk_at(w, chunk, width);
    k->next.panel = (const char *)w->data + at * size;
    k->next.panel_left = lti_chunk_len(w, chunk) * w->taps * width * size;
    k->next.panel_share = lti_div_up(k->next.panel_left, tiles_of(k));
}

/* A tile calls lines of the next panel; what it has no turns for, and a share of the pixels, is called here after it. */
static void fetch_ahead(work *k, const lti_tile *t)
{
    enum { TO_L2 = 2 };
    ahead *n = &k->next;
    if (n->panel_left > 0) {
        int64_t called = t->ntaps * (t->groups / LTI_K_STEP) * LINE;
        for (; called < n->panel_share; called += LINE)
            __builtin_prefetch(n->panel + called, 0, TO_L2);
        n->panel += called;
        n->panel_left -= called;
    }
    const int64_t first = k->chunk1 * k->p->g->w->kc;
    const int64_t step = k->p->g->in_px * (int64_t)lt_dtype_size(k->p->g->w->compute);
    for (int64_t i = 0; i < n->pixels_share && n->pixels_left > 0; i++, n->pixels_left--) {
        const char *at = source(k, n->f, n->y, first) + n->x * step;
        for (int64_t j = 0; j < n->pixel_bytes; j += LINE)
            __builtin_prefetch(at + j, 0, TO_L2);
        if (++n->x < k->in_w) continue;
        n->x = 0;
        if (++n->y < k->in_h) continue;
        n->y = 0;
        n->f++;
    }
}

/* The chunk of a panel as the tile reads it; fills where the taps stand. */
static const char *panel_chunk(const work *k, int64_t panel, lti_tap_at *at)
{
    const product *p = k->p;
    const lti_gemm *g = p->g;
    const lt_weight *w = g->w;
    const int width = lti_panel_width(w, panel);
    const size_t size = lt_dtype_size(w->compute);
    const int64_t each = lti_chunk_len(w, k->chunk) * width; /* a tap */
    const char *src = (const char *)w->data +
                      (lti_panel_at(w, panel) + lti_chunk_at(w, k->chunk, width)) * (int64_t)size;
    for (int i = 0; i < g->ntaps; i++) {
        const lt_tap t = g->tap[i];
        const char *b = src + g->tap_index[i] * each * (int64_t)size;
        at[i].a = k->frame[p->slot[t.frame]] + (t.dy - p->dy0) * k->row + (t.dx - p->dx0) * k->px;
        at[i].b = b - src;
        if (p->s.b_bytes) {
            p->ops->widen(k->b + i * each, (const uint16_t *)(const void *)b, each);
            at[i].b = i * each * (int64_t)sizeof(float);
        }
    }
    return p->s.b_bytes ? (const char *)k->b : src;
}

/* First column of a panel in the output at (y, x). */
static char *out_at(const lti_gemm *g, int64_t panel, int64_t y, int64_t x)
{
    const int64_t at = y * g->out_row + x * g->out_px + panel * g->w->nr;
    return (char *)g->out + at * (int64_t)lt_dtype_size(g->out_type);
}

/* Whole panels of plain sums go from the registers to the output: on a short sum that saves a thirtieth of the time. */
static bool writes_directly(const lti_gemm *g, int64_t panel)
{
    return g->act == LT_ACT_NONE && !g->res && !g->narrow &&
           g->w->out - panel * g->w->nr >= lti_panel_width(g->w, panel);
}

static void finish_tile(const work *k, const float *c, int64_t panel, int64_t y, int64_t x,
                        int64_t rows)
{
    const lti_gemm *g = k->p->g;
    const lt_weight *w = g->narrow ? g->narrow : g->w;
    const int64_t n = panel * w->nr;
    const lti_finish f = {
        .c = c,
        .rows = rows,
        .width = lti_panel_width(w, panel),
        .cols = lti_min64(w->nr, w->out - n),
        .bias = w->bias + n,
        .scale = w->half ? w->scale + n : NULL,
        .act = g->act,
        .gate = g->gate ? g->gate + n : NULL,
        .gate_ld = g->gate_ld,
        .group = g->group ? g->group + x : NULL,
        .res = g->res ? g->res + y * g->res_row + x * g->res_px + n : NULL,
        .res_stride = g->res_px,
        .out_stride = g->out_px,
        .out = out_at(g, panel, y, x),
        .out_type = g->out_type,
    };
    k->p->ops->finish(&f);
}

/* A row of sums whose columns are three taps of narrower outputs. */
static void finish_folded(const work *k, float *c, int64_t y)
{
    const lti_gemm *g = k->p->g;
    k->p->ops->fold(&(lti_fold){.dst = c,
                                .c = c,
                                .rows = k->w,
                                .width = lti_panel_width(g->w, 0),
                                .dst_width = lti_panel_width(g->narrow, 0),
                                .cols = g->narrow->out});
    finish_tile(k, c, 0, k->y0 + y, k->x0, k->w);
}

/* What all tiles of a chunk of a panel have in common. */
static lti_tile common_tile(const work *k, int64_t panel, lti_tap_at *at)
{
    const product *p = k->p;
    const lti_gemm *g = p->g;
    return (lti_tile){.b = panel_chunk(k, panel, at),
                      .tap = at,
                      .ntaps = g->ntaps,
                      .a_stride = g->in_step * k->px,
                      .groups = lti_chunk_len(g->w, k->chunk) * (int64_t)p->element / 4,
                      .add = k->chunk > 0,
                      .bias = g->w->bias + panel * g->w->nr,
                      .scale = g->w->half ? g->w->scale + panel * g->w->nr : NULL,
                      .out_stride = g->out_px * (int64_t)lt_dtype_size(g->out_type),
                      .out_type = g->out_type};
}

static void multiply_panel(work *k, int64_t panel)
{
    const product *p = k->p;
    const lt_weight *w = p->g->w;
    lti_tap_at at[LT_MAX_TAPS];
    const int width = lti_panel_width(w, panel);
    const int64_t tiles = lti_div_up(k->sums, most_rows(p, width));
    const bool last = k->chunk == w->chunks - 1, narrow = p->g->narrow;
    const bool held = k->chunk1 - k->chunk0 == w->chunks; /* sums of one panel at a time */
    float *c = k->c + (held ? 0 : (panel - k->panel0) * k->h * k->sums * w->nr);
    const bool direct = last && writes_directly(p->g, panel);
    lti_tile t = common_tile(k, panel, at);
    const int64_t nth = k->chunk - k->chunk0; /* chunk of the group */
    const char *a = k->a + nth * w->kc * (int64_t)p->element;
    const int64_t scale_at = (group_len(k) + nth - nth * w->kc) * (int64_t)sizeof(float);
    look_ahead_panel(k, panel);
    const int64_t least = k->sums / tiles, longer = k->sums % tiles; /* of even size */
    for (int64_t y = 0; y < k->h; y++) {
        float *row = c;
        for (int64_t i = 0, x = 0, rows; i < tiles; i++, x += rows) {
            rows = least + (i < longer);
            t.a = a + (y * k->row + x * k->px) * p->g->in_step;
            t.c = c;
            if (w->half) t.row_scale = t.a + scale_at;
            if (direct) t.out = out_at(p->g, panel, k->y0 + y, k->x0 + x);
            t.ahead = k->next.panel_left > 0 ? k->next.panel : t.b;
            t.ahead_step = k->next.panel_left > 0 ? LINE : 0;
            p->ops->tile(&t, (int)rows, width);
            fetch_ahead(k, &t);
            if (last && !narrow && !direct) finish_tile(k, c, panel, k->y0 + y, k->x0 + x, rows);
            if (w->chunks > 1 || narrow) c += rows * width;
        }
        if (last && narrow) finish_folded(k, row, y);
    }
}

static void run_task(void *arg, int64_t task, int thread)
{
    const product *p = arg;
    const blocks *s = &p->s;
    const lti_gemm *g = p->g;
    const int64_t region = task % (s->ny * s->nx);
    char *scratch = lti_scratch(p->dev, thread);
    work k = {.p = p, .y0 = region / s->nx * s->by, .x0 = region % s->nx * s->bx};
    k.h = lti_min64(s->by, g->rows - k.y0);
    k.w = lti_min64(s->bx, g->cols - k.x0);
    k.sums = k.w + more_sums(g);
    k.in_h = (k.h - 1) * g->in_step + 1 + p->dh;
    k.in_w = (k.w - 1) * g->in_step + 1 + p->dw;
    k.panel0 = task / (s->ny * s->nx) * s->panels;
    k.panel1 = lti_min64(k.panel0 + s->panels, g->w->panels);
    k.b = (float *)(void *)scratch;
    k.c = (float *)(void *)(scratch + s->b_bytes);
    k.packed = scratch + s->b_bytes + s->c_bytes;
    for (k.chunk0 = 0; k.chunk0 < g->w->chunks; k.chunk0 = k.chunk1) {
        k.chunk1 = lti_min64(k.chunk0 + s->group, g->w->chunks);
        place_group(&k);
        look_ahead_pixels(&k);
        for (int64_t panel = k.panel0; panel < k.panel1; panel++)
            for (k.chunk = k.chunk0; k.chunk < k.chunk1; k.chunk++)
                multiply_panel(&k, panel);
    }
}

/* ---- the whole ---- */

static void find_reach(product *p)
{
    const lti_gemm *g = p->g;
    int64_t dy1 = 0, dx1 = 0;
    for (int i = 0; i < g->ntaps; i++) {
        const lt_tap t = g->tap[i];
        bool seen = false;
        for (int f = 0; f < p->frames; f++)
            seen |= p->frame[f] == t.frame;
        if (!seen) {
            p->slot[t.frame] = p->frames;
            p->frame[p->frames++] = t.frame;
        }
        if (i == 0 || t.dy < p->dy0) p->dy0 = t.dy;
        if (i == 0 || t.dx < p->dx0) p->dx0 = t.dx;
        if (i == 0 || t.dy > dy1) dy1 = t.dy;
        if (i == 0 || t.dx > dx1) dx1 = t.dx;
    }
    p->dh = dy1 - p->dy0;
    p->dw = dx1 - p->dx0 + more_sums(g);
}

/* f32 needs no copy. Pixels of many channels that are read once for each tap are packed all the same: chunk by chunk they
 * would lie too far apart for the second cache (384 channels: -16 %, 16 to 128: +7 %). */
static bool reads_in_place(const product *p)
{
    enum { NEAR = 128 };
    const lti_gemm *g = p->g;
    return p->frames > 0 && g->w->compute == LT_F32 && g->w->kpad == g->w->in &&
           (g->in_px <= NEAR || (p->dh == 0 && p->dw == 0));
}

lt_status lti_gemm_run(lt_dev *dev, const lti_gemm *g)
{
    if (g->rows == 0 || g->cols == 0) return LT_OK;
    product p = {.g = g, .ops = lti_gemm_ops_of(g->w), .dev = dev};
    p.element = p.ops->widen || g->w->compute == LT_F32 || g->w->half ? 4 : 2;
    find_reach(&p);
    p.in_place = reads_in_place(&p);
    p.s = cut(&p);
    LT_TRY(lti_scratch_reserve(
        dev, (size_t)(p.s.b_bytes + p.s.c_bytes + (p.in_place ? 0 : p.s.a_bytes))));
    lti_parallel(dev, p.s.ny * p.s.nx * p.s.ncols, run_task, &p);
    return LT_OK;
}

void lti_gemm_register(lt_kernels *k, lti_isa isa)
{
    if (isa == LTI_ISA_REF) return;
    k->linear = lti_linear_gemm;
    k->conv = lti_conv_gemm;
}
