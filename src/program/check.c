/* The checker: proves a program by running it on names instead of numbers.
 *
 * It keeps, for every byte of every space, which value of which micro-batch lies there, and walks
 * the timeline. The memory plan is not trusted: only what was written where, and when. What it
 * proves, each with an error of its own:
 *   1  operands lie inside their space and are aligned
 *   2  a read finds exactly the value, of exactly the micro-batch, that the graph wants
 *   3  inputs are only read
 *   4  an output lies on an input only where the operator works in place
 *   5  accumulators are overwritten by the first contribution of a step and by no other, and hold
 *      the contributions of all micro-batches when they are read
 *   6  an update replaces the newest version of a state, in its own place; nobody reads the old one
 *   7  frames are used between their birth and their end, by one micro-batch at a time
 *   8  shapes and types fit the operator table, and no operand is missing
 *   9  every micro-batch that runs a segment of a chunk runs all of them, each once (without a
 *      pipeline: every micro-batch); every parameter with a gradient is updated
 *  10  what the host reads has been written
 *  11  nothing touches the memory of a message under way (check_overlap.c) */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/overlap.h"

/* What lies in a range of bytes. */
typedef struct piece {
    uint64_t begin, end;
    tri_id value;
    uint32_t microbatch;
    uint32_t contributions; /* accumulators: how many were added so far */
} piece;

/* One instance of a space: its pieces, sorted, not overlapping. */
typedef struct region {
    piece *pieces;
    size_t count, capacity;
    uint32_t holder; /* frames: the micro-batch that has it, or TRI_NONE */
} region;

typedef struct checker {
    const tri_program *program;
    region **regions;        /* [num_spaces] */
    uint32_t *contributions; /* expected of each state, see find_contributions */
    bool *sums;              /* of each value: a version that contributions make */
    uint32_t *last_use;      /* [space][micro-batch]: the last call that uses the frame */
    uint32_t *runs;          /* [segment][micro-batch]: calls */
    bool updated;            /* an update has read the gradients: they may begin anew */
    const tri_call *call;    /* where we are */
    const tri_instr *instr;  /* NULL between instructions */
    tr_error *err;
} checker;

