/* What the attention kernels share: their operands, who sees whom, and the masks of dropout.
 *
 * There are two families. attention_any.cu takes every type, head size and mask, in f32 arithmetic
 * on tiles in shared memory. attention_mma.cu and attention_mma_grad.cu take bf16 and f16 with the
 * head sizes 64 and 128, on tensor cores. attention.cu chooses.
 *
 * Who sees whom goes by places. What is equal in every batch (causal, a window) is worked out from
 * positions where it is needed; the rest is prepared once a call (attention_places.cu): an interval
 * of places for each query, and for each group of 32 queries or keys its least and greatest, by
 * which tiles are skipped, or known to need no mask.
 *
 * Exponentials are powers of two: scores are multiplied by alpha * log2(e), and the backward reads
 * lse * log2(e) from scratch, beside delta = do . o (attention_stats.cu writes both). */
#ifndef TRI_DEVICE_CUDA_KERNELS_ATTENTION_CUH
#define TRI_DEVICE_CUDA_KERNELS_ATTENTION_CUH

#include "device/cuda/cuda.h"

#include <cuda_runtime.h>
#include <stdint.h>

/* Widest head, of queries and keys or of values. A head of more would not fit into the tiles. */
enum { TRI_ATTENTION_MAX_WIDTH = 256 };

/* Positions whose bounds are known as a group; and how many groups the bounds are padded to, which
 * is what the largest tile has. */
enum { TRI_GROUP = 32, TRI_GROUPS_OF_TILE = 4 };

/* What a call needs: positions alone; intervals of places; dropout or a soft cap, too. */
enum { TRI_PLAIN, TRI_PLACES, TRI_EXTRA };

/* Elements from one row of the batch, one head, one position to the next. */
struct tri_lay {
    int64_t batch, head, step;
};

/* Operands of attention or of its gradient, packed or apart. */
struct tri_attention_call {
    int num_batch, num_queries, num_keys, heads, key_heads;
    int width, v_width;                 /* of q and k; of v and o */
    int group;                          /* query heads that share a key head */
    int mode;                           /* TRI_PLAIN, ... */
    tri_lay q_lay, k_lay, v_lay, o_lay; /* of gradients, too */
    const void *q, *k, *v, *o, *dout;
    void *out, *dq, *dk, *dv;
    float *lse;          /* [B, H, Tq]; the backward only reads it */
    float *lse2, *delta; /* [B, H, Tq], in scratch: lse * log2(e), +inf for a query without keys */
    const float *sink;   /* [H], and so on: NULL where there is none */
    float *dsink;
    const int32_t *docs, *span, *q_places, *k_places;
    const int32_t *rows, *step;
    /* In scratch, from attention_places.cu. A group is TRI_GROUP positions. */
    int2 *intervals;         /* [B, Tq]: places that a query sees, first and end; empty: 0, 0 */
    int4 *query_bounds;      /* [B, groups]: least first, greatest end; greatest first, least end */
    int2 *key_bounds;        /* [B, groups]: least and greatest place */
    int2 *doc_bounds;        /* [B, groups]: least and greatest document; NULL without */
    int q_groups, k_groups;  /* of a batch row, padding included */
    int ring;                /* places of a cache, at x mod ring; 0: none */
    int cache_rows;          /* of which `rows` chooses one for each row of the batch */
    float alpha;             /* of scores, and of dq and dk */
    float alpha2, lse_scale; /* from scores to powers of 2: alpha * log2(e); and to lse: alpha */
    float cap_in, cap_out;   /* soft cap: cap_out * tanh(cap_in * s) is a power of 2; 0: none */
    bool causal;
    int window; /* 0: none */
    float dropout, keep_scale;
    uint32_t threshold, stream;
    uint64_t seed;
    int64_t head_origin, head_global, query_global, key_global;
};

/* Positions first .. first + num - 1. */
struct tri_span {
    int first, num;
};

#define TRI_LOG2_E 1.4426950408889634f
#define TRI_LN_2   0.6931471805599453f

static inline int tri_tiles(int num_pos, int rows)
{
    return (num_pos + rows - 1) / rows;
}

/* Where head h of batch row b begins. */
static __device__ __forceinline__ int64_t tri_start(const tri_lay &lay, int b, int h)
{
    return b * lay.batch + h * lay.head;
}

