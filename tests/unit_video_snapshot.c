/* unit_video_snapshot.c: videos whose prompt changes, blocks drawn again, and sessions that go on from a file: what has been shown does
 * not depend on what comes, and what comes does not depend on having been stopped anywhere. */
#include "tests/tiny_world.h"
#include "video/session_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Every place in a plain build, some where sanitizers make each take seconds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 3 };
#else
enum { STRIDE = 1 };
#endif
enum { W = 48, H = 32, FRAME_BYTES = W * H * 3, FRAMES = 29, MOST = FRAMES * FRAME_BYTES };

static char saved[64];

static lt_session_options options(const char *cache)
{
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball bounces on green grass";
    o.seed = 7;
    o.width = W;
    o.height = H;
    o.num_frames = FRAMES;
    o.fps = 8;
    o.mode = LT_MODE_AR;
    o.cache = cache;
    return o;
}

typedef struct video {
    uint8_t *rgb; /* [MOST] */
    int64_t frames;
    lt_frames last; /* what was said of the last group */
    char prompt[64];
} video;

/* Groups of frames until `groups` of them or the end. */
static lt_status pull(lt_session *s, video *v, int groups)
{
    lt_status st = LT_OK;
    lt_frames f;
    for (int i = 0; i < groups && (st = lt_session_next(s, &f)) == LT_OK; i++) {
        assert_int_equal(f.first, v->frames);
        assert_true(v->frames + f.count <= FRAMES);
        memcpy(v->rgb + v->frames * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
        v->frames += f.count;
        v->last = f;
        snprintf(v->prompt, sizeof v->prompt, "%s", f.prompt_text);
    }
    return st;
}

static lt_session *open_session(const world *w, const lt_session_options *o)
{
    lt_session *s;
    if (lt_session_create(&s, w->model, o) < 0) fail_msg("%s", lt_error(w->ctx));
    return s;
}

static void render(const world *w, const lt_session_options *o, video *v)
{
    lt_session *s = open_session(w, o);
    v->frames = 0;
    if (pull(s, v, 1000) != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(v->frames, FRAMES);
    lt_session_destroy(&s);
}

static video space(void)
{
    const video v = {.rgb = malloc(MOST)};
    assert_non_null(v.rgb);
    return v;
}

static int64_t first_difference(const video *a, const video *b)
{
    int64_t f = 0;
    while (f < FRAMES && !memcmp(a->rgb + f * FRAME_BYTES, b->rgb + f * FRAME_BYTES, FRAME_BYTES))
        f++;
    return f;
}

/* ---- prompts ---- */

static const char *const policies[] = {
    "infinity-rope:window=5,block=2,switch=recache",
    "longlive:window=5,block=2,sink=1,switch=flush",
    "longlive:window=6,sink=1,first=1,context-time=20",
    "self-forcing:window=4,block=2,switch=keep",
    "longlive:window=5,block=2,sink=1,switch=cut",
    "infinity-rope:window=6,block=2,first=1,first-of=3,switch=cut"};
enum { BY_THREES = 2, SHOTS = 5 }; /* which of them */

/* Blocks of two latent frames begin at video frames 0, 5, 13, 21: a prompt for 2 s of 8 frames comes with frame 21. */
static void a_prompt_takes_effect_with_a_block(void **state)
{
    (void)state;
    world w;
    video plain = space(), turned = space();
    open_world(&w, "cpu", 1, LT_F32);
    for (size_t i = 0; i < LT_COUNT(policies); i++) {
        lt_session_options o = options(policies[i]);
        const lt_cue cue[] = {{.seconds = 2, .prompt = "a blue star"},
                              {.frame = 400, .prompt = "never"}};
        /* 1, then 3 at a time: 0, 1, 13, 25; 1, then 2: 0, 1, 9, 17 */
        const int64_t effect = i == BY_THREES ? 25 : i == SHOTS ? 17 : 21;
        render(&w, &o, &plain);
        o.timeline = cue;
        o.cues = 2;
        render(&w, &o, &turned);
        assert_int_equal(first_difference(&plain, &turned), effect);
        assert_int_equal(turned.last.prompt, 1);
        assert_int_equal(turned.last.prompt_frame, effect);
        assert_string_equal(plain.prompt, o.prompt);
        assert_string_equal(turned.prompt, "a blue star");
    }
    lt_session_options o = options(policies[SHOTS]); /* as the last one: a shot begins at once */
    const lt_cue blended = {.seconds = 2, .prompt = "a blue star", .blend_blocks = 4};
    o.timeline = &blended;
    o.cues = 1;
    render(&w, &o, &plain);
    assert_memory_equal(plain.rgb, turned.rgb, MOST);
    free(plain.rgb);
    free(turned.rgb);
    close_world(&w);
}

typedef struct caller {
    lt_session *s;
    lt_status status;
} caller;

static void *call_prompt(void *arg)
{
    caller *c = arg;
    c->status = lt_session_prompt(c->s, "a green square", 0);
    if (c->status == LT_OK) c->status = lt_session_prompt(c->s, "a blue star", 2);
    return NULL;
}

/* The same prompt by time and by a call of another thread gives the same bits; the last of two calls counts. */
static void prompts_by_time_and_by_call_are_the_same(void **state)
{
    (void)state;
    world w;
    video timed = space(), called = space();
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options(policies[0]);
    const lt_cue cue = {.frame = 5, .prompt = "a blue star", .blend_blocks = 2};
    o.timeline = &cue;
    o.cues = 1;
    render(&w, &o, &timed);
    o.cues = 0;
    lt_session *s = open_session(&w, &o);
    caller c = {.s = s};
    pthread_t thread;
    assert_int_equal(pull(s, &called, 1), LT_OK); /* the first block is drawn */
    assert_int_equal(pthread_create(&thread, NULL, call_prompt, &c), 0);
    pthread_join(thread, NULL);
    assert_int_equal(c.status, LT_OK);
    assert_int_equal(pull(s, &called, 1000), LT_END);
    assert_memory_equal(timed.rgb, called.rgb, MOST);
    int32_t n;
    const lt_prompt_mark *m = lt_session_prompts(s, &n);
    assert_int_equal(n, 2);
    assert_true(m[0].frame == 0 && m[1].frame == 5 && m[1].block == 1 && m[1].blend_blocks == 2);
    assert_string_equal(m[1].prompt, "a blue star");
    static const char *const bad[] = {"", " \n", "\xff", NULL};
    for (size_t i = 0; i < LT_COUNT(bad); i++)
        assert_int_equal(lt_session_prompt(s, bad[i], 0), LT_ERR_ARG);
    assert_int_equal(lt_session_prompt(s, "x", 257), LT_ERR_ARG);
    lt_session_destroy(&s);
    o.mode = LT_MODE_CLIP;
    o.cache = NULL;
    o.num_frames = 9;
    s = open_session(&w, &o);
    assert_int_equal(lt_session_prompt(s, "x", 0), LT_ERR_UNSUPPORTED);
    assert_int_equal(lt_session_save(s, saved), LT_ERR_UNSUPPORTED);
    lt_session_destroy(&s);
    free(timed.rgb);
    free(called.rgb);
    close_world(&w);
}

/* Written again under the same prompt, the kept frames lose only what had left the window: nothing before it is full, little after.
 * The numbers are printed, since the spec asks how much it is. */
static void the_same_prompt_changes_little(void **state)
{
    (void)state;
    static const int64_t at[] = {5, 21};
    world w;
    video plain = space(), same = space();
    open_world(&w, "cpu", 1, LT_F32);
    for (size_t i = 0; i < LT_COUNT(at); i++) {
        lt_session_options o = options("self-forcing:window=4,block=2");
        const lt_cue cue = {.frame = at[i], .prompt = o.prompt};
        render(&w, &o, &plain);
        o.timeline = &cue;
        o.cues = 1;
        render(&w, &o, &same);
        double sum = 0;
        for (int64_t k = at[i] * FRAME_BYTES; k < MOST; k++)
            sum += pow((double)plain.rgb[k] - (double)same.rgb[k], 2);
        const double mse = sum / (double)(MOST - at[i] * FRAME_BYTES);
        print_message("same prompt at frame %d: PSNR %.1f dB after it\n", (int)at[i],
                      10 * log10(255 * 255 / mse));
        assert_true(first_difference(&plain, &same) >= at[i]);
        if (at[i] == 5) assert_memory_equal(plain.rgb, same.rgb, MOST);
        assert_true(mse < 255 * 255 * 1e-2);
    }
    free(plain.rgb);
    free(same.rgb);
    close_world(&w);
}

static void bad_timelines_are_refused(void **state)
{
    (void)state;
    static const struct {
        lt_cue cue[2];
        const char *says;
    } bad[] = {
        {{{.seconds = 1, .prompt = "a"}, {.seconds = 0.5, .prompt = "b"}},
         "prompt 2 is earlier than the one before it: at frame 4, that one at 8"},
        {{{.frame = 9, .prompt = "a"}, {.seconds = 1, .prompt = "b"}}, "prompt 2 is earlier"},
        {{{.seconds = 1, .prompt = "a"}, {.seconds = 2, .prompt = " "}},
         "prompt 2: the text is empty"},
        {{{.seconds = 1, .prompt = "a\xc0"}, {.seconds = 2, .prompt = "b"}},
         "prompt 1: the text is not"},
        {{{.seconds = -1, .prompt = "a"}, {.seconds = 2, .prompt = "b"}}, "second -1: not a time"},
        {{{.seconds = (double)NAN, .prompt = "a"}, {.prompt = "b"}}, "not a time"},
        {{{.prompt = "a", .blend_blocks = 300}, {.prompt = "b"}}, "blend over 300 blocks"},
    };
    world w;
    lt_session *s;
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options(NULL);
    o.cues = 2;
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        o.timeline = bad[i].cue;
        assert_int_equal(lt_session_create(&s, w.model, &o), LT_ERR_ARG);
        if (!strstr(lt_error(w.ctx), bad[i].says)) fail_msg("%s", lt_error(w.ctx));
    }
    o.mode = LT_MODE_CLIP;
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_ERR_ARG);
    close_world(&w);
}

