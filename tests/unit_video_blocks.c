/* unit_video_blocks.c: a rollout that goes on and on: a thousand blocks take the memory and the time of the first; frames that are written
 * again under another prompt are those of a rollout that had it from the beginning, as far as it can be; a renewal that is cut short. */
#include "tests/sorted.h"
#include "tests/tiny_model.h"
#include "video/model_internal.h"
#include "video/rollout_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LH = 4, LW = 6, BLOCK = 2, ROWS = 3, BLOCKS = 1000, MOST = 48 * BLOCK * LH * LW };

static char folder[] = "/tmp/longtake-blocks-XXXXXX";

typedef struct world {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_model *model;
    float *text; /* two prompts */
    size_t row;
    atomic_bool cancel;
} world;

static void open_world(world *w)
{
    lt_dev_options d = lt_dev_options_default();
    d.device = "cpu";
    d.threads = 1;
    assert_int_equal(lt_ctx_create(&w->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&w->dev, w->ctx, &d), LT_OK);
    const lt_model_options o = {.path = folder, .dtype = LT_F32};
    if (lt_model_open(&w->model, w->dev, &o) < 0) fail_msg("%s", lt_error(w->ctx));
    w->row = (size_t)lti_dit_get_config(w->model->dit)->text_dim;
    w->text = malloc(2 * ROWS * w->row * sizeof *w->text);
    for (size_t i = 0; i < 2 * ROWS * w->row; i++)
        w->text[i] = tiny_random("text", (int64_t)i);
    atomic_init(&w->cancel, false);
}

static void close_world(world *w)
{
    free(w->text);
    lt_model_close(&w->model);
    lt_mem_stats m;
    lt_dev_mem_stats(w->dev, &m);
    assert_int_equal(m.live_total, m.live_bytes[LT_TAG_SCRATCH]);
    lt_dev_destroy(&w->dev);
    lt_ctx_destroy(&w->ctx);
}

static const float *prompt(const world *w, int which)
{
    return w->text + (size_t)which * ROWS * w->row;
}

static lti_rollout *open_rollout(world *w, const char *policy, int which, double guidance)
{
    static const float list[] = {1000, 500};
    lt_scheduler_options schedule = lt_scheduler_options_default();
    schedule.solver = LT_SOLVER_RENOISE;
    schedule.list = list;
    schedule.list_len = LT_COUNT(list);
    lti_rollout_options o = {.dit = w->model->dit,
                             .h = LH,
                             .w = LW,
                             .schedule = &schedule,
                             .guidance = guidance,
                             .cond = prompt(w, which),
                             .cond_rows = ROWS,
                             .uncond = prompt(w, 1 - which),
                             .uncond_rows = ROWS,
                             .seed = 5,
                             .cancel = &w->cancel};
    lti_rollout *r;
    assert_int_equal(lt_cache_policy_parse(&o.policy, w->ctx, policy), LT_OK);
    if (lti_rollout_create(&r, &o) < 0) fail_msg("%s", lt_error(w->ctx));
    return r;
}

static void draw(const world *w, lti_rollout *r, float *latent)
{
    const size_t n =
        (size_t)lti_dit_get_config(w->model->dit)->in_channels * LH * LW * sizeof(float);
    if (lti_rollout_draw(r, 0) < 0) fail_msg("%s", lt_error(w->ctx));
    if (latent)
        assert_int_equal(lt_dev_download(w->dev, latent, lti_rollout_latent(r),
                                         n * (size_t)lti_rollout_frames(r)),
                         LT_OK);
}

static void keep(const world *w, lti_rollout *r)
{
    if (lti_rollout_keep(r) < 0) fail_msg("%s", lt_error(w->ctx));
}

