/* winograd.c: the blocked product of winograd.h over the packed weights and the micro-kernel of gemm.h.
 *
 *   task     a block of tiles (by x bx) x some panels of columns, in one worker's cache
 *   group      some chunks of channels: their inputs in all frames transformed, 16 times [tiles, frames * channels]
 *     panel      nr columns
 *       half       eight of the 16 products: the weights of the group transformed
 *         tile       mr x nr sums in registers, over all frames and channels of the group; sums of 16 products stay in the cache
 *       last group: transformed back, bias, residual, type
 *
 * The floor is 16/36 of the direct product's multiply-adds at the FMA rate; 65 to 73 % of that is reached (README.md): tiles are three
 * quarters of the time, the transforms of weights and input most of the rest.
 *
 * Weights stay as they are packed, in bf16 too: a transform held in memory would take 3.6 times as much and be waited for. To make
 * it for each block costs about 4 / tiles of the time. Which channels are a group depends on the weight alone, so a
 * pixel's bits do not depend on the block, the threads or absent frames. */
#include "kernels/winograd.h"

typedef struct cut {
    int64_t by, bx, ny, nx; /* tiles of a block, number of blocks */
    int64_t panels, ncols;  /* panels in a block, number of column blocks */
    int64_t v_tile, v_product, m_product, u_product; /* elements from one to the next */
    int64_t v_bytes, m_bytes, u_bytes;
    double cost; /* estimated cycles */
} cut;

typedef struct product {
    const lti_gemm *g;
    const lti_gemm_ops *ops;
    const lti_wino_ops *wino;
    lt_dev *dev;
    int frames;            /* that are there */
    int64_t th, tw;        /* tiles of the picture */
    int64_t group, groups; /* chunks in a group; number */
    cut s;
} product;

/* What will be read next is called into the second cache bit by bit, in and between tiles. */
typedef struct ahead {
    const char *weights;  /* of the next panel */
    int64_t weights_left; /* bytes */
    int64_t y0, x0, h, w,
        channel; /* inputs of the next group: pixels from (y0, x0) of the picture of taps, first channel */
    int64_t pixel_bytes, share; /* pixels after each tile */
    int64_t f, y, x;            /* the next pixel */
} ahead;

/* One task at work. */
typedef struct work {
    const product *p;
    int64_t y0, x0, h, w; /* tiles of this block */
    int64_t panel0, panel1;
    int64_t chunk0, chunk1, channels; /* of the group; channels with padding */
    float *v, *m, *u, *y;
    ahead next;
} work;

enum { OUT_RUN = 8, LINE = 64 }; /* tiles transformed back at a time */

/* Elements of a row of n: long ones an odd number of cache lines, so that rows spread over all sets. */
static int64_t spread(int64_t n)
{
    return n < 64 ? n : lti_div_up(n, 16) * 16 | 16;
}

static int64_t widest(const lt_weight *w)
{
    return w->panels > 1 ? w->nr : lti_panel_width(w, 0);
}

/* NULL: a direct convolution is faster, because it multiplies in bf16. */
static const lti_wino_ops *transforms_of(const lt_weight *w, const lti_gemm_ops **ops)
{
#if defined(__x86_64__)
    if (w->isa >= LTI_ISA_AVX512) {
        *ops = &lti_gemm_avx512;
        return w->pair == 1 ? &lti_wino_avx512 : NULL;
    }
    if (w->isa == LTI_ISA_AVX2) {
        *ops = &lti_gemm_avx2;
        return &lti_wino_avx2;
    }
#endif
    *ops = &lti_gemm_portable;
    return &lti_wino_portable;
}

/* ---- how to cut ---- */

enum { L2_BUDGET = 1400 << 10, TILES_MOST = 192 };

/* Sums of a group are as many as a tile of the micro-kernel adds up between two visits to the cache. */
static void find_groups(product *p)
{
    const lt_weight *w = p->g->w;
    enum { SUMS_TARGET = 96 };
    int64_t most = SUMS_TARGET / (w->kc * w->taps / 9);
    if (most < 1) most = 1;
    p->groups = lti_div_up(w->chunks, most);
    p->group = lti_div_up(w->chunks, p->groups);
    p->groups = lti_div_up(w->chunks, p->group);
}

