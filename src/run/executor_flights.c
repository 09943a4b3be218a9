/* Messages beside the computation: the program says which are started and where each is waited for
 * (program/overlap.c); here that is done, step by step in the order of its lists. */
#include "base/clock.h"
#include "run/executor_parts.h"

/* Whether messages can be started and waited for later: those of other ranks where the exchange
 * can, fetch and stash where something carries them. */
static bool can_start(const tri_executor *executor)
{
    const tri_exchange *exchange = executor->exchange;
    if (executor->one_by_one)
        return false;
    return executor->program->num_groups == 0 ? executor->store->carrier != NULL
                                              : exchange && exchange->start;
}

bool tri_executor_flies(const tri_executor *executor, uint32_t call, uint32_t instr)
{
    const tri_program *program = executor->program;
    if (executor->num_started == program->num_flights || !can_start(executor))
        return false;
    const tri_flight *flight = &program->flights[executor->num_started];
    return flight->call == call && flight->instr == instr;
}

const tri_flight *tri_executor_early(const tri_executor *executor, uint32_t call, uint32_t instr)
{
    const tri_program *program = executor->program;
    if (executor->num_started == program->num_flights || !can_start(executor))
        return NULL;
    const tri_flight *flight = &program->flights[executor->num_started];
    bool here = flight->from_call == call && flight->from_instr == instr && flight->call > call;
    return here ? flight : NULL;
}

bool tri_executor_reached(tri_executor *executor, uint32_t call, uint32_t instr)
{
    const tri_program *program = executor->program;
    const tri_landing *early = &program->early[executor->num_reached];
    if (executor->num_reached == program->num_early || !can_start(executor) ||
        early->call != call || early->instr != instr)
        return false;
    executor->num_reached++;
    return true;
}

tr_status tri_executor_start(tri_executor *executor, uint32_t instr, const tri_exchange_call *call,
                             tr_error *err)
{
    const tri_exchange *exchange = executor->exchange;
    tr_status status =
        exchange->start(exchange->context, call, &executor->requests[executor->num_started], err);
    if (status != TR_OK)
        return tri_executor_failed(executor, instr, status, err);
    executor->num_started++;
    return TR_OK;
}

/* The message in the row of its lane; and what the computation waited for it, in its own. */
static void record(const tri_executor *executor, const tri_flight *flight, uint64_t begin,
                   uint64_t end, uint64_t waited_from)
{
    uint64_t now = tri_now_ns();
    if (executor->time_by_op)
        executor->time_by_op[executor->program->instrs[flight->instr].op] +=
            (double)(now - waited_from) * 1e-9;
    if (executor->trace)
        tri_program_trace_flight(executor->trace, flight, (int64_t)begin, (int64_t)end,
                                 (int64_t)waited_from, (int64_t)now);
}

static bool is_carried(const tri_executor *executor, const tri_flight *flight)
{
    return tri_message_carries(tri_executor_message(executor, flight->instr));
}

static tr_status wait_for(tri_executor *executor, const tri_flight *flight, void *request,
                          uint64_t *begin, uint64_t *end, tr_error *err)
{
    const tri_exchange *exchange = executor->exchange;
    if (!is_carried(executor, flight))
        return exchange->wait(exchange->context, request, begin, end, err);
    uint64_t from = tri_now_ns();
    tr_status status = tri_carrier_wait(executor->store->carrier, request, begin, end, err);
    executor->own.ns[TRI_OWN_COPIES] += (int64_t)(tri_now_ns() - from);
    return status;
}

static tr_status land_one(tri_executor *executor, uint32_t number, tr_error *err)
{
    const tri_flight *flight = &executor->program->flights[number];
    uint64_t begin = 0, end = 0;
    bool timed = tri_executor_is_timed(executor);
    uint64_t now = timed ? tri_now_ns() : 0;
    void *request = executor->requests[number];
    executor->requests[number] = NULL;
    tri_executor_publish(executor, flight->instr); /* what is waited for, not what waits */
    tr_status status = wait_for(executor, flight, request, &begin, &end, err);
    if (status != TR_OK)
        return tri_executor_failed(executor, flight->instr, status, err);
    if (timed)
        record(executor, flight, begin, end, now);
    return TR_OK;
}

tr_status tri_executor_land(tri_executor *executor, uint32_t call, uint32_t instr, tr_error *err)
{
    const tri_program *program = executor->program;
    while (executor->num_landed < program->num_flights) {
        const tri_landing *landing = &program->landings[executor->num_landed];
        if (landing->call != call || landing->instr != instr)
            break;
        executor->num_landed++;
        if (executor->requests[landing->flight])
            TRI_TRY(land_one(executor, landing->flight, err));
    }
    return TR_OK;
}

void tri_executor_abandon(tri_executor *executor)
{
    const tri_exchange *exchange = executor->exchange;
    bool given_up = false;
    for (size_t f = 0; f < executor->num_started; f++) {
        uint64_t begin, end;
        if (!executor->requests[f])
            continue;
        const tri_flight *flight = &executor->program->flights[f];
        bool others = !is_carried(executor, flight);
        if (others && !given_up && exchange->give_up)
            exchange->give_up(exchange->context);
        given_up |= others;
        wait_for(executor, flight, executor->requests[f], &begin, &end, NULL);
        executor->requests[f] = NULL;
    }
}
