/* journal.c: a log that is only appended to. A record is its length, its CRC-32C and its text; one that was torn by a crash or has
 * rotted is not there, those behind it are. Room is taken from the disk before it is needed, so that a full disk can still be
 * written down. */
#include "stream/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libavutil/avstring.h>

enum { HEAD = 8, MAX_RECORD = 1 << 20, RESERVE = 64 << 10, MAX_BYTES = 1 << 30 };
static const char magic[8] = {'L', 'T', 'J', 'R', 'N', 'L', '1', '\n'};

struct lti_journal {
    char *path;
    pthread_mutex_t lock;
    int fd;               /* {lock} */
    size_t end, reserved; /* {lock} */
};

static uint32_t crc32c(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    return ~c;
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* The bytes of the text of a whole record; 0: here is none. A text has no byte of zero, a length always has: behind a damaged record
 * hardly a place but the next record's is worth a checksum. */
static size_t record_at(const uint8_t *p, size_t bytes)
{
    const size_t n = bytes >= HEAD ? get32(p) : 0;
    if (!n || n > MAX_RECORD || n > bytes - HEAD) return 0;
    return crc32c(p + HEAD, n) == get32(p + 4) ? n : 0;
}

size_t lti_journal_scan(const uint8_t *data, size_t bytes, lti_journal_fn *each, void *user,
                        size_t *lost)
{
    *lost = 0;
    if (bytes < sizeof magic || memcmp(data, magic, sizeof magic)) return 0;
    size_t end = sizeof magic;
    for (size_t at = end; bytes - at >= HEAD;) {
        const size_t n = record_at(data + at, bytes - at);
        if (!n) {
            at++;
            continue;
        }
        each(user, (const char *)data + at + HEAD, n);
        *lost += at - end;
        end = at += HEAD + n;
    }
    return end;
}

/* ---- writing ---- */

static bool write_at(int fd, const void *data, size_t bytes, size_t at)
{
    const char *p = data;
    while (bytes) {
        const ssize_t n = pwrite(fd, p, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        at += (size_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

/* A full disk is an answer; a file system that cannot reserve is not. */
static bool take_room(int fd, size_t *reserved, size_t until)
{
    if (until <= *reserved) return true;
    const int e = posix_fallocate(fd, 0, (off_t)(until + RESERVE));
    if (e == ENOSPC || e == EDQUOT || e == EFBIG || e == EIO) {
        errno = e;
        return false;
    }
    *reserved = until + RESERVE;
    return true;
}

static bool put_record(int fd, size_t *end, const char *text, size_t bytes)
{
    uint8_t *record = malloc(HEAD + bytes);
    if (!record) return false;
    put32(record, (uint32_t)bytes);
    put32(record + 4, crc32c((const uint8_t *)text, bytes));
    memcpy(record + HEAD, text, bytes);
    const bool ok = write_at(fd, record, HEAD + bytes, *end);
    free(record);
    if (ok) *end += HEAD + bytes;
    return ok;
}

bool lti_journal_append(lti_journal *j, const char *text, size_t bytes, bool reserve)
{
    if (!bytes || bytes > MAX_RECORD) {
        errno = EINVAL;
        return false;
    }
    pthread_mutex_lock(&j->lock);
    const size_t before = j->end;
    bool ok = !reserve || take_room(j->fd, &j->reserved, j->end + HEAD + bytes + RESERVE);
    ok = ok && put_record(j->fd, &j->end, text, bytes);
    if (ok && fdatasync(j->fd)) {
        j->end = before; /* nobody knows what is on the disk: it is written again */
        ok = false;
    }
    const int e = errno;
    pthread_mutex_unlock(&j->lock);
    errno = e;
    return ok;
}

static bool sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? av_asprintf("%.*s", (int)(slash - path), path) : av_strdup(".");
    const int fd = folder ? open(*folder ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const bool ok = fd >= 0 && (!fsync(fd) || errno == EINVAL);
    if (fd >= 0) close(fd);
    av_free(folder);
    return ok;
}

bool lti_journal_rewrite(lti_journal *j, char *const *text, size_t records)
{
    char *name = av_asprintf("%s.new", j->path);
    const int fd =
        name ? open(name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    size_t end = sizeof magic, reserved = 0;
    bool ok = fd >= 0 && write_at(fd, magic, sizeof magic, 0);
    pthread_mutex_lock(&j->lock);
    for (size_t i = 0; ok && i < records; i++)
        ok = put_record(fd, &end, text[i], strlen(text[i]));
    ok = ok && take_room(fd, &reserved, end + RESERVE) && !fsync(fd) && !rename(name, j->path);
    if (ok) {
        sync_folder(j->path);
        close(j->fd);
        j->fd = fd;
        j->end = end;
        j->reserved = reserved;
    } else if (fd >= 0) {
        unlink(name);
        close(fd);
    }
    pthread_mutex_unlock(&j->lock);
    av_free(name);
    return ok;
}

size_t lti_journal_bytes(lti_journal *j)
{
    pthread_mutex_lock(&j->lock);
    const size_t n = j->end;
    pthread_mutex_unlock(&j->lock);
    return n;
}

bool lti_journal_is_empty(lti_journal *j)
{
    return lti_journal_bytes(j) == sizeof magic;
}

/* ---- opening ---- */

static bool only_zeros(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static lt_status read_all(lti_journal *j, lt_ctx *ctx, lti_journal_fn *each, void *user,
                          size_t *lost)
{
    struct stat st;
    if (fstat(j->fd, &st) || st.st_size > MAX_BYTES)
        return lti_fail(ctx, LT_ERR_IO, "cannot read '%s': %s", j->path,
                        errno ? strerror(errno) : "it is too large");
    const size_t bytes = (size_t)st.st_size;
    uint8_t *data = malloc(bytes + 1);
    if (!data) return lti_fail(ctx, LT_ERR_MEM, "no memory for '%s'", j->path);
    size_t got = 0;
    while (got < bytes) {
        const ssize_t n = pread(j->fd, data + got, bytes - got, (off_t)got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) { /* what cannot be read is not what is not there */
            free(data);
            return lti_fail(ctx, LT_ERR_IO, "cannot read '%s': %s", j->path, strerror(errno));
        }
        if (!n) break;
        got += (size_t)n;
    }
    j->end = lti_journal_scan(data, got, each, user, lost);
    j->reserved = bytes;
    while (got > j->end && !data[got - 1])
        got--;
    if (j->end) *lost += got - j->end;
    lt_status s = LT_OK;
    if (!j->end && !only_zeros(data, got))
        s = lti_fail(ctx, LT_ERR_FORMAT, "'%s' is not a journal of jobs", j->path);
    else if (!j->end && (!write_at(j->fd, magic, sizeof magic, 0) || fsync(j->fd)))
        s = lti_fail(ctx, LT_ERR_IO, "cannot write '%s': %s", j->path, strerror(errno));
    if (!j->end) j->end = sizeof magic;
    free(data);
    return s;
}

lt_status lti_journal_open(lti_journal **out, lt_ctx *ctx, const char *path, lti_journal_fn *each,
                           void *user, size_t *lost)
{
    lti_journal *j = *out = calloc(1, sizeof *j);
    if (!j) return lti_fail(ctx, LT_ERR_MEM, "no memory for a journal");
    pthread_mutex_init(&j->lock, NULL);
    j->path = av_strdup(path);
    j->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    lt_status s = LT_OK;
    errno = j->fd < 0 ? errno : 0;
    if (!j->path)
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for a journal");
    else if (j->fd < 0)
        s = lti_fail(ctx, LT_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    else
        s = read_all(j, ctx, each, user, lost);
    if (s < 0) lti_journal_close(out);
    return s;
}

void lti_journal_close(lti_journal **journal)
{
    lti_journal *j = journal ? *journal : NULL;
    if (!j) return;
    if (j->fd >= 0) close(j->fd);
    pthread_mutex_destroy(&j->lock);
    av_free(j->path);
    free(j);
    *journal = NULL;
}
