/* json.h: reading JSON from strangers, on jansson. Every message names the file (`name`) and the key. Private to video/. */
#ifndef LTI_VIDEO_JSON_H
#define LTI_VIDEO_JSON_H

#include "kernels/kernels.h"

#include <jansson.h>

/* Parses one JSON object. Deeper than max_depth, duplicate keys, trailing bytes and NUL in strings are refused before and by the
 * parser: LT_ERR_FORMAT. *out to be given to json_decref. */
LT_MUST_USE lt_status lti_json_parse(json_t **out, lt_ctx *ctx, const char *text, size_t len,
                                     int max_depth, const char *name);

/* A configuration file's text, or NULL, which gives NULL: for the functions below an object without keys. */
LT_MUST_USE lt_status lti_json_config(json_t **out, lt_ctx *ctx, const char *text,
                                      const char *name);

/* One key of an object. Absent and null leave *out alone and say so in *found (may be NULL); another type or a value outside
 * [min, max] is LT_ERR_FORMAT. */
LT_MUST_USE lt_status lti_json_int(lt_ctx *ctx, const json_t *obj, const char *key,
                                   const char *name, int64_t min, int64_t max, int64_t *out,
                                   bool *found);
LT_MUST_USE lt_status lti_json_number(lt_ctx *ctx, const json_t *obj, const char *key,
                                      const char *name, double min, double max, double *out,
                                      bool *found);
LT_MUST_USE lt_status lti_json_bool(lt_ctx *ctx, const json_t *obj, const char *key,
                                    const char *name, bool *out, bool *found);
/* *out borrowed from obj. */
LT_MUST_USE lt_status lti_json_string(lt_ctx *ctx, const json_t *obj, const char *key,
                                      const char *name, const char **out, bool *found);
/* An array of `min_n` to `max_n` values; *out borrowed, NULL when absent. */
LT_MUST_USE lt_status lti_json_array(lt_ctx *ctx, const json_t *obj, const char *key,
                                     const char *name, size_t min_n, size_t max_n,
                                     const json_t **out);

#endif
