/* Ring attention: keys and values pass from rank to rank, each time under the attention to those
 * that came before, and the results for all of them are merged.
 *
 * Step s of a rank at place r of the ring has the keys of the rank s places back. In the backward
 * they come around again, and their gradients with them: what the ranks add to those of a piece
 * travels on with it, starting at the rank after its own, and comes home last. A rank adds what its
 * own queries give to its own keys then, so that nothing goes around more often than it must. */
#include "graph/passes.h"
#include "place/expand.h"
#include "place/expand_keys.h"

typedef struct ring {
    tri_keys_node of;
    tri_attr shift;
    tri_attention_attr attention; /* of the nodes that are left */
} ring;

static const char *step_name(const ring *r, tri_id of, int32_t step)
{
    return tri_arena_printf(&r->of.graph->arena, "%s.%d", r->of.graph->values[of].name, (int)step);
}

/* A value that lies as another does, but for the tokens that it is of. */
static tri_id made_like(const ring *r, tri_id node, int k, tri_id like)
{
    tri_id id = node == TRI_NONE ? TRI_NONE : r->of.graph->nodes[node].out[k];
    if (id != TRI_NONE) {
        r->of.graph->values[id].at = r->of.graph->values[like].at;
        r->of.graph->values[id].whole = r->of.graph->values[like].whole;
    }
    return id;
}

/* The piece that a rank has at a step. */
static int32_t piece_at(const ring *r, int32_t step)
{
    int32_t own = r->shift.message.cut.part;
    return (own + r->of.parts - step % r->of.parts) % r->of.parts;
}

/* From the rank before, while it is at step `step`. */
static tri_id pass_on(const ring *r, tri_id value, tri_id like, int32_t step)
{
    tri_attr attr = r->shift;
    attr.message.cut.part = piece_at(r, step);
    return made_like(r,
                     tri_graph_emit(r->of.graph, TRI_OP_SHIFT, step_name(r, like, step + 1), &attr,
                                    &value, 1, 1),
                     0, like);
}

/* The places of the keys of a step: of all of them, which every rank knows, a piece. */
static tri_id places_at(const ring *r, int32_t step)
{
    tri_graph *graph = r->of.graph;
    tri_id own = r->of.node->in[r->of.k_places];
    const tri_node slice = graph->nodes[graph->values[own].producer];
    tri_attr attr = slice.attr;
    attr.message.cut.part = piece_at(r, step);
    return made_like(
        r, tri_graph_emit(graph, TRI_OP_SLICE, step_name(r, own, step), &attr, slice.in, 1, 1), 0,
        own);
}

static tri_id attend(const ring *r, tri_id k, tri_id v, int32_t step, int num_out)
{
    tri_id in[TRI_MAX_IN];
    tri_attr attr = {.attention = r->attention};
    int num_in = r->of.node->num_in, sink = r->of.k_places + 1;
    for (int j = 0; j < num_in; j++)
        in[j] = r->of.node->in[j];
    in[r->of.first + 1] = k;
    in[r->of.first + 2] = v;
    if (step > 0) {
        in[r->of.k_places] = places_at(r, step);
        if (num_in > sink)
            in[sink] = TRI_NONE; /* a sink is one key more, of the first step */
    }
    return tri_graph_emit(r->of.graph, r->of.node->op, step_name(r, r->of.node->out[0], step),
                          &attr, in, num_in, num_out);
}

/* The last node: it makes what others read. */
static void make(const ring *r, tri_op op, const tri_id *in, int num_in, const tri_id *out,
                 int num_out)
{
    tri_node node = {.op = op,
                     .num_in = (uint8_t)num_in,
                     .num_out = (uint8_t)num_out,
                     .phase = r->of.node->phase,
                     .layer = r->of.node->layer,
                     .ends_chain = r->of.node->ends_chain,
                     .with_chain = r->of.node->with_chain};
    for (int j = 0; j < num_in; j++)
        node.in[j] = in[j];
    for (int k = 0; k < num_out; k++) {
        node.out[k] = out[k];
        node.prev[k] = TRI_NONE;
    }
    if (tri_keys_go_on(r->of.graph))
        tri_graph_append(r->of.graph, &node);
}

static tri_id add(const ring *r, tri_id a, tri_id b, tri_id like, int32_t step)
{
    const tri_id both[] = {a, b};
    return made_like(
        r, tri_graph_emit(r->of.graph, TRI_OP_ADD, step_name(r, like, step), NULL, both, 2, 1), 0,
        like);
}

