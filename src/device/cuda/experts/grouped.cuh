/* Products of rows with the matrices of their experts: how they are cut into tiles.
 *
 * All three products are c[m][n] = the sum over k of a(m, k) b(n, k), of one expert:
 *     grouped         a: rows of x, k along a row       b: w[e], k along a row
 *     grouped, back   a: rows of x, k along a row       b: w[e], n along a row
 *     grouped_grad    a: rows of dy, m along a row      b: rows of x, n along a row; k is the rows
 * so an operand is `along` k or not. Rows of grouped are cut into tiles at the borders of experts
 * by a small kernel, so that a tile is of one expert; there is room in the list for as many as
 * there can be, and blocks of those that are not there end at once. */
#ifndef TRI_DEVICE_CUDA_EXPERTS_GROUPED_CUH
#define TRI_DEVICE_CUDA_EXPERTS_GROUPED_CUH

#include "device/cuda/kernels/common.cuh"

namespace tri
{

constexpr int GROUPED_ROWS = 128; /* of a tile */

/* Of grad by warpgroups: rows of a part are a multiple of this but for the last; tiles of a matrix,
 * and the warps that have one together. */
constexpr int PART_STEP = 64, PART_M = 128, PART_N = 256, PART_WARPS = 8;

enum grouped_kind { GROUPED_FORWARD, GROUPED_BACK, GROUPED_GRAD };

__host__ __device__ constexpr bool a_along_k(grouped_kind kind)
{
    return kind != GROUPED_GRAD;
}

__host__ __device__ constexpr bool b_along_k(grouped_kind kind)
{
    return kind == GROUPED_FORWARD;
}

/* One tile of rows: expert -1 for rows without one, no rows for a tile that is not there. Of grad:
 * the part-th part of an expert's rows, expert -1 for one that is not there. */
struct alignas(16) row_tile {
    int expert, first, rows, part;
};

struct grouped_call {
    const void *a, *b;
    void *c;
    int64_t rows, experts;
    int64_t m, n, k; /* m of grad alone, k of the others alone */
    int64_t lda, ldb, ldc;
    int64_t of_expert; /* elements of a matrix */
    const row_tile *tiles;
    int64_t num_tiles;    /* in the list */
    const int32_t *first; /* row of each expert, and where the last ends */
    int32_t *next, *done; /* of grad: see grouped_turn.cuh */
    tri_dtype type, out_type;
    bool overwrite;
};

/* What a block works on: where its operands and its result begin, and how much of the tile is
 * there. For k == 0 the result is 0. */
template <typename T, typename O> struct grouped_tile {
    const T *a, *b;
    O *c;
    int m, n; /* at most a tile */
    int k;
};

/* How many tiles: columns of a tile of rows one after the other, so that these are read together.
 */
inline int64_t grouped_blocks(const grouped_call &call, grouped_kind kind, int tile_m, int tile_n)
{
    int64_t along_m =
        kind == GROUPED_GRAD ? call.experts * ceil_div(call.m, tile_m) : call.num_tiles;
    return along_m * ceil_div(call.n, tile_n);
}

__device__ __forceinline__ int at_most(int64_t left, int most)
{
    return left < most ? (int)left : most;
}

/* The tile of this number; false where there is nothing to do. */
template <grouped_kind KIND, int TILE_M, int TILE_N, typename T, typename O>
__device__ __forceinline__ bool find_tile(const grouped_call &call, int index,
                                          grouped_tile<T, O> &tile)
{
    static_assert(KIND == GROUPED_GRAD || TILE_M == GROUPED_ROWS, "as in the list");
    int tiles_n = (int)((call.n + TILE_N - 1) / TILE_N);
    int along_m = index / tiles_n;
    int64_t n0 = (int64_t)(index - along_m * tiles_n) * TILE_N;
    const T *a = (const T *)call.a, *b = (const T *)call.b;
    O *c = (O *)call.c;
    tile.n = at_most(call.n - n0, TILE_N);
    if (KIND == GROUPED_GRAD) {
        int tiles_m = (int)((call.m + TILE_M - 1) / TILE_M);
        int e = along_m / tiles_m;
        int64_t m0 = (int64_t)(along_m - e * tiles_m) * TILE_M, first = call.first[e];
        tile.m = at_most(call.m - m0, TILE_M);
        tile.k = call.first[e + 1] - (int)first;
        tile.a = a + first * call.lda + m0;
        tile.b = b + first * call.ldb + n0;
        tile.c = c + e * call.of_expert + m0 * call.ldc + n0;
        return tile.k > 0 || call.overwrite;
    }
    row_tile rows = call.tiles[along_m];
    bool none = rows.expert < 0;
    tile.m = rows.rows;
    tile.k = none ? 0 : (int)call.k;
    tile.a = a + (int64_t)rows.first * call.lda;
    tile.b = b + (none ? 0 : rows.expert * call.of_expert) + (b_along_k(KIND) ? n0 * call.ldb : n0);
    tile.c = c + (int64_t)rows.first * call.ldc + n0;
    return rows.rows > 0;
}

/* The list of a call's tiles, in the scratch; of grouped_list_bytes. Experts are input 2. */
size_t grouped_list_bytes(int64_t rows, int64_t experts);
void grouped_list(const tri_kernel_args *args, grouped_call &call);

/* Tensor cores; false for operands that they are not made for, or on GPUs that lack the memory. */
bool grouped_mma(const grouped_call &call, grouped_kind kind, cudaStream_t stream);
bool grouped_tma(const grouped_call &call, grouped_kind kind, int num_sms, cudaStream_t stream);

/* The product of the first three inputs and the first output, with its list of tiles in the first
 * grouped_bytes of the scratch; and then it, or another of the same list, by the best kernel. */
grouped_call grouped_begin(const tri_kernel_args *args, bool back);
size_t grouped_bytes(const tri_kernel_args *args);
void grouped_run(const tri_kernel_args *args, const grouped_call &call, grouped_kind kind);

} // namespace tri

#endif
