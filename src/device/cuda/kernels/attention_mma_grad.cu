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
 * which are not written. */
#include "device/cuda/kernels/attention_tile.cuh"

enum { TILE_ROWS = 64 }; /* of what a block goes through */

/* --- dk and dv ------------------------------------------------------------------------------ */

/* How a block works: so many queries at a time in registers, so many blocks to a processor, whether
 * k and v stay in registers; then where things lie in shared memory: keys and values of the block,
 * two buffers of q, do, lse2, delta, documents. */
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
        DOCS = DELTA + 2 * TILE_ROWS * 4,
        BYTES = DOCS + 2 * TILE_ROWS * 4
    };
};

typedef key_plan<64, 32, 3, true> key_plan_64;
typedef key_plan<128, 32, 2, false> key_plan_128;

template <typename T, class at>
static __device__ __forceinline__ void load_queries(const tri_attention_call &a, uint32_t shared,
                                                    int b, int h, const int32_t *docs, int tile,
                                                    int buffer)
{
    int i0 = tile * TILE_ROWS;
    int64_t stats = ((int64_t)b * a.heads + h) * a.num_pos;
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::Q + buffer * at::TILE,
                                       (const T *)a.q + tri_q_start(a, b, h), a.q_step, i0,
                                       a.num_pos);
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::DO + buffer * at::TILE,
                                       (const T *)a.dout + tri_o_start(a, b, h), a.o_step, i0,
                                       a.num_pos);
    tri_load_numbers(shared + at::LSE2 + buffer * TILE_ROWS * 4, a.lse2 + stats, i0, TILE_ROWS,
                     a.num_pos, 0);
    tri_load_numbers(shared + at::DELTA + buffer * TILE_ROWS * 4, a.delta + stats, i0, TILE_ROWS,
                     a.num_pos, TILE_ROWS);
    if (docs)
        tri_load_numbers(shared + at::DOCS + buffer * TILE_ROWS * 4, docs, i0, TILE_ROWS, a.num_pos,
                         0);
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

/* dp becomes ds = p (m dp - delta), and p becomes m p but for the scale of dropout, which dv gets
 * at the end. */
template <int MODE, int NT>
static __device__ __forceinline__ void
column_scores_grad(const tri_attention_call &a, float (&p)[1][NT][4], float (&dp)[1][NT][4],
                   const float *delta, uint64_t first, int row0, int column0)
{
    int pair = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float2 less = *(const float2 *)(delta + n * 8 + pair);
        uint32_t kept = MODE == TRI_DROPOUT
                            ? tri_kept_trans(a, first, (uint32_t)a.step[0], row0, column0 + n * 8)
                            : 15;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float d = dp[0][n][i];
            if (MODE == TRI_DROPOUT)
                d = kept >> i & 1 ? d * a.keep_scale : 0;
            dp[0][n][i] = p[0][n][i] * (d - (i % 2 ? less.y : less.x));
            if (MODE == TRI_DROPOUT)
                p[0][n][i] = kept >> i & 1 ? p[0][n][i] : 0;
        }
    }
}

/* The keys and values of a block. */
template <typename T, class at>
static __device__ __forceinline__ void load_own_keys(const tri_attention_call &a, uint32_t shared,
                                                     int64_t key_start, int j0)
{
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::K, (const T *)a.k + key_start, a.k_step, j0,
                                       a.num_pos);
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::V, (const T *)a.v + key_start, a.k_step, j0,
                                       a.num_pos);
}

/* The tiles of queries that see some of its keys. */
static __device__ __forceinline__ void
queries_of_block(const tri_attention_call &a, const int32_t *docs, int j0, int *begin, int *end)
{
    tri_query_tiles(a, j0, TILE_ROWS, TILE_ROWS, begin, end);
    if (docs)
        tri_narrow(docs, a.num_pos, j0, TILE_ROWS, TILE_ROWS, begin, end);
}

