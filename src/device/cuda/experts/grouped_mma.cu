/* Products with the matrices of experts on tensor cores, bf16 and f16, by mma.sync: for all GPUs
 * that have them.
 *
 * Four warps, 64 x 64 of a tile of 128 x 128 each: what a warp reads from shared memory is then
 * used four times. */
#include "device/cuda/experts/grouped_stage.cuh"

namespace
{

using namespace tri;

typedef stage_plan<128, 128, 128, 3, 2> mma_plan;

/* The 16 x 16 of a left operand at `row` and step `step` of 16 k, as mma.sync wants it. */
template <bool ALONG_K>
__device__ __forceinline__ void load_left(uint32_t (&to)[4], uint32_t piece, int row, int step)
{
    int lane = (int)threadIdx.x & 31, matrix = lane / 8, line = lane % 8;
    if (ALONG_K) {
        tri_ldmatrix(to, piece + at_part(row + matrix % 2 * 8 + line, step * 2 + matrix / 2));
    } else {
        int k = step * 16 + matrix / 2 * 8 + line, part = row / 8 + matrix % 2;
        tri_ldmatrix_trans(to, piece + at_part(part / 8 * 64 + k, part % 8));
    }
}

/* The 16 k x 16 columns of a right operand: two registers of the first eight, two of the others. */
template <bool ALONG_K>
__device__ __forceinline__ void load_right(uint32_t (&to)[4], uint32_t piece, int column, int step)
{
    int lane = (int)threadIdx.x & 31, matrix = lane / 8, line = lane % 8;
    if (ALONG_K) {
        tri_ldmatrix(to, piece + at_part(column + matrix / 2 * 8 + line, step * 2 + matrix % 2));
    } else {
        int k = step * 16 + matrix % 2 * 8 + line, part = column / 8 + matrix / 2;
        tri_ldmatrix_trans(to, piece + at_part(part / 8 * 64 + k, part % 8));
    }
}

template <grouped_kind KIND, typename T>
__device__ __forceinline__ void add_stage(float (&sum)[4][8][4], uint32_t a, uint32_t b, int row,
                                          int column)
{
#pragma unroll
    for (int step = 0; step < STAGE_K / 16; step++) {
        uint32_t left[4][4], right[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_left<a_along_k(KIND)>(left[i], a, row + i * 16, step);
#pragma unroll
        for (int j = 0; j < 4; j++)
            load_right<b_along_k(KIND)>(right[j], b, column + j * 16, step);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                tri_mma(T{}, sum[i][j], left[i], right[j / 2][j % 2 * 2],
                        right[j / 2][j % 2 * 2 + 1]);
    }
}

template <grouped_kind KIND, typename T, typename O>
__global__ void __launch_bounds__(mma_plan::THREADS, mma_plan::BLOCKS)
    mma_kernel(const __grid_constant__ grouped_call call)
{
    typedef mma_plan plan;
    extern __shared__ __align__(1024) unsigned char memory[];
    grouped_tile<T, O> tile;
    if (!find_tile<KIND, plan::M, plan::N>(call, (int)blockIdx.x, tile))
        return;
    uint32_t shared = (tri_shared_address(memory) + 1023) & ~1023u;
    int warp = (int)threadIdx.x / 32, row = warp / 2 * 64, column = warp % 2 * 64;
    int stages = (tile.k + STAGE_K - 1) / STAGE_K;
    float sum[4][8][4] = {};
    for (int s = 0; s < plan::STAGES - 1; s++)
        copy_stage<KIND, plan>(call, tile, shared, s);
    for (int s = 0; s < stages; s++) {
        await_copies<plan::STAGES - 2>(); /* this stage */
        __syncthreads(); /* everybody's part of it; and all are done with the last */
        copy_stage<KIND, plan>(call, tile, shared, s + plan::STAGES - 1);
        uint32_t a = shared + (uint32_t)(s % plan::STAGES) * plan::STAGE_BYTES;
        add_stage<KIND, T>(sum, a, a + plan::A_BYTES, row, column);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        store_results(tile, call.ldc, row + i * 16, column, sum[i], call.overwrite);
}

template <typename T> bool run(const grouped_call &call, grouped_kind kind, cudaStream_t stream)
{
    if (kind == GROUPED_FORWARD)
        return launch_plan<mma_plan>(mma_kernel<GROUPED_FORWARD, T, T>, call, kind, stream);
    if (kind == GROUPED_BACK)
        return launch_plan<mma_plan>(mma_kernel<GROUPED_BACK, T, T>, call, kind, stream);
    if (call.out_type == TRI_F32)
        return launch_plan<mma_plan>(mma_kernel<GROUPED_GRAD, T, float>, call, kind, stream);
    return launch_plan<mma_plan>(mma_kernel<GROUPED_GRAD, T, T>, call, kind, stream);
}

} // namespace

bool tri::grouped_mma(const grouped_call &call, grouped_kind kind, cudaStream_t stream)
{
    if (!in_parts(call, kind))
        return false;
    return call.type == TRI_BF16 ? run<__nv_bfloat16>(call, kind, stream)
                                 : run<__half>(call, kind, stream);
}
