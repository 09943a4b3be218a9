/* What the kernels in CUDA share: types, 16-byte accesses, sums in a fixed order, launches.
 *
 * A thread works on a `pack`: up to 16 bytes of neighbours, widened to f32 for the arithmetic. How
 * work is cut into blocks depends on shapes alone, never on the GPU, and so do the bits of every
 * sum. */
#ifndef TRI_DEVICE_CUDA_KERNELS_COMMON_CUH
#define TRI_DEVICE_CUDA_KERNELS_COMMON_CUH

#include "device/cuda/cuda.h"

#include <assert.h>
#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace tri
{

constexpr unsigned WHOLE_WARP = 0xffffffffu;

/* --- Types ---------------------------------------------------------------------------------- */

__device__ __forceinline__ float widen(float x)
{
    return x;
}

__device__ __forceinline__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

__device__ __forceinline__ float widen(__half x)
{
    return __half2float(x);
}

/* Rounds to the nearest, ties to even. */
template <typename T> __device__ __forceinline__ T narrow(float x);

template <> __device__ __forceinline__ float narrow<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

template <> __device__ __forceinline__ __half narrow<__half>(float x)
{
    return __float2half_rn(x);
}

/* Calls f with a value of the type, which says nothing but its type:
 *     by_type(dtype, [&](auto zero) { using T = decltype(zero); ... }); */
template <typename F> inline void by_type(tri_dtype dtype, F f)
{
    switch (dtype) {
    case TRI_F32:
        f(float{});
        return;
    case TRI_BF16:
        f(__nv_bfloat16{});
        return;
    case TRI_F16:
        f(__half{});
        return;
    default:
        assert(!"an operand of this kernel must be f32, bf16 or f16");
    }
}

/* --- Packs ---------------------------------------------------------------------------------- */

template <typename T, int N> struct alignas(N * sizeof(T)) pack {
    T at[N];
};

/* Elements of a pack that fills 16 bytes in the widest of the types. */
template <typename... T> __host__ __device__ constexpr int pack_size()
{
    size_t widest = 0;
    ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
    return (int)(16 / widest);
}

/* The address is a multiple of the pack's bytes. */
template <int N, typename T> __device__ __forceinline__ pack<T, N> load_pack(const T *from)
{
    return *reinterpret_cast<const pack<T, N> *>(from);
}

template <int N, typename T> __device__ __forceinline__ void store_pack(T *to, pack<T, N> value)
{
    *reinterpret_cast<pack<T, N> *>(to) = value;
}

/* A pack in f32 and back. Two neighbours of 16 bits take half the instructions that they take one
 * by one, which kernels that do a lot with each element feel. */
template <int N, typename T>
__device__ __forceinline__ void widen_pack(const pack<T, N> &from, float *to)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        to[k] = widen(from.at[k]);
}

template <int N>
__device__ __forceinline__ void widen_pairs(const pack<__nv_bfloat16, N> &from, float *to)
{
    const unsigned *pairs = reinterpret_cast<const unsigned *>(&from);
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        to[2 * k] = __uint_as_float(pairs[k] << 16);
        to[2 * k + 1] = __uint_as_float(pairs[k] & 0xffff0000u);
    }
}

template <>
__device__ __forceinline__ void widen_pack(const pack<__nv_bfloat16, 4> &from, float *to)
{
    widen_pairs(from, to);
}

template <>
__device__ __forceinline__ void widen_pack(const pack<__nv_bfloat16, 8> &from, float *to)
{
    widen_pairs(from, to);
}

template <int N, typename T> __device__ __forceinline__ pack<T, N> narrow_pack(const float *from)
{
    pack<T, N> to;
#pragma unroll
    for (int k = 0; k < N; k++)
        to.at[k] = narrow<T>(from[k]);
    return to;
}

template <int N> __device__ __forceinline__ pack<__nv_bfloat16, N> narrow_pairs(const float *from)
{
    pack<__nv_bfloat16, N> to;
    __nv_bfloat162 *pairs = reinterpret_cast<__nv_bfloat162 *>(&to);
#pragma unroll
    for (int k = 0; k < N / 2; k++)
        pairs[k] = __floats2bfloat162_rn(from[2 * k], from[2 * k + 1]);
    return to;
}

template <>
__device__ __forceinline__ pack<__nv_bfloat16, 4> narrow_pack<4, __nv_bfloat16>(const float *from)
{
    return narrow_pairs<4>(from);
}

template <>
__device__ __forceinline__ pack<__nv_bfloat16, 8> narrow_pack<8, __nv_bfloat16>(const float *from)
{
    return narrow_pairs<8>(from);
}

inline bool aligned16(const void *address)
{
    return ((uintptr_t)address & 15) == 0;
}

/* Elements of a row that lie before its first address that is a multiple of 16 bytes. */
template <typename T> __device__ __forceinline__ int64_t elements_to_border(const T *row, int64_t n)
{
    constexpr int N = 16 / (int)sizeof(T);
    int64_t past = (int64_t)((uintptr_t)row / sizeof(T)) & (N - 1);
    int64_t left = (N - past) & (N - 1);
    return left < n ? left : n;
}

/* --- Sums in a fixed order ------------------------------------------------------------------ */

/* Over groups of `width` lanes, a power of two up to 32: every lane of a group gets its result. All
 * lanes of the warp take part. */
template <typename V> __device__ __forceinline__ V lanes_sum(V value, int width)
{
    for (int offset = width / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(WHOLE_WARP, value, offset);
    return value;
}

template <typename V> __device__ __forceinline__ V warp_sum(V value)
{
    return lanes_sum(value, 32);
}

__device__ __forceinline__ float warp_max(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(WHOLE_WARP, value, offset));
    return value;
}

/* Over a block of a whole number of warps, laid out along x; every thread gets the result. `shared`
 * has room for 32 values and can be used again right away. */
template <typename V> __device__ __forceinline__ V block_sum(V value, V *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, num_warps = blockDim.x >> 5;
    value = warp_sum(value);
    if (lane == 0)
        shared[warp] = value;
    __syncthreads();
    V total = warp_sum(lane < num_warps ? shared[lane] : V(0));
    __syncthreads();
    return total;
}

/* --- Launches ------------------------------------------------------------------------------- */

inline tri_cuda *device_of(const tri_kernel_args *args)
{
    return (tri_cuda *)args->device;
}

inline cudaStream_t stream_of(const tri_kernel_args *args)
{
    return (cudaStream_t)device_of(args)->stream;
}

inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

template <typename T> inline T *data_of(const tri_tensor &t)
{
    return (T *)t.data;
}

inline int64_t last_of(const tri_tensor &t)
{
    return t.size[t.rank - 1];
}

/* index modulo n, index / n: in 32 bits where that does, which is several times as fast. */
__device__ __forceinline__ int64_t quotient(int64_t index, int64_t n)
{
    if ((((uint64_t)index | (uint64_t)n) >> 32) == 0)
        return (int64_t)((uint32_t)index / (uint32_t)n);
    return index / n;
}

/* An output that accumulates: the first contribution of a step overwrites. */
template <typename T, typename V>
__device__ __forceinline__ void store_sum(T *out, V value, bool overwrite)
{
    *out = narrow<T>(overwrite ? (float)value : (float)((V)widen(*out) + value));
}

} // namespace tri

#endif
