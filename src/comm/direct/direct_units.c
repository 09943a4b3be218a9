/* Large calls whose operands all members reach. The work is cut into units (some elements of a
 * piece: read once from every source, combined in rank order in a buffer that stays in the first
 * cache, written to every target). A member takes the units of its own home first, then what is
 * left of the others': with fewer cores than ranks, whoever runs does the work, and nobody waits
 * for a sleeper. Who does a unit has no influence on its result.
 *
 * Invariants:
 *   1. A claim is a compare-and-swap on (tick, next unit): a member that wakes up late, when the
 *      owner has moved on, finds another tick there and claims nothing.
 *   2. The call is over when all units have been counted in `finished`; then nobody reads or writes
 *      any operand. Hence a target in place is no hazard either: elements are written only by the
 *      unit that has read them.
 *   3. Members map operands only after a claim: an operand's owner cannot have left before the
 *      unit is counted. */
#include "comm/layout.h"
#include "comm/reduce.h"

#include <stdio.h>
#include <string.h>

#define UNIT_BYTES ((uint64_t)128 << 10)
#define HOT_BYTES  8192 /* combined at a time: fits the first cache along with its sources */
/* The cache that cores share, and a core's own, where the system does not tell. */
#define CACHE_BYTES      ((uint64_t)48 << 20)
#define CORE_CACHE_BYTES ((uint64_t)1 << 20)

struct unit_job {
    tr_group *group;
    const tr_collective *call;
    tri_coll_layout layout;
    uint64_t tick, element, unit; /* bytes of an element; elements of a unit */
    bool mapped, stream;
    char **send, **recv; /* [size] */
};

uint64_t tri_claim_first(uint64_t tick)
{
    return tick << 32;
}

static uint64_t piece_units(const struct unit_job *job, const tri_coll_piece *piece)
{
    return (piece->count + job->unit - 1) / job->unit;
}

/* Pieces of a home are i = home, home + size, ... */
static uint64_t home_units(const struct unit_job *job, int home)
{
    uint64_t units = 0;
    int num = tri_coll_layout_pieces(&job->layout);
    for (int i = home; i < num; i += job->group->size) {
        tri_coll_piece piece = tri_coll_layout_piece(&job->layout, i);
        units += piece_units(job, &piece);
    }
    return units;
}

static bool claim(const struct unit_job *job, int home, uint64_t units, uint64_t *unit)
{
    _Atomic uint64_t *word = &job->group->cells[home]->claim;
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint64_t first = tri_claim_first(job->tick);
    do {
        if (seen >> 32 != first >> 32 || (uint32_t)seen >= units)
            return false;
    } while (!atomic_compare_exchange_weak(word, &seen, seen + 1));
    *unit = (uint32_t)seen;
    return true;
}

static tr_status map_operands(struct unit_job *job, tr_error *err)
{
    tr_group *group = job->group;
    tr_comm *comm = group->comm;
    for (int i = 0; i < group->size; i++) {
        const tri_ref *from = &group->cells[i]->send[job->tick % 2];
        const tri_ref *to = &group->cells[i]->recv[job->tick % 2];
        void *send = NULL, *recv = NULL;
        if (i == group->rank) {
            send = (void *)(uintptr_t)job->call->send;
            recv = job->call->recv;
        } else {
            if (from->segment != 0)
                TRI_TRY(comm->transport->map(comm->state, group->ranks[i], *from, &send, err));
            if (to->segment != 0)
                TRI_TRY(comm->transport->map(comm->state, group->ranks[i], *to, &recv, err));
        }
        job->send[i] = send;
        job->recv[i] = recv;
    }
    job->mapped = true;
    return TR_OK;
}

