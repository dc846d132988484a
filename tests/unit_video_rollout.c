/* unit_video_rollout.c: blocks drawn one after the other: the same bits on every device and thread count and with guidance in one
 * pass or two; what was drawn does not depend on what follows; drawing again; whole sessions in constant memory; refusals. */
#include "tests/tiny_world.h"
#include "video/model_internal.h"
#include "video/rollout.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { W = 48, H = 32, FRAME_BYTES = W * H * 3, LONG = 1 + 4 * 40 };

static lt_session_options options(int32_t frames)
{
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball bounces on green grass";
    o.seed = 7;
    o.width = W;
    o.height = H;
    o.num_frames = frames;
    o.mode = LT_MODE_AR;
    o.cache = "infinity-rope:window=5,block=2";
    return o;
}

/* A hash of the first `most` frames; the report at the end. */
static uint64_t render(world *w, const lt_session_options *o, int64_t most, lt_session_report *r)
{
    lt_session *s;
    lt_frames f;
    lt_status st;
    uint64_t hash = 0xcbf29ce484222325u;
    int64_t frames = 0;
    if (lt_session_create(&s, w->model, o) < 0) fail_msg("%s", lt_error(w->ctx));
    while ((st = lt_session_next(s, &f)) == LT_OK) {
        assert_int_equal(f.first, frames);
        for (int64_t i = 0; i < f.count * FRAME_BYTES && frames < most; i++)
            hash = (hash ^ f.rgb[i]) * 0x100000001b3u;
        frames += f.count;
    }
    if (st != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(frames, o->num_frames);
    if (r) lt_session_get_report(s, r);
    lt_session_destroy(&s);
    return hash;
}

static void same_bits_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int threads;
        lt_cfg_mode cfg;
    } cases[] = {{"cpu", 1, LT_CFG_BATCH},
                 {"cpu", 2, LT_CFG_SERIAL},
                 {"guard", 2, LT_CFG_BATCH},
                 {"guard", 1, LT_CFG_SERIAL}};
    uint64_t first = 0;
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        world w;
        lt_session_report r;
        lt_session_options o = options(17);
        o.cfg_mode = cases[i].cfg;
        open_world(&w, cases[i].device, cases[i].threads, LT_F32);
        const uint64_t hash = render(&w, &o, 17, &r);
        assert_int_equal(r.step_allocs, 0);
        assert_int_equal(r.blocks, 3); /* 5 latent frames: the last block is not used up */
        assert_int_equal(r.dit_passes, (3 * r.steps + 2) * 2); /* two branches */
        if (i) assert_int_equal(hash, first);
        first = hash;
        close_world(&w);
    }
}

/* The first frame is that of a whole block drawn with it; what follows is drawn after it. */
static void a_first_frame_out_of_a_block(void **state)
{
    (void)state;
    world w;
    lt_session_report r;
    lt_session_options o = options(25);
    uint64_t whole, part, alone;
    open_world(&w, "cpu", 2, LT_F32);
    o.cache = "self-forcing:window=7";
    whole = render(&w, &o, 1, NULL);
    o.cache = "self-forcing:window=7,first=1,first-of=3";
    part = render(&w, &o, 1, &r);
    assert_int_equal(r.blocks, 3); /* of 1, 3 and 3 latent frames */
    assert_int_equal(r.step_allocs, 0);
    o.cache = "self-forcing:window=7,first=1";
    alone = render(&w, &o, 1, NULL);
    assert_int_equal(part, whole);
    assert_int_not_equal(part, alone);
    o.cache = "self-forcing:window=7,first=2,first-of=3";
    assert_int_equal(render(&w, &o, 1, NULL), whole);
    o.cache = "self-forcing:window=7,block=5";
    whole = render(&w, &o, 1, NULL);
    o.cache = "self-forcing:window=7,first=1,first-of=5"; /* more than a block */
    assert_int_equal(render(&w, &o, 1, NULL), whole);
    close_world(&w);
}

/* What has been shown does not depend on how long the video will be. */
static void a_longer_video_begins_the_same(void **state)
{
    (void)state;
    world w;
    open_world(&w, "cpu", 2, LT_F32);
    lt_session_options o = options(9), longer = options(29);
    assert_int_equal(render(&w, &o, 9, NULL), render(&w, &longer, 9, NULL));
    longer.seed = 8;
    assert_int_not_equal(render(&w, &o, 9, NULL), render(&w, &longer, 9, NULL));
    close_world(&w);
}

typedef struct watch {
    lt_dev *dev;
    uint64_t early; /* most bytes in use by the 20th block */
} watch;

static void look(void *user, const lt_progress *p)
{
    watch *w = user;
    lt_mem_stats m;
    lt_dev_mem_stats(w->dev, &m);
    if (p->phase == LT_PHASE_DENOISE && p->step <= 10) w->early = m.peak_total;
}

static void memory_is_constant(void **state)
{
    (void)state;
    world w;
    lt_mem_stats m;
    open_world(&w, "cpu", 2, LT_F32);
    watch see = {.dev = w.dev};
    lt_session_report r;
    lt_session_options o = options(LONG);
    o.progress = look;
    o.progress_user = &see;
    render(&w, &o, 0, &r);
    lt_dev_mem_stats(w.dev, &m);
    assert_int_equal(m.peak_total, see.early);
    assert_int_equal(r.step_allocs, 0);
    assert_int_equal(r.blocks, 21);
    assert_true(r.cache_bytes > 0 && r.cache_bytes <= m.peak_bytes[LT_TAG_KV]);
    close_world(&w);
}

