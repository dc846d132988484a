/* pickle.c: a machine with a stack, a memo and no functions (format: CPython's Lib/pickletools.py, protocol 2; what torch.save makes of
 * a tensor: torch/_utils.py). Calls are not made but recognised: _rebuild_tensor_v2 and its kin become a description of a tensor,
 * OrderedDict an empty dictionary. Whatever else a program names is refused by its name.
 */
#include "video/pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CODE = 32 << 20, CHUNK = 1024 };

typedef lti_value value;

typedef enum function { ORDERED_DICT, TENSOR_V2, TENSOR_V3, PARAMETER, SIZE, DEVICE } function;

typedef struct chunk {
    struct chunk *next;
    value value[CHUNK];
    int used;
} chunk;

typedef struct lti_pickle machine;
struct lti_pickle {
    lt_ctx *ctx;
    const char *path;
    const uint8_t *code;
    size_t len, at;
    chunk *chunks;
    size_t values;
    value **stack, **memo;
    size_t depth, stack_room, memo_room;
    value mark, *root;
};

static const struct global {
    const char *module, *name;
    int function; /* -1: a type, by its name in files */
    const char *type;
} globals[] = {
    {"collections", "OrderedDict", ORDERED_DICT, NULL},
    {"torch._utils", "_rebuild_tensor_v2", TENSOR_V2, NULL},
    {"torch._utils", "_rebuild_tensor_v3", TENSOR_V3, NULL},
    {"torch._utils", "_rebuild_parameter", PARAMETER, NULL},
    {"torch", "Size", SIZE, NULL},
    {"torch", "device", DEVICE, NULL},
    {"torch", "FloatStorage", -1, "F32"},
    {"torch", "BFloat16Storage", -1, "BF16"},
    {"torch", "HalfStorage", -1, "F16"},
    {"torch", "DoubleStorage", -1, "F64"},
    {"torch", "LongStorage", -1, "I64"},
    {"torch", "IntStorage", -1, "I32"},
    {"torch", "ShortStorage", -1, "I16"},
    {"torch", "CharStorage", -1, "I8"},
    {"torch", "ByteStorage", -1, "U8"},
    {"torch", "BoolStorage", -1, "BOOL"},
    {"torch.storage", "UntypedStorage", -1, "U8"},
    {"torch", "float32", -1, "F32"},
    {"torch", "bfloat16", -1, "BF16"},
    {"torch", "float16", -1, "F16"},
    {"torch", "float64", -1, "F64"},
    {"torch", "int64", -1, "I64"},
    {"torch", "int32", -1, "I32"},
    {"torch", "int16", -1, "I16"},
    {"torch", "int8", -1, "I8"},
    {"torch", "uint8", -1, "U8"},
    {"torch", "bool", -1, "BOOL"},
    {"torch", "uint16", -1, "U16"},
    {"torch", "uint32", -1, "U32"},
    {"torch", "uint64", -1, "U64"},
    {"torch", "float8_e4m3fn", -1, "F8_E4M3"},
    {"torch", "float8_e5m2", -1, "F8_E5M2"},
};

/* ---- memory ---- */

static lt_status no_memory(machine *m)
{
    return lti_fail(m->ctx, LT_ERR_MEM, "%s: no memory to read its table of tensors", m->path);
}

static lt_status malformed(machine *m, const char *what)
{
    return lti_fail(m->ctx, LT_ERR_FORMAT, "%s: no checkpoint: its pickle has %s at byte %zu",
                    m->path, what, m->at);
}

static bool grow(value ***p, size_t *room, size_t need)
{
    if (need <= *room) return true;
    size_t n = *room ? *room : 8;
    while (n < need)
        n *= 2;
    value **q = realloc(*p, n * sizeof(value *));
    if (!q) return false;
    memset(q + *room, 0, (n - *room) * sizeof(value *));
    *p = q;
    *room = n;
    return true;
}

static lt_status new_value(machine *m, value **out, lti_kind k)
{
    *out = NULL;
    if (m->values == LTI_PICKLE_VALUES)
        return lti_fail(m->ctx, LT_ERR_FORMAT, "%s: more than %d values in its pickle", m->path,
                        LTI_PICKLE_VALUES);
    if (!m->chunks || m->chunks->used == CHUNK) {
        chunk *c = calloc(1, sizeof *c);
        if (!c) return no_memory(m);
        c->next = m->chunks;
        m->chunks = c;
    }
    m->values++;
    *out = &m->chunks->value[m->chunks->used++];
    (*out)->kind = k;
    return LT_OK;
}

static lt_status push(machine *m, value *v)
{
    if (m->depth == LTI_PICKLE_VALUES) return malformed(m, "too deep a stack");
    if (!grow(&m->stack, &m->stack_room, m->depth + 1)) return no_memory(m);
    m->stack[m->depth++] = v;
    return LT_OK;
}

