/* Runs a program on a device. */
#ifndef TRI_RUN_EXECUTOR_H
#define TRI_RUN_EXECUTOR_H

#include "comm/bootstrap.h"
#include "run/store.h"
#include "run/trace.h"

/* How the rank talks to the others of a mesh axis. */
typedef struct tri_exchange {
    void *context;
    /* Sums count f32 over the axis, in place. */
    tr_status (*all_reduce)(void *context, int axis, float *data, uint64_t count, tr_error *err);
} tri_exchange;

/* An instruction made ready: its kernel, and its operands but for the addresses. */
typedef struct tri_ready tri_ready;

typedef struct tri_executor {
    const tri_program *program;
    tri_store *store;
    tri_ready *ready;
    uint64_t seed;
    tri_trace *trace;             /* NULL: none */
    double *time_by_op;           /* [TRI_NUM_OPS] seconds, when the caller gives one */
    const tri_exchange *exchange; /* needed when the program communicates */
    tri_rank_status *status;      /* NULL, or where to say which instruction is running */
} tri_executor;

tr_status tri_executor_init(tri_executor *executor, const tri_program *program, tri_store *store,
                            uint64_t seed, tr_error *err);
void tri_executor_fini(tri_executor *executor);

/* One pass over the timeline. Fails only where the program communicates: the message names the
 * instruction. */
tr_status tri_executor_run(tri_executor *executor, tr_error *err);

/* The memory of a value: inputs to be written before a run, outputs to be read after it. */
void *tri_executor_memory(const tri_executor *executor, tri_id value, uint32_t microbatch);

/* Attributes, sizes and types of an instruction's operands; data is NULL. */
void tri_instr_args(const tri_program *program, const tri_instr *instr, tri_kernel_args *args);

#endif
