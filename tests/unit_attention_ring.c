/* unit_attention_ring.c: attention through the ring of a cache beside a cache that turns keys when they are written and moves them when
 * the window rolls; blocks drawn again, opened again, taken over, several in one call. */
#include "tests/cache_fixture.h"

enum { MAX_FRAMES = 256 };

/* A number in -1..1 of what it is for. */
static float value(int64_t frame, int what, int64_t i)
{
    uint64_t x = (uint64_t)frame * 0x9e3779b97f4a7c15u + (uint64_t)what * 0xc2b2ae3d27d4eb4fu +
                 (uint64_t)i * 0x165667b19e3779f9u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return (float)((double)(x >> 11) / (double)(1ull << 52) - 1);
}

enum { Q, K, V };

/* Draws a block: puts its keys and values into layer 1 (frame numbers from `base`) and attends with its queries; plan NULL: as the
 * cache says. */
static void draw_as(const fixture *f, lt_cache *c, int32_t frames, int64_t base, float *out,
                    lt_plan *(*plan)(const fixture *f, const lt_cache *c))
{
    assert_int_equal(lt_cache_reserve(c, frames), LT_OK);
    const int64_t first = lt_cache_next_frame(c) - base, n = frames * TOKENS;
    const lt_mat kv = lt_cache_layer(c, 1);
    float *q = malloc((size_t)(n * DIM) * sizeof *q), row[2 * DIM];
    for (int64_t i = 0; i < n; i++) {
        const int64_t frame = first + i / TOKENS, token = i % TOKENS;
        for (int64_t d = 0; d < DIM; d++) {
            q[i * DIM + d] = value(frame, Q, token * DIM + d);
            row[d] = value(frame, K, token * DIM + d);
            row[DIM + d] = value(frame, V, token * DIM + d);
        }
        const int64_t at = lt_cache_open_row(c, (int32_t)(i / TOKENS)) + token;
        assert_int_equal(lt_dev_upload(f->dev, (float *)kv.data + at * 2 * DIM, row, sizeof row),
                         LT_OK);
    }
    void *dev, *res;
    assert_int_equal(lt_dev_alloc(f->dev, &dev, (size_t)(n * DIM) * 4, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_alloc(f->dev, &res, (size_t)(n * DIM) * 4, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_upload(f->dev, dev, q, (size_t)(n * DIM) * 4), LT_OK);
    const lt_qknorm_args turn = {.out = {dev, LT_F32, 0},
                                 .x = {dev, LT_F32, 0},
                                 .rows = n,
                                 .heads = HEADS,
                                 .head_dim = SIZE,
                                 .eps = -1,
                                 .rope = lt_cache_query_rope(c)};
    assert_int_equal(lt_qknorm(f->dev, &turn), LT_OK);
    lt_plan *own = plan ? plan(f, c) : NULL;
    const lt_attention_args a = {.out = {res, LT_F32, 0},
                                 .q = {dev, LT_F32, 0},
                                 .k = kv,
                                 .v = {(float *)kv.data + DIM, LT_F32, kv.ld},
                                 .lq = n,
                                 .lk = lt_cache_rows(c),
                                 .heads = HEADS,
                                 .head_dim = SIZE,
                                 .scale = 1 / sqrtf(SIZE),
                                 .plan = own ? lt_plan_kernel(own) : lt_cache_plan(c),
                                 .k_rope = lt_cache_key_rope(c)};
    assert_int_equal(lt_attention(f->dev, &a), LT_OK);
    assert_int_equal(lt_dev_download(f->dev, out, res, (size_t)(n * DIM) * 4), LT_OK);
    lt_plan_destroy(&own);
    lt_dev_free(f->dev, dev);
    lt_dev_free(f->dev, res);
    free(q);
}

static void draw(const fixture *f, lt_cache *c, int32_t frames, int64_t base, float *out)
{
    draw_as(f, c, frames, base, out, NULL);
}

/* A cache as the reference has it: keys turned when written, rows moved when the window rolls. */
typedef struct moved {
    int64_t window, sink, global, local;
    double k[MAX_FRAMES * TOKENS][DIM], v[MAX_FRAMES * TOKENS][DIM];
} moved;

static void turned(double *to, int64_t frame, int what, int64_t token)
{
    const int64_t place[3] = {frame, token / COLS, token % COLS};
    static const int split[3] = {SIZE / 2 - 2 * (SIZE / 6), SIZE / 6, SIZE / 6};
    int64_t d = 0;
    for (int h = 0; h < HEADS; h++)
        for (int a = 0; a < 3; a++)
            for (int j = 0; j < split[a]; j++, d += 2) {
                const double w = (double)place[a] * pow(10000, -(double)j / split[a]);
                const double x = (double)value(frame, what, token * DIM + d),
                             y = (double)value(frame, what, token * DIM + d + 1);
                to[d] = x * cos(w) - y * sin(w);
                to[d + 1] = x * sin(w) + y * cos(w);
            }
}

/* Spec 2.6, in tokens. */
static void moved_block(moved *m, int64_t frames)
{
    const int64_t n = frames * TOKENS, cap = m->window * TOKENS, sink = m->sink * TOKENS;
    if (m->local + n > cap) {
        const int64_t out = m->local + n - cap, stay = m->local - out - sink;
        memmove(m->k[sink], m->k[sink + out], (size_t)stay * sizeof *m->k);
        memmove(m->v[sink], m->v[sink + out], (size_t)stay * sizeof *m->v);
        m->local -= out;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t frame = (m->global + i) / TOKENS, token = (m->global + i) % TOKENS;
        turned(m->k[m->local + i], frame, K, token);
        for (int64_t d = 0; d < DIM; d++)
            m->v[m->local + i][d] = (double)value(frame, V, token * DIM + d);
    }
    m->local += n;
    m->global += n;
}

static void moved_attend(const moved *m, int64_t row, double *out)
{
    double q[DIM], w[MAX_FRAMES * TOKENS];
    turned(q, row / TOKENS, Q, row % TOKENS);
    for (int h = 0; h < HEADS; h++) {
        double sum = 0;
        for (int64_t j = 0; j < m->local; j++) {
            double s = 0;
            for (int d = h * SIZE; d < (h + 1) * SIZE; d++)
                s += q[d] * m->k[j][d];
            sum += w[j] = exp(s / sqrt(SIZE));
        }
        for (int d = h * SIZE; d < (h + 1) * SIZE; d++) {
            out[d] = 0;
            for (int64_t j = 0; j < m->local; j++)
                out[d] += w[j] / sum * m->v[j][d];
        }
    }
}

static void ring_equals_moved_rows(void **state)
{
    static const struct {
        const char *policy;
        int32_t frames;
    } cases[] = {{"self-forcing:window=7", 3},
                 {"longlive", 3},
                 {"longlive:window=6,sink=1", 3},
                 {"longlive:window=5,sink=2,block=1", 1}};
    moved *m = malloc(sizeof *m);
    float got[3 * TOKENS * DIM];
    double want[DIM];
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        lt_cache *c = make(*state, cases[i].policy);
        const lt_cache_policy p = options(cases[i].policy).policy;
        m->window = p.window;
        m->sink = p.sink;
        m->local = m->global = 0;
        for (int b = 0; b < 50; b++) {
            /* the first block of a model with an independent first frame, the last of a video */
            const int32_t frames = b == 0 && i == 0                  ? 1
                                   : b == 49 && cases[i].frames == 3 ? 2
                                                                     : cases[i].frames;
            const int64_t first = m->global;
            draw(*state, c, frames, 0, got);
            assert_int_equal(lt_cache_commit(c), LT_OK);
            moved_block(m, frames);
            for (int64_t r = 0; r < frames * TOKENS; r++) {
                moved_attend(m, first + r, want);
                for (int64_t d = 0; d < DIM; d++)
                    if (fabs((double)got[r * DIM + d] - want[d]) > 2e-5)
                        fail_msg("%s, block %d, row %d: %g, not %g", cases[i].policy, b, (int)r,
                                 (double)got[r * DIM + d], want[d]);
            }
        }
        lt_cache_destroy(&c);
    }
    free(m);
}

/* A constant added to all places changes nothing but rounding. */
static void offsets_do_not_matter(void **state)
{
    static const int64_t first[] = {0, 1000, 100000};
    const fixture *f = *state;
    float want[8][3 * TOKENS * DIM], got[3 * TOKENS * DIM];
    for (size_t i = 0; i < LT_COUNT(first); i++) {
        lt_cache_options o = options("longlive");
        o.first_frame = first[i];
        lt_cache *c;
        assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_OK);
        for (int b = 0; b < 8; b++) {
            draw(f, c, 3, first[i], i ? got : want[b]);
            assert_int_equal(lt_cache_commit(c), LT_OK);
            for (size_t d = 0; i && d < LT_COUNT(got); d++)
                assert_true(fabsf(got[d] - want[b][d]) < 3e-6f);
        }
        lt_cache_destroy(&c);
    }
}

