/* jobs_internal.h: what the table of jobs (jobs.c) and its disk (store.c) share. */
#ifndef LTI_STREAM_JOBS_INTERNAL_H
#define LTI_STREAM_JOBS_INTERNAL_H

#include "stream/jobs.h"

typedef struct lti_finisher lti_finisher;

struct lti_jobs {
    lt_server *srv;
    char *path;
    bool temporary;
    int dir; /* locked: one server a folder */
    lti_journal *journal;
    lti_finisher *finisher;
    pthread_mutex_t lock;
    lti_job *first, **last; /* {lock} */
    int32_t count;          /* {lock} */
    bool ending;            /* {lock} */
    int64_t tapes;          /* bytes of live streams {lock} */
};

/* ---- jobs.c ---- */

void lti_jobs_enlist(lti_jobs *jobs, lti_job *j); /* {lock} */
void lti_jobs_unlist(lti_jobs *jobs, lti_job *j); /* its reference is the caller's then {lock} */
lti_job *lti_jobs_find_any(lti_jobs *jobs, const char *id); /* borrowed {lock} */
bool lti_job_is_over(const lti_job *j);                     /* {lock} */
void lti_job_set_over(lti_job *j, lti_job_state state, const char *code,
                      const char *message); /* {lock} */

/* ---- finish.c ---- */

LT_MUST_USE lt_status lti_finisher_create(lti_finisher **out, lt_ctx *ctx);
/* Takes a reference and fd. */
void lti_finisher_add(lti_finisher *f, lti_job *j, int fd, int64_t bytes);
void lti_finisher_destroy(lti_finisher **f); /* after the last job; accepts NULL */

/* ---- store.c ---- */

json_t *lti_record_end(const lti_job *j); /* what has become of it; NULL: nothing yet {lock} */
json_t *lti_record_create(const lti_job *j);
json_t *lti_record_small(lti_record_op op, const char *id);
/* Takes record. False: it is not on the disk. */
bool lti_jobs_put(lti_jobs *jobs, json_t *record, bool reserve);
/* The journal anew, of what is there only. {lock} */
void lti_jobs_compact(lti_jobs *jobs);
/* All of a job's; without `video` all but the one that is complete. */
void lti_jobs_remove_files(const lti_jobs *jobs, const char *id, bool video);
int64_t lti_jobs_size(const lti_jobs *jobs, const char *id, const char *end); /* -1: no such file */
int64_t lti_jobs_whole(const lti_jobs *jobs,
                       const char *id); /* bytes of a video that is complete, with its pictures */

#endif
