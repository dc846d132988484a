/* fuzz_stream_multipart.c: forms with files, as a stranger would send them. Input: a line of content type, then the body. */
#include "stream/jobs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX = 8 };
    lti_part part[MAX];
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    const size_t head = line ? (size_t)(line - data) : 0, rest = line ? size - head - 1 : 0;
    char *type = calloc(head + 1, 1);
    uint8_t *body = malloc(rest + !rest); /* of its own size, so that a byte too many is seen */
    if (!type || !body) abort();
    memcpy(type, data, head);
    if (rest) memcpy(body, line + 1, rest);
    const int n = lti_multipart_parse(type, body, rest, part, MAX);
    if (n > MAX) abort();
    for (int i = 0; i < n; i++) {
        const lti_part *p = &part[i];
        uint32_t w, h;
        if (p->data < body || p->data + p->bytes > body + rest || strlen(p->name) >= sizeof p->name)
            abort();
        if (!lti_text_valid(p->name, strlen(p->name))) abort();
        uint8_t *copy = malloc(p->bytes + !p->bytes);
        if (!copy) abort();
        memcpy(copy, p->data, p->bytes);
        lti_picture_size(copy, p->bytes, &w, &h);
        free(copy);
    }
    free(body);
    free(type);
    return 0;
}
