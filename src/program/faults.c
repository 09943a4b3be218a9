/* Deliberate faults: each breaks a program in one way, to show that the checker notices and says
 * why. `trireme check --break NAME` applies one; the tests apply them all. Those of messages are in
 * faults_messages.c. */
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"
#include "program/overlap.h"

static tri_segment *segment_of(tri_program *program, tri_action_kind kind)
{
    for (size_t s = 0; s < program->num_segments; s++)
        if (program->segments[s].action == kind)
            return &program->segments[s];
    return NULL;
}

/* First instruction whose output 0 lies in a space of this kind. */
static tri_instr *instr_writing(tri_program *program, tri_space_kind kind)
{
    for (size_t i = 0; i < program->num_instrs; i++)
        if (program->instrs[i].num_out &&
            program->spaces[program->instrs[i].out[0].space].kind == kind)
            return &program->instrs[i];
    return NULL;
}

static tri_instr *instr_with_write(tri_program *program, tri_write write)
{
    for (size_t i = 0; i < program->num_instrs; i++)
        if (program->instrs[i].write[0] == write)
            return &program->instrs[i];
    return NULL;
}

static tri_call *call_of(tri_program *program, tri_action_kind kind, uint32_t microbatch)
{
    for (size_t c = 0; c < program->num_calls; c++)
        if (program->segments[program->calls[c].segment].action == kind &&
            program->calls[c].microbatch == microbatch)
            return &program->calls[c];
    return NULL;
}

static bool reads(const tri_instr *instr, tri_id value)
{
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value == value)
            return true;
    return false;
}

static bool swap_instructions(tri_program *program)
{
    for (size_t i = 0; i + 1 < program->num_instrs; i++) {
        tri_instr *a = &program->instrs[i], *b = a + 1;
        if (a->num_out && a->write[0] == TRI_WRITE_NEW && reads(b, a->out[0].value)) {
            tri_instr kept = *a;
            *a = *b;
            *b = kept;
            return true;
        }
    }
    return false;
}

/* The instruction that makes a value; num_instrs when none does. */
static size_t maker_of(const tri_program *program, tri_id value)
{
    size_t i = 0;
    for (; i < program->num_instrs; i++)
        for (int k = 0; k < program->instrs[i].num_out; k++)
            if (program->instrs[i].out[k].value == value)
                return i;
    return i;
}

/* Moves a result, and with it all that read it. */
static void move_result(tri_program *program, tri_instr *instr, tri_operand to)
{
    to.value = instr->out[0].value;
    instr->out[0] = to;
    for (size_t i = 0; i < program->num_instrs; i++)
        for (int j = 0; j < program->instrs[i].num_in; j++)
            if (program->instrs[i].in[j].value == to.value)
                program->instrs[i].in[j] = to;
}

/* May the result of instruction `at` be put where this operand of a later one lies? It must be live
 * there, lie in the same space, not be an input of `at` itself, and be no smaller: nothing else
 * should be hit. */
static bool can_overlap(const tri_program *program, size_t at, const tri_operand *live)
{
    const tri_instr *instr = &program->instrs[at];
    const tri_operand *out = &instr->out[0];
    if (live->value == TRI_NONE || live->value == out->value || live->space != out->space ||
        reads(instr, live->value) || maker_of(program, live->value) >= at)
        return false;
    return tri_value_bytes(&program->values[out->value]) <=
           tri_value_bytes(&program->values[live->value]);
}

/* Puts a result onto one that a later instruction still reads. */
static bool overlap_values(tri_program *program)
{
    for (size_t at = 0; at < program->num_instrs; at++) {
        tri_instr *instr = &program->instrs[at];
        tri_space_kind kind = program->spaces[instr->out[0].space].kind;
        if (!instr->num_out || instr->write[0] != TRI_WRITE_NEW ||
            (kind != TRI_SPACE_FRAME && kind != TRI_SPACE_WORK))
            continue;
        for (size_t later = at + 1; later < program->num_instrs; later++)
            for (int j = 0; j < program->instrs[later].num_in; j++)
                if (can_overlap(program, at, &program->instrs[later].in[j])) {
                    move_result(program, instr, program->instrs[later].in[j]);
                    return true;
                }
    }
    return false;
}

