/* Groups of ranks: their members, and what each sees of the others. */
#include "comm/comm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((size_t)4096)

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Where the parts of a cell begin. */
static size_t counts_offset(void)
{
    return sizeof(tri_cell);
}

static size_t ports_offset(int size)
{
    return round_up(counts_offset() + 4 * (size_t)size * sizeof(uint64_t));
}

static size_t slots_offset(int size)
{
    return round_up(ports_offset(size) + tri_ports_bytes(size));
}

static size_t cell_bytes(int size)
{
    return slots_offset(size) + 2 * TRI_SLOT_BYTES;
}

uint64_t *tri_cell_counts(const tr_group *group, int member, bool recv)
{
    size_t set = group->call % 2 * 2 + (recv ? 1 : 0);
    uint64_t *counts = (uint64_t *)((char *)group->cells[member] + counts_offset());
    return counts + set * (size_t)group->size;
}

char *tri_cell_slot(const tr_group *group, int member, unsigned parity)
{
    return (char *)group->cells[member] + slots_offset(group->size) + parity * TRI_SLOT_BYTES;
}

/* The same members may make several groups; each is told apart by how many came before. */
static void group_key(const tr_comm *comm, const int *ranks, int size, char *key, size_t capacity)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < size; i++)
        hash = (hash ^ (uint64_t)ranks[i]) * 0x100000001b3u;
    int before = 0;
    for (const tr_group *g = comm->groups; g != NULL; g = g->next)
        if (g->size == size && memcmp(g->ranks, ranks, (size_t)size * sizeof *ranks) == 0)
            before = g->generation > before ? g->generation : before;
    snprintf(key, capacity, "group.%016llx.%d.%d", (unsigned long long)hash, size, before + 1);
}

void tri_group_free(tr_group *group)
{
    tr_comm *comm = group->comm;
    tri_lane_fini(&group->lane);
    tri_ports_fini(&group->ports);
    if (group->cells != NULL)
        comm->transport->leave(comm->state, (void **)group->cells, group->size, group->rank);
    tri_rounds_forget(group);
    free(group->cells);
    free(group->address);
    free(group->units);
    free(group->ranks);
    free(group);
}

static tr_status check_members(const tr_comm *comm, const int *ranks, int size, int *me,
                               tr_error *err)
{
    *me = -1;
    if (size < 1 || size > comm->boot.size)
        return tri_fail(err, TR_ERROR_INPUT, "a group of %d ranks in a world of %d", size,
                        comm->boot.size);
    for (int i = 0; i < size; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->boot.size)
            return tri_fail(err, TR_ERROR_INPUT, "rank %d is not in a world of %d", ranks[i],
                            comm->boot.size);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return tri_fail(err, TR_ERROR_INPUT, "rank %d is twice in one group", ranks[i]);
        if (ranks[i] == comm->boot.rank)
            *me = i;
    }
    if (*me < 0)
        return tri_fail(err, TR_ERROR_INPUT, "rank %d makes a group that it is not in",
                        comm->boot.rank);
    return TR_OK;
}

