/* unit_video_monitor.c: sessions that are watched and corrected: watching changes no bit; what is broken is drawn again or replayed;
 * faults come and are met; a saved session goes on as it would have. The tiny model draws noise, so amounts are not judged here. */
#include "kernels/internal.h"
#include "tests/tiny_video.h"
#include "video/rollout_internal.h"
#include "video/session_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static lt_session_options options(lt_mode mode, int32_t frames)
{
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball bounces on green grass";
    o.seed = 7;
    o.width = W;
    o.height = H;
    o.num_frames = frames;
    o.num_inference_steps = 2;
    o.guidance_scale = 1;
    o.mode = mode;
    if (mode == LT_MODE_AR) o.cache = "longlive:window=6,sink=1,block=2";
    if (mode == LT_MODE_EXTEND) o.extend = "segment=17,overlap=2";
    return o;
}

static void render(const world *w, const lt_session_options *o, uint8_t *video,
                   lt_session_report *r)
{
    int64_t frames = 0;
    lt_session *s = create(w, o);
    if (pull(s, video, &frames) != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(frames, o->num_frames);
    lt_session_get_report(s, r);
    if (o->drift != LT_DRIFT_OFF) {
        const lt_drift_vector *v = lt_session_drift(s);
        assert_non_null(v);
        assert_true(v->first_frame + v->frames <= o->num_frames);
    } else {
        assert_null(lt_session_drift(s));
    }
    lt_session_destroy(&s);
}

static void watching_changes_no_bit(void **state)
{
    (void)state;
    static uint8_t off[MOST * FRAME_BYTES], on[MOST * FRAME_BYTES];
    static const struct {
        lt_mode mode;
        const char *how;
    } cases[] = {{LT_MODE_CLIP, NULL},
                 {LT_MODE_AR, "longlive:window=6,sink=1,block=2"},
                 {LT_MODE_AR, "self-forcing:window=5,block=1"},
                 {LT_MODE_EXTEND, "segment=17,overlap=2"},
                 {LT_MODE_EXTEND, "naive,segment=13"}};
    for (size_t i = 0; i < LT_COUNT(cases); i++)
        for (int guard = 0; guard <= (i == 1); guard++) {
            world w;
            lt_session_report r;
            lt_session_options o = options(cases[i].mode, 33);
            o.cache = cases[i].mode == LT_MODE_AR ? cases[i].how : NULL;
            o.extend = cases[i].mode == LT_MODE_EXTEND ? cases[i].how : NULL;
            open_world(&w, guard ? "guard" : "cpu", 1 + guard, LT_F32);
            o.drift = LT_DRIFT_OFF;
            render(&w, &o, off, &r);
            assert_int_equal(r.drift_vectors, 0);
            o.drift = LT_DRIFT_WATCH;
            render(&w, &o, on, &r);
            assert_memory_equal(off, on, 33 * FRAME_BYTES);
            assert_true(r.drift_vectors >= 3 && r.drift_seconds > 0);
            assert_int_equal(r.drift_shifted + r.drift_redraws + r.drift_replayed, 0);
            assert_int_equal(r.step_allocs, 0);
            close_world(&w);
        }
}

/* The overlap of naive segments: two renditions of one instant, without asking. */
static void naive_segments_tell_their_renditions(void **state)
{
    (void)state;
    world w;
    lt_frames f;
    int known = 0;
    lt_session_options o = options(LT_MODE_EXTEND, 41);
    o.extend = "naive,segment=13";
    o.drift = LT_DRIFT_WATCH;
    open_world(&w, "cpu", 2, LT_F32);
    lt_session *s = create(&w, &o);
    int64_t last = -1;
    while (lt_session_next(s, &f) == LT_OK) {
        const lt_drift_vector *v = lt_session_drift(s);
        if (!v || v->first_frame == last) continue;
        last = v->first_frame;
        assert_int_equal(v->first_frame + v->frames, f.first + f.count);
        assert_int_equal(v->block, f.block);
        if (v->renditions_known) {
            assert_true(v->renditions.difference > 0); /* random weights: not the same picture */
            known++;
        }
    }
    assert_int_equal(known, 3);
    lt_session_destroy(&s);
    close_world(&w);
}

static void broken_blocks_are_drawn_again(void **state)
{
    (void)state;
    static uint8_t video[MOST * FRAME_BYTES], plain[MOST * FRAME_BYTES];
    static const char *const faults[] = {"nan,at=1", "black,at=1", "nan"};
    for (int extend = 0; extend < 2; extend++)
        for (size_t i = 0; i < LT_COUNT(faults); i++) {
            world w;
            lt_session_report r;
            lt_session_options o = options(extend ? LT_MODE_EXTEND : LT_MODE_AR, 33);
            open_world(&w, "cpu", 2, LT_F32);
            o.drift = LT_DRIFT_CORRECT;
            render(&w, &o, plain, &r);
            assert_int_equal(r.drift_redraws, 0);
            o.inject = faults[i];
            render(&w, &o, video, &r);
            assert_int_equal(r.drift_redraws, 1);
            assert_int_equal(r.drift_replayed, 0);
            assert_int_equal(r.step_allocs, 0);
            const int64_t same =
                i < 2 && !extend ? 5 : 0; /* before the fault nothing is different */
            if (same) assert_memory_equal(video, plain, (size_t)same * FRAME_BYTES);
            assert_memory_not_equal(video, plain, 33 * FRAME_BYTES);
            close_world(&w);
        }
}

/* What is flat by any measure is broken even where a prompt speaks of light that changes; and not every dark thing is such a change. */
static void black_is_not_what_was_asked_for(void **state)
{
    (void)state;
    static uint8_t video[MOST * FRAME_BYTES];
    static const char *const prompts[] = {"a red ball while the sky darkens",
                                          "a ball before a dark blue wall"};
    for (size_t i = 0; i < LT_COUNT(prompts); i++) {
        world w;
        lt_session_report r;
        lt_session_options o = options(LT_MODE_AR, 33);
        open_world(&w, "cpu", 1, LT_F32);
        o.prompt = prompts[i];
        o.drift = LT_DRIFT_CORRECT;
        o.inject = "black,at=1";
        render(&w, &o, video, &r);
        assert_int_equal(r.drift_redraws, 1);
        assert_int_equal(r.drift_replayed, 0);
        close_world(&w);
    }
}

/* Three draws, then the last good frame; and a model that insists on a flat picture is not fought for ever. */
static void what_stays_broken_is_replayed(void **state)
{
    (void)state;
    world w;
    lt_frames f;
    lt_session_report r;
    bool again;
    lt_session_options o = options(LT_MODE_AR, 65);
    o.drift = LT_DRIFT_CORRECT;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session *s = create(&w, &o);
    for (int i = 0; i < 4; i++)
        assert_int_equal(lt_session_next(s, &f), LT_OK);
    assert_int_equal(lt_session_draw(s), LT_OK);
    const int32_t frames = lti_rollout_frames(s->rollout);
    const size_t n = (size_t)(s->watch->channels * frames * AREA);
    float *z = malloc(n * sizeof *z), *bad = calloc(n, sizeof *bad), *drawn = malloc(n * sizeof *z);
    float *dev = lti_rollout_change(s->rollout);
    assert_int_equal(lt_dev_download(w.dev, drawn, dev, n * sizeof *drawn), LT_OK);
    for (size_t i = 0; i < n; i++)
        bad[i] = 0.15f * drawn[i]; /* flat, and not so flat that it could not be compared with */
    for (int flat = 0; flat < 2; flat++) {
        lti_watch_undo(s);
        for (int32_t attempt = 0; attempt < 3; attempt++) {
            if (flat) assert_int_equal(lt_dev_upload(w.dev, dev, bad, n * sizeof *bad), LT_OK);
            assert_int_equal(lti_watch_block(s, dev, frames, 0, attempt, !flat, &again), LT_OK);
            assert_int_equal(again, attempt < 2);
        }
        assert_int_equal(lt_dev_download(w.dev, z, dev, n * sizeof *z), LT_OK);
        for (int32_t c = 0; c < s->watch->channels; c++)
            for (int32_t k = 0; k < frames; k++)
                assert_memory_equal(z + ((int64_t)c * frames + k) * AREA,
                                    s->watch->j.good + (int64_t)c * AREA, AREA * sizeof *z);
    }
    for (int good = 0; good < 3; good++) { /* flat from the second time on: so be it */
        assert_int_equal(lt_dev_upload(w.dev, dev, good == 2 ? drawn : bad, n * sizeof *bad),
                         LT_OK);
        assert_int_equal(lti_watch_block(s, dev, frames, 0, 0, false, &again), LT_OK);
        assert_false(again); /* nor is a picture that comes back noise */
    }
    lt_session_get_report(s, &r);
    assert_int_equal(r.drift_replayed, 2);
    free(z);
    free(bad);
    free(drawn);
    lt_session_destroy(&s);
    close_world(&w);
}

/* As if there had been a reference, and drift. */
static void pretend_drift(lti_watch *a, double gain)
{
    a->j.drift.phase = LTI_DRIFT_STEADY;
    a->j.drift.shot.over = 3;
    a->j.drift.gain = gain;
    a->levels = 1;
    a->level = 5;
    a->ref = a->j.before;
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        a->ref.tile[0][t] -= 1;
}

/* What is taken off of contrast is not put back because it has helped. */
static void contrast_stays_taken_off(void **state)
{
    (void)state;
    world w;
    lt_frames f;
    bool again;
    lt_session_options o = options(LT_MODE_AR, 65);
    o.drift = LT_DRIFT_CORRECT;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session *s = create(&w, &o);
    for (int i = 0; i < 10; i++)
        assert_int_equal(lt_session_next(s, &f), LT_OK);
    lti_watch *a = s->watch;
    pretend_drift(a, 0.8);
    a->vector.kind = LT_DRIFT_CONTRAST;
    assert_int_equal(lt_session_draw(s), LT_OK);
    assert_true(a->j.shift.scale[0] != 1);
    a->vector.kind = LT_DRIFT_NONE;
    a->level = 0.9;
    assert_int_equal(lti_watch_block(s, lti_rollout_change(s->rollout),
                                     lti_rollout_frames(s->rollout), 0, 0, false, &again),
                     LT_OK);
    assert_true(a->now.gain > 0 && a->j.shift.scale[0] != 1);
    lt_session_destroy(&s);
    close_world(&w);
}

/* Forces the controller to act from the first reference on: what it does is the same when it is done again. */
static void drawn_again_and_saved_with_corrections(void **state)
{
    (void)state;
    static uint8_t whole[MOST * FRAME_BYTES], rest[MOST * FRAME_BYTES];
    char path[64];
    world w;
    lt_frames f;
    lt_session_report r;
    lt_session_options o = options(LT_MODE_AR, 65);
    o.drift = LT_DRIFT_CORRECT;
    o.inject = "exposure=9,at=1+gain=2,at=1";
    snprintf(path, sizeof path, "%s/saved", folder);
    open_world(&w, "cpu", 1, LT_F32);
    lt_session *s = create(&w, &o);
    int64_t frames = 0;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(lt_session_next(s, &f), LT_OK);
        memcpy(whole + frames * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
        frames += f.count;
    }
    const int64_t begin = frames;
    lti_watch *a = s->watch;
    pretend_drift(a, 0.8); /* so that kept frames come to weigh less, too */
    assert_int_equal(lt_session_draw(s), LT_OK);
    assert_int_equal(s->watch->now.action, LT_DRIFT_SHIFTED);
    assert_true(s->watch->now.gain > 0 && s->watch->now.latent_shift > 0);
    assert_true(s->watch->now.past_weight < 1 && s->watch->now.sink_weight == 1);
    if (lt_session_save(s, path) < 0) fail_msg("%s", lt_error(w.ctx));
    const size_t n = (size_t)(a->channels * lti_rollout_frames(s->rollout) * AREA) * sizeof(float);
    float *first = malloc(n), *second = malloc(n);
    assert_int_equal(lt_dev_download(w.dev, first, lti_rollout_latent(s->rollout), n), LT_OK);
    assert_int_equal(lt_session_redraw(s, 4), LT_OK);
    assert_int_equal(lt_dev_download(w.dev, second, lti_rollout_latent(s->rollout), n), LT_OK);
    assert_memory_not_equal(first, second, n);
    assert_int_equal(lt_session_redraw(s, 0), LT_OK);
    assert_int_equal(lt_dev_download(w.dev, second, lti_rollout_latent(s->rollout), n), LT_OK);
    assert_memory_equal(first, second, n);
    assert_int_equal(pull(s, whole, &frames), LT_END);
    lt_session_destroy(&s);
    if (lt_session_restore(&s, w.model, path, NULL) < 0) fail_msg("%s", lt_error(w.ctx));
    assert_int_equal(lt_session_redraw(s, 0), LT_OK);
    frames = begin;
    assert_int_equal(pull(s, rest, &frames), LT_END);
    assert_int_equal(frames, 65);
    assert_memory_equal(rest + begin * FRAME_BYTES, whole + begin * FRAME_BYTES,
                        (size_t)(65 - begin) * FRAME_BYTES);
    lt_session_get_report(s, &r);
    assert_true(r.drift_vectors > 0 && r.drift_weighed > 0);
    lt_session_destroy(&s);
    free(first);
    free(second);
    unlink(path);
    close_world(&w);
}

/* Saved after any group, those of a block that is not finite too: every vector after it is what it would have been. As nobody corrects,
 * the next block cannot be drawn. */
static void saved_while_watching(void **state)
{
    (void)state;
    char path[64];
    world w;
    lt_frames f;
    lt_session_options o = options(LT_MODE_AR, 49);
    o.drift = LT_DRIFT_WATCH;
    o.inject = "nan,at=2,for=0.5";
    snprintf(path, sizeof path, "%s/saved", folder);
    open_world(&w, "cpu", 1, LT_F32);
    for (int at = 1; at <= 6; at++) {
        lt_session *s = create(&w, &o), *again;
        for (int i = 0; i < at; i++)
            assert_int_equal(lt_session_next(s, &f), LT_OK);
        if (lt_session_save(s, path) < 0) fail_msg("%s", lt_error(w.ctx));
        if (lt_session_restore(&again, w.model, path, NULL) < 0) fail_msg("%s", lt_error(w.ctx));
        const int64_t known = lt_session_drift(s) ? lt_session_drift(s)->first_frame : -1;
        while (lt_session_next(s, &f) == LT_OK && lt_session_next(again, &f) == LT_OK) {
            const lt_drift_vector *a = lt_session_drift(s), *b = lt_session_drift(again);
            assert_int_equal(!a, !b);
            if (!a || a->first_frame == known) continue; /* its picture is not saved */
            assert_true(a->first_frame == b->first_frame && a->kind == b->kind);
            assert_true(a->picture.motion == b->picture.motion);
            assert_true(a->sink_weight == b->sink_weight && a->level == b->level);
        }
        lt_session_destroy(&s);
        lt_session_destroy(&again);
    }
    unlink(path);
    close_world(&w);
}

/* Corrections that have not helped for a dozen decisions are put into the kept frames too, once, and the video goes on. */
static void kept_frames_are_corrected(void **state)
{
    (void)state;
    static uint8_t video[MOST * FRAME_BYTES];
    world w;
    lt_frames f;
    lt_session_report r;
    int32_t kept;
    lt_session_options o = options(LT_MODE_AR, 49);
    o.drift = LT_DRIFT_CORRECT;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session *s = create(&w, &o);
    int64_t frames = 0;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(lt_session_next(s, &f), LT_OK);
        frames += f.count;
    }
    lti_watch *a = s->watch;
    pretend_drift(a, 0.9);
    a->j.drift.shot.active = true;
    a->j.drift.shot.acting = 12;
    const lt_cache_frame *list = lt_cache_kept(lti_rollout_cache(s->rollout, false), &kept);
    const size_t n = (size_t)(a->channels * AREA);
    const float *history = s->rollout->history + (size_t)list[kept - 1].slot * n; /* it stays */
    float *before = malloc(n * sizeof *before), *after = malloc(n * sizeof *after);
    assert_int_equal(lt_dev_download(w.dev, before, history, n * sizeof *before), LT_OK);
    assert_int_equal(lt_session_draw(s), LT_OK);
    assert_int_equal(a->now.action, LT_DRIFT_RECACHED);
    assert_true(a->j.shift.offset[0] != 0);
    assert_int_equal(lt_dev_download(w.dev, after, history, n * sizeof *after), LT_OK);
    for (size_t i = 0; i < n; i++) {
        const size_t c = i / AREA;
        assert_true(fabsf(after[i] - (a->j.shift.scale[c] * before[i] + a->j.shift.offset[c])) <
                    1e-5f);
    }
    assert_int_equal(pull(s, video, &frames), LT_END);
    lt_session_get_report(s, &r);
    assert_int_equal(r.drift_recached, 1);
    lt_session_destroy(&s);
    free(before);
    free(after);
    close_world(&w);
}

