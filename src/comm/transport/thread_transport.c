/* Ranks as threads of one process: every address is reachable as it stands. */
#include "comm/transport/transport.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096

/* Lies just before the aligned address. */
struct header {
    void *block; /* what calloc gave */
    _Atomic int departed;
};

static struct header *header_of(void *memory)
{
    return (struct header *)memory - 1;
}

static tr_status thread_create(const tri_bootstrap *bootstrap, void **state, tr_error *err)
{
    (void)bootstrap;
    (void)err;
    *state = NULL;
    return TR_OK;
}

static void thread_destroy(void *state)
{
    (void)state;
}

/* calloc takes large blocks untouched from the system, which memset would not. */
static tr_status thread_alloc(void *state, size_t num_bytes, void **memory, tr_error *err)
{
    (void)state;
    *memory = NULL;
    char *block = num_bytes < SIZE_MAX / 2 ? calloc(1, num_bytes + 2 * PAGE_BYTES) : NULL;
    if (block == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %zu bytes that peers read",
                        num_bytes);
    uintptr_t aligned = ((uintptr_t)block + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
    if (aligned - (uintptr_t)block < sizeof(struct header))
        aligned += PAGE_BYTES;
    *memory = (void *)aligned;
    header_of(*memory)->block = block;
    return TR_OK;
}

static void thread_free(void *state, void *memory)
{
    (void)state;
    if (memory != NULL)
        free(header_of(memory)->block);
}

static void thread_leave(void *state, void **members, int size, int rank)
{
    (void)rank;
    for (int i = 0; i < size; i++)
        if (members[i] != NULL && atomic_fetch_add(&header_of(members[i])->departed, 1) + 1 == size)
            thread_free(state, members[i]);
}

static bool thread_ref(void *state, const void *address, size_t num_bytes, tri_ref *ref)
{
    (void)state;
    (void)num_bytes;
    *ref = (tri_ref){.segment = 1, .offset = (uint64_t)(uintptr_t)address};
    return true;
}

static tr_status thread_map(void *state, int peer, tri_ref ref, void **address, tr_error *err)
{
    (void)state;
    (void)peer;
    (void)err;
    *address = (void *)(uintptr_t)ref.offset;
    return TR_OK;
}

static const tri_transport thread_transport = {
    .name = "thread",
    .create = thread_create,
    .destroy = thread_destroy,
    .alloc = thread_alloc,
    .free = thread_free,
    .leave = thread_leave,
    .ref = thread_ref,
    .map = thread_map,
};

const tri_transport *tri_transport_find(const char *name)
{
    static const tri_transport *const all[] = {&thread_transport, &tri_transport_shm,
                                               &tri_transport_tcp, &tri_transport_mpi};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
