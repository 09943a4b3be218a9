/* The choice between the variants of the fast kernels: fast/ is compiled once per instruction set.
 */
#include "device/cpu/convert.h"
#include "device/cpu/cpu.h"

const tri_kernel *tri_cpu_fast_base(tri_op op);
const tri_kernel *tri_cpu_fast_avx2(tri_op op);
const tri_kernel *tri_cpu_fast_avx512(tri_op op);
extern const tri_cpu_convert tri_cpu_convert_base, tri_cpu_convert_avx2, tri_cpu_convert_avx512;

const tri_kernel *tri_cpu_fast(tri_op op, tri_isa isa)
{
#if defined(__x86_64__)
    if (isa == TRI_ISA_AVX512)
        return tri_cpu_fast_avx512(op);
    if (isa == TRI_ISA_AVX2)
        return tri_cpu_fast_avx2(op);
#endif
    (void)isa;
    return tri_cpu_fast_base(op);
}

const tri_cpu_convert *tri_cpu_convert_for(tri_isa isa)
{
#if defined(__x86_64__)
    if (isa == TRI_ISA_AVX512)
        return &tri_cpu_convert_avx512;
    if (isa == TRI_ISA_AVX2)
        return &tri_cpu_convert_avx2;
#endif
    (void)isa;
    return &tri_cpu_convert_base;
}
