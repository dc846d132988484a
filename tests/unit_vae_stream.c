/* unit_vae_stream.c: decoding and encoding as streams: what has gone before decides, what comes after does not; memory is what
 * was announced; and no tensor is touched outside operations. */
#include "tests/vae_random.h"

enum { FRAME_SCALE = 4, SCALE = 8 };

static int64_t frames_of(int latents)
{
    return latents ? 1 + (latents - 1) * FRAME_SCALE : 0;
}

/* Latent frame t of a made-up video: [z, h*w], a function of t and the place alone. */
static void push_latent(bench *b, lt_vae_decoder *dec, int t)
{
    const lti_vae_flow *f = &dec->flow;
    const int64_t n = (int64_t)f->h0 * f->w0 * b->vae->config.z_dim;
    float *host = malloc((size_t)n * sizeof *host);
    void *z;
    assert_non_null(host);
    for (int64_t i = 0; i < n; i++)
        host[i] = 1.5f * random_value(1000 + (uint64_t)t, (uint64_t)i);
    assert_int_equal(lt_dev_alloc(b->dev, &z, (size_t)n * sizeof *host, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_upload(b->dev, z, host, (size_t)n * sizeof *host), LT_OK);
    assert_int_equal(lt_vae_decoder_push(dec, z, (int64_t)f->h0 * f->w0), LT_OK);
    lt_dev_free(b->dev, z);
    free(host);
}

/* All frames that are ready, one after the other, to out; how many. */
static int take_frames(bench *b, lt_vae_decoder *dec, float *out)
{
    lt_image img;
    lt_status s;
    int n = 0;
    while ((s = lt_vae_decoder_next(dec, &img)) == LT_OK) {
        const size_t each = (size_t)img.h * (size_t)img.w * 3;
        assert_int_equal(img.c, 3);
        assert_int_equal(
            lt_dev_download(b->dev, out + (size_t)n * each, img.data, each * sizeof(float)), LT_OK);
        n++;
    }
    assert_int_equal(s, LT_AGAIN);
    return n;
}

static size_t frame_numbers(const lt_vae_decoder *dec)
{
    return (size_t)dec->flow.h0 * SCALE * (size_t)dec->flow.w0 * SCALE * 3;
}

static void decode_with(bench *b, lt_vae_decoder *dec, int latents, float *out)
{
    for (int t = 0; t < latents; t++) {
        push_latent(b, dec, t);
        const int n = take_frames(b, dec, out);
        assert_int_equal(n, t ? FRAME_SCALE : 1);
        out += (size_t)n * frame_numbers(dec);
    }
}

/* The whole video, malloc'd. */
static float *decode(bench *b, int latents, int32_t h, int32_t w)
{
    lt_vae_decoder *dec;
    assert_int_equal(lt_vae_decoder_create(&dec, b->vae, h, w), LT_OK);
    float *out = malloc((size_t)frames_of(latents) * frame_numbers(dec) * sizeof *out);
    assert_non_null(out);
    decode_with(b, dec, latents, out);
    lt_vae_decoder_destroy(&dec);
    return out;
}

static size_t video_bytes(int latents, int32_t h, int32_t w)
{
    return (size_t)frames_of(latents) * (size_t)h * SCALE * (size_t)w * SCALE * 3 * sizeof(float);
}

static double psnr(const float *a, const float *b, size_t n)
{
    double sum = 0, low = 1e30, high = -1e30;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
        if ((double)a[i] < low) low = (double)a[i];
        if ((double)a[i] > high) high = (double)a[i];
    }
    return 20 * log10((high - low) / sqrt(sum / (double)n + 1e-30));
}

/* ---- decoding ---------------------------------------------------------------------------- */

/* What follows a frame does not change it, and a video is not all the same. */
static void test_prefix(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_F32);
    bench b = bench_open("cpu", 2, &c);
    float *longer = decode(&b, 4, 3, 2), *shorter = decode(&b, 2, 3, 2);
    assert_memory_equal(longer, shorter, video_bytes(2, 3, 2));
    const size_t each = video_bytes(1, 3, 2);
    for (int i = 0; i + 1 < frames_of(4); i++)
        assert_true(
            memcmp(longer + (size_t)i * each / 4, longer + (size_t)(i + 1) * each / 4, each) != 0);
    free(longer);
    free(shorter);
    bench_close(&b);
}

