/* Programs that are made by hand, run by the ranks of a communicator as a training runs its own:
 * groups joined, messages by the communicator or, on fake GPUs, by the stand-in for NCCL. */
#ifndef TESTS_MESSAGE_RUN_H
#define TESTS_MESSAGE_RUN_H

#include "fake_gpu.h"
#include "run/executor.h"
#include "train/ranks.h"

typedef enum message_way {
    BY_CPU,  /* the device works in the host's memory */
    BY_HOST, /* a fake GPU whose messages go through the host */
    BY_NCCL, /* a fake GPU that sends by itself; ranks are threads */
    NUM_MESSAGE_WAYS
} message_way;

typedef struct message_run {
    int rank;
    tri_session *session;
    tri_ranks ranks;
    tri_store store;
    tri_executor executor;
    fake_gpu *gpu; /* NULL: none */
} message_run;

/* The program must outlive it. */
tr_status message_run_open(message_run *run, tr_comm *comm, const tri_program *program,
                           message_way way, tr_error *err);
/* Ends it, whatever the outcome; a fault of the fake GPU is an error, too. */
tr_status message_run_close(message_run *run, tr_status status, tr_error *err);
/* The host's memory of an input or an output; NULL: there is none of that name. */
void *message_run_memory(const message_run *run, const char *name);

/* The graph of one rank on a mesh, and its program, which is checked; the caller fills the graph in
 * between. */
typedef struct message_graph {
    tri_graph graph;
    tri_param_table params; /* a parameter w [so many], where that is more than 0 */
    int rank, ranks;
} message_graph;
void message_graph_begin(message_graph *m, int rank, const tri_mesh *mesh, int64_t num_weights);
/* overlap: messages are beside the computation where there is any. What the checker says of it. */
tr_status message_graph_try(message_graph *m, bool overlap, tri_program *program, tr_error *err);
/* The same, of a program that is right. */
void message_graph_end(message_graph *m, bool overlap, tri_program *program);
/* Emits a node with one output. */
tri_id message_graph_emit(message_graph *m, tri_op op, const char *name, const tri_attr *attr,
                          const tri_id *in, int num_in);

/* All ranks' programs agree, and finish. */
tr_status message_match(const tri_program *programs, int num, tr_error *err);

#endif
