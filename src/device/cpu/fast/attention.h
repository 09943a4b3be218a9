/* Shared by attention and its gradient: shapes, heads, blocks of queries in the lanes, masks. */
#ifndef TRI_DEVICE_CPU_FAST_ATTENTION_H
#define TRI_DEVICE_CPU_FAST_ATTENTION_H

#include "device/cpu/fast/block.h"
#include "device/cpu/fast/fast.h"
#include "device/cpu/fast/philox.h"
#include "device/cpu/fast/transpose.h"
#include "device/cpu/fast/vecfun.h"

/* Sizes of a block, so that the blocks of one product fill the first-level cache, and those of one
 * task stay in the second. Blocks of queries and keys begin at multiples of them, so when causal
 * one block in a row lies on the diagonal. There the two halves of the queries are taken apart:
 * the first does not see the second half of the keys. */
enum { QUERIES = 64, KEYS = 64, HALF = 32 };

typedef struct attention_shape {
    const float *q, *k, *v; /* of head 0 of row 0; from there, all steps are known */
    int64_t num_batch, num_pos, heads, key_heads, width;
    int64_t group;          /* query heads that share a key head */
    int64_t q_step, k_step; /* from one position to the next; of v as of k */
    float alpha;
    bool causal;
    int64_t window;            /* 0: none */
    const int32_t *docs;       /* NULL: none */
    float dropout, keep_scale; /* keep_scale = 1 / (1 - dropout) */
    uint32_t threshold;
    philox_key key;
    const int32_t *rows; /* ids of the samples, read only with dropout */
    int64_t global_heads, first_head;
} attention_shape;

typedef struct attention_head {
    int64_t row, index; /* of the batch, of the heads */
    const float *q, *k, *v;
    const int32_t *docs; /* of the row, or NULL */
    uint64_t first_word; /* global index of the weight of query 0, key 0 */
} attention_head;

/* Whether a query sees tokens of its own row and length by their order alone. in, more: as below,
 * more with the operands after docs. */
static inline bool attention_is_plain(const tri_kernel_args *args, const tri_tensor *in,
                                      const tri_tensor *more)
{
    bool extra = args->attr->attention.soft_cap > 0 || args->attr->attention.cached;
    for (int j = TRI_ATTENTION_SPAN - TRI_ATTENTION_ROWS;
         j <= TRI_ATTENTION_SINK - TRI_ATTENTION_ROWS; j++)
        extra |= more[j].count > 0;
    return !extra &&
           (in[1].count == 0 || (in[1].size[1] == in[0].size[1] && in[2].size[3] == in[1].size[3]));
}

/* in: q, k, v as the operator takes them, packed or apart; more: rows, step, docs. */
static inline attention_shape attention_shape_of(const tri_kernel_args *args, const tri_tensor *in,
                                                 const tri_tensor *more)
{
    bool packed = in[0].rank == 5;
    int heads_dim = in[0].rank - 2;
    float p = args->attr->attention.dropout;
    attention_shape s = {.q = in[0].data,
                         .num_batch = in[0].size[0],
                         .num_pos = in[0].size[1],
                         .heads = in[0].size[heads_dim],
                         .key_heads = packed ? in[0].size[heads_dim] : in[1].size[2],
                         .width = in[0].size[heads_dim + 1],
                         .alpha = args->attr->attention.alpha,
                         .causal = args->attr->attention.causal,
                         .window = args->attr->attention.window,
                         .docs = more[2].data,
                         .dropout = p > 0 ? p : 0,
                         .keep_scale = p > 0 ? 1.0f / (1.0f - p) : 1.0f,
                         .rows = more[0].data,
                         .global_heads = in[0].global[heads_dim],
                         .first_head = in[0].origin[heads_dim]};
    s.group = s.heads / s.key_heads;
    s.q_step = (packed ? 3 : 1) * s.heads * s.width;
    s.k_step = packed ? s.q_step : s.key_heads * s.width;
    if (s.q) { /* not when sizes alone are asked for */
        s.k = packed ? s.q + s.heads * s.width : in[1].data;
        s.v = packed ? s.k + s.heads * s.width : in[2].data;
    }
    if (p > 0 && s.rows) {
        s.threshold = tri_dropout_threshold(p);
        s.key = (philox_key){args->seed, (uint32_t)((const int32_t *)more[1].data)[0],
                             args->attr->attention.stream};
    }
    return s;
}

