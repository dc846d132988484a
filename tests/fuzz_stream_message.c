/* fuzz_stream_message.c: websocket messages, as a stranger would send them, to a connection that watches a stream. Input: a line a
 * message; a line that begins with a zero byte is a binary one. */
#include "stream/server.h"

#include <stdlib.h>
#include <string.h>

static void ready(void *user, lt_status s, const char *message)
{
    (void)user;
    (void)s;
    (void)message;
}

static const uint8_t au[] = {0, 0, 0,    1,    0x67, 0x64, 0, 0x1e, 0xac, 0,   0,
                             0, 1, 0x68, 0xee, 0,    0,    1, 0x65, 0x88, 0x84};

/* A server without a socket and without a model but for its facts, with a stream of some frames. */
static lti_live *make_stream(lt_server *srv)
{
    static const lt_model_options nothing = {.path = "/nonexistent"};
    static const lt_dev_options cpu = {.device = "cpu", .threads = 1, .isa = "ref"};
    lti_live *l = NULL;
    lt_session_options o = lt_session_options_default();
    lti_video_request r = {.prompt = strdup("x"), .guidance_scale = -1, .solver = -1};
    o.prompt = r.prompt;
    o.negative_prompt = "";
    o.width = o.height = 64;
    o.fps = 16;
    o.num_frames = 81;
    o.mode = LT_MODE_AR;
    srv->metrics = lti_metrics_create();
    if (lt_ctx_create(&srv->ctx, NULL, NULL, LT_LOG_ERROR) < 0 || !srv->metrics) abort();
    srv->o = lt_server_options_default();
    srv->o.model.path = "model";
    srv->info = (lt_model_info){.family = "wan2.2-ti2v",
                                .spatial_scale = 8,
                                .frame_scale = 4,
                                .size_multiple = 16,
                                .frame_timesteps = true,
                                .default_width = 64,
                                .default_height = 64,
                                .default_frames = 81,
                                .default_fps = 16,
                                .default_steps = 25,
                                .default_guidance = 4,
                                .default_shift = 5};
    srv->o.history_bytes = 4000; /* the first frames leave */
    pthread_mutex_init(&srv->lock, NULL);
    if (lti_sched_create(&srv->sched, srv->ctx,
                         &(lti_sched_options){&cpu, &nothing, 1, 1, 1, 0, ready, NULL}) < 0)
        abort();
    lti_sched_finish(srv->sched);
    if (lti_live_create(&l, srv, &(lti_live_options){.request = &r, .session = &o}) < 0) abort();
    lti_hub_config c = {.width = 64, .height = 64, .fps = 16, .codec = "avc1.64001E"};
    c.init = malloc(8);
    c.init_bytes = 8;
    memset(c.init, 0, 8);
    lti_hub_configure(lti_live_hub(l), &c);
    for (int64_t f = 0; f < 40; f++) {
        const uint16_t flags = f % 8 ? 0 : LTI_FLAG_KEY;
        const lti_unit_info i = {LTI_UNIT_VIDEO, flags, f, 0, f * 62500, 62500};
        if (!lti_hub_push(lti_live_hub(l), lti_unit_create(&i, au, sizeof au))) abort();
    }
    return l;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lt_server srv;
    static lti_live *live;
    if (!live) live = make_stream(&srv);
    lti_conn *c = lti_conn_create(&srv, false);
    if (!c) return 0;
    char watch[256];
    int n = snprintf(watch, sizeof watch,
                     "{\"type\":\"watch\",\"session_id\":\"%s\",\"key\":\"%s\",\"wire\":\"%s\"}",
                     lti_live_id(live), lti_live_key(live),
                     size % 3 == 0   ? "annexb"
                     : size % 3 == 1 ? "fmp4"
                                     : "jpeg");
    srv.lives = live;
    if (size % 5 == 1) { /* as its owner */
        n = snprintf(watch, sizeof watch,
                     "{\"type\":\"hello\",\"resume\":{\"session_id\":\"%s\",\"token\":\"%s\"}}",
                     lti_live_id(live), lti_live_resume_token(live));
    }
    if (size % 5) lti_conn_receive(c, watch, (size_t)n, false);
    while (size) {
        const uint8_t *end = memchr(data, '\n', size);
        const size_t len = end ? (size_t)(end - data) : size;
        lti_conn_receive(c, data, len, len && !data[0]);
        lti_out out;
        for (int i = 0; i < 8 && lti_conn_wants_to_write(c) && lti_conn_next(c, &out); i++) {
            lti_unit_release(out.unit);
            lti_event_release(out.event);
        }
        lti_conn_tick(c);
        data += len + (end != NULL);
        size -= len + (end != NULL);
    }
    lti_conn_destroy(c);
    return 0;
}