/* Times are printed, not judged: the machine may be busy. */
static void a_thousand_blocks_are_alike(void **state)
{
    (void)state;
    static double seconds[BLOCKS];
    world w;
    lt_mem_stats m, warm = {0};
    open_world(&w);
    lti_rollout *r = open_rollout(&w, "longlive:window=6,sink=1,block=2", 0, 1);
    for (int b = 0; b < BLOCKS; b++) {
        const double start = lti_now();
        draw(&w, r, NULL);
        keep(&w, r);
        seconds[b] = lti_now() - start;
        lt_dev_mem_stats(w.dev, &m);
        if (b == 5) warm = m;
        if (b > 5) {
            assert_int_equal(m.live_total, warm.live_total);
            assert_int_equal(m.peak_total, warm.peak_total);
            assert_int_equal(m.alloc_calls, warm.alloc_calls);
        }
    }
    assert_int_equal(lti_rollout_block(r), BLOCKS);
    assert_int_equal(lt_cache_next_frame(lti_rollout_cache(r, false)), BLOCKS * BLOCK);
    assert_true(lti_rollout_density(r) < 0.01);
    double late = 0, early = 0;
    for (int b = 0; b < 100; b++) {
        early += seconds[10 + b] / 100;
        late += seconds[BLOCKS - 100 + b] / 100;
    }
    sort_doubles(seconds + 6, BLOCKS - 6);
    print_message("block time: median %.3f ms, p99 / median %.2f, last 100 / first 100 %.2f\n",
                  1e3 * seconds[BLOCKS / 2],
                  seconds[6 + (BLOCKS - 6) * 99 / 100] / seconds[BLOCKS / 2], late / early);
    lti_rollout_destroy(&r);
    close_world(&w);
}

/* While the window holds the whole video, recaching leaves no trace of the old prompt: what is drawn next is what a rollout draws whose
 * first frames were given, under the new prompt, block after block. */
static void recached_frames_are_as_if_given(void **state)
{
    (void)state;
    static const char *const policy = "self-forcing:window=6,block=2";
    static float first[2][MOST], got[MOST], want[MOST], kept[MOST];
    world w;
    open_world(&w);
    for (int guided = 0; guided < 2; guided++) {
        lti_rollout *a = open_rollout(&w, policy, 0, guided ? 3 : 1);
        lti_rollout *b = open_rollout(&w, policy, 1, guided ? 3 : 1);
        const size_t bytes =
            (size_t)lti_dit_get_config(w.model->dit)->in_channels * BLOCK * LH * LW * sizeof(float);
        float *dev;
        assert_int_equal(lt_dev_alloc(w.dev, (void **)&dev, bytes, LT_TAG_TEST), LT_OK);
        for (int k = 0; k < 2; k++) {
            draw(&w, a, first[k]);
            keep(&w, a);
            assert_int_equal(lt_dev_upload(w.dev, dev, first[k], bytes), LT_OK);
            assert_int_equal(lti_rollout_give(b, dev, BLOCK), LT_OK);
        }
        lt_dev_free(w.dev, dev);
        lti_rollout *plain =
            open_rollout(&w, policy, 0, guided ? 3 : 1); /* as a, without the change */
        for (int k = 0; k < 2; k++) {
            draw(&w, plain, got);
            assert_memory_equal(got, first[k], bytes);
            keep(&w, plain);
        }
        draw(&w, plain, kept);
        assert_int_equal(lti_rollout_prompt(a, prompt(&w, 1), ROWS, true), LT_OK);
        draw(&w, a, got);
        assert_memory_not_equal(got, kept, bytes);
        if (!guided) {
            /* b counts given frames as no blocks, so its noise is another: compare what the caches hold */
            const lt_cache *ca = lti_rollout_cache(a, false), *cb = lti_rollout_cache(b, false);
            const lt_mat ma = lt_cache_layer(ca, 1), mb = lt_cache_layer(cb, 1);
            const size_t rows = (size_t)(lt_cache_rows(ca) / 6 * 4) * (size_t)ma.ld * sizeof(float);
            float *ha = malloc(rows), *hb = malloc(rows);
            assert_int_equal(lt_dev_download(w.dev, ha, ma.data, rows), LT_OK);
            assert_int_equal(lt_dev_download(w.dev, hb, mb.data, rows), LT_OK);
            assert_memory_equal(ha, hb, rows);
            free(ha);
            free(hb);
        }
        assert_int_equal(lti_rollout_prompt(a, prompt(&w, 0), ROWS, true), LT_ERR_ARG); /* drawn */
        keep(&w, a);
        draw(&w, a, want);
        draw(&w, a, got); /* not renewed a second time */
        assert_memory_equal(got, want, bytes);
        lti_rollout_destroy(&a);
        lti_rollout_destroy(&b);
        lti_rollout_destroy(&plain);
    }
    close_world(&w);
}

typedef struct contents {
    lt_cache_frame list[6];
    int32_t count;
    int64_t next;
    float *rows[2]; /* of the first layer and the last */
    size_t bytes;
} contents;

