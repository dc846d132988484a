/* unit_video_files.c: models in the layouts people have, and what is said when something is wrong with them. Weights are zeros (holes
 * in the file): only headers and configurations matter here.
 */
#include "tests/temp_files.h"
#include "video/config.h"
#include "video/json.h"
#include "video/model_internal.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static lt_ctx *ctx;

/* ---- writing parts ----------------------------------------------------------------------- */

typedef struct edit {
    const char *drop, *add, *reshape, *f8; /* canonical names */
    const char *lose;                      /* named nowhere, its bytes stay */
    bool foreign;                          /* Diffusers' and Hugging Face's names */
    const char *prefix;
} edit;

typedef struct maker {
    char *header;
    size_t len;
    int64_t at;
    const edit *e;
    lti_part part;
} maker;

static void replace(char *s, size_t size, const char *from, const char *to)
{
    char *p = strstr(s, from), rest[160];
    if (!p) return;
    snprintf(rest, sizeof rest, "%s", p + strlen(from));
    snprintf(p, size - (size_t)(p - s), "%s%s", to, rest);
}

static void foreign_name(lti_part part, char *s, size_t size)
{
    static const char *const dit[][2] = {
        {"text_embedding.0.", "condition_embedder.text_embedder.linear_1."},
        {"text_embedding.2.", "condition_embedder.text_embedder.linear_2."},
        {"time_embedding.0.", "condition_embedder.time_embedder.linear_1."},
        {"time_embedding.2.", "condition_embedder.time_embedder.linear_2."},
        {"time_projection.1.", "condition_embedder.time_proj."},
        {"self_attn.o.", "attn1.to_out.0."},
        {"cross_attn.o.", "attn2.to_out.0."},
        {"self_attn.norm", "attn1.norm"},
        {"cross_attn.norm", "attn2.norm"},
        {"self_attn.", "attn1.to_"},
        {"cross_attn.", "attn2.to_"},
        {".norm3.", ".norm2."},
        {"ffn.0.", "ffn.net.0.proj."},
        {"ffn.2.", "ffn.net.2."},
        {"head.modulation", "scale_shift_table"},
        {".modulation", ".scale_shift_table"},
        {"head.head.", "proj_out."},
    };
    static const char *const text[][2] = {
        {"token_embedding.", "shared."},
        {"blocks.", "encoder.block."},
        {"pos_embedding.embedding.", "layer.0.SelfAttention.relative_attention_bias."},
        {"attn.", "layer.0.SelfAttention."},
        {".norm1.", ".layer.0.layer_norm."},
        {".norm2.", ".layer.1.layer_norm."},
        {"ffn.gate.0.", "layer.1.DenseReluDense.wi_0."},
        {"ffn.fc1.", "layer.1.DenseReluDense.wi_1."},
        {"ffn.fc2.", "layer.1.DenseReluDense.wo."},
    };
    for (size_t i = 0; part == LTI_PART_DIT && i < LT_COUNT(dit); i++)
        replace(s, size, dit[i][0], dit[i][1]);
    if (part != LTI_PART_TEXT) return;
    if (!strcmp(s, "norm.weight")) snprintf(s, size, "encoder.final_layer_norm.weight");
    for (size_t i = 0; i < LT_COUNT(text); i++)
        replace(s, size, text[i][0], text[i][1]);
}

static bool is(const char *name, const char *what)
{
    return what && !strcmp(name, what);
}