static tr_status alloc_group(tr_comm *comm, const char *name, const int *ranks, int size, int me,
                             tr_group **out, tr_error *err)
{
    tr_group *group = calloc(1, sizeof *group);
    *out = group;
    if (group == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for group %s", name);
    size_t n = (size_t)size;
    group->comm = comm;
    group->waiter = &comm->waiter;
    TRI_TRY(tri_lane_init(&group->lane, err));
    group->size = size;
    group->shape = tri_shape_flat(size);
    group->rank = me;
    snprintf(group->name, sizeof group->name, "%s", name);
    group->ranks = malloc(n * sizeof *group->ranks);
    group->cells = calloc(n, sizeof *group->cells);
    group->address = calloc(2 * n, sizeof *group->address);
    group->units = calloc(n, sizeof *group->units);
    if (!group->ranks || !group->cells || !group->address || !group->units)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for group %s", name);
    memcpy(group->ranks, ranks, n * sizeof *ranks);
    return TR_OK;
}

/* Ranks of one machine that follow each other, as many on each: then the group has a shape. */
static void find_shape(tr_group *group)
{
    const int *machine = group->comm->machine;
    int size = group->size, each = 1;
    if (machine == NULL)
        return;
    while (each < size && machine[group->ranks[each]] == machine[group->ranks[0]])
        each++;
    if (each == 1 || each == size || size % each != 0)
        return;
    for (int i = 0; i < size; i++) {
        int first = i / each * each;
        bool same = machine[group->ranks[i]] == machine[group->ranks[first]];
        bool seen = false; /* the machine of another run */
        for (int j = 0; j < first; j += each)
            seen |= machine[group->ranks[j]] == machine[group->ranks[i]];
        if (!same || seen)
            return;
    }
    group->shape = (tri_coll_shape){.size = size, .num_dims = 2, .dim = {each, size / each}};
}

static tr_status join_group(tr_group *group, const char *key, tr_error *err)
{
    tr_comm *comm = group->comm;
    int size = group->size;
    void *memory = NULL;
    find_shape(group);
    if (comm->transport->io != NULL) {
        free(group->cells);
        group->cells = NULL;
        return tri_ports_open(&group->ports, comm, size, group->rank, group->ranks, key, false,
                              err);
    }
    TRI_TRY(tri_comm_exchange(comm, key, group->ranks, size, group->rank, cell_bytes(size), &memory,
                              (void **)group->cells, err));
    void **channels = calloc((size_t)size, sizeof *channels);
    tri_eventcount **bells = calloc((size_t)size, sizeof *bells);
    tr_status status = TR_OK;
    if (channels == NULL || bells == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for group %s", group->name);
    for (int i = 0; status == TR_OK && i < size; i++) {
        channels[i] = (char *)group->cells[i] + ports_offset(size);
        bells[i] = &group->cells[i]->bell;
    }
    if (status == TR_OK)
        status = tri_ports_init(&group->ports, comm, size, group->rank, group->ranks, channels,
                                bells, err);
    free(channels);
    free(bells);
    if (status == TR_OK)
        tri_cores_read(group->cells[group->rank]->cores);
    if (status == TR_OK) /* nobody leaves before all have mapped its memory */
        status = tri_tick(group, &(tr_collective){.operation = TR_BARRIER}, err);
    return status;
}

tr_status tr_group_create(tr_comm *comm, const char *name, const int *ranks, int num_ranks,
                          tr_group **out, tr_error *err)
{
    int me;
    char key[64];
    *out = NULL;
    TRI_TRY(check_members(comm, ranks, num_ranks, &me, err));
    group_key(comm, ranks, num_ranks, key, sizeof key);
    tri_comm_doing(comm, "creating group", name, 0);
    tr_group *group;
    tr_status status = alloc_group(comm, name, ranks, num_ranks, me, &group, err);
    if (status == TR_OK)
        status = join_group(group, key, err);
    if (status != TR_OK) {
        if (group != NULL)
            tri_group_free(group);
        return tri_fail_prefix(err, status, "group %s", name);
    }
    const char *generation = strrchr(key, '.') + 1;
    group->generation = atoi(generation);
    group->next = comm->groups;
    comm->groups = group;
    *out = group;
    return TR_OK;
}

/* A name that was used stays used: the entry remains, without its memory, until the comm ends. */
void tr_group_destroy(tr_group *group)
{
    if (group == NULL || group == group->comm->world)
        return;
    tr_comm *comm = group->comm;
    tri_lane_fini(&group->lane);
    tri_ports_fini(&group->ports);
    if (group->cells != NULL)
        comm->transport->leave(comm->state, (void **)group->cells, group->size, group->rank);
    tri_rounds_forget(group);
    free(group->cells);
    group->cells = NULL;
    group->broken = true;
    tri_fail(&group->error, TR_ERROR_INPUT, "group %s was destroyed", group->name);
}

int tr_group_rank(const tr_group *group)
{
    return group->rank;
}

int tr_group_size(const tr_group *group)
{
    return group->size;
}
