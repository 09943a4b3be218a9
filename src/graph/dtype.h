/* Element types. */
#ifndef TRI_GRAPH_DTYPE_H
#define TRI_GRAPH_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tri_dtype {
    TRI_F32,
    TRI_BF16,
    TRI_F16,
    TRI_I32,
    TRI_I64,
    TRI_U8,
    TRI_F8E4M3, /* operands of products: base/float8.h */
    TRI_F8E5M2,
    TRI_Q8S, /* codes in blocks with a scale, with a sign and without: graph/code.h */
    TRI_Q8U,
    TRI_NUM_DTYPES
} tri_dtype;

const char *tri_dtype_name(tri_dtype dtype); /* "f32", "bf16", ... */
size_t tri_dtype_bytes(tri_dtype dtype);     /* of an element; 0 of a code */
/* Of so many elements in a row. */
uint64_t tri_dtype_size(tri_dtype dtype, int64_t count);
bool tri_dtype_is_float(tri_dtype dtype);
bool tri_dtype_is_float8(tri_dtype dtype);

#endif
