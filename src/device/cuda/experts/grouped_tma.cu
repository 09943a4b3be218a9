/* Products with the matrices of experts by Hopper's warpgroups, bf16 and f16, with copies by the
 * copy engine.
 *
 * As many blocks as there are processors, each of which does every so-manyth tile. One thread of
 * the first warpgroup tells the copy engine what to bring, as far ahead as there are stages, across
 * the borders of tiles: while the results of one are stored, operands of the next arrive. Two
 * warpgroups multiply, 64 x 256 each of a tile of 128 x 256.
 *
 * The engine brings zeros beyond the ends of a tensor. It knows nothing of the borders of experts:
 * rows of others in a tile of rows make results that nobody stores; among the rows that
 * grouped_grad adds up, they are set to zero in shared memory. */
#include "device/cuda/experts/grouped_stage.cuh"
#include "device/cuda/experts/tma.cuh"
#include "device/cuda/experts/wgmma.cuh"

namespace
{

using namespace tri;

typedef stage_plan<128, 256, 384, 4, 1> tma_plan;

constexpr int BARRIER_BYTES = 2 * 8 * tma_plan::STAGES;

/* The tensors as the engine knows them. */
struct tma_maps {
    CUtensorMap a, b;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int NUM_MULTIPLY = 256; /* threads */

/* Stages go round; of each of these a parity is waited for that changes with every round. */
struct stage_ring {
    uint32_t shared, full, empty; /* the stages, and barriers of each */
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ stage_ring(uint32_t memory)
        : shared(memory), full(memory + tma_plan::STAGES * tma_plan::STAGE_BYTES),
          empty(full + 8 * tma_plan::STAGES)
    {
    }
    __device__ __forceinline__ uint32_t stage() const
    {
        return shared + (uint32_t)at * tma_plan::STAGE_BYTES;
    }
    __device__ __forceinline__ uint32_t full_one() const
    {
        return full + (uint32_t)at * 8;
    }
    __device__ __forceinline__ uint32_t empty_one() const
    {
        return empty + (uint32_t)at * 8;
    }
    __device__ __forceinline__ void next()
    {
        at = at + 1 < tma_plan::STAGES ? at + 1 : 0;
        parity ^= at == 0;
    }
};

/* Which tile, in the words of the engine: where in the tensors it begins. */
struct tile_place {
    int m0, n0; /* along a row of a, of grad: m0; n0: columns */
    int row;    /* the first */
    int expert;
};

template <grouped_kind KIND>
__device__ __forceinline__ tile_place place_of(const grouped_call &call, int index)
{
    int tiles_n = (int)((call.n + tma_plan::N - 1) / tma_plan::N), along_m = index / tiles_n;
    tile_place place = {};
    place.n0 = (index - along_m * tiles_n) * tma_plan::N;
    if (KIND == GROUPED_GRAD) {
        int tiles_m = (int)((call.m + tma_plan::M - 1) / tma_plan::M);
        place.expert = along_m / tiles_m;
        place.m0 = (along_m - place.expert * tiles_m) * tma_plan::M;
        place.row = call.first[place.expert];
    } else {
        row_tile rows = call.tiles[along_m];
        place.expert = rows.expert;
        place.row = rows.first;
    }
    return place;
}

/* What a stage of a tile consists of: boxes of 64 of k, or of 64 x 64. */
template <grouped_kind KIND>
__device__ __forceinline__ void bring_stage(const tma_maps &maps, const tile_place &place, int k0,
                                            uint32_t to, uint32_t full)
{
    uint32_t b = to + tma_plan::A_BYTES;
    barrier_expect(full, tma_plan::STAGE_BYTES);
    if (KIND != GROUPED_GRAD)
        copy_box(to, &maps.a, k0, place.row, full);
    if (KIND == GROUPED_FORWARD)
        copy_box(b, &maps.b, k0, place.n0, place.expert, full);
    if (KIND == GROUPED_BACK)
        for (int j = 0; j < tma_plan::N / 64; j++)
            copy_box(b + j * BLOCK_BYTES, &maps.b, place.n0 + j * 64, k0, place.expert, full);
    if (KIND == GROUPED_GRAD) {
        for (int j = 0; j < tma_plan::M / 64; j++)
            copy_box(to + j * BLOCK_BYTES, &maps.a, place.m0 + j * 64, place.row + k0, full);
        for (int j = 0; j < tma_plan::N / 64; j++)
            copy_box(b + j * BLOCK_BYTES, &maps.b, place.n0 + j * 64, place.row + k0, full);
    }
}

template <grouped_kind KIND, typename T, typename O>
__device__ __forceinline__ void bring_all(const grouped_call &call, const tma_maps &maps,
                                          stage_ring ring, int num_tiles)
{
    for (int index = (int)blockIdx.x; index < num_tiles; index += (int)gridDim.x) {
        grouped_tile<T, O> tile;
        if (!find_tile<KIND, tma_plan::M, tma_plan::N>(call, index, tile))
            continue;
        tile_place place = place_of<KIND>(call, index);
        for (int k0 = 0; k0 < tile.k; k0 += STAGE_K, ring.next()) {
            barrier_wait(ring.empty_one(), ring.parity ^ 1); /* passes at once in the first round */
            bring_stage<KIND>(maps, place, k0, ring.stage(), ring.full_one());
        }
    }
}

/* Sets the lines of all blocks from `first` on to zero; all threads that multiply do so together.
 */
__device__ __forceinline__ void clear_lines(uint32_t stage, int first)
{
    int thread = (int)threadIdx.x % NUM_MULTIPLY;
    for (int i = thread; i < (tma_plan::M + tma_plan::N) * LINE_PARTS; i += NUM_MULTIPLY)
        if (i / LINE_PARTS % 64 >= first)
            asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(stage + (uint32_t)i * 16),
                         "r"(0)
                         : "memory");
    show_to_tensor_cores();
    asm volatile("bar.sync 1, %0;" ::"n"(NUM_MULTIPLY) : "memory");
}

template <grouped_kind KIND, typename T, typename O>
__device__ __forceinline__ void multiply_all(const grouped_call &call, stage_ring ring,
                                             int num_tiles)
{
    int group = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x % 128 / 32;
    bool first_lane = threadIdx.x % 32 == 0;
    for (int index = (int)blockIdx.x; index < num_tiles; index += (int)gridDim.x) {
        grouped_tile<T, O> tile;
        if (!find_tile<KIND, tma_plan::M, tma_plan::N>(call, index, tile))
            continue;
        float sum[32][4] = {};
        uint32_t before = 0; /* the barrier of the stage that was used last */
        for (int k0 = 0; k0 < tile.k; k0 += STAGE_K, ring.next()) {
            uint32_t a = ring.stage();
            barrier_wait(ring.full_one(), ring.parity);
            __syncwarp();
            if (KIND == GROUPED_GRAD && tile.k - k0 < STAGE_K)
                clear_lines(a, tile.k - k0);
            wgmma_stage<a_along_k(KIND), b_along_k(KIND)>(
                T{}, sum, a + (uint32_t)group * BLOCK_BYTES, a + tma_plan::A_BYTES);
            wgmma_wait<1>(); /* of the stage before */
            if (before != 0 && first_lane)
                barrier_arrive(before);
            before = ring.empty_one();
        }
        wgmma_results(sum);
        if (before != 0 && first_lane)
            barrier_arrive(before);
        store_results(tile, call.ldc, group * 64 + warp * 16, 0, sum,
                      KIND != GROUPED_GRAD || call.overwrite);
    }
}
#endif

template <grouped_kind KIND, typename T, typename O>
__global__ void __launch_bounds__(tma_plan::THREADS, 1)
    tma_kernel(const __grid_constant__ grouped_call call, const __grid_constant__ tma_maps maps,
               int num_tiles)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    stage_ring ring((tri_shared_address(memory) + 1023) & ~1023u);
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < tma_plan::STAGES; s++) {
            barrier_init(ring.full + s * 8, 1);
            barrier_init(ring.empty + s * 8, NUM_MULTIPLY / 32);
        }
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        fewer_registers<40>();
        if (threadIdx.x == 0)
            bring_all<KIND, T, O>(call, maps, ring, num_tiles);
    } else {
        more_registers<232>();
        multiply_all<KIND, T, O>(call, ring, num_tiles);
    }
