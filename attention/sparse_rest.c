/* sparse_rest.c: what stands in for the keys that are not read: their means (topk's centroids), or what they added at the last step that
 * read all keys. Both join the output after attention. */
#include "attention/sparse_internal.h"

#include <math.h>

lt_mat lti_whole(const lt_sparse *s, void *data)
{
    return (lt_mat){data, s->o.dtype, (int64_t)s->o.heads * s->o.head_dim};
}

lt_status lti_add_means(lt_sparse *s, const lt_sparse_call *c, lt_mat out)
{
    const lt_mat rest = lti_whole(s, s->rest_out);
    LT_TRY(
        lt_attention(s->dev, &(lt_attention_args){.out = rest,
                                                  .q = c->q,
                                                  .k = lti_whole(s, s->rest_k),
                                                  .v = lti_whole(s, s->rest_v),
                                                  .lq = c->lq,
                                                  .lk = s->z.nk,
                                                  .heads = s->o.heads,
                                                  .head_dim = s->o.head_dim,
                                                  .scale = (float)(1 / sqrt((double)s->o.head_dim)),
                                                  .plan = &s->rest.kernel,
                                                  .lse = s->rest_lse}));
    return lt_merge(s->dev, &(lt_merge_args){.out = out,
                                             .x = rest,
                                             .lse = s->lse,
                                             .x_lse = s->rest_lse,
                                             .rows = c->lq,
                                             .heads = s->o.heads,
                                             .head_dim = s->o.head_dim});
}

lt_status lti_upload_minus_one(lt_sparse *s)
{
    const int32_t cols = s->o.heads * s->o.head_dim;
    for (int32_t i = 0; i < cols; i++)
        s->host[i] = -1;
    return lt_dev_upload(s->dev, s->minus_one, s->host, (size_t)cols * sizeof(float));
}

static lt_mat missing_of(const lt_sparse *s, const lt_sparse_call *c)
{
    const size_t at = (size_t)(c->layer * s->o.samples + c->sample);
    lt_mat m = lti_whole(s, s->missing);
    m.data = (char *)m.data +
             at * (size_t)lt_grid_tokens(s->o.grid) * (size_t)m.ld * lt_dtype_size(s->o.dtype);
    return m;
}

lt_status lti_add_missing(lt_sparse *s, const lt_sparse_call *c, lt_mat out)
{
    const lt_mat missing = missing_of(s, c);
    lt_map_args m = {.out = out, .x = out, .y = missing, .rows = c->lq, .cols = missing.ld};
    m.add = true;
    if (!s->fresh) return lt_map(s->dev, &m);
    lt_map_args negative = {.out = missing, .x = lti_whole(s, s->rest_out), .rows = c->lq};
    negative.cols = missing.ld;
    negative.y = (lt_mat){s->minus_one, LT_F32, missing.ld};
    negative.y_rows = 1;
    LT_TRY(lt_map(s->dev, &negative));
    m.out = missing;
    return lt_map(s->dev, &m);
}
