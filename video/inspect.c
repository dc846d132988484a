/* inspect.c: what `longtake inspect` prints: everything that can be told about a model from its headers, complete or not. */
#include "video/config.h"
#include "video/rollout.h"
#include "video/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 50 }; /* names of each list; a count says how many there are */

typedef struct inspection {
    lt_ctx *ctx;
    const lti_model_files *f;
    lti_config config;
    json_t *root, *problems;
    bool read[LTI_PART_COUNT]; /* its configuration is known */
} inspection;

static void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value);
}

static void set_text(json_t *o, const char *key, const char *text)
{
    set(o, key, text ? json_string(text) : json_null());
}

static void add_problem(inspection *in, const char *text)
{
    json_array_append_new(in->problems, json_string(text));
}

static void problem(inspection *in)
{
    add_problem(in, lt_error(in->ctx));
}

/* ---- a part ------------------------------------------------------------------------------ */

static void add_list(json_t *part, const char *key, const json_t *list)
{
    json_t *names = json_array();
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < SHOWN; i++)
        json_array_append(names, json_array_get(list, i));
    set(part, key, json_pack("{s:I, s:o}", "count", (json_int_t)n, "names", names));
}

static json_t *types(const lti_tensors *t)
{
    json_t *all = json_object();
    for (int64_t i = 0; i < lti_tensors_count(t); i++) {
        const lti_entry *e = lti_tensors_at(t, i);
        const json_t *old = json_object_get(all, e->type);
        const json_int_t n = json_integer_value(json_object_get(old, "tensors"));
        const json_int_t b = json_integer_value(json_object_get(old, "bytes"));
        set(all, e->type,
            json_pack("{s:I, s:I}", "tensors", n + 1, "bytes", b + (json_int_t)e->bytes));
    }
    return all;
}

static json_t *files_of(const lti_tensors *t)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < lti_tensors_files(t); i++)
        json_array_append_new(list, json_string(lti_tensors_file_name(t, i)));
    return list;
}

static void add_findings(inspection *in, json_t *part, const lti_tensors *t)
{
    lti_findings f;
    if (!in->read[lti_tensors_part(t)]) return;
    if (lti_config_compare(&f, in->ctx, &in->config, t) < 0) {
        problem(in);
        return;
    }
    add_list(part, "missing", f.missing);
    add_list(part, "misshapen", f.shape);
    add_list(part, "unreadable", f.type);
    add_list(part, "unknown", f.unknown);
    lti_findings_free(&f);
}

static void add_part(inspection *in, const char *key, const lti_tensors *t, const char *why)
{
    json_t *part = json_object();
    set(in->root, key, part);
    set(part, "found", json_boolean(t != NULL));
    if (!t) {
        set_text(part, "why", why);
        return;
    }
    json_int_t bytes = 0, ignored = 0;
    for (int64_t i = 0; i < lti_tensors_count(t); i++) {
        bytes += (json_int_t)lti_tensors_at(t, i)->bytes;
        ignored += lti_tensors_at(t, i)->ignored;
    }
    set(part, "files", files_of(t));
    set(part, "tensors", json_integer(lti_tensors_count(t)));
    set(part, "ignored", json_integer(ignored));
    set(part, "parameters", json_integer(lti_tensors_parameters(t)));
    set(part, "bytes", json_integer(bytes));
    set(part, "dtypes", types(t));
    add_findings(in, part, t);
}

/* ---- configurations ---------------------------------------------------------------------- */

static json_t *dit_json(const lti_dit_config *c)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:b}", "dim",
                     c->dim, "ffn_dim", c->ffn_dim, "num_heads", c->heads, "head_dim", c->head_dim,
                     "num_layers", c->layers, "in_channels", c->in_channels, "out_channels",
                     c->out_channels, "text_dim", c->text_dim, "text_len", c->text_len, "freq_dim",
                     c->freq_dim, "patch", c->patch, "eps", (double)c->eps, "frame_timesteps",
                     c->frame_timesteps);
}

