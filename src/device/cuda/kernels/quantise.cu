/* 8-bit operands of products: the largest element of a tensor, and its rounding.
 *
 * quantise works on tiles of 128 x 128. A thread holds 8 x 8 of a tile: eight loads of 16 bytes,
 * all under way before the first is used. As it lies a row of them is 8 bytes to store; the
 * transpose is made of 4 x 4 blocks of bytes in registers and passes through shared memory, so that
 * both are written in whole lines of 128 bytes. */
#include "device/cuda/kernels/common.cuh"

#include <cuda_fp8.h>

#include "device/cuda/blas/blas.h"

namespace
{

using namespace tri;

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
    if ((threadIdx.x & 31) == 0)
        of_warp[threadIdx.x >> 5] = largest;
    __syncthreads();
    if (threadIdx.x < 32) {
        largest = warp_max(threadIdx.x < AMAX_THREADS / 32 ? of_warp[threadIdx.x] : 0);
        if (threadIdx.x == 0)
            *out = largest;
    }
}

/* Rows of an expert, which come before those without one. */
__device__ __forceinline__ int64_t rows_of_experts(const int32_t *expert, int64_t rows)
{
    int64_t low = 0, high = rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (expert[middle] >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Block p finds the largest of part p. It begins with the last run, which whoever made the tensor
 * has left in the cache, and so leaves the first ones there for quantise. A NaN is passed over: it
 * stays one when it is rounded. With experts, rows without one are left out. */
template <typename T>
__global__ void __launch_bounds__(AMAX_THREADS)
    amax_kernel(const T *__restrict__ x, int64_t count, const int32_t *__restrict__ expert,
                int64_t rows, float *__restrict__ out)
{
    constexpr int N = pack_size<T>(), PACKS = TRI_AMAX_RUN / (AMAX_THREADS * N);
    constexpr int64_t STRIDE = (int64_t)TRI_AMAX_PARTS * TRI_AMAX_RUN;
    float largest = 0;
    if (expert)
        count = count / rows * rows_of_experts(expert, rows);
    int64_t first = (int64_t)blockIdx.x * TRI_AMAX_RUN;
    for (int64_t r = amax_runs(count, blockIdx.x); r > 0; r -= AMAX_AHEAD) {
        pack<T, N> ahead[AMAX_AHEAD][PACKS];
#pragma unroll
        for (int a = 0; a < AMAX_AHEAD; a++)
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                int64_t i = first + (r - 1 - a) * STRIDE + (k * AMAX_THREADS + threadIdx.x) * N;
                bool whole = i >= 0 && i + N <= count;
                ahead[a][k] = whole ? load_pack<N>(x + i) : pack<T, N>{};
                for (; !whole && i >= 0 && i < count; i++) /* the last few */
                    largest = fmaxf(largest, fabsf(widen(x[i])));
            }
#pragma unroll
        for (int a = 0; a < AMAX_AHEAD; a++)
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                float wide[N];
                widen_pack(ahead[a][k], wide);
#pragma unroll
                for (int e = 0; e < N; e++)
                    largest = fmaxf(largest, fabsf(wide[e]));
            }
    }
    store_amax(largest, out + blockIdx.x);
}

/* As tri_scale8. */
__device__ __forceinline__ float scale_of(float amax, float most)
{
    unsigned bits = __float_as_uint(__fdiv_rn(amax, most));
    return fmaxf(__uint_as_float((bits + 0x7fffffu) & 0x7f800000u), 0x1p-100f);
}

/* Four neighbours as 8-bit numbers, the first in the lowest byte. */
template <__nv_fp8_interpretation_t TYPE>
__device__ __forceinline__ unsigned narrow4(const float *x, float inverse)
{
    unsigned low =
        __nv_cvt_float2_to_fp8x2(make_float2(x[0] * inverse, x[1] * inverse), __NV_SATFINITE, TYPE);
    unsigned high =
        __nv_cvt_float2_to_fp8x2(make_float2(x[2] * inverse, x[3] * inverse), __NV_SATFINITE, TYPE);
    return low | high << 16;
}

