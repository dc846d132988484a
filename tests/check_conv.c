/* check_conv.c: every kind of convolution that a VAE has, at sizes around every tile, then real sizes. */
#include "tests/check_gemm.h"

#include <stdio.h>

static const lt_dtype types[] = {LT_F32, LT_BF16};

typedef enum kind {
    CONV_1X1,   /* shortcut */
    CONV_TIME,  /* 3 x 1 x 1 */
    CONV_3X3,   /* one frame */
    CONV_3X3X3, /* causal, three frames */
    CONV_DOWN,  /* 3 x 3, step 2, padding at the right and the bottom only */
    CONV_PHASE, /* 2 x 2, one of four output phases of nearest-2x and 3 x 3 */
    CONV_KINDS
} kind;

static const char *const kind_name[] = {"1x1", "time", "3x3", "3x3x3", "down", "phase"};

typedef struct shape {
    kind kind;
    int32_t h, w, cin, cout; /* outputs of this call */
    lt_dtype in, out;
    int null_frames;              /* frames 0 .. null_frames - 1 are absent */
    int residual;                 /* 0 none, 1 another picture, 2 out itself */
    int32_t out_border, out_more; /* more channels than cout */
    int32_t phase;
} shape;

typedef struct data {
    lt_buf frame[3], want, got, residual;
    lt_weight *w;
} data;

static int fill_taps(const shape *s, lt_tap *tap)
{
    static const int count[] = {1, 3, 9, 27, 9, 4};
    for (int i = 0; i < count[s->kind]; i++) {
        const int y = i / 3 % 3, x = i % 3;
        switch (s->kind) {
        case CONV_1X1:
            tap[i] = (lt_tap){2, 0, 0};
            break;
        case CONV_TIME:
            tap[i] = (lt_tap){(int8_t)i, 0, 0};
            break;
        case CONV_3X3:
            tap[i] = (lt_tap){2, (int8_t)(y - 1), (int8_t)(x - 1)};
            break;
        case CONV_DOWN:
            tap[i] = (lt_tap){2, (int8_t)y, (int8_t)x};
            break;
        case CONV_PHASE:
            tap[i] =
                (lt_tap){2, (int8_t)(i / 2 - 1 + s->phase / 2), (int8_t)(i % 2 - 1 + s->phase % 2)};
            break;
        default:
            tap[i] = (lt_tap){(int8_t)(i / 9), (int8_t)(y - 1), (int8_t)(x - 1)};
        }
    }
    return count[s->kind];
}

static lt_image in_image(const shape *s)
{
    const int32_t step = s->kind == CONV_DOWN ? 2 : 1;
    return (lt_image){.dtype = s->in, .h = s->h * step, .w = s->w * step, .c = s->cin, .border = 1};
}

static lt_image out_image(const shape *s, lt_buf b, lt_side side)
{
    const int32_t step = s->kind == CONV_PHASE ? 2 : 1;
    return (lt_image){.data = lt_at(b, side),
                      .dtype = b.dtype,
                      .h = s->h * step,
                      .w = s->w * step,
                      .c = s->cout + s->out_more,
                      .border = s->out_border};
}

static int64_t elements(lt_image im)
{
    return (int64_t)(lt_image_bytes(&im) / lt_dtype_size(im.dtype));
}

static data make(lt_check *t, const shape *s)
{
    data d = {0};
    lt_tap tap[LT_MAX_TAPS];
    const int taps = fill_taps(s, tap);
    const int64_t n_out = elements(out_image(s, (lt_buf){.dtype = s->out}, LT_HOST));
    for (int f = s->null_frames; f < 3; f++)
        d.frame[f] = lt_check_rand(t, s->in, elements(in_image(s)));
    const lt_buf values = lt_check_rand(t, LT_F32, (int64_t)s->cout * s->cin * taps);
    d.want = s->residual == 2 ? lt_check_rand(t, s->out, n_out) : lt_check_out(t, s->out, n_out);
    d.got = lt_check_clone(t, d.want);
    if (s->residual == 1) d.residual = lt_check_rand(t, LT_F32, n_out);
    d.w =
        lt_check_weight(t, values, lt_check_rand(t, LT_F32, s->cout), s->cout, s->cin, taps, s->in);
    return d;
}

