/* pace.c: how evenly a video of blocks came: what each block took, frames a second, and memory once rolling out should have settled. */
#include "examples/command.h"
#include "examples/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SETTLED = 20 }; /* blocks: by then every window of the presets is full */

lt_status lti_pace_open(lti_pace *p, lt_ctx *ctx, int64_t blocks)
{
    *p = (lti_pace){.most = blocks, .block = -1};
    p->drawing = calloc((size_t)blocks, sizeof *p->drawing);
    p->decoding = calloc((size_t)blocks, sizeof *p->decoding);
    if (p->drawing && p->decoding) return LT_OK;
    lti_pace_close(p);
    return lti_fail(ctx, LT_ERR_MEM, "no memory for the times of %lld blocks", (long long)blocks);
}

void lti_pace_close(lti_pace *p)
{
    free(p->drawing);
    free(p->decoding);
    *p = (lti_pace){0};
}

static lti_pace_memory memory_now(const lt_dev *dev)
{
    lt_mem_stats m;
    struct rusage u = {0};
    lt_dev_mem_stats(dev, &m);
    getrusage(RUSAGE_SELF, &u);
    return (lti_pace_memory){m.peak_total, (uint64_t)u.ru_maxrss * 1024};
}

void lti_pace_add(lti_pace *p, const lt_frames *f, const lt_dev *dev)
{
    if (!p->count || f->block != p->block) {
        if (p->count == p->most) return; /* a session that draws more than its frames need */
        p->block = f->block;
        p->drawing[p->count++] = f->block_seconds;
        p->last = memory_now(dev);
        if (p->count == SETTLED + 1) p->settled = p->last;
    }
    p->decoding[p->count - 1] += f->decode_seconds;
    if (p->count > 1) p->frames += f->count;
}

json_t *lti_quantiles_json(double *v, int64_t n)
{
    static const double part[] = {0.5, 0.9, 0.99};
    double at[LT_COUNT(part)];
    lti_sort(v, (size_t)n);
    for (size_t i = 0; i < LT_COUNT(part); i++)
        at[i] = v[(int64_t)ceil(part[i] * (double)n) - 1];
    return json_pack("{s:f, s:f, s:f, s:f}", "p50", at[0], "p90", at[1], "p99", at[2], "max",
                     v[n - 1]);
}

static json_t *memory_json(const lti_pace_memory *m)
{
    if (!m->process) return NULL;
    return json_pack("{s:I, s:I}", "peak_total", (json_int_t)m->tensors, "process_peak",
                     (json_int_t)m->process);
}

json_t *lti_pace_json(const lti_pace *p)
{
    const int64_t n = p->count - 1; /* the first one warms up */
    double *v = n > 0 ? malloc(2 * (size_t)n * sizeof *v) : NULL;
    if (!v) return NULL;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        v[i] = p->drawing[1 + i];
        v[n + i] = p->drawing[1 + i] + p->decoding[1 + i];
        sum += v[n + i];
    }
    json_t *all = json_pack(
        "{s:I, s:o, s:o, s:f, s:o*, s:o}", "blocks", (json_int_t)n, "drawing_seconds",
        lti_quantiles_json(v, n), "seconds", lti_quantiles_json(v + n, n), "frames_per_second",
        sum > 0 ? (double)p->frames / sum : 0, "memory_after_block_20", memory_json(&p->settled),
        "memory_at_last_block", memory_json(&p->last));
    free(v);
    return all;
}
