/* unit_scheduler_steps.c: the solvers on an equation whose solution is known, their order of convergence, their protocol
 * (steps in order, noise when needed), and that a step allocates nothing. */
#include "scheduler/scheduler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N = 5 };
static lt_ctx *ctx;
static lt_dev *dev;

static void near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("got %.9g, expected %.9g within %g", got, want, within);
}

/* Data x0 ~ N(mu, s^2), noise ~ N(0, 1): E[noise - x0 | x] in closed form; the flow maps normals to normals. */
static const double mu = 0.7, sd = 0.4;
static double velocity(double x, double sigma)
{
    const double a = 1 - sigma, var = a * a * sd * sd + sigma * sigma;
    const double d = (x - a * mu) / var;
    return sigma * d - (mu + a * sd * sd * d);
}
static double exact_end(double x, double sigma)
{
    const double a = 1 - sigma;
    return mu + sd * (x - a * mu) / sqrt(a * a * sd * sd + sigma * sigma);
}

static double error_of(lt_solver solver, int steps)
{
    lt_scheduler *s;
    lt_scheduler_options o = lt_scheduler_options_default();
    o.solver = solver;
    o.grid = LT_GRID_WAN_UNIPC;
    o.steps = steps;
    o.shift = 1;
    assert_int_equal(lt_scheduler_create(&s, ctx, &o), LT_OK);
    assert_int_equal(lt_scheduler_bind(s, dev, N), LT_OK);
    float host[N] = {-2, -0.5f, 0, 1, 2.5f}, v[N], *x, *dv;
    double want[N];
    for (int j = 0; j < N; j++)
        want[j] = exact_end((double)host[j], (double)lt_scheduler_sigma(s, 0));
    assert_int_equal(lt_dev_alloc(dev, (void **)&x, sizeof host, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_alloc(dev, (void **)&dv, sizeof host, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_upload(dev, x, host, sizeof host), LT_OK);
    lt_mem_stats before, after;
    lt_dev_mem_stats(dev, &before);
    for (int i = 0; i < steps; i++) {
        for (int j = 0; j < N; j++)
            v[j] = (float)velocity((double)host[j], (double)lt_scheduler_sigma(s, i));
        assert_int_equal(lt_dev_upload(dev, dv, v, sizeof v), LT_OK);
        assert_int_equal(lt_scheduler_step(s, i, x, dv, NULL), LT_OK);
        assert_int_equal(lt_dev_download(dev, host, x, sizeof host), LT_OK);
    }
    lt_dev_mem_stats(dev, &after);
    assert_int_equal(before.alloc_calls, after.alloc_calls);
    double worst = 0;
    for (int j = 0; j < N; j++)
        worst = fmax(worst, fabs((double)host[j] - want[j]));
    lt_dev_free(dev, x);
    lt_dev_free(dev, dv);
    lt_scheduler_destroy(&s);
    return worst;
}

static void solvers_converge_at_their_order(void **state)
{
    (void)state;
    const double e160 = error_of(LT_SOLVER_EULER, 160), e640 = error_of(LT_SOLVER_EULER, 640);
    const double u160 = error_of(LT_SOLVER_UNIPC, 160), u640 = error_of(LT_SOLVER_UNIPC, 640);
    const double d160 = error_of(LT_SOLVER_DPMPP, 160), d640 = error_of(LT_SOLVER_DPMPP, 640);
    print_message("error at 160, 640 steps: euler %g %g, unipc %g %g, dpm++ %g %g\n", e160, e640,
                  u160, u640, d160, d640);
    assert_true(e160 / e640 > 3.6 && e160 / e640 < 4.4);
    assert_true(u160 / u640 > 8 && u160 < e160 / 10);
    assert_true(d160 / d640 > 8 && d160 < e160 / 10);
}

static void a_step_out_of_order_is_refused(void **state)
{
    (void)state;
    lt_scheduler *s;
    lt_scheduler_options o = lt_scheduler_options_default();
    o.steps = 3;
    assert_int_equal(lt_scheduler_create(&s, ctx, &o), LT_OK);
    float *x;
    assert_int_equal(lt_dev_alloc(dev, (void **)&x, 2 * N * sizeof *x, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_zero(dev, x, 2 * N * sizeof *x), LT_OK);
    assert_int_equal(lt_scheduler_step(s, 0, x, x + N, NULL), LT_ERR_ARG); /* not bound */
    assert_int_equal(lt_scheduler_bind(s, dev, N), LT_OK);
    assert_int_equal(lt_scheduler_step(s, 1, x, x + N, NULL), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(ctx), "step 0 of 3 is next"));
    assert_int_equal(lt_scheduler_step(s, 0, x, x + N, x), LT_ERR_ARG); /* takes no noise */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(lt_scheduler_step(s, i, x, x + N, NULL), LT_OK);
        assert_int_equal(lt_scheduler_step(s, 3, x, x + N, NULL), LT_ERR_ARG);
        lt_scheduler_reset(s);
    }
    lt_dev_free(dev, x);
    lt_scheduler_destroy(&s);
}

static void renoise_needs_noise_until_the_last_step(void **state)
{
    (void)state;
    lt_scheduler *s;
    const float list[] = {1000, 500};
    lt_scheduler_options o = lt_scheduler_options_default();
    o.solver = LT_SOLVER_RENOISE;
    o.list = list;
    o.list_len = 2;
    assert_int_equal(lt_scheduler_create(&s, ctx, &o), LT_OK);
    assert_int_equal(lt_scheduler_bind(s, dev, N), LT_OK);
    const float host[3 * N] = {1, 2, 3, 4, 5, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2};
    float *x, got[N];
    assert_int_equal(lt_dev_alloc(dev, (void **)&x, sizeof host, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_upload(dev, x, host, sizeof host), LT_OK);
    assert_int_equal(lt_scheduler_step(s, 0, x, x + N, NULL), LT_ERR_ARG);
    assert_int_equal(lt_scheduler_step(s, 0, x, x + N, x + 2 * N), LT_OK);
    assert_int_equal(lt_dev_download(dev, got, x, sizeof got), LT_OK);
    const double next = 5.0 / 6; /* 500 on the grid of shift 5 */
    for (int j = 0; j < N; j++)
        near((double)got[j], (1 - next) * ((double)host[j] - 1) + next * 2, 1e-5);
    assert_int_equal(lt_scheduler_step(s, 1, x, x + N, x + 2 * N), LT_ERR_ARG);
    assert_int_equal(lt_scheduler_step(s, 1, x, x + N, NULL), LT_OK);
    lt_dev_free(dev, x);
    lt_scheduler_destroy(&s);
}

static lt_status open_device(void)
{
    const lt_dev_options o = {.device = "guard", .threads = 1};
    LT_TRY(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR));
    return lt_dev_create(&dev, ctx, &o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(solvers_converge_at_their_order),
        cmocka_unit_test(a_step_out_of_order_is_refused),
        cmocka_unit_test(renoise_needs_noise_until_the_last_step),
    };
    if (open_device() < 0) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
    return failed;
}