/* Fills the rest of a cut and its cost in cycles of AVX-512 machines; other instruction sets scale all terms alike. */
static void weigh(const product *p, cut *s)
{
    const lt_weight *w = p->g->w;
    const int64_t tiles = s->by * s->bx, width = widest(w), size = sizeof(float);
    const int64_t sums = p->frames * p->group * w->kc;
    s->v_tile = spread(sums);
    s->v_product = spread(tiles * s->v_tile);
    s->m_product = spread(tiles * width);
    s->u_product = spread(sums * width);
    s->v_bytes = LTI_WINO_PRODUCTS * s->v_product * size;
    s->m_bytes = LTI_WINO_PRODUCTS * s->m_product * size * (p->groups > 1 ? s->panels : 1);
    s->u_bytes = LTI_WINO_PRODUCTS / 2 * s->u_product * size;
    const double k = (double)(w->kpad * p->frames), cols = (double)(s->panels * w->nr);
    const double t = (double)tiles;
    const double multiply = t * k * cols / 2, in = t * k * 7, weights = k * cols * 6;
    const double out = t * cols * (4 + 3.5 * (double)p->groups);
    const int64_t rounds = lti_div_up(s->ny * s->nx * s->ncols, lt_dev_threads(p->dev));
    s->cost = (double)rounds * (multiply + in + weights + out + 2000);
    if (s->v_bytes + s->m_bytes + s->u_bytes > L2_BUDGET) s->cost *= 4;
}

static cut find_cut(const product *p)
{
    const int64_t panels = p->g->w->panels;
    cut best = {.cost = 1e300};
    const int64_t nx0 = lti_div_up(p->tw, TILES_MOST);
    for (int64_t nx = nx0; nx < nx0 + 12 && nx <= p->tw; nx++)
        for (int64_t by = 1; by <= p->th && by * lti_div_up(p->tw, nx) <= TILES_MOST; by++)
            for (int64_t nc = 1; nc <= 12 && nc <= panels; nc++) {
                cut s = {.by = by, .bx = lti_div_up(p->tw, nx), .panels = lti_div_up(panels, nc)};
                s.ny = lti_div_up(p->th, s.by);
                s.by = lti_div_up(p->th, s.ny);
                s.nx = lti_div_up(p->tw, s.bx);
                s.ncols = lti_div_up(panels, s.panels);
                weigh(p, &s);
                if (s.cost < best.cost) best = s;
            }
    return best;
}

/* ---- a task ---- */

/* The group's channels of frame f, one row of tiles. What lies beyond the picture is not read: its last row serves instead. */
static void transform_row(const work *k, int f, int64_t y)
{
    const product *p = k->p;
    const lti_gemm *g = p->g;
    const lt_tap tap = g->tap[9 * f];
    const int64_t size = (int64_t)lt_dtype_size(g->w->compute), first = k->chunk0 * g->w->kc;
    lti_wino_in a = {
        .v = k->v + y * k->w * p->s.v_tile + f * k->channels,
        .tile_stride = p->s.v_tile,
        .product_stride = p->s.v_product,
        .px = g->in_px * size,
        .tiles = k->w,
        .columns = g->cols + 2 - 2 * k->x0,
        .len = lti_min64(k->channels, g->w->in - first),
        .padded = k->channels,
        .type = g->w->compute,
    };
    for (int i = 0; i < 4; i++) {
        const int64_t iy = lti_min64(2 * (k->y0 + y) + i, g->rows + 1) + tap.dy;
        const int64_t ix = 2 * k->x0 + tap.dx;
        a.row[i] =
            (const char *)g->frame[tap.frame] + (iy * g->in_row + ix * g->in_px + first) * size;
    }
    p->wino->in(&a);
}

/* First byte of chunk `chunk` of a panel. */
static const char *chunk_data(const lt_weight *w, int64_t panel, int64_t chunk)
{
    const int64_t at = lti_panel_at(w, panel) + lti_chunk_at(w, chunk, lti_panel_width(w, panel));
    return (const char *)w->data + at * (int64_t)lt_dtype_size(w->compute);
}

