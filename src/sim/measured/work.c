#include "sim/measured/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/executor.h"

/* ---- kinds ---- */

typedef struct kind_text {
    char *at, *end;
} kind_text;

static void add(kind_text *w, const char *text)
{
    size_t room = (size_t)(w->end - w->at), length = strlen(text);
    if (length >= room)
        length = room - 1;
    memcpy(w->at, text, length);
    w->at += length;
    *w->at = 0;
}

static void add_types(kind_text *w, const tri_kernel_args *args)
{
    for (int j = 0; j < args->num_in && j < 2; j++) {
        add(w, j ? "," : "");
        add(w, args->in[j].count ? tri_dtype_name(args->in[j].dtype) : "-");
    }
    add(w, ">");
    add(w, args->num_out ? tri_dtype_name(args->out[0].dtype) : "-");
}

/* Which of the operands behind the second are there, as one number. */
static void add_given(kind_text *w, const tri_kernel_args *args)
{
    unsigned given = 0;
    char text[16];
    for (int j = 2; j < args->num_in; j++)
        given |= args->in[j].count > 0 ? 1U << (j - 2) : 0;
    snprintf(text, sizeof text, " /%x", given);
    if (given)
        add(w, text);
}

static void add_product(kind_text *w, const tri_matmul_attr *attr)
{
    static const char *const names[] = {[TRI_EPILOGUE_NONE] = "",
                                        [TRI_EPILOGUE_BIAS] = " +bias",
                                        [TRI_EPILOGUE_BIAS_GELU] = " +bias+gelu",
                                        [TRI_EPILOGUE_GELU_GRAD] = " +gelu'",
                                        [TRI_EPILOGUE_ADD] = " +other"};
    char text[8];
    snprintf(text, sizeof text, " %c%c", attr->trans_a ? 't' : 'n', attr->trans_b ? 't' : 'n');
    add(w, text);
    add(w, names[attr->epilogue]);
    add(w, attr->fast_sum ? " fast" : "");
}

static void add_attention(kind_text *w, const tri_attention_attr *attr)
{
    add(w, attr->causal ? " causal" : "");
    add(w, attr->window ? " window" : "");
    add(w, attr->dropout > 0 ? " dropout" : "");
    add(w, attr->soft_cap > 0 ? " cap" : "");
    add(w, attr->cached ? " cached" : "");
}

static void add_family(kind_text *w, const tri_instr *instr)
{
    char text[16];
    switch (tri_op_get(instr->op)->family) {
    case TRI_ATTR_MATMUL:
        add_product(w, &instr->attr.matmul);
        break;
    case TRI_ATTR_ATTENTION:
        add_attention(w, &instr->attr.attention);
        break;
    case TRI_ATTR_ACT:
        snprintf(text, sizeof text, " act%d", (int)instr->attr.act.kind);
        add(w, text);
        break;
    case TRI_ATTR_QUANTISE:
        add(w, instr->attr.quantise.straight ? " straight" : "");
        add(w, instr->attr.quantise.turned ? " turned" : "");
        break;
    case TRI_ATTR_GROUPED:
        add(w, instr->attr.grouped.back ? " back" : "");
        break;
    default:
        break;
    }
}

/* A result that is added to what is there is read, too. */
static bool adds_up(const tri_instr *instr, bool first)
{
    for (int k = 0; k < instr->num_out; k++)
        if (instr->write[k] == TRI_WRITE_ADD || (instr->write[k] == TRI_WRITE_START && !first))
            return true;
    return false;
}

/* ---- sizes ---- */

static double span(const tri_tensor *t, int from, int to)
{
    double count = 1;
    for (int d = from; d < to; d++)
        count *= (double)t->size[d];
    return count;
}

static void product_sizes(tri_work *work, const tri_kernel_args *args)
{
    const tri_matmul_attr *attr = &args->attr->matmul;
    const tri_tensor *a = &args->in[0], *b = &args->in[1];
    double a_rows = span(a, 0, attr->split_a), a_columns = span(a, attr->split_a, a->rank);
    double b_rows = span(b, 0, attr->split_b), b_columns = span(b, attr->split_b, b->rank);
    work->size[0] = attr->trans_a ? a_columns : a_rows;
    work->size[1] = attr->trans_b ? b_rows : b_columns;
    work->size[2] = attr->trans_a ? a_rows : a_columns;
}

/* q and k are [B, T, H, K], or of more dims of heads. */
static void attention_sizes(tri_work *work, const tri_kernel_args *args)
{
    bool back = work->op == TRI_OP_ATTENTION_GRAD;
    const tri_tensor *q = &args->in[back ? TRI_ATTENTION_GRAD_Q : TRI_ATTENTION_Q];
    const tri_tensor *k = &args->in[back ? TRI_ATTENTION_GRAD_K : TRI_ATTENTION_K];
    work->size[0] = (double)q->size[0] * span(q, 2, q->rank - 1);
    work->size[1] = (double)q->size[1];
    work->size[2] = (double)k->size[1];
    work->size[3] = (double)q->size[q->rank - 1];
}

/* Whether kernels of a family go row by row, so that the width of a row matters. */
static bool has_rows(tri_attr_family family)
{
    return family == TRI_ATTR_NORM || family == TRI_ATTR_LOSS || family == TRI_ATTR_LOOKUP ||
           family == TRI_ATTR_BIAS_GRAD || family == TRI_ATTR_ROPE;
}

tri_work tri_work_of(const tri_program *program, uint32_t i, bool first)
{
    const tri_instr *instr = &program->instrs[i];
    tri_work work = {.op = instr->op, .flops = instr->cost.flops, .bytes = instr->cost.bytes};
    kind_text w = {work.kind, work.kind + sizeof work.kind};
    tri_kernel_args args;
    tri_instr_args(program, instr, &args);
    tri_attr_family family = tri_op_get(instr->op)->family;
    add_types(&w, &args);
    add_family(&w, instr);
    add_given(&w, &args);
    add(&w, adds_up(instr, first) ? " sum" : "");
    add(&w, instr->where == TRI_WHERE_HOST ? " host" : "");
    const tri_tensor *x = &args.in[0];
    if (family == TRI_ATTR_MATMUL)
        product_sizes(&work, &args);
    else if (instr->op == TRI_OP_ATTENTION || instr->op == TRI_OP_ATTENTION_GRAD)
        attention_sizes(&work, &args);
    else
        work.size[0] = work.bytes;
    if (has_rows(family) && x->rank > 0)
        work.size[1] = (double)x->size[x->rank - 1];
    return work;
}

uint32_t tri_work_launch(const tri_program *program, uint32_t first, const bool *together)
{
    const tri_instr *instrs = program->instrs;
    uint32_t count = 1;
    while (together[instrs[first].op] && first + count < program->num_instrs &&
           instrs[first + count].op == instrs[first].op && !instrs[first + count].scratch_bytes)
        count++;
    return count;
}

tri_work_runs *tri_work_count(const tri_program *program)
{
    tri_work_runs *runs = calloc(program->num_instrs + 1, sizeof *runs);
    for (size_t c = 0; runs && c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        const tri_segment *segment = &program->segments[call->segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            if (!tri_call_runs(call, &program->instrs[i]))
                continue;
            *(call->first ? &runs[i].first : &runs[i].rest) += 1;
        }
    }
    return runs;
}
