/* How many times as long as by its formula an algorithm takes, found by trying.
 *
 * The formulas of collective/work.h know who moves how many bytes in which round. They do not know
 * how the system shares its cores out among ranks that outnumber them, nor what caches keep between
 * two rounds. So algorithms are tried at a few sizes, in turns, and what they took over what the
 * formula gives is the factor by which it is multiplied: between two sizes on the line over the
 * logarithm of the bytes, beyond the ends that of the end. */
#ifndef TRI_COMM_TUNING_FACTORS_H
#define TRI_COMM_TUNING_FACTORS_H

#include "collective/collective.h"
#include "comm/comm.h"

enum { TRI_FACTOR_POINTS = 11, TRI_FACTOR_ALGORITHMS = 16, TRI_MOST_TRIALS = 16 };

typedef struct tri_factors {
    int num_points;                  /* 0: nothing was tried */
    double most_bytes;               /* for calls up to which it was tried */
    double bytes[TRI_FACTOR_POINTS]; /* of a rank's whole vector, ascending */
    /* By operation and the algorithm's number in the table; 0: not tried. */
    double of[TRI_NUM_COLLS][TRI_FACTOR_ALGORITHMS][TRI_FACTOR_POINTS];
} tri_factors;

/* Algorithms of one operation at one size. */
typedef struct tri_trial {
    tri_coll coll;
    double bytes; /* of a rank's whole vector; cut to what divides into elements */
    bool tries[TRI_FACTOR_ALGORITHMS];
    int num; /* samples of each */
    double seconds[TRI_FACTOR_ALGORITHMS][TRI_MOST_TRIALS];
} tri_trial;

struct tri_tuning;

/* 1 where nothing was tried. bytes as in tri_algorithm.cost. */
double tri_factors_of(const tri_factors *factors, const tri_algorithm *algorithm, tri_coll coll,
                      int size, double bytes);

/* Takes some samples more of at least so many seconds each, in the caller's vectors of trial->bytes
 * each. Collective; the same times on all ranks. */
tr_status tri_trial_run(tri_comm *comm, tri_trial *trial, void *send, void *recv, int samples,
                        double sample_seconds, tr_error *err);
/* Makes factors of it, at point k of tuning->factors, by the prices of the tuning. */
void tri_trial_use(const tri_trial *trial, int k, struct tri_tuning *tuning);

/* A race of the operations in colls (a bit each) at the usual sizes, up to the first that is not
 * below most_bytes; the last, far beyond the caches, stands for all above. At each size it leaves
 * out those that are far behind, ends when it has taken too long, and otherwise goes on for a while
 * with those that are near the best. The tuning must be the same on all ranks, and is so
 * afterwards. Collective. */
tr_status tri_factors_measure(tri_comm *comm, unsigned colls, double most_bytes,
                              struct tri_tuning *tuning, tr_error *err);

#endif
