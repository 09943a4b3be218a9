/* What the attention kernels share: their operands, who sees whom, and the masks of dropout.
 *
 * There are two families. attention_any.cu takes every type, head size and mask, in f32 arithmetic
 * on tiles in shared memory. attention_mma.cu and attention_mma_grad.cu take bf16 and f16 with the
 * head sizes 64 and 128, on tensor cores. attention.cu chooses.
 *
 * Exponentials are powers of two: scores are multiplied by alpha * log2(e), and the backward reads
 * lse * log2(e) from scratch, beside delta = do . o (attention_stats.cu writes both). */
#ifndef TRI_DEVICE_CUDA_KERNELS_ATTENTION_CUH
#define TRI_DEVICE_CUDA_KERNELS_ATTENTION_CUH

#include "device/cuda/cuda.h"

#include <cuda_runtime.h>
#include <stdint.h>

/* Widest head. A head of more would not fit into the tiles. */
enum { TRI_ATTENTION_MAX_WIDTH = 256 };

/* Operands of attention or of its gradient, packed or apart. */
struct tri_attention_call {
    int num_batch, num_pos, heads, key_heads, width;
    int group;              /* query heads that share a key head */
    int64_t q_step, k_step; /* elements from one position to the next, in q and dq; in k, v ... */
    int64_t o_step;         /* ... in o and do */
    const void *q, *k, *v, *o, *dout;
    void *out, *dq, *dk, *dv;
    float *lse;          /* [B, H, T]; the backward only reads it */
    float *lse2, *delta; /* [B, H, T], in scratch: lse * log2(e), +inf for a query without keys */
    const int32_t *docs; /* NULL without documents */
    const int32_t *rows, *step;
    float alpha, alpha2; /* alpha2 = alpha * log2(e) */
    bool causal;
    int window; /* 0: none */
    float dropout, keep_scale;
    uint32_t threshold, stream;
    uint64_t seed;
    int64_t head_origin, head_global;
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
static __device__ __forceinline__ int64_t tri_q_start(const tri_attention_call &a, int b, int h)
{
    return (int64_t)b * a.num_pos * a.q_step + (int64_t)h * a.width;
}

static __device__ __forceinline__ int64_t tri_k_start(const tri_attention_call &a, int b,
                                                      int key_head)
{
    return (int64_t)b * a.num_pos * a.k_step + (int64_t)key_head * a.width;
}

static __device__ __forceinline__ int64_t tri_o_start(const tri_attention_call &a, int b, int h)
{
    return (int64_t)b * a.num_pos * a.o_step + (int64_t)h * a.width;
}

/* The keys that query i sees, but for documents. */
static __device__ __forceinline__ tri_span tri_keys_of(const tri_attention_call &a, int i)
{
    int first = a.window > 0 ? max(0, i - a.window + 1) : 0;
    int end = a.causal ? min(i + 1, a.num_pos) : a.num_pos;
    return {first, end - first};
}

/* The queries that see key j, but for documents. */
static __device__ __forceinline__ tri_span tri_queries_of(const tri_attention_call &a, int j)
{
    int first = a.causal ? j : 0;
    int end = a.window > 0 && a.window < a.num_pos - j ? j + a.window : a.num_pos;
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
    int last = min(i0 + num, a.num_pos) - 1;
    tri_span upper = tri_keys_of(a, last);
    *begin = tri_keys_of(a, i0).first / rows;
    *end = (upper.first + upper.num + rows - 1) / rows;
}

/* Tiles of `rows` queries that look at the keys j0 .. j0 + num - 1. */
static __device__ __forceinline__ void tri_query_tiles(const tri_attention_call &a, int j0, int num,
                                                       int rows, int *begin, int *end)
{
    int last = min(j0 + num, a.num_pos) - 1;
    tri_span upper = tri_queries_of(a, last);
    *begin = tri_queries_of(a, j0).first / rows;
    *end = (upper.first + upper.num + rows - 1) / rows;
}

/* The same words as tri_philox of base/rng.h; bit w of the result: word w keeps its element. */
static __device__ __forceinline__ uint32_t tri_keep_block(const tri_attention_call &a,
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
    return (uint32_t)(c0 >= a.threshold) | (uint32_t)(c1 >= a.threshold) << 1 |
           (uint32_t)(c2 >= a.threshold) << 2 | (uint32_t)(c3 >= a.threshold) << 3;
}

static __device__ __forceinline__ bool tri_keep(const tri_attention_call &a, uint64_t index,
                                                uint32_t step)
{
    return tri_keep_block(a, index >> 2, step) >> (index & 3) & 1;
}

/* Global index of the probability of query 0, key 0. */
static __device__ __forceinline__ uint64_t tri_first_index(const tri_attention_call &a, int b,
                                                           int h)
{
    return (uint64_t)(a.rows[b] * a.head_global + h + a.head_origin) * (uint64_t)a.num_pos *
           (uint64_t)a.num_pos;
}

/* Launches of the families; the type of q is dtype. */
void tri_attention_any_forward(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_any_grad(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_stats(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_mma_forward(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);
void tri_attention_mma_grad(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream);

/* One launch: more than 48 KiB of shared memory must be asked for. */
template <typename K>
static void tri_attention_launch(K kernel, int64_t blocks, int threads, size_t shared_bytes,
                                 cudaStream_t stream, const tri_attention_call *a)
{
    void *params[] = {(void *)a};
    if (shared_bytes > 48 * 1024)
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)shared_bytes);
    cudaLaunchKernel((const void *)kernel, dim3((unsigned)blocks), dim3((unsigned)threads), params,
                     shared_bytes, stream);
}

#endif
