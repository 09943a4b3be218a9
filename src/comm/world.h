/* A world without a launcher: what its ranks (threads, or processes forked from one) share. */
#ifndef TRI_COMM_WORLD_H
#define TRI_COMM_WORLD_H

#include "comm/comm.h"
#include "comm/wait.h"

typedef struct tri_world tri_world;

/* In a mapping that survives fork. */
tr_status tri_world_create(int size, const tr_comm_options *options, tri_world **world,
                           tr_error *err);
void tri_world_destroy(tri_world *world);

/* Runs one rank from joining to leaving; a failure is recorded and stops the others. */
tr_status tri_world_run_rank(tri_world *world, int rank, const char *transport, tr_rank_fn fn,
                             void *context);

/* Records that a rank failed. The first one's message is kept and becomes the reason to stop. */
void tri_world_fail(tri_world *world, int rank, const char *message);
/* TR_OK, or the first failure. */
tr_status tri_world_result(const tri_world *world, tr_error *err);
const tri_rank_status *tri_world_status(const tri_world *world, int rank);

#endif
