/* command.h: what the subcommands of `longtake` share. */
#ifndef LTI_EXAMPLES_COMMAND_H
#define LTI_EXAMPLES_COMMAND_H

#include "examples/settings.h"
#include "stream/stream.h"
#include "video/video.h"

/* Exit statuses: 0 the file is complete, 2 the command line is wrong, 1 everything else. */
enum { LTI_EXIT_OK, LTI_EXIT_FAILED, LTI_EXIT_USAGE };

typedef int lti_command_fn(lt_ctx *ctx, int argc,
                           char **argv); /* argv[0] is the first word after the command */
lti_command_fn lti_cmd_render, lti_cmd_batch, lti_cmd_serve, lti_cmd_inspect, lti_cmd_measure,
    lti_cmd_bench;

/* Prints "longtake: message" and gives the exit status of `s`. */
int lti_exit(lt_ctx *ctx, lt_status s);
/* Parses the options of a command. *done: the help was asked for and printed. */
LT_MUST_USE lt_status lti_begin(lt_ctx *ctx, uint32_t command, const char *usage, lti_settings *set,
                                lti_positional *pos, bool *done, int argc, char **argv);

/* ---- interrupt.c: Ctrl-C ---- */

/* A thread waits for SIGINT, SIGTERM and SIGHUP (those that were not ignored already: nohup) and cancels the session of the moment; a second signal ends the program at once.
 * Start it before other threads exist: they inherit the blocked signals. */
typedef struct lti_interrupt lti_interrupt;
/* keeps: whether what is done by then is kept; a line on stderr says so. */
LT_MUST_USE lt_status lti_interrupt_start(lti_interrupt **out, lt_ctx *ctx, bool keeps);
void lti_interrupt_stop(lti_interrupt **it);                /* accepts NULL */
void lti_interrupt_watch(lti_interrupt *it, lt_session *s); /* NULL: none */
/* Around making the file of the video and around closing it: a signal in between waits. Release says which video is being written,
 * borrowed until the next call; NULL: none. A second signal removes its part when no frame can be read from it, and says so
 * when some can. */
void lti_interrupt_hold(lti_interrupt *it);
void lti_interrupt_release(lti_interrupt *it, const char *path);
bool lti_interrupted(const lti_interrupt *it);
/* Calls `fn` on every signal instead, also on the second; NULL: none. */
void lti_interrupt_call(lti_interrupt *it, void (*fn)(void *user), void *user);

/* ---- progress.c: one line that is written over, on a terminal only ---- */

typedef struct lti_progress {
    bool on;
    size_t width; /* characters on the line now */
    double last;  /* when it was written */
    bool blocks;  /* denoising is told block by block, decoding in between */
    int32_t from; /* the first block told of ... */
    double since; /* ... and when */
} lti_progress;
void lti_progress_begin(lti_progress *p, bool quiet);
void lti_progress_show(void *progress, const lt_progress *now); /* an lt_progress_fn */
void lti_progress_clear(lti_progress *p);

/* ---- files.c ---- */

/* A regular file for reading; NULL leaves the message. */
FILE *lti_regular_open(lt_ctx *ctx, const char *path);
/* A regular file with one name for reading and writing, made where it is missing, locked while it is open, not emptied. flags: more
 * of open()'s. Errors: LT_ERR_IO, *out is -1. */
LT_MUST_USE lt_status lti_file_own(int *out, lt_ctx *ctx, const char *path, int flags);
/* A text file for writing, of which the same is true, and empty; NULL leaves the message. */
FILE *lti_text_create(lt_ctx *ctx, const char *path);
/* Closes it. `so_far` if that is an error, else whether all of it was written. */
LT_MUST_USE lt_status lti_text_end(FILE *f, lt_ctx *ctx, const char *path, lt_status so_far);
/* A folder that can be written, made where it is missing. */
LT_MUST_USE lt_status lti_folder_make(lt_ctx *ctx, const char *path);

/* ---- model.c ---- */

/* The model that --model names, or the embedded one: LONGTAKE_MODEL, share/longtake/toybox of the installation, the source tree.
 * Texts are borrowed from the settings or live in `path`. Errors: LT_ERR_MISSING. */
