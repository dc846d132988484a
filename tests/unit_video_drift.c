/* unit_video_drift.c: the monitor on pictures whose drift is known: what is found, how soon, and what is let alone. No model. */
#include "kernels/kernels.h"
#include "tests/drift_scene.h"
#include "video/drift.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { GROUP = 3 };
static const double frame_seconds = 0.25;

typedef struct bench {
    lt_ctx *ctx;
    lt_dev *dev;
} bench;

static void open_bench(bench *b)
{
    lt_dev_options d = lt_dev_options_default();
    d.device = "cpu";
    d.threads = 1;
    assert_int_equal(lt_ctx_create(&b->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&b->dev, b->ctx, &d), LT_OK);
}

static void close_bench(bench *b)
{
    lt_dev_destroy(&b->dev);
    lt_ctx_destroy(&b->ctx);
}

typedef drawn_scene film(double seconds);

/* What the monitor says of a film. */
typedef struct verdict {
    double first_action; /* seconds; -1: none */
    lt_drift_kind kind;  /* then */
    int actions, vectors, alarms;
    int64_t shots;
    double exposure, level_max;
    double told[LT_DRIFT_BROKEN + 1]; /* by kind: seconds when it was first said; -1: never */
} verdict;

static verdict watch(film *f, double seconds)
{
    static uint8_t rgb[SCENE_BYTES];
    bench b;
    lt_monitor *m;
    verdict v = {.first_action = -1};
    bool acting = false;
    for (size_t i = 0; i < LT_COUNT(v.told); i++)
        v.told[i] = -1;
    open_bench(&b);
    assert_int_equal(lt_monitor_create(&m, b.dev, SCENE_W, SCENE_H, frame_seconds, GROUP), LT_OK);
    for (double t = 0; t < seconds; t += frame_seconds) {
        lt_drift_vector out;
        const drawn_scene s = f(t);
        scene_draw(rgb, &s);
        const lt_status st = lt_monitor_frame(m, &out, NULL, rgb);
        assert_true(st >= 0);
        if (st != LT_OK) continue;
        v.vectors++;
        v.shots = out.shot;
        v.exposure = out.exposure;
        v.alarms += out.alarm;
        if (v.told[out.kind] < 0) v.told[out.kind] = t;
        if (out.level > v.level_max) v.level_max = out.level;
        if (out.gain > 0 && !acting) {
            v.actions++;
            if (v.first_action < 0) {
                v.first_action = t;
                v.kind = out.kind;
            }
        }
        acting = out.gain > 0;
    }
    lt_monitor_destroy(&m);
    close_bench(&b);
    return v;
}

static double smooth(double t, double begin, double length)
{
    double k = (t - begin) / length;
    k = k < 0 ? 0 : k > 1 ? 1 : k;
    return k * k * (3 - 2 * k);
}

/* ---- what is let alone ---- */

static drawn_scene still(double t)
{
    (void)t;
    return plain_scene(0);
}

static drawn_scene moving(double t)
{
    return plain_scene(1.1 * t);
}

static drawn_scene darkens(double t)
{
    drawn_scene s = plain_scene(t);
    s.light = -2 * smooth(t, 12, 4);
    return s;
}

static drawn_scene fades_to_black(double t)
{
    drawn_scene s = plain_scene(t);
    s.light = -9 * smooth(t, 12, 3);
    return s;
}

static drawn_scene cuts(double t)
{
    drawn_scene s = plain_scene(t);
    s.place = (int)(t / 7);
    s.light = 0.3 * (s.place % 3);
    return s;
}

static drawn_scene flashes(double t)
{
    drawn_scene s = plain_scene(t);
    if (fmod(t, 9) >= 8.5) s.light = 1.2;
    return s;
}

static drawn_scene zooms(double t)
{
    drawn_scene s = plain_scene(t);
    s.zoom = 1 + 0.03 * t;
    return s;
}

