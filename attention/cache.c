/* cache.c: the ring of frames. The host decides (which slot, which frame leaves, where in time a frame stands); the device holds keys
 * and values, and small arrays that say what the open block reads: a plan of one query tile, and a rotary table on the time axis with
 * one row a slot. That row is rewritten when the frame's place changes, so positions of rows never do, and places have no upper limit.
 */
#include "attention/attention.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct lt_cache {
    lt_dev *dev;
    lt_ctx *ctx;
    lt_cache_options o;
    int32_t slots;
    int64_t tokens; /* of a frame */
    int64_t next;   /* number of the first frame that is not kept */
    int64_t shot;   /* number of the frame that the sink begins with */

    lt_cache_frame *kept, *visible; /* [slots] */
    int32_t nkept, nvisible, nopen; /* nopen > 0: a block is open, the last nopen of `visible` */
    bool reopened;                  /* it is of kept frames */
    lt_run *runs;                   /* [slots] */
    double past, sink;              /* weights beside the policy's */
    float *time; /* [slots + block, pairs, 2]: by slot, then by frame of the open block */

    uint8_t *kv;    /* device, [layers][slots * tokens, 2 * heads * head_dim] */
    uint8_t *small; /* device: what follows, in one allocation */
    int32_t *pos;   /* [(slots + block) * tokens, 3] */
    lt_attn_plan plan;
    lt_rope_tables space; /* rows and columns; its time axis is not used */
    lt_rope key_rope, query_rope;
};

/* ---- sizes ---- */

typedef struct sizes {
    size_t layer, kv;                    /* bytes */
    size_t time, pos, runs, ends, small; /* bytes; ends: q_off and row, two numbers each */
} sizes;

static int32_t slots_of(const lt_cache_options *o)
{
    return o->policy.window;
}

static bool size_up(sizes *s, const lt_cache_options *o)
{
    const size_t slots = (size_t)slots_of(o), all = slots + (size_t)lt_cache_most_open(&o->policy);
    const size_t pairs = (size_t)(o->head_dim / 2 - 2 * (o->head_dim / 6));
    size_t frame;
    bool good = lti_mul_size(&frame, (size_t)o->rows, (size_t)o->cols) &&
                lti_mul_size(&s->layer, frame * slots, 2 * (size_t)o->heads) &&
                lti_mul_size(&s->layer, s->layer, (size_t)o->head_dim * lt_dtype_size(o->dtype)) &&
                lti_mul_size(&s->kv, s->layer, (size_t)o->layers) &&
                lti_mul_size(&s->pos, frame * all, 3 * sizeof(int32_t));
    s->time = lt_arena_need(all * pairs * 2 * sizeof(float));
    s->runs = lt_arena_need(slots * sizeof(lt_run));
    s->ends = lt_arena_need(4 * sizeof(int32_t));
    good = good && lti_add_size(&s->small, lt_arena_need(s->pos), s->time + s->runs + s->ends);
    return good && frame * all <= INT32_MAX;
}

static lt_status check_options(lt_ctx *ctx, const lt_cache_options *o, sizes *s)
{
    LT_TRY(lt_cache_policy_check(ctx, &o->policy));
    if (o->layers < 1 || o->heads < 1 || o->head_dim < 2 || o->head_dim % 2)
        return lti_fail(ctx, LT_ERR_ARG, "cache: %d layers, %d heads of size %d", o->layers,
                        o->heads, o->head_dim);
    if (o->theta != 0 && !(o->theta > 1))
        return lti_fail(ctx, LT_ERR_ARG, "cache: theta %g: 0 or above 1", o->theta);
    if (o->rows < 1 || o->cols < 1 || o->rows > 1 << 20 || o->cols > 1 << 20)
        return lti_fail(ctx, LT_ERR_ARG, "cache: frames of %dx%d tokens", o->cols, o->rows);
    if (o->dtype != LT_F32 && o->dtype != LT_BF16)
        return lti_fail(ctx, LT_ERR_DTYPE, "cache: type %d, wanted f32 or bf16", (int)o->dtype);
    if (o->first_frame < 0)
        return lti_fail(ctx, LT_ERR_ARG, "cache: first frame %" PRId64, o->first_frame);
    if (!size_up(s, o))
        return lti_fail(ctx, LT_ERR_MEM,
                        "cache: %d frames of %dx%d tokens in %d layers are too many", slots_of(o),
                        o->cols, o->rows, o->layers);
    return LT_OK;
}

