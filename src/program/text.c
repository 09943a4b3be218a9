/* The program as text: what `trireme explain` and `trireme plan` print.
 *
 * Layers that repeat the instructions of the layer before them are folded into one line, and so are
 * the tensors of one message, unless everything is asked for. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "program/text_parts.h"

static const char *const action_titles[TRI_NUM_ALL_ACTIONS] = {
    [TRI_ACTION_F] = "forward",
    [TRI_ACTION_I] = "gradients of the activations",
    [TRI_ACTION_W] = "gradients of the weights",
    [TRI_ACTION_B] = "backward",
    [TRI_ACTION_U] = "update",
    [TRI_ACTION_SEND_F] = "its output to the next chunk",
    [TRI_ACTION_RECV_F] = "its input from the chunk before",
    [TRI_ACTION_SEND_B] = "the gradient of its input to the chunk before",
    [TRI_ACTION_RECV_B] = "the gradient of its output from the next chunk",
};

static const char *space_meaning(const tri_program *program, const tri_space *space)
{
    switch (space->kind) {
    case TRI_SPACE_PARAM:
        return "parameters";
    case TRI_SPACE_COPY:
        return "16-bit copies of them";
    case TRI_SPACE_GRAD:
        return "gradient accumulators";
    case TRI_SPACE_OPTIM:
        return "optimizer state";
    case TRI_SPACE_CACHE:
        return "keys and values";
    case TRI_SPACE_STAT:
        return "loss, count, norm";
    case TRI_SPACE_OUTPUT:
        return "results for the host";
    case TRI_SPACE_STEP:
        return "step inputs";
    case TRI_SPACE_BATCH:
        return "micro-batch inputs";
    case TRI_SPACE_GATHERED:
        return "weights put together";
    case TRI_SPACE_WORK:
        if (space->where != TRI_WHERE_DEVICE)
            return "copies on their way";
        return program->once && program->num_segments > 1 ? "values of the step"
                                                          : "workspace of a segment";
    case TRI_SPACE_FRAME:
        return "activations kept";
    }
    return "";
}

static void print_memory(const tri_program *program, tri_text *text)
{
    char each[16], all[16];
    uint64_t total[TRI_NUM_WHERE] = {0};
    int width = 10;
    for (size_t s = 0; s < program->num_spaces; s++)
        if (tri_space_total(&program->spaces[s]) > 0 &&
            (int)strlen(program->spaces[s].name) > width)
            width = (int)strlen(program->spaces[s].name);
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        if (tri_space_total(space) == 0)
            continue;
        total[space->where] += tri_space_total(space);
        tri_text_add(text, "  %-*s %-24s %12s   %" PRIu64 " bytes", width, space->name,
                     space_meaning(program, space),
                     tri_text_bytes((double)tri_space_total(space), all), tri_space_total(space));
        if (space->num_instances > 1)
            tri_text_add(text, " (%u of %s)", space->num_instances,
                         tri_text_bytes((double)space->bytes, each));
        tri_text_add(text, "\n");
        if (space->kind == TRI_SPACE_STEP && program->step_rows.num > 0) {
            tri_text_add(text, "  %-*s   sched:", width, "");
            for (size_t i = 0; i < program->step_rows.num; i++)
                tri_text_add(text, "%s %s", i ? "," : "", program->step_rows.row[i].name);
            tri_text_add(text, "\n");
        }
        if (s == TRI_SPACE_WORK && program->laid_grad_bytes > 0)
            tri_text_add(text, "  %-*s   with %s of gradients, laid where activations were\n",
                         width, "", tri_text_bytes((double)program->laid_grad_bytes, each));
    }
    for (int where = 0; where < TRI_NUM_WHERE; where++)
        if (where == TRI_WHERE_DEVICE || total[where] > 0)
            tri_text_add(text, "  %-*s %-24s %12s   %" PRIu64 " bytes\n", width, "total",
                         where == TRI_WHERE_DEVICE ? ""
                         : where == TRI_WHERE_HOST ? "on the host"
                                                   : "in the scratch file",
                         tri_text_bytes((double)total[where], all), total[where]);
}

/* "matmul+bias+gelu", "act gelu", "attention causal" */
static void op_text(const tri_instr *instr, char *out, size_t size)
{
    static const char *const act[] = {" gelu", " relu", " gelu_erf", " tanh", " silu"};
    static const char *const epilogue[][5] = {
        {"", "+bias", "+bias+gelu", "*gelu'", "+add"},
        {" 8-bit", " 8-bit+bias", " 8-bit+bias+gelu", " 8-bit*gelu'", " 8-bit+add"},
    };
    const char *name = tri_op_get(instr->op)->name, *more = "";
    switch (instr->op) {
    case TRI_OP_MATMUL:
        more = epilogue[instr->num_in > 3][instr->attr.matmul.epilogue];
        break;
    case TRI_OP_ACT:
    case TRI_OP_ACT_GRAD:
        more = act[instr->attr.act.kind];
        break;
    case TRI_OP_ATTENTION:
    case TRI_OP_ATTENTION_GRAD:
        more = instr->attr.attention.cached   ? " cached"
               : instr->attr.attention.causal ? " causal"
                                              : "";
        break;
    case TRI_OP_CE_GRAD:
    case TRI_OP_CROSS_ENTROPY:
        more = instr->attr.loss.z > 0 ? "+z" : "";
        break;
    case TRI_OP_FILL:
        more = isfinite(instr->attr.axpby.alpha) ? ""
               : instr->attr.axpby.alpha < 0     ? " -inf"
                                                 : " inf";
        break;
    case TRI_OP_ALL_REDUCE:
        more = instr->attr.message.how == TRI_PARTIAL_MAX   ? " max"
               : instr->attr.message.how == TRI_PARTIAL_MIN ? " min"
                                                            : "";
        break;
    default:
        break;
    }
    snprintf(out, size, "%s%s", name, more);
}

