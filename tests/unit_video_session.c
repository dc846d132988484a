/* unit_video_session.c: whole renders of a tiny model. The same bits on plain memory and on the guard device, with one thread and two,
 * with guidance in one batch and in two passes; a given first frame stays; cancelling, bad numbers and failing allocations end in a
 * status; a step allocates nothing. */
#include "kernels/internal.h"
#include "tests/tiny_world.h"
#include "video/model_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { W = 48, H = 32, FRAMES = 9, FRAME_BYTES = W * H * 3 };

static lt_session_options options(void)
{
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball bounces on green grass";
    o.seed = 7;
    return o;
}

/* All frames; the session stays open. */
static lt_status pull(lt_session *s, uint8_t *video, int *frames)
{
    lt_frames f;
    *frames = 0;
    for (;;) {
        const lt_status st = lt_session_next(s, &f);
        if (st != LT_OK) return st;
        assert_int_equal(f.first, *frames);
        assert_int_equal(f.width, W);
        assert_int_equal(f.height, H);
        assert_true(*frames + f.count <= FRAMES);
        memcpy(video + (size_t)*frames * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
        *frames += f.count;
    }
}

static void render(world *w, const lt_session_options *o, uint8_t *video, lt_session_report *r)
{
    lt_session *s;
    int frames;
    if (lt_session_create(&s, w->model, o) < 0) fail_msg("%s", lt_error(w->ctx));
    if (pull(s, video, &frames) != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(frames, FRAMES);
    if (r) lt_session_get_report(s, r);
    lt_session_destroy(&s);
}

static uint8_t *space(void)
{
    uint8_t *v = malloc(FRAMES * FRAME_BYTES);
    assert_non_null(v);
    return v;
}

static void same_bits_on_every_device_thread_count_and_cfg_mode(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int threads;
        lt_cfg_mode cfg;
    } cases[] = {{"cpu", 1, LT_CFG_BATCH},
                 {"cpu", 2, LT_CFG_SERIAL},
                 {"guard", 2, LT_CFG_BATCH},
                 {"guard", 1, LT_CFG_SERIAL},
                 {"cpu", 3, LT_CFG_AUTO}};
    const lt_dtype types[] = {LT_F32, LT_BF16};
    uint8_t *first = space(), *video = space();
    for (size_t t = 0; t < LT_COUNT(types); t++) {
        for (size_t i = 0; i < LT_COUNT(cases); i++) {
            world w;
            lt_session_report r;
            lt_session_options o = options();
            o.cfg_mode = cases[i].cfg;
            open_world(&w, cases[i].device, cases[i].threads, types[t]);
            render(&w, &o, i ? video : first, &r);
            assert_int_equal(r.step_allocs, 0);
            assert_int_equal(r.cfg_batch, cases[i].cfg != LT_CFG_SERIAL);
            assert_int_equal(r.dit_passes, 8);
            assert_int_equal(r.tokens, 3 * 2 * 3);
            if (i) assert_memory_equal(video, first, FRAMES * FRAME_BYTES);
            close_world(&w);
        }
    }
    free(first);
    free(video);
}

static void seed_prompt_and_guidance_matter(void **state)
{
    (void)state;
    world w;
    uint8_t *a = space(), *b = space();
    open_world(&w, "cpu", 2, LT_F32);
    lt_session_options o = options();
    render(&w, &o, a, NULL);
    render(&w, &o, b, NULL); /* a model serves many sessions */
    assert_memory_equal(a, b, FRAMES * FRAME_BYTES);
    o.seed = 8;
    render(&w, &o, b, NULL);
    assert_memory_not_equal(a, b, FRAMES * FRAME_BYTES);
    o = options();
    o.prompt = "a blue square";
    render(&w, &o, b, NULL);
    assert_memory_not_equal(a, b, FRAMES * FRAME_BYTES);
    o = options();
    o.negative_prompt = "quiet room";
    render(&w, &o, b, NULL);
    assert_memory_not_equal(a, b, FRAMES * FRAME_BYTES);
    o = options();
    o.guidance_scale = 1;
    lt_session_report r;
    render(&w, &o, b, &r);
    assert_int_equal(r.dit_passes, 4);
    assert_memory_not_equal(a, b, FRAMES * FRAME_BYTES);
    close_world(&w);
    free(a);
    free(b);
}

static void every_solver_renders(void **state)
{
    (void)state;
    static const float list[] = {1000, 750, 500};
    world w;
    uint8_t *v = space();
    open_world(&w, "guard", 2, LT_F32);
    for (int i = 0; i <= LT_SOLVER_RENOISE; i++) {
        lt_session_report r;
        lt_session_options o = options();
        o.solver = (lt_solver)i;
        o.solver_set = true;
        if (i == LT_SOLVER_RENOISE) {
            o.step_list = list;
            o.step_list_len = 3;
        }
        render(&w, &o, v, &r);
        assert_int_equal(r.steps, i == LT_SOLVER_RENOISE ? 3 : 4);
        assert_int_equal(r.step_allocs, 0);
    }
    close_world(&w);
    free(v);
}

/* The decoder is causal, so the first frame of a video depends on its first latent frame alone. */
static void a_given_first_frame_is_kept(void **state)
{
    (void)state;
    world w;
    uint8_t *a = space(), *b = space(), *c = space(), picture[FRAME_BYTES];
    for (int i = 0; i < FRAME_BYTES; i++)
        picture[i] = (uint8_t)(i * 7 % 251);
    open_world(&w, "guard", 2, LT_F32);
    lt_session_options o = options();
    o.image = picture;
    render(&w, &o, a, NULL);
    o.seed = 99;
    render(&w, &o, b, NULL);
    assert_memory_equal(a, b, FRAME_BYTES);
    assert_memory_not_equal(a, b, FRAMES * FRAME_BYTES);
    picture[0] ^= 255;
    render(&w, &o, c, NULL);
    assert_memory_not_equal(b, c, FRAME_BYTES);
    close_world(&w);
    free(a);
    free(b);
    free(c);
}

/* ---- cancelling ---- */

typedef struct stop {
    lt_session *s;
    lt_phase phase;
    int32_t step;
    int calls;
    double seconds;
} stop;

static void *cancel_thread(void *arg)
{
    lt_session_cancel(arg);
    return NULL;
}

static void cancel_at(void *user, const lt_progress *p)
{
    stop *c = user;
    c->calls++;
    assert_true(p->seconds >= c->seconds && p->step >= 0 && p->step <= p->steps);
    c->seconds = p->seconds;
    if (!c->s || p->phase != c->phase || p->step != c->step) return;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, cancel_thread, c->s), 0);
    pthread_join(t, NULL);
}

