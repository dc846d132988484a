/* fuzz_stream_inspect.c: any bytes as a video file to be described. */
#include "stream/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("video", MFD_CLOEXEC);
    lt_ctx *ctx;
    if (fd < 0 || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    if (write(fd, data, size) != (ssize_t)size) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lt_media_info info;
    const lt_status s = lt_media_inspect(&info, ctx, path);
    if (s < 0 && (!*lt_error(ctx) || info.metadata)) abort();
    size_t n = 0;
    for (int i = 0; i < info.nmetadata; i++)
        n += strlen(info.metadata[i].key) + strlen(info.metadata[i].value);
    if (n > 64 * size + 4096) abort();
    lt_media_info_free(&info);
    lt_ctx_destroy(&ctx);
    close(fd);
    return 0;
}