typedef struct lti_model_path {
    char path[4096];
} lti_model_path;
LT_MUST_USE lt_status lti_model_find(lt_model_options *out, lti_model_path *path, lt_ctx *ctx,
                                     const lti_settings *set);
LT_MUST_USE lt_status lti_device_open(lt_dev **out, lt_ctx *ctx, const lti_settings *set);
/* Last part of a path, for people. */
const char *lti_base_name(const char *path);

/* ---- prompt_file.c: prompts by time ---- */

typedef struct lti_cues {
    lt_cue *cue; /* texts are owned */
    int32_t count;
} lti_cues;
/* Errors: LT_ERR_ARG "--prompt-file NAME, line N: ...". */
LT_MUST_USE lt_status lti_cues_parse(lti_cues *out, lt_ctx *ctx, const char *name, const char *text,
                                     size_t len);
/* A file or a pipe. */
LT_MUST_USE lt_status lti_cues_read(lti_cues *out, lt_ctx *ctx, const char *path);
/* From a list as lti_cues_json gives it. Errors: LT_ERR_ARG "timeline, prompt N: ...". */
LT_MUST_USE lt_status lti_cues_take(lti_cues *out, lt_ctx *ctx, const json_t *list);
void lti_cues_free(lti_cues *c);
json_t *lti_cues_json(const lt_cue *cue, int32_t count);        /* as the file would say it */
json_t *lti_marks_json(const lt_session *session, int32_t fps); /* what took effect when */
/* Whether prompt i took effect, by those marks: not when the video ends before it, or when no block begins before the next one. */
bool lti_cue_drawn(const lt_cue *cue, int32_t count, int32_t i, const json_t *marks, int32_t fps);

/* ---- pace.c: how evenly a video of blocks comes ---- */

typedef struct lti_pace_memory {
    uint64_t tensors, process; /* most bytes so far */
} lti_pace_memory;
typedef struct lti_pace {
    double *drawing, *decoding; /* seconds of each block; all zero: not opened */
    int64_t most, count, block; /* block: number of the newest */
    int64_t frames;             /* of all blocks but the first */
    lti_pace_memory settled;    /* when 20 blocks were behind it; zeros: not yet */
    lti_pace_memory last;       /* with the newest block */
} lti_pace;
/* For at most so many blocks, so that nothing grows while they are drawn. */
LT_MUST_USE lt_status lti_pace_open(lti_pace *p, lt_ctx *ctx, int64_t blocks);
void lti_pace_add(lti_pace *p, const lt_frames *f, const lt_dev *dev);
/* Of all blocks but the first: quantiles of what drawing took, and drawing with decoding; frames a second with decoding; memory.
 * NULL: fewer than two. */
json_t *lti_pace_json(const lti_pace *p);
void lti_pace_close(lti_pace *p);
/* p50, p90, p99 and the largest of n > 0 numbers: a quantile is the least value that so many are not above. Sorts v. */
json_t *lti_quantiles_json(double *v, int64_t n);

/* ---- job.c: one render ---- */

typedef struct lti_job {
    lt_ctx *ctx;
    const lti_settings *set;
    const lt_model_options *model; /* its path names the model in the file */
    const lt_model_info *info;
    const char *prompt, *output; /* prompt: NULL where the timeline has one, or the saved session */
    const json_t *timeline;      /* NULL, or prompts by time that are not in a file */
    lti_cues cues;
    lti_interrupt *interrupt;
    lti_progress *progress;
    lt_dev *dev;            /* by lti_job_run: for the report */
    lt_session_options opt; /* valid values, by lti_job_prepare */
    lt_estimate estimate;
    uint8_t *image;
    /* --video, by given.c */
    uint8_t *given;       /* its end, for the session */
    int64_t video_frames; /* at the rate of the new file */
    double video_fps;     /* its own */
    int64_t before;       /* frames of it in the new file */
    lt_writer *writer;
    lt_session *session;      /* by lti_job_resume, else by lti_job_run */
    json_t *params;           /* what is written into the file */
    json_t *prompts;          /* mode ar, by lti_job_run: what took effect when */
    lti_pace pace;            /* modes ar and extend, by lti_job_run */
    json_t *drift;            /* what the monitor said, by lti_job_run; NULL: off */
    int64_t first;            /* frames of the video that an earlier run made */
    bool saved;               /* set->save_session has been written */
    lt_session_report report; /* by lti_job_run */
    const char *made;         /* name of the finished file, complete or partial */
    int64_t frames;           /* in it */
} lti_job;

