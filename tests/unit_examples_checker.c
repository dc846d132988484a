/* unit_examples_checker.c: the checker in C gives the answers of toybox/train/checker.py, wrong ones included, and pages are whole. */
#include "examples/checker_internal.h"
#include "examples/report_html.h"
#include "tests/toy_scene.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* Every second of 81 frames of 21 scenes (world.sample_scene, all grounds, shapes, colours, motions and lights), and what
 * checker.py says of the frames of 8 bits. */
static const struct {
    toy_scene scene;
    lti_toy python;
} known[] = {
    {{{"plain", "red", "ball", "still", "steady"},
      22.5728f,
      39.0201f,
      60.8682f,
      0.408473f,
      0.81811f,
      -1,
      0},
     {"plain", "red", "ball", "still", "steady"}},
    {{{"gradient", "orange", "star", "left", "steady"},
      24.9592f,
      96.3608f,
      83.4978f,
      0.844231f,
      0.956962f,
      1,
      3},
     {"gradient", "orange", "star", "left", "steady"}},
    {{{"checker", "yellow", "square", "right", "darkens"},
      32.0744f,
      51.399f,
      73.884f,
      0.870089f,
      0.890927f,
      1,
      7},
     {"checker", "yellow", "square", "right", "darkens"}},
    {{{"grass", "green", "ring", "up", "sunrise"},
      26.0538f,
      60.4534f,
      76.7692f,
      0.324943f,
      1.12249f,
      -1,
      2},
     {"grass", "green", "ring", "up", "sunrise"}},
    {{{"night", "turquoise", "triangle", "down", "steady"},
      21.7683f,
      53.9079f,
      24.4652f,
      0.507068f,
      1.00255f,
      1,
      1},
     {"night", "turquoise", "triangle", "down", "steady"}},
    {{{"plain", "blue", "square", "grow", "steady"},
      23.8861f,
      89.2573f,
      61.5747f,
      0.936442f,
      1.02246f,
      1,
      1},
     {"plain", "blue", "square", "grow", "steady"}},
    {{{"gradient", "purple", "ring", "shrink", "darkens"},
      25.4212f,
      48.4258f,
      72.2014f,
      0.107089f,
      1.07689f,
      1,
      5},
     {"gradient", "purple", "ring", "shrink", "darkens"}},
    {{{"checker", "white", "triangle", "bounce", "sunrise"},
      23.5855f,
      57.3066f,
      75.3833f,
      0.612518f,
      1.1764f,
      1,
      7},
     {"checker", "white", "triangle", "bounce", "sunrise"}},
    {{{"grass", "red", "ball", "orbit", "steady"},
      23.9334f,
      58.4686f,
      68.343f,
      0.479488f,
      1.18341f,
      1,
      2},
     {"grass", "red", "ball", "orbit", "steady"}},
    {{{"night", "orange", "star", "spin", "steady"},
      28.103f,
      88.3578f,
      84.6418f,
      0.32735f,
      1.19554f,
      1,
      1},
     {"night", "orange", "star", "spin", "steady"}},
    {{{"gradient", "yellow", "triangle", "still", "darkens"},
      19.1756f,
      84.0502f,
      80.4671f,
      0.139789f,
      1.01084f,
      1,
      2},
     {"gradient", "yellow", "triangle", "still", "darkens"}},
    {{{"checker", "green", "ball", "left", "sunrise"},
      31.83f,
      84.3003f,
      63.6734f,
      0.0572586f,
      0.801098f,
      1,
      1},
     {"checker", "green", "ball", "left", "sunrise"}},
    {{{"grass", "turquoise", "star", "right", "steady"},
      25.2762f,
      41.3859f,
      81.7852f,
      0.337298f,
      1.11746f,
      1,
      3},
     {"grass", "turquoise", "star", "right", "steady"}},
    {{{"night", "blue", "square", "up", "steady"},
      29.157f,
      36.3199f,
      73.5669f,
      0.149038f,
      0.885454f,
      1,
      1},
     {"night", "blue", "square", "up", "steady"}},
    {{{"plain", "purple", "ring", "down", "darkens"},
      23.5921f,
      56.5187f,
      36.0224f,
      0.680342f,
      1.11411f,
      -1,
      7},
     {"plain", "purple", "ring", "down", "darkens"}},
    {{{"gradient", "white", "star", "grow", "sunrise"},
      21.6904f,
      84.7768f,
      66.2246f,
      0.725344f,
      1.014f,
      1,
      2},
     {"gradient", "white", "star", "grow", "sunrise"}},
    {{{"checker", "red", "square", "shrink", "steady"},
      26.4794f,
      62.7218f,
      80.658f,
      0.0201226f,
      1.02275f,
      -1,
      3},
     {"checker", "red", "square", "shrink", "steady"}},
    {{{"grass", "orange", "ring", "bounce", "steady"},
      21.4425f,
      70.4516f,
      54.9176f,
      0.552613f,
      1.06895f,
      1,
      1},
     {"grass", "orange", "ring", "bounce", "steady"}},
    {{{"night", "yellow", "triangle", "orbit", "steady"},
      21.1045f,
      50.6406f,
      46.0544f,
      0.0166768f,
      0.898699f,
      -1,
      6},
     {"night", "yellow", "triangle", "orbit", "steady"}},
    {{{"plain", "green", "star", "spin", "sunrise"},
      19.0493f,
      46.7792f,
      73.8288f,
      0.501656f,
      1.01961f,
      -1,
      3},
     {"plain", "green", "star", "spin", "sunrise"}},
    {{{"plain", "white", "star", "up", "sunrise"},
      25.7278f,
      57.7286f,
      83.9525f,
      0.37431f,
      1.15185f,
      1,
      3},
     {"plain", "white", "star", "up", "sunrise"}},
};

