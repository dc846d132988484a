/* tensors.c: a set of tensors over one file or many, asked by canonical name (files.h, upper half). */
#include "video/files_internal.h"
#include "video/format.h"
#include "video/json.h"
#include "video/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shards and tensors beyond these are not a model but an attack; real ones have 12 and 1,304. */
enum { MAX_SHARDS = 1024, MAX_INDEX_BYTES = 64 << 20 };

/* Memory that tensors are read into. Kept from one to the next: fresh pages cost twice as much as the reading. */
typedef struct loan {
    void *data;
    size_t room;
    bool lent;
} loan;

struct lti_tensors {
    lt_ctx *ctx;
    char *path;
    lti_part part;
    lti_naming naming;
    lti_file **file;
    int32_t files, room;
    lti_entry *entry;
    int64_t count;
    loan *loan;
    int32_t loans;
};

/* Nothing that was lent is used any more. */
static void end_loans(lti_tensors *t)
{
    for (int32_t i = 0; i < t->loans; i++)
        free(t->loan[i].data);
    free(t->loan);
    t->loan = NULL;
    t->loans = 0;
}

void lti_tensors_close(lti_tensors **pt)
{
    lti_tensors *t = *pt;
    if (!t) return;
    for (int64_t i = 0; i < t->count; i++)
        free(t->entry[i].name);
    free(t->entry);
    end_loans(t);
    for (int32_t i = 0; i < t->files; i++)
        lti_file_close(&t->file[i]);
    free(t->file);
    free(t->path);
    free(t);
    *pt = NULL;
}

static lt_status add_file(lti_tensors *t, const char *path)
{
    if (t->files == MAX_SHARDS)
        return lti_fail(t->ctx, LT_ERR_FORMAT, "%s: more than %d shards", t->path, MAX_SHARDS);
    if (t->files == t->room) {
        const int32_t room = t->room ? 2 * t->room : 8;
        lti_file **p = realloc(t->file, (size_t)room * sizeof(lti_file *));
        if (!p) return lti_fail(t->ctx, LT_ERR_MEM, "%s: no memory for %d shards", t->path, room);
        t->file = p;
        t->room = room;
    }
    LT_TRY(lti_file_open(&t->file[t->files], t->ctx, path));
    t->files++;
    return LT_OK;
}

lt_status lti_read_file(char **text, size_t *len, lt_ctx *ctx, const char *path, size_t limit)
{
    *text = NULL;
    *len = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return lti_fail(ctx, LT_ERR_IO, "%s: %s", path, strerror(errno));
    lt_status s = LT_OK;
    size_t n = 0, room = 0;
    char *buf = NULL;
    for (;;) {
        if (room - n < 2) {
            room = room ? 2 * room : 4096;
            char *p = realloc(buf, room);
            if (!p) {
                s = lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %zu bytes", path, room);
                goto fail;
            }
            buf = p;
        }
        const size_t got = fread(buf + n, 1, room - n - 1, f);
        n += got;
        if (n > limit) {
            s = lti_fail(ctx, LT_ERR_FORMAT, "%s: longer than %zu bytes", path, limit);
            goto fail;
        }
        if (!got) break;
    }
    if (ferror(f)) {
        s = lti_fail(ctx, LT_ERR_IO, "%s: %s", path, strerror(errno));
        goto fail;
    }
    fclose(f);
    buf[n] = 0;
    *text = buf;
    *len = n;
    return LT_OK;
fail:
    free(buf);
    fclose(f);
    return s;
}

/* ---- index ------------------------------------------------------------------------------- */

/* A shard is a plain name beside the index: nothing in a downloaded file may point elsewhere. */
static bool plain_name(const char *s)
{
    return *s && *s != '.' && !strchr(s, '/') && !strchr(s, '\\');
}

static bool is_open(const lti_tensors *t, const char *path)
{
    for (int32_t i = 0; i < t->files; i++)
        if (!strcmp(t->file[i]->path, path)) return true;
    return false;
}

static lt_status open_shards(lti_tensors *t, json_t *map)
{
    const char *slash = strrchr(t->path, '/');
    const size_t dir = slash ? (size_t)(slash + 1 - t->path) : 0;
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const char *shard = json_string_value(value);
        if (!shard || !plain_name(shard))
            return lti_fail(t->ctx, LT_ERR_FORMAT,
                            "%s: tensor \"%s\": its file must be a plain name, not \"%.80s\"",
                            t->path, name, shard ? shard : "");
        char path[4096];
        if (snprintf(path, sizeof path, "%.*s%s", (int)dir, t->path, shard) >= (int)sizeof path)
            return lti_fail(t->ctx, LT_ERR_FORMAT, "%s: file name too long", t->path);
        if (is_open(t, path)) continue;
        if (access(path, F_OK))
            return lti_fail(t->ctx, LT_ERR_MISSING, "%s: the shard %s is missing", t->path, shard);
        LT_TRY(add_file(t, path));
    }
    if (!t->files) return lti_fail(t->ctx, LT_ERR_FORMAT, "%s: names no tensor", t->path);
    return LT_OK;
}

