/* prompts.c: which prompt is in force, block after block. */
#include "video/prompts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 4096 };
static const double max_seconds = 1e7;

/* ---- texts ---- */

static bool is_utf8(const char *text)
{
    while (*text) {
        const size_t n = lti_utf8_character(text);
        if (!n) return false;
        text += n;
    }
    return true;
}

/* Why it cannot be the text of a change; NULL: it can. (A video's first prompt may be empty.) */
static const char *text_fault(const char *text)
{
    const size_t n = text ? strnlen(text, LT_MAX_PROMPT_BYTES + 1) : 0;
    if (n == 0 || strspn(text, " \t\r\n") == n) return "the text is empty";
    if (n > LT_MAX_PROMPT_BYTES) return "the text is longer than 65536 bytes";
    return is_utf8(text) ? NULL : "the text is not UTF-8";
}

static lti_order *order_of(const char *text, int32_t blend_blocks)
{
    const size_t n = strlen(text) + 1;
    lti_order *o = malloc(sizeof *o + n);
    if (!o) return NULL;
    o->blend_blocks = blend_blocks;
    memcpy(o->text, text, n);
    return o;
}

int64_t lti_cue_frame(const lt_cue *cue, int32_t fps)
{
    return cue->frame > 0 ? cue->frame : (int64_t)ceil(cue->seconds * fps - 1e-6);
}

lt_status lti_prompts_check(lt_ctx *ctx, const lt_cue *cue, int32_t cues, int32_t fps)
{
    if (cues < 0 || cues > LT_MAX_CUES || (cues && !cue))
        return lti_fail(ctx, LT_ERR_ARG, "timeline: %d prompts: not in 0..%d", cues, LT_MAX_CUES);
    for (int32_t i = 0; i < cues; i++) {
        const char *fault = text_fault(cue[i].prompt);
        if (fault) return lti_fail(ctx, LT_ERR_ARG, "timeline, prompt %d: %s", i + 1, fault);
        if (cue[i].frame < 0 || cue[i].frame > (int64_t)1 << 40 ||
            !(cue[i].seconds >= 0 && cue[i].seconds <= max_seconds))
            return lti_fail(ctx, LT_ERR_ARG,
                            "timeline, prompt %d: at frame %" PRId64 ", second %g: not a time",
                            i + 1, cue[i].frame, cue[i].seconds);
        if (cue[i].blend_blocks < 0 || cue[i].blend_blocks > LT_MAX_BLEND)
            return lti_fail(ctx, LT_ERR_ARG,
                            "timeline, prompt %d: blend over %d blocks: not in 0..%d", i + 1,
                            cue[i].blend_blocks, LT_MAX_BLEND);
        const int64_t frame = lti_cue_frame(&cue[i], fps);
        if (i && frame < lti_cue_frame(&cue[i - 1], fps))
            return lti_fail(
                ctx, LT_ERR_ARG,
                "timeline, prompt %d is earlier than the one before it: at frame %" PRId64
                ", that one at %" PRId64,
                i + 1, frame, lti_cue_frame(&cue[i - 1], fps));
    }
    return LT_OK;
}

/* ---- making ---- */

static lt_status copy_cues(lti_prompts *p, const lt_cue *cue, int32_t cues)
{
    p->cue = calloc((size_t)cues + 1, sizeof *p->cue);
    if (!p->cue) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d prompts", cues);
    for (int32_t i = 0; i < cues; i++) {
        p->cue[i] = cue[i];
        p->cue[i].prompt = strdup(cue[i].prompt);
        p->cues = i + 1;
        if (!p->cue[i].prompt) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for a prompt");
    }
    return LT_OK;
}

lt_status lti_prompts_open(lti_prompts *p, lt_ctx *ctx, const lt_session_options *o, int32_t dim)
{
    p->ctx = ctx;
    p->fps = o->fps;
    p->dim = dim;
    p->block = -1;
    atomic_init(&p->posted, NULL);
    return copy_cues(p, o->timeline, o->cues);
}

