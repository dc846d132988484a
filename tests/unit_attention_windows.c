/* unit_attention_windows.c: windows of sta by head: their file, lists by layer and head, the search that finds them; and the part of
 * topk that falls from step to step. */
#include "tests/sparse_fixture.h"

#include <unistd.h>

static const lt_grid grid = {5, 6, 7};
static const char tile[] = "tile=1x2x2";

static void reads_and_refuses(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "does not begin with"},
               {"window 1 1 3x3x3", "does not begin with"},
               {"windows 1", "does not begin with"},
               {"windows 0 1 3x3x3", "does not begin with"},
               {"windows 1 2000 3x3x3", "does not begin with"},
               {"windows 4096 1024 3x3x3", "the file ends before"},
               {"windows 1 2 3x3x3 # 3x3x3", "layer 0, head 1: ''"},
               {"windows 1 2 3x3x3 3x3x4", "layer 0, head 1: '3x3x4' is no window"},
               {"windows 2 1 3x3x3 -1x3x3", "layer 1, head 0: '-1x3x3'"},
               {"windows 1 1 3x3x3 5", "'5' behind 1 layers of 1 heads"}};
    const fixture *f = *state;
    lt_windows w;
    assert_int_equal(
        lt_windows_parse(&w, f->ctx, "# a\n windows 2 2#b\n1x3x5 7x9x11\r\n\t3x3x3 1x1x1\n#", "t"),
        LT_OK);
    assert_true(w.layers == 2 && w.heads == 2 && w.side[0][2] == 5 && w.side[1][0] == 7 &&
                w.side[3][1] == 1);
    lt_windows_destroy(&w);
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        assert_int_equal(lt_windows_parse(&w, f->ctx, bad[i].text, "t"), LT_ERR_FORMAT);
        if (!strstr(lt_error(f->ctx), bad[i].says)) fail_msg("%s", lt_error(f->ctx));
        assert_null(w.side);
    }
    assert_int_equal(lt_windows_read(&w, f->ctx, "/nowhere/w.txt"), LT_ERR_IO);
}

/* A file as text, and sta's spec that names it. */
static lt_sparse_options from_file(const char *path, const char *text)
{
    char spec[128];
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    snprintf(spec, sizeof spec, "sta:file=%s,warmup=0,%s", path, tile);
    return options(spec, grid);
}

static float *attend_with(lt_dev *dev, const char *window, const lt_sparse_call *c)
{
    char spec[128];
    lt_sparse *s;
    snprintf(spec, sizeof spec, "sta:window=%s,warmup=0,%s", window, tile);
    const lt_sparse_options o = options(spec, grid);
    assert_int_equal(lt_sparse_create(&s, dev, &o), LT_OK);
    float *x = attend(dev, s, c);
    lt_sparse_destroy(&s);
    return x;
}

/* Every head gives what it gives when its window is everybody's; layers one after the other, there and back. */
static void heads_have_their_own(void **state)
{
    static const char *const by_head[LAYERS][HEADS] = {{"1x3x3", "3x1x1", "5x1x3"},
                                                       {"3x3x1", "1x1x1", "9x9x9"}};
    static const int order[] = {0, 1, 1, 0};
    const fixture *f = *state;
    char path[] = "/tmp/lt-windows-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    data d = make_data(f->dev, lt_grid_tokens(grid), 11);
    lt_sparse *s;
    lt_sparse_options o = from_file(path, "windows 2 3\n1x3x3 3x1x1 5x1x3\n3x3x1 1x1x1 9x9x9\n");
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    for (size_t i = 0; i < LT_COUNT(order); i++) {
        d.call.layer = order[i];
        float *got = attend(f->dev, s, &d.call);
        for (int h = 0; h < HEADS; h++) {
            float *want = attend_with(f->dev, by_head[order[i]][h], &d.call);
            for (int64_t r = 0; r < d.call.lq; r++)
                assert_memory_equal(got + r * DIM + h * SIZE, want + r * DIM + h * SIZE,
                                    SIZE * sizeof *got);
            free(want);
        }
        free(got);
    }
    lt_sparse_destroy(&s);
    o = from_file(path, "windows 2 2\n1x3x3 3x1x1 5x1x3 3x3x1\n");
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_ERR_ARG);
    assert_non_null(
        strstr(lt_error(f->ctx), "windows of 2 layers of 2 heads, the model has 2 of 3"));
    unlink(path);
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_ERR_IO);
    free_data(f->dev, &d);
}