static lt_conv_args args(const data *d, const shape *s, lt_side side)
{
    const lt_buf out = side == LT_HOST ? d->want : d->got;
    lt_conv_args a = {.out = out_image(s, out, side),
                      .in = in_image(s),
                      .w = d->w,
                      .rows = s->h,
                      .cols = s->w,
                      .in_step = s->kind == CONV_DOWN ? 2 : 0};
    if (s->kind == CONV_PHASE) {
        a.out_step = 2;
        a.out_y = s->phase / 2;
        a.out_x = s->phase % 2;
    }
    a.ntaps = fill_taps(s, a.tap);
    for (int f = 0; f < 3; f++)
        a.frame[f] = lt_at(d->frame[f], side);
    if (s->residual) a.residual = out_image(s, s->residual == 2 ? out : d->residual, side);
    return a;
}

static void compare(lt_check *t, const shape *s)
{
    data d = make(t, s);
    const lt_conv_args h = args(&d, s, LT_HOST), v = args(&d, s, LT_DEV);
    LT_CHECK_REF(t, lti_conv_ref(t->dev, &h));
    LT_CHECK_OK(t, lt_conv(t->dev, &v));
    lt_check_close(t, "out", d.got, d.want,
                   lt_check_sum_tol(d.w, (double)s->cin * h.ntaps, 1, s->out));
    LT_CHECK_THREADS(t, d.got, lt_conv(t->dev, &v));
    lt_weight_destroy(t->many, &d.w);
}

/* Widths around every tile and more than one block, channels around every panel and chunk; the rest takes turns. */
static void check_edges(lt_check *t)
{
    static const int32_t ws[] = {1, 2, 5, 6, 7, 8, 13, 14, 15, 16, 27, 28, 29, 131};
    static const int32_t cs[][2] = {{1, 1},   {3, 16},  {16, 3},  {4, 8},   {5, 31},
                                    {16, 32}, {17, 33}, {32, 48}, {33, 40}, {70, 20}};
    static const int32_t hs[] = {1, 4, 2, 7, 3};
    unsigned turn = 0;
    for (int k = 0; k < CONV_KINDS; k++)
        for (size_t i = 0; i < LT_COUNT(ws); i++)
            for (size_t j = 0; j < LT_COUNT(cs); j++, turn++) {
                shape s = {.kind = (kind)k,
                           .h = hs[turn % LT_COUNT(hs)],
                           .w = ws[i],
                           .cin = cs[j][0],
                           .cout = cs[j][1],
                           .in = types[turn % 2],
                           .out = types[turn / 2 % 2],
                           .null_frames = (int)(turn % 7 % 3),
                           .residual = (int)(turn % 11 % 3),
                           .out_border = (int32_t)(turn / 3 % 2),
                           .out_more = (int32_t)(turn % 5 % 2),
                           .phase = (int32_t)(turn % 4)};
                if (s.residual == 2 && s.out != LT_F32) s.residual = 1;
                if (!lt_check_begin(t, "conv_%s_%s_%s_%dx%d_%d_%d", kind_name[k],
                                    lt_dtype_name(s.in), lt_dtype_name(s.out), s.w, s.h, s.cin,
                                    s.cout))
                    continue;
                compare(t, &s);
            }
}

