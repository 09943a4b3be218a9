#include "device/cpu/isa.h"

tri_isa tri_isa_detect(void)
{
#if defined(__x86_64__)
    /* By feature, not by "x86-64-v4": gcc before 12 and clang before 17 do not know the levels. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2"))
        return TRI_ISA_BASE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return TRI_ISA_AVX512;
    return TRI_ISA_AVX2;
#else
    return TRI_ISA_BASE;
#endif
}

const char *tri_isa_name(tri_isa isa)
{
    static const char *const names[TRI_NUM_ISA] = {"base", "avx2", "avx512"};
    return (unsigned)isa < TRI_NUM_ISA ? names[isa] : "unknown";
}
