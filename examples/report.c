/* report.c: what a run cost: --report and the figures of `bench`. */
#include "examples/command.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a rename would replace: nothing, or a regular file when it may. */
static lt_status check_target(lt_ctx *ctx, const char *path, bool overwrite)
{
    struct stat st;
    if (lstat(path, &st)) return LT_OK; /* what else may be wrong, making the part tells */
    if (S_ISLNK(st.st_mode))
        return lti_fail(ctx, LT_ERR_IO, "cannot write '%s': it is a symbolic link", path);
    if (!S_ISREG(st.st_mode))
        return lti_fail(ctx, LT_ERR_IO, "'%s' is not a regular file and is not replaced", path);
    if (!overwrite)
        return lti_fail(ctx, LT_ERR_IO, "'%s' exists already (--overwrite replaces it)", path);
    return LT_OK;
}

static lt_status own_part(int *fd, char *part, size_t size, lt_ctx *ctx, const char *path)
{
    const int n = snprintf(part, size, "%s.part", path);
    if (n < 0 || (size_t)n >= size)
        return lti_fail(ctx, LT_ERR_IO, "cannot write '%.80s...': the path is too long", path);
    return lti_file_own(fd, ctx, part, 0);
}

lt_status lti_json_write(lt_ctx *ctx, const char *path, const json_t *value)
{
    char part[4200];
    int fd;
    LT_TRY(check_target(ctx, path, true));
    LT_TRY(own_part(&fd, part, sizeof part, ctx, path));
    char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    FILE *f = text ? fdopen(fd, "w") : NULL;
    if (!f) {
        free(text);
        unlink(part);
        close(fd);
        return lti_fail(ctx, LT_ERR_MEM, "no memory for '%s'", path);
    }
    int bad = ftruncate(fd, 0) || fprintf(f, "%s\n", text) < 0 ? errno : 0;
    if (fflush(f) && !bad) bad = errno;
    if (!bad && rename(part, path)) bad = errno; /* while it is locked */
    if (bad) unlink(part);
    fclose(f);
    free(text);
    return bad ? lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", path, strerror(bad)) : LT_OK;
}

lt_status lti_json_check(lt_ctx *ctx, const char *path, bool overwrite)
{
    char part[4200];
    int fd;
    LT_TRY(check_target(ctx, path, overwrite));
    LT_TRY(own_part(&fd, part, sizeof part, ctx, path));
    unlink(part);
    close(fd);
    return LT_OK;
}

json_t *lti_memory_json(const lt_dev *dev)
{
    lt_mem_stats m;
    struct rusage u = {0};
    lt_dev_mem_stats(dev, &m);
    getrusage(RUSAGE_SELF, &u);
    json_t *tags = json_object();
    for (int t = 0; t < LT_TAG_COUNT; t++)
        if (m.peak_bytes[t])
            json_object_set_new(tags, lt_tag_name((lt_tag)t),
                                json_integer((json_int_t)m.peak_bytes[t]));
    return json_pack("{s:I, s:o, s:I, s:I}", "peak_total", (json_int_t)m.peak_total, "peak_by_tag",
                     tags, "process_peak", (json_int_t)u.ru_maxrss * 1024, "alloc_calls",
                     (json_int_t)m.alloc_calls);
}

json_t *lti_peak_json(lt_dev *dev, int ms, lt_peak *peak)
{
    const lt_peak p = *peak = lt_peak_measure(dev, ms);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:i}", "f32_fma_flops", p.fma_flops,
                     "bf16_dot_flops", p.dot_flops, "f16_fma_flops", p.half_flops,
                     "f32_fma_burst_flops", p.fma_burst, "bf16_dot_burst_flops", p.dot_burst,
                     "f16_fma_burst_flops", p.half_burst, "copy_bytes", p.copy_bytes, "isa",
                     lt_dev_isa(dev), "threads", lt_dev_threads(dev));
}