static void add_tensor(void *user, const char *canonical, int ndim, const int64_t *dim)
{
    maker *m = user;
    if (is(canonical, m->e->drop)) return;
    char name[160];
    snprintf(name, sizeof name, "%s", canonical);
    if (m->e->foreign) foreign_name(m->part, name, sizeof name);
    const bool f8 = is(canonical, m->e->f8);
    int64_t n = f8 ? 1 : 2;
    char *h = m->header;
    const size_t before = m->len;
    m->len += (size_t)sprintf(h + m->len, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[",
                              m->len > 1 ? "," : "", m->e->prefix ? m->e->prefix : "", name,
                              f8 ? "F8_E4M3" : "BF16");
    for (int i = 0; i < ndim; i++) {
        const int64_t d = dim[i] + (i == 0 && is(canonical, m->e->reshape));
        n *= d;
        m->len += (size_t)sprintf(h + m->len, "%s%" PRId64, i ? "," : "", d);
    }
    m->len += (size_t)sprintf(h + m->len, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", m->at,
                              m->at + n);
    if (is(canonical, m->e->lose)) m->len = before;
    m->at += n;
}

static void write_part(const char *file, lti_part part, const lti_config *c, const edit *e)
{
    static const edit none;
    maker m = {.header = malloc(1 << 20), .part = part, .e = e ? e : &none};
    assert_non_null(m.header);
    m.len = (size_t)sprintf(m.header, "{");
    lti_config_list_tensors(c, part, add_tensor, &m);
    if (m.e->add) add_tensor(&m, m.e->add, 1, (const int64_t[]){3});
    sprintf(m.header + m.len, "}");
    temp_safetensors(file, m.header, 0);
    assert_int_equal(truncate(temp_path(file), (off_t)(8 + strlen(m.header)) + m.at), 0);
    free(m.header);
}

/* ---- a small model ----------------------------------------------------------------------- */

static lti_config small_config(void)
{
    lti_config c = {
        .dit = {.dim = 48,
                .ffn_dim = 96,
                .layers = 2,
                .in_channels = 16,
                .out_channels = 16,
                .text_dim = 32,
                .freq_dim = 256,
                .patch = 2},
        .text = {.vocab = 320,
                 .dim = 32,
                 .heads = 4,
                 .head_dim = 8,
                 .ffn_dim = 48,
                 .layers = 2,
                 .buckets = 32},
        .vae = lt_vae_config_wan21(),
    };
    c.vae.encoder_dim = 8;
    c.vae.decoder_dim = 16;
    c.vae.num_res_blocks = 1;
    return c;
}

static void copy_tokenizer(const char *name)
{
    char *data;
    size_t len;
    assert_int_equal(lti_read_file(&data, &len, ctx, LT_TEST_DATA "/data/tiny.model", 1 << 20),
                     LT_OK);
    temp_write(name, data, len);
    free(data);
}

static void write_diffusers(const lti_config *c, const edit *dit)
{
    const edit foreign = {.foreign = true};
    write_part("d/transformer/diffusion_pytorch_model.safetensors", LTI_PART_DIT, c,
               dit ? dit : &foreign);
    write_part("d/text_encoder/model.safetensors", LTI_PART_TEXT, c, &foreign);
    write_part("d/vae/diffusion_pytorch_model.safetensors", LTI_PART_VAE, c, NULL);
    temp_text("d/transformer/config.json",
              "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
              "\"attention_head_dim\":24,\"num_layers\":2,\"in_channels\":16,\"ffn_dim\":96,"
              "\"patch_size\":[1,2,2],\"qk_norm\":\"rms_norm_across_heads\",\"image_dim\":null}");
    temp_text("d/text_encoder/config.json", "{\"d_model\":32,\"num_layers\":2,\"d_kv\":8}");
    temp_text("d/vae/config.json",
              "{\"z_dim\":16,\"base_dim\":8,\"decoder_base_dim\":16,\"dim_mult\":[1,2,4,4],"
              "\"temperal_downsample\":[false,true,true],\"num_res_blocks\":1}");
    temp_text("d/scheduler/scheduler_config.json",
              "{\"_class_name\":\"UniPCMultistepScheduler\",\"prediction_type\":"
              "\"flow_prediction\",\"flow_shift\":3.0}");
    temp_text("d/model_index.json", "{\"_class_name\":\"WanPipeline\",\"boundary_ratio\":null}");
    copy_tokenizer("d/tokenizer/spiece.model");
}

/* Finds, reads and checks; the message of the first failure stays in ctx. */
static lt_status open_model(lti_config *c, const lt_model_options *opt)
{
    lti_model_files *f;
    LT_TRY(lti_model_files_find(&f, ctx, opt));
    lt_status s = lti_model_files_require(ctx, f);
    if (s >= 0) s = lti_config_read(c, ctx, f);
    if (s >= 0) s = lti_config_check(ctx, c, f);
    lti_model_files_close(&f);
    return s;
}

static void expect_fail(const char *path, lt_status want, const char *text)
{
    lti_config c;
    const lt_status s = open_model(&c, &(lt_model_options){.path = temp_path(path)});
    if (s != want || !strstr(lt_error(ctx), text))
        fail_msg("%s, \"%s\": expected %s, \"%s\"", lt_status_name(s), s < 0 ? lt_error(ctx) : "",
                 lt_status_name(want), text);
}

static void expect_good(const char *path, lti_config *c)
{
    const lt_status s = open_model(c, &(lt_model_options){.path = temp_path(path)});
    if (s != LT_OK) fail_msg("%s: %s", lt_status_name(s), lt_error(ctx));
}

static int setup_all(void **state)
{
    (void)state;
    return lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR);
}

static int teardown_all(void **state)
{
    (void)state;
    lt_ctx_destroy(&ctx);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    temp_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_remove();
    return 0;
}

