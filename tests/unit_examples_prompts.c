/* unit_examples_prompts.c: files of prompts by time: what they may say, and the line that a refusal names. */
#include "examples/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static lt_ctx *make_ctx(void)
{
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    return ctx;
}

static void reads_all_forms(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf# a story\r\n"
                               "0 a red ball  bounces\r\n"
                               "\n"
                               "  4.5\ta blue star \n"
                               "1:30 a green square\n"
                               "1:00:00.5 later\n"
                               "f120 at a frame\n"
                               "{\"time\": 4000, \"prompt\": \"caf\\u00e9\", \"blend\": 3}\n"
                               "{\"frame\": 240, \"prompt\": \"x\"}";
    static const struct {
        double seconds;
        int64_t frame;
        const char *prompt;
        int32_t blend;
    } want[] = {{0, 0, "a red ball  bounces", 0},
                {4.5, 0, "a blue star", 0},
                {90, 0, "a green square", 0},
                {3600.5, 0, "later", 0},
                {0, 120, "at a frame", 0},
                {4000, 0, "caf\xc3\xa9", 3},
                {0, 240, "x", 0}};
    lt_ctx *ctx = make_ctx();
    lti_cues c;
    if (lti_cues_parse(&c, ctx, "story", text, sizeof text - 1) < 0) fail_msg("%s", lt_error(ctx));
    assert_int_equal(c.count, LT_COUNT(want));
    for (size_t i = 0; i < LT_COUNT(want); i++) {
        assert_true(c.cue[i].seconds == want[i].seconds && c.cue[i].frame == want[i].frame);
        assert_int_equal(c.cue[i].blend_blocks, want[i].blend);
        assert_string_equal(c.cue[i].prompt, want[i].prompt);
    }
    /* as JSON, and from there again */
    json_t *list = lti_cues_json(c.cue, c.count);
    for (int32_t i = 0; i < c.count; i++) {
        lti_cues one;
        char *line = json_dumps(json_array_get(list, (size_t)i), 0);
        assert_int_equal(lti_cues_parse(&one, ctx, "json", line, strlen(line)), LT_OK);
        assert_true(one.count == 1 && one.cue[0].seconds == c.cue[i].seconds &&
                    one.cue[0].frame == c.cue[i].frame &&
                    one.cue[0].blend_blocks == c.cue[i].blend_blocks);
        assert_string_equal(one.cue[0].prompt, c.cue[i].prompt);
        lti_cues_free(&one);
        free(line);
    }
    json_decref(list);
    lti_cues_free(&c);
    lt_ctx_destroy(&ctx);
}

static void names_the_line_that_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "no prompt in it"},
        {"# nothing\n\n", "no prompt in it"},
        {"0 a\nstart b\n", "line 2: not a time (4.5, 1:30, f120): start"},
        {"0 a\n\n-1 b\n", "line 3: not a time"},
        {"1e3 a", "line 1: not a time"},
        {"inf a", "line 1: not a time"},
        {"1:2:3:4 a", "line 1: not a time"},
        {"1: a", "line 1: not a time"},
        {"f1.5 a", "line 1: not a time"},
        {"0x10 a", "line 1: not a time"},
        {"99999999 a", "line 1: not a time"},
        {"5", "line 1: the prompt is missing"},
        {"5 \t \n", "line 1: the prompt is missing"},
        {"5 a\n4 b", "line 2: earlier than the one before it: 4 s, that one 5 s"},
        {"f9 a\nf8 b", "line 2: earlier than the one before it: frame 8, that one 9"},
        {"0 a\r5 b", "line 1: holds a carriage return"},
        {"5 \xff", "line 1: the prompt is not UTF-8"},
        {"{\"time\": 1}", "line 1: needs time or frame, and prompt"},
        {"{\"prompt\": \"a\"}", "line 1: needs time or frame, and prompt"},
        {"{\"time\": 1, \"frame\": 1, \"prompt\": \"a\"}", "line 1: time and frame: one of them"},
        {"{\"time\": \"1\", \"prompt\": \"a\"}", "not a value of it: time"},
        {"{\"time\": -1, \"prompt\": \"a\"}", "not a value of it: time"},
        {"{\"time\": 1, \"prompt\": \"\"}", "line 1: the prompt is empty"},
        {"{\"time\": 1, \"prompt\": \"a\", \"blend\": 257}", "not a value of it: blend"},
        {"{\"time\": 1, \"prompt\": \"a\", \"fade\": 2}", "not a value of it: fade"},
        {"{\"time\": 1, \"prompt\": \"a\"", "line 1: not JSON"},
        {"{\"time\": 1, \"prompt\": \"a\\u0000b\"}", "line 1: not JSON"},
    };
    lt_ctx *ctx = make_ctx();
    lti_cues c;
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        assert_int_equal(lti_cues_parse(&c, ctx, "story", bad[i].text, strlen(bad[i].text)),
                         LT_ERR_ARG);
        if (!strstr(lt_error(ctx), bad[i].says) || !strstr(lt_error(ctx), "--prompt-file 'story'"))
            fail_msg("%s", lt_error(ctx));
        assert_true(!c.cue && !c.count);
    }
    assert_int_equal(lti_cues_parse(&c, ctx, "story", "1 a\0b", 5), LT_ERR_ARG);
    assert_int_equal(lti_cues_read(&c, ctx, "/nowhere/story"), LT_ERR_IO);
    lt_ctx_destroy(&ctx);
}

