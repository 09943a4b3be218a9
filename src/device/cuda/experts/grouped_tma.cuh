/* Products with the matrices of experts by Hopper's warpgroups, bf16 and f16, with copies by the
 * copy engine.
 *
 * As many blocks as there are processors, each of which does every so-manyth tile. One thread of
 * the first warpgroup tells the copy engine what to bring, as far ahead as there are stages, across
 * the borders of tiles: while the results of one are stored, operands of the next arrive. Two
 * warpgroups multiply, 64 x 256 each of a tile of 128 x 256; at the end of a row of tiles, 64, 128
 * or 192 columns, and a warpgroup none of whose rows are there waits.
 *
 * The engine brings zeros beyond the ends of a tensor. It knows nothing of the borders of experts:
 * rows of others in a tile of rows make results that nobody stores; among the rows that
 * grouped_grad adds up, they are set to zero in shared memory. */
#ifndef TRI_DEVICE_CUDA_EXPERTS_GROUPED_TMA_CUH
#define TRI_DEVICE_CUDA_EXPERTS_GROUPED_TMA_CUH

#include "device/cuda/experts/grouped_end.cuh"

namespace tri
{

/* A dense tensor of rank 2 or 3, its last dim first, and boxes of 64 x lines of it; false where the
 * engine cannot be used. */
bool tma_map(CUtensorMap *map, tri_dtype type, const void *data, int rank, const int64_t *size,
             int lines);

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static_assert(PART_M == tma_plan::M && PART_N == tma_plan::N && PART_STEP == STAGE_K &&
                  PART_WARPS == NUM_MULTIPLY / 32,
              "as the list of parts has it");

/* The tile of this number, and in the words of the engine: where in the tensors it begins. */
template <class job, typename T, typename O>
__device__ __forceinline__ bool find_place(const grouped_call &call, int index,
                                           grouped_tile<T, O> &tile, part_place &place)
{
    if constexpr (job::KIND == GROUPED_GRAD)
        return find_part(call, index, tile, place);
    int tiles_n = (int)((call.n + job::N - 1) / job::N), along_m = index / tiles_n;
    row_tile rows = call.tiles[along_m];
    place = {};
    place.n0 = (index - along_m * tiles_n) * job::N;
    place.expert = rows.expert;
    place.row = rows.first;
    return find_tile<job::KIND, tma_plan::M, job::N>(call, index, tile);
}

/* Tiles of grad are taken, all others dealt out. */
template <class job>
__device__ __forceinline__ int first_item(const grouped_call &call, turn_ring &turns, bool brings)
{
    if (job::KIND == GROUPED_GRAD)
        return brings ? turns.take(call.next) : turns.receive();
    return (int)blockIdx.x;
}

template <class job>
__device__ __forceinline__ int next_item(const grouped_call &call, turn_ring &turns, bool brings,
                                         int index)
{
    return job::KIND == GROUPED_GRAD ? first_item<job>(call, turns, brings)
                                     : index + (int)gridDim.x;
}

/* What a stage of a tile consists of: boxes of 64 of k, or of 64 x 64. Columns of gate and of up
 * take turns, 64 each. */
template <class job>
__device__ __forceinline__ void bring_stage(const CUtensorMap *a, const CUtensorMap *b,
                                            const CUtensorMap *up, const part_place &place, int k0,
                                            uint32_t to, uint32_t full)
{
    constexpr grouped_kind KIND = job::KIND;
    uint32_t to_b = to + tma_plan::A_BYTES;
    barrier_expect(full, tma_plan::STAGE_BYTES);
    if (KIND != GROUPED_GRAD)
        copy_box(to, a, k0, place.row, full);
    if (KIND == GROUPED_FORWARD && job::END != END_SWIGLU)
        copy_box(to_b, b, k0, place.n0, place.expert, full);
    if (job::END == END_SWIGLU)
        for (int j = 0; j < tma_plan::N / 64; j++)
            copy_box(to_b + j * BLOCK_BYTES, j % 2 ? up : b, k0, place.n0 + j / 2 * 64,
                     place.expert, full);
    if (KIND == GROUPED_BACK)
        for (int j = 0; j < tma_plan::N / 64; j++)
            copy_box(to_b + j * BLOCK_BYTES, b, place.n0 + j * 64, k0, place.expert, full);
    if (KIND == GROUPED_GRAD) {
        for (int j = 0; j < tma_plan::M / 64; j++)
            copy_box(to + j * BLOCK_BYTES, a, place.m0 + j * 64, place.row + k0, full);
        for (int j = 0; j < tma_plan::N / 64; j++)
            copy_box(to_b + j * BLOCK_BYTES, b, place.n0 + j * 64, place.row + k0, full);
    }
}

/* One thread. Each tile takes stages of k, of two products with PAIR; and for END_SWIGLU_GRAD one
 * for every 64 columns, of gate and up. */
template <class job, typename T, typename O>
__device__ __forceinline__ void bring_all(const grouped_call &call, const tma_maps &maps,
                                          stage_ring ring, turn_ring turns, int num_tiles)
{
    for (int index = first_item<job>(call, turns, true); index < num_tiles;
         index = next_item<job>(call, turns, true, index)) {
        grouped_tile<T, O> tile;
        part_place place;
        if (!find_place<job>(call, index, tile, place))
            continue;
        for (int second = 0; second < (job::PAIR ? 2 : 1); second++)
            for (int k0 = 0; k0 < tile.k; k0 += STAGE_K, ring.next()) {
                barrier_wait(ring.empty_one(), ring.parity ^ 1); /* at once in the first round */
                bring_stage<job>(second ? &maps.more_a : &maps.a, second ? &maps.more_b : &maps.b,
                                 &maps.more_b, place, k0, ring.stage(), ring.full_one());
            }
        for (int j = 0; job::END == END_SWIGLU_GRAD && j < tile.n; j += 64, ring.next()) {
            barrier_wait(ring.empty_one(), ring.parity ^ 1);
            barrier_expect(ring.full_one(), 2 * tma_plan::A_BYTES);
            copy_box(ring.stage(), &maps.more_a, place.n0 + j, place.row, ring.full_one());
            copy_box(ring.stage() + tma_plan::A_BYTES, &maps.more_b, place.n0 + j, place.row,
                     ring.full_one());
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

/* All stages of a tile: of k, twice with PAIR. COLUMNS 0: none of this warpgroup's rows are there.
 */
template <class job, int COLUMNS, typename T>
__device__ __forceinline__ void multiply_tile(T type, float (&sum)[32][4], stage_ring &ring, int k,
                                              uint32_t group)
{
    uint32_t before = 0; /* the barrier of the stage that was used last */
    int stages = (k + STAGE_K - 1) / STAGE_K * (job::PAIR ? 2 : 1);
    for (int s = 0; s < stages; s++, ring.next()) {
        uint32_t a = ring.stage();
        barrier_wait(ring.full_one(), ring.parity);
        __syncwarp();
        if (job::KIND == GROUPED_GRAD && k - s * STAGE_K < STAGE_K)
            clear_lines(a, k - s * STAGE_K);
        if constexpr (COLUMNS > 0) {
            wgmma_stage<COLUMNS, a_along_k(job::KIND), b_along_k(job::KIND)>(
                type, sum, a + group * BLOCK_BYTES, a + tma_plan::A_BYTES);
            wgmma_wait<1>(); /* of the stage before */
            if (before != 0)
                arrive_warp(before);
            before = ring.empty_one();
        } else {
            arrive_warp(ring.empty_one());
        }
    }
    if constexpr (COLUMNS > 0) {
        wgmma_results(sum);
        if (before != 0)
            arrive_warp(before);
    }
}

template <class job, typename T, typename O>
__device__ __forceinline__ void multiply_all(const grouped_call &call, const grouped_more &more,
                                             stage_ring ring, turn_ring turns, int num_tiles)
{
    int group = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x % 128 / 32;
    int row = group * 64 + warp * 16, own = row + (int)threadIdx.x % 32 / 4;
    for (int index = first_item<job>(call, turns, false); index < num_tiles;
         index = next_item<job>(call, turns, false, index)) {
        grouped_tile<T, O> tile;
        part_place place;
        if (!find_place<job>(call, index, tile, place))
            continue;
        float sum[32][4] = {}, w[2] = {};
        if (job::END != END_STORE) { /* of the rows of this lane */
            int64_t first = (tile.c - (O *)call.c) / call.ldc + own;
            w[0] = own < tile.m ? more.w[first] : 0;
            w[1] = own + 8 < tile.m ? more.w[first + 8] : 0;
        }
        int columns = job::END == END_SWIGLU ? 2 * tile.n : tile.n;
        if (group * 64 >= tile.m)
            multiply_tile<job, 0>(T{}, sum, ring, tile.k, (uint32_t)group);
        else if (columns > 192 || (job::END == END_SWIGLU && columns > 128))
            multiply_tile<job, 256>(T{}, sum, ring, tile.k, (uint32_t)group);
        else if (job::END != END_SWIGLU && columns > 128)
            multiply_tile<job, 192>(T{}, sum, ring, tile.k, (uint32_t)group);
        else
            multiply_tile<job, 128>(T{}, sum, ring, tile.k, (uint32_t)group);
        end_tile<job>(tile, place, call, more, w, row, ring, sum);
    }
}
#endif

template <class job, typename T, typename O>
__global__ void __launch_bounds__(tma_plan::THREADS, 1)
    tma_kernel(const __grid_constant__ grouped_call call, const __grid_constant__ grouped_more more,
               const __grid_constant__ tma_maps maps, int num_tiles)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    stage_ring ring((tri_shared_address(memory) + 1023) & ~1023u);
    turn_ring turns(ring.empty + 8 * tma_plan::STAGES);
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < TURN_SLOTS; s++) {
            barrier_init(turns.full + s * 8, 1);
            barrier_init(turns.empty + s * 8, NUM_MULTIPLY / 32);
        }
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
            bring_all<job, T, O>(call, maps, ring, turns, num_tiles);
    } else {
        more_registers<232>();
        multiply_all<job, T, O>(call, more, ring, turns, num_tiles);
    }
#else
    (void)call, (void)more, (void)maps, (void)num_tiles;
    __trap(); /* built without what this GPU has: see CUDA_ARCH in the Makefile */
#endif
}

template <class job, typename T, typename O>
bool tma_launch(const grouped_call &call, const grouped_more &more, const tma_maps &maps,
                int num_sms, cudaStream_t stream)
{
    auto kernel = tma_kernel<job, T, O>;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, TMA_BYTES) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    int64_t tiles = call.num_tiles * ceil_div(call.n, job::N);
    if (job::KIND == GROUPED_GRAD)
        tiles *= ceil_div(call.m, PART_M);
    unsigned blocks = (unsigned)(tiles < num_sms ? tiles : num_sms);
    kernel<<<blocks, tma_plan::THREADS, TMA_BYTES, stream>>>(call, more, maps, (int)tiles);
    return true;
}

} // namespace tri

#endif
