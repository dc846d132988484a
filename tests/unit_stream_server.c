/* unit_stream_server.c: pieces of the server without sockets: what a stream keeps, fragments of MP4, the encoder, lengths and ranges,
 * origins, messages. */
#include "stream/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static lt_ctx *new_ctx(void)
{
    lt_ctx *ctx;
    assert_int_equal(lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR), LT_OK);
    return ctx;
}

static lti_unit *unit(int64_t frame, bool key, size_t bytes)
{
    const lti_unit_info i = {.kind = LTI_UNIT_VIDEO,
                             .flags = key ? LTI_FLAG_KEY : 0,
                             .frame = frame,
                             .pts_us = frame * 62500,
                             .duration_us = 62500};
    lti_unit *u = lti_unit_create(&i, NULL, bytes);
    assert_non_null(u);
    memset(lti_unit_payload(u), 7, bytes);
    return u;
}

static void hub_keeps_whole_groups(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lti_hub *h;
    lti_unit *u;
    assert_int_equal(lti_hub_create(&h, ctx, 40000), LT_OK);
    assert_int_equal(lti_hub_get(h, 0, &u), LT_AGAIN);
    assert_int_equal(lti_hub_key_before(h, 5), -1);
    for (int64_t f = 0; f < 1000; f++) {
        assert_true(lti_hub_push(h, unit(f, f % 10 == 0, 1000)));
        const lti_hub_state s = lti_hub_look(h);
        assert_int_equal(s.end, f + 1);
        assert_int_equal(s.first % 10, 0);
        assert_int_equal(s.newest_key, f / 10 * 10);
        assert_true(s.bytes < 40000 + 11 * 1200);
    }
    const lti_hub_state s = lti_hub_look(h);
    assert_true(s.first >= 960 && s.first < 990);
    assert_int_equal(lti_hub_get(h, s.first - 1, &u), LT_ERR_MISSING);
    assert_int_equal(lti_hub_key_before(h, 0), s.first);
    assert_int_equal(lti_hub_key_before(h, 995), 990);
    assert_int_equal(lti_hub_key_before(h, 5000), 990);
    assert_int_equal(lti_hub_get(h, 999, &u), LT_OK);
    lti_hub_end(h);
    lti_unit *none;
    assert_int_equal(lti_hub_get(h, 1000, &none), LT_END);
    lti_hub_destroy(h);
    assert_int_equal(lti_unit_payload(u)[999], 7); /* outlives the hub */
    lti_unit_release(u);
    lt_ctx_destroy(&ctx);
}

static void hub_numbers_events(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lti_hub *h;
    assert_int_equal(lti_hub_create(&h, ctx, 1000), LT_OK);
    assert_null(lti_hub_event(h, 0));
    for (int i = 0; i < 2000; i++)
        lti_hub_say(h, json_pack("{s:i}", "i", i));
    lti_event *e = lti_hub_event(h, 0); /* the oldest that is left */
    assert_int_equal(e->number, lti_hub_look(h).first_event);
    assert_true(e->number > 1000);
    lti_event_release(e);
    e = lti_hub_event(h, 1999);
    assert_int_equal(e->bytes, strlen("{\"i\":1999,\"n\":1999}"));
    assert_memory_equal(e->data + LTI_HEADROOM, "{\"i\":1999,\"n\":1999}", e->bytes);
    lti_event_release(e);
    lti_hub_destroy(h);
    lt_ctx_destroy(&ctx);
}

static void ready(void *user, lt_status s, const char *message)
{
    (void)user, (void)s, (void)message;
}

