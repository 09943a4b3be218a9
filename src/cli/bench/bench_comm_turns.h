/* Samples of several calls, in turns: whatever else the machine does hits all alike. */
#ifndef TRI_CLI_BENCH_BENCH_COMM_TURNS_H
#define TRI_CLI_BENCH_BENCH_COMM_TURNS_H

#include "trireme/comm.h"

enum { TRI_MOST_TURNS = 80 };

/* One call and the times that it took. */
typedef struct tri_series {
    tr_collective call;
    size_t reads;  /* floats of call.recv to read after each call, 0: none */
    int num_calls; /* in a sample */
    int num;       /* samples */
    double samples[TRI_MOST_TURNS];
} tri_series;

/* The first call, which is not timed, and how many make a sample. Collective, like the next. */
tr_status tri_series_begin(tr_group *group, tri_series *series, tr_error *err);
/* Takes samples until the time of each is known well, or for so long; of a single one for some
 * tenths of a second. after, where it is not NULL, is called after each sample. */
typedef tr_status (*tri_sampled_fn)(void *context, int series, tr_error *err);
tr_status tri_series_sample(tr_group *group, tri_series *series, int num, tri_sampled_fn after,
                            void *context, tr_error *err);
/* Sorts the samples. What lies in their middle; and at the end of the lowest eighth. */
double tri_series_median(tri_series *series);
double tri_series_octile(tri_series *series);

#endif
