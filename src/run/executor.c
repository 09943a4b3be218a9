#include "run/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "program/messages.h"
#include "run/executor_parts.h"

static void fill_tensor(const tri_grid *grid, const tri_value *value, tri_tensor *tensor)
{
    *tensor = (tri_tensor){.dtype = value->dtype, .rank = value->shape.rank, .count = 1};
    for (int i = 0; i < value->shape.rank; i++) {
        tensor->size[i] = tensor->global[i] = value->shape.dim[i].size;
        tensor->count *= tensor->size[i];
    }
    for (int i = 0; i < value->shape.rank && value->whole.rank == value->shape.rank; i++) {
        tensor->global[i] = value->whole.dim[i].size;
        tri_placement_piece(grid, &value->at.dim[i], value->whole.dim[i], NULL, &tensor->origin[i]);
    }
}

/* Of a whole tensor that an instruction works on a slice of: elements before the slice, and only
 * that many in it. False for operands that are not sliced. */
static bool slice_of(const tri_program *program, const tri_instr *instr, tri_id id, int64_t *first,
                     int64_t *count)
{
    const tri_flat *flat = &instr->attr.flat;
    const tri_value *value = &program->values[id];
    if (flat->parts == 0 || tri_op_get(instr->op)->communicates ||
        (value->state == TRI_NONE && value->bucket == 0) ||
        tri_shape_count(&value->shape) != flat->count)
        return false;
    *count = tri_flat_slice(flat, flat->part, first);
    return true;
}

static void fill_operand(const tri_program *program, const tri_instr *instr, tri_id id,
                         tri_tensor *tensor)
{
    int64_t first, count;
    fill_tensor(&program->grid, &program->values[id], tensor);
    if (!slice_of(program, instr, id, &first, &count))
        return;
    *tensor = (tri_tensor){.dtype = tensor->dtype, .rank = 1, .count = count};
    tensor->size[0] = tensor->global[0] = count;
}

void tri_instr_args(const tri_program *program, const tri_instr *instr, tri_kernel_args *args)
{
    memset(args, 0, sizeof *args);
    args->attr = &instr->attr;
    args->num_in = instr->num_in;
    args->num_out = instr->num_out;
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE)
            fill_operand(program, instr, instr->in[j].value, &args->in[j]);
    for (int k = 0; k < instr->num_out; k++)
        fill_operand(program, instr, instr->out[k].value, &args->out[k]);
}

uint64_t tri_executor_table_bytes(const tri_program *program)
{
    size_t counts = tri_executor_most_parts(program, true) +
                    tri_executor_most_parts(program, false) + tri_executor_varying_parts(program);
    return (program->num_instrs + 1) * sizeof(tri_ready) +
           (program->num_spaces + counts + 3) * sizeof(uint64_t) +
           (program->num_flights + 1) * sizeof(void *);
}

/* Beside a device with a queue, what runs on the host does so on the CPU's own kernels. */
static tr_status plan_call(tri_store *store, const tri_instr *instr, tri_ready *ready,
                           tr_error *err)
{
    ready->plan = tri_device_plan_call(store->device, instr->op, &ready->args);
    bool on_cpu = ready->plan.on_host || instr->where == TRI_WHERE_HOST;
    if (!on_cpu || !store->cpu.def)
        return TR_OK;
    ready->args.device = store->cpu.state;
    ready->plan = tri_device_plan_call(&store->cpu, instr->op, &ready->args);
    size_t scratch = tri_device_call_scratch(&store->cpu, &ready->plan, &ready->args);
    ready->plan.on_host = true;
    return store->cpu.def->reserve_scratch(&store->cpu, scratch, err);
}

tr_status tri_executor_init(tri_executor *executor, const tri_program *program, tri_store *store,
                            uint64_t seed, tr_error *err)
{
    *executor = (tri_executor){.program = program, .store = store, .seed = seed};
    executor->ready = calloc(program->num_instrs + 1, sizeof *executor->ready);
    executor->base = calloc(program->num_spaces + 1, sizeof *executor->base);
    executor->requests = calloc(program->num_flights + 1, sizeof *executor->requests);
    executor->send_counts =
        calloc(tri_executor_most_parts(program, true) + 1, sizeof *executor->send_counts);
    executor->recv_counts =
        calloc(tri_executor_most_parts(program, false) + 1, sizeof *executor->recv_counts);
    executor->rows = calloc(2 * tri_executor_varying_parts(program) + 1, sizeof *executor->rows);
    if (!executor->ready || !executor->base || !executor->requests || !executor->send_counts ||
        !executor->recv_counts || !executor->rows)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to make the program ready");
    for (size_t s = 0; s < program->num_spaces; s++)
        executor->base[s] = tri_space_base(program, s);
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_ready *ready = &executor->ready[i];
        const tri_instr *instr = &program->instrs[i];
        tri_instr_args(program, instr, &ready->args);
        ready->args.device = store->device->state;
        ready->args.seed = seed;
        if (!tri_op_get(instr->op)->communicates)
            TRI_TRY(plan_call(store, instr, ready, err));
        snprintf(ready->doing, sizeof ready->doing, "%s -> %s", tri_op_get(instr->op)->name,
                 program->values[tri_instr_value(instr)].name);
    }
    size_t host_bytes = tri_executor_host_bytes(executor);
    if (host_bytes)
        executor->host_memory = malloc(host_bytes);
    if (host_bytes && !executor->host_memory)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "no memory for %zu bytes of operands of instructions that run on the host",
                        host_bytes);
    return TR_OK;
}