/* A stream that plays without a device: 16 frames a second, a key frame every second. */
static lti_live *stream_of(lt_server *srv)
{
    static const lt_model_options nothing = {.path = "/nonexistent"};
    static const lt_dev_options cpu = {.device = "cpu", .threads = 1, .isa = "ref"};
    const lti_sched_options sched = {&cpu, &nothing, 1, 1, 1, 0, ready, NULL};
    lt_session_options o = lt_session_options_default();
    lti_video_request r = {.prompt = strdup("x"), .guidance_scale = -1, .solver = -1};
    lti_hub_config c = {.width = 64, .height = 64, .fps = 16, .init = calloc(1, 8)};
    lti_live *l;
    o.prompt = r.prompt;
    o.width = o.height = 64;
    o.fps = 16;
    o.num_frames = 161;
    srv->ctx = new_ctx();
    srv->metrics = lti_metrics_create();
    srv->o = lt_server_options_default();
    assert_int_equal(lti_sched_create(&srv->sched, srv->ctx, &sched), LT_OK);
    assert_int_equal(lti_live_create(&l, srv, &(lti_live_options){.request = &r, .session = &o}),
                     LT_OK);
    c.init_bytes = 8;
    lti_hub_configure(lti_live_hub(l), &c);
    srv->lives = l;
    return l;
}

static void end_stream(lt_server *srv, lti_live *l)
{
    lti_live_release(l);
    lti_sched_destroy(&srv->sched);
    lti_metrics_destroy(srv->metrics);
    lt_ctx_destroy(&srv->ctx);
}

static lti_conn *watch(lt_server *srv, const lti_live *l, const char *wire)
{
    lti_conn *c = lti_conn_create(srv, false);
    char text[200];
    const int n =
        snprintf(text, sizeof text,
                 "{\"type\":\"watch\",\"session_id\":\"%s\",\"key\":\"%s\",\"wire\":\"%s\"}",
                 lti_live_id(l), lti_live_key(l), wire);
    lti_conn_receive(c, text, (size_t)n, false);
    return c;
}

static void push_frames(lti_live *l, int64_t from, int64_t end, double age)
{
    for (int64_t f = from; f < end; f++) {
        lti_unit *u = unit(f, f % 16 == 0, 100);
        u->born -= age;
        assert_true(lti_hub_push(lti_live_hub(l), u));
    }
}

/* The number of the next frame that it is sent; -1: none now. */
static int64_t next_frame(lti_conn *c)
{
    lti_out out;
    while (lti_conn_next(c, &out)) {
        const int64_t frame = out.unit ? out.unit->frame : -1;
        lti_unit_release(out.unit);
        lti_event_release(out.event);
        if (frame >= 0) return frame;
    }
    return -1;
}

static void who_falls_behind_is_sent_on(void **state)
{
    (void)state;
    lt_server srv = {0};
    lti_live *l = stream_of(&srv);
    push_frames(l, 0, 25, 1);
    lti_conn *c = watch(&srv, l, "annexb");
    /* who comes late begins with the newest key frame, and may take what is there at its leisure */
    assert_int_equal(next_frame(c), 16);
    push_frames(l, 25, 40, 2);
    assert_int_equal(next_frame(c), 17);
    /* but not when ever more is waiting, although it never had all */
    push_frames(l, 40, 60, 2);
    assert_int_equal(next_frame(c), 48);
    while (next_frame(c) >= 0)
        continue;
    /* who had all: more than a second of video for more than a second */
    push_frames(l, 60, 75, 2);
    assert_int_equal(next_frame(c), 60);
    push_frames(l, 75, 83, 2);
    assert_int_equal(next_frame(c), 80);
    lti_conn_destroy(c);
    end_stream(&srv, l);
}

