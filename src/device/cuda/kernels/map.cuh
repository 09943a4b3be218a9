/* Operators that look at one element at a time, over up to three inputs and two outputs.
 *
 * A functor gets the elements of the inputs in f32 and gives those of the outputs. A thread loads
 * all its packs before it stores any: enough loads are under way to fill the memory's pipe, and an
 * output may lie on any input. */
#ifndef TRI_DEVICE_CUDA_KERNELS_MAP_CUH
#define TRI_DEVICE_CUDA_KERNELS_MAP_CUH

#include "device/cuda/kernels/early.cuh"

namespace tri
{

constexpr int MAP_THREADS = 256;
constexpr int MAP_PACKS = 2; /* of a thread */

template <typename A, typename B, typename C, typename O> struct map_operands {
    const A *a;
    const B *b;
    const C *c;
    O *out[2];
    int64_t count;
    bool aligned; /* all of them, to 16 bytes */
};

/* The packs of one thread. `made` is told each element that is stored, and of which output. */
template <int N, int NUM_IN, int NUM_OUT, typename A, typename B, typename C, typename O,
          typename F, typename M>
__device__ __forceinline__ void map_packs(F f, const map_operands<A, B, C, O> &p, int64_t first,
                                          M made)
{
    constexpr int64_t STEP = (int64_t)MAP_THREADS * N;
    if (p.aligned && first + (MAP_PACKS - 1) * STEP + N <= p.count) {
        pack<A, N> a[MAP_PACKS];
        pack<B, N> b[MAP_PACKS];
        pack<C, N> c[MAP_PACKS];
#pragma unroll
        for (int u = 0; u < MAP_PACKS; u++) {
            a[u] = load_pack<N>(p.a + first + u * STEP);
            if (NUM_IN > 1)
                b[u] = load_pack<N>(p.b + first + u * STEP);
            if (NUM_IN > 2)
                c[u] = load_pack<N>(p.c + first + u * STEP);
        }
#pragma unroll
        for (int u = 0; u < MAP_PACKS; u++) {
            pack<O, N> out[2];
#pragma unroll
            for (int k = 0; k < N; k++) {
                float result[2];
                f(widen(a[u].at[k]), NUM_IN > 1 ? widen(b[u].at[k]) : 0.0f,
                  NUM_IN > 2 ? widen(c[u].at[k]) : 0.0f, result);
#pragma unroll
                for (int o = 0; o < NUM_OUT; o++) {
                    out[o].at[k] = narrow<O>(result[o]);
                    made(o, out[o].at[k]);
                }
            }
#pragma unroll
            for (int o = 0; o < NUM_OUT; o++)
                store_pack<N>(p.out[o] + first + u * STEP, out[o]);
        }
        return;
    }
    for (int u = 0; u < MAP_PACKS; u++)
        for (int64_t i = first + u * STEP; i < first + u * STEP + N && i < p.count; i++) {
            float result[2];
            f(widen(p.a[i]), NUM_IN > 1 ? widen(p.b[i]) : 0.0f, NUM_IN > 2 ? widen(p.c[i]) : 0.0f,
              result);
#pragma unroll
            for (int o = 0; o < NUM_OUT; o++) {
                O rounded = narrow<O>(result[o]);
                p.out[o][i] = rounded;
                made(o, rounded);
            }
        }
}

template <int N, int NUM_IN, int NUM_OUT, typename A, typename B, typename C, typename O,
          typename F>
__global__ void __launch_bounds__(MAP_THREADS) map_kernel(F f, map_operands<A, B, C, O> p)
{
    int64_t first = ((int64_t)blockIdx.x * MAP_PACKS * MAP_THREADS + threadIdx.x) * N;
    await_previous();
    map_packs<N, NUM_IN, NUM_OUT>(f, p, first, [](int, O) {});
}

template <int NUM_OUT, typename A, typename B, typename C, typename O>
inline map_operands<A, B, C, O> operands_of_map(const tri_kernel_args *args, const void *a,
                                                const void *b, const void *c)
{
    map_operands<A, B, C, O> p = {};
    p.a = (const A *)a;
    p.b = (const B *)b;
    p.c = (const C *)c;
    p.count = args->out[0].count;
    p.aligned = aligned16(a) && aligned16(b) && aligned16(c);
    for (int o = 0; o < NUM_OUT; o++) {
        p.out[o] = data_of<O>(args->out[o]);
        p.aligned = p.aligned && aligned16(p.out[o]);
    }
    return p;
}

template <int NUM_IN, int NUM_OUT, typename A, typename B, typename C, typename O, typename F>
inline void map(const tri_kernel_args *args, F f, const void *a, const void *b, const void *c)
{
    constexpr int N = pack_size<A, B, C, O>();
    map_operands<A, B, C, O> p = operands_of_map<NUM_OUT, A, B, C, O>(args, a, b, c);
    if (p.count == 0)
        return;
    unsigned blocks = (unsigned)ceil_div(p.count, (int64_t)MAP_THREADS * MAP_PACKS * N);
    launch_early(args, map_kernel<N, NUM_IN, NUM_OUT, A, B, C, O, F>, blocks, MAP_THREADS, 0, f, p);
}

/* All operands of one type. */
template <int NUM_IN, int NUM_OUT, typename F>
inline void map_same(const tri_kernel_args *args, F f)
{
    for (int i = 1; i < NUM_IN; i++)
        assert(args->in[i].dtype == args->in[0].dtype);
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        map<NUM_IN, NUM_OUT, T, T, T, T>(args, f, args->in[0].data,
                                         NUM_IN > 1 ? args->in[1].data : nullptr,
                                         NUM_IN > 2 ? args->in[2].data : nullptr);
    });
}

} // namespace tri

#endif
