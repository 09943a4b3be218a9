/* What the reader and the writer of safetensors share: the limits and the types of the format. */
#ifndef TRI_CKPT_SAFETENSORS_FORMAT_H
#define TRI_CKPT_SAFETENSORS_FORMAT_H

#include "ckpt/safetensors.h"

enum {
    TRI_SAFETENSORS_LENGTH_BYTES = 8,
    /* The limit of the format's own library. It keeps a damaged length from costing memory. */
    TRI_SAFETENSORS_MAX_HEADER = 100 * 1000 * 1000,
    TRI_SAFETENSORS_ALIGNMENT = 8
};

#define TRI_SAFETENSORS_METADATA "__metadata__"

/* Every type of the format. Those without a tri_dtype can be listed and skipped, not loaded: a
 * checkpoint with a stray F64 table is still a good checkpoint for the rest. */
typedef struct tri_safetensors_dtype {
    const char *text;
    int bits;
    tri_dtype dtype;
} tri_safetensors_dtype;

/* By the text of the header, and by ours; NULL: there is none. */
const tri_safetensors_dtype *tri_safetensors_dtype_named(const char *text);
const tri_safetensors_dtype *tri_safetensors_dtype_of(tri_dtype dtype);

/* The bytes of a tensor; false when the product overflows or is not a whole number of bytes. */
bool tri_safetensors_bytes(const tri_safetensors_dtype *type, int num_dims, const int64_t *dim,
                           int64_t *bytes);

#endif
