/* Tiles of attention for tensor cores: how they lie in shared memory, how they are multiplied, and
 * the masks of a piece of scores.
 *
 * A tile is a number of positions of one head, D elements of 16 bits each. Row r begins at byte
 * r * 2D; the 16-byte pieces of a row are stored in the order piece ^ (r % 8), so that eight rows
 * of one piece, which ldmatrix reads at once, lie in different banks.
 *
 * Blocks have four warps. A warp owns 16 * MT rows of the scores, all columns; lane l = 4 r + c
 * holds the rows r and r + 8 of each 16, and the columns 2c and 2c + 1 of each 8. */
#ifndef TRI_DEVICE_CUDA_KERNELS_ATTENTION_TILE_CUH
#define TRI_DEVICE_CUDA_KERNELS_ATTENTION_TILE_CUH

#include "device/cuda/kernels/attention.cuh"
#include "device/cuda/kernels/mma.cuh"

enum { TRI_WARPS = 4, TRI_THREADS = 32 * TRI_WARPS };

/* What a kernel is compiled for: dropout kernels take documents, too, where there are any. */
enum { TRI_PLAIN, TRI_DOCS, TRI_DROPOUT };

template <int MODE> static __device__ __forceinline__ bool tri_has_docs(const tri_attention_call &a)
{
    return MODE == TRI_DOCS || (MODE == TRI_DROPOUT && a.docs);
}

/* Positions first .. first + ROWS - 1 of a head into a tile; zeros past the end. */
template <typename T, int D, int ROWS>
static __device__ __forceinline__ void tri_load_tile(uint32_t tile, const T *head, int64_t step,
                                                     int first, int num_pos)
{
    enum { PIECES = D / 8, ROWS_AT_ONCE = TRI_THREADS / PIECES };
    static_assert(ROWS_AT_ONCE % 8 == 0 && ROWS % ROWS_AT_ONCE == 0, "equal row % 8 for a thread");
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    uint32_t to = tile + row * D * 2 + ((piece ^ (row & 7)) << 4);
    const T *from = head + (first + row) * step + piece * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += ROWS_AT_ONCE) {
        tri_copy16(to + i * D * 2, from, first + row + i < num_pos);
        from += ROWS_AT_ONCE * step;
    }
}

/* num <= TRI_THREADS numbers of 4 bytes; zeros past the end. Threads from first_thread on copy. */
static __device__ __forceinline__ void tri_load_numbers(uint32_t to, const void *from, int first,
                                                        int num, int num_pos, int first_thread)
{
    int i = (int)threadIdx.x - first_thread;
    if (i < 0 || i >= num)
        return;
    tri_copy4(to + i * 4, (const uint32_t *)from + first + i, first + i < num_pos);
}

/* Where this lane's row lies when ldmatrix reads 16 rows and two pieces: as a left operand [m][k],
 * or a right one [k][n] (transposed on the way); or as a right operand [n][k]. */
template <int D> struct tri_lane {
    uint32_t row_bytes, swizzle;

    static __device__ __forceinline__ tri_lane left_or_trans()
    {
        uint32_t lane = threadIdx.x & 31;
        return {(lane & 15) * D * 2, ((lane >> 4) ^ (lane & 7)) << 4};
    }
    static __device__ __forceinline__ tri_lane right()
    {
        uint32_t lane = threadIdx.x & 31;
        return {((lane & 7) + (lane >> 4) * 8) * D * 2, ((lane >> 3 & 1) ^ (lane & 7)) << 4};
    }
    /* tile begins at a row that is a multiple of 8; pair: which two pieces, 16 elements. */
    __device__ __forceinline__ uint32_t at(uint32_t tile, int pair) const
    {
        return tile + row_bytes + (((uint32_t)pair << 5) ^ swizzle);
    }
};

