/* server.h: what the files of the server share. No other room includes it.
 *
 *   network thread (lt_server_run)                      device thread (sched.c)
 *   http.c ─ routes.c ─┐                                 picks the task whose playback runs dry first,
 *   ws.c ─ conn.c ─────┼─ live.c ── submit, prompt ────► live_draw.c: one lt_session_next, then encode.c
 *                      └─ hub.c ◄── packets, events ──── live_draw.c
 *
 * Locks, in this order: sched, live, hub; none is held across a device call, an encoder call or a socket write.
 */
#ifndef LTI_STREAM_SERVER_H
#define LTI_STREAM_SERVER_H

#include "stream/internal.h"
#include "video/video.h"

#include <pthread.h>
#include <stdatomic.h>

#include <jansson.h>

/* ---- thread.c ---- */

typedef struct lti_thread {
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* waits by the monotonic clock */
    lt_ctx *ctx;            /* for what it does */
    bool running;           /* until it was joined: whoever started it */
} lti_thread;
/* Everything is there before `run` begins. Errors: LT_ERR_MEM; then there is nothing to free. */
LT_MUST_USE lt_status lti_thread_start(lti_thread *t, lt_ctx *ctx, void *(*run)(void *), void *arg);
/* Waits for its end, once; the rest stays. */
void lti_thread_join(lti_thread *t);
void lti_thread_free(lti_thread *t); /* joins */

/* ---- units: one media unit each, header and payload in one piece, ready to be written to any number of sockets ---- */

enum {
    LTI_HEADROOM = 32, /* before the header, for the frame head that libwebsockets puts there */
    LTI_UNIT_HEADER = 32
};
typedef enum lti_unit_kind {
    LTI_UNIT_VIDEO = 2,
    LTI_UNIT_INIT = 3,
    LTI_UNIT_FRAGMENT = 4,
    LTI_UNIT_JPEG = 5,
    LTI_UNIT_END = 7
} lti_unit_kind;
enum {
    LTI_FLAG_KEY = 1,
    LTI_FLAG_DISCONTINUITY = 2, /* frames before this one were left out */
    LTI_FLAG_PROMPT = 8,        /* the first frame of a new prompt */
    LTI_FLAG_MARKED = 16        /* says that it is AI-generated */
};

typedef struct lti_unit {
    atomic_int refs;
    bool key;
    int64_t frame;         /* number in the video */
    double born;           /* lti_now() */
    struct lti_unit *jpeg; /* the same picture for viewers that want JPEG, or NULL */
    uint32_t bytes;        /* payload */
    uint8_t data[];        /* headroom, header, payload */
} lti_unit;

typedef struct lti_unit_info {
    lti_unit_kind kind;
    uint16_t flags;
    int64_t frame, block, pts_us;
    uint32_t duration_us;
} lti_unit_info;
/* Payload is copied (may be NULL: to be filled). NULL: no memory. */
lti_unit *lti_unit_create(const lti_unit_info *info, const void *payload, size_t bytes);
void lti_unit_release(lti_unit *u); /* accepts NULL */
uint8_t *lti_unit_payload(lti_unit *u);
/* What differs from viewer to viewer; only the network thread writes it. */
void lti_unit_stamp(lti_unit *u, bool discontinuity);
/* The same frame as a fragment of MP4. NULL: no memory. */
lti_unit *lti_unit_fragment(const lti_unit *u);

/* ---- encode.c: one encode per stream ---- */

typedef struct lti_encoder lti_encoder;
typedef struct lti_encoder_options {
    int32_t width, height, fps, crf; /* crf 0 = 21 */
    bool pictures_only;              /* for lti_live_encoder_jpeg */
} lti_encoder_options;
LT_MUST_USE lt_status lti_live_encoder_open(lti_encoder **out, lt_ctx *ctx,
                                            const lti_encoder_options *o);
/* rgb [height, width, 3] becomes one access unit in Annex B form; info->flags gains KEY and MARKED. No frame waits. */
LT_MUST_USE lt_status lti_live_encoder_push(lti_encoder *e, const uint8_t *rgb, bool key,
                                            lti_unit_info *info, lti_unit **out);
