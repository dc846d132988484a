/* request.c: the fields of a video, in JSON, checked one by one. The names are the field's: Diffusers', the OpenAI videos API's. */
#include "attention/attention.h"
#include "stream/server.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON of strangers ---- */

bool lti_text_valid(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + bytes;
    while (p < end) {
        const int more = *p < 0x80                 ? 0
                         : *p >= 0xc2 && *p < 0xe0 ? 1
                         : (*p & 0xf0) == 0xe0     ? 2
                         : *p >= 0xf0 && *p < 0xf5 ? 3
                                                   : -1;
        if (more < 0 || end - p <= more) return false;
        if (more == 0 && (*p == 0x7f || (*p < 0x20 && !strchr("\t\n\r", *p)) || !*p)) return false;
        for (int i = 1; i <= more; i++)
            if ((p[i] & 0xc0) != 0x80) return false;
        if (*p == 0xe0 && p[1] < 0xa0) return false; /* overlong */
        if (*p == 0xf0 && p[1] < 0x90) return false;
        if (*p == 0xed && p[1] > 0x9f) return false; /* surrogates */
        if (*p == 0xf4 && p[1] > 0x8f) return false; /* above U+10FFFF */
        p += more + 1;
    }
    return true;
}

enum { MAX_DEPTH = 16 };

/* Of a video that is watched, where neither it nor the model says: seconds, steps of denoising. */
#define LIVE_SECONDS 60.0
enum { LIVE_STEPS = 10 };

static int depth_of(const char *text, size_t bytes)
{
    int depth = 0, most = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            quoted = c != '"';
        } else if (c == '"')
            quoted = true;
        else if (c == '{' || c == '[')
            most = ++depth > most ? depth : most;
        else if (c == '}' || c == ']')
            depth--;
    }
    return most;
}

json_t *lti_wire_json(lt_ctx *ctx, const char *text, size_t bytes, size_t max_bytes)
{
    json_error_t e;
    if (bytes > max_bytes) {
        lti_fail(ctx, LT_ERR_ARG, "JSON of %zu bytes: at most %zu are taken", bytes, max_bytes);
        return NULL;
    }
    if (depth_of(text, bytes) > MAX_DEPTH) {
        lti_fail(ctx, LT_ERR_FORMAT, "JSON is nested more than %d deep", MAX_DEPTH);
        return NULL;
    }
    json_t *v = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!v)
        lti_fail(ctx, LT_ERR_FORMAT, "not JSON: %s, line %d column %d", e.text, e.line, e.column);
    return v;
}

/* ---- fields ---- */

typedef enum field_kind { TEXT, INT, REAL, SEED, BOOL, SIZE, MODE, SAMPLER, DRIFT } field_kind;
typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
    double min, max;
} field;

#define AT(f) offsetof(lti_video_request, f)
static const field fields[] = {
    {"prompt", TEXT, AT(prompt), 1, 32768},
    {"negative_prompt", TEXT, AT(negative_prompt), 0, 32768},
    {"model", TEXT, AT(model), 0, 256},
    {"cache", TEXT, AT(cache), 1, 512},
    {"attention", TEXT, AT(attention), 1, 512},
    {"user", TEXT, AT(user), 0, 256},
    {"size", SIZE, AT(width), 0, 0},
    {"width", INT, AT(width), 1, 16384},
    {"height", INT, AT(height), 1, 16384},
    {"num_frames", INT, AT(num_frames), 1, 10000000},
    {"fps", INT, AT(fps), 1, 240},
    {"num_inference_steps", INT, AT(num_inference_steps), 1, 1000},
    {"seconds", REAL, AT(seconds), 0.001, 1e6},
    {"guidance_scale", REAL, AT(guidance_scale), 0, 100},
    {"flow_shift", REAL, AT(flow_shift), 0.01, 100},
    {"seed", SEED, AT(seed), 0, 0},
    {"round_frames", BOOL, AT(round_frames), 0, 0},
    {"mode", MODE, AT(mode), 0, 0},
    {"sampler", SAMPLER, AT(solver), 0, 0},
    {"drift", DRIFT, AT(drift), 0, 0},
    {"crf", INT, AT(crf), 1, 51},
};