/* Segments keep no frames that could be corrected: what has not helped for six of them is left alone. */
static void segments_that_do_not_get_better_are_left_alone(void **state)
{
    (void)state;
    world w;
    lt_frames f;
    lt_session_report r;
    lt_session_options o = options(LT_MODE_EXTEND, 49);
    o.drift = LT_DRIFT_CORRECT;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session *s = create(&w, &o);
    do
        assert_int_equal(lt_session_next(s, &f), LT_OK);
    while (!lti_session_wants_segment(s));
    lti_watch *a = s->watch;
    pretend_drift(a, 0.9);
    a->j.drift.shot.active = true;
    a->j.drift.shot.acting = 6;
    assert_int_equal(lt_session_next(s, &f), LT_OK);
    assert_true(a->j.drift.shot.stand_down);
    lt_session_get_report(s, &r);
    assert_int_equal(r.drift_recached, 0);
    lt_session_destroy(&s);
    close_world(&w);
}

/* A kept frame that becomes noise is seen in what is drawn from then on, and in nothing before. */
static void kept_frames_are_changed(void **state)
{
    (void)state;
    static uint8_t a[MOST * FRAME_BYTES], b[MOST * FRAME_BYTES];
    world w;
    lt_session_report r;
    lt_session_options o = options(LT_MODE_AR, 49);
    open_world(&w, "cpu", 2, LT_F32);
    render(&w, &o, a, &r);
    o.inject = "slot,at=1";
    int64_t frames = 0;
    lt_session *s = create(&w, &o);
    assert_int_equal(pull(s, b, &frames), LT_END);
    assert_memory_equal(a, b, 13 * FRAME_BYTES);
    assert_memory_not_equal(a, b, 49 * FRAME_BYTES);
    lt_session_destroy(&s);
    close_world(&w);
}

