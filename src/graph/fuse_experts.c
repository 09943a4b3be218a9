/* Passes that move what stands between the products of experts into them. Each is an identity in
 * exact arithmetic, and done only where the device says that it gains by it.
 *
 * - gate and up read the same rows: one product, which ends with what swiglu_rows makes of both.
 * - The gradient of that: at the end of the product that makes its dy.
 * - The gradient of the rows is a sum of two products: one that adds up both. */
#include <stdlib.h>

#include "graph/op_table.h"
#include "graph/passes.h"

typedef struct fuser {
    tri_graph *graph;
    uint32_t *uses;
    bool *dead;
} fuser;

/* The product with experts that made a value, near `node`; or NULL. */
static tri_node *product_of(const fuser *f, const tri_node *node, tri_id value, bool back)
{
    const tri_value *v = &f->graph->values[value];
    if (v->kind != TRI_VALUE_TEMP || v->producer == TRI_NONE || f->dead[v->producer])
        return NULL;
    tri_node *made = &f->graph->nodes[v->producer];
    bool fits = made->op == TRI_OP_GROUPED && made->attr.grouped.back == back &&
                made->write[0] == TRI_WRITE_NEW && made->phase == node->phase &&
                tri_node_chunk(f->graph, made) == tri_node_chunk(f->graph, node);
    return fits ? made : NULL;
}

static void kill(fuser *f, const tri_node *node)
{
    f->dead[node - f->graph->nodes] = true;
}

/* Whether a node before `node` and after `made` reads what that made. */
static bool read_between(const fuser *f, const tri_node *made, const tri_node *node)
{
    for (const tri_node *n = made + 1; n < node; n++)
        for (int j = 0; !f->dead[n - f->graph->nodes] && j < n->num_in; j++)
            if (n->in[j] == made->out[0])
                return true;
    return false;
}

static void fuse_act(fuser *f, tri_node *node)
{
    tri_node *gate = product_of(f, node, node->in[0], false);
    tri_node *up = product_of(f, node, node->in[1], false);
    if (!gate || !up || gate == up || gate->in[0] != up->in[0] || gate->in[2] != up->in[2] ||
        f->uses[gate->out[0]] == 1 || f->uses[up->out[0]] == 1 || /* nobody keeps them */
        read_between(f, gate, node) || read_between(f, up, node))
        return;
    tri_node fused = *node;
    fused.op = TRI_OP_GROUPED_SWIGLU;
    fused.attr = gate->attr;
    fused.num_in = 5;
    for (int j = 0; j < 3; j++)
        fused.in[j] = gate->in[j];
    fused.in[3] = up->in[1];
    fused.in[4] = node->in[2];
    fused.num_out = 3;
    for (int k = 1; k < 3; k++) {
        fused.out[k] = (k == 1 ? gate : up)->out[0];
        fused.write[k] = TRI_WRITE_NEW;
        fused.prev[k] = TRI_NONE;
        f->graph->values[fused.out[k]].producer = (tri_id)(node - f->graph->nodes);
    }
    kill(f, gate);
    kill(f, up);
    *node = fused;
}

static void fuse_act_grad(fuser *f, tri_node *node)
{
    tri_node *product = product_of(f, node, node->in[2], true);
    if (!product || f->uses[node->in[2]] != 1 || node->in[0] == node->in[2])
        return;
    tri_node fused = *node;
    fused.op = TRI_OP_GROUPED_SWIGLU_GRAD;
    fused.attr = product->attr;
    fused.num_in = 6;
    for (int j = 0; j < 3; j++)
        fused.in[j] = product->in[j];
    fused.in[3] = node->in[0];
    fused.in[4] = node->in[1];
    fused.in[5] = node->in[3];
    kill(f, product);
    *node = fused;
}

static void fuse_sum(fuser *f, tri_node *node)
{
    tri_node *first = product_of(f, node, node->in[0], true);
    tri_node *second = product_of(f, node, node->in[1], true);
    if (!first || !second || first == second || first->in[2] != second->in[2] ||
        f->uses[node->in[0]] != 1 || f->uses[node->in[1]] != 1 || node->write[0] != TRI_WRITE_NEW)
        return;
    tri_node fused = *node;
    fused.op = TRI_OP_GROUPED_SUM;
    fused.attr = first->attr;
    fused.num_in = 5;
    for (int j = 0; j < 3; j++)
        fused.in[j] = first->in[j];
    fused.in[3] = second->in[0];
    fused.in[4] = second->in[1];
    kill(f, first);
    kill(f, second);
    *node = fused;
}

tr_status tri_fuse_experts(tri_graph *graph, const tri_fusions *can, tr_error *err)
{
    if (!can->expert_act && !can->expert_grads)
        return TR_OK;
    fuser f = {.graph = graph,
               .uses = tri_graph_count_uses(graph),
               .dead = calloc(graph->num_nodes + 1, sizeof(bool))};
    bool there = f.uses && f.dead;
    for (size_t n = 0; there && n < graph->num_nodes; n++) {
        tri_node *node = &graph->nodes[n];
        if (node->op == TRI_OP_SWIGLU_ROWS && can->expert_act)
            fuse_act(&f, node);
        else if (node->op == TRI_OP_SWIGLU_ROWS_GRAD && can->expert_grads)
            fuse_act_grad(&f, node);
        else if (node->op == TRI_OP_ADD && can->expert_grads)
            fuse_sum(&f, node);
    }
    if (there)
        tri_graph_remove_nodes(graph, f.dead);
    free(f.uses);
    free(f.dead);
    return there ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory to rewrite the graph");
}