static lt_status wrong(lt_ctx *ctx, const field *f, const char *want)
{
    return lti_fail(ctx, LT_ERR_ARG, "%s: must be %s", f->name, want);
}

/* A number, or a text that is one: the OpenAI API sends seconds as a text. */
static bool number_of(const json_t *v, double *out)
{
    if (json_is_number(v)) {
        *out = json_number_value(v);
        return isfinite(*out);
    }
    const char *text = json_string_value(v);
    char *end;
    if (!text || !*text || strspn(text, "0123456789.eE+-") != strlen(text)) return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

static lt_status set_text(lt_ctx *ctx, const field *f, char **out, const json_t *v)
{
    const size_t n = json_string_length(v);
    if (!json_is_string(v)) return wrong(ctx, f, "a text");
    if ((double)n > f->max)
        return lti_fail(ctx, LT_ERR_ARG, "%s: %zu bytes, at most %.0f are taken", f->name, n,
                        f->max);
    if (!lti_text_valid(json_string_value(v), n))
        return lti_fail(ctx, LT_ERR_ARG, "%s: control characters are not taken", f->name);
    if (f->min > 0 && strspn(json_string_value(v), " \t\r\n") == n)
        return lti_fail(ctx, LT_ERR_ARG, "%s: the text is empty", f->name);
    free(*out);
    *out = strdup(json_string_value(v));
    return *out ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for %s", f->name);
}

static lt_status set_number(lt_ctx *ctx, const field *f, void *out, const json_t *v)
{
    double x;
    const bool ok = number_of(v, &x);
    if (!ok || (f->kind == INT && x != floor(x)))
        return wrong(ctx, f, f->kind == INT ? "a whole number" : "a number");
    if (x < f->min || x > f->max)
        return lti_fail(ctx, LT_ERR_ARG, "%s: %g is not in %g..%g", f->name, x, f->min, f->max);
    if (f->kind == INT)
        *(int32_t *)out = (int32_t)x;
    else
        *(double *)out = x;
    return LT_OK;
}

static lt_status set_seed(lt_ctx *ctx, const field *f, lti_video_request *r, const json_t *v)
{
    const char *text = json_string_value(v);
    char *end = NULL;
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        r->seed = (uint64_t)json_integer_value(v);
    } else {
        errno = 0;
        if (text && *text >= '0' && *text <= '9') r->seed = strtoull(text, &end, 10);
        if (!end || *end || errno) return wrong(ctx, f, "a whole number from 0");
    }
    r->seed_set = true;
    return LT_OK;
}

static lt_status set_size(lt_ctx *ctx, const field *f, lti_video_request *r, const json_t *v)
{
    const char *text = json_string_value(v);
    int w, h, n = 0;
    if (!text || strlen(text) > 16 || sscanf(text, "%5dx%5d%n", &w, &h, &n) != 2 || text[n] ||
        w < 1 || h < 1 || w > LTI_MAX_SIDE || h > LTI_MAX_SIDE)
        return wrong(ctx, f, "a size like \"832x480\"");
    r->width = w;
    r->height = h;
    return LT_OK;
}