/* The same picture as a JPEG. */
LT_MUST_USE lt_status lti_live_encoder_jpeg(lti_encoder *e, const uint8_t *rgb,
                                            const lti_unit_info *info, lti_unit **out);
void lti_live_encoder_close(lti_encoder **e);

/* ---- fmp4.c: MP4 in fragments of one frame, without state ---- */

/* SPS and PPS of an access unit, in Annex B form: *bytes 0 when it has none. */
void lti_parameter_sets(const uint8_t *au, size_t size, uint8_t *out, size_t cap, size_t *bytes);
/* "avc1.64001E" from them; false when they are not H.264's. */
bool lti_codec_string(const uint8_t *sets, size_t bytes, char out[16]);
/* ftyp, moov with metadata, XMP box. malloc'd. */
LT_MUST_USE lt_status lti_fmp4_init(lt_ctx *ctx, uint8_t **out, size_t *bytes, const uint8_t *sets,
                                    size_t set_bytes, int32_t width, int32_t height, int32_t fps,
                                    const lt_key_value *metadata, int32_t nmetadata);
/* Most bytes that a fragment of an access unit can take. */
size_t lti_fmp4_bound(size_t au_bytes);
/* moof and mdat of frame number `frame`, counted from 0 at the start of the file. Returns its size. */
size_t lti_fmp4_fragment(uint8_t *out, const uint8_t *au, size_t size, uint32_t sequence,
                         int64_t frame, bool key);

/* ---- hub.c: what a stream keeps, in bounded memory ---- */

typedef struct lti_event {
    atomic_int refs;
    int64_t number;
    size_t bytes;
    uint8_t data[]; /* headroom, JSON text */
} lti_event;
lti_event *lti_event_create(const char *text, size_t bytes);
void lti_event_release(lti_event *e);

typedef struct lti_hub_config {
    int32_t width, height, fps;
    char codec[16];
    uint8_t sets[256];
    size_t set_bytes;
    uint8_t *init; /* fMP4 */
    size_t init_bytes;
} lti_hub_config;

typedef struct lti_hub lti_hub;
LT_MUST_USE lt_status lti_hub_create(lti_hub **out, lt_ctx *ctx, size_t max_bytes);
void lti_hub_destroy(lti_hub *h); /* accepts NULL */
/* Takes the unit, whose frame is the next one. The oldest units leave when there are too many bytes. False: no memory. */
bool lti_hub_push(lti_hub *h, lti_unit *u);
/* Takes init. Before the first unit. */
void lti_hub_configure(lti_hub *h, const lti_hub_config *c);
/* NULL until configured; then constant. */
const lti_hub_config *lti_hub_get_config(lti_hub *h);
void lti_hub_end(lti_hub *h);
/* LT_OK: *out to be released. LT_AGAIN: not made yet. LT_END: nor will it be. LT_ERR_MISSING: it is gone. */
lt_status lti_hub_get(lti_hub *h, int64_t frame, lti_unit **out);
typedef struct lti_hub_state {
    int64_t first, end; /* frames kept: first .. end-1; first is a key frame */
    int64_t newest_key; /* -1: none */
    int64_t picture;    /* frame that lti_hub_picture has; -1: none */
    int64_t first_event, end_event;
    size_t bytes;
    bool ended;
} lti_hub_state;
lti_hub_state lti_hub_look(lti_hub *h);
/* The newest key frame at or before `frame`, or the oldest that is kept; -1: none. */
int64_t lti_hub_key_before(lti_hub *h, int64_t frame);
/* One frame as a JPEG, for who comes when no more are made. Takes u; the one before leaves. */
void lti_hub_put_picture(lti_hub *h, lti_unit *u);
/* To be released; NULL: none. */
lti_unit *lti_hub_picture(lti_hub *h);
/* Appends an event for all viewers; adds its number "n". Takes the object (NULL: no memory, nothing happens). */
void lti_hub_say(lti_hub *h, json_t *event);
/* Event `number` or the oldest after it; NULL when there is none yet. To be released. */
lti_event *lti_hub_event(lti_hub *h, int64_t number);
/* Viewers that want JPEG, counted by conn.c, asked by the device thread. */
void lti_hub_want_jpeg(lti_hub *h, int change);
bool lti_hub_wants_jpeg(const lti_hub *h);

