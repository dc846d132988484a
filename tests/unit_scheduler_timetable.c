/* unit_scheduler_timetable.c: blocks at several noise levels at once, against the tables of the spec (autoregressive 17.4 to 17.6). */
#include "scheduler/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void same_stage(lt_stage s, const int32_t want[4])
{
    assert_int_equal(s.first, want[0]);
    assert_int_equal(s.end, want[1]);
    assert_int_equal(s.level, want[2]);
    assert_int_equal(s.level_end, want[3]);
}

static void rolling_windows(void **state)
{
    (void)state;
    static const int32_t want[11][4] = {{0, 1, 4, 5}, {0, 2, 3, 5}, {0, 3, 2, 5}, {0, 4, 1, 5},
                                        {0, 5, 0, 5}, {1, 6, 0, 5}, {2, 7, 0, 5}, {3, 7, 0, 4},
                                        {4, 7, 0, 3}, {5, 7, 0, 2}, {6, 7, 0, 1}};
    for (int32_t i = 0; i < 11; i++)
        same_stage(lt_rolling_stage(7, 5, i), want[i]);
    /* fewer blocks than levels: every block still passes every level, the noisiest first */
    for (int32_t b = 0; b < 3; b++)
        for (int32_t i = 0, level = 4; i < 7; i++) {
            const lt_stage s = lt_rolling_stage(3, 5, i);
            if (b < s.first || b >= s.end) continue;
            assert_int_equal(s.level + b - s.first, level--);
            if (i == b + 4) assert_int_equal(level, -1);
        }
}

static void pipeline_stages(void **state)
{
    (void)state;
    static const int32_t want[7][4] = {{0, 1, 0, 1}, {0, 2, 0, 2}, {0, 3, 0, 3}, {0, 4, 0, 4},
                                       {1, 4, 1, 4}, {2, 4, 2, 4}, {3, 4, 3, 4}};
    static const double grid[] = {0,      .00131, .00526, .012, .02174, .03482, .05172, .07313, .1,
                                  .13366, .17606, .23004, .3,   .39302, .52128, .70755, 1};
    for (int32_t i = 0; i < 7; i++)
        same_stage(lt_pipeline_stage(4, 0, 4, i), want[i]);
    same_stage(lt_pipeline_stage(6, 2, 4, 2), (int32_t[]){2, 3, 0, 1});
    for (int32_t j = 0; j <= 16; j++)
        assert_float_equal(lt_pipeline_time(16, j), grid[j], 6e-6);
}

static void forcing_rows(void **state)
{
    (void)state;
    static const int32_t want[][3] = {{1, 0, 0}, {2, 0, 0}, {3, 1, 0}, {4, 2, 0}, {5, 3, 1},
                                      {6, 4, 2}, {7, 5, 3}, {7, 6, 4}, {7, 7, 5}, {7, 7, 6}};
    int32_t row[3] = {0};
    for (size_t i = 0; i < LT_COUNT(want); i++) {
        assert_int_equal(lt_forcing_row(row, 3, 6, 2), i == LT_COUNT(want) - 1);
        assert_memory_equal(row, want[i], sizeof row);
    }
    memset(row, 0, sizeof row);
    for (int32_t i = 1; i <= 6; i++) { /* all together */
        assert_int_equal(lt_forcing_row(row, 3, 6, 0), i == 6);
        assert_true(row[0] == i && row[1] == i && row[2] == i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rolling_windows),
        cmocka_unit_test(pipeline_stages),
        cmocka_unit_test(forcing_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
