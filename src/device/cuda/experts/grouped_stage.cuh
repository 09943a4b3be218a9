/* Stages of a product on tensor cores: pieces of both operands in shared memory, 64 of k at a time,
 * several of them on their way while one is used.
 *
 * A piece consists of lines of 128 bytes, 64 elements. Along k, line i is that of row (or column)
 * i. Otherwise, line 64 j + i is that of k = i and has the j-th 64 rows. The 16-byte parts of line
 * i are stored in the order part ^ (i % 8): so it is what wgmma calls a swizzle of 128 bytes, and
 * ldmatrix finds no two parts of its eight in the same banks. Parts that lie outside of the
 * operand are zeros; whatever is along a row is a multiple of eight, so a part is never cut. */
#ifndef TRI_DEVICE_CUDA_EXPERTS_GROUPED_STAGE_CUH
#define TRI_DEVICE_CUDA_EXPERTS_GROUPED_STAGE_CUH

#include "device/cuda/experts/grouped.cuh"
#include "device/cuda/kernels/mma.cuh"

namespace tri
{

constexpr int STAGE_K = 64;     /* of a stage */
constexpr int LINE_BYTES = 128; /* STAGE_K elements */
constexpr int LINE_PARTS = 8;   /* of 16 bytes */
constexpr int BLOCK_BYTES = 64 * LINE_BYTES;

/* How a block works: a tile, its threads, and its stages. */
template <int M_, int N_, int THREADS_, int STAGES_, int BLOCKS_> struct stage_plan {
    enum {
        M = M_,
        N = N_,
        THREADS = THREADS_,
        STAGES = STAGES_,
        BLOCKS = BLOCKS_, /* of a processor */
        A_BYTES = M * LINE_BYTES,
        STAGE_BYTES = (M + N) * LINE_BYTES,
        /* The beginning is rounded up to where the pattern begins. */
        BYTES = STAGES * STAGE_BYTES + 1024
    };
};

/* Where part `part` of line `line` lies. */
__device__ __forceinline__ uint32_t at_part(int line, int part)
{
    return (uint32_t)(line * LINE_BYTES + ((part ^ (line & 7)) << 4));
}

/* Copies a piece of NUM rows (or columns): those from k0 on, of k; `num` rows are there. */
template <int NUM, int THREADS, bool ALONG_K, typename T>
__device__ __forceinline__ void copy_piece(uint32_t to, const T *from, int64_t step, int num,
                                           int k0, int k)
{
    constexpr int LINES = THREADS / LINE_PARTS; /* in one go */
    static_assert(NUM % LINES == 0 && (64 % LINES == 0 || ALONG_K), "whole goes");
    int part = (int)threadIdx.x % LINE_PARTS, own = (int)threadIdx.x / LINE_PARTS;
#pragma unroll
    for (int i = 0; i < NUM / LINES; i++) {
        int line = own + i * LINES;
        if (ALONG_K) {
            bool there = line < num && k0 + part * 8 < k;
            tri_copy16(to + at_part(line, part), from + line * step + k0 + part * 8, there);
        } else {
            int at = k0 + line % 64, column = line / 64 * 64 + part * 8;
            bool there = at < k && column < num;
            tri_copy16(to + at_part(line, part), from + at * step + column, there);
        }
    }
}

/* Both operands of one stage, as one group of copies; an empty group past the end. */
template <grouped_kind KIND, class plan, typename T, typename O>
__device__ __forceinline__ void copy_stage(const grouped_call &call, const grouped_tile<T, O> &tile,
                                           uint32_t shared, int stage)
{
    int k0 = stage * STAGE_K;
    if (k0 < tile.k) {
        uint32_t to = shared + (uint32_t)(stage % plan::STAGES) * plan::STAGE_BYTES;
        copy_piece<plan::M, plan::THREADS, a_along_k(KIND)>(to, tile.a, call.lda, tile.m, k0,
                                                            tile.k);
        copy_piece<plan::N, plan::THREADS, b_along_k(KIND)>(to + plan::A_BYTES, tile.b, call.ldb,
                                                            tile.n, k0, tile.k);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the last NUM groups of this thread have arrived. */
template <int NUM> __device__ __forceinline__ void await_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(NUM) : "memory");
}

/* Four words of neighbours in a quad of lanes, word i of lane j: becomes word j of lane i. */
__device__ __forceinline__ void transpose_quad(uint32_t (&word)[4])
{
    int lane = (int)threadIdx.x & 3;
    /* Pairs of lanes, then pairs of pairs, exchange what belongs to the other. */
    uint32_t other;
    bool odd = lane & 1, high = lane & 2;
    other = __shfl_xor_sync(WHOLE_WARP, odd ? word[0] : word[1], 1);
    (odd ? word[0] : word[1]) = other;
    other = __shfl_xor_sync(WHOLE_WARP, odd ? word[2] : word[3], 1);
    (odd ? word[2] : word[3]) = other;
    other = __shfl_xor_sync(WHOLE_WARP, high ? word[0] : word[2], 2);
    (high ? word[0] : word[2]) = other;
    other = __shfl_xor_sync(WHOLE_WARP, high ? word[1] : word[3], 2);
    (high ? word[1] : word[3]) = other;
}

/* Stores, or adds, 8 neighbours of c. */
template <typename O>
__device__ __forceinline__ void store_eight(O *to, float (&value)[8], bool overwrite)
{
    constexpr int N = pack_size<O>();
#pragma unroll
    for (int i = 0; i < 8; i += N) {
        if (!overwrite) {
            float old[N];
            widen_pack<N>(load_pack<N>(to + i), old);
#pragma unroll
            for (int j = 0; j < N; j++)
                value[i + j] += old[j];
        }
        store_pack<N>(to + i, narrow_pack<N, O>(value + i));
    }
}

/* Results of a warp: 16 rows from `row` on, 8 NUM columns from `column` on, of which lane 4 r + c
 * has (r, 2c..) and (r + 8, 2c..) of each 8. Lanes of a quad exchange them, so that each has 8
 * neighbours of every fourth 8. */
template <typename T, typename O, int NUM>
__device__ __forceinline__ void store_results(const grouped_tile<T, O> &tile, int64_t step, int row,
                                              int column, const float (&sum)[NUM][4],
                                              bool overwrite)
{
    static_assert(NUM % 4 == 0, "whole exchanges");
    int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < NUM; j += 4) {
        int at = column + (j + lane % 4) * 8;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t low[4], high[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                low[i] = __float_as_uint(sum[j + i][half * 2]);
                high[i] = __float_as_uint(sum[j + i][half * 2 + 1]);
            }
            transpose_quad(low);
            transpose_quad(high);
            float value[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                value[2 * i] = __uint_as_float(low[i]);
                value[2 * i + 1] = __uint_as_float(high[i]);
            }
            int r = row + lane / 4 + half * 8;
            if (r < tile.m && at < tile.n)
                store_eight(tile.c + r * step + at, value, overwrite);
        }
    }
}

/* Whether operands can be copied in whole parts of 16 bytes. */
inline bool in_parts(const grouped_call &call, grouped_kind kind)
{
    bool whole = kind == GROUPED_GRAD ? call.m % 8 == 0 : call.k % 8 == 0;
    return whole && call.n % 8 == 0 && aligned16(call.a) && aligned16(call.b) && aligned16(call.c);
}

/* The same for warpgroups, whose tiles have 256 columns: with few, half of one would be empty. */
inline bool takes_wgmma(const grouped_call &call, grouped_kind kind)
{
    int device = 0, major = 0;
    return in_parts(call, kind) && call.n > 128 && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major == 9;
}

/* Launches a kernel that needs much shared memory; false where that is not to be had. */
template <class plan>
inline bool launch_plan(void (*kernel)(grouped_call), const grouped_call &call, grouped_kind kind,
                        cudaStream_t stream)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan::BYTES) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    unsigned blocks = (unsigned)grouped_blocks(call, kind, plan::M, plan::N);
    kernel<<<blocks, plan::THREADS, plan::BYTES, stream>>>(call);
    return true;
}

} // namespace tri

#endif
