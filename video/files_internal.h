/* files_internal.h: what the files that find the parts of a model share. */
#ifndef LTI_VIDEO_FILES_INTERNAL_H
#define LTI_VIDEO_FILES_INTERNAL_H

#include "video/files.h"

#include <limits.h>
#include <sys/types.h>

typedef struct lti_finder {
    lt_ctx *ctx;
    const lt_model_options *opt;
    lti_model_files *f;
} lti_finder;

const char *lti_part_folder(lti_part part); /* in a Diffusers folder, "text_encoder" */
lti_tensors **lti_part_slot(lti_model_files *f, lti_part part);
char **lti_part_why(lti_model_files *f, lti_part part);

/* ---- paths ---- */

bool lti_ends_with(const char *s, const char *end);
bool lti_path_join(char out[PATH_MAX], const char *dir, const char *name); /* false: too long */
void lti_path_folder(char out[PATH_MAX], const char *path);                /* that it lies in */
bool lti_path_is_folder(const char *path);
bool lti_path_has_folder(const char *dir, const char *name);
bool lti_path_has_file(const char *dir, const char *name);
/* One shard stands for all of them when their index lies beside it: the index, in `out`, or `path`. */
const char *lti_whole_of(char out[PATH_MAX], const char *path);

/* ---- what is found ---- */

/* *slot = the formatted text, in place of an older one. */
lt_status lti_finder_keep(lti_finder *d, char **slot, const char *fmt, ...) LT_PRINTF(3, 4);
/* Keeps the failure `s` of the context among what is broken, and as the reason why `part` is not there. LT_ERR_MEM is returned. */
lt_status lti_finder_broken(lti_finder *d, lti_part part, lt_status s);
/* The text of a JSON file that may be there. */
lt_status lti_finder_text(lti_finder *d, char **text, char **path_slot, const char *dir,
                          const char *name);
/* The config.json of `dir`, if it is that of this part. */
lt_status lti_finder_config(lti_finder *d, lti_part part, const char *dir);
/* Opens a part's tensor file, unless the part is there already. */
lt_status lti_finder_open(lti_finder *d, lti_part part, const char *path);
/* The part and its configuration, from a folder of its own, and from one where other parts' files lie too. */
lt_status lti_finder_part_folder(lti_finder *d, lti_part part, const char *dir);
lt_status lti_finder_mixed_folder(lti_finder *d, lti_part part, const char *dir);

#endif
