#include "program_digest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

const char *const digest_part_names[DIGEST_PARTS] = {"operators", "names", "addresses", "timeline",
                                                     "messages"};

/* --- Operators ------------------------------------------------------------------------------ */

static void add_flat(const tri_flat *flat, tri_text *text)
{
    if (flat->parts == 0)
        return;
    int64_t first, count = tri_flat_slice(flat, flat->part, &first);
    tri_text_add(text, " flat=%" PRId64 "+%" PRId64 "/%" PRId64 "@%" PRId64 "/%" PRId64 "%s", first,
                 count, flat->count, flat->offset, flat->total, flat->whole ? ",whole" : "");
}

/* Where the pieces of all ranks begin, and which is this rank's. */
static void add_cut(const tri_cut *cut, tri_text *text)
{
    if (cut->parts == 0)
        return;
    bool stacked = cut->dim == TRI_NO_DIM; /* one after the other */
    tri_text_add(text, " cut=%d:%d", stacked ? 0 : cut->dim, cut->part);
    for (int part = 0; part <= cut->parts && cut->size > 0 && !stacked; part++)
        tri_text_add(text, "%c%" PRId64, part ? ',' : '@', tri_cut_begin(cut, part));
}

static void add_number(tri_text *text, const char *name, double number)
{
    if (number != 0)
        tri_text_add(text, " %s=%.9g", name, number);
}

static void add_rope(const tri_attr *attr, tri_text *text)
{
    const tri_rope_config *rope = &attr->rope.config;
    add_number(text, "inverse", attr->rope.inverse);
    add_number(text, "theta", rope->theta);
    add_number(text, "factor", rope->factor);
    add_number(text, "low", rope->low_freq_factor);
    add_number(text, "high", rope->high_freq_factor);
    add_number(text, "original", rope->original_max_position);
    add_number(text, "scaling", rope->scaling);
    add_number(text, "turned", rope->turned);
    add_number(text, "magnitude", rope->magnitude);
}

static void add_product(const tri_instr *instr, tri_text *text)
{
    static const char *const epilogues[] = {"", "bias", "bias_gelu", "gelu_grad", "add"};
    const tri_matmul_attr *attr = &instr->attr.matmul;
    tri_text_add(text, "%s%s split=%d,%d %s", attr->trans_a ? " a^T" : "",
                 attr->trans_b ? " b^T" : "", attr->split_a, attr->split_b,
                 epilogues[attr->epilogue]);
    add_number(text, "alpha", attr->alpha);
    if (instr->num_in > 3) /* 8-bit operands, with their scales */
        tri_text_add(text, " %s%s", tri_dtype_name(attr->dtype), attr->fast_sum ? " fast" : "");
}

static void add_update(const tri_instr *instr, tri_text *text)
{
    const tri_update_attr *attr = &instr->attr.update;
    switch (instr->op) {
    case TRI_OP_FINISH:
        add_number(text, "alpha", instr->attr.finish.alpha);
        add_number(text, "clip", instr->attr.finish.clip);
        add_number(text, "interval", instr->attr.finish.interval);
        return;
    case TRI_OP_ADAM:
    case TRI_OP_ADAM8:
        add_number(text, "beta2", attr->beta2);
        add_number(text, "eps", attr->eps);
        add_number(text, "decoupled", attr->decoupled);
        break;
    case TRI_OP_LION:
        add_number(text, "beta2", attr->beta2);
        break;
    case TRI_OP_UNIT_NORM:
        add_number(text, "eps", attr->eps);
        return;
    case TRI_OP_APPLY_UPDATE:
        add_number(text, "alpha", attr->alpha);
        break;
    case TRI_OP_SGD:
    case TRI_OP_MOMENTUM:
        add_number(text, "nesterov", attr->nesterov);
        break;
    default:
        return;
    }
    if (instr->op != TRI_OP_APPLY_UPDATE)
        add_number(text, "beta1", attr->beta1);
    if (instr->op == TRI_OP_MOMENTUM)
        return;
    add_number(text, "weight_decay", attr->weight_decay);
    add_number(text, "lr_scale", attr->lr_scale);
}

