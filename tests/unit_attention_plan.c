/* unit_attention_plan.c: plans: what is accepted, what is refused and how, density, the text plan; rotary tables. */
#include "attention/attention.h"
#include "kernels/internal.h"
#include "tests/guard_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two groups of two tiles over 10 rows and 20 keys, one list empty. */
static const int32_t good_q_off[] = {0, 4, 10}, good_row[] = {0, 2, 3, 3, 5},
                     good_group[] = {1, 0, 1};
static const lt_run good_runs[] = {
    {0, 5, 0, 0}, {7, 8, 0, 0}, {0, 20, 0, 0}, {3, 5, 0, 0}, {5, 9, LT_RUN_BIAS, 1.5f}};
static const lt_plan_desc good = {.lq = 10,
                                  .lk = 20,
                                  .nq = 2,
                                  .ngroups = 2,
                                  .heads = 3,
                                  .q_off = good_q_off,
                                  .row = good_row,
                                  .runs = good_runs,
                                  .group_of_head = good_group};

static void refuse(const fixture *f, const lt_plan_desc *d, const char *message)
{
    lt_plan *p = (lt_plan *)(void *)&p; /* must become NULL */
    assert_int_equal(lt_plan_check(f->ctx, d), LT_ERR_ARG);
    assert_string_equal(lt_error(f->ctx), message);
    assert_int_equal(lt_plan_create(&p, f->dev, d), LT_ERR_ARG);
    assert_null(p);
}

static void accepts_what_is_right(void **state)
{
    const fixture *f = *state;
    lt_plan *p;
    assert_int_equal(lt_plan_check(f->ctx, &good), LT_OK);
    assert_int_equal(lt_plan_create(&p, f->dev, &good), LT_OK);
    assert_int_equal(lt_plan_lq(p), 10);
    assert_int_equal(lt_plan_lk(p), 20);
    const lt_attn_plan *k = lt_plan_kernel(p);
    assert_int_equal(k->nq, 2);
    assert_int_equal(k->ngroups, 2);
    lt_run runs[5];
    int32_t q_off[3], row[5], group[3];
    assert_int_equal(lt_dev_download(f->dev, runs, k->runs, sizeof runs), LT_OK);
    assert_int_equal(lt_dev_download(f->dev, q_off, k->q_off, sizeof q_off), LT_OK);
    assert_int_equal(lt_dev_download(f->dev, row, k->row, sizeof row), LT_OK);
    assert_int_equal(lt_dev_download(f->dev, group, k->group_of_head, sizeof group), LT_OK);
    assert_memory_equal(runs, good_runs, sizeof runs);
    assert_memory_equal(q_off, good_q_off, sizeof q_off);
    assert_memory_equal(row, good_row, sizeof row);
    assert_memory_equal(group, good_group, sizeof group);
    /* group 0: 4 rows of 6 keys, 6 rows of 20: 144; group 1: 4 of 0, 6 of 6: 36; heads 1, 0, 1 */
    assert_true(fabs(lt_plan_density(p) - (144.0 + 2 * 36.0) / 3 / 200) < 1e-15);
    lt_plan_destroy(&p);
    assert_null(p);
    lt_plan_destroy(&p);
}

static void refuses_tiles(void **state)
{
    const fixture *f = *state;
    lt_plan_desc d = good;
    d.lq = 11;
    refuse(f, &d, "plan: query tiles cover rows 0..10, wanted 0..11");
    d = good;
    d.q_off = (const int32_t[]){1, 4, 10};
    refuse(f, &d, "plan: query tiles cover rows 1..10, wanted 0..10");
    d.q_off = (const int32_t[]){0, 10, 10};
    refuse(f, &d, "plan: query tile 1 is rows 10..10: empty");
    d.q_off = (const int32_t[]){0, 12, 10};
    refuse(f, &d, "plan: query tile 1 is rows 12..10: empty");
    d = good;
    d.nq = 0;
    refuse(f, &d, "plan: 0 query tiles, 2 groups, 3 heads: wanted at least one of each");
    d = good;
    d.lk = (int64_t)1 << 31;
    refuse(f, &d, "plan: 10 query rows and 2147483648 keys: wanted 1 and 0 or more, in 31 bits");
    d = good;
    d.group_of_head = (const int32_t[]){0, 2, 1};
    refuse(f, &d, "plan: head 1 is of group 2, there are 2 groups");
    d = good;
    d.row = (const int32_t[]){0, 2, 1, 3, 5};
    refuse(f, &d, "plan: group 0, tile 1 has runs 2..1");
    d.row = (const int32_t[]){1, 2, 3, 3, 5};
    refuse(f, &d, "plan: the first list begins at run 1, wanted 0");
}

