/* check_dnnl.c: the same products by oneDNN, where it was found when this was configured: a second opinion on what the
 * machine can do. The product does not use it. */
#include "tests/check_gemm.h"

#ifndef LT_HAVE_DNNL

double lt_dnnl_linear_seconds(int64_t m, int64_t n, int64_t k, lt_dtype type)
{
    (void)m, (void)n, (void)k, (void)type;
    return 0;
}

double lt_dnnl_conv_seconds(int64_t h, int64_t w, int64_t in, int64_t out, int taps, lt_dtype type)
{
    (void)h, (void)w, (void)in, (void)out, (void)taps, (void)type;
    return 0;
}

#else

#include "tests/sorted.h"

#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 9, CLEAR_BYTES = 8 << 20 };

/* Everything of one primitive, so that one place frees it. `clear` is written before a run, as it is before one of ours: by this
 * thread alone, because our workers would stand in the way of the library's for a moment. */
typedef struct library {
    char *clear;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
} library;

static bool open_library(library *l)
{
    *l = (library){.clear = malloc(CLEAR_BYTES)};
    return l->clear && dnnl_engine_create(&l->engine, dnnl_cpu, 0) == dnnl_success &&
           dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags) == dnnl_success;
}

static void close_library(library *l)
{
    free(l->clear);
    for (int i = 0; i < 3; i++)
        if (l->memory[i]) dnnl_memory_destroy(l->memory[i]);
    if (l->primitive) dnnl_primitive_destroy(l->primitive);
    if (l->desc) dnnl_primitive_desc_destroy(l->desc);
    if (l->stream) dnnl_stream_destroy(l->stream);
    if (l->engine) dnnl_engine_destroy(l->engine);
}

static bool add_memory(library *l, int i, dnnl_query_t what)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(l->desc, what, 0);
    void *p = NULL;
    if (!md ||
        dnnl_memory_create(&l->memory[i], md, l->engine, DNNL_MEMORY_ALLOCATE) != dnnl_success ||
        dnnl_memory_get_data_handle(l->memory[i], &p) != dnnl_success)
        return false;
    uint16_t *half = p; /* about 0.5 in bf16; as f32 too */
    for (size_t j = 0; j < dnnl_memory_desc_get_size(md) / 2; j++)
        half[j] = (uint16_t)(0x3f00 + j % 37);
    return true;
}

/* Median seconds of the primitive that l->desc describes; 0 on failure. */
static double time_primitive(library *l)
{
    double ns[RUNS];
    if (!add_memory(l, 0, dnnl_query_src_md) || !add_memory(l, 1, dnnl_query_weights_md) ||
        !add_memory(l, 2, dnnl_query_dst_md) ||
        dnnl_primitive_create(&l->primitive, l->desc) != dnnl_success)
        return 0;
    const dnnl_exec_arg_t arg[] = {{DNNL_ARG_SRC, l->memory[0]},
                                   {DNNL_ARG_WEIGHTS, l->memory[1]},
                                   {DNNL_ARG_DST, l->memory[2]}};
    for (int i = -1; i < RUNS; i++) {
        memset(l->clear, i, CLEAR_BYTES);
        const double begun = lt_now_ns();
        if (dnnl_primitive_execute(l->primitive, l->stream, 3, arg) != dnnl_success ||
            dnnl_stream_wait(l->stream) != dnnl_success)
            return 0;
        if (i >= 0) ns[i] = lt_now_ns() - begun;
    }
    sort_doubles(ns, RUNS);
    return ns[RUNS / 2] * 1e-9;
}

static dnnl_data_type_t data_type(lt_dtype t)
{
    return t == LT_F32 ? dnnl_f32 : dnnl_bf16;
}

double lt_dnnl_linear_seconds(int64_t m, int64_t n, int64_t k, lt_dtype type)
{
    const dnnl_dims_t x = {m, k}, w = {k, n}, y = {m, n};
    const dnnl_data_type_t dt = data_type(type);
    dnnl_memory_desc_t xd, wd, yd;
    dnnl_matmul_desc_t d;
    library l;
    double seconds = 0;
    if (open_library(&l) && dnnl_memory_desc_init_by_tag(&xd, 2, x, dt, dnnl_ab) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&wd, 2, w, dt, dnnl_format_tag_any) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&yd, 2, y, dt, dnnl_ab) == dnnl_success &&
        dnnl_matmul_desc_init(&d, &xd, &wd, NULL, &yd) == dnnl_success &&
        dnnl_primitive_desc_create(&l.desc, &d, NULL, l.engine, NULL) == dnnl_success)
        seconds = time_primitive(&l);
    close_library(&l);
    return seconds;
}

double lt_dnnl_conv_seconds(int64_t h, int64_t w, int64_t in, int64_t out, int taps, lt_dtype type)
{
    const int64_t depth = taps / 9;
    const dnnl_dims_t x = {1, in, depth, h, w}, k = {out, in, depth, 3, 3}, y = {1, out, 1, h, w};
    const dnnl_dims_t one = {1, 1, 1}, pad = {0, 1, 1};
    const dnnl_data_type_t dt = data_type(type);
    dnnl_memory_desc_t xd, wd, yd;
    dnnl_convolution_desc_t d;
    library l;
    double seconds = 0;
    if (open_library(&l) &&
        dnnl_memory_desc_init_by_tag(&xd, 5, x, dt, dnnl_ndhwc) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&wd, 5, k, dt, dnnl_format_tag_any) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&yd, 5, y, dt, dnnl_ndhwc) == dnnl_success &&
        dnnl_convolution_forward_desc_init(&d, dnnl_forward_inference, dnnl_convolution_direct, &xd,
                                           &wd, NULL, &yd, one, pad, pad) == dnnl_success &&
        dnnl_primitive_desc_create(&l.desc, &d, NULL, l.engine, NULL) == dnnl_success)
        seconds = time_primitive(&l);
    close_library(&l);
    return seconds;
}

#endif
