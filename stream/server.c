/* server.c: the server as a whole: port, loop, time, the end. */
#include "stream/jobs.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <libwebsockets.h>

#define TICK_S 0.5

/* Streams that have ended and are still kept, whatever their time; descriptors that are not connections. */
enum { MAX_ENDED = 64, OWN_FILES = 64 };

lt_server_options lt_server_options_default(void)
{
    return (lt_server_options){.host = "127.0.0.1",
                               .port = 8080,
                               .device = lt_dev_options_default(),
                               .max_sessions = 8,
                               .max_queue = 64,
                               .max_connections = 1024,
                               .max_seconds = 3600,
                               .resume_seconds = 30,
                               .keep_seconds = 600,
                               .drain_seconds = 20,
                               .stall_seconds = 10,
                               .history_bytes = 64u << 20,
                               .retain_seconds = 86400,
                               .save_seconds = 30,
                               .disk_bytes = (uint64_t)16 << 30,
                               .version = "",
                               .log_level = LT_LOG_INFO};
}

static void fill_defaults(lt_server_options *o)
{
    const lt_server_options d = lt_server_options_default();
    if (!o->host) o->host = d.host;
    if (!o->version) o->version = d.version;
    if (o->max_sessions <= 0) o->max_sessions = d.max_sessions;
    if (o->max_queue <= 0) o->max_queue = d.max_queue;
    if (o->max_connections <= 0) o->max_connections = d.max_connections;
    if (!(o->max_seconds > 0)) o->max_seconds = d.max_seconds;
    if (!(o->resume_seconds > 0)) o->resume_seconds = d.resume_seconds;
    if (!(o->keep_seconds > 0)) o->keep_seconds = d.keep_seconds;
    if (!(o->drain_seconds > 0)) o->drain_seconds = d.drain_seconds;
    if (!(o->stall_seconds > 0)) o->stall_seconds = d.stall_seconds;
    if (!o->history_bytes) o->history_bytes = d.history_bytes;
    if (!(o->retain_seconds > 0)) o->retain_seconds = d.retain_seconds;
    if (!(o->save_seconds > 0)) o->save_seconds = d.save_seconds;
    if (!o->disk_bytes) o->disk_bytes = d.disk_bytes;
}

/* ---- live sessions: network thread ---- */

lti_live *lti_server_find_live(lt_server *srv, const char *id)
{
    for (lti_live *l = srv->lives; l; l = lti_live_get_net(l)->sibling)
        if (lti_equal(lti_live_id(l), id)) return l;
    return NULL;
}

void lti_server_add_live(lt_server *srv, lti_live *l)
{
    lti_live_get_net(l)->sibling = srv->lives;
    srv->lives = lti_live_ref(l);
    lti_server_tick_on(srv);
}

/* Sessions whose owner is gone are stopped, those that ended long ago forgotten, and the oldest when they are many: together they get
 * the memory that those that run may have. */
static void look_after_lives(lt_server *srv, double now)
{
    const uint64_t most = (uint64_t)srv->o.max_sessions * srv->o.history_bytes;
    uint64_t bytes = 0;
    int32_t kept = 0;
    for (lti_live **p = &srv->lives; *p;) {
        lti_live *l = *p;
        lti_live_net *n = lti_live_get_net(l);
        const bool ended = lti_live_get_phase(l) == LTI_LIVE_ENDED;
        if (ended && n->ended <= 0) n->ended = now;
        if (!ended && !n->owner && n->owner_left > 0 && now - n->owner_left > srv->o.resume_seconds)
            lti_live_stop(l, "owner_gone");
        if (!ended && srv->draining && now > srv->drain_until) lti_live_stop(l, "server_stopped");
        if (ended && !n->owner) {
            kept++;
            bytes += lti_hub_look(lti_live_hub(l)).bytes;
        }
        const bool over = now - n->ended > srv->o.keep_seconds || kept > MAX_ENDED || bytes > most;
        if (ended && !n->owner && over) {
            *p = n->sibling;
            lti_live_release(l);
        } else
            p = &n->sibling;
    }
}

static bool all_ended(lt_server *srv)
{
    for (lti_live *l = srv->lives; l; l = lti_live_get_net(l)->sibling)
        if (lti_live_get_phase(l) != LTI_LIVE_ENDED) return false;
    return true;
}

/* ---- time ---- */