/* `run` in place of run 1 of tile 0 of group 0. */
static void refuse_run(const fixture *f, lt_run run, const char *message)
{
    lt_run runs[LT_COUNT(good_runs)];
    memcpy(runs, good_runs, sizeof runs);
    runs[1] = run;
    lt_plan_desc d = good;
    d.runs = runs;
    refuse(f, &d, message);
}

static void refuses_runs(void **state)
{
    const fixture *f = *state;
    refuse_run(f, (lt_run){7, 21, 0, 0},
               "plan: group 0, tile 0, run 1 is keys 7..21: not inside 0..20");
    refuse_run(f, (lt_run){7, 7, 0, 0},
               "plan: group 0, tile 0, run 1 is keys 7..7: not inside 0..20");
    refuse_run(f, (lt_run){-1, 7, 0, 0},
               "plan: group 0, tile 0, run 1 is keys -1..7: not inside 0..20");
    refuse_run(
        f, (lt_run){4, 7, 0, 0},
        "plan: group 0, tile 0, run 1 begins at key 4, before the end 5 of the run before it");
    refuse_run(f, (lt_run){5, 7, 0, 0},
               "plan: group 0, tile 0, runs 0 and 1 meet at key 5 and are not merged");
    refuse_run(f, (lt_run){7, 8, 4, 0}, "plan: group 0, tile 0, run 1 has unknown flags 0x4");
    refuse_run(f, (lt_run){7, 8, LT_RUN_BIAS, NAN}, "plan: group 0, tile 0, run 1 has bias nan");
    refuse_run(f, (lt_run){7, 8, LT_RUN_BIAS, -INFINITY},
               "plan: group 0, tile 0, run 1 has bias -inf");
}

static void dense_reads_everything(void **state)
{
    const fixture *f = *state;
    static const int64_t sizes[][2] = {{1, 1}, {126, 5}, {127, 40000}, {32760, 32760}};
    for (size_t i = 0; i < LT_COUNT(sizes); i++) {
        lt_plan *p;
        assert_int_equal(lt_plan_dense(&p, f->dev, sizes[i][0], sizes[i][1], 12), LT_OK);
        assert_true(lt_plan_density(p) == 1.0);
        assert_int_equal(lt_plan_lq(p), sizes[i][0]);
        assert_int_equal(lt_plan_lk(p), sizes[i][1]);
        lt_plan_destroy(&p);
    }
    lt_plan *p;
    assert_int_equal(lt_plan_dense(&p, f->dev, 0, 4, 1), LT_ERR_ARG);
    assert_null(p);
    assert_int_equal(lt_plan_dense(&p, f->dev, 4, 0, 1), LT_ERR_ARG);
    assert_int_equal(lt_plan_dense(&p, f->dev, 4, 4, 0), LT_ERR_ARG);
}

/* Every allocation fails once: a status, nothing left behind (tear_down looks). */
static void survives_a_full_device(void **state)
{
    const fixture *f = *state;
    for (int64_t nth = 1; nth <= 4; nth++) {
        lt_plan *p;
        lti_dev_fail_alloc(f->dev, nth);
        assert_int_equal(lt_plan_create(&p, f->dev, &good), LT_ERR_MEM);
        assert_null(p);
    }
    for (int64_t nth = 1; nth <= 3; nth++) {
        lt_rope_tables t;
        lti_dev_fail_alloc(f->dev, nth);
        assert_int_equal(lt_rope_tables_create(&t, f->dev, 24, (const int32_t[]){2, 2, 2}, 10000),
                         LT_ERR_MEM);
        assert_null(t.table[0]);
    }
    lti_dev_fail_alloc(f->dev, 0);
}

enum { ROWS = 9, TEXT = 512, HEADS = 2, DIM = 16, COLS = HEADS * DIM };

