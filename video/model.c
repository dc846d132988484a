/* model.c: a model opened for computing: transformer and VAE decoder packed, tokenizer ready, text encoder left on disk. */
#include "video/model_internal.h"

#include <stdlib.h>
#include <string.h>

static lt_status check_dtype(lt_ctx *ctx, lt_dtype t)
{
    if (t == 0 || t == LT_F32 || t == LT_BF16) return LT_OK;
    return lti_fail(ctx, LT_ERR_DTYPE, "compute type %s: not one of f32, bf16", lt_dtype_name(t));
}

/* Files, configuration, tensors: everything that can be known before anything is packed. */
static lt_status read_model(lti_model_files **files, lti_config *c, lt_ctx *ctx,
                            const lt_model_options *opt)
{
    LT_TRY(check_dtype(ctx, opt->dtype));
    LT_TRY(lti_model_files_find(files, ctx, opt));
    lt_status s = lti_model_files_require(ctx, *files);
    if (s >= 0) s = lti_config_read(c, ctx, *files);
    if (s >= 0) s = lti_config_check(ctx, c, *files);
    if (s < 0) lti_model_files_close(files);
    return s;
}

lt_status lt_model_probe(lt_model_info *out, lt_ctx *ctx, const lt_model_options *opt)
{
    *out = (lt_model_info){0};
    lti_model_files *files;
    lti_config c;
    LT_TRY(read_model(&files, &c, ctx, opt));
    lti_model_files_close(&files);
    *out = c.info;
    out->dtype = opt->dtype ? opt->dtype : LT_BF16;
    return LT_OK;
}

static void add_hash(uint64_t *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        *h = (*h ^ p[i]) * 0x100000001b3u;
}

/* Names, types, shapes and a few bytes of every tensor: training moves them all, and reading them all would take as long as packing. */
static lt_status add_tensors(uint64_t *h, const lti_tensors *t)
{
    enum { SAMPLE = 256 };
    uint8_t bytes[SAMPLE];
    for (int64_t i = 0; i < lti_tensors_count(t); i++) {
        const lti_entry *e = lti_tensors_at(t, i);
        const size_t n = e->bytes < SAMPLE ? e->bytes : SAMPLE;
        if (e->ignored) continue;
        add_hash(h, e->name, strlen(e->name) + 1);
        add_hash(h, e->type, strlen(e->type) + 1);
        add_hash(h, e->dim, (size_t)e->ndim * sizeof *e->dim);
        LT_TRY(lti_tensors_read(t, e, bytes, 0, n));
        add_hash(h, bytes, n);
        LT_TRY(lti_tensors_read(t, e, bytes, (e->bytes - n) / 2, n));
        add_hash(h, bytes, n);
    }
    return LT_OK;
}

static lt_status pack(lt_model *m)
{
    m->fingerprint = 0xcbf29ce484222325u;
    LT_TRY(add_tensors(&m->fingerprint, m->files->dit));
    LT_TRY(add_tensors(&m->fingerprint, m->files->text));
    LT_TRY(add_tensors(&m->fingerprint, m->files->vae));
    const lt_tensor_source dit = lti_tensors_source(m->files->dit);
    const lt_tensor_source vae = lti_tensors_source(m->files->vae);
    lt_vae_config c = m->config.vae;
    c.compute = m->dtype;
    c.no_encoder = true;
    LT_TRY(lti_dit_create(&m->dit, m->dev, &m->config.dit, m->dtype, &dit));
    lti_tensors_close(&m->files->dit);
    LT_TRY(lt_vae_create(&m->vae, m->dev, &c, &vae));
    return lti_tokenizer_of(&m->tokenizer, m->ctx, m->files);
}

lt_status lt_model_open(lt_model **out, lt_dev *dev, const lt_model_options *opt)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(dev);
    lt_model *m = calloc(1, sizeof *m);
    if (!m) return lti_fail(ctx, LT_ERR_MEM, "no memory for a model");
    m->dev = dev;
    m->ctx = ctx;
    m->dtype = opt->dtype ? opt->dtype : lt_dev_auto_dtype(dev);
    m->texts = lti_text_cache_create();
    lt_status s = m->texts ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for a model");
    if (s >= 0) s = read_model(&m->files, &m->config, ctx, opt);
    if (s >= 0) s = pack(m);
    if (s < 0) {
        lt_model_close(&m);
        return s;
    }
    m->config.info.dtype = m->dtype;
    *out = m;
    return LT_OK;
}

void lt_model_close(lt_model **model)
{
    lt_model *m = model ? *model : NULL;
    if (!m) return;
    lti_text_cache_destroy(&m->texts);
    lti_tokenizer_close(&m->tokenizer);
    lt_vae_destroy(&m->vae);
    lti_dit_destroy(&m->dit);
    lti_model_files_close(&m->files);
    free(m);
    *model = NULL;
}

void lt_model_get_info(const lt_model *model, lt_model_info *out)
{
    *out = model->config.info;
}