static inline attention_head attention_head_of(const attention_shape *s, int64_t row, int64_t index)
{
    int64_t at = row * s->num_pos * s->k_step + index / s->group * s->width;
    attention_head head = {.row = row,
                           .index = index,
                           .q = s->q + row * s->num_pos * s->q_step + index * s->width,
                           .k = s->k + at,
                           .v = s->v + at,
                           .docs = s->docs ? s->docs + row * s->num_pos : NULL};
    if (s->dropout > 0) {
        int64_t global = s->rows[head.row] * s->global_heads + head.index + s->first_head;
        head.first_word = (uint64_t)global * (uint64_t)s->num_pos * (uint64_t)s->num_pos;
    }
    return head;
}

/* A block of queries, by where it begins. */
typedef struct query_block {
    attention_head head;
    int64_t first;
} query_block;

/* to[c * to_step + r] = scale * from[r * from_step + c] */
static inline void transpose(const float *from, int64_t from_step, int64_t rows, int64_t cols,
                             float scale, float *to, int64_t to_step)
{
    int64_t cols4 = cols / 4 * 4, r = 0;
    for (; VEC_LANES >= 16 && r + 16 <= rows; r += 16)
        for (int64_t c = 0; c < cols4; c += 4)
            transpose_group(16, to + c * to_step + r, to_step, from + r * from_step + c, from_step,
                            scale);
    for (; VEC_LANES >= 8 && r + 8 <= rows; r += 8)
        for (int64_t c = 0; c < cols4; c += 4)
            transpose_group(8, to + c * to_step + r, to_step, from + r * from_step + c, from_step,
                            scale);
    for (; r + 4 <= rows; r += 4)
        for (int64_t c = 0; c < cols4; c += 4)
            transpose_group(4, to + c * to_step + r, to_step, from + r * from_step + c, from_step,
                            scale);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = i < r ? cols4 : 0; c < cols; c++)
            to[c * to_step + i] = scale * from[i * from_step + c];
}

/* A block of queries, or of what is laid out like them, into lanes: to[c][i] is scale times number
 * c of row i, zero in the lanes of a half from num on. */
static inline void pack_lanes(const float *from, int64_t step, int64_t num, int64_t width,
                              float scale, float *to)
{
    if (num % HALF != 0)
        memset(to, 0, (size_t)(width * QUERIES) * sizeof(float));
    transpose(from, step, num, width, scale, to, QUERIES);
}

/* to[i][c] = scale * from[i * step + c], for what is read more often than once: in qkv a row is
 * pages away from the next one, and rows compete for the same few places in the cache. */
static inline void pack_rows(const float *from, int64_t step, int64_t num, int64_t width,
                             float scale, float *restrict to, int64_t to_step)
{
    for (int64_t i = 0; i < num; i++) {
        int64_t c = 0;
        for (; c + VEC_LANES <= width; c += VEC_LANES)
            *(vec *)(to + i * to_step + c) = scale * *(const vec *)(from + i * step + c);
        for (; c < width; c++)
            to[i * to_step + c] = scale * from[i * step + c];
    }
}

/* --- What a block of queries sees ------------------------------------------------------------ */

/* The documents of a block's queries. */
typedef struct block_docs {
    int32_t id[QUERIES]; /* negative: sees nothing */
    int32_t low, high;   /* of those that are not negative */
    bool any_negative;
} block_docs;

typedef struct block_view {
    int64_t first_query;
    int64_t begin, end;      /* keys; begin is a multiple of KEYS */
    const int32_t *key_docs; /* of the row, or NULL */
    block_docs docs;
} block_view;

typedef enum sight { SEES_NONE, SEES_SOME, SEES_ALL } sight;

static inline block_docs docs_of(const int32_t *docs, int64_t num)
{
    block_docs d = {.low = INT32_MAX, .high = -1};
    for (int64_t i = 0; i < QUERIES; i++)
        d.id[i] = i < num && docs[i] >= 0 ? docs[i] : -1;
    for (int64_t i = 0; i < num; i++) {
        d.low = docs[i] >= 0 && docs[i] < d.low ? docs[i] : d.low;
        d.high = docs[i] > d.high ? docs[i] : d.high;
        d.any_negative |= docs[i] < 0;
    }
    return d;
}

