#include "train/init.h"

#include "base/rng.h"

static void fill_constant(float value, int64_t count, float *data)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = value;
}

static void fill_normal(const tri_param *param, uint64_t seed, int64_t count, float *data)
{
    tri_random_normal(seed, 0, (uint64_t)count, 0, tri_stream("init", param->name), data);
    for (int64_t i = 0; i < count; i++)
        data[i] *= param->init.scale;
}

static void fill_uniform(const tri_param *param, uint64_t seed, int64_t count, float *data)
{
    uint32_t stream = tri_stream("init", param->name);
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = tri_random_word(seed, (uint64_t)i, 0, stream);
        data[i] = (float)(((word + 0.5) * 0x1p-32 * 2 - 1) * (double)param->init.scale);
    }
}

void tri_init_fill(const tri_param *param, uint64_t seed, float *data)
{
    int64_t count = tri_shape_count(&param->shape);
    switch (param->init.kind) {
    case TRI_INIT_ZERO:
        fill_constant(0, count, data);
        break;
    case TRI_INIT_ONE:
        fill_constant(1, count, data);
        break;
    case TRI_INIT_NORMAL:
        fill_normal(param, seed, count, data);
        break;
    case TRI_INIT_UNIFORM:
        fill_uniform(param, seed, count, data);
        break;
    }
}
