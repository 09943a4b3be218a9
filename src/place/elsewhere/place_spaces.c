/* Where states rest and where nodes compute may differ: fetch and stash go between.
 *
 * A node works on copies of operands that lie elsewhere, and what it makes of a state travels back
 * to where the state rests. Places are one behind the other (graph/where.h), so a value that rests
 * in a file passes through the host. Every copy is a value of the graph, with memory in the plan.
 *
 * Nodes that need copies are done in pieces of work. While a piece runs, the copies of the next one
 * come and results of the last one leave:
 *
 *   fetch 3 from its file, fetch 2 to the device, compute 1, stash 0 to its file, stash 1
 *
 * What is computed does not change: the same kernels get the same bits. */
#include "place/elsewhere/place_spaces.h"

#include <stdlib.h>

#include "graph/op_table.h"
#include "graph/passes.h"
#include "place/elsewhere/carry_node.h"

enum { DEFAULT_PIECE_BYTES = 64 << 20, AT_REST = UINT32_MAX };

/* What a piece of work made, on its way to where it rests. */
typedef struct departure {
    tri_id at;       /* the copy that has come farthest */
    tri_id to;       /* the version of the state that it becomes... */
    tri_id replaces; /* ...and the one before it */
    const tri_node *maker;
} departure;

typedef struct spacer {
    tri_graph *graph;
    tri_node *old;
    size_t num_old, num_values; /* before the pass */
    uint32_t *piece;            /* of each old node; AT_REST: it needs no copies */
    size_t *begin;              /* of each piece: its first node; one more than pieces */
    uint32_t num_pieces;
    bool *made;                    /* of each value: it is there by now */
    tri_id (*copy)[TRI_NUM_WHERE]; /* of each value at each place, or TRI_NONE */
    departure *leaving;            /* first of the piece before, then of the one at hand */
    size_t num_leaving;
} spacer;

static tri_where where_is(const spacer *s, tri_id value)
{
    return s->graph->values[value].where;
}

/* ---- who is where ---- */

/* Where a state of a parameter rests: its moments, and the master of what has a 16-bit copy. */
static tri_where rests(const tri_graph *graph, const tri_spaces_config *config, tri_id state)
{
    const tri_state *of = state == TRI_NONE ? NULL : &graph->states[state];
    if (!of || of->param == TRI_NONE)
        return TRI_WHERE_DEVICE;
    if (of->kind == TRI_STATE_OPTIM)
        return config->moments;
    bool master = of->kind == TRI_STATE_PARAM &&
                  tri_param_has_copy(&graph->params->items[of->param], graph->precision.compute);
    return master ? config->masters : TRI_WHERE_DEVICE;
}

static bool is_moment(const tri_graph *graph, tri_id value)
{
    tri_id state = value == TRI_NONE ? TRI_NONE : graph->values[value].state;
    return state != TRI_NONE && graph->states[state].kind == TRI_STATE_OPTIM &&
           graph->states[state].param != TRI_NONE;
}

/* Whether all that a node does is to change states, a moment among them. */
static bool only_updates(const tri_graph *graph, const tri_node *node)
{
    bool moment = false;
    for (int k = 0; k < node->num_out; k++) {
        if (node->write[k] != TRI_WRITE_UPDATE)
            return false;
        moment |= is_moment(graph, node->out[k]);
    }
    return moment && !tri_op_get(node->op)->communicates;
}

static tr_status say_where(tri_graph *graph, const tri_spaces_config *config, tr_error *err)
{
    if (graph->asynchronous && config->masters != TRI_WHERE_DEVICE)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.offload: this layout.schedule keeps several versions of the "
                        "weights, which stay on the device; take master out, or set "
                        "layout.schedule=1f1b");
    for (size_t i = 0; i < graph->num_states; i++)
        graph->states[i].where = rests(graph, config, (tri_id)i);
    for (size_t v = 0; v < graph->num_values; v++)
        if (graph->values[v].state != TRI_NONE)
            graph->values[v].where = rests(graph, config, graph->values[v].state);
    for (size_t n = 0; n < graph->num_nodes && config->update_on_host; n++) {
        tri_node *node = &graph->nodes[n];
        if (!only_updates(graph, node))
            continue;
        if (node->attr.flat.parts > 0)
            return tri_fail(err, TR_ERROR_INPUT,
                            "an update on the host works on whole tensors, but layout.zero divides "
                            "them; set layout.zero=0, or layout.host_update=false");
        node->where = TRI_WHERE_HOST;
    }
    return TR_OK;
}

