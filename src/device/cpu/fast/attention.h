/* Shared by attention and its gradient: shapes, heads, blocks of queries in the lanes, masks. */
#ifndef TRI_DEVICE_CPU_FAST_ATTENTION_H
#define TRI_DEVICE_CPU_FAST_ATTENTION_H

#include "device/cpu/fast/fast.h"
#include "device/cpu/fast/philox.h"

/* Sizes of a block. Few queries, because half of the block on the diagonal is wasted when causal;
 * keys so that the blocks of one task stay in the nearest caches. */
enum { QUERIES = 32, KEYS = 64 };

typedef struct attention_shape {
    const float *qkv; /* [B, num_pos, 3, heads, width] */
    int64_t num_pos, heads, width;
    int64_t step; /* from one position to the next in qkv */
    float alpha;
    bool causal;
    float dropout, keep_scale; /* keep_scale = 1 / (1 - dropout) */
    uint32_t threshold;
    philox_key key;
    const int32_t *rows; /* ids of the samples, read only with dropout */
    int64_t global_heads, first_head;
} attention_shape;

typedef struct attention_head {
    int64_t row, index; /* of the batch, of the heads */
    const float *q, *k, *v;
    uint64_t first_word; /* global index of the weight of query 0, key 0 */
} attention_head;

static inline attention_shape attention_shape_of(const tri_kernel_args *args, const tri_tensor *qkv,
                                                 const int32_t *rows, const int32_t *step)
{
    float p = args->attr->dropout;
    attention_shape s = {.qkv = qkv->data,
                         .num_pos = qkv->size[1],
                         .heads = qkv->size[3],
                         .width = qkv->size[4],
                         .step = 3 * qkv->size[3] * qkv->size[4],
                         .alpha = args->attr->alpha,
                         .causal = args->attr->causal,
                         .dropout = p > 0 ? p : 0,
                         .keep_scale = p > 0 ? 1.0f / (1.0f - p) : 1.0f,
                         .rows = rows,
                         .global_heads = qkv->global[3],
                         .first_head = qkv->origin[3]};
    if (p > 0) {
        s.threshold = tri_dropout_threshold(p);
        s.key = (philox_key){args->seed, (uint32_t)step[0], args->attr->stream};
    }
    return s;
}

static inline attention_head attention_head_of(const attention_shape *s, int64_t number)
{
    attention_head head = {.row = number / s->heads, .index = number % s->heads};
    head.q = s->qkv + head.row * s->num_pos * s->step + head.index * s->width;
    head.k = head.q + s->heads * s->width;
    head.v = head.k + s->heads * s->width;
    if (s->dropout > 0) {
        int64_t global = s->rows[head.row] * s->global_heads + head.index + s->first_head;
        head.first_word = (uint64_t)global * (uint64_t)s->num_pos * (uint64_t)s->num_pos;
    }
    return head;
}

typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));

/* to[c * to_step + r] = scale * from[r * from_step + c] for 4 x 4 numbers. */
static inline void transpose_4x4(const float *from, int64_t from_step, float scale, float *to,
                                 int64_t to_step)
{
    vec4 a = *(const vec4 *)from, b = *(const vec4 *)(from + from_step);
    vec4 c = *(const vec4 *)(from + 2 * from_step), d = *(const vec4 *)(from + 3 * from_step);
    vec4 ac_low = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    vec4 ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    vec4 bd_low = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    vec4 bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    *(vec4 *)to = scale * __builtin_shufflevector(ac_low, bd_low, 0, 4, 1, 5);
    *(vec4 *)(to + to_step) = scale * __builtin_shufflevector(ac_low, bd_low, 2, 6, 3, 7);
    *(vec4 *)(to + 2 * to_step) = scale * __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5);
    *(vec4 *)(to + 3 * to_step) = scale * __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7);
}

/* to[c * to_step + r] = scale * from[r * from_step + c] */
static inline void transpose(const float *from, int64_t from_step, int64_t rows, int64_t cols,
                             float scale, float *to, int64_t to_step)
{
    int64_t rows4 = rows / 4 * 4, cols4 = cols / 4 * 4;
    for (int64_t r = 0; r < rows4; r += 4)
        for (int64_t c = 0; c < cols4; c += 4)
            transpose_4x4(from + r * from_step + c, from_step, scale, to + c * to_step + r,
                          to_step);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < rows4 ? cols4 : 0; c < cols; c++)
            to[c * to_step + r] = scale * from[r * from_step + c];
}

/* A block of queries, or of what is laid out like them, into lanes: to[c][i] is scale times number
 * c of row i, zero in lanes from num on. */
static inline void pack_lanes(const float *from, int64_t step, int64_t num, int64_t width,
                              float scale, float *to)
{
    /* Rows are far apart, so nothing but this announces them. */
    for (int64_t i = 0; i < num; i++)
        for (int64_t c = 0; c < width; c += 16)
            __builtin_prefetch(from + i * step + c);
    if (num < QUERIES)
        memset(to, 0, (size_t)(width * QUERIES) * sizeof(float));
    transpose(from, step, num, width, scale, to, QUERIES);
}

/* to[i][c] = scale * from[i * step + c], for what is read more often than once: in qkv a row is
 * pages away from the next one, and rows compete for the same few places in the cache. */
static inline void pack_rows(const float *from, int64_t step, int64_t num, int64_t width,
                             float scale, float *restrict to, int64_t to_step)
{
    for (int64_t i = 0; i < num; i++)
        for (int64_t c = 0; c < width; c++)
            to[i * to_step + c] = scale * from[i * step + c];
}

/* Causal: what a query may not see gets this value. */
static inline void fill_future(float *block, int64_t first_key, int64_t num_keys,
                               int64_t first_query, float value)
{
    for (int64_t j = 0; j < num_keys; j++) {
        int64_t hidden = first_key + j - first_query; /* queries before this one */
        for (int64_t i = 0; i < min_i64(hidden, QUERIES); i++)
            block[j * QUERIES + i] = value;
    }
}

/* The random word of each key and query of a block; kept where it is at least the threshold. The
 * block has room up to a multiple of 4 keys. */
static inline void dropout_words(const attention_shape *s, const attention_head *head,
                                 int64_t first_query, int64_t first_key, int64_t num_keys,
                                 uint32_t *restrict to)
{
    uint64_t corner =
        head->first_word + (uint64_t)first_query * (uint64_t)s->num_pos + (uint64_t)first_key;
    /* The four words of a Philox block are four keys in a row, if rows begin at a block. */
    if (s->num_pos % 4 == 0) {
        uint64_t row_blocks = (uint64_t)s->num_pos / 4;
        vec_wide lanes = lane_steps(row_blocks);
        for (int64_t i = 0; i < QUERIES; i += WIDE_LANES) {
            vec_wide block = lanes + (corner / 4 + (uint64_t)i * row_blocks);
            for (int64_t j = 0; j < num_keys; j += 4) {
                vec_wide word[4];
                philox_wide(&s->key, block, word);
                for (int w = 0; w < 4; w++)
                    store_narrow(to + (j + w) * QUERIES + i, word[w]);
                block += 1;
            }
        }
        return;
    }
    for (int64_t i = 0; i < QUERIES; i++) {
        uint32_t word[4];
        for (int64_t j = 0; j < num_keys; j++) {
            uint64_t index = corner + (uint64_t)(i * s->num_pos + j);
            if (j == 0 || index % 4 == 0)
                tri_philox(s->key.seed, index / 4, s->key.step, s->key.stream, word);
            to[j * QUERIES + i] = word[index % 4];
        }
    }
}

#endif
