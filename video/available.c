/* available.c: what a process may still take: the machine's free memory, and less where a control group (a container, a service) has
 * less. Groups of version 2; those of version 1 are not looked at. */
#include "video/model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096 };

/* The number after `key` in a small text file; UINT64_MAX when there is none ("max" of a control group). */
static uint64_t read_number(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    if (!f) return UINT64_MAX;
    char line[256];
    uint64_t value = UINT64_MAX;
    while (value == UINT64_MAX && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        char *end;
        const unsigned long long n = strtoull(line + strlen(key), &end, 10);
        if (end == line + strlen(key)) break;
        value = n;
    }
    fclose(f);
    return value;
}

static uint64_t number_in(const char *dir, const char *file, const char *key)
{
    char path[2 * MAX_PATH + 32];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    return n > 0 && (size_t)n < sizeof path ? read_number(path, key) : UINT64_MAX;
}

/* Pages of files count as used until somebody wants the room, and a model that was read before is such pages. */
static uint64_t room_in(const char *group)
{
    const uint64_t max = number_in(group, "memory.max", "");
    uint64_t used = number_in(group, "memory.current", "");
    if (max == UINT64_MAX || used == UINT64_MAX) return UINT64_MAX;
    static const char *const files[] = {"active_file ", "inactive_file "};
    for (size_t i = 0; i < LT_COUNT(files); i++) {
        const uint64_t n = number_in(group, "memory.stat", files[i]);
        if (n != UINT64_MAX) used -= n < used ? n : used;
    }
    return used < max ? max - used : 0;
}

/* The path of this process's group below the mount, "" for the root or where there is none. */
static void own_group(char path[MAX_PATH], const char *root)
{
    char name[MAX_PATH];
    path[0] = 0;
    const int n = snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *f = n > 0 && (size_t)n < sizeof name ? fopen(name, "re") : NULL;
    if (!f) return;
    char line[MAX_PATH];
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "0::/", 4)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(path, MAX_PATH, "%s", line + 3);
        }
    fclose(f);
}

uint64_t lti_available_bytes(const char *root)
{
    char path[2 * MAX_PATH], own[MAX_PATH];
    uint64_t least = number_in(root, "proc/meminfo", "MemAvailable:");
    if (least < UINT64_MAX / 1024) least *= 1024;
    own_group(own, root);
    const int n = snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, own);
    if (n < 0 || (size_t)n >= sizeof path) return least;
    for (const size_t mount = (size_t)n - strlen(own);;) { /* those it is in bind a group as well */
        const uint64_t room = room_in(path);
        if (room < least) least = room;
        char *slash = strrchr(path + mount, '/');
        if (!slash) return least;
        *slash = 0;
    }
}
