/* names.c: the tables behind names.h. A rule is a beginning of a name, `#` standing for a number; what follows it is kept. */
#include "video/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rule {
    const char *from, *to; /* to NULL: ignored */
} rule;

/* The cross-attention's norm is norm3 in the original and norm2 in Diffusers, whose other two norms have no tensors: a file of
 * original names must never pass through this table. */
static const rule dit_rules[] = {
    {"condition_embedder.text_embedder.linear_1.", "text_embedding.0."},
    {"condition_embedder.text_embedder.linear_2.", "text_embedding.2."},
    {"condition_embedder.time_embedder.linear_1.", "time_embedding.0."},
    {"condition_embedder.time_embedder.linear_2.", "time_embedding.2."},
    {"condition_embedder.time_proj.", "time_projection.1."},
    {"condition_embedder.image_embedder.norm1.", "img_emb.proj.0."},
    {"condition_embedder.image_embedder.ff.net.0.proj.", "img_emb.proj.1."},
    {"condition_embedder.image_embedder.ff.net.2.", "img_emb.proj.3."},
    {"condition_embedder.image_embedder.norm2.", "img_emb.proj.4."},
    {"condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"},
    {"blocks.#.scale_shift_table", "blocks.#.modulation"},
    {"blocks.#.attn1.to_q.", "blocks.#.self_attn.q."},
    {"blocks.#.attn1.to_k.", "blocks.#.self_attn.k."},
    {"blocks.#.attn1.to_v.", "blocks.#.self_attn.v."},
    {"blocks.#.attn1.to_out.0.", "blocks.#.self_attn.o."},
    {"blocks.#.attn1.norm_q.", "blocks.#.self_attn.norm_q."},
    {"blocks.#.attn1.norm_k.", "blocks.#.self_attn.norm_k."},
    {"blocks.#.attn2.to_q.", "blocks.#.cross_attn.q."},
    {"blocks.#.attn2.to_k.", "blocks.#.cross_attn.k."},
    {"blocks.#.attn2.to_v.", "blocks.#.cross_attn.v."},
    {"blocks.#.attn2.to_out.0.", "blocks.#.cross_attn.o."},
    {"blocks.#.attn2.norm_q.", "blocks.#.cross_attn.norm_q."},
    {"blocks.#.attn2.norm_k.", "blocks.#.cross_attn.norm_k."},
    {"blocks.#.attn2.add_k_proj.", "blocks.#.cross_attn.k_img."},
    {"blocks.#.attn2.add_v_proj.", "blocks.#.cross_attn.v_img."},
    {"blocks.#.attn2.norm_added_k.", "blocks.#.cross_attn.norm_k_img."},
    {"blocks.#.attn2.norm_added_q.", NULL},
    {"blocks.#.norm2.", "blocks.#.norm3."},
    {"blocks.#.ffn.net.0.proj.", "blocks.#.ffn.0."},
    {"blocks.#.ffn.net.2.", "blocks.#.ffn.2."},
    {"proj_out.", "head.head."},
    {"scale_shift_table", "head.modulation"},
};

static const rule text_rules[] = {
    {"shared.", "token_embedding."},
    {"encoder.embed_tokens.", "token_embedding."}, /* the same matrix under its second name */
    {"encoder.block.#.layer.0.layer_norm.", "blocks.#.norm1."},
    {"encoder.block.#.layer.0.SelfAttention.q.", "blocks.#.attn.q."},
    {"encoder.block.#.layer.0.SelfAttention.k.", "blocks.#.attn.k."},
    {"encoder.block.#.layer.0.SelfAttention.v.", "blocks.#.attn.v."},
    {"encoder.block.#.layer.0.SelfAttention.o.", "blocks.#.attn.o."},
    {"encoder.block.#.layer.0.SelfAttention.relative_attention_bias.",
     "blocks.#.pos_embedding.embedding."},
    {"encoder.block.#.layer.1.layer_norm.", "blocks.#.norm2."},
    {"encoder.block.#.layer.1.DenseReluDense.wi_0.", "blocks.#.ffn.gate.0."},
    {"encoder.block.#.layer.1.DenseReluDense.wi_1.", "blocks.#.ffn.fc1."},
    {"encoder.block.#.layer.1.DenseReluDense.wo.", "blocks.#.ffn.fc2."},
    {"encoder.final_layer_norm.", "norm."},
    {"decoder.", NULL}, /* whole T5 files: only the encoder is used */
    {"lm_head.", NULL},
};

