/* The communicator: who is where in whose memory. */
#include "comm/comm_internal.h"
#include "comm/tuning/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)TR_F32 == (int)TRI_F32 && (int)TR_BF16 == (int)TRI_BF16 &&
                   (int)TR_F16 == (int)TRI_F16 && (int)TR_I32 == (int)TRI_I32 &&
                   (int)TR_I64 == (int)TRI_I64 && (int)TR_U8 == (int)TRI_U8,
               "public and internal element types are one list");
_Static_assert((int)TR_SUM == (int)TRI_REDUCE_SUM && (int)TR_MEAN == (int)TRI_REDUCE_MEAN &&
                   (int)TR_MIN == (int)TRI_REDUCE_MIN && (int)TR_MAX == (int)TRI_REDUCE_MAX &&
                   (int)TR_PROD == (int)TRI_REDUCE_PROD,
               "public and internal reductions are one list");
_Static_assert((int)TR_BARRIER == (int)TRI_COLL_BARRIER &&
                   (int)TR_BROADCAST == (int)TRI_COLL_BROADCAST &&
                   (int)TR_REDUCE == (int)TRI_COLL_REDUCE &&
                   (int)TR_ALL_REDUCE == (int)TRI_COLL_ALL_REDUCE &&
                   (int)TR_GATHER == (int)TRI_COLL_GATHER &&
                   (int)TR_SCATTER == (int)TRI_COLL_SCATTER &&
                   (int)TR_ALL_GATHER == (int)TRI_COLL_ALL_GATHER &&
                   (int)TR_REDUCE_SCATTER == (int)TRI_COLL_REDUCE_SCATTER &&
                   (int)TR_ALL_TO_ALL == (int)TRI_COLL_ALL_TO_ALL,
               "public and internal operations are one list");

/* No formatting: this is on the path of every call. */
void tri_comm_doing(tr_comm *comm, const char *what, const char *of, uint64_t bytes)
{
    tri_rank_status *status = comm->boot.status;
    char *out = status->doing;
    size_t n = 0, last = sizeof status->doing - 1;
    for (; *what != '\0' && n < last; what++)
        out[n++] = *what;
    if (of != NULL) {
        for (const char *s = " of "; *s != '\0' && n < last; s++)
            out[n++] = *s;
        for (; *of != '\0' && n < last; of++)
            out[n++] = *of;
    }
    out[n] = '\0';
    atomic_store_explicit(&status->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&status->counter, 1, memory_order_relaxed);
}

tr_status tri_comm_exchange(tr_comm *comm, const char *key, const int *ranks, int size, int rank,
                            size_t num_bytes, void **memory, void **at, tr_error *err)
{
    char full[96];
    tri_ref ref;
    TRI_TRY(comm->transport->alloc(comm->state, num_bytes, memory, err));
    at[rank] = *memory;
    if (!comm->transport->ref(comm->state, *memory, num_bytes, &ref))
        return tri_fail(err, TR_ERROR_INTERNAL, "own memory is not reachable");
    snprintf(full, sizeof full, "%s.%d", key, ranks[rank]);
    TRI_TRY(comm->boot.put(comm->boot.context, full, &ref, sizeof ref, err));
    for (int i = 0; i < size; i++) {
        size_t got = 0;
        if (i == rank)
            continue;
        snprintf(full, sizeof full, "%s.%d", key, ranks[i]);
        tr_status status = comm->boot.get(comm->boot.context, full, &ref, sizeof ref, &got, err);
        if (status != TR_OK)
            return tri_fail_prefix(err, status, "rank %d waits for rank %d to join",
                                   comm->boot.rank, ranks[i]);
        if (got != sizeof ref)
            return tri_fail(err, TR_ERROR_RUNTIME, "rank %d published %zu bytes as %s, not %zu",
                            ranks[i], got, full, sizeof ref);
        TRI_TRY(comm->transport->map(comm->state, ranks[i], ref, &at[i], err));
    }
    return TR_OK;
}

/* A core for each rank, when ranks are bound to cores of their own, too: the cores of all together
 * count. */