static lt_status open_index(lti_tensors *t, json_t **weight_map)
{
    char *text;
    size_t len;
    LT_TRY(lti_read_file(&text, &len, t->ctx, t->path, MAX_INDEX_BYTES));
    json_t *index;
    lt_status s = lti_json_parse(&index, t->ctx, text, len, 8, t->path);
    free(text);
    if (s < 0) return s;
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        s = lti_fail(t->ctx, LT_ERR_FORMAT, "%s: no object \"weight_map\"", t->path);
    else
        s = open_shards(t, map);
    if (s >= 0) *weight_map = json_incref(map);
    json_decref(index);
    return s;
}

/* Every tensor of the index must be in a shard: as stored, or (tied embeddings) under its other name. */
static lt_status check_index(const lti_tensors *t, const lti_naming *naming, json_t *map)
{
    const char *name;
    json_t *value;
    char canonical[512];
    json_object_foreach(map, name, value)
    {
        if (lti_naming_apply(naming, name, canonical, sizeof canonical) != LTI_NAME_USED) continue;
        if (!lti_tensors_find(t, canonical))
            return lti_fail(t->ctx, LT_ERR_MISSING, "%s: tensor \"%s\" is not in %s", t->path, name,
                            json_string_value(value));
    }
    return LT_OK;
}

/* ---- entries ----------------------------------------------------------------------------- */

static int by_name(const void *pa, const void *pb)
{
    const lti_entry *a = pa, *b = pb;
    const int c = strcmp(a->name, b->name);
    if (c) return c;
    if (a->ignored != b->ignored) return a->ignored ? 1 : -1;
    return strcmp(b->stored, a->stored); /* "shared" before "encoder.embed_tokens" */
}

static lt_status add_entry(lti_tensors *t, const lti_naming *naming, const lti_stored *from,
                           int32_t file)
{
    char name[512];
    const lti_name_kind kind = lti_naming_apply(naming, from->name, name, sizeof name);
    if (kind == LTI_NAME_OTHER) return LT_OK;
    lti_entry *e = &t->entry[t->count];
    *e = (lti_entry){.name = strdup(name),
                     .stored = from->name,
                     .type = from->type->name,
                     .dtype = from->type->dtype,
                     .ndim = from->ndim,
                     .at = t->file[file]->data_at + from->begin,
                     .bytes = from->end - from->begin,
                     .file = file,
                     .ignored = kind == LTI_NAME_IGNORED};
    memcpy(e->dim, from->dim, sizeof e->dim);
    if (!e->name) return lti_fail(t->ctx, LT_ERR_MEM, "%s: no memory for tensor names", t->path);
    t->count++;
    return LT_OK;
}

static bool same_shape(const lti_entry *a, const lti_entry *b)
{
    if (a->ndim != b->ndim || a->bytes != b->bytes) return false;
    return !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]);
}

/* Two stored names for one tensor: the tied embedding of T5 is one matrix twice, anything else is a mistake. */
static lt_status check_twins(lti_tensors *t)
{
    for (int64_t i = 1; i < t->count; i++) {
        lti_entry *a = &t->entry[i - 1], *b = &t->entry[i];
        if (strcmp(a->name, b->name) || a->ignored || b->ignored) continue;
        const bool tied = t->part == LTI_PART_TEXT && !strcmp(a->name, "token_embedding.weight");
        if (!tied || !strcmp(a->stored, b->stored) || !same_shape(a, b))
            return lti_fail(t->ctx, LT_ERR_FORMAT,
                            "%s: tensor \"%s\" is there twice: \"%s\" in %s, \"%s\" in %s", t->path,
                            a->name, a->stored, t->file[a->file]->path, b->stored,
                            t->file[b->file]->path);
        b->ignored = true;
    }
    return LT_OK;
}

static lt_status fill_entries(lti_tensors *t, const char *prefix)
{
    size_t total = 0;
    for (int32_t i = 0; i < t->files; i++)
        total += (size_t)t->file[i]->count;
    const char **names = calloc(total + 1, sizeof *names);
    t->entry = calloc(total + 1, sizeof *t->entry);
    if (!names || !t->entry) {
        free(names);
        return lti_fail(t->ctx, LT_ERR_MEM, "%s: no memory for %zu tensors", t->path, total);
    }
    int64_t n = 0;
    for (int32_t i = 0; i < t->files; i++)
        for (int64_t k = 0; k < t->file[i]->count; k++)
            names[n++] = t->file[i]->tensor[k].name;
    lti_naming_detect(&t->naming, t->part, names, n, prefix);
    free(names);

    for (int32_t i = 0; i < t->files; i++)
        for (int64_t k = 0; k < t->file[i]->count; k++)
            LT_TRY(add_entry(t, &t->naming, &t->file[i]->tensor[k], i));
    qsort(t->entry, (size_t)t->count, sizeof *t->entry, by_name);
    return check_twins(t);
}