/* ---- copies ---- */

static tri_id add_copy(spacer *s, tri_id of, tri_where where)
{
    tri_id id = tri_carry_copy(s->graph, of, where);
    if (id != TRI_NONE)
        s->made[id] = true;
    return id;
}

/* One step from where a value is. `to` TRI_NONE: a new copy; otherwise that version of a state. */
static tri_id hop(spacer *s, tri_id from, tri_id of, tri_where where, tri_id to, tri_id replaces,
                  const tri_node *reason)
{
    tri_id made = to == TRI_NONE ? add_copy(s, of, where) : to;
    if (made == TRI_NONE)
        return TRI_NONE;
    tri_carry_append(s->graph, from, made, replaces, reason);
    s->made[made] = true;
    s->copy[of][where] = made;
    return made;
}

static tri_where next_to(tri_where from, tri_where to)
{
    return to < from ? (tri_where)(from - 1) : (tri_where)(from + 1);
}

/* Brings a value that is there to a place, at most to `left` steps before it. */
static void bring(spacer *s, tri_id value, tri_where to, int left, const tri_node *reason)
{
    tri_where at = where_is(s, value);
    tri_id from = value;
    while (at != to && abs((int)at - (int)to) > left) {
        tri_where next = next_to(at, to);
        tri_id copy = s->copy[value][next];
        if (copy == TRI_NONE)
            copy = hop(s, from, value, next, TRI_NONE, TRI_NONE, reason);
        if (copy == TRI_NONE)
            return; /* no memory: the graph knows */
        from = copy;
        at = next;
    }
}

/* What a piece of work reads from elsewhere and is there, or (left 1) as far as the last step. */
static void bring_for(spacer *s, uint32_t piece, int left)
{
    if (piece >= s->num_pieces)
        return;
    for (size_t n = s->begin[piece]; n < s->num_old && s->piece[n] == piece; n++) {
        const tri_node *node = &s->old[n];
        for (int j = 0; j < node->num_in; j++)
            if (node->in[j] != TRI_NONE && s->made[node->in[j]] &&
                s->copy[node->in[j]][node->where] == TRI_NONE)
                bring(s, node->in[j], node->where, left, node);
    }
}

/* ---- pieces of work ---- */

/* Whether an operand of a node lies elsewhere; *bytes: how much does. */
static bool needs_copies(const tri_graph *graph, const tri_node *node, uint64_t *bytes)
{
    bool needs = false;
    for (int o = 0; o < node->num_in + node->num_out; o++) {
        tri_id value = o < node->num_in ? node->in[o] : node->out[o - node->num_in];
        if (value == TRI_NONE || graph->values[value].where == node->where)
            continue;
        needs = true;
        *bytes += tri_dtype_size(graph->values[value].dtype,
                                 tri_shape_count(&graph->values[value].shape));
    }
    return needs;
}

/* Neighbours that compute at one place are a piece, up to so many bytes. */
static void find_pieces(spacer *s, uint64_t limit)
{
    uint64_t filled = 0;
    bool open = false;
    for (size_t n = 0; n < s->num_old; n++) {
        uint64_t bytes = 0;
        s->piece[n] = AT_REST;
        if (!needs_copies(s->graph, &s->old[n], &bytes)) {
            open = false;
            continue;
        }
        if (!open || filled + bytes > limit || s->old[n].where != s->old[n - 1].where) {
            s->begin[s->num_pieces++] = n;
            filled = 0;
        }
        open = true;
        filled += bytes;
        s->piece[n] = s->num_pieces - 1;
    }
}

static void append(spacer *s, const tri_node *node)
{
    tri_graph_append(s->graph, node);
    for (int k = 0; k < node->num_out; k++) {
        s->made[node->out[k]] = true;
        if (s->graph->values[node->out[k]].state == TRI_NONE)
            s->graph->values[node->out[k]].where = node->where;
    }
}

