/* The products of linear layers with 8-bit operands.
 *
 * A linear layer has three products, and all their operands are rounded: activations and weights to
 * e4m3, gradients of activations to e5m2, which reaches further. Each tensor has one scale, from
 * its largest element (ops/quantise.c). What products read is then
 *
 *     y  = x W^T         x, and W as it lies
 *     dx = dy W          dy, and the transpose of W
 *     dW = dy^T x        the transposes of dy and of x
 *
 * since the products of 8-bit operands that GPUs have take both with the contracted dim last. A
 * tensor is quantised once for all of its readers, just before the first of them:
 *
 * 1. An activation in the forward, with the transpose that the backward will want: that is kept for
 *    it, a byte for each element, and the 16-bit tensor is not unless something else reads it.
 * 2. A gradient in the backward, both ways in one pass.
 * 3. A weight once in the forward and once in the backward, so that no second copy of it lives in
 *    between; its largest element is found once.
 *
 * Products with the matrices of experts (grouped, grouped_grad) are such products, too. Rows that
 * are gathered for them are quantised while they are gathered, so that they never lie there in 16
 * bits; their largest is that of the tokens.
 *
 * The gradient of a bias, the sums of the columns of a gradient, comes with 2 where the device can.
 *
 * The pass runs on the graph of a rank after placement and fusing, so scales are of a rank's piece
 * of a tensor and nothing is exchanged for them; as they are powers of two, an element becomes the
 * same number whatever the piece, unless it is tiny. What is outside of the layers (embeddings, the
 * head), attention, norms and the update is left as it is, and so are products with a side that is
 * not a multiple of 16. */
#include <stdlib.h>

#include "graph/op_table.h"
#include "graph/passes.h"

enum { FORWARD, BACKWARD, NUM_PLACES };

/* What the products want of a value in one place, and what was made for them. */
typedef struct quantised {
    bool straight, turned; /* wanted */
    tri_id sums;           /* node that sums its columns, which is done on the way; TRI_NONE */
    tri_id scale, q, turned_q;
} quantised;

typedef struct quantiser {
    tri_graph *graph;
    bool sums;           /* of columns come with quantise */
    bool rides;          /* amax comes with activations and their gradients */
    const tri_node *old; /* the nodes as they were */
    size_t num_old;
    const tri_id *producer; /* of each value: as it was */
    tri_id *amax;           /* of each value */
    tri_id *expert;         /* of each value that is rows, some of them nobody's: their experts */
    uint8_t *split;         /* of each value: its 2-d view; 0: no product reads it */
    quantised *made[NUM_PLACES];
} quantiser;

static const tri_node *maker(const quantiser *q, tri_id value)
{
    return q->producer[value] == TRI_NONE ? NULL : &q->old[q->producer[value]];
}

static bool is_weight(const quantiser *q, tri_id value)
{
    const tri_node *node = maker(q, value);
    return q->graph->values[value].state != TRI_NONE || (node && node->op == TRI_OP_UNSHARD);
}

/* Made in the backward, and not by moving something of the forward. */
static bool is_gradient(const quantiser *q, tri_id value)
{
    const tri_node *node = maker(q, value);
    while (node && node->phase == TRI_PHASE_BACKWARD) {
        bool moves = tri_op_get(node->op)->communicates || node->op == TRI_OP_SLICE ||
                     node->op == TRI_OP_BLOCK || node->op == TRI_OP_UNBLOCK;
        if (!moves || node->num_in == 0 || node->in[0] == TRI_NONE)
            return node->op != TRI_OP_UNSHARD;
        if (is_weight(q, node->in[0]))
            return false;
        node = maker(q, node->in[0]);
    }
    return false;
}

static bool sides_fit(const tri_shape *shape, int split)
{
    int64_t rows = tri_shape_span(shape, 0, split);
    int64_t cols = tri_shape_span(shape, split, shape->rank);
    return rows > 0 && cols > 0 && rows % TRI_QUANTISE_UNIT == 0 && cols % TRI_QUANTISE_UNIT == 0;
}

