/* safetensors.c: u64 length, JSON header, data. The header is not believed: every number in it is checked against the file before
 * anything is read through it (format: huggingface/safetensors README).
 */
#include "video/format.h"
#include "video/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The format's own limit. */
#define MAX_HEADER 100000000u
/* {"name": {"shape": [..]}} is three deep. */
#define MAX_DEPTH 8

static const lti_type types[] = {
    {"F32", 32, LT_F32},   {"BF16", 16, LT_BF16}, {"F16", 16, LT_F16}, {"F64", 64, 0},
    {"I64", 64, 0},        {"U64", 64, 0},        {"I32", 32, 0},      {"U32", 32, 0},
    {"I16", 16, 0},        {"U16", 16, 0},        {"I8", 8, 0},        {"U8", 8, 0},
    {"BOOL", 8, 0},        {"F8_E4M3", 8, 0},     {"F8_E5M2", 8, 0},   {"F8_E8M0", 8, 0},
    {"F8_E4M3FNUZ", 8, 0}, {"F8_E5M2FNUZ", 8, 0}, {"F6_E2M3", 6, 0},   {"F6_E3M2", 6, 0},
    {"F4", 4, 0},          {"C64", 64, 0},
};

const lti_type *lti_type_named(const char *name)
{
    for (size_t i = 0; i < LT_COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return &types[i];
    return NULL;
}

/* Bytes of the shape; false on overflow or when they are no whole number. */
static bool shape_bytes(const lti_stored *t, size_t *out)
{
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        if (!lti_mul_size(&n, n, (size_t)t->dim[i])) return false;
    size_t bits;
    if (!lti_mul_size(&bits, n, t->type->bits) || bits % 8) return false;
    *out = bits / 8;
    return true;
}

static lt_status read_shape(lti_stored *t, lt_ctx *ctx, const json_t *desc, const char *path)
{
    const json_t *shape = json_object_get(desc, "shape");
    if (!json_is_array(shape))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\" has no shape", path, t->name);
    if (json_array_size(shape) > LTI_FILE_MAX_DIMS)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\" has %zu dimensions, %d is the most",
                        path, t->name, json_array_size(shape), LTI_FILE_MAX_DIMS);
    t->ndim = (int)json_array_size(shape);
    for (int i = 0; i < t->ndim; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\": dimension %d is no number >= 0",
                            path, t->name, i);
        t->dim[i] = json_integer_value(d);
    }
    return LT_OK;
}

static lt_status read_tensor(lti_stored *t, lt_ctx *ctx, const json_t *desc, size_t data_len,
                             const char *path)
{
    if (!json_is_object(desc))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\" is not described by an object", path,
                        t->name);
    const char *type = json_string_value(json_object_get(desc, "dtype"));
    if (!type) return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\" has no dtype", path, t->name);
    t->type = lti_type_named(type);
    if (!t->type)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\" has the unknown dtype \"%.40s\"",
                        path, t->name, type);
    LT_TRY(read_shape(t, ctx, desc, path));

    const json_t *off = json_object_get(desc, "data_offsets");
    const json_t *b = json_array_get(off, 0), *e = json_array_get(off, 1);
    if (json_array_size(off) != 2 || !json_is_integer(b) || !json_is_integer(e) ||
        json_integer_value(b) < 0 || json_integer_value(e) < json_integer_value(b))
        return lti_fail(ctx, LT_ERR_FORMAT,
                        "%s: tensor \"%s\": data_offsets are not [begin, end] with begin <= end",
                        path, t->name);
    t->begin = (size_t)json_integer_value(b);
    t->end = (size_t)json_integer_value(e);
    if (t->end > data_len)
        return lti_fail(ctx, LT_ERR_FORMAT,
                        "%s: tensor \"%s\" ends at byte %zu of the data, the file has %zu "
                        "(truncated?)",
                        path, t->name, t->end, data_len);
    size_t bytes;
    if (!shape_bytes(t, &bytes) || bytes != t->end - t->begin)
        return lti_fail(ctx, LT_ERR_FORMAT,
                        "%s: tensor \"%s\": shape and dtype %s do not make the %zu bytes of its "
                        "offsets%s",
                        path, t->name, t->type->name, t->end - t->begin,
                        t->type->dtype ? "" : ", and only F32, BF16 and F16 can be computed with");
    return LT_OK;
}

