#include "train/ranks.h"

#include "program/match.h"
#include "train/nonfinite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tr_dtype dtype_of[] = {[TRI_F32] = TR_F32, [TRI_BF16] = TR_BF16, [TRI_F16] = TR_F16};

/* The forced one where it has the operation; otherwise the choice is open. */
static const char *algorithm_for(const tri_ranks *ranks, const tri_group *group,
                                 tr_operation operation)
{
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(tr_group_size(group));
    if (strcmp(ranks->algorithm, "auto") == 0 || strcmp(ranks->algorithm, "native") == 0)
        return ranks->algorithm;
    bool has = tri_algorithm_parse(ranks->algorithm, &algorithm, &shape, NULL) == TR_OK &&
               tri_algorithm_supports(algorithm, (tri_coll)operation, &shape);
    return has ? ranks->algorithm : "auto";
}

/* World rank of a place on the pipeline, for this rank's other coordinates. */
static int pipeline_rank(const tri_ranks *ranks, int place)
{
    return ranks->rank + (place - ranks->pp_rank) * ranks->pp_stride;
}

int tri_ranks_home(const tri_ranks *ranks, const tri_message *message)
{
    for (size_t i = 0; i < ranks->num_homes; i++)
        if (ranks->homes[i].num == message->attr->num_homes &&
            memcmp(ranks->homes[i].place, message->attr->homes, sizeof ranks->homes[i].place) == 0)
            return (int)i;
    return -1;
}

void tri_ranks_home_members(const tri_ranks *ranks, const tri_home_group *home,
                            int members[TRI_MAX_HOMES])
{
    for (int i = 0; i < home->num; i++)
        members[i] = pipeline_rank(ranks, home->place[i]);
}

static tri_group *group_of(const tri_ranks *ranks, const tri_message *message)
{
    if (message->axis != TRI_AXIS_HOME)
        return ranks->groups[message->axis];
    int home = tri_ranks_home(ranks, message);
    return home >= 0 ? ranks->homes[home].group : NULL;
}

static tr_operation operation_of(tri_op op)
{
    bool gathers = op == TRI_OP_ALL_GATHER || op == TRI_OP_SHARD_GATHER || op == TRI_OP_UNSHARD;
    bool scatters = op == TRI_OP_REDUCE_SCATTER || op == TRI_OP_SHARD_SUM;
    return gathers                  ? TR_ALL_GATHER
           : scatters               ? TR_REDUCE_SCATTER
           : op == TRI_OP_BROADCAST ? TR_BROADCAST
                                    : TR_ALL_REDUCE;
}

tr_collective tri_ranks_collective(const tri_message *message)
{
    tr_operation operation = operation_of(message->op);
    return (tr_collective){
        .operation = operation,
        .reduction = TR_SUM,
        .dtype = dtype_of[message->dtype],
        .root = message->peer,
        .send = message->send,
        .recv = message->recv,
        .count = message->count,
        .send_counts = operation == TR_REDUCE_SCATTER ? message->counts : NULL,
        .recv_counts = operation == TR_ALL_GATHER ? message->counts : NULL,
        .label = message->label,
    };
}

static tr_status call_of(const tri_ranks *ranks, const tri_message *message, tr_collective *call,
                         tri_group **group, tr_error *err)
{
    *call = tri_ranks_collective(message);
    *group = group_of(ranks, message);
    if (!*group)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s: there is no such group of ranks",
                        message->label);
    call->algorithm = algorithm_for(ranks, *group, call->operation);
    return TR_OK;
}

static tr_status run_message(void *context, const tri_message *message, tr_error *err)
{
    const tri_ranks *ranks = context;
    size_t bytes = message->count * tri_dtype_bytes(message->dtype);
    tr_collective call;
    tri_group *group;
    if (message->op == TRI_OP_SEND)
        return tr_send(ranks->comm, pipeline_rank(ranks, message->peer), message->send, bytes, err);
    if (message->op == TRI_OP_RECV)
        return tr_recv(ranks->comm, pipeline_rank(ranks, message->peer), message->recv, bytes, err);
    TRI_TRY(call_of(ranks, message, &call, &group, err));
    return tri_comm_run(group, &call, err);
}

