/* unit_video_dit.c: passes of a tiny transformer: a sample's bits do not depend on its company, timesteps can differ by token, a pass
 * allocates nothing, and what cannot be is refused. Its numbers are compared with the original code by parity_dit.c. */
#include "tests/tiny_model.h"
#include "video/denoise.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum {
    T = 3,
    LH = 4,
    LW = 6,
    TOKENS = T * (LH / 2) * (LW / 2),
    NUMBERS = 16 * T * LH * LW,
    ROWS = 5
};

static char folder[] = "/tmp/longtake-dit-XXXXXX";
static lt_ctx *ctx;

typedef struct bench {
    lt_dev *dev;
    lti_dit *dit;
    lti_dit_run *run;
    lti_prompt *prompt[2];
    float *x[2], *v[2];
} bench;

static const double times[] = {900, 300, 0};

static void open_bench(bench *b, const char *device, lt_dtype compute, int32_t batch)
{
    *b = (bench){0};
    lt_dev_options o = lt_dev_options_default();
    o.device = device;
    o.threads = 2;
    char path[256];
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", folder);
    lti_tensors *t;
    assert_int_equal(lt_dev_create(&b->dev, ctx, &o), LT_OK);
    assert_int_equal(lti_tensors_open(&t, ctx, path, LTI_PART_DIT, NULL), LT_OK);
    const lti_dit_config c = tiny_dit_config();
    const lt_tensor_source source = lti_tensors_source(t);
    if (lti_dit_create(&b->dit, b->dev, &c, compute, &source) < 0) fail_msg("%s", lt_error(ctx));
    lti_tensors_close(&t);
    const lti_dit_run_options r = {
        .frames = T, .h = LH, .w = LW, .batch = batch, .times = times, .ntimes = LT_COUNT(times)};
    assert_int_equal(lti_dit_run_create(&b->run, b->dit, &r), LT_OK);
    assert_int_equal(lti_dit_run_tokens(b->run), TOKENS);
    for (int i = 0; i < 2; i++) {
        float text[ROWS * 32];
        for (int k = 0; k < ROWS * 32; k++)
            text[k] = tiny_random(i ? "one" : "two", k);
        /* prompts of different lengths */
        assert_int_equal(lti_prompt_create(&b->prompt[i], b->dit, text, ROWS - i, TOKENS, NULL),
                         LT_OK);
        assert_int_equal(lti_prompt_keys(b->prompt[i]), ROWS - i + 1);
        assert_int_equal(lt_dev_alloc(b->dev, (void **)&b->x[i], NUMBERS * 4, LT_TAG_TEST), LT_OK);
        assert_int_equal(lt_dev_alloc(b->dev, (void **)&b->v[i], NUMBERS * 4, LT_TAG_TEST), LT_OK);
        const lt_noise_args noise = {.out = b->x[i], .n = NUMBERS, .stream = (uint64_t)i};
        assert_int_equal(lt_noise(b->dev, &noise), LT_OK);
    }
}

static void close_bench(bench *b)
{
    for (int i = 0; i < 2; i++) {
        lt_dev_free(b->dev, b->x[i]);
        lt_dev_free(b->dev, b->v[i]);
        lti_prompt_destroy(&b->prompt[i]);
    }
    lti_dit_run_destroy(&b->run);
    lti_dit_destroy(&b->dit);
    lt_mem_stats m;
    lt_dev_mem_stats(b->dev, &m);
    assert_int_equal(m.live_total, m.live_bytes[LT_TAG_SCRATCH]);
    lt_dev_destroy(&b->dev);
}

static void pass(bench *b, lti_dit_args a)
{
    if (lti_dit_forward(b->run, &a) < 0) fail_msg("%s", lt_error(ctx));
}

static void take(bench *b, int i, float *out)
{
    assert_int_equal(lt_dev_download(b->dev, out, b->v[i], NUMBERS * 4), LT_OK);
}

