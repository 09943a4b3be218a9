/* Lanes of a GPU: streams beside the stream, for messages between GPUs. */
#ifndef TRI_DEVICE_CUDA_LANES_H
#define TRI_DEVICE_CUDA_LANES_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdint.h>

#include "device/cuda/cuda.h"

/* lanes.cu: enqueues a write of a number to mapped memory of the host; a cudaError_t. */
int tri_cuda_note(uint64_t *page, uint64_t number, void *stream);

#ifdef __cplusplus
}
#else

#include "device/device.h"

extern const tri_device_lanes tri_cuda_lane_table;
void tri_cuda_lanes_close(tri_cuda_lanes *lanes); /* NULL is fine */

#endif
#endif