static json_t *rate_json(double seconds, double flops, double peak)
{
    const double rate = seconds > 0 ? flops / seconds : 0;
    return json_pack("{s:f, s:f, s:f, s:o}", "seconds", seconds, "flops", flops, "flops_per_second",
                     rate, "share_of_peak", peak > 0 ? json_real(rate / peak) : json_null());
}

/* How its bytes come about: frames x tokens x layers x two (key, value) x width x bytes of a number x branches, and tables. */
static json_t *cache_json(const lt_cache_report *c)
{
    if (!c->frames) return json_null();
    const json_int_t numbers = (json_int_t)c->frames * c->tokens * c->layers * 2 * c->width;
    const json_int_t bytes = numbers * c->number_bytes * c->branches;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I}", "window_frames",
                     c->frames, "block_frames", c->block, "sink_frames", c->sink, "tokens_of_frame",
                     c->tokens, "layers", c->layers, "width", c->width, "number_bytes",
                     c->number_bytes, "branches", c->branches, "frame_bytes", bytes / c->frames,
                     "keys_and_values_bytes", bytes, "tables_bytes", (json_int_t)c->bytes - bytes);
}

lt_status lti_report_write(lt_ctx *ctx, const char *path, const lti_job *j)
{
    const lt_session_report *r = &j->report;
    const lt_estimate *e = &j->estimate;
    const lt_dtype type = j->info->dtype;
    lt_peak peak = {0};
    json_t *memory = lti_memory_json(j->dev); /* before the peak takes its own */
    json_t *pace = lti_pace_json(&j->pace);
    /* who has stopped a render does not wait for it */
    json_t *machine =
        lti_interrupted(j->interrupt) ? json_null() : lti_peak_json(j->dev, 30, &peak);
    json_t *blocks =
        json_pack("{s:I, s:f, s:I, s:o, s:O*, s:o*}", "count", (json_int_t)r->blocks, "seconds_max",
                  r->block_seconds_max, "cache_bytes", (json_int_t)r->cache_bytes, "cache",
                  cache_json(&r->cache), "prompts", j->prompts, "pace", pace);
    json_t *passes =
        json_pack("{s:i, s:f, s:I, s:b}", "dit_passes", r->dit_passes, "seconds_per_pass",
                  r->dit_passes ? r->denoise_seconds / r->dit_passes : 0, "step_allocs",
                  (json_int_t)r->step_allocs, "cfg_batch", r->cfg_batch);
    json_t *estimate = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "cache", (json_int_t)e->cache, "weights",
        (json_int_t)e->weights, "text", (json_int_t)e->text, "latent", (json_int_t)e->latent,
        "activation", (json_int_t)e->activation, "vae", (json_int_t)e->vae, "total_peak",
        (json_int_t)e->total_peak, "available", (json_int_t)e->available, "flops", e->flops);
    json_t *report = json_pack(
        "{s:s, s:O, s:I, s:f, s:f, s:f, s:I, s:{s:f, s:f, s:f}, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "file", j->made ? j->made : "", "parameters", j->params, "frames", (json_int_t)j->frames,
        "attention_density", r->attention_density, "sparse_density", r->sparse_density,
        "planning_seconds", r->planning_seconds, "tokens", (json_int_t)r->tokens, "seconds",
        "total", r->total_seconds, "first_frame", r->first_frame_seconds, "text", r->text_seconds,
        "denoise", rate_json(r->denoise_seconds, r->dit_flops, lt_peak_of(&peak, type, false)),
        "decode", rate_json(r->decode_seconds, r->vae_flops, lt_peak_of(&peak, type, true)),
        "blocks", blocks, "passes", passes, "memory_bytes", memory, "estimate_bytes", estimate,
        "machine_peak", machine);
    if (j->drift)
        json_object_set_new(
            report, "drift",
            json_pack("{s:o, s:O}", "summary", lti_drift_summary(r), "vectors", j->drift));
    const lt_status s = lti_json_write(ctx, path, report);
    json_decref(report);
    return s;
}
