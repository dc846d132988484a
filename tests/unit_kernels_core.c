/* unit_kernels_core.c: statuses, contexts and messages, sizes, types. */
#include "kernels/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void statuses_have_names_and_texts(void **state)
{
    (void)state;
#define X(name, value, text)                          \
    assert_int_equal(name, value);                    \
    assert_string_equal(lt_status_name(name), #name); \
    assert_string_equal(lt_status_text(name), text);
    LT_STATUS_MAP(X)
#undef X
    assert_string_equal(lt_status_name((lt_status)-99), "LT_ERR_?");
    assert_string_equal(lt_status_text((lt_status)-99), "unknown status");
}

static void tags_and_types_have_names(void **state)
{
    (void)state;
    assert_string_equal(lt_tag_name(LT_TAG_WEIGHTS), "weights");
    assert_string_equal(lt_tag_name(LT_TAG_TEST), "test");
    assert_string_equal(lt_tag_name(LT_TAG_COUNT), "?");
    assert_string_equal(lt_dtype_name(LT_BF16), "bf16");
    assert_string_equal(lt_dtype_name((lt_dtype)0), "?");
    assert_int_equal(lt_dtype_size(LT_F32), 4);
    assert_int_equal(lt_dtype_size(LT_F16), 2);
    assert_int_equal(lt_dtype_size((lt_dtype)9), 0);
}

typedef struct lines {
    int count;
    lt_log_level level;
    char last[256];
} lines;

static void keep_line(void *user, lt_log_level level, const char *line)
{
    lines *l = user;
    l->count++;
    l->level = level;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void messages_are_kept_and_joined(void **state)
{
    (void)state;
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_INFO), LT_OK);
    assert_string_equal(lt_error(ctx), "");
    assert_int_equal(lti_fail(ctx, LT_ERR_SHAPE, "rows %d", -3), LT_ERR_SHAPE);
    assert_string_equal(lt_error(ctx), "rows -3");
    assert_int_equal(lti_within(ctx, LT_ERR_SHAPE, "block %d", 7), LT_ERR_SHAPE);
    assert_string_equal(lt_error(ctx), "block 7: rows -3");
    /* an argument may be the present message */
    assert_int_equal(lti_fail(ctx, LT_ERR_IO, "again: %s", lt_error(ctx)), LT_ERR_IO);
    assert_string_equal(lt_error(ctx), "again: block 7: rows -3");
    lt_ctx_destroy(&ctx);
    assert_null(ctx);
    lt_ctx_destroy(&ctx);
    lt_ctx_destroy(NULL);
    /* without a context the status alone goes on */
    assert_int_equal(lti_fail(NULL, LT_ERR_ARG, "nobody reads this"), LT_ERR_ARG);
    assert_int_equal(lti_within(NULL, LT_ERR_ARG, "nor this"), LT_ERR_ARG);
    assert_string_equal(lt_error(NULL), "");
}

/* Precisions cut within characters, and files may be called anything. */
static void messages_are_utf8(void **state)
{
    (void)state;
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_INFO), LT_OK);
    assert_int_equal(lti_fail(ctx, LT_ERR_IO, "%.4s|%s", "a\u00e9\u20ac", "\u20ac\U0001f600"),
                     LT_ERR_IO);
    assert_string_equal(lt_error(ctx), "a\u00e9?|\u20ac\U0001f600");
    static const char *const bad[] = {
        "\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8", "\xc3"};
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        assert_int_equal(lti_utf8_character(bad[i]), 0);
        assert_int_equal(lti_fail(ctx, LT_ERR_IO, "%s", bad[i]), LT_ERR_IO);
        assert_int_equal(strspn(lt_error(ctx), "?"), strlen(bad[i]));
    }
    assert_int_equal(
        lti_fail(ctx, LT_ERR_IO, "a\n\t\x1b[31m\x7f|%s", "\xc2\x80\xc2\x9b\u00a0\u00c2\r\u20ac"),
        LT_ERR_IO); /* nor do they begin lines or move cursors */
    assert_string_equal(lt_error(ctx), "a???[31m?|????\u00a0\u00c2?\u20ac");
    assert_int_equal(lti_within(ctx, LT_ERR_IO, "b\n"), LT_ERR_IO);
    assert_string_equal(lt_error(ctx), "b?: a???[31m?|????\u00a0\u00c2?\u20ac");
    assert_int_equal(lti_utf8_character(""), 0);
    assert_int_equal(lti_utf8_character("\u00e9x"), 2);
    lt_ctx_destroy(&ctx);
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[5000];
    lt_ctx *ctx;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_INFO), LT_OK);
    assert_int_equal(lti_fail(ctx, LT_ERR_IO, "%s", text), LT_ERR_IO);
    const size_t len = strlen(lt_error(ctx));
    assert_true(len > 100 && len < sizeof text);
    assert_int_equal(lti_within(ctx, LT_ERR_IO, "reading"), LT_ERR_IO);
    assert_memory_equal(lt_error(ctx), "reading: xxx", 12);
    assert_true(strlen(lt_error(ctx)) <= len);
    assert_int_equal(lti_within(ctx, LT_ERR_IO, "%s", text), LT_ERR_IO);
    assert_true(strlen(lt_error(ctx)) <= len);
    lt_ctx_destroy(&ctx);
}

