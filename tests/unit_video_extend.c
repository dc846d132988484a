/* unit_video_extend.c: videos longer than a model's clips, segment by segment, and videos that go on from pictures. The first segment is
 * a clip bit by bit; what one segment gives to the next is what it drew; memory is constant; everything that cannot be is refused
 * with the nearest that can. */
#include "kernels/internal.h"
#include "tests/tiny_video.h"
#include "video/session_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Segments of 4 latent frames, 2 of them given: 13 frames, then 8 more with each. */
static lt_session_options options(int32_t frames)
{
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball bounces on green grass";
    o.seed = 7;
    o.width = W;
    o.height = H;
    o.num_frames = frames;
    o.mode = LT_MODE_EXTEND;
    o.extend = "segment=13,overlap=2";
    return o;
}

static const uint8_t *pictures(void)
{
    static uint8_t rgb[9 * FRAME_BYTES];
    for (int i = 0; i < (int)sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 7 % 251 + i / FRAME_BYTES);
    return rgb;
}

static void render(const world *w, const lt_session_options *o, uint8_t *video,
                   lt_session_report *r)
{
    int64_t frames = 0;
    lt_session *s = create(w, o);
    if (pull(s, video, &frames) != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(frames, o->num_frames);
    if (r) lt_session_get_report(s, r);
    lt_session_destroy(&s);
}

static uint8_t *space(void)
{
    uint8_t *v = malloc(MOST * FRAME_BYTES);
    assert_non_null(v);
    return v;
}

static void same_bits_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int threads;
        lt_cfg_mode cfg;
    } cases[] = {{"cpu", 1, LT_CFG_BATCH}, {"cpu", 2, LT_CFG_SERIAL}, {"guard", 2, LT_CFG_BATCH}};
    static const char *const ways[] = {"segment=13,overlap=2", "segment=13,overlap=1,head=latent",
                                       "segment=17,overlap=2,head=first", "naive,segment=13"};
    static const int64_t segments[] = {3, 3, 2, 3};
    uint8_t *first = space(), *video = space();
    for (size_t k = 0; k < LT_COUNT(ways); k++)
        for (size_t i = 0; i < LT_COUNT(cases); i++) {
            world w;
            lt_session_report r;
            lt_session_options o = options(29);
            o.extend = ways[k];
            o.cfg_mode = cases[i].cfg;
            open_world(&w, cases[i].device, cases[i].threads, LT_F32);
            render(&w, &o, i ? video : first, &r);
            assert_int_equal(r.step_allocs, 0);
            assert_int_equal(r.blocks, segments[k]);
            assert_int_equal(r.dit_passes, r.blocks * r.steps * 2);
            if (i) assert_memory_equal(video, first, 29 * FRAME_BYTES);
            close_world(&w);
        }
    free(first);
    free(video);
}

/* The first segment is a clip, with a first picture too, and does not know how long the video will be. */
static void the_first_segment_is_a_clip(void **state)
{
    (void)state;
    world w;
    uint8_t *clip = space(), *video = space();
    open_world(&w, "cpu", 2, LT_F32);
    for (int image = 0; image < 2; image++)
        for (int naive = 0; naive < 2; naive++) {
            lt_session_options o = options(21), c = options(13);
            o.image = c.image = image ? pictures() : NULL;
            if (naive) o.extend = "naive,segment=13";
            c.mode = LT_MODE_CLIP;
            c.extend = NULL;
            render(&w, &c, clip, NULL);
            render(&w, &o, video, NULL);
            assert_memory_equal(clip, video, 13 * FRAME_BYTES);
        }
    lt_session_options o = options(37), shorter = options(17);
    render(&w, &o, video, NULL);
    render(&w, &shorter, clip, NULL);
    assert_memory_equal(clip, video, 17 * FRAME_BYTES);
    o.extend = "segment=13,overlap=2,head=latent";
    render(&w, &o, clip, NULL);
    assert_memory_equal(clip, video, 13 * FRAME_BYTES);
    assert_memory_not_equal(clip, video, 37 * FRAME_BYTES);
    o.seed = 8;
    render(&w, &o, clip, NULL);
    assert_memory_not_equal(clip, video, FRAME_BYTES);
    close_world(&w);
    free(clip);
    free(video);
}

/* ---- what is given ---- */

static void download(const world *w, float *to, const float *from, int64_t n)
{
    assert_int_equal(lt_dev_download(w->dev, to, from, (size_t)n * sizeof(float)), LT_OK);
}