static tr_status start_message(void *context, const tri_message *message, void **request,
                               tr_error *err)
{
    const tri_ranks *ranks = context;
    size_t bytes = message->count * tri_dtype_bytes(message->dtype);
    int peer = message->op == TRI_OP_SEND || message->op == TRI_OP_RECV
                   ? pipeline_rank(ranks, message->peer)
                   : -1;
    tr_collective call;
    tri_group *group;
    tri_request *started = NULL;
    if (message->op == TRI_OP_SEND) {
        TRI_TRY(tr_send_start(ranks->comm, peer, message->send, bytes, &started, err));
    } else if (message->op == TRI_OP_RECV) {
        TRI_TRY(tr_recv_start(ranks->comm, peer, message->recv, bytes, &started, err));
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

static tr_status make_groups(tri_ranks *ranks, const tri_mesh *mesh, tr_error *err)
{
    int *members = malloc((size_t)ranks->size * sizeof *members);
    if (!members)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the groups of ranks");
    tr_status status = TR_OK;
    for (int axis = 0; status == TR_OK && axis < TRI_NUM_AXES; axis++) {
        tri_mesh_group(mesh, ranks->rank, (tri_axis)axis, members);
        if (tri_mesh_size(mesh, (tri_axis)axis) > 1)
            status =
                tr_group_create(ranks->comm, tri_axis_name((tri_axis)axis), members,
                                tri_mesh_size(mesh, (tri_axis)axis), &ranks->groups[axis], err);
    }
    free(members);
    return status;
}

static int compare_homes(const void *a, const void *b)
{
    const tri_home_group *x = a, *y = b;
    return memcmp(x->place, y->place, sizeof x->place);
}

/* The sets of homes that the programs' messages name, each once. */
static void find_homes(tri_ranks *ranks, const tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_attr *attr = &program->instrs[i].attr;
        if (!tri_op_get(program->instrs[i].op)->communicates || attr->axis != TRI_AXIS_HOME)
            continue;
        tri_home_group home = {.num = attr->num_homes};
        memcpy(home.place, attr->homes, sizeof home.place);
        bool known = false;
        for (size_t h = 0; h < ranks->num_homes; h++)
            known |= compare_homes(&ranks->homes[h], &home) == 0;
        if (!known && ranks->num_homes < TRI_MAX_HOME_GROUPS)
            ranks->homes[ranks->num_homes++] = home;
    }
}

/* Groups of the ranks of a pipeline that hold the same layers; in an order that all share. */
static tr_status make_homes(tri_ranks *ranks, const tri_session *session, tr_error *err)
{
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(session, p))
            find_homes(ranks, &session->programs[p]);
    qsort(ranks->homes, ranks->num_homes, sizeof *ranks->homes, compare_homes);
    for (size_t h = 0; h < ranks->num_homes; h++) {
        int members[TRI_MAX_HOMES];
        tri_ranks_home_members(ranks, &ranks->homes[h], members);
        TRI_TRY(tr_group_create(ranks->comm, "home", members, ranks->homes[h].num,
                                &ranks->homes[h].group, err));
    }
    return TR_OK;
}

/* The session's ways to the other ranks of the communicator. */
static tr_status connect(tri_ranks *ranks, tri_session *session, tr_error *err)
{
    const tri_mesh *mesh = &session->config.compile.mesh;
    ranks->pp_rank = tri_mesh_coordinate(mesh, ranks->rank, TRI_AXIS_PP);
    ranks->pp_stride = tri_mesh_ranks(mesh) / tri_mesh_size(mesh, TRI_AXIS_PP);
    TRI_TRY(make_groups(ranks, mesh, err));
    TRI_TRY(make_homes(ranks, session, err));
    session->dp_rank = tri_mesh_coordinate(mesh, ranks->rank, TRI_AXIS_DP);
    session->exchange = (tri_exchange){.context = ranks,
                                       .run = run_message,
                                       .start = start_message,
                                       .wait = wait_message,
                                       .give_up = give_up};
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
static void add_sizes(const tri_program *program, const tri_mesh *mesh, tri_call_sizes *sizes)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        if (!tri_op_get(instr->op)->communicates || instr->op == TRI_OP_SEND ||
            instr->op == TRI_OP_RECV || instr->span == 0)
            continue;
        tri_axis axis = (tri_axis)instr->attr.axis;
        int members = axis == TRI_AXIS_HOME ? instr->attr.num_homes : tri_mesh_size(mesh, axis);
        if (members == tri_mesh_ranks(mesh))
            tri_call_sizes_add(sizes, (tri_coll)operation_of(instr->op),
                               tri_message_whole_bytes(program, instr));
    }
}

