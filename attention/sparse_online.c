/* sparse_online.c: what is chosen by looking at queries and keys of a call: which of svg's bands a head gets, and which boxes topk
 * reads. Means, their products and attention of sampled rows are computed by the device; a few megabytes of results come back and the
 * choice is made here, in one thread, so it does not depend on how many there are. */
#include "attention/sparse_internal.h"

#include <math.h>
#include <string.h>

static int64_t columns(const lt_sparse *s)
{
    return (int64_t)s->o.heads * s->o.head_dim;
}

static float logit_scale(const lt_sparse *s)
{
    return (float)(1 / sqrt((double)s->o.head_dim));
}

/* ---- svg: which band for which head ---- */

/* Query tiles that are looked at: spread evenly, others in every layer. */
static int32_t sampled_tile(const lti_scene *sc, int32_t layer, int32_t i)
{
    const double golden = 0.6180339887498949, x = golden * (i + 1 + LTI_SAMPLES * (double)layer);
    return (int32_t)((x - floor(x)) * sc->nq);
}

static void whole_list(lti_list *l, const lti_scene *sc)
{
    l->n = 0;
    for (int32_t f = 0; f < sc->nkeys; f++)
        lti_read_tokens(l, sc, f, 0, sc->frame);
}

/* The same sampled rows three times: with all keys, with the spatial list, with the temporal one. *rows: of each. */
static lt_status sample(lt_sparse *s, const lti_scene *sc, const lt_sparse_call *c, int32_t *rows)
{
    const int64_t cols = columns(s);
    int32_t q_off[3 * LTI_SAMPLES + 1] = {0};
    for (int32_t i = 0; i < 3 * LTI_SAMPLES; i++) {
        const int32_t kind = i / LTI_SAMPLES, tile = sampled_tile(sc, c->layer, i % LTI_SAMPLES),
                      first = sc->q_off[tile], have = sc->q_off[tile + 1] - first,
                      take = have < LTI_SAMPLE_ROWS ? have : LTI_SAMPLE_ROWS;
        lt_mat from = c->q, to = {s->sample_q, s->o.dtype, cols};
        const size_t item = lt_dtype_size(s->o.dtype);
        from.data = (char *)from.data + (size_t)(first * (from.ld ? from.ld : cols)) * item;
        to.data = (char *)to.data + (size_t)(q_off[i] * cols) * item;
        LT_TRY(lt_convert(s->dev,
                          &(lt_convert_args){.out = to, .x = from, .rows = take, .cols = cols}));
        q_off[i + 1] = q_off[i] + take;
        if (kind == 0) {
            whole_list(&s->list, sc);
        } else {
            s->list.n = 0;
            s->m->list(&s->list, sc, kind - 1, tile);
        }
        LT_TRY(lti_lists_add(&s->samples, s->ctx, i, &s->list));
    }
    *rows = q_off[LTI_SAMPLES];
    return lti_lists_upload(&s->samples, s->dev, 3 * LTI_SAMPLES, q_off, 3 * LTI_SAMPLES, NULL, 0);
}

/* Squared distance of sampled rows of a head between block `kind` and the exact one. */
static double distance(const lt_sparse *s, int32_t rows, int32_t kind, int32_t head)
{
    const int64_t cols = columns(s), D = s->o.head_dim;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = head * D; d < (head + 1) * D; d++) {
            const double e =
                (double)s->host[(kind * rows + r) * cols + d] - (double)s->host[r * cols + d];
            sum += e * e;
        }
    return sum;
}

lt_status lti_profile(lt_sparse *s, const lti_scene *sc, const lt_sparse_call *c)
{
    const int64_t cols = columns(s);
    int32_t rows;
    LT_TRY(sample(s, sc, c, &rows));
    LT_TRY(lt_attention(s->dev, &(lt_attention_args){.out = {s->sample_out, LT_F32, cols},
                                                     .q = {s->sample_q, s->o.dtype, cols},
                                                     .k = c->k,
                                                     .v = c->v,
                                                     .lq = 3 * (int64_t)rows,
                                                     .lk = c->lk,
                                                     .heads = s->o.heads,
                                                     .head_dim = s->o.head_dim,
                                                     .scale = logit_scale(s),
                                                     .plan = &s->samples.kernel,
                                                     .k_rope = c->k_rope}));
    LT_TRY(lt_dev_download(s->dev, s->host, s->sample_out,
                           3 * (size_t)rows * (size_t)cols * sizeof(float)));
    for (int32_t h = 0; h < s->o.heads; h++)
        s->group_of_head[h] = distance(s, rows, 2, h) < distance(s, rows, 1, h);
    return LT_OK;
}

