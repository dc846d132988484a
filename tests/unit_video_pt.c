/* unit_video_pt.c: checkpoints of torch.save. The files in corpus/fuzz_video_pt were written by torch 2.15; those that no torch writes
 * are made here: zip64 sizes, lying sizes, pickles that lie. Every refusal is one message that names the file and the thing. */
#include "tests/temp_context.h"
#include "video/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char *corpus(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, LT_TEST_DATA "/corpus/fuzz_video_pt/%s", name);
    return path;
}

static lti_tensors *open_good(const char *path, lti_part part)
{
    lti_tensors *t;
    if (lti_tensors_open(&t, ctx, path, part, NULL) < 0) fail_msg("%s", lt_error(ctx));
    assert_int_equal(lti_tensors_whole(t), LT_OK);
    return t;
}

static void expect_error(const char *path, lt_status want, const char *text)
{
    lti_tensors *t = (lti_tensors *)-1;
    const lt_status s = lti_tensors_open(&t, ctx, path, LTI_PART_RAW, NULL);
    if (s != want || !strstr(lt_error(ctx), text) || !strstr(lt_error(ctx), path))
        fail_msg("%s, \"%s\": expected %s, \"%s\"", lt_status_name(s), lt_error(ctx),
                 lt_status_name(want), text);
    assert_null(t);
}

static void read_bytes(const lti_tensors *t, const lti_entry *e, void *to, size_t bytes)
{
    if (lti_tensors_read(t, e, to, 0, bytes) != LT_OK) fail_msg("%s", lt_error(ctx));
}

/* ---- what torch writes ---- */

static void state_dictionary(void **state)
{
    (void)state;
    lti_tensors *t = open_good(corpus("state_dict"), LTI_PART_RAW);
    assert_int_equal(lti_tensors_count(t), 2);
    const lti_entry *w = lti_tensors_find(t, "weight"), *b = lti_tensors_find(t, "bias");
    assert_true(w && w->dtype == LT_F32 && w->ndim == 2 && w->dim[0] == 2 && w->dim[1] == 3);
    assert_true(b && b->ndim == 1 && b->dim[0] == 2 && b->bytes == 8);
    float x[6];
    read_bytes(t, w, x, sizeof x);
    for (int i = 0; i < 6; i++)
        assert_true(x[i] == (float)i);
    read_bytes(t, b, x, 8);
    assert_true(x[0] == 0.5f && x[1] == 0.5f);
    lt_tensor_source source = lti_tensors_source(t);
    lt_tensor got;
    assert_int_equal(source.get(source.user, "weight", &got), LT_OK);
    source.done(source.user, &got);
    lti_tensors_close(&t);
}

/* generator, generator_ema and a critic: the average is meant, its wrappers are taken off, parts of one storage keep their places. */
static void training_checkpoint(void **state)
{
    (void)state;
    lti_tensors *t = open_good(corpus("training"), LTI_PART_DIT);
    assert_int_equal(lti_tensors_count(t), 3);
    const lti_entry *e = lti_tensors_find(t, "patch_embedding.weight");
    float x[6];
    assert_true(e && e->bytes == sizeof x);
    read_bytes(t, e, x, sizeof x);
    assert_true(x[0] == 2 && x[5] == 2);
    e = lti_tensors_find(t, "blocks.0.norm3.bias");
    assert_true(e && e->ndim == 2 && e->bytes == 16);
    read_bytes(t, e, x, 16);
    assert_true(x[0] == 4 && x[3] == 7);
    lti_tensors_close(&t);
    t = open_good(corpus("training"), LTI_PART_RAW);
    assert_int_equal(lti_tensors_count(t), 5);
    assert_non_null(lti_tensors_find(t, "generator.model.patch_embedding.weight"));
    lti_tensors_close(&t);
}

static void types(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type;
        int ndim;
        size_t bytes;
    } want[] = {{"a", "F32", 1, 8},
                {"f8", "F8_E4M3", 2, 4},
                {"scalar", "I64", 0, 8},
                {"empty", "F32", 2, 0},
                {"half", "F16", 1, 6}};
    lti_tensors *t = open_good(corpus("types"), LTI_PART_RAW);
    assert_int_equal(lti_tensors_count(t), LT_COUNT(want));
    for (size_t i = 0; i < LT_COUNT(want); i++) {
        const lti_entry *e = lti_tensors_find(t, want[i].name);
        assert_true(e && e->ndim == want[i].ndim && e->bytes == want[i].bytes);
        assert_string_equal(e->type, want[i].type);
    }
    lti_tensors_close(&t);
}

