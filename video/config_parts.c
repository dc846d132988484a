/* config_parts.c: one part at a time, from its tensors first and its config.json second. What tensors say is true; a configuration
 * that says otherwise belongs to another file, and the message shows both values.
 */
#include "video/config.h"
#include "video/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond these a number is a mistake or an attack: the largest DiT of the family is 5120 wide and 40 deep. */
enum { MAX_WIDTH = 1 << 16, MAX_VOCAB = 1 << 24, MAX_LAYERS = 512, MAX_HEADS = 1024 };

/* ---- looking at tensors ------------------------------------------------------------------ */

void lti_shape_text(char *out, size_t size, int ndim, const int64_t *dim)
{
    size_t at = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRId64, i ? "," : "", dim[i]);
    if (at < size) snprintf(out + at, size - at, "]");
}

static lt_status need(lt_ctx *ctx, const lti_tensors *t, const lti_entry **out, int ndim,
                      const char *name)
{
    const lti_entry *e = lti_tensors_find(t, name);
    *out = e;
    if (!e) {
        char stored[256];
        lti_tensors_stored_name(t, name, stored, sizeof stored);
        return lti_fail(ctx, LT_ERR_MISSING, "%s: the %s tensor \"%s\" is missing",
                        lti_tensors_path(t), lti_part_name(lti_tensors_part(t)), stored);
    }
    bool good = e->ndim == ndim;
    for (int i = 0; i < e->ndim; i++)
        good &= e->dim[i] >= 1 && e->dim[i] <= MAX_VOCAB;
    if (good) return LT_OK;
    char shape[200];
    lti_shape_text(shape, sizeof shape, e->ndim, e->dim);
    return lti_fail(ctx, LT_ERR_SHAPE, "%s: tensor \"%s\" has the shape %s, expected %d dimensions",
                    lti_tensors_file_name(t, e->file), e->stored, shape, ndim);
}

static bool has(const lti_tensors *t, const char *name)
{
    return lti_tensors_find(t, name) != NULL;
}

static bool has_beginning(const lti_tensors *t, const char *begin)
{
    for (int64_t i = 0; i < lti_tensors_count(t); i++)
        if (!strncmp(lti_tensors_at(t, i)->name, begin, strlen(begin))) return true;
    return false;
}

/* Number of consecutive i for which the name exists. */
static int32_t count_layers(const lti_tensors *t, const char *before, const char *after)
{
    char name[128];
    int32_t n = 0;
    for (; n <= MAX_LAYERS; n++) {
        snprintf(name, sizeof name, "%s%d%s", before, n, after);
        if (!has(t, name)) break;
    }
    return n;
}

static lt_status in_range(lt_ctx *ctx, const lti_tensors *t, const char *what, int64_t v,
                          int64_t max)
{
    if (v >= 1 && v <= max) return LT_OK;
    return lti_fail(ctx, LT_ERR_SHAPE, "%s: %s %s is %" PRId64 ", outside 1..%" PRId64,
                    lti_tensors_path(t), lti_part_name(lti_tensors_part(t)), what, v, max);
}

/* ---- comparing with the JSON ------------------------------------------------------------- */

lt_status lti_config_agree(lt_ctx *ctx, const json_t *j, const char *name, const char *key,
                           int64_t tensors)
{
    int64_t v;
    bool found;
    LT_TRY(lti_json_int(ctx, j, key, name, INT32_MIN, INT32_MAX, &v, &found));
    if (!found || v == tensors) return LT_OK;
    return lti_fail(ctx, LT_ERR_SHAPE, "%s says %s = %" PRId64 ", the tensors say %" PRId64, name,
                    key, v, tensors);
}

typedef struct claim {
    const char *key[3]; /* names that layouts give it; NULL = none */
    int64_t value;      /* what the tensors say */
} claim;

