/* Gradients as buffers of the step.
 *
 * Where every segment runs once, a gradient is written and not added up over micro-batches: it is
 * needed from its first write on, and its memory is free before, while the activations of the
 * forward are there. It lives to the end of the step, past the update, so that the host can look at
 * it then.
 *
 * Gradients that travel in one message must be neighbours. Such a group is one buffer with the
 * lifetime of all of it: a bucket that ZeRO divides, or gradients that are summed one after the
 * other. The latter end at GROUP_BYTES: a message gains nothing from being larger, and what is made
 * late in the backward need not be there early. */
#include <string.h>

#include "program/memory_parts.h"
#include "program/messages.h"

enum { GROUP_BYTES = 256 << 20 };

static tri_id leader_of(const tri_planner *p, tri_id state)
{
    while (p->grad_group[state] != state)
        state = p->grad_group[state];
    return state;
}

static void unite(tri_planner *p, tri_id a, tri_id b, uint64_t limit)
{
    tri_id x = leader_of(p, a), y = leader_of(p, b);
    if (x == y || p->group_bytes[x] + p->group_bytes[y] > limit)
        return;
    p->grad_group[y] = x;
    p->group_bytes[x] += p->group_bytes[y];
}

/* The gradient that a message sums, or TRI_NONE. */
static tri_id summed_grad(const tri_planner *p, const tri_node *node)
{
    if (!tri_op_get(node->op)->communicates || node->num_out == 0)
        return TRI_NONE;
    tri_id state = p->graph->values[node->out[0]].state;
    bool grad = state != TRI_NONE && p->graph->states[state].kind == TRI_STATE_GRAD;
    return grad ? state : TRI_NONE;
}

/* A group is measured in whole tensors: what tp leaves of them may differ, and the ranks must agree
 * on their messages. */
static void begin_groups(tri_planner *p)
{
    const tri_graph *graph = p->graph;
    for (size_t s = 0; s < graph->num_states; s++) {
        const tri_state *state = &graph->states[s];
        p->grad_group[s] = (tri_id)s;
        p->grad_buffer[s] = TRI_NONE;
        if (state->kind == TRI_STATE_GRAD)
            p->group_bytes[s] =
                (uint64_t)tri_shape_count(&graph->params->items[state->param].shape) *
                tri_dtype_bytes(state->dtype);
    }
}

void tri_planner_group_grads(tri_planner *p)
{
    const tri_graph *graph = p->graph;
    const tri_zero_plan *zero = &p->placed->zero;
    const tri_node_order *order = p->order;
    begin_groups(p);
    for (tri_id a = 0; zero->flats && a < graph->params->count; a++)
        for (tri_id b = zero->bucket_next[a]; b != TRI_NONE; b = zero->bucket_next[b])
            if (graph->grad_state[a] != TRI_NONE && graph->grad_state[b] != TRI_NONE)
                unite(p, graph->grad_state[a], graph->grad_state[b], UINT64_MAX);
    for (size_t i = 1; i < order->count; i++) {
        const tri_node *last = &graph->nodes[order->node[i - 1]];
        const tri_node *node = &graph->nodes[order->node[i]];
        tri_id a = summed_grad(p, last), b = summed_grad(p, node);
        if (a != TRI_NONE && b != TRI_NONE && order->segment[i] == order->segment[i - 1] &&
            tri_may_travel_together(last, node) && graph->states[a].dtype == graph->states[b].dtype)
            unite(p, a, b, GROUP_BYTES);
    }
}

void tri_planner_add_grad(tri_planner *p, tri_id state, uint64_t bytes)
{
    tri_id leader = leader_of(p, state);
    if (p->grad_buffer[leader] == TRI_NONE) {
        p->grad_buffer[leader] = (tri_id)p->num_buffers++;
        p->buffers[p->grad_buffer[leader]] = (tri_buffer){.born = UINT32_MAX};
    }
    p->grad_buffer[state] = p->grad_buffer[leader];
    p->grad_offset[state] = p->buffers[p->grad_buffer[state]].bytes;
    p->buffers[p->grad_buffer[state]].bytes += bytes;
    p->program->laid_grad_bytes += bytes;
}

/* What no instruction of this rank writes is taken to be there all the time. Behind each group is a
 * gap: one that another happens to follow on this rank, and on no other, must not travel with it.
 */
void tri_planner_date_grads(tri_planner *p)
{
    const tri_graph *graph = p->graph;
    for (size_t i = 0; i < p->order->count; i++) {
        const tri_node *node = &graph->nodes[p->order->node[i]];
        for (int k = 0; k < node->num_out; k++) {
            tri_id state = graph->values[node->out[k]].state;
            if (state == TRI_NONE || p->grad_buffer[state] == TRI_NONE)
                continue;
            tri_buffer *group = &p->buffers[p->grad_buffer[state]];
            group->born = group->born < i ? group->born : (uint32_t)i;
        }
    }
    for (size_t s = 0; s < graph->num_states; s++) {
        if (p->grad_buffer[s] == TRI_NONE)
            continue;
        tri_buffer *group = &p->buffers[p->grad_buffer[s]];
        if (leader_of(p, (tri_id)s) == s)
            group->bytes = tri_planner_align(group->bytes) + TRI_PROGRAM_ALIGN;
        group->born = group->born == UINT32_MAX ? 0 : group->born;
        group->dies = (uint32_t)p->order->count - 1;
    }
}

void tri_planner_settle_grads(tri_planner *p)
{
    for (size_t v = 0; v < p->program->num_values; v++) {
        tri_id state = p->program->values[v].state;
        if (state == TRI_NONE || p->grad_buffer[state] == TRI_NONE)
            continue;
        const tri_buffer *group = &p->buffers[p->grad_buffer[state]];
        p->program->home[v] =
            (tri_operand){(tri_id)v, group->space, group->offset + p->grad_offset[state]};
    }
}
