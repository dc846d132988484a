/* fuzz_attention_sparse.c: any text as a way of choosing keys, and as a file of windows. What is accepted passes its own check, and its
 * bytes can be counted; windows are odd. */
#include "attention/attention.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    lt_sparse_options o = {
        .grid = {5, 6, 7}, .heads = 2, .head_dim = 8, .layers = 1, .samples = 1, .dtype = LT_F32};
    char *text = malloc(size + 1);
    if (!text || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    memcpy(text, data, size);
    text[size] = 0;
    if (lt_sparse_parse(&o.spec, ctx, text) < 0) {
        if (!*lt_error(ctx)) abort(); /* a refusal says why */
    } else if (lt_sparse_check(ctx, &o.spec) < 0 || (o.spec.method && !lt_sparse_bytes(&o))) {
        abort();
    }
    lt_windows w;
    if (lt_windows_parse(&w, ctx, text, "fuzz") < 0) {
        if (w.side || !*lt_error(ctx)) abort();
    } else {
        for (int32_t i = 0; i < w.layers * w.heads; i++)
            if (w.side[i][0] % 2 == 0 || w.side[i][1] % 2 == 0 || w.side[i][2] % 2 == 0) abort();
    }
    lt_windows_destroy(&w);
    free(text);
    lt_ctx_destroy(&ctx);
    return 0;
}