/* No key frame comes in a pause: who waits for one gets what there is, to the newest picture. */
static void who_waits_sees_the_pause(void **state)
{
    (void)state;
    lt_server srv = {0};
    lti_live *l = stream_of(&srv);
    lti_conn *c = watch(&srv, l, "annexb");
    for (int64_t f = 0; f < 40; f++) {
        lti_unit *u = unit(f, f == 0, 100);
        u->born -= 2;
        assert_true(lti_hub_push(lti_live_hub(l), u));
        if (f < 5) assert_int_equal(next_frame(c), f);
    }
    assert_int_equal(next_frame(c), -1);
    assert_false(lti_conn_wants_to_write(c));
    lti_live_pause(l, true, NULL);
    for (int64_t f = 5; f < 40; f++) {
        assert_true(lti_conn_wants_to_write(c));
        assert_int_equal(next_frame(c), f);
    }
    assert_int_equal(next_frame(c), -1);
    lti_live_pause(l, false, NULL);
    push_frames(l, 40, 50, 0);
    assert_int_equal(next_frame(c), 40); /* it has had all */
    lti_conn_destroy(c);
    end_stream(&srv, l);
}

/* Frames that nobody wanted as JPEG are there once more, the newest of them, for who comes when no more are made. */
static void who_wants_jpeg_gets_the_newest(void **state)
{
    (void)state;
    lt_server srv = {0};
    lti_live *l = stream_of(&srv);
    lti_hub *h = lti_live_hub(l);
    push_frames(l, 0, 25, 0);
    lti_conn *c = watch(&srv, l, "jpeg"), *other = watch(&srv, l, "annexb");
    assert_int_equal(next_frame(c), -1);
    assert_false(lti_conn_wants_to_write(c));
    const size_t before = lti_hub_look(h).bytes;
    lti_hub_put_picture(h, unit(23, true, 500)); /* of another time */
    assert_false(lti_conn_wants_to_write(c));
    lti_hub_put_picture(h, unit(24, true, 50));
    assert_true(lti_hub_look(h).bytes > before + 50 && lti_hub_look(h).bytes < before + 500);
    assert_true(lti_conn_wants_to_write(c));
    assert_int_equal(next_frame(c), 24);
    assert_int_equal(next_frame(c), -1);
    assert_false(lti_conn_wants_to_write(c));
    for (int64_t f = 16; f < 25; f++)
        assert_int_equal(next_frame(other), f);
    assert_int_equal(next_frame(other), -1);
    lti_conn_destroy(other);
    lti_conn_destroy(c);
    end_stream(&srv, l);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void fragment_has_lengths(void **state)
{
    (void)state;
    static const uint8_t au[] = {0, 0, 0, 1, 0x67, 1, 2, 3, 0, 0, 0, 1,    0x68,
                                 4, 0, 0, 1, 0x65, 9, 8, 7, 0, 0, 1, 0x41, 5};
    uint8_t out[256], sets[64];
    size_t n;
    char codec[16];
    assert_true(lti_fmp4_bound(sizeof au) <= sizeof out);
    const size_t size = lti_fmp4_fragment(out, au, sizeof au, 3, 5, true);
    const uint32_t moof = be32(out);
    assert_memory_equal(out + 4, "moof", 4);
    assert_int_equal(be32(out + moof),
                     8 + 8 + 6); /* two NAL units of 4 and 2 bytes; no parameter sets */
    assert_memory_equal(out + moof + 4, "mdat", 4);
    assert_int_equal(size, moof + 22);
    assert_int_equal(be32(out + moof + 8), 4);
    assert_memory_equal(out + moof + 12, "\x65\x09\x08\x07", 4);
    lti_parameter_sets(au, sizeof au, sets, sizeof sets, &n);
    assert_int_equal(n, 8 + 6);
    assert_true(lti_codec_string(sets, n, codec));
    assert_string_equal(codec, "avc1.010203");
    lti_parameter_sets(au, sizeof au, sets, 9, &n);
    assert_int_equal(n, 0); /* no room: none rather than half */
    assert_false(lti_codec_string(au + 14, sizeof au - 14, codec));
}

static void encoder_gives_a_unit_a_frame(void **state)
{
    (void)state;
    enum { W = 64, H = 48 };
    lt_ctx *ctx = new_ctx();
    lti_encoder *e;
    uint8_t *rgb = malloc(W * H * 3);
    const lti_encoder_options o = {.width = W, .height = H, .fps = 10};
    assert_int_equal(lti_live_encoder_open(
                         &e, ctx, &(lti_encoder_options){.width = 63, .height = 48, .fps = 10}),
                     LT_ERR_ARG);
    assert_int_equal(lti_live_encoder_open(&e, ctx, &o), LT_OK);
    for (int64_t f = 0; f < 30; f++) {
        lti_unit_info i = {.frame = f};
        lti_unit *u, *j;
        for (int k = 0; k < W * H * 3; k++)
            rgb[k] = (uint8_t)(k * 7 + f);
        assert_int_equal(lti_live_encoder_push(e, rgb, f == 13, &i, &u), LT_OK);
        assert_int_equal(u->key, f == 0 || f == 13); /* every 2 s, counted from the last one */
        assert_int_equal(lti_packet_is_marked(lti_unit_payload(u), u->bytes), u->key);
        assert_int_equal(lti_live_encoder_jpeg(e, rgb, &i, &j), LT_OK);
        assert_memory_equal(lti_unit_payload(j), "\xff\xd8\xff\xfe", 4);
        lti_unit_release(u);
        lti_unit_release(j);
    }
    lti_live_encoder_close(&e);
    free(rgb);
    lt_ctx_destroy(&ctx);
}

/* A picture that ends where its memory ends: nothing behind it is read. */
static void pictures_are_read_to_their_end(void **state)
{
    (void)state;
    enum { SIDE = 256, BYTES = SIDE * SIDE * 3 }; /* whole pages */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *rgb =
        mmap(NULL, BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    lt_ctx *ctx = new_ctx();
    lti_encoder *e;
    lti_unit *u;
    lti_unit_info i = {0};
    assert_true(rgb != MAP_FAILED && BYTES % page == 0);
    assert_int_equal(mprotect(rgb + BYTES, page, PROT_NONE), 0);
    assert_int_equal(lti_live_encoder_open(
                         &e, ctx, &(lti_encoder_options){.width = SIDE, .height = SIDE, .fps = 10}),
                     LT_OK);
    assert_int_equal(lti_live_encoder_jpeg(e, rgb, &i, &u), LT_OK);
    lti_unit_release(u);
    assert_int_equal(lti_live_encoder_push(e, rgb, true, &i, &u), LT_OK);
    lti_unit_release(u);
    lti_live_encoder_close(&e);
    lt_ctx_destroy(&ctx);
    munmap(rgb, BYTES + page);
}

static void ranges_and_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        lt_status status;
        int64_t first, last;
    } cases[] = {{"bytes=0-9", LT_OK, 0, 9},
                 {"bytes=10-", LT_OK, 10, 99},
                 {"bytes=-7", LT_OK, 93, 99},
                 {"bytes=-700", LT_OK, 0, 99},
                 {"bytes=50-500", LT_OK, 50, 99},
                 {"bytes=100-", LT_ERR_ARG, 0, 0},
                 {"bytes=-0", LT_ERR_ARG, 0, 0},
                 {"bytes=5-3", LT_AGAIN, 0, 0},
                 {"bytes=0-1,4-5", LT_AGAIN, 0, 0},
                 {"bytes=-", LT_AGAIN, 0, 0},
                 {"bytes=99999999999999999999-", LT_AGAIN, 0, 0},
                 {"lines=1-2", LT_AGAIN, 0, 0}};
    for (size_t i = 0; i < LT_COUNT(cases); i++) {
        int64_t first = 0, last = 0;
        assert_int_equal(lti_range_parse(cases[i].text, 100, &first, &last), cases[i].status);
        if (cases[i].status != LT_OK) continue;
        assert_int_equal(first, cases[i].first);
        assert_int_equal(last, cases[i].last);
    }
    assert_int_equal(lti_length_parse("123"), 123);
    static const char *const wrong[] = {"", "-1", "+1", "1x", " 1", "9999999999999999"};
    for (size_t i = 0; i < LT_COUNT(wrong); i++)
        assert_int_equal(lti_length_parse(wrong[i]), -1);
}

