/* temp_files.h: a folder for one test, files in it, and safetensors written from a header text. For tests. */
#ifndef LT_TESTS_TEMP_FILES_H
#define LT_TESTS_TEMP_FILES_H

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char temp_dir[128];

static void temp_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(temp_dir, sizeof temp_dir, "%.90s/longtake-test-XXXXXX", base ? base : P_tmpdir);
    if (!mkdtemp(temp_dir)) abort();
}

static int temp_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void temp_remove(void)
{
    nftw(temp_dir, temp_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Path of a file in the folder; folders on the way are made. The last four results stay valid. */
static const char *temp_path(const char *name)
{
    static char ring[4][256];
    static int at;
    char *p = ring[at++ % 4];
    snprintf(p, sizeof ring[0], "%s/%s", temp_dir, name);
    for (char *s = p + strlen(temp_dir) + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        mkdir(p, 0755);
        *s = '/';
    }
    return p;
}

static void temp_write(const char *name, const void *data, size_t len)
{
    FILE *f = fopen(temp_path(name), "wb");
    if (!f || fwrite(data, 1, len, f) != len || fclose(f)) abort();
}

static inline void temp_text(const char *name, const char *text)
{
    temp_write(name, text, strlen(text));
}

/* Length, header, then data_len bytes of data: byte i is (uint8_t)i. */
static inline void temp_safetensors(const char *name, const char *header, size_t data_len)
{
    const uint64_t len = strlen(header);
    uint8_t *all = malloc(8 + len + data_len);
    if (!all) abort();
    for (int i = 0; i < 8; i++)
        all[i] = (uint8_t)(len >> (8 * i));
    memcpy(all + 8, header, len);
    for (size_t i = 0; i < data_len; i++)
        all[8 + len + i] = (uint8_t)i;
    temp_write(name, all, 8 + len + data_len);
    free(all);
}

#endif