static void add_attention(const tri_attention_attr *attr, tri_text *text)
{
    tri_text_add(text, " alpha=%.9g%s window=%d", (double)attr->alpha,
                 attr->causal ? " causal" : "", attr->window);
    if (attr->cached)
        tri_text_add(text, " cached");
    if (attr->soft_cap > 0)
        tri_text_add(text, " cap=%.9g", (double)attr->soft_cap);
    if (attr->dropout > 0)
        tri_text_add(text, " p=%.9g stream=%08x", (double)attr->dropout, attr->stream);
}

static bool reads_cut(tri_op op)
{
    return op == TRI_OP_ALL_GATHER || op == TRI_OP_REDUCE_SCATTER || op == TRI_OP_ALL_TO_ALL ||
           op == TRI_OP_SHIFT || op == TRI_OP_SLICE || op == TRI_OP_UNSLICE || op == TRI_OP_BLOCK ||
           op == TRI_OP_UNBLOCK;
}

static void add_quantise(const tri_quantise_attr *attr, tri_text *text)
{
    tri_text_add(text, " %s split=%d%s%s", tri_dtype_name(attr->dtype), attr->split,
                 attr->straight ? " straight" : "", attr->turned ? " turned" : "");
    if (attr->lead > 0)
        tri_text_add(text, " lead=%d", attr->lead);
}

/* What its kernel reads: one that is added to a family of operators belongs here. */
static void add_attributes(const tri_instr *instr, tri_text *text)
{
    static const char *const acts[] = {"gelu", "relu", "gelu_erf", "tanh", "silu"};
    static const char *const losses[] = {"sse", "mse", "mean"};
    const tri_attr *attr = &instr->attr;
    switch (instr->op) {
    case TRI_OP_MATMUL:
        add_product(instr, text);
        break;
    case TRI_OP_BIAS_GRAD:
        tri_text_add(text, " split=%d", attr->bias_grad.leading);
        break;
    case TRI_OP_ACT:
    case TRI_OP_ACT_GRAD:
        tri_text_add(text, " %s", acts[attr->act.kind]);
        break;
    case TRI_OP_DROPOUT:
        tri_text_add(text, " p=%.9g stream=%08x", (double)attr->dropout.p, attr->dropout.stream);
        break;
    case TRI_OP_AXPBY:
        tri_text_add(text, " %.9g,%.9g", (double)attr->axpby.alpha, (double)attr->axpby.beta);
        break;
    case TRI_OP_CAST:
        tri_text_add(text, " %s", tri_dtype_name(attr->cast.dtype));
        break;
    case TRI_OP_QUANTISE:
        add_quantise(&attr->quantise, text);
        break;
    case TRI_OP_LAYERNORM:
    case TRI_OP_ADD_LAYERNORM:
    case TRI_OP_RMSNORM:
    case TRI_OP_ADD_RMSNORM:
        add_number(text, "eps", attr->norm.eps);
        if (attr->norm.dims > 1)
            tri_text_add(text, " dims=%d", attr->norm.dims);
        break;
    case TRI_OP_ROPE:
        add_rope(attr, text);
        break;
    case TRI_OP_ATTENTION:
    case TRI_OP_ATTENTION_GRAD:
        add_attention(&attr->attention, text);
        break;
    case TRI_OP_OUT_LOSS:
    case TRI_OP_OUT_LOSS_GRAD:
        tri_text_add(text, " %s", losses[attr->loss.kind]);
        break;
    default:
        add_update(instr, text);
        break;
    }
    if (instr->op == TRI_OP_CE_GRAD || instr->op == TRI_OP_CROSS_ENTROPY ||
        instr->op == TRI_OP_OUT_LOSS_GRAD)
        add_number(text, "alpha", attr->loss.alpha);
    if (attr->wide_out)
        tri_text_add(text, " wide=%x", attr->wide_out);
    if (reads_cut(instr->op))
        add_cut(&attr->message.cut, text);
    add_flat(&attr->flat, text);
}

