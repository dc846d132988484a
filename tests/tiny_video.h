/* tiny_video.h: small videos of the tiny world: sessions that are made and pulled until they end. */
#ifndef LT_TESTS_TINY_VIDEO_H
#define LT_TESTS_TINY_VIDEO_H

#include "tests/tiny_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { W = 48, H = 32, FRAME_BYTES = W * H * 3, MOST = 80, AREA = (W / 8) * (H / 8) };

static inline lt_session *create(const world *w, const lt_session_options *o)
{
    lt_session *s;
    if (lt_session_create(&s, w->model, o) < 0) fail_msg("%s", lt_error(w->ctx));
    return s;
}

/* Frames *frames and on to `video`, [MOST, H, W, 3]; the session stays. */
static inline lt_status pull(lt_session *s, uint8_t *video, int64_t *frames)
{
    lt_frames f;
    lt_status st;
    while ((st = lt_session_next(s, &f)) == LT_OK) {
        assert_int_equal(f.first, *frames);
        assert_true(*frames + f.count <= MOST);
        memcpy(video + *frames * FRAME_BYTES, f.rgb, (size_t)f.count * FRAME_BYTES);
        *frames += f.count;
    }
    return st;
}

#endif
