/* checker_ground.c: the grounds of the toybox world as world.py paints them. */
#include "examples/checker.h"
#include "examples/checker_places.h"

#include <math.h>
#include <string.h>

enum { SIZE = LTI_TOY_SIZE };
static const float horizon = 74;

static const struct {
    const char *name;
    float rgb[3];
} colours[] = {{"red", {0.86f, 0.16f, 0.15f}},       {"orange", {0.97f, 0.53f, 0.10f}},
               {"yellow", {0.97f, 0.85f, 0.16f}},    {"green", {0.10f, 0.66f, 0.22f}},
               {"turquoise", {0.12f, 0.76f, 0.76f}}, {"blue", {0.13f, 0.32f, 0.88f}},
               {"purple", {0.55f, 0.20f, 0.76f}},    {"white", {0.96f, 0.95f, 0.93f}}};

const float *lti_toy_colour(const char *name)
{
    for (size_t i = 0; i < LT_COUNT(colours); i++)
        if (!strcmp(name, colours[i].name)) return colours[i].rgb;
    return NULL;
}

static float clip(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static void mix(float *out, const float a[3], const float b[3], float k)
{
    for (int c = 0; c < 3; c++)
        out[c] = a[c] + (b[c] - a[c]) * k;
}

/* Smooth noise from a coarse grid, n points on a side, a point every `cell` pixels. */
static float noise(const int16_t *grid, int n, float cell, float y, float x)
{
    const float u = (y - 0.5f) / cell, v = (x - 0.5f) / cell;
    const int i = (int)u, j = (int)v;
    float f = u - (float)i, g = v - (float)j;
    f = f * f * (3 - 2 * f);
    g = g * g * (3 - 2 * g);
    const int16_t *a = grid + i * n + j;
    const float left = (float)a[0] * (1 - f) + (float)a[n] * f,
                right = (float)a[1] * (1 - f) + (float)a[n + 1] * f;
    return (left * (1 - g) + right * g) / 4096;
}

static void plain(float *out, int place, float x, float y)
{
    static const float near[3] = {0.80f, 0.79f, 0.76f}, far[3] = {0.62f, 0.62f, 0.63f};
    (void)place;
    mix(out, near, far, clip(((x - 50) * (x - 50) + (y - 40) * (y - 40)) / 14000));
}

static void gradient(float *out, int place, float x, float y)
{
    static const float high[3] = {0.42f, 0.33f, 0.62f}, middle[3] = {0.95f, 0.55f, 0.52f},
                       low[3] = {0.99f, 0.80f, 0.55f};
    const float up = y / SIZE;
    (void)place, (void)x;
    mix(out, high, middle, clip(up * 1.7f));
    mix(out, out, low, clip(up * 2 - 1));
}

static void checker(float *out, int place, float x, float y)
{
    static const float top[3] = {0.70f, 0.79f, 0.87f}, foot[3] = {0.88f, 0.91f, 0.92f},
                       light[3] = {0.80f, 0.70f, 0.58f}, dark[3] = {0.62f, 0.49f, 0.42f};
    float wall[3], floor[3];
    const float away = y - horizon + 14, depth = 22 / (away > 1 ? away : 1);
    const float k = sinf((x - 64) * depth / 9) * sinf(depth * 17);
    (void)place;
    mix(wall, top, foot, clip(y / horizon));
    mix(floor, light, dark, 0.5f + 0.5f * k / (fabsf(k) + 0.35f));
    mix(out, wall, floor, clip((y - horizon) / 2 + 0.5f));
}

static void grass(float *out, int place, float x, float y)
{
    static const float top[3] = {0.36f, 0.62f, 0.90f}, foot[3] = {0.80f, 0.90f, 0.95f},
                       white[3] = {1, 1, 1}, far[3] = {0.56f, 0.74f, 0.36f},
                       close[3] = {0.27f, 0.52f, 0.20f};
    float sky[3], lawn[3];
    mix(sky, top, foot, clip(y / horizon));
    const float cloud =
        clip(noise(cloud_grid[place], 6, 32, y, x) * 0.7f - 0.1f) * clip(1 - y / 56);
    mix(sky, sky, white, cloud * 0.8f);
    mix(lawn, far, close, clip((y - horizon) / (SIZE - horizon)));
    for (int c = 0; c < 3; c++)
        lawn[c] += 0.03f * noise(lawn_grid[place], 10, 16, y, x);
    const float hill = horizon + 3 * sinf(x / 21 + (float)(place % 7));
    mix(out, sky, lawn, clip((y - hill) / 2 + 0.5f));
}

static void night(float *out, int place, float x, float y)
{
    static const float top[3] = {0.04f, 0.05f, 0.16f}, foot[3] = {0.15f, 0.17f, 0.36f},
                       moon[3] = {0.93f, 0.91f, 0.78f}, ground[3] = {0.05f, 0.09f, 0.10f};
    float sky[3];
    mix(sky, top, foot, clip(y / SIZE));
    for (int i = 0; i < 9; i++) {
        const int16_t *s = star_list[place] + 3 * i;
        const float dx = x - (float)s[0] / 64, dy = y - (float)s[1] / 64,
                    b = (float)s[2] / 4096 * expf(-(dx * dx + dy * dy) / 2.6f);
        sky[0] += b;
        sky[1] += b;
        sky[2] += 0.9f * b;
    }
    mix(sky, sky, moon, clip(9.5f - hypotf(x - 102, y - 24)));
    const float hill = 108 + 5 * sinf(x / 25 + (float)(place % 7));
    mix(out, sky, ground, clip((y - hill) / 3 + 0.5f));
}

void lti_toy_background(float *out, const char *ground, int place)
{
    static const struct {
        const char *name;
        void (*paint)(float *, int, float, float);
    } grounds[] = {{"plain", plain},
                   {"gradient", gradient},
                   {"checker", checker},
                   {"grass", grass},
                   {"night", night}};
    size_t g = 0;
    while (g + 1 < LT_COUNT(grounds) && strcmp(ground, grounds[g].name))
        g++;
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++, out += 3)
            grounds[g].paint(out, place, (float)x + 0.5f, (float)y + 0.5f);
}