static void pages_and_names(void **state)
{
    (void)state;
    char out[16];
    assert_true(lti_origin_allowed("http://localhost:80", "localhost:80", NULL));
    assert_false(lti_origin_allowed("http://localhost:81", "localhost:80", NULL));
    assert_false(lti_origin_allowed("null", "null", NULL));
    assert_false(lti_origin_allowed("http://", "", NULL));
    assert_true(
        lti_origin_allowed("https://b.example", "x", "https://a.example,https://b.example"));
    assert_false(lti_origin_allowed("https://b.example.evil", "x", "https://b.example"));
    assert_true(lti_host_is_loopback("127.0.0.1:8080") && lti_host_is_loopback("[::1]:1"));
    assert_false(lti_host_is_loopback("localhost.evil.example") || lti_host_is_loopback(""));
    assert_true(lti_query_get("a=1&key=x%20y&b", "key", out, sizeof out));
    assert_string_equal(out, "x y");
    assert_false(lti_query_get("key=%00", "key", out, sizeof out));
    memset(out, 'x', sizeof out);
    assert_false(lti_query_get("key=0123456789abcdef", "key", out, sizeof out));
    assert_string_equal(out,
                        "0123456789abcde"); /* too long: cut, so that it is not taken for none */
    assert_false(lti_query_get("monkey=1", "key", out, sizeof out));
    assert_false(lti_text_valid("\xed\xa0\x80", 3) || lti_text_valid("a\x01", 2));
    assert_true(lti_text_valid("\xf0\x9f\x8e\xac\n", 5));
}