static drawn_scene shakes(double t)
{
    drawn_scene s = plain_scene(t);
    s.zoom = 1 + 0.02 * sin(3 * t);
    return s;
}

/* As a model does that is not sure of its light: more than 1.5 Delta E a second, back and forth. */
static drawn_scene jitters(double t)
{
    drawn_scene s = plain_scene(t);
    s.light = 0.04 * sin(7.7 * t) + 0.03 * sin(4.3 * t);
    return s;
}

static void what_is_no_drift_is_let_alone(void **state)
{
    (void)state;
    static const struct {
        film *film;
        const char *name;
        int64_t shots_most;
    } cases[] = {{still, "still", 1},     {moving, "moving", 1},
                 {darkens, "darkens", 2}, {fades_to_black, "fades to black", 3},
                 {cuts, "cuts", 9},       {flashes, "flashes", 1},
                 {zooms, "zooms", 30},    {shakes, "shakes", 30},
                 {jitters, "jitters", 1}};
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        const verdict v = watch(cases[i].film, 45);
        print_message("%s: %d actions, %lld shots, level at most %.2f\n", cases[i].name, v.actions,
                      (long long)v.shots, v.level_max);
        assert_int_equal(v.actions, 0);
        assert_true(v.shots >= 1 && v.shots <= cases[i].shots_most);
    }
}

/* ---- what is found ---- */

static drawn_scene brightens(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.light = t > 10 ? 0.01 * (t - 10) : 0;
    return s;
}

static drawn_scene dims(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.light = t > 10 ? -0.01 * (t - 10) : 0;
    return s;
}

static drawn_scene reddens(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.red = t > 10 ? 0.02 * (t - 10) : 0;
    return s;
}

static drawn_scene saturates(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.chroma = t > 10 ? 1 + 0.01 * (t - 10) : 1;
    return s;
}

static drawn_scene hardens(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.contrast = t > 10 ? 1 + 0.01 * (t - 10) : 1;
    return s;
}

/* What covered two fifths of the picture in the reference has gone, and what was behind it is lighter. */
static drawn_scene dims_behind(double t)
{
    drawn_scene s = dims(t);
    s.disc = t < 8 ? 0.36 : 0.05;
    s.turn = 0;
    return s;
}

/* The picture is another one for a moment, again and again: what is known of the drift is not lost by that. */
static drawn_scene dims_between_flashes(double t)
{
    drawn_scene s = dims(t);
    if (t > 8 && fmod(t, 1.5) < 0.25) s.light += 1.2;
    return s;
}

/* The shot ends as another picture, little by little, before that: the new one is what it drifts from. */
static drawn_scene dims_after_a_zoom(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.zoom = 1 + 0.03 * fmin(t, 20);
    s.disc = 0.09; /* which is 0.14 in the end */
    s.light = t > 40 ? -0.01 * (t - 40) : 0;
    return s;
}

static void what_follows_a_slow_change_is_compared_anew(void **state)
{
    (void)state;
    const verdict v = watch(dims_after_a_zoom, 70);
    print_message("after a slow zoom: after %.1f s, as %s, %lld shots\n", v.first_action - 40,
                  lt_drift_kind_name(v.kind), (long long)v.shots);
    assert_true(v.shots > 1 && v.kind == LT_DRIFT_EXPOSURE);
    assert_true(v.first_action > 40 && v.first_action <= 55);
}

