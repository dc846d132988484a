/* unit_examples_bars.c: what is drift of a backdrop and what is an object that moves; what is said of figures that are known. */
#include "examples/bench_drift.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 32, FRAMES = 10, BYTES = SIDE * SIDE * 3, WINDOWS = 24 };

/* A wall that darkens downwards and a blue square of a quarter of the width; x < 0: it has left. */
static void draw(uint8_t *rgb, int x, double light)
{
    for (int i = 0; i < SIDE * SIDE; i++) {
        const int col = i % SIDE, row = i / SIDE;
        const bool square = x >= 0 && col >= x && col < x + 8 && row >= 8 && row < 16;
        const double wall = 0.5 * exp2(light) * (1 - 0.5 * row / SIDE);
        const double coded = 255 * (1.055 * pow(wall, 1 / 2.4) - 0.055);
        for (int c = 0; c < 3; c++)
            rgb[3 * i + c] = (uint8_t)(square ? (c == 2 ? 230 : 20) : coded + 0.5);
    }
}

static void take(lti_backdrop *out, bool moves, double light)
{
    static uint8_t clip[FRAMES * BYTES];
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    for (int f = 0; f < FRAMES; f++)
        draw(clip + f * BYTES, moves ? 2 * f : -1, light);
    assert_int_equal(lti_backdrop_take(out, ctx, clip, FRAMES, SIDE, SIDE), LT_OK);
    lt_ctx_destroy(&ctx);
}

static void an_object_is_no_drift(void **state)
{
    static lti_backdrop with, without, darker;
    double exposure, distance;
    (void)state;
    take(&with, true, 0);
    take(&without, false, 0);
    take(&darker, true, -0.3);
    lti_backdrop_change(&exposure, &distance, &with, &without);
    assert_true(fabs(exposure) < 1e-6 && distance < 1e-6);
    assert_true(fabs(lti_backdrop_contrast(&with, &without)) < 0.02);
    lti_backdrop_change(&exposure, &distance, &with, &darker);
    assert_true(fabs(exposure + 0.3) < 0.02 && distance > 3 && distance < 8);
}

/* ---- bars ---- */

static const lti_drift_scene steady = {.name = "steady", .steady = true};

/* A rollout that goes `ev` brighter by the end, in a straight line, and moves less by `slower`. */
static lti_drift_rollout rollout(int mode, uint64_t seed, double ev, double slower)
{
    lti_drift_rollout r = {.way = "ar",
                           .scene = &steady,
                           .mode = mode,
                           .seed = seed,
                           .seconds = WINDOWS * LTI_DRIFT_WINDOW,
                           .windows = WINDOWS,
                           .report.total_seconds = 1};
    r.window = calloc(WINDOWS, sizeof *r.window);
    assert_non_null(r.window);
    r.frames_hash.value = (uint64_t)(1000 * ev);
    for (int i = 0; i < WINDOWS; i++) {
        const double k = (double)i / (WINDOWS - 1);
        for (int c = 0; c < LTI_BACKDROP_CELLS; c++) {
            r.window[i].backdrop.light[c] = (float)(0.2 * exp2(ev * k));
            r.window[i].backdrop.lab[c][0] = (float)(50 + 10 * ev * k);
        }
        r.window[i].v[LTI_DRIFT_MOVES] = 0.02 * (1 - slower * k);
        r.window[i].v[LTI_DRIFT_SHARP] = 0.3;
        r.window[i].adherence = 1;
    }
    return r;
}

typedef struct heard {
    const char *about, *verdict;
    int count;
} heard;

static void hear(void *user, const lti_drift_bar *bar)
{
    heard *h = user;
    if (!strstr(bar->asked, h->about)) return;
    assert_true(bar->measured[0] && strlen(bar->measured) < sizeof bar->measured - 1);
    h->verdict = bar->verdict;
    h->count++;
}

static void verdict_is(const lti_rollouts *all, const char *about, const char *want)
{
    heard h = {.about = about};
    lti_drift_bars(all, hear, &h);
    assert_int_equal(h.count, 1);
    assert_string_equal(h.verdict, want);
}

static void bars_are_judged(void **state)
{
    (void)state;
    lti_drift_rollout r[] = {
        rollout(LT_DRIFT_OFF, 1, 0.5, 0), rollout(LT_DRIFT_CORRECT, 1, 0.08, 0),
        rollout(LT_DRIFT_OFF, 2, 0.05, 0), rollout(LT_DRIFT_CORRECT, 2, 0.05, 0)};
    lti_rollouts all = {.rollout = r, .count = 4, .seconds = r[0].seconds};
    verdict_is(&all, "0.1 EV", "pass");
    verdict_is(&all, "3 Delta E", "pass");
    verdict_is(&all, "motion", "pass");
    verdict_is(&all, "5 points", "pass");
    verdict_is(&all, "than without", "pass");
    verdict_is(&all, "false action", "pass");
    verdict_is(&all, "to the bit", "miss"); /* nobody watched */
    const lti_drift_ends e = lti_drift_ends_of(&r[0]);
    assert_true(fabs(e.exposure - 0.5 * 22 / 23) < 1e-3 && e.holds == 95 &&
                !strcmp(e.breaks, "exposure"));
    r[3].false_actions = 1; /* in four minutes */
    verdict_is(&all, "false action", "miss");
    free(r[1].window);
    r[1] = rollout(LT_DRIFT_CORRECT, 1, 0.5, 0.5);
    r[1].window[WINDOWS - 1].adherence = 0;
    all.count = 2;
    verdict_is(&all, "0.1 EV", "miss");
    verdict_is(&all, "3 Delta E", "miss");
    verdict_is(&all, "motion", "miss");
    verdict_is(&all, "5 points", "miss");
    verdict_is(&all, "than without", "same");
    r[1].frames_hash.value++;
    verdict_is(&all, "than without", "miss"); /* no nearer */
    free(r[0].window);
    free(r[1].window);
    r[0] = rollout(LT_DRIFT_OFF, 1, 0.02, 0);
    r[1] = rollout(LT_DRIFT_CORRECT, 1, 0.03, 0);
    verdict_is(&all, "than without", "same"); /* it did not drift */
    for (size_t i = 0; i < LT_COUNT(r); i++)
        free(r[i].window);
}

/* Stopped after the first video: nothing is said of what was not drawn. */
static void what_was_not_drawn_has_no_verdict(void **state)
{
    (void)state;
    static const char *const about[] = {"0.1 EV",       "3 Delta E",    "motion",
                                        "5 points",     "false action", "nothing black",
                                        "than without", "2 %",          "what a fault does"};
    lti_drift_rollout r = rollout(LT_DRIFT_OFF, 1, 0.02, 0);
    const lti_rollouts all = {
        .rollout = &r, .count = 1, .seconds = r.seconds, .inject = "exposure=0.1"};
    for (size_t i = 0; i < LT_COUNT(about); i++) {
        heard h = {.about = about[i]};
        lti_drift_bars(&all, hear, &h);
        assert_int_equal(h.count, 0);
    }
    verdict_is(&all, "holds without", "told");
    free(r.window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_no_drift),
        cmocka_unit_test(bars_are_judged),
        cmocka_unit_test(what_was_not_drawn_has_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
