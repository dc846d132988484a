/* hub.c: what a stream keeps: the last frames up to a number of bytes, and the last events. The device thread puts in, the network
 * thread hands out; a reader holds a number and not a place, so a slow one costs nothing. */
#include "stream/server.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- units ---- */

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, v & 0xffff);
    put16(p + 2, v >> 16);
}

lti_unit *lti_unit_create(const lti_unit_info *info, const void *payload, size_t bytes)
{
    if (bytes > UINT32_MAX / 2) return NULL;
    lti_unit *u = malloc(sizeof *u + LTI_HEADROOM + LTI_UNIT_HEADER + bytes);
    if (!u) return NULL;
    *u = (lti_unit){.key = (info->flags & LTI_FLAG_KEY) != 0,
                    .frame = info->frame,
                    .born = lti_now(),
                    .bytes = (uint32_t)bytes};
    atomic_init(&u->refs, 1);
    uint8_t *h = u->data + LTI_HEADROOM;
    memset(u->data, 0, LTI_HEADROOM + LTI_UNIT_HEADER);
    h[0] = 'V';
    h[1] = 'S';
    h[2] = 1;
    h[3] = (uint8_t)info->kind;
    put16(h + 4, info->flags);
    put32(h + 8, (uint32_t)info->frame);
    put32(h + 12, (uint32_t)info->block);
    put32(h + 16, (uint32_t)((uint64_t)info->pts_us & 0xffffffffu));
    put32(h + 20, (uint32_t)((uint64_t)info->pts_us >> 32));
    put32(h + 24, info->duration_us);
    put32(h + 28, (uint32_t)bytes);
    if (payload) memcpy(h + LTI_UNIT_HEADER, payload, bytes);
    return u;
}

void lti_unit_release(lti_unit *u)
{
    if (!u || atomic_fetch_sub(&u->refs, 1) > 1) return;
    lti_unit_release(u->jpeg);
    free(u);
}

uint8_t *lti_unit_payload(lti_unit *u)
{
    return u->data + LTI_HEADROOM + LTI_UNIT_HEADER;
}

void lti_unit_stamp(lti_unit *u, bool discontinuity)
{
    uint8_t *h = u->data + LTI_HEADROOM;
    h[4] =
        (uint8_t)((h[4] & ~LTI_FLAG_DISCONTINUITY) | (discontinuity ? LTI_FLAG_DISCONTINUITY : 0));
}

lti_unit *lti_unit_fragment(const lti_unit *u)
{
    lti_unit *f = malloc(sizeof *f + LTI_HEADROOM + LTI_UNIT_HEADER + lti_fmp4_bound(u->bytes));
    if (!f) return NULL;
    *f = (lti_unit){.key = u->key, .frame = u->frame, .born = u->born};
    atomic_init(&f->refs, 1);
    memcpy(f->data, u->data, LTI_HEADROOM + LTI_UNIT_HEADER);
    const uint8_t *au = u->data + LTI_HEADROOM + LTI_UNIT_HEADER;
    f->bytes = (uint32_t)lti_fmp4_fragment(lti_unit_payload(f), au, u->bytes,
                                           (uint32_t)u->frame + 1, u->frame, u->key);
    f->data[LTI_HEADROOM + 3] = LTI_UNIT_FRAGMENT;
    put32(f->data + LTI_HEADROOM + 28, f->bytes);
    return f;
}

lti_event *lti_event_create(const char *text, size_t bytes)
{
    lti_event *e = malloc(sizeof *e + LTI_HEADROOM + bytes);
    if (!e) return NULL;
    *e = (lti_event){.bytes = bytes};
    atomic_init(&e->refs, 1);
    memset(e->data, 0, LTI_HEADROOM);
    memcpy(e->data + LTI_HEADROOM, text, bytes);
    return e;
}

void lti_event_release(lti_event *e)
{
    if (e && atomic_fetch_sub(&e->refs, 1) == 1) free(e);
}