/* An operand as a product reads it. */
typedef struct read_operand {
    tri_id value;
    uint8_t split;
    bool turned; /* its contracted dims are not last yet */
} read_operand;

static read_operand operand_of(const tri_graph *graph, const tri_node *node, int j)
{
    read_operand o = {.value = node->in[j]};
    uint8_t last = (uint8_t)(graph->values[o.value].shape.rank - 1);
    if (node->op == TRI_OP_MATMUL) {
        o.split = j == 0 ? node->attr.matmul.split_a : node->attr.matmul.split_b;
        o.turned = j == 0 ? node->attr.matmul.trans_a : !node->attr.matmul.trans_b;
    } else {
        o.split = last;
        o.turned = node->op == TRI_OP_GROUPED_GRAD || (j == 1 && node->attr.grouped.back);
    }
    return o;
}

static bool operands_fit(const quantiser *q, const tri_node *node)
{
    for (int j = 0; j < 2; j++) {
        const tri_value *value = &q->graph->values[node->in[j]];
        read_operand o = operand_of(q->graph, node, j);
        if (value->dtype != TRI_BF16 || o.split == 0 || !sides_fit(&value->shape, o.split) ||
            (q->split[o.value] && q->split[o.value] != o.split))
            return false;
    }
    return true;
}

/* Of an expert's matrix both sides. */
static bool experts_fit(const quantiser *q, const tri_node *node)
{
    const tri_shape *w = node->op == TRI_OP_GROUPED ? &q->graph->values[node->in[1]].shape
                                                    : &q->graph->values[node->out[0]].shape;
    return w->rank == 3 && w->dim[1].size % TRI_QUANTISE_UNIT == 0 &&
           w->dim[2].size % TRI_QUANTISE_UNIT == 0;
}

/* A product of a linear layer, or of experts: of an activation and a weight, of a gradient and a
 * weight, or of a gradient and an activation. */
static bool is_linear(const quantiser *q, const tri_node *node)
{
    bool matmul = node->op == TRI_OP_MATMUL, of_rows = node->op == TRI_OP_GROUPED;
    bool of_experts = of_rows || node->op == TRI_OP_GROUPED_GRAD;
    if ((!matmul && !of_experts) || node->phase == TRI_PHASE_UPDATE || node->layer < 0 ||
        node->layer >= q->graph->num_layers || (of_experts && !experts_fit(q, node)) ||
        !operands_fit(q, node))
        return false;
    bool forward = node->phase == TRI_PHASE_FORWARD;
    bool weights = is_weight(q, node->in[0]) + is_weight(q, node->in[1]) == 1;
    bool gradients = is_gradient(q, node->in[0]) + is_gradient(q, node->in[1]) == 1;
    if (of_rows && (!is_weight(q, node->in[1]) || node->attr.grouped.back == forward))
        return false;
    return forward ? weights : gradients;
}

static int place_of(const tri_node *node)
{
    return node->phase == TRI_PHASE_FORWARD ? FORWARD : BACKWARD;
}

static void find_wants(quantiser *q)
{
    for (size_t n = 0; n < q->num_old; n++) {
        const tri_node *node = &q->old[n];
        if (!is_linear(q, node))
            continue;
        for (int j = 0; j < 2; j++) {
            read_operand o = operand_of(q->graph, node, j);
            quantised *to = &q->made[place_of(node)][o.value];
            q->split[o.value] = o.split;
            to->straight |= !o.turned;
            to->turned |= o.turned;
            if (node->op != TRI_OP_MATMUL && node->attr.grouped.rows > 0 && !is_weight(q, o.value))
                q->expert[o.value] = node->in[2];
        }
    }
    for (size_t v = 0; v < q->graph->num_values; v++) {
        quantised *first = &q->made[FORWARD][v], *later = &q->made[BACKWARD][v];
        if (!first->straight && !first->turned)
            continue;
        if (is_weight(q, (tri_id)v))
            continue;
        first->straight |= later->straight;
        first->turned |= later->turned;
        *later = (quantised){.sums = TRI_NONE, .scale = TRI_NONE};
    }
}

