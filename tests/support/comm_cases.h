/* One collective call with known data and a check of its result, run inside a rank. */
#ifndef TESTS_COMM_CASES_H
#define TESTS_COMM_CASES_H

#include "comm/comm.h"

typedef enum comm_memory { MEMORY_SHARED, MEMORY_PRIVATE, MEMORY_MIXED, NUM_MEMORIES } comm_memory;

typedef struct comm_case {
    tr_operation operation;
    tr_reduction reduction;
    tr_dtype dtype;
    const char *algorithm;
    uint64_t count; /* of the vector, or of all blocks together when they are equal */
    int root;
    comm_memory memory;
    bool in_place, varying, started;
    bool rooms; /* varying all_to_all: every block has a room, some are full */
} comm_case;

/* Buffers of one rank, reused by all cases. */
typedef struct comm_buffers {
    tr_comm *comm;
    char *shared[2], *private[2];
    size_t bytes;
} comm_buffers;

tr_status comm_buffers_init(comm_buffers *buffers, tr_comm *comm, size_t bytes, tr_error *err);
void comm_buffers_fini(comm_buffers *buffers);

/* Runs the case on the group; an error tells the first wrong element. */
tr_status comm_case_run(const comm_buffers *buffers, tr_group *group, const comm_case *c,
                        tr_error *err);
/* Would comm_case_run have something to do? */
bool comm_case_valid(const comm_case *c, int size);

#endif
