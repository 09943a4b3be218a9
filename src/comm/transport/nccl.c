/* Communicators of NCCL, and calls on them. See nccl.h.
 *
 * Invariants:
 *   1. After a call returns, no communicator is "in progress" of being given work: the next call on
 *      any of them, or a recording that ends, finds everything enqueued.
 *   2. Once one communicator has failed all are ended: those of one rank share its GPU, and a
 *      message that waits on one would keep all others from running. */
#include "comm/transport/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

typedef struct nccl_lane {
    void *comm; /* NULL: no communicator, or ended */
    char name[16];
    int rank, size; /* this rank's place, of how many */
} nccl_lane;

struct tri_nccl {
    tri_nccl_api api;
    tri_bootstrap boot;
    nccl_lane lanes[TRI_NCCL_MOST_LANES];
    bool failed;
    tr_error why; /* of the first failure */
};

/* ncclDataType_t and ncclRedOp_t. */
enum { NCCL_U8 = 1, CONFIG_MAGIC = (int)0xcafebeef, CONFIG_VERSION = 21400 };
static const int dtype_of[] = {
    [TR_F32] = 7, [TR_BF16] = 9, [TR_F16] = 6, [TR_I32] = 2, [TR_I64] = 4, [TR_U8] = NCCL_U8};
static const int reduction_of[] = {
    [TR_SUM] = 0, [TR_MEAN] = 4, [TR_MIN] = 3, [TR_MAX] = 2, [TR_PROD] = 1};
static const size_t bytes_of[] = {
    [TR_F32] = 4, [TR_BF16] = 2, [TR_F16] = 2, [TR_I32] = 4, [TR_I64] = 8, [TR_U8] = 1};

tr_status tri_nccl_create(const tri_bootstrap *bootstrap, const tri_nccl_api *api, tri_nccl **out,
                          tr_error *err)
{
    tri_nccl *nccl = *out = calloc(1, sizeof *nccl);
    if (!nccl)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for NCCL's communicators");
    nccl->api = *api;
    nccl->boot = *bootstrap;
    return TR_OK;
}

/* ---- failures ---- */

void tri_nccl_abort(tri_nccl *nccl)
{
    for (int i = 0; i < TRI_NCCL_MOST_LANES; i++) {
        void *comm = nccl->lanes[i].comm;
        nccl->lanes[i].comm = NULL;
        if (comm)
            nccl->api.comm_abort(comm);
    }
    if (!nccl->failed)
        tri_fail(&nccl->why, TR_ERROR_RUNTIME, "NCCL's communicators were ended");
    nccl->failed = true;
}

/* Keeps the message for later calls, ends everything on the GPU. */
static tr_status give_up(tri_nccl *nccl, tr_error *err)
{
    nccl->why = *err;
    nccl->failed = true;
    tri_nccl_abort(nccl);
    return TR_ERROR_RUNTIME;
}

static tr_status fail_result(tri_nccl *nccl, const nccl_lane *on, const char *doing, int result,
                             tr_error *err)
{
    tr_error local;
    err = err ? err : &local;
    const char *last = on->comm ? nccl->api.get_last_error(on->comm) : NULL;
    tri_fail(err, TR_ERROR_RUNTIME, "NCCL on %s, %s: %s%s%.200s%s", on->name, doing,
             nccl->api.get_error_string(result), last && last[0] ? ": " : "", last ? last : "",
             result == TRI_NCCL_INVALID_USAGE
                 ? " (every rank needs a GPU of its own: with fewer, set run.transport to shm)"
                 : "");
    return give_up(nccl, err);
}

static tr_status fail_stopped(tri_nccl *nccl, tr_error *err)
{
    tr_error local;
    err = err ? err : &local;
    tri_fail(err, TR_ERROR_RUNTIME, "stopped: %s", nccl->boot.stop->reason);
    return give_up(nccl, err);
}

static bool stopped(const tri_nccl *nccl)
{
    return atomic_load_explicit(&nccl->boot.stop->stopped, memory_order_acquire);
}