/* Whether a value is read by the nodes in [from, to). */
static bool is_read(const quantiser *q, tri_id value, size_t from, size_t to)
{
    for (size_t n = from; n < to; n++)
        for (int j = 0; j < q->old[n].num_in; j++)
            if (q->old[n].in[j] == value)
                return true;
    return false;
}

/* The first contribution to the gradient of a bias, nobody reading it before the place it moves to.
 */
static bool may_move(const quantiser *q, tri_id sums)
{
    const tri_node *node = &q->old[sums];
    if (node->write[0] != TRI_WRITE_START || node->phase != TRI_PHASE_BACKWARD || node->last_only ||
        q->graph->values[node->out[0]].state == TRI_NONE ||
        node->attr.bias_grad.leading != q->split[node->in[0]])
        return false;
    for (size_t n = 0; n < q->num_old; n++)
        if (is_linear(q, &q->old[n]) &&
            (q->old[n].in[0] == node->in[0] || q->old[n].in[1] == node->in[0]))
            return q->old[n].phase == TRI_PHASE_BACKWARD &&
                   tri_node_chunk(q->graph, &q->old[n]) == tri_node_chunk(q->graph, node) &&
                   !is_read(q, node->out[0], sums, n);
    return false;
}

static void find_sums(quantiser *q)
{
    for (size_t n = 0; n < q->num_old && q->sums; n++) {
        const tri_node *node = &q->old[n];
        quantised *of = node->op == TRI_OP_BIAS_GRAD ? &q->made[BACKWARD][node->in[0]] : NULL;
        if (of && of->straight && of->turned && of->sums == TRI_NONE && may_move(q, (tri_id)n))
            of->sums = (tri_id)n;
    }
}

static bool is_sums(const quantiser *q, size_t n)
{
    const tri_node *node = &q->old[n];
    return node->op == TRI_OP_BIAS_GRAD && q->made[BACKWARD][node->in[0]].sums == n;
}

/* Where a value is quantised for a reader. */
static quantised *home_of(const quantiser *q, const tri_node *node, tri_id value)
{
    quantised *own = &q->made[place_of(node)][value];
    return own->straight || own->turned ? own : &q->made[FORWARD][value];
}

static tri_id emit(tri_graph *graph, tri_op op, tri_id value, const char *suffix,
                   const tri_attr *attr, const tri_id *in, int num_in, int num_out)
{
    const char *name = tri_arena_printf(&graph->arena, "%s%s", graph->values[value].name, suffix);
    return tri_graph_emit(graph, op, name, attr, in, num_in, num_out);
}

/* An output more of a node that was put back: f32, the largest of value. */
static tri_id add_amax(tri_graph *graph, tri_node *node, tri_id value)
{
    const tri_value *of = &graph->values[value];
    tri_id id = tri_graph_add_value(
        graph, (tri_value){.name = tri_arena_printf(&graph->arena, "%s.amax", of->name),
                           .shape = tri_shape_scalar(TRI_AMAX_PARTS),
                           .dtype = TRI_F32,
                           .kind = TRI_VALUE_TEMP,
                           .producer = of->producer,
                           .state = TRI_NONE});
    if (id == TRI_NONE)
        return TRI_NONE;
    node->out[node->num_out] = id;
    node->write[node->num_out] = TRI_WRITE_NEW;
    node->prev[node->num_out++] = TRI_NONE;
    return id;
}

/* Who makes a value in this phase may find its largest on the way. */
static void ride(quantiser *q, tri_id value)
{
    tri_graph *graph = q->graph;
    tri_id producer = graph->values[value].producer;
    tri_node *node = q->rides && producer != TRI_NONE ? &graph->nodes[producer] : NULL;
    if (!node || node->phase != graph->phase || graph->values[value].kind != TRI_VALUE_TEMP)
        return;
    bool rows = node->op == TRI_OP_SWIGLU_ROWS_GRAD; /* makes a third, too */
    bool one = node->op == TRI_OP_ACT || node->op == TRI_OP_ACT_GRAD || node->op == TRI_OP_SWIGLU ||
               node->op == TRI_OP_SWIGLU_ROWS;
    int num = one ? 1 : rows || node->op == TRI_OP_SWIGLU_GRAD ? 2 : 0;
    for (int k = 0; k < num && node->num_out < 2 * num + rows; k++)
        q->amax[node->out[k]] = add_amax(graph, node, node->out[k]);
}

