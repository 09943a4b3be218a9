/* What stands in where cuBLASLt has nothing: products with rows of odd lengths, epilogues that it
 * does not offer for a type or an alignment. Correct for every shape, and not made for speed. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "device/cuda/blas/blas.h"

namespace
{

template <typename T> __device__ float widen(T x)
{
    return (float)x;
}
template <> __device__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <> __device__ float widen(__half x)
{
    return __half2float(x);
}
template <typename T> __device__ T narrow(float x)
{
    return (T)x;
}
template <> __device__ __nv_bfloat16 narrow(float x)
{
    return __float2bfloat16(x);
}
template <> __device__ __half narrow(float x)
{
    return __float2half(x);
}

enum { TILE = 16 };

/* One output element a thread, operands through shared memory. */
template <typename In, typename Out> __global__ void product_kernel(tri_cuda_product p)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    const In *pa = (const In *)p.a, *pb = (const In *)p.b;
    int64_t tiles = (p.n + TILE - 1) / TILE;
    int64_t row = blockIdx.x / tiles * TILE + threadIdx.y;
    int64_t col = blockIdx.x % tiles * TILE + threadIdx.x;
    float sum = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += TILE) {
        int64_t ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] =
            row < p.m && ka < p.k ? widen(p.trans_a ? pa[ka * p.m + row] : pa[row * p.k + ka]) : 0;
        b[threadIdx.y][threadIdx.x] =
            col < p.n && kb < p.k ? widen(p.trans_b ? pb[col * p.k + kb] : pb[kb * p.n + col]) : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        __syncthreads();
    }
    if (row >= p.m || col >= p.n)
        return;
    Out *c = (Out *)p.c + row * p.n + col;
    *c = narrow<Out>(p.alpha * sum + (p.accumulate ? widen(*c) : 0));
}

/* (1 + tanh(u)) / 2 = sigmoid(2u), which takes one exponential. */
__device__ __forceinline__ float gelu_sigmoid(float x)
{
    float u2 = 2 * 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return __fdividef(1.0f, 1.0f + __expf(-fmaxf(u2, -80.0f)));
}

__device__ __forceinline__ float gelu(float x)
{
    return x * gelu_sigmoid(x);
}

__device__ __forceinline__ float gelu_slope(float x)
{
    float s = gelu_sigmoid(x);
    float du2 = 2 * 0.7978845608028654f * (1 + 3 * 0.044715f * x * x);
    return s + x * s * (1 - s) * du2;
}

/* N neighbours of a row a thread and turn. */
template <int N, typename T> __global__ void epilogue_packs(tri_cuda_product p)
{
    struct alignas(N * sizeof(T)) pack {
        T at[N];
    };
    int64_t packs = p.m * p.n / N, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        pack c = ((const pack *)p.c)[i], kept;
        if (p.epilogue == TRI_EPILOGUE_GELU_GRAD) {
            kept = ((const pack *)p.aux)[i];
#pragma unroll
            for (int k = 0; k < N; k++)
                c.at[k] = narrow<T>(widen(c.at[k]) * gelu_slope(widen(kept.at[k])));
        } else {
            pack bias = ((const pack *)p.bias)[i % (p.n / N)];
#pragma unroll
            for (int k = 0; k < N; k++) {
                float x = widen(c.at[k]) + widen(bias.at[k]);
                kept.at[k] = narrow<T>(x);
                c.at[k] = p.epilogue == TRI_EPILOGUE_BIAS_GELU ? narrow<T>(gelu(x)) : kept.at[k];
            }
            if (p.epilogue == TRI_EPILOGUE_BIAS_GELU)
                ((pack *)p.aux)[i] = kept;
        }
        ((pack *)p.c)[i] = c;
    }
}

template <typename T> __global__ void epilogue_kernel(tri_cuda_product p)
{
    T *c = (T *)p.c, *aux = (T *)p.aux;
    const T *bias = (const T *)p.bias;
    int64_t count = p.m * p.n, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        float x = widen(c[i]);
        if (p.epilogue == TRI_EPILOGUE_GELU_GRAD) {
            c[i] = narrow<T>(x * gelu_slope(widen(aux[i])));
            continue;
        }
        x += widen(bias[i % p.n]);
        if (p.epilogue == TRI_EPILOGUE_BIAS_GELU) {
            aux[i] = narrow<T>(x);
            x = gelu(x);
        }
        c[i] = narrow<T>(x);
    }
}

