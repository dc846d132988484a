/* files.c: files of the caller that are read, and files that are ours to write. Nothing here waits for the other end of a pipe,
 * follows a link to write, or empties what it did not make. */
#include "examples/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *lti_regular_open(lt_ctx *ctx, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const char *why = fd < 0 || fstat(fd, &st) ? strerror(errno) : NULL;
    if (!why && !S_ISREG(st.st_mode)) why = "it is not a regular file";
    FILE *f = why ? NULL : fdopen(fd, "r");
    if (f) return f;
    (void)lti_fail(ctx, LT_ERR_IO, "cannot read '%s': %s", path, why ? why : strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
}

lt_status lti_file_own(int *out, lt_ctx *ctx, const char *path, int flags)
{
    struct stat st;
    const char *why = NULL;
    const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
    *out = -1;
    if (fd < 0)
        why = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
    else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        why = "another process is using it";
    else if (fstat(fd, &st))
        why = strerror(errno);
    else if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
        why = "it is not a regular file with one name";
    if (!why) {
        *out = fd;
        return LT_OK;
    }
    (void)lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", path, why);
    if (fd >= 0) close(fd);
    return LT_ERR_IO;
}

FILE *lti_text_create(lt_ctx *ctx, const char *path)
{
    int fd;
    if (lti_file_own(&fd, ctx, path, 0) < 0) return NULL;
    FILE *f = ftruncate(fd, 0) ? NULL : fdopen(fd, "w");
    if (f) return f;
    (void)lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    close(fd);
    return NULL;
}

lt_status lti_text_end(FILE *f, lt_ctx *ctx, const char *path, lt_status so_far)
{
    const bool bad = ferror(f) != 0;
    if ((fclose(f) || bad) && so_far >= 0)
        return lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    return so_far;
}

lt_status lti_folder_make(lt_ctx *ctx, const char *path)
{
    struct stat st;
    if (!mkdir(path, 0777)) return LT_OK;
    if (errno != EEXIST)
        return lti_fail(ctx, LT_ERR_IO, "cannot make the folder '%s': %s", path, strerror(errno));
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return lti_fail(ctx, LT_ERR_IO, "'%s' is there and is not a folder", path);
    if (access(path, W_OK | X_OK))
        return lti_fail(ctx, LT_ERR_IO, "cannot write in the folder '%s': %s", path,
                        strerror(errno));
    return LT_OK;
}