/* Markers and passengers that repacks carry. */
static const char *const passengers[] = {"scaled_fp8", "spiece_model"};

static const rule vae_rules[] = {
    {"quant_conv.", "conv1."},
    {"post_quant_conv.", "conv2."},
    {"encoder.conv_in.", "encoder.conv1."},
    {"decoder.conv_in.", "decoder.conv1."},
    {"encoder.mid_block.resnets.0.", "encoder.middle.0."},
    {"encoder.mid_block.attentions.0.", "encoder.middle.1."},
    {"encoder.mid_block.resnets.1.", "encoder.middle.2."},
    {"decoder.mid_block.resnets.0.", "decoder.middle.0."},
    {"decoder.mid_block.attentions.0.", "decoder.middle.1."},
    {"decoder.mid_block.resnets.1.", "decoder.middle.2."},
    {"encoder.norm_out.", "encoder.head.0."},
    {"decoder.norm_out.", "decoder.head.0."},
    {"encoder.conv_out.", "encoder.head.2."},
    {"decoder.conv_out.", "decoder.head.2."},
};

/* Within a residual block of the VAE, after its own name. */
static const rule residual_rules[] = {
    {"norm1.", "residual.0."}, {"conv1.", "residual.2."},       {"norm2.", "residual.3."},
    {"conv2.", "residual.6."}, {"conv_shortcut.", "shortcut."},
};

/* Tensors that only one part has, the likeliest first. */
static const char *const dit_anchors[] = {"patch_embedding.weight"};
static const char *const text_anchors[] = {"shared.weight", "token_embedding.weight",
                                           "encoder.embed_tokens.weight"};
static const char *const vae_anchors[] = {"decoder.conv1.weight", "decoder.conv_in.weight",
                                          "encoder.conv1.weight", "encoder.conv_in.weight"};

static const char *const *anchors(lti_part part, size_t *n)
{
    switch (part) {
    case LTI_PART_DIT:
        *n = LT_COUNT(dit_anchors);
        return dit_anchors;
    case LTI_PART_TEXT:
        *n = LT_COUNT(text_anchors);
        return text_anchors;
    case LTI_PART_VAE:
        *n = LT_COUNT(vae_anchors);
        return vae_anchors;
    case LTI_PART_RAW:
    case LTI_PART_COUNT:
        break;
    }
    *n = 0;
    return NULL;
}

const char *lti_part_name(lti_part p)
{
    static const char *const names[] = {"file", "DiT", "text encoder", "VAE"};
    return p < LTI_PART_COUNT ? names[p] : "?";
}

/* Does `name` begin with `from`? Numbers that `#` stood for go to num. The rest of the name, or NULL. */
static const char *match(const char *from, const char *name, long num[2])
{
    int n = 0;
    while (*from) {
        if (*from == '#') {
            if (!isdigit((unsigned char)*name)) return NULL;
            char *end;
            const long v = strtol(name, &end, 10);
            if (n == 2 || end - name > 6) return NULL;
            num[n++] = v;
            name = end;
            from++;
        } else if (*from++ != *name++) {
            return NULL;
        }
    }
    return name;
}

static void rewrite(char *out, size_t size, const char *to, const long num[2], const char *rest)
{
    size_t at = 0;
    int n = 0;
    for (; *to && at + 1 < size; to++) {
        if (*to == '#')
            at += (size_t)snprintf(out + at, size - at, "%ld", num[n++]);
        else
            out[at++] = *to;
    }
    if (at < size) snprintf(out + at, size - at, "%s", rest);
}

