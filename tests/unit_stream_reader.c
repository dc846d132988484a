/* unit_stream_reader.c: videos read back frame by frame: each once at its own rate, repeated or left out at others, scaled to cover
 * and cropped; files that are no videos. */
#include "stream/stream.h"
#include "tests/temp_context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { W = 128, H = 64, FRAMES = 20 };

/* Frame i is grey 10 + 10 i, with a white right quarter. */
static void write_video(const char *name, int32_t fps, lt_codec codec)
{
    static uint8_t rgb[W * H * 3];
    lt_writer_options o = lt_writer_options_default();
    lt_writer *w;
    o.path = temp_path(name);
    o.width = W;
    o.height = H;
    o.fps_num = fps;
    o.codec = codec;
    o.crf = 4;
    if (lt_writer_create(&w, ctx, &o) < 0) fail_msg("%s", lt_error(ctx));
    for (int i = 0; i < FRAMES; i++) {
        for (int k = 0; k < W * H * 3; k++)
            rgb[k] = (uint8_t)(k / 3 % W >= W * 3 / 4 ? 255 : 10 + 10 * i);
        assert_int_equal(lt_writer_push(w, rgb), LT_OK);
    }
    if (lt_writer_finish(w) < 0) fail_msg("%s", lt_error(ctx));
    lt_writer_destroy(&w);
}

static lt_reader *open_reader(const char *name, int32_t width, int32_t height, double fps)
{
    lt_reader_options o = lt_reader_options_default();
    lt_reader *r;
    o.path = temp_path(name);
    o.width = width;
    o.height = height;
    o.fps = fps;
    if (lt_reader_create(&r, ctx, &o) < 0) fail_msg("%s", lt_error(ctx));
    return r;
}

/* Which frame a picture is, by its first pixel. */
static int number_of(const uint8_t *rgb)
{
    return (rgb[0] - 5) / 10;
}

static void every_frame_once_at_its_own_rate(void **state)
{
    (void)state;
    static const struct {
        int32_t fps;
        lt_codec codec;
    } cases[] = {{16, LT_CODEC_H264}, {24, LT_CODEC_H264}, {7, LT_CODEC_H264}, {16, LT_CODEC_AV1}};
    for (size_t c = 0; c < LT_COUNT(cases); c++) {
        write_video("v.mp4", cases[c].fps, cases[c].codec);
        for (int given = 0; given < 2; given++) {
            lt_reader *r = open_reader("v.mp4", W, H, given ? cases[c].fps : 0);
            const uint8_t *rgb;
            assert_true(lt_reader_source_fps(r) > cases[c].fps - 0.01 &&
                        lt_reader_source_fps(r) < cases[c].fps + 0.01);
            for (int i = 0; i < FRAMES; i++) {
                assert_int_equal(lt_reader_next(r, &rgb), LT_OK);
                assert_int_equal(number_of(rgb), i);
                assert_true(rgb[(W - 1) * 3] > 240);
            }
            assert_int_equal(lt_reader_next(r, &rgb), LT_END);
            assert_int_equal(lt_reader_next(r, &rgb), LT_END);
            assert_null(rgb);
            lt_reader_destroy(&r);
        }
        remove(temp_path("v.mp4"));
    }
}

/* Frame k shows the file at (k + 1/2) / fps. */
static void other_rates(void **state)
{
    (void)state;
    static const double rates[] = {8, 32, 15, 24};
    write_video("r.mp4", 16, LT_CODEC_H264);
    for (size_t c = 0; c < LT_COUNT(rates); c++) {
        lt_reader *r = open_reader("r.mp4", W, H, rates[c]);
        const uint8_t *rgb;
        int n = 0;
        for (; lt_reader_next(r, &rgb) == LT_OK; n++)
            assert_int_equal(number_of(rgb), (int)((n + 0.5) * 16 / rates[c]));
        assert_int_equal(n, (int)(FRAMES * rates[c] / 16 + 0.5));
        lt_reader_destroy(&r);
    }
}

/* 128x64 to a square: 64x64 of the middle; the white quarter on the right, from 96 on, is cut off. */
static void covered_and_cropped(void **state)
{
    (void)state;
    write_video("c.mp4", 16, LT_CODEC_H264);
    lt_reader *r = open_reader("c.mp4", 48, 48, 0);
    const uint8_t *rgb;
    assert_int_equal(lt_reader_next(r, &rgb), LT_OK);
    for (int i = 0; i < 48 * 48; i++)
        assert_true(i % 48 >= 45 || rgb[3 * i] < 20);
    lt_reader_destroy(&r);
}

static void refused(const char *path, int32_t width, double fps, lt_status want, const char *says)
{
    lt_reader_options o = {.path = path, .width = width, .height = 32, .fps = fps};
    lt_reader *r = (lt_reader *)1;
    assert_int_equal(lt_reader_create(&r, ctx, &o), want);
    assert_null(r);
    if (!strstr(lt_error(ctx), says)) fail_msg("\"%s\" does not say \"%s\"", lt_error(ctx), says);
}

static void no_videos(void **state)
{
    (void)state;
    refused("/nonexistent.mp4", 32, 0, LT_ERR_MISSING, "nonexistent.mp4");
    temp_text("text.mp4", "this is not a video, and never was one");
    refused(temp_path("text.mp4"), 32, 0, LT_ERR_FORMAT, "text.mp4");
    refused(temp_dir, 32, 0, LT_ERR_IO, temp_dir);
    write_video("w.mp4", 16, LT_CODEC_H264);
    refused(temp_path("w.mp4"), 0, 0, LT_ERR_ARG, "0x32");
    refused(temp_path("w.mp4"), 32, -1, LT_ERR_ARG, "-1 frames a second");
}

/* Cut off, a file shows what it still has, or says that it has nothing. */
static void cut_files(void **state)
{
    (void)state;
    static uint8_t all[1 << 16];
    FILE *f = fopen(LT_TEST_DATA "/corpus/fuzz_stream_reader/raw", "rb");
    const size_t len = f ? fread(all, 1, sizeof all, f) : 0;
    assert_true(len > 0);
    fclose(f);
    int shown = 0;
    for (size_t n = 1; n <= len; n += len / 16) {
        temp_write("cut.h264", all, n);
        lt_reader_options o = {.path = temp_path("cut.h264"), .width = 16, .height = 16};
        lt_reader *r;
        const uint8_t *rgb;
        if (lt_reader_create(&r, ctx, &o) < 0) {
            assert_true(*lt_error(ctx));
            continue;
        }
        while (lt_reader_next(r, &rgb) == LT_OK)
            shown++;
        lt_reader_destroy(&r);
    }
    assert_true(shown > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_frame_once_at_its_own_rate),
        cmocka_unit_test(other_rates),
        cmocka_unit_test(covered_and_cropped),
        cmocka_unit_test(no_videos),
        cmocka_unit_test(cut_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
