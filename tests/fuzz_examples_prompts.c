/* fuzz_examples_prompts.c: any bytes as a file of prompts by time. What is accepted has texts, times and at most so many lines. */
#include "examples/command.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    lti_cues cues;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    char *text = malloc(size + 1); /* exact, so that reading past it is seen */
    if (!text) abort();
    if (size) memcpy(text, data, size);
    const lt_status s = lti_cues_parse(&cues, ctx, "fuzz", text, size);
    if (s < 0 && (!strstr(lt_error(ctx), "--prompt-file 'fuzz'") || cues.cue || cues.count))
        abort();
    if (s == LT_OK && (cues.count < 1 || cues.count > LT_MAX_CUES)) abort();
    for (int32_t i = 0; i < cues.count; i++) {
        const lt_cue *c = &cues.cue[i];
        if (!c->prompt || !*c->prompt || !lti_utf8_valid(c->prompt) || c->frame < 0 ||
            !(c->seconds >= 0) || c->blend_blocks < 0 || c->blend_blocks > LT_MAX_BLEND)
            abort();
    }
    if (s == LT_OK) json_decref(lti_cues_json(cues.cue, cues.count));
    lti_cues_free(&cues);
    free(text);
    lt_ctx_destroy(&ctx);
    return 0;
}