enum { FRAMES = 41 };

static const char *word(const char *text)
{
    return text ? text : "nothing";
}

static void answers_as_python_does(void **state)
{
    lt_ctx *ctx = *state;
    uint8_t *clip = malloc((size_t)FRAMES * TOY_BYTES);
    assert_non_null(clip);
    for (size_t i = 0; i < LT_COUNT(known); i++) {
        lti_toy got;
        int asked;
        static float back[TOY_BYTES];
        lti_toy_background(back, known[i].scene.is.ground, known[i].scene.seed);
        for (int t = 0; t < FRAMES; t++)
            toy_frame(clip + (size_t)t * TOY_BYTES, &known[i].scene, back, (float)(2 * t));
        assert_int_equal(lti_toy_read(&got, ctx, clip, FRAMES), LT_OK);
        const lti_toy *want = &known[i].python;
        if (lti_toy_agree(&got, want, &asked) != asked || !got.shape != !want->shape)
            fail_msg("scene %zu: %s %s %s %s %s, python: %s %s %s %s %s", i, word(got.ground),
                     word(got.colour), word(got.shape), word(got.motion), word(got.light),
                     word(want->ground), word(want->colour), word(want->shape), word(want->motion),
                     word(want->light));
    }
    free(clip);
}

static void sees_when_nothing_is_there(void **state)
{
    static uint8_t clip[3 * TOY_BYTES];
    static float back[TOY_BYTES];
    lt_ctx *ctx = *state;
    lti_toy got;
    int asked;
    lti_toy_background(back, "grass", 3);
    for (int i = 0; i < 3 * TOY_BYTES; i++)
        clip[i] = (uint8_t)(back[i % TOY_BYTES] * 255 + 0.5f);
    assert_int_equal(lti_toy_read(&got, ctx, clip, 3), LT_OK);
    assert_string_equal(got.ground, "grass");
    assert_string_equal(got.light, "steady");
    assert_true(!got.colour && !got.shape && !got.motion);
    const lti_toy want = {.ground = "grass", .colour = "red", .motion = "bounce"};
    assert_int_equal(lti_toy_agree(&got, &want, &asked), 1);
    assert_int_equal(asked, 3);
    memset(clip, 0, sizeof clip); /* black, one frame: no number is divided by nothing */
    assert_int_equal(lti_toy_read(&got, ctx, clip, 1), LT_OK);
}

