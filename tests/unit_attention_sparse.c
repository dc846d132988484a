/* unit_attention_sparse.c: the planner with the kernel: full plans are dense, nothing outside a list is read, rings give what contiguous
 * keys give, means stand in exactly for equal keys, every thread count the same bits; and the text form. */
#include "tests/sparse_fixture.h"

static const lt_grid grid = {5, 6, 7};

static void full_plans_are_dense(void **state)
{
    static const char *const texts[] = {"sta:window=9x9x9", "svg:density=1,layers=0,warmup=0",
                                        "topk:p=1,tile=2x4x3", "topk:keep=1,centroid,tile=2x4x3"};
    const fixture *f = *state;
    data d = make_data(f->dev, lt_grid_tokens(grid), 1);
    float *want = dense(f->dev, &d.call);
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        lt_sparse *s;
        lt_sparse_options o = options(texts[i], grid);
        lt_sparse_stats st;
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
        float *got = attend(f->dev, s, &d.call);
        lt_sparse_get_stats(s, &st);
        assert_non_null(got);
        assert_true(st.read == st.all && st.calls == 1 && st.sparse_calls == 1);
        /* the same keys in the same order: the same bits */
        assert_memory_equal(got, want, (size_t)(d.call.lq * DIM) * sizeof *got);
        free(got);
        lt_sparse_destroy(&s);
    }
    free(want);
    free_data(f->dev, &d);
}

static void warms_up_dense(void **state)
{
    const fixture *f = *state;
    data d = make_data(f->dev, lt_grid_tokens(grid), 1);
    lt_sparse *s;
    lt_sparse_stats st;
    lt_sparse_options o = options("radial:warmup=0.5,layers=1", grid);
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    const lt_attn_plan *plan;
    d.call.layer = 1;
    d.call.progress = 0.4;
    assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
    assert_null(plan);
    d.call.progress = 0.5;
    assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
    assert_non_null(plan);
    d.call.layer = 0;
    assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
    assert_null(plan);
    lt_sparse_get_stats(s, &st);
    assert_true(st.calls == 3 && st.sparse_calls == 1 && st.read < st.all && st.plans == 1);
    d.call.lq++;
    d.call.layer = 1;
    assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_ERR_SHAPE);
    d.call.lq--;
    d.call.q.dtype = d.call.k.dtype = d.call.v.dtype = LT_BF16;
    assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_ERR_DTYPE);
    assert_string_equal(lt_error(f->ctx),
                        "attention: q, k, v are bf16, bf16, bf16: the plan is for f32");
    lt_sparse_destroy(&s);
    free_data(f->dev, &d);
}