/* Frames of the latent, [16, 4, AREA]. */
static const float *frame_of(const float *z, int frames, int channel, int frame)
{
    return z + (channel * frames + frame) * AREA;
}

/* The end of a segment is the beginning of the next one, number by number, and stays so through all steps. */
static void segments_hand_on_what_they_drew(void **state)
{
    (void)state;
    enum { N = 16 * 4 * AREA };
    static float before[N], given[16 * 2 * AREA], after[N];
    static const char *const ways[] = {"segment=13,overlap=2,head=latent", "segment=13,overlap=2",
                                       "segment=13,overlap=2,head=first"};
    world w;
    open_world(&w, "guard", 1, LT_F32);
    for (size_t k = 0; k < LT_COUNT(ways); k++) {
        lt_session_options o = options(29);
        lt_frames f;
        o.extend = ways[k];
        lt_session *s = create(&w, &o);
        for (int i = 0; i < 4; i++)
            assert_int_equal(lt_session_next(s, &f), LT_OK);
        download(&w, before, lti_denoise_latent(s->extend->d), N);
        assert_int_equal(lt_session_next(s, &f), LT_OK); /* draws the second segment */
        assert_int_equal(s->extend->segments, 2);
        download(&w, after, lti_denoise_latent(s->extend->d), N);
        download(&w, given, s->extend->given, 16 * 2 * AREA);
        for (int c = 0; c < 16; c++) {
            for (int i = 0; i < 2; i++)
                assert_memory_equal(frame_of(after, 4, c, i), frame_of(given, 2, c, i),
                                    AREA * sizeof(float));
            assert_memory_equal(frame_of(given, 2, c, 1), frame_of(before, 4, c, 3),
                                AREA * sizeof(float));
            if (k == 0)
                assert_memory_equal(frame_of(given, 2, c, 0), frame_of(before, 4, c, 2),
                                    AREA * sizeof(float));
            if (k == 2)
                assert_memory_equal(frame_of(given, 2, c, 0), frame_of(before, 4, c, 0),
                                    AREA * sizeof(float));
        }
        lt_session_destroy(&s);
    }
    close_world(&w);
}

/* The head is the last picture of the latent frame whose place it takes, encoded as a first one. */
static void the_head_is_a_picture_that_was_shown(void **state)
{
    (void)state;
    static float given[16 * 2 * AREA], want[16 * AREA];
    world w;
    uint8_t *video = space();
    open_world(&w, "cpu", 1, LT_F32);
    for (int naive = 0; naive < 2; naive++) {
        lt_session_options o = options(29);
        lt_frames f;
        if (naive) o.extend = "naive,segment=13";
        lt_session *s = create(&w, &o);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(lt_session_next(s, &f), LT_OK);
            memcpy(video + f.first * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
        }
        float *z; /* latent frame 2 is frames 5 to 8, 3 is 9 to 12 */
        assert_int_equal(lti_model_encode_frames(
                             w.model, &z, video + (naive ? 12 : 8) * FRAME_BYTES, 1, W, H, NULL),
                         LT_OK);
        download(&w, want, z, 16 * AREA);
        const int frames = naive ? 1 : 2;
        download(&w, given, s->extend->given, 16 * frames * AREA);
        for (int c = 0; c < 16; c++)
            assert_memory_equal(frame_of(given, frames, c, 0), want + c * AREA,
                                AREA * sizeof(float));
        lt_dev_free(w.dev, z);
        lt_session_destroy(&s);
    }
    free(video);
    close_world(&w);
}