/* ---- the hub ---- */

enum { MAX_EVENTS = 512, FIRST_ROOM = 256, MAX_FRAMES = 1 << 17 };

struct lti_hub {
    atomic_int jpeg; /* viewers that want it */
    pthread_mutex_t lock;
    size_t max_bytes;
    /* {lock} */
    size_t bytes, room; /* room: a power of two */
    lti_unit **ring;    /* frame f is at f & (room - 1) */
    int64_t first, end, newest_key;
    lti_unit *picture; /* a frame as a JPEG, or NULL */
    lti_event *event[MAX_EVENTS];
    int64_t first_event, end_event;
    bool ended, configured;
    lti_hub_config config; /* constant once configured */
};

lt_status lti_hub_create(lti_hub **out, lt_ctx *ctx, size_t max_bytes)
{
    lti_hub *h = *out = calloc(1, sizeof *h);
    if (h) h->ring = malloc(FIRST_ROOM * sizeof(lti_unit *));
    if (!h || !h->ring) {
        free(h);
        *out = NULL;
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a stream");
    }
    atomic_init(&h->jpeg, 0);
    pthread_mutex_init(&h->lock, NULL);
    h->max_bytes = max_bytes;
    h->room = FIRST_ROOM;
    h->newest_key = -1;
    return LT_OK;
}

