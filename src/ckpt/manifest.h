/* manifest.json of a checkpoint: what it holds and where. docs/checkpoints.md describes the format
 * for others; this is its form in memory.
 *
 * A manifest comes from a disk, so nothing in it is believed: after a successful parse the
 * invariants below hold.
 *   1. File names are plain (no slash, no leading dot) and unique.
 *   2. Tensor names are unique; dims are >= 0 and their product fits.
 *   3. A shard lies within its file, and its region within its tensor.
 *   4. Unless it is partial (one rank's report): shards with the same box tile the box, and the
 *      boxes tile the tensor. Every element is in exactly one shard. */
#ifndef TRI_CKPT_MANIFEST_H
#define TRI_CKPT_MANIFEST_H

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "ckpt/region.h"

enum { TRI_CKPT_VERSION = 1 };
#define TRI_CKPT_MANIFEST "manifest.json"

typedef enum tri_ckpt_kind { TRI_CKPT_WEIGHT, TRI_CKPT_MOMENT, TRI_NUM_CKPT_KINDS } tri_ckpt_kind;
const char *tri_ckpt_kind_name(tri_ckpt_kind kind); /* "weight", "moment" */

typedef struct tri_ckpt_file {
    const char *name;
    int64_t bytes;
    int64_t checked_bytes; /* from its beginning: what no shard covers (a header, or all of it) */
    uint64_t checksum;     /* of those */
} tri_ckpt_file;

/* A part of a tensor: fp32 elements in a file. */
typedef struct tri_ckpt_shard {
    uint32_t file;
    int64_t offset; /* of its bytes in the file */
    uint64_t checksum;
    tri_region region;
} tri_ckpt_shard;

typedef struct tri_ckpt_tensor {
    const char *name;
    tri_ckpt_kind kind;
    int num_dims;
    int64_t dim[TRI_REGION_MAX_DIMS];
    size_t first_shard, num_shards;
} tri_ckpt_tensor;

/* What else a run must know to go on: "step", "seed", "skipped" ... Whole numbers up to 2^53 are
 * exact, others are written with 17 digits. */
typedef struct tri_ckpt_number {
    const char *name;
    double value;
} tri_ckpt_number;

typedef struct tri_manifest {
    int64_t step;
    tri_ckpt_number *numbers;
    size_t num_numbers, numbers_capacity;
    tri_ckpt_file *files;
    size_t num_files, files_capacity;
    tri_ckpt_tensor *tensors;
    size_t num_tensors, tensors_capacity;
    tri_ckpt_shard *shards; /* those of a tensor stand together */
    size_t num_shards, shards_capacity;
    tri_arena arena; /* names */
} tri_manifest;

void tri_manifest_init(tri_manifest *manifest);
void tri_manifest_fini(tri_manifest *manifest);

/* Building one. Names are copied. false: no memory. */
bool tri_manifest_add_file(tri_manifest *manifest, const tri_ckpt_file *file);
bool tri_manifest_add_number(tri_manifest *manifest, const char *name, double value);
/* The tensor's shards are those added next. */
bool tri_manifest_add_tensor(tri_manifest *manifest, const char *name, tri_ckpt_kind kind,
                             int num_dims, const int64_t *dim);
bool tri_manifest_add_shard(tri_manifest *manifest, const tri_ckpt_shard *shard);

/* One of many reports of ranks, made whole. Shards that two ranks report alike count once. */
tr_status tri_manifest_merge(tri_manifest *whole, const tri_manifest *const *parts,
                             size_t num_parts, tr_error *err);

/* As text, checksum included. */
void tri_manifest_print(const tri_manifest *manifest, tri_text *text);
/* label stands for the file in messages. Damaged (TR_ERROR_DAMAGED) is one whose checksum does not
 * fit; one that fits and makes no sense is wrong input, as is one of a newer version; one that
 * cannot be read is a failure while running. */
tr_status tri_manifest_parse(const char *text, size_t num_bytes, const char *label, bool partial,
                             tri_manifest *manifest, tr_error *err);
tr_status tri_manifest_read(const char *path, bool partial, tri_manifest *manifest, tr_error *err);
/* Invariant 4. */
tr_status tri_manifest_check_tiling(const tri_manifest *manifest, const char *label, tr_error *err);

/* NULL when there is none. */
const tri_ckpt_tensor *tri_manifest_find(const tri_manifest *manifest, const char *name);
/* The number of that name, or `otherwise`. */
double tri_manifest_number(const tri_manifest *manifest, const char *name, double otherwise);

#endif
