/* The gradient of attention, block by block, with the queries in the lanes as in attention.c.
 *
 *     pt[j][i] = exp(k_j . (alpha q_i) - lse_i)                the weights, from the kept lse
 *     dpt[j][i] = m_ij (v_j . do_i)                            m: dropout mask times its scale
 *     dst = pt * (dpt - delta_i)        delta_i = do_i . o_i
 *     dqt[c][i] += k_j[c] dst[j][i]                            times alpha at the end
 *     dv_j += m_ij pt[j][i] do_i        dk_j += dst[j][i] (alpha q_i)
 *
 * A task owns a key head and every num_parts-th block of the queries that look at it, those of one
 * query head after those of the other. It writes their dq, and sums dk and dv of the key head in
 * its own scratch, in the order of the queries; then the parts of a key head are added in order.
 * num_parts is more than one only when there are few key heads. */
#include "device/cpu/fast/places.h"

#include <math.h>

/* As many tasks as should keep a large machine busy. */
enum { WANTED_TASKS = 32 };

typedef struct backward {
    attention_shape shape;
    const tri_kernel_args *args;
    int64_t num_heads;  /* of keys, in all rows */
    int64_t num_blocks; /* of queries, in one head */
    int64_t num_parts;
    int64_t lanes;       /* width of a head, up to whole vectors */
    int64_t part_floats; /* scratch of a task: dk and dv */
    int64_t worker_floats;
    float *parts, *workers;
} backward;

/* The blocks of one worker; all [rows][QUERIES] but q and dout, which are [QUERIES][lanes]. */
typedef struct grad_blocks {
    float *qt, *doutt, *dqt; /* width rows */
    float *st, *dpt;         /* KEYS rows */
    uint32_t *words;         /* KEYS rows */
    float *q, *dout;
    float *k; /* keys as rows: [KEYS][width] */
    float delta[QUERIES], lse[QUERIES];
} grad_blocks;

static backward backward_of(const tri_kernel_args *args)
{
    backward b = {.shape = attention_shape_of(args, args->in + 1, args->in + 6), .args = args};
    const attention_shape *s = &b.shape;
    b.lanes = round_up(s->width, VEC_LANES);
    b.num_heads = s->num_batch * s->key_heads;
    b.num_blocks = ceil_div(s->num_pos, QUERIES);
    b.num_parts =
        min_i64(ceil_div(WANTED_TASKS, b.num_heads), ceil_div(s->group * b.num_blocks, 2));
    b.part_floats = 2 * s->num_pos * b.lanes;
    b.worker_floats =
        3 * s->width * QUERIES + 3 * KEYS * QUERIES + 2 * QUERIES * b.lanes + KEYS * s->width;
    return b;
}

static bool is_plain(const tri_kernel_args *args)
{
    return attention_is_plain(args, args->in + TRI_ATTENTION_GRAD_Q,
                              args->in + TRI_ATTENTION_GRAD_ROWS);
}

static size_t attention_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    if (!is_plain(args))
        return TRI_ISA_NAME(tri_fast_attention_places_grad).scratch_bytes(args, num_threads);
    backward b = backward_of(args);
    int64_t num_tasks = b.num_heads * b.num_parts;
    return (size_t)(num_tasks * b.part_floats + num_threads * b.worker_floats) * sizeof(float);
}

static grad_blocks blocks_of(const backward *b, int worker)
{
    grad_blocks w;
    int64_t width = b->shape.width;
    w.qt = b->workers + worker * b->worker_floats;
    w.doutt = w.qt + width * QUERIES;
    w.dqt = w.doutt + width * QUERIES;
    w.st = w.dqt + width * QUERIES;
    w.dpt = w.st + KEYS * QUERIES;
    w.q = w.dpt + KEYS * QUERIES;
    w.dout = w.q + QUERIES * b->lanes;
    w.k = w.dout + QUERIES * b->lanes;
    w.words = (uint32_t *)(w.k + KEYS * width);
    return w;
}

