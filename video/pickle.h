/* pickle.h: the part of Python's pickle language that torch.save writes for checkpoints, read as data. Nothing is executed: a program
 * that names any function but the few that describe a tensor is refused. Private to video/ (and tests).
 */
#ifndef LTI_VIDEO_PICKLE_H
#define LTI_VIDEO_PICKLE_H

#include "video/format.h"

/* The most values that a program may make. Real checkpoints: 1,304 tensors of some 40 values each. */
enum { LTI_PICKLE_VALUES = 1 << 20 };

typedef enum lti_kind {
    LTI_VALUE_OTHER, /* None, a float, a device: nothing that a tensor needs */
    LTI_VALUE_INT,   /* bools too */
    LTI_VALUE_TEXT,
    LTI_VALUE_LIST, /* tuples too */
    LTI_VALUE_DICT, /* items: key, value, key, value, ... */
    LTI_VALUE_FUNCTION,
    LTI_VALUE_TYPE,    /* the class of a storage, or a dtype */
    LTI_VALUE_STORAGE, /* item: its key, a text; n: elements */
    LTI_VALUE_TENSOR,  /* items: storage, offset (int), size, stride (lists of anything) */
    LTI_VALUE_MARK
} lti_kind;

typedef struct lti_value lti_value;
struct lti_value {
    lti_kind kind;
    const lti_type *type; /* TYPE, STORAGE, TENSOR */
    int64_t n;            /* INT, FUNCTION; STORAGE: elements; TEXT: length */
    const char *text;     /* TEXT: in the program, not terminated */
    lti_value **item;
    size_t items, room;
};

/* Runs `len` bytes at `code`, which must stay as long as *out. Values may contain themselves. `path` is for messages.
 * Errors: LT_ERR_FORMAT, LT_ERR_UNSUPPORTED (names the function or instruction), LT_ERR_MEM; then *out is NULL. */
typedef struct lti_pickle lti_pickle;
LT_MUST_USE lt_status lti_pickle_run(lti_pickle **out, lt_ctx *ctx, const uint8_t *code, size_t len,
                                     const char *path);
const lti_value *lti_pickle_root(const lti_pickle *p);
void lti_pickle_free(lti_pickle **p); /* accepts NULL */

#endif
