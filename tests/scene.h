/* scene.h: a context, a folder and the path of a file in it, for the tests of stream/. */
#ifndef LT_TESTS_SCENE_H
#define LT_TESTS_SCENE_H

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scene {
    lt_ctx *ctx;
    char dir[64], path[96];
} scene;

static int scene_begin(void **state, const char *file)
{
    scene *s = calloc(1, sizeof *s);
    if (!s || lt_ctx_create(&s->ctx, NULL, NULL, LT_LOG_ERROR) < 0) return -1;
    strcpy(s->dir, "/tmp/lt-scene-XXXXXX");
    if (!mkdtemp(s->dir)) return -1;
    snprintf(s->path, sizeof s->path, "%s/%s", s->dir, file);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    scene *s = *state;
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", s->dir);
    const int r = system(cmd);
    lt_ctx_destroy(&s->ctx);
    free(s);
    return r;
}

#endif
