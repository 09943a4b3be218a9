/* The table that ranks exchange addresses through is one log per rank: a rank appends to its own
 * and reads all of them, so there is no lock that a killed rank could hold.
 *
 * Invariants:
 *   1. `used` of a log grows only after the entry before it is complete.
 *   2. Whoever appends raises `changed` afterwards; whoever looks for a key reads it before. */
#include "comm/world.h"

#include "comm/control/auth.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_BYTES ((size_t)256 << 10)

struct table_entry {
    uint32_t key_bytes, data_bytes; /* followed by both, the whole rounded up to 8 */
};

struct log {
    _Atomic uint32_t used;
    _Alignas(8) char bytes[LOG_BYTES];
};

struct rank {
    tri_rank_status status;
    tri_bootstrap boot; /* of this rank, in the process that runs it */
    tri_world *world;
    tri_waiter waiter;
    struct log log;
};

struct tri_world {
    int size;
    double deadline_s;
    char token[TRI_AUTH_TEXT]; /* a random one */
    size_t mapped_bytes;
    tri_stop stop;
    _Alignas(TRI_CACHE_LINE) tri_eventcount changed;
    _Atomic int first_failed; /* 1 + rank, 0: none; 's message: */
    _Atomic int recorded;     /* the message is complete */
    char message[sizeof((tr_error *)0)->message];
    struct rank ranks[];
};

tr_status tri_world_create(int size, const tr_comm_options *options, tri_world **out, tr_error *err)
{
    *out = NULL;
    if (size < 1 || size > 4096)
        return tri_fail(err, TR_ERROR_INPUT, "a world of %d ranks; it must have 1 to 4096", size);
    size_t bytes = sizeof(tri_world) + (size_t)size * sizeof(struct rank);
    tri_world *world = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (world == MAP_FAILED)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a world of %d ranks", size);
    world->size = size;
    world->mapped_bytes = bytes;
    tr_status status = tri_auth_token(world->token, err);
    if (status != TR_OK) {
        munmap(world, bytes);
        return status;
    }
    world->deadline_s = options && options->deadline_s > 0 ? options->deadline_s : 60;
    for (int i = 0; i < size; i++) {
        tri_rank_status *status = &world->ranks[i].status;
        atomic_store(&status->step, -1);
        atomic_store(&status->instruction, -1);
        atomic_store(&status->peer, -1);
    }
    *out = world;
    return TR_OK;
}

void tri_world_destroy(tri_world *world)
{
    if (world != NULL)
        munmap(world, world->mapped_bytes);
}

static size_t entry_bytes(size_t key_bytes, size_t data_bytes)
{
    return (sizeof(struct table_entry) + key_bytes + data_bytes + 7) / 8 * 8;
}

static tr_status put(void *context, const char *key, const void *data, size_t num_bytes,
                     tr_error *err)
{
    struct rank *self = context;
    size_t key_bytes = strlen(key), bytes = entry_bytes(key_bytes, num_bytes);
    uint32_t used = atomic_load_explicit(&self->log.used, memory_order_relaxed);
    if (bytes > LOG_BYTES - used)
        return tri_fail(err, TR_ERROR_RUNTIME, "the table of addresses is full (%zu bytes a rank)",
                        LOG_BYTES);
    struct table_entry *entry = (struct table_entry *)(self->log.bytes + used);
    *entry = (struct table_entry){(uint32_t)key_bytes, (uint32_t)num_bytes};
    memcpy(entry + 1, key, key_bytes);
    memcpy((char *)(entry + 1) + key_bytes, data, num_bytes);
    atomic_store_explicit(&self->log.used, used + (uint32_t)bytes, memory_order_release);
    tri_eventcount_add(&self->world->changed, 1, 0);
    return TR_OK;
}

static const struct table_entry *find(const tri_world *world, const char *key)
{
    size_t key_bytes = strlen(key);
    for (int r = 0; r < world->size; r++) {
        const struct log *log = &world->ranks[r].log;
        uint32_t used = atomic_load_explicit(&log->used, memory_order_acquire);
        for (uint32_t at = 0; at < used;) {
            const struct table_entry *entry = (const struct table_entry *)(log->bytes + at);
            if (entry->key_bytes == key_bytes && memcmp(entry + 1, key, key_bytes) == 0)
                return entry;
            at += (uint32_t)entry_bytes(entry->key_bytes, entry->data_bytes);
        }
    }
    return NULL;
}

static tr_status get(void *context, const char *key, void *data, size_t capacity, size_t *num_bytes,
                     tr_error *err)
{
    struct rank *self = context;
    tri_world *world = self->world;
    for (;;) {
        uint64_t seen = atomic_load_explicit(&world->changed.value, memory_order_acquire);
        const struct table_entry *entry = find(world, key);
        if (entry != NULL) {
            *num_bytes = entry->data_bytes < capacity ? entry->data_bytes : capacity;
            memcpy(data, (const char *)(entry + 1) + entry->key_bytes, *num_bytes);
            return TR_OK;
        }
        double seconds = 0;
        tri_wait_result result =
            tri_eventcount_wait(&self->waiter, &world->changed, seen + 1, NULL, NULL, &seconds);
        if (result == TRI_WAIT_STOPPED)
            return tri_fail(err, TR_ERROR_RUNTIME, "stopped: %s", world->stop.reason);
        if (result == TRI_WAIT_EXPIRED)
            return tri_fail(err, TR_ERROR_RUNTIME, "nobody published %s within %.1f s", key,
                            seconds);
    }
}

void tri_world_fail(tri_world *world, int rank, const char *message)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&world->first_failed, &none, rank + 1))
        return;
    snprintf(world->message, sizeof world->message, "%s", message);
    atomic_store(&world->recorded, 1);
    snprintf(world->stop.reason, sizeof world->stop.reason, "rank %d failed: %s", rank, message);
    atomic_store_explicit(&world->stop.stopped, 1, memory_order_release);
}

tr_status tri_world_result(const tri_world *world, tr_error *err)
{
    int failed = atomic_load(&world->first_failed);
    if (failed == 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME, "rank %d failed: %s", failed - 1,
                    atomic_load(&world->recorded) ? world->message : "it was killed");
}

const tri_rank_status *tri_world_status(const tri_world *world, int rank)
{
    return &world->ranks[rank].status;
}

tr_status tri_world_run_rank(tri_world *world, int rank, const char *transport, tr_rank_fn fn,
                             void *context)
{
    struct rank *self = &world->ranks[rank];
    self->world = world;
    self->boot = (tri_bootstrap){.rank = rank,
                                 .size = world->size,
                                 .local_rank = rank,
                                 .local_size = world->size,
                                 .deadline_s = world->deadline_s,
                                 .token = world->token,
                                 .stop = &world->stop,
                                 .status = &self->status,
                                 .context = self,
                                 .put = put,
                                 .get = get};
    tri_waiter_init(&self->waiter, &self->boot);
    tr_error err = {0};
    tr_comm *comm;
    tr_status status = tri_comm_create(&self->boot, transport, &comm, &err);
    if (status == TR_OK) {
        status = fn(comm, context, &err);
        if (status != TR_OK) /* before leaving: peers are still in the middle of something */
            tri_world_fail(world, rank, err.message);
        tri_comm_destroy(comm);
    } else {
        tri_world_fail(world, rank, err.message);
    }
    return status;
}
