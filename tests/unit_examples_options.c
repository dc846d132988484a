/* unit_examples_options.c: every kind of value, good and bad; names, nearest names; the help says what the table says. */
#include "examples/settings.h"
#include "video/video.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static lt_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0;
}

static int teardown(void **state)
{
    (void)state;
    lt_ctx_destroy(&ctx);
    return 0;
}

#define PARSE(set, ...)                          \
    parse(&(set), (const char *[]){__VA_ARGS__}, \
          (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))

static lti_positional words;

static lt_status parse(lti_settings *set, const char **argv, int argc)
{
    const lti_table t = lti_settings_table(LTI_RENDER);
    *set = lti_settings_default();
    return lti_options_parse(ctx, &t, set, &words, argc, (char *const *)(uintptr_t)argv);
}

static void values_arrive(void **state)
{
    (void)state;
    lti_settings s;
    assert_int_equal(PARSE(s, "a red ball", "-o", "x.mp4", "--size=832x480", "--seed",
                           "18446744073709551615", "--seconds", "2.5", "--num_frames", "81",
                           "--sampler", "dpm++", "--guidance-scale", "0", "--codec=av1",
                           "--overwrite", "--negative-prompt=--dashes", "--", "--quiet"),
                     LT_OK);
    assert_int_equal(words.count, 2);
    assert_string_equal(words.text[0], "a red ball");
    assert_string_equal(words.text[1], "--quiet");
    assert_string_equal(s.output, "x.mp4");
    assert_int_equal(s.size.width, 832);
    assert_int_equal(s.size.height, 480);
    assert_true(s.seed.set && s.seed.value == UINT64_MAX);
    assert_true(fabs(s.seconds - 2.5) < 1e-12);
    assert_int_equal(s.num_frames, 81);
    assert_int_equal(s.sampler, 2);
    assert_true(fabs(s.guidance_scale) < 1e-12);
    assert_int_equal(s.codec, 1);
    assert_true(s.overwrite && !s.quiet);
    assert_string_equal(s.negative_prompt, "--dashes");
}

static void defaults_say_nothing(void **state)
{
    (void)state;
    lti_settings s;
    assert_int_equal(PARSE(s, "x"), LT_OK);
    assert_true(!s.seed.set && s.size.width == 0 && s.num_frames == 0 && s.guidance_scale < 0 &&
                s.sampler == -1 && s.crf == -1);
    assert_int_equal(lti_settings_check(ctx, &s), LT_OK);
}

static void wrong_values_are_named(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"--seed", "-1"},          {"--seed", "18446744073709551616"},
        {"--seed", "1.5"},         {"--seed", ""},
        {"--seed", " 1"},          {"--seed", "0x10"},
        {"--seconds", "nan"},      {"--seconds", "inf"},
        {"--seconds", "-1"},       {"--seconds", "0"},
        {"--seconds", "1e999"},    {"--seconds", "1s"},
        {"--seconds", "0x2"},      {"--seconds", ""},
        {"--num-frames", "0"},     {"--num-frames", "9999999999"},
        {"--num-frames", "81.0"},  {"--num-frames", "-5"},
        {"--size", "832"},         {"--size", "832x"},
        {"--size", "x480"},        {"--size", "832x480x3"},
        {"--size", "-832x480"},    {"--size", "0x480"},
        {"--size", "99999x16"},    {"--size", "832 x 480"},
        {"--codec", "h265"},       {"--codec", ""},
        {"--codec", "h264|av1"},   {"--crf", "0"},
        {"--crf", "64"},           {"--guidance-scale", "-0.5"},
        {"--guidance-scale", "."}, {"--negative-prompt", "\xff\xfe"},
        {"--model", ""},           {"--threads", "0"},
        {"--fps", "1000"},         {"--dtype", "fp8"},
        {"--isa", "mmx"},          {"--mode", "loop"},
        {"--overwrite", NULL},
    };
    for (size_t i = 0; bad[i][1]; i++) {
        lti_settings s;
        char option[64], value[64];
        strcpy(option, bad[i][0]);
        strcpy(value, bad[i][1]);
        if (PARSE(s, option, value) != LT_ERR_ARG) fail_msg("%s %s was taken", option, value);
        if (!strstr(lt_error(ctx), option)) fail_msg("%s %s: %s", option, value, lt_error(ctx));
        if (*value && (unsigned char)*value < 0x80 && !strstr(lt_error(ctx), value))
            fail_msg("%s %s: %s", option, value, lt_error(ctx));
    }
}