/* A sun that is up and begins to rise again is no sunrise, though it is lighter in the end than it was at first. */
static void light_that_comes_back(void **state)
{
    enum { SHOWN = 24 };
    static uint8_t clip[SHOWN * TOY_BYTES];
    static float back[TOY_BYTES];
    static const char *const light[] = {"sunrise", "darkens"};
    lt_ctx *ctx = *state;
    for (int k = 0; k < 2; k++)
        for (int again = 0; again < 2; again++) {
            const toy_scene s = {.is = {"grass", "red", "square", "still", light[k]},
                                 .radius = 22,
                                 .x = 64,
                                 .y = 80,
                                 .speed = 1};
            lti_toy got;
            lti_toy_background(back, "grass", 0);
            for (int i = 0; i < SHOWN; i++)
                toy_frame(clip + (size_t)i * TOY_BYTES, &s, back,
                          5.0f * (float)(again && i > 11 ? i - 12 : i));
            assert_int_equal(lti_toy_read(&got, ctx, clip, SHOWN), LT_OK);
            assert_string_equal(got.light, again ? "unsteady" : light[k]);
            assert_string_equal(got.colour, "red");
        }
}

/* An outline that trembles by a few degrees from frame to frame comes to many in five seconds, but it is turned by none. */
static void what_trembles_does_not_spin(void **state)
{
    (void)state;
    enum { SPOTS = 41 };
    static const char *const shape[] = {"triangle", "square", "star", "ring"};
    for (int k = 0; k < 4; k++) {
        lti_toy_spot trembles[SPOTS], turns[SPOTS];
        for (int i = 0; i < SPOTS; i++) {
            trembles[i] = turns[i] =
                (lti_toy_spot){.t = 2 * i, .x = 40, .y = 92, .size = 38, .whole = true};
            trembles[i].phase = 3 + 0.2 * (i * 7 % 5 - 2); /* past half a turn to and fro */
            turns[i].phase = remainder(3 + 0.1 * i, 6.283185307179586);
        }
        assert_string_equal(lti_toy_motion(trembles, SPOTS, shape[k]), "still");
        assert_string_equal(lti_toy_motion(turns, SPOTS, shape[k]), k < 3 ? "spin" : "still");
    }
}

static void pages_stand_alone(void **state)
{
    static const double x[] = {0, 1, 2, 3}, y[] = {1, 2, (double)NAN, 4},
                        e[] = {0.1, 0.2, 0.3, (double)NAN};
    const lti_series s[] = {{"a<b", x, y, e, 4, false}, {"line", x, y, NULL, 4, true}};
    lt_ctx *ctx = *state;
    char path[] = "/tmp/lt-page-XXXXXX", text[20000];
    const int fd = mkstemp(path);
    FILE *f;
    assert_true(fd >= 0);
    assert_int_equal(lti_html_begin(&f, ctx, path, "A & B"), LT_OK);
    lti_html_plot(f, &(lti_plot){.title = "t", .x_name = "x", .y_name = "y"}, s, 2);
    lti_html_plot(f, &(lti_plot){.title = "nothing", .x_name = "x", .y_name = "y"}, s, 0);
    assert_int_equal(lti_html_picture(f, ctx, "/nowhere.png", "p"), LT_ERR_IO);
    assert_int_equal(lti_html_end(f, ctx, path, LT_OK), LT_OK);
    const ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "<h1>A &amp; B</h1>"));
    assert_non_null(strstr(text, "a&lt;b"));
    assert_non_null(strstr(text, "</html>"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_null(strstr(text, "http"));
    assert_int_equal(lti_html_begin(&f, ctx, "/nowhere/page.html", "A"), LT_ERR_IO);
    close(fd);
    unlink(path);
}

static int set_up(void **state)
{
    return lt_ctx_create((lt_ctx **)state, NULL, NULL, LT_LOG_ERROR);
}

static int tear_down(void **state)
{
    lt_ctx_destroy((lt_ctx **)state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_as_python_does), cmocka_unit_test(sees_when_nothing_is_there),
        cmocka_unit_test(light_that_comes_back),  cmocka_unit_test(what_trembles_does_not_spin),
        cmocka_unit_test(pages_stand_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