void lti_hub_destroy(lti_hub *h)
{
    if (!h) return;
    for (int64_t f = h->first; f < h->end; f++)
        lti_unit_release(h->ring[(size_t)f & (h->room - 1)]);
    for (int64_t n = h->first_event; n < h->end_event; n++)
        lti_event_release(h->event[n % MAX_EVENTS]);
    lti_unit_release(h->picture);
    free(h->ring);
    free(h->config.init);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static lti_unit *at(const lti_hub *h, int64_t frame)
{
    return h->ring[(size_t)frame & (h->room - 1)];
}

static size_t unit_bytes(const lti_unit *u)
{
    const size_t head = sizeof *u + LTI_HEADROOM + LTI_UNIT_HEADER;
    return head + u->bytes + (u->jpeg ? head + u->jpeg->bytes : 0);
}

static bool make_room(lti_hub *h)
{
    if ((size_t)(h->end - h->first) < h->room) return true;
    lti_unit **ring = malloc(2 * h->room * sizeof *ring);
    if (!ring) return false;
    for (int64_t f = h->first; f < h->end; f++)
        ring[(size_t)f & (2 * h->room - 1)] = at(h, f);
    free(h->ring);
    h->ring = ring;
    h->room *= 2;
    return true;
}

/* Leaves whole groups of pictures, so that what is kept can be decoded; the last group always stays. */
static int64_t next_key(const lti_hub *h, int64_t frame)
{
    while (++frame < h->end)
        if (at(h, frame)->key) return frame;
    return -1;
}

static void evict(lti_hub *h)
{
    while (h->bytes > h->max_bytes || h->end - h->first > MAX_FRAMES) {
        const int64_t key = next_key(h, h->first);
        if (key < 0) return;
        for (; h->first < key; h->first++) {
            h->bytes -= unit_bytes(at(h, h->first));
            lti_unit_release(at(h, h->first));
        }
    }
}

bool lti_hub_push(lti_hub *h, lti_unit *u)
{
    pthread_mutex_lock(&h->lock);
    const bool ok = make_room(h);
    if (ok) {
        assert(u->frame == h->end);
        h->ring[(size_t)h->end & (h->room - 1)] = u;
        if (u->key) h->newest_key = h->end;
        h->end++;
        h->bytes += unit_bytes(u);
        evict(h);
    }
    pthread_mutex_unlock(&h->lock);
    if (!ok) lti_unit_release(u);
    return ok;
}

void lti_hub_put_picture(lti_hub *h, lti_unit *u)
{
    pthread_mutex_lock(&h->lock);
    lti_unit *old = h->picture;
    h->picture = u;
    h->bytes += unit_bytes(u);
    h->bytes -= old ? unit_bytes(old) : 0;
    evict(h);
    pthread_mutex_unlock(&h->lock);
    lti_unit_release(old);
}

lti_unit *lti_hub_picture(lti_hub *h)
{
    pthread_mutex_lock(&h->lock);
    lti_unit *u = h->picture;
    if (u) atomic_fetch_add(&u->refs, 1);
    pthread_mutex_unlock(&h->lock);
    return u;
}

void lti_hub_configure(lti_hub *h, const lti_hub_config *c)
{
    pthread_mutex_lock(&h->lock);
    h->config = *c;
    h->configured = true;
    pthread_mutex_unlock(&h->lock);
}

const lti_hub_config *lti_hub_get_config(lti_hub *h)
{
    pthread_mutex_lock(&h->lock);
    const lti_hub_config *c = h->configured ? &h->config : NULL;
    pthread_mutex_unlock(&h->lock);
    return c;
}

void lti_hub_end(lti_hub *h)
{
    pthread_mutex_lock(&h->lock);
    h->ended = true;
    pthread_mutex_unlock(&h->lock);
}

lt_status lti_hub_get(lti_hub *h, int64_t frame, lti_unit **out)
{
    lt_status s = LT_OK;
    *out = NULL;
    pthread_mutex_lock(&h->lock);
    if (frame < h->first)
        s = LT_ERR_MISSING;
    else if (frame >= h->end)
        s = h->ended ? LT_END : LT_AGAIN;
    else {
        *out = at(h, frame);
        atomic_fetch_add(&(*out)->refs, 1);
    }
    pthread_mutex_unlock(&h->lock);
    return s;
}

lti_hub_state lti_hub_look(lti_hub *h)
{
    pthread_mutex_lock(&h->lock);
    const lti_hub_state s = {.first = h->first,
                             .end = h->end,
                             .newest_key = h->newest_key,
                             .picture = h->picture ? h->picture->frame : -1,
                             .first_event = h->first_event,
                             .end_event = h->end_event,
                             .bytes = h->bytes,
                             .ended = h->ended};
    pthread_mutex_unlock(&h->lock);
    return s;
}

int64_t lti_hub_key_before(lti_hub *h, int64_t frame)
{
    pthread_mutex_lock(&h->lock);
    int64_t f = frame < h->end ? frame : h->end - 1;
    while (f > h->first && !at(h, f)->key)
        f--;
    if (f < h->first) f = h->first;
    if (h->first == h->end) f = -1;
    pthread_mutex_unlock(&h->lock);
    return f;
}

/* ---- events ---- */

void lti_hub_say(lti_hub *h, json_t *event)
{
    if (!event) return;
    pthread_mutex_lock(&h->lock);
    json_object_set_new(event, "n", json_integer(h->end_event));
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(9));
    lti_event *e = text ? lti_event_create(text, strlen(text)) : NULL;
    if (e) {
        e->number = h->end_event;
        if (h->end_event - h->first_event == MAX_EVENTS)
            lti_event_release(h->event[h->first_event++ % MAX_EVENTS]);
        h->event[h->end_event++ % MAX_EVENTS] = e;
    }
    pthread_mutex_unlock(&h->lock);
    free(text);
    json_decref(event);
}

lti_event *lti_hub_event(lti_hub *h, int64_t number)
{
    lti_event *e = NULL;
    pthread_mutex_lock(&h->lock);
    if (number < h->first_event) number = h->first_event;
    if (number < h->end_event) {
        e = h->event[number % MAX_EVENTS];
        atomic_fetch_add(&e->refs, 1);
    }
    pthread_mutex_unlock(&h->lock);
    return e;
}

void lti_hub_want_jpeg(lti_hub *h, int change)
{
    atomic_fetch_add(&h->jpeg, change);
}

bool lti_hub_wants_jpeg(const lti_hub *h)
{
    return atomic_load(&h->jpeg) > 0;
}