/* A video that is continued: its end is what the first new frames see, in both modes that can. */
static void videos_are_continued(void **state)
{
    (void)state;
    static const struct {
        lt_mode mode;
        const char *extend, *cache;
        int32_t most;
    } ways[] = {{LT_MODE_EXTEND, "segment=13,overlap=2", NULL, 5},
                {LT_MODE_EXTEND, "naive,segment=13", NULL, 1},
                {LT_MODE_EXTEND, "segment=17,overlap=2,head=first", NULL, 5},
                {LT_MODE_AR, NULL, "infinity-rope:window=5,block=2", 1 + 4},
                {LT_MODE_AR, NULL, "self-forcing:window=7,block=3", 1 + 4 * 2}};
    uint8_t *a = space(), *b = space();
    for (size_t k = 0; k < LT_COUNT(ways); k++) {
        lt_session_options o = options(16);
        o.mode = ways[k].mode;
        o.extend = ways[k].extend;
        o.cache = ways[k].cache;
        o.given = pictures();
        for (o.given_frames = 1; o.given_frames <= ways[k].most; o.given_frames += 4) {
            world w;
            lt_session_report r;
            lt_model_info info;
            int32_t most;
            open_world(&w, "cpu", 2, LT_F32);
            lt_model_get_info(w.model, &info);
            assert_int_equal(lt_session_given_frames(&most, w.ctx, &info, &o), LT_OK);
            assert_int_equal(most, ways[k].most);
            render(&w, &o, a, &r);
            assert_true(r.encode_seconds > 0 && r.step_allocs == 0);
            lt_session_options other = o;
            other.given = pictures() + FRAME_BYTES / 2;
            if (o.given_frames < 9) {
                render(&w, &other, b, NULL);
                assert_memory_not_equal(a, b, FRAME_BYTES);
            }
            close_world(&w);
            open_world(&w, "guard", 1, LT_F32);
            render(&w, &o, b, NULL);
            assert_memory_equal(a, b, 16 * FRAME_BYTES);
            close_world(&w);
        }
    }
    free(a);
    free(b);
}

/* A picture before the first block of mode ar is its first frame, decoded, and the blocks see it. */
static void a_picture_before_blocks(void **state)
{
    (void)state;
    world w;
    uint8_t *a = space(), *b = space();
    open_world(&w, "guard", 2, LT_F32);
    lt_session_options o = options(17), clip = options(9);
    o.mode = LT_MODE_AR;
    o.extend = clip.extend = NULL;
    o.cache = "infinity-rope:window=5,block=2";
    o.image = clip.image = pictures();
    clip.mode = LT_MODE_CLIP;
    render(&w, &o, a, NULL);
    render(&w, &clip, b, NULL);
    assert_memory_equal(a, b, FRAME_BYTES);
    o.seed = 9;
    render(&w, &o, b, NULL);
    assert_memory_equal(a, b, FRAME_BYTES);
    assert_memory_not_equal(a, b, 17 * FRAME_BYTES);
    o.seed = 7;
    o.image = pictures() + FRAME_BYTES;
    render(&w, &o, b, NULL);
    assert_memory_not_equal(a + 5 * FRAME_BYTES, b + 5 * FRAME_BYTES, FRAME_BYTES);
    lt_session_report r; /* it is the first block of models that have one of their own */
    o.cache = "self-forcing:window=5,block=2,first=1,first-of=3";
    render(&w, &o, b, &r);
    assert_int_equal(r.blocks, 2);
    close_world(&w);
    free(a);
    free(b);
}

