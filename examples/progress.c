/* progress.c: one line on standard error that is written over; nothing when it is not a terminal. */
#include "examples/command.h"

#include <string.h>
#include <unistd.h>

void lti_progress_begin(lti_progress *p, bool quiet)
{
    *p = (lti_progress){.on = !quiet && isatty(STDERR_FILENO)};
}

static void duration(char *text, size_t size, double seconds)
{
    const long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

/* Of blocks, whose decoding comes between them: at the pace since the first one was told of, which is not the video's first when a
 * session goes on. */
static int show_blocks(lti_progress *p, char *line, size_t size, const lt_progress *now)
{
    char left[32];
    if (!p->from || now->step <= p->from) {
        p->from = now->step;
        p->since = now->seconds;
    }
    int n = snprintf(line, size, "denoising  block %d/%d", now->step, now->steps);
    const int32_t done = now->step - p->from;
    if (!done || n < 0 || (size_t)n >= size) return n;
    const double each = (now->seconds - p->since) / done;
    duration(left, sizeof left, each * (now->steps - now->step + 1));
    return n + snprintf(line + n, size - (size_t)n, "  %.2f s a block, %s left", each, left);
}

static int show_steps(char *line, size_t size, const lt_progress *now)
{
    static const char *const names[] = {"reading the prompt", "denoising", "decoding"};
    static const char *const units[] = {"layer", "step", "frame"};
    char left[32];
    int n = snprintf(line, size, "%s  %s %d/%d", names[now->phase], units[now->phase], now->step,
                     now->steps);
    if (now->phase != LT_PHASE_DENOISE || now->step == 0 || n < 0 || (size_t)n >= size) return n;
    duration(left, sizeof left, now->step_seconds * (now->steps - now->step));
    return n + snprintf(line + n, size - (size_t)n, "  %.2f s a step, %s left, then decoding",
                        now->step_seconds, left);
}

void lti_progress_show(void *progress, const lt_progress *now)
{
    lti_progress *p = progress;
    const bool whole = now->step == now->steps;
    if (!p->on || (!whole && now->seconds - p->last < 0.1 && now->seconds > p->last)) return;
    p->last = now->seconds;
    char line[160];
    const int n = p->blocks && now->phase == LT_PHASE_DENOISE
                      ? show_blocks(p, line, sizeof line, now)
                      : show_steps(line, sizeof line, now);
    const size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    fprintf(stderr, "\r%s%*s", line, p->width > len ? (int)(p->width - len) : 0, "");
    p->width = len;
    fflush(stderr);
}

void lti_progress_clear(lti_progress *p)
{
    if (p->on && p->width) fprintf(stderr, "\r%*s\r", (int)p->width, "");
    p->width = 0;
}
