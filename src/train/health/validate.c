#include "train/health/validate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    TRIES = 3,
    SCRATCH = 64 << 20, /* of kernels */
    SHORT_BYTES = 8,
    SHORT_TRIPS = 50,
    LONG_BYTES = 4 << 20,
    BUS_BYTES = 64 << 20,
    LONG_TRIPS = 2,
};

/* Worse than this share of the others' median is off. Links and buses vary more than
 * arithmetic. */
static const double least_share[TRI_NUM_FIGURES] = {
    [TRI_FIGURE_PRODUCT] = 0.9,  [TRI_FIGURE_COPY] = 0.9,    [TRI_FIGURE_TO_DEVICE] = 0.75,
    [TRI_FIGURE_TO_HOST] = 0.75, [TRI_FIGURE_LATENCY] = 0.5, [TRI_FIGURE_BANDWIDTH] = 0.75,
};

/* ---- judging ---- */

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool is_peer(const tri_validated *a, const tri_validated *b, int figure)
{
    bool link = figure == TRI_FIGURE_LATENCY || figure == TRI_FIGURE_BANDWIDTH;
    return a != b && b->figure[figure] > 0 && (!link || a->crosses == b->crosses);
}

static double median_of_peers(const tri_validated *all, int num, int rank, int figure, double *room)
{
    int count = 0;
    for (int r = 0; r < num; r++)
        if (is_peer(&all[rank], &all[r], figure))
            room[count++] = all[r].figure[figure];
    if (count == 0)
        return 0;
    qsort(room, (size_t)count, sizeof *room, by_size);
    return (room[(count - 1) / 2] + room[count / 2]) / 2;
}

int tri_validate_judge(tri_validated *all, int num)
{
    int found = 0;
    double *room = calloc((size_t)num, sizeof *room);
    for (int r = 0; room && r < num; r++) {
        tri_validated *v = &all[r];
        v->off = 0;
        for (int f = 0; f < TRI_NUM_FIGURES; f++) {
            double own = v->figure[f], peers = median_of_peers(all, num, r, f, room);
            double share = f == TRI_FIGURE_LATENCY ? peers / own : own / peers;
            v->peers[f] = peers;
            bool off = own > 0 && peers > 0 && share < least_share[f];
            v->off |= (int64_t)off << f;
            found += off;
        }
    }
    free(room);
    return found;
}

/* ---- measuring ---- */

static tr_status measure_device(tri_comm *comm, tri_device *device, tri_validated *own,
                                tr_error *err)
{
    const tri_device_def *def = device->def;
    TRI_TRY(def->reserve_scratch(device, SCRATCH, err));
    for (int i = 0; i < TRIES; i++) {
        TRI_TRY(tr_barrier(tr_comm_world(comm), err));
        double flops = def->peak_flops ? def->peak_flops(device, TRI_F32) : 0;
        own->figure[TRI_FIGURE_PRODUCT] =
            flops > own->figure[TRI_FIGURE_PRODUCT] ? flops : own->figure[TRI_FIGURE_PRODUCT];
        TRI_TRY(tr_barrier(tr_comm_world(comm), err));
        double bytes = def->peak_bytes ? def->peak_bytes(device) : 0;
        own->figure[TRI_FIGURE_COPY] =
            bytes > own->figure[TRI_FIGURE_COPY] ? bytes : own->figure[TRI_FIGURE_COPY];
    }
    return TR_OK;
}

static tr_status cross_bus(tri_device *device, tri_figure way, void *there, void *here,
                           tr_error *err)
{
    const tri_device_queue *queue = device->def->queue;
    if (way == TRI_FIGURE_TO_DEVICE)
        TRI_TRY(queue->upload(device, there, here, BUS_BYTES, err));
    else
        TRI_TRY(queue->download(device, here, there, BUS_BYTES, err));
    return queue->finish(device, err);
}

/* Between the host's memory and the device's own, all ranks at once: they may share a bus. */
static tr_status measure_bus(tri_comm *comm, tri_device *device, tri_validated *own, tr_error *err)
{
    const tri_device_def *def = device->def;
    void *there = def->alloc(BUS_BYTES), *here = def->queue->alloc_host(BUS_BYTES);
    tr_status status = there && here
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME,
                                      "no memory to try copies between host and device; end what "
                                      "else uses the device");
    for (tri_figure way = TRI_FIGURE_TO_DEVICE; way <= TRI_FIGURE_TO_HOST; way++)
        for (int i = 0; i <= TRIES && status == TR_OK; i++) { /* once more to get warm */
            status = tr_barrier(tr_comm_world(comm), err);
            double start = tri_now_s();
            if (status == TR_OK)
                status = cross_bus(device, way, there, here, err);
            double rate = BUS_BYTES / (tri_now_s() - start);
            if (i > 0 && rate > own->figure[way])
                own->figure[way] = rate;
        }
    if (here)
        def->queue->free_host(here);
    if (there)
        def->free(there, BUS_BYTES);
    return status;
}

/* There and back, so many times; the fastest of some. */
static tr_status ping(tri_comm *comm, int peer, bool first, void *memory, size_t bytes, int trips,
                      double *seconds, tr_error *err)
{
    double best = 1e30;
    for (int i = 0; i <= TRIES; i++) { /* once more to get warm */
        double start = tri_now_s();
        for (int t = 0; t < trips; t++) {
            if (first)
                TRI_TRY(tr_send(comm, peer, memory, bytes, err));
            TRI_TRY(tr_recv(comm, peer, memory, bytes, err));
            if (!first)
                TRI_TRY(tr_send(comm, peer, memory, bytes, err));
        }
        double each = (tri_now_s() - start) / trips / 2;
        best = each < best ? each : best;
    }
    *seconds = best;
    return TR_OK;
}

/* The links of all ranks to the next, one after the other. */
static tr_status measure_links(tri_comm *comm, tri_validated *own, char *memory, tr_error *err)
{
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    for (int r = 0; r < size; r++) {
        int next = (r + 1) % size;
        double latency = 0, bandwidth = 0;
        TRI_TRY(tr_barrier(tr_comm_world(comm), err));
        if (rank != r && rank != next)
            continue;
        int peer = rank == r ? next : r;
        TRI_TRY(ping(comm, peer, rank == r, memory, SHORT_BYTES, SHORT_TRIPS, &latency, err));
        TRI_TRY(ping(comm, peer, rank == r, memory, LONG_BYTES, LONG_TRIPS, &bandwidth, err));
        if (rank != r)
            continue;
        own->next = next;
        own->crosses = tri_comm_machine(comm, r) != tri_comm_machine(comm, next);
        own->figure[TRI_FIGURE_LATENCY] = latency;
        own->figure[TRI_FIGURE_BANDWIDTH] = LONG_BYTES / bandwidth;
    }
    return TR_OK;
}

tr_status tri_validate(tri_comm *comm, tri_device *device, tri_validated *all, tr_error *err)
{
    tri_validated own = {.next = -1};
    gethostname(own.host, sizeof own.host - 1);
    TRI_TRY(measure_device(comm, device, &own, err));
    if (device->def->queue)
        TRI_TRY(measure_bus(comm, device, &own, err));
    char *memory = calloc(1, LONG_BYTES);
    if (!memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to try the links");
    tr_status status = tr_comm_size(comm) > 1 ? measure_links(comm, &own, memory, err) : TR_OK;
    free(memory);
    TRI_TRY(status);
    return tr_all_gather(tr_comm_world(comm), &own, all, sizeof own, TR_U8, err);
}
