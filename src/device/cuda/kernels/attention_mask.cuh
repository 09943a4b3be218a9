/* Masks of a piece of scores on tensor cores: who sees whom, which tiles are worth a look, what
 * dropout keeps, the soft cap. Lanes hold scores as attention_tile.cuh says.
 *
 * In a call by places, what masks need to know of a tile's positions lies beside it in shared
 * memory (the marks), and so does what is known of the block's own positions. */
#ifndef TRI_DEVICE_CUDA_KERNELS_ATTENTION_MASK_CUH
#define TRI_DEVICE_CUDA_KERNELS_ATTENTION_MASK_CUH

#include "device/cuda/kernels/attention_tile.cuh"

/* --- Marks ---------------------------------------------------------------------------------- */

/* Of keys: bounds of their groups, places, documents. */
template <int ROWS> struct tri_key_marks {
    alignas(16) int2 bounds[ROWS / TRI_GROUP];
    alignas(16) int32_t place[ROWS];
    alignas(16) int32_t doc[ROWS];
};

/* Of queries, with their intervals. */
template <int ROWS> struct tri_query_marks {
    int4 bounds[ROWS / TRI_GROUP];
    alignas(16) int2 interval[ROWS];
    alignas(16) int32_t doc[ROWS];
};

/* The place of a key that is not there: nobody sees it. */
static __device__ const int32_t tri_nowhere = INT32_MAX;

static __device__ __forceinline__ void tri_load_doc(const tri_attention_call &a, int32_t *to, int b,
                                                    int at)
{
    if (a.docs) /* as many queries as keys */
        tri_copy4(tri_shared_address(to), a.docs + (int64_t)b * a.num_keys + at, at < a.num_keys);
}

/* Marks of the keys from `first` on, a multiple of ROWS. */
template <int ROWS>
static __device__ __forceinline__ void tri_load_marks(const tri_attention_call &a,
                                                      tri_key_marks<ROWS> *to, int b, int first)
{
    static_assert(ROWS <= TRI_THREADS, "a thread for each");
    int i = threadIdx.x, j = first + i;
    if (i >= ROWS)
        return;
    const int32_t *place = a.k_places + (int64_t)b * a.num_keys + j;
    if (a.k_places)
        tri_copy4(tri_shared_address(&to->place[i]), j < a.num_keys ? place : &tri_nowhere, true);
    else
        to->place[i] = j < a.num_keys ? j : INT32_MAX;
    tri_load_doc(a, &to->doc[i], b, j);
    if (i < ROWS / TRI_GROUP)
        tri_copy8(tri_shared_address(&to->bounds[i]),
                  a.key_bounds + (int64_t)b * a.k_groups + first / TRI_GROUP + i, true);
}

/* The same of queries; one that is not there sees nothing. */
template <int ROWS>
static __device__ __forceinline__ void tri_load_marks(const tri_attention_call &a,
                                                      tri_query_marks<ROWS> *to, int b, int first)
{
    static_assert(ROWS <= TRI_THREADS, "a thread for each");
    int i = threadIdx.x, at = first + i;
    if (i >= ROWS)
        return;
    tri_copy8(tri_shared_address(&to->interval[i]), a.intervals + (int64_t)b * a.num_queries + at,
              at < a.num_queries);
    tri_load_doc(a, &to->doc[i], b, at);
    if (i < ROWS / TRI_GROUP)
        tri_copy16(tri_shared_address(&to->bounds[i]),
                   a.query_bounds + (int64_t)b * a.q_groups + first / TRI_GROUP + i, true);
}

/* --- Tiles that are worth a look ------------------------------------------------------------ */

/* Goes through the tiles of a block, in their order: all from `begin` to `end` - 1 in a plain call,
 * otherwise those that meet the block's own positions. A warp tests 32 at a time; all warps of the
 * block find the same. */
template <int MODE> struct tri_walk {
    int at, end;   /* plain: the last one; otherwise the first of the 32 in hand */
    uint32_t todo; /* of these */

    __device__ __forceinline__ void init(int begin, int end_)
    {
        at = MODE == TRI_PLAIN ? begin - 1 : -32;
        end = end_;
        todo = 0;
    }
    /* The next tile, or one >= end. */
    template <class F> __device__ __forceinline__ int next(F meets)
    {
        if constexpr (MODE == TRI_PLAIN) {
            return ++at;
        } else {
            while (todo == 0) {
                at += 32;
                if (at >= end)
                    return end;
                int tile = at + (threadIdx.x & 31);
                todo = __ballot_sync(0xffffffffu, tile < end && meets(tile));
            }
            int tile = at + __ffs((int)todo) - 1;
            todo &= todo - 1;
            return tile;
        }
    }
};

/* --- Who sees whom -------------------------------------------------------------------------- */

/* Gives what is not seen the value `hidden`, in a plain call. Rows are queries and columns keys, or
 * the other way round where KEYS_FIRST. */
template <bool KEYS_FIRST, int MT, int NT>
static __device__ __forceinline__ void tri_hide(const tri_attention_call &a, float (&c)[MT][NT][4],
                                                int row0, int column0, float hidden)
{
    int lane = threadIdx.x & 31, pair = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        tri_span span[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = row0 + m * 16 + half * 8 + lane / 4;
            span[half] = KEYS_FIRST ? tri_queries_of(a, row) : tri_keys_of(a, row);
        }
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (!tri_within(span[i / 2], column0 + n * 8 + pair + i % 2))
                    c[m][n][i] = hidden;
    }
}

/* The same in a call by places. Rows are queries, from own->interval[row0] on; columns are keys,
 * from keys->place[column0] on. */
