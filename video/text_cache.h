/* text_cache.h: rows of the prompts that were encoded last, in bounded memory (text_cache.c). */
#ifndef LTI_VIDEO_TEXT_CACHE_H
#define LTI_VIDEO_TEXT_CACHE_H

#include <stddef.h>
#include <stdint.h>

typedef struct lti_text_cache lti_text_cache;
lti_text_cache *lti_text_cache_create(void); /* NULL: no memory */
void lti_text_cache_destroy(lti_text_cache **c);
/* The rows of these tokens, until the next put; NULL: they have to be encoded. Counts which. */
const float *lti_text_cache_get(lti_text_cache *c, const int32_t *ids, int32_t n);
/* Copies; the ones that were not asked for longest leave. Without memory nothing happens. */
void lti_text_cache_put(lti_text_cache *c, const int32_t *ids, int32_t n, const float *rows,
                        size_t bytes);
/* Any thread. */
void lti_text_cache_stats(const lti_text_cache *c, uint64_t *hits, uint64_t *misses);

#endif