static void test_reset(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_F32);
    bench b = bench_open("cpu", 2, &c);
    lt_vae_decoder *dec;
    lt_image img;
    float *want = decode(&b, 3, 2, 3), *got = malloc(video_bytes(3, 2, 3));
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 2, 3), LT_OK);
    /* once in the middle of a group, once with a latent frame that nobody asked for */
    decode_with(&b, dec, 2, got);
    push_latent(&b, dec, 2);
    assert_int_equal(lt_vae_decoder_next(dec, &img), LT_OK);
    lt_vae_decoder_reset(dec);
    push_latent(&b, dec, 5);
    lt_vae_decoder_reset(dec);
    decode_with(&b, dec, 3, got);
    assert_memory_equal(want, got, video_bytes(3, 2, 3));
    lt_vae_decoder_destroy(&dec);
    free(want);
    free(got);
    bench_close(&b);
}

static void test_turns(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_F32);
    bench b = bench_open("cpu", 1, &c);
    lt_vae_decoder *dec;
    lt_image img;
    float *out = malloc(video_bytes(2, 1, 1));
    float nothing = 0;
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 1, 1), LT_OK);
    assert_int_equal(lt_vae_decoder_next(dec, &img), LT_AGAIN);
    push_latent(&b, dec, 0);
    assert_int_equal(lt_vae_decoder_push(dec, &nothing, 1), LT_AGAIN);
    assert_int_equal(take_frames(&b, dec, out), 1);
    push_latent(&b, dec, 1);
    for (int i = 0; i < FRAME_SCALE; i++) {
        assert_int_equal(lt_vae_decoder_push(dec, &nothing, 1), LT_AGAIN);
        assert_int_equal(lt_vae_decoder_next(dec, &img), LT_OK);
    }
    assert_int_equal(lt_vae_decoder_next(dec, &img), LT_AGAIN);
    lt_vae_decoder_destroy(&dec);
    free(out);
    bench_close(&b);
}

/* The same video on the device whose memory only operations may touch, and with another number of threads. */
static void test_guard_and_threads(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const lt_vae_config c = small_config(i ? LT_BF16 : LT_F32);
        bench one = bench_open("cpu", 1, &c), three = bench_open("guard", 3, &c);
        float *a = decode(&one, 3, 3, 5), *b = decode(&three, 3, 3, 5);
        assert_memory_equal(a, b, video_bytes(3, 3, 5));
        free(a);
        free(b);
        bench_close(&one);
        bench_close(&three);
    }
}

/* Each frame that any convolution remembers counts. */
static void test_every_state_counts(void **state)
{
    (void)state;
    lt_vae_config c = small_config(LT_F32);
    c.decoder_dim = 4; /* it decodes some seventy times */
    const int32_t h = 2, w = 2;
    bench b = bench_open("cpu", 2, &c);
    lt_vae_decoder *dec;
    float *want = decode(&b, 4, h, w), *got = malloc(video_bytes(4, h, w));
    const size_t before = video_bytes(3, h, w), group = video_bytes(4, h, w) - before;
    int states = 0;
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, h, w), LT_OK);
    for (int at = 0; at < dec->flow.net->n * 4; at++) {
        lt_vae_decoder_reset(dec);
        decode_with(&b, dec, 3, got);
        void *frame = dec->flow.node[at / 4].past[at / 2 % 2][at % 2];
        if (!frame) continue;
        const lti_vae_node *node = &dec->flow.net->node[at / 4];
        int32_t nh, nw;
        lti_vae_node_size(dec->flow.net, node, h, w, &nh, &nw);
        const int32_t width = at / 2 % 2 ? node->cout : node->cin;
        const lt_image m = {.dtype = LT_F32, .h = nh, .w = nw, .c = width, .border = 1};
        assert_int_equal(lt_dev_zero(b.dev, frame, lt_image_bytes(&m)), LT_OK);
        push_latent(&b, dec, 3);
        assert_int_equal(take_frames(&b, dec, got), FRAME_SCALE);
        if (!memcmp(got, want + before / sizeof(float), group))
            fail_msg("%s: state %d does not matter", node->name, at % 4);
        states++;
    }
    /* two frames for conv_in, two convolutions a block, two time stages, the head */
    assert_int_equal(states, 2 * (1 + 2 * 2 + 4 * 2 * 2 + 2 + 1));
    lt_vae_decoder_destroy(&dec);
    free(want);
    free(got);
    bench_close(&b);
}

