/* Which tensor is which item of the textbook is found from the operators around it, not from its
 * name: what attention reads is q, k and v; what the product behind them reads is their input; and
 * so on. So it holds for every model that has such layers, cut over tp and sp or not. */
#include "program/ledger.h"

#include <stdlib.h>

/* Instructions after the forward that read a value. */
typedef struct reading {
    uint32_t first, last, num;
} reading;

typedef struct bookkeeper {
    const tri_program *program;
    tri_ledger *ledger;
    bool *forward;   /* of each instruction: it is of the forward */
    uint32_t *maker; /* of each value: the instruction of the forward that makes it, or TRI_NONE */
    uint8_t *role;   /* of each value: its item + 1, or 0 */
    int *layer_of;   /* of each value with a role */
    reading *readings;
} bookkeeper;

/* Whether a segment is of the forward; a pipeline receives and sends in segments of their own. */
static bool is_forward(const tri_segment *segment)
{
    return segment->action == TRI_ACTION_F || segment->action == TRI_ACTION_RECV_F ||
           segment->action == TRI_ACTION_SEND_F;
}

static tri_ledger_layer *layer_at(const bookkeeper *k, int layer)
{
    return &k->ledger->layers[layer + 1];
}

static void take_role(bookkeeper *k, int layer, tri_book book, tri_id value)
{
    if (value == TRI_NONE || k->role[value])
        return;
    k->role[value] = (uint8_t)(book + 1);
    k->layer_of[value] = layer;
}

/* What is kept of an operand of a product: where it is 8-bit, the transpose that was made with it.
 */
static tri_id kept_operand(const bookkeeper *k, tri_id value)
{
    if (value == TRI_NONE || k->maker[value] == TRI_NONE)
        return value;
    const tri_instr *instr = &k->program->instrs[k->maker[value]];
    bool both = instr->op == TRI_OP_QUANTISE && instr->attr.quantise.turned;
    return both ? instr->out[instr->num_out - 1].value : value;
}

/* What the product that a value comes from reads, or TRI_NONE. */
static tri_id input_of_product(const bookkeeper *k, tri_id value)
{
    while (value != TRI_NONE && k->maker[value] != TRI_NONE) {
        const tri_instr *instr = &k->program->instrs[k->maker[value]];
        value = instr->in[0].value;
        switch (instr->op) {
        case TRI_OP_MATMUL:
            return kept_operand(k, value);
        case TRI_OP_BIAS_ADD:
        case TRI_OP_ROPE:
        case TRI_OP_RMSNORM:
        case TRI_OP_LAYERNORM:
        case TRI_OP_CAST:
            break;
        default:
            return TRI_NONE;
        }
    }
    return TRI_NONE;
}

static int64_t dim_of(const tri_value *value, tri_dim_name name)
{
    for (int d = 0; d < value->shape.rank; d++)
        if (value->shape.dim[d].name == name)
            return value->shape.dim[d].size;
    return 0;
}

static void note_attention(bookkeeper *k, const tri_instr *instr)
{
    tri_ledger_layer *layer = layer_at(k, instr->layer);
    const tri_value *q = &k->program->values[instr->in[0].value];
    layer->b = dim_of(q, TRI_DIM_B);
    layer->s = dim_of(q, TRI_DIM_T);
    layer->a = dim_of(q, TRI_DIM_H);
    layer->k = dim_of(q, TRI_DIM_K);
    layer->e = (int64_t)tri_dtype_bytes(q->dtype);
    layer->drops |= instr->attr.attention.dropout > 0;
    for (int j = 0; j < 3; j++)
        take_role(k, instr->layer, TRI_BOOK_QKV, instr->in[j].value);
    take_role(k, instr->layer, TRI_BOOK_QKV_IN, input_of_product(k, instr->in[0].value));
    take_role(k, instr->layer, TRI_BOOK_PROJ_IN, instr->out[0].value);
}

/* Norms of the residual stream; those of queries and keys are over the width of a head. */
static void note_norm(bookkeeper *k, const tri_instr *instr)
{
    bool adds = instr->op == TRI_OP_ADD_LAYERNORM || instr->op == TRI_OP_ADD_RMSNORM;
    tri_id input = adds ? instr->out[0].value : instr->in[0].value;
    const tri_value *value = &k->program->values[input];
    tri_ledger_layer *layer = layer_at(k, instr->layer);
    if (dim_of(value, TRI_DIM_D) == 0)
        return;
    take_role(k, instr->layer, layer->h == 0 ? TRI_BOOK_NORM_1 : TRI_BOOK_NORM_2, input);
    layer->h = dim_of(value, TRI_DIM_D);
    layer->s_own = dim_of(value, TRI_DIM_T);
}

