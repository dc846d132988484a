/* check_pointwise.c: convert, norm, qknorm, map, lincomb, noise, stats. */
#include "tests/check.h"

void lt_check_lincomb(lt_check *t)
{
    static const int64_t sizes[] = {1, 3, 7, 8, 15, 16, 17, 127, 128, 129, 5120, 1 << 20};
    for (size_t i = 0; i < LT_COUNT(sizes); i++)
        for (int terms = 1; terms <= 6; terms++) {
            const int64_t n = sizes[i];
            if (!lt_check_begin(t, "lincomb_%d_%" PRId64, terms, n)) continue;
            lt_buf want = lt_check_out(t, LT_F32, n), got = lt_check_out(t, LT_F32, n);
            lt_lincomb_args h = {.out = want.host, .terms = terms, .n = n}, d = h;
            d.out = got.dev;
            for (int j = 0; j < terms; j++) {
                const lt_buf x = lt_check_rand(t, LT_F32, n);
                h.x[j] = x.host;
                d.x[j] = x.dev;
                h.coef[j] = d.coef[j] = 0.3f * (float)(j - 2);
            }
            LT_CHECK_REF(t, lti_lincomb_ref(t->dev, &h));
            LT_CHECK_OK(t, lt_lincomb(t->dev, &d));
            lt_check_close(t, "out", got, want, (lt_tol){.abs = 1e-6, .rel = 1e-6});
            LT_CHECK_THREADS(t, got, lt_lincomb(t->dev, &d));
        }
}
