/* Writing new positions to the cache of keys and values. */
#include "device/cpu/fast/fast.h"

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
