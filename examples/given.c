/* given.c: a video file that is continued: its end for the session, and all of it for the new file. It is read twice, so that no more
 * than its end is ever in memory. */
#include "examples/command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static lt_status open_video(lt_reader **out, const lti_job *j)
{
    lt_reader_options o = lt_reader_options_default();
    o.path = j->set->video;
    o.width = j->opt.width;
    o.height = j->opt.height;
    o.fps = j->opt.fps;
    return lt_reader_create(out, j->ctx, &o);
}

static size_t picture_bytes(const lti_job *j)
{
    return (size_t)j->opt.width * (size_t)j->opt.height * 3;
}

/* Frame number i goes to place i % most of the ring. */
static lt_status read_ring(lti_job *j, lt_reader *r, uint8_t *ring, int32_t most)
{
    const uint8_t *rgb;
    lt_status s;
    while ((s = lt_reader_next(r, &rgb)) == LT_OK) {
        if (lti_interrupted(j->interrupt))
            return lti_fail(j->ctx, LT_ERR_CANCELLED, "stopped while '%s' was read", j->set->video);
        memcpy(ring + (size_t)(j->video_frames++ % most) * picture_bytes(j), rgb, picture_bytes(j));
    }
    if (s < 0) return s;
    if (j->video_frames) return LT_OK;
    return lti_fail(j->ctx, LT_ERR_FORMAT, "'%s': no frame of it at %d frames a second",
                    j->set->video, j->opt.fps);
}

/* The last 4 k + 1 frames, in order. */
static lt_status take_end(lti_job *j, const uint8_t *ring, int32_t most)
{
    const int32_t there = j->video_frames < most ? (int32_t)j->video_frames : most;
    const int32_t n = there - (there - 1) % j->info->frame_scale;
    const size_t each = picture_bytes(j);
    j->given = malloc((size_t)n * each);
    if (!j->given) return lti_fail(j->ctx, LT_ERR_MEM, "no memory for %d frames", n);
    for (int32_t i = 0; i < n; i++)
        memcpy(j->given + (size_t)i * each,
               ring + (size_t)((j->video_frames - n + i) % most) * each, each);
    j->opt.given = j->given;
    j->opt.given_frames = n;
    return LT_OK;
}

lt_status lti_given_read(lti_job *j)
{
    int32_t most;
    lt_reader *r;
    LT_TRY(lt_session_given_frames(&most, j->ctx, j->info, &j->opt));
    LT_TRY(open_video(&r, j));
    j->video_fps = lt_reader_source_fps(r);
    uint8_t *ring = malloc((size_t)most * picture_bytes(j));
    lt_status s = ring ? read_ring(j, r, ring, most)
                       : lti_fail(j->ctx, LT_ERR_MEM, "no memory for %d frames", most);
    if (s >= 0) s = take_end(j, ring, most);
    free(ring);
    lt_reader_destroy(&r);
    return s;
}

lt_status lti_given_write(lti_job *j)
{
    const uint8_t *rgb;
    lt_reader *r;
    LT_TRY(open_video(&r, j));
    lt_status s;
    while ((s = lt_reader_next(r, &rgb)) == LT_OK) {
        s = lti_interrupted(j->interrupt)
                ? lti_fail(j->ctx, LT_ERR_CANCELLED, "stopped while '%s' was copied", j->set->video)
                : lti_job_write(j, rgb, j->before++);
        if (s < 0) break;
    }
    lt_reader_destroy(&r);
    return s < 0 ? s : LT_OK;
}
