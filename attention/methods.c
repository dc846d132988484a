/* methods.c: the table of ways to choose keys, their text form, and how lists of keys are written. */
#include "attention/methods.h"
#include "attention/words.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Defaults are the released ones, as far as they are not of one grid alone. */
static const lti_method methods[] = {
    {.name = "dense", .keys = " ", .help = "dense: everything is read"},
    {.name = "sta",
     .list = lti_list_sta,
     .tiled = true,
     .groups = 1,
     .keys = " warmup layers refresh tile window file ",
     .defaults = {.warmup = 0.25, .window = {5, 3, 5}},
     .help = "sta: a window of boxes; window=5x3x5 (odd) or file=FILE (of bench attention "
             "--search),\ntile=FxHxW, refresh, warmup=0.25, layers=0"},
    {.name = "svg",
     .list = lti_list_svg,
     .groups = 2,
     .keys = " warmup layers rows density base sink ",
     .defaults = {.warmup = 0.2, .layers = 1, .density = 0.3, .sink = true},
     .help = "svg: bands in space or in time, by head; density=0.3, sink=on, base, rows, "
             "warmup=0.2, layers=1"},
    {.name = "radial",
     .list = lti_list_radial,
     .groups = 1,
     .keys = " warmup layers refresh rows decay base sink ",
     .defaults = {.warmup = 0.25, .layers = 1, .decay = 0.2, .sink = true},
     .help = "radial: bands that narrow with distance in time; decay=0.2, sink=on, base, rows, "
             "refresh,\nwarmup=0.25, layers=1"},
    {.name = "topk",
     .list = lti_list_topk,
     .tiled = true,
     .keys = " warmup layers refresh tile keep ramp p tau centroid drift ",
     .defaults = {.warmup = 0.25, .keep = 0.2, .drift = 0.1},
     .help =
         "topk: the boxes whose mean key fits best; keep=0.2 (part) or p=0.9 (of the weight) or "
         "tau=1 (deviations),\nramp=0.5 (keep at first, falling to keep=), centroid (the rest "
         "stand "
         "in as means),\nrefresh=6 (every sixth step reads all keys too, and those between add "
         "what "
         "they left out then),\ndrift=0.1, tile=FxHxW, warmup=0.25, layers=0"},
};

const lti_method *lti_method_at(int32_t i)
{
    return i >= 0 && (size_t)i < LT_COUNT(methods) ? &methods[i] : NULL;
}

const char *lt_sparse_name(int32_t i)
{
    return lti_method_at(i) ? methods[i].name : NULL;
}

const char *lt_sparse_help(int32_t i)
{
    return lti_method_at(i) ? methods[i].help : NULL;
}

/* ---- text ---- */

typedef lti_word_text word;

enum { MOST_REFRESH = 4096, MOST_LAYERS = 4096, MOST_ROWS = 4096, MOST_BASE = 1 << 20 };

static bool on_off(word w, bool *out)
{
    *out = lti_word_is(w, "on");
    return *out || lti_word_is(w, "off");
}

/* The three ways of counting exclude each other; a default gives way. */
static bool amount(lt_sparse_spec *s, word w, double high, double *out)
{
    s->keep = s->mass = s->tau = 0;
    return lti_read_number(w, 0, high, out) && *out > 0;
}

static bool path(word w, char out[LT_SPARSE_FILE])
{
    if (w.len == 0 || w.len >= LT_SPARSE_FILE) return false;
    memcpy(out, w.text, w.len);
    out[w.len] = 0;
    return true;
}

/* What each key takes. */
static const struct {
    const char *name, *takes;
    bool amount; /* how much is read: one of these */
} forms[] = {{"warmup", "0 to 1", false},
             {"layers", "a number, 0 to 4096", false},
             {"refresh", "a number, 2 to 4096", false},
             {"tile", "FxHxW, each 1 to 4096", false},
             {"window", "FxHxW, odd, each 1 to 4095", false},
             {"rows", "a number, 1 to 4096", false},
             {"density", "more than 0, up to 1", false},
             {"decay", "0 to 4", false},
             {"base", "a number, 1 to 1048576", false},
             {"sink", "on or off", false},
             {"keep", "more than 0, up to 1", true},
             {"p", "more than 0, up to 1", true},
             {"tau", "more than 0, up to 10", true},
             {"ramp", "0 to 1", false},
             {"file", "a path", false},
             {"drift", "0 to 100", false},
             {"centroid", "nothing behind it", false}};