static lt_status push_new(machine *m, lti_kind k, int64_t n)
{
    value *v;
    LT_TRY(new_value(m, &v, k));
    v->n = n;
    return push(m, v);
}

void lti_pickle_free(lti_pickle **p)
{
    machine *m = *p;
    if (!m) return;
    for (chunk *c = m->chunks; c;) {
        chunk *next = c->next;
        for (int i = 0; i < c->used; i++)
            free(c->value[i].item);
        free(c);
        c = next;
    }
    free(m->stack);
    free(m->memo);
    free(m);
    *p = NULL;
}

/* ---- reading ---- */

static lt_status bytes(machine *m, const uint8_t **out, size_t n)
{
    *out = NULL;
    if (n > m->len - m->at) return malformed(m, "an end that is too early");
    *out = m->code + m->at;
    m->at += n;
    return LT_OK;
}

/* A little-endian whole number of n <= 8 bytes. */
static lt_status number(machine *m, uint64_t *out, size_t n)
{
    const uint8_t *p;
    *out = 0;
    LT_TRY(bytes(m, &p, n));
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)p[i] << (8 * i);
    return LT_OK;
}

/* A line, without its end. */
static lt_status line(machine *m, const char **text, size_t *len)
{
    const uint8_t *p = m->code + m->at, *end = memchr(p, '\n', m->len - m->at);
    *text = (const char *)p;
    *len = end ? (size_t)(end - p) : 0;
    if (!end) return malformed(m, "a name without an end");
    m->at += *len + 1;
    return LT_OK;
}

/* Index of the item above the last mark. */
static lt_status find_mark(machine *m, size_t *first)
{
    size_t i = m->depth;
    while (i && m->stack[i - 1] != &m->mark)
        i--;
    *first = i;
    return i ? LT_OK : malformed(m, "no mark where one is used");
}

/* The topmost value, which must be of that kind. */
static lt_status top(machine *m, value **out, lti_kind k)
{
    *out = NULL;
    if (!m->depth || m->stack[m->depth - 1]->kind != k)
        return malformed(m, "a value of the wrong kind");
    *out = m->stack[m->depth - 1];
    return LT_OK;
}

static lt_status pop(machine *m, value **out)
{
    *out = NULL;
    if (!m->depth || m->stack[m->depth - 1] == &m->mark) return malformed(m, "an empty stack");
    *out = m->stack[--m->depth];
    return LT_OK;
}

/* ---- containers ---- */

/* Items `first`.. of the stack go to the end of v. */
static lt_status take(machine *m, value *v, size_t first)
{
    const size_t n = m->depth - first;
    for (size_t i = first; i < m->depth; i++)
        if (m->stack[i] == &m->mark) return malformed(m, "a mark among values");
    if (!grow(&v->item, &v->room, v->items + n)) return no_memory(m);
    for (size_t i = 0; i < n; i++)
        v->item[v->items + i] = m->stack[first + i];
    v->items += n;
    m->depth = first;
    return LT_OK;
}

static lt_status make_list(machine *m, size_t first)
{
    value *v;
    LT_TRY(new_value(m, &v, LTI_VALUE_LIST));
    LT_TRY(take(m, v, first));
    return push(m, v);
}

static lt_status make_short_tuple(machine *m, size_t n)
{
    return m->depth < n ? malformed(m, "an empty stack") : make_list(m, m->depth - n);
}

static lt_status make_tuple(machine *m)
{
    size_t first;
    LT_TRY(find_mark(m, &first));
    value *v;
    LT_TRY(new_value(m, &v, LTI_VALUE_LIST));
    LT_TRY(take(m, v, first));
    m->depth--;
    return push(m, v);
}

/* What lies above the mark goes into the container under it. */
static lt_status fill_marked(machine *m, lti_kind k)
{
    size_t first;
    LT_TRY(find_mark(m, &first));
    if (first < 2 || m->stack[first - 2]->kind != k ||
        (k == LTI_VALUE_DICT && (m->depth - first) % 2))
        return malformed(m, "items without a container");
    LT_TRY(take(m, m->stack[first - 2], first));
    m->depth--;
    return LT_OK;
}

static lt_status fill_one(machine *m, lti_kind k)
{
    const size_t n = k == LTI_VALUE_DICT ? 2 : 1;
    if (m->depth <= n || m->stack[m->depth - n - 1]->kind != k)
        return malformed(m, "an item without a container");
    return take(m, m->stack[m->depth - n - 1], m->depth - n);
}

static lt_status get(machine *m, uint64_t i)
{
    if (i >= m->memo_room || !m->memo[i]) return malformed(m, "a memo that was never put");
    return push(m, m->memo[i]);
}

