/* The policy of ZeRO: what every data-parallel rank would hold as a copy is divided instead.
 *
 *   zero 1   optimizer state, and fp32 parameters that have a 16-bit copy
 *   zero 2   and gradients
 *   zero 3   and the parameters, which are put together for as long as a layer computes, or, with
 *            keep_gathered, from the first forward of a step to its last backward
 *
 * The parameters of a layer form a bucket (those with a 16-bit copy one, experts one, which may be
 * divided over fewer ranks, and the others another), which
 * is cut into equal parts: a gather or a sum is one message. Update rules that need whole matrices
 * get buckets that are cut where tensors begin.
 *
 * Hybrid sharding divides within groups of ranks and keeps copies between them: sums over a group
 * are then completed over the copies, slice by slice. */
#include "place/place.h"

#include <stdlib.h>

#include "graph/code.h"

/* Lists the parameters of each bucket. Leaders, the first of each, form a list for each layer, so
 * that the time grows with the parameters and not with their square. */
static bool list_buckets(const tri_graph *graph, tri_placed_params *placed)
{
    tri_zero_plan *zero = &placed->zero;
    size_t count = graph->params->count, num_layers = 0, bytes = (count + 1) * sizeof(tri_id);
    for (size_t i = 0; i < count; i++) {
        size_t layer = (size_t)(graph->params->items[i].layer + 1);
        num_layers = layer >= num_layers ? layer + 1 : num_layers;
    }
    zero->bucket_first = tri_arena_alloc(&placed->arena, bytes);
    zero->bucket_next = tri_arena_alloc(&placed->arena, bytes);
    tri_id *scratch = malloc(2 * bytes + (num_layers + 1) * sizeof *scratch);
    bool ready = zero->bucket_first && zero->bucket_next && scratch;
    tri_id *last = scratch, *leader_after = scratch + count + 1;
    tri_id *leader_of = scratch + 2 * (count + 1); /* of each layer: the newest */
    for (size_t l = 0; ready && l < num_layers; l++)
        leader_of[l] = TRI_NONE;
    for (size_t i = 0; ready && i < count; i++) {
        tri_id *newest = &leader_of[graph->params->items[i].layer + 1], leader = *newest;
        while (leader != TRI_NONE && !tri_same_bucket(graph, &placed->homes, leader, i))
            leader = leader_after[leader];
        if (leader == TRI_NONE) {
            leader = (tri_id)i;
            leader_after[leader] = *newest;
            *newest = leader;
        } else {
            zero->bucket_next[last[leader]] = (tri_id)i;
        }
        last[leader] = (tri_id)i;
        zero->bucket_first[i] = leader;
        zero->bucket_next[i] = TRI_NONE;
    }
    free(scratch);
    return ready;
}

/* The tensor whose middle lies in part p of the bucket belongs to p: in order, and nearly even. The
 * bucket is measured in whole tensors, since the pieces that tp leaves may differ in size, and the
 * ranks that have the pieces of one tensor must agree on who updates it. */
static int owner_of(const tri_graph *graph, const tri_zero_plan *zero, tri_id param, int parts)
{
    double before = 0, total = 0, own = (double)tri_shape_count(&graph->params->items[param].shape);
    for (tri_id k = zero->bucket_first[param]; k != TRI_NONE; k = zero->bucket_next[k]) {
        double count = (double)tri_shape_count(&graph->params->items[k].shape);
        before += k < param ? count : 0;
        total += count;
    }
    return (int)((before + 0.5 * own) * parts / total);
}

/* The block of a code in which some state rests, or 0: what is divided is then divided in blocks.
 */
static int32_t block_of(const tri_graph *graph)
{
    int64_t block = 0;
    for (size_t s = 0; s < graph->num_states; s++) {
        const tri_code *code = tri_dtype_code(graph->states[s].dtype);
        block = code && code->block > block ? code->block : block;
    }
    return (int32_t)block;
}

tr_status tri_zero_divide(const tri_graph *graph, const tri_layout *layout,
                          tri_placed_params *placed, tr_error *err)
{
    tri_zero_plan *zero = &placed->zero;
    size_t count = graph->params->count;
    zero->flats = tri_arena_alloc(&placed->arena, (count + 1) * sizeof *zero->flats);
    if (!zero->flats || !list_buckets(graph, placed))
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to divide the parameters");
    zero->weights_divided = layout->zero >= 3;
    const tri_flat unit = {.block = block_of(graph)};
    for (tri_id i = 0; i < count; i++) {
        int64_t total = 0, offset = 0;
        for (tri_id k = zero->bucket_first[i]; k != TRI_NONE; k = zero->bucket_next[k]) {
            if (k == i)
                offset = total;
            total += tri_flat_padded(&unit, tri_shape_count(&placed->local_shape[k]));
        }
        bool experts = graph->params->items[i].role == TRI_ROLE_EXPERTS;
        const tri_axis over = experts ? TRI_AXIS_EP_SHARD : TRI_AXIS_SHARD;
        zero->flats[i] = (tri_flat){.parts = tri_mesh_size(&layout->mesh, over),
                                    .part = layout->coordinate[over],
                                    .whole = layout->whole_tensors,
                                    .offset = offset,
                                    .count = tri_shape_count(&placed->local_shape[i]),
                                    .total = total,
                                    .block = unit.block};
        zero->flats[i].owner = owner_of(graph, zero, i, zero->flats[i].parts);
        if (graph->params->items[i].role == TRI_ROLE_STEERED) { /* all ranks have it, and move it */
            zero->flats[i].parts = 1;
            zero->flats[i].part = zero->flats[i].owner = 0;
            zero->flats[i].whole = true;
        }
    }
    return TR_OK;
}

bool tri_zero_divides(const tri_graph *graph, const tri_layout *layout, const tri_zero_plan *zero,
                      const tri_state *state)
{
    if (!zero->flats || state->param == TRI_NONE)
        return false;
    const tri_param *param = &graph->params->items[state->param];
    if (param->role == TRI_ROLE_STEERED)
        return false;
    switch (state->kind) {
    case TRI_STATE_OPTIM:
        return true;
    case TRI_STATE_GRAD:
        return layout->zero >= 2;
    case TRI_STATE_PARAM:
        return layout->zero >= 3 || tri_param_has_copy(param, graph->precision.compute);
    case TRI_STATE_COPY:
        return layout->zero >= 3;
    default:
        return false;
    }
}
