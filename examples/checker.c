/* checker.c: what is in a clip of the toybox world. The background is found by its colours far from the object, the object is what
 * differs from it, its outline gives the shape, its path, size and angle over time the motion (checker_motion.c). */
#include "examples/checker_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIZE = LTI_TOY_SIZE,
    PIXELS = SIZE * SIZE,
    SMALL = SIZE / 4,
    PLACES = 8,
    BINS = 72,
    LOOKS = 5
};
static const float pi = 3.14159265358979f;
static const char *const grounds[] = {"plain", "gradient", "checker", "grass", "night"};
/* in the order of letters: of two with as many votes the first one counts */
static const char *const colours[] = {"blue", "green",     "orange", "purple",
                                      "red",  "turquoise", "white",  "yellow"};
enum { RING = 1, SQUARE, STAR, TRIANGLE, WHITE = 6 };
static const char *const shapes[] = {"ball", "ring", "square", "star", "triangle"};

/* What is known of a clip before its object is looked for. */
typedef struct sight {
    bool night, floor; /* floor: shadows lie on it */
    bool rises;        /* the sun does */
    bool
        pale; /* the object is white: its brightness has to tell it from what is nearly white too */
    float light; /* of the frame */
    float least; /* difference in brightness that counts, where it does */
} sight;

/* Everything that a look at a frame needs. */
typedef struct eye {
    sight sight;
    float back[PIXELS * 3], frame[PIXELS * 3], want[PIXELS * 3], other[SMALL * SMALL * 3];
    float look[LOOKS][SMALL * SMALL * 3];
    float scratch[PIXELS];
    int label[PIXELS], todo[PIXELS];
    bool mask[PIXELS], other_mask[PIXELS];
    int count; /* pixels of the mask */
} eye;

/* The k-th smallest number (k from 0) comes to v[k], smaller ones before it. */
static void select_kth(float *v, int n, int k)
{
    int low = 0, high = n - 1;
    while (low < high) {
        const float pivot = v[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i > j) break;
            const float t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            return;
    }
}

static float median(float *v, int n)
{
    select_kth(v, n, n / 2);
    if (n % 2) return v[n / 2];
    float below = v[0];
    for (int i = 1; i < n / 2; i++)
        below = v[i] > below ? v[i] : below;
    return 0.5f * (below + v[n / 2]);
}

static float most(float a, float b)
{
    return a > b ? a : b;
}

static float sum3(const float *x)
{
    return x[0] + x[1] + x[2];
}

/* ---- ground ---- */

/* By how much a picture is lighter than what it should look like. */
static float light_of(float *scratch, const float *picture, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        scratch[i] = sum3(picture + 3 * i) / most(sum3(want + 3 * i), 0.05f);
    const float m = median(scratch, n);
    return m < 0.1f ? 0.1f : m > 1.2f ? 1.2f : m;
}

static void quarter(float *out, const float *frame)
{
    memset(out, 0, SMALL * SMALL * 3 * sizeof *out);
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE * 3; x++)
            out[(y / 4 * SMALL + x / 12) * 3 + x % 3] += frame[y * SIZE * 3 + x] / 16;
}

static void load(float *to, const uint8_t *frame)
{
    for (int i = 0; i < PIXELS * 3; i++)
        to[i] = (float)frame[i] / 255;
}

static double fit(eye *e, const float *picture, const float *want)
{
    const float light = light_of(e->scratch, picture, want, SMALL * SMALL);
    double sum = 0;
    for (int i = 0; i < SMALL * SMALL; i++) {
        float d = 0;
        for (int c = 0; c < 3; c++)
            d += fabsf(picture[3 * i + c] - want[3 * i + c] * light);
        sum += (double)(d < 0.25f ? d : 0.25f);
    }
    return sum / (SMALL * SMALL) / (0.35 + 0.65 * (double)light);
}