static lti_name_kind by_table(const rule *rules, size_t count, const char *name, char *out,
                              size_t size)
{
    for (size_t i = 0; i < count; i++) {
        long num[2] = {0, 0};
        const char *rest = match(rules[i].from, name, num);
        if (!rest) continue;
        if (!rules[i].to) return LTI_NAME_IGNORED;
        rewrite(out, size, rules[i].to, num, rest);
        return LTI_NAME_USED;
    }
    return LTI_NAME_OTHER;
}

/* What follows the name of a VAE block: residual blocks have their own sub-names. */
static const char *residual_rest(const char *rest, char *buf, size_t size)
{
    return by_table(residual_rules, LT_COUNT(residual_rules), rest, buf, size) == LTI_NAME_USED
               ? buf
               : rest;
}

/* Levels of the VAE: one flat list in the original of Wan2.1, nested in Wan2.2, by level in Diffusers. */
static bool vae_level(const lti_naming *n, const char *name, char *out, size_t size)
{
    long k[2] = {0, 0};
    const char *rest;
    char buf[256];
    if ((rest = match("decoder.up_blocks.#.resnets.#.", name, k))) {
        rest = residual_rest(rest, buf, sizeof buf);
        if (n->nested)
            snprintf(out, size, "decoder.upsamples.%ld.upsamples.%ld.%s", k[0], k[1], rest);
        else
            snprintf(out, size, "decoder.upsamples.%ld.%s", k[0] * n->level_size + k[1], rest);
    } else if ((rest = match("decoder.up_blocks.#.upsamplers.0.", name, k))) {
        snprintf(out, size, "decoder.upsamples.%ld.%s", (k[0] + 1) * n->level_size - 1, rest);
    } else if ((rest = match("decoder.up_blocks.#.upsampler.", name, k))) {
        snprintf(out, size, "decoder.upsamples.%ld.upsamples.%d.%s", k[0], n->level_size - 1, rest);
    } else if ((rest = match("encoder.down_blocks.#.resnets.#.", name, k))) {
        rest = residual_rest(rest, buf, sizeof buf);
        snprintf(out, size, "encoder.downsamples.%ld.downsamples.%ld.%s", k[0], k[1], rest);
    } else if ((rest = match("encoder.down_blocks.#.downsampler.", name, k))) {
        /* the encoder's levels have one block less than the decoder's */
        snprintf(out, size, "encoder.downsamples.%ld.downsamples.%d.%s", k[0], n->level_size - 2,
                 rest);
    } else if ((rest = match("encoder.down_blocks.#.", name, k))) {
        snprintf(out, size, "encoder.downsamples.%ld.%s", k[0],
                 residual_rest(rest, buf, sizeof buf));
    } else {
        return false;
    }
    return true;
}

static lti_name_kind vae_name(const lti_naming *n, const char *name, char *out, size_t size)
{
    if (vae_level(n, name, out, size)) return LTI_NAME_USED;
    char flat[512];
    if (by_table(vae_rules, LT_COUNT(vae_rules), name, flat, sizeof flat) != LTI_NAME_USED)
        return LTI_NAME_OTHER;
    /* the middle's two residual blocks */
    long k[2];
    const char *rest = match("encoder.middle.#.", flat, k);
    if (!rest) rest = match("decoder.middle.#.", flat, k);
    char buf[256];
    if (rest && k[0] != 1)
        snprintf(out, size, "%.*s%s", (int)(rest - flat), flat,
                 residual_rest(rest, buf, sizeof buf));
    else
        snprintf(out, size, "%s", flat);
    return LTI_NAME_USED;
}

/* Wrappers of parallel training and compilation, which stand in the middle of names too. */
static void unwrap(char *name)
{
    static const char *const words[] = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
                                        "_orig_mod."};
    for (size_t i = 0; i < LT_COUNT(words); i++)
        for (char *p = name; (p = strstr(p, words[i]));)
            memmove(p, p + strlen(words[i]), strlen(p + strlen(words[i])) + 1);
}

