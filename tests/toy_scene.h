/* toy_scene.h: clips of the toybox world, as world.py draws them. */
#ifndef LT_TESTS_TOY_SCENE_H
#define LT_TESTS_TOY_SCENE_H

#include "examples/checker.h"

#include <math.h>
#include <string.h>

enum { TOY = LTI_TOY_SIZE, TOY_BYTES = TOY * TOY * 3 };

typedef struct toy_scene {
    lti_toy is; /* all five items */
    float radius, x, y, phase, speed;
    int turn, seed;
} toy_scene;

static inline float toy_clip(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* From 0 to 1, fastest at first. */
static inline float toy_ease(float u)
{
    return 1 - (1 - toy_clip(u)) * (1 - toy_clip(u));
}

static inline bool toy_is(const char *word, const char *name)
{
    return !strcmp(word, name);
}

/* Centre, radius and angle of the object at frame t. */
static inline void toy_state(const toy_scene *s, float t, float *x, float *y, float *r, float *a)
{
    const char *m = s->is.motion;
    const float v = s->speed, span = TOY + 2 * s->radius, pi = 3.14159265358979f;
    *x = s->x;
    *y = s->y;
    *r = s->radius;
    *a = 0;
    if (toy_is(m, "left") || toy_is(m, "right")) {
        const float p = s->x + (toy_is(m, "left") ? -v : v) * t + s->radius;
        *x = p - span * floorf(p / span) - s->radius;
    } else if (toy_is(m, "up") || toy_is(m, "down")) {
        const float p = s->y + (toy_is(m, "up") ? -v : v) * t + s->radius;
        *y = p - span * floorf(p / span) - s->radius;
    } else if (toy_is(m, "grow") || toy_is(m, "shrink")) {
        const float k = toy_ease(t * v / 50);
        const float small = 12 + 0.15f * (*r - 18), big = 28 + 0.4f * (*r - 18);
        *r = small + (big - small) * (toy_is(m, "grow") ? k : 1 - k);
    } else if (toy_is(m, "bounce")) {
        const float low = 112 - *r, high = 26 + 0.6f * *r;
        *y = low - (low - high) * fabsf(sinf(pi * (t * v / 30 + s->phase)));
    } else if (toy_is(m, "orbit")) {
        const float w = 2 * pi * ((float)s->turn * t * v / 80 + s->phase);
        *x = 64 + 32 * cosf(w);
        *y = 64 + 30 * sinf(w);
    } else if (toy_is(m, "spin")) {
        *a = (float)s->turn * t * v * 2 * pi / 66;
    }
}

static inline float toy_light(const toy_scene *s, float t)
{
    const float k = toy_ease(t * s->speed / 60);
    if (toy_is(s->is.light, "darkens")) return 1 - 0.68f * k;
    return toy_is(s->is.light, "sunrise") ? 0.36f + 0.64f * k : 1;
}

/* Distance from the edge (negative inside), light and gloss at an offset from the centre. */
static inline float toy_object(const char *shape, float dx, float dy, float r, float angle,
                               float *lit, float *gloss)
{
    const float d = hypotf(dx, dy), pi = 3.14159265358979f;
    *gloss = 0;
    if (toy_is(shape, "ball")) {
        const float nx = dx / r, ny = dy / r, l = sqrtf(toy_clip(1 - nx * nx - ny * ny));
        const float k = toy_clip(-0.46f * nx - 0.58f * ny + 0.67f * l);
        *lit = 0.42f + 0.68f * k;
        *gloss = 0.55f * powf(k, 14);
        return d - r;
    }
    if (toy_is(shape, "ring")) {
        const float mid = 0.70f * r, half = 0.28f * r;
        const float u = 2 * toy_clip((d - mid) / half / 2 + 0.5f) - 1,
                    c = u / (d > 1e-3f ? d : 1e-3f);
        const float k = toy_clip((-0.46f * dx - 0.58f * dy) * c + 0.67f * sqrtf(1 - u * u));
        *lit = 0.50f + 0.60f * k;
        *gloss = 0.35f * powf(k, 12);
        return fabsf(d - mid) - half;
    }
    const bool square = toy_is(shape, "square"), star = toy_is(shape, "star");
    const int n = square ? 4 : star ? 5 : 3;
    const float inner = square ? 0.7071f : 0.5f, turn = square ? pi / 4 : -pi / 2,
                m = pi / (float)n;
    r *= square ? 1.12f : star ? 1.15f : 1.18f;
    float a = atan2f(dy, dx) - turn - angle + m;
    a = fabsf(a - 2 * m * floorf(a / (2 * m)) - m);
    const float ex = inner * cosf(m) - 1, ey = inner * sinf(m);
    const float sd = ((d * cosf(a) - r) * ey - d * sinf(a) * ex) / hypotf(ex, ey);
    *lit = 1 - 0.20f * (0.6f * dx + 0.8f * dy) / r - 0.28f * toy_clip(1 + sd / (0.14f * r));
    return sd;
}

static inline void toy_mix(float *to, float r, float g, float b, float k)
{
    const float c[3] = {r, g, b};
    for (int i = 0; i < 3; i++)
        to[i] += (c[i] - to[i]) * k;
}

/* Frame t, RGB of 8 bits. back: lti_toy_background of the scene. */
static inline void toy_frame(uint8_t *out, const toy_scene *s, const float *back, float t)
{
    static float img[TOY_BYTES];
    float x, y, r, a, mean = 0;
    const float light = toy_light(s, t), *base = lti_toy_colour(s->is.colour);
    toy_state(s, t, &x, &y, &r, &a);
    memcpy(img, back, sizeof img);
    for (int i = 0; i < TOY * TOY; i++) {
        float *p = img + 3 * i, lit, gloss;
        const float px = (float)(i % TOY) + 0.5f, py = (float)(i / TOY) + 0.5f;
        if (toy_is(s->is.light, "sunrise")) {
            const float k = (light - 0.36f) / 0.64f, sun = hypotf(px - 28, py - (70 - 46 * k));
            const float disc = toy_clip((10 - sun) * 0.7f),
                        glow = disc + (1 - disc) * 0.35f * expf(-(sun / 26) * (sun / 26));
            toy_mix(p, 1, 0.90f, 0.55f, glow * toy_clip(3 * k));
        }
        if (toy_is(s->is.ground, "checker") || toy_is(s->is.ground, "grass")) {
            const float high = toy_clip((112 - y - r) / 90),
                        ex = (px - x) / (r * (1.05f - 0.35f * high)),
                        ey = (py - 114) / (0.24f * r + 2),
                        k = 1 - (0.42f - 0.30f * high) * expf(-1.6f * (ex * ex + ey * ey));
            for (int c = 0; c < 3; c++)
                p[c] *= k;
        }
        if (hypotf(px - x, py - y) < 1.2f * r + 2) {
            const float sd = toy_object(s->is.shape, px - x, py - y, r, a, &lit, &gloss);
            toy_mix(p, toy_clip(base[0] * lit + gloss), toy_clip(base[1] * lit + gloss),
                    toy_clip(base[2] * lit + gloss), toy_clip(0.5f - sd / 1.6f));
        }
        mean += (p[0] + p[1] + p[2]) / TOY_BYTES;
    }
    static const float dark[3] = {0, 0.012f, 0.05f};
    for (int i = 0; i < TOY_BYTES; i++) {
        const float v = light < 1 ? img[i] * light + (1 - light) * dark[i % 3] * mean : img[i];
        out[i] = (uint8_t)(toy_clip(v) * 255 + 0.5f);
    }
}

#endif
