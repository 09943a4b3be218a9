/* Sums of device memory, for comparing what ranks hold copies of, and what instructions make. */
#ifndef TRI_DEVICE_CUDA_SUM_H
#define TRI_DEVICE_CUDA_SUM_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stddef.h>
#include <stdint.h>

/* sum.cu: enqueues it; parts are memory of the host that the device reaches. A cudaError_t. */
int tri_cuda_sum(const void *from, size_t bytes, uint64_t *parts, int num_parts, void *stream);
/* Enqueue what add_sum and clear of tri_device_queue are to do. A cudaError_t. */
int tri_cuda_clear(void *memory, size_t bytes, void *stream);
int tri_cuda_add_sum(const void *from, size_t bytes, uint64_t first, uint64_t *to, void *stream);

#ifdef __cplusplus
}
#endif
#endif
