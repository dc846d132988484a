/* fft.c: fft2 by kissfft, a plane a task. Tables of sines are made for each plane again: that is small beside the plane, and nothing has
 * to be kept. */
#include "kernels/pointwise.h"

#include <kiss_fft.h>

typedef struct job {
    const lt_fft2_args *a;
    lt_dev *dev;
    size_t row_bytes, column_bytes, line_bytes; /* of scratch, in this order */
} job;

static size_t table_bytes(int32_t n)
{
    size_t bytes = 0;
    kiss_fft_alloc(n, 0, NULL, &bytes); /* says how much it wants */
    return lt_arena_need(bytes);
}

static void transform(void *arg, int64_t p, int thread)
{
    const job *j = arg;
    const int64_t h = j->a->h, w = j->a->w;
    uint8_t *scratch = lti_scratch(j->dev, thread);
    size_t row_bytes = j->row_bytes, column_bytes = j->column_bytes;
    const kiss_fft_cfg row = kiss_fft_alloc(j->a->w, 0, scratch, &row_bytes);
    const kiss_fft_cfg column = kiss_fft_alloc(j->a->h, 0, scratch + j->row_bytes, &column_bytes);
    kiss_fft_cpx *line = (void *)(scratch + j->row_bytes + j->column_bytes);
    kiss_fft_cpx *out = (void *)(j->a->out + 2 * p * h * w);
    const float *x = j->a->x + p * h * w;
    for (int64_t y = 0; y < h; y++) {
        for (int64_t c = 0; c < w; c++)
            line[c] = (kiss_fft_cpx){x[y * w + c], 0};
        kiss_fft(row, line, out + y * w);
    }
    for (int64_t c = 0; c < w; c++) {
        kiss_fft_stride(column, out + c, line, (int)w);
        for (int64_t y = 0; y < h; y++)
            out[y * w + c] = line[y];
    }
}

static lt_status fft2_cpu(lt_dev *dev, const lt_fft2_args *a)
{
    LT_TRY(lti_check_fft2(dev, a));
    const int32_t longest = a->h > a->w ? a->h : a->w;
    job j = {a, dev, table_bytes(a->w), table_bytes(a->h),
             lt_arena_need((size_t)longest * sizeof(kiss_fft_cpx))};
    LT_TRY(lti_scratch_reserve(dev, j.row_bytes + j.column_bytes + j.line_bytes));
    lti_parallel(dev, a->planes, transform, &j);
    return LT_OK;
}

void lti_fft_register(lt_kernels *k)
{
    k->fft2 = fft2_cpu;
}