/* ---- blocks ---- */

enum { LH = 4, LW = 6, BLOCK = 2, ROWS = 3 };

static lti_rollout *open_rollout(const world *w, const char *policy, bool renoise)
{
    static const float list[] = {1000, 750, 500};
    const lti_dit_config *c = lti_dit_get_config(w->model->dit);
    float *text = malloc((size_t)(2 * ROWS * c->text_dim) * sizeof *text);
    for (int i = 0; i < 2 * ROWS * c->text_dim; i++)
        text[i] = tiny_random("text", i);
    lt_scheduler_options schedule = lt_scheduler_options_default();
    schedule.solver = renoise ? LT_SOLVER_RENOISE : LT_SOLVER_UNIPC;
    schedule.steps = 3;
    schedule.list = renoise ? list : NULL;
    schedule.list_len = LT_COUNT(list);
    lti_rollout_options o = {.dit = w->model->dit,
                             .h = LH,
                             .w = LW,
                             .schedule = &schedule,
                             .guidance = renoise ? 1 : 3,
                             .cond = text,
                             .cond_rows = ROWS,
                             .uncond = text + ROWS * c->text_dim,
                             .uncond_rows = ROWS,
                             .seed = 5};
    lti_rollout *r;
    assert_int_equal(lt_cache_policy_parse(&o.policy, w->ctx, policy), LT_OK);
    if (lti_rollout_create(&r, &o) < 0) fail_msg("%s", lt_error(w->ctx));
    free(text);
    return r;
}

static void draw(const world *w, lti_rollout *r, int32_t attempt, float *latent)
{
    const size_t n = (size_t)lti_dit_get_config(w->model->dit)->in_channels * BLOCK * LH * LW;
    if (lti_rollout_draw(r, attempt) < 0) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(lti_rollout_frames(r), BLOCK);
    assert_int_equal(lt_dev_download(w->dev, latent, lti_rollout_latent(r), n * sizeof(float)),
                     LT_OK);
}

/* Blocks drawn several times, then kept, are those of a rollout that drew each once; another attempt is another block. */
static void drawing_again(void **state)
{
    (void)state;
    static const char *const policy[] = {"longlive:window=6,sink=1,block=2",
                                         "infinity-rope:block=2,context-time=20"};
    enum { MOST = 48 * BLOCK * LH * LW, BLOCKS = 4 };
    static float want[BLOCKS][MOST], got[MOST];
    world w;
    open_world(&w, "cpu", 1, LT_F32);
    const size_t n =
        (size_t)lti_dit_get_config(w.model->dit)->in_channels * BLOCK * LH * LW * sizeof(float);
    assert_true(n <= sizeof got);
    for (int i = 0; i < 4; i++)
        for (int again = 0; again < 2; again++) {
            lti_rollout *r = open_rollout(&w, policy[i % 2], i < 2);
            for (int b = 0; b < BLOCKS; b++) {
                if (again) {
                    draw(&w, r, 1, got);
                    assert_memory_not_equal(got, want[b], n);
                    draw(&w, r, 0, got);
                    assert_memory_equal(got, want[b], n);
                }
                draw(&w, r, 0, again ? got : want[b]);
                if (again) assert_memory_equal(got, want[b], n);
                assert_int_equal(lti_rollout_block(r), b);
                if (lti_rollout_keep(r) < 0) fail_msg("%s", lt_error(w.ctx));
            }
            assert_int_equal(lti_rollout_keep(r), LT_ERR_ARG);
            assert_int_equal(lti_rollout_draw(r, 256), LT_ERR_ARG);
            lti_rollout_destroy(&r);
        }
    close_world(&w);
}

/* ---- refusals and cancelling ---- */

static void refused(const world *w, const lt_session_options *o, const char *says)
{
    lt_session *s;
    assert_int_equal(lt_session_create(&s, w->model, o), LT_ERR_ARG);
    assert_null(s);
    if (!strstr(lt_error(w->ctx), says))
        fail_msg("\"%s\" does not say \"%s\"", lt_error(w->ctx), says);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    world w;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options(9);
    o.cache = "shortlive";
    refused(&w, &o, "no preset \"shortlive\"");
    o = options(9);
    o.mode = LT_MODE_CLIP;
    refused(&w, &o, "only mode ar keeps one");
    o = options(9);
    o.mode = (lt_mode)9;
    refused(&w, &o, "mode 9");
    o = options(10);
    refused(&w, &o, "num_frames 10");
    close_world(&w);
}

static void stop_at(void *user, const lt_progress *p)
{
    if (p->phase == LT_PHASE_DENOISE && p->step == 2) lt_session_cancel(*(lt_session **)user);
}

static void cancelling_ends_a_session(void **state)
{
    (void)state;
    world w;
    lt_session *s;
    lt_frames f;
    lt_status st;
    open_world(&w, "cpu", 2, LT_F32);
    lt_session_options o = options(29);
    o.progress = stop_at;
    o.progress_user = &s;
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_OK);
    int groups = 0;
    while ((st = lt_session_next(s, &f)) == LT_OK)
        groups++;
    assert_int_equal(st, LT_ERR_CANCELLED);
    assert_int_equal(groups, 2); /* those of the first block */
    lt_session_destroy(&s);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(a_first_frame_out_of_a_block),
        cmocka_unit_test(a_longer_video_begins_the_same),
        cmocka_unit_test(memory_is_constant),
        cmocka_unit_test(drawing_again),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(cancelling_ends_a_session),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
