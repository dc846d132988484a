/* files.h: finding the files of a model and handing out their tensors. Private to video/ (and tests).
 *
 *   path ─► lti_model_files_find ─► dit, text, vae: sets of tensors (one file, or shards behind an index), tokenizer, JSON texts
 *                                     │ lti_tensors_source
 *                                     └─► get("blocks.0.self_attn.q.weight") ─► lt_tensor, read from the file, until done
 *
 * Names asked for are always the original Wan names (names.h); what the files call them is nobody else's business.
 * Nothing but headers is read before it is asked for, and what was read goes when it is done with.
 */
#ifndef LTI_VIDEO_FILES_H
#define LTI_VIDEO_FILES_H

#include "video/video.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a set of tensors is, which decides how stored names become canonical ones. */
typedef enum lti_part {
    LTI_PART_RAW, /* names as they are */
    LTI_PART_DIT,
    LTI_PART_TEXT,
    LTI_PART_VAE,
    LTI_PART_COUNT
} lti_part;
const char *lti_part_name(lti_part p); /* "DiT", "text encoder", "VAE" */

/* A tensor as the file has it. */
typedef struct lti_entry {
    char *name;         /* canonical */
    const char *stored; /* what the file calls it */
    const char *type;   /* the file's name of the type, "BF16"; static text */
    lt_dtype dtype;     /* 0 when it is not one that can be computed with (F8_E4M3, I64, ...) */
    int ndim;
    int64_t dim[8];
    size_t at, bytes; /* place in the file */
    int32_t file;     /* lti_tensors_file_name */
    bool ignored;     /* known and of no use here (norm_added_q, decoder of a T5, ...) */
} lti_entry;

typedef struct lti_tensors lti_tensors;

/* Opens `path`: a tensor file, or an index of shards (*.safetensors.index.json). Only tensors whose stored names begin with
 * `prefix` are taken, without it (NULL: all, and the prefixes of repacks are taken off by themselves).
 * Errors: LT_ERR_IO, LT_ERR_FORMAT, LT_ERR_MISSING (a shard or a tensor of the index), LT_ERR_UNSUPPORTED (GGUF, a bare pickle), LT_ERR_MEM;
 * the message names file and tensor. `ctx` must outlive *out. */
LT_MUST_USE lt_status lti_tensors_open(lti_tensors **out, lt_ctx *ctx, const char *path,
                                       lti_part part, const char *prefix);
void lti_tensors_close(lti_tensors **t); /* accepts NULL */
/* LT_ERR_FORMAT when bytes of a file belong to no tensor. Asked after the configuration has named what is missing
 * (lti_config_check), since these may be its bytes. */
LT_MUST_USE lt_status lti_tensors_whole(const lti_tensors *t);

int64_t lti_tensors_count(const lti_tensors *t);
const lti_entry *lti_tensors_at(const lti_tensors *t, int64_t i); /* sorted by canonical name */
const lti_entry *lti_tensors_find(const lti_tensors *t, const char *name); /* NULL when not there */
const char *lti_tensors_path(const lti_tensors *t);                        /* as opened */
/* What these files call a tensor, or would: for messages. */
void lti_tensors_stored_name(const lti_tensors *t, const char *name, char *out, size_t size);
int64_t
lti_tensors_parameters(const lti_tensors *t); /* numbers in all tensors that are used; NULL: 0 */
int32_t lti_tensors_files(const lti_tensors *t);
const char *lti_tensors_file_name(const lti_tensors *t, int32_t file);
lti_part lti_tensors_part(const lti_tensors *t);
/* `__metadata__` text of the (first) file by key, or NULL. */
const char *lti_tensors_metadata(const lti_tensors *t, const char *key);

/* Bytes begin..begin + bytes of a tensor. LT_ERR_IO when the file has become shorter since it was opened, or cannot be read. */
LT_MUST_USE lt_status lti_tensors_read(const lti_tensors *t, const lti_entry *e, void *dst,
                                       size_t begin, size_t bytes);

/* For the rooms that ask by name. get: LT_ERR_MISSING, LT_ERR_UNSUPPORTED (fp8 and the like), LT_ERR_SHAPE (more than LT_MAX_DIMS),
 * LT_ERR_IO as above, LT_ERR_MEM. The memory of what is done with serves the next tensor. Any thread may read the data. */
lt_tensor_source lti_tensors_source(lti_tensors *t);

/* ---- finding ----------------------------------------------------------------------------- */

/* Files that are there and cannot be read: the rest is found all the same, so that inspect can tell about it. */
enum { LTI_MAX_BROKEN = 16 };
typedef struct lti_broken {
    lt_status status;
    char *message;
} lti_broken;

typedef enum lti_layout { LTI_LAYOUT_DIFFUSERS, LTI_LAYOUT_WAN, LTI_LAYOUT_FILE } lti_layout;
const char *
lti_layout_name(lti_layout l); /* "diffusers folder", "original Wan folder", "single file" */

typedef struct lti_model_files {
    lti_layout layout;
    char *path;
    lti_tensors *dit, *text, *vae; /* NULL: not found; why_* says where it was looked for */
    char *tokenizer;               /* path of spiece.model, or NULL */
    char *why_dit, *why_text, *why_vae, *why_tokenizer;
    char *second_dit; /* a second expert (A14B): path, or NULL */
    /* texts of the configuration files, NULL where there is none; names for messages */
    char *dit_config, *text_config, *vae_config, *scheduler_config, *model_index, *longtake_config;
    char *dit_config_path, *text_config_path, *vae_config_path, *scheduler_config_path,
        *model_index_path, *longtake_config_path;
    lti_broken broken[LTI_MAX_BROKEN]; /* lti_model_files_require fails with the first */
    int32_t broken_count;
} lti_model_files;

/* Finds and opens what `opt` names; parts that are not there, or cannot be read, are NULL (lti_model_files_require turns that into an
 * error). Errors: LT_ERR_IO, LT_ERR_ARG, LT_ERR_MISSING for paths of `opt` that are not there or hold nothing of what they are given
 * for, LT_ERR_UNSUPPORTED, LT_ERR_MEM. On failure *out is NULL. */
LT_MUST_USE lt_status lti_model_files_find(lti_model_files **out, lt_ctx *ctx,
                                           const lt_model_options *opt);
void lti_model_files_close(lti_model_files **f); /* accepts NULL */
/* The error of the first broken file; LT_ERR_MISSING when a part or the tokenizer is not there: where it was looked for and what to give instead. */
LT_MUST_USE lt_status lti_model_files_require(lt_ctx *ctx, const lti_model_files *f);
/* The sentencepiece model that a text encoder's file carries inside, or NULL. */
const lti_entry *lti_model_files_inner_tokenizer(const lti_model_files *f);

/* Reads a whole small file: *text malloc'd, terminated. LT_ERR_IO, LT_ERR_FORMAT (longer than limit), LT_ERR_MEM. */
LT_MUST_USE lt_status lti_read_file(char **text, size_t *len, lt_ctx *ctx, const char *path,
                                    size_t limit);
/* Which parts does the file or index at `path` hold (bit 1 << lti_part)? Errors as lti_tensors_open. */
LT_MUST_USE lt_status lti_file_parts(uint32_t *parts, lt_ctx *ctx, const char *path);

#ifdef __cplusplus
}
#endif
#endif
