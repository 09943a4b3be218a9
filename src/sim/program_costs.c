#include "sim/program_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

static double message_seconds(const tri_program *program, const tri_message *message,
                              const tri_device_model *model)
{
    double bytes = (double)tri_message_bytes(message);
    double rate = model->link->bytes_per_s * model->efficiency;
    if (tri_message_pairwise(message) || tri_message_carries(message))
        return bytes / rate;
    if (message->kind == TRI_MESSAGE_SHIFT)
        return (double)tri_message_moved(message) / rate;
    double ranks = program->groups[message->group].size;
    double share = ranks > 1 ? (ranks - 1.0) / ranks : 0;
    if (message->kind == TRI_MESSAGE_ALL_TO_ALL)
        share /= ranks; /* each has a part to begin with */
    return (message->kind == TRI_MESSAGE_ALL_REDUCE ? 2 : 1) * share * bytes / rate;
}

/* Products of 8-bit operands have a rate of their own. */
static double arithmetic_rate(const tri_program *program, const tri_instr *instr,
                              const tri_device_model *model)
{
    return model->device->dense[tri_instr_float8(program, instr) ? TRI_RATE_FP8 : model->rate];
}

double tri_instr_seconds(const tri_program *program, uint32_t i, const tri_device_model *model)
{
    const tri_instr *instr = &program->instrs[i];
    if (!tri_instr_leads(program, i))
        return 0;
    if (instr->message != TRI_NONE)
        return message_seconds(program, &program->messages[instr->message], model);
    double arithmetic =
        instr->cost.flops / (arithmetic_rate(program, instr, model) * model->efficiency);
    double memory = instr->cost.bytes / (model->device->memory_bytes_per_s * model->efficiency);
    return fmax(arithmetic, memory);
}

/* The share of a segment's calls that run an instruction: what runs for the first or the last
 * micro-batch only is spread over all of them, so that the step takes as long. */
typedef struct call_counts {
    double all, first, last;
} call_counts;

static call_counts count_calls(const tri_program *program, size_t segment)
{
    call_counts n = {0};
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        n.all += call->segment == segment;
        n.first += call->segment == segment && call->first;
        n.last += call->segment == segment && call->last;
    }
    return n;
}

static double share_of_calls(const call_counts *n, const tri_instr *instr)
{
    if (n->all == 0 || (!instr->first_only && !instr->last_only))
        return 1;
    return (instr->first_only ? n->first : n->last) / n->all;
}

/* Where a value of a message is awaited: when that has arrived. */
static double arrival(const tri_instr *instr, const double *there, double now)
{
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE)
            now = fmax(now, there[instr->in[j].value]);
    return now;
}

/* A pair as it runs: messages between ranks travel one after the other beside the computation, and
 * each is waited for where something reads what it brings. */
static double pair_seconds(const tri_program *program, uint32_t call, const tri_device_model *model,
                           double *there)
{
    double now = 0, lane = 0;
    tri_turn turn;
    memset(there, 0, program->num_values * sizeof *there);
    for (uint32_t n = 0; tri_timeline_turn(program, call, n, &turn); n++) {
        const call_counts calls = count_calls(program, program->calls[turn.call].segment);
        for (uint32_t i = turn.first; i < turn.end; i++) {
            const tri_instr *instr = &program->instrs[i];
            double seconds = share_of_calls(&calls, instr) * tri_instr_seconds(program, i, model);
            now = arrival(instr, there, now);
            if (instr->message == TRI_NONE) {
                now += seconds;
                continue;
            }
            lane = fmax(lane, now) + seconds;
            for (int k = 0; k < instr->num_out; k++)
                there[instr->out[k].value] = lane;
        }
    }
    return fmax(now, lane);
}

bool tri_program_pair_costs(const tri_program *const *programs, int num_ranks,
                            const tri_device_model *model, double *by_pair)
{
    size_t num_chunks = (size_t)programs[0]->num_chunks;
    memset(by_pair, 0, num_chunks * num_chunks * sizeof *by_pair);
    for (int r = 0; r < num_ranks; r++) {
        const tri_program *program = programs[r];
        double *there = calloc(program->num_values + 1, sizeof *there);
        if (!there)
            return false;
        for (uint32_t c = 0; c < program->num_calls; c += tri_calls_at_once(program, c)) {
            const tri_call *call = &program->calls[c];
            if (!call->pair)
                continue;
            size_t f = (size_t)program->segments[call->segment].chunk;
            size_t b = (size_t)program->segments[call[1].segment].chunk;
            if (by_pair[f * num_chunks + b] == 0)
                by_pair[f * num_chunks + b] = pair_seconds(program, c, model, there);
        }
        free(there);
    }
    return true;
}

void tri_program_costs(const tri_program *const *programs, int num_ranks,
                       const tri_device_model *model, double *by_chunk, double *update,
                       tri_action_costs *costs)
{
    int num_chunks = programs[0]->num_chunks;
    memset(by_chunk, 0, TRI_NUM_ACTIONS * (size_t)num_chunks * sizeof *by_chunk);
    *costs = (tri_action_costs){.by_chunk = by_chunk, .update_by_rank = update};
    for (int r = 0; r < num_ranks; r++) {
        const tri_program *program = programs[r];
        update[r] = 0;
        for (size_t s = 0; s < program->num_segments; s++) {
            const tri_segment *segment = &program->segments[s];
            const call_counts calls = count_calls(program, s);
            double seconds = 0;
            for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
                seconds += share_of_calls(&calls, &program->instrs[i]) *
                           tri_instr_seconds(program, i, model);
            if (segment->action == TRI_ACTION_U)
                update[r] += seconds;
            else if (tri_action_computes(segment->action))
                by_chunk[(int)segment->action * num_chunks + segment->chunk] = seconds;
            else
                costs->message = fmax(costs->message, seconds);
        }
    }
    for (int c = 0; c < num_chunks; c++) { /* asynchronous schedules list their updates */
        double *row = by_chunk + (int)TRI_ACTION_U * num_chunks;
        row[c] = c < num_ranks ? update[c] : 0;
    }
}
