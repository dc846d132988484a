/* tape.c: the whole of a live stream on the disk, as MP4 in fragments: from when the memory for it is used up. The device thread adds,
 * downloads read. */
#include "stream/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lti_tape {
    lti_jobs *jobs;
    int fd;
    atomic_llong bytes; /* whole fragments */
    char id[64];
};

static bool write_all(lti_tape *t, const uint8_t *data, size_t bytes)
{
    const long long at = atomic_load(&t->bytes);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(t->fd, data + done, bytes - done, (off_t)(at + (long long)done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    atomic_store(&t->bytes, at + (long long)bytes);
    lti_jobs_tape(t->jobs, (int64_t)bytes);
    return lti_jobs_room(t->jobs, 0);
}

bool lti_tape_add(lti_tape *t, lti_unit *u)
{
    uint8_t *f = malloc(lti_fmp4_bound(u->bytes));
    const bool ok = f && write_all(t, f,
                                   lti_fmp4_fragment(f, lti_unit_payload(u), u->bytes,
                                                     (uint32_t)u->frame + 1, u->frame, u->key));
    free(f);
    return ok;
}

static bool add_all(lti_tape *t, lti_hub *h)
{
    const lti_hub_config *c = lti_hub_get_config(h);
    const lti_hub_state s = lti_hub_look(h);
    lti_unit *u;
    bool ok = c && s.first == 0 && write_all(t, c->init, c->init_bytes);
    for (int64_t f = 0; ok && f < s.end; f++) {
        ok = lti_hub_get(h, f, &u) == LT_OK && lti_tape_add(t, u);
        lti_unit_release(u);
    }
    return ok;
}

lti_tape *lti_tape_start(lti_jobs *jobs, const char *id, lti_hub *h)
{
    char path[LTI_JOB_PATH];
    lti_tape *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->jobs = jobs;
    atomic_init(&t->bytes, 0);
    snprintf(t->id, sizeof t->id, "%s", id);
    lti_jobs_path(jobs, id, "live", path, sizeof path);
    t->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (t->fd >= 0 && add_all(t, h)) return t;
    lti_tape_destroy(t);
    return NULL;
}

int lti_tape_open(lti_tape *t, int64_t *bytes)
{
    *bytes = atomic_load(&t->bytes);
    return fcntl(t->fd, F_DUPFD_CLOEXEC, 3);
}

void lti_tape_destroy(lti_tape *t)
{
    char path[LTI_JOB_PATH];
    if (!t) return;
    lti_jobs_path(t->jobs, t->id, "live", path, sizeof path);
    if (t->fd >= 0) {
        unlink(path);
        close(t->fd);
    }
    lti_jobs_tape(t->jobs, -(int64_t)atomic_load(&t->bytes));
    free(t);
}
