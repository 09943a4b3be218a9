/* Hopper's copy engine and its barriers, as single instructions.
 *
 * A barrier in shared memory goes through phases, whose parities alternate from 0 on. One ends when
 * as many have arrived as it was made for, and all bytes that it was told of have, too. */
#ifndef TRI_DEVICE_CUDA_EXPERTS_TMA_CUH
#define TRI_DEVICE_CUDA_EXPERTS_TMA_CUH

#include <cuda.h>
#include <stdint.h>

namespace tri
{

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* After all of them are made, before others and the copy engine use them (and a __syncthreads). */
__device__ __forceinline__ void barriers_made()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and tells of bytes that copies will bring. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t parity)
{
    uint32_t passed;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed != 0;
}

/* Until the phase of this parity has ended. What takes half a minute will never end: an error then,
 * which somebody sees, instead of a run that stands still. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    if (barrier_passed(barrier, parity))
        return;
    long long start = clock64();
    while (!barrier_passed(barrier, parity))
        if (clock64() - start > 50ll * 1000 * 1000 * 1000)
            __trap();
}

/* Copies a box of a tensor to shared memory; its bytes arrive at the barrier. By one thread. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int x, int y,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"((uint64_t)map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int x, int y, int z,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"((uint64_t)map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* The registers of a thread of this warpgroup, from here on. */
template <int NUM> __device__ __forceinline__ void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(NUM));
}

template <int NUM> __device__ __forceinline__ void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(NUM));
}

} // namespace tri

#endif