/* "f32[B 4, V 24@72/96]": of a dim that is cut over ranks, where this rank's piece begins and how
 * long the whole is. Rows of the batch are divided before, and not told. */
static void add_value(const tri_program *program, const tri_value *value, tri_text *text)
{
    tri_text_add(text, "%s[", tri_dtype_name(value->dtype));
    for (int d = 0; d < value->shape.rank; d++) {
        const tri_dim *dim = &value->shape.dim[d];
        tri_text_add(text, "%s%s %" PRId64, d ? ", " : "", tri_dim_letter(dim->name), dim->size);
        if (value->at.dim[d].num > 0 && dim->name != TRI_DIM_B) {
            int64_t begin;
            tri_placement_piece(&program->grid, &value->at.dim[d], value->whole.dim[d], NULL,
                                &begin);
            tri_text_add(text, "@%" PRId64 "/%" PRId64, begin, value->whole.dim[d].size);
        }
    }
    tri_text_add(text, "]");
    add_flat(&value->flat, text);
}

static void add_instr(const tri_program *program, const tri_instr *instr, tri_text *text)
{
    static const char *const writes[] = {"", "start ", "add ", "update "};
    tri_text_add(text, "%d %s", instr->layer, tri_op_get(instr->op)->name);
    add_attributes(instr, text);
    tri_text_add(text, "%s%s%s", instr->last_only ? " last_only" : "",
                 instr->first_only ? " first_only" : "", instr->redone ? " redone" : "");
    if (instr->message != TRI_NONE) {
        const tri_message *message = &program->messages[instr->message];
        bool leads = message->first == instr - program->instrs;
        if (!leads || message->count > 1) /* how many tensors travel from here on */
            tri_text_add(text, " span=%u", leads ? message->count : 0);
    }
    tri_text_add(text, " (");
    for (int j = 0; j < instr->num_in; j++) {
        tri_text_add(text, "%s", j ? ", " : "");
        if (instr->in[j].value == TRI_NONE)
            tri_text_add(text, "-");
        else
            add_value(program, &program->values[instr->in[j].value], text);
    }
    tri_text_add(text, ") -> ");
    for (int k = 0; k < instr->num_out; k++) {
        tri_text_add(text, "%s%s", k ? ", " : "", writes[instr->write[k]]);
        add_value(program, &program->values[instr->out[k].value], text);
    }
    tri_text_add(text, "  %.0f FLOP %.0f B\n", instr->cost.flops, instr->cost.bytes);
}

/* --- Names and addresses -------------------------------------------------------------------- */

static void add_names(const tri_program *program, const tri_instr *instr, tri_text *text)
{
    for (int j = 0; j < instr->num_in; j++)
        if (instr->in[j].value != TRI_NONE)
            tri_text_add(text, "%s ", program->values[instr->in[j].value].name);
    tri_text_add(text, "->");
    for (int k = 0; k < instr->num_out; k++)
        tri_text_add(text, " %s", program->values[instr->out[k].value].name);
    tri_text_add(text, "\n");
}

static void add_address(const tri_program *program, const tri_operand *operand, tri_text *text)
{
    if (operand->value == TRI_NONE)
        tri_text_add(text, " -");
    else
        tri_text_add(text, " %s+%" PRIx64, program->spaces[operand->space].name, operand->offset);
}

static void add_addresses(const tri_program *program, const tri_instr *instr, tri_text *text)
{
    tri_text_add(text, "%s", tri_op_get(instr->op)->name);
    for (int j = 0; j < instr->num_in; j++)
        add_address(program, &instr->in[j], text);
    tri_text_add(text, " ->");
    for (int k = 0; k < instr->num_out; k++)
        add_address(program, &instr->out[k], text);
    if (instr->scratch_bytes > 0)
        tri_text_add(text, " scratch %" PRIx64 "+%" PRIu64, instr->scratch_offset,
                     instr->scratch_bytes);
    tri_text_add(text, "\n");
}