/* The left operand of a product: 16 * MT rows of a tile, kept in registers or read each time. */
template <int D, int MT, bool KEPT> struct tri_left {
    uint32_t tile; /* the warp's first row */
    uint32_t kept[KEPT ? D / 16 : 1][MT][4];

    __device__ __forceinline__ void init(uint32_t first_row)
    {
        tile = first_row;
        if constexpr (KEPT) {
#pragma unroll
            for (int k = 0; k < D / 16; k++)
                read(kept[k], k);
        }
    }
    __device__ __forceinline__ void read(uint32_t (&to)[MT][4], int k) const
    {
        tri_lane<D> lane = tri_lane<D>::left_or_trans();
#pragma unroll
        for (int m = 0; m < MT; m++)
            tri_ldmatrix(to[m], lane.at(tile + m * 16 * D * 2, k));
    }
    __device__ __forceinline__ void get(uint32_t (&to)[MT][4], int k) const
    {
        if constexpr (KEPT) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    to[m][i] = kept[k][m][i];
        } else {
            read(to, k);
        }
    }
};

template <int MT, int NT> static __device__ __forceinline__ void tri_clear(float (&c)[MT][NT][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

/* c[m][n] = sum over k of left[m][k] right[n][k]: right is 8 * NT rows of a tile. */
template <typename T, int D, int MT, int NT, bool KEPT>
static __device__ __forceinline__ void
tri_times_rows(float (&c)[MT][NT][4], const tri_left<D, MT, KEPT> &left, uint32_t right)
{
    tri_lane<D> lane = tri_lane<D>::right();
    tri_clear(c);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[MT][4];
        left.get(a, k);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            tri_ldmatrix(b, lane.at(right + n * 8 * D * 2, k));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                tri_mma(T(), c[m][n], a[m], b[0], b[1]);
                tri_mma(T(), c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* c[m][d] += sum over k of left[m][k] right[k][d]: left is 8 * NT columns of results, rounded;
 * right is as many rows of a tile. */
template <typename T, int D, int MT, int NT>
static __device__ __forceinline__ void
tri_add_product(float (&c)[MT][D / 8][4], const float (&left)[MT][NT][4], uint32_t right)
{
    tri_lane<D> lane = tri_lane<D>::left_or_trans();
#pragma unroll
    for (int k = 0; k < NT / 2; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = tri_pack(T(), left[m][2 * k + i / 2][i % 2 * 2],
                                   left[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];
            tri_ldmatrix_trans(b, lane.at(right + k * 16 * D * 2, d));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                tri_mma(T(), c[m][2 * d], a[m], b[0], b[1]);
                tri_mma(T(), c[m][2 * d + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* The warp's rows row0 + 16 m + r (+ 8) of D numbers, times factor[m][0] (or [1]). */
template <typename T, int D, int MT>
static __device__ __forceinline__ void tri_store_rows(T *head, int64_t step, int row0, int num_pos,
                                                      const float (&c)[MT][D / 8][4],
                                                      const float (&factor)[MT][2])
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = row0 + m * 16 + half * 8 + lane / 4;
            if (row >= num_pos)
                continue;
            T *to = head + row * step + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(uint32_t *)(to + n * 8) = tri_pack(T(), c[m][n][half * 2] * factor[m][half],
                                                     c[m][n][half * 2 + 1] * factor[m][half]);
        }
    }
}

/* --- Masks ---------------------------------------------------------------------------------- */

/* Documents of the rows of a lane, which are positions from row0 on. */
template <int MT> struct tri_row_docs {
    int32_t id[MT][2];

    __device__ __forceinline__ void init(const tri_attention_call &a, const int32_t *docs, int row0)
    {
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = row0 + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
                id[m][half] = docs && row < a.num_pos ? docs[row] : -1;
            }
        }
    }
};

/* Gives what is not seen the value `hidden`. Rows are queries and columns keys, or the other way
 * round where KEYS_FIRST. docs: of the columns, in shared memory, or NULL. */
template <bool KEYS_FIRST, int MT, int NT>
static __device__ __forceinline__ void
tri_hide(const tri_attention_call &a, float (&c)[MT][NT][4], const tri_row_docs<MT> &row_docs,
         const int32_t *docs, int row0, int column0, float hidden)
{
    int lane = threadIdx.x & 31, pair = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        tri_span span[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = row0 + m * 16 + half * 8 + lane / 4;
            span[half] = KEYS_FIRST ? tri_queries_of(a, row) : tri_keys_of(a, row);
            if (docs && row_docs.id[m][half] < 0)
                span[half].num = 0;
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int2 doc = docs ? *(const int2 *)(docs + n * 8 + pair) : make_int2(0, 0);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = tri_within(span[i / 2], column0 + n * 8 + pair + i % 2);
                if (docs)
                    seen = seen && row_docs.id[m][i / 2] == (i % 2 ? doc.y : doc.x);
                c[m][n][i] = seen ? c[m][n][i] : hidden;
            }
        }
    }
}

/* Which of a lane's four elements of a 16 x 8 piece dropout keeps. Rows are queries from row0,
 * columns keys from column0. Where T is a multiple of 4, a block of random words is four keys of a
 * query, which two lanes share: one computes row r, the other row r + 8. */
static __device__ __forceinline__ uint32_t tri_kept(const tri_attention_call &a, uint64_t first,
                                                    uint32_t step, int row0, int column0)
{
    int lane = threadIdx.x & 31, r = row0 + lane / 4, c = lane & 3;
    if (a.num_pos % 4 == 0) {
        int row = r + (c & 1) * 8, column = column0 + (c & 2) * 2;
        uint32_t mine =
            tri_keep_block(a, (first + (uint64_t)row * (uint32_t)a.num_pos + column) >> 2, step);
        uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 1);
        return c & 1 ? other >> 2 | (mine & 12) : (mine & 3) | (other & 3) << 2;
    }
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = r + i / 2 * 8, column = column0 + c * 2 + i % 2;
        bits |= (uint32_t)tri_keep(a, first + (uint64_t)row * (uint32_t)a.num_pos + column, step)
                << i;
    }
    return bits;
}