/* ---- drawing again ---- */

static void blocks_are_drawn_again(void **state)
{
    (void)state;
    world w;
    video plain = space(), again = space();
    open_world(&w, "guard", 2, LT_F32);
    lt_session_options o = options(policies[0]);
    render(&w, &o, &plain);
    lt_session *s = open_session(&w, &o);
    lt_status st;
    assert_int_equal(lt_session_redraw(s, 0), LT_ERR_ARG);
    while ((st = lt_session_draw(s)) != LT_END) {
        if (st < 0) fail_msg("%s", lt_error(w.ctx));
        if (st == LT_OK) {
            assert_int_equal(lt_session_draw(s), LT_OK); /* it stays */
            assert_int_equal(lt_session_redraw(s, 3), LT_OK);
            assert_int_equal(lt_session_redraw(s, 256), LT_ERR_ARG);
            assert_int_equal(lt_session_redraw(s, 0), LT_OK);
        } else {
            assert_int_equal(st, LT_AGAIN);
            assert_int_equal(lt_session_redraw(s, 0), LT_ERR_ARG);
        }
        assert_int_equal(pull(s, &again, 1), LT_OK);
    }
    assert_memory_equal(plain.rgb, again.rgb, MOST);
    lt_session_destroy(&s);
    again.frames = 0;
    s = open_session(&w, &o);
    assert_int_equal(lt_session_draw(s), LT_OK);
    assert_int_equal(lt_session_redraw(s, 1), LT_OK);
    assert_int_equal(pull(s, &again, 1000), LT_END);
    assert_int_equal(first_difference(&plain, &again), 0);
    lt_session_destroy(&s);
    free(plain.rgb);
    free(again.rgb);
    close_world(&w);
}