/* Rows of four bytes become columns. */
__device__ __forceinline__ void turn4(unsigned &a, unsigned &b, unsigned &c, unsigned &d)
{
    unsigned ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    unsigned cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    a = __byte_perm(ab_low, cd_low, 0x5410);
    b = __byte_perm(ab_low, cd_low, 0x7632);
    c = __byte_perm(ab_high, cd_high, 0x5410);
    d = __byte_perm(ab_high, cd_high, 0x7632);
}

constexpr int TILE = 128, THREADS = 256;

struct quantise_args {
    const void *x;
    const int32_t *index; /* of each row; NULL: they are in order */
    const float *amax;    /* [TRI_AMAX_PARTS] */
    float *scale;
    uint8_t *q, *turned; /* NULL: not wanted */
    float *partial;      /* sums of columns of each row of tiles, with SUMS */
    int64_t rows, cols;  /* multiples of 16 */
};

/* The largest of what amax found; every thread gets it. */
__device__ __forceinline__ float largest_of(const float *amax)
{
    __shared__ float of_warp[THREADS / 32];
    static_assert(TRI_AMAX_PARTS == THREADS, "a thread takes a part");
    float largest = warp_max(amax[threadIdx.x]);
    if ((threadIdx.x & 31) == 0)
        of_warp[threadIdx.x >> 5] = largest;
    __syncthreads();
    return warp_max(of_warp[threadIdx.x & (THREADS / 32 - 1)]);
}

/* 8 rows of 8 columns as 8-bit numbers, and, with SUMS, what they add to the sums of the columns.
 */
template <__nv_fp8_interpretation_t TYPE, bool SUMS, typename T>
__device__ __forceinline__ void narrow_rows(const pack<T, 8> (&from)[8], float inverse,
                                            float (&sum)[8], uint2 (&q)[8])
{
#pragma unroll
    for (int r = 0; r < 8; r++) {
        float wide[8];
        widen_pack(from[r], wide);
        if (SUMS) {
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum[k] += wide[k];
        }
        q[r] = make_uint2(narrow4<TYPE>(wide, inverse), narrow4<TYPE>(wide + 4, inverse));
    }
}

/* A tile in shared memory, by columns: column c is 16 units of 8 rows; unit u lies at
 * u ^ (c / 8 % 16), so that the lanes of a warp, whose columns are 8 apart, write to different
 * banks. */
typedef uint2 turned_tile[TILE][TILE / 8];

/* 8 rows of 8 columns: the unit `unit` of the columns 8 * group ... */
__device__ __forceinline__ void put_columns(uint2 (&q)[8], int group, int unit,
                                            turned_tile &columns)
{
    turn4(q[0].x, q[1].x, q[2].x, q[3].x);
    turn4(q[4].x, q[5].x, q[6].x, q[7].x);
    turn4(q[0].y, q[1].y, q[2].y, q[3].y);
    turn4(q[4].y, q[5].y, q[6].y, q[7].y);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        columns[8 * group + k][unit ^ group] = make_uint2(q[k].x, q[k + 4].x);
        columns[8 * group + k + 4][unit ^ group] = make_uint2(q[k].y, q[k + 4].y);
    }
}

/* The tile that begins at row0 and col0, to a.turned. */
__device__ __forceinline__ void store_turned(const quantise_args &a, int64_t row0, int64_t col0,
                                             const turned_tile &columns)
{
    int pair = threadIdx.x & 7; /* of units: 16 rows */
#pragma unroll
    for (int c = threadIdx.x >> 3; c < TILE; c += THREADS / 8) {
        int key = c >> 3;
        if (col0 + c >= a.cols || row0 + 16 * pair >= a.rows)
            continue;
        uint4 two = *(const uint4 *)&columns[c][2 * (pair ^ (key >> 1))];
        if (key & 1)
            two = make_uint4(two.z, two.w, two.x, two.y);
        *(uint4 *)(a.turned + (col0 + c) * a.rows + row0 + 16 * pair) = two;
    }
}

