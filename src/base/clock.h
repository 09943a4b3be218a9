/* The clock of all timing: CLOCK_MONOTONIC, which every process of a machine shares. Beside it the
 * time of day, for files that people read. */
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

/* Seconds since 1970. */
static inline double tri_unix_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
