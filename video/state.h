/* state.h: bytes to a file or from it by the same calls, so that what is written and what is read cannot part ways. Private to video/.
 *
 *   lti_state_begin ─► lti_state_int, _real, _text, _bytes, _device ... ─► lti_state_end
 *
 * Every number is checked when it is read: whoever calls says what it may be. A checksum of all bytes stands at the end of the file
 * and is compared by lti_state_end.
 */
#ifndef LTI_VIDEO_STATE_H
#define LTI_VIDEO_STATE_H

#include "kernels/kernels.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lti_state {
    lt_ctx *ctx;
    lt_dev *dev; /* for lti_state_device */
    FILE *file;  /* borrowed */
    bool reading;
    uint64_t left; /* reading: bytes before the checksum that are still in the file */
    uint64_t hash;
    uint8_t *buffer;
    size_t filled, used;
} lti_state;

/* `bytes`: of the file, when reading. Errors: LT_ERR_MEM, LT_ERR_FORMAT (too short to be one). */
LT_MUST_USE lt_status lti_state_begin(lti_state *s, lt_ctx *ctx, lt_dev *dev, FILE *file,
                                      bool reading, uint64_t bytes);
/* The last bytes, and the checksum. LT_ERR_FORMAT: it differs, or bytes are left. */
LT_MUST_USE lt_status lti_state_end(lti_state *s);
void lti_state_close(lti_state *s); /* frees the buffer; accepts a zeroed struct */

/* All: LT_ERR_IO when the file cannot be written or read, LT_ERR_FORMAT when it ends too early or holds a value that cannot be; the message
 * has `name`. */
LT_MUST_USE lt_status lti_state_bytes(lti_state *s, void *data, size_t bytes);
LT_MUST_USE lt_status lti_state_device(lti_state *s, void *device, size_t bytes);
LT_MUST_USE lt_status lti_state_int(lti_state *s, const char *name, int64_t *v, int64_t min,
                                    int64_t max);
LT_MUST_USE lt_status lti_state_int32(lti_state *s, const char *name, int32_t *v, int32_t min,
                                      int32_t max);
LT_MUST_USE lt_status lti_state_bits(lti_state *s, uint64_t *v); /* any 64 bits */
LT_MUST_USE lt_status lti_state_bool(lti_state *s, const char *name, bool *v);
LT_MUST_USE lt_status lti_state_real(lti_state *s, const char *name, double *v, double min,
                                     double max);
/* UTF-8 of at most max bytes, or NULL; read: *text is malloc'd. */
LT_MUST_USE lt_status lti_state_text(lti_state *s, const char *name, char **text, size_t max);

#ifdef __cplusplus
}
#endif
#endif