static void note_act(bookkeeper *k, const tri_instr *instr, tri_id in, tri_id out)
{
    layer_at(k, instr->layer)->f = dim_of(&k->program->values[out], TRI_DIM_F);
    take_role(k, instr->layer, TRI_BOOK_ACT_IN, in);
    take_role(k, instr->layer, TRI_BOOK_ACT_OUT, out);
    /* A fused product has its input beside it. */
    tri_id from =
        instr->op == TRI_OP_MATMUL ? kept_operand(k, instr->in[0].value) : input_of_product(k, in);
    take_role(k, instr->layer, TRI_BOOK_FFN_IN, from);
}

static void note_instr(bookkeeper *k, const tri_instr *instr)
{
    switch (instr->op) {
    case TRI_OP_ATTENTION:
        note_attention(k, instr);
        break;
    case TRI_OP_LAYERNORM:
    case TRI_OP_RMSNORM:
    case TRI_OP_ADD_LAYERNORM:
    case TRI_OP_ADD_RMSNORM:
        note_norm(k, instr);
        break;
    case TRI_OP_ACT:
    case TRI_OP_SWIGLU:
        note_act(k, instr, instr->in[0].value, instr->out[0].value);
        break;
    case TRI_OP_MATMUL:
        if (instr->attr.matmul.epilogue == TRI_EPILOGUE_BIAS_GELU)
            note_act(k, instr, instr->out[1].value, instr->out[0].value);
        break;
    case TRI_OP_DROPOUT:
        layer_at(k, instr->layer)->drops = true;
        break;
    default:
        break;
    }
}

/* The 8-bit transpose of what has a role has it too. */
static void note_quantised(bookkeeper *k, const tri_instr *instr)
{
    tri_id from = instr->in[0].value;
    if (instr->op == TRI_OP_QUANTISE && instr->attr.quantise.turned && k->role[from])
        take_role(k, k->layer_of[from], (tri_book)(k->role[from] - 1),
                  instr->out[instr->num_out - 1].value);
}

static void write_book(tri_ledger_layer *layer)
{
    uint64_t stream = (uint64_t)(layer->s_own * layer->b * layer->h), e = (uint64_t)layer->e;
    uint64_t heads = (uint64_t)(layer->s * layer->b * layer->a * layer->k);
    uint64_t hidden = (uint64_t)(layer->s * layer->b * layer->f);
    uint64_t scores = (uint64_t)(layer->a * layer->b * layer->s * layer->s);
    layer->has_book = stream > 0 && heads > 0 && hidden > 0;
    if (!layer->has_book)
        return;
    layer->book[TRI_BOOK_NORM_1] = layer->book[TRI_BOOK_NORM_2] = e * stream;
    layer->book[TRI_BOOK_QKV_IN] = layer->book[TRI_BOOK_FFN_IN] = e * stream;
    layer->book[TRI_BOOK_ATTENTION_MASK] = layer->book[TRI_BOOK_FFN_MASK] = stream;
    layer->book[TRI_BOOK_QKV] = 3 * e * heads;
    layer->book[TRI_BOOK_PROJ_IN] = e * heads;
    layer->book[TRI_BOOK_SOFTMAX] = layer->book[TRI_BOOK_SOFTMAX_DROPPED] = e * scores;
    layer->book[TRI_BOOK_SOFTMAX_MASK] = scores;
    layer->book[TRI_BOOK_ACT_IN] = layer->book[TRI_BOOK_ACT_OUT] = e * hidden;
}

/* Who reads each value of the forward after it: one walk over all instructions, since asking for
 * each value alone would take the square of a deep model. */
static void note_readers(bookkeeper *k)
{
    const tri_program *program = k->program;
    for (uint32_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        for (int j = 0; !k->forward[i] && j < instr->num_in; j++) {
            tri_id value = instr->in[j].value;
            if (value == TRI_NONE || k->maker[value] == TRI_NONE || k->maker[value] >= i)
                continue;
            reading *r = &k->readings[value];
            if (r->num == 0)
                r->first = i;
            r->num += r->num == 0 || r->last != i; /* once, however often it reads it */
            r->last = i;
        }
    }
}

