/* What keeps its place for the whole run: states, the step's inputs, and what the host reads. */
#include <stdlib.h>

#include "program/memory_parts.h"

/* The next free piece of a space in which nothing is reused. */
static tri_operand take(tri_program *program, uint32_t space, tri_id value)
{
    tri_operand home = {.value = value, .space = space, .offset = program->spaces[space].bytes};
    program->spaces[space].bytes += tri_planner_align_at(tri_value_bytes(&program->values[value]),
                                                         program->spaces[space].where);
    return home;
}

/* The space of states of a kind is the one of the same place in this list. */
static const tri_space_kind space_of_state[TRI_NUM_STATE_KINDS] = {
    [TRI_STATE_PARAM] = TRI_SPACE_PARAM, [TRI_STATE_COPY] = TRI_SPACE_COPY,
    [TRI_STATE_GRAD] = TRI_SPACE_GRAD,   [TRI_STATE_OPTIM] = TRI_SPACE_OPTIM,
    [TRI_STATE_STAT] = TRI_SPACE_STAT,   [TRI_STATE_CACHE] = TRI_SPACE_CACHE,
};

/* What this rank has of a parameter or its copy. A program that has no use for it (evaluation in 16
 * bits needs no masters) still leaves the room that training takes. */
static int64_t own_count(const tri_graph *graph, const tri_placed_params *placed, uint32_t kind,
                         size_t i)
{
    const tri_zero_plan *zero = &placed->zero;
    bool has_copy = tri_param_has_copy(&graph->params->items[i], graph->precision.compute);
    int64_t first;
    if (placed->homes.elsewhere && placed->homes.elsewhere[i])
        return 0;
    if (zero->flats && (zero->weights_divided || (kind == TRI_SPACE_PARAM && has_copy)))
        return tri_flat_slice(&zero->flats[i], zero->flats[i].part, &first);
    return tri_shape_count(&placed->local_shape[i]);
}

/* Parameters, their copies and, where tensors are divided flat, their gradients lie in the order of
 * their buckets: whether they have a copy or not within a layer, then as in their table; whatever
 * the graph's order, so that all programs of a run agree on their addresses. */
static void place_by_table(tri_planner *p, uint32_t kind, tri_where where, const tri_id *state_of,
                           size_t i, tri_dtype dtype)
{
    tri_program *program = p->program;
    const tri_graph *graph = p->graph;
    uint32_t at = tri_planner_space(p, kind, where);
    tri_space *space = &program->spaces[at];
    int64_t count = own_count(graph, p->placed, kind, i);
    if (state_of[i] != TRI_NONE) {
        tri_id version = program->states[state_of[i]].latest;
        program->home[version] = (tri_operand){version, at, space->bytes};
        count = tri_shape_count(&program->states[state_of[i]].shape);
    }
    if (p->placed->zero.flats && where == TRI_WHERE_DEVICE) /* a bucket lies together */
        space->bytes +=
            (uint64_t)tri_flat_padded(&p->placed->zero.flats[i], count) * tri_dtype_bytes(dtype);
    else
        space->bytes += tri_planner_align_at((uint64_t)count * tri_dtype_bytes(dtype), where);
}

static void place_param(tri_planner *p, size_t i)
{
    const tri_graph *graph = p->graph;
    tri_id grad = graph->grad_state[i];
    bool has_copy = tri_param_has_copy(&graph->params->items[i], graph->precision.compute);
    place_by_table(p, TRI_SPACE_PARAM, has_copy ? p->placed->masters : TRI_WHERE_DEVICE,
                   graph->param_state, i, TRI_F32);
    if (has_copy)
        place_by_table(p, TRI_SPACE_COPY, TRI_WHERE_DEVICE, graph->copy_state, i,
                       graph->precision.compute);
    if (!p->placed->zero.flats || grad == TRI_NONE)
        return;
    const tri_state *state = &p->program->states[grad];
    if (p->lays_grads)
        tri_planner_add_grad(
            p, grad,
            (uint64_t)tri_flat_padded(&p->placed->zero.flats[i], tri_shape_count(&state->shape)) *
                tri_dtype_bytes(state->dtype));
    else
        place_by_table(p, TRI_SPACE_GRAD, TRI_WHERE_DEVICE, graph->grad_state, i, state->dtype);
}

/* Those of a layer that have a copy, then the others; bucket by bucket. */
static tr_status place_params(tri_planner *p)
{
    const tri_graph *graph = p->graph;
    size_t count = graph->params->count, first = 0;
    bool *done = calloc(count + 1, sizeof *done);
    if (!done)
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the memory plan");
    while (first < count) {
        size_t end = first;
        while (end < count && graph->params->items[end].layer == graph->params->items[first].layer)
            end++;
        for (int with_copy = 1; with_copy >= 0; with_copy--)
            for (size_t b = first; b < end; b++) {
                bool has = tri_param_has_copy(&graph->params->items[b], graph->precision.compute);
                for (size_t i = b; i < end && has == with_copy; i++)
                    if (!done[i] && tri_same_bucket(graph, &p->placed->homes, b, i)) {
                        done[i] = true;
                        place_param(p, i);
                    }
            }
        first = end;
    }
    free(done);
    return TR_OK;
}

static bool placed_by_table(const tri_planner *p, const tri_state *state)
{
    return state->kind == TRI_STATE_PARAM || state->kind == TRI_STATE_COPY ||
           (state->kind == TRI_STATE_GRAD && p->placed->zero.flats);
}

tr_status tri_planner_place_states(tri_planner *p)
{
    tri_program *program = p->program;
    TRI_TRY(place_params(p));
    /* Those of one type together, so that they can travel in one message. */
    for (tri_dtype dtype = 0; dtype < TRI_NUM_DTYPES; dtype++)
        for (size_t s = 0; s < program->num_states; s++) {
            const tri_state *state = &program->states[s];
            if (state->dtype != dtype || placed_by_table(p, state))
                continue;
            if (state->kind == TRI_STATE_GRAD && p->lays_grads)
                tri_planner_add_grad(
                    p, (tri_id)s,
                    tri_planner_align(tri_value_bytes(&program->values[state->latest])));
            else
                program->home[state->latest] =
                    take(program, tri_planner_space(p, space_of_state[state->kind], state->where),
                         state->latest);
        }
    for (size_t v = 0; v < program->num_values; v++) {
        tri_id state = program->values[v].state;
        if (state == TRI_NONE)
            continue;
        program->home[v] = program->home[program->states[state].latest];
        program->home[v].value = (tri_id)v;
    }
    return TR_OK;
}

void tri_planner_place_inputs_and_outputs(tri_planner *p)
{
    tri_program *program = p->program;
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        if (value->kind == TRI_VALUE_INPUT)
            program->home[v] =
                take(program, value->per_microbatch ? TRI_SPACE_BATCH : TRI_SPACE_STEP, (tri_id)v);
        else if (value->output && value->kind == TRI_VALUE_TEMP)
            program->home[v] = take(program, TRI_SPACE_OUTPUT, (tri_id)v);
    }
}
