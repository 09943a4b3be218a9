/* Attention on tensor cores: bf16 and f16, head sizes 64 and 128.
 *
 * A block owns 128 queries of a head, 32 to a warp, and goes through the keys 64 at a time. Each
 * piece of scores lives in registers: the largest score so far, the sum and the outputs are scaled
 * when a larger one turns up. 32 rows to a warp, because the fragments of keys and values are then
 * read from shared memory once for two products; with 16 the reading would take longer than the
 * products do.
 *
 * The next keys and values are copied while the present ones are used; one barrier for each piece
 * tells both that the copy has arrived everywhere and that the buffer just used is free. */
#include "device/cuda/kernels/attention_mask.cuh"

/* How a block works: MT * 16 queries to a warp, so many keys at a time, so many blocks to a
 * processor, whether q stays in registers; then where things lie in shared memory: queries, two
 * buffers of keys and values, and the marks of both. */
template <int D_, int MT_, int KEYS_, int BLOCKS_, bool KEEP_Q_> struct forward_plan {
    enum {
        D = D_,
        MT = MT_,
        KEYS = KEYS_,
        BLOCKS = BLOCKS_,
        KEEP_Q = KEEP_Q_,
        NT = KEYS / 8,
        QUERIES = 16 * MT * TRI_WARPS,
        TILE = KEYS * D * 2,
        Q = 0,
        K = QUERIES * D * 2,
        V = K + 2 * TILE,
        OWN_MARKS = V + 2 * TILE,
        MARKS = OWN_MARKS + (int)sizeof(tri_query_marks<QUERIES>),
        BYTES = MARKS + 2 * (int)sizeof(tri_key_marks<KEYS>)
    };
    typedef tri_query_marks<QUERIES> own_marks;
    typedef tri_key_marks<KEYS> marks;
};

typedef forward_plan<64, 2, 64, 2, true> plan_64;
typedef forward_plan<128, 2, 32, 2, false> plan_128;

/* The state of a lane's rows; sums are of this lane's columns only until the end. */
template <int MT> struct row_state {
    float largest[MT][2], sum[MT][2];
};

/* Turns scores into exp2(scale * (score - largest)), and scales o and the sums to a new largest. */
template <int MT, int NT, int DT>
static __device__ __forceinline__ void softmax(float (&s)[MT][NT][4], float (&o)[MT][DT][4],
                                               row_state<MT> &rows, float scale)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = rows.largest[m][half];
#pragma unroll
            for (int n = 0; n < NT; n++)
                largest = fmaxf(largest, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            float base = largest == -INFINITY ? 0 : largest * scale; /* nothing seen yet */
            float factor = tri_exp2(rows.largest[m][half] * scale - base);
            rows.largest[m][half] = largest;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < NT; n++) {
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++) {
                    s[m][n][i] = tri_exp2(fmaf(s[m][n][i], scale, -base));
                    sum += s[m][n][i];
                }
            }
            rows.sum[m][half] = rows.sum[m][half] * factor + sum;
            if (__any_sync(0xffffffffu, factor != 1)) {
#pragma unroll
                for (int d = 0; d < DT; d++) {
                    o[m][d][half * 2] *= factor;
                    o[m][d][half * 2 + 1] *= factor;
                }
            }
        }
    }
}

template <int MT, int NT>
static __device__ __forceinline__ void drop(const tri_attention_call &a, float (&p)[MT][NT][4],
                                            int b, uint64_t first, int row0, int column0)
{
    uint32_t step = (uint32_t)a.step[0];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t kept = tri_kept(a, b, first, step, row0 + m * 16, column0 + n * 8);
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[m][n][i] = kept >> i & 1 ? p[m][n][i] : 0;
        }
    }
}

/* Outputs divided by their sums, and lse. */
template <typename T, int MT, int DT>
static __device__ __forceinline__ void finish(const tri_attention_call &a, int b, int h, int row0,
                                              row_state<MT> &rows, const float (&o)[MT][DT][4])
{
    float factor[MT][2], *lse = a.lse + ((int64_t)b * a.heads + h) * a.num_queries;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = rows.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            tri_row_end end = tri_end_row(a, h, rows.largest[m][half], a.alpha2, a.lse_scale, sum);
            factor[m][half] = end.factor;
            int row = row0 + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
            if (threadIdx.x % 4 == 0 && row < a.num_queries)
                lse[row] = end.lse;
        }
    }
    tri_store_rows<T, DT * 8, MT>((T *)a.out + tri_start(a.o_lay, b, h), a.o_lay.step, row0,
                                  a.num_queries, o, factor);
}

/* Keys and values of one tile, and their marks, into a buffer. */
template <typename T, class at, int MODE>
static __device__ __forceinline__ void load_keys(const tri_attention_call &a, unsigned char *memory,
                                                 const T *k, const T *v, int b, int tile,
                                                 int buffer)
{
    uint32_t to = tri_shared_address(memory) + buffer * at::TILE;
    int j0 = tile * at::KEYS;
    tri_load_tile<T, at::D, at::KEYS>(to + at::K, k, a.k_lay.step, j0, a.num_keys);
    tri_load_tile<T, at::D, at::KEYS>(to + at::V, v, a.v_lay.step, j0, a.num_keys);
    if (MODE != TRI_PLAIN)
        tri_load_marks(a, (typename at::marks *)(memory + at::MARKS) + buffer, b, j0);
}

/* Scores of a warp's queries, from row0 on, and a tile of keys; false if none is seen. The block's
 * queries begin at i0, the keys at j0. */
