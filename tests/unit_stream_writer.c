/* unit_stream_writer.c: colours, exact frames and times, names that appear only when complete, metadata and marks. */
#include "stream/internal.h"
#include "tests/scene.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
    return scene_begin(state, "out.mp4");
}

static int files_in(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void flat(uint8_t *rgb, int n, int r, int g, int b)
{
    for (int i = 0; i < n; i++) {
        rgb[3 * i] = (uint8_t)r;
        rgb[3 * i + 1] = (uint8_t)g;
        rgb[3 * i + 2] = (uint8_t)b;
    }
}

static void colours_are_bt709(void **state)
{
    (void)state;
    static const int rgb[][3] = {
        {255, 0, 0}, {0, 255, 0}, {255, 255, 255}, {0, 0, 0}, {128, 128, 128}};
    static const int yuv[][3] = {
        {63, 102, 240}, {173, 42, 26}, {235, 128, 128}, {16, 128, 128}, {126, 128, 128}};
    uint8_t in[4 * 2 * 3], y[8], u[2], v[2];
    for (size_t i = 0; i < LT_COUNT(rgb); i++) {
        flat(in, 8, rgb[i][0], rgb[i][1], rgb[i][2]);
        lti_rgb_to_yuv420((uint8_t *[]){y, u, v}, (int[]){4, 2, 2}, in, 4, 2);
        for (int k = 0; k < 8; k++)
            assert_int_equal(y[k], yuv[i][0]);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(u[k], yuv[i][1]);
            assert_int_equal(v[k], yuv[i][2]);
        }
    }
}

/* Every colour within half a step of the standard's formula, and chroma taken around the left column. */
static void conversion_is_exact(void **state)
{
    (void)state;
    uint8_t in[4 * 2 * 3], y[8], u[2], v[2];
    double worst = 0;
    for (int i = 0; i < 4096; i++) {
        const int r = (i & 15) * 17, g = (i >> 4 & 15) * 17, b = (i >> 8) * 17;
        flat(in, 8, r, g, b);
        lti_rgb_to_yuv420((uint8_t *[]){y, u, v}, (int[]){4, 2, 2}, in, 4, 2);
        const double l = 0.2126 * r + 0.7152 * g + 0.0722 * b;
        worst = fmax(worst, fabs(y[0] - (16 + 219 * l / 255)));
        worst = fmax(worst, fabs(u[1] - (128 + 224 * (b - l) / 1.8556 / 255)));
        worst = fmax(worst, fabs(v[1] - (128 + 224 * (r - l) / 1.5748 / 255)));
    }
    assert_true(worst < 0.51);
    flat(in, 8, 0, 0, 0);
    in[3 * 1 + 2] = in[3 * 5 + 2] = 255; /* blue column 1: a quarter of chroma 0 and of chroma 1 */
    lti_rgb_to_yuv420((uint8_t *[]){y, u, v}, (int[]){4, 2, 2}, in, 4, 2);
    assert_int_equal(u[0], 156);
    assert_int_equal(u[1], 156);
    flat(in, 8, 0, 0, 0);
    in[3 * 2 + 2] = in[3 * 6 + 2] = 255; /* blue column 2: half of chroma 1 only */
    lti_rgb_to_yuv420((uint8_t *[]){y, u, v}, (int[]){4, 2, 2}, in, 4, 2);
    assert_int_equal(u[0], 128);
    assert_int_equal(u[1], 184);
}

static const lt_key_value entries[] = {
    {"title", "a red ball"}, {"comment", "{\"seed\":7}"}, {"seed", "7"}};

static lt_writer_options options(const scene *s, lt_codec codec)
{
    lt_writer_options o = lt_writer_options_default();
    o.path = s->path;
    o.width = 96;
    o.height = 64;
    o.fps_num = 16;
    o.codec = codec;
    o.metadata = entries;
    o.nmetadata = (int32_t)LT_COUNT(entries);
    return o;
}