static void the_log_has_a_level(void **state)
{
    (void)state;
    lines seen = {0};
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, keep_line, &seen, LT_LOG_INFO), LT_OK);
    lti_log(ctx, LT_LOG_DEBUG, "quiet=%d", 1);
    assert_int_equal(seen.count, 0);
    lti_log(ctx, LT_LOG_WARN, "loud=%d", 1);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.level, LT_LOG_WARN);
    assert_string_equal(seen.last, "loud=1");
    lti_log(NULL, LT_LOG_ERROR, "nobody");
    lt_ctx_destroy(&ctx);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t n;
    assert_true(lti_mul_size(&n, 1u << 20, 1u << 20));
    assert_true(n == (size_t)1 << 40);
    assert_false(lti_mul_size(&n, SIZE_MAX, 2));
    assert_true(lti_add_size(&n, SIZE_MAX - 1, 1));
    assert_false(lti_add_size(&n, SIZE_MAX, 1));
}

static void pictures_have_a_size(void **state)
{
    (void)state;
    lt_image im = {.dtype = LT_F32, .h = 3, .w = 5, .c = 7, .border = 1};
    assert_int_equal(lt_image_bytes(&im), 5 * 7 * 7 * 4);
    im.border = 0;
    im.h = 0;
    assert_int_equal(lt_image_bytes(&im), 0);
    im = (lt_image){.dtype = LT_F32, .h = INT32_MAX, .w = INT32_MAX, .c = 8, .border = INT32_MAX};
    assert_true(lt_image_bytes(&im) == SIZE_MAX); /* 9 * 2^67 */
    im = (lt_image){.dtype = LT_F32, .h = 1 << 30, .w = 1 << 30, .c = 4};
    assert_true(lt_image_bytes(&im) == SIZE_MAX); /* 2^64 */
    im.c = -1;
    assert_true(lt_image_bytes(&im) == SIZE_MAX);
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* Nearest bf16 to f by search among the neighbours, ties to the even one. */
static uint16_t nearest_bf16(float f)
{
    const uint16_t down = (uint16_t)(bits_of(f) >> 16), up = (uint16_t)(down + 1);
    const double low = (double)lti_bf16_to_f32(down), high = (double)lti_bf16_to_f32(up),
                 v = (double)f;
    if (fabs(v - low) != fabs(high - v)) return fabs(v - low) < fabs(high - v) ? down : up;
    return down & 1 ? up : down;
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f7f; h += 37) /* finite, the next one too */
        for (uint32_t low = 0; low < 0x10000; low += 0x3fff) {
            const uint32_t u = h << 16 | low;
            float f;
            memcpy(&f, &u, 4);
            assert_int_equal(lti_f32_to_bf16(f), nearest_bf16(f));
            assert_int_equal(lti_f32_to_bf16(-f), nearest_bf16(f) | 0x8000);
        }
    assert_int_equal(lti_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(lti_f32_to_bf16(0x1.fffffep127f), 0x7f80);
    const uint32_t quiet_low = 0x7f800001u; /* a NaN whose upper half is infinity */
    float f;
    memcpy(&f, &quiet_low, 4);
    assert_true(isnan(lti_bf16_to_f32(lti_f32_to_bf16(f))));
}

static void f16_is_read_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
        const double sign = h & 0x8000 ? -1 : 1;
        const float got = lti_f16_to_f32((uint16_t)h);
        if (exponent == 31) {
            assert_true(fraction ? isnan(got) : isinf(got));
            continue;
        }
        const double want = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        assert_true((double)got == sign * want);
        assert_true(!!signbit(got) == (sign < 0));
    }
}

static void elements_load_at_any_alignment(void **state)
{
    (void)state;
    unsigned char bytes[16] = {0};
    const float f = 1.5f;
    const uint16_t b = 0x3fc0, h = 0x3e00; /* 1.5 */
    memcpy(bytes + 1 + 4, &f, 4);
    assert_true(lti_load(bytes + 1, LT_F32, 1) == 1.5f);
    memcpy(bytes + 1 + 4, &b, 2);
    assert_true(lti_load(bytes + 1, LT_BF16, 2) == 1.5f);
    memcpy(bytes + 1 + 4, &h, 2);
    assert_true(lti_load(bytes + 1, LT_F16, 2) == 1.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(tags_and_types_have_names),
        cmocka_unit_test(messages_are_kept_and_joined),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(messages_are_utf8),
        cmocka_unit_test(the_log_has_a_level),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(pictures_have_a_size),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_is_read_exactly),
        cmocka_unit_test(elements_load_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
