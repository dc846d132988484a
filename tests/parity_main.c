/* parity_main.c: golden cases through the same code as the product.
 *
 *   parity FILE.safetensors... [--tol X] [--dtype f32|bf16] [--dev cpu|guard] [--isa NAME] [--threads N]
 *
 * Prints `FILE out.name rel_l2=... max_abs=...` for every output and `FILE skip REASON` for kinds that are not there. Exit 1 when one
 * is over the tolerance, unreadable or missing, 2 for a wrong command line.
 */
#include "tests/parity.h"

#include "video/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kind {
    const char *name;
    lt_parity_fn *run; /* NULL: not there yet */
    double tol;        /* in f32 (golden/README.md, "Tolerance") */
    double tol_bf16;
} kind;

static const kind kinds[] = {
    {"dit", lt_parity_dit, 2e-5, 2e-2},
    {"t5", lt_parity_t5, 2e-5, 2e-2},
    {"vae", lt_parity_vae, 2e-5, 2e-2},
    {"e2e", lt_parity_e2e, 2e-5, 5e-2},
    {"sched", lt_parity_sched, 1e-5, 1e-5},
    {"warp", lt_parity_warp, 2e-5, 2e-5},
    {"taehv", NULL, 0, 0},
    {"causal", lt_parity_causal, 5e-5, 1e-1},
    {"toybox", lt_parity_toybox, 1e-3, 1e-1},
    {"clips", lt_parity_clips, 0, 0},
};

/* ---- arrays ------------------------------------------------------------------------------ */

static const lt_parity_array *find(lt_parity *p, const char *name)
{
    const lti_entry *e = lti_tensors_find(p->arrays, name);
    if (!e || e->dtype != LT_F32) return NULL;
    lt_parity_array *a = calloc(1, sizeof *a);
    void *data = NULL;
    if (!a || posix_memalign(&data, 64, e->bytes + 64)) {
        free(a);
        return NULL;
    }
    if (lti_tensors_read(p->arrays, e, data, 0, e->bytes) < 0) {
        free(data);
        free(a);
        return NULL;
    }
    *a = (lt_parity_array){.data = data, .n = (int64_t)(e->bytes / 4), .ndim = e->ndim};
    memcpy(a->dim, e->dim, sizeof a->dim);
    a->next = p->kept;
    p->kept = a;
    return a;
}

const lt_parity_array *lt_parity_find(lt_parity *p, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return find(p, name);
}

lt_status lt_parity_get(lt_parity *p, const lt_parity_array **out, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    *out = find(p, name);
    if (!*out) return lti_fail(p->ctx, LT_ERR_MISSING, "no F32 array \"%s\"", name);
    return LT_OK;
}

lt_status lt_parity_weights(lt_parity *p, lti_tensors **out, lti_part part, const char *prefix)
{
    return lti_tensors_open(out, p->ctx, p->path, part, prefix);
}

int64_t lt_parity_int(const json_t *obj, const char *key)
{
    return (int64_t)json_number_value(json_object_get(obj, key));
}

double lt_parity_number(const json_t *obj, const char *key)
{
    return json_number_value(json_object_get(obj, key));
}

/* ---- comparing --------------------------------------------------------------------------- */

static void compare(lt_parity *p, const float *got, int64_t n, bool exact, const char *name)
{
    char full[300];
    snprintf(full, sizeof full, "out.%s", name);
    const lt_parity_array *want = find(p, full);
    if (!want) return;
    p->compared++;
    if (want->n != n) {
        printf("%s %s FAILED: %lld values, the file has %lld\n", p->file, full, (long long)n,
               (long long)want->n);
        p->failed++;
        return;
    }
    double diff = 0, norm = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double w = (double)want->data[i], d = (double)got[i] - w;
        diff += d * d;
        norm += w * w;
        /* a NaN must win: fmax would drop it */
        if (!(fabs(d) <= worst)) worst = fabs(d);
    }
    const double rel = norm > 0 ? sqrt(diff / norm) : sqrt(diff);
    const bool good = exact ? worst == 0 : rel <= p->tol && isfinite(worst);
    printf("%s %s rel_l2=%.3g max_abs=%.3g%s\n", p->file, full, rel, worst, good ? "" : " FAILED");
    if (!good) p->failed++;
}

void lt_parity_compare(lt_parity *p, const float *got, int64_t n, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    compare(p, got, n, false, name);
}

void lt_parity_exact(lt_parity *p, const float *got, int64_t n, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    compare(p, got, n, true, name);
}

lt_status lt_parity_compare_device(lt_parity *p, const float *dev, int64_t n, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    float *host = malloc((size_t)n * sizeof *host + 1);
    if (!host) return lti_fail(p->ctx, LT_ERR_MEM, "no memory for %lld values", (long long)n);
    const lt_status s = lt_dev_download(p->dev, host, dev, (size_t)n * sizeof *host);
    if (s >= 0) compare(p, host, n, false, name);
    free(host);
    return s;
}

