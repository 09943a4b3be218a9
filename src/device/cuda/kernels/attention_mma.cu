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
#include "device/cuda/kernels/attention_tile.cuh"

/* How a block works: MT * 16 queries to a warp, so many keys at a time, so many blocks to a
 * processor, whether q stays in registers; then where things lie in shared memory: queries, two
 * buffers of keys and values, two of documents. */
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
        DOCS = V + 2 * TILE,
        BYTES = DOCS + 2 * KEYS * 4
    };
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
                                            uint64_t first, int row0, int column0)
{
    uint32_t step = (uint32_t)a.step[0];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t kept = tri_kept(a, first, step, row0 + m * 16, column0 + n * 8);
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
    float factor[MT][2], *lse = a.lse + ((int64_t)b * a.heads + h) * a.num_pos;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = rows.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            factor[m][half] = sum > 0 ? a.keep_scale / sum : 0;
            int row = row0 + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
            if (threadIdx.x % 4 == 0 && row < a.num_pos)
                lse[row] = sum > 0 ? rows.largest[m][half] * a.alpha + logf(sum) : -INFINITY;
        }
    }
    tri_store_rows<T, DT * 8, MT>((T *)a.out + tri_o_start(a, b, h), a.o_step, row0, a.num_pos, o,
                                  factor);
}

/* Keys and values of one tile, and their documents, into a buffer. */
template <typename T, class at>
static __device__ __forceinline__ void load_keys(const tri_attention_call &a, uint32_t shared,
                                                 const T *k, const T *v, const int32_t *docs,
                                                 int tile, int buffer)
{
    tri_load_tile<T, at::D, at::KEYS>(shared + at::K + buffer * at::TILE, k, a.k_step,
                                      tile * at::KEYS, a.num_pos);
    tri_load_tile<T, at::D, at::KEYS>(shared + at::V + buffer * at::TILE, v, a.k_step,
                                      tile * at::KEYS, a.num_pos);
    if (docs)
        tri_load_numbers(shared + at::DOCS + buffer * at::KEYS * 4, docs, tile * at::KEYS, at::KEYS,
                         a.num_pos, 0);
}

template <typename T, class at, int MODE>
static __global__ void __launch_bounds__(TRI_THREADS, at::BLOCKS)
    forward(const __grid_constant__ tri_attention_call a)
{
    enum { D = at::D, MT = at::MT, NT = at::NT, QUERIES = at::QUERIES, KEYS = at::KEYS };
    extern __shared__ __align__(128) unsigned char memory[];
    uint32_t shared = tri_shared_address(memory);
    const int32_t *key_docs = (const int32_t *)(memory + at::DOCS);
    /* The tiles with the most keys first: what remains for the end is short. */
    int tiles = (a.num_pos + QUERIES - 1) / QUERIES;
    int i0 = (tiles - 1 - (int)blockIdx.x % tiles) * QUERIES;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int row0 = i0 + (int)threadIdx.x / 32 * 16 * MT;
    const int32_t *docs = tri_has_docs<MODE>(a) ? a.docs + (int64_t)b * a.num_pos : nullptr;
    const T *k = (const T *)a.k + tri_k_start(a, b, h / a.group);
    const T *v = (const T *)a.v + tri_k_start(a, b, h / a.group);
    uint64_t first = MODE == TRI_DROPOUT ? tri_first_index(a, b, h) : 0;

    int begin, end;
    tri_key_tiles(a, i0, QUERIES, KEYS, &begin, &end);
    if (docs)
        tri_narrow(docs, a.num_pos, i0, QUERIES, KEYS, &begin, &end);
    tri_load_tile<T, D, QUERIES>(shared + at::Q, (const T *)a.q + tri_q_start(a, b, h), a.q_step,
                                 i0, a.num_pos);
    if (begin < end)
        load_keys<T, at>(a, shared, k, v, docs, begin, 0);
    tri_copy_wait();
    __syncthreads();

    tri_left<D, MT, at::KEEP_Q> q;
    q.init(shared + at::Q + (threadIdx.x / 32) * 16 * MT * D * 2);
    tri_row_docs<MT> row_docs;
    row_docs.init(a, docs, row0);
    row_state<MT> rows;
    float o[MT][D / 8][4];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        rows.largest[m][0] = rows.largest[m][1] = -INFINITY;
        rows.sum[m][0] = rows.sum[m][1] = 0;
    }
    tri_clear(o);

    for (int tile = begin, buffer = 0; tile < end; tile++, buffer ^= 1) {
        int j0 = tile * KEYS;
        if (tile + 1 < end)
            load_keys<T, at>(a, shared, k, v, docs, tile + 1, buffer ^ 1);
        if (!a.causal || j0 < row0 + 16 * MT) { /* not behind all of this warp's queries */
            float s[MT][NT][4];
            tri_times_rows<T, D>(s, q, shared + at::K + buffer * at::TILE);
            bool whole = j0 + KEYS <= a.num_pos && (!a.causal || j0 + KEYS - 1 <= row0) &&
                         (a.window == 0 || j0 > row0 + 16 * MT - 1 - a.window);
            if (!whole || docs)
                tri_hide<false>(a, s, row_docs, docs ? key_docs + buffer * KEYS : nullptr, row0, j0,
                                -INFINITY);
            softmax(s, o, rows, a.alpha2);
            if (MODE == TRI_DROPOUT)
                drop(a, s, first, row0, j0);
            tri_add_product<T, D>(o, s, shared + at::V + buffer * at::TILE);
        }
        tri_copy_wait();
        __syncthreads();
    }
    finish<T>(a, b, h, row0, rows, o);
}

template <typename T, class at> static void launch(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t blocks = (int64_t)a->num_batch * a->heads * tri_tiles(a->num_pos, at::QUERIES);
    if (a->dropout > 0)
        tri_attention_launch(forward<T, at, TRI_DROPOUT>, blocks, TRI_THREADS, at::BYTES, stream,
                             a);
    else if (a->docs)
        tri_attention_launch(forward<T, at, TRI_DOCS>, blocks, TRI_THREADS, at::BYTES, stream, a);
    else
        tri_attention_launch(forward<T, at, TRI_PLAIN>, blocks, TRI_THREADS, at::BYTES, stream, a);
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
