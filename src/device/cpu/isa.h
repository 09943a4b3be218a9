/* Which instruction set the fast CPU kernels may use. The files under fast/ are compiled once for
 * each of these; the choice between them is made at run time. */
#ifndef TRI_DEVICE_CPU_ISA_H
#define TRI_DEVICE_CPU_ISA_H

typedef enum tri_isa {
    TRI_ISA_BASE,   /* whatever the compiler targets by default, on any architecture */
    TRI_ISA_AVX2,   /* x86-64-v3: AVX2 and FMA */
    TRI_ISA_AVX512, /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */
    TRI_NUM_ISA
} tri_isa;

/* The best one that this processor runs. */
tri_isa tri_isa_detect(void);

/* "base", "avx2", "avx512". */
const char *tri_isa_name(tri_isa isa);

#endif