static void expect(lt_status got, lt_status want, const char *text)
{
    assert_int_equal(got, want);
    if (!strstr(lt_error(ctx), text)) fail_msg("message: %s", lt_error(ctx));
}

static void wrong_names_are_corrected(void **state)
{
    (void)state;
    lti_settings s;
    expect(PARSE(s, "--sede", "1"), LT_ERR_ARG, "did you mean --seed?");
    expect(PARSE(s, "--frames", "81"), LT_ERR_ARG, "did you mean --num-frames?");
    expect(PARSE(s, "--steps=4"), LT_ERR_ARG, "did you mean --num-inference-steps?");
    expect(PARSE(s, "--guidance", "4"), LT_ERR_ARG, "did you mean --guidance-scale?");
    expect(PARSE(s, "--xyzzy"), LT_ERR_ARG, "--help lists them");
    expect(PARSE(s, "-x"), LT_ERR_ARG, "unknown option '-x'");
    expect(PARSE(s, "--out-dir", "d"), LT_ERR_ARG, "unknown option '--out-dir'"); /* batch's */
    expect(PARSE(s, "--seed"), LT_ERR_ARG, "--seed: a value is missing");
    expect(PARSE(s, "--seed", "--quiet"), LT_ERR_ARG, "--seed: a value is missing");
    expect(PARSE(s, "--overwrite=yes"), LT_ERR_ARG, "true or false");
    expect(PARSE(s, "1", "2", "3", "4", "5", "6", "7", "8", "9"), LT_ERR_ARG, "more words");
}

/* What a benchmark would not look at is refused, whatever the others know. */
static void benchmarks_know_their_own(void **state)
{
    (void)state;
    static const struct {
        uint32_t command;
        const char *known, *unknown;
    } cases[] = {
        {LTI_BENCH_SPEED, "seconds", "seeds"},     {LTI_BENCH_SPEED, "mode", "guidance-scale"},
        {LTI_BENCH_ATTENTION, "search", "mode"},   {LTI_BENCH_QUALITY, "seeds", "search"},
        {LTI_BENCH_DRIFT, "inject", "num-frames"}, {LTI_BENCH_DRIFT, "seconds", "repeat"}};
    const lti_table all = lti_settings_table(LTI_BENCH);
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        const lti_table t = lti_settings_table(cases[i].command);
        const char *known = cases[i].known, *unknown = cases[i].unknown;
        assert_non_null(lti_option_find(&t, known, strlen(known)));
        assert_null(lti_option_find(&t, unknown, strlen(unknown)));
        assert_non_null(lti_option_find(&all, unknown, strlen(unknown)));
    }
    const lti_table speed = lti_settings_table(LTI_BENCH_SPEED);
    lti_settings s = lti_settings_default();
    char *const argv[] = {(char *)(uintptr_t) "--mode", (char *)(uintptr_t) "extend"};
    expect(lti_options_parse(ctx, &speed, &s, &words, 2, argv), LT_ERR_ARG, "one of clip|ar");
}

static void words_are_checked(void **state)
{
    (void)state;
    lti_settings s;
    assert_int_equal(PARSE(s, "x", "--mode", "extend:naive,segment=33"), LT_OK);
    assert_int_equal(lti_settings_check(ctx, &s), LT_OK);
    assert_int_equal(s.mode.word, LTI_MODE_EXTEND);
    assert_string_equal(s.mode.keys, "naive,segment=33");
    assert_int_equal(PARSE(s, "x", "--mode", "ar:window=3"), LT_OK);
    expect(lti_settings_check(ctx, &s), LT_ERR_ARG, "only extend takes keys");
    assert_int_equal(PARSE(s, "x", "--attention", "sta:tile=4"), LT_OK);
    expect(lti_settings_check(ctx, &s), LT_ERR_ARG, "--attention: attention: \"tile=4\"");
    assert_int_equal(PARSE(s, "x", "--attention", "topk:keep=0.2,warmup=0.25"), LT_OK);
    assert_int_equal(lti_settings_check(ctx, &s), LT_OK);
    assert_int_equal(PARSE(s, "x", "--attention", "dnse"), LT_OK);
    expect(lti_settings_check(ctx, &s), LT_ERR_ARG, "dnse");
    assert_int_equal(PARSE(s, "x", "--attention", "sta:file=/nowhere/w.txt"), LT_OK);
    expect(lti_settings_check(ctx, &s), LT_ERR_IO, "/nowhere/w.txt cannot be read");
    assert_int_equal(PARSE(s, "x", "--drift", "watch"), LT_OK);
    assert_int_equal(lti_settings_check(ctx, &s), LT_OK);
    assert_int_equal(s.drift, LT_DRIFT_WATCH);
}

