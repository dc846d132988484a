/* fuzz_stream_picture.c: any bytes as a picture and as a video. The decoders themselves are the system's and not
 * instrumented; what is ours are the limits, the cropping and the turning. */
#include "stream/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    lt_ctx *ctx;
    if (fd < 0 || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    if (write(fd, data + 2, size - 2) != (ssize_t)(size - 2)) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uint8_t *rgb;
    const int32_t w = 1 + data[0], h = 1 + data[1];
    const lt_status s = lt_picture_read(&rgb, ctx, path, w, h);
    if ((s == LT_OK) != (rgb != NULL) || (s < 0 && !*lt_error(ctx))) abort();
    free(rgb);
    lt_ctx_destroy(&ctx);
    close(fd);
    return 0;
}
