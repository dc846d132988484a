/* fuzz_video_config.c: configuration files of any bytes against good tensors. Files are separated by a byte of 0. */
#include "tests/fuzz_video.h"
#include "video/config.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lt_ctx *ctx;
static lti_tensors *dit, *text, *vae;

static lti_tensors *golden(const char *path, lti_part part)
{
    lti_tensors *t;
    if (lti_tensors_open(&t, ctx, path, part, "weight.") < 0) abort();
    return t;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    dit = golden(LT_TEST_DATA "/golden/dit21_t2v_small.safetensors", LTI_PART_DIT);
    text = golden(LT_TEST_DATA "/golden/umt5_small.safetensors", LTI_PART_TEXT);
    vae = golden(LT_TEST_DATA "/golden/vae21_decode.safetensors", LTI_PART_VAE);
    return 0;
}

/* What is read must be something the rest can stand on. */
static void check(const lti_config *c)
{
    const lt_model_info *m = &c->info;
    if (c->dit.heads < 1 || c->dit.heads * c->dit.head_dim != c->dit.dim) abort();
    if (m->default_width < 1 || m->default_frames < 1 || m->default_fps < 1) abort();
    if (m->default_steps < 1 || !(m->default_shift > 0) || c->text.max_tokens < 1) abort();
    for (int32_t i = 0; i < c->vae.z_dim; i++)
        if (!(c->vae.std[i] > 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *all = fuzz_text(data, size), *at = all, name[] = "fuzz.json";
    lti_model_files f = {.path = name, .dit = dit, .text = text, .vae = vae};
    char **const texts[] = {&f.dit_config,       &f.text_config, &f.vae_config,
                            &f.scheduler_config, &f.model_index, &f.longtake_config};
    for (size_t i = 0; i < LT_COUNT(texts) && at < all + size; i++) {
        if (*at) *texts[i] = at;
        at += strlen(at) + 1;
    }
    f.dit_config_path = f.text_config_path = f.vae_config_path = f.scheduler_config_path =
        f.model_index_path = f.longtake_config_path = name;
    lti_config c;
    if (lti_config_read(&c, ctx, &f) >= 0) {
        check(&c);
        const lt_status s = lti_config_check(ctx, &c, &f);
        (void)s;
    }
    free(all);
    return 0;
}