static void faults_as_text(void **state)
{
    (void)state;
    static const char *const bad[] = {"rain",
                                      "exposure=",
                                      "exposure=99",
                                      "black=1",
                                      "nan,at=-1",
                                      "nan,for=x",
                                      "nan,",
                                      "+nan",
                                      "nan+",
                                      "exposure=1e",
                                      "blur=0.1,on=3",
                                      "gain=nan",
                                      "nan,at=1,at",
                                      "nan,into=frames",
                                      "exposure=0.1@10",
                                      "freeze,at=1e99",
                                      ","};
    world w;
    lti_faults f;
    open_world(&w, "cpu", 1, LT_F32);
    assert_int_equal(
        lti_faults_parse(&f, w.ctx, "exposure=-0.2,at=10+black,at=30,for=0.5+blur,for=3"), LT_OK);
    assert_int_equal(f.count, 3);
    assert_true(f.fault[0].kind == LTI_FAULT_EXPOSURE && f.fault[0].amount == -0.2 &&
                f.fault[0].at == 10 && isinf(f.fault[0].length));
    assert_true(f.fault[1].kind == LTI_FAULT_BLACK && f.fault[1].length == 0.5);
    assert_true(f.fault[2].kind == LTI_FAULT_BLUR && f.fault[2].amount == 0.1);
    for (size_t i = 0; i < LT_COUNT(bad); i++)
        if (lti_faults_parse(&f, w.ctx, bad[i]) != LT_ERR_ARG) fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(lti_faults_parse(&f, w.ctx, "nan+nan+nan+nan+nan+nan+nan+nan"), LT_OK);
    assert_int_equal(lti_faults_parse(&f, w.ctx, "nan+nan+nan+nan+nan+nan+nan+nan+nan"),
                     LT_ERR_ARG);
    lt_session_options o = options(LT_MODE_CLIP, 9);
    lt_session *s;
    o.drift = LT_DRIFT_CORRECT;
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_ERR_ARG);
    o.drift = LT_DRIFT_OFF;
    o.inject = "nan";
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_ERR_ARG);
    close_world(&w);
}