static void drift_is_found_within_three_segments(void **state)
{
    (void)state;
    static const struct {
        film *film;
        const char *name;
        unsigned kinds; /* that it may be called */
    } cases[] = {
        {brightens, "0.1 EV in 10 s", 1u << LT_DRIFT_EXPOSURE},
        {dims, "-0.1 EV in 10 s", 1u << LT_DRIFT_EXPOSURE},
        {dims_behind, "behind something that has gone", 1u << LT_DRIFT_EXPOSURE},
        {dims_between_flashes, "between flashes", 1u << LT_DRIFT_EXPOSURE},
        {reddens, "red", 1u << LT_DRIFT_COLOUR | 1u << LT_DRIFT_SATURATION},
        {saturates, "10 % of chroma in 10 s", 1u << LT_DRIFT_SATURATION | 1u << LT_DRIFT_COLOUR},
        {hardens, "10 % of contrast in 10 s",
         1u << LT_DRIFT_CONTRAST | 1u << LT_DRIFT_EXPOSURE | 1u << LT_DRIFT_SATURATION}};
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        const verdict v = watch(cases[i].film, 40);
        print_message("%s: after %.1f s, as %s\n", cases[i].name, v.first_action - 10,
                      lt_drift_kind_name(v.kind));
        assert_true(v.first_action > 10 && v.first_action <= 25);
        assert_true(cases[i].kinds >> v.kind & 1);
    }
}

/* ---- what is told and not corrected ---- */

static drawn_scene freezes(double t)
{
    return plain_scene(1.1 * fmin(t, 15));
}

static drawn_scene sharpens(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.grain = t > 15 ? 2 : 1;
    return s;
}

/* Every group begins brighter and goes on darker. */
static drawn_scene flickers(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    if (t > 15) s.light = (int)(t / frame_seconds) % GROUP ? -0.1 : 0.2;
    return s;
}

/* A white wall with a disc before it, from the beginning or from a cut on. */
static drawn_scene white_wall(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.light = 6;
    return s;
}

static drawn_scene cuts_to_white(double t)
{
    drawn_scene s = white_wall(t);
    s.place = t > 15;
    s.light = t > 15 ? 6 : 0;
    return s;
}

static drawn_scene burns(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.light = t > 15 ? 1 + 0.03 * (t - 15) : 1;
    return s;
}

static void white_is_no_alarm_for_ever(void **state)
{
    (void)state;
    const int wall = watch(white_wall, 30).alarms, cut = watch(cuts_to_white, 60).alarms,
              blown = watch(burns, 100).alarms;
    print_message("alarms: a white wall %d, after a cut %d, burning out %d\n", wall, cut, blown);
    assert_int_equal(wall, 0);
    assert_true(cut > 0 && cut < 5);
    assert_true(blown > 20);
}

/* From night to day: what a cut does to the light is no flicker. */
static drawn_scene cuts_once(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    s.place = t > 15;
    s.light = t > 15 ? 2 : -4;
    return s;
}

static drawn_scene blacks_out(double t)
{
    drawn_scene s = plain_scene(1.1 * t);
    if (t > 15) s.light = -20;
    return s;
}

static void a_cut_does_not_flicker(void **state)
{
    (void)state;
    const verdict v = watch(cuts_once, 30);
    print_message("a cut: %lld shots, %d alarms\n", (long long)v.shots, v.alarms);
    assert_int_equal(v.shots, 2);
    assert_int_equal(v.alarms, 0);
    assert_true(v.told[LT_DRIFT_FLICKER] < 0);
}

static void other_faults_are_told(void **state)
{
    (void)state;
    static const struct {
        film *film;
        const char *name;
        lt_drift_kind kind;
        bool alarm; /* what stands still may have come to rest as it should */
    } cases[] = {{freezes, "freezes", LT_DRIFT_MOTION, false},
                 {sharpens, "sharpens", LT_DRIFT_SHARPNESS, true},
                 {flickers, "flickers", LT_DRIFT_FLICKER, true},
                 {blacks_out, "blacks out", LT_DRIFT_BLACK, true}};
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        const verdict v = watch(cases[i].film, 30);
        const double told = v.told[cases[i].kind];
        print_message("%s: told after %.1f s, %d alarms, %d actions\n", cases[i].name, told - 15,
                      v.alarms, v.actions);
        assert_true(told > 14 && told <= 30 && (v.alarms > 0) == cases[i].alarm);
        assert_int_equal(v.actions, 0);
    }
}

/* ---- the loop ---- */

