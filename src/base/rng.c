#include "base/rng.h"

#include <math.h>

uint32_t tri_stream(const char *purpose, const char *name)
{
    uint32_t hash = 2166136261u;
    for (const char *c = purpose; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    hash = (hash ^ (unsigned char)':') * 16777619u;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash;
}

uint32_t tri_random_word(uint64_t seed, uint64_t index, uint32_t step, uint32_t stream)
{
    uint32_t word[4];
    tri_philox(seed, index / 4, step, stream, word);
    return word[index % 4];
}

static void normal_block(uint64_t seed, uint64_t block, uint32_t step, uint32_t stream,
                         float out[4])
{
    const double two_pi = 6.283185307179586;
    uint32_t word[4];
    tri_philox(seed, block, step, stream, word);
    for (int pair = 0; pair < 2; pair++) {
        double u = (word[2 * pair] + 0.5) * 0x1p-32;
        double angle = two_pi * (word[2 * pair + 1] * 0x1p-32);
        double radius = sqrt(-2.0 * log(u));
        out[2 * pair] = (float)(radius * cos(angle));
        out[2 * pair + 1] = (float)(radius * sin(angle));
    }
}

void tri_random_normal(uint64_t seed, uint64_t first, uint64_t num, uint32_t step, uint32_t stream,
                       float *out)
{
    float normal[4];
    for (uint64_t i = 0; i < num; i++) {
        uint64_t index = first + i;
        if (i == 0 || index % 4 == 0)
            normal_block(seed, index / 4, step, stream, normal);
        out[i] = normal[index % 4];
    }
}
