/* unit_vae_net.c: what a configuration of the VAE means: tensors, parameters, FLOPs, and what is refused. */
#include "tests/vae_random.h"

/* ---- tensors ----------------------------------------------------------------------------- */

typedef struct counts {
    int64_t encoder, decoder, top;
    int tensors, decoder_tensors;
} counts;

static void count_tensor(void *user, const char *name, int ndim, const int64_t *dim)
{
    counts *c = user;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= dim[i];
    c->tensors++;
    if (!strncmp(name, "encoder.", 8)) {
        c->encoder += n;
    } else if (!strncmp(name, "decoder.", 8)) {
        c->decoder += n;
        c->decoder_tensors++;
    } else {
        c->top += n;
    }
}

/* The published parameter counts. */
static void test_parameters_of_wan21(void **state)
{
    (void)state;
    const lt_vae_config c = lt_vae_config_wan21();
    counts n = {0};
    lt_vae_list_tensors(&c, count_tensor, &n);
    assert_int_equal(n.decoder, 73295331);
    assert_int_equal(n.encoder, 53595872);
    assert_int_equal(n.top, 1328);
    assert_int_equal(n.decoder_tensors + 2, 108);
    assert_int_equal(lt_vae_scale(&c), 8);
    assert_int_equal(lt_vae_frame_scale(&c), 4);
}

static void find_tensor(void *user, const char *name, int ndim, const int64_t *dim)
{
    (void)dim;
    int *found = user;
    *found += !strcmp(name, "decoder.upsamples.4.shortcut.weight") && ndim == 5;
    *found += !strcmp(name, "encoder.downsamples.5.time_conv.bias") && ndim == 1;
    *found += !strcmp(name, "decoder.head.0.gamma") && ndim == 4;
    *found += !strcmp(name, "decoder.middle.1.norm.gamma") && ndim == 3;
    *found += !strcmp(name, "decoder.upsamples.11.resample.1.weight") && ndim == 4;
    *found += !strcmp(name, "conv2.weight") && ndim == 5;
}

static void test_names(void **state)
{
    (void)state;
    const lt_vae_config c = lt_vae_config_wan21();
    int found = 0;
    lt_vae_list_tensors(&c, find_tensor, &found);
    assert_int_equal(found, 6);
}

static void test_halves(void **state)
{
    (void)state;
    lt_vae_config c = lt_vae_config_wan21();
    counts whole = {0}, decoder = {0}, encoder = {0};
    lt_vae_list_tensors(&c, count_tensor, &whole);
    c.no_encoder = true;
    lt_vae_list_tensors(&c, count_tensor, &decoder);
    c.no_encoder = false;
    c.no_decoder = true;
    lt_vae_list_tensors(&c, count_tensor, &encoder);
    assert_int_equal(decoder.encoder, 0);
    assert_int_equal(encoder.decoder, 0);
    assert_int_equal(decoder.tensors + encoder.tensors, whole.tensors);
}

/* ---- FLOPs ------------------------------------------------------------------------------- */

static double tera(int32_t h, int32_t w, int later)
{
    const lt_vae_config c = lt_vae_config_wan21();
    return (lt_vae_decode_flops(&c, h, w, true) + later * lt_vae_decode_flops(&c, h, w, false)) *
           1e-12;
}

/* Against figures counted by hand from the layers (832x480: 4.35 and 13.55 TFLOP; 9 frames of 256x256: 5.14). */
static void test_flops(void **state)
{
    (void)state;
    assert_true(fabs(tera(60, 104, 0) - 4.35) < 0.01);
    assert_true(fabs(tera(60, 104, 20) - 275) < 1);
    assert_true(fabs(tera(32, 32, 2) - 5.14) < 0.02);
    assert_true(fabs(tera(34, 60, 2) - 10.24) < 0.04);
}

/* ---- refusals ---------------------------------------------------------------------------- */

static void refuse(const lt_vae_config *c, lt_status want, const char *text)
{
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lti_vae_config_check(ctx, c), want);
    if (!strstr(lt_error(ctx), text)) fail_msg("\"%s\" does not say \"%s\"", lt_error(ctx), text);
    assert_true(lt_vae_decoder_bytes(c, 8, 8) == UINT64_MAX);
    lt_ctx_destroy(&ctx);
}