static json_t *text_json(const lti_text_config *c)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "vocab_size", c->vocab, "dim",
                     c->dim, "num_heads", c->heads, "head_dim", c->head_dim, "ffn_dim", c->ffn_dim,
                     "num_layers", c->layers, "num_buckets", c->buckets, "max_distance",
                     c->max_distance, "eps", (double)c->eps);
}

static json_t *vae_json(const lt_vae_config *c)
{
    json_t *mult = json_array(), *time = json_array(), *mean = json_array(), *std = json_array();
    for (int32_t i = 0; i < c->levels; i++)
        json_array_append_new(mult, json_integer(c->mult[i]));
    for (int32_t i = 0; i + 1 < c->levels; i++)
        json_array_append_new(time, json_boolean(c->temporal_down[i]));
    for (int32_t i = 0; i < c->z_dim; i++) {
        json_array_append_new(mean, json_real((double)c->mean[i]));
        json_array_append_new(std, json_real((double)c->std[i]));
    }
    return json_pack("{s:i, s:i, s:i, s:o, s:i, s:o, s:b, s:b, s:o, s:o}", "z_dim", c->z_dim,
                     "base_dim", c->encoder_dim, "decoder_base_dim", c->decoder_dim, "dim_mult",
                     mult, "num_res_blocks", c->num_res_blocks, "temporal_downsample", time,
                     "encoder", !c->no_encoder, "decoder", !c->no_decoder, "latents_mean", mean,
                     "latents_std", std);
}

/* What mode ar takes at the default size, in bf16. */
static json_t *blocks_json(const lti_config *c)
{
    const lt_model_info *m = &c->info;
    lt_cache_policy p;
    if (m->spatial_scale < 1 || lt_cache_policy_parse(&p, NULL, m->default_cache) < 0)
        return json_null();
    const uint64_t bytes =
        lti_rollout_cache_bytes(&c->dit, LT_BF16, &p, m->default_height / m->spatial_scale,
                                m->default_width / m->spatial_scale, m->default_guidance > 1);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I}", "cache",
                     *m->default_cache ? m->default_cache : "self-forcing", "block_frames", p.block,
                     "window_frames", p.window, "sink_frames", p.sink, "num_inference_steps",
                     m->default_ar_steps ? m->default_ar_steps : m->default_steps, "cache_bytes",
                     (json_int_t)bytes);
}

static json_t *defaults_json(const lti_config *c)
{
    const lt_model_info *m = &c->info;
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:s, s:o}", "mode",
                     m->causal ? "ar" : "clip", "width", m->default_width, "height",
                     m->default_height, "num_frames", m->default_frames, "fps", m->default_fps,
                     "num_inference_steps", m->default_steps, "guidance_scale", m->default_guidance,
                     "flow_shift", m->default_shift, "solver", lt_solver_name(m->default_solver),
                     "negative_prompt", m->default_negative, "ar", blocks_json(c));
}

/* Part by part first, so that what is wrong with one does not hide the others; then the whole. */
static void read_config(inspection *in)
{
    const lti_model_files *f = in->f;
    lti_config *c = &in->config;
    bool good = true;
    for (int32_t i = 0; i < f->broken_count; i++)
        add_problem(in, f->broken[i].message);
    if (f->dit) {
        in->read[LTI_PART_DIT] =
            lti_dit_config_read(&c->dit, in->ctx, f->dit, f->dit_config, f->dit_config_path) >= 0;
        if (!in->read[LTI_PART_DIT]) problem(in);
        good &= in->read[LTI_PART_DIT];
    }
    if (f->text) {
        in->read[LTI_PART_TEXT] = lti_text_config_read(&c->text, in->ctx, f->text, f->text_config,
                                                       f->text_config_path) >= 0;
        if (!in->read[LTI_PART_TEXT]) problem(in);
        good &= in->read[LTI_PART_TEXT];
    }
    if (f->vae) {
        in->read[LTI_PART_VAE] =
            lti_vae_config_read(&c->vae, in->ctx, f->vae, f->vae_config, f->vae_config_path) >= 0;
        if (!in->read[LTI_PART_VAE]) problem(in);
        good &= in->read[LTI_PART_VAE];
    }
    if (!good || f->broken_count) return;
    lti_config whole;
    if (lti_config_read(&whole, in->ctx, f) < 0)
        problem(in);
    else
        *c = whole;
}