template <typename T, __nv_fp8_interpretation_t TYPE, bool SUMS>
__global__ void __launch_bounds__(THREADS) quantise_kernel(quantise_args a)
{
    __shared__ float sums[SUMS ? TILE / 8 : 1][SUMS ? TILE : 1];
    __shared__ __align__(16) turned_tile columns;
    const T *x = (const T *)a.x;
    int group = threadIdx.x & 15, unit = threadIdx.x >> 4; /* of 8 columns, of 8 rows */
    int64_t row0 = (int64_t)blockIdx.y * TILE, col0 = (int64_t)blockIdx.x * TILE;
    int64_t row = row0 + 8 * unit, col = col0 + 8 * group;
    bool inside = row < a.rows && col < a.cols;
    pack<T, 8> from[8];
    if (inside) {
#pragma unroll
        for (int r = 0; r < 8; r++)
            from[r] = load_pack<8>(x + (a.index ? a.index[row + r] : row + r) * a.cols + col);
    }
    float scale = scale_of(largest_of(a.amax), TYPE == __NV_E4M3 ? 448.0f : 57344.0f);
    float inverse = __fdiv_rn(1.0f, scale);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        *a.scale = scale;
    float sum[8] = {0};
    if (inside) {
        uint2 q[8];
        narrow_rows<TYPE, SUMS>(from, inverse, sum, q);
        if (a.q) {
#pragma unroll
            for (int r = 0; r < 8; r++)
                *(uint2 *)(a.q + (row + r) * a.cols + col) = q[r];
        }
        put_columns(q, group, unit, columns);
    }
    if (SUMS) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            sums[unit][8 * group + k] = sum[k];
    }
    if (!a.turned)
        return;
    __syncthreads();
    if (SUMS && threadIdx.x < TILE && col0 + threadIdx.x < a.cols) {
        float total = 0;
#pragma unroll
        for (int u = 0; u < TILE / 8; u++)
            total += sums[u][threadIdx.x];
        a.partial[blockIdx.y * a.cols + col0 + threadIdx.x] = total;
    }
    store_turned(a, row0, col0, columns);
}

/* Sums of columns over the rows of tiles: 8 threads a column, then one. */
constexpr int SUM_COLUMNS = 32, SUM_GROUPS = 8;

template <typename O>
__global__ void sums_kernel(const float *partial, int64_t tiles, int64_t cols, O *out,
                            bool overwrite)
{
    __shared__ float of_group[SUM_GROUPS][SUM_COLUMNS];
    int64_t col = (int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x;
    float sum = 0;
    for (int64_t t = threadIdx.y; col < cols && t < tiles; t += SUM_GROUPS)
        sum += partial[t * cols + col];
    of_group[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= cols)
        return;
    for (int g = 1; g < SUM_GROUPS; g++)
        sum += of_group[g][threadIdx.x];
    store_sum(out + col, sum, overwrite);
}

template <__nv_fp8_interpretation_t TYPE>
void launch_quantise(const tri_kernel_args *args, const quantise_args &a)
{
    dim3 grid((unsigned)ceil_div(a.cols, TILE), (unsigned)ceil_div(a.rows, TILE));
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        if (a.partial)
            quantise_kernel<T, TYPE, true><<<grid, THREADS, 0, stream_of(args)>>>(a);
        else
            quantise_kernel<T, TYPE, false><<<grid, THREADS, 0, stream_of(args)>>>(a);
    });
    if (!a.partial)
        return;
    by_type(args->out[3].dtype, [&](auto zero) {
        using O = decltype(zero);
        sums_kernel<O><<<(unsigned)ceil_div(a.cols, SUM_COLUMNS), dim3(SUM_COLUMNS, SUM_GROUPS), 0,
                         stream_of(args)>>>(a.partial, grid.y, a.cols, data_of<O>(args->out[3]),
                                            args->overwrite);
    });
}

void run_amax(const tri_kernel_args *args)
{
    int64_t count = args->in[0].count, rows = args->num_in > 1 ? args->in[1].count : 0;
    const int32_t *expert = rows > 0 ? data_of<int32_t>(args->in[1]) : nullptr;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        amax_kernel<<<TRI_AMAX_PARTS, AMAX_THREADS, 0, stream_of(args)>>>(
            data_of<T>(args->in[0]), count, expert, rows, data_of<float>(args->out[0]));
    });
}

