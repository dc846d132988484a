/* unit_attention_cache.c: the cache of autoregressive generation: policies as text, which frames are seen and where, bytes. */
#include "tests/cache_fixture.h"

/* ---- policies ---- */

static void reads_policies(void **state)
{
    const fixture *f = *state;
    lt_cache_policy p;
    assert_int_equal(lt_cache_policy_parse(&p, f->ctx, NULL), LT_OK);
    assert_int_equal(p.window, 21);
    assert_int_equal(lt_cache_policy_parse(&p, f->ctx, "infinity-rope"), LT_OK);
    assert_true(p.block == 3 && p.window == 6 && p.sink == 1 && p.positions == LT_CACHE_RELATIVE);
    assert_int_equal(lt_cache_policy_parse(&p, f->ctx,
                                           "longlive:window=9,block=2,sink=1,positions=relative,"
                                           "sink-positions=follow,bias=0.3,context-time=14.5"),
                     LT_OK);
    assert_true(p.block == 2 && p.window == 9 && p.sink == 1 && p.sink_follows);
    assert_true(p.positions == LT_CACHE_RELATIVE && p.bias == 0.3 && p.context_time == 14.5);
    assert_true(p.first == 0 && p.on_prompt == LT_CACHE_RECACHE);
    assert_int_equal(lt_cache_policy_parse(&p, f->ctx, "infinity-rope:first=1"), LT_OK);
    assert_true(p.first == 1 && p.on_prompt == LT_CACHE_FLUSH);
    assert_int_equal(lt_cache_policy_parse(&p, f->ctx, "self-forcing:switch=cut"), LT_OK);
    assert_true(p.on_prompt == LT_CACHE_CUT);
    assert_int_equal(lt_cache_policy_parse(&p, f->ctx, "infinity-rope:switch=keep"), LT_OK);
    assert_true(p.on_prompt == LT_CACHE_KEEP);
}

static void refuses_policies(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"shortlive", "no preset \"shortlive\""},
        {"longlive:", "\"\" is not a key with a value"},
        {"longlive:window", "\"window\" is not"},
        {"longlive:window=", "\"window=\" is not"},
        {"longlive:window=9.5", "\"window=9.5\" is not"},
        {"longlive:window=9,,", "\"\" is not"},
        {"longlive:win=9", "\"win=9\" is not"},
        {"longlive:positions=both", "\"positions=both\" is not"},
        {"longlive:sink-positions=1", "\"sink-positions=1\" is not"},
        {"longlive:window=5", "a window of 5 frames: not in 6..4096"},
        {"longlive:window=5000", "\"window=5000\" is not"},
        {"longlive:block=0", "blocks of 0 frames"},
        {"longlive:sink=-1", "a sink of -1 frames"},
        {"longlive:bias=0", "bias 0: above 0"},
        {"longlive:bias=nan", "\"bias=nan\" is not"},
        {"longlive:context-time=1001", "context-time 1001"},
        {"longlive:first=4", "a first block of 4 frames: not in 0..3"},
        {"longlive:first=2,first-of=1", "out of one of 1 frames: neither 0 nor in 2..12"},
        {"longlive:first-of=13", "out of one of 13 frames: neither 0 nor in 0..12"},
        {"longlive:switch=off", "\"switch=off\" is not"},
        {"self-forcing:window=3,switch=cut", "a window of 3 frames is the block"},
    };
    const fixture *f = *state;
    lt_cache_policy p;
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        assert_int_equal(lt_cache_policy_parse(&p, f->ctx, bad[i].text), LT_ERR_ARG);
        if (!strstr(lt_error(f->ctx), bad[i].says)) fail_msg("%s", lt_error(f->ctx));
    }
}

/* ---- which frames ---- */

/* One block, kept: frames it pushed out, frames rolled and where it stands in the list, as the spec's traces count. */
static void check_block(lt_cache *c, int32_t frames, int32_t evicted, int32_t begin)
{
    int32_t before, count;
    lt_cache_list(c, &before);
    assert_int_equal(lt_cache_reserve(c, frames), LT_OK);
    const lt_cache_frame *l = lt_cache_list(c, &count);
    assert_int_equal(count, before - evicted + frames);
    assert_int_equal(count - frames, begin);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(l[i].open, i >= begin);
    assert_int_equal(lt_cache_visible_rows(c), count * TOKENS);
    assert_int_equal(lt_cache_commit(c), LT_OK);
}

static void rolls_as_the_traces_say(void **state)
{
    static const int32_t w12[7][2] = {{0, 0}, {0, 3}, {0, 6}, {0, 9}, {3, 9}, {3, 9}, {3, 9}};
    static const int32_t w6[4][2] = {{0, 0}, {0, 3}, {3, 3}, {3, 3}};
    lt_cache *c = make(*state, "longlive");
    for (int32_t i = 0; i < 7; i++)
        check_block(c, 3, w12[i][0], w12[i][1]);
    int32_t count;
    const lt_cache_frame *l = lt_cache_list(c, &count);
    assert_int_equal(lt_cache_next_frame(c), 21);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(l[i].frame, i < 3 ? i : 9 + i);
    lt_cache_destroy(&c);
    c = make(*state, "infinity-rope");
    for (int32_t i = 0; i < 4; i++)
        check_block(c, 3, w6[i][0], w6[i][1]);
    lt_cache_destroy(&c);
}

