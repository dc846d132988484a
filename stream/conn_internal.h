/* conn_internal.h: what the two sides of a connection share: messages (conn.c) and media (conn_media.c). */
#ifndef LTI_STREAM_CONN_INTERNAL_H
#define LTI_STREAM_CONN_INTERNAL_H

#include "stream/server.h"

enum { LTI_CONN_REPLIES = 64 };

struct lti_conn {
    lt_server *srv;
    bool trusted, spoken, owner;
    bool reliable;  /* an owner who wants every frame: generation waits for it */
    lti_live *live; /* reference */
    lti_wire wire;
    bool sent_init, sent_end, discontinuity, wait_key;
    bool catching_up; /* behind on purpose: joined, resumed or sought */
    int64_t behind;   /* frames, when it began to */
    int64_t next, event;
    int64_t had;        /* the last frame that it was sent */
    int64_t seek_frame; /* -1: no pace */
    double seek_at;
    lti_event *reply[LTI_CONN_REPLIES];
    int first_reply, replies;
    double opened, heard, asked, allowance, allowed_at;
    int close;
    const char *why;
    bool drained;
};

void lti_conn_answer(lti_conn *c, json_t *message); /* takes message */

#endif
