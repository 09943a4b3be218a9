/* The gradient of attention by places, with the formulas and the tasks of attention_grad.c: a task
 * owns a key head and every num_parts-th block of the queries that look at it, writes their dq and
 * sums dk and dv in its own scratch; then the parts of a key head are added in order. A soft cap
 * multiplies ds by its slope. */
#include "device/cpu/fast/places.h"

#include <math.h>

/* As many tasks as should keep a large machine busy. */
enum { PLACES_TASKS = 32 };

typedef struct places_backward {
    places_shape shape;
    const tri_kernel_args *args;
    tile_bounds *bounds;
    int64_t num_heads;  /* of keys, in all rows */
    int64_t num_blocks; /* of queries, in one head */
    int64_t num_parts;
    int64_t k_lanes, v_lanes; /* widths, up to whole vectors */
    int64_t part_floats;      /* scratch of a task: dk and dv */
    int64_t worker_floats;
    float *parts, *workers;
} places_backward;

/* The blocks of one worker; all [rows][QUERIES] but those marked. */
typedef struct places_grad_blocks {
    float *qt, *dqt;         /* k_width rows */
    float *doutt;            /* v_width rows */
    float *st, *dpt, *slope; /* KEYS rows */
    uint32_t *words;         /* KEYS rows */
    float *q, *dout;         /* [QUERIES][lanes] */
    float *k, *v;            /* as rows: [KEYS][width] */
    float delta[QUERIES], lse[QUERIES];
} places_grad_blocks;

static places_backward backward_of(const tri_kernel_args *args)
{
    places_backward b = {.shape = places_shape_of(args, args->in + TRI_ATTENTION_GRAD_Q,
                                                  args->in + TRI_ATTENTION_GRAD_ROWS),
                         .args = args};
    const places_shape *s = &b.shape;
    b.k_lanes = round_up(s->k_width, VEC_LANES);
    b.v_lanes = round_up(s->v_width, VEC_LANES);
    b.num_heads = s->num_batch * s->key_heads;
    b.num_blocks = ceil_div(s->num_queries, QUERIES);
    b.num_parts =
        min_i64(ceil_div(PLACES_TASKS, b.num_heads), ceil_div(s->group * b.num_blocks, 2));
    b.part_floats = s->num_keys * (b.k_lanes + b.v_lanes);
    b.worker_floats = (2 * s->k_width + s->v_width) * QUERIES + 4 * KEYS * QUERIES +
                      QUERIES * (b.k_lanes + b.v_lanes) + KEYS * (s->k_width + s->v_width);
    return b;
}

static size_t places_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    places_backward b = backward_of(args);
    return (size_t)(bounds_floats(&b.shape) + b.num_heads * b.num_parts * b.part_floats +
                    num_threads * b.worker_floats) *
           sizeof(float);
}

static places_grad_blocks blocks_of(const places_backward *b, int worker)
{
    const places_shape *s = &b->shape;
    places_grad_blocks w;
    w.qt = b->workers + worker * b->worker_floats;
    w.dqt = w.qt + s->k_width * QUERIES;
    w.doutt = w.dqt + s->k_width * QUERIES;
    w.st = w.doutt + s->v_width * QUERIES;
    w.dpt = w.st + KEYS * QUERIES;
    w.slope = w.dpt + KEYS * QUERIES;
    w.q = w.slope + KEYS * QUERIES;
    w.dout = w.q + QUERIES * b->k_lanes;
    w.k = w.dout + QUERIES * b->v_lanes;
    w.v = w.k + KEYS * s->k_width;
    w.words = (uint32_t *)(w.v + KEYS * s->v_width);
    return w;
}