static void test_bf16_is_near(void **state)
{
    (void)state;
    const lt_vae_config exact = small_config(LT_F32), half = small_config(LT_BF16);
    bench a = bench_open("cpu", 2, &exact), b = bench_open("cpu", 2, &half);
    float *x = decode(&a, 3, 4, 4), *y = decode(&b, 3, 4, 4);
    const double db = psnr(x, y, video_bytes(3, 4, 4) / sizeof(float));
    print_message("bf16 against f32: %.1f dB\n", db);
    assert_true(db > 45);
    free(x);
    free(y);
    bench_close(&a);
    bench_close(&b);
}

/* Bytes as announced, the same at the end as at the beginning, and no allocation once warm. */
static void test_memory(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1}, {2, 3}, {7, 5}};
    for (size_t i = 0; i < 2 * LT_COUNT(sizes); i++) {
        const lt_vae_config c = small_config(i % 2 ? LT_BF16 : LT_F32);
        const int32_t h = sizes[i / 2][0], w = sizes[i / 2][1];
        bench b = bench_open("cpu", 1, &c);
        lt_vae_decoder *dec;
        lt_mem_stats first, warm, last;
        float *out = malloc(video_bytes(4, h, w));
        assert_int_equal(lt_vae_decoder_create(&dec, b.vae, h, w), LT_OK);
        lt_dev_mem_stats(b.dev, &first);
        const uint64_t bytes =
            first.live_bytes[LT_TAG_VAE_STATE] + first.live_bytes[LT_TAG_VAE_WORK];
        assert_true(bytes == lt_vae_decoder_bytes(&c, h, w));
        decode_with(&b, dec, 2, out);
        lt_dev_mem_stats(b.dev, &warm);
        lt_vae_decoder_reset(dec);
        decode_with(&b, dec, 4, out);
        lt_dev_mem_stats(b.dev, &last);
        assert_true(last.live_bytes[LT_TAG_VAE_STATE] == first.live_bytes[LT_TAG_VAE_STATE]);
        /* all of it is used, and no frame is lost: what histories do not hold is free again */
        assert_int_equal(dec->flow.state.used, dec->flow.state.size);
        assert_int_equal(dec->flow.work.used, dec->flow.work.size);
        for (int k = 0; k < dec->flow.lay.npools; k++)
            assert_int_equal(dec->flow.lay.pool[k].free, dec->flow.lay.pool[k].moving);
        /* the latents of this test itself are allocations too: one a push */
        assert_int_equal(last.alloc_calls, warm.alloc_calls + 4);
        lt_vae_decoder_destroy(&dec);
        free(out);
        bench_close(&b);
    }
}

/* The published network at 832 x 480 in bf16: with 147 MB of weights under 3.5 GiB. */
static void test_memory_of_480p(void **state)
{
    (void)state;
    lt_vae_config c = lt_vae_config_wan21();
    c.compute = LT_BF16;
    const double gib = (double)lt_vae_decoder_bytes(&c, 60, 104) / (1 << 30);
    print_message("832x480 in bf16: %.3f GiB of state and work\n", gib);
    assert_true(gib < 3);
    c.compute = LT_F32;
    assert_true(lt_vae_decoder_bytes(&c, 60, 104) > lt_vae_decoder_bytes(&c, 30, 52));
}

static void test_no_memory(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_F32);
    bench b = bench_open("cpu", 1, &c);
    lt_vae_decoder *dec = NULL;
    lt_vae_encoder *enc = NULL;
    int failures = 0;
    for (int64_t nth = 1; !dec; nth++) {
        lti_dev_fail_alloc(b.dev, nth);
        failures += lt_vae_decoder_create(&dec, b.vae, 2, 2) == LT_ERR_MEM;
    }
    for (int64_t nth = 1; !enc; nth++) {
        lti_dev_fail_alloc(b.dev, nth);
        failures += lt_vae_encoder_create(&enc, b.vae, 16, 16) == LT_ERR_MEM;
    }
    lti_dev_fail_alloc(b.dev, 0);
    assert_true(failures >= 4);
    lt_vae_encoder_destroy(&enc);
    lt_vae_decoder_destroy(&dec);
    bench_close(&b);
}