static bool set_key(lt_sparse_spec *s, word key, word v)
{
    if (lti_word_is(key, "warmup")) return lti_read_number(v, 0, 1, &s->warmup);
    if (lti_word_is(key, "layers")) return lti_read_whole(v, 0, MOST_LAYERS, &s->layers);
    if (lti_word_is(key, "refresh")) return lti_read_whole(v, 2, MOST_REFRESH, &s->refresh);
    if (lti_word_is(key, "tile")) return lti_read_box(v, s->tile);
    if (lti_word_is(key, "window")) return lti_read_odd_box(v, s->window);
    if (lti_word_is(key, "rows")) return lti_read_whole(v, 1, MOST_ROWS, &s->rows);
    if (lti_word_is(key, "density")) return lti_read_number(v, 0, 1, &s->density) && s->density > 0;
    if (lti_word_is(key, "decay")) return lti_read_number(v, 0, 4, &s->decay);
    if (lti_word_is(key, "base")) return lti_read_whole(v, 1, MOST_BASE, &s->base);
    if (lti_word_is(key, "sink")) return on_off(v, &s->sink);
    if (lti_word_is(key, "keep")) return amount(s, v, 1, &s->keep);
    if (lti_word_is(key, "p")) return amount(s, v, 1, &s->mass);
    if (lti_word_is(key, "tau")) return amount(s, v, 10, &s->tau);
    if (lti_word_is(key, "ramp")) return lti_read_number(v, 0, 1, &s->ramp);
    if (lti_word_is(key, "file")) return path(v, s->file);
    if (lti_word_is(key, "drift")) return lti_read_number(v, 0, 100, &s->drift);
    if (lti_word_is(key, "centroid")) return (s->centroid = v.len == 0);
    return false;
}

static bool takes(const lti_method *m, word key)
{
    for (const char *at = m->keys + 1; *at; at += strcspn(at, " ") + 1)
        if (key.len && strcspn(at, " ") == key.len && !memcmp(at, key.text, key.len)) return true;
    return false;
}

/* A key is given once, and one of those that say how much is read. `seen`: a bit for each that was. */
static lt_status take_once(lt_ctx *ctx, word key, uint32_t *seen, size_t *form)
{
    size_t i = 0;
    while (i + 1 < LT_COUNT(forms) && !lti_word_is(key, forms[i].name))
        i++;
    *form = i;
    for (size_t k = 0; k < LT_COUNT(forms); k++) {
        if (!(*seen >> k & 1)) continue;
        if (k == i)
            return lti_fail(ctx, LT_ERR_ARG, "attention: \"%s\" is given twice", forms[i].name);
        if (forms[k].amount && forms[i].amount)
            return lti_fail(ctx, LT_ERR_ARG, "attention: \"%s\" and \"%s\": give one of the two",
                            forms[k].name, forms[i].name);
    }
    *seen |= (uint32_t)1 << i;
    return LT_OK;
}

static lt_status parse_item(lt_sparse_spec *out, lt_ctx *ctx, const lti_method *m, word item,
                            uint32_t *seen)
{
    const char *eq = memchr(item.text, '=', item.len);
    const word key = {item.text, eq ? (size_t)(eq - item.text) : item.len};
    const word value = {eq ? eq + 1 : "", eq ? item.len - key.len - 1 : 0};
    const int shown = (int)(item.len > 80 ? 80 : item.len);
    size_t form;
    if (!takes(m, key))
        return lti_fail(ctx, LT_ERR_ARG, "attention: %s takes no \"%.*s\"; it takes%s", m->name,
                        shown, item.text, m->keys[1] ? m->keys : " no keys");
    LT_TRY(take_once(ctx, key, seen, &form));
    if (!set_key(out, key, value))
        return lti_fail(ctx, LT_ERR_ARG, "attention: \"%.*s\" cannot be: %s takes %s", shown,
                        item.text, forms[form].name, forms[form].takes);
    return LT_OK;
}

