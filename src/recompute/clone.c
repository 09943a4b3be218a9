/* The clones.
 *
 * The nodes are taken out of the graph and put back in order. Before a node of the backward, what
 * it reads and the forward does not keep is made again: the node that makes it is cloned there,
 * after what that needs in turn. So a clone stands just before its first reader, and a layer is
 * made again when its backward begins, not all of them at the start.
 *
 * Weights that ZeRO divides are put together once for the backward of a layer: the clones read
 * those, and the message moves up to the first of them. Only the part of a split backward that
 * makes gradients of weights puts them together for itself, since it runs later. Weights that stay
 * put together for the step are there for all clones. */
#include <stdlib.h>
#include <string.h>

#include "graph/passes.h"
#include "recompute/recompute.h"

typedef struct cloner {
    tri_graph *graph;
    const bool *redo;
    const tri_node *old; /* the nodes as they were */
    size_t num_old;
    size_t num_values; /* of the graph as it was */
    uint32_t num_buckets;
    bool *done;       /* of each old node: it was put back before its turn */
    tri_id *clone[2]; /* of each old value: its clone for the chain, and for what runs later */
    tri_id *twin;     /* of each old value, a gathered weight: the one of the backward */
    tri_id *producer; /* of each old value: as it was */
} cloner;

/* A value like another, under its name with "re." before it. */
static tri_id clone_value(tri_graph *graph, tri_id original, uint32_t bucket)
{
    tri_value *values =
        tri_array_grow(graph->values, graph->num_values, &graph->values_capacity, sizeof *values);
    if (!values) {
        graph->arena.failed = true;
        return original;
    }
    graph->values = values;
    tri_value value = values[original];
    value.name = tri_arena_dotted(&graph->arena, "re", value.name);
    value.output = false;
    value.bucket = bucket;
    values[graph->num_values] = value;
    return (tri_id)graph->num_values++;
}

static void append_clone(cloner *c, tri_node node, bool later, uint32_t bucket)
{
    node.phase = TRI_PHASE_BACKWARD;
    node.redo = later ? TRI_REDO_LATER : TRI_REDO_CHAIN;
    node.ends_chain = false;
    for (int k = 0; k < node.num_out; k++) {
        tri_id original = node.out[k];
        node.out[k] = clone_value(c->graph, original, bucket);
        c->clone[later][original] = node.out[k];
    }
    tri_graph_append(c->graph, &node);
}

/* A bucket of gathered weights travels together: all nodes of the bucket of this one, of the
 * forward cloned, of the backward moved up. */
static void put_bucket(cloner *c, tri_id value, bool later)
{
    const tri_graph *graph = c->graph;
    uint32_t bucket = graph->values[value].bucket;
    bool forward = c->old[c->producer[value]].phase == TRI_PHASE_FORWARD;
    uint32_t fresh = forward ? ++c->num_buckets : 0;
    for (size_t n = 0; n < c->num_old; n++) {
        const tri_node *node = &c->old[n];
        if (node->op != TRI_OP_UNSHARD || graph->values[node->out[0]].bucket != bucket)
            continue;
        if (forward) {
            append_clone(c, *node, later, fresh);
        } else if (!c->done[n]) {
            c->done[n] = true;
            tri_graph_append(c->graph, node);
        }
    }
}

static tri_id gathered(cloner *c, tri_id value, bool later)
{
    tri_id twin = c->twin[value];
    if (later || twin == TRI_NONE) {
        if (c->clone[later][value] == TRI_NONE)
            put_bucket(c, value, later);
        return c->clone[later][value];
    }
    if (!c->done[c->producer[twin]])
        put_bucket(c, twin, false);
    return twin;
}

/* What a node of the backward reads in place of a value. */
static tri_id get(cloner *c, tri_id value, bool later, bool for_clone)
{
    const tri_graph *graph = c->graph;
    if (value == TRI_NONE || value >= c->num_values || c->producer[value] == TRI_NONE)
        return value;
    const tri_node *maker = &c->old[c->producer[value]];
    if (for_clone && maker->op == TRI_OP_UNSHARD && maker->phase == TRI_PHASE_FORWARD)
        return maker->first_only ? value : gathered(c, value, later);
    if (!c->redo[value] || graph->arena.failed)
        return value;
    if (c->clone[later][value] != TRI_NONE)
        return c->clone[later][value];
    tri_node node = tri_recompute_node(c->old[c->producer[value]], c->redo);
    for (int j = 0; j < node.num_in; j++)
        node.in[j] = get(c, node.in[j], later, true);
    append_clone(c, node, later, 0);
    return c->clone[later][value];
}

static void find_twins(cloner *c)
{
    const tri_graph *graph = c->graph;
    for (size_t n = 0; n < c->num_old; n++) {
        if (c->old[n].op != TRI_OP_UNSHARD || c->old[n].phase != TRI_PHASE_FORWARD)
            continue;
        const char *name = graph->values[c->old[n].out[0]].name;
        for (size_t m = n + 1; m < c->num_old; m++)
            if (c->old[m].op == TRI_OP_UNSHARD && c->old[m].phase == TRI_PHASE_BACKWARD &&
                strcmp(graph->values[c->old[m].out[0]].name, name) == 0)
                c->twin[c->old[n].out[0]] = c->old[m].out[0];
    }
}

static void put_back(cloner *c, const bool *later)
{
    tri_graph *graph = c->graph;
    for (size_t v = 0; v < c->num_values; v++) {
        c->clone[0][v] = c->clone[1][v] = c->twin[v] = TRI_NONE;
        c->producer[v] = graph->values[v].producer;
    }
    find_twins(c);
    for (size_t n = 0; n < c->num_old; n++) {
        tri_node node = c->old[n];
        if (c->done[n])
            continue;
        for (int j = 0; node.phase == TRI_PHASE_BACKWARD && j < node.num_in; j++)
            node.in[j] = get(c, node.in[j], later[n], false);
        c->done[n] = true;
        tri_graph_append(graph, &node);
    }
}

tr_status tri_recompute_clone(tri_graph *graph, const bool *redo, const bool *later, tr_error *err)
{
    cloner c = {.graph = graph,
                .redo = redo,
                .num_values = graph->num_values,
                .num_buckets = tri_graph_num_buckets(graph)};
    size_t num = graph->num_values + 1;
    tri_id *ids = malloc(4 * num * sizeof *ids);
    tri_node *old = tri_graph_take_nodes(graph, &c.num_old);
    c.old = old;
    c.done = calloc(c.num_old + 1, sizeof *c.done);
    if (ids && c.done) {
        c.clone[0] = ids;
        c.clone[1] = ids + num;
        c.twin = ids + 2 * num;
        c.producer = ids + 3 * num;
        put_back(&c, later);
    } else {
        graph->arena.failed = true;
    }
    free(old);
    free(ids);
    free(c.done);
    if (graph->arena.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to clone nodes for the backward");
    return tri_graph_status(graph, err);
}
