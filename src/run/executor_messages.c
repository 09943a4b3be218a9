/* Messages of the program as calls of the exchange: memory, counts, what is told of them. */
#include "program/messages.h"
#include "run/executor_parts.h"

const tri_message *tri_executor_message(const tri_executor *executor, uint32_t instr)
{
    return &executor->program->messages[executor->program->instrs[instr].message];
}

void *tri_executor_extent(const tri_executor *executor, const tri_call *call,
                          const tri_extent *extent)
{
    if (extent->space == TRI_NONE)
        return NULL;
    unsigned char *begin = tri_executor_space(executor, call, extent->space);
    return begin ? begin + extent->offset : NULL;
}

/* Elements of each member's block; NULL where all are equal, or there are no blocks. */
static const uint64_t *counts_of(const tri_program *program, const tri_message *message,
                                 const tri_division *parts, uint64_t *counts)
{
    if (parts->kind == TRI_DIVISION_NONE || parts->kind == TRI_DIVISION_EVEN)
        return NULL;
    tri_message_counts(program, message, parts, counts);
    return counts;
}

tri_exchange_call tri_executor_exchange(const tri_executor *executor, const tri_message *message,
                                        const void *send, void *recv)
{
    const tri_program *program = executor->program;
    bool even = message->send_parts.kind == TRI_DIVISION_EVEN;
    const tri_division *blocks = even ? &message->send_parts : &message->recv_parts;
    return (tri_exchange_call){
        .kind = message->kind,
        .how = (tri_partial_how)message->how,
        .group = &program->groups[message->group],
        .peer = message->peer,
        .send = send,
        .recv = recv,
        .dtype = message->dtype,
        .count = blocks->kind == TRI_DIVISION_EVEN ? blocks->scale : message->elements,
        .send_counts = counts_of(program, message, &message->send_parts, executor->send_counts),
        .recv_counts = counts_of(program, message, &message->recv_parts, executor->recv_counts),
        .label = program->values[message->value].name};
}

tr_status tri_executor_failed(const tri_executor *executor, uint32_t instr, tr_status status,
                              tr_error *err)
{
    const tri_program *program = executor->program;
    return tri_fail_prefix(err, status, "instruction %u (%s of %s)", instr,
                           tri_op_get(program->instrs[instr].op)->name,
                           program->values[tri_instr_value(&program->instrs[instr])].name);
}

tr_status tri_executor_communicate(const tri_executor *executor, const tri_message *message,
                                   const void *send, void *recv, tr_error *err)
{
    tri_exchange_call call = tri_executor_exchange(executor, message, send, recv);
    if (executor->status)
        atomic_store_explicit(&executor->status->bytes, tri_message_moved(message),
                              memory_order_relaxed);
    tr_status status = executor->exchange->run(executor->exchange->context, &call, err);
    if (executor->status)
        atomic_store_explicit(&executor->status->bytes, 0, memory_order_relaxed);
    return status == TR_OK ? TR_OK : tri_executor_failed(executor, message->first, status, err);
}
