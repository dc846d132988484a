/* format.c: which format a file has, by its first bytes, and reading from it. Formats that are known and not read here answer with
 * their name and with what to use instead.
 */
#include "video/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

static lt_status open_file(lti_file *f, lt_ctx *ctx)
{
    struct stat st;
    /* O_NONBLOCK: a FIFO under that name must not hang us */
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &st) < 0)
        return lti_fail(ctx, LT_ERR_IO, "%s: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return lti_fail(ctx, LT_ERR_IO, "%s: not a regular file", f->path);
    if (st.st_size <= 0) return lti_fail(ctx, LT_ERR_FORMAT, "%s: the file is empty", f->path);
    f->size = (size_t)st.st_size;
    return LT_OK;
}

static lt_status shorter(const lti_file *f, lt_ctx *ctx, const char *what)
{
    struct stat st = {0};
    fstat(f->fd, &st);
    return lti_fail(ctx, LT_ERR_IO,
                    "%s: %s cannot be read: the file had %zu bytes when it was opened, now it has "
                    "%lld",
                    f->path, what, f->size, (long long)st.st_size);
}

lt_status lti_file_read(const lti_file *f, lt_ctx *ctx, void *dst, size_t at, size_t bytes,
                        const char *what)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(f->fd, (char *)dst + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return lti_fail(ctx, LT_ERR_IO, "%s: %s: %s", f->path, what, strerror(errno));
        if (!n) return shorter(f, ctx, what);
        done += (size_t)n;
    }
    return LT_OK;
}

static lt_status find_format(const lti_format **out, const lti_file *f, lt_ctx *ctx)
{
    char start[8] = {0};
    const size_t n = f->size < sizeof start ? f->size : sizeof start;
    LT_TRY(lti_file_read(f, ctx, start, 0, n, "its beginning"));
    *out = formats;
    while (n < (*out)->magic_len || memcmp(start, (*out)->magic, (*out)->magic_len))
        ++*out;
    if ((*out)->read) return LT_OK;
    return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: this is %s, which is not read here: %s", f->path,
                    (*out)->name, (*out)->instead);
}

lt_status lti_file_open(lti_file **out, lt_ctx *ctx, const char *path)
{
    *out = NULL;
    lti_file *f = calloc(1, sizeof *f);
    if (!f) return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %zu bytes", path, sizeof *f);
    f->fd = -1;
    f->path = strdup(path);
    const lti_format *format;
    lt_status s = f->path ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "%s: no memory for its name", path);
    if (s >= 0) s = open_file(f, ctx);
    if (s >= 0) s = find_format(&format, f, ctx);
    if (s >= 0) s = format->read(f, ctx);
    if (s < 0)
        lti_file_close(&f);
    else
        *out = f;
    return s;
}

void lti_file_close(lti_file **pf)
{
    lti_file *f = *pf;
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    json_decref(f->header);
    free(f->tensor);
    free(f->path);
    free(f);
    *pf = NULL;
}
