/* unit_examples_ways.c: what bench drift cannot draw is told before anything is drawn: before the folder of its pictures is made. */
#include "examples/bench.h"
#include "tests/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct world {
    char folder[128], pictures[160];
    lt_ctx *ctx;
} world;

static int make_world(void **state)
{
    world *w = *state = calloc(1, sizeof *w);
    const char *base = getenv("TMPDIR");
    assert_non_null(w);
    snprintf(w->folder, sizeof w->folder, "%.90s/longtake-test-XXXXXX", base ? base : P_tmpdir);
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->pictures, sizeof w->pictures, "%s/pictures", w->folder);
    assert_true(tiny_model_write(w->folder, 1));
    assert_int_equal(lt_ctx_create(&w->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    return 0;
}

static int end_world(void **state)
{
    world *w = *state;
    lt_ctx_destroy(&w->ctx);
    tiny_model_remove(w->folder);
    free(w);
    return 0;
}

static void refused(const world *w, const char *methods, const char *scenes, const char *cache,
                    const char *message)
{
    lti_settings set = lti_settings_default();
    set.model = w->folder;
    set.threads = 1;
    set.seconds = 15;
    set.methods = methods;
    set.scenes = scenes;
    set.cache = cache;
    set.out_dir = w->pictures;
    assert_int_equal(lti_bench_drift(w->ctx, &set, NULL), LT_ERR_ARG);
    if (!strstr(lt_error(w->ctx), message))
        fail_msg("\"%s\" does not say \"%s\"", lt_error(w->ctx), message);
    assert_int_not_equal(access(w->pictures, F_OK), 0);
}

static void a_wrong_way_is_told_first(void **state)
{
    const world *w = *state;
    refused(w, "extend clip", NULL, NULL, "'clip' is not ar or extend");
    refused(w, "extend extend:overlap=x", NULL, NULL, "overlap=x");
    refused(w, "extend ar", NULL, "window=x", "window=x");
    refused(w, "extend", "switch", NULL, "no video is asked for");
    refused(w, " ", NULL, NULL, "no video is asked for");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_wrong_way_is_told_first)};
    return cmocka_run_group_tests(tests, make_world, end_world);
}
