/* trireme bench comm, in four parts: what was asked for (bench_comm.c), one measurement
 * (bench_comm_measure.c), the rounds of an algorithm as text (bench_comm_draw.c), bandwidth as a
 * picture (bench_comm_plot.c). */
#ifndef TRI_CLI_BENCH_BENCH_COMM_H
#define TRI_CLI_BENCH_BENCH_COMM_H

#include "cli/cli.h"
#include "collective/collective.h"
#include "comm/tuning/tuning.h"
#include "trireme/comm.h"

enum { TRI_MOST_IN_TURN = 16 };

/* A row of the table, or several that differ in the algorithm and take turns. */
typedef struct tri_comm_case {
    tri_coll coll;
    const char *algorithms[TRI_MOST_IN_TURN]; /* of the table, or "auto" */
    int num_algorithms;
    const char *transport; /* "thread": ranks are threads; others: processes */
    bool private_memory;   /* vectors in ordinary memory, not in tr_comm_alloc's */
    bool predicts;         /* by factors of sizes nearby, tried in turns */
    bool bound;            /* each rank to a core, where this program starts them */
    bool uses;             /* read the result after each call, and count that, too */
    bool check_all;        /* look at the results after each sample as well */
    int num_ranks;
    /* As nccl-tests count them: the vector; all blocks together where there is one for each rank;
     * one rank's send vector in an all_to_all. */
    uint64_t bytes;
} tri_comm_case;

typedef struct tri_comm_timing {
    double seconds;                  /* of a call: over the samples */
    double fastest, median, slowest; /* of them */
    int num_samples, num_calls;      /* calls in a sample */
    int64_t num_wrong;               /* elements, over all ranks and all results looked at */
    char runs[24];                   /* the algorithm: what auto chose, otherwise what was asked */
} tri_comm_timing;

/* bytes cut to what divides into blocks of fp32 for the ranks; at least one element each. */
uint64_t tri_comm_case_bytes(tri_coll coll, int num_ranks, uint64_t bytes);
/* As tri_algorithm.cost counts them. */
double tri_comm_formula_bytes(const tri_comm_case *c, double bytes);

/* By what costs are told, where they were measured. */
typedef struct tri_comm_tunings {
    tri_tuning choice;     /* `auto` chooses by it, as training does */
    tri_tuning prediction; /* measured for longer; its factors are of sizes around a case */
} tri_comm_tunings;

/* Starts the ranks, measures, ends them. timings: one for each algorithm. Where it predicts the
 * prediction gets factors of sizes around this one. */
tr_status tri_comm_measure(const tri_comm_case *c, tri_comm_tunings *tunings,
                           tri_comm_timing *timings, tr_error *err);
/* On ranks that are there; collective. The timings are rank 0's alone. */
tr_status tri_comm_measure_on(tr_comm *comm, const tri_comm_case *c, tri_comm_tunings *tunings,
                              tri_comm_timing *timings, tr_error *err);

/* What messages cost on this transport, and which algorithms are the best at these sizes, measured
 * on the ranks of a case. */
tr_status tri_comm_measure_prices(const tri_comm_case *c, const tri_call_sizes *sizes,
                                  tri_comm_tunings *tunings, tr_error *err);
/* On ranks that are there; collective. */
tr_status tri_comm_measure_prices_on(tr_comm *comm, const tri_comm_case *c,
                                     const tri_call_sizes *sizes, tri_comm_tunings *tunings,
                                     tr_error *err);

/* What nccl-tests multiply the algorithm bandwidth with, to get what a link must carry. */
double tri_comm_bus_factor(tri_coll coll, int num_ranks);

/* The rows of a run, for a picture. */
typedef struct tri_comm_point {
    tri_coll coll;
    const char *algorithm;
    int num_ranks;
    uint64_t bytes;
    double seconds, predicted; /* by the formula; 0: not asked for, or there is none */
} tri_comm_point;

typedef struct tri_comm_plot {
    const char *transport;
    tri_comm_point *points;
    size_t num, capacity;
} tri_comm_plot;

tr_status tri_comm_plot_add(tri_comm_plot *plot, const tri_comm_point *point, tr_error *err);
tr_status tri_comm_plot_write(const tri_comm_plot *plot, const char *path, tr_error *err);

tr_status tri_comm_draw(const tri_algorithm *algorithm, tri_coll coll, const tri_coll_shape *shape,
                        int root, tr_error *err);

int tri_bench_comm(const tri_cli *cli);

#endif