void tri_executor_fini(tri_executor *executor)
{
    if (executor->parts)
        tri_executor_forget_parts(executor);
    tri_executor_twice_fini(executor);
    free(executor->parts);
    free(executor->lanes);
    free(executor->carries);
    free(executor->host_memory);
    free(executor->requests);
    free(executor->send_counts);
    free(executor->recv_counts);
    free(executor->rows);
    free(executor->ready);
    free(executor->base);
    *executor = (tri_executor){0};
}

void tri_executor_record_time(const tri_executor *executor, const tri_call *call, uint32_t i,
                              int64_t start, int64_t end)
{
    if (executor->time_by_op)
        executor->time_by_op[executor->program->instrs[i].op] += (double)(end - start) * 1e-9;
    if (executor->time_by_instr)
        executor->time_by_instr[call->first ? i : executor->program->num_instrs + i] +=
            (double)(end - start) * 1e-9;
    if (executor->trace)
        tri_program_trace_instr(executor->trace, call, i, start, end);
}

/* `first` decides whether START overwrites; ADD never does. All accumulating outputs of one
 * instruction agree, which the fold pass keeps true by construction. */
static bool overwrites(const tri_instr *instr, const tri_call *call)
{
    for (int k = 0; k < instr->num_out; k++) {
        if (instr->write[k] == TRI_WRITE_ADD)
            return false;
        if (instr->write[k] == TRI_WRITE_START)
            return call->first;
    }
    return true;
}

static tr_status run_message(tri_executor *executor, uint32_t c, uint32_t i, tr_error *err)
{
    const tri_call *call = &executor->program->calls[c];
    const tri_message *message = tri_executor_message(executor, i);
    if (tri_message_carries(message))
        return tri_executor_carry(executor, c, i, err);
    const void *send = tri_executor_extent(executor, call, &message->send);
    void *recv = tri_executor_extent(executor, call, &message->recv);
    tri_exchange_call exchange = tri_executor_exchange(executor, message, send, recv);
    if (tri_message_varies(message))
        TRI_TRY(tri_executor_count_rows(
            executor, message, tri_executor_extent(executor, call, &message->counts[0]),
            tri_executor_extent(executor, call, &message->counts[1]), &exchange, err));
    if (!tri_executor_flies(executor, c, i))
        return tri_executor_communicate(executor, message, &exchange, err);
    return tri_executor_start(executor, i, &exchange, err);
}

void tri_executor_publish(const tri_executor *executor, uint32_t instr)
{
    tri_rank_status *status = executor->status;
    if (!status)
        return;
    const tri_ready *ready = &executor->ready[instr];
    memcpy(status->doing, ready->doing, sizeof ready->doing);
    atomic_store_explicit(&status->instruction, instr, memory_order_relaxed);
    atomic_fetch_add_explicit(&status->counter, 1, memory_order_relaxed);
}

static void *address_of(const tri_executor *executor, const tri_call *call, const tri_instr *instr,
                        const tri_operand *operand)
{
    const tri_program *program = executor->program;
    int64_t first = 0, count;
    if (slice_of(program, instr, operand->value, &first, &count))
        first *= (int64_t)tri_dtype_bytes(program->values[operand->value].dtype);
    unsigned char *begin = tri_executor_space(executor, call, operand->space);
    return begin ? begin + operand->offset + first : NULL; /* none in a file */
}

void tri_executor_point(tri_executor *executor, const tri_call *call, uint32_t i)
{
    const tri_instr *instr = &executor->program->instrs[i];
    tri_kernel_args *args = &executor->ready[i].args;
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE)
            args->in[j].data = address_of(executor, call, instr, &instr->in[j]);
    for (int k = 0; k < instr->num_out; k++)
        args->out[k].data = address_of(executor, call, instr, &instr->out[k]);
    args->overwrite = overwrites(instr, call);
}

