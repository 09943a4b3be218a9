/* The tile of each instruction set: mr rows by nr columns of c held in registers.
 *
 * mr * nr / width accumulators, nr / width registers for a row of b and one for an element of a
 * must fit the register file, and there must be enough accumulators to cover the latency of a fused
 * multiply-add (8 on current processors). Wide tiles beat square ones: a row of b is loaded once
 * per step, an element of a costs a broadcast, and 8 x 48 loads less than 14 x 32 per product. */
#ifndef TRI_DEVICE_CPU_FAST_GEMM_TILE_H
#define TRI_DEVICE_CPU_FAST_GEMM_TILE_H

#include "device/cpu/fast/isa.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 16
#define MR    8
#define NV    3
#elif defined(__AVX2__)
#define WIDTH 8
#define MR    4
#define NV    3
#else
#define WIDTH 4
#define MR    4
#define NV    2
#endif
#define NR (NV * WIDTH)

typedef float tile_vec __attribute__((vector_size(WIDTH * sizeof(float))));

/* memcpy is how C spells an unaligned vector load or store; it compiles to one instruction. */
static inline tile_vec load(const float *p)
{
    tile_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, tile_vec v)
{
    memcpy(p, &v, sizeof v);
}

/* Columns of the next panel when `left` remain. Panels of nr, except that what would end in a panel
 * of one vector ends in two of two: one vector alone has too few accumulators per broadcast. */
static inline int64_t panel_cols(int64_t left)
{
    if (NV == 3 && left > NR && left <= NR + WIDTH)
        return 2 * WIDTH;
    return left < NR ? left : NR;
}

static inline int64_t min_i64(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

#endif
