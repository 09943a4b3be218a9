/* The sum of the residual stream and a branch, which a norm makes before it normalises, moves into
 * the product that ends the branch: the product reads the stream and writes the sum while its units
 * are busy with arithmetic, and the norm, which does nothing but read and write, has half as much
 * of it left. An identity in exact arithmetic; with 16-bit types one rounding less.
 *
 * Only products without a bias: with one, the products of cuBLASLt lose more by it than the norms
 * gain (GPT-2 1558M: 2.7 ms of a step for 1.6). */
#include <stdlib.h>

#include "graph/op_table.h"
#include "graph/passes.h"

static tri_op plain_norm(tri_op op)
{
    return op == TRI_OP_ADD_LAYERNORM ? TRI_OP_LAYERNORM
           : op == TRI_OP_ADD_RMSNORM ? TRI_OP_RMSNORM
                                      : TRI_NUM_OPS;
}

/* The product that made the branch x and may as well add the stream r; NULL where there is none. */
static tri_node *product_of(const tri_graph *graph, const uint32_t *uses, const tri_node *norm)
{
    const tri_value *r = &graph->values[norm->in[0]], *x = &graph->values[norm->in[1]];
    if (x->kind != TRI_VALUE_TEMP || uses[norm->in[1]] != 1 || x->producer == TRI_NONE ||
        norm->in[0] == norm->in[1])
        return NULL;
    tri_node *product = &graph->nodes[x->producer];
    bool there = r->producer == TRI_NONE || r->producer < x->producer;
    return product->op == TRI_OP_MATMUL && product->num_in == 2 && there &&
                   product->attr.matmul.epilogue == TRI_EPILOGUE_NONE &&
                   product->write[0] == TRI_WRITE_NEW && norm->write[0] == TRI_WRITE_NEW &&
                   product->phase == norm->phase && x->dtype == r->dtype &&
                   tri_shape_equal(&x->shape, &r->shape) &&
                   tri_node_chunk(graph, product) == tri_node_chunk(graph, norm)
               ? product
               : NULL;
}

static void join(tri_graph *graph, tri_node *norm, tri_node *product)
{
    tri_id r = norm->in[0], sum = norm->out[0];
    product->attr.matmul.epilogue = TRI_EPILOGUE_ADD;
    product->in[2] = r;
    product->num_in = 3;
    product->out[0] = sum;
    graph->values[sum].producer = (tri_id)(product - graph->nodes);
    norm->op = plain_norm(norm->op);
    norm->in[0] = sum;
    for (int j = 2; j < norm->num_in; j++)
        norm->in[j - 1] = norm->in[j];
    norm->num_in--;
    for (int k = 1; k < norm->num_out; k++) {
        norm->out[k - 1] = norm->out[k];
        norm->write[k - 1] = norm->write[k];
        norm->prev[k - 1] = norm->prev[k];
    }
    norm->num_out--;
}

tr_status tri_fuse_residual(tri_graph *graph, const tri_fusions *can, tr_error *err)
{
    if (!can->residual)
        return TR_OK;
    uint32_t *uses = tri_graph_count_uses(graph);
    if (!uses)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to rewrite the graph");
    for (size_t n = 0; n < graph->num_nodes; n++) {
        tri_node *norm = &graph->nodes[n];
        tri_node *product =
            plain_norm(norm->op) != TRI_NUM_OPS ? product_of(graph, uses, norm) : NULL;
        if (product)
            join(graph, norm, product);
    }
    free(uses);
    return TR_OK;
}
