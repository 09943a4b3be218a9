#include "train/ranks.h"

#include "program/messages.h"
#include "train/nonfinite.h"
#include "train/weights_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of 8 bits are moved and not added up. */
static const tr_dtype dtype_of[TRI_NUM_DTYPES] = {
    [TRI_F32] = TR_F32, [TRI_BF16] = TR_BF16, [TRI_F16] = TR_F16,   [TRI_I32] = TR_I32,
    [TRI_I64] = TR_I64, [TRI_U8] = TR_U8,     [TRI_F8E4M3] = TR_U8, [TRI_F8E5M2] = TR_U8};

/* The forced one where it has the operation; otherwise the choice is open. */
static const char *algorithm_for(const tri_ranks *ranks, const tri_group *group,
                                 tr_operation operation)
{
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(tr_group_size(group));
    if (strcmp(ranks->algorithm, "auto") == 0 || strcmp(ranks->algorithm, "native") == 0)
        return ranks->algorithm;
    bool has = tri_algorithm_parse(ranks->algorithm, &algorithm, &shape, NULL) == TR_OK &&
               tri_algorithm_supports(algorithm, (tri_coll)operation, &shape) &&
               !(operation == TR_ALL_TO_ALL && algorithm->relays); /* blocks differ in size */
    return has ? ranks->algorithm : "auto";
}

int tri_ranks_find_group(const tri_ranks *ranks, const tri_rank_group *group)
{
    for (size_t i = 0; i < ranks->num_groups; i++)
        if (tri_rank_group_equal(&ranks->groups[i].ranks, group))
            return (int)i;
    return -1;
}

int *tri_ranks_members(const tri_rank_group *group)
{
    int *members = malloc(group->size * sizeof *members);
    for (uint32_t i = 0; members && i < group->size; i++)
        members[i] = tri_rank_group_member(group, i);
    return members;
}

static tr_operation operation_of(tri_message_kind kind)
{
    static const tr_operation operations[TRI_NUM_MESSAGE_KINDS] = {
        [TRI_MESSAGE_ALL_REDUCE] = TR_ALL_REDUCE,
        [TRI_MESSAGE_ALL_GATHER] = TR_ALL_GATHER,
        [TRI_MESSAGE_REDUCE_SCATTER] = TR_REDUCE_SCATTER,
        [TRI_MESSAGE_ALL_TO_ALL] = TR_ALL_TO_ALL,
        [TRI_MESSAGE_BROADCAST] = TR_BROADCAST,
        /* in which a rank has something for one other */
        [TRI_MESSAGE_SHIFT] = TR_ALL_TO_ALL,
    };
    return operations[kind];
}

tr_collective tri_ranks_collective(const tri_exchange_call *message)
{
    return (tr_collective){
        .operation = operation_of(message->kind),
        .reduction = message->how == TRI_PARTIAL_MAX   ? TR_MAX
                     : message->how == TRI_PARTIAL_MIN ? TR_MIN
                                                       : TR_SUM,
        .dtype = dtype_of[message->dtype],
        .root = (int)message->peer,
        .send = message->send,
        .recv = message->recv,
        .count = message->count,
        .send_counts = message->send_counts,
        .recv_counts = message->recv_counts,
        .room = message->room,
        .label = message->label,
    };
}

static tr_status call_of(const tri_ranks *ranks, const tri_exchange_call *message,
                         tr_collective *call, tri_group **group, tr_error *err)
{
    int number = tri_ranks_find_group(ranks, message->group);
    if (number < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s: there is no such group of ranks",
                        message->label);
    *call = tri_ranks_collective(message);
    *group = ranks->groups[number].group;
    call->algorithm = algorithm_for(ranks, *group, call->operation);
    return TR_OK;
}

/* The other end of half a message. */
static int peer_of(const tri_exchange_call *message)
{
    return tri_rank_group_member(message->group, message->peer);
}

static tr_status run_message(void *context, const tri_exchange_call *message, tr_error *err)
{
    const tri_ranks *ranks = context;
    size_t bytes = message->count * tri_dtype_bytes(message->dtype);
    tr_collective call;
    tri_group *group;
    if (message->kind == TRI_MESSAGE_SEND)
        return tr_send(ranks->comm, peer_of(message), message->send, bytes, err);
    if (message->kind == TRI_MESSAGE_RECV)
        return tr_recv(ranks->comm, peer_of(message), message->recv, bytes, err);
    TRI_TRY(call_of(ranks, message, &call, &group, err));
    return tri_comm_run(group, &call, err);
}

