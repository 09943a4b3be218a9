/* Operators that look at one element at a time, as in map.cuh, and find the largest of what they make
 * on the way: part p of the results is block p's (TRI_AMAX_RUN), and nobody reads them again for it.
 *
 * A block begins with its last run, so that the first ones are in the cache when it is done: there
 * whoever reads the results next begins. */
#ifndef TRI_DEVICE_CUDA_MAP_AMAX_CUH
#define TRI_DEVICE_CUDA_MAP_AMAX_CUH

#include "device/cuda/map.cuh"

namespace tri
{

constexpr int AMAX_THREADS = 512, AMAX_AHEAD = 4;

/* Runs of a part; negative ones are empty. */
__device__ __forceinline__ int64_t amax_runs(int64_t count, int part)
{
    int64_t first = (int64_t)part * TRI_AMAX_RUN;
    constexpr int64_t stride = (int64_t)TRI_AMAX_PARTS * TRI_AMAX_RUN;
    return count > first ? (count - first + stride - 1) / stride : 0;
}

/* Of a block of AMAX_THREADS, to out. */
__device__ __forceinline__ void store_amax(float largest, float *out)
{
    __shared__ float of_warp[AMAX_THREADS / 32];
    largest = warp_max(largest);
    __syncthreads(); /* it may have been used before */
    if ((threadIdx.x & 31) == 0)
        of_warp[threadIdx.x >> 5] = largest;
    __syncthreads();
    if (threadIdx.x < 32) {
        largest = warp_max(threadIdx.x < AMAX_THREADS / 32 ? of_warp[threadIdx.x] : 0);
        if (threadIdx.x == 0)
            *out = largest;
    }
}

template <int N, int NUM_IN, int NUM_OUT, typename T, typename F>
__global__ void __launch_bounds__(AMAX_THREADS)
    map_amax_kernel(F f, map_operands<T, T, T, T> p, float *amax0, float *amax1)
{
    constexpr int64_t STRIDE = (int64_t)TRI_AMAX_PARTS * TRI_AMAX_RUN;
    constexpr int PACKS = TRI_AMAX_RUN / (AMAX_THREADS * N), AHEAD = 2;
    float largest[2] = {0, 0};
    int64_t first = (int64_t)blockIdx.x * TRI_AMAX_RUN + threadIdx.x * N;
    for (int64_t r = amax_runs(p.count, blockIdx.x) - 1; r >= 0; r -= AHEAD) {
        pack<T, N> a[AHEAD][PACKS], b[AHEAD][PACKS], c[AHEAD][PACKS];
#pragma unroll
        for (int u = 0; u < AHEAD * PACKS; u++) {
            int64_t i = first + (r - u / PACKS) * STRIDE + (u % PACKS) * AMAX_THREADS * N;
            if (!p.aligned || i < 0 || i + N > p.count)
                continue;
            a[u / PACKS][u % PACKS] = load_pack<N>(p.a + i);
            if (NUM_IN > 1)
                b[u / PACKS][u % PACKS] = load_pack<N>(p.b + i);
            if (NUM_IN > 2)
                c[u / PACKS][u % PACKS] = load_pack<N>(p.c + i);
        }
#pragma unroll
        for (int u = 0; u < AHEAD * PACKS; u++) {
            int64_t i = first + (r - u / PACKS) * STRIDE + (u % PACKS) * AMAX_THREADS * N;
            if (i < 0)
                continue;
            if (p.aligned && i + N <= p.count) {
                pack<T, N> out[2];
#pragma unroll
                for (int k = 0; k < N; k++) {
                    float result[2];
                    f(widen(a[u / PACKS][u % PACKS].at[k]),
                      NUM_IN > 1 ? widen(b[u / PACKS][u % PACKS].at[k]) : 0.0f,
                      NUM_IN > 2 ? widen(c[u / PACKS][u % PACKS].at[k]) : 0.0f, result);
#pragma unroll
                    for (int o = 0; o < NUM_OUT; o++) {
                        out[o].at[k] = narrow<T>(result[o]);
                        largest[o] = fmaxf(largest[o], fabsf(widen(out[o].at[k])));
                    }
                }
#pragma unroll
                for (int o = 0; o < NUM_OUT; o++)
                    store_pack<N>(p.out[o] + i, out[o]);
                continue;
            }
            for (int64_t e = i; e < i + N && e < p.count; e++) {
                float result[2];
                f(widen(p.a[e]), NUM_IN > 1 ? widen(p.b[e]) : 0.0f,
                  NUM_IN > 2 ? widen(p.c[e]) : 0.0f, result);
                for (int o = 0; o < NUM_OUT; o++) {
                    p.out[o][e] = narrow<T>(result[o]);
                    largest[o] = fmaxf(largest[o], fabsf(widen(narrow<T>(result[o]))));
                }
            }
        }
    }
    store_amax(largest[0], amax0 + blockIdx.x);
    if (NUM_OUT > 1)
        store_amax(largest[1], amax1 + blockIdx.x);
}

/* All operands of one type; the largest go to the outputs behind the results. */
template <int NUM_IN, int NUM_OUT, typename F>
inline void map_amax(const tri_kernel_args *args, F f)
{
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        map_operands<T, T, T, T> p = {};
        p.a = data_of<T>(args->in[0]);
        p.b = NUM_IN > 1 ? data_of<T>(args->in[1]) : nullptr;
        p.c = NUM_IN > 2 ? data_of<T>(args->in[2]) : nullptr;
        p.count = args->out[0].count;
        p.aligned = aligned16(p.a) && aligned16(p.b) && aligned16(p.c);
        for (int o = 0; o < NUM_OUT; o++) {
            p.out[o] = data_of<T>(args->out[o]);
            p.aligned = p.aligned && aligned16(p.out[o]);
        }
        map_amax_kernel<N, NUM_IN, NUM_OUT, T>
            <<<TRI_AMAX_PARTS, AMAX_THREADS, 0, stream_of(args)>>>(
                f, p, data_of<float>(args->out[NUM_OUT]),
                NUM_OUT > 1 ? data_of<float>(args->out[NUM_OUT + 1]) : nullptr);
    });
}

} // namespace tri

#endif