static lt_status put(machine *m, uint64_t i)
{
    if (!m->depth || m->stack[m->depth - 1] == &m->mark || i >= LTI_PICKLE_VALUES)
        return malformed(m, "a memo of nothing");
    if (!grow(&m->memo, &m->memo_room, (size_t)i + 1)) return no_memory(m);
    m->memo[i] = m->stack[m->depth - 1];
    return LT_OK;
}

/* ---- what stands for functions ---- */

static bool same(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && !memcmp(text, word, len);
}

static lt_status global(machine *m)
{
    const char *module, *name;
    size_t module_len, name_len;
    LT_TRY(line(m, &module, &module_len));
    LT_TRY(line(m, &name, &name_len));
    for (size_t i = 0; i < LT_COUNT(globals); i++) {
        const struct global *g = &globals[i];
        if (!same(module, module_len, g->module) || !same(name, name_len, g->name)) continue;
        LT_TRY(push_new(m, g->type ? LTI_VALUE_TYPE : LTI_VALUE_FUNCTION, g->function));
        if (g->type) m->stack[m->depth - 1]->type = lti_type_named(g->type);
        return LT_OK;
    }
    return lti_fail(
        m->ctx, LT_ERR_UNSUPPORTED,
        "%s: it wants to run \"%.*s.%.*s\"; only tensors in dictionaries are read: save "
        "the state_dict alone, or use a safetensors file",
        m->path, (int)(module_len > 80 ? 80 : module_len), module,
        (int)(name_len > 80 ? 80 : name_len), name);
}

/* ("storage", class, key, place, elements), named instead of stored. */
static lt_status storage(machine *m)
{
    value *id, *v;
    LT_TRY(top(m, &id, LTI_VALUE_LIST));
    if (id->items != 5 || id->item[0]->kind != LTI_VALUE_TEXT ||
        id->item[1]->kind != LTI_VALUE_TYPE || id->item[2]->kind != LTI_VALUE_TEXT ||
        id->item[4]->kind != LTI_VALUE_INT || id->item[4]->n < 0)
        return malformed(m, "something else than a storage");
    LT_TRY(new_value(m, &v, LTI_VALUE_STORAGE));
    v->type = id->item[1]->type;
    v->n = id->item[4]->n;
    if (!grow(&v->item, &v->room, 1)) return no_memory(m);
    v->item[v->items++] = id->item[2];
    m->stack[m->depth - 1] = v;
    return LT_OK;
}

/* (storage, offset, size, stride, requires_grad, hooks[, dtype[, metadata]]) */
static lt_status tensor(machine *m, const value *args, bool typed, value **out)
{
    if (args->items < (typed ? 7u : 6u) || args->item[0]->kind != LTI_VALUE_STORAGE ||
        args->item[1]->kind != LTI_VALUE_INT || args->item[2]->kind != LTI_VALUE_LIST ||
        args->item[3]->kind != LTI_VALUE_LIST || (typed && args->item[6]->kind != LTI_VALUE_TYPE))
        return malformed(m, "something else than a tensor");
    LT_TRY(new_value(m, out, LTI_VALUE_TENSOR));
    (*out)->type = typed ? args->item[6]->type : args->item[0]->type;
    if (!grow(&(*out)->item, &(*out)->room, 4)) return no_memory(m);
    memcpy((*out)->item, args->item, 4 * sizeof(value *));
    (*out)->items = 4;
    return LT_OK;
}

static lt_status reduce(machine *m)
{
    value *args, *f, *out = NULL;
    LT_TRY(top(m, &args, LTI_VALUE_LIST));
    m->depth--;
    LT_TRY(top(m, &f, LTI_VALUE_FUNCTION));
    switch ((function)f->n) {
    case ORDERED_DICT:
        if (args->items) return malformed(m, "a dictionary of the wrong kind");
        LT_TRY(new_value(m, &out, LTI_VALUE_DICT));
        break;
    case TENSOR_V2:
    case TENSOR_V3:
        LT_TRY(tensor(m, args, f->n == TENSOR_V3, &out));
        break;
    case PARAMETER: /* (tensor, requires_grad, hooks) */
    case SIZE:      /* (tuple) */
        if (!args->items ||
            args->item[0]->kind != (f->n == SIZE ? LTI_VALUE_LIST : LTI_VALUE_TENSOR))
            return malformed(m, "a call with the wrong arguments");
        out = args->item[0];
        break;
    case DEVICE:
        LT_TRY(new_value(m, &out, LTI_VALUE_OTHER));
        break;
    }
    m->stack[m->depth - 1] = out;
    return LT_OK;
}

/* Attributes of a dictionary (_metadata: versions of modules): not used. */
static lt_status build(machine *m)
{
    value *state, *of;
    LT_TRY(pop(m, &state));
    return top(m, &of, LTI_VALUE_DICT);
}

/* ---- the machine ---- */

