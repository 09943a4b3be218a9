/* The sum of something over all elements, in double, in two stages and in a fixed order: a block's
 * sums go to scratch, and whoever wants the total adds them up with total_of. */
#ifndef TRI_DEVICE_CUDA_KERNELS_TOTAL_CUH
#define TRI_DEVICE_CUDA_KERNELS_TOTAL_CUH

#include "device/cuda/kernels/common.cuh"

namespace tri
{

constexpr int TOTAL_THREADS = 256;
constexpr int LOSS_PARTS = 2 + TRI_MAX_HEAD_STATS; /* of cross-entropy: loss, count, statistics */
constexpr int TOTAL_BLOCKS = 1024; /* at most: a wave on a large GPU, whatever the GPU is */

/* Called by all threads of a block of whole warps. `shared` has room for 32. */
__device__ __forceinline__ double total_of(const double *partial, int num, double *shared)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < num; i += (int)blockDim.x)
        sum += partial[i];
    return block_sum(sum, shared);
}

} // namespace tri

#endif
