/* Attention of few queries to keys in the order of their places: decoding, one query after the
 * other. A task is a row of the batch and a key head; the heads that share it go over the keys
 * together, so that these are read once. */
#include "device/cpu/fast/places.h"

#include <math.h>

typedef struct few_call {
    places_shape shape;
    int64_t worker_floats;
} few_call;

static few_call few_of(const tri_kernel_args *args)
{
    few_call f = {.shape = places_shape_of(args, args->in, args->in + TRI_ATTENTION_ROWS)};
    f.worker_floats = f.shape.group * (f.shape.v_width + 2) + KEYS;
    return f;
}

static size_t few_scratch(const tri_kernel_args *args, int num_threads)
{
    return (size_t)(few_of(args).worker_floats * num_threads) * sizeof(float);
}

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
static void add_keys(const places_shape *s, const float *q, const float *k, const float *v,
                     int64_t num, float *restrict score, float *restrict o, float *max, float *sum)
{
    float next = *max, add = 0;
    const int64_t width = s->v_width;
    for (int64_t j = 0; j < num; j++) {
        score[j] = s->alpha * dot(q, k + j * s->k_step, s->k_width);
        if (s->cap > 0)
            score[j] = s->cap * tanhf(score[j] / s->cap);
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
            o[c] += score[j] * v[j * s->v_step + c];
    }
    *sum = *sum * shrink + add;
    *max = next;
}

/* The heads of query t that share the key head of `first`, the first of them. */
static void few_query(const places_shape *s, const places_head *first, int64_t t, float *scratch)
{
    float *o = scratch, *max = o + s->group * s->v_width, *sum = max + s->group;
    float *score = sum + s->group;
    const int64_t at = first->row * s->num_queries + t;
    float *out = (float *)s->args->out[0].data + (at * s->heads + first->index) * s->v_width;
    float *lse = s->args->out[1].data;
    const float *q = first->q + t * s->q_step;
    int32_t low, high;
    places_seen(s, first, t, &low, &high);
    for (int64_t h = 0; h < s->group; h++) {
        max[h] = s->sink ? s->sink[first->index + h] : -INFINITY;
        sum[h] = max[h] != -INFINITY ? 1 : 0;
    }
    memset(o, 0, (size_t)(s->group * s->v_width) * sizeof(float));
    for (int64_t x = low; x < high;) {
        const int64_t key = s->cached ? x % s->num_keys : x;
        const int64_t num = min_i64(min_i64(KEYS - x % KEYS, high - x), s->num_keys - key);
        for (int64_t h = 0; h < s->group; h++)
            add_keys(s, q + h * s->k_width, first->k + key * s->k_step, first->v + key * s->v_step,
                     num, score, o + h * s->v_width, &max[h], &sum[h]);
        x += num;
    }
    for (int64_t h = 0; h < s->group; h++) {
        for (int64_t c = 0; c < s->v_width; c++)
            out[h * s->v_width + c] = sum[h] != 0 ? o[h * s->v_width + c] / sum[h] : 0;
        lse[(first->row * s->heads + first->index + h) * s->num_queries + t] =
            max[h] + logf(sum[h]);
    }
}

static void few_task(void *context, int task, int worker)
{
    const few_call *f = context;
    const places_shape *s = &f->shape;
    float *scratch = (float *)cpu_of(s->args)->scratch + worker * f->worker_floats;
    const places_head first =
        places_head_of(s, task / s->key_heads, task % s->key_heads * s->group);
    for (int64_t t = 0; t < s->num_queries; t++)
        few_query(s, &first, t, scratch);
}

static void few(const tri_kernel_args *args)
{
    few_call f = few_of(args);
    run_tasks(args, args->out[0].count * KEYS, f.shape.num_batch * f.shape.key_heads, few_task, &f);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention_few) = {.run = few, .scratch_bytes = few_scratch};
