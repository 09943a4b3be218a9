/* Attention in blocks of queries and keys; T x T scores never exist.
 *
 * Everything is kept transposed, with the queries of a block in the lanes: a row of the block of
 * scores belongs to one key. The maximum and the sum of the softmax are then taken lane by lane,
 * keys and values are read where they lie, one number at a time, and only the queries are copied.
 *
 *     st[j][i] = k_j . (alpha q_i)     pt = exp(st - max_i)     ot[c][i] = sum_j v_j[c] pt[j][i]
 *
 * The maximum is the one so far; when a block of keys raises it, what was summed is scaled down.
 * Blocks of keys that no query sees (before a window, of other documents) are left out.
 *
 * Lanes beyond the last position compute with zeros and are not written. */
#include "device/cpu/fast/places.h"

#include <math.h>

typedef struct forward {
    attention_shape shape;
    const tri_kernel_args *args;
    int64_t num_blocks; /* of queries, in one head */
    int64_t num_parts, num_tasks;
    int64_t worker_floats;
} forward;

/* As many tasks as should keep a large machine busy. */
enum { WANTED_TASKS = 256 };

/* Of one worker: queries, output [width][QUERIES], scores, words [KEYS][QUERIES], values
 * [KEYS][width].
 */
static int64_t forward_floats(int64_t width)
{
    return 2 * width * QUERIES + 2 * KEYS * QUERIES + KEYS * width;
}

/* Fewer queries than this are taken one after the other. */
enum { MANY = 32 };

/* Who computes what is not a plain batch; NULL: it is one. Chosen by shape alone. */
static const tri_kernel *other_kernel(const tri_kernel_args *args)
{
    const tri_tensor *in = args->in;
    if (attention_is_plain(args, in, in + TRI_ATTENTION_ROWS))
        return NULL;
    bool in_order = in[TRI_ATTENTION_K_PLACES].count == 0 && in[TRI_ATTENTION_DOCS].count == 0 &&
                    !(args->attr->attention.dropout > 0);
    return in[TRI_ATTENTION_Q].size[1] < MANY && in_order
               ? &TRI_ISA_NAME(tri_fast_attention_few)
               : &TRI_ISA_NAME(tri_fast_attention_places);
}

static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    const tri_kernel *other = other_kernel(args);
    if (other)
        return other->scratch_bytes(args, num_threads);
    return (size_t)(forward_floats(last_dim(&args->in[0])) * num_threads) * sizeof(float);
}

static float *output_at(const forward *f, const attention_head *head, int64_t first)
{
    const attention_shape *s = &f->shape;
    float *o = f->args->out[0].data;
    return o + (head->row * s->num_pos + first) * s->heads * s->width + head->index * s->width;
}

static void write_output(const forward *f, const attention_head *head, int64_t first, float *ot,
                         const float *max, const float *sum)
{
    const attention_shape *s = &f->shape;
    float *lse = f->args->out[1].data;
    int64_t num = min_i64(QUERIES, s->num_pos - first);
    float factor[QUERIES];
    for (int i = 0; i < QUERIES; i++)
        factor[i] = sum[i] != 0 ? s->keep_scale / sum[i] : 0;
    for (int64_t c = 0; c < s->width; c++)
        for (int i = 0; i < QUERIES; i++)
            ot[c * QUERIES + i] *= factor[i];
    transpose(ot, QUERIES, s->width, num, 1.0f, output_at(f, head, first), s->heads * s->width);
    lse += (head->row * s->heads + head->index) * s->num_pos + first;
    for (int64_t i = 0; i < num; i++)
        lse[i] = max[i] + logf(sum[i]);
}

/* Weights of half a block that dropout does not keep become zero. */
static void drop(const attention_shape *s, const attention_head *head, int64_t first_query,
                 int64_t first_key, int64_t num_keys, uint32_t *words, float *weights)
{
    dropout_words(s, head, first_query, first_key, num_keys, words);
    for (int64_t j = 0; j < num_keys; j++)
        for (int64_t at = j * QUERIES; at < j * QUERIES + HALF; at++)
            weights[at] = words[at] >= s->threshold ? weights[at] : 0;
}

/* Of one worker. */
typedef struct blocks {
    float *qt, *ot, *st, *v;
    uint32_t *words;
} blocks;

static blocks blocks_of(const forward *f, int worker)
{
    blocks w;
    int64_t width = f->shape.width;
    w.qt = (float *)cpu_of(f->args)->scratch + worker * f->worker_floats;
    w.ot = w.qt + width * QUERIES;
    w.st = w.ot + width * QUERIES;
    w.v = w.st + KEYS * QUERIES;
    w.words = (uint32_t *)(w.v + KEYS * width);
    return w;
}