/* What is put in is what it says: one EV in ten seconds, in blocks of half a second, is five hundredths of a direction each. */
static void what_faults_do(void **state)
{
    (void)state;
    enum { C = 2, F = 3, SIDE = 4, N = SIDE * SIDE };
    float z[C * F * N], before[C * N], light[C] = {1, -2}, black[C] = {5, 6};
    const lti_latent shape = {z, C, F, SIDE, SIDE};
    for (int i = 0; i < C * F * N; i++)
        z[i] = (float)(i % 7);
    for (int i = 0; i < C * N; i++)
        before[i] = -1;
    lti_faults f = {.fault = {{LTI_FAULT_EXPOSURE, 1, 2, HUGE_VAL, false}},
                    .count = 1,
                    .light = light,
                    .black = black};
    assert_false(lti_faults_apply(&f, z, &shape, 1, 1.5, 0.5, before, false)); /* not yet */
    assert_true(lti_faults_apply(&f, z, &shape, 1, 2, 0.5, before, false));
    assert_true(z[0] == 0 && fabsf(z[N] - (float)(N % 7) - 0.05f) < 1e-5f);
    assert_true(fabsf(z[F * N + N] - (float)((F * N + N) % 7) + 0.1f) < 1e-5f);
    f.fault[0] = (lti_fault){LTI_FAULT_FREEZE, 0, 2, 0, false};
    assert_true(lti_faults_apply(&f, z, &shape, 1, 1.75, 0.5, before, false));
    assert_true(z[0] == 0 && z[N] == -1 && z[F * N - 1] == -1);
    f.fault[0].kind = LTI_FAULT_BLACK;
    assert_true(lti_faults_apply(&f, z, &shape, 0, 2, 0.5, NULL, false));
    assert_true(z[0] == 5 && z[C * F * N - 1] == 6);
    assert_false(lti_faults_apply(&f, z, &shape, 0, 3, 0.5, NULL, false)); /* over */
    for (int i = 0; i < C * F * N; i++)
        z[i] = i % 2 ? 1.0f : -1.0f;
    f.fault[0] = (lti_fault){LTI_FAULT_GAIN, 2, 0, HUGE_VAL, false};
    assert_true(lti_faults_apply(&f, z, &shape, 0, 0, 0.5, NULL, false));
    assert_true(fabsf(z[1] - 1.1f) < 1e-6f && fabsf(z[0] + 1.1f) < 1e-6f);
    f.fault[0] = (lti_fault){LTI_FAULT_BLUR, 1, 0, HUGE_VAL, false};
    assert_true(lti_faults_apply(&f, z, &shape, 0, 0, 0.5, NULL, false));
    for (int i = 0; i < C * F * N; i++)
        assert_true(fabsf(z[i]) < 0.4f); /* means of nine of them */
}

