/* text_cache.c: rows of the prompts that were encoded last. Encoding reads the whole text encoder (of UMT5-XXL 11 GB) however short the
 * text is, and most sessions share their negative prompt. Rows do not depend on the company they are encoded in, so they are the
 * same bits from here. One thread, the model's; the two counts are read by any. */
#include "video/text_cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 32, MAX_BYTES = 64 << 20 };

typedef struct entry {
    int32_t *ids; /* NULL: free */
    int32_t n;
    float *rows;
    size_t bytes;
    uint64_t used;
} entry;

struct lti_text_cache {
    entry e[ENTRIES];
    size_t bytes;
    uint64_t clock;
    atomic_uint_fast64_t hits, misses;
};

lti_text_cache *lti_text_cache_create(void)
{
    return calloc(1, sizeof(lti_text_cache));
}

static void clear(lti_text_cache *c, entry *e)
{
    c->bytes -= e->bytes;
    free(e->ids);
    free(e->rows);
    *e = (entry){0};
}

void lti_text_cache_destroy(lti_text_cache **cache)
{
    lti_text_cache *c = cache ? *cache : NULL;
    if (!c) return;
    for (int i = 0; i < ENTRIES; i++)
        clear(c, &c->e[i]);
    free(c);
    *cache = NULL;
}

const float *lti_text_cache_get(lti_text_cache *c, const int32_t *ids, int32_t n)
{
    for (int i = 0; i < ENTRIES; i++) {
        entry *e = &c->e[i];
        if (!e->ids || e->n != n || memcmp(e->ids, ids, (size_t)n * sizeof *ids)) continue;
        e->used = ++c->clock;
        atomic_fetch_add_explicit(&c->hits, 1, memory_order_relaxed);
        return e->rows;
    }
    atomic_fetch_add_explicit(&c->misses, 1, memory_order_relaxed);
    return NULL;
}

static entry *oldest(lti_text_cache *c)
{
    entry *old = &c->e[0];
    for (int i = 1; i < ENTRIES; i++) /* those that are free were used at 0 */
        if (c->e[i].used < old->used) old = &c->e[i];
    return old;
}

static entry *oldest_held(lti_text_cache *c)
{
    entry *old = NULL;
    for (int i = 0; i < ENTRIES; i++)
        if (c->e[i].ids && (!old || c->e[i].used < old->used)) old = &c->e[i];
    return old;
}

void lti_text_cache_put(lti_text_cache *c, const int32_t *ids, int32_t n, const float *rows,
                        size_t bytes)
{
    if (bytes > MAX_BYTES) return;
    clear(c, oldest(c));
    while (c->bytes + bytes > MAX_BYTES)
        clear(c, oldest_held(c));
    entry *e = oldest(c);
    *e = (entry){.ids = malloc((size_t)n * sizeof *ids + 1), .n = n, .rows = malloc(bytes + 1)};
    if (!e->ids || !e->rows) { /* then it is encoded again */
        clear(c, e);
        return;
    }
    memcpy(e->ids, ids, (size_t)n * sizeof *ids);
    memcpy(e->rows, rows, bytes);
    e->bytes = bytes;
    e->used = ++c->clock;
    c->bytes += bytes;
}

void lti_text_cache_stats(const lti_text_cache *c, uint64_t *hits, uint64_t *misses)
{
    *hits = atomic_load_explicit(&c->hits, memory_order_relaxed);
    *misses = atomic_load_explicit(&c->misses, memory_order_relaxed);
}