static tr_status complain(const checker *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static tr_status complain(const checker *c, const char *format, ...)
{
    char reason[640];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (!c->call)
        return tri_fail(c->err, TR_ERROR_INPUT, "%s", reason);
    const tri_segment *segment = &c->program->segments[c->call->segment];
    char action[24];
    tri_segment_text(c->program, segment, action);
    if (!c->instr)
        return tri_fail(c->err, TR_ERROR_INPUT, "call %td, segment %s, micro-batch %u: %s",
                        c->call - c->program->calls, action, c->call->microbatch, reason);
    tri_id out = tri_message_value(c->instr);
    return tri_fail(c->err, TR_ERROR_INPUT,
                    "segment %s, instruction %td (%s -> %s), micro-batch %u: %s", action,
                    c->instr - c->program->instrs, tri_op_get(c->instr->op)->name,
                    out < c->program->num_values ? c->program->values[out].name : "?",
                    c->call->microbatch, reason);
}

static const char *name_of(const checker *c, tri_id value)
{
    return value < c->program->num_values ? c->program->values[value].name : "?";
}

/* First piece that ends after the address. */
static size_t find_piece(const region *r, uint64_t address)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->pieces[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Replaces whatever lay in the range. Pieces that are cut lose their meaning and go. */
static tr_status put(const checker *c, region *r, piece new_piece)
{
    size_t from = find_piece(r, new_piece.begin), to = from;
    while (to < r->count && r->pieces[to].begin < new_piece.end)
        to++;
    if (to == from) {
        piece *grown = tri_array_grow(r->pieces, r->count, &r->capacity, sizeof *grown);
        if (!grown)
            return tri_fail(c->err, TR_ERROR_RUNTIME, "no memory for the checker");
        r->pieces = grown;
    }
    memmove(r->pieces + from + 1, r->pieces + to, (r->count - to) * sizeof *r->pieces);
    r->count += 1 - (to - from);
    r->pieces[from] = new_piece;
    return TR_OK;
}

static tri_id first_version(const tri_program *program, tri_id value)
{
    for (size_t v = 0; v < program->num_values; v++)
        if (program->values[v].state == program->values[value].state &&
            program->values[v].producer == TRI_NONE)
            return (tri_id)v;
    return value;
}

static tr_status locate(const checker *c, const tri_operand *operand, const char *verb, region **r)
{
    const tri_program *program = c->program;
    if (operand->value >= program->num_values)
        return complain(c, "%s an operand that is missing", verb);
    if (operand->space >= program->num_spaces)
        return complain(c, "%s %s in a space that does not exist", verb,
                        name_of(c, operand->value));
    const tri_space *space = &program->spaces[operand->space];
    uint64_t bytes = tri_value_bytes(&program->values[operand->value]);
    if (operand->offset % TRI_PROGRAM_ALIGN != 0)
        return complain(c, "%s %s at %s+%" PRIu64 ", which is not a multiple of %d", verb,
                        name_of(c, operand->value), space->name, operand->offset,
                        TRI_PROGRAM_ALIGN);
    if (operand->offset > space->bytes || bytes > space->bytes - operand->offset)
        return complain(c, "%s %s at %s+%" PRIu64 ", %" PRIu64 " bytes, past the end of %" PRIu64,
                        verb, name_of(c, operand->value), space->name, operand->offset, bytes,
                        space->bytes);
    bool versions = space->kind == TRI_SPACE_PARAM || space->kind == TRI_SPACE_COPY;
    uint32_t instance = space->kind == TRI_SPACE_FRAME || versions ? c->call->frame[operand->space]
                        : space->kind == TRI_SPACE_BATCH           ? c->call->microbatch
                                                                   : 0;
    if (instance >= space->num_instances)
        return complain(c, "%s %s in %s number %u, but there are %u", verb,
                        name_of(c, operand->value), space->name, instance, space->num_instances);
    *r = &c->regions[operand->space][instance];
    if (space->kind == TRI_SPACE_FRAME && (*r)->holder != c->call->microbatch)
        return complain(c, "%s %s in %s number %u, which is not this micro-batch's", verb,
                        name_of(c, operand->value), space->name, instance);
    return TR_OK;
}

/* How many contributions an accumulator must hold when it is read: all that the timeline makes,
 * gradients with several updates in a step their share. 0 for states that are not accumulators. */
static void find_contributions(checker *c)
{
    const tri_program *program = c->program;
    for (size_t n = 0; n < program->num_calls; n++) {
        if (program->calls[n].segment >= program->num_segments)
            continue; /* found when it is its turn */
        const tri_segment *segment = &program->segments[program->calls[n].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            for (int k = 0; k < program->instrs[i].num_out; k++) {
                tri_id value = program->instrs[i].out[k].value;
                tri_write write = program->instrs[i].write[k];
                if (value >= program->num_values || program->values[value].state == TRI_NONE ||
                    (write != TRI_WRITE_START && write != TRI_WRITE_ADD))
                    continue;
                c->contributions[program->values[value].state]++;
                c->sums[value] = true;
            }
    }
    for (size_t s = 0; s < program->num_states && program->num_updates > 1; s++)
        if (program->states[s].kind == TRI_STATE_GRAD)
            c->contributions[s] /= program->num_updates;
}

/* Finds the piece that lies exactly on the operand, or says what is there instead. */
static tr_status look(const checker *c, const tri_operand *operand, const char *verb, piece **found)
{
    region *r;
    TRI_TRY(locate(c, operand, verb, &r));
    const tri_value *value = &c->program->values[operand->value];
    const char *space = c->program->spaces[operand->space].name;
    uint64_t end = operand->offset + tri_value_bytes(value);
    size_t i = find_piece(r, operand->offset);
    *found = i < r->count ? &r->pieces[i] : NULL;
    if (!*found || (*found)->begin >= end)
        return complain(c, "%s %s at %s+%" PRIu64 ", where nothing has been written", verb,
                        value->name, space, operand->offset);
    if ((*found)->begin != operand->offset || (*found)->end != end)
        return complain(c, "%s %s at %s+%" PRIu64 ", where %s lies in part", verb, value->name,
                        space, operand->offset, name_of(c, (*found)->value));
    return TR_OK;
}

/* Contributions of different chunks may come in any order: the sum is whole when all are there,
 * whichever came last. */
static bool same_sum(const checker *c, tri_id a, tri_id b)
{
    const tri_program *program = c->program;
    return a < program->num_values && c->sums[a] && c->sums[b] &&
           program->values[a].state == program->values[b].state;
}

static tr_status check_read(const checker *c, const tri_operand *operand)
{
    piece *found;
    TRI_TRY(look(c, operand, "reads", &found));
    const tri_value *value = &c->program->values[operand->value];
    if (found->value != operand->value && !same_sum(c, found->value, operand->value)) {
        if (value->state != TRI_NONE && c->program->values[found->value].state == value->state)
            return complain(c, "reads %s in a version that has been replaced (or not made yet)",
                            value->name);
        return complain(c, "reads %s, but %s has been written over it", value->name,
                        name_of(c, found->value));
    }
    if (value->state != TRI_NONE) {
        uint32_t expected = c->contributions[value->state];
        if (expected && found->contributions != expected)
            return complain(c, "reads %s with %u of %u contributions added", value->name,
                            found->contributions, expected);
    } else if (value->kind == TRI_VALUE_TEMP && found->microbatch != c->call->microbatch) {
        return complain(c, "reads %s of micro-batch %u", value->name, found->microbatch);
    }
    return TR_OK;
}

/* What the output's place must hold before the write. */
static tr_status check_before_write(const checker *c, int k, uint32_t *contributions)
{
    const tri_instr *instr = c->instr;
    const tri_operand *out = &instr->out[k];
    const char *name = name_of(c, out->value);
    piece *found = NULL;
    *contributions = 0;
    bool had = false;
    if (instr->write[k] == TRI_WRITE_START || instr->write[k] == TRI_WRITE_ADD) {
        checker quiet = *c; /* finding nothing is no error here */
        quiet.err = NULL;
        bool first = instr->write[k] == TRI_WRITE_START && c->call->first;
        had =
            look(&quiet, out, "adds to", &found) == TR_OK && same_sum(c, found->value, out->value);
        if (first && had && found->contributions && !c->updated)
            return complain(c, "overwrites %s, which holds %u contributions already", name,
                            found->contributions);
        if (!first && !had)
            return complain(c, "adds to %s, which nothing has started", name);
        *contributions = first ? 1 : found->contributions + 1;
        return TR_OK;
    }
    TRI_TRY(look(c, out, "updates", &found));
    if (found->value != instr->prev[k] && !same_sum(c, found->value, instr->prev[k]))
        return complain(c, "updates %s, but its place holds %s in another version", name,
                        name_of(c, found->value));
    *contributions = found->contributions;
    return TR_OK;
}

static bool same_place(const tri_operand *a, const tri_operand *b)
{
    return a->space == b->space && a->offset == b->offset;
}

static bool overlap(const checker *c, const tri_operand *a, const tri_operand *b)
{
    uint64_t bytes_a = tri_value_bytes(&c->program->values[a->value]);
    uint64_t bytes_b = tri_value_bytes(&c->program->values[b->value]);
    return a->space == b->space && a->offset < b->offset + bytes_b &&
           b->offset < a->offset + bytes_a;
}

static tr_status check_overlaps(const checker *c, int k)
{
    const tri_instr *instr = c->instr;
    const tri_op_def *def = tri_op_get(instr->op);
    const tri_operand *out = &instr->out[k];
    for (int j = 0; j < instr->num_in; j++) {
        const tri_operand *in = &instr->in[j];
        if (in->value == TRI_NONE || !overlap(c, out, in))
            continue;
        bool allowed = (def->may_alias[k] >> j & 1) || def->updates[k] == j + 1;
        if (!allowed || !same_place(out, in))
            return complain(c, "writes %s over its own input %s, which it cannot do in place",
                            name_of(c, out->value), name_of(c, in->value));
    }
    for (int other = 0; other < k; other++)
        if (overlap(c, out, &instr->out[other]))
            return complain(c, "writes %s and %s to the same place", name_of(c, out->value),
                            name_of(c, instr->out[other].value));
    return TR_OK;
}

static tr_status check_output(const checker *c, int k)
{
    const tri_instr *instr = c->instr;
    const tri_operand *out = &instr->out[k];
    region *r;
    TRI_TRY(locate(c, out, "writes", &r));
    tri_space_kind kind = c->program->spaces[out->space].kind;
    if (kind == TRI_SPACE_STEP || kind == TRI_SPACE_BATCH)
        return complain(c, "writes %s into the step's inputs", name_of(c, out->value));
    TRI_TRY(check_overlaps(c, k));
    uint8_t updates = tri_op_get(instr->op)->updates[k];
    if (instr->write[k] == TRI_WRITE_UPDATE && updates && !same_place(out, &instr->in[updates - 1]))
        return complain(c, "updates %s in another place than it reads it from",
                        name_of(c, out->value));
    uint32_t contributions = 0;
    if (instr->write[k] != TRI_WRITE_NEW)
        TRI_TRY(check_before_write(c, k, &contributions));
    uint64_t bytes = tri_value_bytes(&c->program->values[out->value]);
    return put(c, r,
               (piece){.begin = out->offset,
                       .end = out->offset + bytes,
                       .value = out->value,
                       .microbatch = c->call->microbatch,
                       .contributions = contributions});
}

/* Optional inputs may be absent; the squares of nothing are right only where there are no others.
 */
static bool may_lack(const checker *c, const tri_op_def *def, int input)
{
    size_t num_squares = 0;
    for (size_t i = 0; c->instr->op == TRI_OP_SUM_SQUARES && i < c->program->num_instrs; i++)
        num_squares += c->program->instrs[i].op == TRI_OP_SUM_SQUARES &&
                       same_place(&c->program->instrs[i].out[0], &c->instr->out[0]);
    return (def->optional >> input & 1) && num_squares <= 1;
}

static tr_status check_shapes(const checker *c)
{
    const tri_instr *instr = c->instr;
    const tri_op_def *def = tri_op_get(instr->op);
    tri_node node = {
        .op = instr->op, .attr = instr->attr, .num_in = instr->num_in, .num_out = instr->num_out};
    tri_shape in[TRI_MAX_IN], out[TRI_MAX_OUT];
    const tri_value *values[TRI_MAX_IN] = {NULL};
    tri_dtype dtype[TRI_MAX_OUT];
    for (int j = 0; j < instr->num_in; j++) {
        in[j] = (tri_shape){.rank = -1};
        if (instr->in[j].value < c->program->num_values)
            values[j] = &c->program->values[instr->in[j].value];
        else if (!may_lack(c, def, j))
            return complain(c, "lacks its input number %d", j);
        if (values[j])
            in[j] = values[j]->shape;
    }
    if (instr->num_in < def->min_in || instr->num_out < def->min_out)
        return complain(c, "has too few operands");
    tri_infer_dtypes(instr->op, &instr->attr, values, instr->num_in, dtype, instr->num_out);
    tr_error why;
    if (def->infer(&node, in, out, dtype, &why) != TR_OK)
        return complain(c, "does not fit its operands: %s", why.message);
    for (int k = 0; k < instr->num_out; k++) {
        const tri_value *value = &c->program->values[instr->out[k].value];
        if (value->state != TRI_NONE)
            dtype[k] = c->program->states[value->state].dtype;
        if (!tri_shape_equal(&out[k], &value->shape) || dtype[k] != value->dtype)
            return complain(c, "gives %s another shape or type than the program notes",
                            value->name);
    }
    return TR_OK;
}

static uint32_t last_use(const checker *c, size_t space, uint32_t microbatch)
{
    return c->last_use[space * c->program->num_microbatches + microbatch];
}

/* Takes and gives back the frames of a call. */
static tr_status change_frames(const checker *c, bool before)
{
    const tri_program *program = c->program;
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        if (space->kind != TRI_SPACE_FRAME || !space->users[c->call->segment] ||
            (before ? space->born != c->call->segment
                    : last_use(c, s, c->call->microbatch) != (size_t)(c->call - program->calls)))
            continue;
        uint32_t instance = c->call->frame[s];
        if (instance >= space->num_instances)
            return complain(c, "uses %s number %u, but there are %u", space->name, instance,
                            space->num_instances);
        region *r = &c->regions[s][instance];
        if (before && r->holder != TRI_NONE)
            return complain(c, "takes %s number %u, which micro-batch %u still holds", space->name,
                            instance, r->holder);
        r->holder = before ? c->call->microbatch : TRI_NONE;
        r->count = 0;
    }
    return TR_OK;
}

/* Asynchronous pipelines: the parameters that a call works on may be a copy of others. */
static tr_status copy_version(const checker *c)
{
    const tri_program *program = c->program;
    for (size_t s = 0; s < program->num_spaces && c->call->copy_from != TRI_NONE; s++) {
        const tri_space *space = &program->spaces[s];
        if (space->kind != TRI_SPACE_PARAM && space->kind != TRI_SPACE_COPY)
            continue;
        uint32_t from = c->call->copy_from, to = c->call->frame[s];
        if (from >= space->num_instances || to >= space->num_instances)
            return complain(c, "copies parameters between instances that do not exist");
        c->regions[s][to].count = 0;
        for (size_t i = 0; i < c->regions[s][from].count; i++)
            TRI_TRY(put(c, &c->regions[s][to], c->regions[s][from].pieces[i]));
    }
    return TR_OK;
}

/* ... and what an update made is what the calls after it find in the place of the old version. */
static void renew_versions(const checker *c)
{
    const tri_program *program = c->program;
    for (size_t s = 0; s < program->num_spaces; s++) {
        tri_space_kind kind = program->spaces[s].kind;
        if (kind != TRI_SPACE_PARAM && kind != TRI_SPACE_COPY && kind != TRI_SPACE_OPTIM)
            continue;
        region *r = &c->regions[s][kind == TRI_SPACE_OPTIM ? 0 : c->call->frame[s]];
        for (size_t i = 0; i < r->count; i++)
            r->pieces[i].value = first_version(program, r->pieces[i].value);
    }
}

static tr_status check_call(checker *c)
{
    const tri_program *program = c->program;
    if (c->call->segment >= program->num_segments)
        return tri_fail(c->err, TR_ERROR_INPUT, "call %td names a segment that does not exist",
                        c->call - program->calls);
    if (c->call->microbatch >= program->num_microbatches)
        return complain(c, "there are only %u micro-batches", program->num_microbatches);
    TRI_TRY(change_frames(c, true));
    TRI_TRY(copy_version(c));
    const tri_segment *segment = &program->segments[c->call->segment];
    for (uint32_t i = 0; i < segment->count; i++) {
        c->instr = &program->instrs[segment->first + i];
        if (!tri_call_runs(c->call, c->instr))
            continue;
        TRI_TRY(check_shapes(c));
        for (int j = 0; j < c->instr->num_in; j++)
            if (c->instr->in[j].value != TRI_NONE)
                TRI_TRY(check_read(c, &c->instr->in[j]));
        for (int k = 0; k < c->instr->num_out; k++)
            TRI_TRY(check_output(c, k));
    }
    c->instr = NULL;
    const tri_call *next = c->call + 1;
    if (program->num_updates > 0 && segment->action == TRI_ACTION_U) {
        c->updated = true;
        if (next < program->calls + program->num_calls &&
            program->segments[next->segment].action != TRI_ACTION_U)
            renew_versions(c);
    }
    return change_frames(c, false);
}

static uint32_t count_calls(const checker *c, uint32_t segment, uint32_t microbatch)
{
    return c->runs[segment * c->program->num_microbatches + microbatch];
}

/* Every segment runs once for every micro-batch; the update once. In a pipeline a chunk need not
 * see every micro-batch (some take another route), but runs its segments for the same ones. */
static tr_status check_coverage(const checker *c)
{
    const tri_program *program = c->program;
    for (uint32_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        bool once = segment->action == TRI_ACTION_U;
        char name[24];
        if (once && program->num_updates > 0)
            continue; /* as often as the schedule has updates */
        uint32_t leader = s;
        for (uint32_t o = 0; o < s && program->num_chunks > 1 && !once; o++)
            if (program->segments[o].chunk == segment->chunk && leader == s)
                leader = o;
        for (uint32_t m = 0; m < (once ? 1 : program->num_microbatches); m++) {
            uint32_t calls = count_calls(c, s, m), wanted = 1;
            if (program->num_chunks > 1 && !once)
                wanted = leader == s ? calls > 0 : count_calls(c, leader, m);
            if (calls != wanted)
                return complain(c, "segment %s runs %u times for micro-batch %u, not %s",
                                tri_segment_text(program, segment, name), calls, m,
                                wanted == 1 ? "once" : "never");
        }
    }
    return TR_OK;
}

static tr_status check_end(checker *c)
{
    const tri_program *program = c->program;
    c->call = NULL;
    TRI_TRY(check_coverage(c));
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        const tri_operand *home = &program->home[v];
        bool last_param = value->state != TRI_NONE &&
                          (program->states[value->state].kind == TRI_STATE_PARAM ||
                           program->states[value->state].kind == TRI_STATE_COPY) &&
                          program->states[value->state].latest == v;
        if (home->space == TRI_NONE || !(value->output || last_param) ||
            tri_value_bytes(value) == 0)
            continue;
        const region *r = &c->regions[home->space][0];
        size_t i = find_piece(r, home->offset);
        if (i == r->count || r->pieces[i].value != v)
            return complain(c,
                            last_param ? "%s is never updated, though it has a gradient"
                                       : "%s is never written, though the host reads it",
                            value->name);
    }
    return TR_OK;
}

/* What lies in memory when a step begins: inputs, parameters, moments and caches. */
static tr_status put_initial(checker *c)
{
    const tri_program *program = c->program;
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        const tri_operand *home = &program->home[v];
        bool kept =
            value->state != TRI_NONE && (program->states[value->state].kind == TRI_STATE_PARAM ||
                                         program->states[value->state].kind == TRI_STATE_COPY ||
                                         program->states[value->state].kind == TRI_STATE_OPTIM ||
                                         program->states[value->state].kind == TRI_STATE_CACHE);
        if (home->space >= program->num_spaces || value->producer != TRI_NONE ||
            !(value->kind == TRI_VALUE_INPUT || kept))
            continue;
        uint32_t num = kept ? 1 : program->spaces[home->space].num_instances;
        for (uint32_t m = 0; tri_value_bytes(value) > 0 && m < num; m++)
            TRI_TRY(put(c, &c->regions[home->space][m],
                        (piece){.begin = home->offset,
                                .end = home->offset + tri_value_bytes(value),
                                .value = (tri_id)v,
                                .microbatch = m}));
    }
    return TR_OK;
}

