/* fuzz_video_pt.c: any bytes as a checkpoint of torch.save. Input that does not begin as a zip archive is a pickle, which is put into
 * one here with a storage of 64 bytes: mutations of the archive would hide the language.
 */
#include "tests/fuzz_video.h"
#include "video/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t put(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
    return (size_t)bytes;
}

/* A header of `fixed` bytes before the lengths of the name; all numbers that are not given are 0. */
static size_t header(uint8_t *to, const char *magic, size_t fixed, const char *name, size_t size,
                     size_t at)
{
    const size_t n = strlen(name), total = fixed == 28 ? 46 : 30;
    memset(to, 0, total);
    memcpy(to, magic, 4);
    put(to + fixed - 8, size, 4);
    put(to + fixed - 4, size, 4);
    put(to + fixed, n, 2);
    if (total == 46) put(to + 42, at, 4);
    memcpy(to + total, name, n);
    return total + n;
}

static int open_input(char path[64], const uint8_t *data, size_t size)
{
    static const char *const name[] = {"a/data.pkl", "a/data/0"};
    if (size >= 2 && data[0] == 'P') return fuzz_file(path, data, size);
    uint8_t *all = malloc(size + 512);
    if (!all) abort();
    size_t n = header(all, "PK\3\4", 26, name[0], size, 0);
    if (size) memcpy(all + n, data, size);
    n += size;
    const size_t second = n;
    n += header(all + n, "PK\3\4", 26, name[1], 64, 0);
    memset(all + n, 1, 64);
    n += 64;
    const size_t directory = n;
    n += header(all + n, "PK\1\2", 28, name[0], size, 0);
    n += header(all + n, "PK\1\2", 28, name[1], 64, second);
    const size_t end = n;
    memcpy(all + n, "PK\5\6\0\0\0\0\2\0\2\0", 12);
    put(all + n + 12, end - directory, 4);
    put(all + n + 16, directory, 4);
    put(all + n + 20, 0, 2);
    const int fd = fuzz_file(path, all, n + 22);
    free(all);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    char path[64];
    const int fd = open_input(path, data, size);
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    for (int part = LTI_PART_RAW; part <= LTI_PART_DIT; part++) {
        lti_tensors *t;
        if (lti_tensors_open(&t, ctx, path, (lti_part)part, NULL) < 0) {
            if (!*lt_error(ctx)) abort();
            continue;
        }
        fuzz_tensors(t);
        lti_tensors_close(&t);
    }
    lt_ctx_destroy(&ctx);
    close(fd);
    return 0;
}