/* ---- layouts ----------------------------------------------------------------------------- */

static void diffusers_folder(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    expect_good("d", &c);
    assert_int_equal(c.dit.heads, 2);
    assert_int_equal(c.dit.head_dim, 24);
    assert_int_equal(c.dit.layers, 2);
    assert_int_equal(c.dit.text_len, 512);
    assert_false(c.dit.frame_timesteps);
    assert_int_equal(c.vae.encoder_dim, 8);
    assert_int_equal(c.vae.decoder_dim, 16);
    assert_int_equal(c.vae.levels, 4);
    assert_false(c.vae.temporal_down[0]);
    assert_true(c.vae.temporal_down[2]);
    assert_true(c.vae.mean[0] < -0.757f && c.vae.mean[0] > -0.758f);
    assert_int_equal(c.text.vocab, 320);
    assert_int_equal(c.grid, LT_GRID_DIFFUSERS_UNIPC);
    assert_true(c.info.default_shift == 3.0);
    assert_string_equal(c.info.family, "wan2.1-t2v");
    assert_string_equal(c.info.default_negative, "");
    assert_int_equal(c.info.size_multiple, 16);
    assert_int_equal(c.info.frame_scale, 4);
    assert_true(c.info.dit_params > 50000);
}

static void defaults(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    temp_text("d/model_index.json",
              "{\"expand_timesteps\":true,\"_longtake\":{\"width\":128,\"height\":128,"
              "\"num_frames\":81,\"fps\":16,\"num_inference_steps\":25,\"flow_shift\":2.5}}");
    expect_good("d", &c);
    assert_true(c.dit.frame_timesteps && c.info.frame_timesteps);
    assert_string_equal(c.info.family, "wan2.2-ti2v");
    assert_int_equal(c.info.default_width, 128);
    assert_int_equal(c.info.default_steps, 25);
    assert_true(c.info.default_shift == 2.5);
    temp_text("d/longtake.json", "{\"width\":64,\"solver\":\"euler\",\"guidance_scale\":4,"
                                 "\"negative_prompt\":\"dull\",\"text_len\":64,"
                                 "\"ar_num_inference_steps\":8}");
    expect_good("d", &c);
    assert_int_equal(c.info.default_ar_steps, 8);
    lt_session_options o = lt_session_options_default();
    o.prompt = "a ball";
    assert_int_equal(lt_session_validate(ctx, &c.info, &o), LT_OK);
    assert_int_equal(o.num_inference_steps, 25);
    o = lt_session_options_default();
    o.prompt = "a ball";
    o.mode = LT_MODE_AR;
    assert_int_equal(lt_session_validate(ctx, &c.info, &o), LT_OK);
    assert_int_equal(o.num_inference_steps, 8);
    assert_int_equal(c.info.default_width, 64);
    assert_int_equal(c.info.default_height, 128);
    assert_int_equal(c.info.default_solver, LT_SOLVER_EULER);
    assert_int_equal(c.grid, LT_GRID_AUTO);
    assert_string_equal(c.info.default_negative, "dull");
    assert_int_equal(c.text.max_tokens, 64);
    temp_text("d/longtake.json", "{\"solver\":\"magic\"}");
    expect_fail("d", LT_ERR_FORMAT, "solver \"magic\"");
    temp_text("d/longtake.json", "{\"width\":0}");
    expect_fail("d", LT_ERR_FORMAT, "\"width\" is 0");
    temp_text("d/longtake.json", "{\"width\":\"wide\"}");
    expect_fail("d", LT_ERR_FORMAT, "\"width\" is a string");
    temp_text("d/longtake.json", "{");
    expect_fail("d", LT_ERR_FORMAT, "longtake.json: not JSON");
}

/* Files are told apart by what is in them. */
static void original_folder(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_part("w/diffusion_pytorch_model.safetensors", LTI_PART_DIT, &c, NULL);
    write_part("w/a.safetensors", LTI_PART_VAE, &c, NULL);
    write_part("w/b.safetensors", LTI_PART_TEXT, &c, &(edit){.foreign = true});
    copy_tokenizer("w/google/umt5-xxl/spiece.model");
    temp_text("w/config.json",
              "{\"model_type\":\"t2v\",\"num_heads\":2,\"dim\":48,\"text_len\":512,"
              "\"in_dim\":16,\"eps\":1e-06}");
    expect_good("w", &c);
    assert_int_equal(c.dit.head_dim, 24);
    assert_int_equal(c.grid, LT_GRID_AUTO);
    assert_true(c.info.default_shift == 5.0);

    write_part("w/c.safetensors", LTI_PART_VAE, &c, NULL);
    expect_fail("w", LT_ERR_ARG, "a.safetensors and c.safetensors could both be meant");
    remove(temp_path("w/c.safetensors"));
    remove(temp_path("w/a.safetensors"));
    temp_write("w/Wan2.1_VAE.pth", "PK\3\4", 4);
    expect_fail("w", LT_ERR_MISSING, "no VAE found");
    assert_non_null(strstr(lt_error(ctx), "Wan2.1_VAE.pth"));
    assert_non_null(strstr(lt_error(ctx), "--vae"));
    temp_safetensors("w/a.safetensors", "{\"decoder.conv1.weight\":1}", 0);
    expect_fail("w", LT_ERR_MISSING, "a.safetensors: tensor \"decoder.conv1.weight\" is not");
}

