/* Attention to keys that some query of a rank sees, and to no others: where documents or a window
 * hide most of a row, most keys need not travel.
 *
 * Which keys go where is planned by the host for every micro-batch (train/deal_keys.h). A rank puts
 * those that another one needs into the room of that pair, an exchange of varying counts takes them
 * there, and what has come is put in the order of the row, with zeros where no key was needed: no
 * query sees it. Gradients take the same way back, and a key adds up what the ranks that have had
 * it send. */
#include <string.h>

#include "graph/passes.h"
#include "place/expand.h"
#include "place/expand_keys.h"

typedef struct exchange_of_keys {
    tri_keys_node of;
    int64_t rows, own, room, all; /* of the batch; keys of a rank, of a pair's room, of a row */
    tri_attr exchange;
} exchange_of_keys;

/* A part of the host's plan, the same for all layers. most: no number in it is larger. */
static tri_id plan(const exchange_of_keys *s, const char *name, tri_shape shape, int64_t most)
{
    tri_graph *graph = s->of.graph;
    for (size_t v = 0; v < graph->num_values; v++)
        if (graph->values[v].kind == TRI_VALUE_INPUT && strcmp(graph->values[v].name, name) == 0)
            return (tri_id)v;
    tri_id id = tri_graph_input(graph, name, TRI_I32, shape, true);
    if (id != TRI_NONE)
        graph->values[id].most = most;
    return id;
}

static tri_id counts(const exchange_of_keys *s, const char *name)
{
    return plan(s, name, tri_shape_of(1, TRI_DIM_N, (int64_t)s->of.parts), s->room);
}

/* A place in the rooms of all pairs, for each of so many: what is to be put there, or taken from
 * there. */
static tri_id of_rooms(const exchange_of_keys *s, const char *name)
{
    return plan(
        s, name,
        tri_shape_of(3, TRI_DIM_N, (int64_t)s->of.parts, TRI_DIM_N, s->room, TRI_DIM_N, (int64_t)1),
        0);
}

static tri_id of_tokens(const exchange_of_keys *s, const char *name, int64_t tokens, int64_t each)
{
    return plan(s, name, tri_shape_of(3, TRI_DIM_B, s->rows, TRI_DIM_T, tokens, TRI_DIM_N, each),
                0);
}

static tri_id emit(const exchange_of_keys *s, tri_op op, tri_id like, const char *what,
                   const tri_attr *attr, const tri_id *in, int num_in)
{
    const char *name = tri_arena_dotted(&s->of.graph->arena, s->of.graph->values[like].name, what);
    tri_id node = tri_graph_emit(s->of.graph, op, name, attr, in, num_in, 1);
    return node == TRI_NONE ? TRI_NONE : s->of.graph->nodes[node].out[0];
}

static const tri_attr rows_of_two = {.gather = {.lead = 2}};

/* Rows that go to the rooms of other ranks, and what has come from them. */
static tri_id go(const exchange_of_keys *s, tri_id x, tri_id like, const char *index, bool back)
{
    tri_id rooms = emit(s, TRI_OP_GATHER_ROWS, like, "sent", &rows_of_two,
                        (tri_id[]){x, of_rooms(s, index)}, 2);
    tri_id sent = counts(s, "keys_sent"), got = counts(s, "keys_got");
    return emit(s, TRI_OP_ALL_TO_ALL_ROWS, like, "got", &s->exchange,
                (tri_id[]){rooms, back ? got : sent, back ? sent : got}, 3);
}

/* All keys (or values) that this rank sees, in the order of the row. */
static tri_id come(const exchange_of_keys *s, tri_id own)
{
    tri_id got = go(s, own, own, "keys_out", false);
    return emit(s, TRI_OP_GATHER_ROWS, own, "seen", &rows_of_two,
                (tri_id[]){got, of_tokens(s, "keys_in", s->all, 1)}, 2);
}

static int64_t parts_of(const tri_graph *graph, const tri_node *node,
                        const tri_expand_config *config)
{
    (void)config;
    return tri_keys_parts(graph, node, TRI_KEYS_SEEN);
}

static exchange_of_keys begin(tri_graph *graph, const tri_node *node, int64_t parts)
{
    exchange_of_keys s = {.of = tri_keys_begin(graph, node, parts)};
    const tri_shape *k = &graph->values[node->in[s.of.first + 1]].shape;
    s.exchange = (tri_attr){.message = {.axis = s.of.axis}};
    s.rows = k->dim[0].size;
    s.own = k->dim[1].size;
    s.all = s.of.cut.size;
    s.room = s.rows * tri_cut_size(&s.of.cut, 0); /* balanced blocks: the first has most */
    return s;
}

/* The node itself, with all keys that it needs. The places of all, of which it had its own. */
static tri_node with_keys(const exchange_of_keys *s)
{
    tri_graph *graph = s->of.graph;
    tri_node node = *s->of.node;
    tri_id own_places = node.in[s->of.k_places];
    node.attr.attention.keys = TRI_KEYS_GATHERED;
    for (int i = 1; i <= 2; i++)
        node.in[s->of.first + i] = come(s, node.in[s->of.first + i]);
    if (tri_keys_go_on(graph))
        node.in[s->of.k_places] = graph->nodes[graph->values[own_places].producer].in[0];
    return node;
}

static void replace(tri_graph *graph, const tri_node *node, int64_t parts)
{
    exchange_of_keys s = begin(graph, node, parts);
    tri_node attends = with_keys(&s);
    if (tri_keys_go_on(graph))
        tri_graph_append(graph, &attends);
}

static void replace_grad(tri_graph *graph, const tri_node *node, int64_t parts)
{
    exchange_of_keys s = begin(graph, node, parts);
    tri_node attends = with_keys(&s);
    for (int i = 1; i <= 2; i++) { /* gradients of all that it sees */
        tri_value all = graph->values[node->out[i]];
        all.name = tri_arena_printf(&graph->arena, "%s.seen", all.name);
        all.shape.dim[1].size = s.all;
        attends.out[i] = tri_graph_add_value(graph, all);
    }
    if (tri_keys_go_on(graph))
        tri_graph_append(graph, &attends);
    for (int i = 1; i <= 2 && tri_keys_go_on(graph); i++) {
        tri_node sum = {.op = TRI_OP_GATHER_ROWS,
                        .attr = rows_of_two,
                        .num_in = 2,
                        .num_out = 1,
                        .in = {go(&s, attends.out[i], node->out[i], "keys_back", true),
                               of_tokens(&s, "keys_sum", s.own, s.of.parts)},
                        .out = {node->out[i]},
                        .prev = {TRI_NONE},
                        .phase = node->phase,
                        .layer = node->layer,
                        .ends_chain = node->ends_chain};
        if (tri_keys_go_on(graph))
            tri_graph_append(graph, &sum);
    }
}

const tri_expansion tri_expansion_seen = {
    .op = TRI_OP_ATTENTION, .parts = parts_of, .replace = replace};
const tri_expansion tri_expansion_seen_grad = {
    .op = TRI_OP_ATTENTION_GRAD, .parts = parts_of, .replace = replace_grad};
