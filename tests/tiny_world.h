/* tiny_world.h: the tiny model in a folder of its own, and a device with it opened, for tests of sessions. */
#ifndef LT_TESTS_TINY_WORLD_H
#define LT_TESTS_TINY_WORLD_H

#include "tests/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char folder[] = "/tmp/longtake-test-XXXXXX";

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && tiny_model_write(folder, 1) ? 0 : -1;
}

static inline int drop_folder(void **state)
{
    (void)state;
    tiny_model_remove(folder);
    return 0;
}

typedef struct world {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_model *model;
} world;

static inline void open_world(world *w, const char *device, int threads, lt_dtype dtype)
{
    lt_dev_options d = lt_dev_options_default();
    d.device = device;
    d.threads = threads;
    assert_int_equal(lt_ctx_create(&w->ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    assert_int_equal(lt_dev_create(&w->dev, w->ctx, &d), LT_OK);
    const lt_model_options o = {.path = folder, .dtype = dtype};
    if (lt_model_open(&w->model, w->dev, &o) < 0) fail_msg("%s", lt_error(w->ctx));
}

static inline void close_world(world *w)
{
    lt_model_close(&w->model);
    lt_mem_stats m;
    lt_dev_mem_stats(w->dev, &m);
    assert_int_equal(m.live_total, m.live_bytes[LT_TAG_SCRATCH]); /* the kernels' own */
    lt_dev_destroy(&w->dev);
    lt_ctx_destroy(&w->ctx);
}

#endif