/* The first query tile's list, downloaded; keys outside of it become NaN and 1e30, the tile's rows stay the same bits. */
static void reads_nothing_else(void **state)
{
    static const char *const texts[] = {"sta:window=1x3x1,tile=2x2x2", "svg:density=0.1,layers=0",
                                        "topk:keep=0.2,tile=2x2x2", "radial:layers=0,base=3",
                                        "topk:keep=0.2,tile=2x3x2,drift=0"};
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        data d = make_data(f->dev, n, 5 + i);
        lt_sparse *s;
        lt_sparse_options o = options(texts[i], grid);
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
        const lt_attn_plan *plan;
        d.call.layer = 1;
        float *clean = attend(f->dev, s, &d.call);
        assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
        int32_t q_off[2], row[2], group[HEADS];
        lt_run runs[64];
        assert_int_equal(lt_dev_download(f->dev, group, plan->group_of_head, sizeof group), LT_OK);
        const int32_t *at = plan->row + (int64_t)group[0] * plan->nq;
        assert_int_equal(lt_dev_download(f->dev, row, at, sizeof row), LT_OK);
        assert_int_equal(lt_dev_download(f->dev, q_off, plan->q_off, sizeof q_off), LT_OK);
        assert_in_range(row[1] - row[0], 1, 64);
        assert_int_equal(lt_dev_download(f->dev, runs, plan->runs + row[0],
                                         (size_t)(row[1] - row[0]) * sizeof *runs),
                         LT_OK);
        int64_t poisoned = 0;
        for (int64_t k = 0; k < n; k++) {
            bool read = false;
            for (int32_t r = 0; r < row[1] - row[0]; r++)
                read = read || (k >= runs[r].begin && k < runs[r].end);
            for (int c = 0; c < SIZE && !read; c++) {
                d.k[k * DIM + c] = c % 2 ? NAN : 1e30f;
                d.v[k * DIM + c] = k % 2 ? NAN : 1e30f;
            }
            poisoned += !read;
        }
        assert_in_range(poisoned, 1, n - 1);
        const size_t bytes = (size_t)(n * DIM) * sizeof(float);
        assert_int_equal(lt_dev_upload(f->dev, d.call.k.data, d.k, bytes), LT_OK);
        assert_int_equal(lt_dev_upload(f->dev, d.call.v.data, d.v, bytes), LT_OK);
        lt_mat out = put(f->dev, NULL, n);
        const lt_attention_args a = {.out = out,
                                     .q = d.call.q,
                                     .k = d.call.k,
                                     .v = d.call.v,
                                     .lq = n,
                                     .lk = n,
                                     .heads = HEADS,
                                     .head_dim = SIZE,
                                     .scale = (float)(1 / sqrt(SIZE)),
                                     .plan = plan};
        assert_int_equal(lt_attention(f->dev, &a), LT_OK);
        float *got = get(f->dev, out, n);
        for (int64_t r = q_off[0]; r < q_off[1]; r++)
            assert_memory_equal(got + r * DIM, clean + r * DIM, SIZE * sizeof *got);
        lt_dev_free(f->dev, out.data);
        free(got);
        free(clean);
        lt_sparse_destroy(&s);
        free_data(f->dev, &d);
    }
}

/* Keys and values that are the same all over a box: its mean with the number of tokens on its logit is exact. */
static void means_stand_in(void **state)
{
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    const lt_sparse_options o = options("topk:keep=0.1,centroid,tile=2x4x3", grid);
    const lt_sparse_options dropped = options("topk:keep=0.1,tile=2x4x3", grid);
    lt_tiling t;
    lt_sparse *s, *without;
    data d = make_data(f->dev, n, 9);
    assert_int_equal(lt_tiling_create(&t, f->ctx, grid, o.spec.tile), LT_OK);
    for (int32_t b = 0; b < t.tiles; b++)
        for (int32_t r = t.off[b]; r < t.off[b + 1]; r++) {
            memcpy(d.k + (int64_t)r * DIM, d.k + (int64_t)t.off[b] * DIM, DIM * sizeof *d.k);
            memcpy(d.v + (int64_t)r * DIM, d.v + (int64_t)t.off[b] * DIM, DIM * sizeof *d.v);
        }
    assert_int_equal(lt_dev_upload(f->dev, d.call.k.data, d.k, (size_t)(n * DIM) * 4), LT_OK);
    assert_int_equal(lt_dev_upload(f->dev, d.call.v.data, d.v, (size_t)(n * DIM) * 4), LT_OK);
    float *want = dense(f->dev, &d.call);
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    assert_int_equal(lt_sparse_create(&without, f->dev, &dropped), LT_OK);
    float *got = attend(f->dev, s, &d.call), *less = attend(f->dev, without, &d.call);
    lt_sparse_stats st[2];
    lt_sparse_get_stats(s, &st[0]);
    lt_sparse_get_stats(without, &st[1]); /* two of 18 boxes: 16 keys more for every query */
    assert_true(fabs(st[0].read - st[1].read - 16.0 * (double)n) < 1e-6 * (double)n);
    assert_true(far_apart(got, want, n * DIM) < 2e-6);
    assert_true(far_apart(less, want, n * DIM) > 0.1);
    free(less);
    free(got);
    free(want);
    lt_sparse_destroy(&without);
    lt_sparse_destroy(&s);
    lt_tiling_destroy(&t);
    free_data(f->dev, &d);
}

static lt_dev *open_device(lt_ctx *ctx, int threads)
{
    lt_dev *dev;
    lt_dev_options opt = lt_dev_options_default();
    opt.device = "guard";
    opt.threads = threads;
    return lt_dev_create(&dev, ctx, &opt) < 0 ? NULL : dev;
}

