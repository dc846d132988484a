/* jobs.h: videos that nobody has to watch: the OpenAI videos API. What the files of it share.
 *
 *   network thread                                        device thread
 *   videos.c: HTTP ── multipart.c                          work.c: draws, encodes, appends to ID.part, saves the session now and then
 *        └─ jobs.c: the table of jobs, what becomes of them ─┘
 *              └─ journal.c: every change of state, on the disk before it is told     └─ finish.c: a thread: the file, its pictures
 *
 * A folder has the journal and, for each job, ID.mp4 (complete), ID.jpg (its thumbnail) and ID.sheet (its sheet of pictures, a JPEG),
 * or ID.part (fragments, plays as far as it goes), ID.session (what the rest of the video depends on) and ID.png (the first picture).
 *
 * Locks, in this order: sched, jobs, journal.
 */
#ifndef LTI_STREAM_JOBS_H
#define LTI_STREAM_JOBS_H

#include "stream/server.h"

/* ---- journal.c ---- */

typedef struct lti_journal lti_journal;
typedef void lti_journal_fn(void *user, const char *text, size_t bytes);
/* Every whole record of a journal, in order. Returns the end of the last one: what follows is zeros, or was torn. *lost: bytes before
 * it that are no records. */
size_t lti_journal_scan(const uint8_t *data, size_t bytes, lti_journal_fn *each, void *user,
                        size_t *lost);
/* Makes it when there is none. *lost: bytes that are no records. Errors: LT_ERR_IO, LT_ERR_FORMAT (not a journal), LT_ERR_MEM. */
LT_MUST_USE lt_status lti_journal_open(lti_journal **out, lt_ctx *ctx, const char *path,
                                       lti_journal_fn *each, void *user, size_t *lost);
void lti_journal_close(lti_journal **j);
/* On the disk when it returns. `reserve`: only if there is room for what may have to be said later, too. False: errno tells. Any thread. */
bool lti_journal_append(lti_journal *j, const char *text, size_t bytes, bool reserve);
/* Puts these records in place of all. False: it is as it was. Any thread. */
bool lti_journal_rewrite(lti_journal *j, char *const *text, size_t records);
size_t lti_journal_bytes(lti_journal *j);
bool lti_journal_is_empty(lti_journal *j);

/* ---- multipart.c ---- */

typedef struct lti_part {
    char name[64];
    bool file; /* it has a file name */
    const uint8_t *data;
    size_t bytes;
} lti_part;
/* The parts of a multipart/form-data body, which they lie in. -1: it is none, or has more than `max`. */
int lti_multipart_parse(const char *content_type, const uint8_t *body, size_t bytes, lti_part *out,
                        int max);

/* ---- jobs.c ---- */

typedef struct lti_jobs lti_jobs;
typedef enum lti_job_state {
    LTI_JOB_QUEUED,
    LTI_JOB_RUNNING,
    LTI_JOB_COMPLETED,
    LTI_JOB_FAILED
} lti_job_state;

/* A record of the journal, taken apart. Texts are borrowed from root. */
typedef enum lti_record_op {
    LTI_RECORD_CREATE,
    LTI_RECORD_START,
    LTI_RECORD_SUSPEND,
    LTI_RECORD_DONE,
    LTI_RECORD_FAILED,
    LTI_RECORD_DELETE
} lti_record_op;
typedef struct lti_record {
    json_t *root;
    lti_record_op op;
    const char *id, *owner, *key, *print, *code, *message, *remixed;
    json_t *fields, *params;
    int64_t at, expires, bytes;
    bool image;
} lti_record;
/* False: it is none. To be released by json_decref(r->root) if it is one. */
bool lti_record_parse(lti_record *r, const char *text, size_t bytes);

enum { LTI_JOB_ID = 32, LTI_JOB_OWNER = 17 };
typedef struct lti_job {
    lti_task task; /* first */
    atomic_int refs;
    lt_server *srv;
    char id[LTI_JOB_ID], owner[LTI_JOB_OWNER]; /* owner: of whose token; "" without tokens */
    char remixed[LTI_JOB_ID];                  /* id of the video that it was made from, or "" */
    char *key, print[17];                      /* Idempotency-Key, and of what; NULL: none */
    int64_t created;                           /* seconds since 1970, as all times of the API */
    json_t *fields, *params; /* as they were sent; the effective values: constant */
    lti_video_request request;
    lt_session_options options; /* texts are the request's or the model's */
    bool image;
    struct lti_job *next; /* in order of creation {jobs} */
    /* {jobs} */
    lti_job_state state;
    int64_t completed, expires, bytes, made, disk;
    char code[32], message[256];
    double progress, progress_from; /* 0..100; where this run began */
    double began;
    int32_t position, starts;
    bool submitted, gone;  /* the scheduler has it; it was deleted */
    lt_session *session;   /* for cancelling */
    double stopped_at;     /* 0: not */
    struct lti_draw *draw; /* work.c's: device thread */
    /* finish.c's */
    struct lti_job *finish_next;
    int part; /* the descriptor of the part, and its bytes */
    int64_t part_bytes;
} lti_job;