/* Which ground, and its place into e->back; by five frames. */
static const char *find_ground(eye *e, const uint8_t *frames, int32_t count)
{
    double best = HUGE_VAL;
    const char *name = grounds[0];
    int place = 0;
    for (int i = 0; i < LOOKS; i++) {
        load(e->frame, frames + (size_t)(i * (count - 1) / (LOOKS - 1)) * PIXELS * 3);
        quarter(e->look[i], e->frame);
    }
    for (size_t g = 0; g < LT_COUNT(grounds); g++)
        for (int p = 0; p < (g < 3 ? 1 : PLACES); p++) {
            double sum = 0;
            lti_toy_background(e->back, grounds[g], p);
            quarter(e->other, e->back);
            for (int i = 0; i < LOOKS; i++)
                sum += fit(e, e->look[i], e->other);
            if (sum >= best) continue;
            best = sum;
            name = grounds[g];
            place = p;
        }
    lti_toy_background(e->back, name, place);
    return name;
}

/* ---- object ---- */

static void hue_of(const float c[3], float *hue, float *saturation)
{
    const float hi = most(most(c[0], c[1]), c[2]);
    const float lo = -most(most(-c[0], -c[1]), -c[2]), d = most(hi - lo, 1e-6f);
    float h = hi == c[0]   ? (c[1] - c[2]) / d
              : hi == c[1] ? (c[2] - c[0]) / d + 2
                           : (c[0] - c[1]) / d + 4;
    if (h < 0) h += 6;
    *hue = h * 60;
    *saturation = (hi - lo) / most(hi, 1e-3f);
}

/* e->want: what is behind the object. The sky around the risen sun is on its way to the sun's colour. */
static void find_behind(eye *e)
{
    static const float sun[3] = {1, 0.90f, 0.55f};
    const float light = e->sight.light, high = (light - 0.36f) / 0.64f,
                k = high < 0   ? 0
                    : high > 1 ? 1
                               : high,
                most_glow = k * 3 < 1 ? k * 3 : 1;
    for (int i = 0; i < PIXELS; i++) {
        const float x = (float)(i % SIZE) - 27.5f, y = (float)(i / SIZE) - 69.5f + 46 * k;
        const float glow =
            e->sight.rises ? 0.35f * most_glow * expf(-(x * x + y * y) / (26 * 26)) : 0;
        for (int c = 0; c < 3; c++) {
            const float w = e->back[3 * i + c] * light;
            e->want[3 * i + c] = w + (sun[c] * light - w) * glow;
        }
    }
}

static bool is_sun(const float *f, float x, float y)
{
    float hue, sat;
    hue_of(f, &hue, &sat);
    return fabsf(x - 28) < 40 && y < 96 && hue > 25 && hue < 65 && sat > 0.15f && sat < 0.62f;
}

static float brightness_off(const eye *e, int i)
{
    float bright = 0;
    for (int c = 0; c < 3; c++)
        bright += fabsf(e->frame[3 * i + c] - e->want[3 * i + c]);
    return bright / most(e->sight.light, 0.3f);
}

/* A shadow is darker with the same chroma; the object is not. The sun is a pale yellow disc on a known path. At night the object alone
 * is lit, and what is nearly black has a chroma of chance. */
static bool differs(const eye *e, int i)
{
    const sight *s = &e->sight;
    const float *f = e->frame + 3 * i, *want = e->want + 3 * i;
    const float tolerance = s->night ? 0.16f : 0.10f, dark = s->night ? 0.40f : 0.12f;
    const float x = (float)(i % SIZE) + 0.5f, y = (float)(i / SIZE) + 0.5f;
    const float fs = sum3(f), ws = sum3(want), fd = most(fs, dark), wd = most(ws, dark);
    const float bright = brightness_off(e, i);
    const bool lighter = fs > ws, shade = lighter || !s->floor || y < 96;
    float chroma = 0;
    for (int c = 0; c < 3; c++)
        chroma += fabsf(f[c] / fd - want[c] / wd);
    return !is_sun(f, x, y) && (chroma > tolerance || (bright > 0.30f && lighter) ||
                                (bright > 0.55f && chroma > tolerance / 2) ||
                                (s->pale && !s->night && bright > s->least && shade));
}