static lt_status set_word(lt_ctx *ctx, const field *f, lti_video_request *r, const json_t *v)
{
    const char *text = json_string_value(v);
    if (f->kind == MODE) {
        if (text && !strcmp(text, "clip"))
            r->mode = LT_MODE_CLIP;
        else if (text && !strcmp(text, "ar"))
            r->mode = LT_MODE_AR;
        else if (text && !strcmp(text, "extend"))
            r->mode = LT_MODE_EXTEND;
        else
            return wrong(ctx, f, "clip, ar or extend");
        return LT_OK;
    }
    if (f->kind == DRIFT) {
        if (text && !strcmp(text, "off"))
            r->drift = LT_DRIFT_OFF;
        else if (text && !strcmp(text, "watch"))
            r->drift = LT_DRIFT_WATCH;
        else if (text && !strcmp(text, "correct"))
            r->drift = LT_DRIFT_CORRECT;
        else
            return wrong(ctx, f, "off, watch or correct");
        r->drift_set = true;
        return LT_OK;
    }
    lt_solver solver;
    if (!text || !lt_solver_parse(text, &solver))
        return wrong(ctx, f, "euler, unipc, dpm++ or renoise");
    r->solver = (int32_t)solver;
    return LT_OK;
}

static lt_status set_bool(lt_ctx *ctx, const field *f, bool *out, const json_t *v)
{
    const char *text = json_string_value(v); /* of a form */
    *out = text ? !strcmp(text, "true") : json_is_true(v);
    if (json_is_boolean(v) || (text && (*out || !strcmp(text, "false")))) return LT_OK;
    return wrong(ctx, f, "true or false");
}

static lt_status set_field(lt_ctx *ctx, const field *f, lti_video_request *r, const json_t *v)
{
    void *at = (char *)r + f->offset;
    switch (f->kind) {
    case TEXT:
        return set_text(ctx, f, at, v);
    case INT:
    case REAL:
        return set_number(ctx, f, at, v);
    case SEED:
        return set_seed(ctx, f, r, v);
    case SIZE:
        return set_size(ctx, f, r, v);
    case BOOL:
        return set_bool(ctx, f, at, v);
    case MODE:
    case SAMPLER:
    case DRIFT:
        break;
    }
    return set_word(ctx, f, r, v);
}

static void name_param(lti_param *param, const char *name)
{
    snprintf(param->name, sizeof param->name, "%.63s", name);
}

/* `size` says the same as `width` and `height`, where both are given: the last one set them. */
static lt_status check_sides(lt_ctx *ctx, const json_t *o, const lti_video_request *r,
                             lti_param *param)
{
    static const field size = {.name = "size", .kind = SIZE};
    lti_video_request s = {.width = r->width, .height = r->height};
    const json_t *text = json_object_get(o, "size");
    double w, h;
    if (!text || json_is_null(text)) return LT_OK;
    LT_TRY(set_size(ctx, &size, &s, text));
    if (!number_of(json_object_get(o, "width"), &w)) w = s.width;
    if (!number_of(json_object_get(o, "height"), &h)) h = s.height;
    if (w == s.width && h == s.height) return LT_OK;
    name_param(param, "size");
    return lti_fail(ctx, LT_ERR_ARG, "size %dx%d contradicts width and height, %gx%g", s.width,
                    s.height, w, h);
}

