/* tokenizer.h: text to token ids by a sentencepiece model. The one C++ file of the engine stands behind it: sentencepiece has no C
 * interface. Private to video/ (and tests).
 */
#ifndef LTI_VIDEO_TOKENIZER_H
#define LTI_VIDEO_TOKENIZER_H

#include "video/files.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lti_tokenizer lti_tokenizer;

/* `path`: spiece.model. Errors: LT_ERR_IO, LT_ERR_FORMAT, LT_ERR_MEM. */
LT_MUST_USE lt_status lti_tokenizer_open(lti_tokenizer **out, lt_ctx *ctx, const char *path);
/* From memory (files that carry the model inside); read, not kept. `name` is for messages. */
LT_MUST_USE lt_status lti_tokenizer_load(lti_tokenizer **out, lt_ctx *ctx, const void *data,
                                         size_t len, const char *name);
/* The tokenizer of a model: its file, or the one inside its text encoder. LT_ERR_MISSING when it has none. */
LT_MUST_USE lt_status lti_tokenizer_of(lti_tokenizer **out, lt_ctx *ctx,
                                       const lti_model_files *files);
void lti_tokenizer_close(lti_tokenizer **t);        /* accepts NULL */
int32_t lti_tokenizer_size(const lti_tokenizer *t); /* pieces */

/* Cleans (clean.h), encodes, cuts to max_tokens - 1 and appends EOS. *ids malloc'd, *n >= 1. `vocab`: rows of the embedding; an id
 * outside is LT_ERR_SHAPE (tokenizer and encoder do not belong together). *cut (may be NULL): tokens left out.
 * Errors: LT_ERR_ARG (not UTF-8), LT_ERR_SHAPE, LT_ERR_MEM. */
LT_MUST_USE lt_status lti_tokenizer_encode(const lti_tokenizer *t, lt_ctx *ctx, const char *text,
                                           int32_t max_tokens, int32_t vocab, int32_t **ids,
                                           int32_t *n, int32_t *cut);

#ifdef __cplusplus
}
#endif
#endif
