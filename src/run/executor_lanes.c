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
 *      By group (run.lanes=group) it begins after those before it on its own lane, and after those
 *      whose memory it touches. What finishes one at a time finishes so, too: a message then waits
 *      for some of what it waited for. But kernels of several messages share the device.
 *   2. So what waits for a message waits for all earlier ones, by group for those of its lane.
 *   3. The queue has waited for all messages when a recording ends, and when a run does.
 *   4. Before and after a message its lane notes where it is. The host reads that while it waits,
 *      and shows it to the other ranks; it survives recording, since it is a part of it. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "run/executor_parts.h"

enum {
    FORK = 0,
    NUM_POINTS = TRI_MESSAGE_POINTS - 1,
    ANY_LANE = -1
}; /* point 0 leaves the queue */

typedef struct extent {
    const char *begin, *end;
} extent;

typedef struct pending {
    extent send, recv;
    int point, lane;
} pending;

/* What the host has seen of a lane. */
typedef struct lane_watch {
    uint64_t seen;     /* its last note */
    uint64_t since_ns; /* when that was seen; 0: the lane is at no message */
} lane_watch;

struct tri_lane_use {
    pending pending[NUM_POINTS]; /* oldest first */
    int num_pending;
    void *handles[TRI_MESSAGE_LANES];
    lane_watch watch[TRI_MESSAGE_LANES];
    uint64_t shown;     /* the note that the status shows */
    uint64_t looked_ns; /* when the host last looked, while a lane was at a message; 0: none was */
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

static bool by_group(const tri_executor *executor)
{
    return executor->exchange->lanes->by_group;
}

/* A device has so many lanes and no more; all that matters is that a message keeps to one. */
static int lane_of(const tri_executor *executor, const tri_message *message)
{
    uint32_t number = by_group(executor) ? message->group : message->lane;
    return (int)(number % TRI_MESSAGE_LANES);
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
        int lane = lane_of(executor, &program->messages[m]);
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
    for (int i = 0; executor->lanes && i < TRI_MESSAGE_LANES; i++) /* another program's notes */
        if (executor->lanes->handles[i])
            executor->lanes->watch[i].seen = lanes_of(executor)->noted(executor->store->device, i);
    return TR_OK;
}

static extent extent_of(const void *data, uint64_t bytes)
{
    return (extent){data, (const char *)data + bytes};
}

static bool touch(const extent *a, const extent *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* Invariant 1. */
static tr_status leave_queue(tri_executor *executor, int lane, const pending *message,
                             tr_error *err)
{
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    const tri_lane_use *use = executor->lanes;
    TRI_TRY(lanes->set(device, TRI_DEVICE_QUEUE, FORK, err));
    TRI_TRY(lanes->await(device, lane, FORK, err));
    if (use->num_pending > 0 && !by_group(executor))
        return lanes->await(device, lane, use->pending[use->num_pending - 1].point, err);
    for (int i = 0; i < use->num_pending; i++) {
        const pending *other = &use->pending[i];
        bool meets = touch(&message->recv, &other->send) || touch(&message->recv, &other->recv) ||
                     touch(&message->send, &other->recv);
        if (other->lane != lane && meets)
            TRI_TRY(lanes->await(device, lane, other->point, err));
    }
    return TR_OK;
}

/* The queue waits for the first `count` of those that are under way; with a lane, for those of it.
 * The last one of a lane is enough. */
static tr_status meet(tri_executor *executor, int count, int lane, tr_error *err)
{
    tri_lane_use *use = executor->lanes;
    int kept = 0, last[TRI_MESSAGE_LANES];
    memset(last, -1, sizeof last);
    for (int i = 0; i < use->num_pending; i++) {
        pending *p = &use->pending[i];
        bool met = i < count && (lane == ANY_LANE || p->lane == lane);
        if (met)
            last[by_group(executor) ? p->lane : 0] = p->point;
        else
            use->pending[kept++] = *p;
    }
    use->num_pending = kept;
    for (int i = 0; i < TRI_MESSAGE_LANES; i++)
        if (last[i] >= 0)
            TRI_TRY(
                lanes_of(executor)->await(executor->store->device, TRI_DEVICE_QUEUE, last[i], err));
    return TR_OK;
}

/* A point that no message under way has; there is one. */
static int free_point(const tri_lane_use *use)
{
    for (int point = 1;; point++) {
        bool used = false;
        for (int i = 0; i < use->num_pending; i++)
            used |= use->pending[i].point == point;
        if (!used)
            return point;
    }
}

static tr_status send_on(tri_executor *executor, uint32_t call, uint32_t i, tr_error *err)
{
    const tri_message *message = tri_executor_message(executor, i);
    const tri_call *at = &executor->program->calls[call];
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    int lane = lane_of(executor, message);
    const void *send = tri_executor_extent(executor, at, &message->send);
    void *recv = tri_executor_extent(executor, at, &message->recv);
    tri_exchange_call exchange = tri_executor_exchange(executor, message, send, recv);
    tri_lane_use *use = executor->lanes;
    pending sent = {.send = extent_of(send, message->send.bytes),
                    .recv = extent_of(recv, message->recv.bytes),
                    .lane = lane};
    if (use->num_pending == NUM_POINTS)
        TRI_TRY(meet(executor, 1, ANY_LANE, err));
    sent.point = free_point(use);
    TRI_TRY(leave_queue(executor, lane, &sent, err));
    TRI_TRY(lanes->note(device, lane, note_of(call, i, false), err));
    TRI_TRY(executor->exchange->lanes->enqueue(executor->exchange->context, &exchange,
                                               use->handles[lane], err));
    TRI_TRY(lanes->note(device, lane, note_of(call, i, true), err));
    TRI_TRY(lanes->set(device, lane, sent.point, err));
    use->pending[use->num_pending++] = sent;
    return executor->exchange->lanes->waits ? tri_executor_lane_meet_all(executor, err) : TR_OK;
}

static tr_status blame(const tri_executor *executor, uint32_t i, tr_status status, tr_error *err)
{
    const tri_instr *instr = &executor->program->instrs[i];
    char over[64];
    tri_message_lane_text(executor->program, tri_executor_message(executor, i), over, sizeof over);
    return tri_fail_prefix(err, status, "instruction %u (%s of %s %s)", i,
                           tri_op_get(instr->op)->name,
                           executor->program->values[tri_instr_value(instr)].name, over);
}

tr_status tri_executor_lane_send(tri_executor *executor, uint32_t call, uint32_t instr,
                                 tr_error *err)
{
    TRI_TRY(tri_executor_carry_meet(executor, instr, 1, err));
    tr_status status = send_on(executor, call, instr, err);
    return status == TR_OK ? TR_OK : blame(executor, instr, status, err);
}

/* ---- meeting again ---- */

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
    for (; last > 0; last--) {
        bool touched = false;
        for (uint32_t i = 0; i < count && !touched; i++)
            touched = touches(executor, first + i, &use->pending[last - 1]);
        if (!touched)
            continue;
        if (!by_group(executor))
            return meet(executor, last, ANY_LANE, err);
        int before = use->num_pending;
        TRI_TRY(meet(executor, last, use->pending[last - 1].lane, err));
        last -= before - use->num_pending - 1; /* those that are left before it */
    }
    return TR_OK;
}

tr_status tri_executor_lane_meet_all(tri_executor *executor, tr_error *err)
{
    TRI_TRY(tri_executor_carry_meet_all(executor, err));
    return executor->lanes ? meet(executor, executor->lanes->num_pending, ANY_LANE, err) : TR_OK;
}

/* ---- waiting ---- */

/* Looks at the notes of all lanes; the number of the one that has been at its message longest, or
 * ANY_LANE: none is at any. */
static int look_at_lanes(tri_executor *executor)
{
    tri_lane_use *use = executor->lanes;
    int oldest = ANY_LANE;
    for (int i = 0; i < TRI_MESSAGE_LANES; i++) {
        lane_watch *w = &use->watch[i];
        if (!use->handles[i])
            continue;
        uint64_t note = lanes_of(executor)->noted(executor->store->device, i);
        if (note != w->seen)
            *w = (lane_watch){note, note & 1 ? 0 : tri_now_ns()};
        if (w->since_ns && (oldest == ANY_LANE || w->since_ns < use->watch[oldest].since_ns))
            oldest = i;
    }
    return oldest;
}

/* Shows where the device is: at the message that it has been at longest. */
static void show(tri_executor *executor, const lane_watch *at)
{
    tri_lane_use *use = executor->lanes;
    tri_rank_status *status = executor->status;
    uint64_t note = at ? at->seen : 0;
    uint32_t instr = (uint32_t)note >> 1;
    if (note == use->shown)
        return;
    use->shown = note;
    if (!status || instr >= executor->program->num_instrs)
        return;
    uint64_t bytes = at ? tri_message_moved(tri_executor_message(executor, instr)) : 0;
    if (at)
        tri_executor_publish(executor, instr);
    atomic_store_explicit(&status->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&status->waiting_since_ns, at ? at->since_ns : 0, memory_order_relaxed);
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

/* Time at messages is time for others: the lane that comes first is at its message until the last
 * one has come. What the device computes beside them counts with it; on the rank that the others
 * wait for that is least. */
static void count_waiting(tri_executor *executor, bool at_message)
{
    tri_lane_use *use = executor->lanes;
    uint64_t now = tri_now_ns();
    if (use->looked_ns)
        executor->own.waited_ns += (int64_t)(now - use->looked_ns);
    use->looked_ns = at_message ? now : 0;
}

/* Until the queue is idle. A failure leaves the status as it is: the report wants to know. */
static tr_status look_after(tri_executor *executor, tr_error *err)
{
    const tri_device_lanes *lanes = lanes_of(executor);
    tri_device *device = executor->store->device;
    for (int looks = 0;; looks++) {
        bool idle;
        int lane = look_at_lanes(executor);
        const lane_watch *at = lane == ANY_LANE ? NULL : &executor->lanes->watch[lane];
        show(executor, at);
        count_waiting(executor, at != NULL);
        tr_status status = lanes->idle(device, &idle, err);
        if (status == TR_OK && idle)
            return TR_OK;
        double waited = at ? (double)(tri_now_ns() - at->since_ns) * 1e-9 : 0;
        if (status == TR_OK)
            status = executor->exchange->lanes->look(executor->exchange->context, waited, err);
        if (status != TR_OK)
            return at ? blame(executor, (uint32_t)at->seen >> 1, status, err) : status;
        nap(looks);
    }
}

tr_status tri_executor_finish(tri_executor *executor, tr_error *err)
{
    const tri_device_queue *queue = executor->store->device->def->queue;
    if (!executor->lanes)
        return queue->finish(executor->store->device, err);
    TRI_TRY(look_after(executor, err));
    for (int i = 0; i < TRI_MESSAGE_LANES; i++)
        executor->lanes->watch[i].since_ns = 0;
    executor->lanes->shown = 0;
    executor->lanes->looked_ns = 0;
    if (executor->status) {
        atomic_store_explicit(&executor->status->bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&executor->status->waiting_since_ns, 0, memory_order_relaxed);
    }
    return queue->finish(executor->store->device, err);
}
