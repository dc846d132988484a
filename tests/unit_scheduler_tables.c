/* unit_scheduler_tables.c: sigma grids, timesteps and lists against the values that the published code gives, and the
 * refusals of lt_scheduler_create. */
#include "scheduler/scheduler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static lt_ctx *ctx;

static void near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("got %.9g, expected %.9g within %g", got, want, within);
}

static lt_scheduler *make(lt_solver solver, lt_sigma_grid grid, int steps, double shift)
{
    lt_scheduler *s;
    lt_scheduler_options o = lt_scheduler_options_default();
    o.solver = solver;
    o.grid = grid;
    o.steps = steps;
    o.shift = shift;
    assert_int_equal(lt_scheduler_create(&s, ctx, &o), LT_OK);
    assert_int_equal(lt_scheduler_steps(s), steps);
    assert_true(lt_scheduler_sigma(s, steps) == 0);
    return s;
}

typedef struct times_case {
    lt_solver solver;
    lt_sigma_grid grid;
    int steps;
    double shift;
    int first[6], last[4];
} times_case;

static void timesteps_of_published_schedules(void **state)
{
    (void)state;
    static const times_case cases[] = {
        {LT_SOLVER_UNIPC, LT_GRID_AUTO, 50, 5, {999, 995, 991, 987, 982, 978}, {302, 241, 172, 92}},
        {LT_SOLVER_UNIPC,
         LT_GRID_AUTO,
         50,
         8,
         {999, 997, 994, 991, 989, 986},
         {409, 337, 249, 140}},
        {LT_SOLVER_UNIPC,
         LT_GRID_AUTO,
         40,
         12,
         {999, 997, 995, 993, 990, 988},
         {571, 492, 386, 235}},
        {LT_SOLVER_UNIPC,
         LT_GRID_AUTO,
         40,
         5,
         {999, 994, 989, 983, 978, 972},
         {356, 288, 208, 113}},
        {LT_SOLVER_UNIPC, LT_GRID_AUTO, 50, 3, {999, 992, 985}, {206, 160, 111, 57}},
        {LT_SOLVER_UNIPC,
         LT_GRID_DIFFUSERS_UNIPC,
         50,
         5,
         {999, 995, 991, 987, 982},
         {0, 244, 175, 96}},
        /* cut from float64: exact arithmetic would give 400 at the fourth step */
        {LT_SOLVER_DPMPP, LT_GRID_AUTO, 5, 1, {1000, 800, 600, 399, 199}, {0}},
    };
    for (size_t c = 0; c < LT_COUNT(cases); c++) {
        const times_case *k = &cases[c];
        lt_scheduler *s = make(k->solver, k->grid, k->steps, k->shift);
        for (int i = 0; i < 6; i++)
            if (k->first[i]) assert_true(lt_scheduler_timestep(s, i) == k->first[i]);
        for (int i = 0; i < 4; i++)
            if (k->last[i]) assert_true(lt_scheduler_timestep(s, k->steps - 4 + i) == k->last[i]);
        lt_scheduler_destroy(&s);
    }
}

static void sigmas_of_unipc_50_5(void **state)
{
    (void)state;
    lt_scheduler *s = make(LT_SOLVER_UNIPC, LT_GRID_AUTO, 50, 5);
    near((double)lt_scheduler_sigma(s, 0), 0.9998, 1e-6);
    near((double)lt_scheduler_sigma(s, 1), 0.995732, 1e-6);
    near((double)lt_scheduler_sigma(s, 2), 0.99153, 1e-5);
    near((double)lt_scheduler_sigma(s, 49), 0.092507, 1e-6);
    lt_scheduler_destroy(&s);
}

static void diffusers_euler_shifts_twice_and_keeps_fractions(void **state)
{
    (void)state;
    lt_scheduler *s = make(LT_SOLVER_EULER, LT_GRID_DIFFUSERS_EULER, 3, 3);
    const double lo = 3 * 0.001 / 1.002, mid = (1 + lo) / 2;
    near((double)lt_scheduler_sigma(s, 0), 1, 1e-6);
    near((double)lt_scheduler_sigma(s, 1), 3 * mid / (1 + 2 * mid), 1e-6);
    near((double)lt_scheduler_sigma(s, 2), 3 * lo / (1 + 2 * lo), 1e-6);
    near(lt_scheduler_timestep(s, 1), 3000 * mid / (1 + 2 * mid), 1e-3);
    lt_scheduler_destroy(&s);
    s = make(LT_SOLVER_EULER, LT_GRID_DIFFUSERS_UNIPC, 1,
             1); /* one step: its sigma must stay below 1 */
    assert_true(lt_scheduler_sigma(s, 0) < 1);
    lt_scheduler_destroy(&s);
}

