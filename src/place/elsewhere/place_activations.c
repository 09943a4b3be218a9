/* Activations that rest elsewhere between forward and backward.
 *
 * A value of the forward that the backward reads is stashed right behind the node that makes it, so
 * that it leaves under what the forward computes next, and fetched where the backward of the layer
 * behind its own begins, so that it comes under that. Each way is one step for each place on it.
 * Between the two the device's memory is free for other layers.
 *
 * Readers in the forward read what they read before. Values of the last layer stay: its backward
 * follows at once. So do small ones, such as the statistics of rows: each way costs a start. No bit
 * changes. */
#include "place/elsewhere/place_activations.h"

#include <stdlib.h>

#include "graph/op_table.h"
#include "graph/passes.h"
#include "place/elsewhere/carry_node.h"

enum { NOWHERE = UINT32_MAX, SMALL = 32 /* times less than the largest */ };

typedef struct sender {
    tri_graph *graph;
    tri_where where;
    uint64_t least_bytes; /* of what goes */
    tri_node *old;
    uint32_t num_old;
    size_t num_values;  /* before the pass */
    uint32_t *maker;    /* of each value: the old node, or NOWHERE */
    uint32_t *backward; /* of each layer: the first node of its backward, or NOWHERE */
    bool *goes;         /* of each value */
    uint32_t *reader;   /* of each value that goes: its first in the backward */
    tri_id *away;       /* of each value that goes: where it rests, then what came back */
    uint32_t *comes;    /* of each old node: the first value that comes back before it, ... */
    uint32_t *next;     /* ... and of each value the one after it */
} sender;

static uint64_t bytes_of(const tri_graph *graph, tri_id v)
{
    const tri_value *value = &graph->values[v];
    return tri_dtype_size(value->dtype, tri_shape_count(&value->shape));
}

static bool may_go(const sender *s, tri_id v)
{
    const tri_graph *graph = s->graph;
    const tri_value *value = &graph->values[v];
    if (value->kind != TRI_VALUE_TEMP || value->state != TRI_NONE || value->output ||
        value->bucket || value->where != TRI_WHERE_DEVICE || s->maker[v] == NOWHERE ||
        !tri_dtype_is_float(value->dtype)) /* lists of rows and counts stay where they are proven */
        return false;
    const tri_node *node = &s->old[s->maker[v]];
    return node->phase == TRI_PHASE_FORWARD && node->layer >= 0 &&
           node->layer + 1 < graph->num_layers && !node->first_only && node->op != TRI_OP_UNSHARD &&
           bytes_of(graph, v) >= s->least_bytes;
}

static void note_makers(sender *s)
{
    for (size_t v = 0; v < s->num_values; v++) {
        s->maker[v] = NOWHERE;
        s->away[v] = TRI_NONE;
        s->next[v] = NOWHERE;
    }
    for (int l = 0; l <= s->graph->num_layers; l++)
        s->backward[l] = NOWHERE;
    for (uint32_t n = s->num_old; n-- > 0;) {
        const tri_node *node = &s->old[n];
        s->comes[n] = NOWHERE;
        for (int k = 0; k < node->num_out; k++)
            s->maker[node->out[k]] = n;
        if (node->phase == TRI_PHASE_BACKWARD && node->layer >= 0 &&
            node->layer <= s->graph->num_layers)
            s->backward[node->layer] = n;
    }
}

static void find_least(sender *s)
{
    uint64_t most = 0;
    for (uint32_t n = 0; n < s->num_old; n++)
        for (int j = 0; s->old[n].phase == TRI_PHASE_BACKWARD && j < s->old[n].num_in; j++) {
            tri_id v = s->old[n].in[j];
            if (v != TRI_NONE && may_go(s, v) && bytes_of(s->graph, v) > most)
                most = bytes_of(s->graph, v);
        }
    s->least_bytes = most / SMALL;
}

/* Which values go, and before which node each comes back: where the backward of the layer behind
 * begins, or its first reader, which ever is earlier. */
