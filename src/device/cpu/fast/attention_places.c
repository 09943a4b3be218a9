/* Attention by places, in blocks of queries and tiles of keys, as in attention.c: the queries of a
 * block lie in the lanes, keys and values are read where they lie.
 *
 * A sink is where a query begins: its maximum is the sink, its sum 1. */
#include "device/cpu/fast/places.h"

#include <math.h>

typedef struct places_forward {
    places_shape shape;
    tile_bounds *bounds;
    int64_t num_blocks; /* of queries, in one head */
    int64_t worker_floats;
    float *workers;
} places_forward;

/* Of one worker. */
typedef struct places_buffers {
    float *qt, *ot; /* [width][QUERIES] */
    float *st;      /* [KEYS][QUERIES] */
    uint32_t *words;
    float *v; /* values as rows: [KEYS][width] */
} places_buffers;

static places_forward forward_of(const tri_kernel_args *args)
{
    places_forward f = {.shape = places_shape_of(args, args->in, args->in + TRI_ATTENTION_ROWS)};
    const places_shape *s = &f.shape;
    f.num_blocks = ceil_div(s->num_queries, QUERIES);
    f.worker_floats = (s->k_width + s->v_width) * QUERIES + 2 * KEYS * QUERIES + KEYS * s->v_width;
    return f;
}

static size_t attention_places_scratch(const tri_kernel_args *args, int num_threads)
{
    places_forward f = forward_of(args);
    return (size_t)(bounds_floats(&f.shape) + num_threads * f.worker_floats) * sizeof(float);
}

static places_buffers buffers_of(const places_forward *f, int worker)
{
    const places_shape *s = &f->shape;
    places_buffers w;
    w.qt = f->workers + worker * f->worker_floats;
    w.ot = w.qt + s->k_width * QUERIES;
    w.st = w.ot + s->v_width * QUERIES;
    w.v = w.st + KEYS * QUERIES;
    w.words = (uint32_t *)(w.v + KEYS * s->v_width);
    return w;
}

static void write_results(const places_shape *s, const places_head *head, const places_block *b,
                          float *ot, const float *max, const float *sum)
{
    float factor[QUERIES];
    for (int i = 0; i < QUERIES; i++)
        factor[i] = sum[i] != 0 ? s->keep_scale / sum[i] : 0;
    for (int64_t c = 0; c < s->v_width; c++)
        for (int i = 0; i < QUERIES; i++)
            ot[c * QUERIES + i] *= factor[i];
    const int64_t at = head->row * s->num_queries + b->first;
    float *o = (float *)s->args->out[0].data + (at * s->heads + head->index) * s->v_width;
    float *lse = (float *)s->args->out[1].data +
                 (head->row * s->heads + head->index) * s->num_queries + b->first;
    transpose(ot, QUERIES, s->v_width, b->num, 1.0f, o, s->heads * s->v_width);
    for (int64_t i = 0; i < b->num; i++)
        lse[i] = max[i] + logf(sum[i]);
}

/* Weights that dropout does not keep become zero. */
static void drop_places(const places_shape *s, const places_block *b, const key_tile *tile,
                        uint32_t *words, float *weights)
{
    place_words(s, b, tile, words);
    for (int64_t at = 0; at < tile->num * QUERIES; at++)
        weights[at] = words[at] >= s->threshold ? weights[at] : 0;
}

/* One block of queries of one head. */
static void block_task(void *context, int task, int worker)
{
    const places_forward *f = context;
    const places_shape *s = &f->shape;
    const int64_t number = task / f->num_blocks;
    const places_head head = places_head_of(s, number / s->heads, number % s->heads);
    const places_buffers w = buffers_of(f, worker);
    places_block b;
    places_block_of(s, &head, task % f->num_blocks * QUERIES, &b);
    const int64_t lanes = b.num > HALF ? QUERIES : HALF;
    float max[QUERIES], sum[QUERIES], shrink[QUERIES] = {0};
    for (int i = 0; i < QUERIES; i++) {
        max[i] = s->sink ? s->sink[head.index] : -INFINITY;
        sum[i] = max[i] != -INFINITY ? 1 : 0;
    }
    memset(w.ot, 0, (size_t)(s->v_width * QUERIES) * sizeof(float));
    pack_lanes(head.q + b.first * s->q_step, s->q_step, b.num, s->k_width, s->alpha, w.qt);
    key_tile tile;
    ahead none = {0};
    for (int64_t at = first_tile(s, &b); next_tile(s, &head, &b, f->bounds, &at, &tile);) {
        operand v = {head.v + tile.at * s->v_step, s->v_step};
        product_rows(tile.num, lanes, s->k_width,
                     (operand){head.k + tile.at * s->k_step, s->k_step}, (operand){w.qt, QUERIES},
                     w.st, QUERIES, false, &none);
        if (s->cap > 0)
            cap_scores(s, tile.num, w.st, NULL);
        hide_places(s, &head, &b, &tile, w.st);
        for (int64_t lane = 0; lane < lanes; lane += HALF)
            softmax_half(w.st + lane, tile.num, max + lane, sum + lane, shrink + lane);
        if (s->dropout > 0)
            drop_places(s, &b, &tile, w.words, w.st);
        for (int64_t c = 0; c < s->v_width; c++)
            for (int i = 0; i < QUERIES; i++)
                w.ot[c * QUERIES + i] *= shrink[i];
        if (s->v_step > s->v_width) {
            pack_rows(v.data, v.step, tile.num, s->v_width, 1.0f, w.v, s->v_width);
            v = (operand){w.v, s->v_width};
        }
        product_cols(s->v_width, lanes, tile.num, v, (operand){w.st, QUERIES}, w.ot, QUERIES, true,
                     &none);
    }
    write_results(s, &head, &b, w.ot, max, sum);
}

static void attention_places(const tri_kernel_args *args)
{
    places_forward f = forward_of(args);
    const places_shape *s = &f.shape;
    float *scratch = cpu_of(args)->scratch;
    f.bounds = (tile_bounds *)scratch;
    f.workers = scratch + bounds_floats(s);
    find_bounds(s, f.bounds);
    run_tasks(args, args->out[0].count * KEYS, s->num_batch * s->heads * f.num_blocks, block_task,
              &f);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention_places) = {
    .run = attention_places, .scratch_bytes = attention_places_scratch};
