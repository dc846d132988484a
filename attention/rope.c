/* rope.c: rotary tables and the positions of a token grid. */
#include "attention/attention.h"

#include <math.h>
#include <stdlib.h>

/* [max, pairs, 2]. Angles in double: at position 1023 a table made in f32 is off in the fifth digit. */
static void fill(float *table, int32_t max, int32_t pairs, double theta)
{
    for (int32_t pos = 0; pos < max; pos++)
        for (int32_t j = 0; j < pairs; j++) {
            const double angle = pos * pow(theta, -(double)j / pairs);
            float *cs = table + ((int64_t)pos * pairs + j) * 2;
            cs[0] = (float)cos(angle);
            cs[1] = (float)sin(angle);
        }
}

static lt_status make_table(lt_rope_tables *t, int axis, double theta)
{
    lt_ctx *ctx = lt_dev_ctx(t->dev);
    const size_t bytes = (size_t)t->max[axis] * (size_t)t->pairs[axis] * 2 * sizeof(float);
    if (bytes == 0) return LT_OK;
    float *host = malloc(bytes);
    if (!host) return lti_fail(ctx, LT_ERR_MEM, "no memory for %zu bytes of rotary table", bytes);
    fill(host, t->max[axis], t->pairs[axis], theta);
    void *p;
    lt_status s = lt_dev_alloc(t->dev, &p, bytes, LT_TAG_PLAN);
    t->table[axis] = p;
    if (s >= 0) s = lt_dev_upload(t->dev, p, host, bytes);
    free(host);
    return s;
}

lt_status lt_rope_tables_create(lt_rope_tables *out, lt_dev *dev, int head_dim,
                                const int32_t max[3], double theta)
{
    *out = (lt_rope_tables){.dev = dev};
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (head_dim < 2 || head_dim % 2 || head_dim > 65536)
        return lti_fail(ctx, LT_ERR_ARG,
                        "rotary table: head size %d is not an even number from 2 to 65536",
                        head_dim);
    if (!(theta > 1)) return lti_fail(ctx, LT_ERR_ARG, "rotary table: theta %g", theta);
    const int32_t pairs = head_dim / 2, space = pairs / 3;
    const int32_t split[3] = {pairs - 2 * space, space, space};
    for (int a = 0; a < 3; a++) {
        if (max[a] < 1 || max[a] > 1 << 20)
            return lti_fail(ctx, LT_ERR_ARG, "rotary table: %d positions on axis %d", max[a], a);
        out->pairs[a] = split[a];
        out->max[a] = max[a];
    }
    for (int a = 0; a < 3; a++) {
        const lt_status s = make_table(out, a, theta);
        if (s < 0) {
            lt_rope_tables_destroy(out);
            return s;
        }
    }
    return LT_OK;
}

void lt_rope_tables_destroy(lt_rope_tables *t)
{
    if (!t || !t->dev) return;
    for (int a = 0; a < 3; a++)
        lt_dev_free(t->dev, t->table[a]);
    *t = (lt_rope_tables){0};
}

void lt_grid_positions(lt_grid g, int32_t first_frame, int32_t *pos)
{
    for (int32_t f = 0; f < g.frames; f++)
        for (int32_t y = 0; y < g.rows; y++)
            for (int32_t x = 0; x < g.cols; x++, pos += 3) {
                pos[0] = first_frame + f;
                pos[1] = y;
                pos[2] = x;
            }
}