/* Reads the journal of srv->o.jobs_dir, or makes a folder that goes when the server does. */
LT_MUST_USE lt_status lti_jobs_open(lti_jobs **out, lt_ctx *ctx, lt_server *srv);
void lti_jobs_close(lti_jobs **jobs);
/* Hands what was not finished to the scheduler. */
void lti_jobs_resume(lti_jobs *jobs);
/* The server ends: what is drawn is left, and kept. */
void lti_jobs_suspend(lti_jobs *jobs);
bool lti_jobs_ending(const lti_jobs *jobs); /* {jobs} */
void lti_jobs_path(const lti_jobs *jobs, const char *id, const char *end, char *out, size_t cap);
enum { LTI_JOB_PATH = 4096 };

void lti_jobs_lock(lti_jobs *jobs);
void lti_jobs_unlock(lti_jobs *jobs);
lti_job *lti_jobs_first(lti_jobs *jobs); /* {jobs} */
/* A reference, or NULL: there is none of that owner. */
lti_job *lti_jobs_find(lti_jobs *jobs, const char *id, const char *owner);
/* The one that was made with this Idempotency-Key within a day. */
lti_job *lti_jobs_find_key(lti_jobs *jobs, const char *key, const char *owner);
void lti_job_release(lti_job *j);

/* A job of one reference, not in the table yet. Takes fields. Errors: LT_ERR_MEM. */
LT_MUST_USE lt_status lti_job_create(lti_job **out, lt_ctx *ctx, lt_server *srv, json_t *fields);
/* Request, options and memory from its fields and what model there is. Errors: as lti_video_request_options. */
LT_MUST_USE lt_status lti_job_complete(lti_job *j, lt_ctx *ctx, bool strict, lti_param *param);
/* Writes it down and hands it to the scheduler. LT_AGAIN: the queue is full, *eta says for how long; LT_ERR_IO: the disk is full, or
 * broken; LT_ERR_MEM: it can never fit. */
LT_MUST_USE lt_status lti_jobs_add(lti_jobs *jobs, lti_job *j, double *eta);
/* One that was not added leaves no file. */
void lti_jobs_discard(lti_jobs *jobs, lti_job *j);
/* Stops it, if it is not over; it is then failed, "cancelled". */
void lti_jobs_cancel(lti_jobs *jobs, lti_job *j);
/* Stops it and forgets it. */
void lti_jobs_delete(lti_jobs *jobs, lti_job *j);
/* The video object of the API. New reference. */
json_t *lti_job_object(lti_job *j);
/* Forgets what has expired. Seconds until it has to be called again; INFINITY: not. */
double lti_jobs_tick(lti_jobs *jobs);
/* Whether so many bytes more may be written; videos that are complete leave for them, the oldest first. Any thread. */
bool lti_jobs_room(lti_jobs *jobs, uint64_t bytes);
uint64_t lti_jobs_disk(lti_jobs *jobs);

/* From the device thread: it has begun; what it has come to. code NULL: it is complete, or (why LT_ERR_CANCELLED) goes on another time. */
void lti_job_started(lti_job *j);
void lti_job_ended(lti_job *j, lt_status why, const char *code, const char *message);

/* Bytes that live streams have on the disk, more or less. Any thread. */
void lti_jobs_tape(lti_jobs *jobs, int64_t change);

/* A job that is drawn is completed beside the device. Takes the caller's reference and fd. Device thread. */
void lti_jobs_finish(lti_jobs *jobs, lti_job *j, int fd, int64_t bytes);
/* Returns when all that are drawn are complete: after the device thread has ended. */
void lti_jobs_settle(lti_jobs *jobs);
const char *lti_job_disk_code(int error); /* "disk_full", "disk_failed" */

/* ---- work.c ---- */

extern const lti_task_ops lti_job_ops;

/* ---- videos.c, content.c ---- */

lti_handler lti_videos_create, lti_videos_list, lti_videos_get, lti_videos_delete,
    lti_videos_cancel, lti_videos_remix, lti_videos_content;
/* A reference to the job that the path names; NULL: the reply says that there is none. */
lti_job *lti_videos_find(lt_server *srv, const lti_http_request *rq, lti_http_reply *re);
enum {
    LTI_VIDEOS_BODY = 28 << 20, /* a picture of 20 MiB in base64, and the rest */
    LTI_REMIX_BODY = 64 << 10   /* a prompt */
};

#endif