/* Every residual and every number of absent frames, all three included: then only the bias is left. */
static void check_frames(lt_check *t)
{
    for (int null = 0; null <= 3; null++)
        for (int residual = 0; residual < 3; residual++)
            for (size_t in = 0; in < LT_COUNT(types); in++) {
                const shape s = {.kind = CONV_3X3X3,
                                 .h = 5,
                                 .w = 17,
                                 .cin = 20,
                                 .cout = 36,
                                 .in = types[in],
                                 .out = LT_F32,
                                 .null_frames = null,
                                 .residual = residual,
                                 .out_border = 1};
                if (!lt_check_begin(t, "conv_frames_%s_null%d_residual%d", lt_dtype_name(s.in),
                                    null, residual))
                    continue;
                compare(t, &s);
            }
}

/* A call that covers fewer rows and columns writes the same bits over those of a whole one. */
static void compare_part(lt_check *t, const shape *s)
{
    data d = make(t, s);
    lt_conv_args a = args(&d, s, LT_DEV);
    LT_CHECK_OK(t, lt_conv(t->dev, &a));
    LT_CHECK_OK(t, lt_dev_download(t->dev, d.want.host, d.got.dev,
                                   (size_t)d.got.n * lt_dtype_size(s->out)));
    a.rows--;
    a.cols--;
    LT_CHECK_OK(t, lt_conv(t->dev, &a));
    lt_check_same(t, "part", d.got, d.want);
    lt_weight_destroy(t->many, &d.w);
}

/* Winograd's tiles of two by two: odd sides, several groups of channels, panels and blocks, all narrow and wide ones. */
static void check_winograd(lt_check *t)
{
    static const int32_t hw[][2] = {{8, 8},  {9, 9},   {1, 64},  {64, 1},  {2, 37},
                                    {7, 11}, {3, 203}, {31, 33}, {12, 29}, {5, 390}};
    static const int32_t cs[][2] = {{8, 32}, {9, 33}, {70, 65}, {103, 130}, {131, 40}, {24, 97}};
    unsigned turn = 0;
    for (size_t i = 0; i < LT_COUNT(hw); i++)
        for (size_t j = 0; j < LT_COUNT(cs); j++, turn++) {
            if ((int64_t)hw[i][0] * hw[i][1] * cs[j][0] * cs[j][1] > 1500000) continue;
            shape s = {.kind = turn % 3 ? CONV_3X3X3 : CONV_3X3,
                       .h = hw[i][0],
                       .w = hw[i][1],
                       .cin = cs[j][0],
                       .cout = cs[j][1],
                       .in = types[turn % 2],
                       .out = types[turn / 2 % 2],
                       .null_frames = (int)(turn % 5 % 3),
                       .residual = (int)(turn % 7 % 3)};
            if (s.residual == 2 && s.out != LT_F32) s.residual = 1;
            if (!lt_check_begin(t, "conv_winograd_%s_%s_%s_%dx%d_%d_%d", kind_name[s.kind],
                                lt_dtype_name(s.in), lt_dtype_name(s.out), s.w, s.h, s.cin, s.cout))
                continue;
            compare(t, &s);
            if (j > 1) continue;
            s.residual = 0;
            compare_part(t, &s);
        }
}

static void check_arguments(lt_check *t)
{
    const shape s = {
        .kind = CONV_3X3, .h = 3, .w = 4, .cin = 5, .cout = 6, .in = LT_BF16, .out = LT_F32};
    if (!lt_check_begin(t, "conv_arguments")) return;
    data d = make(t, &s);
    const lt_conv_args good = args(&d, &s, LT_DEV);
    lt_conv_args a = good;
    a.in.border = 0;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_conv(t->dev, &a));
    a = good;
    a.out.c = 5;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_conv(t->dev, &a));
    a = good;
    a.ntaps = 8;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_conv(t->dev, &a));
    a = good;
    a.tap[3].frame = 3;
    LT_CHECK_STATUS(t, LT_ERR_ARG, lt_conv(t->dev, &a));
    a = good;
    a.in.dtype = LT_F32;
    LT_CHECK_STATUS(t, LT_ERR_DTYPE, lt_conv(t->dev, &a));
    a = good;
    a.out_y = 1;
    LT_CHECK_STATUS(t, LT_ERR_SHAPE, lt_conv(t->dev, &a));
    lt_check_same(t, "out", d.got, d.want);
    lt_weight_destroy(t->many, &d.w);
}

