/* The backward of attention on tensor cores: bf16 and f16, head sizes 64 and 128.
 *
 * Two kernels, each of which owns what it writes:
 *
 *   key_grad    owns 64 keys, 16 to a warp, and goes through the queries that see them, of every
 *               head that shares them, 64 at a time. Scores are computed with the keys as rows:
 *               then p and ds of a warp are already the left operands of
 *                   dv += p do       dk += ds q
 *               and need no way through shared memory.
 *   query_grad  owns 128 queries (64 for a head size of 128) and goes through their keys:
 *                   dq += ds k
 *
 * Queries past the end are zeros: q = do = 0, lse2 = delta = 0, so p = 1 and ds = 0, and they add
 * nothing. Keys past the end are masked in query_grad; in key_grad they are rows of their own,
 * which are not written. In a call by places a query past the end sees nothing. */
#include "device/cuda/kernels/attention_mask.cuh"

enum { TILE_ROWS = 64 }; /* of what a block goes through */

/* --- dk and dv ------------------------------------------------------------------------------ */

/* How a block works: so many queries at a time in registers, so many blocks to a processor, whether
 * k and v stay in registers; then where things lie in shared memory: keys and values of the block,
 * two buffers of q, do, lse2, delta; and the marks of both. */
template <int D_, int CHUNK_, int BLOCKS_, bool KEEP_> struct key_plan {
    enum {
        D = D_,
        CHUNK = CHUNK_,
        BLOCKS = BLOCKS_,
        KEEP = KEEP_,
        TILE = TILE_ROWS * D * 2,
        K = 0,
        V = TILE,
        Q = 2 * TILE,
        DO = Q + 2 * TILE,
        LSE2 = DO + 2 * TILE,
        DELTA = LSE2 + 2 * TILE_ROWS * 4,
        OWN_MARKS = DELTA + 2 * TILE_ROWS * 4,
        MARKS = OWN_MARKS + (int)sizeof(tri_key_marks<TILE_ROWS>),
        BYTES = MARKS + 2 * (int)sizeof(tri_query_marks<TILE_ROWS>)
    };
    typedef tri_key_marks<TILE_ROWS> own_marks;
    typedef tri_query_marks<TILE_ROWS> marks;
};

typedef key_plan<64, 32, 3, true> key_plan_64;
typedef key_plan<128, 32, 2, false> key_plan_128;

template <typename T, class at, int MODE>
static __device__ __forceinline__ void
load_queries(const tri_attention_call &a, unsigned char *memory, int b, int h, int tile, int buffer)
{
    uint32_t shared = tri_shared_address(memory);
    int i0 = tile * TILE_ROWS;
    int64_t stats = ((int64_t)b * a.heads + h) * a.num_queries;
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::Q + buffer * at::TILE,
                                       (const T *)a.q + tri_start(a.q_lay, b, h), a.q_lay.step, i0,
                                       a.num_queries);
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::DO + buffer * at::TILE,
                                       (const T *)a.dout + tri_start(a.o_lay, b, h), a.o_lay.step,
                                       i0, a.num_queries);
    tri_load_numbers(shared + at::LSE2 + buffer * TILE_ROWS * 4, a.lse2 + stats, i0, TILE_ROWS,
                     a.num_queries, 0);
    tri_load_numbers(shared + at::DELTA + buffer * TILE_ROWS * 4, a.delta + stats, i0, TILE_ROWS,
                     a.num_queries, TILE_ROWS);
    if (MODE != TRI_PLAIN)
        tri_load_marks(a, (typename at::marks *)(memory + at::MARKS) + buffer, b, i0);
}

/* All that was asked for is in shared memory, for all threads. */
static __device__ __forceinline__ void await_copies(void)
{
    tri_copy_wait();
    __syncthreads();
}

/* p of scores whose columns are queries. */
template <int NT>
static __device__ __forceinline__ void column_softmax(float (&s)[1][NT][4], const float *lse2,
                                                      float scale)
{
    int pair = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float2 base = *(const float2 *)(lse2 + n * 8 + pair);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[0][n][i] = tri_exp2(fmaf(s[0][n][i], scale, -(i % 2 ? base.y : base.x)));
    }
}