static void reads_text(const tri_program *program, const tri_instr *instr, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int j = 0; j < instr->num_in && used < size; j++) {
        if (instr->in[j].value == TRI_NONE)
            continue;
        bool transposed = instr->op == TRI_OP_MATMUL && ((j == 0 && instr->attr.matmul.trans_a) ||
                                                         (j == 1 && instr->attr.matmul.trans_b));
        used += (size_t)snprintf(out + used, size - used, "%s%s%s", used ? ", " : "",
                                 program->values[instr->in[j].value].name, transposed ? "^T" : "");
    }
}

/* "[B@dp 4, T 64, H@tp 2, K 16]": the sizes are those of this rank's piece. Slices have no dims. */
static void shape_text(const tri_program *program, const tri_value *value, char *out, size_t size)
{
    if (value->whole.rank == value->shape.rank)
        tri_placement_text(&program->grid, &value->at, &value->shape, out, size);
    else
        tri_shape_text(&value->shape, out, size);
}

/* Room for that: placements on several ranks take more of it. */
static int shape_width(const tri_program *program)
{
    return program->grid.num_factors > 0 ? 40 : 30;
}

/* Several tensors that travel in one message, as one line: the first, how many, where they begin
 * and end, and the last. */
static void print_bucket(const tri_program *program, const tri_message *m, tri_text *text)
{
    const tri_instr *head = &program->instrs[m->first], *last = head + m->count - 1;
    char op[48], tensors[32], address[48] = "-", flops[16], bytes[16];
    double sum_flops = 0, sum_bytes = 0;
    op_text(head, op, sizeof op);
    snprintf(tensors, sizeof tensors, "%u tensors, up to +%" PRIx64, m->count,
             m->writes.offset + m->writes.bytes);
    for (const tri_instr *instr = head; instr <= last; instr++) {
        sum_flops += instr->cost.flops;
        sum_bytes += instr->cost.bytes;
    }
    if (m->writes.space != TRI_NONE)
        tri_text_address(program, m->writes.space, m->writes.offset, address, sizeof address);
    tri_text_add(text, "%5u  %-22s %-28s    %-*s %-12s %8s %10s  to %s", m->first, op,
                 program->values[m->value].name, shape_width(program), tensors, address,
                 sum_flops > 0 ? tri_text_count(sum_flops, flops) : "-",
                 tri_text_bytes(sum_bytes, bytes), program->values[tri_instr_value(last)].name);
    tri_text_message(program, m->first, text);
    tri_text_add(text, "\n");
}

