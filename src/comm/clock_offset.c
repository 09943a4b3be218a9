#include "comm/clock_offset.h"

#include <stdlib.h>

#include "base/clock.h"

enum { NUM_TURNS = 16 }; /* the quickest counts */

tr_status tri_clock_measure(tri_comm *comm, int peer, tri_clock_fn clock, void *context,
                            tri_clock_offset *offset, tr_error *err)
{
    bool asks = tr_comm_rank(comm) != 0;
    *offset = (tri_clock_offset){.at_ns = clock(context), .error_ns = asks ? INT64_MAX : 0};
    for (int turn = 0; turn < NUM_TURNS; turn++) {
        int64_t theirs = 0, before = clock(context);
        if (!asks) {
            TRI_TRY(tr_recv(comm, peer, &theirs, sizeof theirs, err));
            theirs = clock(context);
            TRI_TRY(tr_send(comm, peer, &theirs, sizeof theirs, err));
            continue;
        }
        TRI_TRY(tr_send(comm, peer, &before, sizeof before, err));
        TRI_TRY(tr_recv(comm, peer, &theirs, sizeof theirs, err));
        int64_t after = clock(context), half = (after - before + 1) / 2;
        if (half < offset->error_ns)
            *offset = (tri_clock_offset){
                .at_ns = before + half, .offset_ns = theirs - before - half, .error_ns = half};
    }
    return TR_OK;
}

static int64_t own_clock(void *context)
{
    (void)context;
    return (int64_t)tri_now_ns();
}

/* One rank of each machine asks; the others take what it found. */
tr_status tri_clock_compare(tri_comm *comm, tri_clock_offset *offset, tr_error *err)
{
    enum { NUM = sizeof(tri_clock_offset) / sizeof(int64_t) };
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm), num_machines = 0;
    *offset = (tri_clock_offset){.at_ns = own_clock(NULL)};
    for (int r = 0; r < size; r++)
        num_machines += tri_comm_machine(comm, r) == r;
    if (num_machines <= 1)
        return TR_OK;
    for (int r = 1; r < size; r++)
        if (tri_comm_machine(comm, r) == r && (rank == 0 || rank == r)) {
            tri_clock_offset found;
            TRI_TRY(tri_clock_measure(comm, rank == 0 ? r : 0, own_clock, NULL, &found, err));
            if (rank == r)
                *offset = found;
        }
    tri_clock_offset *all = calloc((size_t)size, sizeof *all);
    if (!all)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the clocks of %d ranks", size);
    tr_status status = tr_all_gather(tr_comm_world(comm), offset, all, NUM, TR_I64, err);
    if (status == TR_OK)
        *offset = all[tri_comm_machine(comm, rank)];
    free(all);
    return status;
}