/* ---- sched.c: one device, one thread, many tasks ---- */

typedef struct lti_task lti_task;
typedef struct lti_task_ops {
    /* All on the device thread. `open` makes the session, `step` draws a group of frames (LT_OK: more to come, LT_END, errors),
     * `close` comes once for every task that was submitted, also one that never ran; then the scheduler forgets it. */
    lt_status (*open)(lti_task *t, lt_model *model, lt_ctx *ctx);
    lt_status (*step)(lti_task *t, lt_ctx *ctx);
    void (*close)(lti_task *t, lt_status why, const char *message);
    /* Under the scheduler's lock: seconds until the viewer runs dry (INFINITY: nobody waits). NAN: it cannot go on now, look again
     * after *wait seconds (INFINITY: when woken). */
    double (*due)(lti_task *t, double *wait);
    /* Under the scheduler's lock: seconds of work that are left, for the time others have to wait. */
    double (*left)(lti_task *t);
    /* Under the scheduler's lock: it has been queued at this position (0: next), or let in (-1). */
    void (*moved)(lti_task *t, int32_t position, double eta);
} lti_task_ops;

struct lti_task {
    const lti_task_ops *ops;
    bool live;      /* else a job: runs when no live task is in need */
    bool again;     /* it was accepted before: a full queue does not refuse it */
    bool slow;      /* its next step may be a whole denoising: device thread */
    uint64_t bytes; /* of memory, beside the weights */
    /* the scheduler's */
    lti_task *next;
    bool opened, stop;
    bool busy; /* in a step now: device thread */
    int32_t position;
    uint64_t turn;  /* device thread */
    double yielded; /* when it went on last: device thread */
};

typedef struct lti_sched lti_sched;
typedef struct lti_sched_options {
    const lt_dev_options *device;
    const lt_model_options *model;
    int32_t max_live, max_jobs, max_queue; /* queue: of each kind */
    uint64_t memory; /* for all tasks together; 0 = what the machine has free */
    void (*ready)(void *user, lt_status s,
                  const char *message); /* device thread: the model is there, or is not */
    void *user;
} lti_sched_options;
LT_MUST_USE lt_status lti_sched_create(lti_sched **out, lt_ctx *ctx, const lti_sched_options *o);
/* Stops what runs, closes every task, ends the thread; the other functions may still be called. */
void lti_sched_finish(lti_sched *s);
void lti_sched_destroy(lti_sched **s);
/* LT_OK: it will run now or later. LT_AGAIN: the queue is full, *eta says for how long. LT_ERR_MEM: it can never fit. */
lt_status lti_sched_submit(lti_sched *s, lti_task *t, double *eta);
/* What lti_sched_submit would say. */
lt_status lti_sched_room(lti_sched *s, const lti_task *t, double *eta);
/* Seconds until a place is free for one that waits, as it looks now. */
double lti_sched_eta(lti_sched *s, const lti_task *t);
/* Device thread, from inside a long step of t, where its session can wait: those whose viewers would run dry get their turns. */
void lti_sched_yield(lti_sched *s, lti_task *t);
/* Ends a task with LT_ERR_CANCELLED at the next step, or takes it out of the queue. Any thread. */
void lti_sched_stop(lti_sched *s, lti_task *t);
void lti_sched_wake(
    lti_sched *s); /* something changed: any thread, no lock held but the live one's */
typedef struct lti_sched_state {
    int32_t live, jobs, live_queued, jobs_queued;
    uint64_t memory_used, memory;
    lt_mem_stats device; /* as of the last step */
    uint64_t text_hits, text_misses;
} lti_sched_state;
lti_sched_state lti_sched_look(lti_sched *s);

/* ---- request.c: the fields of a video, in JSON ---- */

