/* Attention over two ranges of keys becomes attention over both: each output counts with its share
 * of the sum of exponentials, which its lse tells. In f32. */
#include "device/cuda/kernels/common.cuh"

#include <math.h>

using namespace tri;

enum { THREADS = 256 };

struct merge_operands {
    const void *o1, *o2;
    const float *lse1, *lse2;
    void *o;
    float *lse;
    int64_t num_pos, heads, width, count; /* count: of elements of o, [B, T, H, V] */
};

struct shares {
    float first, second, lse;
};

/* One that saw nothing leaves the other as it is. */
static __device__ __forceinline__ shares shares_of(float lse1, float lse2)
{
    if (lse2 == -INFINITY)
        return {lse1 == -INFINITY ? 0.0f : 1.0f, 0, lse1};
    if (lse1 == -INFINITY)
        return {0, 1, lse2};
    float top = fmaxf(lse1, lse2), first = expf(lse1 - top), second = expf(lse2 - top);
    float sum = first + second;
    return {first / sum, second / sum, top + logf(sum)};
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) merge(const __grid_constant__ merge_operands c)
{
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (at >= c.count)
        return;
    int64_t row = quotient(at, c.width), pos = quotient(row, c.heads); /* b T + t */
    int64_t b = quotient(pos, c.num_pos), h = row - pos * c.heads, t = pos - b * c.num_pos;
    int64_t stat = (b * c.heads + h) * c.num_pos + t;
    shares part = shares_of(c.lse1[stat], c.lse2[stat]);
    pack<T, N> left = load_pack<N>((const T *)c.o1 + at);
    pack<T, N> right = load_pack<N>((const T *)c.o2 + at), to;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float x = widen(left.at[i]), y = widen(right.at[i]);
        float both = part.second == 0  ? part.first * x
                     : part.first == 0 ? part.second * y
                                       : fmaf(part.first, x, part.second * y);
        to.at[i] = narrow<T>(both);
    }
    store_pack((T *)c.o + at, to);
    if (at == row * c.width)
        c.lse[stat] = part.lse;
}

template <typename T, int N> static void launch(const merge_operands &c, cudaStream_t stream)
{
    int64_t blocks = ceil_div(c.count / N, THREADS);
    merge<T, N><<<(unsigned)blocks, THREADS, 0, stream>>>(c);
}

static void attention_merge(const tri_kernel_args *args)
{
    const tri_tensor *o = &args->out[0];
    merge_operands c = {args->in[0].data,
                        args->in[2].data,
                        data_of<float>(args->in[1]),
                        data_of<float>(args->in[3]),
                        o->data,
                        data_of<float>(args->out[1]),
                        o->size[1],
                        o->size[2],
                        o->size[3],
                        o->count};
    if (c.count == 0)
        return;
    by_type(o->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        if (c.width % N == 0 && aligned16(c.o1) && aligned16(c.o2) && aligned16(c.o))
            launch<T, N>(c, stream_of(args));
        else
            launch<T, 1>(c, stream_of(args));
    });
}

const tri_kernel tri_cuda_attention_merge = {attention_merge, nullptr, nullptr};
