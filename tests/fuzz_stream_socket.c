/* fuzz_stream_socket.c: bytes of strangers on the socket of a whole server: HTTP, handshakes, websocket frames, and messages in frames
 * that are right. Input: a byte that says which, then the bytes. The server draws what it is asked for, with the tiny model. */
#include "stream/stream.h"
#include "tests/tiny_model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>

static struct {
    lt_ctx *ctx;
    lt_server *server;
    pthread_t thread;
    int port;
    uint32_t number;  /* of connections until now */
    char folder[128]; /* of the model */
} all;

static void must(bool good)
{
    if (!good) abort();
}

static void *run(void *arg)
{
    (void)arg;
    must(lt_server_run(all.server) == LT_OK);
    return NULL;
}

static void end(void)
{
    lt_server_stop(all.server);
    lt_server_stop(all.server);
    pthread_join(all.thread, NULL);
    lt_server_destroy(&all.server);
    lt_ctx_destroy(&all.ctx);
    tiny_model_remove(all.folder);
}

static void begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(all.folder, sizeof all.folder, "%.90s/longtake-fuzz-XXXXXX", base ? base : P_tmpdir);
    must(mkdtemp(all.folder) && tiny_model_write(all.folder, 1));
    must(lt_ctx_create(&all.ctx, NULL, NULL, LT_LOG_ERROR) == LT_OK);
    lt_server_options o = lt_server_options_default();
    o.port = 0;
    o.device.device = "cpu";
    o.device.threads = 1;
    o.model.path = all.folder;
    o.max_sessions = o.max_queue = 2;
    o.max_seconds = 2;
    o.resume_seconds = o.keep_seconds = 0.1;
    o.retain_seconds = 1;
    o.history_bytes = 1 << 20;
    o.disk_bytes = 4 << 20;
    must(lt_server_create(&all.server, all.ctx, &o) == LT_OK);
    all.port = lt_server_port(all.server);
    must(!pthread_create(&all.thread, NULL, run, NULL));
    atexit(end);
}

/* From another address of this machine each time: there are fewer ports than connections in a minute. */
static int open_socket(void)
{
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_sec = 15};
    const uint32_t n = ++all.number % 0xfffff;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001u + n)};
    must(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a));
    a.sin_port = htons((uint16_t)all.port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(!connect(fd, (struct sockaddr *)&a, sizeof a));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void say(int fd, const void *data, size_t size)
{
    const char *p = data;
    while (size) { /* the server may have hung up */
        const ssize_t n = send(fd, p, size, MSG_NOSIGNAL);
        if (n <= 0) return;
        p += n;
        size -= (size_t)n;
    }
}

/* Reads until `text` came, or all; false: the server hung up before. It must not just stand. */
static bool hear(int fd, const char *text)
{
    char got[4096];
    size_t have = 0;
    for (;;) {
        const ssize_t n = recv(fd, got + have, sizeof got - 1 - have, 0);
        if (n < 0 && errno == EAGAIN) abort();
        if (n <= 0) return false;
        have += (size_t)n;
        got[have] = 0;
        if (text && strstr(got, text)) return true;
        if (have > sizeof got / 2) have = 0;
    }
}

static bool shake_hands(int fd)
{
    static const char handshake[] =
        "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: "
        "Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: longtake.v1\r\n\r\n";
    say(fd, handshake, sizeof handshake - 1);
    return hear(fd, "\r\n\r\n");
}

/* Records of a first byte, a length and so many bytes become frames that are masked, of a length that is true. */
static void say_frames(int fd, const uint8_t *data, size_t size)
{
    static const uint8_t mask[4] = {1, 2, 4, 8};
    while (size >= 3) {
        const size_t want = data[1] + 256u * (data[2] & 3u), n = want < size - 3 ? want : size - 3;
        uint8_t frame[8 + 1024] = {data[0], 0x80 | 126, (uint8_t)(n >> 8), (uint8_t)n};
        memcpy(frame + 4, mask, 4);
        for (size_t i = 0; i < n; i++)
            frame[8 + i] = data[3 + i] ^ mask[i % 4];
        say(fd, frame, 8 + n);
        data += 3 + n;
        size -= 3 + n;
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    /* looking for leaks after every input takes longer than the input; at the end they are looked for once */
    static char *args[256], no_leaks[] = "-detect_leaks=0";
    must(*argc < 254);
    memcpy(args, *argv, (size_t)*argc * sizeof **argv);
    args[(*argc)++] = no_leaks;
    *argv = args;
    begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const int fd = open_socket();
    const int which = data[0] % 3;
    if (which == 0)
        say(fd, data + 1, size - 1);
    else if (shake_hands(fd) && which == 1)
        say(fd, data + 1, size - 1);
    else if (which == 2)
        say_frames(fd, data + 1, size - 1);
    shutdown(fd, SHUT_WR);
    hear(fd, NULL);
    close(fd);
    if (all.number % 64) return 0;
    const int other = open_socket();
    static const char health[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    say(other, health, sizeof health - 1);
    must(hear(other, "200 OK"));
    close(other);
    return 0;
}