static void push_frames(lt_writer *w, int n)
{
    static uint8_t rgb[96 * 64 * 3];
    for (int f = 0; f < n; f++) {
        flat(rgb, 96 * 64, 10 * f % 256, 128, 255 - 3 * f % 256);
        assert_int_equal(lt_writer_push(w, rgb), LT_OK);
    }
}

static const char *entry(const lt_media_info *info, const char *key)
{
    for (int i = 0; i < info->nmetadata; i++)
        if (!strcmp(info->metadata[i].key, key)) return info->metadata[i].value;
    return NULL;
}

static void check_file(scene *s, const char *codec, int frames, double fps)
{
    lt_media_info info;
    assert_int_equal(lt_media_inspect(&info, s->ctx, s->path), LT_OK);
    assert_int_equal(info.frames, frames);
    assert_int_equal(info.width, 96);
    assert_int_equal(info.height, 64);
    assert_string_equal(info.codec, codec);
    assert_string_equal(info.pix_fmt, "yuv420p");
    assert_string_equal(info.color, "tv/bt709/bt709/bt709");
    assert_true(fabs(info.fps - fps) < 1e-9);
    assert_true(fabs(info.seconds - frames / fps) < 1e-9);
    assert_string_equal(entry(&info, "title"), "a red ball");
    assert_string_equal(entry(&info, "comment"), "{\"seed\":7}");
    assert_string_equal(entry(&info, "seed"), "7");
    assert_non_null(entry(&info, "xmp"));
    assert_non_null(strstr(entry(&info, "xmp"), LTI_DIGITAL_SOURCE));
    if (!strcmp(codec, "h264")) assert_non_null(entry(&info, "sei"));
    lt_media_info_free(&info);
}

static void write_one(scene *s, lt_writer_options o, int frames)
{
    lt_writer *w;
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    assert_int_not_equal(access(s->path, F_OK), o.overwrite ? -2 : 0);
    push_frames(w, frames);
    assert_int_equal(lt_writer_frames(w), frames);
    assert_int_equal(lt_writer_finish(w), LT_OK);
    lt_writer_destroy(&w);
    assert_null(w);
    assert_int_equal(files_in(s->dir), 1);
}

static void files_are_exact(void **state)
{
    scene *s = *state;
    static const int counts[] = {1, 2, 5, 81, 130};
    for (size_t i = 0; i < LT_COUNT(counts); i++) {
        write_one(s, options(s, LT_CODEC_H264), counts[i]);
        check_file(s, "h264", counts[i], 16);
        unlink(s->path);
    }
    lt_writer_options o = options(s, LT_CODEC_H264);
    o.fps_num = 30000;
    o.fps_den = 1001;
    write_one(s, o, 33);
    check_file(s, "h264", 33, 30000. / 1001);
    unlink(s->path);
    write_one(s, options(s, LT_CODEC_AV1), 21);
    check_file(s, "av1", 21, 16);
}

static char *whole_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

/* Moving noise, because an encoder that reads memory it has not written shows it there; `fresh`: what new memory is filled with. */
static char *write_noise(scene *s, lt_codec codec, int fresh, size_t *size)
{
    lt_writer_options o = options(s, codec);
    lt_writer *w;
    o.width = o.height = 64;
    o.overwrite = true;
    mallopt(M_PERTURB, fresh);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    static uint8_t rgb[64 * 64 * 3];
    uint32_t r = 1;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)((r = r * 1664525 + 1013904223) >> 24);
    for (int f = 0; f < 20; f++) {
        memmove(rgb + 6, rgb, sizeof rgb - 6); /* it moves, so that frames predict each other */
        for (size_t i = 0; i < sizeof rgb; i++)
            rgb[i] = (uint8_t)(rgb[i] + ((r = r * 1664525 + 1013904223) >> 28) - 8);
        assert_int_equal(lt_writer_push(w, rgb), LT_OK);
    }
    assert_int_equal(lt_writer_finish(w), LT_OK);
    lt_writer_destroy(&w);
    mallopt(M_PERTURB, 0);
    return whole_file(s->path, size);
}

