/* model.c: where the model is, and the device it runs on. */
#include "examples/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *lti_base_name(const char *path)
{
    const char *last = strrchr(path, '/');
    return last && last[1] ? last + 1 : path;
}

static bool is_model(const char *path)
{
    char file[4200];
    snprintf(file, sizeof file, "%s/model_index.json", path);
    return !access(file, R_OK);
}

/* Beside the program that runs, wherever it was moved: ../share/longtake/toybox. */
static bool beside_program(char *path, size_t size)
{
    char exe[2048];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return false;
    exe[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash) return false;
        *slash = 0;
    }
    snprintf(path, size, "%s/share/longtake/toybox", exe);
    return is_model(path);
}

static bool embedded(lti_model_path *m)
{
    const char *env = getenv("LONGTAKE_MODEL");
    if (env && *env) {
        snprintf(m->path, sizeof m->path, "%s", env);
        return true;
    }
    if (beside_program(m->path, sizeof m->path)) return true;
    static const char *const places[] = {LT_DATA_DIR "/toybox", LT_SOURCE_DIR "/examples/toybox"};
    for (size_t i = 0; i < LT_COUNT(places); i++) {
        snprintf(m->path, sizeof m->path, "%s", places[i]);
        if (is_model(m->path)) return true;
    }
    return false;
}

lt_status lti_model_find(lt_model_options *out, lti_model_path *path, lt_ctx *ctx,
                         const lti_settings *set)
{
    static const lt_dtype types[] = {
        [LTI_DTYPE_AUTO] = 0, [LTI_DTYPE_F32] = LT_F32, [LTI_DTYPE_BF16] = LT_BF16};
    *out = (lt_model_options){.path = set->model,
                              .text_encoder = set->text_encoder,
                              .vae = set->vae,
                              .tokenizer = set->tokenizer,
                              .dtype = types[set->dtype]};
    if (set->model) return LT_OK;
    if (!embedded(path))
        return lti_fail(
            ctx, LT_ERR_MISSING,
            "no model: the embedded one is not installed; give --model PATH or set LONGTAKE_MODEL");
    out->path = path->path;
    return LT_OK;
}

lt_status lti_device_open(lt_dev **out, lt_ctx *ctx, const lti_settings *set)
{
    lt_dev_options o = lt_dev_options_default();
    o.device = lti_device_name(set);
    o.isa = lti_isa_word(set);
    o.threads = set->threads;
    return lt_dev_create(out, ctx, &o);
}
