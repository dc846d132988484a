/* pointwise_tiles.h: what planning of sparse attention needs, on spans; included by pointwise_spans.h. Tiles are few and rows of scores
 * short: all of it is a few parts in a thousand of the attention that it plans. */

/* One tile. Rows are added one after the other, so that the order of sums is the rows' order. */
static void tilemean_tile(const lt_tilemean_args *a, int64_t t)
{
    const int64_t D = a->head_dim, C = a->heads * D;
    const int64_t ldx = lti_ld(&a->x, C), o = t * lti_ld(&a->out, C);
    const int64_t begin = a->off[t], end = a->off[t + 1];
    float turn[LTI_MAX_HEAD_DIM], sum[LTI_MAX_HEAD_DIM];
    for (int64_t h = 0; h < C; h += D) {
        memset(sum, 0, (size_t)D * sizeof *sum);
        for (int64_t r = begin; r < end; r++) {
            if (a->rope) gather_turns(turn, a->rope, r);
            for (int64_t d = 0; d < D; d += VL) {
                vf v = vf_get(a->x.data, a->x.dtype, r * ldx + h + d, D - d);
                if (a->rope) v = vf_turn(v, vf_load_n(turn + d, D - d));
                vf_store_n(sum + d, vf_load_n(sum + d, D - d) + v, D - d);
            }
        }
        const vf scale = vf_set(end > begin ? 1.0f / (float)(end - begin) : 0.0f);
        for (int64_t d = 0; d < D; d += VL)
            vf_emit(a->out.data, a->out.dtype, o + h + d, D - d, vf_load_n(sum + d, D - d) * scale,
                    false);
    }
}

static void tilemean_span(const void *args, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++)
        tilemean_tile(args, t);
}

/* Row n of the output is head n / lq, query n % lq. */
static void tilescore_span(const void *args, int64_t begin, int64_t end)
{
    const lt_tilescore_args *a = args;
    const int64_t D = a->head_dim, C = a->heads * D;
    const int64_t ldq = lti_ld(&a->q, C), ldk = lti_ld(&a->k, C);
    for (int64_t n = begin; n < end; n++) {
        const float *q = (const float *)a->q.data + n % a->lq * ldq + n / a->lq * D;
        const float *k = (const float *)a->k.data + n / a->lq * D;
        float *out = a->out + n * a->lk;
        for (int64_t j = 0; j < a->lk; j++, k += ldk) {
            vf s = vf_set(0);
            for (int64_t d = 0; d < D; d += VL)
                s = vf_fma(vf_load_n(q + d, D - d), vf_load_n(k + d, D - d), s);
            out[j] = a->scale * vf_sum(s);
        }
    }
}

static void merge_row(const lt_merge_args *a, int64_t r)
{
    const int64_t D = a->head_dim, C = a->heads * D;
    const int64_t o = r * lti_ld(&a->out, C), x = r * lti_ld(&a->x, C);
    for (int64_t h = 0; h < a->heads; h++) {
        float *lse = a->lse + h * a->rows + r;
        const float theirs = a->x_lse[h * a->rows + r], top = fmaxf(*lse, theirs);
        const bool none = top == -INFINITY;
        const float w = none ? 0 : expf(*lse - top), w2 = none ? 0 : expf(theirs - top);
        const float all = none ? 1 : w + w2;
        const vf u = vf_set(w / all), u2 = vf_set(w2 / all);
        for (int64_t d = 0; d < D; d += VL) {
            const vf mine = vf_get(a->out.data, a->out.dtype, o + h * D + d, D - d);
            const vf add = vf_get(a->x.data, a->x.dtype, x + h * D + d, D - d);
            vf_emit(a->out.data, a->out.dtype, o + h * D + d, D - d, vf_fma(mine, u, add * u2),
                    false);
        }
        *lse = none ? -INFINITY : top + logf(all);
    }
}

static void merge_span(const void *args, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        merge_row(args, r);
}