static void cancelling_ends_any_phase(void **state)
{
    (void)state;
    static const struct {
        lt_phase phase;
        int32_t step;
        int frames;
    } cases[] = {{LT_PHASE_TEXT, 1, 0},
                 {LT_PHASE_DENOISE, 0, 0},
                 {LT_PHASE_DENOISE, 2, 0},
                 {LT_PHASE_DECODE, 2, 1}};
    world w;
    uint8_t *v = space();
    open_world(&w, "cpu", 2, LT_F32);
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        stop c = {.phase = cases[i].phase, .step = cases[i].step};
        lt_session_options o = options();
        o.progress = cancel_at;
        o.progress_user = &c;
        int frames;
        lt_frames f;
        assert_int_equal(lt_session_create(&c.s, w.model, &o), LT_OK);
        assert_int_equal(pull(c.s, v, &frames), LT_ERR_CANCELLED);
        assert_int_equal(frames, cases[i].frames);
        assert_non_null(strstr(lt_error(w.ctx), "cancelled"));
        assert_int_equal(lt_session_next(c.s, &f), LT_ERR_CANCELLED); /* and stays so */
        lt_session_destroy(&c.s);
    }
    close_world(&w);
    free(v);
}

typedef struct counted {
    int32_t steps, last;
} counted;

static void count_blocks(void *user, const lt_progress *p)
{
    counted *c = user;
    if (p->phase != LT_PHASE_DENOISE) return;
    assert_int_equal(p->step, c->last + 1);
    assert_int_equal(p->steps, c->steps);
    c->last = p->step;
}

/* Whatever is short: the first block, the last, or none; a given picture is none of them. */
static void blocks_are_counted_as_they_are_drawn(void **state)
{
    (void)state;
    static const struct {
        const char *cache;
        bool image;
        int32_t frames, blocks;
    } cases[] = {{"self-forcing:block=3,window=6,first=1", false, 17, 3},
                 {"self-forcing:block=3,window=6,first=1,first-of=4", false, 17, 3},
                 {"self-forcing:block=2,window=6", false, 17, 3},
                 {"self-forcing:block=3,window=6", false, 9, 1},
                 {"self-forcing:block=2,window=6", true, 17, 2}};
    world w;
    uint8_t picture[FRAME_BYTES] = {0};
    open_world(&w, "cpu", 1, LT_F32);
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        counted c = {.steps = cases[i].blocks};
        lt_session_options o = options();
        lt_session *s;
        lt_frames f;
        o.mode = LT_MODE_AR;
        o.cache = cases[i].cache;
        o.num_frames = cases[i].frames;
        o.num_inference_steps = 1;
        o.image = cases[i].image ? picture : NULL;
        o.progress = count_blocks;
        o.progress_user = &c;
        if (lt_session_create(&s, w.model, &o) < 0) fail_msg("%s", lt_error(w.ctx));
        lt_status st;
        while ((st = lt_session_next(s, &f)) == LT_OK) {
        }
        assert_int_equal(st, LT_END);
        assert_int_equal(c.last, cases[i].blocks);
        lt_session_destroy(&s);
    }
    close_world(&w);
}