uint64_t lt_cache_bytes(const lt_cache_options *o)
{
    sizes s;
    return check_options(NULL, o, &s) < 0 ? 0 : (uint64_t)s.kv + s.small;
}

/* ---- making ---- */

static lt_status alloc_host(lt_cache *c, const sizes *s)
{
    const size_t slots = (size_t)c->slots;
    c->kept = calloc(slots, sizeof *c->kept);
    c->visible = calloc(slots, sizeof *c->visible);
    c->runs = calloc(slots, sizeof *c->runs);
    c->time = calloc(1, s->time);
    if (c->kept && c->visible && c->runs && c->time) return LT_OK;
    return lti_fail(c->ctx, LT_ERR_MEM, "no memory for the lists of a cache");
}

/* On the time axis rows of a slot read line `slot` of the table; rows of a query read line `frame` of what follows it. */
static lt_status upload_positions(lt_cache *c, const sizes *s)
{
    int32_t *host = malloc(s->pos);
    if (!host) return lti_fail(c->ctx, LT_ERR_MEM, "no memory for positions of a cache");
    lt_grid_positions((lt_grid){c->slots, c->o.rows, c->o.cols}, 0, host);
    lt_grid_positions((lt_grid){lt_cache_most_open(&c->o.policy), c->o.rows, c->o.cols}, 0,
                      host + c->slots * c->tokens * 3);
    const lt_status st = lt_dev_upload(c->dev, c->pos, host, s->pos);
    free(host);
    return st;
}

static lt_status fill(lt_cache *c, const sizes *s)
{
    const int32_t max[3] = {1, c->o.rows, c->o.cols};
    LT_TRY(alloc_host(c, s));
    LT_TRY(lt_dev_alloc(c->dev, (void **)&c->kv, s->kv, LT_TAG_KV));
    LT_TRY(lt_dev_zero(c->dev, c->kv, s->kv)); /* rows that nobody wrote are packed all the same */
    LT_TRY(lt_dev_alloc(c->dev, (void **)&c->small, s->small, LT_TAG_KV));
    LT_TRY(lt_dev_zero(c->dev, c->small, s->small));
    LT_TRY(lt_rope_tables_create(&c->space, c->dev, c->o.head_dim, max, c->o.theta));
    c->pos = (int32_t *)(void *)c->small;
    uint8_t *at = c->small + lt_arena_need(s->pos);
    const float *time = (const float *)(const void *)at;
    c->plan = (lt_attn_plan){.nq = 1,
                             .ngroups = 1,
                             .runs = (const lt_run *)(const void *)(at + s->time),
                             .q_off = (const int32_t *)(const void *)(at + s->time + s->runs)};
    c->plan.row = c->plan.q_off + 2;
    c->key_rope = (lt_rope){.table = {time, c->space.table[1], c->space.table[2]},
                            .pairs = {c->space.pairs[0], c->space.pairs[1], c->space.pairs[2]},
                            .pos = c->pos};
    c->query_rope = c->key_rope;
    c->query_rope.table[0] = time + (int64_t)c->slots * c->space.pairs[0] * 2;
    c->query_rope.pos = c->pos + c->slots * c->tokens * 3;
    return upload_positions(c, s);
}

lt_status lt_cache_create(lt_cache **out, lt_dev *dev, const lt_cache_options *o)
{
    *out = NULL;
    sizes s;
    LT_TRY(check_options(lt_dev_ctx(dev), o, &s));
    lt_cache *c = calloc(1, sizeof *c);
    if (!c) return lti_fail(lt_dev_ctx(dev), LT_ERR_MEM, "no memory for a cache");
    c->dev = dev;
    c->ctx = lt_dev_ctx(dev);
    c->o = *o;
    c->past = c->sink = 1;
    if (c->o.theta == 0) c->o.theta = 10000;
    c->slots = slots_of(o);
    c->tokens = (int64_t)o->rows * o->cols;
    c->next = c->shot = o->first_frame;
    const lt_status st = fill(c, &s);
    if (st < 0)
        lt_cache_destroy(&c);
    else
        *out = c;
    return st;
}

