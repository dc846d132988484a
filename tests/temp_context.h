/* temp_context.h: a context and a folder of its own for every test of a file (temp_files.h). */
#ifndef LT_TESTS_TEMP_CONTEXT_H
#define LT_TESTS_TEMP_CONTEXT_H

#include "kernels/kernels.h"
#include "tests/temp_files.h"

static lt_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    temp_make();
    return lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR);
}

static int teardown(void **state)
{
    (void)state;
    lt_ctx_destroy(&ctx);
    temp_remove();
    return 0;
}

#endif
