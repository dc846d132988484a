/* bench_attention.c: one call of self-attention, dense and with every method, at a chosen shape: seconds, how many times faster than
 * our own dense kernel (measured in turn with it, so that other work on the machine slows down both), share of the machine's peak, recall
 * and error of the output.
 *
 * Queries and keys are made, not taken from a model: features of place in time and space whose width differs by head, and noise, so that
 * a token attends to its surroundings as heads of video models do. Seconds depend on the lists alone; recall and error are those of this
 * data. Recall = exp(lse of what was read - lse of all): the exact part of the weight that was kept, row by row. */
#include "attention/attention.h"
#include "examples/bench.h"
#include "examples/numbers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_DIM = 128, MAX_REPEAT = 100 };

/* Densities near 0.3, 0.2 and 0.1 for each; radial and svg cannot go under what their bands take. */
static const char default_methods[] =
    "sta:window=5x3x5 sta:window=3x3x7 sta:window=3x3x3 svg:density=0.3 radial:decay=0.2 "
    "topk:keep=0.3 topk:keep=0.2 topk:keep=0.1 topk:keep=0.2,centroid topk:keep=0.1,centroid";

typedef struct bench {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_grid grid;
    int32_t heads, repeat;
    lt_dtype dtype;
    int64_t n, cols;
    float *host[3];    /* q, k, v in the order of tokens */
    float *out, *want; /* [n, cols], order of tokens: of a method, of dense */
    float *lse, *want_lse;
    lt_mat q, k, v, result; /* device; result f32 */
    float *dev_lse, *stage;
    lt_plan *dense;
    double peak;
    json_t *rows;
} bench;

typedef struct figures {
    char name[128];
    double density, seconds, dense_seconds, planning, speedup, speedup_low, share, recall, recall5,
        error;
} figures;