static void threads_do_not_matter(void **state)
{
    static const char *const texts[] = {"svg:layers=0", "topk:p=0.5", "topk:tau=0.5,centroid"};
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        float *out[2];
        for (int k = 0; k < 2; k++) {
            lt_dev *dev = open_device(f->ctx, k ? 1 : 3);
            data d = make_data(dev, n, 3);
            lt_sparse *s;
            const lt_sparse_options o = options(texts[i], grid);
            assert_int_equal(lt_sparse_create(&s, dev, &o), LT_OK);
            out[k] = attend(dev, s, &d.call);
            lt_sparse_destroy(&s);
            free_data(dev, &d);
            lt_dev_destroy(&dev);
        }
        assert_memory_equal(out[0], out[1], (size_t)(n * DIM) * sizeof **out);
        free(out[0]);
        free(out[1]);
    }
}

/* Lists are kept while means change little, and made anew when they change much. */
static void plans_are_kept(void **state)
{
    const fixture *f = *state;
    const int64_t n = lt_grid_tokens(grid);
    data d = make_data(f->dev, n, 3);
    lt_sparse *s;
    lt_sparse_stats st;
    const lt_sparse_options o = options("topk:keep=0.3,drift=0.2", grid);
    const lt_attn_plan *plan;
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    for (int i = 0; i < 4; i++) {
        d.call.progress = i < 3 ? 0.5 + 0.1 * i : 0.5; /* the last one begins again */
        if (i == 1)
            for (int64_t k = 0; k < n * DIM; k++)
                d.k[k] *= 1.05f;
        if (i == 2)
            for (int64_t k = 0; k < n * DIM; k++)
                d.k[k] *= -1;
        assert_int_equal(lt_dev_upload(f->dev, d.call.k.data, d.k, (size_t)(n * DIM) * 4), LT_OK);
        assert_int_equal(lt_sparse_plan(s, &plan, &d.call), LT_OK);
        lt_sparse_get_stats(s, &st);
        assert_int_equal(st.plans, i < 2 ? 1 : i);
    }
    lt_sparse_destroy(&s);
    free_data(f->dev, &d);
}

/* ---- rings ---- */

enum { ROWS = 4, COLS = 5, FRAME = ROWS * COLS };

/* A cache after so many blocks of three, the next one open; visible frame i of the list holds frame i of `host`. */
static lt_cache *ring(lt_dev *dev, const char *policy, int blocks, const float *k, const float *v)
{
    lt_cache_options o = {
        .layers = 1, .heads = HEADS, .head_dim = SIZE, .rows = ROWS, .cols = COLS, .dtype = LT_F32};
    lt_cache *c;
    int32_t count;
    assert_int_equal(lt_cache_policy_parse(&o.policy, NULL, policy), LT_OK);
    assert_int_equal(lt_cache_create(&c, dev, &o), LT_OK);
    for (int b = 0; b <= blocks; b++) {
        assert_int_equal(lt_cache_reserve(c, 3), LT_OK);
        if (b < blocks) assert_int_equal(lt_cache_commit(c), LT_OK);
    }
    const lt_cache_frame *l = lt_cache_list(c, &count);
    const lt_mat m = lt_cache_layer(c, 0);
    for (int32_t i = 0; i < count; i++)
        for (int32_t t = 0; t < FRAME; t++) {
            char *to = (char *)m.data + (size_t)((l[i].slot * FRAME + t) * m.ld) * 4;
            const int64_t from = (int64_t)(i * FRAME + t) * DIM;
            assert_int_equal(lt_dev_upload(dev, to, k + from, DIM * 4), LT_OK);
            assert_int_equal(lt_dev_upload(dev, to + DIM * 4, v + from, DIM * 4), LT_OK);
        }
    return c;
}