static contents look(const world *w, const lti_rollout *r, bool uncond)
{
    const lt_cache *c = lti_rollout_cache(r, uncond);
    contents a = {.next = lt_cache_next_frame(c)};
    const lt_cache_frame *l = lt_cache_kept(c, &a.count);
    memcpy(a.list, l, (size_t)a.count * sizeof *l);
    for (int i = 0; i < 2; i++) {
        const lt_mat m = lt_cache_layer(c, i ? lti_dit_get_config(w->model->dit)->layers - 1 : 0);
        a.bytes = (size_t)(lt_cache_rows(c) / 6 * a.count) * (size_t)m.ld * sizeof(float);
        a.rows[i] = malloc(a.bytes);
        assert_int_equal(lt_dev_download(w->dev, a.rows[i], m.data, a.bytes), LT_OK);
    }
    return a;
}

static bool same_rows(const contents *a, const contents *b)
{
    return a->bytes == b->bytes && !memcmp(a->rows[0], b->rows[0], a->bytes) &&
           !memcmp(a->rows[1], b->rows[1], a->bytes);
}

static void forget(contents *c)
{
    for (int i = 0; i < 2; i++)
        free(c->rows[i]);
}

/* Spec 17.7: the clean pass of a block, run once more, changes neither the list of frames nor their slots nor what is in them. */
static void a_second_clean_pass_changes_nothing(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    lti_rollout *r = open_rollout(&w, "self-forcing:window=6,block=2", 0, 1);
    for (int k = 0; k < 2; k++) {
        draw(&w, r, NULL);
        keep(&w, r);
    }
    contents first = look(&w, r, false);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(lti_rollout_prompt(r, prompt(&w, 0), ROWS, true), LT_OK);
        assert_int_equal(lti_rollout_renew(r, BLOCK), LT_OK);
        contents now_there = look(&w, r, false);
        assert_int_equal(now_there.next, first.next);
        assert_int_equal(now_there.count, first.count);
        for (int32_t i = 0; i < first.count; i++) {
            assert_int_equal(now_there.list[i].frame, first.list[i].frame);
            assert_int_equal(now_there.list[i].slot, first.list[i].slot);
        }
        assert_true(same_rows(&now_there, &first));
        forget(&now_there);
    }
    forget(&first);
    lti_rollout_destroy(&r);
    close_world(&w);
}

/* Two branches that have come to have one prompt: a prompt alone renews its own branch, changed pictures renew both, and then they hold
 * the same. */
static void changed_frames_are_seen_by_all_branches(void **state)
{
    (void)state;
    static const char *const policies[] = {"self-forcing:window=6,block=2",
                                           "self-forcing:window=6,block=2,context-time=30"};
    world w;
    open_world(&w);
    const int32_t channels = lti_dit_get_config(w.model->dit)->in_channels;
    float scale[64], offset[64];
    for (int32_t c = 0; c < channels; c++) {
        scale[c] = 1.1f;
        offset[c] = c % 2 ? 0.5f : -0.5f;
    }
    for (size_t i = 0; i < LT_COUNT(policies); i++) {
        lti_rollout *r = open_rollout(&w, policies[i], 0, 2);
        for (int k = 0; k < 2; k++) {
            draw(&w, r, NULL);
            keep(&w, r);
        }
        contents first = look(&w, r, true);
        assert_int_equal(lti_rollout_prompt(r, prompt(&w, 1), ROWS, true), LT_OK);
        assert_int_equal(lti_rollout_renew(r, BLOCK), LT_OK);
        contents renewed = look(&w, r, true);
        assert_true(same_rows(&first, &renewed));
        assert_int_equal(lti_rollout_change_kept(r, scale, offset, false), LT_OK);
        assert_int_equal(lti_rollout_renew(r, BLOCK), LT_OK);
        contents cond = look(&w, r, false), uncond = look(&w, r, true);
        assert_false(same_rows(&uncond, &first));
        assert_true(same_rows(&uncond, &cond));
        forget(&first);
        forget(&renewed);
        forget(&cond);
        forget(&uncond);
        lti_rollout_destroy(&r);
    }
    close_world(&w);
}