/* dp becomes ds = p (m dp - delta), times the slope of the cap; and p becomes m p but for the scale
 * of dropout, which dv gets at the end. */
template <int MODE, int NT>
static __device__ __forceinline__ void
column_scores_grad(const tri_attention_call &a, float (&p)[1][NT][4], float (&dp)[1][NT][4],
                   const float *lse2, const float *delta, int b, int h, int row0, int column0)
{
    int pair = (threadIdx.x & 3) * 2;
    bool drops = MODE == TRI_EXTRA && a.dropout > 0, caps = MODE == TRI_EXTRA && a.cap_out > 0;
    uint64_t first = drops ? tri_first_index(a, b, h) : 0;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float2 less = *(const float2 *)(delta + n * 8 + pair);
        float2 base = caps ? *(const float2 *)(lse2 + n * 8 + pair) : make_float2(0, 0);
        uint32_t kept =
            drops ? tri_kept_trans(a, b, first, (uint32_t)a.step[0], row0, column0 + n * 8) : 15;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float d = dp[0][n][i];
            if (drops)
                d = kept >> i & 1 ? d * a.keep_scale : 0;
            dp[0][n][i] = p[0][n][i] * (d - (i % 2 ? less.y : less.x));
            if (caps)
                dp[0][n][i] *= tri_cap_slope(a, p[0][n][i], i % 2 ? base.y : base.x);
            if (drops)
                p[0][n][i] = kept >> i & 1 ? p[0][n][i] : 0;
        }
    }
}

/* The keys and values of a block. */
template <typename T, class at, int MODE>
static __device__ __forceinline__ void load_own_keys(const tri_attention_call &a,
                                                     unsigned char *memory, int b, int g, int j0)
{
    uint32_t shared = tri_shared_address(memory);
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::K, (const T *)a.k + tri_start(a.k_lay, b, g),
                                       a.k_lay.step, j0, a.num_keys);
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::V, (const T *)a.v + tri_start(a.v_lay, b, g),
                                       a.v_lay.step, j0, a.num_keys);
    if (MODE != TRI_PLAIN)
        tri_load_marks(a, (typename at::own_marks *)(memory + at::OWN_MARKS), b, j0);
}

/* Probabilities of a warp's 16 keys, from row0 on, for the queries from column0 on, which are the
 * part of a tile that begins at `part`; false if none is seen. The block's keys begin at j0. */
template <typename T, class at, int MODE>
static __device__ __forceinline__ bool
column_probabilities(const tri_attention_call &a, const unsigned char *memory, int j0, int row0,
                     int column0, int part, int buffer, const tri_left<at::D, 1, at::KEEP> &k,
                     float (&p)[1][at::CHUNK / 8][4])
{
    static_assert(at::CHUNK == TRI_GROUP, "a part has bounds");
    const float *lse2 = (const float *)(memory + at::LSE2) + buffer * TILE_ROWS + part;
    uint32_t q = tri_shared_address(memory) + at::Q + buffer * at::TILE + part * at::D * 2;
    if constexpr (MODE == TRI_PLAIN) {
        if (a.causal && column0 + at::CHUNK <= row0)
            return false; /* before all of these keys */
        tri_times_rows<T, at::D>(p, k, q);
        column_softmax(p, lse2, a.alpha2);
        bool whole = (!a.causal || column0 >= row0 + 15) &&
                     (a.window == 0 || column0 + at::CHUNK - 1 - row0 < a.window);
        if (!whole)
            tri_hide<true>(a, p, row0, column0, 0);
    } else {
        const auto *own = (const typename at::own_marks *)(memory + at::OWN_MARKS);
        const auto *queries = (const typename at::marks *)(memory + at::MARKS) + buffer;
        int4 seen = queries->bounds[part / TRI_GROUP];
        int2 there = own->bounds[(row0 - j0) / TRI_GROUP];
        if (!tri_may_see(seen, there))
            return false;
        tri_times_rows<T, at::D>(p, k, q);
        if (MODE == TRI_EXTRA && a.cap_out > 0)
            tri_cap(a, p);
        column_softmax(p, lse2, a.alpha2);
        if (a.docs || !tri_all_see(seen, there))
            tri_hide_queries(a, p, own, row0 - j0, queries, part, 0);
    }
    return true;
}