void lt_cache_destroy(lt_cache **cache)
{
    lt_cache *c = cache ? *cache : NULL;
    if (!c) return;
    lt_rope_tables_destroy(&c->space);
    lt_dev_free(c->dev, c->small);
    lt_dev_free(c->dev, c->kv);
    free(c->time);
    free(c->runs);
    free(c->visible);
    free(c->kept);
    free(c);
    *cache = NULL;
}

/* ---- which frames ---- */

lt_status lt_cache_make_room(lt_cache *c, int32_t frames)
{
    if (c->nopen) return lti_fail(c->ctx, LT_ERR_ARG, "cache: a block is open already");
    const int32_t most = lt_cache_most_open(&c->o.policy);
    if (frames < 1 || frames > most)
        return lti_fail(c->ctx, LT_ERR_ARG, "cache: a block of %d frames: not in 1..%d", frames,
                        most);
    int32_t over = c->nkept + frames - c->o.policy.window, pinned = 0, n = 0;
    for (int32_t i = 0; i < c->nkept; i++)
        pinned += c->kept[i].pinned;
    if (pinned + frames > c->o.policy.window)
        return lti_fail(c->ctx, LT_ERR_ARG,
                        "cache: %d pinned frames leave no room for %d in a window of %d", pinned,
                        frames, c->o.policy.window);
    for (int32_t i = 0; i < c->nkept; i++) {
        if (over > 0 && !c->kept[i].pinned)
            over--;
        else
            c->kept[n++] = c->kept[i];
    }
    c->nkept = n;
    return LT_OK;
}

static bool slot_used(const lt_cache_frame *list, int32_t n, int32_t slot)
{
    for (int32_t i = 0; i < n; i++)
        if (list[i].slot == slot) return true;
    return false;
}

/* Lowest slots that no kept frame has: the same ones again after a rollback, so a block drawn again is the same to the bit. */
static void place_open(lt_cache *c, int32_t frames)
{
    memcpy(c->visible, c->kept, (size_t)c->nkept * sizeof *c->kept);
    c->nvisible = c->nkept;
    for (int32_t f = 0, slot = 0; f < frames; slot++) {
        if (slot_used(c->kept, c->nkept, slot)) continue;
        c->visible[c->nvisible++] =
            (lt_cache_frame){.frame = c->next + f,
                             .slot = slot,
                             .pinned = c->next + f - c->shot < c->o.policy.sink,
                             .open = true};
        f++;
    }
    c->nopen = frames;
}

static void set_places(lt_cache *c)
{
    const lt_cache_policy *p = &c->o.policy;
    int32_t pinned = 0, first = 0;
    for (int32_t i = 0; i < c->nvisible; i++)
        pinned += c->visible[i].pinned;
    while (first < c->nvisible && c->visible[first].pinned)
        first++;
    const bool follow = p->sink_follows && first < c->nvisible;
    for (int32_t i = 0, k = 0; i < c->nvisible; i++) {
        lt_cache_frame *f = &c->visible[i];
        f->place = p->positions == LT_CACHE_RELATIVE ? i : f->frame;
        if (p->positions == LT_CACHE_ABSOLUTE && follow && f->pinned)
            f->place = c->visible[first].frame - pinned + k++;
    }
}

/* ---- what the device is told ---- */

static void fill_turn(lt_cache *c, int32_t row, int64_t place)
{
    const int32_t pairs = c->space.pairs[0];
    float *cs = c->time + (int64_t)row * pairs * 2;
    for (int32_t j = 0; j < pairs; j++) {
        const double angle = (double)place * pow(c->o.theta, -(double)j / pairs);
        cs[2 * j] = (float)cos(angle);
        cs[2 * j + 1] = (float)sin(angle);
    }
}