static void a_batch_is_its_samples(void **state)
{
    (void)state;
    const lt_dtype types[] = {LT_F32, LT_BF16};
    static float alone[2][NUMBERS], together[NUMBERS];
    for (int k = 0; k < 4; k++) {
        bench b;
        const bool same = k & 1; /* guidance: both samples begin with one latent */
        open_bench(&b, k < 2 ? "cpu" : "guard", types[k / 2], 2);
        float *x[2] = {b.x[0], b.x[!same]};
        for (int i = 0; i < 2; i++) {
            pass(&b,
                 (lti_dit_args){.batch = 1, .x = {x[i]}, .v = {b.v[0]}, .prompt = {b.prompt[i]}});
            take(&b, 0, alone[i]);
        }
        assert_memory_not_equal(alone[0], alone[1], sizeof alone[0]);
        pass(&b, (lti_dit_args){.batch = 2,
                                .x = {x[0], x[1]},
                                .v = {b.v[0], b.v[1]},
                                .prompt = {b.prompt[0], b.prompt[1]}});
        for (int i = 0; i < 2; i++) {
            take(&b, i, together);
            assert_memory_equal(alone[i], together, sizeof together);
        }
        close_bench(&b);
    }
}

static void timesteps_by_token(void **state)
{
    (void)state;
    static float one[NUMBERS], all[NUMBERS], mixed[NUMBERS];
    bench b;
    open_bench(&b, "guard", LT_F32, 2);
    int32_t same[TOKENS], first[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        same[i] = 1;
        first[i] = i < TOKENS / T ? 2 : 1;
    }
    lti_dit_args a = {.batch = 1, .x = {b.x[0]}, .v = {b.v[0]}, .prompt = {b.prompt[0]}, .time = 1};
    pass(&b, a);
    take(&b, 0, one);
    a.time = 0; /* not looked at when tokens have their own */
    a.token_time = same;
    pass(&b, a);
    take(&b, 0, all);
    assert_memory_equal(one, all, sizeof one);
    a.token_time = first;
    pass(&b, a);
    take(&b, 0, mixed);
    assert_memory_not_equal(one, mixed, sizeof one);
    a.batch = 2;
    a.x[1] = b.x[1];
    a.v[1] = b.v[1];
    a.prompt[1] = b.prompt[0];
    pass(&b, a);
    take(&b, 0, all);
    assert_memory_equal(mixed, all, sizeof all);
    close_bench(&b);
}

static void a_pass_allocates_nothing(void **state)
{
    (void)state;
    bench b;
    lt_mem_stats before, after;
    open_bench(&b, "cpu", LT_BF16, 2);
    const lti_dit_args a = {.batch = 2,
                            .x = {b.x[0], b.x[1]},
                            .v = {b.v[0], b.v[1]},
                            .prompt = {b.prompt[0], b.prompt[1]}};
    pass(&b, a);
    lt_dev_mem_stats(b.dev, &before);
    pass(&b, a);
    lt_dev_mem_stats(b.dev, &after);
    assert_int_equal(before.alloc_calls, after.alloc_calls);
    const lti_dit_config *c = lti_dit_get_config(b.dit);
    assert_true(after.live_bytes[LT_TAG_ACTIVATION] <=
                lti_dit_run_bytes(c, LT_BF16, T, LH, LW, 2, LT_COUNT(times)));
    assert_true(after.live_bytes[LT_TAG_WEIGHTS] >= lti_dit_weight_bytes(c, LT_BF16));
    close_bench(&b);
}

