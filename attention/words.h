/* words.h: words of the texts that this room reads: specifications, policies, files of windows. A word is not terminated. */
#ifndef LTI_ATTENTION_WORDS_H
#define LTI_ATTENTION_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lti_word_text {
    const char *text;
    size_t len;
} lti_word_text;

enum { LTI_MOST_SIDE = 4096 }; /* of a box */

bool lti_word_is(lti_word_text w, const char *name);
/* True: the number that fills all of the word is in low .. high, a finite one. */
bool lti_read_number(lti_word_text w, double low, double high, double *out);
bool lti_read_whole(lti_word_text w, int32_t low, int32_t high, int32_t *out);
bool lti_read_box(lti_word_text w, int32_t out[3]); /* "FxHxW", sides 1 .. LTI_MOST_SIDE */
bool lti_odd_box(const int32_t side[3]);            /* all sides odd, in that range */
bool lti_read_odd_box(lti_word_text w, int32_t out[3]);

#endif
