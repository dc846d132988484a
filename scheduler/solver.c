/* solver.c: one step of each solver. Coefficients are computed in double on the host; each array that a step makes is one
 * linear combination on the device. m_i = x_i - sigma_i v_i is the prediction of x0 at step i.
 * Infinite lambda (sigma exactly 1 at the start, exactly 0 at the end) needs no cases: expm1(-inf) = -1 and terms divided
 * by an infinite ratio vanish, which is first order, as the references do it.
 * Sources: UniPC arXiv:2302.04867 (order 2, B(h) = e^h - 1), DPM-Solver++ arXiv:2211.01095; closed forms in spec (Wan 5.4). */
#include "scheduler/internal.h"

#include <math.h>

static double lambda(const lt_scheduler *s, int32_t i)
{
    const double sigma = (double)s->sigma[i];
    return log((1 - sigma) / sigma);
}

static float *history(const lt_scheduler *s, int32_t i)
{
    return s->x0[i % LTI_HISTORY];
}

static lt_status predict_x0(lt_scheduler *s, int32_t i, const float *x, const float *v)
{
    return lt_lincomb(
        s->dev,
        &(lt_lincomb_args){
            .out = history(s, i), .x = {x, v}, .coef = {1, -s->sigma[i]}, .terms = 2, .n = s->n});
}

lt_status lti_step_euler(lt_scheduler *s, int32_t i, float *x, const float *v)
{
    const float d = (float)((double)s->sigma[i + 1] - (double)s->sigma[i]);
    return lt_lincomb(
        s->dev, &(lt_lincomb_args){.out = x, .x = {x, v}, .coef = {1, d}, .terms = 2, .n = s->n});
}

lt_status lti_step_renoise(lt_scheduler *s, int32_t i, float *x, const float *v, const float *noise)
{
    const double now = (double)s->sigma[i], next = (double)s->sigma[i + 1];
    const bool last = i == s->steps - 1;
    return lt_lincomb(s->dev, &(lt_lincomb_args){.out = x,
                                                 .x = {x, v, noise},
                                                 .coef = {(float)(1 - next),
                                                          (float)(-(1 - next) * now), (float)next},
                                                 .terms = last ? 2 : 3,
                                                 .n = s->n});
}

/* x_{i+1} = (sigma_{i+1} / sigma_i) base - alpha_{i+1} E (m_i + q), q = (m_{i-1} - m_i) / (2 r) at order 2. */
static lt_status predict(lt_scheduler *s, int32_t i, int order, float *out, const float *base)
{
    const double now = (double)s->sigma[i], next = (double)s->sigma[i + 1];
    const double h = lambda(s, i + 1) - lambda(s, i), e = -(1 - next) * expm1(-h);
    const double q = order == 2 ? 0.5 * h / (lambda(s, i - 1) - lambda(s, i)) : 0;
    return lt_lincomb(
        s->dev,
        &(lt_lincomb_args){.out = out,
                           .x = {base, history(s, i), history(s, i + LTI_HISTORY - 1)},
                           .coef = {(float)(next / now), (float)(e * (1 - q)), (float)(e * q)},
                           .terms = order == 2 ? 3 : 2,
                           .n = s->n});
}

/* The sample of step i again, from the sample before the last predictor, now that m_i is known:
 * x_i = (sigma_i / sigma_{i-1}) X - alpha_i E (m_{i-1} + c), c by the order of that predictor. In place in `corrected`. */
static lt_status correct(lt_scheduler *s, int32_t i)
{
    const double before = (double)s->sigma[i - 1], now = (double)s->sigma[i];
    const double h = lambda(s, i) - lambda(s, i - 1), e1 = expm1(-h), e = -(1 - now) * e1;
    double rho1 = 0, rho2 = 0.5,
           r = 1; /* c = rho1 / r (m_{i-2} - m_{i-1}) + rho2 (m_i - m_{i-1}) */
    if (s->order == 2) {
        r = (lambda(s, i - 2) - lambda(s, i - 1)) / h;
        const double g1 = -e1 / h - 1, b1 = g1 / e1, b2 = 2 * (-g1 / h - 0.5) / e1;
        rho1 = (b1 - b2) / (1 - r);
        rho2 = b1 - rho1;
    }
    const double c2 = rho1 / r;
    return lt_lincomb(
        s->dev, &(lt_lincomb_args){.out = s->corrected,
                                   .x = {s->corrected, history(s, i - 1), history(s, i),
                                         history(s, i + LTI_HISTORY - 2)},
                                   .coef = {(float)(now / before), (float)(e * (1 - c2 - rho2)),
                                            (float)(e * rho2), (float)(e * c2)},
                                   .terms = s->order == 2 ? 4 : 3,
                                   .n = s->n});
}

lt_status lti_step_unipc(lt_scheduler *s, int32_t i, float *x, const float *v)
{
    const bool last = i == s->steps - 1;
    LT_TRY(predict_x0(s, i, x, v)); /* from the sample before correction */
    if (last) return lt_dev_copy(s->dev, x, history(s, i), (size_t)s->n * sizeof *x);
    if (i == 0)
        LT_TRY(lt_dev_copy(s->dev, s->corrected, x, (size_t)s->n * sizeof *x));
    else
        LT_TRY(correct(s, i));
    s->order = i == 0 ? 1 : 2;
    return predict(s, i, s->order, x, s->corrected);
}

lt_status lti_step_dpmpp(lt_scheduler *s, int32_t i, float *x, const float *v)
{
    LT_TRY(predict_x0(s, i, x, v));
    return predict(s, i, i == 0 || i == s->steps - 1 ? 1 : 2, x, x);
}