/* Sums of uniform numbers by a hash of the index: near enough to normal ones. */
template <typename T> __global__ void noise_kernel(T *data, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned h = (unsigned)i * 2654435761u;
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            h ^= h >> 16;
            h *= 2246822519u;
            h ^= h >> 13;
            sum += (float)(h >> 8) * (1.0f / 16777216) - 0.5f;
        }
        data[i] = narrow<T>(sum * 1.7f);
    }
}

__global__ void compare_kernel(const uint4 *a, const uint4 *b, size_t packs, const char *tail_a,
                               const char *tail_b, int tail, unsigned *differs)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned any = first < (size_t)tail ? tail_a[first] != tail_b[first] : 0;
    for (size_t i = first; i < packs; i += stride) {
        uint4 x = a[i], y = b[i];
        any |= (x.x ^ y.x) | (x.y ^ y.y) | (x.z ^ y.z) | (x.w ^ y.w);
    }
    if (any)
        *differs = 1; /* whoever writes it writes this */
}

template <typename T> void run_epilogue(tri_cuda *cuda, const tri_cuda_product *p)
{
    constexpr int N = 16 / (int)sizeof(T);
    unsigned blocks = (unsigned)cuda->num_sms * 8;
    cudaStream_t stream = (cudaStream_t)cuda->stream;
    uintptr_t address = (uintptr_t)p->c | (uintptr_t)p->aux | (uintptr_t)p->bias;
    if (p->n % N == 0 && address % 16 == 0)
        epilogue_packs<N, T><<<blocks, 256, 0, stream>>>(*p);
    else
        epilogue_kernel<T><<<blocks, 256, 0, stream>>>(*p);
}

template <typename In> void run_product(tri_cuda *cuda, const tri_cuda_product *p)
{
    int64_t grid = (p->n + TILE - 1) / TILE * ((p->m + TILE - 1) / TILE);
    dim3 block(TILE, TILE);
    cudaStream_t stream = (cudaStream_t)cuda->stream;
    if (p->out == TRI_F32)
        product_kernel<In, float><<<(unsigned)grid, block, 0, stream>>>(*p);
    else
        product_kernel<In, In><<<(unsigned)grid, block, 0, stream>>>(*p);
}

} // namespace

extern "C" void tri_cuda_plain_product(tri_cuda *cuda, const tri_cuda_product *product)
{
    if (tri_dtype_is_float8(product->in)) {
        tri_cuda_plain_product8(cuda, product);
        return;
    }
    if (product->in == TRI_BF16)
        run_product<__nv_bfloat16>(cuda, product);
    else if (product->in == TRI_F16)
        run_product<__half>(cuda, product);
    else
        run_product<float>(cuda, product);
}

extern "C" void tri_cuda_epilogue(tri_cuda *cuda, const tri_cuda_product *product)
{
    if (product->out == TRI_BF16)
        run_epilogue<__nv_bfloat16>(cuda, product);
    else if (product->out == TRI_F16)
        run_epilogue<__half>(cuda, product);
    else
        run_epilogue<float>(cuda, product);
}

extern "C" bool tri_cuda_compare(tri_cuda *cuda, const void *a, const void *b, size_t bytes,
                                 unsigned *differs)
{
    cudaStream_t stream = (cudaStream_t)cuda->stream;
    unsigned *flag = (unsigned *)cuda->scratch;
    size_t packs = bytes / sizeof(uint4), whole = packs * sizeof(uint4);
    return cudaMemsetAsync(flag, 0, sizeof *flag, stream) == cudaSuccess &&
           (compare_kernel<<<1024, 256, 0, stream>>>(
                (const uint4 *)a, (const uint4 *)b, packs, (const char *)a + whole,
                (const char *)b + whole, (int)(bytes - whole), flag),
            cudaMemcpyAsync(differs, flag, sizeof *flag, cudaMemcpyDeviceToHost, stream)) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess;
}

extern "C" void tri_cuda_fill_noise(void *data, int64_t count, tri_dtype dtype, void *stream)
{
    if (dtype == TRI_BF16)
        noise_kernel<<<1024, 256, 0, (cudaStream_t)stream>>>((__nv_bfloat16 *)data, count);
    else if (dtype == TRI_F16)
        noise_kernel<<<1024, 256, 0, (cudaStream_t)stream>>>((__half *)data, count);
    else if (dtype == TRI_F8E4M3)
        noise_kernel<<<1024, 256, 0, (cudaStream_t)stream>>>((__nv_fp8_e4m3 *)data, count);
    else if (dtype == TRI_F8E5M2)
        noise_kernel<<<1024, 256, 0, (cudaStream_t)stream>>>((__nv_fp8_e5m2 *)data, count);
    else
        noise_kernel<<<1024, 256, 0, (cudaStream_t)stream>>>((float *)data, count);
}