static void test_bad_configs(void **state)
{
    (void)state;
    lt_vae_config c = lt_vae_config_wan21();
    c.z_dim = 65;
    refuse(&c, LT_ERR_ARG, "z_dim is 65");
    c = lt_vae_config_wan21();
    c.levels = 7;
    refuse(&c, LT_ERR_ARG, "levels is 7");
    c = lt_vae_config_wan21();
    c.mult[2] = 100000;
    refuse(&c, LT_ERR_ARG, "multiplier is 100000");
    c = lt_vae_config_wan21();
    c.num_res_blocks = 0;
    refuse(&c, LT_ERR_ARG, "num_res_blocks is 0");
    c = lt_vae_config_wan21();
    c.std[3] = 0;
    refuse(&c, LT_ERR_ARG, "channel 3");
    c = lt_vae_config_wan21();
    c.decoder_dim = 95;
    c.mult[1] = 1;
    refuse(&c, LT_ERR_ARG, "width 95 of level 1 is odd");
    c = lt_vae_config_wan21();
    c.compute = LT_F16;
    refuse(&c, LT_ERR_DTYPE, "f16");
    c = lt_vae_config_wan21();
    c.no_encoder = c.no_decoder = true;
    refuse(&c, LT_ERR_ARG, "neither");
    c.no_encoder = false;
    assert_true(lt_vae_decoder_bytes(&c, 8, 8) == UINT64_MAX); /* an encoder alone */
}

typedef struct place {
    lt_ctx *ctx;
    lt_dev *dev;
} place;

static place open_place(void)
{
    place p;
    const lt_dev_options opt = lt_dev_options_default();
    assert_int_equal(lt_ctx_create(&p.ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&p.dev, p.ctx, &opt), LT_OK);
    return p;
}

static void close_place(place *p)
{
    lt_mem_stats mem;
    lt_dev_mem_stats(p->dev, &mem);
    assert_int_equal(mem.live_bytes[LT_TAG_WEIGHTS], 0);
    lt_dev_destroy(&p->dev);
    lt_ctx_destroy(&p->ctx);
}

static lt_vae_config tiny_config(void)
{
    lt_vae_config c = small_config(LT_F32);
    c.encoder_dim = c.decoder_dim = 2;
    return c;
}

/* Every tensor is needed, and a failure leaves nothing behind. */
static void test_missing_tensor(void **state)
{
    (void)state;
    const lt_vae_config c = tiny_config();
    place p = open_place();
    weights *w = make_weights(&c);
    const lt_tensor_source source = source_of(w);
    for (int i = 0; i < w->n; i++) {
        lt_vae *vae;
        w->missing = w->name[i];
        assert_int_equal(lt_vae_create(&vae, p.dev, &c, &source), LT_ERR_MISSING);
        assert_null(vae);
    }
    free_weights(w);
    close_place(&p);
}

static void test_bad_shape(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_F32);
    place p = open_place();
    weights *w = make_weights(&c);
    const lt_tensor_source source = source_of(w);
    lt_vae *vae;
    lt_tensor *t = w->tensor + w->n - 2; /* the weight of decoder.head.2 */
    assert_string_equal(t->name, "decoder.head.2.weight");
    t->dim[1]++;
    assert_int_equal(lt_vae_create(&vae, p.dev, &c, &source), LT_ERR_SHAPE);
    assert_non_null(strstr(lt_error(p.ctx), "decoder.head.2.weight"));
    t->dim[1]--;
    t->ndim = 4;
    assert_int_equal(lt_vae_create(&vae, p.dev, &c, &source), LT_ERR_SHAPE);
    t->ndim = 5;
    t->dtype = (lt_dtype)9;
    assert_int_equal(lt_vae_create(&vae, p.dev, &c, &source), LT_ERR_DTYPE);
    assert_non_null(strstr(lt_error(p.ctx), "decoder.head.2.weight"));
    free_weights(w);
    close_place(&p);
}

/* Asked for in the order of the list, each once. */
static void test_asks_for_the_list(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_BF16);
    bench b = bench_open("cpu", 1, &c);
    assert_int_equal(b.w->asked, b.w->n);
    bench_close(&b);
}

/* Every device allocation of opening, fails once. */
static void test_no_memory(void **state)
{
    (void)state;
    const lt_vae_config c = tiny_config();
    place p = open_place();
    weights *w = make_weights(&c);
    const lt_tensor_source source = source_of(w);
    lt_vae *vae = NULL;
    int failures = 0;
    for (int64_t nth = 1; !vae; nth++) {
        lti_dev_fail_alloc(p.dev, nth);
        const lt_status s = lt_vae_create(&vae, p.dev, &c, &source);
        failures += s == LT_ERR_MEM;
        assert_true(s == LT_OK || s == LT_ERR_MEM);
    }
    assert_true(failures > 80);
    lti_dev_fail_alloc(p.dev, 0);
    lt_vae_destroy(&vae);
    lt_vae_destroy(&vae);
    free_weights(w);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_of_wan21),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_missing_tensor),
        cmocka_unit_test(test_bad_shape),
        cmocka_unit_test(test_asks_for_the_list),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
