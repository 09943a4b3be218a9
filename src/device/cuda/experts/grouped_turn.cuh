/* Who does which tile of grad, and in which order parts are added up.
 *
 * The rows of an expert are in parts, so that the work is even however they are spread. A part of a
 * tile of an expert's matrix is an item; items are numbered by parts. Blocks take the next number
 * when they are about to need one. A part's results are added to those of the parts before it, each
 * in its turn: sums do not depend on who was first. A part is never taken before those that it
 * waits for, so the first of all that are not done never waits. */
#ifndef TRI_DEVICE_CUDA_EXPERTS_GROUPED_TURN_CUH
#define TRI_DEVICE_CUDA_EXPERTS_GROUPED_TURN_CUH

#include "device/cuda/experts/grouped.cuh"
#include "device/cuda/experts/tma.cuh"

namespace tri
{

constexpr int TURN_SLOTS = 2;
constexpr int TURN_BYTES = TURN_SLOTS * (2 * 8 + 4); /* barriers, and numbers of items */

/* An item: the tile as find_tile has it, and where it begins in the words of the copy engine. */
struct part_place {
    int m0, n0, row, expert, part, number; /* of the tile among all of all experts */
};

/* False where there is nothing to do. */
template <typename T, typename O>
__device__ __forceinline__ bool find_part(const grouped_call &call, int index,
                                          grouped_tile<T, O> &tile, part_place &place)
{
    int tiles_n = (int)((call.n + PART_N - 1) / PART_N);
    int tiles = (int)((call.m + PART_M - 1) / PART_M) * tiles_n;
    int entry = index / tiles, own = index - entry * tiles;
    row_tile rows = call.tiles[entry];
    place.m0 = own / tiles_n * PART_M;
    place.n0 = own % tiles_n * PART_N;
    place.row = rows.first;
    place.expert = rows.expert;
    place.part = rows.part;
    place.number = rows.expert * tiles + own;
    tile.m = at_most(call.m - place.m0, PART_M);
    tile.n = at_most(call.n - place.n0, PART_N);
    tile.k = rows.rows;
    tile.a = tile.b = nullptr; /* the engine brings them */
    tile.c = (O *)call.c + rows.expert * call.of_expert + place.m0 * call.ldc + place.n0;
    return rows.expert >= 0 && (rows.rows > 0 || (rows.part == 0 && call.overwrite));
}

/* Whether results of a part replace what is there. */
__device__ __forceinline__ bool begins(const grouped_call &call, const part_place &place)
{
    return place.part == 0 && call.overwrite;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Numbers of items on their way from the thread that takes them to the warps that multiply. */
struct turn_ring {
    uint32_t full, empty, number;
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ turn_ring(uint32_t memory)
        : full(memory), empty(memory + 8 * TURN_SLOTS), number(memory + 16 * TURN_SLOTS)
    {
    }
    __device__ __forceinline__ void next()
    {
        at = at + 1 < TURN_SLOTS ? at + 1 : 0;
        parity ^= at == 0;
    }
    /* One thread: the next number, for all. */
    __device__ __forceinline__ int take(int32_t *counter)
    {
        int index = atomicAdd(counter, 1);
        barrier_wait(empty + (uint32_t)at * 8, parity ^ 1); /* at once in the first round */
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(number + (uint32_t)at * 4), "r"(index)
                     : "memory");
        barrier_arrive(full + (uint32_t)at * 8);
        next();
        return index;
    }
    /* Whole warps. */
    __device__ __forceinline__ int receive()
    {
        int index;
        barrier_wait(full + (uint32_t)at * 8, parity);
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"(index)
                     : "r"(number + (uint32_t)at * 4)
                     : "memory");
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(empty + (uint32_t)at * 8);
        next();
        return index;
    }
};

/* Until the parts before this one are added, of the rows of the tile that this warp has. An error
 * after half a minute, as of barrier_wait. */
__device__ __forceinline__ void await_turn(const grouped_call &call, const part_place &place)
{
    const int32_t *done = call.done + place.number * PART_WARPS + threadIdx.x / 32 % PART_WARPS;
    if (threadIdx.x % 32 == 0 && place.part > 0) {
        long long start = clock64();
        for (int32_t there = 0; there < place.part;) {
            asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
                         : "=r"(there)
                         : "l"(done)
                         : "memory");
            if (there < place.part && clock64() - start > 50ll * 1000 * 1000 * 1000)
                __trap();
        }
    }
    __syncwarp();
}

__device__ __forceinline__ void end_turn(const grouped_call &call, const part_place &place)
{
    int32_t *done = call.done + place.number * PART_WARPS + threadIdx.x / 32 % PART_WARPS;
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(done), "r"(place.part + 1)
                     : "memory");
}

/* Stores or adds the 16 rows of a warp from `row` on. What lanes have of 8 columns, (r, 2c..) and
 * (r + 8, 2c..), are whole sectors of f32 together. Sums of others are read where they meet. */
template <typename T>
__device__ __forceinline__ void store_part(const grouped_tile<T, float> &tile, int64_t step,
                                           int row, const float (&sum)[32][4], bool overwrite)
{
    int lane = (int)threadIdx.x & 31, r = row + lane / 4, column = lane % 4 * 2;
    float *to = tile.c + r * step + column;
#pragma unroll
    for (int j0 = 0; j0 < 32; j0 += 8) {
        float2 old[16] = {};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int at = (j0 + i / 2) * 8, half = i % 2;
            if (!overwrite && at < tile.n && r + half * 8 < tile.m)
                old[i] = __ldcg((const float2 *)(to + half * 8 * step + at));
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int at = (j0 + i / 2) * 8, half = i % 2;
            float2 v = make_float2(sum[j0 + i / 2][half * 2] + old[i].x,
                                   sum[j0 + i / 2][half * 2 + 1] + old[i].y);
            if (at < tile.n && r + half * 8 < tile.m)
                *(float2 *)(to + half * 8 * step + at) = v;
        }
    }
}

#endif

} // namespace tri

#endif