static query_block place_of(const forward *f, int64_t task)
{
    const attention_shape *s = &f->shape;
    int64_t number = task / f->num_parts;
    return (query_block){attention_head_of(s, number / s->heads, number % s->heads),
                         task % f->num_parts * QUERIES};
}

/* What comes after the last block of keys: the output, and the next block of queries, if any. */
static void announce(const forward *f, const query_block *at, const query_block *next, ahead *soon)
{
    const attention_shape *s = &f->shape;
    ahead_add(soon, output_at(f, &at->head, at->first), s->heads * s->width,
              min_i64(QUERIES, s->num_pos - at->first), true);
    if (next)
        ahead_add(soon, next->head.q + next->first * s->q_step, s->q_step,
                  min_i64(QUERIES, s->num_pos - next->first), false);
}

/* One block of queries of one head. */
static void forward_queries(const forward *f, const query_block *at, const query_block *next,
                            const blocks *w)
{
    const attention_shape *s = &f->shape;
    const attention_head *head = &at->head;
    int64_t first = at->first;
    float max[QUERIES], sum[QUERIES] = {0}, shrink[QUERIES] = {0};
    for (int i = 0; i < QUERIES; i++)
        max[i] = -INFINITY;
    pack_lanes(head->q + first * s->q_step, s->q_step, min_i64(QUERIES, s->num_pos - first),
               s->width, s->alpha, w->qt);
    block_view view = block_view_of(s, head, first);
    bool begun = false;
    for (int64_t j = view.begin; j < view.end; j += KEYS) {
        int64_t num = min_i64(KEYS, view.end - j);
        sight docs = docs_seen(&view, j, num);
        if (docs == SEES_NONE)
            continue;
        const float *k = head->k + j * s->k_step, *v = head->v + j * s->k_step;
        seen_keys seen = extent_of(s, first, j, num);
        ahead soon = {.width = s->width};
        ahead_add(&soon, v, s->k_step, num, false);
        if (j + KEYS >= view.end)
            announce(f, at, next, &soon);
        product_scores(&seen, s->width, (operand){k, s->k_step}, w->qt, w->st, &soon);
        hide(s, &view, docs, w->st, j, num);
        for (int h = 0; h < seen.num_halves; h++) {
            int lane = h * HALF;
            softmax_half(w->st + lane, seen.seen[h], max + lane, sum + lane, shrink + lane);
            if (s->dropout > 0)
                drop(s, head, first + lane, j, seen.seen[h], w->words, w->st + lane);
        }
        if (begun)
            for (int64_t c = 0; c < s->width; c++)
                for (int i = 0; i < QUERIES; i++)
                    w->ot[c * QUERIES + i] *= shrink[i];
        pack_rows(v, s->k_step, num, s->width, 1.0f, w->v, s->width);
        product_over_keys(&seen, s->width, (operand){w->v, s->width}, w->st, w->ot, begun, &soon);
        begun = true;
    }
    if (!begun)
        memset(w->ot, 0, (size_t)(s->width * QUERIES) * sizeof(float));
    write_output(f, head, first, w->ot, max, sum);
}

/* Every num_parts-th block of queries of one head. */
static void forward_task(void *context, int task, int worker)
{
    const forward *f = context;
    const attention_shape *s = &f->shape;
    blocks w = blocks_of(f, worker);
    /* The worker's next task if all keep pace: only used to fetch what it will read. */
    int64_t guess = task + tri_pool_threads(cpu_of(f->args)->pool);
    for (query_block at = place_of(f, task), next; at.first < s->num_pos; at = next) {
        next = at;
        next.first += f->num_parts * QUERIES;
        query_block then = next;
        bool last = next.first >= s->num_pos;
        if (last && guess < f->num_tasks)
            then = place_of(f, guess);
        forward_queries(f, &at, last && guess >= f->num_tasks ? NULL : &then, &w);
    }
}

static void attention(const tri_kernel_args *args)
{
    const tri_kernel *other = other_kernel(args);
    if (other) {
        other->run(args);
        return;
    }
    forward f = {.shape = attention_shape_of(args, args->in, args->in + 3), .args = args};
    const attention_shape *s = &f.shape;
    f.num_blocks = ceil_div(s->num_pos, QUERIES);
    f.worker_floats = forward_floats(s->width);
    int64_t num_heads = s->num_batch * s->heads;
    f.num_parts = min_i64(ceil_div(WANTED_TASKS, num_heads), f.num_blocks);
    f.num_tasks = num_heads * f.num_parts;
    run_tasks(args, num_heads * s->num_pos * s->num_pos, f.num_tasks, forward_task, &f);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention) = {.run = attention,
                                                     .scratch_bytes = attention_scratch};