/* Who gathers a value, all of whose rows are of the tokens that it gathers from; NULL otherwise. */
static const tri_node *gathers(const quantiser *q, tri_id value)
{
    const tri_node *node = maker(q, value);
    if (!node || node->op != TRI_OP_GATHER_ROWS || !node->attr.gather.each ||
        q->expert[value] != TRI_NONE || !maker(q, node->in[1]))
        return NULL;
    return maker(q, node->in[1])->op == TRI_OP_SORT_ROWS ? node : NULL;
}

static tri_id amax_of(quantiser *q, tri_id value)
{
    tri_id in[] = {value, q->expert[value]};
    if (q->amax[value] == TRI_NONE)
        ride(q, value);
    if (q->amax[value] == TRI_NONE) {
        tri_id node =
            emit(q->graph, TRI_OP_AMAX, value, "", NULL, in, in[1] == TRI_NONE ? 1 : 2, 1);
        q->amax[value] = node == TRI_NONE ? TRI_NONE : q->graph->nodes[node].out[0];
    }
    return q->amax[value];
}

static void quantise(quantiser *q, tri_id value, quantised *to)
{
    tri_graph *graph = q->graph;
    const tri_node *rows = gathers(q, value);
    tri_id from = rows ? rows->in[0] : value;
    tri_id in[] = {from, amax_of(q, from), rows ? rows->in[1] : TRI_NONE};
    tri_attr attr = {.quantise = {.split = q->split[value],
                                  .straight = to->straight,
                                  .turned = to->turned,
                                  .lead = rows ? rows->attr.gather.lead : 0,
                                  .dtype = is_gradient(q, value) ? TRI_F8E5M2 : TRI_F8E4M3}};
    const char *type = tri_dtype_name(attr.quantise.dtype);
    tri_id node = emit(graph, TRI_OP_QUANTISE, value, "", &attr, in, rows ? 3 : 2,
                       1 + to->straight + to->turned);
    if (node == TRI_NONE)
        return;
    if (to->sums != TRI_NONE) {
        tri_node *made = &graph->nodes[node];
        const tri_node *sums = &q->old[to->sums];
        made->attr.wide_out = (uint8_t)((sums->attr.wide_out & 1) << 3);
        made->out[3] = sums->out[0];
        made->write[3] = sums->write[0];
        made->prev[3] = sums->prev[0];
        made->num_out = 4;
        graph->values[sums->out[0]].producer = node;
    }
    const tri_id *out = graph->nodes[node].out;
    const char *name = graph->values[value].name;
    to->scale = out[0];
    if (to->straight) {
        to->q = out[1];
        graph->values[to->q].name = tri_arena_dotted(&graph->arena, name, type);
    }
    if (to->turned) {
        to->turned_q = out[1 + to->straight];
        graph->values[to->turned_q].name = tri_arena_printf(&graph->arena, "%s.%st", name, type);
    }
}

/* Operand j of a product as 8-bit, with its contracted dims last. */
static const quantised *narrowed(quantiser *q, const tri_node *old, int j, tri_id *operand_id)
{
    read_operand o = operand_of(q->graph, old, j);
    quantised *from = home_of(q, old, o.value);
    if (from->scale == TRI_NONE)
        quantise(q, o.value, from);
    *operand_id = o.turned ? from->turned_q : from->q;
    return from;
}