static void messages(void **state)
{
    (void)state;
    lt_ctx *ctx = new_ctx();
    lti_message m;
    static const char start[] = "{\"type\":\"start\",\"prompt\":\"x\",\"seconds\":\"4\",\"seed\":"
                                "\"18446744073709551615\",\"wire\":\"fmp4\",\"unknown\":[1]}";
    assert_int_equal(lti_message_parse(&m, ctx, start, strlen(start)), LT_OK);
    assert_true(m.type == LTI_MESSAGE_START && m.wire == LTI_WIRE_FMP4);
    assert_true(m.request.seed == UINT64_MAX && m.request.seconds == 4);
    lti_message_free(&m);
    static const char *const wrong[] = {"",
                                        "1",
                                        "{}",
                                        "{\"type\":1}",
                                        "{\"type\":\"seek\"}",
                                        "{\"type\":\"start\",\"fps\":1.5}",
                                        "{\"type\":\"start\",\"size\":\"1x2x3\"}",
                                        "{\"type\":\"prompt\",\"text\":\" \"}",
                                        "{\"type\":\"ping\",\"t\":\"1\"}",
                                        "{\"type\":\"ack\",\"rendered_pts\":1e99}"};
    for (size_t i = 0; i < LT_COUNT(wrong); i++) {
        assert_true(lti_message_parse(&m, ctx, wrong[i], strlen(wrong[i])) < 0);
        assert_true(*lt_error(ctx));
        lti_message_free(&m);
    }
    lt_ctx_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hub_keeps_whole_groups),
                                       cmocka_unit_test(hub_numbers_events),
                                       cmocka_unit_test(who_falls_behind_is_sent_on),
                                       cmocka_unit_test(who_waits_sees_the_pause),
                                       cmocka_unit_test(who_wants_jpeg_gets_the_newest),
                                       cmocka_unit_test(fragment_has_lengths),
                                       cmocka_unit_test(pictures_are_read_to_their_end),
                                       cmocka_unit_test(ranges_and_lengths),
                                       cmocka_unit_test(encoder_gives_a_unit_a_frame),
                                       cmocka_unit_test(pages_and_names),
                                       cmocka_unit_test(messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