static int by_float(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* ---- data ---- */

static double uniform(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (double)(*s >> 11) / 9007199254740992.0;
}

static double normal(uint64_t *s)
{
    return sqrt(-2 * log(uniform(s) + 1e-300)) * cos(6.283185307179586 * uniform(s));
}

/* cos(w . place + phase): products of such features fall with distance, over a width that is 1 / the spread of w. */
static void fill_head(bench *b, int32_t head)
{
    uint64_t s = (uint64_t)head + 1;
    const double wide_time = 1.0 + 4 * uniform(&s), wide_space = 2.0 + 8 * uniform(&s);
    for (int c = 0; c < HEAD_DIM; c++) {
        const double w[3] = {normal(&s) / wide_time, normal(&s) / wide_space,
                             normal(&s) / wide_space};
        const double phase = 6.283185307179586 * uniform(&s);
        for (int64_t i = 0; i < b->n; i++) {
            const int64_t at = i * b->cols + (int64_t)head * HEAD_DIM + c;
            const double f = (double)(i / b->grid.cols / b->grid.rows),
                         y = (double)(i / b->grid.cols % b->grid.rows),
                         x = (double)(i % b->grid.cols);
            const double feature = 1.3 * cos(w[0] * f + w[1] * y + w[2] * x + phase);
            b->host[0][at] = (float)(feature + 0.5 * (2 * uniform(&s) - 1));
            b->host[1][at] = (float)(feature + 0.5 * (2 * uniform(&s) - 1));
            b->host[2][at] = (float)(0.3 * feature + 2 * uniform(&s) - 1);
        }
    }
}

/* Rows in a method's order (order NULL: as tokens), converted to the type of the run. */
static lt_status upload(bench *b, lt_mat to, const float *host, const int32_t *order, float *rows)
{
    const size_t row = (size_t)b->cols * sizeof *rows;
    for (int64_t i = 0; i < b->n; i++)
        memcpy(rows + (order ? order[i] : i) * b->cols, host + i * b->cols, row);
    LT_TRY(lt_dev_upload(b->dev, b->stage, rows, (size_t)b->n * row));
    return lt_convert(
        b->dev, &(lt_convert_args){
                    .out = to, .x = {b->stage, LT_F32, b->cols}, .rows = b->n, .cols = b->cols});
}

static lt_status put_data(bench *b, const int32_t *order)
{
    LT_TRY(upload(b, b->q, b->host[0], order, b->out));
    LT_TRY(upload(b, b->k, b->host[1], order, b->out));
    return upload(b, b->v, b->host[2], order, b->out);
}

/* The result back into the order of tokens; stage and b->want are free to use only before the dense result is there. */
static lt_status get_result(bench *b, float *out, float *lse, const int32_t *order)
{
    const size_t bytes = (size_t)(b->n * b->cols) * sizeof(float);
    float *rows = malloc(bytes), *all = malloc((size_t)(b->n * b->heads) * sizeof(float));
    lt_status s = rows && all ? LT_OK : lti_fail(b->ctx, LT_ERR_MEM, "no memory for a result");
    if (s == LT_OK) s = lt_dev_download(b->dev, rows, b->result.data, bytes);
    if (s == LT_OK)
        s = lt_dev_download(b->dev, all, b->dev_lse, (size_t)(b->n * b->heads) * sizeof(float));
    for (int64_t i = 0; s == LT_OK && i < b->n; i++) {
        const int64_t r = order ? order[i] : i;
        memcpy(out + i * b->cols, rows + r * b->cols, (size_t)b->cols * sizeof *out);
        for (int32_t h = 0; h < b->heads; h++)
            lse[h * b->n + i] = all[h * b->n + r];
    }
    free(all);
    free(rows);
    return s;
}

/* ---- runs ---- */

static lt_status attend(bench *b, const lt_attn_plan *plan, float *lse)
{
    return lt_attention(b->dev, &(lt_attention_args){.out = b->result,
                                                     .q = b->q,
                                                     .k = b->k,
                                                     .v = b->v,
                                                     .lq = b->n,
                                                     .lk = b->n,
                                                     .heads = b->heads,
                                                     .head_dim = HEAD_DIM,
                                                     .scale = (float)(1 / sqrt(HEAD_DIM)),
                                                     .plan = plan,
                                                     .lse = lse});
}

static lt_status run_sparse(bench *b, lt_sparse *s)
{
    const lt_attn_plan *plan;
    const lt_sparse_call c = {
        .progress = 1, .q = b->q, .k = b->k, .v = b->v, .lq = b->n, .lk = b->n};
    LT_TRY(lt_sparse_plan(s, &plan, &c));
    float *lse = lt_sparse_lse(s);
    LT_TRY(attend(b, plan, lse ? lse : b->dev_lse));
    if (!lse) return LT_OK;
    LT_TRY(lt_sparse_finish(s, &c, b->result));
    return lt_dev_copy(b->dev, b->dev_lse, lse, (size_t)(b->n * b->heads) * sizeof(float));
}

static lt_status compare(bench *b, figures *f)
{
    const int64_t rows = b->n * b->heads;
    double far = 0, all = 0, kept = 0;
    for (int64_t i = 0; i < b->n * b->cols; i++) {
        const double e = (double)b->out[i] - (double)b->want[i];
        far += e * e;
        all += (double)b->want[i] * (double)b->want[i];
    }
    for (int64_t i = 0; i < rows; i++) {
        b->lse[i] = expf(b->lse[i] - b->want_lse[i]);
        kept += (double)b->lse[i];
    }
    qsort(b->lse, (size_t)rows, sizeof *b->lse, by_float);
    f->error = sqrt(far / all);
    f->recall = kept / (double)rows;
    f->recall5 = (double)b->lse[rows / 20];
    return LT_OK;
}

/* Dense and sparse in turn; the speed-up is the median of the pairs. Lists are made anew in every run. */
static lt_status time_method(bench *b, lt_sparse *s, figures *f)
{
    double dense[MAX_REPEAT], sparse[MAX_REPEAT], ratio[MAX_REPEAT];
    const size_t n = (size_t)b->repeat;
    lt_sparse_stats before, after;
    LT_TRY(run_sparse(b, s)); /* scratch is made and pages are touched */
    LT_TRY(get_result(b, b->out, b->lse, lt_sparse_order(s)));
    lt_sparse_get_stats(s, &before);
    for (int32_t i = 0; i < b->repeat; i++) {
        double t = lti_now();
        LT_TRY(attend(b, lt_plan_kernel(b->dense), NULL));
        dense[i] = lti_now() - t;
        t = lti_now();
        LT_TRY(run_sparse(b, s));
        sparse[i] = lti_now() - t;
        ratio[i] = dense[i] / sparse[i];
    }
    lt_sparse_get_stats(s, &after);
    f->planning = (after.seconds - before.seconds) / b->repeat;
    f->density = after.sparse_all > 0 ? after.sparse_read / after.sparse_all : 1;
    f->speedup = lti_median(ratio, n);
    f->speedup_low = ratio[0];
    f->seconds = lti_median(sparse, n);
    f->dense_seconds = lti_median(dense, n);
    const double flops = 4 * (double)b->n * (double)b->n * (double)b->cols * f->density;
    f->share = b->peak > 0 ? flops / f->seconds / b->peak : 0;
    return compare(b, f);
}

static void print_header(const bench *b)
{
    printf("%dx%dx%d = %" PRId64 " tokens, %d heads of %d, %s, %s, %d threads; peak %.1f GFLOP/s\n",
           b->grid.frames, b->grid.rows, b->grid.cols, b->n, b->heads, HEAD_DIM,
           lt_dtype_name(b->dtype), lt_dev_isa(b->dev), lt_dev_threads(b->dev), b->peak / 1e9);
    printf("%-34s %7s %9s %9s %8s %7s %6s %7s %7s %8s\n", "method", "density", "seconds",
           "planning", "x dense", "(least)", "peak", "recall", "p5", "error");
}

static void report(bench *b, const figures *f, const lt_sparse_spec *spec)
{
    printf("%-34s %7.4f %9.4f %9.4f %7.2fx %6.2fx %5.1f%% %7.4f %7.4f %8.5f\n", f->name, f->density,
           f->seconds, f->planning, f->speedup, f->speedup_low, 100 * f->share, f->recall,
           f->recall5, f->error);
    fflush(stdout);
    json_array_append_new(
        b->rows, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "method",
                           lt_sparse_name(spec->method), "attention", f->name, "density",
                           f->density, "seconds", f->seconds, "dense_seconds", f->dense_seconds,
                           "planning_seconds", f->planning, "speedup", f->speedup, "speedup_least",
                           f->speedup_low, "share_of_peak", f->share, "recall", f->recall,
                           "recall_p5", f->recall5, "output_error", f->error));
}