template <typename T, class at, int MODE>
static __global__ void
__launch_bounds__(TRI_THREADS, MODE == TRI_DROPOUT ? 2 : at::BLOCKS) /* masks take registers */
    key_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    enum { D = at::D, NT = at::CHUNK / 8 };
    uint32_t shared = tri_shared_address(memory);
    int tiles = (a.num_pos + TILE_ROWS - 1) / TILE_ROWS, j0 = (int)blockIdx.x % tiles * TILE_ROWS;
    int g = (int)blockIdx.x / tiles % a.key_heads, b = (int)blockIdx.x / tiles / a.key_heads;
    int warp = threadIdx.x / 32, row0 = j0 + warp * 16;
    const int32_t *docs = tri_has_docs<MODE>(a) ? a.docs + (int64_t)b * a.num_pos : nullptr;
    int64_t key_start = tri_k_start(a, b, g);
    int begin, end;
    queries_of_block(a, docs, j0, &begin, &end);
    load_own_keys<T, at>(a, shared, key_start, j0);
    if (begin < end)
        load_queries<T, at>(a, shared, b, g * a.group, docs, begin, 0);
    await_copies();

    tri_left<D, 1, at::KEEP> k, v;
    k.init(shared + at::K + warp * 16 * D * 2);
    v.init(shared + at::V + warp * 16 * D * 2);
    tri_row_docs<1> row_docs;
    row_docs.init(a, docs, row0);
    float dk[1][D / 8][4], dv[1][D / 8][4];
    tri_clear(dk);
    tri_clear(dv);

    int h = g * a.group, tile = begin;
    for (int buffer = 0; begin < end && h < (g + 1) * a.group; buffer ^= 1) {
        int next = tile + 1 < end ? tile + 1 : begin, next_head = h + (tile + 1 == end);
        if (next_head < (g + 1) * a.group)
            load_queries<T, at>(a, shared, b, next_head, docs, next, buffer ^ 1);
        uint64_t first = MODE == TRI_DROPOUT ? tri_first_index(a, b, h) : 0;
        const int32_t *query_docs = (const int32_t *)(memory + at::DOCS) + buffer * TILE_ROWS;
        const float *lse2 = (const float *)(memory + at::LSE2) + buffer * TILE_ROWS;
        const float *delta = (const float *)(memory + at::DELTA) + buffer * TILE_ROWS;
        uint32_t tiles_at = shared + buffer * at::TILE; /* of q and do */
#pragma unroll 1
        for (int part = 0; part < TILE_ROWS; part += at::CHUNK) {
            int c0 = tile * TILE_ROWS + part;
            if (a.causal && c0 + at::CHUNK <= row0)
                continue; /* before all of this warp's keys */
            float p[1][NT][4], ds[1][NT][4];
            tri_times_rows<T, D>(p, k, tiles_at + at::Q + part * D * 2);
            column_softmax(p, lse2 + part, a.alpha2);
            bool whole = (!a.causal || c0 >= row0 + 15) &&
                         (a.window == 0 || c0 + at::CHUNK - 1 - row0 < a.window);
            if (!whole || docs)
                tri_hide<true>(a, p, row_docs, docs ? query_docs + part : nullptr, row0, c0, 0);
            tri_times_rows<T, D>(ds, v, tiles_at + at::DO + part * D * 2);
            column_scores_grad<MODE>(a, p, ds, delta + part, first, row0, c0);
            tri_add_product<T, D>(dv, p, tiles_at + at::DO + part * D * 2);
            tri_add_product<T, D>(dk, ds, tiles_at + at::Q + part * D * 2);
        }
        await_copies();
        h = next_head;
        tile = next;
    }
    const float scale_k[1][2] = {{a.alpha, a.alpha}};
    const float scale_v[1][2] = {{a.keep_scale, a.keep_scale}};
    tri_store_rows<T, D, 1>((T *)a.dk + key_start, a.k_step, row0, a.num_pos, dk, scale_k);
    tri_store_rows<T, D, 1>((T *)a.dv + key_start, a.k_step, row0, a.num_pos, dv, scale_v);
}