static void json_is_checked_alike(void **state)
{
    (void)state;
    const lti_table t = lti_settings_table(LTI_ITEM);
    static const struct {
        const char *field, *json;
        bool good;
    } cases[] = {
        {"seed", "7", true},
        {"seed", "\"18446744073709551615\"", true},
        {"seed", "-7", false},
        {"seed", "7.5", false},
        {"num_frames", "81", true},
        {"num_frames", "81.5", false},
        {"seconds", "5", true},
        {"seconds", "\"5\"", true},
        {"seconds", "true", false},
        {"size", "\"832x480\"", true},
        {"size", "832", false},
        {"prompt", "\"a ball\"", true},
        {"prompt", "5", false},
        {"prompt", "\"\"", false},
        {"negative_prompt", "\"\"", true},
        {"prompt", "\"a\\u0000b\"", false},
        {"prompt", "null", false},
        {"prompt", "[\"a\"]", false},
        {"codec", "\"av1\"", true},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        lti_settings s = lti_settings_default();
        const lti_option *o = lti_option_find(&t, cases[i].field, strlen(cases[i].field));
        assert_non_null(o);
        json_t *v = json_loads(cases[i].json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        const lt_status r = lti_option_set_json(ctx, o, &s, cases[i].field, v);
        if ((r == LT_OK) != cases[i].good)
            fail_msg("%s: %s gave %d (%s)", cases[i].field, cases[i].json, r, lt_error(ctx));
        json_decref(v);
    }
}

static void utf8(void **state)
{
    (void)state;
    assert_true(lti_utf8_valid("") && lti_utf8_valid("\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x8e\xac"));
    static const char *const bad[] = {"\x80",         "\xc0\x80",         "\xe0\x80\x80",
                                      "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xf4\x90\x80\x80",
                                      "a\xe4\xb8",    "\xf0\x8f\xbf\xbf"};
    for (size_t i = 0; i < LT_COUNT(bad); i++)
        assert_false(lti_utf8_valid(bad[i]));
}

static void help_lists_the_table(void **state)
{
    (void)state;
    static const uint32_t commands[] = {
        LTI_RENDER,      LTI_BATCH,           LTI_INSPECT,       LTI_MEASURE,     LTI_SERVE,
        LTI_BENCH_SPEED, LTI_BENCH_ATTENTION, LTI_BENCH_QUALITY, LTI_BENCH_DRIFT, LTI_BENCH};
    for (size_t c = 0; c < LT_COUNT(commands); c++) {
        const lti_table t = lti_settings_table(commands[c]);
        char *text;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        lti_options_help(&t, f);
        fclose(f);
        int seen = 0;
        for (size_t i = 0; i < t.count; i++) {
            char want[64];
            snprintf(want, sizeof want, "  --%s ", t.rows[i].name);
            if (!(t.rows[i].commands & t.command)) continue;
            if (!strstr(text, want)) fail_msg("no%sin the help", want);
            seen++;
            for (size_t k = 0; k < i; k++) /* no name twice */
                assert_true(!(t.rows[k].commands & t.command) ||
                            strcmp(t.rows[k].name, t.rows[i].name));
        }
        assert_true(seen >= 3);
        for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1)
            assert_true(end - p <= 100);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_arrive),
        cmocka_unit_test(defaults_say_nothing),
        cmocka_unit_test(wrong_values_are_named),
        cmocka_unit_test(wrong_names_are_corrected),
        cmocka_unit_test(benchmarks_know_their_own),
        cmocka_unit_test(words_are_checked),
        cmocka_unit_test(json_is_checked_alike),
        cmocka_unit_test(utf8),
        cmocka_unit_test(help_lists_the_table),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