static float *attend_ring(lt_dev *dev, const char *text, lt_cache *c, lt_mat q, double bias)
{
    lt_sparse *s;
    lt_sparse_options o = options(text, (lt_grid){3, ROWS, COLS});
    o.slots = (int32_t)(lt_cache_rows(c) / FRAME);
    o.bias = bias;
    assert_int_equal(lt_sparse_create(&s, dev, &o), LT_OK);
    const lt_mat kv = lt_cache_layer(c, 0);
    lt_mat v = kv;
    v.data = (char *)v.data + DIM * 4;
    const lt_sparse_call call = {.layer = 1,
                                 .progress = 1,
                                 .q = q,
                                 .k = kv,
                                 .v = v,
                                 .lq = 3 * FRAME,
                                 .lk = lt_cache_rows(c),
                                 .cache = c,
                                 .k_rope = lt_cache_key_rope(c)};
    float *x = attend(dev, s, &call);
    lt_sparse_destroy(&s);
    return x;
}

static void rings_give_the_same(void **state)
{
    static const char *const texts[] = {
        "sta:window=3x3x1,tile=1x2x2",       "svg:layers=0,base=4",
        "radial:layers=0,base=2,sink=off",   "topk:keep=0.5,tile=1x2x2",
        "topk:keep=0.4,centroid,tile=1x2x3", "topk:p=0.6,tile=1x2x2"};
    static const char *const policies[] = {"infinity-rope:window=9",
                                           "infinity-rope:window=9,bias=0.5"};
    const fixture *f = *state;
    float *k = noise(9 * FRAME * DIM, 21), *v = noise(9 * FRAME * DIM, 22),
          *qh = noise(3 * FRAME * DIM, 23);
    const lt_mat q = put(f->dev, qh, 3 * FRAME);
    for (size_t p = 0; p < LT_COUNT(policies); p++)
        for (size_t i = 0; i < LT_COUNT(texts); i++) {
            lt_cache *first = ring(f->dev, policies[p], 2, k, v);
            float *want = attend_ring(f->dev, texts[i], first, q, p ? 0.5 : 1);
            lt_cache_destroy(&first);
            for (int blocks = 3; blocks < 6; blocks++) {
                lt_cache *c = ring(f->dev, policies[p], blocks, k, v);
                float *got = attend_ring(f->dev, texts[i], c, q, p ? 0.5 : 1);
                assert_true(far_apart(got, want, 3 * FRAME * DIM) < 3e-6);
                free(got);
                lt_cache_destroy(&c);
            }
            free(want);
        }
    lt_dev_free(f->dev, q.data);
    free(qh);
    free(k);
    free(v);
}

/* A frame that is pinned, or let go, between two blocks: what the lists of the one were is not what the other reads. */
static void pinned_frames_are_read(void **state)
{
    const fixture *f = *state;
    float *k = noise(9 * FRAME * DIM, 21), *v = noise(9 * FRAME * DIM, 22),
          *qh = noise(3 * FRAME * DIM, 23);
    const lt_mat q = put(f->dev, qh, 3 * FRAME);
    lt_cache *c = ring(f->dev, "infinity-rope:window=9", 2, k, v);
    lt_sparse *s;
    lt_sparse_stats st[3];
    lt_sparse_options o = options("sta:window=1x1x1,tile=1x2x2,warmup=0", (lt_grid){3, ROWS, COLS});
    o.slots = (int32_t)(lt_cache_rows(c) / FRAME);
    assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
    const lt_mat kv = lt_cache_layer(c, 0);
    const lt_sparse_call call = {.progress = 1,
                                 .q = q,
                                 .k = kv,
                                 .v = kv,
                                 .lq = 3 * FRAME,
                                 .lk = lt_cache_rows(c),
                                 .cache = c};
    const lt_attn_plan *plan;
    for (int i = 0; i < 3; i++) {
        if (i) { /* frame 4 is neither in the sink nor open */
            lt_cache_rollback(c);
            assert_int_equal(lt_cache_pin(c, 4, i == 1), LT_OK);
            assert_int_equal(lt_cache_reserve(c, 3), LT_OK);
        }
        assert_int_equal(lt_sparse_plan(s, &plan, &call), LT_OK);
        lt_sparse_get_stats(s, &st[i]);
    }
    const double first = st[0].read, second = st[1].read - first, third = st[2].read - st[1].read;
    assert_true(second - first == 3.0 * FRAME * FRAME); /* all queries, one frame more */
    assert_true(third == first);
    lt_sparse_destroy(&s);
    lt_cache_destroy(&c);
    lt_dev_free(f->dev, q.data);
    free(qh);
    free(k);
    free(v);
}

