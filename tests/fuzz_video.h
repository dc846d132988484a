/* fuzz_video.h: what the fuzz targets of video/ share: a file of memory that has a name, and a look at what is in it. */
#ifndef LT_TESTS_FUZZ_VIDEO_H
#define LT_TESTS_FUZZ_VIDEO_H

#include "video/files.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Writes the bytes to a new memory file; its path to `path`. Close the descriptor when done. */
static inline int fuzz_file(char path[64], const uint8_t *data, size_t size)
{
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* Counts the numbers, reads the first and last byte of every tensor, which must be in the file, and asks for it by name. */
static inline void fuzz_tensors(lti_tensors *t)
{
    const lt_tensor_source source = lti_tensors_source(t);
    if (lti_tensors_parameters(t) < 0) abort();
    for (int64_t i = 0; i < lti_tensors_count(t); i++) {
        const lti_entry *e = lti_tensors_at(t, i);
        uint8_t byte;
        if (e->bytes && (lti_tensors_read(t, e, &byte, 0, 1) < 0 ||
                         lti_tensors_read(t, e, &byte, e->bytes - 1, 1) < 0))
            abort();
        lt_tensor x;
        if (source.get(source.user, e->name, &x) >= 0) source.done(source.user, &x);
    }
}

/* A terminated copy, so that a reader past the end is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *s = malloc(size + 1);
    if (!s) abort();
    if (size) memcpy(s, data, size);
    s[size] = 0;
    return s;
}

#endif