/* A model that copies what it sees and adds a little of light with each block, so that what is taken off is off for good; or one that
 * forgets: its light goes its own way, whatever was taken off. Slow: a block takes a moment to come to its light. */
typedef struct drifter {
    double by, seconds; /* EV a block, and how long it is */
    int blocks;
    bool forgets, slow;
    bool contrast; /* by is of its logarithm, and no light */
} drifter;

/* The light of the worst block, in EV, or contrast. Contrast is taken off where the shot says so. */
static double loop(const drifter *a, bool correct)
{
    static uint8_t rgb[SCENE_BYTES];
    bench b;
    lt_measure *m;
    lti_drift d;
    lt_drift_vector v = {0};
    double light = 0, own = 0, worst = 0;
    open_bench(&b);
    assert_int_equal(lt_measure_create(&m, b.dev, SCENE_W, SCENE_H), LT_OK);
    const int frames = (int)(a->seconds / frame_seconds);
    lti_drift_begin(&d, frame_seconds, GROUP);
    for (int k = 0; k < a->blocks; k++) {
        double gain = k && correct ? lti_drift_decide(&d, &v, a->seconds) : 0;
        if (a->contrast && !d.shot.spread) gain = 0;
        if (correct) lti_drift_escalates(&d, a->seconds < 1);
        const bool drifts = k * a->seconds > 6.5;
        own += drifts ? a->by : 0;
        light = (a->forgets ? own : light + (drifts ? a->by : 0)) * (1 - gain);
        for (int i = 0; i < frames; i++) {
            lt_picture p;
            lti_tiles tile;
            const double t = (k * frames + i) * frame_seconds;
            drawn_scene s = plain_scene(1.2 * t);
            if (a->contrast)
                s.contrast = exp(light);
            else
                s.light = light - (a->slow ? 0.08 * exp(-i * frame_seconds / 0.4) : 0);
            scene_draw(rgb, &s);
            assert_int_equal(lt_measure_frame(m, &p, rgb), LT_OK);
            lti_measure_tiles(m, tile);
            lti_drift_frame(&d, &v, &p, tile,
                            (i ? 0 : LTI_DRIFT_SEAM) | (i == frames - 1 ? LTI_DRIFT_END : 0));
        }
        if (fabs(light) > worst) worst = fabs(light);
    }
    assert_false(d.shot.stand_down);
    assert_int_equal(d.shots, 1); /* however far it goes: nothing else was asked for */
    lt_measure_destroy(&m);
    close_bench(&b);
    return worst;
}

static void the_loop_holds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        drifter a;
        double least, most; /* EV that it comes to when it is let alone and when it is corrected */
    } cases[] = {
        /* 0.1 EV in 10 s for two minutes, in blocks of ar and segments of extend */
        {"blocks", {.by = 0.0075, .seconds = 0.75, .blocks = 160}, 1, 0.1},
        {"segments", {.by = 0.03, .seconds = 3, .blocks = 40}, 0.8, 0.1},
        {"long segments", {.by = 0.045, .seconds = 4.5, .blocks = 27, .slow = true}, 0.8, 0.12},
        {"steep segments", {.by = 0.135, .seconds = 4.5, .blocks = 27, .slow = true}, 2, 0.3},
        {"ten times as fast", {.by = 0.05, .seconds = 0.75, .blocks = 80}, 2, 0.3},
        {"half an EV, forgetting",
         {.by = 0.0035, .seconds = 0.75, .blocks = 160, .forgets = true},
         0.5,
         0.1},
        /* 5 % of contrast in 10 s, which is the model's own way */
        {"contrast, forgetting",
         {.by = 0.00375, .seconds = 0.75, .blocks = 80, .forgets = true, .contrast = true},
         0.2,
         0.12}};
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        const double off = loop(&cases[i].a, false), on = loop(&cases[i].a, true);
        print_message("%s: %.3f EV, corrected %.3f\n", cases[i].name, off, on);
        assert_true(off > cases[i].least && on < cases[i].most);
    }
}

