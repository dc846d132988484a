/* format_pt.c: checkpoints of torch.save (.pt, .pth, .bin): a zip archive whose entries are stored, not compressed: NAME/data.pkl, a
 * pickle that describes the tensors (pickle.h), and NAME/data/KEY, the bytes of each storage.
 * Formats: PKWARE's APPNOTE 4.3 and 4.5.3 (zip64); torch/serialization.py.
 */
#include "video/pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    END = 22,        /* bytes of the end record */
    END64 = 56,      /* of zip64's */
    LOCATOR64 = 20,  /* of the record that points to it */
    CENTRAL = 46,    /* of an entry of the directory, without its texts */
    LOCAL = 30,      /* of the same before the data */
    COMMENT = 65535, /* the most */
    MAX_ENTRIES = 1 << 20,
    MAX_BYTES = 256 << 20, /* of the directory, of the pickle */
    MAX_DEPTH = 6,         /* dictionaries in dictionaries */
    MAX_NAME = 1000
};

typedef struct entry {
    const char *name; /* in the directory, not terminated */
    size_t name_len;
    size_t at, size; /* of the data, in the file */
} entry;

typedef struct archive {
    lt_ctx *ctx;
    lti_file *f;
    uint8_t *directory;
    entry *entry; /* sorted by name */
    size_t count;
    size_t prefix; /* length of "NAME/" */
} archive;

static uint64_t le(const uint8_t *p, int n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | p[n];
    return v;
}

/* ---- the directory ---- */

static lt_status broken(const archive *a, const char *what)
{
    return lti_fail(a->ctx, LT_ERR_FORMAT, "%s: no whole zip archive (truncated?): %s", a->f->path,
                    what);
}

static bool inside(const archive *a, uint64_t at, uint64_t size)
{
    return at <= a->f->size && size <= a->f->size - at;
}

/* The bytes from `at` on; *out malloc'd. */
static lt_status fetch(const archive *a, uint8_t **out, uint64_t at, uint64_t size,
                       const char *what)
{
    *out = NULL;
    if (size > MAX_BYTES)
        return lti_fail(a->ctx, LT_ERR_FORMAT, "%s: %s has %" PRIu64 " bytes, %d is the most",
                        a->f->path, what, size, MAX_BYTES);
    *out = malloc((size_t)size + 1);
    if (!*out)
        return lti_fail(a->ctx, LT_ERR_MEM, "%s: no memory for %s of %" PRIu64 " bytes", a->f->path,
                        what, size);
    const lt_status s = lti_file_read(a->f, a->ctx, *out, (size_t)at, (size_t)size, what);
    if (s < 0) {
        free(*out);
        *out = NULL;
    }
    return s;
}

typedef struct directory {
    uint64_t at, size, count;
} directory;

/* The end record is found from behind: only its comment may follow it. `tail`: the last n bytes. */
static const uint8_t *find_end(const uint8_t *tail, size_t n)
{
    for (size_t back = END; back <= n && back <= END + COMMENT; back++) {
        const uint8_t *p = tail + n - back;
        if (!memcmp(p, "PK\5\6", 4) && le(p + 20, 2) == back - END) return p;
    }
    return NULL;
}

static lt_status read_end(const archive *a, directory *d, const uint8_t *tail, size_t n)
{
    const uint8_t *end = find_end(tail, n);
    if (!end) return broken(a, "no end record");
    *d = (directory){.count = le(end + 10, 2), .size = le(end + 12, 4), .at = le(end + 16, 4)};
    if ((size_t)(end - tail) >= LOCATOR64 && !memcmp(end - LOCATOR64, "PK\6\7", 4)) {
        uint8_t e[END64] = {0};
        const uint64_t where = le(end - LOCATOR64 + 8, 8);
        if (inside(a, where, END64))
            LT_TRY(lti_file_read(a->f, a->ctx, e, (size_t)where, END64, "its end record"));
        if (memcmp(e, "PK\6\6", 4)) return broken(a, "no zip64 end record");
        *d = (directory){.count = le(e + 32, 8), .size = le(e + 40, 8), .at = le(e + 48, 8)};
    }
    if (!inside(a, d->at, d->size)) return broken(a, "its directory is outside the file");
    if (d->count > MAX_ENTRIES || d->count * CENTRAL > d->size)
        return broken(a, "its directory has an impossible number of entries");
    return LT_OK;
}