template <typename T, class at, int MODE>
static __global__ void
__launch_bounds__(TRI_THREADS, MODE == TRI_EXTRA ? 2 : at::BLOCKS) /* masks take registers */
    key_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    enum { D = at::D, NT = at::CHUNK / 8 };
    uint32_t shared = tri_shared_address(memory);
    int tiles = (a.num_keys + TILE_ROWS - 1) / TILE_ROWS, j0 = (int)blockIdx.x % tiles * TILE_ROWS;
    int g = (int)blockIdx.x / tiles % a.key_heads, b = (int)blockIdx.x / tiles / a.key_heads;
    int warp = threadIdx.x / 32, row0 = j0 + warp * 16;
    int begin = 0, end = (a.num_queries + TILE_ROWS - 1) / TILE_ROWS;
    if (MODE == TRI_PLAIN)
        tri_query_tiles(a, j0, TILE_ROWS, TILE_ROWS, &begin, &end);
    tri_walk<MODE> walk;
    walk.init(begin, end);
    auto meets = [&](int tile) {
        return tri_tiles_meet(a, b, tile * TILE_ROWS, TILE_ROWS, j0, TILE_ROWS);
    };
    int h = g * a.group, tile = walk.next(meets);
    load_own_keys<T, at, MODE>(a, memory, b, g, j0);
    if (tile < end)
        load_queries<T, at, MODE>(a, memory, b, h, tile, 0);
    await_copies();

    tri_left<D, 1, at::KEEP> k, v;
    k.init(shared + at::K + warp * 16 * D * 2);
    v.init(shared + at::V + warp * 16 * D * 2);
    float dk[1][D / 8][4], dv[1][D / 8][4];
    tri_clear(dk);
    tri_clear(dv);

    for (int buffer = 0; tile < end; buffer ^= 1) {
        int next_head = h, next = walk.next(meets);
        if (next >= end && ++next_head < (g + 1) * a.group) { /* the same tiles of another head */
            walk.init(begin, end);
            next = walk.next(meets);
        }
        if (next < end)
            load_queries<T, at, MODE>(a, memory, b, next_head, next, buffer ^ 1);
        const float *lse2 = (const float *)(memory + at::LSE2) + buffer * TILE_ROWS;
        const float *delta = (const float *)(memory + at::DELTA) + buffer * TILE_ROWS;
        uint32_t tiles_at = shared + buffer * at::TILE; /* of q and do */
#pragma unroll 1
        for (int part = 0; part < TILE_ROWS; part += at::CHUNK) {
            int c0 = tile * TILE_ROWS + part;
            float p[1][NT][4], ds[1][NT][4];
            if (!column_probabilities<T, at, MODE>(a, memory, j0, row0, c0, part, buffer, k, p))
                continue;
            tri_times_rows<T, D>(ds, v, tiles_at + at::DO + part * D * 2);
            column_scores_grad<MODE>(a, p, ds, lse2 + part, delta + part, b, h, row0, c0);
            tri_add_product<T, D>(dv, p, tiles_at + at::DO + part * D * 2);
            tri_add_product<T, D>(dk, ds, tiles_at + at::Q + part * D * 2);
        }
        await_copies();
        h = next_head;
        tile = next;
    }
    const float scale_k[1][2] = {{a.alpha, a.alpha}};
    const float scale_v[1][2] = {{a.keep_scale, a.keep_scale}};
    tri_store_rows<T, D, 1>((T *)a.dk + tri_start(a.k_lay, b, g), a.k_lay.step, row0, a.num_keys,
                            dk, scale_k);
    tri_store_rows<T, D, 1>((T *)a.dv + tri_start(a.v_lay, b, g), a.v_lay.step, row0, a.num_keys,
                            dv, scale_v);
}