/* Field names are the field's (Diffusers, the OpenAI videos API). Texts are owned. Zero or NULL: not given. */
typedef struct lti_video_request {
    char *prompt, *negative_prompt, *model, *cache, *attention, *user;
    int32_t width, height, num_frames, fps, num_inference_steps;
    double seconds, guidance_scale, flow_shift; /* guidance_scale -1: not given */
    uint64_t seed;
    bool seed_set, round_frames, drift_set;
    lt_mode mode;
    int32_t solver; /* -1: not given */
    int32_t crf;
    lt_drift_mode drift;
    const uint8_t *image; /* borrowed: not a field */
} lti_video_request;
/* Fills *r from the fields of an object. `strict`: an unknown field is an error; else it is left. *param: the field that a message is
 * about, of static storage or in `name`. Errors: LT_ERR_ARG. Call lti_video_request_free after either. */
typedef struct lti_param {
    char name[64];
} lti_param;
LT_MUST_USE lt_status lti_video_request_parse(lti_video_request *r, lt_ctx *ctx, const json_t *o,
                                              bool strict, lti_param *param);
void lti_video_request_free(lti_video_request *r);
/* What a video that is watched while it is made is, where it does not say it; before lti_video_request_options. */
void lti_video_request_live(lti_video_request *r, const lt_model_info *info, double max_seconds);
/* Checked against the model, defaults filled in; texts are borrowed from r. max_seconds: the longest video. */
LT_MUST_USE lt_status lti_video_request_options(lt_session_options *out, lt_ctx *ctx,
                                                lti_video_request *r, const lt_model_info *info,
                                                double max_seconds, lti_param *param);
/* The effective values, with the names of the fields. New reference, NULL: no memory. */
json_t *lti_video_request_echo(const lt_session_options *o, const lt_model_info *info);
/* The same as metadata of a file; texts live in `store`. Returns how many. */
int32_t lti_video_metadata(json_t *params, lt_key_value *out, int32_t max, json_t *store);

/* JSON of strangers: size and depth bounded before it is parsed, UTF-8 checked, no NUL. NULL with the message in ctx. */
json_t *lti_wire_json(lt_ctx *ctx, const char *text, size_t bytes, size_t max_bytes);
bool lti_text_valid(const char *text, size_t bytes); /* UTF-8, no control characters but \t \n \r */

/* ---- message.c: what a client says on the websocket ---- */

enum { LTI_MESSAGE_BYTES = 64 << 10 };
typedef enum lti_wire { LTI_WIRE_ANNEXB, LTI_WIRE_FMP4, LTI_WIRE_JPEG } lti_wire;
#define LTI_MESSAGE_MAP(X)  \
    X(HELLO, "hello")       \
    X(START, "start")       \
    X(WATCH, "watch")       \
    X(PROMPT, "prompt")     \
    X(PAUSE, "pause")       \
    X(RESUME, "resume")     \
    X(SEEK, "seek")         \
    X(KEYFRAME, "keyframe") \
    X(ACK, "ack")           \
    X(PING, "ping")         \
    X(STOP, "stop")
typedef enum lti_message_type {
#define LTI_MESSAGE_ENUM(name, text) LTI_MESSAGE_##name,
    LTI_MESSAGE_MAP(LTI_MESSAGE_ENUM)
#undef LTI_MESSAGE_ENUM
        LTI_MESSAGE_UNKNOWN
} lti_message_type;
typedef struct lti_message {
    lti_message_type type;
    json_t *root; /* texts below are borrowed from it */
    const char *type_text, *event_id, *token, *session_id, *key, *text;
    lti_wire wire;
    bool reliable, free_pace, live;
    int32_t blend;
    int64_t last_seq, last_event; /* -1: not given */
    int64_t pts_us;               /* seek, ack; -1: not given */
    double t;                     /* ping */
    lti_video_request request;    /* start */
    lti_param param;              /* of a failure */
} lti_message;
/* LT_OK also for an unknown type. Call lti_message_free after either. Errors: LT_ERR_FORMAT (no JSON object), LT_ERR_ARG. */
LT_MUST_USE lt_status lti_message_parse(lti_message *m, lt_ctx *ctx, const char *text,
                                        size_t bytes);
void lti_message_free(lti_message *m);
/* What was asked for does not happen; message NULL: that of the code. NULL: no memory. */
json_t *lti_rejection(const char *event_id, const char *code, const char *message);

/* ---- tape.c: a whole live stream on the disk ---- */

