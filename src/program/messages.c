/* Which communication travels in one message: that of neighbours in memory. */
#include <string.h>

#include "program/program.h"

static uint64_t aligned_end(const tri_program *program, const tri_operand *operand)
{
    uint64_t end = operand->offset + tri_value_bytes(&program->values[operand->value]);
    return (end + TRI_PROGRAM_ALIGN - 1) / TRI_PROGRAM_ALIGN * TRI_PROGRAM_ALIGN;
}

/* Whether an instruction's message can be one with that of the instruction before it: the same
 * bucket of divided tensors, or states that are neighbours in memory. */
static bool rides_with(const tri_program *program, const tri_instr *instr, const tri_instr *last,
                       const tri_operand *before)
{
    const tri_flat *flat = &instr->attr.flat, *other = &last->attr.flat;
    if (instr->op != last->op || instr->attr.axis != last->attr.axis ||
        instr->last_only != last->last_only || instr->first_only != last->first_only ||
        instr->attr.num_homes != last->attr.num_homes ||
        memcmp(instr->attr.homes, last->attr.homes, sizeof last->attr.homes) != 0)
        return false;
    if (flat->parts > 0)
        return flat->offset > 0 && flat->offset == other->offset + tri_flat_padded(other->count);
    return instr->op == TRI_OP_ALL_REDUCE &&
           program->values[instr->out[0].value].state != TRI_NONE &&
           program->values[before->value].state != TRI_NONE &&
           instr->out[0].space == before->space &&
           program->values[instr->out[0].value].dtype == program->values[before->value].dtype &&
           instr->out[0].offset == aligned_end(program, before);
}

/* Joins communication of neighbours in memory into one message. */
void tri_join_messages(tri_program *program)
{
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        tri_instr *head = NULL;
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            tri_instr *instr = &program->instrs[i];
            const tri_operand *before = i > segment->first ? &instr[-1].out[0] : NULL;
            bool rides = head && before && rides_with(program, instr, &instr[-1], before);
            instr->span = rides ? 0 : 1;
            if (rides)
                head->span++;
            else
                head = tri_op_get(instr->op)->communicates ? instr : NULL;
        }
    }
}