/* Drawing a block, giving it back and drawing it again gives the same bits, also in the blocks after it. */
static void redrawn_blocks_are_the_same(void **state)
{
    const fixture *f = *state;
    float want[12][3 * TOKENS * DIM], got[3 * TOKENS * DIM];
    for (int again = 0; again < 2; again++) {
        lt_cache *c = make(f, "longlive:window=8,sink=1,bias=0.3");
        for (int b = 0; b < 12; b++) {
            if (again) {
                int32_t kept;
                draw(f, c, 3, 77, got); /* other numbers */
                lt_cache_rollback(c);
                lt_cache_list(c, &kept);
                assert_int_equal(kept, b > 1 ? 5 : 3 * b); /* what the block saw of the past */
                assert_int_equal(lt_cache_next_frame(c), 3 * b);
            }
            draw(f, c, 3, 0, again ? got : want[b]);
            if (again) assert_memory_equal(got, want[b], sizeof got);
            assert_int_equal(lt_cache_commit(c), LT_OK);
        }
        lt_cache_destroy(&c);
    }
}

/* Kept frames that are opened again see themselves and what is before them, are written where they were, and cannot be kept twice; a list
 * that is taken over draws the same bits. */
static void kept_frames_are_opened_again_and_taken_over(void **state)
{
    const fixture *f = *state;
    lt_cache *c = make(f, "longlive:window=8,sink=1"), *d = make(f, "longlive:window=8,sink=1");
    float want[3 * TOKENS * DIM], got[3 * TOKENS * DIM];
    int32_t count;
    for (int b = 0; b < 4; b++) {
        draw(f, c, 3, 0, got);
        assert_int_equal(lt_cache_commit(c), LT_OK);
    }
    assert_int_equal(lt_cache_make_room(c, 3), LT_OK);
    const lt_cache_frame *l = lt_cache_kept(c, &count);
    assert_int_equal(count, 5);
    assert_true(l[0].frame == 0 && l[1].frame == 8 && l[4].frame == 11);
    assert_int_equal(lt_cache_reopen(c, 3, 3), LT_ERR_ARG);
    assert_int_equal(lt_cache_reopen(c, 1, 4), LT_ERR_ARG);
    assert_int_equal(lt_cache_reopen(c, 2, 2), LT_OK);
    l = lt_cache_list(c, &count);
    assert_int_equal(count, 4);
    assert_true(!l[1].open && l[2].open && l[3].open && l[3].place == 10);
    assert_int_equal(lt_cache_open_row(c, 1), l[3].slot * TOKENS);
    assert_int_equal(lt_cache_commit(c), LT_ERR_ARG);
    lt_cache_rollback(c);

    l = lt_cache_kept(c, &count);
    assert_int_equal(count, 5);
    assert_int_equal(lt_cache_restore(d, 12, l, count), LT_OK);
    const size_t bytes = (size_t)(lt_cache_rows(c) * 2 * DIM) * sizeof(float);
    assert_int_equal(
        lt_dev_copy(f->dev, lt_cache_layer(d, 1).data, lt_cache_layer(c, 1).data, bytes), LT_OK);
    draw(f, c, 3, 0, want);
    draw(f, d, 3, 0, got);
    assert_memory_equal(got, want, sizeof got);
    lt_cache_rollback(c);
    lt_cache_frame bad[5];
    static const struct {
        int64_t next, frame;
        int32_t slot, count;
    } wrong[] = {{11, 11, 0, 5}, {12, 8, 0, 5}, {12, 11, 8, 5}, {12, 11, -1, 5}, {12, 11, 0, 9}};
    for (size_t i = 0; i < LT_COUNT(wrong); i++) {
        memcpy(bad, lt_cache_kept(c, &count), sizeof bad);
        bad[4].frame = wrong[i].frame;
        bad[4].slot = wrong[i].slot ? wrong[i].slot : bad[4].slot;
        assert_int_equal(lt_cache_restore(d, wrong[i].next, bad, wrong[i].count), LT_ERR_FORMAT);
    }
    bad[4].frame = 11;
    bad[4].slot = bad[3].slot;
    assert_int_equal(lt_cache_restore(d, 12, bad, 5), LT_ERR_FORMAT);
    lt_cache_destroy(&c);
    lt_cache_destroy(&d);
}

