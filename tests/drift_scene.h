/* drift_scene.h: pictures whose light, colour and motion are known: a sky over a hill with fine grain, and a disc that goes round. */
#ifndef LT_TESTS_DRIFT_SCENE_H
#define LT_TESTS_DRIFT_SCENE_H

#include <math.h>
#include <stdint.h>

enum { SCENE_W = 64, SCENE_H = 48, SCENE_BYTES = SCENE_W * SCENE_H * 3 };

typedef struct drawn_scene {
    double light;    /* EV */
    double red;      /* light of red over that of green, as an exponent */
    double contrast; /* 1 */
    double chroma;   /* 1 */
    double grain;    /* 1 */
    double turn;     /* of the disc */
    double disc;     /* its radius, of the picture's sides */
    double zoom;     /* 1 */
    int place;       /* another picture altogether */
} drawn_scene;

static inline drawn_scene plain_scene(double turn)
{
    return (drawn_scene){
        .contrast = 1, .chroma = 1, .grain = 1, .turn = turn, .disc = 0.11, .zoom = 1};
}

static inline double scene_coded(double light)
{
    const double v = light < 0 ? 0 : light > 1 ? 1 : light;
    return v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
}

static inline void scene_point(const drawn_scene *s, double x, double y, double rgb[3])
{
    static const double sky[2][3] = {{0.16, 0.32, 0.60}, {0.50, 0.22, 0.12}},
                        ground[2][3] = {{0.12, 0.24, 0.08}, {0.06, 0.06, 0.16}};
    const int which = s->place & 1;
    const double hill = 0.55 + 0.08 * sin(7 * x + s->place), k = y > hill ? 1 : 0;
    const double grain =
        s->grain * 0.18 * sin(75 * x + 3 * s->place) * sin(63 * y) + 0.2 * sin(9 * x + 5 * y);
    const double dx = x - 0.5 - 0.22 * cos(s->turn), dy = y - 0.45 - 0.2 * sin(s->turn);
    const int disc = dx * dx + dy * dy < s->disc * s->disc;
    for (int c = 0; c < 3; c++) {
        rgb[c] = k > 0 ? ground[which][c] * (1 + grain) : sky[which][c] * (0.7 + 0.6 * y + grain);
        if (disc) rgb[c] = c == 0 ? 0.55 : 0.05;
    }
}

static inline void scene_draw(uint8_t *out, const drawn_scene *s)
{
    for (int y = 0; y < SCENE_H; y++)
        for (int x = 0; x < SCENE_W; x++) {
            double rgb[3];
            scene_point(s, 0.5 + ((x + 0.5) / SCENE_W - 0.5) / s->zoom,
                        0.5 + ((y + 0.5) / SCENE_H - 0.5) / s->zoom, rgb);
            const double grey = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
            for (int c = 0; c < 3; c++) {
                double v = grey + s->chroma * (rgb[c] - grey);
                v *= exp2(s->light + (c == 0 ? s->red : c == 1 ? -0.3 * s->red : 0));
                v = 0.5 + s->contrast * (scene_coded(v) - 0.5);
                /* rounding that does not repeat: else small steps would be lost in flat places */
                v = v * 255 + (((x * 7 + y * 13) % 16) + 0.5) / 16;
                *out++ = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
}

#endif
