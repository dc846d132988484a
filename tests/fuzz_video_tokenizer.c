/* fuzz_video_tokenizer.c: any bytes as a prompt for a good model (first byte even) or as a model (odd). */
#include "tests/fuzz_video.h"
#include "video/tokenizer.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lt_ctx *ctx;
static lti_tokenizer *good;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    if (lti_tokenizer_open(&good, ctx, LT_TEST_DATA "/data/tiny.model") < 0) abort();
    return 0;
}

static void encode(const lti_tokenizer *t, const char *text)
{
    int32_t *ids, n, cut;
    if (lti_tokenizer_encode(t, ctx, text, 16, 320, &ids, &n, &cut) < 0) return;
    if (n < 1 || n > 16) abort();
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= 320) abort();
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    if (data[0] & 1) {
        lti_tokenizer *t;
        if (lti_tokenizer_load(&t, ctx, data + 1, size - 1, "fuzz") < 0) return 0;
        encode(t, "a red ball bounces");
        lti_tokenizer_close(&t);
    } else {
        char *text = fuzz_text(data + 1, size - 1);
        encode(good, text);
        free(text);
    }
    return 0;
}