typedef struct timer {
    lws_sorted_usec_list_t sul; /* first */
    lws_sorted_usec_list_t expiry;
    lt_server *srv;
} timer;

static void expire(lws_sorted_usec_list_t *sul);

void lti_server_jobs_changed(lt_server *srv)
{
    timer *t = srv->timer;
    if (atomic_exchange(&srv->job_over, false))
        lws_sul_schedule(srv->lws, 0, &t->expiry, expire, 1);
}

/* Forgets jobs that have expired: when the next one is due, and every hour. */
static void expire(lws_sorted_usec_list_t *sul)
{
    timer *t = lws_container_of(sul, timer, expiry);
    const double next = fmin(fmax(lti_jobs_tick(t->srv->jobs), 1), 3600);
    lws_sul_schedule(t->srv->lws, 0, &t->expiry, expire, (lws_usec_t)(next * 1e6));
}

static void tick(lws_sorted_usec_list_t *sul)
{
    timer *t = (timer *)sul;
    lt_server *srv = t->srv;
    look_after_lives(srv, lti_now());
    lti_ws_tick(srv);
    srv->ticking = false;
    if (srv->ws_list || srv->lives || srv->draining) lti_server_tick_on(srv);
}

void lti_server_tick_on(lt_server *srv)
{
    if (srv->ticking || !srv->lws) return;
    srv->ticking = true;
    timer *t = srv->timer;
    lws_sul_schedule(srv->lws, 0, &t->sul, tick, (lws_usec_t)(TICK_S * 1e6));
}

void lti_server_wake(lt_server *srv)
{
    /* several wishes between two rounds of the loop are one */
    if (atomic_load(&srv->alive) && !atomic_exchange(&srv->woken, true))
        lws_cancel_service(srv->lws);
}

/* ---- making ---- */

static const struct lws_protocols protocols[] = {
    {"http", (lws_callback_function *)lti_http_callback, sizeof(void *), 0, 0, NULL, 0},
    {"longtake.v1", (lws_callback_function *)lti_ws_callback, LTI_WS_SESSION_BYTES, 16 << 10, 1,
     NULL, 256 << 10},
    {NULL, NULL, 0, 0, 0, NULL, 0},
};

static const lws_retry_bo_t pings = {.secs_since_valid_ping = 20, .secs_since_valid_hangup = 30};

/* libwebsockets tells of a certificate or key only that it did not like something, and asks the terminal for passphrases. */
static lt_status check_pem(lt_ctx *ctx, const char *path, const char *what, const char *begin)
{
    char line[256];
    bool found = false, locked = false;
    FILE *f = fopen(path, "re");
    if (!f)
        return lti_fail(ctx, LT_ERR_IO, "%s %s: cannot be read: %s", what, path, strerror(errno));
    while (fgets(line, sizeof line, f)) {
        found = found || strstr(line, begin);
        locked = locked || strstr(line, "ENCRYPTED");
    }
    const bool bad = ferror(f) != 0; /* a folder, among others */
    fclose(f);
    if (bad) return lti_fail(ctx, LT_ERR_IO, "%s %s: cannot be read", what, path);
    if (!found) return lti_fail(ctx, LT_ERR_FORMAT, "%s %s: no PEM file with one", what, path);
    if (locked)
        return lti_fail(ctx, LT_ERR_UNSUPPORTED, "%s %s: encrypted, and nobody is asked", what,
                        path);
    return LT_OK;
}

static lt_status check_tls(const lt_server_options *o, lt_ctx *ctx)
{
    if (!o->tls_certificate != !o->tls_key)
        return lti_fail(ctx, LT_ERR_ARG, "TLS wants a certificate and its key");
    if (!o->tls_key) return LT_OK;
    LT_TRY(check_pem(ctx, o->tls_certificate, "TLS certificate", "CERTIFICATE-----"));
    return check_pem(ctx, o->tls_key, "TLS key", "PRIVATE KEY-----");
}

static lt_status check_options(lt_server *srv, lt_ctx *ctx)
{
    const lt_server_options *o = &srv->o;
    if (o->port < 0 || o->port > 65535)
        return lti_fail(ctx, LT_ERR_ARG, "port %d: not in 0..65535", o->port);
    LT_TRY(check_tls(o, ctx));
    if (o->token_file) return lti_tokens_read(&srv->tokens, ctx, o->token_file);
    if (!lti_host_is_loopback(o->host) && !o->open)
        return lti_fail(ctx, LT_ERR_ARG,
                        "host %s: whoever reaches it could use this machine; give a token file, or "
                        "say that it is to be open",
                        o->host);
    return LT_OK;
}