static int by_place(const void *pa, const void *pb)
{
    const lti_stored *a = pa, *b = pb;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void note_hole(lti_file *f, size_t begin, size_t end, const char *next)
{
    if (begin == end || f->hole != f->hole_end) return;
    f->hole = begin;
    f->hole_end = end;
    f->hole_next = next;
}

/* Tensors lie one behind the other from the first byte of the data to the last: two that share bytes, or bytes that nobody names,
 * are how a file smuggles or loses something. The second is only noted: whose bytes they were is for the configuration to say. */
static lt_status check_places(lti_file *f, lt_ctx *ctx, size_t data_len)
{
    size_t at = 0;
    const char *before = "the header";
    for (int64_t i = 0; i < f->count; i++) {
        const lti_stored *t = &f->tensor[i];
        if (t->begin < at)
            return lti_fail(ctx, LT_ERR_FORMAT, "%s: tensor \"%s\" overlaps %s by %zu bytes",
                            f->path, t->name, before, at - t->begin);
        note_hole(f, at, t->begin, t->name);
        at = t->end;
        before = t->name;
    }
    note_hole(f, at, data_len, NULL);
    return LT_OK;
}

static lt_status check_metadata(const lti_file *f, lt_ctx *ctx)
{
    if (!f->metadata) return LT_OK;
    if (!json_is_object(f->metadata))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: __metadata__ is not an object", f->path);
    const char *key;
    json_t *value;
    json_object_foreach(f->metadata, key, value)
    {
        if (!json_is_string(value))
            return lti_fail(ctx, LT_ERR_FORMAT, "%s: __metadata__ \"%s\" is not a string", f->path,
                            key);
    }
    return LT_OK;
}

static lt_status read_header(lti_file *f, lt_ctx *ctx)
{
    uint8_t start[8];
    if (f->size < sizeof start)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: %zu bytes are no safetensors file (truncated?)",
                        f->path, f->size);
    LT_TRY(lti_file_read(f, ctx, start, 0, sizeof start, "the length of its header"));
    uint64_t len = 0;
    for (size_t i = 0; i < sizeof start; i++)
        len |= (uint64_t)start[i] << (8 * i);
    if (len > MAX_HEADER)
        return lti_fail(ctx, LT_ERR_FORMAT,
                        "%s: no safetensors file, or a hostile one: header of %" PRIu64
                        " bytes, %u is the most",
                        f->path, len, MAX_HEADER);
    if (len > f->size - sizeof start)
        return lti_fail(ctx, LT_ERR_FORMAT,
                        "%s: header of %" PRIu64 " bytes in a file of %zu (truncated?)", f->path,
                        len, f->size);
    f->data_at = sizeof start + (size_t)len;
    char *text = malloc((size_t)len + 1);
    if (!text)
        return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for its header of %" PRIu64 " bytes",
                        f->path, len);
    lt_status s = lti_file_read(f, ctx, text, sizeof start, (size_t)len, "its header");
    if (s >= 0) s = lti_json_parse(&f->header, ctx, text, (size_t)len, MAX_DEPTH, f->path);
    free(text);
    return s;
}

lt_status lti_safetensors_read(lti_file *f, lt_ctx *ctx)
{
    LT_TRY(read_header(f, ctx));
    const size_t data_len = f->size - f->data_at;
    f->metadata = json_object_get(f->header, "__metadata__");
    LT_TRY(check_metadata(f, ctx));

    f->tensor = calloc(json_object_size(f->header) + 1, sizeof *f->tensor);
    if (!f->tensor)
        return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for the table of %zu tensors", f->path,
                        json_object_size(f->header));
    const char *name;
    json_t *desc;
    json_object_foreach(f->header, name, desc)
    {
        if (desc == f->metadata) continue;
        lti_stored *t = &f->tensor[f->count++];
        t->name = name;
        LT_TRY(read_tensor(t, ctx, desc, data_len, f->path));
    }
    qsort(f->tensor, (size_t)f->count, sizeof *f->tensor, by_place);
    return check_places(f, ctx, data_len);
}