/* A step that fails half way leaves the decoder shut until it is reset, and right after that. */
static lt_status give_up(void *user, const char *node, const lt_image *x)
{
    (void)x;
    return !strcmp(node, user) ? LT_ERR_MEM : LT_OK;
}

static void test_failure_and_reset(void **state)
{
    (void)state;
    static char where[] = "decoder.upsamples.2";
    const lt_vae_config c = small_config(LT_F32);
    bench b = bench_open("cpu", 1, &c);
    lt_vae_decoder *dec;
    lt_image img;
    float *want = decode(&b, 3, 2, 2), *got = malloc(video_bytes(3, 2, 2));
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 2, 2), LT_OK);
    dec->flow.probe = give_up;
    dec->flow.probe_user = where;
    push_latent(&b, dec, 0);
    assert_int_equal(lt_vae_decoder_next(dec, &img), LT_ERR_MEM);
    assert_int_equal(lt_vae_decoder_next(dec, &img), LT_ERR_ARG);
    assert_int_equal(lt_vae_decoder_push(dec, got, 4), LT_ERR_ARG);
    dec->flow.probe = NULL;
    lt_vae_decoder_reset(dec);
    decode_with(&b, dec, 3, got);
    assert_memory_equal(want, got, video_bytes(3, 2, 2));
    lt_vae_decoder_destroy(&dec);
    free(want);
    free(got);
    bench_close(&b);
}

/* ---- the state, out of a decoder and into another ----------------------------------------- */

typedef struct tape {
    lt_dev *dev;
    unsigned char data[1 << 18];
    size_t at;
    int numbers, frames; /* pieces so far */
} tape;

static lt_status move_host(void *user, void *data, size_t bytes, bool load)
{
    tape *t = user;
    assert_true(bytes <= sizeof t->data - t->at);
    memcpy(load ? data : t->data + t->at, load ? t->data + t->at : data, bytes);
    t->at += bytes;
    t->numbers++;
    return LT_OK;
}

static lt_status save_host(void *user, void *data, size_t bytes)
{
    return move_host(user, data, bytes, false);
}

static lt_status load_host(void *user, void *data, size_t bytes)
{
    return move_host(user, data, bytes, true);
}

static lt_status save_device(void *user, void *data, size_t bytes)
{
    tape *t = user;
    assert_true(bytes <= sizeof t->data - t->at);
    t->at += bytes;
    t->frames++;
    return lt_dev_download(t->dev, t->data + t->at - bytes, data, bytes);
}

static lt_status load_device(void *user, void *data, size_t bytes)
{
    tape *t = user;
    assert_true(bytes <= sizeof t->data - t->at);
    t->at += bytes;
    return lt_dev_upload(t->dev, data, t->data + t->at - bytes, bytes);
}

/* What a decoder has in the middle of a group goes on in another one; numbers that no decoder has are refused. */
static void test_state_moves(void **state)
{
    (void)state;
    lt_vae_config c = small_config(LT_F32);
    c.decoder_dim = 4;
    bench b = bench_open("guard", 1, &c);
    lt_vae_decoder *from, *to;
    lt_image img;
    static tape t;
    float *want = malloc(video_bytes(3, 1, 1)), *got = malloc(video_bytes(3, 1, 1));
    const lt_vae_mover save = {&t, false, save_host, save_device},
                       load = {&t, true, load_host, load_device};
    t = (tape){.dev = b.dev};
    assert_int_equal(lt_vae_decoder_create(&from, b.vae, 1, 1), LT_OK);
    assert_int_equal(lt_vae_decoder_create(&to, b.vae, 1, 1), LT_OK);
    decode_with(&b, from, 2, want);
    push_latent(&b, from, 2);
    assert_int_equal(lt_vae_decoder_move(from, &save), LT_ERR_ARG); /* before its first frame */
    assert_int_equal(lt_vae_decoder_next(from, &img), LT_OK);
    assert_int_equal(lt_vae_decoder_move(from, &save), LT_OK);
    assert_true(t.numbers == 2 * from->flow.net->n && t.frames > from->flow.net->n);
    decode_with(&b, to, 1, got); /* lost when the other's state comes */
    t.at = 0;
    assert_int_equal(lt_vae_decoder_move(to, &load), LT_OK);
    assert_int_equal(take_frames(&b, from, want), FRAME_SCALE - 1);
    assert_int_equal(take_frames(&b, to, got), FRAME_SCALE - 1);
    assert_memory_equal(got, want, 3 * video_bytes(1, 1, 1));

    static const uint64_t bad[][2] = {
        {1, 0}, {1 << 5, 0}, {0, (uint64_t)INT64_MAX}, {0, UINT64_MAX}};
    for (size_t i = 0; i < LT_COUNT(bad); i++) { /* of node 0, which has no history */
        t.at = 0;
        memcpy(t.data, bad[i], sizeof bad[i]);
        assert_int_equal(lt_vae_decoder_move(to, &load), LT_ERR_FORMAT);
        assert_int_equal(lt_vae_decoder_next(to, &img), LT_ERR_ARG);
    }
    lt_vae_decoder_reset(to);
    assert_int_equal(lt_vae_decoder_next(to, &img), LT_AGAIN);
    lt_vae_decoder_destroy(&from);
    lt_vae_decoder_destroy(&to);
    free(want);
    free(got);
    bench_close(&b);
}