static void put(const struct unit_job *job, char *to, const char *from, size_t bytes)
{
    if (to == from)
        return;
    if (job->stream)
        tri_copy_stream(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static void put_targets(const struct unit_job *job, const tri_coll_piece *piece, uint64_t recv_at,
                        const char *from, size_t bytes)
{
    uint64_t offset = recv_at * job->element;
    if (piece->target >= 0) {
        put(job, job->recv[piece->target] + offset, from, bytes);
        return;
    }
    for (int i = 0; i < job->group->size; i++)
        put(job, job->recv[i] + offset, from, bytes);
}

/* Some elements of a combined piece, `at` from its beginning. */
static void combine_some(const struct unit_job *job, const tri_coll_piece *piece, uint64_t at,
                         uint64_t n, char *hot)
{
    const tr_collective *call = job->call;
    uint64_t offset = (piece->send_at + at) * job->element;
    int size = job->group->size;
    tri_dtype dtype = (tri_dtype)call->dtype;
    memcpy(hot, job->send[0] + offset, n * job->element);
    for (int i = 1; i < size; i++)
        tri_combine(dtype, (tri_reduction)call->reduction, hot, job->send[i] + offset, n);
    if (call->reduction == TR_MEAN)
        tri_divide(dtype, hot, n, size);
    put_targets(job, piece, piece->recv_at + at, hot, n * job->element);
}

static void run_unit(const struct unit_job *job, const tri_coll_piece *piece, uint64_t first)
{
    _Alignas(64) char hot[HOT_BYTES];
    uint64_t end = first + job->unit < piece->count ? first + job->unit : piece->count;
    uint64_t step = HOT_BYTES / job->element;
    if (piece->source >= 0 && piece->target >= 0)
        step = job->unit; /* one copy: no reason to keep it hot */
    for (uint64_t at = first; at < end; at += step) {
        uint64_t n = end - at < step ? end - at : step;
        if (piece->source < 0)
            combine_some(job, piece, at, n, hot);
        else
            put_targets(job, piece, piece->recv_at + at,
                        job->send[piece->source] + (piece->send_at + at) * job->element,
                        n * job->element);
    }
}

static void run_numbered(const struct unit_job *job, int home, uint64_t unit)
{
    for (int i = home;; i += job->group->size) {
        tri_coll_piece piece = tri_coll_layout_piece(&job->layout, i);
        uint64_t units = piece_units(job, &piece);
        if (unit < units) {
            run_unit(job, &piece, unit * job->unit);
            return;
        }
        unit -= units;
    }
}

/* Takes units until none is left; the number done. */
static tr_status run_units(struct unit_job *job, const uint64_t *units, uint64_t *done,
                           tr_error *err)
{
    tr_group *group = job->group;
    for (int k = 0; k < group->size; k++) {
        int home = (group->rank + k) % group->size;
        uint64_t unit;
        while (claim(job, home, units[home], &unit)) {
            if (!job->mapped)
                TRI_TRY(map_operands(job, err));
            run_numbered(job, home, unit);
            ++*done;
        }
    }
    return TR_OK;
}

static int first_busy(void *context)
{
    const tr_group *group = context;
    for (int i = 0; i < group->size; i++)
        if (atomic_load_explicit(&group->cells[i]->busy, memory_order_relaxed) == group->tick)
            return group->ranks[i];
    return -1;
}

static tr_status wait_finished(tr_group *group, const tr_collective *call, tr_error *err)
{
    double seconds = 0;
    tri_wait_result result = tri_eventcount_wait(group->waiter, &group->cells[0]->finished,
                                                 group->finished, first_busy, group, &seconds);
    if (result == TRI_WAIT_DONE)
        return TR_OK;
    char who[40] = "a peer";
    int busy = first_busy(group);
    if (busy >= 0)
        snprintf(who, sizeof who, "rank %d (its share of the work)", busy);
    return tri_wait_failed(group, call, result, seconds, who, err);
}

/* Whether to store around the caches: where what all ranks read and write does not fit the cache
 * that they share, with some room for what else lies there. Plain stores would then push out the
 * sources and fetch every line that they overwrite. Below that they are better even where they fill
 * a core's own cache: the result is at hand for whoever reads it next. An all_to_all, which only
 * copies, would be a quarter slower; with a core for each rank it stores around its own cache. */
static bool streams(const struct unit_job *job, uint64_t bytes)
{
    const tr_comm *comm = job->group->comm;
    tr_operation op = job->call->operation;
    uint64_t size = (uint64_t)job->group->size;
    uint64_t shared = comm->cache_bytes > 0 ? comm->cache_bytes : CACHE_BYTES;
    uint64_t own = comm->core_cache_bytes > 0 ? comm->core_cache_bytes : CORE_CACHE_BYTES;
    bool to_all = op == TR_BROADCAST || op == TR_ALL_REDUCE || op == TR_ALL_GATHER;
    uint64_t reads = bytes * (tri_coll_reduces(op) ? size : 1),
             writes = bytes * (to_all ? size : 1);
    if (op == TR_ALL_TO_ALL && comm->waiter.core_for_each && (reads + writes) / size > own)
        return true;
    return reads + writes > shared / 8 * 5;
}

tr_status tri_direct_units(tr_group *group, const tr_collective *call, tr_error *err)
{
    struct unit_job job = {.group = group,
                           .call = call,
                           .layout = {group, call, true},
                           .tick = group->tick,
                           .element = tri_dtype_bytes((tri_dtype)call->dtype),
                           .send = (char **)group->address,
                           .recv = (char **)group->address + group->size};
    job.unit = UNIT_BYTES / job.element;
    uint64_t *units = group->units, total = 0, done = 0, bytes = 0;
    for (int home = 0; home < group->size; home++)
        total += units[home] = home_units(&job, home);
    bytes = total * UNIT_BYTES;
    job.stream = streams(&job, bytes);
    group->finished += total;
    tri_cell *cell = group->cells[group->rank];
    atomic_store_explicit(&cell->busy, group->tick, memory_order_relaxed);
    tr_status status = run_units(&job, units, &done, err);
    atomic_store_explicit(&cell->busy, 0, memory_order_relaxed);
    if (status != TR_OK) { /* peers will expire: they must not read half a result */
        group->broken = true;
        if (err != NULL)
            group->error = *err;
        return status;
    }
    if (job.stream)
        tri_stream_end();
    if (done > 0)
        tri_eventcount_add(&group->cells[0]->finished, done, group->finished);
    return wait_finished(group, call, err);
}
