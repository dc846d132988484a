/* unit_examples_metrics.c: figures by which videos are compared, where they are known. */
#include "examples/bench.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { W = 24, H = 20, FRAMES = 4, BYTES = W * H * 3 };

static void fill(uint8_t *v, unsigned seed)
{
    for (int i = 0; i < FRAMES * BYTES; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (uint8_t)(seed >> 24);
    }
}

static void psnr_is_that_of_all_numbers(void **state)
{
    static uint8_t a[FRAMES * BYTES], b[FRAMES * BYTES];
    (void)state;
    fill(a, 1);
    memcpy(b, a, sizeof a);
    assert_true(lti_psnr(a, b, sizeof a) == LTI_PSNR_SAME);
    for (size_t i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(a[i] < 128 ? a[i] + 5 : a[i] - 5);
    assert_true(fabs(lti_psnr(a, b, sizeof a) - 20 * log10(255.0 / 5)) < 1e-9);
    memcpy(b, a, sizeof a); /* half of it 10 off: the mean error counts, not the mean of figures */
    for (size_t i = 0; i < sizeof b / 2; i++)
        b[i] = (uint8_t)(a[i] < 128 ? a[i] + 10 : a[i] - 10);
    assert_true(fabs(lti_psnr(a, b, sizeof a) - 10 * log10(255.0 * 255.0 / 50)) < 1e-9);
}

static void ssim_knows_structure(void **state)
{
    static uint8_t a[FRAMES * BYTES], b[FRAMES * BYTES];
    double same, other, flat;
    (void)state;
    fill(a, 1);
    fill(b, 2);
    assert_true(lti_ssim(&same, a, a, FRAMES, H, W));
    assert_true(fabs(same - 1) < 1e-12);
    assert_true(lti_ssim(&other, a, b, FRAMES, H, W));
    assert_true(other < 0.2);
    memset(a, 100, sizeof a); /* flat pictures: the term of brightness alone */
    memset(b, 120, sizeof b);
    assert_true(lti_ssim(&flat, a, b, FRAMES, H, W));
    assert_true(fabs(flat - (2 * 100 * 120 + 6.5025) / (100 * 100 + 120 * 120 + 6.5025)) < 1e-9);
    assert_false(lti_ssim(&flat, a, b, FRAMES, 10, W));
}

static void structure_is_edges_and_colours(void **state)
{
    enum { SIDE = 48 };
    static uint8_t a[2 * SIDE * SIDE * 3], b[sizeof a];
    double same, grey, moved, blurred;
    (void)state;
    for (size_t i = 0; i < sizeof a; i++) /* stripes */
        a[i] = i / 3 / 6 % 2 ? 200 : 40;
    assert_true(lti_structure(&same, a, a, 2, SIDE, SIDE));
    assert_true(same == 0);
    for (size_t i = 0; i < sizeof a; i++) /* 5 levels lighter: edges and colours as they were */
        b[i] = (uint8_t)(a[i] + 5);
    assert_true(lti_structure(&grey, b, a, 2, SIDE, SIDE));
    for (size_t i = 0; i < sizeof a; i++)
        b[i] = i / 3 % SIDE < 3 ? a[i] : a[i - 9];
    assert_true(lti_structure(&moved, b, a, 2, SIDE, SIDE));
    memset(b, 120, sizeof b);
    assert_true(lti_structure(&blurred, b, a, 2, SIDE, SIDE));
    if (!(grey < 1e-6 && moved > 0.1 && blurred > 0.3)) fail_msg("%g %g %g", grey, moved, blurred);
    for (size_t i = 0; i < sizeof a; i++) /* of another colour */
        b[i] = i % 3 ? a[i] : 120;
    assert_true(lti_structure(&moved, b, a, 2, SIDE, SIDE) && moved > 0.05);
    assert_false(lti_structure(&moved, a, a, 2, 23, SIDE));
}

static void flicker_is_distance_from_the_neighbours(void **state)
{
    static uint8_t v[FRAMES * BYTES];
    (void)state;
    for (int f = 0; f < FRAMES; f++) /* brightening evenly is no flicker */
        memset(v + f * BYTES, 10 * f, BYTES);
    assert_true(lti_flicker(v, FRAMES, BYTES) == 0);
    for (int f = 0; f < FRAMES; f++)
        memset(v + f * BYTES, f % 2 ? 30 : 0, BYTES);
    assert_true(lti_flicker(v, FRAMES, BYTES) == 30);
    assert_true(lti_flicker(v, 2, BYTES) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(psnr_is_that_of_all_numbers),
        cmocka_unit_test(ssim_knows_structure),
        cmocka_unit_test(structure_is_edges_and_colours),
        cmocka_unit_test(flicker_is_distance_from_the_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