/* ---- prompts, seams, gain ---- */

static void gain_has_a_dead_band_and_a_rate(void **state)
{
    (void)state;
    lti_drift d;
    lti_drift_begin(&d, frame_seconds, GROUP);
    lt_drift_vector v = {.settled = true, .level = 0.9};
    assert_true(lti_drift_decide(&d, &v, 0.75) == 0);
    v.level = 3;
    d.shot.over = 1;
    assert_true(lti_drift_decide(&d, &v, 0.75) == 0); /* once may be noise */
    d.shot.over = 2;
    double last = 0;
    for (int i = 0; i < 12; i++) {
        const double g = lti_drift_decide(&d, &v, 0.75);
        assert_true(g - last <= 0.1 + 1e-9 && g <= 0.9 + 1e-9);
        if (i < 8) assert_true(g > last);
        last = g;
    }
    v.level = 0.8; /* what is left is let alone, and what is taken off stays off */
    for (int i = 0; i < 12; i++)
        assert_true(lti_drift_decide(&d, &v, 0.75) == last);
    v.level = 0.5; /* there is nothing to take off */
    d.shot.over = 0;
    for (int i = 0; i < 60; i++) {
        const double g = lti_drift_decide(&d, &v, 0.75);
        assert_true(last - g <= 0.1 + 1e-9);
        last = g;
    }
    assert_true(last == 0 && !d.shot.active);
    v.level = 3;
    d.shot.over = 2;
    lti_drift_decide(&d, &v, 0.75);
    v.settled = false; /* nothing to go back to: slowly, no step in the picture */
    last = d.gain;
    while (last > 0) {
        const double g = lti_drift_decide(&d, &v, 0.75);
        assert_true(g < last && last - g <= 0.1 + 1e-9);
        last = g;
    }
}

/* Kept frames weigh less in small steps, not less than half, and as much as before when that is no longer needed. */
static void kept_frames_weigh_less_for_a_while(void **state)
{
    (void)state;
    lti_drift d;
    lti_drift_begin(&d, frame_seconds, GROUP);
    lti_drift_weigh(&d);
    assert_true(d.past_weight == 1 && d.sink_weight == 1);
    for (int pass = 0; pass < 2; pass++) {
        d.phase = LTI_DRIFT_STEADY;
        d.gain = pass ? 0.3 : 0.9;
        d.still_shot = pass ? 4 : 0; /* stands still for three seconds */
        for (int i = 0; i < 10; i++) {
            const double past = d.past_weight, sink = d.sink_weight;
            lti_drift_weigh(&d);
            assert_true(fabs(d.past_weight - past) <= 0.1 + 1e-9 && d.past_weight >= 0.5);
            assert_true(fabs(d.sink_weight - sink) <= 0.1 + 1e-9 && d.sink_weight >= 0.5);
        }
        assert_true(d.past_weight == (pass ? 1 : 0.5) && d.sink_weight == (pass ? 0.5 : 1));
    }
    d.shot.stand_down = true;
    for (int i = 0; i < 10; i++)
        lti_drift_weigh(&d);
    assert_true(d.sink_weight == 1);
    d.past_weight = d.sink_weight = 0.5;
    lti_drift_prompt(&d, 2, false);
    assert_true(d.past_weight == 1 && d.sink_weight == 1);
}

