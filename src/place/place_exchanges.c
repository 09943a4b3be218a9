/* The order around the exchanges of rows between experts (layout.ep): work that has nothing to do
 * with a message runs while it is under way.
 *
 * A stretch is the nodes of one layer, phase and chunk of a pipeline. Its exchanges are waves:
 * those of a wave do not depend on each other, and each wave depends on the one before. The new
 * order of a stretch is, wave after wave,
 *   1. what the wave needs, and its messages;
 *   2. nodes that neither need the wave nor are needed by it, such as the shared expert and
 *      gradients of weights;
 * and then the rest, which begins with who reads the last wave. Whatever else stands in the old
 * order.
 *
 * 1. A node stays behind all that it reads, and a new version behind who reads the old one. So sums
 *    have their terms in the old order, and results keep their bits.
 * 2. Which wave a node hides follows from dependences and from counting products, never from sizes:
 *    all ranks of a group make the same order. Exchanges keep theirs.
 * 3. Nodes that travel together stay together.
 * 4. A backward that is split runs its gradients of weights later, in an order of their own: they
 *    are a stretch for themselves.
 *
 * Gradients of weights behind the last wave of a layer have nothing left to hide. Nobody waits for
 * them, so they go to the first wave of the next layer. */
#include <stdlib.h>

#include "graph/passes.h"
#include "place/place.h"

/* What is known of a node of the stretch at hand. Nodes that travel together share the first's. */
typedef struct role {
    uint32_t after;  /* the last wave that it needs; 0: none */
    uint32_t before; /* the first wave that needs it; num_waves + 1: none */
    uint32_t wave;   /* exchanges: their own; 0: it is none */
    bool put;        /* it has its place */
    bool listed;     /* it is of the stretch at hand */
    bool needed;     /* of what is behind the last wave: it cannot wait */
    bool held;       /* it waits for the next layer */
} role;

typedef struct orderer {
    const tri_graph *graph;
    const bool *later; /* of each node: it runs in W */
    /* What must stand before node n: edges[edge_begin[n]] up to edges[edge_begin[n + 1]]. */
    tri_id *edges;
    size_t *edge_begin;
    tri_id *unit; /* of each node: the first of those that travel with it */
    role *roles;  /* of units */
    tri_id *list; /* nodes of the stretch at hand, in an order in which they may run */
    size_t count;
    uint32_t num_waves;
    tri_id *held; /* that wait for the next layer */
    size_t num_held;
    tri_id *order; /* the new one */
    size_t num_ordered;
} orderer;

/* ---- what must stand before what ---- */

/* Calls for each pair: a producer and who reads it; readers of a version, or its maker, and the
 * node that replaces it. Without edges they are counted. */
static void find_edges(const orderer *o, const tri_id *replaced_by, tri_id *edges, size_t *at)
{
    const tri_graph *graph = o->graph;
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node *node = &graph->nodes[n];
        for (int j = 0; j < node->num_in + node->num_out; j++) {
            bool read = j < node->num_in;
            tri_id value = read ? node->in[j] : node->prev[j - node->num_in];
            if (value == TRI_NONE || (!read && node->write[j - node->num_in] == TRI_WRITE_NEW))
                continue;
            tri_id maker = graph->values[value].producer, next = replaced_by[value];
            if (maker != TRI_NONE && edges)
                edges[at[n]] = maker;
            at[n] += maker != TRI_NONE;
            if (!read || next == TRI_NONE || next == n)
                continue;
            if (edges)
                edges[at[next]] = (tri_id)n;
            at[next]++;
        }
    }
}