/* --- dq ------------------------------------------------------------------------------------- */

/* The same for this kernel: MT * 16 queries to a warp, so many keys at a time in registers; shared
 * memory holds q and do of the block, two buffers of keys and values, and the marks of both. */
template <int D_, int MT_, int CHUNK_, int BLOCKS_, bool KEEP_> struct query_plan {
    enum {
        D = D_,
        MT = MT_,
        CHUNK = CHUNK_,
        BLOCKS = BLOCKS_,
        KEEP = KEEP_,
        QUERIES = 16 * MT * TRI_WARPS,
        TILE = TILE_ROWS * D * 2,
        Q = 0,
        DO = QUERIES * D * 2,
        K = 2 * DO,
        V = K + 2 * TILE,
        OWN_MARKS = V + 2 * TILE,
        MARKS = OWN_MARKS + (int)sizeof(tri_query_marks<QUERIES>),
        BYTES = MARKS + 2 * (int)sizeof(tri_key_marks<TILE_ROWS>)
    };
    typedef tri_query_marks<QUERIES> own_marks;
    typedef tri_key_marks<TILE_ROWS> marks;
};

typedef query_plan<64, 2, 32, 2, true> query_plan_64;
typedef query_plan<128, 1, 64, 2, false> query_plan_128;

template <typename T, class at, int MODE>
static __device__ __forceinline__ void load_keys(const tri_attention_call &a, unsigned char *memory,
                                                 const T *k, const T *v, int b, int tile,
                                                 int buffer)
{
    uint32_t to = tri_shared_address(memory) + buffer * at::TILE;
    int j0 = tile * TILE_ROWS;
    tri_load_tile<T, at::D, TILE_ROWS>(to + at::K, k, a.k_lay.step, j0, a.num_keys);
    tri_load_tile<T, at::D, TILE_ROWS>(to + at::V, v, a.v_lay.step, j0, a.num_keys);
    if (MODE != TRI_PLAIN)
        tri_load_marks(a, (typename at::marks *)(memory + at::MARKS) + buffer, b, j0);
}

/* The queries of a block. */
template <typename T, class at, int MODE>
static __device__ __forceinline__ void load_own_queries(const tri_attention_call &a,
                                                        unsigned char *memory, int b, int h, int i0)
{
    uint32_t shared = tri_shared_address(memory);
    tri_load_tile<T, at::D, at::QUERIES>(shared + at::Q, (const T *)a.q + tri_start(a.q_lay, b, h),
                                         a.q_lay.step, i0, a.num_queries);
    tri_load_tile<T, at::D, at::QUERIES>(shared + at::DO,
                                         (const T *)a.dout + tri_start(a.o_lay, b, h), a.o_lay.step,
                                         i0, a.num_queries);
    if (MODE != TRI_PLAIN)
        tri_load_marks(a, (typename at::own_marks *)(memory + at::OWN_MARKS), b, i0);
}

template <int MT>
static __device__ __forceinline__ void fill_scale(float (&scale)[MT][2], float factor)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
        scale[m][0] = scale[m][1] = factor;
}

/* lse2 and delta of a lane's rows. */
template <int MT> struct row_stats {
    float lse2[MT][2], delta[MT][2];

    __device__ __forceinline__ void init(const tri_attention_call &a, int b, int h, int row0)
    {
        int64_t start = ((int64_t)b * a.heads + h) * a.num_queries;
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = row0 + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
                lse2[m][half] = row < a.num_queries ? a.lse2[start + row] : INFINITY;
                delta[m][half] = row < a.num_queries ? a.delta[start + row] : 0;
            }
        }
    }
};

/* p of scores whose rows are queries. */
template <int MT, int NT>
static __device__ __forceinline__ void row_softmax(float (&p)[MT][NT][4],
                                                   const row_stats<MT> &stats, float scale)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[m][n][i] = tri_exp2(fmaf(p[m][n][i], scale, -stats.lse2[m][i / 2]));
}