static int by_slot(const void *a, const void *b)
{
    const lt_run *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* One run a visible frame, sorted, neighbours of equal bias joined. */
static int32_t list_runs(lt_cache *c)
{
    const int32_t tokens = (int32_t)c->tokens;
    int32_t n = 0;
    for (int32_t i = 0; i < c->nvisible; i++) {
        const lt_cache_frame *f = &c->visible[i];
        const double b = f->open ? 1 : f->pinned ? c->sink : c->o.policy.bias * c->past;
        const bool biased = b < 1;
        c->runs[i] = (lt_run){.begin = f->slot * tokens,
                              .end = (f->slot + 1) * tokens,
                              .flags = biased ? LT_RUN_BIAS : 0,
                              .bias = biased ? (float)log(b) : 0};
    }
    qsort(c->runs, (size_t)c->nvisible, sizeof *c->runs, by_slot);
    for (int32_t i = 0; i < c->nvisible; i++) {
        if (n && c->runs[n - 1].end == c->runs[i].begin && c->runs[n - 1].bias == c->runs[i].bias)
            c->runs[n - 1].end = c->runs[i].end;
        else
            c->runs[n++] = c->runs[i];
    }
    return n;
}

static lt_status tell_device(lt_cache *c)
{
    for (int32_t i = 0; i < c->nvisible; i++)
        fill_turn(c, c->visible[i].slot, c->visible[i].place);
    for (int32_t i = 0; i < c->nopen; i++)
        fill_turn(c, c->slots + i, c->visible[c->nvisible - c->nopen + i].place);
    const int32_t ends[4] = {0, (int32_t)(c->nopen * c->tokens), 0, list_runs(c)};
    const size_t time =
        (size_t)(c->slots + lt_cache_most_open(&c->o.policy)) * (size_t)c->space.pairs[0] * 2;
    union { /* the plan's arrays are ours, though whoever reads them may not change them */
        const void *in;
        void *out;
    } to[3] = {{c->key_rope.table[0]}, {c->plan.runs}, {c->plan.q_off}};
    LT_TRY(lt_dev_upload(c->dev, to[0].out, c->time, time * sizeof(float)));
    LT_TRY(lt_dev_upload(c->dev, to[1].out, c->runs, (size_t)ends[3] * sizeof *c->runs));
    return lt_dev_upload(c->dev, to[2].out, ends, sizeof ends);
}

/* ---- blocks ---- */

static lt_status tell_open(lt_cache *c)
{
    set_places(c);
    const lt_status s = tell_device(c);
    if (s < 0) lt_cache_rollback(c);
    return s;
}

lt_status lt_cache_reserve(lt_cache *c, int32_t frames)
{
    LT_TRY(lt_cache_make_room(c, frames));
    place_open(c, frames);
    return tell_open(c);
}

lt_status lt_cache_reopen(lt_cache *c, int32_t first, int32_t frames)
{
    if (c->nopen) return lti_fail(c->ctx, LT_ERR_ARG, "cache: a block is open already");
    if (first < 0 || frames < 1 || frames > c->o.policy.block || first > c->nkept - frames)
        return lti_fail(c->ctx, LT_ERR_ARG, "cache: frames %d..%d of %d that are kept", first,
                        first + frames - 1, c->nkept);
    c->nvisible = first + frames;
    c->nopen = frames;
    c->reopened = true;
    memcpy(c->visible, c->kept, (size_t)c->nvisible * sizeof *c->kept);
    for (int32_t i = first; i < c->nvisible; i++)
        c->visible[i].open = true;
    return tell_open(c);
}

lt_status lt_cache_commit(lt_cache *c)
{
    if (!c->nopen || c->reopened)
        return lti_fail(c->ctx, LT_ERR_ARG, "cache: no %sblock is open", c->nopen ? "new " : "");
    memcpy(c->kept, c->visible, (size_t)c->nvisible * sizeof *c->kept);
    c->nkept = c->nvisible;
    for (int32_t i = 0; i < c->nkept; i++)
        c->kept[i].open = false;
    c->next += c->nopen;
    lt_cache_rollback(c);
    return LT_OK;
}

void lt_cache_rollback(lt_cache *c)
{
    c->nopen = c->nvisible = 0;
    c->reopened = false;
}

lt_status lt_cache_flush(lt_cache *c, int32_t recent)
{
    if (c->nopen) return lti_fail(c->ctx, LT_ERR_ARG, "cache: flushed while a block is open");
    int32_t n = 0;
    for (int32_t i = 0; i < c->nkept; i++)
        if (c->kept[i].pinned || i >= c->nkept - recent) c->kept[n++] = c->kept[i];
    c->nkept = n;
    return LT_OK;
}

lt_status lt_cache_pin(lt_cache *c, int64_t frame, bool pinned)
{
    for (int32_t i = 0; i < c->nkept && !c->nopen; i++) {
        if (c->kept[i].frame != frame) continue;
        c->kept[i].pinned = pinned;
        return LT_OK;
    }
    return lti_fail(c->ctx, LT_ERR_ARG, "cache: frame %" PRId64 " is not kept%s", frame,
                    c->nopen ? ", or a block is open" : "");
}

/* ---- looking ---- */

const lt_cache_frame *lt_cache_list(const lt_cache *c, int32_t *count)
{
    *count = c->nopen ? c->nvisible : c->nkept;
    return c->nopen ? c->visible : c->kept;
}

const lt_cache_frame *lt_cache_kept(const lt_cache *c, int32_t *count)
{
    *count = c->nkept;
    return c->kept;
}

lt_status lt_cache_restore(lt_cache *c, int64_t next, const lt_cache_frame *kept, int32_t count)
{
    const int64_t most = (int64_t)1 << 40; /* places stay whole numbers of a double */
    bool good = next >= c->o.first_frame && next <= most && count >= 0 && count <= c->slots;
    for (int32_t i = 0; good && i < count; i++) {
        const int64_t after = i ? kept[i - 1].frame + 1 : c->o.first_frame;
        good = kept[i].frame >= after && kept[i].frame < next && kept[i].slot >= 0 &&
               kept[i].slot < c->slots && !slot_used(kept, i, kept[i].slot);
    }
    if (!good)
        return lti_fail(c->ctx, LT_ERR_FORMAT,
                        "cache: %d kept frames, next %" PRId64 ": no list of a window of %d", count,
                        next, c->slots);
    lt_cache_rollback(c);
    for (int32_t i = 0; i < count; i++)
        c->kept[i] = (lt_cache_frame){
            .frame = kept[i].frame, .slot = kept[i].slot, .pinned = kept[i].pinned};
    c->nkept = count;
    c->next = next;
    if (count == 0)
        c->shot = next;
    else if (kept[0].pinned) /* the first of the sink, if there is one: it never leaves */
        c->shot = kept[0].frame;
    return LT_OK;
}

void lt_cache_weigh(lt_cache *c, double past, double sink)
{
    assert(past > 0 && past <= 1 && sink > 0 && sink <= 1);
    c->past = past;
    c->sink = sink;
}

int32_t lt_cache_open_frames(const lt_cache *c)
{
    return c->nopen;
}

int64_t lt_cache_next_frame(const lt_cache *c)
{
    return c->next;
}

lt_mat lt_cache_layer(const lt_cache *c, int32_t layer)
{
    const int64_t cols = 2 * (int64_t)c->o.heads * c->o.head_dim;
    const size_t bytes = (size_t)(c->slots * c->tokens) * (size_t)cols * lt_dtype_size(c->o.dtype);
    return (lt_mat){.data = c->kv + (size_t)layer * bytes, .dtype = c->o.dtype, .ld = cols};
}

int64_t lt_cache_rows(const lt_cache *c)
{
    return c->slots * c->tokens;
}

int64_t lt_cache_visible_rows(const lt_cache *c)
{
    return c->nvisible * c->tokens;
}

int64_t lt_cache_open_row(const lt_cache *c, int32_t frame)
{
    return c->visible[c->nvisible - c->nopen + frame].slot * c->tokens;
}

const lt_attn_plan *lt_cache_plan(const lt_cache *c)
{
    return &c->plan;
}

const lt_rope *lt_cache_key_rope(const lt_cache *c)
{
    return &c->key_rope;
}

const lt_rope *lt_cache_query_rope(const lt_cache *c)
{
    return &c->query_rope;
}