static lt_status measure_method(bench *b, const char *text)
{
    figures f = {0};
    lt_sparse *s;
    lt_sparse_options o = {.grid = b->grid,
                           .heads = b->heads,
                           .head_dim = HEAD_DIM,
                           .layers = 1,
                           .samples = 1,
                           .dtype = b->dtype};
    LT_TRY(lt_sparse_parse(&o.spec, b->ctx, text));
    snprintf(f.name, sizeof f.name, "%s%s", text, o.spec.refresh ? " (list)" : "");
    o.spec.warmup = o.spec.drift = 0;
    o.spec.layers = o.spec.refresh = 0; /* a call with its list: refresh is of several steps */
    if (!o.spec.method) return LT_OK;
    LT_TRY(lt_sparse_create(&s, b->dev, &o));
    lt_status st = put_data(b, lt_sparse_order(s));
    if (st == LT_OK) st = time_method(b, s, &f);
    lt_sparse_destroy(&s);
    if (st == LT_OK) report(b, &f, &o.spec);
    return st;
}

/* ---- the whole ---- */

static lt_status prepare(bench *b, const lti_settings *set)
{
    const size_t n = (size_t)b->n * (size_t)b->cols, rows = (size_t)b->n * (size_t)b->heads;
    lt_mat *const mats[] = {&b->q, &b->k, &b->v, &b->result};
    b->dtype = set->dtype == LTI_DTYPE_F32 ? LT_F32 : LT_BF16;
    for (int i = 0; i < 3; i++)
        b->host[i] = malloc(n * sizeof(float));
    b->out = malloc(n * sizeof(float));
    b->want = malloc(n * sizeof(float));
    b->lse = malloc(rows * sizeof(float));
    b->want_lse = malloc(rows * sizeof(float));
    b->rows = json_array();
    if (!b->host[0] || !b->host[1] || !b->host[2] || !b->out || !b->want || !b->lse ||
        !b->want_lse || !b->rows)
        return lti_fail(b->ctx, LT_ERR_MEM, "no memory for %zu numbers", 5 * n);
    for (size_t i = 0; i < LT_COUNT(mats); i++) {
        *mats[i] = (lt_mat){.dtype = i == 3 ? LT_F32 : b->dtype, .ld = b->cols};
        LT_TRY(lt_dev_alloc(b->dev, &mats[i]->data, n * lt_dtype_size(mats[i]->dtype),
                            LT_TAG_ACTIVATION));
    }
    LT_TRY(lt_dev_alloc(b->dev, (void **)&b->stage, n * sizeof(float), LT_TAG_ACTIVATION));
    LT_TRY(lt_dev_alloc(b->dev, (void **)&b->dev_lse, rows * sizeof(float), LT_TAG_ACTIVATION));
    for (int32_t h = 0; h < b->heads; h++)
        fill_head(b, h);
    LT_TRY(lt_plan_dense(&b->dense, b->dev, b->n, b->n, b->heads));
    LT_TRY(put_data(b, NULL));
    LT_TRY(attend(b, lt_plan_kernel(b->dense), b->dev_lse));
    return get_result(b, b->want, b->want_lse, NULL);
}