/* ---- files ---- */

static lt_session *restore(const world *w, const lt_session_options *o)
{
    lt_session *s;
    if (lt_session_restore(&s, w->model, saved, o) < 0) fail_msg("%s", lt_error(w->ctx));
    return s;
}

/* The rest of what was saved, after what is there. */
static void ends_as(const world *w, video *got, const video *want)
{
    lt_session *s = restore(w, NULL);
    if (pull(s, got, 1000) != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_memory_equal(got->rgb, want->rgb, MOST);
    lt_session_destroy(&s);
}

static void goes_on(const world *w, lt_session *s, video *got, const video *want)
{
    if (lt_session_save(s, saved) < 0) fail_msg("%s", lt_error(w->ctx));
    lt_session_destroy(&s);
    ends_as(w, got, want);
}

/* Saved after every group of frames and taken up by another model, device and context. */
static void a_video_goes_on_from_everywhere(void **state)
{
    (void)state;
    static const lt_cue cues[] = {{.frame = 13, .prompt = "a blue star", .blend_blocks = 2}};
    video want = space(), got = space();
    for (size_t i = 0; i < LT_COUNT(policies); i++) {
        world w, other;
        open_world(&w, i ? "cpu" : "guard", 2, i % 2 ? LT_BF16 : LT_F32);
        open_world(&other, "cpu", 1, i % 2 ? LT_BF16 : LT_F32);
        lt_session_options o = options(policies[i]);
        o.timeline = cues;
        o.cues = 1;
        o.guidance_scale = i < 2 ? 3 : 1;
        render(&w, &o, &want);
        for (int groups = 1; groups <= 8; groups += STRIDE) {
            lt_session *s = open_session(&w, &o);
            got.frames = 0;
            assert_int_equal(pull(s, &got, groups), LT_OK);
            if (lt_session_save(s, saved) < 0) fail_msg("%s", lt_error(w.ctx));
            lt_session_destroy(&s);
            s = restore(&other, NULL);
            if (pull(s, &got, 1000) != LT_END) fail_msg("%s", lt_error(other.ctx));
            assert_int_equal(got.frames, FRAMES);
            assert_memory_equal(got.rgb, want.rgb, MOST);
            assert_int_equal(got.last.prompt, want.last.prompt);
            assert_int_equal(got.last.block, want.last.block);
            assert_string_equal(got.prompt, want.prompt);
            lt_session_report r;
            lt_session_get_report(s, &r);
            assert_int_equal(r.step_allocs, 0);
            lt_session_destroy(&s);
        }
        close_world(&w);
        close_world(&other);
    }
    free(want.rgb);
    free(got.rgb);
}

typedef struct stop {
    lt_session *s;
    int count;
} stop;

static void stop_later(void *user, const lt_progress *p)
{
    stop *k = user;
    (void)p;
    if (k->count-- == 0) lt_session_cancel(k->s);
}

/* A part of what sparse attention reads is chosen from step to step, for the pass that keeps a block too; that is not saved. */
static void a_sparse_video_goes_on(void **state)
{
    (void)state;
    static const char *const attention[] = {"topk:keep=0.3,tile=2x1x2,warmup=0,drift=0.5",
                                            "topk:keep=0.3,tile=2x1x2,warmup=0,refresh=9",
                                            "svg:density=0.5,warmup=0"};
    world w;
    video want = space(), got = space();
    open_world(&w, "cpu", 1, LT_F32);
    for (size_t i = 0; i < LT_COUNT(attention); i++) {
        lt_session_options o = options("self-forcing:window=6,block=2");
        o.attention = attention[i];
        o.num_inference_steps = 4;
        render(&w, &o, &want);
        for (int groups = 1; groups <= 8; groups += STRIDE) {
            lt_session *s = open_session(&w, &o);
            got.frames = 0;
            assert_int_equal(pull(s, &got, groups), LT_OK);
            goes_on(&w, s, &got, &want);
        }
    }
    free(want.rgb);
    free(got.rgb);
    close_world(&w);
}

/* Cancelled wherever the progress is told, between frames of one group too, saved, and gone on with. */
static void cancelled_goes_on(const char *policy)
{
    static const lt_cue cues[] = {{.frame = 13, .prompt = "a blue star"}};
    world w;
    video want = space(), got = space();
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options(policy);
    o.timeline = cues;
    o.cues = 1;
    render(&w, &o, &want);
    int resumed = 0;
    for (int at = 0; at < 48; at += STRIDE) {
        stop k = {.count = at};
        o.progress = stop_later;
        o.progress_user = &k;
        lt_session *s = k.s = open_session(&w, &o);
        got.frames = 0;
        const lt_status st = pull(s, &got, 1000);
        assert_true(st == LT_ERR_CANCELLED || st == LT_END);
        const lt_status save = lt_session_save(s, saved);
        if (save == LT_ERR_ARG) assert_int_equal(got.frames, 0);
        lt_session_destroy(&s);
        if (save < 0) continue;
        ends_as(&w, &got, &want);
        resumed++;
    }
    assert_true(resumed > 30 / STRIDE);
    free(want.rgb);
    free(got.rgb);
    close_world(&w);
}

static void a_cancelled_video_goes_on(void **state)
{
    (void)state;
    cancelled_goes_on(policies[0]);
    cancelled_goes_on(policies[SHOTS]);
}

/* Cancelled in a pass, also of the picture that a new shot begins with, where more frames are drawn than a block has. */
static void a_video_cancelled_in_a_pass_goes_on(void **state)
{
    (void)state;
    static const lt_cue cues[] = {{.frame = 13, .prompt = "a blue star"}};
    world w;
    video want = space(), got = space();
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options(policies[SHOTS]);
    o.timeline = cues;
    o.cues = 1;
    render(&w, &o, &want);
    for (int groups = 1; groups <= 5; groups += 2) { /* whole blocks */
        lt_session *s = open_session(&w, &o);
        got.frames = 0;
        assert_int_equal(pull(s, &got, groups), LT_OK);
        assert_true(lti_session_wants_block(s));
        assert_int_equal(lti_rollout_keep(s->rollout), LT_OK);
        atomic_store(&s->cancel, true);
        assert_int_equal(lti_session_next_block(s), LT_ERR_CANCELLED);
        goes_on(&w, s, &got, &want);
    }
    free(want.rgb);
    free(got.rgb);
    close_world(&w);
}

/* A video that has come to its end can be made longer. */
static void a_finished_video_goes_on(void **state)
{
    (void)state;
    world w;
    video want = space(), got = space();
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options(policies[0]), longer = {.num_frames = FRAMES};
    render(&w, &o, &want);
    o.num_frames = 9;
    lt_session *s = open_session(&w, &o);
    assert_int_equal(pull(s, &got, 1000), LT_END);
    assert_int_equal(lt_session_save(s, saved), LT_OK);
    lt_session_destroy(&s);
    lt_snapshot_info info;
    assert_int_equal(lt_snapshot_inspect(&info, w.ctx, saved), LT_OK);
    assert_true(info.width == W && info.height == H && info.fps == 8 && info.seed == 7);
    assert_true(info.next_frame == 9 && info.num_frames == 9);
    assert_string_equal(info.prompt, o.prompt);
    assert_string_equal(info.cache, o.cache);
    s = restore(&w, NULL);
    lt_frames f;
    assert_int_equal(lt_session_next(s, &f), LT_END);
    lt_session_destroy(&s);
    s = restore(&w, &longer);
    assert_int_equal(pull(s, &got, 1000), LT_END);
    assert_memory_equal(got.rgb, want.rgb, MOST);
    lt_session_destroy(&s);
    longer.num_frames = 5;
    assert_int_equal(lt_session_restore(&s, w.model, saved, &longer), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(w.ctx), "9 have been handed out"));
    free(want.rgb);
    free(got.rgb);
    close_world(&w);
}

