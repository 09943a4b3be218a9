/* Runs a program on a device.
 *
 * A device that works in the host's memory is driven instruction by instruction. One with a queue
 * of its own gets the whole timeline recorded at the first run, as few recordings as the
 * communication between them allows, and every run then replays those: nothing is decided during a
 * step. */
#ifndef TRI_RUN_EXECUTOR_H
#define TRI_RUN_EXECUTOR_H

#include "base/text.h"
#include "comm/comm.h"
#include "run/store.h"
#include "run/trace/trace_program.h"

/* A message with its memory: a collective of a group of ranks, or half of one between two. */
typedef struct tri_exchange_call {
    tri_message_kind kind;
    tri_partial_how how; /* all_reduce: in which way terms are joined */
    const tri_rank_group *group;
    uint32_t peer; /* send, recv: the other's place in the group; broadcast: the root's */
    const void *send;
    void *recv; /* may be send for all_reduce */
    tri_dtype dtype;
    uint64_t count; /* elements: of the vector, or of one block when all are equal */
    /* Elements of each member's block of what is sent, of what is received; NULL: all are equal. */
    const uint64_t *send_counts, *recv_counts;
    uint64_t room; /* elements between the beginnings of counted blocks; 0: they leave no gaps */
    const char *label;
} tri_exchange_call;

/* Messages between the memory of devices, which the host only enqueues. */
typedef struct tri_lane_exchange {
    bool records;  /* what is enqueued may be part of a recording */
    bool waits;    /* what follows a message waits for it, whatever it touches */
    bool by_group; /* messages of different groups need not wait for each other */
    /* Enqueues on the message's lane; handle is what the device calls it. */
    tr_status (*enqueue)(void *context, const tri_exchange_call *call, void *handle, tr_error *err);
    /* Is asked while the host waits for the device, which has been at one message for `waited_s`. A
     * failure says why it will not end; what is on the lanes has been ended then. */
    tr_status (*look)(void *context, double waited_s, tr_error *err);
} tri_lane_exchange;

/* How the rank talks to the others. */
typedef struct tri_exchange {
    void *context;
    tr_status (*run)(void *context, const tri_exchange_call *call, tr_error *err);
    /* Optional: start a message and go on; those of one group run in the order of starting. wait
     * ends and frees the request, whatever the outcome, and tells when it was under way. */
    tr_status (*start)(void *context, const tri_exchange_call *call, void **request, tr_error *err);
    tr_status (*wait)(void *context, void *request, uint64_t *begin_ns, uint64_t *end_ns,
                      tr_error *err);
    void (*give_up)(void *context); /* whatever was started ends soon, with an error */
    /* Optional: what the rank has spent in messages of the host so far. */
    tri_comm_time (*spent)(void *context);
    const tri_lane_exchange *lanes; /* NULL: the host carries the messages of a program */
} tri_exchange;

/* An instruction made ready: its kernel, and its operands but for the addresses. */
typedef struct tri_ready tri_ready;
/* A part of the timeline: a recording, or an instruction that cannot be recorded. */
typedef struct tri_part tri_part;
/* Messages on lanes of the device. */
typedef struct tri_lane_use tri_lane_use;
typedef struct tri_carry_use tri_carry_use;
/* Recordings of steps that run twice. */
typedef struct tri_twice tri_twice;

/* Where own time was last counted, and what else had gone by then. */
typedef struct tri_own_mark {
    uint64_t at_ns, messages_ns;
    int64_t copies_ns, waited_ns;
    uint64_t late_ns; /* by which sleeps of run.pace ended late since then, not caught up */
} tri_own_mark;

/* The pace of calls that run as one: what they take, and how many of their products have run. */
typedef struct tri_paced {
    double least;
    uint32_t num, done;
} tri_paced;

/* Sums of what instructions make, in the order in which they run, one for each that computes and
 * one for each message: bits differ between two runs of the same calls on the same inputs where
 * their sums do. What an instruction leaves as it is of a fresh result (rows that nobody sent) is
 * set to zeros before it runs, so that it does not depend on what lay there. */
typedef struct tri_executor_sums {
    uint64_t *sum; /* room for tri_executor_num_sums */
    size_t num;
    const bool *left_out; /* [num_instrs]: these have none; NULL: all have one */
    /* For tests: may change what the instruction has made, before it is summed. On a device with a
     * queue it is called when the sum is enqueued, also while that is recorded, and may enqueue
     * what changes it. NULL: nothing does. */
    void (*made)(void *context, uint32_t call, uint32_t instr, const tri_kernel_args *args);
    void *context;
} tri_executor_sums;

