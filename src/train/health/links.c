#include "train/health/links.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* Communicators of NCCL, on one lane of the device. */
enum { ALL = 0, GROUP = 1, LANE = 0, POINT = 0 };

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to try the links");
}

/* ---- opening ---- */

static tr_status join_nccl(tri_links *links, const tri_links_config *config, tr_error *err)
{
    int size = tr_comm_size(links->comm), *ranks = malloc((size_t)size * sizeof *ranks);
    if (!ranks)
        return no_memory(err);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    tr_status status =
        tri_nccl_create(tri_comm_bootstrap(links->comm), config->api, &links->nccl, err);
    if (status == TR_OK)
        status = tri_nccl_join(links->nccl, ALL, "links", ranks, size, err);
    if (status == TR_OK && config->num_ranks > 1)
        status = tri_nccl_join(links->nccl, GROUP, "node", config->ranks, config->num_ranks, err);
    free(ranks);
    const tri_device_lanes *lanes = links->device->def->queue->lanes;
    return status == TR_OK ? lanes->open(links->device, LANE, &links->lane, err) : status;
}

tr_status tri_links_open(tri_links *links, const tri_links_config *config, tr_error *err)
{
    tri_comm *comm = config->comm;
    tri_device *device = config->device;
    size_t most_bytes = config->most_bytes;
    *links = (tri_links){
        .comm = comm, .device = device, .most_bytes = most_bytes, .group_size = config->num_ranks};
    links->num_blocks = calloc(2 * (size_t)tr_comm_size(comm), sizeof *links->num_blocks);
    if (!links->num_blocks)
        return no_memory(err);
    TRI_TRY(tr_comm_alloc(comm, most_bytes, &links->send, err));
    TRI_TRY(tr_comm_alloc(comm, most_bytes, &links->recv, err));
    memset(links->send, 1, most_bytes); /* pages that nobody wrote to are all the same one */
    memset(links->recv, 1, most_bytes);
    if (config->num_ranks > 1)
        TRI_TRY(
            tr_group_create(comm, "node", config->ranks, config->num_ranks, &links->group, err));
    if (!device->def->queue)
        return TR_OK;
    links->there = device->def->alloc(2 * most_bytes);
    if (!links->there)
        return no_memory(err);
    return config->api ? join_nccl(links, config, err) : TR_OK;
}

void tri_links_close(tri_links *links)
{
    tri_nccl_destroy(links->nccl);
    if (links->group)
        tr_group_destroy(links->group);
    if (links->there)
        links->device->def->free(links->there, 2 * links->most_bytes);
    if (links->recv)
        tr_comm_free(links->comm, links->recv);
    if (links->send)
        tr_comm_free(links->comm, links->send);
    free(links->num_blocks);
    *links = (tri_links){0};
}

/* ---- messages ---- */

static tr_status pass_on_host(tri_links *links, int to, int from, size_t bytes, tr_error *err)
{
    tri_request *sending = NULL;
    if (to < 0)
        return tr_recv(links->comm, from, links->recv, bytes, err);
    if (from < 0)
        return tr_send(links->comm, to, links->send, bytes, err);
    TRI_TRY(tr_send_start(links->comm, to, links->send, bytes, &sending, err));
    tr_status status = tr_recv(links->comm, from, links->recv, bytes, err);
    tr_status sent = tr_request_wait(sending, status == TR_OK ? err : NULL);
    return status == TR_OK ? sent : status;
}

/* Out of the device's memory and into it, as a run without NCCL does. */
static tr_status pass_by_host(tri_links *links, int to, int from, size_t bytes, tr_error *err)
{
    const tri_device_queue *queue = links->device->def->queue;
    if (to >= 0) {
        TRI_TRY(queue->download(links->device, links->send, links->there, bytes, err));
        TRI_TRY(queue->finish(links->device, err));
    }
    TRI_TRY(pass_on_host(links, to, from, bytes, err));
    if (from < 0)
        return TR_OK;
    TRI_TRY(
        queue->upload(links->device, links->there + links->most_bytes, links->recv, bytes, err));
    return queue->finish(links->device, err);
}

/* As an all_to_all in which one block goes out and one comes in. */
static tr_status pass_by_nccl(tri_links *links, int to, int from, size_t bytes, tr_error *err)
{
    size_t size = (size_t)tr_comm_size(links->comm);
    uint64_t *out = links->num_blocks, *in = out + size;
    memset(out, 0, 2 * size * sizeof *out);
    if (to >= 0)
        out[to] = bytes;
    if (from >= 0)
        in[from] = bytes;
    tr_collective call = {.operation = TR_ALL_TO_ALL,
                          .dtype = TR_U8,
                          .send = links->there,
                          .recv = links->there + links->most_bytes,
                          .send_counts = out,
                          .recv_counts = in};
    return tri_nccl_run(links->nccl, ALL, &call, links->lane, err);
}

tr_status tri_links_pass(tri_links *links, int to, int from, size_t bytes, tr_error *err)
{
    if (to < 0 && from < 0)
        return TR_OK;
    return links->nccl                 ? pass_by_nccl(links, to, from, bytes, err)
           : links->device->def->queue ? pass_by_host(links, to, from, bytes, err)
                                       : pass_on_host(links, to, from, bytes, err);
}

tr_status tri_links_gather(tri_links *links, size_t block_bytes, tr_error *err)
{
    const tri_device_queue *queue = links->device->def->queue;
    size_t all = block_bytes * (size_t)links->group_size;
    tr_collective call = {.operation = TR_ALL_GATHER,
                          .dtype = TR_U8,
                          .send = links->send,
                          .recv = links->recv,
                          .count = block_bytes};
    if (links->nccl) {
        call.send = links->there;
        call.recv = links->there + links->most_bytes;
        return tri_nccl_run(links->nccl, GROUP, &call, links->lane, err);
    }
    if (queue) {
        TRI_TRY(queue->download(links->device, links->send, links->there, block_bytes, err));
        TRI_TRY(queue->finish(links->device, err));
    }
    TRI_TRY(tr_collective_run(links->group, &call, err));
    if (!queue)
        return TR_OK;
    TRI_TRY(queue->upload(links->device, links->there + links->most_bytes, links->recv, all, err));
    return queue->finish(links->device, err);
}

tr_status tri_links_settle(tri_links *links, tr_error *err)
{
    if (!links->nccl)
        return TR_OK;
    tri_device *device = links->device;
    const tri_device_lanes *lanes = device->def->queue->lanes;
    double begin = tri_now_s();
    bool idle = false;
    TRI_TRY(lanes->set(device, LANE, POINT, err));
    TRI_TRY(lanes->await(device, TRI_DEVICE_QUEUE, POINT, err));
    for (int looks = 0; !idle; looks++) {
        TRI_TRY(lanes->idle(device, &idle, err));
        TRI_TRY(tri_nccl_look(links->nccl, tri_now_s() - begin, err));
        if (looks > 10000) /* a peer that is late may want this core */
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return TR_OK;
}