static void enter(bookkeeper *k, tri_id value)
{
    const tri_program *program = k->program;
    const tri_operand *home = &program->home[value];
    tri_ledger *ledger = k->ledger;
    tri_ledger_entry entry = {.value = value, .book = TRI_NUM_BOOK};
    if (k->maker[value] == TRI_NONE || home->space == TRI_NONE)
        return;
    tri_space_kind kind = program->spaces[home->space].kind;
    const reading *r = &k->readings[value];
    if ((kind != TRI_SPACE_FRAME && kind != TRI_SPACE_WORK) || r->num == 0)
        return;
    entry.reader = r->first;
    entry.num_more = r->num - 1;
    entry.layer = k->role[value] ? k->layer_of[value] : program->instrs[k->maker[value]].layer;
    tri_ledger_layer *layer = layer_at(k, entry.layer);
    entry.bytes = tri_value_bytes(&program->values[value]);
    entry.room = (entry.bytes + TRI_PROGRAM_ALIGN - 1) / TRI_PROGRAM_ALIGN * TRI_PROGRAM_ALIGN;
    if (k->role[value] && layer->has_book) {
        entry.book = (tri_book)(k->role[value] - 1);
        layer->stored[entry.book] += entry.bytes;
    } else {
        layer->others += entry.bytes;
    }
    layer->padding += entry.room - entry.bytes;
    layer->kept += entry.room;
    layer->num_entries++;
    ledger->kept += entry.room;
    ledger->entries[ledger->num_entries++] = entry;
}

static int by_layer(const void *a, const void *b)
{
    const tri_ledger_entry *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static void keep_books(bookkeeper *k)
{
    const tri_program *program = k->program;
    for (size_t v = 0; v < program->num_values; v++)
        k->maker[v] = TRI_NONE;
    for (size_t s = 0; s < program->num_segments; s++)
        for (uint32_t i = 0; i < program->segments[s].count; i++)
            k->forward[program->segments[s].first + i] = is_forward(&program->segments[s]);
    for (uint32_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        if (instr->redone)
            layer_at(k, instr->layer)->redone = true;
        for (int o = 0; k->forward[i] && !instr->first_only && o < instr->num_out; o++)
            k->maker[instr->out[o].value] = i; /* weights that stay are no activations */
    }
    for (uint32_t i = 0; i < program->num_instrs; i++)
        if (k->forward[i])
            note_instr(k, &program->instrs[i]);
    for (uint32_t i = 0; i < program->num_instrs; i++)
        if (k->forward[i])
            note_quantised(k, &program->instrs[i]);
    for (int l = 0; l < k->ledger->num_layers; l++)
        write_book(layer_at(k, l));
    note_readers(k);
    for (size_t v = 0; v < program->num_values; v++)
        enter(k, (tri_id)v);
    qsort(k->ledger->entries, k->ledger->num_entries, sizeof *k->ledger->entries, by_layer);
}

tr_status tri_ledger_make(const tri_program *program, tri_ledger *ledger, tr_error *err)
{
    size_t num = program->num_values + 1;
    bookkeeper k = {.program = program, .ledger = ledger};
    *ledger = (tri_ledger){.program = program, .num_layers = program->num_layers};
    ledger->entries = calloc(num, sizeof *ledger->entries);
    ledger->layers = calloc((size_t)program->num_layers + 2, sizeof *ledger->layers);
    k.forward = calloc(program->num_instrs + 1, sizeof *k.forward);
    k.maker = malloc(num * sizeof *k.maker);
    k.role = calloc(num, sizeof *k.role);
    k.layer_of = calloc(num, sizeof *k.layer_of);
    k.readings = calloc(num, sizeof *k.readings);
    bool ready = ledger->entries && ledger->layers && k.forward && k.maker && k.role &&
                 k.layer_of && k.readings;
    if (ready)
        keep_books(&k);
    else
        tri_ledger_fini(ledger);
    free(k.forward);
    free(k.maker);
    free(k.role);
    free(k.layer_of);
    free(k.readings);
    return ready ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the ledger");
}

void tri_ledger_fini(tri_ledger *ledger)
{
    free(ledger->entries);
    free(ledger->layers);
    *ledger = (tri_ledger){0};
}

uint64_t tri_ledger_book_total(const tri_ledger_layer *layer)
{
    uint64_t total = 0;
    for (int i = 0; i < TRI_NUM_BOOK; i++)
        total += layer->book[i];
    return total;
}

uint64_t tri_ledger_missing(const tri_ledger_layer *layer)
{
    uint64_t total = 0;
    for (int i = 0; i < TRI_NUM_BOOK; i++)
        if (layer->stored[i] < layer->book[i])
            total += layer->book[i] - layer->stored[i];
    return total;
}

uint64_t tri_ledger_extra(const tri_ledger_layer *layer)
{
    uint64_t total = layer->others + layer->padding;
    for (int i = 0; i < TRI_NUM_BOOK; i++)
        if (layer->stored[i] > layer->book[i])
            total += layer->stored[i] - layer->book[i];
    return total;
}