static void single_file(void **state)
{
    (void)state;
    lti_config c = small_config();
    c.dit.dim = 256;
    write_part("s/dit.safetensors", LTI_PART_DIT, &c, &(edit){.prefix = "model.diffusion_model."});
    expect_fail("s/dit.safetensors", LT_ERR_MISSING, "no VAE found");
    write_part("v/x.safetensors", LTI_PART_VAE, &c, NULL);
    write_part("t/y.safetensors", LTI_PART_TEXT, &c, NULL);
    copy_tokenizer("k/spiece.model");
    lt_model_options o = {.path = temp_path("s/dit.safetensors")};
    o.vae = temp_path("v");
    assert_int_equal(open_model(&c, &o), LT_ERR_MISSING);
    assert_non_null(strstr(lt_error(ctx), "--text-encoder"));
    o.text_encoder = temp_path("t/y.safetensors");
    assert_int_equal(open_model(&c, &o), LT_ERR_MISSING);
    assert_non_null(strstr(lt_error(ctx), "--tokenizer"));
    char tokenizer[256];
    snprintf(tokenizer, sizeof tokenizer, "%s", temp_path("k"));
    o.tokenizer = tokenizer;
    assert_int_equal(open_model(&c, &o), LT_OK);
    assert_int_equal(c.dit.heads, 2);
    assert_int_equal(c.dit.head_dim, 128);
    o.vae = o.tokenizer;
    assert_int_equal(open_model(&c, &o), LT_ERR_MISSING);
    assert_non_null(strstr(lt_error(ctx), "--vae"));
    o.vae = "/nonexistent/vae.safetensors";
    assert_int_equal(open_model(&c, &o), LT_ERR_IO);
    o.vae = NULL;
    o.tokenizer = "/nonexistent/spiece.model";
    assert_int_equal(open_model(&c, &o), LT_ERR_IO);
    o.tokenizer = "/dev/null";
    assert_int_equal(open_model(&c, &o), LT_ERR_IO);
    assert_non_null(strstr(lt_error(ctx), "/dev/null: not a regular file"));
    o.path = "/nonexistent";
    assert_int_equal(open_model(&c, &o), LT_ERR_IO);
    o.path = NULL;
    assert_int_equal(open_model(&c, &o), LT_ERR_ARG);
    expect_fail("v/x.safetensors", LT_ERR_MISSING, "no DiT found");
}

/* A shard, or the file that describes a folder, stands for the whole. */
static void by_another_name(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    expect_good("d/model_index.json", &c);
    write_part("n/m-00001-of-00001.safetensors", LTI_PART_VAE, &c, NULL);
    temp_text("n/m.safetensors.index.json",
              "{\"weight_map\":{\"conv2.bias\":\"m-00001-of-00001.safetensors\"}}");
    lt_model_options o = {.path = temp_path("d"),
                          .vae = temp_path("n/m-00001-of-00001.safetensors")};
    lti_model_files *f;
    assert_int_equal(lti_model_files_find(&f, ctx, &o), LT_OK);
    assert_non_null(strstr(lti_tensors_path(f->vae), "n/m.safetensors.index.json"));
    lti_model_files_close(&f);
    remove(temp_path("n/m.safetensors.index.json"));
    assert_int_equal(lti_model_files_find(&f, ctx, &o), LT_OK);
    assert_non_null(strstr(lti_tensors_path(f->vae), "00001"));
    lti_model_files_close(&f);
}