static void share_cores(tr_comm *comm)
{
    uint64_t all[TRI_CORE_WORDS] = {0};
    if (comm->world->cells == NULL)
        return; /* was done while meeting */
    for (int i = 0; i < comm->boot.size; i++)
        for (int w = 0; w < TRI_CORE_WORDS; w++)
            all[w] |= comm->world->cells[i]->cores[w];
    comm->num_cores = tri_cores_count(all);
    comm->waiter.core_for_each = comm->boot.local_size <= comm->num_cores;
}

/* What ranks tell each other where they share no memory. */
struct resident {
    char machine[120];
    uint64_t cores[TRI_CORE_WORDS];
};

/* Machines are told apart by their boots; and what has a network of its own counts as one, for here
 * it is the network that matters. */
static void own_residence(struct resident *own)
{
    char boot[40] = "", net[40] = "", host[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file != NULL) {
        if (fgets(boot, sizeof boot, file) == NULL)
            boot[0] = '\0';
        fclose(file);
    }
    ssize_t length = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[length > 0 ? length : 0] = '\0';
    gethostname(host, sizeof host - 1);
    *own = (struct resident){0};
    snprintf(own->machine, sizeof own->machine, "%.36s %.39s %.39s", boot, net, host);
    tri_cores_read(own->cores);
}

int tri_comm_machine(const tri_comm *comm, int rank)
{
    return comm->machine ? comm->machine[rank] : 0;
}

const tri_bootstrap *tri_comm_bootstrap(const tri_comm *comm)
{
    return &comm->boot;
}

/* Which rank is on which machine, and whether this one has a core for each of its ranks. */
static tr_status meet(tr_comm *comm, tr_error *err)
{
    tri_bootstrap *boot = &comm->boot;
    struct resident own, *all = calloc((size_t)boot->size, sizeof *all);
    uint64_t cores[TRI_CORE_WORDS] = {0};
    int num_here = 0;
    char key[32];
    comm->machine = calloc((size_t)boot->size, sizeof *comm->machine);
    own_residence(&own);
    snprintf(key, sizeof key, "resident.%d", boot->rank);
    tr_status status = all && comm->machine ? boot->put(boot->context, key, &own, sizeof own, err)
                                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory");
    for (int i = 0; status == TR_OK && i < boot->size; i++) {
        size_t got = 0;
        snprintf(key, sizeof key, "resident.%d", i);
        status = boot->get(boot->context, key, &all[i], sizeof all[i], &got, err);
        if (status != TR_OK)
            tri_fail_prefix(err, status, "rank %d waits for rank %d to join", boot->rank, i);
        all[i].machine[sizeof all[i].machine - 1] = '\0';
        comm->machine[i] = i;
        for (int j = 0; j < i && comm->machine[i] == i; j++)
            if (strcmp(all[j].machine, all[i].machine) == 0)
                comm->machine[i] = comm->machine[j];
        if (strcmp(all[i].machine, own.machine) != 0)
            continue;
        num_here++;
        for (int w = 0; w < TRI_CORE_WORDS; w++)
            cores[w] |= all[i].cores[w];
    }
    comm->num_cores = tri_cores_count(cores);
    comm->waiter.core_for_each = num_here <= comm->num_cores;
    free(all);
    return status;
}