static lt_status check_claims(lt_ctx *ctx, const json_t *j, const char *name, const claim *c,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < LT_COUNT(c[i].key) && c[i].key[k]; k++)
            LT_TRY(lti_config_agree(ctx, j, name, c[i].key[k], c[i].value));
    return LT_OK;
}

/* ---- DiT --------------------------------------------------------------------------------- */

/* Relatives of the family, by what only they have. */
static const struct relative {
    const char *begin, *name;
} relatives[] = {
    {"img_emb.emb_pos", "Wan2.1 FLF2V"},
    {"img_emb.", "Wan2.1 I2V"},
    {"vace_", "Wan2.1 VACE"},
    {"face_adapter.", "Wan2.2 Animate"},
    {"casual_audio_encoder.", "Wan2.2 S2V"},
    {"audio_", "an audio-driven Wan"},
    {"control_adapter.", "Wan with camera control"},
    {"ref_conv.", "Wan with reference control"},
};

static lt_status check_family(lt_ctx *ctx, const lti_tensors *t, int64_t in, int64_t out)
{
    for (size_t i = 0; i < LT_COUNT(relatives); i++)
        if (has_beginning(t, relatives[i].begin))
            return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: %s is not supported yet",
                            lti_tensors_path(t), relatives[i].name);
    if (in == 36 && out == 16)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: Wan2.2 I2V-A14B is not supported yet",
                        lti_tensors_path(t));
    if (in != out)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: a DiT with %" PRId64 " input and %" PRId64
                        " output channels is not supported",
                        lti_tensors_path(t), in, out);
    return LT_OK;
}

static lt_status dit_from_tensors(lti_dit_config *c, lt_ctx *ctx, const lti_tensors *t)
{
    const lti_entry *patch, *text, *time, *ffn, *head;
    LT_TRY(need(ctx, t, &patch, 5, "patch_embedding.weight"));
    LT_TRY(need(ctx, t, &text, 2, "text_embedding.0.weight"));
    LT_TRY(need(ctx, t, &time, 2, "time_embedding.0.weight"));
    LT_TRY(need(ctx, t, &ffn, 2, "blocks.0.ffn.0.weight"));
    LT_TRY(need(ctx, t, &head, 2, "head.head.weight"));
    const int64_t p = patch->dim[3];
    if (patch->dim[2] != 1 || patch->dim[4] != p || p > 4 || head->dim[0] % (p * p)) {
        char shape[200];
        lti_shape_text(shape, sizeof shape, patch->ndim, patch->dim);
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: tensor \"%s\" has the shape %s: patches must be 1 x p x p, p <= 4",
                        lti_tensors_path(t), patch->stored, shape);
    }
    LT_TRY(check_family(ctx, t, patch->dim[1], head->dim[0] / (p * p)));
    const int32_t layers = count_layers(t, "blocks.", ".self_attn.q.weight");
    LT_TRY(in_range(ctx, t, "width", patch->dim[0], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "ffn width", ffn->dim[0], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "text width", text->dim[1], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "frequency count", time->dim[1], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "channel count", patch->dim[1], 1024));
    LT_TRY(in_range(ctx, t, "layer count", layers, MAX_LAYERS));
    *c = (lti_dit_config){.dim = (int32_t)patch->dim[0],
                          .ffn_dim = (int32_t)ffn->dim[0],
                          .layers = layers,
                          .in_channels = (int32_t)patch->dim[1],
                          .out_channels = (int32_t)(head->dim[0] / (p * p)),
                          .text_dim = (int32_t)text->dim[1],
                          .text_len = 512,
                          .freq_dim = (int32_t)time->dim[1],
                          .patch = (int32_t)p,
                          .max_pos = 1024,
                          .eps = 1e-6f,
                          .frame_timesteps = patch->dim[1] == 48};
    return LT_OK;
}

