/* Operators that look at one element at a time, as in map.cuh, and find the largest of what they
 * make on the way, so that nobody reads it again for that.
 *
 * A block has a run of TRI_AMAX_RUN elements or half of one, and the largest of it goes to the part
 * of that run by an atomic maximum: of whole numbers, as which floats that are not negative compare
 * alike, and a maximum does not depend on the order. Blocks take the runs from the last to the
 * first, so that the first are in the cache in the end: there whoever reads the results next
 * begins. */
#ifndef TRI_DEVICE_CUDA_KERNELS_MAP_AMAX_CUH
#define TRI_DEVICE_CUDA_KERNELS_MAP_AMAX_CUH

#include "device/cuda/kernels/map.cuh"

namespace tri
{

/* The largest of a block to a part, in memory that began as zeros. */
__device__ __forceinline__ void raise_amax(float largest, float *shared, float *part)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    largest = warp_max(largest);
    if (lane == 0)
        shared[warp] = largest;
    __syncthreads();
    if (warp > 0)
        return;
    largest = warp_max(lane < MAP_THREADS / 32 ? shared[lane] : 0.0f);
    if (lane == 0)
        atomicMax((unsigned *)part, __float_as_uint(largest));
}

template <int N, int NUM_IN, int NUM_OUT, typename T, typename F>
__global__ void __launch_bounds__(MAP_THREADS)
    map_amax_kernel(F f, map_operands<T, T, T, T> p, float *amax0, float *amax1)
{
    constexpr int64_t BLOCK = (int64_t)MAP_PACKS * MAP_THREADS * N;
    static_assert(TRI_AMAX_RUN % BLOCK == 0, "a block is within a run");
    __shared__ float shared[2][MAP_THREADS / 32];
    int64_t begin = (gridDim.x - 1 - (int64_t)blockIdx.x) * BLOCK;
    float largest[2] = {0, 0};
    map_packs<N, NUM_IN, NUM_OUT>(f, p, begin + threadIdx.x * N, [&](int o, T made) {
        largest[o] = fmaxf(largest[o], fabsf(widen(made)));
    });
    int part = (int)(begin / TRI_AMAX_RUN % TRI_AMAX_PARTS);
    raise_amax(largest[0], shared[0], amax0 + part);
    if (NUM_OUT > 1)
        raise_amax(largest[1], shared[1], amax1 + part);
}

/* All operands of one type; the largest go to the outputs behind the results. */
template <int NUM_IN, int NUM_OUT, typename F>
inline void map_amax(const tri_kernel_args *args, F f)
{
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        map_operands<T, T, T, T> p = operands_of_map<NUM_OUT, T, T, T, T>(
            args, args->in[0].data, NUM_IN > 1 ? args->in[1].data : nullptr,
            NUM_IN > 2 ? args->in[2].data : nullptr);
        for (int o = 0; o < NUM_OUT; o++)
            cudaMemsetAsync(args->out[NUM_OUT + o].data, 0, TRI_AMAX_PARTS * sizeof(float),
                            stream_of(args));
        unsigned blocks = (unsigned)ceil_div(p.count, (int64_t)MAP_THREADS * MAP_PACKS * N);
        if (blocks > 0)
            map_amax_kernel<N, NUM_IN, NUM_OUT, T><<<blocks, MAP_THREADS, 0, stream_of(args)>>>(
                f, p, data_of<float>(args->out[NUM_OUT]),
                NUM_OUT > 1 ? data_of<float>(args->out[NUM_OUT + 1]) : nullptr);
    });
}

} // namespace tri

#endif