enum { WINDOW = 9 };

/* One group of all heads: q_off [nq + 1], the last is the number of queries; row [nq + 1]; runs. */
static lt_plan *plan_of(const fixture *f, const lt_cache *c, int32_t nq, const int32_t *q_off,
                        const int32_t *row, const lt_run *runs)
{
    const lt_plan_desc d = {.lq = q_off[nq],
                            .lk = lt_cache_rows(c),
                            .nq = nq,
                            .ngroups = 1,
                            .heads = HEADS,
                            .q_off = q_off,
                            .row = row,
                            .runs = runs};
    lt_plan *p;
    if (lt_plan_create(&p, f->dev, &d) < 0) fail_msg("%s", lt_error(f->ctx));
    return p;
}

/* Two blocks of three frames are open. The first sees a window up to its own last frame, the second one up to its own. */
static lt_plan *two_blocks(const fixture *f, const lt_cache *c)
{
    int32_t n, count = 0, row[3] = {0};
    lt_run runs[2 * WINDOW];
    const lt_cache_frame *l = lt_cache_list(c, &n);
    const int32_t q_off[] = {0, 3 * TOKENS, 6 * TOKENS};
    for (int32_t t = 0; t < 2; t++) {
        const int64_t last = l[n - 4 + 3 * t].frame;
        for (int32_t slot = 0; slot < 12; slot++)
            for (int32_t i = 0; i < n; i++)
                if (l[i].slot == slot && l[i].frame <= last && l[i].frame > last - WINDOW) {
                    if (count > row[t] && runs[count - 1].end == slot * TOKENS)
                        runs[count - 1].end += TOKENS;
                    else
                        runs[count++] = (lt_run){slot * TOKENS, (slot + 1) * TOKENS, 0, 0};
                }
        row[t + 1] = count;
    }
    return plan_of(f, c, 2, q_off, row, runs);
}

