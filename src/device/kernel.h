/* How a kernel is called. A device is a table of these, keyed by operator. */
#ifndef TRI_DEVICE_KERNEL_H
#define TRI_DEVICE_KERNEL_H

#include "graph/op.h"
#include "graph/step_rows.h"

/* One operand. Dense, row-major. origin and global place a shard in its logical tensor: for what
 * depends on where an element is (dropout, vocabulary shards). On one rank origin is 0 and global
 * equals size. */
typedef struct tri_tensor {
    void *data;
    tri_dtype dtype;
    int rank;
    int64_t size[TRI_MAX_RANK];
    int64_t origin[TRI_MAX_RANK];
    int64_t global[TRI_MAX_RANK];
    int64_t count; /* product of size */
} tri_tensor;

typedef struct tri_kernel_args {
    const tri_attr *attr;
    int num_in, num_out;
    tri_tensor in[TRI_MAX_IN]; /* an absent one, also beyond num_in: data NULL and count 0 */
    tri_tensor out[TRI_MAX_OUT];
    bool overwrite; /* for outputs that accumulate: true on the first contribution of a step */
    uint64_t seed;  /* key of the random streams */
    void *device;   /* the device's own state (tri_cpu for kernels of the CPU) */
} tri_kernel_args;

/* The loss scale in the optional input j (a scaler), for kernels in the host's memory. */
static inline float tri_kernel_scale(const tri_kernel_args *args, int j)
{
    const float *scaler = args->num_in > j ? (const float *)args->in[j].data : NULL;
    return scaler ? scaler[TRI_SCALER_SCALE] : 1;
}

/* The factor of a product whose operands may have scales, likewise. */
static inline float tri_kernel_alpha(const tri_kernel_args *args)
{
    double alpha = args->attr->matmul.alpha;
    for (int j = 3; j < args->num_in; j++)
        alpha *= *(const float *)args->in[j].data;
    return (float)alpha;
}

/* Elements of a row of an RMS norm, and of its gradients. */
static inline int64_t tri_norm_width(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    int64_t width = x->size[x->rank - 1];
    for (int d = 2; d <= args->attr->norm.dims; d++)
        width *= x->size[x->rank - d];
    return width;
}

typedef struct tri_kernel {
    void (*run)(const tri_kernel_args *args);
    /* Bytes of scratch that run needs for operands of these sizes (their data is NULL here), or
     * NULL for none. It becomes part of the memory plan: kernels allocate nothing. */
    size_t (*scratch_bytes)(const tri_kernel_args *args, int num_threads);
    /* Optional: the same as calling run for each of these in order. A device that pays for every
     * launch does many small ones in one. */
    void (*run_many)(const tri_kernel_args *const *args, int count);
} tri_kernel;

#endif
