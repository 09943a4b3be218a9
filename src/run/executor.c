#include "run/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct tri_ready {
    void (*run)(const tri_kernel_args *args); /* NULL: communication */
    tri_kernel_args args;
    char doing[64]; /* for the rank's status */
};

static void fill_tensor(const tri_value *value, tri_tensor *tensor)
{
    *tensor = (tri_tensor){.dtype = value->dtype, .rank = value->shape.rank, .count = 1};
    for (int i = 0; i < value->shape.rank; i++) {
        tensor->size[i] = tensor->global[i] = value->shape.dim[i].size;
        tensor->count *= tensor->size[i];
    }
}

void tri_instr_args(const tri_program *program, const tri_instr *instr, tri_kernel_args *args)
{
    memset(args, 0, sizeof *args);
    args->attr = &instr->attr;
    args->num_in = instr->num_in;
    args->num_out = instr->num_out;
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE)
            fill_tensor(&program->values[instr->in[j].value], &args->in[j]);
    for (int k = 0; k < instr->num_out; k++)
        fill_tensor(&program->values[instr->out[k].value], &args->out[k]);
}

tr_status tri_executor_init(tri_executor *executor, const tri_program *program, tri_store *store,
                            uint64_t seed, tr_error *err)
{
    *executor = (tri_executor){.program = program, .store = store, .seed = seed};
    executor->ready = calloc(program->num_instrs + 1, sizeof *executor->ready);
    if (!executor->ready)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to make the program ready");
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_ready *ready = &executor->ready[i];
        const tri_instr *instr = &program->instrs[i];
        tri_instr_args(program, instr, &ready->args);
        ready->args.device = store->device->state;
        ready->args.seed = seed;
        if (!tri_op_get(instr->op)->communicates)
            ready->run = store->device->def->kernel(store->device, instr->op)->run;
        snprintf(ready->doing, sizeof ready->doing, "%s -> %s", tri_op_get(instr->op)->name,
                 program->values[instr->out[0].value].name);
    }
    return TR_OK;
}

void tri_executor_fini(tri_executor *executor)
{
    free(executor->ready);
    *executor = (tri_executor){0};
}

/* First byte of the instance of a space that a call uses. */
static unsigned char *space_memory(const tri_executor *executor, const tri_call *call, size_t s)
{
    const tri_space *space = &executor->program->spaces[s];
    uint64_t instance = space->kind == TRI_SPACE_FRAME   ? call->frame[s]
                        : space->kind == TRI_SPACE_BATCH ? call->microbatch
                                                         : 0;
    unsigned char *slab = executor->store->slabs[tri_slab_of(space->kind)].memory;
    return slab + tri_space_base(executor->program, s) + instance * space->bytes;
}

void *tri_executor_memory(const tri_executor *executor, tri_id value, uint32_t microbatch)
{
    const tri_operand *home = &executor->program->home[value];
    tri_call call = {.microbatch = microbatch};
    return space_memory(executor, &call, home->space) + home->offset;
}

static void record(const tri_executor *executor, const tri_call *call, const tri_instr *instr,
                   int64_t start, int64_t end)
{
    if (executor->time_by_op)
        executor->time_by_op[instr->op] += (double)(end - start) * 1e-9;
    if (!executor->trace)
        return;
    const tri_program *program = executor->program;
    tri_trace_event event = {
        .name = program->values[instr->out[0].value].name,
        .category = tri_op_get(instr->op)->name,
        .start_ns = start,
        .duration_ns = end - start,
        .num_args = 4,
        .arg = {{"instruction", (double)(instr - program->instrs)},
                {"microbatch", call->microbatch},
                {"gflop_per_s", instr->cost.flops / (double)(end - start + 1)},
                {"gbyte_per_s", instr->cost.bytes / (double)(end - start + 1)}},
    };
    tri_trace_add(executor->trace, &event);
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

/* One message for an instruction and those that ride with it. */
static tr_status communicate(const tri_executor *executor, const tri_instr *instr, float *data,
                             tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_operand *last = &instr[instr->span - 1].out[0];
    uint64_t bytes =
        last->offset - instr->out[0].offset + tri_value_bytes(&program->values[last->value]);
    if (executor->status)
        atomic_store_explicit(&executor->status->bytes, bytes, memory_order_relaxed);
    tr_status status = executor->exchange->all_reduce(executor->exchange->context, instr->attr.axis,
                                                      data, bytes / sizeof(float), err);
    if (executor->status)
        atomic_store_explicit(&executor->status->bytes, 0, memory_order_relaxed);
    return status == TR_OK ? TR_OK
                           : tri_fail_prefix(err, status, "instruction %td (%s of %s)",
                                             instr - program->instrs, tri_op_get(instr->op)->name,
                                             program->values[instr->out[0].value].name);
}

static void publish(const tri_executor *executor, const tri_ready *ready, uint32_t instruction)
{
    tri_rank_status *status = executor->status;
    memcpy(status->doing, ready->doing, sizeof ready->doing);
    atomic_store_explicit(&status->instruction, instruction, memory_order_relaxed);
    atomic_fetch_add_explicit(&status->counter, 1, memory_order_relaxed);
}

static void set_addresses(const tri_instr *instr, unsigned char *const *memory,
                          tri_kernel_args *args)
{
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE)
            args->in[j].data = memory[instr->in[j].space] + instr->in[j].offset;
    for (int k = 0; k < instr->num_out; k++)
        args->out[k].data = memory[instr->out[k].space] + instr->out[k].offset;
}

static tr_status run_call(tri_executor *executor, const tri_call *call, tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_segment *segment = &program->segments[call->segment];
    unsigned char *memory[TRI_MAX_SPACES];
    for (size_t s = 0; s < program->num_spaces; s++)
        memory[s] = space_memory(executor, call, s);
    bool timed = executor->trace || executor->time_by_op;
    for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
        const tri_instr *instr = &program->instrs[i];
        tri_ready *ready = &executor->ready[i];
        if (instr->span == 0)
            continue;
        set_addresses(instr, memory, &ready->args);
        ready->args.overwrite = overwrites(instr, call);
        if (executor->status)
            publish(executor, ready, i);
        int64_t start = timed ? (int64_t)tri_now_ns() : 0;
        if (ready->run)
            ready->run(&ready->args);
        else
            TRI_TRY(communicate(executor, instr, ready->args.out[0].data, err));
        if (timed)
            record(executor, call, instr, start, (int64_t)tri_now_ns());
    }
    return TR_OK;
}

tr_status tri_executor_run(tri_executor *executor, tr_error *err)
{
    for (size_t c = 0; c < executor->program->num_calls; c++)
        TRI_TRY(run_call(executor, &executor->program->calls[c], err));
    return TR_OK;
}