static void print_instr(const tri_program *program, size_t i, tri_text *text)
{
    const tri_instr *instr = &program->instrs[i];
    char op[48], shape[160], address[48], reads[512], flops[16], bytes[16];
    op_text(instr, op, sizeof op);
    reads_text(program, instr, reads, sizeof reads);
    if (instr->num_out == 0) {
        shape_text(program, &program->values[instr->in[0].value], shape, sizeof shape);
        tri_text_add(text, "%5zu  %-22s %-28s    %-*s %-12s %8s %10s  %s", i, op, "-",
                     shape_width(program), shape, "-", "-",
                     tri_text_bytes(instr->cost.bytes, bytes), reads);
        tri_text_message(program, i, text);
        tri_text_add(text, "\n");
    }
    for (int k = 0; k < instr->num_out; k++) {
        const tri_value *value = &program->values[instr->out[k].value];
        bool adds = instr->write[k] == TRI_WRITE_START || instr->write[k] == TRI_WRITE_ADD;
        tri_text_address(program, instr->out[k].space, instr->out[k].offset, address,
                         sizeof address);
        shape_text(program, value, shape, sizeof shape);
        if (k == 0)
            tri_text_add(text, "%5zu  %-22s", i, op);
        else
            tri_text_add(text, "%5s  %-22s", "", "");
        tri_text_add(text, " %-28s %s %-*s %-12s", value->name, adds ? "+=" : "  ",
                     shape_width(program), shape, address);
        if (k == 0)
            tri_text_add(text, " %8s %10s  %s",
                         instr->cost.flops > 0 ? tri_text_count(instr->cost.flops, flops) : "-",
                         tri_text_bytes(instr->cost.bytes, bytes), reads);
        if (k == 0)
            tri_text_message(program, i, text);
        tri_text_add(text, "\n");
    }
}

/* Of two instructions of one operator. */
static bool same_product(const tri_instr *a, const tri_instr *b)
{
    const tri_matmul_attr *x = &a->attr.matmul, *y = &b->attr.matmul;
    return a->op != TRI_OP_MATMUL ||
           (x->epilogue == y->epilogue && x->trans_a == y->trans_a && x->trans_b == y->trans_b);
}

/* Whether an instruction is folded into the line of its message, or leads one that is. */
static bool in_bucket(const tri_program *program, size_t i, bool all)
{
    uint32_t message = program->instrs[i].message;
    return !all && message != TRI_NONE && program->messages[message].count > 1;
}

/* An instruction, or all that travels with it; returns where the next begins. */
static size_t print_unit(const tri_program *program, size_t i, bool all, tri_text *text)
{
    if (!in_bucket(program, i, all)) {
        print_instr(program, i, text);
        return i + 1;
    }
    const tri_message *m = &program->messages[program->instrs[i].message];
    print_bucket(program, m, text);
    return m->first + m->count;
}

/* Whether statistics are joined in the same way, and begin with the same. */
static bool same_join(const tri_instr *a, const tri_instr *b)
{
    if (a->op == TRI_OP_FILL)
        return a->attr.axpby.alpha == b->attr.axpby.alpha;
    return a->op != TRI_OP_ALL_REDUCE || a->attr.message.how == b->attr.message.how;
}

/* Same operator, same shapes, same way of writing: the same instruction on other data. */
static bool alike(const tri_program *program, const tri_instr *a, const tri_instr *b,
                  bool same_shapes)
{
    if (a->op != b->op || a->num_in != b->num_in || a->num_out != b->num_out ||
        !same_product(a, b) || !same_join(a, b) || a->last_only != b->last_only ||
        a->first_only != b->first_only)
        return false;
    for (int k = 0; same_shapes && k < a->num_out; k++)
        if (a->write[k] != b->write[k] || !tri_shape_equal(&program->values[a->out[k].value].shape,
                                                           &program->values[b->out[k].value].shape))
            return false;
    return true;
}

/* End of the run of instructions of one layer that begins at i; what is folded into the line of a
 * message belongs to the layer of that line. */
static size_t layer_end(const tri_program *program, size_t i, size_t end, bool all)
{
    size_t j = i;
    while (j < end && (program->instrs[j].layer == program->instrs[i].layer ||
                       (in_bucket(program, j, all) && !tri_instr_leads(program, (uint32_t)j))))
        j++;
    return j;
}

