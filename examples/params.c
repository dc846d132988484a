/* params.c: what a file says about its making: parameters under the names of batch files, title, and the marks that say it was
 * generated (China's TC260 label, GB 45438-2025; the XMP box and SEI are the writer's). No path of this machine is written. */
#include "examples/command.h"

#include <inttypes.h>
#include <string.h>

void lti_hash_begin(lti_hash *h)
{
    h->value = 0xcbf29ce484222325u;
}

void lti_hash_add(lti_hash *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h->value = (h->value ^ p[i]) * 0x100000001b3u;
}

const char *lti_hash_text(lti_hash *h)
{
    snprintf(h->text, sizeof h->text, "%016" PRIx64, h->value);
    return h->text;
}

const char *lti_dtype_word(const lt_model_options *model, const lt_dev *dev)
{
    return lt_dtype_name(model->dtype ? model->dtype : lt_dev_auto_dtype(dev));
}

/* Parts that did not come with the model. */
static void add_part(json_t *p, const char *key, const char *path)
{
    if (path) json_object_set_new(p, key, json_string(lti_base_name(path)));
}

/* The text of --attention; of a file that it names only the last part. */
static json_t *attention_json(const char *text)
{
    const char *file = strstr(text, "file=");
    if (!file) return json_string(text);
    file += strlen("file=");
    const char *base = file;
    for (const char *p = file; *p && *p != ','; p++)
        if (*p == '/') base = p + 1;
    return json_sprintf("%.*s%s", (int)(file - text), text, base);
}

json_t *lti_params_json(const lti_job *j)
{
    const lt_session_options *o = &j->opt;
    const lt_codec codec = (lt_codec)j->set->codec;
    char size[32], seed[24];
    snprintf(size, sizeof size, "%dx%d", o->width, o->height);
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    json_t *p = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:s, s:o, s:s, s:s, s:s, s:i}",
        "generator", "Longtake " LT_VERSION, "prompt", o->prompt, "negative_prompt",
        o->negative_prompt ? o->negative_prompt : j->info->default_negative, "model",
        lti_base_name(j->model->path), "family", j->info->family, "size", size, "num_frames",
        o->num_frames, "fps", o->fps, "num_inference_steps", o->num_inference_steps,
        "guidance_scale", o->guidance_scale, "flow_shift", o->flow_shift, "sampler",
        lt_solver_name(o->solver), "attention", attention_json(o->attention), "seed", seed, "dtype",
        lti_dtype_word(j->model, j->dev), "codec", lt_codec_name(codec), "crf",
        j->set->crf < 0 ? lt_codec_default_crf(codec) : j->set->crf);
    if (!p) return NULL;
    add_part(p, "image", j->set->image);
    add_part(p, "video", j->set->video);
    if (o->mode == LT_MODE_EXTEND)
        json_object_set_new(
            p, "mode", o->extend ? json_sprintf("extend:%s", o->extend) : json_string("extend"));
    add_part(p, "vae", j->model->vae);
    add_part(p, "text_encoder", j->model->text_encoder);
    add_part(p, "tokenizer", j->model->tokenizer);
    if (o->drift != LT_DRIFT_OFF)
        json_object_set_new(p, "drift", json_string(lti_drift_mode_name((int)o->drift)));
    if (o->inject) json_object_set_new(p, "inject", json_string(o->inject));
    if (o->mode == LT_MODE_AR) {
        json_object_set_new(p, "mode", json_string("ar"));
        const char *cache = o->cache ? o->cache : j->info->default_cache;
        json_object_set_new(p, "cache", json_string(*cache ? cache : "self-forcing"));
        if (o->cues) json_object_set_new(p, "timeline", lti_cues_json(o->timeline, o->cues));
        if (j->first) json_object_set_new(p, "first_frame", json_integer(j->first));
    }
    return p;
}

/* A prompt as a title: at most 120 bytes, whole characters. */
static void title_of(char *title, size_t size, const char *prompt)
{
    size_t n = strlen(prompt);
    if (n >= size) {
        n = size - 4;
        while (n && ((unsigned char)prompt[n] & 0xc0) == 0x80)
            n--;
    }
    snprintf(title, size, "%.*s%s", (int)n, prompt, prompt[n] ? "..." : "");
}

static json_t *aigc_label(const char *comment)
{
    lti_hash id;
    lti_hash_begin(&id);
    lti_hash_add(&id, comment, strlen(comment));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "Label", "1", "ContentProducer",
                     "Longtake", "ProduceID", lti_hash_text(&id), "ReservedCode1", "",
                     "ContentPropagator", "", "PropagateID", "", "ReservedCode2", "");
}

static bool add(json_t *store, lt_key_value *out, int32_t max, int32_t *n, const char *key,
                json_t *text)
{
    if (*n >= max || !text || json_array_append_new(store, text) < 0) return false;
    out[(*n)++] = (lt_key_value){key, json_string_value(text)};
    return true;
}

char *lti_params_text(const json_t *value)
{
    return json_dumps(value,
                      JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
}

static json_t *dumped(const json_t *value)
{
    char *text = lti_params_text(value);
    json_t *s = text ? json_string(text) : NULL;
    free(text);
    return s;
}

lt_status lti_params_metadata(lt_ctx *ctx, json_t *params, lt_key_value *out, int32_t max,
                              int32_t *n, json_t *store)
{
    char title[124];
    title_of(title, sizeof title, json_string_value(json_object_get(params, "prompt")));
    *n = 0;
    json_t *comment = dumped(params),
           *label = comment ? aigc_label(json_string_value(comment)) : NULL;
    bool ok = add(store, out, max, n, "comment", comment) &&
              add(store, out, max, n, "AIGC", label ? dumped(label) : NULL) &&
              add(store, out, max, n, "title", json_string(title)) &&
              add(store, out, max, n, "artist", json_string("Longtake (AI-generated)"));
    json_decref(label);
    const char *key;
    json_t *value;
    void *at = json_object_iter(params);
    for (; ok && at; at = json_object_iter_next(params, at)) {
        key = json_object_iter_key(at);
        value = json_object_iter_value(at);
        ok = add(store, out, max, n, key, json_is_string(value) ? json_copy(value) : dumped(value));
    }
    return ok ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for the file's metadata");
}
