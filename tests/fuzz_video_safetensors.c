/* fuzz_video_safetensors.c: a tensor file of any bytes, read as every part, and its configuration from the tensors. Input that begins
 * with a brace is a header without its length, which is put in front here: mutations of the length alone would hide the rest.
 */
#include "tests/fuzz_video.h"
#include "video/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_config(lt_ctx *ctx, const lti_tensors *t)
{
    lti_config c = {0};
    lt_status s = LT_ERR_ARG;
    if (lti_tensors_part(t) == LTI_PART_DIT)
        s = lti_dit_config_read(&c.dit, ctx, t, NULL, NULL);
    else if (lti_tensors_part(t) == LTI_PART_TEXT)
        s = lti_text_config_read(&c.text, ctx, t, NULL, NULL);
    else if (lti_tensors_part(t) == LTI_PART_VAE)
        s = lti_vae_config_read(&c.vae, ctx, t, NULL, NULL);
    lti_findings f;
    if (s >= 0 && lti_config_compare(&f, ctx, &c, t) >= 0) lti_findings_free(&f);
}

static int open_input(char path[64], const uint8_t *data, size_t size)
{
    if (!size || data[0] != '{') return fuzz_file(path, data, size);
    size_t header = size;
    while (data[header - 1] != '}' && header > 1)
        header--;
    uint8_t *all = malloc(size + 8);
    if (!all) abort();
    for (int i = 0; i < 8; i++)
        all[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(all + 8, data, size);
    const int fd = fuzz_file(path, all, size + 8);
    free(all);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    char path[64];
    const int fd = open_input(path, data, size);
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    for (int part = LTI_PART_RAW; part < LTI_PART_COUNT; part++) {
        lti_tensors *t;
        if (lti_tensors_open(&t, ctx, path, (lti_part)part, NULL) < 0) continue;
        fuzz_tensors(t);
        read_config(ctx, t);
        lti_tensors_close(&t);
    }
    lt_ctx_destroy(&ctx);
    close(fd);
    return 0;
}