uint32_t tri_executor_run_length(const tri_executor *executor, uint32_t first, uint32_t end,
                                 uint32_t limit)
{
    const tri_kernel *kernel = executor->ready[first].plan.kernel;
    uint32_t count = 1;
    const tri_instr *instrs = executor->program->instrs;
    if (!kernel || !kernel->run_many || executor->ready[first].plan.on_host ||
        instrs[first].scratch_bytes)
        return 1;
    while (count < limit && first + count < end && !instrs[first + count].scratch_bytes &&
           executor->ready[first + count].plan.kernel == kernel)
        count++;
    return count;
}

void *tri_executor_scratch(const tri_executor *executor, uint32_t i, size_t *bytes)
{
    const tri_instr *instr = &executor->program->instrs[i];
    *bytes = 0;
    if (instr->scratch_bytes <= TRI_SCRATCH_ALIGN)
        return NULL;
    tri_call call = {0}; /* `work` has one instance */
    unsigned char *begin =
        tri_executor_space(executor, &call, TRI_SPACE_WORK) + instr->scratch_offset;
    *bytes = instr->scratch_bytes - TRI_SCRATCH_ALIGN;
    return begin + (TRI_SCRATCH_ALIGN - (uintptr_t)begin % TRI_SCRATCH_ALIGN) % TRI_SCRATCH_ALIGN;
}

tr_status tri_executor_copy_version(const tri_executor *executor, const tri_call *call,
                                    tr_error *err)
{
    const tri_program *program = executor->program;
    tri_device *device = executor->store->device;
    for (size_t s = 0; s < program->num_spaces && call->copy_from != TRI_NONE; s++) {
        const tri_space *space = &program->spaces[s];
        if ((space->kind != TRI_SPACE_PARAM && space->kind != TRI_SPACE_COPY) || !space->bytes)
            continue;
        unsigned char *to = tri_executor_space(executor, call, s);
        unsigned char *from =
            to + ((int64_t)call->copy_from - (int64_t)call->frame[s]) * (int64_t)space->bytes;
        if (device->def->queue)
            TRI_TRY(device->def->queue->copy(device, to, from, space->bytes, err));
        else
            memcpy(to, from, space->bytes);
    }
    return TR_OK;
}

/* The end of a call, or of a pair: its pace, where it is to keep one, and its own time. */
static void end_calls(tri_executor *executor, uint32_t c)
{
    const tri_program *program = executor->program;
    tri_action_kind kind = program->segments[program->calls[c].segment].action;
    if ((executor->pace || executor->brake > 1) && tri_action_computes(kind))
        tri_executor_end_pace(executor);
    tri_executor_own_add(executor, kind == TRI_ACTION_U ? TRI_OWN_UPDATE : TRI_OWN_COMPUTE);
}

/* Waits for the messages that an instruction needs; adds the time to *waited. */
static tr_status land(tri_executor *executor, uint32_t c, uint32_t i, bool timed, int64_t *waited,
                      tr_error *err)
{
    if (!timed)
        return tri_executor_land(executor, c, i, err);
    int64_t before = (int64_t)tri_now_ns();
    TRI_TRY(tri_executor_land(executor, c, i, err));
    *waited += (int64_t)tri_now_ns() - before;
    return TR_OK;
}

/* Receives that are started before this instruction, ahead of their place. */
static tr_status start_early(tri_executor *executor, uint32_t c, uint32_t i, tr_error *err)
{
    const tri_flight *flight;
    while ((flight = tri_executor_early(executor, c, i)) != NULL) {
        TRI_TRY(run_message(executor, flight->call, flight->instr, err));
    }
    return TR_OK;
}

/* When the calls that run as one began and ended. */
typedef struct call_times {
    bool timed;
    int64_t begin, waited, first_wait;
    int64_t end[TRI_MOST_PAIRED];
} call_times;

static tr_status run_turn(tri_executor *executor, const tri_turn *s, call_times *times,
                          tr_error *err)
{
    const tri_program *program = executor->program;
    uint32_t c = s->call;
    const tri_call *call = &program->calls[c];
    for (uint32_t i = s->first; i < s->end; i++) {
        const tri_instr *instr = &program->instrs[i];
        tri_ready *ready = &executor->ready[i];
        if (!tri_instr_leads(program, i) || !tri_call_runs(call, instr))
            continue;
        TRI_TRY(land(executor, c, i, times->timed, &times->waited, err));
        times->first_wait = times->first_wait < 0 ? times->waited : times->first_wait;
        if (program->num_early > 0) {
            TRI_TRY(start_early(executor, c, i, err));
            if (!ready->plan.kernel && tri_executor_reached(executor, c, i))
                continue;
        }
        tri_executor_point(executor, call, i);
        tri_executor_publish(executor, i);
        if (executor->sums)
            TRI_TRY(tri_executor_sum_begin(executor, c, i, err));
        int64_t start = times->timed ? (int64_t)tri_now_ns() : 0;
        bool flies = !ready->plan.kernel && tri_executor_flies(executor, c, i);
        if (ready->plan.kernel)
            tri_device_call(&ready->plan, &ready->args);
        else
            TRI_TRY(run_message(executor, c, i, err));
        if (executor->sums)
            TRI_TRY(tri_executor_sum_end(executor, c, i, err));
        if (executor->pace)
            tri_executor_pace_instr(executor, instr);
        if (times->timed && !flies) /* a flight is recorded when it has ended */
            tri_executor_record_time(executor, call, i, start, (int64_t)tri_now_ns());
    }
    times->end[call->nth] = times->timed ? (int64_t)tri_now_ns() : 0;
    return TR_OK;
}