static void *upload(const fixture *f, const float *host, size_t n)
{
    void *p;
    assert_int_equal(lt_dev_alloc(f->dev, &p, n * sizeof *host, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_upload(f->dev, p, host, n * sizeof *host), LT_OK);
    return p;
}

static void attend(const fixture *f, float *out, const float *q, const float *k, const float *v,
                   const lt_plan *p)
{
    const size_t nq = (size_t)ROWS * COLS, nk = (size_t)lt_plan_lk(p) * COLS;
    void *dq = upload(f, q, nq), *dk = upload(f, k, nk), *dv = upload(f, v, nk), *dout;
    assert_int_equal(lt_dev_alloc(f->dev, &dout, nq * sizeof *out, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_attention(f->dev, &(lt_attention_args){.out = {dout, LT_F32, 0},
                                                               .q = {dq, LT_F32, 0},
                                                               .k = {dk, LT_F32, 0},
                                                               .v = {dv, LT_F32, 0},
                                                               .lq = ROWS,
                                                               .lk = lt_plan_lk(p),
                                                               .heads = HEADS,
                                                               .head_dim = DIM,
                                                               .scale = 0.25f,
                                                               .plan = lt_plan_kernel(p)}),
                     LT_OK);
    assert_int_equal(lt_dev_download(f->dev, out, dout, nq * sizeof *out), LT_OK);
    lt_dev_free(f->dev, dq);
    lt_dev_free(f->dev, dk);
    lt_dev_free(f->dev, dv);
    lt_dev_free(f->dev, dout);
}

/* 512 keys of which the last `padding` are equal, and the same with those folded into one. */
static void text_plan_is_all_512_keys(void **state)
{
    const fixture *f = *state;
    static const int64_t real[] = {511, 77, 1, 0, 512};
    float *x = malloc((size_t)(ROWS + 2 * TEXT) * COLS * sizeof *x);
    assert_non_null(x);
    float *q = x, *k = q + ROWS * COLS, *v = k + TEXT * COLS;
    for (size_t i = 0; i < LT_COUNT(real); i++) {
        uint32_t random = 1;
        for (int n = 0; n < (ROWS + 2 * TEXT) * COLS; n++) {
            random = random * 1664525u + 1013904223u;
            x[n] = (float)(int32_t)random * 0x1p-30f;
        }
        for (int64_t r = real[i]; r < TEXT; r++) {
            memcpy(k + r * COLS, k + real[i] * COLS, COLS * sizeof *k);
            memcpy(v + r * COLS, v + real[i] * COLS, COLS * sizeof *v);
        }
        lt_plan *all, *folded;
        float want[ROWS * COLS], got[ROWS * COLS];
        assert_int_equal(lt_plan_dense(&all, f->dev, ROWS, TEXT, HEADS), LT_OK);
        assert_int_equal(lt_plan_text(&folded, f->dev, ROWS, real[i], TEXT - real[i], HEADS),
                         LT_OK);
        assert_int_equal(lt_plan_lk(folded), real[i] + (real[i] < TEXT));
        attend(f, want, q, k, v, all);
        attend(f, got, q, k, v, folded);
        for (int n = 0; n < ROWS * COLS; n++)
            assert_true(fabsf(want[n] - got[n]) <= 5e-6f); /* of values up to 2 */
        lt_plan_destroy(&all);
        lt_plan_destroy(&folded);
    }
    free(x);
    lt_plan *p;
    assert_int_equal(lt_plan_text(&p, f->dev, 1, 0, 0, 1), LT_ERR_ARG);
    assert_string_equal(lt_error(f->ctx), "plan: a text of 0 rows and 0 of padding");
    assert_int_equal(lt_plan_text(&p, f->dev, 1, -1, 4, 1), LT_ERR_ARG);
    assert_int_equal(lt_plan_text(&p, f->dev, 1, 2, INT64_MAX, 1),
                     LT_OK); /* their sum is no number */
    assert_int_equal(lt_plan_lk(p), 3);
    lt_plan_destroy(&p);
}

static void rope_sections(void **state)
{
    const fixture *f = *state;
    static const int want[][4] = {
        {128, 22, 21, 21}, {64, 12, 10, 10}, {24, 4, 4, 4}, {12, 2, 2, 2}, {2, 1, 0, 0}};
    for (size_t i = 0; i < LT_COUNT(want); i++) {
        lt_rope_tables t;
        assert_int_equal(
            lt_rope_tables_create(&t, f->dev, want[i][0], (const int32_t[]){3, 2, 1}, 10000),
            LT_OK);
        for (int a = 0; a < 3; a++)
            assert_int_equal(t.pairs[a], want[i][a + 1]);
        lt_rope_tables_destroy(&t);
        lt_rope_tables_destroy(&t);
    }
    lt_rope_tables t;
    assert_int_equal(lt_rope_tables_create(&t, f->dev, 15, (const int32_t[]){1, 1, 1}, 10000),
                     LT_ERR_ARG);
    assert_int_equal(lt_rope_tables_create(&t, f->dev, 16, (const int32_t[]){1, 0, 1}, 10000),
                     LT_ERR_ARG);
    assert_string_equal(lt_error(f->ctx), "rotary table: 0 positions on axis 1");
    assert_int_equal(lt_rope_tables_create(&t, f->dev, 16, (const int32_t[]){1, 1, 1}, 0),
                     LT_ERR_ARG);
}

static void rope_values(void **state)
{
    const fixture *f = *state;
    enum { MAX = 1024, PAIRS = 22 };
    lt_rope_tables t;
    assert_int_equal(
        lt_rope_tables_create(&t, f->dev, 128, (const int32_t[]){MAX, MAX, MAX}, 10000), LT_OK);
    float *table = malloc(MAX * PAIRS * 2 * sizeof *table);
    assert_non_null(table);
    assert_int_equal(lt_dev_download(f->dev, table, t.table[0], MAX * PAIRS * 2 * sizeof *table),
                     LT_OK);
    assert_true(table[0] == 1 && table[1] == 0);
    const struct {
        int pos, pair;
    } at[] = {{1, 0}, {1023, 0}, {1023, 1}, {7, 21}, {500, 11}};
    for (size_t i = 0; i < LT_COUNT(at); i++) {
        const double angle = at[i].pos * pow(10000, -2.0 * at[i].pair / 44);
        const float *cs = table + (at[i].pos * PAIRS + at[i].pair) * 2;
        assert_true(cs[0] == (float)cos(angle) && cs[1] == (float)sin(angle));
    }
    free(table);
    lt_rope_tables_destroy(&t);
}

/* Spec of autoregressive generation, 17.2: what a step of one place turns a pair by, head size 128. */
static void rope_frequencies(void **state)
{
    const fixture *f = *state;
    static const struct {
        int axis, pair;
        double turn;
    } want[] = {{0, 0, 1},
                {0, 1, 0.657933224657568},
                {0, 21, 1.519911082952933e-4},
                {1, 1, 0.6449466771037624},
                {2, 20, 1.5505157798326253e-4}};
    lt_rope_tables t;
    float table[3][2 * 22 * 2];
    assert_int_equal(lt_rope_tables_create(&t, f->dev, 128, (const int32_t[]){2, 2, 2}, 10000),
                     LT_OK);
    for (int a = 0; a < 3; a++)
        assert_int_equal(lt_dev_download(f->dev, table[a], t.table[a],
                                         (size_t)(2 * t.pairs[a] * 2) * sizeof(float)),
                         LT_OK);
    for (size_t i = 0; i < LT_COUNT(want); i++) {
        const float *cs = table[want[i].axis] + (t.pairs[want[i].axis] + want[i].pair) * 2;
        const double turn = atan2((double)cs[1], (double)cs[0]);
        assert_true(fabs(turn / want[i].turn - 1) < 2e-7);
    }
    lt_rope_tables_destroy(&t);
}

static void positions_follow_the_grid(void **state)
{
    (void)state;
    const lt_grid g = {.frames = 3, .rows = 2, .cols = 4};
    int32_t pos[24][3];
    assert_int_equal(lt_grid_tokens(g), 24);
    lt_grid_positions(g, 6, pos[0]);
    for (int32_t n = 0; n < 24; n++) {
        assert_int_equal(pos[n][0], 6 + n / 8);
        assert_int_equal(pos[n][1], n / 4 % 2);
        assert_int_equal(pos[n][2], n % 4);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(accepts_what_is_right),  T(refuses_tiles),
                                       T(refuses_runs),           T(dense_reads_everything),
                                       T(survives_a_full_device), T(text_plan_is_all_512_keys),
                                       T(rope_sections),          T(rope_values),
                                       T(rope_frequencies),       T(positions_follow_the_grid)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