/* --- By positions alone --------------------------------------------------------------------- */

/* The keys that query i sees. */
static __device__ __forceinline__ tri_span tri_keys_of(const tri_attention_call &a, int i)
{
    int end = a.causal ? min(i + 1, a.num_keys) : a.num_keys;
    int first = a.window > 0 ? min(max(0, i - a.window + 1), end) : 0;
    return {first, end - first};
}

/* The queries that see key j. */
static __device__ __forceinline__ tri_span tri_queries_of(const tri_attention_call &a, int j)
{
    int end = a.window > 0 && a.window < a.num_queries - j ? j + a.window : a.num_queries;
    int first = a.causal ? min(j, end) : 0;
    return {first, end - first};
}

static __device__ __forceinline__ bool tri_within(tri_span span, int at)
{
    return (uint32_t)(at - span.first) < (uint32_t)span.num;
}

/* Tiles of `rows` keys that the queries i0 .. i0 + num - 1 look at: begin to end - 1. */
static __device__ __forceinline__ void tri_key_tiles(const tri_attention_call &a, int i0, int num,
                                                     int rows, int *begin, int *end)
{
    int last = min(i0 + num, a.num_queries) - 1;
    tri_span upper = tri_keys_of(a, last);
    *begin = tri_keys_of(a, i0).first / rows;
    *end = (upper.first + upper.num + rows - 1) / rows;
}

/* Tiles of `rows` queries that look at the keys j0 .. j0 + num - 1. */
static __device__ __forceinline__ void tri_query_tiles(const tri_attention_call &a, int j0, int num,
                                                       int rows, int *begin, int *end)
{
    int last = min(j0 + num, a.num_keys) - 1;
    tri_span upper = tri_queries_of(a, last);
    *begin = tri_queries_of(a, j0).first / rows;
    *end = (upper.first + upper.num + rows - 1) / rows;
}

/* --- By places ------------------------------------------------------------------------------ */

static __device__ __forceinline__ int tri_query_place(const tri_attention_call &a, int b, int i)
{
    return a.q_places ? a.q_places[(int64_t)b * a.num_queries + i] : i;
}

static __device__ __forceinline__ int tri_key_place(const tri_attention_call &a, int b, int j)
{
    return a.k_places ? a.k_places[(int64_t)b * a.num_keys + j] : j;
}

/* Bounds of `rows` positions from `first` on, a multiple of rows. Fewer than a group: the group's.
 */
static __device__ __forceinline__ int4 tri_query_bounds(const tri_attention_call &a, int b,
                                                        int first, int rows)
{
    const int4 *from = a.query_bounds + (int64_t)b * a.q_groups + first / TRI_GROUP;
    int4 all = from[0];
    for (int g = 1; g < rows / TRI_GROUP; g++) {
        int4 one = from[g];
        all = make_int4(min(all.x, one.x), max(all.y, one.y), max(all.z, one.z), min(all.w, one.w));
    }
    return all;
}

static __device__ __forceinline__ int2 tri_low_high(const int2 *from, int rows)
{
    int2 all = from[0];
    for (int g = 1; g < rows / TRI_GROUP; g++)
        all = make_int2(min(all.x, from[g].x), max(all.y, from[g].y));
    return all;
}

static __device__ __forceinline__ int2 tri_key_bounds(const tri_attention_call &a, int b, int first,
                                                      int rows)
{
    return tri_low_high(a.key_bounds + (int64_t)b * a.k_groups + first / TRI_GROUP, rows);
}

/* Queries and keys have as many groups where there are documents. */
static __device__ __forceinline__ int2 tri_doc_bounds(const tri_attention_call &a, int b, int first,
                                                      int rows)
{
    return tri_low_high(a.doc_bounds + (int64_t)b * a.k_groups + first / TRI_GROUP, rows);
}

/* Some of these queries may see some of these keys; all see all, but for documents. */
static __device__ __forceinline__ bool tri_may_see(int4 queries, int2 keys)
{
    return keys.x < queries.y && keys.y >= queries.x;
}

static __device__ __forceinline__ bool tri_all_see(int4 queries, int2 keys)
{
    return keys.x >= queries.z && keys.y < queries.w;
}

