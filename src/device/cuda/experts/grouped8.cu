/* Products with the matrices of experts, of 8-bit operands: a plain kernel for all of them, and
 * which kernel does what. */
#include "device/cuda/experts/grouped8.cuh"

#include <cuda_fp8.h>

namespace
{

using namespace tri;

constexpr int PLAIN_THREADS = 256, PLAIN_M = GROUPED_ROWS, PLAIN_N = 16;

__device__ __forceinline__ float widen8(uint8_t x, tri_dtype type)
{
    return __half2float(
        __half(__nv_cvt_fp8_to_halfraw(x, type == TRI_F8E4M3 ? __NV_E4M3 : __NV_E5M2)));
}

/* Where row `line` of operand b begins, for the expert of a tile. */
template <grouped_kind KIND>
__device__ __forceinline__ int64_t begin_of_b(const grouped_call &call, int expert, int64_t line)
{
    if (KIND == GROUPED_FORWARD)
        return (expert * call.n + line) * call.ldb;
    return line * call.ldb + (KIND == GROUPED_BACK ? expert * call.k : call.first[expert]);
}

/* Each thread has every so-manyth element of a tile. */
template <grouped_kind KIND, typename O>
__global__ void __launch_bounds__(PLAIN_THREADS)
    plain8_kernel(const __grid_constant__ grouped8_call call)
{
    const grouped_call &of = call.of;
    grouped_tile<uint8_t, O> tile;
    if (!find_tile<KIND, PLAIN_M, PLAIN_N>(of, (int)blockIdx.x, tile))
        return;
    int tiles_n = (int)((of.n + PLAIN_N - 1) / PLAIN_N), along_m = (int)blockIdx.x / tiles_n;
    int tiles_m = (int)((of.m + PLAIN_M - 1) / PLAIN_M);
    int expert = KIND == GROUPED_GRAD ? along_m / tiles_m : of.tiles[along_m].expert;
    int64_t n0 = (int64_t)((int)blockIdx.x - along_m * tiles_n) * PLAIN_N;
    int64_t m0 = KIND == GROUPED_GRAD ? (int64_t)(along_m - expert * tiles_m) * PLAIN_M
                                      : of.tiles[along_m].first;
    float scale = *call.scale_a * *call.scale_b;
    for (int i = (int)threadIdx.x; i < PLAIN_M * PLAIN_N; i += PLAIN_THREADS) {
        int row = i / PLAIN_N, column = i % PLAIN_N;
        if (row >= tile.m || column >= tile.n)
            continue;
        const uint8_t *a = (const uint8_t *)of.a + (m0 + row) * of.lda;
        const uint8_t *b = (const uint8_t *)of.b;
        float sum = 0;
        if (tile.k > 0)
            b += begin_of_b<KIND>(of, expert, n0 + column);
        if (KIND == GROUPED_GRAD)
            a += of.first[expert];
        for (int k0 = 0; k0 < tile.k; k0 += 32) {
            float part = 0; /* sums of sums: shorter chains round less */
            for (int k = k0; k < tile.k && k < k0 + 32; k++)
                part = fmaf(widen8(a[k], of.type), widen8(b[k], call.type_b), part);
            sum += part;
        }
        store_sum(tile.c + row * of.ldc + column, scale * sum,
                  KIND != GROUPED_GRAD || of.overwrite);
    }
}

/* The fastest that may be used and takes the operands. */
template <grouped_kind KIND> void run_best(const tri_kernel_args *args, const grouped8_call &call)
{
    const tri_cuda *device = device_of(args);
    cudaStream_t stream = stream_of(args);
    if (device->products <= TRI_PRODUCTS_TMA && grouped8_tma(call, KIND, device->num_sms, stream))
        return;
    unsigned blocks = (unsigned)grouped_blocks(call.of, KIND, PLAIN_M, PLAIN_N);
    by_type(call.of.out_type, [&](auto zero) {
        plain8_kernel<KIND, decltype(zero)><<<blocks, PLAIN_THREADS, 0, stream>>>(call);
    });
}

size_t grouped8_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    const tri_tensor &w = args->in[1];
    return grouped_list_bytes(args->in[2].count, w.size[args->attr->grouped.back ? 1 : 0]);
}

void grouped8(const tri_kernel_args *args)
{
    const tri_tensor &w = args->in[1];
    bool back = args->attr->grouped.back;
    grouped8_call call = {};
    grouped_call &of = call.of;
    of.a = args->in[0].data;
    of.b = w.data;
    of.c = args->out[0].data;
    of.rows = args->in[2].count;
    of.experts = w.size[back ? 1 : 0];
    of.n = of.ldc = w.size[back ? 0 : 1];
    of.k = of.lda = w.size[2];
    of.ldb = back ? of.experts * of.k : of.k;
    of.type = args->in[0].dtype;
    of.out_type = args->out[0].dtype;
    of.overwrite = true;
    call.type_b = w.dtype;
    call.scale_a = data_of<float>(args->in[3]);
    call.scale_b = data_of<float>(args->in[4]);
    call.fast_sum = args->attr->grouped.fast_sum;
    if (args->out[0].count == 0)
        return;
    grouped_list(args, of);
    if (back)
        run_best<GROUPED_BACK>(args, call);
    else
        run_best<GROUPED_FORWARD>(args, call);
}

size_t grouped8_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return grouped_list_bytes(args->in[2].count, args->out[0].size[0]);
}

void grouped8_grad(const tri_kernel_args *args)
{
    const tri_tensor &dw = args->out[0];
    grouped8_call call = {};
    grouped_call &of = call.of;
    of.a = args->in[0].data;
    of.b = args->in[1].data;
    of.c = dw.data;
    of.rows = of.lda = of.ldb = args->in[2].count;
    of.experts = dw.size[0];
    of.m = dw.size[1];
    of.n = of.ldc = dw.size[2];
    of.of_expert = of.m * of.n;
    of.type = args->in[0].dtype;
    of.out_type = dw.dtype;
    of.overwrite = args->overwrite;
    call.type_b = args->in[1].dtype;
    call.scale_a = data_of<float>(args->in[4]);
    call.scale_b = data_of<float>(args->in[5]);
    call.fast_sum = args->attr->grouped.fast_sum;
    if (dw.count == 0)
        return;
    grouped_list(args, of);
    run_best<GROUPED_GRAD>(args, call);
}

} // namespace

const tri_kernel tri_cuda_grouped8 = {grouped8, grouped8_scratch, nullptr};
const tri_kernel tri_cuda_grouped8_grad = {grouped8_grad, grouped8_grad_scratch, nullptr};
