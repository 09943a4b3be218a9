/* Joins a session to the other ranks of its mesh. */
#ifndef TRI_TRAIN_RANKS_H
#define TRI_TRAIN_RANKS_H

#include "comm/comm.h"
#include "train/session.h"

/* Ranks of a pipeline that hold the same layers, by their place on it. */
enum { TRI_MAX_HOME_GROUPS = 16 };
typedef struct tri_home_group {
    int num;
    uint16_t place[TRI_MAX_HOMES];
    tri_group *group;
} tri_home_group;

typedef struct tri_ranks {
    int rank, size;
    tri_comm *comm;                  /* NULL: this rank is alone */
    bool owns_comm;                  /* destroys it when it leaves */
    tri_group *groups[TRI_NUM_AXES]; /* this rank's group on each axis; NULL where it is alone */
    int pp_rank, pp_stride;          /* place on the pipeline; from one place to the next */
    tri_home_group homes[TRI_MAX_HOME_GROUPS];
    size_t num_homes;
    int64_t *told;      /* [size] what each says after a step */
    char algorithm[40]; /* of collectives that it has: a name, or "auto" */
} tri_ranks;

/* How ranks talk. */
typedef struct tri_ranks_config {
    const char *transport; /* "auto": shm on one machine, mpi or tcp between several */
    const char *algorithm; /* of collectives; "auto": chosen by size */
    const char *tuning;    /* the file with measured prices, or NULL: they are not kept */
} tri_ranks_config;

/* Between tri_session_compile and tri_session_start. Collective over the ranks. The session must
 * end before the ranks leave. */
tr_status tri_ranks_join(tri_ranks *ranks, const tri_bootstrap *bootstrap,
                         const tri_ranks_config *config, tri_session *session, tr_error *err);
/* The same with a communicator that exists already, whose size is the mesh's, and which stays the
 * caller's: for ranks that are threads of one process. */
tr_status tri_ranks_use(tri_ranks *ranks, tri_comm *comm, tri_session *session, tr_error *err);
void tri_ranks_leave(tri_ranks *ranks);

/* What all ranks know after they met. */
typedef struct tri_meeting {
    int slowest_rank;
    double slowest_s;
    unsigned wishes; /* those of any rank */
} tri_meeting;

enum { TRI_WISH_BITS = 8 }; /* that a rank can set; what they mean is the caller's */

/* After a step, in one small message: who took longest, and whether anybody wishes something. All
 * ranks get the same answer, so they can act on it together. Collective. */
tr_status tri_ranks_meet(tri_ranks *ranks, double seconds, unsigned wishes, tri_meeting *met,
                         tr_error *err);

/* After a TR_ERROR_NUMERIC of the session's step, which all ranks have at the same step: adds to
 * the message which gradient of which rank is not finite. Collective. */
void tri_ranks_name_nonfinite(tri_ranks *ranks, const tri_session *session, tr_error *err);

#endif
