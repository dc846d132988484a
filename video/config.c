/* config.c: the whole model: parts put together, defaults for sampling, and the check of tensors against the configuration. */
#include "video/config.h"

#include "attention/attention.h"
#include "video/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the original tools take when no negative prompt is given (spec 4.5). */
#define WAN_NEGATIVE                                                                                                              \
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，" \
    "最差质量，低质量，JPEG压缩残留，丑陋的，残缺的，多余的手指，画得不好的手部，"            \
    "画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画面，"             \
    "杂乱的背景，三条腿，背景人很多，倒着走"

/* Larger than any file of the family; keeps what follows in range. */
enum { MAX_SIDE = 16384, MAX_FRAMES = 1 << 20 };

/* ---- defaults ---------------------------------------------------------------------------- */

static void family_defaults(lti_config *c)
{
    lt_model_info *m = &c->info;
    const bool ti2v = c->dit.in_channels == 48;
    snprintf(m->family, sizeof m->family, "%s",
             c->dit.frame_timesteps ? "wan2.2-ti2v" : "wan2.1-t2v");
    m->default_width = ti2v ? 1280 : 832;
    m->default_height = ti2v ? 704 : 480;
    m->default_frames = ti2v ? 121 : 81;
    m->default_fps = ti2v ? 24 : 16;
    m->default_steps = 50;
    m->default_guidance = 5.0;
    m->default_shift = 5.0;
    m->default_solver = c->dit.causal ? LT_SOLVER_RENOISE : LT_SOLVER_UNIPC;
    m->causal = c->dit.causal;
    if (c->dit.causal) m->default_guidance = 1; /* distilled with it */
    c->grid = LT_GRID_AUTO;
    /* the list is in a language that only the published text encoder knows */
    if (c->dit.text_dim == 4096)
        snprintf(m->default_negative, sizeof m->default_negative, "%s", WAN_NEGATIVE);
}

/* Diffusers' scheduler class says solver and grid; its shift has two names. */
static lt_status scheduler_defaults(lti_config *c, lt_ctx *ctx, const json_t *j, const char *name)
{
    static const struct {
        const char *class;
        lt_solver solver;
        lt_sigma_grid grid;
    } known[] = {
        {"UniPCMultistepScheduler", LT_SOLVER_UNIPC, LT_GRID_DIFFUSERS_UNIPC},
        {"FlowMatchEulerDiscreteScheduler", LT_SOLVER_EULER, LT_GRID_DIFFUSERS_EULER},
        {"DPMSolverMultistepScheduler", LT_SOLVER_DPMPP, LT_GRID_WAN_DPMPP},
    };
    const char *class = NULL, *prediction = NULL;
    LT_TRY(lti_json_string(ctx, j, "_class_name", name, &class, NULL));
    LT_TRY(lti_json_string(ctx, j, "prediction_type", name, &prediction, NULL));
    if (prediction && strcmp(prediction, "flow_prediction"))
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: prediction_type \"%.40s\" is not supported, only flow_prediction",
                        name, prediction);
    bool found = !class;
    for (size_t i = 0; class && i < LT_COUNT(known); i++)
        if (!strcmp(class, known[i].class)) {
            c->info.default_solver = known[i].solver;
            c->grid = known[i].grid;
            found = true;
        }
    if (!found)
        lti_log(ctx, LT_LOG_WARN, "event=unknown_scheduler class=%.60s file=%s using=unipc", class,
                name);
    LT_TRY(lti_json_number(ctx, j, "shift", name, 1e-3, 1e3, &c->info.default_shift, NULL));
    return lti_json_number(ctx, j, "flow_shift", name, 1e-3, 1e3, &c->info.default_shift, NULL);
}

static lt_status take_int(int32_t *out, lt_ctx *ctx, const json_t *j, const char *key,
                          const char *name, int64_t max)
{
    int64_t v = *out;
    LT_TRY(lti_json_int(ctx, j, key, name, 1, max, &v, NULL));
    *out = (int32_t)v;
    return LT_OK;
}