/* Heads are not in any shape: from the configuration, or 128 wide as every published model has them. */
static lt_status dit_heads(lti_dit_config *c, lt_ctx *ctx, const json_t *j, const char *name,
                           const lti_tensors *t)
{
    int64_t heads = 0, size = 0;
    LT_TRY(lti_json_int(ctx, j, "num_heads", name, 1, MAX_HEADS, &heads, NULL));
    LT_TRY(lti_json_int(ctx, j, "num_attention_heads", name, 1, MAX_HEADS, &heads, NULL));
    LT_TRY(lti_json_int(ctx, j, "attention_head_dim", name, 1, MAX_WIDTH, &size, NULL));
    if (heads && size && heads * size != c->dim)
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "%s says %" PRId64 " heads of %" PRId64 ", the tensors are %d wide", name,
                        heads, size, c->dim);
    if (!size) size = heads ? c->dim / heads : 128;
    if (!size || size % 2 || c->dim % size || (heads && heads * size != c->dim))
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "%s: the DiT is %d wide, which is not a number of heads of %" PRId64
                        "; give num_heads in config.json",
                        j ? name : lti_tensors_path(t), c->dim, size);
    c->heads = c->dim / (int32_t)size;
    c->head_dim = (int32_t)size;
    return LT_OK;
}

static lt_status dit_switches(lti_dit_config *c, lt_ctx *ctx, const json_t *j, const char *name)
{
    const json_t *qk = json_object_get(j, "qk_norm");
    if (json_is_false(qk) ||
        (json_is_string(qk) && strcmp(json_string_value(qk), "rms_norm_across_heads")))
        return lti_fail(ctx, LT_ERR_UNSUPPORTED,
                        "%s: only qk_norm over all heads (rms_norm_across_heads) is supported",
                        name);
    bool cross = true;
    LT_TRY(lti_json_bool(ctx, j, "cross_attn_norm", name, &cross, NULL));
    if (!cross)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: cross_attn_norm = false is not supported",
                        name);
    const char *type = NULL, *class = NULL;
    LT_TRY(lti_json_string(ctx, j, "_class_name", name, &class, NULL));
    c->causal = class && !strcmp(class, "CausalWanModel");
    if (!json_is_null(json_object_get(j, "model_type")))
        LT_TRY(lti_json_string(ctx, j, "model_type", name, &type, NULL));
    if (type && !strcmp(type, "ti2v")) c->frame_timesteps = true;
    if (type && strcmp(type, "ti2v") && strcmp(type, "t2v"))
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s: model_type \"%.40s\" is not supported yet",
                        name, type);
    return LT_OK;
}

static lt_status dit_from_json(lti_dit_config *c, lt_ctx *ctx, const json_t *j, const char *name)
{
    const claim claims[] = {
        {{"dim"}, c->dim},
        {{"ffn_dim"}, c->ffn_dim},
        {{"num_layers"}, c->layers},
        {{"in_dim", "in_channels"}, c->in_channels},
        {{"out_dim", "out_channels"}, c->out_channels},
        {{"text_dim"}, c->text_dim},
        {{"freq_dim"}, c->freq_dim},
    };
    LT_TRY(check_claims(ctx, j, name, claims, LT_COUNT(claims)));
    const json_t *patch;
    LT_TRY(lti_json_array(ctx, j, "patch_size", name, 3, 3, &patch));
    const int32_t want[3] = {1, c->patch, c->patch};
    for (size_t i = 0; patch && i < 3; i++)
        if (json_integer_value(json_array_get(patch, i)) != want[i])
            return lti_fail(ctx, LT_ERR_SHAPE, "%s says patch_size[%zu] = %lld, the tensors say %d",
                            name, i, json_integer_value(json_array_get(patch, i)), want[i]);
    int64_t len = c->text_len, pos = c->max_pos;
    double eps = (double)c->eps;
    LT_TRY(lti_json_int(ctx, j, "text_len", name, 1, 8192, &len, NULL));
    LT_TRY(lti_json_int(ctx, j, "rope_max_seq_len", name, 1, 1 << 20, &pos, NULL));
    LT_TRY(lti_json_number(ctx, j, "eps", name, 1e-12, 1e-2, &eps, NULL));
    c->text_len = (int32_t)len;
    c->max_pos = (int32_t)pos;
    c->eps = (float)eps;
    return dit_switches(c, ctx, j, name);
}

