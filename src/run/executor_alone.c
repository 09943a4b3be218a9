/* Instructions that a device with a queue leaves to the host: those that it has no kernel for,
 * those of the host, and messages that cannot be recorded. Each is a part of its own between
 * recordings (executor_queue.c). */
#include "run/executor_parts.h"

enum { ALIGN = 64 };

static const tri_device_queue *queue_of(const tri_executor *executor)
{
    return executor->store->device->def->queue;
}

/* Whether a fetch or stash has an end in a file: the host carries it. */
static bool is_of_file(const tri_executor *executor, uint32_t instr)
{
    const tri_message *message = tri_executor_message(executor, instr);
    return tri_message_carry_lane(executor->program, message) == TRI_CARRY_FILE;
}

bool tri_executor_stands_alone(const tri_executor *executor, uint32_t instr)
{
    const tri_call_plan *plan = &executor->ready[instr].plan;
    if (!plan->kernel && tri_message_carries(tri_executor_message(executor, instr)))
        return is_of_file(executor, instr);
    if (!plan->kernel)
        return !tri_executor_has_lanes(executor) || !executor->exchange->lanes->records;
    return plan->on_host;
}

/* ---- instructions that run on the host ---- */

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t tensor_bytes(const tri_tensor *tensor)
{
    return align_up(tri_dtype_size(tensor->dtype, tensor->count));
}

size_t tri_executor_host_bytes(const tri_executor *executor)
{
    size_t most = 0;
    for (size_t i = 0; i < executor->program->num_instrs; i++) {
        const tri_ready *ready = &executor->ready[i];
        size_t bytes = 0;
        if (!ready->plan.on_host || executor->program->instrs[i].where == TRI_WHERE_HOST)
            continue;
        for (int j = 0; j < ready->args.num_in; j++)
            bytes += tensor_bytes(&ready->args.in[j]);
        for (int k = 0; k < ready->args.num_out; k++)
            bytes += tensor_bytes(&ready->args.out[k]);
        bytes = align_up(bytes) + ALIGN;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static tr_status fetch(const tri_executor *executor, tri_tensor *tensor, char **room, tr_error *err)
{
    if (!tensor->count)
        return TR_OK;
    tri_device *device = executor->store->device;
    TRI_TRY(queue_of(executor)->download(device, *room, tensor->data,
                                         tri_dtype_size(tensor->dtype, tensor->count), err));
    tensor->data = *room;
    *room += tensor_bytes(tensor);
    return TR_OK;
}

static tr_status run_on_host(tri_executor *executor, uint32_t instr, tr_error *err)
{
    const tri_ready *ready = &executor->ready[instr];
    tri_device *device = executor->store->device;
    tri_kernel_args args = ready->args;
    if (executor->program->instrs[instr].where == TRI_WHERE_HOST) {
        TRI_TRY(tri_executor_finish(executor, err));
        tri_device_call(&ready->plan, &args);
        return TR_OK;
    }
    char *room = (char *)align_up((size_t)executor->host_memory);
    for (int j = 0; j < args.num_in; j++)
        TRI_TRY(fetch(executor, &args.in[j], &room, err));
    for (int k = 0; k < args.num_out; k++)
        TRI_TRY(fetch(executor, &args.out[k], &room, err));
    TRI_TRY(tri_executor_finish(executor, err));
    tri_device_call(&ready->plan, &args);
    for (int k = 0; k < args.num_out; k++)
        TRI_TRY(queue_of(executor)->upload(device, ready->args.out[k].data, args.out[k].data,
                                           tri_dtype_size(args.out[k].dtype, args.out[k].count),
                                           err));
    return queue_of(executor)->finish(device, err);
}

/* ---- messages ---- */

/* From or to a file, once the device has done what came before; or on a lane, waited for. */
static tr_status carry_alone(tri_executor *executor, uint32_t c, uint32_t instr, tr_error *err)
{
    if (is_of_file(executor, instr)) {
        TRI_TRY(tri_executor_finish(executor, err));
        return tri_executor_carry(executor, c, instr, err);
    }
    TRI_TRY(tri_executor_carry_send(executor, c, instr, err));
    return tri_executor_lane_meet_all(executor, err);
}

tr_status tri_executor_run_alone(tri_executor *executor, uint32_t c, uint32_t instr, tr_error *err)
{
    const tri_call *call = &executor->program->calls[c];
    tri_executor_point(executor, call, instr);
    tri_executor_publish(executor, instr);
    if (executor->ready[instr].plan.kernel)
        return run_on_host(executor, instr, err);
    if (tri_message_carries(tri_executor_message(executor, instr)))
        return carry_alone(executor, c, instr, err);
    if (!tri_executor_has_lanes(executor))
        return tri_executor_stage(executor, call, instr, err);
    TRI_TRY(tri_executor_lane_send(executor, c, instr, err));
    return tri_executor_lane_meet_all(executor, err);
}
