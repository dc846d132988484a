/* monitor.c: the monitor on frames that come from elsewhere: nothing is corrected, what would be done is said. */
#include "video/drift.h"

#include <stdlib.h>

struct lt_monitor {
    lt_measure *measure;
    lti_drift drift;
};

lt_status lt_monitor_create(lt_monitor **out, lt_dev *dev, int32_t width, int32_t height,
                            double frame_seconds, int32_t group)
{
    *out = NULL;
    lt_ctx *ctx = lt_dev_ctx(dev);
    if (!(frame_seconds > 0 && frame_seconds < 3600) || group < 2 || group > 1024)
        return lti_fail(ctx, LT_ERR_ARG, "a monitor of groups of %d frames, %g s each", group,
                        frame_seconds);
    lt_monitor *m = calloc(1, sizeof *m);
    if (!m) return lti_fail(ctx, LT_ERR_MEM, "no memory for a monitor");
    lti_drift_begin(&m->drift, frame_seconds, group);
    const lt_status s = lt_measure_create(&m->measure, dev, width, height);
    if (s < 0)
        lt_monitor_destroy(&m);
    else
        *out = m;
    return s;
}

void lt_monitor_destroy(lt_monitor **monitor)
{
    lt_monitor *m = monitor ? *monitor : NULL;
    if (!m) return;
    lt_measure_destroy(&m->measure);
    free(m);
    *monitor = NULL;
}

lt_status lt_monitor_frame(lt_monitor *m, lt_drift_vector *out, lt_picture *picture,
                           const uint8_t *rgb)
{
    lt_picture p;
    lti_tiles tile;
    LT_TRY(lt_measure_frame(m->measure, &p, rgb));
    if (picture) *picture = p;
    lti_measure_tiles(m->measure, tile);
    if (!lti_drift_frame(&m->drift, out, &p, tile, 0)) return LT_AGAIN;
    out->gain = lti_drift_decide(&m->drift, out, m->drift.frame_seconds * out->frames);
    out->past_weight = out->sink_weight = 1; /* there is no cache here */
    out->action = out->gain > 0 ? LT_DRIFT_SHIFTED : LT_DRIFT_LEFT;
    out->alarm = out->alarm || m->drift.shot.stand_down;
    return LT_OK;
}