/* 48 is no number of heads of 128: only the configuration can say. */
static void heads_unknown(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    remove(temp_path("d/transformer/config.json"));
    expect_fail("d", LT_ERR_SHAPE, "num_heads");
    /* wider than a published head, and not a number of them: one head of 192 would be a guess */
    c.dit.dim = 192;
    write_diffusers(&c, NULL);
    remove(temp_path("d/transformer/config.json"));
    expect_fail("d", LT_ERR_SHAPE, "192 wide, which is not a number of heads of 128");
    c.dit.dim = 96;
    write_diffusers(&c, NULL);
    temp_text("d/transformer/config.json", "{\"num_layers\":2,\"attention_head_dim\":36}");
    expect_fail("d", LT_ERR_SHAPE, "96 wide, which is not a number of heads of 36");
    temp_text("d/transformer/config.json", "{\"num_layers\":2,\"num_heads\":97}");
    expect_fail("d", LT_ERR_SHAPE, "96 wide, which is not a number of heads of 0");
}

/* ---- what can be wrong ------------------------------------------------------------------- */

static void wrong_tensors(void **state)
{
    (void)state;
    lti_config c = small_config();
    static const struct {
        edit e;
        lt_status status;
        const char *text;
    } cases[] = {
        {{.foreign = true, .drop = "blocks.1.norm3.bias"}, LT_ERR_MISSING, "blocks.1.norm2.bias"},
        {{.foreign = true, .lose = "blocks.1.norm3.bias"},
         LT_ERR_MISSING,
         "missing DiT tensor blocks.1.norm2.bias"},
        {{.drop = "blocks.1.norm3.bias"}, LT_ERR_MISSING, "DiT tensor blocks.1.norm3.bias"},
        {{.add = "stray", .lose = "stray"},
         LT_ERR_FORMAT,
         "behind the last tensor, belong to none"},
        {{.foreign = true, .drop = "patch_embedding.weight"}, LT_ERR_MISSING, "patch_embedding"},
        {{.foreign = true, .reshape = "blocks.0.self_attn.k.bias"},
         LT_ERR_SHAPE,
         "blocks.0.attn1.to_k.bias has the shape [49], expected [48]"},
        {{.foreign = true, .add = "blocks.0.extra"}, LT_ERR_UNSUPPORTED, "unknown DiT tensor"},
        {{.foreign = true, .f8 = "blocks.0.ffn.0.weight"},
         LT_ERR_UNSUPPORTED,
         "blocks.0.ffn.net.0.proj.weight is of type F8_E4M3"},
        {{.add = "blocks.0.norm2.weight"}, LT_ERR_UNSUPPORTED, "blocks.0.norm2.weight"},
        {{.add = "img_emb.proj.0.weight"}, LT_ERR_UNSUPPORTED, "Wan2.1 I2V is not supported yet"},
        {{.add = "img_emb.emb_pos"}, LT_ERR_UNSUPPORTED, "Wan2.1 FLF2V"},
        {{.add = "vace_patch_embedding.weight"}, LT_ERR_UNSUPPORTED, "Wan2.1 VACE"},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        write_diffusers(&c, &cases[i].e);
        expect_fail("d", cases[i].status, cases[i].text);
    }
}

/* A name that is cut for the report within a character is still counted. */
static void long_names(void **state)
{
    (void)state;
    lti_config c = small_config();
    char name[600] = "", header[800];
    for (int i = 0; i < 510; i++)
        name[i] = 'a';
    strcat(name, "\xc3\xa9\xc3\xa9");
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    temp_safetensors("long.safetensors", header, 1);
    lti_tensors *t;
    lti_findings f;
    assert_int_equal(lti_tensors_open(&t, ctx, temp_path("long.safetensors"), LTI_PART_DIT, NULL),
                     LT_OK);
    assert_int_equal(lti_config_compare(&f, ctx, &c, t), LT_OK);
    assert_int_equal(json_array_size(f.unknown), 1);
    lti_findings_free(&f);
    lti_tensors_close(&t);
}