/* A session that continues a video, or begins with a picture that has not been shown yet, is saved and goes on bit by bit. */
static void a_continued_video_is_saved(void **state)
{
    (void)state;
    char path[64];
    world w;
    lt_frames f;
    uint8_t *want = space(), *got = space();
    snprintf(path, sizeof path, "%s/saved", folder);
    open_world(&w, "cpu", 1, LT_F32);
    for (int image = 0; image < 2; image++) {
        lt_session_options o = options(image ? 17 : 16);
        o.mode = LT_MODE_AR;
        o.extend = NULL;
        o.cache = "infinity-rope:window=5,block=2";
        if (image) o.image = pictures();
        if (!image) {
            o.given = pictures();
            o.given_frames = 5;
        }
        render(&w, &o, want, NULL);
        lt_session *s = create(&w, &o);
        assert_int_equal(image ? lt_session_draw(s) : lt_session_next(s, &f), LT_OK);
        int64_t at = image ? 0 : f.count;
        if (lt_session_save(s, path) < 0) fail_msg("%s", lt_error(w.ctx));
        lt_session_destroy(&s);
        if (lt_session_restore(&s, w.model, path, NULL) < 0) fail_msg("%s", lt_error(w.ctx));
        while (lt_session_next(s, &f) == LT_OK) {
            assert_int_equal(f.first, at);
            memcpy(got + at * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
            at += f.count;
        }
        assert_int_equal(at, o.num_frames);
        const int64_t from = image ? 0 : 4;
        assert_memory_equal(got + from * FRAME_BYTES, want + from * FRAME_BYTES,
                            (size_t)(at - from) * FRAME_BYTES);
        lt_session_destroy(&s);
        unlink(path);
    }
    close_world(&w);
    free(want);
    free(got);
}

/* ---- resources ---- */

typedef struct watch {
    lt_session *s;
    lt_dev *dev;
    uint64_t early; /* most bytes in use until the third segment */
    int32_t stop;
} watch;

static void look(void *user, const lt_progress *p)
{
    watch *w = user;
    lt_mem_stats m;
    lt_dev_mem_stats(w->dev, &m);
    if (p->phase != LT_PHASE_DENOISE) return;
    assert_true(p->step <= p->steps);
    if (p->step <= 3 * 4) w->early = m.peak_total;
    if (w->stop && p->step == w->stop) lt_session_cancel(w->s);
}

static void memory_is_constant(void **state)
{
    (void)state;
    world w;
    lt_mem_stats m;
    lt_estimate e;
    uint8_t *v = space();
    open_world(&w, "cpu", 2, LT_F32);
    for (int naive = 0; naive < 2; naive++) {
        watch see = {.dev = w.dev};
        lt_session_report r;
        lt_session_options o = options(61);
        if (naive) o.extend = "naive,segment=13";
        o.progress = look;
        o.progress_user = &see;
        render(&w, &o, v, &r);
        lt_dev_mem_stats(w.dev, &m);
        assert_int_equal(m.peak_total, see.early);
        assert_int_equal(r.blocks, naive ? 5 : 7);
        assert_int_equal(r.step_allocs, 0);
        if (lt_session_estimate(&e, w.ctx, &(lt_model_options){.path = folder, .dtype = LT_F32},
                                &o) < 0)
            fail_msg("%s", lt_error(w.ctx));
        assert_true(m.peak_total <= e.total_peak);
        assert_true(fabs(e.flops / (r.dit_flops + r.vae_flops) - 1) < 0.2);
    }
    free(v);
    close_world(&w);
}

static void cancelling(void **state)
{
    (void)state;
    world w;
    int64_t frames = 0;
    uint8_t *v = space();
    open_world(&w, "cpu", 2, LT_F32);
    watch see = {.dev = w.dev, .stop = 6}; /* the second step of the second segment */
    lt_session_options o = options(61);
    o.progress = look;
    o.progress_user = &see;
    see.s = create(&w, &o);
    assert_int_equal(pull(see.s, v, &frames), LT_ERR_CANCELLED);
    assert_int_equal(frames, 13); /* those of the first segment were out */
    lt_session_destroy(&see.s);
    free(v);
    close_world(&w);
}

/* Allocation 1, 2, 3, ... of a video that is continued fails: a message, and nothing leaked. */
static void failing_allocations_are_statuses(void **state)
{
    (void)state;
    world w;
    lt_mem_stats before, after;
    uint8_t *v = space();
    open_world(&w, "cpu", 2, LT_F32);
    lt_session_options o = options(16);
    o.given = pictures();
    o.given_frames = 5;
    render(&w, &o, v, NULL);
    lt_dev_mem_stats(w.dev, &before);
    lt_status st = LT_ERR_MEM;
    for (int nth = 1; st != LT_END; nth += 3) {
        int64_t frames = 0;
        lti_dev_fail_alloc(w.dev, nth);
        lt_session *s = create(&w, &o);
        st = pull(s, v, &frames);
        lt_session_destroy(&s);
        lti_dev_fail_alloc(w.dev, 0);
        lt_dev_mem_stats(w.dev, &after);
        assert_int_equal(before.live_total, after.live_total);
        assert_true(st == LT_END || st == LT_ERR_MEM);
    }
    free(v);
    close_world(&w);
}

/* ---- refusals ---- */

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
    static const struct {
        const char *extend, *says;
    } ways[] = {
        {"segment=12", "segment 12: must be 4 k + 1; the nearest are 9 and 13"},
        {"segment=1", "segment 1: the nearest is 5"},
        {"segment=99999", "segment 99999: 4093 is the most"},
        {"segment=13,overlap=3", "overlap 3: latent frames, 1 to half of the segment's 4; the "
                                 "nearest is 2"},
        {"overlap=0", "the nearest is 1"},
        {"segment=13,overlap=1,head=first", "the nearest is 2"},
        {"segment=5,overlap=1,head=first", "too short for an overlap"},
        {"naive,overlap=2", "naive has its one picture alone"},
        {"overlap=-1", "'overlap=-1' is none of naive, segment=FRAMES"},
        {"overlap=2x", "'overlap=2x' is none of"},
        {"head=tail", "'head=tail' is none of"},
        {"overlap=2,,segment=13", "'' is none of"},
        {"naively", "'naively' is none of"},
    };
    world w;
    open_world(&w, "cpu", 1, LT_F32);
    for (size_t i = 0; i < LT_COUNT(ways); i++) {
        lt_session_options o = options(13);
        o.extend = ways[i].extend;
        refused(&w, &o, ways[i].says);
    }
    lt_session_options o = options(14);
    refused(&w, &o, "num_frames 14");
    o = options(13);
    o.mode = LT_MODE_CLIP;
    refused(&w, &o, "only in mode extend");
    o.extend = NULL;
    o.given = pictures();
    o.given_frames = 5;
    o.num_frames = 12;
    refused(&w, &o, "a clip continues no video: mode ar or extend does");
    o = options(13);
    o.given = pictures();
    o.given_frames = 5;
    refused(&w, &o, "num_frames 13: must be a multiple of 4; the nearest are 12 and 16 (new");
    o.num_frames = 12;
    o.given_frames = 4;
    refused(&w, &o, "given_frames 4: must be 4 k + 1; the nearest are 1 and 5");
    o.given_frames = 9;
    refused(&w, &o, "given_frames 9: 5 is the most");
    o.given_frames = 5;
    o.image = pictures();
    refused(&w, &o, "one of the two");
    close_world(&w);
}