static int64_t tiles_of(const work *k, int width)
{
    return lti_div_up(k->h * k->w, k->p->ops->mr[width / k->p->g->w->vl - 1]);
}

/* Block of a task. */
static void place(work *k, int64_t task)
{
    const cut *s = &k->p->s;
    const int64_t region = task % (s->ny * s->nx);
    k->y0 = region / s->nx * s->by;
    k->x0 = region % s->nx * s->bx;
    k->h = lti_min64(s->by, k->p->th - k->y0);
    k->w = lti_min64(s->bx, k->p->tw - k->x0);
}

/* After a group comes the next one; after the last one, if the workers take turns, the block of the task `after`. */
static void look_ahead_pixels(work *k, int64_t after)
{
    const product *p = k->p;
    const lt_weight *w = p->g->w;
    work next = *k;
    int64_t chunk = k->chunk1;
    if (chunk == w->chunks) {
        place(&next, after);
        chunk = 0;
    }
    const int64_t first = chunk * w->kc, channels = p->group * w->kc;
    const int64_t calls =
        LTI_WINO_PRODUCTS * (k->panel1 - k->panel0) * tiles_of(k, lti_panel_width(w, k->panel0));
    ahead *n = &k->next;
    *n = (ahead){.y0 = 2 * next.y0,
                 .x0 = 2 * next.x0,
                 .h = lti_min64(2 * next.h, p->g->rows - 2 * next.y0) + 2,
                 .w = lti_min64(2 * next.w, p->g->cols - 2 * next.x0) + 2,
                 .channel = first,
                 .pixel_bytes =
                     lti_min64(channels, w->in - first) * (int64_t)lt_dtype_size(w->compute)};
    n->share = lti_div_up(p->frames * n->h * n->w, calls);
}

static void fetch_pixels(work *k)
{
    enum { TO_L2 = 2 };
    const lti_gemm *g = k->p->g;
    ahead *n = &k->next;
    for (int64_t i = 0; i < n->share && n->f < k->p->frames; i++) {
        const lt_tap tap = g->tap[9 * n->f];
        const int64_t iy = n->y0 + n->y + tap.dy, ix = n->x0 + n->x + tap.dx;
        const char *at =
            (const char *)g->frame[tap.frame] +
            (iy * g->in_row + ix * g->in_px + n->channel) * (int64_t)lt_dtype_size(g->w->compute);
        for (int64_t j = 0; j < n->pixel_bytes; j += LINE)
            __builtin_prefetch(at + j, 0, TO_L2);
        if (++n->x < n->w) continue;
        n->x = 0;
        if (++n->y < n->h) continue;
        n->y = 0;
        n->f++;
    }
}

/* After a panel comes its neighbour, after the last one the next group. */
static void look_ahead_weights(work *k, int64_t panel)
{
    const lt_weight *w = k->p->g->w;
    int64_t chunk0 = k->chunk0, chunk1 = k->chunk1;
    k->next.weights_left = 0;
    if (++panel == k->panel1) {
        panel = k->panel0;
        chunk0 = chunk1;
        chunk1 = lti_min64(chunk0 + k->p->group, w->chunks);
        if (chunk0 == chunk1) return;
    }
    k->next.weights = chunk_data(w, panel, chunk0);
    for (int64_t c = chunk0; c < chunk1; c++)
        k->next.weights_left += lti_chunk_len(w, c) * w->taps * lti_panel_width(w, panel) *
                                (int64_t)lt_dtype_size(w->compute);
}

static void transform_weights(const work *k, int64_t panel, bool inner)
{
    const product *p = k->p;
    const lt_weight *w = p->g->w;
    const int width = lti_panel_width(w, panel);
    const int64_t size = (int64_t)lt_dtype_size(w->compute);
    for (int f = 0; f < p->frames; f++) {
        float *u = k->u + f * k->channels * width;
        for (int64_t c = k->chunk0; c < k->chunk1; c++) {
            const int64_t n = lti_chunk_len(w, c) * width; /* a tap */
            p->wino->weights(&(lti_wino_weights){
                .u = u,
                .product_stride = p->s.u_product,
                .w = chunk_data(w, panel, c) + p->g->tap_index[9 * f] * n * size,
                .type = w->compute,
                .tap_stride = n,
                .n = n,
                .inner = inner,
            });
            u += n;
        }
    }
}