/* Counts, then fills: each node's part of the list begins where that of the one before ends. */
static bool list_edges(orderer *o)
{
    const tri_graph *graph = o->graph;
    size_t count = graph->num_nodes, total = 0;
    tri_id *replaced_by = malloc((graph->num_values + 1) * sizeof *replaced_by);
    size_t *at = calloc(count + 1, sizeof *at);
    for (size_t v = 0; replaced_by && v < graph->num_values; v++)
        replaced_by[v] = TRI_NONE;
    for (size_t n = 0; replaced_by && n < count; n++)
        for (int k = 0; k < graph->nodes[n].num_out; k++)
            if (graph->nodes[n].write[k] != TRI_WRITE_NEW && graph->nodes[n].prev[k] != TRI_NONE)
                replaced_by[graph->nodes[n].prev[k]] = (tri_id)n;
    if (replaced_by && at)
        find_edges(o, replaced_by, NULL, at);
    for (size_t n = 0; at && n <= count; n++) {
        size_t own = at[n];
        o->edge_begin[n] = at[n] = total;
        total += own;
    }
    o->edges = malloc((total + 1) * sizeof *o->edges);
    if (replaced_by && at && o->edges)
        find_edges(o, replaced_by, o->edges, at);
    free(replaced_by);
    free(at);
    return replaced_by && at && o->edges;
}

/* Neighbours over the same ranks may share a message, but for exchanges, which never do. */
static void find_units(orderer *o)
{
    const tri_graph *graph = o->graph;
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node *node = &graph->nodes[n], *last = n ? node - 1 : NULL;
        bool with = last && node->op == last->op && tri_op_get(node->op)->communicates &&
                    node->op != TRI_OP_ALL_TO_ALL_ROWS && node->phase == last->phase &&
                    node->layer == last->layer && o->later[n] == o->later[n - 1] &&
                    node->attr.message.axis == last->attr.message.axis;
        o->unit[n] = with ? o->unit[n - 1] : (tri_id)n;
    }
}

static role *role_of(const orderer *o, size_t n)
{
    return &o->roles[o->unit[n]];
}

/* ---- waves ---- */

static bool exchanges(const tri_node *node)
{
    return node->op == TRI_OP_ALL_TO_ALL_ROWS && node->attr.message.axis == TRI_AXIS_EP;
}

/* The waves that each node of the list needs. */
static void look_back(orderer *o)
{
    o->num_waves = 0;
    for (size_t i = 0; i < o->count; i++)
        *role_of(o, o->list[i]) = (role){.listed = true};
    for (size_t i = 0; i < o->count; i++) {
        tri_id n = o->list[i];
        role *own = role_of(o, n);
        for (size_t e = o->edge_begin[n]; e < o->edge_begin[n + 1]; e++) {
            role *other = role_of(o, o->edges[e]);
            uint32_t wave = other->wave ? other->wave : other->after;
            if (!other->listed || other == own)
                continue;
            own->after = wave > own->after ? wave : own->after;
        }
        if (!exchanges(&o->graph->nodes[n]))
            continue;
        own->wave = own->after + 1 > o->num_waves ? own->after + 1 : o->num_waves;
        o->num_waves = own->wave;
    }
}

/* And by which they are needed. */
static void look_ahead(orderer *o)
{
    for (size_t i = 0; i < o->count; i++)
        role_of(o, o->list[i])->before = o->num_waves + 1;
    for (size_t i = o->count; i-- > 0;) {
        tri_id n = o->list[i];
        const role *own = role_of(o, n);
        uint32_t wave = own->wave ? own->wave : own->before;
        for (size_t e = o->edge_begin[n]; e < o->edge_begin[n + 1]; e++) {
            role *other = role_of(o, o->edges[e]);
            if (other->listed && other != own && other->before > wave)
                other->before = wave;
        }
    }
}

/* ---- the new order ---- */

/* The unit that begins at a place of the list. */
static void put(orderer *o, size_t i)
{
    tri_id unit = o->unit[o->list[i]];
    o->roles[unit].put = true;
    for (; i < o->count && o->unit[o->list[i]] == unit; i++)
        o->order[o->num_ordered++] = o->list[i];
}

