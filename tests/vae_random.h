/* vae_random.h: a small VAE with random weights for tests, made from names alone, and a few ways to run it. */
#ifndef LT_TESTS_VAE_RANDOM_H
#define LT_TESTS_VAE_RANDOM_H

#include "kernels/internal.h"
#include "vae/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of Wan's architecture with other widths than the published one: encoder 8, decoder 16, one block more a level there. */
static inline lt_vae_config small_config(lt_dtype compute)
{
    lt_vae_config c = lt_vae_config_wan21();
    c.encoder_dim = 8;
    c.decoder_dim = 16;
    c.mult[3] = 8;
    c.num_res_blocks = 1;
    c.compute = compute;
    return c;
}

/* Uniform in -1..1, a function of the seed and the index alone. */
static inline float random_value(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed << 32 ^ i) + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (float)((double)(z >> 11) * 0x1p-52 - 1);
}

typedef struct weights {
    char name[160][64];
    lt_tensor tensor[160];
    int n;
    const char *missing; /* get of this name fails */
    int asked;
} weights;

/* Weights of deviation 0.8 / sqrt(fan in), biases near 0, gammas near 1, as tools for random weights make them. */
static inline void add_tensor(void *user, const char *name, int ndim, const int64_t *dim)
{
    weights *w = user;
    lt_tensor *t = &w->tensor[w->n];
    int64_t n = 1;
    uint64_t seed = 7;
    assert_true(w->n < 160);
    for (const char *s = name; *s; s++)
        seed = (seed * 31 + (unsigned char)*s) & 0xffffffffu;
    snprintf(w->name[w->n], sizeof w->name[0], "%s", name);
    *t = (lt_tensor){.name = w->name[w->n], .dtype = LT_F32, .ndim = ndim};
    for (int i = 0; i < ndim; i++)
        n *= t->dim[i] = dim[i];
    float *data = malloc((size_t)n * sizeof *data);
    assert_non_null(data);
    const bool weight = strstr(name, ".weight"), gamma = strstr(name, ".gamma");
    const float scale = weight ? 1.4f / sqrtf((float)n / (float)dim[0]) : gamma ? 0.1f : 0.02f;
    for (int64_t i = 0; i < n; i++)
        data[i] = random_value(seed, (uint64_t)i) * scale + (gamma ? 1.0f : 0.0f);
    t->data = data;
    w->n++;
}

static inline weights *make_weights(const lt_vae_config *c)
{
    weights *w = calloc(1, sizeof *w);
    assert_non_null(w);
    lt_vae_list_tensors(c, add_tensor, w);
    return w;
}

static inline void free_weights(weights *w)
{
    for (int i = 0; i < w->n; i++) {
        union {
            const void *in;
            void *out;
        } p = {w->tensor[i].data};
        free(p.out);
    }
    free(w);
}

static inline lt_status get_tensor(void *user, const char *name, lt_tensor *out)
{
    weights *w = user;
    w->asked++;
    for (int i = 0; i < w->n; i++) {
        if (strcmp(w->name[i], name) || (w->missing && !strcmp(w->missing, name))) continue;
        *out = w->tensor[i];
        return LT_OK;
    }
    return LT_ERR_MISSING;
}

static inline lt_tensor_source source_of(weights *w)
{
    return (lt_tensor_source){.user = w, .get = get_tensor};
}

/* ---- a device with a VAE on it ----------------------------------------------------------- */

typedef struct bench {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_vae *vae;
    weights *w;
} bench;

static inline bench bench_open(const char *device, int threads, const lt_vae_config *c)
{
    bench b = {.w = make_weights(c)};
    const lt_tensor_source source = source_of(b.w);
    lt_dev_options opt = lt_dev_options_default();
    opt.device = device;
    opt.threads = threads;
    assert_int_equal(lt_ctx_create(&b.ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&b.dev, b.ctx, &opt), LT_OK);
    const lt_status s = lt_vae_create(&b.vae, b.dev, c, &source);
    if (s < 0) print_error("%s\n", lt_error(b.ctx));
    assert_int_equal(s, LT_OK);
    return b;
}

static inline void bench_close(bench *b)
{
    lt_mem_stats mem;
    lt_vae_destroy(&b->vae);
    lt_dev_mem_stats(b->dev, &mem);
    for (int tag = 0; tag < LT_TAG_COUNT; tag++)
        if (tag != LT_TAG_SCRATCH) assert_int_equal(mem.live_bytes[tag], 0);
    lt_dev_destroy(&b->dev);
    lt_ctx_destroy(&b->ctx);
    free_weights(b->w);
}

#endif