/* What does not help is tried in another way once, and then given up for this shot; what was spent comes back with time. */
static void budgets(void **state)
{
    (void)state;
    lti_drift d;
    lti_drift_begin(&d, frame_seconds, GROUP);
    const lt_drift_vector v = {.settled = true, .level = 3};
    d.shot.over = 2;
    int escalated = 0, until = 0;
    for (int i = 0; i < 60; i++) {
        const double g = lti_drift_decide(&d, &v, 0.75);
        escalated += lti_drift_escalates(&d, true);
        if (g > 0) until = i;
    }
    assert_int_equal(escalated, 1);
    assert_true(d.shot.stand_down && until < 45);
    lti_drift_begin(&d, frame_seconds, GROUP);
    d.shot.over = 2;
    for (int i = 0; i < 12; i++) { /* nothing else to try, by segments */
        lti_drift_decide(&d, &v, 4.5);
        assert_false(lti_drift_escalates(&d, false));
    }
    assert_true(d.shot.stand_down);
    lti_drift_begin(&d, frame_seconds, GROUP);
    d.shot.over = 2;
    d.spent = 1.5;
    for (int i = 0; i < 10; i++)
        assert_true(lti_drift_decide(&d, &v, 0.75) == 0);
    for (int i = 0; i < 60; i++)
        until = lti_drift_decide(&d, &v, 0.75) > 0;
    assert_true(until);
}

static void words_of_light(void **state)
{
    (void)state;
    /* all that toybox/train/world.py says of it, and more */
    static const char *const changes[] = {"a red ball while the sky Darkens",
                                          "a red ball, it gets dark",
                                          "night falls and a ball",
                                          "the sun rises over a lake",
                                          "the sun comes up",
                                          "a ball, it gets light",
                                          "the room brightens",
                                          "the lamp dims",
                                          "a car explodes"};
    static const char *const states[] = {"a red ball bounces on green grass",
                                         "a ball before a dark blue wall",
                                         "a bright red ball",
                                         "an explorer in a dimly lit cave",
                                         "a ball in a sunset sky",
                                         "a ball at night, with a flashlight"};
    for (size_t i = 0; i < LT_COUNT(changes); i++)
        if (!lti_drift_words(changes[i])) fail_msg("'%s'", changes[i]);
    for (size_t i = 0; i < LT_COUNT(states); i++)
        if (lti_drift_words(states[i])) fail_msg("'%s'", states[i]);
}

static drawn_scene slow_dusk(double t)
{
    drawn_scene s = plain_scene(t);
    s.light = t > 4 ? -0.06 * (t - 4) : 0;
    return s;
}

/* A prompt that asks for it makes a slow change legitimate; without, it would be drift. */
static void a_prompt_may_ask_for_it(void **state)
{
    (void)state;
    static uint8_t rgb[SCENE_BYTES];
    for (int asked = 0; asked < 2; asked++) {
        bench b;
        lt_measure *m;
        lti_drift d;
        lt_drift_vector v = {0};
        int actions = 0;
        open_bench(&b);
        assert_int_equal(lt_measure_create(&m, b.dev, SCENE_W, SCENE_H), LT_OK);
        lti_drift_begin(&d, frame_seconds, GROUP);
        if (asked) lti_drift_prompt(&d, 0, true);
        for (double t = 0; t < 9; t += frame_seconds) {
            lt_picture p;
            lti_tiles tile;
            const drawn_scene s = slow_dusk(t);
            scene_draw(rgb, &s);
            assert_int_equal(lt_measure_frame(m, &p, rgb), LT_OK);
            lti_measure_tiles(m, tile);
            if (lti_drift_frame(&d, &v, &p, tile, 0)) actions += lti_drift_decide(&d, &v, 0.75) > 0;
        }
        assert_int_equal(actions > 0, !asked);
        lt_measure_destroy(&m);
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_drift_is_let_alone),
        cmocka_unit_test(drift_is_found_within_three_segments),
        cmocka_unit_test(what_follows_a_slow_change_is_compared_anew),
        cmocka_unit_test(other_faults_are_told),
        cmocka_unit_test(white_is_no_alarm_for_ever),
        cmocka_unit_test(a_cut_does_not_flicker),
        cmocka_unit_test(the_loop_holds),
        cmocka_unit_test(gain_has_a_dead_band_and_a_rate),
        cmocka_unit_test(kept_frames_weigh_less_for_a_while),
        cmocka_unit_test(budgets),
        cmocka_unit_test(words_of_light),
        cmocka_unit_test(a_prompt_may_ask_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
