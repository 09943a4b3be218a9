#include "sim/device_profile.h"

#include <math.h>

const char *tri_profile_kind_name(tri_profile_kind kind)
{
    static const char *const names[] = {"measured", "fitted", "datasheet"};
    return names[kind];
}

/* The rate of large products. */
static double full_rate(const tri_device_profile *p, tri_rate rate)
{
    bool bits8 = rate == TRI_RATE_FP8 || rate == TRI_RATE_INT8;
    return p->device.dense[rate] * (bits8 ? p->product8 : p->product);
}

static double operand_bytes(tri_rate rate)
{
    return rate == TRI_RATE_F32 || rate == TRI_RATE_TF32 ? 4 : rate == TRI_RATE_16 ? 2 : 1;
}

typedef struct tile_size {
    double m, n;
} tile_size;

/* A product by one size of tile, k cut into so many pieces, whose results are then added up.
 */
static double tiled_seconds(const tri_device_profile *p, const tri_product_size *s, tile_size t,
                            double pieces)
{
    static const double largest = 256 * 128;
    double units = p->device.multiprocessors;
    double rate = full_rate(p, s->rate) / units * pow(t.m * t.n / largest, p->small_tile);
    double waves = ceil(s->m / t.m) * ceil(s->n / t.n) * s->batch * pieces / units;
    waves = fmax(1, (1 - p->whole_waves) * waves + p->whole_waves * ceil(waves));
    double seconds = waves * 2 * t.m * t.n * (s->k / pieces + p->k_start) / rate;
    if (pieces > 1)
        seconds += tri_profile_memory(p, 4 * pieces * s->m * s->n * s->batch, 0, 0);
    return seconds;
}

double tri_profile_product(const tri_device_profile *p, const tri_product_size *s, double gap_s)
{
    static const tile_size tiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 64}};
    double best = INFINITY, size = operand_bytes(s->rate);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (double pieces = 1; pieces <= 4; pieces += 3)
            best = fmin(best, tiled_seconds(p, s, tiles[i], pieces));
    double bytes = s->batch * (size * (s->m * s->k + s->k * s->n) + s->out_bytes * s->m * s->n);
    return fmax(best, tri_profile_memory(p, bytes, 0, 0)) * fmax(1, s->slower) + gap_s;
}

double tri_profile_memory(const tri_device_profile *p, double bytes, double kernels, double gap_s)
{
    return bytes / (p->device.memory_bytes_per_s * p->memory) + kernels * gap_s;
}

double tri_profile_flash(const tri_device_profile *p, const tri_flash_size *s, double gap_s)
{
    double flops = 4 * s->rows * s->heads * s->queries * s->keys * s->width;
    flops *= (s->causal ? 0.5 : 1) * (s->backward ? 2.5 : 1);
    double share = s->portable ? (s->backward ? p->portable_back : p->portable)
                               : (s->backward ? p->flash_back : p->flash);
    share *= s->width < 100 ? p->flash_narrow : 1;
    double full = s->queries / (s->queries + p->flash_start);
    return flops / (p->device.dense[TRI_RATE_16] * share * full) + (s->backward ? 3 : 1) * gap_s;
}
