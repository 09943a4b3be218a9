/* Which results are compared when ranks with the same weights exchange their rows. */
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"
#include "run/trace/message_numbers.h"
#include "train/health/replay.h"

/* What is known of values. */
typedef struct replay_facts {
    const tri_program *program;
    const tri_mesh *mesh;
    int unit;    /* places along dp that have the same weights together */
    bool *rows;  /* [num_values]: depends on the rows of the batch */
    bool *apart; /* and on the rank's place among those with the same weights, or on their rows */
} replay_facts;

static void take_inputs(const replay_facts *f)
{
    const tri_program *program = f->program;
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        if (value->kind == TRI_VALUE_INPUT)
            f->rows[v] = value->per_microbatch;
        if (value->kind != TRI_VALUE_STATE || value->state == TRI_NONE)
            continue;
        tri_state_kind kind = program->states[value->state].kind;
        f->rows[v] = kind == TRI_STATE_GRAD || kind == TRI_STATE_STAT;
        f->apart[v] = value->flat.parts > 0; /* a slice that is this rank's */
    }
}

/* Whether a message is between ranks with the same weights, not only between those that together
 * have them once. */
static bool crosses(const replay_facts *f, const tri_message *message)
{
    if (tri_message_carries(message))
        return false;
    const tri_rank_group *group = &f->program->groups[message->group];
    int own = tri_mesh_coordinate(f->mesh, tri_rank_group_member(group, group->own), TRI_AXIS_DP);
    for (uint32_t i = 0; i < group->size; i++) {
        int rank = tri_rank_group_member(group, i);
        if (tri_mesh_coordinate(f->mesh, rank, TRI_AXIS_DP) / f->unit != own / f->unit)
            return true;
    }
    return false;
}

/* Whether something is news of the results. */
static bool take_instr(const replay_facts *f, uint32_t i)
{
    const tri_instr *instr = &f->program->instrs[i];
    bool rows = false, apart = false, news = false;
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE) {
            rows |= f->rows[instr->in[j].value];
            apart |= f->apart[instr->in[j].value];
        }
    for (int k = 0; k < instr->num_out; k++)
        if (instr->prev[k] != TRI_NONE) {
            rows |= f->rows[instr->prev[k]];
            apart |= f->apart[instr->prev[k]];
        }
    if (instr->message == TRI_NONE) {
        apart |= instr->attr.flat.parts > 0;
    } else if (crosses(f, &f->program->messages[instr->message])) {
        /* Weights that are put together are the same for all. */
        tri_message_kind kind = f->program->messages[instr->message].kind;
        bool whole = kind == TRI_MESSAGE_ALL_GATHER || kind == TRI_MESSAGE_BROADCAST;
        apart = rows || !whole;
    }
    for (int k = 0; k < instr->num_out; k++) {
        tri_id value = instr->out[k].value;
        news |= (rows && !f->rows[value]) || (apart && !f->apart[value]);
        f->rows[value] |= rows;
        f->apart[value] |= apart;
    }
    return news;
}

static bool take_calls(const replay_facts *f, uint32_t num_calls)
{
    bool news = false;
    for (uint32_t c = 0; c < num_calls; c++) {
        const tri_segment *segment = &f->program->segments[f->program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            news |= take_instr(f, i);
    }
    return news;
}

static void list(const replay_facts *f, bool *left_out)
{
    const tri_program *program = f->program;
    for (uint32_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        uint32_t first = instr->message == TRI_NONE ? i : program->messages[instr->message].first;
        for (int k = 0; k < instr->num_out; k++)
            left_out[first] |= f->apart[instr->out[k].value];
    }
}

tr_status tri_replay_list_apart(const tri_session *session, uint32_t num_calls, bool **left_out,
                                tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    const tri_mesh *mesh = &session->config.compile.mesh;
    replay_facts f = {.program = program,
                      .mesh = mesh,
                      .unit = tri_mesh_size(mesh, TRI_AXIS_DP) / tri_replay_num_others(mesh),
                      .rows = calloc(program->num_values + 1, sizeof *f.rows),
                      .apart = calloc(program->num_values + 1, sizeof *f.apart)};
    *left_out = calloc(program->num_instrs + 1, sizeof **left_out);
    tr_status status = f.rows && f.apart && *left_out
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for what is replayed");
    if (status == TR_OK) {
        take_inputs(&f);
        while (take_calls(&f, num_calls))
            ;
        list(&f, *left_out);
    }
    free(f.rows);
    free(f.apart);
    return status;
}

uint64_t tri_replay_digest(const tri_program *program, uint32_t num_calls, const bool *left_out)
{
    tri_summed at = {.left_out = left_out};
    uint64_t sum = 0;
    while (tri_executor_next_sum(program, num_calls, &at)) {
        const tri_instr *instr = &program->instrs[at.instr];
        sum = tri_message_mix(sum, (uint64_t)at.call << 32 | (uint64_t)instr->op);
        for (const char *c = program->values[tri_instr_value(instr)].name; *c; c++)
            sum = tri_message_mix(sum, (unsigned char)*c);
        for (int k = 0; k < instr->num_out; k++)
            sum = tri_message_mix(sum, tri_value_bytes(&program->values[instr->out[k].value]));
    }
    return sum;
}
