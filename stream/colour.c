/* colour.c: RGB to YUV 4:2:0, BT.709, limited range (ITU-R BT.709-6: Kr 0.2126, Kb 0.0722; Y 16..235, C 16..240).
 * Chroma lies on even luma columns, between two rows ("left", what H.264 and AV1 assume unless told otherwise): columns are
 * weighted 1 2 1, rows averaged. 16 bits of fraction; swscale would convert with BT.601 and its bytes depend on the machine. */
#include "stream/internal.h"

enum { BITS = 16, HALF = 1 << (BITS - 1) };

/* round(2^16 * 219/255 * K), round(2^16 * 224/255 * ...); each row of chroma sums to 0, luma to 219/255. */
enum { YR = 11966, YG = 40254, YB = 4064 };
enum { UR = -6596, UG = -22189, UB = 28785 };
enum { VR = 28785, VG = -26145, VB = -2640 };

static uint8_t luma(const uint8_t *p)
{
    return (uint8_t)(16 + ((YR * p[0] + YG * p[1] + YB * p[2] + HALF) >> BITS));
}

/* Channel c around column x of two rows, weighted 1 2 1 by column: 8 times the mean. The edge column stands for what is
 * left of it. */
static int around(const uint8_t *a, const uint8_t *b, int x, int c)
{
    const int l = 3 * (x ? x - 1 : 0) + c, m = 3 * x + c, r = 3 * (x + 1) + c;
    return a[l] + b[l] + 2 * (a[m] + b[m]) + a[r] + b[r];
}

static uint8_t chroma(int r, int g, int b, int kr, int kg, int kb)
{
    /* 128 is added before the shift: a shift of a negative number would round the other way */
    return (uint8_t)((kr * r + kg * g + kb * b + (128 << (BITS + 3)) + (HALF << 3)) >> (BITS + 3));
}

void lti_rgb_to_yuv420(uint8_t *const plane[3], const int stride[3], const uint8_t *rgb, int width,
                       int height)
{
    const ptrdiff_t row = 3 * (ptrdiff_t)width;
    for (int y = 0; y < height; y++) {
        uint8_t *out = plane[0] + (ptrdiff_t)y * stride[0];
        for (int x = 0; x < width; x++)
            out[x] = luma(rgb + y * row + 3 * x);
    }
    for (int y = 0; y < height / 2; y++) {
        const uint8_t *a = rgb + 2 * y * row, *b = a + row;
        uint8_t *u = plane[1] + (ptrdiff_t)y * stride[1], *v = plane[2] + (ptrdiff_t)y * stride[2];
        for (int x = 0; x < width / 2; x++) {
            const int red = around(a, b, 2 * x, 0), green = around(a, b, 2 * x, 1),
                      blue = around(a, b, 2 * x, 2);
            u[x] = chroma(red, green, blue, UR, UG, UB);
            v[x] = chroma(red, green, blue, VR, VG, VB);
        }
    }
}