/* With everything chosen it is the cache's own plan, kept frames' bias included. */
static void full_rings_are_dense(void **state)
{
    const fixture *f = *state;
    float *k = noise(9 * FRAME * DIM, 21), *v = noise(9 * FRAME * DIM, 22),
          *qh = noise(3 * FRAME * DIM, 23);
    const lt_mat q = put(f->dev, qh, 3 * FRAME);
    lt_cache *c = ring(f->dev, "infinity-rope:window=9,bias=0.3", 4, k, v);
    lt_mat kv = lt_cache_layer(c, 0), vm = kv, out = put(f->dev, NULL, 3 * FRAME);
    vm.data = (char *)vm.data + DIM * 4;
    const lt_attention_args a = {.out = out,
                                 .q = q,
                                 .k = kv,
                                 .v = vm,
                                 .lq = 3 * FRAME,
                                 .lk = lt_cache_rows(c),
                                 .heads = HEADS,
                                 .head_dim = SIZE,
                                 .scale = (float)(1 / sqrt(SIZE)),
                                 .plan = lt_cache_plan(c),
                                 .k_rope = lt_cache_key_rope(c)};
    assert_int_equal(lt_attention(f->dev, &a), LT_OK);
    float *want = get(f->dev, out, 3 * FRAME),
          *got = attend_ring(f->dev, "topk:keep=1,tile=1x2x2", c, q, 0.3);
    assert_true(far_apart(got, want, 3 * FRAME * DIM) < 1e-6);
    free(want);
    free(got);
    lt_dev_free(f->dev, out.data);
    lt_dev_free(f->dev, q.data);
    lt_cache_destroy(&c);
    free(qh);
    free(k);
    free(v);
}

/* ---- text, memory ---- */

static void reads_texts(void **state)
{
    const fixture *f = *state;
    lt_sparse_spec s;
    assert_int_equal(lt_sparse_parse(&s, f->ctx, NULL), LT_OK);
    assert_int_equal(s.method, 0);
    assert_int_equal(lt_sparse_parse(&s, f->ctx, "topk:keep=0.3,warmup=0.5,centroid,tile=3x10x4"),
                     LT_OK);
    assert_string_equal(lt_sparse_name(s.method), "topk");
    assert_true(s.keep == 0.3 && s.warmup == 0.5 && s.centroid && s.tile[1] == 10);
    assert_int_equal(lt_sparse_parse(&s, f->ctx, "topk:p=0.9"), LT_OK);
    assert_true(s.keep == 0 && s.mass == 0.9);
    assert_int_equal(lt_sparse_parse(&s, f->ctx, "sta:window=3x3x13"), LT_OK);
    assert_true(s.window[2] == 13 && s.warmup == 0.25);
    assert_int_equal(lt_sparse_parse(&s, f->ctx, "radial:sink=off"), LT_OK);
    assert_true(!s.sink && s.layers == 1);
    for (int32_t i = 0; lt_sparse_name(i); i++)
        assert_non_null(lt_sparse_help(i));
}

