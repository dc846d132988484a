/* metrics.c: counters and histograms, in Prometheus' text format 0.0.4. Labels are few and never a prompt or a session. */
#include "stream/jobs.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double edges[] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5,
                               0.75,  1,     1.5,  2,     3,    5,   10,  30};

typedef struct histogram {
    uint64_t bucket[LT_COUNT(edges) + 1];
    double sum;
} histogram;

struct lti_metrics {
    atomic_uint_fast64_t counter[LTI_COUNTERS], dropped[2]; /* dropped: gone, too slow */
    pthread_mutex_t lock;
    histogram h[LTI_HISTOGRAMS]; /* {lock} */
    double realtime;             /* {lock} */
    double born;                 /* seconds since 1970 */
};

lti_metrics *lti_metrics_create(void)
{
    lti_metrics *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->born = (double)time(NULL);
    return m;
}

void lti_metrics_destroy(lti_metrics *m)
{
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void lti_count(lti_metrics *m, lti_counter c, uint64_t n)
{
    atomic_fetch_add_explicit(&m->counter[c], n, memory_order_relaxed);
}

void lti_count_dropped(lti_metrics *m, bool too_slow, uint64_t n)
{
    atomic_fetch_add_explicit(&m->dropped[too_slow], n, memory_order_relaxed);
}

void lti_observe(lti_metrics *m, lti_histogram which, double seconds)
{
    size_t i = 0;
    while (i < LT_COUNT(edges) && seconds > edges[i])
        i++;
    pthread_mutex_lock(&m->lock);
    m->h[which].bucket[i]++;
    m->h[which].sum += seconds;
    pthread_mutex_unlock(&m->lock);
}

void lti_note_realtime(lti_metrics *m, double factor)
{
    pthread_mutex_lock(&m->lock);
    m->realtime = m->realtime > 0 ? 0.9 * m->realtime + 0.1 * factor : factor;
    pthread_mutex_unlock(&m->lock);
}

/* ---- the text ---- */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP longtake_%s %s\n# TYPE longtake_%s %s\n", name, help, name, type);
}

static void gauge(FILE *f, const char *name, const char *help, double value)
{
    head(f, name, "gauge", help);
    fprintf(f, "longtake_%s %.17g\n", name, value);
}

