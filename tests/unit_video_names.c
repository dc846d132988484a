/* unit_video_names.c: stored names to canonical ones, in the namings that exist (spec 2.2, 3.6, 4.6). */
#include "video/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct pair {
    const char *stored, *canonical; /* canonical NULL: ignored */
} pair;

static void check(lti_part part, const pair *pairs, size_t n, const char *prefix)
{
    char stored[128][192];
    const char *names[128];
    assert_true(n <= 128);
    for (size_t i = 0; i < n; i++) {
        snprintf(stored[i], sizeof stored[i], "%s%s", prefix, pairs[i].stored);
        names[i] = stored[i];
    }
    lti_naming naming;
    lti_naming_detect(&naming, part, names, (int64_t)n, NULL);
    for (size_t i = 0; i < n; i++) {
        char out[256];
        const lti_name_kind kind = lti_naming_apply(&naming, names[i], out, sizeof out);
        if (!pairs[i].canonical) {
            assert_int_equal(kind, LTI_NAME_IGNORED);
            continue;
        }
        assert_int_equal(kind, LTI_NAME_USED);
        assert_string_equal(out, pairs[i].canonical);
        /* and back, for messages; of two names for one the first */
        bool second = false;
        for (size_t k = 0; k < i; k++)
            second |= pairs[k].canonical && !strcmp(pairs[k].canonical, pairs[i].canonical);
        lti_naming_stored(&naming, pairs[i].canonical, out, sizeof out);
        if (!second && !strstr(names[i], "wrapped_module") && !strstr(names[i], "_orig_mod"))
            assert_string_equal(out, names[i]);
    }
}

static const pair dit[] = {
    {"patch_embedding.weight", "patch_embedding.weight"},
    {"condition_embedder.text_embedder.linear_1.weight", "text_embedding.0.weight"},
    {"condition_embedder.text_embedder.linear_2.bias", "text_embedding.2.bias"},
    {"condition_embedder.time_embedder.linear_1.weight", "time_embedding.0.weight"},
    {"condition_embedder.time_embedder.linear_2.weight", "time_embedding.2.weight"},
    {"condition_embedder.time_proj.weight", "time_projection.1.weight"},
    {"condition_embedder.image_embedder.norm1.weight", "img_emb.proj.0.weight"},
    {"condition_embedder.image_embedder.ff.net.0.proj.weight", "img_emb.proj.1.weight"},
    {"condition_embedder.image_embedder.ff.net.2.bias", "img_emb.proj.3.bias"},
    {"condition_embedder.image_embedder.norm2.bias", "img_emb.proj.4.bias"},
    {"condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"},
    {"blocks.0.scale_shift_table", "blocks.0.modulation"},
    {"blocks.39.attn1.to_q.weight", "blocks.39.self_attn.q.weight"},
    {"blocks.1.attn1.to_k.bias", "blocks.1.self_attn.k.bias"},
    {"blocks.1.attn1.to_v.bias", "blocks.1.self_attn.v.bias"},
    {"blocks.1.attn1.to_out.0.weight", "blocks.1.self_attn.o.weight"},
    {"blocks.1.attn1.norm_q.weight", "blocks.1.self_attn.norm_q.weight"},
    {"blocks.1.attn1.norm_k.weight", "blocks.1.self_attn.norm_k.weight"},
    {"blocks.1.attn2.to_q.weight", "blocks.1.cross_attn.q.weight"},
    {"blocks.1.attn2.to_k.weight", "blocks.1.cross_attn.k.weight"},
    {"blocks.1.attn2.to_v.weight", "blocks.1.cross_attn.v.weight"},
    {"blocks.1.attn2.to_out.0.bias", "blocks.1.cross_attn.o.bias"},
    {"blocks.1.attn2.norm_q.weight", "blocks.1.cross_attn.norm_q.weight"},
    {"blocks.1.attn2.norm_k.weight", "blocks.1.cross_attn.norm_k.weight"},
    {"blocks.1.attn2.add_k_proj.weight", "blocks.1.cross_attn.k_img.weight"},
    {"blocks.1.attn2.add_v_proj.bias", "blocks.1.cross_attn.v_img.bias"},
    {"blocks.1.attn2.norm_added_k.weight", "blocks.1.cross_attn.norm_k_img.weight"},
    {"blocks.1.attn2.norm_added_q.weight", NULL},
    {"blocks.1.norm2.weight", "blocks.1.norm3.weight"},
    {"blocks.1.norm2.bias", "blocks.1.norm3.bias"},
    {"blocks.1.ffn.net.0.proj.weight", "blocks.1.ffn.0.weight"},
    {"blocks.1.ffn.net.2.weight", "blocks.1.ffn.2.weight"},
    {"proj_out.weight", "head.head.weight"},
    {"scale_shift_table", "head.modulation"},
    {"something.else", "something.else"},
    {"blocks.1234567.attn1.to_q.weight", "blocks.1234567.attn1.to_q.weight"},
};

