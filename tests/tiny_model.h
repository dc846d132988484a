/* tiny_model.h: a model folder with random weights, in the layout of the original Wan folders, small enough that a whole render
 * takes milliseconds. For tests; every value is a function of the tensor's name and the element's index. */
#ifndef LT_TESTS_TINY_MODEL_H
#define LT_TESTS_TINY_MODEL_H

#include "video/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TINY_TENSORS = 512, TINY_VOCAB = 320 };

typedef struct tiny_file {
    char name[TINY_TENSORS][96];
    int ndim[TINY_TENSORS];
    int64_t dim[TINY_TENSORS][8];
    int n;
    float gain; /* of matrices; NAN writes a bad number into the head */
} tiny_file;

static void tiny_add(void *user, const char *name, int ndim, const int64_t *dim)
{
    tiny_file *f = user;
    if (f->n == TINY_TENSORS) return;
    snprintf(f->name[f->n], sizeof f->name[0], "%s", name);
    f->ndim[f->n] = ndim;
    memcpy(f->dim[f->n], dim, (size_t)ndim * sizeof *dim);
    f->n++;
}

static int64_t tiny_elements(const tiny_file *f, int i)
{
    int64_t n = 1;
    for (int k = 0; k < f->ndim[i]; k++)
        n *= f->dim[i][k];
    return n;
}

/* Uniform in -1..1. */
static float tiny_random(const char *name, int64_t i)
{
    uint64_t z = (uint64_t)i * 0x9E3779B97F4A7C15u;
    for (const char *s = name; *s; s++)
        z = (z ^ (unsigned char)*s) * 0x100000001B3u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
}

static float tiny_value(const tiny_file *f, int i, int64_t at)
{
    const char *name = f->name[i], *end = strrchr(name, '.');
    const float u = tiny_random(name, at);
    const bool gain = strstr(name, "norm") || strstr(name, "gamma");
    if (end && !strcmp(end, ".bias")) return 0.05f * u;
    if (gain) return 1 + 0.05f * u;
    if (strstr(name, "modulation")) return 0.3f * u;
    if (strstr(name, "token_embedding")) return u;
    const double fan = (double)(tiny_elements(f, i) / f->dim[i][0]);
    return (float)(1.4 / sqrt(fan)) * u * f->gain;
}

static bool tiny_write_tensors(const tiny_file *f, const char *path)
{
    FILE *out = fopen(path, "wb");
    char *header = malloc((size_t)f->n * 320 + 16);
    if (!out || !header) {
        if (out) fclose(out);
        free(header);
        return false;
    }
    size_t len = (size_t)sprintf(header, "{");
    int64_t at = 0;
    for (int i = 0; i < f->n; i++) {
        len += (size_t)sprintf(header + len, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[",
                               i ? "," : "", f->name[i]);
        for (int k = 0; k < f->ndim[i]; k++)
            len += (size_t)sprintf(header + len, "%s%" PRId64, k ? "," : "", f->dim[i][k]);
        const int64_t end = at + 4 * tiny_elements(f, i);
        len +=
            (size_t)sprintf(header + len, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
        at = end;
    }
    len += (size_t)sprintf(header + len, "}");
    while (len % 8)
        header[len++] = ' ';
    const uint64_t n = len;
    bool good = fwrite(&n, 8, 1, out) == 1 && fwrite(header, len, 1, out) == 1;
    for (int i = 0; i < f->n; i++) {
        for (int64_t k = 0; k < tiny_elements(f, i); k++) {
            const float v = tiny_value(f, i, k);
            good = good && fwrite(&v, 4, 1, out) == 1;
        }
    }
    free(header);
    return fclose(out) == 0 && good;
}

static bool tiny_write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    const bool good = fputs(text, f) >= 0;
    return fclose(f) == 0 && good;
}

static bool tiny_copy(const char *from, const char *dir, const char *name)
{
    char path[512], buf[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    bool good = in && out;
    for (size_t n; good && (n = fread(buf, 1, sizeof buf, in)) > 0;)
        good = fwrite(buf, 1, n, out) == n;
    if (in) fclose(in);
    return (!out || fclose(out) == 0) && good;
}

static lti_dit_config tiny_dit_config(void)
{
    return (lti_dit_config){.dim = 48,
                            .ffn_dim = 64,
                            .heads = 2,
                            .head_dim = 24,
                            .layers = 2,
                            .in_channels = 16,
                            .out_channels = 16,
                            .text_dim = 32,
                            .text_len = 24,
                            .freq_dim = 256,
                            .patch = 2,
                            .max_pos = 1024,
                            .eps = 1e-6f,
                            .frame_timesteps = true};
}

static lti_text_config tiny_text_config(void)
{
    return (lti_text_config){.vocab = TINY_VOCAB,
                             .dim = 32,
                             .heads = 4,
                             .head_dim = 8,
                             .ffn_dim = 48,
                             .layers = 2,
                             .buckets = 32,
                             .max_distance = 128,
                             .max_tokens = 512,
                             .eps = 1e-6f};
}

static lt_vae_config tiny_vae_config(void)
{
    lt_vae_config c = lt_vae_config_wan21();
    c.encoder_dim = 8;
    c.decoder_dim = 8;
    c.num_res_blocks = 1;
    return c;
}

/* Writes the folder; `dit_gain` scales the transformer's matrices (a huge one makes numbers that are not finite). */
static bool tiny_model_write(const char *dir, float dit_gain)
{
    static const char config[] = "{\"model_type\": \"ti2v\", \"num_heads\": 2, \"text_len\": 24, "
                                 "\"dim\": 48, \"eps\": 1e-06}";
    static const char own[] =
        "{\"width\": 48, \"height\": 32, \"num_frames\": 9, \"fps\": 8, \"num_inference_steps\": "
        "4, "
        "\"guidance_scale\": 3.0, \"flow_shift\": 3.0, \"negative_prompt\": \"blurry\"}";
    const lti_dit_config dit = tiny_dit_config();
    const lti_text_config text = tiny_text_config();
    const lt_vae_config vae = tiny_vae_config();
    tiny_file *f = calloc(1, sizeof *f);
    char path[512];
    bool good = f != NULL;
    for (int part = 0; good && part < 3; part++) {
        static const char *const names[] = {"diffusion_pytorch_model.safetensors", "t5.safetensors",
                                            "vae.safetensors"};
        f->n = 0;
        f->gain = part ? 1 : dit_gain;
        if (part == 0) lti_dit_list_tensors(&dit, tiny_add, f);
        if (part == 1) lti_text_list_tensors(&text, tiny_add, f);
        if (part == 2) lt_vae_list_tensors(&vae, tiny_add, f);
        snprintf(path, sizeof path, "%s/%s", dir, names[part]);
        good = tiny_write_tensors(f, path);
    }
    free(f);
    return good && tiny_write_text(dir, "config.json", config) &&
           tiny_write_text(dir, "longtake.json", own) &&
           tiny_copy(LT_TEST_DATA "/data/tiny.model", dir, "spiece.model");
}

static void tiny_model_remove(const char *dir)
{
    static const char *const names[] = {"diffusion_pytorch_model.safetensors",
                                        "t5.safetensors",
                                        "vae.safetensors",
                                        "config.json",
                                        "longtake.json",
                                        "spiece.model"};
    char path[512];
    for (size_t i = 0; i < LT_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

#endif
