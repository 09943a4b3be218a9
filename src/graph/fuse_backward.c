/* Passes that join what the backward would otherwise read twice. Each is an identity in exact
 * arithmetic, and done only where the device says that it gains by it.
 *
 * - An addition of a product moves into the product.
 * - The gradient of a norm's input and those of its parameters read the same two values; when the
 *   result is also summed over rows, as the gradient of the bias before the residual sum, that sum
 *   comes with it.
 * - Cross-entropy of whole rows: statistics, loss and gradient in one pass over the logits. The
 *   gradient is then made in the forward, in the place of the logits.
 * - Adam writes the 16-bit copy of a parameter while it has the parameter at hand. */
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"
#include "graph/passes.h"

typedef struct joiner {
    tri_graph *graph;
    uint32_t *uses;
    bool *dead;
} joiner;

/* The live node that made a temporary, or NULL. */
static tri_node *maker(const joiner *j, tri_id value)
{
    const tri_value *v = &j->graph->values[value];
    bool made = v->kind == TRI_VALUE_TEMP && v->producer != TRI_NONE && !j->dead[v->producer];
    return made ? &j->graph->nodes[v->producer] : NULL;
}

static void kill(joiner *j, const tri_node *node)
{
    j->dead[node - j->graph->nodes] = true;
}

/* Puts a node in the place of another and lets its outputs know. */
static void replace(joiner *j, tri_node *place, const tri_node *node)
{
    *place = *node;
    for (int k = 0; k < place->num_out; k++)
        j->graph->values[place->out[k]].producer = (tri_id)(place - j->graph->nodes);
}

/* The next live node of this kind after `from`, in the same chunk, that reads `value` as its first
 * input; or NULL. */
static tri_node *reader(const joiner *j, const tri_node *from, tri_op op, tri_id value)
{
    const tri_graph *graph = j->graph;
    for (size_t n = (size_t)(from - graph->nodes) + 1; n < graph->num_nodes; n++) {
        tri_node *node = &graph->nodes[n];
        if (!j->dead[n] && node->op == op && node->in[0] == value &&
            tri_node_chunk(graph, node) == tri_node_chunk(graph, from))
            return node;
    }
    return NULL;
}

/* ---- additions ---- */

static tri_node *plain_product(const joiner *j, tri_id value, tri_phase phase)
{
    tri_node *node = maker(j, value);
    bool fits = node && node->op == TRI_OP_MATMUL &&
                node->attr.matmul.epilogue == TRI_EPILOGUE_NONE &&
                node->write[0] == TRI_WRITE_NEW && node->phase == phase && j->uses[value] == 1;
    return fits ? node : NULL;
}

/* The later of two products takes the addition, so that the chain of a longer sum is kept. */
static void join_add(joiner *j, tri_node *add)
{
    tri_id a = add->in[0], b = add->in[1];
    if (a == b || add->write[0] != TRI_WRITE_NEW)
        return;
    tri_node *first = plain_product(j, a, add->phase), *second = plain_product(j, b, add->phase);
    tri_node *product = first > second ? first : second;
    if (!product || tri_node_chunk(j->graph, product) != tri_node_chunk(j->graph, add))
        return;
    tri_id other = product == first ? b : a;
    const tri_value *term = &j->graph->values[other], *sum = &j->graph->values[add->out[0]];
    /* Parts of a gradient that travels in a bucket lie where the sum goes; a product does not work
     * in place. */
    if (term->dtype != sum->dtype || (term->bucket && term->bucket == sum->bucket))
        return;
    tri_node joined = *product;
    joined.attr.matmul.epilogue = TRI_EPILOGUE_ADD;
    joined.in[2] = other;
    joined.num_in = 3;
    joined.out[0] = add->out[0];
    kill(j, product);
    replace(j, add, &joined);
}

/* ---- norms ---- */

/* An output that moves to an earlier place must not be a later contribution to its sum. */
static bool may_move(const tri_node *node, int k)
{
    return node->write[k] == TRI_WRITE_NEW || node->write[k] == TRI_WRITE_START;
}

static void take_output(tri_node *to, const tri_node *from, int k)
{
    to->out[to->num_out] = from->out[k];
    to->write[to->num_out] = from->write[k];
    to->prev[to->num_out++] = from->prev[k];
}

static void join_norm(joiner *j, tri_node *grad, tri_op param_op, tri_op joined_op)
{
    tri_node *params = reader(j, grad, param_op, grad->in[0]);
    if (!params || params->in[1] != grad->in[1] || params->in[2] != grad->in[3] ||
        params->phase != grad->phase || grad->ends_chain)
        return;
    for (int k = 0; k < params->num_out; k++) /* all start their sums, or none does */
        if (!may_move(params, k) || params->write[k] != params->write[0])
            return;
    tri_node joined = *grad;
    joined.op = joined_op;
    joined.num_in = 5;
    joined.in[4] = grad->num_in > 4 ? grad->in[4] : TRI_NONE;
    for (int k = 0; k < params->num_out; k++)
        take_output(&joined, params, k);
    tri_node *bias = reader(j, grad, TRI_OP_BIAS_GRAD, grad->out[0]);
    const tri_shape *dx = &j->graph->values[grad->out[0]].shape;
    int leading = dx->rank - tri_node_norm_dims(grad);
    if (bias && bias->attr.bias_grad.leading == leading && bias->phase == grad->phase &&
        bias->write[0] == params->write[0]) {
        joined.attr.wide_out |= (uint8_t)((bias->attr.wide_out & 1) << joined.num_out);
        take_output(&joined, bias, 0);
        kill(j, bias);
    }
    kill(j, params);
    replace(j, grad, &joined);
}