static void few_step_lists(void **state)
{
    (void)state;
    static const struct {
        float list[5];
        int len;
        double shift;
        bool warp;
        double t[5], sigma[5];
    } cases[] = {
        {{1000, 800, 600, 400, 200},
         5,
         5,
         true,
         {1000, 952.3810, 882.3529, 769.2308, 555.5556},
         {1, .952381, .8823529, .7692308, .5555556}},
        {{700, 500, 400, 200},
         4,
         8,
         false,
         {700, 500, 400, 200},
         {.700232, .499719, .400260, .198347}},
        {{937, 833, 625}, 3, 5, false, {937, 833, 625}, {.936874, .832777, .625}},
        {{1000, 750, 500, 250},
         4,
         5,
         true,
         {1000, 937.5, 833.3333, 625},
         {1, .9375, .8333333, .625}},
        {{1000, 750, 500, 250},
         4,
         8,
         true,
         {1000, 960, 888.8889, 727.2727},
         {1, .96, .8888889, .7272727}},
        {{1000, 757, 522}, 3, 8, false, {1000, 757, 522}, {1, .756757, .521739}},
        {{500}, 1, 5, false, {500}, {.500600}}, /* the nearest entry, not t / 1000 */
    };
    for (size_t c = 0; c < LT_COUNT(cases); c++) {
        lt_scheduler *s;
        lt_scheduler_options o = lt_scheduler_options_default();
        o.solver = LT_SOLVER_RENOISE;
        o.shift = cases[c].shift;
        o.list = cases[c].list;
        o.list_len = cases[c].len;
        o.warp = cases[c].warp;
        assert_int_equal(lt_scheduler_create(&s, ctx, &o), LT_OK);
        for (int i = 0; i < cases[c].len; i++) {
            near(lt_scheduler_timestep(s, i), cases[c].t[i], 1e-4);
            near((double)lt_scheduler_sigma(s, i), cases[c].sigma[i], 1e-6);
        }
        lt_scheduler_destroy(&s);
    }
}

static void refused(lt_scheduler_options o, const char *names)
{
    lt_scheduler *s = (lt_scheduler *)1;
    assert_int_equal(lt_scheduler_create(&s, ctx, &o), LT_ERR_ARG);
    assert_null(s);
    assert_non_null(strstr(lt_error(ctx), names));
}

/* Whatever the shift, rounding does not lead out of what a model takes. */
static void times_stay_within_a_models(void **state)
{
    (void)state;
    static const double shifts[] = {1e-6, 0.01, 0.02, 0.3, 0.9, 1, 1.3, 3, 7.7, 33, 100, 1e6};
    for (int grid = LT_GRID_AUTO; grid <= LT_GRID_EULER; grid++) {
        for (size_t k = 0; k < sizeof shifts / sizeof *shifts; k++) {
            const lt_solver solver = grid == LT_GRID_WAN_DPMPP         ? LT_SOLVER_DPMPP
                                     : grid <= LT_GRID_DIFFUSERS_UNIPC ? LT_SOLVER_UNIPC
                                                                       : LT_SOLVER_EULER;
            lt_scheduler *s = make(solver, (lt_sigma_grid)grid, 7, shifts[k]);
            for (int i = 0; i < 7; i++) {
                assert_true(lt_scheduler_sigma(s, i) >= 0 && lt_scheduler_sigma(s, i) <= 1);
                assert_true(lt_scheduler_timestep(s, i) >= 0 &&
                            lt_scheduler_timestep(s, i) <= 1000);
            }
            lt_scheduler_destroy(&s);
        }
    }
}

static void bad_options_are_named(void **state)
{
    (void)state;
    const lt_scheduler_options d = lt_scheduler_options_default();
    lt_scheduler_options o = d;
    o.steps = 0;
    refused(o, "steps 0");
    o.steps = 10001;
    refused(o, "steps 10001");
    o = d;
    o.shift = -1;
    refused(o, "shift -1");
    o.shift = (double)NAN;
    refused(o, "shift nan");
    o.shift = 2e6;
    refused(o, "shift 2e+06: must be above 0, at most 1e6");
    o = d;
    o.solver = (lt_solver)9;
    refused(o, "solver 9");
    o = d;
    o.grid = (lt_sigma_grid)77;
    refused(o, "grid 77");
    o = d;
    o.solver = LT_SOLVER_RENOISE;
    refused(o, "step list");
    const float rising[] = {500, 750}, fraction[] = {500.5f}, outside[] = {1000.5f};
    o.list = rising;
    o.list_len = 2;
    refused(o, "value 1 is 750");
    o.list = fraction;
    o.list_len = 1;
    refused(o, "whole");
    o.list = outside;
    refused(o, "1000.5");
    o = d;
    o.list = rising;
    o.list_len = 2;
    refused(o, "takes no step list");
}

static void names(void **state)
{
    (void)state;
    lt_solver s;
    assert_true(lt_solver_parse("dpm++", &s));
    assert_int_equal(s, LT_SOLVER_DPMPP);
    assert_false(lt_solver_parse("DPM", &s));
    assert_string_equal(lt_solver_name(LT_SOLVER_RENOISE), "renoise");
    assert_string_equal(lt_solver_name((lt_solver)-1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timesteps_of_published_schedules),
        cmocka_unit_test(sigmas_of_unipc_50_5),
        cmocka_unit_test(diffusers_euler_shifts_twice_and_keeps_fractions),
        cmocka_unit_test(few_step_lists),
        cmocka_unit_test(times_stay_within_a_models),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(names),
    };
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lt_ctx_destroy(&ctx);
    return failed;
}
