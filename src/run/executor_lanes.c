/* Messages that a device sends by itself: enqueued on lanes beside the queue, and recorded with it.
 *
 * A message leaves the queue where it stands in the program and runs beside what follows, until
 * something touches the memory that it reads or writes. That is found by address, while the program
 * is recorded: the steps themselves decide nothing.
 *
 * Invariants:
 *   1. A message begins after all that was enqueued before it, and after the message before it, on
 *      whatever lane that was: messages run one at a time in the order of the program, which is
 *      the same on all ranks, so that two of them can never wait for each other crosswise.
 *   2. So what waits for a message waits for all earlier ones.
 *   3. The queue has waited for all messages when a recording ends, and when a run does.
 *   4. Before and after a message its lane notes where it is. The host reads that while it waits,
 *      and shows it to the other ranks; it survives recording, since it is a part of it. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "run/executor_parts.h"

enum { FORK = 0, NUM_POINTS = TRI_MESSAGE_POINTS - 1 }; /* point 0 is for leaving the queue */

typedef struct extent {
    const char *begin, *end;
} extent;

typedef struct pending {
    extent send, recv;
    int point;
} pending;

struct tri_lane_use {
    pending pending[NUM_POINTS]; /* oldest first */
    int num_pending;
    int next; /* point, from 0 to NUM_POINTS - 1 */
    void *handles[TRI_DEVICE_NUM_LANES];
    uint64_t seen;     /* the note that the status shows */
    uint64_t since_ns; /* when it was seen; 0: the device is at no message */
};

/* A note: the call and the instruction that a lane is at, and whether it has ended. 0 is none. */
static uint64_t note_of(uint32_t call, uint32_t instr, bool ended)
{
    return (uint64_t)(call + 1) << 32 | (uint64_t)instr << 1 | ended;
}

static const tri_device_lanes *lanes_of(const tri_executor *executor)
{
    const tri_device_queue *queue = executor->store->device->def->queue;
    return queue ? queue->lanes : NULL;
}

bool tri_executor_has_lanes(const tri_executor *executor)
{
    return lanes_of(executor) && executor->exchange && executor->exchange->lanes;
}

/* ---- sending ---- */

/* A device has so many lanes and no more; all that matters is that a message keeps to one. */
static int lane_of(const tri_message *message)
{
    return (int)(message->lane % TRI_MESSAGE_LANES);
}