static lt_status find_directory(const archive *a, directory *d)
{
    const size_t most = END + COMMENT + LOCATOR64, n = a->f->size < most ? a->f->size : most;
    uint8_t *tail;
    LT_TRY(fetch(a, &tail, a->f->size - n, n, "its end"));
    const lt_status s = read_end(a, d, tail, n);
    free(tail);
    return s;
}

/* Sizes and place that do not fit 32 bits stand in the extra field, in this order. */
static lt_status zip64_sizes(const archive *a, const uint8_t *extra, size_t len,
                             uint64_t *const v[3])
{
    while (len >= 4) {
        const uint64_t id = le(extra, 2);
        uint64_t n = le(extra + 2, 2);
        if (n > len - 4) break;
        const uint8_t *p = extra + 4;
        extra += 4 + n;
        len -= 4 + (size_t)n;
        if (id != 1) continue;
        for (int i = 0; i < 3; i++) {
            if (*v[i] != UINT32_MAX) continue;
            if (n < 8) return broken(a, "a zip64 field is too short");
            *v[i] = le(p, 8);
            p += 8;
            n -= 8;
        }
    }
    return LT_OK;
}

/* One entry of the directory at p; *next: bytes to the next one. */
static lt_status read_entry(const archive *a, entry *e, const uint8_t *p, size_t left, size_t *next)
{
    *next = 0;
    if (left < CENTRAL || memcmp(p, "PK\1\2", 4)) return broken(a, "its directory is damaged");
    const size_t name = (size_t)le(p + 28, 2), extra = (size_t)le(p + 30, 2);
    *next = CENTRAL + name + extra + (size_t)le(p + 32, 2);
    if (*next > left) return broken(a, "its directory is damaged");
    uint64_t packed = le(p + 20, 4), size = le(p + 24, 4), local = le(p + 42, 4);
    uint64_t *const wide[] = {&size, &packed, &local};
    LT_TRY(zip64_sizes(a, p + CENTRAL + name, extra, wide));
    e->name = (const char *)p + CENTRAL;
    e->name_len = name;
    const int shown = name > 100 ? 100 : (int)name;
    if (le(p + 10, 2) != 0 || packed != size || le(p + 8, 2) & 1)
        return lti_fail(a->ctx, LT_ERR_UNSUPPORTED,
                        "%s: \"%.*s\" in it is compressed or encrypted; torch.save stores",
                        a->f->path, shown, e->name);
    uint8_t q[LOCAL] = {0};
    if (inside(a, local, LOCAL))
        LT_TRY(lti_file_read(a->f, a->ctx, q, (size_t)local, LOCAL, "the head of an entry"));
    if (memcmp(q, "PK\3\4", 4)) return broken(a, "an entry is outside the file");
    const uint64_t at = local + LOCAL + le(q + 26, 2) + le(q + 28, 2);
    if (!inside(a, at, size))
        return lti_fail(a->ctx, LT_ERR_FORMAT,
                        "%s: \"%.*s\" in it ends behind the file's %zu bytes (truncated?)",
                        a->f->path, shown, e->name, a->f->size);
    e->at = (size_t)at;
    e->size = (size_t)size;
    return LT_OK;
}