/* Takes the blue of dusk off the frame. */
static void take_dusk_off(eye *e)
{
    static const float dusk[3] = {0, 0.012f, 0.05f};
    sight *s = &e->sight;
    double mean = 0;
    for (int i = 0; i < PIXELS * 3; i++)
        mean += (double)e->back[i] / (PIXELS * 3);
    const float k = (1 - (s->light < 1 ? s->light : 1)) * (float)mean;
    for (int i = 0; i < PIXELS * 3; i++)
        e->frame[i] -= k * dusk[i % 3];
    s->light = light_of(e->scratch, e->frame, e->back, PIXELS);
}

/* What brightness is off by where there is no object: more than that tells a white one. */
static void find_least(eye *e)
{
    for (int i = 0; i < PIXELS; i++)
        e->scratch[i] = brightness_off(e, i);
    const float usual = 4 * median(e->scratch, PIXELS);
    e->sight.least = usual < 0.10f ? 0.10f : usual > 0.30f ? 0.30f : usual;
}

/* to: of each pixel and its four neighbours, whether any has this value. */
static void spread_value(bool *to, const bool *from, bool value)
{
    for (int i = 0; i < PIXELS; i++) {
        const int x = i % SIZE, y = i / SIZE;
        to[i] = from[i] == value || (x > 0 && from[i - 1] == value) ||
                (x < SIZE - 1 && from[i + 1] == value) || (y > 0 && from[i - SIZE] == value) ||
                (y < SIZE - 1 && from[i + SIZE] == value);
    }
}

/* e->mask without lines of one or two pixels, where an object is as bright as what is behind it. */
static void close_lines(eye *e)
{
    spread_value(e->other_mask, e->mask, true);
    spread_value(e->mask, e->other_mask, false);
    for (int i = 0; i < PIXELS; i++)
        e->mask[i] = !e->mask[i];
}

/* Marks the patch of pixel `first` with `name`. Returns its size. */
static int spread(eye *e, int first, int name)
{
    int n = 0, all = 0;
    e->todo[n++] = first;
    e->label[first] = name;
    while (n > 0) {
        const int i = e->todo[--n], x = i % SIZE, y = i / SIZE;
        const int next[] = {x > 0 ? i - 1 : i, x < SIZE - 1 ? i + 1 : i, y > 0 ? i - SIZE : i,
                            y < SIZE - 1 ? i + SIZE : i};
        all++;
        for (int k = 0; k < 4; k++)
            if (e->label[next[k]] < 0) {
                e->label[next[k]] = name;
                e->todo[n++] = next[k];
            }
    }
    return all;
}

/* e->mask: the largest connected patch of what differs from the background. */
static void find_object(eye *e)
{
    int names = 0, best = 0;
    e->count = 0;
    if (e->sight.pale) take_dusk_off(e);
    find_behind(e);
    if (e->sight.pale) find_least(e);
    for (int i = 0; i < PIXELS; i++)
        e->mask[i] = differs(e, i);
    if (e->sight.pale) close_lines(e);
    for (int i = 0; i < PIXELS; i++)
        e->label[i] = e->mask[i] ? -1 : 0;
    for (int i = 0; i < PIXELS; i++) {
        if (e->label[i] >= 0) continue;
        const int n = spread(e, i, ++names);
        if (n <= e->count) continue;
        e->count = n;
        best = names;
    }
    for (int i = 0; i < PIXELS; i++)
        e->mask[i] = best && e->label[i] == best;
}

