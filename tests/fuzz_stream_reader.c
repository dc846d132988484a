/* fuzz_stream_reader.c: any bytes as a video to be continued: a few frames of it, small, at another rate. */
#include "stream/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 24 };
    const int fd = memfd_create("video", MFD_CLOEXEC);
    lt_ctx *ctx;
    if (fd < 0 || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    if (write(fd, data, size) != (ssize_t)size) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lt_reader_options o = lt_reader_options_default();
    o.path = path;
    o.width = 16;
    o.height = 32;
    o.fps = size % 2 ? 5 : 0;
    lt_reader *r;
    if (lt_reader_create(&r, ctx, &o) < 0) {
        if (!*lt_error(ctx) || r) abort();
    } else {
        const uint8_t *rgb;
        volatile uint8_t sum = 0;
        for (int i = 0; i < MOST && lt_reader_next(r, &rgb) == LT_OK; i++)
            sum = (uint8_t)(sum + rgb[0] + rgb[16 * 32 * 3 - 1]);
        if (!(lt_reader_source_fps(r) > 0)) abort();
    }
    lt_reader_destroy(&r);
    lt_ctx_destroy(&ctx);
    close(fd);
    return 0;
}
