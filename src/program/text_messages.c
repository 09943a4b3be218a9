/* Messages as text: who takes part, how much travels, until when. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "program/text_parts.h"

void tri_text_address(const tri_program *program, uint32_t number, uint64_t offset, char *out,
                      size_t size)
{
    const char *space = program->spaces[number].name;
    if (strncmp(space, "frame ", 6) == 0)
        space += 6;
    snprintf(out, size, "%s+%" PRIx64, space, offset);
}

/* Until when a message is under way; of several calls, in the first. */
static void print_flight(const tri_program *program, const tri_flight *flight, tri_text *text)
{
    char segment[24];
    if (flight->wait_call == program->num_calls) {
        tri_text_add(text, ", under way until the end");
        return;
    }
    const tri_call *call = &program->calls[flight->wait_call];
    tri_text_add(text, ", under way until %u", flight->wait_instr);
    if (call->microbatch != program->calls[flight->call].microbatch)
        tri_text_add(text, " of call %u, %s of micro-batch %u", flight->wait_call,
                     tri_segment_text(program, &program->segments[call->segment], segment),
                     call->microbatch);
}

static void print_end(const tri_program *program, const tri_message *m, tri_text *text)
{
    if (m->flight)
        print_flight(program, &program->flights[m->flight - 1], text);
    tri_text_add(text, ")");
}

/* What others call an operator that has a name of its own here. */
static void add_field_word(const tri_message *m, const tri_instr *instr, tri_text *text)
{
    switch (instr->op) {
    case TRI_OP_SHARD_SUM:
        tri_text_add(text, "reduce-scatter ");
        break;
    case TRI_OP_SHARD_GATHER:
    case TRI_OP_UNSHARD:
        tri_text_add(text, "all-gather ");
        break;
    case TRI_OP_SHIFT:
        tri_text_add(text, "%u on, ", m->peer);
        break;
    default:
        break;
    }
}

void tri_text_message(const tri_program *program, size_t i, tri_text *text)
{
    if (program->instrs[i].message == TRI_NONE || !tri_instr_leads(program, (uint32_t)i))
        return;
    char bytes[16], ranks[64];
    const tri_message *m = &program->messages[program->instrs[i].message];
    tri_text_bytes((double)tri_message_bytes(m), bytes);
    if (tri_message_carries(m)) {
        tri_text_add(text, "  (from the %s to the %s, %s",
                     tri_where_name(program->spaces[m->reads.space].where),
                     tri_where_name(program->spaces[m->writes.space].where), bytes);
        print_end(program, m, text);
        return;
    }
    const tri_rank_group *group = &program->groups[m->group];
    if (tri_message_pairwise(m)) {
        tri_text_add(text, "  (%s %s %u, %s", m->kind == TRI_MESSAGE_SEND ? "to" : "from",
                     group->name, m->peer, bytes);
    } else {
        bool several = program->num_microbatches > 1;
        tri_text_add(text, "  (");
        add_field_word(m, &program->instrs[i], text);
        tri_text_add(text, "over %s, %u tensor%s in one message of %s%s",
                     tri_rank_group_text(group, ranks, sizeof ranks), m->count,
                     m->count == 1 ? "" : "s", bytes,
                     several && m->last_only    ? ", last micro-batch only"
                     : several && m->first_only ? ", first micro-batch only"
                                                : "");
    }
    if (tri_message_varies(m))
        tri_text_add(text, ", room for %" PRIu64 " rows from each to each",
                     m->send_parts.scale / m->send_parts.row);
    print_end(program, m, text);
}

/* Bytes that come to this rank from others, at the least: what the best algorithms need. Of counts
 * that are data, at the most: all of their rooms. */
static double received_bytes(const tri_program *program, const tri_message *m)
{
    if (m->group == TRI_NONE || m->kind == TRI_MESSAGE_SEND)
        return 0;
    const tri_rank_group *group = &program->groups[m->group];
    double others = (double)group->size - 1, all = (double)tri_message_bytes(m);
    double got = (double)m->recv.bytes, element = (double)tri_dtype_bytes(m->dtype);
    switch (m->kind) {
    case TRI_MESSAGE_ALL_REDUCE:
        return 2 * all * others / (double)group->size;
    case TRI_MESSAGE_ALL_GATHER:
        return all - element * (double)tri_message_part(program, m, &m->recv_parts, group->own);
    case TRI_MESSAGE_REDUCE_SCATTER:
        return others * element * (double)tri_message_part(program, m, &m->send_parts, group->own);
    case TRI_MESSAGE_ALL_TO_ALL:
        return got - element * (double)tri_message_part(program, m, &m->recv_parts, group->own);
    default:
        return got;
    }
}

/* What the messages of one lane come to in a step, by operator. */
typedef struct traffic {
    char name[sizeof "over " + TRI_GROUP_NAME];
    size_t messages[TRI_NUM_OPS];
    double bytes[TRI_NUM_OPS], received[TRI_NUM_OPS], beside[TRI_NUM_OPS];
    bool at_most[TRI_NUM_OPS]; /* of received */
} traffic;

static traffic traffic_of(const tri_program *program, uint32_t lane)
{
    traffic t = {.name = ""};
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_instr *instr = &program->instrs[program->flights[f].instr];
        const tri_message *m = &program->messages[instr->message];
        if (m->lane == lane)
            t.beside[instr->op] += (double)tri_message_bytes(m);
    }
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (instr->message == TRI_NONE || !tri_instr_leads(program, i) ||
                program->messages[instr->message].lane != lane ||
                !tri_call_runs(&program->calls[c], instr))
                continue;
            tri_message_lane_text(program, &program->messages[instr->message], t.name,
                                  sizeof t.name);
            t.messages[instr->op]++;
            const tri_message *m = &program->messages[instr->message];
            t.bytes[instr->op] += (double)tri_message_bytes(m);
            t.received[instr->op] += received_bytes(program, m);
            t.at_most[instr->op] |= tri_message_varies(m);
        }
    }
    return t;
}

void tri_text_traffic(const tri_program *program, tri_text *text)
{
    char size[16], part[16], from[16];
    uint32_t num_lanes = 0;
    for (size_t m = 0; m < program->num_messages; m++)
        if (program->messages[m].lane >= num_lanes)
            num_lanes = program->messages[m].lane + 1;
    for (uint32_t lane = 0; lane < num_lanes; lane++) {
        const traffic t = traffic_of(program, lane);
        for (int op = 0; op < TRI_NUM_OPS; op++) {
            if (!t.messages[op])
                continue;
            tri_text_add(text, "%s: %zu %s message%s, %s in all", t.name, t.messages[op],
                         tri_op_get((tri_op)op)->name, t.messages[op] == 1 ? "" : "s",
                         tri_text_bytes(t.bytes[op], size));
            if (t.received[op] > 0)
                tri_text_add(text, ", %s%s from other ranks", t.at_most[op] ? "at most " : "",
                             tri_text_bytes(t.received[op], from));
            if (t.beside[op] > 0)
                tri_text_add(text, ", %s beside the computation",
                             tri_text_bytes(t.beside[op], part));
            tri_text_add(text, "\n");
        }
    }
}