/* When each micro-batch is done with each frame, and how often it runs each segment. */
static void note_calls(checker *c)
{
    const tri_program *program = c->program;
    uint32_t num = program->num_microbatches;
    for (uint32_t n = 0; n < program->num_calls; n++) {
        const tri_call *call = &program->calls[n];
        if (call->segment >= program->num_segments || call->microbatch >= num)
            continue; /* found when it is its turn */
        c->runs[call->segment * num + call->microbatch]++;
        for (size_t s = 0; s < program->num_spaces; s++)
            if (program->spaces[s].kind == TRI_SPACE_FRAME &&
                program->spaces[s].users[call->segment])
                c->last_use[s * num + call->microbatch] = n;
    }
}

static tr_status walk(checker *c)
{
    const tri_program *program = c->program;
    size_t num = program->num_microbatches;
    c->last_use = calloc(program->num_spaces * num + 1, sizeof *c->last_use);
    c->runs = calloc(program->num_segments * num + 1, sizeof *c->runs);
    c->contributions = calloc(program->num_states + 1, sizeof *c->contributions);
    c->sums = calloc(program->num_values + 1, sizeof *c->sums);
    c->regions = calloc(program->num_spaces + 1, sizeof(region *));
    if (!c->contributions || !c->sums || !c->regions || !c->last_use || !c->runs)
        return tri_fail(c->err, TR_ERROR_RUNTIME, "no memory for the checker");
    find_contributions(c);
    note_calls(c);
    for (size_t s = 0; s < program->num_spaces; s++) {
        uint32_t num = program->spaces[s].num_instances;
        c->regions[s] = calloc(num + 1, sizeof *c->regions[s]);
        if (!c->regions[s])
            return tri_fail(c->err, TR_ERROR_RUNTIME, "no memory for the checker");
        for (uint32_t i = 0; i < num; i++)
            c->regions[s][i].holder = TRI_NONE;
    }
    TRI_TRY(put_initial(c));
    for (size_t i = 0; i < program->num_calls; i++) {
        c->call = &program->calls[i];
        TRI_TRY(check_call(c));
    }
    return check_end(c);
}

tr_status tri_program_check(const tri_program *program, tr_error *err)
{
    checker c = {.program = program, .err = err};
    tr_status status = walk(&c);
    for (size_t s = 0; c.regions && s < program->num_spaces; s++) {
        for (uint32_t i = 0; c.regions[s] && i < program->spaces[s].num_instances; i++)
            free(c.regions[s][i].pieces);
        free(c.regions[s]);
    }
    free(c.contributions);
    free(c.sums);
    free(c.last_use);
    free(c.runs);
    free(c.regions);
    return status == TR_OK ? tri_check_overlap(program, err) : status;
}
