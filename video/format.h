/* format.h: one tensor file, whatever its format. A format is one line in the table of format.c and one file beside
 * safetensors.c; the rest of the room sees lti_file only. Private to video/ (and tests).
 */
#ifndef LTI_VIDEO_FORMAT_H
#define LTI_VIDEO_FORMAT_H

#include "kernels/kernels.h"

#include <jansson.h>

enum { LTI_FILE_MAX_DIMS = 8 };

/* Types that files name. `dtype` 0: can be named in a message, not computed with. */
typedef struct lti_type {
    const char *name; /* "BF16" */
    uint8_t bits;
    lt_dtype dtype;
} lti_type;

typedef struct lti_stored {
    const char *name; /* owned by the file */
    const lti_type *type;
    int ndim;
    int64_t dim[LTI_FILE_MAX_DIMS];
    size_t begin, end; /* bytes from the start of the data */
} lti_stored;

/* Files are read, not mapped: when a mapped file is cut short while we run, touching it ends the whole process with SIGBUS, on
 * whatever thread that happens, and a library has no business catching signals. A read says so in a status. */
typedef struct lti_file {
    char *path;
    int fd;
    size_t size;        /* when it was opened */
    size_t data_at;     /* where the data begins */
    lti_stored *tensor; /* sorted by place in the file */
    int64_t count;
    size_t hole, hole_end; /* first bytes of the data that belong to no tensor; equal: none */
    const char *hole_next; /* the tensor behind them, or NULL */
    json_t *header;        /* owns the names */
    json_t *metadata;      /* object of strings, or NULL */
} lti_file;

/* Opens `path` and reads its table of tensors. Errors: LT_ERR_IO, LT_ERR_FORMAT, LT_ERR_UNSUPPORTED (a format that is known and not
 * read here), LT_ERR_MEM. */
LT_MUST_USE lt_status lti_file_open(lti_file **out, lt_ctx *ctx, const char *path);
void lti_file_close(lti_file **f); /* accepts NULL */

/* `bytes` bytes from byte `at` of the file. LT_ERR_IO when it has become shorter since it was opened, or cannot be read; `what` is what
 * they are, for the message. Any thread, as far as ctx allows. */
LT_MUST_USE lt_status lti_file_read(const lti_file *f, lt_ctx *ctx, void *dst, size_t at,
                                    size_t bytes, const char *what);

/* Fills tensor, count, header, metadata, data_at of a file whose path, fd and size are set. On failure the caller closes. */
LT_MUST_USE lt_status lti_safetensors_read(lti_file *f, lt_ctx *ctx);
LT_MUST_USE lt_status lti_pt_read(lti_file *f, lt_ctx *ctx); /* archives of torch.save */
/* A type by the name that safetensors gives it, or NULL. */
const lti_type *lti_type_named(const char *name);

#endif