static void add_config(inspection *in)
{
    json_t *config = json_object();
    const lti_config *c = &in->config;
    set_text(in->root, "family", c->info.family[0] && in->f->dit ? c->info.family : NULL);
    set(in->root, "config", config);
    if (in->read[LTI_PART_DIT]) set(config, "dit", dit_json(&c->dit));
    if (in->read[LTI_PART_TEXT]) set(config, "text_encoder", text_json(&c->text));
    if (in->read[LTI_PART_VAE]) set(config, "vae", vae_json(&c->vae));
    if (c->info.family[0] && in->f->dit) set(config, "defaults", defaults_json(c));
}

static void add_tokenizer(inspection *in)
{
    const lti_model_files *f = in->f;
    json_t *o = json_object();
    set(in->root, "tokenizer", o);
    lti_tokenizer *t;
    if (!f->tokenizer && !lti_model_files_inner_tokenizer(f)) {
        set(o, "found", json_false());
        set_text(o, "why", f->why_tokenizer);
        return;
    }
    set(o, "found", json_true());
    set_text(o, "file", f->tokenizer ? f->tokenizer : lti_tensors_path(f->text));
    if (lti_tokenizer_of(&t, in->ctx, f) < 0) {
        problem(in);
        return;
    }
    set(o, "pieces", json_integer(lti_tokenizer_size(t)));
    if (in->read[LTI_PART_TEXT] && lti_tokenizer_size(t) > in->config.text.vocab) {
        const lt_status s =
            lti_fail(in->ctx, LT_ERR_SHAPE, "the tokenizer has %d pieces, the text encoder %d rows",
                     lti_tokenizer_size(t), in->config.text.vocab);
        if (s < 0) problem(in);
    }
    lti_tokenizer_close(&t);
}

/* ---- the whole --------------------------------------------------------------------------- */

static bool judge(inspection *in)
{
    lt_status s = in->f->broken_count ? LT_OK : lti_model_files_require(in->ctx, in->f);
    if (s < 0) problem(in);
    if (json_array_size(in->problems)) return false;
    s = lti_config_check(in->ctx, &in->config, in->f);
    if (s < 0) problem(in);
    return s >= 0;
}

static bool fill(inspection *in)
{
    const lti_model_files *f = in->f;
    set_text(in->root, "path", f->path);
    set_text(in->root, "layout", lti_layout_name(f->layout));
    read_config(in);
    add_config(in);
    add_part(in, "dit", f->dit, f->why_dit);
    add_part(in, "text_encoder", f->text, f->why_text);
    add_part(in, "vae", f->vae, f->why_vae);
    add_tokenizer(in);
    const bool complete = judge(in);
    set(in->root, "problems", json_incref(in->problems));
    set(in->root, "complete", json_boolean(complete));
    return complete;
}

lt_status lt_model_inspect(char **json, bool *complete, lt_ctx *ctx, const lt_model_options *opt)
{
    *json = NULL;
    *complete = false;
    lti_model_files *f;
    LT_TRY(lti_model_files_find(&f, ctx, opt));
    inspection in = {.ctx = ctx, .f = f, .root = json_object(), .problems = json_array()};
    if (in.root && in.problems) {
        *complete = fill(&in);
        *json = json_dumps(in.root, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
    }
    json_decref(in.root);
    json_decref(in.problems);
    lti_model_files_close(&f);
    return *json ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for the description of the model");
}