/* Descriptors for the network loop. The process keeps some for files: without them jobs would fail because of strangers' connections,
 * and the loop would turn round a listening socket that it cannot take from. */
static unsigned connections(lt_server *srv)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)srv->o.max_connections + 16;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted + OWN_FILES)
        return (unsigned)wanted;
    const rlim_t n = limit.rlim_cur > 2 * OWN_FILES ? limit.rlim_cur - OWN_FILES : OWN_FILES;
    lti_say(srv, LT_LOG_WARN, "few_descriptors", "{s:I}", "connections", (json_int_t)n);
    return (unsigned)n;
}

static lt_status listen_on(lt_server *srv, lt_ctx *ctx)
{
    struct lws_context_creation_info info = {0};
    lws_set_log_level(0, NULL);
    info.port = CONTEXT_PORT_NO_LISTEN_SERVER;
    info.options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_VALIDATE_UTF8;
    if (srv->o.tls_key) info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
    info.user = srv;
    info.pt_serv_buf_size = 64 << 10;
    info.max_http_header_data = 8192;
    info.max_http_header_pool = 256;
    info.fd_limit_per_thread = connections(srv);
    info.timeout_secs = 10;
    info.keepalive_timeout = 60;
    info.ka_time = 60; /* peers that vanished while there was nothing to say to them */
    info.ka_interval = 10;
    info.ka_probes = 3;
    info.retry_and_idle_policy = &pings;
    srv->lws = lws_create_context(&info);
    if (!srv->lws) return lti_fail(ctx, LT_ERR_MEM, "cannot start libwebsockets");
    info.port = srv->o.port;
    info.iface = srv->o.host;
    info.protocols = protocols;
    info.alpn = "http/1.1"; /* websockets inside HTTP/2 crash in this version */
    info.vhost_name = "longtake";
    if (!strchr(srv->o.host, ':')) info.options |= LWS_SERVER_OPTION_DISABLE_IPV6;
    if (srv->o.tls_key) {
        info.ssl_cert_filepath = srv->o.tls_certificate;
        info.ssl_private_key_filepath = srv->o.tls_key;
    }
    struct lws_vhost *v = lws_create_vhost(srv->lws, &info);
    if (!v && srv->o.tls_key) { /* which of the two was it? */
        info.vhost_name = "plain";
        info.ssl_cert_filepath = info.ssl_private_key_filepath = NULL;
        if (lws_create_vhost(srv->lws, &info))
            return lti_fail(ctx, LT_ERR_FORMAT,
                            "TLS certificate %s, key %s: damaged, or not of each other",
                            srv->o.tls_certificate, srv->o.tls_key);
    }
    if (!v)
        return lti_fail(ctx, LT_ERR_IO, "cannot listen on %s port %d: is it taken?", srv->o.host,
                        srv->o.port);
    srv->port = lws_get_vhost_listen_port(v);
    return LT_OK;
}

static void on_ready(void *user, lt_status s, const char *message)
{
    lt_server *srv = user;
    if (s < 0) {
        pthread_mutex_lock(&srv->lock);
        srv->load_status = s;
        snprintf(srv->load_message, sizeof srv->load_message, "%s", message);
        pthread_mutex_unlock(&srv->lock);
    }
    lti_say(srv, s < 0 ? LT_LOG_ERROR : LT_LOG_INFO, s < 0 ? "model_failed" : "model_ready",
            "{s:s, s:s}", "family", srv->info.family, "message", message);
    atomic_store(&srv->ready, s < 0 ? -1 : 1);
    lti_server_wake(srv);
}

