/* Fetch and stash as copies between the places of a rank's memory. */
#include "base/clock.h"
#include "run/executor_parts.h"

static tri_carry carry_of(const tri_executor *executor, const tri_call *call,
                          const tri_message *message)
{
    const tri_extent *send = &message->send, *recv = &message->recv;
    const tri_space *spaces = executor->program->spaces;
    tri_carry carry = {.kind = TRI_CARRY_COPY, .bytes = send->bytes};
    carry.from = tri_executor_extent(executor, call, send);
    carry.to = tri_executor_extent(executor, call, recv);
    if (spaces[send->space].where == TRI_WHERE_FILE) {
        carry.kind = TRI_CARRY_READ;
        carry.offset = tri_executor_file_offset(executor, call, send->space) + send->offset;
    } else if (spaces[recv->space].where == TRI_WHERE_FILE) {
        carry.kind = TRI_CARRY_WRITE;
        carry.offset = tri_executor_file_offset(executor, call, recv->space) + recv->offset;
    }
    return carry;
}

tr_status tri_executor_carry(tri_executor *executor, uint32_t c, uint32_t i, tr_error *err)
{
    const tri_program *program = executor->program;
    const tri_message *message = tri_executor_message(executor, i);
    tri_carrier *carrier = executor->store->carrier;
    if (!carrier) /* a device that computes nothing */
        return TR_OK;
    const tri_carry carry = carry_of(executor, &program->calls[c], message);
    bool flies = tri_executor_flies(executor, c, i);
    void *now = NULL, **request = flies ? &executor->requests[executor->num_started] : &now;
    uint64_t begin, end, from = tri_now_ns();
    tr_status status =
        tri_carrier_start(carrier, tri_message_carry_lane(program, message), &carry, request, err);
    if (status == TR_OK && flies)
        executor->num_started++;
    else if (status == TR_OK)
        status = tri_carrier_wait(carrier, now, &begin, &end, err);
    executor->own.ns[TRI_OWN_COPIES] += (int64_t)(tri_now_ns() - from);
    return status == TR_OK ? TR_OK : tri_executor_failed(executor, i, status, err);
}
