/* fuzz_stream_journal.c: journals of jobs, torn and worse: what is taken for a record can be written and read again. */
#include "stream/jobs.h"

#include <stdlib.h>
#include <string.h>

static void each(void *user, const char *text, size_t bytes)
{
    lti_record r;
    ++*(size_t *)user;
    if (!lti_record_parse(&r, text, bytes)) return;
    if (strlen(r.id) >= LTI_JOB_ID || strchr(r.id, '/') || r.at < 0) abort();
    if (r.op == LTI_RECORD_CREATE && !json_is_object(r.fields)) abort();
    json_decref(r.root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t records = 0, again = 0, lost, lost_again = 0;
    const size_t good = lti_journal_scan(data, size, each, &records, &lost);
    if (good > size || lost > good) abort();
    if (good && lti_journal_scan(data, good, each, &again, &lost_again) != good) abort();
    if (again != records || lost_again != (good ? lost : 0)) abort();
    each(&again, (const char *)data, size); /* as a record: the checksum lets little through */
    return 0;
}