/* Keys on which every head looks along one axis: its queries and keys are the same for tokens that differ elsewhere. */
static void search_finds_the_axis(void **state)
{
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    const lt_sparse_options o = options("sta:window=3x3x3,warmup=0.5,tile=1x1x1", grid);
    lt_sparse_options os = o;
    lt_tiling t;
    lt_sparse *s;
    const lt_attn_plan *plan;
    lt_window_search *search;
    int32_t layers, heads;
    data d = make_data(f->dev, n, 5);
    assert_int_equal(lt_tiling_create(&t, f->ctx, grid, o.spec.tile), LT_OK);
    for (int64_t i = 0; i < n; i++) {
        const int64_t place[3] = {i / 42, i / 7 % 6, i % 7};
        for (int h = 0; h < HEADS; h++)
            for (int c = 0; c < SIZE; c++) {
                /* the same place on the two other axes, exactly: a sharp feature of them */
                const int64_t a = place[(h + 1) % 3], b = place[(h + 2) % 3];
                const int64_t w = c < 6 ? a : b;
                const float x = w < 6 ? 8 * (float)(w == c % 6) : 3.27f;
                d.q[i * DIM + h * SIZE + c] = d.k[i * DIM + h * SIZE + c] = x;
            }
    }
    const size_t bytes = (size_t)(n * DIM) * sizeof(float);
    assert_int_equal(lt_dev_upload(f->dev, d.call.q.data, d.q, bytes), LT_OK);
    assert_int_equal(lt_dev_upload(f->dev, d.call.k.data, d.k, bytes), LT_OK);
    assert_int_equal(lt_window_search_create(&search, f->ctx), LT_OK);
    os.spec.search = search;
    assert_int_equal(lt_sparse_create(&s, f->dev, &os), LT_OK);
    float *want = dense(f->dev, &d.call);
    lt_mat out = put(f->dev, want, n);
    for (int i = 0; i < 2 * LAYERS; i++) {
        d.call.layer = i % LAYERS;
        d.call.progress = i < LAYERS ? 0.2 : 0.6; /* in the warm-up nothing is compared */
        assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
        assert_null(plan);
        assert_int_equal(lt_sparse_finish(s, &d.call, out), LT_OK);
    }
    float *after = get(f->dev, out, n);
    assert_memory_equal(after, want, bytes);
    const lt_window_choice *c = lt_window_search_result(search, &layers, &heads);
    assert_true(layers == LAYERS && heads == HEADS);
    for (int i = 0; i < LAYERS * HEADS; i++) {
        const int axis = i % HEADS, side = axis == 0 ? 5 : axis == 1 ? 6 : 7;
        if (c[i].side[axis] < side || c[i].error > 0.01 || c[i].given < 0.02 ||
            c[i].part > 27.0 / 210 + 1e-9)
            fail_msg("head %d: %dx%dx%d, error %g, given %g", i, c[i].side[0], c[i].side[1],
                     c[i].side[2], c[i].error, c[i].given);
    }
    lt_sparse_stats st;
    lt_sparse_get_stats(s, &st);
    assert_true(st.sparse_calls == 0 && st.read == st.all);
    lt_sparse_destroy(&s);
    os.heads = HEADS - 1; /* another model */
    assert_int_equal(lt_sparse_create(&s, f->dev, &os), LT_ERR_ARG);
    os = options("radial", grid);
    os.spec.search = search;
    assert_int_equal(lt_sparse_create(&s, f->dev, &os), LT_ERR_ARG);
    lt_window_search_destroy(&search);
    lt_dev_free(f->dev, out.data);
    free(after);
    free(want);
    lt_tiling_destroy(&t);
    free_data(f->dev, &d);
}

static void reads_less_from_step_to_step(void **state)
{
    static const double progress[] = {0, 0.2, 0.6, 1}, part[] = {1, 0.8, 0.5, 0.2};
    const fixture *f = *state;
    data d = make_data(f->dev, lt_grid_tokens(grid), 3);
    lt_sparse *s;
    lt_sparse_stats before = {0}, after;
    const lt_sparse_options o = options("topk:keep=0.2,ramp=0.8,warmup=0.2,tile=1x1x1", grid);
    const lt_attn_plan *plan;
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    for (size_t i = 0; i < LT_COUNT(progress); i++) {
        d.call.progress = progress[i];
        assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
        lt_sparse_get_stats(s, &after);
        assert_true(fabs((after.read - before.read) / (after.all - before.all) - part[i]) < 1e-9);
        before = after;
    }
    lt_sparse_destroy(&s);
    lt_sparse_spec spec;
    assert_int_equal(lt_sparse_parse(&spec, f->ctx, "topk:keep=0.3,ramp=0.2"), LT_ERR_ARG);
    assert_int_equal(lt_sparse_parse(&spec, f->ctx, "topk:p=0.3,ramp=0.5"), LT_ERR_ARG);
    free_data(f->dev, &d);
}

/* A dense call of a planner with stand-ins is left as it is. */
static void warm_up_has_no_stand_ins(void **state)
{
    const fixture *f = *state;
    data d = make_data(f->dev, lt_grid_tokens(grid), 3);
    lt_sparse *s;
    const lt_sparse_options o = options("topk:keep=0.2,centroid,warmup=0.5", grid);
    const lt_attn_plan *plan;
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    free(attend(f->dev, s, &d.call)); /* what could be added is there */
    d.call.progress = 0;
    assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
    assert_null(plan);
    float *want = dense(f->dev, &d.call);
    lt_mat out = put(f->dev, want, d.call.lq);
    assert_int_equal(lt_sparse_finish(s, &d.call, out), LT_OK);
    float *got = get(f->dev, out, d.call.lq);
    assert_memory_equal(got, want, (size_t)(d.call.lq * DIM) * sizeof *got);
    lt_dev_free(f->dev, out.data);
    free(got);
    free(want);
    lt_sparse_destroy(&s);
    free_data(f->dev, &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_and_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(heads_have_their_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(search_finds_the_axis, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_less_from_step_to_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(warm_up_has_no_stand_ins, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