/* Checks everything that can be known before the model is loaded, and fills opt and params. ctx, set, model, info, prompt are set.
 * Errors: LT_ERR_ARG and others; the caller closes. */
LT_MUST_USE lt_status lti_job_prepare(lti_job *j);
/* Frames of so many seconds, to the nearest whole latent frame; more: they follow others. */
int32_t lti_frames_of(double seconds, int32_t fps, int32_t scale, bool more);
/* Instead of that: takes up set->resume. */
LT_MUST_USE lt_status lti_job_resume(lti_job *j, lt_model *model);
/* Creates the output, so that a bad place is known before hours of work. */
LT_MUST_USE lt_status lti_job_create_file(lti_job *j, bool overwrite);
/* Makes the video. LT_ERR_CANCELLED after an interrupt: then made is the playable file of what was done, or NULL. */
LT_MUST_USE lt_status lti_job_run(lti_job *j, lt_model *model);
/* One frame, number `n` of the file. */
LT_MUST_USE lt_status lti_job_write(lti_job *j, const uint8_t *rgb, int64_t n);
void lti_job_close(lti_job *j);
/* "832x480, 81 frames at 16 fps (5.06 s), ..." */
void lti_job_describe(const lti_job *j, char *text, size_t size);

/* ---- given.c: a video that is continued ---- */

/* Reads --video at the size and rate of opt: its end to opt.given. */
LT_MUST_USE lt_status lti_given_read(lti_job *j);
/* Writes its frames to the new file. */
LT_MUST_USE lt_status lti_given_write(lti_job *j);

/* ---- params.c: what a file says about its making ---- */

/* Of the matrix products: what "auto" comes to on this device. */
const char *lti_dtype_word(const lt_model_options *model, const lt_dev *dev);
/* A new object with the field names of batch files, so that a file's parameters can be rendered again. */
json_t *lti_params_json(const lti_job *j);
/* As it is written into files: equal parameters, equal texts. malloc'd, or NULL. */
char *lti_params_text(const json_t *value);
/* Calls writer creation's metadata together: title, artist, comment, marks, every parameter. The texts live in `store`, a list to be
 * released after use. */
LT_MUST_USE lt_status lti_params_metadata(lt_ctx *ctx, json_t *params, lt_key_value *out,
                                          int32_t max, int32_t *n, json_t *store);
/* 64-bit FNV-1a in hexadecimal. */
typedef struct lti_hash {
    uint64_t value;
    char text[17];
} lti_hash;
void lti_hash_begin(lti_hash *h);
void lti_hash_add(lti_hash *h, const void *data, size_t n);
const char *lti_hash_text(lti_hash *h);

/* ---- drift.c ---- */

const char *lti_drift_mode_name(int mode); /* lt_drift_mode: "watch" */
json_t *lti_picture_json(const lt_picture *p);
json_t *lti_drift_json(const lt_drift_vector *v);
/* Counts of a whole run. */
json_t *lti_drift_summary(const lt_session_report *r);
/* Appends the session's newest vector if it is not there yet. */
void lti_drift_collect(json_t *list, const lt_session *s);

/* ---- report.c ---- */

LT_MUST_USE lt_status lti_report_write(lt_ctx *ctx, const char *path, const lti_job *j);
/* Whether that would work, without a trace. What exists is refused unless it is a regular file and `overwrite`. */
LT_MUST_USE lt_status lti_json_check(lt_ctx *ctx, const char *path, bool overwrite);
/* Writes a JSON text under its name in one step, in place of a regular file of that name. */
LT_MUST_USE lt_status lti_json_write(lt_ctx *ctx, const char *path, const json_t *value);
/* {"live": ..., "peak": ..., "by_tag": {...}, "process_peak": ...}, bytes. */
json_t *lti_memory_json(const lt_dev *dev);
/* What this machine sustains over ms milliseconds, also as JSON. */
json_t *lti_peak_json(lt_dev *dev, int ms, lt_peak *peak);

#endif