static lt_status text(machine *m)
{
    uint64_t n;
    const uint8_t *p;
    LT_TRY(number(m, &n, 4));
    LT_TRY(bytes(m, &p, (size_t)n));
    LT_TRY(push_new(m, LTI_VALUE_TEXT, (int64_t)n));
    m->stack[m->depth - 1]->text = (const char *)p;
    return LT_OK;
}

/* Two's complement of n bytes. */
static lt_status whole(machine *m, size_t n, bool is_signed)
{
    uint64_t v;
    if (n > 8) return malformed(m, "a number of more than 8 bytes");
    LT_TRY(number(m, &v, n));
    if (is_signed && n && n < 8 && v >> (8 * n - 1)) v |= ~(uint64_t)0 << (8 * n);
    return push_new(m, LTI_VALUE_INT, (int64_t)v);
}

static lt_status long1(machine *m)
{
    uint64_t n;
    LT_TRY(number(m, &n, 1));
    return whole(m, (size_t)n, true);
}

static lt_status memo(machine *m, size_t n, bool write)
{
    uint64_t i;
    LT_TRY(number(m, &i, n));
    return write ? put(m, i) : get(m, i);
}

static lt_status skip(machine *m, size_t n)
{
    const uint8_t *p;
    return bytes(m, &p, n);
}

static lt_status drop(machine *m, size_t n)
{
    LT_TRY(skip(m, n));
    return push_new(m, LTI_VALUE_OTHER, 0);
}

static lt_status step(machine *m, uint8_t op)
{
    switch (op) {
    case '(':
        return push(m, &m->mark);
    case ')':
    case ']':
        return push_new(m, LTI_VALUE_LIST, 0);
    case '}':
        return push_new(m, LTI_VALUE_DICT, 0);
    case 'N':
        return push_new(m, LTI_VALUE_OTHER, 0);
    case 0x88:
        return push_new(m, LTI_VALUE_INT, 1);
    case 0x89:
        return push_new(m, LTI_VALUE_INT, 0);
    case 'K':
        return whole(m, 1, false);
    case 'M':
        return whole(m, 2, false);
    case 'J':
        return whole(m, 4, true);
    case 0x8a:
        return long1(m);
    case 'G':
        return drop(m, 8);
    case 'X':
        return text(m);
    case 'c':
        return global(m);
    case 'q':
    case 'r':
        return memo(m, op == 'q' ? 1 : 4, true);
    case 'h':
    case 'j':
        return memo(m, op == 'h' ? 1 : 4, false);
    case 0x85:
    case 0x86:
    case 0x87:
        return make_short_tuple(m, op - 0x84u);
    case 't':
        return make_tuple(m);
    case 'a':
        return fill_one(m, LTI_VALUE_LIST);
    case 'e':
        return fill_marked(m, LTI_VALUE_LIST);
    case 's':
        return fill_one(m, LTI_VALUE_DICT);
    case 'u':
        return fill_marked(m, LTI_VALUE_DICT);
    case 'Q':
        return storage(m);
    case 'R':
        return reduce(m);
    case 'b':
        return build(m);
    default:
        return lti_fail(m->ctx, LT_ERR_UNSUPPORTED,
                        "%s: its pickle has the instruction 0x%02x at byte %zu, which torch.save "
                        "writes for no tensor",
                        m->path, op, m->at - 1);
    }
}

static lt_status run(machine *m)
{
    uint64_t op;
    LT_TRY(number(m, &op, 1));
    if (op != 0x80) return malformed(m, "no protocol");
    LT_TRY(number(m, &op, 1));
    if (op != 2)
        return lti_fail(m->ctx, LT_ERR_UNSUPPORTED,
                        "%s: pickle protocol %d; torch.save writes 2 unless told otherwise",
                        m->path, (int)op);
    for (;;) {
        LT_TRY(number(m, &op, 1));
        if (op == '.') break;
        LT_TRY(step(m, (uint8_t)op));
    }
    return pop(m, &m->root);
}

lt_status lti_pickle_run(lti_pickle **out, lt_ctx *ctx, const uint8_t *code, size_t len,
                         const char *path)
{
    *out = NULL;
    if (len > MAX_CODE)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: a pickle of %zu bytes, %d is the most", path, len,
                        MAX_CODE);
    machine *m = calloc(1, sizeof *m);
    if (!m) return lti_fail(ctx, LT_ERR_MEM, "%s: no memory to read it", path);
    m->ctx = ctx;
    m->path = path;
    m->code = code;
    m->len = len;
    m->mark.kind = LTI_VALUE_MARK;
    const lt_status s = run(m);
    if (s < 0)
        lti_pickle_free(&m);
    else
        *out = m;
    return s;
}

const lti_value *lti_pickle_root(const lti_pickle *p)
{
    return p->root;
}