lt_status lti_tensors_open(lti_tensors **out, lt_ctx *ctx, const char *path, lti_part part,
                           const char *prefix)
{
    *out = NULL;
    json_t *map = NULL;
    lti_tensors *t = calloc(1, sizeof *t);
    if (!t) return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %zu bytes", path, sizeof *t);
    t->ctx = ctx;
    t->part = part;
    t->path = strdup(path);
    lt_status s;
    if (!t->path)
        s = lti_fail(ctx, LT_ERR_MEM, "%s: no memory for its name", path);
    else if (lti_ends_with(path, ".index.json"))
        s = open_index(t, &map);
    else
        s = add_file(t, path);
    if (s >= 0) s = fill_entries(t, prefix);
    if (s >= 0 && map) s = check_index(t, &t->naming, map);
    json_decref(map);
    if (s < 0)
        lti_tensors_close(&t);
    else
        *out = t;
    return s;
}

lt_status lti_file_parts(uint32_t *parts, lt_ctx *ctx, const char *path)
{
    *parts = 0;
    lti_tensors *t;
    LT_TRY(lti_tensors_open(&t, ctx, path, LTI_PART_RAW, NULL));
    const char **names = calloc((size_t)t->count + 1, sizeof *names);
    for (int64_t i = 0; names && i < t->count; i++)
        names[i] = t->entry[i].stored;
    for (int p = LTI_PART_RAW + 1; names && p < LTI_PART_COUNT; p++)
        if (lti_naming_has_part((lti_part)p, names, t->count)) *parts |= 1u << p;
    const lt_status s =
        names ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "%s: no memory for its names", path);
    free(names);
    lti_tensors_close(&t);
    return s;
}

lt_status lti_tensors_whole(const lti_tensors *t)
{
    for (int32_t i = 0; i < t->files; i++) {
        const lti_file *f = t->file[i];
        if (f->hole == f->hole_end) continue;
        if (!f->hole_next)
            return lti_fail(t->ctx, LT_ERR_FORMAT,
                            "%s: bytes %zu..%zu of the data, behind the last tensor, belong to "
                            "none",
                            f->path, f->hole, f->hole_end - 1);
        return lti_fail(t->ctx, LT_ERR_FORMAT,
                        "%s: bytes %zu..%zu of the data, before tensor \"%s\", belong to none",
                        f->path, f->hole, f->hole_end - 1, f->hole_next);
    }
    return LT_OK;
}

/* ---- asking ------------------------------------------------------------------------------ */

int64_t lti_tensors_count(const lti_tensors *t)
{
    return t->count;
}

const lti_entry *lti_tensors_at(const lti_tensors *t, int64_t i)
{
    return &t->entry[i];
}