static tr_status start_message(void *context, const tri_exchange_call *message, void **request,
                               tr_error *err)
{
    const tri_ranks *ranks = context;
    size_t bytes = message->count * tri_dtype_bytes(message->dtype);
    tr_collective call;
    tri_group *group;
    tri_request *started = NULL;
    if (message->kind == TRI_MESSAGE_SEND) {
        TRI_TRY(tr_send_start(ranks->comm, peer_of(message), message->send, bytes, &started, err));
    } else if (message->kind == TRI_MESSAGE_RECV) {
        TRI_TRY(tr_recv_start(ranks->comm, peer_of(message), message->recv, bytes, &started, err));
    } else {
        TRI_TRY(call_of(ranks, message, &call, &group, err));
        TRI_TRY(tri_comm_start(group, &call, &started, err));
    }
    *request = started;
    return TR_OK;
}

static tr_status wait_message(void *context, void *request, uint64_t *begin_ns, uint64_t *end_ns,
                              tr_error *err)
{
    (void)context;
    return tri_request_wait(request, begin_ns, end_ns, err);
}

static void give_up(void *context)
{
    const tri_ranks *ranks = context;
    tri_comm_give_up(ranks->comm);
}

static tri_comm_time spent(void *context)
{
    const tri_ranks *ranks = context;
    return tri_comm_spent(ranks->comm);
}

static void *alloc_for_peers(void *context, size_t bytes)
{
    void *memory;
    const tri_ranks *ranks = context;
    return tr_comm_alloc(ranks->comm, bytes, &memory, NULL) == TR_OK ? memory : NULL;
}

static void free_for_peers(void *context, void *memory)
{
    const tri_ranks *ranks = context;
    tr_comm_free(ranks->comm, memory);
}

/* Adds a group unless it is known. */
static tr_status add_group(tri_ranks *ranks, const tri_rank_group *group, bool in_program,
                           tr_error *err)
{
    int known = tri_ranks_find_group(ranks, group);
    if (known >= 0) {
        ranks->groups[known].in_program |= in_program;
        return TR_OK;
    }
    tri_joined_group *groups =
        tri_array_grow(ranks->groups, ranks->num_groups, &ranks->groups_capacity, sizeof *groups);
    if (!groups)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the groups of ranks");
    ranks->groups = groups;
    groups[ranks->num_groups++] = (tri_joined_group){.ranks = *group, .in_program = in_program};
    return TR_OK;
}

static tr_status find_groups(tri_ranks *ranks, const tri_session *session, tr_error *err)
{
    tri_rank_group own[TRI_WEIGHTS_GROUPS];
    size_t num = tri_weights_groups(session, own);
    for (size_t i = 0; i < num; i++)
        TRI_TRY(add_group(ranks, &own[i], false, err));
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        for (size_t i = 0; tri_session_has(session, p) && i < session->programs[p].num_groups; i++)
            TRI_TRY(add_group(ranks, &session->programs[p].groups[i], true, err));
    return TR_OK;
}

static int compare_groups(const void *a, const void *b)
{
    const tri_joined_group *x = a, *y = b;
    return tri_rank_group_compare(&x->ranks, &y->ranks);
}

/* Joins all groups in an order that the ranks share: a group that one of them comes to waits for no
 * other than those before it. */
static tr_status make_groups(tri_ranks *ranks, const tri_session *session, tr_error *err)
{
    TRI_TRY(find_groups(ranks, session, err));
    if (ranks->num_groups > 0)
        qsort(ranks->groups, ranks->num_groups, sizeof *ranks->groups, compare_groups);
    for (size_t i = 0; i < ranks->num_groups; i++) {
        tri_joined_group *joined = &ranks->groups[i];
        int *members = tri_ranks_members(&joined->ranks);
        tr_status status =
            members ? tr_group_create(ranks->comm, joined->ranks.name, members,
                                      (int)joined->ranks.size, &joined->group, err)
                    : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the groups of ranks");
        free(members);
        TRI_TRY(status);
    }
    return TR_OK;
}