static lt_status measure_all(bench *b, const char *list)
{
    char text[2048];
    if (strlen(list) >= sizeof text)
        return lti_fail(b->ctx, LT_ERR_ARG, "--methods: more than %zu bytes", sizeof text - 1);
    strcpy(text, list);
    for (char *save, *at = strtok_r(text, " ", &save); at; at = strtok_r(NULL, " ", &save))
        LT_TRY(measure_method(b, at));
    return LT_OK;
}

static lt_status write_csv(lt_ctx *ctx, const char *path, const json_t *rows)
{
    static const char *const keys[] = {
        "density",       "seconds",       "dense_seconds", "planning_seconds", "speedup",
        "speedup_least", "share_of_peak", "recall",        "recall_p5",        "output_error"};
    FILE *f = lti_text_create(ctx, path);
    if (!f) return LT_ERR_IO;
    fputs("attention", f);
    for (size_t k = 0; k < LT_COUNT(keys); k++)
        fprintf(f, ",%s", keys[k]);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        fprintf(f, "\n\"%s\"", json_string_value(json_object_get(r, "attention")));
        for (size_t k = 0; k < LT_COUNT(keys); k++)
            fprintf(f, ",%.6g", json_real_value(json_object_get(r, keys[k])));
    }
    fputc('\n', f);
    return lti_text_end(f, ctx, path, LT_OK);
}

static lt_status write_files(bench *b, const lti_settings *set, json_t *machine)
{
    json_t *all = json_pack(
        "{s:[i,i,i], s:I, s:i, s:i, s:s, s:s, s:i, s:i, s:O, s:O}", "grid", b->grid.frames,
        b->grid.rows, b->grid.cols, "tokens", (json_int_t)b->n, "heads", b->heads, "head_dim",
        HEAD_DIM, "dtype", lt_dtype_name(b->dtype), "isa", lt_dev_isa(b->dev), "threads",
        lt_dev_threads(b->dev), "repeat", b->repeat, "machine_peak", machine, "methods", b->rows);
    lt_status s = set->json_file ? lti_json_write(b->ctx, set->json_file, all) : LT_OK;
    if (s == LT_OK && set->csv) s = write_csv(b->ctx, set->csv, b->rows);
    json_decref(all);
    return s;
}

static void close_bench(bench *b)
{
    lt_mat *const mats[] = {&b->q, &b->k, &b->v, &b->result};
    lt_plan_destroy(&b->dense);
    for (size_t i = 0; b->dev && i < LT_COUNT(mats); i++)
        lt_dev_free(b->dev, mats[i]->data);
    if (b->dev) lt_dev_free(b->dev, b->stage);
    if (b->dev) lt_dev_free(b->dev, b->dev_lse);
    for (int i = 0; i < 3; i++)
        free(b->host[i]);
    free(b->out);
    free(b->want);
    free(b->lse);
    free(b->want_lse);
    json_decref(b->rows);
    lt_dev_destroy(&b->dev);
}

lt_status lti_bench_attention(lt_ctx *ctx, const lti_settings *set)
{
    const int32_t width = set->size.width ? set->size.width : 832,
                  height = set->size.height ? set->size.height : 480,
                  frames = set->num_frames ? set->num_frames : 81;
    if (width % 16 || height % 16 || frames % 4 != 1)
        return lti_fail(ctx, LT_ERR_ARG,
                        "bench attention: %d frames of %dx%d: sides are multiples of 16, frames "
                        "4 k + 1",
                        frames, width, height);
    bench b = {.ctx = ctx,
               .grid = {(frames - 1) / 4 + 1, height / 16, width / 16},
               .heads = set->heads,
               .repeat = set->repeat};
    b.n = lt_grid_tokens(b.grid);
    b.cols = (int64_t)b.heads * HEAD_DIM;
    LT_TRY(lti_device_open(&b.dev, ctx, set));
    lt_peak peak;
    json_t *machine = lti_peak_json(b.dev, 300, &peak);
    b.peak = lt_peak_of(&peak, set->dtype == LTI_DTYPE_F32 ? LT_F32 : LT_BF16, false);
    lt_status s = prepare(&b, set);
    if (s == LT_OK) {
        print_header(&b);
        s = measure_all(&b, set->methods ? set->methods : default_methods);
    }
    if (s == LT_OK) s = write_files(&b, set, machine);
    json_decref(machine);
    close_bench(&b);
    return s;
}