static void expect_places(lt_cache *c, const int64_t *place, int32_t n)
{
    int32_t count;
    assert_int_equal(lt_cache_reserve(c, 3), LT_OK);
    const lt_cache_frame *l = lt_cache_list(c, &count);
    assert_int_equal(count, n);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(l[i].place, place[i]);
    lt_cache_rollback(c);
}

static void places_follow_the_policy(void **state)
{
    static const struct {
        const char *policy;
        int64_t place[6];
    } cases[] = {
        {"infinity-rope", {0, 1, 2, 3, 4, 5}},
        {"infinity-rope:positions=absolute", {0, 10, 11, 12, 13, 14}},
        {"infinity-rope:positions=absolute,sink-positions=follow", {9, 10, 11, 12, 13, 14}}};
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        lt_cache *c = make(*state, cases[i].policy);
        for (int b = 0; b < 4; b++) {
            assert_int_equal(lt_cache_reserve(c, 3), LT_OK);
            assert_int_equal(lt_cache_commit(c), LT_OK);
        }
        expect_places(c, cases[i].place, 6);
        lt_cache_destroy(&c);
    }
}

static void pins_and_flushes(void **state)
{
    const fixture *f = *state;
    lt_cache *c = make(f, "longlive:window=8,sink=1");
    int32_t count;
    for (int b = 0; b < 2; b++) {
        assert_int_equal(lt_cache_reserve(c, 3), LT_OK);
        assert_int_equal(lt_cache_flush(c, 1), LT_ERR_ARG);
        assert_int_equal(lt_cache_pin(c, 0, false), LT_ERR_ARG);
        assert_int_equal(lt_cache_reserve(c, 3), LT_ERR_ARG);
        assert_int_equal(lt_cache_commit(c), LT_OK);
    }
    assert_int_equal(lt_cache_commit(c), LT_ERR_ARG);
    assert_int_equal(lt_cache_reserve(c, 4), LT_ERR_ARG);
    assert_int_equal(lt_cache_pin(c, 9, true), LT_ERR_ARG);
    assert_int_equal(lt_cache_pin(c, 4, true), LT_OK);
    assert_int_equal(lt_cache_flush(c, 1), LT_OK);
    const lt_cache_frame *l = lt_cache_list(c, &count);
    assert_int_equal(count, 3);
    assert_true(l[0].frame == 0 && l[1].frame == 4 && l[2].frame == 5);
    for (int64_t i = 0; i < 2; i++) {
        assert_int_equal(lt_cache_reserve(c, 3), LT_OK);
        assert_int_equal(lt_cache_commit(c), LT_OK);
        for (int64_t k = 0; k < 2; k++)
            assert_int_equal(lt_cache_pin(c, 6 + 3 * i + k, true), LT_OK);
    }
    assert_int_equal(lt_cache_reserve(c, 3), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(f->ctx), "6 pinned frames leave no room for 3"));
    lt_cache_destroy(&c);
}

static void counts_its_bytes(void **state)
{
    const fixture *f = *state;
    lt_mem_stats before, after;
    lt_cache_options o = options("longlive");
    lt_cache *c;
    lt_dev_mem_stats(f->dev, &before);
    assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_OK);
    lt_dev_mem_stats(f->dev, &after);
    assert_int_equal(after.live_bytes[LT_TAG_KV] - before.live_bytes[LT_TAG_KV],
                     lt_cache_bytes(&o));
    lt_cache_destroy(&c);
    /* Wan 1.3B at 832x480: the spec's 6.04 GB for 21 frames, and tables of less than a MiB */
    o = options("self-forcing");
    o.layers = 30;
    o.heads = 12;
    o.head_dim = 128;
    o.rows = 30;
    o.cols = 52;
    o.dtype = LT_BF16;
    const uint64_t want = (uint64_t)21 * 1560 * 30 * 2 * 1536 * 2;
    assert_true(lt_cache_bytes(&o) >= want && lt_cache_bytes(&o) < want + (1 << 20));
    o = options("longlive");
    o.head_dim = 13;
    assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_ERR_ARG);
    assert_int_equal(lt_cache_bytes(&o), 0);
    o = options("longlive");
    o.theta = 0.5;
    assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_ERR_ARG);
    assert_int_equal(lt_cache_bytes(&o), 0);
    o = options("longlive");
    o.rows = o.cols = 1 << 20;
    assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_ERR_MEM);
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_policies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_policies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rolls_as_the_traces_say, set_up, tear_down),
        cmocka_unit_test_setup_teardown(places_follow_the_policy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pins_and_flushes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_its_bytes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