static void free_text(const char *text)
{
    union { /* ours, though the public struct lends it */
        const char *in;
        void *out;
    } t = {text};
    free(t.out);
}

static void free_cues(lti_prompts *p)
{
    for (int32_t i = 0; i < p->cues; i++)
        free_text(p->cue[i].prompt);
    free(p->cue);
    p->cue = NULL;
    p->cues = p->next_cue = 0;
}

static void free_marks(lti_prompts *p)
{
    for (int32_t i = 0; i < p->marks; i++)
        free_text(p->mark[i].prompt);
    p->marks = 0;
}

void lti_prompts_close(lti_prompts *p)
{
    free(atomic_exchange(&p->posted, NULL));
    free(p->due);
    free_cues(p);
    free_marks(p);
    free(p->mark);
    free(p->from.v);
    free(p->to.v);
    free(p->now.v);
}

/* ---- what is due ---- */

lt_status lti_prompts_post(lti_prompts *p, const char *text, int32_t blend_blocks)
{
    if (text_fault(text) || blend_blocks < 0 || blend_blocks > LT_MAX_BLEND) return LT_ERR_ARG;
    lti_order *o = order_of(text, blend_blocks);
    if (!o) return LT_ERR_MEM;
    free(atomic_exchange(&p->posted, o));
    return LT_OK;
}

const char *lti_prompts_due(lti_prompts *p, int64_t frame)
{
    int32_t last = -1;
    while (p->next_cue < p->cues && lti_cue_frame(&p->cue[p->next_cue], p->fps) <= frame)
        last = p->next_cue++;
    lti_order *o = atomic_exchange(&p->posted, NULL); /* what somebody asks for now comes last */
    if (!o && last >= 0) {
        o = order_of(p->cue[last].prompt, p->cue[last].blend_blocks);
        if (!o) p->next_cue = last; /* with the next block, then */
    }
    if (o) {
        free(p->due);
        p->due = o;
    }
    return p->due ? p->due->text : NULL;
}

/* ---- what is in force ---- */

static int32_t blend_of(const lti_prompts *p)
{
    return p->due && !p->at_once ? p->due->blend_blocks : 0;
}

static lt_status add_mark(lti_prompts *p, const char *text, int64_t frame, int64_t block)
{
    if (p->marks == LT_MAX_CUES) {
        free_text(p->mark[0].prompt);
        memmove(p->mark, p->mark + 1, (size_t)--p->marks * sizeof *p->mark);
    }
    if (p->marks == p->room) {
        lt_prompt_mark *more = realloc(p->mark, (size_t)(p->room + 16) * sizeof *more);
        if (!more) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for a prompt");
        p->mark = more;
        p->room += 16;
    }
    char *copy = strdup(text);
    if (!copy) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for a prompt");
    p->mark[p->marks] = (lt_prompt_mark){.number = p->marks ? p->mark[p->marks - 1].number + 1 : 0,
                                         .frame = frame,
                                         .block = block,
                                         .blend_blocks = blend_of(p),
                                         .prompt = copy};
    p->marks++;
    return LT_OK;
}

static lt_status copy_rows(lti_prompts *p, lti_rows *to, const float *v, int32_t n)
{
    const size_t bytes = (size_t)n * (size_t)p->dim * sizeof *v;
    float *copy = malloc(bytes + 1);
    if (!copy) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d rows of text", n);
    memcpy(copy, v, bytes);
    free(to->v);
    *to = (lti_rows){copy, n};
    return LT_OK;
}