/* One latent pixel, one row, and networks of other depths. */
static void test_small_and_odd(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1}, {1, 6}, {5, 1}};
    const lt_vae_config c = small_config(LT_BF16);
    bench b = bench_open("guard", 2, &c);
    for (size_t i = 0; i < LT_COUNT(sizes); i++) {
        float *out = decode(&b, 2, sizes[i][0], sizes[i][1]);
        for (size_t k = 0; k < video_bytes(2, sizes[i][0], sizes[i][1]) / sizeof *out; k++)
            assert_true(isfinite(out[k]));
        free(out);
    }
    lt_vae_decoder *dec;
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 0, 4), LT_ERR_ARG);
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 4, 5000), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(b.ctx), "5000"));
    assert_null(dec);
    bench_close(&b);
}

static void test_other_depths(void **state)
{
    (void)state;
    lt_vae_config c = small_config(LT_F32);
    c.levels = 2;
    c.temporal_down[0] = true;
    c.num_res_blocks = 2;
    assert_int_equal(lt_vae_scale(&c), 2);
    assert_int_equal(lt_vae_frame_scale(&c), 2);
    bench b = bench_open("cpu", 2, &c);
    lt_vae_decoder *dec;
    lt_image img;
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 3, 4), LT_OK);
    for (int t = 0; t < 3; t++) {
        push_latent(&b, dec, t);
        for (int i = 0; i < (t ? 2 : 1); i++)
            assert_int_equal(lt_vae_decoder_next(dec, &img), LT_OK);
        assert_int_equal(lt_vae_decoder_next(dec, &img), LT_AGAIN);
    }
    assert_int_equal(img.h, 6);
    assert_int_equal(img.w, 8);
    lt_vae_decoder_destroy(&dec);
    bench_close(&b);
}

/* ---- encoding ---------------------------------------------------------------------------- */

/* Encodes a made-up video of `frames` frames; latents [t][z][pixels], malloc'd. */
static float *encode_with(bench *b, lt_vae_encoder *enc, int frames)
{
    lt_image img = {.dtype = LT_F32, .h = enc->flow.h0, .w = enc->flow.w0, .c = 3};
    const size_t n = (size_t)img.h * (size_t)img.w * 3, pixels = n / 3 / SCALE / SCALE;
    const size_t each = pixels * (size_t)b->vae->config.z_dim;
    float *host = malloc(n * sizeof *host),
          *out = malloc((size_t)(frames + 3) / 4 * each * sizeof *out);
    void *z;
    int latents = 0;
    assert_int_equal(lt_dev_alloc(b->dev, &img.data, n * sizeof *host, LT_TAG_TEST), LT_OK);
    assert_int_equal(lt_dev_alloc(b->dev, &z, each * sizeof *host, LT_TAG_TEST), LT_OK);
    for (int t = 0; t < frames; t++) {
        for (size_t i = 0; i < n; i++)
            host[i] = random_value(500 + (uint64_t)t, i);
        assert_int_equal(lt_dev_upload(b->dev, img.data, host, n * sizeof *host), LT_OK);
        assert_int_equal(lt_vae_encoder_push(enc, &img), LT_OK);
        if (t % FRAME_SCALE) {
            assert_int_equal(lt_vae_encoder_next(enc, z, (int64_t)pixels), LT_AGAIN);
            continue;
        }
        assert_int_equal(lt_vae_encoder_push(enc, &img), LT_AGAIN);
        assert_int_equal(lt_vae_encoder_next(enc, z, (int64_t)pixels), LT_OK);
        assert_int_equal(
            lt_dev_download(b->dev, out + (size_t)latents++ * each, z, each * sizeof *out), LT_OK);
    }
    lt_dev_free(b->dev, z);
    lt_dev_free(b->dev, img.data);
    free(host);
    return out;
}

