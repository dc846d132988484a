/* peak_avx512fp16.c: the f16 multiply-add of peak.c, apart because not every compiler takes its types in a function of another set. */
#include "kernels/internal.h"

#include <immintrin.h>

float lti_peak_half(int loops)
{
    __m512h acc[LTI_PEAK_CHAINS];
    const __m512h a = _mm512_castsi512_ph(_mm512_set1_epi16(0x3800)), /* 1/2 */
        b = _mm512_castsi512_ph(_mm512_set1_epi16(0x3400));           /* 1/4 */
    for (int i = 0; i < LTI_PEAK_CHAINS; i++)
        acc[i] = _mm512_castsi512_ph(_mm512_set1_epi16((short)(0x3800 + i)));
    for (int n = 0; n < loops; n++)
#pragma GCC unroll 12
        for (int i = 0; i < LTI_PEAK_CHAINS; i++)
            acc[i] = _mm512_fmadd_ph(acc[i], a, b);
    for (int i = 1; i < LTI_PEAK_CHAINS; i++)
        acc[0] = _mm512_add_ph(acc[0], acc[i]);
    return _mm512_cvtss_f32(_mm512_castph_ps(acc[0]));
}
