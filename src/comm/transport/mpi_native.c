/* The collectives of the MPI library itself, as the algorithm "native". They wait without our
 * deadline: the control plane notices a rank that does not move. */
#include "comm/comm_internal.h"
#include "comm/layout.h"
#include "comm/reduce.h"
#include "comm/transport/mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* room: elements between the beginnings of blocks; 0: they leave no gaps. */
static tr_status fill_counts(const uint64_t *counts, uint64_t room, int size, int **out,
                             tr_error *err)
{
    int *list = malloc(2 * (size_t)size * sizeof *list);
    uint64_t at = 0;
    *out = list;
    if (list == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d counts", size);
    for (int i = 0; i < size; i++) {
        if (counts[i] > INT_MAX || at > INT_MAX)
            return tri_fail(err, TR_ERROR_INPUT,
                            "MPI counts up to %d elements; choose another algorithm than native",
                            INT_MAX);
        list[i] = (int)counts[i];
        list[size + i] = (int)at;
        at += room ? room : counts[i];
    }
    return TR_OK;
}

/* Where MPI wants MPI_IN_PLACE, send is NULL; where results go elsewhere first, *block is made. */
static tr_status place(const tr_group *group, const tr_collective *call, tri_mpi_collective *c,
                       void **block, tr_error *err)
{
    uint64_t element = tri_dtype_bytes((tri_dtype)call->dtype);
    const uint64_t *counts = tri_block_counts(call);
    uint64_t own_at = tri_block_first(counts, call->count, group->rank) * element;
    bool root = group->rank == call->root;
    const char *send = call->send, *recv = call->recv;
    c->send = call->send;
    c->recv = call->recv;
    switch (call->operation) {
    case TR_BROADCAST:
        if (root && send != recv && call->count > 0)
            memcpy(call->recv, send, call->count * element);
        break;
    case TR_ALL_REDUCE:
        c->send = send == recv ? NULL : send;
        break;
    case TR_REDUCE:
        c->send = root && send == recv ? NULL : send;
        break;
    case TR_GATHER:
        c->send = root && send == recv + own_at ? NULL : send;
        break;
    case TR_ALL_GATHER:
        c->send = send == recv + own_at ? NULL : send;
        break;
    case TR_SCATTER:
        c->recv = root && recv == send + own_at ? NULL : call->recv;
        break;
    case TR_REDUCE_SCATTER:
        if (recv != send + own_at)
            break;
        *block = malloc(tri_recv_elements(group, call) * element + 1);
        if (*block == NULL)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a block");
        c->recv = *block;
        break;
    default:
        break;
    }
    return TR_OK;
}

static tr_status run_native(tri_ports *ports, const tr_group *group, const tr_collective *call,
                            tri_mpi_collective *c, void *block, tr_error *err)
{
    const tri_mpi_group *lane = ports->io_state;
    char why[300] = "";
    static const char nothing; /* an empty block is not "in place" */
    uint64_t elements = tri_recv_elements(group, call);
    if (c->send == NULL && call->send == NULL)
        c->send = &nothing;
    if (c->recv == NULL && call->recv == NULL && call->operation == TR_SCATTER)
        c->recv = (void *)(uintptr_t)&nothing;
    tri_mpi_enter(lane->mpi);
    int wrong = lane->mpi->plugin->collective(lane->group, c, why, sizeof why);
    tri_mpi_leave(lane->mpi);
    if (wrong != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d: MPI's own %s, call %llu of group %s: %s",
                        group->comm->boot.rank, tri_coll_name((tri_coll)call->operation),
                        (unsigned long long)group->call, group->name, why);
    if (block != NULL && elements > 0)
        memcpy(call->recv, block, elements * tri_dtype_bytes((tri_dtype)call->dtype));
    if (tri_coll_reduces(call->operation) && call->reduction == TR_MEAN && elements > 0)
        tri_divide((tri_dtype)call->dtype, call->recv, elements, group->size);
    return TR_OK;
}

tr_status tri_mpi_native(tri_ports *ports, const tr_group *group, const tr_collective *call,
                         tr_error *err)
{
    tri_mpi_collective c = {.operation = (int)call->operation,
                            .reduction = (int)call->reduction,
                            .dtype = (int)call->dtype,
                            .root = call->root};
    int *counts = NULL, *counts2 = NULL;
    void *block = NULL;
    tr_status status = TR_OK;
    const uint64_t *list = tri_block_counts(call);
    uint64_t count = list ? list[group->rank] : call->count;
    if (tri_coll_reduces(call->operation) && (call->dtype == TR_BF16 || call->dtype == TR_F16))
        return tri_fail(err, TR_ERROR_INPUT,
                        "MPI has no sums of %s; choose another algorithm than native",
                        tri_dtype_name((tri_dtype)call->dtype));
    if (count > INT_MAX)
        return tri_fail(err, TR_ERROR_INPUT,
                        "MPI counts up to %d elements; choose another algorithm than native",
                        INT_MAX);
    c.count = (int)count;
    if (call->operation == TR_ALL_TO_ALL)
        list = call->send_counts;
    if (list != NULL)
        status = fill_counts(list, call->room, group->size, &counts, err);
    if (status == TR_OK && call->operation == TR_ALL_TO_ALL && call->recv_counts != NULL)
        status = fill_counts(call->recv_counts, call->room, group->size, &counts2, err);
    c.counts = counts;
    c.displs = counts ? counts + group->size : NULL;
    c.counts2 = counts2;
    c.displs2 = counts2 ? counts2 + group->size : NULL;
    if (status == TR_OK)
        status = place(group, call, &c, &block, err);
    if (status == TR_OK)
        status = run_native(ports, group, call, &c, block, err);
    free(block);
    free(counts);
    free(counts2);
    return status;
}
