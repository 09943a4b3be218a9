/* Tiles of attention for tensor cores: how they lie in shared memory and how they are multiplied.
 * attention_mask.cuh has the masks.
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

#endif