/* dp becomes ds = p (m dp - delta), times the slope of the cap. */
template <int MODE, int MT, int NT>
static __device__ __forceinline__ void
row_scores_grad(const tri_attention_call &a, const float (&p)[MT][NT][4], float (&dp)[MT][NT][4],
                const row_stats<MT> &stats, int b, uint64_t first, int row0, int column0)
{
    bool drops = MODE == TRI_EXTRA && a.dropout > 0, caps = MODE == TRI_EXTRA && a.cap_out > 0;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t kept =
                drops ? tri_kept(a, b, first, (uint32_t)a.step[0], row0 + m * 16, column0 + n * 8)
                      : 15;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float d = dp[m][n][i];
                if (drops)
                    d = kept >> i & 1 ? d * a.keep_scale : 0;
                dp[m][n][i] = p[m][n][i] * (d - stats.delta[m][i / 2]);
                if (caps)
                    dp[m][n][i] *= tri_cap_slope(a, p[m][n][i], stats.lse2[m][i / 2]);
            }
        }
    }
}

/* Probabilities of a warp's queries, from row0 on, for the keys from column0 on, which are the part
 * of a tile that begins at `part`; false if none is seen. The block's queries begin at i0. */
template <typename T, class at, int MODE>
static __device__ __forceinline__ bool
row_probabilities(const tri_attention_call &a, const unsigned char *memory, int i0, int row0,
                  int column0, int part, int buffer, const tri_left<at::D, at::MT, at::KEEP> &q,
                  const row_stats<at::MT> &stats, float (&p)[at::MT][at::CHUNK / 8][4])
{
    enum { ROWS = 16 * at::MT };
    uint32_t k = tri_shared_address(memory) + at::K + buffer * at::TILE + part * at::D * 2;
    if constexpr (MODE == TRI_PLAIN) {
        if (column0 >= a.num_keys || (a.causal && column0 >= row0 + ROWS))
            return false; /* behind all of these queries */
        tri_times_rows<T, at::D>(p, q, k);
        row_softmax(p, stats, a.alpha2);
        bool whole = column0 + at::CHUNK <= a.num_keys &&
                     (!a.causal || column0 + at::CHUNK - 1 <= row0) &&
                     (a.window == 0 || column0 > row0 + ROWS - 1 - a.window);
        if (!whole)
            tri_hide<false>(a, p, row0, column0, 0);
    } else {
        const auto *own = (const typename at::own_marks *)(memory + at::OWN_MARKS);
        const auto *keys = (const typename at::marks *)(memory + at::MARKS) + buffer;
        int4 seen = own->bounds[(row0 - i0) / TRI_GROUP];
        int2 there = tri_low_high(keys->bounds + part / TRI_GROUP, at::CHUNK);
        if (!tri_may_see(seen, there))
            return false;
        tri_times_rows<T, at::D>(p, q, k);
        if (MODE == TRI_EXTRA && a.cap_out > 0)
            tri_cap(a, p);
        row_softmax(p, stats, a.alpha2);
        if (a.docs || !tri_all_see(seen, there))
            tri_hide_keys(a, p, own, row0 - i0, keys, part, 0);
    }
    return true;
}