/* ---- cross-entropy ---- */

/* Whether some dim is cut, but for the rows of the batch. */
static bool is_cut(const tri_graph *graph, tri_id id)
{
    const tri_value *value = &graph->values[id];
    for (int d = 0; d < value->shape.rank; d++)
        if (value->at.dim[d].num > 0 && value->shape.dim[d].name != TRI_DIM_B)
            return true;
    return false;
}

static void join_cross_entropy(joiner *j, tri_node *loss)
{
    tri_graph *graph = j->graph;
    tri_node *stats = maker(j, loss->in[0]);
    if (!stats || stats->op != TRI_OP_CE_STATS || j->uses[loss->in[0]] != 1 ||
        is_cut(graph, stats->in[0]) || loss->write[0] != loss->write[1])
        return;
    tri_node *grad = reader(j, loss, TRI_OP_CE_GRAD, stats->in[0]);
    if (!grad || grad->in[2] != loss->out[2] || j->uses[loss->out[2]] != 1 ||
        j->uses[stats->in[0]] != 2 || grad->in[1] != loss->in[1] || grad->in[1] != stats->in[1])
        return;
    tri_node joined = *loss;
    joined.op = TRI_OP_CROSS_ENTROPY;
    joined.attr = grad->attr;
    memcpy(joined.attr.loss.stat, loss->attr.loss.stat, sizeof joined.attr.loss.stat);
    joined.in[0] = stats->in[0];
    joined.in[1] = stats->in[1];
    joined.in[2] = grad->num_in > 3 ? grad->in[3] : TRI_NONE;
    joined.num_in = grad->num_in > 3 ? 3 : 2;
    joined.out[2] = grad->out[0];
    joined.write[2] = grad->write[0];
    joined.prev[2] = grad->prev[0];
    kill(j, stats);
    kill(j, grad);
    replace(j, loss, &joined);
}

/* ---- copies of parameters ---- */

/* A step that is not ok leaves both as they were, and they agreed. A rank that has a slice of the
 * parameter and all of the copy leaves it to narrow, which knows where the slice goes. */
static void join_copy(joiner *j, tri_node *narrow)
{
    tri_id param = narrow->in[0], made_by = j->graph->values[param].producer;
    const tri_value *whole = &j->graph->values[param], *copy = &j->graph->values[narrow->out[0]];
    tri_node *adam = made_by == TRI_NONE ? NULL : &j->graph->nodes[made_by];
    if (!adam || whole->flat.parts > 0 || !tri_shape_equal(&whole->shape, &copy->shape) ||
        adam->op != TRI_OP_ADAM || adam->num_in != 6 || adam->num_out != 3 ||
        adam->out[0] != param || adam->phase != narrow->phase ||
        tri_node_chunk(j->graph, adam) != tri_node_chunk(j->graph, narrow))
        return;
    adam->in[adam->num_in++] = narrow->in[1];
    take_output(adam, narrow, 0);
    j->graph->values[narrow->out[0]].producer = made_by;
    kill(j, narrow);
}

tr_status tri_fuse_backward(tri_graph *graph, const tri_fusions *can, tr_error *err)
{
    joiner j = {graph, tri_graph_count_uses(graph), calloc(graph->num_nodes + 1, sizeof(bool))};
    for (size_t n = 0; j.uses && j.dead && n < graph->num_nodes; n++) {
        tri_node *node = &graph->nodes[n];
        if (j.dead[n])
            continue;
        if (node->op == TRI_OP_ADD && can->add)
            join_add(&j, node);
        else if (node->op == TRI_OP_LAYERNORM_GRAD && can->norm_grads)
            join_norm(&j, node, TRI_OP_LAYERNORM_PARAM_GRAD, TRI_OP_LAYERNORM_GRADS);
        else if (node->op == TRI_OP_RMSNORM_GRAD && can->norm_grads)
            join_norm(&j, node, TRI_OP_RMSNORM_PARAM_GRAD, TRI_OP_RMSNORM_GRADS);
        else if (node->op == TRI_OP_CE_LOSS && can->cross_entropy)
            join_cross_entropy(&j, node);
        else if (node->op == TRI_OP_NARROW && can->adam_copy)
            join_copy(&j, node);
    }
    bool ready = j.uses && j.dead;
    if (ready)
        tri_graph_remove_nodes(graph, j.dead);
    free(j.uses);
    free(j.dead);
    return ready ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory to rewrite the graph");
}
