/* drift.h: the monitor: frames against the beginning of their shot. Numbers in, a vector out; knows neither sessions nor latents.
 *
 *   frame ─► tiles (CIELAB, 8 x 8) ─► group ─► changing? ── fast: wait until it has settled, then a new reference
 *                                                └ slow: medians over tiles of the difference ─► level, kind ─► gain
 *
 * What is legitimate: a change is faster than drift (a fade, a sunset of seconds, a camera that moves); a cut is a jump of frames; an
 * object changes a few tiles and not the median; a flash comes back. A new prompt is told by the session.
 */
#ifndef LTI_VIDEO_DRIFT_H
#define LTI_VIDEO_DRIFT_H

#include "video/state.h"
#include "video/video.h"

enum { LTI_TILES = 64, LTI_TILE_SIDE = 8, LTI_FLICKER_FRAMES = 48 };

typedef float lti_tiles[LTI_TILES][3]; /* L, a, b */

/* What the newest vector was for the reference: for whoever keeps one beside it. A shot that comes back needs nothing: no other
 * reference was begun. */
typedef enum lti_drift_use { LTI_DRIFT_NOT_USED, LTI_DRIFT_FIRST, LTI_DRIFT_MORE } lti_drift_use;

typedef enum lti_drift_phase {
    LTI_DRIFT_SETTLING, /* waits for groups that do not change */
    LTI_DRIFT_TAKING,   /* takes the reference from them */
    LTI_DRIFT_STEADY    /* compares */
} lti_drift_phase;

/* A reference, and what is known of how the video keeps to it: a shot that comes back finds all of it again. */
typedef struct lti_shot {
    lti_tiles tile;
    double contrast, saturation, sharpness, motion; /* means of pictures */
    int32_t groups;                                 /* it is the mean of */
    bool white;                                     /* one of them was blown: a white wall, say */
    double before[3],
        wander[3]; /* distance, contrast, saturation of the group before; mean of how they change */
    int32_t over;  /* up with a group at level 1 or more, to 3, down with another */
    bool active;
    bool spread; /* since then contrast or saturation was among it, so they are taken off as well */
    int32_t acting; /* decisions at full effort since it became active */
    bool recached, stand_down;
} lti_shot;

typedef struct lti_drift {
    double frame_seconds;
    int32_t group;
    /* the group that is being filled */
    int32_t frames;
    lti_tiles sum;
    lt_picture picture_sum;
    int64_t group_first;
    /* before */
    int64_t frame; /* number of the next */
    lti_tiles last_frame;
    bool has_frame;
    double usual_jump;       /* between frames, slow mean */
    lti_tiles group_mean[2]; /* of the groups before, the newest first */
    int32_t groups;          /* of them that there are */
    lti_tiles moved;         /* of the group: from frame to frame, seams left out */
    lti_tiles seam[2];       /* the steps at seams, of the group and of the one before */
    int32_t moves;           /* it is the sum of */
    /* the shot */
    lti_drift_phase phase;
    lti_drift_use use;
    int64_t shots;
    lti_shot shot, past; /* past: what a flash may come back to ... */
    lti_tiles left;      /* ... and the pictures when it was left */
    int32_t past_age;    /* groups since it was left; 0: there is none */
    bool cut;            /* it was left by a cut */
    bool torn;           /* there is a cut within the group */
    int32_t quiet;       /* groups in a row without change */
    int32_t hold;        /* groups during which nothing is compared: a prompt is turning */
    int32_t tolerant;    /* groups during which a slow change is one that was asked for */
    /* the controller */
    double gain;
    double past_weight, sink_weight; /* of kept frames; 1 */
    double level;                    /* of the newest vector */
    double spent;       /* deviations that the latent was moved by, of the last minute */
    lti_tiles smooth;   /* of the groups since it is compared with, slow mean */
    int32_t strange;    /* groups in a row that are another picture */
    int32_t still_shot; /* groups in a row with little of the shot's motion */
    double luma[LTI_FLICKER_FRAMES];
    int32_t lumas;
} lti_drift;

void lti_drift_begin(lti_drift *d, double frame_seconds, int32_t group);
/* One measured frame. True: *out is a new vector. SEAM: between the frame before and this one a model began anew, so a jump there is no
 * change of what is shown unless it is of another picture; END: the group ends with this frame, however long it is. */
enum { LTI_DRIFT_SEAM = 1, LTI_DRIFT_END = 2 };
bool lti_drift_frame(lti_drift *d, lt_drift_vector *out, const lt_picture *p, lti_tiles tile,
                     int flags);
/* The next frame is of a new prompt, that turns over `groups` groups; kept frames weigh as much as ever again. `changes`: its words speak
 * of light that changes. */
void lti_drift_prompt(lti_drift *d, int32_t groups, bool changes);
/* Words of light that changes: "darkens", "sunrise". */
bool lti_drift_words(const char *prompt);

/* Part of the difference that the next block is to be moved by; 0: none. A decision: call it once a block or segment of `seconds`. */
double lti_drift_decide(lti_drift *d, const lt_drift_vector *v, double seconds);
/* How much kept frames are to weigh in attention when the next block is drawn: less of the past where taking off half of the difference
 * has not been enough, less of the sink where the picture has come to stand still. A step of 0.1 a decision, 0.5 at least: what is not
 * seen cannot be copied, but what is hardly seen is forgotten. */
void lti_drift_weigh(lti_drift *d);
/* Kept frames are to be corrected too, now. True once a shot; then, or where there are none (`kept`), what does not help is given up. */
bool lti_drift_escalates(lti_drift *d, bool kept);
/* To a file, or from one. */
LT_MUST_USE lt_status lti_drift_state(lti_drift *d, lti_state *io);

/* Part i of LTI_TILE_SIDE of n lines; what is shorter than that has lines in several parts. */
static inline void lti_tile_part(int32_t n, int i, int32_t *begin, int32_t *end)
{
    *begin = i * n / LTI_TILE_SIDE;
    *end = (i + 1) * n / LTI_TILE_SIDE;
    if (*end == *begin) ++*end;
}

/* measure.c: of the last frame that was measured. */
void lti_measure_tiles(const lt_measure *m, lti_tiles tile);
/* To a file, or from one: the picture before, which motion is measured against. */
LT_MUST_USE lt_status lti_measure_state(lt_measure *m, lti_state *io);

#endif
