/* Bytes in `work`, instruction by instruction, from the first use of each value to the last. A
 * value that takes over the memory of another lies where that lay; a gradient that rests in `work`
 * stays until the end of the step, when the host may look at it. */
#include <stdlib.h>

#include "sim/picture/picture_parts.h"

typedef struct value_life {
    uint32_t first, last; /* instructions; first TRI_NONE: it is in no `work` */
} value_life;

static bool in_work(const tri_program *program, const tri_operand *operand)
{
    if (operand->value == TRI_NONE || operand->space == TRI_NONE)
        return false;
    const tri_space *space = &program->spaces[operand->space];
    return space->kind == TRI_SPACE_WORK && space->where == TRI_WHERE_DEVICE;
}

/* All versions of a state are one value. */
static tri_id value_of(const tri_program *program, tri_id value)
{
    tri_id state = program->values[value].state;
    return state == TRI_NONE ? value : program->states[state].latest;
}

static void note(const tri_program *program, value_life *lives, const tri_operand *operand,
                 uint32_t i)
{
    if (!in_work(program, operand))
        return;
    tri_id v = value_of(program, operand->value);
    value_life *life = &lives[v];
    if (life->first == TRI_NONE)
        life->first = i;
    life->last = program->values[v].state == TRI_NONE ? i : (uint32_t)program->num_instrs;
}

/* Inputs that end where an output begins, at the same address, have ended before. */
static void take_over(const tri_program *program, value_life *lives, uint32_t i)
{
    const tri_instr *instr = &program->instrs[i];
    for (int k = 0; k < instr->num_out; k++) {
        const tri_operand *out = &instr->out[k];
        if (!in_work(program, out) || lives[value_of(program, out->value)].first != i)
            continue;
        for (int j = 0; j < instr->num_in; j++) {
            const tri_operand *in = &instr->in[j];
            if (!in_work(program, in) || in->space != out->space || in->offset != out->offset)
                continue;
            value_life *life = &lives[value_of(program, in->value)];
            if (life->last == i && life->first < i)
                life->last = i - 1;
        }
    }
}

static uint32_t segment_of(const tri_program *program, uint32_t instr)
{
    for (uint32_t s = 0; s < program->num_segments; s++)
        if (instr >= program->segments[s].first &&
            instr < program->segments[s].first + program->segments[s].count)
            return s;
    return TRI_NONE;
}

static uint64_t *class_of(tri_live *live, const tri_program *program, tri_id value,
                          const value_life *life)
{
    if (program->values[value].state != TRI_NONE)
        return &live->gradients;
    return segment_of(program, life->first) != segment_of(program, life->last) ? &live->activations
                                                                               : &live->work;
}

/* Sums, of what begins less what has ended; the differences may be below 0, and wrap. */
static void add_up(const tri_program *program, const value_life *lives, tri_live *live)
{
    size_t num = program->num_instrs;
    for (tri_id v = 0; v < program->num_values; v++) {
        const value_life *life = &lives[v];
        uint64_t bytes = tri_value_bytes(&program->values[v]);
        if (life->first == TRI_NONE)
            continue;
        *class_of(&live[life->first], program, v, life) += bytes;
        if (life->last + 1 <= num)
            *class_of(&live[life->last + 1], program, v, life) -= bytes;
    }
    for (size_t i = 1; i <= num; i++) {
        live[i].activations += live[i - 1].activations;
        live[i].gradients += live[i - 1].gradients;
        live[i].work += live[i - 1].work;
    }
    for (size_t i = 0; i < num; i++)
        live[i].work += program->instrs[i].scratch_bytes;
}

tri_live *tri_live_make(const tri_program *program)
{
    tri_live *live = calloc(program->num_instrs + 2, sizeof *live);
    value_life *lives = malloc((program->num_values + 1) * sizeof *lives);
    if (!live || !lives) {
        free(live);
        free(lives);
        return NULL;
    }
    for (size_t v = 0; v < program->num_values; v++)
        lives[v] = (value_life){TRI_NONE, 0};
    for (uint32_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        for (int k = 0; k < instr->num_in; k++)
            note(program, lives, &instr->in[k], i);
        for (int k = 0; k < instr->num_out; k++)
            note(program, lives, &instr->out[k], i);
    }
    for (uint32_t i = 0; i < program->num_instrs; i++)
        take_over(program, lives, i);
    add_up(program, lives, live);
    free(lives);
    return live;
}