static tr_status join_world(tr_comm *comm, tr_error *err)
{
    int *ranks = malloc((size_t)comm->boot.size * sizeof *ranks);
    if (ranks == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a world of %d", comm->boot.size);
    if (comm->transport->io != NULL) {
        tr_status met = meet(comm, err);
        if (met != TR_OK) {
            free(ranks);
            return met;
        }
    }
    for (int i = 0; i < comm->boot.size; i++)
        ranks[i] = i;
    tri_tuning_guess(comm, comm->tuning);
    tr_status status = tr_group_create(comm, "world", ranks, comm->boot.size, &comm->world, err);
    free(ranks);
    if (status == TR_OK)
        status = tri_p2p_init(comm, err);
    if (status == TR_OK)
        share_cores(comm);
    return status;
}

tri_comm_time tri_comm_spent(const tri_comm *comm)
{
    return (tri_comm_time){
        .calls_ns = atomic_load_explicit(&comm->spent.calls_ns, memory_order_relaxed),
        .waited_ns = atomic_load_explicit(&comm->spent.waited_ns, memory_order_relaxed),
        .away_ns = atomic_load_explicit(&comm->spent.away_ns, memory_order_relaxed)};
}

tr_status tri_comm_create(const tri_bootstrap *bootstrap, const char *transport, tri_comm **out,
                          tr_error *err)
{
    *out = NULL;
    const tri_transport *table = tri_transport_find(transport);
    if (table == NULL)
        return tri_fail(err, TR_ERROR_INPUT,
                        "there is no transport %s here; there are thread, shm, tcp and mpi",
                        transport);
    tr_comm *comm = calloc(1, sizeof *comm);
    if (comm != NULL)
        comm->tuning = calloc(1, sizeof *comm->tuning);
    if (comm == NULL || comm->tuning == NULL) {
        free(comm);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a communicator");
    }
    comm->boot = *bootstrap;
    comm->transport = table;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), own = sysconf(_SC_LEVEL2_CACHE_SIZE);
    comm->core_cache_bytes = own > 0 ? (uint64_t)own : 0;
    comm->cache_bytes = cache > 0 ? (uint64_t)cache : 0;
    tri_waiter_init(&comm->waiter, &comm->boot);
    tri_waiter_init(&comm->lane_waiter, &comm->boot);
    comm->lane_waiter.in_background = true;
    comm->waiter.given_up = comm->lane_waiter.given_up = &comm->given_up;
    comm->waiter.spent = comm->lane_waiter.spent = &comm->spent;
    tr_status status = table->create(&comm->boot, &comm->state, err);
    if (status == TR_OK)
        status = join_world(comm, err);
    if (status != TR_OK) {
        tri_comm_destroy(comm);
        return status;
    }
    *out = comm;
    return TR_OK;
}

void tri_comm_destroy(tri_comm *comm)
{
    if (comm == NULL)
        return;
    for (tr_group *group = comm->groups; group != NULL; group = group->next)
        tri_lane_fini(&group->lane);
    tri_p2p_fini(comm);
    while (comm->groups != NULL) {
        tr_group *group = comm->groups;
        comm->groups = group->next;
        tri_group_free(group);
    }
    comm->transport->destroy(comm->state);
    free(comm->machine);
    free(comm->tuning);
    free(comm);
}

void tri_comm_give_up(tri_comm *comm)
{
    atomic_store(&comm->given_up, 1);
}

int tr_comm_rank(const tr_comm *comm)
{
    return comm->boot.rank;
}

int tr_comm_size(const tr_comm *comm)
{
    return comm->boot.size;
}

const char *tr_comm_transport(const tr_comm *comm)
{
    return comm->transport->name;
}

tr_group *tr_comm_world(tr_comm *comm)
{
    return comm->world;
}

tr_status tr_comm_alloc(tr_comm *comm, size_t num_bytes, void **memory, tr_error *err)
{
    return comm->transport->alloc(comm->state, num_bytes, memory, err);
}

void tr_comm_free(tr_comm *comm, void *memory)
{
    comm->transport->free(comm->state, memory);
}

tr_comm_counters tr_comm_read_counters(const tr_comm *comm)
{
    tr_comm_counters all = {
        .messages_sent = atomic_load_explicit(&comm->messages_sent, memory_order_relaxed),
        .bytes_sent = atomic_load_explicit(&comm->bytes_sent, memory_order_relaxed),
        .messages_received = atomic_load_explicit(&comm->messages_received, memory_order_relaxed),
        .bytes_received = atomic_load_explicit(&comm->bytes_received, memory_order_relaxed),
    };
    for (const tr_group *group = comm->groups; group != NULL; group = group->next) {
        all.bytes_sent += atomic_load_explicit(&group->bytes_sent, memory_order_relaxed);
        all.bytes_received += atomic_load_explicit(&group->bytes_received, memory_order_relaxed);
        all.calls += atomic_load_explicit(&group->calls, memory_order_relaxed);
    }
    return all;
}
