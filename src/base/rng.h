/* Philox4x32-10, a counter-based generator: the n-th number needs no state and no n-1 before it.
 *
 * key = seed; counter = (index / 4, step, stream), and the index picks one of the four words. The
 * stream is a hash of a canonical name and the index is global, so initial weights, dropout and
 * data order are the same in every layout. */
#ifndef TRI_BASE_RNG_H
#define TRI_BASE_RNG_H

#include <stdint.h>

/* Kernels in CUDA draw the same numbers by the same code. */
#ifdef __CUDACC__
#define TRI_RNG_ANYWHERE __host__ __device__
#else
#define TRI_RNG_ANYWHERE
#endif

TRI_RNG_ANYWHERE static inline void tri_philox(uint64_t seed, uint64_t block, uint32_t step,
                                               uint32_t stream, uint32_t word[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = stream;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/* FNV-1a of "purpose:name": the stream of a tensor for one purpose ("init", "drop", "data"). */
uint32_t tri_stream(const char *purpose, const char *name);

/* The word at a global index. */
uint32_t tri_random_word(uint64_t seed, uint64_t index, uint32_t step, uint32_t stream);

/* num normal numbers (mean 0, deviation 1) for global indices first, first + 1, ...
 * Box-Muller on the pairs (word 0, word 1) and (word 2, word 3) of a block, in double. */
void tri_random_normal(uint64_t seed, uint64_t first, uint64_t num, uint32_t step, uint32_t stream,
                       float *out);

/* A kept element of dropout: its word is at least this. */
TRI_RNG_ANYWHERE static inline uint32_t tri_dropout_threshold(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}

/* The factor of jitter: evenly from [1 - p, 1 + p), in steps of p / 2^23. */
TRI_RNG_ANYWHERE static inline float tri_jitter_factor(uint32_t word, float p)
{
    return 1.0f + p * ((float)(word >> 8) * (1.0f / 8388608.0f) - 1.0f);
}

#endif