/* The lanes of all messages: they cannot be made while the device records. */
static tr_status open_lanes(tri_executor *executor, tr_error *err)
{
    const tri_program *program = executor->program;
    if (program->num_groups == 0)
        return TR_OK;
    executor->lanes = calloc(1, sizeof *executor->lanes);
    if (!executor->lanes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the lanes of the program");
    for (size_t m = 0; m < program->num_messages; m++) {
        if (tri_message_carries(&program->messages[m]))
            continue;
        int lane = lane_of(&program->messages[m]);
        void **handle = &executor->lanes->handles[lane];
        if (!*handle)
            TRI_TRY(lanes_of(executor)->open(executor->store->device, lane, handle, err));
    }
    return TR_OK;
}

tr_status tri_executor_lane_begin(tri_executor *executor, bool *first, tr_error *err)
{
    *first = false;
    if (!tri_executor_has_lanes(executor))
        return TR_OK;
    if (!executor->lanes) {
        TRI_TRY(open_lanes(executor, err));
        *first = executor->lanes != NULL;
    }
    if (executor->lanes) /* another program may have left its notes */
        executor->lanes->seen = lanes_of(executor)->noted(executor->store->device);
    return TR_OK;
}

/* Invariant 1. */
static tr_status leave_queue(tri_executor *executor, int lane, tr_error *err)
{
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    const tri_lane_use *use = executor->lanes;
    TRI_TRY(lanes->set(device, TRI_DEVICE_QUEUE, FORK, err));
    TRI_TRY(lanes->await(device, lane, FORK, err));
    if (use->num_pending == 0)
        return TR_OK;
    return lanes->await(device, lane, use->pending[use->num_pending - 1].point, err);
}

static extent extent_of(const void *data, uint64_t bytes)
{
    return (extent){data, (const char *)data + bytes};
}

/* The queue waits for the first `count` of those that are under way: for the last of them. */
static tr_status meet(tri_executor *executor, int count, tr_error *err)
{
    tri_lane_use *use = executor->lanes;
    if (count == 0)
        return TR_OK;
    TRI_TRY(lanes_of(executor)->await(executor->store->device, TRI_DEVICE_QUEUE,
                                      use->pending[count - 1].point, err));
    use->num_pending -= count;
    for (int i = 0; i < use->num_pending; i++)
        use->pending[i] = use->pending[count + i];
    return TR_OK;
}

static tr_status send_on(tri_executor *executor, uint32_t call, uint32_t i, tr_error *err)
{
    const tri_message *message = tri_executor_message(executor, i);
    const tri_call *at = &executor->program->calls[call];
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    int lane = lane_of(message);
    const void *send = tri_executor_extent(executor, at, &message->send);
    void *recv = tri_executor_extent(executor, at, &message->recv);
    tri_exchange_call exchange = tri_executor_exchange(executor, message, send, recv);
    tri_lane_use *use = executor->lanes;
    if (use->num_pending == NUM_POINTS) /* the oldest one's point is the next */
        TRI_TRY(meet(executor, 1, err));
    TRI_TRY(leave_queue(executor, lane, err));
    TRI_TRY(lanes->note(device, lane, note_of(call, i, false), err));
    TRI_TRY(executor->exchange->lanes->enqueue(executor->exchange->context, &exchange,
                                               use->handles[lane], err));
    TRI_TRY(lanes->note(device, lane, note_of(call, i, true), err));
    pending sent = {.send = extent_of(send, message->send.bytes),
                    .recv = extent_of(recv, message->recv.bytes),
                    .point = 1 + use->next};
    TRI_TRY(lanes->set(device, lane, sent.point, err));
    use->next = (use->next + 1) % NUM_POINTS;
    use->pending[use->num_pending++] = sent;
    return executor->exchange->lanes->waits ? tri_executor_lane_meet_all(executor, err) : TR_OK;
}

static tr_status blame(const tri_executor *executor, uint32_t i, tr_status status, tr_error *err)
{
    const tri_instr *instr = &executor->program->instrs[i];
    return tri_fail_prefix(err, status, "instruction %u (%s of %s)", i, tri_op_get(instr->op)->name,
                           executor->program->values[tri_instr_value(instr)].name);
}

tr_status tri_executor_lane_send(tri_executor *executor, uint32_t call, uint32_t instr,
                                 tr_error *err)
{
    TRI_TRY(tri_executor_carry_meet(executor, instr, 1, err));
    tr_status status = send_on(executor, call, instr, err);
    return status == TR_OK ? TR_OK : blame(executor, instr, status, err);
}

/* ---- meeting again ---- */

static bool touch(const extent *a, const extent *b)
{
    return a->begin < b->end && b->begin < a->end;
}

static bool operand_touches(const tri_tensor *tensor, const pending *sent)
{
    if (!tensor->data || tensor->count <= 0)
        return false;
    extent own = extent_of(tensor->data, tri_dtype_size(tensor->dtype, tensor->count));
    return touch(&own, &sent->send) || touch(&own, &sent->recv);
}

static bool touches(const tri_executor *executor, uint32_t i, const pending *sent)
{
    const tri_kernel_args *args = &executor->ready[i].args;
    size_t scratch_bytes;
    void *scratch = tri_executor_scratch(executor, i, &scratch_bytes);
    extent own = extent_of(scratch, scratch_bytes);
    if (scratch && (touch(&own, &sent->send) || touch(&own, &sent->recv)))
        return true;
    for (int j = 0; j < args->num_in; j++)
        if (operand_touches(&args->in[j], sent))
            return true;
    for (int k = 0; k < args->num_out; k++)
        if (operand_touches(&args->out[k], sent))
            return true;
    return false;
}

tr_status tri_executor_lane_meet(tri_executor *executor, uint32_t first, uint32_t count,
                                 tr_error *err)
{
    TRI_TRY(tri_executor_carry_meet(executor, first, count, err));
    return tri_executor_message_meet(executor, first, count, err);
}

tr_status tri_executor_message_meet(tri_executor *executor, uint32_t first, uint32_t count,
                                    tr_error *err)
{
    const tri_lane_use *use = executor->lanes;
    int last = use ? use->num_pending : 0;
    for (; last > 0; last--)
        for (uint32_t i = 0; i < count; i++)
            if (touches(executor, first + i, &use->pending[last - 1]))
                return meet(executor, last, err);
    return TR_OK;
}

tr_status tri_executor_lane_meet_all(tri_executor *executor, tr_error *err)
{
    TRI_TRY(tri_executor_carry_meet_all(executor, err));
    return executor->lanes ? meet(executor, executor->lanes->num_pending, err) : TR_OK;
}

/* ---- waiting ---- */

/* Shows where the device is. */
static void show(tri_executor *executor, uint64_t note)
{
    tri_lane_use *use = executor->lanes;
    tri_rank_status *status = executor->status;
    uint32_t instr = (uint32_t)note >> 1;
    bool ended = note & 1;
    use->seen = note;
    use->since_ns = ended ? 0 : tri_now_ns();
    if (!status || instr >= executor->program->num_instrs)
        return;
    uint64_t bytes = tri_message_moved(tri_executor_message(executor, instr));
    tri_executor_publish(executor, instr);
    atomic_store_explicit(&status->bytes, ended ? 0 : bytes, memory_order_relaxed);
    atomic_store_explicit(&status->waiting_since_ns, use->since_ns, memory_order_relaxed);
}

static void nap(int looks)
{
    const int brief = 300; /* then the step is long enough for a sleep not to matter */
    struct timespec pause = {.tv_nsec = 20000};
    if (looks < brief)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

/* Until the queue is idle. A failure leaves the status as it is: the report wants to know. */
static tr_status look_after(tri_executor *executor, tr_error *err)
{
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    tri_lane_use *use = executor->lanes;
    for (int looks = 0;; looks++) {
        bool idle;
        uint64_t note = lanes->noted(device);
        if (note != use->seen)
            show(executor, note);
        uint32_t instr = (uint32_t)use->seen >> 1;
        tr_status status = lanes->idle(device, &idle, err);
        if (status == TR_OK && idle)
            return TR_OK;
        double waited = use->since_ns ? (double)(tri_now_ns() - use->since_ns) * 1e-9 : 0;
        if (status == TR_OK)
            status = executor->exchange->lanes->look(executor->exchange->context, waited, err);
        if (status != TR_OK)
            return use->since_ns ? blame(executor, instr, status, err) : status;
        nap(looks);
    }
}

tr_status tri_executor_finish(tri_executor *executor, tr_error *err)
{
    const tri_device_queue *queue = executor->store->device->def->queue;
    if (!executor->lanes)
        return queue->finish(executor->store->device, err);
    TRI_TRY(look_after(executor, err));
    executor->lanes->since_ns = 0;
    if (executor->status) {
        atomic_store_explicit(&executor->status->bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&executor->status->waiting_since_ns, 0, memory_order_relaxed);
    }
    return queue->finish(executor->store->device, err);
}