static void refusals(void **state)
{
    (void)state;
    expect_error(corpus("evil"), LT_ERR_UNSUPPORTED, "\"posix.system\"");
    expect_error(corpus("module"), LT_ERR_UNSUPPORTED, "\"torch.nn.modules.linear.Linear\"");
    expect_error(corpus("view"), LT_ERR_UNSUPPORTED, "tensor \"t\" is a view");
    expect_error(corpus("deflated"), LT_ERR_UNSUPPORTED, "\"a/data.pkl\" in it is compressed");
    expect_error(corpus("other"), LT_ERR_UNSUPPORTED, "not one of torch.save");
    expect_error(corpus("legacy"), LT_ERR_UNSUPPORTED, "before 1.6");
}

/* Cut anywhere, or with any byte changed: a message or a table whose every byte is inside the file. */
static void damage(void **state)
{
    (void)state;
    uint8_t all[4096];
    FILE *f = fopen(corpus("training"), "rb");
    const size_t len = f ? fread(all, 1, sizeof all, f) : 0;
    assert_true(len > 0 && len < sizeof all);
    fclose(f);
    lti_tensors *t;
    for (size_t n = 4; n < len; n += 7) {
        temp_write("cut.pt", all, n);
        assert_int_equal(lti_tensors_open(&t, ctx, temp_path("cut.pt"), LTI_PART_RAW, NULL),
                         LT_ERR_FORMAT);
        assert_non_null(strstr(lt_error(ctx), "truncated?"));
    }
    int good = 0;
    for (size_t i = 4; i < len; i++) {
        all[i] ^= 0x41;
        temp_write("bad.pt", all, len);
        all[i] ^= 0x41;
        if (lti_tensors_open(&t, ctx, temp_path("bad.pt"), LTI_PART_RAW, NULL) < 0) continue;
        good++;
        for (int64_t k = 0; k < lti_tensors_count(t); k++) {
            const lti_entry *e = lti_tensors_at(t, k);
            uint8_t last;
            if (e->bytes) assert_int_equal(lti_tensors_read(t, e, &last, e->bytes - 1, 1), LT_OK);
        }
        lti_tensors_close(&t);
    }
    assert_true(good > 100); /* data and unused fields */
}

/* ---- what no torch writes ---- */

typedef struct zip {
    uint8_t file[4096], directory[1024];
    size_t len, directory_len;
    int entries;
} zip;

static void put(uint8_t *to, size_t *len, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[(*len)++] = (uint8_t)(i < 8 ? v >> (8 * i) : 0);
}

static void put_bytes(uint8_t *to, size_t *len, const void *p, size_t n)
{
    memcpy(to + *len, p, n);
    *len += n;
}

/* wide: sizes and place in a zip64 field; `claim`: the size that the directory says. */
static void zip_add(zip *z, const char *name, const void *data, size_t size, bool wide,
                    uint64_t claim)
{
    uint8_t *d = z->directory;
    size_t *n = &z->directory_len;
    const size_t at = z->len, name_len = strlen(name);
    put_bytes(z->file, &z->len, "PK\3\4", 4);
    put(z->file, &z->len, 0, 22);
    put(z->file, &z->len, name_len, 2);
    put(z->file, &z->len, 5, 2); /* of padding, as torch aligns */
    put_bytes(z->file, &z->len, name, name_len);
    put(z->file, &z->len, 0, 5);
    put_bytes(z->file, &z->len, data, size);
    put_bytes(d, n, "PK\1\2", 4);
    put(d, n, 0, 16);
    put(d, n, wide ? UINT32_MAX : claim, 4);
    put(d, n, wide ? UINT32_MAX : claim, 4);
    put(d, n, name_len, 2);
    put(d, n, wide ? 34 : 0, 2);
    put(d, n, 0, 10);
    put(d, n, wide ? UINT32_MAX : at, 4);
    put_bytes(d, n, name, name_len);
    if (wide) {
        put(d, n, 0x9999, 2); /* a field of somebody else comes first */
        put(d, n, 2, 2);
        put(d, n, 0, 2);
        put(d, n, 1, 2);
        put(d, n, 24, 2);
        put(d, n, claim, 8);
        put(d, n, claim, 8);
        put(d, n, at, 8);
    }
    z->entries++;
}

static void zip_write(zip *z, const char *name)
{
    const size_t at = z->len;
    put_bytes(z->file, &z->len, z->directory, z->directory_len);
    put_bytes(z->file, &z->len, "PK\5\6", 4);
    put(z->file, &z->len, 0, 4);
    put(z->file, &z->len, (uint64_t)z->entries, 2);
    put(z->file, &z->len, (uint64_t)z->entries, 2);
    put(z->file, &z->len, z->directory_len, 4);
    put(z->file, &z->len, at, 4);
    put(z->file, &z->len, 4, 2); /* a comment */
    put_bytes(z->file, &z->len, "text", 4);
    temp_write(name, z->file, z->len);
}