static bool repeats_layer(const tri_program *program, size_t a, size_t a_end, size_t b,
                          size_t b_end)
{
    if (a_end - a != b_end - b)
        return false;
    for (size_t i = 0; i < a_end - a; i++)
        if (!alike(program, &program->instrs[a + i], &program->instrs[b + i], true))
            return false;
    return true;
}

static void layer_title(const tri_program *program, int layer, tri_text *text)
{
    if (layer < 0)
        tri_text_add(text, " before the layers\n");
    else if (layer >= program->num_layers)
        tri_text_add(text, " after the layers\n");
    else
        tri_text_add(text, " layer %d\n", layer);
}

/* Layer by layer, folding layers that repeat the one before. */
static void print_layers(const tri_program *program, size_t begin, size_t end, bool all,
                         tri_text *text)
{
    for (size_t i = begin; i < end;) {
        size_t i_end = layer_end(program, i, end, all), next = i_end;
        layer_title(program, program->instrs[i].layer, text);
        for (size_t n = i; n < i_end;)
            n = print_unit(program, n, all, text);
        int folded = 0, first = 0, last = 0;
        while (!all && next < end) {
            size_t next_end = layer_end(program, next, end, all);
            if (!repeats_layer(program, i, i_end, next, next_end))
                break;
            first = folded++ ? first : program->instrs[next].layer;
            last = program->instrs[next].layer;
            next = next_end;
        }
        if (folded == 1)
            tri_text_add(text, " layer %d: the same %zu instructions\n", first, i_end - i);
        else if (folded > 1)
            tri_text_add(text, " layers %d to %d: the same %zu instructions each\n", first, last,
                         i_end - i);
        i = next;
    }
}

/* Whether two instructions, if they communicate, do it with the same ranks. */
static bool same_group(const tri_program *program, const tri_instr *a, const tri_instr *b)
{
    return a->message == TRI_NONE || b->message == TRI_NONE ||
           program->messages[a->message].group == program->messages[b->message].group;
}

/* The update: runs of one operator over the parameters, folded. */
static void print_update(const tri_program *program, size_t begin, size_t end, bool all,
                         tri_text *text)
{
    for (size_t i = begin; i < end;) {
        bool bucket = in_bucket(program, i, all);
        size_t next = print_unit(program, i, all, text), more = 0;
        while (!all && next < end && in_bucket(program, next, all) == bucket &&
               same_group(program, &program->instrs[i], &program->instrs[next]) &&
               alike(program, &program->instrs[i], &program->instrs[next], false)) {
            next += bucket ? program->messages[program->instrs[next].message].count : 1;
            more++;
        }
        const tri_instr *last = &program->instrs[next - 1];
        tri_id named =
            last->num_in && last->in[0].value != TRI_NONE ? last->in[0].value : last->out[0].value;
        if (more > 0)
            tri_text_add(text, "       the same for %zu more%s, to %s\n", more,
                         !bucket     ? ""
                         : more == 1 ? " message"
                                     : " messages",
                         program->values[named].name);
        i = next;
    }
}

static void print_segment(const tri_program *program, const tri_segment *segment, bool all,
                          tri_text *text)
{
    double flops = 0, bytes = 0;
    char flops_text[16], bytes_text[16];
    size_t begin = segment->first, end = begin + segment->count;
    for (size_t i = begin; i < end; i++) {
        flops += program->instrs[i].cost.flops;
        bytes += program->instrs[i].cost.bytes;
    }
    char name[24];
    tri_text_add(text, "\nsegment %s: %s, %u instruction%s, %sFLOP, %s moved\n",
                 tri_segment_text(program, segment, name), action_titles[segment->action],
                 segment->count, segment->count == 1 ? "" : "s", tri_text_count(flops, flops_text),
                 tri_text_bytes(bytes, bytes_text));
    tri_text_add(text, "%5s  %-22s %-28s    %-*s %-12s %8s %10s  %s\n", "nr", "operator", "result",
                 shape_width(program), program->grid.num_factors > 0 ? "placement" : "shape",
                 "address", "FLOP", "bytes", "reads");
    if (segment->action == TRI_ACTION_U)
        print_update(program, begin, end, all, text);
    else
        print_layers(program, begin, end, all, text);
}

