/* The graph's verifier: runs after every pass, so that a broken pass is named at once. */
#include <stdlib.h>

#include "graph/op_table.h"

typedef struct verifier {
    const tri_graph *graph;
    bool *made;      /* value exists at this point */
    bool *replaced;  /* temporary: something has been added to it, as another value */
    tri_id *current; /* newest version of each state at this point */
    tr_error *err;
} verifier;

static tr_status complain(const verifier *v, size_t n, const char *what, const char *value)
{
    const tri_node *node = &v->graph->nodes[n];
    return tri_fail(v->err, TR_ERROR_INTERNAL, "graph node %zu (%s): %s %s", n,
                    tri_op_get(node->op)->name, what, value);
}

static tr_status check_inputs(const verifier *v, size_t n)
{
    const tri_node *node = &v->graph->nodes[n];
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE && tri_op_get(node->op)->optional >> j & 1)
            continue;
        if (node->in[j] >= v->graph->num_values)
            return complain(v, n, "reads a value that does not exist", "");
        const tri_value *in = &v->graph->values[node->in[j]];
        if (!v->made[node->in[j]])
            return complain(v, n, "reads before it is made:", in->name);
        if (in->state != TRI_NONE && v->current[in->state] != node->in[j])
            return complain(v, n, "reads an outdated version of", in->name);
        if (v->replaced[node->in[j]])
            return complain(v, n, "reads what has been added to:", in->name);
    }
    return TR_OK;
}

/* The temporary that a sum goes on in. */
static tr_status check_sum(const verifier *v, size_t n, int k)
{
    const tri_value *out = &v->graph->values[v->graph->nodes[n].out[k]];
    tri_id prev = v->graph->nodes[n].prev[k];
    const tri_value *before = prev == TRI_NONE ? NULL : &v->graph->values[prev];
    if (!before || before->kind != TRI_VALUE_TEMP || !v->made[prev] || v->replaced[prev] ||
        before->output || out->output || !tri_shape_equal(&before->shape, &out->shape) ||
        before->dtype != out->dtype || before->bucket != out->bucket)
        return complain(v, n, "adds to another value than", out->name);
    v->replaced[prev] = true;
    return TR_OK;
}

static tr_status check_write(const verifier *v, size_t n, int k)
{
    const tri_node *node = &v->graph->nodes[n];
    const tri_op_def *def = tri_op_get(node->op);
    const tri_value *out = &v->graph->values[node->out[k]];
    switch (node->write[k]) {
    case TRI_WRITE_NEW:
        if (out->kind != TRI_VALUE_TEMP)
            return complain(v, n, "writes as a temporary what is a state:", out->name);
        return TR_OK;
    case TRI_WRITE_START:
    case TRI_WRITE_ADD:
        if (!(def->can_accumulate >> k & 1) || tri_node_epilogue(node) != TRI_EPILOGUE_NONE)
            return complain(v, n, "cannot accumulate into", out->name);
        for (int j = 0; j < k; j++) /* a kernel overwrites all that it accumulates, or none */
            if (node->write[j] != TRI_WRITE_NEW && node->write[j] != node->write[k])
                return complain(v, n, "starts some sums, but not", out->name);
        if (out->kind == TRI_VALUE_TEMP && node->write[k] == TRI_WRITE_ADD)
            return check_sum(v, n, k);
        break;
    case TRI_WRITE_UPDATE:
        if (!def->updates[k] || node->in[def->updates[k] - 1] != node->prev[k])
            return complain(v, n, "updates what it does not read:", out->name);
        break;
    }
    const tri_value *prev = &v->graph->values[node->prev[k]];
    if (out->kind == TRI_VALUE_TEMP && node->write[k] == TRI_WRITE_UPDATE &&
        prev->kind == TRI_VALUE_TEMP) /* a copy of a state, where its memory is not */
        return TR_OK;
    if (out->kind != TRI_VALUE_STATE || v->current[out->state] != node->prev[k])
        return complain(v, n, "replaces an outdated version of", out->name);
    return TR_OK;
}

static tr_status check_outputs(const verifier *v, size_t n)
{
    const tri_graph *graph = v->graph;
    const tri_node *node = &graph->nodes[n];
    const tri_op_def *def = tri_op_get(node->op);
    if (node->num_in < def->min_in || node->num_in > def->max_in || node->num_out < def->min_out ||
        node->num_out > def->max_out)
        return complain(v, n, "has a wrong number of operands", "");
    if (!tri_attr_fits(node->op, &node->attr))
        return complain(v, n, "has attributes of another operator", "");
    tri_shape in[TRI_MAX_IN], out[TRI_MAX_OUT];
    tri_dtype dtype[TRI_MAX_OUT];
    const tri_value *values[TRI_MAX_IN];
    for (int j = 0; j < node->num_in; j++) {
        values[j] = node->in[j] == TRI_NONE ? NULL : &graph->values[node->in[j]];
        in[j] = values[j] ? values[j]->shape : (tri_shape){.rank = -1};
    }
    tri_infer_dtypes(node->op, &node->attr, values, node->num_in, dtype, node->num_out);
    tr_error why;
    if (def->infer(node, in, out, dtype, &why) != TR_OK)
        return complain(v, n, "does not fit its operands:", why.message);
    for (int k = 0; k < node->num_out; k++) {
        const tri_value *value = &graph->values[node->out[k]];
        if (v->made[node->out[k]])
            return complain(v, n, "makes a second time", value->name);
        if (value->producer != n)
            return complain(v, n, "is not the noted producer of", value->name);
        if (value->state != TRI_NONE)
            dtype[k] = graph->states[value->state].dtype;
        if (!tri_shape_equal(&value->shape, &out[k]) || value->dtype != dtype[k])
            return complain(v, n, "gives another shape or type to", value->name);
        TRI_TRY(check_write(v, n, k));
    }
    return TR_OK;
}

static tr_status verify(verifier *v)
{
    const tri_graph *graph = v->graph;
    for (size_t i = 0; i < graph->num_states; i++)
        v->current[i] = TRI_NONE;
    for (size_t i = 0; i < graph->num_values; i++) {
        const tri_value *value = &graph->values[i];
        v->made[i] = value->producer == TRI_NONE;
        if (v->made[i] && value->state != TRI_NONE)
            v->current[value->state] = (tri_id)i;
    }
    for (size_t n = 0; n < graph->num_nodes; n++) {
        TRI_TRY(check_inputs(v, n));
        TRI_TRY(check_outputs(v, n));
        const tri_node *node = &graph->nodes[n];
        for (int k = 0; k < node->num_out; k++) {
            const tri_value *out = &graph->values[node->out[k]];
            v->made[node->out[k]] = true;
            if (out->state != TRI_NONE)
                v->current[out->state] = node->out[k];
        }
    }
    for (size_t i = 0; i < graph->num_states; i++)
        if (v->current[i] != graph->states[i].latest)
            return tri_fail(v->err, TR_ERROR_INTERNAL, "the last version of %s is not noted",
                            graph->states[i].name);
    return TR_OK;
}

tr_status tri_graph_verify(const tri_graph *graph, tr_error *err)
{
    verifier v = {.graph = graph, .err = err};
    v.made = calloc(graph->num_values + 1, sizeof *v.made);
    v.replaced = calloc(graph->num_values + 1, sizeof *v.replaced);
    v.current = calloc(graph->num_states + 1, sizeof *v.current);
    tr_status status = v.made && v.replaced && v.current
                           ? verify(&v)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to verify the graph");
    free(v.made);
    free(v.replaced);
    free(v.current);
    return status;
}