static bool past_the_end(tri_program *program)
{
    tri_instr *instr = instr_writing(program, TRI_SPACE_WORK);
    if (instr)
        instr->out[0].offset =
            (program->spaces[TRI_SPACE_WORK].bytes + 4095) / TRI_PROGRAM_ALIGN * TRI_PROGRAM_ALIGN;
    return instr != NULL;
}

static bool misalign(tri_program *program)
{
    program->instrs[0].out[0].offset += 4;
    return true;
}

static bool update_too_early(tri_program *program)
{
    tri_call *first = program->calls, *last = first + program->num_calls - 1;
    if (program->segments[last->segment].action != TRI_ACTION_U)
        return false;
    tri_call moved = *last;
    memmove(first + 1, first, (program->num_calls - 1) * sizeof *first);
    *first = moved;
    return true;
}

/* Leaves out the first use of each accumulator's sum, so that only the version is at fault. */
static bool read_old_version(tri_program *program)
{
    tri_segment *update = segment_of(program, TRI_ACTION_U);
    for (uint32_t i = 0; update && i < update->count; i++) {
        tri_instr *instr = &program->instrs[update->first + i];
        if (instr->op != TRI_OP_ADAM || i + 1 == update->count)
            continue;
        tri_instr *next = instr + 1;
        if (next->op != TRI_OP_ADAM || next->num_in != instr->num_in)
            continue;
        *next = *instr; /* updates the same parameter twice, from its old version */
        return true;
    }
    return false;
}

static bool frame_in_use(tri_program *program)
{
    for (size_t s = 0; s < program->num_spaces; s++) {
        tri_call *forward = call_of(program, TRI_ACTION_F, 1);
        tri_call *backward = call_of(program, TRI_ACTION_B, 0);
        if (program->spaces[s].kind != TRI_SPACE_FRAME || !forward || !backward)
            continue;
        tri_call kept = *backward; /* now both forwards come first, on one frame */
        *backward = *forward;
        *forward = kept;
        backward->frame[s] = forward->frame[s];
        return backward < forward;
    }
    return false;
}

static bool foreign_frame(tri_program *program)
{
    for (size_t s = 0; s < program->num_spaces; s++) {
        if (program->spaces[s].kind != TRI_SPACE_FRAME)
            continue;
        tri_call *backward = call_of(program, program->segments[program->spaces[s].dies].action, 0);
        if (!backward)
            continue;
        program->spaces[s].num_instances++;
        backward->frame[s] = program->spaces[s].num_instances - 1;
        return true;
    }
    return false;
}

/* Without the update as well: the sums would lack a part, and only the coverage is to be at fault.
 */
static bool drop_microbatch(tri_program *program)
{
    if (program->num_microbatches < 2)
        return false;
    size_t kept = 0;
    for (size_t c = 0; c < program->num_calls; c++)
        if (program->calls[c].microbatch != 1 &&
            program->segments[program->calls[c].segment].action != TRI_ACTION_U)
            program->calls[kept++] = program->calls[c];
    program->num_calls = kept;
    return true;
}

static bool restart_sums(tri_program *program)
{
    tri_call *call = call_of(program, TRI_ACTION_B, 1);
    if (call)
        call->first = true;
    return call != NULL;
}

static bool never_start_sums(tri_program *program)
{
    tri_call *call = call_of(program, TRI_ACTION_B, 0);
    if (call)
        call->first = false;
    return call != NULL;
}

static bool half_the_batch(tri_program *program)
{
    tri_call *backward = call_of(program, TRI_ACTION_B, program->num_microbatches - 1);
    tri_call *update = call_of(program, TRI_ACTION_U, 0);
    if (!backward || !update || program->num_microbatches < 2)
        return false;
    tri_call kept = *backward;
    *backward = *update;
    *update = kept;
    return true;
}