static void print_timeline(const tri_program *program, bool all, tri_text *text)
{
    tri_text_add(text, "\ntimeline: %zu call%s\n", program->num_calls,
                 program->num_calls == 1 ? "" : "s");
    for (size_t i = 0; i < program->num_calls; i++) {
        if (!all && program->num_calls > 24 && i == 12) {
            tri_text_add(text, "    ...  %zu calls in the same order\n", program->num_calls - 16);
            i = program->num_calls - 4;
        }
        const tri_call *call = &program->calls[i];
        tri_action_kind kind = program->segments[call->segment].action;
        char name[24];
        if (call->pair && call->nth == 0)
            tri_text_add(text, "       as one, in the order of pair %u:\n", call->pair);
        tri_text_add(text, "%5zu  %s", i,
                     tri_segment_text(program, &program->segments[call->segment], name));
        if (kind != TRI_ACTION_U)
            tri_text_add(text, "  micro-batch %u", call->microbatch);
        for (size_t s = 0; s < program->num_spaces; s++)
            if (program->spaces[s].kind == TRI_SPACE_FRAME &&
                program->spaces[s].users[call->segment])
                tri_text_add(text, "  %s #%u", program->spaces[s].name, call->frame[s]);
        if (program->spaces[TRI_SPACE_PARAM].num_instances > 1 && tri_action_computes(kind)) {
            if (call->copy_from != TRI_NONE)
                tri_text_add(text, "  copies weights #%u,", call->copy_from);
            tri_text_add(text, "  weights #%u", call->frame[TRI_SPACE_PARAM]);
        }
        if (tri_action_computes(kind) && kind != TRI_ACTION_U && kind != TRI_ACTION_I)
            tri_text_add(text, "  %s", call->first ? "starts the sums" : "adds to the sums");
        tri_text_add(text, "\n");
    }
}

void tri_program_redone_text(const tri_program *program, tri_text *text)
{
    char flops[16], bytes[16];
    tri_cost redone = tri_program_redone(program), all = tri_program_cost(program);
    if (redone.bytes > 0)
        tri_text_add(
            text, "recomputed: %sFLOP of them, %.1f %% more than the model's own, %s moved\n",
            tri_text_count(redone.flops, flops), 100 * redone.flops / (all.flops - redone.flops),
            tri_text_bytes(redone.bytes, bytes));
}

static void print_totals(const tri_program *program, bool by_operator, tri_text *text)
{
    char flops[16], bytes[16];
    tri_cost cost = tri_program_cost(program);
    double by_op[TRI_NUM_OPS] = {0}, bytes_by_op[TRI_NUM_OPS] = {0};
    size_t calls[TRI_NUM_OPS] = {0};
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        for (uint32_t i = 0; i < segment->count; i++) {
            const tri_instr *instr = &program->instrs[segment->first + i];
            if (!tri_call_runs(&program->calls[c], instr))
                continue;
            by_op[instr->op] += instr->cost.flops;
            bytes_by_op[instr->op] += instr->cost.bytes;
            calls[instr->op]++;
        }
    }
    tri_text_add(text, "\na step: %sFLOP, %s moved by instructions\n",
                 tri_text_count(cost.flops, flops), tri_text_bytes(cost.bytes, bytes));
    tri_program_redone_text(program, text);
    tri_text_traffic(program, text);
    if (!by_operator)
        return;
    tri_text_add(text, "  %-22s %8s %12s %12s\n", "operator", "calls", "FLOP", "bytes");
    for (int op = 0; op < TRI_NUM_OPS; op++)
        if (calls[op])
            tri_text_add(text, "  %-22s %8zu %12s %12s\n", tri_op_get((tri_op)op)->name, calls[op],
                         tri_text_count(by_op[op], flops), tri_text_bytes(bytes_by_op[op], bytes));
}

void tri_program_explain(const tri_program *program, const tri_explain_options *options,
                         tri_text *text)
{
    tri_text_add(text, "memory\n");
    print_memory(program, text);
    if (!options->summary) {
        print_timeline(program, options->all, text);
        tri_text_pairs(program, options->all, text);
        for (size_t s = 0; s < program->num_segments; s++)
            print_segment(program, &program->segments[s], options->all, text);
    }
    print_totals(program, options->summary, text);
}