/* ---- topk: which boxes ---- */

static lt_status means(lt_sparse *s, const lti_scene *sc, const lt_sparse_call *c)
{
    const int64_t cols = columns(s);
    lt_tilemean_args a = {.out = {s->mean_q, LT_F32, cols},
                          .x = c->q,
                          .off = s->off_q,
                          .tiles = sc->nq,
                          .heads = s->o.heads,
                          .head_dim = s->o.head_dim};
    LT_TRY(lt_tilemean(s->dev, &a));
    a.out.data = s->mean_k;
    a.x = c->k;
    a.off = s->off_k;
    a.tiles = s->z.nk;
    a.rope = c->k_rope;
    LT_TRY(lt_tilemean(s->dev, &a));
    if (!s->z.centroid) return LT_OK;
    LT_TRY(lt_convert(s->dev, &(lt_convert_args){.out = {s->rest_k, s->o.dtype, cols},
                                                 .x = {s->mean_k, LT_F32, cols},
                                                 .rows = s->z.nk,
                                                 .cols = cols}));
    a.out = (lt_mat){s->rest_v, s->o.dtype, cols};
    a.x = c->v;
    a.rope = NULL;
    return lt_tilemean(s->dev, &a);
}

/* Every number is added to or taken from one of a few sums, as its place says. */
static void sketch(float out[LTI_SKETCH], const float *x, size_t n, uint32_t key)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t h = ((uint32_t)i ^ key) * 2654435761u;
        out[(h >> 8) % LTI_SKETCH] += h >> 31 ? x[i] : -x[i];
    }
}

static double change(const float *now, const float *then)
{
    double far = 0, all = 0;
    for (int i = 0; i < LTI_SKETCH; i++) {
        far += ((double)now[i] - (double)then[i]) * ((double)now[i] - (double)then[i]);
        all += (double)then[i] * (double)then[i];
    }
    return all > 0 ? sqrt(far / all) : HUGE_VAL;
}

static lt_status sketch_means(lt_sparse *s, const lti_scene *sc, float out[LTI_SKETCH])
{
    const size_t cols = (size_t)columns(s), q = (size_t)sc->nq * cols, k = (size_t)s->z.nk * cols;
    memset(out, 0, LTI_SKETCH * sizeof *out);
    LT_TRY(lt_dev_download(s->dev, s->host, s->mean_q, q * sizeof(float)));
    sketch(out, s->host, q, 0);
    LT_TRY(lt_dev_download(s->dev, s->host, s->mean_k, k * sizeof(float)));
    sketch(out, s->host, k, 0x9e3779b9u);
    return LT_OK;
}

static lt_status score(lt_sparse *s, const lti_scene *sc)
{
    const int64_t cols = columns(s);
    LT_TRY(lt_tilescore(s->dev, &(lt_tilescore_args){.out = s->score,
                                                     .q = {s->mean_q, LT_F32, cols},
                                                     .k = {s->mean_k, LT_F32, cols},
                                                     .lq = sc->nq,
                                                     .lk = s->z.nk,
                                                     .heads = s->o.heads,
                                                     .head_dim = s->o.head_dim,
                                                     .scale = logit_scale(s)}));
    const size_t n = (size_t)s->o.heads * (size_t)sc->nq * (size_t)s->z.nk;
    return lt_dev_download(s->dev, s->host, s->score, n * sizeof(float));
}

lt_status lti_choose(lt_sparse *s, lti_scene *sc, const lt_sparse_call *c, bool again)
{
    lti_layer *l = &s->layer[c->layer * s->o.samples + c->sample];
    float now[LTI_SKETCH] = {0};
    sc->chosen = l->chosen;
    sc->words = s->z.words;
    if (l->age > 0) return LT_OK; /* what it leaves out is known of this list */
    LT_TRY(means(s, sc, c));
    if (s->o.spec.drift > 0) LT_TRY(sketch_means(s, sc, now));
    if (again && s->o.spec.drift > 0 && s->o.spec.ramp == 0 && !s->z.refresh &&
        change(now, l->sketch) <= s->o.spec.drift)
        return LT_OK;
    LT_TRY(score(s, sc));
    lti_topk_choose(l->chosen, sc, s->host,
                    s->host + (size_t)s->o.heads * (size_t)sc->nq * (size_t)s->z.nk);
    memcpy(l->sketch, now, sizeof now);
    s->stats.plans++;
    return LT_OK;
}