/* The checkpoints of Self-Forcing and its kin call the network "generator"; the configuration beside them is that of the model they
 * were distilled from. */
static bool is_generator(const lti_tensors *t)
{
    const lti_entry *e = lti_tensors_find(t, "patch_embedding.weight");
    return e && !strncmp(e->stored, "generator", strlen("generator"));
}

lt_status lti_dit_config_read(lti_dit_config *out, lt_ctx *ctx, const lti_tensors *t,
                              const char *json, const char *json_name)
{
    LT_TRY(dit_from_tensors(out, ctx, t));
    json_t *j;
    LT_TRY(lti_json_config(&j, ctx, json, json_name));
    lt_status s = j ? dit_from_json(out, ctx, j, json_name) : LT_OK;
    if (s >= 0) s = dit_heads(out, ctx, j, json_name, t);
    out->causal |= is_generator(t);
    json_decref(j);
    return s;
}

/* ---- text encoder ------------------------------------------------------------------------ */

lt_status lti_text_config_read(lti_text_config *out, lt_ctx *ctx, const lti_tensors *t,
                               const char *json, const char *json_name)
{
    const lti_entry *emb, *q, *ffn, *pos;
    LT_TRY(need(ctx, t, &emb, 2, "token_embedding.weight"));
    LT_TRY(need(ctx, t, &q, 2, "blocks.0.attn.q.weight"));
    LT_TRY(need(ctx, t, &ffn, 2, "blocks.0.ffn.gate.0.weight"));
    LT_TRY(need(ctx, t, &pos, 2, "blocks.0.pos_embedding.embedding.weight"));
    const int32_t layers = count_layers(t, "blocks.", ".attn.q.weight");
    LT_TRY(in_range(ctx, t, "width", emb->dim[1], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "attention width", q->dim[0], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "ffn width", ffn->dim[0], MAX_WIDTH));
    LT_TRY(in_range(ctx, t, "head count", pos->dim[1], MAX_HEADS));
    LT_TRY(in_range(ctx, t, "bucket count", pos->dim[0], 1024));
    LT_TRY(in_range(ctx, t, "layer count", layers, MAX_LAYERS));
    if (pos->dim[0] < 4) /* a half a side, of which a half is for single distances */
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "%s: text encoder: %" PRId64 " buckets of positions, at least 4 are needed",
                        lti_tensors_path(t), pos->dim[0]);
    if (q->dim[0] % pos->dim[1])
        return lti_fail(ctx, LT_ERR_SHAPE,
                        "%s: text encoder: attention of %" PRId64 " is no multiple of %" PRId64
                        " heads",
                        lti_tensors_path(t), q->dim[0], pos->dim[1]);
    *out = (lti_text_config){.vocab = (int32_t)emb->dim[0],
                             .dim = (int32_t)emb->dim[1],
                             .heads = (int32_t)pos->dim[1],
                             .head_dim = (int32_t)(q->dim[0] / pos->dim[1]),
                             .ffn_dim = (int32_t)ffn->dim[0],
                             .layers = layers,
                             .buckets = (int32_t)pos->dim[0],
                             .max_distance = 128,
                             .max_tokens = 512,
                             .eps = 1e-6f};
    const claim claims[] = {
        {{"vocab_size", "vocab"}, out->vocab},
        {{"d_model", "dim"}, out->dim},
        {{"d_kv"}, out->head_dim},
        {{"dim_attn"}, q->dim[0]},
        {{"d_ff", "dim_ffn"}, out->ffn_dim},
        {{"num_layers"}, out->layers},
        {{"num_heads"}, out->heads},
        {{"relative_attention_num_buckets", "num_buckets"}, out->buckets},
    };
    json_t *j;
    LT_TRY(lti_json_config(&j, ctx, json, json_name));
    lt_status s = check_claims(ctx, j, json_name, claims, LT_COUNT(claims));
    int64_t far = out->max_distance;
    double eps = (double)out->eps;
    if (s >= 0)
        s = lti_json_int(ctx, j, "relative_attention_max_distance", json_name, out->buckets / 2,
                         1 << 20, &far, NULL);
    if (s >= 0)
        s = lti_json_number(ctx, j, "layer_norm_epsilon", json_name, 1e-12, 1e-2, &eps, NULL);
    out->max_distance = (int32_t)far;
    out->eps = (float)eps;
    json_decref(j);
    return s;
}

