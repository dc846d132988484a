/* unit_video_clean.c: expected texts are those of ftfy 6.3 (repair of wrong encodings off), html.unescape twice, and the whitespace
 * rule of the original.
 */
#include "video/clean.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static lt_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR);
}

static int teardown(void **state)
{
    (void)state;
    lt_ctx_destroy(&ctx);
    return 0;
}

static void texts(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"   \t\r\n ", ""},
        {"a red ball", "a red ball"},
        {"  a\r\nred\t\tball\xc2\xa0 \xe3\x80\x80!  ", "a red ball !"},
        {"Case Is Kept", "Case Is Kept"},
        {"“a” ‘b’ „c‟ ʼ", "\"a\" 'b' \"c\" '"},
        {"静态，细节：好！", "静态,细节:好!"},
        {"ＡＢ　１２～", "AB 12~"},
        {"ｶﾞ￥￣", "ガ¥ ̄"},
        {"ﬁnd oﬃce ﬂat ĳ ŉ ﬅ", "find office flat ij 'n ſt"},
        {"e\xcc\x81 \xe1\x84\x80\xe1\x85\xa1", "é 가"},
        {"a\x07"
         "b\x7f\xef\xbb\xbf"
         "c\xef\xbf\xbc",
         "abc"},
        {"\x1b[31mred\x1b[0m", "red"},
        {"\xc2\x93quoted\xc2\x94 \xc2\x85", "\"quoted\" …"},
        {"a\xe2\x80\xa8"
         "b\xe2\x80\xa9"
         "c",
         "a b c"},
        {"Tom &amp; Jerry &lt;3 &quot;x&quot; &#39;y&#39;", "Tom & Jerry <3 \"x\" 'y'"},
        {"&amp;amp;amp;amp;lt;", "<"},
        {"<b> &amp;amp;lt;", "<b> &lt;"},
        {"&copy 2026 &notit; &AMP &bogus; &", "© 2026 ¬it; & &bogus; &"},
        {"&eacute;&Eacute;&euro;&hellip;&mdash;&nbsp;&alpha;", "éÉ€…— α"},
        {"&#x1F600;&#128512;&#150;&#0;&#xD800;&#x110000;&#1;", "😀😀–���"},
        {"&#; &#x; &#xZ; &#99999999999999999999;", "&#; &#x; &#xZ; �"},
        {"＆ｌｔ；", "<"},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        char *out;
        assert_int_equal(lti_clean(&out, ctx, cases[i].in, strlen(cases[i].in)), LT_OK);
        assert_string_equal(out, cases[i].out);
        free(out);
    }
}

static void not_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *in, *where;
    } cases[] = {
        {"ab\xff", "0xff at offset 2"},
        {"a\xc3", "offset 1"},
        {"\xc0\xaf", "offset 0"},
        {"abc\xed\xa0\x80", "offset 3"},
        {"\xf4\x90\x80\x80", "0xf4 at offset 0"},
        {"é\x80", "0x80 at offset 2"},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        char *out = (char *)-1;
        assert_int_equal(lti_clean(&out, ctx, cases[i].in, strlen(cases[i].in)), LT_ERR_ARG);
        assert_null(out);
        assert_non_null(strstr(lt_error(ctx), cases[i].where));
    }
}

static void too_long(void **state)
{
    (void)state;
    const size_t n = (1 << 20) + 1;
    char *text = malloc(n), *out;
    assert_non_null(text);
    memset(text, '&', n);
    assert_int_equal(lti_clean(&out, ctx, text, n), LT_ERR_ARG);
    assert_int_equal(lti_clean(&out, ctx, text, n - 1), LT_OK);
    free(out);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(not_utf8),
        cmocka_unit_test(too_long),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