template <typename T, class at, int MODE>
static __global__ void __launch_bounds__(TRI_THREADS, at::BLOCKS)
    query_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    enum { D = at::D, MT = at::MT, NT = at::CHUNK / 8 };
    uint32_t shared = tri_shared_address(memory);
    int tiles = (a.num_queries + at::QUERIES - 1) / at::QUERIES;
    int i0 = (tiles - 1 - (int)blockIdx.x % tiles) * at::QUERIES;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int warp = threadIdx.x / 32, row0 = i0 + warp * 16 * MT;
    const T *k = (const T *)a.k + tri_start(a.k_lay, b, h / a.group);
    const T *v = (const T *)a.v + tri_start(a.v_lay, b, h / a.group);
    uint64_t first = MODE == TRI_EXTRA && a.dropout > 0 ? tri_first_index(a, b, h) : 0;

    int begin = 0, end = (a.num_keys + TILE_ROWS - 1) / TILE_ROWS;
    if (MODE == TRI_PLAIN)
        tri_key_tiles(a, i0, at::QUERIES, TILE_ROWS, &begin, &end);
    tri_walk<MODE> walk;
    walk.init(begin, end);
    auto meets = [&](int tile) {
        return tri_tiles_meet(a, b, i0, at::QUERIES, tile * TILE_ROWS, TILE_ROWS);
    };
    int tile = walk.next(meets);
    load_own_queries<T, at, MODE>(a, memory, b, h, i0);
    if (tile < end)
        load_keys<T, at, MODE>(a, memory, k, v, b, tile, 0);
    await_copies();

    tri_left<D, MT, at::KEEP> q, dout;
    q.init(shared + at::Q + warp * 16 * MT * D * 2);
    dout.init(shared + at::DO + warp * 16 * MT * D * 2);
    row_stats<MT> stats;
    stats.init(a, b, h, row0);
    float dq[MT][D / 8][4], scale[MT][2];
    fill_scale(scale, a.alpha);
    tri_clear(dq);

    for (int buffer = 0; tile < end; buffer ^= 1) {
        int j0 = tile * TILE_ROWS;
        tile = walk.next(meets);
        if (tile < end)
            load_keys<T, at, MODE>(a, memory, k, v, b, tile, buffer ^ 1);
        uint32_t tiles_at = shared + buffer * at::TILE; /* of k and v */
#pragma unroll 1
        for (int part = 0; part < TILE_ROWS; part += at::CHUNK) {
            float p[MT][NT][4], ds[MT][NT][4];
            if (!row_probabilities<T, at, MODE>(a, memory, i0, row0, j0 + part, part, buffer, q,
                                                stats, p))
                continue;
            tri_times_rows<T, D>(ds, dout, tiles_at + at::V + part * D * 2);
            row_scores_grad<MODE>(a, p, ds, stats, b, first, row0, j0 + part);
            tri_add_product<T, D>(dq, ds, tiles_at + at::K + part * D * 2);
        }
        await_copies();
    }
    tri_store_rows<T, D, MT>((T *)a.dq + tri_start(a.q_lay, b, h), a.q_lay.step, row0,
                             a.num_queries, dq, scale);
}

/* --- Launch --------------------------------------------------------------------------------- */

template <typename T, class keys, class queries, int MODE>
static void launch_both(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t key_blocks = (int64_t)a->num_batch * a->key_heads * tri_tiles(a->num_keys, TILE_ROWS);
    int64_t query_blocks =
        (int64_t)a->num_batch * a->heads * tri_tiles(a->num_queries, queries::QUERIES);
    tri_attention_launch(key_grad<T, keys, MODE>, key_blocks, TRI_THREADS, keys::BYTES, stream, a);
    tri_attention_launch(query_grad<T, queries, MODE>, query_blocks, TRI_THREADS, queries::BYTES,
                         stream, a);
}

template <typename T, class keys, class queries>
static void launch(const tri_attention_call *a, cudaStream_t stream)
{
    if (a->mode == TRI_PLAIN)
        launch_both<T, keys, queries, TRI_PLAIN>(a, stream);
    else if (a->mode == TRI_PLACES)
        launch_both<T, keys, queries, TRI_PLACES>(a, stream);
    else
        launch_both<T, keys, queries, TRI_EXTRA>(a, stream);
}

void tri_attention_mma_grad(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream)
{
    if (dtype == TRI_BF16 && a->width == 64)
        launch<__nv_bfloat16, key_plan_64, query_plan_64>(a, stream);
    else if (dtype == TRI_BF16)
        launch<__nv_bfloat16, key_plan_128, query_plan_128>(a, stream);
    else if (a->width == 64)
        launch<__half, key_plan_64, query_plan_64>(a, stream);
    else
        launch<__half, key_plan_128, query_plan_128>(a, stream);
}