lt_status lti_prompts_begin(lti_prompts *p, const char *text, int64_t frame, int64_t block,
                            const float *rows, int32_t n)
{
    LT_TRY(copy_rows(p, &p->from, p->now.v ? p->now.v : rows, p->now.v ? p->now.n : n));
    LT_TRY(copy_rows(p, &p->to, rows, n));
    LT_TRY(add_mark(p, text, frame, block));
    p->blend_at = 0;
    p->blend_of = blend_of(p) > 1 ? blend_of(p) : 1;
    free(p->due);
    p->due = NULL;
    if (p->now.v) return LT_OK;
    p->blend_at = p->blend_of; /* the first prompt: nothing to turn from */
    return copy_rows(p, &p->now, rows, n);
}

/* now = (1 - a) from + a to; a text that has no more rows goes on with zeros, as the model sees it. */
static lt_status mix(lti_prompts *p, double a)
{
    const int32_t n = p->from.n > p->to.n ? p->from.n : p->to.n;
    const size_t all = (size_t)n * (size_t)p->dim, from = (size_t)p->from.n * (size_t)p->dim,
                 to = (size_t)p->to.n * (size_t)p->dim;
    float *v = malloc(all * sizeof *v + 1);
    if (!v) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d rows of text", n);
    for (size_t i = 0; i < all; i++)
        v[i] = (float)((1 - a) * (i < from ? (double)p->from.v[i] : 0) +
                       a * (i < to ? (double)p->to.v[i] : 0));
    free(p->now.v);
    p->now = (lti_rows){v, n};
    return LT_OK;
}

lt_status lti_prompts_step(lti_prompts *p, int64_t block, bool *changed, bool *renew)
{
    *changed = *renew = false;
    if (p->block == block) return LT_OK;
    if (p->blend_at < p->blend_of) {
        const int32_t at = p->blend_at + 1;
        if (at == p->blend_of)
            LT_TRY(copy_rows(p, &p->now, p->to.v, p->to.n));
        else
            LT_TRY(mix(p, (double)at / p->blend_of));
        p->blend_at = at;
        *changed = true;
        *renew = at == p->blend_of / 2 + 1;
    }
    p->block = block;
    return LT_OK;
}

const lt_prompt_mark *lti_prompts_mark(const lti_prompts *p, int32_t number)
{
    for (int32_t i = p->marks - 1; i >= 0; i--)
        if (p->mark[i].number == number) return &p->mark[i];
    return NULL;
}

/* ---- to a file and back ---- */

static lt_status rows_state(lti_prompts *p, lti_state *io, lti_rows *r)
{
    int32_t n = r->n;
    LT_TRY(lti_state_int32(io, "rows of text", &n, 1, MAX_ROWS));
    if (io->reading) {
        free(r->v);
        *r = (lti_rows){malloc((size_t)n * (size_t)p->dim * sizeof *r->v), n};
        if (!r->v) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d rows of text", n);
    }
    return lti_state_bytes(io, r->v, (size_t)n * (size_t)p->dim * sizeof *r->v);
}

/* A text that is handed over through a buffer of its own. */
static lt_status lent_text(lti_state *io, const char *name, const char **text)
{
    char *t = NULL;
    if (!io->reading) {
        t = strdup(*text);
        if (!t) return lti_fail(io->ctx, LT_ERR_MEM, "no memory for a prompt");
    }
    lt_status s = lti_state_text(io, name, &t, LT_MAX_PROMPT_BYTES);
    if (s >= 0 && io->reading && (!t || !is_utf8(t)))
        s = lti_fail(io->ctx, LT_ERR_FORMAT, "%s: no text", name);
    if (s >= 0 && io->reading) {
        *text = t;
        return s;
    }
    free(t);
    return s;
}

static lt_status cue_state(lti_state *io, lt_cue *c)
{
    LT_TRY(lti_state_real(io, "time of a prompt", &c->seconds, 0, max_seconds));
    LT_TRY(lti_state_int(io, "frame of a prompt", &c->frame, 0, (int64_t)1 << 40));
    LT_TRY(lti_state_int32(io, "blend of a prompt", &c->blend_blocks, 0, LT_MAX_BLEND));
    return lent_text(io, "a prompt to come", &c->prompt);
}