static tr_status failed_before(const tri_nccl *nccl, tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "%s", nccl->why.message);
}

static void nap(int looks)
{
    const int brief = 200;
    struct timespec pause = {.tv_nsec = looks < brief ? 5000 : 500000};
    nanosleep(&pause, NULL);
}

/* Until a call that said "in progress" is done. */
static tr_status settle(tri_nccl *nccl, const nccl_lane *on, const char *doing, int result,
                        tr_error *err)
{
    tri_rank_status *status = nccl->boot.status;
    uint64_t start = tri_now_ns();
    for (int looks = 0; result == TRI_NCCL_IN_PROGRESS; looks++) {
        double seconds = (double)(tri_now_ns() - start) * 1e-9;
        if (stopped(nccl))
            return fail_stopped(nccl, err);
        if (seconds > nccl->boot.deadline_s) {
            tr_error local, *to = err ? err : &local;
            tri_fail(to, TR_ERROR_RUNTIME,
                     "NCCL on %s, %s: not all %d ranks came to it within %.1f s", on->name, doing,
                     on->size, seconds);
            return give_up(nccl, to);
        }
        if (looks == 1)
            atomic_store_explicit(&status->waiting_since_ns, start, memory_order_relaxed);
        if (looks > 0)
            nap(looks);
        int code = nccl->api.comm_get_async_error(on->comm, &result);
        result = code != TRI_NCCL_SUCCESS ? code : result;
    }
    atomic_store_explicit(&status->waiting_since_ns, 0, memory_order_relaxed);
    return result == TRI_NCCL_SUCCESS ? TR_OK : fail_result(nccl, on, doing, result, err);
}

tr_status tri_nccl_look(tri_nccl *nccl, double waited_s, tr_error *err)
{
    if (nccl->failed)
        return failed_before(nccl, err);
    if (stopped(nccl))
        return fail_stopped(nccl, err);
    for (int i = 0; i < TRI_NCCL_MOST_LANES; i++) {
        const nccl_lane *on = &nccl->lanes[i];
        int result = TRI_NCCL_SUCCESS;
        if (!on->comm)
            continue;
        int code = nccl->api.comm_get_async_error(on->comm, &result);
        result = code != TRI_NCCL_SUCCESS ? code : result;
        if (result != TRI_NCCL_SUCCESS && result != TRI_NCCL_IN_PROGRESS)
            return fail_result(nccl, on, "a message under way", result, err);
    }
    if (waited_s <= nccl->boot.deadline_s)
        return TR_OK;
    tr_error local, *to = err ? err : &local;
    tri_fail(to, TR_ERROR_RUNTIME, "the other ranks of this message did not come within %.1f s",
             waited_s);
    return give_up(nccl, to);
}

/* ---- joining and leaving ---- */

tr_status tri_nccl_join(tri_nccl *nccl, int number, const char *name, const int *ranks,
                        int num_ranks, tr_error *err)
{
    nccl_lane *on = &nccl->lanes[number];
    char key[64];
    tri_nccl_id id = {{0}};
    size_t got = 0;
    if (nccl->failed)
        return failed_before(nccl, err);
    *on = (nccl_lane){.rank = -1, .size = num_ranks};
    snprintf(on->name, sizeof on->name, "%s", name);
    for (int i = 0; i < num_ranks; i++)
        on->rank = ranks[i] == nccl->boot.rank ? i : on->rank;
    uint64_t hash = 14695981039346656037u; /* of the members: numbers of lanes differ by rank */
    for (int i = 0; i < num_ranks; i++)
        hash = (hash ^ (uint64_t)ranks[i]) * 1099511628211u;
    snprintf(key, sizeof key, "nccl/%s/%d/%016llx", on->name, ranks[0], (unsigned long long)hash);
    if (on->rank == 0) {
        int result = nccl->api.get_unique_id(&id);
        if (result != TRI_NCCL_SUCCESS)
            return fail_result(nccl, on, "making a name for the group", result, err);
        TRI_TRY(nccl->boot.put(nccl->boot.context, key, &id, sizeof id, err));
    } else {
        TRI_TRY(nccl->boot.get(nccl->boot.context, key, &id, sizeof id, &got, err));
        if (got != sizeof id)
            return tri_fail(err, TR_ERROR_RUNTIME, "rank %d gave %s a name of %zu bytes, not %zu",
                            ranks[0], name, got, sizeof id);
    }
    tri_nccl_config config = {.size = sizeof config,
                              .magic = (unsigned)CONFIG_MAGIC,
                              .version = CONFIG_VERSION,
                              .blocking = 0};
    int result = nccl->api.comm_init_rank_config(&on->comm, num_ranks, id, on->rank, &config);
    return settle(nccl, on, "joining", result, err);
}