static void equal_input_gives_equal_bytes(void **state)
{
    scene *s = *state;
    size_t n, m;
    char *a = write_noise(s, LT_CODEC_AV1, 1, &n), *b = write_noise(s, LT_CODEC_AV1, 170, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    a = write_noise(s, LT_CODEC_H264, 1, &n);
    b = write_noise(s, LT_CODEC_H264, 170, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    /* index before data: it begins to play before it is all there */
    const char *moov = memmem(a, n, "moov", 4), *mdat = memmem(a, n, "mdat", 4);
    assert_true(moov && mdat && moov < mdat);
    free(a);
    free(b);
}

static void refuse(scene *s, lt_writer_options o, lt_status want, const char *text)
{
    lt_writer *w;
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), want);
    assert_null(w);
    if (!strstr(lt_error(s->ctx), text)) fail_msg("message: %s", lt_error(s->ctx));
}

static void bad_options_are_named(void **state)
{
    scene *s = *state;
    lt_writer_options o = options(s, LT_CODEC_H264);
    o.width = 95;
    refuse(s, o, LT_ERR_ARG, "95x64");
    o = options(s, LT_CODEC_AV1);
    o.height = 32;
    refuse(s, o, LT_ERR_ARG, "av1 needs at least 64x64");
    o = options(s, LT_CODEC_H264);
    o.fps_num = 0;
    refuse(s, o, LT_ERR_ARG, "frame rate 0/1");
    o.fps_num = 16;
    o.crf = 52;
    refuse(s, o, LT_ERR_ARG, "crf 52");
    o.crf = -1;
    o.preset = "hurry";
    refuse(s, o, LT_ERR_CODEC, "libx264");
    o.preset = NULL;
    o.path = "/proc/self/nowhere/out.mp4";
    refuse(s, o, LT_ERR_IO, "/proc/self/nowhere/out.mp4");
    o.path = "out.avi";
    refuse(s, o, LT_ERR_ARG, "must end in .mp4, after");
    assert_int_equal(files_in(s->dir), 0);
}

