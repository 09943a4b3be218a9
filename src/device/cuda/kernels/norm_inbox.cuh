/* Tiles of rows on their way into shared memory, for the backward of a norm (norm_grads.cu). */
#ifndef TRI_DEVICE_CUDA_KERNELS_NORM_INBOX_CUH
#define TRI_DEVICE_CUDA_KERNELS_NORM_INBOX_CUH

#include "device/cuda/kernels/common.cuh"

namespace tri
{

constexpr int NORM_STAGES = 2; /* tiles that are here or under way */

template <typename T> struct norm_grads_operands {
    const T *dy, *x;
    const float *gain, *stats;
    const T *dsum; /* or NULL */
    T *dx;
    float *partial; /* [output][chunk][dim] */
    int64_t rows;
    int dim;
    float share; /* 1 / dim */
};

__device__ __forceinline__ unsigned shared_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

/* Where tiles come in: [stage][dy, x, dsum][rows][dim], and a barrier for each stage that opens
 * when all of it has arrived. GPUs before sm_90 have no such engine: all threads fetch. */
template <int R, typename T> struct norm_inbox {
    T *tiles;
    uint64_t *arrived;

    __device__ __forceinline__ T *part(const norm_grads_operands<T> &p, int stage, int which) const
    {
        return tiles + (stage * 3 + which) * R * p.dim;
    }

    __device__ __forceinline__ void open() const
    {
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x == 0) {
            for (int s = 0; s < NORM_STAGES; s++)
                asm volatile(
                    "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived + s)));
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
#endif
        __syncthreads();
    }

    /* The rows from `row` on; none when that is past the end. */
    __device__ __forceinline__ void fetch(const norm_grads_operands<T> &p, int stage,
                                          int64_t row) const
    {
        int64_t left = p.rows - row;
        if (left <= 0)
            return;
        unsigned bytes = (unsigned)((left < R ? (int)left : R) * p.dim * (int)sizeof(T));
        const T *from[3] = {p.dy, p.x, p.dsum};
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x != 0)
            return;
        unsigned barrier = shared_address(arrived + stage);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                     "r"(bytes * (p.dsum ? 3 : 2))
                     : "memory");
#pragma unroll
        for (int i = 0; i < 3; i++)
            if (i < 2 || p.dsum)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                             "[%0], [%1], %2, [%3];" ::"r"(shared_address(part(p, stage, i))),
                             "l"(from[i] + row * p.dim), "r"(bytes), "r"(barrier)
                             : "memory");
#else
        for (int i = 0; i < 3 && (i < 2 || p.dsum); i++)
            for (unsigned at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                                 shared_address(part(p, stage, i)) + at),
                             "l"((const char *)(from[i] + row * p.dim) + at)
                             : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    }

    /* Until the tile of a stage is here; phase: how often the stage was used before, modulo 2. */
    __device__ __forceinline__ void await(int stage, unsigned phase) const
    {
#if __CUDA_ARCH__ >= 900
        unsigned done = 0;
        while (!done)
            asm volatile("{\n.reg .pred ready;\n"
                         "mbarrier.try_wait.parity.shared::cta.b64 ready, [%1], %2;\n"
                         "selp.u32 %0, 1, 0, ready;\n}"
                         : "=r"(done)
                         : "r"(shared_address(arrived + stage)), "r"(phase)
                         : "memory");
#else
        (void)stage;
        (void)phase;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
#endif
    }
};

} // namespace tri

#endif
