/* names.h: one internal name for every tensor, whoever wrote the file. Canonical is what the original Wan code calls it; Diffusers'
 * and Hugging Face's names are translated (spec 2.2, 3.6, 4.6), the prefixes of repacks are taken off. Private to video/.
 */
#ifndef LTI_VIDEO_NAMES_H
#define LTI_VIDEO_NAMES_H

#include "video/files.h"

typedef enum lti_name_kind {
    LTI_NAME_USED,
    LTI_NAME_IGNORED, /* known, and of no use here */
    LTI_NAME_OTHER    /* does not belong to this part (outside its prefix) */
} lti_name_kind;

/* How one set of tensors is named, found out from all its names. */
typedef struct lti_naming {
    lti_part part;
    bool foreign;       /* Diffusers or Hugging Face names */
    bool nested;        /* the VAE of Wan2.2: blocks within levels, not one flat list */
    int32_t level_size; /* VAE decoder: modules of a level, upsampler included */
    char prefix[160];
} lti_naming;

/* `prefix` NULL: found by the part's anchor tensor ("patch_embedding.weight", ...). */
void lti_naming_detect(lti_naming *out, lti_part part, const char *const *names, int64_t count,
                       const char *prefix);
/* Canonical name of `stored` to out, cut to size. */
lti_name_kind lti_naming_apply(const lti_naming *n, const char *stored, char *out, size_t size);
/* What a file of this naming calls the tensor `canonical`, for messages; a name of its own that is not known stays canonical. */
void lti_naming_stored(const lti_naming *n, const char *canonical, char *out, size_t size);
/* Is there a tensor that only this part has? */
bool lti_naming_has_part(lti_part part, const char *const *names, int64_t count);

#endif