static void expect_mine(const char *path)
{
    size_t n;
    char *data = whole_file(path, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(data, "mine", 4);
    free(data);
}

/* A name that leads elsewhere is refused before anything is written or waited for. */
static void links_and_pipes_are_refused(void **state)
{
    scene *s = *state;
    lt_writer_options o = options(s, LT_CODEC_H264);
    char part[128], other[128];
    snprintf(part, sizeof part, "%s.part", s->path);
    snprintf(other, sizeof other, "%s/other", s->dir);
    FILE *f = fopen(other, "w");
    fputs("mine", f);
    fclose(f);
    o.overwrite = true;
    assert_int_equal(symlink(other, part), 0);
    refuse(s, o, LT_ERR_IO, "out.mp4.part': it is a symbolic link");
    unlink(part);
    assert_int_equal(link(other, part), 0);
    refuse(s, o, LT_ERR_IO, "hard link");
    unlink(part);
    assert_int_equal(mkfifo(part, 0600), 0);
    refuse(s, o, LT_ERR_IO, "not a regular file");
    uint8_t *rgb;
    assert_int_equal(lt_picture_read(&rgb, s->ctx, part, 8, 8), LT_ERR_IO);
    assert_non_null(strstr(lt_error(s->ctx), "not a file"));
    unlink(part);
    /* the name itself */
    assert_int_equal(symlink("nothing", s->path), 0);
    refuse(s, o, LT_ERR_IO, "not a regular file");
    o.overwrite = false;
    refuse(s, o, LT_ERR_IO, "exists already");
    unlink(s->path);
    assert_int_equal(mkdir(s->path, 0700), 0);
    o.overwrite = true;
    refuse(s, o, LT_ERR_IO, "not a regular file");
    assert_int_equal(rmdir(s->path), 0);
    char name[400];
    snprintf(name, sizeof name, "%s/%0241d.mp4", s->dir, 0); /* 245 bytes, 256 with ".final.part" */
    o.path = name;
    refuse(s, o, LT_ERR_ARG, "at most 244 bytes");
    expect_mine(other);
    assert_int_equal(files_in(s->dir), 1);
}

static void existing_files_are_safe(void **state)
{
    scene *s = *state;
    lt_writer *w, *second;
    lt_writer_options o = options(s, LT_CODEC_H264);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    assert_int_equal(lt_writer_create(&second, s->ctx, &o), LT_ERR_IO);
    assert_non_null(strstr(lt_error(s->ctx), "another process"));
    push_frames(w, 3);
    FILE *f = fopen(s->path, "w"); /* somebody else was faster */
    fputs("mine", f);
    fclose(f);
    assert_int_equal(lt_writer_finish(w), LT_ERR_IO);
    assert_non_null(strstr(lt_error(s->ctx), "kept as"));
    lt_writer_destroy(&w);
    expect_mine(s->path);
    refuse(s, o, LT_ERR_IO, "exists already");
    strcat(s->path, ".part");
    lt_media_info info; /* the frames are not lost */
    assert_int_equal(lt_media_inspect(&info, s->ctx, s->path), LT_OK);
    assert_int_equal(info.frames, 3);
    lt_media_info_free(&info);
}

/* Nothing is said to be kept that is not there, and what another has put there stays. */
static void a_part_that_is_gone_is_said_to_be(void **state)
{
    scene *s = *state;
    char part[128];
    lt_writer *w;
    lt_writer_options o = options(s, LT_CODEC_H264);
    snprintf(part, sizeof part, "%s.part", s->path);
    for (int replaced = 0; replaced < 2; replaced++) {
        assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
        push_frames(w, 3);
        assert_int_equal(unlink(part), 0);
        FILE *f = replaced ? fopen(part, "w") : NULL;
        if (f) {
            fputs("mine", f);
            fclose(f);
        }
        assert_int_equal(lt_writer_finish(w), LT_ERR_IO);
        assert_non_null(strstr(lt_error(s->ctx), "removed or replaced"));
        assert_null(strstr(lt_error(s->ctx), "kept"));
        lt_writer_destroy(&w);
        assert_int_equal(files_in(s->dir), replaced);
    }
    expect_mine(part);
}

/* From then on its name may be another's. */
static void finishing_removes_the_part(void **state)
{
    scene *s = *state;
    lt_writer *w;
    lt_writer_options o = options(s, LT_CODEC_H264);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    push_frames(w, 3);
    assert_int_equal(lt_writer_finish(w), LT_OK);
    assert_int_equal(files_in(s->dir), 1);
    lt_writer_destroy(&w);
    assert_int_equal(files_in(s->dir), 1);
}

static void interrupted_files_say_so(void **state)
{
    scene *s = *state;
    lt_writer *w;
    lt_writer_options o = options(s, LT_CODEC_H264);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    push_frames(w, 40);
    const char *path;
    assert_int_equal(lt_writer_finish_partial(w, &path), LT_OK);
    assert_non_null(strstr(path, "/out.partial.mp4"));
    assert_int_not_equal(access(s->path, F_OK), 0);
    lt_media_info info;
    assert_int_equal(lt_media_inspect(&info, s->ctx, path), LT_OK);
    assert_int_equal(info.frames, 40);
    lt_media_info_free(&info);
    lt_writer_destroy(&w);
    assert_int_equal(files_in(s->dir), 1);
}

static void without_finish_nothing_stays(void **state)
{
    scene *s = *state;
    lt_writer *w;
    lt_writer_options o = options(s, LT_CODEC_H264);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    push_frames(w, 40);
    lt_writer_destroy(&w);
    assert_int_equal(files_in(s->dir), 0);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    assert_int_equal(lt_writer_finish(w), LT_ERR_ARG);
    lt_writer_destroy(&w);
    assert_int_equal(files_in(s->dir), 0);
}

/* A process that was killed: what the part holds up to its last fragment plays. */
static void a_killed_part_plays(void **state)
{
    scene *s = *state;
    lt_writer *w;
    lt_writer_options o = options(s, LT_CODEC_H264);
    assert_int_equal(lt_writer_create(&w, s->ctx, &o), LT_OK);
    push_frames(w, 200); /* at 16 fps a fragment ends every 64 frames */
    char part[128], copy[128], cmd[300];
    snprintf(part, sizeof part, "%s.part", s->path);
    snprintf(copy, sizeof copy, "%s/copy.mp4", s->dir);
    snprintf(cmd, sizeof cmd, "cp '%s' '%s'", part, copy);
    assert_int_equal(system(cmd), 0);
    lt_writer_destroy(&w);
    lt_media_info info;
    assert_int_equal(lt_media_inspect(&info, s->ctx, copy), LT_OK);
    assert_true(info.frames >= 64);
    lt_media_info_free(&info);
}

/* The part is there when the message says so, and all frames that it tells of can be decoded. */
static int expect_kept(scene *s, const char *message)
{
    char part[128];
    int frames = 200, decoded = 0;
    const uint8_t *rgb;
    lt_reader *r;
    snprintf(part, sizeof part, "%s.part", s->path);
    const char *says = strstr(message, "its first ");
    const bool kept = strstr(message, "kept") != NULL;
    if (says) assert_int_equal(sscanf(says, "its first %d frames", &frames), 1);
    assert_int_equal(access(part, F_OK) == 0, kept);
    if (!kept) return 0;
    const lt_reader_options o = {.path = part, .width = 96, .height = 64, .fps = 16};
    assert_int_equal(lt_reader_create(&r, s->ctx, &o), LT_OK);
    while (lt_reader_next(r, &rgb) == LT_OK)
        decoded++;
    lt_reader_destroy(&r);
    assert_int_equal(decoded, frames);
    return !unlink(part);
}

/* The limit on file sizes stands for a full disk: the same path, another errno. */
static void a_full_disk_is_one_message(void **state)
{
    scene *s = *state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    signal(SIGXFSZ, SIG_IGN);
    lt_writer *w;
    lt_writer_options o = options(s, LT_CODEC_H264);
    int failed = 0, kept = 0;
    for (rlim_t limit = 100; limit < 20000; limit += 1500) { /* header, fragments, the copy */
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        lt_status e = lt_writer_create(&w, s->ctx, &o);
        static uint8_t rgb[96 * 64 * 3];
        for (int f = 0; f < 200 && e == LT_OK; f++) {
            for (size_t i = 0; i < sizeof rgb; i++)
                rgb[i] = (uint8_t)((i * 7 + (size_t)f * 31) % 255 / 4);
            e = lt_writer_push(w, rgb);
        }
        if (e == LT_OK)
            e = lt_writer_finish(w);
        else if (w)
            e = lt_writer_finish_partial(w, NULL); /* what plays is kept */
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        lt_writer_destroy(&w);
        if (e == LT_OK) break;
        failed++;
        assert_int_equal(e, LT_ERR_IO);
        if (!strstr(lt_error(s->ctx), "File too large")) fail_msg("message: %s", lt_error(s->ctx));
        kept += expect_kept(s, lt_error(s->ctx));
        assert_int_not_equal(access(s->path, F_OK), 0);
    }
    assert_true(failed >= 4 && kept >= 2 && kept < failed);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(colours_are_bt709),
        T(conversion_is_exact),
        T(files_are_exact),
        T(equal_input_gives_equal_bytes),
        T(bad_options_are_named),
        T(existing_files_are_safe),
        T(interrupted_files_say_so),
        T(a_part_that_is_gone_is_said_to_be),
        T(finishing_removes_the_part),
        T(without_finish_nothing_stays),
        T(a_killed_part_plays),
        T(a_full_disk_is_one_message),
        T(links_and_pipes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