static bool swap_operands(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_instr *instr = &program->instrs[i];
        if (instr->op != TRI_OP_MATMUL)
            continue;
        tri_operand kept = instr->in[0];
        instr->in[0] = instr->in[1];
        instr->in[1] = kept;
        return true;
    }
    return false;
}

static bool write_input(tri_program *program)
{
    tri_instr *instr = instr_writing(program, TRI_SPACE_WORK);
    if (!instr || program->spaces[TRI_SPACE_BATCH].bytes == 0)
        return false;
    program->spaces[TRI_SPACE_BATCH].bytes = program->spaces[TRI_SPACE_WORK].bytes;
    instr->out[0].space = TRI_SPACE_BATCH;
    instr->out[0].offset = 0;
    return true;
}

static bool update_elsewhere(tri_program *program)
{
    tri_instr *instr = instr_with_write(program, TRI_WRITE_UPDATE);
    if (!instr)
        return false;
    instr->out[0].offset = program->spaces[instr->out[0].space].bytes;
    program->spaces[instr->out[0].space].bytes += instr->out[0].offset + TRI_PROGRAM_ALIGN;
    return true;
}

/* A sum goes on in another place than it was begun in. */
static bool lose_terms(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_instr *instr = &program->instrs[i];
        tri_id out = instr->num_out ? instr->out[0].value : TRI_NONE;
        if (out == TRI_NONE || instr->write[0] != TRI_WRITE_ADD ||
            program->values[out].kind != TRI_VALUE_TEMP)
            continue;
        tri_space *space = &program->spaces[instr->out[0].space];
        instr->out[0].offset = space->bytes;
        space->bytes += tri_value_bytes(&program->values[out]);
        return true;
    }
    return false;
}

static bool skip_update(tri_program *program)
{
    tri_segment *update = segment_of(program, TRI_ACTION_U);
    if (!update || update->count < 2)
        return false;
    update->count--;
    return true;
}

static bool missing_operand(tri_program *program)
{
    for (size_t i = program->num_instrs / 2; i < program->num_instrs; i++) {
        tri_instr *instr = &program->instrs[i];
        if (tri_op_get(instr->op)->optional & 1)
            continue; /* may lack it */
        instr->in[0].value = TRI_NONE;
        return true;
    }
    return false;
}

static bool write_over_input(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        tri_instr *instr = &program->instrs[i];
        tri_space_kind kind = program->spaces[instr->in[0].space].kind;
        if (instr->op != TRI_OP_MATMUL || instr->write[0] != TRI_WRITE_NEW ||
            (kind != TRI_SPACE_WORK && kind != TRI_SPACE_FRAME))
            continue;
        program->spaces[instr->in[0].space].bytes +=
            tri_value_bytes(&program->values[instr->out[0].value]);
        instr->out[0].space = instr->in[0].space;
        instr->out[0].offset = instr->in[0].offset;
        return true;
    }
    return false;
}

/* The first message that is waited for before the end lands there instead. */
static bool wait_too_late(tri_program *program)
{
    for (size_t n = 0; n < program->num_flights; n++) {
        tri_landing *landing = &program->landings[n];
        if (landing->call == program->num_calls)
            continue;
        landing->call = (uint32_t)program->num_calls;
        landing->instr = 0;
        tri_sort_landings(program);
        return true;
    }
    return false;
}

static bool sum_too_early(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs && program->num_microbatches > 1; i++) {
        if (!program->instrs[i].last_only)
            continue;
        program->instrs[i].last_only = false;
        return true;
    }
    return false;
}

/* What all micro-batches read is there for the last one alone. */
static bool gather_too_late(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs && program->num_microbatches > 1; i++) {
        if (!program->instrs[i].first_only)
            continue;
        program->instrs[i].first_only = false;
        program->instrs[i].last_only = true;
        return true;
    }
    return false;
}