/* --- dq ------------------------------------------------------------------------------------- */

/* The same for this kernel: MT * 16 queries to a warp, so many keys at a time in registers; shared
 * memory holds q and do of the block, and two buffers of keys, values, documents. */
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
        DOCS = V + 2 * TILE,
        BYTES = DOCS + 2 * TILE_ROWS * 4
    };
};

typedef query_plan<64, 2, 32, 2, true> query_plan_64;
typedef query_plan<128, 1, 64, 2, false> query_plan_128;

template <typename T, class at>
static __device__ __forceinline__ void load_keys(const tri_attention_call &a, uint32_t shared,
                                                 const T *k, const T *v, const int32_t *docs,
                                                 int tile, int buffer)
{
    int j0 = tile * TILE_ROWS;
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::K + buffer * at::TILE, k, a.k_step, j0,
                                       a.num_pos);
    tri_load_tile<T, at::D, TILE_ROWS>(shared + at::V + buffer * at::TILE, v, a.k_step, j0,
                                       a.num_pos);
    if (docs)
        tri_load_numbers(shared + at::DOCS + buffer * TILE_ROWS * 4, docs, j0, TILE_ROWS, a.num_pos,
                         0);
}

/* The queries of a block. */
template <typename T, class at>
static __device__ __forceinline__ void load_own_queries(const tri_attention_call &a,
                                                        uint32_t shared, int b, int h, int i0)
{
    tri_load_tile<T, at::D, at::QUERIES>(shared + at::Q, (const T *)a.q + tri_q_start(a, b, h),
                                         a.q_step, i0, a.num_pos);
    tri_load_tile<T, at::D, at::QUERIES>(shared + at::DO, (const T *)a.dout + tri_o_start(a, b, h),
                                         a.o_step, i0, a.num_pos);
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
        int64_t start = ((int64_t)b * a.heads + h) * a.num_pos;
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = row0 + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
                lse2[m][half] = row < a.num_pos ? a.lse2[start + row] : INFINITY;
                delta[m][half] = row < a.num_pos ? a.delta[start + row] : 0;
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

/* dp becomes ds = p (m dp - delta). */
template <int MODE, int MT, int NT>
static __device__ __forceinline__ void
row_scores_grad(const tri_attention_call &a, const float (&p)[MT][NT][4], float (&dp)[MT][NT][4],
                const row_stats<MT> &stats, uint64_t first, int row0, int column0)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t kept = MODE == TRI_DROPOUT ? tri_kept(a, first, (uint32_t)a.step[0],
                                                           row0 + m * 16, column0 + n * 8)
                                                : 15;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float d = dp[m][n][i];
                if (MODE == TRI_DROPOUT)
                    d = kept >> i & 1 ? d * a.keep_scale : 0;
                dp[m][n][i] = p[m][n][i] * (d - stats.delta[m][i / 2]);
            }
        }
    }
}