/* Black and noise are broken; an object that leaves a plain wall, or comes before one, is not. */
static void what_is_broken(void **state)
{
    (void)state;
    enum { C = 4, F = 3, SIDE = 16, N = SIDE * SIDE, WALL = 0, OBJECT, BLACK, NOISE, KINDS };
    static float z[C * F * N];
    static lti_field f[KINDS];
    const lti_latent shape = {z, C, F, SIDE, SIDE};
    for (int kind = 0; kind < KINDS; kind++) {
        uint32_t seed = 1;
        for (int i = 0; i < C * F * N; i++) {
            const int c = i / (F * N), y = i % N / SIDE, x = i % SIDE;
            const bool covered = kind == OBJECT && y >= 4 && y < 9 && x >= 6 && x < 11;
            seed = seed * 1664525u + 1013904223u;
            z[i] = kind == BLACK   ? -1
                   : kind == NOISE ? (float)(seed >> 8) / (float)(1 << 23) - 1
                                   : 0.6f - 0.3f * (float)c + 0.01f * (float)(x + y);
            if (covered) z[i] += c % 2 ? 1 : -1;
        }
        lti_field_take(&f[kind], &shape, 0, F);
    }
    assert_true(f[OBJECT].sd[0] > 3 * f[WALL].sd[0]);
    assert_false(lti_field_broken(&f[WALL], &f[OBJECT], C));
    assert_false(lti_field_broken(&f[OBJECT], &f[WALL], C));
    for (int t = 0; t < LTI_LATENT_TILES; t++)
        f[OBJECT].tile[0][t] += 0.1f; /* it was corrected, and what comes is not yet */
    assert_false(lti_field_broken(&f[WALL], &f[OBJECT], C));
    for (int kind = WALL; kind <= OBJECT; kind++)
        assert_true(lti_field_broken(&f[BLACK], &f[kind], C));
    assert_true(lti_field_broken(&f[NOISE], &f[WALL], C));
}