static void test_encode(void **state)
{
    (void)state;
    const lt_vae_config c = small_config(LT_F32), half = small_config(LT_BF16);
    bench b = bench_open("cpu", 2, &c), g = bench_open("guard", 1, &c),
          h = bench_open("cpu", 2, &half);
    lt_vae_encoder *enc, *other, *near;
    const size_t n = 3 * 6 * 16, bytes = n * sizeof(float);
    assert_int_equal(lt_vae_encoder_create(&enc, b.vae, 16, 24), LT_OK);
    assert_int_equal(lt_vae_encoder_create(&other, g.vae, 16, 24), LT_OK);
    assert_int_equal(lt_vae_encoder_create(&near, h.vae, 16, 24), LT_OK);
    float *whole = encode_with(&b, enc, 9);
    lt_vae_encoder_reset(enc);
    float *part = encode_with(&b, enc, 7);
    lt_vae_encoder_reset(enc);
    float *again = encode_with(&b, enc, 9), *guarded = encode_with(&g, other, 9),
          *rounded = encode_with(&h, near, 9);
    assert_memory_equal(whole, part, bytes / 3 * 2);
    assert_memory_equal(whole, again, bytes);
    assert_memory_equal(whole, guarded, bytes);
    assert_true(psnr(whole, rounded, n) > 45);
    float *all[] = {whole, part, again, guarded, rounded};
    for (size_t i = 0; i < LT_COUNT(all); i++)
        free(all[i]);
    lt_vae_encoder_destroy(&enc);
    lt_vae_encoder_destroy(&other);
    lt_vae_encoder_destroy(&near);
    bench_close(&b);
    bench_close(&g);
    bench_close(&h);
}

static void test_encoder_refusals(void **state)
{
    (void)state;
    lt_vae_config c = small_config(LT_F32);
    bench b = bench_open("cpu", 1, &c);
    lt_vae_encoder *enc;
    lt_vae_decoder *dec;
    assert_int_equal(lt_vae_encoder_create(&enc, b.vae, 20, 16), LT_ERR_ARG);
    assert_non_null(strstr(lt_error(b.ctx), "multiples of 8"));
    assert_int_equal(lt_vae_encoder_create(&enc, b.vae, 8, 8), LT_OK);
    lt_image img = {.dtype = LT_F32, .h = 8, .w = 16, .c = 3};
    assert_int_equal(lt_vae_encoder_push(enc, &img), LT_ERR_SHAPE);
    img.w = 8;
    img.dtype = LT_BF16;
    assert_int_equal(lt_vae_encoder_push(enc, &img), LT_ERR_DTYPE);
    lt_vae_encoder_destroy(&enc);
    bench_close(&b);
    c.no_encoder = true;
    b = bench_open("cpu", 1, &c);
    assert_int_equal(lt_vae_encoder_create(&enc, b.vae, 8, 8), LT_ERR_ARG);
    bench_close(&b);
    c.no_encoder = false;
    c.no_decoder = true;
    b = bench_open("cpu", 1, &c);
    assert_int_equal(lt_vae_decoder_create(&dec, b.vae, 1, 1), LT_ERR_ARG);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_guard_and_threads),
        cmocka_unit_test(test_every_state_counts),
        cmocka_unit_test(test_bf16_is_near),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_480p),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_failure_and_reset),
        cmocka_unit_test(test_state_moves),
        cmocka_unit_test(test_small_and_odd),
        cmocka_unit_test(test_other_depths),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_encoder_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
