/* What follows from the order of calls: which is the first and the last of its segment, and which
 * instances of the frames each has. */
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

enum { NEVER = UINT32_MAX - 1 };

/* The segment of each chunk and action; the caller frees it. */
static uint32_t *segment_table(const tri_program *program)
{
    size_t num = (size_t)program->num_chunks * TRI_NUM_ALL_ACTIONS;
    uint32_t *table = calloc(num, sizeof *table);
    for (uint32_t s = 0; table && s < program->num_segments; s++)
        table[(size_t)program->segments[s].chunk * TRI_NUM_ALL_ACTIONS +
              program->segments[s].action] = s;
    return table;
}

/* Sums of gradients begin anew after each update. */
tr_status tri_lay_calls(tri_program *program, const tri_action *actions, size_t num,
                        bool asynchronous, tr_error *err)
{
    uint32_t *table = segment_table(program);
    size_t *seen = calloc(program->num_segments + 1, sizeof *seen); /* its last call, from 1 */
    program->calls = calloc(num + 1, sizeof *program->calls);
    tr_status status = table && seen && program->calls
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the timeline");
    size_t last_update = 0;
    for (size_t i = 0; i < num && status == TR_OK; i++) {
        const tri_action *action = &actions[i];
        uint32_t segment = table[(size_t)action->chunk * TRI_NUM_ALL_ACTIONS + action->kind];
        bool since_update = seen[segment] > last_update;
        bool anew = asynchronous && action->kind != TRI_ACTION_F;
        program->calls[i] = (tri_call){.segment = segment,
                                       .microbatch = action->microbatch,
                                       .copy_from = TRI_NONE,
                                       .overlaps = action->overlap,
                                       .first = anew ? !since_update : seen[segment] == 0};
        seen[segment] = i + 1;
        last_update = action->kind == TRI_ACTION_U ? i : last_update;
    }
    program->num_calls = status == TR_OK ? num : 0;
    free(table);
    free(seen);
    return status;
}

/* Where several segments add to one accumulator, the one that runs first starts it. */
static void settle_first_writers(tri_program *program, uint32_t *first_call, tri_id *starter)
{
    for (size_t s = 0; s < program->num_states; s++)
        starter[s] = TRI_NONE;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t g = 0; g < program->num_segments; g++) {
            const tri_segment *segment = &program->segments[g];
            for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
                for (int k = 0; k < program->instrs[i].num_out; k++) {
                    tri_write *write = &program->instrs[i].write[k];
                    tri_id state = program->values[program->instrs[i].out[k].value].state;
                    if (state == TRI_NONE || (*write != TRI_WRITE_START && *write != TRI_WRITE_ADD))
                        continue;
                    tri_id *own = &starter[state];
                    if (pass == 0) {
                        if (*own == TRI_NONE || first_call[g] < first_call[*own])
                            *own = g;
                        continue;
                    }
                    *write = *own == g ? TRI_WRITE_START : TRI_WRITE_ADD;
                    if (*own == g)
                        *own = NEVER; /* once */
                }
        }
}

static void mark_last_calls(tri_program *program, uint32_t *seen)
{
    for (size_t s = 0; s < program->num_segments; s++)
        seen[s] = 0;
    for (size_t c = program->num_calls; c-- > 0;) {
        tri_call *call = &program->calls[c];
        if (program->segments[call->segment].action == TRI_ACTION_U)
            memset(seen, 0, program->num_segments * sizeof *seen); /* gradients begin anew */
        call->last = !seen[call->segment];
        seen[call->segment] = 1;
    }
}

/* Instances of a frame are taken by its first segment and given back after the last that uses it,
 * for each micro-batch; calls of a pair give them back together. */
static tr_status assign_frames(tri_program *program, uint32_t space, tr_error *err)
{
    tri_space *frame = &program->spaces[space];
    uint32_t num = program->num_microbatches;
    uint32_t *memory = malloc(3 * (size_t)num * sizeof *memory);
    if (!memory)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the timeline");
    uint32_t *held_by = memory, *instance = memory + num, *last = memory + 2 * (size_t)num;
    memset(memory, 0xff, 3 * (size_t)num * sizeof *memory);
    for (size_t c = 0; c < program->num_calls; c++)
        if (frame->users[program->calls[c].segment])
            last[program->calls[c].microbatch] = (uint32_t)c;
    for (size_t c = 0; c < program->num_calls; c++) {
        tri_call *call = &program->calls[c];
        uint32_t m = call->microbatch, i = 0;
        bool uses = frame->users[call->segment];
        if (uses && instance[m] == TRI_NONE) {
            while (i + 1 < num && held_by[i] != TRI_NONE)
                i++;
            instance[m] = i;
            held_by[i] = m;
            if (i + 1 > frame->num_instances)
                frame->num_instances = i + 1;
        }
        if (uses)
            call->frame[space] = instance[m];
        for (size_t k = c - call->nth; k <= c && !call->overlaps; k++) { /* all of a pair end */
            uint32_t done = program->calls[k].microbatch;
            if (frame->users[program->calls[k].segment] && last[done] == k)
                held_by[instance[done]] = TRI_NONE;
        }
    }
    free(memory);
    return TR_OK;
}

static void find_first_calls(const tri_program *program, uint32_t *first_call)
{
    for (size_t s = 0; s < program->num_segments; s++)
        first_call[s] = NEVER;
    for (size_t c = program->num_calls; c-- > 0;)
        first_call[program->calls[c].segment] = (uint32_t)c;
}

tr_status tri_settle_calls(tri_program *program, tr_error *err)
{
    size_t num = program->num_calls + 1;
    program->frames = calloc(num * program->num_spaces, sizeof *program->frames);
    uint32_t *first_call = malloc((program->num_segments + 1) * sizeof *first_call);
    size_t most =
        program->num_states > program->num_segments ? program->num_states : program->num_segments;
    tri_id *starter = malloc((most + 1) * sizeof *starter);
    tr_status status = program->frames && first_call && starter
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the timeline");
    for (size_t c = 0; c < program->num_calls && status == TR_OK; c++)
        program->calls[c].frame = program->frames + c * program->num_spaces;
    if (status == TR_OK) {
        find_first_calls(program, first_call);
        mark_last_calls(program, starter);
        settle_first_writers(program, first_call, starter);
    }
    for (uint32_t s = 0; s < program->num_spaces && status == TR_OK; s++)
        if (program->spaces[s].kind == TRI_SPACE_FRAME)
            status = assign_frames(program, s, err);
    free(first_call);
    free(starter);
    return status;
}

double tri_calls_pace(const tri_program *program, uint32_t call, const double *pace,
                      uint32_t *num_products)
{
    uint32_t num = tri_calls_at_once(program, call);
    double least = 0;
    *num_products = 0;
    for (uint32_t c = call; c < call + num; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        if (!tri_action_computes(segment->action))
            return least;
        least += pace[segment->action];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            *num_products += tri_op_multiplies(program->instrs[i].op) &&
                             tri_call_runs(&program->calls[c], &program->instrs[i]);
    }
    return num > 1 && pace[TRI_PACE_PAIR] > 0 ? pace[TRI_PACE_PAIR] : least;
}