static void save_one(const world *w)
{
    video v = space();
    lt_session_options o = options("infinity-rope:window=3,block=1");
    lt_session *s = open_session(w, &o);
    assert_int_equal(lt_session_save(s, saved), LT_ERR_ARG); /* nothing has been drawn */
    assert_int_equal(pull(s, &v, 4), LT_OK);
    assert_int_equal(lt_session_save(s, saved), LT_OK);
    lt_session_destroy(&s);
    free(v.rgb);
}

/* Also those that say nothing, and the longest. */
static void every_prompt_can_be_saved(void **state)
{
    (void)state;
    world w;
    lt_frames f;
    lt_session *s;
    char *longest = calloc(1, LT_MAX_PROMPT_BYTES + 2);
    assert_non_null(longest);
    memset(longest, 'a', LT_MAX_PROMPT_BYTES);
    const char *const prompts[] = {"", " \n", longest};
    open_world(&w, "cpu", 1, LT_F32);
    lt_session_options o = options("infinity-rope:window=3,block=1");
    for (size_t i = 0; i < LT_COUNT(prompts); i++) {
        o.prompt = prompts[i];
        s = open_session(&w, &o);
        assert_int_equal(lt_session_next(s, &f), LT_OK);
        assert_int_equal(lt_session_save(s, saved), LT_OK);
        lt_session_destroy(&s);
        s = restore(&w, NULL);
        assert_int_equal(lt_session_next(s, &f), LT_OK);
        assert_string_equal(f.prompt_text, prompts[i]);
        lt_session_destroy(&s);
    }
    longest[LT_MAX_PROMPT_BYTES] = 'a';
    o.prompt = longest;
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(w.ctx), "longer than 65536 bytes"));
    o.prompt = "a ball";
    o.negative_prompt = longest;
    assert_int_equal(lt_session_create(&s, w.model, &o), LT_ERR_ARG);
    free(longest);
    close_world(&w);
}

