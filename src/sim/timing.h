/* The programs of all ranks, timed: what their executors do, with costs instead of work.
 *
 * A rank computes in the order of its timeline. It issues a message where its executor does: where
 * the message stands, or, of one that has a flight, where that begins. Messages of a lane run in
 * the order of issuing. One begins when all of its members have issued it and their lanes are free.
 * The rank waits for it where it stands, or where its flight lands.
 *
 * Ranks with equal programs are a class, and one rank of each is timed: rank class * stride. All
 * ranks of a class come to a message at the same time, so only members of other classes are waited
 * for. With a stride of 1 every rank is a class of its own, and nothing is assumed. */
#ifndef TRI_SIM_TIMING_H
#define TRI_SIM_TIMING_H

#include "program/program.h"

/* What a rank's time goes to, besides messages. */
typedef enum tri_time_kind {
    TRI_TIME_PRODUCTS,
    TRI_TIME_ATTENTION,
    TRI_TIME_MEMORY, /* everything else of forward and backward: bound by memory */
    TRI_TIME_UPDATE,
    TRI_NUM_TIME_KINDS
} tri_time_kind;

const char *tri_time_kind_name(tri_time_kind kind); /* "products" */
tri_time_kind tri_instr_time_kind(const tri_program *program, uint32_t instr);

/* Seconds of a piece of work, whoever works them out. */
typedef struct tri_cost_table {
    const void *context;
    double (*instr)(const void *context, const tri_program *program, uint32_t instr);
    double (*message)(const void *context, const tri_program *program, const tri_message *message);
    double (*copy)(const void *context, double bytes); /* read and written on the device */
    bool by_instr; /* instructions that programs share take as long in each of them */
} tri_cost_table;

/* A stretch of a rank's time: it computes, takes a message that others take as long for, or is idle
 * since they are not there yet. Or one of a lane, in which a message is under way. */
typedef enum tri_timing_doing {
    TRI_DOES_COMPUTE,
    TRI_DOES_WAIT, /* for the transfer itself: exposed */
    TRI_DOES_IDLE, /* for others */
    TRI_DOES_MESSAGE
} tri_timing_doing;

typedef struct tri_timing_event {
    tri_timing_doing what;
    uint32_t class;
    double start, end;
    uint32_t call;        /* not of MESSAGE; the number of calls: behind the last one */
    uint32_t first, last; /* COMPUTE: of its instructions, those from first to before last */
    uint32_t message;     /* of the rank's program; not of COMPUTE */
    uint32_t lane;        /* MESSAGE: of the rank, from 0 */
} tri_timing_event;

/* What a rank computes, waits and idles comes in the order of time and without gaps until it ends;
 * the messages of a lane likewise, with gaps. */
typedef struct tri_timing_watch {
    void *context;
    void (*event)(void *context, const tri_timing_event *event); /* NULL: nobody watches */
} tri_timing_watch;

/* What run.pace asks of ranks (run/executor.h): calls of an action take at least so long, behind
 * each product its share of it, and a rank that is braked takes so many times as long as it would.
 * What is added counts as work that is bound by memory. */
typedef struct tri_timing_pace {
    const double *least; /* [TRI_NUM_PACES] seconds; NULL: none */
    const double *brake; /* [num_classes], 1: none; NULL: of all */
} tri_timing_pace;

typedef struct tri_timing_case {
    const tri_program *const *programs; /* one of each class */
    uint32_t num_classes;
    uint32_t stride;
    bool one_lane; /* messages between ranks run one at a time, whatever their group */
    /* Each message is issued at its place, none before it: so do devices that send by themselves.
     */
    bool in_place;
    double host_s; /* of a step, before its first call: what the host does for it */
    tri_cost_table costs;
    tri_timing_pace pace;
    tri_timing_watch watch;
} tri_timing_case;

/* Seconds of one rank of a class. end is the sum of all times, exposed transfers and idle time. */
typedef struct tri_rank_timing {
    double end;
    double host;
    double time[TRI_NUM_TIME_KINDS];
    double redone;                        /* of that: recomputation; */
    double redone_of[TRI_NUM_TIME_KINDS]; /* and of each kind */
    double idle; /* it waited for others, beyond what the transfer itself took */
    /* Transfers by group of the program, and in the last entry those of fetch and stash: what the
     * rank waited for, and what ran beside its computation. */
    double *exposed, *hidden;
    double *call_start, *call_end; /* of each call; those of a pair are alike */
} tri_rank_timing;

typedef struct tri_timing {
    uint32_t num_classes;
    tri_rank_timing *ranks;
    double seconds; /* of the step: until the last rank ends */
} tri_timing;

/* Whoever calls it has checked that the programs match (program/match.h). */
tr_status tri_timing_run(const tri_timing_case *c, tri_timing *timing, tr_error *err);
void tri_timing_fini(tri_timing *timing);

#endif