static tri_call_sizes sizes_of_calls(const tri_session *session)
{
    tri_call_sizes sizes = {0};
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++)
        if (tri_session_has(session, p))
            add_sizes(&session->programs[p], &session->config.compile.mesh, &sizes);
    return sizes;
}

/* Of the numbers that the host exchanges, and of all messages without NCCL. */
static const char *host_transport(const tri_bootstrap *bootstrap, const char *wanted)
{
    if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "nccl") != 0)
        return wanted;
    return bootstrap->local_size == bootstrap->size ? "shm" : bootstrap->mpi ? "mpi" : "tcp";
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
    ranks->told = calloc((size_t)ranks->size, sizeof *ranks->told);
    if (!ranks->told)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    tri_bootstrap own = *bootstrap;
    own.sums = config->message_sums;
    TRI_TRY(tri_comm_create(&own, host_transport(bootstrap, config->transport), &ranks->comm, err));
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
    tri_call_sizes sizes = sizes_of_calls(session);
    if (strcmp(config->algorithm, "auto") == 0)
        TRI_TRY(tri_comm_tune(ranks->comm, config->tuning, &sizes, config->measuring, err));
    return connect(ranks, session, err);
}

tr_status tri_ranks_use(tri_ranks *ranks, tri_comm *comm, tri_session *session, tr_error *err)
{
    *ranks = (tri_ranks){.rank = tr_comm_rank(comm), .size = tr_comm_size(comm), .comm = comm};
    strcpy(ranks->algorithm, "auto");
    ranks->told = calloc((size_t)ranks->size, sizeof *ranks->told);
    if (!ranks->told)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    return connect(ranks, session, err);
}

const char *tri_ranks_transport(const tri_ranks *ranks)
{
    return ranks->nccl ? "nccl" : ranks->comm ? tr_comm_transport(ranks->comm) : "none";
}

void tri_ranks_leave(tri_ranks *ranks)
{
    tri_nccl_destroy(ranks->nccl);
    for (int axis = 0; axis < TRI_NUM_AXES; axis++)
        if (ranks->groups[axis])
            tr_group_destroy(ranks->groups[axis]);
    for (size_t h = 0; h < ranks->num_homes; h++)
        if (ranks->homes[h].group)
            tr_group_destroy(ranks->homes[h].group);
    if (ranks->owns_comm)
        tri_comm_destroy(ranks->comm);
    free(ranks->told);
    *ranks = (tri_ranks){0};
}

tr_status tri_ranks_meet(tri_ranks *ranks, double seconds, unsigned wishes, tri_meeting *met,
                         tr_error *err)
{
    *met = (tri_meeting){.slowest_s = seconds, .wishes = wishes};
    if (ranks->size == 1)
        return TR_OK;
    int64_t own = (int64_t)(seconds * 1e9) << TRI_WISH_BITS | (int64_t)wishes;
    TRI_TRY(tr_all_gather(tr_comm_world(ranks->comm), &own, ranks->told, 1, TR_I64, err));
    for (int r = 0; r < ranks->size; r++) {
        double theirs = 1e-9 * (double)(ranks->told[r] >> TRI_WISH_BITS);
        met->wishes |= (unsigned)ranks->told[r] & ((1u << TRI_WISH_BITS) - 1);
        if (r > 0 && theirs <= met->slowest_s)
            continue;
        met->slowest_rank = r;
        met->slowest_s = theirs;
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
