/* timetable.c: which blocks are at which noise level when several are on their way at once. Rules and numbers only, from the published
 * methods (spec: autoregressive 6, 9, 10). */
#include "scheduler/scheduler.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

lt_stage lt_rolling_stage(int32_t blocks, int32_t levels, int32_t i)
{
    lt_stage s = {.first = most(0, i - levels + 1), .end = least(blocks, i + 1)};
    s.level = levels - 1 - (i - s.first); /* a block is a level cleaner with each iteration */
    s.level_end = s.level + s.end - s.first;
    return s;
}

lt_stage lt_pipeline_stage(int32_t blocks, int32_t offset, int32_t window, int32_t i)
{
    return (lt_stage){.first = most(offset, i - window + 1),
                      .end = least(blocks, i + 1),
                      .level = most(0, i - blocks + 1),
                      .level_end = least(window, i - offset + 1)};
}

double lt_pipeline_time(int32_t steps, int32_t j)
{
    const double u = (double)j / steps, t = u * u;
    return (t / 3) / (1 + (1.0 / 3 - 1) * t);
}

bool lt_forcing_row(int32_t *row, int32_t blocks, int32_t steps, int32_t lag)
{
    bool done = true;
    int32_t before = steps; /* of the block to the left: what it was, and what it is now */
    int32_t now = steps;
    for (int32_t i = 0; i < blocks; i++) {
        const int32_t was = row[i];
        row[i] = before >= steps ? was + 1 : now - lag;
        row[i] = least(most(row[i], 0), steps + 1);
        before = was;
        now = row[i];
        done = done && row[i] >= steps;
    }
    return done;
}