template <typename T, class at, int MODE>
static __global__ void __launch_bounds__(TRI_THREADS, at::BLOCKS)
    query_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    enum { D = at::D, MT = at::MT, NT = at::CHUNK / 8 };
    uint32_t shared = tri_shared_address(memory);
    int tiles = (a.num_pos + at::QUERIES - 1) / at::QUERIES;
    int i0 = (tiles - 1 - (int)blockIdx.x % tiles) * at::QUERIES;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int warp = threadIdx.x / 32, row0 = i0 + warp * 16 * MT;
    const int32_t *docs = tri_has_docs<MODE>(a) ? a.docs + (int64_t)b * a.num_pos : nullptr;
    const int32_t *key_docs = (const int32_t *)(memory + at::DOCS);
    const T *k = (const T *)a.k + tri_k_start(a, b, h / a.group);
    const T *v = (const T *)a.v + tri_k_start(a, b, h / a.group);
    uint64_t first = MODE == TRI_DROPOUT ? tri_first_index(a, b, h) : 0;

    int begin, end;
    tri_key_tiles(a, i0, at::QUERIES, TILE_ROWS, &begin, &end);
    if (docs)
        tri_narrow(docs, a.num_pos, i0, at::QUERIES, TILE_ROWS, &begin, &end);
    load_own_queries<T, at>(a, shared, b, h, i0);
    if (begin < end)
        load_keys<T, at>(a, shared, k, v, docs, begin, 0);
    await_copies();

    tri_left<D, MT, at::KEEP> q, dout;
    q.init(shared + at::Q + warp * 16 * MT * D * 2);
    dout.init(shared + at::DO + warp * 16 * MT * D * 2);
    tri_row_docs<MT> row_docs;
    row_docs.init(a, docs, row0);
    row_stats<MT> stats;
    stats.init(a, b, h, row0);
    float dq[MT][D / 8][4], scale[MT][2];
    fill_scale(scale, a.alpha);
    tri_clear(dq);

    for (int tile = begin, buffer = 0; tile < end; tile++, buffer ^= 1) {
        if (tile + 1 < end)
            load_keys<T, at>(a, shared, k, v, docs, tile + 1, buffer ^ 1);
        uint32_t k_tile = shared + at::K + buffer * at::TILE;
        uint32_t v_tile = shared + at::V + buffer * at::TILE;
#pragma unroll 1
        for (int part = 0; part < TILE_ROWS; part += at::CHUNK) {
            int j0 = tile * TILE_ROWS + part;
            if (j0 >= a.num_pos || (a.causal && j0 >= row0 + 16 * MT))
                continue; /* behind all of this warp's queries */
            float p[MT][NT][4], ds[MT][NT][4];
            tri_times_rows<T, D>(p, q, k_tile + part * D * 2);
            row_softmax(p, stats, a.alpha2);
            bool whole = j0 + at::CHUNK <= a.num_pos && (!a.causal || j0 + at::CHUNK - 1 <= row0) &&
                         (a.window == 0 || j0 > row0 + 16 * MT - 1 - a.window);
            if (!whole || docs)
                tri_hide<false>(a, p, row_docs,
                                docs ? key_docs + buffer * TILE_ROWS + part : nullptr, row0, j0, 0);
            tri_times_rows<T, D>(ds, dout, v_tile + part * D * 2);
            row_scores_grad<MODE>(a, p, ds, stats, first, row0, j0);
            tri_add_product<T, D>(dq, ds, k_tile + part * D * 2);
        }
        await_copies();
    }
    tri_store_rows<T, D, MT>((T *)a.dq + tri_q_start(a, b, h), a.q_step, row0, a.num_pos, dq,
                             scale);
}

/* --- Launch --------------------------------------------------------------------------------- */

template <typename T, class keys, class queries, int MODE>
static void launch_both(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t key_blocks = (int64_t)a->num_batch * a->key_heads * tri_tiles(a->num_pos, TILE_ROWS);
    int64_t query_blocks =
        (int64_t)a->num_batch * a->heads * tri_tiles(a->num_pos, queries::QUERIES);
    tri_attention_launch(key_grad<T, keys, MODE>, key_blocks, TRI_THREADS, keys::BYTES, stream, a);
    tri_attention_launch(query_grad<T, queries, MODE>, query_blocks, TRI_THREADS, queries::BYTES,
                         stream, a);
}

template <typename T, class keys, class queries>
static void launch(const tri_attention_call *a, cudaStream_t stream)
{
    if (a->dropout > 0)
        launch_both<T, keys, queries, TRI_DROPOUT>(a, stream);
    else if (a->docs)
        launch_both<T, keys, queries, TRI_DOCS>(a, stream);
    else
        launch_both<T, keys, queries, TRI_PLAIN>(a, stream);
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