static void contradictions(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    static const struct {
        const char *file, *json, *text;
        lt_status status;
    } cases[] = {
        {"d/transformer/config.json", "{\"num_attention_heads\":2,\"num_layers\":40}",
         "says num_layers = 40, the tensors say 2", LT_ERR_SHAPE},
        {"d/transformer/config.json", "{\"num_heads\":2,\"ffn_dim\":\"x\"}", "\"ffn_dim\" is a",
         LT_ERR_FORMAT},
        {"d/transformer/config.json", "{\"num_attention_heads\":2,\"attention_head_dim\":128}",
         "2 heads of 128, the tensors are 48 wide", LT_ERR_SHAPE},
        {"d/transformer/config.json", "{\"num_heads\":5}", "not a number of heads", LT_ERR_SHAPE},
        {"d/transformer/config.json", "{\"num_heads\":2,\"patch_size\":[1,4,4]}",
         "patch_size[1] = 4, the tensors say 2", LT_ERR_SHAPE},
        {"d/transformer/config.json", "{\"num_heads\":2,\"model_type\":\"i2v\"}",
         "model_type \"i2v\"", LT_ERR_UNSUPPORTED},
        {"d/transformer/config.json", "{\"num_heads\":2,\"qk_norm\":\"rms_norm\"}", "qk_norm",
         LT_ERR_UNSUPPORTED},
        {"d/vae/config.json", "{\"z_dim\":48}", "says z_dim = 48, the tensors say 16",
         LT_ERR_SHAPE},
        {"d/vae/config.json", "{\"z_dim\":16,\"dim_mult\":[1,2,4]}",
         "dim_mult = [1,2,4], the tensors say [1,2,4,4]", LT_ERR_SHAPE},
        {"d/vae/config.json", "{\"z_dim\":16,\"temperal_downsample\":[true,true,true]}",
         "temperal_downsample", LT_ERR_SHAPE},
        {"d/vae/config.json", "{\"z_dim\":16,\"patch_size\":2}", "Wan2.2", LT_ERR_UNSUPPORTED},
        {"d/vae/config.json", "{\"z_dim\":16,\"latents_mean\":[1,2]}", "\"latents_mean\" has 2",
         LT_ERR_FORMAT},
        {"d/text_encoder/config.json", "{\"d_model\":32,\"num_heads\":8}",
         "num_heads = 8, the tensors say 4", LT_ERR_SHAPE},
        {"d/scheduler/scheduler_config.json", "{\"prediction_type\":\"epsilon\"}",
         "prediction_type \"epsilon\"", LT_ERR_UNSUPPORTED},
        {"d/model_index.json", "{\"boundary_ratio\":0.875}", "two experts", LT_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        write_diffusers(&c, NULL);
        temp_text(cases[i].file, cases[i].json);
        expect_fail("d", cases[i].status, cases[i].text);
    }
}

static void parts_that_do_not_fit(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    lti_config other = c;
    other.text.dim = 40;
    write_part("d/text_encoder/model.safetensors", LTI_PART_TEXT, &other, NULL);
    temp_text("d/text_encoder/config.json", "{}");
    expect_fail("d", LT_ERR_SHAPE, "text rows of 32, the text encoder makes rows of 40");
    other = c;
    other.text.buckets = 3;
    write_part("d/text_encoder/model.safetensors", LTI_PART_TEXT, &other, NULL);
    expect_fail("d", LT_ERR_SHAPE, "3 buckets of position");
    other = c;
    write_diffusers(&c, NULL);
    other.vae.z_dim = 12;
    write_part("d/vae/diffusion_pytorch_model.safetensors", LTI_PART_VAE, &other, NULL);
    temp_text("d/vae/config.json", "{}");
    expect_fail("d", LT_ERR_MISSING, "latents_mean");
}

static void families(void **state)
{
    (void)state;
    lti_config c = small_config();
    c.dit.in_channels = 36;
    write_diffusers(&c, NULL);
    temp_text("d/transformer/config.json", "{\"num_heads\":2}");
    expect_fail("d", LT_ERR_UNSUPPORTED, "Wan2.2 I2V-A14B is not supported yet");
    c.dit.in_channels = 20;
    write_diffusers(&c, NULL);
    expect_fail("d", LT_ERR_UNSUPPORTED, "20 input and 16 output channels");
    c.dit.in_channels = 16;
    write_diffusers(&c, NULL);
    mkdir(temp_path("d/transformer_2"), 0755);
    expect_fail("d", LT_ERR_UNSUPPORTED, "A14B");
    mkdir(temp_path("a/high_noise_model/x"), 0755);
    mkdir(temp_path("a/low_noise_model/x"), 0755);
    expect_fail("a", LT_ERR_UNSUPPORTED, "A14B");
}

/* One matrix under both of its names is one tensor; two different ones are a mistake. */
static void tied_embedding(void **state)
{
    (void)state;
    static const char one[] = "{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}";
    char header[400];
    snprintf(header, sizeof header,
             "{\"shared.weight\":%s,\"encoder.embed_tokens.weight\":"
             "{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
             one);
    temp_safetensors("t.safetensors", header, 4);
    lti_tensors *t;
    assert_int_equal(lti_tensors_open(&t, ctx, temp_path("t.safetensors"), LTI_PART_TEXT, NULL),
                     LT_OK);
    const lti_entry *e = lti_tensors_find(t, "token_embedding.weight");
    assert_non_null(e);
    assert_string_equal(e->stored, "shared.weight");
    assert_int_equal(lti_tensors_parameters(t), 2);
    lti_tensors_close(&t);
    snprintf(header, sizeof header,
             "{\"shared.weight\":%s,\"encoder.embed_tokens.weight\":"
             "{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
             one);
    temp_safetensors("t.safetensors", header, 5);
    assert_int_equal(lti_tensors_open(&t, ctx, temp_path("t.safetensors"), LTI_PART_TEXT, NULL),
                     LT_ERR_FORMAT);
    assert_non_null(strstr(lt_error(ctx), "twice"));
}

/* ---- inspect ----------------------------------------------------------------------------- */

static json_t *inspect(const char *path, bool *complete)
{
    char *text;
    const lt_status s =
        lt_model_inspect(&text, complete, ctx, &(lt_model_options){.path = temp_path(path)});
    if (s != LT_OK) fail_msg("%s: %s", lt_status_name(s), lt_error(ctx));
    json_t *j = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(j);
    return j;
}

static int64_t count_of(const json_t *j, const char *part, const char *list)
{
    return json_integer_value(
        json_object_get(json_object_get(json_object_get(j, part), list), "count"));
}

static void inspected(void **state)
{
    (void)state;
    lti_config c = small_config();
    write_diffusers(&c, NULL);
    bool complete;
    json_t *j = inspect("d", &complete);
    assert_true(complete);
    assert_string_equal(json_string_value(json_object_get(j, "family")), "wan2.1-t2v");
    assert_int_equal(json_array_size(json_object_get(j, "problems")), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "dit"), "tensors")),
                     2 * 27 + 15);
    json_decref(j);

    write_diffusers(&c, &(edit){.foreign = true,
                                .drop = "blocks.1.ffn.2.bias",
                                .add = "blocks.1.more",
                                .f8 = "blocks.0.ffn.2.weight",
                                .reshape = "blocks.0.norm3.bias"});
    remove(temp_path("d/tokenizer/spiece.model"));
    remove(temp_path("d/vae/diffusion_pytorch_model.safetensors"));
    j = inspect("d", &complete);
    assert_false(complete);
    assert_int_equal(count_of(j, "dit", "missing"), 1);
    assert_int_equal(count_of(j, "dit", "unknown"), 1);
    assert_int_equal(count_of(j, "dit", "unreadable"), 1);
    assert_int_equal(count_of(j, "dit", "misshapen"), 1);
    assert_int_equal(count_of(j, "text_encoder", "missing"), 0);
    assert_true(json_is_false(json_object_get(json_object_get(j, "vae"), "found")));
    assert_true(json_is_false(json_object_get(json_object_get(j, "tokenizer"), "found")));
    assert_true(json_array_size(json_object_get(j, "problems")) > 0);
    json_decref(j);
}

