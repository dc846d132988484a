/* tiling.c: tokens in the order of small boxes. */
#include "attention/attention.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Rows of all boxes in their order, and which token stands where. */
static void fill(lt_tiling *t)
{
    const lt_grid g = t->grid;
    int32_t row = 0, box = 0;
    for (int32_t f = 0; f < g.frames; f += t->tile[0])
        for (int32_t y = 0; y < g.rows; y += t->tile[1])
            for (int32_t x = 0; x < g.cols; x += t->tile[2]) {
                t->off[box++] = row;
                for (int32_t a = f; a < least(f + t->tile[0], g.frames); a++)
                    for (int32_t b = y; b < least(y + t->tile[1], g.rows); b++)
                        for (int32_t c = x; c < least(x + t->tile[2], g.cols); c++, row++) {
                            const int32_t n = (a * g.rows + b) * g.cols + c;
                            t->order[n] = row;
                            t->token[row] = n;
                        }
            }
    t->off[box] = row;
}

lt_status lt_tiling_create(lt_tiling *out, lt_ctx *ctx, lt_grid grid, const int32_t tile[3])
{
    const int32_t side[3] = {grid.frames, grid.rows, grid.cols};
    *out = (lt_tiling){.grid = grid, .tiles = 1};
    for (int a = 0; a < 3; a++)
        if (side[a] < 1 || tile[a] < 1)
            return lti_fail(ctx, LT_ERR_ARG, "tiling: boxes of %dx%dx%d on a grid of %dx%dx%d",
                            tile[0], tile[1], tile[2], side[0], side[1], side[2]);
    if ((int64_t)side[0] * side[1] > INT32_MAX || lt_grid_tokens(grid) > INT32_MAX / 4)
        return lti_fail(ctx, LT_ERR_ARG, "tiling: a grid of %dx%dx%d is too large", side[0],
                        side[1], side[2]);
    for (int a = 0; a < 3; a++) {
        out->tile[a] = least(tile[a], side[a]);
        out->count[a] = (side[a] + out->tile[a] - 1) / out->tile[a];
        out->tiles *= out->count[a];
    }
    const size_t n = (size_t)lt_grid_tokens(grid);
    out->off = malloc(((size_t)out->tiles + 1) * sizeof *out->off);
    out->order = malloc(n * sizeof *out->order);
    out->token = malloc(n * sizeof *out->token);
    if (!out->off || !out->order || !out->token) {
        lt_tiling_destroy(out);
        return lti_fail(ctx, LT_ERR_MEM, "no memory for the order of %zu tokens", n);
    }
    fill(out);
    return LT_OK;
}

void lt_tiling_destroy(lt_tiling *t)
{
    free(t->off);
    free(t->order);
    free(t->token);
    *t = (lt_tiling){0};
}

/* How far a box is from what is wanted: its size, how unlike a cube it is, and how much its ragged ends would hold if they were
 * filled. */
static double cost(const int32_t tile[3], const int32_t side[3], int32_t tokens)
{
    const double volume = (double)tile[0] * tile[1] * tile[2], edge = cbrt(volume);
    double sum = fabs(log(volume / tokens));
    for (int a = 0; a < 3; a++) {
        const int32_t boxes = (side[a] + tile[a] - 1) / tile[a];
        sum += 0.35 * fabs(log(tile[a] / edge)) + log((double)boxes * tile[a] / side[a]);
    }
    return sum;
}

static double search(int32_t best[3], const int32_t side[3], const int32_t most[3], int32_t tokens,
                     bool exact)
{
    double least_cost = HUGE_VAL;
    int32_t t[3];
    for (t[0] = 1; t[0] <= most[0]; t[0]++)
        for (t[1] = 1; t[1] <= most[1]; t[1]++)
            for (t[2] = 1; t[2] <= most[2]; t[2]++) {
                if (exact && (side[0] % t[0] || side[1] % t[1] || side[2] % t[2])) continue;
                const double c = cost(t, side, tokens);
                if (c >= least_cost) continue;
                least_cost = c;
                for (int a = 0; a < 3; a++)
                    best[a] = t[a];
            }
    return least_cost;
}

void lt_tiling_choose(int32_t tile[3], lt_grid grid, int32_t tokens, int32_t max_frames)
{
    enum { MOST = 64 };
    static const double near = 1.5; /* a third of the size or three times it, or flat */
    const int32_t side[3] = {grid.frames, grid.rows, grid.cols};
    const int32_t most[3] = {least(least(side[0], max_frames), MOST), least(side[1], MOST),
                             least(side[2], MOST)};
    if (search(tile, side, most, tokens, true) > near) search(tile, side, most, tokens, false);
}
