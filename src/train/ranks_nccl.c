/* Messages of programs by NCCL: when, and how a message becomes a call on its lane. */
#include <stdlib.h>
#include <string.h>

#include "train/ranks.h"

/* What a rank tells the others of its device. */
typedef struct gpu_card {
    char identity[64];
} gpu_card;

static const tri_device_lanes *lanes_of(const tri_session *session)
{
    const tri_device_queue *queue = session->device.def->queue;
    return queue ? queue->lanes : NULL;
}

/* ---- whether ---- */

static tr_status all_apart(tri_comm *comm, const gpu_card *own, bool *apart, tr_error *err)
{
    int size = tr_comm_size(comm);
    gpu_card *cards = calloc((size_t)size, sizeof *cards);
    if (!cards)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", size);
    tr_status status = tr_all_gather(tr_comm_world(comm), own, cards, sizeof *own, TR_U8, err);
    *apart = status == TR_OK;
    for (int i = 0; i < size; i++)
        for (int j = 0; j < i; j++)
            *apart = *apart && strcmp(cards[i].identity, cards[j].identity) != 0;
    free(cards);
    return status;
}

static tr_status all_found(tri_comm *comm, bool found, bool *all, tr_error *err)
{
    int32_t own = found, least = 0;
    TRI_TRY(tr_all_reduce(tr_comm_world(comm), &own, &least, 1, TR_I32, TR_MIN, err));
    *all = least != 0;
    return TR_OK;
}

tr_status tri_ranks_agree_on_nccl(tri_comm *comm, tri_device *device, const char *library,
                                  tri_nccl_api *api, bool *use, tr_error *err)
{
    gpu_card own = {{0}};
    bool apart = false;
    *use = false;
    *api = (tri_nccl_api){0};
    const tri_device_lanes *lanes = device->def->queue->lanes;
    TRI_TRY(lanes->identity(device, own.identity, sizeof own.identity, err));
    TRI_TRY(all_apart(comm, &own, &apart, err));
    if (!apart)
        return TR_OK;
    TRI_TRY(all_found(comm, tri_nccl_open(library, api, NULL) == TR_OK, use, err));
    if (!*use)
        tri_nccl_close(api);
    return TR_OK;
}

bool tri_ranks_may_use_nccl(const char *transport, const char *algorithm)
{
    return strcmp(transport, "nccl") == 0 ||
           (strcmp(transport, "auto") == 0 && strcmp(algorithm, "auto") == 0);
}

static tr_status check_wanted(const tri_ranks_config *config, const tri_session *session,
                              tr_error *err)
{
    if (!lanes_of(session))
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.transport is nccl, which joins GPUs, but run.device is %s; set "
                        "run.device=cuda, or run.transport to shm, tcp or mpi",
                        session->device.def->kind);
    if (strcmp(config->algorithm, "auto") != 0 && strcmp(config->algorithm, "native") != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.collective is \"%s\", but run.transport=nccl has algorithms of its "
                        "own; set run.collective to auto or native, or run.transport to shm",
                        config->algorithm);
    return TR_OK;
}

tr_status tri_ranks_choose_nccl(const tri_ranks *ranks, const tri_ranks_config *config,
                                tri_session *session, tri_nccl_api *api, bool *use, tr_error *err)
{
    bool wanted = strcmp(config->transport, "nccl") == 0;
    const char *library = config->nccl_library ? config->nccl_library : "";
    *use = wanted;
    *api = (tri_nccl_api){0};
    if (wanted) {
        TRI_TRY(check_wanted(config, session, err));
        return tri_nccl_open(library, api, err);
    }
    if (!tri_ranks_may_use_nccl(config->transport, config->algorithm) || !lanes_of(session))
        return TR_OK;
    /* Every rank sees the same, and so decides the same. */
    TRI_TRY(session->device.def->queue->start(&session->device, session->device_index, err));
    return tri_ranks_agree_on_nccl(ranks->comm, &session->device, library, api, use, err);
}

/* ---- how ---- */

static tr_status enqueue(void *context, const tri_exchange_call *message, void *handle,
                         tr_error *err)
{
    const tri_ranks *ranks = context;
    size_t bytes = message->count * tri_dtype_bytes(message->dtype);
    int lane = tri_ranks_find_group(ranks, message->group), peer = (int)message->peer;
    if (lane < 0)
        return tri_fail(err, TR_ERROR_INTERNAL, "%s: there is no such group of ranks",
                        message->label);
    if (message->kind == TRI_MESSAGE_SEND)
        return tri_nccl_send(ranks->nccl, lane, peer, message->send, bytes, handle, err);
    if (message->kind == TRI_MESSAGE_RECV)
        return tri_nccl_recv(ranks->nccl, lane, peer, message->recv, bytes, handle, err);
    tr_collective call = tri_ranks_collective(message);
    return tri_nccl_run(ranks->nccl, lane, &call, handle, err);
}

static tr_status look(void *context, double waited_s, tr_error *err)
{
    const tri_ranks *ranks = context;
    return tri_nccl_look(ranks->nccl, waited_s, err);
}

/* A communicator for each group that messages of programs are over. */
static tr_status join_lanes(tri_ranks *ranks, tr_error *err)
{
    if (ranks->num_groups > TRI_NCCL_MOST_LANES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "this layout has messages over %zu groups of ranks, but run.transport=nccl "
                        "joins %d at most; set run.transport to shm or tcp",
                        ranks->num_groups, TRI_NCCL_MOST_LANES);
    for (size_t i = 0; i < ranks->num_groups; i++) {
        const tri_rank_group *group = &ranks->groups[i].ranks;
        if (!ranks->groups[i].in_program)
            continue;
        int *members = tri_ranks_members(group);
        tr_status status =
            members
                ? tri_nccl_join(ranks->nccl, (int)i, group->name, members, (int)group->size, err)
                : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the groups of ranks");
        free(members);
        TRI_TRY(status);
    }
    return TR_OK;
}

tr_status tri_ranks_use_nccl(tri_ranks *ranks, const tri_bootstrap *bootstrap,
                             const tri_nccl_api *api, tri_session *session, tr_error *err)
{
    static const tri_lane_exchange lanes = {.records = true, .enqueue = enqueue, .look = look};
    static const tri_lane_exchange waits = {
        .records = true, .waits = true, .enqueue = enqueue, .look = look};
    TRI_TRY(tri_nccl_create(bootstrap, api, &ranks->nccl, err));
    TRI_TRY(session->device.def->queue->start(&session->device, session->device_index, err));
    TRI_TRY(join_lanes(ranks, err));
    static const tri_lane_exchange groups = {
        .records = true, .by_group = true, .enqueue = enqueue, .look = look};
    session->exchange.lanes = !session->config.compile.overlap ? &waits
                              : session->config.group_lanes    ? &groups
                                                               : &lanes;
    session->peers = (tri_peer_memory){0}; /* nothing goes through the host */
    return TR_OK;
}
