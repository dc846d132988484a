/* cmd_serve.c: longtake serve: the streaming server on this machine's model. */
#include "examples/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "serve [options]\n\n"
    "Opens a page on which videos are watched while they are made, the websocket behind it\n"
    "(/v1/stream), and the OpenAI videos API (/v1/videos). SIGTERM or Ctrl-C: no new videos, "
    "those\n"
    "that are watched may finish, the others go on after a restart; twice: at once.";

static void print_line(void *user, lt_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static void print_url(void *user, const char *url)
{
    const lti_settings *set = user;
    if (!set->quiet) printf("%s\n", url);
    fflush(stdout);
}

static void stop(void *server)
{
    lt_server_stop(server);
}

/* Makes the folders on the way; the last one is the server's. False: it cannot be. */
static bool make_parents(char *path)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        const bool ok = !mkdir(path, 0700) || errno == EEXIST;
        *p = '/';
        if (!ok) return false;
    }
    return true;
}

/* Where jobs are kept when nobody says it: NULL, only as long as the server lives. */
static const char *data_dir(const lti_settings *set, char *out, size_t cap)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (set->data_dir || !set->port) return set->data_dir;
    int n = -1;
    if (state && *state == '/')
        n = snprintf(out, cap, "%s/longtake/%d", state, set->port);
    else if (home && *home == '/')
        n = snprintf(out, cap, "%s/.local/state/longtake/%d", home, set->port);
    const bool there = n > 0 && (size_t)n < cap && make_parents(out) &&
                       (!mkdir(out, 0700) || errno == EEXIST) && !access(out, W_OK);
    return there ? out : NULL;
}

static lt_server_options server_options(lti_settings *set, const lt_model_options *model)
{
    lt_server_options o = lt_server_options_default();
    o.host = set->host;
    o.port = set->port;
    o.device.device = lti_device_name(set);
    o.device.isa = lti_isa_word(set);
    o.device.threads = set->threads;
    o.model = *model;
    o.token_file = set->token_file;
    o.open = set->open;
    o.origins = set->origins;
    o.tls_certificate = set->tls_cert;
    o.tls_key = set->tls_key;
    o.max_sessions = set->max_sessions;
    o.max_queue = set->max_queue;
    o.max_connections = set->max_connections;
    o.max_seconds = set->max_seconds;
    o.resume_seconds = set->resume_seconds;
    o.keep_seconds = set->keep_seconds;
    o.drain_seconds = set->drain_seconds;
    o.stall_seconds = set->stall_seconds;
    o.history_bytes = (uint64_t)set->history << 20;
    o.memory = (uint64_t)set->memory << 20;
    o.disk_bytes = (uint64_t)set->disk << 20;
    o.retain_seconds = set->retain_seconds;
    o.save_seconds = set->save_seconds;
    o.version = LT_VERSION;
    o.log = print_line;
    o.log_level = set->log_requests ? LT_LOG_INFO : LT_LOG_WARN;
    o.listening = print_url;
    o.listening_user = set;
    return o;
}

static lt_status serve(lt_ctx *ctx, lti_settings *set, lti_interrupt *interrupt)
{
    lt_model_options model;
    lti_model_path path;
    lt_server *server;
    LT_TRY(lti_model_find(&model, &path, ctx, set));
    char folder[1024];
    lt_server_options o = server_options(set, &model);
    o.jobs_dir = data_dir(set, folder, sizeof folder);
    LT_TRY(lt_server_create(&server, ctx, &o));
    lti_interrupt_call(interrupt, stop, server);
    const lt_status s = lt_server_run(server);
    lti_interrupt_call(interrupt, NULL, NULL);
    lt_server_destroy(&server);
    return s;
}

int lti_cmd_serve(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lti_interrupt *interrupt = NULL;
    lt_status s = lti_begin(ctx, LTI_SERVE, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done && pos.count)
        s = lti_fail(ctx, LT_ERR_ARG, "serve: '%.80s' is not an option", pos.text[0]);
    if (s == LT_OK && !done) s = lti_interrupt_start(&interrupt, ctx, true);
    if (s == LT_OK && !done) s = serve(ctx, &set, interrupt);
    lti_interrupt_stop(&interrupt);
    return lti_exit(ctx, s);
}
