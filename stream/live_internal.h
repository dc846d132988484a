/* live_internal.h: what the two sides of a live session share: control (live.c) and drawing (live_draw.c). */
#ifndef LTI_STREAM_LIVE_INTERNAL_H
#define LTI_STREAM_LIVE_INTERNAL_H

#include "stream/server.h"

enum { LTI_LIVE_ID = 12, LTI_LIVE_KEY = 16 }; /* random bytes */

typedef struct lti_prompt_order {
    char *text, *event_id; /* text NULL: none */
    int32_t blend;
    double at;
} lti_prompt_order;

struct lti_live {
    lti_task task; /* first */
    atomic_int refs;
    lt_server *srv;
    char id[2 * LTI_LIVE_ID + 8], key[2 * LTI_LIVE_KEY + 1], resume[2 * LTI_LIVE_KEY + 1];
    lti_video_request request;
    lt_session_options options; /* texts are the request's or the model's */
    bool reliable, free_pace;
    double created;
    lti_hub *hub;
    lti_live_net net;

    pthread_mutex_t lock;
    /* {lock} */
    lt_session *session; /* for cancelling */
    lti_tape *tape;
    bool untaped; /* it was tried in vain */
    lti_live_phase phase;
    bool paused, stopped, want_key, want_picture;
    double key_at; /* when the last key frame was made */
    char reason[32];
    double stopped_at;
    lti_prompt_order pending;
    json_t *prompts; /* [{pts, frame, text}] that have taken effect */
    int64_t made, sent;
    double speed;           /* frames a second of device time; 0: not known */
    double first_at;        /* when the first frame was there; 0: not yet */
    double shown, shown_at; /* seconds of the video that the owner saw, and when */
    bool told;              /* by the owner's acks */

    /* device thread */
    lti_encoder *enc;
    lti_prompt_order given; /* to the session, not in effect yet */
    int32_t prompt;
    int64_t block;
    double progress_at;
    int64_t drift_end; /* of the frames that the last vector was of */
    uint8_t *before;   /* the last frame's samples, for motion */
    uint8_t *last;     /* the last frame, for who comes and wants it as a JPEG */
    lti_unit_info last_info;
};

/* ---- live.c ---- */

void lti_live_say(lti_live *l, json_t *event); /* takes event; any thread */
json_t *lti_live_told(const char *prompt);     /* its beginning, in whole characters */
void lti_prompt_order_clear(lti_prompt_order *p);
/* Seconds of video that are made and not seen yet; below 0: the picture stands. Without word from the owner it is taken to go on
 * from there when there is something to see. {lock} */
double lti_live_lead(lti_live *l);
/* Seconds until a key frame is made that was asked for; INFINITY: none was. {lock} */
double lti_live_key_wait(const lti_live *l);

/* ---- live_draw.c: device thread, as lti_task_ops ---- */

lt_status lti_live_open(lti_task *t, lt_model *model, lt_ctx *ctx);
lt_status lti_live_step(lti_task *t, lt_ctx *ctx);
void lti_live_close(lti_task *t, lt_status why, const char *message);

#endif
