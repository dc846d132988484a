/* files.c: finding the files of a model (files.h, lower half). */
#include "video/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lt_status lti_read_file(char **text, size_t *len, lt_ctx *ctx, const char *path, size_t limit)
{
    *text = NULL;
    *len = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return lti_fail(ctx, LT_ERR_IO, "%s: %s", path, strerror(errno));
    lt_status s = LT_OK;
    size_t n = 0, room = 0;
    char *buf = NULL;
    for (;;) {
        if (room - n < 2) {
            room = room ? 2 * room : 4096;
            char *p = realloc(buf, room);
            if (!p) {
                s = lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %zu bytes", path, room);
                goto fail;
            }
            buf = p;
        }
        const size_t got = fread(buf + n, 1, room - n - 1, f);
        n += got;
        if (n > limit) {
            s = lti_fail(ctx, LT_ERR_FORMAT, "%s: longer than %zu bytes", path, limit);
            goto fail;
        }
        if (!got) break;
    }
    if (ferror(f)) {
        s = lti_fail(ctx, LT_ERR_IO, "%s: %s", path, strerror(errno));
        goto fail;
    }
    fclose(f);
    buf[n] = 0;
    *text = buf;
    *len = n;
    return LT_OK;
fail:
    free(buf);
    fclose(f);
    return s;
}
