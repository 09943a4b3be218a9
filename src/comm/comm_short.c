/* The short forms of the public API: each fills in a tr_collective. */
#include "comm/comm.h"

#include <stdlib.h>

#include "base/error.h"

tr_status tr_barrier(tr_group *group, tr_error *err)
{
    return tr_collective_run(group, &(tr_collective){.operation = TR_BARRIER}, err);
}

tr_status tr_broadcast(tr_group *group, void *data, uint64_t count, tr_dtype dtype, int root,
                       tr_error *err)
{
    tr_collective call = {.operation = TR_BROADCAST,
                          .dtype = dtype,
                          .root = root,
                          .send = data,
                          .recv = data,
                          .count = count};
    return tr_collective_run(group, &call, err);
}

tr_status tr_reduce(tr_group *group, const void *send, void *recv, uint64_t count, tr_dtype dtype,
                    tr_reduction reduction, int root, tr_error *err)
{
    tr_collective call = {.operation = TR_REDUCE,
                          .reduction = reduction,
                          .dtype = dtype,
                          .root = root,
                          .send = send,
                          .recv = recv,
                          .count = count};
    return tr_collective_run(group, &call, err);
}

tr_status tr_all_reduce(tr_group *group, const void *send, void *recv, uint64_t count,
                        tr_dtype dtype, tr_reduction reduction, tr_error *err)
{
    tr_collective call = {.operation = TR_ALL_REDUCE,
                          .reduction = reduction,
                          .dtype = dtype,
                          .send = send,
                          .recv = recv,
                          .count = count};
    return tr_collective_run(group, &call, err);
}

static tr_status move_blocks(tr_group *group, tr_operation operation, const void *send, void *recv,
                             uint64_t count, tr_dtype dtype, int root, tr_error *err)
{
    tr_collective call = {.operation = operation,
                          .dtype = dtype,
                          .root = root,
                          .send = send,
                          .recv = recv,
                          .count = count};
    return tr_collective_run(group, &call, err);
}

tr_status tr_gather(tr_group *group, const void *send, void *recv, uint64_t count, tr_dtype dtype,
                    int root, tr_error *err)
{
    return move_blocks(group, TR_GATHER, send, recv, count, dtype, root, err);
}

tr_status tr_scatter(tr_group *group, const void *send, void *recv, uint64_t count, tr_dtype dtype,
                     int root, tr_error *err)
{
    return move_blocks(group, TR_SCATTER, send, recv, count, dtype, root, err);
}

tr_status tr_all_gather(tr_group *group, const void *send, void *recv, uint64_t count,
                        tr_dtype dtype, tr_error *err)
{
    return move_blocks(group, TR_ALL_GATHER, send, recv, count, dtype, 0, err);
}

tr_status tr_all_to_all(tr_group *group, const void *send, void *recv, uint64_t count,
                        tr_dtype dtype, tr_error *err)
{
    return move_blocks(group, TR_ALL_TO_ALL, send, recv, count, dtype, 0, err);
}

tr_status tr_shift(tr_group *group, const void *send, uint64_t send_count, void *recv,
                   uint64_t recv_count, tr_dtype dtype, int distance, tr_error *err)
{
    int size = tr_group_size(group), on = distance % size, rank = tr_group_rank(group);
    uint64_t *counts = calloc(2 * (size_t)size, sizeof *counts);
    if (!counts)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the counts of %d ranks", size);
    counts[(rank + on + size) % size] = send_count;
    counts[size + (rank - on + size) % size] = recv_count;
    tr_collective call = {.operation = TR_ALL_TO_ALL,
                          .dtype = dtype,
                          .send = send,
                          .recv = recv,
                          .send_counts = counts,
                          .recv_counts = counts + size};
    tr_status status = tr_collective_run(group, &call, err);
    free(counts);
    return status;
}

tr_status tr_reduce_scatter(tr_group *group, const void *send, void *recv, uint64_t count,
                            tr_dtype dtype, tr_reduction reduction, tr_error *err)
{
    tr_collective call = {.operation = TR_REDUCE_SCATTER,
                          .reduction = reduction,
                          .dtype = dtype,
                          .send = send,
                          .recv = recv,
                          .count = count};
    return tr_collective_run(group, &call, err);
}