/* Loads a block of queries: both layouts of q and dout, delta and lse. */
static void load_queries(const backward *b, const attention_head *head, int64_t first,
                         grad_blocks *w)
{
    const attention_shape *s = &b->shape;
    int64_t num = min_i64(QUERIES, s->num_pos - first), o_step = s->heads * s->width;
    int64_t at = (head->row * s->num_pos + first) * o_step + head->index * s->width;
    const float *dout = (const float *)b->args->in[0].data + at;
    const float *o = (const float *)b->args->in[4].data + at;
    const float *lse = b->args->in[5].data;
    pack_lanes(head->q + first * s->q_step, s->q_step, num, s->width, s->alpha, w->qt);
    pack_lanes(dout, o_step, num, s->width, 1.0f, w->doutt);
    if (num % HALF != 0 || s->width < b->lanes)
        memset(w->q, 0, (size_t)(2 * QUERIES * b->lanes) * sizeof(float)); /* q and dout */
    pack_rows(head->q + first * s->q_step, s->q_step, num, s->width, s->alpha, w->q, b->lanes);
    pack_rows(dout, o_step, num, s->width, 1.0f, w->dout, b->lanes);
    memset(w->delta, 0, sizeof w->delta);
    memset(w->lse, 0, sizeof w->lse);
    memcpy(w->lse, lse + (head->row * s->heads + head->index) * s->num_pos + first,
           (size_t)num * sizeof(float));
    for (int i = 0; i < QUERIES; i++) /* of a query that sees nothing: -inf less any number is 0 */
        w->lse[i] = w->lse[i] == -INFINITY ? 0 : w->lse[i];
    for (int64_t i = 0; i < num; i++) {
        float lane[SUM_LANES] = {0};
        int64_t c = 0;
        for (; c + SUM_LANES <= s->width; c += SUM_LANES)
            for (int l = 0; l < SUM_LANES; l++)
                lane[l] += dout[i * o_step + c + l] * o[i * o_step + c + l];
        for (; c < s->width; c++)
            lane[0] += dout[i * o_step + c] * o[i * o_step + c];
        w->delta[i] = sum_of_lanes(lane);
    }
}

/* Of half a block's queries, scores become weights, dpt becomes dst. With words, dropout: the
 * weights become those that count in dv. */
static inline __attribute__((always_inline)) void weights(float *st, float *dpt, int64_t num_keys,
                                                          const float *lse, const float *delta,
                                                          const uint32_t *words, uint32_t threshold,
                                                          float scale)
{
    for (int64_t j = 0; j < num_keys; j++, st += QUERIES, dpt += QUERIES) {
        for (int i = 0; i < HALF; i += FVEC_LANES) {
            fvec p = fvec_exp_weight(load_lanes(st + i) - load_lanes(lse + i));
            fvec dp = load_lanes(dpt + i);
            if (words) {
                uvec word;
                memcpy(&word, words + j * QUERIES + i, sizeof word);
                fvec m = (fvec)((uvec)(word >= threshold) & (uvec)fvec_all(scale));
                store_lanes(dpt + i, p * (m * dp - load_lanes(delta + i)));
                store_lanes(st + i, m * p);
            } else {
                store_lanes(dpt + i, p * (dp - load_lanes(delta + i)));
                store_lanes(st + i, p);
            }
        }
    }
}

/* Block number `number` of those that look at the key head of the task. */
static query_block place_of(const backward *b, int64_t task, int64_t number)
{
    const attention_shape *s = &b->shape;
    int64_t key_head = task / b->num_parts;
    int64_t head = key_head % s->key_heads * s->group + number / b->num_blocks;
    return (query_block){attention_head_of(s, key_head / s->key_heads, head),
                         number % b->num_blocks * QUERIES};
}

static float *dq_at(const backward *b, const attention_head *head, int64_t first)
{
    const attention_shape *s = &b->shape;
    return (float *)b->args->out[0].data + (head->q - s->q) + first * s->q_step;
}

/* What comes after the last block of keys: dq, and the next block of queries, if any. */
static void announce(const backward *b, const query_block *at, const query_block *next, ahead *soon)
{
    const attention_shape *s = &b->shape;
    ahead_add(soon, dq_at(b, &at->head, at->first), s->q_step,
              min_i64(QUERIES, s->num_pos - at->first), true);
    if (!next)
        return;
    int64_t num = min_i64(QUERIES, s->num_pos - next->first), step = s->heads * s->width;
    int64_t o_at = (next->head.row * s->num_pos + next->first) * step + next->head.index * s->width;
    ahead_add(soon, next->head.q + next->first * s->q_step, s->q_step, num, false);
    ahead_add(soon, (const float *)b->args->in[0].data + o_at, step, num, false);
    ahead_add(soon, (const float *)b->args->in[4].data + o_at, step, num, false);
    ahead_add(soon, next->head.k, s->k_step, min_i64(KEYS, s->num_pos), false);
}

