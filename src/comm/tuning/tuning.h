/* What messages cost here: measured once, kept in tuning.json of the run directory, and used to
 * choose algorithms by their formulas. Same tuning, same choices, same bits. */
#ifndef TRI_COMM_TUNING_TUNING_H
#define TRI_COMM_TUNING_TUNING_H

#include "collective/work.h"
#include "comm/comm.h"
#include "comm/tuning/tuning_factors.h"

typedef struct tri_tuning {
    char transport[16];
    int num_ranks, num_machines;
    tri_coll_prices near;   /* between ranks of a machine; the same as far when there is one each */
    tri_coll_prices far;    /* between machines; as near when there is one */
    tri_coll_prices shared; /* of reads in shared memory (direct); as near without */
    bool measured;          /* not the guesses that every communicator begins with */
    tri_work_prices work;   /* where all ranks are on one machine */
    tri_factors factors;    /* of calls of all ranks, there */
} tri_tuning;

void tri_comm_read_tuning(const tri_comm *comm, tri_tuning *tuning);
/* The same on all ranks, before the first call that leaves the choice open. */
void tri_comm_set_tuning(tri_comm *comm, const tri_tuning *tuning);

/* Measures: rank 0 with a neighbour, and with a rank of another machine; where all are on one, what
 * work costs, and where there is a choice also how algorithms do by it at these sizes. Collective;
 * some milliseconds, with work about a second, and tenths of a second more for each size, of calls
 * that take so long themselves up to some seconds. The sizes are the same on all ranks. All get
 * rank 0's result. */
tr_status tri_tuning_measure(tri_comm *comm, const tri_call_sizes *sizes, tri_tuning *tuning,
                             tr_error *err);
/* The prices of work once more, for so many seconds, and no factors. Collective; all get rank 0's
 * result. */
tr_status tri_tuning_reprice(tri_comm *comm, double seconds, tri_tuning *tuning, tr_error *err);

/* What the work of a call costs. For ranks of one machine; collective. Some tenths of a second at
 * least, better the longer it may take. Rank 0 has the result. */
tr_status tri_work_measure(tri_comm *comm, double seconds, tri_work_prices *prices, tr_error *err);

/* Of this transport, number of ranks and machines. *found: it was there. A file that is not there
 * is no error, one that makes no sense is. */
tr_status tri_tuning_load(const char *path, tri_tuning *tuning, bool *found, tr_error *err);
/* Adds to what the file has of others, or replaces its own entry. */
tr_status tri_tuning_save(const char *path, const tri_tuning *tuning, tr_error *err);

/* Rank 0 is about to measure, which may take seconds; path as below. */
typedef void (*tri_measuring_fn)(const char *path);
/* Loads, or measures and saves, and sets: path is rank 0's, sizes those of the calls that this rank
 * makes with all others; measuring may be NULL; collective. Nothing to do where memory is shared:
 * there one algorithm has the fewest rounds and the fewest bytes of all. */
tr_status tri_comm_tune(tri_comm *comm, const char *path, const tri_call_sizes *sizes,
                        tri_measuring_fn measuring, tr_error *err);

/* Seconds of a call by the formula, or by walking through the rounds where links differ. bytes as
 * in tri_algorithm.cost. */
double tri_tuning_formula(const tri_tuning *tuning, const tri_algorithm *algorithm, tri_coll coll,
                          const tri_coll_shape *shape, double bytes);
/* The same times the factor that was found by trying. */
double tri_tuning_time(const tri_tuning *tuning, const tri_algorithm *algorithm, tri_coll coll,
                       const tri_coll_shape *shape, double bytes);

/* The name of the algorithm that runs a call: the one it names, or the one chosen for it. */
const char *tri_comm_would_run(tr_group *group, const tr_collective *call);

#endif
