#include "train/init.h"

#include "base/rng.h"

/* Elements of a task: a multiple of what a call of the generator makes. */
enum { TASK = 1 << 16 };

static void fill_constant(float value, int64_t count, float *data)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = value;
}

static void fill_normal(const tri_param *param, uint64_t seed, int64_t first, int64_t count,
                        float *data)
{
    tri_random_normal(seed, (uint64_t)first, (uint64_t)count, 0, tri_stream("init", param->name),
                      data);
    for (int64_t i = 0; i < count; i++)
        data[i] *= param->init.scale;
}

static void fill_uniform(const tri_param *param, uint64_t seed, int64_t first, int64_t count,
                         float *data)
{
    uint32_t stream = tri_stream("init", param->name);
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = tri_random_word(seed, (uint64_t)(first + i), 0, stream);
        data[i] = (float)(((word + 0.5) * 0x1p-32 * 2 - 1) * (double)param->init.scale);
    }
}

/* Elements [first, first + count) of the tensor. */
static void fill(const tri_param *param, uint64_t seed, int64_t first, int64_t count, float *data)
{
    switch (param->init.kind) {
    case TRI_INIT_ZERO:
        fill_constant(0, count, data + first);
        break;
    case TRI_INIT_ONE:
        fill_constant(1, count, data + first);
        break;
    case TRI_INIT_NORMAL:
        fill_normal(param, seed, first, count, data + first);
        break;
    case TRI_INIT_UNIFORM:
        fill_uniform(param, seed, first, count, data + first);
        break;
    }
}

typedef struct filling {
    const tri_param *param;
    uint64_t seed;
    float *data;
    int64_t count;
} filling;

static void fill_task(void *context, int task, int worker)
{
    (void)worker;
    const filling *f = context;
    int64_t first = (int64_t)task * TASK, left = f->count - first;
    fill(f->param, f->seed, first, left < TASK ? left : TASK, f->data);
}

void tri_init_fill(const tri_param *param, uint64_t seed, tri_pool *pool, float *data)
{
    filling f = {param, seed, data, tri_shape_count(&param->shape)};
    tri_pool_run(pool, (int)((f.count + TASK - 1) / TASK), fill_task, &f);
}
