/* unit_attention_refresh.c: steps that read all keys, and what the steps between them take from there. */
#include "tests/sparse_fixture.h"

static const lt_grid grid = {5, 6, 7};
static const char *const texts[] = {"topk:keep=0.3,tile=2x2x2,refresh=3",
                                    "sta:window=1x3x1,tile=2x2x2,refresh=3",
                                    "radial:layers=0,base=3,refresh=3"};

/* Output of a call, dense or not; which it was. */
static float *call(lt_dev *dev, lt_sparse *s, const lt_sparse_call *c, bool *whole)
{
    const lt_attn_plan *plan;
    lt_plan *all;
    assert_int_equal(lt_plan_dense(&all, dev, c->lq, c->lk, HEADS), LT_OK);
    if (lt_sparse_plan(s, &plan, c) < 0) fail_msg("%s", lt_error(lt_dev_ctx(dev)));
    lt_mat out = put(dev, NULL, c->lq);
    *whole = !plan;
    lt_attention_args a = {.out = out,
                           .q = c->q,
                           .k = c->k,
                           .v = c->v,
                           .lq = c->lq,
                           .lk = c->lk,
                           .heads = HEADS,
                           .head_dim = SIZE,
                           .scale = (float)(1 / sqrt(SIZE)),
                           .plan = plan ? plan : lt_plan_kernel(all)};
    assert_int_equal(lt_attention(dev, &a), LT_OK);
    lt_sparse_part second;
    assert_int_equal(lt_sparse_second(s, &second), *whole);
    a.plan = second.plan;
    a.out = second.out;
    if (*whole) assert_int_equal(lt_attention(dev, &a), LT_OK);
    assert_int_equal(lt_sparse_finish(s, c, out), LT_OK);
    float *x = get(dev, out, c->lq);
    lt_dev_free(dev, out.data);
    lt_plan_destroy(&all);
    return x;
}

/* The same queries, keys and values again and again: every step has the output of all keys, each layer its own. */
static void nothing_changes(void **state)
{
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    data d[LAYERS] = {make_data(f->dev, n, 3), make_data(f->dev, n, 7)};
    float *want[LAYERS] = {dense(f->dev, &d[0].call), dense(f->dev, &d[1].call)};
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        lt_sparse *s;
        lt_sparse_stats st;
        const lt_sparse_options o = options(texts[i], grid);
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
        for (int step = 0; step < 7; step++) /* the last two begin again */
            for (int32_t k = 0; k < LAYERS; k++) {
                bool whole;
                d[k].call.layer = k;
                d[k].call.progress = step < 5 ? 0.5 + 0.1 * step : 0.45 + 0.1 * (step - 5);
                float *got = call(f->dev, s, &d[k].call, &whole);
                assert_int_equal(whole, step == 0 || step == 3 || step == 5);
                assert_true(far_apart(got, want[k], n * DIM) < 1e-6);
                free(got);
            }
        lt_sparse_get_stats(s, &st);
        const double each = st.sparse_all / 14, list = (st.sparse_read - 6 * each) / 14;
        assert_true(st.sparse_calls == 14 && list > 0.02 * each && list < 0.9 * each);
        assert_true(st.read == st.sparse_read && each == (double)(n * n));
        if (i == 0) assert_int_equal(st.plans, 3 * LAYERS); /* the list is kept between them */
        lt_sparse_destroy(&s);
    }
    for (int k = 0; k < LAYERS; k++) {
        free(want[k]);
        free_data(f->dev, &d[k]);
    }
}

/* Other values: what the list gives now, and what it left out then. */
static void adds_what_was_left_out(void **state)
{
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        data then = make_data(f->dev, n, 3), now = make_data(f->dev, n, 11);
        lt_sparse *s, *plain;
        bool whole;
        lt_sparse_options o = options(texts[i], grid);
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
        o.spec.refresh = 0;
        assert_int_equal(lt_sparse_create(&plain, f->dev, &o), LT_OK);
        lt_dev_free(f->dev, now.call.q.data);
        now.call.q = then.call.q; /* the same boxes are chosen */
        lt_mat k = now.call.k;
        now.call.k = then.call.k;
        then.call.progress = 0.5;
        now.call.progress = 0.6;
        float *all = call(f->dev, s, &then.call, &whole), *got = call(f->dev, s, &now.call, &whole);
        float *part[2] = {attend(f->dev, plain, &then.call), attend(f->dev, plain, &now.call)};
        assert_false(whole);
        for (int64_t j = 0; j < n * DIM; j++)
            all[j] += part[1][j] - part[0][j];
        assert_true(far_apart(got, all, n * DIM) < 1e-6);
        assert_true(far_apart(got, part[1], n * DIM) > 0.05);
        free(part[1]);
        free(part[0]);
        free(got);
        free(all);
        now.call.k = k;
        now.call.q = put(f->dev, NULL, 1);
        lt_sparse_destroy(&plain);
        lt_sparse_destroy(&s);
        free_data(f->dev, &then);
        free_data(f->dev, &now);
    }
}

static void wrong_texts(void **state)
{
    const fixture *f = *state;
    lt_sparse_spec spec;
    assert_int_equal(lt_sparse_parse(&spec, f->ctx, "topk:refresh=1"), LT_ERR_ARG);
    assert_int_equal(lt_sparse_parse(&spec, f->ctx, "svg:refresh=4"), LT_ERR_ARG);
    assert_int_equal(lt_sparse_parse(&spec, f->ctx, "topk:refresh=4,centroid"), LT_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(adds_what_was_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_texts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
