/* The safetensors file format, read and written.
 *
 *     8 bytes   length of the header, little-endian
 *     header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
 *               "__metadata__": {"key": "value", ...}}, padded with spaces
 *     data      the tensors' bytes, little-endian; offsets count from here
 *
 * Files come from anywhere, so the reader believes nothing: after a successful open the invariants
 * below hold, and no byte outside the file can be reached through a tri_safetensor.
 *   1. Names are unique; dims are >= 0 and their product fits in an int64_t.
 *   2. num_bytes agrees with dtype and dims, and lies within the file.
 *   3. The tensors cover the data without overlap and without a hole. */
#ifndef TRI_CKPT_SAFETENSORS_H
#define TRI_CKPT_SAFETENSORS_H

#include "base/error.h"
#include "graph/dtype.h"

enum { TRI_SAFETENSORS_MAX_DIMS = 8 };

typedef struct tri_safetensor {
    const char *name;
    const char *dtype_text; /* as the format spells it: "F32", "BF16", ... */
    tri_dtype dtype;        /* TRI_NUM_DTYPES for a type of the format that Trireme has not */
    int num_dims;           /* 0 for a single number */
    int64_t dim[TRI_SAFETENSORS_MAX_DIMS];
    const void *data; /* aligned to its elements only if whoever wrote the file cared: use memcpy */
    size_t num_bytes;
} tri_safetensor;

typedef struct tri_safetensors tri_safetensors;

/* Maps the file. What is handed out points into the mapping and lives until close. */
tr_status tri_safetensors_open(const char *path, tri_safetensors **file, tr_error *err);
/* The same over bytes that the caller keeps alive; label stands for the file's name in messages. */
tr_status tri_safetensors_parse(const void *data, size_t num_bytes, const char *label,
                                tri_safetensors **file, tr_error *err);
void tri_safetensors_close(tri_safetensors *file);

size_t tri_safetensors_num(const tri_safetensors *file);
/* In the order of their bytes in the file; i < num. */
const tri_safetensor *tri_safetensors_at(const tri_safetensors *file, size_t i);
/* NULL when there is none of that name. */
const tri_safetensor *tri_safetensors_find(const tri_safetensors *file, const char *name);
/* As find, but a missing tensor or one of a type that Trireme has not is an error. */
tr_status tri_safetensors_get(const tri_safetensors *file, const char *name,
                              const tri_safetensor **tensor, tr_error *err);
/* A value of __metadata__, or NULL. */
const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key);

typedef struct tri_safetensors_item {
    const char *name;
    tri_dtype dtype;
    int num_dims;
    const int64_t *dim;
    const void *data;
} tri_safetensors_item;

typedef struct tri_safetensors_meta {
    const char *key;
    const char *value;
} tri_safetensors_meta;

/* Replaces the file whole or leaves it as it was. The tensors go straight from the caller's memory
 * to the file, widest elements first so that all of them are aligned, else in the order given. The
 * same input gives the same bytes. */
tr_status tri_safetensors_write(const char *path, const tri_safetensors_item *item,
                                size_t num_items, const tri_safetensors_meta *meta, size_t num_meta,
                                tr_error *err);

/* What such a file begins with, on the heap, for those who write the data themselves: in the order
 * given, when all elements are of one width. Items need no data. */
tr_status tri_safetensors_header(const char *label, const tri_safetensors_item *item,
                                 size_t num_items, const tri_safetensors_meta *meta,
                                 size_t num_meta, char **header, size_t *num_bytes, tr_error *err);

#endif