lti_name_kind lti_naming_apply(const lti_naming *n, const char *stored, char *out, size_t size)
{
    const size_t plen = strlen(n->prefix);
    snprintf(out, size, "%s", stored);
    if (strncmp(stored, n->prefix, plen)) return LTI_NAME_OTHER;
    char name[512];
    snprintf(name, sizeof name, "%s", stored + plen);
    if (n->part != LTI_PART_RAW) unwrap(name);
    snprintf(out, size, "%s", name);
    if (n->part == LTI_PART_RAW) return LTI_NAME_USED;
    for (size_t i = 0; i < LT_COUNT(passengers); i++)
        if (!strcmp(name, passengers[i])) return LTI_NAME_IGNORED;
    if (!n->foreign) return LTI_NAME_USED;

    lti_name_kind kind = LTI_NAME_OTHER;
    if (n->part == LTI_PART_DIT)
        kind = by_table(dit_rules, LT_COUNT(dit_rules), name, out, size);
    else if (n->part == LTI_PART_TEXT)
        kind = by_table(text_rules, LT_COUNT(text_rules), name, out, size);
    else if (n->part == LTI_PART_VAE)
        kind = vae_name(n, name, out, size);
    /* a name of both conventions (patch_embedding), or one that nobody knows: the check against the configuration tells */
    return kind == LTI_NAME_OTHER ? LTI_NAME_USED : kind;
}

/* ---- and back, for messages ---- */

/* Modules of the VAE's levels, the sampler at their end before the blocks; `#` of a flat list is a place in it. */
static const rule level_rules[] = {
    {"decoder.up_blocks.#.upsampler.", "decoder.upsamples.#.upsamples.#."},
    {"decoder.up_blocks.#.upsamplers.0.", "decoder.upsamples.#."},
    {"decoder.up_blocks.#.resnets.#.", "decoder.upsamples.#.upsamples.#."},
    {"decoder.up_blocks.#.resnets.#.", "decoder.upsamples.#."},
    {"encoder.down_blocks.#.downsampler.", "encoder.downsamples.#.downsamples.#."},
    {"encoder.down_blocks.#.resnets.#.", "encoder.downsamples.#.downsamples.#."},
    {"encoder.down_blocks.#.", "encoder.downsamples.#."},
};

/* `name` behind the prefix: right if it is translated to `canonical`. */
static bool is_stored(const lti_naming *n, const char *name, const char *canonical, char *out,
                      size_t size)
{
    char back[512];
    snprintf(out, size, "%s%s", n->prefix, name);
    return lti_naming_apply(n, out, back, sizeof back) == LTI_NAME_USED && !strcmp(back, canonical);
}

/* Every rule that could have led to `canonical`, with what follows as it is or as a residual block would have it. */
static bool try_rules(const lti_naming *n, const rule *rules, size_t count, const char *canonical,
                      char *out, size_t size)
{
    char name[512], inner[256];
    for (size_t i = 0; i < count; i++) {
        long num[2] = {0, 0};
        const char *rest = rules[i].to ? match(rules[i].to, canonical, num) : NULL;
        if (!rest) continue;
        if (!strcmp(rules[i].to, "decoder.upsamples.#.")) {
            if (n->level_size < 1) continue;
            num[1] = num[0] % n->level_size;
            num[0] /= n->level_size;
        }
        for (size_t k = 0; k < LT_COUNT(residual_rules) && n->part == LTI_PART_VAE; k++) {
            const long none[2] = {0, 0};
            long unused[2];
            const char *leaf = match(residual_rules[k].to, rest, unused);
            if (!leaf) continue;
            rewrite(inner, sizeof inner, residual_rules[k].from, none, leaf);
            rewrite(name, sizeof name, rules[i].from, num, inner);
            if (is_stored(n, name, canonical, out, size)) return true;
        }
        rewrite(name, sizeof name, rules[i].from, num, rest);
        if (is_stored(n, name, canonical, out, size)) return true;
    }
    return false;
}

void lti_naming_stored(const lti_naming *n, const char *canonical, char *out, size_t size)
{
    bool found = !n->foreign;
    if (!found && n->part == LTI_PART_DIT)
        found = try_rules(n, dit_rules, LT_COUNT(dit_rules), canonical, out, size);
    else if (!found && n->part == LTI_PART_TEXT)
        found = try_rules(n, text_rules, LT_COUNT(text_rules), canonical, out, size);
    else if (!found && n->part == LTI_PART_VAE)
        found = try_rules(n, level_rules, LT_COUNT(level_rules), canonical, out, size) ||
                try_rules(n, vae_rules, LT_COUNT(vae_rules), canonical, out, size);
    if (!found || !n->foreign) snprintf(out, size, "%s%s", n->prefix, canonical);
}