typedef struct lti_tape lti_tape;
struct lti_jobs;
/* From the first frame on, which the hub must still have. NULL: it cannot be. */
lti_tape *lti_tape_start(struct lti_jobs *jobs, const char *id, lti_hub *h);
/* The next frame. False: the disk is full; what is there is of no use. */
bool lti_tape_add(lti_tape *t, lti_unit *u);
/* A descriptor of the caller's, of so many bytes that are whole. -1: errno tells. */
int lti_tape_open(lti_tape *t, int64_t *bytes);
void lti_tape_destroy(lti_tape *t); /* accepts NULL */

/* ---- live.c: a live session; live_draw.c: the device's side of it ---- */

typedef struct lti_live lti_live;
typedef enum lti_live_phase { LTI_LIVE_QUEUED, LTI_LIVE_RUNNING, LTI_LIVE_ENDED } lti_live_phase;

typedef struct lti_live_options {
    lti_video_request *request;        /* taken (and zeroed) */
    const lt_session_options *session; /* its texts are the request's */
    uint64_t bytes;
    bool reliable, free_pace;
} lti_live_options;
/* Refs 1, for the caller. */
LT_MUST_USE lt_status lti_live_create(lti_live **out, lt_server *srv, const lti_live_options *o);
/* LT_AGAIN: queue full. */
LT_MUST_USE lt_status lti_live_submit(lti_live *l, double *eta);
lti_live *lti_live_ref(lti_live *l);
void lti_live_release(lti_live *l); /* accepts NULL */
const char *lti_live_id(const lti_live *l);
const char *lti_live_key(const lti_live *l);          /* whoever knows it may watch */
const char *lti_live_resume_token(const lti_live *l); /* whoever knows it is the owner */
lti_hub *lti_live_hub(lti_live *l);
lti_live_phase lti_live_get_phase(lti_live *l);
bool lti_live_is_reliable(const lti_live *l);
bool lti_live_is_paused(lti_live *l);
/* All of it until now, if it is on the disk: as lti_tape_open; -1: it is not. */
int lti_live_tape(lti_live *l, int64_t *bytes);
/* "started": everything that a viewer must know, whenever it comes. New reference. */
json_t *lti_live_describe(lti_live *l);
/* Controls, network thread. Each says its outcome as an event. */
void lti_live_prompt(lti_live *l, const char *text, int32_t blend, const char *event_id);
void lti_live_pause(lti_live *l, bool paused, const char *event_id);
/* A second after the last one, however far ahead of its owner the stream is; not while it is paused. */
void lti_live_keyframe(lti_live *l);
/* The newest frame as a JPEG, into the hub. */
void lti_live_picture(lti_live *l);
void lti_live_stop(lti_live *l, const char *reason);
/* The owner has been sent all before `sent` and shows pts_us now (-1: not told). */
void lti_live_progress(lti_live *l, int64_t sent, int64_t pts_us);
void lti_live_alone(lti_live *l); /* the owner is gone: the clock runs by itself */
/* Codec, parameter sets and the beginning of the MP4, from the first access unit. c->init is the caller's. */
LT_MUST_USE lt_status lti_live_configure(lti_hub_config *c, lt_ctx *ctx, const lt_server *srv,
                                         const lt_session_options *o, lti_unit *first);
/* What the network thread notes on it. */
typedef struct lti_live_net {
    struct lti_conn *owner; /* NULL: none now */
    double owner_left;      /* when; 0: never */
    double ended;           /* when it was seen to have; 0: not */
    lti_live *sibling;
} lti_live_net;
lti_live_net *lti_live_get_net(lti_live *l);

/* ---- metrics.c, log.c, auth.c ---- */

