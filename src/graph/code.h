/* Codes: types in which a state may rest, whose elements mean something in blocks alone.
 *
 * A tensor in a code is whole blocks, the first where the tensor begins: this rank's piece of it
 * where it is cut, and its slice where ZeRO divides it, whose unit is then the block. Memory that
 * is all zeros is a tensor of zeros. Kernels read and write blocks (base/block8.h); files hold f32.
 */
#ifndef TRI_GRAPH_CODE_H
#define TRI_GRAPH_CODE_H

#include "graph/dtype.h"

typedef struct tri_code {
    tri_dtype dtype;
    int64_t block;      /* elements */
    size_t block_bytes; /* with the scale */
    /* One block of `count` elements, fewer at the end of a tensor: then the others are zeros.
     * Encoding what was decoded gives the same bytes. */
    void (*encode)(const float *from, int64_t count, void *to);
    void (*decode)(const void *from, int64_t count, float *to);
} tri_code;

/* NULL for a type whose elements stand for themselves. */
const tri_code *tri_dtype_code(tri_dtype dtype);

#endif