/* ---- what the DiT should have ------------------------------------------------------------ */

typedef struct lister {
    lti_tensor_fn *fn;
    void *user;
    char at[64]; /* "blocks.3." */
} lister;

static void one(const lister *l, const char *name, int ndim, const int64_t *dim)
{
    char full[160];
    snprintf(full, sizeof full, "%s%s", l->at, name);
    l->fn(l->user, full, ndim, dim);
}

static void vector(const lister *l, const char *name, int64_t n)
{
    one(l, name, 1, (const int64_t[]){n});
}

static void linear(const lister *l, const char *name, int64_t out, int64_t in)
{
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    one(l, full, 2, (const int64_t[]){out, in});
    snprintf(full, sizeof full, "%s.bias", name);
    vector(l, full, out);
}

static void list_block(const lister *l, const lti_dit_config *c)
{
    static const char *const matrices[] = {
        "self_attn.q",  "self_attn.k",  "self_attn.v",  "self_attn.o",
        "cross_attn.q", "cross_attn.k", "cross_attn.v", "cross_attn.o",
    };
    static const char *const vectors[] = {
        "self_attn.norm_q.weight",
        "self_attn.norm_k.weight",
        "cross_attn.norm_q.weight",
        "cross_attn.norm_k.weight",
        "norm3.weight",
        "norm3.bias",
    };
    one(l, "modulation", 3, (const int64_t[]){1, 6, c->dim});
    for (size_t i = 0; i < LT_COUNT(matrices); i++)
        linear(l, matrices[i], c->dim, c->dim);
    for (size_t i = 0; i < LT_COUNT(vectors); i++)
        vector(l, vectors[i], c->dim);
    linear(l, "ffn.0", c->ffn_dim, c->dim);
    linear(l, "ffn.2", c->dim, c->ffn_dim);
}

void lti_dit_list_tensors(const lti_dit_config *c, lti_tensor_fn *fn, void *user)
{
    lister l = {.fn = fn, .user = user};
    const int64_t pp = (int64_t)c->patch * c->patch;
    one(&l, "patch_embedding.weight", 5,
        (const int64_t[]){c->dim, c->in_channels, 1, c->patch, c->patch});
    vector(&l, "patch_embedding.bias", c->dim);
    linear(&l, "text_embedding.0", c->dim, c->text_dim);
    linear(&l, "text_embedding.2", c->dim, c->dim);
    linear(&l, "time_embedding.0", c->dim, c->freq_dim);
    linear(&l, "time_embedding.2", c->dim, c->dim);
    linear(&l, "time_projection.1", 6 * (int64_t)c->dim, c->dim);
    for (int32_t i = 0; i < c->layers; i++) {
        snprintf(l.at, sizeof l.at, "blocks.%d.", i);
        list_block(&l, c);
    }
    l.at[0] = 0;
    one(&l, "head.modulation", 3, (const int64_t[]){1, 2, c->dim});
    linear(&l, "head.head", pp * c->out_channels, c->dim);
}