/* ---- text ---- */

/* The encoder's limit and the rows that the transformer sees, EOS included. */
static int32_t max_tokens(const lt_model *m)
{
    const int32_t a = m->config.text.max_tokens, b = m->config.dit.text_len;
    return a < b ? a : b;
}

static lt_status tokenize(const lt_model *m, const char *text, int32_t **ids, int32_t *n)
{
    int32_t cut = 0;
    LT_TRY(lti_tokenizer_encode(m->tokenizer, m->ctx, text, max_tokens(m), m->config.text.vocab,
                                ids, n, &cut));
    if (cut)
        lti_log(m->ctx, LT_LOG_WARN, "event=prompt_too_long used_tokens=%d dropped_tokens=%d", *n,
                cut);
    return LT_OK;
}

lt_status lt_model_tokenize(lt_model *model, const char *text, int32_t **ids, int32_t *n)
{
    *ids = NULL;
    *n = 0;
    return tokenize(model, text, ids, n);
}

/* Encodes those texts that `has` lacks; their rows go to `rows`, one after the other, and into the cache. */
static lt_status encode_missing(lt_model *m, float *rows, int32_t *const *ids, const int32_t *n,
                                const bool *has, const lti_text_job *all)
{
    const size_t dim = (size_t)m->config.text.dim;
    const int32_t *list[LTI_MAX_TEXTS];
    int32_t len[LTI_MAX_TEXTS], which[LTI_MAX_TEXTS], missing = 0;
    for (int32_t i = 0; i < all->texts; i++)
        if (!has[i]) {
            list[missing] = ids[i];
            len[missing] = n[i];
            which[missing++] = i;
        }
    const lt_tensor_source source = lti_tensors_source(m->files->text);
    lti_text_job job = *all;
    job.config = &m->config.text;
    job.source = &source;
    job.compute = m->dtype;
    job.texts = missing;
    job.ids = list;
    job.len = len;
    if (missing) LT_TRY(lti_text_encode(m->dev, rows, &job));
    for (int32_t i = 0; i < missing; rows += (size_t)len[i] * dim, i++)
        lti_text_cache_put(m->texts, ids[which[i]], len[i], rows,
                           (size_t)len[i] * dim * sizeof *rows);
    return LT_OK;
}

/* Rows of texts that are cached are put behind those that have to be encoded. */
static lt_status encode_ids(lt_model *m, lti_text_rows *out, int32_t *const *ids,
                            const lti_text_job *job)
{
    const size_t dim = (size_t)m->config.text.dim;
    const int32_t texts = job->texts;
    const float *known[LTI_MAX_TEXTS];
    bool has[LTI_MAX_TEXTS];
    size_t rows = 0, at = 0;
    for (int32_t i = 0; i < texts; i++) {
        known[i] = lti_text_cache_get(m->texts, ids[i], out->n[i]);
        has[i] = known[i] != NULL;
        rows += (size_t)out->n[i];
    }
    out->rows = malloc(rows * dim * sizeof *out->rows);
    if (!out->rows) return lti_fail(m->ctx, LT_ERR_MEM, "no memory for %zu rows of text", rows);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < texts; i++) {
            if (has[i] != (pass == 1)) continue;
            float *to = out->rows + at * dim;
            if (has[i]) memcpy(to, known[i], (size_t)out->n[i] * dim * sizeof *to);
            out->of[i] = to;
            at += (size_t)out->n[i];
        }
    return encode_missing(m, out->rows, ids, out->n, has, job);
}

lt_status lti_model_encode(lt_model *m, lti_text_rows *out, const char *const *text, int32_t texts,
                           bool (*layer_done)(void *user, int32_t done, int32_t layers), void *user)
{
    *out = (lti_text_rows){0};
    int32_t *ids[LTI_MAX_TEXTS] = {0};
    lt_status s = LT_OK;
    for (int32_t i = 0; i < texts && s >= 0; i++)
        s = tokenize(m, text[i], &ids[i], &out->n[i]);
    const lti_text_job job = {.texts = texts, .layer_done = layer_done, .user = user};
    if (s >= 0) s = encode_ids(m, out, ids, &job);
    for (int32_t i = 0; i < texts; i++)
        free(ids[i]);
    if (s < 0) lti_text_rows_free(out);
    return s;
}

void lt_model_text_cache(const lt_model *model, uint64_t *hits, uint64_t *misses)
{
    lti_text_cache_stats(model->texts, hits, misses);
}

void lti_text_rows_free(lti_text_rows *r)
{
    free(r->rows);
    *r = (lti_text_rows){0};
}

lt_status lt_model_encode_text(lt_model *model, const char *text, float **out, int32_t *rows)
{
    lti_text_rows r;
    *out = NULL;
    *rows = 0;
    LT_TRY(lti_model_encode(model, &r, &text, 1, NULL, NULL));
    *out = r.rows;
    *rows = r.n[0];
    return LT_OK;
}