/* The tile of keys is worth a look for the tile of queries. */
static __device__ __forceinline__ bool tri_tiles_meet(const tri_attention_call &a, int b, int i0,
                                                      int queries, int j0, int keys)
{
    if (!tri_may_see(tri_query_bounds(a, b, i0, queries), tri_key_bounds(a, b, j0, keys)))
        return false;
    if (!a.doc_bounds)
        return true;
    int2 left = tri_doc_bounds(a, b, i0, queries), right = tri_doc_bounds(a, b, j0, keys);
    return max(left.x, right.x) <= min(left.y, right.y);
}

/* --- Ends of rows --------------------------------------------------------------------------- */

/* What a row of outputs is multiplied with, and its lse. */
struct tri_row_end {
    float factor, lse;
};

/* sum: of the powers 2^(scale * (score - largest)). */
static __device__ __forceinline__ tri_row_end tri_end_row(const tri_attention_call &a, int h,
                                                          float largest, float scale,
                                                          float lse_scale, float sum)
{
    if (!a.sink)
        return sum > 0 ? tri_row_end{a.keep_scale / sum, largest * lse_scale + logf(sum)}
                       : tri_row_end{0, -INFINITY};
    float own = sum > 0 ? largest * scale : -INFINITY, sink = a.sink[h] * TRI_LOG2_E;
    float top = fmaxf(own, sink);
    if (top == -INFINITY)
        return {0, -INFINITY};
    float part = exp2f(own - top), total = sum * part + exp2f(sink - top);
    return {a.keep_scale * part / total, top * TRI_LN_2 + logf(total)};
}

/* --- Dropout -------------------------------------------------------------------------------- */

/* The same words as tri_philox of base/rng.h. */
static __device__ __forceinline__ uint4 tri_random_words(const tri_attention_call &a,
                                                         uint64_t block, uint32_t step)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = a.stream;
    uint32_t k0 = (uint32_t)a.seed, k1 = (uint32_t)(a.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* Bit w of the result: word w keeps its element. */
static __device__ __forceinline__ uint32_t tri_keep_block(const tri_attention_call &a,
                                                          uint64_t block, uint32_t step)
{
    uint4 word = tri_random_words(a, block, step);
    return (uint32_t)(word.x >= a.threshold) | (uint32_t)(word.y >= a.threshold) << 1 |
           (uint32_t)(word.z >= a.threshold) << 2 | (uint32_t)(word.w >= a.threshold) << 3;
}

/* One element. Its word is chosen before it is compared: four such bits gathered from the bits of
 * four blocks are what CUDA 13's ptxas gets wrong (it packs predicates of one into the other). */
static __device__ __forceinline__ bool tri_keep(const tri_attention_call &a, uint64_t index,
                                                uint32_t step)
{
    uint4 word = tri_random_words(a, index >> 2, step);
    uint32_t low = index & 1 ? word.y : word.x, high = index & 1 ? word.w : word.z;
    return (index & 2 ? high : low) >= a.threshold;
}

/* Global index of the probability of the query at place 0, the key at place 0. */
static __device__ __forceinline__ uint64_t tri_first_index(const tri_attention_call &a, int b,
                                                           int h)
{
    return (uint64_t)(a.rows[b] * a.head_global + h + a.head_origin) * (uint64_t)a.query_global *
           (uint64_t)a.key_global;
}

/* The same of the query at this place. */
static __device__ __forceinline__ uint64_t tri_row_index(const tri_attention_call &a,
                                                         uint64_t first, int place)
{
    return first + (uint64_t)place * (uint64_t)a.key_global;
}

/* Launches of the families; the type of q is dtype. */
void tri_attention_any_forward(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_any_grad(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
/* Intervals and bounds, before a call by places. */
void tri_attention_places(const tri_attention_call *a, cudaStream_t stream);
void tri_attention_stats(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_mma_forward(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_mma_grad(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);

/* One launch: more than 48 KiB of shared memory must be asked for. */
template <typename K>
static void tri_attention_launch(K kernel, int64_t blocks, int threads, size_t shared_bytes,
                                 cudaStream_t stream, const tri_attention_call *a)
{
    void *params[] = {(void *)a};
    if (blocks == 0)
        return;
    if (shared_bytes > 48 * 1024)
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared_bytes);
    cudaLaunchKernel((const void *)kernel, dim3((unsigned)blocks), dim3((unsigned)threads), params,
                     shared_bytes, stream);
}

#endif