static lt_status own_mode(lt_model_info *m, lt_ctx *ctx, const json_t *j, const char *name)
{
    const char *mode = NULL, *cache = NULL;
    LT_TRY(lti_json_string(ctx, j, "mode", name, &mode, NULL));
    LT_TRY(lti_json_string(ctx, j, "cache", name, &cache, NULL));
    if (mode && strcmp(mode, "clip") && strcmp(mode, "ar"))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: mode \"%.40s\" is not clip or ar", name, mode);
    if (mode) m->causal = !strcmp(mode, "ar");
    lt_cache_policy policy;
    if (cache && strlen(cache) >= sizeof m->default_cache)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: cache is longer than %zu bytes", name,
                        sizeof m->default_cache - 1);
    if (cache && lt_cache_policy_parse(&policy, ctx, cache) < 0)
        return lti_within(ctx, LT_ERR_FORMAT, "%s", name);
    if (cache) snprintf(m->default_cache, sizeof m->default_cache, "%s", cache);
    return LT_OK;
}

/* longtake.json, or the object "_longtake" of model_index.json: what a model is best run with. Keys are the command's; ar_num_inference_steps is for mode ar. */
static lt_status own_defaults(lti_config *c, lt_ctx *ctx, const json_t *j, const char *name)
{
    lt_model_info *m = &c->info;
    LT_TRY(take_int(&m->default_width, ctx, j, "width", name, MAX_SIDE));
    LT_TRY(take_int(&m->default_height, ctx, j, "height", name, MAX_SIDE));
    LT_TRY(take_int(&m->default_frames, ctx, j, "num_frames", name, MAX_FRAMES));
    LT_TRY(take_int(&m->default_fps, ctx, j, "fps", name, 240));
    LT_TRY(take_int(&m->default_steps, ctx, j, "num_inference_steps", name, 1000));
    LT_TRY(take_int(&m->default_ar_steps, ctx, j, "ar_num_inference_steps", name, 1000));
    LT_TRY(take_int(&c->dit.text_len, ctx, j, "text_len", name, 8192));
    LT_TRY(lti_json_number(ctx, j, "guidance_scale", name, 0, 1e3, &m->default_guidance, NULL));
    LT_TRY(lti_json_number(ctx, j, "flow_shift", name, 1e-3, 1e3, &m->default_shift, NULL));
    const char *solver = NULL, *negative = NULL;
    LT_TRY(lti_json_string(ctx, j, "solver", name, &solver, NULL));
    LT_TRY(lti_json_string(ctx, j, "negative_prompt", name, &negative, NULL));
    LT_TRY(own_mode(m, ctx, j, name));
    if (solver) {
        if (!lt_solver_parse(solver, &m->default_solver))
            return lti_fail(ctx, LT_ERR_FORMAT, "%s: solver \"%.40s\" is not known", name, solver);
        c->grid = LT_GRID_AUTO;
    }
    if (negative && strlen(negative) >= sizeof m->default_negative)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: negative_prompt is longer than %zu bytes", name,
                        sizeof m->default_negative - 1);
    if (negative) snprintf(m->default_negative, sizeof m->default_negative, "%s", negative);
    return LT_OK;
}

static lt_status index_facts(lti_config *c, lt_ctx *ctx, const json_t *j, const char *name)
{
    bool frames = false;
    double boundary = 0;
    bool experts;
    LT_TRY(lti_json_bool(ctx, j, "expand_timesteps", name, &frames, NULL));
    LT_TRY(lti_json_number(ctx, j, "boundary_ratio", name, 0, 1, &boundary, &experts));
    if (experts)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: Wan2.2 A14B (two experts, boundary_ratio %g) is not supported yet",
                        name, boundary);
    if (frames) c->dit.frame_timesteps = true;
    return LT_OK;
}

/* ---- the whole --------------------------------------------------------------------------- */

static lt_status read_parts(lti_config *c, lt_ctx *ctx, const lti_model_files *f)
{
    if (f->second_dit)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: Wan2.2 A14B (two experts: transformer and transformer_2) is not "
                        "supported yet",
                        f->path);
    if (f->dit)
        LT_TRY(lti_dit_config_read(&c->dit, ctx, f->dit, f->dit_config, f->dit_config_path));
    if (f->text)
        LT_TRY(lti_text_config_read(&c->text, ctx, f->text, f->text_config, f->text_config_path));
    if (f->vae) {
        LT_TRY(lti_vae_config_read(&c->vae, ctx, f->vae, f->vae_config, f->vae_config_path));
        if (c->vae.no_decoder)
            return lti_fail(ctx, LT_ERR_MISSING, "%s: the VAE has no decoder",
                            lti_tensors_path(f->vae));
    }
    return LT_OK;
}

