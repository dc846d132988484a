/* fuzz_attention_policy.c: any text as a cache policy. What is accepted passes the policy's own check. */
#include "attention/attention.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    lt_cache_policy policy;
    char *text = malloc(size + 1);
    if (!text || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    memcpy(text, data, size);
    text[size] = 0;
    if (lt_cache_policy_parse(&policy, ctx, text) < 0) {
        if (!*lt_error(ctx)) abort(); /* a refusal says why */
    } else if (lt_cache_policy_check(ctx, &policy) < 0) {
        abort();
    }
    free(text);
    lt_ctx_destroy(&ctx);
    return 0;
}
