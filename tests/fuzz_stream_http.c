/* fuzz_stream_http.c: what strangers write in HTTP requests: paths, queries, lengths, ranges, origins, JSON bodies. Input: lines, in
 * that order; the body is the rest. */
#include "stream/server.h"

#include <stdlib.h>
#include <string.h>

static char *take_line(const uint8_t **data, size_t *size)
{
    const uint8_t *end = memchr(*data, '\n', *size);
    const size_t n = end ? (size_t)(end - *data) : *size;
    char *text = calloc(1, n + 1);
    if (!text) abort();
    memcpy(text, *data, n);
    *data += n + (end != NULL);
    *size -= n + (end != NULL);
    return text;
}

static void check_range(const char *text, int64_t total)
{
    int64_t first = -1, last = -1;
    if (lti_range_parse(text, total, &first, &last) != LT_OK) return;
    if (first < 0 || last < first || last >= total) abort();
}

static void check_json(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    lti_video_request r;
    lti_param param;
    lt_session_options o;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return;
    const lt_model_info info = {.spatial_scale = 8,
                                .frame_scale = 4,
                                .size_multiple = 16,
                                .default_width = 64,
                                .default_height = 64,
                                .default_frames = 9,
                                .default_fps = 16,
                                .default_steps = 4,
                                .default_guidance = 4,
                                .default_shift = 3,
                                .family = "x"};
    json_t *v = lti_wire_json(ctx, (const char *)data, size, 1 << 16);
    if (v) {
        lt_status s = lti_video_request_parse(&r, ctx, v, size & 1, &param);
        if (s == LT_OK) s = lti_video_request_options(&o, ctx, &r, &info, 60, &param);
        if (s == LT_OK) {
            json_t *echo = lti_video_request_echo(&o, &info), *store = json_array();
            lt_key_value meta[32];
            lti_video_metadata(echo, meta, 32, store);
            json_decref(store);
            json_decref(echo);
        }
        lti_video_request_free(&r);
    }
    json_decref(v);
    lt_ctx_destroy(&ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *path = take_line(&data, &size), *query = take_line(&data, &size),
         *length = take_line(&data, &size), *range = take_line(&data, &size),
         *origin = take_line(&data, &size), *host = take_line(&data, &size), out[64];
    unsigned allowed;
    lti_route_find(path, LTI_GET, &allowed);
    for (int i = 0; i < 4; i++)
        if (lti_path_segment(path, i, out, sizeof out) && strchr(out, '/')) abort();
    if (lti_query_get(query, "key", out, sizeof out) && !lti_text_valid(out, strlen(out))) abort();
    if (lti_length_parse(length) > 999999999999999) abort();
    check_range(range, 1000);
    check_range(range, 0);
    lti_origin_allowed(origin, host, "https://a.example,https://b.example");
    lti_host_is_loopback(host);
    check_json(data, size);
    uint8_t sets[64];
    size_t n;
    char codec[16];
    lti_parameter_sets(data, size, sets, sizeof sets, &n);
    lti_codec_string(sets, n, codec);
    uint8_t *fragment = malloc(lti_fmp4_bound(size));
    if (fragment && lti_fmp4_fragment(fragment, data, size, 1, 0, true) > lti_fmp4_bound(size))
        abort();
    free(fragment);
    free(path), free(query), free(length), free(range), free(origin), free(host);
    return 0;
}
