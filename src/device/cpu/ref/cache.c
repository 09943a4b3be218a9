/* Writing new positions to the cache of keys and values. Position p of a text lies at p mod P of
 * its row. */
#include "device/cpu/ref/ref.h"

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

const tri_kernel tri_ref_cache_write = {.run = cache_write};