/* ---- models with one time for all frames ---- */

enum { HELD = 16 * 2 * AREA };

typedef struct held {
    lt_session *s;
    world *w;
    lt_scheduler *schedule;
    float eps[HELD];
    int32_t seen;
} held;

/* While the second segment is drawn: its given frames are (1 - sigma) z + sigma eps after each step, eps always the same, and z in the
 * end. */
static void look_at_given(void *user, const lt_progress *p)
{
    static float z[HELD], x[16 * 4 * AREA];
    held *h = user;
    const lti_extend *e = h->s->extend;
    if (p->phase != LT_PHASE_DENOISE || !e || e->segments != 1) return;
    const int32_t step = p->step - lti_denoise_steps(e->d);
    const float sigma = lt_scheduler_sigma(h->schedule, step);
    download(h->w, z, e->given, HELD);
    download(h->w, x, lti_denoise_latent(e->d), 16 * 4 * AREA);
    double square = 0, product = 0;
    for (int i = 0; i < HELD; i++) {
        const float got = frame_of(x, 4, i / (2 * AREA), 0)[i % (2 * AREA)];
        if (sigma == 0) {
            assert_true(got == z[i]);
            continue;
        }
        const float eps = (got - (1 - sigma) * z[i]) / sigma;
        if (step == 1) h->eps[i] = eps;
        assert_true(fabsf(eps - h->eps[i]) < 1e-5f / sigma);
        square += (double)(eps * eps);
        product += (double)(eps * z[i]);
    }
    if (sigma > 0) assert_true(fabs(square / HELD - 1) < 0.3 && fabs(product / HELD) < 0.3);
    h->seen++;
}

static void render_held(world *w, lt_session_options o, uint8_t *video)
{
    held h = {.w = w};
    int64_t frames = 0;
    o.progress = look_at_given;
    o.progress_user = &h;
    h.s = create(w, &o);
    assert_int_equal(lt_scheduler_create(&h.schedule, w->ctx, &h.s->schedule), LT_OK);
    if (pull(h.s, video, &frames) != LT_END) fail_msg("%s", lt_error(w->ctx));
    assert_int_equal(h.seen, lt_scheduler_steps(h.schedule));
    lt_scheduler_destroy(&h.schedule);
    lt_session_destroy(&h.s);
}

static void write_one_time(void)
{
    assert_true(tiny_write_text(folder, "config.json",
                                "{\"model_type\": \"t2v\", \"num_heads\": 2, \"text_len\": 24, "
                                "\"dim\": 48, \"eps\": 1e-06}"));
}

