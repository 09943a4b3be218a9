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

size_t tri_executor_most_parts(const tri_program *program, bool sent)
{
    size_t most = 0;
    for (size_t m = 0; m < program->num_messages; m++) {
        const tri_message *message = &program->messages[m];
        tri_division_kind kind = sent ? message->send_parts.kind : message->recv_parts.kind;
        if (kind == TRI_DIVISION_NONE || kind == TRI_DIVISION_EVEN)
            continue;
        size_t size = program->groups[message->group].size;
        most = size > most ? size : most;
    }
    return most;
}

size_t tri_executor_varying_parts(const tri_program *program)
{
    size_t most = 0;
    for (size_t m = 0; m < program->num_messages; m++) {
        if (!tri_message_varies(&program->messages[m])) /* fetch and stash have no group at all */
            continue;
        size_t size = program->groups[program->messages[m].group].size;
        most = size > most ? size : most;
    }
    return most;
}

/* Elements of each member's block; NULL where all are equal, or there are no blocks. */
static const uint64_t *counts_of(const tri_program *program, const tri_message *message,
                                 const tri_division *parts, uint64_t *counts)
{
    if (parts->kind == TRI_DIVISION_NONE || parts->kind == TRI_DIVISION_EVEN ||
        parts->kind == TRI_DIVISION_ROOM)
        return NULL;
    tri_message_counts(program, message, parts, counts);
    return counts;
}

tri_exchange_call tri_executor_exchange(const tri_executor *executor, const tri_message *message,
                                        const void *send, void *recv)
{
    const tri_program *program = executor->program;
    bool even = message->send_parts.kind == TRI_DIVISION_EVEN || tri_message_varies(message);
    const tri_division *blocks = even ? &message->send_parts : &message->recv_parts;
    even |= blocks->kind == TRI_DIVISION_EVEN;
    return (tri_exchange_call){
        .kind = message->kind,
        .how = (tri_partial_how)message->how,
        .group = &program->groups[message->group],
        .peer = message->peer,
        .send = send,
        .recv = recv,
        .dtype = message->dtype,
        .count = even ? blocks->scale : message->elements,
        .send_counts = counts_of(program, message, &message->send_parts, executor->send_counts),
        .recv_counts = counts_of(program, message, &message->recv_parts, executor->recv_counts),
        .label = program->values[message->value].name};
}

tr_status tri_executor_count_rows(const tri_executor *executor, const tri_message *message,
                                  const int32_t *sent, const int32_t *got, tri_exchange_call *call,
                                  tr_error *err)
{
    const tri_division *parts = &message->send_parts;
    uint32_t size = call->group->size;
    for (uint32_t i = 0; i < size; i++) {
        executor->send_counts[i] = (uint64_t)(int64_t)sent[i] * parts->row;
        executor->recv_counts[i] = (uint64_t)(int64_t)got[i] * parts->row;
        if (executor->send_counts[i] > parts->scale || executor->recv_counts[i] > parts->scale)
            return tri_executor_failed(
                executor, message->first,
                tri_fail(err, TR_ERROR_INTERNAL,
                         "%d rows go to place %u of %s and %d come from it, but there is room for "
                         "%llu",
                         sent[i], i, call->group->name, got[i],
                         (unsigned long long)(parts->scale / parts->row)),
                err);
    }
    call->send_counts = executor->send_counts;
    call->recv_counts = executor->recv_counts;
    call->room = parts->scale;
    return TR_OK;
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
                                   const tri_exchange_call *call, tr_error *err)
{
    if (executor->status)
        atomic_store_explicit(&executor->status->bytes, tri_message_moved(message),
                              memory_order_relaxed);
    tr_status status = executor->exchange->run(executor->exchange->context, call, err);
    if (executor->status)
        atomic_store_explicit(&executor->status->bytes, 0, memory_order_relaxed);
    return status == TR_OK ? TR_OK : tri_executor_failed(executor, message->first, status, err);
}