/* One block of queries against all the keys it sees. */
static void backward_queries(const backward *b, const query_block *at, const query_block *next,
                             float *dk, float *dv, grad_blocks *w)
{
    const attention_shape *s = &b->shape;
    const attention_head *head = &at->head;
    int64_t first = at->first;
    block_view view = block_view_of(s, head, first);
    bool begun = false;
    load_queries(b, head, first, w);
    for (int64_t j = view.begin; j < view.end; j += KEYS) {
        int64_t num = min_i64(KEYS, view.end - j);
        sight docs = docs_seen(&view, j, num);
        if (docs == SEES_NONE)
            continue;
        seen_keys seen = extent_of(s, first, j, num);
        ahead soon = {.width = s->width};
        if (j + KEYS < view.end)
            ahead_add(&soon, head->k + (j + KEYS) * s->k_step, s->k_step,
                      min_i64(KEYS, view.end - j - KEYS), false);
        else
            announce(b, at, next, &soon);
        operand k = {w->k, s->width}, v = {head->v + j * s->k_step, s->k_step};
        pack_rows(head->k + j * s->k_step, s->k_step, num, s->width, 1.0f, w->k, s->width);
        product_scores(&seen, s->width, k, w->qt, w->st, &soon);
        product_scores(&seen, s->width, v, w->doutt, w->dpt, &soon);
        hide(s, &view, docs, w->st, j, num);
        for (int h = 0; h < seen.num_halves; h++) {
            int lane = h * HALF;
            uint32_t *words = s->dropout > 0 ? w->words : NULL;
            if (words)
                dropout_words(s, head, first + lane, j, seen.seen[h], words);
            weights(w->st + lane, w->dpt + lane, seen.seen[h], w->lse + lane, w->delta + lane,
                    words, s->threshold, s->keep_scale);
        }
        product_over_keys(&seen, s->width, k, w->dpt, w->dqt, begun, &soon);
        product_over_queries(&seen, w->dpt, (operand){w->q, b->lanes}, b->lanes, dk + j * b->lanes,
                             &soon);
        product_over_queries(&seen, w->st, (operand){w->dout, b->lanes}, b->lanes,
                             dv + j * b->lanes, &soon);
        begun = true;
    }
    if (!begun)
        memset(w->dqt, 0, (size_t)(s->width * QUERIES) * sizeof(float));
    transpose(w->dqt, QUERIES, s->width, min_i64(QUERIES, s->num_pos - first), s->alpha,
              dq_at(b, head, first), s->q_step);
}

/* Adds the parts of one key head and writes its dk and dv. */
static void combine_task(void *context, int task, int worker)
{
    (void)worker;
    const backward *b = context;
    const attention_shape *s = &b->shape;
    bool packed = b->args->num_out == 1; /* dk and dv then lie behind dq, as k and v behind q */
    int64_t row = task / s->key_heads, index = task % s->key_heads;
    int64_t at = row * s->num_pos * s->k_step + index * s->width;
    float *dk_of_head = (float *)b->args->out[packed ? 0 : 1].data + at;
    float *dv_of_head = (float *)b->args->out[packed ? 0 : 2].data + at;
    if (packed) {
        dk_of_head += s->heads * s->width;
        dv_of_head += 2 * s->heads * s->width;
    }
    enum { AHEAD = 8 };
    for (int64_t j = 0; j < s->num_pos; j++) {
        for (int64_t c = 0; c < s->width && j + AHEAD < s->num_pos; c += LINE) {
            __builtin_prefetch(dk_of_head + (j + AHEAD) * s->k_step + c, 1);
            __builtin_prefetch(dv_of_head + (j + AHEAD) * s->k_step + c, 1);
        }
        float *dk = b->parts + task * b->num_parts * b->part_floats + j * b->lanes;
        float *dv = dk + b->part_floats / 2;
        for (int64_t part = 1; part < b->num_parts; part++) {
            for (int64_t c = 0; c < b->lanes; c++) {
                dk[c] += dk[part * b->part_floats + c];
                dv[c] += dv[part * b->part_floats + c];
            }
        }
        memcpy(dk_of_head + j * s->k_step, dk, (size_t)s->width * sizeof(float));
        memcpy(dv_of_head + j * s->k_step, dv, (size_t)s->width * sizeof(float));
    }
}

static void backward_task(void *context, int task, int worker)
{
    const backward *b = context;
    int64_t num_blocks = b->shape.group * b->num_blocks, num_tasks = b->num_heads * b->num_parts;
    /* The worker's next task if all keep pace: only used to fetch what it will read. */
    int64_t guess = task + tri_pool_threads(cpu_of(b->args)->pool);
    float *dk = b->parts + task * b->part_floats;
    grad_blocks w = blocks_of(b, worker);
    memset(dk, 0, (size_t)b->part_floats * sizeof(float));
    for (int64_t at = task % b->num_parts; at < num_blocks; at += b->num_parts) {
        bool last = at + b->num_parts >= num_blocks, known = !last || guess < num_tasks;
        query_block here = place_of(b, task, at), next = here;
        if (known)
            next = last ? place_of(b, guess, guess % b->num_parts)
                        : place_of(b, task, at + b->num_parts);
        backward_queries(b, &here, known ? &next : NULL, dk, dk + b->part_floats / 2, &w);
    }
    if (b->num_parts == 1)
        combine_task(context, task, worker); /* while it is at hand */
}

static void attention_grad(const tri_kernel_args *args)
{
    if (!is_plain(args)) {
        TRI_ISA_NAME(tri_fast_attention_places_grad).run(args);
        return;
    }
    backward b = backward_of(args);
    const attention_shape *s = &b.shape;
    b.parts = cpu_of(args)->scratch;
    b.workers = b.parts + b.num_heads * b.num_parts * b.part_floats;
    int64_t work = s->num_batch * s->heads * s->num_pos * s->num_pos;
    run_tasks(args, work, b.num_heads * b.num_parts, backward_task, &b);
    if (b.num_parts > 1)
        run_tasks(args, work, b.num_heads, combine_task, &b);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention_grad) = {.run = attention_grad,
                                                          .scratch_bytes = attention_grad_scratch};