#define LTI_COUNTER_MAP(X)                                                                      \
    X(FRAMES_GENERATED, "frames_generated_total", "Frames drawn and encoded")                   \
    X(FRAMES_SENT, "frames_sent_total", "Frames written to viewers")                            \
    X(BYTES_SENT, "bytes_sent_total", "Bytes of media written to viewers")                      \
    X(DEADLINES_MISSED, "deadline_missed_total", "Groups of frames that came after their time") \
    X(SESSIONS, "sessions_total", "Live sessions accepted")                                     \
    X(SESSIONS_COMPLETE, "sessions_complete_total", "Live sessions drawn to their end")         \
    X(SESSIONS_STOPPED, "sessions_stopped_total", "Live sessions stopped before their end")     \
    X(SESSIONS_FAILED, "sessions_failed_total", "Live sessions that ended in an error")         \
    X(REFUSED, "refused_total", "Requests refused for want of a place or of memory")            \
    X(JOBS_REFUSED, "jobs_refused_total", "Jobs among them")                                    \
    X(HTTP, "http_requests_total", "HTTP requests answered")                                    \
    X(WEBSOCKETS, "websockets_total", "Websocket connections accepted")                         \
    X(JOBS, "jobs_total", "Jobs accepted")                                                      \
    X(JOBS_COMPLETE, "jobs_complete_total", "Jobs drawn to their end")                          \
    X(JOBS_CANCELLED, "jobs_cancelled_total", "Jobs stopped or deleted before their end")       \
    X(JOBS_RESUMED, "jobs_resumed_total", "Jobs gone on with after a restart")                  \
    X(JOBS_FAILED, "jobs_failed_total", "Jobs that ended in an error")
typedef enum lti_counter {
#define LTI_COUNTER_ENUM(name, text, help) LTI_COUNT_##name,
    LTI_COUNTER_MAP(LTI_COUNTER_ENUM)
#undef LTI_COUNTER_ENUM
        LTI_COUNTERS
} lti_counter;
#define LTI_HISTOGRAM_MAP(X)                                                               \
    X(FIRST_FRAME, "time_to_first_frame_seconds", "From start to the first frame encoded") \
    X(QUEUE_WAIT, "queue_wait_seconds", "From request to the device")                      \
    X(TEXT, "text_encode_seconds", "Reading of a session's first prompt")                  \
    X(BLOCK, "block_seconds", "Drawing of a block")                                        \
    X(STEP, "denoise_step_seconds", "A step of denoising (of blocks: a block)")            \
    X(DECODE, "vae_decode_seconds", "Decoding of a group of frames")                       \
    X(ENCODE, "encode_frame_seconds", "Encoding of a frame")                               \
    X(LAG, "client_lag_seconds", "From a frame being encoded to its being sent")           \
    X(SWITCH, "prompt_switch_seconds", "From a prompt to its first frame encoded")         \
    X(CANCEL, "cancel_seconds", "From stop to the device being free")
typedef enum lti_histogram {
#define LTI_HISTOGRAM_ENUM(name, text, help) LTI_TIME_##name,
    LTI_HISTOGRAM_MAP(LTI_HISTOGRAM_ENUM)
#undef LTI_HISTOGRAM_ENUM
        LTI_HISTOGRAMS
} lti_histogram;

typedef struct lti_metrics lti_metrics;
lti_metrics *lti_metrics_create(void); /* NULL: no memory */
void lti_metrics_destroy(lti_metrics *m);
void lti_count(lti_metrics *m, lti_counter c, uint64_t n); /* any thread */
/* Frames that a viewer did not get: it was too slow for the stream, or the stream keeps them no longer. */
void lti_count_dropped(lti_metrics *m, bool too_slow, uint64_t n);
void lti_observe(lti_metrics *m, lti_histogram h, double seconds); /* any thread */
/* Seconds of video that a second of drawing gave to a live session. Any thread. */
void lti_note_realtime(lti_metrics *m, double factor);
/* Prometheus text format 0.0.4; malloc'd. */
char *lti_metrics_text(lt_server *srv);

/* One JSON object on a line: {"ts":..., "level":..., "event":..., fields...}. fmt as of json_pack, of an object; NULL: none. */
void lti_say(lt_server *srv, lt_log_level level, const char *event, const char *fmt, ...);

typedef struct lti_tokens lti_tokens;
LT_MUST_USE lt_status lti_tokens_read(lti_tokens **out, lt_ctx *ctx, const char *path);
void lti_tokens_free(lti_tokens *t);
/* Index of the token, or -1; takes as long whatever the text. */
int lti_tokens_find(const lti_tokens *t, const char *text);
/* Whose things they are, without telling the token: 16 hexadecimal digits. */
void lti_tokens_owner(const lti_tokens *t, int index, char out[17]);
bool lti_equal(const char *a, const char *b); /* in constant time for texts of equal length */
/* n random bytes in hexadecimal, 2n+1 characters. */
void lti_random_hex(char *out, size_t n);
/* Whether a page of `origin` may talk to us, who were called by the name `host`; allowed: "https://a,https://b" or NULL. */
bool lti_origin_allowed(const char *origin, const char *host, const char *allowed);
/* Whether `host` (with or without port) means this machine itself. */
bool lti_host_is_loopback(const char *host);