static void refused(bench *b, lti_dit_args a, lt_status want, const char *says)
{
    assert_int_equal(lti_dit_forward(b->run, &a), want);
    if (!strstr(lt_error(ctx), says)) fail_msg("\"%s\" does not say \"%s\"", lt_error(ctx), says);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    bench b;
    atomic_bool stop = true;
    int32_t bad[TOKENS] = {[TOKENS - 1] = 3};
    open_bench(&b, "cpu", LT_F32, 1);
    lti_dit_args a = {
        .batch = 1, .x = {b.x[0]}, .v = {b.v[0]}, .prompt = {b.prompt[0]}, .cancel = &stop};
    refused(&b, a, LT_ERR_CANCELLED, "cancelled in layer 0 of 2");
    a.batch = 2;
    refused(&b, a, LT_ERR_ARG, "pass of 2 samples, made for 1");
    a.batch = 1;
    a.time = 3;
    refused(&b, a, LT_ERR_ARG, "timestep number 3");
    a.token_time = bad;
    refused(&b, a, LT_ERR_ARG, "of token 17");
    lti_prompt *p;
    const float row[32] = {0};
    assert_int_equal(lti_prompt_create(&p, b.dit, row, 0, TOKENS, NULL), LT_ERR_ARG);
    assert_int_equal(lti_prompt_create(&p, b.dit, row, 25, TOKENS, NULL),
                     LT_ERR_ARG); /* text_len is 24 */
    assert_int_equal(lti_prompt_create(&p, b.dit, row, 1, TOKENS + 1, NULL), LT_OK);
    a.prompt[0] = p;
    refused(&b, a, LT_ERR_ARG, "prompt made for 19 tokens, pass has 18");
    lti_prompt_destroy(&p);
    lti_dit_run *run;
    lti_dit_run_options o = {.frames = 1, .h = 5, .w = 4, .batch = 1, .times = times, .ntimes = 1};
    assert_int_equal(lti_dit_run_create(&run, b.dit, &o), LT_ERR_ARG); /* half a patch */
    o.h = 4096;
    assert_int_equal(lti_dit_run_create(&run, b.dit, &o),
                     LT_ERR_ARG); /* more positions than the tables have */
    const double late = 1001;
    o.h = 4;
    o.times = &late;
    assert_int_equal(lti_dit_run_create(&run, b.dit, &o), LT_ERR_ARG);
    close_bench(&b);
}

static void operations_are_counted(void **state)
{
    (void)state;
    const lti_dit_config c = {.dim = 1536,
                              .ffn_dim = 8960,
                              .heads = 12,
                              .head_dim = 128,
                              .layers = 30,
                              .in_channels = 16,
                              .out_channels = 16,
                              .patch = 2};
    const int64_t full[2] = {512, 512};
    /* spec: 283 TF for 832x480x81 with all 512 text rows, of which q, o and attention to text are 3.1 + 4.6 */
    const double f = lti_dit_flops(&c, 32760, 1, full, false);
    assert_true(fabs(f / 283e12 - 1) < 0.01);
    assert_true(fabs(lti_dit_flops(&c, 32760, 2, full, false) / (2 * f) - 1) < 1e-12);
    const double shared = 2 * f - lti_dit_flops(&c, 32760, 2, full, true);
    assert_true(shared > f / 60 && shared < f / 30); /* one self-attention of thirty, once */
    assert_true(fabs((double)lti_dit_weight_bytes(&c, LT_BF16) / 2.84e9 - 1) < 0.05);
}

static void one_network_alone_is_timed(void **state)
{
    (void)state;
    lt_dev *dev;
    lt_bench_result r;
    lt_dev_options o = lt_dev_options_default();
    char path[256];
    assert_int_equal(lt_dev_create(&dev, ctx, &o), LT_OK);
    snprintf(path, sizeof path, "%s/vae.safetensors", folder);
    lt_bench_options b = {.path = path, .width = 48, .height = 32, .num_frames = 5, .passes = 1};
    if (lt_bench_vae_decode(&r, dev, &b) < 0) fail_msg("%s", lt_error(ctx));
    assert_true(r.tokens == 5 && r.flops > 0 && r.seconds > 0 && r.weight_bytes > 0);
    static const struct {
        int32_t width, batch, text_rows;
    } bad[] = {{50, 0, 0}, {1 << 30, 0, 0}, {48, 3, 0}, {48, -1, 0}, {48, 0, -1}};
    for (size_t i = 0; i < LT_COUNT(bad); i++) {
        b.width = bad[i].width;
        b.batch = bad[i].batch;
        b.text_rows = bad[i].text_rows;
        assert_int_equal(lt_bench_dit(&r, dev, &b), LT_ERR_ARG);
    }
    lt_mem_stats m;
    lt_dev_mem_stats(dev, &m);
    assert_int_equal(m.live_total, m.live_bytes[LT_TAG_SCRATCH]);
    lt_dev_destroy(&dev);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && tiny_model_write(folder, 1) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    tiny_model_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_its_samples),   cmocka_unit_test(timesteps_by_token),
        cmocka_unit_test(a_pass_allocates_nothing), cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(operations_are_counted),   cmocka_unit_test(one_network_alone_is_timed),
    };
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return 1;
    const int failed = cmocka_run_group_tests(tests, make_folder, drop_folder);
    lt_ctx_destroy(&ctx);
    return failed;
}