void tri_nccl_destroy(tri_nccl *nccl)
{
    if (!nccl)
        return;
    for (int i = 0; i < TRI_NCCL_MOST_LANES && !stopped(nccl) && !nccl->failed; i++) {
        nccl_lane *on = &nccl->lanes[i];
        if (!on->comm)
            continue;
        int result = nccl->api.comm_finalize(on->comm);
        if (settle(nccl, on, "leaving", result, NULL) != TR_OK)
            break;
        nccl->api.comm_destroy(on->comm);
        on->comm = NULL;
    }
    tri_nccl_abort(nccl);
    free(nccl);
}

/* ---- calls ---- */

static const uint64_t *counts_of(const tr_collective *call)
{
    return call->operation == TR_ALL_GATHER       ? call->recv_counts
           : call->operation == TR_REDUCE_SCATTER ? call->send_counts
                                                  : NULL;
}

/* Within a group a call may already say what it is to become. */
static bool goes_on(int result)
{
    return result == TRI_NCCL_SUCCESS || result == TRI_NCCL_IN_PROGRESS;
}

/* Blocks of different sizes: one broadcast from, or one reduction to, each member. */
static int run_uneven(const tri_nccl *nccl, const nccl_lane *on, const tr_collective *c,
                      const uint64_t *counts, void *stream)
{
    const tri_nccl_api *api = &nccl->api;
    size_t element = bytes_of[c->dtype], at = 0;
    int dtype = dtype_of[c->dtype], op = reduction_of[c->reduction], result = TRI_NCCL_SUCCESS;
    bool gathers = c->operation == TR_ALL_GATHER;
    for (int i = 0; i < on->size && goes_on(result); i++) {
        const char *send = gathers ? c->send : (const char *)c->send + at;
        char *recv = gathers ? (char *)c->recv + at : c->recv;
        if (counts[i] > 0 && gathers)
            result = api->broadcast(i == on->rank ? send : recv, recv, counts[i], dtype, i,
                                    on->comm, stream);
        else if (counts[i] > 0)
            result = api->reduce(send, recv, counts[i], dtype, op, i, on->comm, stream);
        at += counts[i] * element;
    }
    return result;
}

static int run_all_to_all(const tri_nccl *nccl, const nccl_lane *on, const tr_collective *c,
                          void *stream)
{
    const tri_nccl_api *api = &nccl->api;
    const char *from = c->send;
    char *to = c->recv;
    int result = TRI_NCCL_SUCCESS;
    for (int i = 0; i < on->size && goes_on(result); i++) {
        size_t sent = (c->send_counts ? c->send_counts[i] : c->count) * bytes_of[c->dtype];
        size_t received = (c->recv_counts ? c->recv_counts[i] : c->count) * bytes_of[c->dtype];
        if (sent > 0)
            result = api->send(from, sent, NCCL_U8, i, on->comm, stream);
        if (received > 0 && goes_on(result))
            result = api->recv(to, received, NCCL_U8, i, on->comm, stream);
        from += sent;
        to += received;
    }
    return result;
}