/* One of the 16 products of a panel, transformed weights at u: [tiles, frames * channels] x [.., width] added to m. */
static void multiply(work *k, const float *v, const float *u, float *m, int width)
{
    const product *p = k->p;
    lti_tap_at at[3];
    for (int f = 0; f < p->frames; f++)
        at[f] = (lti_tap_at){f * k->channels * (int64_t)sizeof(float),
                             f * k->channels * width * (int64_t)sizeof(float)};
    lti_tile t = {.b = (const char *)u,
                  .a_stride = p->s.v_tile * (int64_t)sizeof(float),
                  .tap = at,
                  .ntaps = p->frames,
                  .groups = k->channels,
                  .add = k->chunk0 > 0};
    const int64_t all = k->h * k->w, tiles = tiles_of(k, width);
    const int64_t least = all / tiles, longer = all % tiles; /* of even size */
    for (int64_t i = 0, x = 0, rows; i < tiles; i++, x += rows) {
        rows = least + (i < longer);
        t.a = (const char *)(v + x * p->s.v_tile);
        t.c = m + x * width;
        const bool more = k->next.weights_left > 0;
        t.ahead = more ? k->next.weights : t.b;
        t.ahead_step = more ? LINE : 0;
        p->ops->tile(&t, (int)rows, width);
        const int64_t called = p->frames * (k->channels / LTI_K_STEP) * LINE;
        if (more) k->next.weights += called;
        if (more) k->next.weights_left -= called;
        fetch_pixels(k);
    }
}

/* Tiles x .. x + n - 1 of a row of tiles, transformed back into k->y: to the output. */
static void finish_run(const work *k, int64_t panel, int64_t y, int64_t x, int64_t n)
{
    const lti_gemm *g = k->p->g;
    const lt_weight *w = g->w;
    const int width = lti_panel_width(w, panel);
    const int64_t column = panel * w->nr, size = (int64_t)lt_dtype_size(g->out_type);
    const int64_t ox = 2 * (k->x0 + x);
    for (int r = 0; r < 2; r++) {
        const int64_t oy = 2 * (k->y0 + y) + r;
        if (oy >= g->rows) break;
        k->p->ops->finish(&(lti_finish){
            .c = k->y + r * 2 * OUT_RUN * width,
            .rows = lti_min64(2 * n, g->cols - ox),
            .width = width,
            .cols = lti_min64(w->nr, w->out - column),
            .bias = w->bias + column,
            .res = g->res ? g->res + oy * g->res_row + ox * g->res_px + column : NULL,
            .res_stride = g->res_px,
            .out_stride = g->out_px,
            .out = (char *)g->out + (oy * g->out_row + ox * g->out_px + column) * size,
            .out_type = g->out_type,
        });
    }
}

static void finish_panel(const work *k, int64_t panel, const float *m)
{
    const product *p = k->p;
    const int width = lti_panel_width(p->g->w, panel);
    for (int64_t y = 0; y < k->h; y++)
        for (int64_t x = 0; x < k->w; x += OUT_RUN) {
            const int64_t n = lti_min64(OUT_RUN, k->w - x);
            p->wino->out(&(lti_wino_out){.y = k->y,
                                         .y_row = 2 * OUT_RUN * width,
                                         .m = m + (y * k->w + x) * width,
                                         .product_stride = p->s.m_product,
                                         .tiles = n,
                                         .width = width});
            finish_run(k, panel, y, x, n);
        }
}