static void fields_and_shifts(void **state)
{
    (void)state;
    enum { C = 2, F = 4, SIDE = 16, N = SIDE * SIDE };
    static float z[C * F * N];
    static lti_field ref, now;
    const lti_latent shape = {z, C, F, SIDE, SIDE};
    lti_shift none, s;
    double moved;
    for (int i = 0; i < C * F * N; i++)
        z[i] = sinf((float)(i % N) * 0.37f);
    lti_field_take(&ref, &shape, 0, F);
    for (int i = 0; i < C * F * N; i++)
        z[i] += i < F * N ? 0.1f : 0; /* one channel has moved */
    for (int f = 0; f < F; f++)       /* and something is there: 3 of 8 rows of tiles */
        for (int i = 0; i < 6 * SIDE; i++)
            z[f * N + i] += 3;
    lti_field_take(&now, &shape, 0, F);
    const double all = lti_shift_towards(&s, &moved, &now, &ref, C, 0.5, false);
    const double sd = (double)ref.sd[0];
    assert_true(fabs(all - 0.1 / sd / sqrt(2)) < 1e-3 && fabs(moved - all / 2) < 1e-3);
    assert_true(fabsf(s.offset[0] + 0.05f) < 1e-4f && s.offset[1] == 0 && s.scale[0] == 1);
    lti_shift_none(&none);
    const float first = z[N - 1], last = z[F * N - 1], other = z[2 * F * N - 1];
    lti_shift_apply(z, &shape, 0, F, &none, &s); /* a ramp */
    assert_true(fabsf(z[N - 1] - first + 0.0125f) < 1e-4f);
    assert_true(fabsf(z[F * N - 1] - last + 0.05f) < 1e-4f && z[2 * F * N - 1] == other);
    for (int i = 0; i < F * N; i++)
        z[i] += 100; /* bounded */
    lti_field_take(&now, &shape, 0, F);
    lti_shift_towards(&s, NULL, &now, &ref, C, 0.7, false);
    assert_true(fabs((double)s.offset[0] + 0.35 * sd) < 1e-3);
    assert_false(lti_field_broken(&now, &ref, C));
    for (int i = 0; i < C * F * N; i++)
        z[i] = 0.5f;
    lti_field_take(&now, &shape, 0, F);
    assert_true(lti_field_broken(&now, &ref, C));
}