lt_status lti_video_request_parse(lti_video_request *r, lt_ctx *ctx, const json_t *o, bool strict,
                                  lti_param *param)
{
    *r = (lti_video_request){.guidance_scale = -1, .solver = -1};
    *param = (lti_param){""};
    if (!json_is_object(o)) return lti_fail(ctx, LT_ERR_ARG, "a JSON object is wanted");
    for (void *it = json_object_iter((json_t *)(uintptr_t)o); it;
         it = json_object_iter_next((json_t *)(uintptr_t)o, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *v = json_object_iter_value(it);
        size_t i = 0;
        while (i < LT_COUNT(fields) && strcmp(fields[i].name, key))
            i++;
        name_param(param, key);
        if (i == LT_COUNT(fields)) {
            if (strict) return lti_fail(ctx, LT_ERR_ARG, "%.63s: unknown field", key);
        } else if (!json_is_null(v))
            LT_TRY(set_field(ctx, &fields[i], r, v));
    }
    *param = (lti_param){""};
    return check_sides(ctx, o, r, param);
}

void lti_video_request_free(lti_video_request *r)
{
    char **const texts[] = {&r->prompt, &r->negative_prompt, &r->model,
                            &r->cache,  &r->attention,       &r->user};
    for (size_t i = 0; i < LT_COUNT(texts); i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
}

/* ---- what a session is made from ---- */

static int32_t rounded(double frames, int32_t scale)
{
    const double k = floor((frames - 1) / scale + 0.5);
    return (int32_t)(k < 0 ? 1 : k * scale + 1);
}

static void fill(lt_session_options *o, const lti_video_request *r, const lt_model_info *info)
{
    *o = lt_session_options_default();
    o->prompt = r->prompt;
    o->negative_prompt = r->negative_prompt;
    o->width = r->width;
    o->height = r->height;
    o->fps = r->fps ? r->fps : info->default_fps;
    o->num_frames = r->num_frames;
    if (r->round_frames && r->num_frames) o->num_frames = rounded(r->num_frames, info->frame_scale);
    if (!r->num_frames && r->seconds > 0)
        o->num_frames = rounded(fmin(r->seconds * o->fps, 1e8), info->frame_scale);
    o->num_inference_steps = r->num_inference_steps;
    o->guidance_scale = r->guidance_scale;
    o->flow_shift = r->flow_shift;
    o->cache = r->cache;
    if (r->attention) o->attention = r->attention;
    o->mode = r->mode;
    o->solver_set = r->solver >= 0;
    if (o->solver_set) o->solver = (lt_solver)r->solver;
    o->seed = r->seed;
    o->image = r->image;
    o->drift = r->drift;
}

/* Blocks, where a model goes on from clean frames: the first picture comes after one block and the prompt can change; a clip would be
 * shown only when all of it is denoised. With few steps, so that it keeps up with the clock; longer than a clip: whoever watches it
 * stops it. */
void lti_video_request_live(lti_video_request *r, const lt_model_info *info, double max_seconds)
{
    const bool blocks = info->causal || info->frame_timesteps;
    if (r->mode == LT_MODE_DEFAULT && blocks) r->mode = LT_MODE_AR;
    if (r->mode != LT_MODE_AR) return;
    if (!r->num_frames && !(r->seconds > 0))
        r->seconds = fmin(LIVE_SECONDS, max_seconds > 2 ? max_seconds - 1 : max_seconds / 2);
    if (!r->num_inference_steps && !info->default_ar_steps && info->default_steps > LIVE_STEPS)
        r->num_inference_steps = LIVE_STEPS;
    if (!r->drift_set) r->drift = LT_DRIFT_WATCH;
}

/* Which field a message of lt_session_validate is about: it begins with its name, or has it inside. */
static void guess_param(lti_param *param, const char *message)
{
    static const char *const names[][2] = {{"first frame", "input_reference"},
                                           {"drift", "drift"},
                                           {"num_frames", "num_frames"},
                                           {"frames", "num_frames"},
                                           {"size", "size"},
                                           {"width", "size"},
                                           {"height", "size"},
                                           {"steps", "num_inference_steps"},
                                           {"guidance", "guidance_scale"},
                                           {"shift", "flow_shift"},
                                           {"fps", "fps"},
                                           {"cache", "cache"},
                                           {"attention", "attention"},
                                           {"prompt", "prompt"}};
    for (size_t i = 0; i < LT_COUNT(names); i++)
        if (strstr(message, names[i][0])) {
            name_param(param, names[i][1]);
            return;
        }
}

/* A text that names a file of this machine is not a stranger's to give. */
static lt_status check_files(lt_ctx *ctx, const char *attention, lti_param *param)
{
    lt_sparse_spec spec;
    LT_TRY(lt_sparse_parse(&spec, ctx, attention));
    if (!spec.file[0]) return LT_OK;
    name_param(param, "attention");
    return lti_fail(ctx, LT_ERR_ARG, "attention: this server reads no files for a request");
}

lt_status lti_video_request_options(lt_session_options *out, lt_ctx *ctx, lti_video_request *r,
                                    const lt_model_info *info, double max_seconds, lti_param *param)
{
    name_param(param, "prompt");
    if (!r->prompt) return lti_fail(ctx, LT_ERR_ARG, "prompt: missing");
    if (!r->seed_set) {
        char hex[17];
        lti_random_hex(hex, 6); /* 48 bits: whole in JavaScript and easy to type */
        r->seed = strtoull(hex, NULL, 16);
        r->seed_set = true;
    }
    fill(out, r, info);
    *param = (lti_param){""};
    const lt_status s = lt_session_validate(ctx, info, out);
    if (s < 0) {
        guess_param(param, lt_error(ctx));
        return s;
    }
    LT_TRY(check_files(ctx, out->attention, param));
    if (out->num_frames > max_seconds * out->fps) {
        name_param(param, r->num_frames ? "num_frames" : "seconds");
        return lti_fail(ctx, LT_ERR_ARG, "%d frames at %d fps: this server makes at most %g s",
                        out->num_frames, out->fps, max_seconds);
    }
    return LT_OK;
}

json_t *lti_video_request_echo(const lt_session_options *o, const lt_model_info *info)
{
    char size[32], seed[24];
    snprintf(size, sizeof size, "%dx%d", o->width, o->height);
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    const bool ar = o->mode == LT_MODE_AR, extend = o->mode == LT_MODE_EXTEND;
    json_t *p =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:i, s:f, s:f, s:s, s:s, s:s}", "prompt",
                  o->prompt, "negative_prompt", o->negative_prompt ? o->negative_prompt : "",
                  "family", info->family, "size", size, "num_frames", o->num_frames, "fps", o->fps,
                  "seconds", (double)o->num_frames / o->fps, "num_inference_steps",
                  o->num_inference_steps, "guidance_scale", o->guidance_scale, "flow_shift",
                  o->flow_shift, "sampler", lt_solver_name(o->solver), "seed", seed, "mode",
                  ar       ? "ar"
                  : extend ? "extend"
                           : "clip");
    if (p && o->drift != LT_DRIFT_OFF)
        json_object_set_new(p, "drift",
                            json_string(o->drift == LT_DRIFT_WATCH ? "watch" : "correct"));
    if (p && o->attention) json_object_set_new(p, "attention", json_string(o->attention));
    if (p && ar && o->cache) json_object_set_new(p, "cache", json_string(o->cache));
    return p;
}

static bool add(json_t *store, lt_key_value *out, int32_t max, int32_t *n, const char *key,
                json_t *text)
{
    if (*n >= max || !text || json_array_append_new(store, text) < 0) return false;
    out[(*n)++] = (lt_key_value){key, json_string_value(text)};
    return true;
}

int32_t lti_video_metadata(json_t *params, lt_key_value *out, int32_t max, json_t *store)
{
    int32_t n = 0;
    char *comment = json_dumps(params, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    const char *prompt = json_string_value(json_object_get(params, "prompt"));
    bool ok = add(store, out, max, &n, "comment", comment ? json_string(comment) : NULL) &&
              add(store, out, max, &n, "AIGC",
                  json_string("{\"Label\":\"1\",\"ContentProducer\":\"Longtake\"}")) &&
              add(store, out, max, &n, "title", json_string(prompt ? prompt : "")) &&
              add(store, out, max, &n, "artist", json_string("Longtake (AI-generated)"));
    free(comment);
    const char *key;
    json_t *value;
    json_object_foreach(params, key, value)
    {
        char *text = json_is_string(value)
                         ? NULL
                         : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        ok = ok && add(store, out, max, &n, key, text ? json_string(text) : json_incref(value));
        free(text);
    }
    return n;
}