/* Nothing of a shot is in the next one: after shots of other prompts the same bits follow. */
static void a_cut_forgets_everything(void **state)
{
    (void)state;
    static float got[2][2][MOST];
    world w;
    open_world(&w);
    const size_t bytes =
        (size_t)lti_dit_get_config(w.model->dit)->in_channels * BLOCK * LH * LW * sizeof(float);
    for (int sink = 0; sink < 2; sink++) {
        const char *const policy[] = {
            "self-forcing:window=6,block=2,first=1,first-of=3,switch=cut",
            "longlive:window=7,sink=2,block=2,first=1,first-of=3,switch=cut"};
        for (int which = 0; which < 2; which++) {
            lti_rollout *r = open_rollout(&w, policy[sink], 0, 2);
            int32_t n;
            assert_int_equal(lti_rollout_prompt(r, prompt(&w, which), ROWS, false), LT_OK);
            for (int k = 0; k < 4; k++) {
                draw(&w, r, NULL);
                keep(&w, r);
            }
            const int64_t next = lt_cache_next_frame(lti_rollout_cache(r, false));
            assert_int_equal(lti_rollout_prompt(r, prompt(&w, 0), ROWS, true), LT_OK);
            draw(&w, r, got[which][0]);
            const lt_cache_frame *list = lt_cache_kept(lti_rollout_cache(r, false), &n);
            assert_int_equal(n, 1);
            assert_int_equal(list[0].frame, next - 1);
            assert_int_equal(list[0].pinned, sink);
            assert_int_equal(lti_rollout_frames(r), BLOCK);
            draw(&w, r, got[which][1]); /* no second cut */
            assert_memory_equal(got[which][1], got[which][0], bytes);
            keep(&w, r);
            assert_int_equal(lt_cache_next_frame(lti_rollout_cache(r, false)), next + BLOCK);
            list = lt_cache_kept(lti_rollout_cache(r, false), &n);
            assert_int_equal(n, 1 + BLOCK); /* the shot has a sink as a video has */
            assert_true(list[1].pinned == sink && !list[2].pinned);
            draw(&w, r, got[which][1]);
            lti_rollout_destroy(&r);
        }
        assert_memory_equal(got[0][0], got[1][0], bytes);
        assert_memory_equal(got[0][1], got[1][1], bytes);
    }
    close_world(&w);
}

/* A shot whose opening came out broken would come out so again with the same noise. */
static void an_opening_drawn_again_is_another(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    contents opened[3];
    for (int i = 0; i < 3; i++) {
        lti_rollout *r = open_rollout(&w, "self-forcing:window=6,block=2,first=1,switch=cut", 0, 1);
        draw(&w, r, NULL);
        keep(&w, r);
        assert_int_equal(lti_rollout_prompt(r, prompt(&w, 1), ROWS, true), LT_OK);
        assert_int_equal(lti_rollout_draw(r, i / 2), LT_OK);
        opened[i] = look(&w, r, false);
        assert_int_equal(opened[i].count, 1);
        lti_rollout_destroy(&r);
    }
    assert_true(same_rows(&opened[0], &opened[1]));
    assert_false(same_rows(&opened[0], &opened[2]));
    for (int i = 0; i < 3; i++)
        forget(&opened[i]);
    close_world(&w);
}

/* Cancelled at its first pass, then drawn again: the same bits. */
static void can_begin_again(const char *policy)
{
    static float want[MOST], got[MOST];
    world w;
    open_world(&w);
    const size_t bytes =
        (size_t)lti_dit_get_config(w.model->dit)->in_channels * BLOCK * LH * LW * sizeof(float);
    for (int again = 0; again < 2; again++) {
        lti_rollout *r = open_rollout(&w, policy, 0, 1);
        for (int k = 0; k < 6; k++) {
            draw(&w, r, NULL);
            keep(&w, r);
        }
        assert_int_equal(lti_rollout_prompt(r, prompt(&w, 1), ROWS, true), LT_OK);
        if (again) {
            atomic_store(&w.cancel, true);
            assert_int_equal(lti_rollout_draw(r, 0), LT_ERR_CANCELLED);
            assert_false(lti_rollout_drawn(r));
            atomic_store(&w.cancel, false);
        }
        draw(&w, r, again ? got : want);
        lti_rollout_destroy(&r);
    }
    assert_memory_equal(got, want, bytes);
    close_world(&w);
}

static void a_renewal_can_begin_again(void **state)
{
    (void)state;
    can_begin_again("longlive:window=7,sink=1,block=2,context-time=30");
    can_begin_again("longlive:window=7,sink=1,block=2,context-time=30,switch=cut");
}

static int make_model(void **state)
{
    (void)state;
    return mkdtemp(folder) && tiny_model_write(folder, 1) ? 0 : -1;
}

static int remove_model(void **state)
{
    (void)state;
    tiny_model_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_blocks_are_alike),
        cmocka_unit_test(recached_frames_are_as_if_given),
        cmocka_unit_test(a_cut_forgets_everything),
        cmocka_unit_test(an_opening_drawn_again_is_another),
        cmocka_unit_test(a_renewal_can_begin_again),
        cmocka_unit_test(a_second_clean_pass_changes_nothing),
        cmocka_unit_test(changed_frames_are_seen_by_all_branches),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