template <typename T, class at, int MODE>
static __device__ __forceinline__ bool
scores(const tri_attention_call &a, const unsigned char *memory, int i0, int row0, int j0,
       int buffer, const tri_left<at::D, at::MT, at::KEEP_Q> &q, float (&s)[at::MT][at::NT][4])
{
    enum { KEYS = at::KEYS, ROWS = 16 * at::MT };
    uint32_t k_tile = tri_shared_address(memory) + at::K + buffer * at::TILE;
    if constexpr (MODE == TRI_PLAIN) {
        if (a.causal && j0 >= row0 + ROWS)
            return false; /* behind all of them */
        tri_times_rows<T, at::D>(s, q, k_tile);
        bool whole = j0 + KEYS <= a.num_keys && (!a.causal || j0 + KEYS - 1 <= row0) &&
                     (a.window == 0 || j0 > row0 + ROWS - 1 - a.window);
        if (!whole)
            tri_hide<false>(a, s, row0, j0, -INFINITY);
        return true;
    } else {
        const auto *own = (const typename at::own_marks *)(memory + at::OWN_MARKS);
        const auto *keys = (const typename at::marks *)(memory + at::MARKS) + buffer;
        int4 seen = own->bounds[(row0 - i0) / TRI_GROUP];
        int2 there = tri_low_high(keys->bounds, KEYS);
        if (!tri_may_see(seen, there))
            return false;
        tri_times_rows<T, at::D>(s, q, k_tile);
        if (MODE == TRI_EXTRA && a.cap_out > 0)
            tri_cap(a, s);
        if (a.docs || !tri_all_see(seen, there))
            tri_hide_keys(a, s, own, row0 - i0, keys, 0, -INFINITY);
        return true;
    }
}

template <typename T, class at, int MODE>
static __global__ void __launch_bounds__(TRI_THREADS, at::BLOCKS)
    forward(const __grid_constant__ tri_attention_call a)
{
    enum { D = at::D, MT = at::MT, NT = at::NT, QUERIES = at::QUERIES, KEYS = at::KEYS };
    extern __shared__ __align__(128) unsigned char memory[];
    uint32_t shared = tri_shared_address(memory);
    /* The tiles with the most keys first: what remains for the end is short. */
    int tiles = (a.num_queries + QUERIES - 1) / QUERIES;
    int i0 = (tiles - 1 - (int)blockIdx.x % tiles) * QUERIES;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int row0 = i0 + (int)threadIdx.x / 32 * 16 * MT;
    const T *k = (const T *)a.k + tri_start(a.k_lay, b, h / a.group);
    const T *v = (const T *)a.v + tri_start(a.v_lay, b, h / a.group);
    uint64_t first = MODE == TRI_EXTRA && a.dropout > 0 ? tri_first_index(a, b, h) : 0;

    int begin = 0, end = (a.num_keys + KEYS - 1) / KEYS;
    if (MODE == TRI_PLAIN)
        tri_key_tiles(a, i0, QUERIES, KEYS, &begin, &end);
    tri_walk<MODE> walk;
    walk.init(begin, end);
    auto meets = [&](int tile) { return tri_tiles_meet(a, b, i0, QUERIES, tile * KEYS, KEYS); };
    int tile = walk.next(meets);
    tri_load_tile<T, D, QUERIES>(shared + at::Q, (const T *)a.q + tri_start(a.q_lay, b, h),
                                 a.q_lay.step, i0, a.num_queries);
    if (MODE != TRI_PLAIN)
        tri_load_marks(a, (typename at::own_marks *)(memory + at::OWN_MARKS), b, i0);
    if (tile < end)
        load_keys<T, at, MODE>(a, memory, k, v, b, tile, 0);
    tri_copy_wait();
    __syncthreads();

    tri_left<D, MT, at::KEEP_Q> q;
    q.init(shared + at::Q + (threadIdx.x / 32) * 16 * MT * D * 2);
    row_state<MT> rows;
    float o[MT][D / 8][4];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        rows.largest[m][0] = rows.largest[m][1] = -INFINITY;
        rows.sum[m][0] = rows.sum[m][1] = 0;
    }
    tri_clear(o);

    for (int buffer = 0; tile < end; buffer ^= 1) {
        int j0 = tile * KEYS;
        tile = walk.next(meets);
        if (tile < end)
            load_keys<T, at, MODE>(a, memory, k, v, b, tile, buffer ^ 1);
        float s[MT][NT][4];
        if (scores<T, at, MODE>(a, memory, i0, row0, j0, buffer, q, s)) {
            softmax(s, o, rows, a.alpha2);
            if (MODE == TRI_EXTRA && a.dropout > 0)
                drop(a, s, b, first, row0, j0);
            tri_add_product<T, D>(o, s, shared + at::V + buffer * at::TILE);
        }
        tri_copy_wait();
        __syncthreads();
    }
    finish<T>(a, b, h, row0, rows, o);
}

template <typename T, class at> static void launch(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t blocks = (int64_t)a->num_batch * a->heads * tri_tiles(a->num_queries, at::QUERIES);
    auto *kernel = a->mode == TRI_PLAIN    ? forward<T, at, TRI_PLAIN>
                   : a->mode == TRI_PLACES ? forward<T, at, TRI_PLACES>
                                           : forward<T, at, TRI_EXTRA>;
    tri_attention_launch(kernel, blocks, TRI_THREADS, at::BYTES, stream, a);
}

void tri_attention_mma_forward(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream)
{
    if (dtype == TRI_BF16 && a->width == 64)
        launch<__nv_bfloat16, plan_64>(a, stream);
    else if (dtype == TRI_BF16)
        launch<__nv_bfloat16, plan_128>(a, stream);
    else if (a->width == 64)
        launch<__half, plan_64>(a, stream);
    else
        launch<__half, plan_128>(a, stream);
}
