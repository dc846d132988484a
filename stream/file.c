/* file.c: FFmpeg's input and output on a descriptor of ours. FFmpeg's own file protocol would take "http:x.mp4" for an
 * address and lose the reason of a failed write; here a name is a name and errno is kept. */
#include "stream/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/error.h>
#include <libavutil/mem.h>

enum { IO_BYTES = 64 << 10 };

static int keep_error(lti_avfile *f)
{
    if (!f->error) f->error = errno;
    return AVERROR(errno);
}

static int read_some(void *opaque, uint8_t *buf, int size)
{
    lti_avfile *f = opaque;
    ssize_t n;
    do
        n = read(f->fd, buf, (size_t)size);
    while (n < 0 && errno == EINTR);
    if (n < 0) return keep_error(f);
    return n ? (int)n : AVERROR_EOF;
}

static int write_all(void *opaque, uint8_t *buf, int size)
{
    lti_avfile *f = opaque;
    if (f->error) return AVERROR(f->error); /* what comes after a gap is of no use */
    for (int done = 0; done < size;) {
        const ssize_t n = write(f->fd, buf + done, (size_t)(size - done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return keep_error(f);
        done += (int)n;
    }
    return size;
}

static int64_t seek_to(void *opaque, int64_t offset, int whence)
{
    lti_avfile *f = opaque;
    if (whence & AVSEEK_SIZE) {
        struct stat st;
        return fstat(f->fd, &st) ? AVERROR(errno) : st.st_size;
    }
    const off_t at = lseek(f->fd, offset, whence & ~AVSEEK_FORCE);
    return at < 0 ? AVERROR(errno) : at; /* asking for a bad place is not the file's failure */
}

static lt_status io_for(lti_avfile *f, lt_ctx *ctx, const char *path, bool writing)
{
    f->path = strdup(path);
    uint8_t *buf = f->path ? av_malloc(IO_BYTES) : NULL;
    if (buf)
        f->io = avio_alloc_context(buf, IO_BYTES, writing, f, writing ? NULL : read_some,
                                   writing ? write_all : NULL, seek_to);
    if (f->io) return LT_OK;
    av_free(buf);
    lti_avfile_close(f);
    return lti_fail(ctx, LT_ERR_MEM, "no memory to open '%s'", path);
}

lt_status lti_avfile_open(lti_avfile *f, lt_ctx *ctx, const char *path)
{
    /* without waiting for the other end of a pipe */
    *f = (lti_avfile){.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    struct stat st;
    if (f->fd < 0 || fstat(f->fd, &st)) {
        const lt_status s = errno == ENOENT ? LT_ERR_MISSING : LT_ERR_IO;
        lti_fail(ctx, s, "cannot read '%s': %s", path, strerror(errno));
        lti_avfile_close(f);
        return s;
    }
    if (!S_ISREG(st.st_mode)) {
        lti_avfile_close(f);
        return lti_fail(ctx, LT_ERR_IO, "cannot read '%s': not a file", path);
    }
    return io_for(f, ctx, path, false);
}

/* Opened, locked, not yet emptied: what a link leads to is somebody's file. NULL, or why not. */
static const char *open_own(int *fd, const char *path)
{
    struct stat st;
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0) return errno == ELOOP ? "it is a symbolic link" : strerror(errno);
    if (fstat(*fd, &st)) return strerror(errno);
    if (!S_ISREG(st.st_mode)) return "it is not a regular file";
    if (flock(*fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return "it is being written by another process";
    /* counted after the lock: a writer that finished meanwhile has removed the name */
    if (fstat(*fd, &st)) return strerror(errno);
    if (st.st_nlink != 1) return "the file has another name too (a hard link), or none";
    return NULL;
}

lt_status lti_avfile_create(lti_avfile *f, lt_ctx *ctx, const char *path)
{
    *f = (lti_avfile){.fd = -1};
    const char *why = open_own(&f->fd, path);
    if (!why && ftruncate(f->fd, 0)) why = strerror(errno);
    if (!why) return io_for(f, ctx, path, true);
    lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", path, why);
    lti_avfile_close(f);
    return LT_ERR_IO;
}

lt_status lti_avfile_sync(lti_avfile *f, lt_ctx *ctx)
{
    avio_flush(f->io);
    if (!f->error && fsync(f->fd) && errno != EINVAL && errno != EROFS) f->error = errno;
    if (!f->error) return LT_OK;
    return lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", f->path, strerror(f->error));
}

void lti_avfile_close(lti_avfile *f)
{
    if (f->io) {
        av_freep(&f->io->buffer);
        avio_context_free(&f->io);
    }
    if (f->fd > 0 || (f->fd == 0 && f->path)) close(f->fd); /* a zeroed struct has no file */
    free(f->path);
    *f = (lti_avfile){.fd = -1};
}

lt_status lti_av_fail(lt_ctx *ctx, lt_status s, int averror, const lti_avfile *f, const char *what)
{
    if (f && f->error)
        return lti_fail(ctx, LT_ERR_IO, "%s '%s': %s", what, f->path, strerror(f->error));
    if (averror == AVERROR(ENOMEM)) s = LT_ERR_MEM;
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(averror, text, sizeof text);
    if (f && f->path) return lti_fail(ctx, s, "%s '%s': %s", what, f->path, text);
    return lti_fail(ctx, s, "%s: %s", what, text);
}