/* The unit that begins at a place of the list and has no place in the order yet, or NULL. */
static role *waiting(const orderer *o, size_t i)
{
    role *own = role_of(o, o->list[i]);
    return o->unit[o->list[i]] == o->list[i] && !own->put ? own : NULL;
}

static bool is_product(const orderer *o, size_t i)
{
    return tri_op_multiplies(o->graph->nodes[o->list[i]].op);
}

static void put_wave(orderer *o, uint32_t wave)
{
    for (size_t i = 0; i < o->count; i++) {
        const role *own = waiting(o, i);
        if (own && (own->wave ? own->wave : own->before) <= wave)
            put(o, i);
    }
}

/* Whether a node may hide a wave; sends of a pipeline keep their order. */
static bool may_hide(const orderer *o, size_t i, const role *own, uint32_t wave)
{
    return own && !own->wave && own->after < wave && own->before > wave &&
           !o->graph->nodes[o->list[i]].border;
}

/* Whether the next wave needs it, so that it cannot hide a later one. */
static bool is_due(const orderer *o, const role *own, uint32_t wave)
{
    return own->before == wave + 1 || wave == o->num_waves;
}

/* An equal share of the products that may hide this wave or a later one: those that are due, and of
 * the others the first. What is no product goes with them. */
static void put_beside(orderer *o, uint32_t wave)
{
    uint32_t all = 0, taken = 0, waves = o->num_waves - wave + 1;
    for (size_t i = 0; i < o->count; i++) {
        const role *own = is_product(o, i) ? waiting(o, i) : NULL;
        bool hides = false;
        for (uint32_t later = wave; later <= o->num_waves; later++)
            hides |= may_hide(o, i, own, later);
        all += hides;
        taken += may_hide(o, i, own, wave) && is_due(o, own, wave);
    }
    uint32_t share = (all + waves - 1) / waves;
    for (size_t i = 0; i < o->count; i++) {
        const role *own = waiting(o, i);
        if (!may_hide(o, i, own, wave) || (taken >= share && !is_due(o, own, wave)))
            continue;
        taken += is_product(o, i) && !is_due(o, own, wave);
        put(o, i);
    }
}

/* Whether a unit only adds to sums of gradients by products, or is such sums on their way. */
static bool sums_gradients(const orderer *o, size_t i)
{
    const tri_graph *graph = o->graph;
    bool sums = true;
    for (tri_id unit = o->unit[o->list[i]]; i < o->count && o->unit[o->list[i]] == unit; i++) {
        const tri_node *node = &graph->nodes[o->list[i]];
        sums &= tri_op_multiplies(node->op) || node->op == TRI_OP_ALL_REDUCE;
        for (int k = 0; k < node->num_out; k++) {
            tri_id state = graph->values[node->out[k]].state;
            sums &= state != TRI_NONE && graph->states[state].kind == TRI_STATE_GRAD;
        }
    }
    return sums;
}

static void need_inputs(orderer *o, size_t i)
{
    for (tri_id unit = o->unit[o->list[i]]; i < o->count && o->unit[o->list[i]] == unit; i++)
        for (size_t e = o->edge_begin[o->list[i]]; e < o->edge_begin[o->list[i] + 1]; e++)
            role_of(o, o->edges[e])->needed = true;
}

/* Behind the last wave: gradients of weights that nothing else of the layer stands behind. */
static void find_held(orderer *o)
{
    for (size_t i = o->count; i-- > 0;) {
        role *own = waiting(o, i);
        if (!own)
            continue;
        own->held = !own->needed && sums_gradients(o, i);
        if (!own->held)
            need_inputs(o, i);
    }
}