/* The model is told one time for all: the other frames go where they go when nothing is held and the latent is the same. */
static void the_model_sees_one_time(void **state)
{
    (void)state;
    enum { FRAMES = 3, N = 16 * FRAMES * AREA };
    static float x[2][N], z[16 * AREA], text[4 * 32];
    world w;
    float *given;
    lti_denoise *d[2];
    write_one_time();
    open_world(&w, "cpu", 1, LT_F32);
    for (int i = 0; i < 4 * 32; i++)
        text[i] = (float)(i % 7 - 3);
    for (int i = 0; i < 16 * AREA; i++)
        z[i] = (float)(i % 5 - 2);
    const lt_scheduler_options schedule = {.solver = LT_SOLVER_EULER, .steps = 2, .shift = 1};
    assert_int_equal(lt_dev_alloc(w.dev, (void **)&given, sizeof z, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_upload(w.dev, given, z, sizeof z), LT_OK);
    for (int with = 1; with >= 0; with--) {
        const lti_denoise_options o = {.dit = w.model->dit,
                                       .frames = FRAMES,
                                       .h = H / 8,
                                       .w = W / 8,
                                       .schedule = &schedule,
                                       .guidance = 1,
                                       .cond = text,
                                       .cond_rows = 4,
                                       .first_frame = with ? given : NULL};
        assert_int_equal(lti_denoise_create(&d[with], &o), LT_OK);
        assert_int_equal(lti_denoise_begin(d[with], 0), LT_OK);
        assert_int_equal(lti_denoise_step(d[with], 0),
                         LT_OK); /* held: x is what the second step sees */
        download(&w, x[with], lti_denoise_latent(d[with]), N);
    }
    /* the second step of both from the same latent */
    assert_memory_not_equal(x[0], x[1], sizeof x[0]);
    assert_int_equal(lt_dev_upload(w.dev, lti_denoise_latent(d[0]), x[1], sizeof x[1]), LT_OK);
    for (int with = 0; with < 2; with++) {
        assert_int_equal(lti_denoise_step(d[with], 1), LT_OK);
        download(&w, x[with], lti_denoise_latent(d[with]), N);
        lti_denoise_destroy(&d[with]);
    }
    for (int c = 0; c < 16; c++) {
        assert_memory_equal(frame_of(x[1], FRAMES, c, 0), z + c * AREA, AREA * sizeof(float));
        assert_memory_equal(frame_of(x[0], FRAMES, c, 1), frame_of(x[1], FRAMES, c, 1),
                            2 * AREA * sizeof(float));
    }
    lt_dev_free(w.dev, given);
    close_world(&w);
    assert_true(tiny_model_write(folder, 1));
}

/* Wan2.1 T2V: what is given is held at every noise level, with every solver, and exact at the end. */
static void models_without_frame_times(void **state)
{
    (void)state;
    static const float list[] = {1000, 700, 300};
    write_one_time();
    world cpu, guard;
    uint8_t *a = space(), *b = space();
    open_world(&cpu, "cpu", 2, LT_F32);
    open_world(&guard, "guard", 1, LT_F32);
    for (lt_solver solver = LT_SOLVER_EULER; solver <= LT_SOLVER_RENOISE; solver++) {
        lt_session_options o = options(21);
        o.solver = solver;
        o.solver_set = true;
        o.step_list = solver == LT_SOLVER_RENOISE ? list : NULL;
        o.step_list_len = o.step_list ? LT_COUNT(list) : 0;
        o.guidance_scale = solver == LT_SOLVER_DPMPP ? 1 : 4;
        render_held(&cpu, o, a);
        render_held(&guard, o, b);
        assert_memory_equal(a, b, 21 * FRAME_BYTES);
    }
    lt_session_options o = options(16); /* what is given tells in what is drawn */
    o.extend = "segment=13,overlap=2,head=latent";
    o.given_frames = 5;
    for (int other = 0; other < 2; other++) {
        o.given = pictures() + other * FRAME_BYTES / 2;
        render(&cpu, &o, other ? b : a, NULL);
    }
    assert_memory_not_equal(a + 12 * FRAME_BYTES, b + 12 * FRAME_BYTES, FRAME_BYTES);
    lt_session_options clip = options(9); /* a first frame is kept, whatever the seed */
    clip.mode = LT_MODE_CLIP;
    clip.extend = NULL;
    clip.image = pictures();
    render(&cpu, &clip, a, NULL);
    clip.seed = 8;
    render(&cpu, &clip, b, NULL);
    assert_memory_equal(a, b, FRAME_BYTES);
    assert_memory_not_equal(a, b, 9 * FRAME_BYTES);
    close_world(&cpu);
    close_world(&guard);
    free(a);
    free(b);
    assert_true(tiny_model_write(folder, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(the_first_segment_is_a_clip),
        cmocka_unit_test(segments_hand_on_what_they_drew),
        cmocka_unit_test(the_head_is_a_picture_that_was_shown),
        cmocka_unit_test(videos_are_continued),
        cmocka_unit_test(a_picture_before_blocks),
        cmocka_unit_test(a_continued_video_is_saved),
        cmocka_unit_test(memory_is_constant),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(failing_allocations_are_statuses),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(the_model_sees_one_time),
        cmocka_unit_test(models_without_frame_times),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