/* Pieces of programs, a letter each: enough for one dictionary of one tensor "w" of `dims`. */
#define STORAGE                                        \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" \
    "0X\3\0\0\0cpuK\4tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n("
#define TENSOR(offset, size, stride) REBUILD STORAGE offset size stride "\x89}tR"
#define ONE(tensor) "\x80\2}X\1\0\0\0w" tensor "s."

static void program(const char *code, size_t len, bool wide, uint64_t claim)
{
    static const float data[] = {1, 2, 3, 4};
    zip z = {.len = 0};
    zip_add(&z, "any/data.pkl", code, len, wide, len);
    zip_add(&z, "any/data/0", data, sizeof data, wide, claim);
    zip_write(&z, "p.pt");
}

static void programs_that_lie(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        size_t len;
        lt_status status;
        const char *text;
    } cases[] = {
#define CASE(code, status, text) {code, sizeof(code) - 1, status, text}
        CASE(ONE(TENSOR("K\0", "K\5\x85", "K\1\x85")), LT_ERR_FORMAT, "\"w\" is larger than its"),
        CASE(ONE(TENSOR("K\3", "K\2\x85", "K\1\x85")), LT_ERR_FORMAT, "\"w\" is larger than its"),
        CASE(ONE(TENSOR("J\xff\xff\xff\xff", "K\1\x85", "K\1\x85")), LT_ERR_FORMAT, "shape"),
        CASE(ONE(TENSOR("K\0", "J\xff\xff\xff\xff\x85", "K\1\x85")), LT_ERR_FORMAT, "shape"),
        CASE(ONE(TENSOR("K\0", "K\1K\1\x86", "K\1\x85")), LT_ERR_FORMAT, "shape"),
        CASE(ONE(TENSOR("K\0", "N\x85", "K\1\x85")), LT_ERR_FORMAT, "shape"),
        CASE(ONE(TENSOR("K\0", "\x8a\x8\0\0\0\0\0\0\0\x7fK\4\x86", "K\4K\1\x86")),
             LT_ERR_UNSUPPORTED, "view"), /* overflows */
        CASE(ONE(TENSOR("K\0", "K\2K\2\x86", "K\1K\2\x86")), LT_ERR_UNSUPPORTED, "view"),
        CASE("\x80\2}.", LT_ERR_FORMAT, "no tensor in it"),
        CASE("\x80\2}", LT_ERR_FORMAT, "an end that is too early"),
        CASE("\x80\2.", LT_ERR_FORMAT, "an empty stack"),
        CASE("\x80\4}.", LT_ERR_UNSUPPORTED, "pickle protocol 4"),
        CASE("}.", LT_ERR_FORMAT, "no protocol"),
        CASE("\x80\2}X\xff\xff\xff\x7fw", LT_ERR_FORMAT, "too early"),
        CASE("\x80\2t.", LT_ERR_FORMAT, "no mark"),
        CASE("\x80\2h\1.", LT_ERR_FORMAT, "never put"),
        CASE("\x80\2r\xff\xff\xff\x7f", LT_ERR_FORMAT, "memo"),
        CASE("\x80\2(K\1u.", LT_ERR_FORMAT, "items without a container"),
        CASE("\x80\2}(K\1u.", LT_ERR_FORMAT, "items without a container"),
        CASE("\x80\2}((K\1t", LT_ERR_FORMAT, "too early"),
        CASE("\x80\2K\1Q.", LT_ERR_FORMAT, "wrong kind"),
        CASE("\x80\2)Q.", LT_ERR_FORMAT, "than a storage"),
        CASE("\x80\2)R.", LT_ERR_FORMAT, "wrong kind"),
        CASE("\x80\2" REBUILD "tR.", LT_ERR_FORMAT, "than a tensor"),
        CASE("\x80\2ctorch", LT_ERR_FORMAT, "a name without an end"),
        CASE("\x80\2c__builtin__\neval\n", LT_ERR_UNSUPPORTED, "\"__builtin__.eval\""),
        CASE("\x80\2i__builtin__\neval\n", LT_ERR_UNSUPPORTED, "instruction 0x69"),
        CASE("\x80\2\x8a\x09", LT_ERR_FORMAT, "more than 8 bytes"),
        CASE("\x80\2}X\3\0\0\0a\0b" TENSOR("K\0", "K\4\x85", "K\1\x85") "s.", LT_ERR_FORMAT,
             "a name behind"),
        CASE("\x80\2}X\1\0\0\0\xff" TENSOR("K\0", "K\4\x85", "K\1\x85") "s.", LT_ERR_FORMAT,
             "UTF-8"),
#undef CASE
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        program(cases[i].code, cases[i].len, false, 16);
        expect_error(temp_path("p.pt"), cases[i].status, cases[i].text);
    }
}

