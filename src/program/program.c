/* What can be asked of a program, whoever built it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

uint64_t tri_space_total(const tri_space *space)
{
    return space->bytes * space->num_instances;
}

uint64_t tri_value_bytes(const tri_value *value)
{
    return tri_dtype_size(value->dtype, tri_shape_count(&value->shape));
}

tri_id tri_program_find(const tri_program *program, const char *name)
{
    tri_id found = TRI_NONE;
    for (size_t v = 0; v < program->num_values; v++)
        if (strcmp(program->values[v].name, name) == 0)
            found = (tri_id)v;
    return found;
}

static tri_cost cost_of_call(const tri_program *program, const tri_call *call, bool redone_only)
{
    tri_cost total = {0};
    const tri_segment *segment = &program->segments[call->segment];
    for (uint32_t i = 0; i < segment->count; i++) {
        const tri_instr *instr = &program->instrs[segment->first + i];
        if (!tri_call_runs(call, instr) || (redone_only && !instr->redone))
            continue;
        total.flops += instr->cost.flops;
        total.bytes += instr->cost.bytes;
    }
    return total;
}

/* Calls of a segment cost the same but for the first and the last. */
static tri_cost cost_of(const tri_program *program, bool redone_only)
{
    tri_cost total = {0};
    for (size_t s = 0; s < program->num_segments; s++) {
        tri_cost kinds[4];
        bool known[4] = {false};
        for (size_t c = 0; c < program->num_calls; c++) {
            const tri_call *call = &program->calls[c];
            int kind = 2 * call->first + call->last;
            if (call->segment != s)
                continue;
            if (!known[kind])
                kinds[kind] = cost_of_call(program, call, redone_only);
            known[kind] = true;
            total.flops += kinds[kind].flops;
            total.bytes += kinds[kind].bytes;
        }
    }
    return total;
}

tri_cost tri_program_cost(const tri_program *program)
{
    return cost_of(program, false);
}

tri_cost tri_program_redone(const tri_program *program)
{
    return cost_of(program, true);
}

char *tri_segment_text(const tri_program *program, const tri_segment *segment, char out[24])
{
    const char *name = tri_action_name(segment->action);
    if (segment->action == TRI_ACTION_U && segment->chunk == TRI_UPDATE_END)
        snprintf(out, 24, "end");
    else if (program->num_chunks == 1 || segment->action == TRI_ACTION_U)
        snprintf(out, 24, "%s", name);
    else
        snprintf(out, 24, "%d%s", segment->chunk, name);
    return out;
}

tri_id tri_instr_value(const tri_instr *instr)
{
    return instr->num_out > 0 ? instr->out[0].value : instr->in[0].value;
}

bool tri_instr_float8(const tri_program *program, const tri_instr *instr)
{
    return (instr->op == TRI_OP_MATMUL || instr->op == TRI_OP_GROUPED8 ||
            instr->op == TRI_OP_GROUPED8_GRAD) &&
           tri_dtype_is_float8(program->values[instr->in[0].value].dtype);
}

void tri_program_fini(tri_program *program)
{
    free(program->pieces);
    free(program->piece_of);
    free(program->values);
    free(program->home);
    free(program->states);
    free(program->instrs);
    free(program->calls);
    free(program->frames);
    for (size_t p = 0; p < program->num_pairs; p++)
        free(program->pairs[p].list);
    free(program->pairs);
    free(program->segments);
    free(program->spaces);
    free(program->messages);
    free(program->groups);
    free(program->flights);
    free(program->landings);
    free(program->early);
    tri_arena_fini(&program->arena);
    *program = (tri_program){0};
}
