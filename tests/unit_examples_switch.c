/* unit_examples_switch.c: the embedded model is told another scene while its video runs. What was shown before is that of a video
 * without the change, bit by bit; the frame of the change is the one that is reported; the checker sees the new scene within two
 * blocks. Only ground and colour are asked for, which the model's weights follow best. */
#include "examples/checker.h"
#include "video/video.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Blocks begin with frames 0, 1, 13, 25; the prompt is asked for within the second. */
enum {
    BYTES = LTI_TOY_SIZE * LTI_TOY_SIZE * 3,
    ASKED = 5,
    BEGIN = 13,
    SECOND = 25,
    FRAMES = 37,
    STEPS = 10 /* the default of the model */
};

static const char *const prompt[2] = {"a red ball bounces on green grass",
                                      "a blue star spins at night"};

typedef struct world {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_model *model;
} world;

static void render(const world *w, int32_t frames, bool change, uint8_t *video)
{
    const lt_cue cue = {.frame = ASKED, .prompt = prompt[1]};
    lt_session_options o = lt_session_options_default();
    o.prompt = prompt[0];
    o.seed = 1;
    o.mode = LT_MODE_AR;
    o.num_frames = frames;
    o.num_inference_steps = STEPS;
    o.timeline = change ? &cue : NULL;
    o.cues = change;
    lt_session *s;
    lt_frames f;
    lt_status st;
    if (lt_session_create(&s, w->model, &o) < 0) fail_msg("%s", lt_error(w->ctx));
    while ((st = lt_session_next(s, &f)) == LT_OK) {
        assert_int_equal(f.prompt, change && f.first >= BEGIN);
        assert_int_equal(f.prompt_frame, f.prompt ? BEGIN : 0);
        assert_string_equal(f.prompt_text, prompt[f.prompt]);
        memcpy(video + f.first * BYTES, f.rgb, (size_t)f.count * BYTES);
    }
    if (st != LT_END) fail_msg("%s", lt_error(w->ctx));
    int32_t marks;
    const lt_prompt_mark *m = lt_session_prompts(s, &marks);
    assert_int_equal(marks, change ? 2 : 1);
    assert_int_equal(m[marks - 1].frame, change ? BEGIN : 0);
    lt_session_destroy(&s);
}

static lti_toy seen(const world *w, const uint8_t *video, int32_t first, int32_t end)
{
    lti_toy t;
    assert_int_equal(lti_toy_read(&t, w->ctx, video + (size_t)first * BYTES, end - first), LT_OK);
    assert_non_null(t.ground);
    assert_non_null(t.colour);
    return t;
}

static void another_scene_from_a_block_on(void **state)
{
    const world *w = *state;
    uint8_t *plain = malloc((size_t)BEGIN * BYTES), *turned = malloc((size_t)FRAMES * BYTES);
    render(w, BEGIN, false, plain);
    render(w, FRAMES, true, turned);
    assert_memory_equal(plain, turned, (size_t)BEGIN * BYTES);
    const lti_toy before = seen(w, turned, 0, BEGIN), after = seen(w, turned, SECOND, FRAMES);
    print_message("before: %s, %s; after: %s, %s\n", before.ground, before.colour, after.ground,
                  after.colour);
    assert_string_equal(before.ground, "grass");
    assert_string_equal(before.colour, "red");
    assert_string_equal(after.ground, "night");
    assert_string_equal(after.colour, "blue");
    free(plain);
    free(turned);
}

static int open_world(void **state)
{
    static world w;
    lt_dev_options d = lt_dev_options_default();
    const lt_model_options o = {.path = LT_SOURCE_DIR "/examples/toybox"};
    d.device = "cpu";
    *state = &w;
    return lt_ctx_create(&w.ctx, NULL, NULL, LT_LOG_ERROR) < 0 ||
                   lt_dev_create(&w.dev, w.ctx, &d) < 0 || lt_model_open(&w.model, w.dev, &o) < 0
               ? -1
               : 0;
}

static int close_world(void **state)
{
    world *w = *state;
    lt_model_close(&w->model);
    lt_dev_destroy(&w->dev);
    lt_ctx_destroy(&w->ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_scene_from_a_block_on, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