template <int MT, int NT, int ROWS, int COLUMNS>
static __device__ __forceinline__ void
tri_hide_keys(const tri_attention_call &a, float (&c)[MT][NT][4], const tri_query_marks<ROWS> *own,
              int row0, const tri_key_marks<COLUMNS> *keys, int column0, float hidden)
{
    int lane = threadIdx.x & 31, pair = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        int2 span[2];
        int doc[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = row0 + m * 16 + half * 8 + lane / 4;
            span[half] = own->interval[row];
            doc[half] = a.docs ? own->doc[row] : 0;
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int column = column0 + n * 8 + pair;
            int2 place = *(const int2 *)(keys->place + column);
            int2 of = a.docs ? *(const int2 *)(keys->doc + column) : make_int2(0, 0);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = i % 2 ? place.y : place.x;
                bool seen = at >= span[i / 2].x && at < span[i / 2].y &&
                            doc[i / 2] == (i % 2 ? of.y : of.x);
                c[m][n][i] = seen ? c[m][n][i] : hidden;
            }
        }
    }
}

/* The same with 16 keys as rows, and queries as columns. */
template <int NT, int ROWS, int COLUMNS>
static __device__ __forceinline__ void
tri_hide_queries(const tri_attention_call &a, float (&c)[1][NT][4], const tri_key_marks<ROWS> *own,
                 int row0, const tri_query_marks<COLUMNS> *queries, int column0, float hidden)
{
    int lane = threadIdx.x & 31, pair = lane % 4 * 2;
    int place[2], doc[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        place[half] = own->place[row0 + half * 8 + lane / 4];
        doc[half] = a.docs ? own->doc[row0 + half * 8 + lane / 4] : 0;
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        int column = column0 + n * 8 + pair;
        int4 span = *(const int4 *)(queries->interval + column);
        int2 of = a.docs ? *(const int2 *)(queries->doc + column) : make_int2(0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool seen = place[i / 2] >= (i % 2 ? span.z : span.x) &&
                        place[i / 2] < (i % 2 ? span.w : span.y) &&
                        doc[i / 2] == (i % 2 ? of.y : of.x);
            c[0][n][i] = seen ? c[0][n][i] : hidden;
        }
    }
}

/* --- Soft cap ------------------------------------------------------------------------------- */

/* Scores become powers of 2, at most cap_out. tanh(x) = 1 - 2 / (1 + e^2x), to some 2^-22. */
template <int MT, int NT>
static __device__ __forceinline__ void tri_cap(const tri_attention_call &a, float (&c)[MT][NT][4])
{
    float scale = 2 * TRI_LOG2_E * a.cap_in;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = a.cap_out * (1 - __fdividef(2, 1 + tri_exp2(c[m][n][i] * scale)));
}

/* The slope of the cap where it gave the probability p. The capped score is taken from p: it would
 * cost registers to keep it. */
static __device__ __forceinline__ float tri_cap_slope(const tri_attention_call &a, float p,
                                                      float lse2)
{
    float t = __fdividef(__log2f(p) + lse2, a.cap_out);
    return p > 0 ? 1 - t * t : 0;
}

/* --- Dropout -------------------------------------------------------------------------------- */

/* The index of a probability; what is not there may have any. */
static __device__ __forceinline__ uint64_t tri_index(const tri_attention_call &a, int b,
                                                     uint64_t first, int query, int key)
{
    int place = tri_query_place(a, b, min(query, a.num_queries - 1));
    return tri_row_index(a, first, place) + tri_key_place(a, b, min(key, a.num_keys - 1));
}

/* Four neighbours of a row share a block of random words. */
static __device__ __forceinline__ bool tri_fours(const tri_attention_call &a)
{
    return !a.k_places && a.key_global % 4 == 0;
}

/* Which of a lane's four elements of a 16 x 8 piece dropout keeps. Rows are queries from row0,
 * columns keys from column0. A block of random words that is four keys of a query is two lanes'
 * own: one computes row r, the other row r + 8. */
static __device__ __forceinline__ uint32_t tri_kept(const tri_attention_call &a, int b,
                                                    uint64_t first, uint32_t step, int row0,
                                                    int column0)
{
    int lane = threadIdx.x & 31, r = row0 + lane / 4, c = lane & 3;
    if (tri_fours(a)) {
        int row = r + (c & 1) * 8, column = column0 + (c & 2) * 2;
        int place = tri_query_place(a, b, min(row, a.num_queries - 1));
        uint32_t mine = tri_keep_block(a, (tri_row_index(a, first, place) + column) >> 2, step);
        uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 1);
        return c & 1 ? other >> 2 | (mine & 12) : (mine & 3) | (other & 3) << 2;
    }
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = r + i / 2 * 8, column = column0 + c * 2 + i % 2;
        bits |= (uint32_t)tri_keep(a, tri_index(a, b, first, row, column), step) << i;
    }
    return bits;
}

/* The same where rows are keys and columns queries. A block of words is then four rows, which four
 * lanes share: each computes one of the four (column, half) and gets the rest from the others. */
static __device__ __forceinline__ uint32_t tri_kept_trans(const tri_attention_call &a, int b,
                                                          uint64_t first, uint32_t step, int row0,
                                                          int column0)
{
    int lane = threadIdx.x & 31, r = lane / 4, c = lane & 3;
    if (tri_fours(a)) {
        int turn = r & 3, query = column0 + c * 2 + (turn & 1);
        int key = row0 + (r & 4) + turn / 2 * 8;
        int place = tri_query_place(a, b, min(query, a.num_queries - 1));
        uint32_t all = tri_keep_block(a, (tri_row_index(a, first, place) + key) >> 2, step)
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
        bits |= (uint32_t)tri_keep(a, tri_index(a, b, first, query, key), step) << i;
    }
    return bits;
}

#endif