/* What a finished file says of its timeline can be said to a batch. */
static void takes_a_list(void **state)
{
    (void)state;
    lt_cue cue[] = {{.prompt = "a red ball"},
                    {.seconds = 4.5, .prompt = "a blue star", .blend_blocks = 3},
                    {.frame = 120, .prompt = "at a frame"}};
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"[]", "timeline: not a list"},
        {"{}", "timeline: not a list"},
        {"7", "timeline: not a list"},
        {"[{\"time\":0,\"prompt\":\"a\"},1]", "timeline, prompt 2: not an object"},
        {"[{\"time\":0}]", "timeline, prompt 1: needs time or frame, and prompt"},
        {"[{\"time\":5,\"prompt\":\"a\"},{\"time\":4,\"prompt\":\"b\"}]",
         "timeline, prompt 2: earlier than the one before it: 4 s, that one 5 s"},
    };
    lt_ctx *ctx = make_ctx();
    lti_cues c;
    json_t *list = lti_cues_json(cue, LT_COUNT(cue));
    assert_int_equal(lti_cues_take(&c, ctx, list), LT_OK);
    assert_int_equal(c.count, LT_COUNT(cue));
    json_t *back = lti_cues_json(c.cue, c.count);
    assert_true(json_equal(back, list));
    json_decref(back);
    json_decref(list);
    lti_cues_free(&c);
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        list = json_loads(bad[i].json, JSON_DECODE_ANY, NULL);
        assert_int_equal(lti_cues_take(&c, ctx, list), LT_ERR_ARG);
        if (!strstr(lt_error(ctx), bad[i].says)) fail_msg("%s", lt_error(ctx));
        assert_true(!c.cue && !c.count);
        json_decref(list);
    }
    lt_ctx_destroy(&ctx);
}

/* Blocks begin with frames 0, 5 and 13 of 8 a second. */
static void knows_what_was_drawn(void **state)
{
    (void)state;
    const lt_cue cue[] = {{.prompt = "a"},
                          {.seconds = 0.5, .prompt = "b"}, /* frame 4 */
                          {.frame = 6, .prompt = "c"},
                          {.frame = 7, .prompt = "d"}, /* takes its place */
                          {.frame = 14, .prompt = "b"}};
    static const bool drawn[] = {true, true, false, true, false};
    json_t *marks = json_pack("[{s:i,s:s},{s:i,s:s},{s:i,s:s}]", "frame", 0, "prompt", "a", "frame",
                              5, "prompt", "b", "frame", 13, "prompt", "d");
    for (int32_t i = 0; i < (int32_t)LT_COUNT(cue); i++)
        assert_int_equal(lti_cue_drawn(cue, LT_COUNT(cue), i, marks, 8), drawn[i]);
    json_decref(marks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_forms),
        cmocka_unit_test(names_the_line_that_is_wrong),
        cmocka_unit_test(takes_a_list),
        cmocka_unit_test(knows_what_was_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
