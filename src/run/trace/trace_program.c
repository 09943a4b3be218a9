#include "run/trace/trace_program.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "program/messages.h"

/* ---- labels ---- */

static tri_trace_label label_of(const tri_program *program, uint32_t i)
{
    const tri_instr *instr = &program->instrs[i];
    tri_trace_label label = {.name = program->values[tri_instr_value(instr)].name,
                             .category = tri_op_get(instr->op)->name,
                             .instruction = (int64_t)i + 1,
                             .flops = instr->cost.flops,
                             .bytes = instr->cost.bytes};
    label.float8 = tri_instr_float8(program, instr);
    if (instr->message == TRI_NONE)
        return label;
    const tri_message *message = &program->messages[instr->message];
    label.flops = 0;
    label.bytes = (double)tri_message_bytes(message);
    label.group = tri_message_carries(message) ? "memory" : program->groups[message->group].name;
    if (tri_message_pairwise(message)) {
        const tri_rank_group *group = &program->groups[message->group];
        label.peer = tri_rank_group_member(group, message->peer) + 1;
        label.flow = message->kind == TRI_MESSAGE_SEND ? TRI_FLOW_SENDS : TRI_FLOW_RECEIVES;
    }
    return label;
}

static void make_labels(tri_program_trace *trace)
{
    const tri_program *program = trace->program;
    for (uint32_t i = 0; i < program->num_instrs; i++)
        trace->instrs[i] = label_of(program, i);
    for (size_t s = 0; s < program->num_segments; s++)
        trace->segments[s] = (tri_trace_label){.name = tri_action_name(program->segments[s].action),
                                               .category = "action",
                                               .chunk = program->segments[s].chunk + 1};
    trace->step_label = (tri_trace_label){.name = "step", .category = "step"};
}

static void name_lanes(tri_program_trace *trace)
{
    const tri_program *program = trace->program;
    tri_trace_name_lane(trace->events, TRI_TRACE_COMPUTE, "compute");
    tri_trace_name_lane(trace->events, TRI_TRACE_STEPS, "steps");
    if (program->num_chunks > 1)
        tri_trace_name_lane(trace->events, TRI_TRACE_ACTIONS, "actions");
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_message *message =
            &program->messages[program->instrs[program->flights[f].instr].message];
        char row[sizeof "over " + TRI_GROUP_NAME];
        tri_message_lane_text(program, message, row, sizeof row);
        tri_trace_name_lane(trace->events, 1 + (int)message->lane, row);
    }
}

/* ---- a trace ---- */

int64_t tri_program_trace_events(const tri_program *program)
{
    size_t num = program->num_calls + 1; /* actions as a whole, and the step */
    for (size_t c = 0; c < program->num_calls; c++)
        num += program->segments[program->calls[c].segment].count;
    return (int64_t)(num + 2 * program->num_flights); /* on their way, and waited for */
}

tr_status tri_program_trace_create(const tri_program *program, int64_t num_steps,
                                   tri_program_trace **out, tr_error *err)
{
    tri_program_trace *trace = *out = calloc(1, sizeof *trace);
    if (!trace)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a trace");
    trace->program = program;
    trace->instrs = calloc(program->num_instrs + 1, sizeof *trace->instrs);
    trace->segments = calloc(program->num_segments + 1, sizeof *trace->segments);
    tr_status status =
        trace->instrs && trace->segments && tri_message_numbers_init(&trace->numbers, program)
            ? tri_trace_create(tri_program_trace_events(program) * num_steps, &trace->events, err)
            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a trace");
    if (status != TR_OK) {
        tri_program_trace_destroy(trace);
        *out = NULL;
        return status;
    }
    make_labels(trace);
    name_lanes(trace);
    return TR_OK;
}

void tri_program_trace_destroy(tri_program_trace *trace)
{
    if (!trace)
        return;
    tri_trace_destroy(trace->events);
    free(trace->instrs);
    free(trace->segments);
    tri_message_numbers_fini(&trace->numbers);
    free(trace);
}

void tri_program_trace_begin(tri_program_trace *trace, int64_t step)
{
    trace->step = step;
    trace->step_began_ns = (int64_t)tri_now_ns();
}

void tri_program_trace_end(tri_program_trace *trace)
{
    tri_trace_about *about = tri_trace_about_of(trace->events);
    tri_trace_event event = {.label = &trace->step_label,
                             .step = trace->step,
                             .lane = TRI_TRACE_STEPS,
                             .start_ns = trace->step_began_ns,
                             .duration_ns = (int64_t)tri_now_ns() - trace->step_began_ns};
    tri_trace_add(trace->events, &event);
    if (about->num_steps++ == 0)
        about->first_step = trace->step;
}

/* Of this step; a double holds it, and it is not 0 where there is a message. */
static uint64_t message_number(const tri_program_trace *trace, const tri_call *call, uint32_t instr)
{
    size_t c = (size_t)(call - trace->program->calls);
    uint64_t number = tri_message_number(&trace->numbers, c, instr);
    return number ? (tri_message_mix(number, (uint64_t)trace->step) >> 12) | 1 : 0;
}

void tri_program_trace_instr(const tri_program_trace *trace, const tri_call *call, uint32_t i,
                             int64_t start_ns, int64_t end_ns)
{
    tri_trace_event event = {.label = &trace->instrs[i],
                             .step = trace->step,
                             .microbatch = (int32_t)call->microbatch + 1,
                             .message = message_number(trace, call, i),
                             .start_ns = start_ns,
                             .duration_ns = end_ns - start_ns};
    tri_trace_add(trace->events, &event);
}

void tri_program_trace_flight(const tri_program_trace *trace, const tri_flight *flight,
                              int64_t begin_ns, int64_t end_ns, int64_t waits_ns,
                              int64_t goes_on_ns)
{
    const tri_program *program = trace->program;
    const tri_call *call = &program->calls[flight->call];
    const tri_message *message = &program->messages[program->instrs[flight->instr].message];
    tri_trace_event event = {.label = &trace->instrs[flight->instr],
                             .step = trace->step,
                             .microbatch = (int32_t)call->microbatch + 1,
                             .awaited = flight->wait_instr + 1,
                             .lane = (int16_t)(1 + message->lane),
                             .message = message_number(trace, call, flight->instr),
                             .start_ns = begin_ns,
                             .duration_ns = end_ns - begin_ns};
    tri_trace_add(trace->events, &event);
    event.waits = true;
    event.lane = TRI_TRACE_COMPUTE;
    event.start_ns = waits_ns;
    event.duration_ns = goes_on_ns - waits_ns;
    tri_trace_add(trace->events, &event);
}

void tri_program_trace_action(const tri_program_trace *trace, const tri_call *call,
                              int64_t start_ns, int64_t end_ns)
{
    const tri_segment *segment = &trace->program->segments[call->segment];
    if (!tri_action_computes(segment->action) || trace->program->num_chunks == 1)
        return;
    tri_trace_event event = {.label = &trace->segments[call->segment],
                             .step = trace->step,
                             .microbatch = (int32_t)call->microbatch + 1,
                             .lane = TRI_TRACE_ACTIONS,
                             .start_ns = start_ns,
                             .duration_ns = end_ns - start_ns};
    tri_trace_add(trace->events, &event);
}