static void choose(sender *s)
{
    for (uint32_t n = s->num_old;
         n-- > 0;) { /* from the end: lists begin with the first reader's */
        const tri_node *node = &s->old[n];
        for (int j = node->num_in; node->phase == TRI_PHASE_BACKWARD && j-- > 0;) {
            tri_id v = node->in[j];
            if (v == TRI_NONE || !may_go(s, v))
                continue;
            s->goes[v] = true;
            s->reader[v] = n;
        }
    }
    for (size_t v = s->num_values; v-- > 0;) {
        if (!s->goes[v])
            continue;
        int layer = s->old[s->reader[v]].layer;
        bool has_behind = layer >= 0 && layer < s->graph->num_layers;
        uint32_t behind = has_behind ? s->backward[layer + 1] : NOWHERE;
        uint32_t at = behind < s->reader[v] ? behind : s->reader[v];
        s->next[v] = s->comes[at];
        s->comes[at] = (uint32_t)v;
    }
}

/* As many steps as there are places on the way. */
static tri_id carry(sender *s, tri_id from, tri_id of, tri_where to, const tri_node *reason)
{
    tri_where at = s->graph->values[from].where;
    while (at != to && from != TRI_NONE) {
        at = to < at ? (tri_where)(at - 1) : (tri_where)(at + 1);
        tri_id made = tri_carry_copy(s->graph, of, at);
        if (made != TRI_NONE)
            tri_carry_append(s->graph, from, made, TRI_NONE, reason);
        from = made;
    }
    return from;
}

/* What comes back belongs to the layer of its first reader, which may be in another chunk than what
 * made it. */
static void fetch_before(sender *s, uint32_t n)
{
    for (uint32_t v = s->comes[n]; v != NOWHERE && !s->graph->arena.failed; v = s->next[v]) {
        const tri_node reason = {.phase = TRI_PHASE_BACKWARD, .layer = s->old[s->reader[v]].layer};
        s->away[v] = carry(s, s->away[v], v, TRI_WHERE_DEVICE, &reason);
    }
}

static void rebuild(sender *s)
{
    for (uint32_t n = 0; n < s->num_old && !s->graph->arena.failed; n++) {
        tri_node node = s->old[n];
        fetch_before(s, n);
        for (int j = 0; j < node.num_in && node.phase == TRI_PHASE_BACKWARD; j++)
            if (node.in[j] != TRI_NONE && s->goes[node.in[j]])
                node.in[j] = s->away[node.in[j]];
        tri_graph_append(s->graph, &node);
        for (int k = 0; k < node.num_out; k++)
            if (s->goes[node.out[k]])
                s->away[node.out[k]] = carry(s, node.out[k], node.out[k], s->where, &node);
    }
}

static bool alloc(sender *s)
{
    s->maker = calloc(s->num_values + 1, sizeof *s->maker);
    s->backward = calloc((size_t)s->graph->num_layers + 1, sizeof *s->backward);
    s->goes = calloc(s->num_values + 1, sizeof *s->goes);
    s->reader = calloc(s->num_values + 1, sizeof *s->reader);
    s->away = calloc(s->num_values + 1, sizeof *s->away);
    s->comes = calloc((size_t)s->num_old + 1, sizeof *s->comes);
    s->next = calloc(s->num_values + 1, sizeof *s->next);
    return s->maker && s->backward && s->goes && s->reader && s->away && s->comes && s->next;
}

tr_status tri_place_activations(tri_graph *graph, tri_where where, tr_error *err)
{
    size_t num_old;
    sender s = {.graph = graph, .where = where, .num_values = graph->num_values};
    s.old = tri_graph_take_nodes(graph, &num_old);
    s.num_old = (uint32_t)num_old;
    bool enough = alloc(&s);
    if (enough) {
        note_makers(&s);
        find_least(&s);
        choose(&s);
        rebuild(&s);
    }
    free(s.old);
    free(s.maker);
    free(s.backward);
    free(s.goes);
    free(s.reader);
    free(s.away);
    free(s.comes);
    free(s.next);
    return enough && !graph->arena.failed
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory to place activations elsewhere");
}