static int run_even(const tri_nccl *nccl, const nccl_lane *on, const tr_collective *c,
                    uint64_t count, void *stream)
{
    const tri_nccl_api *api = &nccl->api;
    int dtype = dtype_of[c->dtype], op = reduction_of[c->reduction];
    const void *send = c->send ? c->send : c->recv;
    switch (c->operation) {
    case TR_ALL_REDUCE:
        return api->all_reduce(send, c->recv, count, dtype, op, on->comm, stream);
    case TR_REDUCE:
        return api->reduce(send, c->recv, count, dtype, op, c->root, on->comm, stream);
    case TR_BROADCAST:
        return api->broadcast(on->rank == c->root ? send : c->recv, c->recv, count, dtype, c->root,
                              on->comm, stream);
    case TR_ALL_GATHER:
        return api->all_gather(send, c->recv, count, dtype, on->comm, stream);
    default:
        return api->reduce_scatter(send, c->recv, count, dtype, op, on->comm, stream);
    }
}

static const char *const names[] = {
    [TR_BARRIER] = "barrier",       [TR_BROADCAST] = "broadcast",
    [TR_REDUCE] = "reduce",         [TR_ALL_REDUCE] = "all_reduce",
    [TR_GATHER] = "gather",         [TR_SCATTER] = "scatter",
    [TR_ALL_GATHER] = "all_gather", [TR_REDUCE_SCATTER] = "reduce_scatter",
    [TR_ALL_TO_ALL] = "all_to_all"};

static tr_status check_lane(const tri_nccl *nccl, int number, tr_error *err)
{
    if (nccl->failed)
        return failed_before(nccl, err);
    return nccl->lanes[number].comm
               ? TR_OK
               : tri_fail(err, TR_ERROR_INTERNAL, "lane %d has no communicator", number);
}

tr_status tri_nccl_run(tri_nccl *nccl, int number, const tr_collective *c, void *stream,
                       tr_error *err)
{
    TRI_TRY(check_lane(nccl, number, err));
    const nccl_lane *on = &nccl->lanes[number];
    if (c->operation == TR_BARRIER || c->operation == TR_GATHER || c->operation == TR_SCATTER)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s is not among NCCL's operations",
                        names[c->operation]);
    const uint64_t *counts = counts_of(c);
    bool even = true;
    for (int i = 1; counts && i < on->size; i++)
        even = even && counts[i] == counts[0];
    uint64_t count = counts ? counts[0] : c->count;
    bool grouped = !even || c->operation == TR_ALL_TO_ALL;
    int result = grouped ? nccl->api.group_start() : TRI_NCCL_SUCCESS;
    if (result == TRI_NCCL_SUCCESS)
        result = !even                           ? run_uneven(nccl, on, c, counts, stream)
                 : c->operation == TR_ALL_TO_ALL ? run_all_to_all(nccl, on, c, stream)
                 : count > 0                     ? run_even(nccl, on, c, count, stream)
                                                 : TRI_NCCL_SUCCESS;
    if (grouped) {
        int ended = nccl->api.group_end();
        result = goes_on(result) ? ended : result;
    }
    return settle(nccl, on, names[c->operation], result, err);
}

tr_status tri_nccl_send(tri_nccl *nccl, int number, int to, const void *data, size_t num_bytes,
                        void *stream, tr_error *err)
{
    TRI_TRY(check_lane(nccl, number, err));
    const nccl_lane *on = &nccl->lanes[number];
    int result = nccl->api.send(data, num_bytes, NCCL_U8, to, on->comm, stream);
    return settle(nccl, on, "send", result, err);
}

tr_status tri_nccl_recv(tri_nccl *nccl, int number, int from, void *data, size_t num_bytes,
                        void *stream, tr_error *err)
{
    TRI_TRY(check_lane(nccl, number, err));
    const nccl_lane *on = &nccl->lanes[number];
    int result = nccl->api.recv(data, num_bytes, NCCL_U8, from, on->comm, stream);
    return settle(nccl, on, "recv", result, err);
}