/* A configuration that cannot be read is a problem of the report, not the end of it; nothing renders with it. */
static void inspected_broken(void **state)
{
    (void)state;
    static const struct {
        const char *file, *json,
            *text; /* json NULL: a folder of that name; "": a link into nothing */
        lt_status status;
    } cases[] = {
        {"d/transformer/config.json", "{", "transformer/config.json: not JSON", LT_ERR_FORMAT},
        {"d/vae/config.json", "{]", "vae/config.json: not JSON", LT_ERR_FORMAT},
        {"d/text_encoder/config.json", "7", "text_encoder/config.json: not JSON", LT_ERR_FORMAT},
        {"d/model_index.json", "{", "model_index.json: not JSON", LT_ERR_FORMAT},
        {"d/vae/config.json", NULL, "vae/config.json: not a regular file", LT_ERR_IO},
        {"d/model_index.json", NULL, "model_index.json: not a regular file", LT_ERR_IO},
        {"d/vae/config.json", "", "vae/config.json: No such file", LT_ERR_IO},
    };
    lti_config c = small_config();
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        write_diffusers(&c, NULL);
        const char *json = cases[i].json, *path = temp_path(cases[i].file);
        assert_int_equal(remove(path), 0);
        if (!json)
            assert_int_equal(mkdir(path, 0755), 0);
        else if (!*json)
            assert_int_equal(symlink("nowhere", path), 0);
        else
            temp_text(cases[i].file, json);
        bool complete;
        json_t *j = inspect("d", &complete);
        assert_false(complete);
        assert_true(json_is_false(json_object_get(j, "complete")));
        bool told = false;
        const json_t *problems = json_object_get(j, "problems");
        for (size_t k = 0; k < json_array_size(problems); k++)
            told |= strstr(json_string_value(json_array_get(problems, k)), cases[i].text) != NULL;
        if (!told) fail_msg("not told: %s", cases[i].text);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "dit"), "tensors")),
                         2 * 27 + 15);
        json_decref(j);
        expect_fail("d", cases[i].status, cases[i].text);
        assert_int_equal(remove(temp_path(cases[i].file)), 0);
    }
}