static int64_t parts_of(const tri_graph *graph, const tri_node *node,
                        const tri_expand_config *config)
{
    (void)config;
    return tri_keys_parts(graph, node, TRI_KEYS_RING);
}

static ring begin(tri_graph *graph, const tri_node *node, int64_t parts)
{
    ring r = {.of = tri_keys_begin(graph, node, parts), .attention = node->attr.attention};
    r.attention.keys = TRI_KEYS_GATHERED;
    r.shift = (tri_attr){.message = {.axis = r.of.axis, .peer = 1}};
    r.shift.message.cut = r.of.cut;
    return r;
}

static void replace(tri_graph *graph, const tri_node *node, int64_t parts)
{
    ring r = begin(graph, node, parts);
    tri_id k = node->in[TRI_ATTENTION_K], v = node->in[TRI_ATTENTION_V], k_like = k, v_like = v;
    tri_id last[4];
    for (int32_t s = 0; s < r.of.parts && tri_keys_go_on(graph); s++) {
        bool more = s + 1 < r.of.parts;
        tri_id next_k = more ? pass_on(&r, k, k_like, s) : TRI_NONE;
        tri_id next_v = more ? pass_on(&r, v, v_like, s) : TRI_NONE;
        tri_id step = attend(&r, k, v, s, 2);
        tri_id *to = s == 0 ? last : last + 2;
        for (int i = 0; i < 2; i++)
            to[i] = made_like(&r, step, i, node->out[i]);
        if (s > 0 && more) {
            tri_id merged = tri_graph_emit(graph, TRI_OP_ATTENTION_MERGE,
                                           step_name(&r, node->out[0], s), NULL, last, 4, 2);
            for (int i = 0; i < 2; i++)
                last[i] = made_like(&r, merged, i, node->out[i]);
        }
        k = next_k;
        v = next_v;
    }
    make(&r, TRI_OP_ATTENTION_MERGE, last, 4, node->out, 2);
}

/* dq stays, dk and dv of other ranks' keys travel with these. */
static void replace_grad(tri_graph *graph, const tri_node *node, int64_t parts)
{
    ring r = begin(graph, node, parts);
    tri_id keys[2] = {node->in[TRI_ATTENTION_GRAD_K], node->in[TRI_ATTENTION_GRAD_V]};
    const tri_id like[2] = {keys[0], keys[1]};
    tri_id own[3] = {TRI_NONE, TRI_NONE, TRI_NONE}, away[2] = {TRI_NONE, TRI_NONE}, dq = TRI_NONE;
    for (int32_t s = 0; s < r.of.parts && tri_keys_go_on(graph); s++) {
        bool more = s + 1 < r.of.parts;
        tri_id next[2] = {TRI_NONE, TRI_NONE}, made[3];
        for (int i = 0; more && i < 2; i++)
            next[i] = pass_on(&r, keys[i], like[i], s);
        tri_id step = attend(&r, keys[0], keys[1], s, s == 0 ? node->num_out : 3);
        for (int i = 0; i < 3; i++)
            made[i] = made_like(&r, step, i, node->out[i]);
        if (s == 0 && node->num_out > 3 && step != TRI_NONE) { /* the sinks' */
            tri_node *sinks = &graph->nodes[step];
            sinks->out[3] = node->out[3];
            graph->values[node->out[3]].producer = step;
        }
        for (int i = 0; s == 0 && i < 3; i++)
            own[i] = made[i];
        dq = s == 0 ? own[0] : more ? add(&r, dq, made[0], node->out[0], s) : dq;
        if (s > 0 && !more)
            make(&r, TRI_OP_ADD, (tri_id[]){dq, made[0]}, 2, &node->out[0], 1);
        for (int i = 0; s > 0 && i < 2; i++) {
            tri_id sum = s == 1 ? made[1 + i] : add(&r, away[i], made[1 + i], node->out[1 + i], s);
            away[i] = pass_on(&r, sum, node->out[1 + i], s);
        }
        keys[0] = next[0];
        keys[1] = next[1];
    }
    for (int i = 0; i < 2; i++)
        make(&r, TRI_OP_ADD, (tri_id[]){own[1 + i], away[i]}, 2, &node->out[1 + i], 1);
}

const tri_expansion tri_expansion_ring = {
    .op = TRI_OP_ATTENTION, .parts = parts_of, .replace = replace};
const tri_expansion tri_expansion_ring_grad = {
    .op = TRI_OP_ATTENTION_GRAD, .parts = parts_of, .replace = replace_grad};