/* The same where rows are keys and columns queries. A block of words is then four rows, which four
 * lanes share: each computes one of the four (column, half) and gets the rest from the others. */
static __device__ __forceinline__ uint32_t tri_kept_trans(const tri_attention_call &a,
                                                          uint64_t first, uint32_t step, int row0,
                                                          int column0)
{
    int lane = threadIdx.x & 31, r = lane / 4, c = lane & 3;
    if (a.num_pos % 4 == 0) {
        int turn = r & 3, query = column0 + c * 2 + (turn & 1);
        int key = row0 + (r & 4) + turn / 2 * 8;
        uint32_t all =
            tri_keep_block(a, (first + (uint64_t)query * (uint32_t)a.num_pos + key) >> 2, step)
            << 4 * turn;
        all |= __shfl_xor_sync(0xffffffffu, all, 4);
        all |= __shfl_xor_sync(0xffffffffu, all, 8);
        all >>= turn;
        return (all & 1) | (all >> 3 & 2) | (all >> 6 & 4) | (all >> 9 & 8);
    }
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int query = column0 + c * 2 + i % 2, key = row0 + r + i / 2 * 8;
        bits |= (uint32_t)tri_keep(a, first + (uint64_t)query * (uint32_t)a.num_pos + key, step)
                << i;
    }
    return bits;
}

/* Smallest and largest document of num positions; the same in all lanes. */
static __device__ __forceinline__ int2 tri_docs_range(const int32_t *docs, int first, int num,
                                                      int num_pos)
{
    int low = INT32_MAX, high = -1;
    for (int i = first + (threadIdx.x & 31); i < min(first + num, num_pos); i += 32) {
        low = docs[i] < 0 ? low : min(low, docs[i]);
        high = max(high, docs[i]);
    }
    return make_int2(__reduce_min_sync(0xffffffffu, low), __reduce_max_sync(0xffffffffu, high));
}

/* Cuts tiles that have no document in common with the block's own positions from both ends of
 * begin .. end - 1. All threads of the block call it. */
static __device__ __forceinline__ void tri_narrow(const int32_t *docs, int num_pos, int own0,
                                                  int own_rows, int rows, int *begin, int *end)
{
    __shared__ int found[2]; /* first tile, last tile */
    if (threadIdx.x == 0) {
        found[0] = INT32_MAX;
        found[1] = -1;
    }
    __syncthreads();
    int2 own = tri_docs_range(docs, own0, own_rows, num_pos);
    for (int tile = *begin + (int)threadIdx.x / 32; tile < *end; tile += TRI_WARPS) {
        int2 other = tri_docs_range(docs, tile * rows, rows, num_pos);
        if (max(own.x, other.x) <= min(own.y, other.y) && threadIdx.x % 32 == 0) {
            atomicMin(&found[0], tile);
            atomicMax(&found[1], tile);
        }
    }
    __syncthreads();
    *begin = min(found[0], *end);
    *end = found[1] + 1;
}

#endif