/* Light that has come to be uneven: left a little up, right down. Most of it goes with a gain of 1, and what is no such field is left. */
static void fields_that_bend_are_taken_off(void **state)
{
    (void)state;
    enum { C = 1, F = 1, SIDE = 16, N = SIDE * SIDE };
    static float z[N], was[N];
    static lti_field ref, now, after;
    const lti_latent shape = {z, C, F, SIDE, SIDE};
    for (int bends = 0; bends < 2; bends++) {
        lti_shift s;
        double moved, before = 0, rest = 0;
        for (int i = 0; i < N; i++)
            was[i] = z[i] = sinf((float)i * 2.37f);
        lti_field_take(&ref, &shape, 0, F);
        for (int i = 0; i < N; i++)
            z[i] += 0.05f + (bends ? 0.06f * cosf((float)M_PI * ((float)(i % SIDE) + 0.5f) / SIDE)
                                   : 0.03f * (float)((i / 2 + i / SIDE / 2) % 2 * 2 - 1));
        lti_field_take(&now, &shape, 0, F);
        lti_shift_towards(&s, &moved, &now, &ref, C, 1, false);
        assert_true(moved > 0 && (lti_shift_low(&s, &ref, C) > 0.05) == bends);
        lti_shift_apply(z, &shape, 0, F, &s, &s);
        lti_field_take(&after, &shape, 0, F);
        for (int t = 0; t < LTI_LATENT_TILES; t++) {
            before += pow((double)(now.tile[0][t] - ref.tile[0][t]), 2);
            rest += pow((double)(after.tile[0][t] - ref.tile[0][t]), 2);
        }
        print_message("bends %d: %.4f left of %.4f\n", bends, sqrt(rest), sqrt(before));
        assert_true(bends ? rest < 0.05 * before : s.low[0][0] == 0);
        for (int i = 0; i < N && bends; i++)
            assert_true(fabsf(z[i] - was[i]) < 0.03f);
        lti_shift_towards(&s, NULL, &now, &ref, C, 0, false);
        assert_true(s.offset[0] == 0 && s.low[0][1] == 0);
    }
    for (int i = 0; i < N; i++) /* bounded, whatever it is */
        z[i] = was[i] + 9 * cosf((float)M_PI * ((float)(i % SIDE) + 0.5f) / SIDE);
    lti_shift s;
    float most = 0;
    lti_field_take(&now, &shape, 0, F);
    lti_shift_towards(&s, NULL, &now, &ref, C, 1, false);
    for (int k = 0; k < LTI_LOW; k++)
        most += fabsf(s.low[0][k]);
    assert_true(most > 0 && most <= 0.151f * ref.sd[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watching_changes_no_bit),
        cmocka_unit_test(naive_segments_tell_their_renditions),
        cmocka_unit_test(broken_blocks_are_drawn_again),
        cmocka_unit_test(black_is_not_what_was_asked_for),
        cmocka_unit_test(what_stays_broken_is_replayed),
        cmocka_unit_test(contrast_stays_taken_off),
        cmocka_unit_test(drawn_again_and_saved_with_corrections),
        cmocka_unit_test(saved_while_watching),
        cmocka_unit_test(kept_frames_are_corrected),
        cmocka_unit_test(segments_that_do_not_get_better_are_left_alone),
        cmocka_unit_test(kept_frames_are_changed),
        cmocka_unit_test(faults_as_text),
        cmocka_unit_test(what_faults_do),
        cmocka_unit_test(what_is_broken),
        cmocka_unit_test(fields_and_shifts),
        cmocka_unit_test(fields_that_bend_are_taken_off),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