static int by_name(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    const size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
    const int c = memcmp(a->name, b->name, n);
    return c ? c : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static lt_status read_directory(archive *a)
{
    directory d = {0};
    LT_TRY(find_directory(a, &d));
    LT_TRY(fetch(a, &a->directory, d.at, d.size, "its directory"));
    a->entry = calloc((size_t)d.count + 1, sizeof *a->entry);
    if (!a->entry)
        return lti_fail(a->ctx, LT_ERR_MEM, "%s: no memory for %" PRIu64 " entries", a->f->path,
                        d.count);
    const uint8_t *p = a->directory;
    size_t left = (size_t)d.size;
    for (; a->count < d.count; a->count++) {
        size_t next;
        LT_TRY(read_entry(a, &a->entry[a->count], p, left, &next));
        p += next;
        left -= next;
    }
    qsort(a->entry, a->count, sizeof *a->entry, by_name);
    for (size_t i = 1; i < a->count; i++)
        if (!by_name(&a->entry[i - 1], &a->entry[i])) return broken(a, "two entries of one name");
    return LT_OK;
}

/* The entry NAME/`folder``key`, or NULL. */
static const entry *find(const archive *a, const char *folder, const char *key, size_t key_len)
{
    char name[512];
    const size_t n = a->prefix, m = strlen(folder);
    if (n + m + key_len > sizeof name) return NULL;
    memcpy(name, a->entry[0].name, n); /* all begin with it */
    memcpy(name + n, folder, m);
    memcpy(name + n + m, key, key_len);
    const entry want = {.name = name, .name_len = n + m + key_len};
    return bsearch(&want, a->entry, a->count, sizeof want, by_name);
}

/* NAME is whatever the file was called when it was saved: the folder that all entries are in. */
static lt_status find_prefix(archive *a)
{
    const char *slash = a->count ? memchr(a->entry[0].name, '/', a->entry[0].name_len) : NULL;
    if (slash) a->prefix = (size_t)(slash - a->entry[0].name) + 1;
    for (size_t i = 0; slash && i < a->count; i++)
        if (a->entry[i].name_len < a->prefix ||
            memcmp(a->entry[i].name, a->entry[0].name, a->prefix) != 0)
            slash = NULL;
    const entry *order = slash ? find(a, "", "byteorder", 9) : NULL;
    if (!slash || !find(a, "", "data.pkl", 8))
        return lti_fail(a->ctx, LT_ERR_UNSUPPORTED,
                        "%s: a zip archive, but not one of torch.save (no data.pkl in one folder)",
                        a->f->path);
    char text[6] = "little"; /* what is not said */
    if (order && order->size == sizeof text)
        LT_TRY(lti_file_read(a->f, a->ctx, text, order->at, sizeof text, "its byte order"));
    if ((order && order->size != sizeof text) || memcmp(text, "little", sizeof text) != 0)
        return lti_fail(a->ctx, LT_ERR_UNSUPPORTED, "%s: numbers of the other byte order",
                        a->f->path);
    return LT_OK;
}

/* ---- tensors ---- */

typedef struct walk {
    archive *a;
    int64_t visits, room;
    char name[MAX_NAME + 1];
} walk;

static lt_status read_shape(const walk *w, lti_stored *t, const lti_value *v)
{
    const lti_value *size = v->item[2], *stride = v->item[3];
    bool good =
        size->items <= LTI_FILE_MAX_DIMS && size->items == stride->items && v->item[1]->n >= 0;
    for (size_t i = 0; good && i < size->items; i++) {
        good = size->item[i]->kind == LTI_VALUE_INT && size->item[i]->n >= 0 &&
               stride->item[i]->kind == LTI_VALUE_INT;
        t->dim[i] = size->item[i]->n;
    }
    t->ndim = (int)size->items;
    if (good) return LT_OK;
    return lti_fail(w->a->ctx, LT_ERR_FORMAT,
                    "%s: tensor \"%s\" has an impossible shape (at most %d dimensions)",
                    w->a->f->path, w->name, LTI_FILE_MAX_DIMS);
}

/* Numbers in the tensor; false on overflow, and when rows do not lie one behind the other. An axis of one may have any stride. */
static bool is_packed(const lti_stored *t, const lti_value *stride, size_t *numbers)
{
    bool packed = true;
    *numbers = 1;
    for (int i = t->ndim; i--;) {
        packed &= t->dim[i] == 1 || (uint64_t)stride->item[i]->n == *numbers;
        if (!lti_mul_size(numbers, *numbers, (size_t)t->dim[i])) return false;
    }
    return packed || *numbers == 0;
}

/* The bytes of `n` numbers from number `offset` of the storage. */
static lt_status place(const walk *w, lti_stored *t, const lti_value *storage, size_t offset,
                       size_t n)
{
    const archive *a = w->a;
    const lti_value *key = storage->item[0];
    const entry *e = find(a, "data/", key->text, (size_t)key->n);
    const int shown = key->n > 40 ? 40 : (int)key->n;
    if (!e)
        return lti_fail(a->ctx, LT_ERR_FORMAT,
                        "%s: the bytes of tensor \"%s\" (data/%.*s) are missing", a->f->path,
                        w->name, shown, key->text);
    const size_t each = t->type->bits / 8u;
    size_t begin, bytes, end, all;
    if (!lti_mul_size(&begin, offset, each) || !lti_mul_size(&bytes, n, each) ||
        !lti_add_size(&end, begin, bytes) ||
        !lti_mul_size(&all, (size_t)storage->n, storage->type->bits / 8u) || all > e->size ||
        end > all)
        return lti_fail(a->ctx, LT_ERR_FORMAT,
                        "%s: tensor \"%s\" is larger than its storage, which has %zu bytes",
                        a->f->path, w->name, e->size);
    t->begin = e->at + begin;
    t->end = e->at + end;
    return LT_OK;
}

static lt_status add_tensor(walk *w, const lti_value *v)
{
    lti_file *f = w->a->f;
    if (f->count == w->room) {
        const int64_t room = w->room ? 2 * w->room : 256;
        lti_stored *p = realloc(f->tensor, (size_t)room * sizeof *p);
        if (!p)
            return lti_fail(w->a->ctx, LT_ERR_MEM, "%s: no memory for %" PRId64 " tensors", f->path,
                            room);
        f->tensor = p;
        w->room = room;
    }
    lti_stored t = {.type = v->type};
    size_t n;
    LT_TRY(read_shape(w, &t, v));
    if (!is_packed(&t, v->item[3], &n))
        return lti_fail(w->a->ctx, LT_ERR_UNSUPPORTED,
                        "%s: tensor \"%s\" is a view of another order of its numbers: save a "
                        "contiguous copy",
                        f->path, w->name);
    LT_TRY(place(w, &t, v->item[0], (size_t)v->item[1]->n, n));
    json_t *name = json_string(w->name);
    if (!name || json_array_append_new(f->header, name) < 0)
        return lti_fail(w->a->ctx, LT_ERR_FORMAT, "%s: a tensor's name is not valid UTF-8",
                        f->path);
    t.name = json_string_value(name);
    f->tensor[f->count++] = t;
    return LT_OK;
}

/* Dictionaries within dictionaries; the name so far has `len` bytes. A program can make one contain itself, or the same one a
 * thousand times: depth and visits are bounded. */
static lt_status visit(walk *w, const lti_value *v, size_t len, int depth)
{
    if (v->kind == LTI_VALUE_TENSOR) return add_tensor(w, v);
    if (v->kind != LTI_VALUE_DICT || depth == MAX_DEPTH) return LT_OK;
    for (size_t i = 0; i + 1 < v->items; i += 2) {
        const lti_value *key = v->item[i], *of = v->item[i + 1];
        if (++w->visits > LTI_PICKLE_VALUES)
            return lti_fail(w->a->ctx, LT_ERR_FORMAT, "%s: more than %d entries", w->a->f->path,
                            LTI_PICKLE_VALUES);
        if (key->kind != LTI_VALUE_TEXT) continue;
        if (of->kind != LTI_VALUE_DICT && of->kind != LTI_VALUE_TENSOR) continue;
        const size_t n = (size_t)key->n, dot = len > 0;
        if (len + dot + n > MAX_NAME || memchr(key->text, 0, n))
            return lti_fail(w->a->ctx, LT_ERR_FORMAT, "%s: a name behind \"%.80s\" is none",
                            w->a->f->path, w->name);
        if (dot) w->name[len] = '.';
        memcpy(w->name + len + dot, key->text, n);
        w->name[len + dot + n] = 0;
        LT_TRY(visit(w, of, len + dot + n, depth + 1));
        w->name[len] = 0;
    }
    return LT_OK;
}

static int by_place(const void *pa, const void *pb)
{
    const lti_stored *a = pa, *b = pb;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return strcmp(a->name, b->name);
}

static lt_status read_tensors(archive *a)
{
    const entry *code = find(a, "", "data.pkl", 8);
    lti_pickle *p;
    walk w = {.a = a};
    a->f->header = json_array();
    if (!a->f->header) return lti_fail(a->ctx, LT_ERR_MEM, "%s: no memory for names", a->f->path);
    uint8_t *program;
    LT_TRY(fetch(a, &program, code->at, code->size, "data.pkl"));
    lt_status s = lti_pickle_run(&p, a->ctx, program, code->size, a->f->path);
    if (s >= 0) {
        s = visit(&w, lti_pickle_root(p), 0, 0);
        lti_pickle_free(&p);
    }
    free(program);
    if (s >= 0 && !a->f->count)
        s = lti_fail(a->ctx, LT_ERR_FORMAT, "%s: no tensor in it", a->f->path);
    if (s >= 0) qsort(a->f->tensor, (size_t)a->f->count, sizeof *a->f->tensor, by_place);
    return s;
}

lt_status lti_pt_read(lti_file *f, lt_ctx *ctx)
{
    archive a = {.ctx = ctx, .f = f};
    lt_status s = read_directory(&a);
    if (s >= 0) s = find_prefix(&a);
    if (s >= 0) s = read_tensors(&a);
    free(a.entry);
    free(a.directory);
    return s;
}
