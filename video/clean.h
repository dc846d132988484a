/* clean.h: a prompt as the text encoder's authors clean it (spec 4.4). Private to video/ (and tests). */
#ifndef LTI_VIDEO_CLEAN_H
#define LTI_VIDEO_CLEAN_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out: malloc'd, terminated, NFC, whitespace collapsed, ends trimmed. Errors: LT_ERR_ARG (not UTF-8: message has the byte offset),
 * LT_ERR_MEM. */
LT_MUST_USE lt_status lti_clean(char **out, lt_ctx *ctx, const char *text, size_t len);

#ifdef __cplusplus
}
#endif
#endif