/* Cancelled while what it begins with was taken up: there is no state that frames could go on from. */
static void what_has_not_begun_is_not_saved(void **state)
{
    (void)state;
    world w;
    lt_frames f;
    open_world(&w, "cpu", 1, LT_F32);
    const lt_session_options o = options("infinity-rope:window=3,block=1");
    lt_session *s = open_session(&w, &o);
    assert_int_equal(lti_session_open_rollout(s), LT_OK);
    assert_int_equal(lti_session_open_decoder(s), LT_OK);
    lt_session_cancel(s);
    assert_int_equal(lt_session_next(s, &f), LT_ERR_CANCELLED);
    assert_int_equal(lt_session_save(s, saved), LT_ERR_ARG);
    lt_session_destroy(&s);
    close_world(&w);
}

static uint8_t *read_saved(size_t *n)
{
    FILE *f = fopen(saved, "rb");
    struct stat st;
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    uint8_t *data = malloc((size_t)st.st_size);
    *n = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    return data;
}

static lt_status try_bytes(const world *w, uint8_t *data, size_t n)
{
    lt_session *s;
    FILE *f = fmemopen(data, n, "rb");
    assert_non_null(f);
    const lt_status st = lti_snapshot_read(&s, w->model, f, n, NULL);
    fclose(f);
    assert_true((st < 0) == !s);
    lt_session_destroy(&s);
    return st;
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    world w, other;
    size_t n;
    open_world(&w, "cpu", 1, LT_F32);
    save_one(&w);
    uint8_t *data = read_saved(&n);
    assert_int_equal(try_bytes(&w, data, n), LT_OK);
    for (size_t at = 0; at < n; at += at < 2000 ? 7 : n / 40) {
        data[at] ^= 0x41;
        const lt_status st = try_bytes(&w, data, n);
        if (st >= 0) fail_msg("byte %zu of %zu", at, n);
        if (st == LT_ERR_ARG && !strstr(lt_error(w.ctx), "model"))
            fail_msg("byte %zu is not the caller's fault: %s", at, lt_error(w.ctx));
        data[at] ^= 0x41;
    }
    static const uint8_t size[16] = {W, [8] = H};
    uint8_t *width = memmem(data, n, size, sizeof size);
    assert_non_null(width);
    ++*width;
    assert_int_equal(try_bytes(&w, data, n), LT_ERR_FORMAT);
    assert_non_null(strstr(lt_error(w.ctx), "is damaged: width"));
    --*width;
    data[8]--; /* the version, after the mark */
    assert_int_equal(try_bytes(&w, data, n), LT_ERR_FORMAT);
    assert_non_null(strstr(lt_error(w.ctx), "was saved by another build: its version is"));
    data[8]++;
    for (size_t cut = 1; cut < n; cut += cut < 2000 ? 11 : n / 20)
        assert_int_equal(try_bytes(&w, data, cut), LT_ERR_FORMAT);
    free(data);

    lt_session *s;
    open_world(&other, "cpu", 1, LT_BF16);
    assert_int_equal(lt_session_restore(&s, other.model, saved, NULL), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(other.ctx), "choose --dtype f32"));
    other.model->fingerprint++;
    assert_int_equal(lt_session_restore(&s, other.model, saved, NULL), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(other.ctx), "is of another model"));
    assert_int_equal(lt_session_restore(&s, other.model, folder, NULL), LT_ERR_IO);
    assert_int_equal(lt_session_restore(&s, other.model, "/nowhere/x", NULL), LT_ERR_IO);
    close_world(&other);
    close_world(&w);
}

