/* unit_stream_picture.c: pictures in and out: exact PNG round trip, cropping, orientation, first frame of a video, hostile
 * sizes and broken files. */
#include "stream/stream.h"
#include "tests/scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
    return scene_begin(state, "in.png");
}

static uint8_t at(const uint8_t *rgb, int w, int x, int y, int c)
{
    return rgb[3 * (y * w + x) + c];
}

static void png_comes_back_exactly(void **state)
{
    scene *s = *state;
    uint8_t in[32 * 18 * 3], *out;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 37 % 251);
    assert_int_equal(lt_picture_write(s->ctx, s->path, in, 32, 18), LT_OK);
    assert_int_equal(lt_picture_read(&out, s->ctx, s->path, 32, 18), LT_OK);
    assert_memory_equal(in, out, sizeof in);
    free(out);
}

/* Left third red, middle green, right blue: the middle survives the crop to a square, all when it is made wider. */
static void the_middle_is_kept(void **state)
{
    scene *s = *state;
    uint8_t in[96 * 32 * 3] = {0}, *out;
    for (int i = 0; i < 96 * 32; i++)
        in[3 * i + (i % 96) / 32] = 255;
    assert_int_equal(lt_picture_write(s->ctx, s->path, in, 96, 32), LT_OK);
    assert_int_equal(lt_picture_read(&out, s->ctx, s->path, 64, 64), LT_OK);
    for (int y = 2; y < 62; y++)
        for (int x = 4; x < 60; x++)
            if (at(out, 64, x, y, 1) < 250 || at(out, 64, x, y, 0) > 5) fail_msg("at %d %d", x, y);
    free(out);
    assert_int_equal(lt_picture_read(&out, s->ctx, s->path, 192, 64), LT_OK);
    assert_true(at(out, 192, 10, 32, 0) > 250 && at(out, 192, 96, 32, 1) > 250 &&
                at(out, 192, 181, 32, 2) > 250);
    free(out);
    assert_int_equal(lt_picture_read(&out, s->ctx, s->path, 2, 600), LT_OK);
    free(out);
}

static void first_frame_of_a_video(void **state)
{
    scene *s = *state;
    snprintf(s->path, sizeof s->path, "%s/in.mp4", s->dir);
    lt_writer_options o = lt_writer_options_default();
    o.path = s->path;
    o.width = o.height = 64;
    o.fps_num = 16;
    lt_writer *w;
    uint8_t rgb[64 * 64 * 3], *out;
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    for (int f = 0; f < 40; f++) {
        for (int i = 0; i < 64 * 64; i++) {
            rgb[3 * i] = f ? 0 : 200;
            rgb[3 * i + 1] = f ? 0 : 40;
            rgb[3 * i + 2] = f ? 255 : 20;
        }
        assert_int_equal(lt_writer_push(w, rgb), LT_OK);
    }
    assert_int_equal(lt_writer_finish(w), LT_OK);
    lt_writer_destroy(&w);
    assert_int_equal(lt_picture_read(&out, s->ctx, s->path, 64, 64), LT_OK);
    /* through BT.709 and back: 8-bit YUV is good for 2 steps; with BT.601 red would be off by more than 10 */
    assert_in_range(at(out, 64, 32, 32, 0), 196, 204);
    assert_in_range(at(out, 64, 32, 32, 1), 36, 44);
    assert_in_range(at(out, 64, 32, 32, 2), 16, 24);
    free(out);
}

static void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void refuse(scene *s, lt_status want, const char *text)
{
    uint8_t *out;
    assert_int_equal(lt_picture_read(&out, s->ctx, s->path, 64, 64), want);
    assert_null(out);
    if (!strstr(lt_error(s->ctx), text)) fail_msg("message: %s", lt_error(s->ctx));
}

static void broken_files_are_one_message(void **state)
{
    scene *s = *state;
    refuse(s, LT_ERR_MISSING, "No such file");
    write_bytes(s->path, "this is no picture at all", 25);
    refuse(s, LT_ERR_FORMAT, s->path);
    write_bytes(s->path, "", 0);
    refuse(s, LT_ERR_FORMAT, s->path);
    /* a playlist that would lead to another file */
    static const char list[] = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n";
    write_bytes(s->path, list, sizeof list - 1);
    refuse(s, LT_ERR_FORMAT, "of a kind that is not read: pictures are PNG");
    strcpy(s->path, "/tmp");
    refuse(s, LT_ERR_IO, "not a file");
}

static void truncated_and_huge_png(void **state)
{
    scene *s = *state;
    uint8_t in[64 * 64 * 3];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * i % 253);
    assert_int_equal(lt_picture_write(s->ctx, s->path, in, 64, 64), LT_OK);
    FILE *f = fopen(s->path, "rb");
    static uint8_t data[1 << 16];
    const size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    write_bytes(s->path, data, 30);
    refuse(s, LT_ERR_FORMAT, s->path);
    memcpy(data + 16, "\0\1\0\0", 4); /* 65536 wide */
    write_bytes(s->path, data, n);
    refuse(s, LT_ERR_UNSUPPORTED, "65536x64");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(png_comes_back_exactly),       T(the_middle_is_kept),     T(first_frame_of_a_video),
        T(broken_files_are_one_message), T(truncated_and_huge_png),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