/* Spec 2.5 b: the clean pass of a block and the first of the next are one call when each has its own list of keys: the first must not
 * see the second, and still sees what the second pushes out. */
static void a_clean_pass_and_the_next_block_are_one_call(void **state)
{
    const fixture *f = *state;
    enum { BLOCKS = 9, NUMBERS = 3 * TOKENS * DIM };
    float want[BLOCKS][NUMBERS], got[2][NUMBERS];
    lt_cache *c = make(f, "self-forcing:window=9"),
             *both = make(f, "self-forcing:window=12,block=6");
    for (int b = 0; b < BLOCKS; b++) {
        draw(f, c, 3, 0, want[b]);
        assert_int_equal(lt_cache_commit(c), LT_OK);
    }
    for (int b = 0; b + 1 < BLOCKS; b++) {
        draw_as(f, both, 6, 0, got[0], two_blocks);
        for (int half = 0; half < 2; half++)
            for (int d = 0; d < NUMBERS; d++)
                if (fabsf(got[half][d] - want[b + half][d]) > 2e-6f)
                    fail_msg("block %d of two from %d, number %d: %g, not %g", half, b, d,
                             (double)got[half][d], (double)want[b + half][d]);
        lt_cache_rollback(both);
        draw(f, both, 3, 0, got[0]);
        assert_int_equal(lt_cache_commit(both), LT_OK);
    }
    lt_cache_destroy(&c);
    lt_cache_destroy(&both);
}

/* Every block of three frames reads all frames up to its own end. */
static lt_plan *block_causal(const fixture *f, const lt_cache *c)
{
    enum { BLOCKS = 4, EACH = 3 * TOKENS };
    lt_run runs[BLOCKS];
    int32_t q_off[BLOCKS + 1] = {0}, row[BLOCKS + 1] = {0};
    for (int32_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(lt_cache_open_row(c, 3 * b), b * EACH);
        runs[b] = (lt_run){0, (b + 1) * EACH, 0, 0};
        q_off[b + 1] = (b + 1) * EACH;
        row[b + 1] = b + 1;
    }
    return plan_of(f, c, BLOCKS, q_off, row, runs);
}