static void middle(const eye *e, lti_toy_spot *s)
{
    double x = 0, y = 0;
    s->whole = true;
    for (int i = 0; i < PIXELS; i++) {
        if (!e->mask[i]) continue;
        x += i % SIZE;
        y += i / SIZE;
        if (i % SIZE == 0 || i % SIZE == SIZE - 1 || i / SIZE == 0 || i / SIZE == SIZE - 1)
            s->whole = false;
    }
    s->x = x / e->count;
    s->y = y / e->count;
    s->size = sqrt((double)e->count);
}

static bool hollow(const eye *e, const lti_toy_spot *s)
{
    const int cx = (int)rint(s->x), cy = (int)rint(s->y);
    int full = 0, all = 0;
    for (int y = cy - 2; y <= cy + 2; y++)
        for (int x = cx - 2; x <= cx + 2; x++) {
            if (x < 0 || y < 0 || x >= SIZE || y >= SIZE) continue;
            full += e->mask[y * SIZE + x];
            all++;
        }
    return full * 2 < all;
}

/* The distance from the middle to the edge over 72 directions, and how much of it goes 3, 4 or 5 times round. */
static int find_shape(const eye *e, lti_toy_spot *s)
{
    static const int turns[] = {3, 4, 5}, names[] = {TRIANGLE, SQUARE, STAR};
    float r[BINS] = {0}, mean = 0, best = 0;
    int name = 0;
    s->phase = 0;
    if (hollow(e, s)) return RING;
    for (int i = 0; i < PIXELS; i++) {
        if (!e->mask[i]) continue;
        const float dx = (float)(i % SIZE - s->x), dy = (float)(i / SIZE - s->y),
                    d = hypotf(dx, dy);
        const int bin = (int)((atan2f(dy, dx) + pi) / (2 * pi) * BINS) % BINS;
        r[bin] = most(r[bin], d);
    }
    for (int i = 0; i < BINS; i++)
        mean += r[i] / BINS;
    for (int k = 0; k < 3; k++) {
        double re = 0, im = 0;
        for (int i = 0; i < BINS; i++) {
            const double a = -2 * (double)pi * turns[k] * i / BINS;
            re += (double)(r[i] / most(mean, 1e-6f)) * cos(a) / BINS;
            im += (double)(r[i] / most(mean, 1e-6f)) * sin(a) / BINS;
        }
        const float size = (float)hypot(re, im);
        if (size <= best) continue;
        best = size;
        name = names[k];
        s->phase = atan2(im, re);
    }
    return best < 0.022f ? 0 : name;
}

static int find_colour(eye *e)
{
    double re = 0, im = 0;
    int n = 0, best = 0;
    float hue, sat, least = 1e9f;
    for (int i = 0; i < PIXELS; i++) {
        if (!e->mask[i]) continue;
        hue_of(e->frame + 3 * i, &hue, &sat);
        e->scratch[n++] = sat;
        if (sat <= 0.3f) continue;
        re += cos((double)(hue * pi / 180));
        im += sin((double)(hue * pi / 180));
    }
    if (median(e->scratch, n) < 0.22f) return WHITE;
    const float seen = re != 0 || im != 0 ? (float)atan2(im, re) * 180 / pi : 0;
    for (int k = 0; k < (int)LT_COUNT(colours); k++) {
        if (k == WHITE) continue;
        hue_of(lti_toy_colour(colours[k]), &hue, &sat);
        const float gap = fabsf(fmodf(seen - hue + 180 + 360, 360) - 180);
        if (gap >= least) continue;
        least = gap;
        best = k;
    }
    return best;
}

/* ---- the whole ---- */

static int winner(const int *votes, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (votes[i] > votes[best]) best = i;
    return best;
}

static const char *change_of_light(const float *light, int n)
{
    const int k = n / 5 > 1 ? n / 5 : 1;
    float first = 0, last = 0;
    for (int i = 0; i < k; i++) {
        first += light[i] / (float)k;
        last += light[n - 1 - i] / (float)k;
    }
    const float change = last / most(first, 1e-3f);
    return change < 0.8f ? "darkens" : change > 1.25f ? "sunrise" : "steady";
}

