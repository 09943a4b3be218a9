/* Messages of a device with a queue that go through the host: downloaded, carried by the
 * communicator, uploaded. */
#include <string.h>

#include "program/messages.h"
#include "run/executor_parts.h"

static const tri_device_queue *queue_of(const tri_executor *executor)
{
    return executor->store->device->def->queue;
}

/* Gradients and statistics have a copy on the host, at the same place as in their slab; what else
 * travels goes through a room for the largest message. */
static char *host_copy(const tri_executor *executor, const tri_extent *extent, const char *data)
{
    const tri_store *store = executor->store;
    if (!data)
        return NULL;
    tri_space_kind space = executor->program->spaces[extent->space].kind;
    tri_slab_kind kind = tri_slab_of(space);
    const tri_slab *copy = kind == TRI_SLAB_GRAD    ? &store->host_grad
                           : tri_space_is_io(space) ? &store->host_io
                                                    : NULL;
    if (!copy)
        return NULL;
    return (char *)copy->memory + (data - (const char *)store->slabs[kind].memory);
}

/* Where the two ends of a message lie on the host. */
static void find_host_ends(const tri_executor *executor, const tri_message *message,
                           const char *from, const char *to, char **host_from, char **host_to)
{
    char *room = executor->store->host_room.memory;
    *host_from = host_copy(executor, &message->send, from);
    *host_to = host_copy(executor, &message->recv, to);
    if (tri_message_in_place(message) && !*host_from) { /* as they lie on the device */
        const char *begin = from < to ? from : to;
        *host_from = room + (from - begin);
        *host_to = room + (to - begin);
    }
    if (from && !*host_from)
        *host_from = room;
    if (to && !*host_to)
        *host_to = room + (message->send.bytes + TRI_PROGRAM_ALIGN - 1) / TRI_PROGRAM_ALIGN *
                              TRI_PROGRAM_ALIGN;
}

/* Counts that are data, while the rows are on their way. */
static tr_status download_counts(tri_executor *executor, const tri_call *call,
                                 const tri_message *message, tr_error *err)
{
    uint32_t size = executor->program->groups[message->group].size;
    for (int k = 0; k < 2 && tri_message_varies(message); k++)
        TRI_TRY(
            queue_of(executor)->download(executor->store->device, executor->rows + (size_t)k * size,
                                         tri_executor_extent(executor, call, &message->counts[k]),
                                         message->counts[k].bytes, err));
    return TR_OK;
}

/* What nobody sends is zeros where results are summed: the room has what other messages left. */
static void clear_room(const tri_message *message, const char *from, char *to)
{
    bool apart = !from || from + message->send.bytes <= to || to + message->recv.bytes <= from;
    if (to && apart)
        memset(to, 0, message->recv.bytes);
}

tr_status tri_executor_stage(tri_executor *executor, const tri_call *call, uint32_t i,
                             tr_error *err)
{
    const tri_message *message = tri_executor_message(executor, i);
    tri_device *device = executor->store->device;
    const char *from = tri_executor_extent(executor, call, &message->send);
    char *to = tri_executor_extent(executor, call, &message->recv), *host_from, *host_to;
    find_host_ends(executor, message, from, to, &host_from, &host_to);
    if (from && message->send.bytes)
        TRI_TRY(queue_of(executor)->download(device, host_from, from, message->send.bytes, err));
    TRI_TRY(download_counts(executor, call, message, err));
    TRI_TRY(queue_of(executor)->finish(device, err));
    if (executor->sums) /* what came before has left the room by now */
        clear_room(message, host_from, host_to);
    tri_exchange_call exchange = tri_executor_exchange(executor, message, host_from, host_to);
    if (tri_message_varies(message))
        TRI_TRY(tri_executor_count_rows(executor, message, executor->rows,
                                        executor->rows + exchange.group->size, &exchange, err));
    TRI_TRY(tri_executor_communicate(executor, message, &exchange, err));
    if (!to)
        return TR_OK;
    return queue_of(executor)->upload(device, to, host_to, message->recv.bytes, err);
}
