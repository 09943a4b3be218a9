/* The clock of all timing: CLOCK_MONOTONIC, which every process of a machine shares. */
#ifndef TRI_BASE_CLOCK_H
#define TRI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t tri_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double tri_now_s(void)
{
    return (double)tri_now_ns() * 1e-9;
}

#endif
