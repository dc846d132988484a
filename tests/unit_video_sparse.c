/* unit_video_sparse.c: whole renders of a tiny model with sparse attention, as a clip, in blocks and in segments: the same bits for
 * every thread count and way of guidance, a full plan the same picture as dense, and what the report says. */
#include "tests/tiny_model.h"
#include "video/model_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { W = 48, H = 32, FRAMES = 17, FRAME_BYTES = W * H * 3 };

static char folder[] = "/tmp/longtake-sparse-XXXXXX";

typedef struct world {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_model *model;
} world;

static world one, many; /* one thread; three */

static bool open_world(world *w, const char *device, int threads)
{
    lt_dev_options d = lt_dev_options_default();
    d.device = device;
    d.threads = threads;
    return lt_ctx_create(&w->ctx, NULL, NULL, LT_LOG_ERROR) >= 0 &&
           lt_dev_create(&w->dev, w->ctx, &d) >= 0 &&
           lt_model_open(&w->model, w->dev, &(lt_model_options){.path = folder, .dtype = LT_F32}) >=
               0;
}

static void close_world(world *w)
{
    lt_model_close(&w->model);
    lt_dev_destroy(&w->dev);
    lt_ctx_destroy(&w->ctx);
}

static uint8_t *render(const world *w, const char *attention, lt_mode mode, lt_cfg_mode cfg,
                       lt_session_report *r, bool redraw)
{
    lt_session *s;
    lt_frames f;
    lt_status st;
    uint8_t *video = calloc(FRAMES, FRAME_BYTES);
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball bounces on green grass";
    o.seed = 7;
    o.width = W;
    o.height = H;
    o.num_frames = mode == LT_MODE_EXTEND ? FRAMES : 13;
    o.num_inference_steps = 4;
    o.guidance_scale = 3;
    o.mode = mode;
    o.cfg_mode = cfg;
    o.attention = attention;
    if (mode == LT_MODE_AR) o.cache = "longlive:block=1,window=4,sink=1";
    if (mode == LT_MODE_EXTEND) o.extend = "segment=9,overlap=1";
    if (lt_session_create(&s, w->model, &o) < 0) fail_msg("%s", lt_error(w->ctx));
    int32_t frames = 0;
    if (mode == LT_MODE_AR && redraw) { /* what was drawn and thrown away leaves no trace */
        assert_int_equal(lt_session_draw(s), LT_OK);
        assert_int_equal(lt_session_redraw(s, 1), LT_OK);
        assert_int_equal(lt_session_redraw(s, 0), LT_OK);
    }
    while ((st = lt_session_next(s, &f)) == LT_OK) {
        memcpy(video + (size_t)frames * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
        frames += f.count;
    }
    if (st != LT_END) fail_msg("%s: %s", attention, lt_error(w->ctx));
    assert_int_equal(frames, o.num_frames);
    lt_session_get_report(s, r);
    lt_session_destroy(&s);
    return video;
}

static double mean_difference(const uint8_t *a, const uint8_t *b)
{
    double sum = 0;
    for (int i = 0; i < FRAMES * FRAME_BYTES; i++)
        sum += abs(a[i] - b[i]);
    return sum / (FRAMES * FRAME_BYTES);
}

static const char *const texts[] = {
    "sta:window=3x1x1,warmup=0.25,tile=2x1x2", "svg:density=0.1,layers=0",
    "radial:layers=0,sink=off,base=1,decay=0", "topk:keep=0.1,tile=2x1x2,warmup=0,refresh=9",
    "topk:p=0.5,centroid,warmup=0,tile=2x1x2", "topk:tau=0.5,warmup=0.5,drift=0.3,tile=1x2x2"};

static void same_bits_however_it_is_run(void **state)
{
    static const lt_mode modes[] = {LT_MODE_CLIP, LT_MODE_AR, LT_MODE_EXTEND};
    (void)state;
    for (size_t m = 0; m < LT_COUNT(modes); m++) {
        lt_session_report r, r2, rd;
        uint8_t *dense = render(&one, "dense", modes[m], LT_CFG_BATCH, &rd, false);
        assert_true(rd.sparse_density == 1 && rd.planning_seconds == 0);
        for (size_t i = 0; i < LT_COUNT(texts); i++) {
            /* segments are clips: threads need not be asked about again */
            const bool twice = modes[m] != LT_MODE_EXTEND;
            uint8_t *a = render(&one, texts[i], modes[m], LT_CFG_BATCH, &r, false);
            uint8_t *b = twice ? render(&many, texts[i], modes[m], LT_CFG_SERIAL, &r2, true) : NULL;
            if (twice && memcmp(a, b, FRAMES * FRAME_BYTES)) fail_msg("%s: other bits", texts[i]);
            /* so narrow a window shows; what a small random model reads far away need not */
            if (i == 0 && mean_difference(a, dense) <= 0.01)
                fail_msg("%s: %g from dense", texts[i], mean_difference(a, dense));
            if (!(r.attention_density < rd.attention_density && r.sparse_density < 1 &&
                  r.sparse_density > 0 && r.planning_seconds > 0 && r.dit_flops < rd.dit_flops))
                fail_msg("%s: density %g, sparse %g, dense %g; %g operations, dense %g", texts[i],
                         r.attention_density, r.sparse_density, rd.attention_density, r.dit_flops,
                         rd.dit_flops);
            free(a);
            free(b);
        }
        free(dense);
    }
}

static void full_plans_are_dense(void **state)
{
    static const char *const full[] = {
        "topk:keep=1,warmup=0,tile=2x2x3", "sta:window=9x9x9,warmup=0",
        "topk:keep=1,centroid,tile=3x2x2", "svg:density=1,layers=0,warmup=0"};
    static const lt_mode modes[] = {LT_MODE_CLIP, LT_MODE_AR};
    (void)state;
    for (size_t m = 0; m < LT_COUNT(modes); m++) {
        lt_session_report r;
        uint8_t *dense = render(&one, "dense", modes[m], LT_CFG_BATCH, &r, false);
        for (size_t i = 0; i < LT_COUNT(full); i++) {
            uint8_t *v = render(&many, full[i], modes[m], LT_CFG_BATCH, &r, false);
            if (mean_difference(v, dense) > 0.02)
                fail_msg("%s: %g from dense", full[i], mean_difference(v, dense));
            assert_true(r.sparse_density == 1);
            free(v);
        }
        free(dense);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || !tiny_model_write(folder, 1)) return -1;
    return open_world(&one, "guard", 1) && open_world(&many, "cpu", 3) ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    close_world(&one);
    close_world(&many);
    tiny_model_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_however_it_is_run),
        cmocka_unit_test(full_plans_are_dense),
    };
    return cmocka_run_group_tests(tests, set_up, drop);
}
