/* fuzz_video.h: what the fuzz targets of video/ share: a file of memory that has a name. */
#ifndef LT_TESTS_FUZZ_VIDEO_H
#define LT_TESTS_FUZZ_VIDEO_H

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