/* A tensor file that cannot be read is named, in the report and when rendering; everything else is told as if it were good. */
static void inspected_torn(void **state)
{
    (void)state;
    static const char *const parts[] = {"dit", "text_encoder", "vae"};
    static const char *const files[] = {"d/transformer/diffusion_pytorch_model.safetensors",
                                        "d/text_encoder/model.safetensors",
                                        "d/vae/diffusion_pytorch_model.safetensors"};
    lti_config c = small_config(), wide = small_config();
    wide.dit.dim = 256; /* heads of 128 are known without a configuration */
    for (size_t i = 0; i < LT_COUNT(files); i++)
        for (int mixed = 0; mixed < 2; mixed++) {
            const char *dir = mixed ? "m" : "d";
            char torn[64];
            if (mixed) {
                snprintf(torn, sizeof torn, "m/%zu.safetensors", i);
                for (size_t k = 0; k < LT_COUNT(files); k++) {
                    char to[64];
                    snprintf(to, sizeof to, "m/%zu.safetensors", k);
                    write_part(to, (lti_part)(LTI_PART_DIT + (int)k), &wide, NULL);
                }
                copy_tokenizer("m/spiece.model");
            } else {
                snprintf(torn, sizeof torn, "%s", files[i]);
                write_diffusers(&c, NULL);
            }
            assert_int_equal(truncate(temp_path(torn), 1000), 0);
            bool complete;
            json_t *j = inspect(dir, &complete);
            assert_false(complete);
            for (size_t k = 0; k < LT_COUNT(parts); k++) {
                const json_t *part = json_object_get(j, parts[k]);
                assert_int_equal(json_is_true(json_object_get(part, "found")), k != i);
                if (k != i) assert_true(json_integer_value(json_object_get(part, "tensors")) > 0);
            }
            const json_t *problems = json_object_get(j, "problems");
            assert_int_equal(json_array_size(problems), 1);
            const char *problem = json_string_value(json_array_get(problems, 0));
            if (!strstr(problem, torn) || !strstr(problem, "truncated?"))
                fail_msg("%s: told is \"%s\"", torn, problem);
            json_decref(j);
            expect_fail(dir, mixed && i ? LT_ERR_MISSING : LT_ERR_FORMAT, torn);
        }
}

static uint64_t mib_free(void)
{
    return lti_available_bytes(temp_dir) >> 20;
}

/* A container, a service with a limit, a service in a limited slice; cached files of a model take nothing. */
static void free_memory(void **state)
{
    (void)state;
    assert_true(lti_available_bytes(temp_dir) == UINT64_MAX);
    temp_text("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8192000 kB\n");
    assert_int_equal(mib_free(), 8000);
    temp_text("proc/self/cgroup", "0::/\n");
    temp_text("sys/fs/cgroup/memory.max", "6291456000\n");
    temp_text("sys/fs/cgroup/memory.current", "5242880000\n");
    assert_int_equal(mib_free(), 1000);
    temp_text(
        "sys/fs/cgroup/memory.stat",
        "anon 104857600\nfile 5138022400\ninactive_file 3145728000\nactive_file 1048576000\n");
    assert_int_equal(mib_free(), 5000);
    temp_text("proc/self/cgroup", "1:name=systemd:/\n0::/system.slice/longtake.service\n");
    assert_int_equal(mib_free(), 5000);
    temp_text("sys/fs/cgroup/system.slice/longtake.service/memory.max", "max\n");
    temp_text("sys/fs/cgroup/system.slice/longtake.service/memory.current", "104857600\n");
    assert_int_equal(mib_free(), 5000);
    temp_text("sys/fs/cgroup/system.slice/longtake.service/memory.max", "2097152000\n");
    assert_int_equal(mib_free(), 1900);
    temp_text("sys/fs/cgroup/system.slice/memory.max", "1048576000\n");
    temp_text("sys/fs/cgroup/system.slice/memory.current", "1048576001\n");
    assert_int_equal(mib_free(), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(diffusers_folder), TEST(defaults),       TEST(original_folder),
        TEST(single_file),      TEST(heads_unknown),  TEST(by_another_name),
        TEST(wrong_tensors),    TEST(contradictions), TEST(parts_that_do_not_fit),
        TEST(families),         TEST(tied_embedding), TEST(inspected),
        TEST(inspected_broken), TEST(inspected_torn), TEST(long_names),
        TEST(free_memory),
    };
    return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