const lti_entry *lti_tensors_find(const lti_tensors *t, const char *name)
{
    int64_t lo = 0, hi = t->count;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (strcmp(t->entry[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == t->count || strcmp(t->entry[lo].name, name) || t->entry[lo].ignored) return NULL;
    return &t->entry[lo];
}

int64_t lti_tensors_parameters(const lti_tensors *t)
{
    int64_t sum = 0;
    for (int64_t i = 0; t && i < t->count; i++) {
        const lti_entry *e = &t->entry[i];
        int64_t n = 1;
        if (e->ignored || !e->bytes)
            continue; /* no numbers: the other sides may be of any length */
        for (int k = 0; k < e->ndim; k++)
            n *= e->dim[k]; /* checked when the header was read */
        sum += n;
    }
    return sum;
}

const char *lti_tensors_path(const lti_tensors *t)
{
    return t->path;
}

void lti_tensors_stored_name(const lti_tensors *t, const char *name, char *out, size_t size)
{
    lti_naming_stored(&t->naming, name, out, size);
}

int32_t lti_tensors_files(const lti_tensors *t)
{
    return t->files;
}

const char *lti_tensors_file_name(const lti_tensors *t, int32_t file)
{
    return t->file[file]->path;
}

lti_part lti_tensors_part(const lti_tensors *t)
{
    return t->part;
}

const char *lti_tensors_metadata(const lti_tensors *t, const char *key)
{
    return json_string_value(json_object_get(t->file[0]->metadata, key));
}

/* ---- reading ----------------------------------------------------------------------------- */

lt_status lti_tensors_read(const lti_tensors *t, const lti_entry *e, void *dst, size_t begin,
                           size_t bytes)
{
    char what[600];
    snprintf(what, sizeof what, "tensor \"%s\"", e->stored);
    return lti_file_read(t->file[e->file], t->ctx, dst, e->at + begin, bytes, what);
}

/* The smallest free piece that is large enough; else the largest free one, to be made larger; else a new one. */
static loan *choose_loan(lti_tensors *t, size_t bytes)
{
    loan *best = NULL;
    for (int32_t i = 0; i < t->loans; i++) {
        loan *l = &t->loan[i];
        if (l->lent) continue;
        const bool fits = l->room >= bytes;
        if (!best || (best->room < bytes ? l->room > best->room : fits && l->room < best->room))
            best = l;
    }
    if (best) return best;
    loan *p = realloc(t->loan, ((size_t)t->loans + 1) * sizeof *p);
    if (!p) return NULL;
    t->loan = p;
    p[t->loans] = (loan){0};
    return &p[t->loans++];
}

static lt_status lend(lti_tensors *t, void **out, size_t bytes, const char *name)
{
    loan *l = choose_loan(t, bytes);
    if (l && l->room < bytes) {
        free(l->data);
        l->data = malloc(bytes);
        l->room = l->data ? bytes : 0;
    }
    if (!l || l->room < bytes)
        return lti_fail(t->ctx, LT_ERR_MEM, "%s: no memory for the %zu bytes of tensor \"%s\"",
                        t->path, bytes, name);
    l->lent = true;
    *out = l->data;
    return LT_OK;
}

static void give_back(lti_tensors *t, const void *data)
{
    for (int32_t i = 0; i < t->loans; i++)
        if (t->loan[i].data == data) t->loan[i].lent = false;
}

/* The tensor, its data left out. */
static lt_status describe(const lti_tensors *t, const char *name, const lti_entry **entry,
                          lt_tensor *out)
{
    const lti_entry *e = lti_tensors_find(t, name);
    if (!e) {
        char stored[256];
        lti_tensors_stored_name(t, name, stored, sizeof stored);
        return lti_fail(t->ctx, LT_ERR_MISSING, "%s: the %s tensor \"%s\" is missing", t->path,
                        lti_part_name(t->part), stored);
    }
    const char *file = t->file[e->file]->path;
    if (!e->dtype)
        return lti_fail(t->ctx, LT_ERR_UNSUPPORTED,
                        "%s: tensor \"%s\" is of type %s; F32, BF16 and F16 are read", file,
                        e->stored, e->type);
    if (e->ndim > LT_MAX_DIMS)
        return lti_fail(t->ctx, LT_ERR_SHAPE, "%s: tensor \"%s\" has %d dimensions, %d is the most",
                        file, e->stored, e->ndim, LT_MAX_DIMS);
    *entry = e;
    *out = (lt_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
    memcpy(out->dim, e->dim, (size_t)e->ndim * sizeof e->dim[0]);
    return LT_OK;
}

static lt_status read_part(lti_tensors *t, const lti_entry *e, lt_tensor *out, size_t begin,
                           size_t bytes)
{
    void *data = NULL;
    LT_TRY(lend(t, &data, bytes ? bytes : 1, e->stored));
    out->data = data;
    const lt_status s = lti_tensors_read(t, e, data, begin, bytes);
    if (s < 0) give_back(t, data);
    return s;
}

static lt_status source_get(void *user, const char *name, lt_tensor *out)
{
    lti_tensors *t = user;
    const lti_entry *e;
    LT_TRY(describe(t, name, &e, out));
    return read_part(t, e, out, 0, e->bytes);
}

static lt_status source_rows(void *user, const char *name, int64_t first, int64_t n, lt_tensor *out)
{
    lti_tensors *t = user;
    const lti_entry *e;
    LT_TRY(describe(t, name, &e, out));
    if (e->ndim < 1 || first < 0 || n < 0 || first > e->dim[0] || n > e->dim[0] - first)
        return lti_fail(t->ctx, LT_ERR_SHAPE, "%s: tensor \"%s\" has no rows %lld..%lld",
                        t->file[e->file]->path, e->stored, (long long)first,
                        (long long)(first + n - 1));
    const size_t row = e->dim[0] ? e->bytes / (size_t)e->dim[0] : 0;
    out->dim[0] = n;
    return read_part(t, e, out, (size_t)first * row, (size_t)n * row);
}

static void source_done(void *user, const lt_tensor *tensor)
{
    if (tensor)
        give_back(user, tensor->data);
    else
        end_loans(user);
}

lt_tensor_source lti_tensors_source(lti_tensors *t)
{
    return (lt_tensor_source){
        .user = t, .get = source_get, .rows = source_rows, .done = source_done};
}