/* ---- conn.c: one websocket's side of the protocol, without the socket; conn_media.c: what it is sent ---- */

typedef struct lti_conn lti_conn;
enum {
    LTI_CLOSE_NONE,
    LTI_CLOSE_GOING = 1001,
    LTI_CLOSE_DATA = 1003,
    LTI_CLOSE_POLICY = 1008,
    LTI_CLOSE_BIG = 1009,
    LTI_CLOSE_INTERNAL = 1011,
    LTI_CLOSE_IDLE = 4001,
    LTI_CLOSE_SLOW = 4008,
    LTI_CLOSE_SUPERSEDED = 4010
};
lti_conn *lti_conn_create(lt_server *srv, bool trusted); /* trusted: the handshake had a token */
void lti_conn_destroy(lti_conn *c);                      /* accepts NULL */
/* One whole message. */
void lti_conn_receive(lti_conn *c, const void *data, size_t bytes, bool binary);
typedef struct lti_out {
    uint8_t *data; /* headroom before it */
    size_t bytes;
    bool binary;
    lti_unit *unit;   /* to be released, or NULL */
    lti_event *event; /* to be released, or NULL */
} lti_out;
/* The next message to write; false: nothing now. */
bool lti_conn_next(lti_conn *c, lti_out *out);
bool lti_conn_wants_to_write(lti_conn *c);
/* The peer has taken some of what was written to it: it does not stall. */
void lti_conn_progress(lti_conn *c);
/* It may take nothing for longer than a ping is waited for: drawing waits for it. */
bool lti_conn_is_waited_for(const lti_conn *c);
/* Twice a second: times out, sends what is due. */
void lti_conn_tick(lti_conn *c);
/* It is to be closed, when its replies are sent; the first reason counts. */
void lti_conn_end(lti_conn *c, int code, const char *why);
/* Why it should be closed; LTI_CLOSE_NONE: it should not. */
int lti_conn_closing(const lti_conn *c, const char **reason);
void lti_conn_drain(lti_conn *c, double deadline);

/* ---- http.c, routes.c ---- */

typedef enum lti_method {
    LTI_GET = 1,
    LTI_POST = 2,
    LTI_DELETE = 4,
    LTI_HEAD = 8,
    LTI_OPTIONS = 16,
    LTI_OTHER = 32
} lti_method;
typedef struct lti_http_request {
    lti_method method;
    char path[1024], query[2048]; /* path is decoded, query is not */
    char authorization[512], range[128], if_range[128], content_type[256], host[256], origin[256],
        idempotency_key[256];
    char request_id[65];
    const uint8_t *body;
    size_t body_bytes;
    int tenant; /* which token, -1: none */
} lti_http_request;
/* The end of a body; an end before all was there, which the peer is to notice. */
enum { LTI_PULL_END = -1, LTI_PULL_BROKEN = -2 };
typedef struct lti_http_reply {
    int status;
    const char *type;
    const void *fixed; /* static body, or */
    char *body;        /* malloc'd, or */
    int fd;            /* > 0: a file, taken, from file_offset, or */
    int64_t file_offset;
    int64_t bytes; /* of the body; -1: unknown, chunked */
    /* chunked: fills at most `cap` bytes. > 0: how many, 0: nothing now, or one of LTI_PULL. */
    int (*pull)(void *user, uint8_t *out, size_t cap);
    void (*done)(void *user);
    void *user;
    struct {
        const char *name;
        char value[256];
    } header[6];
    int headers;
} lti_http_reply;
typedef void lti_handler(lt_server *srv, lti_http_request *rq, lti_http_reply *re);
enum { LTI_SMALL_BODY = 4096 }; /* a POST that takes no more needs none, nor a length */
typedef struct lti_route {
    unsigned methods;
    const char *path; /* "/v1/videos/ *": a star stands for one segment */
    lti_handler *handle;
    bool open;       /* no token needed */
    size_t max_body; /* 0: none is taken */
} lti_route;
/* The route of a request; NULL with *allowed 0 (404) or the methods that there are (405). */
const lti_route *lti_route_find(const char *path, lti_method m, unsigned *allowed);
/* The error body of the OpenAI API. */
void lti_reply_error(lti_http_reply *re, int status, const char *type, const char *code,
                     const char *param, const char *fmt, ...) LT_PRINTF(6, 7);
