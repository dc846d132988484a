/* guard_fixture.h: a context and a device whose memory the host cannot touch, for the tests of rooms above kernels/. What such a test
 * forgets to free makes it fail. */
#ifndef LT_TESTS_GUARD_FIXTURE_H
#define LT_TESTS_GUARD_FIXTURE_H

#include "kernels/kernels.h"

#include <stdlib.h>

typedef struct fixture {
    lt_ctx *ctx;
    lt_dev *dev;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    lt_dev_options opt = lt_dev_options_default();
    opt.device = "guard";
    if (!f || lt_ctx_create(&f->ctx, NULL, NULL, LT_LOG_ERROR) < 0 ||
        lt_dev_create(&f->dev, f->ctx, &opt) < 0)
        return -1;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    lt_mem_stats mem;
    lt_dev_mem_stats(f->dev, &mem);
    /* kernels keep their scratch */
    const bool clean = mem.live_total == mem.live_bytes[LT_TAG_SCRATCH];
    lt_dev_destroy(&f->dev);
    lt_ctx_destroy(&f->ctx);
    free(f);
    return clean ? 0 : -1;
}

#endif
