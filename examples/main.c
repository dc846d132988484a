/* main.c: the `longtake` command: chooses the subcommand. */
#include "examples/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    lti_command_fn *run;
    const char *help;
} commands[] = {
    {"render", lti_cmd_render, "a prompt becomes a video file"},
    {"batch", lti_cmd_batch, "many renders, the model loaded once, resumable"},
    {"serve", lti_cmd_serve, "a page and a websocket: watch videos while they are made"},
    {"bench", lti_cmd_bench, "how fast this machine is, beside its own peak"},
    {"inspect", lti_cmd_inspect, "what a model or a video file is"},
    {"measure", lti_cmd_measure, "light, colour, sharpness and motion of any video over time"},
};

static void usage(FILE *out)
{
    fputs("usage: longtake COMMAND [options]\n\n", out);
    for (size_t i = 0; i < LT_COUNT(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n  longtake render \"a red ball bounces on green grass\" -o out.mp4\n"
          "  longtake COMMAND --help\n  longtake --version\n",
          out);
}

static void print_log(void *user, lt_log_level level, const char *line)
{
    (void)user;
    static const char *const names[] = {"error", "warning", "info", "debug", "trace"};
    fprintf(stderr, "longtake %s: %s\n", names[level], line);
}

/* LONGTAKE_LOG=error, warn, info, debug or trace; warnings without. */
static lt_log_level log_level(void)
{
    const char *env = getenv("LONGTAKE_LOG");
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    for (size_t i = 0; env && i < LT_COUNT(names); i++)
        if (!strcmp(env, names[i])) return (lt_log_level)i;
    return LT_LOG_WARN;
}

/* A file of ours that got number 2 would take what is said on standard error into itself. Where standard output was closed its number
 * is taken by what cannot be written to, so that end() says that nothing arrived. */
static void open_standard_files(void)
{
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        if (fcntl(number, F_GETFD) < 0) /* open() takes the lowest number that is free */
            (void)!open("/dev/null", number == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

/* What was printed may not have arrived: a full disk, nothing open. */
static int end(int status)
{
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fprintf(stderr, "longtake: cannot write to standard output: %s\n", strerror(errno));
    return status ? status : LTI_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    open_standard_files();
    signal(SIGXFSZ,
           SIG_IGN); /* a file that may not grow is an error of write(), said like a full disk */
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help")) {
        usage(argc < 2 ? stderr : stdout);
        return end(argc < 2 ? LTI_EXIT_USAGE : LTI_EXIT_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        puts("longtake " LT_VERSION);
        return end(LTI_EXIT_OK);
    }
    setenv("SVT_LOG", "1", 0); /* SVT-AV1 prints its settings otherwise; before any thread */
    lt_ctx *ctx;
    if (lt_ctx_create(&ctx, print_log, NULL, log_level()) < 0) {
        fputs("longtake: out of memory\n", stderr);
        return LTI_EXIT_FAILED;
    }
    int status = -1;
    for (size_t i = 0; i < LT_COUNT(commands) && status < 0; i++)
        if (!strcmp(argv[1], commands[i].name)) status = commands[i].run(ctx, argc - 2, argv + 2);
    if (status < 0) {
        lti_fail(ctx, LT_ERR_ARG,
                 "unknown command '%.80s' (render, batch, serve, bench, inspect, measure; --help)",
                 argv[1]);
        status = lti_exit(ctx, LT_ERR_ARG);
    }
    lt_ctx_destroy(&ctx);
    return end(status);
}