static void bench(lt_check *t, const shape *s)
{
    data d = make(t, s);
    const lt_conv_args v = args(&d, s, LT_DEV);
    lt_conv_args h = args(&d, s, LT_HOST);
    h.rows = 1;
    h.cols = 8;
    const double flops = 2.0 * s->h * s->w * s->cin * s->cout * h.ntaps;
    LT_BENCH(t, lt_conv(t->dev, &v), lti_conv_ref(t->dev, &h), .flops = flops,
             .bf16 = s->in == LT_BF16, .conv = true, .ref_scale = s->h * s->w / 8.0);
    if (s->kind == CONV_3X3X3)
        lt_check_print_dnnl(t, lt_dnnl_conv_seconds(s->h, s->w, s->cin, s->cout, h.ntaps, s->in),
                            flops);
    lt_weight_destroy(t->many, &d.w);
}

/* The decoder of the Wan VAE at 832x480 and of the embedded model. */
static void check_real(lt_check *t)
{
    static const shape sizes[] = {
        {.kind = CONV_3X3X3, .w = 104, .h = 60, .cin = 384, .cout = 384},
        {.kind = CONV_3X3X3, .w = 32, .h = 32, .cin = 384, .cout = 384},
        {.kind = CONV_3X3X3, .w = 208, .h = 120, .cin = 192, .cout = 192},
        {.kind = CONV_3X3X3, .w = 416, .h = 240, .cin = 96, .cout = 96},
        {.kind = CONV_3X3X3, .w = 416, .h = 240, .cin = 96, .cout = 3},
        {.kind = CONV_3X3X3, .w = 104, .h = 60, .cin = 16, .cout = 384},
        {.kind = CONV_3X3X3, .w = 8, .h = 8, .cin = 384, .cout = 384},
        {.kind = CONV_3X3X3, .w = 64, .h = 64, .cin = 32, .cout = 32},
        {.kind = CONV_3X3X3, .w = 64, .h = 64, .cin = 64, .cout = 64},
        {.kind = CONV_3X3X3, .w = 128, .h = 128, .cin = 16, .cout = 16},
        {.kind = CONV_3X3X3, .w = 128, .h = 128, .cin = 64, .cout = 64},
        {.kind = CONV_3X3X3, .w = 64, .h = 64, .cin = 128, .cout = 128},
        {.kind = CONV_PHASE, .w = 208, .h = 120, .cin = 192, .cout = 96},
        {.kind = CONV_TIME, .w = 104, .h = 60, .cin = 384, .cout = 768},
        {.kind = CONV_1X1, .w = 104, .h = 60, .cin = 384, .cout = 1152},
        {.kind = CONV_DOWN, .w = 104, .h = 60, .cin = 192, .cout = 192},
    };
    if (t->bench && lt_check_begin(t, "conv_note"))
        printf(
            "conv: operations as a direct convolution counts them; Winograd's do 16 of 36, so a\n"
            "share of the peak may be above 100 %%\n");
    for (size_t in = 0; in < LT_COUNT(types) && t->bench; in++)
        for (size_t i = 0; i < LT_COUNT(sizes); i++) {
            shape s = sizes[i];
            s.in = types[in];
            s.out = LT_F32;
            if (!lt_check_begin(t, "conv_%s_%s_%dx%d_%d_%d", kind_name[s.kind], lt_dtype_name(s.in),
                                s.w, s.h, s.cin, s.cout))
                continue;
            shape few = s; /* the same channels, compared before they are timed */
            few.h = 1;
            few.w = 9;
            compare(t, &few);
            bench(t, &s);
        }
}

void lt_check_conv(lt_check *t)
{
    check_edges(t);
    check_frames(t);
    check_winograd(t);
    check_arguments(t);
    check_real(t);
}