static void progress_tells_every_phase(void **state)
{
    (void)state;
    world w;
    uint8_t *v = space();
    stop c = {0};
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options();
    o.progress = cancel_at;
    o.progress_user = &c;
    render(&w, &o, v, NULL);
    assert_int_equal(c.calls, 2 + (1 + 4) + FRAMES); /* layers, steps and their start, frames */
    close_world(&w);
    free(v);
}

/* ---- refusals ---- */

static void refused(const world *w, const lt_session_options *o, lt_status want, const char *names)
{
    lt_session *s = (lt_session *)1;
    assert_int_equal(lt_session_create(&s, w->model, o), want);
    assert_null(s);
    if (!strstr(lt_error(w->ctx), names))
        fail_msg("\"%s\" does not say \"%s\"", lt_error(w->ctx), names);
}

static void bad_options_name_the_nearest_good_ones(void **state)
{
    (void)state;
    world w;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options();
    o.width = 500;
    refused(&w, &o, LT_ERR_ARG, "width 500: must be a multiple of 16; the nearest are 496 and 512");
    o.width = 15;
    o.height = 17;
    refused(&w, &o, LT_ERR_ARG,
            "width 15: must be a multiple of 16; the nearest is 16; "
            "height 17: must be a multiple of 16; the nearest are 16 and 32");
    o = options();
    o.width = -16;
    refused(&w, &o, LT_ERR_ARG, "the nearest is 16");
    o.width = INT32_MIN;
    refused(&w, &o, LT_ERR_ARG, "the nearest is 16");
    o.width = 1 << 30;
    refused(&w, &o, LT_ERR_ARG, ": 16384 is the most");
    o = options();
    o.height = 33;
    refused(&w, &o, LT_ERR_ARG, "height 33: must be a multiple of 16; the nearest are 32 and 48");
    o = options();
    o.num_frames = 80;
    refused(&w, &o, LT_ERR_ARG, "num_frames 80: must be 4 k + 1; the nearest are 77 and 81");
    o.num_frames = INT32_MAX;
    refused(&w, &o, LT_ERR_ARG, ": 4093 is the most");
    o.num_frames = 99997; /* 4 k + 1 */
    refused(&w, &o, LT_ERR_ARG, "num_frames 99997: 4093 is the most");
    o.num_frames = 4093;
    o.width = o.height = 16384;
    refused(&w, &o, LT_ERR_ARG, "tokens");
    o = options();
    o.prompt = NULL;
    refused(&w, &o, LT_ERR_ARG, "no prompt");
    o = options();
    o.num_inference_steps = -3;
    refused(&w, &o, LT_ERR_ARG, "steps -3");
    o = options();
    o.flow_shift = -2;
    refused(&w, &o, LT_ERR_ARG, "shift -2");
    o = options();
    o.guidance_scale = (double)NAN;
    refused(&w, &o, LT_ERR_ARG, "guidance_scale");
    o = options();
    o.fps = -1;
    refused(&w, &o, LT_ERR_ARG, "fps -1");
    o = options();
    o.attention = "magic";
    refused(&w, &o, LT_ERR_ARG, "attention: 'magic'");
    o = options();
    o.solver = LT_SOLVER_RENOISE;
    o.solver_set = true;
    refused(&w, &o, LT_ERR_ARG, "needs a step list");
    o = options();
    o.memory_limit = 1 << 20;
    refused(&w, &o, LT_ERR_MEM, "GiB are allowed");
    close_world(&w);
}

static void a_prompt_that_is_not_text_is_refused(void **state)
{
    (void)state;
    world w;
    lt_session *s;
    lt_frames f;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options();
    o.prompt = "bad \xff byte";
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_OK);
    assert_int_equal(lt_session_next(s, &f), LT_ERR_ARG);
    lt_session_destroy(&s);
    close_world(&w);
}

/* ---- estimate ---- */