void lti_reply_json(lti_http_reply *re, int status, json_t *value); /* takes value */
void lti_reply_header(lti_http_reply *re, const char *name, const char *fmt, ...) LT_PRINTF(3, 4);
/* HTTP status and error words of a status of ours. */
void lti_reply_status(lti_http_reply *re, lt_ctx *ctx, lt_status s, const char *param);
/* Segment number i (from 0) of a path. */
bool lti_path_segment(const char *path, int i, char *out, size_t cap);
/* False: it is not there, or what is (cut to fit) is not valid. */
bool lti_query_get(const char *query, const char *name, char *out, size_t cap);
/* One "bytes=a-b" of a body of `total` bytes. LT_OK, LT_AGAIN: no range asked or one not understood (send all), LT_ERR_ARG: 416. */
lt_status lti_range_parse(const char *text, int64_t total, int64_t *first, int64_t *last);
/* Digits only. -1: not a length. */
int64_t lti_length_parse(const char *text);

/* ---- server.c ---- */

typedef struct lti_page_file {
    const char *path, *type;
    const unsigned char *data;
    size_t bytes;
} lti_page_file;
extern const lti_page_file lti_page_files[]; /* made from page/ by the build; ends with path NULL */

struct lws;
struct lws_context;
/* http.c, ws.c: what libwebsockets calls. */
int lti_http_callback(struct lws *wsi, int reason, void *user, void *in, size_t len);
enum { LTI_WS_SESSION_BYTES = 128 };
int lti_ws_callback(struct lws *wsi, int reason, void *user, void *in, size_t len);
void lti_http_wake(lt_server *srv); /* asks for room where something may be sent */
void lti_ws_wake(lt_server *srv);
/* Answers a handshake that is not taken: "403 Forbidden". 1: what the callback returns. */
int lti_ws_refuse(struct lws *wsi, const char *status);
void lti_ws_tick(lt_server *srv);
/* Whether somebody may talk to us at all: the name that we were called by and the page that calls. NULL, or what is wrong. */
const char *lti_peer_problem(const lt_server *srv, const char *host, const char *origin);

struct lt_server {
    lt_ctx *ctx; /* the network thread's */
    lt_server_options o;
    lt_model_info info;
    lti_tokens *tokens; /* NULL: none wanted */
    lti_metrics *metrics;
    lti_sched *sched;
    struct lws_context *lws;
    struct lti_http *http_list; /* connections: network thread */
    struct lti_ws *ws_list;
    lti_live *lives; /* linked by `sibling`: network thread */
    struct lti_jobs *jobs;
    int64_t body_bytes; /* of requests that are coming in: network thread */
    int32_t nconns;
    bool ticking;
    atomic_int ready; /* 1: the model is there, -1: it is not */
    atomic_int stops; /* calls of lt_server_stop */
    atomic_bool woken, alive;
    atomic_bool job_over; /* since expiry was looked at */
    pthread_mutex_t lock;
    lt_status load_status;  /* {lock} */
    char load_message[512]; /* {lock} */
    bool draining;
    double drain_until, ended_at, started;
    void *timer;
    int port;
};
void lti_server_wake(lt_server *srv); /* any thread: the network thread looks at its connections */
lti_live *lti_server_find_live(lt_server *srv, const char *id); /* borrowed */
void lti_server_add_live(lt_server *srv, lti_live *l);          /* takes a reference */
void lti_server_tick_on(lt_server *srv);      /* there is something to look after */
void lti_server_jobs_changed(lt_server *srv); /* network thread: looks when the next one expires */

#endif
