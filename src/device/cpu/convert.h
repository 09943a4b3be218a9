/* Elements of 16 and 8 bits as floats, and floats as such elements: the same bits with every
 * instruction set. */
#ifndef TRI_DEVICE_CPU_CONVERT_H
#define TRI_DEVICE_CPU_CONVERT_H

#include "device/cpu/isa.h"
#include "graph/dtype.h"

#include <stdint.h>

/* The type is a narrow one; the arrays do not overlap. */
typedef struct tri_cpu_convert {
    void (*widen)(tri_dtype dtype, const void *narrow, float *wide, int64_t count);
    void (*narrow)(tri_dtype dtype, const float *wide, void *narrow, int64_t count);
    /* The same for copies of weights, which have 16 bits. */
    void (*copy)(tri_dtype dtype, const float *wide, void *narrow, int64_t count);
} tri_cpu_convert;

const tri_cpu_convert *tri_cpu_convert_for(tri_isa isa);

#endif