/* A product with an activation, made for the first micro-batch and nobody else. */
static bool once_for_all(tri_program *program)
{
    for (size_t i = 0; i < program->num_instrs; i++) {
        if (program->instrs[i].op != TRI_OP_MATMUL)
            continue;
        program->instrs[i].first_only = true;
        return true;
    }
    return false;
}

/* Whether an instruction could have a line of scratch at an address of `work`. */
static bool can_have_scratch(const tri_program *program, const tri_instr *instr, uint64_t offset)
{
    if (tri_op_get(instr->op)->communicates || instr->scratch_bytes)
        return false;
    for (int o = 0; o < instr->num_in + instr->num_out; o++) {
        const tri_operand *operand =
            o < instr->num_in ? &instr->in[o] : &instr->out[o - instr->num_in];
        if (operand->value != TRI_NONE && operand->space == TRI_SPACE_WORK &&
            operand->offset <= offset &&
            offset < operand->offset + tri_value_bytes(&program->values[operand->value]))
            return false;
    }
    return true;
}

/* The instruction before the reader of a value has its scratch there. */
static bool scratch_on_value(tri_program *program)
{
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        for (uint32_t i = segment->first + 1; i < segment->first + segment->count; i++)
            for (int j = 0; j < program->instrs[i].num_in; j++) {
                const tri_operand *in = &program->instrs[i].in[j];
                tri_instr *before = &program->instrs[i - 1];
                if (in->value == TRI_NONE || in->space != TRI_SPACE_WORK ||
                    !can_have_scratch(program, before, in->offset))
                    continue;
                before->scratch_bytes = TRI_PROGRAM_ALIGN;
                before->scratch_offset = in->offset;
                return true;
            }
    }
    return false;
}

static const tri_fault faults[] = {
    {"swap-instructions", "an instruction runs before the one whose result it reads",
     swap_instructions},
    {"overlap", "a result is placed on one that is still needed", overlap_values},
    {"past-the-end", "an address lies outside its space", past_the_end},
    {"misaligned", "an address is not aligned", misalign},
    {"update-too-early", "the update runs before the gradients exist", update_too_early},
    {"old-version", "a parameter is updated from a version that has been replaced",
     read_old_version},
    {"frame-in-use", "a forward takes a frame whose backward has not run", frame_in_use},
    {"foreign-frame", "a backward looks into another micro-batch's frame", foreign_frame},
    {"lost-microbatch", "a micro-batch is left out", drop_microbatch},
    {"restarted-sums", "a later micro-batch overwrites the gradient sums", restart_sums},
    {"unstarted-sums", "the first micro-batch adds to sums that hold nothing", never_start_sums},
    {"half-the-batch", "the update runs before the last backward", half_the_batch},
    {"swapped-operands", "a product gets its operands in the wrong order", swap_operands},
    {"written-input", "an instruction writes into the step's inputs", write_input},
    {"update-elsewhere", "an update writes to another place than it reads", update_elsewhere},
    {"lost-terms", "a sum goes on in another place than it was begun in", lose_terms},
    {"skipped-update", "a parameter with a gradient is not updated", skip_update},
    {"missing-operand", "an instruction lacks an operand", missing_operand},
    {"in-place", "a result is written over an input that is still being read", write_over_input},
    {"scratch-in-use", "the scratch of a kernel lies on a value that is still needed",
     scratch_on_value},
    {"late-wait", "a result is read while its message is still under way", wait_too_late},
    {"early-sum", "gradients are summed over ranks before the last micro-batch", sum_too_early},
    {"late-gather", "weights that stay for the step are put together for the last micro-batch only",
     gather_too_late},
    {"once-for-all", "what depends on its micro-batch is made for the first one only",
     once_for_all},
};

const tri_fault *tri_fault_at(size_t i)
{
    enum { NUM = sizeof faults / sizeof *faults };
    return i < NUM ? &faults[i] : tri_message_fault_at(i - NUM);
}