static void refuses_texts(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"top", "'top' is not one of dense, sta, svg, radial, topk"},
        {"dense:warmup=0.1", "dense takes no \"warmup=0.1\"; it takes no keys"},
        {"topk:", "topk takes no \"\""},
        {"topk:keep=0.2,", "topk takes no \"\""},
        {"topk:window=3x3x3", "topk takes no \"window=3x3x3\"; it takes warmup"},
        {"topk:keep=0x1p-2", "\"keep=0x1p-2\" cannot be: keep takes more than 0, up to 1"},
        {"topk:keep= 0.2", "\"keep= 0.2\" cannot be: keep takes more than 0, up to 1"},
        {"topk:keep=0", "\"keep=0\" cannot be: keep takes more than 0, up to 1"},
        {"topk:keep=0.2,drift=0,keep=0.3", "\"keep\" is given twice"},
        {"topk:centroid,centroid", "\"centroid\" is given twice"},
        {"topk:tau=1,p=0.9", "\"tau\" and \"p\": give one of the two"},
        {"topk:centroid,refresh=5", "refresh=5 and centroid: give one"},
        {"topk:ramp=0.2,keep=0.6", "ramp=0.2 is less than the keep=0.6"},
        {"topk:ramp=0.5,p=0.9", "ramp=0.5 falls to keep="},
        {"topk:drift=200", "\"drift=200\" cannot be: drift takes 0 to 100"},
        {"topk:keep=1.5", "\"keep=1.5\" cannot be"},
        {"topk:p=nan", "\"p=nan\" cannot be"},
        {"topk:centroid=1", "\"centroid=1\" cannot be"},
        {"topk:tile=3x4", "\"tile=3x4\" cannot be"},
        {"topk:tile=3x4x5x6", "\"tile=3x4x5x6\" cannot be"},
        {"sta:window=2x3x3", "\"window=2x3x3\" cannot be"},
        {"svg:density=0", "\"density=0\" cannot be"},
        {"radial:sink=maybe", "\"sink=maybe\" cannot be"},
        {"radial:layers=1.5", "\"layers=1.5\" cannot be"},
    };
    const fixture *f = *state;
    lt_sparse_spec s;
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        assert_int_equal(lt_sparse_parse(&s, f->ctx, bad[i].text), LT_ERR_ARG);
        if (!strstr(lt_error(f->ctx), bad[i].says)) fail_msg("%s", lt_error(f->ctx));
    }
}

/* What no text says, but whoever fills a specification could. */
static void refuses_specifications(void **state)
{
    const fixture *f = *state;
    lt_sparse_spec good, bad[8];
    assert_int_equal(lt_sparse_parse(&good, f->ctx, "sta:tile=1x2x2"), LT_OK);
    for (size_t i = 0; i < LT_COUNT(bad); i++)
        bad[i] = good;
    bad[0].tile[1] = 0; /* the boxes of a row would be divided by it */
    bad[1].tile[2] = -2;
    bad[2].tile[0] = 0;
    bad[3].window[0] = -3;
    bad[4].window[2] = INT32_MAX;
    bad[5].rows = INT32_MAX;
    bad[6].base = 1 << 21;
    bad[7].layers = -1;
    lt_sparse_options o = options("sta:tile=1x2x2", grid);
    lt_sparse *s;
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        o.spec = bad[i];
        assert_int_equal(lt_sparse_check(f->ctx, &bad[i]), LT_ERR_ARG);
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_ERR_ARG);
        assert_null(s);
        assert_true(lt_sparse_bytes(&o) == 0);
    }
    o.spec = good;
    assert_true(lt_sparse_bytes(&o) > 0);
    const lt_grid grids[] = {{0, 6, 7}, {1 << 30, 1 << 30, 1 << 30}, {5, 1 << 15, 1 << 15}};
    for (size_t i = 0; i < LT_COUNT(grids); i++) {
        o.grid = grids[i];
        assert_true(lt_sparse_bytes(&o) == 0);
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_ERR_ARG);
    }
}

static void counts_its_bytes(void **state)
{
    static const char *const texts[] = {
        "dense",         "sta",           "svg",           "radial",
        "topk",          "topk:centroid", "sta:refresh=3", "radial:refresh=3",
        "topk:refresh=3"};
    const fixture *f = *state;
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        lt_mem_stats before, after;
        lt_sparse *s;
        const lt_sparse_options o = options(texts[i], grid);
        lt_dev_mem_stats(f->dev, &before);
        assert_int_equal(lt_sparse_create(&s, f->dev, &o), LT_OK);
        lt_dev_mem_stats(f->dev, &after);
        assert_int_equal(after.live_total - before.live_total, lt_sparse_bytes(&o));
        lt_sparse_destroy(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(full_plans_are_dense, set_up, tear_down),
        cmocka_unit_test_setup_teardown(warms_up_dense, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(means_stand_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_do_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plans_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rings_give_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pinned_frames_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_rings_are_dense, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_texts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_texts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_specifications, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_its_bytes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
