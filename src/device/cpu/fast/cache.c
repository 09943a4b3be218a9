/* Attention over the cache of keys and values.
 *
 * Two ways, chosen by the number of new positions alone. Few (decoding): a task is a row and a key
 * head; the heads that share it go over the keys together, so that these are read once. Many
 * (a block of a prompt): a task is a block of queries of one head, with the queries in the lanes.
 *
 * Keys are taken in blocks that begin at multiples of KEYS (and where the ring begins again), so a
 * query's result depends on its position and on what it sees, not on what came along with it. */
#include "device/cpu/fast/attention.h"

/* Fewer new positions than this are decoded, one query after the other. */
enum { MANY = 32 };

typedef struct cache_look {
    const tri_kernel_args *args;
    const float *q, *k, *v;
    float *o;
    const int32_t *positions, *rows;
    int64_t num_pos, heads, key_heads, group, width;
    int64_t cache_rows, len; /* of the cache */
    int64_t q_step;          /* from one position to the next */
    int64_t window;
    int64_t num_blocks; /* of queries, in one head */
    int64_t worker_floats;
} cache_look;

static cache_look look_of(const tri_kernel_args *args)
{
    const tri_tensor *q = &args->in[0], *cache = &args->in[1];
    cache_look a = {.args = args,
                    .q = q->data,
                    .k = cache->data,
                    .v = args->in[2].data,
                    .o = args->out[0].data,
                    .positions = args->in[3].data,
                    .rows = args->in[4].data,
                    .num_pos = q->size[1],
                    .heads = q->size[q->rank - 2],
                    .key_heads = cache->size[1],
                    .width = cache->size[3],
                    .cache_rows = cache->size[0],
                    .len = cache->size[2],
                    .window = args->attr->attention.window};
    a.group = a.heads / a.key_heads;
    a.q_step = (q->rank == 5 ? 3 : 1) * a.heads * a.width;
    a.num_blocks = ceil_div(a.num_pos, QUERIES);
    bool few = a.num_pos < MANY;
    a.worker_floats = few ? a.group * (a.width + 2) + KEYS : 2 * a.width * QUERIES + KEYS * QUERIES;
    return a;
}

static size_t cache_attention_scratch(const tri_kernel_args *args, int num_threads)
{
    return (size_t)(look_of(args).worker_floats * num_threads) * sizeof(float);
}

/* The first position that a query sees. */
static int64_t first_seen(const cache_look *a, int64_t position)
{
    int64_t reach = a->window > 0 ? min_i64(a->window, a->len) : a->len;
    return position >= reach ? position - reach + 1 : 0;
}

/* Positions from `from` that lie together, in one block of keys, before `end`. */
static int64_t run_length(const cache_look *a, int64_t from, int64_t end)
{
    int64_t num = min_i64(KEYS - from % KEYS, end - from);
    return min_i64(num, a->len - from % a->len);
}

/* ---- few queries ---- */

