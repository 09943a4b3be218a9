/* Dropout and jitter: the mask is a pure function of the element's global index (base/rng.h), so it
 * is the CPU's, and the same however the tensor is divided.
 *
 * Dims that lie whole in the tensor are merged with the one before, so that an index takes as few
 * divisions as the division of the tensor demands: one when only rows are divided. Where tokens
 * have places, their dim is not merged, and its coordinate is looked up. */
#include "base/rng.h"
#include "device/cuda/kernels/common.cuh"

namespace
{

using namespace tri;

constexpr int THREADS = 256;

/* The global index of local element i: offset + rows[b] * row_mult + sum of coordinate[d] *
 * mult[d], all modulo 2^64; dim 0 is the innermost one, and what is left of i past the last is b.
 * The last coordinate is the token's place, where there are any. */
struct places {
    const int32_t *of_tokens; /* [b, token], or NULL */
    int num_dims;
    int64_t size[TRI_MAX_RANK];
    uint64_t mult[TRI_MAX_RANK];
    uint64_t offset, row_mult;
};

struct draw {
    uint64_t seed;
    uint32_t stream, threshold;
    float scale, jitter;

    template <bool JITTER> __device__ __forceinline__ float apply(uint32_t word, float x) const
    {
        if constexpr (JITTER)
            return x * tri_jitter_factor(word, jitter);
        return word >= threshold ? x * scale : 0.0f;
    }
};

places places_of(const tri_tensor &x, const int32_t *of_tokens)
{
    places p = {};
    p.of_tokens = of_tokens;
    uint64_t mult = 1;
    p.num_dims = 1;
    p.size[0] = 1;
    p.mult[0] = 1;
    bool merge = true; /* what is inside of this dim lies whole in the tensor */
    for (int d = x.rank - 1; d >= 1; d--) {
        bool looked_up = of_tokens && d == 1;
        if (merge && !looked_up) {
            p.size[p.num_dims - 1] *= x.size[d];
        } else {
            p.size[p.num_dims] = x.size[d];
            p.mult[p.num_dims++] = mult;
        }
        p.offset += looked_up ? 0 : (uint64_t)x.origin[d] * mult;
        mult *= (uint64_t)x.global[d];
        merge = x.size[d] == x.global[d];
    }
    p.row_mult = mult;
    return p;
}

__device__ __forceinline__ uint64_t global_index(const places &p, const int32_t *rows, int64_t i)
{
    uint64_t g = p.offset;
    for (int d = 0; d < p.num_dims; d++) {
        int64_t next = quotient(i, p.size[d]), at = i - next * p.size[d];
        if (p.of_tokens && d == p.num_dims - 1)
            at = p.of_tokens[i];
        g += (uint64_t)at * p.mult[d];
        i = next;
    }
    return g + (uint64_t)rows[i] * p.row_mult;
}

__device__ __forceinline__ uint32_t pick(const uint32_t *word, unsigned k)
{
    return k == 0 ? word[0] : k == 1 ? word[1] : k == 2 ? word[2] : word[3];
}

/* runs: every pack lies within the innermost dim, and all addresses are multiples of 16 bytes. */
template <bool JITTER, int N, typename T>
__global__ void __launch_bounds__(THREADS)
    dropout_kernel(const T *x, const int32_t *rows, const int32_t *step, T *y, int64_t count,
                   const __grid_constant__ places p, draw d, bool runs)
{
    int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    uint32_t word[4], now = (uint32_t)step[0];
    if (first >= count)
        return;
    if (runs) {
        pack<T, N> v = load_pack<N>(x + first);
        uint64_t g = global_index(p, rows, first);
        if ((g & 3) == 0) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (k % 4 == 0)
                    tri_philox(d.seed, g / 4 + (unsigned)k / 4, now, d.stream, word);
                v.at[k] = narrow<T>(d.apply<JITTER>(word[k % 4], widen(v.at[k])));
            }
        } else {
            tri_philox(d.seed, g / 4, now, d.stream, word);
#pragma unroll
            for (int k = 0; k < N; k++) {
                unsigned at = (unsigned)(g + (unsigned)k) & 3;
                if (k > 0 && at == 0)
                    tri_philox(d.seed, (g + (unsigned)k) / 4, now, d.stream, word);
                v.at[k] = narrow<T>(d.apply<JITTER>(pick(word, at), widen(v.at[k])));
            }
        }
        store_pack<N>(y + first, v);
        return;
    }
    for (int64_t i = first; i < first + N && i < count; i++) {
        uint64_t g = global_index(p, rows, i);
        tri_philox(d.seed, g / 4, now, d.stream, word);
        y[i] = narrow<T>(d.apply<JITTER>(pick(word, (unsigned)g & 3), widen(x[i])));
    }
}

template <bool JITTER> void draw_all(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0];
    if (x.count == 0)
        return;
    places p = places_of(x, data_of<int32_t>(args->in[3]));
    draw d = {args->seed, args->attr->dropout.stream, tri_dropout_threshold(args->attr->dropout.p),
              1.0f / (1.0f - args->attr->dropout.p), args->attr->dropout.p};
    by_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        bool runs = p.size[0] % N == 0 && aligned16(x.data) && aligned16(args->out[0].data);
        unsigned blocks = (unsigned)ceil_div(x.count, (int64_t)THREADS * N);
        dropout_kernel<JITTER, N><<<blocks, THREADS, 0, stream_of(args)>>>(
            data_of<T>(x), data_of<int32_t>(args->in[1]), data_of<int32_t>(args->in[2]),
            data_of<T>(args->out[0]), x.count, p, d, runs);
    });
}

} // namespace

const tri_kernel tri_cuda_dropout = {draw_all<false>, nullptr, nullptr};
const tri_kernel tri_cuda_jitter = {draw_all<true>, nullptr, nullptr};
