#include "place/elsewhere/carry_node.h"

#include "graph/op_table.h"
#include "graph/passes.h"

tri_id tri_carry_copy(tri_graph *graph, tri_id of, tri_where where)
{
    tri_value copy = graph->values[of];
    copy.name = tri_arena_printf(&graph->arena, "%s@%s", copy.name, tri_where_name(where));
    copy.kind = TRI_VALUE_TEMP;
    copy.state = TRI_NONE;
    copy.output = copy.per_microbatch = false;
    copy.bucket = 0;
    copy.where = where;
    tri_id id = tri_graph_add_value(graph, copy);
    return graph->arena.failed ? TRI_NONE : id;
}

void tri_carry_append(tri_graph *graph, tri_id from, tri_id made, tri_id replaces,
                      const tri_node *reason)
{
    const tri_value *value = &graph->values[from];
    tri_op op = graph->values[made].where < value->where ? TRI_OP_FETCH : TRI_OP_STASH;
    tri_attr attr = {.message = {.made = {.shape = value->shape, .dtype = value->dtype}}};
    tri_node node = {.op = op,
                     .attr = tri_attr_of(op, &attr),
                     .num_in = 2,
                     .num_out = 1,
                     .in = {from, replaces},
                     .out = {made},
                     .write = {replaces == TRI_NONE ? TRI_WRITE_NEW : TRI_WRITE_UPDATE},
                     .prev = {replaces},
                     .phase = reason->phase,
                     .layer = reason->layer};
    tri_graph_append(graph, &node);
}