/* Lines whose order is nobody's business: they are told in that of their text. */
static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_sorted(char **lines, size_t num, tri_text *text)
{
    text->failed |= !lines;
    for (size_t i = 0; lines && i < num; i++)
        text->failed |= !lines[i];
    if (!text->failed)
        qsort(lines, num, sizeof *lines, by_text);
    for (size_t i = 0; lines && i < num; i++) {
        if (!text->failed)
            tri_text_add(text, "%s", lines[i]);
        free(lines[i]);
    }
    free(lines);
}

static void add_states(const tri_program *program, tri_text *text)
{
    char **lines = calloc(program->num_states + 1, sizeof *lines);
    for (size_t s = 0; lines && s < program->num_states; s++) {
        const tri_state *state = &program->states[s];
        const tri_operand *home = &program->home[state->latest];
        tri_text line;
        tri_text_init(&line);
        tri_text_add(&line, "%s ", state->name);
        add_value(program, &program->values[state->latest], &line);
        tri_text_add(&line, " %s+%" PRIx64 "\n",
                     home->space == TRI_NONE ? "nowhere" : program->spaces[home->space].name,
                     home->offset);
        text->failed |= line.failed;
        lines[s] = line.chars;
    }
    add_sorted(lines, program->num_states, text);
}

static void add_spaces(const tri_program *program, tri_text *text)
{
    for (size_t s = 0; s < program->num_spaces; s++)
        if (tri_space_total(&program->spaces[s]) > 0)
            tri_text_add(text, "%s %" PRIu64 " x %u\n", program->spaces[s].name,
                         program->spaces[s].bytes, program->spaces[s].num_instances);
}

/* --- The timeline --------------------------------------------------------------------------- */

static void add_calls(const tri_program *program, tri_text *text)
{
    char name[24];
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        tri_text_add(text, "%s %u%s%s",
                     tri_segment_text(program, &program->segments[call->segment], name),
                     call->microbatch, call->first ? " first" : "", call->last ? " last" : "");
        if (call->copy_from != TRI_NONE)
            tri_text_add(text, " copy_from=%u", call->copy_from);
        for (size_t s = 0; s < program->num_spaces; s++) {
            const tri_space *space = &program->spaces[s];
            if (space->num_instances > 1 &&
                (space->kind != TRI_SPACE_FRAME || space->users[call->segment]))
                tri_text_add(text, " %s#%u", space->name, call->frame[s]);
        }
        tri_text_add(text, "\n");
    }
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_flight *flight = &program->flights[f];
        tri_text_add(text, "flight of %u.%u from %u.%u until %u.%u\n", flight->call, flight->instr,
                     flight->from_call, flight->from_instr, flight->wait_call, flight->wait_instr);
    }
}

/* --- Messages ------------------------------------------------------------------------------- */

/* Calls fn for every message of a step, in order. */
static void each_message(const tri_program *program,
                         void (*fn)(const tri_program *program, const tri_message *message,
                                    void *context),
                         void *context)
{
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (instr->message != TRI_NONE && tri_instr_leads(program, i) &&
                tri_call_runs(&program->calls[c], instr))
                fn(program, &program->messages[instr->message], context);
        }
    }
}

static const char *op_name(const tri_program *program, const tri_message *message)
{
    return tri_op_get(program->instrs[message->first].op)->name;
}

static void list_message(const tri_program *program, const tri_message *message, void *context)
{
    tri_text *text = context;
    const tri_rank_group *group = &program->groups[message->group];
    tri_text_add(text, "%s between", op_name(program, message));
    if (tri_message_pairwise(message)) {
        int own = tri_rank_group_member(group, group->own);
        int peer = tri_rank_group_member(group, message->peer);
        tri_text_add(text, " %d,%d", own < peer ? own : peer, own < peer ? peer : own);
    }
    for (uint32_t i = 0; i < group->size && !tri_message_pairwise(message); i++)
        tri_text_add(text, "%c%d", i ? ',' : ' ', tri_rank_group_member(group, i));
    if (message->kind == TRI_MESSAGE_BROADCAST)
        tri_text_add(text, " root %u", message->peer);
    if (message->kind == TRI_MESSAGE_SHIFT)
        tri_text_add(text, " %u on", message->peer);
    tri_text_add(text, ": %s %s, %" PRIu64 " bytes\n", program->values[message->value].name,
                 tri_dtype_name(message->dtype), tri_message_bytes(message));
}