/* What blocks give one after the other is what one call over the whole video gives that sees no later block. */
static void blocks_are_a_block_causal_call(void **state)
{
    const fixture *f = *state;
    enum { NUMBERS = 3 * TOKENS * DIM };
    float want[4][NUMBERS], got[NUMBERS];
    lt_cache *whole = make(f, "self-forcing:window=12,block=12"), *c = make(f, "self-forcing");
    draw_as(f, whole, 12, 0, want[0], block_causal);
    for (int b = 0; b < 4; b++) {
        draw(f, c, 3, 0, got);
        assert_int_equal(lt_cache_commit(c), LT_OK);
        assert_memory_equal(got, want[b], sizeof got); /* the same keys in the same order */
    }
    lt_cache_destroy(&whole);
    lt_cache_destroy(&c);
}

/* Spec 17.2 where frames are turned: places are numbers, there is no end of a table. */
static void turns_by_the_frequencies(void **state)
{
    const fixture *f = *state;
    static const double want[3][2] = {{0, 1}, {1, 0.657933224657568}, {21, 1.519911082952933e-4}};
    enum { PAIRS = 22, NUMBERS = 2 * PAIRS };
    static const int64_t places[] = {1, 5000};
    float cs[NUMBERS];
    for (size_t i = 0; i < LT_COUNT(places); i++) {
        lt_cache_options o = options("self-forcing");
        o.head_dim = 128;
        o.first_frame = places[i];
        lt_cache *c;
        assert_int_equal(lt_cache_create(&c, f->dev, &o), LT_OK);
        assert_int_equal(lt_cache_reserve(c, 1), LT_OK);
        assert_int_equal(lt_cache_open_row(c, 0), 0);
        assert_int_equal(lt_cache_key_rope(c)->pairs[0], PAIRS);
        assert_int_equal(lt_dev_download(f->dev, cs, lt_cache_key_rope(c)->table[0], sizeof cs),
                         LT_OK);
        for (int k = 0; k < 3; k++) {
            const double turn = (double)places[i] * want[k][1];
            const float *at = cs + 2 * (int)want[k][0];
            assert_true(fabs((double)at[0] - cos(turn)) < 1e-7);
            assert_true(fabs((double)at[1] - sin(turn)) < 1e-7);
        }
        lt_cache_destroy(&c);
    }
}

/* Frames of the past weigh b as much as they would: the same as their values' mean and sum say. */
static void bias_weakens_the_past(void **state)
{
    const fixture *f = *state;
    float plain[3 * TOKENS * DIM], none[3 * TOKENS * DIM], half[3 * TOKENS * DIM];
    float *const out[] = {plain, none, half};
    static const char *const policy[] = {"longlive:sink=0", "longlive:sink=0,window=3",
                                         "longlive:sink=0,bias=1e-9"};
    for (size_t i = 0; i < 3; i++) {
        lt_cache *c = make(f, policy[i]);
        for (int b = 0; b < 2; b++) {
            draw(f, c, 3, 0, out[i]);
            assert_int_equal(lt_cache_commit(c), LT_OK);
        }
        lt_cache_destroy(&c);
    }
    /* the same, asked for while it runs: the past, or the sink, from the next block on */
    float past[3 * TOKENS * DIM], sink[3 * TOKENS * DIM];
    for (int pinned = 0; pinned < 2; pinned++) {
        lt_cache *c = make(f, pinned ? "longlive" : policy[0]);
        for (int b = 0; b < 2; b++) {
            draw(f, c, 3, 0, pinned ? sink : past);
            assert_int_equal(lt_cache_commit(c), LT_OK);
            lt_cache_weigh(c, pinned ? 1 : 1e-9, pinned ? 1e-9 : 1);
        }
        lt_cache_destroy(&c);
    }
    assert_memory_equal(past, half, sizeof past);
    assert_memory_equal(sink, half, sizeof sink);
    double far = 0;
    for (size_t d = 0; d < LT_COUNT(plain); d++) {
        assert_true(fabsf(half[d] - none[d]) < 1e-5f); /* a weight of nothing is not being seen */
        far = fmax(far, fabs((double)plain[d] - (double)none[d]));
    }
    assert_true(far > 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ring_equals_moved_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(offsets_do_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(redrawn_blocks_are_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_frames_are_opened_again_and_taken_over, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_clean_pass_and_the_next_block_are_one_call, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(blocks_are_a_block_causal_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(turns_by_the_frequencies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bias_weakens_the_past, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