typedef struct tri_executor {
    const tri_program *program;
    tri_store *store;
    tri_ready *ready;
    uint64_t seed;
    uint64_t *base;           /* of each space in its slab */
    tri_program_trace *trace; /* NULL: none */
    double *time_by_op;       /* [TRI_NUM_OPS] seconds, when the caller gives one */
    /* [2 * num_instrs] seconds, when the caller gives one: of each instruction in the first calls
     * of its segment, which may overwrite sums, then in all others. */
    double *time_by_instr;
    const tri_exchange *exchange; /* needed when the program communicates */
    /* [TRI_NUM_PACES] seconds that an action takes at least, the wait for messages not counted: the
     * executor sleeps for the rest, behind each product for its share. NULL: as long as it takes.
     */
    const double *pace;
    tri_paced paced;
    double brake; /* factor of the time that this rank takes for its actions; 0: it takes its own */
    tri_own_time own; /* of all runs so far, but for messages of the host */
    tri_own_mark mark;
    tri_rank_status *status; /* NULL, or where to say which instruction is running */
    tri_executor_sums *sums; /* NULL: nothing is summed */
    bool one_by_one; /* messages are waited for where they stand, and none is started ahead */
    /* Called in a run on a device with a queue, once the inputs have left the host's memory: while
     * the device is busy the host may write those of the next run. Not in runs that are timed. */
    void (*meanwhile)(void *context);
    void *meanwhile_context;
    tri_part *parts; /* of a device with a queue, after the first run */
    size_t num_parts, parts_capacity;
    void **requests; /* [num_flights] messages under way, NULL: not started, or ended */
    size_t num_started, num_landed; /* flights, in this run */
    size_t num_reached;             /* of those that are started ahead: their places so far */
    void *host_memory;              /* copies of operands, for instructions that run on the host */
    tri_lane_use *lanes;            /* NULL: no message was enqueued yet */
    tri_carry_use *carries;         /* the same of fetch and stash */
    tri_twice *twice;               /* NULL: no step ran twice yet */
    /* Elements of each member of the message at hand, as sent and as received: room for the
     * largest group whose blocks differ. */
    uint64_t *send_counts, *recv_counts;
    int32_t *rows; /* counts that came from the device, as sent and as received */
} tri_executor;

/* What making a program ready will take of the heap. */
uint64_t tri_executor_table_bytes(const tri_program *program);
tr_status tri_executor_init(tri_executor *executor, const tri_program *program, tri_store *store,
                            uint64_t seed, tr_error *err);
void tri_executor_fini(tri_executor *executor);

/* One pass over the timeline; inputs travel to the device before it and outputs back after it.
 * Fails only where the program communicates, or when the device does: the message names the
 * instruction where it can. */
tr_status tri_executor_run(tri_executor *executor, tr_error *err);

/* The calls from the first up to the end; sums NULL: nothing is summed. Messages are waited for
 * where they stand, which finishes, too (program/match.c): so what a call makes is there when it
 * ends, and calls may run again. quiet: nothing is traced.
 * On a device with a queue: those from 0 on with sums, then those up to the last without, always
 * the same. Results lie in the device's memory, store->sums has room, and nothing is traced. */
tr_status tri_executor_run_calls(tri_executor *executor, uint32_t first, uint32_t end, bool quiet,
                                 tri_executor_sums *sums, tr_error *err);
/* The instructions of the first so many calls that have a sum, in the order of their sums. It
 * begins as {.left_out = ...}; false: there are no more. */
typedef struct tri_summed {
    const bool *left_out;
    uint32_t call, instr;
    uint32_t lead, turn, next; /* where to look for the next one */
} tri_summed;
bool tri_executor_next_sum(const tri_program *program, uint32_t num_calls, tri_summed *at);
size_t tri_executor_num_sums(const tri_program *program, uint32_t num_calls, const bool *left_out);

/* The host's memory of an input (to be written before a run), an output or a statistic (to be read
 * after it); for other values that of the place where they lie, which the host can read where that
 * is the host, or the device has no queue. NULL for what lies in a file. */
void *tri_executor_memory(const tri_executor *executor, tri_id value, uint32_t microbatch);
/* Copies a state from where it rests, or to there; or so many bytes of one, from the first on. */
tr_status tri_executor_read(const tri_executor *executor, tri_id value, void *to, tr_error *err);
tr_status tri_executor_write(const tri_executor *executor, tri_id value, const void *from,
                             tr_error *err);
tr_status tri_executor_read_part(const tri_executor *executor, tri_id value, uint64_t first,
                                 size_t bytes, void *to, tr_error *err);
tr_status tri_executor_write_part(const tri_executor *executor, tri_id value, uint64_t first,
                                  size_t bytes, const void *from, tr_error *err);

/* Names of the operators that this device has no kernel for, such as "rope, embed"; "" for none. */
void tri_executor_host_ops(const tri_executor *executor, tri_text *names);

/* Attributes, sizes and types of an instruction's operands; data is NULL. */
void tri_instr_args(const tri_program *program, const tri_instr *instr, tri_kernel_args *args);

#endif