static lt_status read_defaults(lti_config *c, lt_ctx *ctx, const lti_model_files *f)
{
    const char *index_path = f->model_index_path;
    json_t *index, *scheduler = NULL, *own = NULL;
    LT_TRY(lti_json_config(&index, ctx, f->model_index, index_path));
    lt_status s = lti_json_config(&scheduler, ctx, f->scheduler_config, f->scheduler_config_path);
    if (s >= 0) s = lti_json_config(&own, ctx, f->longtake_config, f->longtake_config_path);
    if (s >= 0) s = index_facts(c, ctx, index, index_path);
    family_defaults(c);
    /* the more particular later */
    if (s >= 0) s = scheduler_defaults(c, ctx, scheduler, f->scheduler_config_path);
    if (s >= 0) s = own_defaults(c, ctx, json_object_get(index, "_longtake"), index_path);
    if (s >= 0) s = own_defaults(c, ctx, own, f->longtake_config_path);
    json_decref(index);
    json_decref(scheduler);
    json_decref(own);
    return s;
}

/* Parts that were not made for each other. */
static lt_status check_fit(const lti_config *c, lt_ctx *ctx, const lti_model_files *f)
{
    if (f->dit && f->text && c->dit.text_dim != c->text.dim)
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "the DiT takes text rows of %d, the text encoder makes rows of %d (%s and "
                        "%s)",
                        c->dit.text_dim, c->text.dim, lti_tensors_path(f->dit),
                        lti_tensors_path(f->text));
    if (f->dit && f->vae && c->dit.out_channels != c->vae.z_dim)
        return lti_fail(
            ctx, LT_ERR_SHAPE, "the DiT makes latents of %d channels, the VAE takes %d (%s and %s)",
            c->dit.out_channels, c->vae.z_dim, lti_tensors_path(f->dit), lti_tensors_path(f->vae));
    return LT_OK;
}

static void fill_info(lti_config *c, const lti_model_files *f)
{
    lt_model_info *m = &c->info;
    m->dim = c->dit.dim;
    m->ffn_dim = c->dit.ffn_dim;
    m->heads = c->dit.heads;
    m->head_dim = c->dit.head_dim;
    m->layers = c->dit.layers;
    m->in_channels = c->dit.in_channels;
    m->out_channels = c->dit.out_channels;
    m->text_dim = c->dit.text_dim;
    m->text_len = c->dit.text_len;
    m->patch = c->dit.patch;
    m->frame_timesteps = c->dit.frame_timesteps;
    m->dit_params = lti_tensors_parameters(f->dit);
    m->text_params = lti_tensors_parameters(f->text);
    m->vae_params = lti_tensors_parameters(f->vae);
    m->spatial_scale = f->vae ? lt_vae_scale(&c->vae) : 8;
    m->frame_scale = f->vae ? lt_vae_frame_scale(&c->vae) : 4;
    m->size_multiple = m->spatial_scale * (m->patch ? m->patch : 2);
    c->text.max_tokens = c->dit.text_len;
}

lt_status lti_config_read(lti_config *out, lt_ctx *ctx, const lti_model_files *files)
{
    memset(out, 0, sizeof *out);
    LT_TRY(read_parts(out, ctx, files));
    LT_TRY(read_defaults(out, ctx, files));
    if (!files->dit) out->dit.text_len = 512;
    fill_info(out, files);
    return check_fit(out, ctx, files);
}

/* ---- tensors against the configuration --------------------------------------------------- */

void lti_config_list_tensors(const lti_config *c, lti_part part, lti_tensor_fn *fn, void *user)
{
    if (part == LTI_PART_DIT)
        lti_dit_list_tensors(&c->dit, fn, user);
    else if (part == LTI_PART_TEXT)
        lti_text_list_tensors(&c->text, fn, user);
    else if (part == LTI_PART_VAE)
        lt_vae_list_tensors(&c->vae, fn, user);
}

typedef struct check {
    const lti_tensors *t;
    lti_findings *out;
    json_t *known;
} check;

static bool same_shape(const lti_entry *e, int ndim, const int64_t *dim)
{
    if (e->ndim != ndim) return false;
    for (int i = 0; i < ndim; i++)
        if (e->dim[i] != dim[i]) return false;
    return true;
}

static void finding(json_t *list, const char *fmt, ...) LT_PRINTF(2, 3);
static void finding(json_t *list, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_t *j = json_string(text);
    for (size_t n = strlen(text); !j && n--; j = json_string(text)) /* cut within a character */
        text[n] = 0;
    json_array_append_new(list, j);
}