/* do . o of one query. */
static float delta_of(const places_shape *s, const float *dout, const float *o)
{
    float lane[SUM_LANES] = {0};
    int64_t c = 0;
    for (; c + SUM_LANES <= s->v_width; c += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += dout[c + l] * o[c + l];
    for (; c < s->v_width; c++)
        lane[0] += dout[c] * o[c];
    return sum_of_lanes(lane);
}

/* Loads a block of queries: both layouts of q and dout, delta and lse. */
static void load_block(const places_backward *b, const places_head *head, const places_block *at,
                       places_grad_blocks *w)
{
    const places_shape *s = &b->shape;
    const int64_t step = s->heads * s->v_width;
    const int64_t from = (head->row * s->num_queries + at->first) * step + head->index * s->v_width;
    const float *dout = (const float *)b->args->in[TRI_ATTENTION_GRAD_DO].data + from;
    const float *o = (const float *)b->args->in[TRI_ATTENTION_GRAD_O].data + from;
    const float *q = head->q + at->first * s->q_step;
    const float *lse = (const float *)b->args->in[TRI_ATTENTION_GRAD_LSE].data +
                       (head->row * s->heads + head->index) * s->num_queries + at->first;
    pack_lanes(q, s->q_step, at->num, s->k_width, s->alpha, w->qt);
    pack_lanes(dout, step, at->num, s->v_width, 1.0f, w->doutt);
    memset(w->q, 0, (size_t)(QUERIES * (b->k_lanes + b->v_lanes)) * sizeof(float)); /* and dout */
    pack_rows(q, s->q_step, at->num, s->k_width, s->alpha, w->q, b->k_lanes);
    pack_rows(dout, step, at->num, s->v_width, 1.0f, w->dout, b->v_lanes);
    memset(w->dqt, 0, (size_t)(s->k_width * QUERIES) * sizeof(float));
    for (int64_t i = 0; i < QUERIES; i++) {
        const bool real = i < at->num;
        w->delta[i] = real ? delta_of(s, dout + i * step, o + i * step) : 0;
        /* of a query that sees nothing: -inf less any number is 0 */
        w->lse[i] = real && lse[i] != -INFINITY ? lse[i] : 0;
    }
}

/* Scores become the weights that count in dv, dpt becomes dst. */
static void tile_weights(const places_shape *s, const places_grad_blocks *w, int64_t num_keys)
{
    const float scale = s->keep_scale;
    for (int64_t at = 0; at < num_keys * QUERIES; at += FVEC_LANES) {
        const int64_t i = at % QUERIES;
        fvec p = fvec_exp_weight(load_lanes(w->st + at) - load_lanes(w->lse + i));
        fvec dp = load_lanes(w->dpt + at), m = fvec_all(1);
        if (s->dropout > 0) {
            uvec word;
            memcpy(&word, w->words + at, sizeof word);
            m = (fvec)((uvec)(word >= s->threshold) & (uvec)fvec_all(scale));
        }
        fvec ds = p * (m * dp - load_lanes(w->delta + i));
        if (s->cap > 0)
            ds *= load_lanes(w->slope + at);
        store_lanes(w->dpt + at, ds);
        store_lanes(w->st + at, m * p);
    }
}

/* One block of queries against one tile of keys. */
static void tile_grad(const places_backward *b, const places_head *head, const places_block *at,
                      const key_tile *tile, places_grad_blocks *w, float *dk, float *dv)
{
    const places_shape *s = &b->shape;
    ahead none = {0};
    operand k = {w->k, s->k_width}, v = {w->v, s->v_width};
    pack_rows(head->k + tile->at * s->k_step, s->k_step, tile->num, s->k_width, 1.0f, w->k,
              s->k_width);
    pack_rows(head->v + tile->at * s->v_step, s->v_step, tile->num, s->v_width, 1.0f, w->v,
              s->v_width);
    product_rows(tile->num, QUERIES, s->k_width, k, (operand){w->qt, QUERIES}, w->st, QUERIES,
                 false, &none);
    product_rows(tile->num, QUERIES, s->v_width, v, (operand){w->doutt, QUERIES}, w->dpt, QUERIES,
                 false, &none);
    if (s->cap > 0)
        cap_scores(s, tile->num, w->st, w->slope);
    hide_places(s, head, at, tile, w->st);
    if (s->dropout > 0)
        place_words(s, at, tile, w->words);
    tile_weights(s, w, tile->num);
    product_cols(s->k_width, QUERIES, tile->num, k, (operand){w->dpt, QUERIES}, w->dqt, QUERIES,
                 true, &none);
    product_rows(tile->num, b->k_lanes, QUERIES, (operand){w->dpt, QUERIES},
                 (operand){w->q, b->k_lanes}, dk + tile->at * b->k_lanes, b->k_lanes, true, &none);
    product_rows(tile->num, b->v_lanes, QUERIES, (operand){w->st, QUERIES},
                 (operand){w->dout, b->v_lanes}, dv + tile->at * b->v_lanes, b->v_lanes, true,
                 &none);
}

/* One block of queries against all the keys that it sees. */
static void block_grad(const places_backward *b, const places_head *head, int64_t first,
                       places_grad_blocks *w, float *dk, float *dv)
{
    const places_shape *s = &b->shape;
    places_block at;
    key_tile tile;
    places_block_of(s, head, first, &at);
    load_block(b, head, &at, w);
    for (int64_t x = first_tile(s, &at); next_tile(s, head, &at, b->bounds, &x, &tile);)
        tile_grad(b, head, &at, &tile, w, dk, dv);
    float *dq = (float *)b->args->out[0].data + (head->q - s->q) + first * s->q_step;
    transpose(w->dqt, QUERIES, s->k_width, at.num, s->alpha, dq, s->q_step);
}

static void part_task(void *context, int task, int worker)
{
    const places_backward *b = context;
    const places_shape *s = &b->shape;
    const int64_t key_head = task / b->num_parts, row = key_head / s->key_heads;
    const int64_t first_head = key_head % s->key_heads * s->group;
    float *dk = b->parts + task * b->part_floats, *dv = dk + s->num_keys * b->k_lanes;
    places_grad_blocks w = blocks_of(b, worker);
    memset(dk, 0, (size_t)b->part_floats * sizeof(float));
    for (int64_t n = task % b->num_parts; n < s->group * b->num_blocks; n += b->num_parts) {
        const places_head head = places_head_of(s, row, first_head + n / b->num_blocks);
        block_grad(b, &head, n % b->num_blocks * QUERIES, &w, dk, dv);
    }
}

/* Adds the parts of one key head, [num_keys][lanes] each, and writes the sums to `to`. */
static void combine_parts(const places_backward *b, float *part, int64_t lanes, int64_t width,
                          float *to, int64_t step)
{
    for (int64_t j = 0; j < b->shape.num_keys; j++, part += lanes) {
        for (int64_t p = 1; p < b->num_parts; p++)
            for (int64_t c = 0; c < lanes; c++)
                part[c] += part[p * b->part_floats + c];
        memcpy(to + j * step, part, (size_t)width * sizeof(float));
    }
}

static void combine_task(void *context, int task, int worker)
{
    (void)worker;
    const places_backward *b = context;
    const places_shape *s = &b->shape;
    const bool packed = b->args->in[TRI_ATTENTION_GRAD_K].count == 0;
    const int64_t row = task / s->key_heads, g = task % s->key_heads;
    float *dq = b->args->out[0].data;
    float *dk = packed ? dq + s->heads * s->k_width : b->args->out[1].data;
    float *dv = packed ? dk + s->heads * s->k_width : b->args->out[2].data;
    float *part = b->parts + task * b->num_parts * b->part_floats;
    combine_parts(b, part, b->k_lanes, s->k_width, dk + row * s->k_row + g * s->k_head, s->k_step);
    combine_parts(b, part + s->num_keys * b->k_lanes, b->v_lanes, s->v_width,
                  dv + row * s->v_row + g * s->v_head, s->v_step);
}

/* The gradient of one head's sink, from all of its queries in their order. */
static void sink_task(void *context, int task, int worker)
{
    (void)worker;
    const places_backward *b = context;
    const places_shape *s = &b->shape;
    const float *dout = b->args->in[TRI_ATTENTION_GRAD_DO].data;
    const float *o = b->args->in[TRI_ATTENTION_GRAD_O].data;
    const float *lse = b->args->in[TRI_ATTENTION_GRAD_LSE].data;
    double sum = 0;
    for (int64_t n = 0; n < s->num_batch * s->num_queries; n++) {
        const int64_t row = n / s->num_queries, i = n % s->num_queries;
        const int64_t at = (n * s->heads + task) * s->v_width;
        const float of = lse[(row * s->heads + task) * s->num_queries + i];
        if (of != -INFINITY)
            sum -= exp_weight(s->sink[task] - of) * delta_of(s, dout + at, o + at);
    }
    ((float *)b->args->out[b->args->num_out - 1].data)[task] = (float)sum;
}

static void places_grad(const tri_kernel_args *args)
{
    places_backward b = backward_of(args);
    const places_shape *s = &b.shape;
    float *scratch = cpu_of(args)->scratch;
    b.bounds = (tile_bounds *)scratch;
    b.parts = scratch + bounds_floats(s);
    b.workers = b.parts + b.num_heads * b.num_parts * b.part_floats;
    find_bounds(s, b.bounds);
    const int64_t work = s->num_batch * s->heads * s->num_queries * s->num_keys;
    run_tasks(args, work, b.num_heads * b.num_parts, part_task, &b);
    run_tasks(args, work, b.num_heads, combine_task, &b);
    if (s->sink)
        run_tasks(args, args->in[0].count, s->heads, sink_task, &b);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention_places_grad) = {
    .run = places_grad, .scratch_bytes = places_grad_scratch};