#define GOOD ONE(TENSOR("K\0", "K\1K\2K\2\x87", "K\7K\2K\1\x87"))

static void archives_that_lie(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        program(GOOD, sizeof GOOD - 1, wide, 16);
        lti_tensors *t = open_good(temp_path("p.pt"), LTI_PART_RAW);
        const lti_entry *e = lti_tensors_find(t, "w");
        float x[4];
        assert_true(e && e->bytes == 16 && e->ndim == 3);
        read_bytes(t, e, x, 16);
        assert_true(x[0] == 1 && x[3] == 4);
        lti_tensors_close(&t);
        program(GOOD, sizeof GOOD - 1, wide, 12);
        expect_error(temp_path("p.pt"), LT_ERR_FORMAT, "larger than its storage, which has 12");
        program(GOOD, sizeof GOOD - 1, wide, 1 << 20);
        expect_error(temp_path("p.pt"), LT_ERR_FORMAT, "\"any/data/0\" in it ends behind");
    }
    zip z = {.len = 0};
    zip_add(&z, "a/data.pkl", GOOD, sizeof GOOD - 1, false, sizeof GOOD - 1);
    zip_write(&z, "p.pt");
    expect_error(temp_path("p.pt"), LT_ERR_FORMAT, "(data/0) are missing");
    z = (zip){.len = 0};
    zip_add(&z, "a/data.pkl", GOOD, sizeof GOOD - 1, false, sizeof GOOD - 1);
    zip_add(&z, "a/data.pkl", GOOD, sizeof GOOD - 1, false, sizeof GOOD - 1);
    zip_write(&z, "p.pt");
    expect_error(temp_path("p.pt"), LT_ERR_FORMAT, "two entries of one name");
    z = (zip){.len = 0};
    zip_add(&z, "a/data.pkl", GOOD, sizeof GOOD - 1, false, sizeof GOOD - 1);
    zip_add(&z, "b/data/0", "0123456789012345", 16, false, 16);
    zip_write(&z, "p.pt");
    expect_error(temp_path("p.pt"), LT_ERR_UNSUPPORTED, "not one of torch.save");
    z = (zip){.len = 0};
    zip_add(&z, "a/data.pkl", GOOD, sizeof GOOD - 1, false, sizeof GOOD - 1);
    zip_add(&z, "a/byteorder", "big", 3, false, 3);
    zip_write(&z, "p.pt");
    expect_error(temp_path("p.pt"), LT_ERR_UNSUPPORTED, "other byte order");
}

/* No numbers, of a shape whose other sides multiply to more than can be counted. */
static void empty_and_huge(void **state)
{
    (void)state;
#define HUGE_SIDE "\x8a\6\0\0\0\0\0\1"
    static const char code[] = ONE(TENSOR("K\0", HUGE_SIDE HUGE_SIDE "K\0\x87", "K\1K\1K\1\x87"));
    program(code, sizeof code - 1, false, 16);
    lti_tensors *t = open_good(temp_path("p.pt"), LTI_PART_RAW);
    const lti_entry *e = lti_tensors_find(t, "w");
    assert_true(e && e->ndim == 3 && e->dim[0] == (int64_t)1 << 40 && e->bytes == 0);
    assert_int_equal(lti_tensors_parameters(t), 0);
    lti_tensors_close(&t);
}

/* A dictionary that holds itself a few times over is a tree without an end. */
static void programs_that_never_end(void **state)
{
    (void)state;
    static char code[8192];
    size_t n = 0;
    memcpy(code, "\x80\2}q\0(", 6);
    n = 6;
    for (int i = 0; i < 300; i++) {
        code[n++] = 'X';
        memcpy(code + n, "\1\0\0\0k", 5);
        n += 5;
        memcpy(code + n, "h\0", 2);
        n += 2;
    }
    memcpy(code + n, "u.", 2);
    zip z = {.len = 0};
    zip_add(&z, "a/data.pkl", code, n + 2, false, n + 2);
    zip_write(&z, "p.pt");
    expect_error(temp_path("p.pt"), LT_ERR_FORMAT, "entries");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_dictionary),
        cmocka_unit_test(training_checkpoint),
        cmocka_unit_test(types),
        cmocka_unit_test(refusals),
        cmocka_unit_test(damage),
        cmocka_unit_test(programs_that_lie),
        cmocka_unit_test(archives_that_lie),
        cmocka_unit_test(empty_and_huge),
        cmocka_unit_test(programs_that_never_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