static inline block_view block_view_of(const attention_shape *s, const attention_head *head,
                                       int64_t first_query)
{
    block_view view = {.first_query = first_query, .end = s->num_pos, .key_docs = head->docs};
    if (s->causal)
        view.end = min_i64(s->num_pos, first_query + QUERIES);
    if (s->window > 0 && first_query >= s->window)
        view.begin = (first_query - s->window + 1) / KEYS * KEYS;
    if (head->docs)
        view.docs = docs_of(head->docs + first_query, min_i64(QUERIES, s->num_pos - first_query));
    return view;
}

/* As far as documents go. Looks at ranges of ids only: SEES_SOME may turn out to be none. */
static inline sight docs_seen(const block_view *view, int64_t first_key, int64_t num_keys)
{
    if (!view->key_docs)
        return SEES_ALL;
    const int32_t *docs = view->key_docs + first_key;
    int32_t low = INT32_MAX, high = -1, lowest = 0;
    for (int64_t j = 0; j < num_keys; j++) {
        int32_t counted = docs[j] >= 0 ? docs[j] : INT32_MAX;
        low = counted < low ? counted : low;
        high = docs[j] > high ? docs[j] : high;
        lowest = docs[j] < lowest ? docs[j] : lowest;
    }
    if (low > view->docs.high || high < view->docs.low)
        return SEES_NONE;
    bool one = low == high && view->docs.low == view->docs.high;
    return one && lowest >= 0 && !view->docs.any_negative ? SEES_ALL : SEES_SOME;
}

/* How many keys of a block each half of the queries looks at: those that one of its queries may
 * see. A half without queries is left out. */
typedef struct seen_keys {
    int num_halves;
    int64_t seen[2];
} seen_keys;

static inline seen_keys extent_of(const attention_shape *s, int64_t first_query, int64_t first_key,
                                  int64_t num_keys)
{
    seen_keys e = {.num_halves = first_query + HALF < s->num_pos ? 2 : 1};
    for (int h = 0; h < 2; h++) {
        int64_t end = first_query + (h + 1) * HALF - first_key;
        e.seen[h] = s->causal ? min_i64(num_keys, end) : num_keys;
    }
    return e;
}

/* Queries of both halves look at the same keys, or there is one half. */
static inline bool extent_even(const seen_keys *e)
{
    return e->num_halves == 1 || e->seen[0] == e->seen[1];
}

/* Causal: queries before the key do not see it. */
static inline void hide_future(float *block, int64_t first_key, int64_t num_keys,
                               int64_t first_query)
{
    for (int64_t j = 0; j < num_keys; j++) {
        int64_t hidden = first_key + j - first_query; /* queries before this one */
        for (int64_t i = 0; i < min_i64(hidden, QUERIES); i++)
            block[j * QUERIES + i] = -__builtin_inff();
    }
}

/* A window: queries that far behind the key do not see it. */
static inline void hide_past(float *block, int64_t first_key, int64_t num_keys, int64_t first_query,
                             int64_t window)
{
    for (int64_t j = 0; j < num_keys; j++) {
        int64_t seen = first_key + j + window - first_query; /* queries before this one see it */
        for (int64_t i = seen > 0 ? seen : 0; i < QUERIES; i++)
            block[j * QUERIES + i] = -__builtin_inff();
    }
}

static inline void hide_other_docs(float *restrict block, const int32_t *docs, int64_t num_keys,
                                   const int32_t *restrict id)
{
    for (int64_t j = 0; j < num_keys; j++) {
        int32_t key = docs[j] >= 0 ? docs[j] : -2; /* -1 would be equal to padding among queries */
        for (int i = 0; i < QUERIES; i++)
            block[j * QUERIES + i] = id[i] == key ? block[j * QUERIES + i] : -__builtin_inff();
    }
}

/* Scores that a query may not see become -inf. */
static inline void hide(const attention_shape *s, const block_view *view, sight docs, float *block,
                        int64_t first_key, int64_t num_keys)
{
    if (s->causal)
        hide_future(block, first_key, num_keys, view->first_query);
    if (s->window > 0 && first_key + s->window < view->first_query + QUERIES)
        hide_past(block, first_key, num_keys, view->first_query, s->window);
    if (docs == SEES_SOME)
        hide_other_docs(block, view->key_docs + first_key, num_keys, view->docs.id);
}

/* The random word of each key and query of half a block; kept where it is at least the threshold.
 * The block has room up to a multiple of 4 keys. */
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
        for (int64_t i = 0; i < HALF; i += WIDE_LANES) {
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
    for (int64_t i = 0; i < HALF; i++) {
        uint32_t word[4];
        for (int64_t j = 0; j < num_keys; j++) {
            uint64_t index = corner + (uint64_t)(i * s->num_pos + j);
            if (j == 0 || index % 4 == 0)
                tri_philox(s->key.seed, index / 4, s->key.step, s->key.stream, word);
            to[j * QUERIES + i] = word[index % 4];
        }
    }
}

