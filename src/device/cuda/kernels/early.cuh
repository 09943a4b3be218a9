/* Kernels that are launched before the one in front of them has ended.
 *
 * A launch takes about a microsecond after the last block of the kernel before it, and a step has
 * hundreds of them. A kernel of these is made ready meanwhile: its blocks start as soon as those
 * before it leave room, set up what depends on nothing, and wait. The recording of a step keeps
 * this as an edge of its own kind.
 *
 * Two rules make it safe. Every kernel that is launched early calls await_previous() before it
 * touches memory that others write or read; and since it does so in all its blocks, the end of a
 * kernel still means the end of all before it. GPUs before sm_90 launch as ever. */
#ifndef TRI_DEVICE_CUDA_KERNELS_EARLY_CUH
#define TRI_DEVICE_CUDA_KERNELS_EARLY_CUH

#include "device/cuda/kernels/common.cuh"

namespace tri
{

/* Until the kernels before this one have ended and their stores can be seen. */
__device__ __forceinline__ void await_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel may start its blocks, as far as there is room; it still waits for all of this. */
__device__ __forceinline__ void release_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* With messages on streams beside this one, what is before a kernel is not one kernel alone. */
inline bool can_launch_early(const tri_cuda *cuda)
{
    int device = 0, major = 0;
    return !cuda->lanes && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
}

/* As kernel<<<blocks, threads, shared_bytes, stream_of(call)>>>(args...). */
template <typename... P, typename... A>
inline void launch_early(const tri_kernel_args *call, void (*kernel)(P...), dim3 blocks,
                         dim3 threads, size_t shared_bytes, A &&...args)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_of(call);
    config.attrs = &early;
    config.numAttrs = can_launch_early(device_of(call)) ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

} // namespace tri

#endif