/* Only what is still to come. */
static lt_status timeline_state(lti_prompts *p, lti_state *io)
{
    int32_t n = p->cues - p->next_cue;
    LT_TRY(lti_state_int32(io, "prompts to come", &n, 0, LT_MAX_CUES));
    if (io->reading) {
        free_cues(p);
        p->cue = calloc((size_t)n + 1, sizeof *p->cue);
        if (!p->cue) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d prompts", n);
    }
    for (int32_t i = 0; i < n; i++) {
        LT_TRY(cue_state(io, &p->cue[p->next_cue + i]));
        if (io->reading) p->cues = i + 1;
    }
    return LT_OK;
}

static lt_status mark_state(lti_state *io, lt_prompt_mark *m, int32_t least)
{
    LT_TRY(lti_state_int32(io, "number of a prompt", &m->number, least, INT32_MAX - LT_MAX_CUES));
    LT_TRY(lti_state_int(io, "frame of a prompt", &m->frame, 0, INT64_MAX));
    LT_TRY(lti_state_int(io, "block of a prompt", &m->block, 0, INT64_MAX));
    LT_TRY(lti_state_int32(io, "blend of a prompt", &m->blend_blocks, 0, LT_MAX_BLEND));
    return lent_text(io, "a prompt", &m->prompt);
}

static lt_status marks_state(lti_prompts *p, lti_state *io)
{
    int32_t n = p->marks;
    LT_TRY(lti_state_int32(io, "prompts", &n, 1, LT_MAX_CUES));
    if (io->reading) {
        free_marks(p);
        free(p->mark);
        p->room = n;
        p->mark = calloc((size_t)n, sizeof *p->mark);
        if (!p->mark) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d prompts", n);
    }
    for (int32_t i = 0; i < n; i++) {
        LT_TRY(mark_state(io, &p->mark[i], i ? p->mark[i - 1].number + 1 : 0));
        if (io->reading) p->marks = i + 1;
    }
    return LT_OK;
}

static lt_status order_state(lti_prompts *p, lti_state *io)
{
    lti_order *posted = io->reading ? NULL : atomic_exchange(&p->posted, NULL);
    if (posted) { /* it would have been taken at the next block */
        free(p->due);
        p->due = posted;
    }
    bool due = p->due != NULL;
    LT_TRY(lti_state_bool(io, "a prompt is due", &due));
    if (!due) return LT_OK;
    const char *text = p->due ? p->due->text : NULL;
    int32_t blend = p->due ? p->due->blend_blocks : 0;
    LT_TRY(lti_state_int32(io, "blend of a prompt", &blend, 0, LT_MAX_BLEND));
    LT_TRY(lent_text(io, "the prompt that is due", &text));
    if (!io->reading) return LT_OK;
    p->due = order_of(text, blend);
    free_text(text);
    return p->due ? LT_OK : lti_fail(p->ctx, LT_ERR_MEM, "no memory for a prompt");
}

lt_status lti_prompts_state(lti_prompts *p, lti_state *io)
{
    int32_t dim = p->dim;
    LT_TRY(lti_state_int32(io, "width of text rows", &dim, p->dim, p->dim));
    LT_TRY(timeline_state(p, io));
    LT_TRY(order_state(p, io));
    LT_TRY(marks_state(p, io));
    LT_TRY(lti_state_int32(io, "blocks blended", &p->blend_at, 0, LT_MAX_BLEND));
    LT_TRY(lti_state_int32(io, "blocks to blend", &p->blend_of, 1, LT_MAX_BLEND));
    LT_TRY(lti_state_int(io, "block of the prompt", &p->block, -1, INT64_MAX));
    LT_TRY(rows_state(p, io, &p->from));
    LT_TRY(rows_state(p, io, &p->to));
    return rows_state(p, io, &p->now);
}
