/* What the backward of attention needs of every query: delta = do . o, and lse in units of log2. */
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
    bool exists = at < (int64_t)a.num_batch * a.heads * a.num_pos;
    float sum = 0;
    if (exists) {
        int64_t row = quotient(at, a.num_pos); /* batch row and head */
        int64_t start = tri_o_start(a, (int)row / a.heads, (int)row % a.heads) +
                        (at - row * a.num_pos) * a.o_step;
        const T *dout = (const T *)a.dout + start, *o = (const T *)a.o + start;
        for (int d = (int)threadIdx.x % LANES * N; d < a.width; d += LANES * N) {
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

template <typename T, int LANES, int N>
static void launch(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t rows = (int64_t)a->num_batch * a->heads * a->num_pos;
    tri_attention_launch(stats<T, LANES, N>, ceil_div(rows, THREADS / LANES), THREADS, 0, stream,
                         a);
}

void tri_attention_stats(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream)
{
    by_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (a->width % 8 == 0 && aligned16(a->o) && aligned16(a->dout))
            launch<T, 8, 16 / sizeof(T)>(a, stream);
        else
            launch<T, 32, 1>(a, stream);
    });
}