lt_status lt_server_create(lt_server **out, lt_ctx *ctx, const lt_server_options *opt)
{
    lt_server *srv = *out = calloc(1, sizeof *srv);
    if (!srv) return lti_fail(ctx, LT_ERR_MEM, "no memory for a server");
    srv->ctx = ctx;
    srv->o = *opt;
    fill_defaults(&srv->o);
    atomic_init(&srv->ready, 0);
    atomic_init(&srv->stops, 0);
    atomic_init(&srv->woken, false);
    atomic_init(&srv->alive, false);
    atomic_init(&srv->job_over, false);
    pthread_mutex_init(&srv->lock, NULL);
    srv->started = lti_now();
    srv->metrics = lti_metrics_create();
    timer *t = srv->timer = calloc(1, sizeof *t);
    lt_status s = srv->metrics && t ? LT_OK : lti_fail(ctx, LT_ERR_MEM, "no memory for a server");
    if (t) t->srv = srv;
    av_log_set_level(AV_LOG_QUIET);
    if (s == LT_OK) s = check_options(srv, ctx);
    if (s == LT_OK) s = lt_model_probe(&srv->info, ctx, &srv->o.model);
    if (s == LT_OK) s = lti_jobs_open(&srv->jobs, ctx, srv);
    if (s == LT_OK) s = listen_on(srv, ctx);
    if (s == LT_OK)
        atomic_store(&srv->alive, true);
    else
        lt_server_destroy(out);
    return s;
}

int32_t lt_server_port(const lt_server *srv)
{
    return srv->port;
}

/* ---- running ---- */

static void start_draining(lt_server *srv)
{
    srv->draining = true;
    srv->drain_until = lti_now() + srv->o.drain_seconds;
    lti_say(srv, LT_LOG_INFO, "draining", "{s:f}", "seconds", srv->o.drain_seconds);
    lti_ws_tick(srv);
    lti_server_tick_on(srv);
}

static bool finished(lt_server *srv)
{
    const int stops = atomic_load(&srv->stops);
    if (stops && !srv->draining) start_draining(srv);
    if (stops > 1 || atomic_load(&srv->ready) < 0) return true;
    if (!srv->draining || !all_ended(srv)) return false;
    if (srv->ended_at <= 0) srv->ended_at = lti_now();
    return !srv->ws_list || lti_now() - srv->ended_at > 2; /* the last messages are on their way */
}

static void announce(lt_server *srv)
{
    char url[300];
    const bool six = strchr(srv->o.host, ':') != NULL;
    snprintf(url, sizeof url, "%s://%s%s%s:%d/", srv->o.tls_key ? "https" : "http", six ? "[" : "",
             srv->o.host, six ? "]" : "", srv->port);
    lti_say(srv, LT_LOG_INFO, "listening", "{s:s}", "url", url);
    if (srv->o.listening) srv->o.listening(srv->o.listening_user, url);
}

lt_status lt_server_run(lt_server *srv)
{
    LT_TRY(lti_sched_create(&srv->sched, srv->ctx,
                            &(lti_sched_options){.device = &srv->o.device,
                                                 .model = &srv->o.model,
                                                 .max_live = srv->o.max_sessions,
                                                 .max_jobs = 1,
                                                 .max_queue = srv->o.max_queue,
                                                 .memory = srv->o.memory,
                                                 .ready = on_ready,
                                                 .user = srv}));
    lti_jobs_resume(srv->jobs);
    timer *t = srv->timer;
    expire(&t->expiry);
    announce(srv);
    while (!finished(srv) && lws_service(srv->lws, 0) >= 0)
        continue;
    for (lti_live *l = srv->lives; l; l = lti_live_get_net(l)->sibling)
        lti_live_stop(l, "server_stopped");
    lti_jobs_suspend(srv->jobs);
    lti_sched_finish(srv->sched);
    lti_jobs_settle(srv->jobs);
    pthread_mutex_lock(&srv->lock);
    const lt_status s = srv->load_status;
    if (s < 0) lti_fail(srv->ctx, s, "%s", srv->load_message);
    pthread_mutex_unlock(&srv->lock);
    return s;
}

void lt_server_stop(lt_server *srv)
{
    atomic_fetch_add(&srv->stops, 1);
    lti_server_wake(srv);
}

void lt_server_destroy(lt_server **server)
{
    lt_server *srv = server ? *server : NULL;
    if (!srv) return;
    atomic_store(&srv->alive, false);
    if (srv->lws) lws_context_destroy(srv->lws);
    while (srv->lives) {
        lti_live *l = srv->lives;
        srv->lives = lti_live_get_net(l)->sibling;
        lti_live_release(l);
    }
    lti_sched_destroy(&srv->sched); /* after the sockets: their ends still speak of it */
    lti_jobs_close(&srv->jobs);
    lti_tokens_free(srv->tokens);
    lti_metrics_destroy(srv->metrics);
    pthread_mutex_destroy(&srv->lock);
    free(srv->timer);
    free(srv);
    *server = NULL;
}