static void expect(void *user, const char *name, int ndim, const int64_t *dim)
{
    check *k = user;
    const lti_entry *e = lti_tensors_find(k->t, name);
    json_object_set_new(k->known, name, json_true());
    if (!e) {
        char stored[256];
        lti_tensors_stored_name(k->t, name, stored, sizeof stored);
        finding(k->out->missing, "%s", stored);
        return;
    }
    char want[120], have[120];
    lti_shape_text(want, sizeof want, ndim, dim);
    lti_shape_text(have, sizeof have, e->ndim, e->dim);
    if (!same_shape(e, ndim, dim))
        finding(k->out->shape, "%s has the shape %s, expected %s", e->stored, have, want);
    if (!e->dtype) finding(k->out->type, "%s is of type %s", e->stored, e->type);
}

void lti_findings_free(lti_findings *f)
{
    json_decref(f->missing);
    json_decref(f->shape);
    json_decref(f->type);
    json_decref(f->unknown);
    *f = (lti_findings){0};
}

lt_status lti_config_compare(lti_findings *out, lt_ctx *ctx, const lti_config *c,
                             const lti_tensors *t)
{
    *out = (lti_findings){json_array(), json_array(), json_array(), json_array()};
    check k = {.t = t, .out = out, .known = json_object()};
    if (!out->missing || !out->shape || !out->type || !out->unknown || !k.known) {
        json_decref(k.known);
        lti_findings_free(out);
        return lti_fail(ctx, LT_ERR_MEM, "no memory for the tables of tensors");
    }
    lti_config_list_tensors(c, lti_tensors_part(t), expect, &k);
    for (int64_t i = 0; i < lti_tensors_count(t); i++) {
        const lti_entry *e = lti_tensors_at(t, i);
        if (!e->ignored && !json_object_get(k.known, e->name))
            finding(out->unknown, "%s", e->stored);
    }
    json_decref(k.known);
    return LT_OK;
}

/* The first few of a list, for a message. */
static void some(char *out, size_t size, const json_t *list)
{
    const size_t n = json_array_size(list), shown = n < 3 ? n : 3;
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < shown && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "",
                               json_string_value(json_array_get(list, i)));
    if (n > shown && at < size) snprintf(out + at, size - at, " and %zu more", n - shown);
}

static lt_status judge(lt_ctx *ctx, const lti_findings *f, const lti_tensors *t)
{
    const lti_part part = lti_tensors_part(t);
    const char *path = lti_tensors_path(t), *name = lti_part_name(part);
    char list[1600];
    if (json_array_size(f->type)) {
        some(list, sizeof list, f->type);
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: F32, BF16 and F16 are read, %s tensor %s",
                        path, name, list);
    }
    if (json_array_size(f->missing)) {
        some(list, sizeof list, f->missing);
        return lti_fail(ctx, LT_ERR_MISSING, "%s: missing %s tensor %s", path, name, list);
    }
    if (json_array_size(f->shape)) {
        some(list, sizeof list, f->shape);
        return lti_fail(ctx, LT_ERR_SHAPE, "%s: %s tensor %s", path, name, list);
    }
    LT_TRY(lti_tensors_whole(t));
    if (!json_array_size(f->unknown)) return LT_OK;
    some(list, sizeof list, f->unknown);
    if (part == LTI_PART_DIT)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: unknown %s tensor %s (another architecture?)",
                        path, name, list);
    lti_log(ctx, LT_LOG_WARN, "event=unknown_tensors part=%s count=%zu file=%s first=%s", name,
            json_array_size(f->unknown), path, json_string_value(json_array_get(f->unknown, 0)));
    return LT_OK;
}

lt_status lti_config_check_part(lt_ctx *ctx, const lti_config *c, const lti_tensors *t)
{
    lti_findings f;
    LT_TRY(lti_config_compare(&f, ctx, c, t));
    const lt_status s = judge(ctx, &f, t);
    lti_findings_free(&f);
    return s;
}

lt_status lti_config_check(lt_ctx *ctx, const lti_config *c, const lti_model_files *files)
{
    const lti_tensors *const parts[] = {files->dit, files->vae, files->text};
    for (size_t i = 0; i < LT_COUNT(parts); i++)
        if (parts[i]) LT_TRY(lti_config_check_part(ctx, c, parts[i]));
    return LT_OK;
}