static void run_panel(work *k, int64_t panel)
{
    const product *p = k->p;
    const cut *s = &p->s;
    const int width = lti_panel_width(p->g->w, panel);
    const int64_t held =
        p->groups > 1 ? panel - k->panel0 : 0; /* else sums of one panel at a time */
    float *m = k->m + held * LTI_WINO_PRODUCTS * s->m_product;
    look_ahead_weights(k, panel);
    for (int half = 0; half < 2; half++) {
        const bool inner = half == 1;
        transform_weights(k, panel, inner);
        for (int i = 0; i < 8; i++) {
            const int which = inner ? 4 + i : i < 4 ? i : 8 + i; /* rows 1 and 2; 0 and 3 */
            multiply(k, k->v + which * s->v_product, k->u + i * s->u_product,
                     m + which * s->m_product, width);
        }
    }
    if (k->chunk1 == p->g->w->chunks) finish_panel(k, panel, m);
}

static void run_task(void *arg, int64_t task, int thread)
{
    const product *p = arg;
    const cut *s = &p->s;
    const lt_weight *w = p->g->w;
    char *scratch = lti_scratch(p->dev, thread);
    work k = {.p = p};
    place(&k, task);
    k.panel0 = task / (s->ny * s->nx) * s->panels;
    k.panel1 = lti_min64(k.panel0 + s->panels, w->panels);
    k.v = (float *)(void *)scratch;
    k.m = (float *)(void *)(scratch + s->v_bytes);
    k.u = (float *)(void *)(scratch + s->v_bytes + s->m_bytes);
    k.y = (float *)(void *)(scratch + s->v_bytes + s->m_bytes + s->u_bytes);
    for (k.chunk0 = 0; k.chunk0 < w->chunks; k.chunk0 = k.chunk1) {
        k.chunk1 = lti_min64(k.chunk0 + p->group, w->chunks);
        k.channels = (k.chunk1 == w->chunks ? w->kpad : k.chunk1 * w->kc) - k.chunk0 * w->kc;
        for (int f = 0; f < p->frames; f++)
            for (int64_t y = 0; y < k.h; y++)
                transform_row(&k, f, y);
        look_ahead_pixels(&k, task + lt_dev_threads(p->dev));
        for (int64_t panel = k.panel0; panel < k.panel1; panel++)
            run_panel(&k, panel);
    }
}

/* ---- the whole ---- */

/* Three rows of three taps, side by side, in every frame that is there, all frames alike. */
static bool is_three_by_three(const lti_gemm *g)
{
    if (g->in_step != 1 || g->w->taps % 9 || g->ntaps == 0 || g->ntaps % 9) return false;
    for (int i = 0; i < g->ntaps; i++) {
        const lt_tap t = g->tap[i], first = g->tap[i - i % 9];
        if (g->tap_index[i] % 9 != i % 9 || t.frame != first.frame ||
            t.dy != g->tap[0].dy + i % 9 / 3 || t.dx != g->tap[0].dx + i % 3)
            return false;
    }
    return true;
}

bool lti_wino_serves(const lti_gemm *g, int64_t picture_h, int64_t picture_w)
{
    enum { IN_LEAST = 8, OUT_LEAST = 32, PIXELS_LEAST = 64 };
    const lti_gemm_ops *ops;
    return !g->w->triple && g->w->in >= IN_LEAST && g->w->out >= OUT_LEAST &&
           picture_h * picture_w >= PIXELS_LEAST && transforms_of(g->w, &ops) &&
           is_three_by_three(g);
}

lt_status lti_wino_run(lt_dev *dev, const lti_gemm *g)
{
    if (g->rows == 0 || g->cols == 0) return LT_OK;
    product p = {.g = g, .dev = dev, .frames = g->ntaps / 9};
    p.wino = transforms_of(g->w, &p.ops);
    p.th = lti_div_up(g->rows, 2);
    p.tw = lti_div_up(g->cols, 2);
    find_groups(&p);
    p.s = find_cut(&p);
    const int64_t y_bytes = 4 * OUT_RUN * widest(g->w) * (int64_t)sizeof(float);
    LT_TRY(lti_scratch_reserve(dev, (size_t)(p.s.v_bytes + p.s.m_bytes + p.s.u_bytes + y_bytes)));
    lti_parallel(dev, p.s.ny * p.s.nx * p.s.ncols, run_task, &p);
    return LT_OK;
}
