/* How many times as long as by its formula an algorithm takes, found by trying.
 *
 * The formulas of collective/work.h know who moves how many bytes in which round. They do not know
 * how the system shares its cores out among ranks that outnumber them, nor what caches keep between
 * two rounds. So algorithms are tried at the sizes that will be called, in turns, and what they
 * took over what the formula gives is the factor by which it is multiplied: between two sizes on
 * the line over the logarithm of the bytes, beyond the ends that of the end. Bytes are counted as
 * in tri_algorithm.cost everywhere. */
#ifndef TRI_COMM_TUNING_TUNING_FACTORS_H
#define TRI_COMM_TUNING_TUNING_FACTORS_H

#include "collective/collective.h"
#include "comm/comm.h"

enum {
    TRI_LEAST_POWER = 10, /* of two; who calls with less goes by it */
    TRI_MOST_POWER = 27,  /* far beyond the caches: stands for all above */
    TRI_FACTOR_POINTS = TRI_MOST_POWER - TRI_LEAST_POWER + 1,
    TRI_FACTOR_ALGORITHMS = 16,
    TRI_MOST_TRIALS = 24
};

/* The calls of a run, as far as they matter to the choice (choose.c): for each operation a set of
 * powers of two of bytes, bit k for 1 << (TRI_LEAST_POWER + k). */
typedef struct tri_call_sizes {
    uint32_t of[TRI_NUM_COLLS];
} tri_call_sizes;

void tri_call_sizes_add(tri_call_sizes *sizes, tri_coll coll, uint64_t bytes);
/* Whether it is one of them. Factors of a file are of no others, so that there is room for all. */
bool tri_is_call_size(double bytes);

typedef struct tri_factors {
    int num_points[TRI_NUM_COLLS];                  /* 0: nothing was tried */
    double bytes[TRI_NUM_COLLS][TRI_FACTOR_POINTS]; /* ascending */
    /* By operation and the algorithm's number in the table; 0: not tried. */
    double of[TRI_NUM_COLLS][TRI_FACTOR_ALGORITHMS][TRI_FACTOR_POINTS];
} tri_factors;

/* Algorithms of one operation at one size. */
typedef struct tri_trial {
    tri_coll coll;
    double bytes;
    bool tries[TRI_FACTOR_ALGORITHMS];
    int calls[TRI_FACTOR_ALGORITHMS];     /* in a sample */
    double behind[TRI_FACTOR_ALGORITHMS]; /* who no longer tries: times as long as the best */
    /* Seconds by the formula, which take long to work out for tens of ranks; 0: were not yet. */
    double formula[TRI_FACTOR_ALGORITHMS];
    int num;      /* samples of each that tries */
    double spent; /* seconds */
    double seconds[TRI_FACTOR_ALGORITHMS][TRI_MOST_TRIALS];
} tri_trial;

struct tri_tuning;

/* 1 where nothing was tried. */
double tri_factors_of(const tri_factors *factors, const tri_algorithm *algorithm, tri_coll coll,
                      double bytes);
/* Whether each of these sizes was tried. */
bool tri_factors_cover(const tri_factors *factors, const tri_call_sizes *sizes);

/* Makes factors of it, at point k of its operation in tuning->factors, by the prices there. */
void tri_trial_use(const tri_trial *trial, int k, struct tri_tuning *tuning);

/* A race at those of these sizes, and at the least, that were not tried before. At each size those
 * that are far behind are left out; those that are near the best take turn after turn. The sizes
 * and the tuning must be the same on all ranks, and the factors are so afterwards. Collective. */
tr_status tri_factors_measure(tri_comm *comm, const tri_call_sizes *sizes,
                              struct tri_tuning *tuning, tr_error *err);

#endif
