/* settings.h: everything the subcommands can be told, and which of them knows what. */
#ifndef LTI_EXAMPLES_SETTINGS_H
#define LTI_EXAMPLES_SETTINGS_H

#include "examples/options.h"

/* Who knows an option. LTI_ITEM: a line of a batch file. */
enum {
    LTI_RENDER = 1,
    LTI_BATCH = 2,
    LTI_ITEM = 4,
    LTI_INSPECT = 8,
    LTI_SERVE = 16,
    LTI_MEASURE = 32,
    LTI_BENCH_SPEED = 64,
    LTI_BENCH_ATTENTION = 128,
    LTI_BENCH_QUALITY = 256,
    LTI_BENCH_DRIFT = 512,
    LTI_BENCH = LTI_BENCH_SPEED | LTI_BENCH_ATTENTION | LTI_BENCH_QUALITY | LTI_BENCH_DRIFT
};

/* In the order of the words in the table. */
enum { LTI_DTYPE_AUTO, LTI_DTYPE_F32, LTI_DTYPE_BF16 };
enum { LTI_MODE_CLIP, LTI_MODE_AR, LTI_MODE_EXTEND };

typedef struct lti_settings {
    /* model and machine */
    const char *model, *text_encoder, *vae, *tokenizer, *transformer;
    int32_t dtype, device, threads, isa;
    /* the video; 0 or NULL = the model's default */
    const char *prompt, *negative_prompt, *image, *prompt_file, *attention, *cache, *inject;
    const char *save_session, *resume;
    lti_word mode; /* .word -1 = the model's default */
    const char *video;
    bool new_only; /* of a video that is continued */
    int32_t drift; /* an lt_drift_mode; -1 = not given */
    lti_size size;
    double seconds;
    int32_t num_frames, fps, num_inference_steps;
    double guidance_scale; /* -1 = the model's default */
    double flow_shift;
    lti_seed seed;
    int32_t sampler; /* lt_solver; -1 = the model's default */
    /* the file */
    const char *output, *out_dir, *name, *frames_dir, *report, *json_file;
    int32_t codec, crf;
    bool overwrite, quiet, help, json, print_csv;
    int32_t repeat, heads, seeds;
    const char *methods, *scenes, *csv, *search;
    /* the server; 0 or NULL = its default */
    const char *host, *token_file, *origins, *tls_cert, *tls_key, *data_dir;
    int32_t port, max_sessions, max_queue, max_connections, history, memory,
        disk; /* history, memory, disk: MiB */
    double max_seconds, resume_seconds, keep_seconds, drain_seconds, stall_seconds, retain_seconds,
        save_seconds;
    bool open, log_requests;
} lti_settings;

lti_settings lti_settings_default(void);
lti_table lti_settings_table(uint32_t command);
const char *lti_device_name(const lti_settings *s);
const char *lti_isa_word(const lti_settings *s);

/* What the command line can say but this build cannot do. Errors: LT_ERR_UNSUPPORTED, LT_ERR_ARG. */
LT_MUST_USE lt_status lti_settings_check(lt_ctx *ctx, const lti_settings *s);
/* Texts of --attention with spaces between, and the files that they name. */
LT_MUST_USE lt_status lti_settings_methods(lt_ctx *ctx, const char *list);

#endif