static void dit_diffusers(void **state)
{
    (void)state;
    check(LTI_PART_DIT, dit, LT_COUNT(dit), "");
    check(LTI_PART_DIT, dit, LT_COUNT(dit), "model.diffusion_model.");
}

/* norm2 of the original is not Diffusers' norm2: it must stay what it is, and be found unknown. */
static void dit_original(void **state)
{
    (void)state;
    static const pair pairs[] = {
        {"patch_embedding.weight", "patch_embedding.weight"},
        {"blocks.0.norm3.weight", "blocks.0.norm3.weight"},
        {"blocks.0.norm2.weight", "blocks.0.norm2.weight"},
        {"blocks.0.self_attn.q.weight", "blocks.0.self_attn.q.weight"},
        {"head.head.weight", "head.head.weight"},
        {"scaled_fp8", NULL},
    };
    check(LTI_PART_DIT, pairs, LT_COUNT(pairs), "");
    check(LTI_PART_DIT, pairs, LT_COUNT(pairs), "model.diffusion_model.");
    check(LTI_PART_DIT, pairs, LT_COUNT(pairs), "diffusion_model.");
}

/* What lies outside the prefix of an all-in-one file belongs to another part. */
static void all_in_one(void **state)
{
    (void)state;
    const char *const names[] = {"model.diffusion_model.patch_embedding.weight",
                                 "first_stage_model.decoder.conv1.weight",
                                 "text_encoders.umt5xxl.transformer.shared.weight"};
    static const struct {
        lti_part part;
        const char *name;
    } want[] = {{LTI_PART_DIT, "patch_embedding.weight"},
                {LTI_PART_VAE, "decoder.conv1.weight"},
                {LTI_PART_TEXT, "token_embedding.weight"}};
    for (int64_t p = 0; p < 3; p++) {
        lti_naming n;
        char out[128];
        assert_true(lti_naming_has_part(want[p].part, names, 3));
        lti_naming_detect(&n, want[p].part, names, 3, NULL);
        for (int64_t i = 0; i < 3; i++)
            assert_int_equal(lti_naming_apply(&n, names[i], out, sizeof out),
                             i == p ? LTI_NAME_USED : LTI_NAME_OTHER);
        lti_naming_apply(&n, names[p], out, sizeof out);
        assert_string_equal(out, want[p].name);
    }
    const char *const other[] = {"my_patch_embedding.weight", "xshared.weight"};
    assert_false(lti_naming_has_part(LTI_PART_DIT, other, 2));
    assert_false(lti_naming_has_part(LTI_PART_TEXT, other, 2));
}

static void text_huggingface(void **state)
{
    (void)state;
    static const pair pairs[] = {
        {"shared.weight", "token_embedding.weight"},
        {"encoder.embed_tokens.weight", "token_embedding.weight"},
        {"encoder.block.0.layer.0.layer_norm.weight", "blocks.0.norm1.weight"},
        {"encoder.block.23.layer.0.SelfAttention.q.weight", "blocks.23.attn.q.weight"},
        {"encoder.block.0.layer.0.SelfAttention.k.weight", "blocks.0.attn.k.weight"},
        {"encoder.block.0.layer.0.SelfAttention.v.weight", "blocks.0.attn.v.weight"},
        {"encoder.block.0.layer.0.SelfAttention.o.weight", "blocks.0.attn.o.weight"},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
         "blocks.0.pos_embedding.embedding.weight"},
        {"encoder.block.0.layer.1.layer_norm.weight", "blocks.0.norm2.weight"},
        {"encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "blocks.0.ffn.gate.0.weight"},
        {"encoder.block.0.layer.1.DenseReluDense.wi_1.weight", "blocks.0.ffn.fc1.weight"},
        {"encoder.block.0.layer.1.DenseReluDense.wo.weight", "blocks.0.ffn.fc2.weight"},
        {"encoder.final_layer_norm.weight", "norm.weight"},
        {"decoder.block.0.layer.0.layer_norm.weight", NULL},
        {"lm_head.weight", NULL},
        {"spiece_model", NULL},
    };
    check(LTI_PART_TEXT, pairs, LT_COUNT(pairs), "");
    check(LTI_PART_TEXT, pairs, LT_COUNT(pairs), "text_encoders.umt5xxl.transformer.");
}

