/* fuzz_video_clean.c: any bytes as a prompt. What comes out is text without outer, double or odd whitespace. */
#include "tests/fuzz_video.h"
#include "video/clean.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    char *in = fuzz_text(data, size), *out;
    if (lti_clean(&out, ctx, in, size) >= 0) {
        const size_t n = strlen(out);
        if (n && (out[0] == ' ' || out[n - 1] == ' ')) abort();
        if (strstr(out, "  ") || strpbrk(out, "\t\r\n\v\f")) abort();
        free(out);
    }
    free(in);
    lt_ctx_destroy(&ctx);
    return 0;
}
