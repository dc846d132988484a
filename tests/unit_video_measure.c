/* unit_video_measure.c: measures of pictures whose values are known. */
#include "kernels/internal.h"
#include "tests/drift_scene.h"
#include "video/drift.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { W = 64, H = 48, BYTES = W * H * 3 };

typedef struct world {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_measure *m;
} world;

static void open_world(world *w, const char *device)
{
    lt_dev_options d = lt_dev_options_default();
    d.device = device;
    d.threads = 2;
    assert_int_equal(lt_ctx_create(&w->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&w->dev, w->ctx, &d), LT_OK);
    assert_int_equal(lt_measure_create(&w->m, w->dev, W, H), LT_OK);
}

static void close_world(world *w)
{
    lt_mem_stats m;
    lt_measure_destroy(&w->m);
    lt_dev_mem_stats(w->dev, &m);
    assert_int_equal(m.live_total, m.live_bytes[LT_TAG_SCRATCH]);
    lt_dev_destroy(&w->dev);
    lt_ctx_destroy(&w->ctx);
}

static void fill(uint8_t *rgb, int r, int g, int b)
{
    for (int i = 0; i < W * H; i++) {
        rgb[3 * i] = (uint8_t)r;
        rgb[3 * i + 1] = (uint8_t)g;
        rgb[3 * i + 2] = (uint8_t)b;
    }
}

static lt_picture measure(const world *w, const uint8_t *rgb)
{
    lt_picture p;
    assert_int_equal(lt_measure_frame(w->m, &p, rgb), LT_OK);
    return p;
}

static void near(double got, double want, double by)
{
    if (!(fabs(got - want) <= by)) fail_msg("%.9g, wanted %.9g within %g", got, want, by);
}

/* CIELAB values: Lindbloom's calculator. */
static void flat_colours(void **state)
{
    (void)state;
    static const struct {
        int rgb[3];
        double exposure, lab[3];
    } cases[] = {{{128, 128, 128}, -2.2118, {53.585, 0, 0}},
                 {{255, 0, 0}, -2.2339, {53.241, 80.092, 67.203}},
                 {{0, 0, 255}, -3.7919, {32.297, 79.188, -107.860}},
                 {{255, 255, 255}, 0, {100, 0, 0}}};
    uint8_t rgb[BYTES];
    world w;
    open_world(&w, "guard");
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        fill(rgb, cases[i].rgb[0], cases[i].rgb[1], cases[i].rgb[2]);
        const lt_picture p = measure(&w, rgb);
        near(p.exposure, cases[i].exposure, 0.002);
        near(p.lightness, cases[i].lab[0], 0.05);
        near(p.a, cases[i].lab[1], 0.1);
        near(p.b, cases[i].lab[2], 0.1);
        near(p.saturation, hypot(cases[i].lab[1], cases[i].lab[2]), 0.1);
        near(p.contrast, 0, 1e-5);
        near(p.range, 0, 1e-9);
        near(p.sharpness, 0, 1e-9);
        assert_false(p.black);
        assert_int_equal(p.blown, i == 3);
    }
    fill(rgb, 0, 0, 0);
    lt_picture p = measure(&w, rgb);
    near(p.exposure, -12, 1e-9);
    assert_true(p.black);
    near(p.crushed, 1, 1e-9);
    fill(rgb, 2, 2, 2);
    rgb[0] = rgb[1] = rgb[2] = 255;
    p = measure(&w, rgb);
    assert_false(p.black); /* contrast .018 */
    close_world(&w);
}

static void stripes(uint8_t *rgb, int period)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            memset(rgb + 3 * (y * W + x), x % period < period / 2 ? 200 : 50, 3);
}

static void contrast_sharpness_motion(void **state)
{
    (void)state;
    uint8_t rgb[BYTES];
    double last = 1;
    world w;
    open_world(&w, "cpu");
    for (int period = 4; period <= 16; period *= 2) {
        stripes(rgb, period);
        const lt_picture p = measure(&w, rgb);
        near(p.contrast, 75.0 / 255, 1e-4);
        near(p.range, 150.0 / 255, 1e-9);
        assert_true(p.sharpness < last + 1e-3);
        last = p.sharpness;
        if (period == 4) near(p.sharpness, 1, 0.02); /* all of it at a quarter of a cycle */
    }
    assert_true(last < 0.5);
    lt_measure_destroy(&w.m);
    assert_int_equal(lt_measure_create(&w.m, w.dev, W, H), LT_OK);
    fill(rgb, 100, 100, 100);
    near(measure(&w, rgb).motion, 0, 1e-9); /* the first */
    assert_int_equal(measure(&w, rgb).still, 1);
    assert_int_equal(measure(&w, rgb).still, 2);
    fill(rgb, 151, 151, 151);
    const lt_picture p = measure(&w, rgb);
    near(p.motion, 0.2, 1e-5);
    assert_int_equal(p.still, 0);
    close_world(&w);
}