/* The queries of half a block as vectors. */
enum { HALF_VECS = HALF / FVEC_LANES };

static inline fvec load_lanes(const float *from)
{
    fvec v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_lanes(float *to, fvec v)
{
    memcpy(to, &v, sizeof v);
}

/* The softmax of half a block's queries over one more block of keys: scores become weights, and the
 * state of each query is carried on. shrink is the factor for what was summed before. Keys are
 * taken one by one, so that keys which a query does not see change nothing. */
static inline void softmax_half(float *scores, int64_t num_keys, float *restrict max,
                                float *restrict sum, float *restrict shrink)
{
    fvec top[HALF_VECS], base[HALF_VECS], add[HALF_VECS];
    for (int v = 0; v < HALF_VECS; v++)
        top[v] = load_lanes(max + v * FVEC_LANES);
    for (int64_t j = 0; j < num_keys; j++)
        for (int v = 0; v < HALF_VECS; v++)
            top[v] = fvec_max(top[v], load_lanes(scores + j * QUERIES + v * FVEC_LANES));
    for (int v = 0; v < HALF_VECS; v++) {
        /* Who has seen no key so far has -inf, and no weights. */
        uvec none = (uvec)(top[v] == fvec_all(-__builtin_inff()));
        base[v] = (fvec)((uvec)top[v] & ~none);
        add[v] = (fvec){0};
    }
    for (int64_t j = 0; j < num_keys; j++) {
        for (int v = 0; v < HALF_VECS; v++) {
            float *at = scores + j * QUERIES + v * FVEC_LANES;
            fvec weight = fvec_exp_weight(load_lanes(at) - base[v]);
            store_lanes(at, weight);
            add[v] += weight;
        }
    }
    for (int v = 0; v < HALF_VECS; v++) {
        int i = v * FVEC_LANES;
        fvec factor = fvec_exp_weight(load_lanes(max + i) - base[v]);
        store_lanes(shrink + i, factor);
        store_lanes(sum + i, load_lanes(sum + i) * factor + add[v]);
        store_lanes(max + i, top[v]);
    }
}

/* Scores, and what is shaped like them: c[key][query] = sum over depth of a(key, .) b[.][query]. */
static inline void product_scores(const seen_keys *e, int64_t depth, operand a, const float *b,
                                  float *c, ahead *ahead)
{
    if (extent_even(e)) {
        product_rows(e->seen[0], e->num_halves * HALF, depth, a, (operand){b, QUERIES}, c, QUERIES,
                     false, ahead);
        return;
    }
    for (int h = 0; h < 2; h++)
        product_rows(e->seen[h], HALF, depth, a, (operand){b + h * HALF, QUERIES}, c + h * HALF,
                     QUERIES, false, ahead);
}

/* Sums over keys: c[.][query] = (or +=) sum over the keys of a(key, .) b[key][query]. */
static inline void product_over_keys(const seen_keys *e, int64_t width, operand a, const float *b,
                                     float *c, bool add, ahead *ahead)
{
    if (extent_even(e)) {
        product_cols(width, e->num_halves * HALF, e->seen[0], a, (operand){b, QUERIES}, c, QUERIES,
                     add, ahead);
        return;
    }
    for (int h = 0; h < 2; h++)
        product_cols(width, HALF, e->seen[h], a, (operand){b + h * HALF, QUERIES}, c + h * HALF,
                     QUERIES, add, ahead);
}

/* Sums over queries: c[key][.] += sum over the queries of a[key][query] b[query][.]. */
static inline void product_over_queries(const seen_keys *e, const float *a, operand b,
                                        int64_t lanes, float *c, ahead *ahead)
{
    int64_t both = e->seen[0];
    product_rows(both, lanes, e->num_halves * HALF, (operand){a, QUERIES}, b, c, lanes, true,
                 ahead);
    if (e->num_halves == 2 && e->seen[1] > both)
        product_rows(e->seen[1] - both, lanes, HALF, (operand){a + both * QUERIES + HALF, QUERIES},
                     (operand){b.data + HALF * b.step, b.step}, c + both * lanes, lanes, true,
                     ahead);
}

#endif