static lt_status unknown_method(lt_ctx *ctx, word name)
{
    char known[300];
    int n = 0;
    for (size_t i = 0; i < LT_COUNT(methods) && n < (int)sizeof known; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", i ? ", " : "", methods[i].name);
    return lti_fail(ctx, LT_ERR_ARG, "attention: '%.*s' is not one of %s",
                    (int)(name.len > 80 ? 80 : name.len), name.text, known);
}

lt_status lt_sparse_parse(lt_sparse_spec *out, lt_ctx *ctx, const char *text)
{
    *out = (lt_sparse_spec){0};
    if (!text || !*text) return LT_OK;
    const word name = {text, strcspn(text, ":")};
    int32_t i = 0;
    while (lti_method_at(i) && !lti_word_is(name, methods[i].name))
        i++;
    if (!lti_method_at(i)) return unknown_method(ctx, name);
    *out = methods[i].defaults;
    out->method = i;
    uint32_t seen = 0;
    for (const char *at = text + name.len; *at;) {
        at++; /* ':' before the first, ',' before the others */
        const word item = {at, strcspn(at, ",")};
        LT_TRY(parse_item(out, ctx, &methods[i], item, &seen));
        at += item.len;
    }
    return lt_sparse_check(ctx, out);
}

static bool in_range(int32_t x, int32_t low, int32_t high)
{
    return x >= low && x <= high;
}

static bool all_in(const int32_t side[3], int32_t low, int32_t high)
{
    return in_range(side[0], low, high) && in_range(side[1], low, high) &&
           in_range(side[2], low, high);
}

/* What is right alone and not together. */
static lt_status check_together(lt_ctx *ctx, const lt_sparse_spec *s)
{
    if (s->refresh > 0 && s->centroid)
        return lti_fail(ctx, LT_ERR_ARG, "attention: refresh=%d and centroid: give one of the two",
                        s->refresh);
    if (s->ramp > 0 && !(s->keep > 0))
        return lti_fail(ctx, LT_ERR_ARG,
                        "attention: ramp=%g falls to keep=, not to p= or tau=", s->ramp);
    if (s->ramp > 0 && s->ramp < s->keep)
        return lti_fail(ctx, LT_ERR_ARG, "attention: ramp=%g is less than the keep=%g it falls to",
                        s->ramp, s->keep);
    return LT_OK;
}

lt_status lt_sparse_check(lt_ctx *ctx, const lt_sparse_spec *s)
{
    const lti_method *m = lti_method_at(s->method);
    if (!m) return lti_fail(ctx, LT_ERR_ARG, "attention: no method %d", s->method);
    if (!m->list) return LT_OK;
    LT_TRY(check_together(ctx, s));
    const bool counts = (s->keep > 0) + (s->mass > 0) + (s->tau > 0) == 1;
    const bool whole = in_range(s->layers, 0, MOST_LAYERS) && in_range(s->rows, 0, MOST_ROWS) &&
                       in_range(s->base, 0, MOST_BASE);
    const bool good = whole && (all_in(s->tile, 0, 0) || all_in(s->tile, 1, LTI_MOST_SIDE)) &&
                      s->warmup >= 0 && s->warmup <= 1 && s->drift >= 0 && s->decay >= 0 &&
                      s->ramp <= 1 && (m->list != lti_list_topk || counts) &&
                      (s->refresh == 0 || in_range(s->refresh, 2, MOST_REFRESH)) && s->ramp >= 0 &&
                      (m->list != lti_list_sta || lti_odd_box(s->window)) &&
                      (m->list != lti_list_svg || (s->density > 0 && s->density <= 1));
    if (!good)
        return lti_fail(ctx, LT_ERR_ARG, "attention: parameters of %s are out of range", m->name);
    return LT_OK;
}

/* ---- lists ---- */

void lti_list_add(lti_list *l, int64_t begin, int64_t end, float bias)
{
    if (begin >= end) return;
    assert(l->n < l->max);
    l->run[l->n++] = (lt_run){.begin = (int32_t)begin, .end = (int32_t)end, .bias = bias};
}

void lti_read_tokens(lti_list *l, const lti_scene *s, int32_t f, int64_t begin, int64_t end)
{
    const int64_t base = (int64_t)s->key[f].slot * s->frame;
    begin = begin < 0 ? 0 : begin;
    end = end > s->frame ? s->frame : end;
    lti_list_add(l, base + begin, base + end, s->key[f].bias);
}

int32_t lti_boxes_deep(const lti_scene *s)
{
    return s->cached ? s->nkeys : s->tiling->count[0];
}

int32_t lti_box(const lti_scene *s, int32_t f, int32_t y, int32_t x)
{
    const int32_t deep = s->cached ? s->key[f].slot : f;
    return (deep * s->tiling->count[1] + y) * s->tiling->count[2] + x;
}

void lti_box_rows(const lti_scene *s, int32_t box, int32_t *begin, int32_t *end)
{
    const int32_t each = s->tiling->count[1] * s->tiling->count[2];
    const int32_t base = s->cached ? box / each * s->frame : 0, i = s->cached ? box % each : box;
    *begin = base + s->tiling->off[i];
    *end = base + s->tiling->off[i + 1];
}

void lti_read_boxes(lti_list *l, const lti_scene *s, int32_t f, int32_t y, int32_t x0, int32_t x1)
{
    int32_t begin, end, unused;
    lti_box_rows(s, lti_box(s, f, y, x0), &begin, &unused);
    lti_box_rows(s, lti_box(s, f, y, x1), &unused, &end);
    lti_list_add(l, begin, end, s->cached ? s->key[f].bias : 0);
}

void lti_tile_place(const lti_scene *s, int32_t tile, int32_t place[3])
{
    const int32_t *n = s->tiling->count;
    place[2] = tile % n[2];
    place[1] = tile / n[2] % n[1];
    place[0] = tile / n[2] / n[1] + (s->cached ? s->nkeys - s->q.frames : 0);
}
