/* format.c: which format a file has, by its first bytes, and its map. Formats that are known and not read here answer with
 * their name and with what to use instead.
 */
#include "video/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct lti_format {
    const char *name;
    const char *magic;
    size_t magic_len;
    lt_status (*read)(lti_file *f, lt_ctx *ctx); /* NULL: known, not read here */
    const char *instead;
} lti_format;

/* The door: a new format is a line with a `read`, and one file that holds it. Safetensors has no magic and comes last. */
static const lti_format formats[] = {
    {"GGUF", "GGUF", 4, NULL, "use the safetensors file of the same model"},
    {"a checkpoint of torch.save", "PK\003\004", 4, lti_pt_read, NULL},
    {"a bare PyTorch pickle (of torch before 1.6)", "\x80\x02", 2, NULL,
     "save it again with a newer torch, or use a safetensors file"},
    {"safetensors", "", 0, lti_safetensors_read, NULL},
};

static lt_status map_file(lti_file *f, lt_ctx *ctx)
{
    /* O_NONBLOCK: a FIFO under that name must not hang us */
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return lti_fail(ctx, LT_ERR_IO, "%s: %s", f->path, strerror(errno));
    struct stat st;
    lt_status s = LT_OK;
    if (fstat(fd, &st) < 0) {
        s = lti_fail(ctx, LT_ERR_IO, "%s: %s", f->path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        s = lti_fail(ctx, LT_ERR_IO, "%s: not a regular file", f->path);
    } else if (st.st_size <= 0) {
        s = lti_fail(ctx, LT_ERR_FORMAT, "%s: the file is empty", f->path);
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            s = lti_fail(ctx, LT_ERR_IO, "%s: cannot map %lld bytes: %s", f->path,
                         (long long)st.st_size, strerror(errno));
        } else {
            f->map = p;
            f->size = (size_t)st.st_size;
        }
    }
    close(fd);
    return s;
}

lt_status lti_file_open(lti_file **out, lt_ctx *ctx, const char *path)
{
    *out = NULL;
    lti_file *f = calloc(1, sizeof *f);
    if (!f) return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %zu bytes", path, sizeof *f);
    lt_status s;
    f->path = strdup(path);
    if (!f->path) {
        s = lti_fail(ctx, LT_ERR_MEM, "%s: no memory for its name", path);
        goto fail;
    }
    s = map_file(f, ctx);
    if (s < 0) goto fail;
    const lti_format *format = formats;
    while (f->size < format->magic_len || memcmp(f->map, format->magic, format->magic_len))
        format++;
    if (!format->read)
        s = lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: this is %s, which is not read here: %s", path,
                     format->name, format->instead);
    else
        s = format->read(f, ctx);
    if (s < 0) goto fail;
    *out = f;
    return LT_OK;
fail:
    lti_file_close(&f);
    return s;
}

void lti_file_close(lti_file **pf)
{
    lti_file *f = *pf;
    if (!f) return;
    if (f->map) munmap((void *)(uintptr_t)f->map, f->size);
    json_decref(f->header);
    free(f->tensor);
    free(f->path);
    free(f);
    *pf = NULL;
}
