/* What the backward of attention needs of every query: delta = do . o, and lse in units of log2.
 * And what follows from these alone: the gradient of the sinks. */
#include "device/cuda/kernels/attention.cuh"
#include "device/cuda/kernels/common.cuh"

using namespace tri;

enum { THREADS = 256 };

/* LANES threads for each query, N elements at a time to each; queries are counted as in lse. */
template <typename T, int LANES, int N>
static __global__ void __launch_bounds__(THREADS)
    stats(const __grid_constant__ tri_attention_call a)
{
    int64_t at = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    bool exists = at < (int64_t)a.num_batch * a.heads * a.num_queries;
    float sum = 0;
    if (exists) {
        int64_t row = quotient(at, a.num_queries); /* batch row and head */
        int64_t start = tri_start(a.o_lay, (int)row / a.heads, (int)row % a.heads) +
                        (at - row * a.num_queries) * a.o_lay.step;
        const T *dout = (const T *)a.dout + start, *o = (const T *)a.o + start;
        for (int d = (int)threadIdx.x % LANES * N; d < a.v_width; d += LANES * N) {
            pack<T, N> left = load_pack<N>(dout + d), right = load_pack<N>(o + d);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum = fmaf(widen(left.at[i]), widen(right.at[i]), sum);
        }
    }
    sum = lanes_sum(sum, LANES);
    if (exists && threadIdx.x % LANES == 0) {
        float lse = a.lse[at];
        a.delta[at] = sum;
        a.lse2[at] = lse == -INFINITY ? INFINITY : lse * TRI_LOG2_E; /* then p is 0 */
    }
}

/* A block for each head. The sink takes exp(sink - lse) of a row and has no value: that much times
 * 0 - delta is its gradient. */
static __global__ void __launch_bounds__(THREADS)
    sink_grad(const __grid_constant__ tri_attention_call a)
{
    __shared__ double parts[32];
    int h = blockIdx.x;
    float sink = a.sink[h] * TRI_LOG2_E;
    double sum = 0;
    int64_t num = (int64_t)a.num_batch * a.num_queries;
    for (int64_t i = threadIdx.x; i < num; i += THREADS) {
        int64_t b = quotient(i, a.num_queries);
        int64_t at = (b * a.heads + h) * a.num_queries + (i - b * a.num_queries);
        sum += exp2f(sink - a.lse2[at]) * a.delta[at];
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0)
        a.dsink[h] = (float)-sum;
}

template <typename T, int LANES, int N>
static void launch(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t rows = (int64_t)a->num_batch * a->heads * a->num_queries;
    tri_attention_launch(stats<T, LANES, N>, ceil_div(rows, THREADS / LANES), THREADS, 0, stream,
                         a);
}

void tri_attention_stats(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream)
{
    by_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (a->v_width % 8 == 0 && aligned16(a->o) && aligned16(a->dout))
            launch<T, 8, 16 / sizeof(T)>(a, stream);
        else
            launch<T, 32, 1>(a, stream);
    });
    if (a->dsink)
        tri_attention_launch(sink_grad, a->heads, THREADS, 0, stream, a);
}