/* All frames of the block are out, and one is on its way: behind them there is nothing to decode. */
static void impossible_places_are_refused(void **state)
{
    (void)state;
    world w;
    video v = space();
    open_world(&w, "cpu", 1, LT_F32);
    const lt_session_options o = options("infinity-rope:window=3,block=1");
    lt_session *s = open_session(&w, &o), *again;
    assert_int_equal(pull(s, &v, 2), LT_OK);
    assert_int_equal(s->used, lti_rollout_frames(s->rollout));
    s->in_group = true;
    assert_int_equal(lt_session_save(s, saved), LT_OK);
    assert_int_equal(lt_session_restore(&again, w.model, saved, NULL), LT_ERR_FORMAT);
    lt_session_destroy(&s);
    free(v.rgb);
    close_world(&w);
}

static int make_model(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || !tiny_model_write(folder, 1)) return -1;
    snprintf(saved, sizeof saved, "%s/session", folder);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    unlink(saved);
    tiny_model_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_takes_effect_with_a_block),
        cmocka_unit_test(prompts_by_time_and_by_call_are_the_same),
        cmocka_unit_test(the_same_prompt_changes_little),
        cmocka_unit_test(bad_timelines_are_refused),
        cmocka_unit_test(blocks_are_drawn_again),
        cmocka_unit_test(a_video_goes_on_from_everywhere),
        cmocka_unit_test(a_sparse_video_goes_on),
        cmocka_unit_test(a_cancelled_video_goes_on),
        cmocka_unit_test(a_video_cancelled_in_a_pass_goes_on),
        cmocka_unit_test(a_finished_video_goes_on),
        cmocka_unit_test(every_prompt_can_be_saved),
        cmocka_unit_test(what_has_not_begun_is_not_saved),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(impossible_places_are_refused),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