static void put_histogram(FILE *f, const char *name, const char *help, const histogram *h)
{
    uint64_t sum = 0;
    head(f, name, "histogram", help);
    for (size_t i = 0; i < LT_COUNT(edges); i++) {
        sum += h->bucket[i];
        fprintf(f, "longtake_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, edges[i], sum);
    }
    sum += h->bucket[LT_COUNT(edges)];
    fprintf(f,
            "longtake_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nlongtake_%s_sum %.9g\nlongtake_%s_count "
            "%" PRIu64 "\n",
            name, sum, name, h->sum, name, sum);
}

static void put_counters(FILE *f, lti_metrics *m)
{
    static const char *const names[][2] = {
#define NAME(name, text, help) {text, help},
        LTI_COUNTER_MAP(NAME)
#undef NAME
    };
    for (size_t i = 0; i < LT_COUNT(names); i++) {
        head(f, names[i][0], "counter", names[i][1]);
        fprintf(f, "longtake_%s %" PRIuFAST64 "\n", names[i][0], atomic_load(&m->counter[i]));
    }
}

/* The counters of kinds and outcomes once more, as one family. */
static void put_outcomes(FILE *f, lti_metrics *m)
{
    static const struct {
        const char *kind, *outcome;
        lti_counter counter;
    } all[] = {{"live", "completed", LTI_COUNT_SESSIONS_COMPLETE},
               {"live", "stopped", LTI_COUNT_SESSIONS_STOPPED},
               {"live", "failed", LTI_COUNT_SESSIONS_FAILED},
               {"job", "completed", LTI_COUNT_JOBS_COMPLETE},
               {"job", "stopped", LTI_COUNT_JOBS_CANCELLED},
               {"job", "failed", LTI_COUNT_JOBS_FAILED},
               {"job", "refused", LTI_COUNT_JOBS_REFUSED}};
    static const char name[] = "requests_total";
    head(f, name, "counter", "Videos asked for, by what they came to");
    for (size_t i = 0; i < LT_COUNT(all); i++)
        fprintf(f, "longtake_%s{kind=\"%s\",outcome=\"%s\"} %" PRIuFAST64 "\n", name, all[i].kind,
                all[i].outcome, atomic_load(&m->counter[all[i].counter]));
    const uint_fast64_t jobs = atomic_load(&m->counter[LTI_COUNT_JOBS_REFUSED]),
                        refused = atomic_load(&m->counter[LTI_COUNT_REFUSED]);
    fprintf(f, "longtake_%s{kind=\"live\",outcome=\"refused\"} %" PRIuFAST64 "\n", name,
            refused > jobs ? refused - jobs : 0);
    head(f, "frames_dropped_total", "counter", "Frames that viewers did not get");
    fprintf(f, "longtake_frames_dropped_total{reason=\"gone\"} %" PRIuFAST64 "\n",
            atomic_load(&m->dropped[0]));
    fprintf(f, "longtake_frames_dropped_total{reason=\"too_slow\"} %" PRIuFAST64 "\n",
            atomic_load(&m->dropped[1]));
}

static void put_texts(FILE *f, const lti_sched_state *s)
{
    head(f, "prompt_cache_hits_total", "counter", "Prompts whose encoding was still there");
    fprintf(f, "longtake_prompt_cache_hits_total %" PRIu64 "\n", s->text_hits);
    head(f, "prompt_cache_misses_total", "counter", "Prompts that were encoded");
    fprintf(f, "longtake_prompt_cache_misses_total %" PRIu64 "\n", s->text_misses);
}

static void put_histograms(FILE *f, lti_metrics *m)
{
    static const char *const names[][2] = {
#define NAME(name, text, help) {text, help},
        LTI_HISTOGRAM_MAP(NAME)
#undef NAME
    };
    for (size_t i = 0; i < LT_COUNT(names); i++) {
        pthread_mutex_lock(&m->lock);
        const histogram h = m->h[i];
        pthread_mutex_unlock(&m->lock);
        put_histogram(f, names[i][0], names[i][1], &h);
    }
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double open_files(void)
{
    double n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the folder itself */
}

static void put_process(FILE *f, const lti_metrics *m)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    const struct {
        const char *name, *type, *help;
        double value;
    } all[] = {{"resident_memory_bytes", "gauge", "Memory of the process", resident_bytes()},
               {"open_fds", "gauge", "Open descriptors", open_files()},
               {"start_time_seconds", "gauge", "When it was started", m->born},
               {"cpu_seconds_total", "counter", "Processor time",
                (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec}};
    for (size_t i = 0; i < LT_COUNT(all); i++)
        fprintf(f, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.3f\n", all[i].name,
                all[i].help, all[i].name, all[i].type, all[i].name, all[i].value);
}

static void put_device(FILE *f, const lti_sched_state *s)
{
    head(f, "gpu_memory_bytes", "gauge", "Memory of the device that the engine holds, by purpose");
    for (int i = 0; i < LT_TAG_COUNT; i++)
        fprintf(f, "longtake_gpu_memory_bytes{state=\"%s\"} %" PRIu64 "\n", lt_tag_name((lt_tag)i),
                s->device.live_bytes[i]);
    gauge(f, "kv_cache_bytes", "Keys and values kept by sessions",
          (double)s->device.live_bytes[LT_TAG_KV]);
}

char *lti_metrics_text(lt_server *srv)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    const lti_sched_state s = lti_sched_look(srv->sched);
    head(f, "build_info", "gauge", "Version and model");
    fprintf(f, "longtake_build_info{version=\"%s\",model=\"%s\"} 1\n", srv->o.version,
            srv->info.family);
    gauge(f, "ready", "The model is loaded", atomic_load(&srv->ready) == 1);
    gauge(f, "sessions_active", "Live sessions on the device", s.live);
    gauge(f, "jobs_active", "Jobs on the device", s.jobs);
    head(f, "requests_waiting", "gauge", "Waiting for a place on the device");
    fprintf(f, "longtake_requests_waiting{kind=\"live\"} %d\n", s.live_queued);
    fprintf(f, "longtake_requests_waiting{kind=\"job\"} %d\n", s.jobs_queued);
    head(f, "requests_running", "gauge", "On the device");
    fprintf(f, "longtake_requests_running{kind=\"live\"} %d\n", s.live);
    fprintf(f, "longtake_requests_running{kind=\"job\"} %d\n", s.jobs);
    gauge(f, "websockets", "Open websocket connections", srv->nconns);
    gauge(f, "task_memory_bytes", "Memory that running tasks were admitted for",
          (double)s.memory_used);
    pthread_mutex_lock(&srv->metrics->lock);
    const double realtime = srv->metrics->realtime;
    pthread_mutex_unlock(&srv->metrics->lock);
    gauge(f, "realtime_factor", "Seconds of video drawn in a second of the device, lately",
          realtime);
    gauge(f, "jobs_disk_bytes", "Videos of jobs, whole and in the making",
          (double)lti_jobs_disk(srv->jobs));
    put_device(f, &s);
    put_counters(f, srv->metrics);
    put_outcomes(f, srv->metrics);
    put_texts(f, &s);
    put_histograms(f, srv->metrics);
    put_process(f, srv->metrics);
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}

/* ---- log ---- */

void lti_say(lt_server *srv, lt_log_level level, const char *event, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug", "trace"};
    struct timespec t;
    struct tm day;
    char ts[48];
    if (!srv->o.log || level > srv->o.log_level) return;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &day);
    const size_t n = strftime(ts, sizeof ts, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(ts + n, sizeof ts - n, ".%03ldZ", t.tv_nsec / 1000000);
    json_t *line = json_pack("{s:s, s:s, s:s}", "ts", ts, "level", names[level], "event", event);
    if (fmt && line) {
        va_list ap;
        json_error_t e;
        va_start(ap, fmt);
        json_t *more = json_vpack_ex(&e, 0, fmt, ap);
        va_end(ap);
        if (more) json_object_update(line, more);
        json_decref(more);
    }
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) srv->o.log(srv->o.log_user, level, text);
    free(text);
    json_decref(line);
}
