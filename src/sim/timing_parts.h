/* What the files of the timing share; see timing.h. */
#ifndef TRI_SIM_TIMING_PARTS_H
#define TRI_SIM_TIMING_PARTS_H

#include "sim/timing.h"

/* What a call does, one after the other: compute for so long, then something with a message. */
typedef enum step_kind { STEP_RUN, STEP_START, STEP_LAND, STEP_TURN, STEP_END } step_kind;

typedef struct timing_step {
    double seconds; /* of computing before it */
    step_kind kind;
    uint32_t which;       /* RUN: message; START, LAND: flight */
    uint32_t nth;         /* of the calls that run as one: whose computing it is */
    uint32_t first, last; /* its instructions */
} timing_step;

typedef struct timing_steps {
    timing_step *steps;
    size_t count, capacity;
    double time[TRI_NUM_TIME_KINDS], redone[TRI_NUM_TIME_KINDS];
    double pending; /* seconds that belong to the next step, and whose they are */
    uint32_t nth, first, last;
    double own, least; /* seconds of computing of these calls so far; the pace that they keep */
    uint32_t num_products, products_done;
    bool ready, failed;
} timing_steps;

/* A message that was issued and has not ended, in its lane. */
typedef struct timing_issued {
    uint32_t message, flight; /* flight TRI_NONE: it is waited for where it stands */
    double at;
} timing_issued;

/* Which messages share a lane: those of a group, and where hosts send, of a peer and direction. */
typedef struct timing_lane_key {
    uint32_t group; /* over all classes */
    uint32_t peer;  /* class; TRI_NONE: whoever */
    bool incoming;
} timing_lane_key;

typedef struct timing_lane {
    timing_lane_key key;
    timing_issued *issued;
    size_t head, count, capacity; /* head: those before it have ended */
    double free_at;
} timing_lane;

/* One rank of a class, on its way through its timeline. */
typedef struct timing_rank {
    const tri_program *program;
    double *instr_seconds, *message_seconds;
    uint8_t *kind;   /* of each instruction: tri_time_kind */
    uint32_t *group; /* of each of the program's groups: its number over all classes */
    uint32_t *lane;  /* of each message */
    /* Of each message between two: the other's class, and the lane in which that has its half. */
    struct {
        uint32_t class, lane;
    } * mate;
    bool in_place;      /* no flight begins before its place */
    double brake;       /* 1: none */
    double *flight_end; /* below 0: it is under way, or has not begun */
    size_t num_started, num_landed, num_reached;
    timing_lane *lanes;
    uint32_t num_lanes;
    timing_steps *cached;      /* [segment][first][last]: calls without flights */
    timing_steps own;          /* of a call that has some */
    const timing_steps *steps; /* NULL: the next call is to be looked up */
    size_t step;
    uint32_t call;
    bool computed, issued; /* of this step: its computing is done, its message issued */
    double run_end;        /* below 0: not yet */
    double now, call_began;
    bool queued, done;
} timing_rank;

/* A group as all its members see it: which classes have members in it. */
typedef struct timing_group {
    tri_rank_group group;
    uint32_t first, count; /* of timing_run.members */
} timing_group;

typedef struct timing_run {
    const tri_timing_case *c;
    tri_timing *out;
    timing_rank *ranks; /* one of each class */
    timing_group *groups;
    size_t num_groups, groups_capacity;
    uint32_t *members; /* classes */
    size_t num_members, members_capacity;
    uint32_t *stack, depth; /* classes that may go on */
    bool no_memory;
} timing_run;

/* timing_steps.c: the steps of a call, or of the calls that run as one. */
const timing_steps *tri_timing_steps(const timing_run *run, timing_rank *rank);
/* timing_lanes.c: groups of all classes, and the lanes of their messages; issuing one. */
tr_status tri_timing_find_lanes(timing_run *run, tr_error *err);
void tri_timing_issue(timing_run *run, uint32_t class, uint32_t message, uint32_t flight);
/* Ends what can end at the heads of a class's lanes. */
void tri_timing_settle(timing_run *run, uint32_t class);
void tri_timing_wake(timing_run *run, uint32_t class);

#endif
