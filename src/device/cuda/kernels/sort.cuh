/* A stable sort of keys with their places, 8 bits at a time: one order for given keys, however the
 * blocks happen to run.
 *
 * A pass is two kernels. The first counts the digits of each tile. In the second, each block adds
 * up the counts of all tiles to where its own keys of each digit go, and moves its keys there in
 * their order: each warp walks through its part of the tile 32 keys at a time, and lanes with equal
 * digits find their rank by a vote. */
#ifndef TRI_DEVICE_CUDA_KERNELS_SORT_CUH
#define TRI_DEVICE_CUDA_KERNELS_SORT_CUH

#include "device/cuda/kernels/common.cuh"

namespace tri
{

constexpr int SORT_THREADS = 256; /* one per digit */
constexpr int SORT_WARPS = SORT_THREADS / 32;
constexpr int SORT_STEPS = 8; /* of a warp, 32 keys each */
constexpr int SORT_TILE = SORT_THREADS * SORT_STEPS;
constexpr unsigned NO_DIGIT = 256; /* past the end of the keys */

/* Two copies of keys and places, to sort from one into the other, and the counts of the tiles. */
struct sort_buffers {
    uint32_t *key[2], *place[2];
    uint32_t *counts; /* [tile][256] */
};

inline int64_t sort_tiles(int64_t num)
{
    return ceil_div(num, SORT_TILE);
}

/* 32-bit words of scratch. */
inline size_t sort_words(int64_t num)
{
    return 4 * (size_t)num + 256 * (size_t)sort_tiles(num);
}

inline sort_buffers sort_split(uint32_t *words, int64_t num)
{
    sort_buffers b = {};
    for (int i = 0; i < 2; i++) {
        b.key[i] = words + i * num;
        b.place[i] = words + (2 + i) * num;
    }
    b.counts = words + 4 * num;
    return b;
}

static __global__ void __launch_bounds__(SORT_THREADS)
    sort_count(const uint32_t *key, int64_t num, int shift, uint32_t *counts)
{
    __shared__ uint32_t count[256];
    count[threadIdx.x] = 0;
    __syncthreads();
    int64_t first = (int64_t)blockIdx.x * SORT_TILE;
    for (int s = 0; s < SORT_STEPS; s++) {
        int64_t i = first + s * SORT_THREADS + threadIdx.x;
        unsigned digit = i < num ? key[i] >> shift & 255u : NO_DIGIT;
        unsigned peers = __match_any_sync(WHOLE_WARP, digit);
        if (digit != NO_DIGIT && (threadIdx.x & 31) == (unsigned)__ffs((int)peers) - 1)
            atomicAdd(&count[digit], (uint32_t)__popc(peers));
    }
    __syncthreads();
    counts[(int64_t)blockIdx.x * 256 + threadIdx.x] = count[threadIdx.x];
}

/* The sum of the values of the threads before this one, of 256. */
__device__ __forceinline__ uint32_t sort_scan(uint32_t value, uint32_t *shared)
{
    unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t sum = value;
    for (int offset = 1; offset < 32; offset *= 2) {
        uint32_t other = __shfl_up_sync(WHOLE_WARP, sum, (unsigned)offset);
        sum += lane >= (unsigned)offset ? other : 0;
    }
    if (lane == 31)
        shared[warp] = sum;
    __syncthreads();
    uint32_t before = 0;
    for (unsigned w = 0; w < warp; w++)
        before += shared[w];
    return before + sum - value;
}

static __global__ void __launch_bounds__(SORT_THREADS)
    sort_move(const uint32_t *key, const uint32_t *place, int64_t num, int shift,
              const uint32_t *counts, uint32_t *to_key, uint32_t *to_place)
{
    __shared__ uint32_t next[SORT_WARPS][256]; /* where a warp's next key of a digit goes */
    __shared__ uint32_t warp_sums[SORT_WARPS];
    unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, digit_of_thread = threadIdx.x;
    for (int w = 0; w < SORT_WARPS; w++)
        next[w][digit_of_thread] = 0;
    __syncthreads();
    /* A warp's part of the tile, its keys in order: step s, lane l. */
    int64_t first = (int64_t)blockIdx.x * SORT_TILE + (int64_t)warp * 32 * SORT_STEPS + lane;
    for (int s = 0; s < SORT_STEPS; s++) {
        int64_t i = first + s * 32;
        unsigned digit = i < num ? key[i] >> shift & 255u : NO_DIGIT;
        unsigned peers = __match_any_sync(WHOLE_WARP, digit);
        if (digit != NO_DIGIT && lane == (unsigned)__ffs((int)peers) - 1)
            next[warp][digit] += (uint32_t)__popc(peers);
        __syncwarp();
    }
    /* Keys of this thread's digit in the tiles before, and in all. */
    uint32_t before = 0, total = 0;
#pragma unroll 4
    for (unsigned tile = 0; tile < gridDim.x; tile++) {
        uint32_t count = counts[(int64_t)tile * 256 + digit_of_thread];
        before += tile < blockIdx.x ? count : 0;
        total += count;
    }
    uint32_t at = sort_scan(total, warp_sums) + before;
    __syncthreads(); /* all warps have counted */
    for (int w = 0; w < SORT_WARPS; w++) {
        uint32_t count = next[w][digit_of_thread];
        next[w][digit_of_thread] = at;
        at += count;
    }
    __syncthreads();
    for (int s = 0; s < SORT_STEPS; s++) {
        int64_t i = first + s * 32;
        uint32_t k = i < num ? key[i] : 0;
        unsigned digit = i < num ? k >> shift & 255u : NO_DIGIT;
        unsigned peers = __match_any_sync(WHOLE_WARP, digit);
        unsigned rank = (unsigned)__popc(peers & ((1u << lane) - 1));
        if (digit != NO_DIGIT) {
            uint32_t to = next[warp][digit] + rank;
            to_key[to] = k;
            to_place[to] = place[i];
        }
        __syncwarp();
        if (digit != NO_DIGIT && rank == 0)
            next[warp][digit] += (uint32_t)__popc(peers);
        __syncwarp();
    }
}

/* Sorts key[0] and place[0] by the low `bits` of the keys; returns which copy holds the result. */
inline int sort_run(const sort_buffers &b, int64_t num, int bits, cudaStream_t stream)
{
    int from = 0;
    unsigned tiles = (unsigned)sort_tiles(num);
    for (int shift = 0; shift < bits; shift += 8) {
        sort_count<<<tiles, SORT_THREADS, 0, stream>>>(b.key[from], num, shift, b.counts);
        sort_move<<<tiles, SORT_THREADS, 0, stream>>>(b.key[from], b.place[from], num, shift,
                                                      b.counts, b.key[1 - from], b.place[1 - from]);
        from = 1 - from;
    }
    return from;
}

} // namespace tri

#endif