void run_quantise(const tri_kernel_args *args)
{
    const tri_quantise_attr *attr = &args->attr->quantise;
    bool index = args->num_in > 2;
    quantise_args a = {.x = args->in[0].data,
                       .index = index ? data_of<int32_t>(args->in[2]) : NULL,
                       .amax = data_of<float>(args->in[1]),
                       .scale = data_of<float>(args->out[0]),
                       .q = NULL,
                       .turned = NULL,
                       .partial = NULL,
                       .rows = 1,
                       .cols = 1};
    for (int d = 0; d < args->in[0].rank; d++)
        *(d < (index ? attr->lead : attr->split) ? &a.rows : &a.cols) *= args->in[0].size[d];
    if (index)
        a.rows = args->in[2].count;
    if (attr->straight)
        a.q = data_of<uint8_t>(args->out[1]);
    if (attr->turned)
        a.turned = data_of<uint8_t>(args->out[1 + attr->straight]);
    if (args->num_out > 3)
        a.partial = (float *)device_of(args)->scratch;
    if (attr->dtype == TRI_F8E4M3)
        launch_quantise<__NV_E4M3>(args, a);
    else
        launch_quantise<__NV_E5M2>(args, a);
}

size_t quantise_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    if (args->num_out <= 3)
        return 0;
    int64_t cols = args->out[3].count, rows = cols > 0 ? args->out[1].count / cols : 0;
    return (size_t)(ceil_div(rows, TILE) * cols) * sizeof(float);
}

/* --- Products without cuBLASLt -------------------------------------------------------------- */

constexpr int SIDE = 16;

__device__ __forceinline__ float widen8(uint8_t x, bool e4m3)
{
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, e4m3 ? __NV_E4M3 : __NV_E5M2)));
}

/* As product_kernel of product.cu, for a [m, k] and b [n, k]. */
template <typename Out> __global__ void product8_kernel(tri_cuda_product p)
{
    __shared__ float a[SIDE][SIDE + 1], b[SIDE][SIDE + 1];
    const uint8_t *pa = (const uint8_t *)p.a, *pb = (const uint8_t *)p.b;
    int64_t tiles = (p.n + SIDE - 1) / SIDE;
    int64_t row0 = blockIdx.x / tiles * SIDE, col0 = blockIdx.x % tiles * SIDE;
    int64_t row = row0 + threadIdx.y, col = col0 + threadIdx.x;
    float sum = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += SIDE) {
        int64_t k = k0 + threadIdx.x, other = col0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] =
            row < p.m && k < p.k ? widen8(pa[row * p.k + k], p.in == TRI_F8E4M3) : 0;
        b[threadIdx.x][threadIdx.y] =
            other < p.n && k < p.k ? widen8(pb[other * p.k + k], p.in_b == TRI_F8E4M3) : 0;
        __syncthreads();
        for (int i = 0; i < SIDE; i++)
            sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        __syncthreads();
    }
    if (row >= p.m || col >= p.n)
        return;
    Out *c = (Out *)p.c + row * p.n + col;
    float value = p.alpha * *p.scale_a * *p.scale_b * sum;
    *c = narrow<Out>(value + (p.accumulate ? widen(*c) : 0));
}

} // namespace

void tri_cuda_plain_product8(tri_cuda *cuda, const tri_cuda_product *p)
{
    int64_t grid = ceil_div(p->n, SIDE) * ceil_div(p->m, SIDE);
    by_type(p->out, [&](auto zero) {
        using Out = decltype(zero);
        product8_kernel<Out>
            <<<(unsigned)grid, dim3(SIDE, SIDE), 0, (cudaStream_t)cuda->stream>>>(*p);
    });
}

const tri_kernel tri_cuda_amax = {run_amax, nullptr, nullptr};
const tri_kernel tri_cuda_quantise = {run_quantise, quantise_scratch, nullptr};
