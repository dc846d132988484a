/* isa.c: which kernel set this processor should run. Decided by feature flags and vendor, never by timing, so that
 * the same machine always computes the same bits. */
#include "kernels/isa.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[] = {"ref",    "portable",   "avx2",
                                    "avx512", "avx512bf16", "avx512fp16"};

const char *lti_isa_name(lti_isa isa)
{
    return names[isa];
}

bool lti_isa_parse(const char *name, lti_isa *out)
{
    for (size_t i = 0; i < LT_COUNT(names); i++)
        if (!strcmp(name, names[i])) {
            *out = (lti_isa)i;
            return true;
        }
    return false;
}

#if defined(__x86_64__)
/* Asked for here because not every compiler of the day knows its name. */
static bool has_fp16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 23 & 1;
}
#endif

lti_isa lti_isa_highest(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return LTI_ISA_PORTABLE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return LTI_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512bf16")) return LTI_ISA_AVX512;
    return has_fp16() ? LTI_ISA_AVX512FP16 : LTI_ISA_AVX512BF16;
#else
    return LTI_ISA_PORTABLE;
#endif
}

/* Intel cores without matrix tiles issue vdpbf16ps at a quarter of the rate at which AMD's do (measured on Emerald
 * Rapids: 95 GFLOP/s a core against 200 for the f32 FMA; Zen 5: 405 against 197). */
static bool bf16_dot_is_fast(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return false;
    return b == 0x68747541u; /* "Auth", of AuthenticAMD */
#else
    return false;
#endif
}

lti_isa lti_isa_auto(void)
{
    const lti_isa top = lti_isa_highest();
    return top == LTI_ISA_AVX512BF16 && !bf16_dot_is_fast() ? LTI_ISA_AVX512 : top;
}
