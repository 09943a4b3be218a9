/* What of CUDA there is on this machine. */
#ifndef TRI_DEVICE_CUDA_FOUND_H
#define TRI_DEVICE_CUDA_FOUND_H

#include "device/device.h"

/* TRI_DEVICE_MOST_FOUND at most; returns how many. */
int tri_cuda_found(tri_device_found *found);
/* GPUs that this process can use; 0 where a library is missing, or one is too old. */
int tri_cuda_count(void);

#endif