static float dot(const float *restrict x, const float *restrict y, int64_t num)
{
    float lane[SUM_LANES] = {0};
    int64_t c = 0;
    for (; c + SUM_LANES <= num; c += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += x[c + l] * y[c + l];
    for (int l = 0; c + l < num; l++)
        lane[l] += x[c + l] * y[c + l];
    return sum_of_lanes(lane);
}

/* One more run of keys for one query: o, max and sum are carried on. */
static void add_keys(const float *q, const float *k, const float *v, int64_t num, int64_t width,
                     float alpha, float *restrict score, float *restrict o, float *max, float *sum)
{
    float next = *max, add = 0;
    for (int64_t j = 0; j < num; j++) {
        score[j] = alpha * dot(q, k + j * width, width);
        next = score[j] > next ? score[j] : next;
    }
    float shrink = exp_weight(*max - next); /* 0 at first, when max is -inf */
    for (int64_t c = 0; c < width; c++)
        o[c] *= shrink;
    for (int64_t j = 0; j < num; j++)
        score[j] = exp_weight(score[j] - next);
    for (int64_t j = 0; j < num; j++) {
        add += score[j];
        for (int64_t c = 0; c < width; c++)
            o[c] += score[j] * v[j * width + c];
    }
    *sum = *sum * shrink + add;
    *max = next;
}

/* The heads of one query that share a key head. */
static void few_query(const cache_look *a, int64_t row, int64_t key_head, int64_t position,
                      const float *q, float *scratch, float *out)
{
    float *o = scratch, *max = o + a->group * a->width, *sum = max + a->group;
    float *score = sum + a->group;
    for (int64_t h = 0; h < a->group; h++) {
        max[h] = -__builtin_inff();
        sum[h] = 0;
    }
    memset(o, 0, (size_t)(a->group * a->width) * sizeof(float));
    int64_t head = (row * a->key_heads + key_head) * a->len;
    for (int64_t j = first_seen(a, position); j <= position;) {
        int64_t num = run_length(a, j, position + 1), at = (head + j % a->len) * a->width;
        for (int64_t h = 0; h < a->group; h++)
            add_keys(q + h * a->width, a->k + at, a->v + at, num, a->width,
                     a->args->attr->attention.alpha, score, o + h * a->width, &max[h], &sum[h]);
        j += num;
    }
    for (int64_t h = 0; h < a->group; h++)
        for (int64_t c = 0; c < a->width; c++)
            out[h * a->width + c] = o[h * a->width + c] / sum[h];
}

static void few_task(void *context, int task, int worker)
{
    const cache_look *a = context;
    int64_t b = task / a->key_heads, g = task % a->key_heads, row = a->rows[b];
    float *scratch = (float *)cpu_of(a->args)->scratch + worker * a->worker_floats;
    for (int64_t t = 0; t < a->num_pos; t++) {
        int64_t at = b * a->num_pos + t, first = g * a->group;
        float *out = a->o + (at * a->heads + first) * a->width;
        if (a->positions[at] < 0 || row < 0 || row >= a->cache_rows)
            memset(out, 0, (size_t)(a->group * a->width) * sizeof(float));
        else
            few_query(a, row, g, a->positions[at], a->q + at * a->q_step + first * a->width,
                      scratch, out);
    }
}

/* ---- many queries ---- */

/* Scores that a query may not see become -inf; it sees the positions [low, high]. */
static void hide_positions(float *restrict block, int64_t first_key, int64_t num_keys,
                           const int32_t *restrict low, const int32_t *restrict high)
{
    for (int64_t j = 0; j < num_keys; j++) {
        int32_t key = (int32_t)(first_key + j);
        for (int i = 0; i < QUERIES; i++)
            block[j * QUERIES + i] =
                key >= low[i] && key <= high[i] ? block[j * QUERIES + i] : -__builtin_inff();
    }
}

/* What each query of a block sees, and what all of them together do. */
typedef struct block_range {
    int32_t low[QUERIES], high[QUERIES]; /* high -1: nothing */
    int64_t begin, end;
} block_range;

static block_range range_of(const cache_look *a, const int32_t *positions, int64_t num, bool there)
{
    block_range r = {.begin = INT64_MAX};
    for (int64_t i = 0; i < QUERIES; i++) {
        int32_t position = there && i < num ? positions[i] : -1;
        r.high[i] = position < 0 ? -1 : position;
        r.low[i] = position < 0 ? 0 : (int32_t)first_seen(a, position);
        if (position < 0)
            continue;
        r.begin = min_i64(r.begin, r.low[i]);
        r.end = position + 1 > r.end ? position + 1 : r.end;
    }
    return r;
}

static void many_task(void *context, int task, int worker)
{
    const cache_look *a = context;
    int64_t first = task % a->num_blocks * QUERIES, number = task / a->num_blocks;
    int64_t b = number / a->heads, h = number % a->heads, row = a->rows[b];
    int64_t num = min_i64(QUERIES, a->num_pos - first), at = b * a->num_pos + first;
    float *qt = (float *)cpu_of(a->args)->scratch + worker * a->worker_floats;
    float *ot = qt + a->width * QUERIES, *st = ot + a->width * QUERIES;
    float max[QUERIES], sum[QUERIES] = {0}, shrink[QUERIES] = {0};
    int64_t lanes = num > HALF ? QUERIES : HALF;
    for (int i = 0; i < QUERIES; i++)
        max[i] = -__builtin_inff();
    memset(ot, 0, (size_t)(a->width * QUERIES) * sizeof(float));
    pack_lanes(a->q + at * a->q_step + h * a->width, a->q_step, num, a->width,
               a->args->attr->attention.alpha, qt);
    block_range range = range_of(a, a->positions + at, num, row >= 0 && row < a->cache_rows);
    int64_t head = (row * a->key_heads + h / a->group) * a->len;
    ahead none = {0};
    for (int64_t j = range.begin; j < range.end;) {
        int64_t keys = run_length(a, j, range.end), from = (head + j % a->len) * a->width;
        product_rows(keys, lanes, a->width, (operand){a->k + from, a->width},
                     (operand){qt, QUERIES}, st, QUERIES, false, &none);
        hide_positions(st, j, keys, range.low, range.high);
        for (int64_t lane = 0; lane < lanes; lane += HALF)
            softmax_half(st + lane, keys, max + lane, sum + lane, shrink + lane);
        for (int64_t c = 0; c < a->width; c++)
            for (int i = 0; i < QUERIES; i++)
                ot[c * QUERIES + i] *= shrink[i];
        product_cols(a->width, lanes, keys, (operand){a->v + from, a->width},
                     (operand){st, QUERIES}, ot, QUERIES, true, &none);
        j += keys;
    }
    for (int i = 0; i < QUERIES; i++)
        shrink[i] = sum[i] != 0 ? 1 / sum[i] : 0;
    for (int64_t c = 0; c < a->width; c++)
        for (int i = 0; i < QUERIES; i++)
            ot[c * QUERIES + i] *= shrink[i];
    transpose(ot, QUERIES, a->width, num, 1.0f, a->o + (at * a->heads + h) * a->width,
              a->heads * a->width);
}

static void cache_attention(const tri_kernel_args *args)
{
    cache_look a = look_of(args);
    bool few = a.num_pos < MANY;
    int64_t num_batch = args->in[0].size[0];
    int64_t num_tasks = num_batch * (few ? a.key_heads : a.heads * a.num_blocks);
    run_tasks(args, args->out[0].count * KEYS, num_tasks, few ? few_task : many_task, &a);
}

/* ---- writing ---- */

/* The new positions of one row. */
static void write_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const tri_tensor *cache = &args->out[0], *k = &args->in[2];
    const int32_t *positions = (const int32_t *)args->in[4].data + task * k->size[1];
    int64_t row = ((const int32_t *)args->in[5].data)[task];
    int64_t heads = cache->size[1], len = cache->size[2], width = cache->size[3];
    bool packed = k->rank == 5;
    int64_t step = (packed ? 3 : 1) * heads * width, first = task * k->size[1] * step;
    const float *from_k = (const float *)k->data + first + (packed ? heads * width : 0);
    const float *from_v = packed ? from_k + heads * width : (const float *)args->in[3].data + first;
    for (int64_t t = 0; t < k->size[1]; t++) {
        if (positions[t] < 0 || row < 0 || row >= cache->size[0])
            continue;
        int64_t to = (row * heads * len + positions[t] % len) * width;
        for (int64_t g = 0; g < heads; g++) {
            int64_t at = to + g * len * width, from = t * step + g * width;
            memcpy((float *)cache->data + at, from_k + from, (size_t)width * sizeof(float));
            memcpy((float *)args->out[1].data + at, from_v + from, (size_t)width * sizeof(float));
        }
    }
}

static void cache_write(const tri_kernel_args *args)
{
    run_tasks(args, args->in[2].count, args->in[2].size[0], write_task, (void *)args);
}

const tri_kernel TRI_ISA_NAME(tri_fast_cache_write) = {.run = cache_write};
const tri_kernel TRI_ISA_NAME(tri_fast_cache_attention) = {
    .run = cache_attention, .scratch_bytes = cache_attention_scratch};