static void any_size(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1}, {1, 300}, {300, 1}, {7, 5}, {130, 131}, {520, 264}};
    world w;
    open_world(&w, "cpu");
    for (size_t i = 0; i < LT_COUNT(sizes); i++) {
        const size_t bytes = (size_t)sizes[i][0] * (size_t)sizes[i][1] * 3;
        uint8_t *rgb = malloc(bytes); /* just so much: the sanitizer looks */
        lt_measure *m;
        lt_picture p;
        lti_tiles tile;
        memset(rgb, 77, bytes);
        assert_int_equal(lt_measure_create(&m, w.dev, sizes[i][0], sizes[i][1]), LT_OK);
        assert_int_equal(lt_measure_frame(m, &p, rgb), LT_OK);
        lti_measure_tiles(m, tile);
        for (int t = 0; t < LTI_TILES; t++)
            near((double)tile[t][0], p.lightness, 1e-3);
        lt_measure_destroy(&m);
        free(rgb);
    }
    lt_measure *m;
    assert_int_equal(lt_measure_create(&m, w.dev, 0, 5), LT_ERR_ARG);
    assert_null(m);
    assert_int_equal(lt_measure_create(&m, w.dev, 5, 16385), LT_ERR_ARG);
    for (int64_t nth = 1; nth <= 1; nth++) {
        lti_dev_fail_alloc(w.dev, nth);
        assert_int_equal(lt_measure_create(&m, w.dev, 5, 5), LT_ERR_MEM);
        assert_null(m);
    }
    close_world(&w);
}

static void flicker(void **state)
{
    (void)state;
    double y[240];
    for (int i = 0; i < 240; i++) /* a slow ramp, and a pulse of a twelfth */
        y[i] = 0.3 + 0.001 * i + (i % 12 == 0 ? 0.12 : 0);
    /* one of twelve is 0.11 above the mean of its period, the others 0.01 below: rms 0.0332 */
    near(lt_flicker(y, 240, 12), 0.0332, 5e-4);
    assert_true(lt_flicker(y, 240, 11) < 0.006);
    near(lt_flicker(y, 35, 12), 0, 0);
    near(lt_flicker(y, 240, 1), 0, 0);
    for (int i = 0; i < 240; i++)
        y[i] = 0.3 + 0.002 * i;
    near(lt_flicker(y, 240, 12), 0, 1e-9);
}

static void two_renditions(void **state)
{
    (void)state;
    static uint8_t a[SCENE_BYTES], b[SCENE_BYTES];
    world w;
    lt_renditions r;
    open_world(&w, "cpu");
    drawn_scene s = plain_scene(0);
    scene_draw(a, &s);
    assert_int_equal(lt_measure_renditions(&r, w.dev, a, a, SCENE_W, SCENE_H), LT_OK);
    for (int c = 0; c < 3; c++) {
        near(r.gain[c], 1, 1e-9);
        near(r.offset[c], 0, 1e-9);
    }
    near(r.exposure, 0, 0);
    near(r.difference, 0, 0);
    for (int i = 0; i < SCENE_BYTES; i++) /* contrast and light of one channel */
        b[i] = (uint8_t)(i % 3 == 1 ? a[i] * 0.8 + 20.5 : a[i]);
    assert_int_equal(lt_measure_renditions(&r, w.dev, a, b, SCENE_W, SCENE_H), LT_OK);
    near(r.gain[0], 1, 1e-9);
    near(r.gain[1], 0.8, 0.005);
    near(r.offset[1], 20.0 / 255, 0.003);
    assert_true(r.colour > 1);
    s.light = 0.25;
    scene_draw(b, &s);
    assert_int_equal(lt_measure_renditions(&r, w.dev, a, b, SCENE_W, SCENE_H), LT_OK);
    near(r.exposure, 0.25, 0.01);
    s = plain_scene(0);
    s.chroma = 1.3;
    scene_draw(b, &s);
    assert_int_equal(lt_measure_renditions(&r, w.dev, a, b, SCENE_W, SCENE_H), LT_OK);
    assert_true(r.saturation > 3);
    s = plain_scene(0);
    s.grain = 0.2;
    scene_draw(b, &s);
    assert_int_equal(lt_measure_renditions(&r, w.dev, a, b, SCENE_W, SCENE_H), LT_OK);
    assert_true(r.sharpness < -0.05);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_colours),   cmocka_unit_test(contrast_sharpness_motion),
        cmocka_unit_test(any_size),       cmocka_unit_test(flicker),
        cmocka_unit_test(two_renditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