/* Training checkpoints hold a model several times: its running average is what the demonstrations of Self-Forcing run, and a critic is
 * nobody's generator. */
static int wrapper_rank(const char *name, size_t anchor_len)
{
    static const char *const order[] = {"generator_ema.", "ema.", "generator.", "model.",
                                        "state_dict."};
    if (strlen(name) == anchor_len) return -1;
    for (size_t i = 0; i < LT_COUNT(order); i++)
        if (!strncmp(name, order[i], strlen(order[i]))) return (int)i;
    return LT_COUNT(order);
}

/* Of the names that are `anchor` behind some prefix that ends in a dot: a bare one, the best wrapped one, the shortest. -1: none. */
static int64_t find_anchor(const char *anchor, const char *const *names, int64_t count)
{
    const size_t alen = strlen(anchor);
    int64_t best = -1;
    for (int64_t i = 0; i < count; i++) {
        const size_t len = strlen(names[i]);
        if (len < alen || strcmp(names[i] + len - alen, anchor)) continue;
        if (len > alen && names[i][len - alen - 1] != '.') continue;
        const int by_rank =
            best < 0 ? -1 : wrapper_rank(names[i], alen) - wrapper_rank(names[best], alen);
        if (by_rank < 0 || (by_rank == 0 && len < strlen(names[best]))) best = i;
    }
    return best;
}

static int64_t find_part(lti_part part, const char *const *names, int64_t count, size_t *prefix)
{
    size_t n;
    const char *const *a = anchors(part, &n);
    for (size_t i = 0; i < n; i++) {
        const int64_t at = find_anchor(a[i], names, count);
        if (at < 0) continue;
        *prefix = strlen(names[at]) - strlen(a[i]);
        return at;
    }
    return -1;
}

bool lti_naming_has_part(lti_part part, const char *const *names, int64_t count)
{
    size_t prefix;
    return find_part(part, names, count, &prefix) >= 0;
}

static void look_at(lti_naming *n, const char *name)
{
    long k[2];
    if (n->part == LTI_PART_DIT)
        n->foreign |= !strncmp(name, "condition_embedder.", 19) || !strcmp(name, "proj_out.weight");
    if (n->part == LTI_PART_TEXT)
        n->foreign |= !strncmp(name, "encoder.", 8) || !strcmp(name, "shared.weight");
    if (n->part == LTI_PART_VAE) {
        n->foreign |= strstr(name, "coder.conv_in.") || strstr(name, "quant_conv.");
        n->nested |= match("decoder.up_blocks.#.upsampler.", name, k) ||
                     match("encoder.down_blocks.#.downsampler.", name, k);
        if (match("decoder.up_blocks.#.resnets.#.", name, k) && k[1] + 2 > n->level_size)
            n->level_size = (int32_t)k[1] + 2;
        /* encoder alone, nested: as many blocks as it has, and one more in the decoder */
        if (match("encoder.down_blocks.#.resnets.#.", name, k) && k[1] + 3 > n->level_size)
            n->level_size = (int32_t)k[1] + 3;
    }
}

void lti_naming_detect(lti_naming *out, lti_part part, const char *const *names, int64_t count,
                       const char *prefix)
{
    *out = (lti_naming){.part = part};
    if (prefix) {
        snprintf(out->prefix, sizeof out->prefix, "%s", prefix);
    } else {
        size_t len = 0;
        const int64_t at = find_part(part, names, count, &len);
        if (at >= 0 && len < sizeof out->prefix)
            snprintf(out->prefix, sizeof out->prefix, "%.*s", (int)len, names[at]);
    }
    const size_t plen = strlen(out->prefix);
    for (int64_t i = 0; i < count; i++)
        if (!strncmp(names[i], out->prefix, plen)) look_at(out, names[i] + plen);
}
