/* The cache of keys and values: writing new positions, and attention over it, one query after the
 * other, as in attention.c. Position p of a text lies at p mod P of its row. */
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

/* Copies one position of k or v: heads of width numbers each, that lie P positions apart. */
static void put(const tri_tensor *cache, const float *from, int64_t row, int64_t position)
{
    int64_t heads = cache->size[1], len = cache->size[2], width = cache->size[3];
    float *to = (float *)cache->data + (row * heads * len + position % len) * width;
    for (int64_t g = 0; g < heads; g++)
        memcpy(to + g * len * width, from + g * width, (size_t)width * sizeof *to);
}

/* A row outside the cache is left out too: no data may write past its end. */
static void cache_write(const tri_kernel_args *args)
{
    const tri_tensor *k_cache = &args->out[0], *v_cache = &args->out[1], *k = &args->in[2];
    const int32_t *positions = args->in[4].data, *rows = args->in[5].data;
    bool packed = k->rank == 5;
    int64_t num_batch = k->size[0], num_pos = k->size[1];
    int64_t one = k_cache->size[1] * k_cache->size[3], step = (packed ? 3 : 1) * one;
    const float *from_k = (const float *)k->data + (packed ? one : 0);
    const float *from_v = packed ? from_k + one : args->in[3].data;
    for (int64_t b = 0; b < num_batch; b++) {
        for (int64_t t = 0; t < num_pos; t++) {
            int64_t position = positions[b * num_pos + t], at = (b * num_pos + t) * step;
            if (position < 0 || rows[b] < 0 || rows[b] >= k_cache->size[0])
                continue;
            put(k_cache, from_k + at, rows[b], position);
            put(v_cache, from_v + at, rows[b], position);
        }
    }
}

static size_t cache_attention_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return (size_t)(args->in[1].size[2] + args->in[1].size[3]) * sizeof(double);
}

/* One head of one query at a position; o is the sum of values, in double. */
static void query(const tri_kernel_args *args, const float *q, int64_t row, int64_t head,
                  int64_t position, double *score, double *o)
{
    const tri_tensor *cache = &args->in[1];
    int64_t len = cache->size[2], width = cache->size[3], window = args->attr->attention.window;
    const float *k = (const float *)cache->data + (row * cache->size[1] + head) * len * width;
    const float *v = (const float *)args->in[2].data + (row * cache->size[1] + head) * len * width;
    int64_t num = position + 1 < len ? position + 1 : len;
    num = window > 0 && window < num ? window : num;
    int64_t first = position + 1 - num;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < num; j++) {
        double dot = 0;
        for (int64_t c = 0; c < width; c++)
            dot += (double)q[c] * k[(first + j) % len * width + c];
        score[j] = args->attr->attention.alpha * dot;
        max = fmax(max, score[j]);
    }
    memset(o, 0, (size_t)width * sizeof *o);
    for (int64_t j = 0; j < num; j++)
        sum += exp(score[j] - max);
    for (int64_t j = 0; j < num; j++) {
        double p = exp(score[j] - max) / sum;
        for (int64_t c = 0; c < width; c++)
            o[c] += p * v[(first + j) % len * width + c];
    }
}

static void cache_attention(const tri_kernel_args *args)
{
    const tri_tensor *q = &args->in[0], *cache = &args->in[1];
    const int32_t *positions = args->in[3].data, *rows = args->in[4].data;
    float *out = args->out[0].data;
    int64_t heads = q->size[q->rank - 2], width = cache->size[3], num_pos = q->size[1];
    int64_t group = heads / cache->size[1], step = (q->rank == 5 ? 3 : 1) * heads * width;
    double *score = ((tri_cpu *)args->device)->scratch, *o = score + cache->size[2];
    for (int64_t at = 0; at < q->size[0] * num_pos; at++) {
        int64_t row = rows[at / num_pos];
        bool there = positions[at] >= 0 && row >= 0 && row < cache->size[0];
        for (int64_t h = 0; h < heads; h++) {
            if (there)
                query(args, (const float *)q->data + at * step + h * width, row, h / group,
                      positions[at], score, o);
            for (int64_t c = 0; c < width; c++)
                out[(at * heads + h) * width + c] = there ? (float)o[c] : 0;
        }
    }
}

const tri_kernel tri_ref_cache_write = {.run = cache_write};
const tri_kernel tri_ref_cache_attention = {.run = cache_attention,
                                            .scratch_bytes = cache_attention_scratch};