/* ---- one file ---------------------------------------------------------------------------- */

static const kind *kind_of(const char *name)
{
    for (size_t i = 0; name && i < LT_COUNT(kinds); i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    return NULL;
}

static lt_status run_kind(lt_parity *p, json_t *config, double tol)
{
    const char *name = json_string_value(json_object_get(config, "kind"));
    const kind *k = kind_of(name);
    if (!k) return lti_fail(p->ctx, LT_ERR_FORMAT, "unknown kind \"%s\"", name ? name : "");
    if (!k->run)
        return lti_fail(p->ctx, LT_ERR_UNSUPPORTED, "kind %s is not supported yet", k->name);
    p->config = config;
    p->tol = tol > 0 ? tol : p->dtype == LT_F32 ? k->tol : k->tol_bf16;
    LT_TRY(k->run(p));
    if (!p->compared) return lti_fail(p->ctx, LT_ERR_MISSING, "no output to compare with");
    return LT_OK;
}

static lt_status run_file(lt_parity *p, double tol)
{
    LT_TRY(lti_tensors_open(&p->arrays, p->ctx, p->path, LTI_PART_RAW, NULL));
    const char *text = lti_tensors_metadata(p->arrays, "config");
    if (!text) return lti_fail(p->ctx, LT_ERR_FORMAT, "no \"config\" in __metadata__");
    json_t *config;
    LT_TRY(lti_json_parse(&config, p->ctx, text, strlen(text), 16, p->file));
    const lt_status s = run_kind(p, config, tol);
    json_decref(config);
    return s;
}

/* 0: fine or skipped. */
static int check_file(lt_parity *p, double tol)
{
    const lt_status s = run_file(p, tol);
    int failed = p->failed;
    if (s == LT_ERR_UNSUPPORTED) {
        printf("%s skip %s\n", p->file, lt_error(p->ctx));
    } else if (s < 0) {
        printf("%s FAILED: %s: %s\n", p->file, lt_status_text(s), lt_error(p->ctx));
        failed++;
    }
    fflush(stdout);
    while (p->kept) {
        lt_parity_array *a = p->kept;
        p->kept = a->next;
        free(a->data);
        free(a);
    }
    lti_tensors_close(&p->arrays);
    return failed;
}

/* ---- command line ------------------------------------------------------------------------ */

typedef struct args {
    const char **file;
    int files;
    double tol;
    lt_dtype dtype;
    lt_dev_options dev;
} args;

static int usage(void)
{
    fprintf(stderr, "usage: parity FILE.safetensors... [--tol X] [--dtype f32|bf16] "
                    "[--dev cpu|guard] [--isa NAME] [--threads N]\n");
    return 2;
}

static bool option(args *a, const char *name, const char *value)
{
    if (!strcmp(name, "--tol")) {
        char *end;
        a->tol = strtod(value, &end);
        return *value && !*end && a->tol > 0;
    }
    if (!strcmp(name, "--dtype")) {
        a->dtype = !strcmp(value, "bf16") ? LT_BF16 : LT_F32;
        return a->dtype == LT_BF16 || !strcmp(value, "f32");
    }
    if (!strcmp(name, "--dev")) {
        a->dev.device = value;
        return true;
    }
    if (!strcmp(name, "--isa")) {
        a->dev.isa = value;
        return true;
    }
    if (!strcmp(name, "--threads")) {
        a->dev.threads = atoi(value);
        return a->dev.threads > 0;
    }
    return false;
}

static bool parse(args *a, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2))
            a->file[a->files++] = argv[i];
        else if (i + 1 == argc || !option(a, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return a->files > 0;
}

static int run_all(lt_ctx *ctx, const args *a)
{
    lt_dev *dev;
    if (lt_dev_create(&dev, ctx, &a->dev) < 0) {
        fprintf(stderr, "parity: %s\n", lt_error(ctx));
        return 2;
    }
    int failed = 0;
    for (int i = 0; i < a->files; i++) {
        const char *slash = strrchr(a->file[i], '/');
        lt_parity p = {.ctx = ctx,
                       .dev = dev,
                       .dtype = a->dtype,
                       .path = a->file[i],
                       .file = slash ? slash + 1 : a->file[i]};
        failed += check_file(&p, a->tol);
    }
    lt_dev_destroy(&dev);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    args a = {.file = calloc((size_t)argc, sizeof(char *)),
              .dtype = LT_F32,
              .dev = lt_dev_options_default()};
    if (!a.file || !parse(&a, argc, argv)) {
        free(a.file);
        return usage();
    }
    lt_ctx *ctx;
    int rc = 2;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) >= 0) {
        rc = run_all(ctx, &a);
        lt_ctx_destroy(&ctx);
    }
    free(a.file);
    return rc;
}