/* A sun that rises again and again has not risen: light that changes does not come back by 0.15 of full daylight. */
static bool goes_one_way(const float *light, int n, bool up)
{
    float far = light[0];
    for (int i = 1; i < n; i++) {
        if (up ? far - light[i] > 0.15f : light[i] - far > 0.15f) return false;
        if (up ? light[i] > far : light[i] < far) far = light[i];
    }
    return true;
}

enum { MAX_LOOKS = 80 }; /* steps are count / 40, rounded down */

static void find_motion(lti_toy *out, eye *e, const float *light, const uint8_t *frames,
                        int32_t count, int32_t step)
{
    int votes[LT_COUNT(colours)] = {0}, forms[LT_COUNT(shapes)] = {0}, n = 0, whole = 0;
    lti_toy_spot track[MAX_LOOKS];
    out->colour = out->shape = out->motion = NULL;
    for (int32_t t = 0; t < count; t += step) {
        load(e->frame, frames + (size_t)t * PIXELS * 3);
        e->sight.light = light[t / step];
        find_object(e);
        if (e->count < 60) continue;
        lti_toy_spot *s = &track[n++];
        s->t = t;
        middle(e, s);
        const int shape = find_shape(e, s);
        forms[shape] += s->whole;
        whole += s->whole;
        votes[find_colour(e)]++;
    }
    if (n == 0) return;
    out->colour = colours[winner(votes, LT_COUNT(votes))];
    out->shape = whole ? shapes[winner(forms, LT_COUNT(forms))] : NULL;
    out->motion = lti_toy_motion(track, n, out->shape);
}

static void look(lti_toy *out, eye *e, const uint8_t *frames, int32_t count)
{
    const int32_t step = count / 40 > 1 ? count / 40 : 1;
    float light[MAX_LOOKS];
    int lights = 0;
    out->ground = find_ground(e, frames, count);
    for (int32_t t = 0; t < count; t += step) {
        load(e->frame, frames + (size_t)t * PIXELS * 3);
        light[lights++] = light_of(e->scratch, e->frame, e->back, PIXELS);
    }
    out->light = change_of_light(light, lights);
    e->sight = (sight){.night = !strcmp(out->ground, "night"),
                       .floor = !strcmp(out->ground, "checker") || !strcmp(out->ground, "grass"),
                       .rises = !strcmp(out->light, "sunrise")};
    find_motion(out, e, light, frames, count, step);
    if (out->colour && !strcmp(out->colour, colours[WHITE])) {
        e->sight.pale = true;
        find_motion(out, e, light, frames, count, step);
    }
    if (strcmp(out->light, "steady") != 0 && !goes_one_way(light, lights, e->sight.rises))
        out->light = "unsteady";
}

lt_status lti_toy_read(lti_toy *out, lt_ctx *ctx, const uint8_t *frames, int32_t count)
{
    *out = (lti_toy){0};
    eye *e = malloc(sizeof *e);
    if (!e) return lti_fail(ctx, LT_ERR_MEM, "no memory to look at a clip");
    look(out, e, frames, count);
    free(e);
    return LT_OK;
}

int lti_toy_agree(const lti_toy *got, const lti_toy *want, int *asked)
{
    const char *const a[LTI_TOY_ITEMS] = {got->ground, got->colour, got->shape, got->motion,
                                          got->light},
                      *const b[LTI_TOY_ITEMS] = {want->ground, want->colour, want->shape,
                                                 want->motion, want->light};
    int same = 0;
    *asked = 0;
    for (int i = 0; i < LTI_TOY_ITEMS; i++) {
        *asked += b[i] != NULL;
        same += a[i] && b[i] && !strcmp(a[i], b[i]);
    }
    return same;
}