/* --- A whole program ------------------------------------------------------------------------ */

void digest_program(const tri_program *program, tri_text text[DIGEST_PARTS])
{
    char name[24];
    for (size_t g = 0; g < program->num_segments; g++) {
        const tri_segment *segment = &program->segments[g];
        tri_text_add(&text[DIGEST_OPERATORS], "segment %s\n",
                     tri_segment_text(program, segment, name));
        for (uint32_t i = 0; i < segment->count; i++) {
            const tri_instr *instr = &program->instrs[segment->first + i];
            add_instr(program, instr, &text[DIGEST_OPERATORS]);
            add_names(program, instr, &text[DIGEST_NAMES]);
            add_addresses(program, instr, &text[DIGEST_ADDRESSES]);
        }
    }
    add_states(program, &text[DIGEST_ADDRESSES]);
    add_spaces(program, &text[DIGEST_ADDRESSES]);
    add_calls(program, &text[DIGEST_TIMELINE]);
    each_message(program, list_message, &text[DIGEST_MESSAGES]);
}

enum { MOST_LANES = 32 };
typedef struct message_totals {
    const char *name[MOST_LANES];
    uint64_t num[MOST_LANES][TRI_NUM_OPS], bytes[MOST_LANES][TRI_NUM_OPS];
} message_totals;

static void count_message(const tri_program *program, const tri_message *message, void *context)
{
    message_totals *totals = context;
    tri_op op = program->instrs[message->first].op;
    totals->name[message->lane] = program->groups[message->group].name;
    totals->num[message->lane][op]++;
    totals->bytes[message->lane][op] += tri_message_bytes(message);
}

static void add_message_totals(const tri_program *program, tri_text *text)
{
    message_totals totals = {0};
    char **lines = calloc((size_t)MOST_LANES * TRI_NUM_OPS, sizeof *lines);
    size_t num = 0;
    each_message(program, count_message, &totals);
    for (int lane = 0; lines && lane < MOST_LANES; lane++)
        for (int op = 0; op < TRI_NUM_OPS; op++) {
            tri_text line;
            if (!totals.num[lane][op])
                continue;
            tri_text_init(&line);
            tri_text_add(&line, " %s %s %" PRIu64 " of %" PRIu64 ";", totals.name[lane],
                         tri_op_get((tri_op)op)->name, totals.num[lane][op],
                         totals.bytes[lane][op]);
            text->failed |= line.failed;
            lines[num++] = line.chars;
        }
    add_sorted(lines, num, text);
}

void digest_totals(const tri_program *program, tri_text *text)
{
    tri_cost cost = tri_program_cost(program), redone = tri_program_redone(program);
    uint64_t frames = 0;
    tri_text_add(text, " %zu instructions, %zu segments, %zu calls, %zu flights",
                 program->num_instrs, program->num_segments, program->num_calls,
                 program->num_flights);
    tri_text_add(text, ", %.0f FLOP, %.0f bytes moved", cost.flops, cost.bytes);
    if (redone.bytes > 0)
        tri_text_add(text, ", %.0f FLOP redone", redone.flops);
    tri_text_add(text, "\n    memory");
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        if (space->kind == TRI_SPACE_FRAME)
            frames += tri_space_total(space);
        if (space->kind == TRI_SPACE_FRAME || tri_space_total(space) == 0)
            continue;
        tri_text_add(text, " %s %" PRIu64, space->name, space->bytes);
        if (space->num_instances > 1)
            tri_text_add(text, " x %u", space->num_instances);
        tri_text_add(text, ";");
    }
    if (frames > 0)
        tri_text_add(text, " frames %" PRIu64 ";", frames);
    tri_text_add(text, "\n    messages");
    add_message_totals(program, text);
    tri_text_add(text, "\n");
}
