/* Joins a session to the other ranks of its mesh. */
#ifndef TRI_TRAIN_RANKS_H
#define TRI_TRAIN_RANKS_H

#include "comm/comm.h"
#include "comm/transport/nccl.h"
#include "comm/tuning/tuning.h"
#include "train/session.h"

/* A group that this rank communicates in. */
typedef struct tri_joined_group {
    tri_rank_group ranks;
    bool in_program; /* messages of programs are over it, and not only the host's */
    tri_group *group;
} tri_joined_group;

enum { TRI_WISH_BITS = 8 }; /* that a rank can set; what they mean is the caller's */

/* What a rank says after a step. Members fill 8 bytes each, so that it can travel as so many
 * numbers. */
typedef struct tri_rank_word {
    int64_t wishes;
    float own_ms[TRI_NUM_OWN]; /* since the step before */
    float waited_ms;
    float work; /* arithmetic of its program: ranks with as much are compared */
} tri_rank_word;

typedef struct tri_ranks {
    int rank, size;
    tri_comm *comm;           /* NULL: this rank is alone */
    bool owns_comm;           /* destroys it when it leaves */
    tri_joined_group *groups; /* in an order that all ranks share */
    size_t num_groups, groups_capacity;
    int64_t *told;        /* [size] a number of each, for whoever asks all */
    tri_rank_word *words; /* [size] what each said after the last step */
    char algorithm[40];   /* of collectives that it has: a name, or "auto" */
    tri_nccl *nccl;       /* carries messages of programs; NULL: comm does */
} tri_ranks;

/* How ranks talk. */
typedef struct tri_ranks_config {
    /* "auto": nccl when every rank has a GPU of its own, otherwise shm on one machine and mpi or
     * tcp between several */
    const char *transport;
    const char *algorithm;      /* of collectives; "auto": chosen by size */
    const char *tuning;         /* the file with measured prices, or NULL: they are not kept */
    const char *nccl_library;   /* "": where the system finds it */
    bool message_sums;          /* messages over tcp carry checksums */
    tri_measuring_fn measuring; /* told before prices are measured; NULL: nobody is */
} tri_ranks_config;

/* Between tri_session_compile and tri_session_start. Collective over the ranks. The session must
 * end before the ranks leave. */
tr_status tri_ranks_join(tri_ranks *ranks, const tri_bootstrap *bootstrap,
                         const tri_ranks_config *config, tri_session *session, tr_error *err);
/* The same with a communicator that exists already, whose size is the mesh's, and which stays the
 * caller's: for ranks that are threads of one process. */
tr_status tri_ranks_use(tri_ranks *ranks, tri_comm *comm, tri_session *session, tr_error *err);
/* Lets messages of the session's programs travel between devices by NCCL, through these entry
 * points; the numbers of the host keep to the communicator. The device must have lanes. Collective,
 * between joining and tri_session_start. */
tr_status tri_ranks_use_nccl(tri_ranks *ranks, const tri_bootstrap *bootstrap,
                             const tri_nccl_api *api, tri_session *session, tr_error *err);
/* Whether messages of programs may go by NCCL, as far as the settings say. */
bool tri_ranks_may_use_nccl(const char *transport, const char *algorithm);
/* Whether NCCL is to be used, and its entry points when it is: always when it is asked for, and
 * with "auto" when all ranks found it and no two have the same device. Collective. */
tr_status tri_ranks_choose_nccl(const tri_ranks *ranks, const tri_ranks_config *config,
                                tri_session *session, tri_nccl_api *api, bool *use, tr_error *err);
/* By what the numbers of the host travel, and all messages without NCCL; wanted: run.transport. */
const char *tri_ranks_host_transport(const tri_bootstrap *bootstrap, const char *wanted);
/* Whether to use NCCL, for devices that have lanes and were started: when all ranks found the
 * library, and no two have the same device. Collective. */
tr_status tri_ranks_agree_on_nccl(tri_comm *comm, tri_device *device, const char *library,
                                  tri_nccl_api *api, bool *use, tr_error *err);
void tri_ranks_leave(tri_ranks *ranks);

/* What a rank will take of its machine's memory, and what it finds there. */
typedef struct tri_rank_room {
    int64_t machine;           /* the first rank that is there too */
    int64_t wanted, available; /* bytes; available 0: not known */
} tri_rank_room;

/* TR_ERROR_INPUT where the ranks of a machine want more together than any of them finds. */
tr_status tri_ranks_judge_room(const tri_rank_room *rooms, int num, tr_error *err);
/* Before any rank has allocated, on devices that work in the machine's memory. All ranks come to
 * the same verdict. Collective. */
tr_status tri_ranks_check_room(const tri_ranks *ranks, const tri_session *session, tr_error *err);

/* The number of a group in ranks->groups, or -1; and its ranks, which the caller frees (NULL: no
 * memory). */
int tri_ranks_find_group(const tri_ranks *ranks, const tri_rank_group *group);
int *tri_ranks_members(const tri_rank_group *group);
/* Whether run.collective names an algorithm, and one that goes with every axis of the mesh. */
tr_status tri_ranks_check_algorithm(const char *algorithm, const tri_mesh *mesh, tr_error *err);

/* What a collective message means to the communicators; send, recv and label are the message's. */
tr_collective tri_ranks_collective(const tri_exchange_call *message);
/* What carries messages of programs: "nccl", "shm", ... */
const char *tri_ranks_transport(const tri_ranks *ranks);

/* What all ranks know after they met. */
typedef struct tri_meeting {
    int slowest_rank; /* whom the others waited for: the longest own time */
    double slowest_ms;
    double own_ms, waited_ms; /* mean over the ranks */
    unsigned wishes;          /* those of any rank */
} tri_meeting;

/* After a step, in one small message: who took longest, and whether anybody wishes something. All
 * ranks get the same answer, so they can act on it together; what each said is in ranks->words,
 * where there are several. Collective. */
tr_status tri_ranks_meet(tri_ranks *ranks, const tri_rank_word *word, tri_meeting *met,
                         tr_error *err);

/* After a TR_ERROR_NUMERIC of the session's step, which all ranks have at the same step: adds to
 * the message which gradient of which rank is not finite. Collective. */
void tri_ranks_name_nonfinite(tri_ranks *ranks, const tri_session *session, tr_error *err);

#endif