/* Orders what is listed. `goes_on`: another layer follows, and has exchanges. */
static void order_list(orderer *o, bool goes_on)
{
    look_back(o);
    look_ahead(o);
    for (size_t i = 0; i < o->count; i++) { /* receives of a pipeline keep their order */
        const tri_node *node = &o->graph->nodes[o->list[i]];
        if (node->border && node->num_in == 0)
            put(o, i);
    }
    for (uint32_t wave = 1; wave <= o->num_waves; wave++) {
        put_wave(o, wave);
        put_beside(o, wave);
    }
    if (goes_on)
        find_held(o);
    for (size_t i = 0; i < o->count; i++) {
        if (role_of(o, o->list[i])->held)
            o->held[o->num_held++] = o->list[i];
        else if (waiting(o, i))
            put(o, i);
    }
    for (size_t i = 0; i < o->count; i++)
        role_of(o, o->list[i])->listed = false;
}

/* ---- stretches ---- */

static size_t stretch_end(const tri_graph *graph, size_t begin)
{
    const tri_node *first = &graph->nodes[begin];
    size_t end = begin + 1;
    while (end < graph->num_nodes && graph->nodes[end].layer == first->layer &&
           graph->nodes[end].phase == first->phase)
        end++;
    return end;
}

static bool has_exchanges(const orderer *o, size_t begin, size_t end, bool later)
{
    for (size_t n = begin; n < end; n++)
        if (exchanges(&o->graph->nodes[n]) && o->later[n] == later)
            return true;
    return false;
}

/* Whether the stretch that begins where one ends is the next layer of the same backward. */
static bool next_goes_on(const orderer *o, size_t begin, size_t end)
{
    const tri_graph *graph = o->graph;
    if (end == graph->num_nodes || graph->nodes[begin].phase != TRI_PHASE_BACKWARD ||
        graph->nodes[end].phase != TRI_PHASE_BACKWARD ||
        tri_node_chunk(graph, &graph->nodes[begin]) != tri_node_chunk(graph, &graph->nodes[end]))
        return false;
    return has_exchanges(o, end, stretch_end(graph, end), false);
}

/* The stretch [begin, end), or its part that runs in W. */
static void order_part(orderer *o, size_t begin, size_t end, bool later)
{
    o->count = 0;
    for (size_t k = 0; k < o->num_held && !later; k++)
        o->list[o->count++] = o->held[k];
    for (size_t n = begin; n < end; n++)
        if (o->later[n] == later)
            o->list[o->count++] = (tri_id)n;
    if (!later)
        o->num_held = 0;
    order_list(o, !later && next_goes_on(o, begin, end));
}

static void order_stretches(orderer *o)
{
    for (size_t begin = 0, end; begin < o->graph->num_nodes; begin = end) {
        end = stretch_end(o->graph, begin);
        if (has_exchanges(o, begin, end, false) || has_exchanges(o, begin, end, true)) {
            order_part(o, begin, end, false);
            order_part(o, begin, end, true);
            continue;
        }
        for (size_t n = begin; n < end; n++)
            o->order[o->num_ordered++] = (tri_id)n;
    }
}

tr_status tri_place_exchanges(tri_graph *graph, const bool *later, tr_error *err)
{
    size_t count = graph->num_nodes;
    orderer o = {.graph = graph, .later = later};
    if (!has_exchanges(&o, 0, count, false) && !has_exchanges(&o, 0, count, true))
        return TR_OK;
    o.edge_begin = calloc(count + 2, sizeof *o.edge_begin);
    o.unit = calloc(count + 1, sizeof *o.unit);
    o.roles = calloc(count + 1, sizeof *o.roles);
    o.list = calloc(count + 1, sizeof *o.list);
    o.held = calloc(count + 1, sizeof *o.held);
    o.order = calloc(count + 1, sizeof *o.order);
    tr_status status = TR_OK;
    if (!o.edge_begin || !o.unit || !o.roles || !o.list || !o.held || !o.order || !list_edges(&o))
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to order the messages of experts");
    if (status == TR_OK) {
        find_units(&o);
        order_stretches(&o);
        status = tri_graph_reorder(graph, o.order, err);
    }
    free(o.edges);
    free(o.edge_begin);
    free(o.unit);
    free(o.roles);
    free(o.list);
    free(o.held);
    free(o.order);
    return status;
}
