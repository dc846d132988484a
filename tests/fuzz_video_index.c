/* fuzz_video_index.c: an index of shards of any bytes, beside one good shard. */
#include "tests/fuzz_video.h"
#include "tests/temp_files.h"
#include "video/files.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    temp_make();
    temp_safetensors("m-00001-of-00002.safetensors",
                     "{\"shared.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                     4);
    atexit(temp_remove);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    temp_write("m.safetensors.index.json", data, size);
    for (int part = LTI_PART_RAW; part < LTI_PART_COUNT; part++) {
        lti_tensors *t;
        if (lti_tensors_open(&t, ctx, temp_path("m.safetensors.index.json"), (lti_part)part,
                             NULL) >= 0)
            lti_tensors_close(&t);
    }
    lt_ctx_destroy(&ctx);
    return 0;
}