#else
    (void)call, (void)maps, (void)num_tiles;
    __trap(); /* built without what this GPU has: see CUDA_ARCH in the Makefile */
#endif
}

/* --- Calls ---------------------------------------------------------------------------------- */

typedef CUresult (*encode_map)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's, or NULL where it is too old. */
encode_map find_encode_map()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                         cudaEnableDefault, &result);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess)
        cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? (encode_map)found
                                                                         : nullptr;
}

/* A dense tensor of rank 2 or 3, its last dim first, and boxes of 64 x lines of it. */
bool make_map(encode_map encode, CUtensorMap *map, tri_dtype type, const void *data, int rank,
              const int64_t *size, int lines)
{
    cuuint64_t dims[3], steps[2], bytes = 2;
    cuuint32_t box[3] = {64, (cuuint32_t)lines, 1}, each[3] = {1, 1, 1};
    for (int d = 0; d < rank; d++) {
        dims[d] = (cuuint64_t)size[d];
        bytes *= dims[d];
        if (d + 1 < rank)
            steps[d] = bytes;
    }
    CUtensorMapDataType kind =
        type == TRI_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return encode(map, kind, (cuuint32_t)rank, (void *)data, dims, steps, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool make_maps(const grouped_call &call, grouped_kind kind, tma_maps &maps)
{
    encode_map encode = find_encode_map();
    bool grad = kind == GROUPED_GRAD;
    const int64_t a[] = {call.lda, call.rows};
    const int64_t b_rows[] = {call.ldb, call.rows};
    const int64_t b[] = {call.ldb, call.of_expert / call.ldb, call.experts};
    return encode && make_map(encode, &maps.a, call.type, call.a, 2, a, grad ? 64 : tma_plan::M) &&
           make_map(encode, &maps.b, call.type, call.b, grad ? 2 : 3, grad ? b_rows : b,
                    kind == GROUPED_FORWARD ? tma_plan::N : 64);
}

template <grouped_kind KIND, typename T, typename O>
bool launch(const grouped_call &call, const tma_maps &maps, int num_sms, cudaStream_t stream)
{
    auto kernel = tma_kernel<KIND, T, O>;
    size_t bytes = tma_plan::BYTES + BARRIER_BYTES;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    int64_t tiles = grouped_blocks(call, KIND, tma_plan::M, tma_plan::N);
    unsigned blocks = (unsigned)(tiles < num_sms ? tiles : num_sms);
    kernel<<<blocks, tma_plan::THREADS, bytes, stream>>>(call, maps, (int)tiles);
    return true;
}

template <typename T>
bool run(const grouped_call &call, grouped_kind kind, const tma_maps &maps, int num_sms,
         cudaStream_t stream)
{
    if (kind == GROUPED_FORWARD)
        return launch<GROUPED_FORWARD, T, T>(call, maps, num_sms, stream);
    if (kind == GROUPED_BACK)
        return launch<GROUPED_BACK, T, T>(call, maps, num_sms, stream);
    if (call.out_type == TRI_F32)
        return launch<GROUPED_GRAD, T, float>(call, maps, num_sms, stream);
    return launch<GROUPED_GRAD, T, T>(call, maps, num_sms, stream);
}

} // namespace

bool tri::grouped_tma(const grouped_call &call, grouped_kind kind, int num_sms, cudaStream_t stream)
{
    tma_maps maps;
    if (!takes_wgmma(call, kind) || !make_maps(call, kind, maps))
        return false;
    return call.type == TRI_BF16 ? run<__nv_bfloat16>(call, kind, maps, num_sms, stream)
                                 : run<__half>(call, kind, maps, num_sms, stream);
}