static void vae_diffusers(void **state)
{
    (void)state;
    static const pair pairs[] = {
        {"quant_conv.weight", "conv1.weight"},
        {"post_quant_conv.bias", "conv2.bias"},
        {"encoder.conv_in.weight", "encoder.conv1.weight"},
        {"decoder.conv_in.weight", "decoder.conv1.weight"},
        {"decoder.mid_block.resnets.0.norm1.gamma", "decoder.middle.0.residual.0.gamma"},
        {"decoder.mid_block.resnets.1.conv2.bias", "decoder.middle.2.residual.6.bias"},
        {"encoder.mid_block.attentions.0.norm.gamma", "encoder.middle.1.norm.gamma"},
        {"encoder.mid_block.attentions.0.to_qkv.weight", "encoder.middle.1.to_qkv.weight"},
        {"encoder.norm_out.gamma", "encoder.head.0.gamma"},
        {"decoder.conv_out.weight", "decoder.head.2.weight"},
        {"encoder.down_blocks.0.conv1.weight", "encoder.downsamples.0.residual.2.weight"},
        {"encoder.down_blocks.2.resample.1.weight", "encoder.downsamples.2.resample.1.weight"},
        {"encoder.down_blocks.3.conv_shortcut.weight", "encoder.downsamples.3.shortcut.weight"},
        {"encoder.down_blocks.5.time_conv.bias", "encoder.downsamples.5.time_conv.bias"},
        {"decoder.up_blocks.0.resnets.0.norm2.gamma", "decoder.upsamples.0.residual.3.gamma"},
        {"decoder.up_blocks.0.resnets.2.conv1.weight", "decoder.upsamples.2.residual.2.weight"},
        {"decoder.up_blocks.0.upsamplers.0.time_conv.weight",
         "decoder.upsamples.3.time_conv.weight"},
        {"decoder.up_blocks.1.resnets.0.conv_shortcut.weight",
         "decoder.upsamples.4.shortcut.weight"},
        {"decoder.up_blocks.2.upsamplers.0.resample.1.bias",
         "decoder.upsamples.11.resample.1.bias"},
        {"decoder.up_blocks.3.resnets.2.conv2.weight", "decoder.upsamples.14.residual.6.weight"},
    };
    check(LTI_PART_VAE, pairs, LT_COUNT(pairs), "");
    check(LTI_PART_VAE, pairs, LT_COUNT(pairs), "vae.");
}

/* One residual block a level: the places in the flat list move. */
static void vae_small(void **state)
{
    (void)state;
    static const pair pairs[] = {
        {"decoder.conv_in.weight", "decoder.conv1.weight"},
        {"decoder.up_blocks.0.resnets.1.conv1.weight", "decoder.upsamples.1.residual.2.weight"},
        {"decoder.up_blocks.0.upsamplers.0.resample.1.weight",
         "decoder.upsamples.2.resample.1.weight"},
        {"decoder.up_blocks.1.resnets.0.conv1.weight", "decoder.upsamples.3.residual.2.weight"},
    };
    check(LTI_PART_VAE, pairs, LT_COUNT(pairs), "");
}

static void vae_wan22(void **state)
{
    (void)state;
    static const pair pairs[] = {
        {"encoder.conv_in.weight", "encoder.conv1.weight"},
        {"encoder.down_blocks.1.resnets.0.conv1.weight",
         "encoder.downsamples.1.downsamples.0.residual.2.weight"},
        {"encoder.down_blocks.1.downsampler.resample.1.weight",
         "encoder.downsamples.1.downsamples.2.resample.1.weight"},
        {"decoder.up_blocks.1.resnets.2.norm1.gamma",
         "decoder.upsamples.1.upsamples.2.residual.0.gamma"},
        {"decoder.up_blocks.1.upsampler.time_conv.weight",
         "decoder.upsamples.1.upsamples.3.time_conv.weight"},
    };
    check(LTI_PART_VAE, pairs, LT_COUNT(pairs), "");
}

/* Longer than any buffer: cut, never written past. */
static void long_names(void **state)
{
    (void)state;
    char name[4096] = "decoder.up_blocks.0.resnets.0.";
    memset(name + strlen(name), 'x', 4000);
    name[4030] = 0;
    const char *const names[] = {"decoder.conv_in.weight", name};
    lti_naming n;
    lti_naming_detect(&n, LTI_PART_VAE, names, 2, NULL);
    char out[64];
    assert_int_equal(lti_naming_apply(&n, name, out, sizeof out), LTI_NAME_USED);
    assert_int_equal(strlen(out), sizeof out - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dit_diffusers), cmocka_unit_test(dit_original),
        cmocka_unit_test(all_in_one),    cmocka_unit_test(text_huggingface),
        cmocka_unit_test(vae_diffusers), cmocka_unit_test(vae_small),
        cmocka_unit_test(vae_wan22),     cmocka_unit_test(long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