/* A node on copies, and what it makes of states that rest elsewhere. */
static void compute(spacer *s, const tri_node *old)
{
    tri_node node = *old;
    for (int j = 0; j < node.num_in; j++)
        if (node.in[j] != TRI_NONE && where_is(s, node.in[j]) != node.where)
            node.in[j] = s->copy[node.in[j]][node.where];
    for (int k = 0; k < node.num_out; k++) {
        tri_id version = old->out[k];
        if (where_is(s, version) == node.where)
            continue;
        node.out[k] = add_copy(s, version, node.where);
        node.prev[k] = s->copy[old->prev[k]][node.where];
        if (node.out[k] == TRI_NONE)
            return;
        s->copy[version][node.where] = node.out[k];
        s->leaving[s->num_leaving++] = (departure){node.out[k], version, old->prev[k], old};
    }
    append(s, &node);
}

/* One step for each; those that have arrived go from the list. */
static void depart(spacer *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->num_leaving; i++) {
        departure *d = &s->leaving[i];
        tri_where end = where_is(s, d->to), next = next_to(where_is(s, d->at), end);
        bool arrives = next == end;
        d->at = hop(s, d->at, d->to, next, arrives ? d->to : TRI_NONE,
                    arrives ? d->replaces : TRI_NONE, d->maker);
        if (d->at == TRI_NONE)
            return;
        if (!arrives)
            s->leaving[kept++] = *d;
    }
    s->num_leaving = kept;
}

static void do_piece(spacer *s, uint32_t piece)
{
    bring_for(s, piece + 2, 1);
    bring_for(s, piece + 1, 0);
    bring_for(s, piece, 0); /* what was not there earlier */
    for (size_t n = s->begin[piece]; n < s->num_old && s->piece[n] == piece; n++)
        compute(s, &s->old[n]);
    depart(s);
}

/* The first of a row of nodes with one operator. A device may run a row as one kernel, and sums
 * over it, so copies do not part it. */
static size_t row_of(const spacer *s, size_t node)
{
    while (node > 0 && s->old[node - 1].op == s->old[node].op)
        node--;
    return node;
}

/* The first piece comes while the rest of its phase runs, which is before it: from a file at the
 * beginning of that, to where it is needed about half way through. */
static void rebuild(spacer *s)
{
    size_t begin = 0, first = s->num_pieces > 0 ? s->begin[0] : 0;
    while (begin < first && s->old[begin].phase != s->old[first].phase)
        begin++;
    size_t middle = row_of(s, (begin + first) / 2);
    begin = begin < middle ? begin : middle;
    for (size_t n = 0; n < s->num_old && !s->graph->arena.failed; n++) {
        if (n == begin)
            bring_for(s, 0, 1);
        if (n == middle)
            bring_for(s, 0, 0);
        if (s->piece[n] == AT_REST)
            append(s, &s->old[n]);
        else if (s->begin[s->piece[n]] == n)
            do_piece(s, s->piece[n]);
    }
    while (s->num_leaving > 0 && !s->graph->arena.failed)
        depart(s);
}

static tr_status place_spaces(spacer *s, uint64_t limit, tr_error *err)
{
    tri_graph *graph = s->graph;
    size_t most = 6 * s->num_values + 1; /* a copy at each place, of what is read and made */
    s->piece = calloc(s->num_old + 1, sizeof *s->piece);
    s->begin = calloc(s->num_old + 1, sizeof *s->begin);
    s->made = calloc(most, sizeof *s->made);
    s->copy = malloc(most * sizeof *s->copy);
    s->leaving = calloc(s->num_values + 1, sizeof *s->leaving);
    if (!s->piece || !s->begin || !s->made || !s->copy || !s->leaving)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to place states elsewhere");
    for (size_t v = 0; v < most; v++)
        for (int where = 0; where < TRI_NUM_WHERE; where++)
            s->copy[v][where] = TRI_NONE;
    for (size_t v = 0; v < s->num_values; v++)
        s->made[v] = graph->values[v].producer == TRI_NONE;
    find_pieces(s, limit);
    rebuild(s);
    return graph->arena.failed
               ? tri_fail(err, TR_ERROR_RUNTIME, "no memory to place states elsewhere")
               : TR_OK;
}

tr_status tri_place_spaces(tri_graph *graph, const tri_spaces_config *config, tr_error *err)
{
    TRI_TRY(say_where(graph, config, err));
    spacer s = {.graph = graph, .num_values = graph->num_values};
    s.old = tri_graph_take_nodes(graph, &s.num_old);
    tr_status status =
        place_spaces(&s, config->piece_bytes ? config->piece_bytes : DEFAULT_PIECE_BYTES, err);
    free(s.old);
    free(s.piece);
    free(s.begin);
    free(s.made);
    free(s.copy);
    free(s.leaving);
    return status;
}
