/* unit_stream_jobs.c: the journal of jobs and the forms that make them. */
#include "stream/jobs.h"

#include "temp_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct seen {
    char text[256];
    int records;
} seen;

static void see(void *user, const char *text, size_t bytes)
{
    seen *s = user;
    const size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%.*s;", (int)bytes, text);
    s->records++;
}

static seen reopen(lti_journal **j, lt_ctx *ctx, const char *path, size_t *lost)
{
    seen s = {.records = 0};
    lti_journal_close(j);
    assert_int_equal(lti_journal_open(j, ctx, path, see, &s, lost), LT_OK);
    return s;
}

static void write_bytes(const char *path, const char *mode, size_t at, const void *data, size_t n)
{
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void journal_keeps_whole_records(void **state)
{
    (void)state;
    size_t lost;
    lt_ctx *ctx;
    lti_journal *j = NULL;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    temp_make();
    const char *path = temp_path("journal");
    assert_int_equal(reopen(&j, ctx, path, &lost).records, 0);
    assert_true(lti_journal_append(j, "one", 3, true));
    assert_true(lti_journal_append(j, "second", 6, false));
    assert_false(lti_journal_append(j, "", 0, false));
    seen s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "one;second;");
    assert_int_equal(lost, 0); /* the room that is reserved is zeros */
    /* a record that was torn is not there, and the next one takes its place */
    const size_t end = lti_journal_bytes(j);
    write_bytes(path, "r+b", end, "\x40\0\0\0half", 8);
    s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "one;second;");
    assert_int_equal(lost, 8);
    assert_true(lti_journal_append(j, "third", 5, true));
    s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "one;second;third;");
    /* a bit that has turned over costs that record, in its text or in its length, and no other */
    write_bytes(path, "r+b", 8 + 8 + 1, "N", 1);
    s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "second;third;");
    assert_int_equal(lost, 8 + 3);
    write_bytes(path, "r+b", 8 + 8 + 3, "\x16", 1);
    s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "third;");
    assert_int_equal(lost, 8 + 3 + 8 + 6);
    assert_true(lti_journal_append(j, "fourth", 6, true));
    s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "third;fourth;");
    char one[] = "a", two[] = "bc", *const again[] = {one, two};
    assert_true(lti_journal_rewrite(j, again, 2));
    assert_true(lti_journal_append(j, "d", 1, true));
    s = reopen(&j, ctx, path, &lost);
    assert_string_equal(s.text, "a;bc;d;");
    lti_journal_close(&j);
    write_bytes(path, "wb", 0, "something else", 14);
    assert_int_equal(lti_journal_open(&j, ctx, path, see, &s, &lost), LT_ERR_FORMAT);
    assert_non_null(strstr(lt_error(ctx), path));
    assert_null(j);
    temp_remove();
    lt_ctx_destroy(&ctx);
}

static void records_are_checked(void **state)
{
    (void)state;
    lti_record r;
    static const char good[] =
        "{\"op\":\"done\",\"id\":\"video_0123456789abcdef01234567\",\"at\":5,"
        "\"expires\":6,\"bytes\":7}";
    assert_true(lti_record_parse(&r, good, strlen(good)));
    assert_true(r.op == LTI_RECORD_DONE && r.at == 5 && r.expires == 6 && r.bytes == 7);
    json_decref(r.root);
    static const char *const wrong[] = {
        "",
        "{}",
        "{\"op\":\"done\"}",
        "{\"op\":\"done\",\"id\":\"../../0123456789abcdef01234567\"}",
        "{\"op\":\"done\",\"id\":\"video_0123456789abcdef0123456/\"}",
        "{\"op\":\"dance\",\"id\":\"video_0123456789abcdef01234567\"}",
        "{\"op\":\"create\",\"id\":\"video_0123456789abcdef01234567\",\"fields\":{},\"params\":1}",
        "{\"op\":\"done\",\"id\":\"video_0123456789abcdef01234567\",\"at\":-1}"};
    for (size_t i = 0; i < LT_COUNT(wrong); i++)
        assert_false(lti_record_parse(&r, wrong[i], strlen(wrong[i])));
}

static void forms(void **state)
{
    (void)state;
    enum { MAX = 3 };
    lti_part p[MAX];
    static const char type[] = "multipart/form-data; charset=x; boundary=\"a b\"";
    static const char body[] =
        "before\r\n--a b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n"
        "two\r\n--a c\r\n--a b \t\r\nX: y\r\ncontent-disposition: form-data; filename=\"a;\\\"b\"; "
        "name=picture\r\n\r\n\r\n--a b\r\nContent-Disposition: form-data; "
        "name=\"e\"\r\n\r\n\r\n\r\n"
        "--a b--after";
    const size_t n = strlen(body);
    assert_int_equal(lti_multipart_parse(type, (const uint8_t *)body, n, p, MAX), 3);
    assert_string_equal(p[0].name, "prompt");
    assert_false(p[0].file);
    assert_int_equal(p[0].bytes, strlen("two\r\n--a c"));
    assert_memory_equal(p[0].data, "two\r\n--a c", p[0].bytes);
    assert_string_equal(p[1].name, "picture");
    assert_true(p[1].file && p[1].bytes == 0);
    assert_int_equal(p[2].bytes, 2);
    assert_int_equal(lti_multipart_parse(type, (const uint8_t *)body, n, p, 2), -1);
    for (size_t k = 0; k < n - strlen("--after"); k++) /* cut anywhere, it is none */
        assert_int_equal(lti_multipart_parse(type, (const uint8_t *)body, k, p, MAX), -1);
    static const char *const types[] = {"multipart/form-data", "multipart/form-data; boundary=",
                                        "multipart/form-data; boundary=\"a b",
                                        "multipart/form-data; xboundary=\"a b\""};
    for (size_t i = 0; i < LT_COUNT(types); i++)
        assert_int_equal(lti_multipart_parse(types[i], (const uint8_t *)body, n, p, MAX), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(journal_keeps_whole_records),
                                       cmocka_unit_test(records_are_checked),
                                       cmocka_unit_test(forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
