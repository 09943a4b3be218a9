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
#include "device/cpu/fast/attention.h"
#include "device/cpu/fast/block.h"

#include <math.h>

typedef struct forward {
    attention_shape shape;
    const tri_kernel_args *args;
    int64_t num_blocks; /* of queries, in one head */
    int64_t worker_floats;
} forward;

/* Of one worker: queries, output [width][QUERIES], scores, words [KEYS][QUERIES], values
 * [KEYS][width].
 */
static int64_t forward_floats(int64_t width)
{
    return 2 * width * QUERIES + 2 * KEYS * QUERIES + KEYS * width;
}

static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    return (size_t)(forward_floats(last_dim(&args->in[0])) * num_threads) * sizeof(float);
}

static void write_output(const forward *f, const attention_head *head, int64_t first, float *ot,
                         const float *max, const float *sum)
{
    const attention_shape *s = &f->shape;
    float *o = f->args->out[0].data, *lse = f->args->out[1].data;
    int64_t num = min_i64(QUERIES, s->num_pos - first);
    float factor[QUERIES];
    for (int i = 0; i < QUERIES; i++)
        factor[i] = sum[i] != 0 ? s->keep_scale / sum[i] : 0;
    for (int64_t c = 0; c < s->width; c++)
        for (int i = 0; i < QUERIES; i++)
            ot[c * QUERIES + i] *= factor[i];
    o += (head->row * s->num_pos + first) * s->heads * s->width + head->index * s->width;
    transpose(ot, QUERIES, s->width, num, 1.0f, o, s->heads * s->width);
    lse += (head->row * s->heads + head->index) * s->num_pos + first;
    for (int64_t i = 0; i < num; i++)
        lse[i] = max[i] + logf(sum[i]);
}

/* One block of queries of one head. */
static void forward_task(void *context, int task, int worker)
{
    const forward *f = context;
    const attention_shape *s = &f->shape;
    int64_t number = task / f->num_blocks;
    attention_head head = attention_head_of(s, number / s->heads, number % s->heads);
    int64_t first = task % f->num_blocks * QUERIES;
    float *qt = (float *)cpu_of(f->args)->scratch + worker * f->worker_floats;
    float *ot = qt + s->width * QUERIES;
    float *st = ot + s->width * QUERIES, *v = st + KEYS * QUERIES;
    uint32_t *words = (uint32_t *)(v + KEYS * s->width);
    float max[QUERIES], sum[QUERIES] = {0}, shrink[QUERIES];
    for (int i = 0; i < QUERIES; i++)
        max[i] = -INFINITY;

    pack_lanes(head.q + first * s->q_step, s->q_step, min_i64(QUERIES, s->num_pos - first),
               s->width, s->alpha, qt);
    block_view view = block_view_of(s, &head, first);
    bool begun = false;
    for (int64_t j = view.begin; j < view.end; j += KEYS) {
        int64_t num = min_i64(KEYS, view.end - j);
        sight docs = docs_seen(&view, j, num);
        if (docs == SEES_NONE)
            continue;
        product_rows(num, QUERIES, s->width, (operand){head.k + j * s->k_step, s->k_step},
                     (operand){qt, QUERIES}, st, QUERIES, false);
        hide(s, &view, docs, st, j, num);
        softmax_block(st, num, max, sum, shrink);
        if (s->dropout > 0) {
            dropout_words(s, &head, first, j, num, words);
            for (int64_t at = 0; at < num * QUERIES; at++)
                st[at] = words[at] >= s->threshold ? st[at] : 0;
        }
        if (begun)
            for (int64_t c = 0; c < s->width; c++)
                for (int i = 0; i < QUERIES; i++)
                    ot[c * QUERIES + i] *= shrink[i];
        pack_rows(head.v + j * s->k_step, s->k_step, num, s->width, 1.0f, v, s->width);
        product_cols(s->width, QUERIES, num, (operand){v, s->width}, (operand){st, QUERIES}, ot,
                     QUERIES, begun);
        begun = true;
    }
    if (!begun)
        memset(ot, 0, (size_t)(s->width * QUERIES) * sizeof(float));
    write_output(f, &head, first, ot, max, sum);
}

static void attention(const tri_kernel_args *args)
{
    forward f = {.shape = attention_shape_of(args, args->in, args->in + 3), .args = args};
    const attention_shape *s = &f.shape;
    f.num_blocks = ceil_div(s->num_pos, QUERIES);
    f.worker_floats = forward_floats(s->width);
    int64_t num_tasks = s->num_batch * s->heads * f.num_blocks;
    run_tasks(args, num_tasks * QUERIES * s->num_pos, num_tasks, forward_task, &f);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention) = {.run = attention,
                                                     .scratch_bytes = attention_scratch};