static void narrow_matmul(quantiser *q, const tri_node *old, tri_node *node)
{
    if (old->num_in == 2)
        node->in[2] = TRI_NONE;
    node->num_in = 5;
    for (int j = 0; j < 2; j++) {
        read_operand o = operand_of(q->graph, old, j);
        uint8_t rank = (uint8_t)q->graph->values[o.value].shape.rank;
        node->in[3 + j] = narrowed(q, old, j, &node->in[j])->scale;
        *(j == 0 ? &node->attr.matmul.split_a : &node->attr.matmul.split_b) =
            o.turned ? rank - o.split : o.split;
    }
    node->attr.matmul.trans_a = false;
    node->attr.matmul.trans_b = true;
    node->attr.matmul.dtype = q->graph->values[old->out[0]].dtype;
    node->attr.matmul.fast_sum = old->phase == TRI_PHASE_FORWARD;
}

static void narrow_grouped(quantiser *q, const tri_node *old, tri_node *node)
{
    bool grad = old->op == TRI_OP_GROUPED_GRAD;
    node->op = grad ? TRI_OP_GROUPED8_GRAD : TRI_OP_GROUPED8;
    node->num_in = (uint8_t)(old->num_in + 2);
    for (int j = 0; j < 2; j++)
        node->in[old->num_in + j] = narrowed(q, old, j, &node->in[j])->scale;
    node->attr.grouped.dtype = q->graph->values[old->out[0]].dtype;
    node->attr.grouped.fast_sum = old->phase == TRI_PHASE_FORWARD;
}

static void narrow_product(quantiser *q, const tri_node *old)
{
    tri_graph *graph = q->graph;
    tri_node node = *old;
    graph->phase = old->phase;
    graph->layer = old->layer;
    graph->ends_chain = false;
    if (old->op == TRI_OP_MATMUL)
        narrow_matmul(q, old, &node);
    else
        narrow_grouped(q, old, &node);
    tri_graph_append(graph, &node);
}

/* Rows that are gathered for nothing but what quantises them. */
static bool is_left_out(const quantiser *q, size_t n)
{
    const tri_node *node = &q->old[n];
    if (node->op != TRI_OP_GATHER_ROWS || !q->split[node->out[0]] || !gathers(q, node->out[0]))
        return false;
    for (size_t r = n + 1; r < q->num_old; r++)
        for (int j = 0; j < q->old[r].num_in; j++)
            if (q->old[r].in[j] == node->out[0] && !is_linear(q, &q->old[r]))
                return false;
    return true;
}

static void put_back(quantiser *q)
{
    tri_graph *graph = q->graph;
    find_wants(q);
    find_sums(q);
    for (size_t n = 0; n < q->num_old && graph->status == TR_OK && !graph->arena.failed; n++) {
        if (is_linear(q, &q->old[n]))
            narrow_product(q, &q->old[n]);
        else if (!is_sums(q, n) && !is_left_out(q, n))
            tri_graph_append(graph, &q->old[n]);
    }
}

tr_status tri_quantise_products(tri_graph *graph, const tri_fusions *can, tr_error *err)
{
    size_t num = graph->num_values;
    tri_id *ids = malloc((3 * num + 1) * sizeof *ids);
    uint8_t *split = calloc(num + 1, sizeof *split);
    quantised *made = malloc((NUM_PLACES * num + 1) * sizeof *made);
    quantiser q = {.graph = graph, .rides = can->amax, .sums = can->amax && can->norm_grads};
    tri_node *old = tri_graph_take_nodes(graph, &q.num_old);
    q.old = old;
    if (ids && split && made) {
        for (size_t v = 0; v < num; v++) {
            ids[v] = graph->values[v].producer;
            ids[num + v] = ids[2 * num + v] = TRI_NONE;
            made[v] = made[num + v] = (quantised){.sums = TRI_NONE, .scale = TRI_NONE};
        }
        q.producer = ids;
        q.amax = ids + num;
        q.expert = ids + 2 * num;
        q.split = split;
        q.made[FORWARD] = made;
        q.made[BACKWARD] = made + num;
        put_back(&q);
    } else {
        graph->arena.failed = true;
    }
    free(old);
    free(ids);
    free(split);
    free(made);
    if (graph->arena.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to quantise products");
    return tri_graph_status(graph, err);
}
