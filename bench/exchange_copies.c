/* The floor of an all_to_all between two ranks of one machine: two threads, a core each, that do
 * nothing but its copies. build/bench/exchange_copies [BYTES ...], of a rank's vector.
 *
 * Each copies half of its own vector and half of the other's, then waits for the other; once with
 * memcpy, once with stores past the caches. Medians in microseconds. */
#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { TIMES = 400, NUM_WAYS = 2 };

static struct {
    char *from[2], *to[2];
    size_t half;
    atomic_int arrived;
    double median[NUM_WAYS];
} all;

static void copy(int way, char *to, const char *from)
{
    if (way == 0) {
        memcpy(to, from, all.half);
        return;
    }
    for (size_t i = 0; i < all.half; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
    _mm_sfence();
}

static void meet(int number)
{
    atomic_fetch_add(&all.arrived, 1);
    while (atomic_load(&all.arrived) < 2 * number)
        continue;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *exchange(void *number)
{
    int rank = number != NULL, meetings = 0;
    double seconds[TIMES];
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET((size_t)rank, &core);
    sched_setaffinity(0, sizeof core, &core);
    for (int way = 0; way < NUM_WAYS; way++) {
        for (int i = 0; i < TIMES; i++) {
            meet(++meetings);
            double begin = tri_now_s();
            copy(way, all.to[rank] + (size_t)rank * all.half,
                 all.from[rank] + (size_t)rank * all.half);
            copy(way, all.to[rank] + (size_t)!rank * all.half,
                 all.from[!rank] + (size_t)rank * all.half);
            meet(++meetings);
            seconds[i] = tri_now_s() - begin;
        }
        qsort(seconds, TIMES, sizeof *seconds, ascending);
        if (rank == 0)
            all.median[way] = seconds[TIMES / 2];
    }
    return NULL;
}

static void measure(size_t bytes)
{
    pthread_t other;
    all.half = bytes / 2 / 64 * 64;
    atomic_store(&all.arrived, 0);
    for (int r = 0; r < 2; r++) {
        all.from[r] = aligned_alloc(4096, (2 * all.half + 4095) / 4096 * 4096);
        all.to[r] = aligned_alloc(4096, (2 * all.half + 4095) / 4096 * 4096);
        if (!all.from[r] || !all.to[r])
            exit(1);
        memset(all.from[r], 1, 2 * all.half);
        memset(all.to[r], 2, 2 * all.half);
    }
    if (pthread_create(&other, NULL, exchange, &all) != 0)
        exit(1);
    exchange(NULL);
    pthread_join(other, NULL);
    printf("%10zu bytes: memcpy %.1f us, past the caches %.1f us\n", 2 * all.half,
           all.median[0] * 1e6, all.median[1] * 1e6);
    for (int r = 0; r < 2; r++) {
        free(all.from[r]);
        free(all.to[r]);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        measure((size_t)strtoull(argv[i], NULL, 10));
    if (argc == 1) {
        measure(1 << 20);
        measure(4 << 20);
    }
    return 0;
}
