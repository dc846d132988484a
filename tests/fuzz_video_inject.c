/* fuzz_video_inject.c: any text as faults. What is accepted can be put into a latent, which stays within its memory. */
#include "video/drift_inject.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANNELS = 2, FRAMES = 3, SIDE = 4, NUMBERS = CHANNELS * FRAMES * SIDE * SIDE };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    lti_faults f;
    float by[CHANNELS] = {0.5f, -1}, before[CHANNELS * SIDE * SIDE] = {0};
    char *text = malloc(size + 1);
    float *z = calloc(NUMBERS, sizeof *z);
    if (!text || !z || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    memcpy(text, data, size);
    text[size] = 0;
    if (lti_faults_parse(&f, ctx, text) < 0) {
        if (!*lt_error(ctx)) abort(); /* a refusal says why */
    } else {
        const lti_latent shape = {z, CHANNELS, FRAMES, SIDE, SIDE};
        f.light = f.red = f.black = by;
        for (int i = 0; i < 4; i++) {
            lti_faults_apply(&f, z, &shape, i % 2, i * 5.0, 0.75, i ? before : NULL, i == 3);
            (void)lti_faults_slot(&f, i * 5.0, 0.75);
        }
    }
    free(z);
    free(text);
    lt_ctx_destroy(&ctx);
    return 0;
}
