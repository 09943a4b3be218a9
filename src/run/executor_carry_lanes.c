/* Fetch and stash between the host and a device that copies by itself: on two lanes beside the
 * queue, recorded with it.
 *
 * As with messages to other ranks (executor_lanes.c), a copy leaves the queue where it stands and
 * runs beside what follows, until something touches its memory. Each lane runs in order, and the
 * two lanes do not wait for each other, unless for memory. Copies from and to a file are the
 * host's: they are no part of a recording. */
#include <stdlib.h>

#include "run/executor_parts.h"

enum {
    FIRST_LANE = TRI_MESSAGE_LANES,
    FORK = TRI_MESSAGE_POINTS,
    FIRST_POINT,
    NUM_POINTS = TRI_DEVICE_NUM_POINTS - FIRST_POINT
};

typedef struct bytes_range {
    const char *begin, *end;
} bytes_range;

typedef struct carried {
    bytes_range from, to;
    tri_carry_lane lane;
    int point;
} carried;

struct tri_carry_use {
    carried pending[NUM_POINTS]; /* oldest first */
    int num_pending;
    int next; /* point, from 0 to NUM_POINTS - 1 */
};

static const tri_device_lanes *lanes_of(const tri_executor *executor)
{
    const tri_device_queue *queue = executor->store->device->def->queue;
    return queue ? queue->lanes : NULL;
}

static int device_lane(tri_carry_lane lane)
{
    return FIRST_LANE + (lane == TRI_CARRY_OUT);
}

tr_status tri_executor_carry_begin(tri_executor *executor, tr_error *err)
{
    const tri_program *program = executor->program;
    bool any = false;
    for (size_t m = 0; m < program->num_messages; m++)
        any |= tri_message_carries(&program->messages[m]);
    if (!any || executor->carries)
        return TR_OK;
    if (!lanes_of(executor) || !lanes_of(executor)->copy)
        return tri_fail(err, TR_ERROR_INTERNAL, "this device has no lanes for fetch and stash");
    executor->carries = calloc(1, sizeof *executor->carries);
    if (!executor->carries)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the lanes of the program");
    for (int lane = TRI_CARRY_IN; lane <= TRI_CARRY_OUT; lane++) {
        void *handle;
        TRI_TRY(lanes_of(executor)->open(executor->store->device, device_lane((tri_carry_lane)lane),
                                         &handle, err));
    }
    return TR_OK;
}

static bool touch(const bytes_range *a, const bytes_range *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* Takes from the list what a lane has done when it has done number `last` of it. */
static void forget(tri_carry_use *use, int last)
{
    tri_carry_lane lane = use->pending[last].lane;
    int kept = 0;
    for (int i = 0; i < use->num_pending; i++)
        if (i > last || use->pending[i].lane != lane)
            use->pending[kept++] = use->pending[i];
    use->num_pending = kept;
}

/* The queue waits for number `which`, and with that for all before it on its lane. */
static tr_status meet(tri_executor *executor, int which, tr_error *err)
{
    tri_carry_use *use = executor->carries;
    TRI_TRY(lanes_of(executor)->await(executor->store->device, TRI_DEVICE_QUEUE,
                                      use->pending[which].point, err));
    forget(use, which);
    return TR_OK;
}

/* Whether a copy must wait for one that is under way on the other lane. */
static bool in_the_way(const carried *other, const carried *sent)
{
    return touch(&other->to, &sent->to) || touch(&other->to, &sent->from) ||
           touch(&other->from, &sent->to);
}

tr_status tri_executor_carry_send(tri_executor *executor, uint32_t call, uint32_t i, tr_error *err)
{
    const tri_message *message = tri_executor_message(executor, i);
    const tri_call *at = &executor->program->calls[call];
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    tri_carry_use *use = executor->carries;
    const char *from = tri_executor_extent(executor, at, &message->send);
    char *to = tri_executor_extent(executor, at, &message->recv);
    carried sent = {.from = {from, from + message->send.bytes},
                    .to = {to, to + message->recv.bytes},
                    .lane = tri_message_carry_lane(executor->program, message),
                    .point = FIRST_POINT + use->next};
    int lane = device_lane(sent.lane);
    for (int p = use->num_pending - 1; p >= 0; p--) /* whose point is used again */
        if (use->pending[p].point == sent.point) {
            TRI_TRY(meet(executor, p, err));
            break;
        }
    TRI_TRY(tri_executor_message_meet(executor, i, 1, err));
    TRI_TRY(lanes->set(device, TRI_DEVICE_QUEUE, FORK, err));
    TRI_TRY(lanes->await(device, lane, FORK, err));
    for (int p = 0; p < use->num_pending; p++)
        if (use->pending[p].lane != sent.lane && in_the_way(&use->pending[p], &sent))
            TRI_TRY(lanes->await(device, lane, use->pending[p].point, err));
    if (message->send.bytes > 0)
        TRI_TRY(lanes->copy(device, lane, to, from, message->send.bytes, err));
    TRI_TRY(lanes->set(device, lane, sent.point, err));
    use->next = (use->next + 1) % NUM_POINTS;
    use->pending[use->num_pending++] = sent;
    return TR_OK;
}

static bool operand_touches(const tri_tensor *tensor, const carried *sent)
{
    if (!tensor->data || tensor->count <= 0)
        return false;
    const char *data = tensor->data;
    bytes_range own = {data, data + (size_t)tensor->count * tri_dtype_bytes(tensor->dtype)};
    return touch(&own, &sent->from) || touch(&own, &sent->to);
}

static bool touches(const tri_executor *executor, uint32_t i, const carried *sent)
{
    const tri_kernel_args *args = &executor->ready[i].args;
    size_t bytes;
    const char *scratch = tri_executor_scratch(executor, i, &bytes);
    bytes_range lent = {scratch, scratch + (scratch ? bytes : 0)};
    bool any = scratch && (touch(&lent, &sent->from) || touch(&lent, &sent->to));
    for (int j = 0; j < args->num_in && !any; j++)
        any = operand_touches(&args->in[j], sent);
    for (int k = 0; k < args->num_out && !any; k++)
        any = operand_touches(&args->out[k], sent);
    return any;
}

tr_status tri_executor_carry_meet(tri_executor *executor, uint32_t first, uint32_t count,
                                  tr_error *err)
{
    tri_carry_use *use = executor->carries;
    for (int last = use ? use->num_pending - 1 : -1; last >= 0; last--) {
        bool any = false;
        for (uint32_t i = 0; i < count && !any; i++)
            any = touches(executor, first + i, &use->pending[last]);
        if (any) {
            TRI_TRY(meet(executor, last, err));
            last = use->num_pending; /* the list is another one now */
        }
    }
    return TR_OK;
}

tr_status tri_executor_carry_meet_all(tri_executor *executor, tr_error *err)
{
    tri_carry_use *use = executor->carries;
    while (use && use->num_pending > 0)
        TRI_TRY(meet(executor, use->num_pending - 1, err));
    return TR_OK;
}
