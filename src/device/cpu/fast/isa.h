/* Names for the files of this folder, which are compiled once per instruction set.
 *
 * The build gives -DTRI_ISA=base, avx2 or avx512. TRI_ISA_NAME(tri_x) is then tri_x_base and so on:
 * every function with external linkage in this folder is named through it, so that the variants can
 * be linked together. Everything else must be static (an inline function with external linkage
 * could be merged with a variant that the processor cannot run). */
#ifndef TRI_DEVICE_CPU_FAST_ISA_H
#define TRI_DEVICE_CPU_FAST_ISA_H

#ifndef TRI_ISA
#error "compile this file with -DTRI_ISA=base, avx2 or avx512"
#endif

#define TRI_ISA_PASTE_(name, isa)  name##_##isa
#define TRI_ISA_EXPAND_(name, isa) TRI_ISA_PASTE_(name, isa)
#define TRI_ISA_NAME(name)         TRI_ISA_EXPAND_(name, TRI_ISA)

#endif