/* The session's ways to the other ranks of the communicator. */
static tr_status connect(tri_ranks *ranks, tri_session *session, tr_error *err)
{
    TRI_TRY(make_groups(ranks, session, err));
    session->dp_rank = tri_mesh_coordinate(&session->config.compile.mesh, ranks->rank, TRI_AXIS_DP);
    session->exchange = (tri_exchange){.context = ranks,
                                       .run = run_message,
                                       .start = start_message,
                                       .wait = wait_message,
                                       .give_up = give_up,
                                       .spent = spent};
    session->peers =
        (tri_peer_memory){.context = ranks, .alloc = alloc_for_peers, .free = free_for_peers};
    return TR_OK;
}

/* Does an algorithm, as the settings name it, go with a group of so many ranks? One rank has no
 * messages, so its shape does not matter, but a wrong name is wrong. */
static tr_status check_algorithm(const char *text, int size, tr_error *err)
{
    char name[40];
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(size);
    snprintf(name, sizeof name, "%.*s", size > 1 ? 39 : (int)strcspn(text, ":"), text);
    TRI_TRY(tri_algorithm_parse(name, &algorithm, &shape, err));
    if (size > 1 && !tri_algorithm_supports(algorithm, TRI_COLL_ALL_REDUCE, &shape))
        return tri_algorithm_refuse(algorithm, TRI_COLL_ALL_REDUCE, &shape, err);
    return TR_OK;
}

tr_status tri_ranks_check_algorithm(const char *algorithm, const tri_mesh *mesh, tr_error *err)
{
    if (strcmp(algorithm, "auto") == 0 || strcmp(algorithm, "native") == 0)
        return TR_OK;
    tr_status status = check_algorithm(algorithm, 1, err);
    for (int axis = 0; axis < TRI_NUM_AXES && status == TR_OK; axis++)
        if (tri_mesh_size(mesh, (tri_axis)axis) > 1)
            status = check_algorithm(algorithm, tri_mesh_size(mesh, (tri_axis)axis), err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "run.collective");
}

/* A program's calls of all ranks. */
static void add_sizes(const tri_program *program, int num_ranks, tri_call_sizes *sizes)
{
    for (size_t i = 0; i < program->num_messages; i++) {
        const tri_message *message = &program->messages[i];
        bool counted = message->kind == TRI_MESSAGE_SHIFT || tri_message_varies(message);
        if (!tri_message_pairwise(message) && !counted && !tri_message_carries(message) &&
            program->groups[message->group].size == (uint32_t)num_ranks)
            tri_call_sizes_add(sizes, (tri_coll)operation_of(message->kind),
                               tri_message_bytes(message));
    }
}

static tri_call_sizes sizes_of_calls(const tri_session *session, int num_ranks)
{
    tri_call_sizes sizes = {0};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(session, p))
            add_sizes(&session->programs[p], num_ranks, &sizes);
    return sizes;
}

const char *tri_ranks_host_transport(const tri_bootstrap *bootstrap, const char *wanted)
{
    if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "nccl") != 0)
        return wanted;
    return bootstrap->local_size == bootstrap->size ? "shm" : bootstrap->mpi ? "mpi" : "tcp";
}

/* For what all ranks say. */
static tr_status make_room(tri_ranks *ranks, tr_error *err)
{
    ranks->told = calloc((size_t)ranks->size, sizeof *ranks->told);
    ranks->words = calloc((size_t)ranks->size, sizeof *ranks->words);
    if (!ranks->told || !ranks->words)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    return TR_OK;
}