/* The halves of a pair share its time; a backward of two calls divides it where the second one
 * begins. */
static void trace_calls(const tri_executor *executor, uint32_t c, const call_times *times)
{
    uint32_t num = tri_calls_at_once(executor->program, c);
    int64_t begin = times->begin + (times->first_wait > 0 ? times->first_wait : 0);
    int64_t end = (int64_t)tri_now_ns(), from = begin;
    for (uint32_t n = 0; n < num; n++) {
        bool whole = n == 0 || n + 1 == num;
        int64_t to = whole || times->end[n] < from ? end : times->end[n];
        tri_program_trace_action(executor->trace, &executor->program->calls[c + n], from, to);
        from = n == 0 ? begin : to;
    }
}

/* A call, or those of a pair. */
static tr_status run_calls(tri_executor *executor, uint32_t c, tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_call *call = &program->calls[c];
    call_times times = {.timed = tri_executor_is_timed(executor), .first_wait = -1};
    times.begin = times.timed ? (int64_t)tri_now_ns() : 0;
    if (call->copy_from != TRI_NONE) {
        TRI_TRY(land(executor, c, program->segments[call->segment].first, times.timed,
                     &times.waited, err));
        TRI_TRY(tri_executor_copy_version(executor, call, err));
    }
    if (executor->pace)
        tri_executor_begin_pace(executor, c);
    tri_turn s;
    for (uint32_t n = 0; tri_timeline_turn(program, c, n, &s); n++)
        TRI_TRY(run_turn(executor, &s, &times, err));
    end_calls(executor, c);
    if (executor->trace)
        trace_calls(executor, c, &times);
    return TR_OK;
}

/* From the first call the flights begin anew; later ones go on where those before them ended. */
static tr_status run_calls_of(tri_executor *executor, uint32_t first, uint32_t end, tr_error *err)
{
    tr_status status = TR_OK;
    uint32_t num_calls = (uint32_t)executor->program->num_calls;
    if (first == 0)
        executor->num_started = executor->num_landed = executor->num_reached = 0;
    tri_executor_own_begin(executor);
    for (uint32_t c = first; c < end && status == TR_OK;
         c += tri_calls_at_once(executor->program, c))
        status = run_calls(executor, c, err);
    if (status == TR_OK && end == num_calls)
        status = tri_executor_land(executor, num_calls, 0, err);
    tri_executor_own_add(executor, TRI_OWN_UPDATE);
    if (status != TR_OK)
        tri_executor_abandon(executor);
    return status;
}

tr_status tri_executor_run(tri_executor *executor, tr_error *err)
{
    if (executor->store->device->def->queue)
        return tri_executor_run_queue(executor, err);
    return run_calls_of(executor, 0, (uint32_t)executor->program->num_calls, err);
}

tr_status tri_executor_run_calls(tri_executor *executor, uint32_t first, uint32_t end, bool quiet,
                                 tri_executor_sums *sums, tr_error *err)
{
    tri_program_trace *trace = executor->trace;
    executor->trace = quiet ? NULL : trace;
    executor->one_by_one = true;
    executor->sums = sums;
    tr_status status = executor->store->device->def->queue
                           ? tri_executor_run_twice(executor, first, end, err)
                           : run_calls_of(executor, first, end, err);
    executor->trace = trace;
    executor->one_by_one = false;
    executor->sums = NULL;
    return status;
}

void tri_executor_host_ops(const tri_executor *executor, tri_text *names)
{
    bool seen[TRI_NUM_OPS] = {false};
    bool any = false;
    for (size_t i = 0; i < executor->program->num_instrs; i++) {
        tri_op op = executor->program->instrs[i].op;
        if (!executor->ready[i].plan.on_host || seen[op])
            continue;
        tri_text_add(names, "%s%s", any ? ", " : "", tri_op_get(op)->name);
        seen[op] = any = true;
    }
}
