/* Products with the matrices of experts by Hopper's warpgroups, bf16 and f16.
 *
 * Two warpgroups, 64 x 256 each of a tile of 128 x 256. All threads copy. The products of a stage
 * are still under way while those of the next are begun, so copies go to the stage before both. */
#include "device/cuda/experts/grouped_stage.cuh"
#include "device/cuda/experts/wgmma.cuh"

namespace
{

using namespace tri;

typedef stage_plan<128, 256, 256, 4, 1> group_plan;

template <grouped_kind KIND, typename T, typename O>
__global__ void __launch_bounds__(group_plan::THREADS, group_plan::BLOCKS)
    group_kernel(const __grid_constant__ grouped_call call)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef group_plan plan;
    extern __shared__ __align__(1024) unsigned char memory[];
    grouped_tile<T, O> tile;
    if (!find_tile<KIND, plan::M, plan::N>(call, (int)blockIdx.x, tile))
        return;
    uint32_t shared = (tri_shared_address(memory) + 1023) & ~1023u;
    int group = (int)threadIdx.x / 128, warp = (int)threadIdx.x % 128 / 32;
    int stages = (tile.k + STAGE_K - 1) / STAGE_K;
    float sum[32][4] = {};
    for (int s = 0; s < plan::STAGES - 2; s++)
        copy_stage<KIND, plan>(call, tile, shared, s);
    for (int s = 0; s < stages; s++) {
        await_copies<plan::STAGES - 3>(); /* this stage */
        show_to_tensor_cores();
        __syncthreads(); /* everybody's part of it; and all are done with the last but one */
        uint32_t a = shared + (uint32_t)(s % plan::STAGES) * plan::STAGE_BYTES;
        wgmma_stage<a_along_k(KIND), b_along_k(KIND)>(T{}, sum, a + (uint32_t)group * BLOCK_BYTES,
                                                      a + plan::A_BYTES);
        copy_stage<KIND, plan>(call, tile, shared, s + plan::STAGES - 2);
        wgmma_wait<1>();
    }
    wgmma_results(sum);
    store_results(tile, call.ldc, group * 64 + warp * 16, 0, sum,
                  KIND != GROUPED_GRAD || call.overwrite);
#else
    (void)call;
    __trap(); /* built without what this GPU has: see CUDA_ARCH in the Makefile */
#endif
}

template <typename T> bool run(const grouped_call &call, grouped_kind kind, cudaStream_t stream)
{
    if (kind == GROUPED_FORWARD)
        return launch_plan<group_plan>(group_kernel<GROUPED_FORWARD, T, T>, call, kind, stream);
    if (kind == GROUPED_BACK)
        return launch_plan<group_plan>(group_kernel<GROUPED_BACK, T, T>, call, kind, stream);
    if (call.out_type == TRI_F32)
        return launch_plan<group_plan>(group_kernel<GROUPED_GRAD, T, float>, call, kind, stream);
    return launch_plan<group_plan>(group_kernel<GROUPED_GRAD, T, T>, call, kind, stream);
}

} // namespace

bool tri::grouped_wgmma(const grouped_call &call, grouped_kind kind, cudaStream_t stream)
{
    if (!takes_wgmma(call, kind))
        return false;
    return call.type == TRI_BF16 ? run<__nv_bfloat16>(call, kind, stream)
                                 : run<__half>(call, kind, stream);
}
