/* options.h: command lines by table. One row an option: parsing, checking, help and the fields of batch files come from it.
 * Messages name the option and the value; LT_ERR_ARG means a wrong command line (exit status 2). */
#ifndef LTI_EXAMPLES_OPTIONS_H
#define LTI_EXAMPLES_OPTIONS_H

#include "kernels/kernels.h"

#include <stdio.h>

#include <jansson.h>

typedef enum lti_kind {
    LTI_FLAG,   /* bool */
    LTI_TEXT,   /* const char *, valid UTF-8; empty only where max is 1 */
    LTI_INT,    /* int32_t in min..max */
    LTI_REAL,   /* double in min..max, finite */
    LTI_SEED,   /* lti_seed */
    LTI_SIZE,   /* lti_size, "832x480" */
    LTI_CHOICE, /* int32_t: which of `arg`, "a|b|c" */
    LTI_WORD,   /* lti_word: the same, and what stands behind a colon */
} lti_kind;

typedef struct lti_seed {
    uint64_t value;
    bool set;
} lti_seed;
typedef struct lti_size {
    int32_t width, height; /* 0 = not set */
} lti_size;

typedef struct lti_word {
    int32_t word;
    const char *keys; /* NULL = none */
} lti_word;

typedef struct lti_option {
    const char *name; /* "num-frames": --num-frames here, num_frames in a batch file */
    lti_kind kind;
    uint32_t commands; /* who knows it */
    size_t offset;     /* of its field */
    const char *arg;   /* in the help; the words of a choice */
    double min, max;
    const char *help;
} lti_option;

typedef struct lti_table {
    const lti_option *rows;
    size_t count;
    uint32_t command; /* rows of others are unknown */
} lti_table;

enum { LTI_MAX_POSITIONAL = 8 };
typedef struct lti_positional {
    const char *text[LTI_MAX_POSITIONAL];
    int count;
} lti_positional;

/* Fills the fields of `base` (which holds the defaults) from argv[0..argc-1]. "--" ends the options, "-o" is --output, "-h" --help.
 * Texts are borrowed from argv. Errors: LT_ERR_ARG. */
LT_MUST_USE lt_status lti_options_parse(lt_ctx *ctx, const lti_table *t, void *base,
                                        lti_positional *pos, int argc, char *const *argv);
/* One value, under the name that the message should give it ("--seed", "seed"). */
LT_MUST_USE lt_status lti_option_set(lt_ctx *ctx, const lti_option *o, void *base,
                                     const char *shown, const char *text);
/* The same from JSON: numbers, texts that hold numbers, true and false. Texts are borrowed from `value`. */
LT_MUST_USE lt_status lti_option_set_json(lt_ctx *ctx, const lti_option *o, void *base,
                                          const char *shown, const json_t *value);
/* The row of a name (dashes and underscores are the same), or NULL. */
const lti_option *lti_option_find(const lti_table *t, const char *name, size_t len);
/* The nearest name, or NULL when none is near. */
const char *lti_option_nearest(const lti_table *t, const char *name, size_t len);
/* All names, as fields of a batch file: "prompt, num_frames". */
void lti_option_list(const lti_table *t, char *text, size_t size);
void lti_options_help(const lti_table *t, FILE *out);
bool lti_utf8_valid(const char *text);

#endif