tr_status tri_ranks_join(tri_ranks *ranks, const tri_bootstrap *bootstrap,
                         const tri_ranks_config *config, tri_session *session, tr_error *err)
{
    *ranks = (tri_ranks){.rank = bootstrap->rank, .size = bootstrap->size};
    snprintf(ranks->algorithm, sizeof ranks->algorithm, "%s", config->algorithm);
    session->status = bootstrap->status;
    session->device_index = bootstrap->local_rank;
    if (ranks->size == 1)
        return TR_OK;
    TRI_TRY(make_room(ranks, err));
    tri_bootstrap own = *bootstrap;
    own.sums = config->message_sums;
    TRI_TRY(tri_comm_create(&own, tri_ranks_host_transport(bootstrap, config->transport),
                            &ranks->comm, err));
    ranks->owns_comm = true;
    TRI_TRY(tri_ranks_check_room(ranks, session, err));
    tri_nccl_api api;
    bool by_nccl;
    TRI_TRY(tri_ranks_choose_nccl(ranks, config, session, &api, &by_nccl, err));
    if (by_nccl) {
        strcpy(ranks->algorithm, "auto");
        TRI_TRY(connect(ranks, session, err));
        return tri_ranks_use_nccl(ranks, bootstrap, &api, session, err);
    }
    tri_call_sizes sizes = sizes_of_calls(session, ranks->size);
    if (strcmp(config->algorithm, "auto") == 0)
        TRI_TRY(tri_comm_tune(ranks->comm, config->tuning, &sizes, config->measuring, err));
    return connect(ranks, session, err);
}

tr_status tri_ranks_use(tri_ranks *ranks, tri_comm *comm, tri_session *session, tr_error *err)
{
    *ranks = (tri_ranks){.rank = tr_comm_rank(comm), .size = tr_comm_size(comm), .comm = comm};
    strcpy(ranks->algorithm, "auto");
    TRI_TRY(make_room(ranks, err));
    return connect(ranks, session, err);
}

const char *tri_ranks_transport(const tri_ranks *ranks)
{
    return ranks->nccl ? "nccl" : ranks->comm ? tr_comm_transport(ranks->comm) : "none";
}

void tri_ranks_leave(tri_ranks *ranks)
{
    tri_nccl_destroy(ranks->nccl);
    for (size_t i = 0; i < ranks->num_groups; i++)
        if (ranks->groups[i].group)
            tr_group_destroy(ranks->groups[i].group);
    free(ranks->groups);
    if (ranks->owns_comm)
        tri_comm_destroy(ranks->comm);
    free(ranks->told);
    free(ranks->words);
    *ranks = (tri_ranks){0};
}

static double own_of(const tri_rank_word *word)
{
    double sum = 0;
    for (int k = 0; k < TRI_NUM_OWN; k++)
        sum += (double)word->own_ms[k];
    return sum;
}

tr_status tri_ranks_meet(tri_ranks *ranks, const tri_rank_word *word, tri_meeting *met,
                         tr_error *err)
{
    enum { NUM = sizeof *word / sizeof(int64_t) };
    *met = (tri_meeting){0};
    const tri_rank_word *words = ranks->words ? ranks->words : word;
    if (ranks->size > 1)
        TRI_TRY(tr_all_gather(tr_comm_world(ranks->comm), word, ranks->words, NUM, TR_I64, err));
    for (int r = 0; r < ranks->size; r++) {
        double own = own_of(&words[r]);
        met->wishes |= (unsigned)words[r].wishes & ((1u << TRI_WISH_BITS) - 1);
        met->own_ms += own / ranks->size;
        met->waited_ms += (double)words[r].waited_ms / ranks->size;
        if (r > 0 && own <= met->slowest_ms)
            continue;
        met->slowest_rank = r;
        met->slowest_ms = own;
    }
    return TR_OK;
}

void tri_ranks_name_nonfinite(tri_ranks *ranks, const tri_session *session, tr_error *err)
{
    enum { NUM = sizeof(tri_nonfinite) / sizeof(int64_t) };
    if (ranks->size == 1) /* its session has said it */
        return;
    tri_nonfinite own, *all = calloc((size_t)ranks->size, sizeof *all);
    tr_error unused;
    if (tri_nonfinite_find(session, &own, &unused) != TR_OK)
        own = (tri_nonfinite){.place = INT64_MAX, .largest = -1};
    bool has_all =
        all && tr_all_gather(tr_comm_world(ranks->comm), &own, all, NUM, TR_I64, &unused) == TR_OK;
    int first = 0;
    for (int r = 1; has_all && r < ranks->size; r++)
        if (all[r].place < all[first].place ||
            (all[r].place == INT64_MAX && all[r].place == all[first].place &&
             all[r].reach > all[first].reach))
            first = r;
    if (has_all)
        tri_nonfinite_add(session, &all[first], first, err);
    free(all);
}