static void the_estimate_covers_what_is_taken(void **state)
{
    (void)state;
    world w;
    lt_estimate e;
    lt_session_options o = options();
    uint8_t *v = space();
    open_world(&w, "cpu", 2, LT_BF16);
    const lt_model_options m = {.path = folder, .dtype = LT_BF16};
    if (lt_session_estimate(&e, w.ctx, &m, &o) < 0) fail_msg("%s", lt_error(w.ctx));
    lt_session_report r;
    render(&w, &o, v, &r);
    lt_mem_stats s;
    lt_dev_mem_stats(w.dev, &s);
    assert_true(e.cfg_batch && e.available > 0);
    assert_true(s.peak_total <= e.total_peak);
    assert_true(e.activation >= s.peak_bytes[LT_TAG_ACTIVATION]);
    assert_true(fabs(e.flops / (r.dit_flops + r.vae_flops) - 1) < 0.2);
    lt_model_info info;
    assert_int_equal(lt_model_probe(&info, w.ctx, &m), LT_OK);
    assert_int_equal(info.default_frames, FRAMES);
    assert_true(info.frame_timesteps);
    close_world(&w);
    free(v);
}

/* ---- faults ---- */

/* Allocation 1, 2, 3, ... of a render fails: a message, nothing leaked, and the next render is whole. */
static void failing_allocations_are_statuses(void **state)
{
    (void)state;
    world w;
    uint8_t *want = space(), *v = space(), picture[FRAME_BYTES] = {0};
    open_world(&w, "cpu", 2, LT_F32);
    lt_session_options o = options();
    o.image = picture;
    render(&w, &o, want, NULL); /* scratch of the kernels is there from now on */
    lt_mem_stats before, after;
    lt_dev_mem_stats(w.dev, &before);
    lt_status st = LT_ERR_MEM;
    int failures = 0;
    for (int nth = 1; st != LT_END; nth++) {
        lt_session *s;
        int frames = 0;
        lti_dev_fail_alloc(w.dev, nth);
        st = lt_session_create(&s, w.model, &o);
        if (st >= 0) st = pull(s, v, &frames);
        lt_session_destroy(&s);
        lti_dev_fail_alloc(w.dev, 0);
        lt_dev_mem_stats(w.dev, &after);
        assert_int_equal(before.live_total, after.live_total);
        if (st == LT_END) break;
        assert_int_equal(st, LT_ERR_MEM);
        assert_non_null(strstr(lt_error(w.ctx), "no memory"));
        failures++;
    }
    assert_true(failures > 20);
    assert_memory_equal(v, want, FRAMES * FRAME_BYTES);
    close_world(&w);
    free(want);
    free(v);
}

static void failing_allocations_of_opening_are_statuses(void **state)
{
    (void)state;
    lt_ctx *ctx;
    lt_dev *dev;
    lt_model *m;
    lt_mem_stats stats;
    lt_dev_options d = lt_dev_options_default();
    d.threads = 1;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&dev, ctx, &d), LT_OK);
    for (int nth = 1;; nth += 7) { /* every seventh of some hundreds */
        lti_dev_fail_alloc(dev, nth);
        const lt_status s =
            lt_model_open(&m, dev, &(lt_model_options){.path = folder, .dtype = LT_F32});
        lti_dev_fail_alloc(dev, 0);
        if (s == LT_OK) break;
        assert_int_equal(s, LT_ERR_MEM);
        assert_null(m);
        lt_dev_mem_stats(dev, &stats);
        assert_int_equal(stats.live_total, stats.live_bytes[LT_TAG_SCRATCH]);
    }
    lt_model_close(&m);
    lt_dev_destroy(&dev);
    lt_ctx_destroy(&ctx);
}

static void numbers_that_are_not_finite_are_named(void **state)
{
    (void)state;
    assert_true(tiny_model_write(folder, 1e30f));
    world w;
    lt_session *s;
    lt_frames f;
    open_world(&w, "cpu", 1, LT_F32);
    const lt_session_options o = options();
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_OK);
    assert_int_equal(lt_session_next(s, &f), LT_ERR_NUMERIC);
    assert_non_null(strstr(lt_error(w.ctx), "output at step 1 of 4"));
    assert_int_equal(f.count, 0);
    lt_session_destroy(&s);
    close_world(&w);
    assert_true(tiny_model_write(folder, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_on_every_device_thread_count_and_cfg_mode),
        cmocka_unit_test(seed_prompt_and_guidance_matter),
        cmocka_unit_test(every_solver_renders),
        cmocka_unit_test(a_given_first_frame_is_kept),
        cmocka_unit_test(cancelling_ends_any_phase),
        cmocka_unit_test(progress_tells_every_phase),
        cmocka_unit_test(blocks_are_counted_as_they_are_drawn),
        cmocka_unit_test(bad_options_name_the_nearest_good_ones),
        cmocka_unit_test(a_prompt_that_is_not_text_is_refused),
        cmocka_unit_test(the_estimate_covers_what_is_taken),
        cmocka_unit_test(failing_allocations_are_statuses),
        cmocka_unit_test(failing_allocations_of_opening_are_statuses),
        cmocka_unit_test(numbers_that_are_not_finite_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
